//! The Azure data set's CSV: `TIMESTAMP,ContextTokens,GeneratedTokens`, with times as `2023-11-16 18:17:03.9799600`, in the later
//! files with `+00:00` at the end.

use super::{Context, Entry, check_count};
use crate::{BlockHash, Millis, Request};

pub(super) fn is_head(line: &[u8]) -> bool {
    line.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"TIMESTAMP,"))
}

pub(super) fn parse(line: &[u8], context: &mut Context) -> Result<Entry, String> {
    if is_head(line) {
        return Ok(Entry::Head { block_tokens: None });
    }
    let text = str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let fields: Vec<&str> = text.splitn(4, ',').map(str::trim).collect();
    let [time, input, output] = fields[..] else {
        return Err("not three fields: TIMESTAMP,ContextTokens,GeneratedTokens".to_owned());
    };
    let at = millis(time).ok_or_else(|| format!("TIMESTAMP = {time:?}: not as in 2023-11-16 18:17:03.9799600"))?;
    let input_tokens = tokens("ContextTokens", input)?;
    let output_tokens = tokens("GeneratedTokens", output)?;
    let count = input_tokens.div_ceil(context.block_tokens);
    check_count(count as usize)?;
    let first = context.blocks_made;
    context.blocks_made += u64::from(count);
    let blocks = (first..context.blocks_made).map(BlockHash).collect();
    Ok(Entry::Request(Request { at: Millis(at), input_tokens, output_tokens, blocks, origin: None }))
}

fn tokens(field: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{field} = {text:?}: allowed is a number from 0 to {}", u32::MAX))
}

/// Milliseconds since 1970 of a time as `2023-11-16 18:17:03.9799600`.
fn millis(text: &str) -> Option<u64> {
    let text = text.strip_suffix("+00:00").unwrap_or(text);
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let sound = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    if !sound || !(1..=days_of(year, month)).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1000 + thousandths(fraction)?)
}

/// Days of a month.
const fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to a date of the Gregorian calendar.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// The first three digits of a fraction.
fn thousandths(digits: &str) -> Option<u64> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.bytes().chain([b'0'; 3]).take(3).fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let cases = [
            ("1970-01-01 00:00:00", 0),
            ("2000-02-29 00:00:00.5", 951_782_400_500),
            ("2023-11-16 18:17:03.9799600", 1_700_158_623_979),
            ("2024-05-10 00:00:00.009930+00:00", 1_715_299_200_009),
        ];
        for (text, expected) in cases {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for day in ["2023-02-28", "2024-02-29", "2000-02-29", "2023-04-30", "2023-12-31"] {
            assert!(millis(&format!("{day} 00:00:00")).is_some(), "{day}");
        }
        for day in ["2023-02-29", "2023-02-30", "2100-02-29", "2023-04-31", "2023-11-31", "2023-12-32", "2023-01-00"] {
            assert_eq!(millis(&format!("{day} 00:00:00")), None, "{day}");
        }
        for bad in ["", "2023-11-16", "2023-13-16 00:00:00", "2023-11-16 24:00:00", "1-1-1 1:1:1", "2023-11-16 1:1:1.x"]
        {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }
}
