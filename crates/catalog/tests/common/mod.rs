//! A node driven by hand, and questions to a catalog.
#![allow(dead_code, reason = "every test file uses a part of this")]

use std::time::Duration;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema::catalog_client::CatalogClient;
use tidepool_schema::inventory_up::Message;
use tidepool_schema::{
    self as wire, Ack, Deltas, Heartbeat, Hello, InventoryDown, InventoryUp, LookupRequest, Member, NodeInfo,
    SnapshotPage, Want, inventory_down, pack_ids,
};
use tidepool_types::BlockId;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

pub(crate) fn id(n: u64) -> BlockId {
    BlockId::from_words([n, !n])
}

/// A catalog with short limits, so that tests end in moments.
pub(crate) fn quick() -> CatalogConfig {
    CatalogConfig {
        settle: Duration::ZERO,
        suspect_after: Duration::from_millis(200),
        dead_after: Duration::from_millis(600),
        ack_bound: Duration::from_millis(150),
        ..CatalogConfig::default()
    }
}

/// A catalog whose nodes stay alive, however long a test takes on a busy host.
pub(crate) fn calm() -> CatalogConfig {
    let (suspect_after, dead_after) = (Duration::from_secs(600), Duration::from_secs(1200));
    CatalogConfig { suspect_after, dead_after, ..quick() }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub(crate) struct Asker {
    runtime: Runtime,
    pub(crate) client: CatalogClient<Channel>,
}

impl Asker {
    pub(crate) fn new(server: &Server) -> Self {
        let runtime = runtime();
        let connect = async { connect(&server.address().to_string()).await };
        let client = runtime.block_on(connect);
        Self { runtime, client }
    }

    pub(crate) fn run<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Has a call go on by itself, until it is awaited or aborted.
    pub(crate) fn spawn<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.runtime.spawn(call)
    }

    /// The names of the holders of each id.
    pub(crate) fn holders(&self, ids: impl Iterator<Item = u64>) -> Vec<Vec<String>> {
        let ids: Vec<_> = ids.map(id).collect();
        let request =
            LookupRequest { ids: pack_ids(ids.iter()), want: Want::Holders.into(), lease: false, vouch: false };
        let reply = self.run(self.client.clone().lookup(request)).unwrap().into_inner();
        let mut holders = reply.holders.chunks(4).map(|h| usize::from(u16::from_le_bytes([h[0], h[1]])));
        let names =
            |count: &u8| holders.by_ref().take(usize::from(*count)).map(|n| reply.nodes[n].name.clone()).collect();
        reply.counts.iter().map(names).collect()
    }

    pub(crate) fn member(&self, name: &str) -> Option<Member> {
        let reply = self.run(self.client.clone().members(wire::MembersRequest::default())).unwrap().into_inner();
        reply.members.into_iter().find(|member| member.node.as_ref().is_some_and(|node| node.name == name))
    }

    pub(crate) fn state(&self, name: &str) -> Option<wire::NodeState> {
        self.member(name).map(|member| member.state())
    }
}

async fn connect(address: &str) -> CatalogClient<Channel> {
    let channel = wire::endpoint(address, Duration::from_secs(5)).unwrap().connect().await.unwrap();
    wire::client(channel)
}

/// A node whose every message is a line in a test.
pub(crate) struct HandNode {
    runtime: Runtime,
    up: mpsc::Sender<InventoryUp>,
    down: Streaming<InventoryDown>,
}

impl HandNode {
    pub(crate) fn connect(server: &Server, name: &str, epoch: u64) -> Result<Self, Status> {
        let runtime = runtime();
        let (up, messages) = mpsc::channel(16);
        let info = NodeInfo { name: name.to_owned(), epoch, ..NodeInfo::default() };
        let hello = InventoryUp { message: Some(Message::Hello(Hello { node: Some(info), ack_bound_millis: 0 })) };
        let address = server.address().to_string();
        let down = runtime.block_on(async {
            up.send(hello).await.unwrap();
            connect(&address).await.inventory(ReceiverStream::new(messages)).await
        })?;
        Ok(Self { runtime, up, down: down.into_inner() })
    }

    /// Sends a message and takes the answer to it.
    pub(crate) fn say(&mut self, message: Message) -> Result<inventory_down::Message, Status> {
        let up = InventoryUp { message: Some(message) };
        self.runtime.block_on(async {
            let _ = self.up.send(up).await;
            let down = self.down.message().await?.ok_or_else(|| Status::aborted("the stream ended"))?;
            down.message.ok_or_else(|| Status::internal("an empty answer"))
        })
    }

    fn acknowledged(&mut self, message: Message) -> Ack {
        match self.say(message).unwrap() {
            inventory_down::Message::Ack(ack) => ack,
            inventory_down::Message::Resync(resync) => panic!("resync: {}", resync.reason),
        }
    }

    /// Holds exactly these blocks.
    pub(crate) fn snapshot(&mut self, number: u64, as_of: u64, ids: impl Iterator<Item = u64>) -> Ack {
        let ids: Vec<_> = ids.map(id).collect();
        let ids = pack_ids(ids.iter());
        let page = SnapshotPage { snapshot: number, page: 0, as_of, ids, last: true, ..SnapshotPage::default() };
        self.acknowledged(Message::Page(page))
    }

    pub(crate) fn deltas(&mut self, first: u64, kind: u8, ids: impl Iterator<Item = u64>) -> Ack {
        let ids: Vec<_> = ids.map(id).collect();
        let (kinds, ids) = (vec![kind; ids.len()].into(), pack_ids(ids.iter()));
        self.acknowledged(Message::Deltas(Deltas { first, ids, kinds }))
    }

    pub(crate) fn heartbeat(&mut self, latest: u64, echo: u64) -> Result<Ack, Status> {
        match self.say(Message::Heartbeat(Heartbeat { latest, echo, used_bytes: 7 }))? {
            inventory_down::Message::Ack(ack) => Ok(ack),
            inventory_down::Message::Resync(resync) => panic!("resync: {}", resync.reason),
        }
    }

    pub(crate) fn goodbye(&mut self) {
        let up = InventoryUp { message: Some(Message::Goodbye(wire::Goodbye {})) };
        self.runtime.block_on(self.up.send(up)).unwrap();
    }
}
