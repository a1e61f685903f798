//! The requests that a command works on: those of a trace, or generated ones.

use super::Usage;
use super::engines::EnginesArgs;
use super::presets::{AgentsArgs, Preset};
use super::traces::{Opened, Read, ReadArgs, Stopped};
use crate::memory::Headroom;
use crate::progress;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{error::Error, fs};
use tidepool_sim::cluster::{ClosedLoop, OpenLoop};
use tidepool_trace::{Millis, Report, Request, SessionId, Source, TraceError};
use tidepool_workload::{Requests, Sessions};

/// A trace, or agents to generate one of.
#[derive(Debug, Clone, Args)]
pub(super) struct InputArgs {
    /// File with the trace
    #[arg(value_name = "TRACE", required_unless_present = "preset", conflicts_with = "preset")]
    path: Option<PathBuf>,
    /// Generated requests instead of a trace's
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    #[command(flatten)]
    agents: AgentsArgs,
    /// Use no more than this many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Decides what is random: what is generated, and which engine gets a request
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    read: ReadArgs,
}

impl InputArgs {
    /// The input's name, for people.
    pub(super) fn name(&self) -> String {
        match (&self.path, self.preset) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(preset)) => format!("generated requests ({preset})"),
            (None, None) => String::new(),
        }
    }

    /// The trace's file.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether the input can be opened again with the same content.
    pub(super) fn is_lasting(&self) -> bool {
        self.path.as_ref().is_none_or(|path| fs::metadata(path).is_ok_and(|data| data.is_file()))
    }

    /// Opens the trace, or starts to generate. Once `stop` is set, no further request comes.
    pub(super) fn open(&self, stop: &Arc<AtomicBool>) -> Result<Input, Box<dyn Error>> {
        let most = self.requests.unwrap_or(u64::MAX);
        let (stream, bytes, block_tokens) = match (&self.path, self.preset) {
            (Some(_), None) if self.agents.are_given() => {
                return Err(Usage("--sessions and --live: allowed with --preset, not with a trace".to_owned()).into());
            }
            (Some(path), _) => {
                let trace = self.read.open(path, stop)?;
                let tokens = trace.block_tokens();
                (Stream::Trace(Box::new(trace)), fs::metadata(path).map_or(0, |data| data.len()), tokens)
            }
            (None, Some(_)) if self.read.is_of_files() => {
                return Err(Usage("--format and --strict: allowed with a trace, not with --preset".to_owned()).into());
            }
            (None, Some(preset)) => {
                let agents = self.agents.agents(preset, self.requests.is_some(), self.read.block_tokens(), self.seed);
                let requests = agents.requests().map_err(|error| Usage(error.to_string()))?;
                (Stream::Made(Box::new(requests)), 0, self.read.block_tokens())
            }
            (None, None) => return Err(Usage("a trace, or --preset".to_owned()).into()),
        };
        Ok(Input {
            name: self.name(),
            stream,
            block_tokens,
            bytes,
            most,
            taken: 0,
            error: None,
            headroom: Arc::new(Headroom::new()),
            is_cut: false,
            needs_sessions: None,
            has_sessions: false,
            stop: Arc::clone(stop),
        })
    }
}

/// A stream of requests, with the state of its reading.
pub(super) struct Input {
    name: String,
    stream: Stream,
    pub(super) block_tokens: u32,
    /// Bytes of the file.
    bytes: u64,
    /// The most requests to take, and the number taken.
    most: u64,
    taken: u64,
    /// The error that ended the trace early.
    error: Option<TraceError>,
    headroom: Arc<Headroom>,
    /// Whether an earlier pass over the trace ended for lack of memory.
    is_cut: bool,
    /// The options that do nothing without sessions, and whether a request had a session.
    needs_sessions: Option<&'static str>,
    has_sessions: bool,
    stop: Arc<AtomicBool>,
}

enum Stream {
    Trace(Box<Opened>),
    Made(Box<Requests>),
}

impl Iterator for Input {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.is_over() {
            return None;
        }
        let next = match &mut self.stream {
            Stream::Trace(trace) => match trace.next()? {
                Ok(request) => Some(request),
                // Setting `stop` also made the read fail.
                Err(_) if self.is_stopped() => None,
                Err(ended) => {
                    self.error = Some(ended);
                    None
                }
            },
            Stream::Made(requests) => requests.next(),
        };
        self.take(next)
    }
}

impl Input {
    fn take(&mut self, next: Option<Request>) -> Option<Request> {
        let request = next?;
        self.taken += 1;
        self.has_sessions |= request.origin.is_some();
        self.headroom.take(1 + request.blocks.len() as u64);
        Some(request)
    }

    fn is_over(&self) -> bool {
        self.taken >= self.most || self.headroom.is_low() || self.is_stopped()
    }

    /// Number of requests taken, if memory was too small for more.
    pub(super) fn memory_ended_at(&self) -> Option<u64> {
        self.headroom.is_low().then_some(self.taken)
    }

    /// Limits the input to the requests that memory allowed in an earlier pass.
    pub(super) fn until(mut self, memory_ended_at: Option<u64>) -> Self {
        self.is_cut = memory_ended_at.is_some();
        self.most = self.most.min(memory_ended_at.unwrap_or(u64::MAX));
        self
    }

    /// Whether the user wants it to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Calls `use_it` with every request.
    pub(super) fn each(mut self, mut use_it: impl FnMut(&Request)) -> Result<Read, Box<dyn Error>> {
        let bar = progress::bytes("reading", self.bytes);
        while let Some(request) = self.next() {
            use_it(&request);
            if let Stream::Trace(trace) = &self.stream {
                bar.set_position(trace.bytes());
            }
        }
        bar.finish_and_clear();
        self.finish()
    }

    /// The outcome of the reading. An empty trace is an error.
    pub(super) fn finish(self) -> Result<Read, Box<dyn Error>> {
        let (is_empty, name, stopped) = (self.taken == 0, self.name.clone(), self.stopped());
        let read = self.read(stopped);
        if is_empty && read.is_whole() { Err(format!("{name}: no requests in this trace").into()) } else { Ok(read) }
    }

    /// The requests for engines, which may wait for answers if the loop is closed. Generated agents then react to their
    /// answers; a trace's requests come when the trace says, or later.
    pub(super) fn source(&mut self, engines: &EnginesArgs) -> impl Source + Send {
        self.needs_sessions = engines.needs_sessions();
        let closed = engines.closed_loop;
        let headroom = Arc::clone(&self.headroom);
        let source: Box<dyn Source + Send + '_> = match (&self.stream, closed) {
            (Stream::Made(_), true) => Box::new(Reacting(self)),
            (Stream::Trace(_), true) => Box::new(ClosedLoop::new(self)),
            (_, false) => Box::new(OpenLoop::new(self)),
        };
        Watched { source, headroom }
    }

    /// Notes that engines answered only `requests` of their requests, if memory was too small for more.
    pub(super) fn answered(&mut self, requests: u64) {
        if self.headroom.is_low() {
            self.taken = requests;
        }
    }

    /// The outcome after so many answers, for a run that reports its own end.
    pub(super) fn cut_at(mut self, requests: u64) -> Read {
        self.taken = requests;
        let stopped = self.stopped().filter(|stopped| *stopped == Stopped::Memory);
        self.read(stopped)
    }

    /// The reason outside the input that ended it early.
    fn stopped(&self) -> Option<Stopped> {
        let memory = self.is_cut || self.headroom.is_low();
        if memory { Some(Stopped::Memory) } else { self.is_stopped().then_some(Stopped::Signal) }
    }

    /// The generated agents, which can react to answers.
    fn agents(&mut self) -> Option<&mut Sessions> {
        let is_over = self.is_over();
        match &mut self.stream {
            Stream::Made(requests) if !is_over => Some(requests.sessions()),
            _ => None,
        }
    }

    /// The outcome of the reading, even of an empty trace.
    fn read(self, stopped: Option<Stopped>) -> Read {
        let report = match &self.stream {
            Stream::Trace(trace) => Report { requests: self.taken, ..trace.report().clone() },
            Stream::Made(_) => Report { requests: self.taken, ..Report::default() },
        };
        let mut read = Read::new(&self.name, self.block_tokens, report, self.error).until_stopped(stopped);
        if let Some(what) = self.needs_sessions.filter(|_| self.taken > 0 && !self.has_sessions) {
            read.remark(format!("{}: no request has a session, so {what} nothing", self.name));
        }
        read
    }
}

/// Requests for engines, until memory is too small for the engines' records of them.
struct Watched<'a> {
    source: Box<dyn Source + Send + 'a>,
    headroom: Arc<Headroom>,
}

impl Source for Watched<'_> {
    fn due(&mut self) -> Option<Millis> {
        self.source.due()
    }

    fn next(&mut self) -> Option<Request> {
        self.source.next()
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        self.source.answered(session, at);
    }

    fn gives_up(&mut self) -> bool {
        self.headroom.work();
        self.headroom.is_low()
    }
}

/// Agents that react to their answers.
struct Reacting<'a>(&'a mut Input);

impl Source for Reacting<'_> {
    fn due(&mut self) -> Option<Millis> {
        self.0.agents()?.due()
    }

    fn next(&mut self) -> Option<Request> {
        let next = self.0.agents()?.next();
        self.0.take(next)
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        if let Some(agents) = self.0.agents() {
            agents.answered(session, at);
        }
    }
}
