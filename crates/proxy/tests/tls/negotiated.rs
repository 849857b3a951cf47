//! Configured versions, cipher suites and groups, with clients and servers.

use std::sync::Arc;

use config::{Negotiation, TlsCipher, TlsGroup, TlsPreset, TlsVersion};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, Error, NamedGroup, ProtocolVersion, ServerConfig,
    SupportedCipherSuite, SupportedProtocolVersion,
};
use testkit::tls::{TestAuthority, TlsEnd, TlsEnding};

use super::openssl::client;
use super::scene::{Scene, listener_tls};

fn scene(negotiation: &Negotiation) -> Scene {
    Scene::with(|config, _| listener_tls(config).negotiation = negotiation.clone())
}

fn modern() -> Negotiation {
    Negotiation { preset: Some(TlsPreset::Modern), ..Negotiation::default() }
}

fn intermediate() -> Negotiation {
    Negotiation { preset: Some(TlsPreset::Intermediate), ..Negotiation::default() }
}

/// Returns what a client with these versions, suites and groups negotiates with the proxy.
fn agreed(
    scene: &Scene,
    versions: &[&'static SupportedProtocolVersion],
    suites: &[SupportedCipherSuite],
    groups: &[&'static dyn SupportedKxGroup],
) -> Result<(ProtocolVersion, CipherSuite, NamedGroup), TlsEnding> {
    let provider =
        CryptoProvider { cipher_suites: suites.to_vec(), kx_groups: groups.to_vec(), ..default_provider() };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(scene.authority.own_certificate().clone()).expect("is a CA");
    let builder = builder.with_protocol_versions(versions).expect("suites fit the versions");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let mut end = TlsEnd::client(scene.connect(), &Arc::new(config), "a.example");
    end.shakes_hands()?;
    let tls = end.tls();
    let group = tls.negotiated_key_exchange_group().expect("each has one").name();
    let suite = tls.negotiated_cipher_suite().expect("each has one").suite();
    Ok((tls.protocol_version().expect("each has one"), suite, group))
}

const CHACHA20: SupportedCipherSuite = cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
const AES_128: SupportedCipherSuite = cipher_suite::TLS13_AES_128_GCM_SHA256;
const OF_TLS12: SupportedCipherSuite = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;

#[test]
fn versions_are_limited_from_below_and_from_above() {
    let highest = Negotiation { max_version: Some(TlsVersion::Tls12), ..Negotiation::default() };
    let lowest = Negotiation { min_version: Some(TlsVersion::Tls13), ..Negotiation::default() };
    for (negotiation, has_tls12, has_tls13) in [
        (Negotiation::default(), true, true),
        (intermediate(), true, true),
        (modern(), false, true),
        (lowest, false, true),
        (highest, true, false),
        (Negotiation { min_version: Some(TlsVersion::Tls12), ..modern() }, true, true),
    ] {
        let scene = scene(&negotiation);
        for (version, suite, is_permitted) in [(&TLS12, OF_TLS12, has_tls12), (&TLS13, AES_128, has_tls13)] {
            match agreed(&scene, &[version], &[suite], &[kx_group::X25519]) {
                Ok((agreed, ..)) => {
                    assert!(is_permitted && agreed == version.version, "{negotiation:?} {agreed:?}");
                }
                // RFC 8446 §4.2.1.
                Err(ending) => {
                    let alert = Error::AlertReceived(AlertDescription::ProtocolVersion);
                    assert!(
                        !is_permitted && matches!(&ending, TlsEnding::Refused(error) if *error == alert),
                        "{negotiation:?} {version:?} {ending:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_preset_leaves_the_order_to_the_client_and_a_list_does_not() {
    let list = vec![TlsCipher::TLS_AES_128_GCM_SHA256, TlsCipher::TLS_CHACHA20_POLY1305_SHA256];
    let listed =
        Negotiation { min_version: Some(TlsVersion::Tls13), ciphers: Some(list), ..Negotiation::default() };
    for (negotiation, chosen) in [
        (Negotiation::default(), CipherSuite::TLS13_AES_128_GCM_SHA256),
        (modern(), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
        (intermediate(), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
        (listed, CipherSuite::TLS13_AES_128_GCM_SHA256),
    ] {
        let scene = scene(&negotiation);
        let (_, suite, _) = agreed(&scene, &[&TLS13], &[CHACHA20, AES_128], &[kx_group::X25519])
            .unwrap_or_else(|ending| panic!("{negotiation:?}: {ending:?}"));
        assert_eq!(suite, chosen, "{negotiation:?}");
    }
}

#[test]
fn suites_and_groups_outside_of_the_lists_are_refused() {
    let negotiation = Negotiation {
        ciphers: Some(vec![
            TlsCipher::TLS_CHACHA20_POLY1305_SHA256,
            TlsCipher::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ]),
        groups: Some(vec![TlsGroup::Secp384r1, TlsGroup::X25519MlKem768]),
        ..Negotiation::default()
    };
    let scene = scene(&negotiation);
    let groups: &[&dyn SupportedKxGroup] = &[kx_group::X25519, kx_group::SECP384R1];
    for (version, suites, groups, expected) in [
        (&TLS13, [AES_128, CHACHA20], groups, Some(NamedGroup::secp384r1)),
        (&TLS13, [AES_128, AES_128], groups, None),
        (&TLS13, [CHACHA20, CHACHA20], &groups[..1], None),
        (&TLS13, [CHACHA20, CHACHA20], &[kx_group::X25519MLKEM768], Some(NamedGroup::X25519MLKEM768)),
        (&TLS12, [OF_TLS12, OF_TLS12], groups, None),
        (
            &TLS12,
            [OF_TLS12, cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384],
            groups,
            Some(NamedGroup::secp384r1),
        ),
    ] {
        let agreed = agreed(&scene, &[version], &suites, groups);
        match (agreed, expected) {
            (Ok((_, _, group)), Some(expected)) => assert_eq!(group, expected),
            (Err(TlsEnding::Refused(error)), None) => {
                // RFC 8446 §4.1.1.
                assert_eq!(error, Error::AlertReceived(AlertDescription::HandshakeFailure));
            }
            (other, expected) => panic!("{version:?} {suites:?}: {other:?}, expected {expected:?}"),
        }
    }
}

/// RFC 8446 §4.2.8: browsers send a share for each of two groups, the post-quantum one first.
#[test]
fn a_client_that_prefers_a_post_quantum_group_gets_it_in_one_round_trip() {
    for negotiation in [Negotiation::default(), modern(), intermediate()] {
        let scene = scene(&negotiation);
        let groups: &[&dyn SupportedKxGroup] = &[kx_group::X25519MLKEM768, kx_group::X25519];
        let (_, _, group) = agreed(&scene, &[&TLS13], &[AES_128], groups).expect("a handshake");
        assert_eq!(group, NamedGroup::X25519MLKEM768, "{negotiation:?}");
    }
}

/// Returns what the proxy negotiates with a server of these groups.
fn agreed_with_server(
    negotiation: &Negotiation,
    version: &'static SupportedProtocolVersion,
    groups: &[&'static dyn SupportedKxGroup],
) -> (CipherSuite, NamedGroup, rustls::HandshakeKind) {
    let authority = TestAuthority::new();
    let issued = authority.issue(&["a.example"]);
    let provider = CryptoProvider { kx_groups: groups.to_vec(), ..default_provider() };
    let builder = ServerConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[version]).expect("it has suites of both");
    let builder = builder.with_no_client_auth();
    let key = issued.private_key();
    let tls = builder.with_single_cert(vec![issued.certificate.clone()], key).expect("they belong together");
    let scene =
        Scene::to_tls(authority, tls, |config, _| config.upstreams[0].tls.negotiation = negotiation.clone());
    let mut client = scene.client().asking("/");
    let mut server = scene.accept();
    server.message();
    server.answers(b"ok");
    assert_eq!(client.message().body, b"ok");
    let tls = server.tls();
    let suite = tls.negotiated_cipher_suite().expect("each has one").suite();
    let group = tls.negotiated_key_exchange_group().expect("each has one").name();
    (suite, group, tls.handshake_kind().expect("it is over"))
}

#[test]
fn servers_are_offered_what_the_upstream_says() {
    let both: &[&dyn SupportedKxGroup] = &[kx_group::X25519, kx_group::X25519MLKEM768];
    let hybrid = Negotiation {
        groups: Some(vec![TlsGroup::X25519MlKem768, TlsGroup::X25519]),
        ..Negotiation::default()
    };
    let (_, group, kind) = agreed_with_server(&Negotiation::default(), &TLS13, both);
    assert_eq!((group, kind), (NamedGroup::X25519, rustls::HandshakeKind::Full));
    for (groups, expected) in [(both, NamedGroup::X25519MLKEM768), (&both[..1], NamedGroup::X25519)] {
        let (_, group, kind) = agreed_with_server(&hybrid, &TLS13, groups);
        // Both shares are in the first message, so no server needs a HelloRetryRequest.
        assert_eq!((group, kind), (expected, rustls::HandshakeKind::Full));
    }
    let chosen = Negotiation {
        ciphers: Some(vec![TlsCipher::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]),
        max_version: Some(TlsVersion::Tls12),
        ..Negotiation::default()
    };
    let (suite, ..) = agreed_with_server(&chosen, &TLS12, both);
    assert_eq!(suite, CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256);
}

#[test]
fn openssl_meets_the_limits() {
    let scene_of = |negotiation: Negotiation| (scene(&negotiation), None);
    let (modern, mut server) = scene_of(modern());
    let Some(output) = client(&modern, &mut server, &["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"])
    else {
        return;
    };
    assert!(output.contains("New, TLSv1.3, Cipher is TLS_CHACHA20_POLY1305_SHA256"), "{output:.3000}");
    let (intermediate, mut server) = scene_of(intermediate());
    let flags = ["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384"];
    let output = client(&intermediate, &mut server, &flags).expect("openssl is there");
    assert!(output.contains("Cipher is ECDHE-ECDSA-CHACHA20-POLY1305"), "{output:.3000}");
}
