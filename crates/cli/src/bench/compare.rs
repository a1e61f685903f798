//! Takes samples from several sides in turn, so that other work on the machine hits all sides alike.

use super::{BenchError, serve::Sample, side::Side};
use serde::Serialize;
use std::time::Duration;
use tidepool_types::Deadline;

/// The longest that one sample may take.
const LONGEST_SAMPLE: Duration = Duration::from_secs(60);

/// One line of a comparison: a side, and a variant of its work.
#[derive(Debug)]
pub struct Lane {
    /// Its name in the report.
    pub name: String,
    /// The index of its side; lanes may share one.
    pub side: usize,
    /// Passed to the side with every run.
    pub variant: u64,
}

/// The samples of one lane.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    /// The lane's name.
    pub name: String,
    /// The median, in bytes or operations a second.
    pub median_per_s: f64,
    /// Every timing, in order, as bytes or operations a second.
    pub per_s: Vec<f64>,
}

/// Takes `count` samples of every lane, lane by lane, after a first round that does not count. Calls `step` for every
/// sample.
pub fn alternate(
    sides: &mut [Side],
    lanes: &[Lane],
    count: usize,
    deadline: Deadline,
    mut step: impl FnMut(&str),
) -> Result<Vec<Samples>, BenchError> {
    let mut rates = vec![Vec::with_capacity(count); lanes.len()];
    for round in 0..=count {
        for (lane, rates) in lanes.iter().zip(&mut rates) {
            if deadline.has_passed() {
                return Err(BenchError::OutOfTime);
            }
            step(&lane.name);
            let sample: Sample = sides[lane.side].sample(lane.variant, deadline.capped(LONGEST_SAMPLE))?;
            if round > 0 {
                rates.push(sample.rate());
            }
        }
    }
    let samples =
        |(lane, per_s): (&Lane, Vec<f64>)| Samples { name: lane.name.clone(), median_per_s: median(&per_s), per_s };
    Ok(lanes.iter().zip(rates).map(samples).collect())
}

/// The middle value, or the mean of the two middle ones; zero for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn lanes_take_turns_and_the_first_round_is_not_counted() {
        // Each run of this side does one more than the run before.
        let script = "echo ready; n=0; while read a; do n=$((n+1)); echo done 1 $n; read b; echo ok; done";
        let deadline = Deadline::after(Duration::from_secs(20));
        let mut sides = [Side::spawn("count", Command::new("sh").args(["-c", script]), deadline).unwrap()];
        let lanes = ["a", "b"].map(|name| Lane { name: name.into(), side: 0, variant: 0 });
        let samples = alternate(&mut sides, &lanes, 3, deadline, |_| ()).unwrap();
        assert_eq!(samples[0].per_s, [3.0, 5.0, 7.0]);
        assert_eq!(samples[1].per_s, [4.0, 6.0, 8.0]);
        assert_eq!(samples[1].median_per_s, 6.0);
    }

    #[test]
    fn a_comparison_stops_when_its_time_is_over() {
        let lanes = [Lane { name: "never".into(), side: 0, variant: 0 }];
        let error = alternate(&mut [], &lanes, 3, Deadline::after(Duration::ZERO), |_| ()).unwrap_err();
        assert!(matches!(error, BenchError::OutOfTime), "{error}");
    }
}
