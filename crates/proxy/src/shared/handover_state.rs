//! State that a process hands over to its successor: ticket keys, cookie secrets, sessions, server health. Never
//! written to a file or a log: only sent over the channel of `handover`, and into the next plan.

use std::fmt;
use std::time::Duration;

use balance::{HashSecret, Inherited, ServerId, SessionKey, Sessions, Time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tls::TicketKeys;

/// Maximum size of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Sessions per part, so that a part fits a message of 16 KiB in base64.
const SESSIONS_OF_A_PART: usize = 400;
/// Key, and server ID.
const SESSION_BYTES: usize = size_of::<u128>() + size_of::<u64>();

#[derive(Debug, Default)]
pub struct HandoverState(Vec<HandoverPart>);

/// A part of the state, small enough for one message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum HandoverPart {
    /// The ticket keys of a listener.
    TicketKeys {
        /// The address in the configuration.
        listener: String,
        /// Newest first.
        keys: Hidden,
    },
    /// The secret that signs an upstream's session cookies, if none is configured.
    CookieSecret { upstream: String, secret: Hidden },
    /// The source of an upstream's session keys, and the secret that hashes them. Precedes the sessions.
    Table {
        upstream: String,
        /// As written in the configuration.
        source: String,
        secret: Hidden,
    },
    /// Sessions of an upstream, the least recently used first.
    Sessions {
        upstream: String,
        /// Keys and server IDs, 24 bytes each.
        sessions: Hidden,
    },
    // Messages between processes keep their words, because either process may be the older one.
    #[serde(rename = "standing")]
    ServerHealth {
        upstream: String,
        server: u64,
        /// As found by health checks.
        is_down: bool,
        /// `None` if it is not ejected.
        ejected_for_micros: Option<u64>,
        /// Ejections in a row, which decide the length of the next one.
        ejections: u32,
    },
    /// The keys of the process for QUIC connections.
    Quic {
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
    /// Adds the sessions used last, at most `room`, and returns how many.
    pub(crate) fn push_sessions(
        &mut self,
        upstream: &str,
        source: &str,
        sessions: &Sessions,
        room: usize,
        now: Time,
    ) -> usize {
        let secret = Hidden(sessions.secret().bits().to_be_bytes().to_vec());
        let (upstream, source) = (upstream.to_owned(), source.to_owned());
        // The table comes first, because its sessions need its secret.
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

    pub fn push(&mut self, part: HandoverPart) {
        self.0.push(part);
    }

    /// In the order in which they were added.
    pub fn parts(&self) -> &[HandoverPart] {
        &self.0
    }

    pub(crate) fn ticket_keys(&self, listener: &str) -> Option<TicketKeys> {
        // Listeners are known by their address, because another configuration may order them otherwise.
        self.0.iter().find_map(|part| match part {
            HandoverPart::TicketKeys { listener: of, keys } if of == listener => {
                Some(TicketKeys::from_bytes(keys.0.clone()))
            }
            _ => None,
        })
    }

    /// The QUIC secret, and the number of the process.
    pub(crate) fn quic<const N: usize>(&self) -> Option<([u8; N], u8)> {
        self.0.iter().find_map(|part| match part {
            HandoverPart::Quic { secret, generation } => {
                // A secret of another length is from another version. Then a new one is made.
                Some((secret.0.as_slice().try_into().ok()?, *generation))
            }
            _ => None,
        })
    }

    pub(crate) fn cookie_secret<const N: usize>(&self, upstream: &str) -> Option<[u8; N]> {
        self.0.iter().find_map(|part| match part {
            HandoverPart::CookieSecret { upstream: of, secret } if of == upstream => {
                secret.0.as_slice().try_into().ok()
            }
            _ => None,
        })
    }

    /// The secret for an upstream's session keys, if sessions still have the same source.
    pub(crate) fn session_secret(&self, upstream: &str, source: &str) -> Option<HashSecret> {
        self.0.iter().find_map(|part| match part {
            HandoverPart::Table { upstream: of, source: by, secret } if of == upstream && by == source => {
                Some(HashSecret::new(u128::from_be_bytes(secret.0.as_slice().try_into().ok()?)))
            }
            _ => None,
        })
    }

    /// The least recently used first.
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
    pub(crate) fn health(upstream: &str, server: ServerId, stands: Inherited) -> Self {
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
        let sessions = Sessions::new(5000, Duration::from_secs(60), HashSecret::new(u128::MAX / 7));
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
