//! `tidepool trace record` on a real pool: the trace has exactly the look-ups, and no client notices the recording.

mod common;

use common::{Daemon, code, json, metric, stderr, stdout, tidepool};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Output, Stdio},
};
use tidepool_client::{Client, ClientConfig, PutOptions};
use tidepool_testing::{eventually, memory_dir};
use tidepool_trace::{Options, Reader, Request};

fn client_of(pool: &Daemon) -> Client {
    let catalogs = vec![pool.address("catalog", "listen").to_owned()];
    let dir = PathBuf::from(pool.address("node", "dir"));
    Client::connect(ClientConfig { catalogs, dir, ..ClientConfig::default() }).unwrap()
}

/// A recorder that listens.
fn record(pool: &Daemon, file: &Path, flags: &[&str]) -> Daemon {
    let place = ["--catalogs", pool.address("catalog", "listen"), "--dir", pool.address("node", "dir")];
    let output = ["trace", "record", "--output", file.to_str().unwrap()];
    let recorder = Daemon::start(&[&output[..], &place, flags].concat());
    assert_eq!(recorder.ready["listening"][0], pool.address("catalog", "listen"));
    recorder
}

/// A recorder that listens, and what it prints from then on.
fn listening(pool: &Daemon, file: &Path, flags: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(["trace", "record", "--json", "--catalogs", pool.address("catalog", "listen"), "-o"]).arg(file);
    let mut recorder = command.args(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut line) = (BufReader::new(recorder.stdout.take().unwrap()), String::new());
    said.read_line(&mut line).unwrap();
    (recorder, said)
}

/// How it ended, and what it had counted.
fn ended((recorder, mut said): (Child, BufReader<ChildStdout>)) -> (Output, Value) {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    (recorder.wait_with_output().unwrap(), serde_json::from_str(&line).unwrap())
}

fn chain(name: &str, blocks: std::ops::Range<usize>) -> Vec<String> {
    blocks.map(|block| format!("{name}/{block}")).collect()
}

fn read(file: &Path) -> Vec<Request> {
    let reader = Reader::open(file, Options { strict: true, ..Options::default() }).unwrap();
    reader.collect::<Result<_, _>>().unwrap()
}

/// Whether the requests are these chains: as long, and with equal blocks where the chains have equal keys, and only there.
fn are(requests: &[Request], chains: &[Vec<String>]) -> bool {
    let (mut names, mut keys) = (HashMap::new(), HashMap::new());
    let lengths = |request: &Request| request.blocks.len();
    let pairs = requests.iter().flat_map(|request| &request.blocks).zip(chains.iter().flatten());
    requests.iter().map(lengths).eq(chains.iter().map(Vec::len))
        && pairs
            .into_iter()
            .all(|(block, key)| *names.entry(key).or_insert(block) == block && *keys.entry(block).or_insert(key) == key)
}

#[test]
fn a_trace_has_exactly_the_chains_that_were_looked_up() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let early = client_of(&pool);
    for key in chain("held", 0..3) {
        early.put(&key, b"bytes", &PutOptions::default()).unwrap();
    }
    early.match_prefix(&[chain("unheard", 0..4)]).unwrap();
    let recorder = record(&pool, &file, &["--block-tokens", "16"]);
    assert!(early.catalog_answers(), "and says that somebody listens");
    // Held on this host, so that no server sees the look-up; in part; not at all; and by two ranks at once.
    let chains = [chain("held", 0..3), chain("held", 0..5), chain("lacking", 0..300), chain("rank-0", 0..2)];
    assert_eq!(early.match_prefix(&[&chains[0]]).unwrap().shortest, 3);
    assert_eq!(early.match_prefix(&[&chains[1]]).unwrap().shortest, 3);
    drop(early);
    let late = client_of(&pool);
    late.match_prefix(&[&chains[2]]).unwrap();
    late.exists(&chain("held", 0..2)).unwrap();
    late.match_prefix(&[chain("rank-0", 0..2), chain("rank-1", 0..2)]).unwrap();
    drop(late);
    assert!(recorder.stop().success());

    let requests = read(&file);
    assert!(are(&requests, &chains), "{requests:?}");
    assert!(!are(&requests, &chains.clone().map(|chain| chain.into_iter().rev().collect())), "the test can tell");
    assert!(requests.is_sorted_by_key(|request| request.at));
    assert_eq!(requests[2].input_tokens, 300 * 16);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("held") && !text.contains("lacking"), "keys are not in a trace");
    for command in [&["trace", "stat"][..], &["sim"]] {
        let output = tidepool(&[command, &[file.to_str().unwrap(), "--json"]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(json(&output)["trace"]["requests"], 4, "{command:?}: {}", json(&output));
    }
}

#[test]
fn existence_checks_are_recorded_if_wanted() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let recorder = record(&pool, &file, &["--exists"]);
    let client = client_of(&pool);
    client.exists(&chain("a", 0..2)).unwrap();
    client.match_prefix(&[chain("a", 0..3)]).unwrap();
    drop(client);
    assert!(recorder.stop().success());
    assert!(are(&read(&file), &[chain("a", 0..2), chain("a", 0..3)]));
}

#[test]
fn a_recording_ends_by_itself_at_its_bound() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    for bound in [["--limit", "2"], ["--size", "150B"]] {
        let recorder = listening(&pool, &file, &["--force", bound[0], bound[1]]);
        let client = client_of(&pool);
        (1..=5).for_each(|length| drop(client.match_prefix(&[chain("a", 0..length)]).unwrap()));
        drop(client);
        let (output, counts) = ended(recorder);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        // It ended before anybody wanted it to, and did not say why.
        let why = format!("tidepool: {} ended the recording", bound[0]);
        assert!(stderr(&output).starts_with(&why), "{}", stderr(&output));
        assert_eq!((&counts["requests"], &counts["ended_by"]), (&2.into(), &bound[0].into()), "{counts}");
        assert!(are(&read(&file), &[chain("a", 0..1), chain("a", 0..2)]));
    }
    let again = tidepool(&[
        "trace",
        "record",
        "-o",
        file.to_str().unwrap(),
        "--catalogs",
        pool.address("catalog", "listen"),
        "--for",
        "1ms",
    ]);
    assert_eq!(code(&again), 2, "{}", stderr(&again));
    assert!(stderr(&again).contains("exists: --force replaces it"), "{}", stderr(&again));
}

/// A recorder that hangs is waited for by nobody, and one that is killed is noticed by its end of the connection: clients stop telling, and the pool goes on as ever.
#[test]
fn a_recorder_that_is_killed_costs_the_pool_nothing() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let seen = |name: &str| metric(pool.address("catalog", "metrics-listen"), name);
    let recorder = record(&pool, &file, &[]);
    let client = client_of(&pool);
    client.put("a/0", b"bytes", &PutOptions::default()).unwrap();
    assert_eq!(client.match_prefix(&[chain("a", 0..3)]).unwrap().shortest, 1);
    assert_eq!(seen("tidepool_catalog_recorders"), 1);
    recorder.signal(Signal::STOP);
    (0..50).for_each(|_| drop(client.match_prefix(&[chain("a", 0..300)]).unwrap()));
    assert_eq!(client.get("a/0").unwrap().as_deref(), Some(&b"bytes"[..]));
    recorder.signal(Signal::KILL);
    assert!(!recorder.wait().success());
    eventually("the catalog notices", || seen("tidepool_catalog_recorders") == 0);
    assert!(client.catalog_answers(), "and says that nobody listens any more");
    assert_eq!(client.match_prefix(&[chain("a", 0..3)]).unwrap().shortest, 1);
    assert_eq!(client.get("a/0").unwrap().as_deref(), Some(&b"bytes"[..]));
    drop(client);
    assert!(seen("tidepool_catalog_reported_lookups_total") <= 1 + 50, "what came after is told to nobody");
    assert!(!file.exists());
}

/// What was recorded was kept in memory until there was much of it: a recorder that was killed, or whose disk was full, left nothing.
#[test]
fn what_was_recorded_is_in_the_file_when_the_recorder_is_killed() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let part = files.path().join("live.jsonl.part");
    let recorder = record(&pool, &file, &[]);
    let client = client_of(&pool);
    client.match_prefix(&[chain("a", 0..3)]).unwrap();
    drop(client);
    eventually("it is written", || are(&read(&part), &[chain("a", 0..3)]));
    recorder.signal(Signal::KILL);
    recorder.wait();
    assert!(are(&read(&part), &[chain("a", 0..3)]));
    // And is not overwritten by the next one.
    let place = ["--catalogs", pool.address("catalog", "listen"), "--for", "1ms"];
    let again = tidepool(&[&["trace", "record", "-o", file.to_str().unwrap()][..], &place].concat());
    assert_eq!(code(&again), 2, "{}", stderr(&again));
    assert!(stderr(&again).contains("live.jsonl.part exists"), "{}", stderr(&again));
}

#[test]
fn a_full_disk_ends_a_recording_with_whole_lines_and_says_where_they_are() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let place = ["--catalogs", pool.address("catalog", "listen"), "--dir", pool.address("node", "dir")];
    let line = [&["trace", "record", "-o", file.to_str().unwrap()][..], &place].concat();
    let mut limited = std::process::Command::new("prlimit");
    limited.args(["--fsize=16384", env!("CARGO_BIN_EXE_tidepool")]);
    let recorder = Daemon::start_with(&line, limited);
    let client = client_of(&pool);
    (0..40).for_each(|_| drop(client.match_prefix(&[chain("a", 0..100)]).unwrap()));
    drop(client);
    assert_eq!(recorder.wait().code(), Some(1));
    let kept = read(&files.path().join("live.jsonl.part"));
    assert!(are(&kept, &vec![chain("a", 0..100); kept.len()]) && kept.len() == 9, "{} requests", kept.len());
}

/// A recording that had lost its catalog looked complete.
#[test]
fn a_catalog_that_is_not_heard_is_a_gap_and_is_told_once() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let (mut recorder, _said) = listening(&pool, &file, &[]);
    let client = client_of(&pool);
    client.match_prefix(&[chain("a", 0..3)]).unwrap();
    drop(client);
    eventually("it is heard", || are(&read(&files.path().join("live.jsonl.part")), &[chain("a", 0..3)]));
    assert_eq!(pool.stop().code(), Some(0));
    let (mut complaints, mut first) = (BufReader::new(recorder.stderr.take().unwrap()), String::new());
    complaints.read_line(&mut first).unwrap();
    assert!(first.ends_with("; it is tried again\n"), "{first}");
    kill_process(Pid::from_child(&recorder), Signal::INT).unwrap();
    let rest: Vec<String> = complaints.lines().map(Result::unwrap).collect();
    assert!(rest.len() == 1 && rest[0].contains("not all catalogs were listened to"), "{rest:?}");
    assert_eq!(recorder.wait().unwrap().code(), Some(4));
    assert!(are(&read(&file), &[chain("a", 0..3)]));
}

/// A catalog hung for as long as anybody recorded, and the recording was said to be whole.
#[test]
fn a_catalog_that_hangs_is_a_gap_also_if_nobody_looks_anything_up() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let (_, counts) = ended(listening(&pool, &file, &["--for", "2s"]));
    assert_eq!(counts["gap_seconds"], 0.0, "silence is no gap");
    let hung = listening(&pool, &file, &["--for", "5s"]);
    pool.signal(Signal::STOP);
    let (output, counts) = ended(hung);
    pool.signal(Signal::CONT);
    assert!(counts["gap_seconds"].as_f64() > Some(0.0), "{counts}");
    assert!(stderr(&output).contains("not all catalogs were listened to"), "{}", stderr(&output));
}

/// A script went on with a trace that had nothing in it.
#[test]
fn a_recording_without_lookups_is_an_error_and_none_is_written() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let place = ["--catalogs", pool.address("catalog", "listen"), "--for", "1ms", "-o", file.to_str().unwrap()];
    let record = |flags: &[&str]| {
        let output = tidepool(&[&["trace", "record"], &place[..], flags].concat());
        let why = format!("tidepool: no look-ups were heard: {} is not written\n", file.display());
        assert_eq!((code(&output), stderr(&output)), (1, why));
        stdout(&output)
    };
    assert!(record(&[]).ends_with("Ctrl-C ends it\n"));
    assert_eq!(common::entries(files.path()), [""; 0]);
    std::fs::write(&file, "before").unwrap();
    let counts: Value = serde_json::from_str(record(&["--force", "--json"]).lines().last().unwrap()).unwrap();
    assert_eq!((&counts["requests"], &counts["missing"]), (&0.into(), &0.into()), "{counts}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before", "what is there stays as it is");
    assert_eq!(common::entries(files.path()), ["live.jsonl"]);
}

/// A catalog that did not answer for a moment cost a third of the look-ups, and the reason given was that there had been no room.
#[test]
fn lookups_that_no_catalog_answered_for_are_told_later_or_missing_for_that_reason() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let (pool, file) = (Daemon::pool(dir.path()), files.path().join("live.jsonl"));
    let recorder = listening(&pool, &file, &[]);
    let client = client_of(&pool);
    pool.signal(Signal::STOP);
    (0..20).for_each(|_| drop(client.match_prefix(&[chain("a", 0..3)])));
    eventually("the catalog is missed", || !client.catalog_answers());
    pool.signal(Signal::CONT);
    eventually("the catalog answers", || client.catalog_answers());
    client.match_prefix(&[chain("last", 0..7)]).unwrap();
    let part = files.path().join("live.jsonl.part");
    eventually("it is told", || read(&part).iter().any(|request| request.blocks.len() == 7));
    kill_process(Pid::from_child(&recorder.0), Signal::INT).unwrap();
    let (output, counts) = ended(recorder);
    let count = |field: &Value| field.as_u64().unwrap();
    let (requests, missing, by) = (count(&counts["requests"]), count(&counts["missing"]), &counts["missing_by"]);
    assert_eq!(by["catalog_silent"], missing, "{counts}");
    assert!(requests + missing >= 21 || counts["gap_seconds"] != 0.0, "{counts}");
    assert_eq!(code(&output), if missing > 0 || counts["gap_seconds"] != 0.0 { 4 } else { 0 }, "{}", stderr(&output));
    assert!(read(&file).is_sorted_by_key(|request| request.at));
}

/// It said that it listened, and then that there was no place for what it heard.
#[test]
fn an_output_that_cannot_be_written_is_told_before_anything_else() {
    let (dir, files) = (memory_dir(), tempfile::tempdir().unwrap());
    let pool = Daemon::pool(dir.path());
    let [taken, cut_off, part, nowhere] =
        ["taken", "cut-off", "cut-off.part", "no/such/file"].map(|name| files.path().join(name));
    [&taken, &part].into_iter().for_each(|path| std::fs::write(path, "before").unwrap());
    for (output, status, why) in [
        (&taken, 2, "taken exists: --force replaces it"),
        (&cut_off, 2, "cut-off.part exists, from a recording that was cut off"),
        (&nowhere, 1, "no/such/file: No such file or directory"),
    ] {
        for catalogs in [pool.address("catalog", "listen"), "127.0.0.1:1"] {
            let place = ["--catalogs", catalogs, "--for", "1ms", "-o", output.to_str().unwrap()];
            let refused = tidepool(&[&["trace", "record"], &place[..]].concat());
            assert_eq!((code(&refused), stdout(&refused).as_str()), (status, ""), "{}", stderr(&refused));
            let said = stderr(&refused);
            assert!(said.lines().count() == 1 && said.contains(why), "{said}");
        }
    }
    assert_eq!(common::entries(files.path()).len(), 2, "looking makes no file");
}

#[test]
fn without_a_catalog_there_is_nothing_to_record() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("live.jsonl");
    let output = tidepool(&["trace", "record", "-o", file.to_str().unwrap(), "--catalogs", "127.0.0.1:1"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("no catalog passes look-ups on (catalogs 127.0.0.1:1"), "{}", stderr(&output));
    assert!(!file.exists());
}
