//! Keeps helpers off their caller's core.
//!
//! The scheduler of a virtual machine takes a core that sleeps for one that the host has taken away, and leaves a thread that
//! wakes on the core of its waker. Then both share one core while the other sleeps on, and a copy by two threads takes as
//! long as by one: after every pause that is long enough for a core to fall asleep. A caller is busy on its own core until
//! its batch is done, so its helpers lose nothing by never running there.

use parking_lot::Mutex;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The helpers of a pool, as far as where they run goes.
#[derive(Debug)]
pub(super) struct Apart {
    /// Short sections: a few system calls.
    helpers: Mutex<Vec<Helper>>,
    /// The core that all of them keep off.
    avoided: AtomicUsize,
}

#[derive(Debug)]
struct Helper {
    thread: Pid,
    /// The cores that it may run on, by anybody's wish but ours.
    allowed: CpuSet,
    /// The cores that it was last given.
    given: CpuSet,
}

impl Default for Apart {
    fn default() -> Self {
        Self { helpers: Mutex::default(), avoided: AtomicUsize::new(usize::MAX) }
    }
}

impl Apart {
    /// Adds the calling thread.
    pub(super) fn join(&self) {
        if let Ok(allowed) = sched_getaffinity(None) {
            let mut helpers = self.helpers.lock();
            helpers.push(Helper { thread: gettid(), allowed, given: allowed });
            self.avoided.store(usize::MAX, Ordering::Relaxed);
        }
    }

    /// Has all of them keep off the core that the caller runs on, from now on.
    pub(super) fn keep_off(&self) {
        let core = sched_getcpu();
        // Whoever finds the lock taken copies a little more slowly at worst.
        if self.avoided.load(Ordering::Relaxed) != core
            && let Some(mut helpers) = self.helpers.try_lock()
        {
            self.avoided.store(core, Ordering::Relaxed);
            helpers.iter_mut().for_each(|helper| helper.keep_off(core));
        }
    }
}

impl Helper {
    fn keep_off(&mut self, core: usize) {
        let Ok(now) = sched_getaffinity(Some(self.thread)) else { return };
        // Whoever runs the process may have had a say meanwhile.
        if now != self.given {
            self.allowed = now;
        }
        self.given = without(self.allowed, core);
        if self.given != now && sched_setaffinity(Some(self.thread), &self.given).is_err() {
            self.given = now;
        }
    }
}

/// All cores but one, unless that is the only one.
fn without(mut cores: CpuSet, core: usize) -> CpuSet {
    let is_there = core < CpuSet::MAX_CPU && cores.is_set(core);
    if is_there && cores.count() > 1 {
        cores.unset(core);
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(which: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        which.iter().for_each(|core| set.set(*core));
        set
    }

    #[test]
    fn the_only_core_is_not_avoided() {
        assert_eq!(without(cores(&[0, 1, 5]), 1), cores(&[0, 5]));
        assert_eq!(without(cores(&[3]), 3), cores(&[3]));
        assert_eq!(without(cores(&[0, 1]), 7), cores(&[0, 1]));
        assert_eq!(without(cores(&[0, 1]), usize::MAX), cores(&[0, 1]));
    }

    /// A helper that woke on its caller's core waited there for the caller to end, and a get of 8 MiB after a pause took
    /// twice as long as without one. Now it runs on any core but that one, of those that it may run on.
    #[test]
    fn helpers_run_on_any_core_but_their_callers_and_keep_to_what_they_were_given() {
        let all = sched_getaffinity(None).unwrap();
        let here = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
        let (apart, end) = (&Apart::default(), &std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let (joined, thread) = std::sync::mpsc::sync_channel(1);
            scope.spawn(move || {
                apart.join();
                joined.send(gettid()).unwrap();
                end.wait();
            });
            let helper = Some(thread.recv().unwrap());
            sched_setaffinity(None, &cores(&[here])).unwrap();
            apart.keep_off();
            assert_eq!(sched_getaffinity(helper).unwrap(), without(all, here));
            // Somebody else's word counts: it is not undone when the caller moves.
            sched_setaffinity(helper, &cores(&[here])).unwrap();
            apart.avoided.store(usize::MAX, Ordering::Relaxed);
            apart.keep_off();
            assert_eq!(sched_getaffinity(helper).unwrap(), cores(&[here]));
            end.wait();
        });
        sched_setaffinity(None, &all).unwrap();
    }
}
