//! HTTP/2: streams counted one by one, and what a server does to them or to their connection.

/// Certificates for the tests.
mod made;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use load::{Arrival, ErrorClass, Errors, Outcome, Plan, Tls};
use made::Made;
use tokio::net::TcpStream;

type Head = Request<RecvStream>;
type Answer = SendResponse<Bytes>;

/// What the server does about a request, by its number on the connection.
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
    // The generator may have gone already; what it makes of that is what the test looks at.
    if let Ok(mut stream) = answer.send_response(head, false) {
        let _ = stream.send_data(Bytes::from_static(body), true);
    }
}

fn plan(address: SocketAddr, requests: u64) -> Plan {
    Plan {
        http2: true,
        connections: 1,
        requests: Some(requests),
        duration_seconds: None,
        ..Plan::new(format!("http://{address}/"))
    }
}

fn run(plan: &Plan) -> Outcome {
    load::run(plan).expect("the run starts")
}

#[test]
fn whole_responses_are_counted_over_all_streams_and_threads() {
    let address = server(|_, _, answer, _| respond(answer, 200, b"hello"));
    let told = run(&Plan { connections: 3, threads: 2, streams: 8, ..plan(address, 101) });
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
        let told = run(&Plan { timeout_seconds: 0.1, ..plan(server(script), 4) });
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
    let told = run(&Plan { streams: 4, ..plan(address, 60) });
    assert_eq!((told.requests, told.errors), (60, Errors::default()), "{:?}", told.error_examples);
    assert!(told.connections_opened >= 4, "{}", told.connections_opened);
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
    let told = run(&Plan {
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
    let told = run(&Plan { method: "POST".into(), body: vec![b'x'; 8 << 20], ..plan(address, 3) });
    assert_eq!((told.requests, told.errors), (3, Errors::default()), "{:?}", told.error_examples);
}

#[test]
fn each_request_may_have_a_connection_of_its_own() {
    let address = server(|_, _, answer, _| respond(answer, 200, b"hello"));
    let told = run(&Plan { keepalive: false, connections: 2, ..plan(address, 10) });
    assert_eq!((told.requests, told.connections_opened, told.connect.count), (10, 10, 10));
}

#[test]
fn a_list_may_lead_to_several_servers() {
    let (one, other): (Script, Script) =
        (|_, _, answer, _| respond(answer, 200, b""), |_, _, answer, _| respond(answer, 204, b""));
    let (one, other) = (server(one), server(other));
    let urls = vec![format!("http://{one}/"), format!("http://{other}/"), format!("http://{other}/again")];
    let told = run(&Plan { urls, streams: 3, ..plan(one, 9) });
    assert_eq!((told.statuses[&200], told.statuses[&204], told.errors), (3, 6, Errors::default()));
    // A connection to each is enough for all streams.
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
    let told = run(&Plan { arrival, streams: 30, ..plan(address, 40) });
    let kept = told.schedule.as_ref().expect("a schedule");
    assert_eq!((told.requests, kept.due, kept.unsent), (40, 40, 0), "{:?}", told.error_examples);
    assert!(told.latency.min_us >= 50_000);
}

/// Answers so many streams at once, and refuses those beyond; says in its SETTINGS that it takes `said`. Each answer is held
/// back until as many are under way as it takes, or `total` have come.
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
    let told = run(&Plan { streams: 32, ..plan(taking(8, Some(8), 400), 400) });
    assert_eq!((told.requests, told.errors), (400, Errors::default()), "{:?}", told.error_examples);
    assert_eq!((told.streams_refused, told.connections_opened), (0, 0));
    // With a rate those that wait are no delay of the generator's.
    let arrival = Arrival::Constant { requests_per_second: 2_000.0 };
    let told = run(&Plan { arrival, streams: 32, ..plan(taking(4, Some(4), 100), 100) });
    assert_eq!((told.requests, told.errors), (100, Errors::default()), "{:?}", told.error_examples);
}

#[test]
fn who_waits_for_a_stream_has_not_tried_yet_when_the_connection_takes_no_more() {
    // Each connection answers some requests, and is then followed by another, as behind nginx (keepalive_requests).
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
    let told = run(&Plan { streams: 16, ..plan(address, 200) });
    assert_eq!((told.requests, told.errors), (200, Errors::default()), "{:?}", told.error_examples);
    // Nor is anything sent before the server has said how much it takes: it would have to refuse that.
    assert!(told.connections_opened >= 10 && told.streams_refused == 0, "{told:?}");
}

#[test]
fn rfc_9113_8_7_a_stream_that_is_refused_beside_others_is_sent_again_and_one_alone_is_an_error() {
    // It does not say what it takes.
    let address = server(|_, _, mut answer, number| {
        if number % 4 == 1 {
            answer.send_reset(Reason::REFUSED_STREAM);
        } else {
            respond(answer, 200, b"hello");
        }
    });
    let told = run(&Plan { streams: 4, ..plan(address, 40) });
    assert_eq!(told.requests + told.errors.reset, 40, "{told:?}");
    assert!(told.streams_refused > 0 && told.requests > 30, "{told:?}");
    assert!(load::report(&told).contains("more than the server takes at once"), "{}", load::report(&told));
    let always = server(|_, _, mut answer, _| answer.send_reset(Reason::REFUSED_STREAM));
    let told = run(&plan(always, 3));
    assert_eq!((told.requests, told.errors.reset, told.streams_refused), (0, 3, 0), "{told:?}");
}

#[test]
fn a_server_that_is_gone_ends_a_run_of_a_number() {
    // All that it answers is the first requests of the first connections.
    let address = server(|connection, _, answer, number| {
        static ANSWERED: AtomicUsize = AtomicUsize::new(0);
        if ANSWERED.fetch_add(1, Ordering::Relaxed) < 10 && number < 10 {
            respond(answer, 200, b"hello");
        } else {
            connection.abrupt_shutdown(Reason::INTERNAL_ERROR);
        }
    });
    let told = run(&Plan { streams: 4, connections: 2, threads: 2, ..plan(address, 1_000_000) });
    let gone = told.server_gone.as_ref().expect("it says so");
    assert!(gone.contains("after 10 responses"), "{gone}");
    assert!(!told.interrupted && told.requests == 10 && told.errors.total() < 100_000, "{told:?}");
}

#[test]
fn a_run_that_is_stopped_tells_what_it_measured() {
    let address = server(|_, _, answer, _| respond(answer, 200, b"hello"));
    let running =
        load::start(&Plan { duration_seconds: Some(3600.0), requests: None, streams: 4, ..plan(address, 1) });
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
    let told = run(&Plan { urls, tls, keepalive: false, ..plan(address, 2) });
    assert_eq!((told.errors.tls, told.errors.total()), (2, 2), "{:?}", told.error_examples);
}

#[test]
fn bytes_of_the_warm_up_are_in_no_figure() {
    let address = server(|_, _, answer, _| respond(answer, 200, &[b'x'; 1000]));
    let cold = run(&plan(address, 20));
    let warm = run(&Plan { warm_up_seconds: 0.2, ..plan(address, 20) });
    assert_eq!((cold.requests, warm.requests), (20, 20));
    // Heads are shorter once they have been sent before.
    assert!(warm.bytes_received <= cold.bytes_received && warm.bytes_received > 20_000, "{warm:?}");
    assert!(warm.bytes_sent <= cold.bytes_sent, "{warm:?}");
}
