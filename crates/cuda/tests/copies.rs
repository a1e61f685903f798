//! Flights of scattered copies, with a pretended driver.

use std::sync::Arc;
use std::time::Duration;
use tidepool_cuda::fake::{Books, Fake};
use tidepool_cuda::{Choice, Driver as _, Gpu, Method};
use tidepool_transfer::door::{Door as _, Flight, Span, Way};

/// Host memory and a GPU's, of the same length.
struct Memories {
    host: Vec<u8>,
    device: u64,
}

impl Memories {
    fn new(driver: &Fake, len: usize) -> Self {
        Self { host: (0..len).map(|at| (at / 16) as u8).collect(), device: driver.allocate(len).expect("memory") }
    }

    /// Pieces of `len` bytes, in the reverse order on the device.
    fn spans(&mut self, len: usize) -> Vec<Span> {
        let (count, host) = (self.host.len() / len, self.host.as_mut_ptr());
        let device = |index: usize| self.device + ((count - 1 - index) * len) as u64;
        (0..count).map(|index| Span { host: host.wrapping_add(index * len), device: device(index), len }).collect()
    }
}

fn fly(gpu: &Gpu, method: Method, way: Way, spans: &[Span]) -> Box<dyn Flight> {
    // SAFETY: the memories outlive every flight of these tests.
    unsafe { gpu.begin_by(|_, _| method, way, spans) }.expect("begun")
}

#[test]
fn more_pieces_than_a_table_has_room_for_are_all_copied() {
    let driver = Arc::new(Fake::default());
    let gpu = Gpu::with_choice(driver.clone(), Choice::default());
    // The table has 65,536 places; those that the kernel has not read yet stay what they are.
    let mut memories = Memories::new(&driver, 150_000 * 16);
    let before = memories.host.clone();
    driver.delay(3);
    // SAFETY: the memory outlives the pin.
    let _pin = unsafe { gpu.pin(memories.host.as_mut_ptr(), memories.host.len(), true) }.expect("pinned");
    let spans = memories.spans(16);
    fly(&gpu, Method::Kernel, Way::In, &spans).land().expect("landed");
    memories.host.fill(0);
    fly(&gpu, Method::Kernel, Way::Out, &spans).land().expect("landed");
    assert!(memories.host == before);
}

#[test]
fn pieces_that_the_kernel_cannot_have_are_copied_by_the_engines() {
    let driver = Arc::new(Fake::default());
    let gpu = Gpu::with_choice(driver.clone(), Choice::default());
    let mut memories = Memories::new(&driver, 24 * 1000);
    let before = memories.host.clone();
    // SAFETY: the memory outlives the pin.
    let _pin = unsafe { gpu.pin(memories.host.as_mut_ptr(), memories.host.len(), true) }.expect("pinned");
    let spans = memories.spans(24);
    fly(&gpu, Method::Kernel, Way::In, &spans).land().expect("landed");
    memories.host.fill(0);
    fly(&gpu, Method::Engine, Way::Out, &spans).land().expect("landed");
    assert!(memories.host == before);
}

#[test]
fn without_the_kernel_every_piece_is_copied_by_the_engines() {
    let driver = Arc::new(Fake::default());
    driver.refuse_the_kernel();
    let gpu = Gpu::new(driver.clone());
    for way in [Way::In, Way::Out] {
        assert_eq!(gpu.choice().method(way, 4096), Method::Engine);
    }
    let mut memories = Memories::new(&driver, 4096 * 100);
    let before = memories.host.clone();
    // SAFETY: the memory outlives the pin.
    let _pin = unsafe { gpu.pin(memories.host.as_mut_ptr(), memories.host.len(), true) }.expect("pinned");
    let spans = memories.spans(4096);
    // Also where somebody asks for the kernel.
    fly(&gpu, Method::Kernel, Way::In, &spans).land().expect("landed");
    memories.host.fill(0);
    fly(&gpu, Method::Kernel, Way::Out, &spans).land().expect("landed");
    assert!(memories.host == before);
}

#[test]
fn pieces_of_several_lengths_in_turn_take_a_call_for_each_length() {
    // A layer of some models has a long piece and a short one. Each was a launch of the kernel with a table of one piece.
    let driver = Arc::new(Fake::default());
    let gpu = Gpu::with_choice(driver.clone(), Choice::default());
    let mut memories = Memories::new(&driver, 1 << 20);
    let before = memories.host.clone();
    // SAFETY: the memory outlives the pin.
    let _pin = unsafe { gpu.pin(memories.host.as_mut_ptr(), memories.host.len(), true) }.expect("pinned");
    let halves = |span: Span| {
        let later = Span { host: span.host.wrapping_add(1024), device: span.device + 1024, len: 3072 };
        [Span { len: 1024, ..span }, later]
    };
    let spans: Vec<Span> = memories.spans(4096).into_iter().flat_map(halves).collect();
    fly(&gpu, Method::Kernel, Way::In, &spans).land().expect("landed");
    memories.host.fill(0);
    let calls = driver.copy_calls();
    fly(&gpu, Method::Kernel, Way::Out, &spans).land().expect("landed");
    assert!(memories.host == before);
    // A table and a launch each.
    assert_eq!(driver.copy_calls() - calls, 4);
}

#[test]
fn a_flight_that_is_dropped_has_landed() {
    let driver = Arc::new(Fake::default());
    let gpu = Gpu::with_choice(driver.clone(), Choice::default());
    let mut memories = Memories::new(&driver, 1 << 16);
    // SAFETY: the memory outlives the pin.
    let _pin = unsafe { gpu.pin(memories.host.as_mut_ptr(), memories.host.len(), true) }.expect("pinned");
    driver.delay(100);
    drop(fly(&gpu, Method::Engine, Way::In, &memories.spans(4096)));
    assert!(!driver.is_busy(), "memory that was let go is still being copied");
}

#[test]
fn lanes_are_reused_and_no_more_are_kept_than_an_engine_has_use_for() {
    let driver = Arc::new(Fake::default());
    let gpu = Gpu::with_choice(driver.clone(), Choice::default());
    let mut memories = Memories::new(&driver, 264 * 4096);
    // SAFETY: the memory outlives the pin.
    let pin = unsafe { gpu.pin(memories.host.as_mut_ptr(), memories.host.len(), true) }.expect("pinned");
    let spans = memories.spans(4096);
    let flights: Vec<_> = spans.iter().map(|span| fly(&gpu, Method::Engine, Way::In, &[*span])).collect();
    assert_eq!(driver.books().streams, 264);
    flights.into_iter().for_each(|flight| flight.land().expect("landed"));
    assert_eq!(driver.books().streams, 256);
    (0..20).for_each(|_| fly(&gpu, Method::Kernel, Way::In, &spans).land().expect("landed"));
    assert_eq!(driver.books().streams, 256);
    drop((gpu, pin));
    assert_eq!(driver.books(), Books { memory: 1, ..Books::default() });
}

#[test]
fn a_gpu_that_cannot_be_measured_copies_as_an_h200_would_and_owes_nothing() {
    // In turn: no pinned memory, no memory of the GPU, no stream, no event, no table, no copy. The next is the kernel, below.
    for calls in 0..7 {
        let driver = Arc::new(Fake::default());
        driver.fail_after(calls);
        let gpu = Gpu::new(driver.clone());
        assert_eq!(*gpu.choice(), Choice::default(), "after {calls} calls");
        drop(gpu);
        assert_eq!(driver.books(), Books::default(), "after {calls} calls");
    }
}

#[test]
fn pieces_go_the_way_that_was_faster_at_the_start() {
    let (short, long) = (Duration::from_millis(1), Duration::from_millis(50));
    for (engines, kernel, faster) in [(short, long, Method::Engine), (long, short, Method::Kernel)] {
        let driver = Arc::new(Fake::default());
        driver.only_take(engines, kernel);
        let gpu = Gpu::new(driver);
        for (way, len) in [Way::In, Way::Out].into_iter().flat_map(|way| [(way, 8 << 10), (way, 1 << 20)]) {
            assert_eq!(gpu.choice().method(way, len), faster, "{way:?}, {len} bytes: {:?}", gpu.choice().times());
        }
    }
}

/// A kernel that loads and cannot be started was taken for small pieces all the same, none of which was ever copied.
#[test]
fn a_kernel_that_does_not_start_is_not_chosen() {
    let driver = Arc::new(Fake::default());
    driver.refuse_launches();
    let gpu = Gpu::new(driver.clone());
    assert!([Way::In, Way::Out].iter().all(|way| gpu.choice().method(*way, 4096) == Method::Engine));
    drop(gpu);
    assert_eq!(driver.books(), Books::default());
}

#[test]
fn a_host_without_a_driver_is_told_what_is_missing() {
    match tidepool_cuda::open(0) {
        Ok(_) => eprintln!("SKIPPED: this host has a GPU, so nothing is proved about one without"),
        Err(error) => assert!(["libcuda.so.1", "cuInit", "cuDeviceGet"].contains(&error.call), "{error}"),
    }
}
