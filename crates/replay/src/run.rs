//! The run of a replay: sends requests to engines at their times, and answers back to their source.

use crate::clock::{Clock, STEP};
use crate::contact::{Contact, Outage};
use crate::engine::Engine;
use crate::nodes::{Absence, Nodes};
use crate::progress::{Counts, Partial, Progress};
use crate::settings::Settings;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tidepool_client::Client;
use tidepool_locks::{Condvar, Mutex};
use tidepool_sim::cluster::{Answer, Cluster, Decoded, Report, Router};
use tidepool_trace::{Millis, Request, SessionId, Source};

/// Requests that may wait for an engine; with more, arrivals wait and are late.
const QUEUE: usize = 1 << 16;

/// The outcome of a replay.
#[derive(Debug)]
pub struct Replay {
    /// The report as the simulator makes it, with real times where bytes move.
    pub report: Report,
    /// The largest delay with which a request was sent to its engine.
    pub latest: Duration,
    /// Why the run ended before all requests were answered, if it did.
    pub partial: Option<Partial>,
    /// Times in which the pool refused every block and then took blocks again. Requests meanwhile count, as misses.
    pub outages: Vec<Outage>,
    /// Counts while there was a pool, as in the report.
    pub counts: Counts,
    /// Counts of the whole run.
    pub all_counts: Counts,
    /// Absences of nodes.
    pub absences: Vec<Absence>,
    /// The trace's time at the end of the run.
    pub ended: Duration,
}

/// A request that has arrived.
struct Arrival {
    request: Request,
    at: Duration,
}

/// State that the threads share.
struct Shared<'a, S> {
    // Short sections, but for what the source does.
    state: Mutex<State<S>>,
    changed: Condvar,
    // Short sections.
    decoded: Mutex<Decoded>,
    contact: &'a Contact,
}

struct State<S> {
    source: S,
    report: Report,
    /// The end of the last answer.
    last: Duration,
    /// Report and last answer at the first refusal of the pool, with its instant: they are final if the pool is gone.
    before: Option<(Instant, Report, Duration)>,
    under_way: usize,
    /// When sessions heard their last answers, by the clock. At a high pace that is after the answers' computed end,
    /// since the pool takes real time; a session that still waits to hear its answer is not late.
    heard: HashMap<SessionId, Duration>,
}

impl<S: Source> State<S> {
    fn note(&mut self, contact: &Contact, cluster: &Cluster, request: &Request, answer: &Answer) {
        let since = contact.refusing_since();
        if self.before.as_ref().map(|(before, ..)| *before) != since {
            self.before = since.map(|since| (since, self.report.clone(), self.last));
        }
        self.last = self.last.max(answer.done);
        self.report.note(cluster, request, answer);
    }

    /// The report while there was a pool, and the reason why it is partial, if it is.
    fn finish(mut self, contact: &Contact, ending: Option<Partial>) -> (Report, Option<Partial>) {
        let refusing = contact.refusing_since();
        let before = self.before.filter(|(since, ..)| Some(*since) == refusing);
        let (mut report, last) = before.map_or((self.report, self.last), |(_, report, last)| (report, last));
        report.ended(last);
        if refusing.is_some() {
            return (report, Some(Partial::PoolGone));
        }
        (report, ending.filter(|_| self.under_way > 0 || self.source.due().is_some()))
    }
}

/// Plays `source` and counts into `progress`, which may also end the run.
pub fn run<S: Source + Send>(
    settings: &Settings,
    source: S,
    progress: &Progress,
) -> Result<Replay, Box<dyn std::error::Error + Send + Sync>> {
    settings.validate()?;
    let engines = settings.cluster.engines as usize;
    // Each engine is a client of its own, as in a process of its own.
    let clients = (0..engines).map(|_| settings.pool.clone().map(Client::connect).transpose());
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    let clock = &Clock::new(settings.pace);
    let contact = &Contact::default();
    let watched = clients.first().cloned().flatten();
    let engine = |client| Engine::new(settings, clock, progress, contact, client);
    let engines: Vec<_> = clients.into_iter().map(engine).collect();
    let state = State {
        source,
        report: Report::default(),
        last: Duration::ZERO,
        before: None,
        under_way: 0,
        heard: HashMap::new(),
    };
    let shared = Shared { state: Mutex::new(state), changed: Condvar::new(), decoded: Mutex::default(), contact };
    let playing = || (play(&shared, &engines, clock, settings, progress), clock.now());
    let ((latest, ended), absences) = Nodes::watch(watched.as_ref(), clock, progress, playing);
    let latest = latest?;
    // All requests are answered, but the pool refused the last block: taking one, or time, shows whether the pool is
    // gone.
    while contact.refused_block().is_some() && progress.ending().is_none() {
        engines[0].ask_again();
        std::thread::sleep(STEP);
    }
    let (report, partial) = shared.state.into_inner().finish(contact, progress.ending());
    let all_counts = progress.counts();
    let counts = contact.counts_before().unwrap_or(all_counts);
    Ok(Replay { report, latest, partial, outages: contact.outages(), counts, all_counts, absences, ended })
}

/// Lets the engines serve their requests until none is left. Returns the largest delay.
fn play<S: Source + Send>(
    shared: &Shared<'_, S>,
    engines: &[Engine<'_>],
    clock: &Clock,
    settings: &Settings,
    progress: &Progress,
) -> std::io::Result<Duration> {
    std::thread::scope(|scope| {
        let mut queues = Vec::new();
        for number in 0..engines.len() {
            let (queue, arrivals) = sync_channel(QUEUE);
            let arrivals = std::sync::Arc::new(Mutex::new(arrivals));
            for _ in 0..settings.cluster.batch {
                let arrivals = std::sync::Arc::clone(&arrivals);
                let work = move || work((engines, number), &arrivals, shared, clock, settings, progress);
                // Threads that run already end when their queues are dropped.
                std::thread::Builder::new().spawn_scoped(scope, work)?;
            }
            queues.push(queue);
        }
        let latest = dispatch(shared, &queues, clock, settings, progress);
        drop(queues);
        Ok(latest)
    })
}

/// Sends requests to their engines until none is left. Returns the largest delay.
fn dispatch<S: Source>(
    shared: &Shared<'_, S>,
    queues: &[SyncSender<Arrival>],
    clock: &Clock,
    settings: &Settings,
    progress: &Progress,
) -> Duration {
    let cluster = &settings.cluster;
    let mut router = Router::new(cluster.routing, cluster.engines, cluster.seed);
    let mut latest = Duration::ZERO;
    let mut state = shared.state.lock();
    while progress.ending().is_none() {
        let until = match state.source.due() {
            Some(due) if clock.now() >= Duration::from_millis(due.0) => {
                let Some(request) = state.source.next() else { break };
                state.under_way += 1;
                let at = Duration::from_millis(due.0);
                state.report.arrived(at);
                let heard = request.origin.and_then(|origin| state.heard.remove(&origin.session));
                let late = clock.now().saturating_sub(at.max(heard.unwrap_or_default()));
                latest = latest.max(late);
                progress.sent(late);
                let engine = router.choose(&request) as usize;
                drop(state);
                // Sending fails only if the engine's threads have panicked, which the scope reports.
                let _ = queues[engine].send(Arrival { request, at });
                state = shared.state.lock();
                continue;
            }
            Some(due) => clock.instant(Duration::from_millis(due.0)),
            None if state.under_way == 0 => break,
            None => None,
        };
        let step = Instant::now() + STEP;
        shared.changed.wait_until(&mut state, until.map_or(step, |until| until.min(step)));
    }
    latest
}

/// Serves one engine's requests until none is left.
fn work<S: Source>(
    (engines, number): (&[Engine<'_>], usize),
    arrivals: &Mutex<Receiver<Arrival>>,
    shared: &Shared<'_, S>,
    clock: &Clock,
    settings: &Settings,
    progress: &Progress,
) {
    // The time at which this place of the engine's batch is free.
    let mut free = Duration::ZERO;
    loop {
        // The next request is not taken before this one has its place.
        let queue = arrivals.lock();
        let Ok(Arrival { request, at }) = queue.recv() else { return };
        if progress.ending().is_some() {
            continue;
        }
        let place = engines[number].come();
        drop(queue);
        let made = shared.decoded.lock().before(&request);
        if let Some(made) = &made {
            engines[made.engine as usize].save_decoded(&request, made);
        }
        let own = made.as_ref().filter(|made| made.engine as usize == number);
        let Some(answer) = engines[number].serve(&request, place, own, at, free) else { continue };
        free = answer.done;
        shared.decoded.lock().answered(&request, number as u32, settings.cluster.block_tokens);
        let mut state = shared.state.lock();
        state.under_way -= 1;
        state.note(shared.contact, &settings.cluster, &request, &answer);
        if let Some(origin) = request.origin {
            state.source.answered(origin.session, Millis(answer.done.as_millis() as u64));
            if !origin.last {
                state.heard.insert(origin.session, clock.now());
            }
        }
        drop(state);
        progress.answered.fetch_add(1, Ordering::Relaxed);
        shared.changed.notify_all();
    }
}
