//! HTTP/3 connections to a server: how they begin, what one may cost, and when it ends.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use http3::{FloodLimits, Limits};
use telemetry::message;
use transport::cold::cold;
use transport::deadline::Deadline;
use transport::descriptors::is_out_of_descriptors;
use transport::dial::Destination;
use transport::h3_connection::{End, H3Connection};
use transport::quic_client::STREAMS_MAX;
use transport::quic_path::{Passage, Way, Weather};

use crate::context::failure::Failure;
use crate::context::worker::Worker;
use crate::upstream::channel::Channel;
use crate::upstream::multiplex::Waits;
use crate::upstream::{Permit, Server};

/// Unread bytes of the body of a response, beside what QUIC holds.
const BODY_MAX: usize = 64 * 1024;
/// The dynamic table of QPACK (RFC 9204 §3.2): that of HPACK by default.
const TABLE_BYTES: usize = 4096;
/// Responses that may wait for insertions into it.
const BLOCKED_MAX: usize = 16;

/// What a server's connection may cost.
fn limits(worker: &Worker) -> Limits {
    let snapshot = worker.snapshot();
    let of_http2 = &snapshot.plan.config.limits.http2.floods;
    Limits {
        streams: STREAMS_MAX as usize,
        head_bytes: snapshot.head_limits.bytes,
        short_head_bytes: usize::MAX,
        long_heads_bytes: usize::MAX,
        body_bytes: BODY_MAX,
        // One that is not read keeps no other waiting.
        bodies_bytes: STREAMS_MAX as usize * BODY_MAX,
        table_bytes: TABLE_BYTES,
        blocked_streams: BLOCKED_MAX,
        floods: FloodLimits { empty_frames: of_http2.empty_frames, ..FloodLimits::DEFAULT },
    }
}

/// Makes a connection: tries the server's addresses in order, each within the time-out. It is there once the server's settings
/// are, which say whether it takes upgraded streams.
pub(crate) async fn establish(
    worker: &Worker,
    deadline: &Deadline,
    server: &Rc<Server>,
    waits: &Rc<Waits>,
) -> Result<Channel, Failure> {
    let reach = async |destination: Destination<'_>| reach(worker, deadline, server, destination).await;
    let (connection, permit) = server.open_by(worker, reach).await?;
    tokio::task::spawn_local(watch(connection.clone(), Rc::clone(waits), permit));
    Ok(Channel::Http3(connection))
}

async fn reach(
    worker: &Worker,
    deadline: &Deadline,
    server: &Rc<Server>,
    destination: Destination<'_>,
) -> Result<H3Connection, Failure> {
    let limit = server.connect_limit(worker);
    // `check` lets no others in.
    let (Destination::Tcp(address), Some((tls, place))) = (destination, &server.plan.tls) else {
        return Err(Failure::UpstreamRefused);
    };
    let (Some(name), Some(crypto)) = (tls.name(*place), tls.quic()) else {
        return Err(Failure::UpstreamHandshake);
    };
    let link = server.link.borrow().clone();
    let begun = async {
        if let Some(link) = &link {
            cold(|| link.connect(worker.shaper.alarms())).await;
        }
        let weather = LinkOf(Rc::downgrade(server));
        worker.quic_clients.connect(crypto, (address, &name.to_str()), limits(worker), weather)
    };
    let connection = match deadline.within(limit, begun).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) if is_out_of_descriptors(&error) => return Err(Failure::OutOfDescriptors),
        outcome => {
            server.plan.was_reached(false);
            return Err(if outcome.is_ok() {
                Failure::UpstreamRefused
            } else {
                Failure::UpstreamConnectTimeout
            });
        }
    };
    let secured = poll_fn(|context| connection.poll_until(context, H3Connection::is_secure));
    let secured = deadline.within(limit, secured).await;
    let is_reached = matches!(secured, Ok(Ok(()) | Err(End::Handshake(_) | End::Violated(_))));
    server.plan.was_reached(is_reached);
    let begun = match secured {
        Ok(Ok(())) => {
            let begun = poll_fn(|context| connection.poll_until(context, H3Connection::has_begun));
            deadline.within(limit, begun).await
        }
        other => other,
    };
    match begun {
        Ok(Ok(())) => Ok(connection),
        Ok(Err(end)) => {
            connection.conclude(&end);
            let Some(wrong) = end.wrong() else { return Err(Failure::UpstreamRefused) };
            message::warn(&format!("{}: {wrong}", server.plan.authority));
            Err(Failure::UpstreamHandshake)
        }
        Err(_) => {
            connection.conclude(&End::Closed);
            Err(Failure::UpstreamConnectTimeout)
        }
    }
}

/// Serves a connection until it has ended: the body of its task.
async fn watch(connection: H3Connection, waits: Rc<Waits>, permit: Permit) {
    let end = poll_fn(|context| poll_end(&connection, &waits, context)).await;
    connection.conclude(&end);
    drop(permit);
    // Who waits for a stream of it has to make another one.
    waits.have_room();
}

/// Ready when a connection has ended, or nobody needs it any more.
fn poll_end(connection: &H3Connection, waits: &Waits, context: &mut Context<'_>) -> Poll<End> {
    if let Poll::Ready(Some(end)) = connection.poll_news(context, &mut Vec::new()) {
        return Poll::Ready(end);
    }
    if connection.take_room() {
        waits.have_room();
    }
    let is_idle = connection.engine().is_none_or(|engine| engine.held() == 0);
    if is_idle && (connection.is_left() || connection.is_ending()) {
        return Poll::Ready(End::Closed);
    }
    Poll::Pending
}

/// The emulated link of a server. A connection keeps to it as it is now.
struct LinkOf(Weak<Server>);

impl Weather for LinkOf {
    fn is_bad(&self) -> bool {
        self.0
            .upgrade()
            .is_some_and(|server| server.link.borrow().as_ref().is_some_and(|link| link.is_delayed()))
    }

    fn passage(&self, _: IpAddr, bytes: usize, _: Way) -> Passage {
        let link = self.0.upgrade().and_then(|server| server.link.borrow().clone());
        link.map_or(Passage::default(), |link| link.passage(bytes, false))
    }
}
