//! Injects faults into clients' connections: bytes pass through toxics before the proxy sees them.
//!
//! The proxy gets one end of a socket pair, and the toxics lie between the other end and the client, as in `chaos`
//! between two connections. So toxics affect every protocol alike, TLS handshakes included.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shape::{ChainLink, ConnectionFault, Directions, Effect, Fault};
use telemetry::message;
use telemetry::{LogEntry, More};
use tokio::io::Interest;

use crate::context::worker::Worker;
use crate::failure::Failure;
use crate::faults::quic::QuicStart;
use crate::faults::{DrawnFault, LiveFaultRule};
use crate::listening::Listening;
use transport::alarm::Alarms;
use transport::relay::{self, RelayDirection};
use transport::tcp::{StandIn, Tcp};

/// A TLS record with the fatal alert handshake_failure (RFC 8446 §6, §5.1).
const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// How long a client may take to begin its handshake.
const HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes that are read of the ClientHello: unread bytes would make the close a reset, which discards the alert.
const HELLO_BYTES_MAX: usize = 16 * 1024;

/// Draws a fault for a new connection. Returns the connection that the proxy uses, or `None` if the fault has ended it.
pub(crate) fn drawn(
    worker: &Worker,
    stream: TcpStream,
    peer: SocketAddr,
    listening: &Listening,
) -> Option<Tcp> {
    let has_tls = worker.snapshot().listener(listening).tls.is_some();
    // Without TLS there is no handshake to fail.
    let may_happen = |fault: &ConnectionFault| has_tls || *fault != ConnectionFault::BadHandshake;
    let Some(drawn) =
        worker.faults.draw_connection(listening.place(), peer.ip(), may_happen, worker.time_ns())
    else {
        return Some(Tcp::new(stream));
    };
    match broken(worker, &drawn, stream) {
        Ok(seen) => {
            drawn.count();
            worker.counters.faults_injected.increment();
            log(worker, peer, &drawn);
            seen
        }
        Err(error) => {
            message::warn(&format!("fault {:?} is not injected: {error}", drawn.rule.settings.name));
            None
        }
    }
}

/// Applies a drawn fault to a TCP connection. Returns the socket that the proxy reads instead, or `None` if none is
/// left.
fn broken(worker: &Worker, drawn: &DrawnFault, client: TcpStream) -> io::Result<Option<Tcp>> {
    let local_address = client.local_addr().ok();
    let client = tokio::net::TcpStream::from_std(client)?;
    let Fault::Connection(fault) = &drawn.fault else { return Ok(None) };
    match fault {
        // `Refuse` acts on listening sockets, not here, and TCP has no datagrams.
        ConnectionFault::Refuse | ConnectionFault::Datagrams { .. } => Ok(None),
        ConnectionFault::BadHandshake => {
            tokio::task::spawn_local(refuse_handshake(client, Rc::clone(&worker.alarms)));
            Ok(None)
        }
        ConnectionFault::Toxic { effect, ways } => {
            let (near, far) = UnixStream::pair()?;
            let far = TcpStream::from(OwnedFd::from(far));
            far.set_nonblocking(true)?;
            near.set_nonblocking(true)?;
            let link = ChainLink { id: 0, effect: *effect, draws: drawn.draws() };
            let of_way = |is_met: bool| {
                let links = if is_met { vec![link.clone()] } else { Vec::new() };
                let has = move |is_there: &bool| if *is_there { links.clone() } else { Vec::new() };
                RelayDirection::new(drawn.rule.standing(), has)
            };
            // A socket pair only has an orderly end, so a cut connection would look complete. Resets are passed on by
            // this flag.
            let resets = Arc::<AtomicBool>::default();
            let (up, down) = (of_way(*ways != Directions::Down), of_way(*ways != Directions::Up));
            let down = down.reset_by(Arc::clone(&resets));
            let far = tokio::net::TcpStream::from_std(far)?;
            let (rule, alarms) = (Arc::clone(&drawn.rule), Rc::clone(&worker.alarms));
            let expires_in = rule.expires_in(worker.time_ns());
            tokio::task::spawn_local(pass_on([client, far], [up, down], rule, expires_in, alarms));
            let near = TcpStream::from(OwnedFd::from(near));
            Ok(Some(Tcp::in_place(near, StandIn { local_address, resets })))
        }
    }
}

/// Passes bytes between the client and the proxy until both sides have ended. Ends the rule when it expires meanwhile.
async fn pass_on(
    [client, proxy]: [tokio::net::TcpStream; 2],
    [up, down]: [RelayDirection<bool>; 2],
    rule: Arc<LiveFaultRule>,
    expires_in: Option<Duration>,
    alarms: Rc<Alarms>,
) {
    let sleep = async |pause| alarms.sleep(pause).await;
    let mut passed = pin!(relay::pass_between(&client, &proxy, up, down, sleep));
    if let Some(rest) = expires_in {
        tokio::select! {
            () = &mut passed => return,
            () = alarms.sleep(rest) => rule.end(),
        }
    }
    passed.await;
}

/// Reads a ClientHello and answers it with a fatal alert.
async fn refuse_handshake(client: tokio::net::TcpStream, alarms: Rc<Alarms>) {
    let mut hello = vec![0; HELLO_BYTES_MAX];
    let refuse = async {
        client.async_io(Interest::READABLE, || client.try_read(&mut hello)).await?;
        client.try_write(&HANDSHAKE_FAILURE)
    };
    // A client that has left or stays silent needs no answer.
    tokio::select! {
        _ = refuse => {}
        () = alarms.sleep(HELLO_TIME_MAX) => {}
    }
}

/// Logs an injected connection fault in a separate line, because the connection may never carry a request.
pub(crate) fn log(worker: &Worker, peer: SocketAddr, drawn: &DrawnFault) {
    if let Some(log) = worker.log.borrow_mut().as_mut() {
        let entry = LogEntry {
            cause: Some(Failure::FaultInjected.facts().word),
            more: &More { fault: Some(drawn.told()), ..More::NONE },
            ..LogEntry::new(peer.ip().to_canonical())
        };
        log.record(&entry, worker.wall_clock_at(Instant::now()));
    }
}

/// Draws a fault for a QUIC connection that begins.
pub(crate) fn drawn_of_quic(worker: &Worker, client: SocketAddr, listening: &Listening) -> QuicStart {
    let (held, now_ns) = (&worker.held_back, worker.time_ns());
    if let Some(beginning) = held.for_client(client, now_ns) {
        return beginning;
    }
    if !worker.faults.breaks_connections() {
        return QuicStart::Served;
    }
    let may_happen = ConnectionFault::is_of_quic;
    let ip = client.ip().to_canonical();
    let Some(drawn) = worker.faults.draw_connection(listening.place(), ip, may_happen, now_ns) else {
        return QuicStart::Served;
    };
    let Fault::Connection(fault) = &drawn.fault else { return QuicStart::Served };
    let beginning = match fault {
        ConnectionFault::BadHandshake => QuicStart::Failed,
        ConnectionFault::Toxic { effect: Effect::Timeout { after }, .. } => {
            held.hold(client, &drawn.rule, now_ns, *after, QuicStart::Refused);
            QuicStart::Ignored
        }
        ConnectionFault::Toxic { effect: Effect::SlowStart { delay }, .. } => {
            held.hold(client, &drawn.rule, now_ns, Some(*delay), QuicStart::Served);
            QuicStart::Ignored
        }
        // Refused at once: toxics of byte streams do not apply to QUIC.
        ConnectionFault::Toxic { .. } => QuicStart::Refused,
        ConnectionFault::Refuse | ConnectionFault::Datagrams { .. } => return QuicStart::Served,
    };
    drawn.count();
    worker.counters.faults_injected.increment();
    log(worker, client, &drawn);
    beginning
}
