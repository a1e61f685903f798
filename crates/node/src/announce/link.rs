//! What the announcer knows about one catalog, shared by the thread that talks to it, the task that hears from it, and the
//! puts that wait for it.

use std::time::{Duration, Instant};
use tidepool_locks::{Condvar, Mutex};
use tidepool_schema::{Ack, Resync};
use tokio::sync::Notify;

/// How the stream to a catalog stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No stream, or one that is to be closed.
    Down,
    /// A snapshot is on its way. The catalog says that it is not complete, so puts need not wait for it.
    Loading,
    /// The catalog may be complete any moment: a put is answered only after it has acknowledged.
    Healthy,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The catalog's latest acknowledgement of the current snapshot.
    ack: Ack,
    /// The snapshot that acknowledgements must be about.
    snapshot: u64,
    resync: bool,
    heard: Instant,
    gave_up: u64,
    snapshots: u64,
    /// Whether a stream has ended, or could not be opened.
    failed: bool,
    /// Whether the node stops, and nobody waits for catalogs any more.
    released: bool,
    /// Why there is no stream that puts wait for; `None` while there is one.
    problem: Option<Problem>,
    /// When the probe was heard that heartbeats echo. The catalog wrote it before, and calls itself complete no longer
    /// than the bound after that, unless a later one is echoed.
    probed: Instant,
    /// The same, of the stream that last stopped being one that puts wait for.
    left_healthy: Option<Instant>,
}

impl State {
    fn leave_healthy(&mut self) {
        if self.phase == Phase::Healthy {
            self.left_healthy = Some(self.probed);
        }
    }

    /// Whether a wait for change `number` is over, or when it may be.
    fn acknowledged(&self, number: u64, until: Instant, bound: Duration) -> Result<Waited, Instant> {
        let healthy = self.phase == Phase::Healthy;
        if healthy && self.ack.applied >= number {
            return Ok(Waited::Done);
        }
        if self.released {
            return Ok(Waited::Late);
        }
        let now = Instant::now();
        match self.left_healthy {
            _ if healthy => {
                if now < until {
                    Err(until)
                } else {
                    Ok(Waited::Late)
                }
            }
            Some(left) if now < until.min(left + bound) => Err(until.min(left + bound)),
            _ => Ok(Waited::Done),
        }
    }
}

/// Why a catalog does not know what the node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: String,
    /// It refuses the node because another one has its name.
    pub(super) name_in_use: bool,
    /// It is the catalog at this other address, which has a stream.
    pub(super) same_as: Option<String>,
}

impl Problem {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), name_in_use: false, same_as: None }
    }

    pub(super) fn same_as(other: String) -> Self {
        Self { same_as: Some(other.clone()), ..Self::new(format!("it is the catalog at {other}")) }
    }
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Link {
    // Short sections: never held while sending or waiting for anything but `changed`.
    state: Mutex<State>,
    changed: Condvar,
    /// The same for those who move the stream while they wait.
    news: Notify,
}

/// What a wait for acknowledgement ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// The catalog has acknowledged, or is not one to wait for.
    Done,
    /// It has not, in the time given.
    Late,
}

impl Link {
    pub(super) fn new() -> Self {
        let state = State {
            phase: Phase::Down,
            ack: Ack::default(),
            snapshot: 0,
            resync: false,
            heard: Instant::now(),
            gave_up: 0,
            snapshots: 0,
            failed: false,
            released: false,
            problem: Some(Problem::new("not connected yet")),
            probed: Instant::now(),
            left_healthy: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), news: Notify::new() }
    }

    fn wake(&self) {
        self.changed.notify_all();
        self.news.notify_waiters();
    }

    /// Waits until `judge` has a verdict; until then it says when to look again at the latest.
    async fn judged<T>(&self, judge: impl Fn(&State) -> Result<T, Instant>) -> T {
        loop {
            let mut news = std::pin::pin!(self.news.notified());
            // From here on news are not missed.
            news.as_mut().enable();
            let look_again = match judge(&self.state.lock()) {
                Ok(verdict) => return verdict,
                Err(instant) => instant,
            };
            let _ = tokio::time::timeout_at(look_again.into(), news).await;
        }
    }

    /// Snapshot `number` of a stream begins; what was acknowledged before does not count.
    pub(super) fn begin_snapshot(&self, number: u64) {
        let mut state = self.state.lock();
        state.leave_healthy();
        state.phase = Phase::Loading;
        state.ack = Ack { probe: state.ack.probe, ..Ack::default() };
        state.snapshot = number;
        state.resync = false;
        state.snapshots += 1;
        state.heard = Instant::now();
        // The reason for an earlier end is history now.
        state.problem = Some(Problem::new("it does not have all of the snapshot yet"));
    }

    /// From now on puts wait for this catalog. False when the stream has ended in the meantime.
    pub(super) fn become_healthy(&self) -> bool {
        let mut state = self.state.lock();
        let loading = state.phase == Phase::Loading && !state.resync;
        if loading {
            state.phase = Phase::Healthy;
            self.wake();
            state.problem = None;
        }
        loading
    }

    /// The stream is over or to be closed, and `reason` says why if it was not down before: puts no longer wait.
    pub(super) fn take_down(&self, reason: &str) {
        let mut state = self.state.lock();
        state.leave_healthy();
        if state.phase != Phase::Down {
            state.problem = Some(Problem::new(reason));
        }
        state.phase = Phase::Down;
        state.failed = true;
        state.ack = Ack::default();
        self.wake();
    }

    /// An acknowledgement came in. On a stream that is to be closed it comes too late: puts no longer wait, so its probe
    /// must not be echoed any more.
    pub(super) fn acknowledge(&self, ack: Ack) {
        let mut state = self.state.lock();
        if state.phase == Phase::Down {
            return;
        }
        state.heard = Instant::now();
        state.probed = state.heard;
        if ack.snapshot == state.snapshot {
            state.ack = ack;
            self.wake();
        } else {
            state.ack.probe = ack.probe;
        }
    }

    /// The catalog asks for a new snapshot and has dropped what it had.
    pub(super) fn ask_for_snapshot(&self, resync: &Resync) {
        let mut state = self.state.lock();
        state.heard = Instant::now();
        // An old request may arrive after the snapshot that answers it has begun.
        if resync.snapshot >= state.snapshot && state.phase != Phase::Down {
            state.resync = true;
            state.phase = Phase::Loading;
            state.problem = Some(Problem::new(format!("it asked for a new snapshot: {}", resync.reason)));
            self.wake();
        }
    }

    /// No stream could be opened.
    pub(super) fn not_opened(&self, problem: Problem) {
        let mut state = self.state.lock();
        state.problem = Some(problem);
        state.failed = true;
        self.wake();
    }

    /// Why the catalog is not one that puts wait for; `None` if it is.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.state.lock().problem.clone()
    }

    /// Whether the stream is still worth sending to.
    pub(super) fn is_up(&self) -> bool {
        self.state.lock().phase != Phase::Down
    }

    /// Whether the catalog wants a new snapshot.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.state.lock().resync
    }

    /// Whether puts wait for this catalog.
    pub(super) fn is_healthy(&self) -> bool {
        self.state.lock().phase == Phase::Healthy
    }

    /// The probe to echo.
    pub(super) fn probe(&self) -> u64 {
        self.state.lock().ack.probe
    }

    /// When the catalog was last heard.
    pub(super) fn heard(&self) -> Instant {
        self.state.lock().heard
    }

    /// Latest acknowledged change, snapshots begun, times given up.
    pub(super) fn numbers(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.ack.applied, state.snapshots, state.gave_up)
    }

    /// Waits until `pages` pages of the current snapshot are acknowledged; false when that is too late, the stream ends or
    /// a new snapshot is wanted.
    pub(super) async fn wait_pages(&self, pages: u64, until: Instant) -> bool {
        let judge = |state: &State| match state.phase != Phase::Down && !state.resync {
            true if state.ack.pages >= pages => Ok(true),
            true if Instant::now() < until => Err(until),
            _ => Ok(false),
        };
        self.judged(judge).await
    }

    /// Waits until the catalog has been heard after `moment`, or the stream has ended, or `until`.
    pub(super) async fn wait_heard(&self, moment: Instant, until: Instant) {
        let judge = |state: &State| match state.heard < moment && state.phase != Phase::Down && Instant::now() < until {
            true => Err(until),
            false => Ok(()),
        };
        self.judged(judge).await;
    }

    /// Waits until the stream is healthy for the first time, or has failed; false if neither has happened in time.
    pub(super) fn wait_first_contact(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.phase != Phase::Healthy && !state.failed {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// Ends every wait for acknowledgement, now and from now on.
    pub(super) fn release(&self) {
        self.state.lock().released = true;
        self.wake();
    }

    /// Waits until the catalog has acknowledged change `number`, if it is healthy. If its stream has ended and it may not
    /// know that yet and still call itself complete, the wait is for the rest of the bound.
    pub(super) async fn wait_acknowledged(&self, number: u64, until: Instant, bound: Duration) -> Waited {
        self.judged(|state| state.acknowledged(number, until, bound)).await
    }

    /// What [`Link::wait_acknowledged`] would say without waiting.
    pub(super) fn acknowledged(&self, number: u64, until: Instant, bound: Duration) -> Option<Waited> {
        self.state.lock().acknowledged(number, until, bound).ok()
    }

    /// The catalog has not acknowledged change `number` in time: no put waits for it any more, and its stream will be
    /// closed.
    pub(super) fn give_up(&self, number: u64) {
        let mut state = self.state.lock();
        if state.phase == Phase::Healthy && state.ack.applied < number {
            state.leave_healthy();
            state.phase = Phase::Down;
            state.gave_up += 1;
            state.problem = Some(Problem::new("it did not acknowledge a put in time"));
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(200);

    fn healthy() -> Link {
        let link = Link::new();
        link.begin_snapshot(1);
        assert!(link.become_healthy());
        link
    }

    fn ack(applied: u64, probe: u64) -> Ack {
        Ack { applied, snapshot: 1, pages: 1, probe }
    }

    #[test]
    fn after_giving_up_puts_wait_until_no_probe_that_was_echoed_proves_anything() {
        // A catalog that works off a queue acknowledges with fresh probes and is late all the same. After giving up on it,
        // puts were answered at once, while the last echo still made it complete: it said a complete no to them. Now they
        // wait until that echo is too old.
        let link = healthy();
        let started = Instant::now();
        link.acknowledge(ack(0, 1));
        link.give_up(1);
        let driver = super::super::driver::Driver::new().unwrap();
        let waited = driver.drive(link.wait_acknowledged(2, Instant::now() + 10 * BOUND, BOUND));
        assert_eq!(waited, Waited::Done);
        assert!(started.elapsed() >= BOUND, "answered while the catalog may be complete");
        assert_eq!(link.numbers().2, 1);
    }

    #[test]
    fn a_probe_that_comes_after_giving_up_is_not_echoed() {
        let link = healthy();
        link.acknowledge(ack(0, 1));
        link.give_up(1);
        link.acknowledge(ack(1, 2));
        assert_eq!(link.probe(), 1);
    }

    #[test]
    fn a_catalog_that_acknowledged_at_the_last_moment_is_not_given_up() {
        let link = healthy();
        link.acknowledge(ack(1, 1));
        link.give_up(1);
        assert!(link.is_healthy());
    }
}
