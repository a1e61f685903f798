//! Decoded blocks: blocks that engines filled while they decoded answers.
//!
//! An engine saves a block as soon as it is full, whether a prompt or an answer filled it. A trace names only the
//! blocks of inputs, so an answer's blocks are known once the session's next request goes on where the answer ended.
//! They were used after the prompt before them, so an order of last use keeps them at least as long as that prompt:
//! they count as held while it is held. Policies hear of them with that next request.

use crate::Blocks;
use std::collections::HashMap;
use std::ops::Range;
use tidepool_trace::{BlockHash, Request, SessionId};

/// Sessions of one generation; two are remembered, and the older one is forgotten as a whole.
const MOST_REMEMBERED: usize = 1 << 19;

/// The last answer of every session.
#[derive(Debug, Default)]
pub struct Decoded {
    young: HashMap<SessionId, Answered>,
    old: HashMap<SessionId, Answered>,
}

/// Blocks of a request that an engine made before the request came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The engine that has made them.
    pub engine: u32,
    /// The indices of these blocks in the request.
    pub blocks: Range<usize>,
}

impl Made {
    /// Extends a run of blocks from the request's start by the blocks made, where they follow it.
    #[must_use]
    pub fn reached_from(&self, Blocks(run): Blocks) -> Blocks {
        Blocks(if self.blocks.contains(&(run as usize)) { self.blocks.end as u64 } else { run })
    }
}

/// A request and its answer.
#[derive(Debug)]
struct Answered {
    engine: u32,
    /// Tokens of the request and its answer.
    tokens: u64,
    /// Number of full blocks of the input, and the last of them.
    prompt: usize,
    last: Option<BlockHash>,
    /// Number of full blocks of input and answer.
    full: usize,
}

impl Decoded {
    /// Notes that an engine answered a request, with blocks of `block_tokens` tokens. Returns the number of blocks that
    /// the answer filled.
    pub fn answered(&mut self, request: &Request, engine: u32, block_tokens: u32) -> u64 {
        let (input, block) = (u64::from(request.input_tokens), u64::from(block_tokens.max(1)));
        let tokens = input + u64::from(request.output_tokens);
        // The last token was sampled and not computed, so it is in no block.
        let full = (tokens.saturating_sub(1) / block).max(input / block) as usize;
        let prompt = ((input / block) as usize).min(request.blocks.len());
        let last = prompt.checked_sub(1).map(|at| request.blocks[at]);
        if let Some(origin) = request.origin.filter(|origin| !origin.last) {
            if self.young.len() >= MOST_REMEMBERED {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(origin.session, Answered { engine, tokens, prompt, last, full });
        }
        (full - prompt.min(full)) as u64
    }

    /// The blocks of a request that the answer before it filled.
    pub fn before(&mut self, request: &Request) -> Option<Made> {
        let session = request.origin?.session;
        let before = self.young.remove(&session).or_else(|| self.old.remove(&session))?;
        let goes_on = u64::from(request.input_tokens) >= before.tokens
            && before.prompt.checked_sub(1).map(|at| request.blocks.get(at).copied()) == before.last.map(Some);
        let blocks = before.prompt..before.full.min(request.blocks.len());
        (goes_on && !blocks.is_empty()).then_some(Made { engine: before.engine, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_trace::{Millis, Origin};

    fn request(input_tokens: u32, first: u64, last: bool) -> Request {
        let origin = Origin { session: SessionId(1), parent: None, turn: 0, pause: Millis(0), calls: None, last };
        let blocks = (first..).take(input_tokens.div_ceil(16) as usize).map(BlockHash).collect();
        Request { at: Millis(0), input_tokens, output_tokens: 30, blocks, origin: Some(origin) }
    }

    /// The indices of the blocks that a request gets from the answer before it.
    fn after(before: &Request, next: &Request) -> Option<Range<usize>> {
        let mut decoded = Decoded::default();
        decoded.answered(before, 7, 16);
        decoded.before(next).map(|made| {
            assert_eq!(made.engine, 7);
            made.blocks
        })
    }

    #[test]
    fn an_answer_fills_the_blocks_behind_its_prompt() {
        // 70 tokens, of which the last was sampled and not computed: blocks 2 and 3 of 16 tokens, and 5 tokens of the next.
        assert_eq!(after(&request(40, 0, false), &request(100, 0, false)), Some(2..4));
        assert_eq!(after(&request(48, 0, false), &request(100, 0, false)), Some(3..4));
        let unnamed = Request { origin: None, ..request(40, 0, false) };
        assert_eq!(after(&unnamed, &unnamed), None);
    }

    #[test]
    fn a_run_goes_on_through_what_was_made_and_not_past_a_gap() {
        let made = Made { engine: 0, blocks: 2..5 };
        assert_eq!([0, 1, 2, 4, 5, 9].map(|run| made.reached_from(Blocks(run)).0), [0, 1, 5, 5, 5, 9]);
    }

    #[test]
    fn what_does_not_go_on_where_the_answer_ended_has_none_of_it() {
        assert_eq!(after(&request(40, 0, false), &request(40, 0, false)), None, "a retry");
        assert_eq!(after(&request(40, 0, false), &request(100, 50, false)), None, "another prefix");
        assert_eq!(after(&request(40, 0, true), &request(100, 0, false)), None, "it had ended");
    }
}
