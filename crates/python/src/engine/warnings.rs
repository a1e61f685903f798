//! Warnings of the Rust side, kept for a connector that logs them where the engine's operators look.
//!
//! Threads that move bytes must not wait for the interpreter, so they leave a line here, and the connector takes the
//! lines once a step. Only the first few lines are kept, with the number of those left out.

use std::fmt::{Debug, Write as _};
use std::sync::Once;
use tidepool_locks::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const MOST: usize = 64;

/// Short sections: leaving and taking lines.
static LINES: Mutex<(Vec<String>, usize)> = Mutex::new((Vec::new(), 0));

/// Keeps warnings from now on, unless the command line has taken them over.
pub(super) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(tracing::subscriber::set_global_default(Keeper)));
}

/// The warnings since the last call.
pub(super) fn take() -> Vec<String> {
    let (mut lines, left_out) = std::mem::take(&mut *LINES.lock());
    if left_out > 0 {
        lines.push(format!("{left_out} more warnings"));
    }
    lines
}

/// A subscriber for warnings and errors of Tidepool's own crates.
struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.is_event() && metadata.target().starts_with("tidepool")
    }

    fn event(&self, event: &Event<'_>) {
        let mut lines = LINES.lock();
        if lines.0.len() >= MOST {
            lines.1 += 1;
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        lines.0.push(line.message + &line.fields);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Spans are not enabled; an id must not be zero.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An event as a sentence: its message, then its fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let (text, before) = match field.name() {
            "message" => (&mut self.message, String::new()),
            name => (&mut self.fields, format!(" {name}=")),
        };
        let _ = write!(text, "{before}{value:?}");
    }
}
