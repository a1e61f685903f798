//! A node keeps the highest version of a block, and knows who else may have an older one.

mod common;

use common::{content, id, start};
use tidepool_types::Version;
use tidepool_wire::message::{
    Offer, Pin, Pull, PullOutcome, Reason, Reply, Request, Reserve, ReserveAs, ReserveItem, ReserveOutcome,
    SealOutcome, SupersedeOutcome, Superseded, Terms,
};

fn reserve_as(client: &mut common::Client, key: &[u8], len: u64, terms: Terms) -> Result<ReserveOutcome, Reason> {
    let items = vec![ReserveItem { key: key.to_vec(), len }];
    let reserve = Reserve { wait_millis: 50, mapped: false, items, ..Reserve::default() };
    match client.call(&Request::ReserveAs(ReserveAs { terms, reserve })) {
        Ok(Reply::Reserved(outcomes)) => Ok(outcomes[0]),
        Err(tidepool_transfer::conn::ConnError::Refused(refusal)) => Err(refusal.reason),
        other => panic!("{other:?}"),
    }
}

fn put_version(client: &mut common::Client, key: &[u8], bytes: &[u8], version: u64) -> SealOutcome {
    let terms = Terms { version: Some(Version(version)), ..Terms::default() };
    let taken = reserve_as(client, key, bytes.len() as u64, terms);
    let Ok(ReserveOutcome::Taken { slot, offset }) = taken else { panic!("{taken:?}") };
    let checksums = client.fill(key, slot, offset, bytes);
    client.seal(slot, checksums)
}

fn supersede(client: &mut common::Client, key: &[u8], version: u64) -> Superseded {
    match client.call(&Request::Supersede(vec![(id(key), Version(version))])).unwrap() {
        Reply::Superseded(superseded) => superseded,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_higher_version_is_written_over_a_lower_one_and_not_the_other_way_round() {
    let node = start("versions");
    let mut client = node.tcp(1);
    client.put(b"k", &content(b"k", 100));
    assert!(matches!(put_version(&mut client, b"k", &[5; 200], 5), SealOutcome::Sealed(_)));
    assert!(matches!(put_version(&mut client, b"k", &[4; 300], 4), SealOutcome::Held(_)));
    assert_eq!(node.node.memory().peek(&id(b"k")).unwrap().bytes(), [5; 200]);
    assert_eq!(supersede(&mut client, b"k", 5).items, [SupersedeOutcome::Kept(Version(5))]);
    assert_eq!(supersede(&mut client, b"k", 6).items, [SupersedeOutcome::Removed]);
    assert_eq!(supersede(&mut client, b"k", 6).items, [SupersedeOutcome::Absent]);
}

#[test]
fn a_node_names_those_that_lately_copied_a_block_from_it() {
    let (source, copier) = (start("source"), start("copier"));
    let (mut at_source, mut at_copier) = (source.tcp(1), copier.tcp(1));
    at_source.put(b"k", &content(b"k", 1000));
    at_source.put(b"other", &content(b"other", 1000));
    let pull = Pull {
        wait_millis: 1000,
        source: source.node.data_address().to_string(),
        epoch: source.node.epoch(),
        remove_source: false,
        keys: vec![b"k".to_vec()],
    };
    assert_eq!(at_copier.call(&Request::Pull(pull)).unwrap(), Reply::Pulled(vec![PullOutcome::Copied]));
    assert!(supersede(&mut at_source, b"other", 7).pullers.is_empty());
    let superseded = supersede(&mut at_source, b"k", 7);
    assert_eq!(superseded.items, [SupersedeOutcome::Removed]);
    assert_eq!(superseded.pullers, ["copier"], "also once the block is gone here");
    assert_eq!(supersede(&mut at_copier, b"k", 7).items, [SupersedeOutcome::Removed]);
}

#[test]
fn terms_that_cannot_be_are_refused() {
    let node = start("terms");
    let mut client = node.tcp(1);
    let groups = Terms { groups: vec![None, Some(id(b"g"))], ..Terms::default() };
    assert_eq!(reserve_as(&mut client, b"k", 10, groups), Err(Reason::Invalid));
    let pinned = Terms { pin: Pin::Hard, ..Terms::default() };
    assert_eq!(
        reserve_as(&mut client, b"k", 9 << 20, pinned),
        Ok(ReserveOutcome::NoSpace),
        "more than half of the pool"
    );
    let offer = Request::Offer(Offer { node: "../no name".to_owned(), ids: vec![id(b"k")], ..Offer::default() });
    assert!(client.call(&offer).is_err());
    assert!(client.call(&Request::LeaseRing).is_err(), "rings are for those who map the memory");
    assert!(client.call(&Request::Stat).is_ok(), "the connection goes on");
}
