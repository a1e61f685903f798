//! memcpy: one thread copies every piece of a source to its place in a destination of the same size.

use crate::bench::{
    content::{fill_numbered, first_wrong},
    memory::SharedMemory,
    serve::{Measured, Sample},
};
use serde::{Deserialize, Serialize};
use std::{io, ops::Deref, time::Instant};
use tidepool_types::{ByteSize, Random};

/// The byte that wipes the destination between runs; no content consists of it.
const WIPE: u8 = 0x5a;

/// The kind of the source's memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Ordinary memory of the process.
    Private,
    /// A mapped file under /dev/shm, as a pool has.
    Shared,
}

/// The order in which pieces are copied.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The order of their addresses.
    Ascending,
    /// The order of [`Random::order`] for the seed.
    Random,
}

impl Order {
    /// The numbers `0..count` in this order.
    pub(super) fn of(self, count: u32, seed: u64) -> Vec<u32> {
        match self {
            Self::Ascending => (0..count).collect(),
            Self::Random => Random::new(seed).order(count),
        }
    }
}

/// Settings of a copying side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyPlan {
    /// Bytes of the source and of the destination.
    pub footprint: ByteSize,
    /// Bytes of each call of memcpy.
    pub piece: ByteSize,
    /// The order of the pieces in both.
    pub order: Order,
    /// The source's memory.
    pub source: SourceKind,
    /// The seed of order and content.
    pub seed: u64,
}

impl CopyPlan {
    /// Allocates and touches all memory.
    pub(super) fn set_up(&self) -> io::Result<CopySide> {
        let (len, piece) = (self.footprint.0 as usize, self.piece.0 as usize);
        if piece == 0 || len == 0 || !len.is_multiple_of(piece) {
            return Err(io::Error::other(format!(
                "{} is not a whole number of pieces of {}",
                self.footprint, self.piece
            )));
        }
        let count = u32::try_from(len / piece).map_err(io::Error::other)?;
        let order = self.order.of(count, self.seed);
        let source: Box<dyn Deref<Target = [u8]>> = match self.source {
            SourceKind::Private => {
                let mut memory = vec![0; len];
                fill_numbered(self.seed, piece, &mut memory);
                Box::new(memory)
            }
            SourceKind::Shared => {
                let mut memory = SharedMemory::new(len)?;
                fill_numbered(self.seed, piece, &mut memory);
                Box::new(memory)
            }
        };
        Ok(CopySide { source, destination: vec![WIPE; len], order, piece, seed: self.seed })
    }
}

/// Source and destination, ready.
pub(super) struct CopySide {
    source: Box<dyn Deref<Target = [u8]>>,
    destination: Vec<u8>,
    order: Vec<u32>,
    piece: usize,
    seed: u64,
}

impl Measured for CopySide {
    fn run(&mut self, _variant: u64) -> io::Result<Sample> {
        let source: &[u8] = &self.source;
        let start = Instant::now();
        for &index in &self.order {
            let at = index as usize * self.piece;
            self.destination[at..at + self.piece].copy_from_slice(&source[at..at + self.piece]);
        }
        Ok(Sample { elapsed: start.elapsed(), amount: self.destination.len() as u64 })
    }

    fn verify(&mut self) -> io::Result<()> {
        if let Some(index) = first_wrong(self.seed, self.piece, &self.destination) {
            return Err(io::Error::other(format!("piece {index} was not copied right")));
        }
        self.destination.fill(WIPE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> CopyPlan {
        CopyPlan {
            footprint: ByteSize(1 << 20),
            piece: ByteSize(4096),
            order: Order::Random,
            source: SourceKind::Shared,
            seed: 5,
        }
    }

    #[test]
    fn every_piece_is_copied_in_any_order_from_any_memory() {
        for (order, source) in [(Order::Ascending, SourceKind::Private), (Order::Random, SourceKind::Shared)] {
            let mut side = CopyPlan { order, source, ..plan() }.set_up().unwrap();
            assert_eq!(side.run(0).unwrap().amount, 1 << 20);
            side.verify().unwrap();
        }
    }

    #[test]
    fn old_bytes_do_not_pass_for_new_ones() {
        let mut side = plan().set_up().unwrap();
        side.run(0).unwrap();
        side.verify().unwrap();
        assert!(side.verify().is_err());
    }

    #[test]
    fn a_footprint_of_half_pieces_is_refused() {
        assert!(CopyPlan { piece: ByteSize(3000), ..plan() }.set_up().is_err());
        assert!(CopyPlan { piece: ByteSize(0), ..plan() }.set_up().is_err());
    }
}
