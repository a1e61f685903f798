//! The sending end of raw sockets: streams memory to each connection, a thread a connection, without requests in
//! between.
//!
//! A pass starts with one request of three little-endian words on the connection: first byte, bytes, and bytes per call.

use crate::bench::{
    content::fill_numbered,
    memory::SharedMemory,
    serve::{Measured, Sample},
};
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};
use tidepool_transfer::conn::do_not_pace_on_one_host;
use tidepool_types::ByteSize;

/// Bytes of the memory that share one content; also the unit of verification at the other end.
pub(super) const UNIT: usize = 1 << 20;

/// Most connections served; further ones wait unaccepted.
const MOST_CONNECTIONS: usize = 256;

/// Settings of a sending side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SendPlan {
    /// Bytes of memory to send from.
    pub footprint: ByteSize,
    /// Size of socket buffers; none for the kernel's choice.
    pub socket_buffer: Option<ByteSize>,
    /// The seed of the content.
    pub seed: u64,
}

impl SendPlan {
    /// Allocates and touches the memory, and listens.
    pub(super) fn set_up(&self) -> io::Result<SendSide> {
        let mut memory = SharedMemory::new(self.footprint.0 as usize)?;
        fill_numbered(self.seed, UNIT, &mut memory);
        let memory = Arc::new(memory);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        if let Some(size) = self.socket_buffer {
            // Accepted connections inherit it.
            sockopt::set_socket_send_buffer_size(&listener, size.0 as usize)?;
        }
        let address = listener.local_addr()?;
        std::thread::spawn(move || accept(&listener, &memory));
        Ok(SendSide { address })
    }
}

fn accept(listener: &TcpListener, memory: &Arc<SharedMemory>) {
    for stream in listener.incoming().take(MOST_CONNECTIONS).flatten() {
        let memory = Arc::clone(memory);
        std::thread::spawn(move || {
            // An error is the receiver's end or its fault, which its own side reports.
            let _ = send_passes(stream, &memory);
        });
    }
}

fn send_passes(mut stream: TcpStream, memory: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // As the pool does, so that the ratio shows what the pool adds to a socket.
    do_not_pace_on_one_host(&stream);
    loop {
        let mut request = [0; 24];
        stream.read_exact(&mut request)?;
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| request[8 * i + byte])) as usize;
        let bytes = word(0).checked_add(word(1)).and_then(|end| memory.get(word(0)..end));
        let bytes = bytes.ok_or_else(|| io::Error::other("request outside of the memory"))?;
        for call in bytes.chunks(word(2).max(1)) {
            stream.write_all(call)?;
        }
    }
}

/// A listening sender. Its threads end with the process.
pub(super) struct SendSide {
    address: SocketAddr,
}

impl Measured for SendSide {
    fn detail(&self) -> String {
        self.address.to_string()
    }

    fn run(&mut self, _variant: u64) -> io::Result<Sample> {
        Err(io::Error::other("the receiving end is timed, not this one"))
    }

    fn verify(&mut self) -> io::Result<()> {
        Ok(())
    }
}
