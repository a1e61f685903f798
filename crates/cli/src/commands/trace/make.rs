//! `tidepool trace convert`, `slice`, `merge` and `scale`: make traces of other traces, written in our own format.

use super::write::WriteArgs;
use crate::commands::Usage;
use crate::commands::client::Outcome;
use crate::commands::traces::{Opened, ReadArgs, TraceArgs};
use crate::daemon::stop_flag;
use clap::Args;
use std::path::{Path, PathBuf};
use tidepool_trace::{Format, Merge, Millis, Request, Scale, Slice, TraceError};
use tidepool_types::Span;

/// What to convert.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    write: WriteArgs,
}

/// What to take.
#[derive(Debug, Args)]
pub struct SliceArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// When the slice begins, from the start of the trace
    #[arg(long, value_name = "TIME", default_value = "0s")]
    from: Span,
    /// When it ends [default: with the trace]
    #[arg(long, value_name = "TIME")]
    until: Option<Span>,
    /// Take no more than this many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    write: WriteArgs,
}

/// What to merge.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Files with the traces
    #[arg(required = true, num_args = 1.., value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
    /// Equal hashes and sessions in two traces are the same, as in parts of one trace; by default each trace's are its own
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    write: WriteArgs,
}

/// What to scale.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// What all times are multiplied by: 0.5 is twice the load
    #[arg(long, value_name = "NUMBER", value_parser = factor)]
    factor: f64,
    #[command(flatten)]
    write: WriteArgs,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (1e-6..=1e6).contains(factor));
    factor.ok_or_else(|| "allowed is a number from 0.000001 to 1000000".to_owned())
}

pub(super) fn convert(args: &ConvertArgs) -> Outcome {
    all_of(&args.trace, &args.write, |trace| Box::new(trace))
}

pub(super) fn slice(args: &SliceArgs) -> Outcome {
    let millis = |span: Span| Millis(u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX));
    let (from, until) = (millis(args.from), args.until.map_or(Millis(u64::MAX), millis));
    if until <= from {
        let until = args.until.map_or_else(|| "the trace's end".to_owned(), |until| until.to_string());
        return Err(Usage(format!("--until is {until}: allowed are times after --from, {}", args.from)).into());
    }
    let limit = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    all_of(&args.trace, &args.write, |trace| Box::new(Slice::new(trace, from, until).take(limit)))
}

pub(super) fn scale(args: &ScaleArgs) -> Outcome {
    all_of(&args.trace, &args.write, |trace| Box::new(Scale::new(trace, args.factor)))
}

pub(super) fn merge(args: &MergeArgs) -> Outcome {
    if args.traces.iter().filter(|path| **path == Path::new("-")).count() > 1 {
        return Err(Usage("-: allowed once, standard input is one trace".to_owned()).into());
    }
    let stop = stop_flag()?;
    let opened = args.traces.iter().map(|path| args.read.open(path, &stop));
    let mut traces = opened.collect::<Result<Vec<Opened>, _>>()?;
    let tokens = traces.first().map_or(0, Opened::block_tokens);
    let other = |trace: &&Opened| trace.block_tokens() != tokens;
    if let Some(other) = traces.iter().find(other) {
        return Err(format!("blocks of {tokens} and of {} tokens cannot be merged", other.block_tokens()).into());
    }
    let nameless = |trace: &Opened| trace.format() == Some(Format::Azure);
    if let Some((path, _)) = args.traces.iter().zip(&traces).find(|(_, trace)| args.shared && nameless(trace)) {
        // The numbers given to unnamed blocks begin at zero in each file.
        return Err(Usage(format!("{}: its blocks have no names: allowed without --shared", path.display())).into());
    }
    let named = args.traces.iter().zip(&mut traces).map(|(path, trace)| trace.map(|request| name_error(path, request)));
    let written = args.write.write(&stop, tokens, Merge::new(named.collect(), args.shared));
    args.traces.iter().zip(&traces).for_each(|(path, trace)| args.read.complain(path, trace));
    args.write.tell(written?)
}

/// Puts the file's name before an error of reading it.
fn name_error(path: &Path, request: Result<Request, TraceError>) -> Result<Request, String> {
    request.map_err(|error| format!("{}: {error}", path.display()))
}

/// A stream of requests, or of errors in reading them.
type Requests<'a> = Box<dyn Iterator<Item = Result<Request, TraceError>> + 'a>;

/// Writes the trace that `make` makes of a trace.
fn all_of(args: &TraceArgs, write: &WriteArgs, make: impl for<'a> FnOnce(&'a mut Opened) -> Requests<'a>) -> Outcome {
    let stop = stop_flag()?;
    let mut trace = args.open(&stop)?;
    let requests = |trace| make(trace).map(|request| name_error(&args.path, request));
    let written = write.write(&stop, trace.block_tokens(), requests(&mut trace));
    args.read.complain(&args.path, &trace);
    write.tell(written?)
}
