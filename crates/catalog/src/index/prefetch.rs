//! Asks the processor for memory before it is needed.

/// Starts to fetch the cache line of `place` and the one after it, without waiting. Look-ups in a table that is larger than
/// the caches spend nearly all their time waiting for memory; asking for many places at once hides most of it.
/// The place may be one that must not be looked at yet.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instruction is not a safe function"))]
pub(super) fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = place.cast::<i8>();
        // SAFETY: a prefetch is a hint: it reads nothing the program can see and ignores addresses that are not mapped, so
        // any pointer will do; `wrapping_add` makes one past `place` without claiming that it lies in the same object.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line);
            _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
