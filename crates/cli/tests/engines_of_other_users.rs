//! Engines that run as another user than the node's: what they map, what they are told, and that they read in any case.

mod common;

use common::{Daemon, code, json, metric, pool_args, stderr};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;
use tidepool_testing::memory_dir;

const STRANGER: u32 = 4242;

/// The program where other users can run it: the build's directory may be closed to them.
fn program(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("tidepool");
    std::fs::copy(env!("CARGO_BIN_EXE_tidepool"), &path).unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    path
}

/// Every engine in a container that is not root met a node whose socket only root may open. It read over TCP, several times as
/// slowly, and nobody said so. Its client warns once, and `node.access` lets it in.
#[test]
fn engines_of_other_users_map_a_node_that_lets_them_in_and_are_told_of_one_that_does_not() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can start an engine as another user");
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let (program, file) = (program(&files), files.path().join("bytes"));
    std::fs::write(&file, b"bytes").unwrap();
    // The user's group, who is let in, the mode of the directory, whether that is enough.
    let cases = [
        (STRANGER, "user", 0o755, false),
        (STRANGER, "group:4242", 0o755, true),
        (7, "group:4242", 0o755, false),
        (7, "everyone", 0o755, true),
        (7, "everyone", 0o700, false),
    ];
    for (group, access, mode, mapped) in cases {
        let (dir, case) = (memory_dir(), format!("{group} {access} {mode:o}"));
        set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        let pool = Daemon::start(&[&pool_args(dir.path())[..], &["--access", access]].concat());
        let run = |args: &[&str]| -> Output {
            let mut command = Command::new(&program);
            let place = ["--catalogs", pool.address("catalog", "listen"), "--dir", pool.address("node", "dir")];
            command.args(args).args(place).args(["--log-level", "warn"]);
            command.uid(STRANGER).gid(group).output().unwrap()
        };
        let stat = run(&["stat", "--json"]);
        assert_eq!((code(&stat), &json(&stat)["nodes"][0]["mapped"]), (0, &mapped.into()), "{case}: {stat:?}");
        assert_eq!(code(&run(&["put", "k", common::text(&file)])), 0, "{case}");
        let transport = if mapped { "shm" } else { "tcp" };
        let inward = format!("tidepool_node_bytes_total{{transport=\"{transport}\",direction=\"in\"}}");
        assert_eq!(metric(pool.address("node", "metrics-listen"), &inward), 5, "{case}: {inward}");
        let get = run(&["get", "k"]);
        assert_eq!((code(&get), &get.stdout[..]), (0, &b"bytes"[..]), "{case}");
        assert_eq!(stderr(&get).matches("node.access").count(), usize::from(!mapped), "{case}: {}", stderr(&get));
        let closed = pool.address("node", if mode == 0o755 { "socket" } else { "dir" });
        assert!(mapped || stderr(&get).contains(&format!("{closed} owner=0")), "{case}: {}", stderr(&get));
    }
}
