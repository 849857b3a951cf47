//! Framing of a request's body: separates data from framing, and finds the end of the body. No I/O.

use std::ops::Range;

use crate::request::{RequestFraming, RequestRefusal};

const EXTENSION_BYTES_MAX: usize = 4 * 1024;

const TRAILER_BYTES_MAX: usize = 32 * 1024;

const TRAILER_FIELDS_MAX: usize = 128;

/// Names as they were written, and values.
pub(crate) type Trailers = Vec<(String, Vec<u8>)>;

pub(crate) enum RequestBodyState {
    Length(u64),
    Chunked(ChunkedState),
    Done(Trailers),
}

/// The bytes that a step consumed, and which of them are data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BodyStep {
    pub(crate) consumed: usize,
    /// Range of the consumed bytes that are data.
    pub(crate) data: Range<usize>,
}

impl RequestBodyState {
    pub(crate) fn new(framing: RequestFraming) -> Self {
        match framing {
            RequestFraming::None => Self::Done(Trailers::new()),
            RequestFraming::Length(length) => Self::Length(length),
            RequestFraming::Chunked => {
                Self::Chunked(ChunkedState { state: BodyState::Size { value: 0, digits: 0 } })
            }
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// Reads framing, and at most one piece of data, from the front of `input`; nothing if it needs more input.
    pub(crate) fn step(&mut self, input: &[u8]) -> Result<BodyStep, RequestRefusal> {
        match self {
            Self::Done(_) => Ok(BodyStep { consumed: 0, data: 0..0 }),
            Self::Length(remaining) => {
                let length =
                    usize::try_from(*remaining).map_or(input.len(), |length| length.min(input.len()));
                *remaining -= length as u64;
                if *remaining == 0 {
                    *self = Self::Done(Trailers::new());
                }
                Ok(BodyStep { consumed: length, data: 0..length })
            }
            Self::Chunked(chunked) => {
                let step = chunked.step(input)?;
                if let BodyState::Trailer { section } = &mut chunked.state
                    && section.ends_with(b"\r\n\r\n")
                {
                    let trailers = parse_trailers(section)?;
                    *self = Self::Done(trailers);
                }
                Ok(step)
            }
        }
    }
}

/// Decoder of a chunked body (RFC 9112 §7.1).
pub(crate) struct ChunkedState {
    state: BodyState,
}

enum BodyState {
    Size {
        value: u64,
        digits: u8,
    },
    Extension {
        value: u64,
        length: usize,
    },
    SizeLineFeed {
        value: u64,
    },
    Data {
        remaining: u64,
    },
    DataReturn,
    DataLineFeed,
    /// The line end of the last chunk, and the lines up to the blank line.
    Trailer {
        section: Vec<u8>,
    },
}

impl ChunkedState {
    fn step(&mut self, input: &[u8]) -> Result<BodyStep, RequestRefusal> {
        for (index, &byte) in input.iter().enumerate() {
            if let BodyState::Data { remaining } = &mut self.state {
                let rest = input.len() - index;
                let length = usize::try_from(*remaining).map_or(rest, |length| length.min(rest));
                *remaining -= length as u64;
                if *remaining == 0 {
                    self.state = BodyState::DataReturn;
                }
                return Ok(BodyStep { consumed: index + length, data: index..index + length });
            }
            self.framing_byte(byte)?;
            if matches!(&self.state, BodyState::Trailer { section } if section.ends_with(b"\r\n\r\n")) {
                return Ok(BodyStep { consumed: index + 1, data: 0..0 });
            }
        }
        Ok(BodyStep { consumed: input.len(), data: 0..0 })
    }

    fn framing_byte(&mut self, byte: u8) -> Result<(), RequestRefusal> {
        let next = match (&mut self.state, byte) {
            (BodyState::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                // 15 hexadecimal digits exceed every real size, and cannot overflow.
                if *digits == 15 {
                    return Err(RequestRefusal::Chunk);
                }
                BodyState::Size { value: *value << 4 | digit, digits: *digits + 1 }
            }
            (BodyState::Size { digits: 0, .. }, _) => return Err(RequestRefusal::Chunk),
            (BodyState::Size { value, .. } | BodyState::Extension { value, .. }, b'\r') => {
                BodyState::SizeLineFeed { value: *value }
            }
            (BodyState::Size { value, .. }, b';') => BodyState::Extension { value: *value, length: 0 },
            (BodyState::Extension { value, length }, b'\t' | b' '..=b'~')
                if *length < EXTENSION_BYTES_MAX =>
            {
                BodyState::Extension { value: *value, length: *length + 1 }
            }
            (BodyState::SizeLineFeed { value: 0 }, b'\n') => BodyState::Trailer { section: b"\r\n".to_vec() },
            (BodyState::SizeLineFeed { value }, b'\n') => BodyState::Data { remaining: *value },
            (BodyState::DataReturn, b'\r') => BodyState::DataLineFeed,
            (BodyState::DataLineFeed, b'\n') => BodyState::Size { value: 0, digits: 0 },
            (BodyState::Trailer { section }, byte) => {
                let bare = byte == b'\n' && section.last() != Some(&b'\r');
                if bare || section.len() >= TRAILER_BYTES_MAX {
                    return Err(RequestRefusal::Trailer);
                }
                section.push(byte);
                return Ok(());
            }
            _ => return Err(RequestRefusal::Chunk),
        };
        self.state = next;
        Ok(())
    }
}

/// Parses a trailer section. `section` begins with the CRLF of the last chunk and ends with the blank line.
fn parse_trailers(section: &[u8]) -> Result<Trailers, RequestRefusal> {
    let mut slots = [httparse::EMPTY_HEADER; TRAILER_FIELDS_MAX];
    match httparse::parse_headers(&section[2..], &mut slots) {
        Ok(httparse::Status::Complete((length, fields))) if length == section.len() - 2 => {
            Ok(fields.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect())
        }
        _ => Err(RequestRefusal::Trailer),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all data of `parts`, the trailers, and the length of the unread rest; `None` if the body is incomplete.
    fn decode(
        framing: RequestFraming,
        parts: &[&[u8]],
    ) -> Result<Option<(Vec<u8>, Trailers, usize)>, RequestRefusal> {
        let mut body = RequestBodyState::new(framing);
        let (mut data, mut left) = (Vec::new(), 0);
        for part in parts {
            let mut input = *part;
            while !input.is_empty() && !body.is_done() {
                let step = body.step(input)?;
                assert!(step.consumed > 0, "no progress");
                data.extend_from_slice(&input[step.data]);
                input = &input[step.consumed..];
            }
            left = if body.is_done() { left + input.len() } else { 0 };
        }
        Ok(if let RequestBodyState::Done(trailers) = body { Some((data, trailers, left)) } else { None })
    }

    #[test]
    fn rfc9112_7_1_chunked_bodies() {
        let trailer = vec![("A".to_owned(), b"b".to_vec())];
        for (bytes, data, trailers, left) in [
            (&b"0\r\n\r\n"[..], &b""[..], vec![], 0),
            (b"5\r\nhello\r\n0\r\n\r\nGET", b"hello", vec![], 3),
            (b"00005;a=b;c=\"d e\"\r\nhello\r\n00\r\nA: b\r\n\r\n", b"hello", trailer, 0),
            (b"A\r\n0123456789\r\na\r\n0123456789\r\n0;x\r\n\r\n", b"01234567890123456789", vec![], 0),
        ] {
            assert_eq!(decode(RequestFraming::Chunked, &[bytes]), Ok(Some((data.to_vec(), trailers, left))));
        }
    }

    #[test]
    fn rfc9112_7_1_malformed_chunks() {
        for bytes in [
            &b"\r\n"[..],
            b"g\r\n",
            b"0x5\r\nhello\r\n",
            b"+5\r\nhello\r\n",
            b" 5\r\nhello\r\n",
            b"5 \r\nhello\r\n",
            b"5 ;a\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5\r\rhello",
            b"5;a\nhello",
            b"5;a\x00\r\n",
            b"5\r\nhello0\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello!\r\n0\r\n\r\n",
            b"1000000000000000\r\n",
            b"ffffffffffffffffff\r\n",
            b"0\r\n\n",
            b"0\r\nA: b\n\r\n",
            b"0\r\nA : b\r\n\r\n",
            b"0\r\nA\r\n\r\n",
            b"0\r\nA: b\r\n c\r\n\r\n",
        ] {
            assert!(
                decode(RequestFraming::Chunked, &[bytes]).is_err(),
                "{:?}",
                bytes.escape_ascii().to_string()
            );
        }
        let endless = [b"0\r\nA: ".to_vec(), vec![b'a'; TRAILER_BYTES_MAX]].concat();
        assert_eq!(decode(RequestFraming::Chunked, &[&endless]), Err(RequestRefusal::Trailer));
        let endless = [b"5;".to_vec(), vec![b'a'; EXTENSION_BYTES_MAX + 1]].concat();
        assert_eq!(decode(RequestFraming::Chunked, &[&endless]), Err(RequestRefusal::Chunk));
    }

    #[test]
    fn a_length_ends_where_it_says() {
        assert_eq!(decode(RequestFraming::Length(3), &[b"ab"]), Ok(None));
        assert_eq!(
            decode(RequestFraming::Length(3), &[b"ab", b"cGET"]),
            Ok(Some((b"abc".to_vec(), vec![], 3)))
        );
        assert_eq!(decode(RequestFraming::None, &[b"GET"]), Ok(Some((vec![], vec![], 3))));
    }

    proptest! {
        #[test]
        fn any_split_decodes_alike(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..6),
            splits in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend_from_slice(format!("{:X};n=1\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\nT: v\r\n\r\nnext");
            let mut cuts: Vec<_> = splits.iter().map(|split| split.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let expected = (chunks.concat(), vec![("T".to_owned(), b"v".to_vec())], 4);
            prop_assert_eq!(decode(RequestFraming::Chunked, &parts), Ok(Some(expected)));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(RequestFraming::Chunked, &[&bytes]);
        }
    }
}
