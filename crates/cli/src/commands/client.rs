//! The shared part of all commands that talk to a pool.

use super::Usage;
use crate::Status;
use crate::{
    config::{self, ClientConfig, ClientOptions, Layer, LogOptions, Verify},
    keys,
    logs::Logs,
    output,
};
use clap::Args;
use std::{collections::BTreeSet, error::Error, ffi::OsStr, path::PathBuf};
use tidepool_client::{Client, Deadline, NodeError, NodeName, PoolNode, catalogs::NodeState};

/// The exit code of a command whose block is not there.
pub(super) const NOT_FOUND: u8 = 3;
/// The exit code of a command that could not ask some node: its work or output may be incomplete.
pub(super) const PARTIAL: u8 = 4;

/// The result of a command.
pub(super) type Outcome = Result<Status, Box<dyn Error>>;

/// Options of every command that talks to a pool.
#[derive(Debug, Args)]
pub(super) struct ClientArgs {
    /// The configuration file; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(super) json: bool,
    /// Keys are written in hexadecimal, for those that are not text
    #[arg(long)]
    pub(super) hex: bool,
    #[command(flatten)]
    client: ClientOptions,
    #[command(flatten)]
    log: LogOptions,
}

/// A connection, and the log that goes with it.
pub(super) struct Connected {
    pub(super) client: Client,
    /// The client's settings, for commands that need more clients like it.
    pub(super) settings: tidepool_client::ClientConfig,
    /// The catalogs and the directory that the client uses, for messages.
    pub(super) place: String,
    /// The end of the command's time, which includes the time to find the pool.
    deadline: Deadline,
    _logs: Option<Logs>,
}

impl Connected {
    /// The client for all of the command's calls. They end when `--deadline` has passed since the command began to
    /// connect.
    pub(super) fn in_time(&self) -> Client {
        self.client.until(self.deadline)
    }

    /// The nodes of the pool. No node is an error, since "nothing there" would be a lie.
    pub(super) fn expect_nodes(&self) -> Result<Vec<PoolNode>, Box<dyn Error>> {
        let nodes = self.in_time().members();
        if !nodes.is_empty() {
            return Ok(nodes);
        }
        let unheard: Vec<String> = self.client.unheard().iter().map(ToString::to_string).collect();
        let here = match &unheard[..] {
            [] => "there is no node on this host".to_owned(),
            names => format!("could not ask {} on this host", names.join(", ")),
        };
        Err(format!("no catalog answered, and {here} ({})", self.place).into())
    }
}

/// The catalogs' state of a node, in a word. "left" is a node that stopped in order, "dead" one that did not.
pub(super) fn state(node: &PoolNode) -> &'static str {
    match node.state {
        Some(NodeState::Alive) => "alive",
        Some(NodeState::Suspect) => "suspect",
        Some(NodeState::Dead) if node.left => "left",
        Some(NodeState::Dead) => "dead",
        None => "unknown",
    }
}

/// Prints which of `nodes` have not answered, and `what` follows from that. A command that some node has not answered
/// is partial.
pub(super) fn outcome_without(
    connected: &Connected,
    unanswered: &BTreeSet<NodeName>,
    nodes: &[PoolNode],
    what: &str,
) -> Option<Status> {
    // No catalog has named the nodes of other hosts.
    let alone = nodes.iter().all(|node| node.state.is_none()) && !connected.in_time().catalog_answers();
    if alone {
        output::complain(&format!("no catalog answered, and nodes on other hosts could not be asked: {what}"));
    }
    let name = |name: &NodeName| match nodes.iter().find(|node| node.name == *name) {
        Some(node) if node.state == Some(NodeState::Dead) => format!("{name} (dead)"),
        _ => name.to_string(),
    };
    if !unanswered.is_empty() {
        let names: Vec<String> = unanswered.iter().map(name).collect();
        output::complain(&format!("could not ask {}: {what}", names.join(", ")));
    }
    (alone || !unanswered.is_empty()).then_some(Status(PARTIAL))
}

/// An invalid expression is a mistake on the command line.
pub(super) fn blame(error: NodeError) -> Box<dyn Error> {
    match error {
        NodeError::Invalid(message) => Usage(message).into(),
        error => error.into(),
    }
}

impl ClientArgs {
    /// Connects as the configuration says. Logs only if a flag asks for it: the command itself reports what failed.
    pub(super) fn connect(&self) -> Result<Connected, Box<dyn Error>> {
        let wants_log = self.log != LogOptions::default();
        let flags = Layer { client: self.client.clone(), log: self.log.clone(), ..Layer::default() };
        let config = config::load(self.config.as_deref(), flags)?;
        let logs = wants_log.then(|| Logs::start(&config.log)).transpose()?;
        let place = format!("catalogs {}, nodes in {}", config.client.catalogs, config.client.dir);
        let deadline = Deadline::after(config.client.deadline.0);
        let settings = settings(&config.client);
        Ok(Connected { client: Client::connect(settings.clone())?, settings, place, deadline, _logs: logs })
    }

    /// The key that `argument` stands for.
    pub(super) fn key(&self, argument: &OsStr) -> Result<Vec<u8>, Usage> {
        keys::parse(argument, self.hex).map_err(Usage)
    }

    /// The key as this command shows it.
    pub(super) fn show(&self, key: &[u8]) -> String {
        keys::show(key, self.hex)
    }
}

fn settings(config: &ClientConfig) -> tidepool_client::ClientConfig {
    tidepool_client::ClientConfig {
        catalogs: config.catalogs.0.iter().map(ToString::to_string).collect(),
        dir: config.dir.0.clone(),
        deadline: config.deadline.0,
        tcp_streams: config.tcp_streams as usize,
        verify: match config.verify {
            Verify::Network => tidepool_client::Verify::Network,
            Verify::Always => tidepool_client::Verify::Always,
        },
        ..Default::default()
    }
}
