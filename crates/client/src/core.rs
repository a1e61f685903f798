//! What all clones of a client and its background threads share.

use crate::bell::Bell;
use crate::catalogs::Catalogs;
use crate::config::{ClientConfig, Verify};
use crate::counters::Counters;
use crate::peers::{Context, Peer, Peers};
use crate::recorded::Recorded;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_store::{Mapping, ShmTransport};
use tidepool_transfer::carriers::Carriers;
use tidepool_transfer::copy::CopyPool;
use tidepool_transfer::tcp::TcpConfig;
use tidepool_types::{BlockId, ClientId, Deadline, InvalidInput, Key, TenantSecret, Version, drawn};

/// How often calls that miss a node may have the catalogs asked.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The heart of a client.
pub(crate) struct Core {
    pub(crate) config: ClientConfig,
    pub(crate) id: ClientId,
    /// Of the tenant that the client is of: keys have their ids under it.
    secret: TenantSecret,
    pub(crate) catalogs: Catalogs,
    pub(crate) peers: Peers,
    pub(crate) context: Arc<Context>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) recorded: Recorded,
    copies: Arc<CopyPool>,
    /// When a call last took a fresh look around.
    looked_again: Mutex<Option<Instant>>,
    /// Wakes the scout: something has changed on this host.
    pub(crate) scout: Bell,
    /// Wakes the watcher: there is a new socket to watch, or the client ends.
    pub(crate) watch: Arc<Wake>,
    stop: AtomicBool,
    /// The highest version that this client has given a block.
    pub(crate) last_version: Mutex<Version>,
}

/// A wake-up for a thread that sleeps in `poll`.
pub(crate) struct Wake(OwnedFd);

impl Wake {
    fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(crate) fn wake(&self) {
        // It fails only if the counter is full, and then the thread is being woken already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // It fails only if there was nothing to clear.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

impl Core {
    pub(crate) fn new(
        config: ClientConfig,
        catalogs: Catalogs,
        mapped: impl Fn(&Arc<Mapping>) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let counters = Arc::new(Counters::default());
        let id = ClientId(drawn());
        let context = Arc::new(Context {
            client: id,
            carriers: Carriers::tcp(
                TcpConfig { streams: config.tcp_streams, ..TcpConfig::default() },
                config.faults.clone(),
            ),
            connections: config.connections_per_node,
            catalogs: config.catalogs.clone(),
            counters: Arc::clone(&counters),
            leases: config.leases,
            lease_millis: AtomicU32::new(0),
            probe: Bell::default(),
        });
        let watch = Arc::new(Wake::new()?);
        let new_socket = Arc::clone(&watch);
        let on_mapped = move |peer: &Arc<Peer>| {
            new_socket.wake();
            if let Some(memory) = peer.memory() {
                mapped(&memory.mapping);
            }
        };
        Ok(Self {
            id,
            secret: TenantSecret::DEFAULT,
            catalogs,
            peers: Peers::new(Arc::clone(&context), config.local, on_mapped),
            copies: Arc::new(config.copy_threads.map_or_else(CopyPool::with_default_helpers, CopyPool::new)),
            context,
            counters,
            recorded: Recorded::default(),
            looked_again: Mutex::default(),
            scout: Bell::default(),
            watch,
            stop: AtomicBool::new(false),
            last_version: Mutex::new(Version(0)),
            config,
        })
    }

    /// Asks the catalogs for the members and takes over what they say. When none answers, what was known stays known, and
    /// the answer is false.
    pub(crate) fn refresh_members(&self, deadline: Deadline) -> bool {
        let answer = self.catalogs.members(deadline);
        // No member and not complete: no catalog has answered.
        let answered = answer.complete || !answer.members.is_empty();
        if let Some(lease) = answer.lease.filter(|_| self.config.leases) {
            self.set_lease(lease);
        }
        if answered {
            self.recorded.want(answer.recorded);
            self.peers.update_members(answer.members, answer.complete, deadline);
        }
        answered
    }

    /// For how long what this client reads is leased, if it is.
    pub(crate) fn lease(&self) -> Option<Duration> {
        let millis = self.context.lease_millis();
        (millis > 0).then(|| Duration::from_millis(millis.into()))
    }

    /// Takes over for how long reads are leased. Connections tell their node once: those that are idle are made anew.
    fn set_lease(&self, lease: Duration) {
        let millis = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        if self.context.lease_millis.swap(millis, Ordering::Relaxed) != millis {
            self.peers.table().all().for_each(|peer| peer.connect_anew());
        }
    }

    /// Asks the catalogs for the members because a node is missing, unless that has just been done: calls that miss one all
    /// the time must not ask all the time.
    pub(crate) fn look_again(&self, deadline: Deadline) -> bool {
        let mut last = self.looked_again.lock();
        if last.is_some_and(|last| last.elapsed() < LOOK_AGAIN) {
            return false;
        }
        *last = Some(Instant::now());
        drop(last);
        self.refresh_members(deadline)
    }

    /// The id that `key` has in the pool.
    pub(crate) fn id_of(&self, key: &[u8]) -> Result<BlockId, InvalidInput> {
        Ok(BlockId::derive(&self.secret, Key::new(key)?))
    }

    /// The ids that `keys` have in the pool, in order.
    pub(crate) fn ids_of<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<BlockId>, InvalidInput> {
        BlockId::derive_all(&self.secret, keys)
    }

    /// The id of each of `keys`, in order, or why it is no key.
    pub(crate) fn id_of_each(&self, keys: &[&[u8]]) -> Vec<Result<BlockId, InvalidInput>> {
        match self.ids_of(keys) {
            Ok(ids) => ids.into_iter().map(Ok).collect(),
            Err(_) => keys.iter().map(|key| self.id_of(key)).collect(),
        }
    }

    /// A transport over a mapped node; making one costs next to nothing.
    pub(crate) fn shm(&self, mapping: &Arc<Mapping>) -> ShmTransport {
        ShmTransport::new(Arc::clone(mapping), Arc::clone(&self.copies), self.config.verify == Verify::Always)
    }

    /// The threads that share large copies.
    pub(crate) fn copies(&self) -> &CopyPool {
        &self.copies
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Has the background threads end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.scout.ring();
        self.context.probe.ring();
        self.watch.wake();
    }
}
