//! A pool of real processes under fire: three nodes, two catalogs and several clients, each a process of its own, while
//! processes are killed, stopped and restarted and transfers fail. Whatever happens, every answer is right or a miss, every
//! call returns by its deadline, and space comes back.
//!
//! `TIDEPOOL_TEST_SEED` chooses another run; the seed is printed.

mod aftermath;
mod clients_die_and_stop;
mod cluster;
mod killing_and_stopping;
mod model;
mod short_deadlines;
#[path = "../common/signals.rs"]
mod signals;
mod worker;
