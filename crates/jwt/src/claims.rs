//! Claims: what a token has to say (RFC 7519 §4.1), and what is taken from it for the log and for servers.

use std::fmt::Write;

use crate::algorithm::Algorithm;
use crate::json::Json;
use crate::keys::KeySet;
use crate::refusal::Refusal;
use crate::token::{Token, object};

/// What claims may add to a request, in bytes, and the longest name of a user.
const LINES_BYTES_MAX: usize = 8 * 1024;
const USER_BYTES_MAX: usize = 256;

/// What is asked of tokens, and taken from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The accepted algorithms.
    pub algorithms: Vec<Algorithm>,
    /// The accepted issuers; empty accepts any.
    pub issuers: Vec<String>,
    /// The accepted audiences.
    pub audience: Audience,
    /// How far the clocks of issuer and proxy may be apart, in seconds.
    pub leeway_s: u64,
    /// Whether tokens without `exp` are accepted.
    pub accepts_no_expiry: bool,
    /// Required claims, each with the values of which it must have one; none accepts any value.
    pub required: Vec<(String, Vec<String>)>,
    /// The claim that names the user.
    pub user: String,
    /// Fields for servers, each with the claim that it gets.
    pub passed: Vec<(String, String)>,
    /// The longest accepted token, in bytes.
    pub token_bytes_max: usize,
}

/// For whom tokens may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// For nobody in particular: RFC 7519 §4.1.3 has tokens with an `aud` refused by whoever is not meant.
    Nobody,
    /// For anybody.
    Anybody,
    /// For one of these; tokens without `aud` are refused.
    Of(Vec<String>),
}

/// What a verified token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    user: String,
    lines: Vec<u8>,
    until_s: u64,
}

impl Identity {
    /// The user; empty if the token names none.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Header lines for servers, each with CRLF.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// The second since 1970 from which the token counts no more.
    pub fn until_s(&self) -> u64 {
        self.until_s
    }
}

impl Rules {
    /// Verifies a token and checks its claims at the second `now_s` since 1970.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check(&self, text: &[u8], keys: &KeySet, now_s: u64) -> Result<Identity, Refusal> {
        if text.len() > self.token_bytes_max {
            return Err(Refusal::TooLong);
        }
        let token = Token::parse(text)?;
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
        Ok(Identity { user: self.user(&claims)?, lines: self.lines(&claims)?, until_s })
    }

    /// When the token ends; checks that it counts now.
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
        // RFC 7519 §4.1.5.
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

/// A NumericDate (RFC 7519 §2), in seconds.
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

/// Whether a claim has one of the values, as the text of it or of one of its list.
fn grants(claims: &Json, claim: &str, values: &[String]) -> bool {
    let Some(found) = claims.find(claim) else { return false };
    values.is_empty() || any(found, claim, |text| values.iter().any(|value| value == text))
}

/// Whether the text of a claim passes, or one of its list.
fn any(found: &Json, claim: &str, mut passes: impl FnMut(&str) -> bool) -> bool {
    match found {
        // RFC 8693 §4.2: a list with spaces between.
        Json::Text(text) if matches!(claim, "scope" | "scp") => text.split(' ').any(passes),
        Json::Text(text) => passes(text),
        Json::List(list) => list.iter().filter_map(Json::text).any(passes),
        Json::Switch(_) | Json::Number(_) => written(found).is_ok_and(|text| passes(&text)),
        Json::Null | Json::Table(_) => false,
    }
}

/// The claims of a token that nobody has verified. They say where to ask, never who somebody is.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims(Json);

impl Claims {
    /// Reads the claims of a token, which must be well-formed but may be forged; `None` if it is not.
    pub fn unverified(token: &[u8]) -> Option<Self> {
        object(Token::parse(token).ok()?.payload).map(Self)
    }

    /// Whether there is a claim of this name; names of members are written with dots between.
    pub fn has(&self, claim: &str) -> bool {
        self.0.find(claim).is_some()
    }

    /// Whether the text of a claim passes, or one of its list: those that [`Rules::required`] compares.
    pub fn any(&self, claim: &str, passes: impl FnMut(&str) -> bool) -> bool {
        self.0.find(claim).is_some_and(|found| any(found, claim, passes))
    }

    /// All texts of a claim.
    pub fn texts(&self, claim: &str) -> Vec<String> {
        let mut texts = Vec::new();
        self.any(claim, |text| {
            texts.push(text.to_owned());
            false
        });
        texts
    }
}

/// A claim as the value of a field. Lists have commas between.
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
                // It would read as two.
                if one.contains(',') {
                    return Err(Refusal::Claims);
                }
                let separator = if place > 0 { "," } else { "" };
                let _ = write!(text, "{separator}{one}");
            }
        }
        Json::Table(_) => return Err(Refusal::Claims),
    }
    // RFC 9110 §5.5: what ends a line is no part of a value.
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(Refusal::Claims);
    }
    Ok(text)
}
