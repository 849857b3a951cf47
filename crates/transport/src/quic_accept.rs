//! New connections that wait for the start of their handshake.
//!
//! A handshake takes as much time as some hundred datagrams, and the kernel's buffer is limited. So the endpoint
//! receives everything that has arrived before it starts the next handshake. A client would resend a lost datagram only
//! after seconds.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use quinn_proto::Incoming;

use crate::h3_connection::H3Connection;
use crate::quic_endpoint::{Admission, Datagram, Greeting, Host, IncomingConnection, QuicEndpoint};
use crate::quic_places::HandshakePlace;

/// Connections that wait for the start of their handshake, oldest first. The host limits their number.
#[derive(Default)]
pub(crate) struct Backlog(RefCell<VecDeque<WaitingHandshake>>);

struct WaitingHandshake {
    incoming: Incoming,
    arrival: IncomingConnection,
    place: Box<HandshakePlace>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

impl QuicEndpoint {
    /// Handles a new connection. `copy` is its first datagram if the endpoint is closing and accepts none.
    pub(crate) fn greet(
        &self,
        incoming: Incoming,
        copy: Option<Datagram>,
        out: &mut Vec<u8>,
        host: &impl Host,
    ) {
        let shared = &*self.0;
        let arrival = IncomingConnection {
            remote: incoming.remote_address(),
            local: incoming.local_ip(),
            is_validated: incoming.remote_address_validated(),
        };
        // After a Retry the client uses an ID of ours, which names its endpoint already.
        let began = incoming.may_retry().then(|| *incoming.orig_dst_cid());
        let remote = arrival.remote.ip();
        let admission = match copy.map(|copy| host.decline(copy)) {
            Some(true) => Admission::Drop,
            Some(false) => Admission::Refuse,
            None => host.admit(&arrival, shared.desk.places.crowd(remote)),
        };
        let mut engine = shared.engine.borrow_mut();
        out.clear();
        let answer = match admission {
            Admission::Wait => {
                if let Some(place) = HandshakePlace::take(&shared.desk, remote, began) {
                    let waiting = WaitingHandshake { incoming, arrival, place: Box::new(place) };
                    shared.backlog.0.borrow_mut().push_back(waiting);
                    return;
                }
                // Another endpoint has just started this handshake. The client sends its datagram again, and it is then
                // passed on there.
                engine.ignore(incoming);
                None
            }
            // RFC 9000 §8.1.2: a client accepts only one Retry.
            Admission::Retry if incoming.may_retry() => engine.retry(incoming, out).ok(),
            Admission::Refuse => Some(engine.refuse(incoming, out)),
            Admission::Retry | Admission::Drop => {
                engine.ignore(incoming);
                None
            }
        };
        drop(engine);
        if let Some(transmit) = answer {
            shared.send_aside(&transmit, out);
        }
    }

    /// Starts the handshake of the connection that has waited longest. Returns false if none waits.
    pub(crate) fn accept_next(&self, now: Instant, host: &impl Host) -> bool {
        let shared = &*self.0;
        let next = shared.backlog.0.borrow_mut().pop_front();
        let Some(WaitingHandshake { incoming, arrival, place }) = next else { return false };
        let greeting = host.greet(&arrival);
        let is_told = matches!(greeting, Greeting::Begin(..));
        let mut engine = shared.engine.borrow_mut();
        let mut out = shared.scratch.take();
        out.clear();
        let answer = match greeting {
            Greeting::Begin(config, limits) | Greeting::Fail(config, limits) => {
                match engine.accept(incoming, now, &mut out, Some(config)) {
                    Ok((handle, quic)) => {
                        // `add` and `begin` use the endpoint again.
                        drop(engine);
                        shared.scratch.replace(out);
                        let desk = Rc::clone(&shared.desk);
                        let connection = H3Connection::of_client(desk, handle, place, (quic, limits));
                        shared.add(handle.0, connection.clone());
                        host.begin(connection);
                        return true;
                    }
                    Err(error) => {
                        // A handshake that was made to fail on purpose is no failure to report.
                        if is_told {
                            host.failed(&arrival, &error.cause.to_string());
                        }
                        error.response
                    }
                }
            }
            Greeting::Refuse => Some(engine.refuse(incoming, &mut out)),
            Greeting::Ignore => {
                engine.ignore(incoming);
                None
            }
        };
        drop(engine);
        if let Some(transmit) = answer {
            shared.send_aside(&transmit, &out);
        }
        shared.scratch.replace(out);
        true
    }

    /// Drops all waiting connections without an answer.
    pub(crate) fn forget_backlog(&self) {
        for WaitingHandshake { incoming, .. } in self.0.backlog.0.take() {
            self.0.engine.borrow_mut().ignore(incoming);
        }
    }
}
