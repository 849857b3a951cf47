//! One finished request, borrowed from wherever its parts are. Nothing here is checked or safe to print: the line
//! escapes it. A new field of the log is declared, defaulted and written here; `context/record` of the
//! proxy fills it.

use std::net::IpAddr;
use std::time::Duration;

use crate::line::{Pairs, limit, name};

/// What is known of a request when its exchange ends. Bytes are as the client sent them; empty ones are logged as
/// absent.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Who asked.
    pub client: IpAddr,
    /// The proxy that the connection is from, where it said who asks.
    pub peer: Option<IpAddr>,
    /// By what servers know the request; empty where it has no name.
    pub request_id: &'a [u8],
    /// Who has given the right password; empty where nobody was asked for one.
    pub user: &'a str,
    /// `http` or `https`, as the client used it.
    pub scheme: &'static str,
    /// The method; empty when no request line could be read.
    pub method: &'a [u8],
    /// The target as sent.
    pub target: &'a [u8],
    /// The version of the request; `None` when it could not be read.
    pub version: Option<Version>,
    /// The status sent to the client; 0 when the client got none.
    pub status: u16,
    /// Bytes of response body that the client was sent.
    pub body_bytes_sent: u64,
    /// Bytes of the request, head included.
    pub bytes_received: u64,
    /// The Referer header.
    pub referer: &'a [u8],
    /// The User-Agent header.
    pub user_agent: &'a [u8],
    /// The Host header.
    pub host: &'a [u8],
    /// What was agreed on with the client under TLS.
    pub tls: ClientTls<'a>,
    /// The route that matched.
    pub route: Option<&'a str>,
    /// The upstream of that route.
    pub upstream: Option<&'a str>,
    /// The server that the last attempt went to.
    pub server: Option<&'a str>,
    /// From the first byte of the request to the last of the response.
    pub duration: Duration,
    /// To connect to the server; absent on a reused connection.
    pub upstream_connect: Option<Duration>,
    /// From the start of the attempt to the first byte of the response.
    pub upstream_first_byte: Option<Duration>,
    /// From the start of the attempt to the end of the response.
    pub upstream_total: Option<Duration>,
    /// Attempts after the first.
    pub retries: u8,
    /// The attempts before the last one, in order, as far as they are noted.
    pub retried: &'a [Retried<'a>],
    /// How long it waited for a server with room, over all attempts; absent if it did not wait.
    pub queued: Option<Duration>,
    /// Why a session left the server that it had, and that server, if it is known still.
    pub session_moved: Option<(&'static str, Option<&'a str>)>,
    /// By which limit on what is under way it was turned away.
    pub shed: Option<&'static str>,
    /// What went wrong on purpose.
    pub fault: Option<Injected<'a>>,
    /// The log word of what went wrong.
    pub cause: Option<&'static str>,
    /// What exactly was wrong, in words, with the beginning of what is at fault.
    pub detail: Option<&'a str>,
}

impl Entry<'_> {
    /// A request of which nothing more is known.
    #[must_use]
    pub const fn new(client: IpAddr) -> Self {
        Self {
            client,
            peer: None,
            request_id: b"",
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
            tls: ClientTls { version: "", cipher: "", server_name: "", subject: "" },
            route: None,
            upstream: None,
            server: None,
            duration: Duration::ZERO,
            upstream_connect: None,
            upstream_first_byte: None,
            upstream_total: None,
            retries: 0,
            retried: &[],
            queued: None,
            session_moved: None,
            shed: None,
            fault: None,
            cause: None,
            detail: None,
        }
    }

    /// Writes what is logged by name, in either format: what the Combined Log Format has no place for.
    pub(crate) fn write_named(&self, fields: &mut Pairs<'_>) {
        if let Some(peer) = self.peer {
            fields.address(name!("peer"), peer);
        }
        fields.text(name!("request_id"), self.request_id, limit::NAME);
        fields.text(name!("scheme"), self.scheme.as_bytes(), limit::NAME);
        let ClientTls { version, cipher, server_name, subject } = self.tls;
        fields.text(name!("tls_version"), version.as_bytes(), limit::NAME);
        fields.text(name!("tls_cipher"), cipher.as_bytes(), limit::NAME);
        fields.text(name!("tls_sni"), server_name.as_bytes(), limit::NAME);
        fields.text(name!("tls_subject"), subject.as_bytes(), limit::SUBJECT);
        fields.number(name!("bytes_received"), self.bytes_received);
        fields.milliseconds(name!("duration_ms"), Some(self.duration));
        fields.text(name!("route"), self.route.unwrap_or_default().as_bytes(), limit::NAME);
        fields.text(name!("upstream"), self.upstream.unwrap_or_default().as_bytes(), limit::NAME);
        fields.text(name!("server"), self.server.unwrap_or_default().as_bytes(), limit::NAME);
        fields.milliseconds(name!("upstream_connect_ms"), self.upstream_connect);
        fields.milliseconds(name!("upstream_first_byte_ms"), self.upstream_first_byte);
        fields.milliseconds(name!("upstream_total_ms"), self.upstream_total);
        fields.milliseconds(name!("queued_ms"), self.queued);
        if self.retries > 0 {
            fields.number(name!("retries"), u64::from(self.retries));
        }
        fields.retried(self.retried);
        if let Some((reason, from)) = self.session_moved {
            fields.text(name!("session_moved"), reason.as_bytes(), limit::NAME);
            fields.text(name!("session_from"), from.unwrap_or_default().as_bytes(), limit::NAME);
        }
        fields.text(name!("shed"), self.shed.unwrap_or_default().as_bytes(), limit::NAME);
        if let Some(Injected { rule, seed, number }) = self.fault {
            fields.text(name!("fault"), rule.as_bytes(), limit::NAME);
            fields.number(name!("fault_seed"), seed);
            fields.number(name!("fault_number"), number);
        }
        fields.text(name!("cause"), self.cause.unwrap_or_default().as_bytes(), limit::NAME);
        fields.text(name!("detail"), self.detail.unwrap_or_default().as_bytes(), limit::DETAIL);
    }
}

/// The TLS session of a client; all empty without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientTls<'a> {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'a str,
    /// The cipher suite.
    pub cipher: &'a str,
    /// The host that it asked for.
    pub server_name: &'a str,
    /// The subject of its certificate.
    pub subject: &'a str,
}

/// An attempt that failed, and was followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retried<'a> {
    /// Where it went; empty where no server was reached for.
    pub server: &'a str,
    /// The log word of what went wrong.
    pub cause: &'static str,
}

/// Something that went wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injected<'a> {
    /// The name of its rule.
    pub rule: &'a str,
    /// By what it was decided.
    pub seed: u64,
    /// The how manyth request it was that the rule was asked about.
    pub number: u64,
}

/// A version of HTTP, major and minor: `Version(1, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub u8, pub u8);
