//! Faults of requests and of whole connections.
//!
//! Only the kinds of faults; `occasion` decides when they happen. A new fault is a variant here, its words in
//! `config/fault_kinds`, and its action in `proxy/faults/messages`: before a server is asked, or as a filter of the
//! response.

use std::time::Duration;

use crate::delay::Delay;
use crate::toxic::Effect;

/// A kind of fault.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Answers the request with a status, without asking a server.
    Answer {
        /// The status, from 200 to 599.
        status: u16,
    },
    /// Delays the request.
    Delay(Delay),
    /// Cuts off the body of the response.
    Cut {
        /// The number of body bytes that are sent.
        bytes: u64,
    },
    /// Sends a wrong Content-Length.
    Length {
        /// The difference from the real length; not 0.
        by: i64,
    },
    /// Replaces the beginning of the first chunk of the body with invalid bytes.
    BadChunk,
    /// Sends the head of the response line by line.
    Drip {
        /// The pause between two lines.
        pause: Duration,
    },
    /// Leaves out the trailers of the response.
    NoTrailers,
    /// Resets the stream or the connection instead of answering the request.
    Reset,
    /// Tells the client that its connection ends: with GOAWAY, or with `Connection: close`.
    GoAway,
    /// A fault of a whole connection, whatever it carries.
    Connection(ConnectionFault),
}

/// A fault of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFault {
    /// Applies a toxic to the bytes of the connection.
    Toxic {
        /// The effect of the toxic.
        effect: Effect,
        /// The directions that are affected.
        ways: Directions,
    },
    /// Refuses the TLS handshake.
    BadHandshake,
    /// Refuses every connection of the listener.
    Refuse,
    /// Harms datagrams of QUIC, each by itself.
    Datagrams {
        /// What becomes of a datagram.
        effect: DatagramEffect,
        /// The directions that are affected.
        ways: Directions,
    },
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramEffect {
    /// It is lost.
    Lose,
    /// It comes twice.
    Duplicate,
    /// It comes so much later, behind others.
    Delay {
        /// How much later.
        by: Duration,
    },
}

/// Directions of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directions {
    /// To the client (downstream).
    Down,
    /// From the client (upstream).
    Up,
    /// Both directions.
    Both,
}

impl Fault {
    /// Whether the fault applies to connections, not to the requests on them.
    pub fn is_of_connections(&self) -> bool {
        matches!(self, Self::Connection(_))
    }

    /// Whether the fault applies to datagrams of QUIC.
    pub fn is_of_datagrams(&self) -> bool {
        matches!(self, Self::Connection(ConnectionFault::Datagrams { .. }))
    }

    /// Whether the fault applies to a listener as a whole: no connection is accepted.
    pub fn is_of_listeners(&self) -> bool {
        matches!(self, Self::Connection(ConnectionFault::Refuse))
    }
}
