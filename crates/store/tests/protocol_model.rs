//! The shared-memory protocol under a model checker: every interleaving, and every reordering that the language's memory
//! model allows, of an owner that reuses slots and a reader that copies. The block's bytes are two atomics, written and
//! read without ordering, as bytes in shared memory are.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/protocol.rs"]
#[expect(dead_code, reason = "the model uses a part of the protocol")]
mod protocol;

use loom::sync::Arc;
use loom::thread;
use protocol::{Described, Index, LINE_WORDS, State, load_sealed, publish, retire, stamp, unchanged};
use sync::{AtomicU64, Ordering};

/// Tags that no block of the models has.
const FILLER: u64 = 1000;

/// One bucket or more, two slots, and two words of data.
struct Memory {
    index: Vec<AtomicU64>,
    headers: Vec<AtomicU64>,
    data: Vec<AtomicU64>,
}

impl Memory {
    fn new() -> Self {
        Self::with_buckets(1)
    }

    fn with_buckets(buckets: usize) -> Self {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        Self { index: words(buckets * LINE_WORDS), headers: words(2 * LINE_WORDS), data: words(2) }
    }

    /// Two buckets, of which the one where small ids are at home is full of blocks that nobody asks for.
    fn with_full_home() -> Self {
        let memory = Self::with_buckets(2);
        (0..7).for_each(|n| assert!(Index(&memory.index).insert([0, FILLER + n], n as u32)));
        memory
    }

    fn header(&self, slot: u32) -> &[AtomicU64] {
        &self.headers[slot as usize * LINE_WORDS..][..LINE_WORDS]
    }

    /// The owner's put: bytes go into retired space, then the header, then the index.
    fn put(&self, slot: u32, generation: u64, id: u64) {
        self.data.iter().for_each(|word| word.store(id, Ordering::Relaxed));
        let described = Described { id: [id, id], offset: 0, len: 16, key_len: 1, writer: 0 };
        publish(self.header(slot), stamp(generation, State::Sealed), &described);
        assert!(Index(&self.index).insert([id, id], slot));
    }

    /// The owner's eviction: unpublish, raise the generation, and only then may the space be reused.
    fn evict(&self, slot: u32, generation: u64, id: u64) {
        Index(&self.index).remove([id, id], slot);
        retire(self.header(slot), stamp(generation, State::Free));
    }

    /// The reader's get: what it copied, if the protocol lets it believe that.
    fn get(&self, id: u64) -> Option<[u64; 2]> {
        Index(&self.index).find([id, id], |slot| {
            let (stamp, described) = load_sealed(self.header(slot))?;
            let copied = [self.data[0].load(Ordering::Relaxed), self.data[1].load(Ordering::Relaxed)];
            (unchanged(self.header(slot), stamp) && described.id == [id, id]).then_some(copied)
        })
    }
}

/// The space of block 1 is reused by block 2, in the same slot or another one, while a reader reads block 1 or 2.
fn reuse_while_reading(second_slot: u32, wanted: u64) {
    // Without a bound the search takes ten minutes (and passes); two forced switches reach every race of one reader
    // against one reuse, and take seconds.
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(2);
    checker.check(move || {
        let memory = Arc::new(Memory::new());
        memory.put(0, 1, 1);
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.get(wanted))
        };
        memory.evict(0, 2, 1);
        memory.put(second_slot, 3, 2);
        if let Some(copied) = reader.join().unwrap() {
            assert_eq!(copied, [wanted, wanted], "a reader got bytes of another block");
        }
    });
}

#[test]
fn a_reader_never_believes_bytes_of_a_reused_slot() {
    reuse_while_reading(0, 1);
    reuse_while_reading(0, 2);
}

#[test]
fn a_reader_never_believes_bytes_of_reused_space_under_another_slot() {
    reuse_while_reading(1, 1);
    reuse_while_reading(1, 2);
}

#[test]
fn a_block_that_stays_is_always_found() {
    loom::model(|| {
        let memory = Arc::new(Memory::new());
        memory.put(0, 1, 1);
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.get(1))
        };
        assert!(Index(&memory.index).insert([2, 2], 1));
        Index(&memory.index).remove([2, 2], 1);
        assert_eq!(reader.join().unwrap(), Some([1, 1]));
    });
}

/// Another thread gets block 1 while `meanwhile` runs.
fn get_while(memory: Memory, meanwhile: impl FnOnce(&Memory)) -> Option<[u64; 2]> {
    let memory = Arc::new(memory);
    let reader = {
        let memory = Arc::clone(&memory);
        thread::spawn(move || memory.get(1))
    };
    meanwhile(&memory);
    let got = reader.join().unwrap();
    assert_eq!(memory.get(1), Some([1, 1]), "and afterwards it is found");
    got
}

#[test]
fn a_block_that_passed_a_full_bucket_by_is_found_whole_or_not_at_all_while_it_is_put() {
    loom::model(|| {
        let got = get_while(Memory::with_full_home(), |memory| memory.put(0, 1, 1));
        assert!(got.is_none_or(|copied| copied == [1, 1]));
    });
}

#[test]
fn a_block_that_passed_a_full_bucket_by_is_always_found_while_others_pass_it_by_too() {
    // The count of a bucket goes up and down while the reader relies on its not being zero.
    loom::model(|| {
        let memory = Memory::with_full_home();
        memory.put(0, 1, 1);
        let got = get_while(memory, |memory| {
            assert!(Index(&memory.index).insert([2, 2], 1));
            Index(&memory.index).remove([2, 2], 1);
        });
        assert_eq!(got, Some([1, 1]));
    });
}

#[test]
fn a_block_that_passed_a_full_bucket_by_is_always_found_while_that_bucket_empties_and_fills() {
    // A place becomes free in the full bucket and is taken by another block: the one that lies further on stays found.
    loom::model(|| {
        let memory = Memory::with_full_home();
        memory.put(0, 1, 1);
        let got = get_while(memory, |memory| {
            Index(&memory.index).remove([0, FILLER + 3], 3);
            assert!(Index(&memory.index).insert([2, 2], 1));
        });
        assert_eq!(got, Some([1, 1]));
    });
}
