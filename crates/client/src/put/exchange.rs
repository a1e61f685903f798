//! The requests and replies of one batch on its way to one node: over a connection, or at the desk of a node in this process.

use crate::peers::{Asked, Peer};
use std::io::IoSlice;
use std::time::Duration;
use tidepool_transfer::conn::{ConnError, Connection};
use tidepool_transfer::direct::Direct;
use tidepool_types::Deadline;
use tidepool_wire::message::{Reply, Request};

/// How long an answer is waited for at least, also past the deadline: a node that is there answers sooner, and hanging up
/// on it would leave it with reservations that it dare not reuse.
const GRACE: Duration = Duration::from_millis(250);

/// Where requests go.
pub(super) enum To<'a> {
    /// Over a connection of the batch's own.
    Socket(&'a mut Connection),
    /// To a node in this process.
    Desk(Box<dyn Direct>),
}

/// A request whose answer is still to be taken.
pub(super) enum Question {
    Sent(Asked),
    Answered(Reply),
}

/// See the file's head.
pub(super) struct Exchange<'a> {
    peer: &'a Peer,
    to: To<'a>,
    /// Writes that have been sent and not been answered.
    written: Vec<Question>,
    deadline: Deadline,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(peer: &'a Peer, to: To<'a>, deadline: Deadline) -> Self {
        Self { peer, to, written: Vec::new(), deadline }
    }

    /// Whether the node is in this process, and a request no round trip.
    pub(super) fn is_desk(&self) -> bool {
        matches!(self.to, To::Desk(_))
    }

    /// Waits until the catalogs know of what has been stored; at the other end of a connection the node has done so itself.
    pub(super) fn announce(&mut self) {
        if let To::Desk(desk) = &mut self.to {
            desk.announce();
        }
    }

    /// One request and its reply, after those of the Writes that went before it.
    pub(super) fn call(&mut self, request: &Request) -> Result<Reply, ConnError> {
        let asked = self.ask(request, &[])?;
        self.await_written()?;
        self.answer(asked)
    }

    pub(super) fn ask(&mut self, request: &Request, payload: &[IoSlice<'_>]) -> Result<Question, ConnError> {
        let until = self.patience();
        match &mut self.to {
            To::Socket(connection) => self.peer.ask(connection, request, payload, until).map(Question::Sent),
            To::Desk(desk) => desk.serve(request).map(Question::Answered),
        }
    }

    pub(super) fn answer(&mut self, question: Question) -> Result<Reply, ConnError> {
        let until = self.patience();
        match (question, &mut self.to) {
            (Question::Answered(reply), _) => Ok(reply),
            (Question::Sent(asked), To::Socket(connection)) => self.peer.answer(connection, asked, until),
            (Question::Sent(_), To::Desk(_)) => Err(self.confused()),
        }
    }

    /// Sends a Write, whose answer is taken later.
    pub(super) fn write(&mut self, request: &Request, payload: &[IoSlice<'_>]) -> Result<(), ConnError> {
        let asked = self.ask(request, payload)?;
        self.written.push(asked);
        Ok(())
    }

    /// How many Writes have not been answered.
    pub(super) fn behind(&self) -> usize {
        self.written.len()
    }

    /// Takes the answers of all Writes so far.
    pub(super) fn await_written(&mut self) -> Result<(), ConnError> {
        for asked in std::mem::take(&mut self.written) {
            match self.answer(asked) {
                Ok(Reply::Written) => {}
                Ok(_) => return Err(self.confused()),
                Err(error) => {
                    // Replies to what was sent after it are still to come.
                    self.close();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn patience(&self) -> Deadline {
        self.deadline.max(Deadline::after(GRACE))
    }

    /// Without all its replies a connection is out of step.
    fn close(&self) {
        if let To::Socket(connection) = &self.to {
            connection.socket().close();
        }
    }

    pub(super) fn confused(&self) -> ConnError {
        self.close();
        ConnError::Unexpected("an answer to another question")
    }
}
