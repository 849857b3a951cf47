//! Responses without a server: redirects, fixed responses, and error pages.
//!
//! Bodies are fixed bytes. Nothing from a request becomes part of a body, because a browser could execute it.

use std::fmt;
use std::ops::RangeInclusive;

use expression::ExchangeStage;

use crate::named_values::{NamedValues, TemplateScope};
use crate::pattern::BytePattern;
use crate::request::FieldLookup;
use crate::rewrite::NotAHost;
use crate::template::{RouteTemplate, TemplateError, TemplateStage, TemplateUse};
use crate::variable_values::VariableValues;

/// RFC 9110 §15.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectStatus {
    /// 301: permanent; a POST may become a GET.
    MovedPermanently,
    /// 302: temporary; a POST may become a GET.
    Found,
    /// 303: another resource, to be requested with GET.
    SeeOther,
    /// 307: temporary; method and body are kept.
    TemporaryRedirect,
    /// 308: permanent; method and body are kept.
    PermanentRedirect,
}

impl RedirectStatus {
    /// `None` if the code is no redirect.
    pub fn from_status(status: u16) -> Option<Self> {
        match status {
            301 => Some(Self::MovedPermanently),
            302 => Some(Self::Found),
            303 => Some(Self::SeeOther),
            307 => Some(Self::TemporaryRedirect),
            308 => Some(Self::PermanentRedirect),
            _ => None,
        }
    }

    pub fn code(self) -> u16 {
        match self {
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::SeeOther => 303,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub status: RedirectStatus,
    location: RouteTemplate,
    pattern: Option<BytePattern>,
}

impl Redirect {
    /// Parses the target, such as `https://$host$path` or `/new/$1`. Groups refer to `pattern`, which is matched
    /// against the path as a lenient server reads it. If the pattern does not match, groups are empty.
    ///
    /// The client's query is appended unless `to` has a `?`, a `#`, `$query` or `$path_and_query`.
    ///
    /// # Errors
    /// The problem with `to`.
    pub fn new(
        status: RedirectStatus,
        to: &str,
        pattern: Option<BytePattern>,
        values: &NamedValues,
    ) -> Result<Self, TemplateError> {
        let scope = TemplateScope { pattern: pattern.as_ref(), values: Some(values) };
        let location = RouteTemplate::new(to, TemplateUse::Location, TemplateStage::Authenticated, scope)?;
        Ok(Self { status, location, pattern })
    }

    /// The target as configured.
    pub fn to(&self) -> &str {
        self.location.as_str()
    }

    /// The stage at which all values in the target are known.
    pub fn values_known(&self) -> ExchangeStage {
        self.location.values_known()
    }

    /// The pattern whose groups the target may contain.
    pub fn pattern(&self) -> Option<&BytePattern> {
        self.pattern.as_ref()
    }

    /// Appends the value of Location.
    ///
    /// # Errors
    /// The host of the URL is empty, because its variable has no value: browsers would take the next part for the host.
    /// Discard the appended bytes.
    pub fn location<F: FieldLookup + ?Sized>(
        &self,
        values: &VariableValues<'_, F>,
        out: &mut Vec<u8>,
    ) -> Result<(), NotAHost> {
        let start = out.len();
        let pattern = self.pattern.as_ref().filter(|_| self.location.has_groups());
        let captures = pattern.and_then(|pattern| pattern.captures_of_path(values.request.path));
        self.location.fill(&VariableValues { captures: captures.as_ref(), ..*values }, out);
        if let Some(query) = values.request.query
            && !self.location.has_query()
        {
            out.push(b'?');
            crate::fill::write_query(query, out);
        }
        // The template ends in `?` to drop the query.
        if out[start..].ends_with(b"?") {
            out.pop();
        }
        if has_empty_host(&out[start..]) { Err(NotAHost) } else { Ok(()) }
    }
}

/// RFC 9110 §4.2.1: an http URL with an empty host is invalid.
pub(crate) fn has_empty_host(url: &[u8]) -> bool {
    const BEFORE_HOST: &[u8] = b"://";
    if url.starts_with(b"/") {
        return false;
    }
    let host = url.windows(BEFORE_HOST.len()).position(|bytes| bytes == BEFORE_HOST);
    let host = host.map_or(&[][..], |at| &url[at + BEFORE_HOST.len()..]);
    host.first().is_none_or(|byte| b":/?#".contains(byte))
}

/// RFC 9110 §15: statuses of final responses.
const STATUSES: RangeInclusive<u16> = 200..=599;

/// Parses the status of a response, 200 to 599, in three digits.
pub fn response_status(text: &[u8]) -> Option<u16> {
    let is_number = text.len() == 3 && text.iter().all(u8::is_ascii_digit);
    let status = std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()?;
    STATUSES.contains(&status).then_some(status)
}

/// Whether a response with this status may have a body (RFC 9110 §15.3.5, §15.3.6 and §15.4.5).
pub fn may_have_body(status: u16) -> bool {
    !matches!(status, 204 | 205 | 304)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedResponse {
    status: u16,
    content_type: String,
    body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FixedResponseError {
    /// The status is below 200, so not final, or above 599, so undefined (RFC 9110 §15).
    #[error("{0} is no status of a response; use 200 to 599")]
    Status(u16),
    /// A body with a status that has none (RFC 9110 §15.3.5, §15.3.6 and §15.4.5).
    #[error("a response with status {0} has no body; leave it out")]
    Body(u16),
    /// The content type contains a control character.
    #[error("the content type {0:?} is no field value; write one such as text/plain")]
    ContentType(String),
}

impl FixedResponse {
    /// `body` may be empty.
    ///
    /// # Errors
    /// The invalid part.
    pub fn new(
        status: u16,
        content_type: &str,
        body: impl Into<Vec<u8>>,
    ) -> Result<Self, FixedResponseError> {
        let body = body.into();
        if !STATUSES.contains(&status) {
            return Err(FixedResponseError::Status(status));
        }
        if !may_have_body(status) && !body.is_empty() {
            return Err(FixedResponseError::Body(status));
        }
        if content_type.is_empty() || content_type.chars().any(char::is_control) {
            return Err(FixedResponseError::ContentType(content_type.to_owned()));
        }
        Ok(Self { status, content_type: content_type.to_owned(), body })
    }

    /// From 200 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Unused if the body is empty.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// Error pages by status. A lookup takes two memory reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPages<Page> {
    scopes: Vec<PageFor>,
    pages: Vec<Page>,
    /// For each status from 400 to 599, a position in `pages` counted from 1. Empty if there are no pages.
    of_status: Vec<u16>,
}

impl<Page> Default for ErrorPages<Page> {
    fn default() -> Self {
        Self { scopes: Vec::new(), pages: Vec::new(), of_status: Vec::new() }
    }
}

/// The statuses of an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFor {
    Status(u16),
    /// Client errors, 400 to 499.
    ClientErrors,
    /// Server errors, 500 to 599.
    ServerErrors,
    /// All errors, 400 to 599.
    Errors,
}

const FIRST_ERROR: u16 = 400;
const LAST_ERROR: u16 = 599;

impl PageFor {
    /// Parses `404`, `4xx`, `5xx` or `*`. `None` for anything else, including a status that is no error.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "*" => Some(Self::Errors),
            "4xx" => Some(Self::ClientErrors),
            "5xx" => Some(Self::ServerErrors),
            _ => {
                let status = text.parse().ok().filter(|_| text.len() == 3)?;
                (FIRST_ERROR..=LAST_ERROR).contains(&status).then_some(Self::Status(status))
            }
        }
    }

    /// The statuses, all of errors unless it is a single one.
    pub fn statuses(self) -> RangeInclusive<u16> {
        match self {
            Self::Status(status) => status..=status,
            Self::ClientErrors => FIRST_ERROR..=499,
            Self::ServerErrors => 500..=LAST_ERROR,
            Self::Errors => FIRST_ERROR..=LAST_ERROR,
        }
    }
}

/// Writes the text that [`PageFor::parse`] parses.
impl fmt::Display for PageFor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(formatter, "{status}"),
            Self::ClientErrors => formatter.write_str("4xx"),
            Self::ServerErrors => formatter.write_str("5xx"),
            Self::Errors => formatter.write_str("*"),
        }
    }
}

impl<Page> ErrorPages<Page> {
    /// Builds the table. A page for one status is preferred to one for a class, which is preferred to one for all;
    /// among equals, the first.
    ///
    /// # Panics
    /// With more than 65,534 pages.
    pub fn new(pages: impl IntoIterator<Item = (PageFor, Page)>) -> Self {
        let (scopes, pages): (Vec<PageFor>, Vec<Page>) = pages.into_iter().unzip();
        assert!(pages.len() < usize::from(u16::MAX), "there are few statuses");
        let mut of_status =
            vec![0; if pages.is_empty() { 0 } else { usize::from(LAST_ERROR - FIRST_ERROR) + 1 }];
        // Writes the widest first, so that narrower ones overwrite it. Among equals, writes the first last.
        let mut order: Vec<usize> = (0..scopes.len()).rev().collect();
        order.sort_by_key(|index| std::cmp::Reverse(scopes[*index].statuses().len()));
        for index in order {
            for status in scopes[index].statuses() {
                if let Some(page) =
                    status.checked_sub(FIRST_ERROR).and_then(|at| of_status.get_mut(usize::from(at)))
                {
                    *page = index as u16 + 1;
                }
            }
        }
        Self { scopes, pages, of_status }
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// All pages, in the order given.
    pub fn pages(&self) -> impl Iterator<Item = (PageFor, &Page)> {
        self.scopes.iter().copied().zip(&self.pages)
    }

    #[inline]
    pub fn page(&self, status: u16) -> Option<&Page> {
        let place = self.of_status.get(usize::from(status.checked_sub(FIRST_ERROR)?))?;
        self.pages.get(usize::from(place.checked_sub(1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_three_digits() {
        for (text, status) in [("200", Some(200)), ("599", Some(599)), ("404", Some(404))].into_iter().chain(
            ["", "20", "199", "600", "+20", "0404", " 200", "2e2", "99999999999"].map(|text| (text, None)),
        ) {
            assert_eq!(response_status(text.as_bytes()), status, "{text}");
        }
    }
    use crate::request::{NoFields, RequestParts};
    use crate::variable_values::TlsFacts;

    #[test]
    fn redirects() {
        for (to, pattern, path, query, location) in [
            ("https://$host$path", None, "/a%20b", Some("x=1"), "https://shop.example/a%20b?x=1"),
            ("https://$host$path_and_query", None, "/a", Some("x=1"), "https://shop.example/a?x=1"),
            ("https://www.example.com/", None, "/a", Some("x"), "https://www.example.com/?x"),
            ("/b?", None, "/a", Some("x"), "/b"),
            ("/b#c", None, "/a", Some("x"), "/b#c"),
            ("/new/$1", Some("/old/(.*)"), "/old/c%3Fd", Some("x"), "/new/c%3Fd?x"),
            ("/new/$1", Some("/old/(.*)"), "/other", None, "/new/"),
            ("/$2/$1", Some("/(a)?(b)?"), "/b", None, "/b/"),
            ("/b", None, "/a", Some("x\"<\u{e9}"), "/b?x%22%3C%C3%A9"),
        ] {
            let pattern = pattern.map(|pattern| BytePattern::new(pattern).unwrap());
            let redirect = Redirect::new(RedirectStatus::Found, to, pattern, NamedValues::NONE).unwrap();
            let request = RequestParts {
                listener: 0,
                host: b"shop.example",
                path: path.as_bytes(),
                query: query.map(str::as_bytes),
                method: b"GET",
                client: [192, 0, 2, 1].into(),
                fields: &NoFields,
                conditions: &crate::NoConditions,
            };
            let mut out = Vec::new();
            redirect.location(&VariableValues::from_request(request, "http"), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), location, "{to} {path}");
        }
        assert!(Redirect::new(RedirectStatus::Found, "/$1", None, NamedValues::NONE).is_err());
    }

    #[test]
    fn a_redirect_without_a_host_leads_nowhere() {
        for (to, host, name, location) in [
            ("https://$tls.sni$path", "a.example", "", None),
            ("https://$tls.sni$path", "", "b.example", Some("https://b.example/evil.example/x?q")),
            ("https://$host$path", "", "", None),
            ("https://$host", "", "", None),
            ("https://$host:8443/x", "", "", None),
            ("$scheme://$host$path_and_query", "", "", None),
            ("$path", "", "", Some("/evil.example/x?q")),
            ("/to?u=https://$host", "", "", Some("/to?u=https://")),
        ] {
            let redirect = Redirect::new(RedirectStatus::Found, to, None, NamedValues::NONE).unwrap();
            let request = RequestParts {
                listener: 0,
                host: host.as_bytes(),
                path: b"/evil.example/x",
                query: Some(b"q"),
                method: b"GET",
                client: [192, 0, 2, 1].into(),
                fields: &NoFields,
                conditions: &crate::NoConditions,
            };
            let tls = TlsFacts { server_name: name, ..TlsFacts::default() };
            let mut out = Vec::new();
            let filled = redirect
                .location(&VariableValues { tls, ..VariableValues::from_request(request, "http") }, &mut out);
            assert_eq!(filled.is_ok().then_some(out.as_slice()), location.map(str::as_bytes), "{to}");
        }
    }

    #[test]
    fn statuses_of_redirects() {
        for status in 300..=310 {
            let expected = matches!(status, 301 | 302 | 303 | 307 | 308).then_some(status);
            assert_eq!(RedirectStatus::from_status(status).map(RedirectStatus::code), expected);
        }
    }

    #[test]
    fn fixed_responses() {
        let response = FixedResponse::new(503, "text/plain", "back soon\n").unwrap();
        assert_eq!(
            (response.status(), response.content_type(), response.body()),
            (503, "text/plain", &b"back soon\n"[..])
        );
        assert!(FixedResponse::new(204, "text/plain", "").is_ok());
        assert_eq!(FixedResponse::new(204, "text/plain", "x"), Err(FixedResponseError::Body(204)));
        assert_eq!(FixedResponse::new(101, "text/plain", ""), Err(FixedResponseError::Status(101)));
        assert_eq!(FixedResponse::new(600, "text/plain", ""), Err(FixedResponseError::Status(600)));
        assert!(FixedResponse::new(200, "text/plain\r\nX: y", "").is_err());
    }

    #[test]
    fn pages_by_status() {
        let of = |list: &[&'static str]| {
            ErrorPages::new(list.iter().map(|text| (PageFor::parse(text).unwrap(), *text)))
        };
        let pages = of(&["404", "*", "5xx", "503", "503"]);
        let texts: Vec<String> = pages.pages().map(|(scope, _)| scope.to_string()).collect();
        assert_eq!(texts, ["404", "*", "5xx", "503", "503"]);
        for (status, page) in [
            (404, Some("404")),
            (400, Some("*")),
            (499, Some("*")),
            (500, Some("5xx")),
            (503, Some("503")),
            (599, Some("5xx")),
            (399, None),
            (200, None),
            (0, None),
            (600, None),
            (u16::MAX, None),
        ] {
            assert_eq!(pages.page(status).copied(), page, "{status}");
        }
        assert_eq!(of(&[]).page(404), None);
        assert_eq!(ErrorPages::new([(PageFor::Errors, 1), (PageFor::Errors, 2)]).page(404), Some(&1));
        assert_eq!(ErrorPages::new([(PageFor::Status(200), 1)]).page(200), None);
        for text in ["", "200", "600", "3xx", "+404", "0404", "40", "4XX"] {
            assert_eq!(PageFor::parse(text), None, "{text}");
        }
    }
}
