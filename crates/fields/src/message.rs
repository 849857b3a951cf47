//! Converts the fields of HTTP/2 and HTTP/3 to HTTP/1.1 text (RFC 9113 §8, RFC 9114 §4). The parser of HTTP/1.1 checks
//! this text as strictly as any other. Rejected here is only what the protocol itself forbids, or what HTTP/1.1 cannot
//! express.

use http1::reason_phrase;

use crate::protocol::MessageProtocol;
use crate::websocket::{WEBSOCKET, accept_of, fresh_key};

/// The framing of the bytes after a head in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed {
    /// Unframed: the length is known, or the stream carries another protocol.
    Raw,
    Chunked,
}

/// The framing of a body of unknown length; always the last line of a head.
const CHUNKED: &[u8] = b"transfer-encoding: chunked\r\n";

/// Whether the method of a request, given as text, is one for which a body has no meaning (RFC 9110 §9.3.1, §9.3.2,
/// §9.3.5).
pub fn rarely_has_body(request: &[u8]) -> bool {
    [&b"GET "[..], b"HEAD ", b"DELETE "].iter().any(|method| request.starts_with(method))
}

/// Removes the framing from the end of a head, after the stream has ended without a body.
pub fn take_back_body(text: &mut Vec<u8>) {
    const END: &[u8] = b"\r\n";
    if let Some(rest) = text.strip_suffix(END).and_then(|lines| lines.strip_suffix(CHUNKED)) {
        text.truncate(rest.len());
        text.extend_from_slice(END);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// RFC 9113 §8.1.1, RFC 9114 §4.1.2.
    Malformed,
    TooLarge,
    /// The fields are well-formed, but HTTP/1.1 text cannot express them. A request gets 400.
    Untold,
}

/// The properties of a request that are needed to read its response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// The response has no body.
    Head,
    /// The request asks for another protocol on the stream.
    Upgrade {
        /// From the field Upgrade.
        protocol: Vec<u8>,
        /// The Sec-WebSocket-Key, for a WebSocket.
        key: Option<Vec<u8>>,
    },
    #[default]
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageOutline {
    pub framed: Framed,
    /// `None` if there is no body, or its length is unknown.
    pub content_length: Option<u64>,
    /// RFC 9110 §15.2.
    pub is_interim: bool,
}

/// Indices into `PSEUDO`, the pseudo-header fields of RFC 9113 §8.3.1 and §8.3.2.
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;
const STATUS: usize = 5;
const PSEUDO_COUNT: usize = 6;
const PSEUDO: [&[u8]; PSEUDO_COUNT] =
    [b":method", b":scheme", b":authority", b":path", b":protocol", b":status"];

/// Collects decoded fields, and converts them to HTTP/1.1 text.
#[derive(Default)]
pub struct FieldCollector {
    protocol: MessageProtocol,
    /// The values of the pseudo-header fields, and the range of each in them.
    pseudo: Vec<u8>,
    spans: [Option<(u16, u16)>; PSEUDO_COUNT],
    /// Complete field lines, with CRLF.
    text: Vec<u8>,
    host: Option<Vec<u8>>,
    cookie: Vec<u8>,
    content_length: Option<u64>,
    /// The range of the Content-Length line in `text`.
    length_line: (usize, usize),
    /// Whether trailers are announced, by the field Trailer or by a gRPC content type.
    has_trailers: bool,
    /// The size of the fields and its limit, in bytes, counted as in RFC 9113 §6.5.2.
    size: usize,
    limit: usize,
    unfit: Option<Unfit>,
    /// A description of the invalid field.
    wrong: Option<Box<str>>,
    /// The content type of a gRPC call, if it followed the invalid field.
    call: Option<Box<[u8]>>,
}

fn is_call(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    content_type.split_at_checked(GRPC.len()).is_some_and(|(kind, rest)| {
        let is_whole = matches!(rest.first(), None | Some(b'+' | b';' | b' ')) || rest.starts_with(b"-web");
        kind.eq_ignore_ascii_case(GRPC) && is_whole
    })
}

/// The size of a field counts this many additional bytes (RFC 9113 §6.5.2).
const FIELD_OVERHEAD: usize = 32;
/// Larger buffers are not kept for the next head.
const KEEP_MAX: usize = 4096;

impl FieldCollector {
    pub fn new(protocol: MessageProtocol) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// Starts a head with a size limit of `limit` bytes.
    pub fn begin(&mut self, limit: usize) {
        let Self { protocol, mut pseudo, mut text, mut cookie, .. } = std::mem::take(self);
        for bytes in [&mut pseudo, &mut text, &mut cookie] {
            bytes.clear();
            bytes.shrink_to(KEEP_MAX);
        }
        *self = Self { protocol, pseudo, text, cookie, limit, ..Self::default() };
    }

    /// Adds the next field. Errors are reported when the head is complete.
    pub fn take(&mut self, name: &[u8], value: &[u8]) {
        if self.unfit.is_some() {
            if name == b"content-type" && is_call(value) {
                self.call = Some(value.into());
            }
            return;
        }
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        let outcome = if self.size > self.limit { Err(Unfit::TooLarge) } else { self.put(name, value) };
        self.unfit = outcome.err();
        if let Some(unfit) = self.unfit {
            self.wrong = Some(self.explain(unfit, name, value).into());
        }
    }

    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unfit> {
        // RFC 9113 §8.2.1.
        if !is_field_value(value) {
            return Err(Unfit::Malformed);
        }
        if name.first() == Some(&b':') {
            return self.put_pseudo(name, value);
        }
        if !is_field_name(name) {
            return Err(Unfit::Malformed);
        }
        match name {
            // RFC 9113 §8.2.2.
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return Err(Unfit::Malformed);
            }
            b"te" if value != b"trailers" => return Err(Unfit::Malformed),
            b"http2-settings" => return Ok(()),
            b"host" => {
                if self.host.replace(value.to_vec()).is_some() {
                    return Err(Unfit::Untold);
                }
                return Ok(());
            }
            // RFC 9113 §8.2.3: only HTTP/2 and HTTP/3 may split the cookies over several fields, so they are joined.
            b"cookie" => {
                self.cookie.extend_from_slice(if self.cookie.is_empty() { b"cookie: " } else { b"; " });
                self.cookie.extend_from_slice(value);
                return Ok(());
            }
            b"content-length" => {
                let length = length_of(value).ok_or(Unfit::Malformed)?;
                match self.content_length.replace(length) {
                    None => {}
                    // RFC 9110 §8.6: a repeated field with the same length is valid.
                    Some(same) if same == length => return Ok(()),
                    Some(_) => return Err(Unfit::Malformed),
                }
                let start = self.text.len();
                // RFC 9110 §8.6 allows `007`, which some recipients do not read as a decimal number. It is passed on as
                // `7`.
                if value[0] == b'0' && value.len() > 1 {
                    push(&mut self.text, name, length.to_string().as_bytes());
                } else {
                    push(&mut self.text, name, value);
                }
                self.length_line = (start, self.text.len());
                return Ok(());
            }
            b"trailer" => self.has_trailers = true,
            b"content-type" => self.has_trailers |= is_call(value),
            _ => {}
        }
        push(&mut self.text, name, value);
        Ok(())
    }

    /// Describes an invalid field. The values of regular fields are left out, because they may be secret.
    #[cold]
    fn explain(&self, unfit: Unfit, name: &[u8], value: &[u8]) -> String {
        let shown = http1::quote(name);
        let rules = self.protocol.rules();
        if unfit == Unfit::TooLarge {
            return format!(
                "with the field {shown} the head is larger than limits.header_bytes, {} bytes",
                self.limit
            );
        }
        if !is_field_value(value) {
            return format!(
                "the value of {shown} holds a byte that no value has, or begins or ends with white space ({})",
                rules.value
            );
        }
        match name {
            [b':', ..] if !PSEUDO.contains(&name) => {
                format!("{shown} is no pseudo-header field ({})", rules.pseudo)
            }
            [b':', ..] => format!(
                "the pseudo-header field {shown} is there twice, or behind other fields ({})",
                rules.pseudo
            ),
            _ if !is_field_name(name) => {
                format!("{shown} is no field name in lower case ({})", rules.name)
            }
            b"te" => {
                format!("te is {}, and may be 'trailers' alone ({})", http1::quote(value), rules.connection)
            }
            b"content-length" => format!(
                "content-length is {}: no number, or another one than before (RFC 9110 §8.6)",
                http1::quote(value)
            ),
            b"host" => "there is more than one host (RFC 9112 §3.2)".to_owned(),
            _ => format!("the field {shown} belongs to a connection of HTTP/1.1 ({})", rules.connection),
        }
    }

    /// Describes the error for the log.
    #[cold]
    pub fn wrong(&self) -> String {
        if let Some(wrong) = &self.wrong {
            return wrong.to_string();
        }
        let rules = self.protocol.rules();
        let pseudo = |at: usize| {
            self.pseudo(at).map_or_else(
                || "none".to_owned(),
                |value| match at {
                    // A query may contain secrets.
                    PATH => format!("one of {} bytes", value.len()),
                    _ => http1::quote(value),
                },
            )
        };
        if let Some(host) = &self.host
            && self.pseudo(AUTHORITY).is_some_and(|authority| !authority.eq_ignore_ascii_case(host))
        {
            return format!(
                "host is {}, and :authority {} ({})",
                http1::quote(host),
                pseudo(AUTHORITY),
                rules.authority
            );
        }
        format!(
            "the pseudo-header fields make no message ({}): :method {}, :scheme {}, :path {}, :status {}",
            rules.pseudo,
            pseudo(METHOD),
            pseudo(SCHEME),
            pseudo(PATH),
            pseudo(STATUS)
        )
    }

    pub fn is_too_large(&self) -> bool {
        self.unfit == Some(Unfit::TooLarge)
    }

    /// The content type of the request if it is a gRPC call.
    #[cold]
    pub fn call(&self) -> Option<Vec<u8>> {
        const NAME: &[u8] = b"content-type: ";
        let mut lines = self.text.split(|&byte| byte == b'\n');
        let before = lines.find_map(|line| line.strip_prefix(NAME)).map(<[u8]>::trim_ascii_end);
        let call = before.filter(|value| is_call(value)).or(self.call.as_deref());
        call.map(<[u8]>::to_vec)
    }

    /// Method, target and host of a rejected request, as far as they were read.
    pub fn glimpse(&self) -> [Vec<u8>; 3] {
        let host = self.pseudo(AUTHORITY).or(self.host.as_deref());
        [self.pseudo(METHOD), self.pseudo(PATH), host].map(|value| value.unwrap_or_default().to_vec())
    }

    fn put_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unfit> {
        // RFC 9113 §8.3: pseudo-header fields come before regular ones, are known, and occur once.
        let is_late = !self.text.is_empty() || !self.cookie.is_empty() || self.host.is_some();
        let at = match name {
            b":method" => METHOD,
            b":scheme" => SCHEME,
            b":authority" => AUTHORITY,
            b":path" => PATH,
            b":protocol" => PROTOCOL,
            b":status" => STATUS,
            _ => return Err(Unfit::Malformed),
        };
        if is_late || self.spans[at].is_some() {
            return Err(Unfit::Malformed);
        }
        let span = |len: usize| u16::try_from(len).map_err(|_| Unfit::TooLarge);
        let start = span(self.pseudo.len())?;
        self.pseudo.extend_from_slice(value);
        self.spans[at] = Some((start, span(self.pseudo.len())?));
        Ok(())
    }

    fn pseudo(&self, at: usize) -> Option<&[u8]> {
        self.spans[at].map(|(start, end)| &self.pseudo[usize::from(start)..usize::from(end)])
    }

    /// Whether the request is an extended CONNECT (RFC 8441 §4).
    pub fn asks_for_upgrade(&self) -> bool {
        self.spans[PROTOCOL].is_some()
    }

    /// Appends the text of a request to `out`, after all fields were added. `has_ended` says whether the stream ends
    /// with the head.
    pub fn request(&self, has_ended: bool, out: &mut Vec<u8>) -> Result<MessageOutline, Unfit> {
        self.unfit.map_or(Ok(()), Err)?;
        let upgrade = self.pseudo(PROTOCOL);
        let method = self.pseudo(METHOD).filter(|method| is_token(method)).ok_or(Unfit::Malformed)?;
        let (authority, path) = (self.pseudo(AUTHORITY), self.pseudo(PATH));
        let is_connect = method == b"CONNECT";
        let is_tunnel = is_connect && upgrade.is_none();
        // RFC 9113 §8.3.1: any scheme is allowed, if its syntax is valid (RFC 3986 §3.1).
        if self.pseudo(SCHEME).is_some_and(|scheme| !is_scheme(scheme)) {
            return Err(Unfit::Malformed);
        }
        // RFC 9113 §8.3.1, §8.5; RFC 8441 §4.
        let is_whole = (self.pseudo(SCHEME).is_some() && path.is_some_and(|path| !path.is_empty()))
            != is_tunnel
            && !(is_tunnel && (self.pseudo(SCHEME).is_some() || path.is_some()))
            && (upgrade.is_none() || is_connect)
            && self.pseudo(STATUS).is_none();
        if !is_whole {
            return Err(Unfit::Malformed);
        }
        let host = self.host_of(authority)?;
        // RFC 9114 §4.3.1: either field must have an authority. For HTTP/2, the parser of the text checks this.
        let lacks_host = self.protocol == MessageProtocol::Http3 && host.is_empty();
        if lacks_host && self.pseudo(SCHEME).is_some_and(is_web_scheme) {
            return Err(Unfit::Malformed);
        }
        // RFC 8441 §5: an extended CONNECT becomes a GET with Upgrade.
        out.extend_from_slice(if upgrade.is_some() { b"GET" } else { method });
        out.push(b' ');
        let target = if is_tunnel { authority } else { path };
        let target = target.filter(|target| is_target(target)).ok_or(Unfit::Untold)?;
        // RFC 9113 §8.3.1: a path, or `*` in an OPTIONS request for the whole server.
        if !is_tunnel && target[0] != b'/' && target != b"*" {
            return Err(Unfit::Malformed);
        }
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        push(out, b"host", host);
        if !self.cookie.is_empty() {
            out.extend_from_slice(&self.cookie);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(&self.text);
        let framed = match upgrade {
            Some(protocol) if is_token(protocol) => {
                out.extend_from_slice(b"connection: upgrade\r\n");
                push(out, b"upgrade", protocol);
                if protocol.eq_ignore_ascii_case(WEBSOCKET) {
                    push(out, b"sec-websocket-key", fresh_key().as_bytes());
                }
                Framed::Raw
            }
            Some(_) => return Err(Unfit::Malformed),
            None if has_ended || self.content_length.is_some() => Framed::Raw,
            None => {
                out.extend_from_slice(CHUNKED);
                Framed::Chunked
            }
        };
        out.extend_from_slice(b"\r\n");
        Ok(MessageOutline { framed, content_length: self.content_length, is_interim: false })
    }

    /// An authority and a Host that differ are rejected (RFC 9113 §8.3.1).
    fn host_of<'a>(&'a self, authority: Option<&'a [u8]>) -> Result<&'a [u8], Unfit> {
        match (authority, self.host.as_deref()) {
            (Some(authority), Some(host)) if !host.eq_ignore_ascii_case(authority) => Err(Unfit::Untold),
            (Some(host), _) | (None, Some(host)) => Ok(host),
            (None, None) => Ok(b""),
        }
    }

    /// Appends the text of a response to `out`, after all fields were added. `has_ended` says whether the stream ends
    /// with the head.
    pub fn response(
        &self,
        has_ended: bool,
        asked: &RequestKind,
        out: &mut Vec<u8>,
    ) -> Result<MessageOutline, Unfit> {
        self.unfit.map_or(Ok(()), Err)?;
        let is_other = |at: &usize| *at != STATUS;
        if (0..PSEUDO_COUNT).filter(is_other).any(|at| self.spans[at].is_some()) {
            return Err(Unfit::Malformed);
        }
        let status = self.pseudo(STATUS).and_then(status_of).ok_or(Unfit::Malformed)?;
        if let (RequestKind::Upgrade { protocol, key }, 200..=299) = (asked, status) {
            out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n");
            push(out, b"upgrade", protocol);
            if let Some(key) = key {
                push(out, b"sec-websocket-accept", accept_of(key).as_bytes());
            }
            self.push_lines(out);
            out.extend_from_slice(b"\r\n");
            return Ok(MessageOutline { framed: Framed::Raw, content_length: None, is_interim: false });
        }
        let is_interim = status < 200;
        // RFC 9113 §8.6: HTTP/2 has no 101. §8.1: an interim response does not end the stream.
        if status == 101 || (is_interim && has_ended) {
            return Err(Unfit::Malformed);
        }
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.pseudo(STATUS).unwrap_or_default());
        out.push(b' ');
        out.extend_from_slice(reason_phrase(status).as_bytes());
        out.extend_from_slice(b"\r\n");
        let has_body = !is_interim && !matches!(status, 204 | 304) && *asked != RequestKind::Head;
        // RFC 9112 §7.1.2: only a chunked body can have trailers, so Content-Length is left out if trailers are
        // announced.
        let is_length_told = self.content_length.is_some() && !(has_body && !has_ended && self.has_trailers);
        self.push_lines_but(out, if is_length_told { (0, 0) } else { self.length_line });
        let mut framed = Framed::Raw;
        if has_body && !is_length_told {
            if has_ended {
                out.extend_from_slice(b"content-length: 0\r\n");
            } else {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                framed = Framed::Chunked;
            }
        }
        out.extend_from_slice(b"\r\n");
        let content_length = if has_body { self.content_length } else { Some(0) };
        Ok(MessageOutline { framed, content_length: content_length.filter(|_| !is_interim), is_interim })
    }

    /// Appends trailers, which end a chunked body.
    pub fn trailers(&self, out: &mut Vec<u8>) -> Result<(), Unfit> {
        self.unfit.map_or(Ok(()), Err)?;
        // RFC 9113 §8.1: trailers have no pseudo-header fields.
        if self.spans.iter().any(Option::is_some) {
            return Err(Unfit::Malformed);
        }
        out.extend_from_slice(b"0\r\n");
        self.push_lines(out);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn push_lines(&self, out: &mut Vec<u8>) {
        self.push_lines_but(out, (0, 0));
    }

    /// Appends all field lines except those in a range of `text`.
    fn push_lines_but(&self, out: &mut Vec<u8>, (start, end): (usize, usize)) {
        if let Some(host) = &self.host {
            push(out, b"host", host);
        }
        out.extend_from_slice(&self.text[..start]);
        out.extend_from_slice(&self.text[end..]);
        if !self.cookie.is_empty() {
            out.extend_from_slice(&self.cookie);
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn push(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.reserve(name.len() + value.len() + 4);
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// A token (RFC 9110 §5.6.2) in lower case (RFC 9113 §8.2.1).
fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| TOKEN[usize::from(byte)] && !byte.is_ascii_uppercase())
}

/// RFC 9113 §8.2.1: no control characters except HTAB, and no white space at either end.
fn is_field_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    // RFC 9110 §5.5.
    !is_blank(value.first())
        && !is_blank(value.last())
        && (!http1::has_controls(value)
            || value.iter().all(|&byte| !byte.is_ascii_control() || byte == b'\t'))
}

fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| TOKEN[usize::from(byte)])
}

/// RFC 3986 §3.1.
fn is_scheme(scheme: &[u8]) -> bool {
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(is_of_scheme)
}

/// Whether URIs of this scheme have an authority (RFC 9110 §4.2).
fn is_web_scheme(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http")
}

/// Whether a target can be part of a request line without changes. The parser of the text checks its form.
fn is_target(target: &[u8]) -> bool {
    !target.is_empty() && target.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// The bytes that may occur in a token (RFC 9110 §5.6.2).
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
};

fn length_of(value: &[u8]) -> Option<u64> {
    // Nineteen digits fit into a `u64`. The parser of the text refuses larger lengths anyway.
    let is_number = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// RFC 9110 §15.
fn status_of(value: &[u8]) -> Option<u16> {
    let is_status = value.len() == 3 && value.iter().all(u8::is_ascii_digit) && value[0] != b'0';
    is_status.then(|| value.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
}
