//! `tidepool forget`: has the catalogs forget a dead node, so that removals and listings no longer wait for it and name it.

use super::Usage;
use super::client::{ClientArgs, Outcome, PARTIAL};
use crate::{Status, output};
use clap::Args;
use serde_json::json;
use tidepool_client::{NodeError, NodeName};

/// Which node.
#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// Name of a node that is dead and will not come back as it was
    node: String,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) fn run(args: &ForgetArgs) -> Outcome {
    let name = NodeName::new(args.node.clone()).map_err(|error| Usage(error.to_string()))?;
    let forgotten = args.client.connect()?.in_time().forget(&name).map_err(|error| match error {
        NodeError::NotDead { .. } => Usage(error.to_string()).into(),
        error => Box::<dyn std::error::Error>::from(error),
    })?;
    let object = json!({ "node": name.as_str(), "catalogs": forgotten.by, "unanswered": forgotten.unanswered });
    let catalogs = if forgotten.by == 1 { "catalog" } else { "catalogs" };
    let text = format!("{name} is forgotten by {} {catalogs}\n", forgotten.by);
    if args.client.json {
        output::line(&object)?
    } else {
        output::text(&text)?
    };
    if forgotten.unanswered.is_empty() {
        return Ok(Status::SUCCESS);
    }
    let silent = forgotten.unanswered.join(", ");
    output::complain(&format!("no answer from {silent}: they may still know {name}; run this again when they answer"));
    Ok(Status(PARTIAL))
}
