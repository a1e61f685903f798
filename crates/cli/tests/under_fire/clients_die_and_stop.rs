//! Writers and readers are killed and stopped at random points, and nodes and catalogs with them: whoever lives gets right
//! bytes or a miss by the deadline, and afterwards nothing is left of those who are gone.

use super::aftermath::{catalogs_equal_the_nodes, every_byte_can_be_used, nothing_is_kept};
use super::cluster::{Cluster, LIMITS, Random, seed, wait_past_every_deadline};
use super::worker::{self, Role, Running, Work, go_on};
use rustix::process::Signal;
use std::time::Duration;
use tidepool_client::catalogs::NodeState::Dead;

/// Far longer than a client is stopped here.
const STOPPED_FOR: Duration = Duration::from_secs(30);
/// Clients that are killed, one after the other.
const KILLED: u64 = 16;
/// Steps of each client once it may work in peace.
const EACH: u64 = 50;

/// The ways to be a client, each on the host of a node or on another one.
const WAYS: [(Role, Option<usize>); 4] =
    [(Role::Writer, Some(0)), (Role::Reader, Some(1)), (Role::Writer, None), (Role::Reader, None)];

fn start(cluster: &Cluster, number: u64, seed: u64, way: (Role, Option<usize>), stopped_for: Duration) -> Running {
    let (role, node) = way;
    let dir = node.map(|node| cluster.dir(node).to_owned());
    let work = Work { number, seed, role, stopped_for, calm: false };
    worker::start(&work, &cluster.addresses, dir)
}

/// Kills clients at random points of their work: when others have done some more of theirs.
fn kill_clients(cluster: &Cluster, seed: u64, others: &[Running]) {
    let mut random = Random(seed);
    for number in 0..KILLED {
        let way = WAYS[number as usize % WAYS.len()];
        let client = start(cluster, 100 + number, seed, way, Duration::ZERO);
        client.goes_on(1);
        go_on(others, random.below(120));
        let ended = client.kill();
        assert!(ended.code().is_none(), "{way:?} ended by itself: {ended}");
    }
}

/// Stops clients at random points of their work, until their calls are past their deadlines; they go on and end well.
fn stop_clients(cluster: &Cluster, seed: u64, others: &[Running]) {
    std::thread::scope(|scope| {
        for (way, number) in WAYS.into_iter().zip(200..) {
            scope.spawn(move || {
                let mut random = Random(seed ^ number);
                let client = start(cluster, number, seed, way, STOPPED_FOR);
                client.goes_on(1);
                go_on(others, random.below(400));
                client.signal(Signal::STOP);
                wait_past_every_deadline();
                client.signal(Signal::CONT);
                client.goes_on(EACH);
                client.end();
            });
        }
    });
}

#[test]
fn killed_and_stopped_clients_cost_nobody_a_byte_and_leave_nothing() {
    let seed = seed();
    let cluster = Cluster::start_with(2, "8MiB", &LIMITS);
    let start = |(node, n)| start(&cluster, n, seed, (Role::All, node), Duration::ZERO);
    let survivors: Vec<Running> = [Some(0), None].into_iter().zip(0..).map(start).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| kill_clients(&cluster, seed, &survivors));
        scope.spawn(|| stop_clients(&cluster, seed, &survivors));
    });
    survivors.iter().for_each(|survivor| survivor.goes_on(EACH));
    survivors.into_iter().for_each(Running::end);
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
    let start = |(way, number)| start(&cluster, number, seed, way, Duration::ZERO);
    let workers: Vec<Running> = ways.into_iter().zip(0..).map(start).collect();
    let (killed, stopped) = (random.below(3) as usize, random.below(2) as usize);
    let mut pause = || go_on(&workers, 100 + random.below(600));
    pause();
    let node = (killed + 1) % 3;
    cluster.nodes[killed].take().expect("running").kill();
    cluster.nodes[node].as_ref().expect("running").signal(Signal::STOP);
    wait_past_every_deadline();
    cluster.wait_until_seen(node, &[Dead]);
    cluster.nodes[node].as_ref().expect("running").signal(Signal::CONT);
    cluster.nodes[killed] = Some(cluster.start_node(killed));
    pause();
    cluster.catalogs[stopped].as_ref().expect("running").signal(Signal::STOP);
    wait_past_every_deadline();
    cluster.wait_until_missed(stopped);
    cluster.catalogs[stopped].as_ref().expect("running").signal(Signal::CONT);
    pause();
    cluster.catalogs[1 - stopped].take().expect("running").kill();
    pause();
    cluster.restart_catalog(1 - stopped);
    workers.iter().for_each(|worker| worker.goes_on(EACH));
    workers.into_iter().for_each(Running::end);
    cluster.wait_until_known(3);
    nothing_is_kept(&cluster);
    catalogs_equal_the_nodes(&cluster);
    every_byte_can_be_used(&cluster);
}
