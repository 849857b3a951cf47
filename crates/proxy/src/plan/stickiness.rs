//! What keeps clients of an upstream on their servers, for all workers: kept over changes that leave it as it is.

use balance::{InsertedCookie, Secret, Sessions, Source, Time};
use config::StickySessions;

use crate::legacy::Legacy;

/// What signs cookies where the configuration names no secret.
pub(crate) type CookieSecret = [u8; 32];

/// What keeps clients on their servers.
pub(crate) enum Stickiness {
    /// A cookie that names the server, and the secret that was made for it.
    Cookie(InsertedCookie, Option<CookieSecret>),
    /// A table of sessions.
    Table {
        /// What names them.
        source: Source,
        /// Where each is.
        sessions: Sessions,
        /// The cookie that begins them, in responses.
        learns: Option<String>,
    },
}

/// Bytes that nobody can guess.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let secure = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    if secure.fill(&mut bytes).is_err() {
        // Not seen on a system that has started; never all zeros.
        bytes.fill_with(|| fastrand::u8(..));
    }
    bytes
}

impl Stickiness {
    /// As it is configured for the upstream of this name.
    pub(crate) fn new(sticky: &StickySessions, upstream: &str) -> Self {
        Self::going_on(sticky, upstream, &Legacy::default(), Time::START)
    }

    /// The same, going on with what the process before knew. The time of its sessions begins anew.
    pub(crate) fn going_on(sticky: &StickySessions, upstream: &str, legacy: &Legacy, now: Time) -> Self {
        match sticky {
            StickySessions::Cookie(cookie) => {
                let made = match &cookie.secrets {
                    Some(_) => None,
                    None => Some(legacy.cookie_secret(upstream).unwrap_or_else(random)),
                };
                let written = cookie.secrets.iter().flat_map(|written| written.secrets.iter());
                let secrets: Vec<&[u8]> =
                    written.map(AsRef::as_ref).chain(made.as_ref().map(<[u8; 32]>::as_slice)).collect();
                let ttl = cookie.ttl.map(|ttl| ttl.as_secs());
                let cookie = InsertedCookie::new(&cookie.name, upstream, ttl, &cookie.attributes, &secrets);
                Self::Cookie(cookie, made)
            }
            StickySessions::Table(table) => {
                let known = legacy.session_secret(upstream, &format!("{:?}", table.source));
                let secret = known.unwrap_or_else(|| Secret::new(u128::from_ne_bytes(random())));
                let sessions = Sessions::new(table.sessions_max, table.ttl, secret);
                if known.is_some() {
                    legacy.sessions(upstream).for_each(|(key, server)| sessions.bind(key, server, now));
                }
                let learns = match &table.source {
                    Source::Cookie(name) => Some(name.clone()),
                    _ => None,
                };
                Self::Table { source: table.source.clone(), sessions, learns }
            }
        }
    }
}
