//! `tidepool put`: stores a file, or standard input, as one block.

use super::client::{ClientArgs, Connected, Outcome, PARTIAL, state};
use crate::Status;
use crate::{keys, output, progress};
use clap::Args;
use serde_json::json;
use std::{
    error::Error,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};
use tidepool_client::{PutOptions, Stored, catalogs::NodeState};
use tidepool_types::{ByteSize, InvalidInput, MAX_BLOCK_LEN, NodeName, check_block_len};

/// Bytes read at a time.
const PIECE: u64 = 1 << 20;

/// What to store, and where.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The block's key
    key: OsString,
    /// The file with its bytes; standard input without it or with -
    file: Option<PathBuf>,
    /// Copies wanted, on distinct nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    replicas: u32,
    /// The node to try first
    #[arg(long, value_name = "NODE", value_parser = |name: &str| NodeName::new(name))]
    prefer: Option<NodeName>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) fn run(args: &PutArgs) -> Outcome {
    let key = args.client.key(&args.key)?;
    let data = read(args.file.as_deref().filter(|file| *file != Path::new("-")))?;
    let connected = args.client.connect()?;
    if let Some(name) = &args.prefer {
        warn_unless_known(&connected, name);
    }
    let options =
        PutOptions { replicas: args.replicas, prefer: args.prefer.iter().cloned().collect(), ..PutOptions::default() };
    let stored = progress::waiting("storing", || connected.in_time().put(&key, &data, &options));
    let stored = stored.map_err(|error| format!("{error} ({})", connected.place))?;
    report(args, &key, data.len(), stored)?;
    if stored.replicas >= args.replicas {
        return Ok(Status::SUCCESS);
    }
    let (key, why) = (args.client.show(&key), why_fewer(&connected, stored, args.replicas));
    output::complain(&format!("{key}: {} of {} copies: {why}", stored.replicas, args.replicas));
    Ok(Status(PARTIAL))
}

fn report(args: &PutArgs, key: &[u8], len: usize, Stored { replicas, moved }: Stored) -> io::Result<bool> {
    if args.client.json {
        // A held block may differ from the offered one: this call does not know its length.
        let (bytes, held, wanted) = (if moved { len } else { 0 }, !moved && replicas > 0, args.replicas);
        let mut object =
            json!({ "bytes": bytes, "replicas": replicas, "wanted": wanted, "moved": moved, "held": held });
        keys::write(&mut object, key, args.client.hex);
        return output::line(&object);
    }
    let (key, size) = (args.client.show(key), ByteSize(len as u64));
    let what = match (moved, replicas) {
        (true, _) => format!("stored {key}: {size}"),
        (false, 0) => format!("{key} was not stored"),
        (false, _) => format!("{key} was there already"),
    };
    let copies = match replicas {
        _ if replicas < args.replicas => format!("{replicas} of {} copies", args.replicas),
        1 => "1 copy".to_owned(),
        _ => format!("{replicas} copies"),
    };
    output::text(&format!("{what}, {copies}\n"))
}

/// The reason for fewer copies than wanted.
fn why_fewer(connected: &Connected, stored: Stored, wanted: u32) -> String {
    let nodes = connected.in_time().members();
    let living = nodes.iter().filter(|node| node.state != Some(NodeState::Dead)).count();
    match living {
        _ if stored.replicas == 0 => "a full node declined it (node.admission)".to_owned(),
        1 => "the pool has one living node".to_owned(),
        _ if living < wanted as usize => format!("the pool has {living} living nodes"),
        _ => "the other nodes had no room for it, or did not answer in time".to_owned(),
    }
}

/// Warns of a preferred node that does not exist, since a typo would otherwise go unnoticed.
fn warn_unless_known(connected: &Connected, name: &NodeName) {
    let nodes = connected.in_time().members();
    let mut living = nodes.iter().filter(|node| node.state != Some(NodeState::Dead)).map(|node| node.name.as_str());
    if living.any(|known| known == name.as_str()) {
        return;
    }
    let known: Vec<String> = nodes.iter().map(|node| format!("{} ({})", node.name, state(node))).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    output::complain(&format!("--prefer {name}: no such node is alive; known are: {known}"));
}

fn read(file: Option<&Path>) -> Result<Vec<u8>, Box<dyn Error>> {
    match file {
        None => collect(io::stdin().lock(), 0).map_err(|error| format!("standard input: {error}").into()),
        Some(path) => {
            let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
            let data = opened.and_then(|(len, file)| collect(file, len));
            data.map_err(|error| format!("{}: {error}", path.display()).into())
        }
    }
}

/// Reads all of `source`, which has about `expected` bytes: at least one byte, and at most a block.
fn collect(source: impl Read, expected: u64) -> io::Result<Vec<u8>> {
    if expected > MAX_BLOCK_LEN {
        return Err(io::Error::other(InvalidInput::BlockLength(expected)));
    }
    let bar = progress::bytes("reading", expected);
    // One byte more than allowed tells a source that is too long from one that just fits.
    let mut source = source.take(MAX_BLOCK_LEN + 1);
    let mut data = Vec::with_capacity(expected.min(MAX_BLOCK_LEN) as usize);
    while source.by_ref().take(PIECE).read_to_end(&mut data)? > 0 {
        bar.set_position(data.len() as u64);
    }
    bar.finish_and_clear();
    if data.len() as u64 > MAX_BLOCK_LEN {
        return Err(io::Error::other(format!(
            "more than {MAX_BLOCK_LEN} bytes: a block has 1 to {MAX_BLOCK_LEN} bytes"
        )));
    }
    check_block_len(data.len() as u64).map_err(io::Error::other)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_whole_and_never_beyond_what_a_block_may_have() {
        assert_eq!(collect(&[7; 3_000_000][..], 0).ok(), Some(vec![7; 3_000_000]));
        let said = |source: &mut dyn Read, expected| collect(source, expected).unwrap_err().to_string();
        let huge = said(&mut io::repeat(1), MAX_BLOCK_LEN + 17);
        assert_eq!(huge, "block of 1073741841 bytes: a block has 1 to 1073741824 bytes");
        assert!(collect(io::empty(), 0).is_err_and(|error| error.to_string().contains("block of 0 bytes")));
    }
}
