//! Connections of HTTP/2 to one server, each shared by the requests of many clients.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use config::Scheme;
use http2::{Key, Limits, Reason, Role, STREAM_WINDOW};
use tokio::sync::Notify;

use crate::deadline::{Deadline, Ticks};
use crate::failure::Failure;
use crate::session::{End, Session};
use crate::socket::Socket;
use crate::stream::Stream;
use crate::upstream::{Connection, Permit, Server};
use crate::worker::Worker;

/// What a server may send on all streams of a connection together before the path has taken any of it. The windows of
/// the streams add up to no more, so that one that is not taken keeps no other waiting.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Streams of a connection, whatever the server allows.
const STREAMS_MAX: u32 = CONNECTION_WINDOW / STREAM_WINDOW;

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
    session: Session,
    streams: Rc<Cell<usize>>,
    /// The tick at which it was last seen busy.
    busy_at: Cell<u32>,
}

impl Multiplex {
    /// A stream of a connection that is there, if one has room.
    pub(crate) fn stream(&self, scheme: Scheme) -> Option<Box<Connection>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|shared| !shared.is_over());
        connections.iter().find_map(|shared| shared.stream(scheme, true))
    }

    /// A stream of a new connection. Where another request is connecting already, what that comes to is waited for.
    pub(crate) async fn connect(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        server: &Server,
    ) -> Result<Box<Connection>, Failure> {
        while self.is_connecting.get() {
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
        // Should this request be given up, those who wait go on by themselves.
        self.failure.set(None);
        let outcome = self.establish(worker, deadline, server).await;
        self.failure.set(outcome.as_ref().err().copied());
        outcome
    }

    async fn establish(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        server: &Server,
    ) -> Result<Box<Connection>, Failure> {
        let (socket, permit) = server.open(worker, deadline, b"").await?;
        let shared = begin(worker, deadline, socket, permit).await?;
        let connection = shared.stream(server.scheme(), false).ok_or(Failure::UpstreamHandshake)?;
        self.connections.borrow_mut().push(shared);
        Ok(connection)
    }

    /// Connections without a stream.
    pub(crate) fn idle_connections(&self) -> usize {
        let connections = self.connections.borrow();
        connections.iter().filter(|shared| !shared.is_over() && shared.streams.get() == 0).count()
    }

    /// Closes connections that have been idle for long.
    pub(crate) fn sweep(&self, now: u32, idle: Ticks) {
        self.connections.borrow_mut().retain(|shared| {
            if shared.streams.get() > 0 {
                shared.busy_at.set(now);
            }
            !shared.is_over() && now - shared.busy_at.get() < idle.0
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
    let limits = Limits {
        streams: STREAMS_MAX,
        connection_window: CONNECTION_WINDOW,
        head_bytes: worker.snapshot().head_limits.bytes,
        short_head_bytes: usize::MAX,
        long_heads_bytes: usize::MAX,
    };
    let session = Session::new(worker, socket, Role::Client, limits);
    let handshake = poll_fn(|context| match drive(&session, context) {
        Poll::Ready(_) => Poll::Ready(Err(Failure::UpstreamHandshake)),
        Poll::Pending if session.engine().has_begun() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    });
    match deadline.within(worker.snapshot().ticks.upstream_connect, handshake).await {
        Ok(begun) => begun?,
        Err(_) => return Err(Failure::UpstreamConnectTimeout),
    }
    let driven = session.clone();
    tokio::task::spawn_local(async move {
        let reason = match poll_fn(|context| drive(&driven, context)).await {
            End::Broken(broken) => broken.reason,
            End::Closed => Reason::NO_ERROR,
        };
        driven.finish(Some(reason));
        drop(permit);
    });
    Ok(Shared { session, streams: Rc::default(), busy_at: Cell::new(worker.deadlines.now()) })
}

/// Does what there is to do on a connection; ready when it has ended.
fn drive(session: &Session, context: &mut Context<'_>) -> Poll<End> {
    let streams = session.engine().held() as u32;
    // A server begins no streams.
    let mut opened: Vec<Key> = Vec::new();
    let driven = session.poll_drive(context, CONNECTION_WINDOW / streams.clamp(1, STREAMS_MAX), &mut opened);
    let is_left = session.is_left() || (streams == 0 && session.engine().is_going_away());
    if driven.is_pending() && is_left && session.engine().held() == 0 {
        return Poll::Ready(End::Closed);
    }
    driven
}

impl Shared {
    /// Whether no further stream can be had of it, now or later.
    fn is_over(&self) -> bool {
        self.session.is_ending() || self.session.is_worn()
    }

    /// A stream, where the server allows one more.
    fn stream(&self, scheme: Scheme, is_reused: bool) -> Option<Box<Connection>> {
        if self.is_over() || !self.session.engine().takes_more() {
            return None;
        }
        let key = self.session.engine().open();
        let scheme = match scheme {
            Scheme::Http | Scheme::Tcp => http2::Scheme::Http,
            Scheme::Https => http2::Scheme::Https,
        };
        let socket = Socket::Stream(Box::new(Stream::new(self.session.clone(), key, scheme)));
        Some(Connection::new(socket, Permit::new(&self.streams), is_reused))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its streams may go on; with the last of them the connection ends.
        self.session.leave();
    }
}

/// Tells those who wait when it is over, however it ends.
struct Connecting<'a>(&'a Multiplex);

impl<'a> Connecting<'a> {
    fn new(multiplex: &'a Multiplex) -> Self {
        multiplex.is_connecting.set(true);
        // Whoever it is made for may leave: then nothing has failed, and one of those who wait makes it.
        multiplex.failure.set(None);
        Self(multiplex)
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.is_connecting.set(false);
        self.0.connected.notify_waiters();
    }
}
