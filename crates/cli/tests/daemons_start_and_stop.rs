//! `up`, `catalog` and `node` as processes: what they say when they serve, why they do not start, how they end.

mod common;

use common::{Daemon, entries, metric, node_args, page, pool_args, stderr, tidepool};
use rustix::process::Signal;
use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
};
use tidepool_testing::{eventually, memory_dir};

#[test]
fn the_ready_line_of_up_has_every_address_in_use() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let addresses =
        [("catalog", "listen"), ("catalog", "metrics-listen"), ("node", "data-listen"), ("node", "metrics-listen")];
    for (part, field) in addresses {
        let address: SocketAddr = pool.address(part, field).parse().unwrap();
        assert_ne!(address.port(), 0);
        assert!(TcpStream::connect(address).is_ok(), "{part}.{field} {address}");
    }
    assert_eq!(pool.address("node", "name"), "one");
    assert!(std::os::unix::net::UnixStream::connect(pool.address("node", "socket")).is_ok());
}

#[test]
fn a_signal_stops_a_pool_cleanly_and_leaves_no_files() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = memory_dir();
        let pool = Daemon::pool(dir.path());
        assert!(pool.run_with(&["put", "k"], b"x").status.success());
        assert!(!entries(dir.path()).is_empty());
        pool.signal(signal);
        assert_eq!(pool.wait().code(), Some(0));
        assert_eq!(entries(dir.path()), Vec::<String>::new());
    }
}

/// Runs the program through `env`, which sets what becomes of SIGHUP before it starts.
fn with_hangup(disposition: &str) -> Command {
    let mut command = Command::new("env");
    command.args([disposition, env!("CARGO_BIN_EXE_tidepool")]);
    command
}

/// A closed terminal used to end a node at once: its memory, gigabytes of a shared file system, stayed behind.
#[test]
fn a_terminal_that_hangs_up_stops_a_pool_cleanly_however_often_it_says_so() {
    let dir = memory_dir();
    let pool = Daemon::start_with(&pool_args(dir.path()), with_hangup("--default-signal=HUP"));
    pool.signal(Signal::HUP);
    pool.signal(Signal::HUP);
    assert_eq!(pool.wait().code(), Some(0));
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

#[test]
fn a_hangup_that_is_ignored_when_a_pool_starts_stays_ignored() {
    let dir = memory_dir();
    let pool = Daemon::start_with(&pool_args(dir.path()), with_hangup("--ignore-signal=HUP"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", pool.id())).unwrap();
    assert_eq!(common::signal_mask(&status, "SigIgn") & 1, 1, "SIGHUP is signal 1");
    pool.signal(Signal::HUP);
    assert!(pool.run_with(&["put", "k"], b"x").status.success());
    assert_eq!(pool.stop().code(), Some(0));
}

/// A signal during a node's start was acted on only after all its memory had been allocated, which takes minutes for a large
/// one: supervisors killed it instead, and its files stayed. Now the start is given up, with nothing left behind.
#[test]
fn a_signal_ends_a_start_that_is_under_way_and_leaves_no_files() {
    for signal in [Signal::TERM, Signal::INT] {
        // A start can be over before the signal comes: then it was an ordinary stop, and is tried again.
        let interrupted = (0..10).any(|_| {
            let dir = memory_dir();
            let args = with(node_args("one", dir.path(), "127.0.0.1:1"), "--capacity", "1GiB");
            let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
            let child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            eventually("a slab", || dir.path().join("one.slab").exists());
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            assert_eq!(entries(dir.path()), Vec::<String>::new());
            output.stdout.is_empty()
        });
        assert!(interrupted, "ten starts of a large node ended before a signal came");
    }
}

#[test]
fn a_catalog_and_nodes_in_processes_of_their_own_make_a_pool() {
    let (near, far) = (memory_dir(), memory_dir());
    let catalog = Daemon::catalog();
    let address = catalog.address("catalog", "listen");
    let near_node = Daemon::node("near", near.path(), address);
    let far_node = Daemon::node("far", far.path(), address);
    let pages = catalog.address("catalog", "metrics-listen");
    eventually("a catalog that knows both", || metric(pages, "tidepool_catalog_nodes_alive") == 2);
    // A client with one directory knows the other's node from the catalog.
    let run = |dir: &std::path::Path, args: &[&str]| {
        common::with_input(&[args, &["--catalogs", address, "--dir", dir.to_str().unwrap()]].concat(), b"bytes")
    };
    let put = run(near.path(), &["put", "k", "--prefer", "near"]);
    assert!(put.status.success(), "{}", stderr(&put));
    assert_eq!(run(far.path(), &["get", "k"]).stdout, b"bytes");
    assert!(common::stdout(&run(far.path(), &["ls"])).ends_with("  near  k\n"));
    let both = run(near.path(), &["put", "two", "--replicas", "2", "--json"]);
    assert_eq!(common::json(&both)["replicas"], 2, "{}", stderr(&both));
    assert_eq!(near_node.stop().code(), Some(0));
    assert_eq!(run(near.path(), &["get", "two"]).stdout, b"bytes");
    assert_eq!(far_node.stop().code(), Some(0));
    assert_eq!(catalog.stop().code(), Some(0));
}

/// coreutils' `timeout` signals its child and then the child's group. The second SIGTERM ended a node at once: its memory stayed
/// behind, it was dead instead of left for ten minutes, and every `ls` and `rm` exited with 4 meanwhile. Signals that come together
/// are one request, and the node leaves in order.
#[test]
fn signals_that_come_together_are_one_request_to_leave_in_order() {
    let (dir, catalog) = (memory_dir(), Daemon::catalog());
    let address = catalog.address("catalog", "listen");
    let place = ["--catalogs", address, "--dir", dir.path().to_str().unwrap()];
    for (name, second) in [("one", Signal::TERM), ("two", Signal::INT)] {
        let node = Daemon::node(name, dir.path(), address);
        // Two signals of one kind that nobody has seen yet are one to the kernel; two kinds never are.
        node.signal(Signal::TERM);
        node.signal(second);
        assert_eq!(node.wait().code(), Some(0));
        assert_eq!(entries(dir.path()), Vec::<String>::new());
        let stat = common::json(&tidepool(&[&["stat", "--json"], &place[..]].concat()));
        let found = stat["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name);
        assert_eq!(found.unwrap()["state"], "left", "{stat}");
    }
}

/// A recorder whose standard output nobody reads is stuck before it looks whether a signal has come. Everything that is told to
/// end in order heeds signals in the same way.
#[test]
fn a_signal_that_is_repeated_ends_what_is_stuck() {
    let (dir, catalog, (_unread, output)) = (memory_dir(), Daemon::catalog(), std::io::pipe().unwrap());
    fill(&output);
    let file = dir.path().join("recorded");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(["trace", "record", "-o", common::text(&file), "--catalogs", catalog.address("catalog", "listen")]);
    let child = std::cell::RefCell::new(command.stdout(output).spawn().unwrap());
    let status = format!("/proc/{}/status", child.borrow().id());
    eventually("it heeds signals", || {
        common::signal_mask(&std::fs::read_to_string(&status).unwrap(), "SigCgt") & 2 != 0
    });
    eventually("its end", || {
        common::signals::send(&child.borrow(), Signal::TERM);
        child.borrow_mut().try_wait().unwrap().is_some()
    });
    assert_eq!(child.borrow_mut().wait().unwrap().code(), Some(143));
}

/// Writes to a pipe until no byte more fits.
fn fill(pipe: &std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(pipe, &[0; 4096]).is_ok() {}
    fcntl_setfl(pipe, flags).unwrap();
}

/// No more than 128 connections could wait to be accepted, and the kernel of one that found no room tried again a second later: a
/// thousand clients that started together took 4 to 6 seconds to connect. There is room for those of a large fleet.
#[test]
fn connections_find_room_while_nobody_accepts_them() {
    const CLIENTS: usize = 400;
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    if most.trim().parse::<usize>().unwrap() < CLIENTS {
        eprintln!("SKIPPED: the system lets fewer connections wait (net.core.somaxconn)");
        return;
    }
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    pool.signal(Signal::STOP);
    for (part, field) in [("catalog", "listen"), ("node", "data-listen")] {
        let address = pool.address(part, field).parse().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, common::AGES / 10).unwrap();
        assert_eq!((0..CLIENTS).map(connect).collect::<Vec<_>>().len(), CLIENTS, "{part}.{field}");
    }
}

/// Starts what must not start; returns what it said.
fn refused(args: &[&str]) -> String {
    let output = tidepool(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
    assert_eq!(output.stdout, b"", "{args:?}");
    let lines: Vec<String> =
        stderr(&output).lines().filter(|line| line.starts_with("tidepool: ")).map(str::to_owned).collect();
    assert_eq!(lines.len(), 1, "{args:?}: {}", stderr(&output));
    lines[0].clone()
}

/// `args` with the value of one flag replaced.
fn with<'a>(mut args: Vec<&'a str>, flag: &str, value: &'a str) -> Vec<&'a str> {
    let at = args.iter().position(|argument| *argument == flag).expect("the flag is set");
    args[at + 1] = value;
    args
}

#[test]
fn an_address_in_use_is_named_with_its_field() {
    let dir = memory_dir();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let fields = [
        ("--catalog-listen", "catalog.listen"),
        ("--catalog-metrics-listen", "catalog.metrics-listen"),
        ("--data-listen", "node.data-listen"),
        ("--metrics-listen", "node.metrics-listen"),
    ];
    for (flag, field) in fields {
        let error = refused(&with(pool_args(dir.path()), flag, &taken));
        assert!(error.starts_with(&format!("tidepool: {field} {taken}: Address already in use")), "{error}");
        assert_eq!(entries(dir.path()), Vec::<String>::new(), "{field}");
    }
}

#[test]
fn too_little_shared_memory_is_an_error_that_names_the_mount() {
    let dir = memory_dir();
    let mut args = with(node_args("one", dir.path(), "127.0.0.1:1"), "--capacity", "8TiB");
    args.extend(["--smallest-expected-block", "1MiB"]);
    let error = refused(&args);
    assert!(error.starts_with("tidepool: node.capacity 8TiB: "), "{error}");
    assert!(error.contains(dir.path().to_str().unwrap()) && error.contains(" free, "), "{error}");
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

/// Runs a node under a limit of the shell's, which must keep it from starting; what it says, and what it leaves in its directory.
fn under(limit: &str, args: &[&str]) -> (String, Option<i32>) {
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_tidepool")])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (stderr(&output), output.status.code())
}

/// A node with hardly any descriptors served one connection, of which a client needs two, and said that it was well; with
/// fewer still it failed with a bare error and left its socket behind.
#[test]
fn too_few_descriptors_are_an_error_that_says_how_many_are_needed() {
    for limit in ["24", "100"] {
        let dir = memory_dir();
        let (says, code) = under(&format!("-n {limit}"), &node_args("one", dir.path(), "127.0.0.1:1"));
        assert_eq!(code, Some(1), "{says}");
        assert!(says.contains(&format!("may open {limit} files")) && says.contains("ulimit -n"), "{says}");
        assert_eq!(entries(dir.path()), Vec::<String>::new());
    }
}

/// A limit on the size of files killed the node with a signal, and its files stayed.
#[test]
fn a_limit_on_the_size_of_files_is_an_error_that_names_the_field() {
    let dir = memory_dir();
    let (says, code) = under("-f 1000", &node_args("one", dir.path(), "127.0.0.1:1"));
    assert_eq!(code, Some(1), "{says}");
    assert!(says.contains("node.dir") && says.contains("File too large"), "{says}");
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

#[test]
fn a_directory_that_cannot_be_is_named_with_its_field() {
    let dir = memory_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let says = refused(&node_args("one", &file, "127.0.0.1:1"));
    assert!(says.contains("node.dir") && says.contains(file.to_str().unwrap()), "{says}");
    let says = refused(&node_args("one", std::path::Path::new("/proc/nowhere"), "127.0.0.1:1"));
    assert!(says.contains("node.dir") && says.contains("/proc/nowhere"), "{says}");
}

/// A node whose directory lies on a disk was taken without a word: its blocks were written to the disk all the time, and read back
/// from it under memory pressure. It starts, and warns of the mount and its kind.
#[test]
fn a_directory_that_is_not_in_memory_is_warned_of_with_its_mount() {
    const TMPFS: u32 = 0x0102_1994;
    let disk = env!("CARGO_TARGET_TMPDIR");
    if rustix::fs::statfs(disk).unwrap().f_type as u32 == TMPFS {
        eprintln!("SKIPPED: {disk} is in memory");
        return;
    }
    for (dir, warned) in [(tempfile::tempdir_in(disk).unwrap(), true), (memory_dir(), false)] {
        let files = memory_dir();
        let log = files.path().join("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
        command.stderr(std::fs::File::create(&log).unwrap());
        let node = Daemon::start_with(&pool_args(dir.path()), command);
        assert!(node.run_with(&["put", "k"], b"x").status.success());
        assert_eq!(node.stop().code(), Some(0));
        let says = std::fs::read_to_string(&log).unwrap();
        assert_eq!(says.contains("not a memory file system"), warned, "{says}");
        assert!(!warned || says.contains(" mount=") && says.contains(" kind="), "{says}");
    }
}

/// A program that could not write to its standard error panicked: commands ended with 101 instead of their own status, and
/// a daemon's thread that logged was gone.
#[test]
fn a_standard_error_that_is_full_changes_nothing() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dir = memory_dir();
    let program = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full());
        command
    };
    let place = ["--catalogs", "127.0.0.1:1", "--dir", dir.path().to_str().unwrap()];
    assert_eq!(program(&[&["get", "k"], &place[..]].concat()).status().unwrap().code(), Some(3));
    assert_eq!(program(&[&["ls"], &place[..]].concat()).status().unwrap().code(), Some(1));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.stderr(full());
    // It warns of its catalog at once.
    let node = Daemon::start_with(&node_args("one", dir.path(), "127.0.0.1:1"), command);
    let put = common::with_input(&[&["put", "k"], &place[..]].concat(), b"x");
    assert_eq!(put.status.code(), Some(0), "{}", stderr(&put));
    assert_eq!(node.stop().code(), Some(0));
}

#[test]
fn a_second_node_of_the_same_name_is_refused_and_the_first_goes_on() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let error = refused(&node_args("one", dir.path(), "127.0.0.1:1"));
    assert!(error.starts_with("tidepool: node one is already running in "), "{error}");
    assert!(pool.run_with(&["put", "k"], b"x").status.success());
    assert_eq!(pool.run(&["get", "k"]).stdout, b"x");
}

#[test]
fn a_configuration_with_a_typo_starts_nothing() {
    let dir = memory_dir();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, "[node]\ncapcity = \"1GiB\"\n").unwrap();
    for command in ["up", "catalog", "node"] {
        let error = refused(&[command, "--config", file.to_str().unwrap()]);
        assert!(error.ends_with("pool.toml:2: there is no field node.capcity: did you mean capacity?"), "{error}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let dir = memory_dir();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, "[node]\nname = \"from-file\"\n\n[catalog]\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let mut args = pool_args(dir.path());
    let name = args.iter().position(|argument| *argument == "--name").unwrap();
    args.drain(name..name + 2);
    args.extend(["--config", file.to_str().unwrap()]);
    let pool = Daemon::start(&args);
    assert_eq!(pool.address("node", "name"), "from-file");
    assert_ne!(pool.address("catalog", "listen"), "127.0.0.1:1");
    assert_eq!(page(pool.address("catalog", "metrics-listen"), "/health").0, 200);
}
