//! One node's inventory stream: judges each message, applies it to the index and answers it.
//!
//! The stream of answers drives the stream of messages: the next message is read when the answer to the one before has
//! been taken, so nothing queues up here, and a stream that nobody polls any more is gone.

mod intake;
pub mod progress;
#[cfg(test)]
mod tests;

pub(crate) use intake::Intake;

use crate::core::Core;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tidepool_schema::{InventoryDown, InventoryUp};
use tokio::sync::oneshot;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

/// The answers to one inventory stream.
pub struct Answers {
    inbound: Streaming<InventoryUp>,
    intake: Intake,
    ended: oneshot::Receiver<&'static str>,
    finished: bool,
}

impl Answers {
    /// Admits the node that `hello` introduces.
    pub(crate) fn admit(core: Arc<Core>, hello: InventoryUp, inbound: Streaming<InventoryUp>) -> Result<Self, Status> {
        let (intake, ended) = Intake::admit(core, hello)?;
        Ok(Self { inbound, intake, ended, finished: false })
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<InventoryDown, Status>>> {
        if let Poll::Ready(reason) = Pin::new(&mut self.ended).poll(context) {
            let reason = reason.unwrap_or("the stream was replaced");
            return Poll::Ready(Some(Err(Status::aborted(reason))));
        }
        loop {
            let message = match std::task::ready!(Pin::new(&mut self.inbound).poll_next(context)) {
                Some(Ok(message)) => message,
                Some(Err(_)) | None => return Poll::Ready(None),
            };
            match self.intake.take(message) {
                Ok(Some(answer)) => return Poll::Ready(Some(Ok(answer))),
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
        }
    }
}

impl Stream for Answers {
    type Item = Result<InventoryDown, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.finished {
            return Poll::Ready(None);
        }
        let next = this.next(context);
        this.finished = matches!(next, Poll::Ready(None | Some(Err(_))));
        next
    }
}
