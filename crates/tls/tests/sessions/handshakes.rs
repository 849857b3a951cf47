//! Handshakes with any split of their bytes, data right behind them, and refusals.

use std::sync::Arc;

use config::{CertificateFiles, Certificates, KeyPair, Listener, ListenerTls, UnknownNames};
use proptest::prelude::*;
use rustls::{AlertDescription, ClientConnection, Connection, Error};
use tls::{Handshake, ServerSide, TlsRole};

use super::ends::{Configs, DATA, HANDSHAKE, Ours, Outcome, ROLES, SUITES, TLS12, TLS13, gives, said, takes};

#[test]
fn any_split_of_the_bytes_does() {
    for &suite in SUITES {
        let configs = Configs::new(suite);
        for role in ROLES {
            for piece_len in [1, 4, 5, 6, 100, 1000, usize::MAX] {
                let mut ends = configs.connect(role, piece_len);
                let bytes = said(&mut ends.theirs, b"hello");
                let read = ends.ours.gets(&bytes);
                assert_eq!(read, Ok((b"hello".to_vec(), Outcome::Open)), "{suite:?} {role:?} {piece_len}");
                assert_eq!(ends.ours.says(&mut ends.theirs, b"hello").unwrap(), b"hello");
            }
        }
    }
}

#[test]
fn bytes_after_a_handshake_belong_to_the_session() {
    let configs = Configs::new(TLS13);
    let (mut handshake, mut theirs) = (configs.ours(TlsRole::Server), configs.theirs(TlsRole::Server));
    let (mut received, mut out) = (takes(&mut theirs), Vec::new());
    let advance = handshake.advance(&mut received, &mut out).unwrap();
    received.drain(..advance.consumed);
    gives(&mut theirs, &std::mem::take(&mut out)).unwrap();
    // A request, a key update, more of the request and the end, in one piece with the handshake's last message.
    received.extend(said(&mut theirs, b"GET "));
    theirs.refresh_traffic_keys().unwrap();
    received.extend(said(&mut theirs, b"/"));
    theirs.send_close_notify();
    received.extend(takes(&mut theirs));
    let advance = handshake.advance(&mut received, &mut out).unwrap();
    assert!(advance.is_done);
    received.drain(..advance.consumed);
    let mut ours = Ours { session: handshake.finish().unwrap().0, received };
    assert_eq!(ours.reads(), Ok((b"GET /".to_vec(), Outcome::Closed)));
    gives(&mut theirs, &out).unwrap();
    // Our own key update was requested, and is sent.
    assert_eq!(ours.says(&mut theirs, b"200").unwrap(), b"200");
}

/// A plaintext record.
fn unsealed(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

#[test]
fn a_hello_in_parts_is_put_together_and_nothing_may_come_between() {
    let configs = Configs::new(TLS13);
    let hello = takes(&mut configs.theirs(TlsRole::Server));
    let hello = &hello[5..];
    let mut out = Vec::new();
    let mut handshake = configs.ours(TlsRole::Server);
    let mut received: Vec<u8> = hello.chunks(50).flat_map(|part| unsealed(HANDSHAKE, part)).collect();
    handshake.advance(&mut received, &mut out).unwrap();
    assert!(out.len() > 200, "it is answered");

    for (kind, content) in [(DATA, &b"a"[..]), (21, &[1, 0]), (99, b"a"), (HANDSHAKE, b"")] {
        let mut received = [unsealed(HANDSHAKE, &hello[..50]), unsealed(kind, content)].concat();
        let refused = configs.ours(TlsRole::Server).advance(&mut received, &mut Vec::new());
        assert!(refused.is_err(), "{kind}");
    }
}

#[test]
fn other_protocols_are_refused_with_an_alert() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x80, 0x2e, 1, 3, 1, 0, 0, 0, 0, 0],
        &[22, 3, 1, 0xff, 0xff, 1],
        &unsealed(HANDSHAKE, &[2, 0, 0, 1, 0]),
        &unsealed(HANDSHAKE, &[1, 0, 0, 1, 0]),
        &unsealed(DATA, b"hello"),
    ] {
        for role in ROLES {
            let configs = Configs::new(TLS12);
            let mut handshake = configs.ours(role);
            let mut out = Vec::new();
            handshake.advance(&mut [], &mut out).unwrap();
            out.clear();
            assert!(handshake.advance(&mut bytes.to_vec(), &mut out).is_err(), "{role:?} {bytes:?}");
            assert_eq!(out[..6], [21, 3, 3, 0, 2, 2], "{role:?} {bytes:?}: {out:?}");
        }
    }
}

#[test]
fn a_stranger_hears_why_we_do_not_believe_it() {
    for suite in [TLS13, TLS12] {
        let (configs, others) = (Configs::new(suite), Configs::new(suite));
        // Another name.
        let name = "b.example".try_into().unwrap();
        let mut handshake = Handshake::client(Arc::clone(&configs.client), name).unwrap();
        let mut theirs = others.theirs(TlsRole::Client);
        let (mut received, mut out) = (Vec::new(), Vec::new());
        let refused = loop {
            let advance = handshake.advance(&mut received, &mut out);
            let told = gives(&mut theirs, &std::mem::take(&mut out));
            match advance {
                Ok(advance) => received.drain(..advance.consumed),
                Err(error) => break (error, told.unwrap_err()),
            };
            received.extend(takes(&mut theirs));
        };
        assert!(tls::reason(&refused.0, "tls").contains("tls.name"), "{:?}", refused.0);
        assert_eq!(refused.1, Error::AlertReceived(AlertDescription::BadCertificate), "{suite:?}");
    }
}

#[test]
fn an_unknown_name_is_refused_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = ListenerTls {
        unknown_names: UnknownNames::Refuse,
        ..ListenerTls::new(Certificates::Files(vec![CertificateFiles {
            pair: KeyPair::new(cert, key),
            ocsp: None,
            names: Vec::new(),
        }]))
    };
    let listener = Listener { tls: Some(tls), ..Listener::plain(([127, 0, 0, 1], 0).into()) };
    let side = ServerSide::load(&listener).unwrap().unwrap();
    for suite in [TLS13, TLS12] {
        let mut client = rustls::ClientConfig::clone(&Configs::new(suite).client);
        for (name, has_name, alert) in [
            ("b.example", true, Some(AlertDescription::UnrecognisedName)),
            ("b.example", false, Some(AlertDescription::MissingExtension)),
            ("a.example", true, None),
        ] {
            client.enable_sni = has_name;
            let client = Arc::new(client.clone());
            let mut theirs: Connection =
                ClientConnection::new(client, name.try_into().unwrap()).unwrap().into();
            let mut handshake = Handshake::server(side.config()).unwrap();
            let mut out = Vec::new();
            let advance = handshake.advance(&mut takes(&mut theirs), &mut out);
            assert_eq!(advance.is_err(), alert.is_some(), "{suite:?} {name}");
            let told = gives(&mut theirs, &out).err();
            match alert {
                Some(alert) => assert_eq!(told, Some(Error::AlertReceived(alert)), "{suite:?} {name}"),
                // It does not accept a self-signed certificate.
                None => assert!(matches!(told, Some(Error::InvalidCertificate(_))), "{told:?}"),
            }
        }
    }
}

#[test]
fn our_order_of_ciphers_decides() {
    use rustls::CipherSuite as Suite;
    use rustls::crypto::aws_lc_rs::{DEFAULT_CIPHER_SUITES, default_provider};
    let listener = Listener {
        tls: Some(ListenerTls::new(Certificates::SelfSigned)),
        ..Listener::plain(([127, 0, 0, 1], 0).into())
    };
    let side = ServerSide::load(&listener).unwrap().unwrap();
    for (version, chosen) in [
        (&rustls::version::TLS13, Suite::TLS13_AES_256_GCM_SHA384),
        (&rustls::version::TLS12, Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ] {
        for is_reversed in [false, true] {
            let mut suites = DEFAULT_CIPHER_SUITES.to_vec();
            if is_reversed {
                suites.reverse();
            }
            let provider = rustls::crypto::CryptoProvider { cipher_suites: suites, ..default_provider() };
            let client = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
            let client = client.with_protocol_versions(&[version]).unwrap();
            let client = client.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
            let name = "localhost".try_into().unwrap();
            let mut theirs: Connection = ClientConnection::new(Arc::new(client), name).unwrap().into();
            let mut out = Vec::new();
            Handshake::server(side.config()).unwrap().advance(&mut takes(&mut theirs), &mut out).unwrap();
            // It rejects the certificate, but has agreed on a cipher before.
            gives(&mut theirs, &out).unwrap_err();
            assert_eq!(theirs.negotiated_cipher_suite().map(|suite| suite.suite()), Some(chosen));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_at_all_end_in_a_panic(
        is_server in any::<bool>(),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
        framed in prop::collection::vec(20_u8..25, 8),
    ) {
        let configs = Configs::new(TLS13);
        let mut handshake = configs.ours(if is_server { TlsRole::Server } else { TlsRole::Client });
        let (mut received, mut out) = (Vec::new(), Vec::new());
        for (piece, kind) in pieces.iter().zip(framed) {
            received.extend(unsealed(kind, piece));
            match handshake.advance(&mut received, &mut out) {
                Ok(advance) => { received.drain(..advance.consumed); }
                Err(_) => break,
            }
        }
    }
}
