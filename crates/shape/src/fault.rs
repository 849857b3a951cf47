//! Faults of requests and of whole connections.
//!
//! Only the kinds of faults; `occasion` decides when they happen. A new fault is a variant here, its words in
//! `config/fault_kinds`, and its action in `proxy/outgoing/faults`.

use std::time::Duration;

use crate::delay::Delay;
use crate::toxic::Effect;

#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Answers the request without asking a server.
    Answer {
        /// From 200 to 599.
        status: u16,
    },
    Delay(Delay),
    /// Cuts off the body of the response.
    Cut {
        /// Body bytes that are sent.
        bytes: u64,
    },
    /// Sends a wrong Content-Length.
    Length {
        /// Difference from the real length; not 0.
        by: i64,
    },
    /// Replaces the start of the body's first chunk with invalid bytes.
    BadChunk,
    /// Sends the head of the response line by line.
    Drip {
        /// Pause between two lines.
        pause: Duration,
    },
    NoTrailers,
    /// Resets the stream or the connection instead of answering the request.
    Reset,
    /// Tells the client that its connection ends: by GOAWAY, or by `Connection: close`.
    GoAway,
    /// A fault of a whole connection of any protocol.
    Connection(ConnectionFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFault {
    Toxic {
        effect: Effect,
        ways: Directions,
    },
    BadHandshake,
    Refuse,
    /// Harms QUIC datagrams, each independently.
    Datagrams {
        effect: DatagramEffect,
        ways: Directions,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramEffect {
    Lose,
    Duplicate,
    /// Delivers the datagram later, behind others.
    Delay {
        by: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directions {
    /// Towards the client (downstream).
    Down,
    /// From the client (upstream).
    Up,
    Both,
}

impl ConnectionFault {
    /// Whether the fault applies to QUIC connections. The others change bytes of TCP.
    pub fn is_of_quic(&self) -> bool {
        match self {
            Self::BadHandshake | Self::Refuse | Self::Datagrams { .. } => true,
            Self::Toxic { effect: Effect::ResetAfter { after }, .. } => after.is_zero(),
            Self::Toxic { effect, .. } => matches!(effect, Effect::Timeout { .. } | Effect::SlowStart { .. }),
        }
    }
}

impl Fault {
    /// Whether the fault applies to connections, not to the requests on them.
    pub fn is_of_connections(&self) -> bool {
        matches!(self, Self::Connection(_))
    }

    pub fn is_of_datagrams(&self) -> bool {
        matches!(self, Self::Connection(ConnectionFault::Datagrams { .. }))
    }

    /// Whether the fault applies to a listener as a whole: it accepts no connection.
    pub fn is_of_listeners(&self) -> bool {
        matches!(self, Self::Connection(ConnectionFault::Refuse))
    }
}
