//! Connections of HTTP/2 or HTTP/3 to one server, each shared by the requests of many clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use config::Scheme;
use tokio::sync::Notify;

use crate::context::failure::Failure;
use crate::context::worker::Worker;
use crate::upstream::channel::{self, Channel};
use crate::upstream::{Permit, Server, ServerConnection, Tally, count_connect, quic};
use transport::deadline::{Deadline, Ticks};

/// Steps of making a connection, each with a time-out: to connect, TLS, and the server's first word.
const CONNECT_STEPS: u32 = 3;

/// One worker's connections to one server that are shared.
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

    /// Notifies them that there may be several streams.
    pub(crate) fn have_room(&self) {
        self.room.notify_waiters();
    }
}

/// A connection.
struct Shared {
    channel: Channel,
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
        let limit = Ticks(server.connect_limit(worker).0.saturating_mul(steps));
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

    /// Ends all connections at once, because the worker does.
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

async fn establish(worker: &Worker, deadline: &Deadline, server: &Rc<Server>) -> Result<Shared, Failure> {
    let waits = &server.multiplex().waits;
    let channel = if server.plan.speaks_http3() {
        quic::establish(worker, deadline, server, waits).await?
    } else {
        let (connection, permit) = server.open(worker, deadline, b"").await?;
        channel::begin_http2(worker, (deadline, server.connect_limit(worker)), connection, permit).await?
    };
    // One that takes no stream is of no use to anybody.
    if channel.room() == 0 {
        return Err(Failure::UpstreamHandshake);
    }
    let (streams, busy_at) = (Tally::telling(waits), Cell::new(worker.deadlines.now()));
    Ok(Shared { channel, streams, is_fresh: Cell::new(true), busy_at })
}

impl Shared {
    /// Whether no further stream can be had of it, now or later.
    fn is_over(&self) -> bool {
        self.channel.is_over()
    }

    /// A stream, where the server allows one more.
    fn stream(&self, scheme: Scheme) -> Option<Box<ServerConnection>> {
        let socket = self.channel.open(scheme)?;
        Some(ServerConnection::new(socket, Permit::new(&self.streams), !self.is_fresh.replace(false)))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its streams may go on; with the last of them the connection ends.
        self.channel.leave();
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
