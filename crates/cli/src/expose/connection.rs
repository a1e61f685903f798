//! One connection: reads a request's head, writes the answer, and lets the client close first.

use super::{LONGEST_HEAD, PATIENCE, Pages, request};
use rustix::event::PollFlags;
use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};
use tidepool_types::Deadline;

pub(super) struct Connection {
    stream: TcpStream,
    until: Deadline,
    state: State,
}

enum State {
    /// The head so far.
    Reading(Vec<u8>),
    /// The answer, and the number of bytes sent.
    Writing(Vec<u8>, usize),
    /// The answer is out. Further input is discarded: closing a socket with unread bytes would take the answer back.
    Closing,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, until: Deadline::after(PATIENCE), state: State::Reading(Vec::new()) }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn wants(&self) -> PollFlags {
        match self.state {
            State::Reading(_) | State::Closing => PollFlags::IN,
            State::Writing(..) => PollFlags::OUT,
        }
    }

    pub(super) fn time_left(&self) -> Duration {
        self.until.remaining()
    }

    pub(super) fn is_within_time(&self) -> bool {
        !self.until.has_passed()
    }

    /// Does the work that needs no waiting. Returns false once the connection is over.
    pub(super) fn advance(&mut self, pages: &Pages<'_>) -> bool {
        match self.step(pages) {
            Ok(open) => open,
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    fn step(&mut self, pages: &Pages<'_>) -> io::Result<bool> {
        match &mut self.state {
            State::Reading(head) => {
                let mut piece = [0; 1024];
                let read = self.stream.read(&mut piece)?;
                head.extend_from_slice(&piece[..read]);
                if read == 0 && head.is_empty() {
                    return Ok(false);
                }
                let complete = request::is_complete(head) || read == 0;
                if complete || head.len() > LONGEST_HEAD {
                    self.state = State::Writing(request::answer(head, pages), 0);
                }
                Ok(true)
            }
            State::Writing(answer, sent) => {
                *sent += self.stream.write(&answer[*sent..])?;
                if *sent == answer.len() {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = State::Closing;
                }
                Ok(true)
            }
            State::Closing => Ok(self.stream.read(&mut [0; 4096])? > 0),
        }
    }
}
