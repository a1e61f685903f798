//! The desk for clients in the node's own process: a client's puts are served on its own thread.

use crate::node::Shared;
use crate::serving::{Answer, Writes};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tidepool_transfer::conn::ConnError;
use tidepool_transfer::direct::{Direct, InProcess};
use tidepool_types::{ClientId, Epoch};
use tidepool_wire::message::{Refusal, Reply, Request, ReserveAs, Terms};

/// See the file's head. It does not keep the node.
pub(crate) struct Desks {
    pub(crate) epoch: Epoch,
    pub(crate) node: Weak<Shared>,
}

impl InProcess for Desks {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, client: ClientId) -> Option<Box<dyn Direct>> {
        let shared = self.node.upgrade()?;
        let process = shared.processes.here(client)?;
        let space = Arc::clone(shared.spaces.in_process());
        let writes = Writes::new(Arc::clone(&shared), space, client, Some(process));
        Some(Box::new(Desk { shared, writes, sealing: None }))
    }
}

/// One client's puts.
struct Desk {
    shared: Arc<Shared>,
    writes: Writes,
    /// How long seals that the catalogs have not been told of have taken.
    sealing: Option<Duration>,
}

impl Direct for Desk {
    fn serve(&mut self, request: &Request) -> Result<Reply, ConnError> {
        let Self { shared, writes, sealing } = self;
        let (started, is_wanted) = (Instant::now(), || !shared.stop.is_set());
        if !is_wanted() {
            return Err(ConnError::Closed);
        }
        let answer = match request {
            Request::Reserve(reserve) => writes.reserve(reserve, &Terms::default(), &is_wanted),
            Request::ReserveAs(ReserveAs { terms, reserve }) => writes.reserve(reserve, terms, &is_wanted),
            Request::Seal(seal) => writes.seal(seal),
            Request::Abort(slots) => writes.abort(slots),
            _ => return Err(ConnError::Unexpected("a request that is not part of a put")),
        };
        match answer {
            Answer::Reply(reply @ Reply::Sealed(_)) => {
                *sealing.get_or_insert_default() += started.elapsed();
                Ok(reply)
            }
            Answer::Reply(reply) => {
                shared.counters.observe(&reply, started.elapsed());
                Ok(reply)
            }
            Answer::Refuse(reason, message) => Err(ConnError::Refused(Refusal { reason, message })),
            Answer::None => Err(ConnError::Unexpected("no answer")),
        }
    }

    fn announce(&mut self) {
        let started = Instant::now();
        self.writes.announce();
        if let Some(sealing) = self.sealing.take() {
            self.shared.counters.seal_latency.observe(sealing + started.elapsed());
        }
    }
}
