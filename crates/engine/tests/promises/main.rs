//! The promises of this crate, a test each, against real nodes; GPUs are pretended.

mod a_gpu_that_fails;
mod blocks_and_lookups;
mod blocks_of_a_gpu;
mod depths;
mod gpu;
mod long_batches;
mod pinned_memory;
mod reports;
