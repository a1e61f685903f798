//! One block from many buffers and to many buffers, whatever their sizes.

use crate::cluster::{BOTH, Cluster, content};
use tidepool_client::{Buffers, GetInto, Parts, PutItem, PutOptions};

/// Cuts `len` bytes into pieces whose sizes depend on `seed`; some are empty.
fn cuts(seed: u64, len: usize) -> Vec<usize> {
    let mut left = len;
    let mut take = |byte: u8| {
        let size = (usize::from(byte) * len / 2000).min(left);
        left -= size;
        size
    };
    let mut cuts: Vec<usize> = content(seed, 64).into_iter().map(&mut take).collect();
    cuts.push(left);
    cuts
}

fn scattered(bytes: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    sizes.iter().map(|&size| rest.split_off(..size).expect("sizes add up").to_vec()).collect()
}

#[test]
fn scattered_parts_make_one_block_and_a_block_fills_scattered_buffers() {
    let cluster = Cluster::new(1);
    for over in BOTH {
        let client = cluster.client(over);
        let lens = [1usize, 100, 4096, 200_001, 1 << 20];
        let blocks: Vec<_> = lens.iter().map(|&len| (format!("{over:?}/{len}"), content(len as u64, len))).collect();
        let parts: Vec<_> = blocks.iter().map(|(_, bytes)| scattered(bytes, &cuts(1, bytes.len()))).collect();
        let mut items = Vec::new();
        for ((key, _), parts) in blocks.iter().zip(&parts) {
            items.push(PutItem::new(key, Parts::Many(parts.iter().map(Vec::as_slice).collect())));
        }
        assert!(client.put_batch(&items, &PutOptions::default()).iter().all(Result::is_ok));

        let mut places: Vec<Vec<Vec<u8>>> =
            lens.iter().map(|&len| cuts(2, len).into_iter().map(|size| vec![0; size]).collect()).collect();
        let mut wanted: Vec<GetInto<'_>> = blocks
            .iter()
            .zip(&mut places)
            .map(|((key, _), place)| {
                GetInto::new(key, Buffers::Many(place.iter_mut().map(Vec::as_mut_slice).collect()))
            })
            .collect();
        let got = client.get_batch_into(&mut wanted);
        for (((_, bytes), place), got) in blocks.iter().zip(&places).zip(got) {
            assert_eq!(got, Ok(Some(bytes.len())));
            assert!(&place.concat() == bytes);
        }
    }
}
