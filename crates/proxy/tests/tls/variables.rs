//! Facts about a client's TLS, for servers and the log.

use std::sync::Arc;

use config::{AccessLog, ClientCertificates, LogFormat, LogTarget, Settings};
use route::{HeaderEdit, HeaderEdits, TemplateStage};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use serde_json::Value;
use testkit::tls::{TestAuthority, TlsEnd};

use super::scene::{Scene, listener_tls};

const TOLD: &str = "$tls.version $tls.cipher $tls.alpn $tls.sni $tls.subject $tls.issuer $tls.serial $tls.san $tls.fingerprint";

fn tells(config: &mut Settings) {
    let edits = [HeaderEdit::Set("X-Tls", TOLD)];
    let edits = HeaderEdits::new(edits, TemplateStage::Forward, None).expect("the variables are known");
    config.routes[0].policies.request_headers = edits;
}

/// Returns what the server receives about a client with this configuration.
fn told(scene: &Scene, server: &mut Option<TlsEnd>, config: &Arc<ClientConfig>) -> (HandshakeKind, String) {
    let mut client = TlsEnd::client(scene.connect(), config, "a.example");
    let kind = client.shakes_hands().expect("it is let in");
    client.asks("/");
    let server = server.get_or_insert_with(|| scene.accept());
    let head = server.message().head;
    server.answers(b"");
    client.message();
    let line = head.lines().find_map(|line| line.strip_prefix("X-Tls: "));
    (kind, line.unwrap_or_else(|| panic!("nothing is told: {head}")).to_owned())
}

#[test]
fn templates_name_what_was_agreed_on_in_full_and_resumed_sessions() {
    let clients = TestAuthority::new();
    let known = clients.issue(&["client"]);
    let tls::VerifiedClient { subject, issuer, serial, names, fingerprint } =
        tls::VerifiedClient::from_certificate(&known.certificate);
    assert_eq!((subject.as_str(), names.as_str()), ("CN=alice", "DNS:client"));
    assert!(issuer.starts_with("CN=") && serial.len() > 1, "{issuer} {serial}");
    let log = clients.path().join("access.log");
    let scene = Scene::with(|config, _| {
        listener_tls(config).client_certificates = ClientCertificates::Optional(clients.file.clone().into());
        config.access_logs = vec![AccessLog::new(LogTarget::File(log.clone()), LogFormat::Json)];
        tells(config);
    });
    let mut shown = scene.authority.client_showing(&known);
    shown.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut old = scene.authority.client(&[&TLS12]);
    old.resumption = Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
    let mut nameless = scene.authority.client(&[&TLS13]);
    nameless.enable_sni = false;
    let with_certificate = format!(
        "TLSv1.3 TLS_AES_256_GCM_SHA384 http/1.1 a.example CN=alice {issuer} {serial} {names} {fingerprint}"
    );
    let mut server = None;
    for (config, expected) in [
        (shown, with_certificate.as_str()),
        (old, "TLSv1.2 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384  a.example"),
        (nameless, "TLSv1.3 TLS_AES_256_GCM_SHA384"),
    ] {
        let config = Arc::new(config);
        for expected_kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let (kind, told) = told(&scene, &mut server, &config);
            assert_eq!((kind, told.trim_end()), (expected_kind, expected));
        }
    }
    scene.running.drain();
    scene.running.wait();
    let text = std::fs::read_to_string(log).expect("it is written");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    assert_eq!(lines.len(), 6);
    for (line, [version, sni, subject]) in lines.iter().step_by(2).zip([
        ["TLSv1.3", "a.example", "CN=alice"],
        ["TLSv1.2", "a.example", ""],
        ["TLSv1.3", "", ""],
    ]) {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        assert_eq!([text("tls_version"), text("tls_sni"), text("tls_subject")], [version, sni, subject]);
        let known = [&issuer, &serial, &names, &fingerprint].map(String::as_str);
        let expected = if subject.is_empty() { [""; 4] } else { known };
        let told = ["tls_issuer", "tls_serial", "tls_san", "tls_fingerprint"].map(text);
        assert_eq!(told, expected, "{line}");
        assert!(text("tls_cipher").starts_with("TLS_"), "{line}");
    }
}
