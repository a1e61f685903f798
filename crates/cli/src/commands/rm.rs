//! `tidepool rm`: removes blocks by key, by regular expression, or all of them.

use super::Usage;
use super::client::{ClientArgs, Connected, NOT_FOUND, Outcome, blame, outcome_without};
use crate::Status;
use crate::{keys, output, progress};
use clap::Args;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    error::Error,
    ffi::OsString,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};
use tidepool_client::{NodeName, PoolNode, Removals};

/// The consequence for blocks on a node that could not be asked.
const MAY_REMAIN: &str = "their copies may still be there, and come back with them";

/// What to remove.
#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false, args = ["keys", "matching", "all"])]
pub struct RmArgs {
    /// Keys of the blocks
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    /// Remove every block in whose key this regular expression is found
    #[arg(long, value_name = "REGEX")]
    matching: Option<String>,
    /// Remove every block of the pool
    #[arg(long)]
    all: bool,
    /// Do not ask before removing all
    #[arg(long, requires = "all", conflicts_with_all = ["keys", "matching"])]
    yes: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) fn run(args: &RmArgs) -> Outcome {
    let keys = args.keys.iter().map(|key| args.client.key(key)).collect::<Result<Vec<_>, _>>()?;
    if args.all && !args.yes && !is_confirmed()? {
        return Err("nothing was removed".into());
    }
    if args.matching.as_deref() == Some("") {
        let empty = "an empty expression is found in every key: give --all if that is meant";
        return Err(Usage(empty.to_owned()).into());
    }
    let connected = args.client.connect()?;
    let nodes = connected.expect_nodes()?;
    match &args.matching {
        Some(regex) => {
            let removals =
                progress::waiting("removing", || connected.in_time().remove_matching(regex)).map_err(blame)?;
            let found = if removals.copies > 0 { Status::SUCCESS } else { Status(NOT_FOUND) };
            report(args, &connected, &nodes, removals, found)
        }
        None if args.all => {
            let removals = progress::waiting("removing", || connected.in_time().remove_all())?;
            report(args, &connected, &nodes, removals, Status::SUCCESS)
        }
        None => remove_keys(args, &connected, &nodes, &keys),
    }
}

/// Asks the user at the terminal.
fn is_confirmed() -> Result<bool, Box<dyn Error>> {
    if !io::stdin().is_terminal() {
        return Err("--all removes every block of the pool: give --yes if that is meant".into());
    }
    let _ = write!(io::stderr(), "Remove every block of the pool? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn remove_keys(args: &RmArgs, connected: &Connected, nodes: &[PoolNode], keys: &[Vec<u8>]) -> Outcome {
    let removals = connected.in_time().remove_batch(keys)?;
    let (mut removed, mut unanswered, mut objects, mut known_since) = (0, BTreeSet::new(), Vec::new(), None);
    for (key, removal) in keys.iter().zip(removals) {
        removed += u64::from(removal.removed);
        if !removal.removed {
            let where_asked = if removal.unanswered.is_empty() { "" } else { " where it could be looked for" };
            output::complain(&format!("{}: not found{where_asked}", args.client.show(key)));
        }
        known_since = seconds(removal.known_since);
        let mut object = json!({ "removed": removal.removed, "unanswered": names(&removal.unanswered) });
        unanswered.extend(removal.unanswered);
        keys::write(&mut object, key, args.client.hex);
        objects.push(object);
    }
    let object = json!({ "removed": removed, "known_since": known_since, "keys": objects });
    print(args, &object, &format!("removed {removed} of {}\n", keys.len()))?;
    let all = if removed == keys.len() as u64 { Status::SUCCESS } else { Status(NOT_FOUND) };
    Ok(outcome_without(connected, &unanswered, nodes, MAY_REMAIN).unwrap_or(all))
}

/// Reports a removal; `all` is the status when every node has answered.
fn report(args: &RmArgs, connected: &Connected, nodes: &[PoolNode], removals: Removals, all: Status) -> Outcome {
    let (unanswered, known_since) = (names(&removals.unanswered), seconds(removals.known_since));
    let object = json!({ "copies": removals.copies, "unanswered": unanswered, "known_since": known_since });
    let copies = if removals.copies == 1 { "copy" } else { "copies" };
    print(args, &object, &format!("removed {} {copies}\n", removals.copies))?;
    let unanswered = removals.unanswered.into_iter().collect();
    Ok(outcome_without(connected, &unanswered, nodes, MAY_REMAIN).unwrap_or(all))
}

/// A moment in seconds since 1970.
fn seconds(time: Option<SystemTime>) -> Option<u64> {
    Some(time?.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

fn names(nodes: &[NodeName]) -> Vec<&str> {
    nodes.iter().map(NodeName::as_str).collect()
}

fn print(args: &RmArgs, object: &Value, text: &str) -> io::Result<bool> {
    if args.client.json { output::line(object) } else { output::text(text) }
}
