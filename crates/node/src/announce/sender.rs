//! The thread that talks to one catalog: connects, sends a snapshot, then every change and heartbeats; and begins again
//! whenever the stream ends.

use super::claims::Claims;
use super::complaint::Complaint;
use super::driver::Driver;
use super::link::Link;
use super::outbox::{Outbox, Stopped, page};
use super::stream::{Stream, heartbeat};
use super::{AnnounceConfig, NodeInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_schema::{InventoryUp, inventory_up::Message};
use tidepool_store::inventory::Inventory;
use tokio::sync::{mpsc, watch};

/// Slots of the inventory that one page covers.
const PAGE_SLOTS: usize = 8192;
/// Pages on their way at a time.
const PAGES_IN_FLIGHT: u64 = 4;
/// The first rest after a failure; each further one is twice as long, up to the configured bound.
const FIRST_REST: Duration = Duration::from_millis(20);
/// The rest of an address whose catalog has a stream under another one. Another catalog may start there, and counts on
/// hearing from the node before it has settled.
const DORMANT: Duration = Duration::from_millis(500);
/// A stream that ended sooner counts as a failure: whatever ends them so soon must not be tried all the time.
const LASTING: Duration = Duration::from_secs(1);
/// How long a goodbye may take.
const PARTING: Duration = Duration::from_millis(200);

/// Everything about one catalog.
pub(super) struct Target {
    pub(super) address: String,
    pub(super) link: Arc<Link>,
    /// Present while changes may go out: between the last page of a snapshot and the end of the stream. Puts send their
    /// own changes through it rather than wait for this thread to wake up.
    pub(super) outbox: Mutex<Option<Outbox>>,
    pub(super) driver: Driver,
}

/// See the file's head.
pub(super) struct Sender {
    pub(super) target: Arc<Target>,
    pub(super) inventory: Arc<dyn Inventory>,
    pub(super) info: NodeInfo,
    pub(super) used: Arc<AtomicU64>,
    pub(super) config: AnnounceConfig,
    pub(super) claims: Arc<Claims>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) complaint: Complaint,
}

/// How a stretch of work on a stream ended.
enum End {
    /// The announcer stops.
    Stop,
    /// The stream is of no more use.
    Broken,
    /// A new snapshot is needed on the same stream.
    Snapshot,
}

impl Sender {
    /// Runs until the announcer stops.
    pub(super) fn run(mut self) {
        let mut rest = FIRST_REST;
        while !self.stopping() {
            let longer = (rest * 2).min(self.config.retry_within);
            match self.open() {
                Some(stream) => {
                    let opened = Instant::now();
                    self.serve(stream);
                    rest = if opened.elapsed() >= LASTING { FIRST_REST } else { longer };
                    self.rest(rest);
                }
                None if self.is_double() => self.rest(DORMANT),
                None => {
                    rest = longer;
                    self.rest(rest);
                }
            }
        }
    }

    /// Whether another stream leads to the same catalog.
    fn is_double(&self) -> bool {
        self.target.link.problem().is_some_and(|problem| problem.same_as.is_some())
    }

    fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits, unless the announcer stops.
    fn rest(&mut self, time: Duration) {
        let stop = &mut self.stop;
        let stopped = async { tokio::time::timeout(time, stop.wait_for(|stop| *stop)).await.is_ok() };
        self.target.driver.drive(stopped);
    }

    /// Opens a stream, unless the announcer stops first.
    fn open(&mut self) -> Option<Stream> {
        let Self { target, info, used, claims, config, stop, complaint, .. } = self;
        let Target { address, link, driver, .. } = &**target;
        let hello = info.to_wire(used.load(Ordering::Relaxed));
        let opened = driver.drive(async {
            tokio::select! {
                opened = Stream::open(address, hello, link.clone(), claims, config) => Some(opened),
                _ = stop.wait_for(|stop| *stop) => None,
            }
        });
        let problem = match opened? {
            Ok(stream) => {
                *complaint = Complaint::default();
                return Some(stream);
            }
            Err(problem) => problem,
        };
        if problem.same_as.is_none() {
            if let Some(attempts) = complaint.is_due(&problem.reason, Instant::now()) {
                let reason = &problem.reason;
                tracing::warn!(catalog = address, reason, attempts, "a catalog takes no inventory from this node");
            }
        } else if link.problem().is_none_or(|before| before != problem) {
            tracing::info!(catalog = address, reason = problem.reason, "a catalog has two addresses, one is enough");
        }
        link.not_opened(problem);
        None
    }

    /// Uses a stream until it ends.
    fn serve(&self, stream: Stream) {
        tracing::info!(catalog = self.target.address, "inventory stream opened");
        let mut snapshot = 0;
        let end = loop {
            snapshot += 1;
            self.target.link.begin_snapshot(snapshot);
            let end = self.send_snapshot(&stream, snapshot).and_then(|outbox| self.follow(&stream, outbox));
            self.target.outbox.lock().take();
            match end {
                Err(End::Snapshot) => {}
                Err(end) => break end,
                Ok(never) => match never {},
            }
        };
        self.target.link.take_down("it went silent, or the stream broke");
        match end {
            End::Stop => stream.part(&self.target.driver, PARTING),
            End::Broken | End::Snapshot => stream.close(),
        }
        // So that the connection hears of its end.
        self.target.driver.turn();
        tracing::info!(catalog = self.target.address, "inventory stream closed");
    }

    /// Sends what is held, page by page, and between the pages what changed. The last page is empty: it goes out when all
    /// before it are applied, so that from then on the catalog can keep up with the puts that wait for it.
    fn send_snapshot(&self, stream: &Stream, snapshot: u64) -> Result<Outbox, End> {
        let mut outbox = Outbox::new(stream.up.clone());
        let (mut cursor, mut pages, mut held) = (Some(0), 0, Vec::new());
        while let Some(at) = cursor {
            self.check()?;
            held.clear();
            let end = self.inventory.page(at, PAGE_SLOTS, &mut held);
            cursor = end.next;
            if pages == 0 {
                outbox.sent = end.as_of;
            } else if held.is_empty() {
                continue;
            }
            self.send_changes(&mut outbox, end.as_of)?;
            self.send(stream, page(snapshot, pages, end.as_of, &held, false))?;
            pages += 1;
            self.wait_pages(pages.saturating_sub(PAGES_IN_FLIGHT))?;
        }
        self.wait_pages(pages)?;
        self.send_changes(&mut outbox, self.inventory.latest())?;
        // Before the page that may make the catalog complete, not after it: see `Phase::Healthy`.
        if !self.target.link.become_healthy() {
            return Err(self.interrupted());
        }
        self.send(stream, page(snapshot, pages, outbox.sent, &[], true))?;
        Ok(outbox)
    }

    /// Sends changes as they are made, and heartbeats.
    fn follow(&self, stream: &Stream, outbox: Outbox) -> Result<std::convert::Infallible, End> {
        let mut sent = outbox.sent;
        *self.target.outbox.lock() = Some(outbox);
        let mut next_heartbeat = Instant::now();
        loop {
            self.check()?;
            let until_heartbeat = next_heartbeat.saturating_duration_since(Instant::now());
            self.inventory.wait(sent, until_heartbeat);
            let turn = Instant::now();
            if turn >= next_heartbeat {
                // A thread that was kept waiting finds newer probes unread, and an older one proves less.
                self.target.driver.turn();
            }
            // Read before the changes are: the heartbeat then speaks for a moment after that probe was seen.
            let probe = self.target.link.probe();
            let mut guard = self.target.outbox.lock();
            let outbox = guard.as_mut().ok_or(End::Broken)?;
            let (before, latest) = (outbox.sent, self.inventory.latest());
            match outbox.send_changes(&*self.inventory, latest, &self.config) {
                Stopped::Idle => {}
                Stopped::Full => {
                    let channel = outbox.channel();
                    drop(guard);
                    self.wait_for_room(&channel)?;
                    continue;
                }
                Stopped::Overrun => return Err(End::Snapshot),
                Stopped::Closed => return Err(End::Broken),
            }
            sent = outbox.sent;
            let mut is_news = sent > before;
            // A heartbeat may wait for room; puts must not wait with it.
            drop(guard);
            if Instant::now() >= next_heartbeat {
                self.send(stream, heartbeat(sent, probe, self.used.load(Ordering::Relaxed)))?;
                next_heartbeat = Instant::now() + self.config.heartbeat;
                is_news = true;
            }
            // Every message is answered. Puts move the stream for theirs, and this for its own.
            if is_news {
                let Target { link, driver, .. } = &*self.target;
                driver.drive(link.wait_heard(turn, next_heartbeat));
            }
        }
    }

    /// Sends all changes up to `until`, waiting for room.
    fn send_changes(&self, outbox: &mut Outbox, until: u64) -> Result<(), End> {
        loop {
            match outbox.send_changes(&*self.inventory, until, &self.config) {
                Stopped::Idle => return Ok(()),
                Stopped::Full => self.wait_for_room(&outbox.channel())?,
                Stopped::Overrun => return Err(End::Snapshot),
                Stopped::Closed => return Err(End::Broken),
            }
        }
    }

    /// Waits until the stream takes another message.
    fn wait_for_room(&self, channel: &mpsc::Sender<InventoryUp>) -> Result<(), End> {
        let until = Instant::now() + self.config.silence;
        while Instant::now() < until {
            let room = async { tokio::time::timeout(self.config.heartbeat, channel.reserve()).await };
            match self.target.driver.drive(room) {
                Ok(Ok(_)) => return self.check(),
                Ok(Err(_)) => return Err(End::Broken),
                Err(_) => self.check()?,
            }
        }
        Err(End::Broken)
    }

    fn wait_pages(&self, pages: u64) -> Result<(), End> {
        let until = Instant::now() + self.config.silence;
        if self.target.driver.drive(self.target.link.wait_pages(pages, until)) {
            Ok(())
        } else {
            Err(self.interrupted())
        }
    }

    fn send(&self, stream: &Stream, message: Message) -> Result<(), End> {
        if stream.send(&self.target.driver, message, self.config.silence) { Ok(()) } else { Err(End::Broken) }
    }

    /// Why a stream that is up no longer goes on.
    fn interrupted(&self) -> End {
        let link = &self.target.link;
        if link.is_up() && link.wants_snapshot() { End::Snapshot } else { End::Broken }
    }

    /// Whether to go on.
    fn check(&self) -> Result<(), End> {
        let link = &self.target.link;
        if self.stopping() {
            Err(End::Stop)
        } else if !link.is_up() || link.heard().elapsed() > self.config.silence {
            Err(End::Broken)
        } else if link.wants_snapshot() {
            Err(End::Snapshot)
        } else {
            Ok(())
        }
    }
}
