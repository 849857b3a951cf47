//! The chunked transfer coding (RFC 9112 §7.1), decoded in place and framed anew.
//!
//! Extensions are dropped and trailers checked, so that no byte of a sender's framing reaches the next hop.

use crate::edit::name_of;
use crate::name::Name;
use crate::parse::{field, is_token_byte};

/// Limits on chunk extensions and trailers of a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// The most bytes of chunk extensions in a whole body.
    pub extension_bytes: usize,
    /// The most bytes of the trailer section.
    pub trailer_bytes: usize,
}

/// The default limits.
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

/// The result of one call of `Chunked::decode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// The length of the body data, which is now at the front of the buffer.
    pub data: usize,
    /// How many bytes of the buffer belonged to the body, framing included.
    pub consumed: usize,
    /// Whether the body is complete.
    pub done: bool,
}

/// An incremental decoder of chunked bodies.
#[derive(Debug, Clone, Default)]
pub struct Chunked {
    state: State,
    extension_bytes: usize,
    /// The checked trailer lines, followed by the trailer line that is still incomplete.
    trailers: Vec<u8>,
    /// The length of the complete, checked lines in `trailers`.
    trailers_kept: usize,
    trailer_bytes: usize,
    /// Why the body was rejected, if it was.
    refusal: Option<Box<ChunkRefusal>>,
}

/// Where a chunked body breaks the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRefusal {
    /// The broken rule.
    pub error: ChunkError,
    /// The bytes from the offending one on; in the trailer section, the name of the field.
    pub beginning: Vec<u8>,
}

/// The most bytes of a rejected body that are kept for the message.
const BEGINNING_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size { value: u64, digits: u8 },
    Extension { value: u64 },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailer,
    Done,
}

impl Default for State {
    fn default() -> Self {
        State::Size { value: 0, digits: 0 }
    }
}

impl Chunked {
    /// Starts a new body, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.state = State::default();
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

    /// Notes the broken rule and the offending bytes for a later message.
    #[cold]
    fn refuse(&mut self, error: ChunkError, bytes: &[u8]) -> ChunkError {
        // Of a trailer its name alone: the value may be a secret.
        let beginning = match self.state {
            State::Trailer => {
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
        !matches!(self.state, State::Size { digits: 0, .. } | State::Done)
    }

    /// The trailer fields that may be forwarded, as lines with CRLF; complete once the body is.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers[..self.trailers_kept]
    }

    /// Removes trailer fields with unwanted names, once the body is complete.
    pub fn retain_trailers(&mut self, is_wanted: impl Fn(&[u8]) -> bool) {
        let lines = self.trailers().split_inclusive(|&byte| byte == b'\n');
        self.trailers = lines.filter(|line| is_wanted(name_of(line))).flatten().copied().collect();
        self.trailers_kept = self.trailers.len();
    }

    /// Decodes the bytes in `buffer` and moves the data to its front. All bytes are consumed until the body is
    /// complete; bytes after the body are left alone.
    pub fn decode(&mut self, buffer: &mut [u8], limits: &ChunkLimits) -> Result<Decoded, ChunkError> {
        let mut read = 0;
        let mut written = 0;
        while read < buffer.len() && self.state != State::Done {
            if let State::Data { left } = self.state {
                let count = left.min((buffer.len() - read) as u64) as usize;
                if read != written {
                    buffer.copy_within(read..read + count, written);
                }
                read += count;
                written += count;
                let left = left - count as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data { left } };
            } else {
                self.framing_byte(buffer[read], limits)
                    .map_err(|error| self.refuse(error, &buffer[read..]))?;
                read += 1;
            }
        }
        Ok(Decoded { data: written, consumed: read, done: self.state == State::Done })
    }

    fn framing_byte(&mut self, byte: u8, limits: &ChunkLimits) -> Result<(), ChunkError> {
        self.state = match (self.state, byte) {
            (State::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                // 15 digits are 60 bits: no sum of such sizes and buffers overflows.
                if digits == 15 {
                    return Err(ChunkError::SizeTooLarge);
                }
                State::Size { value: value << 4 | u64::from(hex_value(byte)), digits: digits + 1 }
            }
            (State::Size { digits: 0, .. }, _) => return Err(ChunkError::Size),
            (State::Size { value, .. } | State::Extension { value }, b'\r') => State::SizeLf { value },
            (State::Size { value, .. }, b';') => State::Extension { value },
            (State::Size { .. }, b'\n') => return Err(ChunkError::Terminator),
            (State::Size { .. }, _) => return Err(ChunkError::Size),
            (State::Extension { value }, _) => {
                self.extension_bytes += 1;
                if (byte < 0x20 && byte != b'\t') || byte == 0x7f {
                    return Err(ChunkError::Extension);
                }
                if self.extension_bytes > limits.extension_bytes {
                    return Err(ChunkError::ExtensionsTooLarge);
                }
                State::Extension { value }
            }
            (State::SizeLf { value: 0 }, b'\n') => State::Trailer,
            (State::SizeLf { value }, b'\n') => State::Data { left: value },
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::default(),
            (State::SizeLf { .. } | State::DataCr | State::DataLf, _) => return Err(ChunkError::Terminator),
            (State::Trailer, _) => return self.trailer_byte(byte, limits),
            (State::Data { .. } | State::Done, _) => self.state,
        };
        Ok(())
    }

    fn trailer_byte(&mut self, byte: u8, limits: &ChunkLimits) -> Result<(), ChunkError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.trailer_bytes {
            return Err(ChunkError::TrailersTooLarge);
        }
        self.trailers.push(byte);
        if byte != b'\n' {
            return Ok(());
        }
        let line = self.trailers[self.trailers_kept..].strip_suffix(b"\r\n").ok_or(ChunkError::Terminator)?;
        if line.is_empty() {
            self.trailers.truncate(self.trailers_kept);
            self.state = State::Done;
            return Ok(());
        }
        let field = field(line, 0).map_err(|_| ChunkError::Trailer)?;
        if may_be_trailer(field.known, field.name.of(line)) {
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
