//! `tidepool demo` and `tidepool replay` do what they say, and leave nothing behind.

mod common;

use common::{Daemon, code, entries, json, stderr, stdout, text, tidepool};
use tidepool_testing::{eventually, memory_dir};

#[test]
fn the_demo_compares_three_ways_writes_a_page_and_cleans_up() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let page = dir.path().join("demo.html");
    let args = ["demo", "--sessions", "2", "--pace", "1000", "--capacity", "64MiB"];
    let output = tidepool(&[&args[..], &["--dir", text(dir.path()), "--html", text(&page)]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    for arm in ["no cache at all", "engines' own caches", "with the pool"] {
        assert!(said.contains(arm), "{said}");
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["demo.html"]);
}

#[test]
fn a_demo_removes_the_directories_that_it_made_and_no_others() {
    let dir = memory_dir();
    let inner = dir.path().join("made/for/it");
    let args = ["demo", "--sessions", "1", "--pace", "10000", "--capacity", "16MiB", "--dir"];
    let output = tidepool(&[&args[..], &[text(&inner)]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(entries(dir.path()), Vec::<String>::new());
    std::fs::create_dir(dir.path().join("made")).unwrap();
    let nowhere = tidepool(&[&args[..], &[text(&inner)], &["--html", "/no/such/page.html"]].concat());
    assert_eq!(code(&nowhere), 1, "{}", stderr(&nowhere));
    let output = tidepool(&[&args[..], &[text(&inner)]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!((entries(dir.path()), entries(&dir.path().join("made"))), (vec!["made".to_owned()], vec![]));
}

/// A terminal that closed ended the demo at once, and its memory stayed; nobody removed what a killed one left.
#[test]
fn a_demo_that_is_hung_up_on_cleans_up_and_the_next_removes_what_a_killed_one_left() {
    let dir = memory_dir();
    let start = || {
        let mut demo = std::process::Command::new(env!("CARGO_BIN_EXE_tidepool"));
        demo.args(["demo", "--sessions", "50", "--capacity", "16MiB", "--dir", text(dir.path())]);
        let demo = demo.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let slab = dir.path().join(format!("tidepool-demo-{}/demo.slab", demo.id()));
        eventually("its pool is there", || slab.exists());
        demo
    };
    let mut killed = start();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut hung_up = start();
    let left = entries(dir.path());
    assert_eq!(left, [format!("tidepool-demo-{}", hung_up.id())], "what the killed one left is gone");
    rustix::process::kill_process(rustix::process::Pid::from_child(&hung_up), rustix::process::Signal::HUP).unwrap();
    hung_up.wait().unwrap();
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

#[test]
fn a_generated_trace_is_replayed_without_a_pool_and_an_unreachable_pool_is_said_to_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    let generated = tidepool(&["trace", "generate", "codex", "--sessions", "1", "--live", "1", "-o", text(&trace)]);
    assert_eq!(code(&generated), 0, "{}", stderr(&generated));
    let args = ["replay", text(&trace), "--closed-loop", "--engines", "1", "--pace", "5000", "--json"];
    let found = json(&tidepool(&[&args[..], &["--no-pool"]].concat()));
    assert_eq!(found["replay"]["partial"], false);
    assert!(found["hit_rate"].as_f64().unwrap() > 0.5, "{found}");
    let nobody = tidepool(&[&args[..], &["--catalogs", "127.0.0.1:1", "--dir", text(dir.path())]].concat());
    assert_eq!(code(&nobody), 1);
    assert!(stderr(&nobody).contains("127.0.0.1:1"), "{}", stderr(&nobody));
}

const SHORT: [&str; 8] = ["replay", "--preset", "codex", "--requests", "40", "--closed-loop", "--pace", "2000"];

/// Not a block was taken, and the replay ended as if all was well.
#[test]
fn blocks_that_no_node_can_hold_are_refused_before_anything_is_played() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let output = pool.run(&[&SHORT[..], &["--token-bytes", "64KiB"]].concat());
    assert_eq!((code(&output), stdout(&output).as_str()), (1, ""), "{}", stderr(&output));
    assert!(stderr(&output).contains("it has 32.0 MiB, the largest node 16.0 MiB"), "{}", stderr(&output));
    // One that has all of the node's memory, but not what a key takes, is refused by the pool.
    let few = ["replay", "--preset", "codex", "--requests", "3", "--pace", "2000", "--json", "--token-bytes", "32KiB"];
    let output = pool.run(&few);
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    let said = "a block of 16.0 MiB is larger than any node could take";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    let replay = &json(&output)["replay"];
    assert!(replay["too_large_puts"].as_u64().unwrap() > 0 && replay["too_large_puts"] == replay["failed_puts"]);
    assert_eq!((&replay["put_blocks"], &replay["partial"]), (&0.into(), &true.into()), "{replay}");
}

/// Every block was "gone before it was read", and none was ever hit; then it was said that the pool had failed, which it had not.
#[test]
fn a_name_with_blocks_of_another_size_is_said_to_serve_nobody() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let run = |token_bytes| {
        pool.run(&[&SHORT[..], &["--local", "0B", "--json", "--name", "mine", "--token-bytes", token_bytes]].concat())
    };
    let first = run("8B");
    assert_eq!(code(&first), 0, "{}", stderr(&first));
    for other in ["4B", "16B"] {
        let second = run(other);
        assert_eq!(code(&second), 4, "{}", stderr(&second));
        let remark =
            "stored under its name (mine) before: they serve nobody; give another --name, or the --token-bytes";
        assert!(stderr(&second).contains(remark), "{}", stderr(&second));
        let found = json(&second);
        let why = found["replay"]["why_partial"].as_str().unwrap();
        assert!(why.starts_with("blocks of another length are stored under this run's name"), "{found}");
        assert_eq!(found["replay"]["wrong_blocks"], 0, "{found}");
        assert!(found["replay"]["other_blocks"].as_u64().unwrap() > 0, "{found}");
        assert_eq!((&found["replay"]["lost_blocks"], &found["hit_blocks"]), (&0.into(), &0.into()), "{found}");
    }
}

/// A million times as fast, a thread that sleeps for a microsecond wakes up a minute late: times were nonsense, and nobody said so.
#[test]
fn a_pace_that_the_machine_cannot_keep_up_with_is_told_in_the_report() {
    let dir = memory_dir();
    let page = dir.path().join("page.html");
    let said = "this machine did not keep up with a pace of 1000000";
    let args = ["replay", "--preset", "codex", "--requests", "20", "--no-pool", "--pace", "1e6", "--html", text(&page)];
    let output = tidepool(&[&args[..], &["--json"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    let replay = &json(&output)["replay"];
    assert!(replay["slowdown"].as_f64().unwrap() > 2.0, "{replay}");
    assert!(replay["remarks"][0].as_str().unwrap().contains(said), "{replay}");
    assert!(std::fs::read_to_string(&page).unwrap().contains(said));
    assert!(stdout(&tidepool(&args)).contains(&format!("NOTE          {said}")));
    let args = ["demo", "--sessions", "1", "--pace", "1e6", "--capacity", "16MiB", "--dir", text(dir.path()), "--html"];
    let demo = tidepool(&[&args[..], &[text(&page)]].concat());
    assert_eq!(code(&demo), 0, "{}", stderr(&demo));
    assert!(stdout(&demo).starts_with("1 session of coding agents"), "{}", stdout(&demo));
    assert!(stderr(&demo).contains(&format!("no cache at all: {said}")), "{}", stderr(&demo));
    assert!(std::fs::read_to_string(&page).unwrap().contains(&format!("no cache at all: {said}")));
}

/// The demo said so in the midst of its table, with another exit code than all other commands.
#[test]
fn values_that_a_demo_or_a_replay_cannot_have_are_the_command_lines_fault_and_said_before_anything_else() {
    let dir = memory_dir();
    let nowhere = dir.path().join("made/for/it");
    let demo = ["demo", "--dir", text(&nowhere)];
    let replay = ["replay", "/no/such/trace", "--catalogs", "127.0.0.1:1"];
    let sizes = [["--capacity", "0B"], ["--capacity", "17TiB"], ["--capacity", "much"]];
    let wrong = [[["--pace", "1e9"], ["--pace", "0"], ["--pace", "NaN"]], sizes].concat();
    let cases = wrong.iter().map(|wrong| [&demo[..], wrong].concat());
    for args in cases.chain([[&replay[..], &wrong[0]].concat()]) {
        let output = tidepool(&args);
        assert_eq!((code(&output), stdout(&output).as_str()), (2, ""), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("allowed is a "), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}
