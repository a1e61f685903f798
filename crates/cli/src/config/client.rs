//! `[client]`: how the commands that talk to a pool find it and how long they wait.

use super::{
    peers::Catalogs,
    section::section,
    values::{Dir, Verify},
};
use tidepool_types::Span;

section! {
    /// The settings of a client.
    "client", flags "" => ClientConfig, ClientOptions {
        "catalogs" catalogs: Catalogs = "127.0.0.1:7411", "Catalogs to ask, any that answers";
        "dir" dir: Dir = "/dev/shm/tidepool", "Directory in which this host's nodes have their sockets";
        "deadline" deadline: Span = "5s" in "1ms" to "1h", "Time after which a call answers with what it has; of a command, all of it";
        "tcp-streams" tcp_streams: u32 = "2" in "1" to "16", "TCP connections to each node on another host";
        "verify" verify: Verify = "network", "When bytes are checked against their checksums: network or always";
    }
}
