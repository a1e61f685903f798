//! One message of every kind, with every case of every enum in it, and those that have a tail once more with all its fields. The
//! fixtures in `tests/golden/v2` hold their bytes.

use tidepool_types::{
    BlockId, ClientId, CopyName, Epoch, Generation, Millis, Origin, SessionId, Tier, ToolId, Version,
};
use tidepool_wire::checksum::Sums;
use tidepool_wire::frame::{HEADER_LEN, Header, encode_reply, encode_request};
use tidepool_wire::message::*;

/// The request number of every sample frame.
pub(crate) const NUMBER: u64 = 0x1122_3344_5566_7788;

/// Payload bytes that belong to a request.
fn payload_len(request: &Request) -> u64 {
    if matches!(request, Request::Write(_) | Request::Fill(_) | Request::WriteRange(_)) { 5 } else { 0 }
}

fn id(n: u8) -> BlockId {
    BlockId::from_bytes([n; 16])
}

fn copy(n: u64) -> CopyName {
    CopyName { epoch: Epoch(0xe0 + n), generation: Generation(0x60 + n) }
}

fn slot(n: u32) -> SlotName {
    SlotName { slot: n, generation: Generation(0x60 + u64::from(n)) }
}

/// A frame's header, parsed, and its body.
pub(crate) fn split(frame: &[u8]) -> (Header, &[u8]) {
    let (header, body) = frame.split_first_chunk::<HEADER_LEN>().expect("a whole header");
    (Header::parse(header).expect("a good header"), body)
}

/// The frame of a request.
pub(crate) fn request_frame(request: &Request) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_request(NUMBER, request, payload_len(request), &mut frame).expect("a sample encodes");
    frame
}

/// The frame of a reply.
pub(crate) fn reply_frame(reply: &Reply) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_reply(NUMBER, reply, &mut frame).expect("a sample encodes");
    frame
}

/// Every request with the name of its fixture.
pub(crate) fn requests() -> Vec<(&'static str, Request)> {
    let get_items = vec![
        GetItem { id: id(1), copy: None, offset: 0, len: 1 << 30 },
        GetItem { id: id(2), copy: Some(copy(2)), offset: 131_072, len: 3 },
    ];
    let reserve_items =
        vec![ReserveItem { key: b"a".to_vec(), len: 1 }, ReserveItem { key: vec![0, 0xff, 0x80], len: 1 << 30 }];
    let seal_items = vec![
        SealItem { slot: slot(1), checksums: Sums::from_slice(&[0xdead_beef, 2]) },
        SealItem { slot: slot(2), checksums: Sums::from_slice(&[3]) },
    ];
    let pull = Pull {
        wait_millis: 250,
        source: "127.0.0.1:7400".into(),
        epoch: Epoch(0xe1),
        remove_source: true,
        keys: vec![b"a".to_vec(), b"bc".to_vec()],
    };
    let pull_ids = PullIds {
        wait_millis: 250,
        source: "127.0.0.1:7400".into(),
        epoch: Epoch(0xe1),
        remove_source: false,
        ids: vec![id(15), id(16)],
    };
    let range_items = vec![
        RangeItem { name: range(1), offset: 0, len: 1 << 30 },
        RangeItem { name: range(2), offset: 1 << 40, len: 3 },
    ];
    let write_range = WriteRange { name: range(1), offset: 4096, checksums: Sums::from_slice(&[0xdead_beef]) };
    let seal = Seal { wait_millis: 100, items: seal_items };
    let fill = Seal { wait_millis: 200, ..seal.clone() };
    let plain = vec![
        ("hello", Request::Hello(Hello { client: ClientId(0xc1), wants_memory: true })),
        (
            "reserve",
            Request::Reserve(Reserve { wait_millis: 1000, mapped: true, items: reserve_items, ..Reserve::default() }),
        ),
        ("write", Request::Write(Write { slot: slot(7), offset: 4096 })),
        ("seal", Request::Seal(seal)),
        ("abort", Request::Abort(vec![slot(1), slot(2)])),
        ("get", Request::Get(Get { wait_millis: 5000, items: get_items, ..Get::default() })),
        ("confirm", Request::Confirm(vec![id(1), id(2)].into())),
        ("view", Request::View(vec![id(3)].into())),
        ("unview", Request::Unview(vec![slot(3)])),
        ("touch", Request::Touch(touch())),
        ("remove", Request::Remove(vec![id(4)])),
        ("remove_matching", Request::RemoveMatching(Pattern::Regex("^a.*é$".into()))),
        ("list", Request::List(List { pattern: Pattern::All, cursor: 9, limit: 1000 })),
        ("pull", Request::Pull(pull)),
        ("report_corrupt", Request::ReportCorrupt(vec![(id(5), copy(5))])),
        ("stat", Request::Stat),
        ("describe", Request::Describe(id(6))),
        ("lease", Request::Lease(10_000)),
        ("lease_ring", Request::LeaseRing),
        ("judge", Request::Judge(Judge { remove: true, writer: Some(ClientId(0xc1)), ids: vec![id(7), id(8)] })),
        ("reserve_as", Request::ReserveAs(reserve_as())),
        ("supersede", Request::Supersede(vec![(id(9), Version(0x5000)), (id(10), Version(0x6001))])),
        ("offer", Request::Offer(Offer { node: "host-2".into(), ids: vec![id(11)], ..Offer::default() })),
        ("catalogs", Request::Catalogs),
        ("fill", Request::Fill(fill)),
        ("drain", Request::Drain(15_000)),
        ("read_range", Request::ReadRange(ReadRange { wait_millis: 300, items: range_items })),
        ("write_range", Request::WriteRange(write_range)),
        ("cancel", Request::Cancel(0x1122_3344_5566_7780)),
        ("pull_ids", Request::PullIds(pull_ids)),
    ];
    [plain, tailed_requests()].concat()
}

/// Requests with their tail fields.
fn tailed_requests() -> Vec<(&'static str, Request)> {
    let bare = Run { items: 1, depth: 7, origin: None };
    let asked = |ids: Vec<BlockId>| Ids { runs: vec![Run { items: ids.len() as u32, ..bare }], ids };
    let get_items = [3, 4, 5].map(|n| GetItem { id: id(n), copy: None, offset: 0, len: 1 }).to_vec();
    let get = Get { wait_millis: 5000, items: get_items, runs: vec![Run { items: 2, ..run() }, bare] };
    let items = vec![ReserveItem { key: b"a".to_vec(), len: 1 }];
    let reserve = Reserve { wait_millis: 1000, mapped: true, items, runs: vec![bare] };
    let reserve_as = ReserveAs { reserve: reserve.clone(), terms: Terms::default() };
    let touch = Touch { ids: vec![id(13), id(14)], runs: vec![run(), Run { items: 2, ..bare }], ..touch() };
    let offer = Offer { node: "host-2".into(), ids: vec![id(11)], keys_wanted: true };
    vec![
        ("reserve_runs", Request::Reserve(reserve)),
        ("get_runs", Request::Get(get)),
        ("confirm_runs", Request::Confirm(asked(vec![id(1), id(2)]))),
        ("view_runs", Request::View(asked(vec![id(3)]))),
        ("touch_runs_ids", Request::Touch(touch)),
        ("reserve_as_runs", Request::ReserveAs(reserve_as)),
        ("offer_keys_wanted", Request::Offer(offer)),
    ]
}

/// Replies with their tail fields.
fn tailed_replies() -> Vec<(&'static str, Reply)> {
    let welcome =
        Welcome { node: "host-1".into(), epoch: Epoch(0xe1), memory: true, writable: false, build: "0.2.0".into() };
    let copies = vec![Some((copy(1), 77)), None, Some((copy(2), 1))];
    vec![
        ("welcome_build", Reply::Welcome(welcome)),
        ("found_keys", Reply::Found(Found { copies, keys: vec![b"a".to_vec(), b"bc".to_vec()] })),
    ]
}

fn run() -> Run {
    let origin = Origin {
        session: SessionId(0x5e55),
        parent: Some(SessionId(0x5e54)),
        turn: 3,
        pause: Millis(1500),
        calls: Some(ToolId(9)),
        last: true,
    };
    Run { items: 1, depth: 12, origin: Some(origin) }
}

fn touch() -> Touch {
    Touch { slots: vec![slot(4)], hits: 5, foreign_hits: 2, bytes: 4096, lost_races: 1, ..Touch::default() }
}

fn range(n: u64) -> RangeName {
    RangeName { range: 0x4a00 + n, key: 0x5b00 + n }
}

/// Every reply with the name of its fixture.
pub(crate) fn replies() -> Vec<(&'static str, Reply)> {
    let reserved = vec![
        ReserveOutcome::Taken { slot: slot(1), offset: 0x1000 },
        ReserveOutcome::Held(copy(1)),
        ReserveOutcome::NoSpace,
        ReserveOutcome::TooLarge,
        ReserveOutcome::UseSocket,
    ];
    let views =
        vec![ViewOutcome::Pinned { slot: slot(1), offset: 0x2000, len: 77 }, ViewOutcome::Miss, ViewOutcome::OverLimit];
    let pulled = vec![
        PullOutcome::Copied,
        PullOutcome::Held,
        PullOutcome::Missing,
        PullOutcome::NoSpace,
        PullOutcome::Unavailable,
    ];
    let welcome =
        Welcome { node: "host-1".into(), epoch: Epoch(0xe1), memory: true, writable: false, build: String::new() };
    let entry = KeyEntry { key: b"a".to_vec(), len: 77, copy: copy(1), writer: ClientId(0xc1), views: 2 };
    let refusal = Refusal { reason: Reason::Version, message: "protocol version 2".into() };
    let given_up = Refusal { reason: Reason::GivenUp, message: "given up".into() };
    let plain = vec![
        ("refused", Reply::Refused(refusal)),
        ("refused_given_up", Reply::Refused(given_up)),
        ("welcome", Reply::Welcome(welcome)),
        ("reserved", Reply::Reserved(reserved)),
        ("reserved_declined", Reply::Reserved(vec![ReserveOutcome::Declined])),
        ("written", Reply::Written),
        ("sealed", Reply::Sealed(vec![SealOutcome::Sealed(copy(1)), SealOutcome::Unknown, SealOutcome::Corrupt])),
        ("sealed_held", Reply::Sealed(vec![SealOutcome::Held(copy(2))])),
        ("done", Reply::Done),
        ("blocks", Reply::Blocks(blocks())),
        ("found", Reply::Found(vec![Some((copy(1), 77)), None].into())),
        ("views", Reply::Views(views)),
        ("removed", Reply::Removed(vec![true, false])),
        ("count", Reply::Count(12)),
        ("keys", Reply::Keys(Keys { entries: vec![entry.clone()], next: Some(10), tiers: Vec::new() })),
        ("keys_tiers", Reply::Keys(Keys { entries: vec![entry], next: None, tiers: vec![Tier::Disk] })),
        ("pulled", Reply::Pulled(pulled)),
        ("pulled_joined", Reply::Pulled(vec![PullOutcome::Joined])),
        ("stat_reply", Reply::Stat(vec![("blocks".into(), 3), ("bytes".into(), 1 << 40)])),
        ("ring", Reply::Ring),
        ("judged", Reply::Judged(vec![Judgement::Absent, Judgement::Free, Judgement::Leased, Judgement::Foreign])),
        ("superseded", Reply::Superseded(superseded())),
        ("catalogs_reply", Reply::Catalogs(vec!["host-1:7411".into(), "host-2:7411".into()])),
        ("range_bytes", Reply::RangeBytes(range_bytes())),
    ];
    [plain, tailed_replies()].concat()
}

fn reserve_as() -> ReserveAs {
    let items = vec![ReserveItem { key: b"a".to_vec(), len: 1 }, ReserveItem { key: b"b".to_vec(), len: 2 }];
    let terms =
        Terms { version: Some(Version(0x5000)), pin: Pin::Soft { millis: 1000 }, groups: vec![Some(id(12)), None] };
    ReserveAs { terms, reserve: Reserve { wait_millis: 1000, mapped: false, items, ..Reserve::default() } }
}

fn superseded() -> Superseded {
    let items = vec![SupersedeOutcome::Absent, SupersedeOutcome::Removed, SupersedeOutcome::Kept(Version(0x6001))];
    Superseded { items, pullers: vec!["host-2".into()] }
}

fn range_bytes() -> RangeBytes {
    let items = vec![
        RangeOutcome::Hit { len: 131_073, checksums: Sums::from_slice(&[1, 2]) },
        RangeOutcome::Miss,
        RangeOutcome::BadRange { range_len: 1 << 40 },
        RangeOutcome::Hit { len: 3, checksums: Sums::from_slice(&[0xdead_beef]) },
    ];
    RangeBytes { first: 1, items }
}

fn blocks() -> Blocks {
    let hit = |n, block_len, len, checksums| {
        GetOutcome::Hit(Hit { copy: copy(n), writer: ClientId(0xc1), block_len, len, checksums })
    };
    let items = vec![
        hit(1, 300_000, 3, Sums::from_slice(&[0xdead_beef])),
        GetOutcome::Miss,
        GetOutcome::BadRange { block_len: 10 },
        GetOutcome::Damaged,
        hit(2, 131_073, 131_073, Sums::from_slice(&[1, 2])),
    ];
    Blocks { first: 2, items }
}
