//! `tidepool up`: a whole pool in one process, a catalog and a node.

use super::daemon::{self, DaemonArgs};
use crate::{
    config::{self, CatalogOptions, Config, Layer, LogOptions, NodeOptions},
    daemon::{Daemon, Signals, catalog_config, node_config},
    logs::Logs,
    output,
};
use clap::{ArgMatches, Args, FromArgMatches};
use serde_json::json;
use std::{
    error::Error,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tidepool_catalog::Server;

/// How to run a pool.
#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    catalog: PrefixedCatalog,
    #[command(flatten)]
    log: LogOptions,
}

/// The catalog's options with `--catalog-` in front, since the node's options have the short names.
#[derive(Debug)]
struct PrefixedCatalog(CatalogOptions);

impl Args for PrefixedCatalog {
    fn augment_args(command: clap::Command) -> clap::Command {
        // An option's id is its section and key, which is the flag wanted here.
        CatalogOptions::augment_args(command).mut_args(|argument| {
            let id = argument.get_id().clone();
            if id.as_str().starts_with("catalog-") { argument.long(id) } else { argument }
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PrefixedCatalog {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        CatalogOptions::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Runs the command.
pub(super) fn run(args: UpArgs) -> Result<(), Box<dyn Error>> {
    let flags = Layer { catalog: args.catalog.0, node: args.node, log: args.log, ..Layer::default() };
    let layer = config::merge(args.daemon.config.as_deref(), flags)?;
    let others_are_set = layer.node.catalogs.is_some();
    let config = layer.resolve()?;
    let signals = Signals::catch()?;
    let logs = Logs::start(&config.log)?;

    let settings = catalog_config(&config.catalog);
    let catalog = Daemon::start(config.catalog.metrics_listen, logs.meter(), || Server::start(settings))?;
    let address = reachable(catalog.ask(Server::address)).to_string();
    let catalogs = catalogs(&config, &address, others_are_set);
    let settings = node_config(&config.node, catalogs.clone());
    let Some(node) = daemon::start_node(&config.node, settings, &logs, &signals)? else { return Ok(()) };

    if args.daemon.json {
        let node = daemon::node_addresses(&config.node, &node);
        output::line(&json!({ "catalog": daemon::catalog_addresses(&catalog), "node": node }))?;
    } else {
        output::text(&format!(
            "A pool is running: a catalog and a node.\n  catalog  {address} (metrics: http://{}/metrics)\n{}\n{}",
            catalog.metrics_address(),
            daemon::describe_node(&config.node, &node),
            daemon::how_to_connect(&config.node, &address),
        ))?;
    }
    signals.wait();
    // The node first, so that it can leave the catalog.
    drop(node);
    drop(catalog);
    Ok(())
}

/// The catalogs that the node announces to: the one in this process, and others where they are set.
fn catalogs(config: &Config, own: &str, others_are_set: bool) -> Vec<String> {
    let configured = config.catalog.listen.to_string();
    let others = config.node.catalogs.0.iter().map(ToString::to_string).filter(|_| others_are_set);
    let mut all = vec![own.to_owned()];
    all.extend(others.filter(|other| *other != own && *other != configured));
    all
}

/// An address through which this host reaches a socket that listens on `address`.
const fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => address.set_ip(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST)),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => address.set_ip(std::net::IpAddr::V6(Ipv6Addr::LOCALHOST)),
        _ => {}
    }
    address
}
