//! Figures that are known for public traces. The traces are not part of this repository: the folder that has them is named by the
//! environment variable TIDEPOOL_TRACES, and without it nothing is checked here.

use std::path::PathBuf;
use tidepool_policy::eviction::{Eviction, Policy};
use tidepool_sim::{Blocks, Clairvoyant, CurveBuilder, Future, Pool, Prefill, Tally, Ties};
use tidepool_trace::{Options, Reader, Request};

/// A point of a per cent.
const POINT: f64 = 0.01;

fn requests(file: &str) -> Option<Vec<Request>> {
    let Some(folder) = std::env::var_os("TIDEPOOL_TRACES") else {
        eprintln!("SKIPPED, NOTHING WAS CHECKED: set TIDEPOOL_TRACES to the folder that has {file}");
        return None;
    };
    let reader =
        Reader::open(&PathBuf::from(folder).join(file), Options { strict: true, ..Options::default() }).unwrap();
    Some(reader.collect::<Result<Vec<_>, _>>().unwrap())
}

fn hit_rate(requests: &[Request], capacity: Blocks, order: Box<dyn Eviction>) -> f64 {
    let (mut pool, mut tally) = (Pool::new(capacity, order), Tally::default());
    requests.iter().for_each(|request| tally.add(request, pool.serve(request), 512));
    tally.hit_rate()
}

fn clairvoyant(requests: &[Request], ties: Ties) -> Box<dyn Eviction> {
    let mut future = Future::default();
    requests.iter().for_each(|request| future.learn(request));
    Box::new(Clairvoyant::new(future, ties))
}

fn check(what: &str, capacity: Blocks, found: f64, known: f64, within: f64) {
    println!("{what} at {} blocks: {:.2} %, known {:.2} %", capacity.0, found / POINT, known);
    assert!((found / POINT - known).abs() <= within, "{what} at {capacity:?}: {found} and not {known} %");
}

#[test]
fn the_conversation_trace_gives_the_known_hit_rates() {
    let Some(requests) = requests("conversation_trace.jsonl") else { return };
    assert_eq!(requests.len(), 12_031);
    let lru = || Policy::Lru.build();
    check("no limit", Blocks::UNLIMITED, hit_rate(&requests, Blocks::UNLIMITED, lru()), 36.64, 0.1);
    for (size, known) in [(5_000, 11.18), (10_000, 21.16), (20_000, 28.78), (50_000, 35.46)] {
        check("lru", Blocks(size), hit_rate(&requests, Blocks(size), lru()), known, 0.1);
    }
    for (size, known) in [(5_000, 33.9), (10_000, 36.6)] {
        check(
            "clairvoyant",
            Blocks(size),
            hit_rate(&requests, Blocks(size), clairvoyant(&requests, Ties::Shallowest)),
            known,
            0.1,
        );
    }
    let best = clairvoyant(&requests, Ties::Deepest);
    check("best", Blocks(5_000), hit_rate(&requests, Blocks(5_000), best), 34.12, 0.1);
    for (size, known) in [(5_000, 14.5), (10_000, 20.2), (20_000, 25.2)] {
        check("s3fifo", Blocks(size), hit_rate(&requests, Blocks(size), Policy::S3Fifo.build()), known, 0.1);
    }
}

#[test]
fn the_first_thousand_of_the_arxiv_trace_give_the_known_hit_rates() {
    let Some(requests) = requests("mooncake_trace_1000.jsonl") else { return };
    for (size, known) in [(5_000, 31.9), (10_000, 37.9), (20_000, 38.0), (50_000, 38.0)] {
        check("lru", Blocks(size), hit_rate(&requests, Blocks(size), Policy::Lru.build()), known, 0.1);
    }
    for size in [5_000, 10_000] {
        check(
            "clairvoyant",
            Blocks(size),
            hit_rate(&requests, Blocks(size), clairvoyant(&requests, Ties::Shallowest)),
            38.0,
            0.1,
        );
    }
}

#[test]
fn curves_of_public_traces_are_within_a_point_of_lru() {
    for file in ["conversation_trace.jsonl", "mooncake_trace_1000.jsonl"] {
        let Some(requests) = requests(file) else { return };
        for most_tracked in [usize::MAX, 32 << 10] {
            let mut builder = CurveBuilder::new(most_tracked, Prefill::default(), 512);
            requests.iter().for_each(|request| builder.add(request));
            let curve = builder.finish();
            for size in [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000].map(Blocks) {
                let exact = hit_rate(&requests, size, Policy::Lru.build());
                let what = format!("curve of {file}, one of {}, +-{:.2}", curve.unit().0, curve.error(size) / POINT);
                check(&what, size, curve.hit_rate(size), exact / POINT, 1.0);
            }
        }
    }
}

#[test]
fn nothing_is_hit_in_traces_without_hashes() {
    for file in ["AzureLLMInferenceTrace_code.csv", "AzureLLMInferenceTrace_conv.csv"] {
        let Some(requests) = requests(file) else { return };
        assert!(requests.len() > 8_000, "{file}: {}", requests.len());
        assert_eq!(hit_rate(&requests, Blocks::UNLIMITED, Policy::Lru.build()), 0.0);
    }
}
