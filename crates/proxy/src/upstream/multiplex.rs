//! HTTP/2 or HTTP/3 connections to one server, each shared by the requests of many clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use config::Scheme;
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::upstream::channel::{self, SharedConnection};
use crate::upstream::lender::Lender;
use crate::upstream::{Permit, ServerConnection, Tally, UpstreamServer, count_connect, quic};
use transport::deadline::{Deadline, Ticks};

/// Steps of making a connection, each with a time-out: connect, TLS, and the server's settings.
const CONNECT_STEPS: u32 = 3;

/// A worker's shared connections to one server.
#[derive(Default)]
pub(crate) struct Multiplex {
    connections: RefCell<Vec<MultiplexShared>>,
    /// Whether a connection is being made.
    is_connecting: Cell<bool>,
    /// The number of connection attempts.
    tries: Cell<u64>,
    failure: Cell<Option<(u64, Failure)>>,
    waits: Rc<StreamQueue>,
}

/// The requests that wait for a stream.
#[derive(Default)]
pub(crate) struct StreamQueue {
    count: Cell<usize>,
    /// Notified when there may be a stream.
    room: Notify,
}

impl StreamQueue {
    /// Notifies one waiting request that a stream has ended.
    pub(crate) fn has_room(&self) {
        if self.count.get() > 0 {
            self.room.notify_one();
        }
    }

    /// Notifies all waiting requests that there may be streams.
    pub(crate) fn have_room(&self) {
        self.room.notify_waiters();
    }
}

struct MultiplexShared {
    channel: SharedConnection,
    streams: Rc<Tally>,
    /// Whether it has not carried an exchange yet.
    is_fresh: Cell<bool>,
    /// The tick at which it was last seen busy.
    busy_at: Cell<u32>,
}

impl Multiplex {
    /// Returns a stream of an existing connection, if more are free than requests wait.
    pub(crate) fn stream(&self, scheme: Scheme) -> Option<Box<ServerConnection>> {
        let waiting = self.waits.count.get();
        // Waiting requests come first: only the streams beyond their number are free.
        if waiting > 0 && self.room_for_streams() <= waiting { None } else { self.free_stream(scheme) }
    }

    fn room_for_streams(&self) -> usize {
        let connections = self.connections.borrow();
        let open = connections.iter().filter(|shared| !shared.is_over());
        open.fold(0, |room, shared| room.saturating_add(shared.channel.room()))
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
        worker: &Rc<impl Lender>,
        deadline: &Deadline,
        server: &Rc<UpstreamServer>,
    ) -> Result<Box<ServerConnection>, Failure> {
        let _counted = CountedWaiter::new(&self.waits.count);
        let wait = async {
            loop {
                // Registered before the check, so that no notification is missed.
                let room = self.waits.room.notified();
                // One connection at a time, because it may have streams for all that wait.
                if !self.is_connecting.get() {
                    self.begin_connect(worker, server);
                }
                let awaited = self.tries.get();
                room.await;
                if let Some(connection) = self.free_stream(server.scheme()) {
                    return Ok(connection);
                }
                // The failure of an earlier attempt says nothing about this one.
                if let Some((_, failure)) = self.failure.get().filter(|(of, _)| *of >= awaited) {
                    return Err(failure);
                }
            }
        };
        // Each step has its own time-out, and so has each address.
        let steps = CONNECT_STEPS.saturating_mul(server.addresses_count());
        let limit = Ticks(server.connect_limit(&**worker).0.saturating_mul(steps));
        deadline.within(limit, wait).await.unwrap_or(Err(Failure::UpstreamConnectTimeout))
    }

    /// Starts to make a connection, for any request that waits when it is ready.
    fn begin_connect(&self, worker: &Rc<impl Lender>, server: &Rc<UpstreamServer>) {
        self.is_connecting.set(true);
        self.tries.set(self.tries.get() + 1);
        let (worker, server) = (Rc::clone(worker), Rc::clone(server));
        // A separate task, because the request that begins it may leave.
        tokio::task::spawn_local(async move {
            let deadline = worker.deadlines().deadline();
            let outcome = establish(&*worker, &deadline, &server).await;
            count_connect(&*worker, outcome.is_ok());
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

    /// Ends all connections at once when the worker ends.
    pub(crate) fn end(&self) {
        self.connections.borrow().iter().for_each(|shared| shared.channel.end());
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

/// Connects to a server for requests over HTTP/2 or HTTP/3. Called by `begin_connect`, apart from the requests that
/// wait.
async fn establish(
    worker: &impl Lender,
    deadline: &Deadline,
    server: &Rc<UpstreamServer>,
) -> Result<MultiplexShared, Failure> {
    let waits = &server.multiplex().waits;
    let channel = if server.plan.speaks_http3() {
        quic::establish(worker, deadline, server, waits).await?
    } else {
        let (connection, permit) = server.open(worker, deadline, b"").await?;
        channel::begin_http2(worker, deadline, server, connection, permit).await?
    };
    // A connection that permits no streams is useless.
    if channel.room() == 0 {
        return Err(server.refused(Failure::UpstreamProtocol, "it permits no requests on its connections"));
    }
    let (streams, busy_at) = (Tally::telling(waits), Cell::new(worker.deadlines().now()));
    Ok(MultiplexShared { channel, streams, is_fresh: Cell::new(true), busy_at })
}

impl MultiplexShared {
    /// Whether it offers no further stream, now or later.
    fn is_over(&self) -> bool {
        self.channel.is_over()
    }

    /// Opens a stream, if the server permits another one.
    fn stream(&self, scheme: Scheme) -> Option<Box<ServerConnection>> {
        let socket = self.channel.open(scheme)?;
        Some(ServerConnection::new(socket, Permit::new(&self.streams), !self.is_fresh.replace(false)))
    }
}

impl Drop for MultiplexShared {
    fn drop(&mut self) {
        // Existing streams go on; the connection ends with the last of them.
        self.channel.leave();
    }
}

/// Counts a waiting request until it is dropped.
struct CountedWaiter<'a>(&'a Cell<usize>);

impl<'a> CountedWaiter<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
