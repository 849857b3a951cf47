//! Automatic certificates: challenges are answered whatever else is configured, and a listener has a certificate before
//! the first one is issued.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, DigitallySignedStruct, Error, SignatureScheme};
use testkit::scene::{BOTH, BodylessRequest, Scene, get};
use testkit::tls::{TestAuthority, TlsEnd, TlsEnding};

/// No program listens at this authority's address.
const ACME: &str = "\
[[listen]]
address = \"127.0.0.1:0\"
redirect_to_https = true

[[listen]]
address = \"127.0.0.1:0\"
tls = { certificates = \"auto\" }

[acme]
directory = \"https://127.0.0.1:1/directory\"
folder = \"{dir}/acme\"

[[route]]
host = \"a.example\"
deny = [\"127.0.0.0/8\"]
maintenance = true
upstream = \"app\"

[upstream.app]
servers = [\"http://{0}\"]
";

/// Accepts every certificate, like an authority that examines a challenge's certificate itself.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn asked<'a>(target: &'a str, host: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { host, ..get(target) }
}

#[test]
fn a_challenge_is_answered_before_redirects_and_policies() {
    let scene = Scene::new(ACME);
    let path = "/.well-known/acme-challenge/token-1";
    for spoken in BOTH {
        let redirected = scene.answer(spoken, &asked(path, "a.example"));
        assert_eq!(redirected.status, 308, "nobody has asked for anything yet");
        let answered = scene.running().challenges().answer_file("token-1", "token-1.print");
        // Also for a host without a route, because another name may redirect here.
        for host in ["a.example", "b.example"] {
            let got = scene.answer(spoken, &asked(path, host));
            assert_eq!((got.status, got.body.as_str()), (200, "token-1.print"), "{host}");
        }
        let other = scene.answer(spoken, &asked("/.well-known/acme-challenge/token-2", "a.example"));
        assert_eq!(other.status, 308, "another's challenge may be answered behind");
        drop(answered);
        assert_eq!(scene.answer(spoken, &asked(path, "a.example")).status, 308);
    }
}

#[test]
fn an_authority_gets_the_certificate_of_its_challenge_and_others_do_not() {
    let scene = Scene::new(ACME);
    let address = scene.running().addresses()[1];
    let connect = || std::net::TcpStream::connect(address).expect("the proxy listens");
    let authority = TestAuthority::new();
    for version in [&TLS13, &TLS12] {
        let client = |protocols: &[&str]| {
            let mut client = authority.client(&[version]);
            client.dangerous().set_certificate_verifier(Arc::new(Anybody));
            client.resumption = Resumption::disabled();
            client.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
            Arc::new(client)
        };
        let shown = |protocols: &[&str]| {
            let mut end = TlsEnd::client(connect(), &client(protocols), "a.example");
            end.shakes_hands().map(|_| end.tls().peer_certificates().expect("one is shown")[0].to_vec())
        };
        let refused = shown(&["acme-tls/1"]).expect_err("nobody has asked for anything yet");
        assert!(
            matches!(refused, TlsEnding::Refused(Error::AlertReceived(AlertDescription::UnrecognisedName))),
            "{refused:?}"
        );
        let digest = [7; 32];
        let answered =
            scene.running().challenges().answer_handshake("a.example", &digest).expect("it is made");
        let of_challenge = shown(&["acme-tls/1"]).expect("it is answered");
        assert!(of_challenge.windows(32).any(|window| window == digest), "it has the digest");
        for protocols in [&["h2", "acme-tls/1"][..], &["http/1.1"], &[]] {
            let usual = shown(protocols).expect("it is answered");
            assert_ne!(usual, of_challenge, "{protocols:?}");
        }
        // RFC 8737 §3: no application data is exchanged.
        let mut end = TlsEnd::client(connect(), &client(&["acme-tls/1"]), "a.example");
        end.shakes_hands().expect("it is answered");
        end.sends("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let (said, _) = end.rest();
        assert_eq!(said, b"");
        drop(answered);
    }
}
