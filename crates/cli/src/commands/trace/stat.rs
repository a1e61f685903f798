//! `tidepool trace stat`: shows the statistics of a trace.

use crate::commands::client::Outcome;
use crate::commands::html::{HtmlArgs, rows, spread};
use crate::commands::input::InputArgs;
use crate::commands::traces::{Read, bar, grouped};
use crate::daemon::stop_flag;
use crate::output;
use crate::page::{Line, Page, Plot};
use clap::Args;
use serde_json::{Value, json};
use tidepool_sim::{Blocks, Curve, Quantiles, StatBuilder, TraceStat};

/// Blocks that are followed at a time: the figures of a trace with no more are exact.
const MOST_TRACKED: usize = 4 << 20;

/// The error of percentiles: values from 128 on are counted in 64 steps to a doubling, and a step's middle stands for
/// it.
const PERCENTILE_ERROR: f64 = 1.0 / 128.0;

/// Which trace.
#[derive(Debug, Args)]
pub struct StatArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    html: HtmlArgs,
}

/// Runs the command.
pub(super) fn run(args: &StatArgs) -> Outcome {
    args.html.check(args.input.path())?;
    let input = args.input.open(&stop_flag()?)?;
    let mut builder = StatBuilder::new(MOST_TRACKED, input.block_tokens);
    let read = input.each(|request| builder.add(request))?;
    let (stat, curve) = builder.finish();
    if args.json {
        output::line(&json(&stat, &curve, &read))?
    } else {
        output::text(&text(&stat, &curve))?
    };
    args.html.write(|| page(&read.with_remarks(&args.input.name()), &stat, &curve))?;
    Ok(read.status())
}

/// The figures that are shown as distributions.
fn spreads(stat: &TraceStat, curve: &Curve) -> Vec<(&'static str, Quantiles)> {
    let mut spreads = vec![
        ("input_tokens", stat.input_tokens.clone()),
        ("output_tokens", stat.output_tokens.clone()),
        ("reuse_distance_blocks", curve.reuse_distances()),
        ("reuse_gap_ms", stat.reuse_gaps.clone()),
        ("pause_ms", stat.pauses.clone()),
    ];
    spreads.retain(|(_, spread)| spread.count() > 0);
    spreads
}

fn json(stat: &TraceStat, curve: &Curve, read: &Read) -> Value {
    let mut object = json!({
        "duration_ms": stat.end.0,
        "blocks": stat.blocks,
        "sessions": stat.sessions,
        "requests_in_sessions": stat.in_sessions,
        "hit_rate_ceiling": curve.ceiling(),
        "hit_rate_ceiling_error": curve.error(Blocks::UNLIMITED),
        "blocks_for_one_sampled": curve.unit().0,
        "percentile_error": PERCENTILE_ERROR,
        "trace": read.describe(),
    });
    for (name, spread) in spreads(stat, curve) {
        let [p10, p50, p90, p99] = [0.1, 0.5, 0.9, 0.99].map(|part| spread.at(part));
        object[name] = json!({
            "mean": spread.mean(), "p10": p10, "p50": p50, "p90": p90, "p99": p99, "max": spread.largest(),
        });
    }
    object
}

fn summary(stat: &TraceStat, curve: &Curve) -> String {
    let minutes = stat.end.0 as f64 / 60_000.0;
    let sampled = match curve.unit().0 {
        1 => String::new(),
        unit => format!("; reuse is that of one of {unit} blocks"),
    };
    format!(
        "requests     {} in {minutes:.1} minutes\nblocks       {}\nsessions     {}\nhit ceiling  {:.2} %\n\
         percentiles  exact below 128, within {:.1} % above: values are counted in steps{sampled}\n",
        grouped(stat.requests),
        grouped(stat.blocks),
        grouped(stat.sessions),
        100.0 * curve.ceiling(),
        100.0 * PERCENTILE_ERROR,
    )
}

fn page(what: &str, stat: &TraceStat, curve: &Curve) -> Page {
    let most = curve.largest().0.max(1);
    let hits = (0..=200).map(|part| part * most / 200).map(|size| (size as f64, 100.0 * curve.hit_rate(Blocks(size))));
    let hits = Plot::new("What a cache would hit", "blocks, LRU", "% of blocks", vec![Line::new("hits", hits)]);
    let page = Page::new("Tidepool: a trace").text(what);
    let page = page.heading("What it is like").table(&["", ""], &rows(&summary(stat, curve))).plot(&hits);
    spreads(stat, curve).iter().fold(page, |page, (name, values)| page.plot(&spread(&name.replace('_', " "), values)))
}

fn text(stat: &TraceStat, curve: &Curve) -> String {
    let mut text = summary(stat, curve);
    for (name, spread) in spreads(stat, curve) {
        let [p10, p50, p90, p99] = [0.1, 0.5, 0.9, 0.99].map(|part| grouped(spread.at(part)));
        let most = grouped(spread.largest());
        text +=
            &format!("\n{name}: mean {:.0}, p10 {p10}, p50 {p50}, p90 {p90}, p99 {p99}, most {most}\n", spread.mean());
        text += &plot(&spread);
    }
    text
}

/// A bar for each power of two.
fn plot(spread: &Quantiles) -> String {
    let octaves = spread.octaves();
    let most = octaves.iter().map(|(_, count)| *count).max().unwrap_or(1);
    let line = |(from, count): &(u64, u64)| {
        format!("{:>15}  {:<40} {}\n", grouped(*from), bar(*count as f64 / most as f64, 40), grouped(*count))
    };
    octaves.iter().map(line).collect()
}
