//! Deadlines: one instant that a call and everything it causes share.

use std::time::{Duration, Instant};

/// The instant by which a call answers with whatever it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `budget` from now.
    #[must_use]
    pub fn after(budget: Duration) -> Self {
        Self(Instant::now() + budget)
    }

    /// At `instant`.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The instant itself.
    #[must_use]
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// The rest of the budget; zero once the deadline has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether the budget is spent.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// The earlier of this deadline and `budget` from now: a part of a call gets a part of its budget.
    #[must_use]
    pub fn capped(self, budget: Duration) -> Self {
        self.min(Self::after(budget))
    }

    /// The rest of the budget in whole milliseconds, at least one, as the wire carries it.
    #[must_use]
    pub fn remaining_millis(self) -> u32 {
        self.remaining().as_millis().clamp(1, u128::from(u32::MAX)) as u32
    }
}
