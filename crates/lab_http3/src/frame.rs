//! Frames of a request stream (RFC 9114 §7), read in pieces. Callers check their order.

use crate::code::{LabH3Code, PeerViolation};
use crate::control::ConnectionSide;
use crate::varint;

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const CANCEL_PUSH: u64 = 0x3;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const PUSH_PROMISE: u64 = 0x5;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const MAX_PUSH_ID: u64 = 0xd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPart<'b> {
    Headers(&'b [u8]),
    Data(&'b [u8]),
}

/// Reads the frames of one stream. Unknown frames are skipped (RFC 9114 §9).
#[derive(Debug, Default)]
pub struct Frames {
    /// Start of a frame's head, or of a field section.
    partial: Vec<u8>,
    within: Within,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Within {
    #[default]
    Head,
    Headers(usize),
    Data(u64),
    Unknown(u64),
}

impl Frames {
    /// Prepares for another stream.
    pub fn restart(&mut self) {
        self.partial.clear();
        self.within = Within::Head;
    }

    /// Whether the stream may end here: not within a frame (RFC 9114 §7.1).
    pub fn is_between(&self) -> bool {
        self.within == Within::Head && self.partial.is_empty()
    }

    /// Passes whole parts to `take`. `most` is the maximum length of a field section; `side` is the reader's.
    ///
    /// # Errors
    /// The error of `take`, or a frame that is not allowed.
    #[inline]
    pub fn read<E: From<PeerViolation>>(
        &mut self,
        mut bytes: &[u8],
        most: usize,
        side: ConnectionSide,
        mut take: impl FnMut(StreamPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            match self.within {
                Within::Head if self.partial.is_empty() => match head(bytes) {
                    Some((kind, length, used)) => {
                        bytes = &bytes[used..];
                        self.within = begin(kind, length, most, side)?;
                        if length == 0 {
                            self.end_empty(&mut take)?;
                        }
                    }
                    None => {
                        self.partial.extend_from_slice(bytes);
                        return Ok(());
                    }
                },
                Within::Head => {
                    // Byte by byte: only one frame head in a thousand is split.
                    self.partial.push(bytes[0]);
                    bytes = &bytes[1..];
                    if let Some((kind, length, _)) = head(&self.partial) {
                        self.partial.clear();
                        self.within = begin(kind, length, most, side)?;
                        if length == 0 {
                            self.end_empty(&mut take)?;
                        }
                    }
                }
                Within::Headers(length) => {
                    let missing = length - self.partial.len();
                    let (piece, rest) = bytes.split_at(bytes.len().min(missing));
                    bytes = rest;
                    if piece.len() == length {
                        self.within = Within::Head;
                        take(StreamPart::Headers(piece))?;
                        continue;
                    }
                    self.partial.extend_from_slice(piece);
                    if self.partial.len() == length {
                        self.within = Within::Head;
                        let section = std::mem::take(&mut self.partial);
                        take(StreamPart::Headers(&section))?;
                    }
                }
                Within::Data(left) => {
                    let (piece, rest) = split(bytes, left);
                    bytes = rest;
                    let left = left - piece.len() as u64;
                    self.within = if left == 0 { Within::Head } else { Within::Data(left) };
                    take(StreamPart::Data(piece))?;
                }
                Within::Unknown(left) => {
                    let (piece, rest) = split(bytes, left);
                    bytes = rest;
                    let left = left - piece.len() as u64;
                    self.within = if left == 0 { Within::Head } else { Within::Unknown(left) };
                }
            }
        }
        Ok(())
    }

    fn end_empty<E>(&mut self, take: &mut impl FnMut(StreamPart<'_>) -> Result<(), E>) -> Result<(), E> {
        match std::mem::take(&mut self.within) {
            Within::Headers(_) => take(StreamPart::Headers(&[])),
            Within::Data(_) => take(StreamPart::Data(&[])),
            Within::Head | Within::Unknown(_) => Ok(()),
        }
    }
}

/// Parses the type and length of the first frame, and returns them with the length of this head.
#[inline]
fn head(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let (kind, first) = varint::read(bytes)?;
    let (length, second) = varint::read(&bytes[first..])?;
    Some((kind, length, first + second))
}

#[inline]
fn begin(kind: u64, length: u64, most: usize, side: ConnectionSide) -> Result<Within, PeerViolation> {
    match kind {
        DATA => Ok(Within::Data(length)),
        HEADERS if length > most as u64 => {
            Err(PeerViolation(LabH3Code::EXCESSIVE_LOAD, "a field section is larger than the limit"))
        }
        HEADERS => Ok(Within::Headers(length as usize)),
        // RFC 9114 §7.2.5: this client allowed no push.
        PUSH_PROMISE if side == ConnectionSide::Client => {
            Err(PeerViolation(LabH3Code::ID_ERROR, "it sends a push, which was not allowed"))
        }
        PUSH_PROMISE | CANCEL_PUSH | SETTINGS | GOAWAY | MAX_PUSH_ID => {
            Err(PeerViolation(LabH3Code::FRAME_UNEXPECTED, "a frame that is not allowed on a request stream"))
        }
        // RFC 9114 §7.2.8: frames of HTTP/2 that HTTP/3 reserves.
        0x2 | 0x6 | 0x8 | 0x9 => Err(PeerViolation(LabH3Code::FRAME_UNEXPECTED, "a frame of HTTP/2")),
        _ => Ok(Within::Unknown(length)),
    }
}

fn split(bytes: &[u8], left: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len())))
}

pub fn push_headers(out: &mut Vec<u8>, section: &[u8]) {
    varint::push(out, HEADERS);
    varint::push(out, section.len() as u64);
    out.extend_from_slice(section);
}

/// Appends a GOAWAY frame for a control stream.
pub fn push_goaway(out: &mut Vec<u8>, id: u64) {
    let mut payload = Vec::new();
    varint::push(&mut payload, id);
    varint::push(out, GOAWAY);
    varint::push(out, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// Appends the head of a DATA frame; content of this length follows.
pub fn push_data_head(out: &mut Vec<u8>, length: u64) {
    varint::push(out, DATA);
    varint::push(out, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sections, content, and whether the last frame was whole.
    type Read = (Vec<Vec<u8>>, Vec<u8>, bool);

    /// Reads frames in pieces of this length.
    fn read(bytes: &[u8], piece: usize, side: ConnectionSide) -> Result<Read, PeerViolation> {
        let (mut frames, mut sections, mut content) = (Frames::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            frames.read(piece, 100, side, |part| {
                match part {
                    StreamPart::Headers(section) => sections.push(section.to_vec()),
                    StreamPart::Data(piece) => content.extend_from_slice(piece),
                }
                Ok::<(), PeerViolation>(())
            })?;
        }
        Ok((sections, content, frames.is_between()))
    }

    #[test]
    fn any_split_reads_alike() {
        let mut bytes = Vec::new();
        push_headers(&mut bytes, b"section");
        // Unknown frames, with content and without.
        bytes.extend_from_slice(b"\x21\x03abc\x40\x21\x00");
        push_data_head(&mut bytes, 300);
        bytes.extend_from_slice(&[b'x'; 300]);
        bytes.extend_from_slice(b"\x00\x00\x01\x00\x01\x02ab");
        for piece in [1, 2, 3, 7, 64, 1000] {
            let (sections, content, is_between) =
                read(&bytes, piece, ConnectionSide::Client).expect("they are frames");
            assert_eq!(sections, [&b"section"[..], b"", b"ab"], "{piece}");
            assert!(content == [b'x'; 300] && is_between);
        }
        assert_eq!(read(&bytes[..5], 9, ConnectionSide::Client).map(|read| read.2), Ok(false));
        assert_eq!(read(b"\x40", 9, ConnectionSide::Client).map(|read| read.2), Ok(false));
    }

    #[test]
    fn frames_that_may_not_be_there() {
        for (bytes, side, code) in [
            (&b"\x02\x00"[..], ConnectionSide::Client, LabH3Code::FRAME_UNEXPECTED),
            (b"\x09\x00", ConnectionSide::Server, LabH3Code::FRAME_UNEXPECTED),
            (b"\x04\x00", ConnectionSide::Client, LabH3Code::FRAME_UNEXPECTED),
            (b"\x07\x00", ConnectionSide::Server, LabH3Code::FRAME_UNEXPECTED),
            (b"\x03\x00", ConnectionSide::Client, LabH3Code::FRAME_UNEXPECTED),
            (b"\x0d\x00", ConnectionSide::Client, LabH3Code::FRAME_UNEXPECTED),
            (b"\x05\x00", ConnectionSide::Client, LabH3Code::ID_ERROR),
            (b"\x05\x00", ConnectionSide::Server, LabH3Code::FRAME_UNEXPECTED),
            (b"\x01\x40\x65", ConnectionSide::Server, LabH3Code::EXCESSIVE_LOAD),
        ] {
            for piece in [1, 9] {
                assert_eq!(read(bytes, piece, side).map_err(|broken| broken.0), Err(code), "{bytes:x?}");
            }
        }
    }
}
