//! The promises of every transport, checked on mapped memory: reads and writes in place, without a node.

mod common;

use common::{WRITER, create, put};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tidepool_locks::Mutex;
use tidepool_store::{Mapping, NodeMemory, Reservation, Sealed, ShmTransport};
use tidepool_testing::{flip_bit, memory_dir};
use tidepool_transfer::conformance::{Owner, check_all};
use tidepool_transfer::copy::CopyPool;
use tidepool_transfer::testing::{block_id, block_key};
use tidepool_transfer::transport::Transport;
use tidepool_types::{BlockId, CopyName, Deadline, Epoch, Key};
use tidepool_wire::message::SlotName;

/// A node's memory, and a writer's and reader's view of it.
struct Mapped {
    memory: Arc<NodeMemory>,
    mapping: Arc<Mapping>,
    copies: Arc<CopyPool>,
    slab: File,
    open: Mutex<HashMap<SlotName, Reservation>>,
    damaged: Mutex<Vec<(BlockId, CopyName)>>,
    _dir: TempDir,
}

impl Mapped {
    /// With as many helpers that copy.
    fn new(helpers: usize) -> Self {
        let dir = memory_dir();
        let memory = create(dir.path(), "mapped", Epoch(3), 192 << 20, 16 << 10);
        let [map, slab] = memory.readable().map(|fd| fd.try_clone_to_owned().unwrap());
        let writable = memory.writable().try_clone_to_owned().unwrap();
        let mapping = Arc::new(Mapping::open(&map, &slab, Some(&writable)).unwrap());
        let copies = Arc::new(CopyPool::new(helpers));
        let (open, damaged) = (Mutex::default(), Mutex::default());
        Self { memory, mapping, copies, slab: File::from(writable), open, damaged, _dir: dir }
    }
}

impl Owner for Mapped {
    fn put(&self, number: u64, bytes: &[u8]) -> CopyName {
        self.memory.remove(&block_id(number));
        match put(&self.memory, &block_key(number), bytes) {
            Ok(Sealed::New(copy)) => copy,
            other => panic!("block {number}: {other:?}"),
        }
    }

    fn damage(&self, number: u64, at: u64) {
        let held = self.memory.peek(&block_id(number)).expect("the block is held");
        flip_bit(&self.slab, held.offset() + at);
    }

    fn reserve(&self, number: u64, len: usize) -> (SlotName, u64) {
        let (key, id) = (block_key(number), block_id(number));
        let soon = Deadline::after(Duration::from_secs(10));
        let unnamed = self.memory.reserve(Key::new(&key).unwrap(), id, len as u64, WRITER, soon, &|| true);
        let reservation = unnamed.unwrap().named();
        let (slot, offset) = (reservation.name(), reservation.offset());
        self.open.lock().insert(slot, reservation);
        (slot, offset)
    }

    fn written(&self, slot: &SlotName) -> Option<Vec<u8>> {
        let open = self.open.lock();
        let reservation = open.get(slot)?;
        let mut bytes = vec![0; reservation.len() as usize];
        self.slab.read_exact_at(&mut bytes, reservation.offset()).unwrap();
        Some(bytes)
    }

    fn reports(&self) -> Vec<(BlockId, CopyName)> {
        self.damaged.lock().clone()
    }

    fn report(&self, id: BlockId, copy: CopyName) {
        if self.memory.verify(&id, copy) {
            self.damaged.lock().push((id, copy));
        }
    }

    /// It verifies the bytes in the slab.
    fn brings_checksums(&self) -> bool {
        false
    }

    /// Reads verify, as those through a network do.
    fn transport(&self) -> Box<dyn Transport> {
        Box::new(ShmTransport::new(Arc::clone(&self.mapping), Arc::clone(&self.copies), true))
    }
}

#[test]
fn mapped_memory_keeps_its_promises_whoever_copies() {
    for helpers in [0, 2] {
        check_all(&Mapped::new(helpers));
    }
}
