//! Copying and summing in one loop: each line is loaded once, stored past the cache and folded into the checksum.
//!
//! Summing first and copying afterwards, from the cache, reads memory in one phase and writes it in the next; in one loop
//! both go on at the same time. CRC-32C is linear, so the bytes so far may be replaced by any 256 bytes that leave the same
//! remainder: four registers hold such bytes, and each step moves them on by 256 bytes (a multiplication by
//! x^2048 modulo the polynomial, done in two halves) and adds the next 256. At the end they are summed like any bytes.
//!
//! Four stretches that follow each other are copied side by side, where that is faster ([`stream`]). Each has its own
//! registers; those of the first, moved on by the length of the second, are added to those of the second, and so on.

#[cfg(target_arch = "x86_64")]
use super::stream;
use tidepool_wire::checksum::Running;

/// Copies as many of the first bytes as this processor can copy and sum in one loop, adds them to `running` and returns how
/// many they were; zero when it cannot, the bytes are few or the destination is not aligned to lines. Not fenced.
///
/// # Safety
/// `from` must be readable, stable and `to` writable and unshared for `len` bytes, and the two must not overlap.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize, running: &mut Running) -> usize {
    #[cfg(target_arch = "x86_64")]
    if len >= x86::SHORT && to.cast::<[u8; 64]>().addr().is_multiple_of(64) && x86::is_there() {
        // SAFETY: the instructions are there and the destination is aligned; the rest is the caller's promise.
        return unsafe { copy_in(stream::is_in_quarters(), to, from, len, running) };
    }
    let _ = (to, from, len, running);
    0
}

/// [`copy`], with four `stretches` side by side or in one.
///
/// # Safety
/// AVX-512F and VPCLMULQDQ exist, and `to` is aligned to 64 bytes; otherwise as for [`copy`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn copy_in(
    stretches: bool,
    to: *mut u8,
    from: *const u8,
    len: usize,
    running: &mut Running,
) -> usize {
    let (whole, mut done) = (len / x86::STEP * x86::STEP, 0);
    while done < whole {
        let left = whole - done;
        // SAFETY: the destination is still aligned, since all before has whole steps, and so has what is left; the rest is
        // the caller's promise.
        let (copied, folded) = unsafe { x86::copy(stretches, to.add(done), from.add(done), left, running.register()) };
        running.restart_from(&folded);
        done += copied;
    }
    whole
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::stream;
    use std::arch::x86_64::{
        __m512i, _mm_cvtsi32_si128, _mm512_clmulepi64_epi128, _mm512_set_epi64, _mm512_storeu_si512,
        _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    /// Bytes of a step.
    pub(super) const STEP: usize = 256;
    /// Below this many bytes the ends cost more than the loop saves.
    pub(super) const SHORT: usize = 1024;
    /// Stretches that are copied side by side.
    const STREAMS: usize = 4;
    /// Their lengths, longest first: a quarter of a chunk, and half of that.
    const STRETCHES: [usize; 2] = [32 << 10, 16 << 10];
    /// Exclusive or of three, as the truth table that the instruction takes.
    const XOR3: i32 = 0x96;
    /// CRC-32C's polynomial without its highest term, lowest term first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    /// What the earlier and the later half of 16 bytes are multiplied with to move them on by `bytes`.
    const fn factors(bytes: usize) -> [i64; 2] {
        [x_to_the(8 * bytes as u32 + 32) as i64, x_to_the(8 * bytes as u32 - 32) as i64]
    }

    /// x to the power of `exponent`, modulo the polynomial, lowest term first and one bit to the left, which is where a
    /// product of two such numbers expects it.
    const fn x_to_the(exponent: u32) -> u64 {
        // The powers of x with the exponents 1, 2, 4 and so on, and the product of those that make up the exponent.
        let (mut square, mut power, mut left) = (1 << 30, 1 << 31, exponent);
        while left > 0 {
            if left & 1 == 1 {
                power = times(power, square);
            }
            square = times(square, square);
            left >>= 1;
        }
        (power as u64) << 1
    }

    /// A product modulo the polynomial.
    const fn times(mut one: u32, other: u32) -> u32 {
        let (mut product, mut term) = (0, 1u32 << 31);
        while term > 0 {
            if other & term != 0 {
                product ^= one;
            }
            one = one >> 1 ^ if one & 1 == 1 { POLYNOMIAL } else { 0 };
            term >>= 1;
        }
        product
    }

    pub(super) fn is_there() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
    }

    /// Copies some of the first of `len` bytes; returns how many, and bytes that, summed from zero, leave what these leave,
    /// summed from `register`.
    ///
    /// # Safety
    /// AVX-512F and VPCLMULQDQ exist, `to` is aligned to 64 bytes, `len` is a multiple of [`STEP`] and not zero; otherwise
    /// as for [`super::copy`].
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) unsafe fn copy(
        stretches: bool,
        to: *mut u8,
        from: *const u8,
        len: usize,
        register: u32,
    ) -> (usize, [u8; STEP]) {
        let register = _mm512_zextsi128_si512(_mm_cvtsi32_si128(register as i32));
        const { assert!(STRETCHES[0].is_multiple_of(STEP) && STRETCHES[1].is_multiple_of(STEP)) };
        // SAFETY: as many bytes as are copied lie in both regions, in whole steps.
        let (copied, folded) = unsafe {
            if stretches && len >= STREAMS * STRETCHES[0] {
                (STREAMS * STRETCHES[0], side_by_side::<{ STRETCHES[0] }>(to, from, register))
            } else if stretches && len >= STREAMS * STRETCHES[1] {
                (STREAMS * STRETCHES[1], side_by_side::<{ STRETCHES[1] }>(to, from, register))
            } else {
                (len, alone(to, from, len, register))
            }
        };
        let mut bytes = [0; STEP];
        for (line, folded) in bytes.chunks_exact_mut(64).zip(folded) {
            // SAFETY: the chunk has the 64 bytes that are stored.
            unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), folded) };
        }
        (copied, bytes)
    }

    /// # Safety
    /// As for [`copy`].
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    unsafe fn alone(to: *mut u8, from: *const u8, len: usize, register: __m512i) -> [__m512i; 4] {
        let on = spread(const { factors(STEP) });
        // SAFETY: every step lies in both regions.
        unsafe {
            let mut folded = step(to, from);
            folded[0] = _mm512_xor_si512(folded[0], register);
            for at in (STEP..len).step_by(STEP) {
                folded = move_on(folded, on, step(to.add(at), from.add(at)));
            }
            folded
        }
    }

    /// As many stretches of `LEN` bytes as there are streams.
    ///
    /// # Safety
    /// As for [`copy`].
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    unsafe fn side_by_side<const LEN: usize>(to: *mut u8, from: *const u8, register: __m512i) -> [__m512i; 4] {
        let on = spread(const { factors(STEP) });
        // SAFETY: every step lies in both regions.
        unsafe {
            let mut streams: [_; STREAMS] =
                [0, 1, 2, 3].map(|stream| step(to.add(stream * LEN), from.add(stream * LEN)));
            streams[0][0] = _mm512_xor_si512(streams[0][0], register);
            for at in (STEP..LEN).step_by(STEP) {
                for (stream, folded) in streams.iter_mut().enumerate() {
                    let at = stream * LEN + at;
                    *folded = move_on(*folded, on, step(to.add(at), from.add(at)));
                }
            }
            let [mut all, others @ ..] = streams;
            for next in others {
                all = move_on(all, spread(const { factors(LEN) }), next);
            }
            all
        }
    }

    /// The factors, as every 16 bytes of a register want them.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn spread([earlier, later]: [i64; 2]) -> __m512i {
        _mm512_set_epi64(later, earlier, later, earlier, later, earlier, later, earlier)
    }

    /// Moves folded bytes on, as far as `factors` say, and adds the bytes that are there.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn move_on(folded: [__m512i; 4], factors: __m512i, there: [__m512i; 4]) -> [__m512i; 4] {
        std::array::from_fn(|line| {
            let earlier = _mm512_clmulepi64_epi128::<0x00>(folded[line], factors);
            let later = _mm512_clmulepi64_epi128::<0x11>(folded[line], factors);
            _mm512_ternarylogic_epi64::<XOR3>(earlier, later, there[line])
        })
    }

    /// Copies one step past the cache and returns it, with what comes a while later on its way.
    ///
    /// # Safety
    /// AVX-512F exists, both regions have [`STEP`] bytes, `to` is aligned to 64.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn step(to: *mut u8, from: *const u8) -> [__m512i; 4] {
        stream::prefetch(from);
        // SAFETY: the caller's promise.
        unsafe { stream::step(to, from) }
    }
}
