//! Metrics and health of running daemons; and that the pages about operations list every metric and every field.

mod common;

use common::{Daemon, metric, page};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use tidepool::config::Layer;
use tidepool_testing::{eventually, memory_dir};
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_types::{ClientId, Deadline};
use tidepool_wire::message::{Hello, Reason};

const METRICS: &str = include_str!("../../../docs/operations/metrics.md");
const SETTINGS: &str = include_str!("../../../docs/operations/settings.md");

#[test]
fn health_says_ok_and_a_catalog_whether_it_is_complete() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let health = |part| -> (u16, serde_json::Value) {
        let (status, body) = page(pool.address(part, "metrics-listen"), "/health");
        (status, serde_json::from_str(&body).unwrap())
    };
    let (status, node) = health("node");
    assert_eq!((status, node["status"].as_str()), (200, Some("ok")));
    assert_eq!(node["address"].as_str(), Some(pool.address("node", "data-listen")));
    let (status, catalog) = health("catalog");
    assert_eq!((status, catalog["status"].as_str()), (200, Some("ok")));
    // A new catalog gives nodes a moment to find it before it calls itself complete.
    assert!(catalog["complete"].is_boolean(), "{catalog}");
    eventually("a complete catalog", || health("catalog").1["complete"] == true);
}

/// With the usual limit of 1,024 open files and 1,024 connections, node, catalog and `/health` went deaf instead of refusing.
/// Now a daemon raises the limit as far as it may, and takes no more connections than it leaves.
#[test]
fn a_daemon_with_few_descriptors_refuses_connections_and_its_pages_still_answer() {
    let dir = memory_dir();
    let pool = Daemon::start_with(&common::pool_args(dir.path()), with_limit("ulimit -n 256"));
    let problems = |part| health(pool.address(part, "metrics-listen"))["problems"].to_string();
    assert!(
        problems("node").contains("42 connections") && problems("node").contains("not 1024"),
        "{}",
        problems("node")
    );
    assert!(problems("catalog").contains("85 connections") && problems("catalog").contains("not 4096"));
    let address = pool.address("node", "data-listen").parse().unwrap();
    let connect = |n| {
        let hello = Hello { client: ClientId(n), wants_memory: false };
        Connection::connect_tcp(address, &TcpOptions::default(), hello, Deadline::after(common::AGES))
    };
    let open: Vec<_> = (0..42).map(|n| connect(n).expect("within the limit")).collect();
    for n in 42..300 {
        let refused = connect(n).expect_err("past the limit");
        assert!(matches!(&refused, ConnError::Refused(refusal) if refusal.reason == Reason::Overloaded), "{refused}");
    }
    assert!(problems("node").contains("42 connections"), "the page still answers");
    drop(open);
}

#[test]
fn a_daemon_raises_its_limit_on_open_files_as_far_as_it_may() {
    let dir = memory_dir();
    let pool = Daemon::start_with(&common::pool_args(dir.path()), with_limit("ulimit -S -n 64"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pool.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(files[3], files[4], "the soft limit is the hard one");
}

/// The program, under a limit on open files.
fn with_limit(limit: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_tidepool")]);
    command
}

fn health(address: &str) -> Value {
    serde_json::from_str(&page(address, "/health").1).unwrap()
}

/// A node whose name another live node had announced nothing, and only its log said so: it looked healthy, and nobody found
/// what it held. Now both sides and `stat` say which two nodes share a name, for as long as they do.
#[test]
fn two_live_nodes_with_one_name_are_seen_on_both_sides_and_by_stat() {
    let dirs = [memory_dir(), memory_dir()];
    let catalog = Daemon::catalog();
    let listen = catalog.address("catalog", "listen");
    let first = Daemon::node("same", dirs[0].path(), listen);
    let pages = catalog.address("catalog", "metrics-listen");
    eventually("a catalog that knows it", || metric(pages, "tidepool_catalog_nodes_alive") == 1);
    let second = Daemon::node("same", dirs[1].path(), listen);
    let (own, other) = (second.address("node", "data-listen"), first.address("node", "data-listen"));

    eventually("a conflict", || metric(pages, "tidepool_catalog_name_conflicts") == 1);
    let says = health(pages)["problems"].to_string();
    assert!(says.contains("are called same") && says.contains(own) && says.contains(other), "{says}");
    let node = second.address("node", "metrics-listen");
    let flag = format!("tidepool_node_name_in_use{{catalog=\"{listen}\"}}");
    eventually("a refusal", || metric(node, &flag) == 1);
    let says = health(node)["problems"].to_string();
    assert!(says.contains("another live node") && says.contains(other), "{says}");
    assert_eq!(health(first.address("node", "metrics-listen"))["problems"], json!([]));
    let stat = |json: &[&str]| {
        let place = ["stat", "--catalogs", listen, "--dir", dirs[0].path().to_str().unwrap()];
        common::tidepool(&[&place, json].concat())
    };
    assert_eq!(common::json(&stat(&["--json"]))["nodes"][0]["name_also_claimed_by"], own);
    let says = common::stderr(&stat(&[]));
    assert!(says.contains("two live nodes are called same") && says.contains(own), "{says}");

    // With the first gone the second gets the name, and all is well.
    assert_eq!(first.stop().code(), Some(0));
    eventually("the name", || metric(node, &flag) == 0 && health(node)["problems"] == json!([]));
    assert_eq!(metric(pages, "tidepool_catalog_name_conflicts"), 0);
    assert_eq!(health(pages)["problems"], json!([]));
}

/// At 3 a.m. a node's health said "ok" and nothing about the catalogs it could not reach.
#[test]
fn a_nodes_health_says_how_each_of_its_catalogs_stands() {
    let dir = memory_dir();
    let catalog = Daemon::catalog();
    let listen = catalog.address("catalog", "listen").to_owned();
    let catalogs = format!("{listen},127.0.0.1:1");
    let node = Daemon::node("one", dir.path(), &catalogs);
    let pages = node.address("node", "metrics-listen");
    let well = json!({ "address": listen, "connected": true, "caught_up": true, "reason": null });
    eventually("a catalog that has caught up", || health(pages)["catalogs"][0] == well);
    eventually("a reason", || health(pages)["catalogs"][1]["reason"].to_string().contains("refused"));
    let page = health(pages);
    assert_eq!((&page["status"], page["problems"].as_array().unwrap().len()), (&json!("ok"), 1), "{page}");
    assert!(page["problems"][0].as_str().unwrap().starts_with("catalog 127.0.0.1:1 does not know"), "{page}");
    let caught_up = |address: &str| metric(pages, &format!("tidepool_node_catalog_caught_up{{catalog=\"{address}\"}}"));
    assert_eq!((caught_up(&listen), caught_up("127.0.0.1:1")), (1, 0));
    drop(catalog);
    eventually("a lost catalog", || health(pages)["catalogs"][0]["connected"] == false);
    assert_eq!(caught_up(&listen), 0);
    assert!(health(pages)["catalogs"][0]["reason"].is_string());
}

#[test]
fn metrics_move() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let node = pool.address("node", "metrics-listen");
    let catalog = pool.address("catalog", "metrics-listen");
    assert_eq!(metric(node, "tidepool_node_sealed_total"), 0);
    let changes = metric(catalog, "tidepool_catalog_changes_total");
    assert!(pool.run_with(&["put", "k"], &[7; 5000]).status.success());
    assert_eq!(metric(node, "tidepool_node_sealed_total"), 1);
    assert_eq!(metric(node, "tidepool_node_blocks"), 1);
    assert_eq!(metric(node, "tidepool_node_block_bytes"), 5000);
    assert!(metric(node, "tidepool_node_connections_total") > 0);
    assert!(metric(catalog, "tidepool_catalog_changes_total") > changes);
    assert!(metric(catalog, "tidepool_catalog_lookups_total") > 0);
    assert!(pool.run(&["rm", "k"]).status.success());
    assert_eq!(metric(node, "tidepool_node_removed_total"), 1);
    assert_eq!(metric(node, "tidepool_node_blocks"), 0);
}

/// Names in backquotes that start a row of a table in the page of metrics.
fn listed(prefix: &str) -> BTreeSet<String> {
    let name = |line: &str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned());
    METRICS.lines().filter_map(name).filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn every_metric_is_well_formed_and_listed_in_the_docs() {
    let dir = memory_dir();
    let pool = Daemon::pool(dir.path());
    let pages = ["node", "catalog"].map(|part| page(pool.address(part, "metrics-listen"), "/metrics").1);
    let mut shown = BTreeSet::new();
    for body in &pages {
        let types: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let names: BTreeSet<String> =
            types.iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
        assert_eq!(names.len(), types.len(), "a name has two types");
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a name and a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = series.split('{').next().expect("a name");
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(names.contains(name) || names.contains(family), "{line}");
        }
        shown.extend(names);
    }
    assert_eq!(listed("tidepool_"), shown);
}

#[test]
fn every_field_of_the_configuration_is_listed_in_the_docs_with_its_default() {
    let mut expected = String::new();
    for (section, fields) in Layer::sections() {
        for field in fields {
            expected += &format!("| `{section}.{}` | `{}` | {} |\n", field.key, field.default, field.help);
        }
    }
    let rows = SETTINGS
        .lines()
        .filter(|line| Layer::sections().iter().any(|(name, _)| line.starts_with(&format!("| `{name}."))));
    let written: String = rows.map(|row| format!("{row}\n")).collect();
    assert!(written == expected, "the table in docs/operations/settings.md should be:\n{expected}");
}
