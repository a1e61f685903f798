//! What a node is made of.

use crate::access::Access;
use std::path::PathBuf;
use std::time::Duration;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_transfer::fault::FaultPlan;
use tidepool_types::{ByteSize, NodeName};

/// A node's settings. The command line documents each under the same name.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's name, unique in the pool.
    pub name: NodeName,
    /// Where its shared files and its Unix socket are: a memory file system.
    pub dir: PathBuf,
    /// Who may use its memory, through the socket.
    pub access: Access,
    /// Bytes for blocks.
    pub capacity: ByteSize,
    /// Decides how many slots there are: capacity divided by this.
    pub smallest_expected_block: ByteSize,
    /// Which block goes when room is needed.
    pub eviction: Policy,
    /// Which blocks come in once it is full.
    pub admission: Rule,
    /// The TCP address to listen on, `host:port`; port 0 takes any.
    pub data_listen: String,
    /// The address that other hosts reach it by; the one it listens on if not given.
    pub data_advertise: Option<String>,
    /// Catalogs to announce to, `host:port` each.
    pub catalogs: Vec<String>,
    /// How long a put waits for a catalog's acknowledgement before that catalog counts as unhealthy.
    pub announce_timeout: Duration,
    /// Bytes per second that the scrubber verifies; zero turns it off.
    pub scrub_rate: ByteSize,
    /// Connections served at once; further ones are refused.
    pub max_connections: usize,
    /// Bytes that one process may have in late reservations before its puts go through the socket.
    pub quarantine_limit: ByteSize,
    /// Bytes that one process may pin by views; past it views are copies.
    pub view_limit: ByteSize,
    /// Faults of the transports over which this node copies blocks from others: for tests.
    pub faults: FaultPlan,
}

impl NodeConfig {
    /// A small node on loopback that announces to nobody: for tests and examples.
    ///
    /// # Panics
    /// If `name` cannot name a node.
    #[must_use]
    pub fn small(name: &str) -> Self {
        Self {
            name: NodeName::new(name).expect("the name is a valid node name"),
            dir: PathBuf::from("/dev/shm/tidepool"),
            access: Access::default(),
            capacity: ByteSize(16 << 20),
            smallest_expected_block: ByteSize(4 << 10),
            eviction: Policy::default(),
            admission: Rule::default(),
            data_listen: "127.0.0.1:0".to_owned(),
            data_advertise: None,
            catalogs: Vec::new(),
            announce_timeout: Duration::from_millis(250),
            scrub_rate: ByteSize(64 << 20),
            max_connections: 1024,
            quarantine_limit: ByteSize(64 << 20),
            view_limit: ByteSize(256 << 20),
            faults: FaultPlan::default(),
        }
    }
}
