//! Session affinity of an upstream, shared by all workers, and kept across changes of other settings.

use balance::{HashSecret, InsertedCookie, SessionSource, Sessions, Time};
use config::StickySessions;

use super::sessions_elsewhere::{SharedSessions, secret_of_all};
use crate::shared::handover_state::{HandoverPart, HandoverState, Hidden};

/// The secret that signs session cookies, if the configuration has none.
pub(crate) type CookieSecret = [u8; 32];

/// Keeps clients on their servers.
pub enum Stickiness {
    /// A cookie that names the server, and the secret that was generated for it.
    Cookie(InsertedCookie, Option<CookieSecret>),
    Table {
        /// The part of a request that identifies a session.
        source: SessionSource,
        sessions: Sessions,
        /// The cookie whose Set-Cookie in a response begins a session.
        learns: Option<String>,
        /// Set if instances share sessions.
        shared: Option<SharedSessions>,
    },
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let secure = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    if secure.fill(&mut bytes).is_err() {
        // Does not happen on a running system; prevents all zeros.
        bytes.fill_with(|| fastrand::u8(..));
    }
    bytes
}

impl Stickiness {
    /// Builds the affinity of the upstream with this name. Sessions of `previous` continue if they have the same
    /// source.
    pub(crate) fn new(sticky: &StickySessions, upstream: &str, previous: Option<&Self>, now: Time) -> Self {
        // A reload continues sessions as an upgrade does, by the same path.
        let mut known = HandoverState::default();
        previous.map(|previous| previous.hand_over(upstream, &mut known, usize::MAX, now));
        Self::going_on(sticky, upstream, &known, now)
    }

    /// Adds the secrets and at most `room` sessions to the state for another process or plan. Returns how many
    /// sessions.
    pub(crate) fn hand_over(&self, upstream: &str, to: &mut HandoverState, room: usize, now: Time) -> usize {
        match self {
            Self::Cookie(_, Some(secret)) => {
                let secret = Hidden::new(secret.to_vec());
                to.push(HandoverPart::CookieSecret { upstream: upstream.to_owned(), secret });
                0
            }
            Self::Table { source, sessions, .. } => {
                to.push_sessions(upstream, &format!("{source:?}"), sessions, room, now)
            }
            Self::Cookie(_, None) => 0,
        }
    }

    /// Builds the affinity with the state of the previous process. The sessions' timers restart.
    pub(crate) fn going_on(
        sticky: &StickySessions,
        upstream: &str,
        handover_state: &HandoverState,
        now: Time,
    ) -> Self {
        match sticky {
            StickySessions::Cookie(cookie) => {
                // A configured secret is the same in every process. A generated one must be handed over.
                let made = match &cookie.secrets {
                    Some(_) => None,
                    None => Some(handover_state.cookie_secret(upstream).unwrap_or_else(random)),
                };
                let written = cookie.secrets.iter().flat_map(|written| written.secrets.iter());
                let secrets: Vec<&[u8]> =
                    written.map(AsRef::as_ref).chain(made.as_ref().map(<[u8; 32]>::as_slice)).collect();
                let ttl = cookie.ttl.map(|ttl| ttl.as_secs());
                let cookie = InsertedCookie::new(&cookie.name, upstream, ttl, &cookie.attributes, &secrets);
                Self::Cookie(cookie, made)
            }
            StickySessions::Table(table) => {
                let known = handover_state.session_secret(upstream, &format!("{:?}", table.source));
                let of_all =
                    table.shared.as_ref().map(|secret| secret_of_all(secret, upstream, &table.source));
                let random = || HashSecret::new(u128::from_ne_bytes(random()));
                let secret = of_all.or(known).unwrap_or_else(random);
                let sessions = Sessions::new(table.sessions_max, table.ttl, secret);
                // Keys are hashed by the secret: under another one, the old sessions would never be found.
                if known == Some(secret) {
                    handover_state
                        .sessions(upstream)
                        .for_each(|(key, server)| sessions.bind(key, server, now));
                }
                let learns = match &table.source {
                    SessionSource::Cookie(name) => Some(name.clone()),
                    _ => None,
                };
                let shared = table.shared.as_ref().map(|_| SharedSessions::new(table.ttl));
                Self::Table { source: table.source.clone(), sessions, learns, shared }
            }
        }
    }

    /// Returns the table and its channel, if instances share it.
    pub(super) fn shared(&self) -> Option<(&Sessions, &SharedSessions)> {
        match self {
            Self::Table { sessions, shared: Some(shared), .. } => Some((sessions, shared)),
            Self::Table { .. } | Self::Cookie(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use balance::{CookieAttributes, ServerId, SessionFields};
    use config::{StickyCookie, StickyTable};

    use super::*;

    struct Cookies(Vec<u8>);

    impl SessionFields for Cookies {
        fn values<'a>(&'a self, _: &'a str) -> impl Iterator<Item = &'a [u8]> {
            std::iter::once(self.0.as_slice())
        }
    }

    #[test]
    fn sessions_go_on_where_only_their_time_or_number_is_another() {
        let now = Time::from_millis(5);
        let server = ServerId::from_u64(7);
        let cookie = |minutes: u64| {
            StickySessions::Cookie(StickyCookie {
                name: "server".to_owned(),
                ttl: Some(Duration::from_secs(60 * minutes)),
                attributes: CookieAttributes::default(),
                secrets: None,
            })
        };
        let before = Stickiness::new(&cookie(60), "app", None, now);
        let Stickiness::Cookie(inserted, _) = &before else { panic!("it is a cookie") };
        let mut sent = Vec::new();
        inserted.write(&mut sent, server, 1000, false);
        sent.truncate(sent.iter().position(|byte| *byte == b';').unwrap_or(0));
        for (previous, expected) in [(Some(&before), Some(server)), (None, None)] {
            let after = Stickiness::new(&cookie(30), "app", previous, now);
            let Stickiness::Cookie(inserted, _) = &after else { panic!("it is a cookie") };
            let stuck = inserted.read(&Cookies(sent.clone()), 1000);
            assert_eq!(stuck.map(|stuck| stuck.server), expected);
        }
        let table = |name: &str, sessions_max| {
            let source = SessionSource::Header(name.to_owned());
            let ttl = Duration::from_secs(60);
            StickySessions::Table(StickyTable { source, ttl, sessions_max, shared: None })
        };
        let before = Stickiness::new(&table("X-Session", 100), "app", None, now);
        let Stickiness::Table { sessions, .. } = &before else { panic!("it is a table") };
        sessions.bind(sessions.key(b"a"), server, now);
        for (name, expected) in [("X-Session", Some(server)), ("X-Other", None)] {
            let after = Stickiness::new(&table(name, 50), "app", Some(&before), now);
            let Stickiness::Table { sessions, .. } = &after else { panic!("it is a table") };
            assert_eq!(sessions.find(sessions.key(b"a"), now), expected, "{name}");
        }
    }
}
