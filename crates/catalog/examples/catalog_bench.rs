//! Measures a catalog in a process of its own: memory per block, look-up rate, prefix-match latency.
//!
//! `cargo run --release -p tidepool-catalog --example catalog_bench [blocks...]`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_catalog::generated::Fleet;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema::catalog_client::CatalogClient;
use tidepool_schema::{self as wire, LookupRequest, MatchPrefixRequest, Want, pack_ids};
use tidepool_types::BlockId;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH: usize = 5_000;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return serve();
    }
    let sizes = arguments.iter().map(|size| size.parse()).collect::<Result<Vec<u64>, _>>()?;
    for blocks in if sizes.is_empty() { vec![1_000_000, 7_500_000, 10_000_000] } else { sizes } {
        let catalog = Catalog::spawn()?;
        let before = catalog.resident_bytes()?;
        let started = Instant::now();
        let _fleet = Fleet::fill(&catalog.address, 4, blocks, Arc::new(id))?;
        let seconds = started.elapsed().as_secs_f64();
        let grown = catalog.resident_bytes()?.saturating_sub(before);
        println!("{blocks} blocks: {:.1} bytes a block, loaded in {seconds:.1} s", grown as f64 / blocks as f64);
        look_ups(&catalog, blocks)?;
    }
    Ok(())
}

fn look_ups(catalog: &Catalog, blocks: u64) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let channel = runtime.block_on(wire::endpoint(&catalog.address, Duration::from_secs(5))?.connect())?;
    let mut client = wire::client(channel);
    for want in [Want::Exists, Want::Holders] {
        let (rate, median) = lookup_rate(&runtime, &mut client, blocks, want)?;
        println!("{blocks} blocks, {want:?}: {:.2} million ids/s, median {median:?} a call", rate / 1e6);
    }
    for want in [Want::Exists, Want::Holders] {
        let median = match_latency(&runtime, &mut client, blocks, want)?;
        println!("{blocks} blocks, {want:?}: match_prefix of {BATCH} ids in {median:?}, median");
    }
    Ok(())
}

/// Random batches, half of the ids absent.
fn lookup_rate(rt: &Runtime, client: &mut CatalogClient<Channel>, blocks: u64, want: Want) -> Outcome<(f64, Duration)> {
    let mut random = 0x5eed;
    let mut times = Vec::new();
    for round in 0..1_100 {
        let ids: Vec<_> = (0..BATCH).map(|_| id(next(&mut random) % (blocks * 2))).collect();
        let started = Instant::now();
        let request = LookupRequest { ids: pack_ids(ids.iter()), want: want.into(), lease: false, vouch: false };
        let reply = rt.block_on(client.lookup(request))?.into_inner();
        if round >= 100 {
            times.push(started.elapsed());
        }
        let found = reply.counts.iter().filter(|count| **count > 0).count();
        if !(BATCH / 3..BATCH * 2 / 3).contains(&found) {
            return Err(format!("{found} of {BATCH} found, half expected").into());
        }
    }
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    Ok(((times.len() * BATCH) as f64 / total.as_secs_f64(), times[times.len() / 2]))
}

fn match_latency(rt: &Runtime, client: &mut CatalogClient<Channel>, blocks: u64, want: Want) -> Outcome<Duration> {
    let mut random = 0x5eed;
    let mut times = Vec::new();
    for _ in 0..500 {
        let ids: Vec<_> = (0..BATCH).map(|_| id(next(&mut random) % blocks)).collect();
        let started = Instant::now();
        let request = MatchPrefixRequest { ids: pack_ids(ids.iter()), lengths: vec![BATCH as u32], want: want.into() };
        let reply = rt.block_on(client.match_prefix(request))?.into_inner();
        times.push(started.elapsed());
        if reply.shortest != BATCH as u32 {
            return Err(format!("a run of {} ids, {BATCH} expected", reply.shortest).into());
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// A catalog in a process of its own, which ends with this.
struct Catalog {
    child: Child,
    address: String,
}

impl Catalog {
    fn spawn() -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address)?;
        Ok(Self { child, address: address.trim().to_owned() })
    }

    fn resident_bytes(&self) -> Outcome<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()))?;
        let pages: u64 = statm.split(' ').nth(1).ok_or("statm has no second field")?.parse()?;
        Ok(pages * 4096)
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve() -> Outcome<()> {
    let server = Server::start(CatalogConfig::default())?;
    println!("{}", server.address());
    std::io::stdout().flush()?;
    // Ends when the parent closes the pipe.
    std::io::stdin().read_line(&mut String::new())?;
    server.shutdown();
    Ok(())
}

/// The n-th block: a number that looks random.
fn id(n: u64) -> BlockId {
    let mut state = n.wrapping_mul(0xd134_2543_de82_ef95);
    BlockId::from_words([next(&mut state), next(&mut state)])
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
