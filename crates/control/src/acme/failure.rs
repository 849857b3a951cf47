//! Reasons for the operator why a certificate was not issued.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use instant_acme::{Error, Problem};

use super::http::AcmeClient;
use super::now;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcmeFailure {
    pub(crate) what: String,
    /// Seconds to wait, as the authority requests.
    pub(crate) retry_after: Option<i64>,
    pub(crate) kind: AcmeFailureKind,
}

/// The remedy for a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcmeFailureKind {
    Later,
    /// Try again at once: the authority has rejected several nonces in a row.
    Again,
    /// Create another account: the authority does not know this one.
    NoAccount,
    /// Try again later, although waiting may not help: the authority rejected the request.
    Refused,
    /// Order again without naming the replaced certificate.
    NotReplaceable,
}

impl AcmeFailure {
    pub(crate) fn said(what: String) -> Self {
        Self { what, retry_after: None, kind: AcmeFailureKind::Later }
    }

    pub(crate) fn folder(folder: &Path, error: &io::Error) -> Self {
        Self::said(format!("{}: {error}", folder.display()))
    }

    pub(crate) fn from_error(error: &Error) -> Self {
        let kind = if is_problem(error, "badNonce") {
            AcmeFailureKind::Again
        } else if is_problem(error, "accountDoesNotExist") {
            AcmeFailureKind::NoAccount
        } else if is_problem(error, "alreadyReplaced") {
            AcmeFailureKind::NotReplaceable
        } else if matches!(error, Error::Api(_)) && !is_problem(error, "rateLimited") {
            AcmeFailureKind::Refused
        } else {
            AcmeFailureKind::Later
        };
        let what = match error {
            Error::Api(problem) => problem_text(problem),
            Error::Json(_) => "the authority's answer cannot be understood".to_owned(),
            Error::Timeout(_) => "the authority did not finish in time".to_owned(),
            other => other.to_string(),
        };
        let retry_after = match error {
            Error::Timeout(Some(at)) => {
                i64::try_from(at.saturating_duration_since(std::time::Instant::now()).as_secs()).ok()
            }
            _ => None,
        };
        Self { what, retry_after, kind }
    }

    pub(crate) fn with_retry_after(self, client: &AcmeClient) -> Self {
        let said = client.take_retry_after().and_then(|text| retry_after(&text, now()));
        Self { retry_after: said.or(self.retry_after), ..self }
    }
}

/// Whether the error is this problem in an authority's response (RFC 8555 §6.7).
pub(crate) fn is_problem(error: &Error, kind: &str) -> bool {
    let of = |problem: &Problem| {
        problem.r#type.as_deref().and_then(|found| found.strip_prefix("urn:ietf:params:acme:error:"))
            == Some(kind)
    };
    matches!(error, Error::Api(problem) if of(problem))
}

/// Whether an order may succeed without naming the replaced certificate (RFC 9773 §5). Some authorities have no
/// renewal information, or do not repeat the accepted field.
pub(crate) fn is_about_replacement(error: &Error) -> bool {
    match error {
        Error::Unsupported(_) => true,
        // The library reports it only in this text.
        Error::Other(why) => why.to_string().starts_with("replaces field mismatch"),
        // Any objection to the certificate, for example from another CA at the same URL.
        error => AcmeFailure::from_error(error).kind == AcmeFailureKind::Refused,
    }
}

pub(crate) fn problem_text(problem: &Problem) -> String {
    let Problem { r#type, detail, subproblems, .. } = problem;
    let kind = r#type.as_deref().unwrap_or("unknown").trim_start_matches("urn:ietf:params:acme:error:");
    let detail = detail.as_deref().unwrap_or("no reason given");
    let parts = subproblems.iter().filter_map(|part| part.detail.as_deref());
    let all: Vec<&str> = [detail].into_iter().chain(parts).collect();
    format!("{} ({kind})", one_line(&all.join("; ")))
}

/// Makes a text from an authority safe for logs and terminals.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}

/// RFC 9110 §10.2.3: seconds, or a date.
fn retry_after(text: &str, now: i64) -> Option<i64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(i64::from(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let at = i64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()).ok()?;
    Some((at - now).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (text, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Thu, 01 Jan 1970 00:16:50 GMT", Some(10)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("-5", None),
            ("soon", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(retry_after(text, 1000), expected, "{text}");
        }
    }

    #[test]
    fn a_message_of_an_authority_becomes_one_short_line() {
        let problem = |kind: Option<&str>, detail: &str| Problem {
            r#type: kind.map(|kind| format!("urn:ietf:params:acme:error:{kind}")),
            detail: Some(detail.to_owned()),
            status: Some(400),
            subproblems: Vec::new(),
        };
        let said = problem_text(&problem(Some("dns"), "no\nsuch\u{1b}[31m name"));
        assert_eq!(said, "no such [31m name (dns)");
        assert_eq!(problem_text(&problem(None, &"x".repeat(10_000))).len(), 510);
        for (kind, expected) in [
            ("badNonce", AcmeFailureKind::Again),
            ("accountDoesNotExist", AcmeFailureKind::NoAccount),
            ("alreadyReplaced", AcmeFailureKind::NotReplaceable),
            ("rateLimited", AcmeFailureKind::Later),
            ("malformed", AcmeFailureKind::Refused),
        ] {
            assert_eq!(
                AcmeFailure::from_error(&Error::Api(problem(Some(kind), "x"))).kind,
                expected,
                "{kind}"
            );
        }
    }

    /// Otherwise no certificate of such an authority would ever be renewed.
    #[test]
    fn an_authority_that_replaces_nothing_is_asked_without_that() {
        let mismatch = "replaces field mismatch: expected Some(..), found None";
        for (error, expected) in [
            (Error::Unsupported("ACME renewal information (ARI)"), true),
            (Error::Other(mismatch.into()), true),
            (Error::Other("connection refused".into()), false),
            (Error::Timeout(None), false),
        ] {
            assert_eq!(is_about_replacement(&error), expected, "{error}");
        }
    }
}
