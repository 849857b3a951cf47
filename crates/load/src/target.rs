//! Servers and requests of a run: URLs are resolved and requests rendered once, before the run.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};

use ::http::header::CONTENT_LENGTH;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::breakdown::Table;
use crate::error::Error;
use crate::plan::{Breakdown, CONNECTIONS_MAX, Plan};
use crate::random::Random;
use crate::tls;

/// Maximum bytes of all rendered requests together.
const RENDERED_BYTES_MAX: usize = 1 << 30;

/// The requests of a run in their order, and their servers. Shared by all threads, never changed.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) requests: Requests,
    pub(crate) servers: Vec<Server>,
    /// TLS configuration, if any server uses TLS.
    pub(crate) tls: Option<ClientConfig>,
    /// Tables that the requests are recorded in.
    pub(crate) tables: Vec<Table>,
}

/// Rendered requests, at least one, for the run's HTTP version.
#[derive(Debug)]
pub(crate) enum Requests {
    Http1(Vec<Request>),
    Http2(Vec<Message>),
}

impl Requests {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Http1(requests) => requests.len(),
            Self::Http2(messages) => messages.len(),
        }
    }
}

/// A rendered HTTP/1.1 request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Index into `Targets::servers`.
    pub(crate) server: usize,
    pub(crate) bytes: Box<[u8]>,
}

/// An HTTP/2 request; its body is the plan's.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Index into `Targets::servers`.
    pub(crate) server: usize,
    pub(crate) head: ::http::Request<()>,
}

/// A server: one host and port.
#[derive(Debug)]
pub(crate) struct Server {
    /// Addresses of the server, at least one, tried in their order.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Name that the server's certificate must have; `None` for plain HTTP.
    pub(crate) tls_name: Option<ServerName<'static>>,
}

impl Targets {
    /// Parses and resolves all URLs of the plan, and renders their requests.
    pub(crate) fn new(plan: &Plan) -> Result<Self, Error> {
        let form = Form::new(plan)?;
        let mut servers = Servers::default();
        let (mut requests, mut messages, mut rendered_bytes) = (Vec::new(), Vec::new(), 0);
        for text in &plan.urls {
            let refused = |reason| Error::Url { url: shortened(text), reason };
            let url = Url::parse(text).map_err(refused)?;
            let server = servers.find(&url)?;
            if plan.http2 {
                rendered_bytes += size_of::<Message>() + text.len();
                messages.push(Message { server, head: form.message(&url).map_err(refused)? });
            } else {
                let bytes = form.render(&url);
                rendered_bytes += bytes.len();
                requests.push(Request { server, bytes });
            }
            if rendered_bytes > RENDERED_BYTES_MAX {
                let expected = "small enough for all requests to fit in 1 GiB".to_owned();
                return Err(Error::Plan { what: "the URL list, with the body for each", expected });
            }
        }
        let mut tables = tables(plan);
        if let Some(seed) = plan.shuffle_seed {
            Random::new(seed).shuffle(&mut requests);
            Random::new(seed).shuffle(&mut messages);
            tables.iter_mut().for_each(|table| table.reorder(|rows| Random::new(seed).shuffle(rows)));
        }
        let servers = servers.all;
        if plan.http2 && servers.len() * plan.connections > CONNECTIONS_MAX {
            let expected = format!("at most {CONNECTIONS_MAX} with HTTP/2, one to each server");
            return Err(Error::Plan { what: "the number of connections (-c) by servers", expected });
        }
        let wants_tls = servers.iter().any(|server| server.tls_name.is_some());
        let tls = wants_tls.then(|| tls::config(plan)).transpose()?;
        let requests = if plan.http2 { Requests::Http2(messages) } else { Requests::Http1(requests) };
        Ok(Self { requests, servers, tls, tables })
    }
}

/// Tables of a run, with the labels of its URLs.
fn tables(plan: &Plan) -> Vec<Table> {
    let made = plan.tables().into_iter().map(|by| match by {
        Breakdown::Name => Table::new(by, plan, |url| name(url).to_owned()),
        _ => Table::new(by, plan, |url| url.split('#').next().unwrap_or(url).to_owned()),
    });
    made.collect()
}

/// Name of a request in tables: the fragment of its URL, which is not sent (RFC 9110 §7.1), otherwise the path.
fn name(url: &str) -> &str {
    match url.split_once('#') {
        Some((_, fragment)) if !fragment.is_empty() => fragment,
        _ => {
            let target = Url::parse(url).map_or("", |url| url.target);
            let path = target.split('?').next().unwrap_or_default();
            if path.is_empty() { "/" } else { path }
        }
    }
}

/// The servers of a URL list, each resolved once.
#[derive(Debug, Default)]
struct Servers<'u> {
    all: Vec<Server>,
    known: HashMap<(&'u str, u16, Scheme), usize>,
}

impl<'u> Servers<'u> {
    fn find(&mut self, url: &Url<'u>) -> Result<usize, Error> {
        let key = (url.host, url.port, url.scheme);
        if let Some(server) = self.known.get(&key) {
            return Ok(*server);
        }
        let tls_name = match url.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(ServerName::try_from(url.host.to_owned()).map_err(|_| Error::Url {
                url: shortened(url.host),
                reason: "no certificate can be for this host; write a name or an address",
            })?),
        };
        self.all.push(Server { addresses: resolve(url)?, tls_name });
        self.known.insert(key, self.all.len() - 1);
        Ok(self.all.len() - 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scheme {
    Http,
    Https,
}

/// The parts of an `http` or `https` URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Url<'a> {
    scheme: Scheme,
    /// Authority for the Host field, with the port if it was written.
    authority: &'a str,
    /// Host, without the brackets of an IPv6 address.
    host: &'a str,
    port: u16,
    /// Path and query: empty, or starting with `/` or `?`.
    target: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        let split = |prefix: &str| {
            let (scheme, rest) = text.split_at_checked(prefix.len())?;
            scheme.eq_ignore_ascii_case(prefix).then_some(rest)
        };
        let (scheme, rest) = match (split("http://"), split("https://")) {
            (Some(rest), _) => (Scheme::Http, rest),
            (None, Some(rest)) => (Scheme::Https, rest),
            (None, None) => return Err("write http://HOST[:PORT]/PATH, or the same with https"),
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
            return Err("the host is missing; write it as http://HOST[:PORT]/PATH");
        }
        let port = match port {
            "" if scheme == Scheme::Https => 443,
            "" => 80,
            _ => port
                .strip_prefix(':')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|port| *port != 0)
                .ok_or("the port is not a number from 1 to 65535")?,
        };
        Ok(Self { scheme, authority, host, port, target })
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

/// Common parts of all requests of a run.
#[derive(Debug)]
struct Form<'a> {
    method: &'a str,
    /// Value of a given Host field.
    host: Option<&'a str>,
    /// HTTP/1.1: the fields after Host, the empty line and the body.
    tail: Vec<u8>,
    /// HTTP/2: the given header fields.
    fields: HeaderMap,
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
        let (mut host, mut tail, mut fields) = (None, Vec::new(), HeaderMap::new());
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
                // RFC 9113 §8.2.2: fields that are about one connection.
                "connection" | "keep-alive" | "proxy-connection" | "upgrade" if plan.http2 => {
                    return refused("header", field, "HTTP/2 has no such field; leave it out");
                }
                "te" if plan.http2 && value != "trailers" => {
                    return refused("header", field, "the only TE of HTTP/2 is 'TE: trailers'");
                }
                _ => {
                    tail.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                    let known = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
                    let (Ok(name), Ok(value)) = known else {
                        return refused("header", field, "it cannot be sent; write 'Name: value'");
                    };
                    fields.append(name, value);
                }
            }
        }
        // RFC 9110 §8.6: a method that expects content has a length even if that is 0.
        if !plan.body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            tail.extend_from_slice(format!("Content-Length: {}\r\n", plan.body.len()).as_bytes());
            fields.insert(CONTENT_LENGTH, plan.body.len().into());
        }
        if !plan.keepalive {
            tail.extend_from_slice(b"Connection: close\r\n");
        }
        tail.extend_from_slice(b"\r\n");
        tail.extend_from_slice(&plan.body);
        Ok(Self { method, host, tail, fields })
    }

    fn render(&self, url: &Url<'_>) -> Box<[u8]> {
        let slash = if url.target.starts_with('/') { "" } else { "/" };
        let host = self.host.unwrap_or(url.authority);
        let head = format!("{} {slash}{} HTTP/1.1\r\nHost: {host}\r\n", self.method, url.target);
        [head.as_bytes(), &self.tail].concat().into_boxed_slice()
    }

    /// Head of an HTTP/2 request. Method, URL and Host become pseudo-header fields.
    fn message(&self, url: &Url<'_>) -> Result<::http::Request<()>, &'static str> {
        let slash = if url.target.starts_with('/') { "" } else { "/" };
        let uri = Uri::builder()
            .scheme(if url.scheme == Scheme::Https { "https" } else { "http" })
            .authority(self.host.unwrap_or(url.authority))
            .path_and_query(format!("{slash}{}", url.target))
            .build()
            .map_err(|_| "it has a character that no URL may have; percent-encode it")?;
        let mut head = ::http::Request::new(());
        *head.method_mut() =
            Method::from_bytes(self.method.as_bytes()).map_err(|_| "the method is not one")?;
        *head.uri_mut() = uri;
        *head.version_mut() = Version::HTTP_2;
        *head.headers_mut() = self.fields.clone();
        Ok(head)
    }
}

/// Whether text is a token (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

/// The start of a value, for error messages.
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

    fn requests(plan: &Plan) -> Vec<Request> {
        match Targets::new(plan).expect("a good plan").requests {
            Requests::Http1(requests) => requests,
            Requests::Http2(_) => panic!("this plan is of HTTP/1.1"),
        }
    }

    fn rendered(plan: &Plan) -> Vec<String> {
        let requests = requests(plan);
        requests.iter().map(|request| String::from_utf8_lossy(&request.bytes).into_owned()).collect()
    }

    #[test]
    fn urls_in_their_parts() {
        use Scheme::{Http, Https};
        let cases = [
            ("http://a/b?c", (Http, "a", "a", 80, "/b?c")),
            ("HTTP://a.b:8080", (Http, "a.b:8080", "a.b", 8080, "")),
            ("http://[::1]:81/#top", (Http, "[::1]:81", "::1", 81, "/")),
            ("http://[::1]", (Http, "[::1]", "::1", 80, "")),
            ("http://a?q=/x", (Http, "a", "a", 80, "?q=/x")),
            ("https://a/", (Https, "a", "a", 443, "/")),
            ("HTTPS://[::1]:8443", (Https, "[::1]:8443", "::1", 8443, "")),
        ];
        for (text, (scheme, authority, host, port, target)) in cases {
            assert_eq!(Url::parse(text), Ok(Url { scheme, authority, host, port, target }), "{text}");
        }
        let refused = [
            "",
            "a",
            "/",
            "ftp://a/",
            "httpss://a/",
            "https:/a/",
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
    fn rfc_9113_8_3_a_message_has_what_a_request_line_and_host_say() {
        let plan = Plan {
            method: "POST".into(),
            headers: vec!["Host: other".into(), "X-A: b".into(), "X-A: c".into()],
            body: b"hi".to_vec(),
            http2: true,
            ..Plan::new("https://127.0.0.1:9?x")
        };
        let Requests::Http2(messages) = Targets::new(&plan).expect("a good plan").requests else {
            panic!("this plan is of HTTP/2")
        };
        let head = &messages[0].head;
        assert_eq!((head.method().as_str(), head.uri().to_string().as_str()), ("POST", "https://other/?x"));
        let fields: Vec<_> =
            head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(fields, [("x-a", &b"b"[..]), ("x-a", b"c"), ("content-length", b"2")]);
        for header in ["Connection: close", "Upgrade: x", "TE: gzip"] {
            let plan = Plan { headers: vec![header.into()], ..plan.clone() };
            assert!(matches!(Targets::new(&plan), Err(Error::Request { what: "header", .. })), "{header}");
        }
    }

    #[test]
    fn a_host_and_port_is_another_server_with_tls() {
        let urls = ["http://127.0.0.1:9/", "https://127.0.0.1:9/", "https://127.0.0.1:9/again"];
        let tls = crate::plan::Tls { verify: false, ..crate::plan::Tls::default() };
        let plan = Plan { urls: urls.map(str::to_owned).into(), tls, ..Plan::default() };
        let targets = Targets::new(&plan).expect("a good plan");
        let names: Vec<bool> = targets.servers.iter().map(|server| server.tls_name.is_some()).collect();
        assert_eq!((names, targets.tls.is_some()), (vec![false, true], true));
    }

    #[test]
    fn a_name_is_the_fragment_of_the_url_or_its_path() {
        for (url, expected) in [
            ("http://a/b?c#search", "search"),
            ("http://a/b?c#", "/b"),
            ("http://a/b/c?d=/e", "/b/c"),
            ("http://a?x", "/"),
            ("http://a", "/"),
        ] {
            assert_eq!(name(url), expected, "{url}");
        }
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
        let requests = requests(&plan(None));
        assert!(requests[3].bytes.starts_with(b"GET /3 "));
        assert_eq!(requests[3].server, 1);
        assert_eq!(rendered(&plan(Some(1))), rendered(&plan(Some(1))));
        assert_ne!(rendered(&plan(Some(1))), rendered(&plan(None)));
    }
}
