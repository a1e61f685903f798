//! A read of mapped memory may go to a device: the same look-up, the same checks, the same answers as one to the host's memory.

mod common;

use common::{create, id, put};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tidepool_cuda::Driver as _;
use tidepool_cuda::fake::Fake;
use tidepool_cuda::{Choice, Gpu};
use tidepool_store::{Mapping, NodeMemory, ShmTransport};
use tidepool_testing::{content, flip_bit, memory_dir};
use tidepool_transfer::copy::CopyPool;
use tidepool_transfer::door::{DevicePiece, Door, Span, Way};
use tidepool_transfer::memory::{MemoryNode, MemoryTransport};
use tidepool_transfer::ops::{Destination, DevicePlace, Done, Failure, Op, ReadOp};
use tidepool_transfer::transport::Transport;
use tidepool_types::{Deadline, Epoch};

/// Longer than a block that is copied at once with others, and shorter.
const LENS: [usize; 3] = [100, 70_000, 300_000];

struct Fixture {
    memory: Arc<NodeMemory>,
    mapping: Arc<Mapping>,
    slab: File,
    driver: Arc<Fake>,
    gpu: Arc<dyn Door>,
    _dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = memory_dir();
        let memory = create(dir.path(), "n", Epoch(1), 8 << 20, 4096);
        let [map, slab] = memory.readable().map(|fd| fd.try_clone_to_owned().unwrap());
        let mapping = Arc::new(Mapping::open(&map, &slab, None).unwrap());
        let driver = Arc::new(Fake::default());
        let gpu = Arc::new(Gpu::with_choice(driver.clone(), Choice::default()));
        let slab = File::from(memory.writable().try_clone_to_owned().unwrap());
        Self { memory, mapping, slab, driver, gpu, _dir: dir }
    }

    /// So much of the device's memory, in two pieces that do not touch.
    fn place(&self, len: usize) -> DevicePlace {
        let head = len / 3;
        let pieces = [head, len - head].map(|len| DevicePiece { address: self.driver.allocate(len).unwrap(), len });
        DevicePlace { door: Arc::clone(&self.gpu), pieces: pieces.into() }
    }

    fn bytes(&self, place: &DevicePlace) -> Vec<u8> {
        let mut bytes = vec![0; place.total() as usize];
        let mut host = bytes.as_mut_ptr();
        let spans: Vec<Span> = place
            .pieces
            .iter()
            .map(|piece| {
                let span = Span { host, device: piece.address, len: piece.len };
                host = host.wrapping_add(piece.len);
                span
            })
            .collect();
        // SAFETY: the bytes outlive the pin, and the flight lands before it goes.
        unsafe {
            let _pin = self.gpu.pin(bytes.as_mut_ptr(), bytes.len(), true).unwrap();
            self.gpu.begin(Way::Out, &spans).and_then(|flight| flight.land()).unwrap();
        }
        bytes
    }

    fn read(&self, reads: Vec<(&[u8], Destination)>) -> Vec<Result<Done, Failure>> {
        let shm = ShmTransport::new(Arc::clone(&self.mapping), Arc::new(CopyPool::new(0)), true);
        run(shm, reads, Deadline::after(Duration::from_secs(10)))
    }
}

fn run(
    mut transport: impl Transport,
    reads: Vec<(&[u8], Destination)>,
    deadline: Deadline,
) -> Vec<Result<Done, Failure>> {
    let read = |(token, (key, destination)): (usize, (&[u8], Destination))| {
        Op::Read(ReadOp::whole(token as u64, id(key), destination))
    };
    let ops: Vec<Op> = reads.into_iter().enumerate().map(read).collect();
    let count = ops.len();
    assert!(transport.submit(ops, deadline).iter().all(Result::is_ok));
    let mut done = Vec::new();
    assert_eq!(transport.poll(&mut done, deadline), count);
    done.sort_by_key(|completion| completion.token);
    done.into_iter().map(|completion| completion.outcome).collect()
}

fn key(len: usize) -> Vec<u8> {
    len.to_le_bytes().to_vec()
}

#[test]
fn blocks_come_to_a_device_beside_those_that_come_to_the_host() {
    let fixture = Fixture::new();
    let keys = LENS.map(key);
    for (key, len) in keys.iter().zip(LENS) {
        put(&fixture.memory, key, &content(7, len)).unwrap();
    }
    let places = LENS.map(|len| fixture.place(len));
    let mut reads: Vec<(&[u8], Destination)> = Vec::new();
    for (key, place) in keys.iter().zip(&places) {
        reads.push((key, Destination::Device(Box::new(place.clone()))));
        reads.push((key, Destination::Allocate));
    }
    for (number, outcome) in fixture.read(reads).into_iter().enumerate() {
        let len = LENS[number / 2];
        let Ok(Done::Read { bytes, slot, data, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((bytes, slot.is_some()), (len as u64, true));
        let found = data.unwrap_or_else(|| fixture.bytes(&places[number / 2]));
        assert!(found == content(7, len), "block of {len} bytes");
    }
}

#[test]
fn a_read_to_a_device_fails_for_the_reasons_that_others_do() {
    let fixture = Fixture::new();
    for name in ["whole", "damaged"] {
        put(&fixture.memory, name.as_bytes(), &content(7, 5000)).unwrap();
    }
    let held = fixture.memory.peek(&id(b"damaged")).unwrap();
    let copy = held.copy();
    flip_bit(&fixture.slab, held.offset() + 4000);
    let to = |len| Destination::Device(Box::new(fixture.place(len)));
    let reads: Vec<(&[u8], Destination)> =
        vec![(b"absent", to(5000)), (b"damaged", to(5000)), (b"whole", to(4999)), (b"whole", to(5001))];
    let outcomes = fixture.read(reads).into_iter().map(Result::unwrap_err).collect::<Vec<_>>();
    let too_small = Failure::TooSmall { block_len: 5000 };
    assert_eq!(outcomes, [Failure::Miss, Failure::Corrupt(copy), too_small, too_small]);
    let place = to(5000);
    fixture.driver.fail_once_after(0);
    let outcome = fixture.read(vec![(b"whole", place)]).remove(0);
    assert_eq!(outcome.unwrap_err(), Failure::Unavailable, "the driver has failed");
    assert!(fixture.read(vec![(b"whole", to(5000))]).remove(0).is_ok());
    let shm = ShmTransport::new(Arc::clone(&fixture.mapping), Arc::new(CopyPool::new(0)), false);
    let late = run(shm, vec![(b"whole", to(5000))], Deadline::after(Duration::ZERO)).remove(0);
    assert_eq!(late.unwrap_err(), Failure::TimedOut);
}

#[test]
fn a_transport_without_mapped_memory_does_not_reach_a_device() {
    let (fixture, node) = (Fixture::new(), MemoryNode::new(Epoch(1)));
    node.put(id(b"k"), vec![7; 100]);
    let to = Destination::Device(Box::new(fixture.place(100)));
    let soon = Deadline::after(Duration::from_secs(10));
    let outcome = run(MemoryTransport::new(node), vec![(b"k", to)], soon).remove(0);
    assert_eq!(outcome.unwrap_err(), Failure::Unavailable);
}
