//! Nodes that do not exist: inventory streams with made-up blocks, to fill a catalog for benchmarks and tests.
//!
//! A [`Fleet`] speaks the protocol as real nodes do, heartbeats included, so a catalog that it fills becomes complete.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tidepool_schema::{
    self as wire, Ack, Heartbeat, Hello, InventoryDown, InventoryUp, NodeInfo, SnapshotPage, inventory_down,
    inventory_up::Message, pack_ids,
};
use tidepool_types::BlockId;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// Names the n-th made-up block.
pub type IdOf = Arc<dyn Fn(u64) -> BlockId + Send + Sync>;

/// Ids in a page.
const PAGE: u64 = 8192;
/// Pages on their way at a time.
const IN_FLIGHT: u64 = 8;
const HEARTBEAT: Duration = Duration::from_millis(25);

/// Why a fleet could not fill a catalog.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The threads cannot be started.
    #[error("cannot start the fleet's threads: {0}")]
    Threads(#[from] io::Error),
    /// The catalog cannot be reached.
    #[error("cannot reach the catalog: {0}")]
    Connect(#[from] tonic::transport::Error),
    /// The catalog ended a stream.
    #[error("the catalog ended a stream: {0}")]
    Ended(#[from] tonic::Status),
    /// The catalog asked for another snapshot: a stream that loses nothing never needs one.
    #[error("the catalog did not follow: {0}")]
    Resync(String),
}

/// Made-up nodes whose streams stay open until this is dropped.
pub struct Fleet {
    runtime: Option<Runtime>,
    streams: JoinSet<Result<(), FleetError>>,
}

impl Fleet {
    /// Connects `nodes` nodes to the catalog at `address` and waits until it has taken over all of `blocks` blocks, which
    /// the nodes hold in turn.
    pub fn fill(address: &str, nodes: u64, blocks: u64, id_of: IdOf) -> Result<Self, FleetError> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("fleet").enable_all().build()?;
        let mut streams = JoinSet::new();
        let (loaded, mut all_loaded) = mpsc::channel::<()>(1);
        for node in 0..nodes {
            let part = Part { node, nodes, blocks, id_of: id_of.clone() };
            streams.spawn_on(part.announce(address.to_owned(), loaded.clone()), runtime.handle());
        }
        drop(loaded);
        // Every stream drops its sender when the catalog has its last page; one that ends before that has failed.
        runtime.block_on(all_loaded.recv());
        let mut fleet = Self { runtime: Some(runtime), streams };
        match fleet.streams.try_join_next() {
            Some(Ok(Err(error))) => Err(error),
            Some(_) => Err(FleetError::Resync("a stream ended early".to_owned())),
            None => Ok(fleet),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.streams.abort_all();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What one node of the fleet holds: every `nodes`-th block.
struct Part {
    node: u64,
    nodes: u64,
    blocks: u64,
    id_of: IdOf,
}

impl Part {
    async fn announce(self, address: String, loaded: mpsc::Sender<()>) -> Result<(), FleetError> {
        let channel = wire::endpoint(&address, Duration::from_secs(5))?.connect().await?;
        let (up, messages) = mpsc::channel(4);
        send(&up, Message::Hello(self.hello())).await;
        let mut down = wire::client(channel).inventory(ReceiverStream::new(messages)).await?.into_inner();
        let pages = self.blocks.div_ceil(self.nodes).div_ceil(PAGE);
        for page in 0..=pages {
            send(&up, Message::Page(self.page(page, page == pages))).await;
            if page >= IN_FLIGHT {
                acknowledged(&mut down).await?;
            }
        }
        while acknowledged(&mut down).await?.pages <= pages {}
        drop(loaded);
        let mut probe = 0;
        loop {
            send(&up, Message::Heartbeat(Heartbeat { latest: 0, echo: probe, used_bytes: 0 })).await;
            probe = acknowledged(&mut down).await?.probe;
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    fn hello(&self) -> Hello {
        let (name, data_address) = (format!("made-up-{}", self.node), format!("192.0.2.1:{}", 1000 + self.node));
        Hello { node: Some(NodeInfo { name, epoch: 1, data_address, ..NodeInfo::default() }), ack_bound_millis: 0 }
    }

    /// The last page is empty: it says that the ones before it were all.
    fn page(&self, page: u64, last: bool) -> SnapshotPage {
        let first = page * PAGE;
        let held = (first..first + PAGE).map(|n| n * self.nodes + self.node).take_while(|n| *n < self.blocks);
        let ids: Vec<_> = held.map(|n| (self.id_of)(n)).collect();
        SnapshotPage { snapshot: 1, page, as_of: 0, ids: pack_ids(ids.iter()), last, ..SnapshotPage::default() }
    }
}

async fn send(up: &mpsc::Sender<InventoryUp>, message: Message) {
    // A closed channel means that the stream ended; reading its answers says why.
    let _ = up.send(InventoryUp { message: Some(message) }).await;
}

async fn acknowledged(down: &mut Streaming<InventoryDown>) -> Result<Ack, FleetError> {
    match down.message().await?.and_then(|down| down.message) {
        Some(inventory_down::Message::Ack(ack)) => Ok(ack),
        Some(inventory_down::Message::Resync(resync)) => Err(FleetError::Resync(resync.reason)),
        None => Err(FleetError::Resync("the stream ended".to_owned())),
    }
}
