//! Connections that begin, and wait until their handshake has its turn.
//!
//! A handshake takes as much time as some hundred datagrams, and the kernel's buffer is bounded. So the endpoint receives what has
//! arrived before it begins the next handshake. A datagram that is lost at the socket is sent again by its client after seconds.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use quinn_proto::Incoming;

use crate::h3_connection::H3Connection;
use crate::quic_endpoint::{Admission, Arrival, Datagram, Host, QuicEndpoint};
use crate::quic_places::Place;

/// Connections whose handshake waits for its turn, the first one first. The host bounds them.
#[derive(Default)]
pub(crate) struct Backlog(RefCell<VecDeque<Waiting>>);

/// A connection whose handshake waits for its turn.
struct Waiting {
    incoming: Incoming,
    arrival: Arrival,
    place: Box<Place>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

impl QuicEndpoint {
    /// A connection begins; `copy` is its first datagram, if the endpoint begins none.
    pub(crate) fn greet(
        &self,
        incoming: Incoming,
        copy: Option<Datagram>,
        out: &mut Vec<u8>,
        host: &impl Host,
    ) {
        let shared = &*self.0;
        let arrival = Arrival {
            remote: incoming.remote_address(),
            local: incoming.local_ip(),
            is_validated: incoming.remote_address_validated(),
        };
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
                if let Some(place) = Place::take(&shared.desk, remote, began) {
                    let waiting = Waiting { incoming, arrival, place: Box::new(place) };
                    shared.backlog.0.borrow_mut().push_back(waiting);
                    return;
                }
                // Another endpoint has just begun this handshake. The client sends its datagram again, which is passed on there.
                engine.ignore(incoming);
                None
            }
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

    /// Begins the handshake of the connection that has waited longest; false if none waits.
    pub(crate) fn accept_next(&self, now: Instant, host: &impl Host) -> bool {
        let shared = &*self.0;
        let next = shared.backlog.0.borrow_mut().pop_front();
        let Some(Waiting { incoming, arrival, place }) = next else { return false };
        let settings = host.settings(&arrival);
        let mut engine = shared.engine.borrow_mut();
        let mut out = shared.scratch.take();
        out.clear();
        let answer = match settings {
            Some((config, limits)) => match engine.accept(incoming, now, &mut out, Some(config)) {
                Ok((handle, quic)) => {
                    drop(engine);
                    shared.scratch.replace(out);
                    let desk = Rc::clone(&shared.desk);
                    let connection = H3Connection::of_client(desk, handle, place, (quic, limits));
                    shared.add(handle.0, connection.clone());
                    host.begin(connection);
                    return true;
                }
                Err(error) => {
                    host.failed(&arrival, &error.cause.to_string());
                    error.response
                }
            },
            None => Some(engine.refuse(incoming, &mut out)),
        };
        drop(engine);
        if let Some(transmit) = answer {
            shared.send_aside(&transmit, &out);
        }
        shared.scratch.replace(out);
        true
    }

    /// Forgets those who wait. Nothing is answered.
    pub(crate) fn forget_backlog(&self) {
        for Waiting { incoming, .. } in self.0.backlog.0.take() {
            self.0.engine.borrow_mut().ignore(incoming);
        }
    }
}
