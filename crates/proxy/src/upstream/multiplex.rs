//! HTTP/2 connections to one server, each shared by the requests of many clients.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use config::Scheme;
use http2::{Key, Limits, Reason, Role, STREAM_WINDOW};
use tokio::sync::Notify;

use crate::context::failure::Failure;
use crate::context::worker::Worker;
use crate::upstream::{Permit, Server, ServerConnection, Tally, count_connect};
use transport::connection::Connection;
use transport::deadline::{Deadline, Ticks};
use transport::endpoint::Endpoint;
use transport::h2_connection::{End, H2Connection};
use transport::h2_stream::Stream;

/// What a server may send on all streams of a connection together before the path has taken any of it. The windows of
/// the streams add up to no more, so that one that is not taken keeps no other waiting.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Streams of a connection, whatever the server allows.
const STREAMS_MAX: u32 = CONNECTION_WINDOW / STREAM_WINDOW;

/// Steps of making a connection, each with a time-out: to connect, TLS, and the server's first word.
const CONNECT_STEPS: u32 = 3;

/// One worker's HTTP/2 connections to one server.
#[derive(Default)]
pub(crate) struct Multiplex {
    connections: RefCell<Vec<Shared>>,
    /// Whether one is being made.
    is_connecting: Cell<bool>,
    /// How many have been tried to make, and what was wrong with the last that failed.
    tries: Cell<u64>,
    failure: Cell<Option<(u64, Failure)>>,
    waits: Rc<Waits>,
}

/// The requests that wait for a stream.
#[derive(Default)]
pub(crate) struct Waits {
    count: Cell<usize>,
    /// Told when there may be a stream.
    room: Notify,
}

impl Waits {
    /// Notifies waiting requests that a stream has ended.
    pub(crate) fn has_room(&self) {
        if self.count.get() > 0 {
            self.room.notify_one();
        }
    }
}

/// A connection.
struct Shared {
    h2_connection: H2Connection,
    streams: Rc<Tally>,
    /// Whether it is yet to carry an exchange.
    is_fresh: Cell<bool>,
    /// The tick at which it was last seen busy.
    busy_at: Cell<u32>,
}

impl Multiplex {
    /// A stream of an existing connection, if there are more free ones than requests that wait.
    pub(crate) fn stream(&self, scheme: Scheme) -> Option<Box<ServerConnection>> {
        let waiting = self.waits.count.get();
        if waiting > 0 && self.room_for_streams() <= waiting { None } else { self.free_stream(scheme) }
    }

    fn room_for_streams(&self) -> usize {
        let connections = self.connections.borrow();
        let open = connections.iter().filter(|shared| !shared.is_over());
        open.fold(0, |room, shared| room.saturating_add(shared.h2_connection.engine().room_for_streams()))
    }

    fn free_stream(&self, scheme: Scheme) -> Option<Box<ServerConnection>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|shared| !shared.is_over());
        connections.iter().find_map(|shared| shared.stream(scheme))
    }

    /// Waits for a stream, of a new connection or of one that becomes free, whichever comes first. A new connection
    /// serves all waiting requests.
    pub(crate) async fn connect(
        &self,
        worker: &Rc<Worker>,
        deadline: &Deadline,
        server: &Rc<Server>,
    ) -> Result<Box<ServerConnection>, Failure> {
        let _counted = Counted::new(&self.waits.count);
        let wait = async {
            loop {
                // Told before it looks, so that nothing is missed in between.
                let room = self.waits.room.notified();
                if !self.is_connecting.get() {
                    self.begin_connect(worker, server);
                }
                let awaited = self.tries.get();
                room.await;
                if let Some(connection) = self.free_stream(server.scheme()) {
                    return Ok(connection);
                }
                if let Some((_, failure)) = self.failure.get().filter(|(of, _)| *of >= awaited) {
                    return Err(failure);
                }
            }
        };
        // Each step of making one has its own time-out, and so has each address.
        let steps = CONNECT_STEPS.saturating_mul(server.addresses_count());
        let limit = Ticks(worker.snapshot().ticks.upstream_connect.0.saturating_mul(steps));
        deadline.within(limit, wait).await.unwrap_or(Err(Failure::UpstreamConnectTimeout))
    }

    /// Has a connection be made, whoever waits for it still when it is there.
    fn begin_connect(&self, worker: &Rc<Worker>, server: &Rc<Server>) {
        self.is_connecting.set(true);
        self.tries.set(self.tries.get() + 1);
        let (worker, server) = (Rc::clone(worker), Rc::clone(server));
        tokio::task::spawn_local(async move {
            let deadline = worker.deadlines.deadline();
            let outcome = establish(&worker, &deadline, &server).await;
            count_connect(&worker, outcome.is_ok());
            let multiplex = server.multiplex();
            match outcome {
                Ok(shared) => multiplex.connections.borrow_mut().push(shared),
                Err(failure) => multiplex.failure.set(Some((multiplex.tries.get(), failure))),
            }
            multiplex.is_connecting.set(false);
            multiplex.waits.room.notify_waiters();
        });
    }

    /// The number of connections without a stream.
    pub(crate) fn idle_connections(&self) -> usize {
        let connections = self.connections.borrow();
        connections.iter().filter(|shared| !shared.is_over() && shared.streams.count() == 0).count()
    }

    /// Closes connections that have been idle for longer than `idle`.
    pub(crate) fn sweep(&self, now: u32, idle: Ticks) {
        self.connections.borrow_mut().retain(|shared| {
            if shared.streams.count() > 0 {
                shared.busy_at.set(now);
            }
            !shared.is_over() && now - shared.busy_at.get() < idle.0
        });
    }
}

async fn establish(worker: &Worker, deadline: &Deadline, server: &Server) -> Result<Shared, Failure> {
    let (connection, permit) = server.open(worker, deadline, b"").await?;
    let streams = Tally::telling(&server.multiplex().waits);
    let shared = begin(worker, deadline, connection, permit, streams).await?;
    // One that takes no stream is of no use to anybody.
    let takes_one = shared.h2_connection.engine().takes_more();
    if takes_one { Ok(shared) } else { Err(Failure::UpstreamHandshake) }
}

/// Begins HTTP/2 on a connection. It is there once the server has said how many streams it takes, and whether upgraded
/// ones are among them: until then nothing is asked of it that may have to be asked elsewhere.
async fn begin(
    worker: &Worker,
    deadline: &Deadline,
    connection: Connection,
    permit: Permit,
    streams: Rc<Tally>,
) -> Result<Shared, Failure> {
    let limits = Limits {
        streams: STREAMS_MAX,
        connection_window: CONNECTION_WINDOW,
        head_bytes: worker.snapshot().head_limits.bytes,
        short_head_bytes: usize::MAX,
        long_heads_bytes: usize::MAX,
        floods: worker.snapshot().plan.config.limits.http2.floods,
    };
    let h2_connection = H2Connection::new(
        Rc::clone(&worker.frames),
        Rc::clone(&worker.deadlines),
        connection,
        Role::Client,
        limits,
    );
    let handshake = poll_fn(|context| match drive(&h2_connection, context) {
        Poll::Ready(_) => Poll::Ready(Err(Failure::UpstreamHandshake)),
        Poll::Pending if h2_connection.engine().has_begun() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    });
    match deadline.within(worker.snapshot().ticks.upstream_connect, handshake).await {
        Ok(begun) => begun?,
        Err(_) => return Err(Failure::UpstreamConnectTimeout),
    }
    let driven = h2_connection.clone();
    tokio::task::spawn_local(async move {
        let (reason, why) = match poll_fn(|context| drive(&driven, context)).await {
            End::Broken(broken) => (broken.reason, broken.why()),
            End::Closed => (Reason::NO_ERROR, ""),
        };
        driven.finish(Some(reason), why);
        drop(permit);
    });
    Ok(Shared {
        h2_connection,
        streams,
        is_fresh: Cell::new(true),
        busy_at: Cell::new(worker.deadlines.now()),
    })
}

/// Does what there is to do on a connection; ready when it has ended.
fn drive(h2_connection: &H2Connection, context: &mut Context<'_>) -> Poll<End> {
    let streams = h2_connection.engine().held() as u32;
    // A server begins no streams.
    let mut opened: Vec<Key> = Vec::new();
    let driven =
        h2_connection.poll_drive(context, CONNECTION_WINDOW / streams.clamp(1, STREAMS_MAX), &mut opened);
    let is_left = h2_connection.is_left() || (streams == 0 && h2_connection.engine().is_going_away());
    if driven.is_pending() && is_left && h2_connection.engine().held() == 0 {
        return Poll::Ready(End::Closed);
    }
    driven
}

impl Shared {
    /// Whether no further stream can be had of it, now or later.
    fn is_over(&self) -> bool {
        self.h2_connection.is_ending() || self.h2_connection.is_key_exhausted()
    }

    /// A stream, where the server allows one more.
    fn stream(&self, scheme: Scheme) -> Option<Box<ServerConnection>> {
        if self.is_over() || !self.h2_connection.engine().takes_more() {
            return None;
        }
        let key = self.h2_connection.engine().open();
        let scheme = match scheme {
            Scheme::Http | Scheme::Tcp => http2::Scheme::Http,
            Scheme::Https => http2::Scheme::Https,
        };
        let socket = Endpoint::Stream(Box::new(Stream::new(self.h2_connection.clone(), key, scheme)));
        Some(ServerConnection::new(socket, Permit::new(&self.streams), !self.is_fresh.replace(false)))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its streams may go on; with the last of them the connection ends.
        self.h2_connection.leave();
    }
}

/// Counts one who waits, for as long as it does.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
