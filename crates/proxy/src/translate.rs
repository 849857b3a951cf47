//! Heads of HTTP/2 as the text of HTTP/1.1, and back (RFC 9113 §8). The path of a request knows that text alone.
//!
//! What comes from HTTP/2 is written out as it was meant and then parsed as strictly as everything else; what goes to
//! HTTP/2 is taken from a head that the path has already written for the next hop.

use std::ops::Range;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use config::Scheme;
use h2::ext::Protocol;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, request, response, uri};
use sha1::{Digest, Sha1};

/// RFC 6455 §1.3.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const WEBSOCKET: &str = "websocket";

/// How the bytes behind a head are framed in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framed {
    /// As they are: their number is told, or the connection is no longer one of HTTP.
    Raw,
    /// In chunks.
    Chunked,
}

/// A head cannot be told in the other version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Untold;

/// The text of a request. `has_ended` says whether nothing follows its head.
pub(crate) fn request_text(parts: &request::Parts, has_ended: bool) -> Result<(Vec<u8>, Framed), Untold> {
    let upgrade = parts.extensions.get::<Protocol>().map(Protocol::as_str);
    let mut text = Vec::with_capacity(text_len(&parts.headers) + parts.uri.path().len());
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    match (upgrade, &parts.method) {
        // RFC 8441 §5: what is an upgrade here is a CONNECT there.
        (Some(_), _) => text.extend_from_slice(b"GET"),
        (None, method) => text.extend_from_slice(method.as_str().as_bytes()),
    }
    text.push(b' ');
    match (upgrade, parts.uri.path_and_query()) {
        // RFC 9113 §8.5: CONNECT has no path.
        (None, _) if parts.method == Method::CONNECT => text.extend_from_slice(authority.unwrap_or_default()),
        (_, Some(path)) => text.extend_from_slice(path.as_str().as_bytes()),
        (_, None) => return Err(Untold),
    }
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = match (authority, hosts.next(), hosts.next()) {
        (_, _, Some(_)) => return Err(Untold),
        (Some(authority), None, None) => authority,
        (None, Some(host), None) => host.as_bytes(),
        // RFC 9113 §8.3.1: two that differ are two readings of one request.
        (Some(authority), Some(host), None) if host.as_bytes().eq_ignore_ascii_case(authority) => authority,
        (Some(_), Some(_), None) => return Err(Untold),
        (None, None, None) => b"",
    };
    push(&mut text, b"host", host);
    let mut has_length = false;
    let mut cookies = parts.headers.get_all(header::COOKIE).iter().peekable();
    if cookies.peek().is_some() {
        // RFC 9113 §8.2.3: split for compression, one field again for everybody else.
        text.extend_from_slice(b"cookie: ");
        while let Some(cookie) = cookies.next() {
            text.extend_from_slice(cookie.as_bytes());
            text.extend_from_slice(if cookies.peek().is_some() { b"; " } else { b"\r\n" });
        }
    }
    for (name, value) in &parts.headers {
        if name == header::HOST || name == header::COOKIE || is_of_connection(name.as_str()) {
            continue;
        }
        has_length |= name == header::CONTENT_LENGTH;
        push(&mut text, name.as_str().as_bytes(), value.as_bytes());
    }
    let framed = match upgrade {
        Some(protocol) => {
            text.extend_from_slice(b"connection: upgrade\r\n");
            push(&mut text, b"upgrade", protocol.as_bytes());
            if protocol.eq_ignore_ascii_case(WEBSOCKET) {
                push(&mut text, b"sec-websocket-key", fresh_key().as_bytes());
            }
            Framed::Raw
        }
        None if has_ended || has_length => Framed::Raw,
        None => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framed::Chunked
        }
    };
    text.extend_from_slice(b"\r\n");
    Ok((text, framed))
}

/// What the text of a response has to know of its request.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// Its response has no body.
    Head,
    /// The stream becomes that of another protocol; with the key of a WebSocket.
    Upgrade {
        protocol: String,
        key: Option<String>,
    },
    Other,
}

/// The text of a response. `has_ended` says whether nothing follows its head.
pub(crate) fn response_text(parts: &response::Parts, has_ended: bool, asked: &Asked) -> (Vec<u8>, Framed) {
    let mut text = Vec::with_capacity(text_len(&parts.headers));
    if let Asked::Upgrade { protocol, key } = asked
        && parts.status.is_success()
    {
        text.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n");
        push(&mut text, b"upgrade", protocol.as_bytes());
        if let Some(key) = key {
            let accept = BASE64_STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")));
            push(&mut text, b"sec-websocket-accept", accept.as_bytes());
        }
        push_fields(&mut text, &parts.headers);
        text.extend_from_slice(b"\r\n");
        return (text, Framed::Raw);
    }
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(parts.status.as_str().as_bytes());
    text.push(b' ');
    text.extend_from_slice(parts.status.canonical_reason().unwrap_or_default().as_bytes());
    text.extend_from_slice(b"\r\n");
    push_fields(&mut text, &parts.headers);
    let has_length = parts.headers.contains_key(header::CONTENT_LENGTH);
    let has_body = !parts.status.is_informational()
        && !matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        && !matches!(asked, Asked::Head);
    let framed = match (has_body && !has_length, has_ended) {
        (true, true) => {
            text.extend_from_slice(b"content-length: 0\r\n");
            Framed::Raw
        }
        (true, false) => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framed::Chunked
        }
        (false, _) => Framed::Raw,
    };
    text.extend_from_slice(b"\r\n");
    (text, framed)
}

/// Trailers as the end of a chunked body.
pub(crate) fn trailers_text(trailers: Option<&HeaderMap>) -> Vec<u8> {
    let mut text = b"0\r\n".to_vec();
    if let Some(trailers) = trailers {
        push_fields(&mut text, trailers);
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// About the length of a head with these fields.
fn text_len(fields: &HeaderMap) -> usize {
    let lens = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    256 + lens.sum::<usize>()
}

fn push_fields(text: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        if !is_of_connection(name.as_str()) {
            push(text, name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

fn push(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// RFC 9113 §8.2.2: fields of one connection, which HTTP/2 has no use for.
fn is_of_connection(name: &str) -> bool {
    matches!(
        name,
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" | "http2-settings"
    )
}

/// RFC 6455 §4.1: a nonce. It keeps caches from answering, and keeps no secret.
fn fresh_key() -> String {
    BASE64_STANDARD.encode(fastrand::u128(..).to_le_bytes())
}

/// The length of the head at the front of `bytes`.
pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// A request as HTTP/2 has it, from the text of its head; `scheme` is what the server is spoken to in, and `may_upgrade`
/// whether it takes streams that become another protocol's: an upgrade is only an offer (RFC 9110 §7.8).
pub(crate) fn request_of(
    head: &[u8],
    scheme: Scheme,
    may_upgrade: bool,
) -> Result<(Request<()>, Asked), Untold> {
    let head = Head::of(head)?;
    let mut request = Request::new(());
    let mut fields = head.fields_that_fit();
    let (mut host, mut protocol, mut key) = (None, None, None);
    for (name, value) in head.lines() {
        let name = HeaderName::from_bytes(name).map_err(|_| Untold)?;
        match name.as_str() {
            "host" => host = Some(value),
            "upgrade" if may_upgrade => protocol = Some(head.text(value)?),
            // RFC 8441 §5: it says nothing that CONNECT does not.
            "sec-websocket-key" if may_upgrade => key = Some(head.text(value)?),
            field if is_of_connection(field) => {}
            _ => head.append(&mut fields, name, value)?,
        }
    }
    let mut words = head.start.split(|&byte| byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let target_start = method.len() + 1;
    let mut method = Method::from_bytes(method).map_err(|_| Untold)?;
    let asked = match protocol {
        Some(protocol) => {
            method = Method::CONNECT;
            request.extensions_mut().insert(Protocol::from(protocol.as_str()));
            Asked::Upgrade { protocol, key }
        }
        None if method == Method::HEAD => Asked::Head,
        None => Asked::Other,
    };
    *request.uri_mut() =
        head.uri(scheme, host.unwrap_or_default(), target_start..target_start + target.len())?;
    *request.method_mut() = method;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = fields;
    Ok((request, asked))
}

/// A response as HTTP/2 has it, from the text of its head.
pub(crate) fn response_of(head: &[u8]) -> Result<Response<()>, Untold> {
    let head = Head::of(head)?;
    let status = head.start.get(9..12).ok_or(Untold)?;
    let status = StatusCode::from_bytes(status).map_err(|_| Untold)?;
    let switches = status == StatusCode::SWITCHING_PROTOCOLS;
    let mut fields = head.fields_that_fit();
    for (name, value) in head.lines() {
        let name = HeaderName::from_bytes(name).map_err(|_| Untold)?;
        let is_of_handshake = switches && name == header::SEC_WEBSOCKET_ACCEPT;
        if !is_of_handshake && !is_of_connection(name.as_str()) {
            head.append(&mut fields, name, value)?;
        }
    }
    let mut response = Response::new(());
    // RFC 8441 §5: the stream is the other protocol's from here on.
    *response.status_mut() = if switches { StatusCode::OK } else { status };
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = fields;
    Ok(response)
}

/// Trailers as HTTP/2 has them, from lines with their CRLF.
pub(crate) fn trailers_of(lines: &[u8]) -> Result<HeaderMap, Untold> {
    let head = Head { start: b"", shared: Bytes::copy_from_slice(lines), text: lines, fields_start: 0 };
    let mut fields = HeaderMap::new();
    for (name, value) in head.lines() {
        let name = HeaderName::from_bytes(name).map_err(|_| Untold)?;
        if !is_of_connection(name.as_str()) {
            head.append(&mut fields, name, value)?;
        }
    }
    Ok(fields)
}

/// A head that the path has written: every line is whole and valid.
struct Head<'a> {
    start: &'a [u8],
    text: &'a [u8],
    /// A copy, which values are slices of.
    shared: Bytes,
    fields_start: usize,
}

impl<'a> Head<'a> {
    fn of(text: &'a [u8]) -> Result<Self, Untold> {
        let start_end = memchr::memchr(b'\r', text).ok_or(Untold)?;
        let shared = Bytes::copy_from_slice(text);
        Ok(Self { start: &text[..start_end], text, shared, fields_start: start_end + 2 })
    }

    /// Name and value of each field; the value as its place.
    fn lines(&self) -> impl Iterator<Item = (&'a [u8], Range<usize>)> + use<'a> {
        let (text, mut at) = (self.text, self.fields_start);
        std::iter::from_fn(move || {
            let line = &text[at..];
            let end = memchr::memchr(b'\r', line)?;
            let colon = memchr::memchr(b':', &line[..end])?;
            // The path writes one space; what is passed on as it came may have none, or more.
            let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
            let before = line[colon + 1..end].iter().take_while(is_blank).count();
            let behind = line[colon + 1 + before..end].iter().rev().take_while(is_blank).count();
            let value = at + colon + 1 + before..at + end - behind;
            at += end + 2;
            Some((&line[..colon], value))
        })
    }

    /// With room for about as many fields as there are.
    fn fields_that_fit(&self) -> HeaderMap {
        HeaderMap::with_capacity(4 + self.text.len() / 48)
    }

    fn append(&self, fields: &mut HeaderMap, name: HeaderName, value: Range<usize>) -> Result<(), Untold> {
        let value = HeaderValue::from_maybe_shared(self.shared.slice(value)).map_err(|_| Untold)?;
        fields.append(name, value);
        Ok(())
    }

    fn text(&self, value: Range<usize>) -> Result<String, Untold> {
        String::from_utf8(self.text[value].to_vec()).map_err(|_| Untold)
    }

    fn uri(&self, scheme: Scheme, host: Range<usize>, target: Range<usize>) -> Result<Uri, Untold> {
        let mut parts = uri::Parts::default();
        parts.scheme = Some(match scheme {
            Scheme::Http | Scheme::Tcp => uri::Scheme::HTTP,
            Scheme::Https => uri::Scheme::HTTPS,
        });
        let authority = uri::Authority::from_maybe_shared(self.shared.slice(host));
        parts.authority = Some(authority.map_err(|_| Untold)?);
        // RFC 9113 §8.3.1: `*` is the path of an OPTIONS to a server as a whole.
        let path = uri::PathAndQuery::from_maybe_shared(self.shared.slice(target));
        parts.path_and_query = Some(path.map_err(|_| Untold)?);
        Uri::from_parts(parts).map_err(|_| Untold)
    }
}
