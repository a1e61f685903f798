//! The part that all sides with a pool's client share: the client's settings, and keys of the kinds that engines have.

use crate::bench::PlantedDelay;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tidepool_client::{Client, ClientConfig};
use tidepool_types::{BlockId, Key, TenantSecret};

/// Settings of a pool's client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PoolPlan {
    /// The directory of the nodes' sockets.
    pub dir: PathBuf,
    /// Catalogs to ask.
    pub catalogs: Vec<String>,
    /// Whether the client may use shared memory; otherwise TCP, even on the same host.
    pub local: bool,
    /// TCP connections to the node.
    pub streams: u32,
    /// Planted delay of the client's operations.
    pub planted_delay: PlantedDelay,
}

impl PoolPlan {
    /// Connects a client.
    pub(super) fn connect(&self) -> io::Result<Client> {
        let config = ClientConfig {
            dir: self.dir.clone(),
            catalogs: self.catalogs.clone(),
            local: self.local,
            tcp_streams: self.streams as usize,
            deadline: Duration::from_secs(30),
            ..ClientConfig::default()
        };
        Client::connect(config).map_err(io::Error::other)
    }
}

/// The kind of keys.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// 90 bytes of text, as vLLM's Mooncake connector makes them.
    Text,
    /// 32 bytes, a hash.
    Hash,
}

impl KeyKind {
    /// Key number `n`.
    pub fn key(self, n: u64) -> Vec<u8> {
        match self {
            Self::Text => {
                let hash = tidepool_types::mix(n);
                format!("organisation/model-70b-instruct@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@{n:08x}{hash:012x}")
                    .into_bytes()
                    .into_iter()
                    .chain(std::iter::repeat(b'.'))
                    .take(90)
                    .collect()
            }
            Self::Hash => (0..4).flat_map(|word| tidepool_types::mix(n * 4 + word).to_le_bytes()).collect(),
        }
    }

    /// The id of key number `n`.
    pub fn id(self, n: u64) -> BlockId {
        let key = self.key(n);
        BlockId::derive(&TenantSecret::DEFAULT, Key::new(&key).expect("benchmark keys are of a valid length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_length_and_are_different() {
        for (kind, len) in [(KeyKind::Text, 90), (KeyKind::Hash, 32)] {
            let keys: std::collections::HashSet<_> = (0..1000).map(|n| kind.key(n)).collect();
            assert_eq!(keys.len(), 1000);
            assert!(keys.iter().all(|key| key.len() == len));
        }
    }
}
