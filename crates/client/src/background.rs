//! What a client does on its own: it looks for nodes, watches their sockets, reports uses, and probes who did not answer.
//!
//! Four threads, so that none waits for another's business: the *scout* asks catalogs and scans the socket directory, the
//! *watcher* sleeps on the sockets of this host's nodes, the *prober* calls on nodes that are down or suspect, and the
//! *populator* enters new mappings into the page tables and pins them for devices, which takes the kernel a while.

use crate::core::Core;
use crate::peers::Peer;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_store::Mapping;
use tidepool_transfer::door::Door;
use tidepool_types::Deadline;

/// How often catalogs are asked for members and the socket directory is read.
const REFRESH: Duration = Duration::from_secs(1);
/// How long the members may take to come.
const MEMBERS: Duration = Duration::from_secs(1);
/// How often uses are reported.
const FLUSH: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long the watcher sleeps while there is nothing to watch.
const IDLE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How often nodes that are down are called on.
const PROBE: Duration = Duration::from_millis(500);
/// Nodes called on at once.
const PROBES_AT_ONCE: usize = 8;
/// Mappings that wait to be populated; further ones are populated by their first reads.
const POPULATE_QUEUE: usize = 64;

/// How long the threads are waited for when a client ends. One that waits for somebody else (a node that hangs, a name that
/// does not resolve) ends on its own a little later; the caller is not kept for it.
const PATIENCE: Duration = Duration::from_millis(100);

/// The threads of one client; told to end when dropped.
pub(crate) struct Background {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(core: &Arc<Core>) -> io::Result<Self> {
        let mut background = Self { core: Arc::clone(core), threads: Vec::new() };
        background.spawn("tp-scout", scout)?;
        background.spawn("tp-watcher", watch)?;
        background.spawn("tp-prober", probe)?;
        Ok(background)
    }

    fn spawn(&mut self, name: &str, run: fn(&Core)) -> io::Result<()> {
        let core = Arc::clone(&self.core);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&core))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.core.stop();
        // What was read, and looked up, since the last report counts too.
        self.core.report_lookups(Deadline::after(PATIENCE));
        let table = self.core.peers.table();
        table.locals.iter().filter_map(|peer| peer.memory()).for_each(|memory| memory.flush(&self.core.counters));
        // The last clone of a client may be dropped by one of its own threads' callbacks; it cannot wait for itself.
        self.threads.retain(|thread| thread.thread().id() != std::thread::current().id());
        let until = Instant::now() + PATIENCE;
        while !self.threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Asks and scans, first thing when a client is made and then again and again.
pub(crate) fn look_around(core: &Core, budget: Duration) {
    let deadline = Deadline::after(budget);
    if core.config.local {
        core.peers.scan(&core.config.dir, deadline);
    }
    core.refresh_members(deadline);
}

fn scout(core: &Core) {
    loop {
        core.scout.wait(REFRESH);
        if core.is_stopping() {
            return;
        }
        look_around(core, MEMBERS);
        core.report_lookups(Deadline::after(MEMBERS));
        core.peers.table().locals.iter().for_each(|peer| peer.give_back_abandoned());
    }
}

fn watch(core: &Core) {
    while !core.is_stopping() {
        let table = core.peers.table();
        let memories: Vec<_> = table.locals.iter().filter_map(|peer| Some((peer, peer.memory()?))).collect();
        let mut fds = vec![PollFd::new(core.watch.fd(), PollFlags::IN)];
        fds.extend(memories.iter().map(|(_, memory)| PollFd::new(memory.socket(), PollFlags::RDHUP)));
        let pause = if memories.is_empty() { IDLE } else { FLUSH };
        // An error here is an interruption: the next round looks again.
        let _ = rustix::event::poll(&mut fds, Some(&pause));
        core.watch.clear();
        for (peer, memory) in &memories {
            match memory.socket().has_hung_up() {
                true => {
                    tracing::debug!(node = %peer.key.name, "closed its socket");
                    core.peers.forget(peer);
                    core.scout.ring();
                }
                false => memory.flush(&core.counters),
            }
        }
    }
}

/// Calls on nodes, each on a thread of its own: one that does not answer must not keep another one waiting that does.
fn probe(core: &Core) {
    let under_way = AtomicUsize::new(0);
    let mut turn = 0;
    std::thread::scope(|scope| {
        while !core.is_stopping() {
            let table = core.peers.table();
            let mut wanted: Vec<&Arc<Peer>> = table.all().filter(|peer| peer.wants_probe()).collect();
            // From another one each time, so that with many of them everyone's turn comes.
            turn = (turn + PROBES_AT_ONCE) % wanted.len().max(1);
            wanted.rotate_left(turn);
            // The dead, of which there may be many, keep no living node waiting.
            wanted.sort_by_key(|peer| table.is_dead(&peer.key));
            for peer in wanted {
                let most = if table.is_dead(&peer.key) { PROBES_AT_ONCE / 2 } else { PROBES_AT_ONCE };
                if under_way.load(Ordering::Acquire) >= most {
                    break;
                }
                if peer.start_probe() {
                    under_way.fetch_add(1, Ordering::AcqRel);
                    let (peer, under_way) = (UnderProbe(Arc::clone(peer)), Counted(&under_way));
                    let probe = move || {
                        let _counted = under_way;
                        if !peer.0.probe() {
                            core.peers.forget(&peer.0);
                        }
                    };
                    // Without a thread the node is called on in the next round.
                    let _ = std::thread::Builder::new().spawn_scoped(scope, probe);
                }
            }
            core.context.probe.wait(PROBE);
        }
    });
}

/// A probe under way; another one of the same node may start when this is dropped.
struct UnderProbe(Arc<Peer>);

impl Drop for UnderProbe {
    fn drop(&mut self) {
        self.0.end_probe();
    }
}

/// One of the probes under way, until dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Devices that are to reach whatever is mapped, each once for everybody who uses it.
pub(crate) type Doors = Arc<Mutex<Vec<Arc<dyn Door>>>>;

/// Starts the populator; it ends when the sender is dropped, and stops between two pieces of a mapping that nobody else
/// uses any more. Nobody waits for it. It pins what is mapped for the devices, too: a request would wait for seconds.
pub(crate) fn start_populator(doors: Doors) -> io::Result<SyncSender<Arc<Mapping>>> {
    let (sender, receiver): (_, Receiver<Arc<Mapping>>) = sync_channel(POPULATE_QUEUE);
    let populate = move || {
        for mapping in receiver {
            let wanted = doors.lock().clone();
            wanted.iter().for_each(|door| {
                mapping.pin(&**door);
            });
            // Whoever wanted it may have gone meanwhile, and not have known of this mapping yet.
            let still_wanted = doors.lock();
            if still_wanted.is_empty() && !wanted.is_empty() {
                mapping.unpin();
            }
            drop(still_wanted);
            mapping.populate(&|| Arc::strong_count(&mapping) > 1);
        }
    };
    std::thread::Builder::new().name("tp-populator".to_owned()).spawn(populate)?;
    Ok(sender)
}
