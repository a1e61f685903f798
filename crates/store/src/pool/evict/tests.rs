//! Room is made around what is held, and the order of what stays does not change.

use super::*;
use crate::placed::Placed;
use crate::pool::tests::common::{id, put, reserve};
use crate::pool::tests::pool;
use crate::pool::{Hold, SlotState};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// The blocks of the order of eviction, coldest first, by their generations.
fn order(pool: &Pool) -> Vec<u64> {
    let mut inner = pool.inner.lock();
    let first = inner.order.victim(Duration::ZERO);
    let order = std::iter::successors(first, |&slot| inner.order.after(slot));
    order.map(|slot| inner.slots[slot as usize].generation).collect()
}

fn hold(pool: &Arc<Pool>, key: &[u8]) -> Hold {
    pool.hold(&id(key), None).unwrap()
}

/// Two small views far apart made every large put fail: each victim between them was tried in vain, its neighbours next,
/// and after 64 of them the writer slept, until its deadline. Each try also moved the victim to the warm end. Now such
/// victims are passed over, at once and without a trace.
#[test]
fn a_large_block_finds_the_room_beside_two_views_that_are_far_apart() {
    let block = Placed::run_bytes(4000, 4);
    let count = 4096u32;
    let fixture = pool(u64::from(count) * block, 2048);
    for n in 0..count {
        put(&fixture.pool, &n.to_le_bytes(), &[1; 4000]).unwrap();
    }
    let views = [hold(&fixture.pool, &10u32.to_le_bytes()), hold(&fixture.pool, &(count - 1100).to_le_bytes())];
    // Most of the pool is between the views, colder than the rest, and too short.
    let (before, evicted) = (order(&fixture.pool), fixture.pool.stats().evictions_total);
    let large = vec![2; (u64::from(count) * 3 / 4 * block) as usize];
    assert!(put(&fixture.pool, b"too large", &large).is_err());
    assert!(order(&fixture.pool) == before, "a put that fails changes nothing");
    drop(views);

    let _views = [hold(&fixture.pool, &10u32.to_le_bytes()), hold(&fixture.pool, &1000u32.to_le_bytes())];
    let before = order(&fixture.pool);
    put(&fixture.pool, b"large", &vec![2; 2000 * block as usize]).unwrap();
    let evicted = fixture.pool.stats().evictions_total - evicted;
    assert!((2000..=2002).contains(&evicted), "{evicted} blocks went for one of 2000 times their size");
    let after = order(&fixture.pool);
    let stayed: Vec<u64> = before.iter().copied().filter(|block| after.contains(block)).collect();
    assert!(after[..after.len() - 1] == stayed, "what stays keeps its order");
    assert!(after[..980] == before[..980], "the coldest blocks, which had too little room, stay");
}

/// Held blocks stayed in the order: more than 64 of them at its cold end stalled a put although all else could go.
#[test]
fn any_number_of_held_blocks_at_the_cold_end_stalls_nobody() {
    let fixture = pool(4 << 20, 4096);
    let mut n = 0u32;
    while fixture.pool.stats().evictions_total == 0 {
        put(&fixture.pool, &n.to_le_bytes(), &[1; 4000]).unwrap();
        n += 1;
    }
    let holds: Vec<Hold> = (1..n / 2).map(|n| hold(&fixture.pool, &n.to_le_bytes())).collect();
    let mut inner = fixture.pool.inner.lock();
    assert!(fixture.pool.make_room(&mut inner, 4096, 64).is_some(), "room without waiting");
    drop(inner);
    assert!(holds.iter().all(|hold| hold.bytes() == [1; 4000]));
}

#[test]
fn looking_at_a_block_leaves_it_in_its_place() {
    let fixture = pool(1 << 20, 4096);
    for n in 0..5u32 {
        put(&fixture.pool, &n.to_le_bytes(), &[1; 4000]).unwrap();
    }
    let before = order(&fixture.pool);
    let first = fixture.pool.peek(&id(&2u32.to_le_bytes())).unwrap();
    let second = fixture.pool.peek(&id(&2u32.to_le_bytes())).unwrap();
    assert_eq!(order(&fixture.pool), before);
    drop((first, second));
    assert_eq!(order(&fixture.pool), before);
    assert!(fixture.pool.inner.lock().looked_at.is_empty());
}

/// Whether there is room for a block once everything that may go is gone, found out the slow way.
fn has_room(pool: &Pool, need: Need) -> bool {
    let inner = pool.inner.lock();
    let stays =
        |slot: &&super::super::Slot| slot.run.is_some() && !(slot.state == SlotState::Sealed && slot.holds == 0);
    let mut walls: Vec<(u64, u64)> =
        inner.slots.iter().filter(stays).filter_map(|slot| slot.run).map(|run| inner.heap.span(run)).collect();
    walls.push((inner.heap.end(), inner.heap.end()));
    walls.sort_unstable();
    let mut start = 0;
    walls.into_iter().any(|(wall, next)| need.fits((std::mem::replace(&mut start, next), wall)))
}

proptest! {
    #[test]
    fn a_block_gets_room_exactly_when_what_is_held_leaves_it(
        operations in prop::collection::vec((0..8u8, 0..60u32, 1..60_000usize), 1..120),
    ) {
        let fixture = pool(512 << 10, 1024);
        let (mut holds, mut open) = (Vec::new(), Vec::new());
        for (operation, key, len) in operations {
            let key = key.to_le_bytes();
            let before = order(&fixture.pool);
            match operation {
                0..=3 if fixture.pool.confirm(&[id(&key)])[0].is_none() => {
                    let need = Need { bytes: Placed::run_bytes(len as u64, 4), align: Placed::align(len as u64) };
                    let expected = has_room(&fixture.pool, need);
                    let mut inner = fixture.pool.inner.lock();
                    let made = fixture.pool.make_room(&mut inner, need.bytes, need.align);
                    prop_assert_eq!(made.is_some(), expected);
                    if let Some((slot, _)) = made {
                        let _ = fixture.pool.release(&mut inner, slot);
                    }
                    drop(inner);
                    let after = order(&fixture.pool);
                    let stayed: Vec<u64> = before.into_iter().filter(|block| after.contains(block)).collect();
                    prop_assert_eq!(&after, &stayed);
                    let _ = put(&fixture.pool, &key, &vec![7; len]);
                }
                4 => holds.extend(fixture.pool.hold(&id(&key), None)),
                5 => holds.extend(fixture.pool.peek(&id(&key))),
                6 if len % 2 == 0 && open.len() < 4 => open.extend(reserve(&fixture.pool, &key, &vec![7; len / 4 + 1])),
                6 => drop(fixture.pool.remove(&id(&key))),
                _ if len % 3 == 0 => open.clear(),
                _ if !holds.is_empty() => drop(holds.swap_remove(len % holds.len())),
                _ => {}
            }
        }
        drop((holds, open));
        let inner = fixture.pool.inner.lock();
        prop_assert!(inner.walls.coldest().is_none() && inner.looked_at.is_empty(), "no wall without a reason");
    }
}
