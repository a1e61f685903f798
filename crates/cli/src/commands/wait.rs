//! `tidepool wait`: waits until the pool holds one of some blocks.

use super::client::{ClientArgs, NOT_FOUND, Outcome};
use crate::Status;
use crate::{keys, output, progress};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;

/// What to wait for.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Keys of the blocks; nobody needs to have stored them yet
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) fn run(args: &WaitArgs) -> Outcome {
    let keys = args.keys.iter().map(|key| args.client.key(key)).collect::<Result<Vec<_>, _>>()?;
    let connected = args.client.connect()?;
    let held = progress::waiting("waiting", || connected.in_time().wait(&keys))?;
    for (key, held) in keys.iter().zip(&held) {
        if args.client.json {
            let mut object = json!({ "held": held });
            keys::write(&mut object, key, args.client.hex);
            output::line(&object)?;
        } else if *held {
            output::text(&format!("{}\n", args.client.show(key)))?;
        }
    }
    if held.contains(&true) {
        return Ok(Status::SUCCESS);
    }
    output::complain(&format!("not held before the deadline ({})", connected.place));
    Ok(Status(NOT_FOUND))
}
