//! Where a request has its token (JWT), and the claims of one that nobody has verified yet.

use std::cell::RefCell;

use jwt::{Claims, Refusal};

use crate::request::{Fields, cookie_value};
use crate::rule::ValueRule;

/// Where a request has its token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TokenSource {
    /// `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
    #[default]
    Bearer,
    /// A field of this name, with the token as its value.
    Header(String),
    /// A cookie of this name.
    Cookie(String),
}

impl TokenSource {
    /// The token of a request.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn find<'f, F: Fields + ?Sized>(&'f self, fields: &'f F) -> Result<&'f [u8], Refusal> {
        match self {
            Self::Bearer => {
                const SCHEME: &[u8] = b"bearer";
                let value = only(fields.values(b"authorization"))?;
                // RFC 9110 §11.1: any case, and then spaces. Another scheme is for somebody else.
                let (scheme, rest) = value.split_at_checked(SCHEME.len()).ok_or(Refusal::Missing)?;
                let token = rest.trim_ascii_start();
                if !scheme.eq_ignore_ascii_case(SCHEME) || (token.len() == rest.len() && !rest.is_empty()) {
                    return Err(Refusal::Missing);
                }
                Ok(token)
            }
            Self::Header(name) => only(fields.values(name.as_bytes())),
            Self::Cookie(name) => only(cookies(fields).filter_map(|pair| cookie_value(pair, name))),
        }
    }
}

fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<&'a [u8], Refusal> {
    match (values.next(), values.next()) {
        (None, _) => Err(Refusal::Missing),
        (Some(value), None) => Ok(value),
        // The server might take the other one.
        (Some(_), Some(_)) => Err(Refusal::Repeated),
    }
}

/// RFC 6265 §4.2.1: pairs with semicolons between. HTTP/2 may send each in a line of its own (RFC 9113 §8.2.3).
fn cookies<F: Fields + ?Sized>(fields: &F) -> impl Iterator<Item = &[u8]> {
    fields.values(b"cookie").flat_map(|line| line.split(|&byte| byte == b';'))
}

/// Conditions on the claims of a token, which the route itself verifies after it was chosen: a forged token leads to a
/// route that refuses it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimRules {
    /// Where the token is: as in the route's `jwt`.
    pub from: TokenSource,
    /// The longest token that is read, in bytes.
    pub token_bytes_max: usize,
    /// Required claims: for each, the value must pass, or one of a list. Names have dots between those of members.
    pub values: Vec<(String, ValueRule)>,
}

impl ClaimRules {
    /// The claims of a request's token; `None` if it has none, or one that no route would accept.
    pub(crate) fn read<F: Fields + ?Sized>(&self, fields: &F) -> Option<Claims> {
        let token = self.from.find(fields).ok()?;
        if token.len() > self.token_bytes_max { None } else { Claims::unverified(token) }
    }
}

/// The claims of one request, read for the first rule that asks for some: a request costs no more where many do.
#[derive(Debug, Default)]
pub(crate) struct ReadClaims(RefCell<Option<Read>>);

#[derive(Debug)]
struct Read {
    from: TokenSource,
    token_bytes_max: usize,
    claims: Option<Claims>,
}

impl ReadClaims {
    /// Whether the request's token has all the claims.
    pub(crate) fn hold<F: Fields + ?Sized>(&self, rules: &ClaimRules, fields: &F) -> bool {
        let mut all = self.0.borrow_mut();
        let is_same =
            |read: &&mut Read| read.from == rules.from && read.token_bytes_max == rules.token_bytes_max;
        let claims = match all.as_mut().filter(is_same) {
            Some(read) => &read.claims,
            None => {
                let ClaimRules { from, token_bytes_max, .. } = rules.clone();
                &all.insert(Read { from, token_bytes_max, claims: rules.read(fields) }).claims
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
