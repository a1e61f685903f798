//! Upserts: a new version of a block takes the place of whatever the pool holds under its key.
//!
//! What is older is removed wherever it can be reached, also on nodes that have lately copied it from there; the new version is
//! put; then everyone is asked once more, and of versions that were put at the same time only the highest stays. A get
//! meanwhile sees the old version, the new one or a miss. A holder that could not be reached keeps its old copy until it is
//! evicted, and a put that runs at the same time may leave its own.

use crate::client::Client;
use crate::core::Core;
use crate::error::PutError;
use crate::put::{PutItem, PutOptions, Stored, jobs_of, store_all};
use crate::remove::Removers;
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};
use tidepool_locks::Mutex;
use tidepool_types::{BlockId, Deadline, NodeName, Version};
use tidepool_wire::message::{Reply, Request, SupersedeOutcome};

/// How often copiers of copiers are asked: more often only if blocks are copied on and on.
const ROUNDS: usize = 16;
/// How often a version is raised above one that is held already: more often only if others keep on writing.
const TRIES: usize = 3;

/// A block whose new version the pool holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upserted {
    /// Nodes known to hold it. None when a full node declined it.
    pub replicas: u32,
    /// Whether this call moved its bytes.
    pub moved: bool,
    /// Nodes that may hold an older version and gave no answer, as [`crate::Removal::unanswered`]: readers may see that
    /// version until it is evicted or removed.
    pub unanswered: Vec<NodeName>,
}

/// What a sweep has found.
struct Swept {
    /// For each block, how many older copies were removed.
    removed: Vec<usize>,
    /// For each block, the highest version that is held, of those that are not older.
    kept: Vec<Option<Version>>,
    /// For each block, who gave no answer.
    unanswered: Vec<Vec<NodeName>>,
}

impl Client {
    /// Stores blocks as new versions of theirs, each with its own result, in the order of `items`. A block has at least as many
    /// copies as it had before. When one cannot be stored, the
    /// version before it is gone all the same, from every node that answered.
    pub fn upsert_batch(&self, items: &[PutItem<'_>], options: &PutOptions) -> Vec<Result<Upserted, PutError>> {
        let (core, deadline) = (self.core(), self.deadline());
        let mut jobs = jobs_of(core, items, options);
        let sound: Vec<usize> = (0..jobs.len()).filter(|&index| jobs[index].failure.is_none()).collect();
        let ids: Vec<BlockId> = sound.iter().map(|&index| jobs[index].id).collect();
        let (version, removed) = self.make_way(&ids, deadline);
        for (&index, removed) in sound.iter().zip(removed) {
            jobs[index].version = Some(version);
            jobs[index].wanted = jobs[index].wanted.max(removed);
        }
        store_all(core, &mut jobs, &options.prefer, deadline);
        let mut swept = self.sweep(&ids, version, deadline);
        for (id, kept) in ids.iter().zip(swept.kept) {
            // Somebody else's is higher: the one that was just put is old by now.
            if let Some(higher) = kept.filter(|kept| *kept > version) {
                self.sweep(&[*id], higher, deadline);
            }
        }
        let mut unanswered = vec![Vec::new(); jobs.len()];
        for (index, names) in sound.into_iter().zip(swept.unanswered.drain(..)) {
            unanswered[index] = names;
        }
        let results = jobs.into_iter().map(|job| job.result(core, deadline)).zip(unanswered);
        let upserted = |(stored, unanswered): (Result<Stored, PutError>, _)| {
            stored.map(|Stored { replicas, moved }| Upserted { replicas, moved, unanswered })
        };
        results.map(upserted).collect()
    }

    /// Stores a block as a new version: see [`Client::upsert_batch`].
    pub fn upsert<'a>(
        &self,
        key: impl AsRef<[u8]>,
        data: impl Into<crate::buffers::Parts<'a>>,
        options: &PutOptions,
    ) -> Result<Upserted, PutError> {
        let item = PutItem { key: key.as_ref(), data: data.into(), depth: 0 };
        let mut results = self.upsert_batch(std::slice::from_ref(&item), options);
        results.pop().unwrap_or(Err(PutError::NoNode))
    }

    /// Removes what is held, and returns a version that is higher than all of it, and how many copies of each block there were.
    fn make_way(&self, ids: &[BlockId], deadline: Deadline) -> (Version, Vec<usize>) {
        let mut version = self.core().new_version();
        let mut removed = vec![0; ids.len()];
        for _ in 0..TRIES {
            let swept = self.sweep(ids, version, deadline);
            removed.iter_mut().zip(swept.removed).for_each(|(all, more)| *all += more);
            // Written by a host whose clock is ahead, or a moment ago.
            match swept.kept.into_iter().flatten().max() {
                Some(kept) => version = kept.next(self.core().id),
                None => break,
            }
        }
        (version, removed)
    }

    /// Has everyone who may hold one of `ids` remove what is older than `version`.
    fn sweep(&self, ids: &[BlockId], version: Version, deadline: Deadline) -> Swept {
        let mut swept = Swept { removed: vec![0; ids.len()], kept: vec![None; ids.len()], unanswered: Vec::new() };
        let mut removers = self.removers(ids, deadline);
        self.supersede(ids, version, &mut removers, deadline, |index, outcome| swept.note(index, outcome));
        swept.unanswered = removers.unanswered(ids.len());
        swept
    }

    /// Has `removers` remove what is older than `version`, and after them whoever has lately copied it from one of those.
    /// Answers are noted as they come, each with its block's place among `ids`.
    pub(crate) fn supersede(
        &self,
        ids: &[BlockId],
        version: Version,
        removers: &mut Removers,
        deadline: Deadline,
        mut note: impl FnMut(usize, SupersedeOutcome),
    ) {
        let pullers: Mutex<BTreeSet<String>> = Mutex::default();
        let request = |ids: Vec<BlockId>| Request::Supersede(ids.into_iter().map(|id| (id, version)).collect());
        let read = |reply| match reply {
            Reply::Superseded(superseded) => {
                pullers.lock().extend(superseded.pullers);
                Some(superseded.items)
            }
            _ => None,
        };
        let mut asked: BTreeSet<String> = BTreeSet::new();
        for _ in 0..ROUNDS {
            if removers.asked.is_empty() || ids.is_empty() {
                return;
            }
            let answers = removers.ask(ids, request, read, deadline);
            let mut has_removed = false;
            for ((_, indexes), outcomes) in removers.asked.iter().zip(answers) {
                has_removed |= outcomes.contains(&SupersedeOutcome::Removed);
                indexes.iter().zip(outcomes).for_each(|(&index, outcome)| note(index, outcome));
            }
            // Nodes that copied a block from one of these before it was removed. One that was asked before may have copied it
            // again since, from a node that still had it.
            let mut named = std::mem::take(&mut *pullers.lock());
            if !has_removed {
                named.retain(|name| !asked.contains(name));
            }
            let names: Vec<NodeName> = named.iter().filter_map(|name| NodeName::new(name.clone()).ok()).collect();
            removers.turn_to(self, &names, deadline);
            asked.extend(named);
        }
        removers.give_up();
    }
}

impl Swept {
    fn note(&mut self, index: usize, outcome: SupersedeOutcome) {
        match outcome {
            SupersedeOutcome::Absent => {}
            SupersedeOutcome::Removed => self.removed[index] += 1,
            SupersedeOutcome::Kept(version) => self.kept[index] = self.kept[index].max(Some(version)),
        }
    }
}

impl Core {
    /// A version that is higher than all that this client has given.
    fn new_version(&self) -> Version {
        #[expect(
            clippy::disallowed_methods,
            reason = "versions are compared between hosts; one that is held is never undercut"
        )]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut last = self.last_version.lock();
        *last = Version::new(now.as_nanos() as u64, self.id).max(last.next(self.id));
        *last
    }
}
