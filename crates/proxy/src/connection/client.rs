//! A client's connection: TLS if the listener uses it, then HTTP/1 (idle, or one exchange after the other), or HTTP/2.
//!
//! An idle connection is a socket, a deadline and an address. Everything for a request is in an exchange slot.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use http1::{HeadError, HeadLimits, Parsed, Version};
use tls::Handshake;

use crate::connection::client_hello::{self, First};
use crate::connection::http2;
use crate::connection::layer4::{self, PassedOn};
use crate::connection::proxy_protocol::{self};
use crate::connection::refused_handshake;
use crate::context::client::{Client, Next};
use crate::context::client_tls::ClientTls;
use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::{Desk, Kind, Memory, Request, Served};
use crate::context::failure::Failure;
use crate::context::snapshot::Snapshot;
use crate::context::worker::{State, Worker};
use crate::exchange::{self, of_peer};
use crate::forward::answer;
use transport::buffer::{Buffer, SMALL};
use transport::cold::{cold, poll_once};
use transport::connection::Connection;
use transport::deadline::Ticks;
use transport::endpoint::Endpoint;
use transport::latency_emulation::{DelayedConnection, OnRelease};
use transport::tcp::{Follows, Tcp};
use transport::tls::{HandshakeError, TlsConnection};

/// After a response to a request that was not read to its end: how much more is read and thrown away, so that the
/// client gets to see the response before a reset.
const LINGER_BYTES: usize = 32 << 20;
/// And for how long.
const LINGER: Ticks = Ticks(50);

/// Clients that are turned away and lingered for, of one worker: each holds a descriptor meanwhile.
const TURNED_AWAY_MAX: usize = 256;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl Client {
    /// Waits, idle, until there is something to read; false when the wait is over without.
    fn is_to_be_read(&self, worker: &Worker) -> impl Future<Output = bool> {
        // A connection that has not yet sent anything gets the time for a head, not that of an idle one.
        let snapshot = worker.snapshot();
        let ticks = &snapshot.ticks;
        let limit = if self.served == 0 { ticks.client_header } else { ticks.keep_alive };
        self.deadline.set_idle(limit);
        // A connection that is not kept is told so with its next response; closed before, its next request were lost.
        let is_over = worker.state.get() == State::Closing;
        poll_fn(move |context| match self.socket.poll_readable(context) {
            _ if is_over => Poll::Ready(false),
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => self.deadline.poll(context).map(|()| false),
        })
    }
}

/// Serves connections in an exchange slot, one after the other.
pub(crate) fn serve_slot(
    worker: Rc<Worker>,
    desk: Rc<Desk>,
    read_area: usize,
) -> Pin<Box<dyn Future<Output = Infallible>>> {
    Box::pin(async move {
        let mut memory = Memory::new(&worker, read_area);
        memory.note = Some(worker.watched.note());
        loop {
            let client = desk.next().await;
            let served = serve(&worker, client, &mut memory).await;
            memory.reset(&worker);
            desk.give_back(served);
        }
    })
}

/// The life of a connection: the body of its task.
#[allow(
    clippy::manual_async_fn,
    reason = "an async fn holds its arguments twice, and so would every idle connection"
)]
pub(crate) fn connection(worker: Rc<Worker>, mut client: Box<Client>) -> impl Future<Output = ()> {
    async move {
        let _count = Count::new(&worker);
        // A connection that lives long does not hold the plan that it began under.
        let (tls, reads_hello, has_proxy_header, is_passed_on, is_for_peers, link) = {
            let snapshot = worker.snapshot();
            let listener = snapshot.listener(&client.listening);
            let has_proxy_header = listener.is_introduced_by(client.address);
            let reads_hello = listener.reads_client_hello;
            let is_passed_on = listener.passes_on.is_some();
            let is_for_peers = listener.is_for_peers;
            let link = listener.link.clone();
            (listener.tls.clone(), reads_hello, has_proxy_header, is_passed_on, is_for_peers, link)
        };
        if let Some(link) = link {
            cold(|| link.connect(worker.shaper.alarms())).await;
        }
        if has_proxy_header {
            match cold(|| proxy_protocol::read(&worker, client)).await {
                Some(original_connection) => client = original_connection,
                None => return,
            }
        }
        if tls.is_some() || reads_hello {
            let secured = match tls {
                Some(tls) if !reads_hello => cold(|| secured(&worker, tls, client, First::default())).await,
                _ => cold(|| client_hello::meet(&worker, client)).await,
            };
            match secured {
                // Other instances speak HTTP/2.
                Some((_, false)) if is_for_peers => return,
                Some((secured, false)) => client = secured,
                Some((mut secured, true)) => {
                    behind(&worker, &mut secured);
                    return cold(|| http2::serve(Rc::clone(&worker), *secured, Vec::new())).await;
                }
                None => return,
            }
        }
        if is_passed_on {
            behind(&worker, &mut client);
            return cold(|| layer4::serve(&worker, *client, PassedOn::default())).await;
        }
        loop {
            if !client.is_to_be_read(&worker).await {
                return;
            }
            // One that is there already meets what is changed as well.
            if worker.shaper.has_delayed_listener() {
                behind(&worker, &mut client);
            }
            let mut slot = worker.slots.take(&worker, Kind::Connection);
            slot.hand_over(client);
            let served = slot.served().await;
            worker.slots.give(slot);
            match served {
                Served::Idle(idle) => client = idle,
                Served::Http2(found) => {
                    let (client, early) = *found;
                    return cold(|| http2::serve(Rc::clone(&worker), client, early)).await;
                }
                Served::Closed => return,
            }
        }
    }
}

/// Does the TLS handshake; also says whether HTTP/2 was agreed on.
pub(crate) async fn secured(
    worker: &Rc<Worker>,
    tls: Arc<tls::ServerSide>,
    mut client: Box<Client>,
    first: First,
) -> Option<(Box<Client>, bool)> {
    let counters = &worker.counters;
    let socket = std::mem::replace(&mut client.socket, Endpoint::Detached);
    let Endpoint::Connection(Connection::Tcp(tcp)) = socket else { return None };
    let name = first.hello.as_ref().and_then(|hello| hello.server_name.as_deref());
    let asked = Arc::clone(tls.asked_for(name));
    let address = tls.has_addresses().then(|| destination(&client, &tcp)).flatten();
    let handshake = Handshake::server(tls.config_for(name)).ok()?.at(address);
    client.deadline.set(worker.snapshot().ticks.client_header);
    let establish = TlsConnection::establish(*tcp, handshake, &worker.records, first.received);
    let (secure, agreed) = match client.deadline.guard(establish).await {
        Ok(Ok(established)) => established,
        outcome => {
            let passes_on = worker.snapshot().listener(&client.listening).passes_on.is_some();
            match outcome {
                Ok(Err(HandshakeError::InTheClear(tcp))) if !passes_on => {
                    counters.handshake_failures.increment();
                    client.socket = tcp.into();
                    answer_in_the_clear(worker, &client).await;
                }
                outcome => {
                    refused_handshake::failed(worker, &mut client, outcome.ok().and_then(Result::err)).await;
                }
            }
            return None;
        }
    };
    let counter = if agreed.is_resumed { &counters.handshakes_resumed } else { &counters.handshakes };
    counter.increment();
    client.socket = secure.into();
    if agreed.protocol == tls::ACME_TLS {
        // RFC 8737 §3: an authority sees what it came for, and closes.
        if client.socket.end_handshake() {
            let _ = client.deadline.within(LINGER, client.socket.read(&mut [0; 64])).await;
        }
        return None;
    }
    let is_http2 = agreed.is_http2();
    client.tls = Some(Rc::new(ClientTls::new(agreed, asked)));
    Some((client, is_http2))
}

/// The address that a client has connected to, as a PROXY header says or the kernel does.
fn destination(client: &Client, tcp: &Tcp) -> Option<IpAddr> {
    let told = client.original_connection.as_ref().map(|original| original.destination());
    told.or_else(|| tcp.local_address()).map(|address| address.ip().to_canonical())
}

/// Tells a client that speaks HTTP to a listener with TLS what is wrong.
async fn answer_in_the_clear(worker: &Worker, client: &Client) {
    worker.counters.failure(Failure::PlainHttp as usize);
    refused_handshake::tell(worker, client, Failure::PlainHttp, "it speaks HTTP to a port of HTTPS", "");
    let mut out = Vec::with_capacity(256);
    answer::last_words(&mut out, Failure::PlainHttp, &worker.date());
    let write = client.socket.write(&out, Follows::Nothing);
    // A fresh socket takes this little at once; if not, so be it.
    if let Ok(Ok(_)) = client.deadline.within(Ticks(1), write).await {
        linger(client, &mut worker.buffers.take(SMALL)).await;
    }
}

/// Counts a connection for as long as it lives, however it ends.
pub(crate) struct Count<'a>(&'a Worker);

impl<'a> Count<'a> {
    pub(crate) fn new(worker: &'a Worker) -> Self {
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

/// Keeps a worker from ending while the last bytes of a delayed connection are on their way.
struct Stay(Rc<Worker>);

impl Stay {
    fn new(worker: Rc<Worker>) -> Self {
        worker.connection_begins();
        Self(worker)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
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
    /// The client has begun to speak HTTP/2 (RFC 9113 §3.3, prior knowledge).
    Http2,
    Failed(Failure),
}

/// Serves the requests of a connection, until it is idle or closed.
pub(crate) async fn serve(worker: &Rc<Worker>, mut client: Box<Client>, memory: &mut Memory) -> Served {
    loop {
        let snapshot = worker.snapshot();
        let reading = match read_at_once(worker, &snapshot, &client, &mut memory.request) {
            Some(reading) => reading,
            None => read(worker, &snapshot, &client, &mut memory.request).await,
        };
        let next = match reading {
            Reading::Idle => return Served::Idle(client),
            Reading::Closed => return Served::Closed,
            Reading::Request => {
                client.served += 1;
                // Who is trusted may have changed since it connected.
                if client.trusted_by != snapshot.plan.trust {
                    client.judge(&snapshot);
                }
                match client.socket {
                    Endpoint::Stream(_) => memory.request.head.start.version = Version::Http2,
                    Endpoint::Http3(_) => memory.request.head.start.version = Version::Http3,
                    Endpoint::Connection(_) | Endpoint::Detached => {}
                }
                if client.peer.is_some() {
                    cold(|| of_peer::exchange(worker, &snapshot, &mut client, memory)).await
                } else {
                    exchange::exchange(&ExchangeContext::new(worker, &snapshot, &client), memory).await
                }
            }
            Reading::Http2 => {
                let early = memory.request.buffer.filled().to_vec();
                memory.request.buffer.clear();
                return Served::Http2(Box::new((*client, early)));
            }
            Reading::Failed(failure) => {
                let ctx = ExchangeContext::new(worker, &snapshot, &client);
                cold(|| exchange::refuse(&ctx, memory, failure)).await
            }
        };
        match next {
            // Its task waits for the next request, with less.
            Next::Reuse if memory.request.buffer.is_empty() => return Served::Idle(client),
            Next::Reuse => {}
            // RFC 9112 §9.6: a byte that is not read makes a close a reset, and the kernel throws away what has not left:
            // all of a response that waits for the end to fill its segment.
            Next::Close if memory.request.buffer.is_empty() && !client.socket.has_unread() => {
                return Served::Closed;
            }
            Next::Drop => return Served::Closed,
            Next::Close | Next::Linger => {
                cold(|| linger(&client, &mut memory.request.buffer)).await;
                return Served::Closed;
            }
        }
    }
}

/// Reads a head that is here as a whole, as nearly every one is; `None` where `read` has to see to it.
fn read_at_once(
    worker: &Worker,
    snapshot: &Snapshot,
    client: &Client,
    request: &mut Request,
) -> Option<Reading> {
    if request.buffer.is_empty() {
        if let Some(len) = client.socket.head_len() {
            worker.buffers.fit(&mut request.buffer, len);
        }
        worker.buffers.ready(&mut request.buffer);
        let read = poll_once(|context| client.socket.poll_read(context, request.buffer.spare()))?;
        match read {
            Ok(count) if count > 0 => request.buffer.advance(count),
            _ => return Some(Reading::Closed),
        }
    }
    request.head.clear();
    let parsed = request.head.parse(request.buffer.filled(), &snapshot.head_limits);
    (parsed == Ok(Parsed::Complete)).then_some(Reading::Request)
}

/// Reads until the head of a request is whole.
async fn read(worker: &Worker, snapshot: &Snapshot, client: &Client, request: &mut Request) -> Reading {
    request.head.clear();
    if let Some(len) = client.socket.head_len() {
        worker.buffers.fit(&mut request.buffer, len);
    }
    worker.buffers.ready(&mut request.buffer);
    let limits = &snapshot.head_limits;
    // Within the deadline for the whole head, from its first byte on, or that of a record that holds it.
    let is_armed = Cell::new(false);
    let arm = || {
        if !is_armed.replace(true) {
            client.deadline.set(snapshot.ticks.client_header);
        }
    };
    loop {
        let mut is_stray = false;
        if !request.buffer.is_empty() {
            match request.head.parse(request.buffer.filled(), limits) {
                Ok(Parsed::Complete) => return Reading::Request,
                Ok(Parsed::Partial) => {}
                Err(HeadError::Version) if is_http2(snapshot, client, request) => return Reading::Http2,
                Err(error) => return Reading::Failed(error.into()),
            }
            // RFC 9112 §2.2: a line end behind a request begins no other one.
            is_stray = client.served > 0 && b"\r\n".starts_with(request.buffer.filled());
            if !is_stray {
                make_room(worker, request, limits);
                arm();
            } else if request.buffer.len() == b"\r\n".len() {
                request.buffer.clear();
            } else {
                client.deadline.set_idle(snapshot.ticks.keep_alive);
            }
        }
        let is_idle = Cell::new(false);
        let read = poll_fn(|context| {
            let polled = client.socket.poll_read(context, request.buffer.spare());
            if polled.is_pending() && request.buffer.is_empty() {
                if !client.socket.holds_part() {
                    is_idle.set(true);
                    return Poll::Ready(Ok(0));
                }
                arm();
            }
            polled
        });
        match client.deadline.guard(read).await {
            Ok(_) if is_idle.get() => return Reading::Idle,
            // Between two requests it may go as it likes.
            Ok(Ok(0) | Err(_)) if is_stray || request.buffer.is_empty() => return Reading::Closed,
            Ok(Ok(0) | Err(_)) => return Reading::Failed(Failure::ClientGone),
            Ok(Ok(count)) => request.buffer.advance(count),
            Err(_) if is_stray => return Reading::Closed,
            Err(_) => return Reading::Failed(Failure::ClientHeaderTimeout),
        }
    }
}

/// RFC 9113 §3.4: how a connection of HTTP/2 begins, where the listener speaks it without TLS.
fn is_http2(snapshot: &Snapshot, client: &Client, request: &Request) -> bool {
    let filled = request.buffer.filled();
    client.served == 0
        && client.tls.is_none()
        && !client.socket.frames_itself()
        && snapshot.listener(&client.listening).http2
        && (filled.starts_with(PREFACE) || PREFACE.starts_with(filled))
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
async fn linger(client: &Client, buffer: &mut Buffer) {
    // A stream that is dropped tells by itself that the rest of the request is not wanted (RFC 9113 §8.1).
    if client.socket.frames_itself() || client.socket.shutdown_write().is_err() {
        return;
    }
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

/// Closes a rejected connection slowly, so that its client can read the response. Only a limited number may linger.
pub(crate) async fn linger_briefly(worker: &Worker, client: &Client, buffer: &mut Buffer) {
    let count = worker.turned_away.get();
    if count < TURNED_AWAY_MAX {
        worker.turned_away.set(count + 1);
        linger(client, buffer).await;
        worker.turned_away.set(worker.turned_away.get() - 1);
    }
}

/// Rejects a client for which there is no room.
pub(crate) async fn turn_away(worker: Rc<Worker>, client: Client) {
    let snapshot = worker.snapshot();
    let listener = snapshot.listener(&client.listening);
    // A handshake is what there is no room for, and what is passed on may be no HTTP.
    if listener.tls.is_some() || listener.passes_on.is_some() {
        return;
    }
    drop(snapshot);
    let mut out = Vec::with_capacity(256);
    answer::last_words(&mut out, Failure::TooManyConnections, &worker.date());
    let write = client.socket.write(&out, Follows::Close);
    // A fresh socket takes this little at once; if not, so be it.
    if !matches!(client.deadline.within(Ticks(1), write).await, Ok(Ok(_))) {
        return;
    }
    // A client speaks first, so that its request is there, or about to be (RFC 9112 §9.6).
    let mut buffer = worker.buffers.take(SMALL);
    let count = worker.turned_away.get();
    if count < TURNED_AWAY_MAX {
        linger_briefly(&worker, &client, &mut buffer).await;
    } else {
        // What is there is all that it can be heard of.
        let _ = poll_once(|context| client.socket.poll_read(context, buffer.spare()));
    }
}

/// Applies the listener's emulated link, as it is configured now, to a client's connection.
pub(crate) fn behind(worker: &Rc<Worker>, client: &mut Client) {
    let snapshot = worker.snapshot();
    let link = snapshot.listener(&client.listening).link.as_ref();
    let Some(link) = link.filter(|link| link.is_delayed()) else { return };
    let on_release = || {
        let stays = Rc::clone(worker);
        let hold: OnRelease = Box::new(move || Box::new(Stay::new(stays)));
        Some(hold)
    };
    let alarms = worker.shaper.alarms();
    client
        .socket
        .map_connection(|connection| DelayedConnection::over(connection, &link.latency, alarms, on_release));
}
