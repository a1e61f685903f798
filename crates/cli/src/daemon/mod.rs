//! Daemons: a part (a catalog or a node), its pages, and an orderly end.
//!
//! The pages are up before the part starts and until it has stopped, so that `/health` tells starting (503), serving (200)
//! and stopping (503) apart.

mod descriptors;
mod parts;
mod signals;

pub use parts::{catalog_config, node_config};
pub use signals::{Signals, stop_flag};

use crate::{
    config::Listen,
    expose::{Endpoint, Health, Source},
    logs::Meter,
};
use serde_json::json;
use std::{io, net::SocketAddr, sync::Arc};
use tidepool_catalog::{NameConflict, Server};
use tidepool_locks::RwLock;
use tidepool_node::{Node, announce::CatalogStatus};
use tidepool_types::Metric;

/// Why a daemon did not start. Every message names the field, and the address or mount.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The daemon cannot listen on the address for metrics and health.
    #[error("{section}.metrics-listen {address}: {source}")]
    Metrics {
        /// The section of the configuration.
        section: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The catalog did not start.
    #[error("{}", parts::explain_catalog(.0))]
    Catalog(#[from] tidepool_catalog::StartError),
    /// The node did not start.
    #[error("{}", parts::explain_node(.0))]
    Node(#[from] tidepool_node::StartError),
}

impl StartError {
    /// Whether a signal ended the start.
    pub const fn is_stop(&self) -> bool {
        matches!(self, Self::Node(tidepool_node::StartError::Memory(tidepool_store::OpenError::Stopped)))
    }
}

/// The part that a daemon runs.
pub trait Part: Send + Sync + 'static {
    /// Its section of the configuration.
    const SECTION: &'static str;
    /// The part's metrics.
    fn metrics(&self) -> Vec<Metric>;
    /// The part's fields on `/health`, beside its status.
    fn details(&self) -> serde_json::Value;
}

/// A running part with its pages. Dropping it stops the part, then the pages.
pub struct Daemon<P: Part> {
    shown: Arc<Shown<P>>,
    endpoint: Endpoint,
}

struct Shown<P> {
    /// Locked to read for the pages, to write only for start and stop.
    state: RwLock<State<P>>,
    log: Meter,
}

enum State<P> {
    Starting,
    Serving(P),
    Stopping,
}

impl<P: Part> Daemon<P> {
    /// Opens the pages at `listen`, then starts the part.
    pub fn start<E>(listen: Listen, log: Meter, start: impl FnOnce() -> Result<P, E>) -> Result<Self, StartError>
    where
        StartError: From<E>,
    {
        descriptors::raise();
        let shown = Arc::new(Shown { state: RwLock::new(State::Starting), log });
        let endpoint = Endpoint::start(listen.0, Arc::clone(&shown) as _).map_err(|source| StartError::Metrics {
            section: P::SECTION,
            address: listen.0,
            source,
        })?;
        let daemon = Self { shown, endpoint };
        let part = start()?;
        *daemon.shown.state.write() = State::Serving(part);
        Ok(daemon)
    }

    /// The address of `/metrics` and `/health`.
    pub const fn metrics_address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    /// Calls `question` with the part.
    pub fn ask<T>(&self, question: impl FnOnce(&P) -> T) -> T {
        match &*self.shown.state.read() {
            State::Serving(part) => question(part),
            State::Starting | State::Stopping => {
                unreachable!("a daemon serves from the end of `start` to the start of `drop`")
            }
        }
    }
}

impl<P: Part> Drop for Daemon<P> {
    fn drop(&mut self) {
        // The part stops outside the lock, so that the pages can show it.
        let before = std::mem::replace(&mut *self.shown.state.write(), State::Stopping);
        drop(before);
    }
}

impl<P: Part> Source for Shown<P> {
    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = match &*self.state.read() {
            State::Serving(part) => part.metrics(),
            State::Starting | State::Stopping => Vec::new(),
        };
        metrics.extend(self.log.metrics());
        metrics
    }

    fn health(&self) -> Health {
        match &*self.state.read() {
            State::Starting => Health { serving: false, page: json!({ "status": "starting" }) },
            State::Stopping => Health { serving: false, page: json!({ "status": "stopping" }) },
            State::Serving(part) => {
                let mut page = part.details();
                page["status"] = "ok".into();
                Health { serving: true, page }
            }
        }
    }
}

impl Part for Server {
    const SECTION: &'static str = "catalog";

    fn metrics(&self) -> Vec<Metric> {
        Self::metrics(self)
    }

    fn details(&self) -> serde_json::Value {
        let problem = |NameConflict { name, holder, rival }| {
            format!("two live nodes are called {name}: the one at {rival} is refused for that at {holder}: rename one")
        };
        let mut problems: Vec<String> = self.name_conflicts().into_iter().map(problem).collect();
        problems.extend(parts::catalog_problem());
        json!({ "address": self.address().to_string(), "complete": self.is_complete(), "problems": problems })
    }
}

impl Part for Node {
    const SECTION: &'static str = "node";

    fn metrics(&self) -> Vec<Metric> {
        Self::metrics(self)
    }

    fn details(&self) -> serde_json::Value {
        let catalogs = self.catalogs();
        let problem = |catalog: &CatalogStatus| {
            let reason = catalog.problem.as_ref()?;
            Some(format!("catalog {} does not know this node's blocks: {reason}", catalog.address))
        };
        let mut problems: Vec<String> = catalogs.iter().filter_map(problem).collect();
        problems.extend(self.problem().map(str::to_owned));
        let catalog = |catalog: CatalogStatus| {
            json!({
                "address": catalog.address,
                "connected": catalog.connected,
                "caught_up": catalog.healthy,
                "reason": catalog.problem,
            })
        };
        json!({
            "address": self.data_address().to_string(),
            "epoch": format!("{:016x}", self.epoch().0),
            "catalogs": catalogs.into_iter().map(catalog).collect::<Vec<_>>(),
            "problems": problems,
        })
    }
}
