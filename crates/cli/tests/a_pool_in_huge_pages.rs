//! A pool whose directory is a hugetlbfs: everything works as on any memory file system, in whole huge pages.
//!
//! The test mounts one, for which it must be root; where it cannot, or the host has no huge pages to give, it says so and
//! checks nothing.

mod common;

use common::{Daemon, code, entries, pool_args, stderr, stdout, tidepool};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// 64 MiB of blocks, an index, and room to spare.
const PAGES: u64 = 48;

/// A mounted hugetlbfs, and the huge pages that the host had before.
struct HugePages {
    dir: TempDir,
    before: u64,
}

impl HugePages {
    fn mount() -> Result<Self, String> {
        let count = || fs::read_to_string(POOL).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let before = count().ok_or(format!("{POOL} cannot be read"))?;
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let options = ["-t", "hugetlbfs", "-o", "pagesize=2M,size=96M", "none"];
        let mounted =
            Command::new("mount").args(options).arg(dir.path()).output().map_err(|error| error.to_string())?;
        if !mounted.status.success() {
            return Err(stderr(&mounted));
        }
        let pages = Self { dir, before };
        fs::write(POOL, (before + PAGES).to_string()).map_err(|error| format!("{POOL}: {error}"))?;
        match count() {
            Some(now) if now >= before + PAGES => Ok(pages),
            now => Err(format!("the host gave {now:?} huge pages instead of {}", before + PAGES)),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.dir.path()).status();
        let _ = fs::write(POOL, self.before.to_string());
    }
}

fn with_capacity<'a>(dir: &'a Path, capacity: &'a str) -> Vec<&'a str> {
    let mut args = pool_args(dir);
    let at = args.iter().position(|arg| *arg == "--capacity").expect("a pool of the tests has a capacity");
    args[at + 1] = capacity;
    args
}

/// A directory on hugetlbfs was refused: its files take no ordinary writes, so neither marks nor locks could be made.
#[test]
fn a_pool_in_huge_pages_serves_restarts_and_leaves_nothing() {
    let pages = match HugePages::mount() {
        Ok(pages) => pages,
        Err(why) => return eprintln!("SKIPPED, nothing checked: {why}"),
    };
    let block: Vec<u8> = (0..5 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();

    let pool = Daemon::start(&with_capacity(pages.path(), "64MiB"));
    assert!(pool.run_with(&["put", "k"], &block).status.success());
    let read = pool.run(&["get", "k"]);
    assert!(read.status.success() && read.stdout == block, "{}", stderr(&read));
    let second = tidepool(&with_capacity(pages.path(), "4MiB"));
    assert!(stderr(&second).contains("already running"), "{}", stderr(&second));

    // What a killed node leaves is removed by the next one: there are pages for one of them only.
    pool.signal(Signal::KILL);
    pool.wait();
    assert!(entries(pages.path()).contains(&"one.slab".to_owned()));
    let pool = Daemon::start(&with_capacity(pages.path(), "64MiB"));
    assert_eq!(code(&pool.run(&["get", "k"])), 3, "memory does not outlive its node");
    for key in ["a", "b"] {
        assert!(pool.run_with(&["put", key], &block).status.success());
        assert!(pool.run(&["get", key]).stdout == block);
    }
    assert!(stdout(&pool.run(&["stat"])).contains("one"));
    assert_eq!(pool.stop().code(), Some(0));
    assert_eq!(entries(pages.path()), Vec::<String>::new());

    let large = tidepool(&with_capacity(pages.path(), "1GiB"));
    let said = stderr(&large);
    assert!(said.contains("node.capacity 1GiB") && said.contains("free in huge pages"), "{said}");
    let small = tidepool(&with_capacity(pages.path(), "1MiB"));
    assert!(stderr(&small).contains("huge pages of 2MiB"), "{}", stderr(&small));
    assert_eq!(entries(pages.path()), Vec::<String>::new());

    // Not even an empty file of somebody else's is taken for a lock that may go, unless it could be one.
    fs::File::create(pages.path().join("one.slab")).unwrap();
    let blocked = tidepool(&with_capacity(pages.path(), "4MiB"));
    assert!(stderr(&blocked).contains("one.slab is in the way"), "{}", stderr(&blocked));
    assert_eq!(entries(pages.path()), ["one.slab"]);
}
