//! Where requests go and what is sent: URLs become addresses and rendered request bytes, once, before the run.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::Error;
use crate::plan::Plan;
use crate::random::Random;

/// All rendered requests together.
const RENDERED_BYTES_MAX: usize = 1 << 30;

/// The requests of a run in their order, and the servers they go to. Shared by all threads, never changed.
#[derive(Debug)]
pub(crate) struct Targets {
    /// At least one.
    pub(crate) requests: Vec<Request>,
    pub(crate) servers: Vec<Server>,
}

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Index into `Targets::servers`.
    pub(crate) server: usize,
    pub(crate) bytes: Box<[u8]>,
}

/// One host and port.
#[derive(Debug)]
pub(crate) struct Server {
    /// At least one, tried in their order.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Targets {
    /// Parses and resolves all URLs of the plan, and renders their requests.
    pub(crate) fn new(plan: &Plan) -> Result<Self, Error> {
        let form = Form::new(plan)?;
        let mut targets = Self { requests: Vec::with_capacity(plan.urls.len()), servers: Vec::new() };
        let mut known = std::collections::HashMap::new();
        let mut rendered_bytes = 0;
        for text in &plan.urls {
            let url = Url::parse(text).map_err(|reason| Error::Url { url: shortened(text), reason })?;
            let server = match known.get(&(url.host, url.port)) {
                Some(server) => *server,
                None => {
                    targets.servers.push(Server { addresses: resolve(&url)? });
                    known.insert((url.host, url.port), targets.servers.len() - 1);
                    targets.servers.len() - 1
                }
            };
            let bytes = form.render(&url);
            rendered_bytes += bytes.len();
            if rendered_bytes > RENDERED_BYTES_MAX {
                let expected = "small enough for all requests to fit in 1 GiB".to_owned();
                return Err(Error::Plan { what: "the URL list, with the body for each", expected });
            }
            targets.requests.push(Request { server, bytes });
        }
        if let Some(seed) = plan.shuffle_seed {
            Random::new(seed).shuffle(&mut targets.requests);
        }
        Ok(targets)
    }
}

/// An `http` URL in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Url<'a> {
    /// As in the Host field, with the port if it was written.
    authority: &'a str,
    /// Without the brackets of an IPv6 address.
    host: &'a str,
    port: u16,
    /// Empty, or starts with `/` or `?`.
    target: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        let scheme_bytes = "http://".len();
        let rest = match text.get(..scheme_bytes) {
            Some(scheme) if scheme.eq_ignore_ascii_case("http://") => &text[scheme_bytes..],
            // HTTPS belongs here, with the TLS settings beside the addresses of a server.
            _ => return Err("only http:// is spoken; write http://HOST[:PORT]/PATH"),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it has a space or a character that is not ASCII; percent-encode it");
        }
        // RFC 9110 §7.1: the fragment is not part of a request target.
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(split);
        if authority.contains('@') {
            return Err("a user name belongs into -H 'Authorization: …'");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').ok_or("the ] of the IPv6 address is missing")?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        if host.is_empty() {
            return Err("the host is missing; write http://HOST[:PORT]/PATH");
        }
        let port = match port {
            "" => 80,
            _ => port
                .strip_prefix(':')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|port| *port != 0)
                .ok_or("the port is not a number from 1 to 65535")?,
        };
        Ok(Self { authority, host, port, target })
    }
}

fn resolve(url: &Url<'_>) -> Result<Vec<SocketAddr>, Error> {
    let host = || format!("{}:{}", url.host, url.port);
    let found = (url.host, url.port).to_socket_addrs();
    let addresses: Vec<SocketAddr> =
        found.map_err(|source| Error::Resolve { host: host(), source })?.collect();
    if addresses.is_empty() {
        return Err(Error::Resolve { host: host(), source: std::io::ErrorKind::NotFound.into() });
    }
    Ok(addresses)
}

/// What all requests of a run have in common.
#[derive(Debug)]
struct Form<'a> {
    method: &'a str,
    /// The value of a Host field that was given.
    host: Option<&'a str>,
    /// Fields after Host, the empty line and the body.
    tail: Vec<u8>,
}

impl<'a> Form<'a> {
    fn new(plan: &'a Plan) -> Result<Self, Error> {
        let method = plan.method.as_str();
        let refused =
            |what, value: &str, reason| Err(Error::Request { what, value: shortened(value), reason });
        if !is_token(method) {
            return refused("method", method, "it must be a word such as GET or POST");
        }
        if method == "CONNECT" {
            return refused("method", method, "it asks for a tunnel, which has no response to measure");
        }
        let (mut host, mut tail) = (None, Vec::new());
        for field in &plan.headers {
            let Some((name, value)) = field.split_once(':') else {
                return refused("header", field, "write it as 'Name: value'");
            };
            let value = value.trim_matches([' ', '\t']);
            if !is_token(name) {
                return refused("header", field, "the name before the colon is not one; write 'Name: value'");
            }
            if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
                return refused("header", field, "the value has a control character");
            }
            match name.to_ascii_lowercase().as_str() {
                "host" => host = Some(value),
                "content-length" | "transfer-encoding" => {
                    return refused("header", field, "it follows from --body; leave it out");
                }
                _ => tail.extend_from_slice(format!("{name}: {value}\r\n").as_bytes()),
            }
        }
        // RFC 9110 §8.6: a method that expects content has a length even if that is 0.
        if !plan.body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            tail.extend_from_slice(format!("Content-Length: {}\r\n", plan.body.len()).as_bytes());
        }
        if !plan.keepalive {
            tail.extend_from_slice(b"Connection: close\r\n");
        }
        tail.extend_from_slice(b"\r\n");
        tail.extend_from_slice(&plan.body);
        Ok(Self { method, host, tail })
    }

    fn render(&self, url: &Url<'_>) -> Box<[u8]> {
        let slash = if url.target.starts_with('/') { "" } else { "/" };
        let host = self.host.unwrap_or(url.authority);
        let head = format!("{} {slash}{} HTTP/1.1\r\nHost: {host}\r\n", self.method, url.target);
        [head.as_bytes(), &self.tail].concat().into_boxed_slice()
    }
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

/// Enough of a value for its owner to find it.
fn shortened(text: &str) -> String {
    const CHARACTERS: usize = 120;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(plan: &Plan) -> Vec<String> {
        let targets = Targets::new(plan).expect("a good plan");
        targets.requests.iter().map(|request| String::from_utf8_lossy(&request.bytes).into_owned()).collect()
    }

    #[test]
    fn urls_in_their_parts() {
        let cases = [
            ("http://a/b?c", ("a", "a", 80, "/b?c")),
            ("HTTP://a.b:8080", ("a.b:8080", "a.b", 8080, "")),
            ("http://[::1]:81/#top", ("[::1]:81", "::1", 81, "/")),
            ("http://[::1]", ("[::1]", "::1", 80, "")),
            ("http://a?q=/x", ("a", "a", 80, "?q=/x")),
        ];
        for (text, (authority, host, port, target)) in cases {
            assert_eq!(Url::parse(text), Ok(Url { authority, host, port, target }), "{text}");
        }
        let refused = [
            "",
            "a",
            "/",
            "ftp://a/",
            "https://a/",
            "http://",
            "http:///x",
            "http://:80/",
            "http://a:0/",
            "http://a:+1/",
            "http://a:65536/",
            "http://a:b/",
            "http://[::1/",
            "http://[::1]x/",
            "http://u:p@a/",
            "http://a/b c",
            "http://a/\r\nX: y",
            "http://ä/",
        ];
        for text in refused {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn requests_carry_what_was_asked_and_nothing_else() {
        let plan = Plan::new("http://127.0.0.1:9?x");
        assert_eq!(rendered(&plan), ["GET /?x HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n"]);
        let plan = Plan {
            method: "POST".into(),
            headers: vec!["host: other".into(), "X-A:  b ".into()],
            body: b"hi".to_vec(),
            keepalive: false,
            ..Plan::new("http://127.0.0.1/p")
        };
        assert_eq!(
            rendered(&plan),
            ["POST /p HTTP/1.1\r\nHost: other\r\nX-A: b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"]
        );
        let plan = Plan { method: "PUT".into(), ..Plan::new("http://127.0.0.1/") };
        assert_eq!(rendered(&plan), ["PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"]);
    }

    #[test]
    fn what_would_break_a_request_is_refused() {
        let base = || Plan::new("http://127.0.0.1/");
        let bad_headers =
            ["X", ": x", "X Y: z", "X: a\r\nY: b", "Content-Length: 3", "transfer-encoding: chunked"];
        for header in bad_headers {
            let error = Targets::new(&Plan { headers: vec![header.into()], ..base() }).expect_err(header);
            assert!(matches!(error, Error::Request { what: "header", .. }), "{error}");
        }
        for method in ["", "GET /", "G\r\n", "CONNECT"] {
            let error = Targets::new(&Plan { method: method.into(), ..base() }).expect_err(method);
            assert!(matches!(error, Error::Request { what: "method", .. }), "{error}");
        }
    }

    #[test]
    fn a_list_knows_its_servers_and_is_shuffled_by_its_seed() {
        let urls: Vec<String> =
            (0..50).map(|index| format!("http://127.0.0.{}/{index}", 1 + index % 2)).collect();
        let plan = |shuffle_seed| Plan { urls: urls.clone(), shuffle_seed, ..Plan::default() };
        let targets = Targets::new(&plan(None)).expect("a good plan");
        assert_eq!(targets.servers.len(), 2);
        assert!(targets.requests[3].bytes.starts_with(b"GET /3 "));
        assert_eq!(targets.requests[3].server, 1);
        assert_eq!(rendered(&plan(Some(1))), rendered(&plan(Some(1))));
        assert_ne!(rendered(&plan(Some(1))), rendered(&plan(None)));
    }
}
