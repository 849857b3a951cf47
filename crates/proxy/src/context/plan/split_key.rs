//! Keeps a client on its side of a split: by a number in a signed cookie, or by a part of its requests.
//!
//! Nothing is stored: the side follows from the number and the weights. So each worker, process and proxy with the same
//! secret finds the same side, and as few clients as possible move when weights change.

use balance::{InsertedCookie, ServerId, SessionFields, SessionParts, SessionSource};
use route::SplitChoice;

use super::stickiness::CookieSecret;

/// Distinguishes these cookies from session cookies with the same secret. Equal for all splits.
const CONTEXT: &str = "a split of a route";

pub(crate) enum SplitKey {
    Cookie(InsertedCookie),
    Source(SessionSource),
}

/// Facts about a request besides its parts.
pub(crate) struct SplitInput {
    pub(crate) unix_seconds: u64,
    pub(crate) is_https: bool,
}

impl SplitKey {
    /// Creates the key. `secret` signs cookies if the configuration has no secret.
    pub(crate) fn new(settings: &config::SplitKey, secret: &CookieSecret) -> Self {
        match settings {
            config::SplitKey::Source(source) => Self::Source(source.clone()),
            config::SplitKey::Cookie(cookie) => {
                let written = cookie.secrets.iter().flat_map(|written| written.secrets.iter());
                let mut secrets: Vec<&[u8]> = written.map(AsRef::as_ref).collect();
                if secrets.is_empty() {
                    secrets.push(secret);
                }
                let ttl = cookie.ttl.map(|ttl| ttl.as_secs());
                Self::Cookie(InsertedCookie::new(&cookie.name, CONTEXT, ttl, &cookie.attributes, &secrets))
            }
        }
    }

    /// Returns the upstream for a request. A client without a number gets one: `set_cookie` receives the line for its
    /// response.
    pub(crate) fn choose(
        &self,
        split: SplitChoice<'_>,
        parts: &SessionParts<'_, impl SessionFields>,
        SplitInput { unix_seconds, is_https }: SplitInput,
        set_cookie: &mut Vec<u8>,
    ) -> usize {
        let cookie = match self {
            Self::Source(source) => {
                let side = source.session(parts, |key| split.of_key(key));
                // A request without the key goes to any side.
                return side.unwrap_or_else(|| split.draw(fastrand::u64(..)));
            }
            Self::Cookie(cookie) => cookie,
        };
        let known = cookie.read(parts.fields, unix_seconds);
        // The number is in the place of a session cookie's server.
        let number = known.map_or_else(|| fastrand::u64(..), |known| known.server.as_u64());
        if known.is_none_or(|known| known.is_to_be_renewed) {
            set_cookie.extend_from_slice(b"Set-Cookie: ");
            cookie.write(set_cookie, ServerId::from_u64(number), unix_seconds, is_https);
            set_cookie.extend_from_slice(b"\r\n");
        }
        split.of_key(&number.to_be_bytes())
    }
}
