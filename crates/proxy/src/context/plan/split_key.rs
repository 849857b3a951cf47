//! What keeps a client on its side of a split: a number in a signed cookie, or a part of its requests.
//!
//! Nothing is remembered: the side follows from the number and the weights, so that each worker, process and proxy with
//! the same secret finds the same one, and as few clients as possible move when weights change.

use balance::{InsertedCookie, Parts, ServerId, Source};
use route::Split;

use super::stickiness::CookieSecret;
use crate::context::seen::Fields;

/// Distinguishes these cookies from those of sessions with the same secret. The same for all splits.
const CONTEXT: &str = "a split of a route";

/// The compiled key of a split.
pub(crate) enum SplitKey {
    Cookie(InsertedCookie),
    Source(Source),
}

/// What is known of a request besides its parts.
pub(crate) struct Asking {
    pub(crate) unix_seconds: u64,
    pub(crate) is_https: bool,
}

impl SplitKey {
    /// Cookies are signed with `secret`, if the configuration has none.
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

    /// The upstream for a request. A client without a number gets one: the line for its response goes to `set_cookie`.
    pub(crate) fn choose(
        &self,
        split: &Split,
        parts: &Parts<'_, Fields<'_>>,
        Asking { unix_seconds, is_https }: Asking,
        set_cookie: &mut Vec<u8>,
    ) -> usize {
        let cookie = match self {
            Self::Source(source) => {
                let side = source.session(parts, |key| split.of_key(key));
                return side.unwrap_or_else(|| split.draw(fastrand::u64(..)));
            }
            Self::Cookie(cookie) => cookie,
        };
        let known = cookie.read(parts.fields, unix_seconds);
        // It stands where that of a session has its server.
        let number = known.map_or_else(|| fastrand::u64(..), |known| known.server.as_u64());
        if known.is_none_or(|known| known.is_to_be_renewed) {
            set_cookie.extend_from_slice(b"Set-Cookie: ");
            cookie.write(set_cookie, ServerId::from_u64(number), unix_seconds, is_https);
            set_cookie.extend_from_slice(b"\r\n");
        }
        split.of_key(&number.to_be_bytes())
    }
}
