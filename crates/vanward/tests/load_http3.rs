//! HTTP/3 of the load generator and of the origin, which share no code with the proxy. Both sides count requests,
//! and failures caused by a server have their class.

use std::net::UdpSocket;
use std::num::NonZeroUsize;

use load::{Arrival, Check, ErrorClass, Errors, Listed, LoadPlan, RunOutcome, Tls, TlsVersion};
use origin::{OriginCertificate, OriginOptions, RunningOrigin};
use testkit::http3::H3TestServer;
use testkit::http3::frame::frame;

fn origin(workers: usize) -> RunningOrigin {
    let certificate = Some(OriginCertificate::SelfSigned);
    let workers = NonZeroUsize::new(workers);
    origin::start(OriginOptions { certificate, http3: true, workers, ..OriginOptions::default() })
        .expect("it starts")
}

fn plan(origin: &RunningOrigin, path: &str, requests: u64) -> LoadPlan {
    LoadPlan {
        http3: true,
        connections: 1,
        requests: Some(requests),
        duration_seconds: None,
        tls: Tls { verify: false, ..Tls::default() },
        ..LoadPlan::new(format!("https://{}{path}", origin.addresses()[0]))
    }
}

fn run(plan: &LoadPlan) -> RunOutcome {
    load::run(plan).expect("the run starts")
}

#[test]
fn both_sides_count_the_same_requests_on_all_streams_and_threads() {
    let origin = origin(2);
    for (path, requests, bytes) in
        [("/tiny", 501, 128), ("/large", 41, 165_854), ("/blank/70000", 41, 70_000)]
    {
        let told = run(&LoadPlan { connections: 3, threads: 2, streams: 8, ..plan(&origin, path, requests) });
        assert_eq!((told.requests, told.errors, told.unfinished), (requests, Errors::default(), 0), "{path}");
        assert_eq!((told.body_bytes, told.statuses[&200]), (bytes * requests, requests), "{path}");
        assert_eq!((told.latency.count, told.first_byte.count), (requests, requests), "{path}");
        assert!(told.bytes_received > bytes * requests && told.bytes_sent > 0, "{path}");
        let stats = origin.stats();
        assert_eq!((stats.paths[path], stats.requests_refused), (requests, 0), "{path}");
        let tls = told.tls.as_ref().expect("it has TLS");
        assert!(tls.agreed.iter().all(|agreed| agreed.starts_with("TLSv1.3 ")), "{:?}", tls.agreed);
        assert!(load::report(&told).contains("HTTP/3, 8 streams each"), "{}", load::report(&told));
    }
    assert_eq!(origin.stats().connections, 9);
}

#[test]
fn schedules_bodies_and_connections_for_each_request() {
    let origin = origin(1);
    let arrival = Arrival::Constant { requests_per_second: 400.0 };
    let told = run(&LoadPlan { arrival, streams: 4, ..plan(&origin, "/tiny", 60) });
    assert_eq!((told.requests, told.errors.total()), (60, 0), "{told:?}");
    // Larger than the first windows of a stream and of the connection.
    let body = vec![b'x'; 3_000_000];
    let told = run(&LoadPlan { method: "POST".into(), body, streams: 3, ..plan(&origin, "/echo-body", 9) });
    assert_eq!((told.requests, told.errors.total(), told.body_bytes), (9, 0, 27_000_000), "{told:?}");
    let told = run(&LoadPlan { keepalive: false, connections: 2, ..plan(&origin, "/small", 20) });
    assert_eq!((told.requests, told.errors.total()), (20, 0), "{told:?}");
    let tls = told.tls.expect("it has TLS");
    assert_eq!(tls.full + tls.resumed, 20);
    assert!(tls.resumed >= 10, "{} of 20 were resumed", tls.resumed);
    let told = run(&LoadPlan { method: "HEAD".into(), ..plan(&origin, "/large", 3) });
    assert_eq!((told.requests, told.errors.total(), told.body_bytes), (3, 0, 0), "{told:?}");
}

#[test]
fn what_happens_to_streams_has_its_class_and_is_never_a_success() {
    let origin = origin(1);
    for (path, class) in [
        ("/refuse", ErrorClass::Reset),
        ("/reset", ErrorClass::Reset),
        ("/reset?after=100", ErrorClass::Reset),
        ("/truncate", ErrorClass::Malformed),
        ("/status/503", ErrorClass::Status),
        ("/goaway?abrupt", ErrorClass::Read),
        ("/stall?after=10", ErrorClass::Timeout),
    ] {
        // Short only where it has to pass: a busy machine may be slow with a handshake.
        let timeout_seconds = match path {
            "/refuse" => 1.0,
            _ if class == ErrorClass::Timeout => 0.5,
            _ => 3.0,
        };
        let told = run(&LoadPlan { timeout_seconds, ..plan(&origin, path, 3) });
        let classes: Vec<_> = told.error_examples.keys().collect();
        assert_eq!((classes, told.requests, told.errors.total()), (vec![&class], 0, 3), "{path}: {told:?}");
    }
    // Interim responses and trailers are skipped, and a connection that accepts no more requests is replaced.
    for path in ["/early-hints", "/chunked/5000?trailers", "/goaway"] {
        let told = run(&plan(&origin, path, 5));
        assert_eq!((told.requests, told.errors.total()), (5, 0), "{path}: {told:?}");
    }
}

/// Servers may end connections after a number of requests, as nginx does (keepalive_requests).
#[test]
fn rfc_9114_5_2_requests_that_were_not_processed_are_sent_again_however_often() {
    const REQUEST_REJECTED: u32 = 0x10b;
    let server = H3TestServer::new();
    let address = server.address();
    // It ends with the test.
    std::thread::spawn(move || {
        loop {
            // At its end, a run drops connections that it has just opened.
            let Ok(mut served) = server.try_accept() else { continue };
            std::thread::spawn(move || {
                // Its settings.
                served.control(&[0x04, 0x00]);
                for number in 1..=7 {
                    let Some(mut stream) = served.try_request() else { return };
                    stream.response();
                    if number == 7 {
                        // IDs of request streams are multiples of four.
                        served.control(&frame(0x07, &[4 * number]));
                    }
                    stream.answers("hello");
                }
                while let Some(mut late) = served.try_request() {
                    let _ = late.send.reset(REQUEST_REJECTED.into());
                }
            });
        }
    });
    let origin = origin(1);
    for streams in [1, 8] {
        let urls = vec![format!("https://{address}/")];
        let told = run(&LoadPlan { urls, streams, ..plan(&origin, "/", 210) });
        assert_eq!((told.requests, told.errors), (210, Errors::default()), "{:?}", told.error_examples);
        assert!(told.connections_opened >= 29, "{}", told.connections_opened);
    }
}

#[test]
fn responses_are_checked_and_certificates_are() {
    let origin = origin(1);
    let listed = |expected: &str| {
        let check = Check { contains: vec![expected.to_owned()], ..Check::default() };
        Listed {
            name: None,
            method: "GET".to_owned(),
            url: format!("https://{}/hello.html", origin.addresses()[0]),
            headers: Vec::new(),
            body: Vec::new(),
            weight: 1,
            check,
            is_template: false,
            is_literal_body: false,
            place: "a:1:1".to_owned(),
        }
    };
    let of =
        |expected| LoadPlan { urls: Vec::new(), listed: vec![listed(expected)], ..plan(&origin, "/", 4) };
    assert_eq!(run(&of("Hello!")).requests, 4);
    let told = run(&of("Goodbye!"));
    assert_eq!((told.requests, told.errors.check), (0, 4), "{told:?}");
    let refused = load::run(&LoadPlan { tls: Tls::default(), ..plan(&origin, "/tiny", 1) });
    let why = refused.expect_err("nobody trusts it").to_string();
    assert!(why.contains("TLS") && why.contains("--insecure"), "{why}");
}

#[test]
fn a_missing_server_is_reported_at_once() {
    let nobody = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let origin = origin(1);
    let told = load::run(&LoadPlan { urls: vec![format!("https://{nobody}/")], ..plan(&origin, "/", 1) });
    let why = told.expect_err("nobody listens").to_string();
    assert!(why.contains("cannot connect to") && why.contains("is the server running"), "{why}");
}

#[test]
fn flags_that_http_3_does_not_support_are_rejected() {
    let origin = origin(1);
    let base = || plan(&origin, "/tiny", 1);
    let with_tls = |tls: Tls| LoadPlan { tls: Tls { verify: false, ..tls }, ..base() };
    let mut unix = base();
    unix.directions.unix_socket = Some("/tmp/a".into());
    for (plan, word) in [
        (LoadPlan { http2: true, ..base() }, "one of --h2 and --h3"),
        (LoadPlan { urls: vec!["http://127.0.0.1:1/".into()], ..base() }, "https://"),
        (unix, "UDP"),
        (with_tls(Tls { version_max: Some(TlsVersion::Tls12), ..Tls::default() }), "1.3"),
        (
            with_tls(Tls { cipher: Some("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".into()), ..Tls::default() }),
            "TLS 1.3",
        ),
        (LoadPlan { headers: vec!["Connection: close".into()], ..base() }, "no such field"),
    ] {
        let why = load::run(&plan).expect_err(word).to_string();
        assert!(why.contains(word), "{why}");
    }
}
