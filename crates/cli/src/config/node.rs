//! `[node]`: a node's memory, addresses, limits and upkeep.

use super::{
    FieldError,
    peers::{Advertise, Catalogs},
    section::section,
    values::{Access, Admission, Dir, Eviction, Listen, Name},
};
use tidepool_types::{ByteSize, Span};

// A catalog calls itself complete once it has heard of every node within 100 ms. A node that waited less for catalogs
// would answer puts that such a catalog does not know of.
section! {
    /// The settings of a node.
    "node", flags "" => NodeConfig, NodeOptions, checked by check {
        "name" name: Name = "auto", "Name in the pool, the same after a restart; auto: this host's name";
        "dir" dir: Dir = "/dev/shm/tidepool", "Directory of the node's memory files and its Unix socket";
        "access" access: Access = "user", "Who may use the node's memory through its socket: user, group:NAME or everyone";
        "capacity" capacity: ByteSize = "256MiB" in "1MiB" to "16TiB", "Memory the node gives to the pool; allocated and touched at start";
        "smallest-expected-block" smallest_expected_block: ByteSize = "4KiB" in "64B" to "1GiB", "The node has capacity divided by this as its number of block slots";
        "eviction" eviction: Eviction = "lru", "Which block goes when room is needed: lru, s3fifo, sieve or agents, as in tidepool sim";
        "admission" admission: Admission = "all", "What comes in once the node is full: all, or second-sight for what came before and is remembered";
        "data-listen" data_listen: Listen = "127.0.0.1:7413", "TCP address that serves blocks to other hosts";
        "data-advertise" data_advertise: Advertise = "auto", "Address under which others reach data-listen; auto: data-listen itself";
        "metrics-listen" metrics_listen: Listen = "127.0.0.1:7414", "Address of the node's /metrics and /health";
        "catalogs" catalogs: Catalogs = "127.0.0.1:7411", "Catalogs that the node tells what it holds";
        "announce-timeout" announce_timeout: Span = "250ms" in "100ms" to "1m", "How long a put waits for a catalog to hear of it before that catalog counts as unhealthy";
        "scrub-rate" scrub_rate: ByteSize = "64MiB" in "0B" to "1TiB", "Bytes a second that the background check of stored blocks reads; 0B: no check";
        "max-connections" max_connections: u32 = "1024" in "4" to "65536", "Connections served at once; further ones are refused. A client may take four";
        "quarantine-limit" quarantine_limit: ByteSize = "64MiB" in "0B" to "16TiB", "Bytes that late writers of one client may keep from reuse before its puts go through the socket";
        "view-limit" view_limit: ByteSize = "256MiB" in "0B" to "16TiB", "Bytes that one client may pin by borrowed views; past it the client gets copies";
    }
}

/// Longest path of a Unix socket that Linux takes.
const LONGEST_SOCKET_PATH: usize = 107;

impl NodeConfig {
    /// Where the node's Unix socket is.
    pub fn socket_path(&self) -> std::path::PathBuf {
        self.dir.0.join(format!("{}.sock", self.name))
    }

    fn check(&self) -> Vec<FieldError> {
        [self.check_socket_path(), self.check_smallest_block(), self.check_advertised()].into_iter().flatten().collect()
    }

    /// An address for all interfaces tells other hosts nothing.
    fn check_advertised(&self) -> Option<FieldError> {
        if self.data_advertise != Advertise::Auto || !self.data_listen.0.ip().is_unspecified() {
            return None;
        }
        let allowed =
            format!("an address that others reach this host by, since node.data-listen is {}", self.data_listen);
        Some(FieldError::new("node.data-advertise", &self.data_advertise, allowed).against("node.data-listen"))
    }

    fn check_socket_path(&self) -> Option<FieldError> {
        let length = self.socket_path().as_os_str().len();
        if length <= LONGEST_SOCKET_PATH {
            return None;
        }
        let name = &self.name;
        let allowed = format!("a path that with /{name}.sock has at most {LONGEST_SOCKET_PATH} bytes, not {length}");
        Some(FieldError::new("node.dir", &self.dir, allowed).against("node.name"))
    }

    fn check_smallest_block(&self) -> Option<FieldError> {
        if self.smallest_expected_block <= self.capacity {
            return None;
        }
        let allowed = format!("at most node.capacity, which is {}", self.capacity);
        let error = FieldError::new("node.smallest-expected-block", self.smallest_expected_block, allowed);
        Some(error.against("node.capacity"))
    }
}
