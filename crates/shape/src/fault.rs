//! What goes wrong on purpose with requests, and with connections as a whole.
//!
//! Just what: when is in `occasion`. A new fault is a variant here, its words in `config/fault_kinds`, and its doing in
//! `proxy/faults/messages`: before a server is asked, or as a filter of the response.

use std::time::Duration;

use crate::delay::Delay;
use crate::toxic::Effect;

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The request is answered with this status, and no server is asked.
    Answer {
        /// From 200 to 599.
        status: u16,
    },
    /// The request goes on late.
    Delay(Delay),
    /// The response's body ends early.
    Cut {
        /// So much of it is sent.
        bytes: u64,
    },
    /// Content-Length is not the body's.
    Length {
        /// More than it, or less; not 0.
        by: i64,
    },
    /// Where the body's first chunk begins is something else.
    BadChunk,
    /// The response's head comes line by line.
    Drip {
        /// Between two lines.
        pause: Duration,
    },
    /// The response's trailers are left out.
    NoTrailers,
    /// The request is not answered: its stream, or its connection, is reset.
    Reset,
    /// The client is told that its connection ends: with GOAWAY, or with `Connection: close`.
    GoAway,
    /// A connection goes wrong as a whole, whatever it carries.
    Connection(ConnectionFault),
}

/// What goes wrong with a connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFault {
    /// This happens to its bytes.
    Toxic {
        /// What that is.
        effect: Effect,
        /// To which of them.
        ways: Directions,
    },
    /// Its TLS handshake is refused.
    BadHandshake,
    /// It is refused, as all are of its listener.
    Refuse,
}

/// The ways that bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directions {
    /// To the client.
    Down,
    /// From the client.
    Up,
    /// Each of them.
    Both,
}

impl Fault {
    /// Whether it is done to connections, and not to what they carry.
    pub fn is_of_connections(&self) -> bool {
        matches!(self, Self::Connection(_))
    }

    /// Whether it is done to listeners: no connection gets so far that something could be done to it.
    pub fn is_of_listeners(&self) -> bool {
        matches!(self, Self::Connection(ConnectionFault::Refuse))
    }
}
