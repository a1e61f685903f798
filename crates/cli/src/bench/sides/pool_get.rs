//! Gets by key into the caller's memory, in batches or one by one.

use super::copy::Order;
use super::pool_client::PoolPlan;
use crate::bench::compare::median;
use crate::bench::content::{block_key, first_wrong, numbered};
use crate::bench::serve::{Measured, Sample};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use tidepool_client::{Client, GetInto};
use tidepool_types::ByteSize;

/// The byte that wipes the destination between runs; no content consists of it.
const WIPE: u8 = 0x5a;
/// Gets that are timed one by one.
const SINGLES: usize = 20_000;

/// Settings of a side that gets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetPlan {
    /// The pool.
    pub pool: PoolPlan,
    /// Bytes of all blocks together.
    pub footprint: ByteSize,
    /// Bytes of a block.
    pub block: ByteSize,
    /// Blocks per call.
    pub batch: usize,
    /// The order of the blocks.
    pub order: Order,
    /// The seed of order and content.
    pub seed: u64,
}

/// The variant of a run that times gets one by one; zero is batches.
pub const ONE_BY_ONE: u64 = 1;

/// A client and its memory.
pub(super) struct GetSide {
    plan: GetPlan,
    client: Client,
    destination: Vec<u8>,
    order: Vec<u32>,
    /// In the order of the calls.
    keys: Vec<[u8; 16]>,
    /// Whether the last run read all blocks, so that all can be verified.
    whole: bool,
}

impl GetPlan {
    pub(super) fn set_up(&self) -> io::Result<GetSide> {
        let count = u32::try_from(self.footprint.0 / self.block.0).map_err(io::Error::other)?;
        let order = self.order.of(count, self.seed);
        Ok(GetSide {
            client: self.pool.connect()?,
            destination: vec![WIPE; self.footprint.0 as usize],
            keys: order.iter().map(|&index| block_key(index.into())).collect(),
            order,
            whole: false,
            plan: self.clone(),
        })
    }
}

impl GetSide {
    fn batches(&mut self) -> io::Result<Sample> {
        // A caller has its keys and buffers; bringing them into the call's form is not the pool's work.
        let mut places: Vec<_> = self.destination.chunks_exact_mut(self.plan.block.0 as usize).map(Some).collect();
        let mut items = Vec::with_capacity(places.len());
        for (&index, key) in self.order.iter().zip(&self.keys) {
            let place = places[index as usize].take().expect("an order names every block once");
            items.push(GetInto::new(key, place));
        }
        let (misses, elapsed) = self.plan.pool.planted_delay.time(|| {
            let mut misses = 0;
            for batch in items.chunks_mut(self.plan.batch) {
                misses += self.client.get_batch_into(batch).iter().filter(|got| !matches!(got, Ok(Some(_)))).count();
            }
            misses
        });
        if misses > 0 {
            return Err(io::Error::other(format!("{misses} blocks were not found")));
        }
        Ok(Sample { elapsed, amount: self.plan.footprint.0 })
    }

    fn one_by_one(&mut self) -> io::Result<Sample> {
        let block = self.plan.block.0 as usize;
        let mut seconds = Vec::with_capacity(SINGLES);
        for (&index, key) in self.order.iter().zip(&self.keys).cycle().take(SINGLES) {
            let place = &mut self.destination[index as usize * block..][..block];
            let (got, elapsed) = self.plan.pool.planted_delay.time(|| self.client.get_into(key, place));
            seconds.push(elapsed.as_secs_f64());
            if !matches!(got, Ok(Some(len)) if len == block) {
                return Err(io::Error::other(format!("block {index} was not found")));
            }
        }
        Ok(Sample { elapsed: Duration::from_secs_f64(median(&seconds)), amount: 1 })
    }
}

impl Measured for GetSide {
    fn run(&mut self, variant: u64) -> io::Result<Sample> {
        self.whole = variant != ONE_BY_ONE || self.order.len() <= SINGLES;
        if variant == ONE_BY_ONE { self.one_by_one() } else { self.batches() }
    }

    fn verify(&mut self) -> io::Result<()> {
        let block = self.plan.block.0 as usize;
        let wrong = if self.whole {
            first_wrong(self.plan.seed, block, &self.destination)
        } else {
            let right = |index: u64| {
                let found = &self.destination[index as usize * block..][..block];
                numbered(self.plan.seed, index).matches(found)
            };
            self.order.iter().take(SINGLES).copied().map(u64::from).find(|&index| !right(index))
        };
        if let Some(index) = wrong {
            return Err(io::Error::other(format!("block {index} has wrong bytes")));
        }
        self.destination.fill(WIPE);
        Ok(())
    }
}
