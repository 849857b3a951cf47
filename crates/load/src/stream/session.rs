//! An HTTP/2 connection that streams share; the first that needs it opens it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ::h2::client::{Builder, SendRequest};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Mutex;

use crate::connect;
use crate::failure::LoadFailure;
use crate::give_up::GiveUp;
use crate::http2::H2Code;
use crate::slots::Slots;
use crate::tls::Sessions;
use crate::transport::Transport;
use crate::worker::LoadWorker;

/// Flow-control window of each stream, and of a connection for all its streams together.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Maximum size of the fields of a response (SETTINGS_MAX_HEADER_LIST_SIZE).
const FIELDS_BYTES_MAX: u32 = 64 * 1024;

/// The connection of several streams. Over HTTP/1.1 each stream opens its own.
pub(super) struct SessionLink {
    pub(super) worker: Rc<LoadWorker>,
    pub(super) sessions: Sessions,
    open: RefCell<Option<StreamSession>>,
    /// Lock of the stream that opens a connection; the others wait to share it.
    opening: Mutex<()>,
    opened: Cell<u64>,
}

#[derive(Clone)]
pub(super) struct StreamSession {
    pub(super) requests: SendRequest<Bytes>,
    slots: Rc<Slots>,
    number: u64,
}

impl SessionLink {
    pub(super) fn new(worker: &Rc<LoadWorker>) -> Self {
        Self {
            sessions: Sessions::new(worker.shared.targets.servers.count()),
            worker: Rc::clone(worker),
            open: RefCell::default(),
            opening: Mutex::default(),
            opened: Cell::new(0),
        }
    }

    /// The open connection, or a new one.
    pub(super) async fn session(&self, give_up: &mut GiveUp) -> Result<StreamSession, LoadFailure> {
        if let Some(session) = self.usable() {
            return Ok(session);
        }
        give_up.start(Instant::now());
        let after = give_up.after();
        let turn = give_up.bound(self.opening.lock()).await;
        let _turn = turn.ok_or(LoadFailure::ConnectTimeout { after })?;
        if let Some(session) = self.usable() {
            return Ok(session);
        }
        let session = self.open(give_up).await?;
        *self.open.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    fn usable(&self) -> Option<StreamSession> {
        self.open.borrow().clone().filter(|session| !session.slots.is_over())
    }

    async fn open(&self, give_up: &mut GiveUp) -> Result<StreamSession, LoadFailure> {
        let transport = connect::open(&self.worker, &self.sessions, 0, give_up).await?;
        let channel =
            SessionBytes { transport, worker: Rc::clone(&self.worker), overflow: Vec::new(), taken_bytes: 0 };
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            // Until the server's limit is known.
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(FIELDS_BYTES_MAX);
        let (requests, connection) = builder.handshake(channel).await?;
        // The streams get the connection's error.
        let slots = Rc::<Slots>::default();
        tokio::task::spawn_local(Rc::clone(&slots).drive(connection));
        // RFC 9113 §3.4: waits for the server's limit of streams, and whether it supports WebSockets (RFC 8441 §3).
        let after = give_up.after();
        let opened = slots.opened(|| requests.current_max_send_streams());
        give_up.bound(opened).await.ok_or(LoadFailure::NoStreams { after })?;
        self.opened.set(self.opened.get() + 1);
        Ok(StreamSession { requests, slots, number: self.opened.get() })
    }

    /// Removes the connection, if the failure of a stream affects all of it.
    pub(super) fn broken(&self, session: &StreamSession, failure: &LoadFailure) {
        if matches!(failure, LoadFailure::Reset(_) | LoadFailure::Timeout { .. } | LoadFailure::Stream(_)) {
            return;
        }
        self.open.borrow_mut().take_if(|open| open.number == session.number);
        session.slots.end();
    }
}

impl StreamSession {
    /// Waits until the connection accepts another stream.
    pub(super) async fn ready(&mut self) -> Result<(), LoadFailure> {
        poll_fn(|context| self.requests.poll_ready(context)).await.map_err(LoadFailure::from)
    }
}

impl From<::h2::Error> for LoadFailure {
    fn from(error: ::h2::Error) -> Self {
        match error.reason() {
            Some(reason) if error.is_remote() && error.is_go_away() => Self::GoAway(H2Code(reason.into())),
            Some(reason) if error.is_remote() => Self::Reset(H2Code(reason.into())),
            _ if error.is_io() => {
                let error = error.into_io().unwrap_or_else(|| io::ErrorKind::Other.into());
                match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                    Some(error) => Self::Tls { error: error.clone() },
                    None => Self::Read(error),
                }
            }
            _ => Self::Http2("a frame or a field that does not belong there"),
        }
    }
}

/// Byte stream for the crate `h2`, over a transport.
struct SessionBytes {
    transport: Transport,
    worker: Rc<LoadWorker>,
    /// Received bytes beyond the requested number: at most those that one receive decrypts.
    overflow: Vec<u8>,
    /// Number of bytes of `overflow` that were taken.
    taken_bytes: usize,
}

impl AsyncRead for SessionBytes {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.taken_bytes == this.overflow.len() {
            this.overflow.clear();
            this.taken_bytes = 0;
            let mut scratch = this.worker.scratch.borrow_mut();
            let (overflow, mut received_bytes) = (&mut this.overflow, 0);
            let received = this.transport.poll_receive(context, &mut scratch.buffer, |bytes| {
                received_bytes += bytes.len() as u64;
                let (now, later) = bytes.split_at(bytes.len().min(out.remaining()));
                out.put_slice(now);
                overflow.extend_from_slice(later);
            });
            ready!(received)?;
            super::transferred(&this.worker, 0, received_bytes);
            return Poll::Ready(Ok(()));
        }
        let rest = &this.overflow[this.taken_bytes..];
        let now = &rest[..rest.len().min(out.remaining())];
        out.put_slice(now);
        this.taken_bytes += now.len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SessionBytes {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(this.transport.poll_write(context, bytes))?;
        super::transferred(&this.worker, written as u64, 0);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().transport.poll_flush(context).map_err(io::Error::from)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
