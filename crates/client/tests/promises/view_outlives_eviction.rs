//! A borrowed view stays right until it is dropped, whatever is evicted or removed around it.

use crate::cluster::{Cluster, MIB, Over, content, eventually};
use tidepool_client::PutOptions;
use tidepool_types::ByteSize;

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
