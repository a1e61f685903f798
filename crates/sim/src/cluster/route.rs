//! Which engine gets a request.

use super::Routing;
use crate::hash::{ByHash, spread};
use tidepool_trace::Request;

/// Blocks that are remembered at a time, twice: then the older half is forgotten.
const MOST_REMEMBERED: usize = 2 << 20;

/// Chooses engines.
pub struct Router {
    routing: Routing,
    engines: u64,
    random: u64,
    turn: u64,
    /// Which engine each block was last sent to, in two generations.
    young: ByHash<u32>,
    old: ByHash<u32>,
}

impl Router {
    /// For engines that are numbered from 0.
    #[must_use]
    pub fn new(routing: Routing, engines: u32, seed: u64) -> Self {
        let engines = u64::from(engines.max(1));
        Self { routing, engines, random: seed, turn: 0, young: ByHash::default(), old: ByHash::default() }
    }

    /// The engine that gets a request.
    pub fn choose(&mut self, request: &Request) -> u32 {
        match (self.routing, request.origin) {
            (Routing::RoundRobin, _) => self.next(),
            (Routing::LongestPrefix, _) => self.by_prefix(request),
            // High bits by multiplication: every engine is as likely as any other.
            (Routing::Sticky, Some(origin)) => self.below(spread(origin.session.0)),
            (Routing::Random, _) | (Routing::Sticky, None) => {
                self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
                self.below(spread(self.random))
            }
        }
    }

    fn below(&self, word: u64) -> u32 {
        ((u128::from(word) * u128::from(self.engines)) >> 64) as u32
    }

    fn next(&mut self) -> u32 {
        self.turn += 1;
        ((self.turn - 1) % self.engines) as u32
    }

    fn by_prefix(&mut self, request: &Request) -> u32 {
        let known = |hash: &u64| self.young.get(hash).or_else(|| self.old.get(hash)).copied();
        let deepest = request.blocks.iter().rev().find_map(|block| known(&block.0));
        let engine = deepest.unwrap_or_else(|| self.next());
        if self.young.len() >= MOST_REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.extend(request.blocks.iter().map(|block| (block.0, engine)));
        engine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_trace::{BlockHash, Millis, Origin, SessionId};

    fn request(session: u64, blocks: std::ops::Range<u64>) -> Request {
        let origin =
            Origin { session: SessionId(session), parent: None, turn: 0, pause: Millis(0), calls: None, last: false };
        let blocks = blocks.map(BlockHash).collect();
        Request { at: Millis(0), input_tokens: 0, output_tokens: 0, blocks, origin: Some(origin) }
    }

    #[test]
    fn round_robin_takes_turns_and_random_depends_on_the_seed() {
        let engines = |routing, seed| {
            let mut router = Router::new(routing, 3, seed);
            (0..300).map(|n| router.choose(&request(n, 0..1))).collect::<Vec<_>>()
        };
        assert_eq!(engines(Routing::RoundRobin, 1)[..4], [0, 1, 2, 0]);
        assert_eq!(engines(Routing::Random, 1), engines(Routing::Random, 1));
        assert_ne!(engines(Routing::Random, 1), engines(Routing::Random, 2));
        for routing in [Routing::Random, Routing::Sticky] {
            let chosen = engines(routing, 1);
            assert!((0..3).all(|engine| chosen.iter().filter(|e| **e == engine).count() > 70), "{routing}");
        }
    }

    #[test]
    fn sessions_stick_and_prefixes_go_where_they_were() {
        let mut sticky = Router::new(Routing::Sticky, 7, 1);
        let first = sticky.choose(&request(5, 0..1));
        assert!((0..20).all(|n| sticky.choose(&request(5, n..n + 9)) == first));
        let mut prefix = Router::new(Routing::LongestPrefix, 7, 1);
        let [a, b] = [0..10, 100..110].map(|blocks| prefix.choose(&request(1, blocks)));
        assert_ne!(a, b);
        assert_eq!([0..12, 100..101].map(|blocks| prefix.choose(&request(2, blocks))), [a, b]);
    }
}
