//! A host that loses its power or its network closes nothing. Data sockets had no keepalive and no limit on bytes that
//! nobody acknowledges: a node kept such a client's reservations and its seat for ever, and a client waited for its
//! deadline each time. Now both sides notice within the time that `TcpOptions` gives.

use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl, tcp_user_timeout};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::Duration;
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_types::{ClientId, Deadline, Epoch};
use tidepool_wire::message::{Hello, Request, Welcome};

fn late() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

#[test]
fn a_tcp_socket_is_told_when_its_peer_is_dead() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    TcpOptions::default().apply(&socket).unwrap();
    assert!(socket_keepalive(&socket).unwrap());
    assert_eq!(tcp_keepidle(&socket).unwrap(), Duration::from_secs(15));
    assert_eq!(tcp_keepintvl(&socket).unwrap(), Duration::from_secs(5));
    assert_eq!(tcp_keepcnt(&socket).unwrap(), 3);
    assert_eq!(tcp_user_timeout(&socket).unwrap(), 30_000);
}

/// A network of its own with one cable to this one; gone when dropped.
struct OtherHost {
    name: String,
}

impl OtherHost {
    /// `None` where this may not be made.
    fn new() -> Option<Self> {
        let name = format!("tp{}", std::process::id());
        let host = Self { name };
        let (ours, theirs) = (host.cable("a"), host.cable("b"));
        let made = host.ip(&format!("netns add {}", host.name))
            && host.ip(&format!("link add {ours} type veth peer name {theirs} netns {}", host.name))
            && host.ip(&format!("addr add 198.51.100.1/30 dev {ours}"))
            && host.ip(&format!("link set {ours} up"))
            && host.ip(&format!("-n {} addr add 198.51.100.2/30 dev {theirs}", host.name))
            && host.ip(&format!("-n {} link set {theirs} up", host.name));
        made.then_some(host)
    }

    fn cable(&self, end: &str) -> String {
        format!("{}{end}", self.name)
    }

    fn ip(&self, args: &str) -> bool {
        Command::new("ip").args(args.split(' ')).status().is_ok_and(|status| status.success())
    }

    /// Connects from there to here.
    fn connect(&self, address: SocketAddr, options: TcpOptions) -> Connection {
        let network = std::fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        let connect = move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let hello = Hello { client: ClientId(1), wants_memory: false };
            Connection::connect_tcp(address, &options, hello, late()).unwrap().0
        };
        // A thread of its own: a socket stays in the network in which it was made, the thread ends.
        std::thread::spawn(connect).join().unwrap()
    }

    fn cut(&self) {
        assert!(self.ip(&format!("-n {} link set {} down", self.name, self.cable("b"))));
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        self.ip(&format!("link del {}", self.cable("a")));
        self.ip(&format!("netns del {}", self.name));
    }
}

#[test]
fn both_sides_notice_that_the_other_host_is_gone() {
    let Some(host) = OtherHost::new() else {
        eprintln!("SKIPPED: making a network namespace takes root and the ip command");
        return;
    };
    let options = TcpOptions { dead_after: Duration::from_secs(3), ..TcpOptions::default() };
    let listener = TcpListener::bind("198.51.100.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Two connections: on one the node only waits, on the other it has an answer under way.
    let serve = move || {
        let (stream, _) = listener.accept().unwrap();
        options.apply(&stream).unwrap();
        let mut connection = Connection::from_socket(stream.into()).unwrap();
        connection.accept_hello(late()).unwrap();
        let welcome =
            Welcome { node: "n".to_owned(), epoch: Epoch(1), memory: false, writable: false, build: String::new() };
        connection.welcome(welcome, &[], late()).unwrap();
        connection
    };
    let served = std::thread::spawn(move || [serve(), serve()]);
    let [mut idle_client, mut asking_client] = [host.connect(address, options), host.connect(address, options)];
    let [mut idle, mut answering] = served.join().unwrap();
    host.cut();
    answering.refuse(1, tidepool_wire::message::Reason::Stopping, "never read".to_owned(), late()).unwrap();
    asking_client.send(&Request::Stat, &[], late()).unwrap();
    std::thread::scope(|scope| {
        let gone = |result: Result<(), ConnError>| assert!(matches!(result, Err(ConnError::Io(_))), "{result:?}");
        scope.spawn(move || gone(idle.recv_request(late()).map(|_| ())));
        scope.spawn(move || gone(answering.recv_request(late()).map(|_| ())));
        scope.spawn(move || gone(idle_client.recv(late()).map(|_| ())));
        scope.spawn(move || gone(asking_client.recv(late()).map(|_| ())));
    });
}
