//! The choice between the copy engines and the kernel, for pieces of each length, by measurement.
//!
//! The engines need a while for each piece, and reach the speed of the bus only with large pieces; how large depends on
//! the GPU, its driver and the direction. The kernel is a little slower than the bus at every length.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use crate::driver::{Driver, LAUNCH};
use crate::gpu::Gpu;
use crate::range::Range;
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

/// The shortest length measured; each further one is twice as long, up to 1 MiB. Longer pieces go to the engines.
const SHORTEST: usize = 8 << 10;
const LENGTHS: usize = 8;
/// Bytes that a measurement copies: ten milliseconds of the bus, long against the start of a copy.
const SAMPLE: usize = 512 << 20;
/// Host addresses over which the pieces are scattered. An H200's engines take a tenth longer to write 64 KiB pieces
/// over this range than over a quarter of it.
const RANGE: usize = 2 << 30;
/// Bytes of memory behind these addresses.
const PAGES: usize = 128 << 20;
/// Below this length the processor feeds the engines hardly faster than they copy, at a pace that varies by a factor of
/// two within minutes. The kernel is steady: where it is nearly as fast at start, it will be faster in use.
const UNSTEADY: usize = 64 << 10;
const REPEATS: usize = 3;

/// The faster method for each way and length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    kernel: [[bool; LENGTHS]; 2],
    times: Vec<Times>,
}

/// The times measured for pieces of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// To the GPU or from it.
    pub way: Way,
    /// Bytes of a piece.
    pub len: usize,
    /// The kernel's time for all of them.
    pub kernel: Duration,
    /// The copy engines' time for all of them.
    pub engine: Duration,
}

impl Default for Choice {
    /// The measurement on an H200: the kernel wins below 64 KiB to the GPU, and up to 512 KiB from it.
    fn default() -> Self {
        let below = |limit: usize| std::array::from_fn(|step| SHORTEST << step < limit);
        Self { kernel: [below(64 << 10), below(1 << 20)], times: Vec::new() }
    }
}

impl Choice {
    /// The method for pieces of `len` bytes.
    #[must_use]
    pub fn method(&self, way: Way, len: usize) -> Method {
        // The longest measured length up to `len`.
        let step = (len / SHORTEST).checked_ilog2().unwrap_or(0) as usize;
        match self.kernel[way as usize].get(step) {
            Some(true) => Method::Kernel,
            Some(false) | None => Method::Engine,
        }
    }

    /// The measured times; empty where no measurement could be made.
    #[must_use]
    pub fn times(&self) -> &[Times] {
        &self.times
    }

    /// The choice by measurement; the default where no measurement can be made.
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
                tracing::warn!(%error, "copies were not measured: pieces are copied as they would be on an H200");
                Self::default()
            }
        }
    }

    fn measure(gpu: &Gpu) -> Result<Self, DoorError> {
        let taken = Range::new(RANGE, PAGES);
        let host = taken.map_err(|error| DoorError { call: "mmap", reason: error.to_string() })?;
        // SAFETY: the range is dropped after the pin.
        let _pin = unsafe { gpu.pin(host.start(), host.len(), true)? };
        let device = Borrowed { address: gpu.driver().allocate(SAMPLE)?, driver: &**gpu.driver() };
        let mut choice = Self { kernel: [[false; LENGTHS]; 2], times: Vec::new() };
        for way in [Way::In, Way::Out] {
            for (step, is_kernel) in choice.kernel[way as usize].iter_mut().enumerate() {
                let len = SHORTEST << step;
                let spans = scattered(host.start(), device.address, len);
                let time = |method| time(gpu, method, way, &spans);
                let (kernel, engine) = (time(Method::Kernel)?, time(Method::Engine)?);
                *is_kernel = is_kernels(way, len, kernel, engine);
                choice.times.push(Times { way, len, kernel, engine });
            }
        }
        Ok(choice)
    }
}

/// Whether the kernel copies pieces of `len` bytes, given both methods' times.
///
/// From the GPU, the engines are up to a twentieth slower in use than in this measurement, whose pages the host's cache
/// may hold; the kernel is not. To the GPU they keep their pace. There the kernel must win by more than a measurement
/// errs, since it takes a few multiprocessors from computation.
fn is_kernels(way: Way, len: usize, kernel: Duration, engine: Duration) -> bool {
    match way {
        _ if len < UNSTEADY => kernel < engine + engine / 10,
        Way::Out => kernel < engine + engine / 50,
        Way::In => kernel + kernel / 100 < engine,
    }
}

/// Pieces of `len` bytes, far apart at both ends.
fn scattered(host: *mut u8, device: u64, len: usize) -> Vec<Span> {
    // An odd step visits every place of a power of two, once; these leave neighbours far from each other.
    let place = |index: usize, step: usize, room: usize| index.wrapping_mul(step) % (room / len) * len;
    let span = |index| Span {
        host: host.wrapping_add(place(index, 0x9E37_79B1, RANGE)),
        device: device + place(index, 0x85EB_CA6B, SAMPLE) as u64,
        len,
    };
    (0..SAMPLE / len).map(span).collect()
}

/// The time of a copy: the median of a few.
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
        assert_eq!(choice.method(Way::Out, 300 << 10), Method::Kernel);
        assert_eq!(choice.method(Way::Out, 1 << 20), Method::Engine);
        assert_eq!(choice.method(Way::Out, 1 << 30), Method::Engine);
    }

    #[test]
    fn a_measurement_reaches_all_over_the_host_and_every_byte_of_the_device_once() {
        for step in 0..LENGTHS {
            let len = SHORTEST << step;
            let spans = scattered(std::ptr::null_mut(), 0, len);
            let mut places: Vec<u64> = spans.iter().map(|span| span.device).collect();
            places.sort_unstable();
            assert!(places.iter().enumerate().all(|(index, place)| *place == (index * len) as u64));
            for part in 0..16 {
                let within = |span: &&Span| span.host as usize / (RANGE / 16) == part;
                assert!(spans.iter().filter(within).count() >= SAMPLE / len / 32, "{len}, {part}");
            }
        }
    }

    /// Pieces of 256 KiB outwards took both as long at start, and were the engines': 90.9 % of one large copy in use, where
    /// the kernel had 95.5.
    #[test]
    fn where_both_are_as_fast_the_kernel_has_short_pieces_and_those_outwards_and_the_engines_long_ones_inwards() {
        let ms = Duration::from_millis;
        for way in [Way::In, Way::Out] {
            assert!(is_kernels(way, 32 << 10, ms(104), ms(100)));
            assert!(!is_kernels(way, 32 << 10, ms(120), ms(100)));
            assert!(is_kernels(way, 64 << 10, ms(98), ms(100)));
            assert!(!is_kernels(way, 64 << 10, ms(104), ms(100)));
        }
        assert!(!is_kernels(Way::In, 256 << 10, ms(995), ms(1000)));
        assert!(is_kernels(Way::Out, 256 << 10, ms(1000), ms(1000)));
        assert!(is_kernels(Way::Out, 512 << 10, ms(1027), ms(1012)));
        assert!(!is_kernels(Way::Out, 1 << 20, ms(1026), ms(1000)));
    }
}
