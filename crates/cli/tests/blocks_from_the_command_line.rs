//! `put`, `get`, `wait`, `ls`, `stat` and `rm` against a real pool: what they print and how they exit.

mod common;

use common::{Daemon, code, json, stderr, stdout};
use serde_json::json;
use tidepool_testing::memory_dir;

#[test]
fn a_block_goes_in_from_standard_input_or_a_file_and_comes_back() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let put = pool.run_with(&["put", "greeting"], b"hello\n");
    assert_eq!((code(&put), stdout(&put).as_str()), (0, "stored greeting: 6B, 1 copy\n"), "{}", stderr(&put));
    assert_eq!(pool.run(&["get", "greeting"]).stdout, b"hello\n");

    let (input, output) = (dir.path().join("in"), dir.path().join("out"));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&input, &bytes).unwrap();
    let put = pool.run(&["put", "file", input.to_str().unwrap(), "--json"]);
    assert_eq!(
        json(&put),
        json!({ "key": "file", "bytes": 3_000_001, "replicas": 1, "wanted": 1, "moved": true, "held": false })
    );
    let get = pool.run(&["get", "file", "-o", output.to_str().unwrap(), "--json"]);
    assert_eq!(json(&get), json!({ "key": "file", "found": true, "bytes": 3_000_001 }));
    assert!(std::fs::read(&output).unwrap() == bytes);

    let again = pool.run_with(&["put", "greeting", "-"], b"other bytes");
    assert_eq!(stdout(&again), "greeting was there already, 1 copy\n");
    let again = pool.run_with(&["put", "greeting", "--json"], b"other bytes");
    assert_eq!(
        json(&again),
        json!({ "key": "greeting", "bytes": 0, "replicas": 1, "wanted": 1, "moved": false, "held": true })
    );
    assert_eq!(pool.run(&["get", "greeting"]).stdout, b"hello\n");
}

/// `put --replicas 5` into a pool of fewer nodes said "stored, 2 copies" and exited with 0: who relied on the copies lost the block
/// with fewer hosts than he had paid for. Fewer copies than wanted are said, with the reason, and exit with 4.
#[test]
fn fewer_copies_than_wanted_are_said_and_exit_with_4() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let put = pool.run_with(&["put", "k", "--replicas", "3"], b"x");
    assert_eq!((code(&put), stdout(&put).as_str()), (4, "stored k: 1B, 1 of 3 copies\n"));
    assert_eq!(stderr(&put), "tidepool: k: 1 of 3 copies: the pool has one living node\n");
    let again = pool.run_with(&["put", "k", "--replicas", "2"], b"x");
    assert_eq!((code(&again), stdout(&again).as_str()), (4, "k was there already, 1 of 2 copies\n"));
    let told = pool.run_with(&["put", "other", "--replicas", "3", "--json"], b"x");
    assert_eq!((code(&told), &json(&told)["replicas"], &json(&told)["wanted"]), (4, &json!(1), &json!(3)));
    assert_eq!(pool.run(&["get", "k"]).stdout, b"x");
}

#[test]
fn an_absent_block_is_not_found_and_exits_with_3() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    for command in [&["get", "nothing"][..], &["stat", "block", "nothing"], &["rm", "nothing"]] {
        let output = pool.run(command);
        assert_eq!(code(&output), 3, "{command:?}");
        assert!(stderr(&output).starts_with("tidepool: nothing: not found"), "{}", stderr(&output));
    }
    let output = dir.path().join("out");
    let get = pool.run(&["get", "nothing", "--json", "-o", output.to_str().unwrap()]);
    assert_eq!((code(&get), json(&get)), (3, json!({ "key": "nothing", "found": false, "bytes": null })));
    assert!(!output.exists());
}

#[test]
fn a_wait_names_the_blocks_that_are_held_or_exits_with_3() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let in_vain = pool.run(&["wait", "some", "other", "--deadline", "100ms"]);
    assert_eq!((code(&in_vain), stdout(&in_vain).as_str()), (3, ""));
    assert!(stderr(&in_vain).starts_with("tidepool: not held before the deadline"), "{}", stderr(&in_vain));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.run(&["wait", "some", "other", "--deadline", "60s"]));
        assert_eq!(code(&pool.run_with(&["put", "other"], b"x")), 0);
        let waited = waiting.join().unwrap();
        assert_eq!((code(&waited), stdout(&waited).as_str()), (0, "other\n"), "{}", stderr(&waited));
    });
    assert_eq!(json(&pool.run(&["wait", "other", "--json"])), json!({ "key": "other", "held": true }));
}

#[test]
fn keys_can_be_any_bytes_in_hexadecimal() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    assert_eq!(code(&pool.run_with(&["put", "--hex", "00ff0a"], b"x")), 0);
    assert_eq!(pool.run(&["get", "--hex", "00FF0A"]).stdout, b"x");
    assert!(stdout(&pool.run(&["ls"])).ends_with("  one  \\x00\\xff\\n\n"));
    assert_eq!(json(&pool.run(&["ls", "--json"])), json!({ "key_hex": "00ff0a", "bytes": 1, "nodes": ["one"] }));
}

#[test]
fn blocks_are_listed_by_pattern_and_up_to_a_limit() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    for key in ["a/1", "a/2", "b/1"] {
        assert_eq!(code(&pool.run_with(&["put", key], key.as_bytes())), 0);
    }
    let keys = |args: &[&str]| -> Vec<String> {
        let listed = stdout(&pool.run(&[&["ls", "--json"], args].concat()));
        let key =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].as_str().unwrap().to_owned();
        listed.lines().map(key).collect()
    };
    assert_eq!(keys(&[]), ["a/1", "a/2", "b/1"]);
    assert_eq!(keys(&["--matching", "^a/"]), ["a/1", "a/2"]);
    assert_eq!(keys(&["--limit", "2"]).len(), 2);
    let bad = pool.run(&["ls", "--matching", "a\n("]);
    let says = "tidepool: regular expression \"a\\n(\": unclosed group\n";
    assert_eq!((code(&bad), stderr(&bad).as_str()), (2, says));
}

#[test]
fn blocks_are_removed_by_key_by_pattern_or_all_after_a_yes() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let fill = || ["a/1", "a/2", "b/1", "c"].map(|key| assert_eq!(code(&pool.run_with(&["put", key], b"x")), 0));
    fill();
    let some = pool.run(&["rm", "c", "d", "--json"]);
    let each =
        json!([{ "key": "c", "removed": true, "unanswered": [] }, { "key": "d", "removed": false, "unanswered": [] }]);
    let removal = json(&some);
    assert_eq!((code(&some), &removal["removed"], &removal["keys"]), (3, &json!(1), &each));
    assert!(removal["known_since"].is_u64(), "since when the catalog knows all nodes: {removal}");
    let matching = pool.run(&["rm", "--matching", "^a"]);
    assert_eq!((code(&matching), stdout(&matching).as_str()), (0, "removed 2 copies\n"));
    let matching = pool.run(&["rm", "--matching", "^b"]);
    assert_eq!((code(&matching), stdout(&matching).as_str()), (0, "removed 1 copy\n"));
    fill();
    let unsure = pool.run(&["rm", "--all"]);
    assert_eq!(code(&unsure), 1);
    assert!(stderr(&unsure).contains("--yes"), "{}", stderr(&unsure));
    assert_eq!(code(&pool.run(&["get", "b/1"])), 0);
    let all = pool.run(&["rm", "--all", "--yes", "--json"]);
    let removal = json(&all);
    assert_eq!((code(&all), &removal["copies"], &removal["unanswered"]), (0, &json!(4), &json!([])));
    assert_eq!(stdout(&pool.run(&["ls"])), "");
    // What was removed can be stored again.
    fill();
    for mistake in [&["rm"][..], &["rm", "a", "--all"], &["rm", "a", "--yes"]] {
        assert_eq!(code(&pool.run(mistake)), 2, "{mistake:?}");
    }
}

#[test]
fn stat_shows_the_pool_a_node_and_a_block() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    assert_eq!(code(&pool.run_with(&["put", "k"], b"123")), 0);

    let stat = json(&pool.run(&["stat", "--json"]));
    let node = &stat["nodes"][0];
    assert_eq!(
        (&node["name"], &node["state"], &node["mapped"]),
        (&json!("one"), &json!("alive"), &json!(true)),
        "{stat}"
    );
    assert_eq!(node["data_address"].as_str(), Some(pool.address("node", "data-listen")));
    assert!(stdout(&pool.run(&["stat", "pool"])).contains("one                  alive"));

    let stat = json(&pool.run(&["stat", "node", "one", "--json"]));
    assert_eq!(stat["metrics"]["tidepool_node_blocks"], 1, "{stat}");
    let unknown = pool.run(&["stat", "node", "two"]);
    assert_eq!(code(&unknown), 1);
    assert!(stderr(&unknown).contains("no node named two is known"), "{}", stderr(&unknown));

    let stat = json(&pool.run(&["stat", "block", "k", "--json"]));
    let copy = &stat["copies"][0];
    assert_eq!((&copy["node"], &copy["bytes"], &copy["tier"]), (&json!("one"), &json!(3), &json!("dram")), "{stat}");
    assert!(stdout(&pool.run(&["stat", "block", "k"])).contains("3  on one, written by "));
}

#[test]
fn bad_keys_and_blocks_are_refused_with_what_is_allowed() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let long = "k".repeat(1025);
    for (args, exit, says) in [
        (&["put", ""][..], 2, "a key has 1 to 1024 bytes"),
        (&["get", &long], 2, "a key has 1 to 1024 bytes"),
        (&["get", "--hex", "xyz"], 2, "not hexadecimal"),
        (&["rm", "--matching", ""], 2, "--all if that is meant"),
        (&["stat", "pool", "x"], 2, "pool takes no name"),
        (&["stat", "node", "/"], 2, "a name"),
        (&["ls", "--deadline", "0s"], 2, "client.deadline"),
        (&["ls", "--tcp-streams", "17"], 2, "client.tcp-streams = 17: allowed is"),
        (&["put", "empty"], 1, "a block has 1 to 1073741824 bytes"),
        (&["put", "k", "/nonexistent/file"], 1, "/nonexistent/file: No such file"),
    ] {
        let output = pool.run(args);
        assert_eq!(code(&output), exit, "{args:?}");
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
    let large = pool.run_with(&["put", "large"], &vec![1; 20 << 20]);
    assert_eq!(code(&large), 1);
    let says = "a block of 20971520 bytes and its key are larger than every node that could take them: the largest has 16777216";
    assert!(stderr(&large).contains(says), "{}", stderr(&large));
}

#[test]
fn without_a_pool_commands_say_where_they_looked() {
    let dir = memory_dir();
    let place = ["--catalogs", "127.0.0.1:1", "--dir", dir.path().to_str().unwrap(), "--deadline", "300ms"];
    let run = |args: &[&str]| common::with_input(&[args, &place].concat(), b"x");
    let looked = format!("(catalogs 127.0.0.1:1, nodes in {})", dir.path().display());
    for (args, exit, says) in [
        (&["get", "k"][..], 3, "not found: no catalog answered"),
        (&["put", "k"], 1, "no node could be reached"),
        (&["stat"], 1, "no catalog answered"),
    ] {
        let output = run(args);
        assert_eq!(code(&output), exit, "{args:?}");
        let error = stderr(&output);
        assert!(error.contains(says) && error.contains(&looked), "{args:?}: {error}");
    }
}

#[test]
fn a_preference_for_a_node_that_is_not_there_is_answered_with_those_that_are() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let put = pool.run_with(&["put", "k", "--prefer", "on"], b"x");
    assert_eq!((code(&put), stdout(&put).as_str()), (0, "stored k: 1B, 1 copy\n"));
    assert_eq!(stderr(&put), "tidepool: --prefer on: no such node is alive; known are: one (alive)\n");
    assert_eq!(stderr(&pool.run_with(&["put", "l", "--prefer", "one"], b"x")), "");
}

/// A bad expression exited with 1 as if the pool had failed, an expression that nothing matched with 0 as if something had
/// been removed, and `--limit 0` listed nothing in silence.
#[test]
fn a_script_can_tell_a_mistake_from_nothing_found() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    assert_eq!(code(&pool.run_with(&["put", "key"], b"bytes")), 0);
    for (command, expected) in [
        (&["ls", "--matching", "("][..], 2),
        (&["rm", "--matching", "("], 2),
        (&["ls", "--limit", "0"], 2),
        (&["rm", "--matching", "nosuch"], 3),
        (&["ls", "--matching", "nosuch"], 0),
        (&["rm", "--matching", "^key$"], 0),
        (&["rm", "--all", "--yes"], 0),
    ] {
        let output = pool.run(command);
        assert_eq!(code(&output), expected, "{command:?}: {}", stderr(&output));
    }
}

/// With a node on this host a catalog that does not answer was taken for one that is not sure.
#[test]
fn a_miss_says_that_no_catalog_answered() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    // Port 1 of this host: refused.
    let place = ["--catalogs", "127.0.0.1:1", "--dir", pool.address("node", "dir"), "--deadline", "1s"];
    let output = common::tidepool(&[&["get", "nothing"], &place[..]].concat());
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).contains("no catalog answered, and no node on this host holds it"), "{}", stderr(&output));
}
