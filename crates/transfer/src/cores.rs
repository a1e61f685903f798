//! Threads that do the same work beside each other, each on a share of the cores.
//!
//! On a virtual machine whose other cores have fallen asleep, threads that are woken stay on the core of their waker (see
//! `copy/apart.rs`), and wait there for each other while another core has nothing to do. Threads that may not run on the
//! same cores cannot get into each other's way, and whoever they wake starts where they are.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Has the calling thread run on its share of the cores that it may run on: the one with number `part` of `parts`.
pub(crate) fn keep_to_share(part: usize, parts: usize) {
    if let Ok(cores) = sched_getaffinity(None) {
        // A thread that cannot be moved may be slower, and nothing else.
        let _ = sched_setaffinity(None, &share_of(&cores, part, parts));
    }
}

/// Every core of which the number, counted among `cores`, leaves the same remainder: shares reach over all sockets. With more
/// parts than cores, some have the same share.
fn share_of(cores: &CpuSet, part: usize, parts: usize) -> CpuSet {
    let parts = parts.min(cores.count() as usize).max(1);
    let mut share = CpuSet::new();
    let all = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core));
    all.skip(part % parts).step_by(parts).for_each(|core| share.set(core));
    share
}

/// A set of cores, for tests.
#[cfg(test)]
pub(crate) fn cores(which: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    which.iter().for_each(|core| set.set(*core));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_apart_and_together_all_cores_and_nobody_is_left_without() {
        let all = cores(&[1, 2, 5, 7, 8]);
        assert_eq!([0, 1].map(|part| share_of(&all, part, 2)), [cores(&[1, 5, 8]), cores(&[2, 7])]);
        assert_eq!(share_of(&all, 0, 1), all);
        assert_eq!([0, 1, 2].map(|part| share_of(&cores(&[3, 4]), part, 3)), [3, 4, 3].map(|core| cores(&[core])));
        assert_eq!(share_of(&cores(&[6]), 3, 4), cores(&[6]));
    }
}
