//! WebSocket, the client's side (RFC 6455): masks outgoing frames, reads frames of the server, and checks its
//! handshake. No extensions. No I/O.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

use super::assembled::Assembled;

/// GUID for Sec-WebSocket-Accept (RFC 6455 §1.3).
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Maximum size of a message.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// RFC 6455 §5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xA,
}

/// An event from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceivedMessage<'a> {
    /// A whole message, text or binary.
    Message(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    /// The server closes, with this code.
    Close(Option<u16>),
}

/// A violation of the protocol by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("a WebSocket frame has a reserved bit, without an extension that gives it a meaning")]
    Reserved,
    #[error("a WebSocket frame of the server is masked")]
    Masked,
    #[error("a WebSocket frame has an unknown opcode")]
    Opcode,
    #[error("the length of a WebSocket frame is not written as short as possible")]
    Length,
    #[error("a WebSocket control frame is in fragments or longer than 125 bytes")]
    Control,
    #[error("a WebSocket message begins within another, or continues none")]
    Order,
    #[error("a WebSocket text message is not UTF-8")]
    Text,
    #[error("a WebSocket close frame has no valid code")]
    CloseCode,
    #[error("a WebSocket message is larger than 64 MiB")]
    TooLarge,
}

impl Violation {
    /// Code of the close frame that answers it (RFC 6455 §7.4.1).
    pub(crate) fn close_code(self) -> u16 {
        match self {
            Self::Text => 1007,
            Self::TooLarge => 1009,
            _ => 1002,
        }
    }
}

/// Value of Sec-WebSocket-Accept for a key (RFC 6455 §4.2.2).
pub(crate) fn accept(key: &str) -> String {
    BASE64_STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")))
}

pub(crate) fn key(nonce: [u64; 2]) -> String {
    BASE64_STANDARD.encode([nonce[0].to_le_bytes(), nonce[1].to_le_bytes()].concat())
}

/// Appends a frame, masked (RFC 6455 §5.3).
pub(crate) fn append(opcode: Opcode, payload: &[u8], mask: u32, out: &mut Vec<u8>) {
    out.push(FINAL | opcode as u8);
    match payload.len() {
        length @ 0..=125 => out.push(MASKED | length as u8),
        length @ 126..=0xFFFF => {
            out.push(MASKED | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(MASKED | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    let mask = mask.to_ne_bytes();
    out.extend_from_slice(&mask);
    let from = out.len();
    out.extend_from_slice(payload);
    let (words, rest) = out[from..].as_chunks_mut::<4>();
    words
        .iter_mut()
        .for_each(|word| *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes());
    rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

pub(crate) fn append_close(code: u16, mask: u32, out: &mut Vec<u8>) {
    append(Opcode::Close, &code.to_be_bytes(), mask, out);
}

/// Reader of the frames of one server.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The first bytes of a frame: at most 10.
    head: Vec<u8>,
    frame: Option<WebSocketFrame>,
    /// A message in fragments: whether it is text, and its bytes so far.
    fragments: Option<(bool, Vec<u8>)>,
}

#[derive(Debug)]
struct WebSocketFrame {
    opcode: Opcode,
    is_final: bool,
    payload: Assembled,
}

impl Frames {
    /// Reads the next bytes, and passes each complete event to `take`.
    pub(crate) fn read(
        &mut self,
        mut input: &[u8],
        mut take: impl FnMut(ReceivedMessage<'_>),
    ) -> Result<(), Violation> {
        loop {
            if let Some(mut frame) = self.frame.take() {
                match frame.payload.take(&mut input) {
                    None => {
                        self.frame = Some(frame);
                        return Ok(());
                    }
                    Some(payload) => self.end_frame(frame.opcode, frame.is_final, payload, &mut take)?,
                }
            }
            while self.frame.is_none() {
                let [byte, rest @ ..] = input else { return Ok(()) };
                input = rest;
                self.head.push(*byte);
                self.begin_frame()?;
            }
        }
    }

    fn begin_frame(&mut self) -> Result<(), Violation> {
        let &[first, second, ref rest @ ..] = self.head.as_slice() else { return Ok(()) };
        // RFC 6455 §5.1: servers must not mask their frames.
        if second & MASKED != 0 {
            return Err(Violation::Masked);
        }
        // §5.2: reserved bits are zero without an extension.
        if first & 0x70 != 0 {
            return Err(Violation::Reserved);
        }
        let (length_bytes, short) = match second {
            126 => (2, 0),
            127 => (8, 0),
            short => (0, u64::from(short)),
        };
        if rest.len() < length_bytes {
            return Ok(());
        }
        let length = rest.iter().fold(short, |sum, byte| sum << 8 | u64::from(*byte));
        let is_overlong = match length_bytes {
            2 => length < 126,
            8 => length <= 0xFFFF || length >> 63 != 0,
            _ => false,
        };
        if is_overlong {
            return Err(Violation::Length);
        }
        let opcode = match first & 0x0F {
            0x0 => Opcode::Continuation,
            0x1 => Opcode::Text,
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xA => Opcode::Pong,
            _ => return Err(Violation::Opcode),
        };
        let is_final = first & FINAL != 0;
        match opcode {
            // §5.5: control frames are short and not fragmented.
            Opcode::Close | Opcode::Ping | Opcode::Pong if !is_final || length > 125 => {
                return Err(Violation::Control);
            }
            // §5.4: the fragments of a message are contiguous.
            Opcode::Continuation if self.fragments.is_none() => return Err(Violation::Order),
            Opcode::Text | Opcode::Binary if self.fragments.is_some() => return Err(Violation::Order),
            _ => {}
        }
        let known = self.fragments.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
        if length.saturating_add(known) > MESSAGE_BYTES_MAX {
            return Err(Violation::TooLarge);
        }
        self.head.clear();
        self.frame =
            Some(WebSocketFrame { opcode, is_final, payload: Assembled::from_length(length as usize) });
        Ok(())
    }

    fn end_frame(
        &mut self,
        opcode: Opcode,
        is_final: bool,
        payload: &[u8],
        take: &mut impl FnMut(ReceivedMessage<'_>),
    ) -> Result<(), Violation> {
        match opcode {
            Opcode::Ping => take(ReceivedMessage::Ping(payload)),
            Opcode::Pong => take(ReceivedMessage::Pong),
            Opcode::Close => take(ReceivedMessage::Close(close_code(payload)?)),
            Opcode::Text | Opcode::Binary if is_final => whole(opcode == Opcode::Text, payload, take)?,
            Opcode::Text | Opcode::Binary => {
                self.fragments = Some((opcode == Opcode::Text, payload.to_vec()));
            }
            Opcode::Continuation => {
                let Some((is_text, mut bytes)) = self.fragments.take() else { return Err(Violation::Order) };
                bytes.extend_from_slice(payload);
                if is_final {
                    whole(is_text, &bytes, take)?;
                } else {
                    self.fragments = Some((is_text, bytes));
                }
            }
        }
        Ok(())
    }
}

fn whole(is_text: bool, message: &[u8], take: &mut impl FnMut(ReceivedMessage<'_>)) -> Result<(), Violation> {
    // RFC 6455 §8.1: text that is not UTF-8 fails the connection.
    if is_text && std::str::from_utf8(message).is_err() {
        return Err(Violation::Text);
    }
    take(ReceivedMessage::Message(message));
    Ok(())
}

/// The code of a close frame (RFC 6455 §5.5.1, §7.4).
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let (code, reason) = match payload {
        [] => return Ok(None),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        [_] => return Err(Violation::CloseCode),
    };
    let is_valid = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    if is_valid && std::str::from_utf8(reason).is_ok() { Ok(Some(code)) } else { Err(Violation::CloseCode) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..=125 => frame.push(length as u8),
            length @ 126..=0xFFFF => {
                frame.push(126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                frame.push(127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(payload);
        frame
    }

    fn read(input: &[u8], size: usize) -> Result<Vec<(char, Vec<u8>)>, Violation> {
        let (mut frames, mut found) = (Frames::default(), Vec::new());
        for piece in input.chunks(size) {
            frames.read(piece, |received| {
                found.push(match received {
                    ReceivedMessage::Message(message) => ('m', message.to_vec()),
                    ReceivedMessage::Ping(payload) => ('i', payload.to_vec()),
                    ReceivedMessage::Pong => ('o', Vec::new()),
                    ReceivedMessage::Close(code) => ('c', code.unwrap_or(0).to_be_bytes().to_vec()),
                });
            })?;
        }
        Ok(found)
    }

    #[test]
    fn rfc6455_1_3_the_handshake_of_the_example() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(BASE64_STANDARD.decode(key([1, 2])).map(|nonce| nonce.len()), Ok(16));
    }

    #[test]
    fn rfc6455_5_7_what_is_sent_is_masked_as_in_the_example() {
        let mut out = Vec::new();
        append(Opcode::Text, b"Hello", u32::from_ne_bytes([0x37, 0xfa, 0x21, 0x3d]), &mut out);
        assert_eq!(out, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        for (length, head) in [(126, 8), (70_000, 14)] {
            let (payload, mut out) = (vec![b'x'; length], Vec::new());
            append(Opcode::Binary, &payload, 0, &mut out);
            assert!(out.len() == length + head && out[head..] == payload);
        }
    }

    #[test]
    fn frames_are_read_however_they_are_split() {
        let long = vec![b'x'; 70_000];
        let input = [
            frame(0x81, b"hello"),
            frame(0x02, b"ab"),
            frame(0x89, b"ping"),
            frame(0x00, &long[..200]),
            frame(0x80, &long),
            frame(0x8A, b"unasked"),
            frame(0x82, b""),
            frame(0x88, b"\x03\xe8bye"),
        ]
        .concat();
        let expected = vec![
            ('m', b"hello".to_vec()),
            ('i', b"ping".to_vec()),
            ('m', [b"ab", &long[..200], &long].concat()),
            ('o', Vec::new()),
            ('m', Vec::new()),
            ('c', vec![3, 0xe8]),
        ];
        for size in [1, 2, 3, 7, 1000, input.len()] {
            assert!(read(&input, size).as_ref() == Ok(&expected), "in pieces of {size}");
        }
    }

    #[test]
    fn rfc6455_5_violations_of_a_server() {
        let cases = [
            (frame(0xC1, b"a"), Violation::Reserved),
            (vec![0x81, 0x81, 0, 0, 0, 0, b'a'], Violation::Masked),
            (frame(0x83, b"a"), Violation::Opcode),
            (vec![0x82, 126, 0, 5], Violation::Length),
            (vec![0x82, 127, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF], Violation::Length),
            (vec![0x82, 127, 0x80, 0, 0, 0, 0, 1, 0, 0], Violation::Length),
            (frame(0x09, b""), Violation::Control),
            (frame(0x89, &[0; 126]), Violation::Control),
            (frame(0x80, b"a"), Violation::Order),
            ([frame(0x01, b"a"), frame(0x81, b"b")].concat(), Violation::Order),
            (frame(0x81, b"\xff"), Violation::Text),
            (frame(0x88, b"\x03"), Violation::CloseCode),
            (frame(0x88, &1005u16.to_be_bytes()), Violation::CloseCode),
            (frame(0x88, b"\x03\xe8\xff"), Violation::CloseCode),
            (vec![0x82, 127, 0, 0, 0, 0, 0x10, 0, 0, 0], Violation::TooLarge),
        ];
        for (input, violation) in cases {
            assert_eq!(read(&input, input.len()), Err(violation), "{input:?}");
        }
        assert_eq!([Violation::Text, Violation::Order].map(Violation::close_code), [1007, 1002]);
    }
}
