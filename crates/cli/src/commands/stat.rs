//! `tidepool stat`: shows the state of the pool, one node or one block.

use super::Usage;
use super::client::{ClientArgs, Connected, NOT_FOUND, Outcome, PARTIAL, outcome_without, state};
use crate::Status;
use crate::{keys, output};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, ffi::OsString};
use tidepool_client::{NodeError, NodeName, PoolNode, Whereabouts, catalogs::NodeState};

/// What to look at.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// The whole pool, one node or one block
    #[arg(value_enum, default_value = "pool")]
    what: What,
    /// The node's name or the block's key
    #[arg(required_if_eq_any([("what", "node"), ("what", "block")]))]
    name: Option<OsString>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The nodes of the pool and what they hold
    Pool,
    /// Every number of one node
    Node,
    /// The copies of one block
    Block,
}

/// Runs the command.
pub(super) fn run(args: &StatArgs) -> Outcome {
    match (args.what, &args.name) {
        (What::Pool, Some(name)) => Err(Usage(format!("pool takes no name: {}", name.display())).into()),
        (What::Pool, None) => pool(args, &args.client.connect()?),
        (What::Node, name) => {
            let name = NodeName::new(name.clone().unwrap_or_default().to_string_lossy());
            let name = name.map_err(|error| Usage(error.to_string()))?;
            node(args, &args.client.connect()?, &name)
        }
        (What::Block, name) => {
            let key = args.client.key(&name.clone().unwrap_or_default())?;
            block(args, &args.client.connect()?, &key)
        }
    }
}

fn pool(args: &StatArgs, connected: &Connected) -> Outcome {
    let mut nodes = connected.expect_nodes()?;
    let unanswered = ask_unannounced(connected, &mut nodes);
    let state = |node: &PoolNode| match state(node) {
        _ if node.state.is_none() && !unanswered.contains(&node.name) => "answers",
        state => state,
    };
    // The pool does not have a dead node's capacity.
    let living = || nodes.iter().filter(|node| node.state != Some(NodeState::Dead));
    let capacity: u64 = living().map(|node| node.capacity_bytes).sum();
    let used: u64 = living().map(|node| node.used_bytes).sum();
    if args.client.json {
        let nodes: Vec<Value> = nodes.iter().map(|node| describe(node, state(node))).collect();
        output::line(&json!({ "capacity_bytes": capacity, "used_bytes": used, "nodes": nodes }))?;
    } else {
        let lines: String = nodes.iter().map(|node| line(node, state(node))).collect();
        let head = format!("{:<20} {:<8} {:>14} {:>14}  {}\n", "NODE", "STATE", "USED", "CAPACITY", "ADDRESS");
        output::text(&format!("{head}{lines}{:<20} {:<8} {used:>14} {capacity:>14}\n", "all", ""))?;
        nodes.iter().for_each(complain_of_rival);
    }
    let partial = outcome_without(connected, &unanswered, &nodes, "their blocks are missing here");
    Ok(partial.unwrap_or(Status::SUCCESS))
}

/// Asks the nodes that no catalog knows for their numbers. Returns the names of those that do not answer.
fn ask_unannounced(connected: &Connected, nodes: &mut [PoolNode]) -> BTreeSet<NodeName> {
    let mut unanswered = BTreeSet::new();
    for node in nodes.iter_mut().filter(|node| node.state.is_none()) {
        let Ok(numbers) = connected.in_time().node_stat(&node.name) else {
            unanswered.insert(node.name.clone());
            continue;
        };
        let number = |name: &str| numbers.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
        node.capacity_bytes = number("tidepool_node_capacity_bytes");
        node.used_bytes = node.capacity_bytes.saturating_sub(number("tidepool_node_free_bytes"));
    }
    unanswered
}

fn line(node: &PoolNode, state: &str) -> String {
    let address = node.data_address.as_deref().unwrap_or("this host only");
    let (name, used, capacity) = (node.name.as_str(), node.used_bytes, node.capacity_bytes);
    let silent = node.silent.filter(|_| node.state != Some(NodeState::Alive));
    let silent = silent.map_or_else(String::new, |time| format!(", silent for {}s", time.as_secs()));
    format!("{name:<20} {state:<8} {used:>14} {capacity:>14}  {address}{silent}\n")
}

fn complain_of_rival(node: &PoolNode) {
    if let PoolNode { name, rival: Some(rival), .. } = node {
        output::complain(&format!(
            "two live nodes are called {name}: the catalogs refuse the one at {rival}: rename one"
        ));
    }
}

fn describe(node: &PoolNode, state: &str) -> Value {
    json!({
        "name": node.name.as_str(),
        "epoch": format!("{:016x}", node.epoch.0),
        "state": state,
        "data_address": node.data_address,
        "socket": node.socket,
        "build": node.build,
        "capacity_bytes": node.capacity_bytes,
        "used_bytes": node.used_bytes,
        "mapped": node.mapped,
        "name_also_claimed_by": node.rival,
        "silent_seconds": node.silent.map(|time| time.as_secs()),
    })
}

fn node(args: &StatArgs, connected: &Connected, name: &NodeName) -> Outcome {
    let numbers = match connected.in_time().node_stat(name) {
        Ok(numbers) => numbers,
        // The block may well be there: no node that would know could be asked.
        Err(error @ NodeError::NoCatalog(_)) => {
            output::complain(&format!("{error} ({})", connected.place));
            return Ok(Status(PARTIAL));
        }
        Err(error) => return Err(format!("{error} ({})", connected.place).into()),
    };
    if args.client.json {
        let numbers: Map<String, Value> = numbers.into_iter().map(|(name, value)| (name, value.into())).collect();
        output::line(&json!({ "name": name.as_str(), "metrics": numbers }))?;
    } else {
        let lines: Vec<String> = numbers.iter().map(|(name, value)| format!("{value:>20}  {name}\n")).collect();
        output::text(&lines.concat())?;
    }
    Ok(Status::SUCCESS)
}

fn block(args: &StatArgs, connected: &Connected, key: &[u8]) -> Outcome {
    let Whereabouts { copies, unanswered, catalog_answered } = connected.in_time().whereabouts(key)?;
    let (mut text, mut objects) = (String::new(), Vec::new());
    for copy in &copies {
        text +=
            &format!("{:>12}  on {}, written by {:016x}, held {}\n", copy.len, copy.node, copy.writer.0, copy.views);
        objects.push(json!({
            "node": copy.node.as_str(),
            "epoch": format!("{:016x}", copy.copy.epoch.0),
            "generation": copy.copy.generation.0,
            "tier": copy.tier,
            "bytes": copy.len,
            "writer": format!("{:016x}", copy.writer.0),
            "views": copy.views,
        }));
    }
    if args.client.json {
        let mut object = json!({ "copies": objects });
        keys::write(&mut object, key, args.client.hex);
        output::line(&object)?;
    } else {
        output::text(&text)?;
    }
    let sure = catalog_answered && unanswered.is_empty();
    if copies.is_empty() {
        let where_asked = if sure { "" } else { " where it could be looked for" };
        output::complain(&format!("{}: not found{where_asked} ({})", args.client.show(key), connected.place));
    }
    if !catalog_answered {
        output::complain("no catalog answered: copies on other hosts are missing here");
    }
    if !unanswered.is_empty() {
        let names: Vec<&str> = unanswered.iter().map(NodeName::as_str).collect();
        output::complain(&format!("could not ask {}: copies there are missing here", names.join(", ")));
    }
    Ok(match copies.is_empty() {
        _ if !sure => Status(PARTIAL),
        true => Status(NOT_FOUND),
        false => Status::SUCCESS,
    })
}
