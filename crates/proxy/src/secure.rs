//! TLS on a TCP connection. Records are received into and sent from buffers that all connections of a worker share, and
//! opened to and sealed from where the path wants their bytes: a connection that waits holds none.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tls::{Agreed, Alert, Handshake, OVERHEAD_MAX, Opened, PLAINTEXT_MAX, RECORD_MAX, Session};

use crate::buffer::BULK;
use crate::tcp::{Follows, Tcp};

/// Records of a connection that has just begun are small until this much is sent: what the first round trips carry can
/// then be used as it arrives. Later ones are as large as may be.
const SMALL_RECORDS_BYTES: u64 = 64 * 1024;
const SMALL_RECORD: usize = 4096;
/// Of a handshake, in either direction and not yet processed: certificates are long, nothing else is.
const HANDSHAKE_MAX: usize = 128 * 1024;

/// The buffers for records that the connections of one worker share.
pub(crate) struct Records {
    received: RefCell<Box<[u8]>>,
    sealed: RefCell<Box<[u8]>>,
}

impl Records {
    /// Room for what fills a large buffer, and for a record that is not yet whole.
    const LEN: usize = BULK + (BULK / PLAINTEXT_MAX + 4) * (OVERHEAD_MAX + 8) + RECORD_MAX;

    pub(crate) fn new() -> Rc<Self> {
        let buffer = || RefCell::new(vec![0; Self::LEN].into_boxed_slice());
        Rc::new(Self { received: buffer(), sealed: buffer() })
    }
}

/// A TCP connection with TLS, after its handshake.
pub(crate) struct Secure {
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
    /// Sealed, and not yet taken by the kernel.
    unsent: Vec<u8>,
    /// Bytes of the caller's that are sealed and not yet reported as written.
    unreported: usize,
    sent_bytes: u64,
    ending: Ending,
}

/// How far a connection is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    None,
    /// The peer has ended its stream.
    Peer,
    /// One of the two has broken the protocol: nothing more is read or sent.
    Broken,
}

impl Secure {
    /// Does the handshake. What it takes of time is the caller's to limit.
    pub(crate) async fn establish(
        tcp: Tcp,
        mut handshake: Handshake,
        records: &Rc<Records>,
    ) -> Result<(Self, Agreed), HandshakeError> {
        let (mut received, mut out, mut early) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let advance = handshake.advance(&mut received, &mut out, &mut early);
            send_all(&tcp, &out).await?;
            out.clear();
            let advance = advance.map_err(HandshakeError::Refused)?;
            received.drain(..advance.consumed);
            if advance.is_done {
                break;
            }
            if received.len() > HANDSHAKE_MAX || early.len() > HANDSHAKE_MAX {
                return Err(HandshakeError::TooLong);
            }
            receive(&tcp, records, &mut received).await?;
        }
        let (session, agreed) = handshake.finish().map_err(HandshakeError::Refused)?;
        received.shrink_to_fit();
        let state = State {
            session,
            may_open: !received.is_empty(),
            received,
            plain: early,
            unsent: Vec::new(),
            unreported: 0,
            sent_bytes: 0,
            ending: Ending::None,
        };
        Ok((Self { tcp, records: Rc::clone(records), state: RefCell::new(state) }, agreed))
    }

    /// Ready when there is something to read, or the end.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.state.borrow();
        if state.may_open || !state.plain.is_empty() || state.ending != Ending::None {
            return Poll::Ready(Ok(()));
        }
        self.tcp.poll_readable(context)
    }

    /// Reads into `buffer`; 0 is an end that the peer has told, any other end is an error.
    pub(crate) fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
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
                let wanted = buffer.len() + (buffer.len() / PLAINTEXT_MAX + 1) * OVERHEAD_MAX;
                let limit = (held + wanted).clamp(RECORD_MAX, incoming.len());
                let count = ready!(self.tcp.poll_read(context, &mut incoming[held..limit]))?;
                if count == 0 {
                    // RFC 8446 §6.1: an end that nobody has sealed may be anybody's.
                    return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
                }
                len += count;
            }
            incoming[..held].copy_from_slice(&state.received);
            match state.open(&incoming[..len], buffer) {
                Ok(0) => {}
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(alert) => self.fail(state, alert),
            }
        }
    }

    /// Writes the start of `bytes`. They are sealed at once, as many as fit, but reported as written only as the kernel
    /// takes them, and the last when it has taken all: what is not reported is to be given again.
    pub(crate) fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        if state.ending == Ending::Broken {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        if state.unreported > 0 {
            return self.poll_send_rest(state, context, follows);
        }
        let piece = &bytes[..bytes.len().min(BULK)];
        let sealed = &mut **self.records.sealed.borrow_mut();
        let first = if state.sent_bytes < SMALL_RECORDS_BYTES { SMALL_RECORD } else { PLAINTEXT_MAX };
        let len = match state.session.seal(piece, first, sealed) {
            Ok(len) => len,
            Err(alert) => {
                self.fail(state, alert);
                return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
            }
        };
        state.sent_bytes += piece.len() as u64;
        let count = match self.tcp.poll_send(context, &sealed[..len], follows) {
            Poll::Ready(Ok(count)) if count == len => return Poll::Ready(Ok(piece.len())),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => {
                state.ending = Ending::Broken;
                return Poll::Ready(Err(error));
            }
            Poll::Pending => 0,
        };
        state.unsent.extend_from_slice(&sealed[count..len]);
        state.unreported = piece.len();
        match state.report(count) {
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
        while !state.unsent.is_empty() {
            let count = match ready!(self.tcp.poll_send(context, &state.unsent, follows)) {
                Ok(count) => count,
                Err(error) => {
                    state.ending = Ending::Broken;
                    return Poll::Ready(Err(error));
                }
            };
            state.unsent.drain(..count);
            if !state.unsent.is_empty()
                && let Some(count) = state.report(count)
            {
                return Poll::Ready(Ok(count));
            }
        }
        state.unsent = Vec::new();
        Poll::Ready(Ok(std::mem::take(&mut state.unreported)))
    }

    /// Tells the peer what was wrong, once, and ends.
    fn fail(&self, state: &mut State, alert: Alert) {
        let mut record = [0; OVERHEAD_MAX + 2];
        if state.unsent.is_empty()
            && let Ok(len) = state.session.seal_alert(alert, &mut record)
        {
            self.tcp.send_at_once(&record[..len]);
        }
        state.ending = Ending::Broken;
    }

    /// Whether nothing of the stream has arrived, as far as the runtime knows. Tickets and new keys are taken in.
    pub(crate) fn is_quiet(&self) -> bool {
        if self.tcp.is_quiet() && !self.state.borrow().may_open {
            return self.state.borrow().plain.is_empty();
        }
        self.poll_read(&mut Context::from_waker(Waker::noop()), &mut [0; 1]).is_pending()
    }

    /// The same as far as the kernel knows.
    pub(crate) fn is_quiet_still(&self) -> bool {
        self.tcp.is_quiet_still() || self.is_quiet()
    }

    /// Seals and sends the end of the stream.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        self.send_close();
        self.tcp.shutdown_write()
    }

    /// Closes so that the peer sees a reset, and no end.
    pub(crate) fn reset_on_drop(&self) {
        self.state.borrow_mut().ending = Ending::Broken;
        self.tcp.reset_on_drop();
    }

    fn send_close(&self) {
        let state = &mut *self.state.borrow_mut();
        let mut record = [0; OVERHEAD_MAX + 2];
        // Behind what is not whole an end would be a lie.
        if state.ending != Ending::Broken
            && state.unsent.is_empty()
            && let Ok(len) = state.session.seal_close(&mut record)
        {
            self.tcp.send_at_once(&record[..len]);
        }
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.send_close();
    }
}

impl State {
    /// Opens records from the front of `incoming` for as long as `buffer` takes them; what is left is held. Returns the
    /// bytes written to `buffer`.
    fn open(&mut self, incoming: &[u8], buffer: &mut [u8]) -> Result<usize, Alert> {
        let (mut consumed, mut count) = (0, 0);
        self.may_open = false;
        while consumed < incoming.len() {
            match self.session.open(&incoming[consumed..], &mut buffer[count..])? {
                Opened::Partial => break,
                Opened::Closed => {
                    self.ending = Ending::Peer;
                    consumed = incoming.len();
                }
                Opened::Data { consumed: record, data } => {
                    consumed += record;
                    count += data;
                }
                Opened::NoRoom(_) if count > 0 => {
                    self.may_open = true;
                    break;
                }
                Opened::NoRoom(room) => {
                    // More in one record than the caller can take: it is held, opened.
                    self.plain.resize(room, 0);
                    let opened = self.session.open(&incoming[consumed..], &mut self.plain);
                    let Ok(Opened::Data { consumed: record, data }) = opened else {
                        self.plain = Vec::new();
                        match opened? {
                            Opened::Closed => self.ending = Ending::Peer,
                            _ => return Err(Alert::InternalError),
                        }
                        break;
                    };
                    consumed += record;
                    self.plain.truncate(data);
                    count = self.take_plain(buffer);
                    if count > 0 {
                        self.may_open = consumed < incoming.len();
                        break;
                    }
                }
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

/// Why a handshake came to nothing.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The connection broke.
    Io,
    /// One side refused what the other said.
    Refused(rustls::Error),
    /// More than any handshake needs.
    TooLong,
}

impl From<io::Error> for HandshakeError {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
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
