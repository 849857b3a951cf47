//! The token (JWT) of a request, and its claims before verification.

use std::cell::RefCell;

use jwt::{Claims, Refusal};

use crate::form::FormReading;
use crate::request::{FieldLookup, RequestParts, cookie_value, parameters};
use crate::rule::ValueRule;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TokenSource {
    /// `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
    #[default]
    Bearer,
    Header(String),
    Cookie(String),
    /// A query parameter with this name (RFC 6750 §2.3): browsers cannot set fields of WebSocket handshakes.
    Query(String),
}

impl TokenSource {
    /// The name of the query parameter, if the source is one.
    pub fn parameter(&self) -> Option<&str> {
        if let Self::Query(name) = self { Some(name) } else { None }
    }

    /// The token of a request.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn find<'f, F: FieldLookup + ?Sized>(
        &'f self,
        fields: &'f F,
        query: Option<&'f [u8]>,
    ) -> Result<&'f [u8], Refusal> {
        match self {
            Self::Bearer => {
                const SCHEME: &[u8] = b"bearer";
                let value = only(fields.values(b"authorization"))?;
                // RFC 9110 §11.1: the scheme in any case, then spaces. Another scheme is not for this proxy.
                let (scheme, rest) = value.split_at_checked(SCHEME.len()).ok_or(Refusal::Missing)?;
                let token = rest.trim_ascii_start();
                if !scheme.eq_ignore_ascii_case(SCHEME) || (token.len() == rest.len() && !rest.is_empty()) {
                    return Err(Refusal::Missing);
                }
                Ok(token)
            }
            Self::Header(name) => only(fields.values(name.as_bytes())),
            Self::Cookie(name) => only(cookies(fields).filter_map(|pair| cookie_value(pair, name))),
            Self::Query(name) => only(
                parameters(query.unwrap_or_default())
                    .filter_map(|(written, value)| is_parameter(written, name).then_some(value)),
            ),
        }
    }
}

/// Whether an encoded name in a query is this one.
fn is_parameter(written: &[u8], name: &str) -> bool {
    written == name.as_bytes() || FormReading::from_written(written).eq(name.bytes())
}

/// Appends a path and query without the parameters with this name.
pub fn without_parameter(path_and_query: &[u8], name: &str, out: &mut Vec<u8>) {
    let mark = path_and_query.iter().position(|&byte| byte == b'?').unwrap_or(path_and_query.len());
    out.extend_from_slice(&path_and_query[..mark]);
    let mut separator = b'?';
    for part in path_and_query.get(mark + 1..).unwrap_or_default().split(|&byte| byte == b'&') {
        let written = part.split(|&byte| byte == b'=').next().unwrap_or_default();
        if !part.is_empty() && !is_parameter(written, name) {
            out.push(separator);
            out.extend_from_slice(part);
            separator = b'&';
        }
    }
}

fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<&'a [u8], Refusal> {
    match (values.next(), values.next()) {
        (None, _) => Err(Refusal::Missing),
        (Some(value), None) => Ok(value),
        // The server might use the other one.
        (Some(_), Some(_)) => Err(Refusal::Repeated),
    }
}

/// RFC 6265 §4.2.1: pairs separated by semicolons. HTTP/2 may send each on a separate line (RFC 9113 §8.2.3).
fn cookies<F: FieldLookup + ?Sized>(fields: &F) -> impl Iterator<Item = &[u8]> {
    fields.values(b"cookie").flat_map(|line| line.split(|&byte| byte == b';'))
}

/// Conditions on the claims of a token. The chosen route verifies the token afterwards, so a forged one leads to a
/// route that rejects it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimRules {
    /// The source of the token: that of the route's `jwt`.
    pub from: TokenSource,
    /// The longest token that is read, in bytes.
    pub token_bytes_max: usize,
    /// Required claims: for each, the value must pass, or one of a list. Dots separate the names of nested members.
    pub values: Vec<(String, ValueRule)>,
}

impl ClaimRules {
    /// The claims of a request's token. `None` if it has none, or one that no route would accept.
    pub(crate) fn read<F: FieldLookup + ?Sized>(&self, request: &RequestParts<'_, F>) -> Option<Claims> {
        let token = self.from.find(request.fields, request.query).ok()?;
        if token.len() > self.token_bytes_max { None } else { Claims::unverified(token) }
    }
}

/// The claims of one request, read for the first rule that needs them, so that many such rules cost no more.
#[derive(Debug, Default)]
pub(crate) struct ReadClaims(RefCell<Option<TokenRead>>);

#[derive(Debug)]
struct TokenRead {
    from: TokenSource,
    token_bytes_max: usize,
    claims: Option<Claims>,
}

impl ReadClaims {
    /// Whether the request's token has all the claims.
    pub(crate) fn hold<F: FieldLookup + ?Sized>(
        &self,
        rules: &ClaimRules,
        request: &RequestParts<'_, F>,
    ) -> bool {
        let mut all = self.0.borrow_mut();
        let is_same =
            |read: &&mut TokenRead| read.from == rules.from && read.token_bytes_max == rules.token_bytes_max;
        let claims = match all.as_mut().filter(is_same) {
            Some(read) => &read.claims,
            None => {
                let ClaimRules { from, token_bytes_max, .. } = rules.clone();
                &all.insert(TokenRead { from, token_bytes_max, claims: rules.read(request) }).claims
            }
        };
        claims.as_ref().is_some_and(|claims| rules.values.iter().all(|value| claim_holds(value, claims)))
    }
}

pub(crate) fn claim_holds((name, rule): &(String, ValueRule), claims: &Claims) -> bool {
    match rule {
        ValueRule::Present => claims.has(name),
        rule => claims.any(name, |text| rule.passes(text.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::NoFields;

    #[test]
    fn a_token_in_the_query_is_found_once() {
        let source = TokenSource::Query("access_token".to_owned());
        let found = |query: &'static str| source.find(&NoFields, Some(query.as_bytes()));
        assert_eq!(found("access_token=a.b.c"), Ok(&b"a.b.c"[..]));
        assert_eq!(found("x=1&access%5Ftoken=a.b.c&y"), Ok(&b"a.b.c"[..]));
        assert_eq!(found("access_token"), Ok(&b""[..]));
        assert_eq!(found("access_token=a&access_token=b"), Err(Refusal::Repeated));
        assert_eq!(found("token=a"), Err(Refusal::Missing));
        assert_eq!(source.find(&NoFields, None), Err(Refusal::Missing));
        let header = TokenSource::Header("X-Token".to_owned());
        assert_eq!(header.find(&NoFields, Some(b"X-Token=a")), Err(Refusal::Missing));
    }

    #[test]
    fn a_parameter_is_left_out_of_a_target() {
        for (target, expected) in [
            ("/a", "/a"),
            ("/a?", "/a"),
            ("/a?t=1", "/a"),
            ("/a?t", "/a"),
            ("/a?t=1&b=2", "/a?b=2"),
            ("/a?b=2&t=1&c", "/a?b=2&c"),
            ("/a?b=2&%74=1&t=3", "/a?b=2"),
            ("/a?tt=1&b=?t=1", "/a?tt=1&b=?t=1"),
        ] {
            let mut out = Vec::new();
            without_parameter(target.as_bytes(), "t", &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{target}");
        }
    }
}
