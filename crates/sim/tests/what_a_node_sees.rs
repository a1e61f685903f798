//! Policies as a node uses them: blocks are read, then others are put, each for itself. A node does not know which
//! blocks are one request, their depth or their session. The environment variable TIDEPOOL_TRACES names the folder of
//! public traces.

use std::path::PathBuf;
use std::time::Duration;
use tidepool_policy::eviction::{Policy, Use};
use tidepool_sim::{Blocks, Pool, Tally};
use tidepool_trace::{BlockHash, Options, Reader, Request};
use tidepool_workload::Agents;

/// Hits in per cent.
fn hits(requests: &[Request], capacity: u64, policy: Policy) -> f64 {
    hits_in_order(requests, capacity, policy, |blocks| blocks.iter().rev().copied().collect())
}

/// The same of a node that uses the blocks of a batch in this order.
fn hits_in_order(
    requests: &[Request],
    capacity: u64,
    policy: Policy,
    order: impl Fn(&[BlockHash]) -> Vec<BlockHash>,
) -> f64 {
    let (mut pool, mut tally) = (Pool::new(Blocks(capacity), policy.build()), Tally::default());
    for request in requests {
        let run = pool.run(&request.blocks);
        tally.add(request, run, 512);
        let (read, put) = request.blocks.split_at(run.0 as usize);
        let usage = Use { at: Duration::from_millis(request.at.0), ..Use::default() };
        for block in order(read).into_iter().chain(order(put)) {
            pool.use_one(block, &usage);
        }
    }
    100.0 * tally.hit_rate()
}

/// The default is one that loses to no other by much, at any size: the others win at some and lose at others.
fn lru_is_never_far_behind(name: &str, requests: &[Request], sizes: &[u64], by: f64) {
    for &size in sizes {
        let all = Policy::ALL.map(|policy| (policy, hits(requests, size, policy)));
        let row: Vec<_> = all.iter().map(|(policy, hits)| format!("{policy} {hits:.2}")).collect();
        println!("{name} at {size} blocks: {}", row.join(", "));
        let best = all.iter().map(|(_, hits)| *hits).fold(0.0, f64::max);
        let lru = all.iter().find(|(policy, _)| *policy == Policy::default()).map_or(0.0, |(_, hits)| *hits);
        assert!(best - lru < by, "{name} at {size}: {lru} and not {best}");
    }
}

#[test]
fn agents_leave_lru_the_default_of_a_node() {
    let requests: Vec<_> = Agents::codex().requests().expect("presets are valid").take(4000).collect();
    lru_is_never_far_behind("codex", &requests, &[2000, 4000], 8.0);
}

/// A prefix is useless without its start, which so must be what was used last.
#[test]
fn a_batch_that_is_used_from_its_end_hits_more() {
    let requests: Vec<_> = Agents::codex().requests().expect("presets are valid").collect();
    let backwards = hits(&requests, 4000, Policy::Lru);
    let forwards = hits_in_order(&requests, 4000, Policy::Lru, <[_]>::to_vec);
    println!("all of codex at 4000 blocks, lru: {backwards:.1} backwards, {forwards:.1} forwards");
    assert!(backwards > forwards);
}

#[test]
fn conversations_leave_lru_the_default_of_a_node() {
    let Some(folder) = std::env::var_os("TIDEPOOL_TRACES") else {
        eprintln!("SKIPPED, NOTHING WAS CHECKED: set TIDEPOOL_TRACES to the folder that has conversation_trace.jsonl");
        return;
    };
    let reader = Reader::open(&PathBuf::from(folder).join("conversation_trace.jsonl"), Options::default()).unwrap();
    let requests: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
    lru_is_never_far_behind("conversation", &requests, &[5000, 10_000, 20_000], 4.0);
}
