//! Every policy against a naive version of itself, and what all of them promise.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SLOTS: u32 = 12;

/// What happens to an order. Slots are chosen so that inserts and touches are both common.
#[derive(Debug, Clone)]
enum Step {
    /// A block is used; it comes in if it is not there.
    Use(u32),
    Remove(u32),
    Evict,
    /// Evicts the second choice.
    EvictNext,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..SLOTS).prop_map(Step::Use),
        1 => (0..SLOTS).prop_map(Step::Remove),
        4 => Just(Step::Evict),
        1 => Just(Step::EvictNext),
    ];
    prop::collection::vec(step, 0..300)
}

/// The shortest way to say what a policy does: blocks by name in plain vectors, oldest first.
trait Naive: Default {
    fn held(&self) -> BTreeSet<u32>;
    fn insert(&mut self, block: u32);
    fn touch(&mut self, block: u32);
    fn remove(&mut self, block: u32);
    fn evict(&mut self, block: u32);
    /// All blocks from the next victim on.
    fn order(&mut self) -> Vec<u32>;
}

#[derive(Default)]
struct NaiveLru(Vec<u32>);

impl Naive for NaiveLru {
    fn held(&self) -> BTreeSet<u32> {
        self.0.iter().copied().collect()
    }
    fn insert(&mut self, block: u32) {
        self.0.push(block);
    }
    fn touch(&mut self, block: u32) {
        self.remove(block);
        self.0.push(block);
    }
    fn remove(&mut self, block: u32) {
        self.0.retain(|b| *b != block);
    }
    fn evict(&mut self, block: u32) {
        self.remove(block);
    }
    fn order(&mut self) -> Vec<u32> {
        self.0.clone()
    }
}

#[derive(Default)]
struct NaiveSieve {
    blocks: Vec<(u32, bool)>,
    hand: usize,
}

impl Naive for NaiveSieve {
    fn held(&self) -> BTreeSet<u32> {
        self.blocks.iter().map(|(block, _)| *block).collect()
    }
    fn insert(&mut self, block: u32) {
        // A hand past the newest block began anew when it got there.
        self.hand %= self.blocks.len().max(1);
        self.blocks.push((block, false));
    }
    fn touch(&mut self, block: u32) {
        self.blocks.iter_mut().filter(|(b, _)| *b == block).for_each(|(_, used)| *used = true);
    }
    fn remove(&mut self, block: u32) {
        if let Some(at) = self.blocks.iter().position(|(b, _)| *b == block) {
            self.blocks.remove(at);
            self.hand -= usize::from(at < self.hand);
        }
    }
    fn evict(&mut self, block: u32) {
        self.remove(block);
    }
    fn order(&mut self) -> Vec<u32> {
        if self.blocks.is_empty() {
            return Vec::new();
        }
        self.hand %= self.blocks.len();
        while std::mem::take(&mut self.blocks[self.hand].1) {
            self.hand = (self.hand + 1) % self.blocks.len();
        }
        let (before, after) = self.blocks.split_at(self.hand);
        after.iter().chain(before).map(|(block, _)| *block).collect()
    }
}

#[derive(Default)]
struct NaiveS3Fifo {
    small: Vec<(u32, u8)>,
    main: Vec<(u32, u8)>,
    ghosts: Vec<u32>,
}

impl NaiveS3Fifo {
    fn small_first(&self) -> bool {
        self.main.is_empty() || self.small.len() > (self.small.len() + self.main.len()) / 10
    }
}

impl Naive for NaiveS3Fifo {
    fn held(&self) -> BTreeSet<u32> {
        self.small.iter().chain(&self.main).map(|(block, _)| *block).collect()
    }
    fn insert(&mut self, block: u32) {
        match self.ghosts.iter().position(|ghost| *ghost == block) {
            Some(ghost) => {
                self.ghosts.remove(ghost);
                self.main.push((block, 0));
            }
            None => self.small.push((block, 0)),
        }
    }
    fn touch(&mut self, block: u32) {
        let all = self.small.iter_mut().chain(&mut self.main);
        all.filter(|(b, _)| *b == block).for_each(|(_, uses)| *uses = 3.min(*uses + 1));
    }
    fn remove(&mut self, block: u32) {
        self.small.retain(|(b, _)| *b != block);
        self.main.retain(|(b, _)| *b != block);
    }
    fn evict(&mut self, block: u32) {
        let len = self.small.len() + self.main.len();
        if self.small.iter().any(|(b, _)| *b == block) {
            self.ghosts.push(block);
            let surplus = self.ghosts.len().saturating_sub(len);
            self.ghosts.drain(..surplus);
        }
        self.remove(block);
    }
    fn order(&mut self) -> Vec<u32> {
        while !self.held().is_empty() {
            if self.small_first() {
                if self.small[0].1 == 0 {
                    break;
                }
                let (block, _) = self.small.remove(0);
                self.main.push((block, 0));
            } else {
                if self.main[0].1 == 0 {
                    break;
                }
                let (block, uses) = self.main.remove(0);
                self.main.push((block, uses - 1));
            }
        }
        let (first, second) = if self.small_first() { (&self.small, &self.main) } else { (&self.main, &self.small) };
        first.iter().chain(second).map(|(block, _)| *block).collect()
    }
}

fn order(policy: &mut dyn Eviction) -> Vec<u32> {
    std::iter::successors(policy.victim(Duration::ZERO), |&slot| policy.after(slot)).collect()
}

/// Blocks lie in the slots of their names; a block's tag is its name.
fn apply<N: Naive>(policy: &mut dyn Eviction, naive: &mut N, step: &Step) {
    let now = Use::default();
    match *step {
        Step::Use(block) if naive.held().contains(&block) => {
            policy.touch(block, &now);
            naive.touch(block);
        }
        Step::Use(block) => {
            policy.insert(block, Tag(u64::from(block)), &now);
            naive.insert(block);
        }
        Step::Remove(block) => {
            policy.remove(block);
            naive.remove(block);
        }
        Step::Evict | Step::EvictNext => {
            let skip = usize::from(matches!(step, Step::EvictNext));
            if let Some(&block) = naive.order().get(skip) {
                policy.evict(block);
                naive.evict(block);
            }
        }
    }
}

fn agree<N: Naive>(mut policy: Box<dyn Eviction>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut naive = N::default();
    for step in steps {
        // Asking for the victim moves queues and hands, so it is only done where both are asked.
        if matches!(step, Step::Evict | Step::EvictNext) {
            prop_assert_eq!(order(&mut *policy), naive.order());
        }
        apply(&mut *policy, &mut naive, step);
        for block in 0..SLOTS {
            prop_assert_eq!(policy.contains(block), naive.held().contains(&block));
        }
    }
    prop_assert_eq!(order(&mut *policy), naive.order());
    Ok(())
}

proptest! {
    #[test]
    fn lru_is_that_of_a_naive_list(steps in steps()) {
        agree::<NaiveLru>(Policy::Lru.build(), &steps)?;
    }

    #[test]
    fn s3fifo_is_that_of_naive_queues(steps in steps()) {
        agree::<NaiveS3Fifo>(Policy::S3Fifo.build(), &steps)?;
    }

    #[test]
    fn sieve_is_that_of_a_naive_hand(steps in steps()) {
        agree::<NaiveSieve>(Policy::Sieve.build(), &steps)?;
    }

    #[test]
    fn whatever_is_chilled_goes_next(steps in steps(), slot in 0..SLOTS) {
        for name in Policy::ALL {
            let (mut policy, mut naive) = (name.build(), NaiveLru::default());
            steps.iter().for_each(|step| apply(&mut *policy, &mut naive, step));
            policy.chill(slot);
            if policy.contains(slot) {
                prop_assert_eq!(policy.victim(Duration::ZERO), Some(slot), "{}", name);
            }
        }
    }
}

#[test]
fn policies_are_known_by_their_names() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!("mru".parse::<Policy>(), Err(UnknownPolicy));
}
