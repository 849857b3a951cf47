//! Certificates of clients, and those of the proxy that are renewed while it runs.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::{ClientCertFields, ClientCertificates};
use rustls::client::Resumption;
use rustls::version::TLS13;
use rustls::{AlertDescription, Error};
use telemetry::Snapshot;
use testkit::tls::{Authority, End, Ending};
use testkit::wait::PATIENCE;

use crate::scene::{Scene, listener_tls, shown};

#[test]
fn clients_prove_who_they_are() {
    let (clients, others) = (Authority::new(), Authority::new());
    let (known, stranger) = (clients.issue(&["client"]), others.issue(&["client"]));
    for is_required in [false, true] {
        let scene = Scene::with(|config, _| {
            let ca = clients.file.clone();
            listener_tls(config).client_certificates = match is_required {
                true => ClientCertificates::Required { ca },
                false => ClientCertificates::Optional { ca },
            };
        });
        let mut server: Option<End> = None;
        // What the server reads of the client, or why it is refused. In TLS 1.3 a client believes that it is done before
        // its certificate is looked at.
        let mut seen = |config| {
            let before = scene.running.counters();
            let mut client = End::client(scene.connect(), &Arc::new(config), "a.example");
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
        let refused = |alert| Err(Ending::Refused(Error::AlertReceived(alert)));
        if is_required {
            assert_eq!(seen(nobody), refused(AlertDescription::CertificateRequired));
        } else {
            assert_eq!(seen(nobody), Ok(String::new()));
        }
        let wrong = seen(scene.authority.client_showing(&stranger));
        assert!(matches!(wrong, Err(Ending::Refused(Error::AlertReceived(_)))), "{wrong:?}");
    }
}

/// RFC 9440: what servers are told of a certificate, and what strangers say of one.
#[test]
fn servers_are_told_certificates() {
    let clients = Authority::new();
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
            listener_tls(config).client_certificates = ClientCertificates::Optional { ca };
            config.routes[0].policies.options.client_cert = wanted;
        });
        let nobody = scene.authority.client(&[&TLS13]);
        let chain = scene.authority.client_showing_chain(&known, &clients);
        for (config, shown) in [(nobody, &vec![]), (chain, &shown)] {
            let mut client = End::client(scene.connect(), &Arc::new(config), "a.example");
            client.shakes_hands().expect("it is let in");
            client.sends(
                "GET / HTTP/1.1\r\nHost: a.example\r\nClient-Cert: :AAAA:\r\nclient-cert-chain: :AAAA:\r\n\
                 Client_Cert: :AAAA:\r\nCLIENT-CERT_CHAIN: :AAAA:\r\nX-Other: a\r\nConnection: close\r\n\r\n",
            );
            let mut server = scene.accept();
            let head = server.message().head;
            let told: Vec<&str> = head
                .lines()
                .filter(|line| line.to_ascii_lowercase().replace('_', "-").starts_with("client-cert"))
                .collect();
            assert_eq!(told, *shown, "{wanted:?}");
            assert!(head.contains("\r\nX-Other: a\r\n"), "{head}");
            server.sends("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            client.head();
        }
    }
}

/// Whether the handshake under way is refused, once it is counted as one or the other.
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
