//! The report of a benchmark: a JSON object for machines, a table for people.

use super::{
    Plan,
    compare::Samples,
    goals::{Floor, GOALS, Goal},
    machine::Machine,
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt::Write as _};

/// The values, and the context that they need.
#[derive(Debug)]
pub struct Report {
    machine: Machine,
    plan: Plan,
    values: BTreeMap<(&'static str, Option<&'static str>), f64>,
    comparisons: BTreeMap<String, Vec<Samples>>,
    notes: Vec<String>,
}

impl Report {
    /// A report without values.
    pub fn new(machine: Machine, plan: Plan) -> Self {
        Self { machine, plan, values: BTreeMap::new(), comparisons: BTreeMap::new(), notes: Vec::new() }
    }

    /// Sets the value of a field, or of a `part` of it.
    pub fn set(&mut self, field: &'static str, part: Option<&'static str>, value: f64) {
        self.values.insert((field, part), value);
    }

    /// Adds the samples of each side of a comparison.
    pub fn keep(&mut self, comparison: impl Into<String>, samples: Vec<Samples>) {
        self.comparisons.insert(comparison.into(), samples);
    }

    /// Adds a remark, such as why a field is null.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The comparisons kept so far.
    pub fn comparisons(&self) -> &BTreeMap<String, Vec<Samples>> {
        &self.comparisons
    }

    /// A JSON object with every field, null where not measured, and the context.
    pub fn json(&self) -> Value {
        let mut object = self.per_goal(|goal| self.value(goal).map_or(Value::Null, Value::from));
        object.insert("context".into(), self.context());
        Value::Object(object)
    }

    /// A line for each number: value, floor and verdict.
    pub fn table(&self) -> String {
        let mut text = format!("{:<30} {:>12} {:>14}  {:<8} {}\n", "field", "value", "floor", "verdict", "what");
        for goal in &GOALS {
            let name = goal.part.map_or_else(|| goal.field.to_owned(), |part| format!("{}.{part}", goal.field));
            let value = self.value(goal).map_or_else(|| "-".to_owned(), number);
            let floor = match goal.floor {
                Floor::AtLeast(floor) => format!(">= {}", number(floor)),
                Floor::AtMost(ceiling) => format!("<= {}", number(ceiling)),
            };
            let verdict = self.verdict(goal);
            let _ = writeln!(text, "{name:<30} {value:>12} {floor:>14}  {verdict:<8} {}", goal.what);
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    fn value(&self, goal: &Goal) -> Option<f64> {
        self.values.get(&(goal.field, goal.part)).copied()
    }

    fn verdict(&self, goal: &Goal) -> &'static str {
        let holds = |goal: &Goal| self.value(goal).map(|value| goal.floor.holds(value));
        let other = GOALS.iter().find(|other| Some(other.field) == goal.or).and_then(holds);
        match (holds(goal), other) {
            (None, _) => "-",
            (Some(true), _) => "ok",
            (Some(false), Some(true)) => "ok (or)",
            (Some(false), _) => "below",
        }
    }

    fn context(&self) -> Value {
        let floors = self.per_goal(|goal| match goal.floor {
            Floor::AtLeast(floor) => json!({ "at_least": floor }),
            Floor::AtMost(ceiling) => json!({ "at_most": ceiling }),
        });
        json!({
            "machine": self.machine,
            "seed": self.plan.seed,
            "samples": self.plan.samples,
            "footprint": self.plan.footprint,
            "streams": self.plan.streams,
            "socket_buffer": self.plan.socket_buffer,
            "floors": floors,
            "comparisons": self.comparisons,
            "notes": self.notes,
        })
    }

    /// An object with a value per goal, nested where a field has parts.
    fn per_goal(&self, value: impl Fn(&Goal) -> Value) -> Map<String, Value> {
        let mut object = Map::new();
        for goal in &GOALS {
            match goal.part {
                None => drop(object.insert(goal.field.to_owned(), value(goal))),
                Some(part) => object.entry(goal.field).or_insert_with(|| json!({}))[part] = value(goal),
            }
        }
        object
    }
}

/// A number with its significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::PlantedDelay;
    use std::time::Duration;
    use tidepool_types::{ByteSize, Deadline};

    fn report() -> Report {
        let plan = Plan {
            samples: 5,
            footprint: ByteSize(1 << 30),
            seed: 1,
            streams: 2,
            socket_buffer: None,
            only: Vec::new(),
            planted_delay: PlantedDelay::default(),
            deadline: Deadline::after(Duration::from_secs(1)),
        };
        Report::new(Machine::here(), plan)
    }

    #[test]
    fn what_was_not_measured_is_null_and_every_field_is_there() {
        let json = report().json();
        let fields = [
            "shm_get_vs_memcpy",
            "shm_get_4KiB_keys_per_s",
            "shm_get_4KiB_vs_memcpy",
            "shm_get_4KiB_us",
            "put_vs_memcpy",
            "lookup_keys_per_s",
            "match_prefix_us_5000",
            "catalog_bytes_per_block",
            "put_full_vs_half",
        ];
        for field in fields {
            assert_eq!(json.get(field), Some(&Value::Null), "{field}");
        }
        assert_eq!(json["tcp_get_vs_socket"], json!({ "2MiB": null, "64KiB": null, "4KiB": null }));
        assert_eq!(json.as_object().unwrap().len(), fields.len() + 2);
    }

    #[test]
    fn a_verdict_follows_from_the_floor() {
        let mut report = report();
        report.set("shm_get_vs_memcpy", None, 0.95);
        report.set("tcp_get_vs_socket", Some("4KiB"), 0.3);
        report.set("shm_get_4KiB_us", None, 3.0);
        assert_eq!(report.json()["tcp_get_vs_socket"]["4KiB"], json!(0.3));
        let verdicts: Vec<_> = GOALS.iter().map(|goal| report.verdict(goal)).collect();
        assert_eq!(verdicts[..7], ["ok", "-", "-", "ok", "-", "-", "below"]);
    }

    #[test]
    fn either_of_the_two_4_kib_fields_is_enough() {
        let mut report = report();
        report.set("shm_get_4KiB_keys_per_s", None, 1_500_000.0);
        report.set("shm_get_4KiB_vs_memcpy", None, 0.7);
        let verdicts: Vec<_> = GOALS[1..3].iter().map(|goal| report.verdict(goal)).collect();
        assert_eq!(verdicts, ["ok (or)", "ok"]);
    }
}
