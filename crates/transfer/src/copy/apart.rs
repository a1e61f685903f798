//! Keeps helpers off their caller's core.
//!
//! On a virtual machine whose other cores have fallen asleep, a thread that wakes is left on the core of its waker (most
//! likely because a core that has halted looks like one that the host has taken away). Then both share one core while the
//! other sleeps on, and a copy by two threads takes as long as by one: after every pause that is long enough for a core to
//! fall asleep. A caller is busy on its own core while there is something left to copy, so its helpers run on the other
//! cores that it may run on. Once it has waited for them for a while, they may run anywhere.

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::atomic::{AtomicUsize, Ordering};
use tidepool_locks::Mutex;

/// No core.
const NONE: usize = usize::MAX;

/// The helpers of a pool, as far as where they run goes.
#[derive(Debug)]
pub(super) struct Apart {
    /// Short sections: a system call for each.
    helpers: Mutex<Vec<Pid>>,
    /// The core that all of them keep off.
    avoided: AtomicUsize,
}

impl Default for Apart {
    fn default() -> Self {
        Self { helpers: Mutex::default(), avoided: AtomicUsize::new(NONE) }
    }
}

impl Apart {
    /// Adds the calling thread.
    pub(super) fn join(&self) {
        self.helpers.lock().push(gettid());
        self.avoided.store(NONE, Ordering::Relaxed);
    }

    /// Has helpers keep off the core that the calling thread runs on, until it says otherwise. One that may run on that core
    /// only has no say in where others run.
    pub(super) fn keep_off(&self) {
        let core = sched_getcpu();
        if self.avoided.load(Ordering::Relaxed) != core
            && let Ok(cores) = sched_getaffinity(None)
            && let Some(others) = without(cores, core)
        {
            self.place(core, &others);
        }
    }

    /// Helpers may run wherever the calling thread may.
    pub(super) fn anywhere(&self) {
        if self.avoided.load(Ordering::Relaxed) != NONE
            && let Ok(cores) = sched_getaffinity(None)
        {
            self.place(NONE, &cores);
        }
    }

    fn place(&self, avoided: usize, cores: &CpuSet) {
        let helpers = self.helpers.lock();
        self.avoided.store(avoided, Ordering::Relaxed);
        for helper in &*helpers {
            // One that cannot be moved may make a copy slower, and nothing else.
            let _ = sched_setaffinity(Some(*helper), cores);
        }
    }
}

/// All cores but one, if that leaves any.
fn without(mut cores: CpuSet, core: usize) -> Option<CpuSet> {
    if core < CpuSet::MAX_CPU {
        cores.unset(core);
    }
    (cores.count() > 0).then_some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::cores;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn the_only_core_is_not_avoided() {
        assert_eq!(without(cores(&[0, 1, 5]), 1), Some(cores(&[0, 5])));
        assert_eq!(without(cores(&[3]), 3), None);
        assert_eq!(without(cores(&[0, 1]), 7), Some(cores(&[0, 1])));
        assert_eq!(without(cores(&[0, 1]), NONE), Some(cores(&[0, 1])));
    }

    /// A helper that woke on its caller's core waited there for the caller to end, and a get of 8 MiB after a pause took
    /// twice as long as without one. Now it runs on any core but that one, of those that its caller may run on.
    #[test]
    fn helpers_run_on_any_core_but_their_callers_until_they_may_run_anywhere() {
        let all = sched_getaffinity(None).unwrap();
        let apart = &Apart::default();
        std::thread::scope(|scope| {
            let (joined, thread) = sync_channel(1);
            // Ends with this test, however that ends.
            let (_alive, end) = sync_channel::<()>(0);
            scope.spawn(move || {
                apart.join();
                joined.send(gettid()).unwrap();
                let _ = end.recv();
            });
            let helper = Some(thread.recv().unwrap());
            // The caller may move between the call and the look, in which case it calls again.
            let mut tries = 0..1000;
            let here = tries.find_map(|_| {
                apart.keep_off();
                let (here, given) = (sched_getcpu(), sched_getaffinity(helper).unwrap());
                (Some(given) == without(all, here) || all.count() == 1).then_some(here)
            });
            let here = here.expect("a helper keeps off its caller's core");
            apart.anywhere();
            assert_eq!(sched_getaffinity(helper).unwrap(), all, "the caller was on {here}");
            // A caller that may run on one core only leaves its helpers alone.
            sched_setaffinity(None, &cores(&[here])).unwrap();
            apart.keep_off();
            assert_eq!(sched_getaffinity(helper).unwrap(), all);
        });
        sched_setaffinity(None, &all).unwrap();
    }
}
