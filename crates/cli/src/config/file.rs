//! Reads a configuration file: bytes to a checked layer, or an error that says in which line and what is allowed.

use super::{FieldError, Layer, locate};
use std::{fs::File, io::Read as _, path::Path};

/// A configuration of this many bytes is not one.
const LONGEST_FILE: u64 = 1 << 20;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML, or names something that does not exist.
    #[error("{file}:{line}: {problem}")]
    Malformed {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A field of the file has a value that is not allowed.
    #[error("{file}:{line}: {error}")]
    InFile {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// Field, value and what is allowed.
        error: FieldError,
    },
    /// A flag has a value that is not allowed.
    #[error("{0}")]
    Flag(#[from] FieldError),
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
    parse(&name, &bytes)
}

/// Parses and checks `bytes`; errors call them `file`.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Layer, ConfigError> {
    let malformed = |line, problem| ConfigError::Malformed { file: file.to_owned(), line, problem };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| malformed(locate::line(bytes, error.valid_up_to()), "not UTF-8 text".to_owned()))?;
    let layer: Layer = toml::from_str(text).map_err(|error| explain(file, text, &error))?;
    match layer.clone().resolve() {
        Ok(_) => Ok(layer),
        Err(error) => {
            let line = locate::field(text, &error.path).map_or(1, |at| locate::line(bytes, at.start));
            Err(ConfigError::InFile { file: file.to_owned(), line, error })
        }
    }
}

/// Turns the parser's error into one that names the field and what is allowed.
fn explain(file: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let at = error.span().unwrap_or(0..0);
    let line = locate::line(text.as_bytes(), at.start);
    let malformed = |problem| ConfigError::Malformed { file: file.to_owned(), line, problem };
    let Some(place) = locate::place(text, &at) else {
        return malformed(error.message().trim().to_owned());
    };
    let sections = Layer::sections();
    let Some((_, fields)) = sections.iter().find(|(name, _)| *name == place.section) else {
        let known: Vec<_> = sections.iter().map(|(name, _)| *name).collect();
        return malformed(unknown("section", &place.section, &place.section, &known));
    };
    let Some(key) = &place.key else {
        let error = FieldError { path: place.section, value: place.value, allowed: "a table of fields".into() };
        return ConfigError::InFile { file: file.to_owned(), line, error };
    };
    let path = format!("{}.{key}", place.section);
    match fields.iter().find(|field| field.key == key) {
        Some(field) => {
            let error = FieldError { path, value: place.value, allowed: field.allowed.clone() };
            ConfigError::InFile { file: file.to_owned(), line, error }
        }
        None => malformed(unknown("field", &path, key, &fields.iter().map(|field| field.key).collect::<Vec<_>>())),
    }
}

/// Says that `path` does not exist, and what was meant or what there is.
fn unknown(kind: &str, path: &str, name: &str, known: &[&str]) -> String {
    match locate::closest(name, known) {
        Some(meant) => format!("there is no {kind} {path}: did you mean {meant}?"),
        None => format!("there is no {kind} {path}: allowed is one of {}", known.join(", ")),
    }
}
