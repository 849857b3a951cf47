//! State that a process hands over to its successor: ticket keys, cookie secrets, sessions, server health. Never
//! written to a file or a log: it goes over the channel of `handover`, and into the next plan.

use std::fmt;
use std::time::Duration;

use balance::{Inherited, Secret, ServerId, SessionKey, Sessions, Time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tls::TicketKeys;

use crate::context::plan::{Plan, SPLITS, Stickiness};

/// The maximum size of a message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Sessions that are handed over, of all upstreams together: those used last. 6 MiB.
const SESSIONS_MAX: usize = 256 * 1024;
/// Sessions of a part, which fits a message of 16 KiB in base64.
const SESSIONS_OF_A_PART: usize = 400;
/// The key, and the id of the server.
const SESSION_BYTES: usize = size_of::<u128>() + size_of::<u64>();

/// All state to hand over, as a list of parts.
#[derive(Debug, Default)]
pub struct HandoverState(Vec<HandoverPart>);

/// A part of the state, small enough for one message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum HandoverPart {
    /// The ticket keys of the listener with this configured address.
    TicketKeys {
        /// The address in the configuration.
        listener: String,
        /// The keys, newest first.
        keys: Hidden,
    },
    /// The secret that signs an upstream's session cookies, if none is configured.
    CookieSecret {
        /// The name of the upstream.
        upstream: String,
        /// The secret.
        secret: Hidden,
    },
    /// How an upstream's sessions are named, and the secret that hashes their keys. Comes before the sessions.
    Table {
        /// The name of the upstream.
        upstream: String,
        /// What names a session, as the configuration writes it.
        source: String,
        /// The secret of the keys.
        secret: Hidden,
    },
    /// Sessions of an upstream, the least recently used first.
    Sessions {
        /// The name of the upstream.
        upstream: String,
        /// Keys and server ids, 24 bytes each.
        sessions: Hidden,
    },
    /// The health of a server.
    #[serde(rename = "standing")]
    ServerHealth {
        /// The name of the upstream.
        upstream: String,
        /// The id of the server.
        server: u64,
        /// Whether checks found the server down.
        is_down: bool,
        /// How long the server stays ejected, if it is.
        ejected_for_micros: Option<u64>,
        /// Ejections in a row, which decide the length of the next one.
        ejections: u32,
    },
    /// What connections of QUIC know of the process.
    Quic {
        /// What keys are derived from.
        secret: Hidden,
        /// The number of the process that hands over.
        generation: u8,
    },
    /// A part that only newer versions know.
    #[serde(other)]
    Unknown,
}

/// Secret bytes, which debug output does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(Vec<u8>);

impl Hidden {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hidden")
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(|_| serde::de::Error::custom("it is not base64"))
    }
}

impl HandoverState {
    /// Collects the state of a plan.
    pub fn of(plan: &Plan, now: Time) -> Self {
        let mut handover_state = Self::default();
        for (listener, configured) in plan.listeners.iter().zip(&plan.config.listeners) {
            if let Some(tls) = &listener.tls {
                let keys = Hidden(tls.ticket_keys().as_bytes().to_vec());
                handover_state
                    .0
                    .push(HandoverPart::TicketKeys { listener: configured.address.to_string(), keys });
            }
        }
        let secret = Hidden(plan.split_secret.to_vec());
        handover_state.0.push(HandoverPart::CookieSecret { upstream: SPLITS.to_owned(), secret });
        let secret = Hidden(plan.quic.secret.to_vec());
        handover_state.0.push(HandoverPart::Quic { secret, generation: plan.quic.generation });
        let mut room = SESSIONS_MAX;
        for upstream in &plan.upstreams {
            let name = &upstream.config.name;
            if let Some(stickiness) = &upstream.stickiness {
                room -= handover_state.push_stickiness(name, stickiness, room, now);
            }
            for member in upstream.fleet.members() {
                let stands = member.health.handover(now);
                if stands != Inherited::default() {
                    handover_state.0.push(HandoverPart::health(name, member.id, stands));
                }
            }
        }
        handover_state
    }

    /// The sessions of one upstream, for a table with other settings.
    pub(crate) fn of_sessions(upstream: &str, stickiness: &Stickiness, now: Time) -> Self {
        let mut handover_state = Self::default();
        handover_state.push_stickiness(upstream, stickiness, usize::MAX, now);
        handover_state
    }

    /// Adds what keeps an upstream's clients on their servers, and returns of how many sessions.
    fn push_stickiness(&mut self, upstream: &str, stickiness: &Stickiness, room: usize, now: Time) -> usize {
        match stickiness {
            Stickiness::Cookie(_, Some(secret)) => {
                let secret = Hidden(secret.to_vec());
                self.0.push(HandoverPart::CookieSecret { upstream: upstream.to_owned(), secret });
                0
            }
            Stickiness::Table { source, sessions, .. } => {
                self.push_sessions(upstream, &format!("{source:?}"), sessions, room, now)
            }
            Stickiness::Cookie(_, None) => 0,
        }
    }

    /// Adds the sessions used last, `room` at most, and returns how many.
    fn push_sessions(
        &mut self,
        upstream: &str,
        source: &str,
        sessions: &Sessions,
        room: usize,
        now: Time,
    ) -> usize {
        let secret = Hidden(sessions.secret().bits().to_be_bytes().to_vec());
        let (upstream, source) = (upstream.to_owned(), source.to_owned());
        self.0.push(HandoverPart::Table { upstream: upstream.clone(), source, secret });
        let latest = sessions.latest(room, now);
        for some in latest.chunks(SESSIONS_OF_A_PART) {
            let mut bytes = Vec::with_capacity(some.len() * SESSION_BYTES);
            for (key, server) in some {
                bytes.extend_from_slice(&key.as_u128().to_be_bytes());
                bytes.extend_from_slice(&server.as_u64().to_be_bytes());
            }
            self.0.push(HandoverPart::Sessions { upstream: upstream.clone(), sessions: Hidden(bytes) });
        }
        latest.len()
    }

    /// Adds a part.
    pub fn push(&mut self, part: HandoverPart) {
        self.0.push(part);
    }

    /// All parts, in the order in which they were added.
    pub fn parts(&self) -> &[HandoverPart] {
        &self.0
    }

    /// The ticket keys of a listener.
    pub(crate) fn ticket_keys(&self, listener: &str) -> Option<TicketKeys> {
        self.0.iter().find_map(|part| match part {
            HandoverPart::TicketKeys { listener: of, keys } if of == listener => {
                Some(TicketKeys::from_bytes(keys.0.clone()))
            }
            _ => None,
        })
    }

    /// The secret of QUIC, and the number of the process.
    pub(crate) fn quic<const N: usize>(&self) -> Option<([u8; N], u8)> {
        self.0.iter().find_map(|part| match part {
            HandoverPart::Quic { secret, generation } => {
                Some((secret.0.as_slice().try_into().ok()?, *generation))
            }
            _ => None,
        })
    }

    /// The cookie secret of an upstream.
    pub(crate) fn cookie_secret<const N: usize>(&self, upstream: &str) -> Option<[u8; N]> {
        self.0.iter().find_map(|part| match part {
            HandoverPart::CookieSecret { upstream: of, secret } if of == upstream => {
                secret.0.as_slice().try_into().ok()
            }
            _ => None,
        })
    }

    /// The secret for an upstream's session keys, if sessions are still named by the same source.
    pub(crate) fn session_secret(&self, upstream: &str, source: &str) -> Option<Secret> {
        self.0.iter().find_map(|part| match part {
            HandoverPart::Table { upstream: of, source: by, secret } if of == upstream && by == source => {
                Some(Secret::new(u128::from_be_bytes(secret.0.as_slice().try_into().ok()?)))
            }
            _ => None,
        })
    }

    /// The sessions of an upstream, the least recently used first.
    pub(crate) fn sessions(&self, upstream: &str) -> impl Iterator<Item = (SessionKey, ServerId)> {
        let of_upstream = self.0.iter().filter_map(move |part| match part {
            HandoverPart::Sessions { upstream: of, sessions } if of == upstream => Some(sessions),
            _ => None,
        });
        of_upstream.flat_map(|sessions| {
            sessions.0.as_chunks::<SESSION_BYTES>().0.iter().filter_map(|session| {
                let (key, server) = session.split_first_chunk()?;
                let server = u64::from_be_bytes(server.try_into().ok()?);
                Some((SessionKey::from_u128(u128::from_be_bytes(*key)), ServerId::from_u64(server)))
            })
        })
    }

    /// The health of a server.
    pub fn health(&self, upstream: &str, id: ServerId) -> Option<Inherited> {
        self.0.iter().find_map(|part| match part {
            &HandoverPart::ServerHealth {
                upstream: ref of,
                server,
                is_down,
                ejected_for_micros,
                ejections,
            } if of == upstream && server == id.as_u64() => {
                let ejected_for = ejected_for_micros.map(Duration::from_micros);
                Some(Inherited { is_down, ejected_for, ejections })
            }
            _ => None,
        })
    }
}

impl HandoverPart {
    fn health(upstream: &str, server: ServerId, stands: Inherited) -> Self {
        let Inherited { is_down, ejected_for, ejections } = stands;
        Self::ServerHealth {
            upstream: upstream.to_owned(),
            server: server.as_u64(),
            is_down,
            ejected_for_micros: ejected_for.map(|left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX)),
            ejections,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_arrive_as_they_were_up_to_a_limit() {
        let now = Time::from_millis(10);
        let sessions = Sessions::new(5000, Duration::from_secs(60), Secret::new(u128::MAX / 7));
        for number in 0..1000u64 {
            let key = sessions.key(&number.to_be_bytes());
            sessions.bind(key, ServerId::from_u64(number), Time::from_micros(number));
        }
        let mut handover_state = HandoverState::default();
        assert_eq!(handover_state.push_sessions("app", "Path", &sessions, 900, now), 900);
        assert_eq!(handover_state.push_sessions("other", "Path", &sessions, 1, now), 1);
        assert_eq!(handover_state.parts().len(), 1 + 3 + 1 + 1);
        for part in handover_state.parts() {
            let text = serde_json::to_string(part).expect("it is JSON");
            assert!(text.len() < 16 * 1024, "{}", text.len());
        }
        let found: Vec<_> = handover_state.sessions("app").collect();
        assert_eq!(found, sessions.latest(900, now));
        assert_eq!(handover_state.session_secret("app", "Path"), Some(sessions.secret()));
        assert_eq!(handover_state.session_secret("app", "BasicUser"), None, "another source names others");
        assert_eq!(handover_state.sessions("third").count(), 0);
    }

    #[test]
    fn nothing_of_it_is_shown() {
        let secret = Hidden(b"secret".to_vec());
        let part = HandoverPart::CookieSecret { upstream: "app".to_owned(), secret };
        assert_eq!(format!("{part:?}"), r#"CookieSecret { upstream: "app", secret: Hidden }"#);
    }
}
