//! The `tidepool` command: runs a pool, talks to one and measures one.
//!
//! The command line ([`commands`]) becomes a checked configuration ([`config`]), and one short file per command does
//! the rest. A [`daemon`] is a catalog or a node with [`logs`] and pages ([`expose`]). [`mod@bench`] compares the
//! pool's speed with the machine's. This crate does not know how blocks are stored or moved.
//!
//! ```
//! assert_eq!(tidepool::run(["tidepool", "config", "show"]), tidepool::Status::SUCCESS);
//! ```
#![deny(unsafe_code)]

pub mod bench;
pub mod commands;
pub mod config;
pub mod daemon;
pub mod expose;
mod files;
pub mod keys;
pub mod logs;
mod memory;
pub mod output;
mod page;
pub mod progress;

use clap::Parser as _;
use commands::Usage;
use config::{ConfigError, FieldErrors};
use std::{error::Error, ffi::OsString, process::ExitCode, process::Termination};

/// A command's exit status; docs/operations/commands.md has the meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u8);

impl Status {
    /// The command did its work.
    pub const SUCCESS: Self = Self(0);
    /// The command failed, and standard error has the reason.
    pub const FAILURE: Self = Self(1);
}

impl Termination for Status {
    fn report(self) -> ExitCode {
        ExitCode::from(self.0)
    }
}

/// Runs the command line `args`, of which the first is the program's name. Errors go to standard error.
pub fn run<T: Into<OsString> + Clone>(args: impl IntoIterator<Item = T>) -> Status {
    let result = match commands::Cli::try_parse_from(args) {
        Ok(cli) => cli.command.run(),
        Err(error) => {
            // Help and version are "errors" of clap's that go to standard output and succeed.
            let _ = error.print();
            return Status(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error.to_string());
            if is_usage(&*error) { Status(2) } else { Status::FAILURE }
        }
    }
}

/// Whether a mistake on the command line is the error. A bad value in a file is not.
fn is_usage(error: &(dyn Error + 'static)) -> bool {
    error.is::<Usage>() || error.is::<FieldErrors>() || matches!(error.downcast_ref(), Some(ConfigError::Flag(_)))
}
