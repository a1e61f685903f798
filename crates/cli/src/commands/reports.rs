//! What a cluster did, simulated or real, for people and for machines.

use super::traces::{Read, grouped, rounded};
use serde_json::{Map, Value, json};
use tidepool_sim::Quantiles;
use tidepool_sim::cluster::{Load, Report};

/// Of a part of all hits, the hit rate.
fn rate(report: &Report, blocks: u64) -> f64 {
    if report.tally.blocks == 0 { 0.0 } else { blocks as f64 / report.tally.blocks as f64 }
}

fn per_second(report: &Report, amount: u64) -> f64 {
    if report.seconds > 0.0 { amount as f64 / report.seconds } else { 0.0 }
}

fn saved(report: &Report) -> f64 {
    report.prefill_seconds - report.computed_seconds
}

/// For machines.
pub(super) fn json(report: &Report, read: &Read) -> Value {
    let millis = |times: &Quantiles| {
        let at = |part| times.at(part) as f64 / 1000.0;
        json!({ "mean": times.mean() / 1000.0, "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0) })
    };
    let load = |load: &Load| {
        let Load { count, mean, most, waited, .. } = *load;
        json!({ "count": count, "mean": mean, "most": most, "waited_seconds": waited })
    };
    let loads: Map<String, Value> = report.loads.iter().map(|of| (of.kind.name().to_owned(), load(of))).collect();
    json!({
        "hit_rate": report.tally.hit_rate(),
        "local_hit_rate": rate(report, report.local_hit_blocks),
        "disk_hit_rate": rate(report, report.disk_hit_blocks),
        "blocks": report.tally.blocks,
        "hit_blocks": report.tally.hit_blocks,
        "evicted_blocks": report.evicted_blocks,
        "loaded_bytes": report.loaded_bytes,
        "network_bytes": report.network_bytes,
        "first_token_ms": millis(&report.first_token),
        "end_to_end_ms": millis(&report.end_to_end),
        "between_tokens_ms": millis(&report.between_tokens),
        "seconds": report.seconds,
        "requests_per_second": report.requests_per_second(),
        "input_tokens_per_second": per_second(report, report.tally.input_tokens),
        "output_tokens_per_second": per_second(report, report.output_tokens),
        "within_limits": report.part_within_limits(),
        "effective_requests_per_second": report.part_within_limits() * report.requests_per_second(),
        "gpu_seconds_saved": saved(report),
        "gpu_seconds_computed": report.computed_seconds,
        "saturated": report.saturated().iter().map(|of| {
            let mut object = load(of);
            object["resource"] = json!(of.kind.name());
            object
        }).collect::<Vec<_>>(),
        "loads": loads,
        "trace": read.describe(),
    })
}

/// For people.
pub(super) fn text(report: &Report) -> String {
    let seconds = |times: &Quantiles| {
        let at = |part| times.at(part) as f64 / 1e6;
        format!("{:.3} s median, {:.3} s p99", at(0.5), at(0.99))
    };
    let text = format!(
        "hit rate      {:.2} % ({:.2} % the engines' own, {:.2} % from disk)\nrequests      {} in {:.1} s\n\
         throughput    {:.2} requests, {:.0} tokens in, {:.0} tokens out a second\nfirst token   {}\nend to end    {}\n\
         in limits     {:.2} %\nGPU time      {:.0} s computed, {:.0} s saved\nloaded        {}\n",
        100.0 * report.tally.hit_rate(),
        100.0 * rate(report, report.local_hit_blocks),
        100.0 * rate(report, report.disk_hit_blocks),
        grouped(report.tally.requests),
        report.seconds,
        report.requests_per_second(),
        per_second(report, report.tally.input_tokens),
        per_second(report, report.output_tokens),
        seconds(&report.first_token),
        seconds(&report.end_to_end),
        100.0 * report.part_within_limits(),
        report.computed_seconds,
        saved(report),
        rounded(report.loaded_bytes),
    );
    text + &loads(report)
}

/// How busy everything was that was simulated.
fn loads(report: &Report) -> String {
    if report.loads.is_empty() {
        return String::new();
    }
    let named = |load: &Load| {
        let Load { kind, count, mean, most, .. } = load;
        format!("{}: the busiest of {count} {:.1} % of the time, all {:.1} %", kind.name(), 100.0 * most, 100.0 * mean)
    };
    let saturated: Vec<String> = report.saturated().iter().map(named).collect();
    let saturated = if saturated.is_empty() { "nothing".to_owned() } else { saturated.join("\n              ") };
    let mut text = format!(
        "network       {}\nsaturated     {saturated}\n\n{:<10} {:>6} {:>8} {:>8} {:>12}\n",
        rounded(report.network_bytes),
        "LOAD",
        "COUNT",
        "MEAN",
        "MOST",
        "WAITED",
    );
    for load in &report.loads {
        let (name, mean, most) = (load.kind.name(), 100.0 * load.mean, 100.0 * load.most);
        text += &format!("{name:<10} {:>6} {mean:>6.1} % {most:>6.1} % {:>10.1} s\n", load.count, load.waited);
    }
    text
}
