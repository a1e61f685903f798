//! A small pool for one test: catalogs and nodes in this process, or nodes in processes of their own.

use rustix::process::{Pid, Signal, WaitOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::catalogs::NodeState;
use tidepool_client::{Client, ClientConfig, PutOptions};
use tidepool_node::{Node, NodeConfig};
pub(crate) use tidepool_testing::{content, eventually};
use tidepool_types::{ByteSize, NodeName};

/// How a client reaches the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Shm,
    Tcp,
}

pub(crate) const BOTH: [Over; 2] = [Over::Shm, Over::Tcp];

pub(crate) struct Cluster {
    pub(crate) catalogs: Vec<Server>,
    pub(crate) nodes: Vec<Node>,
    dir: TempDir,
}

impl Cluster {
    /// A catalog and `nodes` nodes named n0, n1 and so on.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with_leases(nodes, Duration::ZERO)
    }

    /// The same, for clients whose reads are leased for `lease`.
    pub(crate) fn with_leases(nodes: usize, lease: Duration) -> Self {
        let config = CatalogConfig { settle: Duration::ZERO, lease, ..CatalogConfig::default() };
        let mut cluster = Self::with_catalogs(1, &config);
        (0..nodes).for_each(|number| cluster.add_node(&format!("n{number}"), |_| {}));
        cluster
    }

    /// Catalogs that run with `config`, and no node.
    pub(crate) fn with_catalogs(catalogs: usize, config: &CatalogConfig) -> Self {
        let start = |_| Server::start(config.clone()).expect("a catalog on port 0");
        Self { catalogs: (0..catalogs).map(start).collect(), ..Self::without_catalog(0) }
    }

    /// Has a catalog end, and another one with nothing in its memory begin at its address.
    pub(crate) fn restart_catalog(&mut self, catalog: usize, config: &CatalogConfig) {
        let listen = self.catalogs[catalog].address();
        drop(self.catalogs.remove(catalog));
        eventually("the catalog's address is free again", || {
            let fresh = Server::start(CatalogConfig { listen, ..config.clone() });
            fresh.map(|fresh| self.catalogs.insert(catalog, fresh)).is_ok()
        });
    }

    pub(crate) fn without_catalog(nodes: usize) -> Self {
        let dir = tidepool_testing::memory_dir();
        let mut cluster = Self { catalogs: Vec::new(), nodes: Vec::new(), dir };
        (0..nodes).for_each(|number| cluster.add_node(&format!("n{number}"), |_| {}));
        cluster
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn catalogs(&self) -> Vec<String> {
        self.catalogs.iter().map(|catalog| catalog.address().to_string()).collect()
    }

    pub(crate) fn node_config(&self, name: &str) -> NodeConfig {
        let (dir, catalogs) = (self.dir().to_owned(), self.catalogs());
        NodeConfig { dir, catalogs, ..NodeConfig::small(name) }
    }

    pub(crate) fn add_node(&mut self, name: &str, change: impl FnOnce(&mut NodeConfig)) {
        let mut config = self.node_config(name);
        change(&mut config);
        self.nodes.push(Node::start(config).expect("a small node"));
    }

    /// Starts a node in a process of its own, which the test may stop and kill.
    pub(crate) fn spawn_node(&self, name: &str) -> NodeProcess {
        NodeProcess::start(name, self.dir(), &self.catalogs())
    }

    /// A client that knows all nodes of this process and `others` more.
    pub(crate) fn client_and(&self, over: Over, others: usize) -> Client {
        self.client_with(self.nodes.len() + others, |config| config.local = over == Over::Shm)
    }

    pub(crate) fn client(&self, over: Over) -> Client {
        self.client_and(over, 0)
    }

    pub(crate) fn client_with(&self, nodes: usize, change: impl Fn(&mut ClientConfig)) -> Client {
        let mut connected = None;
        eventually("the nodes join", || {
            let (dir, catalogs) = (self.dir().to_owned(), self.catalogs());
            let mut config = ClientConfig { dir, catalogs, ..ClientConfig::default() };
            change(&mut config);
            let client = Client::connect(config).expect("a client");
            let ready = |state| self.catalogs.is_empty() || state == Some(NodeState::Alive);
            let joined = client.members().iter().filter(|member| ready(member.state)).count();
            connected = Some(client);
            joined == nodes
        });
        connected.expect("it was waited for")
    }

    pub(crate) fn metric(&self, node: usize, name: &str) -> u64 {
        tidepool_testing::number(&self.nodes[node].metrics(), name)
    }
}

/// A node in a process of its own: this test binary, run once more.
pub(crate) struct NodeProcess {
    child: Child,
}

const NODE: &str = "TIDEPOOL_TEST_NODE";

impl NodeProcess {
    fn start(name: &str, dir: &Path, catalogs: &[String]) -> Self {
        let this = std::env::current_exe().expect("the test's own path");
        let mut child = Command::new(this)
            .args(["--exact", "cluster::runs_a_node_when_told_to", "--nocapture"])
            .env(NODE, format!("{name} {} {}", dir.display(), catalogs.join(" ")))
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a child process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains("node is ready"));
        assert!(ready, "the child ended before its node was ready");
        Self { child }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the child is there");
        if signal == Signal::STOP {
            // Its threads may run on for a moment.
            rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).expect("the child stops");
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other half of [`NodeProcess`]: a test that passes at once unless it is run as a child.
#[test]
fn runs_a_node_when_told_to() {
    let Ok(told) = std::env::var(NODE) else { return };
    let mut words = told.split(' ').map(str::to_owned);
    let (name, dir) = (words.next().expect("a name"), words.next().expect("a directory"));
    let catalogs = words.filter(|word| !word.is_empty()).collect();
    let config = NodeConfig { dir: dir.into(), catalogs, ..NodeConfig::small(&name) };
    let _node = Node::start(config).expect("a small node");
    println!("node is ready");
    // Ends with the test that started it, at the latest: its end of the pipe closes.
    let _ = std::io::stdin().read_line(&mut String::new());
}

pub(crate) fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a node's name")
}

pub(crate) fn prefer(node: &str) -> PutOptions {
    PutOptions { prefer: vec![name(node)], ..PutOptions::default() }
}

pub(crate) const MIB: ByteSize = ByteSize(1 << 20);
