//! What bytes and keys go through: first come, first served, at a rate.

use super::Nanos;
use super::timeline::Timeline;

/// What a queue stands for.
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
    /// For people and for JSON.
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
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// When all that is in it will have been served.
    free: Nanos,
    busy: Timeline,
    waited: Nanos,
}

impl Queue {
    /// Joins at `now` with something that takes `seconds`; says when that is over.
    pub(super) fn join(&mut self, now: Nanos, seconds: f64) -> Nanos {
        let start = self.free.max(now);
        self.waited = self.waited.after(start.since(now));
        self.free = start.after(Nanos::of_seconds(seconds));
        self.busy.add(start, self.free);
        self.free
    }

    /// Notes a wait for this queue that was spent elsewhere.
    pub(super) fn note_wait(&mut self, span: Nanos) {
        self.waited = self.waited.after(span);
    }
}

/// How busy all queues of a kind were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// What they are.
    pub kind: Kind,
    /// How many there are.
    pub count: usize,
    /// Part of the time that they were busy on average.
    pub mean: f64,
    /// The same of the busiest one.
    pub most: f64,
    /// Seconds that everything together waited in them, over the whole run.
    pub waited: f64,
}

impl Load {
    /// The load from one time to another.
    pub(super) fn of<'a>(kind: Kind, queues: impl Iterator<Item = &'a Queue>, (from, until): (Nanos, Nanos)) -> Self {
        let mut load = Self { kind, count: 0, mean: 0.0, most: 0.0, waited: 0.0 };
        let span = until.since(from).0.max(1) as f64;
        for queue in queues {
            let busy = queue.busy.between(from, until) / span;
            load.count += 1;
            load.mean += busy;
            load.most = load.most.max(busy);
            load.waited += queue.waited.0 as f64 / 1e9;
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
        assert_eq!(queue.join(Nanos(0), 1.0), second.after(second));
        assert_eq!(queue.join(Nanos(5_000_000_000), 1.0), Nanos(6_000_000_000));
        let load = Load::of(Kind::NicIn, [queue, Queue::default()].iter(), (Nanos(0), Nanos(6_000_000_000)));
        assert_eq!((load.count, load.waited), (2, 1.0));
        assert!((load.mean - 0.25).abs() < 1e-9 && (load.most - 0.5).abs() < 1e-9, "{load:?}");
    }
}
