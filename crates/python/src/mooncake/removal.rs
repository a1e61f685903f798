//! What a removal answers. A segment that could not be asked may still hold the block, and bring it back: that is a failure,
//! and never "not found". A segment whose process has ended holds nothing.

use super::codes::{self, OBJECT_HAS_LEASE, OBJECT_NOT_FOUND, OK, RPC_FAIL};
use crate::keys::Key;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tidepool_client::{Client, Listed, NodeError, NodeName, Pattern, Removal};

/// How long a segment that did not answer may take to refuse a connection.
const REFUSAL: Duration = Duration::from_millis(250);
/// For how long segments are looked at more closely; further ones count as there. Those that refuse do so at once.
const LOOKED_AT: Duration = Duration::from_secs(2);

/// Removes blocks, leased ones only by force, with one code each.
pub(super) fn remove(client: &Client, keys: &[Key], force: bool) -> Vec<i64> {
    let remove = |keys: &[Key]| if force { client.remove_batch(keys) } else { client.remove_unleased(keys) };
    let one = |key: &Key| remove(std::slice::from_ref(key)).map(|mut removals| removals.pop().unwrap_or_default());
    let removals: Vec<Result<Removal, i64>> = match remove(keys) {
        Ok(removals) => removals.into_iter().map(Ok).collect(),
        // A key that cannot be is not there; the others still get their answer.
        Err(_) => keys.iter().map(|key| one(key).map_err(|_| codes::of_removed(key.as_ref()))).collect(),
    };
    let unanswered = removals.iter().flatten().flat_map(|removal| &removal.unanswered);
    let silent = silent(client, unanswered);
    let code = |removal: &Removal| match removal {
        Removal { leased: true, .. } => OBJECT_HAS_LEASE,
        Removal { unanswered, .. } if unanswered.iter().any(|node| silent.contains(node)) => RPC_FAIL,
        Removal { removed: true, .. } => OK,
        _ => OBJECT_NOT_FOUND,
    };
    removals.iter().map(|removal| removal.as_ref().map_or_else(|code| *code, code)).collect()
}

/// Removes every block that matches. How many there were, or a code if not every segment could be asked. An error when the
/// pattern is none.
pub(super) fn remove_matching(client: &Client, pattern: &Pattern, force: bool) -> Result<i64, NodeError> {
    let (found, unanswered) = match list(client, pattern) {
        Ok(listed) => listed,
        Err(error @ NodeError::Invalid(_)) => return Err(error),
        Err(error) => return Ok(codes::of_node(&error)),
    };
    let keys: Vec<Key> = found.into_iter().map(|entry| Key::Owned(entry.key)).collect();
    let codes = remove(client, &keys, force);
    if codes.contains(&RPC_FAIL) || !silent(client, &unanswered).is_empty() {
        return Ok(RPC_FAIL);
    }
    Ok(codes.iter().filter(|code| **code == OK).count() as i64)
}

fn list(client: &Client, pattern: &Pattern) -> Result<(Vec<Listed>, Vec<NodeName>), NodeError> {
    let mut unanswered = Vec::new();
    let found = crate::pool::list_noting(client, pattern, |nodes| unanswered.extend(nodes))?;
    Ok((found, unanswered))
}

/// Which of the segments that gave no answer may still have their blocks: all but those whose host says that nobody is
/// there.
fn silent<'a>(client: &Client, unanswered: impl IntoIterator<Item = &'a NodeName>) -> HashSet<NodeName> {
    let mut silent: HashSet<NodeName> = unanswered.into_iter().cloned().collect();
    if silent.is_empty() {
        return silent;
    }
    let addresses = client.members().into_iter().filter(|member| silent.contains(&member.name));
    let addresses: Vec<_> = addresses.filter_map(|member| Some((member.name, member.data_address?))).collect();
    let until = Instant::now() + LOOKED_AT;
    for (name, address) in addresses.into_iter().take_while(|_| Instant::now() < until) {
        if is_refused(&address) {
            silent.remove(&name);
        }
    }
    silent
}

fn is_refused(address: &str) -> bool {
    let Some(address) = address.to_socket_addrs().ok().and_then(|mut found| found.next()) else { return false };
    TcpStream::connect_timeout(&address, REFUSAL).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
