//! Slow links under other protocols: TLS and HTTP/2, of clients and servers.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use control::Running;
use testkit::http1::Http1Peer;
use testkit::http2::{H2End, frame};
use testkit::tls::tunnel::NAME;
use testkit::tls::{TestAuthority, tunnel};

const MS: Duration = Duration::from_millis(1);
/// Length of each body, in both directions.
const BODY_BYTES: usize = 5_000;
/// Minimum time of a body at 20 kB/s: a link makes up for at most a millisecond, and 32 ms of a late timer.
const AT_20_KBS: Duration = Duration::from_millis(217);

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spoken {
    tls: bool,
    http2: bool,
}

const CLEAR: Spoken = Spoken { tls: false, http2: false };
const ALL: [Spoken; 4] = [
    CLEAR,
    Spoken { tls: true, http2: false },
    Spoken { tls: false, http2: true },
    Spoken { tls: true, http2: true },
];

/// An end of a connection, with the number of the next stream.
enum Talk {
    One(Http1Peer),
    Two(Box<H2End>, u32),
}

impl Talk {
    fn asks(&mut self) {
        let body = vec![b'y'; BODY_BYTES];
        match self {
            Self::One(peer) => {
                peer.sends(format!(
                    "POST / HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
                ));
                peer.sends(body);
            }
            Self::Two(end, stream) => {
                let head = format!(
                    ":method: POST\n:scheme: http\n:authority: {NAME}\n:path: /\ncontent-length: {BODY_BYTES}\n"
                );
                end.sends(frame::headers(*stream, &head));
                end.sends_body(*stream, &body, true);
            }
        }
    }

    /// Reads a request to its end, and answers it.
    fn answers(&mut self) {
        let body = vec![b'x'; BODY_BYTES];
        match self {
            Self::One(peer) => {
                assert_eq!(peer.message().body.len(), BODY_BYTES);
                peer.sends(format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY_BYTES}\r\n\r\n"));
                peer.sends(body);
            }
            Self::Two(end, stream) => {
                assert!(end.whole(*stream).contains(&"y".repeat(BODY_BYTES)));
                end.sends(frame::headers(*stream, &format!(":status: 200\ncontent-length: {BODY_BYTES}\n")));
                end.sends_body(*stream, &body, true);
                *stream += 2;
            }
        }
    }

    fn gets(&mut self) {
        match self {
            Self::One(peer) => assert_eq!(peer.message().body, vec![b'x'; BODY_BYTES]),
            Self::Two(end, stream) => {
                assert!(end.whole(*stream).contains(&"x".repeat(BODY_BYTES)));
                *stream += 2;
            }
        }
    }
}

struct Scene {
    authority: TestAuthority,
    running: Running,
    listener: TcpListener,
    client: Spoken,
    server: Spoken,
}

/// Options of a listener, its route and its upstream.
#[derive(Debug, Clone, Copy, Default)]
struct Options<'a> {
    listen: &'a str,
    route: &'a str,
    upstream: &'a str,
}

impl Scene {
    fn new(client: Spoken, server: Spoken, Options { listen, route, upstream }: Options<'_>) -> Self {
        let authority = TestAuthority::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address: SocketAddr = listener.local_addr().expect("it listens");
        authority.files("own", &[NAME]);
        let folder = authority.path().display();
        let tls = match client.tls {
            true => format!("tls = {{ cert = \"{folder}/own.pem\", key = \"{folder}/own.key\" }}"),
            false => String::new(),
        };
        let scheme = if server.tls { "https" } else { "http" };
        let protocol = if server.http2 { "protocol = \"h2\"" } else { "" };
        let ca = match server.tls {
            true => format!("tls = {{ ca = \"{}\", name = \"{NAME}\" }}", authority.file.display()),
            false => String::new(),
        };
        let text = format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n{tls}\n{listen}\n[[route]]\nupstream = \"app\"\n{route}\n\
             [upstream.app]\nservers = [\"{scheme}://{address}\"]\n{protocol}\n{ca}\n{upstream}\n\
             [upstream.app.pool]\nidle_timeout = \"1d\"\n"
        );
        let config = config::parse(&text, "test").unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        let running = control::start(config).expect("it starts");
        Self { authority, running, listener, client, server }
    }

    fn connect(&self) -> Talk {
        let stream = TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens");
        let Spoken { tls, http2 } = self.client;
        let stream = if tls { tunnel::client(&self.authority, http2, stream) } else { stream };
        match http2 {
            true => Talk::Two(Box::new(H2End::client(stream, &[])), 1),
            false => Talk::One(Http1Peer::new("client", stream)),
        }
    }

    fn accept(&self) -> Talk {
        let (stream, _) = self.listener.accept().expect("a connection reaches the server");
        let Spoken { tls, http2 } = self.server;
        let stream = if tls { tunnel::server(&self.authority, http2, stream) } else { stream };
        match http2 {
            true => Talk::Two(Box::new(H2End::server(stream, &[])), 1),
            false => Talk::One(Http1Peer::new("server", stream)),
        }
    }

    /// Returns the time of two requests, in order: on new connections, then on existing ones.
    fn times(&self) -> [Duration; 2] {
        let began = Instant::now();
        let mut client = self.connect();
        client.asks();
        let mut server = self.accept();
        let mut exchange = |client: &mut Talk, began: Instant| {
            server.answers();
            client.gets();
            began.elapsed()
        };
        let first = exchange(&mut client, began);
        let began = Instant::now();
        client.asks();
        [first, exchange(&mut client, began)]
    }
}

/// Asserts that both requests take the minimum time.
fn are_late(client: Spoken, server: Spoken, options: Options<'_>, least: [Duration; 2]) {
    let took = Scene::new(client, server, options).times();
    for (request, (took, least)) in took.into_iter().zip(least).enumerate() {
        assert!(took >= least, "request {request} of {client:?} to {server:?}, {options:?}: {took:?}");
    }
}

#[test]
fn connections_of_clients_are_late_whatever_they_speak() {
    for client in ALL {
        for (listen, least) in [
            ("latency = \"60ms\"", [120 * MS; 2]),
            ("latency = \"60ms±10ms\"", [100 * MS; 2]),
            ("latency = \"60ms±10ms pareto\"", [120 * MS; 2]),
            ("loss = \"100% 80ms\"", [160 * MS; 2]),
            ("profile = \"slow-3g\"", [320 * MS; 2]),
            ("connect_delay = \"100ms\"", [100 * MS, Duration::ZERO]),
        ] {
            are_late(client, CLEAR, Options { listen, ..Options::default() }, least);
        }
    }
}

#[test]
fn connections_to_servers_are_late_whatever_they_speak() {
    for server in ALL {
        for (upstream, least) in [
            ("latency = \"60ms\"", [120 * MS; 2]),
            // For two draws together, 20 ms too early is seven sigma.
            ("latency = \"60ms±2ms normal\"", [100 * MS; 2]),
            ("loss = \"100% 80ms\"", [160 * MS; 2]),
            ("connect_delay = \"100ms\"", [100 * MS, Duration::ZERO]),
        ] {
            are_late(CLEAR, server, Options { upstream, ..Options::default() }, least);
        }
    }
}

#[test]
fn requests_and_responses_are_late_whatever_they_come_over() {
    for (client, server) in ALL.into_iter().zip([ALL[3], ALL[2], ALL[1], ALL[0]]) {
        for (route, least) in [
            ("delay = \"60ms\"", 60 * MS),
            ("delay = \"60ms±10ms\"", 50 * MS),
            ("response_delay = \"60ms\"", 60 * MS),
        ] {
            are_late(client, server, Options { route, ..Options::default() }, [least; 2]);
        }
    }
}

#[test]
fn bodies_are_as_slow_whatever_they_come_over() {
    for (client, server) in ALL.into_iter().zip([ALL[3], ALL[2], ALL[1], ALL[0]]) {
        for options in [
            Options { listen: "rate = \"20KB/s\"", ..Options::default() },
            Options { listen: "upload_rate = \"20KB/s per connection\"", ..Options::default() },
            Options { route: "upload_rate = \"20KB/s\"", ..Options::default() },
            Options { upstream: "rate = \"20KB/s per connection\"", ..Options::default() },
            Options { upstream: "upload_rate = \"20KB/s\"", ..Options::default() },
        ] {
            are_late(client, server, options, [AT_20_KBS; 2]);
        }
    }
}
