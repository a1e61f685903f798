//! A catalog that was stopped leaves no thread and no socket behind. A file of its own: it counts the process's threads.

mod common;

use common::{Asker, HandNode, quick};
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_testing::eventually;

fn catalog_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("tp-catalog")).count()
}

#[test]
fn a_stopped_catalog_leaves_no_thread_and_frees_its_port() {
    let server = Server::start(quick()).unwrap();
    let address = server.address();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 0, 0..1000);
    asker.holders(0..10);
    assert!(catalog_threads() > 0);
    server.shutdown();
    assert!(node.heartbeat(0, 0).is_err(), "its streams have ended");
    eventually("threads are gone", || catalog_threads() == 0);
    drop(Server::start(CatalogConfig { listen: address, ..quick() }).unwrap());
    eventually("dropping stops too", || catalog_threads() == 0);
}
