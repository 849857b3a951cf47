//! A TLS connection without its socket: bytes received in, bytes to be sent out. rustls does the handshake and keeps the
//! secrets; records of the running connection are sealed and opened here, between the caller's own buffers.

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CommonState, ExtractedSecrets, HandshakeKind, ProtocolVersion};

use crate::record::{Alert, ContentType, Front, OVERHEAD_MAX, Opener, PLAINTEXT_MAX, Sealer};

/// Records in a row that carry no byte of the stream: more is a peer that wastes our time.
const IDLE_RECORDS_MAX: u32 = 32;
/// A message after the handshake; a ticket may be long, nothing else is.
const MESSAGE_MAX: usize = 64 * 1024;
/// RFC 8446 §4: message types that follow a handshake.
const HELLO_REQUEST: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// A handshake under way.
pub struct Handshake(Role<Box<UnbufferedServerConnection>, Box<UnbufferedClientConnection>>);

enum Role<S, C> {
    Server(S),
    Client(C),
}

/// Where a handshake stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// Bytes at the front of what was received that are done with.
    pub consumed: usize,
    /// Whether the handshake is over; `Handshake::finish` comes next, once all has been sent.
    pub is_done: bool,
}

impl Handshake {
    /// Towards a client.
    ///
    /// # Errors
    /// Where the configuration cannot serve any client.
    pub fn server(config: Arc<rustls::ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self(Role::Server(Box::new(UnbufferedServerConnection::new(config)?))))
    }

    /// Towards a server of this name.
    ///
    /// # Errors
    /// Where the configuration cannot talk to any server.
    pub fn client(
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        Ok(Self(Role::Client(Box::new(UnbufferedClientConnection::new(config, name)?))))
    }

    /// Takes in what was received, and appends to `out` what is to be sent: even beside an error, which the peer is told
    /// of. Bytes of the stream that came right behind the handshake are appended to `early`.
    ///
    /// # Errors
    /// What the peer did wrong, or what we could not agree on.
    pub fn advance(
        &mut self,
        received: &mut [u8],
        out: &mut Vec<u8>,
        early: &mut Vec<u8>,
    ) -> Result<Advance, rustls::Error> {
        let mut consumed = 0;
        loop {
            let received = &mut received[consumed..];
            // The two roles are of two types with the same methods.
            let step = match &mut self.0 {
                Role::Server(connection) => step(connection.process_tls_records(received), out, early),
                Role::Client(connection) => step(connection.process_tls_records(received), out, early),
            };
            consumed += step.discard;
            match step.outcome {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return Ok(Advance { consumed, is_done: false }),
                Ok(Step::Done) => return Ok(Advance { consumed, is_done: true }),
                Err(error) => {
                    self.last_words(out, early);
                    return Err(error);
                }
            }
        }
    }

    /// The alert that belongs to an error.
    fn last_words(&mut self, out: &mut Vec<u8>, early: &mut Vec<u8>) {
        let step = match &mut self.0 {
            Role::Server(connection) => step(connection.process_tls_records(&mut []), out, early),
            Role::Client(connection) => step(connection.process_tls_records(&mut []), out, early),
        };
        // Without an alert it is the same error once more.
        let _ = step.outcome;
    }

    /// The running connection, and what was agreed on.
    ///
    /// # Errors
    /// Before the handshake is done, and where the configuration keeps secrets to itself.
    pub fn finish(self) -> Result<(Session, Agreed), rustls::Error> {
        let (agreed, secrets, kernel) = match self.0 {
            Role::Server(connection) => {
                let agreed = Agreed::of(&connection);
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (agreed, secrets, Role::Server(kernel))
            }
            Role::Client(connection) => {
                let agreed = Agreed::of(&connection);
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (agreed, secrets, Role::Client(kernel))
            }
        };
        Ok((Session::new(&secrets, kernel)?, agreed))
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

fn step<Data>(status: UnbufferedStatus<'_, '_, Data>, out: &mut Vec<u8>, early: &mut Vec<u8>) -> Stepped {
    let outcome = status.state.map(|state| match state {
        ConnectionState::EncodeTlsData(data) => {
            encode(data, out);
            Step::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Step::Again
        }
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(Ok(record)) = traffic.next_record() {
                early.extend_from_slice(record.payload);
            }
            Step::Again
        }
        ConnectionState::WriteTraffic(_) => Step::Done,
        // An end before the stream has begun is for the socket to see; early data is never asked for.
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
    /// Whether HTTP/2 was chosen by ALPN.
    pub is_http2: bool,
    /// Whether a session was resumed.
    pub is_resumed: bool,
    /// The peer's own certificate, verified as configured.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Agreed {
    fn of(common: &CommonState) -> Self {
        Self {
            is_http2: common.alpn_protocol() == Some(b"h2"),
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate: common
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(|first| first.clone().into_owned()),
        }
    }
}

/// A running connection.
pub struct Session {
    sealer: Sealer,
    opener: Opener,
    kernel: Role<KernelConnection<ServerConnectionData>, KernelConnection<ClientConnectionData>>,
    version: ProtocolVersion,
    /// The peer asked for new keys of ours.
    owes_key_update: bool,
    idle_records: u32,
    /// The start of a message that goes on in the next record.
    message: Vec<u8>,
}

/// What the front of received bytes came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// No whole record: more has to be received.
    Partial,
    /// A whole record that needs this much room.
    NoRoom(usize),
    /// A record of `consumed` bytes, with `data` bytes of the stream, which may be none.
    Data {
        /// Bytes received that are done with.
        consumed: usize,
        /// Bytes written to `out`.
        data: usize,
    },
    /// The peer has ended its stream.
    Closed,
}

impl Session {
    fn new(
        secrets: &ExtractedSecrets,
        kernel: Role<KernelConnection<ServerConnectionData>, KernelConnection<ClientConnectionData>>,
    ) -> Result<Self, rustls::Error> {
        let version = match &kernel {
            Role::Server(kernel) => kernel.protocol_version(),
            Role::Client(kernel) => kernel.protocol_version(),
        };
        let refused = |_| rustls::Error::General("a cipher suite that records cannot be made with".into());
        Ok(Self {
            sealer: Sealer::new(&secrets.tx, version).map_err(refused)?,
            opener: Opener::new(&secrets.rx, version).map_err(refused)?,
            kernel,
            version,
            owes_key_update: false,
            idle_records: 0,
            message: Vec::new(),
        })
    }

    /// Room that `seal` may need for `len` bytes whose first record holds at most `first`.
    pub fn sealed_len_max(len: usize, first: usize) -> usize {
        // One record more for each new key, and one for the first.
        len + (len / PLAINTEXT_MAX + 3 + usize::from(len > first)) * (OVERHEAD_MAX + 8)
    }

    /// Seals `plaintext` as records at the start of `out`, the first of at most `first` bytes; returns their length.
    /// `out` has the room that `sealed_len_max` tells.
    ///
    /// # Errors
    /// When the connection cannot go on.
    pub fn seal(&mut self, plaintext: &[u8], first: usize, out: &mut [u8]) -> Result<usize, Alert> {
        let mut len = 0;
        let mut rest = plaintext;
        let mut limit = first.clamp(1, PLAINTEXT_MAX);
        while !rest.is_empty() {
            if self.owes_key_update || self.sealer.is_worn() {
                len += self.renew_key(&mut out[len..])?;
            }
            let (piece, behind) = rest.split_at(rest.len().min(limit));
            len += self.sealer.seal(ContentType::ApplicationData, piece, &mut out[len..])?;
            (rest, limit) = (behind, PLAINTEXT_MAX);
        }
        Ok(len)
    }

    /// Seals the end of the stream (RFC 8446 §6.1).
    ///
    /// # Errors
    /// When the connection cannot go on.
    pub fn seal_close(&mut self, out: &mut [u8]) -> Result<usize, Alert> {
        self.sealer.seal(ContentType::Alert, &[1, 0], out)
    }

    /// Seals an error, after which the connection ends.
    ///
    /// # Errors
    /// When the connection cannot go on anyway.
    pub fn seal_alert(&mut self, alert: Alert, out: &mut [u8]) -> Result<usize, Alert> {
        self.sealer.seal(ContentType::Alert, &[2, alert as u8], out)
    }

    /// RFC 8446 §4.6.3. TLS 1.2 has nothing of the kind: there the connection has to end.
    fn renew_key(&mut self, out: &mut [u8]) -> Result<usize, Alert> {
        if self.version != ProtocolVersion::TLSv1_3 {
            return Err(Alert::InternalError);
        }
        let len = self.sealer.seal(ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 0], out)?;
        let secrets = match &mut self.kernel {
            Role::Server(kernel) => kernel.update_tx_secret(),
            Role::Client(kernel) => kernel.update_tx_secret(),
        };
        self.sealer = Sealer::new(&secrets.map_err(|_| Alert::InternalError)?, self.version)?;
        self.owes_key_update = false;
        Ok(len)
    }

    /// Opens the record at the front of what was received, if it is whole, into `out`.
    ///
    /// # Errors
    /// The alert to be sent: the peer broke the protocol, or somebody else the record.
    pub fn open(&mut self, received: &[u8], out: &mut [u8]) -> Result<Opened, Alert> {
        let Front::Record { len, room } = self.opener.front(received)? else { return Ok(Opened::Partial) };
        if room > out.len() {
            return Ok(Opened::NoRoom(room));
        }
        let (kind, data) = self.opener.open(&received[..len], out)?;
        if kind == ContentType::ApplicationData && data > 0 {
            // RFC 8446 §5.1: no other record comes between the parts of a message.
            if !self.message.is_empty() {
                return Err(Alert::UnexpectedMessage);
            }
            self.idle_records = 0;
            return Ok(Opened::Data { consumed: len, data });
        }
        self.idle_records += 1;
        if self.idle_records > IDLE_RECORDS_MAX {
            return Err(Alert::UnexpectedMessage);
        }
        match kind {
            ContentType::ApplicationData => {}
            ContentType::Alert => return self.alerted(&out[..data], len),
            ContentType::Handshake => self.told(&out[..data])?,
            ContentType::ChangeCipherSpec => return Err(Alert::UnexpectedMessage),
        }
        Ok(Opened::Data { consumed: len, data: 0 })
    }

    /// RFC 8446 §6: in TLS 1.3 all but the end and a cancelled handshake are errors, whatever their level.
    fn alerted(&self, alert: &[u8], consumed: usize) -> Result<Opened, Alert> {
        const CLOSE_NOTIFY: u8 = 0;
        const USER_CANCELED: u8 = 90;
        match *alert {
            [_, CLOSE_NOTIFY] => Ok(Opened::Closed),
            [_, USER_CANCELED] => Ok(Opened::Data { consumed, data: 0 }),
            [1, _] if self.version != ProtocolVersion::TLSv1_3 => Ok(Opened::Data { consumed, data: 0 }),
            _ => Err(Alert::UnexpectedMessage),
        }
    }

    /// Handshake messages after the handshake, of which a record may hold parts.
    fn told(&mut self, bytes: &[u8]) -> Result<(), Alert> {
        let mut message = std::mem::take(&mut self.message);
        message.extend_from_slice(bytes);
        if message.len() > MESSAGE_MAX {
            return Err(Alert::RecordOverflow);
        }
        let mut rest = message.as_slice();
        while let Some((&[kind, a, b, c], behind)) = rest.split_first_chunk::<4>() {
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            let Some((body, behind)) = behind.split_at_checked(len) else { break };
            self.message_told(kind, body, behind.is_empty())?;
            rest = behind;
        }
        self.message = rest.to_vec();
        Ok(())
    }

    fn message_told(&mut self, kind: u8, body: &[u8], is_last: bool) -> Result<(), Alert> {
        match (kind, self.version, &mut self.kernel) {
            (KEY_UPDATE, ProtocolVersion::TLSv1_3, kernel) => {
                // RFC 8446 §5.1: what follows is sealed with the new key, so nothing may follow in this record.
                let ([wanted @ (0 | 1)], true) = (body, is_last) else { return Err(Alert::DecodeError) };
                let secrets = match kernel {
                    Role::Server(kernel) => kernel.update_rx_secret(),
                    Role::Client(kernel) => kernel.update_rx_secret(),
                };
                self.opener = Opener::new(&secrets.map_err(|_| Alert::InternalError)?, self.version)?;
                self.owes_key_update |= *wanted == 1;
                Ok(())
            }
            (NEW_SESSION_TICKET, ProtocolVersion::TLSv1_3, Role::Client(kernel)) => {
                kernel.handle_new_session_ticket(body).map_err(|_| Alert::DecodeError)
            }
            // RFC 5246 §7.4.1.1: a client may ignore that its server wants another handshake.
            (HELLO_REQUEST, ProtocolVersion::TLSv1_2, Role::Client(_)) => Ok(()),
            _ => Err(Alert::UnexpectedMessage),
        }
    }
}
