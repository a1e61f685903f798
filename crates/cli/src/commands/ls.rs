//! `tidepool ls`: lists blocks, page by page as the nodes answer.

use super::client::{ClientArgs, Outcome, blame, outcome_without};
use crate::Status;
use crate::{keys, output};
use clap::Args;
use serde_json::json;
use std::{
    collections::{BTreeSet, HashSet},
    io,
};
use tidepool_client::{ListCursor, Listed, NodeName, Pattern};
use tidepool_types::{BlockId, Key, TenantSecret};

/// Keys asked for at a time.
const PAGE: u64 = 1000;

/// What to list.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Only keys in which this regular expression is found
    #[arg(long, value_name = "REGEX")]
    matching: Option<String>,
    /// Stop after this many blocks
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) fn run(args: &LsArgs) -> Outcome {
    let connected = args.client.connect()?;
    let nodes = connected.expect_nodes()?;
    let pattern = args.matching.clone().map_or(Pattern::All, Pattern::Regex);
    let (mut cursor, mut left, mut seen) = (Some(ListCursor::default()), args.limit, Seen::default());
    let mut unanswered = BTreeSet::<NodeName>::new();
    while let Some(from) = cursor.filter(|_| left > 0) {
        let page = connected.in_time().list(&pattern, &from, left.min(PAGE) as u32).map_err(blame)?;
        unanswered.extend(page.unanswered);
        let fresh: Vec<Listed> = page.entries.into_iter().filter(|block| seen.is_new(&block.key)).collect();
        let shown = &fresh[..fresh.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        if !print(args, shown)? {
            break;
        }
        left -= shown.len() as u64;
        cursor = page.next;
    }
    Ok(outcome_without(&connected, &unanswered, &nodes, "blocks that only they hold are missing here")
        .unwrap_or(Status::SUCCESS))
}

/// Blocks already listed, by a digest of their keys: a block with replicas can come on several pages.
#[derive(Default)]
struct Seen(HashSet<BlockId>);

/// What the digests are made with: no block has such an id.
const DIGEST: TenantSecret = TenantSecret::new(*b"listed by `ls`  ");

impl Seen {
    fn is_new(&mut self, key: &[u8]) -> bool {
        // An invalid key has no id. A faulty node sent it, and it is shown.
        Key::new(key).map_or(true, |key| self.0.insert(BlockId::derive(&DIGEST, key)))
    }
}

/// One line for each block: its size, the nodes of this page that hold it, its key.
fn print(args: &LsArgs, blocks: &[Listed]) -> io::Result<bool> {
    let mut text = String::new();
    for block in blocks {
        let nodes: Vec<String> = block.nodes.iter().map(ToString::to_string).collect();
        if args.client.json {
            let mut object = json!({ "bytes": block.len, "nodes": nodes });
            keys::write(&mut object, &block.key, args.client.hex);
            text += &format!("{object}\n");
        } else {
            text += &format!("{:>12}  {}  {}\n", block.len, nodes.join(","), args.client.show(&block.key));
        }
    }
    output::text(&text)
}
