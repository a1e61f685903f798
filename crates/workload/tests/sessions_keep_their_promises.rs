//! The promises of every generated trace, for any settings.

use std::collections::{HashMap, HashSet};

use tidepool_trace::{Millis, Request, SessionId, Source};
use tidepool_workload::{Agents, Arrivals, Spread, Tool};

const SEED: u64 = 7;

fn fleet() -> Agents {
    println!("seed {SEED}");
    Agents { seed: SEED, sessions: Some(40), ..Agents::fleet() }
}

fn made(agents: Agents) -> Vec<Request> {
    agents.requests().expect("the settings are valid").collect()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    assert_eq!(made(fleet()), made(fleet()));
    assert_ne!(made(fleet()), made(Agents { seed: SEED + 1, ..fleet() }));
}

#[test]
fn requests_come_in_the_order_of_time_and_sessions_end_once() {
    let (mut before, mut ended) = (Millis(0), HashSet::new());
    for request in made(fleet()) {
        let origin = request.origin.expect("generated requests have one");
        assert!(before <= request.at);
        assert!(!ended.contains(&origin.session), "a session goes on after its last request");
        before = request.at;
        if origin.last {
            ended.insert(origin.session);
        }
    }
    assert!(ended.len() > 40, "all sessions end, and some were sub-agents: {}", ended.len());
}

#[test]
fn a_parent_waits_for_its_sub_agents() {
    let mut open: HashMap<SessionId, HashSet<SessionId>> = HashMap::new();
    let mut children = 0;
    for request in made(fleet()) {
        let origin = request.origin.expect("generated requests have one");
        assert!(open.get(&origin.session).is_none_or(HashSet::is_empty), "a request while sub-agents run");
        let Some(parent) = origin.parent else { continue };
        let running = open.entry(parent).or_default();
        children += usize::from(running.insert(origin.session));
        if origin.last {
            running.remove(&origin.session);
        }
    }
    assert!(children > 10, "{children}");
}

#[test]
fn a_turn_keeps_its_prefix_unless_it_was_rewritten_or_compacted() {
    let plain = Agents { rewrite_chance: 0.0, ..fleet() };
    let limit = plain.compaction.limit;
    let (mut contexts, mut compacted, mut again): (HashMap<SessionId, Request>, _, _) = (HashMap::new(), 0, 0);
    for request in made(plain) {
        let origin = request.origin.expect("generated requests have one");
        assert!(request.input_tokens <= limit);
        assert_eq!(request.blocks.len() as u32, request.input_tokens.div_ceil(512));
        let Some(last) = contexts.insert(origin.session, request.clone()) else { continue };
        if last.origin.map(|origin| origin.turn) == Some(origin.turn) {
            assert_eq!(
                (last.blocks, last.input_tokens),
                (request.blocks, request.input_tokens),
                "a retry is the same request"
            );
            again += 1;
        } else if last.input_tokens < request.input_tokens {
            let full = last.input_tokens as usize / 512;
            assert_eq!(last.blocks[..full], request.blocks[..full]);
        } else {
            assert_eq!(last.blocks[..17], request.blocks[..17], "compaction keeps the system prompt");
            compacted += 1;
        }
    }
    assert!(compacted > 5 && again > 5, "{compacted} compactions, {again} retries");
}

#[test]
fn what_sessions_say_does_not_depend_on_how_fast_answers_are() {
    let said = |slowness: u64| {
        let mut sessions = fleet().sessions().expect("the settings are valid");
        let mut said: HashMap<SessionId, Vec<_>> = HashMap::new();
        while let Some(request) = sessions.next() {
            let origin = request.origin.expect("generated requests have one");
            sessions.answered(origin.session, Millis(request.at.0 + slowness));
            said.entry(origin.session).or_default().push((request.blocks, request.output_tokens));
        }
        assert_eq!(sessions.live(), 0);
        said
    };
    assert!(said(10) == said(60_000));
}

#[test]
fn an_unanswered_session_asks_nothing_more() {
    let mut sessions = Agents { sessions: Some(3), ..fleet() }.sessions().expect("the settings are valid");
    while let Some(request) = sessions.next() {
        assert_eq!(request.origin.map(|origin| origin.turn), Some(0));
    }
    assert_eq!((sessions.live(), sessions.due()), (3, None));
}

#[test]
fn so_many_sessions_are_alive_as_were_asked_for() {
    println!("seed {SEED}");
    let agents = Agents { seed: SEED, sessions: None, arrivals: Arrivals::Live(200.0), ..Agents::codex() };
    let (mut sessions, warm) = (agents.sessions().expect("the settings are valid"), Millis(2_000_000));
    let (mut counted, mut live) = (0, 0);
    while let Some(request) = sessions.next().filter(|request| request.at < Millis(2 * warm.0)) {
        let ended = request.at.0 + 500 + u64::from(request.output_tokens) * 10;
        sessions.answered(request.origin.expect("generated requests have one").session, Millis(ended));
        if request.at > warm {
            counted += 1;
            live += sessions.live();
        }
    }
    let live = live / counted;
    assert!((160..240).contains(&live), "{live}");
}

#[test]
fn a_fixed_number_of_sessions_is_alive_until_the_last_ones_have_begun() {
    println!("seed {SEED}");
    let agents = Agents { seed: SEED, sessions: Some(60), arrivals: Arrivals::Fixed(12), ..Agents::codex() };
    let mut sessions = agents.sessions().expect("the settings are valid");
    let (mut begun, mut reached) = (HashSet::new(), false);
    while let Some(request) = sessions.next() {
        let session = request.origin.expect("generated requests have one").session;
        begun.insert(session);
        sessions.answered(session, Millis(request.at.0 + 2000));
        reached |= sessions.live() == 12;
        assert!(sessions.live() <= 12, "{}", sessions.live());
        assert!(!reached || begun.len() >= 48 || sessions.live() == 12, "{} of {}", sessions.live(), begun.len());
    }
    assert!(reached);
    assert_eq!((begun.len(), sessions.live()), (60, 0));
}

#[test]
fn a_setting_out_of_its_range_is_named_with_the_range() {
    let error = |agents: Agents| agents.requests().expect_err("it is out of range").to_string();
    let slow = |pause| Tool { name: "read", weight: 1.0, pause, result: Spread::fixed(10.0) };
    let cases = [
        (Agents { block_tokens: 0, ..fleet() }, "block_tokens is 0: it must be from 1 to 65536"),
        (Agents { rewrite_chance: 1.5, ..fleet() }, "rewrite_chance is 1.5: it must be from 0 to 1"),
        (
            Agents { arrivals: Arrivals::Live(f64::NAN), ..fleet() },
            "arrivals.live is NaN: it must be from 0.1 to 10000000",
        ),
        (Agents { tools: vec![], ..fleet() }, "tools.len is 0: it must be from 1 to 1000"),
        (
            Agents { tools: vec![slow(Spread::fixed(-1.0))], ..fleet() },
            "tools.read.pause.median is -1: it must be from 0 to 604800",
        ),
        (Agents { turns: Spread::around(5.0, 1.0, 2.0), ..fleet() }, "turns.most is 2: it must be from 5 to 604800"),
        (Agents { task: Spread::fixed(59_000.0), ..fleet() }, "task.most is 59000: it must be from 1 to 47999"),
    ];
    for (agents, message) in cases {
        assert_eq!(error(agents), message);
    }
}
