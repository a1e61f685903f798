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
    lines: parking_lot::Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(super) fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            held: AtomicBool::new(false),
            over: AtomicBool::new(false),
            lines: parking_lot::Mutex::default(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if accepting.over.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(far) = TcpStream::connect(to) {
                    accepting.lines.lock().push(near.try_clone().unwrap());
                    accepting.pipe(near.try_clone().unwrap(), far.try_clone().unwrap());
                    accepting.pipe(far, near);
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
            let _ = line.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn pipe(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream) {
        let shared = self.clone();
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
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
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
