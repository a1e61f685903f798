//! Headroom: the memory left for this process, of the machine, of its control groups and of its own limit (`ulimit
//! -v`).
//!
//! A command may want to keep more of a trace than memory allows, and a process that asks for too much is killed
//! without a message. So commands check their headroom from time to time, and end in order with the results so far.

use rustix::process::{Resource, getrlimit};
use std::fs::read_to_string;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes left free for everything that does not grow with the trace.
const RESERVE: u64 = 16 << 20;
/// Bytes that a piece of a trace may take.
const PIECE: u64 = 256;
/// Pieces that are kept between two checks: few where memory is short.
const PIECES: RangeInclusive<u64> = 1 << 12..=1 << 22;

/// Whether there is room for more of a trace, which comes in pieces.
#[derive(Debug)]
pub(crate) struct Headroom {
    /// Bytes that the process had when the trace began.
    before: u64,
    /// The most pieces that came at once so far.
    most: AtomicU64,
    until_next_look: AtomicU64,
    is_low: AtomicBool,
}

impl Headroom {
    /// The headroom from now on.
    pub(crate) fn new() -> Self {
        let before = own().map_or(0, |own| own.resident);
        Self { before, most: AtomicU64::new(0), until_next_look: AtomicU64::new(0), is_low: AtomicBool::new(false) }
    }

    /// Notes that `pieces` more pieces are kept.
    pub(crate) fn take(&self, pieces: u64) {
        let most = self.most.fetch_max(pieces, Ordering::Relaxed).max(pieces);
        match self.until_next_look.load(Ordering::Relaxed).checked_sub(pieces) {
            Some(left) => self.until_next_look.store(left, Ordering::Relaxed),
            None => self.look(most),
        }
    }

    /// Notes work on earlier pieces, which may take memory too.
    pub(crate) fn work(&self) {
        self.take(self.most.load(Ordering::Relaxed));
    }

    fn look(&self, most: u64) {
        self.until_next_look.store(*PIECES.end(), Ordering::Relaxed);
        let (Some(own), Some(left)) = (own(), left()) else { return };
        // A full table grows to one of twice its size, and both exist until all entries have moved.
        let growth = own.resident.saturating_sub(self.before).saturating_mul(2);
        let needed = RESERVE.saturating_add(growth).saturating_add(most.saturating_mul(PIECE));
        let Some(spare) = left.checked_sub(needed) else { return self.is_low.store(true, Ordering::Relaxed) };
        // A piece counts three times: for itself, and for doubling the table that holds it.
        self.until_next_look.store((spare / (4 * PIECE)).clamp(*PIECES.start(), *PIECES.end()), Ordering::Relaxed);
    }

    /// Whether too little memory is left to go on.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }
}

/// This process's memory, in bytes.
struct Own {
    mapped: u64,
    resident: u64,
}

fn own() -> Option<Own> {
    let text = read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_whitespace().map(|pages| pages.parse::<u64>().ok());
    let bytes = |pages: u64| pages.saturating_mul(rustix::param::page_size() as u64);
    Some(Own { mapped: bytes(pages.next()??), resident: bytes(pages.next()??) })
}

/// Bytes that this process may still take; none if no limit is known.
fn left() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let machine = machine.map(|kib| kib.saturating_mul(1024));
    let limit = getrlimit(Resource::As).current;
    let limit = limit.and_then(|limit| Some(limit.saturating_sub(own()?.mapped)));
    let groups = read_to_string("/proc/self/cgroup").ok().and_then(|text| left_in_groups(&text, Path::new(ROOT)));
    [machine, limit, groups].into_iter().flatten().min()
}

/// The mount of control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// The number behind `name` in a text of names and numbers.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words =
        text.lines().map(str::split_whitespace).find_map(|mut words| (words.next()? == name).then_some(words))?;
    words.next()?.parse().ok()
}

/// Bytes that the control groups of a process may still take, given its `/proc/PID/cgroup`; enclosing groups included.
fn left_in_groups(text: &str, root: &Path) -> Option<u64> {
    let groups = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" => Some((root.to_owned(), path, &UNIFIED)),
            _ if controllers.split(',').any(|name| name == "memory") => Some((root.join("memory"), path, &LEGACY)),
            _ => None,
        }
    });
    groups.filter_map(|(root, path, files)| files.least_left(&root, path)).min()
}

/// Names of a control group's files.
struct Files {
    most: &'static str,
    used: &'static str,
    /// Names in `memory.stat` of bytes of cached files, which the kernel gives up under pressure.
    cached: [&'static str; 2],
}

const UNIFIED: Files = Files { most: "memory.max", used: "memory.current", cached: ["inactive_file", "active_file"] };
const LEGACY: Files = Files {
    most: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};

impl Files {
    /// The least of a group and all enclosing groups, the root included: in a container the root may be its own group.
    fn least_left(&self, root: &Path, path: &str) -> Option<u64> {
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().filter_map(|part| self.left(&root.join(part))).min()
    }

    /// Bytes that a group may still take; none without a limit or a group.
    fn left(&self, group: &Path) -> Option<u64> {
        let number = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let (most, used) = (number(self.most)?, number(self.used)?);
        let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cached: u64 = self.cached.iter().filter_map(|name| field(&stat, name)).sum();
        Some(most.saturating_sub(used.saturating_sub(cached)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_some_is_left() {
        let own = own().unwrap();
        assert!(0 < own.resident && own.resident <= own.mapped);
        assert!(left().is_some_and(|left| left > 0));
        let headroom = Headroom::new();
        headroom.take(1);
        assert!(!headroom.is_low());
        headroom.take(u64::MAX);
        assert!(headroom.is_low(), "nothing holds all pieces that could come");
    }

    #[test]
    fn the_tightest_control_group_counts_and_files_in_memory_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let left = |text: &str| left_in_groups(text, dir.path());
        assert_eq!(left("0::/a/b\n"), None);
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "500\n");
        assert_eq!(left("0::/a/b\n"), None);
        write("a/memory.max", "1000\n");
        write("a/memory.current", "900\n");
        write("a/memory.stat", "anon 1\ninactive_file 300\nactive_file 100\nfile 7\n");
        assert_eq!(left("0::/a/b\n"), Some(500));
        assert_eq!(left("0::/\n"), None);
        write("memory/x/memory.limit_in_bytes", "800\n");
        write("memory/x/memory.usage_in_bytes", "700\n");
        write("memory/x/memory.stat", "inactive_file 50\ntotal_inactive_file 20\ntotal_active_file 0\n");
        assert_eq!(left("3:cpu:/a\n4:memory:/x/y\n0::/a/b\n"), Some(120));
        assert_eq!(left("nonsense\n4:memory\n"), None);
    }
}
