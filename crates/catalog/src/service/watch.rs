//! `Watch`: tells a subscriber all that the catalog knows, and every change of it.

use crate::core::Core;
use crate::metrics;
use crate::subscribers::{Queue, Told, Walk};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidepool_schema::watch_event::Event;
use tidepool_schema::{SIGN_OF_LIFE, WatchCurrent, WatchEvent, WatchGap, WatchStart};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// What a subscriber gets.
pub(crate) type Events = ReceiverStream<Result<WatchEvent, Status>>;

/// Events on their way to the connection. Further ones wait in the subscriber's queue, which is bounded by bytes.
const ON_THE_WAY: usize = 1;

/// Subscribes, until the events are dropped. Must be called inside a runtime, which then drives the subscription.
pub(crate) fn subscribe(core: &Arc<Core>) -> Result<Events, Status> {
    subscribe_with(core, SIGN_OF_LIFE)
}

/// The same, with a sign of life at least as often as this.
pub(crate) fn subscribe_with(core: &Arc<Core>, sign_of_life: Duration) -> Result<Events, Status> {
    let queue = core.subscribers.enter()?;
    let (out, events) = mpsc::channel(ON_THE_WAY);
    let place = Place { core: core.clone(), queue };
    let teller =
        Teller { views: core.directory.versions(), place, told: Told::default(), walk: None, out, sign_of_life };
    tokio::spawn(teller.run());
    Ok(ReceiverStream::new(events))
}

/// A subscriber's place among the others, which it gives back when dropped.
struct Place {
    core: Arc<Core>,
    queue: Arc<Queue>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.core.subscribers.leave(&self.queue);
    }
}

/// The subscriber has gone.
struct Gone;

/// Tells one subscriber. Slow where the subscriber is: nobody else waits for it.
struct Teller {
    place: Place,
    /// Tells when the nodes are other ones.
    views: watch::Receiver<u64>,
    told: Told,
    /// The walk under way.
    walk: Option<Walk>,
    out: mpsc::Sender<Result<WatchEvent, Status>>,
    sign_of_life: Duration,
}

impl Teller {
    async fn run(mut self) {
        if let Ok(()) = self.tell().await {
            let _ = self.out.send(Err(Status::unavailable("the catalog is stopping"))).await;
        }
    }

    /// Goes on until the catalog stops.
    async fn tell(&mut self) -> Result<(), Gone> {
        self.send(Event::Start(WatchStart { incarnation: self.place.core.incarnation })).await?;
        self.tell_nodes().await?;
        self.walk = Some(Walk::new(self.told.streams().clone()));
        let mut due = Instant::now();
        while !self.place.core.is_stopping() {
            self.tell_changes().await?;
            if let Some(walk) = &mut self.walk {
                let found = walk.next(&self.place.core);
                self.walk.take_if(|walk| walk.is_over());
                for page in found {
                    self.send(Event::Changes(page)).await?;
                }
                due = Instant::now();
                tokio::task::yield_now().await;
                continue;
            }
            if due <= Instant::now() {
                self.send(Event::Current(WatchCurrent {})).await?;
                due = Instant::now() + self.sign_of_life;
            }
            self.rest(due).await?;
        }
        Ok(())
    }

    /// Tells of the nodes what the subscriber does not know yet.
    async fn tell_nodes(&mut self) -> Result<(), Gone> {
        let nodes = self.told.update(&self.place.core.directory.view());
        for node in nodes {
            self.send(Event::Node(node)).await?;
        }
        Ok(())
    }

    /// Tells what waits in the queue. When changes are missing, a walk begins; one that is under way is finished first.
    async fn tell_changes(&mut self) -> Result<(), Gone> {
        let queue = &self.place.queue;
        let (changes, missing) = match &self.walk {
            None => queue.take_with_missing(),
            Some(_) => (queue.take(), BTreeSet::new()),
        };
        // A stream is in the view before it hands over its first change, and changes of streams that are over do not count.
        self.tell_nodes().await?;
        for changes in changes {
            if self.told.streams().contains(&changes.stream) {
                self.send(Event::Changes(changes)).await?;
            }
        }
        let missing = &missing & self.told.streams();
        for stream in &missing {
            metrics::add(&self.place.core.counters.subscriber_gaps, 1);
            self.send(Event::Gap(WatchGap { stream: *stream })).await?;
        }
        if !missing.is_empty() {
            self.walk = Some(Walk::new(missing));
        }
        Ok(())
    }

    /// Until there is something to tell, or a sign of life is due.
    async fn rest(&mut self, due: Instant) -> Result<(), Gone> {
        tokio::select! {
            () = self.out.closed() => return Err(Gone),
            () = self.place.queue.ready() => {}
            _ = self.views.changed() => {}
            () = tokio::time::sleep_until(due) => {}
        }
        Ok(())
    }

    async fn send(&self, event: Event) -> Result<(), Gone> {
        self.out.send(Ok(WatchEvent { event: Some(event) })).await.map_err(|_| Gone)
    }
}
