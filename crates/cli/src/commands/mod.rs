//! The command line: one variant and one file per command.

mod bench;
mod catalog;
mod client;
mod config;
mod daemon;
mod demo;
mod engines;
mod forget;
mod get;
mod html;
mod input;
mod ls;
mod node;
mod plan;
mod presets;
mod put;
mod replay;
mod reports;
mod rm;
mod sim;
mod stat;
mod stoppable;
mod trace;
mod traces;
mod troubles;
mod up;
mod wait;

use crate::Status;
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

/// A mistake on the command line that only the command itself can find.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a pool on this host: a catalog and a node in one process
    Up(up::UpArgs),
    /// Run a catalog: it knows which node holds which block
    Catalog(catalog::CatalogArgs),
    /// Run a node: it gives memory to the pool and serves blocks
    Node(node::NodeArgs),
    /// Store a block from a file or standard input
    Put(put::PutArgs),
    /// Read a block to a file or standard output; exits with 3 if it is not there
    Get(get::GetArgs),
    /// Wait until the pool holds any of some blocks, until --deadline; exits with 3 if it does not
    Wait(wait::WaitArgs),
    /// Remove blocks by key, by regular expression, or all of them
    Rm(rm::RmArgs),
    /// List blocks
    Ls(ls::LsArgs),
    /// Show how the pool, a node or a block is doing
    Stat(stat::StatArgs),
    /// Have the catalogs forget a dead node that will not come back
    Forget(forget::ForgetArgs),
    /// Simulate a cache, or a cluster of engines with a pool, on a trace
    #[command(
        mut_group("ClusterArgs", |flags| flags.requires("engines")),
        mut_group("EnginesArgs", |flags| flags.requires("engines"))
    )]
    Sim(Box<sim::SimArgs>),
    /// Play a trace against a running pool, with real bytes, from emulated engines
    Replay(Box<replay::ReplayArgs>),
    /// Show in a minute what a pool does for coding agents
    Demo(demo::DemoArgs),
    /// Say how much memory is enough for a trace, and what more would buy
    Plan(plan::PlanArgs),
    /// Look at traces of requests, and make traces of others
    #[command(subcommand)]
    Trace(trace::TraceCommand),
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
    /// Runs the command. The exit status tells results that are no error apart, such as "not found".
    pub fn run(self) -> Result<Status, Box<dyn Error>> {
        let done = match self {
            Self::Put(args) => return put::run(&args),
            Self::Get(args) => return get::run(&args),
            Self::Wait(args) => return wait::run(&args),
            Self::Rm(args) => return rm::run(&args),
            Self::Ls(args) => return ls::run(&args),
            Self::Stat(args) => return stat::run(&args),
            Self::Forget(args) => return forget::run(&args),
            Self::Sim(args) => return sim::run(&args),
            Self::Replay(args) => return replay::run(&args),
            Self::Demo(args) => return demo::run(&args),
            Self::Plan(args) => return plan::run(&args),
            Self::Trace(command) => return trace::run(&command),
            Self::Up(args) => up::run(args),
            Self::Catalog(args) => catalog::run(args),
            Self::Node(args) => node::run(args),
            Self::Bench(args) => bench::run(&args),
            Self::BenchSide(args) => Ok(args.serve()?),
            Self::Config(command) => config::run(&command),
        };
        done.map(|()| Status::SUCCESS)
    }
}
