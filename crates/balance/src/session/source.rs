//! Session keys: where a request carries the value that identifies its session, or that selects its server by hash.
//!
//! Values are compared byte by byte, never interpreted: two spellings are two sessions. Only a user name is copied,
//! because it is inside Base64.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::policy::AddressPrefixes;
use crate::session::table::SessionKey;

/// Where a session key comes from. Field names ignore case; cookie and parameter names do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionSource {
    ClientAddress(AddressPrefixes),
    /// The user name of basic authentication (RFC 7617).
    BasicUser,
    /// A query parameter: `?NAME=…&…`.
    UrlParameter(String),
    /// A path parameter: `/path;NAME=…`; with an empty name, everything after the last `;`.
    PathParameter(String),
    Header(String),
    /// The value of a cookie that a server sets: see `learnt_cookie`.
    Cookie(String),
    /// The path as sent; for hashing rather than for sessions.
    Path,
    /// A value that the caller computes, by its name.
    Value(String),
}

/// The fields of a message by name.
pub trait SessionFields {
    /// The values of all fields with this name, ignoring case, in order.
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]>;

    /// Passes the value of this name ([`SessionSource::Value`]) to `then`, unless it is absent.
    fn value(&self, name: &str, then: &mut dyn FnMut(&[u8])) {
        let _ = (name, then);
    }
}

/// The parts of a request that may contain a session key.
#[derive(Debug, Clone, Copy)]
pub struct SessionParts<'a, F> {
    pub client: IpAddr,
    /// The path, without the query.
    pub path: &'a [u8],
    /// The query, without `?`.
    pub query: Option<&'a [u8]>,
    pub fields: &'a F,
}

/// The longest credentials that are read, in base64.
// Credentials are decoded on the stack, on the path of a request.
const CREDENTIALS_BYTES_MAX: usize = 1024;

impl SessionSource {
    /// The session key of a request, if it has one. `key` converts the bytes.
    pub fn session<F: SessionFields, K>(
        &self,
        parts: &SessionParts<'_, F>,
        key: impl Fn(&[u8]) -> K,
    ) -> Option<K> {
        let found = match self {
            SessionSource::ClientAddress(prefixes) => return Some(key(&prefixes.client(parts.client))),
            SessionSource::BasicUser => {
                return parts.fields.values("Authorization").find_map(|value| basic_user(value, &key));
            }
            SessionSource::UrlParameter(name) => parameter(parts.query?, b'&', name.as_bytes()),
            SessionSource::PathParameter(name) if name.is_empty() => {
                let semicolon = parts.path.iter().rposition(|&byte| byte == b';')?;
                Some(&parts.path[semicolon + 1..])
            }
            SessionSource::PathParameter(name) => path_parameter(parts.path, name.as_bytes()),
            // Only the first one: joining several would need a copy.
            SessionSource::Header(name) => parts.fields.values(name).next().map(<[u8]>::trim_ascii),
            // RFC 9113 §8.2.3: HTTP/2 may split the field.
            SessionSource::Cookie(name) => {
                parts.fields.values("Cookie").find_map(|value| cookie(value, name.as_bytes()))
            }
            SessionSource::Path => Some(parts.path),
            SessionSource::Value(name) => {
                let mut found = None;
                parts.fields.value(name, &mut |value| found = (!value.is_empty()).then(|| key(value)));
                return found;
            }
        }?;
        // All clients without a value would share one session.
        (!found.is_empty()).then(|| key(found))
    }
}

/// The key of a session that a response starts, if it sets the cookie with this name.
pub fn learnt_cookie(
    fields: &impl SessionFields,
    name: &str,
    key: impl Fn(&[u8]) -> SessionKey,
) -> Option<SessionKey> {
    let set = |value| {
        // RFC 6265 §5.2: the pair ends at the first `;`.
        let pair = slice_until(value, b';');
        let (found, value) = split_once(pair, b'=')?;
        let value = unquoted(value.trim_ascii());
        (found.trim_ascii() == name.as_bytes() && !value.is_empty()).then_some(value)
    };
    // The last one counts, because clients overwrite (RFC 6265 §5.3).
    fields.values("Set-Cookie").filter_map(set).last().map(key)
}

/// The value of a cookie in a Cookie field (RFC 6265 §4.2.1).
pub(crate) fn cookie<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    parameter(field, b';', name).map(unquoted)
}

/// The value of the first `name=value` in a list with this separator.
fn parameter<'a>(list: &'a [u8], separator: u8, name: &[u8]) -> Option<&'a [u8]> {
    list.split(|&byte| byte == separator).find_map(|pair| {
        let (found, value) = split_once(pair, b'=')?;
        (found.trim_ascii() == name).then(|| value.trim_ascii())
    })
}

/// The value of a parameter of any segment (RFC 3986 §3.3).
fn path_parameter<'a>(path: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    path.split(|&byte| byte == b'/').find_map(|segment| {
        let (_, parameters) = split_once(segment, b';')?;
        parameter(parameters, b';', name)
    })
}

/// The key of the user of `Basic` credentials (RFC 7617 §2).
fn basic_user<K>(value: &[u8], key: impl Fn(&[u8]) -> K) -> Option<K> {
    /// Some clients leave the padding out.
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let (scheme, credentials) = split_once(value.trim_ascii(), b' ')?;
    let credentials = credentials.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"Basic") || credentials.len() > CREDENTIALS_BYTES_MAX {
        return None;
    }
    let mut decoded = [0; CREDENTIALS_BYTES_MAX];
    let length = STANDARD
        .decode_slice(credentials, &mut decoded)
        .or_else(|_| LENIENT.decode_slice(credentials, &mut decoded))
        .ok()?;
    // RFC 7617 §2: a user name contains no colon. The password must not change the session.
    let (user, _password) = split_once(&decoded[..length], b':')?;
    (!user.is_empty()).then(|| key(user))
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let found = memchr::memchr(at, bytes)?;
    Some((&bytes[..found], &bytes[found + 1..]))
}

fn slice_until(bytes: &[u8], end: u8) -> &[u8] {
    &bytes[..memchr::memchr(end, bytes).unwrap_or(bytes.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashSecret;

    struct List(&'static [(&'static str, &'static str)]);

    impl SessionFields for List {
        fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
            let is_named = move |field: &&(&str, &str)| field.0.eq_ignore_ascii_case(name);
            self.0.iter().filter(is_named).map(|(_, value)| value.as_bytes())
        }
    }

    fn key(bytes: &[u8]) -> SessionKey {
        SessionKey::from_name(bytes, HashSecret::default())
    }

    #[test]
    fn sessions_are_found_where_requests_say() {
        let name = |name: &str| name.to_owned();
        for (source, target, fields, expected) in [
            (SessionSource::UrlParameter(name("sid")), "/a?x=1&sid=42&sid=43", &[][..], Some("42")),
            (SessionSource::UrlParameter(name("sid")), "/a?asid=42", &[], None),
            (SessionSource::UrlParameter(name("sid")), "/a?sid=", &[], None),
            (SessionSource::UrlParameter(name("sid")), "/sid=42", &[], None),
            (SessionSource::PathParameter(name("jsessionid")), "/a;v=2;jsessionid=42/b?c", &[], Some("42")),
            (SessionSource::PathParameter(name("jsessionid")), "/a/jsessionid=42", &[], None),
            (SessionSource::PathParameter(name("")), "/a;1/b;42?c;43", &[], Some("42")),
            (SessionSource::PathParameter(name("")), "/a/b", &[], None),
            (
                SessionSource::Header(name("x-session")),
                "/",
                &[("X-Session", " 42 "), ("X-Session", "43")],
                Some("42"),
            ),
            (SessionSource::Header(name("x-session")), "/", &[("X-Session", "")], None),
            (SessionSource::Cookie(name("id")), "/", &[("Cookie", "a=1; id=42; b=2")], Some("42")),
            (
                SessionSource::Cookie(name("id")),
                "/",
                &[("Cookie", "a=1"), ("cookie", "id=\"42\"")],
                Some("42"),
            ),
            (SessionSource::Cookie(name("id")), "/", &[("Cookie", "ID=42; xid=42; id")], None),
            (
                SessionSource::BasicUser,
                "/",
                &[("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")],
                Some("Aladdin"),
            ),
            (
                SessionSource::BasicUser,
                "/",
                &[("Authorization", "basic  QWxhZGRpbjpvcGVuIHNlc2FtZQ")],
                Some("Aladdin"),
            ),
            (SessionSource::BasicUser, "/", &[("Authorization", "Basic QWxhZGRpbg==")], None),
            (SessionSource::Path, "/a%20b?c", &[], Some("/a%20b")),
            (SessionSource::BasicUser, "/", &[("Authorization", "Basic ?")], None),
            (
                SessionSource::BasicUser,
                "/",
                &[("Authorization", "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==")],
                None,
            ),
        ] {
            let (path, query) =
                target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
            let parts = SessionParts {
                client: [192, 0, 2, 1].into(),
                path: path.as_bytes(),
                query: query.map(str::as_bytes),
                fields: &List(fields),
            };
            let expected = expected.map(|value: &str| key(value.as_bytes()));
            assert_eq!(source.session(&parts, key), expected, "{source:?} of {target} {fields:?}");
        }
    }

    #[test]
    fn too_long_credentials_name_no_user() {
        let long = ["Basic ", &"QUFB".repeat(CREDENTIALS_BYTES_MAX)].concat();
        assert_eq!(basic_user(long.as_bytes(), key), None);
        let longest = ["Basic ", &"OkFB".repeat(CREDENTIALS_BYTES_MAX / 4)].concat();
        assert_eq!(basic_user(longest.as_bytes(), key), None, "an empty user");
    }

    #[test]
    fn a_cookie_that_a_server_sets_is_learnt() {
        for (fields, expected) in [
            (&[("Set-Cookie", "id=42; Path=/; HttpOnly")][..], Some("42")),
            (&[("set-cookie", "a=1"), ("Set-Cookie", "id=\"42\"")], Some("42")),
            (&[("Set-Cookie", "id=41"), ("Set-Cookie", "id=42")], Some("42")),
            (&[("Set-Cookie", "id=; Max-Age=0")], None),
            (&[("Set-Cookie", "a=1; id=42")], None),
            (&[("Cookie", "id=42")], None),
        ] {
            let expected = expected.map(|value: &str| key(value.as_bytes()));
            assert_eq!(learnt_cookie(&List(fields), "id", key), expected, "{fields:?}");
        }
    }
}
