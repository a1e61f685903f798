//! A queue of the simulation: first come, first served, at a rate.

use super::Nanos;

/// The part of a cluster that a queue stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An engine's GPU, computing prompts.
    Gpu,
    /// From a host to its engine's GPU, and back.
    Pcie,
    /// Out of a host.
    NicOut,
    /// Into a host.
    NicIn,
    /// A host's memory.
    Memory,
    /// A node's disk.
    Disk,
    /// The catalogs.
    Catalog,
}

impl Kind {
    /// All kinds.
    pub(super) const ALL: [Self; 7] =
        [Self::Gpu, Self::Pcie, Self::NicOut, Self::NicIn, Self::Memory, Self::Disk, Self::Catalog];

    /// The kind's name, for people and for JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Pcie => "pcie",
            Self::NicOut => "nic_out",
            Self::NicIn => "nic_in",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Catalog => "catalog",
        }
    }
}

/// A queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Queue {
    /// The time at which the queue is empty.
    free: Nanos,
    /// The time that everything which ever joined takes.
    work: Nanos,
}

impl Queue {
    /// Adds work of `seconds` at `now`. Returns when it is done.
    pub(super) fn join(&mut self, now: Nanos, seconds: f64) -> Nanos {
        let (start, span) = (self.free.max(now), Nanos::of_seconds(seconds));
        self.work = self.work.after(span);
        self.free = start.after(span);
        self.free
    }

    /// How long work that joins at `now` waits.
    pub(super) const fn wait(&self, now: Nanos) -> Nanos {
        self.free.since(now)
    }

    /// The work done until `now`, where work has just joined at `now`: the queue runs without a break from then on.
    pub(super) fn served(&self, now: Nanos) -> Nanos {
        self.work.since(self.free.since(now))
    }
}

/// How busy the queues of one kind were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The kind.
    pub kind: Kind,
    /// Number of queues.
    pub count: usize,
    /// The busy part of the time, on average.
    pub mean: f64,
    /// The busy part of the time of the busiest queue.
    pub most: f64,
    /// Seconds that all requests together waited in these queues, over the whole run.
    pub waited: f64,
}

impl Load {
    /// The load of queues with these busy parts, in which requests waited for `waited`.
    pub(super) fn of(kind: Kind, parts: impl Iterator<Item = f64>, waited: Nanos) -> Self {
        let mut load = Self { kind, count: 0, mean: 0.0, most: 0.0, waited: waited.seconds() };
        for busy in parts {
            load.count += 1;
            load.mean += busy;
            load.most = load.most.max(busy);
        }
        load.mean /= load.count.max(1) as f64;
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_served_first_and_the_others_wait() {
        let (mut queue, second) = (Queue::default(), Nanos(1_000_000_000));
        assert_eq!(queue.join(Nanos(0), 1.0), second);
        assert_eq!(queue.wait(Nanos(0)), second);
        assert_eq!(queue.join(Nanos(0), 1.0), second.after(second));
        assert_eq!(queue.served(second).seconds(), 1.0);
        assert_eq!(queue.join(Nanos(5_000_000_000), 1.0), Nanos(6_000_000_000));
        assert_eq!([5, 6].map(|now| queue.served(Nanos(now * 1_000_000_000)).seconds()), [2.0, 3.0]);
        let load = Load::of(Kind::NicIn, [0.5, 0.0].into_iter(), second);
        assert_eq!((load.count, load.mean, load.most, load.waited), (2, 0.25, 0.5, 1.0));
    }
}
