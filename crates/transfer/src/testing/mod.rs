//! What tests of transports need: a node in the test's own process, and a proxy that breaks connections.

mod node;
mod proxy;

pub use node::TestNode;
pub use proxy::{Break, Proxy};

use crate::memory::MemoryNode;
use crate::tcp::{TcpConfig, TcpTransport};
use std::net::SocketAddr;
use std::time::Duration;
use tidepool_types::{BlockId, ClientId, Deadline, Epoch, Key, TenantSecret};

/// The incarnation of nodes that [`start_node`] starts.
pub const EPOCH: Epoch = Epoch(3);

/// A node that holds nothing yet.
#[must_use]
pub fn start_node() -> TestNode {
    TestNode::start(MemoryNode::new(EPOCH), crate::conn::TcpOptions::default())
}

/// A transport with `streams` streams to the node at `address`.
///
/// # Panics
/// If it cannot be connected.
#[must_use]
pub fn connect(address: SocketAddr, streams: usize) -> TcpTransport {
    let config = TcpConfig { streams, ..TcpConfig::default() };
    let until = Deadline::after(Duration::from_secs(10));
    TcpTransport::connect(address, EPOCH, ClientId(1), config, until).expect("a test's node answers")
}

/// The key of a test's block number `number`.
#[must_use]
pub fn block_key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// The id of a test's block number `number`.
///
/// # Panics
/// Never: eight bytes are a key.
#[must_use]
pub fn block_id(number: u64) -> BlockId {
    BlockId::derive(&TenantSecret::DEFAULT, Key::new(&block_key(number)).expect("eight bytes are a key"))
}

/// Bytes that differ from block to block and from place to place.
#[must_use]
pub fn block_bytes(number: u64, len: usize) -> Vec<u8> {
    let word = |at: u64| ((at + 1) ^ number << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}
