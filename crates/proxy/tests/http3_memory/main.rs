//! What a hostile connection of HTTP/3 may cost, whatever it does. Alone in its process, as it counts what every thread but its
//! own holds. A hundred requests take 0.8 MiB of it by themselves.

/// What the proxy's threads hold.
#[path = "../counting/mod.rs"]
mod counting;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::Running;
use quinn_proto::{Dir, StreamId, TransportConfig};
use testkit::http3::frame::{DATA, head, headers, request, varint};
use testkit::http3::{Client, RawClient};
use testkit::scene::read;

use counting::{HELD, MOST, serve, show};

const STREAMS: usize = 100;
/// What a connection may cost, in KiB.
const LIMIT: isize = 1024;
/// One with as many requests as there may be, and what QUIC and they hold for a peer that takes nothing: at 1 to 1.1 MiB.
const WITH_REQUESTS: isize = LIMIT + 256;
/// One that has sent with gaps what may be held of that.
const WITH_GAPS: isize = WITH_REQUESTS + 1024;
/// One that was fast before it fell silent, and was granted the most that one may have under way of what all fast ones may.
const WITH_GRANT: isize = WITH_REQUESTS + 4096;
/// What has cost more than it may.
static TOO_MUCH: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Requests of a friend in a row while nothing changes.
const QUIET_ROUNDS: u32 = 20;

/// A proxy, and a connection to it that does no harm.
struct Observed {
    running: Running,
    friend: Client,
}

impl Observed {
    /// Waits until the proxy has done all that it can with what it was sent.
    fn settle(&mut self, client: &mut RawClient) {
        let (mut held, mut rounds, mut all) = (HELD.load(Relaxed), 0, 0);
        while rounds < QUIET_ROUNDS && all < 50 * QUIET_ROUNDS {
            client.turn();
            self.is_served();
            let now = HELD.load(Relaxed);
            // Timers and acknowledgments of the friend itself come and go.
            rounds = if (now - held).abs() < 4096 { rounds + 1 } else { 0 };
            (held, all) = (now, all + 1);
        }
    }

    fn is_served(&self) {
        assert!(self.friend.asks("TRACE", "/", "").response().0.starts_with(":status: 405\n"));
    }

    fn arrive(&self, client: &mut RawClient, requests: u64) {
        client.until("requests do not arrive", |_| self.running.counters().requests >= requests);
    }

    fn failures(&self, word: &str) -> u64 {
        let at = Running::failure_words().iter().position(|other| *other == word).expect("is a word");
        self.running.counters().failures[at]
    }
}

/// A connection to a fresh proxy does something, and may have cost only so much.
fn costs_little(
    (name, limit): (&str, isize),
    server: SocketAddr,
    change: impl FnOnce(&mut TransportConfig),
    attack: impl FnOnce(&mut RawClient, &mut Observed),
) {
    // What is a flood would end before it costs anything.
    let text = format!(
        "workers = 1\n[limits.http2]\nresets_per_second = 1000000\n[[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://{server}\"]\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n"
    );
    let running = control::start(read(&text)).expect("the proxy starts");
    let friend = Client::connect(running.addresses()[0]);
    let mut proxy = Observed { running, friend };
    // What a worker needs is there once it has answered.
    (0..QUIET_ROUNDS).for_each(|_| proxy.is_served());
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let mut transport = TransportConfig::default();
    change(&mut transport);
    let mut client = RawClient::connect(proxy.running.addresses()[0], transport);
    attack(&mut client, &mut proxy);
    let most = MOST.load(Relaxed) - before;
    show(&format!(
        "{name}: {} KiB at most, {} KiB at last",
        most / 1024,
        (HELD.load(Relaxed) - before) / 1024
    ));
    if most >= limit * 1024 {
        TOO_MUCH.lock().expect("no panic").push(format!("{name}: {} KiB", most / 1024));
    }
    proxy.is_served();
}

/// As many requests as there may be at once.
fn ask_all(client: &mut RawClient, method: &str, path: &str, fields: &str, ends: bool) -> Vec<StreamId> {
    let mut streams = Vec::new();
    while streams.len() < STREAMS && !client.quic.is_closed() {
        streams.push(client.asks(method, path, fields, ends));
    }
    streams
}

/// A client's window that never ends.
fn endless(transport: &mut TransportConfig) {
    transport.receive_window(quinn_proto::VarInt::MAX).stream_receive_window(u32::MAX.into());
    transport.send_window(u64::MAX).initial_rtt(Duration::from_millis(1));
    transport.congestion_controller_factory(Arc::new(Unbounded));
}

/// A client that sends whatever it wants.
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
    costs_little(("responses that nobody acknowledges", WITH_REQUESTS), server, endless, |client, proxy| {
        client.is_deaf = true;
        ask_all(client, "GET", "/", "", true);
        proxy.arrive(client, 1 + STREAMS as u64);
        proxy.settle(client);
    });
    costs_little(("a fast client that falls silent", WITH_GRANT), server, endless, |client, proxy| {
        let first = client.asks("GET", "/", "", true);
        client.until("the download does not end", |client| client.reads(first).1);
        client.is_deaf = true;
        for _ in 1..STREAMS {
            client.asks("GET", "/", "", true);
        }
        proxy.arrive(client, 1 + STREAMS as u64);
        proxy.settle(client);
    });
    let nothing = |transport: &mut TransportConfig| {
        endless(transport);
        transport.stream_receive_window(0_u32.into());
    };
    costs_little(("windows of nothing", WITH_REQUESTS), server, nothing, |client, proxy| {
        ask_all(client, "GET", "/", "", true);
        proxy.arrive(client, 1 + STREAMS as u64);
        proxy.settle(client);
    });
}

fn heads(server: SocketAddr) {
    costs_little(("long heads", WITH_REQUESTS), server, endless, |client, proxy| {
        let field = format!("x: {}\n", "y".repeat(60_000));
        ask_all(client, "GET", "/never", &field, true);
        proxy.settle(client);
    });
    costs_little(("heads that wait for insertions", LIMIT), server, endless, |client, proxy| {
        // RFC 9204 §4.5.1: a Required Insert Count of 1, and a field of the table that never comes, behind a long one.
        let mut section = vec![0x02, 0x00];
        section.extend(testkit::http3::frame::section(&format!("x: {}\n", "y".repeat(20_000))).split_off(2));
        section.push(0x80);
        let head = [&head(0x1, section.len())[..], &section].concat();
        for _ in 0..STREAMS {
            // The proxy may have ended the connection for so many mistakes.
            let Some(stream) = client.quic.streams().open(Dir::Bi) else { break };
            client.write(stream, &head);
            client.turn();
        }
        proxy.settle(client);
    });
    costs_little(("heads that never end", LIMIT), server, endless, |client, proxy| {
        let head = [&[0x1][..], &varint(60_000), &[0, 0, 0x27, 0xff, 0x7f]].concat();
        for _ in 0..STREAMS {
            // The proxy may have ended the connection for so many mistakes.
            let Some(stream) = client.quic.streams().open(Dir::Bi) else { break };
            client.write(stream, &head);
            client.write(stream, &[b'x'; 30_000]);
            client.turn();
        }
        proxy.settle(client);
    });
}

fn bodies(server: SocketAddr) {
    costs_little(("bodies that nobody reads", WITH_REQUESTS), server, endless, |client, proxy| {
        let streams = ask_all(client, "POST", "/never", "", false);
        for _ in 0..40 {
            for &stream in &streams {
                client.write(stream, &[&head(DATA, 10_000)[..], &[b'x'; 10_000]].concat());
                client.turn();
            }
        }
        proxy.settle(client);
    });
    costs_little(("bodies with gaps", WITH_GAPS), server, endless, |client, proxy| {
        let streams = ask_all(client, "POST", "/never", "", false);
        proxy.arrive(client, 1 + STREAMS as u64);
        (client.is_deaf, client.sends_each) = (true, 2);
        for round in 0..4000 {
            for &stream in &streams {
                client.write(stream, b"x");
            }
            client.turn();
            if round % 100 == 0 {
                proxy.is_served();
            }
        }
        client.is_deaf = false;
        proxy.settle(client);
        show(&format!("fragment floods {}", proxy.failures("http3-fragment-flood")));
    });
}

fn what_means_nothing(server: SocketAddr) {
    costs_little(("connection IDs without end", LIMIT), server, endless, |client, proxy| {
        // Each takes a round trip, which is long on a busy machine: it has to go on, not to be done in time.
        for count in (30..=300).step_by(30) {
            let has = |client: &mut RawClient| client.quic.stats().frame_tx.new_connection_id > count;
            client.until("IDs are not retired", has);
        }
        proxy.settle(client);
    });
    costs_little(("a client that moves without end", LIMIT), server, endless, |client, proxy| {
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
    costs_little(("padding", LIMIT), server, padded, |client, proxy| {
        for _ in 0..5000 {
            client.quic.ping();
            client.turn();
        }
        proxy.settle(client);
    });
    costs_little(("streams that are opened and reset", LIMIT), server, endless, |client, proxy| {
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
