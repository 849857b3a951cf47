//! The request, as routes and policies see it: borrowed bytes, independent of the parser.
//!
//! Nothing is validated here: the message parser has rejected invalid requests before.

use std::net::IpAddr;

use crate::facts::RequestConditions;

/// The fields of a message, independent of the parser.
pub trait FieldLookup {
    /// Name and value of each field line, in order. Values have no surrounding white space.
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// The values of all field lines with this name, ignoring case (RFC 9110 §5.1).
    fn values<'f>(&'f self, name: &'f [u8]) -> impl Iterator<Item = &'f [u8]> {
        self.lines().filter_map(move |(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    }

    fn value<'f>(&'f self, name: &[u8]) -> Option<&'f [u8]> {
        self.lines().find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    }
}

impl<Name: AsRef<[u8]>, Value: AsRef<[u8]>> FieldLookup for [(Name, Value)] {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }
}

impl<Name: AsRef<[u8]>, Value: AsRef<[u8]>, const N: usize> FieldLookup for [(Name, Value); N] {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.as_slice().lines()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoFields;

impl FieldLookup for NoFields {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        std::iter::empty()
    }
}

/// The parts of a request that routes can depend on.
#[derive(Debug)]
pub struct RequestParts<'a, F: ?Sized> {
    /// The index of the listener that received the request.
    pub listener: usize,
    /// The host without port; an IPv6 address is in brackets. Case and a trailing dot do not matter.
    pub host: &'a [u8],
    /// The path as sent, without the query.
    pub path: &'a [u8],
    /// The query as sent, without the `?`; `None` if there is no `?`.
    pub query: Option<&'a [u8]>,
    /// The method as sent; methods are case-sensitive (RFC 9110 §9.1).
    pub method: &'a [u8],
    /// The client's address: the peer's, or the one that a trusted proxy reports.
    pub client: IpAddr,
    pub fields: &'a F,
    /// Evaluates the conditions of rules ([`RouteRule::when`](crate::RouteRule::when)).
    pub conditions: &'a dyn RequestConditions,
}

impl<F: ?Sized> Clone for RequestParts<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ?Sized> Copy for RequestParts<'_, F> {}

/// The parameters of a query such as `a=1&b=2`. Names and values are not decoded.
///
/// A parameter without `=` has an empty value; empty parameters (`a&&b`) are skipped. Only `&` separates parameters.
pub fn parameters(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let parts = query.split(|&byte| byte == b'&').filter(|part| !part.is_empty());
    parts.map(|part| match part.iter().position(|&byte| byte == b'=') {
        Some(at) => (&part[..at], &part[at + 1..]),
        None => (part, &[][..]),
    })
}

/// The value of a cookie pair, if it has this name.
pub fn cookie_value<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let pair = pair.trim_ascii();
    let (known, value) = pair.split_at(pair.iter().position(|&byte| byte == b'=')?);
    (known.trim_ascii() == name.as_bytes()).then(|| value[1..].trim_ascii())
}

/// The value of the first cookie with this name, as sent (RFC 6265 §5.4). Names are case-sensitive.
pub fn cookie<'f, F: FieldLookup + ?Sized>(fields: &'f F, name: &[u8]) -> Option<&'f [u8]> {
    cookies(fields, name).next()
}

/// The values of all cookies with this name, in order.
pub(crate) fn cookies<'f, F: FieldLookup + ?Sized>(
    fields: &'f F,
    name: &[u8],
) -> impl Iterator<Item = &'f [u8]> {
    // RFC 9113 §8.2.3: over HTTP/2 there may be a line for each cookie.
    let pairs = fields.values(b"cookie").flat_map(|value| value.split(|&byte| byte == b';'));
    pairs.map(<[u8]>::trim_ascii).filter_map(move |pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        (&pair[..at] == name).then_some(&pair[at + 1..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_by_name() {
        let fields = [("Accept", "a"), ("X-Two", "1"), ("x-two", "2")];
        assert_eq!(fields.value(b"accept"), Some(&b"a"[..]));
        assert_eq!(fields.values(b"X-TWO").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(fields.value(b"x"), None);
        assert_eq!(NoFields.value(b"accept"), None);
    }

    #[test]
    fn parameters_of_a_query() {
        let text = |query: &str| -> Vec<String> {
            let of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            parameters(query.as_bytes()).map(|(name, value)| format!("{}:{}", of(name), of(value))).collect()
        };
        assert_eq!(text(""), [""; 0]);
        assert_eq!(text("&&"), [""; 0]);
        assert_eq!(text("a=1&b&c=&=d&a=2=3&&e;f=%26"), ["a:1", "b:", "c:", ":d", "a:2=3", "e;f:%26"]);
    }

    /// RFC 6265 §5.4.
    #[test]
    fn cookies_by_name() {
        let fields = [("Cookie", "a=1; b=2;c=3=4;  d"), ("cookie", "a=5; e=\"q\""), ("Set-Cookie", "f=6")];
        for (name, value) in [
            ("a", Some("1")),
            ("b", Some("2")),
            ("c", Some("3=4")),
            ("e", Some("\"q\"")),
            ("d", None),
            ("A", None),
            ("f", None),
        ] {
            assert_eq!(cookie(&fields, name.as_bytes()), value.map(str::as_bytes), "{name}");
        }
    }
}
