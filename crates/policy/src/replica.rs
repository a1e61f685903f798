//! The copy of a block that a reader starts with.

/// The index of the copy that `reader` starts with, of `copies` equally good ones; `block` is the hash of the block's
/// id. Readers that see the same copies share the load, and each comes back to the copy that it read before.
///
/// # Panics
/// If there are no copies.
#[must_use]
pub const fn first(reader: u64, block: u64, copies: usize) -> usize {
    (tidepool_types::mix(reader ^ block) % copies as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_block_and_blocks_of_one_reader_are_spread() {
        for copies in 1..=8 {
            let (mut by_reader, mut by_block) = (vec![0; copies], vec![0; copies]);
            for n in 0..1000 {
                by_reader[first(n, 7, copies)] += 1;
                by_block[first(7, n, copies)] += 1;
            }
            assert!(by_reader.iter().chain(&by_block).all(|count| *count > 500 / copies), "{by_reader:?} {by_block:?}");
        }
    }
}
