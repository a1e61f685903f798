//! The fabric: every queue of a cluster. GPUs, PCIe links, memories, NICs, disks and catalogs.

use super::history::History;
use super::queue::{Kind, Load, Queue};
use super::store::Tier;
use super::{Cluster, Nanos};

/// The queues of a cluster.
pub(super) struct Fabric<'a> {
    cluster: &'a Cluster,
    engines: Vec<Engine>,
    hosts: Vec<Host>,
    catalog: Queue,
    history: History,
    /// How long requests waited, by kind of queue.
    waited: [Nanos; Kind::ALL.len()],
    /// Bytes that went from one host to another.
    pub(super) network_bytes: u64,
}

#[derive(Default, Clone)]
struct Engine {
    gpu: Queue,
    pcie: Queue,
}

#[derive(Default, Clone)]
struct Host {
    nic_in: Queue,
    nic_out: Queue,
    memory: Queue,
    disk: Queue,
}

impl<'a> Fabric<'a> {
    pub(super) fn new(cluster: &'a Cluster, engines: u32, hosts: u32) -> Self {
        let engines = vec![Engine::default(); engines as usize];
        let hosts = vec![Host::default(); hosts as usize];
        Self {
            cluster,
            engines,
            hosts,
            catalog: Queue::default(),
            history: History::default(),
            waited: [Nanos::default(); Kind::ALL.len()],
            network_bytes: 0,
        }
    }

    /// The host of an engine.
    pub(super) fn host_of(&self, engine: u32) -> u32 {
        engine / self.cluster.engines_per_host.max(1)
    }

    fn bytes(&self, blocks: u64) -> f64 {
        blocks as f64 * self.cluster.block_bytes as f64
    }

    /// Notes that a request waited.
    pub(super) fn note_wait(&mut self, kind: Kind, span: Nanos) {
        let waited = &mut self.waited[kind as usize];
        *waited = waited.after(span);
    }

    /// The time at which an engine has finished work of `seconds`.
    pub(super) fn compute(&mut self, now: Nanos, engine: u32, seconds: f64) -> Nanos {
        self.engines[engine as usize].gpu.join(now, seconds)
    }

    /// The time at which the catalogs have answered for `keys` blocks.
    pub(super) fn ask(&mut self, now: Nanos, keys: usize) -> Nanos {
        let speed = &self.cluster.speed;
        self.note_wait(Kind::Catalog, self.catalog.wait(now));
        self.catalog.join(now, keys as f64 / speed.catalog).after(Nanos::of_seconds(speed.look_up))
    }

    /// The time at which blocks from some hosts' tiers have arrived at the host of an engine.
    pub(super) fn fetch(&mut self, now: Nanos, engine: u32, sources: &[(u32, Tier, u64)]) -> Nanos {
        self.wait_for(now, engine, sources);
        let ready = sources.iter().map(|(from, tier, blocks)| self.fetch_one(now, engine, (*from, *tier), *blocks));
        ready.max().unwrap_or(now)
    }

    /// Notes how long a request waits for blocks, before they join the queues: it does not wait for itself. It waits in
    /// all queues at once, and so as long as in the fullest queue of a kind.
    fn wait_for(&mut self, now: Nanos, engine: u32, sources: &[(u32, Tier, u64)]) {
        let (mut longest, to) = ([Nanos::default(); Kind::ALL.len()], self.host_of(engine));
        let mut wait = |kind: Kind, queue: &Queue| longest[kind as usize] = longest[kind as usize].max(queue.wait(now));
        let reader = &self.hosts[to as usize];
        for (from, tier, _) in sources {
            let holder = &self.hosts[*from as usize];
            wait(Kind::Memory, &holder.memory);
            if *tier == Tier::Disk {
                wait(Kind::Disk, &holder.disk);
            }
            if *from != to {
                wait(Kind::NicOut, &holder.nic_out);
                wait(Kind::NicIn, &reader.nic_in);
                wait(Kind::Memory, &reader.memory);
            }
        }
        for kind in Kind::ALL {
            self.note_wait(kind, longest[kind as usize]);
        }
    }

    fn fetch_one(&mut self, now: Nanos, engine: u32, (from, tier): (u32, Tier), blocks: u64) -> Nanos {
        let (bytes, to, speed) = (self.bytes(blocks), self.host_of(engine), &self.cluster.speed);
        let holder = &mut self.hosts[from as usize];
        let mut ready = holder.memory.join(now, bytes / speed.memory);
        if tier == Tier::Disk {
            ready = ready.max(holder.disk.join(now, bytes / speed.disk));
        }
        if from != to {
            self.network_bytes = self.network_bytes.saturating_add(bytes as u64);
            ready = ready.max(holder.nic_out.join(now, bytes / speed.nic));
            let reader = &mut self.hosts[to as usize];
            ready = ready.max(reader.nic_in.join(now, bytes / speed.nic));
            // The NIC writes the bytes, and the GPU reads them.
            ready = ready.max(reader.memory.join(now, 2.0 * bytes / speed.memory));
        }
        ready
    }

    /// The time at which an engine has loaded blocks from its host.
    pub(super) fn load(&mut self, now: Nanos, engine: u32, blocks: u64) -> Nanos {
        let seconds = self.bytes(blocks) / self.cluster.speed.pcie;
        self.note_wait(Kind::Pcie, self.engines[engine as usize].pcie.wait(now));
        self.engines[engine as usize].pcie.join(now, seconds)
    }

    /// An engine saves blocks on its host.
    pub(super) fn save(&mut self, now: Nanos, engine: u32, blocks: u64) {
        if blocks > 0 {
            let (bytes, host) = (self.bytes(blocks), self.host_of(engine) as usize);
            self.engines[engine as usize].pcie.join(now, bytes / self.cluster.speed.pcie);
            self.hosts[host].memory.join(now, bytes / self.cluster.speed.memory);
        }
    }

    /// A host writes blocks to its disk.
    pub(super) fn demote(&mut self, now: Nanos, host: u32, blocks: u64) {
        let seconds = self.bytes(blocks) / self.cluster.speed.disk;
        self.hosts[host as usize].disk.join(now, seconds);
    }

    /// Records the work of every queue, when that is due.
    pub(super) fn remember(&mut self, now: Nanos) {
        if self.history.is_due(now) {
            self.note(now);
        }
    }

    fn note(&mut self, now: Nanos) {
        let mut history = std::mem::take(&mut self.history);
        history.note(now, Kind::ALL.iter().flat_map(|kind| self.queues(*kind)));
        self.history = history;
    }

    /// The load of every queue from one time to another, in a run that ends `now`.
    pub(super) fn loads(&mut self, now: Nanos, from: Nanos, until: Nanos) -> Vec<Load> {
        self.note(now);
        let mut busy = self.history.busy(from, until).into_iter();
        let mut load = |kind: Kind| {
            Load::of(kind, self.queues(kind).zip(&mut busy).map(|(_, busy)| busy), self.waited[kind as usize])
        };
        Kind::ALL.map(&mut load).into()
    }

    fn queues(&self, kind: Kind) -> Box<dyn Iterator<Item = &Queue> + '_> {
        match kind {
            Kind::Gpu => Box::new(self.engines.iter().map(|engine| &engine.gpu)),
            Kind::Pcie => Box::new(self.engines.iter().map(|engine| &engine.pcie)),
            Kind::NicOut => Box::new(self.hosts.iter().map(|host| &host.nic_out)),
            Kind::NicIn => Box::new(self.hosts.iter().map(|host| &host.nic_in)),
            Kind::Memory => Box::new(self.hosts.iter().map(|host| &host.memory)),
            Kind::Disk => Box::new(self.hosts.iter().map(|host| &host.disk)),
            Kind::Catalog => Box::new(std::iter::once(&self.catalog)),
        }
    }
}
