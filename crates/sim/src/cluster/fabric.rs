//! All that bytes and keys go through on their way: PCIe links, memories, NICs, disks and the catalogs.

use super::queue::{Kind, Load, Queue};
use super::store::Tier;
use super::{Cluster, Nanos};

/// The queues of a cluster, engines' GPUs apart.
pub(super) struct Fabric<'a> {
    cluster: &'a Cluster,
    pcie: Vec<Queue>,
    hosts: Vec<Host>,
    catalog: Queue,
    /// Bytes that went from one host to another.
    pub(super) network_bytes: u64,
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
        let pcie = vec![Queue::default(); engines as usize];
        let hosts = vec![Host::default(); hosts as usize];
        Self { cluster, pcie, hosts, catalog: Queue::default(), network_bytes: 0 }
    }

    /// The host of an engine.
    pub(super) fn host_of(&self, engine: u32) -> u32 {
        engine / self.cluster.engines_per_host.max(1)
    }

    fn bytes(&self, blocks: u64) -> f64 {
        (blocks * self.cluster.block_bytes) as f64
    }

    /// When the catalogs have said where `keys` blocks are.
    pub(super) fn ask(&mut self, now: Nanos, keys: usize) -> Nanos {
        let speed = &self.cluster.speed;
        self.catalog.join(now, keys as f64 / speed.catalog).after(Nanos::of_seconds(speed.look_up))
    }

    /// When blocks of one host's tier have got to the host of an engine.
    pub(super) fn fetch(&mut self, now: Nanos, engine: u32, (from, tier): (u32, Tier), blocks: u64) -> Nanos {
        let (bytes, to, speed) = (self.bytes(blocks), self.host_of(engine), &self.cluster.speed);
        let holder = &mut self.hosts[from as usize];
        let mut ready = holder.memory.join(now, bytes / speed.memory);
        if tier == Tier::Disk {
            ready = ready.max(holder.disk.join(now, bytes / speed.disk));
        }
        if from != to {
            self.network_bytes += bytes as u64;
            ready = ready.max(holder.nic_out.join(now, bytes / speed.nic));
            let reader = &mut self.hosts[to as usize];
            ready = ready.max(reader.nic_in.join(now, bytes / speed.nic));
            // Written by the NIC, and read on the way to the GPU.
            ready = ready.max(reader.memory.join(now, 2.0 * bytes / speed.memory));
        }
        ready
    }

    /// When blocks have got from its host to an engine.
    pub(super) fn load(&mut self, now: Nanos, engine: u32, blocks: u64) -> Nanos {
        let seconds = self.bytes(blocks) / self.cluster.speed.pcie;
        self.pcie[engine as usize].join(now, seconds)
    }

    /// An engine saves blocks on its host.
    pub(super) fn save(&mut self, now: Nanos, engine: u32, blocks: u64) {
        if blocks > 0 {
            let (bytes, host) = (self.bytes(blocks), self.host_of(engine) as usize);
            self.pcie[engine as usize].join(now, bytes / self.cluster.speed.pcie);
            self.hosts[host].memory.join(now, bytes / self.cluster.speed.memory);
        }
    }

    /// A host writes blocks to its disk.
    pub(super) fn demote(&mut self, now: Nanos, host: u32, blocks: u64) {
        let seconds = self.bytes(blocks) / self.cluster.speed.disk;
        self.hosts[host as usize].disk.join(now, seconds);
    }

    /// How busy everything was from one time to another.
    pub(super) fn loads(&self, span: (Nanos, Nanos)) -> impl Iterator<Item = Load> {
        let of = |kind, queue: fn(&Host) -> &Queue| Load::of(kind, self.hosts.iter().map(queue), span);
        [
            Load::of(Kind::Pcie, self.pcie.iter(), span),
            of(Kind::NicOut, |host| &host.nic_out),
            of(Kind::NicIn, |host| &host.nic_in),
            of(Kind::Memory, |host| &host.memory),
            of(Kind::Disk, |host| &host.disk),
            Load::of(Kind::Catalog, std::iter::once(&self.catalog), span),
        ]
        .into_iter()
    }
}
