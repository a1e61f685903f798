//! Room is made around what is held, and the order of what stays does not change.

use super::*;
use crate::node_memory::tests::common::{id, put, reserve};
use crate::node_memory::tests::memory;
use crate::node_memory::{Hold, SlotState};
use crate::placed::Placed;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// The blocks of the order of eviction, coldest first, by their generations.
fn order(memory: &NodeMemory) -> Vec<u64> {
    let mut inner = memory.inner.lock();
    let first = inner.order.victim(Duration::ZERO);
    let order = std::iter::successors(first, |&slot| inner.order.after(slot));
    order.map(|slot| inner.slots[slot as usize].generation).collect()
}

fn hold(memory: &Arc<NodeMemory>, key: &[u8]) -> Hold {
    memory.hold(&id(key), None).unwrap()
}

/// Two small views far apart made every large put fail: each victim between them was tried in vain, its neighbours next,
/// and after 64 of them the writer slept, until its deadline. Each try also moved the victim to the warm end. Now such
/// victims are passed over, at once and without a trace.
#[test]
fn a_large_block_finds_the_room_beside_two_views_that_are_far_apart() {
    let block = Placed::run_bytes(4000, 4);
    let count = 4096u32;
    let fixture = memory(u64::from(count) * block, 2048);
    for n in 0..count {
        put(&fixture.memory, &n.to_le_bytes(), &[1; 4000]).unwrap();
    }
    let views = [hold(&fixture.memory, &10u32.to_le_bytes()), hold(&fixture.memory, &(count - 1100).to_le_bytes())];
    // Most of the pool is between the views, colder than the rest, and too short.
    let (before, evicted) = (order(&fixture.memory), fixture.memory.stats().evictions_total);
    let large = vec![2; (u64::from(count) * 3 / 4 * block) as usize];
    assert!(put(&fixture.memory, b"too large", &large).is_err());
    assert!(order(&fixture.memory) == before, "a put that fails changes nothing");
    drop(views);

    let _views = [hold(&fixture.memory, &10u32.to_le_bytes()), hold(&fixture.memory, &1000u32.to_le_bytes())];
    let before = order(&fixture.memory);
    put(&fixture.memory, b"large", &vec![2; 2000 * block as usize]).unwrap();
    let evicted = fixture.memory.stats().evictions_total - evicted;
    assert!((2000..=2002).contains(&evicted), "{evicted} blocks went for one of 2000 times their size");
    let after = order(&fixture.memory);
    let stayed: Vec<u64> = before.iter().copied().filter(|block| after.contains(block)).collect();
    assert!(after[..after.len() - 1] == stayed, "what stays keeps its order");
    assert!(after[..980] == before[..980], "the coldest blocks, which had too little room, stay");
}

/// Held blocks stayed in the order: more than 64 of them at its cold end stalled a put although all else could go.
#[test]
fn any_number_of_held_blocks_at_the_cold_end_stalls_nobody() {
    let fixture = memory(4 << 20, 4096);
    let mut n = 0u32;
    while fixture.memory.stats().evictions_total == 0 {
        put(&fixture.memory, &n.to_le_bytes(), &[1; 4000]).unwrap();
        n += 1;
    }
    let holds: Vec<Hold> = (1..n / 2).map(|n| hold(&fixture.memory, &n.to_le_bytes())).collect();
    let mut inner = fixture.memory.inner.lock();
    assert!(fixture.memory.make_room(&mut inner, 4096, 64).is_some(), "room without waiting");
    drop(inner);
    assert!(holds.iter().all(|hold| hold.bytes() == [1; 4000]));
}

#[test]
fn looking_at_a_block_leaves_it_in_its_place() {
    let fixture = memory(1 << 20, 4096);
    for n in 0..5u32 {
        put(&fixture.memory, &n.to_le_bytes(), &[1; 4000]).unwrap();
    }
    let before = order(&fixture.memory);
    let first = fixture.memory.peek(&id(&2u32.to_le_bytes())).unwrap();
    let second = fixture.memory.peek(&id(&2u32.to_le_bytes())).unwrap();
    assert_eq!(order(&fixture.memory), before);
    drop((first, second));
    assert_eq!(order(&fixture.memory), before);
    assert!(fixture.memory.inner.lock().looked_at.is_empty());
}

/// Whether there is room for a block once everything that may go is gone, found out the slow way.
fn has_room(memory: &NodeMemory, need: Need) -> bool {
    let inner = memory.inner.lock();
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
        let fixture = memory(512 << 10, 1024);
        let (mut holds, mut open) = (Vec::new(), Vec::new());
        for (operation, key, len) in operations {
            let key = key.to_le_bytes();
            let before = order(&fixture.memory);
            match operation {
                0..=3 if fixture.memory.confirm(&[id(&key)])[0].is_none() => {
                    let need = Need { bytes: Placed::run_bytes(len as u64, 4), align: Placed::align(len as u64) };
                    let expected = has_room(&fixture.memory, need);
                    let mut inner = fixture.memory.inner.lock();
                    let made = fixture.memory.make_room(&mut inner, need.bytes, need.align);
                    prop_assert_eq!(made.is_some(), expected);
                    if let Some((slot, _)) = made {
                        let _ = fixture.memory.release(&mut inner, slot);
                    }
                    drop(inner);
                    let after = order(&fixture.memory);
                    let stayed: Vec<u64> = before.into_iter().filter(|block| after.contains(block)).collect();
                    prop_assert_eq!(&after, &stayed);
                    let _ = put(&fixture.memory, &key, &vec![7; len]);
                }
                4 => holds.extend(fixture.memory.hold(&id(&key), None)),
                5 => holds.extend(fixture.memory.peek(&id(&key))),
                6 if len % 2 == 0 && open.len() < 4 => open.extend(reserve(&fixture.memory, &key, &vec![7; len / 4 + 1])),
                6 => drop(fixture.memory.remove(&id(&key))),
                _ if len % 3 == 0 => open.clear(),
                _ if !holds.is_empty() => drop(holds.swap_remove(len % holds.len())),
                _ => {}
            }
        }
        drop((holds, open));
        let inner = fixture.memory.inner.lock();
        prop_assert!(inner.walls.coldest().is_none() && inner.looked_at.is_empty(), "no wall without a reason");
    }
}
