//! The streams of a transport, for what is too large for one frame.

use crate::peers::SILENCE;
use crate::put::reserved::{Reserved, writes_of};
use crate::put::store::Writer;
use tidepool_transfer::conn::ConnError;
use tidepool_transfer::fetch::Source as _;
use tidepool_transfer::ops::{Completion, Op};
use tidepool_transfer::transport::{Health, Transport};
use tidepool_types::Deadline;

impl Writer<'_> {
    /// Writes the blocks of `reserved`, the last part of `part` blocks first.
    pub(in crate::put) fn write_over_streams(
        &mut self,
        reserved: &mut [Reserved<'_, '_>],
        part: usize,
    ) -> Result<(), ConnError> {
        let mut transport = self.peer.transport(self.deadline)?;
        let writes = writes_of(reserved, part).into_iter().map(Op::Write).collect();
        let answers = transport.get().submit(writes, self.deadline);
        let under_way = answers.iter().filter(|answer| answer.is_ok()).count();
        self.await_completions(transport.get(), under_way, reserved);
        match transport.get().health() {
            Health::Down => self.peer.set_down(),
            Health::Up | Health::Degraded => transport.give_back(),
        }
        Ok(())
    }

    /// Only when all writes have completed is the caller's memory the caller's again.
    fn await_completions(
        &self,
        transport: &mut impl Transport,
        mut under_way: usize,
        reserved: &mut [Reserved<'_, '_>],
    ) {
        let mut done: Vec<Completion> = Vec::with_capacity(under_way);
        while under_way > 0 {
            if transport.poll(&mut done, Deadline::after(SILENCE)) == 0 {
                self.peer.set_suspect();
                if self.peer.is_down() || self.deadline.has_passed() {
                    transport.cancel_all();
                }
            }
            under_way -= done.len();
            for completion in done.drain(..) {
                if let Some(reserved) = reserved.get_mut(completion.token as usize) {
                    reserved.complete(completion.outcome);
                }
            }
        }
    }
}
