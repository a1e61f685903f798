//! Reports of a cluster's run, simulated or real, for people and for machines.

use super::html::{rows, times};
use super::traces::{Read, grouped, rounded};
use crate::page::{Line, Page, Plot};
use serde_json::{Map, Value, json};
use tidepool_sim::cluster::{Load, Report, Throughput};
use tidepool_sim::{OverTime, Quantiles};

/// The hit rate that `blocks`, a part of all hits, amount to.
fn rate(report: &Report, blocks: u64) -> f64 {
    if report.tally.blocks == 0 { 0.0 } else { blocks as f64 / report.tally.blocks as f64 }
}

fn saved(report: &Report) -> f64 {
    report.prefill_seconds - report.computed_seconds
}

/// The report for machines.
pub(super) fn json(report: &Report, read: &Read) -> Value {
    let millis = |times: &Quantiles| {
        let at = |part| times.at(part) as f64 / 1000.0;
        let (mean, max) = (times.mean() / 1000.0, times.largest() as f64 / 1000.0);
        let all = json!({ "mean": mean, "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": max });
        (report.tally.requests > 0).then_some(all)
    };
    // Only a simulation has queues and the numbers that follow from them.
    let simulated = |number: u64| (!report.loads.is_empty()).then_some(number);
    let load = |load: &Load| {
        let (Load { count, mean, most, waited, .. }, each) = (*load, 1000.0 * report.mean_wait(load));
        json!({ "count": count, "mean": mean, "most": most, "waited_seconds": waited, "mean_wait_ms": each })
    };
    let named = |of: &Load| {
        let mut object = load(of);
        object["resource"] = json!(of.kind.name());
        object
    };
    let Throughput { requests, within_limits, input_tokens, output_tokens, .. } = report.throughput();
    let whole = report.whole_run();
    let loads: Map<String, Value> = report.loads.iter().map(|of| (of.kind.name().to_owned(), load(of))).collect();
    json!({
        "hit_rate": report.tally.hit_rate(),
        "local_hit_rate": rate(report, report.local_hit_blocks),
        "disk_hit_rate": rate(report, report.disk_hit_blocks),
        "blocks": report.tally.blocks,
        "hit_blocks": report.tally.hit_blocks,
        "evicted_blocks": simulated(report.evicted_blocks),
        "loaded_bytes": report.loaded_bytes,
        "network_bytes": simulated(report.network_bytes),
        "first_token_ms": millis(&report.first_token),
        "end_to_end_ms": millis(&report.end_to_end),
        "between_tokens_ms": millis(&report.between_tokens),
        "seconds": report.seconds,
        "steady": report.steady().map(|part| json!({ "from_seconds": part.from, "until_seconds": part.until })),
        "requests_per_second": requests,
        "input_tokens_per_second": input_tokens,
        "output_tokens_per_second": output_tokens,
        "within_limits": report.part_within_limits(),
        "effective_requests_per_second": within_limits,
        "whole_run": {
            "requests_per_second": whole.requests,
            "input_tokens_per_second": whole.input_tokens,
            "output_tokens_per_second": whole.output_tokens,
            "effective_requests_per_second": whole.within_limits,
        },
        "gpu_seconds_saved": saved(report),
        "gpu_seconds_computed": report.computed_seconds,
        "saturated": report.saturated().iter().map(named).collect::<Vec<_>>(),
        "most_waited": report.most_waited().as_ref().map(named),
        "loads": loads,
        "trace": read.describe(),
    })
}

/// The report for people.
pub(super) fn text(report: &Report) -> String {
    if report.loads.is_empty() {
        return summary(report);
    }
    let row = |[name, count, mean, most, waited, each]: [String; 6]| {
        format!("{name:<10} {count:>6} {mean:>8} {most:>8} {waited:>12} {each:>11}\n")
    };
    let rows: String = report.loads.iter().map(|load| row(cells(report, load))).collect();
    format!("{}\n{}{rows}", summary(report), row(LOAD.map(str::to_uppercase)))
}

/// The report as a page. `more` are further remarks for people, line by line.
pub(super) fn page(title: &str, what: &str, report: &Report, more: &str) -> Page {
    let Report { first_token, end_to_end, over_time, .. } = report;
    let took = times("How long requests took", &[("first token", first_token), ("end to end", end_to_end)]);
    let page = Page::new(title)
        .text(what)
        .heading("What was found")
        .table(&["", ""], &rows(&format!("{}{more}", summary(report))))
        .plot(&took)
        .plot(&answers(over_time))
        .plot(&hits(over_time));
    if report.loads.is_empty() {
        return page;
    }
    let rows: Vec<_> = report.loads.iter().map(|load| cells(report, load).to_vec()).collect();
    page.heading("What it went through").table(&LOAD, &rows)
}

fn summary(report: &Report) -> String {
    let Some(within_limits) = report.part_within_limits() else {
        return format!("requests      none was answered in {:.1} s\n", report.seconds);
    };
    let seconds = |times: &Quantiles| {
        let at = |part| times.at(part) as f64 / 1e6;
        format!("{:.3} s median, {:.3} s p99", at(0.5), at(0.99))
    };
    let text = format!(
        "hit rate      {:.2} % ({:.2} % the engines' own, {:.2} % from disk)\nrequests      {} in {:.1} s\n\
         {}first token   {}\nend to end    {}\nin limits     {:.2} %, {:.2} requests a second\n\
         GPU time      {:.0} s computed, {:.0} s saved\nloaded        {}\n",
        100.0 * report.tally.hit_rate(),
        100.0 * rate(report, report.local_hit_blocks),
        100.0 * rate(report, report.disk_hit_blocks),
        grouped(report.tally.requests),
        report.seconds,
        throughput(report),
        seconds(&report.first_token),
        seconds(&report.end_to_end),
        100.0 * within_limits,
        report.throughput().within_limits,
        report.computed_seconds,
        saved(report),
        rounded(report.loaded_bytes),
    );
    if report.loads.is_empty() {
        return text;
    }
    let (network, saturated, waiting) = (rounded(report.network_bytes), saturated(report), waiting(report));
    format!("{text}network       {network}\nsaturated     {saturated}\nwaiting       {waiting}\n")
}

/// Throughput in the steady state, and in the whole run.
fn throughput(report: &Report) -> String {
    let rates = |of: Throughput| {
        let Throughput { requests, input_tokens, output_tokens, .. } = of;
        format!("{requests:.2} requests, {input_tokens:.0} tokens in, {output_tokens:.0} tokens out a second")
    };
    let whole = rates(report.whole_run());
    let Some(steady) = report.steady() else {
        return format!(
            "throughput    {whole}, over the whole run: most answers came within too short a part of it to tell a steady state\n"
        );
    };
    format!(
        "throughput    {}, steady: the middle half of all answers, seconds {:.0} to {:.0}\nwhole run     {whole}\n",
        rates(steady),
        steady.from,
        steady.until,
    )
}

fn busy(Load { count, mean, most, .. }: &Load) -> String {
    format!("the busiest of {count} {:.1} % of the time, all {:.1} %", 100.0 * most, 100.0 * mean)
}

/// The kinds of queues that held the cluster back all the time, and how busy they were.
fn saturated(report: &Report) -> String {
    let named = |load: &Load| format!("{}: {}", load.kind.name(), busy(load));
    let saturated: Vec<String> = report.saturated().iter().map(named).collect();
    if saturated.is_empty() { "nothing".to_owned() } else { saturated.join("; ") }
}

/// The kind of queue that requests waited in most, and how long.
fn waiting(report: &Report) -> String {
    let Some(load) = report.most_waited() else { return "nothing".to_owned() };
    format!("{:.3} s a request for {}, the most of all: {}", report.mean_wait(&load), load.kind.name(), busy(&load))
}

const LOAD: [&str; 6] = ["load", "count", "mean", "most", "waited", "a request"];

/// The cells of a kind of queue: how busy it was, and how long requests waited in it.
fn cells(report: &Report, load: &Load) -> [String; 6] {
    let (Load { kind, count, mean, most, waited }, each) = (*load, report.mean_wait(load));
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let (waited, each) = (format!("{waited:.1} s"), format!("{each:.4} s"));
    [kind.name().to_owned(), count.to_string(), percent(mean), percent(most), waited, each]
}

fn answers(over_time: &OverTime) -> Plot {
    let width = over_time.width_seconds();
    let points = over_time.parts().map(|(at, tally)| (at, tally.requests as f64 / width));
    Plot::new("Answers", "seconds since the first arrival", "a second", vec![Line::new("answers", points)])
}

/// The hit rate over time.
pub(super) fn hits(over_time: &OverTime) -> Plot {
    let some = over_time.parts().filter(|(_, tally)| tally.blocks > 0);
    let points = some.map(|(at, tally)| (at, 100.0 * tally.hit_rate()));
    Plot::new("Hit rate", "seconds since the first arrival", "% of blocks", vec![Line::new("hits", points)])
}
