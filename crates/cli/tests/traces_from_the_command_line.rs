//! `tidepool sim`, `plan` and `trace` as a user meets them.

mod common;

use common::{code, json, rounds, stderr, stdout, text, tidepool, with_input};
use std::path::Path;

#[test]
fn sim_prints_the_hit_rate_as_a_fraction() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let rate = |flags: &[&str]| {
        let output = tidepool(&[&["sim", text(&trace), "--json"], flags].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json(&output)["hit_rate"].as_f64().unwrap()
    };
    assert_eq!(rate(&[]), 0.9);
    assert_eq!(rate(&["--capacity-blocks", "200", "--policy", "lru"]), 0.9);
    // One block less: the last of the prompt that was used longest ago is gone each time.
    assert_eq!(rate(&["--capacity-blocks", "199"]), 0.855);
    assert_eq!(rate(&["--capacity-blocks", "180"]), 0.0);
    // 512 tokens of 128 KiB are 64 MiB a block.
    assert_eq!(rate(&["--capacity", "12800MiB"]), 0.9);
    assert_eq!(rate(&["--capacity", "12799MiB"]), 0.855);
    let best = rate(&["--capacity-blocks", "100", "--policy", "optimal"]);
    for policy in ["lru", "s3fifo", "sieve", "agents", "clairvoyant"] {
        assert!(rate(&["--capacity-blocks", "100", "--policy", policy]) <= best, "{policy}");
    }
    assert!(best > 0.4, "{best}");
    assert!(stdout(&tidepool(&["sim", text(&trace)])).starts_with("hit rate   90.00 %"));
    let piped = with_input(&["sim", "-", "--capacity-blocks", "199", "--json"], &std::fs::read(&trace).unwrap());
    assert_eq!((code(&piped), &json(&piped)["hit_rate"]), (0, &0.855.into()), "a dash is standard input");
}

/// A page took the place of the trace that it was about.
#[test]
fn a_page_never_takes_the_place_of_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let before = std::fs::read(&trace).unwrap();
    let [link, symlink] = ["link", "symlink"].map(|name| dir.path().join(name));
    std::fs::hard_link(&trace, &link).unwrap();
    std::os::unix::fs::symlink(&trace, &symlink).unwrap();
    for page in [&trace, &link, &symlink] {
        for command in
            [&["sim"][..], &["sim", "--engines", "2"], &["plan"], &["trace", "stat"], &["replay", "--no-pool"]]
        {
            let output = tidepool(&[command, &[text(&trace), "--html", text(page)]].concat());
            assert_eq!(code(&output), 2, "{command:?}");
            assert!(stderr(&output).contains("allowed is a file other than the trace"), "{}", stderr(&output));
            assert!(std::fs::read(&trace).unwrap() == before, "{command:?}");
        }
    }
}

#[test]
fn mistakes_are_named_with_what_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let cases: [(&[&str], &str); 16] = [
        (&["sim", "--preset", "codex", "--strict"], "--format and --strict: allowed with a trace, not with --preset"),
        (&["plan", "--preset", "codex", "--format", "azure"], "allowed with a trace, not with --preset"),
        (
            &["sim", text(&trace), "--policy", "optimal", "--admission", "second-sight"],
            "--policy optimal: allowed with --admission all",
        ),
        (&["plan", text(&trace), "--token-bytes", "16777215TiB"], "allowed is 1B to 1GiB"),
        (&["replay", text(&trace), "--no-pool", "--token-bytes", "2GiB"], "allowed is 1B to 1GiB"),
        (&["trace", "merge", "-", "-", "-o", "x"], "-: allowed once"),
        (&["sim", text(&trace), "--capacity", "1MiB"], "allowed is a block or more for each node, 64.0 MiB in all"),
        (
            &["sim", text(&trace), "--engines", "8", "--capacity-blocks", "7"],
            "--capacity-blocks: allowed is a block or more for each node, 8 in all",
        ),
        (&["sim", text(&trace), "--policy", "mru"], "allowed are lru, s3fifo, sieve, agents, clairvoyant and optimal"),
        (&["sim", "/dev/null", "--policy", "optimal"], "--policy optimal reads the trace twice: allowed is a file"),
        (
            &["replay", text(&trace), "--no-pool", "--engines", "256"],
            "engines times batch is 16384: allowed are 1 to 4096",
        ),
        (&["sim", text(&trace), "--capacity-blocks", "0"], "0 is not in 1.."),
        (&["sim", text(&trace), "--capacity", "0B"], "allowed is 1B or more"),
        (&["trace", "scale", text(&trace), "-o", "x", "--factor", "0"], "allowed is a number from 0.000001"),
        (&["trace", "stat", text(&trace), "--format", "csv"], "allowed is tidepool, mooncake or azure"),
        (
            &["trace", "slice", text(&trace), "-o", "x", "--from", "2s", "--until", "1s"],
            "--until is 1s: allowed are times after --from, 2s",
        ),
    ];
    for (args, message) in cases {
        let output = tidepool(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    }
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    for command in [&["sim"][..], &["sim", "--engines", "2"], &["plan"], &["trace", "stat"]] {
        let output = tidepool(&[command, &[text(&empty)]].concat());
        assert_eq!(code(&output), 1, "{command:?}");
        assert!(stderr(&output).contains("no requests in this trace"), "{command:?}: {}", stderr(&output));
    }
    let malformed = dir.path().join("malformed");
    std::fs::write(&malformed, "{\"x\":\n{}\n").unwrap();
    for command in [&["sim"][..], &["sim", "--engines", "2"], &["plan"], &["trace", "stat"], &["replay", "--no-pool"]] {
        let output = tidepool(&[command, &[text(&malformed)]].concat());
        assert_eq!(code(&output), 1, "{command:?}");
        let said = stderr(&output);
        assert!(
            said.contains("2 malformed lines skipped; the first: line 1: EOF while parsing a value at column"),
            "{said}"
        );
        assert!(said.contains("no requests in this trace"), "{said}");
    }
    let missing = tidepool(&["sim", "/no/such/trace"]);
    assert_eq!(code(&missing), 1);
    assert!(stderr(&missing).contains("/no/such/trace"), "{}", stderr(&missing));
}

#[test]
fn malformed_lines_are_skipped_and_shown_or_stop_a_strict_run() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let mut lines: Vec<String> = std::fs::read_to_string(&trace).unwrap().lines().map(str::to_owned).collect();
    lines[49] = "{\"timestamp\": 1}".to_owned();
    std::fs::write(&trace, lines.join("\n")).unwrap();
    let lenient = tidepool(&["sim", text(&trace), "--json"]);
    assert_eq!((code(&lenient), &json(&lenient)["trace"]["malformed_lines"]), (0, &1.into()));
    assert!(stderr(&lenient).contains("1 malformed line skipped; the first: line 50: "), "{}", stderr(&lenient));
    let strict = tidepool(&["sim", text(&trace), "--json", "--strict"]);
    assert_eq!((code(&strict), &json(&strict)["trace"]["requests"]), (1, &49.into()));
    assert!(stderr(&strict).contains("line 50: "), "{}", stderr(&strict));
}

#[test]
fn plan_says_how_much_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let plan = json(&tidepool(&["plan", text(&trace), "--json"]));
    assert_eq!(plan["hit_rate_ceiling"], 0.9);
    assert_eq!(plan["knee"]["capacity_blocks"], 200);
    assert_eq!(plan["one_tib_more"]["hit_rate"], plan["knee"]["hit_rate"]);
    // Disk of any size behind enough memory changes nothing; behind too little, it does.
    assert!(plan["with_disk"].as_array().unwrap().iter().all(|point| point["hit_rate"] == 0.9), "{plan}");
    let small = json(&tidepool(&["plan", text(&trace), "--json", "--have", "1GiB"]));
    assert_eq!(small["with_disk"].as_array().unwrap().last().unwrap()["hit_rate"], 0.9, "{small}");
    let words = stdout(&tidepool(&["plan", text(&trace), "--have", "1GiB"]));
    assert!(words.contains("The knee is at 12.5 GiB: 90.00 % hits"), "{words}");
    assert!(words.contains("With 1.0 GiB, a TiB more would raise hits from 0.00 to 90.00 %"), "{words}");
    let nothing = stdout(&tidepool(&["plan", text(&trace), "--have", "0B"]));
    assert!(nothing.contains("With 0 B, a TiB more would raise hits from 0.00 to 90.00 %"), "{nothing}");
}

/// "A TiB more would raise hits from 4.48 to 4.48 %" read like a bug.
#[test]
fn plan_says_when_more_memory_buys_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let words = |flags: &[&str]| stdout(&tidepool(&[&["plan", text(&trace)], flags].concat()));
    let enough = words(&[]);
    assert!(
        enough.contains("With 12.5 GiB, more memory would buy nothing: hits are at 90.00 %, as far as they go."),
        "{enough}"
    );
    // Blocks so large that a TiB more holds two of them.
    let large = words(&["--token-bytes", "1GiB", "--have", "1TiB"]);
    assert!(large.contains("With 1.0 TiB, a TiB more would buy nothing: hits stay at 0.00 %."), "{large}");
    // All is on disk already; memory is faster.
    let disk = words(&["--have", "1GiB", "--disk", "1TiB"]);
    assert!(disk.contains("a TiB more would leave hits at 90.00 %, and prompts would be ready in"), "{disk}");
}

#[test]
fn plan_says_from_where_blocks_come_more_slowly_than_they_are_computed() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let words = |flags: &[&str]| stdout(&tidepool(&[&["plan", text(&trace)], flags].concat()));
    // 64 MiB at 3 GiB a second; 512 tokens of the first 10,000 or so.
    let slow = words(&[]);
    assert!(slow.contains("At 3.0 GiB a second a block comes from disk in 20.8 ms and is computed in 1"), "{slow}");
    assert!(
        slow.contains("restoring from there frees GPUs, but is not worth it for the time to first token."),
        "{slow}"
    );
    assert!(!slow.contains("from the pool's memory in"), "{slow}");
    let fast = words(&["--disk-rate", "8GiB"]);
    assert!(!fast.contains("a block comes from"), "{fast}");
    assert!(
        words(&["--disk", "1TiB"])
            .contains("Hits in memory alone have their knee at 12.5 GiB: with the disk behind it 90.00 % hits")
    );
    let far = words(&["--disk-rate", "8GiB", "--memory-rate", "1GiB"]);
    assert!(far.contains("At 1.0 GiB a second a block comes from the pool's memory in 62.5 ms"), "{far}");
    let block = &json(&tidepool(&["plan", text(&trace), "--json"]))["block_seconds"];
    assert!(block["from_disk"].as_f64() > block["compute"].as_f64(), "{block}");
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_the_work_and_nothing_else_is_ever_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let missing = dir.path().join("no/such/page.html");
    let endless = ["--preset", "codex", "--requests", "1000000000000"];
    for command in [&["sim"][..], &["sim", "--engines", "2"], &["plan"], &["trace", "stat"], &["replay", "--no-pool"]] {
        for (page, why) in [(text(&missing), "page.html: No such file"), ("/dev/null", "/dev/null: not a file")] {
            let output = tidepool(&[command, &endless, &["--html", page]].concat());
            assert_eq!((code(&output), stdout(&output).as_str()), (1, ""), "{command:?}");
            assert!(stderr(&output).contains(why), "{command:?}: {}", stderr(&output));
        }
        let output = tidepool(&[command, &endless, &["--html", "-"]].concat());
        assert_eq!(code(&output), 2, "{command:?}");
        assert!(stderr(&output).contains("allowed is a file: standard output is"), "{}", stderr(&output));
    }
    for (args, why) in [
        (["trace", "convert", text(&trace), "-o", "-"], "allowed is a file"),
        (["trace", "convert", text(&trace), "--force", "--output=/dev/null"], "/dev/null is not a file"),
        (["trace", "record", "--catalogs=127.0.0.1:1", "-o", "-"], "allowed is a file"),
        (["trace", "record", "--catalogs=127.0.0.1:1", "-oy", "--for=0s"], "allowed is 1us or more"),
        (["trace", "record", "--catalogs=127.0.0.1:1", "-oy", "--size=0B"], "allowed is 1B or more"),
        (["bench", "--baselines", "--footprint=8MiB", "--json-file", "-"], "allowed is a file"),
        (["sim", text(&trace), "--json", "--capacity", "16777216TiB"], "is too large: the largest size is 16777215TiB"),
    ] {
        let output = tidepool(&args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
    }
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("nothing", &link).unwrap();
    let convert = ["trace", "convert", text(&trace), "--force", "-o", text(&link)];
    assert_eq!(code(&tidepool(&convert)), 2);
    std::fs::write(dir.path().join("nothing"), "").unwrap();
    assert_eq!(code(&tidepool(&convert)), 0);
    assert!(link.is_symlink() && std::fs::metadata(&link).unwrap().len() > 0);
    let bench = tidepool(&["bench", "--baselines", "--footprint=8MiB", "--json-file", "/no/such/dir/x.json"]);
    assert_eq!((code(&bench), stdout(&bench).as_str()), (1, ""));
    assert!(stderr(&bench).contains("/no/such/dir/x.json: No such file"), "{}", stderr(&bench));
}

/// A script went on with a trace that had nothing in it.
#[test]
fn a_trace_without_requests_is_an_error_and_none_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, empty, written) = (rounds(&dir), dir.path().join("empty"), dir.path().join("o"));
    let head = "{\"tidepool_trace\":1,\"block_tokens\":512}\n";
    let commands: [&[&str]; 6] = [
        &["trace", "convert"],
        &["trace", "slice"],
        &["trace", "scale", "--factor", "2"],
        &["trace", "merge", "--shared"],
        &["trace", "merge"],
        &["replay", "--no-pool"],
    ];
    for content in ["", "\n\n", "\u{feff}", head, "{}\n"] {
        std::fs::write(&empty, content).unwrap();
        for command in commands {
            let to = if command[0] == "trace" { &["-o", text(&written)][..] } else { &[] };
            let output = tidepool(&[command, &[text(&empty)], to].concat());
            assert_eq!((code(&output), stdout(&output).as_str()), (1, ""), "{command:?} {content:?}");
            assert!(stderr(&output).contains("no requests"), "{command:?}: {}", stderr(&output));
            assert_eq!(
                stderr(&output).contains("1 malformed"),
                content.starts_with('{') && content != head,
                "{}",
                stderr(&output)
            );
        }
    }
    let late = tidepool(&["trace", "slice", text(&whole), "--from", "1h", "-o", text(&written)]);
    assert_eq!(code(&late), 1, "{}", stderr(&late));
    assert!(!written.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside it");
}

#[test]
fn traces_are_converted_cut_scaled_and_merged_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let trace = rounds(&dir);
    let file = |name: &str| dir.path().join(name);
    let make = |args: &[&str], to: &Path| {
        let output = tidepool(&[&["trace"], args, &["-o", text(to), "--json"]].concat());
        assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
        json(&output)["requests"].as_u64().unwrap()
    };
    let stat = |path: &Path| {
        let mut stat = json(&tidepool(&["trace", "stat", text(path), "--json"]));
        stat.as_object_mut().unwrap().remove("trace");
        stat
    };
    let (own, head, tail, whole) = (file("own"), file("head"), file("tail"), file("whole"));
    assert_eq!(make(&["convert", text(&trace)], &own), 100);
    assert_eq!(stat(&own), stat(&trace));
    assert_eq!(make(&["slice", text(&own), "--until", "40s"], &head), 40);
    assert_eq!(make(&["slice", text(&own), "--from", "40s"], &tail), 60);
    assert_eq!(make(&["merge", "--shared", text(&head), text(&tail)], &whole), 100);
    assert_eq!(stat(&whole)["hit_rate_ceiling"], 0.9);
    assert_eq!(make(&["merge", "--force", text(&head), text(&tail)], &whole), 100);
    assert_eq!(stat(&whole)["hit_rate_ceiling"], 0.8);
    assert_eq!(make(&["scale", text(&own), "--factor", "0.5", "--force"], &own), 100);
    assert_eq!(stat(&own)["duration_ms"], 49_500);
    let again = tidepool(&["trace", "convert", text(&trace), "-o", text(&own)]);
    assert_eq!(code(&again), 2);
    assert!(stderr(&again).contains("--force"), "{}", stderr(&again));
    assert!(stdout(&tidepool(&["trace", "stat", text(&trace)])).contains("hit ceiling  90.00 %"));
}

/// Blocks that have no hashes are numbered, in each file from zero on: requests that share nothing hit each other's.
#[test]
fn traces_without_hashes_are_merged_without_hits_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other, named, whole] = ["one.csv", "other.csv", "named", "whole"].map(|name| dir.path().join(name));
    let lines = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10\n2023-11-16 18:17:04,512,8\n";
    [&one, &other].into_iter().for_each(|path| std::fs::write(path, lines).unwrap());
    std::fs::copy(rounds(&dir), &named).unwrap();
    for (first, nameless) in [(&one, &one), (&named, &other)] {
        let merge = ["trace", "merge", text(first), text(&other), "-o", text(&whole)];
        let shared = tidepool(&[&merge[..], &["--shared"]].concat());
        assert_eq!((code(&shared), stdout(&shared).as_str(), whole.exists()), (2, "", false));
        let why = format!("{}: its blocks have no names: allowed without --shared", nameless.display());
        assert!(stderr(&shared).contains(&why), "{}", stderr(&shared));
    }
    assert_eq!(code(&tidepool(&["trace", "merge", text(&one), text(&other), "-o", text(&whole)])), 0);
    assert_eq!(json(&tidepool(&["trace", "stat", text(&whole), "--json"]))["hit_rate_ceiling"], 0.0);
}

/// It left a file with what came before, under the name that a whole one has; said that it had skipped the line that stopped it; and not
/// in which file that was.
#[test]
fn a_strict_command_that_stops_writes_nothing_and_says_which_line_of_which_file_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad, written) = (rounds(&dir), dir.path().join("bad.jsonl"), dir.path().join("o"));
    let lines = std::fs::read_to_string(&good).unwrap();
    std::fs::write(&bad, format!("{lines}{{\"timestamp\": 1}}\n")).unwrap();
    let commands: [&[&str]; 4] = [
        &["convert", text(&bad)],
        &["slice", text(&bad)],
        &["scale", "--factor", "2", text(&bad)],
        &["merge", text(&good), text(&bad)],
    ];
    for command in commands {
        let run = |flags: &[&str]| tidepool(&[&["trace"], command, &["-o", text(&written)], flags].concat());
        let strict = run(&["--strict"]);
        assert_eq!((code(&strict), stdout(&strict).as_str()), (1, ""), "{command:?}: {}", stderr(&strict));
        let (said, named) = (stderr(&strict), format!("tidepool: {}: line 101: ", bad.display()));
        assert!(said.starts_with(&named) && said.trim_end().ends_with("is not written"), "{command:?}: {said}");
        assert!(said.lines().count() == 1 && !said.contains("skipped"), "{command:?}: {said}");
        assert_eq!(common::entries(dir.path()).len(), 2, "{command:?}");
        // What is there stays as it is.
        std::fs::write(&written, "before").unwrap();
        assert_eq!(code(&run(&["--strict", "--force"])), 1, "{command:?}");
        assert_eq!(std::fs::read_to_string(&written).unwrap(), "before", "{command:?}");
        let lenient = run(&["--force"]);
        assert_eq!(code(&lenient), 0, "{command:?}: {}", stderr(&lenient));
        assert!(stderr(&lenient).contains("1 malformed line skipped"), "{command:?}: {}", stderr(&lenient));
        std::fs::remove_file(&written).unwrap();
    }
}

/// It was ignored for a trace that says what its blocks are, and everything that follows from their size was another one's.
#[test]
fn block_tokens_that_contradict_the_trace_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, own, other) = (rounds(&dir), dir.path().join("own"), dir.path().join("other"));
    assert_eq!(code(&tidepool(&["trace", "convert", text(&trace), "-o", text(&own)])), 0);
    let commands: [&[&str]; 5] = [
        &["sim"],
        &["plan"],
        &["trace", "stat"],
        &["trace", "convert", "-o", text(&other)],
        &["replay", "--no-pool", "--pace", "1e6"],
    ];
    for command in commands {
        let output = tidepool(&[command, &[text(&own), "--block-tokens", "16"]].concat());
        assert_eq!((code(&output), stdout(&output).as_str()), (2, ""), "{command:?}");
        let said = format!("{}: its first line says that blocks have 512 tokens, --block-tokens 16", own.display());
        assert!(stderr(&output).contains(&said), "{command:?}: {}", stderr(&output));
        let agreed = tidepool(&[command, &[text(&own), "--block-tokens", "512"]].concat());
        assert_eq!(code(&agreed), 0, "{command:?}: {}", stderr(&agreed));
    }
    let sized = json(&tidepool(&["sim", text(&trace), "--block-tokens", "256", "--json"]));
    assert_eq!(sized["trace"]["block_tokens"], 256, "this format does not say");
}

#[test]
fn one_is_not_many() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, one) = (rounds(&dir), dir.path().join("one"));
    let said = |args: &[&str]| {
        let output = tidepool(args);
        assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(said(&["trace", "slice", text(&trace), "--limit", "1", "-o", text(&one)]), "1 request\n");
    assert_eq!(said(&["trace", "convert", text(&trace), "-o", text(&one), "--force"]), "100 requests\n");
    assert!(said(&["sim", text(&trace), "--capacity-blocks", "1"]).contains("cache      1 block ("));
}

/// First turns were counted: one that was repeated was two sessions, and one from before a slice was none.
#[test]
fn stat_counts_each_session_once_also_if_its_first_turn_is_repeated_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, slice) = (dir.path().join("trace"), dir.path().join("slice"));
    let line = |(n, (session, turn)): (usize, (u64, u64))| {
        let (at, request) = (1000 * n, "\"input_tokens\":1,\"output_tokens\":1,\"blocks\":\"00000000000000aa\"");
        format!("{{\"at_ms\":{at},{request},\"session\":{session},\"turn\":{turn}}}\n")
    };
    let turns = [(1, 0), (1, 0), (2, 0), (2, 1), (1, 1), (3, 0)];
    let lines: String = turns.into_iter().enumerate().map(line).collect();
    std::fs::write(&trace, format!("{{\"tidepool_trace\":1,\"block_tokens\":512}}\n{lines}")).unwrap();
    assert_eq!(code(&tidepool(&["trace", "slice", text(&trace), "--from", "3s", "-o", text(&slice)])), 0);
    for (path, requests) in [(&trace, 6), (&slice, 3)] {
        let stat = json(&tidepool(&["trace", "stat", text(path), "--json"]));
        assert_eq!((&stat["sessions"], &stat["requests_in_sessions"]), (&3.into(), &requests.into()), "{stat}");
    }
}

/// They are those of steps, and nobody said so.
#[test]
fn stat_says_how_far_its_percentiles_may_be_off() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, page) = (rounds(&dir), dir.path().join("page.html"));
    let output = tidepool(&["trace", "stat", text(&trace), "--html", text(&page)]);
    let said = "exact below 128, within 0.8 % above";
    assert!(stdout(&output).contains(&format!("percentiles  {said}")), "{}", stdout(&output));
    assert!(std::fs::read_to_string(page).unwrap().contains(said));
    let found = json(&tidepool(&["trace", "stat", text(&trace), "--json"]));
    let (error, p50) = (found["percentile_error"].as_f64().unwrap(), found["input_tokens"]["p50"].as_f64().unwrap());
    assert!((p50 - 10_240.0).abs() <= error * 10_240.0 && error < 0.01, "{found}");
}

#[test]
fn every_report_can_be_a_page_that_fetches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, page) = (rounds(&dir), dir.path().join("page.html"));
    let commands: [(&[&str], usize, &[&str]); 4] = [
        (&["trace", "stat"], 5, &["hit ceiling", "90.00 %", "reuse distance blocks"]),
        (&["plan"], 4, &["The knee is at 12.5 GiB", "By disk behind 12.5 GiB of memory", "GPU time saved"]),
        (&["sim", "--capacity-blocks", "199"], 1, &["85.50 %", "199 blocks"]),
        (
            &["sim", "--engines", "4", "--local", "1GiB", "--nic-rate", "100MiB"],
            3,
            &["saturated", "nic_in: the busiest of 4", "How long"],
        ),
    ];
    for (command, plots, words) in commands {
        let output = tidepool(&[command, &[text(&trace), "--html", text(&page)]].concat());
        assert_eq!(code(&output), 0, "{command:?}: {}", stderr(&output));
        let html = std::fs::read_to_string(&page).unwrap();
        assert_eq!(html.matches("<svg").count(), plots, "{command:?}");
        assert!(html.matches("<polyline").count() >= plots && html.ends_with("</html>\n"), "{command:?}");
        assert!(words.iter().all(|word| html.contains(word)), "{command:?}: {html}");
        let fetched = html.replace("http://www.w3.org/2000/svg", "");
        assert!(["http", "src=", "href="].iter().all(|word| !fetched.contains(word)), "{command:?}");
    }
    let nowhere = tidepool(&["plan", text(&trace), "--html", "/no/such/dir/page.html"]);
    assert_eq!(code(&nowhere), 1);
    assert!(stderr(&nowhere).contains("/no/such/dir/page.html"), "{}", stderr(&nowhere));
}

/// What a line may say at most once broke sums, filled memory by the second of a run, and had a plan look for the next power of two.
#[test]
fn the_largest_numbers_that_a_trace_may_have_are_only_large() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("extreme");
    let line = |at: u64, last: &str| {
        format!(
            "{{\"at_ms\":{at},\"input_tokens\":600,\"output_tokens\":4294967295,\"blocks\":\"{:016x}{:016x}\",\
             \"session\":18446744073709551615,\"turn\":4294967295,\"pause_ms\":9007199254740992{last}}}\n",
            u64::MAX,
            0
        )
    };
    let head = "{\"tidepool_trace\":1,\"block_tokens\":512}\n";
    std::fs::write(&path, [head, &line(0, ""), &line(1 << 53, ",\"last\":true")].concat()).unwrap();
    let (most, written) = ("18446744073709551615B", dir.path().join("o"));
    let commands: [&[&str]; 8] = [
        &["sim"],
        &["sim", "--policy", "agents", "--capacity-blocks", "1"],
        &["sim", "--engines", "2", "--local", "0B"],
        &["sim", "--engines", "2", "--closed-loop", "--token-bytes", "1GiB", "--disk", most],
        &["sim", "--engines", "1", "--decode", "1000000h", "--nic-rate", "1B"],
        &["plan"],
        &["plan", "--token-bytes", "1GiB", "--have", most, "--disk", most],
        &["trace", "stat"],
    ];
    for command in commands {
        let output = tidepool(&[command, &[text(&path), "--json"]].concat());
        assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{command:?}");
    }
    // A time that becomes too large is an error: requests that came apart would come at once.
    let scaled = tidepool(&["trace", "scale", "--factor", "1.5", "-o", text(&written), text(&path)]);
    assert_eq!((code(&scaled), written.exists()), (1, false), "{}", stderr(&scaled));
    let said = format!("{}: request 1: 9007199254740992 ms times 1.5 is later than 2^53 ms", path.display());
    assert!(stderr(&scaled).contains(&said), "{}", stderr(&scaled));
}

#[test]
fn lengths_that_contradict_their_blocks_and_times_that_go_back_are_told_and_taken_strict_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd");
    let line = |at: u64, tokens: u32| {
        format!("{{\"timestamp\": {at}, \"input_length\": {tokens}, \"output_length\": 5, \"hash_ids\": [1, 2]}}\n")
    };
    std::fs::write(&path, [line(5, 1024), line(3, 10_240), line(6, 512)].concat()).unwrap();
    for command in [&["sim"][..], &["plan", "--strict"], &["trace", "stat", "--strict"], &["sim", "--engines", "2"]] {
        let output = tidepool(&[command, &[text(&path), "--json"]].concat());
        assert_eq!(code(&output), 0, "{command:?}: {}", stderr(&output));
        let trace = &json(&output)["trace"];
        assert_eq!((&trace["contradictory_lengths"], &trace["times_backwards"]), (&2.into(), &1.into()), "{trace}");
        let first = "2 requests have more or fewer blocks than the tokens fill, taken as they are; \
            the first: line 2: 2 blocks of 512 tokens for an input of 10240";
        assert!(stderr(&output).contains(first), "{command:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("1 request is earlier than the request before"), "{}", stderr(&output));
    }
    // With blocks of that size there is nothing odd about a line.
    let sized = json(&tidepool(&["sim", text(&path), "--json", "--block-tokens", "512", "--requests", "1"]));
    assert_eq!(sized["trace"]["contradictory_lengths"], 0, "{sized}");
}

/// A trace of more blocks than memory holds ended its command with a signal and without a word.
#[test]
fn a_trace_that_memory_is_too_small_for_ends_with_a_message_and_a_partial_report() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, page) = (dir.path().join("large.csv"), dir.path().join("page.html"));
    // A hundred thousand blocks a line, all of them different.
    let line = |n: usize| format!("2023-11-16 18:{:02}:{:02},51200000,1\n", n / 60, n % 60);
    let lines: String = (0..200).map(line).collect();
    std::fs::write(&trace, format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{lines}")).unwrap();
    let fast = &["sim", "--engines", "4", "--prefill-rate", "1e12", "--attention-rate", "1e18"];
    let commands: [&[&str]; 5] = [&["sim"], &["sim", "--policy", "optimal"], fast, &["plan"], &["trace", "stat"]];
    for command in commands {
        let mut limited = std::process::Command::new("prlimit");
        limited.args(["--as=268435456", env!("CARGO_BIN_EXE_tidepool")]).args(command);
        let output = limited.args([text(&trace), "--json", "--html", text(&page)]).output().unwrap();
        assert_eq!(code(&output), 4, "{command:?}: {}", stderr(&output));
        let said = "too little memory is left for the rest of the trace: the report covers the ";
        assert!(stderr(&output).contains(said), "{command:?}: {}", stderr(&output));
        let trace = &json(&output)["trace"];
        let requests = trace["requests"].as_u64().unwrap();
        assert!((2..200).contains(&requests) && trace["short_of_memory"] == true, "{command:?}: {trace}");
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains(said) && page.ends_with("</html>\n"), "a page tells it too");
    }
}

#[test]
fn two_commands_that_write_one_trace_leave_a_whole_one() {
    // Both wrote the same file beside it: what came out was of both, and one of them said that all was well.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let start = |seed: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidepool"));
        command.args(["trace", "generate", "codex", "--sessions", "50", "--seed", seed, "-o"]).arg(&path);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let children = [start("1"), start("2")];
    let succeeded = children.map(|mut child| child.wait().unwrap().success());
    assert!(succeeded.contains(&true), "{succeeded:?}");
    let stat = std::process::Command::new(env!("CARGO_BIN_EXE_tidepool"))
        .args(["sim", "--strict"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(stat.status.success(), "{}", String::from_utf8_lossy(&stat.stderr));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
