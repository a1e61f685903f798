//! The pages answer any bytes from a real socket, and no client blocks others.

use super::*;
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
};

#[derive(Default)]
struct Fixed {
    stopping: AtomicBool,
}

impl Source for Fixed {
    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::new("tidepool_things", "Things.", Value::Gauge(3))]
    }

    fn health(&self) -> Health {
        let serving = !self.stopping.load(Ordering::Relaxed);
        Health { serving, page: serde_json::json!({ "status": if serving { "ok" } else { "stopping" } }) }
    }
}

fn endpoint() -> (Endpoint, Arc<Fixed>) {
    let source = Arc::new(Fixed::default());
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    (Endpoint::start(anywhere, Arc::clone(&source) as _).expect("loopback has a free port"), source)
}

fn connect(endpoint: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect(endpoint.address()).expect("the endpoint listens");
    stream.set_read_timeout(Some(PATIENCE * 4)).expect("a socket has a time-out");
    stream
}

/// Everything that comes back.
fn rest(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the endpoint answers and closes");
    answer
}

fn exchange(endpoint: &Endpoint, request: &[u8]) -> String {
    let mut stream = connect(endpoint);
    stream.write_all(request).expect("the endpoint reads");
    rest(stream)
}

#[test]
fn metrics_and_health_are_served() {
    let (endpoint, source) = endpoint();
    let metrics = exchange(&endpoint, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{metrics}");
    assert!(
        metrics.contains("\r\n\r\n# HELP tidepool_things Things.\n# TYPE tidepool_things gauge\ntidepool_things 3\n")
    );
    let health = exchange(&endpoint, b"GET /health?verbose HTTP/1.0\n\n");
    assert!(health.starts_with("HTTP/1.1 200 OK") && health.ends_with("{\"status\":\"ok\"}\n"), "{health}");
    source.stopping.store(true, Ordering::Relaxed);
    let health = exchange(&endpoint, b"GET /health HTTP/1.1\r\n\r\n");
    assert!(health.starts_with("HTTP/1.1 503") && health.ends_with("{\"status\":\"stopping\"}\n"), "{health}");
}

#[test]
fn a_head_request_gets_the_length_and_no_body() {
    let (endpoint, _) = endpoint();
    let answer = exchange(&endpoint, b"HEAD /health HTTP/1.1\r\n\r\n");
    assert!(answer.contains("Content-Length: 16\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn other_methods_paths_and_garbage_get_a_clear_answer() {
    let (endpoint, _) = endpoint();
    let cases: [(&[u8], &str, &str); 9] = [
        (b"GET / HTTP/1.1\r\n\r\n", "404", "there are /metrics and /health"),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404", "there are /metrics and /health"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405", "Allow: GET, HEAD\r\n"),
        (b"DELETE /health HTTP/1.1\r\n\r\n", "405", "allowed are GET and HEAD"),
        (b"PRI * HTTP/2.0\r\n\r\n", "400", "not an HTTP/1 request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", "not an HTTP/1 request"),
        (b"GET /metrics\r\n\r\n", "400", "not an HTTP/1 request"),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", "400", "not an HTTP/1 request"),
        (b"\r\n\r\n", "400", "not an HTTP/1 request"),
    ];
    for (request, status, says) in cases {
        let answer = exchange(&endpoint, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(says), "{request:?}: {answer}");
    }
}

#[test]
fn an_oversized_request_is_refused_and_its_sender_hears_of_it() {
    let (endpoint, _) = endpoint();
    let request = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(LONGEST_HEAD * 4));
    let answer = exchange(&endpoint, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn a_request_that_comes_in_pieces_or_is_cut_short_is_answered() {
    let (endpoint, _) = endpoint();
    let mut stream = connect(&endpoint);
    stream.set_nodelay(true).expect("a socket option");
    for byte in b"GET /health HTTP/1.1\r\n\r\n" {
        stream.write_all(&[*byte]).expect("the endpoint reads");
    }
    assert!(rest(stream).starts_with("HTTP/1.1 200"));
    let mut stream = connect(&endpoint);
    stream.write_all(b"GET /heal").expect("the endpoint reads");
    stream.shutdown(Shutdown::Write).expect("the socket is open");
    assert!(rest(stream).starts_with("HTTP/1.1 400"));
}

#[test]
fn any_bytes_get_one_well_formed_answer() {
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    println!("seed: {seed}");
    let mut random = tidepool_types::Random::new(seed);
    let pages = Pages { source: &Fixed::default(), dropped: 0 };
    for _ in 0..4_000 {
        let mut head = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
        for _ in 0..random.below(6) {
            let at = random.below(head.len() as u64) as usize;
            match random.below(3) {
                0 => head[at] = random.next() as u8,
                1 => drop(head.remove(at)),
                _ => head.insert(at, b" \r\n/?\xff\0"[random.below(7) as usize]),
            }
        }
        let answer = request::answer(&head, &pages);
        assert!(answer.starts_with(b"HTTP/1.1 ") && request::is_complete(&answer), "{head:?}");
    }
}

#[test]
fn slow_connections_keep_nobody_out_and_the_oldest_go_first() {
    let (endpoint, _) = endpoint();
    let mut slow: Vec<_> = (0..MOST_CONNECTIONS * 2).map(|_| connect(&endpoint)).collect();
    for stream in &mut slow {
        // The oldest are gone already, and writing to them may say so.
        let _ = stream.write_all(b"GET /metr");
    }
    let page = exchange(&endpoint, b"GET /metrics HTTP/1.1\r\n\r\n");
    let dropped = format!("tidepool_metrics_connections_dropped_total {}\n", MOST_CONNECTIONS + 1);
    assert!(page.starts_with("HTTP/1.1 200") && page.ends_with(&dropped), "{page}");
    let newest = slow.last_mut().expect("there are slow connections");
    newest.write_all(b"ics HTTP/1.1\r\n\r\n").expect("the newest are still open");
    assert!(rest(slow.pop().expect("there are slow connections")).starts_with("HTTP/1.1 200"));
    let mut gone = slow.remove(0);
    assert!(matches!(gone.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_silent_connection_is_dropped_in_time() {
    let (endpoint, _) = endpoint();
    let mut silent = connect(&endpoint);
    assert!(matches!(silent.read(&mut [0]), Ok(0)), "the endpoint closes it");
}

#[test]
fn a_dropped_endpoint_closes_everything_and_frees_its_address() {
    let (endpoint, source) = endpoint();
    let address = endpoint.address();
    let mut open = connect(&endpoint);
    exchange(&endpoint, b"GET /health HTTP/1.1\r\n\r\n");
    let taken = Endpoint::start(address, Arc::clone(&source) as _).err().map(|error| error.kind());
    assert_eq!(taken, Some(io::ErrorKind::AddrInUse));
    drop(endpoint);
    assert!(matches!(open.read(&mut [0]), Ok(0) | Err(_)));
    assert!(TcpStream::connect(address).is_err());
}
