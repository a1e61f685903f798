//! A positive quantity that varies: log-normal, by its median.
//!
//! Functions come from `libm`, whose bits are the same everywhere; those of the system differ between machines.

use fastrand::Rng;

/// A log-normal distribution with a median, cut at `most`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median of the values.
    pub median: f64,
    /// The standard deviation of the logarithm; 0 makes every value the median. The value at p90 is `exp(1.2816 *
    /// sigma)` times the median.
    pub sigma: f64,
    /// The largest value.
    pub most: f64,
}

impl Spread {
    /// A spread with only this value.
    #[must_use]
    pub const fn fixed(value: f64) -> Self {
        Self { median: value, sigma: 0.0, most: value }
    }

    /// Log-normal around a median, up to `most`.
    #[must_use]
    pub const fn around(median: f64, sigma: f64, most: f64) -> Self {
        Self { median, sigma, most }
    }

    /// The mean before the cut.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.median * libm::exp(self.sigma * self.sigma / 2.0)
    }

    pub(crate) fn sample(&self, rng: &mut Rng) -> f64 {
        if self.sigma == 0.0 {
            return self.median;
        }
        (self.median * libm::exp(self.sigma * normal(rng))).min(self.most)
    }

    /// A whole number of at least 1.
    pub(crate) fn count(&self, rng: &mut Rng) -> u32 {
        libm::round(self.sample(rng)).max(1.0) as u32
    }

    /// Milliseconds of what is in seconds.
    pub(crate) fn millis(&self, rng: &mut Rng) -> u64 {
        libm::round(self.sample(rng) * 1000.0) as u64
    }
}

/// The time to the next event where `rate` of them happen on average in a unit of time.
pub(crate) fn exponential(rng: &mut Rng, rate: f64) -> f64 {
    -libm::log(1.0 - rng.f64()) / rate
}

/// A standard normal value (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.f64()));
    radius * libm::cos(core::f64::consts::TAU * rng.f64())
}
