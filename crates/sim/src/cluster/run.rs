//! The run itself: events in the order of their times.

use super::engine::{Engine, Next};
use super::fabric::Fabric;
use super::route::Router;
use super::store::{Place, Store, Tier};
use super::{Answer, Cluster, Decoded, Kind, Made, Nanos, Report, Source};
use crate::Blocks;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidepool_trace::{BlockHash, Request};

/// Runs requests through a cluster until all are answered, or their source gives up.
pub fn run(cluster: &Cluster, source: &mut impl Source) -> Report {
    let mut run = Run::new(cluster);
    while !source.gives_up() {
        let next = run.events.peek().map(|Reverse((at, ..))| *at);
        let due = source.due().map(Nanos::of_millis);
        match (due, next) {
            (Some(due), next) if next.is_none_or(|next| due <= next) => {
                run.now = run.now.max(due);
                let Some(request) = source.next() else { break };
                run.arrive(request);
            }
            (_, Some(_)) => run.step(source),
            (_, None) => break,
        }
    }
    run.finish()
}

/// An event of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The request is looked up, and its hits are on the GPU.
    Ready,
    /// The prompt is computed: the first token is out.
    Computed,
    /// The answer is complete.
    Answered,
}

/// A request on its way.
struct Job {
    request: Request,
    /// The request's place in the order of arrivals.
    nth: u64,
    engine: u32,
    made: Option<Made>,
    /// Since when the request waits for its engine: to be looked up, then to be computed.
    ready: Nanos,
    /// The outcome, as far as it is known.
    answer: Answer,
}

impl Job {
    /// Whether some of its blocks come from the pool.
    fn is_loaded(&self) -> bool {
        self.answer.hits > self.answer.local
    }
}

struct Run<'a> {
    cluster: &'a Cluster,
    now: Nanos,
    started: Option<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event, u32)>>,
    /// Orders arrivals, and events of the same time.
    count: u64,
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<u32>,
    router: Router,
    engines: Vec<Engine>,
    fabric: Fabric<'a>,
    store: Store,
    decoded: Decoded,
    report: Report,
    /// Blocks that a request gets from each host's memory and disk; empty between requests.
    sources: Vec<(u32, Tier, u64)>,
    /// Places of its blocks; empty between requests.
    places: Vec<Place>,
}

impl<'a> Run<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let engines = cluster.engines.max(1);
        let hosts = engines.div_ceil(cluster.engines_per_host.max(1));
        Self {
            cluster,
            now: Nanos(0),
            started: None,
            events: BinaryHeap::new(),
            count: 0,
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            router: Router::new(cluster.routing, engines, cluster.seed),
            engines: (0..engines).map(|_| Engine::new(cluster.local_blocks)).collect(),
            fabric: Fabric::new(cluster, engines, hosts),
            store: Store::new(hosts, cluster.node_blocks, cluster.disk_blocks, (cluster.policy, cluster.admission)),
            decoded: Decoded::default(),
            report: Report::default(),
            sources: Vec::new(),
            places: Vec::new(),
        }
    }

    fn after(&mut self, at: Nanos, event: Event, job: u32) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event, job)));
    }

    /// Takes a request and sends it to an engine.
    fn arrive(&mut self, request: Request) {
        self.report.arrived(self.now.duration());
        self.started.get_or_insert(self.now);
        self.fabric.remember(self.now);
        let engine = self.router.choose(&request);
        self.count += 1;
        let (nth, ready, answer) = (self.count, self.now, Answer::arrived(self.now.duration()));
        let job = Job { request, nth, engine, made: None, ready, answer };
        let number = self.free_jobs.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            (self.jobs.len() - 1) as u32
        });
        self.jobs[number as usize] = Some(job);
        self.engines[engine as usize].arrive(number);
        self.serve(engine as usize);
    }

    /// Lets an engine take all steps that it can.
    fn serve(&mut self, engine: usize) {
        while let Some(next) = self.engines[engine].next(self.cluster.batch) {
            match next {
                Next::LookUp(number) => self.look_up(number),
                Next::Compute(number) => self.compute(number),
            }
        }
    }

    /// Looks up a request, and begins to load its blocks from the pool.
    fn look_up(&mut self, number: u32) {
        let Some(mut job) = self.jobs[number as usize].take() else { return };
        self.fabric.note_wait(Kind::Gpu, self.now.since(job.ready));
        let made = self.decoded.before(&job.request);
        let local = self.engines[job.engine as usize].local.run(&job.request.blocks);
        let own = made.as_ref().filter(|made| made.engine == job.engine);
        let local = own.map_or(local, |made| made.reached_from(local));
        let made = made.filter(|_| self.cluster.node_blocks.0 > 0);
        job.made = made.map(|made| self.store.taken(&job.request, &made, self.fabric.host_of(made.engine)));
        let (hits, ready) = self.load(&job.request, job.engine, local, job.made.as_ref());
        job.ready = ready;
        let prefill = self.cluster.prefill_seconds(&job.request, hits);
        job.answer = Answer { hits, local, prefill, ..job.answer };
        if !job.is_loaded() {
            self.engines[job.engine as usize].hold();
        }
        self.jobs[number as usize] = Some(job);
        self.after(ready, Event::Ready, number);
    }

    /// Writes the blocks to disk that went there from memory.
    fn demote(&mut self) {
        for (host, blocks) in self.store.demoted.drain(..) {
            self.fabric.demote(self.now, host, blocks);
        }
    }

    /// Queues up the pool's blocks of a request behind the engine's own. Returns the number of hits, and when all are
    /// there.
    fn load(&mut self, request: &Request, engine: u32, local: Blocks, made: Option<&Made>) -> (Blocks, Nanos) {
        let missing = &request.blocks[local.0 as usize..];
        if missing.is_empty() || self.cluster.node_blocks.0 == 0 {
            return (local, self.now);
        }
        let mut ready = self.fabric.ask(self.now, missing.len());
        let found = self.find(missing, local, made);
        if found > 0 {
            let from_disk = self.sources.iter().filter(|(_, tier, _)| *tier == Tier::Disk);
            self.report.disk_hit_blocks += from_disk.map(|(_, _, blocks)| blocks).sum::<u64>();
            ready = ready.max(self.fabric.fetch(self.now, engine, &self.sources));
            ready = ready.max(self.fabric.load(self.now, engine, found));
            self.sources.clear();
        }
        (Blocks(local.0 + found), ready)
    }

    /// Notes the places of the blocks that follow the `local` ones without a gap, including those `made` before, and
    /// returns their number.
    fn find(&mut self, blocks: &[BlockHash], Blocks(local): Blocks, made: Option<&Made>) -> u64 {
        // First all look-ups, then the sums: look-ups that do not depend on each other take a fraction of the time.
        self.places.extend(self.store.run(blocks));
        let held = Blocks(local + self.places.len() as u64);
        let reached = made.map_or(held, |made| made.reached_from(held));
        if let Some(made) = made.filter(|_| reached > held) {
            self.sources.push((self.fabric.host_of(made.engine), Tier::Memory, reached.0 - held.0));
            // The pool may hold more behind the blocks made.
            self.places.extend(self.store.run(&blocks[(reached.0 - local) as usize..]));
        }
        let found = self.places.len() as u64 + reached.0 - held.0;
        for place in self.places.drain(..) {
            match self.sources.iter_mut().find(|(host, tier, _)| (*host, *tier) == (place.host(), place.tier())) {
                Some((_, _, blocks)) => *blocks += 1,
                None => self.sources.push((place.host(), place.tier(), 1)),
            }
        }
        found
    }

    /// The next event.
    fn step(&mut self, source: &mut impl Source) {
        let Some(Reverse((at, _, event, number))) = self.events.pop() else { return };
        self.now = at;
        self.fabric.remember(at);
        let Some(job) = self.jobs[number as usize].as_ref() else { return };
        let engine = job.engine as usize;
        match event {
            Event::Ready if job.is_loaded() => self.engines[engine].loaded(job.nth, number),
            Event::Ready => self.compute(number),
            Event::Computed => self.computed(number),
            Event::Answered => self.answered(number, source),
        }
        self.serve(engine);
    }

    /// Lets an engine compute a prompt.
    fn compute(&mut self, number: u32) {
        let Some(job) = self.jobs[number as usize].as_ref() else { return };
        self.engines[job.engine as usize].compute();
        self.fabric.note_wait(Kind::Gpu, self.now.since(job.ready));
        let done = self.fabric.compute(self.now, job.engine, job.answer.prefill);
        self.after(done, Event::Computed, number);
    }

    /// Ends a prompt: the engine and the pool take its blocks, and its answer is decoded.
    fn computed(&mut self, number: u32) {
        let (now, speed) = (self.now, self.cluster.speed);
        let Some(job) = self.jobs[number as usize].as_mut() else { return };
        let engine = &mut self.engines[job.engine as usize];
        engine.computed();
        engine.local.take_in(&job.request, now.duration());
        if self.cluster.node_blocks.0 > 0 {
            let host = |engine: u32| self.fabric.host_of(engine);
            let made = job.made.as_ref().map(|made| (host(made.engine), made));
            let Blocks(stored) = self.store.take_in(&job.request, host(job.engine), made, now);
            self.fabric.save(now, job.engine, stored);
        }
        let token = speed.token_seconds(engine.running.saturating_sub(1));
        (job.answer.first_token, job.answer.token) = (now.duration(), token);
        let decoded = now.after(Nanos::of_seconds(token * f64::from(job.request.output_tokens.saturating_sub(1))));
        self.demote();
        self.after(decoded, Event::Answered, number);
    }

    fn answered(&mut self, number: u32, source: &mut impl Source) {
        let Some(job) = self.jobs[number as usize].take() else { return };
        self.free_jobs.push(number);
        self.engines[job.engine as usize].answered();
        let filled = self.decoded.answered(&job.request, job.engine, self.cluster.block_tokens);
        if self.cluster.node_blocks.0 > 0 {
            self.fabric.save(self.now, job.engine, filled);
        }
        let answer = Answer { done: self.now.duration(), ..job.answer };
        self.report.note(self.cluster, &job.request, &answer);
        if let Some(origin) = job.request.origin {
            source.answered(origin.session, self.now.millis());
        }
    }

    fn finish(mut self) -> Report {
        let started = self.started.unwrap_or_default();
        self.report.ended(self.now.duration());
        self.report.evicted_blocks = self.store.evicted;
        self.report.network_bytes = self.fabric.network_bytes;
        let second = |second: f64| started.after(Nanos::of_seconds(second));
        let part = self.report.throughput();
        self.report.loads = self.fabric.loads(self.now, second(part.from), second(part.until));
        self.report
    }
}
