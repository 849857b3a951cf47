//! Head of an HTTP/1.1 response that begins a stream. No I/O.

use memchr::memmem;

use crate::check::Malformed;

/// Maximum bytes of a head, with the interim heads before it.
const BYTES_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 128;

/// Head of a response, over HTTP/1.1 or HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamHead {
    pub(super) status: u16,
    fields: Vec<(String, Vec<u8>)>,
}

/// The framing of a body (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFraming {
    Length(u64),
    Chunked,
    Close,
}

impl StreamHead {
    pub(super) fn new(status: u16, fields: impl Iterator<Item = (String, Vec<u8>)>) -> Self {
        Self { status, fields: fields.collect() }
    }

    /// Parses the head at the start of the bytes; `None` if it is incomplete. Also returns its length. Skips interim
    /// heads before it, except 101.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let mut from = 0;
        loop {
            let rest = &bytes[from..];
            if !b"HTTP/1.".starts_with(&rest[..rest.len().min(7)]) {
                return Err(Malformed::NotHttp);
            }
            let Some(end) = memmem::find(rest, b"\r\n\r\n").map(|at| at + 4) else {
                return if bytes.len() > BYTES_MAX { Err(Malformed::HeadTooLarge) } else { Ok(None) };
            };
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
            let mut response = httparse::Response::new(&mut fields);
            match response.parse(&rest[..end]) {
                Ok(httparse::Status::Complete(_)) => {}
                Ok(httparse::Status::Partial) => return Err(Malformed::Head),
                Err(httparse::Error::TooManyHeaders) => return Err(Malformed::HeadTooLarge),
                Err(_) => return Err(Malformed::Head),
            }
            let status = response.code.unwrap_or(0);
            from += end;
            // RFC 9110 §15.2: a client accepts any interim response; 101 ends HTTP.
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let fields = response.headers.iter().map(|field| (field.name.to_owned(), field.value.to_vec()));
            return Ok(Some((Self::new(status, fields), from)));
        }
    }

    fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        let named = self.fields.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim_ascii())
    }

    /// The first value of a field.
    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        let named = self.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim_ascii())
    }

    /// Whether a list contains this word, in any case.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        let words = self.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.into_iter().any(|found| found.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Whether the content is of this type, with any parameters.
    pub(super) fn is_of_type(&self, is_type: impl Fn(&str) -> bool) -> bool {
        let Some(value) = self.value("content-type") else { return false };
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        std::str::from_utf8(essence).is_ok_and(|essence| is_type(&essence.to_ascii_lowercase()))
    }

    /// Framing of the body of an HTTP/1.1 response (RFC 9112 §6.3).
    pub(super) fn framing(&self) -> Result<StreamFraming, Malformed> {
        let lengths: Vec<&[u8]> = self.values("content-length").collect();
        if self.value("transfer-encoding").is_some() {
            let is_chunked = self.values("transfer-encoding").eq([b"chunked"]);
            return if is_chunked && lengths.is_empty() {
                Ok(StreamFraming::Chunked)
            } else {
                Err(Malformed::Framing)
            };
        }
        let Some(first) = lengths.first() else { return Ok(StreamFraming::Close) };
        let is_number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(first).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
        let is_one = lengths.iter().all(|length| length == first);
        number.filter(|_| is_one).map(StreamFraming::Length).ok_or(Malformed::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<(StreamHead, usize)>, Malformed> {
        StreamHead::parse(text.as_bytes())
    }

    #[test]
    fn a_head_is_read_behind_interim_ones() {
        let text = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (head, length) = parse(&format!("{text}2\r\n")).expect("a head").expect("whole");
        assert_eq!((head.status, length, head.framing()), (200, text.len(), Ok(StreamFraming::Chunked)));
        assert!(head.is_of_type(|essence| essence == "text/event-stream"));
        for cut in 0..text.len() {
            assert_eq!(parse(&text[..cut]), Ok(None), "{cut}");
        }
        let (head, _) = parse("HTTP/1.1 101 x\r\nConnection: a, UPGRADE\r\nUpgrade: websocket\r\n\r\n")
            .expect("a head")
            .expect("whole");
        assert!(head.lists("connection", "upgrade") && !head.lists("upgrade", "socket"));
    }

    #[test]
    fn rfc_9112_6_3_framings_are_told_apart() {
        let framing = |fields: &str| {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            parse(&text).expect("a head").expect("whole").0.framing()
        };
        assert_eq!(framing(""), Ok(StreamFraming::Close));
        assert_eq!(framing("Content-Length: 5\r\nContent-Length: 5\r\n"), Ok(StreamFraming::Length(5)));
        assert_eq!(framing("Content-Length: 5\r\nContent-Length: 6\r\n"), Err(Malformed::Length));
        assert_eq!(framing("Content-Length: -5\r\n"), Err(Malformed::Length));
        assert_eq!(framing("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Err(Malformed::Framing));
        assert_eq!(framing("Transfer-Encoding: gzip\r\n"), Err(Malformed::Framing));
        assert_eq!(parse("HTTP/2 200\r\n\r\n"), Err(Malformed::NotHttp));
        assert_eq!(parse("HTTP/1.1 x OK\r\n\r\n"), Err(Malformed::Head));
        assert_eq!(
            parse(&format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(BYTES_MAX))),
            Err(Malformed::HeadTooLarge)
        );
    }
}
