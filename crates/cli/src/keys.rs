//! Keys on the command line: text as it is typed, or any bytes in hexadecimal.

use serde_json::Value;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
use tidepool_types::Key;

/// The key that `argument` stands for: its own bytes, or its hexadecimal digits if `hex`.
pub fn parse(argument: &OsStr, hex: bool) -> Result<Vec<u8>, String> {
    let bytes = if hex { from_hex(argument.as_bytes())? } else { argument.as_bytes().to_vec() };
    Key::new(&bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn from_hex(digits: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    let shown = String::from_utf8_lossy(digits);
    bytes.ok_or_else(|| format!("{shown:?} is not hexadecimal: with --hex a key is an even number of digits 0-9 a-f"))
}

/// The key for people: text as it is, other bytes as `\xNN`; all in hexadecimal if `hex`.
pub fn show(key: &[u8], hex: bool) -> String {
    match std::str::from_utf8(key) {
        _ if hex => to_hex(key),
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => key.escape_ascii().to_string(),
    }
}

/// Writes the key into the object `into`: text under `key`, or hexadecimal under `key_hex` if `hex` or it is no text.
pub fn write(into: &mut Value, key: &[u8], hex: bool) {
    match std::str::from_utf8(key) {
        Ok(text) if !hex => into["key"] = text.into(),
        _ => into["key_hex"] = to_hex(key).into(),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_text_or_any_bytes_in_hexadecimal() {
        assert_eq!(parse("a/b".as_ref(), false), Ok(b"a/b".to_vec()));
        assert_eq!(parse(OsStr::from_bytes(b"\xff\n"), false), Ok(b"\xff\n".to_vec()));
        assert_eq!(parse("00fF".as_ref(), true), Ok(vec![0, 255]));
        for bad in ["0", "0g", "0x00", "é"] {
            assert!(parse(bad.as_ref(), true).is_err_and(|error| error.contains("not hexadecimal")), "{bad}");
        }
        let long = "k".repeat(1025);
        for bad in ["", &long] {
            assert!(parse(bad.as_ref(), false).is_err_and(|error| error.contains("a key has 1 to 1024 bytes")));
        }
    }

    #[test]
    fn a_shown_key_never_disturbs_a_terminal() {
        let cases = [(&b"a b"[..], "a b"), ("ä".as_bytes(), "ä"), (b"\x1b[2J", "\\x1b[2J"), (b"\xff", "\\xff")];
        for (key, shown) in cases {
            assert_eq!(show(key, false), shown);
        }
        assert_eq!(show(b"\xff\x00", true), "ff00");
    }

    #[test]
    fn json_has_text_or_hexadecimal() {
        let object = |key: &[u8], hex| {
            let mut object = json!({});
            write(&mut object, key, hex);
            object
        };
        assert_eq!(object(b"a\n", false), json!({ "key": "a\n" }));
        assert_eq!(object(b"a", true), json!({ "key_hex": "61" }));
        assert_eq!(object(b"\xff", false), json!({ "key_hex": "ff" }));
    }
}
