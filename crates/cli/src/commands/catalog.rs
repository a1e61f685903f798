//! `tidepool catalog`: runs a catalog until it is told to stop.

use super::daemon::{self, DaemonArgs};
use crate::{
    config::{CatalogOptions, Layer, LogOptions},
    daemon::{Daemon, Signals, catalog_config},
    logs::Logs,
    output,
};
use clap::Args;
use serde_json::json;
use std::error::Error;
use tidepool_catalog::Server;

/// How to run a catalog.
#[derive(Debug, Args)]
pub struct CatalogArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    catalog: CatalogOptions,
    #[command(flatten)]
    log: LogOptions,
}

/// Runs the command.
pub(super) fn run(args: CatalogArgs) -> Result<(), Box<dyn Error>> {
    let flags = Layer { catalog: args.catalog, log: args.log, ..Layer::default() };
    let config = crate::config::load(args.daemon.config.as_deref(), flags)?;
    let signals = Signals::catch()?;
    let logs = Logs::start(&config.log)?;
    let settings = catalog_config(&config.catalog);
    let catalog = Daemon::start(config.catalog.metrics_listen, logs.meter(), || Server::start(settings))?;
    let address = catalog.ask(Server::address);
    if args.daemon.json {
        output::line(&json!({ "catalog": daemon::catalog_addresses(&catalog) }))?;
    } else {
        output::text(&format!(
            "A catalog is running.\n  catalog  {address}\n  metrics  http://{}/metrics\n\n\
             Start nodes that tell it what they hold:\n  tidepool node --catalogs {address}\n",
            catalog.metrics_address(),
        ))?;
    }
    signals.wait();
    Ok(())
}
