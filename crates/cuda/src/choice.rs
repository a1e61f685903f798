//! How pieces of a length are copied: by the copy engines or by the kernel, as a measurement says.
//!
//! The engines need a while for each piece, and reach the speed of the bus with large ones only; how large depends on the GPU,
//! its driver and the direction. The kernel is a little slower than the bus whatever the length. Short pieces that lie far apart
//! cost the engines more than a measurement in little memory shows: there they have to be much faster to be taken.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use crate::driver::Driver;
use crate::gpu::Gpu;
use std::time::{Duration, Instant};
use tidepool_transfer::door::{Door as _, DoorError, Span, Way};

/// A way to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The copy engines.
    Engine,
    /// The kernel.
    Kernel,
}

/// Lengths that are measured: 4 KiB, and each twice the one before, to 1 MiB. Longer pieces are the engines'.
const SHORTEST: usize = 4 << 10;
const LENGTHS: usize = 9;
/// Bytes of one measurement: two milliseconds of the bus. The copy engines begin a short job faster than they go on.
const SAMPLE: usize = 128 << 20;
const REPEATS: usize = 3;

/// Shorter pieces are the kernel's unless the engines take less than two thirds of its time. On an H200 the measurement found
/// the engines faster inwards at 32 KiB, and from all over 2 GiB they reached 70 % of the bus, where the kernel reaches 92 %.
const DOUBTFUL: usize = 64 << 10;

/// Which method is faster, for each way and length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    kernel: [[bool; LENGTHS]; 2],
}

impl Default for Choice {
    /// What was measured on an H200: the kernel wins below 64 KiB inwards and up to 128 KiB outwards.
    fn default() -> Self {
        let below = |limit: usize| std::array::from_fn(|step| SHORTEST << step < limit);
        Self { kernel: [below(64 << 10), below(256 << 10)] }
    }
}

impl Choice {
    /// How pieces of `len` bytes are copied.
    #[must_use]
    pub fn method(&self, way: Way, len: usize) -> Method {
        // The longest of the measured lengths that is not longer.
        let step = (len / SHORTEST).checked_ilog2().unwrap_or(0) as usize;
        match self.kernel[way as usize].get(step) {
            Some(true) => Method::Kernel,
            Some(false) | None => Method::Engine,
        }
    }

    /// What a measurement says; the default where none can be made.
    pub(crate) fn measured(gpu: &Gpu) -> Self {
        if !gpu.driver().has_kernel() {
            return Self { kernel: [[false; LENGTHS]; 2] };
        }
        match Self::measure(gpu) {
            Ok(choice) => choice,
            Err(error) => {
                tracing::info!(%error, "copies were not measured: pieces are copied as they would be on an H200");
                Self::default()
            }
        }
    }

    fn measure(gpu: &Gpu) -> Result<Self, DoorError> {
        let mut host = vec![0u8; SAMPLE];
        // SAFETY: the vector is dropped after the pin.
        let _pin = unsafe { gpu.pin(host.as_mut_ptr(), SAMPLE, true)? };
        let device = Borrowed { address: gpu.driver().allocate(SAMPLE)?, driver: &**gpu.driver() };
        let mut choice = Self { kernel: [[false; LENGTHS]; 2] };
        for way in [Way::In, Way::Out] {
            for (step, is_kernel) in choice.kernel[way as usize].iter_mut().enumerate() {
                let spans = scattered(host.as_mut_ptr(), device.address, SHORTEST << step);
                let time = |method| time(gpu, method, way, &spans);
                *is_kernel = prefers_kernel(SHORTEST << step, time(Method::Kernel)?, time(Method::Engine)?);
            }
        }
        Ok(choice)
    }
}

/// What two measurements say of pieces of `len` bytes.
fn prefers_kernel(len: usize, kernel: Duration, engine: Duration) -> bool {
    if len < DOUBTFUL { kernel * 2 < engine * 3 } else { kernel < engine }
}

/// Pieces of `len` bytes, far apart at both ends.
fn scattered(host: *mut u8, device: u64, len: usize) -> Vec<Span> {
    let count = SAMPLE / len;
    // An odd step visits every place of a power of two, once.
    let place = |index: usize, step: usize| index * step % count * len;
    let span = |index| Span { host: host.wrapping_add(place(index, 5)), device: device + place(index, 3) as u64, len };
    (0..count).map(span).collect()
}

/// How long it takes: the median of a few.
fn time(gpu: &Gpu, method: Method, way: Way, spans: &[Span]) -> Result<Duration, DoorError> {
    let mut times = [Duration::ZERO; REPEATS];
    for time in &mut times {
        let began = Instant::now();
        // SAFETY: both memories are this measurement's own, and the flight lands before they go.
        unsafe { gpu.begin_by(|_, _| method, way, spans)? }.land()?;
        *time = began.elapsed();
    }
    times.sort_unstable();
    Ok(times[REPEATS / 2])
}

/// Memory of the GPU, for the time of the measurement.
struct Borrowed<'a> {
    address: u64,
    driver: &'a dyn Driver,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_between_two_measured_ones_go_by_the_shorter_and_long_pieces_by_the_engines() {
        let choice = Choice::default();
        assert_eq!(choice.method(Way::In, 1), Method::Kernel);
        assert_eq!(choice.method(Way::In, (64 << 10) - 16), Method::Kernel);
        assert_eq!(choice.method(Way::In, 64 << 10), Method::Engine);
        assert_eq!(choice.method(Way::Out, 200 << 10), Method::Kernel);
        assert_eq!(choice.method(Way::Out, 256 << 10), Method::Engine);
        assert_eq!(choice.method(Way::Out, 1 << 30), Method::Engine);
    }

    #[test]
    fn short_pieces_are_the_kernels_unless_the_engines_are_much_faster() {
        let (kernel, engine) = (Duration::from_micros(2600), Duration::from_micros(2500));
        assert!(prefers_kernel(32 << 10, kernel, engine));
        assert!(!prefers_kernel(64 << 10, kernel, engine));
        assert!(!prefers_kernel(32 << 10, 2 * kernel, engine));
    }

    #[test]
    fn a_measurement_touches_every_byte_once() {
        for step in 0..LENGTHS {
            let len = SHORTEST << step;
            let mut starts: Vec<usize> =
                scattered(std::ptr::null_mut(), 0, len).iter().map(|span| span.host as usize).collect();
            starts.sort_unstable();
            assert!(starts.iter().enumerate().all(|(index, start)| *start == index * len));
        }
    }
}
