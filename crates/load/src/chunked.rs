//! Decoder of chunked framing (RFC 9112 §7.1). It reads byte by byte, so any split of the input gives the same result.
//!
//! It counts the content and checks the framing, and keeps neither content nor trailers.

use crate::check::Malformed;

/// Maximum bytes of one chunk line with its extensions, or of all trailers.
const LINE_BYTES_MAX: u32 = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkPosition {
    Size { digits: u32 },
    Extension,
    SizeEnd,
    Content,
    ContentCr,
    ContentLf,
    TrailerStart,
    Trailer,
    TrailerEnd,
    LastLf,
}

#[derive(Debug, Clone)]
pub(crate) struct LoadChunked {
    place: ChunkPosition,
    left_bytes: u64,
    line_bytes: u32,
    content_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// All input belongs to the body, and more follows.
    More,
    /// The body ended after this many bytes of the input.
    Ended { used_bytes: usize },
}

impl LoadChunked {
    pub(crate) fn new() -> Self {
        Self { place: ChunkPosition::Size { digits: 0 }, left_bytes: 0, line_bytes: 0, content_bytes: 0 }
    }

    /// Bytes of content so far, without framing.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    pub(crate) fn read(&mut self, input: &[u8]) -> Result<Chunks, Malformed> {
        self.read_to(input, |_| {})
    }

    /// Like [`Chunked::read`], and passes pieces of the content to a function.
    #[inline]
    pub(crate) fn read_to(
        &mut self,
        input: &[u8],
        mut content: impl FnMut(&[u8]),
    ) -> Result<Chunks, Malformed> {
        let mut at = 0;
        while at < input.len() {
            if self.place == ChunkPosition::Content {
                let available = (input.len() - at) as u64;
                let taken = available.min(self.left_bytes);
                self.left_bytes -= taken;
                self.content_bytes = self.content_bytes.saturating_add(taken);
                content(&input[at..at + taken as usize]);
                at += taken as usize;
                if self.left_bytes == 0 {
                    self.place = ChunkPosition::ContentCr;
                }
                continue;
            }
            let byte = input[at];
            at += 1;
            if self.place == ChunkPosition::LastLf {
                return if byte == b'\n' {
                    Ok(Chunks::Ended { used_bytes: at })
                } else {
                    Err(Malformed::Chunk)
                };
            }
            self.place = self.framing(byte)?;
        }
        Ok(Chunks::More)
    }

    /// The position after a byte that is not content.
    fn framing(&mut self, byte: u8) -> Result<ChunkPosition, Malformed> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return Err(Malformed::Chunk);
        }
        let next = match (self.place, byte) {
            (ChunkPosition::Size { digits }, _) if byte.is_ascii_hexdigit() => {
                // 64 bits hold 16 digits; more would overflow.
                if digits == 16 {
                    return Err(Malformed::Chunk);
                }
                self.left_bytes = self.left_bytes << 4 | u64::from(hexadecimal(byte));
                ChunkPosition::Size { digits: digits + 1 }
            }
            (ChunkPosition::Size { digits: 0 }, _) => return Err(Malformed::Chunk),
            (ChunkPosition::Size { .. }, b';' | b' ' | b'\t') => ChunkPosition::Extension,
            (ChunkPosition::Size { .. } | ChunkPosition::Extension, b'\r') => ChunkPosition::SizeEnd,
            // Extensions and fields have no control characters except TAB.
            (ChunkPosition::Extension | ChunkPosition::Trailer, b'\t' | b' '..=b'~' | 0x80..) => self.place,
            (ChunkPosition::SizeEnd, b'\n') if self.left_bytes == 0 => ChunkPosition::TrailerStart,
            (ChunkPosition::SizeEnd, b'\n') => ChunkPosition::Content,
            (ChunkPosition::ContentCr, b'\r') => ChunkPosition::ContentLf,
            (ChunkPosition::ContentLf, b'\n') => {
                self.line_bytes = 0;
                ChunkPosition::Size { digits: 0 }
            }
            (ChunkPosition::TrailerStart, b'\r') => ChunkPosition::LastLf,
            (ChunkPosition::TrailerStart, b'!'..=b'~') => ChunkPosition::Trailer,
            (ChunkPosition::Trailer, b'\r') => ChunkPosition::TrailerEnd,
            (ChunkPosition::TrailerEnd, b'\n') => ChunkPosition::TrailerStart,
            _ => return Err(Malformed::Chunk),
        };
        Ok(next)
    }
}

fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Result<(Chunks, u64), Malformed> {
        let mut chunked = LoadChunked::new();
        chunked.read(input).map(|chunks| (chunks, chunked.content_bytes()))
    }

    #[test]
    fn whole_bodies_end_where_they_end() {
        let cases: [(&[u8], u64); 6] = [
            (b"0\r\n\r\n", 0),
            (b"5\r\nhello\r\n0\r\n\r\n", 5),
            (b"A;x=\"y\"\r\n0123456789\r\n1 \r\nx\r\n0\r\n\r\n", 11),
            (b"000005\r\nhello\r\n00\r\n\r\n", 5),
            (b"1\r\nx\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", 1),
            (b"f\r\n\r\n\r\n0\r\n\r\n0123\r\n\r\n0\r\n\r\n", 15),
        ];
        for (input, content_bytes) in cases {
            let shown = String::from_utf8_lossy(input);
            let ended = Chunks::Ended { used_bytes: input.len() };
            assert_eq!(read(input), Ok((ended, content_bytes)), "{shown:?}");
            let followed = [input, b"HTTP/1.1"].concat();
            assert_eq!(read(&followed), Ok((ended, content_bytes)), "{shown:?} and more");
            assert_eq!(
                read(&input[..input.len() - 1]).map(|found| found.0),
                Ok(Chunks::More),
                "{shown:?} less one"
            );
        }
    }

    #[test]
    fn rfc_9112_7_1_what_is_no_chunk_is_refused() {
        let cases: [&[u8]; 13] = [
            b"\r\n",
            b"g\r\n",
            b" 5\r\nhello",
            b"-5\r\n",
            b"0x5\r\nhello",
            b"5\nhello",
            b"5\rhello",
            b"5\r\nhello0\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5;\n",
            b"11111111111111111\r\n",
            b"0\r\n\n",
            b"0\r\n obs: fold\r\n\r\n",
        ];
        for input in cases {
            assert_eq!(read(input), Err(Malformed::Chunk), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn endless_extensions_and_trailers_are_refused() {
        for start in [&b"5;"[..], b"0\r\nX: "] {
            let input = [start, &[b'a'; LINE_BYTES_MAX as usize]].concat();
            assert_eq!(read(&input), Err(Malformed::Chunk));
        }
    }
}
