//! The program as a user meets it: what it prints, where, and how it exits.

use std::process::{Command, Output};

fn tidepool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidepool")).args(args).output().expect("the program was built for this test")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn config_check_says_ok_or_names_line_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    let path = file.to_str().unwrap();

    std::fs::write(&file, "[node]\ncapacity = \"1GiB\"\n").unwrap();
    let good = tidepool(&["config", "check", path]);
    assert_eq!((stdout(&good).as_str(), good.status.code()), ("ok\n", Some(0)));

    std::fs::write(&file, "[node]\n\ncapacity = \"1GB\"\nname = \"\"\n").unwrap();
    let bad = tidepool(&["config", "check", path]);
    assert_eq!((stdout(&bad).as_str(), bad.status.code()), ("", Some(1)));
    let says = stderr(&bad);
    let lines: Vec<&str> = says.lines().collect();
    assert!(lines[0].starts_with(&format!("tidepool: {path}:3: node.capacity = \"1GB\": allowed is")), "{says}");
    assert!(lines[1].starts_with(&format!("tidepool: {path}:4: node.name = \"\": allowed is")), "{says}");
}

#[test]
fn config_show_prints_a_file_that_passes_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, "[client]\ndeadline = \"7s\"\n").unwrap();
    let shown = tidepool(&["config", "show", "--config", file.to_str().unwrap()]);
    assert!(stdout(&shown).contains("deadline = \"7s\""), "{}", stdout(&shown));
    std::fs::write(&file, &shown.stdout).unwrap();
    assert!(tidepool(&["config", "check", file.to_str().unwrap()]).status.success());
}

#[test]
fn configurations_are_checked_and_shown_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    let path = file.to_str().unwrap();
    let json = |args: &[&str]| -> (Option<i32>, serde_json::Value) {
        let output = tidepool(&[&["config"], args, &["--json"]].concat());
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    };
    std::fs::write(&file, "[client]\ndeadline = \"7s\"\n").unwrap();
    assert_eq!(json(&["check", path]), (Some(0), serde_json::json!({ "ok": true, "errors": [] })));
    let (code, shown) = json(&["show", "--config", path]);
    assert_eq!((code, &shown["client"]["deadline"]), (Some(0), &"7s".into()));
    assert_eq!(shown["node"]["max-connections"], 1024);
    std::fs::write(&file, "[client]\ndeadlin = \"7s\"\ndir = 5\n").unwrap();
    let (code, checked) = json(&["check", path]);
    assert_eq!((code, &checked["ok"]), (Some(1), &false.into()));
    assert!(checked["errors"][0].as_str().unwrap().contains("did you mean deadline?"), "{checked}");
    assert!(checked["errors"][1].as_str().unwrap().starts_with(&format!("{path}:3: client.dir = 5: ")), "{checked}");
}

#[test]
fn a_flag_out_of_range_is_a_mistake_on_the_command_line() {
    for args in
        [&["node", "--capacity", "1KiB"][..], &["up", "--capacity", "1KiB"], &["catalog", "--dead-after", "1ms"]]
    {
        let output = tidepool(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("allowed is"), "{}", stderr(&output));
    }
}

#[test]
fn the_environment_does_not_change_the_configuration() {
    let plain = tidepool(&["config", "show"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    let set = command.args(["config", "show"]).env_clear().env("TIDEPOOL_CAPACITY", "1GiB").env("CAPACITY", "1GiB");
    assert_eq!(set.output().unwrap().stdout, plain.stdout);
}

#[test]
fn a_mistake_on_the_command_line_exits_with_2_and_shows_the_usage() {
    let output = tidepool(&["confg"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("config"), "{}", stderr(&output));
    assert_eq!(tidepool(&["--help"]).status.code(), Some(0));
}

#[test]
fn a_brief_benchmark_verifies_every_byte_and_prints_one_object() {
    let output = tidepool(&["bench", "--baselines", "--json", "--footprint", "8MiB"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["shm_get_vs_memcpy"].is_null());
    let baselines = json["context"]["comparisons"]["baselines"].as_array().unwrap();
    assert_eq!(baselines.len(), 6);
    for side in baselines {
        assert_eq!(side["per_s"].as_array().unwrap().len(), 5, "{side}");
        assert!(side["median_per_s"].as_f64().unwrap() > 0.0, "{side}");
    }
}

#[test]
fn a_benchmark_without_time_ends_and_says_so() {
    let output =
        tidepool(&["bench", "--baselines", "--footprint", "64MiB", "--samples", "101", "--seconds-budget", "1"]);
    assert!(!output.status.success());
    let error = stderr(&output);
    assert!(error.contains("is over") || error.contains("no answer within"), "{error}");
}
