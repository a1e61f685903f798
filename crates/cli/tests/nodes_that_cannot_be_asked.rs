//! Commands and dead or missing nodes: a block that such a node may hold is never reported as not there.

mod common;

use common::{Daemon, code, json, stderr, stdout};
use rustix::process::Signal;
use serde_json::json;
use std::net::TcpListener;
use std::process::Output;
use tempfile::TempDir;
use tidepool_testing::{eventually, memory_dir};

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
    assert!(
        stderr(&ls).contains("could not ask far (dead): blocks that only they hold are missing"),
        "{}",
        stderr(&ls)
    );

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

/// `stat block` said "not found" for a block on another host while the catalogs were stopped, and `stat node` called a node
/// unknown that only a catalog could know. With several catalogs stopped the time was over before this host's own node was
/// asked, and `ls` listed nothing. Now all three say that no catalog answered, show what is here, and exit with 4.
#[test]
fn what_is_here_is_found_while_every_catalog_hangs_and_the_rest_is_not_called_absent() {
    let pool = Pool::start();
    assert_eq!(code(&pool.run(&["put", "there", "--prefer", "far"])), 0);
    assert_eq!(code(&pool.run(&["put", "here", "--prefer", "near"])), 0);
    pool.catalog.signal(Signal::STOP);
    let hanging: Vec<TcpListener> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let hanging: Vec<String> = hanging.iter().map(|catalog| catalog.local_addr().unwrap().to_string()).collect();
    let catalogs = format!("{},{}", pool.catalog.address("catalog", "listen"), hanging.join(","));
    let dir = pool.dirs[0].path().to_str().unwrap();
    let run = |args: &[&str]| {
        common::tidepool(&[args, &["--catalogs", &catalogs, "--dir", dir, "--deadline", "4s"]].concat())
    };

    let block = run(&["stat", "block", "there"]);
    assert_eq!(code(&block), 4, "{}", stderr(&block));
    assert!(stderr(&block).contains("not found where it could be looked for"), "{}", stderr(&block));
    assert!(stderr(&block).contains("no catalog answered"), "{}", stderr(&block));
    let block = run(&["stat", "block", "here", "--json"]);
    assert_eq!((code(&block), &json(&block)["copies"][0]["node"]), (4, &json!("near")), "{}", stderr(&block));
    let node = run(&["stat", "node", "far"]);
    assert_eq!(code(&node), 4, "{}", stderr(&node));
    assert!(stderr(&node).contains("no catalog answered"), "{}", stderr(&node));
    let ls = run(&["ls"]);
    assert_eq!(code(&ls), 4, "{}", stderr(&ls));
    assert!(stdout(&ls).contains("here"), "{} {}", stdout(&ls), stderr(&ls));
    pool.catalog.signal(Signal::CONT);
}

/// `stat` without a catalog showed zeros for this host's nodes, which served blocks, and exited with 0: at 3 a.m. that is a pool that
/// is empty and well. Those nodes are asked themselves, standard error says that no catalog answered, and the exit code is 4.
#[test]
fn stat_without_a_catalog_shows_what_this_hosts_nodes_say_themselves() {
    let pool = Pool::start();
    assert_eq!(code(&pool.run(&["put", "here", "--prefer", "near"])), 0);
    let known = json(&pool.run(&["stat", "--json"]))["nodes"].clone();
    let near = known.as_array().unwrap().iter().find(|node| node["name"] == "near").unwrap();
    pool.catalog.signal(Signal::STOP);
    let stat = pool.run(&["stat", "--json"]);
    assert_eq!(code(&stat), 4, "{}", stderr(&stat));
    assert!(stderr(&stat).contains("no catalog answered"), "{}", stderr(&stat));
    let alone = json(&stat);
    assert_eq!(alone["nodes"].as_array().unwrap().len(), 1, "{alone}");
    let own = &alone["nodes"][0];
    assert_eq!((&own["name"], &own["state"]), (&json!("near"), &json!("answers")));
    assert_eq!(own["capacity_bytes"], near["capacity_bytes"], "{alone}");
    assert!(own["used_bytes"].as_u64().unwrap() >= 5, "{alone}");
    assert_eq!(alone["used_bytes"], own["used_bytes"]);
    let text = pool.run(&["stat"]);
    assert_eq!(code(&text), 4, "{}", stderr(&text));
    assert!(stdout(&text).lines().nth(1).unwrap().starts_with("near                 answers "), "{}", stdout(&text));
    pool.catalog.signal(Signal::CONT);
}

/// A node that was stopped was "no node on this host" to a command that no catalog answered.
#[test]
fn a_node_of_this_host_that_hangs_is_named() {
    let pool = Pool::start();
    let (catalog, node) = (&pool.catalog, &pool.nodes[0]);
    catalog.signal(Signal::STOP);
    node.signal(Signal::STOP);
    let ls = pool.run(&["ls"]);
    assert_eq!(code(&ls), 1, "{}", stderr(&ls));
    assert!(stderr(&ls).contains("no catalog answered, and could not ask near on this host"), "{}", stderr(&ls));
    let stat = pool.run(&["stat", "node", "near"]);
    assert!(stderr(&stat).contains("node near did not answer"), "{}", stderr(&stat));
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

#[test]
fn a_dead_node_that_is_forgotten_is_named_no_more() {
    let pool = Pool::start();
    let alive = pool.run(&["forget", "far"]);
    assert_eq!(code(&alive), 2, "{}", stderr(&alive));
    assert!(stderr(&alive).contains("node far is alive: only a dead node can be forgotten"), "{}", stderr(&alive));
    let unknown = pool.run(&["forget", "nobody"]);
    assert_eq!(code(&unknown), 1, "{}", stderr(&unknown));
    assert!(stderr(&unknown).contains("no node named nobody is known"), "{}", stderr(&unknown));
    pool.nodes[1].signal(Signal::STOP);
    pool.await_state("far", "dead");
    let rm = json(&pool.run(&["rm", "k", "--json"]));
    assert_eq!(rm["keys"][0]["unanswered"], json!(["far"]));
    assert!(rm["known_since"].is_u64(), "{rm}");
    let forget = pool.run(&["forget", "far"]);
    assert_eq!((code(&forget), stdout(&forget).as_str()), (0, "far is forgotten by 1 catalog\n"));
    assert_eq!(code(&pool.run(&["rm", "k"])), 3);
    assert_eq!(code(&pool.run(&["ls"])), 0);
    pool.nodes[1].signal(Signal::CONT);
}
