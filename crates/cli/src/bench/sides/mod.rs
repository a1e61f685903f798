//! The sides of the benchmark: the roles that a side's process can have.

mod copy;
mod host;
mod lookup;
mod pool_client;
mod pool_get;
mod pool_put;
mod socket_receive;
mod socket_send;

pub use copy::{CopyPlan, Order, SourceKind};
pub use host::{CatalogPlan, FleetPlan, NodePlan};
pub use lookup::LookupPlan;
pub use pool_client::{KeyKind, PoolPlan};
pub use pool_get::{GetPlan, ONE_BY_ONE};
pub use pool_put::PutPlan;
pub use socket_receive::ReceivePlan;
pub use socket_send::SendPlan;

use super::serve::{Measured, serve};
use serde::{Deserialize, Serialize};
use std::io;

/// A side, with all of its settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "side", rename_all = "kebab-case")]
pub enum SidePlan {
    /// memcpy, in pieces.
    Copy(CopyPlan),
    /// The sending end of raw sockets.
    SocketSend(SendPlan),
    /// The receiving end of raw sockets.
    SocketReceive(ReceivePlan),
    /// A node.
    Node(NodePlan),
    /// A catalog.
    Catalog(CatalogPlan),
    /// Made-up nodes that fill a catalog.
    Fleet(FleetPlan),
    /// A client that gets.
    Get(GetPlan),
    /// A client that puts.
    Put(PutPlan),
    /// A client that looks up.
    Lookup(LookupPlan),
}

/// The hidden command line of a side.
#[derive(Debug, clap::Args)]
pub struct SideArgs {
    /// The plan, as JSON
    plan: String,
}

impl SideArgs {
    /// Sets the side up and serves it on standard input and output.
    pub fn serve(&self) -> io::Result<()> {
        let plan: SidePlan = serde_json::from_str(&self.plan)?;
        let mut side: Box<dyn Measured> = match plan {
            SidePlan::Copy(plan) => Box::new(plan.set_up()?),
            SidePlan::SocketSend(plan) => Box::new(plan.set_up()?),
            SidePlan::SocketReceive(plan) => Box::new(plan.set_up()?),
            SidePlan::Node(plan) => Box::new(plan.set_up()?),
            SidePlan::Catalog(plan) => Box::new(plan.set_up()?),
            SidePlan::Fleet(plan) => Box::new(plan.set_up()?),
            SidePlan::Get(plan) => Box::new(plan.set_up()?),
            SidePlan::Put(plan) => Box::new(plan.set_up()?),
            SidePlan::Lookup(plan) => Box::new(plan.set_up()?),
        };
        serve(&mut *side, io::stdin().lock(), io::stdout().lock())
    }
}
