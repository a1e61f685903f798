//! Who listens to the look-ups of the pool's clients.
//!
//! Most look-ups never reach a catalog: clients read the indexes of their own hosts. So clients tell of theirs, all of them, while
//! somebody listens, and the catalog passes on what it is told. A listener that does not keep up loses reports, which are counted
//! and told with the next one; nobody ever waits for it.

use crate::metrics::{self, Counters};
use std::pin::Pin;
use std::time::Instant;
use tidepool_locks::Mutex;
use tidepool_schema::{LookupReport, Missing};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

/// Listeners at a time; further ones are refused.
const MOST: usize = 4;
/// Reports that wait for a listener; with more, the newest are dropped. A report has at most 4 MiB of ids.
const WAITING: usize = 16;

/// What a listener gets.
pub(crate) type Reports = Pin<Box<dyn Stream<Item = Result<LookupReport, Status>> + Send>>;

/// See the file's head.
#[derive(Default)]
pub(crate) struct Recorders {
    /// Short sections: handing a report to each.
    all: Mutex<Vec<Recorder>>,
}

struct Recorder {
    wanted: u32,
    reports: mpsc::Sender<(Instant, LookupReport)>,
    /// Look-ups that are missing since the last report that it got.
    missing: Missing,
}

impl Recorders {
    /// One more listener, until what this returns is dropped.
    pub(crate) fn add(&self, wanted: u32) -> Result<Reports, Status> {
        let mut all = self.all.lock();
        all.retain(|recorder| !recorder.reports.is_closed());
        if all.len() >= MOST {
            return Err(Status::resource_exhausted(format!("{MOST} recorders listen already")));
        }
        let (reports, waiting) = mpsc::channel(WAITING);
        all.push(Recorder { wanted, reports, missing: Missing::default() });
        Ok(Box::pin(ReceiverStream::new(waiting).map(|(since, report)| Ok(aged(report, since)))))
    }

    /// How many listen.
    pub(crate) fn count(&self) -> usize {
        let mut all = self.all.lock();
        all.retain(|recorder| !recorder.reports.is_closed());
        all.len()
    }

    /// What they listen to.
    pub(crate) fn wanted(&self) -> u32 {
        self.all.lock().iter().filter(|recorder| !recorder.reports.is_closed()).fold(0, |all, one| all | one.wanted)
    }

    /// Passes a report on to everybody who listens and has room for it.
    pub(crate) fn pass_on(&self, report: &LookupReport, counters: &Counters) {
        let lookups = report.lengths.len() as u64;
        metrics::add(&counters.reported_lookups, report.lengths.len());
        let now = Instant::now();
        let take = |recorder: &mut Recorder| {
            let missing @ Missing { dropped, untold, unheard } = Missing::of(report).and(recorder.missing);
            match recorder.reports.try_send((now, LookupReport { dropped, untold, unheard, ..report.clone() })) {
                Ok(()) => recorder.missing = Missing::default(),
                Err(TrySendError::Full(_)) => {
                    recorder.missing = missing.and(Missing { unheard: lookups, ..Missing::default() });
                    metrics::add(&counters.dropped_reports, report.lengths.len());
                }
                Err(TrySendError::Closed(_)) => return false,
            }
            true
        };
        self.all.lock().retain_mut(take);
    }

    /// Nobody listens any more.
    pub(crate) fn end(&self) {
        self.all.lock().clear();
    }
}

/// A report that has waited.
fn aged(mut report: LookupReport, since: Instant) -> LookupReport {
    let waited = u32::try_from(since.elapsed().as_millis()).unwrap_or(u32::MAX);
    report.ages.iter_mut().for_each(|age| *age = age.saturating_add(waited));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lookups: usize) -> LookupReport {
        LookupReport { lengths: vec![0; lookups], ages: vec![5; lookups], ..LookupReport::default() }
    }

    async fn next(reports: &mut Reports) -> LookupReport {
        reports.next().await.expect("it goes on").expect("it is no error")
    }

    #[tokio::test]
    async fn a_listener_that_does_not_keep_up_loses_reports_and_is_told_how_many_lookups() {
        let (recorders, counters) = (Recorders::default(), Counters::default());
        recorders.pass_on(&report(7), &counters);
        let mut slow = recorders.add(1).unwrap();
        (0..WAITING + 3).for_each(|_| recorders.pass_on(&report(2), &counters));
        for _ in 0..WAITING {
            let got = next(&mut slow).await;
            assert_eq!((got.lengths.len(), got.dropped), (2, 0));
            assert!(got.ages.iter().all(|age| *age >= 5));
        }
        recorders.pass_on(&LookupReport { dropped: 1, untold: 4, ..report(1) }, &counters);
        assert_eq!(Missing::of(&next(&mut slow).await), Missing { dropped: 1, untold: 4, unheard: 3 * 2 });
        assert_eq!(counters.dropped_reports.load(std::sync::atomic::Ordering::Relaxed), 6);
    }

    #[test]
    fn who_has_gone_is_forgotten_and_there_are_few() {
        let (recorders, counters) = (Recorders::default(), Counters::default());
        assert_eq!((recorders.wanted(), recorders.count()), (0, 0));
        let listeners: Vec<Reports> = (0..MOST as u32).map(|n| recorders.add(n % 2 + 1).unwrap()).collect();
        assert_eq!((recorders.wanted(), recorders.count()), (3, MOST));
        assert!(recorders.add(1).is_err());
        drop(listeners);
        assert_eq!(recorders.wanted(), 0);
        recorders.pass_on(&report(1), &counters);
        assert!(recorders.all.lock().is_empty());
        assert!(recorders.add(1).is_ok());
    }
}
