//! Replaces secrets by stable values: equal ones stay equal within a capture, and none can be computed back.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::{Capture, CapturedRequest};

/// Fields of credentials: a scheme may stand in front.
const CREDENTIALS: [&str; 2] = ["authorization", "proxy-authorization"];
/// Parts of names of fields and parameters whose values are secrets.
const SECRET_NAMES: [&str; 12] = [
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "api-key",
    "api_key",
    "session",
    "signature",
    "credential",
    "csrf",
    "auth",
];
/// Names of parameters whose values are secrets.
const SECRET_PARAMETERS: [&str; 6] = ["key", "sig", "code", "sid", "pass", "pwd"];

/// Replaces secrets with a key, which the file does not have.
pub struct Mask {
    key: [u8; 32],
    /// Names of fields, cookies and parameters whose values stay, in lower case.
    kept: Vec<String>,
    keeps_bodies: bool,
}

impl Mask {
    /// `key` is random. Captures with the same key have the same replacements.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, kept: Vec::new(), keeps_bodies: false }
    }

    /// Keeps the values of fields, cookies and parameters with these names, because the configuration asks for them.
    #[must_use]
    pub fn keeping(mut self, names: &[String]) -> Self {
        self.kept = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        self
    }

    /// Keeps bodies, with the secrets in them.
    #[must_use]
    pub fn keeping_bodies(mut self, keeps_bodies: bool) -> Self {
        self.keeps_bodies = keeps_bodies;
        self
    }

    fn keeps(&self, name: &str) -> bool {
        self.kept.iter().any(|kept| kept.eq_ignore_ascii_case(name))
    }

    /// Replaces the secrets of a capture: credentials, cookies, secret fields and parameters, and bodies if they are not
    /// kept.
    pub fn apply(&self, capture: &mut Capture) {
        if capture.is_masked {
            return;
        }
        let had_body =
            |request: &CapturedRequest| request.body.as_ref().is_some_and(|body| body.base64.is_some());
        if !self.keeps_bodies && capture.requests.iter().any(had_body) {
            capture.lacks.push("contents of bodies, which are masked".to_owned());
        }
        capture.lacks.push("passwords, tokens and values of cookies, which are masked".to_owned());
        capture.requests.iter_mut().for_each(|request| self.request(request));
        capture.is_masked = true;
    }

    /// Replaces the secrets of one request and its response.
    pub fn request(&self, request: &mut CapturedRequest) {
        request.target = self.target(&request.target);
        for (name, value) in &mut request.fields {
            *value = self.field(&name.to_ascii_lowercase(), value);
        }
        if let Some(body) = request.body.as_mut().filter(|_| !self.keeps_bodies) {
            body.base64 = None;
        }
        for (name, value) in request.response.iter_mut().flat_map(|response| &mut response.fields) {
            *value = match name.to_ascii_lowercase().as_str() {
                "location" | "content-location" | "refresh" => self.target(value),
                "www-authenticate" | "proxy-authenticate" => value.clone(),
                name => self.field(name, value),
            };
        }
    }

    /// A replacement: `masked-` and 16 hexadecimal digits, the beginning of HMAC-SHA-256 (RFC 2104).
    fn replaced(&self, secret: &str) -> String {
        let pad = |byte: u8| -> Vec<u8> {
            let padded = self.key.iter().copied().chain(std::iter::repeat_n(0, 32));
            padded.map(|key| key ^ byte).collect()
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(secret).finalize();
        let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
        let mut text = "masked-".to_owned();
        outer.iter().take(8).for_each(|byte| _ = write!(text, "{byte:02x}"));
        text
    }

    /// `name` is in lower case.
    fn field(&self, name: &str, value: &str) -> String {
        if self.keeps(name) {
            return value.to_owned();
        }
        if CREDENTIALS.contains(&name) {
            return match value.split_once(' ') {
                // RFC 7617 §2: the name and the password in base64. The name stays equal for itself.
                Some((scheme, code)) if scheme.eq_ignore_ascii_case("basic") => {
                    let decoded = BASE64_STANDARD.decode(code).unwrap_or_default();
                    let decoded = String::from_utf8_lossy(&decoded);
                    let (user, password) = decoded.split_once(':').unwrap_or((&decoded, ""));
                    let pair = format!("{}:{}", self.replaced(user), self.replaced(password));
                    format!("{scheme} {}", BASE64_STANDARD.encode(pair))
                }
                Some((scheme, rest)) => format!("{scheme} {}", self.replaced(rest)),
                None => self.replaced(value),
            };
        }
        match name {
            "cookie" => {
                let pairs = value.split(';').map(|pair| self.pair(pair.trim()));
                pairs.collect::<Vec<_>>().join("; ")
            }
            "set-cookie" => match value.split_once(';') {
                Some((pair, attributes)) => format!("{};{attributes}", self.pair(pair)),
                None => self.pair(value),
            },
            "referer" => self.target(value),
            _ if is_secret(name) => self.replaced(value),
            _ => value.to_owned(),
        }
    }

    /// Replaces the value of a cookie. A cookie without a name is replaced whole.
    fn pair(&self, pair: &str) -> String {
        match pair.split_once('=') {
            Some((_, "")) => pair.to_owned(),
            Some((name, _)) if self.keeps(name) => pair.to_owned(),
            Some((name, value)) => format!("{name}={}", self.replaced(value)),
            None if pair.is_empty() => String::new(),
            None => self.replaced(pair),
        }
    }

    /// Replaces secret parameters of a target or URL, and a user in front of a host.
    fn target(&self, target: &str) -> String {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let mut made = match path.split_once("://").and_then(|(scheme, rest)| {
            let end = rest.find('/').unwrap_or(rest.len());
            Some((scheme, rest[..end].rsplit_once('@')?, &rest[end..]))
        }) {
            Some((scheme, (user, host), rest)) => format!("{scheme}://{}@{host}{rest}", self.replaced(user)),
            None => path.to_owned(),
        };
        let Some(query) = query else { return made };
        for (index, parameter) in query.split('&').enumerate() {
            made.push(if index == 0 { '?' } else { '&' });
            match parameter.split_once('=') {
                Some((name, value))
                    if !value.is_empty() && is_secret_parameter(name) && !self.keeps(name) =>
                {
                    let _ = write!(made, "{name}={}", self.replaced(value));
                }
                _ => made += parameter,
            }
        }
        made
    }
}

/// Whether a name in lower case says that its value is a secret.
fn is_secret(name: &str) -> bool {
    let last = name.rsplit(['-', '_']).next().unwrap_or_default();
    // RFC 6455 §4.1: a number that is no secret.
    name != "sec-websocket-key"
        && (matches!(last, "key" | "pass" | "pwd") || SECRET_NAMES.iter().any(|part| name.contains(part)))
}

fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_PARAMETERS.contains(&name.as_str()) || is_secret(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CapturedBody, CapturedResponse};

    fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn capture() -> Capture {
        let request = |target: &str| CapturedRequest {
            method: "GET".to_owned(),
            target: target.to_owned(),
            fields: pairs(&[
                ("Authorization", "Bearer hunter2"),
                ("authorization", "Basic YWxpY2U6aHVudGVyMg=="),
                ("Cookie", "a=hunter2; theme=dark; hunter2"),
                ("X-Api-Key", "hunter2"),
                ("X-Key", "hunter2"),
                ("Sec-WebSocket-Key", "AAAA"),
                ("Referer", "https://alice:hunter2@a.example/?token=hunter2&page=2"),
                ("User-Agent", "curl/8.14"),
            ]),
            body: Some(CapturedBody::of(b"hunter2")),
            response: Some(CapturedResponse {
                status: 302,
                fields: pairs(&[("Set-Cookie", "a=hunter2; Path=/"), ("Location", "/?code=hunter2&next=/x")]),
                body_bytes: Some(1),
            }),
            ..Default::default()
        };
        Capture { requests: vec![request("/?key=hunter2&q=x"), request("/x")], ..Default::default() }
    }

    #[test]
    fn no_secret_is_left_and_equal_ones_stay_equal() {
        let mut masked = capture();
        Mask::new([7; 32]).apply(&mut masked);
        let text = format!("{masked:?}");
        for secret in ["hunter2", "YWxpY2U6", "aHVudGVy", "alice"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        let [first, second] = &masked.requests[..] else { panic!("{masked:?}") };
        assert_eq!(first.fields, second.fields);
        let secret = first.field("x-api-key").unwrap_or_default();
        assert!(secret.starts_with("masked-") && secret.len() == 23, "{secret}");
        assert_eq!(first.target, format!("/?key={secret}&q=x"));
        assert_eq!(first.field("authorization"), Some(format!("Bearer {secret}").as_str()));
        assert!(
            first.field("cookie").is_some_and(|cookie| cookie.starts_with(&format!("a={secret}; theme=")))
        );
        assert_eq!(first.field("user-agent"), Some("curl/8.14"));
        assert_eq!(first.field("sec-websocket-key"), Some("AAAA"));
        let location = first.response.as_ref().and_then(|response| response.field("location"));
        assert_eq!(location, Some(format!("/?code={secret}&next=/x").as_str()));
        assert!(masked.is_masked && masked.lacks.len() == 2, "{masked:?}");
        assert_eq!(first.body.as_ref().map(|body| (body.bytes, body.base64.is_none())), Some((7, true)));
        // Another key gives other values, and a masked capture stays as it is.
        let mut other = capture();
        Mask::new([8; 32]).apply(&mut other);
        assert_ne!(other.requests[0].target, first.target);
        let before = masked.clone();
        Mask::new([8; 32]).apply(&mut masked);
        assert_eq!(masked, before);
    }

    #[test]
    fn what_the_configuration_asks_for_can_stay() {
        let mut kept = capture();
        let names = ["Theme", "x-api-key", "KEY"].map(str::to_owned);
        Mask::new([7; 32]).keeping(&names).apply(&mut kept);
        let first = &kept.requests[0];
        assert_eq!((first.field("X-Api-Key"), first.target.as_str()), (Some("hunter2"), "/?key=hunter2&q=x"));
        assert!(first.field("cookie").is_some_and(|cookie| cookie.contains("; theme=dark; masked-")));
        assert!(first.field("authorization").is_some_and(|value| value.starts_with("Bearer masked-")));
        assert_eq!(first.body.as_ref().and_then(CapturedBody::content), None);
        let mut with_bodies = capture();
        Mask::new([7; 32]).keeping_bodies(true).apply(&mut with_bodies);
        let first = &with_bodies.requests[0];
        assert_eq!(first.body.as_ref().and_then(CapturedBody::content), Some(b"hunter2".to_vec()));
        assert!(first.target.starts_with("/?key=masked-") && with_bodies.lacks.len() == 1, "{with_bodies:?}");
    }

    /// RFC 4231 §4.2, with its key of 20 bytes filled up by zeros.
    #[test]
    fn replacements_are_an_hmac() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        assert_eq!(Mask::new(key).replaced("Hi There"), "masked-b0344c61d8db3853");
    }
}
