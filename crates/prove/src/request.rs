//! Requests of a proof: as bytes, and as a command line of curl.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::old::{OldDoor, StatementPlace};

/// Longer bodies of captured requests are not shown.
const SHOWN_BODY_MAX: usize = 400;
/// The field that numbers requests, and tells the server how to answer.
pub const MARK: &str = "X-Vanward-Proof";

/// The answer of the server to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginBehaviour {
    /// 200 with a page.
    Page,
    /// 404.
    Missing,
    /// 503.
    Unavailable,
    /// 401.
    Unauthorized,
    /// 302 to a URL on itself.
    Redirect,
    /// A page that may be cached for an hour, with a cookie.
    Cookie,
    /// A page that may be cached for an hour.
    Cacheable,
    /// A page for one user only.
    Private,
    /// 302 to a path.
    Moved,
    /// A page, once all concurrent requests have arrived or were refused.
    Late,
}

impl OriginBehaviour {
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Page, "page"),
        (Self::Missing, "missing"),
        (Self::Unavailable, "unavailable"),
        (Self::Unauthorized, "unauthorized"),
        (Self::Redirect, "redirect"),
        (Self::Cookie, "cookie"),
        (Self::Cacheable, "cacheable"),
        (Self::Private, "private"),
        (Self::Moved, "moved"),
        (Self::Late, "late"),
    ];

    /// Returns the answers to requests that are sent one at a time.
    pub(crate) fn usual() -> &'static [(Self, &'static str)] {
        &Self::ALL[..Self::ALL.len() - 1]
    }

    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(known, _)| *known == self).map_or("page", |(_, word)| word)
    }

    /// Reads the second word of the field [`MARK`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(known, _)| *known)
    }
}

/// The field by which servers vary stored responses: each request has its own, so that none depends on earlier ones.
pub const SHARE: &str = "X-Vanward-Share";

/// The place of a request among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestRow {
    /// Behind the response to the one before.
    Alone,
    /// As [`RequestRow::Alone`]: one of many of a client, of which a limit refuses some.
    InARow,
    /// Beside others: several concurrent ones of a client, of which a limit refuses some.
    AtOnce,
}

/// The field and the key of a WebSocket request (RFC 6455 §4.1), and the value that accepts it.
const UPGRADE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
pub const WEBSOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofRequest {
    pub number: usize,
    /// Index of the door.
    pub door: usize,
    pub client: Ipv4Addr,
    /// The network of the old configuration that the client is in.
    pub network: Option<String>,
    pub method: String,
    /// Without a port.
    pub host: String,
    pub target: String,
    pub fields: Vec<(String, String)>,
    /// Length of the body; none for a request without one.
    pub body: Option<usize>,
    /// The body of a captured request; none for the letter x, `body` times.
    pub content: Option<Vec<u8>>,
    /// Whether the body is sent chunked, without its length.
    pub is_chunked: bool,
    pub behaviour: OriginBehaviour,
    /// The statement that the request is for.
    pub aim: Option<StatementPlace>,
    pub row: RequestRow,
    /// Whether it is sent as HTTP/2.
    pub is_http2: bool,
    /// Whether it may get what is stored for the request before.
    pub follows: bool,
    /// The number of the request whose stored response it may get; none where nothing is stored.
    pub share: Option<usize>,
    /// The time of a captured request, since the first one.
    pub due: Option<Duration>,
}

impl ProofRequest {
    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A GET without fields of its own.
    pub(crate) fn plain(door: usize, host: &str, target: &str) -> Self {
        Self {
            number: 0,
            door,
            client: Ipv4Addr::LOCALHOST,
            network: None,
            method: "GET".to_owned(),
            host: host.to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
            body: None,
            content: None,
            is_chunked: false,
            behaviour: OriginBehaviour::Page,
            aim: None,
            row: RequestRow::Alone,
            is_http2: false,
            follows: false,
            share: None,
            due: None,
        }
    }

    /// The first field of a name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Whether it asks for a WebSocket.
    pub fn is_upgrade(&self) -> bool {
        self.fields.iter().any(|(name, _)| name == "Upgrade")
    }

    /// The request for a WebSocket instead.
    pub(crate) fn upgraded(mut self) -> Self {
        self.method = "GET".to_owned();
        self.body = None;
        self.fields.retain(|(name, _)| !UPGRADE.iter().any(|(known, _)| name.eq_ignore_ascii_case(known)));
        self.fields.extend(UPGRADE.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self
    }

    /// The request as HTTP/1.1. `door` is where it is sent.
    pub fn bytes(&self, door: &OldDoor) -> Vec<u8> {
        let authority = door.authority(&self.host);
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {authority}\r\n", self.method, self.target);
        let _ = write!(head, "{MARK}: {} {}\r\n", self.number, self.behaviour.word());
        if let Some(share) = self.share {
            let _ = write!(head, "{SHARE}: {share}\r\n");
        }
        for (name, value) in &self.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let length = self.body.unwrap_or(0);
        let (framing, before, behind) = match self.body {
            None => (String::new(), String::new(), ""),
            // RFC 9112 §7.1
            Some(1..) if self.is_chunked => {
                ("Transfer-Encoding: chunked\r\n".to_owned(), format!("{length:x}\r\n"), "\r\n0\r\n\r\n")
            }
            Some(_) => (format!("Content-Length: {length}\r\n"), String::new(), ""),
        };
        let mut bytes = format!("{head}{framing}\r\n{before}").into_bytes();
        match &self.content {
            Some(content) => bytes.extend(content),
            None => bytes.resize(bytes.len() + length, b'x'),
        }
        bytes.extend(behind.as_bytes());
        bytes
    }

    /// Writes the request as a command line for the old proxy.
    pub fn curl(&self, door: &OldDoor) -> String {
        let scheme = if door.is_tls { "https" } else { "http" };
        let mut line = "curl -i --path-as-is".to_owned();
        match self.is_http2 {
            true => line += " --http2",
            false if door.has_http2 => line += " --http1.1",
            false => {}
        }
        if self.is_upgrade() {
            line += " -N";
        }
        if !self.target.starts_with('/') {
            let _ = write!(line, " --request-target {}", quoted(&self.target));
        }
        match self.method.as_str() {
            "HEAD" => line += " -I",
            "GET" if self.body.is_none() => {}
            method => {
                let _ = write!(line, " -X {}", quoted(method));
            }
        }
        for (name, value) in &self.fields {
            // curl sends no field with an empty value, unless it ends with a semicolon.
            let field = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
            let _ = write!(line, " -H {}", quoted(&field));
        }
        if self.is_chunked {
            line += " -H 'Transfer-Encoding: chunked'";
        }
        let text = self.content.as_deref().and_then(|content| str::from_utf8(content).ok());
        match self.body {
            Some(_) if let Some(text) = text.filter(|text| text.len() <= SHOWN_BODY_MAX) => {
                let _ = write!(line, " --data-binary {}", quoted(text));
            }
            Some(length @ ..=40) => {
                let _ = write!(line, " --data-binary {}", quoted(&"x".repeat(length)));
            }
            Some(length) => {
                let _ = write!(line, " --data-binary \"$(head -c {length} /dev/zero | tr '\\0' x)\"");
            }
            None => {}
        }
        let path = if self.target.starts_with('/') { self.target.as_str() } else { "/" };
        let url = format!("{scheme}://{}{path}", door.authority(&self.host));
        let _ = write!(line, " {}", quoted(&url));
        if let Some(network) = &self.network {
            let _ = write!(line, "  # from a client in {network}");
        }
        match self.row {
            RequestRow::Alone => {}
            RequestRow::InARow => line += "  # many in a row",
            RequestRow::AtOnce => line += "  # several at the same time",
        }
        if self.behaviour != OriginBehaviour::Page {
            let _ = write!(line, "  # the server answers: {}", self.behaviour.word());
        }
        if self.follows && self.share.is_some() {
            line += "  # behind the same request without what is special here";
        }
        line
    }
}

/// A request that Traefik answers with 404 until it has read its file.
pub fn readiness(door: usize) -> ProofRequest {
    ProofRequest::plain(door, "ready.example", crate::traefik::READY)
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/:.-_,=@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn get(host: &str, target: &str) -> ProofRequest {
        ProofRequest {
            number: 7,
            client: Ipv4Addr::new(127, 64, 0, 1),
            ..ProofRequest::plain(0, host, target)
        }
    }

    fn door(port: u16, is_tls: bool) -> OldDoor {
        OldDoor { host: "*".to_owned(), port, is_tls, has_proxy_header: false, has_http2: false }
    }

    #[test]
    fn a_request_has_its_number_and_the_usual_port_is_omitted() {
        let mut request = get("a.example.com", "/x?y=1");
        request.fields.push(("X-A".to_owned(), "b".to_owned()));
        request.body = Some(3);
        let bytes = |door: &OldDoor| String::from_utf8(request.bytes(door)).expect("it is text");
        let rest = "\r\nX-Vanward-Proof: 7 page\r\nX-A: b\r\nContent-Length: 3\r\n\r\nxxx";
        assert_eq!(bytes(&door(80, false)), format!("GET /x?y=1 HTTP/1.1\r\nHost: a.example.com{rest}"));
        assert_eq!(
            bytes(&door(8080, false)),
            format!("GET /x?y=1 HTTP/1.1\r\nHost: a.example.com:8080{rest}")
        );
    }

    #[test]
    fn command_lines_are_quoted_for_a_shell() {
        let mut request = get("a.example.com", "/x'y?a=1&b");
        assert_eq!(
            request.curl(&door(80, false)),
            "curl -i --path-as-is 'http://a.example.com/x'\\''y?a=1&b'"
        );
        request.target = "/x".to_owned();
        request.method = "PUT".to_owned();
        request.body = Some(1000);
        request.network = Some("10.0.0.0/8".to_owned());
        request.behaviour = OriginBehaviour::Missing;
        request.fields.push(("Cookie".to_owned(), "a=b; c=d".to_owned()));
        assert_eq!(
            request.curl(&door(8443, true)),
            "curl -i --path-as-is -X PUT -H 'Cookie: a=b; c=d' --data-binary \"$(head -c 1000 /dev/zero | tr '\\0' x)\" \
             https://a.example.com:8443/x  # from a client in 10.0.0.0/8  # the server answers: missing"
        );
    }

    #[test]
    fn command_lines_name_the_version_of_http_and_what_goes_with_the_request() {
        let both = OldDoor { has_http2: true, ..door(443, true) };
        let request = get("a", "/");
        assert_eq!(request.curl(&both), "curl -i --path-as-is --http1.1 https://a/");
        let http2 = ProofRequest { is_http2: true, row: RequestRow::AtOnce, ..request.clone() };
        assert_eq!(http2.curl(&both), "curl -i --path-as-is --http2 https://a/  # several at the same time");
        let upgrade = request.upgraded();
        assert!(upgrade.is_upgrade());
        let line = upgrade.curl(&door(80, false));
        assert!(
            line.starts_with("curl -i --path-as-is -N -H 'Connection: Upgrade' -H 'Upgrade: websocket'"),
            "{line}"
        );
    }

    #[test]
    fn what_is_stored_is_apart_for_each_request() {
        let request = ProofRequest { share: Some(3), follows: true, ..get("a", "/") };
        let head = String::from_utf8(request.bytes(&door(80, false))).expect("it is text");
        assert!(head.contains("\r\nX-Vanward-Share: 3\r\n"), "{head}");
    }
}
