//! Clients that violate the protocol in their first messages: each gets the alert of RFC 8446 §6, and the next client
//! is served.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use config::{Action, ClientCertificates, ClientRule, Respond, Settings};
use route::FixedResponse;
use testkit::tls::{TestAuthority, TlsEnd};

use super::scene::{Scene, listener_tls};

/// RFC 8446 §6.
const UNEXPECTED_MESSAGE: u8 = 10;
const HANDSHAKE_FAILURE: u8 = 40;
const ILLEGAL_PARAMETER: u8 = 47;
const DECODE_ERROR: u8 = 50;
const PROTOCOL_VERSION: u8 = 70;
const MISSING_EXTENSION: u8 = 109;
/// An alert after ServerHello, which is encrypted.
const SEALED: u8 = 255;

/// RFC 8446 §4.2.
const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const SIGNATURES: u16 = 13;
const PROTOCOLS: u16 = 16;
const TICKET_KEYS: u16 = 41;
const VERSIONS: u16 = 43;
const KEY_MODES: u16 = 45;
const KEY_SHARE: u16 = 51;

/// The parts of a ClientHello, which a case changes.
#[derive(Clone)]
struct Hello {
    version: [u8; 2],
    session: Vec<u8>,
    ciphers: Vec<u8>,
    compressions: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
    behind: Vec<u8>,
}

impl Hello {
    /// A ClientHello that a TLS 1.3 server accepts.
    fn good() -> Self {
        let share = [&[0, 0x1d][..], &short(&[9; 32])].concat();
        Self {
            version: [3, 3],
            session: vec![5; 32],
            ciphers: vec![0x13, 1, 0x13, 2],
            compressions: vec![0],
            extensions: vec![
                (SERVER_NAME, short(&[&[0], &short(b"a.example")[..]].concat())),
                (VERSIONS, vec![2, 3, 4]),
                (GROUPS, short(&[0, 0x1d, 0, 0x17])),
                (SIGNATURES, short(&[4, 3, 8, 4])),
                (KEY_SHARE, short(&share)),
            ],
            behind: Vec::new(),
        }
    }

    fn of_tls12() -> Self {
        let good = Self::good();
        let extensions =
            good.extensions.into_iter().filter(|(kind, _)| ![VERSIONS, KEY_SHARE].contains(kind));
        Self { ciphers: vec![0xc0, 0x2b], extensions: extensions.collect(), ..Self::good() }
    }

    fn without(mut self, kind: u16) -> Self {
        self.extensions.retain(|(known, _)| *known != kind);
        self
    }

    fn with(mut self, kind: u16, content: Vec<u8>) -> Self {
        self = self.without(kind);
        self.extensions.push((kind, content));
        self
    }

    fn message(&self) -> Vec<u8> {
        let extensions = self
            .extensions
            .iter()
            .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &short(content)].concat());
        let body = [
            &self.version[..],
            &[7; 32],
            &[self.session.len() as u8],
            &self.session,
            &short(&self.ciphers),
            &[self.compressions.len() as u8],
            &self.compressions,
            &short(&extensions.collect::<Vec<u8>>()),
            &self.behind,
        ];
        message(1, &body.concat())
    }

    fn record(&self) -> Vec<u8> {
        record(22, &self.message())
    }
}

/// Prefixes bytes with a 16-bit length.
fn short(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("it is short").to_be_bytes(), bytes].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("it is short").to_be_bytes();
    [&[kind, len[1], len[2], len[3]], body].concat()
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &short(content)].concat()
}

/// Name, bytes, and expected alert of each case.
fn cases() -> Vec<(&'static str, Vec<u8>, u8)> {
    let good = Hello::good;
    let share = |group: [u8; 2], bytes: &[u8]| short(&[&group[..], &short(bytes)].concat());
    vec![
        ("an empty record", record(22, b""), DECODE_ERROR),
        // RFC 8446 §5.1 names record_overflow for it; rustls sends decode_error.
        ("a record of more than 2^14 + 2048 bytes", vec![22, 3, 1, 0x48, 1], DECODE_ERROR),
        ("a message of another kind", record(22, &message(2, &[0; 40])), UNEXPECTED_MESSAGE),
        ("a Finished", record(22, &message(20, &[0; 32])), UNEXPECTED_MESSAGE),
        ("application data", record(23, b"hello"), UNEXPECTED_MESSAGE),
        ("change_cipher_spec of two bytes", record(20, b"\x01\x01"), DECODE_ERROR),
        ("a message without a body", record(22, &message(1, b"")), DECODE_ERROR),
        ("a message that ends in the random", record(22, &message(1, &[3; 20])), DECODE_ERROR),
        ("bytes behind the extensions", Hello { behind: vec![0], ..good() }.record(), DECODE_ERROR),
        ("a session of 33 bytes", Hello { session: vec![1; 33], ..good() }.record(), DECODE_ERROR),
        ("half a cipher suite", Hello { ciphers: vec![0x13, 1, 0x13], ..good() }.record(), DECODE_ERROR),
        ("no cipher suites", Hello { ciphers: vec![], ..good() }.record(), DECODE_ERROR),
        ("unknown cipher suites", Hello { ciphers: vec![0x13, 0x99], ..good() }.record(), HANDSHAKE_FAILURE),
        (
            "ciphers of TLS 1.2 alone",
            Hello { ciphers: vec![0xc0, 0x2b], ..good() }.record(),
            HANDSHAKE_FAILURE,
        ),
        ("no compression methods", Hello { compressions: vec![], ..good() }.record(), DECODE_ERROR),
        ("compression alone", Hello { compressions: vec![1], ..good() }.record(), ILLEGAL_PARAMETER),
        (
            "an extension twice",
            {
                let mut hello = good();
                hello.extensions.push((GROUPS, short(&[0, 0x1d])));
                hello.record()
            },
            ILLEGAL_PARAMETER,
        ),
        ("an empty name", good().with(SERVER_NAME, short(&[0, 0, 0])).record(), DECODE_ERROR),
        (
            "a list of names that is too long",
            good().with(SERVER_NAME, vec![0, 9, 0, 0, 1, 97]).record(),
            DECODE_ERROR,
        ),
        // RFC 8446 §9.2 names missing_extension for these two; rustls cannot distinguish them from old TLS 1.2 clients.
        ("no groups", good().without(GROUPS).record(), HANDSHAKE_FAILURE),
        ("no signatures", good().without(SIGNATURES).record(), HANDSHAKE_FAILURE),
        ("no key share", good().without(KEY_SHARE).record(), MISSING_EXTENSION),
        ("unknown groups", good().with(GROUPS, short(&[0xfe, 0xfe])).record(), HANDSHAKE_FAILURE),
        ("unknown signatures", good().with(SIGNATURES, short(&[0xfe, 0xfe])).record(), SEALED),
        ("no groups in the list", good().with(GROUPS, short(&[])).record(), DECODE_ERROR),
        ("half a group", good().with(GROUPS, short(&[0])).record(), DECODE_ERROR),
        (
            "a share of 31 bytes",
            good().with(KEY_SHARE, share([0, 0x1d], &[9; 31])).record(),
            ILLEGAL_PARAMETER,
        ),
        (
            "a share of order 1",
            good().with(KEY_SHARE, share([0, 0x1d], &[0; 32])).record(),
            ILLEGAL_PARAMETER,
        ),
        (
            "a point that is on no curve",
            {
                good()
                    .with(GROUPS, short(&[0, 0x17]))
                    .with(KEY_SHARE, share([0, 0x17], &[&[4], &[1; 64][..]].concat()))
                    .record()
            },
            ILLEGAL_PARAMETER,
        ),
        (
            "two shares of a group",
            {
                let one = [&[0, 0x1d][..], &short(&[9; 32])].concat();
                good().with(KEY_SHARE, short(&[&one[..], &one].concat())).record()
            },
            ILLEGAL_PARAMETER,
        ),
        ("TLS 1.1", Hello { version: [3, 2], ..Hello::of_tls12() }.record(), PROTOCOL_VERSION),
        ("SSL 3.0", Hello { version: [3, 0], ..Hello::of_tls12() }.record(), PROTOCOL_VERSION),
        ("TLS 1.1 in the list of versions", good().with(VERSIONS, vec![2, 3, 2]).record(), PROTOCOL_VERSION),
        ("no versions in the list", good().with(VERSIONS, vec![0]).record(), DECODE_ERROR),
        ("half a version", good().with(VERSIONS, vec![1, 3]).record(), DECODE_ERROR),
        ("other protocols", good().with(PROTOCOLS, short(b"\x03foo")).record(), SEALED),
        ("an empty protocol", good().with(PROTOCOLS, short(b"\x02h2\0")).record(), DECODE_ERROR),
        ("no protocols in the list", good().with(PROTOCOLS, short(b"")).record(), DECODE_ERROR),
        (
            "a ticket that is not the last extension",
            {
                let ticket = [
                    short(&[&short(&[1; 40])[..], &[0; 4]].concat()),
                    short(&[&[32], &[2; 32][..]].concat()),
                ];
                good()
                    .with(KEY_MODES, vec![1, 1])
                    .with(TICKET_KEYS, ticket.concat())
                    .with(KEY_SHARE, share([0, 0x1d], &[9; 32]))
                    .record()
            },
            ILLEGAL_PARAMETER,
        ),
        (
            "a ticket without key exchange modes",
            {
                let ticket = [
                    short(&[&short(&[1; 40])[..], &[0; 4]].concat()),
                    short(&[&[32], &[2; 32][..]].concat()),
                ];
                good().with(TICKET_KEYS, ticket.concat()).record()
            },
            MISSING_EXTENSION,
        ),
        (
            "a hello of TLS 1.2 without groups in common",
            { Hello::of_tls12().with(GROUPS, short(&[0xfe, 0xfe])).record() },
            HANDSHAKE_FAILURE,
        ),
        (
            "a hello of TLS 1.2 with RSA alone",
            { Hello { ciphers: vec![0, 0x9c, 0, 0x2f], ..Hello::of_tls12() }.record() },
            HANDSHAKE_FAILURE,
        ),
        ("a hello behind a hello", [good().record(), good().record()].concat(), SEALED),
    ]
}

fn answers(config: &mut Settings) {
    let response = FixedResponse::new(204, "text/plain", "").expect("is a response");
    config.routes[0].action =
        Action::Respond(Respond { response: response.into(), status: None, body: None, file: None });
}

/// Returns the alert that ends a connection after these bytes; `None` if there is none.
fn alert(scene: &Scene, bytes: &[u8]) -> Option<u8> {
    let mut end = TlsEnd::plain(scene.connect());
    end.tcp.write_all(bytes).expect("the proxy takes it");
    let _ = end.tcp.shutdown(Shutdown::Write);
    let mut received = Vec::new();
    let _ = end.tcp.read_to_end(&mut received);
    let (mut rest, mut last) = (&received[..], None);
    while let Some((&[kind, _, _, high, low], behind)) = rest.split_first_chunk::<5>() {
        let (content, next) = behind.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
        match kind {
            21 => return content.get(1).copied(),
            // RFC 8446 §5.2: the type of an encrypted record is inside. An alert is shorter than any other message.
            23 => last = (content.len() == 2 + 1 + 16).then_some(SEALED),
            _ => last = None,
        }
        rest = next;
    }
    last
}

#[test]
fn malformed_hellos_get_the_alert_of_the_standard() {
    let clients = TestAuthority::new();
    let plain = Scene::with(|config, _| {
        config.timeouts.client_header = Duration::from_secs(1);
        answers(config);
    });
    // If names have rules, the ClientHello is read before the handshake begins, with the same results.
    let ruled = Scene::with(|config, _| {
        let required = ClientCertificates::Required(clients.file.clone().into());
        listener_tls(config).client_rules =
            vec![ClientRule { names: vec!["b.example".to_owned()], client_certificates: required }];
        answers(config);
    });
    let mut wrong = Vec::new();
    for (what, bytes, expected) in cases() {
        for (scene, kind) in [(&plain, "plain"), (&ruled, "ruled")] {
            let told = alert(scene, &bytes);
            if told != Some(expected) {
                wrong.push(format!("{what} ({kind}): {told:?}, expected {expected}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    // Each case has one error: the unmodified ClientHello is answered.
    for hello in [Hello::good(), Hello::of_tls12()] {
        for scene in [&plain, &ruled] {
            let mut end = TlsEnd::plain(scene.connect());
            end.tcp.write_all(&hello.record()).expect("the proxy takes it");
            let mut answer = [0; 6];
            end.tcp.read_exact(&mut answer).expect("it is answered");
            // ServerHello.
            assert_eq!((answer[0], answer[5]), (22, 2));
        }
    }
    for scene in [&plain, &ruled] {
        let mut client = scene.client().asking("/");
        assert!(client.head().starts_with("HTTP/1.1 204 "));
    }
}

/// Every truncated ClientHello times out, and each byte may have any other value.
#[test]
fn any_byte_of_a_hello_may_be_another() {
    let scene = Scene::with(|config, _| answers(config));
    let good = Hello::good().record();
    for at in (0..good.len()).step_by(3) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        let _ = alert(&scene, &bytes);
    }
    for len in (0..good.len()).step_by(7) {
        assert_eq!(alert(&scene, &good[..len]), None, "{len}");
    }
    let mut client = scene.client().asking("/");
    assert!(client.head().starts_with("HTTP/1.1 204 "));
}
