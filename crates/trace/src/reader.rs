//! Reads a trace from a file, line by line.

use crate::format::{Context, Entry};
use crate::lines::{Line, Lines};
use crate::{BLOCK_TOKENS, Format, Malformed, Millis, Report, Request, TraceError};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Settings of a reader.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The format; none detects it from the first line.
    pub format: Option<Format>,
    /// Whether the first malformed line ends the trace.
    pub strict: bool,
    /// Tokens of a block, for traces that do not say.
    pub block_tokens: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { format: None, strict: false, block_tokens: BLOCK_TOKENS }
    }
}

/// The requests of a file, in the order of their times. A reader keeps one line in memory.
pub struct Reader<R> {
    lines: Lines<R>,
    format: Option<Format>,
    strict: bool,
    context: Context,
    report: Report,
    /// The first request, read ahead so that the format and the head are known from the start.
    first: Option<Request>,
    /// The time that counts as zero.
    start: Option<u64>,
    latest: Millis,
    over: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be read, or as [`Reader::new`].
    pub fn open(path: &Path, options: Options) -> Result<Self, TraceError> {
        Self::new(BufReader::with_capacity(1 << 18, File::open(path)?), options)
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads up to the first request.
    ///
    /// # Errors
    /// If the format cannot be told from the first line, a strict reader meets a malformed one, or reading fails.
    pub fn new(input: R, options: Options) -> Result<Self, TraceError> {
        let mut reader = Self {
            lines: Lines::new(input),
            format: options.format,
            strict: options.strict,
            context: Context { block_tokens: options.block_tokens.max(1), blocks_made: 0 },
            report: Report::default(),
            first: None,
            start: None,
            latest: Millis(0),
            over: false,
        };
        reader.first = reader.advance()?;
        Ok(reader)
    }

    /// Tokens of a block.
    pub const fn block_tokens(&self) -> u32 {
        self.context.block_tokens
    }

    /// The format; none if the file is empty.
    pub const fn format(&self) -> Option<Format> {
        self.format
    }

    /// The reader's findings so far.
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// Bytes of the file that were read so far.
    pub const fn bytes(&self) -> u64 {
        self.lines.bytes()
    }

    fn advance(&mut self) -> Result<Option<Request>, TraceError> {
        while let Some(Line { number, text, is_whole }) = self.lines.next()? {
            let format = match self.format {
                Some(format) => format,
                None => *self.format.insert(detect(text)?),
            };
            let is_head = format.is_head(text);
            let entry = match is_whole {
                true => format.parse(text, &mut self.context),
                false => Err(format!("longer than {} bytes", crate::lines::MAX_LINE)),
            };
            match entry.and_then(|entry| self.accept(entry)) {
                Ok(Some(request)) => {
                    self.check_lengths(number, &request);
                    return Ok(Some(self.in_time(request)));
                }
                Ok(None) => {}
                Err(reason) => {
                    let what = Malformed::new(number, reason, self.lines.current());
                    if is_head {
                        // The blocks' size is unknown, so every later request would be wrong.
                        return Err(TraceError::Malformed(what));
                    }
                    self.malformed(what)?;
                }
            }
        }
        Ok(None)
    }

    /// Returns the entry's request. A head must agree with what the reader knows already.
    fn accept(&mut self, entry: Entry) -> Result<Option<Request>, String> {
        let known = self.context.block_tokens;
        match entry {
            Entry::Request(request) => return Ok(Some(request)),
            Entry::Head { block_tokens: Some(tokens) } if self.report.requests == 0 => {
                self.context.block_tokens = tokens
            }
            Entry::Head { block_tokens: Some(tokens) } if tokens != known => {
                return Err(format!("block_tokens = {tokens}: the requests before had blocks of {known}"));
            }
            Entry::Head { .. } => {}
        }
        Ok(None)
    }

    fn malformed(&mut self, what: Malformed) -> Result<(), TraceError> {
        self.report.malformed += 1;
        let first = self.report.first_malformed.get_or_insert(what);
        if self.strict { Err(TraceError::Malformed(first.clone())) } else { Ok(()) }
    }

    /// Counts a request whose number of blocks does not fit its tokens. A last block that is not full may be named or
    /// not.
    fn check_lengths(&mut self, line: u64, request: &Request) {
        let (tokens, each, blocks) = (request.input_tokens, self.context.block_tokens, request.blocks.len());
        if (tokens / each..=tokens.div_ceil(each)).contains(&u32::try_from(blocks).unwrap_or(u32::MAX)) {
            return;
        }
        self.report.contradictory += 1;
        self.report.first_contradictory.get_or_insert_with(|| {
            let plural = if blocks == 1 { "" } else { "s" };
            let reason = format!("{blocks} block{plural} of {each} tokens for an input of {tokens}");
            Malformed { line, reason, start: String::new() }
        });
    }

    /// Counts times from the start, and never back.
    fn in_time(&mut self, mut request: Request) -> Request {
        let start = *self.start.get_or_insert(match self.format {
            Some(format) if format.has_dates() => request.at.0,
            _ => 0,
        });
        let at = request.at.0.checked_sub(start).map(Millis);
        let ordered = at.filter(|at| *at >= self.latest);
        self.report.backwards += u64::from(ordered.is_none());
        self.report.requests += 1;
        self.latest = ordered.unwrap_or(self.latest);
        request.at = self.latest;
        request
    }
}

fn detect(line: &[u8]) -> Result<Format, TraceError> {
    let start = || String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
    Format::detect(line).ok_or_else(|| TraceError::UnknownFormat(start()))
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        if self.over {
            return None;
        }
        let next = self.advance().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}
