//! Look-ups through a catalog: exists in batches, and match_prefix of a chain.

use super::pool_client::{KeyKind, PoolPlan};
use crate::bench::compare::median;
use crate::bench::serve::{Measured, Sample};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use tidepool_client::Client;

/// Calls of one run.
const CALLS: u64 = 60;

/// Settings of a side that looks up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LookupPlan {
    /// The pool.
    pub pool: PoolPlan,
    /// Blocks that the catalog knows: keys `0..blocks`.
    pub blocks: u64,
    /// Keys per call.
    pub batch: u64,
    /// The kind of the keys.
    pub keys: KeyKind,
    /// Whether to match chains; otherwise single keys, of which half are absent.
    pub chains: bool,
}

/// A client and its keys.
pub(super) struct LookupSide {
    plan: LookupPlan,
    client: Client,
    calls: Vec<Vec<Vec<u8>>>,
    wrong: u64,
}

impl LookupPlan {
    pub(super) fn set_up(&self) -> io::Result<LookupSide> {
        // A large, odd stride spreads each call over the whole table.
        let number = |n: u64| n.wrapping_mul(0x9e37_79b1) % self.blocks;
        let key = |n: u64| match self.chains || n.is_multiple_of(2) {
            true => self.keys.key(number(n)),
            false => self.keys.key(self.blocks + n),
        };
        let call = |call: u64| (call * self.batch..(call + 1) * self.batch).map(key).collect();
        Ok(LookupSide {
            client: self.pool.connect()?,
            calls: (0..CALLS).map(call).collect(),
            plan: self.clone(),
            wrong: 0,
        })
    }
}

impl LookupSide {
    fn exists(&mut self) -> Sample {
        let (answers, elapsed) = self.plan.pool.planted_delay.time(|| -> Vec<Vec<bool>> {
            self.calls.iter().map(|keys| self.client.exists(keys).unwrap_or_default()).collect()
        });
        let right = |answer: &[bool]| {
            answer.len() as u64 == self.plan.batch && answer.iter().enumerate().all(|(n, &found)| found == (n % 2 == 0))
        };
        self.wrong = answers.iter().filter(|answer| !right(answer)).count() as u64;
        Sample { elapsed, amount: CALLS * self.plan.batch }
    }

    fn match_prefix(&mut self) -> Sample {
        let mut seconds = Vec::with_capacity(self.calls.len());
        self.wrong = 0;
        for chain in &self.calls {
            let chains = [chain.as_slice()];
            let (matched, elapsed) = self.plan.pool.planted_delay.time(|| self.client.match_prefix(&chains));
            seconds.push(elapsed.as_secs_f64());
            let run = matched.map_or(0, |matched| matched.shortest as u64);
            self.wrong += u64::from(run != self.plan.batch);
        }
        Sample { elapsed: Duration::from_secs_f64(median(&seconds)), amount: 1 }
    }
}

impl Measured for LookupSide {
    fn run(&mut self, _variant: u64) -> io::Result<Sample> {
        Ok(if self.plan.chains { self.match_prefix() } else { self.exists() })
    }

    fn verify(&mut self) -> io::Result<()> {
        match self.wrong {
            0 => Ok(()),
            wrong => Err(io::Error::other(format!(
                "{wrong} of {CALLS} look-ups were wrong, or had no answer from the catalog in time: is the machine busy?"
            ))),
        }
    }
}
