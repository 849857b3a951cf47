//! Parses and prints the keys of sessions, hashes and rate limits, in one syntax: `client/24`, `header:X-Key`,
//! `cookie:id`.

use ::route::{Alone, AuthKeyPart, RateKeyPart, TokenSource};
use balance::{AddressPrefixes, SessionSource};

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{Text, Word};
use crate::option::matching::{is_token, unknown};
use crate::option::value_key::written_value;

/// A part of a request that a key is made of.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Client(AddressPrefixes),
    Header(String),
    Cookie(String),
    Query(String),
    PathParameter(String),
    BasicUser,
    Path,
    Host,
    Listener,
}

/// The behaviour of limits that instances share while they cannot reach each other.
pub(crate) const ALONE: Word<Alone> =
    Word { words: &[("open", Alone::Open), ("local", Alone::Local), ("closed", Alone::Closed)] };

/// The key of a rate limit. `route` is no part: all requests of the route are counted together.
pub(crate) const RATE_KEY: Text<Option<RateKeyPart>> =
    Text { expected: RATE, read: rate_key, print: written_rate_key };

const RATE: &str = "client, client/24, user, header:NAME, cookie:NAME, query:NAME, host, listener, or route for all its requests together";

/// The key of what is counted before anybody knows the user.
pub(crate) const REQUEST_KEY: Text<Option<RateKeyPart>> =
    Text { expected: REQUEST, read: request_key, print: written_rate_key };

const REQUEST: &str = "client, client/24, header:NAME, cookie:NAME, query:NAME, host, listener, or route for all its requests together";

fn request_key(text: &str) -> Result<Option<RateKeyPart>, ValueError> {
    let refuse = |error: ValueError| ValueError { expected: REQUEST, ..error };
    match rate_key(text).map_err(refuse)? {
        Some(RateKeyPart::User) => {
            let fault = ValueFault::Unknown {
                written: text.to_owned(),
                why: "is not known yet when requests are counted",
                nearest: None,
            };
            Err(refuse(ValueError { fault, expected: REQUEST }))
        }
        part => Ok(part),
    }
}

fn rate_key(text: &str) -> Result<Option<RateKeyPart>, ValueError> {
    match text {
        "route" => return Ok(None),
        "user" => return Ok(Some(RateKeyPart::User)),
        _ => {}
    }
    let part = match part(text, RATE)? {
        Part::Client(AddressPrefixes { v4, v6 }) => RateKeyPart::ClientNetwork { bits_v4: v4, bits_v6: v6 },
        Part::Header(name) => RateKeyPart::Header(name),
        Part::Cookie(name) => RateKeyPart::Cookie(name),
        Part::Query(name) => RateKeyPart::Argument(name),
        Part::Host => RateKeyPart::Host,
        Part::Listener => RateKeyPart::Listener,
        Part::PathParameter(_) | Part::BasicUser | Part::Path => return Err(unknown(text, &WORDS, RATE)),
    };
    Ok(Some(part))
}

fn written_rate_key(part: &Option<RateKeyPart>) -> String {
    match part {
        None => "route".to_owned(),
        Some(RateKeyPart::ClientNetwork { bits_v4, bits_v6 }) => {
            written_client(AddressPrefixes { v4: *bits_v4, v6: *bits_v6 })
        }
        Some(RateKeyPart::Header(name)) => format!("header:{name}"),
        Some(RateKeyPart::Cookie(name)) => format!("cookie:{name}"),
        Some(RateKeyPart::Argument(name)) => format!("query:{name}"),
        Some(RateKeyPart::Host) => "host".to_owned(),
        Some(RateKeyPart::Listener) => "listener".to_owned(),
        Some(RateKeyPart::User) => "user".to_owned(),
        Some(RateKeyPart::Value(value)) => written_value(value),
    }
}

/// Where a request has its token.
pub(crate) const TOKEN_SOURCE: Text<TokenSource> =
    Text { expected: TOKEN, read: token_source, print: written_token_source };

const TOKEN: &str = "bearer, header:NAME, cookie:NAME or query:NAME";

fn token_source(text: &str) -> Result<TokenSource, ValueError> {
    if text == "bearer" {
        return Ok(TokenSource::Bearer);
    }
    match part(text, TOKEN)? {
        Part::Header(name) if name.eq_ignore_ascii_case("authorization") => Err(ValueError {
            fault: ValueFault::Unknown {
                written: text.to_owned(),
                why: "has a scheme in front of the token",
                nearest: Some("bearer".to_owned()),
            },
            expected: TOKEN,
        }),
        Part::Header(name) => Ok(TokenSource::Header(name)),
        Part::Cookie(name) => Ok(TokenSource::Cookie(name)),
        Part::Query(name) => Ok(TokenSource::Query(name)),
        _ => Err(unknown(text, &["bearer", "header:NAME", "cookie:NAME", "query:NAME"], TOKEN)),
    }
}

fn written_token_source(source: &TokenSource) -> String {
    match source {
        TokenSource::Bearer => "bearer".to_owned(),
        TokenSource::Header(name) => format!("header:{name}"),
        TokenSource::Cookie(name) => format!("cookie:{name}"),
        TokenSource::Query(name) => format!("query:{name}"),
    }
}

/// A part of the key of a remembered decision about a client.
pub(crate) const AUTH_KEY: Text<AuthKeyPart> =
    Text { expected: AUTH, read: auth_key, print: written_auth_key };

const AUTH: &str = "client, client/24, header:NAME, cookie:NAME, query:NAME, method, host or path";

const AUTH_WORDS: [&str; 7] =
    ["client", "header:NAME", "cookie:NAME", "query:NAME", "method", "host", "path"];

fn auth_key(text: &str) -> Result<AuthKeyPart, ValueError> {
    if text == "method" {
        return Ok(AuthKeyPart::Method);
    }
    Ok(match part(text, AUTH)? {
        Part::Client(AddressPrefixes { v4, v6 }) => AuthKeyPart::ClientNetwork { bits_v4: v4, bits_v6: v6 },
        Part::Header(name) => AuthKeyPart::Header(name),
        Part::Cookie(name) => AuthKeyPart::Cookie(name),
        Part::Query(name) => AuthKeyPart::Query(name),
        Part::Host => AuthKeyPart::Host,
        Part::Path => AuthKeyPart::Path,
        Part::PathParameter(_) | Part::BasicUser | Part::Listener => {
            return Err(unknown(text, &AUTH_WORDS, AUTH));
        }
    })
}

fn written_auth_key(part: &AuthKeyPart) -> String {
    match part {
        AuthKeyPart::ClientNetwork { bits_v4, bits_v6 } => {
            written_client(AddressPrefixes { v4: *bits_v4, v6: *bits_v6 })
        }
        AuthKeyPart::Header(name) => format!("header:{name}"),
        AuthKeyPart::Cookie(name) => format!("cookie:{name}"),
        AuthKeyPart::Query(name) => format!("query:{name}"),
        AuthKeyPart::Method => "method".to_owned(),
        AuthKeyPart::Host => "host".to_owned(),
        AuthKeyPart::Path => "path".to_owned(),
    }
}

/// The key that requests are hashed by.
pub(crate) const HASH_KEY: Text<SessionSource> =
    Text { expected: HASH, read: hash_key, print: written_hash_key };

const HASH: &str =
    "client, client/24, header:NAME, cookie:NAME, query:NAME, path, path-parameter:NAME, host or basic-user";

fn hash_key(text: &str) -> Result<SessionSource, ValueError> {
    Ok(match part(text, HASH)? {
        Part::Client(prefixes) => SessionSource::ClientAddress(prefixes),
        Part::Header(name) => SessionSource::Header(name),
        Part::Cookie(name) => SessionSource::Cookie(name),
        Part::Query(name) => SessionSource::UrlParameter(name),
        Part::PathParameter(name) => SessionSource::PathParameter(name),
        Part::BasicUser => SessionSource::BasicUser,
        Part::Path => SessionSource::Path,
        // HTTP/2's authority reads as a Host field.
        Part::Host => SessionSource::Header("Host".to_owned()),
        Part::Listener => return Err(unknown(text, &WORDS, HASH)),
    })
}

fn written_hash_key(source: &SessionSource) -> String {
    match source {
        SessionSource::Header(name) if name == "Host" => "host".to_owned(),
        SessionSource::Cookie(name) => format!("cookie:{name}"),
        other => written_source(other),
    }
}

/// The key of a sticky session; `None` is a cookie that the proxy inserts.
pub(crate) const STICKY: Text<Option<SessionSource>> =
    Text { expected: SESSION, read: sticky, print: written_sticky };

const SESSION: &str = "cookie, origin-cookie:NAME, client, client/24, basic-user, header:NAME, query:NAME or path-parameter:NAME";

fn sticky(text: &str) -> Result<Option<SessionSource>, ValueError> {
    if text == "cookie" {
        return Ok(None);
    }
    if let Some(name) = text.strip_prefix("origin-cookie:") {
        return named(text, name, SESSION).map(|name| Some(SessionSource::Cookie(name)));
    }
    let source = match part(text, SESSION)? {
        Part::Client(prefixes) => SessionSource::ClientAddress(prefixes),
        Part::Header(name) => SessionSource::Header(name),
        Part::Query(name) => SessionSource::UrlParameter(name),
        Part::PathParameter(name) => SessionSource::PathParameter(name),
        Part::BasicUser => SessionSource::BasicUser,
        Part::Cookie(name) => {
            let nearest = Some(format!("origin-cookie:{name}"));
            let why = "does not say who sets the cookie";
            return Err(ValueError {
                fault: ValueFault::Unknown { written: text.to_owned(), why, nearest },
                expected: SESSION,
            });
        }
        Part::Path | Part::Host | Part::Listener => return Err(unknown(text, &WORDS, SESSION)),
    };
    Ok(Some(source))
}

fn written_sticky(source: &Option<SessionSource>) -> String {
    match source {
        None => "cookie".to_owned(),
        Some(SessionSource::Cookie(name)) => format!("origin-cookie:{name}"),
        Some(other) => written_source(other),
    }
}

fn written_source(source: &SessionSource) -> String {
    match source {
        SessionSource::ClientAddress(prefixes) => written_client(*prefixes),
        SessionSource::BasicUser => "basic-user".to_owned(),
        SessionSource::UrlParameter(name) => format!("query:{name}"),
        SessionSource::PathParameter(name) if name.is_empty() => "path-parameter".to_owned(),
        SessionSource::PathParameter(name) => format!("path-parameter:{name}"),
        SessionSource::Header(name) => format!("header:{name}"),
        SessionSource::Cookie(name) => format!("cookie:{name}"),
        SessionSource::Path => "path".to_owned(),
        SessionSource::Value(name) => format!("${{{name}}}"),
    }
}

const WORDS: [&str; 11] = [
    "client",
    "header:NAME",
    "cookie:NAME",
    "cookie",
    "query:NAME",
    "path-parameter:NAME",
    "basic-user",
    "path",
    "host",
    "listener",
    "route",
];

/// Names of the parts in other proxies.
const OTHERS: [(&str, &str); 7] = [
    ("client-address", "client"),
    ("ip", "client"),
    ("source", "client"),
    ("url-parameter", "query"),
    ("arg", "query"),
    ("uri", "path"),
    ("basic", "basic-user"),
];

fn part(text: &str, expected: &'static str) -> Result<Part, ValueError> {
    if let Some(bits) = text.strip_prefix("client").filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        return client(text, bits, expected).map(Part::Client);
    }
    let (word, name) = match text.split_once(':') {
        Some((word, name)) => (word, Some(name)),
        None => (text, None),
    };
    match (word, name) {
        ("header", Some(name)) => named(text, name, expected).map(Part::Header),
        ("cookie", Some(name)) => named(text, name, expected).map(Part::Cookie),
        ("query", Some(name)) => named(text, name, expected).map(Part::Query),
        ("path-parameter", Some(name)) => named(text, name, expected).map(Part::PathParameter),
        ("path-parameter", None) => Ok(Part::PathParameter(String::new())),
        ("basic-user", None) => Ok(Part::BasicUser),
        ("path", None) => Ok(Part::Path),
        ("host", None) => Ok(Part::Host),
        ("listener", None) => Ok(Part::Listener),
        _ => {
            let other = OTHERS.iter().find(|(known, _)| *known == word);
            let Some((_, ours)) = other else { return Err(unknown(text, &WORDS, expected)) };
            let nearest = Some(name.map_or((*ours).to_owned(), |name| format!("{ours}:{name}")));
            let why = "has another name here";
            Err(ValueError {
                fault: ValueFault::Unknown { written: text.to_owned(), why, nearest },
                expected,
            })
        }
    }
}

/// RFC 9110 §5.6.2 and RFC 6265 §4.1.1; a parameter's name is held to the same, which all sensible ones are.
fn named(text: &str, name: &str, expected: &'static str) -> Result<String, ValueError> {
    if is_token(name) {
        return Ok(name.to_owned());
    }
    let why = "does not end in a name";
    Err(ValueError { fault: ValueFault::Unknown { written: text.to_owned(), why, nearest: None }, expected })
}

/// Parses the prefix lengths of a client key: `/24` is for IPv4 only, `/24/56` for IPv4 and IPv6.
pub(crate) fn client(text: &str, bits: &str, expected: &'static str) -> Result<AddressPrefixes, ValueError> {
    let default = AddressPrefixes::default();
    let why = "is not a prefix length: at most 32 for IPv4 and 128 for IPv6";
    let refuse = || ValueError {
        fault: ValueFault::Unknown { written: text.to_owned(), why, nearest: None },
        expected,
    };
    let number = |text: &str, most: u8| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|bits| digits && *bits <= most).ok_or_else(refuse)
    };
    let Some(bits) = bits.strip_prefix('/') else { return Ok(default) };
    match bits.split_once('/') {
        None => Ok(AddressPrefixes { v4: number(bits, 32)?, ..default }),
        Some((v4, v6)) => Ok(AddressPrefixes { v4: number(v4, 32)?, v6: number(v6, 128)? }),
    }
}

pub(crate) fn written_client(prefixes: AddressPrefixes) -> String {
    let default = AddressPrefixes::default();
    match prefixes {
        prefixes if prefixes == default => "client".to_owned(),
        AddressPrefixes { v4, v6 } if v6 == default.v6 => format!("client/{v4}"),
        AddressPrefixes { v4, v6 } => format!("client/{v4}/{v6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_alike() {
        for text in [
            "client",
            "client/24",
            "client/32/56",
            "header:X-Key",
            "cookie:id",
            "query:page",
            "host",
            "listener",
            "route",
        ] {
            assert_eq!(rate_key(text).map(|key| written_rate_key(&key)).as_deref(), Ok(text));
        }
        for text in [
            "client",
            "client/0",
            "header:X-Key",
            "cookie:id",
            "query:page",
            "path",
            "path-parameter:v",
            "host",
            "basic-user",
        ] {
            assert_eq!(hash_key(text).map(|key| written_hash_key(&key)).as_deref(), Ok(text));
        }
        for text in [
            "cookie",
            "origin-cookie:JSESSIONID",
            "client/24",
            "basic-user",
            "header:X-Key",
            "query:sid",
            "path-parameter:jsessionid",
            "path-parameter",
        ] {
            assert_eq!(sticky(text).map(|source| written_sticky(&source)).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_is_meant_by_what_is_not_read() {
        let meant = |error: ValueError| error.fault.meant();
        for (text, expected) in [
            ("clients", Some("client")),
            ("ip", Some("client")),
            ("url-parameter:sid", Some("query:sid")),
            ("client/33", None),
            ("client/", None),
            ("header:", None),
            ("header:a b", None),
            ("", None),
        ] {
            assert_eq!(rate_key(text).map_err(meant), Err(expected.map(str::to_owned)), "{text}");
        }
        assert_eq!(sticky("cookie:id").map_err(meant), Err(Some("origin-cookie:id".to_owned())));
        assert!(rate_key("path").is_err() && hash_key("listener").is_err() && sticky("host").is_err());
    }
}
