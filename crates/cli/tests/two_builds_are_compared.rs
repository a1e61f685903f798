//! `tidepool bench --against` with builds that only pretend: scripts that print what a real benchmark printed.

mod common;

use common::{AGES, code, entries, json, signals, stderr, stdout, text, tidepool};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{Permissions, read_to_string, set_permissions, write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use tidepool_testing::eventually;

/// The two builds; both note each run in one log.
struct Builds {
    dir: TempDir,
}

impl Builds {
    /// Both print `run` when they measure.
    fn new(run: &Value) -> Self {
        let builds = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["old", "new"] {
            builds.prints(name, run);
            builds.does(name, &format!("cat {}.json", text(&builds.path(name))));
        }
        write(builds.path("log"), "").unwrap();
        builds
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What `name` prints when it measures.
    fn prints(&self, name: &str, run: &Value) {
        write(self.path(&format!("{name}.json")), run.to_string()).unwrap();
    }

    /// Makes `name` a build that runs `script` when it measures, and knows all fields but one.
    fn does(&self, name: &str, script: &str) {
        let log = self.path("log");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n--version) echo tidepool 0.0.1; exit;;\n\
             *match_prefix_us_5000*--help) echo 'error: invalid value' >&2; exit 2;;\n*--help) exit;;\nesac\n\
             echo {name} \"$*\" >> {}\n{script}\n",
            text(&log)
        );
        self.file(name, &script, 0o755);
    }

    fn file(&self, name: &str, content: &str, mode: u32) {
        write(self.path(name), content).unwrap();
        set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    fn compare(&self, args: &[&str]) -> Output {
        self.compare_with(&self.path("old"), args)
    }

    fn compare_with(&self, old: &Path, args: &[&str]) -> Output {
        tidepool(&[&["bench", "--against", text(old), "--new", text(&self.path("new"))], args].concat())
    }

    /// The runs so far: which build, and its arguments.
    fn runs(&self) -> Vec<String> {
        read_to_string(self.path("log")).unwrap().lines().map(str::to_owned).collect()
    }
}

/// What a run that measures puts prints, as far as it matters.
fn put_run(speed: f64) -> Value {
    let put = json!({ "name": "put", "median_per_s": speed, "per_s": [speed, speed, 1.0, speed, 9e99] });
    let machine = json!({ "version": "0.0.1", "commit": "abcdef012345" });
    json!({ "put_vs_memcpy": 1.0, "context": { "machine": machine, "comparisons": { "shm, 2 MiB blocks": [put] } } })
}

const PUT: [&str; 2] = ["--only", "put_vs_memcpy"];

#[test]
fn the_figures_of_the_real_benchmark_are_found_field_by_field() {
    let fields = "shm_get_vs_memcpy,put_vs_memcpy,shm_get_4KiB_keys_per_s,shm_get_4KiB_vs_memcpy,shm_get_4KiB_us,\
                  tcp_get_vs_socket,put_full_vs_half,lookup_keys_per_s";
    let real = tidepool(&["bench", "--json", "--footprint", "8MiB", "--only", fields]);
    assert_eq!(code(&real), 0, "{}", stderr(&real));
    let builds = Builds::new(&json(&real));
    let compared = builds.compare(&["--json", "--only", fields]);
    assert_eq!(code(&compared), 0, "{}", stderr(&compared));
    let judged = json(&compared)["fields"].as_array().unwrap().clone();
    assert_eq!(judged.len(), 11, "three parts of TCP, two of full pools");
    for field in &judged {
        assert_eq!((&field["verdict"], &field["speed"]["ratio"]), (&json!("PASS"), &json!(1.0)), "{field}");
        assert_eq!(field["pairs"].as_array().unwrap().len(), 20);
    }
}

#[test]
fn runs_are_in_the_order_old_new_new_old_with_the_same_arguments() {
    let builds = Builds::new(&put_run(1e9));
    let file = builds.path("file.json");
    let options = ["--seed", "7", "--samples", "9", "--plant-delay", "8", "--json-file", text(&file)];
    let compared = builds.compare(&[&PUT[..], &options].concat());
    assert_eq!(code(&compared), 0, "{}", stderr(&compared));
    let runs = builds.runs();
    assert_eq!(runs.len(), 40);
    let old = "old bench --json --samples 9 --only put_vs_memcpy --footprint 256MiB --seed 7 --streams 2 --seconds-budget 540";
    let new = format!("{} --plant-delay 8", old.replace("old", "new"));
    for four in runs.chunks(4) {
        assert_eq!(four, [old, &new, &new, old]);
    }
    let table = stdout(&compared);
    assert!(table.contains("arguments of their own: --plant-delay 8"), "{table}");
    assert!(table.contains("put_vs_memcpy                1.000     1.000 - 1.000      20"), "{table}");
    let json: Value = serde_json::from_str(&read_to_string(file).unwrap()).unwrap();
    assert_eq!(json["old"]["commit"], "abcdef012345");
    assert_eq!(json["old"]["sha256"].as_str().unwrap().len(), 64);
    assert_ne!(json["old"]["sha256"], json["new"]["sha256"]);
    assert_eq!(json["fields"][0]["pairs"][19]["old"], 1e9, "the median of the raw timings");
}

#[test]
fn a_build_that_is_slower_fails_and_is_named() {
    let builds = Builds::new(&put_run(1e9));
    builds.prints("new", &put_run(0.92e9));
    let compared = builds.compare(&PUT);
    assert_eq!(code(&compared), 1);
    assert!(stdout(&compared).contains("FAIL"), "{}", stdout(&compared));
    assert!(stderr(&compared).contains("the new build failed in put_vs_memcpy"), "{}", stderr(&compared));
}

#[test]
fn a_program_that_cannot_be_compared_with_is_refused_before_anything_is_measured() {
    let builds = Builds::new(&put_run(1e9));
    builds.file("plain", "text", 0o644);
    builds.file("other", "#!/bin/sh\necho something else\n", 0o755);
    let refused = |old: &str, only: &str, why: &str| {
        let refused = builds.compare_with(&builds.path(old), &["--only", only]);
        assert_eq!((code(&refused), stdout(&refused).as_str()), (2, ""), "{refused:?}");
        let said = stderr(&refused);
        assert!(said.contains("old build") && said.contains(why) && said.contains(text(&builds.path(old))), "{said}");
    };
    refused("nothing", "put_vs_memcpy", "No such file");
    refused(".", "put_vs_memcpy", "not an executable file");
    refused("plain", "put_vs_memcpy", "not an executable file");
    refused("other", "put_vs_memcpy", "not a tidepool program: `--version` printed \"something else\"");
    refused(
        "old",
        "put_vs_memcpy,match_prefix_us_5000",
        "cannot measure the field match_prefix_us_5000: error: invalid",
    );
    assert_eq!(builds.runs(), [""; 0]);
}

#[test]
fn a_run_that_fails_names_its_build_its_field_and_its_last_words() {
    let builds = Builds::new(&put_run(1e9));
    let fails = |script: &str, why: &[&str]| {
        builds.does("new", script);
        let failed = builds.compare(&PUT);
        assert_eq!((code(&failed), stdout(&failed).as_str()), (1, ""), "{failed:?}");
        let said = stderr(&failed);
        assert!(said.contains("new build, put_vs_memcpy: "), "{said}");
        assert!(why.iter().all(|why| said.contains(why)), "{said}");
    };
    fails("echo first >&2; echo out of memory >&2; exit 3", &["exit status: 3", "first\ntidepool: out of memory"]);
    fails("echo '{\"context\": {\"notes\": [\"no node\"]}}'; exit 1", &["no node", "its standard error is empty"]);
    fails("echo not JSON; echo last words >&2", &["printed no JSON", "last words"]);
    fails("echo '{}'", &["its JSON has no figure of put_vs_memcpy"]);
}

#[test]
fn a_signal_ends_the_builds_processes_and_leaves_no_shared_memory() {
    let builds = Builds::new(&put_run(1e9));
    // This build does not remove its memory when it is asked to end, and leaves a process behind.
    let note = builds.path("note");
    builds.does(
        "old",
        &format!(
            "mkdir /dev/shm/tidepool-bench-$$-0\nsleep 600 &\necho $$ $! > {0}.part\nmv {0}.part {0}\nwait",
            text(&note)
        ),
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidepool"))
        .args(["bench", "--against", text(&builds.path("old")), "--new", text(&builds.path("new"))])
        .args(PUT)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("a run", || note.exists());
    signals::send(&child, Signal::INT);
    let ended = child.wait().unwrap();
    assert_eq!(ended.code(), Some(130), "within {AGES:?}");
    let note = read_to_string(note).unwrap();
    for process in note.split_whitespace() {
        // A container without an init keeps its orphans' entries.
        let stat = read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
    let left = format!("tidepool-bench-{}-0", note.split_whitespace().next().unwrap());
    assert!(!entries(Path::new("/dev/shm")).contains(&left));
}
