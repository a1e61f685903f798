//! Gives memory that was freed back to the system.
//!
//! A thread's heap in the C library shrinks from its end only, so what many connections took stays the process's once they
//! have gone: 140 MB after 5,000 of them. Looking through the heaps for whole pages that are free takes 12 ms then, and a
//! fraction of one with ten million blocks in the index, whose memory is in large pieces.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "a function of the C library"))]

use tidepool_locks::seats::Seats;

/// So many connections at once take memory that is worth giving back.
const BURST: usize = 256;

/// Tells when a burst of connections is over.
#[derive(Default)]
pub(crate) struct Burst {
    /// How many connections there were at the last look, if most of a burst had gone by then.
    left: Option<usize>,
}

impl Burst {
    /// Whether most of a burst has gone, and no more of it since the last look. Once for each burst.
    pub(crate) fn is_over<G>(&mut self, seats: &Seats<G>) -> bool {
        let (now, most) = seats.counts();
        let left = Some(now).filter(|now| most >= BURST && *now <= most / 4);
        let before = std::mem::replace(&mut self.left, left);
        let is_over = left.is_some() && before.is_some_and(|before| before <= now);
        if is_over {
            self.left = None;
            seats.start_over();
        }
        is_over
    }
}

/// See the file's head. Other C libraries have no such function.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time and from any thread: it takes the locks of the heaps itself, and touches only
    // what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_once_when_most_of_it_has_gone_and_no_more_goes() {
        let (seats, mut burst) = (Seats::new(1000), Burst::default());
        assert!(!burst.is_over(&seats), "there was none");
        let mut taken: Vec<_> = (0..400).map(|_| seats.admit(()).unwrap()).collect();
        assert!(!burst.is_over(&seats), "all are there");
        taken.truncate(101);
        assert!(!burst.is_over(&seats) && !burst.is_over(&seats), "a quarter is there, and more");
        taken.truncate(50);
        assert!(!burst.is_over(&seats), "they may still be going");
        taken.truncate(40);
        assert!(!burst.is_over(&seats), "they are still going");
        assert!(burst.is_over(&seats));
        taken.clear();
        assert!(!burst.is_over(&seats) && !burst.is_over(&seats), "forty were no burst");
    }
}
