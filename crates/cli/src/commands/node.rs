//! `tidepool node`: runs a node until it is told to stop.

use super::daemon::{self, DaemonArgs};
use crate::{
    config::{Layer, LogOptions, NodeOptions},
    daemon::{Signals, node_config},
    logs::Logs,
    output,
};
use clap::Args;
use serde_json::json;
use std::error::Error;

/// How to run a node.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    log: LogOptions,
}

/// Runs the command.
pub(super) fn run(args: NodeArgs) -> Result<(), Box<dyn Error>> {
    let flags = Layer { node: args.node, log: args.log, ..Layer::default() };
    let config = crate::config::load(args.daemon.config.as_deref(), flags)?;
    let signals = Signals::catch()?;
    let logs = Logs::start(&config.log)?;
    let catalogs: Vec<String> = config.node.catalogs.0.iter().map(ToString::to_string).collect();
    let settings = node_config(&config.node, catalogs.clone());
    let Some(node) = daemon::start_node(&config.node, settings, &logs, &signals)? else { return Ok(()) };
    if args.daemon.json {
        output::line(&json!({ "node": daemon::node_addresses(&config.node, &node) }))?;
    } else {
        output::text(&format!(
            "A node is running.\n{}\n{}",
            daemon::describe_node(&config.node, &node),
            daemon::how_to_connect(&config.node, &catalogs.join(",")),
        ))?;
    }
    signals.wait();
    Ok(())
}
