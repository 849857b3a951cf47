//! A TLS handshake without I/O: received bytes in, bytes to send out. rustls does the handshake, but does not see the
//! records behind it.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CipherSuite, CommonState, Error, HandshakeKind, PeerIncompatible, ProtocolVersion};

use crate::challenges::ACME_TLS;
use crate::quic::H3;
use crate::record;
use crate::session::{KeyRenewal, TlsSession};
use crate::store::{self, MISSING_EXTENSION};
use crate::trial;

pub struct Handshake {
    connection: TlsHandshake,
    /// Received bytes that rustls has seen but not consumed: whole records.
    seen: usize,
    /// The server name that a client requested (RFC 6066 §3).
    server_name: Option<Box<str>>,
    /// The local address of the client's connection.
    address: Option<IpAddr>,
}

enum TlsHandshake {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The result of one step of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// Received bytes that are processed: the caller removes them.
    pub consumed: usize,
    /// Whether the handshake is done. Then call `Handshake::finish`; the remaining bytes are for the session to
    /// decrypt.
    pub is_done: bool,
}

/// The proxy's role in a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRole {
    Server,
    Client,
}

impl Handshake {
    /// Starts a handshake with a client.
    ///
    /// # Errors
    /// The configuration cannot serve any client.
    pub fn server(config: Arc<rustls::ServerConfig>) -> Result<Self, rustls::Error> {
        let connection = TlsHandshake::Server(Box::new(UnbufferedServerConnection::new(config)?));
        Ok(Self { connection, seen: 0, server_name: None, address: None })
    }

    /// Sets the local address of the client's connection, which selects the certificate if the client requests no name.
    #[must_use]
    pub fn at(self, address: Option<IpAddr>) -> Self {
        Self { address, ..self }
    }

    /// Starts a handshake with the server `name`.
    ///
    /// # Errors
    /// The configuration cannot connect to any server.
    pub fn client(
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let connection = TlsHandshake::Client(Box::new(UnbufferedClientConnection::new(config, name)?));
        Ok(Self { connection, seen: 0, server_name: None, address: None })
    }

    /// The server name (SNI) that the client requested, if it was read. For a failed handshake.
    pub fn take_server_name(&mut self) -> Option<Box<str>> {
        self.server_name.take()
    }

    pub fn role(&self) -> TlsRole {
        match self.connection {
            TlsHandshake::Server(_) => TlsRole::Server,
            TlsHandshake::Client(_) => TlsRole::Client,
        }
    }

    /// Processes received bytes, and appends the bytes to send to `out`; after an error, these include the alert. The
    /// caller passes unprocessed bytes again, unchanged, with more bytes behind them.
    ///
    /// # Errors
    /// A protocol error of the peer, or no common parameters.
    pub fn advance(&mut self, received: &mut [u8], out: &mut Vec<u8>) -> Result<Advance, rustls::Error> {
        let mut consumed = 0;
        store::take_refusal();
        trial::take_failure();
        store::set_address(self.address);
        let mut end = self.next_record(received);
        loop {
            let step = self.step(&mut received[consumed..end], out);
            self.server_name = store::take_name().or(self.server_name.take());
            consumed += step.discard;
            self.seen = self.seen.saturating_sub(step.discard);
            match step.outcome {
                Ok(HandshakeStep::Again) => {}
                Ok(HandshakeStep::Blocked) if trial::take_failure() => {
                    // RFC 8446 §4.2.10: early data, which is skipped.
                    consumed += std::mem::take(&mut self.seen);
                    end = consumed + self.next_record(&received[consumed..]);
                }
                Ok(HandshakeStep::Blocked) if end < received.len() => {
                    end = consumed + self.next_record(&received[consumed..]);
                }
                Ok(HandshakeStep::Blocked) => return Ok(Advance { consumed, is_done: false }),
                Ok(HandshakeStep::Done) => return Ok(Advance { consumed, is_done: true }),
                Err(error) => {
                    self.last_words(&error, &mut received[consumed..end], out);
                    return Err(error);
                }
            }
        }
    }

    /// The end of the bytes that rustls may read: one record more at a time. Otherwise it would read beyond the
    /// handshake, and its answers to some of these records would be lost when its secrets are extracted.
    fn next_record(&mut self, received: &[u8]) -> usize {
        match record::len(&received[self.seen..]) {
            Some(len) if self.seen + len <= received.len() => {
                self.seen += len;
                self.seen
            }
            // rustls may already detect that this is no record, and consumes nothing of it.
            _ => received.len(),
        }
    }

    /// Both roles have different types with the same methods.
    fn step(&mut self, received: &mut [u8], out: &mut Vec<u8>) -> Stepped {
        match &mut self.connection {
            TlsHandshake::Server(connection) => step(connection.process_tls_records(received), out),
            TlsHandshake::Client(connection) => step(connection.process_tls_records(received), out),
        }
    }

    /// Appends the alert for an error, behind other bytes to send.
    fn last_words(&mut self, error: &Error, received: &mut [u8], out: &mut Vec<u8>) {
        // RFC 8446 §9.2.
        let is_without_share = *error == Error::PeerIncompatible(PeerIncompatible::KeyShareExtensionRequired);
        let alert = store::take_refusal().or(is_without_share.then_some(MISSING_EXTENSION));
        if let Some(alert) = alert {
            // rustls would send other alerts for these errors. All of them come before the server's keys, so the alert
            // is in plaintext.
            out.extend_from_slice(&record::unsealed_alert(alert));
            return;
        }
        // Without anything to send, rustls would continue to read.
        while self.has_more_to_send() && matches!(self.step(received, out).outcome, Ok(HandshakeStep::Again))
        {
        }
    }

    fn has_more_to_send(&self) -> bool {
        match &self.connection {
            TlsHandshake::Server(connection) => connection.wants_write(),
            TlsHandshake::Client(connection) => connection.wants_write(),
        }
    }

    /// Returns the encrypted session, and the results of the handshake.
    ///
    /// # Errors
    /// The handshake is not done, or the configuration does not allow extracting secrets.
    pub fn finish(self) -> Result<(TlsSession, Agreed), rustls::Error> {
        match self.connection {
            TlsHandshake::Server(connection) => {
                let agreed = Agreed { server_name: self.server_name, ..Agreed::from_common(&connection) };
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                let version = kernel.protocol_version();
                Ok((TlsSession::new(&secrets, version, KeyRenewal::Server(Box::new(kernel)))?, agreed))
            }
            TlsHandshake::Client(connection) => {
                let agreed = Agreed::from_common(&connection);
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                let version = kernel.protocol_version();
                Ok((TlsSession::new(&secrets, version, KeyRenewal::Client(Box::new(kernel)))?, agreed))
            }
        }
    }
}

struct Stepped {
    discard: usize,
    outcome: Result<HandshakeStep, rustls::Error>,
}

enum HandshakeStep {
    Again,
    Blocked,
    Done,
}

fn step<Data>(status: UnbufferedStatus<'_, '_, Data>, out: &mut Vec<u8>) -> Stepped {
    let outcome = status.state.map(|state| match state {
        ConnectionState::EncodeTlsData(data) => {
            encode(data, out);
            HandshakeStep::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            HandshakeStep::Again
        }
        ConnectionState::WriteTraffic(_) => HandshakeStep::Done,
        // rustls never sees data of the stream, and early data is never requested.
        _ => HandshakeStep::Blocked,
    });
    Stepped { discard: status.discard, outcome }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(wanted)) = data.encode(&mut []) {
        out.resize(start + wanted.required_size, 0);
        // Cannot fail: the buffer has the requested size.
        let _ = data.encode(&mut out[start..]);
    }
}

/// The parameters that a handshake negotiated.
#[derive(Debug, Clone)]
pub struct Agreed {
    /// Whether the version is TLS 1.3, in which a server's last messages are session tickets, for which no client
    /// waits.
    pub is_tls13: bool,
    /// The IANA name of the cipher suite, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: &'static str,
    /// The protocol that ALPN selected: `h3`, `h2`, `http/1.1` or `acme-tls/1`; empty if none.
    pub protocol: &'static str,
    /// The server name that the client requested (SNI, RFC 6066 §3), in lower case.
    pub server_name: Option<Box<str>>,
    /// Whether the client resumed a session.
    pub is_resumed: bool,
    /// The peer's own certificate, verified as configured.
    pub certificate: Option<CertificateDer<'static>>,
    /// The certificates that the peer sent behind it, up to the one that its trust anchor has signed.
    pub chain: Vec<CertificateDer<'static>>,
}

impl Agreed {
    /// Whether ALPN selected HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.protocol == "h2"
    }

    /// `TLSv1.3` or `TLSv1.2`.
    pub fn version(&self) -> &'static str {
        if self.is_tls13 { "TLSv1.3" } else { "TLSv1.2" }
    }

    pub(crate) fn from_common(common: &CommonState) -> Self {
        Self {
            is_tls13: common.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            cipher: common.negotiated_cipher_suite().map_or("", |suite| cipher_name(suite.suite())),
            protocol: match common.alpn_protocol() {
                Some(b"h3") => H3,
                Some(b"h2") => "h2",
                Some(b"http/1.1") => "http/1.1",
                Some(b"acme-tls/1") => ACME_TLS,
                _ => "",
            },
            server_name: None,
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate: common
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(|first| first.clone().into_owned()),
            chain: common
                .peer_certificates()
                .and_then(|all| all.get(1..))
                .map(|chain| chain.iter().map(|one| one.clone().into_owned()).collect())
                .unwrap_or_default(),
        }
    }
}

/// rustls has other names for the suites of TLS 1.3 (RFC 8446 §B.4).
fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or_default(),
    }
}
