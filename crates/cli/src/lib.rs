//! The `tidepool` command: runs a pool, talks to one and measures one.
//!
//! The command line ([`commands`]) becomes a checked configuration ([`config`]), and one short file per command does the
//! rest. A [`daemon`] is a catalog or a node with [`logs`] and pages for the outside ([`expose`]). [`mod@bench`] measures the
//! pool against what the machine can do. Nothing here knows how blocks are stored or moved.
//!
//! ```
//! use std::process::ExitCode;
//! assert_eq!(tidepool::run(["tidepool", "config", "show"]), ExitCode::SUCCESS);
//! ```
#![deny(unsafe_code)]

pub mod bench;
pub mod commands;
pub mod config;
pub mod daemon;
pub mod expose;
pub mod keys;
pub mod logs;
pub mod output;
pub mod progress;
pub mod random;

use clap::Parser as _;
use commands::Usage;
use config::{ConfigError, FieldError};
use std::{error::Error, ffi::OsString, process::ExitCode};

/// Runs the command line `args`, of which the first is the program's name. Errors go to standard error.
pub fn run<T: Into<OsString> + Clone>(args: impl IntoIterator<Item = T>) -> ExitCode {
    let result = match commands::Cli::try_parse_from(args) {
        Ok(cli) => cli.command.run(),
        Err(error) => {
            // Help and version are "errors" of clap's that go to standard output and succeed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tidepool: {error}");
            if is_usage(&*error) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Whether the command line is to blame. A bad value in a file is not its fault.
fn is_usage(error: &(dyn Error + 'static)) -> bool {
    error.is::<Usage>() || error.is::<FieldError>() || matches!(error.downcast_ref(), Some(ConfigError::Flag(_)))
}
