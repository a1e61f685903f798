//! Sizes as `80GiB` and durations as `5s`: one spelling for flags, configuration files and messages.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};
use thiserror::Error;

/// A size or a duration that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnitError {
    /// Not a size.
    #[error("{0:?} is not a size: write a whole number and one of B, KiB, MiB, GiB, TiB, as in 80GiB")]
    Size(String),
    /// More bytes than can be counted.
    #[error("{0:?} is too large: the largest size is 16777215TiB")]
    LargeSize(String),
    /// Not a duration.
    #[error("{0:?} is not a duration: write a whole number and one of us, ms, s, m, h, as in 5s")]
    Span(String),
    /// Longer than can be counted.
    #[error("{0:?} is too long: the longest duration is 5124095576h")]
    LongSpan(String),
}

const SIZE_UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SPAN_UNITS: [(&str, u64); 5] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];

/// Splits `text` into digits and unit, and multiplies. `None` where either is missing, `Some(None)` where the product
/// overflows.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<Option<u64>> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0)?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor)))
}

/// A number of bytes, written as `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bytes = parse(text, &SIZE_UNITS).ok_or_else(|| UnitError::Size(text.to_owned()))?;
        bytes.map(Self).ok_or_else(|| UnitError::LargeSize(text.to_owned()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |&&(_, factor): &&(&str, u64)| self.0 >= factor && self.0.is_multiple_of(factor);
        let (name, factor) = SIZE_UNITS.iter().find(exact).unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

/// A duration, written as `100ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let micros = parse(text, &SPAN_UNITS).ok_or_else(|| UnitError::Span(text.to_owned()))?;
        let micros = micros.ok_or_else(|| UnitError::LongSpan(text.to_owned()))?;
        Ok(Self(Duration::from_micros(micros)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros() as u64;
        let exact = |&&(_, factor): &&(&str, u64)| micros >= factor && micros.is_multiple_of(factor);
        let (name, factor) = SPAN_UNITS.iter().rev().find(exact).unwrap_or(&("us", 1));
        write!(f, "{}{name}", micros / factor)
    }
}

macro_rules! string_conversions {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = UnitError;

            fn try_from(text: String) -> Result<Self, UnitError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

string_conversions!(ByteSize);
string_conversions!(Span);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_durations_read_as_they_are_written() {
        assert_eq!("80GiB".parse(), Ok(ByteSize(80 << 30)));
        assert_eq!("5s".parse(), Ok(Span(Duration::from_secs(5))));
        assert_eq!("100ms".parse::<Span>().unwrap().to_string(), "100ms");
        for bad in ["", "80", "GiB", "80 gib", "-1B", "1.5GiB", "99999999999TiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
        for bad in ["", "5", "s", "5 secs", "-1s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_told_from_what_is_no_size_at_all() {
        assert_eq!("16777215TiB".parse(), Ok(ByteSize(16_777_215 << 40)));
        for large in ["16777216TiB", "99999999999999999999B"] {
            assert_eq!(large.parse::<ByteSize>(), Err(UnitError::LargeSize(large.to_owned())));
        }
        assert!("5124095576h".parse::<Span>().is_ok());
        assert_eq!("5124095577h".parse::<Span>(), Err(UnitError::LongSpan("5124095577h".to_owned())));
        for none in ["99999999999999999999", "TiB", "99999999999999999999X"] {
            assert_eq!(none.parse::<ByteSize>(), Err(UnitError::Size(none.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn every_size_survives_its_spelling(bytes in any::<u64>()) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<Span>();
        }
    }
}
