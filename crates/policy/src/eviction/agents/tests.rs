//! The promises of the policy for agents. It learns its order, so these are the cases that it is made for.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tidepool_types::{Millis, Origin, SessionId, ToolId};

const QUICK: Option<u32> = Some(0);
const SLOW: Option<u32> = Some(1);

/// A pool of slots that are named after their blocks.
#[derive(Default)]
struct Pool {
    order: Agents,
    held: BTreeSet<u32>,
    asked: u32,
}

impl Pool {
    /// A request for `blocks`, from the first to the last.
    fn ask(&mut self, at: u64, blocks: &[u32], origin: Option<Origin>) {
        self.asked += 1;
        self.ask_part(at, (0, blocks), origin.map(|origin| Origin { turn: self.asked, ..origin }));
    }

    /// A part of a request, behind so many other blocks.
    fn ask_part(&mut self, at: u64, (before, blocks): (u32, &[u32]), origin: Option<Origin>) {
        for (depth, &block) in blocks.iter().enumerate().rev() {
            let usage = Use { at: Duration::from_millis(at), depth: before + depth as u32, origin };
            if self.held.insert(block) {
                self.order.insert(block, Tag(block.into()), &usage);
            } else {
                self.order.touch(block, &usage);
            }
        }
    }

    fn evict(&mut self, at: u64, count: usize) -> Vec<u32> {
        let victim = |_| {
            let slot = self.order.victim(Duration::from_millis(at))?;
            self.order.evict(slot);
            self.held.remove(&slot);
            Some(slot)
        };
        (0..count).map_while(victim).collect()
    }
}

fn turn(session: u64, calls: Option<u32>, last: bool) -> Option<Origin> {
    let session = SessionId(session);
    Some(Origin { session, parent: None, turn: 0, pause: Millis(0), calls: calls.map(ToolId), last })
}

fn turn_of(session: u64, number: u32) -> Option<Origin> {
    turn(session, QUICK, false).map(|origin| Origin { turn: number, ..origin })
}

/// A pool that has seen fifty sessions with a tool that takes a second, then one that takes a minute, then their ends.
fn taught() -> Pool {
    let mut pool = Pool::default();
    for session in 0..50 {
        let (start, block) = (session * 400_000, 1000 + session as u32);
        pool.ask(start, &[block], turn(session, QUICK, false));
        pool.ask(start + 1000, &[block], turn(session, SLOW, false));
        pool.ask(start + 61_000, &[block], turn(session, None, true));
    }
    pool.evict(20_000_000, 1000);
    pool
}

#[test]
fn a_conversation_goes_from_its_end() {
    let mut pool = Pool::default();
    pool.ask(0, &[1, 2, 3], None);
    assert_eq!(pool.evict(1, 3), [3, 2, 1]);
}

#[test]
fn without_experience_the_oldest_goes() {
    let mut pool = Pool::default();
    pool.ask(0, &[1], turn(1, QUICK, false));
    pool.ask(5000, &[2], None);
    pool.ask(10_000, &[3], turn(3, None, true));
    assert_eq!(pool.evict(20_000, 3), [1, 2, 3]);
}

#[test]
fn what_has_ended_goes_before_what_waits_and_the_long_wait_before_the_short() {
    let mut pool = taught();
    pool.ask(20_000_000, &[1], turn(101, QUICK, false));
    pool.ask(20_000_000, &[2], turn(102, SLOW, false));
    pool.ask(20_000_000, &[3], turn(103, None, true));
    assert_eq!(pool.evict(20_000_500, 3), [3, 2, 1]);
}

#[test]
fn a_tool_that_should_be_back_by_now_is_not_waited_for() {
    let mut pool = taught();
    pool.ask(20_000_000, &[1], turn(101, QUICK, false));
    pool.ask(20_000_000, &[2], turn(102, SLOW, false));
    assert_eq!(pool.evict(20_050_000, 2), [1, 2], "the slow one comes back in ten seconds, the quick one is overdue");
}

#[test]
fn a_prefix_that_others_use_outlives_what_stands_behind_it() {
    let mut pool = taught();
    pool.ask(20_000_000, &[1, 2], turn(101, SLOW, false));
    pool.ask(20_000_000, &[1, 3], turn(102, SLOW, false));
    let order = pool.evict(20_000_500, 3);
    assert_eq!(order[2], 1, "{order:?}");
}

#[test]
fn what_a_conversation_no_longer_sends_goes_first() {
    let mut pool = Pool::default();
    // Every turn keeps the first block only.
    let mut session = |number: u64, start: u64| {
        for turns in 0..10 {
            let block = 100 * number as u32;
            pool.ask(start + turns * 500, &[block, block + 1 + turns as u32], turn(number, QUICK, false));
        }
        pool.evict(start + 4600, 11)
    };
    (0..20).for_each(|number| drop(session(number, number * 10_000)));
    assert_eq!(session(50, 500_000)[..9], [5001, 5002, 5003, 5004, 5005, 5006, 5007, 5008, 5009]);
}

/// An engine loads the front of a request, computes the rest and saves that seconds later. Each part used to be a request of its
/// own: the front then counted as sent no longer, and went first.
#[test]
fn a_request_in_parts_is_one_request_whichever_part_comes_first() {
    let at = |turn: u32| turn_of(1, turn);
    let (front, middle, end) = ((0, &[1, 2][..]), (2, &[3, 4][..]), (4, &[5, 6][..]));
    for parts in [[front, middle, end], [front, end, middle], [end, middle, front]] {
        let mut pool = Pool::default();
        for (second, part) in parts.into_iter().enumerate() {
            pool.ask_part(1000 * second as u64, part, at(0));
        }
        assert_eq!(pool.order.conversations.len(), 1);
        assert_eq!(pool.evict(5000, 6), [6, 5, 4, 3, 2, 1], "{parts:?}");
    }
}

/// An engine with a cache of its own does not load what it has: the pool sees the saves alone.
#[test]
fn the_prefix_that_an_engine_has_itself_is_not_left_behind() {
    let mut pool = Pool::default();
    pool.ask_part(0, (0, &[1, 2, 3, 4]), turn_of(1, 0));
    pool.ask_part(9000, (3, &[14, 15]), turn_of(1, 1));
    assert_eq!(pool.evict(9500, 5), [4, 15, 14, 3, 2], "block 4 is not in the second turn");
    assert_eq!(pool.evict(9500, 1), [1]);
}

#[test]
fn unnamed_conversations_that_go_on_are_known_again_also_after_they_were_evicted() {
    let mut pool = Pool::default();
    for chat in 0..50_u32 {
        let (start, block) = (u64::from(chat) * 10_000, chat * 10);
        pool.ask(start, &[block, block + 1], None);
        pool.evict(start, 2);
        // A chat that goes on does so after a second, from then on every second.
        for turn in 1..4 {
            let end = 1 + turn;
            let blocks: Vec<_> = (block..=block + end).collect();
            pool.ask(start + 1000 * u64::from(turn), &blocks, None);
            pool.evict(start + 1000 * u64::from(turn), 9);
        }
        // Others are never heard of again.
        pool.ask(start + 5000, &[5000 + chat], None);
    }
    pool.evict(600_000, 100);
    pool.ask(600_000, &[9000, 9001], None);
    pool.ask(601_000, &[9000, 9001, 9002], None);
    pool.ask(601_000, &[9100], None);
    assert_eq!(pool.evict(601_500, 1), [9100], "the one that went on once goes on");
}

#[test]
fn where_cost_is_weighed_the_end_of_a_long_context_outlives_that_of_a_short_one() {
    for (cost_of_depth, first) in [(0.0, 5), (0.5, 11)] {
        let mut pool = Pool { order: Agents::weighing(cost_of_depth), ..Pool::default() };
        pool.ask(0, &[1, 2, 3, 4, 5], turn(1, QUICK, false));
        pool.ask(0, &[10, 11], turn(2, QUICK, false));
        assert_eq!(pool.evict(1000, 1), [first], "{cost_of_depth}");
    }
}

#[test]
fn what_is_remembered_of_conversations_is_bounded() {
    let mut pool = Pool::default();
    for session in 0..20_000 {
        pool.ask(session, &[7], turn(session, QUICK, false));
        pool.ask(session, &[8 + session as u32 % 100], None);
        pool.evict(session, 1);
    }
    assert!(pool.order.conversations.len() < 2100, "{}", pool.order.conversations.len());
}

fn requests() -> impl Strategy<Value = Vec<(u32, u32, u8, u8)>> {
    prop::collection::vec((0..6_u32, 1..5_u32, 0..6_u8, 0..8_u8), 0..120)
}

proptest! {
    /// Chains share prefixes, sessions come and go, blocks are removed and chilled: the order has exactly what is held.
    #[test]
    fn the_order_has_every_block_once(requests in requests()) {
        let mut pool = Pool::default();
        for (time, (chain, length, who, act)) in requests.into_iter().enumerate() {
            let blocks: Vec<_> = (0..length).map(|depth| if depth == 0 { 0 } else { chain * 8 + depth }).collect();
            let origin = (who < 4).then(|| turn(who.into(), (who < 2).then_some(who.into()), who == 3)).flatten();
            pool.ask(time as u64 * 100, &blocks, origin);
            match act {
                0..4 => { pool.evict(time as u64 * 100, act.into()); }
                4 => { pool.order.remove(blocks[0]); pool.held.remove(&blocks[0]); }
                5 => {
                    pool.order.chill(blocks[0]);
                    prop_assert_eq!(pool.order.victim(Duration::ZERO), Some(blocks[0]));
                }
                _ => {}
            }
            let first = pool.order.victim(Duration::from_millis(time as u64 * 100));
            let order: Vec<_> = std::iter::successors(first, |slot| pool.order.after(*slot)).take(1000).collect();
            prop_assert_eq!(order.len(), pool.held.len());
            prop_assert_eq!(&order.into_iter().collect::<BTreeSet<_>>(), &pool.held);
        }
    }
}

/// A turn of two requests that overlap went on with each part of either, milliseconds apart, which is what was learnt of the tool.
#[test]
fn a_late_part_of_an_earlier_turn_is_no_turn_of_its_own() {
    let mut conversations = Conversations::default();
    let mut ask = |number, at| {
        let id = conversations.named(&turn_of(7, number).unwrap(), at);
        conversations.turn(id)
    };
    let first = ask(1, 0);
    assert_eq!(ask(2, 5_000), first + 1);
    assert_eq!([ask(1, 5_010), ask(2, 5_020), ask(1, 5_030)], [first + 1; 3], "late saves of the first turn");
    assert_eq!(ask(3, 9_000), first + 2);
    assert_eq!(ask(0, 200_000), first + 3, "another conversation under the same name, much later");
}
