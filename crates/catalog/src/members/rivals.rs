//! Nodes that claim a name which another live node has: refused, and remembered for as long as they keep trying.

use std::collections::BTreeMap;
use std::time::Duration;
use tidepool_locks::Mutex;

/// A node that has not tried for this long has given up; nodes try several times a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// Two live nodes with one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameConflict {
    /// The name.
    pub name: String,
    /// Where the node serves whose name it is.
    pub holder: String,
    /// Where the other one serves: the catalog takes nothing from it, so nobody finds what it holds.
    pub rival: String,
}

#[derive(Debug)]
struct Rival {
    holder: String,
    address: String,
    seen: Duration,
}

/// The rival that was refused last, by name. One each: as many as there are nodes at most.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    // Taken when a node is refused or admitted and when somebody asks, never per look-up.
    by_name: Mutex<BTreeMap<String, Rival>>,
}

impl Rivals {
    /// A node at `address` was refused because the one at `holder` has its name.
    pub(super) fn refused(&self, name: &str, holder: &str, address: &str, now: Duration) {
        let mut by_name = self.by_name.lock();
        by_name.retain(|_, rival| is_trying(rival, now));
        let rival = Rival { holder: holder.to_owned(), address: address.to_owned(), seen: now };
        if by_name.insert(name.to_owned(), rival).is_none() {
            tracing::warn!(node = name, known = holder, refused = address, "two live nodes have one name");
        }
    }

    /// A node of that name was admitted.
    pub(super) fn admitted(&self, name: &str) {
        self.by_name.lock().remove(name);
    }

    /// The conflicts of now.
    pub(super) fn current(&self, now: Duration) -> Vec<NameConflict> {
        let by_name = self.by_name.lock();
        let trying = by_name.iter().filter(|(_, rival)| is_trying(rival, now));
        let conflict = |(name, rival): (&String, &Rival)| NameConflict {
            name: name.clone(),
            holder: rival.holder.clone(),
            rival: rival.address.clone(),
        };
        trying.map(conflict).collect()
    }
}

fn is_trying(rival: &Rival, now: Duration) -> bool {
    now.saturating_sub(rival.seen) <= PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_known_until_it_gives_up_or_gets_the_name() {
        let rivals = Rivals::default();
        let at = Duration::from_secs;
        let conflict = NameConflict { name: "n".into(), holder: "a:1".into(), rival: "b:1".into() };
        rivals.refused("n", "a:1", "b:1", at(1));
        rivals.refused("n", "a:1", "b:1", at(3));
        assert_eq!(rivals.current(at(6)), [conflict]);
        assert_eq!(rivals.current(at(7)), []);
        rivals.refused("n", "a:1", "b:1", at(8));
        rivals.admitted("n");
        assert_eq!(rivals.current(at(8)), []);
    }
}
