//! Writers and readers are killed and stopped at random points, and nodes and catalogs with them: whoever lives gets right
//! bytes or a miss by the deadline, and afterwards nothing is left of those who are gone.

use super::aftermath::{catalogs_equal_the_nodes, every_byte_can_be_used, nothing_is_kept};
use super::cluster::{Cluster, Random, seed};
use super::signals;
use super::worker::{self, Role, Work};
use rustix::process::Signal;
use std::process::Child;
use std::time::Duration;

/// Short limits for catalogs, so that a stop can outlast them.
const LIMITS: [&str; 4] = ["--suspect-after", "300ms", "--dead-after", "1500ms"];
/// Longer than those, than a put waits for a catalog (100 ms), a node for an answer of one (1 s), and a client for anything
/// (2 s).
const PAST_EVERY_LIMIT: Duration = Duration::from_secs(3);
/// Clients that are killed, one after the other.
const KILLED: u64 = 16;

/// The ways to be a client, each on the host of a node or on another one.
const WAYS: [(Role, Option<usize>); 4] =
    [(Role::Writer, Some(0)), (Role::Reader, Some(1)), (Role::Writer, None), (Role::Reader, None)];

fn start(cluster: &Cluster, number: u64, seed: u64, (role, node): (Role, Option<usize>), seconds: u64) -> Child {
    let dir = node.map(|node| cluster.dir(node).to_owned());
    let work = Work { number, seed, role, seconds, stopped_for: PAST_EVERY_LIMIT, calm: false };
    worker::start(&work, &cluster.addresses, dir)
}

/// Kills clients at random points of their work.
fn kill_clients(cluster: &Cluster, seed: u64) {
    let mut random = Random(seed);
    for number in 0..KILLED {
        let way = WAYS[number as usize % WAYS.len()];
        let mut child = start(cluster, 100 + number, seed, way, 60);
        std::thread::sleep(Duration::from_millis(100 + random.below(500)));
        signals::send(&child, Signal::KILL);
        let ended = child.wait().expect("a child can be waited for");
        assert!(ended.code().is_none(), "{way:?} ended by itself: {ended}");
    }
}

/// Stops clients at random points of their work, for longer than every limit; they go on and end well.
fn stop_clients(cluster: &Cluster, seed: u64) {
    std::thread::scope(|scope| {
        for (way, number) in WAYS.into_iter().zip(200..) {
            scope.spawn(move || {
                let mut random = Random(seed ^ number);
                let mut child = start(cluster, number, seed, way, 8);
                std::thread::sleep(Duration::from_millis(300 + random.below(1500)));
                signals::send(&child, Signal::STOP);
                std::thread::sleep(PAST_EVERY_LIMIT);
                signals::send(&child, Signal::CONT);
                let ended = child.wait().expect("a child can be waited for");
                assert!(ended.success(), "{way:?}, stopped and continued: {ended}");
            });
        }
    });
}

#[test]
fn killed_and_stopped_clients_cost_nobody_a_byte_and_leave_nothing() {
    let seed = seed();
    let cluster = Cluster::start_with(2, "8MiB", &LIMITS);
    let mut survivors: Vec<Child> =
        [Some(0), None].into_iter().zip(0..).map(|(node, n)| start(&cluster, n, seed, (Role::All, node), 8)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| kill_clients(&cluster, seed));
        scope.spawn(|| stop_clients(&cluster, seed));
    });
    survivors.iter_mut().for_each(|child| assert!(child.wait().expect("ours").success(), "a survivor failed"));
    nothing_is_kept(&cluster);
    catalogs_equal_the_nodes(&cluster);
    every_byte_can_be_used(&cluster);
}

#[test]
fn nodes_and_catalogs_that_were_killed_or_stopped_past_every_limit_are_exact_again() {
    let seed = seed();
    let mut random = Random(seed);
    let mut cluster = Cluster::start_with(3, "8MiB", &LIMITS);
    let ways = [(Role::All, Some(0)), (Role::Writer, Some(1)), (Role::All, None)];
    let mut workers: Vec<Child> =
        ways.into_iter().zip(0..).map(|(way, number)| start(&cluster, number, seed, way, 12)).collect();
    let (killed, stopped) = (random.below(3) as usize, random.below(2) as usize);
    let pause = |random: &mut Random| std::thread::sleep(Duration::from_millis(200 + random.below(600)));
    pause(&mut random);
    let node = (killed + 1) % 3;
    cluster.nodes[killed].take().expect("running").kill();
    cluster.nodes[node].as_ref().expect("running").signal(Signal::STOP);
    std::thread::sleep(PAST_EVERY_LIMIT);
    cluster.nodes[node].as_ref().expect("running").signal(Signal::CONT);
    cluster.nodes[killed] = Some(cluster.start_node(killed));
    pause(&mut random);
    cluster.catalogs[stopped].as_ref().expect("running").signal(Signal::STOP);
    std::thread::sleep(PAST_EVERY_LIMIT);
    cluster.catalogs[stopped].as_ref().expect("running").signal(Signal::CONT);
    pause(&mut random);
    cluster.catalogs[1 - stopped].take().expect("running").kill();
    pause(&mut random);
    cluster.restart_catalog(1 - stopped);
    workers.iter_mut().for_each(|child| assert!(child.wait().expect("ours").success(), "a worker failed"));
    cluster.wait_until_known(3);
    nothing_is_kept(&cluster);
    catalogs_equal_the_nodes(&cluster);
    every_byte_can_be_used(&cluster);
}
