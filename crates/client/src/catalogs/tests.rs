use super::*;
use std::net::{SocketAddr, TcpListener};
use tidepool_catalog::generated::Fleet;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema as wire;
use tidepool_testing::eventually;
use tidepool_types::Tier;

fn id(n: u64) -> BlockId {
    BlockId::from_words([n, !n])
}

fn ids(range: std::ops::Range<u64>) -> Vec<BlockId> {
    range.map(id).collect()
}

fn catalog() -> Server {
    Server::start(CatalogConfig { settle: Duration::ZERO, ..CatalogConfig::default() }).unwrap()
}

/// One that says for the length of any test that it is not complete.
fn incomplete_catalog() -> Server {
    Server::start(CatalogConfig { settle: Duration::from_secs(3600), ..CatalogConfig::default() }).unwrap()
}

/// Two nodes that hold the first `blocks` blocks in turn.
fn fill(server: &Server, blocks: u64) -> Fleet {
    Fleet::fill(&server.address().to_string(), 2, blocks, Arc::new(id)).unwrap()
}

fn catalogs(addresses: &[SocketAddr]) -> Catalogs {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    Catalogs::new(&addresses, CatalogsConfig::default()).unwrap()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

#[test]
fn a_look_up_names_every_holder() {
    let server = catalog();
    let _fleet = fill(&server, 100);
    let catalogs = catalogs(&[server.address()]);
    let mut answer = catalogs.lookup(&ids(0..150), soon());
    eventually("the catalog is complete", || {
        answer = catalogs.lookup(&ids(0..150), soon());
        answer.complete
    });
    for n in 0..150 {
        let names: Vec<_> = answer
            .located
            .holders(n)
            .iter()
            .map(|h| answer.located.nodes()[usize::from(h.node)].name.as_str())
            .collect();
        let expected: &[&str] = if n >= 100 {
            &[]
        } else if n % 2 == 0 {
            &["made-up-0"]
        } else {
            &["made-up-1"]
        };
        assert_eq!(names, expected, "block {n}");
    }
    let exists = catalogs.exists(&ids(50..150), false, soon());
    assert!(exists.found.iter().enumerate().all(|(n, found)| *found == (n < 50)));
    assert_eq!(exists.found.len(), 100);
}

#[test]
fn a_prefix_match_gives_the_run_of_each_chain_and_the_shortest() {
    let server = catalog();
    let _fleet = fill(&server, 2000);
    let catalogs = catalogs(&[server.address()]);
    let (whole, broken, absent) = (ids(0..1000), ids(1500..2500), ids(5000..5010));
    let prefixes = catalogs.match_prefix(&[&whole, &broken, &[], &absent], soon());
    let runs: Vec<_> = prefixes.runs.iter().map(Located::len).collect();
    assert_eq!(runs, [1000, 500, 0, 0]);
    assert_eq!(prefixes.shortest(), 0);
    let second = &prefixes.runs[1];
    assert_eq!(second.nodes()[usize::from(second.holders(499)[0].node)].name.as_str(), "made-up-1");
    assert_eq!(catalogs.match_prefix(&[&whole, &broken], soon()).shortest(), 500);
}

#[test]
fn members_and_numbers_are_listed() {
    let server = catalog();
    let _fleet = fill(&server, 10);
    let catalogs = catalogs(&[server.address()]);
    let members = catalogs.members(soon()).members;
    let names: Vec<_> = members.iter().map(|member| member.node.name.as_str()).collect();
    assert_eq!(names, ["made-up-0", "made-up-1"]);
    assert!(members.iter().all(|member| member.node.state == NodeState::Alive));
    let stat = catalogs.stat(soon());
    let numbers = &stat[0].answer.as_ref().expect("it answers").numbers;
    assert!(numbers.contains(&("tidepool_catalog_blocks".to_owned(), 10)));
}

/// Follows until the map is current and has as many blocks.
fn follow_until(subscription: &mut Subscription<'_>, blocks: usize) {
    eventually(&format!("{blocks} blocks are known"), || {
        subscription.follow(Duration::from_millis(100));
        subscription.map().is_current() && blocks_of(subscription.map()) == blocks
    });
}

fn blocks_of(map: &PoolMap) -> usize {
    map.nodes().filter_map(|node| map.holdings(&node.name)).map(std::collections::HashMap::len).sum()
}

#[test]
fn a_subscriber_follows_a_catalog_and_another_one_when_that_is_lost() {
    let (first, second) = (catalog(), catalog());
    let _fleets = (fill(&first, 100), fill(&second, 50));
    let catalogs = catalogs(&[first.address(), second.address()]);
    let mut subscription = catalogs.subscribe().unwrap();
    follow_until(&mut subscription, 100);
    for n in 0..120 {
        let holders: Vec<_> =
            subscription.map().holders(id(n)).map(|(node, tier)| (node.name.as_str(), tier)).collect();
        let expected = if n % 2 == 0 { ("made-up-0", Tier::Dram) } else { ("made-up-1", Tier::Dram) };
        assert_eq!(holders, if n < 100 { vec![expected] } else { vec![] }, "block {n}");
    }
    let lost = first.address().to_string();
    drop(first);
    eventually(
        "it is noticed",
        || matches!(subscription.follow(Duration::from_millis(100)), Followed::Lost { catalog, .. } if catalog == lost),
    );
    assert!(!subscription.map().is_current());
    assert_eq!(blocks_of(subscription.map()), 100, "what it knew is a hint");
    follow_until(&mut subscription, 50);
}

#[test]
fn without_any_catalog_there_is_nothing_to_follow() {
    assert!(Catalogs::new(&[], CatalogsConfig::default()).unwrap().subscribe().is_none());
    let nobody = catalogs(&["127.0.0.1:1".parse().unwrap()]);
    let mut subscription = nobody.subscribe().unwrap();
    assert!((0..3).all(|_| subscription.follow(Duration::from_millis(10)) != Followed::Event));
    assert_eq!(nobody.wait(&ids(0..3), Deadline::after(Duration::from_millis(10))), None);
}

#[test]
fn a_second_catalog_is_asked_when_the_first_is_not_complete_and_any_yes_wins() {
    let (first, second) = (incomplete_catalog(), catalog());
    let _fleets = (fill(&first, 100), fill(&second, 50));
    let catalogs = catalogs(&[first.address(), second.address()]);
    let mut answer = catalogs.exists(&ids(0..200), false, soon());
    let both: Vec<_> = (0..200).map(|n| n < 100).collect();
    assert_eq!(answer.found, both, "what either knows is found");
    eventually("the complete one is preferred", || {
        answer = catalogs.exists(&ids(0..200), false, soon());
        answer.complete && answer.found.iter().filter(|found| **found).count() == 50
    });
    drop(second);
    let located = catalogs.lookup(&ids(0..200), soon());
    assert!(!located.complete);
    assert_eq!((0..200).filter(|n| located.located.is_found(*n)).count(), 100);
}

#[test]
fn a_catalog_that_does_not_answer_costs_one_time_out() {
    // Accepts connections, as the kernel does for a stopped process, and never says anything.
    let stopped = TcpListener::bind("127.0.0.1:0").unwrap();
    let good = catalog();
    let _fleet = fill(&good, 10);
    let catalogs = catalogs(&[stopped.local_addr().unwrap(), good.address()]);
    for _ in 0..100 {
        assert!(catalogs.exists(&ids(0..10), false, soon()).found.iter().all(|found| *found));
    }
    assert_eq!(catalogs.stat(Deadline::after(Duration::from_millis(1)))[0].failures, 1);
}

#[test]
fn without_any_catalog_everything_is_unknown() {
    let nobody = catalogs(&["127.0.0.1:1".parse().unwrap()]);
    let none = Catalogs::new(&[], CatalogsConfig::default()).unwrap();
    for catalogs in [nobody, none] {
        let lookup = catalogs.lookup(&ids(0..10), soon());
        assert!(!lookup.complete && (0..10).all(|n| !lookup.located.is_found(n)));
        let exists = catalogs.exists(&ids(0..10), false, soon());
        assert!(!exists.complete && exists.found == [false; 10]);
        let prefixes = catalogs.match_prefix(&[&ids(0..10)], soon());
        assert!(!prefixes.complete && prefixes.shortest() == 0 && prefixes.runs.len() == 1);
        let members = catalogs.members(soon());
        assert!(!members.complete && members.members.is_empty());
    }
}

#[test]
fn a_catalog_that_comes_back_is_asked_again() {
    let server = catalog();
    let address = server.address();
    let catalogs = catalogs(&[address]);
    assert!(catalogs.exists(&ids(0..1), false, soon()).complete);
    server.shutdown();
    assert!(!catalogs.exists(&ids(0..1), false, soon()).complete);
    let config = CatalogConfig { listen: address, settle: Duration::ZERO, ..CatalogConfig::default() };
    let _server = Server::start(config).unwrap();
    eventually("it is asked again", || catalogs.exists(&ids(0..1), false, soon()).complete);
}

#[test]
fn more_ids_than_fit_into_one_message_are_asked_in_parts() {
    let server = catalog();
    let _fleet = fill(&server, 10);
    // A quarter of a million ids may take a busy host longer than a catalog is usually waited for.
    let patient = CatalogsConfig { attempt: Duration::from_secs(60), ..CatalogsConfig::default() };
    let catalogs = Catalogs::new(&[server.address().to_string()], patient).unwrap();
    let many = wire::MAX_IDS as u64 + 5;
    let mut wanted = ids(1_000_000..1_000_000 + many);
    wanted[wire::MAX_IDS + 1] = id(3);
    let lookup = catalogs.lookup(&wanted, soon());
    assert_eq!(lookup.located.len(), wanted.len());
    assert_eq!((0..wanted.len()).filter(|n| lookup.located.is_found(*n)).collect::<Vec<_>>(), [wire::MAX_IDS + 1]);
    assert_eq!(catalogs.exists(&wanted, false, soon()).found.iter().filter(|found| **found).count(), 1);
    let cut = catalogs.match_prefix(&[&wanted], soon());
    assert!(!cut.complete, "not all was looked at");
}

#[test]
fn a_bad_address_is_named() {
    for bad in ["", "host", "host:", "host:port", "a b:1", ":7"] {
        let error = Catalogs::new(&[bad.to_owned()], CatalogsConfig::default()).err();
        assert!(error.is_some_and(|error| error.to_string().contains(&format!("{bad:?}"))), "{bad:?}");
    }
}

#[test]
fn answers_that_contradict_themselves_are_refused() {
    let node = || wire::Node { name: "a".to_owned(), state: wire::NodeState::Alive.into(), ..wire::Node::default() };
    assert!(Located::from_wire(1, &[1], &[0, 0, 0, 0], vec![node()]).is_some());
    assert!(Located::from_wire(2, &[1], &[0, 0, 0, 0], vec![node()]).is_none(), "too few counts");
    assert!(Located::from_wire(1, &[2], &[0, 0, 0, 0], vec![node()]).is_none(), "too few holders");
    assert!(Located::from_wire(1, &[1], &[0, 0, 0], vec![node()]).is_none(), "half a holder");
    assert!(Located::from_wire(1, &[1], &[1, 0, 0, 0], vec![node()]).is_none(), "a node that is not listed");
    assert!(Located::from_wire(1, &[1], &[0, 0, 9, 0], vec![node()]).is_none(), "a tier that is none");
    assert!(Located::from_wire(1, &[1], &[0, 0, 0, 0], vec![wire::Node::default()]).is_none(), "a node without a name");
}

#[test]
fn merged_answers_name_each_holder_once() {
    let node = |name: &str| {
        let (name, state) = (name.to_owned(), wire::NodeState::Alive.into());
        wire::Node { name, state, ..wire::Node::default() }
    };
    let first = Located::from_wire(2, &[1, 0], &[0, 0, 0, 0], vec![node("a")]).unwrap();
    let second =
        Located::from_wire(2, &[2, 1], &[0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0], vec![node("b"), node("a")]).unwrap();
    let merged = first.merged(&second);
    let names: Vec<_> = merged.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(merged.holders(0), [Holder { node: 0, tier: Tier::Dram }, Holder { node: 1, tier: Tier::Disk }]);
    assert_eq!(merged.holders(1), [Holder { node: 1, tier: Tier::Dram }]);
}
