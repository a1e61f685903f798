//! When something comes back, learnt from when others like it did.
//!
//! Ages are counted in buckets, four to a doubling. Of what reached a bucket, some came back in it: that share, and how long it
//! takes to live through the bucket, give the best rate at which keeping pays from any age on: the most expected returns for the
//! time that they are waited for, over all times at which one might give up waiting. (For one thing to keep or drop at a
//! price per second this is the price at which both are as good, Gittins' index.) What has not come back yet counts for the ages that it
//! has reached, so that early returns do not look like all returns.
//!
//! Without observations, a bucket's share is a constant: the rate then falls as one over the age, which is the order of LRU.

/// Buckets in a doubling of age.
const STEPS: u32 = 4;
const BUCKETS: usize = 64;
/// Buckets begin to be told apart at 2^FIRST milliseconds: who comes back sooner was hardly gone.
const FIRST: u32 = 10;
/// Observations that stand for having none, in every bucket, and the share of them that came back: about that of chats. With fewer
/// the order departs from LRU's for what was chance.
const PRIOR: f32 = 12.0;
const PRIOR_SHARE: f32 = 0.03;
/// With more observations than this, all count half: habits change.
const MOST: f32 = 8192.0;

/// What was learnt of one kind of thing.
#[derive(Clone)]
pub(super) struct Returns {
    returned: [f32; BUCKETS],
    /// Those that were given up at this age.
    lost: [f32; BUCKETS],
    seen: f32,
    /// What has come and gone since the rates were made, and what they were made from.
    fresh: f32,
    learnt: f32,
    rates: [f32; BUCKETS],
}

impl Returns {
    pub(super) fn new() -> Self {
        let mut returns = Self {
            returned: [0.0; BUCKETS],
            lost: [0.0; BUCKETS],
            seen: 0.0,
            fresh: 0.0,
            learnt: 0.0,
            rates: [0.0; BUCKETS],
        };
        returns.learn(std::iter::empty());
        returns
    }

    /// Something begins to be watched.
    pub(super) fn waits(&mut self) {
        self.fresh += 1.0;
    }

    /// Something came back at this age.
    pub(super) fn returned(&mut self, age: u64) {
        self.returned[bucket(age)] += 1.0;
        self.count();
    }

    /// Something of this age is not watched any longer.
    pub(super) fn lost(&mut self, age: u64) {
        self.lost[bucket(age)] += 1.0;
        self.count();
    }

    fn count(&mut self) {
        self.seen += 1.0;
        self.fresh += 1.0;
        if self.seen > MOST {
            self.seen /= 2.0;
            self.returned.iter_mut().chain(&mut self.lost).for_each(|count| *count /= 2.0);
        }
    }

    /// Whether enough has happened since the last time to call [`Self::learn`] again.
    pub(super) fn is_stale(&self) -> bool {
        self.fresh > (self.learnt / 16.0).max(2.0)
    }

    /// Makes the rates from all observations and the ages of those that may still come back.
    pub(super) fn learn(&mut self, waiting: impl Iterator<Item = u64>) {
        let mut pending = [0.0; BUCKETS];
        for age in waiting {
            pending[bucket(age)] += 1.0;
        }
        (self.fresh, self.learnt) = (0.0, self.seen + pending.iter().sum::<f32>());
        let mut shares = [0.0; BUCKETS];
        let mut reached = 0.0;
        for k in (0..BUCKETS).rev() {
            let open = self.lost[k] + pending[k];
            // Those whose watch ended within the bucket were at risk for half of it.
            let at_risk = reached + self.returned[k] + open / 2.0;
            reached += self.returned[k] + open;
            shares[k] = (self.returned[k] + PRIOR * PRIOR_SHARE) / (at_risk + PRIOR);
        }
        for (from, rate) in self.rates.iter_mut().enumerate() {
            *rate = best_rate(&shares, from);
        }
    }

    /// The best rate of returns per millisecond of something of this age.
    pub(super) fn rate(&self, age: u64) -> f32 {
        self.rates[bucket(age)]
    }
}

/// The most returns for the time, waiting from the start of a bucket to the end of that one or a later one.
fn best_rate(shares: &[f32; BUCKETS], from: usize) -> f32 {
    let (mut alive, mut returns, mut time, mut best) = (1.0_f32, 0.0, 0.0, 0.0_f32);
    for (k, share) in shares.iter().enumerate().skip(from) {
        let back = alive * share;
        time += (alive - back / 2.0) * (edge(k + 1) - edge(k));
        returns += back;
        alive -= back;
        best = best.max(returns / time);
    }
    best
}

/// The bucket of an age in milliseconds: its highest bit and the [`STEPS`] between that and the next.
fn bucket(age: u64) -> usize {
    let age = age.clamp(1 << FIRST, 1 << 40);
    let doubling = age.ilog2();
    let within = ((age - (1 << doubling)) * u64::from(STEPS)) >> doubling;
    (((doubling - FIRST) * STEPS) as usize + within as usize).min(BUCKETS - 1)
}

/// Where a bucket begins, in milliseconds.
fn edge(bucket: usize) -> f32 {
    let (doubling, within) = (bucket as u32 / STEPS, bucket as u32 % STEPS);
    let start = (1_u64 << (FIRST + doubling)) as f32;
    if bucket == 0 { 0.0 } else { start * (1.0 + within as f32 / STEPS as f32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_hold_what_their_edges_say() {
        for age in [0, 1023, 1279, 1280, 2047, 2048, 123_456, 10_000_000] {
            let k = bucket(age);
            assert!(edge(k) <= age as f32 && (age as f32) < edge(k + 1), "{age} is in bucket {k}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn who_knows_nothing_takes_the_older_for_the_less_likely() {
        let returns = Returns::new();
        let rates: Vec<_> = (0..15).map(|doubling| returns.rate(1500 << doubling)).collect();
        assert!(rates.is_sorted_by(|young, old| young > old), "{rates:?}");
    }

    #[test]
    fn what_always_comes_back_after_a_minute_is_worth_more_the_nearer_that_is() {
        let mut returns = Returns::new();
        (0..1000).for_each(|_| returns.returned(60_000));
        returns.learn(std::iter::empty());
        assert!(returns.rate(0) < returns.rate(30_000));
        assert!(returns.rate(30_000) < returns.rate(55_000));
        assert!(returns.rate(200_000) < returns.rate(0), "it did not come back when it should have");
    }

    #[test]
    fn what_is_waited_for_lowers_the_rate() {
        let mut returns = Returns::new();
        (0..100).for_each(|_| returns.returned(1000));
        returns.learn(std::iter::empty());
        let all = returns.rate(0);
        returns.learn(std::iter::repeat_n(50_000, 100));
        assert!(returns.rate(0) < all * 0.7);
    }
}
