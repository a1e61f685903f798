//! `tidepool trace convert`, `slice`, `merge` and `scale`: traces made of others, written in our own format.

use crate::commands::Usage;
use crate::commands::client::Outcome;
use crate::commands::traces::{Opened, ReadArgs, TraceArgs, counted};
use crate::daemon::stop_flag;
use crate::{Status, files, output, progress};
use clap::Args;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::{error::Error, fs::File, io::BufWriter, path::Path, path::PathBuf};
use tidepool_trace::{Merge, Millis, Request, Scale, Slice, TraceError, Writer};
use tidepool_types::Span;

/// Where a trace is written to.
#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    /// File to write; one that exists is left alone unless --force is given
    #[arg(long, short, value_name = "FILE", value_parser = files::name())]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// What is written comes once only, and is kept as far as it came.
    #[arg(skip)]
    is_live: bool,
}

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
    args.write.all_of(&args.trace, |trace| Box::new(trace))
}

pub(super) fn slice(args: &SliceArgs) -> Outcome {
    let millis = |span: Span| Millis(u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX));
    let (from, until) = (millis(args.from), args.until.map_or(Millis(u64::MAX), millis));
    if until <= from {
        return Err(Usage(format!("--until: allowed is what is after --from, {}", args.from)).into());
    }
    let limit = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    args.write.all_of(&args.trace, |trace| Box::new(Slice::new(trace, from, until).take(limit)))
}

pub(super) fn scale(args: &ScaleArgs) -> Outcome {
    args.write.all_of(&args.trace, |trace| Box::new(Scale::new(trace, args.factor)))
}

pub(super) fn merge(args: &MergeArgs) -> Outcome {
    if args.traces.iter().filter(|path| **path == Path::new("-")).count() > 1 {
        return Err(Usage("-: allowed once, standard input is one trace".to_owned()).into());
    }
    let opened = args.traces.iter().map(|path| args.read.open(path));
    let mut traces = opened.collect::<Result<Vec<Opened>, _>>()?;
    let tokens = traces.first().map_or(0, Opened::block_tokens);
    let other = |trace: &&Opened| trace.block_tokens() != tokens;
    if let Some(other) = traces.iter().find(other) {
        return Err(format!("blocks of {tokens} and of {} tokens cannot be merged", other.block_tokens()).into());
    }
    let named = args.traces.iter().zip(&mut traces).map(|(path, trace)| trace.map(|request| name_error(path, request)));
    let written = args.write.write(tokens, Merge::new(named.collect(), args.shared));
    args.traces.iter().zip(&traces).for_each(|(path, trace)| args.read.complain(path, trace));
    args.write.tell(written?)
}

/// What cannot be read is said with the name of its file.
fn name_error(path: &Path, request: Result<Request, TraceError>) -> Result<Request, String> {
    request.map_err(|error| format!("{}: {error}", path.display()))
}

/// Requests that come one after the other.
type Requests<'a> = Box<dyn Iterator<Item = Result<Request, TraceError>> + 'a>;

impl WriteArgs {
    /// For a command that has arguments of its own.
    pub(super) const fn to(output: PathBuf, force: bool) -> Self {
        Self { output, force, json: false, is_live: true }
    }

    /// Writes what `make` makes of a trace.
    fn all_of(&self, args: &TraceArgs, make: impl for<'a> FnOnce(&'a mut Opened) -> Requests<'a>) -> Outcome {
        let mut trace = args.open()?;
        let requests = |trace| make(trace).map(|request| name_error(&args.path, request));
        let written = self.write(trace.block_tokens(), requests(&mut trace));
        args.read.complain(&args.path, &trace);
        self.tell(written?)
    }

    /// Writes a file beside the one that is wanted, so that a trace can be replaced by what is made of it: all of it, or none. How
    /// many requests it has.
    pub(super) fn write(
        &self,
        block_tokens: u32,
        requests: impl Iterator<Item = Result<Request, String>>,
    ) -> Result<u64, Box<dyn Error>> {
        let path = &self.output;
        if files::is_in_the_way(path) {
            return Err(Usage(format!("{} is not a file", path.display())).into());
        }
        if path.exists() && !self.force {
            return Err(Usage(format!("{} exists: --force replaces it", path.display())).into());
        }
        let part = if self.is_live { cut_off(path) } else { files::beside(path) };
        if self.is_live && part.exists() && !self.force {
            let part = part.display();
            return Err(Usage(format!("{part} exists, from a recording that was cut off: --force replaces it")).into());
        }
        let blame = |error: &dyn Error| format!("{}: {error}", path.display());
        let file = File::create(&part).map_err(|error| blame(&error))?;
        if self.is_live {
            let kept = |error: &dyn Error| format!("{}; what came before is in {}", blame(error), part.display());
            let written = write_through(file, block_tokens, requests).map_err(|error| kept(&*error))?;
            return Ok(std::fs::rename(&part, path).map(|()| written).map_err(|error| kept(&error))?);
        }
        let stop = stop_flag()?;
        let requests = requests.take_while(|_| !stop.load(Ordering::Relaxed));
        let mut unread = None;
        let requests = requests.map_while(|request| request.map_err(|error| unread = Some(error)).ok());
        let written = progress::waiting("writing", || write_to(file, block_tokens, requests));
        let written = written.map_err(|error| blame(&error));
        let why = |written| match (written, unread) {
            _ if stop.load(Ordering::Relaxed) => Some("stopped".to_owned()),
            (_, Some(error)) => Some(error),
            (0, None) => Some("no requests".to_owned()),
            _ => None,
        };
        let written = written.and_then(|written| match why(written) {
            Some(why) => Err(format!("{why}: {} is not written", path.display())),
            None => Ok(written),
        });
        let taken = |written| match path.exists() && !self.force {
            true => Err(format!("{} was written by somebody else meanwhile: --force replaces it", path.display())),
            false => Ok(written),
        };
        let done = written
            .and_then(taken)
            .and_then(|written| std::fs::rename(&part, path).map(|()| written).map_err(|error| blame(&error)));
        // What could not be finished can be made again.
        done.inspect_err(|_| drop(std::fs::remove_file(&part))).map_err(Into::into)
    }

    /// Says what was written.
    pub(super) fn tell(&self, requests: u64) -> Outcome {
        match self.json {
            true => output::line(&json!({ "requests": requests }))?,
            false => output::text(&format!("{}\n", counted(requests, "request", "requests")))?,
        };
        Ok(Status::SUCCESS)
    }
}

/// Where a recording is until it is whole.
fn cut_off(path: &Path) -> PathBuf {
    let mut part = path.to_owned().into_os_string();
    part.push(".part");
    part.into()
}

/// Says how many requests were written.
fn write_to(file: File, block_tokens: u32, requests: impl Iterator<Item = Request>) -> Result<u64, TraceError> {
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 18, file), block_tokens)?;
    let mut written = 0;
    for request in requests {
        writer.write(&request)?;
        written += 1;
    }
    writer.finish()?;
    Ok(written)
}

/// Requests that come once only: each is in the file before the next is waited for, and what cannot be written whole is cut off.
fn write_through(
    file: File,
    block_tokens: u32,
    requests: impl Iterator<Item = Result<Request, String>>,
) -> Result<u64, Box<dyn Error>> {
    let mut whole = 0;
    let write = || {
        let mut writer = Writer::new(&file, block_tokens)?;
        let mut written = 0;
        for request in requests {
            whole = file.metadata()?.len();
            writer.write(&request?)?;
            written += 1;
        }
        writer.finish()?;
        Ok(written)
    };
    let written = write();
    // A cut that fails leaves a line that readers skip and count.
    written.inspect_err(|_| drop(file.set_len(whole)))
}
