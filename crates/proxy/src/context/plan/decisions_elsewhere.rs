//! Authentication decisions that instances share. The control side carries them as bytes under a key.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::elsewhere::{InstanceWay, Outlet};
use super::forward_auth::{Decision, RefusedAnswer};
use crate::shared::vouched::Vouched;

/// A message for other instances.
#[derive(Debug)]
pub enum DecisionExchange {
    Look {
        /// Identifies the question; equal on all instances.
        key: Vec<u8>,
        /// Receives the decision; `None` if there is none.
        found: oneshot::Sender<Option<Vec<u8>>>,
    },
    Keep {
        /// As in `Look`.
        key: Vec<u8>,
        decision: Vec<u8>,
        /// Remaining lifetime, after which other instances drop it.
        lifetime: Duration,
    },
}

/// The decisions about one kind of question, on other instances.
pub struct Elsewhere {
    /// Distinguishes questions with other settings.
    question: Vec<u8>,
    outlet: Outlet<DecisionExchange>,
}

impl Elsewhere {
    /// Creates the channel for questions to this upstream with these settings.
    pub(super) fn new(upstream: &str, settings: &config::ForwardAuth) -> Self {
        // The index of the upstream belongs to one plan. Time-out and login page are local to an instance.
        let alike = config::ForwardAuth {
            upstream: 0,
            timeout: Duration::ZERO,
            sign_in: None,
            follows_location: false,
            ..settings.clone()
        };
        let question = format!("{upstream}\0{alike:?}").into_bytes();
        Self { question, outlet: Outlet::default() }
    }

    /// Sets the channel by which decisions are shared.
    pub fn share_by(&self, way: Option<InstanceWay<DecisionExchange>>) {
        self.outlet.lead(way);
    }

    /// Asks for a decision; `None` if no other instance is reachable.
    pub(crate) fn look(&self, key: &[u8]) -> Option<oneshot::Receiver<Option<Vec<u8>>>> {
        let (found, receiver) = oneshot::channel();
        self.outlet.send(DecisionExchange::Look { key: self.key(key), found })?;
        Some(receiver)
    }

    /// Shares a decision, if the channel has room. It is valid until then, in milliseconds since 1970.
    pub(crate) fn keep(&self, key: &[u8], decision: &Decision, until_ms: u64, lifetime: Duration) {
        let decision = written(decision, until_ms);
        // Without room, other instances ask the server themselves.
        let _ = self.outlet.send(DecisionExchange::Keep { key: self.key(key), decision, lifetime });
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        // The length keeps question and key apart: without it, two different pairs could give the same bytes.
        [&(self.question.len() as u64).to_be_bytes()[..], &self.question, key].concat()
    }
}

const ADMITTED: u8 = 1;
const REFUSED: u8 = 2;

/// Encodes a decision and the end of its validity.
fn written(decision: &Decision, until_ms: u64) -> Vec<u8> {
    let mut bytes = until_ms.to_be_bytes().to_vec();
    let push = |bytes: &mut Vec<u8>, part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    match decision {
        Decision::Admitted(vouched) => {
            // An authentication server verifies no token, so there are no claims.
            let Vouched { user, request_lines, response_lines, claims: _ } = &**vouched;
            bytes.push(ADMITTED);
            [user.as_bytes(), request_lines, response_lines].iter().for_each(|part| push(&mut bytes, part));
        }
        Decision::Refused(answer) => {
            let RefusedAnswer { status, lines, body } = &**answer;
            bytes.push(REFUSED);
            bytes.extend_from_slice(&status.to_be_bytes());
            [lines, body].iter().for_each(|part| push(&mut bytes, part));
        }
    }
    bytes
}

/// Decodes a decision; `None` if the bytes are not one.
pub(crate) fn read(bytes: &[u8]) -> Option<(Decision, u64)> {
    let (until_ms, rest) = bytes.split_first_chunk()?;
    let (kind, mut rest) = rest.split_first()?;
    let part = |rest: &mut &[u8]| {
        let (length, all) = rest.split_first_chunk()?;
        let (part, after) = all.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
        *rest = after;
        Some(part.to_vec())
    };
    let decision = match *kind {
        ADMITTED => {
            let user = String::from_utf8(part(&mut rest)?).ok()?;
            let (request_lines, response_lines) = (part(&mut rest)?, part(&mut rest)?);
            Decision::Admitted(Arc::new(Vouched {
                user,
                request_lines,
                response_lines,
                ..Vouched::default()
            }))
        }
        REFUSED => {
            let (status, after) = rest.split_first_chunk()?;
            rest = after;
            let status = u16::from_be_bytes(*status);
            let (lines, body) = (part(&mut rest)?, part(&mut rest)?);
            Decision::Refused(Arc::new(RefusedAnswer { status, lines, body }))
        }
        _ => return None,
    };
    // Further bytes mean another format: such a decision is ignored.
    rest.is_empty().then_some((decision, u64::from_be_bytes(*until_ms)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::mpsc::channel;

    use super::*;

    #[test]
    fn decisions_are_read_as_they_were_written() {
        let admitted = Decision::Admitted(Arc::new(Vouched {
            user: "ann".to_owned(),
            request_lines: b"Remote-User: ann\r\n".to_vec(),
            ..Vouched::default()
        }));
        let refused = Decision::Refused(Arc::new(RefusedAnswer {
            status: 403,
            lines: b"Server: a\r\n".to_vec(),
            body: b"no".to_vec(),
        }));
        for decision in [&admitted, &refused] {
            let bytes = written(decision, 1234);
            let (again, until_ms) = read(&bytes).expect("it is one");
            assert_eq!((written(&again, until_ms), until_ms), (bytes.clone(), 1234));
            for end in 0..bytes.len() {
                assert!(read(&bytes[..end]).is_none(), "cut at {end}");
            }
            assert!(read(&[&bytes[..], b"x"].concat()).is_none(), "with something behind");
        }
    }

    #[test]
    fn nothing_is_asked_of_others_that_are_not_reached() {
        let settings = config::ForwardAuth {
            upstream: 3,
            path: "/".to_owned(),
            timeout: Duration::from_secs(5),
            request_headers: None,
            copy_headers: Vec::new(),
            user_header: None,
            sets_cookies: false,
            passes_answer: true,
            sign_in: None,
            follows_location: false,
            cache: None,
        };
        let elsewhere = Elsewhere::new("auth", &settings);
        assert!(elsewhere.look(b"key").is_none(), "there is no way");
        let ((exchanges, mut heard), is_open) = (channel(1), Arc::new(AtomicBool::new(false)));
        elsewhere.share_by(Some(InstanceWay { exchanges, is_open: Arc::clone(&is_open) }));
        assert!(elsewhere.look(b"key").is_none(), "the way is closed");
        is_open.store(true, Ordering::Relaxed);
        assert!(elsewhere.look(b"key").is_some());
        assert!(elsewhere.look(b"other").is_none(), "there is no room");
        let alike = config::ForwardAuth { upstream: 0, timeout: Duration::from_secs(1), ..settings.clone() };
        let expected = Elsewhere::new("auth", &alike).key(b"key");
        assert!(matches!(heard.try_recv(), Ok(DecisionExchange::Look { key, .. }) if key == expected));
        for (upstream, path) in [("auth", "/other"), ("other", "/")] {
            let other = config::ForwardAuth { path: path.to_owned(), ..settings.clone() };
            assert_ne!(Elsewhere::new(upstream, &other).key(b"key"), expected);
        }
    }
}
