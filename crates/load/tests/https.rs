//! HTTPS: handshakes by kind, verification of certificates, and errors of TLS as opposed to errors of HTTP.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::made::Made;
use load::{Error, ErrorClass, Errors, LoadPlan, RunOutcome, Tls, TlsVersion};
use rustls::{ServerConfig, ServerConnection};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A connection whose handshake is done.
struct Peer {
    tls: ServerConnection,
    tcp: TcpStream,
}

impl Peer {
    /// Reads the next request without a body; `None` at the end of the connection.
    fn request(&mut self) -> Option<()> {
        let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
        while !received.windows(4).any(|window| window == b"\r\n\r\n") {
            let mut stream = rustls::Stream::new(&mut self.tls, &mut self.tcp);
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
            }
        }
        Some(())
    }

    fn send(&mut self, bytes: &[u8]) {
        // The generator may have gone already; the test checks its outcome.
        let _ = rustls::Stream::new(&mut self.tls, &mut self.tcp).write_all(bytes);
    }

    fn close(mut self) {
        self.tls.send_close_notify();
        let _ = self.tls.write_tls(&mut self.tcp);
        self.tear();
    }

    /// Ends the connection without close_notify, and reads until the generator is done.
    fn tear(mut self) {
        let _ = self.tcp.shutdown(Shutdown::Write);
        let mut buffer = [0; 4096];
        while matches!(self.tcp.read(&mut buffer), Ok(bytes) if bytes > 0) {}
    }
}

/// Serves each connection by the script, once its handshake is done.
fn server(config: Arc<ServerConfig>, script: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    raw_server(move |tcp| {
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a good configuration");
        let mut peer = Peer { tls, tcp };
        while peer.tls.is_handshaking() {
            if peer.tls.complete_io(&mut peer.tcp).is_err() {
                return;
            }
        }
        script(peer);
    })
}

fn raw_server(script: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let script = Arc::new(script);
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let script = Arc::clone(&script);
            thread::spawn(move || script(tcp));
        }
    });
    address
}

fn answering(config: Arc<ServerConfig>) -> SocketAddr {
    server(config, |mut peer| {
        while peer.request().is_some() {
            peer.send(OK);
        }
    })
}

fn plan(address: SocketAddr, tls: Tls, requests: u64) -> LoadPlan {
    LoadPlan {
        tls,
        connections: 1,
        requests: Some(requests),
        duration_seconds: None,
        ..LoadPlan::new(format!("https://{address}/"))
    }
}

fn insecure() -> Tls {
    Tls { verify: false, ..Tls::default() }
}

fn run(plan: &LoadPlan) -> RunOutcome {
    load::run(plan).expect("the run starts")
}

#[test]
fn whole_responses_are_counted_over_all_threads() {
    let made = Made::new("whole", &["127.0.0.1"]);
    let address = answering(made.config("http/1.1"));
    let tls = Tls { ca: Some(made.certificate()), ..Tls::default() };
    let told = run(&LoadPlan { connections: 5, threads: 2, ..plan(address, tls, 101) });
    assert_eq!((told.requests, told.errors, told.body_bytes), (101, Errors::default(), 505));
    assert_eq!(told.bytes_received, 101 * OK.len() as u64);
    let made = told.tls.as_ref().expect("it was https");
    // The connections were opened before the window.
    assert_eq!((made.full, made.resumed, made.handshake.count), (0, 0, 0));
    assert_eq!(made.agreed, ["TLSv1.3 TLS_AES_256_GCM_SHA384"]);
    assert!(load::report(&told).contains("TLSv1.3 TLS_AES_256_GCM_SHA384"), "{}", load::report(&told));
    let text = serde_json::to_string(&told).expect("serialises");
    assert_eq!(serde_json::from_str::<RunOutcome>(&text).expect("parses"), told);
}

/// In a closed loop no request is due while its connection is opened.
#[test]
fn a_connection_that_cannot_be_opened_again_is_no_silence() {
    let made = Made::new("once", &["localhost"]);
    let (config, connections) = (made.config("http/1.1"), AtomicUsize::new(0));
    let address = raw_server(move |mut tcp| {
        if connections.fetch_add(1, Ordering::Relaxed) > 0 {
            // Its handshake is not answered.
            while matches!(tcp.read(&mut [0; 1024]), Ok(bytes) if bytes > 0) {}
            return;
        }
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a good configuration");
        let mut peer = Peer { tls, tcp };
        if peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
            peer.close();
        }
    });
    let told = run(&LoadPlan { requests: None, duration_seconds: Some(1.5), ..plan(address, insecure(), 1) });
    assert_eq!((told.requests, told.unfinished, told.latency.censored), (1, 1, 1), "{told:?}");
    assert!(told.latency.is_at_least("max_us") && !told.is_valid(), "{told:?}");
}

#[test]
fn handshakes_are_counted_by_their_kind() {
    let made = Made::new("kinds", &["localhost"]);
    let address = answering(made.config("http/1.1"));
    for version_max in [TlsVersion::Tls12, TlsVersion::Tls13] {
        for (resume, expected) in [(true, (1, 9)), (false, (10, 0))] {
            let tls = Tls { resume, version_max: Some(version_max), ..insecure() };
            let told = run(&LoadPlan { keepalive: false, ..plan(address, tls, 10) });
            let made = told.tls.as_ref().expect("it was https");
            assert_eq!((told.requests, told.errors), (10, Errors::default()), "{:?}", told.error_examples);
            assert_eq!((made.full, made.resumed), expected, "{version_max:?}");
            assert_eq!((made.handshake.count, told.connect.count, told.connections_opened), (10, 10, 10));
            assert!(made.handshakes_per_second > 0.0);
            assert!(load::report(&told).contains("TLS handshake"), "{}", load::report(&told));
        }
    }
}

#[test]
fn the_cipher_suite_and_the_version_are_those_that_were_asked_for() {
    let made = Made::new("suites", &["localhost"]);
    let address = answering(made.config("http/1.1"));
    let with = |cipher: &str, version_max| Tls { cipher: Some(cipher.to_owned()), version_max, ..insecure() };
    for (cipher, agreed) in [
        ("TLS_AES_128_GCM_SHA256", "TLSv1.3 TLS_AES_128_GCM_SHA256"),
        ("tls_ecdhe_ecdsa_with_aes_128_gcm_sha256", "TLSv1.2 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ] {
        let told = run(&plan(address, with(cipher, None), 1));
        assert_eq!(told.tls.expect("it was https").agreed, [agreed]);
    }
    for (cipher, version_max) in [("RC4", None), ("TLS_AES_128_GCM_SHA256", Some(TlsVersion::Tls12))] {
        let error = load::run(&plan(address, with(cipher, version_max), 1)).expect_err("no such suite");
        assert!(matches!(error, Error::Tls { what: "--cipher", .. }), "{error}");
        assert!(error.to_string().contains("TLS_ECDHE_"), "{error}");
    }
}

#[test]
fn a_certificate_that_is_not_trusted_or_not_the_hosts_is_refused() {
    let (ours, other) = (Made::new("ours", &["127.0.0.1"]), Made::new("other", &["example.org"]));
    let trusting = |made: &Made| Tls { ca: Some(made.certificate()), ..Tls::default() };
    let address = answering(ours.config("http/1.1"));
    assert_eq!(run(&plan(address, trusting(&ours), 1)).requests, 1);
    let error = load::run(&plan(address, trusting(&other), 1)).expect_err("another signed it");
    assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains("--ca"), "{error}");
    let misnamed = answering(other.config("http/1.1"));
    let error = load::run(&plan(misnamed, trusting(&other), 1)).expect_err("it is for another host");
    assert!(error.to_string().contains("example.org"), "{error}");
    assert_eq!(run(&plan(misnamed, insecure(), 1)).requests, 1);
}

#[test]
fn authorities_that_cannot_be_read_are_an_error_with_their_file() {
    let made = Made::new("unreadable", &["localhost"]);
    let (empty, missing) = (made.folder().join("empty.pem"), made.folder().join("missing.pem"));
    std::fs::write(&empty, "nothing\n").expect("a file");
    for file in [empty, missing, made.key()] {
        let tls = Tls { ca: Some(file.clone()), ..Tls::default() };
        let error = load::run(&plan(([127, 0, 0, 1], 9).into(), tls, 1)).expect_err("no certificates");
        assert!(error.to_string().contains(&*file.to_string_lossy()), "{error}");
    }
}

#[test]
fn failures_below_http_have_their_class_and_are_never_successes() {
    let made = Made::new("failures", &["localhost"]);
    let config = || made.config("http/1.1");
    const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nhello";
    let plain = raw_server(|mut tcp| {
        let _ = tcp.read(&mut [0; 1024]);
        let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let broken = raw_server(|mut tcp| drop(tcp.read(&mut [0; 1024])));
    let torn = server(config(), |mut peer| {
        peer.request();
        peer.send(UNTIL_CLOSE);
        peer.tear();
    });
    let cut = server(config(), |mut peer| {
        peer.request();
        peer.send(&OK[..OK.len() - 1]);
        peer.close();
    });
    let garbled = server(config(), |mut peer| {
        peer.request();
        let _ = peer.tcp.write_all(b"\x17\x03\x03\x00\x20this record was never encrypted.");
        peer.tear();
    });
    let longer = server(config(), |mut peer| {
        peer.request();
        peer.send(&[OK, b"!"].concat());
        peer.close();
    });
    let cases = [
        ("speaks no TLS", plain, ErrorClass::Tls),
        ("ends within the handshake", broken, ErrorClass::Tls),
        ("ends a body without a close_notify", torn, ErrorClass::Read),
        ("cuts the body", cut, ErrorClass::Read),
        ("sends a record that does not decrypt", garbled, ErrorClass::Tls),
        ("is longer than it says", longer, ErrorClass::Malformed),
    ];
    for (name, address, class) in cases {
        let told = run(&LoadPlan { keepalive: false, ..plan(address, insecure(), 3) });
        let classes: Vec<_> = told.error_examples.keys().collect();
        assert_eq!((classes, told.requests, told.errors.total()), (vec![&class], 0, 3), "{name}: {told:?}");
    }
    let announced = server(config(), |mut peer| {
        peer.request();
        peer.send(UNTIL_CLOSE);
        peer.close();
    });
    let told = run(&plan(announced, insecure(), 3));
    assert_eq!((told.requests, told.errors, told.body_bytes), (3, Errors::default(), 15));
}

#[test]
fn bodies_of_many_records_are_whole_both_ways() {
    let made = Made::new("large", &["localhost"]);
    const BYTES: usize = 3_000_000;
    let address = server(made.config("http/1.1"), |mut peer| {
        let (mut received, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while !received.ends_with(b"end") {
            let mut stream = rustls::Stream::new(&mut peer.tls, &mut peer.tcp);
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
            }
        }
        let head = received.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        assert_eq!(received.len(), head + 4 + BYTES + 3);
        peer.send(
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes(),
        );
        for piece in vec![b'x'; BYTES].chunks(7_777) {
            peer.send(piece);
        }
        peer.close();
    });
    let body = [&vec![b'y'; BYTES][..], b"end"].concat();
    let told = run(&LoadPlan { body, method: "POST".into(), ..plan(address, insecure(), 2) });
    assert_eq!((told.requests, told.body_bytes), (2, 2 * BYTES as u64), "{:?}", told.error_examples);
    assert!(told.bytes_sent > 2 * BYTES as u64);
}

#[test]
fn a_schedule_is_kept_over_tls_and_idle_connections_may_be_closed() {
    let made = Made::new("schedule", &["localhost"]);
    let address = server(made.config("http/1.1"), |mut peer| {
        peer.request();
        peer.send(OK);
        peer.close();
    });
    let arrival = load::Arrival::Constant { requests_per_second: 50.0 };
    let told = run(&LoadPlan { arrival, ..plan(address, insecure(), 5) });
    assert_eq!((told.requests, told.errors), (5, Errors::default()), "{:?}", told.error_examples);
    assert!(told.schedule.is_some_and(|kept| kept.due == 5 && kept.unsent == 0));
    assert!(told.connections_opened >= 4);
}

#[test]
fn what_a_server_says_with_its_handshake_is_heard() {
    let made = Made::new("early", &["127.0.0.1"]);
    let mut config = Arc::unwrap_or_clone(made.config("h2"));
    config.send_half_rtt_data = true;
    let config = Arc::new(config);
    let address = raw_server(move |mut tcp| {
        let mut tls = ServerConnection::new(Arc::clone(&config)).expect("a good configuration");
        while !tls.wants_write() {
            tls.read_tls(&mut tcp).expect("a ClientHello");
            tls.process_new_packets().expect("a ClientHello");
        }
        // An empty SETTINGS frame, in the same write as the end of the handshake's first half.
        tls.writer().write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).expect("early data of a server");
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).expect("memory");
        }
        tcp.write_all(&flight).expect("the generator reads");
        let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).expect("the preface of a client");
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).is_err() {
                return;
            }
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            stream.read_exact(&mut payload).expect("a frame");
            if head[3] == 1 {
                // HEADERS with :status 204, the end of the stream.
                let response = [&[0, 0, 1, 1, 5][..], &head[5..], &[0x89]].concat();
                stream.write_all(&response).expect("the generator reads");
            }
        }
    });
    let told = run(&LoadPlan { http2: true, timeout_seconds: 2.0, ..plan(address, insecure(), 3) });
    assert_eq!((told.statuses[&204], told.errors), (3, Errors::default()), "{:?}", told.error_examples);
}
