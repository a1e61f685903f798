//! A driver without a GPU, for tests. Its memory is this process's, and it copies when a caller asks for an event. It
//! fails or waits on command, and keeps books of its resources.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use crate::driver::{Driver, Event, LAUNCH, Place, Stream};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use tidepool_locks::Mutex;
use tidepool_transfer::door::{DoorError, Span, Way};

/// A driver without a GPU that fails and waits on command.
#[derive(Debug, Default)]
pub struct Fake {
    state: Mutex<State>,
}

/// Resources that a driver has given out and not got back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Books {
    /// Ranges of pinned memory.
    pub pinned: usize,
    /// Pieces of the GPU's memory.
    pub memory: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Streams that were destroyed before their work was done, which would have gone on in reused memory.
    pub torn: usize,
    /// Pinned ranges whose memory was unmapped before they were unpinned: the GPU could reach the memory mapped there
    /// next.
    pub stale: usize,
}

/// Memory of this process that the fake GPU can reach.
#[derive(Debug, Clone, Copy)]
struct PinnedRange {
    len: usize,
    writable: bool,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Memory of the fake GPU, by address.
    memory: BTreeMap<u64, Vec<u8>>,
    /// Pinned memory, by address.
    pinned: BTreeMap<usize, PinnedRange>,
    stale: usize,
    streams: HashMap<Stream, Vec<Work>>,
    events: HashSet<Event>,
    /// The work in front of each event that was recorded.
    recorded: HashMap<Event, (Stream, usize)>,
    torn: usize,
    /// Questions for events that the driver still answers with "not yet".
    delay: u32,
    asked: HashMap<Event, u32>,
    failing: Failing,
    has_failed: bool,
    /// The longest range that the driver pins; `None` for any.
    longest_pin: Option<usize>,
    has_no_kernel: bool,
    launches_fail: bool,
    copied: u64,
    copy_calls: usize,
    /// The number of copied bytes at which the driver stops; `None` for never.
    held_at: Option<u64>,
    /// How long pretended work takes.
    times: Option<Times>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    engines: Duration,
    kernel: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
enum Failing {
    #[default]
    Never,
    /// Fail all calls after this many.
    After(u32),
    /// Fail one call after this many.
    Once(u32),
    /// Fail one call after this many; if it is about an event, the work before the event is never done.
    Spoiling(u32),
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Copy(u64, u64, usize),
    Gather(u64, usize, usize),
}

impl Fake {
    /// Answers this many questions for an event with "not yet", and does the work only then.
    pub fn delay(&self, questions: u32) {
        self.state.lock().delay = questions;
    }

    /// Stops after this many more copied bytes, until [`Self::go_on`].
    pub fn hold_after(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.held_at = Some(state.copied + bytes);
    }

    /// Resumes work after [`Self::hold_after`].
    pub fn go_on(&self) {
        self.state.lock().held_at = None;
    }

    /// Fails every call after the next `calls`, like a driver whose GPU is lost.
    pub fn fail_after(&self, calls: u32) {
        self.state.lock().failing = Failing::After(calls);
    }

    /// Fails one call, after the next `calls`.
    pub fn fail_once_after(&self, calls: u32) {
        self.state.lock().failing = Failing::Once(calls);
    }

    /// Fails one call after the next `calls`. If that asks for an event, the work before the event is never done.
    pub fn spoil_once_after(&self, calls: u32) {
        self.state.lock().failing = Failing::Spoiling(calls);
    }

    /// Ends all failures. Returns whether any call had failed.
    pub fn recover(&self) -> bool {
        let mut state = self.state.lock();
        state.failing = Failing::Never;
        std::mem::take(&mut state.has_failed)
    }

    /// Refuses to pin more than this many bytes at once.
    pub fn refuse_pins_over(&self, bytes: usize) {
        self.state.lock().longest_pin = Some(bytes);
    }

    /// Copies nothing from now on, and takes this long for each copy: with the engines, and with the kernel.
    pub fn only_take(&self, engines: Duration, kernel: Duration) {
        self.state.lock().times = Some(Times { engines, kernel });
    }

    /// The resources given out.
    #[must_use]
    pub fn books(&self) -> Books {
        let state = self.state.lock();
        let (pinned, memory) = (state.pinned.len(), state.memory.len());
        Books {
            pinned,
            memory,
            streams: state.streams.len(),
            events: state.events.len(),
            torn: state.torn,
            stale: state.stale,
        }
    }

    /// Number of events that callers have asked for.
    #[must_use]
    pub fn events_asked_after(&self) -> usize {
        self.state.lock().asked.len()
    }

    /// Has no kernel from now on, like a driver that rejects it.
    pub fn refuse_the_kernel(&self) {
        self.state.lock().has_no_kernel = true;
    }

    /// Refuses to start the kernel from now on.
    pub fn refuse_launches(&self) {
        self.state.lock().launches_fail = true;
    }

    /// Number of copies requested.
    #[must_use]
    pub fn copy_calls(&self) -> usize {
        self.state.lock().copy_calls
    }

    /// Bytes copied so far.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.state.lock().copied
    }

    /// Whether any work is not done.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.state.lock().streams.values().any(|work| !work.is_empty())
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Decides whether a call fails; every call that can fail starts here.
    fn charge(&mut self, call: &'static str) -> Result<(), DoorError> {
        match &mut self.failing {
            Failing::Never => Ok(()),
            Failing::After(0) => Err(self.lost(call, "CUDA_ERROR_LAUNCH_FAILED (719)")),
            Failing::Once(0) | Failing::Spoiling(0) => {
                (self.failing, self.has_failed) = (Failing::Never, true);
                Err(failed(call, "CUDA_ERROR_OUT_OF_MEMORY (2)"))
            }
            Failing::After(left) | Failing::Once(left) | Failing::Spoiling(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// Loses the GPU, and the work under way with it.
    fn lost(&mut self, call: &'static str, reason: &str) -> DoorError {
        (self.failing, self.has_failed) = (Failing::After(0), true);
        self.streams.values_mut().for_each(Vec::clear);
        failed(call, reason)
    }

    /// Drops the work before an event for good.
    fn spoil(&mut self, event: Event) {
        if let Some((stream, before)) = self.recorded.get(&event).copied()
            && let Some(work) = self.streams.get_mut(&stream)
        {
            work.drain(..before.min(work.len()));
        }
    }

    fn is_held(&self) -> bool {
        self.held_at.is_some_and(|at| self.copied >= at)
    }

    /// Whether the GPU can read the range, or write to it.
    fn is_pinned(&self, address: u64, len: usize, to_write: bool) -> bool {
        let before = self.pinned.range(..=address as usize).next_back();
        before
            .is_some_and(|(start, range)| address as usize + len <= start + range.len && (range.writable || !to_write))
    }

    fn owns(&self, address: u64, len: usize) -> bool {
        let before = self.memory.range(..=address).next_back();
        before.is_some_and(|(start, bytes)| address + len as u64 <= start + bytes.len() as u64)
    }

    fn can_reach(&self, address: u64, len: usize, to_write: bool) -> bool {
        self.owns(address, len) || self.is_pinned(address, len, to_write)
    }

    /// Does the work before an event.
    fn run(&mut self, stream: Stream, count: usize) -> Result<(), DoorError> {
        let work: Vec<Work> =
            self.streams.get_mut(&stream).map_or_else(Vec::new, |work| work.drain(..count.min(work.len())).collect());
        match self.times {
            None => work.into_iter().try_for_each(|work| self.work(work))?,
            Some(Times { engines, kernel }) => {
                let is_kernels = work.iter().any(|work| matches!(work, Work::Gather(..)));
                std::thread::sleep(if is_kernels { kernel } else { engines });
            }
        }
        // The work before other events of the stream has moved up.
        for (event_stream, before) in self.recorded.values_mut() {
            if *event_stream == stream {
                *before = before.saturating_sub(count);
            }
        }
        Ok(())
    }

    fn work(&mut self, work: Work) -> Result<(), DoorError> {
        let (table, count, len) = match work {
            Work::Copy(to, from, len) => return self.copy(to, from, len),
            Work::Gather(table, count, len) => (table, count, len),
        };
        for index in 0..count {
            // SAFETY: the table lies in memory of this driver's, and was copied there before.
            let place = unsafe { *((table as *const Place).add(index)) };
            // It moves 16 bytes at a time.
            if !(place.to | place.from | len as u64).is_multiple_of(16) {
                return Err(self.lost("cuEventQuery", "CUDA_ERROR_MISALIGNED_ADDRESS (716)"));
            }
            self.copy(place.to, place.from, len)?;
        }
        Ok(())
    }

    fn copy(&mut self, to: u64, from: u64, len: usize) -> Result<(), DoorError> {
        if !self.can_reach(to, len, true) || !self.can_reach(from, len, false) {
            return Err(self.lost("cuEventQuery", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
        }
        self.copied += len as u64;
        // SAFETY: both ranges are pinned memory of this process or this driver's own.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
        Ok(())
    }
}

fn failed(call: &'static str, reason: &str) -> DoorError {
    DoorError { call, reason: reason.to_owned() }
}

/// Whether all of a range is memory of this process.
fn is_mapped(start: usize, len: usize) -> bool {
    const PAGE: usize = 4096;
    let first = start / PAGE * PAGE;
    // SAFETY: writing back what has changed, which anonymous and shared memory have no use for, changes no byte.
    unsafe { libc::msync(first as *mut libc::c_void, start + len - first, libc::MS_ASYNC) == 0 }
}

impl Driver for Fake {
    fn register(&self, start: usize, len: usize, writable: bool) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        state.charge("cuMemHostRegister")?;
        if state.longest_pin.is_some_and(|longest| len > longest) {
            return Err(failed("cuMemHostRegister", "CUDA_ERROR_OUT_OF_MEMORY (2)"));
        }
        let before = state.pinned.range(..start + len).next_back();
        if before.is_some_and(|(other, range)| other + range.len > start) {
            state.has_failed = true;
            return Err(failed("cuMemHostRegister", "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED (712)"));
        }
        state.pinned.insert(start, PinnedRange { len, writable });
        Ok(())
    }

    fn unregister(&self, start: usize) {
        let mut state = self.state.lock();
        if let Some(range) = state.pinned.remove(&start) {
            state.stale += usize::from(!is_mapped(start, range.len));
        }
    }

    fn allocate(&self, len: usize) -> Result<u64, DoorError> {
        let mut state = self.state.lock();
        state.charge("cuMemAlloc")?;
        let bytes = vec![0u8; len];
        let address = bytes.as_ptr() as u64;
        state.memory.insert(address, bytes);
        Ok(address)
    }

    fn free(&self, address: u64) {
        self.state.lock().memory.remove(&address);
    }

    fn owns(&self, address: u64) -> bool {
        self.state.lock().owns(address, 1)
    }

    fn stream(&self) -> Result<Stream, DoorError> {
        let mut state = self.state.lock();
        state.charge("cuStreamCreate")?;
        let stream = state.next();
        state.streams.insert(stream, Vec::new());
        Ok(stream)
    }

    fn end_stream(&self, stream: Stream) {
        let mut state = self.state.lock();
        let left = state.streams.remove(&stream);
        state.torn += usize::from(left.is_some_and(|work| !work.is_empty()));
    }

    fn drain(&self, stream: Stream) -> Result<(), DoorError> {
        loop {
            let mut state = self.state.lock();
            state.charge("cuStreamSynchronize")?;
            if !state.is_held() {
                return state.run(stream, usize::MAX);
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    fn event(&self) -> Result<Event, DoorError> {
        let mut state = self.state.lock();
        state.charge("cuEventCreate")?;
        let event = state.next();
        state.events.insert(event);
        Ok(event)
    }

    fn end_event(&self, event: Event) {
        let mut state = self.state.lock();
        state.events.remove(&event);
        state.recorded.remove(&event);
        state.asked.remove(&event);
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        state.charge("cuEventRecord")?;
        let before = state.streams.get(&stream).map_or(0, Vec::len);
        state.recorded.insert(event, (stream, before));
        state.asked.remove(&event);
        Ok(())
    }

    fn is_done(&self, event: Event) -> Result<bool, DoorError> {
        let mut state = self.state.lock();
        let spoils = matches!(state.failing, Failing::Spoiling(0));
        let charged = state.charge("cuEventQuery");
        if spoils {
            state.spoil(event);
        }
        charged?;
        let delay = state.delay;
        let asked = state.asked.entry(event).or_insert(0);
        *asked += 1;
        if *asked <= delay || state.is_held() {
            return Ok(false);
        }
        if let Some((stream, before)) = state.recorded.get(&event).copied() {
            state.run(stream, before)?;
        }
        Ok(true)
    }

    fn copy(&self, way: Way, spans: &[Span], stream: Stream) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        state.charge("cuMemcpyBatchAsync")?;
        state.copy_calls += 1;
        let is_right = |span: &Span| {
            state.is_pinned(span.host as u64, span.len, way == Way::Out) && state.owns(span.device, span.len)
        };
        if !spans.iter().all(is_right) {
            state.has_failed = true;
            return Err(failed("cuMemcpyBatchAsync", "CUDA_ERROR_INVALID_VALUE (1)"));
        }
        let work = spans.iter().map(|span| match way {
            Way::In => Work::Copy(span.device, span.host as u64, span.len),
            Way::Out => Work::Copy(span.host as u64, span.device, span.len),
        });
        state.streams.entry(stream).or_default().extend(work);
        Ok(())
    }

    fn has_kernel(&self) -> bool {
        !self.state.lock().has_no_kernel
    }

    fn gather(&self, table: u64, count: usize, len: usize, stream: Stream) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        state.charge(LAUNCH)?;
        state.copy_calls += 1;
        if state.has_no_kernel || state.launches_fail {
            state.has_failed = true;
            return Err(failed(LAUNCH, "CUDA_ERROR_NO_BINARY_FOR_GPU (209)"));
        }
        state.streams.entry(stream).or_default().push(Work::Gather(table, count, len));
        Ok(())
    }
}
