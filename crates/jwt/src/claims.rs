//! Checks the claims of a token (RFC 7519 §4.1), and takes the values for the log and for servers from them.

use std::fmt::Write;

use crate::algorithm::Algorithm;
use crate::json::Json;
use crate::kept::KeptClaims;
use crate::keys::KeySet;
use crate::refusal::Refusal;
use crate::token::{ParsedToken, object};

/// The maximum size of the field lines from claims, and of the user name.
const LINES_BYTES_MAX: usize = 8 * 1024;
const USER_BYTES_MAX: usize = 256;

/// The requirements for tokens, and the claims to pass on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredClaims {
    pub algorithms: Vec<Algorithm>,
    /// If empty, any issuer is accepted.
    pub issuers: Vec<String>,
    pub audience: Audience,
    /// The maximum difference between the clocks of issuer and proxy, in seconds.
    pub leeway_s: u64,
    pub accepts_no_expiry: bool,
    /// Required claims, each with its accepted values; without values, any is accepted.
    pub required: Vec<(String, Vec<String>)>,
    /// The claim with the user name.
    pub user: String,
    /// Fields for servers: the field name, and the claim with its value.
    pub passed: Vec<(String, String)>,
    /// The claims whose texts are remembered with the token, for conditions.
    pub kept: Vec<String>,
    pub token_bytes_max: usize,
}

/// Accepted values of the claim `aud`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// Only tokens without `aud` are accepted: RFC 7519 §4.1.3 forbids a recipient that `aud` does not name to accept a
    /// token.
    Nobody,
    /// `aud` is not checked.
    Anybody,
    /// `aud` must have one of these values.
    Of(Vec<String>),
}

/// The result of verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIdentity {
    user: String,
    lines: Vec<u8>,
    claims: KeptClaims,
    until_s: u64,
}

impl TokenIdentity {
    /// Empty if the token has no user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Field lines for servers, each with CRLF.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// The claims of [`RequiredClaims::kept`].
    pub fn claims(&self) -> &KeptClaims {
        &self.claims
    }

    /// When the token expires, in seconds since 1970, with leeway.
    pub fn until_s(&self) -> u64 {
        self.until_s
    }
}

impl RequiredClaims {
    /// Verifies a token, and checks its claims for the time `now_s`, in seconds since 1970.
    ///
    /// # Errors
    /// If the token is refused.
    pub fn check(&self, text: &[u8], keys: &KeySet, now_s: u64) -> Result<TokenIdentity, Refusal> {
        if text.len() > self.token_bytes_max {
            return Err(Refusal::TooLong);
        }
        let token = ParsedToken::parse(text)?;
        if !self.algorithms.contains(&token.algorithm) {
            return Err(Refusal::Algorithm);
        }
        keys.verify(&token)?;
        let claims = object(token.payload).ok_or(Refusal::Claims)?;
        let until_s = self.until(&claims, now_s)?;
        self.check_parties(&claims)?;
        if !self.required.iter().all(|(claim, values)| grants(&claims, claim, values)) {
            return Err(Refusal::Insufficient);
        }
        let kept = KeptClaims::from_claims(&claims, &self.kept);
        Ok(TokenIdentity { user: self.user(&claims)?, lines: self.lines(&claims)?, claims: kept, until_s })
    }

    /// Returns the time at which the token expires, with leeway. Fails if it is not valid at `now_s`.
    fn until(&self, claims: &Json, now_s: u64) -> Result<u64, Refusal> {
        let expires = date(claims, "exp")?;
        // RFC 7519 §4.1.4: "on or after which the JWT MUST NOT be accepted".
        let until_s = match expires {
            Some(expires) => (expires.ceil() as u64).saturating_add(self.leeway_s),
            None if self.accepts_no_expiry => u64::MAX,
            None => return Err(Refusal::NoExpiry),
        };
        if now_s >= until_s {
            return Err(Refusal::Expired);
        }
        // RFC 7519 §4.1.5: the token must not be accepted before this time.
        let begins = date(claims, "nbf")?.map_or(0, |begins| begins.floor() as u64);
        if now_s.saturating_add(self.leeway_s) < begins {
            return Err(Refusal::NotYetValid);
        }
        Ok(until_s)
    }

    fn check_parties(&self, claims: &Json) -> Result<(), Refusal> {
        if !self.issuers.is_empty() {
            let issuer = claims.member("iss").and_then(Json::text).ok_or(Refusal::Issuer)?;
            if !self.issuers.iter().any(|known| known == issuer) {
                return Err(Refusal::Issuer);
            }
        }
        let audience = claims.member("aud");
        let is_for_us = match (&self.audience, audience) {
            (Audience::Anybody, _) | (Audience::Nobody, None) => true,
            (Audience::Nobody, Some(_)) | (Audience::Of(_), None) => false,
            (Audience::Of(known), Some(audience)) => {
                let is_known =
                    |name: &Json| name.text().is_some_and(|name| known.iter().any(|it| it == name));
                // RFC 7519 §4.1.3: a string, or a list of strings.
                match audience.list() {
                    Some(list) => list.iter().all(|name| name.text().is_some()) && list.iter().any(is_known),
                    None => is_known(audience),
                }
            }
        };
        if is_for_us { Ok(()) } else { Err(Refusal::Audience) }
    }

    fn user(&self, claims: &Json) -> Result<String, Refusal> {
        let user = claims.find(&self.user).map(written).transpose()?.unwrap_or_default();
        if user.len() > USER_BYTES_MAX { Err(Refusal::Claims) } else { Ok(user) }
    }

    fn lines(&self, claims: &Json) -> Result<Vec<u8>, Refusal> {
        let mut lines = Vec::new();
        for (field, claim) in &self.passed {
            let Some(value) = claims.find(claim) else { continue };
            lines.extend_from_slice(field.as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(written(value)?.as_bytes());
            lines.extend_from_slice(b"\r\n");
        }
        if lines.len() > LINES_BYTES_MAX { Err(Refusal::Claims) } else { Ok(lines) }
    }
}

/// A NumericDate, in seconds (RFC 7519 §2).
fn date(claims: &Json, name: &str) -> Result<Option<f64>, Refusal> {
    match claims.member(name) {
        None => Ok(None),
        Some(Json::Number(number)) => {
            let seconds = number.as_f64().filter(|seconds| *seconds >= 0.0);
            seconds.map(Some).ok_or(Refusal::Claims)
        }
        Some(_) => Err(Refusal::Claims),
    }
}

/// Whether the claim is one of the values, or a list with one of them.
fn grants(claims: &Json, claim: &str, values: &[String]) -> bool {
    let Some(found) = claims.find(claim) else { return false };
    values.is_empty() || any(found, claim, |text| values.iter().any(|value| value == text))
}

/// Whether `passes` accepts the claim's text, or that of an element if it is a list.
pub(crate) fn any(found: &Json, claim: &str, mut passes: impl FnMut(&str) -> bool) -> bool {
    match found {
        // RFC 8693 §4.2: a list separated by spaces.
        Json::Text(text) if matches!(claim, "scope" | "scp") => text.split(' ').any(passes),
        Json::Text(text) => passes(text),
        Json::List(list) => list.iter().filter_map(Json::text).any(passes),
        Json::Switch(_) | Json::Number(_) => written(found).is_ok_and(|text| passes(&text)),
        Json::Null | Json::Table(_) => false,
    }
}

/// Claims of a token whose signature was not verified. Use them to choose an issuer's keys, never as an identity.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims(Json);

impl Claims {
    /// `None` if the token is malformed.
    pub fn unverified(token: &[u8]) -> Option<Self> {
        object(ParsedToken::parse(token).ok()?.payload).map(Self)
    }

    /// The name of an inner claim is a path with dots.
    pub fn has(&self, claim: &str) -> bool {
        self.0.find(claim).is_some()
    }

    /// Whether `passes` accepts the claim's text, or that of an element if it is a list. [`RequiredClaims::required`] compares
    /// the same texts.
    pub fn any(&self, claim: &str, passes: impl FnMut(&str) -> bool) -> bool {
        self.0.find(claim).is_some_and(|found| any(found, claim, passes))
    }

    /// The claim's text, or those of its elements if it is a list.
    pub fn texts(&self, claim: &str) -> Vec<String> {
        let mut texts = Vec::new();
        self.any(claim, |text| {
            texts.push(text.to_owned());
            false
        });
        texts
    }
}

/// Formats a claim as a field value; elements of lists are separated by commas.
fn written(claim: &Json) -> Result<String, Refusal> {
    let mut text = String::new();
    match claim {
        Json::Null => {}
        Json::Text(found) => text.push_str(found),
        Json::Switch(is_on) => drop(write!(text, "{is_on}")),
        Json::Number(number) => drop(write!(text, "{number}")),
        Json::List(list) => {
            for (place, value) in list.iter().enumerate() {
                let one = if let Json::List(_) = value { Err(Refusal::Claims) } else { written(value) }?;
                // The server would read it as two elements.
                if one.contains(',') {
                    return Err(Refusal::Claims);
                }
                let separator = if place > 0 { "," } else { "" };
                let _ = write!(text, "{separator}{one}");
            }
        }
        Json::Table(_) => return Err(Refusal::Claims),
    }
    // RFC 9110 §5.5: a field value has no line breaks or other control characters.
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(Refusal::Claims);
    }
    Ok(text)
}
