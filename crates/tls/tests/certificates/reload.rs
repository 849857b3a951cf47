//! Files that change while they are in use.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{CertificateFiles, ClientCertificates, ClientTrust, ExpiredCrls, KeyPair, Listener};
use rustls::client::Resumption;
use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error, HandshakeKind};
use tls::{CertificateFault, CertificateProblem, ClientSide, Reload, ServerSide};

use super::handshake::noting_ocsp;
use super::scene::{
    Authority, FAR_AWAY, GOOD, Refusal, Scene, USUAL, Wanted, connect, listener, ocsp_response, pem,
};

fn load(files: Vec<CertificateFiles>) -> ServerSide {
    ServerSide::load(&listener(files)).unwrap().unwrap()
}

/// A change is taken at its second check, because at the first check the other file may still be missing.
fn tick(side: &ServerSide) -> Reload {
    assert_eq!(side.tick(), Reload::default());
    side.tick()
}

fn taken(paths: &[&std::path::Path]) -> Reload {
    Reload { taken: paths.iter().map(|path| path.to_path_buf()).collect(), problems: Vec::new() }
}

#[test]
fn a_new_pair_is_taken_and_connections_stay() {
    let scene = Scene::new();
    let files = scene.files("a", &["a.example"]);
    let other = scene.files("b", &["b.example"]);
    let side = load(vec![files.clone(), other]);
    assert_eq!(tick(&side), Reload::default());
    let config = side.config();
    let mut before = connect(&config, &Arc::new(scene.client()), "a.example").unwrap();

    let issued = scene.authority.issue(&["a.example", "new.example"], USUAL);
    scene.put("a", &issued);
    assert_eq!(tick(&side), taken(&[&files.pair.cert]));
    assert_eq!(side.tick(), Reload::default());
    // The configuration is the same: its holder gets the new certificate, also under its new name.
    assert!(Arc::ptr_eq(&config, &side.config()));
    for name in ["a.example", "new.example"] {
        let after = connect(&config, &Arc::new(scene.client()), name).unwrap();
        assert_eq!(after.shown(), issued.certificate);
    }
    connect(&config, &Arc::new(scene.client()), "b.example").unwrap();
    // The old connection still carries bytes.
    let mut bytes = Vec::new();
    std::io::Write::write_all(&mut before.client.writer(), b"hello").unwrap();
    before.client.write_tls(&mut bytes).unwrap();
    before.server.read_tls(&mut &bytes[..]).unwrap();
    assert_eq!(before.server.process_new_packets().unwrap().plaintext_bytes_to_read(), 5);
}

#[test]
fn a_session_is_resumed_after_a_new_pair() {
    let scene = Scene::new();
    scene.files("a", &["a.example"]);
    let side = load(vec![scene.files("a", &["a.example"])]);
    let mut client = scene.client();
    client.resumption = Resumption::in_memory_sessions(4);
    let client = Arc::new(client);
    connect(&side.config(), &client, "a.example").unwrap();
    scene.files("a", &["a.example"]);
    side.reload();
    let resumed = connect(&side.config(), &client, "a.example").unwrap();
    assert_eq!(resumed.server.handshake_kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn a_session_is_resumed_by_the_next_process_if_it_lets_in_the_same() {
    let scene = Scene::new();
    let mut listener = listener(vec![scene.files("a", &["a.example"])]);
    let ask = |listener: &mut config::Listener, whom: ClientCertificates| {
        listener.tls.as_mut().unwrap().client_certificates = whom;
        ServerSide::load(listener).unwrap().unwrap()
    };
    let [none, optional, required] = [
        ClientCertificates::None,
        ClientCertificates::Optional(scene.ca().into()),
        ClientCertificates::Required(scene.ca().into()),
    ];
    for before in [&none, &optional, &required] {
        for after in [&none, &optional, &required] {
            let client = Arc::new(scene.client_showing(&scene.authority.issue(&["client"], USUAL)));
            let [first, next] = [before, after].map(|whom| ask(&mut listener, whom.clone()));
            connect(&first.config(), &client, "a.example").unwrap();
            assert_eq!(next.adopt_ticket_keys(&first.ticket_keys()), before == after);
            let kind = if before == after { HandshakeKind::Resumed } else { HandshakeKind::Full };
            let connected = connect(&next.config(), &client, "a.example").unwrap();
            assert_eq!(connected.server.handshake_kind(), Some(kind), "{before:?} {after:?}");
        }
    }
    // The same file, with another CA.
    let first = ask(&mut listener, required.clone());
    scene.write("ca.pem", pem("CERTIFICATE", &Authority::new("the next CA").certificate));
    let next = ask(&mut listener, required);
    assert!(!next.adopt_ticket_keys(&first.ticket_keys()));
}

#[test]
fn a_bad_pair_is_kept_out_until_it_is_good() {
    let scene = Scene::new();
    let files = scene.files("a", &["a.example"]);
    let other = scene.files("b", &["b.example"]);
    let side = load(vec![files.clone(), other.clone()]);
    let shown = |name| connect(&side.config(), &Arc::new(scene.client()), name).unwrap().shown();
    let before = shown("a.example");

    let issued = scene.authority.issue(&["a.example"], USUAL);
    scene.write("a.pem", pem("CERTIFICATE", &issued.certificate));
    // A good pair is taken beside a bad one.
    let second = scene.authority.issue(&["b.example"], USUAL);
    scene.put("b", &second);
    let fault = CertificateFault::OtherKey(files.pair.cert.clone());
    let problem = CertificateProblem { file: Some(files.pair.key.clone()), fault };
    let expected = Reload { taken: vec![other.pair.cert], problems: vec![problem] };
    assert_eq!(tick(&side), expected);
    assert_eq!(shown("a.example"), before);
    assert_eq!(shown("b.example"), second.certificate);
    // Reported once, not at every tick.
    assert_eq!(tick(&side), Reload::default());

    fs::remove_file(&files.pair.key).unwrap();
    let Reload { taken: none, problems } = tick(&side);
    assert!(
        matches!(&problems[..], [CertificateProblem { fault: CertificateFault::Unreadable(_), .. }]),
        "{problems:?}"
    );
    assert_eq!((none, shown("a.example")), (Vec::new(), before));

    scene.write("a.key", issued.key.serialize_pem());
    assert_eq!(tick(&side), taken(&[&files.pair.cert]));
    assert_eq!(shown("a.example"), issued.certificate);
}

#[test]
fn a_pair_that_is_being_written_is_left_alone() {
    let scene = Scene::new();
    let files = scene.files("a", &["a.example"]);
    let side = load(vec![files.clone()]);
    let issued = scene.authority.issue(&["a.example"], USUAL);
    scene.write("a.pem", pem("CERTIFICATE", &issued.certificate));
    assert_eq!(side.tick(), Reload::default());
    scene.write("a.key", issued.key.serialize_pem());
    assert_eq!(tick(&side), taken(&[&files.pair.cert]));
}

#[test]
fn a_link_that_is_turned_is_a_change() {
    let scene = Scene::new();
    for name in ["old", "new"] {
        fs::create_dir(scene.path(name)).unwrap();
    }
    let old = scene.authority.issue(&["a.example"], USUAL);
    let new = scene.authority.issue(&["a.example"], USUAL);
    for (folder, issued) in [("old", &old), ("new", &new)] {
        scene.put(&format!("{folder}/site"), issued);
    }
    // As with Kubernetes and certbot: the files stay, and a link above them changes.
    symlink("old", scene.path("now")).unwrap();
    let pair = KeyPair::new(scene.path("now/site.pem"), scene.path("now/site.key"));
    let side = load(vec![CertificateFiles { pair: pair.clone(), ocsp: None, names: Vec::new() }]);
    let shown = || connect(&side.config(), &Arc::new(scene.client()), "a.example").unwrap().shown();
    assert_eq!(shown(), old.certificate);
    symlink("new", scene.path("next")).unwrap();
    fs::rename(scene.path("next"), scene.path("now")).unwrap();
    assert_eq!(tick(&side), taken(&[&pair.cert]));
    assert_eq!(shown(), new.certificate);
}

#[test]
fn an_ocsp_response_is_renewed_with_its_certificate() {
    let scene = Scene::new();
    let mut files = scene.files("a", &["a.example"]);
    files.ocsp = Some(scene.path("a.ocsp"));
    let side = load(vec![files.clone()]);
    assert!(matches!(
        &side.remarks()[..],
        [CertificateProblem { fault: CertificateFault::UnreadableOcsp(_), .. }]
    ));
    scene.write("a.ocsp", ocsp_response(USUAL.serial, GOOD, FAR_AWAY));
    assert_eq!(tick(&side), taken(&[&files.pair.cert]));
    assert_eq!(side.remarks(), []);
}

#[test]
fn an_ocsp_response_that_has_run_out_is_no_longer_stapled() {
    let scene = Scene::new();
    let mut files = scene.files("a", &["a.example"]);
    let ocsp = scene.write("a.ocsp", ocsp_response(USUAL.serial, GOOD, FAR_AWAY));
    files.ocsp = Some(ocsp.clone());
    let stapled = |side: &ServerSide| {
        let (seen, client) = noting_ocsp(&scene);
        connect(&side.config(), &client, "a.example").unwrap();
        seen.lock().unwrap().concat()
    };
    let (after, before) = (UnixTime::since_unix_epoch(Duration::from_secs(64_029_139_200)), UnixTime::now());
    let side = load(vec![files.clone()]);
    assert_eq!(side.tick_at(before), Reload::default());
    assert!(!stapled(&side).is_empty());
    let said = side.tick_at(after);
    let fault = CertificateFault::OcspStale { until: "3999-01-01 00:00:00 UTC".to_owned() };
    assert_eq!(
        said,
        Reload { taken: Vec::new(), problems: vec![CertificateProblem { file: Some(ocsp), fault }] }
    );
    assert!(stapled(&side).is_empty());
    assert_eq!(side.tick_at(after), Reload::default());

    // Also beside a pair that is temporarily unusable.
    let side = load(vec![files.clone()]);
    fs::remove_file(&files.pair.key).unwrap();
    let said = side.tick_at(after);
    assert!(
        matches!(&said.problems[..], [CertificateProblem { fault: CertificateFault::Unreadable(_), .. }]),
        "{said:?}"
    );
    assert!(stapled(&side).is_empty());
}

#[test]
fn a_new_ca_ends_the_sessions_of_the_old() {
    let scene = Scene::new();
    let ca = scene.ca();
    let mut listener = listener(vec![scene.files("a", &["a.example"])]);
    if let Some(tls) = &mut listener.tls {
        tls.client_certificates = ClientCertificates::Required(ca.clone().into());
    }
    let side = ServerSide::load(&listener).unwrap().unwrap();
    let client = Arc::new(scene.client_showing(&scene.authority.issue(&["client"], USUAL)));
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let connected = connect(&side.config(), &client, "a.example").unwrap();
        assert_eq!(connected.server.handshake_kind(), Some(kind));
    }
    let next = Authority::new("the next CA");
    scene.write("ca.pem", pem("CERTIFICATE", &next.certificate));
    assert_eq!(tick(&side), taken(&[&ca]));
    let refusal = connect(&side.config(), &client, "a.example").unwrap_err();
    assert!(matches!(refusal, Refusal::Server(_)), "{refusal:?}");
    let client = Arc::new(scene.client_showing(&next.issue(&["client"], USUAL)));
    connect(&side.config(), &client, "a.example").unwrap();

    scene.write("ca.pem", "");
    let Reload { taken, problems } = tick(&side);
    assert_eq!(
        (taken, problems),
        (Vec::new(), vec![CertificateProblem { file: Some(ca), fault: CertificateFault::NoCertificate }])
    );
    connect(&side.config(), &client, "a.example").unwrap();
}

/// A listener that requires certificates of the scene's CA, with this revocation list.
fn revoking(scene: &Scene, list: &Path, expired_crls: ExpiredCrls) -> Listener {
    let mut listener = listener(vec![scene.files("a", &["a.example"])]);
    if let Some(tls) = &mut listener.tls {
        let trust = ClientTrust { crls: vec![list.to_owned()], expired_crls, ..scene.ca().into() };
        tls.client_certificates = ClientCertificates::Required(trust);
    }
    listener
}

#[test]
fn chains_of_clients_have_at_most_as_many_intermediates_as_configured() {
    let scene = Scene::new();
    let first = scene.authority.below("first");
    let second = first.below("second");
    let direct = scene.client_showing(&scene.authority.issue(&["client"], USUAL));
    let root = scene.client_showing_chain(&scene.authority.issue(&["client"], USUAL), &[&scene.authority]);
    let below = first.issue(&["client"], USUAL);
    let one = scene.client_showing_chain(&below, &[&first]);
    let one_and_root = scene.client_showing_chain(&below, &[&first, &scene.authority]);
    let two = scene.client_showing_chain(&second.issue(&["client"], USUAL), &[&second, &first]);
    let clients = [(direct, 0), (root, 0), (one, 1), (one_and_root, 1), (two, 2)];
    let clients = clients.map(|(client, intermediates)| (Arc::new(client), intermediates));
    for depth in [Some(0), Some(1), Some(2), None] {
        let mut listener = listener(vec![scene.files("a", &["a.example"])]);
        let trust = ClientTrust { depth, ..scene.ca().into() };
        listener.tls.as_mut().unwrap().client_certificates = ClientCertificates::Required(trust);
        let side = ServerSide::load(&listener).unwrap().unwrap();
        for (client, intermediates) in &clients {
            let is_admitted = depth.is_none_or(|depth| *intermediates <= depth);
            let connected = connect(&side.config(), client, "a.example");
            assert_eq!(connected.is_ok(), is_admitted, "{depth:?} {intermediates}");
        }
    }
}

#[test]
fn a_new_revocation_list_ends_the_sessions_of_the_revoked() {
    let scene = Scene::new();
    let list = scene.write("ca.crl", scene.authority.revokes(&[9], 4000));
    let side = ServerSide::load(&revoking(&scene, &list, ExpiredCrls::Refuse)).unwrap().unwrap();
    let [good, bad] = [8, 7].map(|serial| {
        let issued = scene.authority.issue(&["client"], Wanted { serial, ..USUAL });
        Arc::new(scene.client_showing(&issued))
    });
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let connected = connect(&side.config(), &bad, "a.example").unwrap();
        assert_eq!(connected.server.handshake_kind(), Some(kind));
    }
    // In PEM, with the list of another CA behind it.
    let other = Authority::new("another CA").revokes(&[8], 4000);
    let lists = [scene.authority.revokes(&[7, 9], 4000), other].map(|list| pem("X509 CRL", &list));
    scene.write("ca.crl", lists.concat());
    assert_eq!(tick(&side), taken(&[&scene.path("ca.pem"), &list]));
    let refusal = connect(&side.config(), &bad, "a.example").unwrap_err();
    let revoked = Error::InvalidCertificate(CertificateError::Revoked);
    assert!(matches!(&refusal, Refusal::Server(error) if *error == revoked), "{refusal:?}");
    connect(&side.config(), &good, "a.example").unwrap();
    // An unusable file changes nothing.
    for (content, fault) in [
        (String::new(), CertificateFault::NoCrl),
        (pem("X509 CRL", b"none"), CertificateFault::NotACrl(1)),
        ("-----BEGIN X509 CRL-----\nAAAA\n".to_owned(), {
            CertificateFault::BrokenPem("a section has no END line".to_owned())
        }),
    ] {
        scene.write("ca.crl", content);
        let problems = vec![CertificateProblem { file: Some(list.clone()), fault }];
        assert_eq!(tick(&side), Reload { taken: Vec::new(), problems });
        connect(&side.config(), &bad, "a.example").unwrap_err();
    }
}

#[test]
fn an_expired_revocation_list_is_reported_once_and_ends_sessions() {
    let scene = Scene::new();
    let list = scene.write("ca.crl", scene.authority.revokes(&[9], 3999));
    let issued = scene.authority.issue(&["client"], USUAL);
    for expired_crls in [ExpiredCrls::Refuse, ExpiredCrls::Use] {
        let side = ServerSide::load(&revoking(&scene, &list, expired_crls)).unwrap().unwrap();
        assert_eq!(side.remarks(), []);
        let client = Arc::new(scene.client_showing(&issued));
        connect(&side.config(), &client, "a.example").unwrap();
        let after = UnixTime::since_unix_epoch(Duration::from_secs(64_060_588_801));
        let is_refused = expired_crls == ExpiredCrls::Refuse;
        let fault = CertificateFault::CrlExpired { until: "3999-01-01 00:00:00 UTC".to_owned(), is_refused };
        let problems = vec![CertificateProblem { file: Some(list.clone()), fault }];
        assert_eq!(side.tick_at(after), Reload { taken: Vec::new(), problems: problems.clone() });
        assert_eq!(side.tick_at(after), Reload::default());
        assert_eq!(side.remarks(), problems);
        // The session must present its certificate again.
        let connected = connect(&side.config(), &client, "a.example").unwrap();
        assert_eq!(connected.server.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn client_certificates_are_renewed() {
    let scene = Scene::new();
    let server = "https://a.example".parse().unwrap();
    let mut upstream =
        config::Settings::for_servers(vec![([127, 0, 0, 1], 0).into()], vec![server]).upstreams.remove(0);
    upstream.tls.ca = Some(scene.ca());
    let pair = scene.files("own", &["own"]).pair;
    upstream.tls.certificate = Some(pair.clone());
    let side = ClientSide::load(&upstream).unwrap().unwrap();
    let before = side.config();
    assert_eq!(side.tick(), Reload::default());
    scene.files("own", &["own"]);
    assert_eq!(side.tick(), Reload::default());
    assert_eq!(side.tick(), taken(&[&scene.path("ca.pem"), &pair.cert, &pair.key]));
    assert!(!Arc::ptr_eq(&before, &side.config()));
    let current = side.config();
    scene.write("own.key", "");
    side.tick();
    assert_eq!(
        side.tick().problems,
        [CertificateProblem { file: Some(pair.key), fault: CertificateFault::NoKey }]
    );
    assert!(Arc::ptr_eq(&current, &side.config()));
}
