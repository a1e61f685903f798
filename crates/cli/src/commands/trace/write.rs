//! Writes traces. A trace that can be made again is written whole or not at all; a recording is kept as far as it came.

use crate::commands::Usage;
use crate::commands::client::Outcome;
use crate::commands::traces::counted;
use crate::{Status, files, output, progress};
use clap::Args;
use serde_json::json;
use std::fs::{File, remove_file, rename};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{error::Error, io::BufWriter, path::Path, path::PathBuf};
use tidepool_trace::{Request, TraceError, Writer};

/// Where a trace is written to.
#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    /// File to write; one that exists is left alone unless --force is given
    #[arg(long, short, value_name = "FILE", value_parser = files::name())]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl WriteArgs {
    /// Arguments for a command that parses its own.
    pub(super) const fn to(output: PathBuf, force: bool) -> Self {
        Self { output, force, json: false }
    }

    /// Writes a trace to a file beside its place, so that it can replace the trace that it is made of, and then moves
    /// it there. Once `stop` is set, writes none. Returns the number of requests.
    pub(super) fn write(
        &self,
        stop: &AtomicBool,
        block_tokens: u32,
        requests: impl Iterator<Item = Result<Request, String>>,
    ) -> Result<u64, Box<dyn Error>> {
        self.check()?;
        let (path, part) = (&self.output, files::beside(&self.output));
        let file = File::create(&part).map_err(|error| self.blame(&error))?;
        let requests = requests.take_while(|_| !stop.load(Ordering::Relaxed));
        let mut unread = None;
        let requests = requests.map_while(|request| request.map_err(|error| unread = Some(error)).ok());
        let written = progress::waiting("writing", || write_to(file, block_tokens, requests));
        let why = |written| match (written, unread) {
            _ if stop.load(Ordering::Relaxed) => Some("stopped".to_owned()),
            (_, Some(error)) => Some(error),
            (0, None) => Some("no requests".to_owned()),
            _ => None,
        };
        let written = written.map_err(|error| self.blame(&error)).and_then(|written| match why(written) {
            Some(why) => Err(format!("{why}: {} is not written", path.display())),
            None => Ok(written),
        });
        let taken = |written| match path.exists() && !self.force {
            true => Err(format!("{} was written by another process meanwhile: --force replaces it", path.display())),
            false => Ok(written),
        };
        let put = |written| rename(&part, files::place(path)).map(|()| written).map_err(|error| self.blame(&error));
        // An unfinished trace can be made again.
        written.and_then(taken).and_then(put).inspect_err(|_| drop(remove_file(&part))).map_err(Into::into)
    }

    /// Writes requests that come only once: keeps those that came, in a file beside its place until it is whole. Writes
    /// no file if none came.
    pub(super) fn keep(
        &self,
        block_tokens: u32,
        requests: impl Iterator<Item = Result<Request, String>>,
    ) -> Result<u64, Box<dyn Error>> {
        self.check_kept()?;
        let part = cut_off(&self.output);
        let file = File::create(&part).map_err(|error| self.blame(&error))?;
        let kept = |error: &dyn Error| format!("{}; the requests before are in {}", self.blame(error), part.display());
        let written = write_through(file, block_tokens, requests).map_err(|error| kept(&*error))?;
        if written == 0 {
            return Ok(remove_file(&part).map(|()| 0).map_err(|error| self.blame(&error))?);
        }
        Ok(rename(&part, files::place(&self.output)).map(|()| written).map_err(|error| kept(&error))?)
    }

    /// Checks that the file may be written, and can be.
    fn check(&self) -> Result<(), Box<dyn Error>> {
        let path = self.output.display();
        if files::is_in_the_way(&self.output) {
            return Err(Usage(format!("{path} is not a file")).into());
        }
        if self.output.exists() && !self.force {
            return Err(Usage(format!("{path} exists: --force replaces it")).into());
        }
        Ok(files::check(&self.output)?)
    }

    /// As [`Self::check`] for requests that come only once: a cut-off recording may be all there is of it.
    pub(super) fn check_kept(&self) -> Result<(), Box<dyn Error>> {
        self.check()?;
        let part = cut_off(&self.output);
        if part.exists() && !self.force {
            let part = part.display();
            return Err(Usage(format!("{part} exists, from a recording that was cut off: --force replaces it")).into());
        }
        Ok(())
    }

    fn blame(&self, error: &dyn Error) -> String {
        format!("{}: {error}", self.output.display())
    }

    /// Prints what was written.
    pub(super) fn tell(&self, requests: u64) -> Outcome {
        match self.json {
            true => output::line(&json!({ "requests": requests }))?,
            false => output::text(&format!("{}\n", counted(requests, "request", "requests")))?,
        };
        Ok(Status::SUCCESS)
    }
}

/// The place of a recording until it is whole.
fn cut_off(path: &Path) -> PathBuf {
    let mut part = files::place(path).into_os_string();
    part.push(".part");
    part.into()
}

/// Writes requests. Returns their number.
fn write_to(file: File, block_tokens: u32, requests: impl Iterator<Item = Request>) -> Result<u64, TraceError> {
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 18, file), block_tokens)?;
    let mut written = 0;
    for request in requests {
        writer.write(&request)?;
        written += 1;
    }
    writer.finish()?;
    Ok(written)
}

/// Writes requests that come only once. Each is in the file before the next is read; a part of a line is cut off.
fn write_through(
    file: File,
    block_tokens: u32,
    requests: impl Iterator<Item = Result<Request, String>>,
) -> Result<u64, Box<dyn Error>> {
    let mut whole = 0;
    let write = || {
        let mut writer = Writer::new(&file, block_tokens)?;
        let mut written = 0;
        for request in requests {
            whole = file.metadata()?.len();
            writer.write(&request?)?;
            written += 1;
        }
        writer.finish()?;
        Ok(written)
    };
    let written = write();
    // If the cut fails, a partial line stays, which readers skip and count.
    written.inspect_err(|_| drop(file.set_len(whole)))
}
