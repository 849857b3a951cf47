//! Sessions that instances share. Each instance has those that it meets in its own table; what it does not have, or has in doubt, it
//! asks the others for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use balance::{Secret, ServerId, SessionKey, Source, Time};
use config::SharedSecret;
use tokio::sync::oneshot;

use super::elsewhere::{Outlet, Way};

/// Something about sessions for other instances, or from them.
#[derive(Debug)]
pub enum SessionExchange {
    /// Asks where a session is.
    Look {
        /// The session.
        key: SessionKey,
        /// Where it is told; nothing, if nobody knows.
        found: oneshot::Sender<Option<ServerId>>,
    },
    /// Tells others where a session is.
    Tell {
        /// The session.
        key: SessionKey,
        /// Its server.
        server: ServerId,
        /// How long others know it.
        lifetime: Duration,
        /// What holds if others know it at another server.
        precedence: Precedence,
    },
}

/// What holds if two instances know a session at different servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precedence {
    /// What was told before: a session that begins, or goes on.
    Known,
    /// What is told now: it had to leave its server, or a server has begun it.
    New,
}

/// How the sessions of an upstream are shared.
#[derive(Debug)]
pub struct SharedSessions {
    outlet: Outlet<SessionExchange>,
    ttl: Duration,
    /// Those that were not used since are in doubt, in microseconds: another instance may have moved them.
    doubted_at: AtomicU64,
}

/// In so many parts of its lifetime a session is told anew at most, while it is used.
const TOLD_IN_LIFETIME: u32 = 4;

impl SharedSessions {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { outlet: Outlet::default(), ttl, doubted_at: AtomicU64::new(0) }
    }

    /// From now on sessions are shared this way.
    pub fn share_by(&self, way: Option<Way<SessionExchange>>) {
        self.outlet.lead(way);
    }

    /// Has all sessions looked up when they are used next.
    pub fn doubt(&self, now: Time) {
        self.doubted_at.store(now.as_micros(), Ordering::Relaxed);
    }

    /// Sessions that were not used since are in doubt.
    pub(crate) fn doubted_at(&self) -> Time {
        Time::from_micros(self.doubted_at.load(Ordering::Relaxed))
    }

    /// Whether a session that was used before has to be told anew, so that others do not forget it.
    pub(crate) fn is_due(&self, used_at: Time, now: Time) -> bool {
        let part = (self.ttl / TOLD_IN_LIFETIME).as_micros().max(1) as u64;
        used_at.as_micros() / part != now.as_micros() / part
    }

    /// Asks where a session is; `None` if there is nobody to ask.
    pub(crate) fn look(&self, key: SessionKey) -> Option<oneshot::Receiver<Option<ServerId>>> {
        let (found, receiver) = oneshot::channel();
        self.outlet.send(SessionExchange::Look { key, found })?;
        Some(receiver)
    }

    /// Tells others where a session is, if there is room.
    pub(crate) fn tell(&self, key: SessionKey, server: ServerId, precedence: Precedence) {
        // As long as it lasts here if it is used just before it would be told anew.
        let lifetime = self.ttl + self.ttl / TOLD_IN_LIFETIME;
        // Without room others find their own server for it.
        let _ = self.outlet.send(SessionExchange::Tell { key, server, lifetime, precedence });
    }
}

/// What keys of an upstream's sessions are hashed with: the same on all instances, and another one for each upstream.
pub(super) fn secret_of_all(secret: &SharedSecret, upstream: &str, source: &Source) -> Secret {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.bytes);
    let tag = hmac::sign(&key, format!("sessions\0{upstream}\0{source:?}").as_bytes());
    let bits = tag.as_ref().first_chunk().map_or(0, |half| u128::from_be_bytes(*half));
    Secret::new(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_told_anew_before_others_forget_it() {
        let shared = SharedSessions::new(Duration::from_secs(40));
        let at = |seconds: u64| Time::from_millis(seconds * 1000);
        for (used_at, now, expected) in [(1, 2, false), (1, 9, false), (9, 10, true), (5, 39, true)] {
            assert_eq!(shared.is_due(at(used_at), at(now)), expected, "{used_at} {now}");
        }
    }

    #[test]
    fn sessions_are_called_the_same_on_instances_with_the_same_secret() {
        let secret = |byte| SharedSecret { file: "secret".into(), bytes: vec![byte; 32].into() };
        let cookie = |name: &str| Source::Cookie(name.to_owned());
        let one = secret_of_all(&secret(1), "app", &cookie("id"));
        assert!(one == secret_of_all(&secret(1), "app", &cookie("id")));
        for (byte, upstream, name) in [(2, "app", "id"), (1, "other", "id"), (1, "app", "other")] {
            assert!(one != secret_of_all(&secret(byte), upstream, &cookie(name)), "{byte} {upstream} {name}");
        }
    }
}
