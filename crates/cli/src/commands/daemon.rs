//! The shared part of `up`, `catalog` and `node`: their configuration, and their output once they serve.

use crate::{
    config::NodeConfig,
    daemon::{Daemon, Signals, StartError},
    logs::Logs,
};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use tidepool_catalog::Server;
use tidepool_node::Node;

/// Options of every daemon.
#[derive(Debug, Args)]
pub(super) struct DaemonArgs {
    /// The configuration file; flags win over it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Once ready, print one JSON line with the addresses in use
    #[arg(long)]
    pub(super) json: bool,
}

/// Starts a node; none if a signal came before it was ready.
pub(super) fn start_node(
    config: &NodeConfig,
    settings: tidepool_node::NodeConfig,
    logs: &Logs,
    signals: &Signals,
) -> Result<Option<Daemon<Node>>, StartError> {
    let start = || Node::start_while(settings, &|| !signals.have_come());
    match Daemon::start(config.metrics_listen, logs.meter(), start) {
        Ok(node) => Ok(Some(node)),
        Err(error) if error.is_stop() => {
            tracing::info!("told to stop before the node was ready");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The addresses of a catalog, for machines.
pub(super) fn catalog_addresses(catalog: &Daemon<Server>) -> Value {
    json!({
        "listen": catalog.ask(Server::address).to_string(),
        "metrics-listen": catalog.metrics_address().to_string(),
    })
}

/// The addresses of a node, for machines. Keys are those of the configuration, values what is in use.
pub(super) fn node_addresses(config: &NodeConfig, node: &Daemon<Node>) -> Value {
    json!({
        "name": config.name.to_string(),
        "dir": config.dir.to_string(),
        "socket": config.socket_path().display().to_string(),
        "data-listen": node.ask(Node::data_address).to_string(),
        "metrics-listen": node.metrics_address().to_string(),
    })
}

/// The addresses of a node, for people.
pub(super) fn describe_node(config: &NodeConfig, node: &Daemon<Node>) -> String {
    format!(
        "  node     {} with {} (metrics: http://{}/metrics)\n  data     {}\n  socket   {}\n",
        config.name,
        config.capacity,
        node.metrics_address(),
        node.ask(Node::data_address),
        config.socket_path().display(),
    )
}

/// The next commands to type.
pub(super) fn how_to_connect(config: &NodeConfig, catalogs: &str) -> String {
    let defaults = crate::config::load(None, crate::config::Layer::default()).map(|config| config.client);
    let flag = |name: &str, value: &str, default: Option<String>| match default {
        Some(default) if default == value => String::new(),
        _ => format!(" --{name} {value}"),
    };
    let where_it_is = [
        flag("catalogs", catalogs, defaults.as_ref().ok().map(|client| client.catalogs.to_string())),
        flag("dir", &config.dir.to_string(), defaults.as_ref().ok().map(|client| client.dir.to_string())),
    ]
    .concat();
    format!(
        "Try it from another terminal; Ctrl-C here ends it.\n  echo hello | tidepool put greeting{where_it_is}\n  \
         tidepool get greeting{where_it_is}\n"
    )
}
