//! The chunked transfer coding (RFC 9112 §7.1): decodes in place, and writes new framing.
//!
//! Drops extensions and checks trailers, so that no byte of a sender's framing reaches the next hop.

use crate::edit::name_of;
use crate::name::Name;
use crate::parse::{field, is_token_byte};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// In the whole body, not per chunk.
    pub extension_bytes: usize,
    pub trailer_bytes: usize,
}

// Extensions and trailers move no data, so a body without these limits could occupy a connection for ever.
pub(crate) const LIMITS: ChunkLimits = ChunkLimits { extension_bytes: 16 * 1024, trailer_bytes: 16 * 1024 };

impl Default for ChunkLimits {
    fn default() -> Self {
        LIMITS
    }
}

/// Why a chunked body is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// A chunk size that is empty or not hexadecimal.
    Size,
    /// A chunk size of more than 15 digits.
    SizeTooLarge,
    /// A line or chunk that does not end in CRLF.
    Terminator,
    /// A control byte in an extension.
    Extension,
    /// Extensions beyond `ChunkLimits::extension_bytes`.
    ExtensionsTooLarge,
    /// A trailer line that is no field.
    Trailer,
    /// A trailer section beyond `ChunkLimits::trailer_bytes`.
    TrailersTooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkStep {
    /// Length of the body data, which is now at the front of the buffer.
    pub data: usize,
    /// Bytes of the buffer that belonged to the body, framing included.
    pub consumed: usize,
    pub done: bool,
}

#[derive(Debug, Clone, Default)]
pub struct ChunkedDecoder {
    state: ChunkState,
    extension_bytes: usize,
    /// The checked trailer lines, followed by the trailer line that is still incomplete.
    trailers: Vec<u8>,
    /// The length of the complete, checked lines in `trailers`.
    trailers_kept: usize,
    trailer_bytes: usize,
    refusal: Option<Box<ChunkRefusal>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRefusal {
    pub error: ChunkError,
    /// The bytes from the offending one on; in the trailer section, the name of the field.
    pub beginning: Vec<u8>,
}

/// The most bytes of a rejected body that are kept for the message.
const BEGINNING_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size { value: u64, digits: u8 },
    Extension { value: u64 },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailer,
    Done,
}

impl Default for ChunkState {
    fn default() -> Self {
        ChunkState::Size { value: 0, digits: 0 }
    }
}

impl ChunkedDecoder {
    /// Starts a new body, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.state = ChunkState::default();
        self.extension_bytes = 0;
        self.trailers.clear();
        self.trailers_kept = 0;
        self.trailer_bytes = 0;
        self.refusal = None;
    }

    /// Takes the reason for a rejection. `None` if the body was not rejected, or the reason was already taken.
    pub fn take_refusal(&mut self) -> Option<Box<ChunkRefusal>> {
        self.refusal.take()
    }

    #[cold]
    fn refuse(&mut self, error: ChunkError, bytes: &[u8]) -> ChunkError {
        // Only the name of a trailer is kept: the value may be a secret.
        let beginning = match self.state {
            ChunkState::Trailer => {
                let line = &self.trailers[self.trailers_kept..];
                &line[..line.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(line.len())]
            }
            _ => bytes,
        };
        let beginning = beginning[..beginning.len().min(BEGINNING_BYTES)].to_vec();
        self.refusal = Some(Box::new(ChunkRefusal { error, beginning }));
        error
    }

    /// Whether the decoder is inside an incomplete element: a chunk size, chunk data or trailers.
    pub fn is_within(&self) -> bool {
        // Between two chunks the sender owes nothing. A subscription may be silent there without being too slow.
        !matches!(self.state, ChunkState::Size { digits: 0, .. } | ChunkState::Done)
    }

    /// The trailer fields that may be forwarded, as lines with CRLF. Complete once the body is.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers[..self.trailers_kept]
    }

    /// Removes trailer fields with unwanted names. Called once the body is complete.
    pub fn retain_trailers(&mut self, is_wanted: impl Fn(&[u8]) -> bool) {
        let lines = self.trailers().split_inclusive(|&byte| byte == b'\n');
        self.trailers = lines.filter(|line| is_wanted(name_of(line))).flatten().copied().collect();
        self.trailers_kept = self.trailers.len();
    }

    /// Decodes the bytes in `buffer` and moves the data to its front. All bytes are consumed until the body is
    /// complete; bytes after the body are not changed.
    pub fn decode(&mut self, buffer: &mut [u8], limits: &ChunkLimits) -> Result<ChunkStep, ChunkError> {
        let mut read = 0;
        let mut written = 0;
        while read < buffer.len() && self.state != ChunkState::Done {
            if let ChunkState::Data { left } = self.state {
                let count = left.min((buffer.len() - read) as u64) as usize;
                // A chunk that began in an earlier buffer is in place already.
                if read != written {
                    buffer.copy_within(read..read + count, written);
                }
                read += count;
                written += count;
                let left = left - count as u64;
                self.state = if left == 0 { ChunkState::DataCr } else { ChunkState::Data { left } };
            } else {
                self.framing_byte(buffer[read], limits)
                    .map_err(|error| self.refuse(error, &buffer[read..]))?;
                read += 1;
            }
        }
        Ok(ChunkStep { data: written, consumed: read, done: self.state == ChunkState::Done })
    }

    fn framing_byte(&mut self, byte: u8, limits: &ChunkLimits) -> Result<(), ChunkError> {
        self.state = match (self.state, byte) {
            (ChunkState::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                // 15 digits are 60 bits: no sum of such sizes and buffers overflows.
                if digits == 15 {
                    return Err(ChunkError::SizeTooLarge);
                }
                ChunkState::Size { value: value << 4 | u64::from(hex_value(byte)), digits: digits + 1 }
            }
            // RFC 9112 §7.1: no sign, `0x` or white space before the digits. Lenient parsers accept them, and read
            // another size.
            (ChunkState::Size { digits: 0, .. }, _) => return Err(ChunkError::Size),
            (ChunkState::Size { value, .. } | ChunkState::Extension { value }, b'\r') => {
                ChunkState::SizeLf { value }
            }
            (ChunkState::Size { value, .. }, b';') => ChunkState::Extension { value },
            // A bare LF ends the line for some servers and not for others: that difference smuggles requests.
            (ChunkState::Size { .. }, b'\n') => return Err(ChunkError::Terminator),
            (ChunkState::Size { .. }, _) => return Err(ChunkError::Size),
            (ChunkState::Extension { value }, _) => {
                // Counted over the whole body: chunks of one byte with long extensions would pass a limit per chunk.
                self.extension_bytes += 1;
                // A bare LF in an extension would end the line for a laxer parser, too.
                if (byte < 0x20 && byte != b'\t') || byte == 0x7f {
                    return Err(ChunkError::Extension);
                }
                if self.extension_bytes > limits.extension_bytes {
                    return Err(ChunkError::ExtensionsTooLarge);
                }
                ChunkState::Extension { value }
            }
            (ChunkState::SizeLf { value: 0 }, b'\n') => ChunkState::Trailer,
            (ChunkState::SizeLf { value }, b'\n') => ChunkState::Data { left: value },
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            // RFC 9112 §7.1: exactly CRLF behind the data. Skipping other bytes here would shift every later chunk.
            (ChunkState::DataLf, b'\n') => ChunkState::default(),
            (ChunkState::SizeLf { .. } | ChunkState::DataCr | ChunkState::DataLf, _) => {
                return Err(ChunkError::Terminator);
            }
            (ChunkState::Trailer, _) => return self.trailer_byte(byte, limits),
            (ChunkState::Data { .. } | ChunkState::Done, _) => self.state,
        };
        Ok(())
    }

    fn trailer_byte(&mut self, byte: u8, limits: &ChunkLimits) -> Result<(), ChunkError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.trailer_bytes {
            return Err(ChunkError::TrailersTooLarge);
        }
        // Byte by byte, because a line may be split anywhere. Trailers are rare and short.
        self.trailers.push(byte);
        if byte != b'\n' {
            return Ok(());
        }
        let line = self.trailers[self.trailers_kept..].strip_suffix(b"\r\n").ok_or(ChunkError::Terminator)?;
        if line.is_empty() {
            self.trailers.truncate(self.trailers_kept);
            self.state = ChunkState::Done;
            return Ok(());
        }
        let field = field(line, 0).map_err(|_| ChunkError::Trailer)?;
        // A forbidden field is dropped, not an error: the body is complete without it.
        if may_be_trailer(field.known, field.name.for_bytes(line)) {
            self.trailers_kept = self.trailers.len();
        } else {
            self.trailers.truncate(self.trailers_kept);
        }
        Ok(())
    }
}

/// RFC 9110 §6.5.1: fields for framing, routing, authentication, request modifiers and content are no trailers.
fn may_be_trailer(known: Name, name: &[u8]) -> bool {
    const NEVER: [&[u8]; 20] = [
        b"age",
        b"authorization",
        b"cache-control",
        b"content-encoding",
        b"content-range",
        b"content-type",
        b"cookie",
        b"expires",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"location",
        b"pragma",
        b"range",
        b"retry-after",
        b"set-cookie",
        b"vary",
        b"www-authenticate",
    ];
    // Known names steer the proxy, its log or the next hop: none may arrive after the head.
    known == Name::Other && !NEVER.iter().any(|never| name.eq_ignore_ascii_case(never))
}

fn hex_value(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

/// The most framing that a chunk adds: up to 15 digits and CRLF before its data, CRLF after it.
pub const CHUNK_FRAME_BYTES: usize = 17 + 2;

/// Writes the size line of a chunk. The text ends where the array ends, and starts at the returned index.
pub fn chunk_prefix(size: usize) -> ([u8; 18], usize) {
    let mut text = [0; 18];
    text[16] = b'\r';
    text[17] = b'\n';
    let mut start = 16;
    let mut rest = size;
    loop {
        start -= 1;
        text[start] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
        if rest == 0 {
            return (text, start);
        }
    }
}
