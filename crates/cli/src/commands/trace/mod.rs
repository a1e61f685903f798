//! `tidepool trace`: looks at traces, and makes traces of others.

mod generate;
mod make;
mod record;
mod recording;
mod stat;
mod write;

use super::client::Outcome;
use clap::Subcommand;

/// What to do with traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show what a trace is like: lengths, reuse, and what any cache could hit at most
    Stat(stat::StatArgs),
    /// Record what a running pool is asked for, as a trace without keys or content
    Record(record::RecordArgs),
    /// Generate the traffic of coding agents
    Generate(generate::GenerateArgs),
    /// Write a trace in our own format, which docs/traces.md describes
    Convert(make::ConvertArgs),
    /// Take the requests from one time to another
    Slice(make::SliceArgs),
    /// Make one trace of several, in the order of their times
    Merge(make::MergeArgs),
    /// Make time go faster or slower
    Scale(make::ScaleArgs),
}

/// Runs the command.
pub(super) fn run(command: &TraceCommand) -> Outcome {
    match command {
        TraceCommand::Stat(args) => stat::run(args),
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Generate(args) => generate::run(args),
        TraceCommand::Convert(args) => make::convert(args),
        TraceCommand::Slice(args) => make::slice(args),
        TraceCommand::Merge(args) => make::merge(args),
        TraceCommand::Scale(args) => make::scale(args),
    }
}
