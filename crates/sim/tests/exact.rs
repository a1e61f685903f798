//! A small generated trace, against the shortest program that does what the definition says.

use proptest::prelude::*;
use tidepool_policy::eviction::Policy;
use tidepool_sim::{Blocks, Clairvoyant, CurveBuilder, Future, Pool, Prefill, Tally, Ties};
use tidepool_trace::{BlockHash, Millis, Request};

/// Requests that share prefixes: paths down a tree with three branches at each block.
fn trace() -> impl Strategy<Value = Vec<Request>> {
    let path = prop::collection::vec(0..3_u64, 0..7);
    prop::collection::vec(path, 1..120)
        .prop_map(|paths| paths.iter().enumerate().map(|(n, path)| request(n, path)).collect())
}

fn request(number: usize, path: &[u64]) -> Request {
    let step = |hash: &mut u64, branch: &u64| {
        *hash = *hash * 4 + branch + 1;
        Some(BlockHash(*hash))
    };
    let blocks: Vec<_> = path.iter().scan(0, step).collect();
    let input_tokens = blocks.len() as u32 * 512;
    Request { at: Millis(number as u64), input_tokens, output_tokens: 1, blocks, origin: None }
}

fn simulated(requests: &[Request], mut pool: Pool) -> u64 {
    let mut tally = Tally::default();
    requests.iter().for_each(|request| tally.add(request, pool.serve(request), 512));
    tally.hit_blocks
}

fn run(held: &[u64], request: &Request) -> u64 {
    request.blocks.iter().take_while(|block| held.contains(&block.0)).count() as u64
}

/// Blocks by last use, coldest first.
fn naive_lru(requests: &[Request], capacity: usize) -> u64 {
    let (mut held, mut hits) = (Vec::new(), 0);
    for request in requests {
        hits += run(&held, request);
        for block in request.blocks.iter().rev() {
            held.retain(|known| *known != block.0);
            held.push(block.0);
        }
        held.drain(..held.len().saturating_sub(capacity));
    }
    hits
}

fn naive_clairvoyant(requests: &[Request], capacity: usize) -> u64 {
    let (mut held, mut hits) = (Vec::new(), 0);
    for (now, request) in requests.iter().enumerate() {
        hits += run(&held, request);
        held.extend(
            request.blocks.iter().map(|block| block.0).filter(|block| !held.contains(block)).collect::<Vec<_>>(),
        );
        let depth = |block: u64| requests.iter().find_map(|r| r.blocks.iter().position(|b| b.0 == block));
        let next = |block: u64| {
            let later = requests[now + 1..].iter().position(|r| r.blocks.contains(&BlockHash(block)));
            (later.unwrap_or(usize::MAX), depth(block))
        };
        held.sort_by_key(|block| next(*block));
        held.truncate(capacity);
    }
    hits
}

fn clairvoyant(requests: &[Request]) -> Clairvoyant {
    let mut future = Future::default();
    requests.iter().for_each(|request| future.learn(request));
    Clairvoyant::new(future, Ties::Deepest)
}

/// The most hits that any choice of what to keep gives.
fn best(requests: &[Request], capacity: usize) -> u64 {
    use std::collections::{BTreeSet, HashMap};
    let mut states = HashMap::from([(BTreeSet::<u64>::new(), 0_u64)]);
    for request in requests {
        let mut after = HashMap::new();
        for (held, hits) in states {
            let hits = hits + run(&held.iter().copied().collect::<Vec<_>>(), request);
            let all: Vec<u64> = held.iter().copied().chain(request.blocks.iter().map(|block| block.0)).collect();
            for choice in subsets(&all, capacity) {
                let most = after.entry(choice).or_insert(0);
                *most = hits.max(*most);
            }
        }
        states = after;
    }
    states.into_values().max().unwrap_or(0)
}

fn subsets(all: &[u64], most: usize) -> Vec<std::collections::BTreeSet<u64>> {
    let distinct: Vec<u64> = std::collections::BTreeSet::from_iter(all.iter().copied()).into_iter().collect();
    let full = most.min(distinct.len());
    let masks = (0..1_u32 << distinct.len()).filter(|mask| mask.count_ones() as usize == full);
    masks
        .map(|mask| (0..distinct.len()).filter(|bit| mask >> bit & 1 == 1).map(|bit| distinct[bit]).collect())
        .collect()
}

proptest! {
    #[test]
    fn lru_is_that_of_a_naive_list(requests in trace(), capacity in 0..60_u64) {
        let pool = Pool::new(Blocks(capacity), Policy::Lru.build());
        prop_assert_eq!(simulated(&requests, pool), naive_lru(&requests, capacity as usize));
    }

    #[test]
    fn the_clairvoyant_is_a_naive_one(requests in trace(), capacity in 0..60_u64) {
        let pool = Pool::new(Blocks(capacity), Box::new(clairvoyant(&requests)));
        prop_assert_eq!(simulated(&requests, pool), naive_clairvoyant(&requests, capacity as usize));
    }

    #[test]
    fn nobody_beats_the_clairvoyant(requests in trace(), capacity in 0..60_u64) {
        let bound = simulated(&requests, Pool::new(Blocks(capacity), Box::new(clairvoyant(&requests))));
        for policy in Policy::ALL {
            let pool = Pool::new(Blocks(capacity), policy.build());
            prop_assert!(simulated(&requests, pool) <= bound, "{policy}");
        }
        prop_assert!(bound <= naive_lru(&requests, usize::MAX));
    }

    #[test]
    fn no_choice_beats_the_clairvoyant(
        paths in prop::collection::vec(prop::collection::vec(0..2_u64, 0..3), 1..9), capacity in 0..5_u64,
    ) {
        let requests: Vec<_> = paths.iter().enumerate().map(|(n, path)| request(n, path)).collect();
        let pool = Pool::new(Blocks(capacity), Box::new(clairvoyant(&requests)));
        prop_assert_eq!(simulated(&requests, pool), best(&requests, capacity as usize));
    }

    #[test]
    fn a_pool_never_holds_more_than_its_size(requests in trace(), capacity in 0..60_u64) {
        for policy in Policy::ALL {
            let mut pool = Pool::new(Blocks(capacity), policy.build());
            for request in &requests {
                pool.serve(request);
                prop_assert!(pool.len() <= Blocks(capacity));
            }
        }
    }

    #[test]
    fn the_curve_is_lru_at_every_size(requests in trace()) {
        let mut builder = CurveBuilder::new(usize::MAX, Prefill::default(), 512);
        requests.iter().for_each(|request| builder.add(request));
        let curve = builder.finish();
        let blocks: usize = requests.iter().map(|request| request.blocks.len()).sum();
        for capacity in 0..50 {
            let hits = (curve.hit_rate(Blocks(capacity)) * blocks as f64).round() as u64;
            prop_assert_eq!(hits, naive_lru(&requests, capacity as usize), "capacity {}", capacity);
        }
        prop_assert_eq!(curve.error(Blocks(10)), 0.0);
    }
}

/// Sessions that come back after others: the reuse that a cache's size decides about.
fn sessions() -> Vec<Request> {
    let mut random = 7_u64;
    let mut next = move |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let request = |at: u64| {
        let session = next(2000).min(next(2000));
        let block = |n: u64| BlockHash(if n < 4 { n } else { (session + 1) << 20 | n });
        let blocks: Vec<_> = (0..10 + next(40)).map(block).collect();
        Request { at: Millis(at), input_tokens: 0, output_tokens: 0, blocks, origin: None }
    };
    (0..20_000).map(request).collect()
}

#[test]
fn a_sampled_curve_is_within_its_stated_error_or_a_point() {
    let requests = sessions();
    let curve = |most| {
        let mut builder = CurveBuilder::new(most, Prefill::default(), 512);
        requests.iter().for_each(|request| builder.add(request));
        builder.finish()
    };
    let (exact, sampled) = (curve(usize::MAX), curve(8 << 10));
    assert_eq!(exact.unit(), Blocks(1));
    assert!(sampled.unit() > Blocks(1));
    for capacity in (0..80_000).step_by(1000).map(Blocks) {
        let (truth, estimate, error) = (exact.hit_rate(capacity), sampled.hit_rate(capacity), sampled.error(capacity));
        assert!((truth - estimate).abs() <= error.max(0.01), "{capacity:?}: {truth} {estimate} {error}");
        assert!(error < 0.12, "{capacity:?}: {error}");
    }
}

#[test]
fn a_plan_names_the_knee_and_what_memory_saves() {
    use tidepool_sim::plan::Setting;
    // Ten prompts of 20 blocks in turn, round after round: 200 blocks hold all of them, and with fewer nothing is hit.
    let prompt = |n: usize| (0..20).map(|block| BlockHash((n as u64 % 10) << 8 | block)).collect::<Vec<_>>();
    let requests: Vec<_> = (0..1000)
        .map(|n| Request {
            at: Millis(n as u64),
            input_tokens: 10_240,
            output_tokens: 1,
            blocks: prompt(n),
            origin: None,
        })
        .collect();
    let prefill = Prefill { token: 1e-3, pair: 0.0 };
    let mut builder = CurveBuilder::new(usize::MAX, prefill, 512);
    requests.iter().for_each(|request| builder.add(request));
    let (curve, mib) = (builder.finish(), 1 << 20);
    let setting =
        Setting { block_bytes: mib, memory_rate: 1e9, disk_rate: 1e8, disk_bytes: 0, requests: 1000, blocks: 20_000 };
    assert_eq!(setting.knee(&curve), Some(200 * mib));
    let (small, enough) = (setting.point(&curve, 150 * mib), setting.point(&curve, 200 * mib));
    assert!((enough.hit_rate, small.hit_rate) == (0.99, 0.0), "{enough:?} {small:?}");
    assert!((small.first_token_seconds - 10.24).abs() < 1e-6, "{small:?}");
    assert!((enough.gpu_seconds_saved - 990.0 * 10.24).abs() < 1e-6, "{enough:?}");
    // A hundredth of all prompts is computed, the others are loaded at a gigabyte a second.
    assert!((enough.first_token_seconds - 0.1024 - 0.99 * 20.0 * mib as f64 / 1e9).abs() < 1e-9, "{enough:?}");
    let behind = Setting { disk_bytes: 50 * mib, ..setting }.point(&curve, 150 * mib);
    assert_eq!((behind.hit_rate, behind.gpu_seconds_saved), (enough.hit_rate, enough.gpu_seconds_saved));
    assert!(behind.first_token_seconds > enough.first_token_seconds);
    assert!(setting.sizes(&curve).windows(2).all(|pair| pair[0] < pair[1]));
}
