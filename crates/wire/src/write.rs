//! Heads as they are sent on (RFC 9110 §7.6): this hop's fields removed, the proxy's own added.
//!
//! Neighbouring fields that stay are copied as one slice. Output is appended to a buffer that the caller keeps.

use std::net::IpAddr;

use crate::framing::Framing;
use crate::head::{Field, Head, RequestHead, ResponseHead, Version};
use crate::hop::{ConnectionOptions, has_member, is_named};
use crate::name::Name;
use crate::target::{Target, TargetForm};

/// The name under which the proxy appears in Via (RFC 9110 §7.6.3).
const VIA_11: &[u8] = b"Via: 1.1 vanward\r\n";
const VIA_10: &[u8] = b"Via: 1.0 vanward\r\n";

/// Who sent a request, for the Forwarded fields.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// Whether it may say whom it forwards for.
    pub is_trusted: bool,
    /// `http` or `https`, as the client spoke to this proxy.
    pub scheme: &'static str,
}

/// How a request changes on its way to a server.
#[derive(Debug, Clone, Copy)]
pub struct RequestRewrite<'a> {
    /// Its target.
    pub target: &'a Target,
    /// Its Connection options.
    pub connection: ConnectionOptions,
    /// How its body is framed.
    pub framing: Framing,
    /// Who sent it.
    pub client: Client,
    /// Host as the server shall see it; `None` as the client meant it.
    pub host: Option<&'a [u8]>,
}

/// Appends the request head that a server shall see.
pub fn write_request(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    let target = rewrite.target;
    out.extend_from_slice(head.start.method_span.of(bytes));
    out.push(b' ');
    let path = target.path_and_query.of(bytes);
    match (target.form, path.first()) {
        // RFC 9112 §3.2.4: OPTIONS on a whole absolute-form authority is sent on as `*`.
        (TargetForm::Absolute, None) if head.start.method == crate::Method::Options => out.push(b'*'),
        (_, None | Some(b'?')) => out.push(b'/'),
        _ => {}
    }
    out.extend_from_slice(path);
    out.extend_from_slice(b" HTTP/1.1\r\n");

    let authority = target.authority.of(bytes);
    // Host is written anew where it differs from the client's; an HTTP/1.0 request may have had none.
    let new_host = match rewrite.host {
        Some(host) => Some(host),
        None if target.form == TargetForm::Absolute => Some(authority),
        None if authority.is_empty() => Some(b"".as_slice()),
        None => None,
    };
    if let Some(host) = new_host {
        push_line(out, b"Host: ", host);
    }
    let client = rewrite.client;
    let decrements = head.start.method == crate::Method::Options;
    copy_fields(out, head, bytes, rewrite.connection, |field| match field.known {
        Name::Host => new_host.is_some(),
        Name::Forwarded | Name::XForwardedFor => true,
        Name::XForwardedProto | Name::XForwardedHost => !client.is_trusted,
        Name::MaxForwards => decrements,
        _ => false,
    });
    if decrements && let Some(left) = max_forwards(head, bytes) {
        out.extend_from_slice(b"Max-Forwards: ");
        push_number(out, left.saturating_sub(1));
        out.extend_from_slice(b"\r\n");
    }
    push_hop_fields(out, head, bytes, rewrite);
    out.extend_from_slice(match head.start.version {
        Version::Http11 => VIA_11,
        Version::Http10 => VIA_10,
    });
    push_forwarded(out, head, bytes, client, authority);
    out.extend_from_slice(b"\r\n");
}

/// The hops that an OPTIONS request may still make (RFC 9110 §7.6.2), where it says so validly.
pub(crate) fn max_forwards(head: &RequestHead, bytes: &[u8]) -> Option<u64> {
    let value = head.value(bytes, Name::MaxForwards)?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// What the proxy itself says of the connection to the server.
fn push_hop_fields(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    if rewrite.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    // RFC 9110 §10.1.4: trailers are passed on here, so a client that takes them is told of as one.
    let takes_trailers = head.field(Name::Te).is_some() && has_member(head, bytes, Name::Te, b"trailers");
    if takes_trailers {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    let upgrades = rewrite.connection.upgrade && head.field(Name::Upgrade).is_some();
    if upgrades {
        for value in head.values(bytes, Name::Upgrade) {
            push_line(out, b"Upgrade: ", value);
        }
    }
    match (takes_trailers, upgrades) {
        (true, true) => out.extend_from_slice(b"Connection: TE, upgrade\r\n"),
        (true, false) => out.extend_from_slice(b"Connection: TE\r\n"),
        (false, true) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (false, false) => {}
    }
}

/// RFC 7239 and the three fields before it. From a client that is not trusted they have been dropped; what a trusted
/// one says is kept in front.
fn push_forwarded(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], client: Client, authority: &[u8]) {
    let told = |name| client.is_trusted && head.field(name).is_some();
    out.extend_from_slice(b"X-Forwarded-For: ");
    if told(Name::XForwardedFor) {
        push_list(out, head, bytes, Name::XForwardedFor);
    }
    push_address(out, client.address);
    out.extend_from_slice(b"\r\n");
    if !told(Name::XForwardedProto) {
        push_line(out, b"X-Forwarded-Proto: ", client.scheme.as_bytes());
    }
    if !told(Name::XForwardedHost) && !authority.is_empty() {
        push_line(out, b"X-Forwarded-Host: ", authority);
    }
    out.extend_from_slice(b"Forwarded: ");
    if told(Name::Forwarded) {
        push_list(out, head, bytes, Name::Forwarded);
    }
    out.extend_from_slice(b"for=");
    // RFC 7239 §6: an IPv6 address is bracketed and quoted.
    if client.address.is_ipv6() {
        out.extend_from_slice(b"\"[");
        push_address(out, client.address);
        out.extend_from_slice(b"]\"");
    } else {
        push_address(out, client.address);
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(client.scheme.as_bytes());
    if !authority.is_empty() {
        // A valid authority holds no quote and no backslash.
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(authority);
        out.push(b'"');
    }
    out.extend_from_slice(b"\r\n");
}

fn push_list(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], name: Name) {
    for value in head.values(bytes, name) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
}

/// What the client is told of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientConnection {
    /// Nothing: an HTTP/1.1 connection stays open by default.
    Persist,
    /// `keep-alive`, for HTTP/1.0.
    KeepAlive,
    /// `close`.
    Close,
    /// `upgrade`, with the server's Upgrade field, of a 101.
    Upgrade,
}

/// How a response changes on its way to a client.
#[derive(Debug, Clone, Copy)]
pub struct ResponseRewrite<'a> {
    /// Its Connection options.
    pub connection: ConnectionOptions,
    /// How its body is framed towards the client.
    pub framing: Framing,
    /// What the client is told of its connection.
    pub client_connection: ClientConnection,
    /// The value of Date where the server sent none (RFC 9110 §6.6.1).
    pub date: &'a [u8],
}

/// Appends the response head that a client shall see.
pub fn write_response(out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], rewrite: &ResponseRewrite<'_>) {
    let status = head.start.status;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(status / 100), digit(status / 10 % 10), digit(status % 10), b' ']);
    out.extend_from_slice(head.start.reason.of(bytes));
    out.extend_from_slice(b"\r\n");
    // RFC 9110 §8.6: no Content-Length in a 1xx or 204.
    let has_no_length = status < 200 || status == 204;
    copy_fields(out, head, bytes, rewrite.connection, |field| {
        field.known == Name::ContentLength && has_no_length
    });
    if rewrite.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    match rewrite.client_connection {
        ClientConnection::Persist => {}
        ClientConnection::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        ClientConnection::Close => out.extend_from_slice(b"Connection: close\r\n"),
        ClientConnection::Upgrade => {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            for value in head.values(bytes, Name::Upgrade) {
                push_line(out, b"Upgrade: ", value);
            }
        }
    }
    if status >= 200 && head.field(Name::Date).is_none() {
        push_line(out, b"Date: ", rewrite.date);
    }
    out.extend_from_slice(match head.start.version {
        Version::Http11 => VIA_11,
        Version::Http10 => VIA_10,
    });
    out.extend_from_slice(b"\r\n");
}

/// Copies the fields that stay, in runs.
#[inline]
fn copy_fields<Start>(
    out: &mut Vec<u8>,
    head: &Head<Start>,
    bytes: &[u8],
    connection: ConnectionOptions,
    drops: impl Fn(&Field) -> bool,
) {
    let Some(first) = head.fields.first() else { return };
    let mut run = first.name.start as usize;
    for field in &head.fields {
        let is_named = connection.names_fields && is_named(head, bytes, field.name.of(bytes));
        if field.known.is_hop_by_hop() || drops(field) || is_named {
            out.extend_from_slice(&bytes[run..field.name.start as usize]);
            run = field.line_end as usize;
        }
    }
    let end = head.fields.last().map_or(run, |field| field.line_end as usize);
    out.extend_from_slice(&bytes[run..end]);
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn digit(value: u16) -> u8 {
    b'0' + value as u8
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        // Four short numbers are written faster by hand than by the formatting machinery.
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                push_number(out, u64::from(octet));
            }
        }
        IpAddr::V6(address) => {
            // Writing into a Vec does not fail.
            let _ = std::io::Write::write_fmt(out, format_args!("{address}"));
        }
    }
}
