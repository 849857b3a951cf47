//! Streams with servers that lose, repeat and reorder messages, end early, or speak another protocol.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::scripted::{self, Peer, server};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use load::{
    Arrival, LoadPlan, RunOutcome, RunProblem, StreamCounts, StreamFigures, StreamMessage, StreamsPlan,
    Workload,
};
use sha1::{Digest, Sha1};

fn plan(address: SocketAddr, workload: Workload, messages: u64) -> LoadPlan {
    let stream = StreamsPlan { workload, message: StreamMessage::stamped(0), ..StreamsPlan::default() };
    LoadPlan { stream: Some(Box::new(stream)), ..scripted::plan(address, messages) }
}

fn run(plan: &LoadPlan) -> (RunOutcome, StreamFigures) {
    told(load::run(plan).expect("the run starts"))
}

fn told(outcome: RunOutcome) -> (RunOutcome, StreamFigures) {
    let text = serde_json::to_string(&outcome).expect("serialises");
    assert_eq!(serde_json::from_str::<RunOutcome>(&text).expect("parses"), outcome);
    let figures = outcome.stream.as_deref().cloned().expect("figures of streams");
    (outcome, figures)
}

/// Lets a server wait until the measured window has begun.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn wait(&self) {
        let is_open = self.0.0.lock().expect("no panic");
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).expect("no panic"));
    }

    fn run(&self, plan: &LoadPlan) -> (RunOutcome, StreamFigures) {
        let running = load::start(plan).expect("the run starts");
        while running.control().window_start().is_none_or(|start| start > Instant::now()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        *self.0.0.lock().expect("no panic") = true;
        self.0.1.notify_all();
        told(running.wait().expect("the run ends"))
    }
}

fn unix_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

const EVENTS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n";

#[test]
fn events_that_are_lost_repeated_late_or_from_the_future_are_told() {
    let gate = Gate::default();
    let opened = gate.clone();
    let address = server(move |mut peer, _| {
        peer.request();
        peer.send(EVENTS);
        opened.wait();
        for number in [1, 2, 5, 4, 4, 6] {
            peer.send(format!("id: {number}\ndata: {{\"sent_ns\": {}}}\n\n", unix_ms() - 40).as_bytes());
        }
        peer.send(format!(": comment\nevent: x\ndata: seq=7 sent_ns={}\n\n", unix_ms() + 60_000).as_bytes());
        peer.send(b"data: without a time\n\ndata: last\n\n");
        peer.stall();
    });
    let (outcome, figures) = gate.run(&plan(address, Workload::Events, 9));
    let StreamCounts { opened, received, lost, duplicates, out_of_order, from_future, .. } = figures.counts;
    assert_eq!((opened, received, lost, duplicates, out_of_order, from_future), (1, 8, 1, 1, 1, 1));
    assert_eq!((outcome.requests, outcome.errors.total(), outcome.latency.count), (8, 0, 6));
    assert!(outcome.latency.p75_us >= 40_000 && outcome.latency.min_us == 0, "{:?}", outcome.latency);
    assert_eq!((figures.gaps.count, figures.open.count), (7, 1));
    assert!(outcome.settings.headers.is_empty());
}

#[test]
fn an_event_stream_that_ends_is_opened_again_with_the_last_id() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (requests, gate) = (Arc::clone(&seen), Gate::default());
    let opened = gate.clone();
    let address = server(move |mut peer, number| {
        let request = peer.request().unwrap_or_default();
        requests.lock().expect("no panic").push(request);
        match number {
            0 => {
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
                opened.wait();
                peer.send(b"1b\r\nretry: 1\nid: a7\ndata: one\n\n\r\n0\r\n\r\n");
                peer.stall();
            }
            // A chunk that does not end.
            1 => {
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
                peer.send(b"ff\r\ndata: two\n\n");
                peer.finish();
            }
            2 => {
                peer.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
                peer.stall();
            }
            _ => {
                peer.send(EVENTS);
                peer.send(b"data: three\n\ndata: four\n\n");
                peer.stall();
            }
        }
    });
    // A stream that cannot be opened uses up one request.
    let (outcome, figures) = gate.run(&plan(address, Workload::Events, 5));
    let StreamCounts { opened, failed, closed_early, reconnected, received, .. } = figures.counts;
    assert_eq!((opened, failed, closed_early, reconnected, received), (3, 1, 2, 2, 4));
    assert_eq!((outcome.errors.read, outcome.errors.status, outcome.errors.total()), (1, 1, 2));
    let seen = seen.lock().expect("no panic");
    assert!(
        seen[0].contains("\r\nAccept: text/event-stream\r\n") && !seen[0].contains("Last-Event-ID"),
        "{seen:?}"
    );
    assert!(seen[1].contains("\r\nLast-Event-ID: a7\r\n\r\n"), "{seen:?}");
}

#[test]
fn what_is_no_event_stream_is_an_error_with_its_reason() {
    for (response, words) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"[..],
            "not text/event-stream",
        ),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "status 204"),
        (b"SSH-2.0-x\r\n", "does not start with HTTP"),
    ] {
        let address = server(move |mut peer, _| {
            peer.request();
            peer.send(response);
            peer.stall();
        });
        let error =
            load::run(&plan(address, Workload::Events, 1)).expect_err("nothing was opened").to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// The server's side of a handshake, and of the messages that follow.
struct WebSocket(Peer);

impl WebSocket {
    fn accept(mut peer: Peer) -> Option<Self> {
        let request = peer.request()?;
        let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))?;
        assert!(
            request
                .contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n")
        );
        let accept = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
        let accept = BASE64_STANDARD.encode(accept);
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n");
        peer.send(format!("Sec-WebSocket-Accept: {accept}\r\n\r\n").as_bytes());
        Some(Self(peer))
    }

    /// First byte and payload of a short frame of the client.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let head = self.0.exactly(6)?;
        assert_eq!(head[1] & 0x80, 0x80, "a client masks");
        let payload = self.0.exactly(usize::from(head[1] & 0x7F))?;
        Some((
            head[0],
            payload.iter().zip(head[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect(),
        ))
    }

    fn send(&mut self, first: u8, payload: &[u8]) {
        self.0.send(&[&[first, payload.len() as u8], payload].concat());
    }
}

#[test]
fn answers_that_are_lost_repeated_or_late_are_told_and_the_rest_is_timed() {
    let address = server(|peer, _| {
        let Some(mut socket) = WebSocket::accept(peer) else { return };
        let (mut held, mut pong, mut number) = (None, None, 0);
        loop {
            let Some((first, payload)) = socket.receive() else { return };
            number += u32::from(first == 0x81);
            match (first, number) {
                (0x88, _) => return assert_eq!(pong, None, "the ping was answered"),
                (0x8A, _) => pong = pong.filter(|sent| *sent != payload),
                (_, 2) => {}
                (_, 4) => held = Some(payload),
                (_, 5) => {
                    socket.send(0x89, b"are you there");
                    socket.send(0x01, &payload[..3]);
                    socket.send(0x80, &payload[3..]);
                    socket.send(0x81, &payload);
                    socket.send(0x81, &held.take().unwrap_or_default());
                    pong = Some(b"are you there".to_vec());
                }
                _ => socket.send(first, &payload),
            }
        }
    });
    let rate = Arrival::Constant { requests_per_second: 200.0 };
    let (outcome, figures) =
        run(&LoadPlan { arrival: rate, timeout_seconds: 0.3, ..plan(address, Workload::Echo, 8) });
    let StreamCounts { sent, received, lost, duplicates, out_of_order, .. } = figures.counts;
    // The stream waits for the lost message, because later answers have overtaken it, not the end of the stream.
    assert_eq!((sent, received, lost, duplicates, out_of_order), (8, 7, 1, 1, 1), "{outcome:?}");
    // The times include the lost message with its age.
    let (latency, service) = (&outcome.latency, &outcome.service);
    assert_eq!((outcome.requests, latency.count, latency.censored, service.censored), (7, 8, 1, 1));
}

#[test]
fn a_closed_loop_waits_for_answers_and_a_silent_server_times_out() {
    let address = server(|peer, number| {
        let Some(mut socket) = WebSocket::accept(peer) else { return };
        for count in 0.. {
            match socket.receive() {
                Some((0x81, payload)) if number > 0 || count < 2 => socket.send(0x81, &payload),
                Some((0x81, _)) => {}
                _ => return,
            }
        }
    });
    let (outcome, figures) = run(&LoadPlan { timeout_seconds: 0.05, ..plan(address, Workload::Echo, 5) });
    let StreamCounts { opened, closed_early, reconnected, sent, received, lost, .. } = figures.counts;
    assert_eq!((opened, closed_early, reconnected, sent, received, lost), (2, 1, 1, 5, 4, 1));
    assert_eq!((outcome.errors.timeout, outcome.errors.total()), (1, 1));
}

#[test]
fn a_silence_is_in_the_times_of_messages() {
    let address = server(|peer, _| {
        let Some(mut socket) = WebSocket::accept(peer) else { return };
        for count in 0.. {
            match socket.receive() {
                Some((0x81, payload)) if count < 20 => socket.send(0x81, &payload),
                Some(_) => {}
                None => return,
            }
        }
    });
    let plan = LoadPlan { requests: None, duration_seconds: Some(1.5), ..plan(address, Workload::Echo, 1) };
    let (outcome, _) = run(&plan);
    let latency = &outcome.latency;
    assert_eq!((outcome.requests, latency.count, latency.censored, outcome.unfinished), (20, 21, 1, 1));
    assert!(latency.is_at_least("max_us") && !latency.is_at_least("p50_us"), "{latency:?}");
    assert!(
        matches!(outcome.problems[..], [RunProblem::Hung { unfinished: 1, .. }]),
        "{:?}",
        outcome.problems
    );
    assert!(load::report(&outcome).contains('≥'), "{}", load::report(&outcome));
}

/// With seconds, the times of messages are those of the seconds.
#[test]
fn each_message_of_a_closed_loop_is_timed_once() {
    let address = server(|peer, _| {
        let Some(mut socket) = WebSocket::accept(peer) else { return };
        while let Some((0x81, payload)) = socket.receive() {
            socket.send(0x81, &payload);
        }
    });
    let (outcome, _) = run(&LoadPlan { seconds: true, ..plan(address, Workload::Echo, 9) });
    assert_eq!((outcome.requests, outcome.latency.count, outcome.service.count), (9, 9, 9));
}

#[test]
fn a_server_that_breaks_the_protocol_or_closes_is_told_by_its_reason() {
    type Act = fn(WebSocket);
    let cases: [(Act, &str); 6] = [
        (|mut socket| socket.0.send(&[0x81, 0x81, 0, 0, 0, 0, b'a']), "masked"),
        (|mut socket| socket.send(0x81, b"\xff"), "not UTF-8"),
        (|mut socket| socket.send(0xC1, b"a"), "reserved bit"),
        (|mut socket| socket.send(0x88, &1011u16.to_be_bytes()), "closed the WebSocket with code 1011"),
        (|mut socket| socket.send(0x82, b"unasked"), ""),
        (|socket| socket.0.finish(), "closed the connection"),
    ];
    for (act, words) in cases {
        let address = server(move |peer, number| {
            let Some(mut socket) = WebSocket::accept(peer) else { return };
            if number == 0 {
                socket.receive();
                return act(socket);
            }
            while let Some((0x81, payload)) = socket.receive() {
                socket.send(0x81, &payload);
            }
        });
        let (outcome, figures) = run(&plan(address, Workload::Echo, 2));
        let told = outcome.error_examples.values().next().map_or("", String::as_str);
        assert!(told.contains(words), "{told:?} is not {words:?}");
        assert_eq!((figures.counts.closed_early, figures.counts.lost), (1, 1), "{words}");
    }
    for (response, words) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "status 200, and no stream"),
        ("HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "is missing or has another value"),
        ("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", "does not match the key"),
    ] {
        let address = server(move |mut peer, _| {
            peer.request();
            peer.send(response.as_bytes());
            peer.stall();
        });
        let error = load::run(&plan(address, Workload::Echo, 1)).expect_err("nothing was opened").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_run_of_time_ends_with_silent_and_with_busy_streams() {
    let address = server(|mut peer, number| {
        peer.request();
        peer.send(EVENTS);
        if number == 0 {
            peer.send(b"data: only\n\n");
        }
        peer.stall();
    });
    let plan = LoadPlan {
        connections: 3,
        threads: 2,
        requests: None,
        duration_seconds: Some(0.2),
        ..plan(address, Workload::Events, 1)
    };
    let (outcome, figures) = run(&plan);
    // The one message may have arrived before the window.
    assert!(outcome.requests <= 1 && figures.counts.opened == 3);
    assert!(outcome.measured_seconds >= 0.2 && figures.longest_gap_us > 100_000, "{figures:?}");
    assert!(figures.longest_gap_us <= Duration::from_secs(5).as_micros() as u64);
}
