//! `tidepool trace record`: records the look-ups of a running pool as a trace.

use super::recording::{Bounds, Recording};
use super::write::WriteArgs;
use crate::commands::client::{ClientArgs, Connected, Outcome, PARTIAL};
use crate::commands::traces::{counted, positive};
use crate::daemon::Signals;
use crate::{Status, files, output};
use clap::Args;
use serde_json::json;
use std::{
    collections::BTreeMap,
    error::Error,
    path::PathBuf,
    time::{Duration, Instant},
};
use tidepool_client::catalogs::{Heard, Missing, Recorder};
use tidepool_trace::BLOCK_TOKENS;
use tidepool_types::{ByteSize, Span};

/// Time for the catalogs to answer.
const FIRST_ANSWERS: Duration = Duration::from_secs(2);

/// What to record, and for how long.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// File to write; one that exists is left alone unless --force is given
    #[arg(long, short, value_name = "FILE", value_parser = files::name())]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// How long to record [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = above_zero)]
    time: Option<Span>,
    /// Record no more than this many requests
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Write no more than about this much
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = positive)]
    size: ByteSize,
    /// Tokens of a block in the engines that use the pool, which does not know it
    #[arg(long, value_name = "N", default_value_t = BLOCK_TOKENS, value_parser = clap::value_parser!(u32).range(1..))]
    block_tokens: u32,
    /// Record existence checks too, each as one chain: what engines ask through mooncake.store
    #[arg(long)]
    exists: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// A time that is not zero.
fn above_zero(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if span.0.is_zero() { Err("allowed is 1us or more".to_owned()) } else { Ok(span) }
}

/// Runs the command.
pub(super) fn run(args: &RecordArgs) -> Outcome {
    let write = WriteArgs::to(args.output.clone(), args.force);
    write.check_kept()?;
    // From here on, a signal ends the recording in order.
    let signals = Signals::catch()?;
    let connected = args.client.connect()?;
    let mut recorder =
        connected.client.record(args.exists).ok_or("client.catalogs names none: they pass look-ups on")?;
    let started = Instant::now();
    let listening = first_answers(&mut recorder, &connected)?;
    match args.client.json {
        true => output::line(&json!({ "listening": listening }))?,
        false => output::text(&format!("listening to {}; Ctrl-C ends it\n", listening.join(", ")))?,
    };
    let bounds = Bounds { time: args.time.map(|time| time.0), requests: args.limit, bytes: args.size.0 };
    let mut recording = Recording::new(recorder, started, bounds, args.block_tokens, || signals.have_come());
    let requests = write.keep(args.block_tokens, recording.by_ref().map(Ok))?;
    let (missing, full) = (recording.missing(), recording.full());
    if let Some(bound) = full {
        output::complain(&format!("{bound} ended the recording: later look-ups are not in it"));
    }
    missing_ones(missing).iter().for_each(|remark| output::complain(remark));
    let gap = recording.gap().as_secs_f64();
    if gap > 0.0 {
        output::complain(&format!(
            "for {gap:.1} s not all catalogs were listened to: look-ups of that time may be missing"
        ));
    }
    match args.client.json {
        true => {
            let Missing { dropped, untold, unheard } = missing;
            output::line(&json!({
                "requests": requests,
                "missing": missing.total(),
                "missing_by": { "client_full": dropped, "catalog_silent": untold, "recorder_slow": unheard },
                "gap_seconds": gap,
                "ended_by": full,
            }))?
        }
        false if requests > 0 => output::text(&format!("{}\n", counted(requests, "request", "requests")))?,
        false => true,
    };
    if requests == 0 {
        return Err(format!("no look-ups were heard: {} is not written", args.output.display()).into());
    }
    Ok(if gap > 0.0 || missing.total() > 0 { Status(PARTIAL) } else { Status::SUCCESS })
}

/// The number of look-ups missing, a sentence for each reason.
fn missing_ones(Missing { dropped, untold, unheard }: Missing) -> Vec<String> {
    let reasons = [
        (dropped, "is", "are", "clients made more of them in a second than they keep until they tell of them"),
        (untold, "may be", "may be", "no catalog answered the clients that told of them in time"),
        (unheard, "is", "are", "they came faster than this recorder took them"),
    ];
    let some = reasons.into_iter().filter(|(count, ..)| *count > 0);
    some.map(|(count, is, are, why)| {
        let lookups = counted(count, &format!("look-up {is}"), &format!("look-ups {are}"));
        format!("{lookups} missing: {why}")
    })
    .collect()
}

/// The catalogs that the recorder listens to, once all have answered or have had the time to.
fn first_answers(recorder: &mut Recorder<'_>, connected: &Connected) -> Result<Vec<String>, Box<dyn Error>> {
    let until = Instant::now() + FIRST_ANSWERS;
    let mut answers: BTreeMap<String, Result<(), String>> = BTreeMap::new();
    while let Some(heard) = recorder.next(until.saturating_duration_since(Instant::now())) {
        match heard {
            Heard::Listening(catalog) => answers.insert(catalog, Ok(())),
            Heard::Lost { catalog, reason, .. } => answers.insert(catalog, Err(reason)),
            Heard::Lookups { .. } => None,
        };
        if answers.len() == recorder.catalogs() {
            break;
        }
    }
    for (catalog, reason) in answers.iter().filter_map(|(catalog, answer)| Some((catalog, answer.as_ref().err()?))) {
        output::complain(&format!("catalog {catalog}: {reason}; it is tried again"));
    }
    let listening: Vec<String> = answers.into_iter().filter_map(|(name, answer)| answer.ok().map(|()| name)).collect();
    if listening.is_empty() {
        return Err(format!("no catalog passes look-ups on ({})", connected.place).into());
    }
    Ok(listening)
}
