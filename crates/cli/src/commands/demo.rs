//! `tidepool demo`: shows in a minute what a pool does for coding agents. It plays the same small workload without any
//! cache, with the engines' own caches, and with a pool that lives as long as the demo.

use super::client::{Outcome, PARTIAL};
use super::html::{HtmlArgs, times};
use super::traces::counted;
use super::troubles::{Troubles, wrong_bytes};
use crate::config::{NodeOptions, Value as _};
use crate::daemon::stop_flag;
use crate::page::Page;
use crate::{Status, output, progress};
use clap::Args;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::ClientConfig;
use tidepool_node::{Node, NodeConfig};
use tidepool_replay::{Partial, Progress, Settings};
use tidepool_sim::Blocks;
use tidepool_sim::cluster::{Cluster, Report};
use tidepool_types::ByteSize;
use tidepool_workload::{Agents, Arrivals};

/// Bytes of a token in the demo; real tokens have about 128 KiB.
const TOKEN_BYTES: u64 = 64;
/// Blocks of an engine's own cache: fewer than a session has.
const LOCAL: Blocks = Blocks(40);
/// The prefix of a demo's directory; the number of its process follows.
const DIRECTORY: &str = "tidepool-demo-";
/// Number of engines.
const ENGINES: u32 = 2;

/// How long a demo, and where to.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Agents' sessions in all
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    sessions: u64,
    /// How much faster than in reality time passes
    #[arg(long, value_name = "NUMBER", default_value_t = 100.0, value_parser = super::engines::pace)]
    pace: f64,
    /// Memory for the pool
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = capacity)]
    capacity: ByteSize,
    /// Where files in memory go; what is missing of it is made, as for a node, and removed in the end
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    dir: PathBuf,
    #[command(flatten)]
    html: HtmlArgs,
}

/// A capacity that a node may have.
fn capacity(text: &str) -> Result<ByteSize, String> {
    let size = text.parse().map_err(|_| format!("allowed is {}", ByteSize::ALLOWED))?;
    let resolved = NodeOptions { capacity: Some(size), ..NodeOptions::default() }.resolve();
    let errors = resolved.err().map_or_else(Vec::new, |errors| errors.0);
    // Other faults in a node's settings on this host are not the demo's.
    match errors.into_iter().find(|error| error.path == "node.capacity") {
        Some(error) => Err(format!("allowed is {}", error.allowed)),
        None => Ok(size),
    }
}

/// One way to serve the workload.
struct Arm {
    name: &'static str,
    report: Report,
    /// Remarks for the reader.
    remarks: Vec<String>,
    /// Whether a notable part of its requests failed.
    is_partial: bool,
}

/// Why there is no comparison.
enum Ended {
    /// The demo was stopped, or its pool is gone.
    Early(&'static str),
    Failed(String),
}

/// Runs the command.
pub(super) fn run(args: &DemoArgs) -> Outcome {
    args.html.check(None)?;
    let (stop, pool) = (stop_flag()?, Pool::start(args)?);
    output::text(&format!(
        "{} of coding agents on {ENGINES} emulated engines, {} times as fast as in reality\n",
        counted(args.sessions, "session", "sessions"),
        args.pace
    ))?;
    output::text(&row(HEAD.map(str::to_owned)))?;
    let arms = match compare(args, &pool, &stop) {
        Ok(arms) => arms,
        Err(Ended::Failed(error)) => return Err(error.into()),
        Err(Ended::Early(why)) => {
            output::complain(why);
            return Ok(Status(PARTIAL));
        }
    };
    args.html.write(|| page(args, &arms))?;
    if let Some(path) = &args.html.html {
        output::text(&format!("page: {}\n", path.display()))?;
    }
    Ok(if arms.iter().any(|arm| arm.is_partial) { Status(PARTIAL) } else { Status::SUCCESS })
}

/// Plays all arms, and prints each when it ends.
fn compare(args: &DemoArgs, pool: &Pool, stop: &Arc<AtomicBool>) -> Result<Vec<Arm>, Ended> {
    // The first two only wait for emulated GPUs, so they run together. An arm that moves bytes has the machine to
    // itself.
    let [none, own] = progress::waiting("without the pool", || {
        let arms = [("no cache at all", Blocks(0)), ("engines' own caches", LOCAL)];
        thread::scope(|scope| {
            let playing = arms.map(|(name, local)| scope.spawn(move || play(args, (name, local), None, stop)));
            let panicked = |_| Err(Ended::Failed("a thread of the demo panicked".to_owned()));
            playing.map(|arm| arm.join().unwrap_or_else(panicked))
        })
    });
    let mut arms = Vec::new();
    for arm in [none, own] {
        arms.push(show(arm?)?);
    }
    let with = progress::waiting("with the pool", || play(args, ("with the pool", LOCAL), Some(pool.client()), stop));
    arms.push(show(with?)?);
    Ok(arms)
}

/// A pool that ends, with its files, when dropped.
struct Pool {
    config: ClientConfig,
    _node: Node,
    _catalog: Server,
    _dir: Directory,
}

/// A directory that is removed when dropped, with the directories around it that were made for it.
struct Directory {
    path: PathBuf,
    /// The directories around it, from the inside out.
    around: Vec<PathBuf>,
}

impl Directory {
    /// Makes the directory, and the missing ones around it.
    fn make(path: PathBuf) -> Result<Self, String> {
        let missing = |around: &&Path| !around.as_os_str().is_empty() && !around.exists();
        let around = path.ancestors().skip(1).take_while(missing).map(Path::to_owned).collect();
        let made = Self { path, around };
        std::fs::create_dir_all(&made.path).map_err(|error| format!("{}: {error}", made.path.display()))?;
        Ok(made)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The directory is empty, except for files of a node that was killed.
        let _ = std::fs::remove_dir_all(&self.path);
        for around in &self.around {
            // A directory with other programs' files stays.
            let _ = std::fs::remove_dir(around);
        }
    }
}

impl Pool {
    fn start(args: &DemoArgs) -> Result<Self, Box<dyn Error>> {
        remove_leftovers(&args.dir);
        let dir = args.dir.join(format!("{DIRECTORY}{}", std::process::id()));
        let directory = Directory::make(dir.clone())?;
        let catalog = Server::start(CatalogConfig { settle: Duration::ZERO, ..CatalogConfig::default() })?;
        let catalogs = vec![catalog.address().to_string()];
        let (capacity, small) = (args.capacity, NodeConfig::small("demo"));
        let node = Node::start(NodeConfig { dir: dir.clone(), catalogs: catalogs.clone(), capacity, ..small })?;
        let config = ClientConfig { dir, catalogs, ..ClientConfig::default() };
        Ok(Self { config, _node: node, _catalog: catalog, _dir: directory })
    }

    fn client(&self) -> ClientConfig {
        self.config.clone()
    }
}

/// Removes the directories of demos that were killed: those named after a process that has ended.
fn remove_leftovers(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix(DIRECTORY)).and_then(|rest| rest.parse::<u32>().ok());
        if number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
            drop(Directory { path: entry.path(), around: Vec::new() });
        }
    }
}

/// Prints the row of an arm.
fn show(arm: Arm) -> Result<Arm, Ended> {
    output::text(&row(cells(&arm))).map_err(|error| Ended::Failed(error.to_string()))?;
    arm.remarks.iter().for_each(|remark| output::complain(remark));
    Ok(arm)
}

fn play(
    args: &DemoArgs,
    (name, local_blocks): (&'static str, Blocks),
    pool: Option<ClientConfig>,
    stop: &Arc<AtomicBool>,
) -> Result<Arm, Ended> {
    let live = (args.sessions as f64 / 2.0).max(1.0);
    let agents = Agents { sessions: Some(args.sessions), arrivals: Arrivals::Live(live), ..Agents::codex() };
    let block_bytes = TOKEN_BYTES * u64::from(agents.block_tokens);
    let cluster = Cluster {
        engines: ENGINES,
        batch: 16,
        local_blocks,
        block_bytes,
        block_tokens: agents.block_tokens,
        node_blocks: Blocks(0),
        ..Cluster::default()
    };
    let settings = Settings { cluster, pool, pace: args.pace, name: "demo".to_owned() };
    let failed = |error: &dyn Error| Ended::Failed(error.to_string());
    let sessions = agents.sessions().map_err(|error| failed(&error))?;
    let progress = Progress::until(Arc::clone(stop));
    let played = tidepool_replay::run(&settings, sessions, &progress).map_err(|error| failed(&*error))?;
    let troubles = Troubles::of(&settings, &progress, &played);
    match (troubles.wrong(), played.partial) {
        (0, None) => {}
        (0, Some(Partial::Stopped)) => return Err(Ended::Early("stopped")),
        (0, Some(Partial::PoolGone)) => return Err(Ended::Early("the pool took nothing any more")),
        (wrong, _) => return Err(Ended::Failed(wrong_bytes(wrong))),
    }
    let remarks = troubles.remarks().iter().map(|remark| format!("{name}: {remark}")).collect();
    let is_partial = troubles.why_partial().is_some();
    Ok(Arm { name, report: played.report, remarks, is_partial })
}

/// The cells of an arm.
fn cells(arm: &Arm) -> [String; 6] {
    let Arm { name, report, .. } = arm;
    let seconds = |micros: u64| format!("{:.2} s", micros as f64 / 1e6);
    [
        (*name).to_owned(),
        format!("{:.1} %", 100.0 * report.tally.hit_rate()),
        seconds(report.first_token.at(0.5)),
        seconds(report.first_token.at(0.99)),
        seconds(report.end_to_end.at(0.5)),
        format!("{:.0} s", report.computed_seconds),
    ]
}

const HEAD: [&str; 6] = ["", "hit rate", "first token", "p99", "end to end", "GPU time"];

fn row([name, rest @ ..]: [String; 6]) -> String {
    let rest: String = rest.iter().map(|cell| format!("{cell:>12}")).collect();
    format!("{name:<20}{rest}\n")
}

fn page(args: &DemoArgs, arms: &[Arm]) -> Page {
    let rows: Vec<Vec<String>> = arms.iter().map(|arm| cells(arm).to_vec()).collect();
    let firsts: Vec<_> = arms.iter().map(|arm| (arm.name, &arm.report.first_token)).collect();
    let plot = times("Time to first token", &firsts);
    let what = format!(
        "{} of coding agents on {ENGINES} emulated engines, round-robin, {} times as fast as in reality. \
         Every byte that came from the pool was checked.",
        counted(args.sessions, "session", "sessions"),
        args.pace
    );
    let remarks = arms.iter().flat_map(|arm| &arm.remarks).fold(what, |text, remark| format!("{text} NOTE: {remark}."));
    Page::new("Tidepool: what a pool does for coding agents")
        .text(&remarks)
        .heading("The same sessions")
        .table(&HEAD, &rows)
        .plot(&plot)
}
