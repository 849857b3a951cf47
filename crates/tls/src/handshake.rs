//! A handshake without its socket: bytes received in, bytes to be sent out. rustls does it, and is shown no byte of what
//! comes behind.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CipherSuite, CommonState, HandshakeKind, ProtocolVersion};

use crate::record;
use crate::session::{Renewal, Session};
use crate::store;
use crate::trial;

/// A handshake under way.
pub struct Handshake {
    connection: Connection,
    /// Bytes at the front of what was received, and not consumed, that rustls has seen: whole records.
    seen: usize,
    /// What a client has asked for (RFC 6066 §3).
    server_name: Option<Box<str>>,
}

enum Connection {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// Where a handshake stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// Bytes at the front of what was received that are done with.
    pub consumed: usize,
    /// Whether the handshake is over; `Handshake::finish` comes next, and what is left is for the session to open.
    pub is_done: bool,
}

/// Which side of a handshake is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// We accepted the connection.
    Server,
    /// We made it.
    Client,
}

impl Handshake {
    /// Towards a client.
    ///
    /// # Errors
    /// Where the configuration cannot serve any client.
    pub fn server(config: Arc<rustls::ServerConfig>) -> Result<Self, rustls::Error> {
        let connection = Connection::Server(Box::new(UnbufferedServerConnection::new(config)?));
        Ok(Self { connection, seen: 0, server_name: None })
    }

    /// Towards a server of this name.
    ///
    /// # Errors
    /// Where the configuration cannot talk to any server.
    pub fn client(
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let connection = Connection::Client(Box::new(UnbufferedClientConnection::new(config, name)?));
        Ok(Self { connection, seen: 0, server_name: None })
    }

    /// What a client has asked for, as far as that was read: of a handshake that is given up.
    pub fn take_server_name(&mut self) -> Option<Box<str>> {
        self.server_name.take()
    }

    /// Which side is ours.
    pub fn role(&self) -> Role {
        match self.connection {
            Connection::Server(_) => Role::Server,
            Connection::Client(_) => Role::Client,
        }
    }

    /// Takes in what was received, and appends to `out` what is to be sent: even beside an error, which the peer is told
    /// of. What is not consumed is to be given again, as it is left, with more behind it.
    ///
    /// # Errors
    /// What the peer did wrong, or what we could not agree on.
    pub fn advance(&mut self, received: &mut [u8], out: &mut Vec<u8>) -> Result<Advance, rustls::Error> {
        let mut consumed = 0;
        store::take_refusal();
        trial::take_failure();
        let mut end = self.next_record(received);
        loop {
            let step = self.step(&mut received[consumed..end], out);
            self.server_name = store::take_name().or(self.server_name.take());
            consumed += step.discard;
            self.seen = self.seen.saturating_sub(step.discard);
            match step.outcome {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) if trial::take_failure() => {
                    // RFC 8446 §4.2.10: early data, which is skipped.
                    consumed += std::mem::take(&mut self.seen);
                    end = consumed + self.next_record(&received[consumed..]);
                }
                Ok(Step::Blocked) if end < received.len() => {
                    end = consumed + self.next_record(&received[consumed..]);
                }
                Ok(Step::Blocked) => return Ok(Advance { consumed, is_done: false }),
                Ok(Step::Done) => return Ok(Advance { consumed, is_done: true }),
                Err(error) => {
                    self.last_words(&mut received[consumed..end], out);
                    return Err(error);
                }
            }
        }
    }

    /// Where rustls is to stop reading: it gets one record more at a time, for it would read beyond the handshake, and
    /// answer some of what comes there in ways that are lost when its secrets are taken.
    fn next_record(&mut self, received: &[u8]) -> usize {
        match record::len(&received[self.seen..]) {
            Some(len) if self.seen + len <= received.len() => {
                self.seen += len;
                self.seen
            }
            // It may say already that this is no record, and keeps nothing of it.
            _ => received.len(),
        }
    }

    /// The two roles are of two types with the same methods.
    fn step(&mut self, received: &mut [u8], out: &mut Vec<u8>) -> Stepped {
        match &mut self.connection {
            Connection::Server(connection) => step(connection.process_tls_records(received), out),
            Connection::Client(connection) => step(connection.process_tls_records(received), out),
        }
    }

    /// The alert that belongs to an error, behind what else was to be sent.
    fn last_words(&mut self, received: &mut [u8], out: &mut Vec<u8>) {
        if let Some(alert) = store::take_refusal() {
            // rustls says access_denied. Nothing is sealed yet: the server's certificate is chosen before its keys.
            out.extend_from_slice(&record::unsealed_alert(alert));
            return;
        }
        // Without anything to be sent, it would read on.
        while self.has_more_to_send() && matches!(self.step(received, out).outcome, Ok(Step::Again)) {}
    }

    fn has_more_to_send(&self) -> bool {
        match &self.connection {
            Connection::Server(connection) => connection.wants_write(),
            Connection::Client(connection) => connection.wants_write(),
        }
    }

    /// The running connection, and what was agreed on.
    ///
    /// # Errors
    /// Before the handshake is done, and where the configuration keeps secrets to itself.
    pub fn finish(self) -> Result<(Session, Agreed), rustls::Error> {
        match self.connection {
            Connection::Server(connection) => {
                let agreed = Agreed { server_name: self.server_name, ..Agreed::of(&connection) };
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                let version = kernel.protocol_version();
                Ok((Session::new(&secrets, version, Renewal::Server(Box::new(kernel)))?, agreed))
            }
            Connection::Client(connection) => {
                let agreed = Agreed::of(&connection);
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                let version = kernel.protocol_version();
                Ok((Session::new(&secrets, version, Renewal::Client(Box::new(kernel)))?, agreed))
            }
        }
    }
}

struct Stepped {
    discard: usize,
    outcome: Result<Step, rustls::Error>,
}

enum Step {
    Again,
    Blocked,
    Done,
}

fn step<Data>(status: UnbufferedStatus<'_, '_, Data>, out: &mut Vec<u8>) -> Stepped {
    let outcome = status.state.map(|state| match state {
        ConnectionState::EncodeTlsData(data) => {
            encode(data, out);
            Step::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Step::Again
        }
        ConnectionState::WriteTraffic(_) => Step::Done,
        // Nothing of the stream is shown to it, and early data is never asked for.
        _ => Step::Blocked,
    });
    Stepped { discard: status.discard, outcome }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(wanted)) = data.encode(&mut []) {
        out.resize(start + wanted.required_size, 0);
        // It is as large as it was asked to be.
        let _ = data.encode(&mut out[start..]);
    }
}

/// What a handshake agreed on.
#[derive(Debug, Clone)]
pub struct Agreed {
    /// Whether it is TLS 1.3, where a server's part ends with tickets that nobody waits for.
    pub is_tls13: bool,
    /// The cipher suite as the IANA names it, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: &'static str,
    /// What was chosen by ALPN: `h2` or `http/1.1`; empty where nothing was.
    pub protocol: &'static str,
    /// The host that a client has asked for (RFC 6066 §3), in lower case.
    pub server_name: Option<Box<str>>,
    /// Whether a session was resumed.
    pub is_resumed: bool,
    /// The peer's own certificate, verified as configured.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Agreed {
    /// Whether HTTP/2 was chosen by ALPN.
    pub fn is_http2(&self) -> bool {
        self.protocol == "h2"
    }

    /// The version of TLS as everybody writes it.
    pub fn version(&self) -> &'static str {
        if self.is_tls13 { "TLSv1.3" } else { "TLSv1.2" }
    }

    fn of(common: &CommonState) -> Self {
        Self {
            is_tls13: common.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            cipher: common.negotiated_cipher_suite().map_or("", |suite| cipher_name(suite.suite())),
            protocol: match common.alpn_protocol() {
                Some(b"h2") => "h2",
                Some(b"http/1.1") => "http/1.1",
                _ => "",
            },
            server_name: None,
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate: common
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(|first| first.clone().into_owned()),
        }
    }
}

/// Those of TLS 1.3 have names of their own in rustls (RFC 8446 §B.4).
fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or_default(),
    }
}
