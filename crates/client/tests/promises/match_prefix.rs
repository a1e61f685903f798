//! One call finds, for each of several chains, the longest run that the pool can serve, and the shortest of them.

use crate::cluster::{BOTH, Cluster, Over, name, prefer};
use tidepool_client::PutOptions;

fn chain(rank: usize, len: usize) -> Vec<String> {
    (0..len).map(|block| format!("rank {rank} block {block}")).collect()
}

#[test]
fn each_chain_has_its_run_and_all_have_the_shortest() {
    let cluster = Cluster::new(2);
    let writer = cluster.client(Over::Tcp);
    // Chain 0 lies on both nodes in turn; chain 1 has a gap at 3; chain 2 is whole; of chain 3 nothing is held.
    for (rank, blocks) in [(0, (0..7).collect::<Vec<_>>()), (1, vec![0, 1, 2, 4, 5]), (2, (0..10).collect())] {
        for block in blocks {
            let node = if block % 2 == 0 { "n0" } else { "n1" };
            writer.put(&chain(rank, 10)[block], b"bytes", &prefer(node)).unwrap();
        }
    }
    let chains: Vec<_> = (0..4).map(|rank| chain(rank, 10)).collect();
    for over in BOTH {
        let client = cluster.client(over);
        let found = client.match_prefix(&chains[..3]).unwrap();
        let runs: Vec<_> = found.chains.iter().map(|chain| chain.run()).collect();
        assert_eq!((runs, found.shortest), (vec![7, 3, 10], 3), "over {over:?}");
        for (block, place) in found.chains[0].places.iter().enumerate() {
            assert_eq!(found.nodes[usize::from(place.node)], name(if block % 2 == 0 { "n0" } else { "n1" }));
        }
        let all = client.match_prefix(&chains).unwrap();
        assert_eq!((all.chains[3].run(), all.shortest), (0, 0));
        let none: [Vec<String>; 0] = [];
        assert_eq!(client.match_prefix(&none).unwrap().shortest, 0);
    }
}

#[test]
fn a_run_may_start_on_this_host_and_go_on_elsewhere() {
    let mut cluster = Cluster::new(1);
    // A node with its socket in another directory: on another host, as far as this client can tell.
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    cluster.add_node("far", |config| config.dir = elsewhere.path().to_owned());
    let writer = cluster.client(Over::Tcp);
    let keys = chain(0, 4);
    for (block, key) in keys.iter().enumerate() {
        writer.put(key, b"bytes", &prefer(if block < 2 { "n0" } else { "far" })).unwrap();
    }
    let client = cluster.client(Over::Shm);
    let found = client.match_prefix(&[&keys]).unwrap();
    assert_eq!(found.shortest, 4);
    assert!(client.get_batch(&keys).into_iter().all(|got| got.unwrap().is_some()));
    let _ = client.put("one more", b"bytes", &PutOptions::default());
}
