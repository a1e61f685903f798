//! How pieces of a length are copied: by the copy engines or by the kernel, as a measurement says.
//!
//! The engines need a while for each piece, and reach the speed of the bus with large ones only; how large depends on the GPU,
//! its driver and the direction. The kernel is a little slower than the bus whatever the length, once the GPU is awake.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use crate::driver::{Driver, LAUNCH};
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
/// Memory of the measurement, at both ends.
const SAMPLE: usize = 128 << 20;
/// How often a measurement copies all of it: ten milliseconds of the bus, beside which the start of a copy is nothing.
const ROUNDS: usize = 4;
const REPEATS: usize = 3;
/// For how long copies are made before the first is measured. A GPU that has idled is slow to answer: an H200's kernel took
/// nearly twice the time at first.
const AWAKENING: Duration = Duration::from_millis(100);

/// Which method is faster, for each way and length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    kernel: [[bool; LENGTHS]; 2],
    times: Vec<Times>,
}

/// What was measured of pieces of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// To the GPU or from it.
    pub way: Way,
    /// Bytes of a piece.
    pub len: usize,
    /// What the kernel took for all of them.
    pub kernel: Duration,
    /// What the copy engines took.
    pub engine: Duration,
}

impl Default for Choice {
    /// What was measured on an H200: the kernel wins below 64 KiB inwards and up to 128 KiB outwards.
    fn default() -> Self {
        let below = |limit: usize| std::array::from_fn(|step| SHORTEST << step < limit);
        Self { kernel: [below(64 << 10), below(256 << 10)], times: Vec::new() }
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

    /// What was measured; nothing where no measurement could be made.
    #[must_use]
    pub fn times(&self) -> &[Times] {
        &self.times
    }

    /// What a measurement says; the default where none can be made.
    pub(crate) fn measured(gpu: &Gpu) -> Self {
        let by_engines = Self { kernel: [[false; LENGTHS]; 2], times: Vec::new() };
        if !gpu.driver().has_kernel() {
            return by_engines;
        }
        match Self::measure(gpu) {
            Ok(choice) => choice,
            Err(error) if error.call == LAUNCH => {
                tracing::warn!(%error, "small pieces are copied slowly: the kernel for them does not start on this GPU");
                by_engines
            }
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
        let (began, spans) = (Instant::now(), scattered(host.as_mut_ptr(), device.address, SHORTEST));
        while began.elapsed() < AWAKENING {
            time(gpu, Method::Kernel, Way::In, &spans)?;
        }
        let mut choice = Self { kernel: [[false; LENGTHS]; 2], times: Vec::new() };
        for way in [Way::In, Way::Out] {
            for (step, is_kernel) in choice.kernel[way as usize].iter_mut().enumerate() {
                let len = SHORTEST << step;
                let spans = scattered(host.as_mut_ptr(), device.address, len);
                let time = |method| time(gpu, method, way, &spans);
                let (kernel, engine) = (time(Method::Kernel)?, time(Method::Engine)?);
                *is_kernel = kernel < engine;
                choice.times.push(Times { way, len, kernel, engine });
            }
        }
        Ok(choice)
    }
}

/// All pieces of `len` bytes, far apart at both ends, in every round.
fn scattered(host: *mut u8, device: u64, len: usize) -> Vec<Span> {
    let count = SAMPLE / len;
    // An odd step visits every place of a power of two, once; these leave neighbours far from each other.
    let place = |index: usize, step: usize| index.wrapping_mul(step) % count * len;
    let span = |index| Span {
        host: host.wrapping_add(place(index, 0x9E37_79B1)),
        device: device + place(index, 0x85EB_CA6B) as u64,
        len,
    };
    (0..count * ROUNDS).map(span).collect()
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
    fn a_measurement_touches_every_byte_in_every_round() {
        for step in 0..LENGTHS {
            let len = SHORTEST << step;
            let mut starts: Vec<usize> =
                scattered(std::ptr::null_mut(), 0, len).iter().map(|span| span.host as usize).collect();
            starts.sort_unstable();
            assert!(starts.iter().enumerate().all(|(index, start)| *start == index / ROUNDS * len));
        }
    }
}
