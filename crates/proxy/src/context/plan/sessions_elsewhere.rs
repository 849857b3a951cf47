//! Sessions that instances share. Each instance has a table of the sessions that it meets; it asks the others for
//! unknown or doubtful ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use balance::{HashSecret, ServerId, SessionKey, SessionSource, Time};
use config::SharedSecret;
use tokio::sync::oneshot;

use super::elsewhere::{InstanceWay, Outlet};

/// A message about sessions for other instances.
#[derive(Debug)]
pub enum SessionExchange {
    /// Asks for the server of a session.
    Look {
        key: SessionKey,
        /// Receives the server; `None` if no instance knows it.
        found: oneshot::Sender<Option<ServerId>>,
    },
    /// Shares the server of a session.
    Tell {
        key: SessionKey,
        server: ServerId,
        /// How long other instances keep it.
        lifetime: Duration,
        /// Which server wins if others know another one.
        precedence: Precedence,
    },
}

/// Which server wins if two instances know different ones for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precedence {
    /// The one shared before: the session begins, or continues.
    Known,
    /// The one shared now: the session had to leave its server, or a server has begun it.
    New,
}

/// Sharing of an upstream's sessions with other instances.
#[derive(Debug)]
pub struct SharedSessions {
    outlet: Outlet<SessionExchange>,
    ttl: Duration,
    /// In microseconds. Sessions that were not used since are doubtful: another instance may have moved them.
    doubted_at: AtomicU64,
}

/// Divisor: a used session is shared again at most once in this part of its lifetime.
const TOLD_IN_LIFETIME: u32 = 4;

impl SharedSessions {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { outlet: Outlet::default(), ttl, doubted_at: AtomicU64::new(0) }
    }

    /// Sets the channel by which sessions are shared.
    pub fn share_by(&self, way: Option<InstanceWay<SessionExchange>>) {
        self.outlet.lead(way);
    }

    /// Makes all sessions doubtful, so that each is looked up at its next use.
    pub fn doubt(&self, now: Time) {
        self.doubted_at.store(now.as_micros(), Ordering::Relaxed);
    }

    /// The time before which unused sessions are doubtful.
    pub(crate) fn doubted_at(&self) -> Time {
        Time::from_micros(self.doubted_at.load(Ordering::Relaxed))
    }

    /// Whether a used session must be shared again, so that other instances keep it.
    pub(crate) fn is_due(&self, used_at: Time, now: Time) -> bool {
        let part = (self.ttl / TOLD_IN_LIFETIME).as_micros().max(1) as u64;
        // Intervals of equal length need no state: the first use in each one shares the session again.
        used_at.as_micros() / part != now.as_micros() / part
    }

    /// Asks for the server of a session; `None` if no other instance is reachable.
    pub(crate) fn look(&self, key: SessionKey) -> Option<oneshot::Receiver<Option<ServerId>>> {
        let (found, receiver) = oneshot::channel();
        self.outlet.send(SessionExchange::Look { key, found })?;
        Some(receiver)
    }

    /// Shares the server of a session, if the channel has room.
    pub(crate) fn tell(&self, key: SessionKey, server: ServerId, precedence: Precedence) {
        // Outlasts the local lifetime if the session is used just before it would be shared again.
        let lifetime = self.ttl + self.ttl / TOLD_IN_LIFETIME;
        // Without room, other instances choose a server themselves.
        let _ = self.outlet.send(SessionExchange::Tell { key, server, lifetime, precedence });
    }
}

/// Returns the secret that hashes the session keys of an upstream: equal on all instances, and different for each
/// upstream.
pub(super) fn secret_of_all(secret: &SharedSecret, upstream: &str, source: &SessionSource) -> HashSecret {
    // Keyed by the upstream's name, so that equal keys of two upstreams never meet.
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.bytes);
    let tag = hmac::sign(&key, format!("sessions\0{upstream}\0{source:?}").as_bytes());
    let bits = tag.as_ref().first_chunk().map_or(0, |half| u128::from_be_bytes(*half));
    HashSecret::new(bits)
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
        let cookie = |name: &str| SessionSource::Cookie(name.to_owned());
        let one = secret_of_all(&secret(1), "app", &cookie("id"));
        assert!(one == secret_of_all(&secret(1), "app", &cookie("id")));
        for (byte, upstream, name) in [(2, "app", "id"), (1, "other", "id"), (1, "app", "other")] {
            assert!(one != secret_of_all(&secret(byte), upstream, &cookie(name)), "{byte} {upstream} {name}");
        }
    }
}
