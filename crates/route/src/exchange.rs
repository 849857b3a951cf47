//! What is known of an exchange where a template is filled in.

use crate::pattern::Captures;
use crate::request::Request;

/// A request and what became of it so far. What is not known yet, or not there, is empty.
#[derive(Debug)]
pub struct Exchange<'a, F: ?Sized> {
    /// As the client sent it.
    pub request: Request<'a, F>,
    /// `http` or `https`, as the client spoke it.
    pub scheme: &'a str,
    /// The host that the client asked for, without port.
    pub host: &'a [u8],
    /// The port that it asked.
    pub port: u16,
    /// Names the request in logs.
    pub request_id: &'a [u8],
    /// Who has given the right password.
    pub user: &'a str,
    /// The name of its route.
    pub route: &'a str,
    /// The name of the route's upstream.
    pub upstream: &'a str,
    /// The server that the request goes to or went to, as `host:port`.
    pub server: &'a str,
    /// The status of the response; `None` before there is one.
    pub status: Option<u16>,
    /// What the client proved and asked for under TLS.
    pub tls: ClientTls<'a>,
    /// Of the pattern whose groups a template names; see [`Pattern::captures`](crate::Pattern::captures).
    pub captures: Option<&'a Captures>,
}

/// The TLS session of a client; all empty without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientTls<'a> {
    /// The host that it asked for (RFC 6066 §3).
    pub server_name: &'a str,
    /// The subject of its verified certificate.
    pub subject: &'a str,
    /// The SHA-256 of that certificate, in hexadecimal digits.
    pub fingerprint: &'a str,
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'a str,
    /// The cipher suite, as the IANA names it.
    pub cipher: &'a str,
    /// The protocol that was agreed on (RFC 7301): `h2` or `http/1.1`.
    pub alpn: &'a str,
}

impl<F: ?Sized> Clone for Exchange<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: ?Sized> Copy for Exchange<'_, F> {}

impl<'a, F: ?Sized> Exchange<'a, F> {
    /// An exchange of which no more is known than the request.
    pub fn of(request: Request<'a, F>, scheme: &'a str) -> Self {
        Self {
            host: request.host,
            port: if scheme == "https" { 443 } else { 80 },
            request,
            scheme,
            request_id: b"",
            user: "",
            route: "",
            upstream: "",
            server: "",
            status: None,
            tls: ClientTls::default(),
            captures: None,
        }
    }
}
