//! Access control of the dashboard: host names against DNS rebinding, tokens, and a key of the page against
//! requests forged by other sites. Pure: a head in, a rejection out.

use std::net::IpAddr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::{Method, StatusCode};

/// The field with which the page shows that it knows this process's key.
pub(super) const KEY: HeaderName = HeaderName::from_static("x-vanward-session");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Requests that change nothing, although they have a body.
const QUESTIONS: [&str; 2] = ["/api/cache/explain", "/api/routes/explain"];

pub(super) struct Gate<'c> {
    pub(super) hosts: &'c [String],
    pub(super) tokens: Option<&'c [Box<[u8]>]>,
    pub(super) is_writable: bool,
    pub(super) key: &'c str,
}

pub(super) type Refusal = (StatusCode, &'static str);

impl Gate<'_> {
    /// Checks a request. For the page itself, which has no secrets, only Host is checked.
    pub(super) fn admit(&self, method: &Method, path: &str, fields: &HeaderMap) -> Result<(), Refusal> {
        let host = self.host(fields)?;
        if !path.starts_with("/api/") {
            return Ok(());
        }
        self.token(fields)?;
        let is_read = method == Method::GET || method == Method::HEAD;
        is_of_this_site(fields, host, is_read)?;
        if is_read {
            return Ok(());
        }
        let key = one(fields, &KEY).unwrap_or_default();
        if verify_slices_are_equal(key.as_bytes(), self.key.as_bytes()).is_err() {
            return Err((StatusCode::FORBIDDEN, "the key of the session is missing: load the page again"));
        }
        if !self.is_writable && !QUESTIONS.contains(&path) {
            return Err((
                StatusCode::FORBIDDEN,
                "the dashboard is read-only: dashboard_write = true in the file allows changes",
            ));
        }
        Ok(())
    }

    /// Rejects unknown host names, which an attacker may have pointed to this machine. Addresses are safe.
    fn host<'f>(&self, fields: &'f HeaderMap) -> Result<&'f str, Refusal> {
        let whole =
            one(fields, &HOST).ok_or((StatusCode::BAD_REQUEST, "the request must have exactly one Host"))?;
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let name = match whole.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            _ => whole,
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let is_known = address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
        match is_known {
            true => Ok(whole),
            false => Err((
                StatusCode::MISDIRECTED_REQUEST,
                "this name is not one of the dashboard's: use its address, or add the name to dashboard_hosts",
            )),
        }
    }

    fn token(&self, fields: &HeaderMap) -> Result<(), Refusal> {
        let Some(tokens) = self.tokens else { return Ok(()) };
        let sent = one(fields, &AUTHORIZATION).and_then(|value| value.split_once(' '));
        // RFC 9110 §11.1: the scheme ignores case.
        let sent =
            sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let sent = sent.unwrap_or_default().as_bytes();
        // Every token is compared, in constant time.
        let is_known =
            tokens.iter().fold(false, |known, token| verify_slices_are_equal(token, sent).is_ok() | known);
        if is_known {
            Ok(())
        } else {
            Err((StatusCode::UNAUTHORIZED, "the token of dashboard_token_file is needed"))
        }
    }
}

/// Rejects requests that a browser sends for another site. Other clients do not send their origin.
fn is_of_this_site(fields: &HeaderMap, host: &str, is_read: bool) -> Result<(), Refusal> {
    let refused = Err((StatusCode::FORBIDDEN, "the request comes from another site"));
    match one(fields, &FETCH_SITE) {
        Some("same-origin") => {}
        Some("none") if is_read => {}
        Some(_) => return refused,
        None if fields.contains_key(&FETCH_SITE) => return refused,
        None => {}
    }
    let is_own = |origin: &str| {
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    };
    match fields.contains_key(ORIGIN) && !one(fields, &ORIGIN).is_some_and(is_own) {
        true => refused,
        false => Ok(()),
    }
}

/// The value of a field that occurs once, as text.
fn one<'f>(fields: &'f HeaderMap, name: &HeaderName) -> Option<&'f str> {
    let mut values = fields.get_all(name).iter();
    let value = values.next()?.to_str().ok();
    if values.next().is_some() { None } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY_TEXT: &str = "0123456789abcdef";

    /// Checks method, path and field lines. Returns the status of the rejection, or 0.
    fn judged(gate: &Gate<'_>, method: &str, path: &str, lines: &[(&str, &str)]) -> u16 {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().expect("it is a name");
            fields.append(name, value.parse().expect("it is a value"));
        }
        let method = method.parse().expect("it is a method");
        gate.admit(&method, path, &fields).map_or_else(|(status, _)| status.as_u16(), |()| 0)
    }

    #[test]
    fn only_known_hosts_are_answered() {
        let hosts = ["proxy.example.com".to_owned()];
        let gate = Gate { hosts: &hosts, tokens: None, is_writable: false, key: KEY_TEXT };
        for (host, expected) in [
            ("127.0.0.1:9901", 0),
            ("127.0.0.1", 0),
            ("[::1]:9901", 0),
            ("LOCALHOST:9901", 0),
            ("Proxy.Example.com:9901", 0),
            ("proxy.example.com", 0),
            ("attacker.example", 421),
            ("attacker.example:9901", 421),
            ("localhost.attacker.example", 421),
            ("127.0.0.1.attacker.example", 421),
            ("localhost:x", 421),
            ("", 421),
        ] {
            for path in ["/", "/api/status"] {
                assert_eq!(judged(&gate, "GET", path, &[("host", host)]), expected, "{host} {path}");
            }
        }
        assert_eq!(judged(&gate, "GET", "/", &[]), 400);
        assert_eq!(judged(&gate, "GET", "/", &[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn changes_are_those_of_the_page_itself_and_only_where_they_are_allowed() {
        let host = ("host", "127.0.0.1:9901");
        let (key, own) = (("x-vanward-session", KEY_TEXT), ("origin", "http://127.0.0.1:9901"));
        let (same, cross) = (("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site"));
        let other = ("origin", "https://attacker.example");
        for (method, path, lines, writable, read_only) in [
            ("GET", "/api/status", vec![], 0, 0),
            ("GET", "/api/status", vec![same], 0, 0),
            ("GET", "/api/status", vec![("sec-fetch-site", "none")], 0, 0),
            ("GET", "/api/status", vec![cross], 403, 403),
            ("GET", "/api/status", vec![("sec-fetch-site", "same-site")], 403, 403),
            ("GET", "/api/status", vec![other], 403, 403),
            ("GET", "/", vec![cross], 0, 0),
            ("POST", "/api/reload", vec![key, own, same], 0, 403),
            ("POST", "/api/reload", vec![key], 0, 403),
            ("POST", "/api/reload", vec![own, same], 403, 403),
            ("POST", "/api/reload", vec![("x-vanward-session", "0123"), own, same], 403, 403),
            ("POST", "/api/reload", vec![key, key], 403, 403),
            ("POST", "/api/reload", vec![key, other], 403, 403),
            ("POST", "/api/reload", vec![key, ("origin", "null")], 403, 403),
            ("POST", "/api/reload", vec![key, own, own], 403, 403),
            ("POST", "/api/reload", vec![key, cross], 403, 403),
            ("POST", "/api/reload", vec![key, ("sec-fetch-site", "none")], 403, 403),
            ("DELETE", "/api/faults", vec![key, own, same], 0, 403),
            ("POST", "/api/cache/explain", vec![key, own, same], 0, 0),
            ("POST", "/api/cache/explain", vec![own, same], 403, 403),
            ("POST", "/api/routes/explain", vec![key, own, same], 0, 0),
            ("POST", "/api/routes/explain", vec![key, other], 403, 403),
        ] {
            for (is_writable, expected) in [(true, writable), (false, read_only)] {
                let gate = Gate { hosts: &[], tokens: None, is_writable, key: KEY_TEXT };
                let lines = [&[host][..], &lines].concat();
                assert_eq!(judged(&gate, method, path, &lines), expected, "{method} {path} {lines:?}");
            }
        }
    }

    #[test]
    fn a_token_is_needed_for_all_but_the_page() {
        let tokens =
            [Box::from(&b"first-token-of-the-file-1"[..]), Box::from(&b"second-token-of-the-file"[..])];
        let gate = Gate { hosts: &[], tokens: Some(&tokens), is_writable: true, key: KEY_TEXT };
        let host = ("host", "192.0.2.1:9901");
        assert_eq!(judged(&gate, "GET", "/", &[host]), 0);
        for (value, expected) in [
            ("Bearer first-token-of-the-file-1", 0),
            ("bearer second-token-of-the-file", 0),
            ("Bearer first-token-of-the-file-2", 401),
            ("Bearer first-token", 401),
            ("Bearer ", 401),
            ("Bearer", 401),
            ("Basic first-token-of-the-file-1", 401),
        ] {
            assert_eq!(
                judged(&gate, "GET", "/api/status", &[host, ("authorization", value)]),
                expected,
                "{value}"
            );
        }
        assert_eq!(judged(&gate, "GET", "/api/status", &[host]), 401);
    }
}
