//! Metrics and health of running daemons; and that the page about operations lists every metric and every field.

mod common;

use common::{Daemon, eventually, memory_dir, metric, page};
use std::collections::BTreeSet;
use tidepool::config::Layer;

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

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

/// Names in backquotes that start a row of a table in the page.
fn listed(prefix: &str) -> BTreeSet<String> {
    let name = |line: &str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned());
    OPERATIONS.lines().filter_map(name).filter(|name| name.starts_with(prefix)).collect()
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
    let rows = OPERATIONS
        .lines()
        .filter(|line| Layer::sections().iter().any(|(name, _)| line.starts_with(&format!("| `{name}."))));
    let written: String = rows.map(|row| format!("{row}\n")).collect();
    assert!(written == expected, "the table in docs/operations.md should be:\n{expected}");
}
