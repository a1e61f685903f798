//! What commands say about nodes that are dead or gone: never "not there" where it may be.

mod common;

use common::{Daemon, code, eventually, json, memory_dir, stderr, stdout};
use rustix::process::Signal;
use serde_json::json;
use std::process::Output;
use tempfile::TempDir;

/// A catalog that gives up on nodes soon, and two nodes that do not share a directory.
struct Pool {
    catalog: Daemon,
    nodes: Vec<Daemon>,
    dirs: [TempDir; 2],
}

impl Pool {
    fn start() -> Self {
        let (dirs, any) = ([memory_dir(), memory_dir()], "127.0.0.1:0");
        let limits = ["--suspect-after", "500ms", "--dead-after", "1s"];
        let catalog = Daemon::start(&[&["catalog", "--listen", any, "--metrics-listen", any][..], &limits].concat());
        let node = |(name, dir): (&str, &TempDir)| Daemon::node(name, dir.path(), catalog.address("catalog", "listen"));
        let nodes = ["near", "far"].into_iter().zip(&dirs).map(node).collect();
        let pool = Self { catalog, nodes, dirs };
        pool.await_state("near", "alive");
        pool.await_state("far", "alive");
        pool
    }

    /// Runs a command on the host of the node `near`.
    fn run(&self, args: &[&str]) -> Output {
        let dir = self.dirs[0].path().to_str().unwrap();
        let place = ["--catalogs", self.catalog.address("catalog", "listen"), "--dir", dir];
        common::with_input(&[args, &place].concat(), b"bytes")
    }

    fn await_state(&self, name: &str, state: &str) {
        eventually(&format!("{name} {state}"), || {
            let stat = self.run(&["stat", "--json"]);
            let nodes = if code(&stat) == 0 { json(&stat)["nodes"].clone() } else { json!([]) };
            nodes.as_array().unwrap().iter().any(|node| node["name"] == name && node["state"] == state)
        });
    }
}

/// `rm` said "not found" and exited with 3 while the only holder was stopped: the block was back when the node went on, and
/// whoever had removed it believed it gone. Now `rm` and `ls` name the nodes that could not be asked and exit with 4.
#[test]
fn a_dead_node_is_named_by_everything_that_could_not_ask_it() {
    let pool = Pool::start();
    assert_eq!(code(&pool.run(&["put", "k", "--prefer", "far"])), 0);
    assert_eq!(code(&pool.run(&["put", "here", "--prefer", "near"])), 0);
    pool.nodes[1].signal(Signal::STOP);
    pool.await_state("far", "dead");

    let rm = pool.run(&["rm", "k"]);
    assert_eq!(code(&rm), 4, "{}", stderr(&rm));
    assert!(stderr(&rm).contains("could not ask far (dead)"), "{}", stderr(&rm));
    let rm = pool.run(&["rm", "here", "--json"]);
    assert_eq!((code(&rm), &json(&rm)["keys"][0]["unanswered"]), (4, &json!(["far"])), "{}", stderr(&rm));
    let rm = pool.run(&["rm", "--matching", "nothing"]);
    assert_eq!(code(&rm), 4, "{}", stderr(&rm));
    let ls = pool.run(&["ls"]);
    assert_eq!(code(&ls), 4, "{}", stderr(&ls));
    assert!(stderr(&ls).contains("could not ask far (dead): what only they hold is missing"), "{}", stderr(&ls));

    let stat = pool.run(&["stat", "node", "far"]);
    let address = pool.nodes[1].address("node", "data-listen");
    assert_eq!(code(&stat), 1);
    let says = stderr(&stat);
    assert!(says.contains("node far is dead: it was last heard of ") && says.contains(address), "{says}");

    pool.nodes[1].signal(Signal::CONT);
    pool.await_state("far", "alive");
    assert_eq!(pool.run(&["get", "k"]).stdout, b"bytes");
    assert_eq!(code(&pool.run(&["rm", "k"])), 0);
}

/// `stat` counted the memory of dead nodes into the pool's: it looked larger than it was.
#[test]
fn the_pools_totals_are_those_of_its_living_nodes() {
    let pool = Pool::start();
    let all = json(&pool.run(&["stat", "--json"]));
    let own = all["nodes"][0]["capacity_bytes"].as_u64().unwrap();
    assert_eq!(all["capacity_bytes"], 2 * own);
    pool.nodes[1].signal(Signal::STOP);
    pool.await_state("far", "dead");
    assert_eq!(json(&pool.run(&["stat", "--json"]))["capacity_bytes"], own);
    let text = stdout(&pool.run(&["stat"]));
    assert!(text.contains(", silent for "), "{text}");
}

#[test]
fn a_node_that_stopped_in_order_holds_nothing_and_is_missed_by_nobody() {
    let mut pool = Pool::start();
    assert_eq!(pool.nodes.pop().unwrap().stop().code(), Some(0));
    pool.await_state("far", "left");
    assert_eq!(code(&pool.run(&["ls"])), 0);
    assert_eq!(code(&pool.run(&["rm", "k"])), 3);
    let stat = pool.run(&["stat", "node", "far"]);
    assert!(stderr(&stat).contains("node far is dead: it stopped in order "), "{}", stderr(&stat));
}
