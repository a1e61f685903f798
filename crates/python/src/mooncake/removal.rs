//! Removals and their codes. A segment that could not be asked may still hold the block and bring it back: that is a
//! failure, never "not found". A segment whose process has ended holds no block.

use super::codes::{self, OBJECT_HAS_LEASE, OBJECT_NOT_FOUND, OK, RPC_FAIL};
use crate::keys::Key;
use tidepool_client::{Client, Listed, NodeError, NodeName, Pattern, Removal};

/// Removes blocks, leased ones only by force, with one code each.
pub(super) fn remove(client: &Client, keys: &[Key], force: bool) -> Vec<i64> {
    let remove = |keys: &[Key]| if force { client.remove_batch(keys) } else { client.remove_unleased(keys) };
    let one = |key: &Key| remove(std::slice::from_ref(key)).map(|mut removals| removals.pop().unwrap_or_default());
    let removals: Vec<Result<Removal, i64>> = match remove(keys) {
        Ok(removals) => removals.into_iter().map(Ok).collect(),
        // An invalid key is not there; the other keys still get their answers.
        Err(_) => keys.iter().map(|key| one(key).map_err(|_| codes::of_removed(key.as_ref()))).collect(),
    };
    let code = |removal: &Removal| match removal {
        Removal { leased: true, .. } => OBJECT_HAS_LEASE,
        Removal { unanswered, .. } if !unanswered.is_empty() => RPC_FAIL,
        Removal { removed: true, .. } => OK,
        _ => OBJECT_NOT_FOUND,
    };
    removals.iter().map(|removal| removal.as_ref().map_or_else(|code| *code, code)).collect()
}

/// Removes every block that matches. Returns their number, or a code if some segment could not be asked. Fails if the
/// pattern is invalid.
pub(super) fn remove_matching(client: &Client, pattern: &Pattern, force: bool) -> Result<i64, NodeError> {
    let (found, unanswered) = match list(client, pattern) {
        Ok(listed) => listed,
        Err(error @ NodeError::Invalid(_)) => return Err(error),
        Err(error) => return Ok(codes::of_node(&error)),
    };
    let keys: Vec<Key> = found.into_iter().map(|entry| Key::Owned(entry.key)).collect();
    let codes = remove(client, &keys, force);
    if codes.contains(&RPC_FAIL) || !unanswered.is_empty() {
        return Ok(RPC_FAIL);
    }
    Ok(codes.iter().filter(|code| **code == OK).count() as i64)
}

fn list(client: &Client, pattern: &Pattern) -> Result<(Vec<Listed>, Vec<NodeName>), NodeError> {
    let mut unanswered = Vec::new();
    let found = crate::pool::list_noting(client, pattern, |nodes| unanswered.extend(nodes))?;
    Ok((found, unanswered))
}
