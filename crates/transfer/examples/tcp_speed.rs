//! Batched gets over loopback TCP, verified on arrival, against a raw socket in the same run.
//!
//! `cargo run --release -p tidepool-transfer --example tcp_speed [streams [MiB [rounds [buffer KiB]]]]`
//!
//! The server is a process of its own. The raw side sends the same memory over as many connections and threads, with the
//! same socket buffers, without requests or checks, in calls of the best of three sizes. The sides take turns; medians of
//! the rounds. All memory is touched before. The received bytes are compared with what was sent, outside the timing.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_transfer::ops::{Destination, Op, ReadOp, Region, Regions};
use tidepool_transfer::tcp::serve::{BlockSource, HeldBlock, serve_get};
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_transfer::transport::Transport;
use tidepool_types::{BlockId, ClientId, CopyName, Deadline, Epoch, Generation};
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::{Request, Welcome};

const SHAPES: [(usize, usize); 3] = [(2 << 20, 32), (64 << 10, 128), (4 << 10, 512)];
const RAW_CALLS: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (streams, mib, rounds) = (number(0, TcpConfig::default().streams), number(1, 512), number(2, 7));
    let default_buffer = TcpConfig::default().socket.buffer_bytes.unwrap_or(0) >> 10;
    let buffer = Some(number(3, default_buffer) << 10).filter(|bytes| *bytes > 0);
    let config = TcpConfig {
        streams,
        socket: TcpOptions { buffer_bytes: buffer, ..TcpOptions::default() },
        ..TcpConfig::default()
    };
    if arguments.get(4).is_some_and(|last| last == "serve") {
        return serve(mib << 20, config.socket);
    }
    let (mut server, get, raw) = spawn_server(mib, buffer.unwrap_or(0) >> 10);
    println!("{streams} streams, {mib} MiB on each side, {rounds} rounds, {config:?}");
    for (block, batch) in SHAPES {
        compare(get, raw, &config, mib << 20, block, batch, rounds);
    }
    let _ = server.kill();
    let _ = server.wait();
}

fn compare(
    get: SocketAddr,
    raw: SocketAddr,
    config: &TcpConfig,
    bytes: usize,
    block: usize,
    batch: usize,
    rounds: usize,
) {
    let mut target = vec![1u8; bytes];
    let deadline = Deadline::after(Duration::from_secs(10));
    let mut transport = TcpTransport::connect(get, Epoch(1), ClientId(1), config.clone(), deadline).expect("connects");
    let raw_streams: Vec<_> = (0..config.streams).map(|_| connect_raw(raw, config.socket)).collect();
    let (mut gets, mut raws) = (Vec::new(), vec![Vec::new(); RAW_CALLS.len()]);
    for round in 0..=rounds {
        for (call, rates) in RAW_CALLS.iter().zip(&mut raws) {
            let rate = timed(bytes, || receive_raw(&raw_streams, &mut target, *call));
            (round > 0).then(|| rates.push(rate));
        }
        target.fill(0);
        let rate = timed(bytes, || get_all(&mut transport, &mut target, block, batch));
        (round > 0).then(|| gets.push(rate));
        assert!(target.chunks(1 << 20).zip(0..).all(|(chunk, at)| chunk == contents(at, chunk.len())), "wrong bytes");
    }
    let raw = raws.iter_mut().map(|rates| median(rates)).fold(0.0, f64::max);
    let get = median(&mut gets);
    println!("{:5} KiB x {batch:3}: get {get:5.2} GB/s, raw {raw:5.2} GB/s, ratio {:.2}", block >> 10, get / raw);
}

fn timed(bytes: usize, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    bytes as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn get_all(transport: &mut TcpTransport, target: &mut [u8], block: usize, batch: usize) {
    let mut done = Vec::new();
    for (number, part) in target.chunks_mut(block * batch).enumerate() {
        let read = |(at, place): (usize, &mut [u8])| {
            let id = id_of(block, number * batch + at);
            let destination = Destination::Into(Regions::One(Region::of_mut(place)));
            Op::Read(ReadOp::whole(at as u64, id, destination))
        };
        let ops: Vec<Op> = part.chunks_mut(block).enumerate().map(read).collect();
        let (count, deadline) = (ops.len(), Deadline::after(Duration::from_secs(10)));
        assert!(transport.submit(ops, deadline).iter().all(Result::is_ok), "refused");
        done.clear();
        while done.len() < count {
            transport.poll(&mut done, deadline);
        }
        assert!(done.iter().all(|completion| completion.outcome.is_ok()), "{:?}", done[0]);
    }
}

fn receive_raw(streams: &[TcpStream], target: &mut [u8], call: usize) {
    let share = target.len() / streams.len();
    std::thread::scope(|scope| {
        for ((stream, part), at) in streams.iter().zip(target.chunks_mut(share)).zip(0u64..) {
            scope.spawn(move || {
                let mut stream = stream;
                let order = [at * share as u64, part.len() as u64, call as u64].map(u64::to_le_bytes);
                stream.write_all(&order.concat()).expect("the server listens");
                let mut at = 0;
                while at < part.len() {
                    let end = part.len().min(at + call);
                    at += stream.read(&mut part[at..end]).expect("the server sends");
                }
            });
        }
    });
}

fn connect_raw(address: SocketAddr, options: TcpOptions) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    options.apply(&stream).expect("a connected socket takes options");
    stream
}

fn id_of(block: usize, number: usize) -> BlockId {
    BlockId::from_words([block as u64, number as u64])
}

/// The bytes of the slab's mebibyte `number`.
fn contents(number: usize, len: usize) -> Vec<u8> {
    (0..len / 8).flat_map(|at| ((number << 32) + at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

fn spawn_server(mib: usize, buffer_kib: usize) -> (Child, SocketAddr, SocketAddr) {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    let arguments = ["0", &mib.to_string(), "0", &buffer_kib.to_string(), "serve"];
    let mut server = command.args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(server.stdout.take().expect("its output is piped")).lines();
    let mut address = || lines.next().and_then(Result::ok).and_then(|line| line.parse().ok()).expect("an address");
    let (get, raw) = (address(), address());
    (server, get, raw)
}

/// A slab cut into blocks of every shape at once, each found under its own id.
struct Slab {
    bytes: Vec<u8>,
    index: HashMap<BlockId, (usize, usize, Sums)>,
}

struct Held<'a> {
    bytes: &'a [u8],
    checksums: &'a [u32],
}

// SAFETY: the bytes are borrowed from a slab that is never changed.
unsafe impl HeldBlock for Held<'_> {
    fn bytes(&self) -> (*const u8, u64) {
        (self.bytes.as_ptr(), self.bytes.len() as u64)
    }

    fn checksums(&self) -> &[u32] {
        self.checksums
    }

    fn copy(&self) -> CopyName {
        CopyName { epoch: Epoch(1), generation: Generation(1) }
    }

    fn writer(&self) -> ClientId {
        ClientId(2)
    }
}

impl BlockSource for &'static Slab {
    type Held = Held<'static>;

    fn hold(&self, id: &BlockId, _copy: Option<CopyName>) -> Option<Held<'static>> {
        let (start, len, checksums) = self.index.get(id)?;
        Some(Held { bytes: &self.bytes[*start..start + len], checksums })
    }

    fn damaged(&self, id: &BlockId, _copy: CopyName) {
        panic!("block {id} is damaged");
    }
}

fn serve(bytes: usize, options: TcpOptions) {
    let bytes: Vec<u8> = (0..bytes >> 20).flat_map(|number| contents(number, 1 << 20)).collect();
    let mut index = HashMap::new();
    for (block, _) in SHAPES {
        for (number, part) in bytes.chunks(block).enumerate() {
            let id = id_of(block, number);
            let checksums = BlockChecksum::new(id, part.len() as u64).range(0, part);
            index.insert(id, (number * block, part.len(), checksums));
        }
    }
    let slab: &'static Slab = Box::leak(Box::new(Slab { bytes, index }));
    listen(options, move |stream| drop(serve_gets(stream, slab)));
    listen(options, move |stream| drop(serve_raw(stream, &slab.bytes)));
    loop {
        std::thread::park();
    }
}

fn listen(options: TcpOptions, serve: impl Fn(TcpStream) + Send + Clone + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    options.apply(&listener).expect("a fresh listener takes options");
    println!("{}", listener.local_addr().expect("a bound listener has an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
}

fn serve_gets(stream: TcpStream, slab: &'static Slab) -> Result<(), ConnError> {
    let patience = || Deadline::after(Duration::from_secs(60));
    let (mut connection, _) = Connection::accept(stream.into(), patience())?;
    let welcome =
        Welcome { node: "speed".to_owned(), epoch: Epoch(1), memory: false, writable: false, build: String::new() };
    connection.welcome(welcome, &[], patience())?;
    loop {
        let incoming = connection.recv_request(patience())?;
        if let Request::Get(get) = incoming.message? {
            serve_get(&mut connection, incoming.number, &get, &slab, patience())?;
        }
    }
}

fn serve_raw(mut stream: TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    loop {
        let mut order = [[0; 8]; 3];
        stream.read_exact(order.as_flattened_mut())?;
        let [start, len, call] = order.map(|field| u64::from_le_bytes(field) as usize);
        for part in bytes[start..start + len].chunks(call) {
            stream.write_all(part)?;
        }
    }
}
