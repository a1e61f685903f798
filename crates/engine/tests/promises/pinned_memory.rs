//! The memory of this host's nodes is pinned before it is needed, for as long as it is, and once.

use crate::a_gpu_that_fails::Program;
use crate::gpu::{Engine, Pool, Watched, done, job, key, start_node};
use crate::reports::{eventually, wait, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidepool_client::door::Door;
use tidepool_engine::Direction;

/// The first request after a node had joined, or restarted, waited until all of its memory was pinned.
#[test]
fn the_memory_of_a_node_that_joins_is_pinned_before_anybody_asks_for_its_blocks() {
    let mut pool = Pool::without_node();
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let door: Arc<dyn Door> = engine.gpu.clone();
    let pinned = client.pin_for_device(&door);
    for _ in 0..2 {
        pool.node = Some(start_node("n0", &pool.config()));
        eventually("the node's memory is pinned", || engine.driver.books().pinned == 1);
        pool.node = None;
        eventually("it is let go", || engine.driver.books().pinned == 0);
    }
    drop((pinned, client, door));
    engine.end();
}

#[test]
fn memory_stays_pinned_until_the_copies_under_way_have_landed() {
    for (direction, name) in [(Direction::Load, 1), (Direction::Save, 7)] {
        let pool = Pool::new();
        let engine = Engine::new(|at| at as u8);
        pool.put(1, &engine.block(1));
        let client = pool.client();
        let door: Arc<dyn Door> = engine.gpu.clone();
        let pinned = client.pin_for_device(&door);
        let transfers = engine.transfers(&client);
        engine.driver.hold_after(0);
        transfers.submit(direction, job(1, &[name], &[2]));
        eventually("it is under way", || engine.driver.is_busy());
        drop(pinned);
        engine.driver.go_on();
        assert_eq!(wait(&transfers).failed, [], "{direction:?}");
        assert!(!engine.driver.recover(), "{direction:?}: memory was let go under a copy");
    }
}

/// It was forgotten with its memory pinned, which then nobody let go.
#[test]
fn the_memory_of_a_node_that_died_is_let_go_though_somebody_has_a_view_of_it() {
    let pool = Pool::without_node();
    let mut node = Program::start("node", &pool);
    let engine = Engine::new(|at| at as u8);
    pool.put(1, &engine.block(1));
    let client = pool.client();
    let door: Arc<dyn Door> = engine.gpu.clone();
    let pinned = client.pin_for_device(&door);
    let view = client.view(key(1)).expect("a pool").expect("a view");
    let transfers = engine.transfers(&client);
    assert_eq!(done(&transfers, Direction::Load, job(1, &[1], &[2])), []);
    node.kill();
    eventually("it is found out", || client.get(key(1)).expect("a pool").is_none());
    drop((transfers, pinned, door));
    engine.end();
    drop((view, client));
}

/// Memory that copies under way still had was pinned once more, and let go under the next ones by the end of the first.
#[test]
fn memory_that_is_let_go_under_a_copy_is_not_pinned_twice() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    [1, 2].into_iter().for_each(|name| pool.put(name, &engine.block(name as usize)));
    let client = pool.client();
    let door: Arc<dyn Door> = engine.gpu.clone();
    let pinned = client.pin_for_device(&door);
    let loader = engine.transfers(&client);
    engine.driver.hold_after(0);
    loader.submit(Direction::Load, job(1, &[1], &[4]));
    eventually("the first is under way", || engine.driver.is_busy());
    drop(pinned);
    loader.submit(Direction::Load, job(2, &[2], &[5]));
    eventually("both are under way", || engine.driver.events_asked_after() == 2);
    engine.driver.go_on();
    let over = wait_for(2, &loader);
    assert!(over.iter().all(|job| job.failed.is_empty()), "{over:?}");
    assert_eq!([engine.block(4), engine.block(5)], [engine.block(1), engine.block(2)]);
    assert!(!engine.driver.recover(), "the driver was asked to pin what was pinned");
    drop((loader, client, door));
    engine.end();
}

/// The thread that pinned it counted as one that used it: the memory of every node stayed pinned until the pool was closed.
#[test]
fn a_node_that_joins_while_the_last_connector_closes_does_not_stay_pinned() {
    let mut pool = Pool::without_node();
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let [begun, may_end] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let slowly = {
        let (begun, may_end) = (begun.clone(), may_end.clone());
        move || {
            begun.store(true, Ordering::Relaxed);
            eventually("the pin may end", || may_end.load(Ordering::Relaxed));
        }
    };
    let door: Arc<dyn Door> = Arc::new(Watched::new(&engine, slowly, || {}));
    let pinned = client.pin_for_device(&door);
    pool.node = Some(start_node("n0", &pool.config()));
    eventually("it is being pinned", || begun.load(Ordering::Relaxed));
    let having = Arc::strong_count(&door);
    let closing = std::thread::spawn(move || drop(pinned));
    eventually("the door is wanted no more", || Arc::strong_count(&door) < having);
    may_end.store(true, Ordering::Relaxed);
    closing.join().expect("closed");
    eventually("nobody is left who could pin", || Arc::strong_count(&door) == 1);
    assert_eq!(engine.driver.books().pinned, 0, "it stayed pinned, or was pinned once more");
    drop((client, door));
    engine.end();
}
