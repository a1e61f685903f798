//! The spaces of a node, one for each tenant, and what the node keeps beside each of them. One tenant is live: `default`.

use crate::config::NodeConfig;
use crate::leases::NodeLeases;
use crate::pull::UnderWay;
use crate::pulls::LatePulls;
use crate::reservations::Reservations;
use std::ops::Deref;
use std::sync::Arc;
use tidepool_store::{NodeMemoryConfig, OpenError, Space, SpaceLimits};
use tidepool_types::{Epoch, TenantSecret};
use tidepool_wire::message::Hello;

/// One tenant's space, and who writes to it, reads it and copies it.
pub(crate) struct LiveSpace {
    space: Space,
    pub(crate) reservations: Reservations,
    pub(crate) leases: Arc<NodeLeases>,
    /// Nodes that copy blocks from here.
    pub(crate) pulls: LatePulls,
    /// Blocks that are copied to here.
    pub(crate) under_way: UnderWay,
}

impl Deref for LiveSpace {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

/// All spaces of a node.
pub(crate) struct Spaces {
    default: Arc<LiveSpace>,
}

impl Spaces {
    /// Makes the spaces of a node of incarnation `epoch`, for as long as `go_on` says yes.
    pub(crate) fn create(config: &NodeConfig, epoch: Epoch, go_on: &dyn Fn() -> bool) -> Result<Self, OpenError> {
        let memory = NodeMemoryConfig {
            dir: config.dir.clone(),
            name: config.name.clone(),
            secret: TenantSecret::DEFAULT,
            epoch,
            capacity: config.capacity,
            smallest_expected_block: config.smallest_expected_block,
            eviction: config.eviction,
            admission: config.admission,
        };
        let limits = SpaceLimits { quarantine_bytes: config.quarantine_limit.0, view_bytes: config.view_limit.0 };
        let space = LiveSpace {
            space: Space::create(&memory, limits, Vec::new(), go_on)?,
            reservations: Reservations::default(),
            leases: NodeLeases::new(),
            pulls: LatePulls::default(),
            under_way: UnderWay::default(),
        };
        Ok(Self { default: Arc::new(space) })
    }

    /// The space of a client that says hello.
    pub(crate) fn at_hello(&self, _hello: &Hello) -> &Arc<LiveSpace> {
        &self.default
    }

    /// The space of a client in the node's own process.
    pub(crate) fn in_process(&self) -> &Arc<LiveSpace> {
        &self.default
    }

    /// The space that the node announces and counts.
    pub(crate) fn announced(&self) -> &Arc<LiveSpace> {
        &self.default
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<LiveSpace>> {
        std::iter::once(&self.default)
    }
}
