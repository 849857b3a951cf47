//! Requests to a peer and to Vanward, and the compared responses.

use std::io::{Read, Write};
use std::net::SocketAddr;

use crate::process::connect;

pub(crate) const PATHS: [&str; 24] = [
    "/",
    "/index.html",
    "/new.html",
    "/assets/app.js",
    "/assets/none.js",
    "/api",
    "/api/",
    "/api/users?id=1",
    "/health",
    "/files/a.txt",
    "/files/none",
    "/old",
    "/ws",
    "/private/x",
    "/missing",
    "/admin/",
    "/inside/",
    "/lan/x",
    "/images/a.png",
    "/a.PNG",
    "/user/7",
    "/exact.png",
    "/docs/a/b",
    "/.git/config",
];

const FIELDS: [&str; 13] = [
    "location",
    "cache-control",
    "x-frame-options",
    "x-served-by",
    "x-site",
    "x-powered-by",
    "www-authenticate",
    "expires",
    "content-encoding",
    "content-range",
    "strict-transport-security",
    "upgrade",
    "access-control-allow-origin",
];

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) host: &'static str,
    pub(crate) target: &'static str,
    /// Each with its end of line.
    pub(crate) fields: String,
    pub(crate) body: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Got {
    /// 0: the connection ended without a response.
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) fn asks(hosts: &[&'static str]) -> Vec<Ask> {
    let plain = |method, host, target| Ask { method, host, target, fields: String::new(), body: "" };
    let mut asks = Vec::new();
    for host in hosts {
        for target in PATHS {
            asks.extend(["GET", "HEAD"].map(|method| plain(method, host, target)));
        }
    }
    let host = hosts[0];
    for target in ["/", "/api/users", "/files/a.txt", "/admin/", "/old", "/login"] {
        asks.extend(["OPTIONS", "DELETE", "PUT"].map(|method| plain(method, host, target)));
        let fields = |fields: &str| Ask { fields: fields.to_owned(), ..plain("GET", host, target) };
        asks.push(fields("Range: bytes=0-0\r\n"));
        asks.push(fields("Range: bytes=900000-\r\n"));
        asks.push(fields("If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT\r\n"));
        asks.push(fields("If-None-Match: \"none\"\r\n"));
        asks.push(fields("Accept-Encoding: gzip\r\n"));
        asks.push(fields("User-Agent: sqlmap/1.0\r\n"));
        asks.push(fields("X-Forbidden: 1\r\n"));
        asks.push(fields("Cookie: a=1; group=beta\r\n"));
        asks.push(fields("Authorization: Basic YWxpY2U6c2VjcmV0\r\n"));
        asks.push(Ask { body: "a=1&b=2", ..plain("POST", host, target) });
        let chunked = "Transfer-Encoding: chunked\r\n".to_owned();
        asks.push(Ask { body: "3\r\nabc\r\n0\r\n\r\n", fields: chunked, ..plain("POST", host, target) });
    }
    for target in ODD {
        asks.push(plain("GET", host, target));
    }
    for host in ["nobody.example", "APP.example.com", "app.example.com:8080", "127.0.0.1", "app.example.com."]
    {
        asks.extend(["/", "/api/x", "/admin/x"].map(|target| plain("GET", host, target)));
    }
    let many: String = (0..60).map(|number| format!("X-Field-{number}: {number}\r\n")).collect();
    let odd = [
        format!("X-Long: {}\r\n", "a".repeat(6000)),
        many,
        "X-Odd: \u{e4}\u{f6}\r\n".to_owned(),
        "X-Odd:\t tabbed \r\n".to_owned(),
        "X-Odd: 1\r\nX-Odd: 2\r\n".to_owned(),
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            .to_owned(),
        "X-Forwarded-For: 10.0.0.1\r\n".to_owned(),
        "X-Secret: mine\r\n".to_owned(),
    ];
    for fields in odd {
        asks.push(Ask { fields, ..plain("GET", host, "/ws") });
    }
    // More requests than any sample's rate allows.
    asks.extend((0..8).map(|_| plain("GET", host, "/login")));
    asks
}

/// Paths that servers read in several ways, and unusual targets.
const ODD: [&str; 18] = [
    "/%61pi/users",
    "/api%2Fusers",
    "/%2e%2e/admin",
    "/a/../admin/",
    "/./admin/",
    "/a/b/../../api/",
    "//api/users",
    "/api//users",
    "/api/..;/admin",
    "/admin;v=1/x",
    "/adminx",
    "/API/users",
    "/?path=/admin/",
    "/a%20b",
    "/a%00b",
    "/%zz",
    "/api?a=1&a=2&empty=&%61=%62",
    "/a+b/~c/'d'",
];

/// Sends a request, and reads the response to its end.
pub(crate) fn ask(address: SocketAddr, ask: &Ask) -> Got {
    let mut stream = connect(address);
    let Ask { method, host, target, fields, body } = ask;
    let length = if fields.contains("Transfer-Encoding") || body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let close = if fields.contains("Upgrade") { "" } else { "Connection: close\r\n" };
    let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{close}{length}{fields}\r\n{body}");
    // A server that rejects a request may close before it has read everything.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    while !is_whole(&bytes, method) {
        match stream.read(&mut piece) {
            Ok(length @ 1..) => bytes.extend_from_slice(&piece[..length]),
            _ => break,
        }
    }
    got(&bytes)
}

/// Whether a response is complete, if its head determines the end.
fn is_whole(bytes: &[u8], method: &str) -> bool {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let body = &bytes[end + 4..];
    let value = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let status = head.get(9..12).unwrap_or_default();
    if method == "HEAD" || matches!(status, "204" | "304") {
        return true;
    }
    match (status, value("content-length:"), value("transfer-encoding:")) {
        ("101", ..) => body.len() >= 5,
        (_, Some(length), _) => length.parse().is_ok_and(|length: usize| body.len() >= length),
        (.., Some(_)) => body.ends_with(b"0\r\n\r\n"),
        _ => false,
    }
}

fn got(bytes: &[u8]) -> Got {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Got { status: 0, fields: Vec::new(), body: String::new() };
    };
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.get(9..12)?.parse().ok()).unwrap_or(0);
    let all: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let is_chunked = all.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let is_coded = all.iter().any(|(name, _)| name == "content-encoding");
    let mut fields: Vec<_> = all.into_iter().filter(|(name, _)| FIELDS.contains(&name.as_str())).collect();
    fields.sort();
    let body = match () {
        // Compressors differ.
        () if is_coded => if body.is_empty() { "" } else { "coded" }.to_owned(),
        () if is_chunked => dechunked(body),
        () => body.to_owned(),
    };
    Got { status, fields, body }
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.split(';').next().unwrap_or_default(), 16).unwrap_or(0);
        let Some(piece) = rest.get(..length).filter(|_| length > 0) else { break };
        whole += piece;
        body = rest.get(length + 2..).unwrap_or_default();
    }
    whole
}
