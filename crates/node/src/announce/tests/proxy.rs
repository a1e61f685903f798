//! A line to a catalog that can be held up, as if the catalog were stopped, and cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tidepool_locks::{Condvar, Mutex};
use tidepool_testing::PATIENCE;

/// See the file's head.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    held: Mutex<bool>,
    /// Nothing is held any more.
    released: Condvar,
    over: AtomicBool,
    /// Bytes, in both directions.
    passed: Mutex<u64>,
    carried: Condvar,
    lines: Mutex<Vec<Line>>,
}

/// One connection through the proxy.
struct Line {
    near: TcpStream,
    far: TcpStream,
    /// Set when the catalog's end stays open though the node's end is gone.
    unnoticed: Arc<AtomicBool>,
}

impl Proxy {
    pub(super) fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            held: Mutex::default(),
            released: Condvar::new(),
            over: AtomicBool::new(false),
            passed: Mutex::default(),
            carried: Condvar::new(),
            lines: Mutex::default(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if accepting.over.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(far) = TcpStream::connect(to) {
                    let unnoticed = Arc::<AtomicBool>::default();
                    accepting.pipe(near.try_clone().unwrap(), far.try_clone().unwrap(), &unnoticed);
                    accepting.pipe(far.try_clone().unwrap(), near.try_clone().unwrap(), &unnoticed);
                    accepting.lines.lock().push(Line { near, far, unnoticed });
                }
            }
        });
        Self { address, shared }
    }

    /// Nothing passes from now on, and nothing is closed.
    pub(super) fn hold(&self, held: bool) {
        *self.shared.held.lock() = held;
        self.shared.released.notify_all();
    }

    /// Waits until so many further bytes have passed.
    pub(super) fn pass(&self, bytes: u64) {
        let mut passed = self.shared.passed.lock();
        let (goal, until) = (*passed + bytes, Instant::now() + PATIENCE);
        while *passed < goal {
            assert!(!self.shared.carried.wait_until(&mut passed, until).timed_out(), "nothing passes");
        }
    }

    /// Closes all lines.
    pub(super) fn cut(&self) {
        for line in self.shared.lines.lock().drain(..) {
            let _ = line.near.shutdown(Shutdown::Both);
            let _ = line.far.shutdown(Shutdown::Both);
        }
    }

    /// Closes the node's end of all lines; at the catalog's end they stay open, and nothing comes.
    pub(super) fn cut_unnoticed(&self) {
        for line in &*self.shared.lines.lock() {
            line.unnoticed.store(true, Ordering::Relaxed);
            let _ = line.near.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn pipe(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream, unnoticed: &Arc<AtomicBool>) {
        let (shared, unnoticed) = (self.clone(), unnoticed.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                shared.released.wait_while(&mut shared.held.lock(), |held| *held);
                if to.write_all(&buffer[..len]).is_err() {
                    break;
                }
                *shared.passed.lock() += len as u64;
                shared.carried.notify_all();
            }
            if !unnoticed.load(Ordering::Relaxed) {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            }
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.hold(false);
        self.cut();
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}
