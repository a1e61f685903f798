//! Routing: the engine that gets a request.

use super::Routing;
use crate::hash::{ByHash, spread};
use tidepool_trace::Request;

/// Blocks of one generation; two are remembered, and the older one is forgotten as a whole.
const MOST_REMEMBERED: usize = 2 << 20;
/// The most requests an engine may get by prefix, as a multiple of the average. Nearly all prompts of a service begin
/// alike: without a bound, the engine that saw the first one would get all.
const MOST_LOAD: f64 = 1.25;
/// Requests that any engine may get before this bound counts.
const LEAST: u64 = 8;

/// Chooses engines.
pub struct Router {
    routing: Routing,
    engines: u64,
    random: u64,
    /// Requests so far, for routing by turns or by prefix.
    turn: u64,
    /// Requests sent to each engine by prefix.
    sent: Vec<u64>,
    /// The engine that each block was last sent to, in two generations.
    young: ByHash<u32>,
    old: ByHash<u32>,
}

impl Router {
    /// A router for the engines `0..engines`.
    #[must_use]
    pub fn new(routing: Routing, engines: u32, seed: u64) -> Self {
        let engines = u64::from(engines.max(1));
        let (young, old) = (ByHash::default(), ByHash::default());
        Self { routing, engines, random: seed, turn: 0, sent: vec![0; engines as usize], young, old }
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

    /// The engine that got the fewest requests by prefix.
    fn idlest(&self) -> u32 {
        (0..).zip(&self.sent).min_by_key(|(_, sent)| **sent).map_or(0, |(engine, _)| engine)
    }

    fn by_prefix(&mut self, request: &Request) -> u32 {
        let known = |hash: &u64| self.young.get(hash).or_else(|| self.old.get(hash)).copied();
        let most = LEAST + (MOST_LOAD * self.turn as f64 / self.engines as f64) as u64;
        let has_room = |engine: &u32| self.sent[*engine as usize] < most;
        let deepest = request.blocks.iter().rev().find_map(|block| known(&block.0).filter(has_room));
        let engine = deepest.unwrap_or_else(|| self.idlest());
        self.turn += 1;
        self.sent[engine as usize] += 1;
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

    /// All prompts of a service begin alike, and all of them went to one engine of many.
    #[test]
    fn prompts_that_begin_alike_go_by_prefix_and_no_engine_gets_all() {
        let (mut router, mut sent, mut moved) = (Router::new(Routing::LongestPrefix, 4, 1), [0; 4], 0);
        let mut homes = [None; 100];
        for turn in 0..20 {
            for session in 0..100_u64 {
                let blocks = [0, 1].into_iter().chain((0..=turn).map(|block| 1000 * (session + 1) + block));
                let request = Request { blocks: blocks.map(BlockHash).collect(), ..request(session, 0..0) };
                let engine = router.choose(&request);
                sent[engine as usize] += 1;
                let home = homes[session as usize].replace(engine);
                moved += u32::from(home.is_some_and(|home| home != engine));
            }
        }
        assert!(sent.iter().all(|sent| (300..=650).contains(sent)), "{sent:?}");
        assert!(moved < 100, "{moved} of 1,900 turns left their prefix");
    }
}
