//! A replay that is stopped, or whose pool vanishes, reports the results so far, and says that they are partial.

mod common;

use common::{Daemon, code, entries, json, metric, pool_args, stderr};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tidepool_testing::{eventually, memory_dir};

/// More requests than will ever be played.
fn replay(pool: &Daemon, dir: &Path, page: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(["replay", "--preset", "codex", "--requests", "10000000", "--live", "8", "--pace", "200", "--json"]);
    command.args(["--closed-loop", "--local", "1MiB", "--catalogs", pool.address("catalog", "listen")]);
    command.arg("--dir").arg(dir).arg("--html").arg(page);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the replay has put blocks of several requests.
fn under_way(pool: &Daemon) {
    let used = || json(&pool.run(&["stat", "--json"]))["used_bytes"].as_u64().unwrap_or(0);
    eventually("blocks of several requests", || used() > 4 << 20);
}

fn check(output: &Output, page: &Path, why: &str) -> Value {
    assert_eq!(code(output), 4, "{}", stderr(output));
    assert!(stderr(output).contains(why), "{}", stderr(output));
    let found = json(output);
    assert_eq!(found["replay"]["partial"], true, "{found}");
    assert!(found["replay"]["ended_early"].as_str().unwrap().contains(why), "{found}");
    assert_eq!(found["replay"]["wrong_blocks"], 0, "{found}");
    assert!(found["first_token_ms"]["p50"].as_f64().unwrap() > 0.0, "{found}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("PARTIAL") && page.contains(why), "{page}");
    found
}

/// A stop at a moment when no request was under way, as happens among few agents, was told in other words and left
/// `ended_early` empty.
#[test]
fn ctrl_c_leaves_a_partial_report() {
    let dir = memory_dir();
    let page = dir.path().join("page.html");
    let pool = Daemon::pool(dir.path());
    let child = replay(&pool, dir.path(), &page);
    under_way(&pool);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let found = check(&child.wait_with_output().unwrap(), &page, "it was stopped");
    assert_eq!(found["replay"]["failed_puts"], 0, "{found}");
}

#[test]
fn a_pool_that_vanishes_leaves_a_partial_report() {
    let dir = memory_dir();
    let page = dir.path().join("page.html");
    let pool = Daemon::pool(dir.path());
    let child = replay(&pool, dir.path(), &page);
    under_way(&pool);
    pool.signal(Signal::KILL);
    let found = check(&child.wait_with_output().unwrap(), &page, "the pool took nothing any more");
    // A report about 160 requests told of 1,230 look-ups.
    let (replay, after) = (&found["replay"], &found["replay"]["after_the_pool"]);
    let count = |field: &Value| field.as_u64().unwrap();
    assert!(count(&after["failed_puts"]) > 0 && count(&after["requests"]) > 0, "{replay}");
    assert_eq!(replay["failed_puts"], 0, "{replay}");
    let at_work = 2 * 64;
    assert!(count(&replay["lookups"]) <= count(&found["trace"]["requests"]) + at_work, "{found}");
    assert!(count(&after["lookups"]) > 0, "{replay}");
    assert!(replay["remarks"].to_string().contains("still answered without the pool"), "{replay}");
}

/// Whether a replay's log says that its pool takes nothing, for so many seconds at the least, in which so many look-ups failed.
fn has_missed(log: &Path, lookups: u64, seconds: f64) -> bool {
    let said = std::fs::read_to_string(log).unwrap();
    said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(|line| {
        line["message"] == "the pool takes nothing"
            && line["failed_lookups"].as_u64().is_some_and(|failed| failed >= lookups)
            && line["seconds"].as_f64().is_some_and(|lasts| lasts >= seconds)
    })
}

/// Tens of thousands of blocks were not taken, and the report said nothing of it, nor did the exit code.
#[test]
fn a_pool_that_vanishes_and_comes_back_leaves_a_report_that_says_when_and_what_failed() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let [page, said] = ["page.html", "stderr"].map(|name| files.path().join(name));
    let mut pool = Daemon::pool(dir.path());
    let catalog = pool.address("catalog", "listen").to_owned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(["replay", "--preset", "codex", "--sessions", "16", "--pace", "200", "--closed-loop", "--json"]);
    command.args(["--local", "1MiB", "--deadline", "500ms", "--catalogs", &catalog]);
    command.args(["--log-level", "warn", "--log-format", "json"]);
    command.arg("--dir").arg(dir.path()).arg("--html").arg(&page);
    let child = command.stdout(Stdio::piped()).stderr(File::create(&said).unwrap()).spawn().unwrap();
    under_way(&pool);
    pool.signal(Signal::KILL);
    pool.wait();
    // More than 1 % of 600 requests have missed it, and for longer than what is a wink.
    eventually("the log says how many missed it", || has_missed(&said, 10, 0.2));
    let mut args = pool_args(dir.path());
    let listen = args.iter().position(|arg| *arg == "--catalog-listen").unwrap();
    args[listen + 1] = &catalog;
    pool = Daemon::start(&args);
    let output = child.wait_with_output().unwrap();
    let (said, why) = (std::fs::read_to_string(said).unwrap(), "the pool failed in more than 1 %");
    assert_eq!(code(&output), 4, "{said}");
    assert!(said.contains("the pool took nothing for ") && said.contains(why), "{said}");
    let found = json(&output);
    let replay = &found["replay"];
    assert_eq!((&replay["partial"], &replay["ended_early"]), (&Value::Bool(true), &Value::Null), "{replay}");
    assert!(replay["why_partial"].as_str().unwrap().contains(why), "{replay}");
    let outage = &replay["outages"][0];
    assert!(outage["began_seconds"].as_f64().unwrap() > 0.0 && outage["real_seconds"].as_f64().unwrap() > 0.0);
    assert!(outage["failed_puts"].as_u64().unwrap() > 0, "{replay}");
    assert!(replay["failed_lookups"].as_u64().unwrap() > 0, "{replay}");
    assert!(replay["remarks"][0].as_str().unwrap().contains("the pool took nothing for "), "{replay}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("the pool took nothing for ") && page.contains("PARTIAL"), "{page}");
    drop(pool);
}

/// One of three nodes was killed, a hundred blocks that look-ups had found could not be read, and the report looked like any other.
#[test]
fn a_node_that_goes_away_during_a_replay_is_named() {
    let (here, there) = (memory_dir(), memory_dir());
    let catalog = Daemon::catalog();
    let address = catalog.address("catalog", "listen");
    let (_stays, goes) = (Daemon::node("stays", here.path(), address), Daemon::node("goes", there.path(), address));
    let page = here.path().join("page.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(["replay", "--preset", "codex", "--requests", "200", "--live", "8", "--pace", "200", "--json"]);
    command.args(["--closed-loop", "--local", "1MiB", "--catalogs", address, "--dir"]).arg(here.path());
    let child = command.arg("--html").arg(&page).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let blocks = || metric(goes.address("node", "metrics-listen"), "tidepool_node_blocks");
    eventually("blocks on both nodes", || blocks() > 0);
    goes.signal(Signal::KILL);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    let (found, remark) = (json(&output), "node goes went away without a word and did not come back, from ");
    let replay = &found["replay"];
    let [absence] = &replay["absences"].as_array().unwrap()[..] else { panic!("{replay}") };
    assert_eq!((&absence["node"], &absence["came_back"]), (&"goes".into(), &false.into()), "{replay}");
    assert!(absence["lost_blocks"].as_u64() <= replay["lost_blocks"].as_u64(), "{replay}");
    assert_eq!((&replay["partial"], &replay["ended_early"]), (&Value::Bool(true), &Value::Null), "{replay}");
    assert!(replay["why_partial"].as_str().unwrap().starts_with("a node of the pool went away"), "{replay}");
    assert_eq!(found["trace"]["requests"], 200, "all is played all the same");
    for place in [stderr(&output), replay["remarks"].to_string(), std::fs::read_to_string(page).unwrap()] {
        assert!(place.contains(remark), "{place}");
    }
}

#[test]
fn a_demo_that_is_stopped_leaves_nothing_behind() {
    let dir = memory_dir();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(["demo", "--capacity", "16MiB", "--pace", "1", "--dir"]).arg(dir.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its first line comes when the pool is there.
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(entries(dir.path()).len(), 1, "{line}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output).trim()), (4, "tidepool: stopped"));
    assert!(entries(dir.path()).is_empty());
}

/// Ctrl-C left gigabytes under a name that nobody had asked for.
#[test]
fn a_trace_whose_writing_is_stopped_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(["trace", "generate", "codex", "--requests", "1000000000", "-o"]).arg(dir.path().join("t.jsonl"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let part = dir.path().join(format!("t.jsonl.{}.part", child.id()));
    eventually("it writes", || part.metadata().is_ok_and(|part| part.len() > 0));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(
        stderr(&output).starts_with("tidepool: stopped: ") && entries(dir.path()).is_empty(),
        "{}",
        stderr(&output)
    );
}

/// A signal used to end a simulation without a word.
#[test]
fn a_simulation_that_is_stopped_says_what_it_found_so_far() {
    for engines in [&[][..], &["--engines", "4"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
        command.args(["sim", "--preset", "codex", "--requests", "1000000000", "--capacity-blocks", "1000", "--json"]);
        let output = stopped_at_once(command.args(engines));
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("stopped: the report covers the"), "{}", stderr(&output));
        assert_eq!(json(&output)["trace"]["stopped"], true);
    }
}

/// It said that all of no requests were within the limits, after 0 ms each, and that nothing had been evicted, which it cannot know.
#[test]
fn a_replay_that_is_stopped_before_any_answer_has_no_figures() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    // A second of the trace takes a quarter of an hour.
    let output =
        stopped_at_once(command.args(["replay", "--preset", "codex", "--no-pool", "--pace", "0.001", "--json"]));
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let report = json(&output);
    for name in
        ["within_limits", "first_token_ms", "end_to_end_ms", "between_tokens_ms", "evicted_blocks", "network_bytes"]
    {
        assert!(report[name].is_null(), "{name}: {report}");
    }
}

/// Runs a command, and stops it when it has begun.
fn stopped_at_once(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Once it minds signals it has begun.
    let status = format!("/proc/{}/status", child.id());
    eventually("it runs", || common::signal_mask(&std::fs::read_to_string(&status).unwrap(), "SigCgt") & 2 != 0);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}
