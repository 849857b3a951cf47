//! TLS on a TCP connection. All connections of a worker share the buffers for received and sent records; records are
//! decrypted into and encrypted from the path's own buffers. So an idle connection holds no buffer.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tls::{Agreed, Alert, Handshake, OVERHEAD_MAX, Opened, PLAINTEXT_MAX, RECORD_MAX, Role, Session};

use crate::buffer::BULK;
use crate::tcp::{Follows, Tcp};

/// Until this much is sent, each write begins with a small record: what the first round trips carry can then be used as
/// it arrives. All others are as large as may be.
const SMALL_RECORDS_BYTES: u64 = 64 * 1024;
const SMALL_RECORD: usize = 4096;
/// Of a handshake, received and not yet processed: certificates are long, nothing else is.
const HANDSHAKE_MAX: usize = 128 * 1024;
/// The end of a handshake that waits for what is sent first: tickets, or one side's last message.
const HELD_MAX: usize = 16 * 1024;

/// The record buffers that all TLS connections of a worker share.
pub struct Records {
    received: RefCell<Box<[u8]>>,
    /// One record, opened, where its reader has too little room for it.
    opened: RefCell<Box<[u8]>>,
    sealed: RefCell<Box<[u8]>>,
}

impl Records {
    /// Room for what fills a large buffer, and for a record that is not yet whole.
    const RECEIVED: usize = Session::sealed_len_max(BULK) + RECORD_MAX;
    // Of two pieces each has a last record of its own.
    const SEALED: usize = HELD_MAX + Session::sealed_len_max(BULK) + Session::sealed_len_max(0);

    /// Allocates the record buffers of one worker.
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
    state: RefCell<State>,
}

struct State {
    session: Session,
    /// Received and not yet opened: mostly the start of a record.
    received: Vec<u8>,
    /// Whether a whole record may be among it.
    may_open: bool,
    /// Opened, and not yet asked for.
    plain: Vec<u8>,
    /// Sealed, and not yet taken by the kernel: from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes of the caller's that are sealed and not yet reported as written. None while something is unsent: it belongs
    /// to the handshake, and leaves with what is written first.
    unreported: usize,
    sent_bytes: u64,
    /// The peer's last message of the handshake may be neither answered nor acknowledged: whoever waits sees to it first.
    is_unanswered: bool,
    ending: Ending,
    has_sent_close: bool,
}

/// How far a connection is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    None,
    /// The peer sent close_notify.
    Peer,
    /// One side violated the protocol or gave up: nothing more is read or sent.
    Broken,
}

impl TlsConnection {
    /// Does the TLS handshake, beginning with what was received of it already. The caller has to limit its time.
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
            // No record begins with a letter, and every request does.
            if !is_begun && role == Role::Server && received.first().is_some_and(u8::is_ascii_uppercase) {
                return Err(HandshakeError::InTheClear(tcp));
            }
            is_begun |= !received.is_empty();
            let advance = handshake.advance(&mut received, &mut out);
            let is_done = matches!(advance, Ok(advance) if advance.is_done);
            if !is_done {
                // Beside an error, the alert.
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
        // What is left of the handshake leaves with what is sent first, if that is soon: our request to a server is, and so
        // are the settings of HTTP/2, and the answer to a client's request that is here, where its tickets are all that
        // is left.
        let is_soon = match role {
            Role::Client => true,
            Role::Server => agreed.is_http2() || agreed.is_tls13 && !received.is_empty(),
        };
        if !is_soon || out.len() > HELD_MAX {
            send_end(&tcp, &mut out).await?;
        }
        received.shrink_to_fit();
        let state = State {
            session,
            may_open: !received.is_empty(),
            received,
            plain: Vec::new(),
            unsent: out,
            sent: 0,
            unreported: 0,
            sent_bytes: 0,
            // On a connection of HTTP/2 both sides write before they wait.
            is_unanswered: is_soon && !agreed.is_http2(),
            ending: Ending::None,
            has_sent_close: false,
        };
        Ok((Self { tcp, records: Rc::clone(records), state: RefCell::new(state) }, agreed))
    }

    /// Sends the rest of the handshake, if no data is about to be sent that could carry it: a server waits for it.
    /// Returns `false` if it could not be sent, so that the connection is of no use.
    pub fn end_handshake(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        if state.unsent.is_empty() {
            return true;
        }
        // A fresh socket takes this little at once.
        let is_sent = state.sent == 0 && state.unreported == 0 && self.tcp.send_at_once(&state.unsent);
        state.unsent = Vec::new();
        is_sent
    }

    /// Ready when there is something to read, or the end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.state.borrow();
        if state.may_open || !state.plain.is_empty() || state.ending != Ending::None {
            return Poll::Ready(Ok(()));
        }
        let readable = self.tcp.poll_readable(context);
        if readable.is_pending() && state.is_unanswered {
            drop(state);
            self.answer_handshake()?;
        }
        readable
    }

    /// Where the peer is to say more before anything is written, it gets what is left of the handshake now, or word that
    /// its own part has arrived. By Nagle's rule it may send nothing until then, and the kernel takes 40 ms over it.
    #[cold]
    fn answer_handshake(&self) -> io::Result<()> {
        let is_held = {
            let state = &mut *self.state.borrow_mut();
            state.is_unanswered = false;
            if state.sent_bytes > 0 {
                return Ok(());
            }
            !state.unsent.is_empty()
        };
        if !is_held {
            self.tcp.acknowledge();
        } else if !self.end_handshake() {
            self.state.borrow_mut().ending = Ending::Broken;
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
        if !state.plain.is_empty() {
            return Poll::Ready(Ok(state.take_plain(buffer)));
        }
        loop {
            match state.ending {
                Ending::None => {}
                Ending::Peer => return Poll::Ready(Ok(0)),
                Ending::Broken => return Poll::Ready(Err(ErrorKind::ConnectionAborted.into())),
            }
            let incoming = &mut **self.records.received.borrow_mut();
            let held = state.received.len();
            let mut len = held;
            if !state.may_open {
                // No more than the caller can take: the rest is as well off in the kernel.
                let limit = held + Session::sealed_len_max(buffer.len());
                let limit = limit.clamp(RECORD_MAX, incoming.len());
                let count = ready!(receive(&mut incoming[held..limit]))?;
                if count == 0 {
                    // RFC 8446 §6.1: an end that nobody has sealed may be anybody's.
                    return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
                }
                len += count;
            }
            incoming[..held].copy_from_slice(&state.received);
            match state.open(&incoming[..len], buffer, &mut self.records.opened.borrow_mut()) {
                Ok(0) => {}
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(alert) => self.fail(state, alert),
            }
        }
    }

    /// Writes the start of `bytes`. They are encrypted at once, as many as fit, but count as written only when the
    /// kernel has taken them, the last only after all records. The caller gives again what was not written.
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
        if state.ending == Ending::Broken {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
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
        sealed[..held].copy_from_slice(&state.unsent);
        let mut len = held;
        for piece in [head, body] {
            if piece.is_empty() {
                continue;
            }
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
        state.unsent = Vec::new();
        let count = match self.tcp.poll_send(context, &sealed[..len], follows) {
            Poll::Ready(Ok(count)) if count == len => return Poll::Ready(Ok(taken)),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => {
                state.ending = Ending::Broken;
                return Poll::Ready(Err(error));
            }
            Poll::Pending => 0,
        };
        state.unsent.extend_from_slice(&sealed[count..len]);
        state.unreported = taken;
        match state.report(count.saturating_sub(held)) {
            Some(count) => Poll::Ready(Ok(count)),
            None => self.poll_send_rest(state, context, follows),
        }
    }

    fn poll_send_rest(
        &self,
        state: &mut State,
        context: &mut Context<'_>,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        while state.sent < state.unsent.len() {
            let count = match ready!(self.tcp.poll_send(context, &state.unsent[state.sent..], follows)) {
                Ok(count) => count,
                Err(error) => {
                    state.ending = Ending::Broken;
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

    /// Tells the peer what was wrong, once, and ends.
    fn fail(&self, state: &mut State, alert: Alert) {
        let mut record = [0; ALERT_ROOM];
        let sealed = state.session.seal_alert(alert, &mut record);
        self.send_last(state, &record, sealed);
        state.ending = Ending::Broken;
    }

    /// Sends the end of the stream, once.
    fn send_close(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.ending == Ending::Broken || state.has_sent_close {
            return;
        }
        state.has_sent_close = true;
        let mut record = [0; ALERT_ROOM];
        let sealed = state.session.seal_close(&mut record);
        self.send_last(state, &record, sealed);
    }

    /// Sends a record behind which there is nothing. Behind what is not whole it would be a lie.
    fn send_last(&self, state: &mut State, record: &[u8], sealed: Result<usize, Alert>) {
        let Ok(len) = sealed else { return };
        if state.unreported > 0 {
            return;
        }
        state.unsent.extend_from_slice(&record[..len]);
        self.tcp.send_at_once(&state.unsent);
        state.unsent = Vec::new();
    }

    /// The local address that the peer has connected to. A Unix socket has none.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.tcp.local_address()
    }

    /// Whether a part of a TLS record has arrived, and the rest has not.
    pub fn holds_part(&self) -> bool {
        !self.state.borrow().received.is_empty()
    }

    /// Whether the TLS keys have encrypted as much as they may: the connection must carry no further exchange.
    pub fn is_key_exhausted(&self) -> bool {
        self.state.borrow().session.is_key_exhausted()
    }

    /// Whether bytes have arrived that were not read, decrypted or not. Costs a system call.
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

    /// Whether the peer has closed its side, even if there is something to read before. Costs a system call.
    pub fn has_peer_closed(&self) -> bool {
        self.tcp.has_peer_closed()
    }

    /// Whether all that was received is read, and is not the end.
    fn has_read_all(&self) -> bool {
        let state = self.state.borrow();
        state.received.is_empty() && state.plain.is_empty() && state.ending == Ending::None
    }

    /// Whether what has been received, and what the kernel holds, comes to nothing: a part of a record may become a part
    /// of the stream.
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
        self.state.borrow_mut().ending = Ending::Broken;
        self.tcp.reset_on_drop();
    }
}

/// An alert, sealed.
const ALERT_ROOM: usize = 2 + OVERHEAD_MAX;

impl Drop for TlsConnection {
    fn drop(&mut self) {
        self.send_close();
    }
}

impl State {
    /// Opens records from the front of `incoming` for as long as `buffer` takes them; what is left is held. Returns the
    /// bytes written to `buffer`.
    fn open(&mut self, incoming: &[u8], buffer: &mut [u8], opened_apart: &mut [u8]) -> Result<usize, Alert> {
        let (mut consumed, mut count) = (0, 0);
        self.may_open = false;
        while consumed < incoming.len() {
            let mut opened = self.session.open(&incoming[consumed..], &mut buffer[count..])?;
            if let Opened::NoRoom(room) = opened {
                // A record that lacks no more than room for its tag may fit without it.
                if count > 0 && room > buffer.len() - count + OVERHEAD_MAX {
                    self.may_open = true;
                    break;
                }
                opened = self.session.open(&incoming[consumed..], opened_apart)?;
                if let Opened::Data { data, .. } = &mut opened {
                    // What the caller has no room for waits, opened.
                    let left = &mut buffer[count..];
                    let (fits, rest) = opened_apart[..*data].split_at(left.len().min(*data));
                    left[..fits.len()].copy_from_slice(fits);
                    self.plain.extend_from_slice(rest);
                    *data = fits.len();
                }
            }
            match opened {
                Opened::Partial => break,
                Opened::Data { consumed: record, data } => {
                    consumed += record;
                    count += data;
                }
                Opened::Closed => {
                    self.ending = Ending::Peer;
                    consumed = incoming.len();
                }
                Opened::Aborted(_) => {
                    self.ending = Ending::Broken;
                    consumed = incoming.len();
                }
                // No record needs more than `opened_apart` has.
                Opened::NoRoom(_) => return Err(Alert::InternalError),
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
            // An idle connection holds nothing.
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

    /// What may be reported as written when the kernel took `count` bytes, but not all.
    fn report(&mut self, count: usize) -> Option<usize> {
        let count = count.min(self.unreported - 1);
        self.unreported -= count;
        (count > 0).then_some(count)
    }
}

/// Why a TLS handshake failed.
pub enum HandshakeError {
    /// The connection broke during the handshake.
    Io,
    /// One side rejected the handshake.
    Refused(rustls::Error, Box<RefusedHandshake>),
    /// The peer sent more bytes than any handshake needs.
    TooLong,
    /// The client speaks plain HTTP. The connection is handed back.
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

/// Sends the last of a handshake, or word that the peer's last has arrived: a client that cannot resume gets no ticket, and
/// one that has resumed with TLS 1.2 nothing at all.
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
