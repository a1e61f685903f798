//! What a node's holdings promise, with files as the tier below memory.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "these tests have pools with another tier below")]
mod common;
mod file_tier;
mod model;

use common::{config, id, put, reserve, sums};
use file_tier::FileTier;
use std::sync::Arc;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_store::inventory::Inventory as _;
use tidepool_store::{Holdings, Reading, Sealed};
use tidepool_types::{Epoch, Tier};

/// Bytes of every block: with its key and checksum it takes a page.
const BLOCK: usize = 4080;

struct Pool {
    _dir: tempfile::TempDir,
    holdings: Holdings,
    files: Arc<FileTier>,
}

/// A memory for so many blocks, above files.
fn pool(blocks: u64) -> Pool {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let files = Arc::new(FileTier::new(dir.path().join("blocks")));
    let config = config(dir.path(), "n", Epoch(1), (blocks << 12, 2048), (Policy::default(), Rule::default()));
    let holdings = Holdings::create(&config, vec![Arc::clone(&files) as _], &|| true).unwrap();
    Pool { _dir: dir, holdings, files }
}

fn key(block: u32) -> [u8; 4] {
    block.to_le_bytes()
}

#[test]
fn a_tier_that_blocks_slows_no_put() {
    let Pool { holdings, files, .. } = &pool(8);
    let memory = holdings.memory();
    let fill = |blocks: std::ops::Range<u32>| {
        blocks.for_each(|block| assert!(matches!(put(memory, &key(block), &[1; BLOCK]), Ok(Sealed::New(_)))));
    };
    fill(0..8);
    std::thread::scope(|scope| {
        let shut = files.shut();
        let spill = scope.spawn(|| files.spill(holdings, &id(&key(0))));
        shut.wait_until_stuck();
        // The tier's thread can go on only when `shut` is dropped: whatever happens until then waits for no I/O of the tier.
        fill(100..200);
        assert!(memory.contains(&id(&key(0))), "what is being written stays");
        assert!((193..200).all(|block| memory.contains(&id(&key(block)))), "all else has its turn");
        let (mut page, mut changes) = (Vec::new(), Vec::new());
        assert_eq!(holdings.page(0, 100, &mut page).as_of, holdings.latest());
        holdings.changes(0, 1000, &mut changes).unwrap();
        assert_eq!(changes.len(), 8 + 2 * 100, "each eviction and each put");
        assert!(memory.remove(&id(&key(199))));
        assert!(matches!(holdings.read(&id(&key(198)), None), Reading::Here(_)));
        assert!(shut.is_stuck());
        drop(shut);
        assert!(spill.join().unwrap());
    });
    assert_eq!(holdings.confirm(&[id(&key(0))])[0].map(|place| place.tier), Some(Tier::Dram));
    fill(200..210);
    assert_eq!(holdings.confirm(&[id(&key(0))])[0].map(|place| place.tier), Some(Tier::Disk));
}

#[test]
fn a_promoted_block_has_the_bytes_that_were_spilled() {
    let Pool { holdings, files, .. } = &pool(2);
    let memory = holdings.memory();
    let bytes = tidepool_testing::content(7, BLOCK);
    assert!(matches!(put(memory, &key(0), &bytes), Ok(Sealed::New(_))));
    assert!(files.spill(holdings, &id(&key(0))));
    (1..3).for_each(|block| assert!(put(memory, &key(block), &[1; BLOCK]).is_ok()));
    assert!(matches!(holdings.read(&id(&key(0)), None), Reading::Slower(place) if place.tier == Tier::Disk));
    files.set_throttled(true);
    assert!(matches!(holdings.read(&id(&key(0)), None), Reading::Throttled));
    files.set_throttled(false);
    let promotion = files.begin_promotion(holdings, &id(&key(0))).expect("the tier has it");
    assert!(matches!(holdings.read(&id(&key(0)), None), Reading::BeingWritten));
    assert!(matches!(promotion.end(), Sealed::New(_)));
    let Reading::Here(hold) = holdings.read(&id(&key(0)), None) else { panic!("it is in memory") };
    assert_eq!(hold.bytes(), bytes);
    assert!(hold.is_intact());
    assert!(files.drop_block(holdings, &id(&key(0))), "in both tiers until one of them lets it go");
    let unsealed = reserve(memory, &key(5), &[1; BLOCK]).unwrap();
    assert!(matches!(holdings.read(&id(&key(5)), None), Reading::Miss), "a put that is under way may never end");
    assert!(unsealed.seal(&sums(&key(5), &[1; BLOCK])).is_ok());
}
