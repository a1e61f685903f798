//! How fast a client is against a node on its own host, as a quick check while working on it. `tidepool bench` measures
//! with separate processes and against baselines.
//!
//! `cargo run --release -p tidepool-client --example client_speed`

use std::time::{Duration, Instant};
use tidepool_client::{Client, ClientConfig, GetInto, PutItem, PutOptions};
use tidepool_node::{Node, NodeConfig};
use tidepool_types::ByteSize;

const BATCH: usize = 32;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir_in("/dev/shm")?;
    let config = NodeConfig {
        dir: dir.path().to_owned(),
        capacity: ByteSize(1 << 30),
        scrub_rate: ByteSize(0),
        ..NodeConfig::small("speed")
    };
    let _node = Node::start(config)?;
    let client = Client::connect(ClientConfig { dir: dir.path().to_owned(), ..ClientConfig::default() })?;
    single(&client, 4 << 10)?;
    for (len, blocks) in [(4 << 10, 16_384), (64 << 10, 4096), (2 << 20, 256)] {
        batches(&client, len, blocks);
    }
    println!("{:?}", client.stats());
    Ok(())
}

fn single(client: &Client, len: usize) -> Result<(), Box<dyn std::error::Error>> {
    client.put("one", &vec![7; len], &PutOptions::default())?;
    let mut buffer = vec![0; len];
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..20_000 {
        let start = Instant::now();
        client.get_into("one", &mut buffer)?;
        times.push(start.elapsed());
    }
    times.sort();
    println!("one get of {len} bytes: median {:?}, 99th percentile {:?}", times[10_000], times[19_800]);
    Ok(())
}

fn batches(client: &Client, len: usize, blocks: usize) {
    let keys: Vec<String> = (0..blocks).map(|n| format!("{len}/{n}")).collect();
    let mut memory = vec![1u8; len * BATCH];
    let (mut put, mut got) = (Duration::ZERO, Duration::ZERO);
    for keys in keys.chunks(BATCH) {
        let items: Vec<_> = keys.iter().zip(memory.chunks(len)).map(|(key, part)| PutItem::new(key, part)).collect();
        let start = Instant::now();
        let results = client.put_batch(&items, &PutOptions::default());
        put += start.elapsed();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    // The first round brings the pages in and does not count.
    for round in 0..=ROUNDS {
        if round == 1 {
            got = Duration::ZERO;
        }
        got += get_all(client, &keys, &mut memory, len);
    }
    let rate = |blocks: usize, time: Duration| blocks as f64 / time.as_secs_f64();
    let gigabytes = |blocks: usize, time: Duration| rate(blocks, time) * len as f64 / 1e9;
    println!(
        "batches of {BATCH} x {len} bytes: put {:.0} keys/s ({:.2} GB/s), get {:.0} keys/s ({:.2} GB/s)",
        rate(blocks, put),
        gigabytes(blocks, put),
        rate(ROUNDS * blocks, got),
        gigabytes(ROUNDS * blocks, got)
    );
}

fn get_all(client: &Client, keys: &[String], memory: &mut [u8], len: usize) -> Duration {
    let mut got = Duration::ZERO;
    for keys in keys.chunks(BATCH) {
        let start = Instant::now();
        let parts = memory.chunks_mut(len);
        let mut items: Vec<_> = keys.iter().zip(parts).map(|(key, part)| GetInto::new(key, part)).collect();
        let results = client.get_batch_into(&mut items);
        got += start.elapsed();
        assert!(results.iter().all(|result| *result == Ok(Some(len))));
    }
    got
}
