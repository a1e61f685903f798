//! A borrowed view stays right until it is dropped, whatever is evicted or removed around it.

use crate::cluster::{Cluster, MIB, Over, content, eventually};
use tidepool_client::PutOptions;
use tidepool_types::{ByteSize, Value};

const VIEWS: &str = "tidepool_node_views";

#[test]
fn a_view_outlives_eviction_and_removal() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    let (evicted, removed) = (content(1, 1 << 20), content(2, 1 << 20));
    client.put("evicted", &evicted, &PutOptions::default()).unwrap();
    client.put("removed", &removed, &PutOptions::default()).unwrap();
    let views = [client.view("evicted").unwrap().unwrap(), client.view("removed").unwrap().unwrap()];
    assert!(views.iter().all(tidepool_client::View::is_borrowed));
    assert!(client.remove("removed").unwrap().removed);
    for n in 0..64 {
        client.put(format!("filler {n}"), &content(n, 1 << 20), &PutOptions::default()).unwrap();
    }
    assert_eq!(client.get("removed").unwrap(), None);
    assert!(views[0][..] == evicted[..] && views[1][..] == removed[..]);
    assert_eq!(cluster.metric(0, VIEWS), 2);
    drop(views);
    eventually("the views are let go", || cluster.metric(0, VIEWS) == 0);
    assert_eq!(client.stats().views_borrowed, 2);
}

#[test]
fn a_view_outlives_its_client() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    client.put("key", b"bytes", &PutOptions::default()).unwrap();
    let view = client.view("key").unwrap().unwrap();
    drop(client);
    assert_eq!(&*view, b"bytes");
    drop(view);
    eventually("the view is let go", || cluster.metric(0, VIEWS) == 0);
}

/// Views that had to be copies were fetched one after the other, each with a look-up and a round trip of its own: a batch
/// from another host took as many times as long, and went past its deadline. Now they are fetched together.
#[test]
fn views_that_are_copies_are_fetched_together() {
    let cluster = Cluster::new(2);
    let client = cluster.client(Over::Tcp);
    let keys: Vec<String> = (0..40).map(|n| format!("key {n}")).collect();
    for (n, key) in keys.iter().enumerate() {
        client.put(key, key.as_bytes(), &crate::cluster::prefer(&format!("n{}", n % 2))).unwrap();
    }
    let lookups = || {
        let metrics = cluster.catalogs[0].metrics();
        metrics.into_iter().find(|metric| metric.name == "tidepool_catalog_lookups_total").map(|metric| metric.value)
    };
    let before = lookups();
    let wanted: Vec<&str> = keys.iter().map(String::as_str).chain(["absent", ""]).collect();
    let mut views = client.view_batch(&wanted);
    assert_eq!((before, lookups()), (Some(Value::Counter(40)), Some(Value::Counter(41))), "one look-up for all");
    assert!(views.pop().expect("one each").is_err(), "an empty key");
    assert!(views.pop().expect("one each").unwrap().is_none(), "an absent one");
    let views: Vec<Vec<u8>> = views.into_iter().map(|view| view.unwrap().unwrap().to_vec()).collect();
    assert!(views.iter().zip(&keys).all(|(view, key)| view == key.as_bytes()));
    assert_eq!(client.stats().views_copied, 40);
}

#[test]
fn past_the_limit_and_over_the_network_a_view_is_a_copy() {
    let mut cluster = Cluster::new(0);
    cluster.add_node("small", |config| config.view_limit = ByteSize(MIB.0 + MIB.0 / 2));
    let (near, far) = (cluster.client(Over::Shm), cluster.client(Over::Tcp));
    let keys = ["a", "b"];
    keys.iter().for_each(|key| assert!(near.put(key, &content(3, 1 << 20), &PutOptions::default()).is_ok()));
    let views: Vec<_> = near.view_batch(&keys).into_iter().map(|view| view.unwrap().unwrap()).collect();
    let borrowed: Vec<_> = views.iter().map(|view| view.is_borrowed()).collect();
    assert_eq!(borrowed, [true, false]);
    let copied = far.view("a").unwrap().unwrap();
    assert!(!copied.is_borrowed());
    assert!(views.iter().all(|view| view[..] == copied[..]));
    assert!(near.view("absent").unwrap().is_none());
}
