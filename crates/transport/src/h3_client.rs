//! The part of an HTTP/3 connection that only connections to servers have: opening streams, and checks whether the
//! server is still reachable.
//!
//! A dead server sends nothing, and datagrams to it vanish. So this module tracks when the server was last heard, and
//! the kernel's ICMP errors, which anybody on the network path can forge.

use std::task::{Context, Poll};

use http3::{H3Code, Key};
use quinn_proto::Dir;

use crate::h3_connection::{Core, H3Connection, H3ConnectionEnd, TOO_SCATTERED};

/// Ticks that a server may take to acknowledge a request, beside some round trips. Later requests use a new connection.
// Two seconds: QUIC's own time-out is 30 s, which is too long for a request.
const SILENT_MAX: u32 = 20;
/// Ticks with ICMP errors, without a packet from the server in between, that end the connection.
const REFUSALS_MAX: u32 = 3;

/// Whether a server can be reached.
#[derive(Debug)]
pub(crate) struct H3Reach {
    /// A stream that was opened to see whether the server allows one. It is not used yet.
    spare: Option<u64>,
    /// Whether the server may have allowed more streams.
    pub(crate) has_room: bool,
    /// The tick of the last packet from the server.
    heard_at: u32,
    /// The tick of the first request since then.
    asked_at: Option<u32>,
    /// The number of ticks with ICMP errors since then, and the last of them.
    refusals: u32,
    refused_at: u32,
}

impl H3Reach {
    pub(crate) fn new(now: u32) -> Self {
        Self { spare: None, has_room: false, heard_at: now, asked_at: None, refusals: 0, refused_at: 0 }
    }

    /// Called when a packet from the server has arrived.
    #[inline]
    pub(crate) fn heard(&mut self, now: u32) {
        (self.heard_at, self.asked_at, self.refusals) = (now, None, 0);
    }

    /// Called when a request leaves.
    #[inline]
    pub(crate) fn asked(&mut self, now: u32) {
        self.asked_at.get_or_insert(now);
    }

    /// Counts an ICMP error. Returns whether there were enough to believe them.
    fn refused(&mut self, now: u32) -> bool {
        // Datagrams that are sent together are refused together.
        // Counted once per tick: the kernel reports each refused datagram, and a burst would end the connection
        // within a millisecond.
        if self.refusals == 0 || self.refused_at != now {
            self.refusals += 1;
            self.refused_at = now;
        }
        self.refusals >= REFUSALS_MAX
    }

    /// Whether the server seems to be gone. All times are in ticks.
    fn is_in_doubt(&self, now: u32, round_trip: u32, silence: u32) -> bool {
        let is_late =
            // A long path must not look like a dead server.
            |since: u32, limit: u32| now.saturating_sub(since) > limit.saturating_add(4 * round_trip);
        self.refusals > 0
            || self.asked_at.is_some_and(|since| is_late(since, SILENT_MAX))
            || is_late(self.heard_at, silence)
    }
}

impl H3Connection {
    pub fn is_to_server(&self) -> bool {
        self.core().reach.is_some()
    }

    /// Ready when the condition holds, or when the connection has ended.
    ///
    /// # Errors
    /// The end of the connection.
    pub fn poll_until(
        &self,
        context: &mut Context<'_>,
        holds: impl Fn(&Self) -> bool,
    ) -> Poll<Result<(), H3ConnectionEnd>> {
        match self.poll_news(context, &mut Vec::new()) {
            Poll::Ready(Some(end)) => Poll::Ready(Err(end)),
            // After the end, since a connection that has ended fulfils no condition any more.
            _ if holds(self) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    pub fn is_secure(&self) -> bool {
        self.engine().is_some()
    }

    /// Ends the connection, and tells the server the reason.
    pub fn conclude(&self, end: &H3ConnectionEnd) {
        let (code, why) = match end {
            H3ConnectionEnd::Closed
            | H3ConnectionEnd::Told(_)
            | H3ConnectionEnd::Unreachable
            | H3ConnectionEnd::Handshake(..) => (H3Code::NO_ERROR, ""),
            H3ConnectionEnd::Violated(why) => (H3Code::GENERAL_PROTOCOL_ERROR, why.as_str()),
            H3ConnectionEnd::Broken(broken) => (broken.code, broken.why()),
            H3ConnectionEnd::Scattered => (H3Code::EXCESSIVE_LOAD, TOO_SCATTERED),
        };
        self.finish(code, why);
    }

    pub fn has_begun(&self) -> bool {
        self.look(http3::H3StateMachine::has_begun)
    }

    /// Whether the connection has ended, or the server accepts no further streams (GOAWAY).
    pub fn is_ending(&self) -> bool {
        self.is_over() || self.look(http3::H3StateMachine::is_going_away)
    }

    /// Whether the server seems to be gone. It has not acknowledged a request in time, nothing has arrived for more
    /// than `silence` ticks, or ICMP errors say that its port is closed. Requests in progress may still be answered.
    pub fn is_in_doubt(&self, silence: u32) -> bool {
        let now = self.now().tick;
        let core = self.core();
        let round_trip = crate::deadline::Ticks::from(core.quic.rtt()).0;
        core.reach.as_ref().is_some_and(|reach| reach.is_in_doubt(now, round_trip, silence))
    }

    /// Whether a stream can be opened.
    pub fn has_room(&self) -> bool {
        let mut core = self.core();
        let Core { quic, http: Some(http), reach: Some(reach), .. } = &mut *core else { return false };
        if self.is_over() || !http.takes_more() {
            return false;
        }
        if reach.spare.is_none() {
            // Opening a stream is the only way to learn how many streams the server allows (RFC 9000 §4.6).
            reach.spare = quic.streams().open(Dir::Bi).map(u64::from);
        }
        reach.spare.is_some()
    }

    /// Opens a stream for a request. `None` if the server allows no more.
    pub fn open(&self) -> Option<Key> {
        if !self.has_room() {
            return None;
        }
        let mut core = self.core();
        let Core { http: Some(http), reach: Some(reach), .. } = &mut *core else { return None };
        reach.spare.take().map(|id| http.open(id))
    }

    /// Whether there may be more streams than at the last call.
    pub fn take_room(&self) -> bool {
        self.core().reach.as_mut().is_some_and(|reach| std::mem::take(&mut reach.has_room))
    }

    /// Handles an ICMP error. An established connection believes it only after several: anybody who knows the ports can
    /// forge such a message (RFC 5927 §4).
    #[cold]
    pub(crate) fn refused(&self) {
        let now = self.now().tick;
        let mut core = self.core();
        // During the handshake there is nothing to lose, and another address may answer.
        let is_handshaking = core.is_handshaking;
        let Some(is_believed) = core.reach.as_mut().map(|reach| reach.refused(now)) else { return };
        if is_handshaking {
            self.end(&mut core, H3ConnectionEnd::Unreachable);
        } else if is_believed {
            self.end(&mut core, H3ConnectionEnd::Closed);
        }
    }
}

impl H3Connection {
    /// The error code with which the peer has ended the connection.
    pub(crate) fn told(&self) -> Option<H3Code> {
        match self.core().end() {
            Some(H3ConnectionEnd::Told(code)) => Some(*code),
            _ => None,
        }
    }
}

impl H3ConnectionEnd {
    /// The server's error, in a sentence whose subject is "it". `None` if it only closed, or cannot be reached.
    pub fn wrong(&self) -> Option<String> {
        match self {
            Self::Closed | Self::Told(_) | Self::Unreachable => None,
            Self::Handshake(_, why) => Some(why.clone()),
            Self::Violated(why) => Some(format!("it breaks the rules of QUIC: {why}")),
            Self::Broken(broken) => Some(format!("it breaks the rules of HTTP/3: {}", broken.why())),
            Self::Scattered => Some(format!("it sends {TOO_SCATTERED}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_in_doubt_until_it_sends_something() {
        let mut reach = H3Reach::new(100);
        let doubted = |reach: &H3Reach, now| reach.is_in_doubt(now, 1, 120);
        assert!(!doubted(&reach, 224));
        assert!(doubted(&reach, 225), "a silence that is too long");
        reach.heard(200);
        reach.asked(210);
        reach.asked(220);
        assert!(!doubted(&reach, 234));
        assert!(doubted(&reach, 235), "the first request counts");
        reach.heard(240);
        assert!(!doubted(&reach, 300));
        assert!(!reach.refused(300) && !reach.refused(300) && !reach.refused(301));
        assert!(doubted(&reach, 301));
        reach.heard(301);
        assert!(!doubted(&reach, 302));
        assert_eq!([302, 303, 303, 304].map(|now| reach.refused(now)), [false, false, false, true]);
    }
}
