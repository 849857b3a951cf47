//! TLS connection over a socket: encrypts and decrypts records without a runtime's layers.
//!
//! It receives into a buffer of its thread and keeps only incomplete records, so that an idle connection is small.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};
use rustls::{CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::transport::{ReceiveResult, TransportFault};

/// Plaintext that is encrypted at once: a few records.
const ENCRYPTED_BYTES: usize = 64 * 1024;
/// Maximum content of a record, and its maximum overhead.
const RECORD_BYTES: usize = 16 * 1024;
const RECORD_OVERHEAD_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) version: ProtocolVersion,
    pub(crate) suite: CipherSuite,
    /// Whether an earlier session was resumed, without certificates and signatures.
    pub(crate) is_resumed: bool,
}

pub(crate) struct Secure {
    stream: TcpStream,
    connection: UnbufferedClientConnection,
    /// Received bytes of an incomplete record or handshake message.
    pending: Vec<u8>,
    /// Encrypted bytes; those from `sent_bytes` on are not sent yet.
    outgoing: Vec<u8>,
    sent_bytes: usize,
    /// Content that arrived with the end of the handshake: a server may speak first.
    early: Vec<u8>,
    /// The server sent close_notify, or violated the protocol.
    is_ended: bool,
}

impl fmt::Debug for Secure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Secure").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Secure {
    pub(crate) fn new(
        stream: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(Self {
            stream,
            connection,
            pending: Vec::new(),
            outgoing: Vec::new(),
            sent_bytes: 0,
            early: Vec::new(),
            is_ended: false,
        })
    }

    /// Whether the server has sent close_notify.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Result of the handshake, after it is complete.
    pub(crate) fn agreed(&self) -> Option<Agreed> {
        Some(Agreed {
            version: self.connection.protocol_version()?,
            suite: self.connection.negotiated_cipher_suite()?.suite(),
            is_resumed: self.connection.handshake_kind()? == HandshakeKind::Resumed,
        })
    }

    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Completes the handshake. Ready when both sides may send data, and this side's last message is sent.
    pub(crate) fn poll_handshake(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<(), TransportFault>> {
        // The first flight is due before anything was received.
        if let Err(error) = self.process(&mut [], &mut |_| {}) {
            return Poll::Ready(Err(self.rejected(context, error)));
        }
        loop {
            ready!(self.poll_flush(context))?;
            if !self.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            let mut early = std::mem::take(&mut self.early);
            let received =
                self.poll_process(context, buffer, &mut |content| early.extend_from_slice(content));
            self.early = early;
            if ready!(received)? == 0 {
                return Poll::Ready(Err(TransportFault::Io(io::ErrorKind::UnexpectedEof.into())));
            }
        }
    }

    /// Receives until there is content, and passes it to `take`, record by record.
    pub(crate) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]),
    ) -> Poll<Result<ReceiveResult, TransportFault>> {
        let mut has_content = !self.early.is_empty();
        if has_content {
            take(&std::mem::take(&mut self.early));
        }
        while !has_content && !self.is_ended {
            let received = self.poll_process(context, buffer, &mut |content| {
                has_content |= !content.is_empty();
                take(content);
            });
            if ready!(received)? == 0 {
                // RFC 8446 §6.1: without a close_notify, the data may be truncated.
                return Poll::Ready(Ok(if self.is_ended { ReceiveResult::End } else { ReceiveResult::Torn }));
            }
        }
        Poll::Ready(Ok(if has_content { ReceiveResult::Content } else { ReceiveResult::End }))
    }

    /// Receives once, processes complete records, and keeps the rest. Returns the number of bytes received.
    fn poll_process(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<usize, TransportFault>> {
        let known_bytes = self.pending.len();
        if known_bytes >= buffer.len() {
            return Poll::Ready(Err(TransportFault::Tls(rustls::Error::General(
                "a message is too long".to_owned(),
            ))));
        }
        let mut space = ReadBuf::new(&mut buffer[known_bytes..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut space)).map_err(TransportFault::Io)?;
        let received_bytes = space.filled().len();
        buffer[..known_bytes].copy_from_slice(&self.pending);
        let filled = &mut buffer[..known_bytes + received_bytes];
        let used_bytes = match self.process(filled, take) {
            Ok(used_bytes) => used_bytes,
            Err(error) => return Poll::Ready(Err(self.rejected(context, error))),
        };
        self.pending.clear();
        self.pending.extend_from_slice(&filled[used_bytes..]);
        // For example the response to a key update. Unsent bytes go before the next request.
        if let Poll::Ready(Err(fault)) = self.poll_flush(context) {
            return Poll::Ready(Err(fault));
        }
        Poll::Ready(Ok(received_bytes))
    }

    /// Processes complete records: passes content to `take`, appends replies to `outgoing`. Returns the bytes used.
    fn process(&mut self, incoming: &mut [u8], take: &mut dyn FnMut(&[u8])) -> Result<usize, rustls::Error> {
        let mut used_bytes = 0;
        loop {
            let status = self.connection.process_tls_records(&mut incoming[used_bytes..]);
            let UnbufferedStatus { mut discard, state } = status;
            let mut is_done = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        take(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.outgoing)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.is_ended = true,
                _ => is_done = true,
            }
            used_bytes += discard;
            if is_done {
                return Ok(used_bytes);
            }
        }
    }

    /// Sends the alert for an error, if the socket accepts it at once.
    fn rejected(&mut self, context: &mut Context<'_>, error: rustls::Error) -> TransportFault {
        self.is_ended = true;
        while self.connection.wants_write() {
            // The library returns the alert before it processes input, so no input is needed.
            let status = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(data)) = status.state else { break };
            if encode(data, &mut self.outgoing).is_err() {
                break;
            }
        }
        // The result is ignored, because the first error counts.
        let _ = self.poll_flush(context);
        TransportFault::Tls(error)
    }

    /// Encrypts bytes to send, and returns how many. They are sent only when `poll_flush` is ready.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportFault>> {
        ready!(self.poll_flush(context))?;
        let part = &bytes[..bytes.len().min(ENCRYPTED_BYTES)];
        self.encrypt(part).map_err(TransportFault::Tls)?;
        if let Poll::Ready(Err(fault)) = self.poll_flush(context) {
            return Poll::Ready(Err(fault));
        }
        Poll::Ready(Ok(part.len()))
    }

    /// Ready when all written bytes are sent.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransportFault>> {
        while self.sent_bytes < self.outgoing.len() {
            let unsent = &self.outgoing[self.sent_bytes..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, unsent))
                .map_err(TransportFault::Io)?
            {
                0 => return Poll::Ready(Err(TransportFault::Io(io::ErrorKind::WriteZero.into()))),
                written_bytes => self.sent_bytes += written_bytes,
            }
        }
        self.outgoing.clear();
        self.sent_bytes = 0;
        Poll::Ready(Ok(()))
    }

    fn encrypt(&mut self, content: &[u8]) -> Result<(), rustls::Error> {
        loop {
            // The library needs the pending bytes again, although no record in them is complete.
            let status = self.connection.process_tls_records(&mut self.pending);
            let UnbufferedStatus { discard, state } = status;
            let mut is_done = false;
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let records = content.len() / RECORD_BYTES + 1;
                    let room_bytes = content.len() + records * RECORD_OVERHEAD_BYTES;
                    append(&mut self.outgoing, room_bytes, |room| match traffic.encrypt(content, room) {
                        Ok(written_bytes) => Ok(Ok(written_bytes)),
                        Err(EncryptError::InsufficientSize(error)) => Err(error.required_size),
                        Err(EncryptError::EncryptExhausted) => Ok(Err(rustls::Error::EncryptError)),
                    })?;
                    is_done = true;
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.outgoing)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.is_ended = true,
                _ => return Err(rustls::Error::HandshakeNotComplete),
            }
            self.pending.drain(..discard);
            if is_done {
                return Ok(());
            }
        }
    }

    /// Sends close_notify, unless the server has already sent it (RFC 8446 §6.1).
    fn close(&mut self) {
        if self.is_ended || self.connection.is_handshaking() || !self.outgoing.is_empty() {
            return;
        }
        let status = self.connection.process_tls_records(&mut self.pending);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
            let mut room = [0; 2 * RECORD_OVERHEAD_BYTES];
            if let Ok(written_bytes) = traffic.queue_close_notify(&mut room) {
                // A socket that does not accept the alert is broken anyway.
                let _ = self.stream.try_write(&room[..written_bytes]);
            }
        }
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.close();
    }
}

/// Appends a handshake message or an alert to the bytes to send.
fn encode(
    mut data: EncodeTlsData<'_, ClientConnectionData>,
    outgoing: &mut Vec<u8>,
) -> Result<(), rustls::Error> {
    append(outgoing, RECORD_OVERHEAD_BYTES, |room| match data.encode(room) {
        Ok(written_bytes) => Ok(Ok(written_bytes)),
        Err(EncodeError::InsufficientSize(error)) => Err(error.required_size),
        Err(error) => Ok(Err(rustls::Error::General(error.to_string()))),
    })
}

/// Appends the output of `write` to a vector, growing it as much as `write` needs.
fn append(
    out: &mut Vec<u8>,
    mut room_bytes: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<Result<usize, rustls::Error>, usize>,
) -> Result<(), rustls::Error> {
    let start = out.len();
    loop {
        out.resize(start + room_bytes, 0);
        match write(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written.as_ref().map_or(0, |written_bytes| *written_bytes));
                return written.map(|_| ());
            }
            Err(required_bytes) => room_bytes = required_bytes,
        }
    }
}
