//! The access log's view of a finished request, borrowed from the exchange. Values are neither validated nor
//! escaped: the writer of the line does that. A new log field is declared here with its default, is named in
//! `field`, and is filled by `record` in the proxy.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use crate::line::{PairWriter, limit, name};
use crate::masks::Addresses;

/// A request at the end of its exchange. Bytes are as the client sent them; empty fields are logged as absent.
#[derive(Debug, Clone, Copy)]
pub struct LogEntry<'a> {
    pub client: IpAddr,
    /// Empty if no password was required.
    pub user: &'a str,
    /// `http` or `https`, from the client's point of view.
    pub scheme: &'static str,
    /// Empty if no request line could be read.
    pub method: &'a [u8],
    /// As the client sent it.
    pub target: &'a [u8],
    /// `None` if it could not be read.
    pub version: Option<LoggedVersion>,
    /// 0 if the client got no response.
    pub status: u16,
    /// Response body bytes sent to the client.
    pub body_bytes_sent: u64,
    /// Request bytes received, including the head.
    pub bytes_received: u64,
    pub referer: &'a [u8],
    pub user_agent: &'a [u8],
    pub host: &'a [u8],
    pub route: Option<&'a str>,
    pub upstream: Option<&'a str>,
    /// The server of the last attempt.
    pub server: Option<&'a str>,
    /// Time from the first byte of the request to the last byte of the response.
    pub duration: Duration,
    /// Attempts after the first.
    pub retries: u8,
    /// The log word for the cause of the failure.
    pub cause: Option<&'static str>,
    /// Details of the failure, with the first of the offending bytes.
    pub detail: Option<&'a str>,
    /// The number of requests that the line stands for, in hundredths: [`WHOLE`] unless it is a sample.
    pub weight: u32,
    /// Response bytes sent to the client, including the head.
    pub bytes_sent: u64,
    /// The cache's result in one word; empty without a cache.
    pub cache: &'static str,
    /// Filled only if the format needs it ([`Needs::MORE`](crate::Needs::MORE)).
    pub more: &'a More<'a>,
}

#[derive(Debug, Clone, Copy)]
pub struct More<'a> {
    /// The proxy that sent the connection, if it named the client (PROXY protocol).
    pub peer: Option<IpAddr>,
    /// The ID that is sent to servers; empty if there is none.
    pub request_id: &'a [u8],
    pub trace_id: Option<u128>,
    pub tls: LoggedTls<'a>,
    /// Time to connect to the server; `None` on a reused connection.
    pub upstream_connect: Option<Duration>,
    /// Time from the start of the attempt to the first byte of the response.
    pub upstream_first_byte: Option<Duration>,
    /// Time from the start of the attempt to the end of the response.
    pub upstream_total: Option<Duration>,
    /// Failed attempts before the last one, in order, up to the recorded maximum.
    pub retried: &'a [Retried<'a>],
    /// The status or failure and the server of the upstream that was asked first (`on_status`); empty if there was none.
    pub fallback_from: &'a str,
    /// Total time in wait queues of servers, over all attempts; `None` if the request did not wait.
    pub queued: Option<Duration>,
    /// Why the session moved to another server, and its previous server, if known.
    pub session_moved: Option<(&'static str, Option<&'a str>)>,
    /// The concurrency limit that rejected the request (load shedding).
    pub shed: Option<&'static str>,
    pub fault: Option<Injected<'a>>,
    /// The part of the duration in which the request waited neither for its client nor for a server.
    pub held: Option<Duration>,
    /// Time from the first byte of the request to the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Empty if the listener has been closed.
    pub listener: &'a str,
    /// Numbered from 0.
    pub worker: usize,
    /// The number of the request on the client's connection, from 1; 0 without a request, and over HTTP/2.
    pub connection_request: u64,
    /// Whether the server connection had been used before; `None` without a server.
    pub is_upstream_reused: Option<bool>,
    pub headers: &'a dyn Headers,
}

/// The weight of a line that stands for one request.
pub const WHOLE: u32 = 100;

pub trait Headers: Debug {
    /// Passes each value of the request's field lines with this name (in any case) to `see`.
    fn request(&self, name: &[u8], see: &mut dyn FnMut(&[u8]));
    /// Passes each value of the response's field lines with this name (in any case) to `see`.
    fn response(&self, name: &[u8], see: &mut dyn FnMut(&[u8]));
    /// Passes the value of this name to `see`, unless it is absent.
    fn value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        let _ = (name, see);
    }
}

impl Headers for () {
    fn request(&self, _name: &[u8], _see: &mut dyn FnMut(&[u8])) {}

    fn response(&self, _name: &[u8], _see: &mut dyn FnMut(&[u8])) {}
}

impl More<'static> {
    pub const NONE: Self = Self {
        peer: None,
        request_id: b"",
        trace_id: None,
        tls: LoggedTls {
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
        fallback_from: "",
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

impl LogEntry<'_> {
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

    /// Writes the fields that both formats log as name and value: the Combined Log Format has no place for them.
    pub(crate) fn write_named(&self, addresses: Addresses, fields: &mut PairWriter<'_>) {
        if let Some(peer) = self.more.peer {
            fields.address(name!("peer"), addresses.for_address(peer));
        }
        fields.text(name!("request_id"), self.more.request_id, limit::NAME);
        fields.text(name!("scheme"), self.scheme.as_bytes(), limit::NAME);
        let LoggedTls { version, cipher, server_name, subject, issuer, serial, names, fingerprint } =
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
        fields.text(name!("fallback_from"), self.more.fallback_from.as_bytes(), limit::NAME);
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

/// A client's TLS session and certificate; all fields are empty without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoggedTls<'a> {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'a str,
    pub cipher: &'a str,
    /// The server name from the ClientHello (SNI).
    pub server_name: &'a str,
    pub subject: &'a str,
    pub issuer: &'a str,
    /// In hexadecimal.
    pub serial: &'a str,
    pub names: &'a str,
    /// SHA-256 in hexadecimal.
    pub fingerprint: &'a str,
}

/// A failed attempt that another attempt followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retried<'a> {
    /// The server of the attempt; empty if none was chosen.
    pub server: &'a str,
    /// The log word for the cause of the failure.
    pub cause: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injected<'a> {
    pub rule: &'a str,
    /// The seed of the rule's random decisions.
    pub seed: u64,
    /// The request's number among those that the rule decided about.
    pub number: u64,
}

/// An HTTP version, major and minor: `Version(1, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedVersion(pub u8, pub u8);
