//! The cost of a hostile HTTP/3 connection, whatever it does. A separate program, because it counts the memory of all
//! threads except its own.

/// Counts the memory of the proxy's threads.
#[path = "../counting/mod.rs"]
mod counting;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::Running;
use quinn_proto::{Dir, StreamId, TransportConfig};
use testkit::http3::frame::{DATA, head, headers, request, varint};
use testkit::http3::{H3TestClient, RawClient};
use testkit::scene::read;

use counting::{ASKED, HELD, MOST, serve, show};

const STREAMS: usize = 100;
/// Minimum number of requests that reach the server if the connection makes the proxy hold little else.
const MANY: isize = 78;
/// Minimum number of requests that reach the server in any case.
const SOME: isize = 20;
/// Limit for one connection, in KiB.
const LIMIT: isize = 1024;
/// The attacks that exceeded the limit.
static TOO_MUCH: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Number of requests of a friendly client in a row, without a change of memory, after which it counts as settled.
const QUIET_ROUNDS: u32 = 20;

/// A proxy, and a harmless connection to it.
struct Observed {
    running: Running,
    friend: H3TestClient,
}

impl Observed {
    /// Waits until the proxy has processed everything that it was sent.
    fn settle(&mut self, client: &mut RawClient) {
        let (mut held, mut rounds, mut all) = (HELD.load(Relaxed), 0, 0);
        while rounds < QUIET_ROUNDS && all < 50 * QUIET_ROUNDS {
            client.turn();
            self.is_served();
            let now = HELD.load(Relaxed);
            // The friendly client's timers and acknowledgments vary.
            rounds = if (now - held).abs() < 4096 { rounds + 1 } else { 0 };
            (held, all) = (now, all + 1);
        }
    }

    fn is_served(&self) {
        assert!(self.friend.asks("TRACE", "/", "").response().0.starts_with(":status: 405\n"));
    }

    /// Waits until this number of requests has reached the server.
    fn arrive(&self, client: &mut RawClient, requests: isize) {
        client.until("requests do not arrive", |_| ASKED.load(Relaxed) >= requests);
    }

    fn failures(&self, word: &str) -> u64 {
        let at = Running::failure_words().iter().position(|other| *other == word).expect("is a word");
        self.running.counters().failures[at]
    }
}

/// Runs an attack on a new proxy, and asserts the limit.
fn costs_little(
    name: &str,
    server: SocketAddr,
    change: impl FnOnce(&mut TransportConfig),
    attack: impl FnOnce(&mut RawClient, &mut Observed),
) {
    // Flood limits would end the connection before it costs anything.
    let text = format!(
        "workers = 1\n[limits.http2]\nresets_per_second = 1000000\n[[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://{server}\"]\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n"
    );
    let running = control::start(read(&text)).expect("the proxy starts");
    let friend = H3TestClient::connect(running.addresses()[0]);
    let mut proxy = Observed { running, friend };
    // A worker's own memory is allocated once it has answered.
    (0..QUIET_ROUNDS).for_each(|_| proxy.is_served());
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    ASKED.store(0, Relaxed);
    let mut transport = TransportConfig::default();
    change(&mut transport);
    let mut client = RawClient::connect(proxy.running.addresses()[0], transport);
    attack(&mut client, &mut proxy);
    let most = MOST.load(Relaxed) - before;
    show(&format!(
        "{name}: {} KiB at most, {} KiB at last, {} requests",
        most / 1024,
        (HELD.load(Relaxed) - before) / 1024,
        ASKED.load(Relaxed)
    ));
    if most >= LIMIT * 1024 {
        TOO_MUCH.lock().expect("no panic").push(format!("{name}: {} KiB", most / 1024));
    }
    proxy.is_served();
}

/// Sends as many requests as permitted at once. A client that ignores packets does not learn of a raised limit.
fn ask_all(client: &mut RawClient, method: &str, path: &str, fields: &str, ends: bool) -> Vec<StreamId> {
    let mut streams = Vec::new();
    while streams.len() < STREAMS && !client.quic.is_closed() {
        let Some(stream) = client.may_open() else { break };
        streams.push(stream);
        client.asks_on(stream, method, path, fields, ends);
    }
    streams
}

/// Requests responses that never come, until the client has learned of a raised limit.
fn hear_of_more(client: &mut RawClient) {
    for _ in 0..STREAMS / 4 {
        client.asks("GET", "/never", "", true);
    }
    client
        .until("no more requests are permitted", |client| client.quic.stats().frame_rx.max_streams_bidi > 0);
}

/// Sends a request with a head of this length, if the proxy accepts it.
fn ask_at_length(client: &mut RawClient, proxy: &Observed, len: usize) {
    ask_whole(client, proxy, ("GET", &format!("x: {}\n", "y".repeat(len))), true);
}

/// Sends the complete head of a request for `/never`. Returns `None` if the proxy permits no stream or head while it
/// answers `QUIET_ROUNDS` other requests. Then the windows are full of bytes that no server reads.
fn ask_whole(
    client: &mut RawClient,
    proxy: &Observed,
    (method, fields): (&str, &str),
    ends: bool,
) -> Option<StreamId> {
    let head = headers(&request(method, "/never", fields));
    let (mut stream, mut sent) = (None, 0);
    for _ in 0..QUIET_ROUNDS {
        stream = stream.or_else(|| client.quic.streams().open(Dir::Bi));
        if let Some(stream) = stream {
            sent += client.write(stream, &head[sent..]);
        }
        if sent == head.len() {
            break;
        }
        client.turn();
        proxy.is_served();
    }
    let stream = stream.filter(|_| sent == head.len())?;
    if ends {
        let _ = client.quic.send_stream(stream).finish();
    }
    client.turn();
    Some(stream)
}

/// Sends bodies of this length, as far as the proxy takes them.
fn send_bodies(client: &mut RawClient, streams: &[StreamId], len: usize) {
    for &stream in streams {
        client.write(stream, &head(DATA, len));
    }
    for _ in 0..40 {
        for &stream in streams {
            client.write(stream, &vec![b'x'; len / 40]);
            client.turn();
        }
    }
}

/// Sends bytes with gaps before them, on streams whose bodies no server reads.
fn send_with_gaps(client: &mut RawClient, proxy: &Observed, streams: &[StreamId]) {
    (client.is_deaf, client.sends_each) = (true, 2);
    for round in 0..4000 {
        for &stream in streams {
            client.write(stream, b"x");
        }
        client.turn();
        if round % 100 == 0 {
            proxy.is_served();
        }
    }
    client.is_deaf = false;
}

/// An unlimited window of the client.
fn endless(transport: &mut TransportConfig) {
    transport.receive_window(quinn_proto::VarInt::MAX).stream_receive_window(u32::MAX.into());
    transport.send_window(u64::MAX).initial_rtt(Duration::from_millis(1));
    transport.congestion_controller_factory(Arc::new(Unbounded));
}

/// Congestion control without a limit.
struct Unbounded;

impl quinn_proto::congestion::ControllerFactory for Unbounded {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn quinn_proto::congestion::Controller> {
        Box::new(Self)
    }
}

impl quinn_proto::congestion::Controller for Unbounded {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}
    fn on_mtu_update(&mut self, _: u16) {}
    fn window(&self) -> u64 {
        1 << 40
    }
    fn clone_box(&self) -> Box<dyn quinn_proto::congestion::Controller> {
        Box::new(Self)
    }
    fn initial_window(&self) -> u64 {
        1 << 40
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

#[test]
fn what_a_hostile_connection_of_http3_costs_is_bounded() {
    let server = serve();
    responses_that_are_not_taken(server);
    heads(server);
    bodies(server);
    what_means_nothing(server);
    assert_eq!(*TOO_MUCH.lock().expect("no panic"), Vec::<String>::new());
}

fn responses_that_are_not_taken(server: SocketAddr) {
    costs_little("responses that nobody acknowledges", server, endless, |client, proxy| {
        hear_of_more(client);
        client.is_deaf = true;
        ask_all(client, "GET", "/", "", true);
        proxy.arrive(client, STREAMS as isize / 2);
        proxy.settle(client);
    });
    costs_little("a client that never acknowledges", server, endless, |client, proxy| {
        client.is_deaf = true;
        ask_all(client, "GET", "/", "", true);
        proxy.arrive(client, 1);
        proxy.settle(client);
    });
    costs_little("a fast client that falls silent", server, endless, |client, proxy| {
        hear_of_more(client);
        let first = client.asks("GET", "/", "", true);
        client.until("the download does not end", |client| client.reads(first).1);
        client.is_deaf = true;
        ask_all(client, "GET", "/", "", true);
        proxy.settle(client);
    });
    let nothing = |transport: &mut TransportConfig| {
        endless(transport);
        transport.stream_receive_window(0_u32.into());
    };
    costs_little("windows of nothing", server, nothing, |client, proxy| {
        ask_all(client, "GET", "/", "", true);
        // The first responses are held for them, and take up room.
        proxy.arrive(client, SOME);
        proxy.settle(client);
    });
    costs_little("windows of nothing, one request after another", server, nothing, |client, proxy| {
        for _ in 0..STREAMS {
            client.asks("GET", "/", "", true);
            // Most responses arrive meanwhile.
            (0..5).for_each(|_| proxy.is_served());
        }
        proxy.arrive(client, SOME);
        proxy.settle(client);
    });
}

fn heads(server: SocketAddr) {
    costs_little("long heads", server, endless, |client, proxy| {
        for _ in 0..STREAMS {
            ask_at_length(client, proxy, 60_000);
        }
        proxy.settle(client);
    });
    for len in [1000, 3000, 15_000] {
        costs_little(&format!("heads of {len} bytes"), server, endless, |client, proxy| {
            for _ in 0..STREAMS {
                ask_at_length(client, proxy, len);
            }
            proxy.settle(client);
        });
    }
    costs_little("long heads beside short ones", server, endless, |client, proxy| {
        for _ in 0..MANY {
            client.asks("GET", "/never", "", true);
        }
        proxy.arrive(client, MANY);
        for _ in MANY as usize..STREAMS {
            ask_at_length(client, proxy, 20_000);
        }
        proxy.settle(client);
    });
    costs_little("heads that wait for insertions", server, endless, |client, proxy| {
        // RFC 9204 §4.5.1: a Required Insert Count of 1, and a table entry that never comes, behind a long field.
        let mut section = vec![0x02, 0x00];
        section.extend(testkit::http3::frame::section(&format!("x: {}\n", "y".repeat(20_000))).split_off(2));
        section.push(0x80);
        let head = [&head(0x1, section.len())[..], &section].concat();
        for _ in 0..STREAMS {
            // The proxy may have closed the connection because of so many errors, or permit no more streams.
            let Some(stream) = client.quic.streams().open(Dir::Bi) else { break };
            client.write(stream, &head);
            client.turn();
        }
        proxy.settle(client);
    });
    costs_little("heads that never end", server, endless, |client, proxy| {
        let head = [&[0x1][..], &varint(60_000), &[0, 0, 0x27, 0xff, 0x7f]].concat();
        for _ in 0..STREAMS {
            // The proxy may have closed the connection because of so many errors, or permit no more streams.
            let Some(stream) = client.quic.streams().open(Dir::Bi) else { break };
            client.write(stream, &head);
            client.write(stream, &[b'x'; 30_000]);
            client.turn();
        }
        proxy.settle(client);
    });
}

fn bodies(server: SocketAddr) {
    costs_little("bodies that nobody reads", server, endless, |client, proxy| {
        let streams = ask_all(client, "POST", "/never", "", false);
        send_bodies(client, &streams, 400_000);
        proxy.settle(client);
    });
    costs_little("bodies of a known length that nobody reads", server, endless, |client, proxy| {
        let streams = ask_all(client, "POST", "/never", "content-length: 400000\n", false);
        send_bodies(client, &streams, 400_000);
        proxy.settle(client);
    });
    costs_little("bodies that nobody reads, one after another", server, endless, |client, proxy| {
        while ASKED.load(Relaxed) < MANY / 2 {
            let post = ("POST", "content-length: 400000\n");
            let Some(stream) = ask_whole(client, proxy, post, false) else { break };
            send_bodies(client, &[stream], 400_000);
            proxy.is_served();
        }
        assert_eq!(client.lost, None);
        proxy.arrive(client, 1);
        proxy.settle(client);
    });
    costs_little(
        "a body that nobody reads, and responses that nobody takes",
        server,
        endless,
        |client, proxy| {
            hear_of_more(client);
            // A client that sends bodies gets a wider window, which it fills.
            let first = client.asks("POST", "/never", "content-length: 4000000\n", false);
            send_bodies(client, &[first], 4_000_000);
            client.is_deaf = true;
            ask_all(client, "GET", "/", "", true);
            proxy.settle(client);
        },
    );
    costs_little("bodies with gaps", server, endless, |client, proxy| {
        let streams = ask_all(client, "POST", "/never", "", false);
        proxy.arrive(client, MANY);
        send_with_gaps(client, proxy, &streams);
        proxy.settle(client);
        show(&format!("fragment floods {}", proxy.failures("http3-fragment-flood")));
    });
    costs_little("bodies with gaps beside a response that nobody takes", server, endless, |client, proxy| {
        let streams: Vec<_> = (0..10).map(|_| client.asks("POST", "/never", "", false)).collect();
        proxy.arrive(client, 10);
        client.is_deaf = true;
        client.asks("GET", "/", "", true);
        proxy.arrive(client, 11);
        send_with_gaps(client, proxy, &streams);
        proxy.settle(client);
    });
}

/// Connects a client that retires 300 connection IDs. On a busy machine the proxy may take longer than a lifetime to confirm.
/// Then quinn-proto retires no more, and the next client's IDs live longer.
fn retire_ids(client: &mut RawClient, address: SocketAddr) {
    let mut lifetime = Duration::from_millis(20);
    'clients: loop {
        *client = RawClient::retiring(address, TransportConfig::default(), lifetime);
        // A lifetime retires several IDs, and a turn takes at least a millisecond.
        let turns_max = 2_000 + 30 * lifetime.as_millis();
        for count in (30..=300).step_by(30) {
            let mut turns = 0;
            while client.quic.stats().frame_tx.new_connection_id <= count {
                if turns == turns_max || client.lost.is_some() {
                    lifetime *= 4;
                    assert!(lifetime < Duration::from_secs(20), "IDs are not retired: {:?}", client.lost);
                    continue 'clients;
                }
                turns += 1;
                client.turn();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        return;
    }
}

fn what_means_nothing(server: SocketAddr) {
    costs_little("connection IDs without end", server, endless, |client, proxy| {
        retire_ids(client, proxy.running.addresses()[0]);
        proxy.settle(client);
    });
    costs_little("a client that moves without end", server, endless, |client, proxy| {
        for _ in 0..500 {
            client.moves();
            client.turn();
        }
        proxy.settle(client);
    });
    let padded = |transport: &mut TransportConfig| {
        endless(transport);
        transport.pad_to_mtu(true);
    };
    costs_little("padding", server, padded, |client, proxy| {
        for _ in 0..5000 {
            client.quic.ping();
            client.turn();
        }
        proxy.settle(client);
    });
    costs_little("streams that are opened and reset", server, endless, |client, proxy| {
        for _ in 0..3000 {
            let Some(stream) = client.quic.streams().open(Dir::Bi) else {
                client.turn();
                continue;
            };
            client.write(stream, &headers(&request("GET", "/never", "")));
            let _ = client.quic.send_stream(stream).reset(0x10c_u32.into());
            let _ = client.quic.recv_stream(stream).stop(0x10c_u32.into());
            client.turn();
        }
        proxy.settle(client);
    });
}
