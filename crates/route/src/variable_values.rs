//! The values of variables, for filling in templates.

use crate::pattern::Captures;
use crate::request::RequestParts;

/// The values of variables: a request, and what is known of its response. Unknown or missing values are empty.
#[derive(Debug)]
pub struct VariableValues<'a, F: ?Sized> {
    /// The request, as the client sent it.
    pub request: RequestParts<'a, F>,
    /// The scheme that the client used, `http` or `https`.
    pub scheme: &'a str,
    /// The host that the client requested, without port.
    pub host: &'a [u8],
    /// The port that the client requested.
    pub port: u16,
    /// The ID of the request in logs.
    pub request_id: &'a [u8],
    /// The name of this machine.
    pub hostname: &'a str,
    /// Counts of the whole proxy. Asked only for texts with them.
    pub proxy: Option<&'a dyn ProxyCounts>,
    /// Returns the time in milliseconds since 1970. Called only for texts with the time.
    pub unix_ms: fn() -> u64,
    /// The authenticated user.
    pub user: &'a str,
    pub route: &'a str,
    pub upstream: &'a str,
    /// The server of the request, as `host:port`.
    pub server: &'a str,
    /// The status of the response; `None` before there is one.
    pub status: Option<u16>,
    pub tls: TlsFacts<'a>,
    /// The groups of the pattern that templates refer to; see [`Pattern::captures`](crate::BytePattern::captures).
    pub captures: Option<&'a Captures>,
}

/// Counts of the whole proxy, over all workers.
pub trait ProxyCounts: std::fmt::Debug {
    fn count(&self, count: ProxyCount) -> u64;
}

/// A count of the whole proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyCount {
    /// Client connections accepted since the start.
    Accepted,
    /// Client connections open now.
    Connections,
    /// Open client connections that wait for a request.
    Idle,
    /// Requests since the start.
    Requests,
    /// Requests being served now.
    Serving,
}

impl ProxyCount {
    /// Names of the variables.
    pub(crate) const NAMES: [(&'static str, Self); 5] = [
        ("proxy.accepted", Self::Accepted),
        ("proxy.connections", Self::Connections),
        ("proxy.idle", Self::Idle),
        ("proxy.requests", Self::Requests),
        ("proxy.serving", Self::Serving),
    ];
}

/// The TLS session of a client; all values are empty without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TlsFacts<'a> {
    /// SNI (RFC 6066 §3).
    pub server_name: &'a str,
    /// The subject of the client's verified certificate.
    pub subject: &'a str,
    /// The issuer of the client's verified certificate.
    pub issuer: &'a str,
    /// In hexadecimal digits.
    pub serial: &'a str,
    /// The alternative names of the client's verified certificate: `DNS:a.example,URI:spiffe://a`.
    pub names: &'a str,
    /// The SHA-256 fingerprint of the client's verified certificate, in hexadecimal digits.
    pub fingerprint: &'a str,
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'a str,
    /// The IANA name of the cipher suite.
    pub cipher: &'a str,
    /// The negotiated protocol (ALPN, RFC 7301): `h2` or `http/1.1`.
    pub alpn: &'a str,
}

impl<F: ?Sized> Clone for VariableValues<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ?Sized> Copy for VariableValues<'_, F> {}

impl<'a, F: ?Sized> VariableValues<'a, F> {
    /// Values from the request and the scheme, before anything else is known.
    pub fn from_request(request: RequestParts<'a, F>, scheme: &'a str) -> Self {
        Self {
            host: request.host,
            port: if scheme == "https" { 443 } else { 80 },
            request,
            scheme,
            request_id: b"",
            hostname: "",
            proxy: None,
            unix_ms: || 0,
            user: "",
            route: "",
            upstream: "",
            server: "",
            status: None,
            tls: TlsFacts::default(),
            captures: None,
        }
    }
}
