//! Handshakes with clients: full, resumed, concurrent, failed, and no TLS at all.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use config::{AccessLog, Certificates, ClientCertificates, LogFormat, LogTarget, UnknownNames};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error, HandshakeKind};
use testkit::tls::{TestAuthority, TlsEnd, TlsEnding};

use super::scene::{Scene, listener_tls, shown};

/// Sends a request over a new connection, and receives its response.
fn asks_once(scene: &Scene, client: &mut TlsEnd, server: &mut Option<TlsEnd>) {
    client.asks("/");
    let server = server.get_or_insert_with(|| scene.accept());
    server.message();
    server.answers(b"hello");
    assert_eq!(client.message().body, b"hello");
}

#[test]
fn sessions_are_resumed_and_counted() {
    for (version, kind) in [
        (&TLS13, Tls12Resumption::Disabled),
        (&TLS12, Tls12Resumption::SessionIdOrTickets),
        (&TLS12, Tls12Resumption::SessionIdOnly),
    ] {
        let scene = Scene::new();
        let mut config = scene.authority.client(&[version]);
        config.resumption = Resumption::in_memory_sessions(8).tls12_resumption(kind);
        let config = Arc::new(config);
        let mut server = None;
        let kinds = [(); 4].map(|()| {
            let mut client = TlsEnd::client(scene.connect(), &config, "a.example");
            let kind = client.shakes_hands();
            asks_once(&scene, &mut client, &mut server);
            kind
        });
        let (full, resumed) = (Ok(HandshakeKind::Full), Ok(HandshakeKind::Resumed));
        assert_eq!(kinds, [full, resumed.clone(), resumed.clone(), resumed], "{version:?} {kind:?}");
        let counters = scene.running.counters();
        assert_eq!((counters.handshakes, counters.handshakes_resumed), (1, 3), "{version:?} {kind:?}");
        assert_eq!(counters.handshake_failures, 0);
    }
}

#[test]
fn a_request_right_behind_the_handshake_is_answered_and_brings_a_ticket() {
    let scene = Scene::new();
    let mut server = None;
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut client = TlsEnd::client(scene.connect(), &scene.client, "a.example");
        // The request is sent with the last message of the handshake.
        client.tls().writer().write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("it waits");
        assert_eq!(client.shakes_hands(), Ok(kind));
        let server = server.get_or_insert_with(|| scene.accept());
        server.message();
        server.answers(b"hello");
        assert_eq!(client.message().body, b"hello");
    }
}

#[test]
fn sixty_four_at_once() {
    const MANY: usize = 64;
    let scene = Scene::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..MANY)
            .map(|index| {
                let (tcp, config) = (scene.connect(), &scene.client);
                scope.spawn(move || {
                    let mut client = TlsEnd::client(tcp, config, "a.example");
                    client.shakes_hands().expect("it is let in");
                    client.asks(&format!("/{index}"));
                    client.message().body
                })
            })
            .collect();
        let mut servers: Vec<TlsEnd> = (0..MANY).map(|_| scene.accept()).collect();
        for server in &mut servers {
            let head = server.message().head;
            server.answers(head.split(' ').nth(1).expect("it has a target").as_bytes());
        }
        for (index, client) in clients.into_iter().enumerate() {
            assert_eq!(client.join().expect("no panic"), format!("/{index}").as_bytes());
        }
    });
    scene.waits_for("all are counted", |counters| {
        counters.handshakes + counters.handshakes_resumed == MANY as u64
    });
}

#[test]
fn a_handshake_has_the_time_of_a_head() {
    let scene = Scene::with(|config, _| config.timeouts.client_header = Duration::from_millis(200));
    // One client is silent, another sends a part.
    let mut silent = TlsEnd::plain(scene.connect());
    let mut slow = TlsEnd::plain(scene.connect());
    slow.sends([22, 3, 1, 0, 200, 1]);
    for client in [&mut silent, &mut slow] {
        let (rest, _) = client.rest();
        assert!(rest.is_empty());
    }
    scene.waits_for("both are counted", |counters| counters.handshake_failures == 2);
}

#[test]
fn what_is_no_handshake_is_answered_with_an_alert() {
    let scene = Scene::new();
    for (bytes, alert) in [
        (&[0x80, 0x2e, 1, 3, 1, 0, 0, 0][..], 50),
        (&[22, 3, 1, 0, 4, 20, 0, 0, 0], 10),
        (&[23, 3, 3, 0, 1, 7], 10),
        (&[22, 3, 1, 0xff, 0xff, 0], 50),
        (b"\x00\x01\x02\x03\x04\x05", 50),
    ] {
        let mut client = TlsEnd::plain(scene.connect());
        client.sends(bytes);
        let (rest, _) = client.rest();
        assert_eq!(rest, [21, 3, 3, 0, 2, 2, alert], "{bytes:?}");
    }
    // The proxy still serves others.
    asks_once(&scene, &mut scene.client(), &mut None);
}

#[test]
fn a_hello_that_is_interrupted_harms_nobody() {
    let scene = Scene::new();
    let mut client = TlsEnd::plain(scene.connect());
    // The start of a ClientHello, and then another record.
    client.sends([22, 3, 1, 0, 8, 1, 0, 0, 200, 3, 3, 0, 0, 23, 3, 3, 0, 1, 7]);
    let (rest, _) = client.rest();
    assert!(rest.is_empty() || rest[0] == 21);
    asks_once(&scene, &mut scene.client(), &mut None);
    scene.waits_for("it is counted", |counters| counters.handshake_failures == 1);
}

#[test]
fn http_without_tls_is_told_so() {
    let scene = Scene::new();
    for request in
        ["GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 9000\r\n\r\nabc"]
    {
        let mut client = TlsEnd::plain(scene.connect());
        client.sends(request);
        let answer = client.message();
        assert!(answer.head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{}", answer.head);
        assert!(answer.head.contains("\r\nConnection: close\r\n"), "{}", answer.head);
        let body = String::from_utf8(answer.body).expect("is text");
        assert!(body.contains("https://"), "{body}");
        client.ends(&TlsEnding::Told);
    }
    scene.waits_for("both are counted", |counters| counters.handshake_failures == 2);
    assert_eq!(scene.failures("plain-http"), 2);
}

#[test]
fn certificates_are_chosen_by_name_or_refused() {
    let authority = TestAuthority::new();
    let names: [&[&str]; 3] = [&["default.example"], &["www.a.example"], &["*.a.example"]];
    let issued = names.map(|names| authority.issue(names));
    let refused = |alert| Err(TlsEnding::Refused(Error::AlertReceived(alert)));
    for is_refusing in [false, true] {
        let scene = Scene::with(|config, _| {
            let tls = listener_tls(config);
            let files = issued.iter().enumerate();
            let files = files.map(|(index, issued)| authority.put(&index.to_string(), issued));
            tls.certificates = Certificates::Files(files.collect());
            tls.unknown_names = if is_refusing { UnknownNames::Refuse } else { UnknownNames::Default };
        });
        let chosen = |name: &str, has_name: bool| {
            let mut config = authority.client(&[&TLS13]);
            config.enable_sni = has_name;
            config.resumption = Resumption::disabled();
            let mut client = TlsEnd::client(scene.connect(), &Arc::new(config), name);
            let kind = client.shakes_hands();
            kind.map(|_| shown(&mut client, &issued.each_ref()))
        };
        assert_eq!(chosen("www.a.example", true), Ok(Some(1)));
        assert_eq!(chosen("b.a.example", true), Ok(Some(2)));
        assert_eq!(chosen("default.example", true), Ok(Some(0)));
        if is_refusing {
            assert_eq!(chosen("b.example", true), refused(AlertDescription::UnrecognisedName));
            assert_eq!(chosen("default.example", false), refused(AlertDescription::MissingExtension));
        } else {
            assert_eq!(chosen("default.example", false), Ok(Some(0)));
            // The default certificate has another name, which the client rejects.
            let refusal = chosen("b.example", true);
            assert!(matches!(refusal, Err(TlsEnding::Refused(Error::InvalidCertificate(_)))), "{refusal:?}");
        }
    }
}

/// Returns the log of a scene whose listener requires a certificate.
fn logged(talk: impl FnOnce(&Scene)) -> Vec<serde_json::Value> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("access.log");
    let clients = TestAuthority::new();
    let scene = Scene::with(|config, _| {
        listener_tls(config).client_certificates = ClientCertificates::Required(clients.file.clone().into());
        let target = LogTarget::File(path.clone());
        config.access_logs = vec![AccessLog::new(target, LogFormat::Json)];
    });
    talk(&scene);
    scene.running.drain();
    scene.running.wait();
    let text = std::fs::read_to_string(&path).expect("the log is there");
    text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
}

#[test]
fn a_handshake_that_fails_is_told_to_the_operator_and_to_its_client() {
    let lines = logged(|scene| {
        for protocol in ["h2", "http/1.1"] {
            let mut config = scene.authority.client(&[&TLS13]);
            config.alpn_protocols = vec![protocol.into()];
            let mut client = TlsEnd::client(scene.connect(), &Arc::new(config), "a.example");
            // RFC 8446 §4.4.2.4: the client's handshake completes before the server verifies its certificate.
            client.shakes_hands().expect("the client has all that it needs");
            let mut alert = Vec::new();
            client.tcp.read_to_end(&mut alert).expect("it ends in an orderly way");
            // The client continues to send, which must not cause a reset that discards the alert.
            for _ in 0..3 {
                client.sends([0; 1000]);
            }
            let tls = client.tls();
            tls.read_tls(&mut &alert[..]).expect("memory gives all");
            let refused = tls.process_new_packets().expect_err("there is an alert");
            assert_eq!(refused, Error::AlertReceived(AlertDescription::CertificateRequired), "{protocol}");
        }
        // Bytes that are not TLS, and a client that does not trust the proxy's CA.
        let mut client = TlsEnd::plain(scene.connect());
        client.sends(b"\x00\x01\x02\x03\x04\x05\x06\x07");
        client.tcp.shutdown(std::net::Shutdown::Write).expect("is connected");
        let _ = client.tcp.read(&mut [0; 64]);
        let config = TestAuthority::new().client(&[&TLS13]);
        let mut client = TlsEnd::client(scene.connect(), &Arc::new(config), "a.example");
        assert!(client.shakes_hands().is_err());
        scene.waits_for("all are counted", |counters| counters.handshake_failures == 4);
        assert_eq!((scene.failures("client-certificate"), scene.failures("tls-handshake")), (2, 2));
    });
    let told: Vec<_> = lines.iter().map(|line| (&line["cause"], &line["tls_sni"], &line["detail"])).collect();
    let [certificate, handshake] = ["client-certificate", "tls-handshake"].map(serde_json::Value::from);
    let (name, none) = (serde_json::Value::from("a.example"), serde_json::Value::Null);
    let required = "it has no certificate, and one is required".into();
    assert_eq!(
        told,
        [
            (&certificate, &name, &required),
            (&certificate, &name, &required),
            (&handshake, &none, &"what it sends is no TLS".into()),
            (&handshake, &name, &"it does not accept the certificate that it was shown".into()),
        ]
    );
    assert!(lines.iter().all(|line| line["client"] == "127.0.0.1"));
}
