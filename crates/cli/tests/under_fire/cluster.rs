//! Processes of a pool, started for one test and ended with it.

use super::signals;
use super::worker::DEADLINE;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tidepool_client::catalogs::NodeState;
use tidepool_client::{Client, ClientConfig, NodeName, PoolNode};
pub(crate) use tidepool_testing::eventually;
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_types::{ClientId, Deadline};
use tidepool_wire::message::Hello;

/// Short limits for catalogs, so that a stop can outlast them.
pub(crate) const LIMITS: [&str; 4] = ["--suspect-after", "300ms", DEAD_SOON[0], DEAD_SOON[1]];
pub(crate) const DEAD_SOON: [&str; 2] = ["--dead-after", "1500ms"];

/// A process that is killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// What it said when it was ready.
    pub(crate) ready: Value,
}

impl Process {
    /// Starts `tidepool` and waits for its JSON line.
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidepool"))
            .args(args)
            .args(["--json", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("the program prints");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{args:?} said {line:?}: {error}"));
        Self { child, ready }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signals::send(&self.child, signal);
    }

    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process is killed too; one that has ended already needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two catalogs and some nodes.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Option<Process>>,
    pub(crate) catalogs: Vec<Option<Process>>,
    pub(crate) addresses: Vec<String>,
    dirs: Vec<tempfile::TempDir>,
    capacity: String,
    /// Further arguments of the catalogs.
    limits: &'static [&'static str],
}

impl Cluster {
    /// Starts two catalogs and `nodes` nodes of `capacity`, each in a directory of its own.
    pub(crate) fn start(nodes: usize, capacity: &str) -> Self {
        Self::start_with(nodes, capacity, &[])
    }

    /// The same, with `limits` as further arguments of the catalogs.
    pub(crate) fn start_with(nodes: usize, capacity: &str, limits: &'static [&'static str]) -> Self {
        let catalogs: Vec<Option<Process>> = (0..2).map(|_| Some(start_catalog("127.0.0.1:0", limits))).collect();
        let address = |catalog: &Option<Process>| {
            let ready = &catalog.as_ref().expect("just started").ready;
            ready["catalog"]["listen"].as_str().expect("an address").to_owned()
        };
        let addresses = catalogs.iter().map(address).collect();
        let dirs = (0..nodes).map(|_| tempfile::tempdir_in("/dev/shm").expect("a directory")).collect();
        let mut cluster = Self { nodes: Vec::new(), catalogs, addresses, dirs, capacity: capacity.to_owned(), limits };
        for node in 0..nodes {
            let process = cluster.start_node(node);
            cluster.nodes.push(Some(process));
        }
        cluster.wait_until_known(nodes);
        cluster
    }

    /// Starts node number `node`, again or for the first time.
    pub(crate) fn start_node(&self, node: usize) -> Process {
        let dir = self.dirs[node].path().to_str().expect("a readable path");
        let (name, catalogs) = (format!("node-{node}"), self.addresses.join(","));
        let args = ["node", "--name", &name, "--dir", dir, "--capacity", &self.capacity, "--catalogs", &catalogs];
        let ports = ["--data-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--scrub-rate", "256MiB"];
        Process::start(&[&args[..], &ports[..]].concat())
    }

    /// Starts catalog number `catalog` again, where it was.
    pub(crate) fn restart_catalog(&mut self, catalog: usize) {
        self.catalogs[catalog] = Some(start_catalog(&self.addresses[catalog], self.limits));
    }

    /// The directory of node number `node`: clients that are given it are on its host.
    pub(crate) fn dir(&self, node: usize) -> &Path {
        self.dirs[node].path()
    }

    /// A client on the host of node `node`, or on a host without one.
    pub(crate) fn client(&self, node: Option<usize>) -> Client {
        client(&self.addresses, node.map(|node| self.dir(node)))
    }

    /// Waits until both catalogs are complete and know that many nodes.
    pub(crate) fn wait_until_known(&self, nodes: usize) {
        for address in &self.addresses {
            let client = client(std::slice::from_ref(address), None);
            eventually("a catalog is complete", || {
                let known = client.members().len() >= nodes;
                known && client.match_prefix(&[["no such key"]]).is_ok_and(|matches| matches.complete)
            });
        }
    }

    /// Waits until each catalog that knows a node says that it is in one of these states.
    pub(crate) fn wait_until_seen(&self, node: usize, states: &[NodeState]) {
        let name = NodeName::new(format!("node-{node}")).expect("valid");
        for address in &self.addresses {
            let client = client(std::slice::from_ref(address), None);
            let is_so = |node: &PoolNode| node.name != name || node.state.is_some_and(|state| states.contains(&state));
            eventually(&format!("{name} is one of {states:?}"), || {
                let members = client.members();
                !members.is_empty() && members.iter().all(is_so)
            });
        }
    }

    /// Waits until every node has given up on a catalog that does not answer.
    pub(crate) fn wait_until_missed(&self, catalog: usize) {
        let name = format!("tidepool_node_catalog_caught_up{{catalog=\"{}\"}}", self.addresses[catalog]);
        for node in 0..self.nodes.len() {
            eventually("a node goes on without the catalog", || self.metric(node, &name) == 0);
        }
    }

    /// A number of node `node`, as it reports it.
    pub(crate) fn metric(&self, node: usize, name: &str) -> u64 {
        let stat = self.client(Some(node)).node_stat(&NodeName::new(format!("node-{node}")).expect("valid"));
        let stat = stat.expect("the node answers");
        stat.into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no metric {name}")).1
    }
}

fn start_catalog(listen: &str, limits: &[&str]) -> Process {
    Process::start(&[&["catalog", "--listen", listen, "--metrics-listen", "127.0.0.1:0"], limits].concat())
}

/// A client with nodes of its own host in `dir`, or none.
pub(crate) fn client(catalogs: &[String], dir: Option<&Path>) -> Client {
    let config = ClientConfig {
        catalogs: catalogs.to_vec(),
        dir: dir.unwrap_or(Path::new("/nonexistent")).to_owned(),
        local: dir.is_some(),
        deadline: DEADLINE,
        ..ClientConfig::default()
    };
    Client::connect(config).expect("the settings are valid")
}

/// Waits until every call of a client that is under way is past its deadline: one that begins now, and that nobody answers, ends.
pub(crate) fn wait_past_every_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, hello) = (silent.local_addr().expect("bound"), Hello { client: ClientId(1), wants_memory: false });
    let answer = Connection::connect_tcp(address, &TcpOptions::default(), hello, Deadline::after(DEADLINE));
    assert!(matches!(answer, Err(ConnError::TimedOut)), "{answer:?}");
}

/// The seed of this run.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("TIDEPOOL_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115);
    println!("seed {seed}");
    seed
}

/// SplitMix64: the same numbers from the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) % bound
    }
}

/// Bytes that follow from the key alone, so that any process can check any block.
pub(crate) fn content(key: &[u8]) -> Vec<u8> {
    let mut state = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    };
    // From one byte to a few hundred kilobytes, small ones more often.
    let len = match next() % 10 {
        0 => 1 + next() % 300_000,
        1..4 => 1 + next() % 70_000,
        _ => 1 + next() % 5_000,
    };
    (0..len).map(|_| next() as u8).collect()
}
