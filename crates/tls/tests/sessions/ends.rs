//! Both ends of a connection: ours, and a rustls connection with its own buffers as the peer. Records that no library
//! would send are made by hand, with the peer's keys.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, Connection, ConnectionTrafficSecrets, Error, ProtocolVersion,
    RootCertStore, ServerConfig, ServerConnection, SupportedCipherSuite,
};
use tls::{Agreed, Alert, Handshake, OpenedRecord, PLAINTEXT_MAX, RECORD_MAX, TlsRole, TlsSession};

pub(crate) const SUITES: &[SupportedCipherSuite] = provider::ALL_CIPHER_SUITES;
pub(crate) const TLS13: SupportedCipherSuite = provider::cipher_suite::TLS13_AES_128_GCM_SHA256;
pub(crate) const TLS12: SupportedCipherSuite =
    provider::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
pub(crate) const TLS12_CHACHA: SupportedCipherSuite =
    provider::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
pub(crate) const ROLES: [TlsRole; 2] = [TlsRole::Server, TlsRole::Client];

/// A self-signed certificate for `a.example`.
struct Own {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

fn own(algorithm: &'static rcgen::SignatureAlgorithm) -> Own {
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    Own { certificate: parameters.self_signed(&key).unwrap().der().clone(), key: key.serialize_der() }
}

static ECDSA: LazyLock<Own> = LazyLock::new(|| own(&rcgen::PKCS_ECDSA_P256_SHA256));
static RSA: LazyLock<Own> = LazyLock::new(|| own(&rcgen::PKCS_RSA_SHA256));

/// The configurations of both ends.
pub(crate) struct Configs {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Configs {
    /// For one suite, whose name determines the kind of the key.
    pub(crate) fn new(suite: SupportedCipherSuite) -> Self {
        let is_rsa = format!("{:?}", suite.suite()).contains("RSA_WITH") && !is_ecdsa(suite);
        let own = if is_rsa { &RSA } else { &ECDSA };
        let crypto = Arc::new(CryptoProvider { cipher_suites: vec![suite], ..provider::default_provider() });
        let versions = [suite.version()];
        let mut roots = RootCertStore::empty();
        roots.add(own.certificate.clone()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&crypto));
        let server = server.with_protocol_versions(&versions).unwrap().with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(own.key.clone().into());
        let mut server = server.with_single_cert(vec![own.certificate.clone()], key).unwrap();
        server.enable_secret_extraction = true;
        server.ticketer = provider::Ticketer::new().unwrap();
        let client = ClientConfig::builder_with_provider(crypto);
        let client = client.with_protocol_versions(&versions).unwrap();
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        client.enable_secret_extraction = true;
        Self { server: Arc::new(server), client: Arc::new(client) }
    }

    pub(crate) fn ours(&self, role: TlsRole) -> Handshake {
        match role {
            TlsRole::Server => Handshake::server(Arc::clone(&self.server)).unwrap(),
            TlsRole::Client => Handshake::client(Arc::clone(&self.client), name()).unwrap(),
        }
    }

    /// The peer of our end.
    pub(crate) fn theirs(&self, role: TlsRole) -> Connection {
        match role {
            TlsRole::Server => ClientConnection::new(Arc::clone(&self.client), name()).unwrap().into(),
            TlsRole::Client => ServerConnection::new(Arc::clone(&self.server)).unwrap().into(),
        }
    }

    /// Both ends after their handshake. Our end got its bytes in pieces of this length.
    pub(crate) fn connect(&self, role: TlsRole, piece_len: usize) -> Ends {
        let (mut handshake, mut theirs) = (self.ours(role), self.theirs(role));
        let (mut received, mut out) = (Vec::new(), Vec::new());
        let mut incoming = VecDeque::new();
        loop {
            let advance = handshake.advance(&mut received, &mut out).unwrap();
            received.drain(..advance.consumed);
            gives(&mut theirs, &std::mem::take(&mut out)).unwrap();
            incoming.extend(takes(&mut theirs));
            if advance.is_done {
                break;
            }
            assert!(!incoming.is_empty(), "both ends wait");
            let count = incoming.len().min(piece_len);
            received.extend(incoming.drain(..count));
        }
        let (session, agreed) = handshake.finish().unwrap();
        received.extend(incoming);
        Ends { ours: Ours { session, received }, agreed, theirs }
    }
}

fn is_ecdsa(suite: SupportedCipherSuite) -> bool {
    format!("{:?}", suite.suite()).contains("ECDSA")
}

pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("a.example").unwrap()
}

/// Both ends after the handshake.
pub(crate) struct Ends {
    pub(crate) ours: Ours,
    pub(crate) agreed: Agreed,
    pub(crate) theirs: Connection,
}

pub(crate) fn connect(suite: SupportedCipherSuite, role: TlsRole) -> Ends {
    Configs::new(suite).connect(role, usize::MAX)
}

impl Ends {
    /// Our end, and the peer's keys to make records with.
    pub(crate) fn forged(self) -> (Ours, Forger) {
        let Self { mut ours, theirs, .. } = self;
        assert_eq!(ours.reads().unwrap(), (Vec::new(), Outcome::Open));
        let version = theirs.protocol_version().unwrap();
        let secrets = theirs.dangerous_extract_secrets().unwrap();
        (ours, Forger::new(secrets.tx.0, &secrets.tx.1, version))
    }
}

/// Our end and its received bytes.
pub(crate) struct Ours {
    pub(crate) session: TlsSession,
    pub(crate) received: Vec<u8>,
}

/// The state of our end after reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Open,
    Closed,
    Aborted(u8),
}

impl Ours {
    /// Reads everything that has arrived.
    pub(crate) fn reads(&mut self) -> Result<(Vec<u8>, Outcome), Alert> {
        let mut data = Vec::new();
        let mut out = vec![0; RECORD_MAX];
        loop {
            match self.session.open(&self.received, &mut out)? {
                OpenedRecord::Partial => return Ok((data, Outcome::Open)),
                OpenedRecord::NoRoom(room) => panic!("no record needs {room}"),
                OpenedRecord::Data { consumed, data: count } => {
                    data.extend_from_slice(&out[..count]);
                    self.received.drain(..consumed);
                }
                OpenedRecord::Closed => return Ok((data, Outcome::Closed)),
                OpenedRecord::Aborted(alert) => return Ok((data, Outcome::Aborted(alert))),
            }
        }
    }

    pub(crate) fn gets(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, Outcome), Alert> {
        self.received.extend_from_slice(bytes);
        self.reads()
    }

    pub(crate) fn seals(&mut self, plaintext: &[u8], first: usize) -> Vec<u8> {
        let mut out = vec![0; TlsSession::sealed_len_max(plaintext.len())];
        let len = self.session.seal(plaintext, first, &mut out).unwrap();
        out.truncate(len);
        out
    }

    pub(crate) fn says(&mut self, theirs: &mut Connection, plaintext: &[u8]) -> Result<Vec<u8>, Error> {
        let sealed = self.seals(plaintext, PLAINTEXT_MAX);
        gives(theirs, &sealed)
    }
}

/// Gives bytes to the peer. Returns the data that it reads.
pub(crate) fn gives(theirs: &mut Connection, mut bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    while !bytes.is_empty() {
        theirs.read_tls(&mut bytes).unwrap();
        let state = theirs.process_new_packets()?;
        let mut piece = vec![0; state.plaintext_bytes_to_read()];
        theirs.reader().read_exact(&mut piece).unwrap();
        data.extend(piece);
    }
    Ok(data)
}

/// All bytes that the peer has to send.
pub(crate) fn takes(theirs: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while theirs.wants_write() {
        theirs.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// The peer's records for this plaintext.
pub(crate) fn said(theirs: &mut Connection, plaintext: &[u8]) -> Vec<u8> {
    theirs.set_buffer_limit(None);
    theirs.writer().write_all(plaintext).unwrap();
    takes(theirs)
}

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

/// Makes records of every kind with the peer's keys.
pub(crate) struct Forger {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    is_tls13: bool,
    is_gcm: bool,
}

impl Forger {
    pub(crate) fn new(sequence: u64, secrets: &ConnectionTrafficSecrets, version: ProtocolVersion) -> Self {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => panic!("a cipher that is not spoken"),
        };
        Self {
            key: LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).unwrap()),
            iv: iv.as_ref().try_into().unwrap(),
            sequence,
            is_tls13: version == ProtocolVersion::TLSv1_3,
            is_gcm: algorithm != &CHACHA20_POLY1305,
        }
    }

    pub(crate) fn record(&mut self, kind: u8, plaintext: &[u8]) -> Vec<u8> {
        self.padded(kind, plaintext, 0)
    }

    /// `record` with zeros behind the type, which TLS 1.3 allows.
    pub(crate) fn padded(&mut self, kind: u8, plaintext: &[u8], padding: usize) -> Vec<u8> {
        let mut nonce = self.iv;
        let sequence = self.sequence.to_be_bytes();
        nonce[4..].iter_mut().zip(sequence).for_each(|(byte, of_sequence)| *byte ^= of_sequence);
        self.sequence += 1;
        let mut sealed = plaintext.to_vec();
        let sent = if self.is_gcm && !self.is_tls13 { &nonce[4..] } else { &[] };
        let header = |kind: u8, len: usize| {
            let len = u16::try_from(len).unwrap().to_be_bytes();
            [kind, 3, 3, len[0], len[1]]
        };
        let (outer, associated) = if self.is_tls13 {
            sealed.push(kind);
            sealed.resize(sealed.len() + padding, 0);
            (DATA, header(DATA, sealed.len() + 16).to_vec())
        } else {
            assert_eq!(padding, 0, "TLS 1.2 with these ciphers has no padding");
            (kind, [&sequence[..], &header(kind, plaintext.len())].concat())
        };
        let nonce_of_record = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_of_record, Aad::from(associated), &mut sealed).unwrap();
        [&header(outer, sent.len() + sealed.len())[..], sent, &sealed].concat()
    }
}
