//! Replicas: copies of loaded blocks of other hosts on a node of this host, so that its next engine reads them from
//! memory.
//!
//! The node fetches the blocks itself after the load, at a bounded rate, since they cross the network once more, into
//! space that the node may have to make. Blocks above that rate are not copied.

use crate::crew::{Crew, Ending};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidepool_client::Client;

/// Loads whose blocks may wait to be copied; the blocks of further loads are not copied.
const WAITING: usize = 16;
/// Time that a node may take for one request, beyond what the rate allows for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// A request has one `PART`th of a second's bytes.
const PART: u64 = 4;
/// How often a pause checks for the end.
const STEP: Duration = Duration::from_millis(20);

/// Copies blocks on a thread of its own.
pub(crate) struct Replicas {
    crew: Crew<Vec<Loaded>>,
    copied: Arc<AtomicU64>,
}

/// A block that was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) key: Vec<u8>,
    pub(crate) len: usize,
}

impl Replicas {
    /// Starts a thread that copies up to `rate` bytes a second.
    pub(crate) fn start(client: Client, rate: u64) -> io::Result<Self> {
        let copied = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&copied);
        let work = move |blocks: Vec<Loaded>, ending: &Ending<'_>| copy(&client, &blocks, rate, &count, ending);
        Ok(Self { crew: Crew::start("tidepool-replica", 1, WAITING, work)?, copied })
    }

    /// Queues loaded blocks. Blocks that a node of this host holds stay where they are.
    pub(crate) fn offer(&self, blocks: Vec<Loaded>) {
        // A full queue means that the rate is the limit.
        drop(self.crew.give(blocks));
    }

    /// Blocks copied since the start.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }
}

fn copy(client: &Client, blocks: &[Loaded], rate: u64, count: &AtomicU64, ending: &Ending<'_>) {
    for alike in blocks.chunk_by(|one, other| one.len == other.len) {
        let len = alike[0].len.max(1) as u64;
        let time_for = |blocks: usize| Duration::from_secs_f64(blocks as f64 * len as f64 / rate as f64);
        let most = usize::try_from(rate / PART / len).unwrap_or(usize::MAX).max(1);
        for part in alike.chunks(most) {
            let began = Instant::now();
            let keys: Vec<&[u8]> = part.iter().map(|block| &block.key[..]).collect();
            let copied = client.within(PATIENCE + time_for(part.len())).copy_here(&keys);
            count.fetch_add(copied as u64, Ordering::Relaxed);
            if !rest_until(began + time_for(copied), ending) {
                return;
            }
        }
    }
}

/// Waits until `until`. Returns false if the crew ends first.
fn rest_until(until: Instant, ending: &Ending<'_>) -> bool {
    while !ending.is_near() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STEP));
    }
    false
}
