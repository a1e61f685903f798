//! A client process: this test program, run again. It does random operations and checks every answer against a model
//! that knows what may be.

use super::cluster::{Random, content, eventually};
use super::signals;
use rustix::process::Signal;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use tidepool_client::{Client, ClientConfig, GetInto, PutItem, PutOptions};
use tidepool_transfer::fault::FaultPlan;

const PLAN: &str = "TIDEPOOL_TEST_WORKER";
/// Whether this process, as a worker, was told to end.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Keys that all workers put and get.
const SHARED_KEYS: u64 = 400;
/// Keys that only their worker puts and removes.
const OWN_KEYS: u64 = 60;
/// What a call may take past its deadline: its thread may have to wait for a core, on a machine that many tests share.
const SLACK: Duration = Duration::from_secs(2);
/// What each of its calls has.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    All,
    Writer,
    Reader,
}

/// A worker's task.
pub(crate) struct Work {
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) role: Role,
    /// How long it may be stopped in the middle of a call.
    pub(crate) stopped_for: Duration,
    /// Whether no process dies or stops: what was removed everywhere is then gone for good.
    pub(crate) calm: bool,
}

/// A worker's process. It works until it is told to end.
pub(crate) struct Running {
    child: Child,
    /// A byte for each step that is done.
    steps: NamedTempFile,
}

/// Starts a worker on the host whose sockets are in `dir`, or on none.
pub(crate) fn start(work: &Work, catalogs: &[String], dir: Option<PathBuf>) -> Running {
    let dir = dir.map(|dir| dir.display().to_string()).unwrap_or_default();
    let steps = NamedTempFile::new().expect("a file");
    let Work { number, seed, role, stopped_for, calm } = work;
    let (catalogs, stopped_for, path) = (catalogs.join(","), stopped_for.as_millis(), steps.path().display());
    let plan = format!("{number};{seed};{catalogs};{dir};{path};{role:?};{stopped_for};{calm}");
    let child = Command::new(std::env::current_exe().expect("the test program"))
        .args(["--exact", "worker::worker_process", "--nocapture", "--test-threads=1"])
        .env(PLAN, plan)
        .stdin(Stdio::piped())
        .stdout(Stdio::inherit())
        .spawn()
        .expect("the worker starts");
    Running { child, steps }
}

impl Running {
    /// Steps that it has done.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.as_file().metadata().expect("an open file").len()
    }

    /// Waits until it has done so many further steps.
    pub(crate) fn goes_on(&self, steps: u64) {
        go_on(std::slice::from_ref(self), steps);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signals::send(&self.child, signal);
    }

    /// Kills it; how it has ended.
    pub(crate) fn kill(mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.child.wait().expect("a child can be waited for")
    }

    /// Has it end after the step that it is at, and checks that all was well.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        let ended = self.child.wait().expect("a child can be waited for");
        assert!(ended.success(), "a worker failed: {ended}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A stopped process is killed too; one that has ended already needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until workers have done so many further steps together.
pub(crate) fn go_on(workers: &[Running], steps: u64) {
    let done = || workers.iter().map(Running::steps).sum::<u64>();
    let goal = done() + steps;
    eventually("workers go on", || done() >= goal);
}

/// Not a test of its own: what workers run.
#[test]
fn worker_process() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let [number, seed, catalogs, dir, steps, role, stopped_for, calm] = plan.split(';').collect::<Vec<_>>()[..] else {
        panic!("{plan}")
    };
    let number: u64 = number.parse().unwrap();
    let role = [Role::All, Role::Writer, Role::Reader].into_iter().find(|known| format!("{known:?}") == role).unwrap();
    let catalogs: Vec<String> = catalogs.split(',').map(str::to_owned).collect();
    let dir = (!dir.is_empty()).then(|| PathBuf::from(dir));
    let faults = FaultPlan {
        seed: number,
        lost: 2,
        delayed: 10,
        delay: Duration::from_millis(20),
        failed: 20,
        corrupt: 5,
        close_after: None,
    };
    let config = ClientConfig {
        catalogs,
        local: dir.is_some(),
        dir: dir.unwrap_or_else(|| "/nonexistent".into()),
        deadline: DEADLINE,
        faults,
        ..ClientConfig::default()
    };
    // Ends with whoever started it, if not before.
    std::thread::spawn(|| {
        let _ = std::io::stdin().lines().count();
        IS_OVER.store(true, Ordering::Relaxed);
    });
    let random = Random(seed.parse::<u64>().unwrap() ^ number << 32);
    let client = Client::connect(config).unwrap();
    let allowed = DEADLINE + SLACK + Duration::from_millis(stopped_for.parse().unwrap());
    let (state, calm) = ([Known::Absent; OWN_KEYS as usize], calm.parse().unwrap());
    let mut worker = Worker { number, client, role, allowed, calm, random, state, tally: Tally::default() };
    let mut steps = File::options().append(true).open(steps).unwrap();
    while !IS_OVER.load(Ordering::Relaxed) {
        worker.step();
        steps.write_all(b".").unwrap();
    }
    println!("worker {number}: {:?}", worker.tally);
    let Tally { puts, put_failures, hits, gone, .. } = worker.tally;
    assert!(!calm || gone > 0, "what is removed while all is calm is surely gone");
    let worked = (role == Role::Reader || puts > 0) && (role == Role::Writer || hits > 0);
    assert!(worked, "a run that does nothing proves nothing");
    // While one node was stopped, another one that had lost an answer was passed by for a second, because probes waited for
    // each other: half of all puts found no node. Now whoever answers its probe is used again.
    assert!(put_failures <= puts / 2, "puts go on while some node lives: {put_failures} failed, {puts} did not");
}

#[derive(Debug, Default)]
struct Tally {
    puts: u64,
    put_failures: u64,
    hits: u64,
    misses: u64,
    removed: u64,
    /// Keys that were put and then surely removed.
    gone: u64,
}

/// What this worker knows of a key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Known {
    /// Never put, or removed everywhere: it must not be found.
    #[default]
    Absent,
    /// Put, or not surely removed: anything but wrong bytes.
    Maybe,
    /// A put of it failed: its last message may still be on its way, and be heard after a removal.
    Doubtful,
}

struct Worker {
    number: u64,
    client: Client,
    role: Role,
    /// What one call may take.
    allowed: Duration,
    calm: bool,
    random: Random,
    state: [Known; OWN_KEYS as usize],
    tally: Tally,
}

impl Worker {
    fn draw(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn shared_key(&mut self) -> Vec<u8> {
        format!("shared-{}", self.draw(SHARED_KEYS)).into_bytes()
    }

    /// One call, which must be over by its deadline.
    fn call<T>(&self, call: impl FnOnce(&Client) -> T) -> T {
        let started = Instant::now();
        let answer = call(&self.client);
        let took = started.elapsed();
        assert!(took < self.allowed, "a call with a deadline of {DEADLINE:?} took {took:?}");
        answer
    }

    fn step(&mut self) {
        let operations: &[u64] = match self.role {
            Role::All => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            Role::Writer => &[0, 1, 2, 3],
            Role::Reader => &[5, 6, 7, 8, 9],
        };
        let operation = operations[self.draw(operations.len() as u64) as usize];
        match operation {
            0 | 1 => self.put_batch(),
            2 => self.put_own(),
            3 => self.remove_own(),
            4 => self.get_own(),
            5 => self.get_into(),
            6 => self.get_range(),
            7 => self.view(),
            8 => self.look_up(),
            _ => self.get_batch(),
        }
    }

    fn put_batch(&mut self) {
        let keys: Vec<_> = (0..=self.draw(16)).map(|_| self.shared_key()).collect();
        let blocks: Vec<_> = keys.iter().map(|key| content(key)).collect();
        // Some blocks from several pieces of memory.
        let parts =
            |block: &'_ Vec<u8>| -> Vec<_> { block.chunks(block.len().div_ceil(3)).map(<[u8]>::to_vec).collect() };
        let pieces: Vec<Vec<Vec<u8>>> = blocks.iter().map(parts).collect();
        let items: Vec<PutItem<'_>> = keys
            .iter()
            .zip(&pieces)
            .map(|(key, pieces)| PutItem::new(key, pieces.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        let options = PutOptions { replicas: 1 + self.draw(2) as u32, ..PutOptions::default() };
        for stored in self.call(|client| client.put_batch(&items, &options)) {
            match stored {
                Ok(stored) => {
                    assert!(stored.replicas >= 1);
                    self.tally.puts += 1;
                }
                Err(_) => self.tally.put_failures += 1,
            }
        }
    }

    fn own_key(&mut self) -> (usize, Vec<u8>) {
        let index = self.draw(OWN_KEYS);
        (index as usize, format!("own-{}-{index}", self.number).into_bytes())
    }

    fn put_own(&mut self) {
        let (index, key) = self.own_key();
        let stored = self.call(|client| client.put(&key, &content(&key), &PutOptions::default()));
        self.state[index] = match stored {
            Ok(_) if self.state[index] != Known::Doubtful => Known::Maybe,
            _ => Known::Doubtful,
        };
        self.tally.puts += u64::from(stored.is_ok());
    }

    fn remove_own(&mut self) {
        let (index, key) = self.own_key();
        let removal = self.call(|client| client.remove(&key)).unwrap();
        self.tally.removed += u64::from(removal.removed);
        // A node that did not answer may still hold a copy; a catalog that was away may not have named a holder.
        let sure = removal.unanswered.is_empty()
            && self.call(|client| client.match_prefix(&[[&key]])).is_ok_and(|m| m.complete && m.shortest == 0);
        let may_be_gone = self.state[index] != Known::Doubtful;
        if sure && may_be_gone && self.call(|client| client.get(&key)).unwrap().is_none() {
            self.state[index] = Known::Absent;
            self.tally.gone += 1;
        }
    }

    fn get_own(&mut self) {
        let (index, key) = self.own_key();
        let found = self.call(|client| client.get(&key)).unwrap();
        if let Some(bytes) = &found {
            assert!(*bytes == content(&key), "wrong bytes");
        }
        if self.state[index] == Known::Absent && found.is_some() {
            // A node that was away when the key was removed may come back with it: allowed only then.
            assert!(!self.calm, "a key that was removed everywhere is there again, and no node was away");
            println!("worker {}: a removed key came back with a node", self.number);
            self.state[index] = Known::Maybe;
        }
        self.count(found.is_some());
    }

    fn get_batch(&mut self) {
        let keys: Vec<_> = (0..=self.draw(40)).map(|_| self.shared_key()).collect();
        let mut buffers: Vec<Vec<u8>> = keys.iter().map(|key| vec![0xaa; content(key).len()]).collect();
        let mut items: Vec<GetInto<'_>> = Vec::new();
        for (key, buffer) in keys.iter().zip(&mut buffers) {
            let third = buffer.len() / 3;
            let (first, rest) = buffer.split_at_mut(third);
            items.push(GetInto::new(key, vec![first, rest]));
        }
        let found = self.call(|client| client.get_batch_into(&mut items));
        drop(items);
        for ((key, buffer), found) in keys.iter().zip(&buffers).zip(found) {
            let hit = found.unwrap().is_some();
            assert!(!hit || *buffer == content(key), "wrong bytes");
            self.count(hit);
        }
    }

    fn get_into(&mut self) {
        let key = self.shared_key();
        let expected = content(&key);
        let mut buffer = vec![0; expected.len() + 100];
        let found = self.call(|client| client.get_into(&key, &mut buffer)).unwrap();
        if let Some(len) = found {
            assert!(buffer[..len] == expected && buffer[len..].iter().all(|byte| *byte == 0), "wrong bytes");
        }
        self.count(found.is_some());
    }

    fn get_range(&mut self) {
        let key = self.shared_key();
        let expected = content(&key);
        let start = self.draw(expected.len() as u64);
        let end = start + 1 + self.draw(expected.len() as u64 - start);
        let found = self.call(|client| client.get_range(&key, start..end)).unwrap();
        if let Some(bytes) = &found {
            assert!(*bytes == expected[start as usize..end as usize], "wrong bytes");
        }
        self.count(found.is_some());
    }

    fn view(&mut self) {
        let key = self.shared_key();
        let Some(view) = self.call(|client| client.view(&key)).unwrap() else { return self.count(false) };
        let expected = content(&key);
        assert!(*view == *expected, "wrong bytes");
        // It stays right while others evict around it.
        match self.role {
            Role::Reader => self.get_batch(),
            Role::All | Role::Writer => self.put_batch(),
        }
        assert!(*view == *expected, "a view changed");
        self.count(true);
    }

    fn look_up(&mut self) {
        let keys: Vec<_> = (0..20).map(|_| self.shared_key()).collect();
        assert_eq!(self.call(|client| client.exists(&keys)).unwrap().len(), 20);
        let never = self.call(|client| client.exists(&[b"never put"])).unwrap();
        assert_eq!(never, [false], "a key that nobody put");
        let matches = self.call(|client| client.match_prefix(&[keys])).unwrap();
        assert!(matches.shortest <= 20);
    }

    fn count(&mut self, hit: bool) {
        if hit {
            self.tally.hits += 1;
        } else {
            self.tally.misses += 1;
        }
    }
}
