//! Connections of HTTP/2 to one server, each shared by the requests of many clients.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use config::Scheme;
use h2::Reason;
use h2::client::{Builder, SendRequest};
use tokio::sync::Notify;

use crate::deadline::{Deadline, Ticks};
use crate::failure::Failure;
use crate::frames::{Frames, GATHER_MAX};
use crate::socket::Socket;
use crate::stream::Stream;
use crate::upstream::{Connection, Permit, Server};
use crate::windows;
use crate::worker::Worker;

/// What a server may send on all streams of a connection together before the path has taken any of it. The windows of
/// the streams add up to no more, so that one that is not taken keeps no other waiting.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Streams of a connection, whatever the server allows.
const STREAMS_MAX: usize = (CONNECTION_WINDOW / windows::STREAM) as usize;
/// Of a request, taken from the path and not yet sent.
const SEND_BUFFER: usize = GATHER_MAX;

/// The connections of one worker to one server.
#[derive(Default)]
pub(crate) struct Multiplex {
    connections: RefCell<Vec<Shared>>,
    /// Whether somebody is connecting, and what came of it last.
    is_connecting: Cell<bool>,
    failure: Cell<Option<Failure>>,
    connected: Notify,
}

/// A connection.
struct Shared {
    send: SendRequest<Bytes>,
    frames: Frames,
    streams: Rc<Cell<usize>>,
    is_closed: Rc<Cell<bool>>,
    /// The tick at which it was last seen busy.
    busy_at: Cell<u32>,
}

impl Multiplex {
    /// A stream of a connection that is there, if one has room.
    pub(crate) fn stream(&self, scheme: Scheme) -> Option<Connection> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|shared| !shared.is_closed.get());
        connections.iter_mut().find_map(|shared| shared.stream(scheme, true))
    }

    /// A stream of a new connection. Where another request is connecting already, what that comes to is waited for.
    pub(crate) async fn connect(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        server: &Server,
        may_reuse: bool,
    ) -> Result<Connection, Failure> {
        while may_reuse && self.is_connecting.get() {
            let limit = worker.snapshot().ticks.upstream_connect;
            if deadline.within(limit, self.connected.notified()).await.is_err() {
                return Err(Failure::UpstreamConnectTimeout);
            }
            if let Some(connection) = self.stream(server.scheme()) {
                return Ok(connection);
            }
            if let Some(failure) = self.failure.get() {
                return Err(failure);
            }
        }
        let _connecting = Connecting::new(self);
        let outcome = self.establish(worker, deadline, server).await;
        self.failure.set(outcome.as_ref().err().copied());
        outcome
    }

    async fn establish(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        server: &Server,
    ) -> Result<Connection, Failure> {
        let (socket, permit) = server.open(worker, deadline, b"").await?;
        let mut shared = begin(worker, deadline, socket, permit).await?;
        let connection = shared.stream(server.scheme(), false).ok_or(Failure::UpstreamHandshake)?;
        self.connections.borrow_mut().push(shared);
        Ok(connection)
    }

    /// Connections without a stream.
    pub(crate) fn idle_connections(&self) -> usize {
        let connections = self.connections.borrow();
        connections.iter().filter(|shared| !shared.is_closed.get() && shared.streams.get() == 0).count()
    }

    /// Closes connections that have been idle for long.
    pub(crate) fn sweep(&self, now: u32, idle: Ticks) {
        self.connections.borrow_mut().retain(|shared| {
            if shared.streams.get() > 0 {
                shared.busy_at.set(now);
            }
            !shared.is_closed.get() && now - shared.busy_at.get() < idle.0
        });
    }
}

/// Begins HTTP/2 on a connection. It is there once the server has said how many streams it takes, and whether upgraded
/// ones are among them: until then nothing is asked of it that may have to be asked elsewhere.
async fn begin(
    worker: &Worker,
    deadline: &Deadline,
    socket: Socket,
    permit: Permit,
) -> Result<Shared, Failure> {
    let frames = Frames::to_server(worker, socket);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(windows::STREAM)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(worker.snapshot().head_limits.bytes as u32)
        .max_send_buffer_size(SEND_BUFFER);
    let handshake = async {
        let (send, mut connection) = builder.handshake::<_, Bytes>(frames.clone()).await?;
        poll_fn(|context| match drive(&mut connection, &frames, 1, context) {
            Poll::Ready(ended) => Poll::Ready(Err(ended.err().unwrap_or_else(|| Reason::NO_ERROR.into()))),
            Poll::Pending if frames.has_begun() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        Ok::<_, h2::Error>((send, connection))
    };
    let (send, mut connection) =
        match deadline.within(worker.snapshot().ticks.upstream_connect, handshake).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(_)) => return Err(Failure::UpstreamHandshake),
            Err(_) => return Err(Failure::UpstreamConnectTimeout),
        };
    let is_closed = Rc::new(Cell::new(false));
    let closed = Rc::clone(&is_closed);
    let streams = Rc::new(Cell::new(0));
    let (shared, active) = (frames.clone(), Rc::clone(&streams));
    tokio::task::spawn_local(async move {
        // What went wrong is told to each of its streams.
        let _ = poll_fn(|context| drive(&mut connection, &shared, active.get(), context)).await;
        closed.set(true);
        drop(permit);
    });
    Ok(Shared { send, frames, streams, is_closed, busy_at: Cell::new(worker.deadlines.now()) })
}

/// Does what there is to do on a connection with so many streams; ready when it has ended.
fn drive(
    connection: &mut h2::client::Connection<Frames>,
    frames: &Frames,
    streams: usize,
    context: &mut Context<'_>,
) -> Poll<Result<(), h2::Error>> {
    let limit = CONNECTION_WINDOW / streams.clamp(1, STREAMS_MAX) as u32;
    frames.adjust(limit, |window| connection.set_initial_window_size(window));
    loop {
        let ended = Pin::new(&mut *connection).poll(context);
        // What fails here is told to `h2` by its next call.
        let _ = frames.poll_send(context);
        if ended.is_ready() || !frames.resume() {
            return ended;
        }
    }
}

impl Shared {
    /// A stream, where the server allows one more.
    fn stream(&mut self, scheme: Scheme, is_reused: bool) -> Option<Connection> {
        if self.streams.get() >= self.send.current_max_send_streams().min(STREAMS_MAX) {
            return None;
        }
        match self.send.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                let stream = Stream::to_server(self.send.clone(), scheme, self.frames.clone());
                let socket = Socket::Stream(Box::new(stream));
                Some(Connection::new(socket, Permit::new(&self.streams), is_reused))
            }
            Poll::Ready(Err(_)) => {
                self.is_closed.set(true);
                None
            }
            Poll::Pending => None,
        }
    }
}

/// Tells those who wait when it is over, however it ends.
struct Connecting<'a>(&'a Multiplex);

impl<'a> Connecting<'a> {
    fn new(multiplex: &'a Multiplex) -> Self {
        multiplex.is_connecting.set(true);
        Self(multiplex)
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.is_connecting.set(false);
        self.0.connected.notify_waiters();
    }
}
