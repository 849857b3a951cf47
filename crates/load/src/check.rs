//! Response reader: checks status, length and framing of every response, in pieces of any size. No I/O.
//!
//! Body bytes are counted, not kept. A head that equals the previous one is not parsed again: a comparison replaces the
//! parser. Most servers change only the Date.

use std::mem::MaybeUninit;
use std::sync::Arc;

use memchr::memmem;

use crate::chunked::{Chunks, LoadChunked};
use crate::page::{self, PageFacts, PagePattern};
use crate::watch::{Checker, Observer};

/// Maximum bytes of a response head, with all interim heads before it.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 256;
/// Maximum number of interim (1xx) responses before the final one.
const INTERIM_MAX: u32 = 16;

/// A violation of HTTP/1.1 by a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the response does not start with HTTP/1.0 or HTTP/1.1")]
    NotHttp,
    #[error("the response head is not valid HTTP/1.1")]
    Head,
    #[error("the response head is larger than 64 KiB or has more than 256 fields")]
    HeadTooLarge,
    #[error("Content-Length is not a number, or there are several that differ")]
    Length,
    #[error("Transfer-Encoding is sent with Content-Length, or in an HTTP/1.0 response")]
    Framing,
    #[error("101 Switching Protocols without a request for it")]
    Upgrade,
    #[error("more than 16 interim (1xx) responses")]
    Interim,
    #[error("the chunked framing of the body is broken")]
    Chunk,
    #[error("bytes follow the end of the response")]
    Excess,
}

/// The reason why a response is incomplete at the end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the server closed the connection without a response")]
    Nothing,
    #[error("the server closed the connection within the response head")]
    Head,
    #[error("the server closed the connection before the end of the body")]
    Body,
    #[error("the connection ended without TLS's close_notify, so that some of the body may be missing")]
    Torn,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CheckedResponse {
    pub(crate) status: u16,
    /// Its media type, as a number from [`page::kind`].
    pub(crate) kind: u32,
    pub(crate) body_bytes: u64,
    /// Digest of its body, if requested.
    pub(crate) digest: Option<u32>,
    /// Whether the server keeps the connection open after the response.
    pub(crate) keepalive: bool,
}

impl CheckedResponse {
    #[inline]
    pub(crate) fn page(self) -> PageFacts {
        PageFacts { status: self.status, kind: self.kind, body_bytes: self.body_bytes, digest: self.digest }
    }
}

/// The framing of a body (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseFraming {
    Length(u64),
    Chunked,
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckedHead {
    status: u16,
    kind: u32,
    framing: ResponseFraming,
    keepalive: bool,
}

/// Cache of the last parsed head, shared by all connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct LastHead {
    bytes: Vec<u8>,
    head: Option<CheckedHead>,
    /// Whether it was the response to HEAD.
    head_only: bool,
}

#[derive(Debug)]
enum ReaderState {
    /// Reading a head; `Reader::partial` holds its bytes so far.
    Head,
    Length {
        head: CheckedHead,
        left_bytes: u64,
        body_bytes: u64,
    },
    Chunked {
        head: CheckedHead,
        chunked: LoadChunked,
    },
    Close {
        head: CheckedHead,
        body_bytes: u64,
    },
}

/// Reads the responses of one connection, one after the other.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    state: ReaderState,
    partial: Vec<u8>,
    interim: u32,
    /// The request is HEAD, so its response has no body.
    head_only: bool,
    /// Head of the last response, if heads are kept.
    kept: Option<Vec<u8>>,
    observer: Observer,
}

impl ResponseReader {
    pub(crate) fn new(head_only: bool) -> Self {
        Self {
            state: ReaderState::Head,
            partial: Vec::new(),
            interim: 0,
            head_only,
            kept: None,
            observer: Observer::default(),
        }
    }

    /// Keeps the head of each response until the next.
    pub(crate) fn keep_heads(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// Head of the last response; empty unless heads are kept.
    pub(crate) fn kept(&self) -> &[u8] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Sets the method of the next request, and the checks of its response.
    #[inline]
    pub(crate) fn prepare(
        &mut self,
        head_only: bool,
        checker: Option<&Arc<Checker>>,
        pattern: Option<&Arc<PagePattern>>,
    ) {
        self.head_only = head_only;
        self.observer = Observer::new(checker, pattern);
    }

    /// Results of the checks of the last response.
    #[inline]
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Discards an unfinished response, for a new connection.
    pub(crate) fn restart(&mut self) {
        self.state = ReaderState::Head;
        self.partial.clear();
        self.interim = 0;
    }

    /// Reads the next bytes. Returns `Some` for a complete response; then the reader is ready for the next one.
    pub(crate) fn read(
        &mut self,
        mut input: &[u8],
        last: &mut LastHead,
    ) -> Result<Option<CheckedResponse>, Malformed> {
        loop {
            if let ReaderState::Head = self.state {
                let Some((head, used_bytes)) = self.read_head(input, last)? else { return Ok(None) };
                input = &input[used_bytes..];
                if let Some(kept) = &mut self.kept {
                    // The cached head is the one just parsed, or equal to it.
                    kept.clone_from(&last.bytes);
                }
                if let Some(watch) = self.observer.watch() {
                    watch.head(&last.bytes);
                }
                self.begin_body(head)?;
                continue;
            }
            return self.read_body(input);
        }
    }

    /// Ends the response at the end of the connection. It is complete only if its framing allows that.
    pub(crate) fn end(&mut self) -> Result<CheckedResponse, Cut> {
        let ended = match &self.state {
            ReaderState::Head if self.partial.is_empty() => Err(Cut::Nothing),
            ReaderState::Head => Err(Cut::Head),
            ReaderState::Close { head, body_bytes } => {
                let (status, kind, body_bytes) = (head.status, head.kind, *body_bytes);
                let digest = self.observer.end_body();
                Ok(CheckedResponse { status, kind, body_bytes, digest, keepalive: false })
            }
            ReaderState::Length { .. } | ReaderState::Chunked { .. } => Err(Cut::Body),
        };
        self.restart();
        ended
    }

    /// Reads a head. Once it is complete, returns it with the number of input bytes that belong to it.
    fn read_head(
        &mut self,
        input: &[u8],
        last: &mut LastHead,
    ) -> Result<Option<(CheckedHead, usize)>, Malformed> {
        if self.partial.is_empty() {
            if let Some(head) = last.matches(input, self.head_only) {
                return Ok(Some((head, last.bytes.len())));
            }
            if let Some(end) = memmem::find(input, b"\r\n\r\n") {
                let head = last.parse(&input[..end + 4], self.head_only)?;
                return Ok(Some((head, end + 4)));
            }
        }
        let known = self.partial.len();
        self.partial.extend_from_slice(input);
        let from = known.saturating_sub(3);
        let Some(end) = memmem::find(&self.partial[from..], b"\r\n\r\n") else {
            return self.check_partial().map(|()| None);
        };
        let end = from + end + 4;
        let head = last.parse(&self.partial[..end], self.head_only);
        self.partial.clear();
        Ok(Some((head?, end - known)))
    }

    /// Rejects bytes early that cannot become a head, instead of waiting for the timeout.
    fn check_partial(&self) -> Result<(), Malformed> {
        const START: &[u8] = b"HTTP/1.";
        let common = self.partial.len().min(START.len());
        if self.partial[..common] != START[..common] {
            return Err(Malformed::NotHttp);
        }
        if self.partial.len() > HEAD_BYTES_MAX { Err(Malformed::HeadTooLarge) } else { Ok(()) }
    }

    fn begin_body(&mut self, head: CheckedHead) -> Result<(), Malformed> {
        // RFC 9110 §15.2: a client accepts any number of interim responses before the final one.
        if (100..200).contains(&head.status) {
            self.interim += 1;
            return match head.status {
                101 => Err(Malformed::Upgrade),
                _ if self.interim > INTERIM_MAX => Err(Malformed::Interim),
                _ => Ok(()),
            };
        }
        self.state = match head.framing {
            ResponseFraming::Length(left_bytes) => {
                ReaderState::Length { head, left_bytes, body_bytes: left_bytes }
            }
            ResponseFraming::Chunked => ReaderState::Chunked { head, chunked: LoadChunked::new() },
            ResponseFraming::Close => ReaderState::Close { head, body_bytes: 0 },
        };
        Ok(())
    }

    fn read_body(&mut self, input: &[u8]) -> Result<Option<CheckedResponse>, Malformed> {
        let observer = &mut self.observer;
        let (head, body_bytes, used_bytes) = match &mut self.state {
            ReaderState::Length { head, left_bytes, body_bytes } => {
                let available = input.len() as u64;
                observer.body(&input[..available.min(*left_bytes) as usize]);
                if available < *left_bytes {
                    *left_bytes -= available;
                    return Ok(None);
                }
                (*head, *body_bytes, *left_bytes as usize)
            }
            ReaderState::Chunked { head, chunked } => {
                let chunks = match observer.sees_bodies() {
                    false => chunked.read(input)?,
                    true => chunked.read_to(input, |content| observer.body(content))?,
                };
                match chunks {
                    Chunks::More => return Ok(None),
                    Chunks::Ended { used_bytes } => (*head, chunked.content_bytes(), used_bytes),
                }
            }
            ReaderState::Close { body_bytes, .. } => {
                *body_bytes += input.len() as u64;
                observer.body(input);
                return Ok(None);
            }
            ReaderState::Head => return Ok(None),
        };
        // Requests are not pipelined, so no bytes may follow a response.
        if used_bytes < input.len() {
            return Err(Malformed::Excess);
        }
        self.state = ReaderState::Head;
        self.interim = 0;
        let digest = self.observer.end_body();
        let CheckedHead { status, kind, keepalive, .. } = head;
        Ok(Some(CheckedResponse { status, kind, body_bytes, digest, keepalive }))
    }
}

impl LastHead {
    /// The cached head, if the input begins with the same bytes. They end in an empty line, so the head is complete.
    fn matches(&self, input: &[u8], head_only: bool) -> Option<CheckedHead> {
        self.head.filter(|_| self.head_only == head_only && input.starts_with(&self.bytes))
    }

    fn parse(&mut self, bytes: &[u8], head_only: bool) -> Result<CheckedHead, Malformed> {
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(Malformed::HeadTooLarge);
        }
        self.head = None;
        let head = parse_head(bytes, head_only)?;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.head = Some(head);
        self.head_only = head_only;
        Ok(head)
    }
}

fn parse_head(bytes: &[u8], head_only: bool) -> Result<CheckedHead, Malformed> {
    if !bytes.starts_with(b"HTTP/1.") {
        return Err(Malformed::NotHttp);
    }
    // RFC 9112 §2.2: a line ends in CRLF. The parser would accept a bare LF, too.
    if memchr::memchr_iter(b'\n', bytes).any(|at| at == 0 || bytes[at - 1] != b'\r') {
        return Err(Malformed::Head);
    }
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut fields,
    );
    match parsed {
        Ok(httparse::Status::Complete(used_bytes)) if used_bytes == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed::HeadTooLarge),
        _ => return Err(Malformed::Head),
    }
    let (Some(status), Some(minor)) = (response.code, response.version) else { return Err(Malformed::Head) };
    if status < 100 {
        return Err(Malformed::Head);
    }
    let fields = FramingFields::from_headers(response.headers)?;
    let framing = fields.framing(status, minor, head_only)?;
    // RFC 9112 §9.3: persistent by default since HTTP/1.1, but only with a length.
    let asked = if minor == 0 { fields.keepalive && !fields.close } else { !fields.close };
    Ok(CheckedHead {
        status,
        kind: fields.kind,
        framing,
        keepalive: asked && framing != ResponseFraming::Close,
    })
}

/// The fields that frame a response, and its media type.
#[derive(Debug, Default)]
struct FramingFields {
    kind: u32,
    length: Option<u64>,
    /// Whether the last transfer coding is chunked; `None` without Transfer-Encoding.
    coding: Option<bool>,
    close: bool,
    keepalive: bool,
}

impl FramingFields {
    fn from_headers(headers: &[httparse::Header<'_>]) -> Result<Self, Malformed> {
        let mut fields = Self::default();
        for header in headers {
            if header.name.eq_ignore_ascii_case("content-length") {
                // RFC 9110 §8.6: equal values may count as one.
                for value in header.value.split(|byte| *byte == b',') {
                    let length = decimal(value.trim_ascii()).ok_or(Malformed::Length)?;
                    if fields.length.is_some_and(|known| known != length) {
                        return Err(Malformed::Length);
                    }
                    fields.length = Some(length);
                }
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                let last = header.value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                fields.coding = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
            } else if header.name.eq_ignore_ascii_case("content-type") {
                fields.kind = page::kind(header.value);
            } else if header.name.eq_ignore_ascii_case("connection") {
                for option in header.value.split(|byte| *byte == b',') {
                    fields.close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                    fields.keepalive |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                }
            }
        }
        Ok(fields)
    }

    /// Framing of the body, by the rules of RFC 9112 §6.3 in their order.
    fn framing(&self, status: u16, minor: u8, head_only: bool) -> Result<ResponseFraming, Malformed> {
        if self.coding.is_some() && (self.length.is_some() || minor == 0) {
            return Err(Malformed::Framing);
        }
        if head_only || status < 200 || status == 204 || status == 304 {
            return Ok(ResponseFraming::Length(0));
        }
        Ok(match (self.coding, self.length) {
            (Some(true), _) => ResponseFraming::Chunked,
            (Some(false), _) | (None, None) => ResponseFraming::Close,
            (None, Some(length)) => ResponseFraming::Length(length),
        })
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = (Vec<CheckedResponse>, Option<Result<CheckedResponse, Cut>>);

    /// Reads the pieces, then the end of the connection if the last response is incomplete.
    fn read(pieces: &[&[u8]], head_only: bool) -> Result<Read, Malformed> {
        let (mut reader, mut last) = (ResponseReader::new(head_only), LastHead::default());
        let (mut responses, mut pending) = (Vec::new(), false);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            match reader.read(piece, &mut last)? {
                Some(response) => responses.push(response),
                None => pending = true,
            }
        }
        Ok((responses, pending.then(|| reader.end())))
    }

    fn whole(input: &[u8], head_only: bool) -> Result<CheckedResponse, Malformed> {
        let (responses, _) = read(&[input], head_only)?;
        assert_eq!(responses.len(), 1, "{:?}", String::from_utf8_lossy(input));
        Ok(responses[0])
    }

    fn response(status: u16, body_bytes: u64, keepalive: bool) -> CheckedResponse {
        CheckedResponse { status, body_bytes, keepalive, ..CheckedResponse::default() }
    }

    #[test]
    fn rfc_9112_6_3_whole_responses() {
        let cases: [(&[u8], CheckedResponse); 11] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", response(200, 5, true)),
            (b"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", response(200, 0, true)),
            (b"HTTP/1.1 404 \r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nno", response(404, 2, false)),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", response(200, 1, false)),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\nx", response(200, 1, true)),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\nContent-Length: 1\r\n\r\nx", response(200, 1, true)),
            (b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", response(204, 0, true)),
            (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", response(304, 0, true)),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", response(200, 3, true)),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", response(200, 1, true)),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encodings: none\r\n\r\n\n", response(200, 1, true)),
        ];
        for (input, expected) in cases {
            assert_eq!(whole(input, false), Ok(expected), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn rfc_9112_6_3_a_response_to_head_has_no_body() {
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true), Ok(response(200, 0, true)));
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\n\r\n", true), Ok(response(200, 0, true)));
    }

    #[test]
    fn the_end_of_the_connection_ends_a_response_only_where_nothing_else_does() {
        let cases: [(&[u8], Result<CheckedResponse, Cut>); 6] = [
            (b"HTTP/1.1 200 OK\r\n\r\nhello", Ok(response(200, 5, false))),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", Ok(response(200, 5, false))),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", Err(Cut::Body)),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", Err(Cut::Body)),
            (b"HTTP/1.1 200 OK\r\n", Err(Cut::Head)),
            (b"HTTP/1.1 100 Continue\r\n\r\n", Err(Cut::Nothing)),
        ];
        for (input, expected) in cases {
            let (responses, end) = read(&[input], false).expect("well formed");
            assert_eq!((responses.len(), end), (0, Some(expected)), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn responses_that_break_http_are_named() {
        use Malformed::*;
        let cases: [(&[u8], Malformed); 20] = [
            (b"garbage", NotHttp),
            (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", NotHttp),
            (b"HTTP/2 200\r\n\r\n", NotHttp),
            (b"HTTP/1.1 OK\r\n\r\n", Head),
            (b"HTTP/1.1 99 Low\r\n\r\n", Head),
            (b"HTTP/1.1 099 Low\r\n\r\n", Head),
            (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", Head),
            (b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", Head),
            (b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", Head),
            (b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", Head),
            (b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n", Length),
            (b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", Length),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Length),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", Length),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", Framing),
            (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Framing),
            (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", Upgrade),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", Chunk),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy", Excess),
            (b"HTTP/1.1 204 No Content\r\n\r\nx", Excess),
        ];
        for (input, expected) in cases {
            assert_eq!(read(&[input], false), Err(expected), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn endless_heads_are_refused() {
        let field = [&b"X-Long: "[..], &[b'a'; 1000], b"\r\n"].concat();
        let mut pieces: Vec<&[u8]> = vec![b"HTTP/1.1 200 OK\r\n"];
        pieces.extend(std::iter::repeat_n(&field[..], 100));
        assert_eq!(read(&pieces, false), Err(Malformed::HeadTooLarge));
        let many = [&b"HTTP/1.1 200 OK\r\n"[..], &b"A: b\r\n".repeat(FIELDS_MAX + 1), b"\r\n"].concat();
        assert_eq!(read(&[&many], false), Err(Malformed::HeadTooLarge));
        let interim = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(INTERIM_MAX as usize + 1);
        assert_eq!(read(&[&interim], false), Err(Malformed::Interim));
    }

    #[test]
    fn a_head_that_only_begins_like_the_last_one_is_parsed_anew() {
        let short = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        let other = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, again";
        let (responses, end) = read(&[short, short, other, short], false).expect("well formed");
        let bodies: Vec<u64> = responses.iter().map(|response| response.body_bytes).collect();
        assert_eq!((bodies, end), (vec![1, 1, 12, 1], None));
    }

    fn any_message() -> impl Strategy<Value = Vec<u8>> {
        let body = prop::collection::vec(any::<u8>(), 0..200);
        let length = body.clone().prop_map(|body| {
            let head = format!("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {}\r\n\r\n", body.len());
            [head.as_bytes(), &body].concat()
        });
        let chunks = prop::collection::vec(body, 0..5).prop_map(|chunks| {
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
                bytes.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\nX-Sum: 1\r\n\r\n");
            bytes
        });
        let interim = length.clone().prop_map(|rest| [b"HTTP/1.1 100 Continue\r\n\r\n", &rest[..]].concat());
        // A changed byte must give the same error in any split.
        let broken =
            (chunks.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                bytes
            });
        prop_oneof![length, chunks, interim, broken]
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_reads_alike(
            message in any_message(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(message.len())).collect();
            cuts.extend([0, message.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &message[pair[0]..pair[1]]).collect();
            let (together, apart) = (read(&[&message], false), read(&pieces, false));
            match (&together, &apart) {
                (Ok((whole, _)), Ok((pieced, _))) => prop_assert_eq!(whole, pieced),
                // The split decides which error the bytes behind a whole response cause; they always cause one.
                (Err(_), Err(_)) => {}
                (Err(Malformed::Excess), Ok(_)) => {}
                _ => prop_assert!(false, "{:?} and {:?}", together, apart),
            }
        }

        #[test]
        fn no_input_panics(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..16)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = read(&pieces, false);
        }
    }
}
