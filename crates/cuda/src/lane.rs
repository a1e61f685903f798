//! A lane: a stream of copies, an event behind them, and a table of pieces for the kernel.

use crate::driver::{Driver, Event, Place, Stream};
use std::sync::Arc;
use std::time::Instant;
use tidepool_transfer::door::{DoorError, REFUSED_FOR, Span, Way};

/// The most pieces of one launch of the kernel.
pub(crate) const TABLE_PLACES: usize = 1 << 16;
const TABLE_BYTES: usize = TABLE_PLACES * size_of::<Place>();

/// A lane, which carries one flight at a time.
#[derive(Debug)]
pub(crate) struct Lane {
    driver: Arc<dyn Driver>,
    pub(crate) stream: Stream,
    pub(crate) event: Event,
    /// The kernel's table, on the host and on the GPU; made when first needed.
    table: Option<Table>,
    /// When to ask for the table's memory again after a refusal.
    refused_until: Option<Instant>,
}

#[derive(Debug)]
struct Table {
    places: Vec<Place>,
    on_gpu: u64,
}

impl Lane {
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Result<Self, DoorError> {
        let stream = driver.stream()?;
        let event = driver.event().inspect_err(|_| driver.end_stream(stream))?;
        Ok(Self { driver: Arc::clone(driver), stream, event, table: None, refused_until: None })
    }

    /// Whether the lane has a table for the kernel.
    pub(crate) fn has_table(&mut self) -> bool {
        let is_refused = self.refused_until.is_some_and(|then| Instant::now() < then);
        if self.table.is_none() && self.driver.has_kernel() && !is_refused {
            let made = Table::new(&*self.driver);
            self.refused_until = made.is_err().then(|| Instant::now() + REFUSED_FOR);
            self.table = made.inspect_err(|error| tracing::warn!(%error, "small pieces are copied slowly: the GPU has no memory for a table of them")).ok();
        }
        self.table.is_some()
    }

    /// Starts a copy of pieces of one length by the kernel.
    pub(crate) fn gather(&mut self, way: Way, spans: &[Span], used: &mut usize) -> Result<(), DoorError> {
        let Some(table) = &mut self.table else {
            return self.driver.copy(way, spans, self.stream);
        };
        let place = |span: &Span| match way {
            Way::In => Place { from: span.host as u64, to: span.device },
            Way::Out => Place { from: span.device, to: span.host as u64 },
        };
        let len = spans.first().map_or(0, |span| span.len);
        let mut rest = spans;
        while !rest.is_empty() {
            let room = TABLE_PLACES - *used;
            if room == 0 {
                // Entries that the stream has not read yet must not change. This is rare: a table has room for a whole
                // batch.
                self.driver.record(self.event, self.stream)?;
                super::gpu::wait_for(&*self.driver, self.event)?;
                *used = 0;
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(room));
            let start = *used;
            table.places[start..start + now.len()].iter_mut().zip(now).for_each(|(to, span)| *to = place(span));
            let on_gpu = table.on_gpu + (start * size_of::<Place>()) as u64;
            let host = table.places[start..].as_mut_ptr().cast();
            let upload = Span { host, device: on_gpu, len: size_of_val(&table.places[start..start + now.len()]) };
            self.driver.copy(Way::In, &[upload], self.stream)?;
            self.driver.gather(on_gpu, now.len(), len, self.stream)?;
            (*used, rest) = (start + now.len(), later);
        }
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.driver.end_event(self.event);
        self.driver.end_stream(self.stream);
        if let Some(table) = &self.table {
            self.driver.unregister(table.places.as_ptr() as usize);
            self.driver.free(table.on_gpu);
        }
    }
}

impl Table {
    fn new(driver: &dyn Driver) -> Result<Self, DoorError> {
        let places = vec![Place { from: 0, to: 0 }; TABLE_PLACES];
        driver.register(places.as_ptr() as usize, TABLE_BYTES, true)?;
        let on_gpu = driver.allocate(TABLE_BYTES).inspect_err(|_| driver.unregister(places.as_ptr() as usize))?;
        Ok(Self { places, on_gpu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    /// A lane that was made while the GPU had no memory left copied small pieces at a third of the speed for good.
    #[test]
    fn a_table_that_could_not_be_had_is_asked_for_again_later() {
        let fake = Arc::new(Fake::default());
        let driver: Arc<dyn Driver> = fake.clone();
        let mut lane = Lane::new(&driver).expect("a lane");
        fake.fail_once_after(0);
        assert!(!lane.has_table(), "the driver has refused");
        assert!(!lane.has_table(), "and is not asked at once");
        lane.refused_until = Some(Instant::now());
        assert!(lane.has_table());
        drop(lane);
        assert_eq!(fake.books(), crate::fake::Books::default());
    }
}
