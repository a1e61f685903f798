//! Random operations from several client processes against a naive model.

use super::aftermath::{catalogs_equal_the_nodes, nothing_is_kept};
use super::cluster::{Cluster, Random, seed};
use super::worker::{self, Role, Running, Work, go_on};
use rustix::process::Signal;
use std::time::Duration;
use tidepool_client::catalogs::NodeState::{Dead, Suspect};

/// Steps of all workers together while nothing dies or stops.
const STEPS: u64 = 10_000;
/// Steps of each worker at the least, and of each once the fire is out.
const EACH: u64 = 200;

/// Lets four workers loose: two on hosts with a node, one over TCP only, one on a host with a node as well.
fn workers(cluster: &Cluster, seed: u64, calm: bool) -> Vec<Running> {
    let dir = |node: usize| Some(cluster.dir(node).to_owned());
    [dir(0), dir(1), None, dir(2)]
        .into_iter()
        .zip(0..)
        .map(|(dir, number)| {
            let work = Work { number, seed, role: Role::All, stopped_for: Duration::ZERO, calm };
            worker::start(&work, &cluster.addresses, dir)
        })
        .collect()
}

fn all_succeed(workers: Vec<Running>) {
    workers.iter().for_each(|worker| worker.goes_on(EACH));
    workers.into_iter().for_each(Running::end);
}

#[test]
fn any_answer_is_right_or_a_miss_under_eviction_and_faults() {
    let seed = seed();
    // Far less than the keys' content: eviction all the time.
    let cluster = Cluster::start(3, "8MiB");
    let workers = workers(&cluster, seed, true);
    go_on(&workers, STEPS);
    all_succeed(workers);
    let evicted: u64 = (0..3).map(|node| cluster.metric(node, "tidepool_node_evictions_total")).sum();
    assert!(evicted > 100, "there was pressure: {evicted}");
    nothing_is_kept(&cluster);
    catalogs_equal_the_nodes(&cluster);
}

#[test]
fn any_answer_is_right_or_a_miss_while_processes_die_stop_and_return() {
    let seed = seed();
    let mut cluster = Cluster::start(3, "8MiB");
    let workers = workers(&cluster, seed, false);
    let mut random = Random(seed);
    let mut pause = || go_on(&workers, 200 + random.below(400));
    for round in 0..4 {
        pause();
        let node = (seed as usize + round) % 3;
        match round % 4 {
            0 => cluster.nodes[node].take().expect("running").kill(),
            1 => cluster.catalogs[0].take().expect("running").kill(),
            2 => {
                cluster.nodes[node].as_ref().expect("running").signal(Signal::STOP);
                cluster.wait_until_seen(node, &[Suspect, Dead]);
            }
            _ => {
                cluster.catalogs[1].as_ref().expect("running").signal(Signal::STOP);
                cluster.wait_until_missed(1);
            }
        }
        pause();
        match round % 4 {
            0 => cluster.nodes[node] = Some(cluster.start_node(node)),
            1 => cluster.restart_catalog(0),
            2 => cluster.nodes[node].as_ref().expect("running").signal(Signal::CONT),
            _ => cluster.catalogs[1].as_ref().expect("running").signal(Signal::CONT),
        }
    }
    all_succeed(workers);
    cluster.wait_until_known(3);
    nothing_is_kept(&cluster);
    catalogs_equal_the_nodes(&cluster);
}
