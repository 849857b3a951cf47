//! Writes heads for the next hop (RFC 9110 §7.6): drops hop-by-hop fields, adds the proxy's own.
//!
//! The start line and unchanged fields are copied in as few pieces as possible. Output is appended to the caller's
//! buffer.

use crate::edit::{Edits, edit_lines};
use crate::forwarded::{self, Client, Via, push_own_fields};
use crate::framing::Framing;
use crate::head::{Fields, Head, RequestHead, ResponseHead, Version};
use crate::hop::{ConnectionOptions, has_member, is_named, upgrades};
use crate::method::Method;
use crate::name::{Name, NameSet};
use crate::parse::{REASON_START, STATUS_START};
use crate::target::{Target, TargetForm};

/// How a request changes on its way to a server.
#[derive(Debug, Clone, Copy)]
pub struct RequestRewrite<'a> {
    /// The target of the request.
    pub target: &'a Target,
    /// The Connection options of the request.
    pub connection: ConnectionOptions,
    /// The framing of the request body.
    pub framing: Framing,
    /// Whether Expect is forwarded: not by who has met it.
    pub expects: bool,
    /// Whether Upgrade is forwarded, as `wants_upgrade` decides.
    pub wants_upgrade: bool,
    /// The sender of the request.
    pub client: Client,
    /// The Via entry of this proxy.
    pub via: Via<'a>,
    /// Path and query for the server; `None` to keep the client's.
    pub path_and_query: Option<&'a [u8]>,
    /// Host for the server; `None` to keep the client's.
    pub host: Option<&'a [u8]>,
    /// Lines to add, each with CRLF: the client's certificate (`X-Client-Cert-…`).
    pub added: &'a [u8],
    /// The trace context for the server, in place of the client's; `None` keeps that.
    pub trace: Option<TraceContext<'a>>,
    /// Edits that the operator has configured.
    pub edits: Option<&'a dyn Edits>,
}

/// A trace context, in place of a client's.
#[derive(Debug, Clone, Copy)]
pub struct TraceContext<'a> {
    /// The line that replaces `traceparent`, with CRLF. Its length is known, so it is copied in place.
    pub parent: &'a [u8; TRACEPARENT_LINE],
    /// Lines of B3, each with CRLF; if there are any, they replace the client's.
    pub b3: &'a [u8],
    /// Whether `tracestate` is kept.
    pub keeps_state: bool,
}

/// The length of a line of `traceparent` (W3C Trace Context §3.2, version 00), with CRLF.
pub const TRACEPARENT_LINE: usize = 70;

impl TraceContext<'_> {
    /// The client's fields that it replaces.
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

/// Appends the request head for the server.
pub fn write_request(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    let authority = rewrite.target.authority.of(bytes);
    // Host is written anew where it differs from the client's; an HTTP/1.0 request may have had none.
    let new_host = match rewrite.host {
        Some(host) => Some(host),
        None if rewrite.target.form == TargetForm::Absolute => Some(authority),
        None if authority.is_empty() => Some(b"".as_slice()),
        None => None,
    };
    let line = head.start;
    // RFC 9110 §7.6.2.
    let decrements =
        matches!(line.method, Method::Options | Method::Trace) && head.fields.names.has(Name::MaxForwards);
    let is_as_sent = rewrite.path_and_query.is_none()
        && matches!(rewrite.target.form, TargetForm::Origin | TargetForm::Asterisk)
        && bytes[line.target.end as usize..].starts_with(b" HTTP/1.1\r\n");
    let run_start = if is_as_sent && new_host.is_none() {
        line.method_span.start
    } else {
        push_request_line(out, head, bytes, rewrite);
        if let Some(host) = new_host {
            push_line(out, b"Host: ", host);
        }
        first_field(head)
    };
    let mut dropped = dropped(head, rewrite, new_host.is_some());
    if decrements {
        dropped = dropped.with(Name::MaxForwards);
    }
    // RFC 9110 §8.6 allows `007`, which not everybody reads as a decimal number: it is passed on as `7`.
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
    // From here on the lines are the proxy's own: edits reach them as well.
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

/// The client's fields that the server does not get, or gets anew.
#[inline]
fn dropped(head: &RequestHead, rewrite: &RequestRewrite<'_>, has_new_host: bool) -> NameSet {
    let mut dropped = NameSet::HOP_BY_HOP.union(forwarded::REWRITTEN);
    if has_new_host {
        dropped = dropped.with(Name::Host);
    }
    if rewrite.client.chain.is_none() {
        dropped = dropped.union(forwarded::TRUSTED_ONLY);
    }
    if !rewrite.added.is_empty() {
        dropped = dropped.with(Name::XClientCert);
    }
    if let Some(trace) = &rewrite.trace {
        dropped = dropped.union(trace.replaced());
    }
    if head.start.version == Version::Http10 || !rewrite.expects {
        // RFC 9110 §10.1.1: an expectation of an HTTP/1.0 client is ignored.
        dropped = dropped.with(Name::Expect);
    }
    dropped
}

/// The length of a request's body, where it is written otherwise than numbers are, or not at all.
fn odd_length(head: &RequestHead, bytes: &[u8], framing: Framing) -> Option<u64> {
    let length = if let Framing::Length(length) = framing { length } else { 0 };
    let Some(value) = head.value(bytes, Name::ContentLength) else {
        return matches!(framing, Framing::Length(_)).then_some(length);
    };
    (value.len() > 1 && value[0] == b'0').then_some(length)
}

fn push_request_line(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    out.extend_from_slice(head.start.method_span.of(bytes));
    out.push(b' ');
    let target = rewrite.target;
    let path = rewrite.path_and_query.unwrap_or_else(|| target.path_and_query.of(bytes));
    match (target.form, path.first()) {
        // RFC 9112 §3.2.4: OPTIONS on a whole absolute-form authority is sent on as `*`.
        (TargetForm::Absolute, None) if head.start.method == Method::Options => out.push(b'*'),
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
    // More than fits is more than any chain of hops.
    is_number.then(|| {
        value.iter().fold(0u64, |sum, byte| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0')))
    })
}

/// Appends the fields about the connection to the server.
fn push_hop_fields(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    if rewrite.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    // RFC 9110 §10.1.4: trailers are passed on here, so a client that takes them is told of as one.
    let takes_trailers = head.fields.names.has(Name::Te) && has_member(head, bytes, Name::Te, b"trailers");
    if takes_trailers {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    if rewrite.wants_upgrade {
        push_upgrades(out, head, bytes);
    }
    match (takes_trailers, rewrite.wants_upgrade) {
        (true, true) => out.extend_from_slice(b"Connection: TE, upgrade\r\n"),
        (true, false) => out.extend_from_slice(b"Connection: TE\r\n"),
        (false, true) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (false, false) => {}
    }
}

fn push_upgrades<Start>(out: &mut Vec<u8>, head: &Head<Start>, bytes: &[u8]) {
    for protocol in upgrades(head, bytes) {
        push_line(out, b"Upgrade: ", protocol);
    }
}

/// What a response says about the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientConnection {
    /// Nothing: an HTTP/1.1 connection stays open by default.
    Persist,
    /// `Connection: keep-alive`, for HTTP/1.0.
    KeepAlive,
    /// `Connection: close`.
    Close,
    /// `Connection: upgrade`, with the server's Upgrade field, in a 101.
    Upgrade,
}

/// How a response changes on its way to a client.
#[derive(Debug, Clone, Copy)]
pub struct ResponseRewrite<'a> {
    /// The Connection options of the response.
    pub connection: ConnectionOptions,
    /// The framing of the response body towards the client.
    pub framing: Framing,
    /// What the response says about the client's connection.
    pub client_connection: ClientConnection,
    /// The value of Date, if the server sent none (RFC 9110 §6.6.1).
    pub date: &'a [u8],
    /// The Via entry of this proxy.
    pub via: Via<'a>,
    /// Lines to add, each with CRLF.
    pub added: &'a [u8],
    /// Edits that the operator has configured.
    pub edits: Option<&'a dyn Edits>,
}

/// Appends the response head for the client.
pub fn write_response(out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], rewrite: &ResponseRewrite<'_>) {
    let status = head.start.status;
    // RFC 9110 §8.6: no Content-Length in a 1xx or 204.
    let has_no_length = status < 200 || status == 204;
    let dropped = NameSet::HOP_BY_HOP;
    let dropped = if has_no_length { dropped.with(Name::ContentLength) } else { dropped };
    let passing = Passing { connection: rewrite.connection, dropped, edits: rewrite.edits };
    out.extend_from_slice(b"HTTP/1.1");
    if head.start.reason.start as usize == REASON_START {
        copy_fields(out, &head.fields, &bytes[..head.len], STATUS_START as u32, &passing);
    } else {
        // RFC 9112 §4: the SP behind the status is no option, though this server left it out.
        out.extend_from_slice(&bytes[STATUS_START..REASON_START - 1]);
        out.extend_from_slice(b" \r\n");
        copy_fields(out, &head.fields, &bytes[..head.len], first_field(head), &passing);
    }
    if rewrite.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    // RFC 9110 §15.5.22: a 426 says which protocols the server asks for, be they refused here or not.
    let asks_for_upgrade = status == 426 && head.fields.names.has(Name::Upgrade);
    if asks_for_upgrade {
        for protocols in head.values(bytes, Name::Upgrade) {
            push_line(out, b"Upgrade: ", protocols);
        }
    }
    // RFC 9110 §7.8: who sends Upgrade names it in Connection.
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
    if status >= 200 && !head.fields.names.has(Name::Date) {
        push_line(out, b"Date: ", rewrite.date);
    }
    out.extend_from_slice(rewrite.added);
    // RFC 9110 §7.6.3: the version in which the message was received.
    if rewrite.via == Via::Own {
        out.extend_from_slice(match head.start.version {
            Version::Http11 => b"Via: 1.1 vanward\r\n\r\n",
            Version::Http2 => b"Via: 2.0 vanward\r\n\r\n",
            Version::Http3 => b"Via: 3.0 vanward\r\n\r\n",
            Version::Http10 => b"Via: 1.0 vanward\r\n\r\n",
        });
    } else {
        rewrite.via.push(out, head.start.version);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(edits) = rewrite.edits {
        edit_lines(out, own, edits);
    }
}

/// Where the fields begin; behind the start line.
fn first_field<Start>(head: &Head<Start>) -> u32 {
    // Without any, this is where the empty line begins.
    head.fields.first().map_or(head.len as u32 - 2, |field| field.name.start)
}

/// Copies what lies from `run_start` to the end of the fields, without the fields that are dropped or that Connection
/// names, in as few pieces as there are. `bytes` are the head's alone.
fn copy_fields(out: &mut Vec<u8>, fields: &Fields, bytes: &[u8], run_start: u32, passing: &Passing<'_>) {
    if passing.edits.is_some() {
        return copy_edited(out, fields, bytes, run_start, passing);
    }
    let Passing { connection, dropped, .. } = *passing;
    let mut run = run_start as usize;
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

/// Which fields are passed on.
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
        let name = field.name.of(bytes);
        let is_named = passing.connection.names_fields && is_named(fields, bytes, field);
        let is_dropped = passing.dropped.has(field.known) || is_named;
        let edits = passing.edits.filter(|edits| !is_dropped && edits.touches(name));
        if is_dropped || edits.is_some() {
            out.extend_from_slice(&bytes[run..field.name.start as usize]);
            run = field.line_end as usize;
        }
        if let Some(edits) = edits {
            edits.replace(name, field.value.of(bytes), out);
        }
    }
    out.extend_from_slice(&bytes[run..bytes.len() - 2]);
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}
