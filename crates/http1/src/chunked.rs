//! The chunked transfer coding (RFC 9112 §7.1), decoded in place and framed anew.
//!
//! Extensions are dropped and trailers checked, so that no byte of a sender's framing reaches the next hop.

use crate::edit::name_of;
use crate::name::Name;
use crate::parse::{field, is_token_byte};

/// Limits of what a chunked body may carry besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Chunk extensions of a whole body, in bytes.
    pub extension_bytes: usize,
    /// The trailer section, in bytes.
    pub trailer_bytes: usize,
}

/// What bodies may carry unless somebody says otherwise.
pub(crate) const LIMITS: ChunkLimits = ChunkLimits { extension_bytes: 16 * 1024, trailer_bytes: 16 * 1024 };

impl Default for ChunkLimits {
    fn default() -> Self {
        LIMITS
    }
}

/// Why a chunked body is refused.
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

/// What a call of `Chunked::decode` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of body data, now at the front of the buffer.
    pub data: usize,
    /// Bytes of the buffer that belonged to the body as it was sent.
    pub consumed: usize,
    /// Whether the body has ended.
    pub done: bool,
}

/// A decoder, fed as bytes arrive.
#[derive(Debug, Clone, Default)]
pub struct Chunked {
    state: State,
    extension_bytes: usize,
    /// The line of the trailer section that is not yet whole, behind the whole lines that are kept.
    trailers: Vec<u8>,
    /// How much of `trailers` is whole, checked lines.
    trailers_kept: usize,
    trailer_bytes: usize,
    /// Why the body is refused, once it is.
    refusal: Option<Box<ChunkRefusal>>,
}

/// Where a body is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRefusal {
    /// Which rule it breaks.
    pub error: ChunkError,
    /// The bytes there: the first is the one that breaks it. In the trailer section, the name of the field.
    pub beginning: Vec<u8>,
}

/// What is kept of a body that is refused.
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
    /// Starts a new body and keeps the capacity.
    pub fn clear(&mut self) {
        self.state = State::default();
        self.extension_bytes = 0;
        self.trailers.clear();
        self.trailers_kept = 0;
        self.trailer_bytes = 0;
        self.refusal = None;
    }

    /// Why the body is refused; `None` as long as it is not, or where that was told.
    pub fn take_refusal(&mut self) -> Option<Box<ChunkRefusal>> {
        self.refusal.take()
    }

    /// Notes what is wrong with these bytes, for whoever is to be told.
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

    /// Whether something that has begun is still to come: a size, the data of a chunk, trailers.
    pub fn is_within(&self) -> bool {
        !matches!(self.state, State::Size { digits: 0, .. } | State::Done)
    }

    /// The trailer fields that may be sent on, as lines with their CRLF; whole once the body is done.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers[..self.trailers_kept]
    }

    /// Takes out those whose names are unwanted, once the body is done.
    pub fn retain_trailers(&mut self, is_wanted: impl Fn(&[u8]) -> bool) {
        let lines = self.trailers().split_inclusive(|&byte| byte == b'\n');
        self.trailers = lines.filter(|line| is_wanted(name_of(line))).flatten().copied().collect();
        self.trailers_kept = self.trailers.len();
    }

    /// Decodes what has arrived and moves the data to the front of `buffer`. All bytes are consumed until the body
    /// is done; those behind it are left alone.
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

/// What a chunk of any size adds at most before its data (15 digits, CRLF) and behind it (CRLF).
pub const CHUNK_FRAME_BYTES: usize = 17 + 2;

/// The size line of a chunk; the text ends where the array ends and starts at the returned index.
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
