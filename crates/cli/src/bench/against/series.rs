//! The raw figure of a run's JSON that a field is judged by: timings of the pool's own side, not ratios to memcpy or
//! sockets.

use crate::bench::compare::median;
use serde_json::Value;

/// One figure that is followed over all pairs of a group.
#[derive(Debug)]
pub(super) struct Series {
    /// The field of the JSON object.
    pub(super) field: &'static str,
    /// The part, where a field has several figures.
    pub(super) part: Option<&'static str>,
    place: Place,
}

/// The figure's place in a run's JSON.
#[derive(Debug)]
enum Place {
    /// The median of a lane's timings, which are speeds.
    Lane { comparison: &'static str, lane: &'static str },
    /// The field's own value, of which less is better.
    Less,
}

const fn lane(field: &'static str, part: Option<&'static str>, comparison: &'static str, lane: &'static str) -> Series {
    Series { field, part, place: Place::Lane { comparison, lane } }
}

const LARGE: &str = "shm, 2 MiB blocks";
const SMALL: &str = "shm, 4 KiB blocks";

/// At least one series for every field.
const SERIES: [Series; 13] = [
    lane("shm_get_vs_memcpy", None, LARGE, "get"),
    lane("shm_get_4KiB_keys_per_s", None, SMALL, "get"),
    lane("shm_get_4KiB_vs_memcpy", None, SMALL, "get"),
    lane("shm_get_4KiB_us", None, SMALL, "one get"),
    lane("tcp_get_vs_socket", Some("2MiB"), "tcp, 2MiB blocks", "get, 2MiB blocks"),
    lane("tcp_get_vs_socket", Some("64KiB"), "tcp, 64KiB blocks", "get, 64KiB blocks"),
    lane("tcp_get_vs_socket", Some("4KiB"), "tcp, 4KiB blocks", "get, 4KiB blocks"),
    lane("put_vs_memcpy", None, LARGE, "put"),
    lane("lookup_keys_per_s", None, "exists, keys a second", "exists"),
    lane("match_prefix_us_5000", None, "match_prefix, calls a second", "match_prefix"),
    Series { field: "catalog_bytes_per_block", part: None, place: Place::Less },
    lane("put_full_vs_half", Some("2MiB"), "puts of 2MiB blocks", "full"),
    lane("put_full_vs_half", Some("64KiB"), "puts of 64KiB blocks", "full"),
];

/// The series of `fields`.
pub(super) fn of(fields: &[&str]) -> Vec<&'static Series> {
    SERIES.iter().filter(|series| fields.contains(&series.field)).collect()
}

impl Series {
    /// The name of the field, with the part after a dot.
    pub(super) fn name(&self) -> String {
        self.part.map_or_else(|| self.field.to_owned(), |part| format!("{}.{part}", self.field))
    }

    /// The figure in the JSON of a run, if it is a positive number.
    pub(super) fn figure(&self, run: &Value) -> Option<f64> {
        let figure = match self.place {
            Place::Less => run[self.field].as_f64()?,
            Place::Lane { comparison, lane } => {
                let lanes = run["context"]["comparisons"][comparison].as_array()?;
                let lane = lanes.iter().find(|found| found["name"] == lane)?;
                let timings: Option<Vec<f64>> = lane["per_s"].as_array()?.iter().map(Value::as_f64).collect();
                median(&timings?)
            }
        };
        (figure.is_finite() && figure > 0.0).then_some(figure)
    }

    /// The ratio of `new` to `old` by which new is better: above one, it is faster or takes less.
    pub(super) fn new_over_old(&self, old: f64, new: f64) -> f64 {
        match self.place {
            Place::Lane { .. } => new / old,
            Place::Less => old / new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::goals::GOALS;
    use serde_json::json;

    #[test]
    fn every_number_of_the_benchmark_has_a_series() {
        for goal in GOALS {
            let has =
                |series: &&Series| series.field == goal.field && (goal.part.is_none() || series.part == goal.part);
            assert!(SERIES.iter().any(|series| has(&series)), "{goal:?}");
        }
    }

    #[test]
    fn a_figure_is_the_median_of_the_raw_timings_and_above_one_is_better() {
        let lanes = json!([{"name": "memcpy", "per_s": [1.0]}, {"name": "put", "per_s": [5.0, 2.0, 3.0]}]);
        let run = json!({"put_vs_memcpy": 9.0, "catalog_bytes_per_block": 35.0,
            "context": {"comparisons": {"shm, 2 MiB blocks": lanes}}});
        let [put, memory, get] =
            ["put_vs_memcpy", "catalog_bytes_per_block", "shm_get_vs_memcpy"].map(|field| of(&[field])[0]);
        assert_eq!((put.figure(&run), memory.figure(&run), get.figure(&run)), (Some(3.0), Some(35.0), None));
        assert_eq!((put.new_over_old(2.0, 4.0), memory.new_over_old(2.0, 4.0)), (2.0, 0.5));
    }
}
