//! Ranges of one block that are asked for in one call come from one copy of it: what is put in its place meanwhile must not
//! mix with it.

use super::read::{Miss, Read, State};
use std::collections::HashMap;
use tidepool_types::{BlockId, CopyName};

/// How often ranges that came from different copies are read again; after that they are misses.
const TRIES: usize = 4;

/// Runs `reads`, some of which may be of one block.
pub(super) fn run(reads: &mut [Read], run: impl Fn(&mut [Read])) {
    run(reads);
    for _ in 0..TRIES {
        if !take_back_mixed(reads) {
            return;
        }
        run(reads);
    }
    take_back_mixed(reads);
}

/// Takes back what was delivered of blocks of which not all came from one copy; says whether there are any.
fn take_back_mixed(reads: &mut [Read]) -> bool {
    // No copy: it was mixed.
    let mut copies: HashMap<BlockId, Option<CopyName>> = HashMap::new();
    for read in reads.iter() {
        if let State::Delivered(delivered) = &read.state {
            let copy = copies.entry(read.id).or_insert(Some(delivered.copy));
            *copy = copy.filter(|copy| *copy == delivered.copy);
        }
    }
    let mut any = false;
    for read in reads.iter_mut() {
        if matches!(read.state, State::Delivered(_)) && copies.get(&read.id) == Some(&None) {
            (read.state, any) = (State::Wanted(Miss::LostRace), true);
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tidepool_transfer::ops::{Destination, Done};
    use tidepool_types::{ClientId, Epoch, Generation};

    fn deliver(read: &mut Read, generation: u64) {
        let copy = CopyName { epoch: Epoch(1), generation: Generation(generation) };
        let done =
            Done::Read { copy, slot: None, writer: ClientId(1), block_len: 20, bytes: 10, data: None, checksums: None };
        read.settle(Ok(done));
    }

    fn reads() -> Vec<Read> {
        [1, 1, 2]
            .map(|id| Read::whole(BlockId::from_bytes([id; 16]), Destination::Allocate).part(Some(&(0..10))))
            .into()
    }

    #[test]
    fn ranges_of_one_block_that_came_from_two_copies_are_read_again() {
        let (mut reads, runs) = (reads(), Cell::new(0));
        run(&mut reads, |reads| {
            runs.set(runs.get() + 1);
            for (index, read) in reads.iter_mut().enumerate().filter(|(_, read)| read.is_wanted()) {
                deliver(read, if runs.get() < 3 { index as u64 } else { 7 });
            }
        });
        assert_eq!(runs.get(), 3);
        assert!(reads.iter().all(|read| !read.is_wanted()));
    }

    #[test]
    fn what_never_comes_from_one_copy_is_a_miss_and_holds_up_nothing_else() {
        let (mut reads, runs) = (reads(), Cell::new(0));
        run(&mut reads, |reads| {
            runs.set(runs.get() + 1);
            let wanted = reads.iter_mut().enumerate().filter(|(_, read)| read.is_wanted());
            wanted.for_each(|(index, read)| deliver(read, index as u64));
        });
        assert_eq!(runs.get(), 1 + TRIES);
        assert_eq!(reads.iter().map(Read::is_wanted).collect::<Vec<_>>(), [true, true, false]);
    }
}
