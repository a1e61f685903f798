//! The command line: one variant and one file per command.

mod bench;
mod config;

use clap::{Parser, Subcommand};
use std::error::Error;

/// A shared pool of LLM attention state (KV cache).
///
/// Sizes are written as 80GiB, durations as 5s. Options can also be set in a TOML file given with --config, under the same
/// names; `tidepool config show` prints them all with their defaults.
#[derive(Debug, Parser)]
#[command(name = "tidepool", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the pool against memcpy and raw sockets on this machine
    Bench(bench::BenchArgs),
    /// One process of a benchmark; started by `bench`
    #[command(hide = true)]
    BenchSide(crate::bench::SideArgs),
    /// Check a configuration file, or show what a configuration amounts to
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Bench(args) => bench::run(&args),
            Self::BenchSide(args) => Ok(args.serve()?),
            Self::Config(command) => config::run(&command),
        }
    }
}
