//! What a client runs with.

use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;
use tidepool_transfer::fault::FaultPlan;

/// When bytes are checked against their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// When they crossed a machine. On one host the generation guards against reuse, and the scrubber against decay.
    #[default]
    Network,
    /// On every read, same-host ones too.
    Always,
}

/// A client's settings. The command line documents the first six under the same names.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Catalogs to ask, `host:port` each; any that answers will do. None: only nodes on this host are found.
    pub catalogs: Vec<String>,
    /// Where this host's nodes have their Unix sockets.
    pub dir: PathBuf,
    /// Time after which a call answers with what it has, unless the call has a deadline of its own.
    pub deadline: Duration,
    /// TCP connections to each node on another host, per transport.
    pub tcp_streams: usize,
    /// When bytes are checked against their checksums.
    pub verify: Verify,
    /// Whether nodes on this host are used through shared memory. Without it every node is reached over TCP.
    pub local: bool,
    /// Whether what this client reads or finds is leased, for as long as the catalogs say: see [`crate::Client::remove_unleased`].
    pub leases: bool,
    /// Connections to one node that are used at once; further callers wait for one.
    pub connections_per_node: usize,
    /// Threads that help with large copies, beside the caller's; `None` takes as many as pay on this machine.
    pub copy_threads: Option<usize>,
    /// Threads that run [`crate::Client::spawn`]ed calls.
    pub workers: usize,
    /// Spawned calls that wait for a worker; further ones are refused.
    pub queued_calls: usize,
    /// Faults to inject into TCP transfers, to see what an engine makes of them; none by default.
    pub faults: FaultPlan,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            catalogs: Vec::new(),
            dir: PathBuf::from("/dev/shm/tidepool"),
            deadline: Duration::from_secs(5),
            tcp_streams: 2,
            verify: Verify::default(),
            local: true,
            leases: false,
            connections_per_node: 8,
            copy_threads: None,
            workers: 4,
            queued_calls: 1024,
            faults: FaultPlan::default(),
        }
    }
}

/// A setting that is not allowed; the message names it and what is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {value}: allowed are {allowed}")]
pub struct InvalidConfig {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub allowed: &'static str,
}

impl ClientConfig {
    pub(crate) fn validate(&self) -> Result<(), InvalidConfig> {
        let second = Duration::from_secs(1);
        let deadline_fits = (second / 1000..=second * 3600).contains(&self.deadline);
        check(deadline_fits, "deadline", || format!("{:?}", self.deadline), "1ms to 1h")?;
        check_count("tcp_streams", self.tcp_streams, 1..=16, "1 to 16")?;
        check_count("connections_per_node", self.connections_per_node, 1..=256, "1 to 256")?;
        check_count("copy_threads", self.copy_threads.unwrap_or(0), 0..=64, "0 to 64")?;
        check_count("workers", self.workers, 1..=256, "1 to 256")?;
        check_count("queued_calls", self.queued_calls, 1..=1 << 20, "1 to 1048576")
    }
}

fn check_count(
    field: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
    allowed: &'static str,
) -> Result<(), InvalidConfig> {
    check(range.contains(&value), field, || value.to_string(), allowed)
}

fn check(
    fits: bool,
    field: &'static str,
    value: impl FnOnce() -> String,
    allowed: &'static str,
) -> Result<(), InvalidConfig> {
    if fits { Ok(()) } else { Err(InvalidConfig { field, value: value(), allowed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_range_is_named() {
        assert!(ClientConfig::default().validate().is_ok());
        let error = ClientConfig { tcp_streams: 0, ..ClientConfig::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "tcp_streams is 0: allowed are 1 to 16");
        let error = ClientConfig { deadline: Duration::ZERO, ..ClientConfig::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "deadline is 0ns: allowed are 1ms to 1h");
    }
}
