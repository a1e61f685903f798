//! The processes on this host that have the slab mapped.
//!
//! A process that may write to the slab, or reads it through a view, can do so for as long as it lives, whatever becomes of
//! its sockets. So views and late reservations belong to the process, not to a connection, and are freed when it lets go of
//! them or when its pidfd says that it has ended. A process that cannot be watched (another pid namespace) gets neither.

use crate::counters::Counters;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidepool_locks::Mutex;
use tidepool_store::{Hold, Reservation};
use tidepool_types::ClientId;
use tidepool_wire::message::SlotName;

/// A process and the client in it.
type ProcessKey = (u32, ClientId);

/// Everything that watched processes hold.
pub(crate) struct Processes {
    known: Mutex<HashMap<ProcessKey, Arc<Process>>>,
    counters: Arc<Counters>,
}

/// One watched process.
pub(crate) struct Process {
    key: ProcessKey,
    pidfd: OwnedFd,
    /// Short sections; dropping what is inside frees space.
    held: Mutex<Held>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Held {
    /// Views by slot: the hold, and how often the client asked for it.
    views: HashMap<SlotName, (Hold, u32)>,
    view_bytes: u64,
    late: Vec<Reservation>,
    late_bytes: u64,
    /// Bytes of reservations that the process writes to through its mapping, and whose connections are open.
    open_bytes: u64,
    connections: u32,
    /// The process has ended and everything was let go: whatever comes now is let go at once.
    over: bool,
}

/// Bytes that a process may write to through its mapping: they are late, and out of use, once it loses its socket. Counted
/// until dropped.
pub(crate) struct Charge {
    process: Arc<Process>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.process.held.lock().open_bytes -= self.bytes;
    }
}

impl Processes {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { known: Mutex::default(), counters }
    }

    /// The process at the other end of a Unix socket, if it can be watched.
    pub(crate) fn at(&self, socket: impl AsFd, client: ClientId) -> Option<Arc<Process>> {
        let pid = peer_of(&socket)?;
        let key = (pid.as_raw_nonzero().get().cast_unsigned(), client);
        let mut known = self.known.lock();
        let process = match known.get(&key) {
            Some(process) if !process.has_ended() => Arc::clone(process),
            _ => {
                let pidfd = watch(pid)?;
                // Had the process ended and its pid been reused before the pidfd was taken, its socket would be closed.
                if is_hung_up(&socket) {
                    return None;
                }
                let (held, counters) = (Mutex::default(), Arc::clone(&self.counters));
                let process = Arc::new(Process { key, pidfd, held, counters });
                if let Some(ended) = known.insert(key, Arc::clone(&process)) {
                    ended.let_go_of_everything();
                }
                process
            }
        };
        process.held.lock().connections += 1;
        Some(process)
    }

    /// This process, as the host of `client`, if that has a connection; counted as one more.
    pub(crate) fn here(&self, client: ClientId) -> Option<Arc<Process>> {
        let known = self.known.lock();
        let process = Arc::clone(known.get(&(std::process::id(), client))?);
        process.held.lock().connections += 1;
        Some(process)
    }

    /// Notes that a connection of the process has closed.
    pub(crate) fn disconnected(&self, process: &Process) {
        let mut known = self.known.lock();
        let mut held = process.held.lock();
        held.connections = held.connections.saturating_sub(1);
        if held.connections == 0 && held.views.is_empty() && held.late.is_empty() {
            // Only this incarnation: a pid may have been reused for another one.
            if known.get(&process.key).is_some_and(|current| std::ptr::eq(&raw const **current, process)) {
                known.remove(&process.key);
            }
        }
    }

    /// Frees what ended processes held. Called a few times a second.
    pub(crate) fn reap(&self) {
        let mut known = self.known.lock();
        let ended: Vec<ProcessKey> = known.values().filter(|p| p.has_ended()).map(|p| p.key).collect();
        let ended: Vec<Arc<Process>> = ended.iter().filter_map(|key| known.remove(key)).collect();
        // Processes that let everything go after their last connection closed.
        known.retain(|_, process| {
            let held = process.held.lock();
            held.connections > 0 || !held.views.is_empty() || !held.late.is_empty()
        });
        drop(known);
        ended.iter().for_each(|process| process.let_go_of_everything());
    }
}

impl Process {
    /// Whether the process is gone, and with it every access to the slab.
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1..))
    }

    /// Counts `bytes` more that the process may write to. `None` if late ones would pass `most_late`, or late and open ones
    /// together `most`; the first of all may have any length.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64, most_late: u64, most: u64) -> Option<Charge> {
        let mut held = self.held.lock();
        let fits = |counted: u64, most: u64| counted == 0 || counted + bytes <= most;
        if !fits(held.late_bytes, most_late) || !fits(held.late_bytes + held.open_bytes, most) {
            return None;
        }
        held.open_bytes += bytes;
        Some(Charge { process: Arc::clone(self), bytes })
    }

    /// Keeps a view for the process; gives the hold back when that would pass `limit`.
    pub(crate) fn add_view(&self, hold: Hold, limit: u64) -> Result<SlotName, Hold> {
        let mut held = self.held.lock();
        let (name, bytes) = (hold.name(), hold.bytes().len() as u64);
        if held.over {
            return Err(hold);
        }
        if let Some((_, count)) = held.views.get_mut(&name) {
            *count += 1;
        } else if held.view_bytes + bytes > limit {
            return Err(hold);
        } else {
            held.view_bytes += bytes;
            held.views.insert(name, (hold, 1));
            add(&self.counters.view_bytes, bytes);
        }
        add(&self.counters.views, 1);
        Ok(name)
    }

    /// Lets a view go.
    pub(crate) fn drop_view(&self, name: SlotName) {
        let mut held = self.held.lock();
        let Some((_, count)) = held.views.get_mut(&name) else { return };
        *count -= 1;
        sub(&self.counters.views, 1);
        if *count == 0
            && let Some((hold, _)) = held.views.remove(&name)
        {
            let bytes = hold.bytes().len() as u64;
            held.view_bytes -= bytes;
            sub(&self.counters.view_bytes, bytes);
        }
    }

    /// Keeps a reservation that the process may still be writing to.
    pub(crate) fn quarantine(&self, reservation: Reservation) {
        let mut held = self.held.lock();
        // Asked under the lock: whoever lets go of everything meanwhile would not find this one.
        if held.over || self.has_ended() {
            return; // and the reservation with it
        }
        held.late_bytes += reservation.len();
        add(&self.counters.late_reservations, 1);
        add(&self.counters.late_bytes, reservation.len());
        held.late.push(reservation);
    }

    /// Frees all late reservations: the process says that it no longer writes to any of them.
    pub(crate) fn release_late(&self) {
        let mut held = self.held.lock();
        let (late, bytes) = (std::mem::take(&mut held.late), std::mem::take(&mut held.late_bytes));
        drop(held);
        let count = late.len() as u64;
        drop(late);
        sub(&self.counters.late_reservations, count);
        sub(&self.counters.late_bytes, bytes);
    }

    fn let_go_of_everything(&self) {
        let held = {
            let mut held = self.held.lock();
            let Held { connections, open_bytes, .. } = *held;
            std::mem::replace(&mut *held, Held { connections, open_bytes, over: true, ..Held::default() })
        };
        let Held { views, view_bytes, late, late_bytes, .. } = held;
        let (view_count, late_count) = (views.values().map(|(_, count)| count).sum::<u32>(), late.len() as u64);
        // The space first: whoever sees the numbers fall can use it.
        drop((views, late));
        sub(&self.counters.views, view_count.into());
        sub(&self.counters.view_bytes, view_bytes);
        sub(&self.counters.late_reservations, late_count);
        sub(&self.counters.late_bytes, late_bytes);
    }
}

/// The process at the other end of a Unix socket; `None` when it is not visible from here (another pid namespace), which the
/// kernel says with a zero.
fn peer_of(socket: &impl AsFd) -> Option<Pid> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: `peer` and `len` are ours, and `len` is the size of `peer`; any bytes that the kernel writes are a `ucred`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    Pid::from_raw(peer.pid).filter(|_| answer == 0)
}

fn watch(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn is_hung_up(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_err() || fds[0].revents().contains(PollFlags::HUP)
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// The same for numbers that clients tell: a counter never goes back, whatever they say.
pub(crate) fn add_at_most(counter: &AtomicU64, by: u64) {
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(value.saturating_add(by)));
}

pub(crate) fn sub(counter: &AtomicU64, by: u64) {
    counter.fetch_sub(by, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use tidepool_store::{NodeMemory, NodeMemoryConfig};
    use tidepool_types::{BlockId, ByteSize, Deadline, Epoch, Key, NodeName, TenantSecret};

    fn reservation(memory: &Arc<NodeMemory>) -> Reservation {
        let key = Key::new(b"k").unwrap();
        let (id, soon) = (BlockId::derive(&TenantSecret::DEFAULT, key), Deadline::after(Duration::from_secs(10)));
        memory.reserve(key, id, 1000, ClientId(1), soon, &|| true).unwrap().named()
    }

    /// A process that ended between the question whether it had and the answer was counted in the gauges for ever: what it
    /// held had been let go of just before one more was added. Now the question is asked where both take turns.
    #[test]
    fn what_comes_after_the_end_of_a_process_is_let_go_and_not_counted() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let memory = NodeMemory::create(&NodeMemoryConfig {
            dir: dir.path().to_owned(),
            name: NodeName::new("n").unwrap(),
            secret: TenantSecret::DEFAULT,
            epoch: Epoch(1),
            capacity: ByteSize(1 << 20),
            smallest_expected_block: ByteSize(4096),
            eviction: tidepool_policy::eviction::Policy::default(),
            admission: tidepool_policy::admission::Rule::default(),
        })
        .unwrap();
        let counters = Arc::new(Counters::default());
        let processes = Processes::new(Arc::clone(&counters));
        let (socket, _other) = UnixStream::pair().unwrap();
        let process = processes.at(&socket, ClientId(1)).unwrap();
        process.quarantine(reservation(&memory));
        assert_eq!(counters.late_bytes.load(Ordering::Relaxed), 1000);
        process.let_go_of_everything();
        process.quarantine(reservation(&memory));
        assert_eq!(counters.late_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(counters.late_reservations.load(Ordering::Relaxed), 0);
        assert_eq!(memory.stats().reserved, 0);
    }

    #[test]
    fn what_a_process_may_write_to_is_bounded_late_or_not() {
        let processes = Processes::new(Arc::default());
        let (socket, _other) = UnixStream::pair().unwrap();
        let process = processes.at(&socket, ClientId(1)).unwrap();
        let first = process.charge(70, 10, 50);
        assert!(first.is_some(), "the first may have any length");
        assert!(process.charge(1, 10, 50).is_none());
        drop(first);
        let held: Vec<_> = (0..5).map(|_| process.charge(10, 10, 50).unwrap()).collect();
        assert!(process.charge(1, 10, 50).is_none(), "five times ten are open");
        drop(held);
        assert!(process.charge(50, 10, 50).is_some());
    }
}
