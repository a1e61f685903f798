//! `tidepool plan`: how much memory is enough for a trace.

mod page;

use super::client::Outcome;
use super::html::HtmlArgs;
use super::input::InputArgs;
use super::traces::{Read, SizeArgs, bar, positive, rounded};
use crate::daemon::stop_flag;
use crate::output;
use clap::Args;
use serde_json::{Value, json};
use tidepool_sim::plan::{Point, Setting};
use tidepool_sim::{Curve, CurveBuilder, Prefill};
use tidepool_types::ByteSize;

/// Blocks that are followed at a time: the curve of a trace with no more is exact.
const MOST_TRACKED: usize = 4 << 20;
const TIB: u64 = 1 << 40;

/// Which pool for which trace.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    size: SizeArgs,
    /// Memory that the pool has already [default: that at the knee]
    #[arg(long, value_name = "SIZE")]
    have: Option<ByteSize>,
    /// Disk behind the memory: what falls out of memory is kept there
    #[arg(long, value_name = "SIZE", default_value = "0B")]
    disk: ByteSize,
    /// Bytes a second at which an engine gets blocks from the pool's memory
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = positive)]
    memory_rate: ByteSize,
    /// Bytes a second at which it gets them from disk
    #[arg(long, value_name = "SIZE", default_value = "3GiB", value_parser = positive)]
    disk_rate: ByteSize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    html: HtmlArgs,
}

/// The results of a plan.
struct Plan {
    setting: Setting,
    curve: Curve,
    points: Vec<Point>,
    /// The pool at its present memory, with more and more disk behind it.
    with_disk: Vec<(u64, Point)>,
    knee: Option<Point>,
    /// The pool at its present memory, and with a TiB more.
    have: Point,
    more: Point,
    /// The trace's length.
    hours: f64,
}

/// Runs the command.
pub(super) fn run(args: &PlanArgs) -> Outcome {
    args.html.check(args.input.path())?;
    let input = args.input.open(&stop_flag()?)?;
    let mut builder = CurveBuilder::new(MOST_TRACKED, Prefill::default(), input.block_tokens);
    let (mut requests, mut blocks, mut end) = (0, 0, 0);
    let read = input.each(|request| {
        builder.add(request);
        requests += 1;
        blocks += request.blocks.len() as u64;
        end = request.at.0;
    })?;
    let setting = Setting {
        block_bytes: args.size.block_bytes(read.block_tokens),
        memory_rate: args.memory_rate.0 as f64,
        disk_rate: args.disk_rate.0 as f64,
        disk_bytes: args.disk.0,
        requests,
        blocks,
    };
    let plan = Plan::new(setting, builder.finish(), args.have, end as f64 / 3.6e6);
    if args.json {
        output::line(&plan.json(&read))?
    } else {
        output::text(&plan.text())?
    };
    args.html.write(|| plan.page(&read.with_remarks(&args.input.name())))?;
    Ok(read.status())
}

impl Plan {
    fn new(setting: Setting, curve: Curve, have: Option<ByteSize>, hours: f64) -> Self {
        let point = |bytes: u64| setting.point(&curve, bytes);
        let knee = setting.knee(&curve);
        let have = have.map(|size| size.0).or(knee).unwrap_or(0);
        let sizes = setting.sizes(&curve);
        let with_disk = |disk_bytes: u64| (disk_bytes, Setting { disk_bytes, ..setting }.point(&curve, have));
        Self {
            with_disk: sizes.iter().copied().filter(|disk| *disk >= have / 4).map(with_disk).collect(),
            points: sizes.iter().copied().map(point).collect(),
            knee: knee.map(point),
            have: point(have),
            more: point(have.saturating_add(TIB)),
            hours,
            setting,
            curve,
        }
    }

    fn text(&self) -> String {
        let disk = match self.setting.disk_bytes {
            0 => String::new(),
            bytes => format!(", with {} of disk behind it", rounded(bytes)),
        };
        let memory = self.points.iter().map(|point| (point.memory_bytes, *point));
        let have = rounded(self.have.memory_bytes);
        format!(
            "By memory{disk}:\n{}\nBy disk behind {have} of memory:\n{}\n{}",
            self.table(memory),
            self.table(self.with_disk.iter().copied()),
            self.words()
        )
    }

    fn table(&self, points: impl Iterator<Item = (u64, Point)>) -> String {
        let mut text = format!("{:>10}  {:>8}  {:>9}  {:>11}\n", "SIZE", "HIT RATE", "GPU SAVED", "FIRST TOKEN");
        for (size, point) in points {
            let (size, saved) = (rounded(size), self.saved(&point));
            let (rate, first) = (100.0 * point.hit_rate, point.first_token_seconds);
            text +=
                &format!("{size:>10}  {rate:>6.2} %  {saved:>7.2} %  {first:>9.3} s  {}\n", bar(point.hit_rate, 40));
        }
        text
    }

    /// Part of all prefill that is saved, in per cent.
    fn saved(&self, point: &Point) -> f64 {
        let all = self.curve.prefill_seconds();
        if all > 0.0 { 100.0 * point.gpu_seconds_saved / all } else { 0.0 }
    }

    fn words(&self) -> String {
        let ceiling = self.setting.point(&self.curve, u64::MAX);
        let Some(knee) = self.knee else {
            return "No block of this trace is ever asked for again: no pool would help.\n".to_owned();
        };
        let method = match self.curve.unit().0 {
            1 => "Exact for LRU.".to_owned(),
            unit => {
                format!("Estimated for LRU from one of {unit} blocks: +-{:.2} points at the knee.", 100.0 * knee.error)
            }
        };
        format!(
            "No pool can hit more than {:.2} % of this trace's blocks; {} hold all that it uses.\n\
             {} at {}: {}{:.2} % hits, {:.2} % of all prefill saved.\n\
             With {}, {}.\n{}\
             {method} Times count computing and loading only: waiting for others comes on top.\n",
            100.0 * ceiling.hit_rate,
            rounded(self.curve.largest().0.saturating_mul(self.setting.block_bytes)),
            if self.setting.disk_bytes == 0 { "The knee is" } else { "Hits in memory alone have their knee" },
            rounded(knee.memory_bytes),
            if self.setting.disk_bytes == 0 { "" } else { "with the disk behind it " },
            100.0 * knee.hit_rate,
            self.saved(&knee),
            rounded(self.have.memory_bytes),
            self.what_more_buys(ceiling.hit_rate),
            self.what_is_slow(),
        )
    }

    /// The gain from a TiB more, where no pool hits more than `ceiling`.
    fn what_more_buys(&self, ceiling: f64) -> String {
        let (have, more) = (self.have, self.more);
        let percent = |rate: f64| format!("{:.2}", 100.0 * rate);
        let (before, after) = (percent(have.hit_rate), percent(more.hit_rate));
        let seconds = more.gpu_seconds_saved - have.gpu_seconds_saved;
        let an_hour = if self.hours > 0.0 { format!(", {:.1} an hour", seconds / self.hours) } else { String::new() };
        let (sooner, later) = (more.first_token_seconds, have.first_token_seconds);
        if before != after {
            format!(
                "a TiB more would raise hits from {before} to {after} % and save {seconds:.1} GPU seconds more{an_hour}"
            )
        } else if format!("{sooner:.3}") != format!("{later:.3}") {
            format!(
                "a TiB more would leave hits at {before} %, and prompts would be ready in {sooner:.3} instead of {later:.3} s"
            )
        } else if percent(ceiling) == before {
            format!("more memory would buy nothing: hits are at {before} %, as far as they go")
        } else {
            format!("a TiB more would buy nothing: hits stay at {before} %")
        }
    }

    /// The sources that deliver blocks more slowly than an engine computes them, a line each.
    fn what_is_slow(&self) -> String {
        let Some(block) = self.setting.block_seconds(&self.curve) else { return String::new() };
        let places = [
            ("the pool's memory", block.memory, self.setting.memory_rate),
            ("disk", block.disk, self.setting.disk_rate),
        ];
        let line = |(place, seconds, rate): (&str, f64, f64)| {
            let (from, compute, rate) = (1000.0 * seconds, 1000.0 * block.compute, rounded(rate as u64));
            format!(
                "At {rate} a second a block comes from {place} in {from:.1} ms and is computed in {compute:.1} ms on average: \
                 restoring from there frees GPUs, but is not worth it for the time to first token.\n"
            )
        };
        places.into_iter().filter(|(_, seconds, _)| *seconds > block.compute).map(line).collect()
    }

    fn json(&self, read: &Read) -> Value {
        json!({
            "hit_rate_ceiling": self.curve.ceiling(),
            "prefill_seconds": self.curve.prefill_seconds(),
            "block_bytes": self.setting.block_bytes,
            "blocks_for_one_sampled": self.curve.unit().0,
            "block_seconds": self.setting.block_seconds(&self.curve).map(|block| {
                json!({ "compute": block.compute, "from_memory": block.memory, "from_disk": block.disk })
            }),
            "knee": self.knee.as_ref().map(|point| self.describe(point)),
            "have": self.describe(&self.have),
            "one_tib_more": self.describe(&self.more),
            "with_disk": self.with_disk.iter().map(|(bytes, point)| {
                let mut object = self.describe(point);
                object["disk_bytes"] = json!(bytes);
                object
            }).collect::<Vec<_>>(),
            "curve": self.points.iter().map(|point| self.describe(point)).collect::<Vec<_>>(),
            "trace": read.describe(),
        })
    }

    fn describe(&self, point: &Point) -> Value {
        json!({
            "memory_bytes": point.memory_bytes,
            "capacity_blocks": point.memory_bytes / self.setting.block_bytes.max(1),
            "hit_rate": point.hit_rate,
            "hit_rate_error": point.error,
            "gpu_seconds_saved": point.gpu_seconds_saved,
            "first_token_seconds": point.first_token_seconds,
        })
    }
}
