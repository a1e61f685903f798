//! What a client counts, and the snapshot that callers see.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// The live numbers.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: AtomicU64,)*
        }

        /// A client's numbers at one moment, since it was made.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct ClientStats {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> ClientStats {
                ClientStats { $($field: self.$field.load(Ordering::Relaxed),)* }
            }
        }

        impl ClientStats {
            /// Every number with its name.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

counters! {
    /// Blocks read through shared memory.
    hits_shm,
    /// Blocks read over TCP.
    hits_tcp,
    /// Of all blocks read, those that another client wrote.
    foreign_hits,
    /// Bytes read through shared memory.
    bytes_read_shm,
    /// Bytes read over TCP.
    bytes_read_tcp,
    /// Reads of blocks that no node held, as far as a catalog knew.
    misses_absent,
    /// Reads that no local node could serve while no catalog answered.
    misses_no_catalog,
    /// Reads of blocks that no node held as far as catalogs knew, none of which knew all that nodes hold.
    misses_unsure,
    /// Reads that lost their races against reuse of the slot.
    misses_lost_race,
    /// Reads whose copies did not match their checksums.
    misses_corrupt,
    /// Reads whose holders could not be reached or did not answer as they should.
    misses_unavailable,
    /// Reads that the deadline ended.
    misses_timed_out,
    /// Races against reuse of a slot that a read lost, whether or not it found its block after all.
    lost_races,
    /// Reads that went on to another copy after one had failed them.
    retries,
    /// Copies that did not match their checksums.
    corrupt_copies,
    /// Blocks written into a node's memory.
    puts_shm,
    /// Blocks written through a socket.
    puts_socket,
    /// Bytes written into nodes' memory.
    bytes_written_shm,
    /// Bytes written through sockets.
    bytes_written_socket,
    /// Time spent on checksums of blocks that a device wrote into a node's memory.
    device_checksum_micros,
    /// Puts of blocks that were held already: nothing moved.
    puts_held,
    /// Puts of blocks that a full node declined: nothing moved.
    puts_declined,
    /// Puts that failed.
    puts_failed,
    /// Views without a copy.
    views_borrowed,
    /// Views that are copies.
    views_copied,
    /// Uses reported to owners on this host.
    touches_sent,
    /// Uses not reported because the owner's socket was full.
    touches_dropped,
    /// Look-ups told of because somebody records them.
    lookups_told,
    /// Look-ups that somebody records and that there was no room for, or no answer in time.
    lookups_untold,
    /// Times that a node was found not to answer.
    nodes_down,
    /// Spawned calls refused because the queue was full.
    calls_refused,
}

/// Adds to a counter; counters order nothing.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
