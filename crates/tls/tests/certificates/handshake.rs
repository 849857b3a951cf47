//! Handshakes in memory: the certificate that a client gets from a listener, and a server from an upstream's
//! configuration.

use std::sync::Arc;

use config::{Certificates, ClientCertificates, Listener, Protocol, Server, UnknownNames, Upstream};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, HandshakeKind, NamedGroup, RootCertStore,
    ServerConfig,
};
use tls::{ClientSide, ServerSide, VerifiedClient};

use super::scene::{
    Authority, FAR_AWAY, GOOD, Refusal, Scene, USUAL, Wanted, connect, listener, ocsp_response, pem,
};

fn load(listener: &Listener) -> ServerSide {
    ServerSide::load(listener).unwrap().unwrap()
}

#[test]
fn certificates_are_chosen_by_name() {
    let scene = Scene::new();
    let names: [&[&str]; 4] = [
        &["default.example"],
        &["www.example.com"],
        &["*.example.com"],
        &["api.example.com", "api.example.net"],
    ];
    let issued = names.map(|names| scene.authority.issue(names, USUAL));
    let files: Vec<_> =
        issued.iter().enumerate().map(|(index, issued)| scene.put(&index.to_string(), issued)).collect();
    let mut listener = listener(files);
    let server = load(&listener).config();
    let mut client = scene.client();
    let chosen = |server, client: &ClientConfig, name| {
        let shown = connect(server, &Arc::new(client.clone()), name).unwrap().shown();
        issued.iter().position(|issued| issued.certificate == shown)
    };
    for (name, index) in [
        ("default.example", 0),
        ("www.example.com", 1),
        ("WWW.example.com", 1),
        ("other.example.com", 2),
        ("api.example.com", 3),
        ("api.example.net", 3),
    ] {
        assert_eq!(chosen(&server, &client, name), Some(index), "{name}");
    }
    // The default certificate lacks the name, so the client rejects it.
    for name in ["unknown.example", "a.b.example.com", "example.com"] {
        let refusal = connect(&server, &Arc::new(client.clone()), name).unwrap_err();
        let is_wrong_name = matches!(
            refusal,
            Refusal::Client(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }))
        );
        assert!(is_wrong_name, "{name}: {refusal:?}");
    }
    if let Some(tls) = &mut listener.tls {
        tls.unknown_names = UnknownNames::Refuse;
    }
    let server = load(&listener).config();
    assert_eq!(chosen(&server, &client, "other.example.com"), Some(2));
    for name in ["unknown.example", "a.b.example.com"] {
        let refusal = connect(&server, &Arc::new(client.clone()), name).unwrap_err();
        assert!(matches!(refusal, Refusal::Server(Error::General(_))), "{name}: {refusal:?}");
    }
    client.enable_sni = false;
    let refusal = connect(&server, &Arc::new(client), "default.example").unwrap_err();
    assert!(matches!(refusal, Refusal::Server(Error::General(_))), "no name: {refusal:?}");
}

#[test]
fn names_of_the_configuration_come_in_place_of_those_in_the_certificate() {
    let scene = Scene::new();
    let names = [&["**.example.com"][..], &["www.example.com"], &["*"]];
    let issued =
        names.map(|_| scene.authority.issue(&["*.example.com", "*.b.example.com", "c.example"], USUAL));
    let files = issued.iter().zip(names).enumerate().map(|(index, (issued, names))| {
        let names = names.iter().map(ToString::to_string).collect();
        config::CertificateFiles { names, ..scene.put(&index.to_string(), issued) }
    });
    let mut listener = listener(files.collect());
    if let Some(tls) = &mut listener.tls {
        // One certificate is for all other names.
        tls.unknown_names = UnknownNames::Refuse;
    }
    let server = load(&listener).config();
    for (name, expected) in
        [("www.example.com", 1), ("a.example.com", 0), ("a.b.example.com", 0), ("c.example", 2)]
    {
        let shown = connect(&server, &Arc::new(scene.client()), name).unwrap().shown();
        assert_eq!(issued.iter().position(|issued| issued.certificate == shown), Some(expected), "{name}");
    }
    let mut nameless = scene.client();
    nameless.enable_sni = false;
    let shown = connect(&server, &Arc::new(nameless), "c.example").unwrap().shown();
    assert_eq!(shown, issued[2].certificate);
}

/// The default provider with these signatures only.
fn verifying(scheme: rustls::SignatureScheme) -> CryptoProvider {
    let provider = aws_lc_rs::default_provider();
    let all = provider.signature_verification_algorithms;
    let mapping: Vec<_> = all.mapping.iter().copied().filter(|(known, _)| *known == scheme).collect();
    let signature_verification_algorithms =
        rustls::crypto::WebPkiSupportedAlgorithms { all: all.all, mapping: Vec::leak(mapping) };
    CryptoProvider { signature_verification_algorithms, ..provider }
}

#[test]
fn of_two_kinds_of_keys_the_client_gets_one_that_it_understands() {
    let scene = Scene::new();
    let kinds = [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384];
    let issued = kinds.map(|algorithm| scene.authority.issue(&["a.example"], Wanted { algorithm, ..USUAL }));
    let files = ["rsa", "ed25519", "p384"].into_iter().zip(&issued);
    let server = load(&listener(files.map(|(name, issued)| scene.put(name, issued)).collect())).config();
    for (schemes, expected) in [
        (None, 2),
        (Some(rustls::SignatureScheme::RSA_PSS_SHA256), 0),
        (Some(rustls::SignatureScheme::ED25519), 1),
        (Some(rustls::SignatureScheme::ECDSA_NISTP384_SHA384), 2),
    ] {
        // The signature of the certificate itself does not matter here.
        let verifying = schemes.map_or_else(aws_lc_rs::default_provider, verifying);
        let mut client = scene.client_with(verifying, &[&TLS13]);
        for has_name in [true, false] {
            client.enable_sni = has_name;
            let connected = connect(&server, &Arc::new(client.clone()), "a.example").unwrap();
            assert_eq!(
                connected.shown(),
                issued[expected].certificate,
                "{schemes:?}, with a name: {has_name}"
            );
        }
    }
}

#[test]
fn protocols_are_agreed_on() {
    let scene = Scene::new();
    let mut listener = listener(vec![scene.files("a", &["a.example"])]);
    for (http2, offered, agreed) in [
        (true, &["h2", "http/1.1"][..], Some("h2")),
        (true, &["http/1.1", "h2"], Some("h2")),
        (true, &["http/1.1"], Some("http/1.1")),
        (true, &[], None),
        (false, &["h2", "http/1.1"], Some("http/1.1")),
    ] {
        listener.http2 = http2;
        let mut client = scene.client();
        client.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let connected = connect(&load(&listener).config(), &Arc::new(client), "a.example").unwrap();
        assert_eq!(connected.server.alpn_protocol(), agreed.map(str::as_bytes), "{http2} {offered:?}");
    }
    // RFC 7301 §3.2.
    listener.http2 = false;
    let mut client = scene.client();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let refusal = connect(&load(&listener).config(), &Arc::new(client), "a.example").unwrap_err();
    assert!(matches!(refusal, Refusal::Server(Error::NoApplicationProtocol)), "{refusal:?}");
}

#[test]
fn every_cipher_and_version_is_spoken_and_secrets_can_be_taken() {
    let scene = Scene::new();
    let kinds = [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256];
    let issued = kinds.map(|algorithm| scene.authority.issue(&["a.example"], Wanted { algorithm, ..USUAL }));
    let files = ["rsa", "ecdsa"].into_iter().zip(&issued).map(|(name, issued)| scene.put(name, issued));
    let server = load(&listener(files.collect()));
    let mut count = 0;
    for suite in aws_lc_rs::ALL_CIPHER_SUITES {
        let provider = CryptoProvider { cipher_suites: vec![*suite], ..aws_lc_rs::default_provider() };
        let version = if suite.tls13().is_some() { &TLS13 } else { &TLS12 };
        let client = scene.client_with(provider, &[version]);
        let connected = connect(&server.config(), &Arc::new(client), "a.example").unwrap();
        assert_eq!(connected.server.negotiated_cipher_suite(), Some(*suite));
        assert!(connected.server.dangerous_extract_secrets().is_ok(), "{suite:?}");
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn groups_are_what_the_client_wants() {
    let scene = Scene::new();
    let server = load(&listener(vec![scene.files("a", &["a.example"])])).config();
    for group in [kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1, kx_group::X25519MLKEM768] {
        let provider = CryptoProvider { kx_groups: vec![group], ..aws_lc_rs::default_provider() };
        let client = Arc::new(scene.client_with(provider, &[&TLS13]));
        let connected = connect(&server, &client, "a.example").unwrap();
        assert_eq!(
            connected.server.negotiated_key_exchange_group().map(SupportedKxGroup::name),
            Some(group.name())
        );
        assert_eq!(connected.server.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn sessions_are_resumed() {
    let scene = Scene::new();
    let server = load(&listener(vec![scene.files("a", &["a.example", "b.example"])]));
    let resumption = |kind| Resumption::in_memory_sessions(8).tls12_resumption(kind);
    for (version, kind) in [
        (&TLS13, Tls12Resumption::Disabled),
        (&TLS12, Tls12Resumption::SessionIdOrTickets),
        (&TLS12, Tls12Resumption::SessionIdOnly),
    ] {
        let mut client = scene.client_with(aws_lc_rs::default_provider(), &[version]);
        client.resumption = resumption(kind);
        let client = Arc::new(client);
        let kinds = ["a.example", "a.example", "a.example", "b.example"].map(|name| {
            // Each connection as on another worker: only the configuration is shared.
            let connected = connect(&server.config(), &client, name).unwrap();
            connected.server.handshake_kind()
        });
        let (full, resumed) = (Some(HandshakeKind::Full), Some(HandshakeKind::Resumed));
        assert_eq!(kinds, [full, resumed, resumed, full], "{version:?} {kind:?}");
    }
}

#[test]
fn there_is_no_early_data() {
    let scene = Scene::new();
    let server = load(&listener(vec![scene.files("a", &["a.example"])])).config();
    let mut client = scene.client_with(aws_lc_rs::default_provider(), &[&TLS13]);
    client.enable_early_data = true;
    let client = Arc::new(client);
    for _ in 0..2 {
        connect(&server, &client, "a.example").unwrap();
    }
    let name = ServerName::try_from("a.example").unwrap();
    let mut third = rustls::ClientConnection::new(client, name).unwrap();
    assert!(third.early_data().is_none());
}

#[test]
fn client_certificates_are_asked_for_and_verified() {
    let scene = Scene::new();
    let mut listener = listener(vec![scene.files("a", &["a.example"])]);
    let known = scene.authority.issue(&["client"], USUAL);
    // The CA's name is the same, but its key differs.
    let forged = Authority::new("the test's CA").issue(&["client"], USUAL);
    let expired = scene.authority.issue(&["client"], Wanted { years: (2000, 2001), ..USUAL });
    let modes = [
        ClientCertificates::None,
        ClientCertificates::Optional(scene.ca().into()),
        ClientCertificates::Required(scene.ca().into()),
    ];
    for mode in modes {
        if let Some(tls) = &mut listener.tls {
            tls.client_certificates = mode.clone();
        }
        let server = load(&listener).config();
        let shown = |client: ClientConfig| {
            let connected = connect(&server, &Arc::new(client), "a.example")?;
            Ok(connected.server.peer_certificates().map(|chain| VerifiedClient::from_certificate(&chain[0])))
        };
        let is_asked = mode != ClientCertificates::None;
        let peer = shown(scene.client_showing(&known)).unwrap();
        assert_eq!(
            peer.as_ref().map(|peer| peer.subject.as_str()),
            is_asked.then_some("CN=alice"),
            "{mode:?}"
        );
        assert_eq!(peer, is_asked.then(|| VerifiedClient::from_certificate(&known.certificate)));
        let without: Result<_, Refusal> = shown(scene.client());
        match mode {
            ClientCertificates::Required { .. } => {
                assert!(
                    matches!(without, Err(Refusal::Server(Error::NoCertificatesPresented))),
                    "{without:?}"
                );
            }
            _ => assert_eq!(without.unwrap(), None),
        }
        for bad in [&forged, &expired] {
            let refused = shown(scene.client_showing(bad));
            assert_eq!(
                matches!(refused, Err(Refusal::Server(Error::InvalidCertificate(_)))),
                is_asked,
                "{refused:?}"
            );
        }
    }
}

#[test]
fn an_ocsp_response_arrives() {
    let scene = Scene::new();
    let mut files = scene.files("a", &["a.example"]);
    let response = ocsp_response(USUAL.serial, GOOD, FAR_AWAY);
    files.ocsp = Some(scene.write("a.ocsp", &response));
    let server = load(&listener(vec![files]));
    assert_eq!(server.remarks(), []);
    let (seen, client) = noting_ocsp(&scene);
    connect(&server.config(), &client, "a.example").unwrap();
    assert_eq!(*seen.lock().unwrap(), [response]);
}

pub(crate) type Seen = Arc<std::sync::Mutex<Vec<Vec<u8>>>>;

/// A client that accepts every certificate and keeps the OCSP responses that it gets.
pub(crate) fn noting_ocsp(scene: &Scene) -> (Seen, Arc<ClientConfig>) {
    #[derive(Debug)]
    struct Noting(Seen, Arc<rustls::client::WebPkiServerVerifier>);

    impl rustls::client::danger::ServerCertVerifier for Noting {
        fn verify_server_cert(
            &self,
            _: &rustls::pki_types::CertificateDer<'_>,
            _: &[rustls::pki_types::CertificateDer<'_>],
            _: &ServerName<'_>,
            ocsp_response: &[u8],
            _: rustls::pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, Error> {
            self.0.lock().unwrap().push(ocsp_response.to_vec());
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
            self.1.verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
            self.1.verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.1.supported_verify_schemes()
        }
    }

    let mut roots = RootCertStore::empty();
    roots.add(scene.authority.certificate.clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let inner = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let seen = Seen::default();
    let mut client = scene.client();
    client.dangerous().set_certificate_verifier(Arc::new(Noting(Arc::clone(&seen), inner)));
    (seen, Arc::new(client))
}

#[test]
fn a_certificate_made_at_start_is_for_this_machine() {
    let mut listener = listener(Vec::new());
    listener.address = "192.0.2.7:443".parse().unwrap();
    if let Some(tls) = &mut listener.tls {
        tls.certificates = Certificates::SelfSigned;
    }
    let scene = Scene::new();
    let server = load(&listener);
    assert_eq!(server.remarks(), []);
    let (_, trusting) = noting_ocsp(&scene);
    let shown = connect(&server.config(), &trusting, "localhost").unwrap().shown();
    assert_ne!(connect(&load(&listener).config(), &trusting, "localhost").unwrap().shown(), shown);
    let mut roots = RootCertStore::empty();
    roots.add(shown).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
    for (name, is_valid) in
        [("localhost", true), ("127.0.0.1", true), ("::1", true), ("192.0.2.7", true), ("192.0.2.8", false)]
    {
        assert_eq!(connect(&server.config(), &client, name).is_ok(), is_valid, "{name}");
    }
}

/// A rustls server with one certificate. `asks` is whether it requests a client certificate.
fn origin(scene: &Scene, names: &[&str], asks: bool, protocols: &[&str]) -> Arc<ServerConfig> {
    let issued = scene.authority.issue(names, USUAL);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if asks {
        let mut roots = RootCertStore::empty();
        roots.add(scene.authority.certificate.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let mut config =
        builder.with_single_cert(vec![issued.certificate.clone()], issued.private_key()).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn upstream(server: &str) -> Upstream {
    let server: Server = server.parse().unwrap();
    let address = ([127, 0, 0, 1], 0).into();
    Upstream::clone(&config::Settings::for_servers(vec![address], vec![server]).upstreams[0])
}

#[test]
fn servers_are_verified_by_the_configured_name() {
    let scene = Scene::new();
    let server = origin(&scene, &["a.example", "127.0.0.1"], false, &[]);
    let other = Authority::new("another CA");
    let other = scene.write("other.pem", pem("CERTIFICATE", &other.certificate));
    for (url, ca, name, verify, is_accepted) in [
        ("https://a.example", scene.ca(), None, true, true),
        ("https://A.example.", scene.ca(), None, true, true),
        ("https://127.0.0.1", scene.ca(), None, true, true),
        ("https://127.0.0.2", scene.ca(), None, true, false),
        ("https://127.0.0.2", scene.ca(), Some("a.example"), true, true),
        ("https://a.example", scene.ca(), Some("b.example"), true, false),
        ("https://a.example", other.clone(), None, true, false),
        ("https://b.example", other, None, false, true),
    ] {
        let mut upstream = upstream(url);
        upstream.tls.ca = Some(ca);
        upstream.tls.name = name.map(str::to_owned);
        upstream.tls.verify = verify;
        let side = ClientSide::load(&upstream).unwrap().unwrap();
        let wanted = side.name(0).unwrap().to_str().into_owned();
        let connected = connect(&server, &side.config(), &wanted);
        assert_eq!(connected.is_ok(), is_accepted, "{url} {name:?}");
        if let Ok(connected) = connected {
            assert!(connected.client.dangerous_extract_secrets().is_ok());
        }
    }
    assert!(ClientSide::load(&upstream("http://a.example")).unwrap().is_none());
}

#[test]
fn without_verification_a_server_still_has_to_have_its_key() {
    let scene = Scene::new();
    let shown = scene.authority.issue(&["a.example"], USUAL);
    let own = scene.authority.issue(&["a.example"], USUAL);
    let key = aws_lc_rs::sign::any_supported_type(&own.private_key()).unwrap();
    let stolen = rustls::sign::CertifiedKey::new(vec![shown.certificate.clone()], key);
    for version in [&TLS13, &TLS12] {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(&[version]).unwrap().with_no_client_auth();
        let resolver = rustls::sign::SingleCertAndKey::from(stolen.clone());
        let server = Arc::new(builder.with_cert_resolver(Arc::new(resolver)));
        let mut upstream = upstream("https://a.example");
        upstream.tls.verify = false;
        let side = ClientSide::load(&upstream).unwrap().unwrap();
        let refusal = connect(&server, &side.config(), "a.example").unwrap_err();
        let is_bad_signature =
            matches!(refusal, Refusal::Client(Error::InvalidCertificate(CertificateError::BadSignature)));
        assert!(is_bad_signature, "{version:?}: {refusal:?}");
    }
}

#[test]
fn servers_see_our_certificate_and_the_protocol_and_resume() {
    let scene = Scene::new();
    let server = origin(&scene, &["a.example"], true, &["h2", "http/1.1"]);
    let mut upstream = upstream("https://a.example");
    upstream.tls.ca = Some(scene.ca());
    let side = ClientSide::load(&upstream).unwrap().unwrap();
    let refusal = connect(&server, &side.config(), "a.example").unwrap_err();
    assert!(matches!(refusal, Refusal::Server(Error::NoCertificatesPresented)), "{refusal:?}");
    upstream.tls.certificate = Some(scene.files("own", &["own"]).pair);
    for (protocol, agreed) in [(Protocol::Http1, "http/1.1"), (Protocol::Http2, "h2")] {
        upstream.protocol = protocol;
        let side = ClientSide::load(&upstream).unwrap().unwrap();
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let connected = connect(&server, &side.config(), "a.example").unwrap();
            assert_eq!(connected.server.alpn_protocol(), Some(agreed.as_bytes()));
            assert_eq!(connected.server.handshake_kind(), Some(kind));
            assert!(connected.server.peer_certificates().is_some());
        }
    }
    let connected = connect(&server, &side_without_certificate(&upstream), "a.example");
    let is_told = matches!(
        connected,
        Err(Refusal::Server(Error::NoCertificatesPresented)
            | Refusal::Client(Error::AlertReceived(AlertDescription::CertificateRequired)))
    );
    assert!(is_told, "{connected:?}");
}

fn side_without_certificate(upstream: &Upstream) -> Arc<ClientConfig> {
    let mut upstream = upstream.clone();
    upstream.tls.certificate = None;
    ClientSide::load(&upstream).unwrap().unwrap().config()
}

#[test]
fn the_cheapest_cipher_and_group_are_asked_for_first() {
    let scene = Scene::new();
    let server = origin(&scene, &["a.example"], false, &[]);
    let mut upstream = upstream("https://a.example");
    upstream.tls.ca = Some(scene.ca());
    let side = ClientSide::load(&upstream).unwrap().unwrap();
    let connected = connect(&server, &side.config(), "a.example").unwrap();
    let suite = connected.client.negotiated_cipher_suite();
    assert_eq!(suite, Some(cipher_suite::TLS13_AES_128_GCM_SHA256));
    let group = connected.client.negotiated_key_exchange_group().map(SupportedKxGroup::name);
    assert_eq!(group, Some(NamedGroup::X25519));
    assert_eq!(connected.client.handshake_kind(), Some(HandshakeKind::Full));
}
