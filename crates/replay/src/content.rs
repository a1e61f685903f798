//! Contents of blocks: bytes that follow from a number, so that any reader who knows the number can check all of them.
//!
//! Each word is one multiplication, so that making and checking run near the speed of memory.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
const WORD: usize = size_of::<u64>();

/// The bytes that follow from a number, however many.
#[derive(Debug, Clone, Copy)]
pub struct Content(u64);

impl Content {
    /// The bytes that follow from `number`, different for every number.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self(tidepool_types::mix(number))
    }

    /// Fills `block` with these bytes.
    pub fn fill(self, block: &mut [u8]) {
        let mut state = self.0;
        let mut words = block.chunks_exact_mut(WORD);
        for word in &mut words {
            word.copy_from_slice(&step(&mut state));
        }
        let rest = words.into_remainder();
        let len = rest.len();
        rest.copy_from_slice(&step(&mut state)[..len]);
    }

    /// Whether `block` has exactly these bytes.
    #[must_use]
    pub fn matches(self, block: &[u8]) -> bool {
        let mut state = self.0;
        let mut differences = 0;
        let words = block.chunks_exact(WORD);
        let rest = words.remainder();
        for word in words {
            let found = u64::from_le_bytes(word.try_into().expect("chunks_exact gives whole words"));
            differences |= found ^ u64::from_le_bytes(step(&mut state));
        }
        differences == 0 && rest == &step(&mut state)[..rest.len()]
    }
}

/// The next eight bytes.
fn step(state: &mut u64) -> [u8; WORD] {
    *state = state.wrapping_add(STEP);
    let value = (*state ^ (*state >> 32)).wrapping_mul(FACTOR);
    (value ^ (value >> 29)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_of_any_length_is_noticed() {
        for len in [1, 7, 8, 9, 63, 4096, 4099] {
            let mut block = vec![0; len];
            Content::of(42).fill(&mut block);
            assert!(Content::of(42).matches(&block), "{len} bytes");
            for at in 0..len {
                block[at] ^= 1;
                assert!(!Content::of(42).matches(&block), "byte {at} of {len}");
                block[at] ^= 1;
            }
        }
    }

    #[test]
    fn no_two_numbers_have_the_same_content() {
        for (one, other) in [(1, 2), (0, u64::MAX), (7, 7 << 32)] {
            let mut block = [0; 64];
            Content::of(one).fill(&mut block);
            assert!(!Content::of(other).matches(&block), "{one} {other}");
        }
    }
}
