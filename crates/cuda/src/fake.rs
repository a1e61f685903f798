//! A driver without a GPU, for tests: its memory is this process's, its copies happen when they are asked after, and it fails
//! when it is told to.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use crate::driver::{Driver, Event, Place, Stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use tidepool_transfer::door::{DoorError, Span, Way};

/// A driver that does as told.
#[derive(Debug, Default)]
pub struct Fake {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Memory of the pretended GPU, by address.
    memory: BTreeMap<u64, Vec<u8>>,
    /// Pinned memory, by address.
    pinned: BTreeMap<usize, usize>,
    streams: HashMap<Stream, Vec<Work>>,
    /// The work in front of each event.
    events: HashMap<Event, (Stream, usize)>,
    /// Questions after events that are still to be answered with "not yet", each.
    delay: u32,
    asked: HashMap<Event, u32>,
    /// Calls from now on that succeed; `None` for all of them.
    budget: Option<u32>,
    refuses_pins: bool,
    copied: u64,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Copy(u64, u64, usize),
    Gather(u64, usize, usize),
}

impl Fake {
    /// Answers this many questions after an event with "not yet", and does the work only then.
    pub fn delay(&self, questions: u32) {
        self.state.lock().delay = questions;
    }

    /// Fails every copy after the next `calls`, as a driver does whose GPU is lost.
    pub fn fail_after(&self, calls: u32) {
        self.state.lock().budget = Some(calls);
    }

    /// Works again.
    pub fn recover(&self) {
        self.state.lock().budget = None;
    }

    /// Refuses to pin memory.
    pub fn refuse_pins(&self) {
        self.state.lock().refuses_pins = true;
    }

    /// Ranges that are pinned.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.state.lock().pinned.len()
    }

    /// Bytes that were copied so far.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.state.lock().copied
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn charge(&mut self, call: &'static str) -> Result<(), DoorError> {
        match &mut self.budget {
            Some(0) => Err(failed(call)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn is_pinned(&self, address: u64, len: usize) -> bool {
        let before = self.pinned.range(..=address as usize).next_back();
        before.is_some_and(|(start, size)| address as usize + len <= start + size)
    }

    fn owns(&self, address: u64, len: usize) -> bool {
        let before = self.memory.range(..=address).next_back();
        before.is_some_and(|(start, bytes)| address + len as u64 <= start + bytes.len() as u64)
    }

    /// Does what is in front of an event.
    fn run(&mut self, stream: Stream, count: usize) {
        let work: Vec<Work> =
            self.streams.get_mut(&stream).map_or_else(Vec::new, |work| work.drain(..count.min(work.len())).collect());
        for work in work {
            match work {
                Work::Copy(to, from, len) => self.copy(to, from, len),
                Work::Gather(table, count, len) => {
                    for index in 0..count {
                        // SAFETY: the table lies in memory of this driver's, and was copied there before.
                        let place = unsafe { *((table as *const Place).add(index)) };
                        self.copy(place.to, place.from, len);
                    }
                }
            }
        }
        // What other events of the stream wait for has moved up.
        for (event_stream, before) in self.events.values_mut() {
            if *event_stream == stream {
                *before = before.saturating_sub(count);
            }
        }
    }

    fn copy(&mut self, to: u64, from: u64, len: usize) {
        let end =
            |address| if self.owns(address, len) { Some(true) } else { self.is_pinned(address, len).then_some(false) };
        assert!(end(to).is_some() && end(from).is_some(), "a copy between memory that the driver does not know");
        self.copied += len as u64;
        // SAFETY: both ranges are pinned memory of this process or this driver's own.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
    }
}

fn failed(call: &'static str) -> DoorError {
    DoorError { call, reason: "CUDA_ERROR_LAUNCH_FAILED (719)".to_owned() }
}

impl Driver for Fake {
    fn register(&self, start: usize, len: usize, _writable: bool) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        if state.refuses_pins {
            return Err(DoorError { call: "cuMemHostRegister", reason: "CUDA_ERROR_OUT_OF_MEMORY (2)".to_owned() });
        }
        state.pinned.insert(start, len);
        Ok(())
    }

    fn unregister(&self, start: usize) {
        self.state.lock().pinned.remove(&start);
    }

    fn allocate(&self, len: usize) -> Result<u64, DoorError> {
        let bytes = vec![0u8; len];
        let address = bytes.as_ptr() as u64;
        self.state.lock().memory.insert(address, bytes);
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
        let stream = state.next();
        state.streams.insert(stream, Vec::new());
        Ok(stream)
    }

    fn end_stream(&self, stream: Stream) {
        self.state.lock().streams.remove(&stream);
    }

    fn event(&self) -> Result<Event, DoorError> {
        Ok(self.state.lock().next())
    }

    fn end_event(&self, event: Event) {
        self.state.lock().events.remove(&event);
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        let before = state.streams.get(&stream).map_or(0, Vec::len);
        state.events.insert(event, (stream, before));
        state.asked.remove(&event);
        Ok(())
    }

    fn is_done(&self, event: Event) -> Result<bool, DoorError> {
        let mut state = self.state.lock();
        if state.budget == Some(0) {
            return Err(failed("cuEventQuery"));
        }
        let delay = state.delay;
        let asked = state.asked.entry(event).or_insert(0);
        *asked += 1;
        if *asked <= delay {
            return Ok(false);
        }
        if let Some((stream, before)) = state.events.get(&event).copied() {
            state.run(stream, before);
        }
        Ok(true)
    }

    fn copy(&self, way: Way, spans: &[Span], stream: Stream) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        state.charge("cuMemcpyBatchAsync")?;
        let work = spans.iter().map(|span| match way {
            Way::In => Work::Copy(span.device, span.host as u64, span.len),
            Way::Out => Work::Copy(span.host as u64, span.device, span.len),
        });
        state.streams.entry(stream).or_default().extend(work);
        Ok(())
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn gather(&self, table: u64, count: usize, len: usize, stream: Stream) -> Result<(), DoorError> {
        let mut state = self.state.lock();
        state.charge("cuLaunchKernel")?;
        state.streams.entry(stream).or_default().push(Work::Gather(table, count, len));
        Ok(())
    }
}
