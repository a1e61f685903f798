//! How the runs of a message lie in its tail.

use crate::codec::{Codec, Reader};
use crate::frame::FrameError;
use crate::message::Run;
use tidepool_types::{Millis, Origin, SessionId, ToolId};

/// What is known of a run's origin, a bit each.
mod known {
    pub(super) const SESSION: u8 = 1;
    pub(super) const PARENT: u8 = 2;
    pub(super) const TOOL: u8 = 4;
    pub(super) const LAST: u8 = 8;
    pub(super) const ALL: u8 = SESSION | PARENT | TOOL | LAST;
}

/// Bytes of an origin behind the bits that say what is known: session, parent, turn, pause, tool.
const ORIGIN_LEN: usize = 8 + 8 + 4 + 8 + 4;

impl Codec for Run {
    const MIN_LEN: usize = 4 + 4 + 1 + ORIGIN_LEN;

    fn put(&self, out: &mut Vec<u8>) {
        self.items.put(out);
        self.depth.put(out);
        match &self.origin {
            Some(origin) => put_origin(origin, out),
            None => out.resize(out.len() + 1 + ORIGIN_LEN, 0),
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (items, depth, bits) = (u32::take(reader)?, u32::take(reader)?, u8::take(reader)?);
        let origin = match bits {
            0 => reader.padding(ORIGIN_LEN).map(|()| None)?,
            bits if bits & known::SESSION == 0 || bits > known::ALL => {
                return Err(FrameError::Tag { what: "what is known of a run", value: bits });
            }
            bits => Some(take_origin(bits, reader)?),
        };
        match items {
            0 => Err(FrameError::EmptyRun),
            items => Ok(Self { items, depth, origin }),
        }
    }
}

fn put_origin(origin: &Origin, out: &mut Vec<u8>) {
    let bit = |is_known: bool, bit: u8| if is_known { bit } else { 0 };
    let (parent, tool) = (origin.parent.map(|parent| parent.0), origin.calls.map(|tool| tool.0));
    out.push(
        known::SESSION
            | bit(parent.is_some(), known::PARENT)
            | bit(tool.is_some(), known::TOOL)
            | bit(origin.last, known::LAST),
    );
    origin.session.0.put(out);
    parent.unwrap_or_default().put(out);
    origin.turn.put(out);
    origin.pause.0.put(out);
    tool.unwrap_or_default().put(out);
}

fn take_origin(bits: u8, reader: &mut Reader<'_>) -> Result<Origin, FrameError> {
    Ok(Origin {
        session: SessionId(u64::take(reader)?),
        parent: take_known(bits & known::PARENT != 0, reader)?.map(SessionId),
        turn: u32::take(reader)?,
        pause: Millis(u64::take(reader)?),
        calls: take_known(bits & known::TOOL != 0, reader)?.map(ToolId),
        last: bits & known::LAST != 0,
    })
}

/// A value, or zero bytes in its place.
fn take_known<T: Codec>(is_known: bool, reader: &mut Reader<'_>) -> Result<Option<T>, FrameError> {
    match is_known {
        true => T::take(reader).map(Some),
        false => reader.padding(T::MIN_LEN).map(|()| None),
    }
}

/// Checks that runs, if there are any, cover each of so many items once.
pub(super) fn check_runs(runs: &[Run], items: usize) -> Result<(), FrameError> {
    match runs.iter().map(|run| u64::from(run.items)).sum() {
        _ if runs.is_empty() => Ok(()),
        covered if covered == items as u64 => Ok(()),
        covered => Err(FrameError::Runs { covered, items }),
    }
}
