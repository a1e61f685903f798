//! A node on this host: its mapped memory and the socket that is watched for its end.
//!
//! The socket carries only what is not answered (uses, views let go, doubts), so nobody ever waits on it.

use crate::counters::{Counters, add};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidepool_locks::Mutex;
use tidepool_store::{LeaseWriter, Mapping, host_time};
use tidepool_transfer::conn::{Connection, Socket};
use tidepool_types::{BlockId, CopyName};
use tidepool_wire::message::{Request, Run, SlotName, Touch};

/// Uses that are worth a message of their own.
const TOUCHES_PER_MESSAGE: usize = 512;
/// The most uses, or views let go, in one message.
const MOST_TOUCHES: usize = 1024;

/// A mapped node.
pub(crate) struct MappedNode {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) socket_path: PathBuf,
    /// Whether the node lets this process pin blocks and write to the slab.
    pub(crate) writable: bool,
    socket: Arc<Socket>,
    gone: AtomicBool,
    /// One-way messages only: held for one send that never waits for room.
    control: Mutex<Connection>,
    /// Uses since the last report. Short sections: adding a batch's uses.
    touches: Mutex<Touch>,
    /// Views let go while the socket had no room.
    released: Mutex<Vec<SlotName>>,
    /// Where the owner looks for what this client has read lately. Short sections: noting a batch, and having the owner
    /// empty a full ring.
    ring: Option<Mutex<LeaseWriter>>,
}

impl MappedNode {
    pub(crate) fn new(
        mapping: Mapping,
        socket_path: PathBuf,
        writable: bool,
        control: Connection,
        ring: Option<LeaseWriter>,
    ) -> Self {
        Self {
            mapping: Arc::new(mapping),
            socket_path,
            writable,
            socket: Arc::clone(control.socket()),
            gone: AtomicBool::new(false),
            control: Mutex::new(control),
            touches: Mutex::default(),
            released: Mutex::default(),
            ring: ring.map(Mutex::new),
        }
    }

    /// Leases blocks that were found or read here. When this returns the owner knows. `have_taken` asks it to look: called
    /// when the ring is full, before the oldest entries make way.
    pub(crate) fn lease(&self, ids: &[BlockId], lease: Duration, have_taken: impl Fn()) {
        let Some(ring) = &self.ring else { return };
        for some in ids.chunks(LeaseWriter::MOST) {
            let mut ring = ring.lock();
            if ring.is_full_for(some.len()) {
                have_taken();
                ring.all_taken();
            }
            ring.note(some.iter().copied(), host_time() + lease);
        }
    }

    /// The socket whose end is the node's.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether the node has closed its socket.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The node has closed its socket: nothing is read from it any more.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.socket.close();
        self.mapping.retire();
    }

    /// Notes uses; reports them once they are many.
    pub(crate) fn touch(&self, counters: &Counters, note: impl FnOnce(&mut Touch)) {
        let mut touches = self.touches.lock();
        note(&mut touches);
        if touches.slots.len() < TOUCHES_PER_MESSAGE {
            return;
        }
        let batch = std::mem::take(&mut *touches);
        drop(touches);
        self.report(batch, counters);
    }

    /// Reports what has been collected; called by the watcher.
    pub(crate) fn flush(&self, counters: &Counters) {
        let batch = std::mem::take(&mut *self.touches.lock());
        if batch != Touch::default() {
            self.report(batch, counters);
        }
        let released = std::mem::take(&mut *self.released.lock());
        if !released.is_empty() {
            self.let_go(&released);
        }
    }

    fn report(&self, mut batch: Touch, counters: &Counters) {
        // Messages that the kernel takes whole or not at all: a node that is stopped must not leave one half sent.
        while batch.slots.len() > MOST_TOUCHES {
            let kept = batch.slots.len() - MOST_TOUCHES;
            let (slots, runs) = (batch.slots.split_off(kept), Run::split_off(&mut batch.runs, kept));
            self.report_one(Touch { slots, runs, ..Touch::default() }, counters);
        }
        self.report_one(batch, counters);
    }

    fn report_one(&self, batch: Touch, counters: &Counters) {
        let uses = batch.slots.len() as u64;
        match self.send(&Request::Touch(batch)) {
            true => add(&counters.touches_sent, uses),
            false => add(&counters.touches_dropped, uses),
        }
    }

    /// Lets views go, now or once the socket has room.
    pub(crate) fn let_go(&self, slots: &[SlotName]) {
        let mut rest = slots.chunks(MOST_TOUCHES);
        let unsent = |slots: &&[SlotName]| !self.send(&Request::Unview(slots.to_vec()));
        if let Some(first) = rest.find(unsent)
            && !self.is_gone()
        {
            let later = [first].into_iter().chain(rest).flatten().copied();
            self.released.lock().extend(later);
        }
    }

    /// Tells the owner that a copy did not match its checksums.
    pub(crate) fn doubt(&self, id: BlockId, copy: CopyName) {
        // A report that is lost is made again by the next reader, or the scrubber finds out.
        let _ = self.send(&Request::ReportCorrupt(vec![(id, copy)]));
    }

    fn send(&self, request: &Request) -> bool {
        self.control.lock().send_one_way(request).unwrap_or(false)
    }
}
