//! Rules for client certificates by server name, and revoked certificates.

use std::process::Command;
use std::sync::Arc;

use config::{
    Action, Certificates, ClientCertificates, ClientRule, ClientTrust, ExpiredCrls, Respond, Settings,
};
use route::FixedResponse;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, Error, HandshakeKind};
use testkit::tls::{TestAuthority, TlsEnd, TlsEnding};

use super::scene::{Scene, count, listener_tls};

/// A certificate for every name of these tests, rules for some, and a response without a server.
fn by_name(config: &mut Settings, authority: &TestAuthority, rules: &[(&str, ClientCertificates)]) {
    let tls = listener_tls(config);
    let names = ["a.example", "b.example", "x.c.example", "d.example"];
    tls.certificates = Certificates::Files(vec![authority.files("all", &names)]);
    let rule = |(name, asked): &(&str, ClientCertificates)| ClientRule {
        names: vec![(*name).to_owned()],
        client_certificates: asked.clone(),
    };
    tls.client_rules = rules.iter().map(rule).collect();
    answers(config);
}

fn answers(config: &mut Settings) {
    let response = FixedResponse::new(204, "text/plain", "").expect("is a response");
    config.routes[0].action =
        Action::Respond(Respond { response: Arc::new(response), status: None, body: None, file: None });
}

fn connects(scene: &Scene, config: &Arc<ClientConfig>, name: &str) -> TlsEnd {
    let mut client = TlsEnd::client(scene.connect(), config, name);
    client.shakes_hands().unwrap_or_else(|ending| panic!("no handshake for {name}: {ending:?}"));
    client
}

/// Returns the status of a request for this host.
fn status(client: &mut TlsEnd, host: &str) -> u16 {
    client.sends(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let head = client.head();
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{head}"))
}

/// RFC 9110 §15.5.20.
#[test]
fn a_connection_is_good_for_names_with_its_rule_or_with_none() {
    let clients = TestAuthority::new();
    let others = TestAuthority::new();
    let trust = |authority: &TestAuthority| ClientTrust::from(authority.file.clone());
    let scene = Scene::with(|config, authority| {
        let rules = [
            ("b.example", ClientCertificates::Required(trust(&clients))),
            ("*.c.example", ClientCertificates::Required(trust(&others))),
            ("d.example", ClientCertificates::Optional(trust(&clients))),
            ("**.e.example", ClientCertificates::Required(trust(&clients))),
        ];
        by_name(config, authority, &rules);
    });
    let without = Arc::new(scene.authority.client(&[&TLS13, &TLS12]));
    let showing = Arc::new(scene.authority.client_showing(&clients.issue(&["client"])));
    const MISDIRECTED: u16 = 421;
    for (config, name, hosts) in [
        (
            &without,
            "a.example",
            &[
                ("a.example", 204),
                ("b.example", MISDIRECTED),
                ("B.Example.:443", MISDIRECTED),
                ("x.c.example", MISDIRECTED),
                ("d.example", MISDIRECTED),
                ("x.y.e.example", MISDIRECTED),
                // The connection can still be used.
                ("a.example:443", 204),
                ("unknown.example", 204),
            ][..],
        ),
        (
            &showing,
            "b.example",
            &[
                ("b.example", 204),
                ("a.example", 204),
                ("x.c.example", MISDIRECTED),
                ("d.example", MISDIRECTED),
            ],
        ),
        (&without, "d.example", &[("d.example", 204), ("b.example", MISDIRECTED), ("a.example", 204)]),
        (&showing, "d.example", &[("d.example", 204), ("b.example", MISDIRECTED)]),
    ] {
        let mut client = connects(&scene, config, name);
        for (host, expected) in hosts {
            let status = status(&mut client, host);
            if status != 204 {
                client.exactly("This connection was made for another host name.\n".len());
            }
            assert_eq!(status, *expected, "{name}: {host}");
        }
    }
    // The server name in the handshake decides.
    for (config, name) in [(&without, "b.example"), (&showing, "x.c.example")] {
        let mut client = connects(&scene, config, name);
        client.sends("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let (_, ending) = client.rest();
        assert!(
            matches!(ending, TlsEnding::Refused(Error::AlertReceived(_)) | TlsEnding::Reset),
            "{ending:?}"
        );
    }
    scene.waits_for("all are counted", |counters| count(counters, "client-certificate") == 2);
    assert_eq!(scene.failures("misdirected"), 9);
}

#[test]
fn a_listener_s_own_rule_can_be_lifted_for_a_name() {
    let clients = TestAuthority::new();
    let scene = Scene::with(|config, authority| {
        by_name(config, authority, &[("a.example", ClientCertificates::None)]);
        let required = ClientCertificates::Required(clients.file.clone().into());
        listener_tls(config).client_certificates = required;
    });
    let without = Arc::new(scene.authority.client(&[&TLS13, &TLS12]));
    let mut client = connects(&scene, &without, "a.example");
    assert_eq!(status(&mut client, "a.example"), 204);
    assert_eq!(status(&mut client, "b.example"), 421);
    // Without a server name, the listener's rule applies.
    let mut nameless = scene.authority.client(&[&TLS13]);
    nameless.enable_sni = false;
    let mut client = connects(&scene, &Arc::new(nameless), "a.example");
    client.sends("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(client.rest().0.is_empty());
    scene.waits_for("it is counted", |counters| count(counters, "client-certificate") == 1);
}

#[test]
fn sessions_of_names_with_rules_are_resumed_for_the_same_name_only() {
    let clients = TestAuthority::new();
    let scene = Scene::with(|config, authority| {
        let required = ClientCertificates::Required(clients.file.clone().into());
        by_name(config, authority, &[("b.example", required)]);
    });
    let showing = Arc::new(scene.authority.client_showing(&clients.issue(&["client"])));
    for (name, kind) in [
        ("b.example", HandshakeKind::Full),
        ("b.example", HandshakeKind::Resumed),
        ("a.example", HandshakeKind::Full),
        ("a.example", HandshakeKind::Resumed),
    ] {
        let mut client = TlsEnd::client(scene.connect(), &showing, name);
        assert_eq!(client.shakes_hands(), Ok(kind), "{name}");
        assert_eq!(status(&mut client, name), 204);
    }
}

/// curl uses HTTP/2, and requests another host over its connection.
#[test]
fn curl_is_misdirected_over_http_2() {
    let clients = TestAuthority::new();
    let scene = Scene::with(|config, authority| {
        let required = ClientCertificates::Required(clients.file.clone().into());
        by_name(config, authority, &[("b.example", required)]);
    });
    let mut command = Command::new("curl");
    let address = format!("a.example:443:{}", scene.address());
    command.args(["-q", "--silent", "--http2", "--noproxy", "*", "--connect-to", &address, "--cacert"]);
    command.arg(&scene.authority.file).args(["-o", "/dev/null", "-w", "%{http_version} %{http_code}"]);
    command.args(["-H", "Host: b.example", "https://a.example/"]);
    let output = match command.output() {
        Ok(output) => output,
        Err(_) if std::env::var_os("CI").is_none() => return,
        Err(error) => panic!("curl does not start, and CI is set: {error}"),
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2 421");
}

/// Returns the kind of handshake if a client with this configuration gets a response, otherwise the alert.
fn is_let_in(scene: &Scene, config: &Arc<ClientConfig>) -> Result<HandshakeKind, AlertDescription> {
    let mut client = TlsEnd::client(scene.connect(), config, "a.example");
    let kind = client.shakes_hands().expect("for the client it is over");
    client.sends("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    match client.rest() {
        (response, _) if response.starts_with(b"HTTP/1.1 204 ") => Ok(kind),
        (_, TlsEnding::Refused(Error::AlertReceived(alert))) => Err(alert),
        other => panic!("{other:?}"),
    }
}

#[test]
fn revoked_certificates_are_refused_with_an_alert_that_says_so() {
    let clients = TestAuthority::new();
    let [good, bad] = [(); 2].map(|()| clients.issue(&["client"]));
    let list = clients.revokes(&[&bad], 4000);
    for mode in [ClientCertificates::Required, ClientCertificates::Optional] {
        let scene = Scene::with(|config, authority| {
            let trust = ClientTrust { crls: vec![list.clone()], ..clients.file.clone().into() };
            listener_tls(config).client_certificates = mode(trust);
            answers(config);
            Scene::logs(config, authority);
        });
        let [good, bad] = [&good, &bad].map(|issued| Arc::new(scene.authority.client_showing(issued)));
        assert_eq!(is_let_in(&scene, &good), Ok(HandshakeKind::Full));
        assert_eq!(is_let_in(&scene, &good), Ok(HandshakeKind::Resumed));
        // RFC 8446 §6.2.
        assert_eq!(is_let_in(&scene, &bad), Err(AlertDescription::CertificateRevoked));
        scene.waits_for("it is counted", |counters| count(counters, "client-certificate") == 1);
        let lines = scene.logged();
        assert_eq!(lines[2]["detail"], "its certificate is revoked", "{lines:?}");
    }
}

#[test]
fn an_expired_list_refuses_all_or_goes_on() {
    let clients = TestAuthority::new();
    let [good, bad] = [(); 2].map(|()| clients.issue(&["client"]));
    let list = clients.revokes(&[&bad], 2021);
    for (expired_crls, expected) in
        [(ExpiredCrls::Refuse, Err(())), (ExpiredCrls::Use, Ok(HandshakeKind::Full))]
    {
        let scene = Scene::with(|config, _| {
            let trust = ClientTrust { crls: vec![list.clone()], expired_crls, ..clients.file.clone().into() };
            listener_tls(config).client_certificates = ClientCertificates::Required(trust);
            answers(config);
        });
        let [good, bad] = [&good, &bad].map(|issued| Arc::new(scene.authority.client_showing(issued)));
        assert_eq!(is_let_in(&scene, &good).map_err(|_| ()), expected, "{expired_crls:?}");
        assert!(is_let_in(&scene, &bad).is_err(), "{expired_crls:?}");
    }
}

#[test]
fn a_ca_without_a_list_lets_nobody_in_where_there_are_lists() {
    let [clients, others] = [TestAuthority::new(), TestAuthority::new()];
    let list = others.revokes(&[], 4000);
    let scene = Scene::with(|config, _| {
        let trust = ClientTrust { crls: vec![list], ..clients.file.clone().into() };
        listener_tls(config).client_certificates = ClientCertificates::Required(trust);
        answers(config);
    });
    let shown = Arc::new(scene.authority.client_showing(&clients.issue(&["client"])));
    assert!(is_let_in(&scene, &shown).is_err());
}
