//! Reads a configuration file: a checked layer, or all of its problems, by line and with what is allowed.

use super::{Field, FieldError, FieldErrors, Layer, locate};
use std::{collections::HashSet, fs::File, io::Read as _, path::Path};
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

/// The largest configuration file.
const LONGEST_FILE: u64 = 1 << 20;
/// The most problems reported of one file: a file with more is most likely the wrong one.
const MOST_PROBLEMS: usize = 100;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file has problems.
    #[error(transparent)]
    InFile(#[from] Problems),
    /// A flag has a value that is not allowed.
    #[error(transparent)]
    Flag(#[from] FieldErrors),
}

/// The problems of a file, at least one, by line.
#[derive(Debug, thiserror::Error)]
#[error("{}", .problems.iter().map(|problem| problem.told_of(file)).collect::<Vec<_>>().join("\n"))]
pub struct Problems {
    /// The file.
    pub file: String,
    /// The problems, at most a hundred.
    pub problems: Vec<Problem>,
}

/// A problem in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The text: what is wrong, and what is allowed.
    pub text: String,
}

impl Problem {
    fn told_of(&self, file: &str) -> String {
        format!("{file}:{}: {}", self.line, self.text)
    }
}

/// Reads and checks `file`.
pub fn read(file: &Path) -> Result<Layer, ConfigError> {
    let name = file.display().to_string();
    let unreadable = |source| ConfigError::Unreadable { file: name.clone(), source };
    let mut bytes = Vec::new();
    File::open(file).and_then(|open| open.take(LONGEST_FILE + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(unreadable(std::io::Error::other(format!("longer than {LONGEST_FILE} bytes"))));
    }
    Ok(parse(&name, &bytes)?)
}

/// Parses and checks `bytes`; errors call them `file`.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Layer, Problems> {
    let reading = match std::str::from_utf8(bytes) {
        Ok(text) => Reading::of(text),
        Err(error) => {
            Reading { broken: vec![(error.valid_up_to(), "not UTF-8 text".to_owned())], ..Reading::default() }
        }
    };
    let mut found = reading.broken;
    // Invalid TOML often breaks in several ways, which are guesses: of each line, the first is reported.
    found.dedup_by_key(|(at, _)| locate::line_start(bytes, *at));
    let broken: HashSet<usize> = found.iter().map(|(at, _)| locate::line_start(bytes, *at)).collect();
    found.extend(reading.wrong.into_iter().filter(|(at, _)| !broken.contains(&locate::line_start(bytes, *at))));
    if found.is_empty() {
        return Ok(reading.layer);
    }
    found.sort_by_key(|(at, _)| *at);
    let told = |(at, text)| Problem { line: locate::line(bytes, at), text };
    Err(Problems { file: file.to_owned(), problems: found.into_iter().take(MOST_PROBLEMS).map(told).collect() })
}

/// The results of reading a text.
#[derive(Default)]
struct Reading<'t> {
    text: &'t str,
    layer: Layer,
    /// Places that are no TOML, by byte, in order.
    broken: Vec<(usize, String)>,
    /// Values that are not allowed, by byte.
    wrong: Vec<(usize, String)>,
    /// Paths of fields whose value could not be read.
    unread: Vec<String>,
}

type Entry<'t> = (Spanned<DeString<'t>>, Spanned<DeValue<'t>>);

impl<'t> Reading<'t> {
    fn of(text: &'t str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let told =
            |error: toml::de::Error| (error.span().map_or(0, |span| span.start), error.message().trim().to_owned());
        let mut reading = Self { text, broken: errors.into_iter().map(told).collect(), ..Self::default() };
        reading.broken.sort_by_key(|(at, _)| *at);
        root.clone().into_inner().into_iter().for_each(|entry| reading.section(entry));
        let faults = reading.layer.clone().resolve().err().map_or_else(Vec::new, |FieldErrors(faults)| faults);
        for fault in faults {
            // A field that could not be read is not the default that stands in for it.
            if !reading.unread.iter().any(|path| fault.concerns(path)) {
                let at = fault.paths().find_map(|path| locate::field(root.get_ref(), path));
                reading.wrong.push((at.unwrap_or(0), fault.to_string()));
            }
        }
        reading
    }

    fn section(&mut self, (name, value): Entry<'t>) {
        let (at, name, span) = (name.span().start, name.into_inner(), value.span());
        let sections = Layer::sections();
        let Some((_, fields)) = sections.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = sections.iter().map(|(known, _)| *known).collect();
            return self.wrong.push((at, unknown("section", &name, &name, &known)));
        };
        match value.into_inner() {
            DeValue::Table(entries) => entries.into_iter().for_each(|entry| self.field(&name, fields, entry)),
            _ => self.refuse(at, &name, span, "a table of fields"),
        }
    }

    fn field(&mut self, section: &str, fields: &[Field], (key, value): Entry<'t>) {
        let (at, key, span) = (key.span().start, key.into_inner(), value.span());
        let path = format!("{section}.{key}");
        let Some(field) = fields.iter().find(|field| field.key == key) else {
            let known: Vec<_> = fields.iter().map(|field| field.key).collect();
            // The field that was meant has no value to judge.
            self.unread.extend(locate::closest(&key, &known).map(|meant| format!("{section}.{meant}")));
            return self.wrong.push((at, unknown("field", &path, &key, &known)));
        };
        if !self.layer.set(section, &key, value.into()) {
            self.refuse(at, &path, span, &field.allowed);
            self.unread.push(path);
        }
    }

    fn refuse(&mut self, at: usize, path: &str, written: std::ops::Range<usize>, allowed: &str) {
        let value = self.text.get(written).unwrap_or_default();
        self.wrong.push((at, FieldError::new(path, value, allowed).to_string()));
    }
}

/// The message that `path` does not exist, with the name that was meant or those that exist.
fn unknown(kind: &str, path: &str, name: &str, known: &[&str]) -> String {
    match locate::closest(name, known) {
        Some(meant) => format!("there is no {kind} {path}: did you mean {meant}?"),
        None => format!("there is no {kind} {path}: allowed is one of {}", known.join(", ")),
    }
}
