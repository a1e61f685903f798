//! A line to a catalog that can be held up, as if the catalog were stopped, and cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// See the file's head.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    held: AtomicBool,
    over: AtomicBool,
    lines: tidepool_locks::Mutex<Vec<Line>>,
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
            held: AtomicBool::new(false),
            over: AtomicBool::new(false),
            lines: tidepool_locks::Mutex::default(),
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
        self.shared.held.store(held, Ordering::Relaxed);
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
                while shared.held.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if to.write_all(&buffer[..len]).is_err() {
                    break;
                }
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
