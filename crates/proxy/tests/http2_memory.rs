//! The cost of a hostile HTTP/2 connection: less than 1 MiB, whatever it does; and the cost of server data that clients
//! do not read. A separate program, because it counts the memory of all threads except its own.

/// Counts the memory of the proxy's threads.
mod counting;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;

use config::{Protocol, Settings};
use control::Running;
use testkit::http2::frame::{INITIAL_WINDOW_SIZE, WINDOW, data, headers, last_headers, raw, window_update};
use testkit::http2::{H2End, frame};
use testkit::scene::valid;
use testkit::wait::assert_soon;

use counting::{HELD, MOST, serve, show};

/// Limit in bytes for the memory of one connection.
const LIMIT: isize = 1 << 20;
const STREAMS: u32 = 100;
/// Number of equal measurements in a row after which memory counts as settled.
const QUIET_ROUNDS: u32 = 20;
/// Bytes that a server may send on a stream before any are read.
const STREAM_WINDOW: isize = 64 * 1024;
const GET: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";

/// Runs an attack on a new proxy, and asserts the limit.
fn costs_little(
    name: &str,
    server: SocketAddr,
    settings: &[(u16, u32)],
    attack: impl FnOnce(&mut H2End, &mut Observed),
) {
    let url = format!("http://{server}").parse().expect("is a URL");
    let mut config = Settings::for_servers(vec![([127, 0, 0, 1], 0).into()], vec![url]);
    config.workers = Some(1.try_into().expect("is not zero"));
    // Flood limits would end the connection before it costs anything.
    config.limits.http2.floods.overhead = 1_000_000;
    config.limits.http2.floods.pings = 1_000_000;
    let proxy = control::start(valid(config)).expect("the proxy starts");
    // A worker's own memory is allocated once it has answered.
    let mut friend = H2End::client(TcpStream::connect(proxy.addresses()[0]).expect("the proxy listens"), &[]);
    friend.sends(last_headers(1, &GET.replace("GET", "TRACE")));
    assert!(friend.whole(1).starts_with(":status: 405\n"));
    let mut proxy = Observed { running: proxy, friend };
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let stream = TcpStream::connect(proxy.running.addresses()[0]).expect("the proxy listens");
    let mut client = H2End::client(stream, settings);
    client.takes_all = false;
    attack(&mut client, &mut proxy);
    let most = MOST.load(Relaxed) - before;
    show(&format!(
        "{name}: {} KiB at most, {} KiB at last",
        most / 1024,
        (HELD.load(Relaxed) - before) / 1024
    ));
    assert!(most < LIMIT, "{name}: {most} bytes");
}

/// A proxy, and a harmless connection to it.
struct Observed {
    running: Running,
    friend: H2End,
}

/// Waits until every stream is under way.
fn arrive(proxy: &Running) {
    assert_soon("not all requests begin", || proxy.counters().requests > u64::from(STREAMS));
}

impl Observed {
    /// Waits until the proxy has processed everything: its one worker answers another connection many times in a row
    /// without a change of memory.
    fn settle(&mut self) {
        let (mut held, mut rounds) = (HELD.load(Relaxed), 0);
        while rounds < QUIET_ROUNDS {
            self.friend.is_heard();
            let now = HELD.load(Relaxed);
            rounds = if now == held { rounds + 1 } else { 0 };
            held = now;
        }
    }
}

#[test]
fn a_hostile_connection_costs_less_than_a_mebibyte() {
    let server = serve();
    responses_that_are_not_taken(server);
    heads(server);
    bodies(server);
    streams_of_a_server();
}

/// Sends as many requests as there may be streams, as long as the connection accepts them.
fn asks(client: &mut H2End, fields: &str) {
    for at in 0..STREAMS {
        if !client.can_send(&last_headers(1 + 2 * at, fields)) {
            break;
        }
    }
}

fn responses_that_are_not_taken(server: std::net::SocketAddr) {
    costs_little("windows of nothing", server, &[(INITIAL_WINDOW_SIZE, 0)], |client, proxy| {
        asks(client, GET);
        arrive(&proxy.running);
        proxy.settle();
    });
    costs_little("windows that open byte by byte", server, &[(INITIAL_WINDOW_SIZE, 0)], |client, proxy| {
        asks(client, GET);
        arrive(&proxy.running);
        proxy.settle();
        for _ in 0..50 {
            for at in 0..STREAMS {
                client.sends(window_update(1 + 2 * at, 1));
            }
        }
        arrive(&proxy.running);
        proxy.settle();
    });
    costs_little(
        "a connection that is not read",
        server,
        &[(INITIAL_WINDOW_SIZE, 1 << 30)],
        |client, proxy| {
            client.sends(window_update(0, (1 << 31) - 1 - WINDOW));
            asks(client, GET);
            arrive(&proxy.running);
            proxy.settle();
        },
    );
}

fn heads(server: std::net::SocketAddr) {
    costs_little("long heads", server, &[], |client, proxy| {
        let fields = format!("{}x: {}\n", GET.replace("path: /", "path: /never"), "y".repeat(60_000));
        for at in 0..STREAMS {
            let block = frame::block(&fields);
            let (first, rest) = block.split_at(16_384);
            client.sends(raw(1, frame::END_STREAM, 1 + 2 * at, first));
            let mut pieces = rest.chunks(16_384).peekable();
            while let Some(piece) = pieces.next() {
                let flags = if pieces.peek().is_none() { frame::END_HEADERS } else { 0 };
                client.sends(raw(9, flags, 1 + 2 * at, piece));
            }
        }
        client.is_heard();
        proxy.settle();
    });
    costs_little("heads of some length", server, &[], |client, proxy| {
        asks(client, &format!("{}x: {}\n", GET.replace("path: /", "path: /never"), "y".repeat(2900)));
        client.is_heard();
        proxy.settle();
    });
    costs_little("small heads that mean large ones", server, &[], |client, _| {
        // `x: ` is put into the table once, and then referenced 1800 times, a byte each.
        let mut block = frame::block(&GET.replace("path: /", "path: /never"));
        block.extend([0x40, 1, b'x', 0]);
        block.extend([0x80 | 62; 1800]);
        let frames: Vec<u8> = (0..STREAMS).flat_map(|at| raw(1, 5, 1 + 2 * at, &block)).collect();
        client.sends(frames);
        client.is_heard();
    });
}

fn bodies(server: std::net::SocketAddr) {
    costs_little("bodies that nobody reads", server, &[], |client, proxy| {
        let post = GET.replace("GET", "POST").replace("path: /", "path: /never");
        for at in 0..STREAMS {
            client.sends(headers(1 + 2 * at, &post));
        }
        for at in 0..STREAMS {
            while client.room(1 + 2 * at) > 0 {
                let count = client.room(1 + 2 * at).min(10_000);
                client.sends_body(1 + 2 * at, &vec![b'x'; count], false);
            }
        }
        arrive(&proxy.running);
        proxy.settle();
    });
    costs_little("a body in bytes", server, &[], |client, proxy| {
        client.sends(headers(1, &GET.replace("GET", "POST").replace("path: /", "path: /never")));
        let bytes: Vec<u8> = (0..100).flat_map(|_| data(1, "x")).collect();
        for _ in 0..1000 {
            if !client.can_send(&bytes) {
                break;
            }
        }
        proxy.settle();
    });
}

/// An HTTP/2 server sends as much as it may, on as many streams as a client has, and the client reads nothing. The
/// proxy holds at most twice the windows of those streams, and the cost of the client's connection.
fn streams_of_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    let url = format!("http://{}", listener.local_addr().expect("it listens")).parse().expect("is a URL");
    let mut config = Settings::for_servers(vec![([127, 0, 0, 1], 0).into()], vec![url]);
    config.workers = Some(1.try_into().expect("is not zero"));
    config.upstreams[0].protocol = Protocol::Http2;
    config.limits.http2.floods.pings = 1_000_000;
    let proxy = control::start(valid(config)).expect("the proxy starts");
    let connect = || TcpStream::connect(proxy.addresses()[0]).expect("the proxy listens");
    let mut friend = H2End::client(connect(), &[]);
    friend.sends(last_headers(1, GET));
    let mut server = H2End::server(listener.accept().expect("the proxy connects").0, &[]);
    server.whole(1);
    server.sends(last_headers(1, ":status: 200\n"));
    assert!(friend.whole(1).starts_with(":status: 200\n"));
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let mut client = H2End::client(connect(), &[(INITIAL_WINDOW_SIZE, 0)]);
    client.takes_all = false;
    asks(&mut client, GET);
    for at in 0..STREAMS {
        let stream = 3 + 2 * at;
        server.whole(stream);
        server.sends(headers(stream, ":status: 200\n"));
    }
    for at in 0..STREAMS {
        let stream = 3 + 2 * at;
        while server.room(stream) > 0 {
            let count = server.room(stream).min(16_384);
            server.sends_body(stream, &vec![b'x'; count], false);
        }
    }
    server.is_heard();
    client.is_heard();
    Observed { running: proxy, friend }.settle();
    let most = MOST.load(Relaxed) - before;
    let sent = STREAMS as isize * STREAM_WINDOW;
    show(&format!("streams of a server: {} KiB at most for {} KiB", most / 1024, sent / 1024));
    assert!(most >= sent - LIMIT, "{most} bytes: the server was held back before its windows were full");
    // Received data is in memory that doubles as it grows.
    assert!(most < 2 * sent + LIMIT, "{most} bytes for {sent}");
}
