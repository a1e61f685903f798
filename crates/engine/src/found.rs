//! What a look-up finds: how much of a prefix can be loaded, and where each block of it is.

use crate::lookup::Chain;
use crate::plan::Need;
use tidepool_client::{Matches, NodeName, Place, Tier};

/// How much of a prefix can be loaded, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Hashed blocks that can be loaded, after those that were skipped.
    pub run: usize,
    nodes: Vec<NodeName>,
    /// One for each chain of the look-up.
    chains: Vec<Vec<Stretch>>,
}

/// Blocks in a row that are best read from the same place. A run has few, so that answers can be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    place: Place,
    blocks: usize,
}

impl Found {
    /// A run of what was matched for those of `chains` of which a prefix needs all blocks.
    pub(crate) fn new(run: usize, chains: &[Chain], matches: Matches) -> Self {
        let mut matched = matches.chains.iter();
        let places = |chain: &Chain| match chain.need {
            Need::All => matched
                .next()
                .map_or_else(Vec::new, |found| stretches(found.places.iter().take(run / chain.step).copied())),
            Need::Last(_) => Vec::new(),
        };
        let chains = chains.iter().map(places).collect();
        Self { run, nodes: matches.nodes, chains }
    }

    /// Where each block of a chain is best read from: its node, and the tier in which that has it. One for each block of the
    /// run; none for a chain of which a prefix needs only the last blocks.
    pub fn places(&self, chain: usize) -> impl Iterator<Item = (&NodeName, Tier)> {
        let stretches = self.chains.get(chain).map_or(&[][..], Vec::as_slice);
        stretches.iter().flat_map(move |Stretch { place, blocks }| {
            let node = self.nodes.get(usize::from(place.node));
            node.into_iter().flat_map(move |node| std::iter::repeat_n((node, place.tier), *blocks))
        })
    }
}

fn stretches(places: impl Iterator<Item = Place>) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for place in places {
        match stretches.last_mut() {
            Some(last) if last.place == place => last.blocks += 1,
            _ => stretches.push(Stretch { place, blocks: 1 }),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyPrefix;
    use tidepool_client::ChainMatch;

    #[test]
    fn a_run_names_node_and_tier_of_each_block() {
        let node = |name| NodeName::new(name).expect("a name");
        let at = |node, tier| Place { node, tier };
        let near = [at(0, Tier::Dram), at(0, Tier::Dram), at(1, Tier::Dram), at(1, Tier::Disk), at(0, Tier::Dram)];
        let far = [at(1, Tier::Object), at(0, Tier::Dram), at(0, Tier::Dram)];
        let chains = [near.to_vec(), far.to_vec()].map(|places| ChainMatch { places }).to_vec();
        let nodes = vec![node("a"), node("b")];
        let matches = Matches { chains, shortest: 3, nodes, complete: true, answered: true };
        let chain = |step, need| Chain { prefix: KeyPrefix::new("p"), step, need };
        let chains = [chain(1, Need::All), chain(4, Need::Last(1)), chain(2, Need::All)];
        let found = Found::new(4, &chains, matches);
        let places = |chain| -> Vec<(String, Tier)> {
            found.places(chain).map(|(node, tier)| (node.to_string(), tier)).collect()
        };
        let named = |name: &str, tier| (name.to_owned(), tier);
        let first = [("a", Tier::Dram), ("a", Tier::Dram), ("b", Tier::Dram), ("b", Tier::Disk)];
        assert_eq!(places(0), first.map(|(name, tier)| named(name, tier)));
        assert!(places(1).is_empty());
        assert_eq!(places(2), [named("b", Tier::Object), named("a", Tier::Dram)]);
        assert!(places(3).is_empty());
    }
}
