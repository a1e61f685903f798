//! `tidepool rm`: removes blocks by key, by regular expression, or all of them.

use super::client::{ClientArgs, NOT_FOUND, Outcome, PARTIAL, Session};
use crate::{keys, output, progress};
use clap::Args;
use serde_json::{Value, json};
use std::{
    error::Error,
    ffi::OsString,
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
};
use tidepool_client::Removals;

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
        return Err("an empty expression is found in every key: give --all if that is meant".into());
    }
    let session = args.client.connect()?;
    session.expect_nodes()?;
    match &args.matching {
        Some(regex) => report(args, progress::waiting("removing", || session.client.remove_matching(regex))?),
        None if args.all => report(args, progress::waiting("removing", || session.client.remove_all())?),
        None => remove_keys(args, &session, &keys),
    }
}

/// Asks whoever sits at the terminal.
fn is_confirmed() -> Result<bool, Box<dyn Error>> {
    if !io::stdin().is_terminal() {
        return Err("--all removes every block of the pool: give --yes if that is meant".into());
    }
    eprint!("Remove every block of the pool? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn remove_keys(args: &RmArgs, session: &Session, keys: &[Vec<u8>]) -> Outcome {
    let removals = session.client.remove_batch(keys)?;
    let (mut removed, mut unanswered, mut objects) = (0, 0, Vec::new());
    for (key, removal) in keys.iter().zip(&removals) {
        removed += u64::from(removal.removed);
        unanswered += u64::from(removal.unanswered);
        if !removal.removed && removal.unanswered == 0 {
            eprintln!("tidepool: {}: not found", args.client.show(key));
        }
        let mut object = json!({ "removed": removal.removed, "unanswered": removal.unanswered });
        keys::write(&mut object, key, args.client.hex);
        objects.push(object);
    }
    let object = json!({ "removed": removed, "keys": objects });
    print(args, &object, &format!("removed {removed} of {}\n", keys.len()))?;
    if unanswered > 0 {
        eprintln!("tidepool: {unanswered} holders did not answer: their copies may still be there");
        return Ok(ExitCode::from(PARTIAL));
    }
    Ok(if removed == keys.len() as u64 { ExitCode::SUCCESS } else { ExitCode::from(NOT_FOUND) })
}

fn report(args: &RmArgs, removals: Removals) -> Outcome {
    let nodes: Vec<String> = removals.unanswered.iter().map(ToString::to_string).collect();
    let object = json!({ "copies": removals.copies, "unanswered": nodes });
    print(args, &object, &format!("removed {} copies\n", removals.copies))?;
    if nodes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("tidepool: {} did not answer: what they hold may still be there", nodes.join(", "));
    Ok(ExitCode::from(PARTIAL))
}

fn print(args: &RmArgs, object: &Value, text: &str) -> io::Result<bool> {
    if args.client.json { output::line(object) } else { output::text(text) }
}
