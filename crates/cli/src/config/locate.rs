//! Positions in the text of a configuration file: the line of a byte, the place of a field, the name that was meant.

use toml::de::{DeTable, DeValue};

/// The line of byte `at`, counted from 1.
pub(super) fn line(text: &[u8], at: usize) -> usize {
    1 + text.iter().take(at).filter(|&&byte| byte == b'\n').count()
}

/// Where the line of byte `at` starts.
pub(super) fn line_start(text: &[u8], at: usize) -> usize {
    text[..at.min(text.len())].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

/// The byte at which the field at the dotted `path` is set.
pub(super) fn field(root: &DeTable<'_>, path: &str) -> Option<usize> {
    let (section, key) = path.split_once('.')?;
    match root.get(section)?.get_ref() {
        DeValue::Table(fields) => fields.get_key_value(key).map(|(key, _)| key.span().start),
        _ => None,
    }
}

/// The known name of which `name` is most likely a misspelling.
pub(super) fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    let flat = name.replace('_', "-").to_lowercase();
    let (distance, best) = known.iter().map(|known| (edits(&flat, known), *known)).min()?;
    (distance <= 1 + best.len() / 4).then_some(best)
}

/// Number of characters to change, add, leave out or swap with their neighbour to turn `a` into `b`.
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
