//! Traces made of other traces, one request at a time.
//!
//! Each adapter takes and gives requests that may have failed to be read, and passes failures on.

use crate::{BlockHash, LATEST, Millis, Request, SessionId, TraceError};
use tidepool_types::mix;

/// The requests of a trace between two times, counted from the first of these.
pub struct Slice<I> {
    requests: I,
    from: Millis,
    until: Millis,
}

impl<I> Slice<I> {
    /// Takes the requests that arrive at `from` or later and before `until`.
    pub const fn new(requests: I, from: Millis, until: Millis) -> Self {
        Self { requests, from, until }
    }
}

impl<E, I: Iterator<Item = Result<Request, E>>> Iterator for Slice<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        loop {
            match self.requests.next()? {
                // Times never go back, so no later request belongs to the slice.
                Ok(request) if request.at >= self.until => return None,
                Ok(request) if request.at < self.from => {}
                Ok(request) => return Some(Ok(Request { at: Millis(request.at.0 - self.from.0), ..request })),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// A trace at another pace, tool pauses included.
pub struct Scale<I> {
    requests: I,
    factor: f64,
    taken: u64,
}

impl<I> Scale<I> {
    /// Multiplies all times by `factor`: 0.5 is twice the load. A time that becomes later than [`LATEST`] ends the trace.
    pub const fn new(requests: I, factor: f64) -> Self {
        Self { requests, factor, taken: 0 }
    }

    fn scaled(&self, time: Millis) -> Result<Millis, TraceError> {
        let scaled = (time.0 as f64 * self.factor).round();
        if scaled <= LATEST.0 as f64 {
            return Ok(Millis(scaled as u64));
        }
        Err(TraceError::TooLate { request: self.taken, time, factor: self.factor })
    }

    fn scale(&self, mut request: Request) -> Result<Request, TraceError> {
        request.at = self.scaled(request.at)?;
        if let Some(origin) = &mut request.origin {
            origin.pause = self.scaled(origin.pause)?;
        }
        Ok(request)
    }
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Iterator for Scale<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let request = self.requests.next()?;
        self.taken += 1;
        Some(request.and_then(|request| self.scale(request)))
    }
}

/// Several traces as one, in the order of their times. Requests of the same time come in the order of the traces.
pub struct Merge<I: Iterator> {
    traces: Vec<I>,
    heads: Vec<Option<I::Item>>,
    shared: bool,
}

impl<E, I: Iterator<Item = Result<Request, E>>> Merge<I> {
    /// Merges `traces`. If `shared`, equal hashes and sessions in two traces are the same. If not, each trace keeps its
    /// blocks and sessions to itself, under other names.
    pub fn new(mut traces: Vec<I>, shared: bool) -> Self {
        let heads = traces.iter_mut().map(Iterator::next).collect();
        Self { traces, heads, shared }
    }
}

impl<E, I: Iterator<Item = Result<Request, E>>> Iterator for Merge<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        // An error comes first, so that it is not lost behind other traces' requests.
        let time = |head: &Option<I::Item>| Some(head.as_ref()?.as_ref().map_or(Millis(0), |request| request.at));
        let times = self.heads.iter().enumerate().filter_map(|(trace, head)| Some((time(head)?, trace)));
        let (_, trace) = times.min()?;
        let next = std::mem::replace(&mut self.heads[trace], self.traces[trace].next())?;
        Some(next.map(|request| if self.shared { request } else { renamed(request, trace as u64) }))
    }
}

/// The request with names that no other trace has. Those of the first trace stay as they are.
fn renamed(mut request: Request, trace: u64) -> Request {
    // Mixing keeps names apart within the trace and spreads them over all bits, so that small names, which every trace
    // has, do not meet.
    let own = mix(trace.wrapping_mul(FACTOR));
    let name = |name: u64| if trace == 0 { name } else { mix(name ^ own) };
    request.blocks.iter_mut().for_each(|block| *block = BlockHash(name(block.0)));
    if let Some(origin) = &mut request.origin {
        origin.session = SessionId(name(origin.session.0));
        origin.parent = origin.parent.map(|parent| SessionId(name(parent.0)));
    }
    request
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    fn request(at: u64, block: u64) -> Result<Request, TraceError> {
        let origin =
            Origin { session: SessionId(block), parent: None, turn: 0, pause: Millis(100), calls: None, last: false };
        let blocks = vec![BlockHash(block)];
        Ok(Request { at: Millis(at), input_tokens: 1, output_tokens: 1, blocks, origin: Some(origin) })
    }

    fn trace(times: &[u64]) -> std::vec::IntoIter<Result<Request, TraceError>> {
        times.iter().map(|at| request(*at, *at)).collect::<Vec<_>>().into_iter()
    }

    fn times(requests: impl Iterator<Item = Result<Request, TraceError>>) -> Vec<u64> {
        requests.map(|request| request.unwrap().at.0).collect()
    }

    #[test]
    fn a_slice_starts_at_zero_and_ends_before_its_end() {
        assert_eq!(times(Slice::new(trace(&[0, 5, 10, 19, 20, 30]), Millis(5), Millis(20))), [0, 5, 14]);
    }

    #[test]
    fn scaling_scales_pauses_too() {
        let trace = trace(&[0, 10, 15]);
        let scaled: Vec<_> = Scale::new(trace, 0.5).flatten().collect();
        assert_eq!(scaled.iter().map(|request| request.at.0).collect::<Vec<_>>(), [0, 5, 8]);
        assert!(scaled.iter().all(|request| request.origin.is_some_and(|origin| origin.pause == Millis(50))));
    }

    /// Such times were cut to the latest there is, and requests that came hours apart came at once.
    #[test]
    fn a_time_that_would_be_too_late_is_an_error_that_names_the_request_and_the_factor() {
        let mut scaled = Scale::new(trace(&[0, LATEST.0 / 2, LATEST.0]), 2.0);
        assert_eq!(scaled.next().unwrap().unwrap().at, Millis(0));
        assert_eq!(scaled.next().unwrap().unwrap().at, LATEST);
        let error = scaled.next().unwrap().unwrap_err().to_string();
        assert_eq!(
            error,
            "request 3: 9007199254740992 ms times 2 is later than 2^53 ms, the latest that a trace can have"
        );
    }

    /// Block 2 of a second trace became block 1, which the first has too: merged traces had hits that neither had.
    #[test]
    fn small_names_of_several_traces_do_not_meet() {
        let numbers: Vec<u64> = (0..2000).collect();
        let merged = Merge::new((0..5).map(|_| trace(&numbers)).collect(), false);
        let (mut blocks, mut sessions) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        for request in merged.flatten() {
            blocks.extend(request.blocks);
            sessions.extend(request.origin.map(|origin| origin.session));
        }
        assert_eq!((blocks.len(), sessions.len()), (10_000, 10_000));
    }

    #[test]
    fn merged_traces_are_in_order_and_share_blocks_only_if_told() {
        let merged = |shared| Merge::new(vec![trace(&[0, 5, 9]), trace(&[5, 6, 9])], shared);
        assert_eq!(times(merged(true)), [0, 5, 5, 6, 9, 9]);
        let distinct = |shared| {
            let blocks: std::collections::BTreeSet<_> = merged(shared).flatten().flat_map(|r| r.blocks).collect();
            blocks.len()
        };
        assert_eq!((distinct(true), distinct(false)), (4, 6));
    }
}
