//! The access log's view of one finished request, borrowed from wherever its parts are. Nothing here is validated or
//! escaped: writing the line does that. A new field of the log is declared and defaulted here, named in `field`;
//! `context/record` of the proxy fills it.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use crate::line::{Pairs, limit, name};
use crate::masks::Addresses;

/// The facts about a request when its exchange ends. Bytes are as the client sent them; empty fields are logged as
/// absent.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// The authenticated user; empty if no password was asked for.
    pub user: &'a str,
    /// `http` or `https`, as the client used it.
    pub scheme: &'static str,
    /// The method; empty when no request line could be read.
    pub method: &'a [u8],
    /// The request target as the client sent it.
    pub target: &'a [u8],
    /// The version of the request; `None` when it could not be read.
    pub version: Option<Version>,
    /// The status sent to the client; 0 when the client got none.
    pub status: u16,
    /// The number of response body bytes sent to the client.
    pub body_bytes_sent: u64,
    /// The number of request bytes received, including the head.
    pub bytes_received: u64,
    /// The Referer header.
    pub referer: &'a [u8],
    /// The User-Agent header.
    pub user_agent: &'a [u8],
    /// The Host header.
    pub host: &'a [u8],
    /// The route that matched.
    pub route: Option<&'a str>,
    /// The upstream of that route.
    pub upstream: Option<&'a str>,
    /// The server of the last attempt.
    pub server: Option<&'a str>,
    /// The time from the first byte of the request to the last byte of the response.
    pub duration: Duration,
    /// The number of attempts after the first.
    pub retries: u8,
    /// The log word for the cause of the failure.
    pub cause: Option<&'static str>,
    /// Details of the failure, with the beginning of the bytes at fault.
    pub detail: Option<&'a str>,
    /// How many requests the line stands for, in hundredths: [`WHOLE`] unless it is a sample.
    pub weight: u32,
    /// The number of response bytes sent to the client, including the head.
    pub bytes_sent: u64,
    /// What the cache did, in one word; empty without a cache.
    pub cache: &'static str,
    /// What few formats tell: made only where one does ([`Needs::MORE`](crate::Needs::MORE)).
    pub more: &'a More<'a>,
}

/// What few formats tell of a request, but for the default ones. Empty fields are logged as absent here, too.
#[derive(Debug, Clone, Copy)]
pub struct More<'a> {
    /// The proxy that sent the connection, if it named the client.
    pub peer: Option<IpAddr>,
    /// The ID that servers know the request by; empty if there is none.
    pub request_id: &'a [u8],
    /// The trace that the request is in.
    pub trace_id: Option<u128>,
    /// The client's TLS session.
    pub tls: ClientTls<'a>,
    /// The time to connect to the server; `None` on a reused connection.
    pub upstream_connect: Option<Duration>,
    /// The time from the start of the attempt to the first byte of the response.
    pub upstream_first_byte: Option<Duration>,
    /// The time from the start of the attempt to the end of the response.
    pub upstream_total: Option<Duration>,
    /// The failed attempts before the last one, in order, up to the number that is recorded.
    pub retried: &'a [Retried<'a>],
    /// The total time in the wait queue for a server, over all attempts; `None` if the request did not wait.
    pub queued: Option<Duration>,
    /// Why the session moved to another server, and its previous server, if that is known.
    pub session_moved: Option<(&'static str, Option<&'a str>)>,
    /// The concurrency limit because of which the request was rejected (shedding).
    pub shed: Option<&'static str>,
    /// The fault that was injected.
    pub fault: Option<Injected<'a>>,
    /// How much of the duration the request waited neither for its client nor for a server.
    pub held: Option<Duration>,
    /// The time from the first byte of the request to the moment when the response's first byte left.
    pub first_byte: Option<Duration>,
    /// The name of the listener; empty if it is gone.
    pub listener: &'a str,
    /// The number of the worker, from 0.
    pub worker: usize,
    /// The number of the request on the client's connection, from 1; 0 without a request, and over HTTP/2.
    pub connection_request: u64,
    /// Whether the request went to the server over a connection that had been used before; `None` without a server.
    pub is_upstream_reused: Option<bool>,
    /// The header fields of request and response.
    pub headers: &'a dyn Headers,
}

/// The weight of a line that stands for one request.
pub const WHOLE: u32 = 100;

/// The header fields of a request and its response, by name.
pub trait Headers: Debug {
    /// Passes the value of each field line of the request with this name, in whatever case, to `see`.
    fn request(&self, name: &[u8], see: &mut dyn FnMut(&[u8]));
    /// The same of the response to the client.
    fn response(&self, name: &[u8], see: &mut dyn FnMut(&[u8]));
}

/// No header fields.
impl Headers for () {
    fn request(&self, _name: &[u8], _see: &mut dyn FnMut(&[u8])) {}

    fn response(&self, _name: &[u8], _see: &mut dyn FnMut(&[u8])) {}
}

impl More<'static> {
    /// Nothing of it.
    pub const NONE: Self = Self {
        peer: None,
        request_id: b"",
        trace_id: None,
        tls: ClientTls {
            version: "",
            cipher: "",
            server_name: "",
            subject: "",
            issuer: "",
            serial: "",
            names: "",
            fingerprint: "",
        },
        upstream_connect: None,
        upstream_first_byte: None,
        upstream_total: None,
        retried: &[],
        queued: None,
        session_moved: None,
        shed: None,
        fault: None,
        held: None,
        first_byte: None,
        listener: "",
        worker: 0,
        connection_request: 0,
        is_upstream_reused: None,
        headers: &(),
    };
}

impl Entry<'_> {
    /// A request of which only the client is known.
    #[must_use]
    pub const fn new(client: IpAddr) -> Self {
        Self {
            client,
            user: "",
            scheme: "",
            method: b"",
            target: b"",
            version: None,
            status: 0,
            body_bytes_sent: 0,
            bytes_received: 0,
            referer: b"",
            user_agent: b"",
            host: b"",
            route: None,
            upstream: None,
            server: None,
            duration: Duration::ZERO,
            retries: 0,
            cause: None,
            detail: None,
            weight: WHOLE,
            bytes_sent: 0,
            cache: "",
            more: &More::NONE,
        }
    }

    /// Writes the fields that both formats log as name and value: those without a place in the Combined Log Format.
    pub(crate) fn write_named(&self, addresses: Addresses, fields: &mut Pairs<'_>) {
        if let Some(peer) = self.more.peer {
            fields.address(name!("peer"), addresses.of(peer));
        }
        fields.text(name!("request_id"), self.more.request_id, limit::NAME);
        fields.text(name!("scheme"), self.scheme.as_bytes(), limit::NAME);
        let ClientTls { version, cipher, server_name, subject, issuer, serial, names, fingerprint } =
            self.more.tls;
        fields.text(name!("tls_version"), version.as_bytes(), limit::NAME);
        fields.text(name!("tls_cipher"), cipher.as_bytes(), limit::NAME);
        fields.text(name!("tls_sni"), server_name.as_bytes(), limit::NAME);
        fields.text(name!("tls_subject"), subject.as_bytes(), limit::SUBJECT);
        fields.text(name!("tls_issuer"), issuer.as_bytes(), limit::SUBJECT);
        fields.text(name!("tls_serial"), serial.as_bytes(), limit::NAME);
        fields.text(name!("tls_san"), names.as_bytes(), limit::SUBJECT);
        fields.text(name!("tls_fingerprint"), fingerprint.as_bytes(), limit::NAME);
        fields.number(name!("bytes_received"), self.bytes_received);
        fields.milliseconds(name!("duration_ms"), Some(self.duration));
        fields.text(name!("route"), self.route.unwrap_or_default().as_bytes(), limit::NAME);
        fields.text(name!("upstream"), self.upstream.unwrap_or_default().as_bytes(), limit::NAME);
        fields.text(name!("server"), self.server.unwrap_or_default().as_bytes(), limit::NAME);
        fields.milliseconds(name!("upstream_connect_ms"), self.more.upstream_connect);
        fields.milliseconds(name!("upstream_first_byte_ms"), self.more.upstream_first_byte);
        fields.milliseconds(name!("upstream_total_ms"), self.more.upstream_total);
        fields.milliseconds(name!("queued_ms"), self.more.queued);
        if self.retries > 0 {
            fields.number(name!("retries"), u64::from(self.retries));
        }
        fields.retried(self.more.retried);
        if let Some((reason, from)) = self.more.session_moved {
            fields.text(name!("session_moved"), reason.as_bytes(), limit::NAME);
            fields.text(name!("session_from"), from.unwrap_or_default().as_bytes(), limit::NAME);
        }
        fields.text(name!("shed"), self.more.shed.unwrap_or_default().as_bytes(), limit::NAME);
        if let Some(Injected { rule, seed, number }) = self.more.fault {
            fields.text(name!("fault"), rule.as_bytes(), limit::NAME);
            fields.number(name!("fault_seed"), seed);
            fields.number(name!("fault_number"), number);
        }
        fields.text(name!("cause"), self.cause.unwrap_or_default().as_bytes(), limit::NAME);
        fields.text(name!("detail"), self.detail.unwrap_or_default().as_bytes(), limit::DETAIL);
        if self.weight != WHOLE {
            fields.hundredths(name!("weight"), self.weight);
        }
    }
}

/// A client's TLS session; all fields are empty without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientTls<'a> {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'a str,
    /// The cipher suite.
    pub cipher: &'a str,
    /// The server name that the client asked for (SNI).
    pub server_name: &'a str,
    /// The subject of the client's certificate.
    pub subject: &'a str,
    /// Its issuer.
    pub issuer: &'a str,
    /// Its serial number, in hexadecimal digits.
    pub serial: &'a str,
    /// Its alternative names.
    pub names: &'a str,
    /// Its SHA-256 fingerprint, in hexadecimal digits.
    pub fingerprint: &'a str,
}

/// A failed attempt that was followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retried<'a> {
    /// The server of the attempt; empty if none was chosen.
    pub server: &'a str,
    /// The log word for the cause of the failure.
    pub cause: &'static str,
}

/// A fault that was injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injected<'a> {
    /// The name of the fault rule.
    pub rule: &'a str,
    /// The seed of the rule's random decisions.
    pub seed: u64,
    /// The request's number among those that the rule decided about.
    pub number: u64,
}

/// An HTTP version, major and minor: `Version(1, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub u8, pub u8);
