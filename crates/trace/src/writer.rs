//! Writes a trace in our own format.

use crate::format::own;
use crate::{Request, TraceError};
use std::io::{self, Write};

/// Writes requests to `out`, which should be buffered.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a trace of blocks of `block_tokens` tokens.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(mut out: W, block_tokens: u32) -> Result<Self, TraceError> {
        let head = own::head_line(block_tokens).map_err(io::Error::from)?;
        writeln!(out, "{head}")?;
        Ok(Self { out })
    }

    /// Adds a request.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&mut self, request: &Request) -> Result<(), TraceError> {
        let line = own::line(request).map_err(io::Error::from)?;
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Ends the trace: everything is written when this returns.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<W, TraceError> {
        self.out.flush()?;
        Ok(self.out)
    }
}
