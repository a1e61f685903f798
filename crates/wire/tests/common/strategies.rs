//! Random messages of every kind, all of them allowed.

use proptest::{collection::vec, option, prelude::*};
use tidepool_types::{
    BlockId, CHUNK_LEN, ClientId, CopyName, Epoch, Generation, MAX_BLOCK_LEN, MAX_KEY_LEN, Millis, Origin, SessionId,
    Tier, ToolId, Version, chunk_count,
};
use tidepool_wire::message::*;

const ITEMS: std::ops::Range<usize> = 0..20;

fn id() -> impl Strategy<Value = BlockId> {
    any::<[u8; 16]>().prop_map(BlockId::from_bytes)
}

fn copy() -> impl Strategy<Value = CopyName> {
    let name = |(epoch, generation)| CopyName { epoch: Epoch(epoch), generation: Generation(generation) };
    (any::<u64>(), 1..=u64::MAX).prop_map(name)
}

fn slot() -> impl Strategy<Value = SlotName> {
    any::<(u32, u64)>().prop_map(|(slot, generation)| SlotName { slot, generation: Generation(generation) })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 1..40), 1 => vec(any::<u8>(), MAX_KEY_LEN)]
}

fn block_len() -> impl Strategy<Value = u64> {
    prop_oneof![1..=1000u64, 1..=MAX_BLOCK_LEN, Just(MAX_BLOCK_LEN)]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![Just(Pattern::All), ".{0,30}".prop_map(Pattern::Regex)]
}

fn origin() -> impl Strategy<Value = Origin> {
    let values = (any::<u64>(), option::of(any::<u64>()), any::<u32>(), any::<u64>(), option::of(any::<u32>()));
    (values, any::<bool>()).prop_map(|((session, parent, turn, pause, tool), last)| Origin {
        session: SessionId(session),
        parent: parent.map(SessionId),
        turn,
        pause: Millis(pause),
        calls: tool.map(ToolId),
        last,
    })
}

/// Items and runs that cover them, or none.
fn with_runs<T: std::fmt::Debug + Clone>(items: impl Strategy<Value = T>) -> impl Strategy<Value = (Vec<T>, Vec<Run>)> {
    let run = (1..5u32, any::<u32>(), option::of(origin()));
    let run = run.prop_map(|(items, depth, origin)| Run { items, depth, origin });
    (vec(items, ITEMS), vec(run, 1..5), any::<bool>()).prop_map(|(mut items, mut runs, has_runs)| {
        let covered: u32 = runs.iter().map(|run| run.items).sum();
        let kept = if items.is_empty() { 0 } else { covered as usize };
        items = items.into_iter().cycle().take(kept).collect();
        if !has_runs || items.is_empty() {
            runs.clear();
        }
        (items, runs)
    })
}

fn reserve() -> impl Strategy<Value = Request> {
    let item = (key(), block_len()).prop_map(|(key, len)| ReserveItem { key, len });
    (any::<u32>(), any::<bool>(), with_runs(item))
        .prop_map(|(wait_millis, mapped, (items, runs))| Request::Reserve(Reserve { wait_millis, mapped, items, runs }))
}

fn ids() -> impl Strategy<Value = Ids> {
    with_runs(id()).prop_map(|(ids, runs)| Ids { ids, runs })
}

fn seal() -> impl Strategy<Value = Seal> {
    let item =
        (slot(), vec(any::<u32>(), 0..9)).prop_map(|(slot, checksums)| SealItem { slot, checksums: checksums.into() });
    (any::<u32>(), vec(item, ITEMS)).prop_map(|(wait_millis, items)| Seal { wait_millis, items })
}

fn get() -> impl Strategy<Value = Request> {
    let item = (id(), option::of(copy()), any::<u64>(), any::<u64>()).prop_map(|(id, copy, offset, len)| GetItem {
        id,
        copy,
        offset,
        len,
    });
    (any::<u32>(), with_runs(item))
        .prop_map(|(wait_millis, (items, runs))| Request::Get(Get { wait_millis, items, runs }))
}

fn touch() -> impl Strategy<Value = Request> {
    let uses = with_runs((slot(), id(), any::<bool>())).prop_map(|(uses, runs)| {
        let by_slot = uses.iter().filter(|(_, _, by_slot)| *by_slot).map(|(slot, _, _)| *slot).collect();
        let by_id = uses.iter().filter(|(_, _, by_slot)| !by_slot).map(|(_, id, _)| *id).collect();
        (by_slot, by_id, runs)
    });
    (uses, any::<[u64; 4]>()).prop_map(|((slots, ids, runs), [hits, foreign_hits, bytes, lost_races])| {
        Request::Touch(Touch { slots, hits, foreign_hits, bytes, lost_races, runs, ids })
    })
}

fn pull() -> impl Strategy<Value = Request> {
    (any::<u32>(), ".{0,20}", any::<u64>(), any::<bool>(), vec(key(), ITEMS)).prop_map(
        |(wait_millis, source, epoch, remove_source, keys)| {
            Request::Pull(Pull { wait_millis, source, epoch: Epoch(epoch), remove_source, keys })
        },
    )
}

/// Any request.
pub(crate) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        any::<(u64, bool)>()
            .prop_map(|(client, wants_memory)| Request::Hello(Hello { client: ClientId(client), wants_memory })),
        reserve(),
        (slot(), 0..MAX_BLOCK_LEN - 10).prop_map(|(slot, offset)| Request::Write(Write { slot, offset })),
        seal().prop_map(Request::Seal),
        vec(slot(), ITEMS).prop_map(Request::Abort),
        get(),
        ids().prop_map(Request::Confirm),
        ids().prop_map(Request::View),
        vec(slot(), ITEMS).prop_map(Request::Unview),
        touch(),
        vec(id(), ITEMS).prop_map(Request::Remove),
        pattern().prop_map(Request::RemoveMatching),
        (pattern(), any::<u64>(), any::<u32>()).prop_map(|(pattern, cursor, limit)| Request::List(List {
            pattern,
            cursor,
            limit
        })),
        pull(),
        vec((id(), copy()), ITEMS).prop_map(Request::ReportCorrupt),
        Just(Request::Stat),
        id().prop_map(Request::Describe),
        any::<u32>().prop_map(Request::Lease),
        Just(Request::LeaseRing),
        (any::<bool>(), option::of(1..=u64::MAX), vec(id(), ITEMS))
            .prop_map(|(remove, writer, ids)| { Request::Judge(Judge { remove, writer: writer.map(ClientId), ids }) }),
        (terms(), reserve()).prop_map(|(terms, reserve)| match reserve {
            Request::Reserve(reserve) => Request::ReserveAs(ReserveAs { terms, reserve }),
            other => other,
        }),
        vec((id(), version()), ITEMS).prop_map(Request::Supersede),
        (".{0,20}", vec(id(), ITEMS), any::<bool>()).prop_map(|(node, ids, keys_wanted)| Request::Offer(Offer {
            node,
            ids,
            keys_wanted
        })),
        Just(Request::Catalogs),
        seal().prop_map(Request::Fill),
        any::<u32>().prop_map(Request::Drain),
        range_request(),
        any::<u64>().prop_map(Request::Cancel),
        (any::<u32>(), ".{0,20}", any::<u64>(), any::<bool>(), vec(id(), ITEMS)).prop_map(
            |(wait_millis, source, epoch, remove_source, ids)| {
                Request::PullIds(PullIds { wait_millis, source, epoch: Epoch(epoch), remove_source, ids })
            }
        ),
    ]
}

fn range_request() -> impl Strategy<Value = Request> {
    let name = || any::<(u64, u64)>().prop_map(|(range, key)| RangeName { range, key });
    let item = (name(), 0..=u64::MAX - MAX_BLOCK_LEN, block_len());
    let item = item.prop_map(|(name, offset, len)| RangeItem { name, offset, len });
    let read = (any::<u32>(), vec(item, ITEMS));
    // The payload of the tests' requests is one chunk.
    let write = (name(), 0..=u64::MAX - MAX_BLOCK_LEN, any::<u32>());
    prop_oneof![
        read.prop_map(|(wait_millis, items)| Request::ReadRange(ReadRange { wait_millis, items })),
        write.prop_map(|(name, offset, sum)| {
            Request::WriteRange(WriteRange { name, offset, checksums: [sum].as_slice().into() })
        }),
    ]
}

fn range_bytes() -> impl Strategy<Value = Reply> {
    let hit = (1..=3 * CHUNK_LEN, any::<u32>()).prop_map(|(len, sum)| RangeOutcome::Hit {
        len,
        checksums: (0..chunk_count(len)).map(|i| sum.wrapping_add(i as u32)).collect(),
    });
    let outcome = prop_oneof![
        2 => hit,
        1 => Just(RangeOutcome::Miss),
        1 => any::<u64>().prop_map(|range_len| RangeOutcome::BadRange { range_len }),
    ];
    (any::<u32>(), vec(outcome, ITEMS)).prop_map(|(first, items)| Reply::RangeBytes(RangeBytes { first, items }))
}

fn found() -> impl Strategy<Value = Found> {
    (vec(option::of((copy(), block_len(), key())), ITEMS), any::<bool>()).prop_map(|(found, has_keys)| Found {
        keys: found.iter().flatten().filter(|_| has_keys).map(|(_, _, key)| key.clone()).collect(),
        copies: found.into_iter().map(|found| found.map(|(copy, len, _)| (copy, len))).collect(),
    })
}

fn reserve_outcome() -> impl Strategy<Value = ReserveOutcome> {
    prop_oneof![
        (slot(), any::<u64>()).prop_map(|(slot, offset)| ReserveOutcome::Taken { slot, offset }),
        copy().prop_map(ReserveOutcome::Held),
        Just(ReserveOutcome::NoSpace),
        Just(ReserveOutcome::TooLarge),
        Just(ReserveOutcome::UseSocket),
        Just(ReserveOutcome::Declined),
    ]
}

fn hit() -> impl Strategy<Value = Hit> {
    let lens = (1..=3 * CHUNK_LEN, 0..=CHUNK_LEN, 0..=1u64);
    (copy(), any::<u64>(), lens, any::<u32>()).prop_map(|(copy, writer, (len, more, extra), sum)| {
        let checksums = (0..chunk_count(len) + extra).map(|i| sum.wrapping_add(i as u32)).collect();
        Hit { copy, writer: ClientId(writer), block_len: len + more, len, checksums }
    })
}

fn blocks() -> impl Strategy<Value = Reply> {
    let outcome = prop_oneof![
        3 => hit().prop_map(GetOutcome::Hit),
        1 => Just(GetOutcome::Miss),
        1 => block_len().prop_map(|block_len| GetOutcome::BadRange { block_len }),
        1 => Just(GetOutcome::Damaged),
    ];
    (any::<u32>(), vec(outcome, ITEMS)).prop_map(|(first, items)| Reply::Blocks(Blocks { first, items }))
}

fn view_outcome() -> impl Strategy<Value = ViewOutcome> {
    prop_oneof![
        (slot(), any::<u64>(), block_len()).prop_map(|(slot, offset, len)| ViewOutcome::Pinned { slot, offset, len }),
        Just(ViewOutcome::Miss),
        Just(ViewOutcome::OverLimit),
    ]
}

fn keys() -> impl Strategy<Value = Reply> {
    let entry = (key(), block_len(), copy(), any::<u64>(), any::<u32>())
        .prop_map(|(key, len, copy, writer, views)| KeyEntry { key, len, copy, writer: ClientId(writer), views });
    (vec(entry, ITEMS), option::of(1..=u64::MAX), any::<bool>()).prop_map(|(entries, next, is_lower)| {
        let tiers = if is_lower { vec![Tier::Disk; entries.len()] } else { Vec::new() };
        Reply::Keys(Keys { entries, next, tiers })
    })
}

fn reason() -> impl Strategy<Value = Reason> {
    use Reason::*;
    prop::sample::select(vec![Malformed, Version, Invalid, Overloaded, Stopping, NotHere, GivenUp])
}

fn pull_outcome() -> impl Strategy<Value = PullOutcome> {
    use PullOutcome::*;
    prop::sample::select(vec![Copied, Held, Missing, NoSpace, Unavailable, Joined])
}

fn judgement() -> impl Strategy<Value = Judgement> {
    prop::sample::select(vec![Judgement::Absent, Judgement::Free, Judgement::Leased, Judgement::Foreign])
}

fn version() -> impl Strategy<Value = Version> {
    (1..=u64::MAX).prop_map(Version)
}

fn terms() -> impl Strategy<Value = Terms> {
    let pin = prop_oneof![Just(Pin::None), Just(Pin::Hard), any::<u32>().prop_map(|millis| Pin::Soft { millis })];
    let named = id().prop_filter("zeros name no block", |id| id.words() != [0, 0]);
    (option::of(version()), pin, vec(option::of(named), ITEMS)).prop_map(|(version, pin, groups)| Terms {
        version,
        pin,
        groups,
    })
}

fn supersede_outcome() -> impl Strategy<Value = SupersedeOutcome> {
    let plain = prop::sample::select(vec![SupersedeOutcome::Absent, SupersedeOutcome::Removed]);
    prop_oneof![plain, version().prop_map(SupersedeOutcome::Kept)]
}

fn seal_outcome() -> impl Strategy<Value = SealOutcome> {
    prop_oneof![
        copy().prop_map(SealOutcome::Sealed),
        Just(SealOutcome::Unknown),
        Just(SealOutcome::Corrupt),
        copy().prop_map(SealOutcome::Held),
    ]
}

/// Any reply.
pub(crate) fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        (reason(), ".{0,40}").prop_map(|(reason, message)| Reply::Refused(Refusal { reason, message })),
        (".{0,20}", any::<u64>(), any::<[bool; 2]>(), ".{0,9}").prop_map(|(node, epoch, [memory, writable], build)| {
            Reply::Welcome(Welcome { node, epoch: Epoch(epoch), memory, writable, build })
        }),
        vec(reserve_outcome(), ITEMS).prop_map(Reply::Reserved),
        Just(Reply::Written),
        vec(seal_outcome(), ITEMS).prop_map(Reply::Sealed),
        Just(Reply::Done),
        blocks(),
        found().prop_map(Reply::Found),
        vec(view_outcome(), ITEMS).prop_map(Reply::Views),
        vec(any::<bool>(), ITEMS).prop_map(Reply::Removed),
        any::<u64>().prop_map(Reply::Count),
        keys(),
        vec(pull_outcome(), ITEMS).prop_map(Reply::Pulled),
        vec((".{0,20}", any::<u64>()), ITEMS).prop_map(Reply::Stat),
        Just(Reply::Ring),
        vec(judgement(), ITEMS).prop_map(Reply::Judged),
        (vec(supersede_outcome(), ITEMS), vec(".{0,20}", ITEMS))
            .prop_map(|(items, pullers)| Reply::Superseded(Superseded { items, pullers })),
        vec(".{0,20}", ITEMS).prop_map(Reply::Catalogs),
        range_bytes(),
    ]
}
