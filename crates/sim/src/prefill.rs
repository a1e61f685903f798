//! Prefill: an engine's cost of computing a prompt.

/// The time that a prompt takes: so much for each token, and so much for each pair of a token and one before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prefill {
    /// Seconds for a token.
    pub token: f64,
    /// Seconds for a token and one before it: attention.
    pub pair: f64,
}

impl Default for Prefill {
    /// An 8-billion-parameter model on one H200: 8,192 / 32,768 / 81,920 tokens in 0.21 / 1.19 / 4.66 s.
    fn default() -> Self {
        Self { token: 2.22e-5, pair: 8.48e-10 }
    }
}

impl Prefill {
    /// Seconds to compute `new` tokens after `cached` ones.
    #[must_use]
    pub fn seconds(&self, cached: f64, new: f64) -> f64 {
        new * (self.token + self.pair * (cached + new / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_was_measured() {
        for (tokens, seconds) in [(8_192.0, 0.21), (32_768.0, 1.19), (81_920.0, 4.66)] {
            let found = Prefill::default().seconds(0.0, tokens);
            assert!((found / seconds - 1.0_f64).abs() < 0.02, "{tokens}: {found}");
        }
    }

    #[test]
    fn a_prompt_in_two_parts_takes_as_long_as_in_one() {
        let prefill = Prefill::default();
        let parts = prefill.seconds(0.0, 1000.0) + prefill.seconds(1000.0, 500.0);
        assert!((parts - prefill.seconds(0.0, 1500.0)).abs() < 1e-12);
    }
}
