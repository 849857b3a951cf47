//! Injects faults into clients' connections: their bytes pass toxics before the proxy sees them.
//!
//! The proxy gets one end of a socket pair, and the toxics lie between the other end and the client, as in `chaos`
//! between two connections. So every protocol is affected alike, TLS handshakes included.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shape::{ConnectionFault, Directions, Link};
use telemetry::message;
use telemetry::{Entry, More};
use tokio::io::Interest;

use crate::context::failure::Failure;
use crate::context::listening::Listening;
use crate::context::worker::Worker;
use crate::faults::{Drawn, Rule};
use transport::alarm::Alarms;
use transport::relay::{self, RelayDirection};
use transport::tcp::{StandIn, Tcp};

/// A fatal alert, handshake_failure, in a record of its own (RFC 8446 §6, §5.1).
const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// How long a client may take to begin its handshake.
const HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// What is read of it: left unread, it would have the alert thrown away.
const HELLO_BYTES_MAX: usize = 16 * 1024;

/// Draws a fault for a new connection. Returns the connection that the proxy is to use, or `None` if the fault has
/// ended it.
pub(crate) fn drawn(
    worker: &Worker,
    stream: TcpStream,
    peer: SocketAddr,
    listening: &Listening,
) -> Option<Tcp> {
    let has_tls = worker.snapshot().listener(listening).tls.is_some();
    let Some(drawn) = worker.faults.draw_connection(listening.place(), peer.ip(), has_tls, worker.time_ns())
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

fn broken(worker: &Worker, drawn: &Drawn, client: TcpStream) -> io::Result<Option<Tcp>> {
    let local_address = client.local_addr().ok();
    let client = tokio::net::TcpStream::from_std(client)?;
    let shape::Fault::Connection(fault) = &drawn.fault else { return Ok(None) };
    match fault {
        // It has come to a listener that refuses none; and it has no datagrams.
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
            let link = Link { id: 0, effect: *effect, draws: drawn.draws() };
            let of_way = |is_met: bool| {
                let links = if is_met { vec![link.clone()] } else { Vec::new() };
                let has = move |is_there: &bool| if *is_there { links.clone() } else { Vec::new() };
                RelayDirection::new(drawn.rule.standing(), has)
            };
            // The end of a pair is an end: what is cut off would look whole.
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

/// Passes on what there is between the client and the proxy. The rule says until when it holds, so it stays for as long
/// as that matters.
async fn pass_on(
    [client, proxy]: [tokio::net::TcpStream; 2],
    [up, down]: [RelayDirection<bool>; 2],
    rule: Arc<Rule>,
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

/// Answers the beginning of a handshake with its end.
async fn refuse_handshake(client: tokio::net::TcpStream, alarms: Rc<Alarms>) {
    let mut hello = vec![0; HELLO_BYTES_MAX];
    let refuse = async {
        client.async_io(Interest::READABLE, || client.try_read(&mut hello)).await?;
        client.try_write(&HANDSHAKE_FAILURE)
    };
    // Who has gone, or never begins, needs no answer.
    tokio::select! {
        _ = refuse => {}
        () = alarms.sleep(HELLO_TIME_MAX) => {}
    }
}

/// A line of its own: the connection may never carry a request.
fn log(worker: &Worker, peer: SocketAddr, drawn: &Drawn) {
    if let Some(log) = worker.log.borrow_mut().as_mut() {
        let entry = Entry {
            cause: Some(Failure::FaultInjected.facts().word),
            more: &More { fault: Some(drawn.told()), ..More::NONE },
            ..Entry::new(peer.ip())
        };
        log.record(&entry, worker.wall_clock_at(Instant::now()));
    }
}
