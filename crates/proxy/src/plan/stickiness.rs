//! What keeps clients of an upstream on their servers, for all workers: kept over changes that leave it as it is.

use balance::{InsertedCookie, Secret, Sessions, Source};
use config::StickySessions;

/// What keeps clients on their servers.
pub(crate) enum Stickiness {
    /// A cookie that names the server.
    Cookie(InsertedCookie),
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
        match sticky {
            StickySessions::Cookie(cookie) => {
                let made: [u8; 32] = random();
                let secrets: Vec<&[u8]> = match &cookie.secrets {
                    Some(written) => written.secrets.iter().map(AsRef::as_ref).collect(),
                    None => vec![&made],
                };
                let ttl = cookie.ttl.map(|ttl| ttl.as_secs());
                Self::Cookie(InsertedCookie::new(&cookie.name, upstream, ttl, &cookie.attributes, &secrets))
            }
            StickySessions::Table(table) => Self::Table {
                sessions: Sessions::new(
                    table.sessions_max,
                    table.ttl,
                    Secret::new(u128::from_ne_bytes(random())),
                ),
                learns: match &table.source {
                    Source::Cookie(name) => Some(name.clone()),
                    _ => None,
                },
                source: table.source.clone(),
            },
        }
    }
}
