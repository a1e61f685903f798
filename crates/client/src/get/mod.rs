//! Getting blocks: this host's memory first, then wherever the catalogs say. Every failure on the way is a miss.

mod local;
mod read;
mod remote;
mod together;

use crate::buffers::Buffers;
use crate::client::Client;
use crate::core::Core;
use crate::error::GetError;
use read::Delivered;
pub(crate) use read::Read;
use std::ops::Range;
use tidepool_transfer::ops::Destination;
use tidepool_types::{BlockId, Deadline, InvalidInput};

/// One block, or a range of it, and the buffers that it goes to.
#[derive(Debug)]
pub struct GetInto<'a> {
    /// The block's key.
    pub key: &'a [u8],
    /// The bytes wanted; `None` for all of the block.
    pub range: Option<Range<u64>>,
    /// Where they go. Room to spare is left as it was; too little of it is an error. After a miss or an error the
    /// buffers' contents are unspecified.
    pub into: Buffers<'a>,
    /// Blocks before this one in its prefix, for [`Client::used_for`].
    pub depth: u32,
}

impl<'a> GetInto<'a> {
    /// All of a block.
    pub fn new(key: &'a (impl AsRef<[u8]> + ?Sized), into: impl Into<Buffers<'a>>) -> Self {
        Self { key: key.as_ref(), range: None, into: into.into(), depth: 0 }
    }

    /// A range of a block.
    pub fn range(key: &'a (impl AsRef<[u8]> + ?Sized), range: Range<u64>, into: impl Into<Buffers<'a>>) -> Self {
        Self { range: Some(range), ..Self::new(key, into) }
    }

    /// The same block, behind so many others of its prefix.
    #[must_use]
    pub fn at_depth(self, depth: u32) -> Self {
        Self { depth, ..self }
    }
}

impl Client {
    /// A block's bytes, or `None` for a miss.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, GetError> {
        let read = Read::whole(self.core().id_of(key.as_ref())?, Destination::Allocate);
        Ok(self.fetch_one(read)?.map(Delivered::into_bytes))
    }

    /// Reads a block into `buffer` and returns its length, or `None` for a miss.
    pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Option<usize>, GetError> {
        let mut into = Buffers::One(buffer);
        let read = Read::whole(self.core().id_of(key.as_ref())?, Destination::Into(into.regions()));
        Ok(self.fetch_one(read)?.map(Delivered::len))
    }

    /// A range of a block.
    pub fn get_range(&self, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<Vec<u8>>, GetError> {
        let read = Read::whole(self.core().id_of(key.as_ref())?, Destination::Allocate).part(Some(&range));
        Ok(self.fetch_one(read)?.map(Delivered::into_bytes))
    }

    /// Reads a range of a block into `buffer` and returns its length.
    pub fn get_range_into(
        &self,
        key: impl AsRef<[u8]>,
        range: Range<u64>,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, GetError> {
        let mut into = Buffers::One(buffer);
        let read = Read::whole(self.core().id_of(key.as_ref())?, Destination::Into(into.regions())).part(Some(&range));
        Ok(self.fetch_one(read)?.map(Delivered::len))
    }

    /// Many blocks, each with its own answer, in the order of `keys`.
    pub fn get_batch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>, GetError>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let ids = self.core().id_of_each(&keys);
        let answers = self.fetch(ids.into_iter().map(|id| Ok(Read::whole(id?, Destination::Allocate))));
        answers.map(|answer| Ok(answer?.map(Delivered::into_bytes))).collect()
    }

    /// Many blocks or ranges, each into buffers of its own, with one answer each: the bytes delivered, or `None`. Ranges of one
    /// block are of one copy of it.
    pub fn get_batch_into(&self, items: &mut [GetInto<'_>]) -> Vec<Result<Option<usize>, GetError>> {
        let keys: Vec<&[u8]> = items.iter().map(|item| item.key).collect();
        let ids = self.core().id_of_each(&keys);
        let read = |(item, id): (&mut GetInto<'_>, Result<BlockId, InvalidInput>)| {
            let read = Read::whole(id?, Destination::Into(item.into.regions())).part(item.range.as_ref());
            Ok(read.used_for(self.use_at(item.depth)))
        };
        let has_ranges = items.iter().any(|item| item.range.is_some());
        let mut reads: Vec<Read> =
            items.iter_mut().zip(ids).map(|pair| read(pair).unwrap_or_else(Read::refused)).collect();
        let (core, deadline) = (self.core(), self.deadline());
        match has_ranges {
            true => together::run(&mut reads, |reads| run(core, reads, deadline)),
            false => run(core, &mut reads, deadline),
        }
        reads.into_iter().map(|read| Ok(read.answer(&core.counters)?.map(Delivered::len))).collect()
    }

    fn fetch_one(&self, read: Read) -> Result<Option<Delivered>, GetError> {
        let mut reads = [read];
        run(self.core(), &mut reads, self.deadline());
        let [read] = reads;
        read.answer(&self.core().counters)
    }

    /// Runs a batch. The answers come in order; a key that cannot be is answered without holding up the others.
    fn fetch(
        &self,
        batch: impl Iterator<Item = Result<Read, GetError>>,
    ) -> impl Iterator<Item = Result<Option<Delivered>, GetError>> {
        let mut reads: Vec<Read> = batch.map(|read| read.unwrap_or_else(Read::refused)).collect();
        run(self.core(), &mut reads, self.deadline());
        reads.into_iter().map(|read| read.answer(&self.core().counters))
    }
}

/// Reads what this host's nodes hold of `reads`, and nothing else.
pub(crate) fn on_this_host(client: &Client, reads: &mut [Read]) {
    let core = client.core();
    local::read(core, &core.peers.table(), reads, client.deadline());
}

/// Reads everything that is wanted, from wherever it can be had.
fn run(core: &Core, reads: &mut [Read], deadline: Deadline) {
    local::read(core, &core.peers.table(), reads, deadline);
    if reads.iter().any(Read::is_wanted) {
        remote::read(core, reads, deadline);
    }
}
