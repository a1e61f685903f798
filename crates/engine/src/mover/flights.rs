//! Flights: runs of blocks that are looked up and copied together. Two threads alternate, so that one flight's blocks
//! are on the bus while the other flight looks its blocks up or makes checksums.

use super::GoOn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The answers of `fly` for the blocks of `flights`. No flight begins after an answer that is not `good`, or once
/// `go_on` returns false: the answers are those of the first flights, as many as began.
pub(super) fn in_turns<B: Sync, A: Send + Sync>(
    flights: &[&[B]],
    go_on: GoOn<'_>,
    fly: impl Fn(&[B]) -> Vec<A> + Sync,
    good: impl Fn(&A) -> bool + Sync,
) -> Vec<A> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let answers: Vec<OnceLock<Vec<A>>> = flights.iter().map(|_| OnceLock::new()).collect();
    let take_turns = || {
        while !is_over.load(Ordering::Relaxed) && go_on() {
            let Some((flight, place)) = turn(&next, flights, &answers) else { break };
            let answered = place.get_or_init(|| fly(flight));
            is_over.fetch_or(!answered.iter().all(&good), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        if flights.len() > 1 {
            // Without a second thread, one does all flights.
            let other = std::thread::Builder::new().name("tp-flights".to_owned()).spawn_scoped(scope, take_turns);
            drop(other);
        }
        take_turns();
    });
    answers.into_iter().map_while(OnceLock::into_inner).flatten().collect()
}

/// The next flight that no thread has taken, and the place for its answers.
fn turn<'a, B, A>(
    next: &AtomicUsize,
    flights: &[&'a [B]],
    answers: &'a [OnceLock<A>],
) -> Option<(&'a [B], &'a OnceLock<A>)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((flights.get(at)?, answers.get(at)?))
}

#[cfg(test)]
mod tests {
    use super::in_turns;
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread::ThreadId;
    use std::time::{Duration, Instant};

    const FLIGHTS: [&[u32]; 5] = [&[0, 1, 2], &[3], &[4, 5], &[6, 7, 8], &[9]];

    #[test]
    fn every_block_has_its_own_answer() {
        let doubled = |flight: &[u32]| flight.iter().map(|block| block * 2).collect();
        let answers = in_turns(&FLIGHTS, &|| true, doubled, |_| true);
        assert_eq!(answers, (0..10).map(|block| block * 2).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_begins_after_a_flight_that_is_not_good() {
        let answers = in_turns(&FLIGHTS, &|| true, |flight: &[u32]| flight.to_vec(), |_| false);
        // What the two threads had taken by then.
        assert!([&[0, 1, 2][..], &[0, 1, 2, 3]].contains(&&answers[..]), "{answers:?}");
        for bad in 0..10 {
            let answers = in_turns(&FLIGHTS, &|| true, |flight: &[u32]| flight.to_vec(), |block| *block != bad);
            assert!(answers.contains(&bad) && answers.iter().copied().eq(0..answers.len() as u32), "{answers:?}");
        }
    }

    #[test]
    fn nothing_begins_when_nothing_goes_on() {
        let left = Mutex::new(2);
        let go_on = || {
            let mut left = left.lock().expect("no panic");
            *left -= 1;
            *left >= 0
        };
        assert_eq!(in_turns(&FLIGHTS, &go_on, |flight: &[u32]| flight.to_vec(), |_| true), [0, 1, 2, 3]);
    }

    #[test]
    fn two_fly_at_once() {
        let seen: Mutex<HashSet<ThreadId>> = Mutex::default();
        let until = Instant::now() + Duration::from_secs(10);
        in_turns(
            &FLIGHTS,
            &|| true,
            |flight: &[u32]| {
                seen.lock().expect("no panic").insert(std::thread::current().id());
                while seen.lock().expect("no panic").len() < 2 {
                    assert!(Instant::now() < until, "one flight waits for the other");
                    std::thread::yield_now();
                }
                flight.to_vec()
            },
            |_| true,
        );
    }
}
