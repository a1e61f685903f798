//! Copying and summing in one loop: each line is loaded once, stored past the cache and folded into the checksum.
//!
//! Summing first and copying afterwards, from the cache, reads memory in one phase and writes it in the next; in one loop
//! both go on at the same time. CRC-32C is linear, so the bytes so far may be replaced by any 256 bytes that leave the same
//! remainder: four registers hold such bytes, and each step moves them on by 256 bytes (a multiplication by
//! x^2048 modulo the polynomial, done in two halves) and adds the next 256. At the end they are summed like any bytes.

use tidepool_wire::checksum::Running;

/// Bytes of a step.
const STEP: usize = 256;
/// Below this many bytes the ends cost more than the loop saves.
const SHORT: usize = 1024;

/// Copies as many of the first bytes as this processor can copy and sum in one loop, adds them to `running` and returns how
/// many they were; zero when it cannot, the bytes are few or the destination is not aligned to lines. Not fenced.
///
/// # Safety
/// `from` must be readable, stable and `to` writable and unshared for `len` bytes, and the two must not overlap.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize, running: &mut Running) -> usize {
    #[cfg(target_arch = "x86_64")]
    if len >= SHORT && to.cast::<[u8; 64]>().addr().is_multiple_of(64) && x86::is_there() {
        let whole = len / STEP * STEP;
        // SAFETY: the instructions are there, the destination is aligned, `whole` is a multiple of the step and at least
        // one; the rest is the caller's promise.
        let folded = unsafe { x86::copy(to, from, whole, running.register()) };
        running.restart_from(&folded);
        return whole;
    }
    let _ = (to, from, len, running);
    0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::STEP;
    use std::arch::x86_64::{
        __m512i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_prefetch, _mm512_clmulepi64_epi128, _mm512_loadu_si512,
        _mm512_set_epi64, _mm512_storeu_si512, _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
        _mm512_zextsi128_si512,
    };

    /// How far ahead of the loads the source is prefetched: into the next page, where the hardware does not follow.
    const AHEAD: usize = 2048;
    /// Exclusive or of three, as the truth table that the instruction takes.
    const XOR3: i32 = 0x96;
    /// CRC-32C's polynomial without its highest term, lowest term first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    /// What the earlier and the later half of 16 bytes are multiplied with to move them on by a step.
    const EARLIER: u64 = x_to_the(8 * STEP as u32 + 32);
    const LATER: u64 = x_to_the(8 * STEP as u32 - 32);

    /// x to the power of `exponent`, modulo the polynomial, lowest term first and one bit to the left, which is where a
    /// product of two such numbers expects it.
    const fn x_to_the(exponent: u32) -> u64 {
        let (mut power, mut done) = (1 << 31, 0);
        while done < exponent {
            power = power >> 1 ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
            done += 1;
        }
        (power as u64) << 1
    }

    pub(super) fn is_there() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
    }

    /// Copies `len` bytes; returns bytes that, summed from zero, leave what all of them leave, summed from `register`.
    ///
    /// # Safety
    /// AVX-512F and VPCLMULQDQ exist, `to` is aligned to 64 bytes, `len` is a multiple of [`STEP`] and not zero; otherwise
    /// as for [`super::copy`].
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize, register: u32) -> [u8; STEP] {
        // SAFETY: the first step lies in both regions.
        let mut folded = unsafe { step(to, from) };
        let register = _mm512_zextsi128_si512(_mm_cvtsi32_si128(register as i32));
        folded[0] = _mm512_xor_si512(folded[0], register);
        let [earlier, later] = [EARLIER as i64, LATER as i64];
        let factors = _mm512_set_epi64(later, earlier, later, earlier, later, earlier, later, earlier);
        for at in (STEP..len).step_by(STEP) {
            // SAFETY: `at + STEP <= len`, so the step lies in both regions; prefetching past the end never faults, and
            // wrapping_add makes no claim about the address.
            let lines = unsafe {
                for line in 0..4 {
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at + AHEAD + line * 64).cast());
                }
                step(to.add(at), from.add(at))
            };
            for (folded, line) in folded.iter_mut().zip(lines) {
                let earlier = _mm512_clmulepi64_epi128::<0x00>(*folded, factors);
                let later = _mm512_clmulepi64_epi128::<0x11>(*folded, factors);
                *folded = _mm512_ternarylogic_epi64::<XOR3>(earlier, later, line);
            }
        }
        let mut bytes = [0; STEP];
        for (line, folded) in bytes.chunks_exact_mut(64).zip(folded) {
            // SAFETY: the chunk has the 64 bytes that are stored.
            unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), folded) };
        }
        bytes
    }

    /// Copies one step past the cache and returns it.
    ///
    /// # Safety
    /// AVX-512F exists, both regions have [`STEP`] bytes, `to` is aligned to 64.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn step(to: *mut u8, from: *const u8) -> [__m512i; 4] {
        let (from, to) = (from.cast::<__m512i>(), to.cast::<__m512i>());
        // SAFETY: the caller's promise.
        unsafe {
            let lines = [0, 1, 2, 3].map(|line| _mm512_loadu_si512(from.add(line)));
            for (line, bytes) in lines.into_iter().enumerate() {
                _mm512_stream_si512(to.add(line), bytes);
            }
            lines
        }
    }
}
