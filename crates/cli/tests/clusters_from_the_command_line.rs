//! `tidepool sim --engines N` as a user meets it.

mod common;

use common::{code, json, rounds, stderr, stdout, text, tidepool};
use serde_json::Value;

/// Requests of one length, a second apart, whose last one comes when all others have long been answered.
fn trace_with_a_tail(dir: &tempfile::TempDir) -> String {
    let line = |n: u64| {
        let at = if n == 199 { 1_000_000 } else { n * 1000 };
        format!("{{\"timestamp\": {at}, \"input_length\": 1000, \"output_length\": 50, \"hash_ids\": [1, {n}]}}\n")
    };
    let path = dir.path().join("tail.jsonl");
    std::fs::write(&path, (0..200).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn sim(flags: &[&str]) -> Value {
    let output = tidepool(&[&["sim", "--json"], flags].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    json(&output)
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {report}"))
}

/// Requests were counted over the middle of a run and tokens over all of it, in one line.
#[test]
fn throughput_of_requests_and_tokens_is_of_one_time_which_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace_with_a_tail(&dir);
    let report = sim(&[&trace, "--engines", "2"]);
    for whole in ["", "/whole_run"] {
        let rate = |name: &str| number(&report, &format!("{whole}/{name}_per_second"));
        let (requests, expected) = (rate("requests"), if whole.is_empty() { 1.0 } else { 0.2 });
        assert!((requests - expected).abs() < 0.02, "{requests} and not {expected}: {report}");
        assert!((rate("input_tokens") / requests - 1000.0).abs() < 1e-6, "{report}");
        assert!((rate("output_tokens") / requests - 50.0).abs() < 1e-6, "{report}");
        assert_eq!(rate("effective_requests"), requests, "all are within limits");
    }
    let steady = ["from", "until"].map(|end| number(&report, &format!("/steady/{end}_seconds")));
    assert!((49.0..=52.0).contains(&steady[0]) && (149.0..=152.0).contains(&steady[1]), "{steady:?}");
    let shown = stdout(&tidepool(&["sim", &trace, "--engines", "2"]));
    assert!(shown.contains("steady: the middle half of all answers, seconds 50 to 150"), "{shown}");
    assert!(shown.contains("\nwhole run     0.20 requests"), "{shown}");
    // A run of ten seconds has no middle.
    let short = [trace.as_str(), "--engines", "2", "--requests", "10"];
    assert_eq!(sim(&short)["steady"], Value::Null);
    let shown = stdout(&tidepool(&[&["sim"], &short[..]].concat()));
    assert!(
        shown.contains("over the whole run: most answers came within too short a part of it")
            && !shown.contains("steady:"),
        "{shown}"
    );
}

/// It was the middle of the largest value's step, and could lie below the mean.
#[test]
fn the_longest_time_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.jsonl");
    let blocks: Vec<String> = (0..137).map(|block| block.to_string()).collect();
    let (length, ids) = ("\"input_length\": 70000, \"output_length\": 500", blocks.join(", "));
    std::fs::write(&path, format!("{{\"timestamp\": 0, {length}, \"hash_ids\": [{ids}]}}\n")).unwrap();
    let report = sim(&[path.to_str().unwrap(), "--engines", "1"]);
    for times in ["first_token_ms", "end_to_end_ms", "between_tokens_ms"] {
        assert_eq!(report[times]["max"], report[times]["mean"], "of one request: {report}");
    }
}

/// Where queues filled in bursts only, the report said that nothing had held requests back.
#[test]
fn what_requests_waited_for_is_named_where_nothing_is_saturated() {
    let dir = tempfile::tempdir().unwrap();
    let blocks: Vec<String> = (0..20).map(|block| block.to_string()).collect();
    // Eight requests for the same prompt every minute, whose host sends it out for twenty seconds of that.
    let line = |n: u64| {
        let (at, ids) = (n / 8 * 60_000, blocks.join(", "));
        format!("{{\"timestamp\": {at}, \"input_length\": 10240, \"output_length\": 5, \"hash_ids\": [{ids}]}}\n")
    };
    let path = dir.path().join("bursts.jsonl");
    std::fs::write(&path, (0..200).map(line).collect::<String>()).unwrap();
    let flags = [path.to_str().unwrap(), "--engines", "4", "--local", "0B", "--nic-rate", "500MiB"];
    let report = sim(&flags);
    assert_eq!(report["saturated"], Value::Array(Vec::new()));
    assert_eq!(report["most_waited"]["resource"], "nic_out");
    let (wait, most) = (number(&report, "/most_waited/mean_wait_ms"), number(&report, "/most_waited/most"));
    assert!((2000.0..20_000.0).contains(&wait) && (0.1..0.8).contains(&most), "{report}");
    assert_eq!(report["most_waited"]["mean_wait_ms"], report["loads"]["nic_out"]["mean_wait_ms"]);
    let shown = stdout(&tidepool(&[&["sim"], &flags[..]].concat()));
    let waiting = format!("\nsaturated     nothing\nwaiting       {:.3} s a request for nic_out", wait / 1000.0);
    assert!(shown.contains(&waiting), "{shown}");
    // Who never meets anybody waits for nothing.
    let alone = sim(&[path.to_str().unwrap(), "--engines", "4", "--requests", "1"]);
    assert_eq!(alone["most_waited"], Value::Null);
}

/// Milliseconds from 2^44 on, of up to 2^53 that a trace may have, were the same to a cluster: every time in its report was zero.
#[test]
fn requests_at_the_latest_times_that_a_trace_may_have_fare_as_any_others() {
    let dir = tempfile::tempdir().unwrap();
    let report = |start: u64| {
        let line = |n: u64| {
            let at = start + n * 1000;
            format!("{{\"timestamp\": {at}, \"input_length\": 1000, \"output_length\": 50, \"hash_ids\": [1, {n}]}}\n")
        };
        let path = dir.path().join("late.jsonl");
        std::fs::write(&path, (0..100).map(line).collect::<String>()).unwrap();
        sim(&[path.to_str().unwrap(), "--engines", "2"])
    };
    let (early, late) = (report(0), report((1 << 53) - 100_000));
    assert!(number(&late, "/seconds") > 99.0, "{late}");
    for what in ["hit_rate", "first_token_ms", "end_to_end_ms", "requests_per_second", "loads"] {
        assert_eq!(early[what], late[what], "{what}");
    }
}

#[test]
fn a_capacity_that_is_too_small_is_told_by_the_flag_that_gave_it() {
    let refused = |flag: &str, value: &str| {
        let output = tidepool(&["sim", "--preset", "codex", "--sessions", "1", "--engines", "2", flag, value]);
        assert_eq!(code(&output), 2);
        stderr(&output)
    };
    let blocks = refused("--capacity-blocks", "1");
    assert!(blocks.contains("--capacity-blocks: allowed is a block or more for each node, 2 in all"), "{blocks}");
    let bytes = refused("--capacity", "64MiB");
    assert!(bytes.contains("--capacity: allowed is a block or more for each node, 128.0 MiB in all"), "{bytes}");
}

#[test]
fn a_cluster_with_a_pool_hits_what_engines_alone_miss() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let cluster = |flags: &[&str]| {
        let output = tidepool(&[&["sim", text(&trace), "--json", "--engines", "4", "--local", "1GiB"], flags].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json(&output)
    };
    let (with, without) = (cluster(&[]), cluster(&["--no-pool"]));
    assert_eq!((with["hit_rate"].as_f64(), without["hit_rate"].as_f64()), (Some(0.9), Some(0.0)));
    assert_eq!(with, cluster(&["--capacity-blocks", "1000"]));
    // Without sessions nobody waits for answers.
    assert_eq!(with, cluster(&["--closed-loop"]));
    let told = tidepool(&["sim", text(&trace), "--engines", "4", "--routing", "sticky", "--closed-loop"]);
    let nothing = "no request has a session, so --closed-loop and --routing sticky change nothing";
    assert!(stderr(&told).contains(nothing), "{}", stderr(&told));
    let first = |report: &serde_json::Value| report["first_token_ms"]["p50"].as_f64().unwrap();
    assert!(first(&with) < first(&without), "{with} {without}");
    let slow = cluster(&["--nic-rate", "100MiB"]);
    let saturated: Vec<_> = slow["saturated"].as_array().unwrap().iter().map(|load| &load["resource"]).collect();
    assert!(saturated.contains(&&"nic_in".into()), "{slow}");
    assert!(slow["saturated"][0]["most"].as_f64().unwrap() > 0.8, "{slow}");
    let shown = stdout(&tidepool(&["sim", text(&trace), "--engines", "4", "--routing", "random"]));
    assert!(shown.starts_with("hit rate      90.00 %"), "{shown}");
    let future = tidepool(&["sim", text(&trace), "--engines", "4", "--policy", "optimal"]);
    assert_eq!(code(&future), 2);
    assert!(stderr(&future).contains("--policy optimal: allowed without --engines"), "{}", stderr(&future));
    for flags in [["--routing", "random"], ["--nic-rate", "1GiB"]] {
        let alone = tidepool(&[&["sim", text(&trace)], &flags[..]].concat());
        assert_eq!(code(&alone), 2);
        assert!(stderr(&alone).contains("--engines"), "{}", stderr(&alone));
    }
}

#[test]
fn agents_are_generated_as_the_run_goes_and_need_no_file() {
    let sim = |flags: &[&str]| {
        let output = tidepool(&[&["sim", "--preset", "codex", "--live", "4", "--json"], flags].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json(&output)
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t");
    let made = ["trace", "generate", "codex", "--live", "4", "--requests", "300", "-o", text(&file)];
    assert_eq!(code(&tidepool(&made)), 0);
    let read = json(&tidepool(&["sim", text(&file), "--json"]));
    assert_eq!((&read, read["trace"]["requests"].as_u64()), (&sim(&["--requests", "300"]), Some(300)));
    // Sessions that react to their answers say the same, at other times.
    let cluster = |flags: &[&str]| sim(&[&["--engines", "2", "--sessions", "5"], flags].concat());
    let (open, closed) = (cluster(&[]), cluster(&["--closed-loop"]));
    assert_eq!(open["trace"]["requests"], closed["trace"]["requests"]);
    assert_ne!(open["seconds"], closed["seconds"]);
    assert_eq!(cluster(&["--closed-loop", "--requests", "50"])["trace"]["requests"], 50);
    for bad in [&["sim"][..], &["sim", text(&file), "--preset", "codex"], &["sim", text(&file), "--live", "4"]] {
        assert_eq!(code(&tidepool(bad)), 2, "{bad:?}");
    }
}
