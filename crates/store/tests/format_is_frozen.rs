//! The two shared files, byte by byte: what `docs/protocol.md` says is what a pool writes. A change here is a change of
//! the format, and needs a new format version.

mod common;

use common::{WRITER, create, id, put};
use tidepool_store::Sealed;
use tidepool_types::Epoch;
use tidepool_wire::checksum::BlockChecksum;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn the_map_and_the_slab_are_laid_out_as_documented() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let memory = create(dir.path(), "golden", Epoch(0x1122_3344_5566_7788), 64 << 10, 4096);
    for (key, bytes) in [(&b"key"[..], &b"hello, pool"[..]), (b"second key", &[7; 3000])] {
        assert!(matches!(put(&memory, key, bytes), Ok(Sealed::New(_))));
    }
    let map = std::fs::read(dir.path().join("golden.map")).unwrap();
    let slab = std::fs::read(dir.path().join("golden.slab")).unwrap();

    // Control pages.
    for (file, magic) in [(&map, b"TDPLMAP\0"), (&slab, b"TDPLSLAB")] {
        assert_eq!(&file[..8], magic);
        let words = [1, 2, 3, 4].map(|n| word(file, 8 * n));
        assert_eq!(words, [1, 0x1122_3344_5566_7788, 16, 64 << 10], "version, epoch, slots, capacity");
        assert!(file[40..4096].iter().all(|&byte| byte == 0));
    }
    assert_eq!(map.len(), 4096 + 16 * 64 + 4 * 64, "control page, sixteen headers, four buckets");
    assert_eq!(slab.len(), 4096 + (64 << 10));

    // The header of slot 0: stamp, id, offset, length, key length, writer, reserved.
    let id = id(b"key");
    let header = &map[4096..4160];
    assert_eq!(word(header, 0), 1 << 3 | 2, "generation 1, sealed");
    assert_eq!(&header[8..24], id.as_bytes());
    assert_eq!([3, 4, 5, 6, 7].map(|n| word(header, 8 * n)), [4096, 11, 3, WRITER.0, 0]);

    // The block, its key and its checksum.
    assert_eq!(&slab[4096..4107], b"hello, pool");
    assert_eq!(&slab[4112..4115], b"key");
    let sum = BlockChecksum::new(id, 11).chunk(0, b"hello, pool");
    assert_eq!(slab[4116..4120], sum.to_le_bytes());
    assert_eq!(&slab[4160..4164], [7; 4], "the next block starts at the next granule");

    // The index: the home bucket is the high half of the product of the id's first word and the number of buckets.
    let words = id.words();
    let home = ((u128::from(words[0]) * 4) >> 64) as usize;
    let bucket = &map[4096 + 16 * 64 + home * 64..][..64];
    assert_eq!(word(bucket, 0), 0, "nobody was passed by");
    assert!((1..8).any(|way| word(bucket, 8 * way) == words[1] << 32 | 1), "tag and slot + 1");
}
