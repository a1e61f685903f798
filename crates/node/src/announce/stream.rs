//! One connection to one catalog: what goes up, and the task that hears what comes down.

use super::AnnounceConfig;
use super::claims::{Claim, Claims};
use super::driver::Driver;
use super::link::{Link, Problem};
use std::sync::Arc;
use std::time::Duration;
use tidepool_schema::{
    self as wire, Heartbeat, Hello, InventoryDown, InventoryUp, inventory_down, inventory_up::Message,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Messages that wait to be written to the socket; with more, the sender waits.
const QUEUE: usize = 8;

/// An open stream. Dropping it closes the connection.
pub(super) struct Stream {
    pub(super) up: mpsc::Sender<InventoryUp>,
    listener: JoinHandle<()>,
    _claim: Claim,
}

impl Stream {
    /// Connects, asks which catalog it is and, unless another stream leads to the same one, says hello.
    pub(super) async fn open(
        address: &str,
        hello: wire::NodeInfo,
        link: Arc<Link>,
        claims: &Arc<Claims>,
        config: &AnnounceConfig,
    ) -> Result<Self, Problem> {
        let (up, messages) = mpsc::channel(QUEUE);
        let connect = async {
            let endpoint = wire::endpoint(address, config.connect_within);
            let channel = match endpoint {
                Ok(endpoint) => endpoint.connect().await,
                Err(error) => Err(error),
            };
            let mut client = wire::client(channel.map_err(|error| Problem::new(chain(&error)))?);
            let incarnation = client.stat(wire::StatRequest {}).await.map_err(refused)?.into_inner().incarnation;
            let claim = claims.claim(incarnation, address).map_err(Problem::same_as)?;
            let ack_bound_millis = u32::try_from(config.ack_bound.as_millis()).unwrap_or(u32::MAX);
            let hello = Message::Hello(Hello { node: Some(hello), ack_bound_millis });
            let _ = up.send(InventoryUp { message: Some(hello) }).await;
            let down = client.inventory(ReceiverStream::new(messages)).await.map_err(refused)?;
            Ok((claim, down.into_inner()))
        };
        let opened = tokio::time::timeout(config.connect_within, connect).await;
        let (claim, down) = opened.map_err(|_| Problem::new("no answer"))??;
        let listener = tokio::spawn(listen(down, link));
        Ok(Self { up, listener, _claim: claim })
    }

    /// Sends one message, waiting for room until `within` has passed; false when there was none or the stream is closed.
    pub(super) fn send(&self, driver: &Driver, message: Message, within: Duration) -> bool {
        let message = InventoryUp { message: Some(message) };
        match self.up.try_send(message) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(message)) => {
                let sent = async { tokio::time::timeout(within, self.up.send(message)).await };
                matches!(driver.drive(sent), Ok(Ok(())))
            }
        }
    }

    /// Says goodbye and waits a moment for the catalog to take note.
    pub(super) fn part(self, driver: &Driver, within: Duration) {
        let Self { up, listener, _claim } = self;
        let goodbye = InventoryUp { message: Some(Message::Goodbye(wire::Goodbye {})) };
        driver.drive(async {
            let abort = listener.abort_handle();
            let taken = async {
                let _ = up.send(goodbye).await;
                drop(up);
                let _ = listener.await;
            };
            let _ = tokio::time::timeout(within, taken).await;
            abort.abort();
        });
    }

    /// Ends the stream at once.
    pub(super) fn close(self) {
        self.listener.abort();
    }
}

/// A heartbeat.
pub(super) fn heartbeat(latest: u64, echo: u64, used_bytes: u64) -> Message {
    Message::Heartbeat(Heartbeat { latest, echo, used_bytes })
}

/// Passes on what the catalog says until the stream ends.
async fn listen(mut down: Streaming<InventoryDown>, link: Arc<Link>) {
    let end = loop {
        let message = match down.message().await {
            Ok(Some(message)) => message,
            Ok(None) => break "it closed the stream".to_owned(),
            Err(status) => break format!("the stream ended: {}", status.message()),
        };
        match message.message {
            Some(inventory_down::Message::Ack(ack)) => link.acknowledge(ack),
            Some(inventory_down::Message::Resync(resync)) => {
                tracing::warn!(reason = resync.reason, "a catalog asks for a snapshot");
                link.ask_for_snapshot(&resync);
            }
            None => {}
        }
    };
    link.take_down(&end);
}

fn refused(status: Status) -> Problem {
    Problem { name_in_use: status.code() == tonic::Code::AlreadyExists, ..Problem::new(status.message()) }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
