//! Lines of a file, one at a time, in one buffer with a bound on a line's length.

use std::io::{self, BufRead};

/// Longest line: fits a request of [`crate::MAX_BLOCKS`] blocks in our own format. The rest of a longer line is
/// skipped.
pub(crate) const MAX_LINE: usize = 17 << 20;

/// The mark U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads lines.
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
}

/// A line without its end.
pub(crate) struct Line<'a> {
    /// The line's number, from 1.
    pub(crate) number: u64,
    /// The line, or its beginning if it is too long.
    pub(crate) text: &'a [u8],
    /// Whether `text` is the whole line.
    pub(crate) is_whole: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) const fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0, bytes: 0 }
    }

    /// Bytes that were read.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The line read last, or its beginning if it is too long.
    pub(crate) fn current(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// The next line that is not blank. A byte order mark at the start of the file is not part of the first line.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let Some(is_whole) = self.fill()? else { return Ok(None) };
            if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            if !is_whole || !self.line.trim_ascii().is_empty() {
                return Ok(Some(Line { number: self.number, text: self.line.trim_ascii(), is_whole }));
            }
        }
    }

    /// Reads a line into the buffer. Returns whether it fitted, or none at the end.
    fn fill(&mut self) -> io::Result<Option<bool>> {
        self.line.clear();
        let (mut any, mut whole) = (false, true);
        loop {
            let read = match self.input.fill_buf() {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if read.is_empty() {
                self.number += u64::from(any);
                return Ok(any.then_some(whole));
            }
            any = true;
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            let room = MAX_LINE - self.line.len();
            whole &= part.len() <= room;
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let used = end.map_or(read.len(), |end| end + 1);
            self.input.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                self.number += 1;
                return Ok(Some(whole));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut lines = Lines::new(io::BufReader::with_capacity(3, text));
        std::iter::from_fn(|| lines.next().unwrap().map(|line| (line.number, line.text.to_vec()))).collect()
    }

    #[test]
    fn lines_are_numbered_and_blank_ones_passed_over() {
        let found = lines(b"one\r\n\n  \ntwo\nthree");
        let expected = [(1, "one"), (4, "two"), (5, "three")].map(|(n, text)| (n, text.as_bytes().to_vec()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_the_longest() {
        let mut text = vec![b'x'; 2 * MAX_LINE];
        text.extend_from_slice(b"\nnext\n");
        let mut lines = Lines::new(&text[..]);
        assert!(!lines.next().unwrap().unwrap().is_whole);
        assert!(lines.line.capacity() <= 2 * MAX_LINE);
        let next = lines.next().unwrap().unwrap();
        assert_eq!((next.number, next.text, next.is_whole), (2, &b"next"[..], true));
    }
}
