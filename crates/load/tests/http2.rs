//! HTTP/2: streams are counted separately, and servers harm streams or connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::made::Made;
use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use load::{
    Arrival, Call, ChecksMissed, ErrorClass, Errors, LoadPlan, Responses, RunOutcome, StreamMessage,
    StreamsPlan, Tls, Workload,
};
use tokio::net::TcpStream;

type Head = Request<RecvStream>;
type Answer = SendResponse<Bytes>;

/// The server's action for a request, by its number on the connection.
type Script = fn(&mut Connection<TcpStream, Bytes>, Head, Answer, usize);

/// Serves every request of every connection by the script.
fn server(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("a runtime");
                runtime.block_on(async {
                    tcp.set_nonblocking(true).expect("a socket");
                    let tcp = TcpStream::from_std(tcp).expect("a socket");
                    let Ok(mut connection) = h2::server::handshake(tcp).await else { return };
                    let mut number = 0;
                    while let Some(Ok((head, answer))) = connection.accept().await {
                        script(&mut connection, head, answer, number);
                        number += 1;
                    }
                });
            });
        }
    });
    address
}

fn respond(mut answer: Answer, status: u16, body: &'static [u8]) {
    let head = Response::builder().status(status).body(()).expect("a head");
    // The generator may have gone already; the test checks its outcome.
    if let Ok(mut stream) = answer.send_response(head, false) {
        let _ = stream.send_data(Bytes::from_static(body), true);
    }
}

fn plan(address: SocketAddr, requests: u64) -> LoadPlan {
    LoadPlan {
        http2: true,
        connections: 1,
        requests: Some(requests),
        duration_seconds: None,
        ..LoadPlan::new(format!("http://{address}/"))
    }
}

fn run(plan: &LoadPlan) -> RunOutcome {
    load::run(plan).expect("the run starts")
}

#[test]
fn whole_responses_are_counted_over_all_streams_and_threads() {
    let address = server(|_, _, answer, _| respond(answer, 200, b"hello"));
    let told = run(&LoadPlan { connections: 3, threads: 2, streams: 8, ..plan(address, 101) });
    assert_eq!((told.requests, told.errors, told.unfinished), (101, Errors::default(), 0));
    assert_eq!((told.body_bytes, told.statuses[&200]), (505, 101));
    assert_eq!((told.latency.count, told.first_byte.count, told.connections_opened), (101, 101, 0));
    assert!(told.bytes_received > 505 && told.bytes_sent > 0 && told.tls.is_none());
    assert!(load::report(&told).contains("HTTP/2, 8 streams each"), "{}", load::report(&told));
}

#[test]
fn what_happens_to_streams_has_its_class_and_is_never_a_success() {
    let cases: [(&str, ErrorClass, Script); 6] = [
        ("refuses", ErrorClass::Reset, |_, _, mut answer, _| answer.send_reset(Reason::REFUSED_STREAM)),
        ("resets within the body", ErrorClass::Reset, |_, _, mut answer, _| {
            let mut stream = answer.send_response(Response::new(()), false).expect("open");
            stream.send_data(Bytes::from_static(b"he"), false).expect("open");
            stream.send_reset(Reason::INTERNAL_ERROR);
        }),
        ("is shorter than it says", ErrorClass::Malformed, |_, _, mut answer, _| {
            let head = Response::builder().header("content-length", 6).body(()).expect("a head");
            let mut stream = answer.send_response(head, false).expect("open");
            stream.send_data(Bytes::from_static(b"hello"), true).expect("open");
        }),
        ("is unavailable", ErrorClass::Status, |_, _, answer, _| respond(answer, 503, b"no")),
        ("ends the connection", ErrorClass::Read, |connection, _, _, _| {
            connection.abrupt_shutdown(Reason::INTERNAL_ERROR);
        }),
        ("stalls", ErrorClass::Timeout, |_, _, mut answer, _| {
            let stream = answer.send_response(Response::new(()), false).expect("open");
            // Neither ended nor reset.
            std::mem::forget(stream);
        }),
    ];
    for (name, class, script) in cases {
        let told = run(&LoadPlan { timeout_seconds: 0.1, ..plan(server(script), 4) });
        let classes: Vec<_> = told.error_examples.keys().collect();
        assert_eq!((classes, told.requests, told.errors.total()), (vec![&class], 0, 4), "{name}: {told:?}");
    }
}

#[test]
fn a_connection_that_takes_no_more_requests_is_followed_by_another() {
    let address = server(|connection, _, answer, number| {
        respond(answer, 200, b"hello");
        if number == 4 {
            connection.graceful_shutdown();
        }
    });
    let told = run(&LoadPlan { streams: 4, ..plan(address, 60) });
    assert_eq!((told.requests, told.errors), (60, Errors::default()), "{:?}", told.error_examples);
    assert!(told.connections_opened >= 4, "{}", told.connections_opened);
}

/// Answers this many requests per connection, then sends GOAWAY, as nginx does (keepalive_requests).
fn going_away(after: u32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || go_away(tcp, after));
        }
    });
    address
}

fn go_away(mut tcp: std::net::TcpStream, after: u32) -> std::io::Result<()> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let (mut head, mut answered, mut is_over) = ([0; 9], 0, false);
    tcp.read_exact(&mut [0; 24])?;
    tcp.write_all(&frame(4, 0, 0, &[]))?;
    loop {
        tcp.read_exact(&mut head)?;
        let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        tcp.read_exact(&mut vec![0; bytes])?;
        // Streams behind the last one are not processed.
        if head[3] != 1 || is_over {
            continue;
        }
        is_over = answered + 1 >= after;
        let last = if answered < after { stream } else { 0 };
        if is_over {
            tcp.write_all(&frame(7, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()))?;
        }
        if answered < after {
            tcp.write_all(&frame(1, 5, stream, &[0x88]))?;
        }
        answered += 1;
        if is_over {
            tcp.shutdown(std::net::Shutdown::Write)?;
        }
    }
}

#[test]
fn rfc_9113_8_7_requests_that_were_not_processed_are_sent_again_however_often() {
    for streams in [1, 2, 8, 32] {
        let told = run(&LoadPlan { streams, ..plan(going_away(7), 700) });
        assert_eq!((told.requests, told.errors), (700, Errors::default()), "{:?}", told.error_examples);
        assert!(told.connections_opened >= 99, "{}", told.connections_opened);
    }
}

#[test]
fn a_server_that_processes_nothing_is_an_error_after_the_timeout() {
    let told = run(&LoadPlan { timeout_seconds: 0.3, streams: 2, ..plan(going_away(0), 2) });
    assert_eq!(
        (told.requests, told.errors.reset, told.errors.total()),
        (0, 2, 2),
        "{:?}",
        told.error_examples
    );
    assert!(told.connections_opened < 100, "it is not asked without a pause: {}", told.connections_opened);
}

/// Answers a gRPC call with this many messages, and OK.
fn call(mut answer: Answer, messages: usize) {
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let Ok(mut stream) = answer.send_response(head, false) else { return };
    let _ = stream.send_data(Bytes::from([0, 0, 0, 0, 1, b'x'].repeat(messages)), false);
    let _ = stream.send_trailers(
        [("grpc-status".parse().expect("a name"), "0".parse().expect("a value"))].into_iter().collect(),
    );
}

fn calls(address: SocketAddr, call: Call, requests: u64) -> LoadPlan {
    let workload = Workload::Grpc { call, messages: Some(2) };
    let streams = StreamsPlan { workload, message: StreamMessage::stamped(0), ..StreamsPlan::default() };
    LoadPlan { stream: Some(Box::new(streams)), ..plan(address, requests) }
}

#[test]
fn a_grpc_call_with_one_response_has_exactly_one() {
    let twice = |_: &mut Connection<TcpStream, Bytes>, _, answer, number: usize| call(answer, 1 + number % 2);
    let told = run(&calls(server(twice), Call::Unary, 4));
    assert_eq!((told.requests, told.errors.malformed, told.errors.total()), (2, 2, 2));
    let words = &told.error_examples[&ErrorClass::Malformed];
    assert_eq!(words, "the gRPC call ended with OK and with 2 responses, expected one");
    let told = run(&calls(server(twice), Call::ServerStream, 4));
    assert_eq!((told.requests, told.errors), (4, Errors::default()), "{:?}", told.error_examples);
}

#[test]
fn grpc_calls_that_were_not_processed_are_made_again() {
    for kind in [Call::Unary, Call::ServerStream] {
        let address = server(|connection, _, mut answer, number| match number {
            ..6 => {
                call(answer, 1);
                if number == 5 {
                    connection.graceful_shutdown();
                }
            }
            _ => answer.send_reset(Reason::REFUSED_STREAM),
        });
        let told = run(&LoadPlan { streams: 4, ..calls(address, kind, 60) });
        assert_eq!((told.requests, told.errors), (60, Errors::default()), "{:?}", told.error_examples);
    }
}

#[test]
fn grpc_calls_without_an_answer_are_in_the_times() {
    for kind in [Call::Unary, Call::ClientStream] {
        let address = server(|_, _, answer, number| match number {
            ..8 => call(answer, 1),
            _ => std::mem::forget(answer),
        });
        let told = run(&LoadPlan {
            requests: None,
            duration_seconds: Some(1.5),
            streams: 2,
            ..calls(address, kind, 1)
        });
        let latency = &told.latency;
        assert_eq!((told.requests, latency.censored, told.unfinished), (8, 2, 2), "{kind:?} {told:?}");
        assert!(latency.is_at_least("max_us") && !told.is_valid(), "{told:?}");
    }
}

#[test]
fn responses_unlike_the_first_ones_are_errors() {
    let address = server(|_, _, answer, number| match number {
        ..40 => respond(answer, 200, b"hello"),
        40..50 => respond(answer, 204, b""),
        _ => respond(answer, 200, b"hello you"),
    });
    let told = run(&LoadPlan { streams: 4, responses: Responses::Same, ..plan(address, 60) });
    let expected = ChecksMissed { status: 10, size: 10, ..ChecksMissed::default() };
    assert_eq!((told.requests, told.checks_missed), (40, expected), "{:?}", told.error_examples);
}

#[test]
fn a_server_that_recovers_is_used_again() {
    let address = server(|connection, _, answer, number| match number {
        0 => respond(answer, 200, b"hello"),
        _ => connection.abrupt_shutdown(Reason::INTERNAL_ERROR),
    });
    let told = run(&plan(address, 6));
    assert_eq!((told.requests, told.errors.read), (3, 3), "{:?}", told.error_examples);
}

#[test]
fn requests_arrive_as_they_were_asked_for_and_bodies_go_out_whole() {
    let address = server(|_, head, mut answer, _| {
        tokio::spawn(async move {
            let length = head.headers().get("content-length").cloned().expect("a length");
            let asked = (head.method().as_str(), head.uri().path(), head.headers()["x-test"].as_bytes());
            assert_eq!(asked, ("PUT", "/a", &b"1"[..]));
            let mut body = head.into_body();
            let mut body_bytes = 0;
            while let Some(Ok(piece)) = body.data().await {
                body_bytes += piece.len();
                body.flow_control().release_capacity(piece.len()).expect("it was received");
            }
            let mut stream = answer.send_response(Response::new(()), false).expect("open");
            stream.send_data(Bytes::from(body_bytes.to_string()), false).expect("open");
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", length);
            stream.send_trailers(trailers).expect("open");
        });
    });
    let told = run(&LoadPlan {
        method: "PUT".into(),
        headers: vec!["X-Test: 1".into()],
        body: vec![b'x'; 1_000_000],
        urls: vec![format!("http://{address}/a")],
        streams: 2,
        ..plan(address, 6)
    });
    assert_eq!((told.requests, told.errors), (6, Errors::default()), "{:?}", told.error_examples);
    assert_eq!(told.body_bytes, 6 * "1000000".len() as u64);
    assert!(told.bytes_sent > 6_000_000);
}

#[test]
fn an_answer_before_the_end_of_the_request_counts() {
    let address = server(|_, _, answer, _| respond(answer, 200, b"early"));
    let told = run(&LoadPlan { method: "POST".into(), body: vec![b'x'; 8 << 20], ..plan(address, 3) });
    assert_eq!((told.requests, told.errors), (3, Errors::default()), "{:?}", told.error_examples);
}

#[test]
fn each_request_may_have_a_connection_of_its_own() {
    let address = server(|_, _, answer, _| respond(answer, 200, b"hello"));
    let told = run(&LoadPlan { keepalive: false, connections: 2, ..plan(address, 10) });
    assert_eq!((told.requests, told.connections_opened, told.connect.count), (10, 10, 10));
}

#[test]
fn a_list_may_lead_to_several_servers() {
    let (one, other): (Script, Script) =
        (|_, _, answer, _| respond(answer, 200, b""), |_, _, answer, _| respond(answer, 204, b""));
    let (one, other) = (server(one), server(other));
    let urls = vec![format!("http://{one}/"), format!("http://{other}/"), format!("http://{other}/again")];
    let told = run(&LoadPlan { urls, streams: 3, ..plan(one, 9) });
    assert_eq!((told.statuses[&200], told.statuses[&204], told.errors), (3, 6, Errors::default()));
    // A connection to each server suffices for all streams.
    assert_eq!(told.connections_opened, 2);
}

#[test]
fn a_schedule_goes_to_whichever_stream_is_free() {
    let address = server(|_, _, answer, _| {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            respond(answer, 200, b"slow");
        });
    });
    let arrival = Arrival::Constant { requests_per_second: 200.0 };
    let told = run(&LoadPlan { arrival, streams: 30, ..plan(address, 40) });
    let kept = told.schedule.as_ref().expect("a schedule");
    assert_eq!((told.requests, kept.due, kept.unsent), (40, 40, 0), "{:?}", told.error_examples);
    assert!(told.latency.min_us >= 50_000);
}

/// Serves `most` streams at once, and refuses those beyond; its SETTINGS announce `said`. Each answer is delayed until
/// `most` streams are active, or `total` have arrived.
fn taking(most: usize, said: Option<u32>, total: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            listener.set_nonblocking(true).expect("a socket");
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            let (tcp, _) = listener.accept().await.expect("a connection");
            let mut builder = h2::server::Builder::new();
            if let Some(said) = said {
                builder.max_concurrent_streams(said);
            }
            let mut connection = builder.handshake::<_, Bytes>(tcp).await.expect("HTTP/2");
            let (mut held, mut answered) = (Vec::new(), 0);
            while let Some(Ok((_, mut answer))) = connection.accept().await {
                if held.len() == most {
                    answer.send_reset(Reason::REFUSED_STREAM);
                } else {
                    held.push(answer);
                }
                if held.len() == most || answered + held.len() == total {
                    answered += held.len();
                    held.drain(..).for_each(|answer| respond(answer, 200, b"hello"));
                }
            }
        });
    });
    address
}

#[test]
fn rfc_9113_5_1_2_streams_beyond_what_the_server_takes_wait() {
    let told = run(&LoadPlan { streams: 32, ..plan(taking(8, Some(8), 400), 400) });
    assert_eq!((told.requests, told.errors), (400, Errors::default()), "{:?}", told.error_examples);
    assert_eq!((told.streams_refused, told.connections_opened), (0, 0));
    // With a rate, waiting requests are not the generator's delay.
    let arrival = Arrival::Constant { requests_per_second: 2_000.0 };
    let told = run(&LoadPlan { arrival, streams: 32, ..plan(taking(4, Some(4), 100), 100) });
    assert_eq!((told.requests, told.errors), (100, Errors::default()), "{:?}", told.error_examples);
}

#[test]
fn who_waits_for_a_stream_has_not_tried_yet_when_the_connection_takes_no_more() {
    // Each connection answers some requests, and another then follows, as behind nginx (keepalive_requests).
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    tcp.set_nonblocking(true).expect("a socket");
                    let tcp = TcpStream::from_std(tcp).expect("a socket");
                    let mut builder = h2::server::Builder::new();
                    builder.max_concurrent_streams(2);
                    let Ok(mut connection) = builder.handshake::<_, Bytes>(tcp).await else { return };
                    let mut number = 0;
                    while let Some(Ok((_, answer))) = connection.accept().await {
                        number += 1;
                        if number == 5 {
                            connection.graceful_shutdown();
                        }
                        respond(answer, 200, b"hello");
                    }
                });
            });
        }
    });
    let told = run(&LoadPlan { streams: 16, ..plan(address, 200) });
    assert_eq!((told.requests, told.errors), (200, Errors::default()), "{:?}", told.error_examples);
    // No request is sent before the server has announced its limit, because it would have to refuse it.
    assert!(told.connections_opened >= 10 && told.streams_refused == 0, "{told:?}");
}

#[test]
fn rfc_9113_8_7_a_stream_that_is_refused_is_sent_again_and_an_error_only_after_its_timeout() {
    // The server announces no limit.
    let address = server(|_, _, mut answer, number| {
        if number % 4 == 1 {
            answer.send_reset(Reason::REFUSED_STREAM);
        } else {
            respond(answer, 200, b"hello");
        }
    });
    let told = run(&LoadPlan { streams: 4, ..plan(address, 40) });
    assert_eq!((told.requests, told.errors), (40, Errors::default()), "{:?}", told.error_examples);
    assert!(told.streams_refused > 0, "{told:?}");
    assert!(load::report(&told).contains("above the limit of the server"), "{}", load::report(&told));
    let always = server(|_, _, mut answer, _| answer.send_reset(Reason::REFUSED_STREAM));
    let told = run(&LoadPlan { timeout_seconds: 0.3, ..plan(always, 3) });
    assert_eq!((told.requests, told.errors.reset, told.errors.total()), (0, 3, 3), "{told:?}");
    assert!((3..100).contains(&told.streams_refused), "it is not asked without a pause: {told:?}");
}

#[test]
fn a_server_that_is_gone_ends_a_run_of_a_number() {
    // Only the first requests of the first connections are answered.
    let address = server(|connection, _, answer, number| {
        static ANSWERED: AtomicUsize = AtomicUsize::new(0);
        if ANSWERED.fetch_add(1, Ordering::Relaxed) < 10 && number < 10 {
            respond(answer, 200, b"hello");
        } else {
            connection.abrupt_shutdown(Reason::INTERNAL_ERROR);
        }
    });
    let told = run(&LoadPlan { streams: 4, connections: 2, threads: 2, ..plan(address, 1_000_000) });
    let gone = told.server_gone.as_ref().expect("it says so");
    assert!(gone.contains("after 10 responses"), "{gone}");
    assert!(!told.interrupted && told.requests == 10 && told.errors.total() < 100_000, "{told:?}");
}

#[test]
fn a_run_that_is_stopped_tells_what_it_measured() {
    let address = server(|_, _, answer, _| respond(answer, 200, b"hello"));
    let running = load::start(&LoadPlan {
        duration_seconds: Some(3600.0),
        requests: None,
        streams: 4,
        ..plan(address, 1)
    });
    let running = running.expect("the run starts");
    while running.control().progress().requests < 20 {
        thread::yield_now();
    }
    running.control().stop();
    let told = running.wait().expect("an outcome");
    assert!(told.interrupted && told.requests >= 20, "{told:?}");
}

#[test]
fn a_server_without_http2_is_told_apart() {
    let made = Made::new("alpn", &["localhost"]);
    let config = made.config("http/1.1");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut tcp in listener.incoming().flatten() {
            let mut tls = rustls::ServerConnection::new(Arc::clone(&config)).expect("a good configuration");
            while tls.is_handshaking() && tls.complete_io(&mut tcp).is_ok() {}
        }
    });
    let tls = Tls { verify: false, ..Tls::default() };
    let urls = vec![format!("https://{address}/")];
    let told = run(&LoadPlan { urls, tls, keepalive: false, ..plan(address, 2) });
    assert_eq!((told.errors.tls, told.errors.total()), (2, 2), "{:?}", told.error_examples);
}

#[test]
fn bytes_of_the_warm_up_are_in_no_figure() {
    let address = server(|_, _, answer, _| respond(answer, 200, &[b'x'; 1000]));
    let cold = run(&plan(address, 20));
    let warm = run(&LoadPlan { warm_up_seconds: 0.2, ..plan(address, 20) });
    assert_eq!((cold.requests, warm.requests), (20, 20));
    // Repeated heads are shorter.
    assert!(warm.bytes_received <= cold.bytes_received && warm.bytes_received > 20_000, "{warm:?}");
    assert!(warm.bytes_sent <= cold.bytes_sent, "{warm:?}");
}
