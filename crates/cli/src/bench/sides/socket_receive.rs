//! The receiving end of raw sockets: several connections, a thread each, straight into the destination.

use super::socket_send::UNIT;
use crate::bench::{
    content::first_wrong,
    serve::{Measured, Sample},
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Instant,
};
use tidepool_types::ByteSize;

/// Written over the destination between runs.
const WIPE: u8 = 0x5a;

/// Settings of a receiving side. The variant of a run is the bytes per call, at both ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReceivePlan {
    /// The sender's address.
    pub address: SocketAddr,
    /// Bytes to receive in each run; as many as the sender has.
    pub footprint: ByteSize,
    /// Connections, with a thread each.
    pub streams: u32,
    /// Size of socket buffers; none for the kernel's choice.
    pub socket_buffer: Option<ByteSize>,
    /// The seed of the content.
    pub seed: u64,
}

impl ReceivePlan {
    /// Connects, and touches the destination.
    pub(super) fn set_up(&self) -> io::Result<ReceiveSide> {
        let len = self.footprint.0 as usize;
        let share = len / self.streams.max(1) as usize;
        if share == 0 || share * self.streams as usize != len {
            return Err(io::Error::other(format!("{} cannot be shared by {} streams", self.footprint, self.streams)));
        }
        let streams = (0..self.streams).map(|_| self.connect()).collect::<io::Result<_>>()?;
        Ok(ReceiveSide { streams, destination: vec![WIPE; len], share, seed: self.seed })
    }

    /// Buffers must be set before connecting: the window's scale is agreed on at the handshake.
    fn connect(&self) -> io::Result<TcpStream> {
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
        if let Some(size) = self.socket_buffer {
            sockopt::set_socket_recv_buffer_size(&socket, size.0 as usize)?;
        }
        rustix::net::connect(&socket, &self.address)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Connections and destination, ready.
pub(super) struct ReceiveSide {
    streams: Vec<TcpStream>,
    destination: Vec<u8>,
    share: usize,
    seed: u64,
}

impl Measured for ReceiveSide {
    fn run(&mut self, call: u64) -> io::Result<Sample> {
        let share = self.share;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let parts = self.streams.iter_mut().zip(self.destination.chunks_mut(share)).enumerate();
            let threads: Vec<_> =
                parts.map(|(i, (stream, part))| scope.spawn(move || receive(stream, i * share, part, call))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a receiving thread panicked")))
            })
        })?;
        Ok(Sample { elapsed: start.elapsed(), amount: self.destination.len() as u64 })
    }

    fn verify(&mut self) -> io::Result<()> {
        if let Some(index) = first_wrong(self.seed, UNIT, &self.destination) {
            return Err(io::Error::other(format!("MiB {index} did not arrive right")));
        }
        self.destination.fill(WIPE);
        Ok(())
    }
}

/// Asks for the sender's bytes from `first` on and receives them into `part`, at most `call` bytes a call.
fn receive(stream: &mut TcpStream, first: usize, part: &mut [u8], call: u64) -> io::Result<()> {
    let request = [first as u64, part.len() as u64, call].map(u64::to_le_bytes).concat();
    stream.write_all(&request)?;
    let mut filled = 0;
    while filled < part.len() {
        let end = part.len().min(filled.saturating_add(call.max(1) as usize));
        match stream.read(&mut part[filled..end])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            received => filled += received,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::SendPlan, *};

    #[test]
    fn every_byte_arrives_at_its_place_over_several_streams() {
        let (footprint, seed) = (ByteSize(4 << 20), 9);
        for socket_buffer in [None, Some(ByteSize(1 << 20))] {
            let sender = SendPlan { footprint, socket_buffer, seed }.set_up().unwrap();
            let address = sender.detail().parse().unwrap();
            let plan = ReceivePlan { address, footprint, streams: 2, socket_buffer, seed };
            let mut side = plan.set_up().unwrap();
            for call in [65_536, 1_000_000] {
                assert_eq!(side.run(call).unwrap().amount, footprint.0);
                side.verify().unwrap();
            }
        }
    }
}
