//! Metrics in the Prometheus text format, version 0.0.4.

use std::fmt::{self, Write as _};
use tidepool_types::{Metric, Value};

/// All of `metrics`. Those of one name stand together under one HELP and TYPE, in the order of the names' first
/// appearance.
pub fn render(metrics: &[Metric]) -> String {
    let mut text = String::with_capacity(metrics.len() * 128);
    for (at, first) in metrics.iter().enumerate() {
        if metrics[..at].iter().any(|earlier| earlier.name == first.name) {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = family(&mut text, first, metrics[at..].iter().filter(|metric| metric.name == first.name));
    }
    text
}

fn family<'a>(text: &mut String, first: &Metric, metrics: impl Iterator<Item = &'a Metric>) -> fmt::Result {
    let name = first.name;
    writeln!(text, "# HELP {name} {}", first.help.replace('\\', "\\\\").replace('\n', "\\n"))?;
    writeln!(text, "# TYPE {name} {}", kind(&first.value))?;
    for Metric { labels, value, .. } in metrics {
        match value {
            Value::Counter(value) | Value::Gauge(value) => writeln!(text, "{name}{} {value}", Labels(labels, None))?,
            Value::Histogram { buckets, count, sum } => {
                for (bound, below) in buckets {
                    writeln!(text, "{name}_bucket{} {below}", Labels(labels, Some(*bound)))?;
                }
                writeln!(text, "{name}_bucket{} {count}", Labels(labels, Some(f64::INFINITY)))?;
                writeln!(text, "{name}_sum{} {sum}", Labels(labels, None))?;
                writeln!(text, "{name}_count{} {count}", Labels(labels, None))?;
            }
        }
    }
    Ok(())
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Counter(_) => "counter",
        Value::Gauge(_) => "gauge",
        Value::Histogram { .. } => "histogram",
    }
}

/// Labels in braces, with a bucket's bound if there is one; nothing where there are none.
struct Labels<'a>(&'a [(&'static str, String)], Option<f64>);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open = '{';
        for (name, value) in self.0 {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(f, "{open}{name}=\"{value}\"")?;
            open = ',';
        }
        if let Some(bound) = self.1 {
            let bound = if bound.is_infinite() { "+Inf".to_owned() } else { bound.to_string() };
            write!(f, "{open}le=\"{bound}\"")?;
            open = ',';
        }
        if open == ',' { f.write_char('}') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(name: &'static str, label: &str, value: u64) -> Metric {
        Metric {
            labels: vec![("kind", label.to_owned())],
            ..Metric::new(name, "Help\\ of\nit.", Value::Counter(value))
        }
    }

    #[test]
    fn a_name_has_one_help_and_one_type_however_its_metrics_are_strewn() {
        let metrics =
            [labelled("a_total", "x", 1), Metric::new("b", "B.", Value::Gauge(7)), labelled("a_total", "y\"\\\n", 2)];
        let expected = "# HELP a_total Help\\\\ of\\nit.\n# TYPE a_total counter\na_total{kind=\"x\"} 1\n\
            a_total{kind=\"y\\\"\\\\\\n\"} 2\n# HELP b B.\n# TYPE b gauge\nb 7\n";
        assert_eq!(render(&metrics), expected);
    }

    #[test]
    fn a_histogram_has_buckets_a_sum_and_a_count() {
        let value = Value::Histogram { buckets: vec![(0.000_01, 1), (0.5, 3)], count: 4, sum: 1.25 };
        let metric = Metric { labels: vec![("op", "get".to_owned())], ..Metric::new("t_seconds", "T.", value) };
        let expected = "# HELP t_seconds T.\n# TYPE t_seconds histogram\n\
            t_seconds_bucket{op=\"get\",le=\"0.00001\"} 1\nt_seconds_bucket{op=\"get\",le=\"0.5\"} 3\n\
            t_seconds_bucket{op=\"get\",le=\"+Inf\"} 4\nt_seconds_sum{op=\"get\"} 1.25\nt_seconds_count{op=\"get\"} 4\n";
        assert_eq!(render(&[metric]), expected);
    }
}
