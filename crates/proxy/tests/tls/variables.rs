//! Facts about a client's TLS, for servers and the log.

use std::sync::Arc;

use config::{AccessLog, Action, ClientCertificates, LogFormat, LogTarget, Respond, Settings};
use expression::{ExchangeStage, Expression, ExpressionLimits, Schema};
use route::{FixedResponse, HeaderEdit, HeaderEdits, NamedValues, TemplateStage};
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

fn compiled(text: &str) -> Arc<Expression> {
    let schema = Schema::new(ExchangeStage::Request);
    let compiled = Expression::new(text, &schema, &ExpressionLimits::default());
    Arc::new(compiled.unwrap_or_else(|fault| panic!("{text}: {fault}")))
}

/// Expressions see the session and the client's certificate, in full handshakes and resumed ones.
#[test]
fn expressions_know_what_was_agreed_on() {
    const FACTS: [&str; 6] = ["version", "cipher", "sni", "subject", "issuer", "fingerprint"];
    let clients = TestAuthority::new();
    let known = clients.issue(&["client"]);
    let tls::VerifiedClient { issuer, fingerprint, .. } =
        tls::VerifiedClient::from_certificate(&known.certificate);
    let scene = Scene::with(|config, _| {
        listener_tls(config).client_certificates = ClientCertificates::Optional(clients.file.clone().into());
        let mut values = NamedValues::default();
        for fact in FACTS {
            values.add(fact, &compiled(&format!("client.tls.{fact} ?? \"none\"")));
        }
        let all = FACTS.map(|fact| format!("${{{fact}}}")).join(" ");
        let edits = [HeaderEdit::Set("X-Tls", &all)];
        let edits = HeaderEdits::new(edits, TemplateStage::Forward, &values).expect("the values are known");
        config.routes[0].policies.request_headers = edits;
        config.routes[0].values = Arc::new(values);
    });
    let shown = scene.authority.client_showing(&known);
    let mut old = scene.authority.client(&[&TLS12]);
    old.resumption = Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
    let mut nameless = scene.authority.client(&[&TLS13]);
    nameless.enable_sni = false;
    let mut server = None;
    for (config, expected) in [
        (shown, format!("TLSv1.3 TLS_AES_256_GCM_SHA384 a.example CN=alice {issuer} {fingerprint}")),
        (old, "TLSv1.2 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 a.example none none none".to_owned()),
        (nameless, "TLSv1.3 TLS_AES_256_GCM_SHA384 none none none none".to_owned()),
    ] {
        let config = Arc::new(config);
        for expected_kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            assert_eq!(told(&scene, &mut server, &config), (expected_kind, expected.clone()));
        }
    }
}

/// A route for one certificate is for no other client, also one with a certificate of the same authority.
#[test]
fn a_route_is_for_a_certificate() {
    let clients = TestAuthority::new();
    let [known, other] = ["client", "other"].map(|name| clients.issue(&[name]));
    let tls::VerifiedClient { fingerprint, issuer, .. } =
        tls::VerifiedClient::from_certificate(&known.certificate);
    let scene = Scene::with(|config, _| {
        listener_tls(config).client_certificates = ClientCertificates::Optional(clients.file.clone().into());
        let when = format!(
            "client.tls.fingerprint == \"{fingerprint}\" && client.tls.issuer == \"{issuer}\" \
             && client.tls.subject == \"CN=alice\" && client.tls.sni == \"a.example\""
        );
        config.routes[0].rules[0].when = Some(compiled(&when));
        let response = FixedResponse::new(200, "text/plain", "ok").expect("is valid").into();
        config.routes[0].action = Action::Respond(Respond { response, status: None, body: None, file: None });
    });
    for (config, status) in [
        (scene.authority.client_showing(&known), "HTTP/1.1 200 "),
        (scene.authority.client_showing(&other), "HTTP/1.1 404 "),
        (scene.authority.client(&[&TLS13]), "HTTP/1.1 404 "),
    ] {
        let mut client = scene.client_with(&Arc::new(config)).asking("/");
        let head = client.message().head;
        assert!(head.starts_with(status), "{status}: {head}");
    }
}
