use super::*;
use std::time::Duration;

/// How long the nodes wait for acknowledgements.
const WAITS: Duration = Duration::from_millis(100);

fn directory(config: CatalogConfig) -> (Directory, Arc<Index>) {
    let index = Arc::new(Index::default());
    (Directory::new(config, index.clone()), index)
}

fn node(name: &str, epoch: u64) -> wire::NodeInfo {
    wire::NodeInfo { name: name.to_owned(), epoch, ..wire::NodeInfo::default() }
}

fn state_of(directory: &Directory, name: &str) -> Option<NodeState> {
    directory.view().members.iter().find(|member| member.info.name == name).map(|member| member.state)
}

#[test]
fn a_reconnect_is_a_new_number_and_the_old_one_is_invalid_at_once() {
    let (directory, index) = directory(CatalogConfig::default());
    let first = directory.connect(node("a", 1), WAITS).unwrap();
    let second = directory.connect(node("a", 1), WAITS).unwrap();
    assert!(second.lease.number() > first.lease.number());
    assert_ne!(second.lease.slot(), first.lease.slot());
    assert!(!index.live().contains(first.lease.slot()));
    assert!(index.live().contains(second.lease.slot()));
    let (mut ended, number) = (first.ended, first.lease.number());
    assert!(ended.try_recv().is_ok(), "the old stream is told to end");
    // What the old stream's end reports no longer matters.
    directory.disconnect("a", number, Link::Broken);
    assert_eq!(state_of(&directory, "a"), Some(NodeState::Alive));
}

#[test]
fn a_name_belongs_to_the_incarnation_that_is_talking() {
    let (directory, _) = directory(CatalogConfig::default());
    let first = directory.connect(node("a", 1), WAITS).unwrap();
    assert_eq!(directory.connect(node("a", 2), WAITS).err(), Some(Refused::NameInUse(String::new())));
    directory.disconnect("a", first.lease.number(), Link::Broken);
    assert_eq!(state_of(&directory, "a"), Some(NodeState::Suspect));
    assert!(directory.connect(node("a", 2), WAITS).is_ok());
    assert_eq!(state_of(&directory, "a"), Some(NodeState::Alive));
}

#[test]
fn a_goodbye_is_death_at_once() {
    let (directory, index) = directory(CatalogConfig::default());
    let stream = directory.connect(node("a", 1), WAITS).unwrap();
    directory.disconnect("a", stream.lease.number(), Link::Left);
    assert_eq!(state_of(&directory, "a"), Some(NodeState::Dead));
    assert!(!index.live().contains(stream.lease.slot()));
}

#[test]
fn the_dead_make_room_for_new_nodes_and_the_living_do_not() {
    let (directory, _) = directory(CatalogConfig { max_nodes: 1, ..CatalogConfig::default() });
    let stream = directory.connect(node("a", 1), WAITS).unwrap();
    assert_eq!(directory.connect(node("b", 1), WAITS).err(), Some(Refused::TooMany));
    directory.disconnect("a", stream.lease.number(), Link::Left);
    assert!(directory.connect(node("b", 1), WAITS).is_ok());
}

/// Nodes die, are hidden and are forgotten after milliseconds.
fn fleeting() -> CatalogConfig {
    CatalogConfig {
        dead_after: Duration::from_millis(2),
        suspect_after: Duration::from_millis(1),
        hide_after: Duration::from_millis(1),
        forget_after: Duration::from_millis(1),
        ..CatalogConfig::default()
    }
}

/// Lets time pass until the directory no longer holds what `keeps` says.
fn tick_while(directory: &Directory, keeps: impl Fn() -> bool) {
    while keeps() {
        directory.tick();
        std::thread::yield_now();
    }
}

#[test]
fn the_dead_are_forgotten_in_time_and_the_directory_says_since_when_it_knows_all() {
    let (directory, _) = directory(fleeting());
    let stream = directory.connect(node("a", 1), WAITS).unwrap();
    let heard = stream.health.heard();
    assert!(directory.known_for() >= heard, "nobody has been lost yet");
    tick_while(&directory, || state_of(&directory, "a").is_some());
    let now = directory.now();
    assert!(directory.known_for() < now - heard, "what was away at {heard:?} may be missing");
}

#[test]
fn a_node_that_left_is_forgotten_without_a_trace() {
    let (directory, _) = directory(CatalogConfig { forget_after: Duration::from_secs(3600), ..fleeting() });
    let stream = directory.connect(node("a", 1), WAITS).unwrap();
    directory.disconnect("a", stream.lease.number(), Link::Left);
    tick_while(&directory, || state_of(&directory, "a").is_some());
    let (known_for, now) = (directory.known_for(), directory.now());
    assert!(known_for + Duration::from_secs(1) > now, "nothing of it can come back: {known_for:?} of {now:?}");
}

#[test]
fn a_dead_node_is_hidden_long_before_it_is_forgotten() {
    let (directory, _) = directory(CatalogConfig { forget_after: Duration::from_secs(3600), ..fleeting() });
    let _stream = directory.connect(node("a", 1), WAITS).unwrap();
    let is_shown = || directory.view().members.iter().any(|member| directory.shows(member, directory.now()));
    tick_while(&directory, is_shown);
    assert_eq!(state_of(&directory, "a"), Some(NodeState::Dead), "it is remembered");
}

#[test]
fn only_a_dead_node_can_be_forgotten_and_its_incarnation_is_refused_from_then_on() {
    let (directory, _) = directory(CatalogConfig::default());
    assert_eq!(directory.forget("b", 1), Ok(false));
    assert_eq!(directory.connect(node("b", 1), WAITS).err(), Some(Refused::Forgotten), "also one that it did not know");
    let stream = directory.connect(node("a", 1), WAITS).unwrap();
    assert_eq!(directory.forget("a", 1), Err(NodeState::Alive));
    directory.disconnect("a", stream.lease.number(), Link::Broken);
    assert_eq!(directory.forget("a", 1), Err(NodeState::Suspect));
    directory.disconnect("a", stream.lease.number(), Link::Left);
    assert_eq!(directory.forget("a", 1), Ok(true));
    assert_eq!(state_of(&directory, "a"), None);
    assert_eq!(directory.connect(node("a", 1), WAITS).err(), Some(Refused::Forgotten));
    assert_eq!(directory.forgotten().len(), 2);
    assert!(directory.connect(node("a", 2), WAITS).is_ok(), "a restarted node is a new one");
}

#[test]
fn a_look_up_under_way_keeps_slots_from_being_given_away() {
    let (directory, _) = directory(CatalogConfig::default());
    let _first = directory.connect(node("a", 1), WAITS).unwrap();
    let held = directory.view();
    let _second = directory.connect(node("a", 1), WAITS).unwrap();
    assert!(directory.old_view_in_use());
    drop(held);
    assert!(!directory.old_view_in_use());
}

#[test]
fn a_stream_that_was_replaced_gets_no_new_number() {
    let (directory, _) = directory(CatalogConfig::default());
    let first = directory.connect(node("a", 1), WAITS).unwrap();
    let renumbered = directory.renumber("a", &first.lease).unwrap();
    assert!(directory.renumber("a", &first.lease).is_none());
    let _second = directory.connect(node("a", 1), WAITS).unwrap();
    assert!(directory.renumber("a", &renumbered).is_none());
}

/// A node that was stopped while another one took its name came back with what it held once that one was gone, though nobody
/// was told of it meanwhile.
#[test]
fn a_life_that_was_replaced_does_not_come_back() {
    let (directory, _) = directory(CatalogConfig::default());
    let first = directory.connect(node("a", 1), WAITS).unwrap();
    directory.disconnect("a", first.lease.number(), Link::Broken);
    let second = directory.connect(node("a", 2), WAITS).unwrap();
    directory.disconnect("a", second.lease.number(), Link::Broken);
    assert_eq!(directory.connect(node("a", 1), WAITS).err(), Some(Refused::Forgotten));
    assert!(directory.forgotten().is_empty(), "no operator wished it");
    assert!(directory.connect(node("a", 2), WAITS).is_ok());
}
