//! The control plane's schema: the code generated from `proto/tidepool/v1/catalog.proto`, and what both ends of it agree on.
//!
//! The generated items are documented by the schema's comments; `docs/catalog.md` says what the messages mean together.
//! A crate of its own, so that the data plane is compiled without gRPC.
#![forbid(unsafe_code)]

use catalog_client::CatalogClient;
use prost::bytes::Bytes;
use std::time::Duration;
use tidepool_types::BlockId;
use tonic::transport::{Channel, Endpoint, Error};

#[expect(missing_docs, reason = "generated: not every field of the schema has a comment of its own")]
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    unreachable_pub,
    reason = "generated: written by prost and tonic, not by hand, and it differs from version to version"
)]
mod generated {
    tonic::include_proto!("tidepool.v1");
}

pub use generated::*;

/// Most ids in one message: of a look-up, of a page, of a batch of deltas.
pub const MAX_IDS: usize = 1 << 18;

/// Most holders that an answer lists for one id.
pub const MAX_HOLDERS: usize = 8;

/// Most chains in one `MatchPrefix`.
pub const MAX_CHAINS: usize = 4096;

/// The longest that a `Wait` takes; one that asks for longer is answered then.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A subscriber of `Watch` hears something at least this often from a catalog that is there.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Largest message either side takes: the answer to [`MAX_IDS`] ids with [`MAX_HOLDERS`] holders each, and the nodes.
pub const MAX_MESSAGE_LEN: usize = 16 << 20;

/// HTTP/2 window of a stream: one whole batch of ids travels without waiting for the other side.
pub const STREAM_WINDOW: u32 = 4 << 20;

/// HTTP/2 window of a connection.
pub const CONNECTION_WINDOW: u32 = 16 << 20;

/// Largest HTTP/2 frame: a batch of 5,000 ids goes out as one.
pub const MAX_FRAME_LEN: u32 = 1 << 20;

/// The kind of a delta that takes a block away; every other kind is the tier in which the block is from now on.
pub const REMOVED: u8 = 255;

/// Bytes of one holder in a `holders` field.
pub const HOLDER_LEN: usize = 4;

/// A kind of look-up: the longest runs of chains. A bit of `recorded`, `wanted` and `kinds`.
pub const PREFIX_MATCH: u8 = 1;

/// A kind of look-up: which of some ids there are.
pub const EXISTENCE_CHECK: u8 = 2;

/// Look-ups that are missing from what a recorder hears, by why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// A client made more of them than it keeps between two reports.
    pub dropped: u64,
    /// No catalog answered the client's report in time. One may have taken it all the same.
    pub untold: u64,
    /// The recorder did not keep up with the catalog.
    pub unheard: u64,
}

impl Missing {
    /// What a report says.
    #[must_use]
    pub const fn of(report: &LookupReport) -> Self {
        Self { dropped: report.dropped, untold: report.untold, unheard: report.unheard }
    }

    /// All of these and those.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            dropped: self.dropped.saturating_add(other.dropped),
            untold: self.untold.saturating_add(other.untold),
            unheard: self.unheard.saturating_add(other.unheard),
        }
    }

    /// How many, whatever the reason.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.dropped.saturating_add(self.untold).saturating_add(self.unheard)
    }
}

/// How to reach the catalog at `address` (`host:port`), with the windows and limits that fit its messages.
pub fn endpoint(address: &str, connect_within: Duration) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint
        .connect_timeout(connect_within)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME_LEN))
}

/// A client over `channel`, with the limits that fit the catalog's messages.
#[must_use]
pub fn client(channel: Channel) -> CatalogClient<Channel> {
    CatalogClient::new(channel).max_decoding_message_size(MAX_MESSAGE_LEN).max_encoding_message_size(MAX_MESSAGE_LEN)
}

/// Packs ids into one field.
#[must_use]
pub fn pack_ids<'a>(ids: impl ExactSizeIterator<Item = &'a BlockId>) -> Bytes {
    let mut packed = Vec::with_capacity(ids.len() * BlockId::LEN);
    for id in ids {
        packed.extend_from_slice(id.as_bytes());
    }
    packed.into()
}

/// The ids of a packed field, whose length the caller has checked: a ragged end is left out.
pub fn unpack_ids(packed: &[u8]) -> impl ExactSizeIterator<Item = BlockId> + '_ {
    let (ids, _) = packed.as_chunks::<{ BlockId::LEN }>();
    ids.iter().map(|id| BlockId::from_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_ids_come_out_as_they_went_in() {
        let ids: Vec<_> = (0..100u64).map(|n| BlockId::from_words([n, !n])).collect();
        let packed = pack_ids(ids.iter());
        assert_eq!(packed.len(), 1600);
        assert_eq!(unpack_ids(&packed).collect::<Vec<_>>(), ids);
    }
}
