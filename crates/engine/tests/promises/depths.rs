//! A mover is told where in its prefix each block stands, also of a share of the blocks.

use crate::reports::wait;
use std::sync::{Arc, Mutex};
use tidepool_client::{Client, ClientConfig, PutError, PutOptions, Stored};
use tidepool_engine::{Direction, GoOn, Hashes, Job, KeyPrefix, Mover, Part, Placed, TransferConfig, Transfers};

/// Notes the depths of the blocks that it is given.
struct Noting(Arc<Mutex<Vec<(usize, u32)>>>);

impl Mover for Noting {
    fn block_len(&self, _: usize) -> usize {
        1
    }

    fn save(&self, _: &Client, batch: &[Placed<'_>], _: &PutOptions, _: GoOn<'_>) -> Vec<Result<Stored, PutError>> {
        self.0.lock().unwrap().extend(batch.iter().map(|placed| (placed.group, placed.depth)));
        batch.iter().map(|_| Ok(Stored { replicas: 1, moved: true })).collect()
    }

    fn load(&self, _: &Client, batch: &[Placed<'_>], _: GoOn<'_>) -> Vec<bool> {
        vec![false; batch.len()]
    }
}

#[test]
fn every_block_of_a_job_has_its_depth() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = ClientConfig { dir: dir.path().to_owned(), ..ClientConfig::default() };
    let client = Client::connect(config).unwrap();
    let noted = Arc::default();
    let mover = Box::new(Noting(Arc::clone(&noted)));
    let transfers = Transfers::start(&client, mover, TransferConfig::default()).unwrap();
    let part = |group, depth, step| {
        let (prefix, hashes) = (KeyPrefix::new("p/"), Hashes::new(vec![7; 24], 8).unwrap());
        Part { group, prefix, hashes, blocks: vec![1, 2, 3], depth, step }
    };
    transfers.submit(Direction::Save, Job { id: 1, parts: vec![part(0, 10, 1), part(1, 3, 4)], origin: None });
    wait(&transfers);
    assert_eq!(*noted.lock().unwrap(), [(0, 10), (0, 11), (0, 12), (1, 3), (1, 7), (1, 11)]);
}
