//! Failed TLS handshakes of clients: counts and reports them, and makes sure that the client can read the alert.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Instant;

use config::written_duration;
use telemetry::message;
use telemetry::{LogEntry, LoggedTls, More};
use tls::HandshakeFault;

use crate::connection::client;
use crate::context::client::FrontConnection;
use crate::context::worker::Worker;
use crate::failure::{Failure, FailureFacts};
use transport::buffer::SMALL;
use transport::tls::HandshakeError;

/// Handles a failed handshake. An `error` of `None` means that it timed out.
#[cold]
pub(crate) async fn failed(worker: &Worker, client: &mut FrontConnection, error: Option<HandshakeError>) {
    worker.counters.handshake_failures.increment();
    let (failure, reason, refused_handshake) = match error {
        // A client that closed, or speaks plain HTTP, is handled elsewhere and not reported here.
        Some(HandshakeError::Io | HandshakeError::InTheClear(_)) => return,
        Some(HandshakeError::Refused(error, refused_handshake)) => {
            let fault = HandshakeFault::from_error(&error);
            (Failure::of_client_handshake(fault), tls::reason_of_client(&error), Some(*refused_handshake))
        }
        Some(HandshakeError::TooLong) => {
            (Failure::ClientHandshake, "it is longer than a handshake can be".to_owned(), None)
        }
        None => {
            let limit = worker.snapshot().plan.config.timeouts.client_header;
            let reason = format!("it did not end within timeouts.client_header, {}", written_duration(limit));
            (Failure::ClientHandshake, reason, None)
        }
    };
    worker.counters.failure(failure as usize);
    let server_name =
        refused_handshake.as_ref().and_then(|refused_handshake| refused_handshake.server_name.as_deref());
    tell(worker, client, failure, &reason, server_name.unwrap_or_default());
    if let Some(refused_handshake) = refused_handshake {
        // The client may still send. A close with unread bytes would be a reset, which discards the alert.
        client.socket = refused_handshake.tcp.into();
        client::linger_briefly(worker, client, &mut worker.buffers.take(SMALL)).await;
    }
}

/// Reports a failed handshake in the access log, or on standard error if there is none.
pub(crate) fn tell(
    worker: &Worker,
    client: &FrontConnection,
    failure: Failure,
    reason: &str,
    server_name: &str,
) {
    // Any client can fail handshakes at will, so their lines are limited per second.
    let Some(more) = worker.handshake_notices.next(worker.deadlines.second()) else { return };
    let detail = with_omitted(reason.to_owned(), more);
    let FailureFacts { word, status, .. } = failure.facts();
    match worker.log.borrow_mut().as_mut() {
        Some(log) => {
            let entry = LogEntry {
                cause: Some(word),
                status,
                detail: Some(&detail),
                more: &More { tls: LoggedTls { server_name, ..LoggedTls::default() }, ..More::NONE },
                ..LogEntry::new(client.address)
            };
            log.record(&entry, worker.wall_clock_at(Instant::now()));
        }
        None => {
            // The name is the client's text. Quoted, it cannot break the line or control a terminal.
            let name = http1::quote(server_name.as_bytes());
            message::warn(&format!(
                "{}: {word}: TLS handshake failed, server name {name}: {detail}",
                client.address
            ));
        }
    }
}

/// A limit on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConnectionLimit {
    InAll(usize),
    OfClient(NonZeroU32),
}

/// Counts and logs a connection beyond a limit. `status` is 0 if the client gets no response.
#[cold]
pub(crate) fn over_limit(worker: &Worker, address: IpAddr, limit: ConnectionLimit, status: u16) {
    let failure = Failure::TooManyConnections;
    worker.counters.connections_refused.increment();
    worker.counters.failure(failure as usize);
    let Some(more) = worker.handshake_notices.next(worker.deadlines.second()) else { return };
    let reason = match limit {
        ConnectionLimit::InAll(limit) => format!("more connections than limits.connections, {limit}"),
        ConnectionLimit::OfClient(limit) => {
            format!("more connections of this client than connections_per_client, {limit}")
        }
    };
    let detail = with_omitted(reason, more);
    if let Some(log) = worker.log.borrow_mut().as_mut() {
        let cause = Some(failure.facts().word);
        let entry = LogEntry { cause, status, detail: Some(&detail), ..LogEntry::new(address) };
        log.record(&entry, worker.wall_clock_at(Instant::now()));
    }
}

/// Appends the number of failures that were not logged before.
pub(super) fn with_omitted(detail: String, more: u32) -> String {
    if more == 0 {
        detail
    } else {
        format!("{detail}; {more} more connections failed before and are not logged")
    }
}
