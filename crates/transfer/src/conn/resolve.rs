//! Finding the address behind a name, without waiting for longer than the caller may.

use super::ConnError;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use tidepool_types::Deadline;

/// Names looked up at once. The system's resolver cannot be told to stop, so a look-up that nobody waits for any more
/// still counts.
const AT_ONCE: usize = 16;
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The first address that `host:port` stands for.
pub fn resolve(address: &str, until: Deadline) -> Result<SocketAddr, ConnError> {
    match address.parse() {
        Ok(address) => Ok(address),
        Err(_) => look_up(address.to_owned(), first_address, until),
    }
}

fn first_address(address: &str) -> io::Result<SocketAddr> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("{address:?} has no address"));
    address.to_socket_addrs()?.next().ok_or_else(unknown)
}

/// A place among the look-ups under way.
struct Place;

impl Place {
    fn take() -> io::Result<Self> {
        if UNDER_WAY.fetch_add(1, Ordering::AcqRel) < AT_ONCE {
            return Ok(Self);
        }
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
        Err(io::Error::other(format!("{AT_ONCE} names are being looked up already")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    }
}

fn look_up(
    address: String,
    look: impl FnOnce(&str) -> io::Result<SocketAddr> + Send + 'static,
    until: Deadline,
) -> Result<SocketAddr, ConnError> {
    let place = Place::take()?;
    let (found, answer) = sync_channel(1);
    let work = move || {
        let looked = look(&address);
        drop(place);
        // Nobody may be waiting any more.
        let _ = found.send(looked);
    };
    std::thread::Builder::new().name("tp-resolve".to_owned()).spawn(work)?;
    Ok(answer.recv_timeout(until.remaining()).map_err(|_| ConnError::TimedOut)??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn numbers_and_names_are_resolved() {
        let until = Deadline::after(Duration::from_secs(30));
        assert_eq!(resolve("127.0.0.1:80", until).unwrap(), "127.0.0.1:80".parse().unwrap());
        assert!(resolve("localhost:80", until).unwrap().ip().is_loopback());
        assert!(resolve("no port", until).is_err());
    }

    #[test]
    fn a_resolver_that_hangs_costs_no_more_than_the_deadline() {
        let (release, hung) = sync_channel::<()>(0);
        let hang = move |_: &str| {
            let _ = hung.recv();
            Err(io::ErrorKind::TimedOut.into())
        };
        let looked = look_up("name:1".to_owned(), hang, Deadline::after(Duration::from_millis(5)));
        assert!(matches!(looked, Err(ConnError::TimedOut)));
        drop(release);
    }
}
