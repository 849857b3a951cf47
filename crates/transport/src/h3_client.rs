//! What only an HTTP/3 connection to a server has: streams that are opened, and doubts whether the server is still there.
//!
//! A server that has died says nothing, and datagrams to it vanish. So what comes of it is noted, and so is what the kernel tells
//! (ICMP), which whoever is on the way can make up.

use std::task::{Context, Poll};

use http3::{Code, Key};
use quinn_proto::{ConnectionError, Dir, TransportErrorCode};

use crate::h3_connection::{Core, End, H3Connection};

/// How long a server may take to acknowledge a request, in ticks, beside some round trips. Then others go over a new connection.
const SILENT_MAX: u32 = 20;
/// In how many ticks the kernel may tell that nobody is there, without a word of the server in between.
const REFUSALS_MAX: u32 = 3;

/// Why a server is disconnected whose pieces cannot be held.
const TOO_SCATTERED: &str = "too many pieces with gaps between them";

/// Whether a server can be reached.
#[derive(Debug)]
pub(crate) struct Reach {
    /// A stream that was opened to see whether there is one, and is not used yet.
    spare: Option<u64>,
    /// Whether there may be more streams than before.
    pub(crate) has_room: bool,
    /// The tick at which something has come last.
    heard_at: u32,
    /// The tick of the first request since then.
    asked_at: Option<u32>,
    /// In how many ticks since then the kernel has told that nobody is there, and the last of them.
    refusals: u32,
    refused_at: u32,
}

impl Reach {
    pub(crate) fn new(now: u32) -> Self {
        Self { spare: None, has_room: false, heard_at: now, asked_at: None, refusals: 0, refused_at: 0 }
    }

    /// Something has come of the server.
    #[inline]
    pub(crate) fn heard(&mut self, now: u32) {
        (self.heard_at, self.asked_at, self.refusals) = (now, None, 0);
    }

    /// A request leaves.
    #[inline]
    pub(crate) fn asked(&mut self, now: u32) {
        self.asked_at.get_or_insert(now);
    }

    /// The kernel has told that nobody is there; whether that is to be believed.
    fn refused(&mut self, now: u32) -> bool {
        // Datagrams that leave together are refused together.
        if self.refusals == 0 || self.refused_at != now {
            self.refusals += 1;
            self.refused_at = now;
        }
        self.refusals >= REFUSALS_MAX
    }

    /// Whether the server seems to be gone, which takes so many ticks to answer.
    fn is_in_doubt(&self, now: u32, round_trip: u32, silence: u32) -> bool {
        let is_late =
            |since: u32, limit: u32| now.saturating_sub(since) > limit.saturating_add(4 * round_trip);
        self.refusals > 0
            || self.asked_at.is_some_and(|since| is_late(since, SILENT_MAX))
            || is_late(self.heard_at, silence)
    }
}

impl H3Connection {
    /// Whether the peer is a server.
    pub fn is_to_server(&self) -> bool {
        self.core().reach.is_some()
    }

    /// Ready when this holds, or with the end of the connection.
    ///
    /// # Errors
    /// How the connection has ended.
    pub fn poll_until(
        &self,
        context: &mut Context<'_>,
        holds: impl Fn(&Self) -> bool,
    ) -> Poll<Result<(), End>> {
        match self.poll_news(context, &mut Vec::new()) {
            Poll::Ready(Some(end)) => Poll::Ready(Err(end)),
            _ if holds(self) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    /// Whether the handshake is done.
    pub fn is_secure(&self) -> bool {
        self.engine().is_some()
    }

    /// Ends the connection for this reason, and tells the server.
    pub fn conclude(&self, end: &End) {
        let (code, why) = match end {
            End::Closed | End::Unreachable | End::Handshake(_) => (Code::NO_ERROR, ""),
            End::Violated(why) => (Code::GENERAL_PROTOCOL_ERROR, why.as_str()),
            End::Broken(broken) => (broken.code, broken.why()),
            End::Scattered => (Code::EXCESSIVE_LOAD, TOO_SCATTERED),
        };
        self.finish(code, why);
    }

    /// Whether the server's settings have come.
    pub fn has_begun(&self) -> bool {
        self.look(http3::Connection::has_begun)
    }

    /// Whether the connection has ended, or the server accepts no further streams (GOAWAY).
    pub fn is_ending(&self) -> bool {
        self.is_over() || self.look(http3::Connection::is_going_away)
    }

    /// Whether the server seems to be gone: it has not acknowledged a request in time, or nothing has come of it for longer than
    /// `silence`, in ticks, or nobody listens there. What is under way may still be answered.
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
            // QUIC tells in no other way how many streams the server permits (RFC 9000 §4.6).
            reach.spare = quic.streams().open(Dir::Bi).map(u64::from);
        }
        reach.spare.is_some()
    }

    /// Opens a stream for a request, where the server permits one more.
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

    /// The kernel has told that nobody listens where the server was. Who is connected already may believe that only after a while:
    /// anybody can send such a message who knows the ports (RFC 5927 §4).
    #[cold]
    pub(crate) fn refused(&self) {
        let now = self.now().tick;
        let mut core = self.core();
        let is_handshaking = core.is_handshaking;
        let Some(is_believed) = core.reach.as_mut().map(|reach| reach.refused(now)) else { return };
        if is_handshaking {
            self.end(&mut core, End::Unreachable);
        } else if is_believed {
            self.end(&mut core, End::Closed);
        }
    }
}

impl End {
    /// What a server has done wrong, in words in which "it" is the server. `None` if it has just gone, or cannot be reached.
    pub fn wrong(&self) -> Option<String> {
        match self {
            Self::Closed | Self::Unreachable => None,
            Self::Handshake(why) => Some(why.clone()),
            Self::Violated(why) => Some(format!("it breaks the rules of QUIC: {why}")),
            Self::Broken(broken) => Some(format!("it breaks the rules of HTTP/3: {}", broken.why())),
            Self::Scattered => Some(format!("it sends {TOO_SCATTERED}")),
        }
    }
}

/// What the end of a connection to a server means.
pub(crate) fn lost(core: &Core, reason: ConnectionError) -> End {
    let words = |code: TransportErrorCode| {
        alert(code).map(|alert| tls::reason(&rustls::Error::AlertReceived(alert), "tls"))
    };
    match reason {
        // Our own verdict on the handshake is in words already.
        ConnectionError::TransportError(error) if alert(error.code).is_some() => End::Handshake(error.reason),
        ConnectionError::TransportError(error) if core.is_handshaking => End::Handshake(error.to_string()),
        ConnectionError::TransportError(error) => End::Violated(error.to_string()),
        // A server may judge the client's certificate after the client's handshake is done.
        ConnectionError::ConnectionClosed(close) if alert(close.error_code).is_some() => {
            End::Handshake(words(close.error_code).unwrap_or_default())
        }
        ConnectionError::ConnectionClosed(close) if core.is_handshaking => {
            End::Handshake(format!("it ended the handshake: {close}"))
        }
        ConnectionError::VersionMismatch => End::Handshake("it does not speak version 1 of QUIC".to_owned()),
        ConnectionError::TimedOut if core.is_handshaking => End::Unreachable,
        _ => End::Closed,
    }
}

/// The alert of TLS that a code stands for (RFC 9001 §4.8).
fn alert(code: TransportErrorCode) -> Option<rustls::AlertDescription> {
    let code = u64::from(code).checked_sub(0x100)?;
    u8::try_from(code).ok().map(rustls::AlertDescription::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_nothing_is_in_doubt_until_it_says_something() {
        let mut reach = Reach::new(100);
        let doubted = |reach: &Reach, now| reach.is_in_doubt(now, 1, 120);
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
