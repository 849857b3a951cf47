//! HTTP/3 connections to a server: their establishment, limits and end.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use http3::{FloodLimits, H3Limits};
use transport::cold::cold;
use transport::deadline::Deadline;
use transport::dial::Destination;
use transport::h3_connection::{H3Connection, H3ConnectionEnd};
use transport::quic_client::STREAMS_MAX;
use transport::quic_path::{DatagramWay, Passage, Weather};

use crate::failure::Failure;
use crate::upstream::channel::SharedConnection;
use crate::upstream::lender::Lender;
use crate::upstream::multiplex::StreamQueue;
use crate::upstream::{Permit, UpstreamServer};

/// Unread bytes of one response body, beside what QUIC holds.
const BODY_MAX: usize = 64 * 1024;
/// Capacity of the QPACK dynamic table (RFC 9204 §3.2), equal to HPACK's default.
const TABLE_BYTES: usize = 4096;
/// Streams that may wait for insertions into the dynamic table.
const BLOCKED_MAX: usize = 16;

/// Returns the limits of a connection to a server.
fn limits(worker: &impl Lender) -> H3Limits {
    let plan = worker.plan();
    let of_http2 = &plan.config.limits.http2.floods;
    H3Limits {
        streams: STREAMS_MAX as usize,
        head_bytes: plan.config.limits.header_bytes,
        short_head_bytes: usize::MAX,
        long_heads_bytes: usize::MAX,
        body_bytes: BODY_MAX,
        // An unread body does not block the others.
        bodies_bytes: STREAMS_MAX as usize * BODY_MAX,
        table_bytes: TABLE_BYTES,
        blocked_streams: BLOCKED_MAX,
        floods: FloodLimits { empty_frames: of_http2.empty_frames, ..FloodLimits::DEFAULT },
    }
}

/// Makes a connection: tries the server's addresses in order, each within the time-out. Waits for the server's
/// SETTINGS, which state whether it supports upgraded streams.
pub(crate) async fn establish(
    worker: &impl Lender,
    deadline: &Deadline,
    server: &Rc<UpstreamServer>,
    waits: &Rc<StreamQueue>,
) -> Result<SharedConnection, Failure> {
    let reach = async |destination: Destination<'_>| reach(worker, deadline, server, destination).await;
    let (connection, permit) = server.open_by(worker, reach).await?;
    tokio::task::spawn_local(watch(connection.clone(), Rc::clone(waits), permit));
    Ok(SharedConnection::Http3(connection))
}

async fn reach(
    worker: &impl Lender,
    deadline: &Deadline,
    server: &Rc<UpstreamServer>,
    destination: Destination<'_>,
) -> Result<H3Connection, Failure> {
    let limit = server.connect_limit(worker);
    // `check` permits only TCP addresses with TLS.
    let (Destination::Tcp(address), Some((tls, place))) = (destination, &server.plan.tls) else {
        server.is_troubled("HTTP/3 needs an address and TLS");
        return Err(Failure::UpstreamRefused);
    };
    let (Some(name), Some(crypto)) = (tls.name(*place), tls.quic()) else {
        server.is_troubled("its TLS options do not permit TLS 1.3, which HTTP/3 needs");
        return Err(Failure::UpstreamHandshake);
    };
    // Cloned, because a borrow must not last over the wait below.
    let link = server.link.borrow().clone();
    let begun = async {
        if let Some(link) = &link {
            cold(|| link.connect(worker.alarms())).await;
        }
        let weather = LinkOf(Rc::downgrade(server));
        worker.quic_clients().connect(crypto, (address, &name.to_str()), limits(worker), weather)
    };
    server.is_troubled("");
    let connection = match deadline.within(limit, begun).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(server.unreached(&error, destination)),
        Err(_) => {
            server.plan.was_reached(false);
            return Err(Failure::UpstreamConnectTimeout);
        }
    };
    server.is_troubled("the QUIC handshake did not complete");
    let secured = poll_fn(|context| connection.poll_until(context, H3Connection::is_secure));
    let secured = deadline.within(limit, secured).await;
    // A handshake that the server has rejected proves that it can be reached.
    let is_reached =
        matches!(secured, Ok(Ok(()) | Err(H3ConnectionEnd::Handshake(..) | H3ConnectionEnd::Violated(_))));
    server.plan.was_reached(is_reached);
    let begun = match secured {
        Ok(Ok(())) => {
            server.is_troubled("it sent no HTTP/3 SETTINGS");
            let begun = poll_fn(|context| connection.poll_until(context, H3Connection::has_begun));
            deadline.within(limit, begun).await
        }
        other => other,
    };
    match begun {
        Ok(Ok(())) => Ok(connection),
        Ok(Err(end)) => {
            connection.conclude(&end);
            Err(not_begun(server, &end))
        }
        Err(_) => {
            connection.conclude(&H3ConnectionEnd::Closed);
            Err(Failure::UpstreamConnectTimeout)
        }
    }
}

/// Returns the failure for a connection that ended before it was established.
fn not_begun(server: &UpstreamServer, end: &H3ConnectionEnd) -> Failure {
    match (end, end.wrong()) {
        (H3ConnectionEnd::Handshake(fault, _), Some(wrong)) => {
            server.refused(Failure::of_server_handshake(*fault), &wrong)
        }
        (_, Some(wrong)) => server.refused(Failure::UpstreamProtocol, &wrong),
        (H3ConnectionEnd::Unreachable, None) => {
            server.is_troubled("its UDP port does not respond");
            Failure::UpstreamRefused
        }
        (_, None) => {
            server.is_troubled("it closed the new connection immediately");
            Failure::UpstreamRefused
        }
    }
}

/// Drives a connection until it has ended: the body of its task.
async fn watch(connection: H3Connection, waits: Rc<StreamQueue>, permit: Permit) {
    let end = poll_fn(|context| poll_end(&connection, &waits, context)).await;
    connection.conclude(&end);
    drop(permit);
    // Requests that wait for a stream need another connection.
    waits.have_room();
}

/// Ready when a connection has ended, or is no longer needed.
fn poll_end(
    connection: &H3Connection,
    waits: &StreamQueue,
    context: &mut Context<'_>,
) -> Poll<H3ConnectionEnd> {
    if let Poll::Ready(Some(end)) = connection.poll_news(context, &mut Vec::new()) {
        return Poll::Ready(end);
    }
    if connection.take_room() {
        waits.have_room();
    }
    let is_idle = connection.engine().is_none_or(|engine| engine.held() == 0);
    if is_idle && (connection.is_left() || connection.is_ending()) {
        return Poll::Ready(H3ConnectionEnd::Closed);
    }
    Poll::Pending
}

/// The emulated link of a server, with its current settings.
struct LinkOf(Weak<UpstreamServer>);

impl Weather for LinkOf {
    fn is_bad(&self) -> bool {
        self.0
            .upgrade()
            .is_some_and(|server| server.link.borrow().as_ref().is_some_and(|link| link.is_delayed()))
    }

    fn passage(&self, _: IpAddr, bytes: usize, _: DatagramWay) -> Passage {
        let link = self.0.upgrade().and_then(|server| server.link.borrow().clone());
        link.map_or(Passage::default(), |link| link.passage(bytes, false))
    }
}
