//! What a removal was answered for is gone, whatever else goes on.

use crate::cluster::{Cluster, Over, content, name, prefer};
use crate::upserts::copies;
use tidepool_client::Client;

type Way = (&'static str, fn(&Client));

/// A removal asked the holders that the catalogs named: a copy that was on its way to another node stayed for good, and the
/// answer said that all was gone.
#[test]
fn a_block_that_is_being_copied_is_gone_once_its_removal_is_answered() {
    let cluster = Cluster::new(2);
    let (remover, copier) = (cluster.client(Over::Tcp), cluster.client(Over::Tcp));
    let ways: [Way; 4] = [
        ("remove", |client| drop(client.remove("key").unwrap())),
        ("remove_unleased", |client| drop(client.remove_unleased(&["key"]).unwrap())),
        ("remove_matching", |client| drop(client.remove_matching("^k").unwrap())),
        ("remove_all", |client| drop(client.remove_all().unwrap())),
    ];
    for round in 0..60u64 {
        for (way, remove) in &ways {
            remover.put("key", &content(round, 300_000)[..], &prefer("n0")).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| drop(copier.copy_to("key", &name("n1"))));
                // Between a copy's first moment and its last.
                for _ in 0..round * 2_000 {
                    std::hint::spin_loop();
                }
                remove(&remover);
            });
            let left = copies(&cluster, "key").len();
            assert_eq!(left, 0, "{way}, round {round}: copies are left");
        }
    }
}
