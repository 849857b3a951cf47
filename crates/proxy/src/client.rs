//! A client's connection over HTTP/1: idle, then one exchange after the other.
//!
//! While idle it is a socket, a deadline and an address. What belongs to a request is in a lane.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;

use wire::{HeadLimits, Parsed};

use crate::deadline::{Deadline, Ticks};
use crate::exchange;
use crate::failure::Failure;
use crate::lane::{Memory, Request};
use crate::respond;
use crate::socket::Socket;
use crate::worker::{State, Worker};

/// After a response to a request that was not read to its end: how much more is read and thrown away, so that the
/// client gets to see the response before a reset.
const LINGER_BYTES: usize = 32 << 20;
/// And for how long.
const LINGER: Ticks = Ticks(50);

/// A client's connection.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) address: IpAddr,
    /// Whether it may say whom it forwards for.
    pub(crate) is_trusted: bool,
    pub(crate) deadline: Deadline,
    /// Requests so far.
    pub(crate) served: u64,
}

impl Client {
    pub(crate) fn new(worker: &Worker, socket: Socket, peer: SocketAddr) -> Self {
        let address = peer.ip().to_canonical();
        Self {
            socket,
            address,
            is_trusted: worker.plan.trusts(address),
            deadline: worker.deadlines.deadline(),
            served: 0,
        }
    }

    /// Waits, idle, until there is something to read; false when the wait is over without.
    fn is_to_be_read(&self, worker: &Worker) -> impl Future<Output = bool> {
        // A connection that has not yet sent anything gets the time for a head, not that of an idle one.
        let limit = if self.served == 0 { worker.ticks.client_header } else { worker.ticks.keep_alive };
        self.deadline.set_idle(limit);
        let is_over = worker.state.get() == State::Draining;
        poll_fn(move |context| match self.socket.poll_readable(context) {
            _ if is_over => Poll::Ready(false),
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => self.deadline.poll(context).map(|()| false),
        })
    }
}

/// What became of a connection in a lane.
pub(crate) enum Served {
    /// It waits for its next request.
    Idle(Client),
    /// It is closed.
    Closed,
}

/// What an exchange leaves of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next request may follow.
    Reuse,
    /// To be closed.
    Close,
    /// To be closed, but the client may still be sending.
    Linger,
}

/// The life of a connection: the body of its task.
#[allow(
    clippy::manual_async_fn,
    reason = "an async fn holds its arguments twice, and so would every idle connection"
)]
pub(crate) fn connection(worker: Rc<Worker>, mut client: Client) -> impl Future<Output = ()> {
    async move {
        let _count = Count::new(&worker);
        loop {
            if !client.is_to_be_read(&worker).await {
                return;
            }
            let mut lane = worker.lanes.take(&worker);
            lane.hand_over(client);
            let served = lane.served().await;
            worker.lanes.give(lane);
            match served {
                Served::Idle(idle) => client = idle,
                Served::Closed => return,
            }
        }
    }
}

/// Counts a connection for as long as it lives, however it ends.
struct Count<'a>(&'a Worker);

impl<'a> Count<'a> {
    fn new(worker: &'a Worker) -> Self {
        worker.counters.connections_active.increment();
        Self(worker)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.counters.connections_active.decrement();
        self.0.connection_ended();
    }
}

/// What reading a request came to.
enum Reading {
    Request,
    /// Nothing has arrived.
    Idle,
    /// The client has closed.
    Closed,
    Failed(Failure),
}

/// Serves the requests that are there, until none is.
pub(crate) async fn serve(worker: &Worker, mut client: Client, memory: &mut Memory) -> Served {
    loop {
        let next = match read(worker, &client, &mut memory.request).await {
            Reading::Idle => return Served::Idle(client),
            Reading::Closed => return Served::Closed,
            Reading::Request => {
                client.served += 1;
                exchange::exchange(worker, &client, memory).await
            }
            Reading::Failed(failure) => exchange::refuse(worker, &client, memory, failure).await,
        };
        match next {
            // Its task waits for the next request, with less.
            Next::Reuse if memory.request.buffer.is_empty() => return Served::Idle(client),
            Next::Reuse => {}
            Next::Close => return Served::Closed,
            Next::Linger => {
                linger(&client, memory).await;
                return Served::Closed;
            }
        }
    }
}

/// Reads until the head of a request is whole.
async fn read(worker: &Worker, client: &Client, request: &mut Request) -> Reading {
    request.head.clear();
    let limits = &worker.head_limits;
    // Within the deadline for the whole head, from its first byte on.
    let mut is_armed = false;
    loop {
        if !request.buffer.is_empty() {
            match request.head.parse(request.buffer.filled(), limits) {
                Ok(Parsed::Complete) => return Reading::Request,
                Ok(Parsed::Partial) => {}
                Err(error) => return Reading::Failed(error.into()),
            }
            make_room(worker, request, limits);
            if !is_armed {
                client.deadline.set(worker.ticks.client_header);
                is_armed = true;
            }
        }
        let may_be_idle = request.buffer.is_empty();
        let is_idle = Cell::new(false);
        let read = poll_fn(|context| {
            let polled = client.socket.poll_read(context, request.buffer.spare());
            if polled.is_pending() && may_be_idle {
                is_idle.set(true);
                return Poll::Ready(Ok(0));
            }
            polled
        });
        match client.deadline.guard(read).await {
            Ok(_) if is_idle.get() => return Reading::Idle,
            Ok(Ok(0)) if request.buffer.is_empty() => return Reading::Closed,
            Ok(Ok(0) | Err(_)) => return Reading::Failed(Failure::ClientGone),
            Ok(Ok(count)) => request.buffer.advance(count),
            Err(_) => return Reading::Failed(Failure::ClientHeaderTimeout),
        }
    }
}

/// Sees to it that the next read has somewhere to go. A head never outgrows its limit, which the parser enforces.
fn make_room(worker: &Worker, request: &mut Request, limits: &HeadLimits) {
    if request.buffer.spare().is_empty() {
        request.buffer.compact();
    }
    if request.buffer.spare().is_empty() {
        debug_assert!(request.buffer.len() < limits.bytes);
        worker.buffers.grow(&mut request.buffer);
    }
}

/// Ends the connection so that the client can still read what it was sent (RFC 9112 §9.6).
async fn linger(client: &Client, memory: &mut Memory) {
    if client.socket.shutdown_write().is_err() {
        return;
    }
    let buffer = &mut memory.request.buffer;
    let mut left = LINGER_BYTES;
    client.deadline.set(LINGER);
    loop {
        buffer.clear();
        match client.deadline.guard(client.socket.read(buffer.spare())).await {
            Ok(Ok(count)) if count > 0 && count < left => left -= count,
            _ => return,
        }
    }
}

/// Turns away a client that there is no room for.
pub(crate) async fn turn_away(worker: Rc<Worker>, client: Client) {
    let mut out = Vec::with_capacity(256);
    respond::write_failure(&mut out, Failure::TooManyConnections, &worker.date(), false, true);
    let write = client.socket.write(&out);
    // A fresh socket takes this little at once; if not, so be it.
    let _ = client.deadline.within(Ticks(1), write).await;
}
