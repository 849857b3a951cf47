//! Writes heads for the next hop (RFC 9110 §7.6): drops hop-by-hop fields, adds the proxy's own.
//!
//! The start line and unchanged fields are copied in as few pieces as possible. Output is appended to the caller's
//! buffer.

use crate::edit::{Edits, edit_lines};
use crate::forwarded::{self, ForwardedSender, Via, push_own_fields};
use crate::framing::BodyFraming;
use crate::head::{Fields, HttpVersion, MessageHead, RequestHead, ResponseHead};
use crate::hop::{ConnectionOptions, has_member, is_named, upgrades};
use crate::method::Method;
use crate::name::{Name, NameSet};
use crate::parse::{REASON_START, STATUS_START};
use crate::target::{RequestTarget, TargetForm};

/// Input of [`write_request`].
#[derive(Debug, Clone, Copy)]
pub struct RequestRewrite<'a> {
    pub target: &'a RequestTarget,
    pub connection: ConnectionOptions,
    pub framing: BodyFraming,
    /// Whether Expect is forwarded. False if the proxy has answered it itself.
    pub expects: bool,
    /// Whether Upgrade is forwarded; see `wants_upgrade`.
    pub wants_upgrade: bool,
    pub client: ForwardedSender,
    pub via: Via<'a>,
    /// Path and query for the server; `None` keeps the client's.
    pub path_and_query: Option<&'a [u8]>,
    /// Host for the server; `None` keeps the client's.
    pub host: Option<&'a [u8]>,
    /// Lines to add, each with CRLF: the client's certificate (`X-Client-Cert-…`).
    pub added: &'a [u8],
    /// The trace context for the server. `None` keeps the client's.
    pub trace: Option<TraceContext<'a>>,
    pub edits: Option<&'a dyn Edits>,
}

#[derive(Debug, Clone, Copy)]
pub struct TraceContext<'a> {
    /// The line that replaces `traceparent`, with CRLF. Its length is constant, so it is copied without a call.
    pub parent: &'a [u8; TRACEPARENT_LINE],
    /// Lines of B3, each with CRLF. If there are any, they replace the client's.
    pub b3: &'a [u8],
    pub keeps_state: bool,
}

/// Length of a `traceparent` line (W3C Trace Context §3.2, version 00), with CRLF.
pub const TRACEPARENT_LINE: usize = 70;

impl TraceContext<'_> {
    /// The client's fields that this context replaces.
    fn replaced(&self) -> NameSet {
        let mut replaced = NameSet::NONE.with(Name::Traceparent);
        if !self.keeps_state {
            replaced = replaced.with(Name::Tracestate);
        }
        if !self.b3.is_empty() {
            replaced = replaced.with(Name::B3);
        }
        replaced
    }
}

pub fn write_request(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    let authority = rewrite.target.authority.for_bytes(bytes);
    // Host is rewritten if it differs from the client's; an HTTP/1.0 request may have had none.
    let new_host = match rewrite.host {
        Some(host) => Some(host),
        None if rewrite.target.form == TargetForm::Absolute => Some(authority),
        // RFC 9112 §3.2: without an authority, a client sends Host with an empty value.
        None if authority.is_empty() => Some(b"".as_slice()),
        None => None,
    };
    let line = head.start;
    // RFC 9110 §7.6.2.
    let decrements =
        matches!(line.method, Method::Options | Method::Trace) && head.fields.names.has(Name::MaxForwards);
    // Then start line and fields leave in one copy. Most requests are of this kind.
    let is_as_sent = rewrite.path_and_query.is_none()
        && matches!(rewrite.target.form, TargetForm::Origin | TargetForm::Asterisk)
        && bytes[line.target.end as usize..].starts_with(b" HTTP/1.1\r\n");
    let run_start = if is_as_sent && new_host.is_none() {
        line.method_span.start
    } else {
        push_request_line(out, head, bytes, rewrite);
        if let Some(host) = new_host {
            // RFC 9110 §7.2: Host should be the first field.
            push_line(out, b"Host: ", host);
        }
        first_field(head)
    };
    let mut dropped = dropped(head, rewrite, new_host.is_some());
    if decrements {
        dropped = dropped.with(Name::MaxForwards);
    }
    // RFC 9110 §8.6 allows `007`, which some servers do not read as decimal: it is forwarded as `7`.
    let length = odd_length(head, bytes, rewrite.framing);
    if length.is_some() {
        dropped = dropped.with(Name::ContentLength);
    }
    let passing = Passing { connection: rewrite.connection, dropped, edits: rewrite.edits };
    copy_fields(out, &head.fields, &bytes[..head.len], run_start, &passing);
    if let Some(length) = length {
        out.extend_from_slice(b"Content-Length: ");
        push_number(out, length);
        out.extend_from_slice(b"\r\n");
    }
    // From here on the lines are the proxy's own, which edits may change too.
    let own = out.len();
    if decrements && let Some(left) = max_forwards(head, bytes) {
        out.extend_from_slice(b"Max-Forwards: ");
        push_number(out, left.saturating_sub(1));
        out.extend_from_slice(b"\r\n");
    }
    push_hop_fields(out, head, bytes, rewrite);
    out.extend_from_slice(rewrite.added);
    if let Some(trace) = &rewrite.trace {
        out.extend_from_slice(trace.parent);
        if !trace.b3.is_empty() {
            out.extend_from_slice(trace.b3);
        }
    }
    push_own_fields(out, head, bytes, &rewrite.client, rewrite.via, authority);
    if let Some(edits) = rewrite.edits {
        edit_lines(out, own, edits);
    }
}

/// The client's fields that are not copied: dropped, or replaced by the proxy's.
#[inline]
fn dropped(head: &RequestHead, rewrite: &RequestRewrite<'_>, has_new_host: bool) -> NameSet {
    let mut dropped = NameSet::HOP_BY_HOP.union(forwarded::REWRITTEN);
    if has_new_host {
        dropped = dropped.with(Name::Host);
    }
    // A server would believe these fields, whichever client made them up.
    if rewrite.client.chain.is_none() {
        dropped = dropped.union(forwarded::TRUSTED_ONLY);
    }
    // The proxy's own lines about the certificate must be the only ones.
    if !rewrite.added.is_empty() {
        dropped = dropped.with(Name::XClientCert);
    }
    if let Some(trace) = &rewrite.trace {
        dropped = dropped.union(trace.replaced());
    }
    if head.start.version == HttpVersion::Http10 || !rewrite.expects {
        // RFC 9110 §10.1.1: an expectation of an HTTP/1.0 client is ignored.
        dropped = dropped.with(Name::Expect);
    }
    dropped
}

/// Returns the length of a request's body if Content-Length is not in its normal form, or is missing.
fn odd_length(head: &RequestHead, bytes: &[u8], framing: BodyFraming) -> Option<u64> {
    let length = if let BodyFraming::Length(length) = framing { length } else { 0 };
    let Some(value) = head.value(bytes, Name::ContentLength) else {
        // A buffered body has a length, although the client sent it in chunks.
        return matches!(framing, BodyFraming::Length(_)).then_some(length);
    };
    // A discarded body has none of the length that the client announced.
    let is_discarded = framing == BodyFraming::Length(0) && value != b"0";
    (is_discarded || value.len() > 1 && value[0] == b'0').then_some(length)
}

fn push_request_line(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    out.extend_from_slice(head.start.method_span.for_bytes(bytes));
    out.push(b' ');
    let target = rewrite.target;
    let path = rewrite.path_and_query.unwrap_or_else(|| target.path_and_query.for_bytes(bytes));
    match (target.form, path.first()) {
        // RFC 9112 §3.2.4: OPTIONS on a whole absolute-form authority is forwarded as `*`.
        (TargetForm::Absolute, None) if head.start.method == Method::Options => out.push(b'*'),
        // RFC 9112 §3.2.1: an empty path is sent as `/`.
        (_, None | Some(b'?')) => out.push(b'/'),
        _ => {}
    }
    out.extend_from_slice(path);
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// The value of Max-Forwards (RFC 9110 §7.6.2), if it is valid.
pub fn max_forwards(head: &RequestHead, bytes: &[u8]) -> Option<u64> {
    let value = head.value(bytes, Name::MaxForwards)?;
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    // A value beyond u64 exceeds the length of any chain of hops.
    is_number.then(|| {
        value.iter().fold(0u64, |sum, byte| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0')))
    })
}

/// Appends TE, Upgrade and Connection for the server's connection.
fn push_hop_fields(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    // Transfer-Encoding ends at each hop, so the client's field was dropped: the proxy writes chunks itself.
    if rewrite.framing == BodyFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    // RFC 9110 §10.1.4: the proxy forwards trailers, so it forwards a client's `TE: trailers`.
    let takes_trailers = head.fields.names.has(Name::Te) && has_member(head, bytes, Name::Te, b"trailers");
    if takes_trailers {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    if rewrite.wants_upgrade {
        push_upgrades(out, head, bytes);
    }
    // RFC 9110 §10.1.4, §7.8: a sender of TE or Upgrade must name it in Connection.
    match (takes_trailers, rewrite.wants_upgrade) {
        (true, true) => out.extend_from_slice(b"Connection: TE, upgrade\r\n"),
        (true, false) => out.extend_from_slice(b"Connection: TE\r\n"),
        (false, true) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (false, false) => {}
    }
}

fn push_upgrades<Start>(out: &mut Vec<u8>, head: &MessageHead<Start>, bytes: &[u8]) {
    for protocol in upgrades(head, bytes) {
        push_line(out, b"Upgrade: ", protocol);
    }
}

/// The Connection field of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientConnection {
    /// No field: an HTTP/1.1 connection stays open by default.
    Persist,
    /// `Connection: keep-alive`, for HTTP/1.0.
    KeepAlive,
    Close,
    /// `Connection: upgrade`, with the server's Upgrade field, in a 101.
    Upgrade,
}

/// Input of [`write_response`].
#[derive(Debug, Clone, Copy)]
pub struct ResponseRewrite<'a> {
    /// The Connection options of the server's response.
    pub connection: ConnectionOptions,
    /// The framing of the response body to the client.
    pub framing: BodyFraming,
    pub client_connection: ClientConnection,
    /// Value of Date, added if the server sent none (RFC 9110 §6.6.1).
    pub date: &'a [u8],
    pub via: Via<'a>,
    /// Lines to add, each with CRLF.
    pub added: &'a [u8],
    pub edits: Option<&'a dyn Edits>,
    /// Whether the server's Alt-Svc is forwarded.
    pub passes_alt_svc: bool,
}

pub fn write_response(out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], rewrite: &ResponseRewrite<'_>) {
    let status = head.start.status;
    // RFC 9110 §8.6: no Content-Length in a 1xx or 204.
    let has_no_length = status < 200 || status == 204;
    let dropped = NameSet::HOP_BY_HOP;
    // RFC 7838 §3: Alt-Svc names ports on the server's host, where this proxy does not listen.
    let dropped = if rewrite.passes_alt_svc { dropped } else { dropped.with(Name::AltSvc) };
    let dropped = if has_no_length { dropped.with(Name::ContentLength) } else { dropped };
    let passing = Passing { connection: rewrite.connection, dropped, edits: rewrite.edits };
    // RFC 9112 §2.3: an intermediary sends its version, not that of the received message.
    out.extend_from_slice(b"HTTP/1.1");
    if head.start.reason.start as usize == REASON_START {
        copy_fields(out, &head.fields, &bytes[..head.len], STATUS_START as u32, &passing);
    } else {
        // RFC 9112 §4: the SP behind the status is required, even if this server omitted it.
        out.extend_from_slice(&bytes[STATUS_START..REASON_START - 1]);
        out.extend_from_slice(b" \r\n");
        copy_fields(out, &head.fields, &bytes[..head.len], first_field(head), &passing);
    }
    if rewrite.framing == BodyFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    // RFC 9110 §15.5.22: the Upgrade field of a 426 is forwarded, even if the proxy would not forward that upgrade.
    let asks_for_upgrade = status == 426 && head.fields.names.has(Name::Upgrade);
    if asks_for_upgrade {
        for protocols in head.values(bytes, Name::Upgrade) {
            push_line(out, b"Upgrade: ", protocols);
        }
    }
    // RFC 9110 §7.8: a sender of Upgrade must name it in Connection.
    match (rewrite.client_connection, asks_for_upgrade) {
        (ClientConnection::Persist, false) => {}
        (ClientConnection::Persist, true) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (ClientConnection::KeepAlive, false) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (ClientConnection::KeepAlive, true) => out.extend_from_slice(b"Connection: keep-alive, upgrade\r\n"),
        (ClientConnection::Close, false) => out.extend_from_slice(b"Connection: close\r\n"),
        (ClientConnection::Close, true) => out.extend_from_slice(b"Connection: close, upgrade\r\n"),
        (ClientConnection::Upgrade, _) => {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            push_upgrades(out, head, bytes);
        }
    }
    let own = out.len();
    // RFC 9110 §6.6.1: a recipient with a clock adds a missing Date. Interim responses need none.
    if status >= 200 && !head.fields.names.has(Name::Date) {
        push_line(out, b"Date: ", rewrite.date);
    }
    out.extend_from_slice(rewrite.added);
    // RFC 9110 §7.6.3: the version in which the message was received.
    if rewrite.via == Via::Own {
        out.extend_from_slice(match head.start.version {
            HttpVersion::Http11 => b"Via: 1.1 vanward\r\n\r\n",
            HttpVersion::Http2 => b"Via: 2.0 vanward\r\n\r\n",
            HttpVersion::Http3 => b"Via: 3.0 vanward\r\n\r\n",
            HttpVersion::Http10 => b"Via: 1.0 vanward\r\n\r\n",
        });
    } else {
        rewrite.via.push(out, head.start.version);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(edits) = rewrite.edits {
        edit_lines(out, own, edits);
    }
}

/// The start of the first field, behind the start line.
fn first_field<Start>(head: &MessageHead<Start>) -> u32 {
    // Without fields, the empty line starts here.
    head.fields.first().map_or(head.len as u32 - 2, |field| field.name.start)
}

/// Copies the bytes from `run_start` to the end of the fields, in as few pieces as possible. Leaves out dropped fields
/// and those that Connection names. `bytes` is exactly the head.
fn copy_fields(out: &mut Vec<u8>, fields: &Fields, bytes: &[u8], run_start: u32, passing: &Passing<'_>) {
    if passing.edits.is_some() {
        return copy_edited(out, fields, bytes, run_start, passing);
    }
    let Passing { connection, dropped, .. } = *passing;
    let mut run = run_start as usize;
    // Unless Connection names fields, only known names are dropped, and these are found without a search.
    let touched = if connection.names_fields { fields } else { fields.with(dropped) };
    for field in touched {
        let is_named = connection.names_fields && is_named(fields, bytes, field);
        if dropped.has(field.known) || is_named {
            out.extend_from_slice(&bytes[run..field.name.start as usize]);
            run = field.line_end as usize;
        }
    }
    // The head ends with the CRLF of its empty line.
    out.extend_from_slice(&bytes[run..bytes.len() - 2]);
}

struct Passing<'a> {
    connection: ConnectionOptions,
    dropped: NameSet,
    edits: Option<&'a dyn Edits>,
}

/// Copies the fields that are not dropped, and applies edits to them.
#[cold]
fn copy_edited(out: &mut Vec<u8>, fields: &Fields, bytes: &[u8], run_start: u32, passing: &Passing<'_>) {
    let mut run = run_start as usize;
    for field in fields {
        let name = field.name.for_bytes(bytes);
        let is_named = passing.connection.names_fields && is_named(fields, bytes, field);
        let is_dropped = passing.dropped.has(field.known) || is_named;
        // An edit must not bring back a field that ends at this hop.
        let edits = passing.edits.filter(|edits| !is_dropped && edits.touches(name));
        if is_dropped || edits.is_some() {
            out.extend_from_slice(&bytes[run..field.name.start as usize]);
            run = field.line_end as usize;
        }
        if let Some(edits) = edits {
            edits.replace(name, field.value.for_bytes(bytes), out);
        }
    }
    out.extend_from_slice(&bytes[run..bytes.len() - 2]);
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal digits.
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    // The largest number has twenty.
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}
