//! Moves blocks between the pool and a device's memory.
//!
//! Blocks that a node of this host holds, or takes, are copied by the device itself, straight from and to the node's
//! pinned memory. Other blocks (of other hosts, or of nodes whose memory cannot be pinned) go through pinned memory of
//! this process. One half of it is on the network while the other half is on the bus, so that both together take as
//! long as the slower.
#![expect(unsafe_code, reason = "a device's memory is known by address")]

use super::flights::in_turns;
use super::guarded::Guarded;
use super::staging::{Half, Lent, Stagings};
use super::{GoOn, Mover, Placed, cut, is_each_once};
use crate::layout::{Layout, LayoutError};
use std::sync::Arc;
use tidepool_client::door::{DevicePiece, Door, DoorError, Flight, Span, Way};
use tidepool_client::{Client, DeviceParts, GetInto, GetToDevice, Parts, PutError, PutItem, PutOptions, Stored};

/// Bytes of a flight: milliseconds of the bus, long against the pause between flights.
const FLIGHT: usize = 128 << 20;

type Answer = Result<Stored, PutError>;
/// The answer for a block that no node of this host could take from the device.
const NOT_STRAIGHT: Answer = Err(PutError::NotFromDevice);

/// A mover for blocks in a device's memory.
#[derive(Debug)]
pub struct DeviceMover {
    door: Arc<Guarded>,
    /// Staging memory for loads and for saves.
    staging: [Stagings; 2],
    /// Bytes of a flight.
    flight: usize,
}

impl DeviceMover {
    /// A mover for blocks of `layout`, whose pieces must be the device's.
    ///
    /// # Safety
    /// Every piece of every block must stay memory of the door's device until the mover is dropped. While a job that
    /// names a block is under way, only that job may touch the block.
    pub unsafe fn new(layout: Layout, door: Arc<dyn Door>) -> Result<Self, LayoutError> {
        let mover = Self { door: Arc::new(Guarded { door, layout }), staging: Default::default(), flight: FLIGHT };
        mover.door.check().map(|()| mover)
    }

    /// Sets the size of flights: about `bytes`, and at least one block.
    #[must_use]
    pub fn with_flights_of(self, bytes: usize) -> Self {
        Self { flight: bytes, ..self }
    }

    fn layout(&self) -> &Layout {
        &self.door.layout
    }

    /// Checks the memory before a batch, so that a batch without memory does not wait; each flight checks again.
    fn is_there(&self) -> bool {
        self.door.check().inspect_err(|error| tracing::warn!(%error, "blocks are not moved")).is_ok()
    }

    /// Whether the layout has every block.
    fn has_all(&self, batch: &[Placed<'_>]) -> bool {
        batch.iter().all(|placed| self.layout().pieces(placed.group, placed.block).is_some())
    }

    fn pieces(&self, placed: &Placed<'_>) -> Option<Vec<DevicePiece>> {
        let piece = |(address, len)| DevicePiece { address: address as u64, len };
        Some(self.layout().pieces(placed.group, placed.block)?.map(piece).collect())
    }

    /// Staging memory for one way.
    fn staging(&self, way: Way) -> Result<Lent<'_>, DoorError> {
        self.staging[way as usize].take(&*self.door, self.layout().longest_block())
    }

    /// Cuts blocks into runs that fit into a half of `room` bytes.
    fn runs<'a, 'b, 'c>(&self, blocks: &'a [&'b Placed<'c>], room: usize) -> Vec<&'a [&'b Placed<'c>]> {
        cut(blocks, room, |placed| self.layout().block_len(placed.group)).collect()
    }

    fn flights<'a, 'b>(&self, blocks: &'a [Placed<'b>]) -> Vec<&'a [Placed<'b>]> {
        cut(blocks, self.flight, |placed| self.layout().block_len(placed.group)).collect()
    }

    /// The spans between blocks laid end to end in a half and their pieces on the device.
    fn spans(&self, half: &mut Half, blocks: &[&Placed<'_>]) -> Vec<Span> {
        let mut at = half.bytes_mut().as_mut_ptr();
        let pieces = blocks.iter().filter_map(|placed| self.pieces(placed)).flatten();
        pieces
            .map(|DevicePiece { address, len }| {
                let span = Span { host: at, device: address, len };
                at = at.wrapping_add(len);
                span
            })
            .collect()
    }

    /// Loads blocks that nodes of this host hold, straight from their memory. Ends with the first flight that lacks a
    /// block.
    fn load_straight(&self, client: &Client, blocks: &[Placed<'_>], go_on: GoOn<'_>) -> Vec<bool> {
        let fly = |blocks: &[Placed<'_>]| {
            let items = blocks.iter().filter_map(|placed| {
                Some(GetToDevice { key: placed.key, into: self.pieces(placed)?, depth: placed.depth })
            });
            let (items, door) = (items.collect(), Arc::clone(&self.door) as Arc<dyn Door>);
            // SAFETY: each block is named once in this batch (see `load`), the engine gives a block to one job at a time, and
            // they are the device's by the promise made to `new`.
            unsafe { client.get_batch_to_device(&door, items) }
        };
        in_turns(&self.flights(blocks), go_on, fly, |there| *there)
    }

    /// Stores blocks on nodes of this host, straight into their memory. Ends with the first flight that is not stored
    /// whole.
    fn save_straight(
        &self,
        client: &Client,
        blocks: &[Placed<'_>],
        options: &PutOptions,
        go_on: GoOn<'_>,
    ) -> Vec<Answer> {
        let fly = |blocks: &[Placed<'_>]| {
            let items = blocks.iter().filter_map(|placed| {
                // SAFETY: the engine leaves the blocks of a job alone, and they are the device's by the promise made to `new`.
                let parts = unsafe { DeviceParts::new(&*self.door, self.pieces(placed)?) };
                Some(PutItem::new(placed.key, Parts::Device(parts)).at_depth(placed.depth))
            });
            let items: Vec<_> = items.collect();
            client.put_batch(&items, options)
        };
        in_turns(&self.flights(blocks), go_on, fly, Result::is_ok)
    }

    /// Loads the blocks that are not `there`, through staging memory.
    fn load_left(&self, client: &Client, blocks: &[Placed<'_>], there: &mut [bool], go_on: GoOn<'_>) {
        let left: Vec<_> = blocks.iter().zip(&*there).filter(|(_, there)| !**there).map(|(placed, _)| placed).collect();
        if left.is_empty() || !go_on() {
            return;
        }
        match self.load_staged(client, &left, go_on) {
            Ok(staged) => {
                let places = there.iter_mut().filter(|there| !**there);
                places.zip(staged).for_each(|(place, is_there)| *place = is_there);
            }
            Err(error) => tracing::warn!(%error, "blocks could not be copied to the device"),
        }
    }

    /// Stores the blocks that no node of this host could take from the device, through staging memory.
    fn save_left(
        &self,
        client: &Client,
        blocks: &[Placed<'_>],
        answers: &mut [Answer],
        options: &PutOptions,
        go_on: GoOn<'_>,
    ) {
        let is_left = |answer: &Answer| *answer == NOT_STRAIGHT;
        let left: Vec<_> =
            blocks.iter().zip(&*answers).filter(|(_, of)| is_left(of)).map(|(placed, _)| placed).collect();
        if left.is_empty() || !go_on() {
            return;
        }
        match self.save_staged(client, &left, options, go_on) {
            Ok(staged) => {
                let places = answers.iter_mut().filter(|answer| is_left(answer));
                places.zip(staged).for_each(|(place, answer)| *place = answer);
            }
            Err(error) => tracing::warn!(%error, "blocks could not be copied from the device"),
        }
    }

    /// Loads blocks through staging memory. Returns which of them are there.
    fn load_staged(&self, client: &Client, blocks: &[&Placed<'_>], go_on: GoOn<'_>) -> Result<Vec<bool>, DoorError> {
        let mut staging = self.staging(Way::In)?;
        let mut there = Vec::with_capacity(blocks.len());
        let mut flight: Option<Box<dyn Flight>> = None;
        let runs = self.runs(blocks, staging.halves[0].len());
        for (turn, run) in runs.into_iter().enumerate().take_while(|_| go_on()) {
            let half = &mut staging.halves[turn % 2];
            let got = self.fetch(client, run, half.bytes_mut());
            // The engine computes everything from the first missing block on.
            let count = got.iter().take_while(|got| **got).count();
            let spans = self.spans(half, &run[..count]);
            flight.take().map_or(Ok(()), Flight::land)?;
            // SAFETY: the half is this call's until the flight has landed, which it does before the half is used again, and
            // before the staging memory is given back; the device's blocks are this job's.
            flight = Some(unsafe { self.door.begin(Way::In, &spans)? });
            there.resize(there.len() + count, true);
            if count < run.len() {
                break;
            }
        }
        flight.take().map_or(Ok(()), Flight::land)?;
        there.resize(blocks.len(), false);
        Ok(there)
    }

    /// Reads blocks into memory, end to end.
    fn fetch(&self, client: &Client, blocks: &[&Placed<'_>], mut room: &mut [u8]) -> Vec<bool> {
        let mut items = Vec::with_capacity(blocks.len());
        for placed in blocks {
            let (into, rest) = std::mem::take(&mut room).split_at_mut(self.layout().block_len(placed.group));
            items.push(GetInto::new(placed.key, into).at_depth(placed.depth));
            room = rest;
        }
        let is_whole = |(answer, placed): (Result<Option<usize>, _>, &&Placed<'_>)| {
            answer.is_ok_and(|len| len == Some(self.layout().block_len(placed.group)))
        };
        client.get_batch_into(&mut items).into_iter().zip(blocks).map(is_whole).collect()
    }

    /// Stores blocks through staging memory. Ends with the first part that the pool does not take whole.
    fn save_staged(
        &self,
        client: &Client,
        blocks: &[&Placed<'_>],
        options: &PutOptions,
        go_on: GoOn<'_>,
    ) -> Result<Vec<Answer>, DoorError> {
        let mut staging = self.staging(Way::Out)?;
        let mut answers = Vec::with_capacity(blocks.len());
        let mut refused = None;
        let runs = self.runs(blocks, staging.halves[0].len());
        // A half is free when it is filled again: the put of the run before last is over.
        let mut flight: Option<Box<dyn Flight>> = None;
        for turn in 0..=runs.len() {
            flight.take().map_or(Ok(()), Flight::land)?;
            if refused.is_some() || !go_on() {
                break;
            }
            if let Some(next) = runs.get(turn) {
                let spans = self.spans(&mut staging.halves[turn % 2], next);
                // SAFETY: as in `load_staged`.
                flight = Some(unsafe { self.door.begin(Way::Out, &spans)? });
            }
            if let Some(landed) = turn.checked_sub(1) {
                let stored = self.put(client, runs[landed], staging.halves[landed % 2].bytes(), options);
                refused = stored.iter().find_map(|answer| answer.as_ref().err().cloned());
                answers.extend(stored);
            }
        }
        answers.resize(blocks.len(), Err(refused.unwrap_or(PutError::Timeout)));
        Ok(answers)
    }

    /// Stores blocks that lie end to end in memory.
    fn put(&self, client: &Client, blocks: &[&Placed<'_>], mut bytes: &[u8], options: &PutOptions) -> Vec<Answer> {
        let mut items = Vec::with_capacity(blocks.len());
        for placed in blocks {
            let (data, rest) = bytes.split_at(self.layout().block_len(placed.group));
            items.push(PutItem::new(placed.key, data).at_depth(placed.depth));
            bytes = rest;
        }
        client.put_batch(&items, options)
    }
}

impl Mover for DeviceMover {
    fn block_len(&self, group: usize) -> usize {
        self.layout().block_len(group)
    }

    /// A whole job: each end of a batch would leave the bus idle.
    fn batch_bytes(&self) -> usize {
        usize::MAX
    }

    fn save(&self, client: &Client, batch: &[Placed<'_>], options: &PutOptions, go_on: GoOn<'_>) -> Vec<Answer> {
        if !self.has_all(batch) || !self.is_there() {
            return vec![NOT_STRAIGHT; batch.len()];
        }
        let (mut answers, mut goes_straight) = (Vec::with_capacity(batch.len()), true);
        while answers.len() < batch.len() && answers.iter().all(Result::is_ok) && go_on() {
            let rest = &batch[answers.len()..];
            let mut flown = match goes_straight {
                true => self.save_straight(client, rest, options, go_on),
                false => vec![NOT_STRAIGHT; rest.len()],
            };
            // A node that takes no block is not asked again: it may try to make room for the whole deadline each time.
            goes_straight = flown.iter().any(Result::is_ok);
            self.save_left(client, rest, &mut flown, options, go_on);
            answers.append(&mut flown);
        }
        answers.resize(batch.len(), Err(PutError::Timeout));
        answers
    }

    fn load(&self, client: &Client, batch: &[Placed<'_>], go_on: GoOn<'_>) -> Vec<bool> {
        if !self.has_all(batch) || !is_each_once(batch) || !self.is_there() {
            return vec![false; batch.len()];
        }
        let mut there = Vec::with_capacity(batch.len());
        // The engine computes everything from the first missing block on.
        while there.len() < batch.len() && there.iter().all(|there| *there) && go_on() {
            let rest = &batch[there.len()..];
            let mut flown = self.load_straight(client, rest, go_on);
            self.load_left(client, rest, &mut flown, go_on);
            there.append(&mut flown);
        }
        there.resize(batch.len(), false);
        there
    }
}
