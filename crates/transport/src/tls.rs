//! TLS on a TCP connection. All connections of a worker share the buffers for received and sent records. Records are
//! decrypted into, and encrypted from, the path's own buffers. So an idle connection holds no buffer.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tls::{
    Agreed, Alert, Handshake, OVERHEAD_MAX, OpenedRecord, PLAINTEXT_MAX, RECORD_MAX, TlsRole, TlsSession,
};

use crate::buffer::BULK;
use crate::tcp::{Follows, Tcp};

/// Sent bytes up to which each write begins with a small record: the peer can then use the bytes of the first round
/// trips as they arrive. Later records are as large as possible.
// A record can be decrypted only as a whole, so large ones delay the first bytes of a page.
const SMALL_RECORDS_BYTES: u64 = 64 * 1024;
const SMALL_RECORD: usize = 4096;
/// Received, unprocessed bytes of a handshake: certificates are long, all other messages are short.
const HANDSHAKE_MAX: usize = 128 * 1024;
/// The last bytes of a handshake that may wait for the first data: tickets, or one side's last message.
// More than a few tickets: certificates must not wait for a response.
const HELD_MAX: usize = 16 * 1024;

/// The record buffers that all TLS connections of a worker share.
pub struct Records {
    // Shared, because only one connection of a worker reads or writes at a moment.
    received: RefCell<Box<[u8]>>,
    /// A decrypted record, if its reader has too little room for it.
    opened: RefCell<Box<[u8]>>,
    sealed: RefCell<Box<[u8]>>,
}

impl Records {
    /// Room for the records that fill a large buffer, and for an incomplete record.
    const RECEIVED: usize = TlsSession::sealed_len_max(BULK) + RECORD_MAX;
    // Two pieces have a last record each.
    const SEALED: usize = HELD_MAX + TlsSession::sealed_len_max(BULK) + TlsSession::sealed_len_max(0);

    pub fn new() -> Rc<Self> {
        let buffer = |len: usize| RefCell::new(vec![0; len].into_boxed_slice());
        Rc::new(Self {
            received: buffer(Self::RECEIVED),
            opened: buffer(RECORD_MAX),
            sealed: buffer(Self::SEALED),
        })
    }
}

/// A TCP connection with TLS, after its handshake.
pub struct TlsConnection {
    tcp: Tcp,
    records: Rc<Records>,
    state: RefCell<TlsState>,
}

struct TlsState {
    session: TlsSession,
    /// Received, encrypted bytes: mostly the start of a record.
    received: Vec<u8>,
    /// Whether `received` may contain a whole record.
    may_open: bool,
    /// Decrypted bytes that are not read yet.
    plain: Vec<u8>,
    /// Encrypted bytes; the kernel has accepted those before `sent`.
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes of the caller's that are encrypted and not yet reported as written. If 0 while something is unsent, the
    /// unsent bytes belong to the handshake, and leave with the first write.
    unreported: usize,
    sent_bytes: u64,
    /// Whether the peer's last handshake message may be neither answered nor acknowledged. The first wait for the peer
    /// handles it.
    is_unanswered: bool,
    ending: CloseProgress,
    has_sent_close: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseProgress {
    None,
    /// The peer sent close_notify.
    Peer,
    /// Either side violated the protocol or gave up: nothing more is read or sent.
    Broken,
}

impl TlsConnection {
    /// Does the TLS handshake; `received` has its first bytes, if any. The caller has to limit its time.
    pub async fn establish(
        tcp: Tcp,
        mut handshake: Handshake,
        records: &Rc<Records>,
        mut received: Vec<u8>,
    ) -> Result<(Self, Agreed), HandshakeError> {
        let role = handshake.role();
        let mut out = Vec::new();
        let mut is_begun = false;
        loop {
            // Every request begins with a letter, and no TLS record does.
            if !is_begun && role == TlsRole::Server && received.first().is_some_and(u8::is_ascii_uppercase) {
                return Err(HandshakeError::InTheClear(tcp));
            }
            is_begun |= !received.is_empty();
            let advance = handshake.advance(&mut received, &mut out);
            let is_done = matches!(advance, Ok(advance) if advance.is_done);
            if !is_done {
                // After an error, this is the alert.
                let sent = send_all(&tcp, &out).await;
                out.clear();
                if advance.is_ok() {
                    sent?;
                }
            }
            let advance = match advance {
                Ok(advance) => advance,
                Err(error) => return Err(refused(error, tcp, handshake.take_server_name())),
            };
            received.drain(..advance.consumed);
            if is_done {
                break;
            }
            if received.len() > HANDSHAKE_MAX {
                return Err(HandshakeError::TooLong);
            }
            receive(&tcp, records, &mut received).await?;
        }
        let (session, agreed) = match handshake.finish() {
            Ok(finished) => finished,
            Err(error) => return Err(refused(error, tcp, None)),
        };
        // The rest of the handshake waits for the first data, if that follows soon. It does for requests to servers and
        // for the settings of HTTP/2. It does for the response to a request that is already here, if only tickets are
        // left.
        let is_soon = match role {
            TlsRole::Client => true,
            TlsRole::Server => agreed.is_http2() || agreed.is_tls13 && !received.is_empty(),
        };
        if !is_soon || out.len() > HELD_MAX {
            send_end(&tcp, &mut out).await?;
        }
        received.shrink_to_fit();
        let state = TlsState {
            session,
            may_open: !received.is_empty(),
            received,
            plain: Vec::new(),
            unsent: out,
            sent: 0,
            unreported: 0,
            sent_bytes: 0,
            // With HTTP/2, both sides write before they wait.
            is_unanswered: is_soon && !agreed.is_http2(),
            ending: CloseProgress::None,
            has_sent_close: false,
        };
        Ok((Self { tcp, records: Rc::clone(records), state: RefCell::new(state) }, agreed))
    }

    /// Sends the rest of the handshake if no data follows soon that could carry it, because a server waits for it.
    /// Returns `false` if it could not be sent; the connection is then unusable.
    pub fn end_handshake(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        if state.unsent.is_empty() {
            return true;
        }
        // A fresh socket accepts so few bytes at once.
        let is_sent = state.sent == 0 && state.unreported == 0 && self.tcp.send_at_once(&state.unsent);
        state.unsent = Vec::new();
        is_sent
    }

    /// Ready when there is something to read, or the end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.state.borrow();
        if state.may_open || !state.plain.is_empty() || state.ending != CloseProgress::None {
            return Poll::Ready(Ok(()));
        }
        let readable = self.tcp.poll_readable(context);
        if readable.is_pending() && state.is_unanswered {
            drop(state);
            self.answer_handshake()?;
        }
        readable
    }

    /// Before a wait for the peer's next bytes, sends the rest of the handshake, or acknowledges the peer's part. By
    /// Nagle's rule the peer may send nothing until then, and the kernel delays acknowledgments by 40 ms.
    #[cold]
    fn answer_handshake(&self) -> io::Result<()> {
        let is_held = {
            let state = &mut *self.state.borrow_mut();
            state.is_unanswered = false;
            // The data that was sent has carried the rest of the handshake, and acknowledged the peer.
            if state.sent_bytes > 0 {
                return Ok(());
            }
            !state.unsent.is_empty()
        };
        if !is_held {
            self.tcp.acknowledge();
        } else if !self.end_handshake() {
            self.state.borrow_mut().ending = CloseProgress::Broken;
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Reads into `buffer`; 0 means that the peer sent close_notify. Any other end of the stream is an error.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = self.read_from(|incoming| self.tcp.poll_read(context, incoming), buffer);
        if read.is_pending() && self.state.borrow().is_unanswered {
            self.answer_handshake()?;
        }
        read
    }

    fn read_from(
        &self,
        mut receive: impl FnMut(&mut [u8]) -> Poll<io::Result<usize>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        // Decrypted bytes come before any later record.
        if !state.plain.is_empty() {
            return Poll::Ready(Ok(state.take_plain(buffer)));
        }
        loop {
            match state.ending {
                CloseProgress::None => {}
                CloseProgress::Peer => return Poll::Ready(Ok(0)),
                CloseProgress::Broken => return Poll::Ready(Err(ErrorKind::ConnectionAborted.into())),
            }
            let incoming = &mut **self.records.received.borrow_mut();
            let held = state.received.len();
            let mut len = held;
            if !state.may_open {
                // Reads no more than the caller has room for: the rest may as well stay in the kernel.
                let limit = held + TlsSession::sealed_len_max(buffer.len());
                // At least a whole record, since a part cannot be decrypted.
                let limit = limit.clamp(RECORD_MAX, incoming.len());
                let count = ready!(receive(&mut incoming[held..limit]))?;
                if count == 0 {
                    // RFC 8446 §6.1: without close_notify, an attacker may have ended the stream.
                    return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
                }
                len += count;
            }
            // A copied record start is shorter than a record, and most reads leave none.
            incoming[..held].copy_from_slice(&state.received);
            match state.open(&incoming[..len], buffer, &mut self.records.opened.borrow_mut()) {
                Ok(0) => {}
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(alert) => self.fail(state, alert),
            }
        }
    }

    /// Writes the start of `bytes`. As many as fit are encrypted at once, but they count as written only when the
    /// kernel has accepted them, the last one only after all records. The caller must offer the rest again.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        self.poll_write_both(context, bytes, b"", follows)
    }

    /// Writes the start of `head` with `body` behind it, encrypted in place and sent together. The rules of
    /// [`poll_write`](Self::poll_write) apply.
    pub fn poll_write_both(
        &self,
        context: &mut Context<'_>,
        head: &[u8],
        body: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if state.ending == CloseProgress::Broken {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        // These bytes are encrypted already, and encrypting them again would send them twice.
        if state.unreported > 0 {
            debug_assert!(
                head.len() + body.len() >= state.unreported,
                "what was not reported is given again"
            );
            return self.poll_send_rest(state, context, follows);
        }
        let head = &head[..head.len().min(BULK)];
        let body = &body[..body.len().min(BULK - head.len())];
        let sealed = &mut **self.records.sealed.borrow_mut();
        let held = state.unsent.len();
        // The rest of a handshake leaves with the first data, in one write.
        sealed[..held].copy_from_slice(&state.unsent);
        let mut len = held;
        for piece in [head, body] {
            if piece.is_empty() {
                continue;
            }
            // Only the first record of a write is small: its bytes can be used while the rest arrives.
            let first = if state.sent_bytes < SMALL_RECORDS_BYTES { SMALL_RECORD } else { PLAINTEXT_MAX };
            match state.session.seal(piece, first, &mut sealed[len..]) {
                Ok(count) => len += count,
                Err(alert) => {
                    self.fail(state, alert);
                    return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
                }
            }
            state.sent_bytes += piece.len() as u64;
        }
        let taken = head.len() + body.len();
        // The usual write leaves nothing behind, and the connection holds no memory.
        state.unsent = Vec::new();
        let count = match self.tcp.poll_send(context, &sealed[..len], follows) {
            Poll::Ready(Ok(count)) if count == len => return Poll::Ready(Ok(taken)),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => {
                state.ending = CloseProgress::Broken;
                return Poll::Ready(Err(error));
            }
            Poll::Pending => 0,
        };
        // Kept encrypted: the shared buffer is used by the next connection.
        state.unsent.extend_from_slice(&sealed[count..len]);
        state.unreported = taken;
        match state.report(count.saturating_sub(held)) {
            Some(count) => Poll::Ready(Ok(count)),
            None => self.poll_send_rest(state, context, follows),
        }
    }

    fn poll_send_rest(
        &self,
        state: &mut TlsState,
        context: &mut Context<'_>,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        while state.sent < state.unsent.len() {
            let count = match ready!(self.tcp.poll_send(context, &state.unsent[state.sent..], follows)) {
                Ok(count) => count,
                Err(error) => {
                    state.ending = CloseProgress::Broken;
                    return Poll::Ready(Err(error));
                }
            };
            state.sent += count;
            if state.sent < state.unsent.len()
                && let Some(count) = state.report(count)
            {
                return Poll::Ready(Ok(count));
            }
        }
        state.unsent = Vec::new();
        state.sent = 0;
        Poll::Ready(Ok(std::mem::take(&mut state.unreported)))
    }

    /// Sends an alert, once, and ends the connection.
    fn fail(&self, state: &mut TlsState, alert: Alert) {
        let mut record = [0; ALERT_ROOM];
        let sealed = state.session.seal_alert(alert, &mut record);
        // RFC 8446 §6.2: a fatal alert is sent before the connection closes.
        self.send_last(state, &record, sealed);
        state.ending = CloseProgress::Broken;
    }

    /// Sends the end of the stream, once.
    fn send_close(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.ending == CloseProgress::Broken || state.has_sent_close {
            return;
        }
        state.has_sent_close = true;
        let mut record = [0; ALERT_ROOM];
        let sealed = state.session.seal_close(&mut record);
        self.send_last(state, &record, sealed);
    }

    /// Sends the last record. Sends nothing behind an incomplete message, which would then look complete.
    fn send_last(&self, state: &mut TlsState, record: &[u8], sealed: Result<usize, Alert>) {
        let Ok(len) = sealed else { return };
        if state.unreported > 0 {
            return;
        }
        state.unsent.extend_from_slice(&record[..len]);
        self.tcp.send_at_once(&state.unsent);
        state.unsent = Vec::new();
    }

    /// The local address of the peer's connection. A Unix socket has none.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.tcp.local_address()
    }

    /// Whether only a part of a TLS record has arrived.
    pub fn holds_part(&self) -> bool {
        !self.state.borrow().received.is_empty()
    }

    /// Whether the TLS keys have reached their encryption limit: the connection must carry no further exchange.
    pub fn is_key_exhausted(&self) -> bool {
        self.state.borrow().session.is_key_exhausted()
    }

    /// Whether unread bytes have arrived, decrypted or not. Costs a system call.
    pub fn has_unread(&self) -> bool {
        let is_held = {
            let state = self.state.borrow();
            !state.received.is_empty() || !state.plain.is_empty()
        };
        is_held || self.tcp.has_unread()
    }

    /// Whether no data has arrived on an idle connection, as far as the runtime knows. Processes session tickets and
    /// key updates.
    pub fn is_quiet(&self) -> bool {
        self.has_read_all() && self.tcp.is_quiet() || self.has_nothing_to_say()
    }

    /// Whether no data has arrived on an idle connection, as far as the kernel knows. Costs a system call.
    pub fn is_quiet_still(&self) -> bool {
        self.has_read_all() && self.tcp.is_quiet_still() || self.has_nothing_to_say()
    }

    /// Whether the peer has closed its side, even if there are bytes to read first. Costs a system call.
    pub fn has_peer_closed(&self) -> bool {
        self.tcp.has_peer_closed()
    }

    /// See [`Tcp::poll_peer_closed`].
    pub fn poll_peer_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        self.tcp.poll_peer_closed(context)
    }

    /// Whether all received bytes are read, and the end was not among them.
    fn has_read_all(&self) -> bool {
        let state = self.state.borrow();
        state.received.is_empty() && state.plain.is_empty() && state.ending == CloseProgress::None
    }

    /// Whether all received bytes, and those in the kernel, contain no data and no part of a record, which may become
    /// data.
    fn has_nothing_to_say(&self) -> bool {
        let read = self.read_from(|incoming| self.tcp.read_at_once(incoming), &mut [0; 1]);
        read.is_pending() && !self.holds_part()
    }

    /// Sends close_notify and the end of the stream.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.send_close();
        self.tcp.shutdown_write()
    }

    /// Makes the close a reset, without close_notify, so that the peer does not take a message for complete.
    pub fn reset_on_drop(&self) {
        // Without close_notify, since `drop` would send it otherwise.
        self.state.borrow_mut().ending = CloseProgress::Broken;
        self.tcp.reset_on_drop();
    }
}

/// Size of an encrypted alert.
const ALERT_ROOM: usize = 2 + OVERHEAD_MAX;

impl Drop for TlsConnection {
    fn drop(&mut self) {
        self.send_close();
    }
}

impl TlsState {
    /// Decrypts records from the front of `incoming` as long as `buffer` has room, and holds the rest. Returns the
    /// bytes written to `buffer`.
    fn open(&mut self, incoming: &[u8], buffer: &mut [u8], opened_apart: &mut [u8]) -> Result<usize, Alert> {
        let (mut consumed, mut count) = (0, 0);
        self.may_open = false;
        while consumed < incoming.len() {
            let mut opened = self.session.open(&incoming[consumed..], &mut buffer[count..])?;
            if let OpenedRecord::NoRoom(room) = opened {
                // A record fits without its tag, so it may fit even if the room is less than its encrypted size.
                if count > 0 && room > buffer.len() - count + OVERHEAD_MAX {
                    self.may_open = true;
                    break;
                }
                opened = self.session.open(&incoming[consumed..], opened_apart)?;
                if let OpenedRecord::Data { data, .. } = &mut opened {
                    // The bytes that do not fit stay decrypted in `plain`.
                    let left = &mut buffer[count..];
                    let (fits, rest) = opened_apart[..*data].split_at(left.len().min(*data));
                    left[..fits.len()].copy_from_slice(fits);
                    // Rare: the reader has less room than a record, as in a look for the end of an idle connection.
                    self.plain.extend_from_slice(rest);
                    *data = fits.len();
                }
            }
            match opened {
                OpenedRecord::Partial => break,
                OpenedRecord::Data { consumed: record, data } => {
                    consumed += record;
                    count += data;
                }
                OpenedRecord::Closed => {
                    self.ending = CloseProgress::Peer;
                    // RFC 8446 §6.1: data behind close_notify is ignored.
                    consumed = incoming.len();
                }
                OpenedRecord::Aborted(_) => {
                    self.ending = CloseProgress::Broken;
                    consumed = incoming.len();
                }
                // `opened_apart` has room for any record.
                OpenedRecord::NoRoom(_) => return Err(Alert::InternalError),
            }
            if !self.plain.is_empty() {
                self.may_open = consumed < incoming.len();
                break;
            }
        }
        self.hold(&incoming[consumed..]);
        Ok(count)
    }

    fn hold(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            // An idle connection holds no memory.
            self.received = Vec::new();
        } else {
            self.received.clear();
            self.received.extend_from_slice(rest);
        }
    }

    fn take_plain(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.plain.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.plain[..count]);
        self.plain.drain(..count);
        if self.plain.is_empty() {
            self.plain = Vec::new();
        }
        count
    }

    /// The bytes to report as written when the kernel has accepted `count` bytes, but not all.
    fn report(&mut self, count: usize) -> Option<usize> {
        // The last byte counts only when all records have left: then the caller forgets the message.
        let count = count.min(self.unreported - 1);
        self.unreported -= count;
        (count > 0).then_some(count)
    }
}

pub enum HandshakeError {
    /// The connection broke during the handshake.
    Io,
    /// Either side rejected the handshake.
    Refused(rustls::Error, Box<RefusedHandshake>),
    /// The peer sent more bytes than any handshake needs.
    TooLong,
    /// The client speaks plain HTTP. Hands the connection back.
    InTheClear(Tcp),
}

/// The remains of a connection whose handshake was rejected.
pub struct RefusedHandshake {
    /// The connection, for the alert and a lingering close.
    pub tcp: Tcp,
    /// The server name that the client asked for (SNI), if it was read.
    pub server_name: Option<Box<str>>,
}

#[cold]
fn refused(error: rustls::Error, tcp: Tcp, server_name: Option<Box<str>>) -> HandshakeError {
    HandshakeError::Refused(error, Box::new(RefusedHandshake { tcp, server_name }))
}

impl From<io::Error> for HandshakeError {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

/// Sends the end of a handshake, or acknowledges the peer's end if there is nothing to send. A client that cannot
/// resume gets no ticket, and one that has resumed with TLS 1.2 gets nothing.
async fn send_end(tcp: &Tcp, out: &mut Vec<u8>) -> io::Result<()> {
    if out.is_empty() {
        tcp.acknowledge();
    }
    send_all(tcp, out).await?;
    out.clear();
    Ok(())
}

async fn send_all(tcp: &Tcp, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = poll_fn(|context| tcp.poll_send(context, bytes, Follows::Nothing)).await?;
        bytes = &bytes[count..];
    }
    Ok(())
}

async fn receive(tcp: &Tcp, records: &Records, received: &mut Vec<u8>) -> io::Result<()> {
    poll_fn(|context| {
        let incoming = &mut **records.received.borrow_mut();
        let count = ready!(tcp.poll_read(context, &mut incoming[..RECORD_MAX]))?;
        received.extend_from_slice(&incoming[..count]);
        Poll::Ready(if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) })
    })
    .await
}
