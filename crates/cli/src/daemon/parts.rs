//! Settings of catalogs and nodes, from the checked configuration.

use super::descriptors;
use crate::config::{Advertise, CatalogConfig, NodeConfig};

/// A catalog's settings.
pub fn catalog_config(config: &CatalogConfig) -> tidepool_catalog::CatalogConfig {
    let defaults = tidepool_catalog::CatalogConfig::default();
    catalog_problem().iter().for_each(|problem| tracing::warn!("{problem}"));
    tidepool_catalog::CatalogConfig {
        listen: config.listen.0,
        suspect_after: config.suspect_after.0,
        dead_after: config.dead_after.0,
        max_connections: descriptors::for_catalog(descriptors::raise(), defaults.max_connections),
        ..defaults
    }
}

/// The problem with a catalog in this process, if there is one.
pub(super) fn catalog_problem() -> Option<String> {
    let wanted = tidepool_catalog::CatalogConfig::default().max_connections;
    descriptors::catalog_problem(descriptors::for_catalog(descriptors::raise(), wanted), wanted)
}

/// A node's settings, announcing to `catalogs`.
pub fn node_config(config: &NodeConfig, catalogs: Vec<String>) -> tidepool_node::NodeConfig {
    tidepool_node::NodeConfig {
        name: config.name.0.clone(),
        dir: config.dir.0.clone(),
        access: config.access.0,
        capacity: config.capacity,
        smallest_expected_block: config.smallest_expected_block,
        eviction: config.eviction.0,
        admission: config.admission.0,
        data_listen: config.data_listen.to_string(),
        data_advertise: match &config.data_advertise {
            Advertise::Auto => None,
            Advertise::At(address) => Some(address.to_string()),
        },
        catalogs,
        announce_timeout: config.announce_timeout.0,
        scrub_rate: config.scrub_rate,
        max_connections: config.max_connections as usize,
        quarantine_limit: config.quarantine_limit,
        view_limit: config.view_limit,
        faults: tidepool_transfer::fault::FaultPlan::default(),
    }
}

/// Why a catalog did not start, with the field to change.
pub(super) fn explain_catalog(error: &tidepool_catalog::StartError) -> String {
    use tidepool_catalog::StartError;
    match error {
        StartError::Listen { address, source } => format!("catalog.listen {address}: {source}"),
        StartError::Config(_) | StartError::Threads(_) => error.to_string(),
    }
}

/// Why a node did not start, with the field to change.
pub(super) fn explain_node(error: &tidepool_node::StartError) -> String {
    use tidepool_node::StartError;
    use tidepool_store::OpenError;
    match error {
        // These messages start with the name of a field.
        StartError::Listen { .. }
        | StartError::Memory(
            OpenError::TooLittleMemory { .. } | OpenError::LessThanAPage { .. } | OpenError::Shape { .. },
        ) => {
            format!("node.{error}")
        }
        // The directory cannot be used, or not in the way that a node needs.
        StartError::Memory(OpenError::Io { .. } | OpenError::NoInodes { .. }) => format!("node.dir: {error}"),
        StartError::Memory(_) | StartError::Descriptors { .. } | StartError::Announce(_) | StartError::Thread(_) => {
            error.to_string()
        }
    }
}
