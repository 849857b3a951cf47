//! A client's connection: TLS if the listener uses it, then HTTP/1 (idle, or one exchange at a time) or HTTP/2.
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

use expression::ValueMemory;
use http1::{HeadError, HeadLimits, Parsed};
use tls::Handshake;

use crate::answer;
use crate::connection::client_hello::{self, First};
use crate::connection::http2;
use crate::connection::layer4::{self, PassedOn};
use crate::connection::proxy_protocol::{self};
use crate::connection::refused_handshake::{self, ConnectionLimit};
use crate::context::client::{AfterExchange, FrontConnection, framed_version};
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::{CurrentRequest, Desk, Served, SlotKind, SlotMemory};
use crate::context::routed::ExchangeContext;
use crate::context::snapshot::Snapshot;
use crate::context::worker::{Worker, WorkerPhase};
use crate::failure::Failure;
use crate::path::{self, of_peer};
use crate::shared::concurrency::Counted;
use transport::buffer::{Buffer, SMALL};
use transport::cold::{cold, poll_once};
use transport::connection::Connection;
use transport::deadline::Ticks;
use transport::endpoint::MessageEndpoint;
use transport::latency_emulation::{DelayedConnection, OnRelease};
use transport::tcp::{Follows, Tcp};
use transport::tls::{HandshakeError, TlsConnection};

/// Bytes of an unread request body that are read and discarded after the response: an early close would be a reset,
/// which may keep the client from reading the response.
const LINGER_BYTES: usize = 32 << 20;
/// Time limit for that reading.
const LINGER: Ticks = Ticks(50);

/// Connections per worker that linger after their rejection: each still holds a descriptor.
const TURNED_AWAY_MAX: usize = 256;

/// The first bytes of a client's HTTP/2 connection (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl FrontConnection {
    /// Waits, idle, until there is something to read. Returns false at a time-out or when the worker closes. Called
    /// before the first request and between requests.
    fn is_to_be_read(&self, worker: &Worker) -> impl Future<Output = bool> {
        // A connection that has not sent anything yet gets the time of a head, not of an idle connection.
        let snapshot = worker.snapshot();
        let ticks = &snapshot.ticks;
        let limit = if self.served == 0 { ticks.client_header } else { ticks.keep_alive };
        self.deadline.set_idle(limit);
        // A connection that is to be closed is announced in its next response: if it were closed now, a request on its
        // way would be lost.
        let is_over = worker.state.get() == WorkerPhase::Closing;
        poll_fn(move |context| match self.socket.poll_readable(context) {
            _ if is_over => Poll::Ready(false),
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => self.deadline.poll(context).map(|()| false),
        })
    }
}

/// The body of an exchange slot: serves connections that are handed to it, one after the other.
pub(crate) fn serve_slot(
    worker: Rc<Worker>,
    desk: Rc<Desk>,
    read_area: usize,
) -> Pin<Box<dyn Future<Output = Infallible>>> {
    Box::pin(async move {
        let mut memory = SlotMemory::new(&worker, read_area);
        memory.note = Some(worker.watched.note());
        let values = ValueMemory::new();
        loop {
            let client = desk.next().await;
            let served = serve(&worker, client, &mut memory, &values).await;
            memory.reset(&worker);
            desk.give_back(served);
        }
    })
}

/// The body of a connection's task: PROXY header, TLS handshake, then HTTP/1, HTTP/2 or layer 4, until the connection
/// ends. Spawned once per accepted connection.
#[allow(
    clippy::manual_async_fn,
    reason = "an async fn holds its arguments twice, and so would every idle connection"
)]
pub(crate) fn connection(worker: Rc<Worker>, mut client: Box<FrontConnection>) -> impl Future<Output = ()> {
    async move {
        let _count = Count::new(&worker);
        // Releases the plan: a long-lived connection must not keep an old plan alive.
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
            // An emulated link delays a connection's beginning, before any byte is read.
            cold(|| link.connect(worker.shaper.alarms())).await;
        }
        if has_proxy_header {
            match cold(|| proxy_protocol::read(&worker, client)).await {
                Some(original_connection) => client = original_connection,
                None => return,
            }
        }
        let _counted = match count(&worker, &client) {
            Ok(counted) => counted,
            Err(limit) => return cold(|| turn_away(Rc::clone(&worker), *client, limit)).await,
        };
        if tls.is_some() || reads_hello {
            let secured = match tls {
                Some(tls) if !reads_hello => cold(|| secured(&worker, tls, client, First::default())).await,
                _ => cold(|| client_hello::meet(&worker, client)).await,
            };
            match secured {
                // Other instances speak HTTP/2 only.
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
            // Changed settings of an emulated link also apply to existing connections.
            if worker.shaper.has_delayed_listener() {
                behind(&worker, &mut client);
            }
            let mut slot = worker.slots.take(&worker, SlotKind::Connection);
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

/// Counts a connection against the limit of its client. Proxies in front carry the connections of many clients.
///
/// # Errors
/// The limit, if the client has as many connections.
fn count(worker: &Worker, client: &FrontConnection) -> Result<Option<Counted>, ConnectionLimit> {
    let snapshot = worker.snapshot();
    let listener = snapshot.listener(&client.listening);
    if listener.per_client.is_none() || snapshot.plan.trusts(client.address) {
        return Ok(None);
    }
    listener.count_client(client.address).map_err(ConnectionLimit::OfClient)
}

/// Does the TLS handshake of a new connection. The boolean says whether ALPN chose HTTP/2.
pub(crate) async fn secured(
    worker: &Rc<Worker>,
    tls: Arc<tls::ServerSide>,
    mut client: Box<FrontConnection>,
    first: First,
) -> Option<(Box<FrontConnection>, bool)> {
    let counters = &worker.counters;
    let socket = std::mem::replace(&mut client.socket, MessageEndpoint::Detached);
    let MessageEndpoint::Connection(Connection::Tcp(tcp)) = socket else { return None };
    let name = first.hello.as_ref().and_then(|hello| hello.server_name.as_deref());
    let asked = Arc::clone(tls.asked_for(name));
    // Clients that name no server get the certificate for the address that they have connected to.
    let address = tls.has_addresses().then(|| destination(&client, &tcp)).flatten();
    let handshake = Handshake::server(tls.config_for(name)).ok()?.at(address);
    // One time-out until the first request: a client that stalls in a handshake costs as much as one without a
    // head.
    client.deadline.set(worker.snapshot().ticks.client_header);
    let establish = TlsConnection::establish(*tcp, handshake, &worker.records, first.received);
    let (secure, agreed) = match client.deadline.guard(establish).await {
        Ok(Ok(established)) => established,
        outcome => {
            let passes_on = worker.snapshot().listener(&client.listening).passes_on.is_some();
            match outcome {
                // On a listener that passes bytes on, plain text need not be HTTP.
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
        // RFC 8737 §3: the validation ends after the handshake, and the authority closes.
        if client.socket.end_handshake() {
            let _ = client.deadline.within(LINGER, client.socket.read(&mut [0; 64])).await;
        }
        return None;
    }
    let is_http2 = agreed.is_http2();
    client.tls = Some(Rc::new(ClientTls::new(agreed, asked)));
    Some((client, is_http2))
}

/// Returns the address that the client has connected to, from the PROXY header or the kernel.
fn destination(client: &FrontConnection, tcp: &Tcp) -> Option<IpAddr> {
    let told = client.original_connection.as_ref().map(|original| original.destination());
    // A socket for both families shows IPv4 addresses as mapped ones; certificates name plain ones.
    told.or_else(|| tcp.local_address()).map(|address| address.ip().to_canonical())
}

/// Sends an error response in plain text to a client that speaks HTTP to a TLS listener.
async fn answer_in_the_clear(worker: &Worker, client: &FrontConnection) {
    worker.counters.failure(Failure::PlainHttp as usize);
    refused_handshake::tell(worker, client, Failure::PlainHttp, "it speaks HTTP to a port of HTTPS", "");
    let mut out = Vec::with_capacity(256);
    answer::last_words(&mut out, Failure::PlainHttp, &worker.date());
    let write = client.socket.write(&out, Follows::Nothing);
    // An empty socket buffer takes this little at once. If it does not, the response is dropped.
    if let Ok(Ok(_)) = client.deadline.within(Ticks(1), write).await {
        linger(client, &mut worker.buffers.take(SMALL)).await;
    }
}

/// Counts a connection until it is dropped.
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

/// Result of reading a request.
enum RequestReading {
    Request,
    Idle,
    Closed,
    /// The client has begun to speak HTTP/2 (RFC 9113 §3.3, prior knowledge).
    Http2,
    Failed(Failure),
}

/// Serves the requests of a connection until it is idle or closed. Called by an exchange slot when a connection has
/// bytes to read.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    mut client: Box<FrontConnection>,
    memory: &mut SlotMemory,
    values: &ValueMemory,
) -> Served {
    loop {
        let snapshot = worker.snapshot();
        let reading = match read_at_once(worker, &snapshot, &client, &mut memory.request) {
            Some(reading) => reading,
            None => read(worker, &snapshot, &client, &mut memory.request).await,
        };
        let next = match reading {
            RequestReading::Idle => return Served::Idle(client),
            RequestReading::Closed => return Served::Closed,
            RequestReading::Request => {
                client.served += 1;
                // The trusted networks may have changed since the client connected.
                if client.trusted_by != snapshot.plan.trust {
                    client.judge(&snapshot);
                }
                // A stream is read as text of HTTP/1.1, so its version is the connection's.
                if let Some(version) = framed_version(&client.socket) {
                    memory.request.head.start.version = version;
                }
                if client.peer.is_some() {
                    cold(|| of_peer::serve(worker, &snapshot, &mut client, memory, values)).await
                } else {
                    path::serve(&ExchangeContext::new(worker, &snapshot, &client, values), memory).await
                }
            }
            RequestReading::Http2 => {
                let early = memory.request.buffer.filled().to_vec();
                memory.request.buffer.clear();
                return Served::Http2(Box::new((*client, early)));
            }
            RequestReading::Failed(failure) => {
                let ctx = ExchangeContext::new(worker, &snapshot, &client, values);
                cold(|| path::refuse(&ctx, memory, failure)).await
            }
        };
        match next {
            // The connection's task waits for the next request, without the memory of a slot.
            AfterExchange::Reuse if memory.request.buffer.is_empty() => return Served::Idle(client),
            AfterExchange::Reuse => {}
            // RFC 9112 §9.6: closing a socket with unread bytes sends a reset. The kernel then discards unsent data,
            // such as the last segment of the response.
            AfterExchange::Close if memory.request.buffer.is_empty() && !client.socket.has_unread() => {
                return Served::Closed;
            }
            AfterExchange::Drop => return Served::Closed,
            AfterExchange::Close | AfterExchange::Linger => {
                cold(|| linger(&client, &mut memory.request.buffer)).await;
                return Served::Closed;
            }
        }
    }
}

/// Reads a head without a wait if it has arrived completely, as nearly every head has. Called first for every request.
/// Returns `None` if `read` must wait.
fn read_at_once(
    worker: &Worker,
    snapshot: &Snapshot,
    client: &FrontConnection,
    request: &mut CurrentRequest,
) -> Option<RequestReading> {
    if request.buffer.is_empty() {
        // A stream's head lies in memory with a known length: the buffer takes no more than that.
        if let Some(len) = client.socket.head_len() {
            worker.buffers.fit(&mut request.buffer, len);
        }
        worker.buffers.ready(&mut request.buffer);
        // Nearly every head is here already: no future and no waker is needed for it.
        let read = poll_once(|context| client.socket.poll_read(context, request.buffer.spare()))?;
        match read {
            Ok(count) if count > 0 => request.buffer.advance(count),
            _ => return Some(RequestReading::Closed),
        }
    }
    request.head.clear();
    let parsed = request.head.parse(request.buffer.filled(), &snapshot.head_limits);
    // An incomplete or malformed head is parsed again by `read`, which waits or reports it.
    (parsed == Ok(Parsed::Complete)).then_some(RequestReading::Request)
}

/// Reads until the head of a request is complete. Called when `read_at_once` could not finish.
async fn read(
    worker: &Worker,
    snapshot: &Snapshot,
    client: &FrontConnection,
    request: &mut CurrentRequest,
) -> RequestReading {
    request.head.clear();
    if let Some(len) = client.socket.head_len() {
        worker.buffers.fit(&mut request.buffer, len);
    }
    worker.buffers.ready(&mut request.buffer);
    let limits = &snapshot.head_limits;
    // The deadline covers the whole head from its first byte, or the TLS record that contains it.
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
                Ok(Parsed::Complete) => return RequestReading::Request,
                Ok(Parsed::Partial) => {}
                Err(HeadError::Version) if is_http2(snapshot, client, request) => {
                    return RequestReading::Http2;
                }
                Err(error) => return RequestReading::Failed(error.into()),
            }
            // RFC 9112 §2.2: an empty line after a request does not begin another.
            is_stray = client.served > 0 && b"\r\n".starts_with(request.buffer.filled());
            if !is_stray {
                make_room(worker, request, limits);
                arm();
            } else if request.buffer.len() == b"\r\n".len() {
                request.buffer.clear();
            } else {
                // Half a line end does not begin a request, so the idle time goes on.
                client.deadline.set_idle(snapshot.ticks.keep_alive);
            }
        }
        let is_idle = Cell::new(false);
        let read = poll_fn(|context| {
            let polled = client.socket.poll_read(context, request.buffer.spare());
            // Nothing of a request is here: the connection's task waits, without the memory of a slot.
            if polled.is_pending() && request.buffer.is_empty() {
                if !client.socket.holds_part() {
                    is_idle.set(true);
                    return Poll::Ready(Ok(0));
                }
                // Half a TLS record is the beginning of a head, so its time-out runs.
                arm();
            }
            polled
        });
        match client.deadline.guard(read).await {
            Ok(_) if is_idle.get() => return RequestReading::Idle,
            // Between requests a client may close at any time.
            Ok(Ok(0) | Err(_)) if is_stray || request.buffer.is_empty() => return RequestReading::Closed,
            Ok(Ok(0) | Err(_)) => return RequestReading::Failed(Failure::ClientGone),
            Ok(Ok(count)) => request.buffer.advance(count),
            Err(_) if is_stray => return RequestReading::Closed,
            Err(_) => return RequestReading::Failed(Failure::ClientHeaderTimeout),
        }
    }
}

/// Whether a connection begins with the HTTP/2 preface (RFC 9113 §3.4), on a listener that accepts it without TLS.
fn is_http2(snapshot: &Snapshot, client: &FrontConnection, request: &CurrentRequest) -> bool {
    let filled = request.buffer.filled();
    // Only as the first bytes: later, a preface is just a malformed request line.
    client.served == 0
        && client.tls.is_none()
        && !client.socket.frames_itself()
        && snapshot.listener(&client.listening).http2
        && (filled.starts_with(PREFACE) || PREFACE.starts_with(filled))
}

/// Makes room in the buffer for the next read of a head. The parser limits the head's length.
fn make_room(worker: &Worker, request: &mut CurrentRequest, limits: &HeadLimits) {
    if request.buffer.spare().is_empty() {
        request.buffer.compact();
    }
    if request.buffer.spare().is_empty() {
        debug_assert!(request.buffer.len() < limits.bytes);
        worker.buffers.grow(&mut request.buffer);
    }
}

/// Closes the connection so that the client can still read the response (RFC 9112 §9.6). Called after a response that
/// leaves part of the request unread.
async fn linger(client: &FrontConnection, buffer: &mut Buffer) {
    // A dropped stream resets itself, which informs the client that the rest of the request is not wanted (RFC 9113
    // §8.1).
    if client.socket.frames_itself() || client.socket.shutdown_write().is_err() {
        return;
    }
    let mut left = LINGER_BYTES;
    // One deadline for all reads, so that a client that trickles cannot prolong it.
    client.deadline.set(LINGER);
    loop {
        buffer.clear();
        match client.deadline.guard(client.socket.read(buffer.spare())).await {
            Ok(Ok(count)) if count > 0 && count < left => left -= count,
            _ => return,
        }
    }
}

/// Closes a rejected connection slowly, so that its client can read the response. At most `TURNED_AWAY_MAX` connections
/// linger.
pub(crate) async fn linger_briefly(worker: &Worker, client: &FrontConnection, buffer: &mut Buffer) {
    let count = worker.turned_away.get();
    if count < TURNED_AWAY_MAX {
        worker.turned_away.set(count + 1);
        linger(client, buffer).await;
        worker.turned_away.set(worker.turned_away.get() - 1);
    }
}

/// Rejects a connection above the limit, with a 503 response where it is plain HTTP.
pub(crate) async fn turn_away(worker: Rc<Worker>, client: FrontConnection, limit: ConnectionLimit) {
    let snapshot = worker.snapshot();
    let listener = snapshot.listener(&client.listening);
    // A TLS handshake costs too much here, and a layer 4 connection may not carry HTTP.
    if listener.tls.is_some() || listener.passes_on.is_some() {
        return refused_handshake::over_limit(&worker, client.address, limit, 0);
    }
    // Released before the waits below, which must not keep an old plan alive.
    drop(snapshot);
    let failure = Failure::TooManyConnections;
    refused_handshake::over_limit(&worker, client.address, limit, failure.facts().status);
    let mut out = Vec::with_capacity(256);
    answer::last_words(&mut out, failure, &worker.date());
    let write = client.socket.write(&out, Follows::Close);
    // An empty socket buffer takes this little at once. If it does not, the response is dropped.
    if !matches!(client.deadline.within(Ticks(1), write).await, Ok(Ok(_))) {
        return;
    }
    // A client speaks first, so its request has arrived or is about to (RFC 9112 §9.6).
    let mut buffer = worker.buffers.take(SMALL);
    let count = worker.turned_away.get();
    if count < TURNED_AWAY_MAX {
        linger_briefly(&worker, &client, &mut buffer).await;
    } else {
        // Reads what has arrived, and no more.
        let _ = poll_once(|context| client.socket.poll_read(context, buffer.spare()));
    }
}

/// Applies the listener's emulated link, as configured now, to a client's connection.
pub(crate) fn behind(worker: &Rc<Worker>, client: &mut FrontConnection) {
    let snapshot = worker.snapshot();
    let link = snapshot.listener(&client.listening).link.as_ref();
    let Some(link) = link.filter(|link| link.is_delayed()) else { return };
    // Delayed bytes may still be on their way when the connection is dropped: the worker ends after they have left.
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
