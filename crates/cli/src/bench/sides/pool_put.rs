//! Puts blocks under new keys, and reads every byte back afterwards.

use super::pool_client::PoolPlan;
use crate::bench::content::{block_key, fill_numbered};
use crate::bench::serve::{Measured, Sample};
use serde::{Deserialize, Serialize};
use std::io;
use tidepool_client::{Client, PutItem, PutOptions};
use tidepool_types::ByteSize;

/// Settings of a side that puts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PutPlan {
    /// The pool.
    pub pool: PoolPlan,
    /// Bytes of a run.
    pub footprint: ByteSize,
    /// Bytes of a block.
    pub block: ByteSize,
    /// Blocks per call.
    pub batch: usize,
    /// Runs that are put, and stay, before the first timing.
    pub before: u64,
    /// Whether a run's blocks are removed after they were verified.
    pub remove: bool,
    /// The seed of the content.
    pub seed: u64,
}

/// A client and its memory.
pub(super) struct PutSide {
    plan: PutPlan,
    client: Client,
    source: Vec<u8>,
    /// Number of the next run: every run has keys of its own.
    next: u64,
}

impl PutPlan {
    pub(super) fn set_up(&self) -> io::Result<PutSide> {
        let mut source = vec![0; self.footprint.0 as usize];
        fill_numbered(self.seed, self.block.0 as usize, &mut source);
        let mut side = PutSide { plan: self.clone(), client: self.pool.connect()?, source, next: 0 };
        for _ in 0..self.before {
            side.put_all()?;
        }
        Ok(side)
    }
}

impl PutSide {
    fn keys(&self, run: u64) -> Vec<[u8; 16]> {
        let count = self.plan.footprint.0 / self.plan.block.0;
        (0..count).map(|index| block_key(run * count + index)).collect()
    }

    fn put_all(&mut self) -> io::Result<Sample> {
        let keys = self.keys(self.next);
        self.next += 1;
        let blocks = self.source.chunks_exact(self.plan.block.0 as usize);
        let items: Vec<PutItem<'_>> = keys.iter().zip(blocks).map(|(key, block)| PutItem::new(key, block)).collect();
        let options = PutOptions::default();
        let (stored, elapsed) = self.plan.pool.planted_delay.time(|| -> io::Result<()> {
            for batch in items.chunks(self.plan.batch) {
                for stored in self.client.put_batch(batch, &options) {
                    stored.map_err(io::Error::other)?;
                }
            }
            Ok(())
        });
        stored?;
        Ok(Sample { elapsed, amount: self.plan.footprint.0 })
    }
}

impl Measured for PutSide {
    fn run(&mut self, _variant: u64) -> io::Result<Sample> {
        self.put_all()
    }

    fn verify(&mut self) -> io::Result<()> {
        let block = self.plan.block.0 as usize;
        let keys = self.keys(self.next - 1);
        let mut found = vec![0; block];
        for (index, (key, expected)) in keys.iter().zip(self.source.chunks_exact(block)).enumerate() {
            let got = self.client.get_into(key, &mut found).map_err(io::Error::other)?;
            if got != Some(block) || found != expected {
                return Err(io::Error::other(format!("block {index} differs from the bytes put: {got:?}")));
            }
        }
        if self.plan.remove {
            for batch in keys.chunks(1024) {
                self.client.remove_batch(batch).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}
