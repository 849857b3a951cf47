//! Request target (RFC 9112 §3.2), decoded: path, query, and the options of every page.

use std::fmt::Display;
use std::time::Duration;

use crate::quantity;
use crate::request::RequestRefusal;

/// Maximum of `?delay=` and of any other wait in a request.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedTarget {
    /// Decoded path; `*` for the asterisk form, empty for CONNECT.
    pub(crate) path: String,
    pub(crate) raw_query: String,
    pub(crate) query: QueryPairs,
    /// Authority of the absolute form; `None` means that Host applies.
    pub(crate) authority: Option<String>,
}

impl ParsedTarget {
    pub(crate) fn parse(method: &str, text: &str) -> Result<Self, RequestRefusal> {
        let origin = |text: &str, authority| {
            let (path, raw_query) = text.split_once('?').unwrap_or((text, ""));
            Ok(Self {
                path: percent_decode(path).ok_or(RequestRefusal::Target)?,
                query: QueryPairs::parse(raw_query).ok_or(RequestRefusal::Target)?,
                raw_query: raw_query.to_owned(),
                authority,
            })
        };
        match method {
            // RFC 9112 §3.2.3: CONNECT has the authority form, and no other method has it.
            "CONNECT" if !text.contains(['/', '?']) && text.contains(':') => {
                let authority = Some(text.to_owned());
                Ok(Self {
                    path: String::new(),
                    raw_query: String::new(),
                    query: QueryPairs::default(),
                    authority,
                })
            }
            "CONNECT" => Err(RequestRefusal::Target),
            // RFC 9112 §3.2.4: only OPTIONS has the asterisk form.
            "OPTIONS" if text == "*" => origin("*", None),
            _ if text.starts_with('/') => origin(text, None),
            // RFC 9112 §3.2.2: a server accepts the absolute form, whose authority overrides Host.
            _ => {
                let rest = strip_prefix_ignore_case(text, "http://")
                    .or_else(|| strip_prefix_ignore_case(text, "https://"))
                    .ok_or(RequestRefusal::Target)?;
                let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                if authority.is_empty() || authority.contains('@') {
                    return Err(RequestRefusal::Target);
                }
                let rooted = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
                origin(&rooted, Some(authority.to_owned()))
            }
        }
    }
}

fn strip_prefix_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (front, rest) = text.split_at_checked(prefix.len())?;
    front.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// `None` if an escape is broken.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            byte => byte,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Decoded, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryPairs {
    pairs: Vec<(String, String)>,
}

/// A path or query with an invalid value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidTarget {
    pub(crate) message: String,
}

impl InvalidTarget {
    pub(crate) fn new(name: &str, value: &str, expected: impl Display) -> Self {
        Self { message: format!("{name}={value:?} is not {expected}") }
    }
}

impl QueryPairs {
    fn parse(raw: &str) -> Option<Self> {
        let decode = |text: &str| percent_decode(&text.replace('+', " "));
        let pairs = raw.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        });
        Some(Self { pairs: pairs.collect::<Option<_>>()? })
    }

    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Whether this name is present with a value other than `0`, `no` and `false`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name).is_some_and(|value| !matches!(value, "0" | "no" | "false"))
    }

    pub(crate) fn size(&self, name: &str, most: u64) -> Result<Option<u64>, InvalidTarget> {
        self.text(name).map(|value| size(name, value, most)).transpose()
    }

    pub(crate) fn wait(&self, name: &str) -> Result<Option<Duration>, InvalidTarget> {
        self.text(name).map(|value| wait(name, value)).transpose()
    }
}

pub(crate) fn size(name: &str, value: &str, most: u64) -> Result<u64, InvalidTarget> {
    let found = quantity::size_bytes(value).filter(|size| *size <= most);
    found.ok_or_else(|| {
        InvalidTarget::new(name, value, format_args!("a size up to {most} bytes (5000, 10k, 64KiB)"))
    })
}

/// Parses a duration, at most [`WAIT_MAX`].
pub(crate) fn wait(name: &str, value: &str) -> Result<Duration, InvalidTarget> {
    let found = quantity::duration(value).filter(|wait| *wait <= WAIT_MAX);
    found.ok_or_else(|| InvalidTarget::new(name, value, "a duration up to 10m (50ms, 1.5s, 2m)"))
}

/// Parses a final status (not 1xx).
pub(crate) fn final_status(name: &str, value: &str) -> Result<u16, InvalidTarget> {
    let found = value.parse().ok().filter(|status| (200..=599).contains(status) && value.len() == 3);
    found.ok_or_else(|| InvalidTarget::new(name, value, "a status from 200 to 599"))
}

/// Options that every page accepts in its query.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PageOptions {
    pub(crate) cache: Option<String>,
    pub(crate) delay: Option<Duration>,
    /// Replaces the page's status.
    pub(crate) status: Option<u16>,
}

impl PageOptions {
    pub(crate) const NAMES: [&'static str; 3] = ["cache", "delay", "status"];

    pub(crate) fn from_query(query: &QueryPairs) -> Result<Self, InvalidTarget> {
        let status = query.text("status").map(|value| final_status("status", value)).transpose()?;
        let cache = query.text("cache").map(cache_control).transpose()?;
        Ok(Self { cache, delay: query.wait("delay")?, status })
    }
}

/// Cache-Control for an option: plain seconds mean `max-age`, other text is the value itself.
fn cache_control(value: &str) -> Result<String, InvalidTarget> {
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(format!("max-age={value}"));
    }
    let sendable = !value.is_empty() && is_field_value(value);
    sendable
        .then(|| value.to_owned())
        .ok_or_else(|| InvalidTarget::new("cache", value, "seconds or a Cache-Control value"))
}

/// Whether text is a valid ASCII field value (RFC 9110 §5.5).
pub(crate) fn is_field_value(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) && value.trim_ascii() == value
}

/// RFC 9110 §5.1.
pub(crate) fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9112_3_2_target_forms() {
        for (method, text, path, query, authority) in [
            ("GET", "/", "/", "", None),
            ("GET", "/a%20b?c=d", "/a b", "c=d", None),
            ("GET", "//x", "//x", "", None),
            ("GET", "http://h:1/a?b", "/a", "b", Some("h:1")),
            ("GET", "HTTP://h", "/", "", Some("h")),
            ("GET", "http://h?q", "/", "q", Some("h")),
            ("OPTIONS", "*", "*", "", None),
            ("CONNECT", "h:443", "", "", Some("h:443")),
        ] {
            let target = ParsedTarget::parse(method, text).expect(text);
            assert_eq!((target.path.as_str(), target.raw_query.as_str()), (path, query), "{text}");
            assert_eq!(target.authority.as_deref(), authority, "{text}");
        }
        for (method, text) in [
            ("GET", "*"),
            ("GET", "a"),
            ("GET", "h:443"),
            ("GET", "ftp://h/"),
            ("GET", "http://"),
            ("GET", "http:///a"),
            ("GET", "http://u@h/"),
            ("GET", "/%"),
            ("GET", "/%4"),
            ("GET", "/%zz"),
            ("GET", "/?a=%"),
            ("CONNECT", "/"),
            ("CONNECT", "h"),
            ("OPTIONS", "**"),
        ] {
            assert_eq!(ParsedTarget::parse(method, text), Err(RequestRefusal::Target), "{method} {text}");
        }
    }

    #[test]
    fn options() {
        let of = |raw| PageOptions::from_query(&QueryPairs::parse(raw).expect("is well-formed"));
        let cache = |value: &str| PageOptions { cache: Some(value.to_owned()), ..PageOptions::default() };
        assert_eq!(of(""), Ok(PageOptions::default()));
        assert_eq!(of("cache=60"), Ok(cache("max-age=60")));
        assert_eq!(of("cache=private,+max-age%3D5"), Ok(cache("private, max-age=5")));
        let all = PageOptions { cache: None, delay: Some(Duration::from_millis(50)), status: Some(503) };
        assert_eq!(of("delay=50ms&status=503"), Ok(all));
        for raw in
            ["cache=", "cache=a%0d%0ab:c", "delay=x", "delay=11m", "status=199", "status=600", "status=0200"]
        {
            assert!(of(raw).is_err(), "{raw}");
        }
    }
}
