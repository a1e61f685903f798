//! The widest non-temporal copy that this processor has.

#[cfg(all(test, target_arch = "x86_64"))]
pub(super) use x86::{avx2, avx512, family};
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{copy, fence, is_in_quarters, prefetch, step};

#[cfg(not(target_arch = "x86_64"))]
pub(super) use plain::{copy, fence};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __cpuid, __m256i, __m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256,
        _mm512_loadu_si512, _mm512_stream_si512,
    };
    use std::sync::LazyLock;

    /// How far ahead of the loads the source is prefetched. It reaches into the next page, which the hardware's own
    /// prefetcher does not.
    const AHEAD: usize = 2048;

    /// Below this many bytes there are too few whole lines to gain anything.
    const SHORT: usize = 512;

    /// From this many bytes on the quarters are copied side by side, where that is faster.
    const SIDE_BY_SIDE: usize = 64 << 10;

    /// The first family of AMD's processors that is faster in quarters: Zen 5.
    const AMD_IN_QUARTERS: u32 = 0x1a;

    /// Whether copying quarters side by side is faster: several streams, in pages far from each other, keep more of the memory
    /// busy than one. On AMD's processors before Zen 5 (measured on an EPYC 9004) they are slower instead (docs/lab/copies.md).
    pub(in super::super) fn is_in_quarters() -> bool {
        static IS: LazyLock<bool> = LazyLock::new(|| {
            let maker = __cpuid(0);
            let is_amd = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD";
            !is_amd || family(__cpuid(1).eax) >= AMD_IN_QUARTERS
        });
        *IS
    }

    /// The family that a processor's signature names. What has no room in the first field is added by a second one.
    pub(in super::super) const fn family(signature: u32) -> u32 {
        match (signature >> 8) & 0xf {
            0xf => 0xf + ((signature >> 20) & 0xff),
            family => family,
        }
    }

    /// Copies `len` bytes with non-temporal stores. Not ordered before later stores until [`fence`].
    ///
    /// # Safety
    /// As for [`super::super::copy`].
    #[inline]
    pub(in super::super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise is passed on; each kernel is only called where its instructions exist.
        unsafe {
            if len < SHORT {
                std::ptr::copy_nonoverlapping(src, dst, len);
            } else if is_x86_feature_detected!("avx512f") {
                by_lines(dst, src, len, |dst, src, len| avx512(dst, src, len, is_in_quarters()));
            } else if is_x86_feature_detected!("avx2") {
                by_lines(dst, src, len, |dst, src, len| avx2(dst, src, len, is_in_quarters()));
            } else {
                std::ptr::copy_nonoverlapping(src, dst, len);
            }
        }
    }

    /// Orders all stores so far, non-temporal ones included, before later ones.
    #[inline]
    pub(in super::super) fn fence() {
        // SAFETY: sfence is part of every x86-64 processor and touches no memory.
        unsafe { _mm_sfence() };
    }

    /// Plain copies up to the first and after the last group of four whole destination lines, `bulk` in between.
    ///
    /// # Safety
    /// As for [`copy`]; `bulk` gets a line-aligned destination and a multiple of 256 bytes.
    #[inline]
    unsafe fn by_lines(dst: *mut u8, src: *const u8, len: usize, bulk: impl Fn(*mut u8, *const u8, usize)) {
        let head = dst.align_offset(64).min(len);
        let body = (len - head) & !255;
        // SAFETY: head, body and tail partition the caller's `len` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(src, dst, head);
            bulk(dst.add(head), src.add(head), body);
            let done = head + body;
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), len - done);
        }
    }

    /// A loop over steps of 256 bytes, for processors with a feature.
    macro_rules! bulk {
        ($name:ident, $feature:literal, $step:ident) => {
            /// # Safety
            /// The feature exists; `dst` is aligned to 64 bytes and `len` is a multiple of 256; otherwise as for [`copy`].
            #[target_feature(enable = $feature)]
            pub(in super::super) unsafe fn $name(dst: *mut u8, src: *const u8, len: usize, in_quarters: bool) {
                let quarter = if in_quarters && len >= SIDE_BY_SIDE { (len / 4) & !255 } else { 0 };
                // SAFETY: every offset is at least 256 bytes before the end of both regions.
                unsafe {
                    for at in (0..quarter).step_by(256) {
                        for start in [0, quarter, 2 * quarter, 3 * quarter] {
                            prefetch(src.add(start + at));
                            $step(dst.add(start + at), src.add(start + at));
                        }
                    }
                    for at in (4 * quarter..len).step_by(256) {
                        if at + AHEAD < len {
                            prefetch(src.add(at));
                        }
                        $step(dst.add(at), src.add(at));
                    }
                }
            }
        };
    }

    bulk!(avx512, "avx512f", step);
    bulk!(avx2, "avx2", step_by_halves);

    /// Prefetches the 256 bytes that come a while after `src`, wherever that is.
    #[inline]
    pub(in super::super) fn prefetch(src: *const u8) {
        for line in 0..4 {
            // SAFETY: prefetching never faults, and wrapping_add makes no claim about the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(AHEAD + line * 64).cast()) };
        }
    }

    /// Copies 256 bytes and returns them.
    ///
    /// # Safety
    /// AVX-512F exists; `dst` is aligned to 64 bytes; both regions have 256 bytes; otherwise as for [`copy`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in super::super) unsafe fn step(dst: *mut u8, src: *const u8) -> [__m512i; 4] {
        let (from, to) = (src.cast::<__m512i>(), dst.cast::<__m512i>());
        // SAFETY: all four lines lie in both regions.
        unsafe {
            let lines = [0, 1, 2, 3].map(|line| _mm512_loadu_si512(from.add(line)));
            for (line, bytes) in lines.into_iter().enumerate() {
                _mm512_stream_si512(to.add(line), bytes);
            }
            lines
        }
    }

    /// Copies 256 bytes, half a line at a time.
    ///
    /// # Safety
    /// AVX2 exists; `dst` is aligned to 32 bytes; both regions have 256 bytes; otherwise as for [`copy`].
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn step_by_halves(dst: *mut u8, src: *const u8) {
        let (from, to) = (src.cast::<__m256i>(), dst.cast::<__m256i>());
        // SAFETY: all eight half lines lie in both regions.
        unsafe {
            let halves = [0, 1, 2, 3, 4, 5, 6, 7].map(|half| _mm256_loadu_si256(from.add(half)));
            for (half, bytes) in halves.into_iter().enumerate() {
                _mm256_stream_si256(to.add(half), bytes);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod plain {
    /// Copies `len` bytes; other processors stream large copies on their own.
    ///
    /// # Safety
    /// As for [`super::super::copy`].
    pub(in super::super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: passed on from the caller.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    }

    /// Orders all stores so far before later ones.
    pub(in super::super) fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }
}
