//! Client certificates, and renewal of the proxy's certificates.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::{Certificates, ClientCertFields, ClientCertificates, UnknownNames};
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error};
use telemetry::Snapshot;
use testkit::http1::Http1Peer;
use testkit::http2;
use testkit::scene::{BodylessRequest, SceneClient, Spoken, get};
use testkit::tls::{TestAuthority, TlsEnd, TlsEnding, tunnel};
use testkit::wait::PATIENCE;

use super::scene::{Scene, listener_tls, shown};

#[test]
fn clients_prove_who_they_are() {
    let (clients, others) = (TestAuthority::new(), TestAuthority::new());
    let (known, stranger) = (clients.issue(&["client"]), others.issue(&["client"]));
    for is_required in [false, true] {
        let scene = Scene::with(|config, _| {
            let ca = clients.file.clone();
            listener_tls(config).client_certificates = match is_required {
                true => ClientCertificates::Required(ca.into()),
                false => ClientCertificates::Optional(ca.into()),
            };
        });
        let mut server: Option<TlsEnd> = None;
        // Returns the lines that the server receives about the client, or the error. In TLS 1.3 a client completes its
        // handshake before its certificate is verified.
        let mut seen = |config| {
            let before = scene.running.counters();
            let mut client = TlsEnd::client(scene.connect(), &Arc::new(config), "a.example");
            client.shakes_hands().expect("it believes so");
            client.sends("GET / HTTP/1.1\r\nHost: a.example\r\nX-Client-Cert-Subject: CN=root\r\nConnection: close\r\n\r\n");
            if is_refused(&scene, &before) {
                return Err(client.rest().1);
            }
            let server = server.get_or_insert_with(|| scene.accept());
            let head = server.message().head;
            server.answers(b"");
            client.message();
            Ok(head
                .lines()
                .filter_map(|line| line.strip_prefix("X-Client-Cert-Subject: "))
                .collect::<String>())
        };
        let nobody = scene.authority.client(&[&TLS13]);
        assert_eq!(seen(scene.authority.client_showing(&known)), Ok("CN=alice".to_owned()));
        let refused = |alert| Err(TlsEnding::Refused(Error::AlertReceived(alert)));
        if is_required {
            assert_eq!(seen(nobody), refused(AlertDescription::CertificateRequired));
        } else {
            assert_eq!(seen(nobody), Ok(String::new()));
        }
        let wrong = seen(scene.authority.client_showing(&stranger));
        assert!(matches!(wrong, Err(TlsEnding::Refused(Error::AlertReceived(_)))), "{wrong:?}");
    }
}

/// RFC 9440: certificate fields for servers, and the removal of clients' own.
#[test]
fn servers_are_told_certificates() {
    let clients = TestAuthority::new();
    let known = clients.issue(&["client"]);
    let text = |certificate: &[u8]| format!(":{}:", BASE64_STANDARD.encode(certificate));
    let [own, behind] = [&known.certificate, clients.own_certificate()].map(|one| text(one));
    for (wanted, shown) in [
        (None, vec![]),
        (Some(ClientCertFields::Certificate), vec![format!("Client-Cert: {own}")]),
        (
            Some(ClientCertFields::Chain),
            vec![format!("Client-Cert: {own}"), format!("Client-Cert-Chain: {behind}")],
        ),
    ] {
        let scene = Scene::with(|config, _| {
            let ca = clients.file.clone();
            listener_tls(config).client_certificates = ClientCertificates::Optional(ca.into());
            config.routes[0].policies.options.client_cert = wanted;
        });
        let nobody = || scene.authority.client(&[&TLS13]);
        let chain = || scene.authority.client_showing_chain(&known, &clients);
        const CLAIMS: &str = "Client-Cert: :AAAA:\nclient-cert-chain: :AAAA:\nClient_Cert: :AAAA:\n\
                              CLIENT-CERT_CHAIN: :AAAA:\nX-Other: a\n";
        for (config, shown, spoken) in [
            (nobody(), &vec![], Spoken::Http1),
            (chain(), &shown, Spoken::Http1),
            (nobody(), &vec![], Spoken::Http2),
            (chain(), &shown, Spoken::Http2),
        ] {
            let stream = tunnel::client_with(config, spoken == Spoken::Http2, scene.connect());
            // RFC 9113 §8.2: names are in lower case.
            let (mut client, claims) = match spoken {
                Spoken::Http1 => (SceneClient::One(Http1Peer::new("client", stream)), CLAIMS.to_owned()),
                Spoken::Http2 => {
                    (SceneClient::Two(Box::new(http2::H2End::client(stream, &[])), 1), CLAIMS.to_lowercase())
                }
            };
            let claims = claims.replace(":aaaa:", ":AAAA:");
            client.asks(&BodylessRequest { host: "a.example", fields: &claims, ..get("/") });
            let mut server = scene.accept();
            let head = server.message().head;
            let told: Vec<&str> = head
                .lines()
                .filter(|line| line.to_ascii_lowercase().replace('_', "-").starts_with("client-cert"))
                .collect();
            assert_eq!(told, *shown, "{wanted:?}, {spoken:?}");
            assert!(head.to_lowercase().contains("\r\nx-other: a\r\n"), "{head}");
            server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            assert_eq!(client.gets().status, 200, "{spoken:?}");
        }
    }
}

#[test]
fn servers_get_the_certificate_in_pem() {
    let clients = TestAuthority::new();
    let known = clients.issue(&["client"]);
    let scene = Scene::with(|config, _| {
        let ca = clients.file.clone();
        listener_tls(config).client_certificates = ClientCertificates::Optional(ca.into());
        config.routes[0].policies.options.client_cert = Some(ClientCertFields::Pem);
    });
    let pem = std::fs::read_to_string(clients.put("known", &known).pair.cert).unwrap().replace("\r\n", "\n");
    for (config, expected) in [
        (scene.authority.client(&[&TLS13]), None),
        (scene.authority.client_showing_chain(&known, &clients), Some(pem)),
    ] {
        let stream = tunnel::client_with(config, false, scene.connect());
        let mut client = Http1Peer::new("client", stream);
        client.sends(
            "GET / HTTP/1.1\r\nHost: a.example\r\nSSL-Client-Cert: forged\r\nssl_client_cert: forged\r\n\r\n",
        );
        let mut server = scene.accept();
        let head = server.message().head;
        const ESCAPES: [(&str, &str); 5] =
            [("%20", " "), ("%0A", "\n"), ("%2B", "+"), ("%2F", "/"), ("%3D", "=")];
        let decoded = |line: &str| {
            ESCAPES.iter().fold(line.to_owned(), |line, (escape, letter)| line.replace(escape, letter))
        };
        let is_told = |line: &&str| line.to_ascii_lowercase().replace('_', "-").starts_with("ssl-client");
        let told: Vec<String> = head.lines().filter(is_told).map(decoded).collect();
        let expected: Vec<String> = expected.iter().map(|pem| format!("ssl-client-cert: {pem}")).collect();
        assert_eq!(told, expected);
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert_eq!(client.message().status(), 200);
    }
}

/// Waits until the handshake is counted. Returns whether it was rejected.
fn is_refused(scene: &Scene, before: &Snapshot) -> bool {
    let over =
        |counters: &Snapshot| counters.handshakes + counters.handshakes_resumed + counters.handshake_failures;
    scene.waits_for("the handshake is over", |counters| over(counters) > over(before));
    scene.running.counters().handshake_failures > before.handshake_failures
}

#[test]
fn a_renewed_certificate_is_shown_and_connections_stay() {
    let scene = Scene::new();
    let renewed = scene.authority.issue(&["a.example"]);
    let mut staying = scene.client();
    scene.authority.put("own", &renewed);
    let mut config = scene.authority.client(&[&TLS13]);
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let began = Instant::now();
    while shown(&mut scene.client_with(&config), &[&renewed]).is_none() {
        assert!(began.elapsed() < PATIENCE, "the new certificate is never shown");
        std::thread::yield_now();
    }
    staying.asks("/");
    let mut server = scene.accept();
    server.message();
    server.answers(b"hello");
    assert_eq!(staying.message().body, b"hello");
}

/// RFC 6066 §3: an address is not a server name, so clients of an address send none.
#[test]
fn clients_of_an_address_get_the_certificate_that_has_it() {
    for (names, unknown_names, is_good) in [
        (&["127.0.0.1", "b.example"][..], UnknownNames::Default, true),
        (&["127.0.0.1"], UnknownNames::Refuse, true),
        (&["127.0.0.2", "b.example"], UnknownNames::Default, false),
        (&["::1", "b.example"], UnknownNames::Refuse, false),
    ] {
        let scene = Scene::with(|config, authority| {
            let tls = listener_tls(config);
            tls.unknown_names = unknown_names;
            let files = vec![authority.files("own", &["a.example"]), authority.files("address", names)];
            tls.certificates = Certificates::Files(files);
        });
        for version in [&TLS13, &TLS12] {
            let config = Arc::new(scene.authority.client(&[version]));
            let mut client = TlsEnd::client(scene.connect(), &config, "127.0.0.1");
            let handshake = client.shakes_hands();
            assert_eq!(handshake.is_ok(), is_good, "{names:?} {unknown_names:?} {handshake:?}");
        }
        // Names work as before.
        scene.client();
    }
}
