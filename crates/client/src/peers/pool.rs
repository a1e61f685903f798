//! Whether a node that was found on this host is of the client's pool.
//!
//! Nodes of several pools may have their sockets in one directory. A client that has catalogs uses those that its catalogs
//! name; of the others, those that announce to one of the client's catalogs, or to nobody. A client without catalogs uses all.

use std::net::{IpAddr, UdpSocket};

/// Whether a node that announces to `theirs` is of the pool of a client that asks `ours`.
pub(super) fn is_shared(ours: &[String], theirs: &[String]) -> bool {
    let is_ours = |address: &String| ours.iter().any(|our| place(our) == place(address));
    ours.is_empty() || theirs.is_empty() || theirs.iter().any(is_ours)
}

/// Where an address leads; a host's many names for itself are one.
fn place(address: &str) -> (Option<&str>, &str) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (Some(host).filter(|host| !is_here(host)), port)
}

fn is_here(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        // Only an address of this host can be bound to.
        Ok(address) => address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok(),
        Err(_) => host == "localhost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(ours: &[&str], theirs: &[&str]) -> bool {
        let owned = |addresses: &[&str]| addresses.iter().map(|&address| address.to_owned()).collect::<Vec<_>>();
        is_shared(&owned(ours), &owned(theirs))
    }

    #[test]
    fn a_pool_is_known_by_its_catalogs() {
        assert!(shared(&["a:1", "b:1"], &["c:1", "b:1"]));
        assert!(!shared(&["a:1", "b:1"], &["a:2", "c:1"]));
        assert!(shared(&[], &["a:1"]), "a client without catalogs has only its host");
        assert!(shared(&["a:1"], &[]), "a node that announces to nobody is its host's");
        assert!(shared(&["localhost:7411"], &["127.0.0.1:7411"]));
        assert!(shared(&["[::1]:7411"], &["0.0.0.0:7411"]));
        assert!(!shared(&["127.0.0.1:7411"], &["127.0.0.1:7412"]));
        assert!(!shared(&["127.0.0.1:7411"], &["192.0.2.1:7411"]));
    }
}
