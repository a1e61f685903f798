//! What the client promises, each promise a test, against real catalogs and nodes on loopback.

mod bad_input;
mod calls_may_be_dropped;
mod cluster;
mod copies_that_fail;
mod corrupt_block_is_a_miss;
mod dead_node_costs_one_timeout;
mod deadlines;
mod declined_puts;
mod draining;
mod hanging_nodes;
mod held_key_moves_nothing;
mod layouts;
mod leases;
mod lookup_keeps_nothing_alive;
mod management;
mod match_prefix;
mod no_space;
mod pools_apart;
mod removals;
mod removals_name_who_may_keep;
mod replicas;
mod round_trips;
mod same_process;
mod short_deadlines;
mod upserts;
mod view_outlives_eviction;
