//! Return times of conversations and blocks, learnt from others of their kind.
//!
//! Ages are counted in buckets, four to a doubling. Of everything that reached a bucket, a share came back in it. These
//! shares, and the time that each bucket lasts, give a rate for every age: the most returns for the time waited, over
//! all times at which the wait might be given up. (This is Gittins' index: the price per second at which keeping and
//! dropping are equally good.) Things that have not come back yet count for the ages that they have reached, so that
//! early returns do not look like all returns.
//!
//! Without observations, a bucket's share is a constant: the rate then falls as one over the age, which is the order of
//! LRU.

/// Buckets in a doubling of age.
const STEPS: u32 = 4;
const BUCKETS: usize = 64;
/// Ages below 2^FIRST milliseconds share a bucket: a return so soon says little.
const FIRST: u32 = 10;
/// Observations that an empty bucket starts with, of which about as many came back as of chats. With fewer, chance
/// would make the order depart from LRU's.
const PRIOR: f32 = 12.0;
const PRIOR_SHARE: f32 = 0.03;
/// Above this many observations, all count half: habits change.
const MOST: f32 = 8192.0;

/// Returns of one kind of thing.
#[derive(Clone)]
pub(super) struct Returns {
    returned: [f32; BUCKETS],
    /// Things that were given up at this age.
    lost: [f32; BUCKETS],
    seen: f32,
    /// Events since the rates were made, and the rates' observations.
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

    /// Notes that a thing is watched from now on.
    pub(super) fn waits(&mut self) {
        self.fresh += 1.0;
    }

    /// Notes that a thing came back at this age.
    pub(super) fn returned(&mut self, age: u64) {
        self.returned[bucket(age)] += 1.0;
        self.count();
    }

    /// Notes that a thing of this age is not watched any longer.
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

    /// Whether enough has happened since the last [`Self::learn`] to call it again.
    pub(super) fn is_stale(&self) -> bool {
        self.fresh > (self.learnt / 16.0).max(2.0)
    }

    /// Makes the rates from all observations and from the ages of the things that may still come back.
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
            // Things whose watch ended within the bucket were at risk for half of it.
            let at_risk = reached + self.returned[k] + open / 2.0;
            reached += self.returned[k] + open;
            shares[k] = (self.returned[k] + PRIOR * PRIOR_SHARE) / (at_risk + PRIOR);
        }
        for (from, rate) in self.rates.iter_mut().enumerate() {
            *rate = best_rate(&shares, from);
        }
    }

    /// The best rate of returns per millisecond for a thing of this age.
    pub(super) fn rate(&self, age: u64) -> f32 {
        self.rates[bucket(age)]
    }
}

/// The most returns per millisecond, over waits from the start of bucket `from` to the end of it or of a later one.
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
