//! The presets against the figures that were published, each within a stated tolerance.

use std::collections::{HashMap, HashSet};

use tidepool_trace::{BlockHash, Request, SessionId, ToolId};
use tidepool_workload::Agents;

const SEEDS: [u64; 3] = [1, 2, 3];

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part) as usize]
}

fn near(what: &str, seed: u64, value: f64, published: f64, tolerance: f64) {
    println!("seed {seed}: {what} {value:.3}, published {published}");
    assert!((value / published - 1.0).abs() <= tolerance, "seed {seed}: {what} is {value}, published {published}");
}

fn made(agents: Agents) -> Vec<Request> {
    agents.requests().expect("presets are valid").collect()
}

fn inputs(trace: &[Request], turn: u32) -> Vec<f64> {
    let of_turn = |request: &&Request| request.origin.is_some_and(|origin| origin.turn == turn);
    trace.iter().filter(of_turn).map(|request| f64::from(request.input_tokens)).collect()
}

/// Hits without any limit, over all input blocks.
fn possible_hits(agents: Agents) -> f64 {
    let (mut seen, mut hits, mut all) = (HashSet::<BlockHash>::new(), 0, 0);
    for request in agents.requests().expect("presets are valid") {
        hits += request.blocks.iter().take_while(|block| seen.contains(*block)).count();
        all += request.blocks.len();
        seen.extend(&request.blocks);
    }
    hits as f64 / all as f64
}

fn turns(trace: &[Request]) -> Vec<f64> {
    let mut turns: HashMap<SessionId, u32> = HashMap::new();
    for origin in trace.iter().filter_map(|request| request.origin) {
        turns.insert(origin.session, origin.turn + 1);
    }
    turns.into_values().map(f64::from).collect()
}

/// Pauses in seconds, with the tool that each was spent in.
fn pauses(trace: &[Request]) -> Vec<(ToolId, f64)> {
    let (mut called, mut pauses) = (HashMap::new(), Vec::new());
    for origin in trace.iter().filter_map(|request| request.origin) {
        if let Some(tool) = called.remove(&origin.session) {
            pauses.push((tool, origin.pause.0 as f64 / 1000.0));
        }
        if let Some(tool) = origin.calls {
            called.insert(origin.session, tool);
        }
    }
    pauses
}

/// New tokens of a turn: by how much a context grew, where it was not compacted.
fn growth(trace: &[Request]) -> Vec<f64> {
    let (mut before, mut growth) = (HashMap::new(), Vec::new());
    for request in trace {
        let session = request.origin.map(|origin| (origin.session, origin.turn));
        let Some((session, turn)) = session else { continue };
        let now = f64::from(request.input_tokens);
        if let Some((last, tokens)) = before.insert(session, (turn, now))
            && last != turn
            && tokens < now
        {
            growth.push(now - tokens);
        }
    }
    growth
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn codex_sessions_are_as_long_as_published() {
    for seed in SEEDS {
        let trace = made(Agents { seed, ..Agents::codex() });
        let sessions = turns(&trace);
        assert_eq!(sessions.len(), 610);
        near("median turns", seed, quantile(&mut turns(&trace), 0.5), 33.0, 0.07);
        near("first input", seed, mean(&inputs(&trace, 0)), 12_000.0, 0.05);
        near("input of turn 30", seed, mean(&inputs(&trace, 29)), 80_000.0, 0.05);
        near("new tokens a turn", seed, mean(&growth(&trace)), 2242.0, 0.03);
        let longest = trace.iter().map(|request| request.input_tokens).max().unwrap_or(0);
        println!("seed {seed}: longest input {longest}, published over 180,000");
        assert!((180_001..=200_000).contains(&longest), "seed {seed}: longest input {longest}, published over 180,000");
        let (input, output): (Vec<f64>, Vec<f64>) =
            trace.iter().map(|request| (f64::from(request.input_tokens), f64::from(request.output_tokens))).unzip();
        near("input to output", seed, mean(&input) / mean(&output), 131.0, 0.05);
    }
}

#[test]
fn codex_hits_are_as_many_as_published() {
    for (seed, block_tokens, tolerance) in [(1, 64, 0.005), (1, 512, 0.015), (2, 512, 0.015), (3, 512, 0.015)] {
        let hits = possible_hits(Agents { seed, block_tokens, ..Agents::codex() });
        near(&format!("possible hits with {block_tokens}-token blocks"), seed, hits, 0.942, tolerance);
    }
}

#[test]
fn codex_pauses_are_as_long_as_published_and_spread_within_each_tool() {
    for seed in SEEDS {
        let pauses = pauses(&made(Agents { seed, ..Agents::codex() }));
        let mut all: Vec<f64> = pauses.iter().map(|&(_, seconds)| seconds).collect();
        near("median pause", seed, quantile(&mut all, 0.5), 5.2, 0.05);
        near("p99 pause", seed, quantile(&mut all, 0.99), 81.4, 0.10);
        for tool in 0..4 {
            let mut own: Vec<f64> =
                pauses.iter().filter(|pause| pause.0 == ToolId(tool)).map(|pause| pause.1).collect();
            let spread = quantile(&mut own, 0.9) / quantile(&mut own, 0.5);
            println!("seed {seed}: tool {tool}: p90 is {spread:.2} times the median of {} pauses", own.len());
            assert!(spread >= 3.0);
        }
    }
}

#[test]
fn the_scaling_workload_is_the_published_one() {
    let seed = 1;
    println!("seed {seed}");
    let trace = made(Agents { seed, sessions: Some(75), ..Agents::scaling(75) });
    assert_eq!(trace.len(), 75 * 30);
    for request in &trace {
        let turn = request.origin.map_or(0, |origin| origin.turn);
        assert_eq!((request.input_tokens, request.output_tokens), (30_000 + turn * 2948, 900));
        assert_eq!(request.blocks[..39], trace[0].blocks[..39], "20,000 tokens are 39 blocks that all share");
    }
}
