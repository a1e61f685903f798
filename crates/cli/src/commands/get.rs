//! `tidepool get`: writes a block to standard output or to a file.

use super::client::{ClientArgs, NOT_FOUND, Outcome};
use crate::Status;
use crate::{keys, output, progress};
use clap::Args;
use serde_json::json;
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};
use tidepool_client::Client;

/// Bytes written at a time.
const PIECE: usize = 1 << 20;

/// What to read, and where to.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The block's key
    key: OsString,
    /// The file to write it to; standard output without it
    #[arg(short, long, value_name = "FILE", required_if_eq("json", "true"))]
    output: Option<PathBuf>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) fn run(args: &GetArgs) -> Outcome {
    let key = args.client.key(&args.key)?;
    let connected = args.client.connect()?;
    let found = progress::waiting("reading", || connected.in_time().get(&key))?;
    if let Some(data) = &found {
        match &args.output {
            Some(file) => save(file, data).map_err(|error| format!("{}: {error}", file.display()))?,
            None => drop(output::bytes(data)?),
        }
    }
    if args.client.json {
        let mut object = json!({ "found": found.is_some(), "bytes": found.as_ref().map(Vec::len) });
        keys::write(&mut object, &key, args.client.hex);
        output::line(&object)?;
    }
    if found.is_some() {
        return Ok(Status::SUCCESS);
    }
    let key = args.client.show(&key);
    output::complain(&format!("{key}: not found{} ({})", why(&connected.client), connected.place));
    Ok(Status(NOT_FOUND))
}

/// The reason for a miss, where that is more than a block that the pool does not hold.
fn why(client: &Client) -> &'static str {
    let stats = client.stats();
    if stats.misses_no_catalog > 0 {
        ": no catalog answered, and no node on this host holds it"
    } else if stats.misses_unsure > 0 {
        ": no catalog could say for sure (one starts, or lacks word from a node), and no node on this host holds it"
    } else if stats.misses_unavailable > 0 {
        ": its holders could not be reached"
    } else if stats.misses_corrupt > 0 {
        ": its copies are damaged"
    } else if stats.misses_timed_out > 0 {
        ": the deadline passed first"
    } else {
        ""
    }
}

fn save(file: &Path, data: &[u8]) -> io::Result<()> {
    let mut out = File::create(file)?;
    let bar = progress::bytes("writing", data.len() as u64);
    for piece in data.chunks(PIECE) {
        out.write_all(piece)?;
        bar.inc(piece.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}
