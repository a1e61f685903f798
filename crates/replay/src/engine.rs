//! An emulated engine.

use crate::clock::{Clock, later};
use crate::contact::Contact;
use crate::content::Content;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::turns::{Place, Turns};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidepool_client::{Client, GetError, GetInto, PutError, PutItem, PutOptions, Stored};
use tidepool_locks::Mutex;
use tidepool_policy::eviction::Policy;
use tidepool_sim::cluster::{Answer, Made};
use tidepool_sim::{Blocks, Pool};
use tidepool_trace::{BlockHash, Request};

/// Bytes of one call to the pool; a larger block is a call of its own.
const STEP_BYTES: u64 = 16 << 20;

/// An emulated engine. It serves several requests at a time, but looks up and computes them one after another.
pub(crate) struct Engine<'a> {
    settings: &'a Settings,
    clock: &'a Clock,
    progress: &'a Progress,
    contact: &'a Contact,
    client: Option<Client>,
    // Short sections.
    local: Mutex<Pool>,
    /// The order in which requests are looked up and computed.
    turns: Turns,
    /// The end of the last turn, in the trace's time. Only the request that has the turn uses it.
    free: Mutex<Duration>,
    /// Requests that are computed or decoded.
    running: AtomicU32,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(
        settings: &'a Settings,
        clock: &'a Clock,
        progress: &'a Progress,
        contact: &'a Contact,
        client: Option<Client>,
    ) -> Self {
        let local = Mutex::new(Pool::new(settings.cluster.local_blocks, Policy::Lru.build()));
        let (turns, free, running) = (Turns::default(), Mutex::default(), AtomicU32::new(0));
        Self { settings, clock, progress, contact, client, local, turns, free, running }
    }

    /// Saves blocks that this engine decoded as the session's last answer. A real engine saves them while it decodes,
    /// so this takes none of the trace's time.
    pub(crate) fn save_decoded(&self, request: &Request, made: &Made) {
        if let Some(client) = &self.client {
            self.store(client, &request.blocks[made.blocks.clone()]);
        }
    }

    /// Takes a request's place in the order of arrivals.
    pub(crate) fn come(&self) -> Place {
        self.turns.come()
    }

    /// Serves a request that arrived at `arrived` as `place`, in a slot of the batch that is free from `free` on. This
    /// engine may have `made` some of its blocks before. The request is looked up when the engine gets to it, as in the
    /// simulator: blocks of the pool are loaded while other requests are looked up and computed, and a request without
    /// any is computed at once. None if the run ended before the answer.
    ///
    /// Times are added up, not read from a clock: computing takes its nominal time, and the pool its real time,
    /// regardless of the pace and of late wake-ups of this machine's threads.
    pub(crate) fn serve(
        &self,
        request: &Request,
        place: Place,
        made: Option<&Made>,
        arrived: Duration,
        free: Duration,
    ) -> Option<Answer> {
        let cluster = &self.settings.cluster;
        let mut turn = self.turns.wait(place);
        let mut at = arrived.max(free).max(*self.free.lock());
        let local = self.local.lock().run(&request.blocks);
        let local = made.map_or(local, |made| made.reached_from(local));
        let rest = &request.blocks[local.0 as usize..];
        let names: Vec<String> = rest.iter().map(|block| self.name(block)).collect();
        let promised = self.ask(&mut at, |client| self.look_up(client, &names)).unwrap_or(0);
        let mut hits = local;
        if promised > 0 {
            *self.free.lock() = at;
            drop(turn);
            let loaded = self.ask(&mut at, |client| self.load(client, rest, &names[..promised]));
            hits = Blocks(local.0 + loaded.unwrap_or(0));
            turn = self.turns.wait(place);
            at = at.max(*self.free.lock());
        }
        let prefill = cluster.prefill_seconds(request, hits);
        self.running.fetch_add(1, Ordering::AcqRel);
        let late = self.clock.take(prefill, self.progress)?;
        self.progress.computed(prefill, late);
        let others = self.running.load(Ordering::Acquire).saturating_sub(1);
        at = later(at, prefill);
        *self.free.lock() = at;
        let first_token = at;
        // Before the next turn, whose request may have the same blocks.
        self.local.lock().take_in(request, self.clock.now());
        drop(turn);
        self.ask(&mut at, |client| self.store(client, &request.blocks[hits.0 as usize..]));
        let token = cluster.speed.token_seconds(others);
        let decoding = token * f64::from(request.output_tokens.saturating_sub(1));
        self.clock.take(decoding, self.progress)?;
        self.running.fetch_sub(1, Ordering::AcqRel);
        let done = later(at, decoding);
        Some(Answer { hits, local, prefill, arrived, first_token, token, done })
    }

    /// Calls the pool, if there is one, and moves `at` on by the time taken.
    fn ask<T>(&self, at: &mut Duration, work: impl FnOnce(&Client) -> T) -> Option<T> {
        let client = self.client.as_ref()?;
        let started = Instant::now();
        let done = work(client);
        *at = at.saturating_add(started.elapsed());
        Some(done)
    }

    fn name(&self, block: &BlockHash) -> String {
        format!("{}/{:016x}", self.settings.name, block.0)
    }

    /// Number of blocks of a call.
    fn step(&self) -> usize {
        (STEP_BYTES / self.settings.cluster.block_bytes).max(1) as usize
    }

    /// Reads the promised blocks at the start of `blocks`, by `names`. Returns how many came.
    fn load(&self, client: &Client, blocks: &[BlockHash], names: &[String]) -> u64 {
        let promised = names.len();
        let len = self.settings.cluster.block_bytes as usize;
        let mut memory = vec![0; len * self.step().min(promised)];
        let mut loaded = 0;
        for (blocks, names) in blocks[..promised].chunks(self.step()).zip(names.chunks(self.step())) {
            let places = memory.chunks_mut(len);
            let mut items: Vec<_> = names.iter().zip(places).map(|(name, place)| GetInto::new(name, place)).collect();
            let answers = client.get_batch_into(&mut items);
            let got = answers.iter().take_while(|answer| matches!(answer, Ok(Some(read)) if *read == len)).count();
            let right = |(block, bytes): &(&BlockHash, &[u8])| Content::of(block.0).matches(bytes);
            let wrong = blocks.iter().zip(memory.chunks(len)).take(got).filter(|read| !right(read)).count();
            Progress::add(&self.progress.wrong_blocks, wrong);
            loaded += blocks.iter().zip(memory.chunks(len)).take(got).take_while(right).count();
            if got < blocks.len() || wrong > 0 {
                self.note_missing(&answers);
                break;
            }
        }
        loaded as u64
    }

    /// Counts promised blocks that are missing or of another run.
    fn note_missing(&self, answers: &[Result<Option<usize>, GetError>]) {
        let len = self.settings.cluster.block_bytes as usize;
        let is_other = |answer: &&Result<Option<usize>, GetError>| match answer {
            Ok(read) => read.is_some_and(|read| read != len),
            Err(error) => matches!(error, GetError::BufferTooSmall { .. }),
        };
        let (other, right) = (answers.iter().filter(is_other).count(), Ok(Some(len)));
        let right = answers.iter().filter(|answer| **answer == right).count();
        Progress::add(&self.progress.other_blocks, other);
        Progress::add(&self.progress.lost_blocks, answers.len() - other - right);
    }

    /// The number of `names`, from the first, that the pool says it has.
    fn look_up(&self, client: &Client, names: &[String]) -> usize {
        Progress::add(&self.progress.lookups, 1);
        let matches = client.match_prefix(&[names]);
        let knows_catalogs = self.settings.pool.as_ref().is_some_and(|pool| !pool.catalogs.is_empty());
        if knows_catalogs && !matches.as_ref().is_ok_and(|matches| matches.answered) {
            Progress::add(&self.progress.failed_lookups, 1);
            self.contact.unanswered();
        }
        let promised = matches.map_or(0, |matches| matches.shortest);
        Progress::add(&self.progress.promised_blocks, promised);
        promised
    }

    /// Puts computed blocks.
    fn store(&self, client: &Client, blocks: &[BlockHash]) {
        let len = self.settings.cluster.block_bytes as usize;
        let mut memory = vec![0; len * self.step().min(blocks.len())];
        for blocks in blocks.chunks(self.step()) {
            let names: Vec<String> = blocks.iter().map(|block| self.name(block)).collect();
            blocks.iter().zip(memory.chunks_mut(len)).for_each(|(block, bytes)| Content::of(block.0).fill(bytes));
            let items: Vec<_> =
                names.iter().zip(memory.chunks(len)).map(|(name, bytes)| PutItem::new(name, bytes)).collect();
            let began = self.clock.now();
            let stored = client.put_batch(&items, &PutOptions::default());
            let failed = stored.iter().filter(|stored| stored.is_err()).count();
            let held = stored.iter().flatten().filter(|stored| !stored.moved).count();
            // Before these blocks are counted: a pool that is gone counts only with what came before.
            self.watch(blocks[0], &stored, began);
            self.progress.note_failures(&stored);
            Progress::add(&self.progress.held_blocks, held);
            Progress::add(&self.progress.put_blocks, stored.len() - failed - held);
        }
    }

    /// Puts the first refused block again, if any: the pool may only have been slow.
    pub(crate) fn ask_again(&self) {
        let (Some(client), Some(block)) = (&self.client, self.contact.refused_block()) else { return };
        let mut bytes = vec![0; self.settings.cluster.block_bytes as usize];
        Content::of(block.0).fill(&mut bytes);
        let began = self.clock.now();
        self.watch(block, &[client.put(self.name(&block), &bytes, &PutOptions::default())], began);
    }

    /// Ends the run once no node has taken a block for a while.
    fn watch(&self, first: BlockHash, stored: &[Result<Stored, PutError>], began: Duration) {
        let is_gone = |error: &PutError| matches!(error, PutError::NoNode | PutError::Timeout);
        if stored.iter().any(|stored| !stored.as_ref().is_err_and(is_gone)) {
            self.contact.took(self.clock.now());
        } else if self.contact.refused(first, stored.len(), began, self.progress.counts()) {
            self.progress.pool_is_gone();
        }
    }
}
