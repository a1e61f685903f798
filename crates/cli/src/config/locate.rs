//! Finds things in the text of a configuration file: the line of a byte, the field around an error, the name that was meant.

use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The part of a file that an error is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The section.
    pub(super) section: String,
    /// The field's key, unless the section itself is wrong.
    pub(super) key: Option<String>,
    /// The value as it was written.
    pub(super) value: String,
}

/// The line of byte `at`, counted from 1.
pub(super) fn line(text: &[u8], at: usize) -> usize {
    1 + text.iter().take(at).filter(|&&byte| byte == b'\n').count()
}

/// The section and field that contain the bytes `at`; none where the text is not TOML.
pub(super) fn place(text: &str, at: &Range<usize>) -> Option<Place> {
    let root = DeTable::parse(text).ok()?;
    let (section, value) = root.get_ref().iter().find(|(key, value)| covers(key.span(), value, at))?;
    let inner = match value.get_ref() {
        DeValue::Table(fields) => fields.iter().find(|(key, value)| covers(key.span(), value, at)),
        _ => None,
    };
    let written = |value: &Spanned<DeValue<'_>>| text.get(value.span()).unwrap_or_default().to_owned();
    Some(Place {
        section: section.get_ref().to_string(),
        key: inner.map(|(key, _)| key.get_ref().to_string()),
        value: written(inner.map_or(value, |(_, value)| value)),
    })
}

/// Whether the bytes `at` start at the key or inside the value.
fn covers(key: Range<usize>, value: &Spanned<DeValue<'_>>, at: &Range<usize>) -> bool {
    let inside = |span: Range<usize>| span.start <= at.start && at.start < span.end.max(span.start + 1);
    let nested = match value.get_ref() {
        DeValue::Table(fields) => fields.iter().any(|(key, value)| covers(key.span(), value, at)),
        _ => false,
    };
    inside(key) || inside(value.span()) || nested
}

/// Where the field at the dotted `path` is set.
pub(super) fn field(text: &str, path: &str) -> Option<Range<usize>> {
    let (section, key) = path.split_once('.')?;
    let root = DeTable::parse(text).ok()?;
    match root.get_ref().get(section)?.get_ref() {
        DeValue::Table(fields) => fields.get_key_value(key).map(|(key, _)| key.span()),
        _ => None,
    }
}

/// The known name that `name` is most likely a misspelling of.
pub(super) fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    let flat = name.replace('_', "-").to_lowercase();
    let (distance, best) = known.iter().map(|known| (edits(&flat, known), *known)).min()?;
    (distance <= 1 + best.len() / 4).then_some(best)
}

/// How many characters must be changed, added, left out or swapped with their neighbour to turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_recognised_and_a_strange_one_is_not() {
        let known = ["capacity", "catalogs", "data-listen", "dir"];
        let cases = [("capcity", Some("capacity")), ("data_listen", Some("data-listen")), ("dri", Some("dir"))];
        for (name, meant) in cases {
            assert_eq!(closest(name, &known), meant, "{name}");
        }
        assert_eq!(closest("colour", &known), None);
        assert_eq!(closest(&"x".repeat(10_000), &known), None);
    }
}
