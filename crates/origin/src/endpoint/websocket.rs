//! WebSockets (RFC 6455), without extensions. The echo returns each data frame in pieces, so that no message can be too
//! large. The fan-out sends each whole message to all other clients in a room.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use sha1::{Digest, Sha1};
use tokio::sync::broadcast::error::RecvError;

use super::upgrade;
use crate::connection::Stop;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};

/// GUID for Sec-WebSocket-Accept (RFC 6455 §1.3).
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Close code 1002 (RFC 6455 §7.4.1).
const PROTOCOL_ERROR: u16 = 1002;
const TOO_BIG: u16 = 1009;

/// Maximum size of a fan-out message, with the heads of its frames.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

pub(crate) async fn echo(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    if !open(exchange).await? {
        return Ok(());
    }
    let mut session = WebSocketSession::default();
    let (mut piece, mut out) = (Vec::new(), Vec::new());
    while exchange.tunnel_piece(&mut piece).await? {
        let state = session.receive(&piece, &mut out);
        exchange.raw(&out).await?;
        out.clear();
        if state == WebSocketState::Closed {
            break;
        }
    }
    Ok(())
}

/// Sends each message to all other clients in the room.
pub(crate) async fn fan_out(exchange: &mut OriginExchange<'_>, room: &str) -> Result<(), Stop> {
    let Some(mut seat) = exchange.worker.hub.enter(room) else {
        return exchange.respond(OriginHead::new(503, Length::Known(0)), b"").await;
    };
    if !open(exchange).await? {
        return Ok(());
    }
    let mut session = WebSocketSession { kept: Some(Vec::new()), ..WebSocketSession::default() };
    let (mut piece, mut out) = (Vec::new(), Vec::new());
    loop {
        let said = tokio::select! {
            received = exchange.tunnel_piece(&mut piece) => {
                if !received? {
                    return Ok(());
                }
                let state = session.receive(&piece, &mut out);
                if let Some(whole) = session.take_whole() {
                    // An error means that the room has no other client.
                    let _ = seat.sender.send((seat.number, whole));
                }
                exchange.raw(&out).await?;
                out.clear();
                if state == WebSocketState::Closed {
                    return Ok(());
                }
                continue;
            }
            said = seat.receiver.recv() => said,
        };
        match said {
            Ok((number, message)) if number != seat.number => exchange.raw(&message).await?,
            // A client that is too slow has lost some messages.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// Does the handshake. Returns false if the request was not a valid upgrade, and has been answered.
async fn open(exchange: &mut OriginExchange<'_>) -> Result<bool, Stop> {
    let wanted = upgrade::requested(exchange).is_some_and(|name| name.eq_ignore_ascii_case("websocket"));
    let version13 = exchange.request.values("Sec-WebSocket-Version").eq([b"13"]);
    let key = exchange
        .request
        .list("Sec-WebSocket-Key")
        .filter(|key| BASE64_STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16));
    // RFC 8441 §5: HTTP/2 has no key, because the stream itself shows that the request was read.
    let accept = match (&key, &exchange.request.protocol) {
        (Some(key), None) if exchange.request.method == "GET" => Some(Some(accept(key))),
        (_, Some(_)) => Some(None),
        _ => None,
    };
    let Some(accept) = accept.filter(|_| wanted && version13) else {
        upgrade::required(exchange, "websocket").await?;
        return Ok(false);
    };
    upgrade::discard_body(exchange).await?;
    exchange.switch("websocket", accept).await?;
    Ok(true)
}

/// Value of Sec-WebSocket-Accept (RFC 6455 §4.2.2).
fn accept(key: &str) -> String {
    BASE64_STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")))
}

/// Server side of a WebSocket: bytes in, bytes out.
#[derive(Default)]
struct WebSocketSession {
    /// Received bytes of a frame head: at most 14.
    head: Vec<u8>,
    frame: Option<IncomingFrame>,
    /// A fragmented data message has begun and not ended.
    fragmented: bool,
    /// Data frames for other clients, with an incomplete message at the end; `None` for an echo.
    kept: Option<Vec<u8>>,
    /// Bytes of `kept` that are whole messages.
    whole_bytes: usize,
}

/// A frame whose payload is being received.
struct IncomingFrame {
    first_byte: u8,
    mask: [u8; 4],
    length: u64,
    received: u64,
    /// Payload of a control frame, which is answered when it is complete.
    control: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WebSocketState {
    Open,
    Closed,
}

/// Opcodes of frames (RFC 6455 §5.2).
mod opcode {
    pub(super) const CONTINUATION: u8 = 0x0;
    pub(super) const TEXT: u8 = 0x1;
    pub(super) const BINARY: u8 = 0x2;
    pub(super) const CLOSE: u8 = 0x8;
    pub(super) const PING: u8 = 0x9;
    pub(super) const PONG: u8 = 0xA;
}

const FINAL: u8 = 0x80;

impl WebSocketSession {
    /// Processes received bytes and appends the reply to `out`.
    fn receive(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> WebSocketState {
        loop {
            let Some(frame) = &mut self.frame else {
                let [byte, rest @ ..] = input else { return WebSocketState::Open };
                input = rest;
                self.head.push(*byte);
                match self.begin_frame(out) {
                    Ok(()) => continue,
                    Err(()) => return close(PROTOCOL_ERROR, out),
                }
            };
            let data = self.kept.as_mut().unwrap_or(&mut *out);
            let left = usize::try_from(frame.length - frame.received).unwrap_or(usize::MAX);
            let (now, rest) = input.split_at(left.min(input.len()));
            input = rest;
            let target = if frame.is_control() { &mut frame.control } else { data };
            // RFC 6455 §5.3: the mask repeats every four bytes.
            let masked = now.iter().zip(frame.received..);
            target.extend(masked.map(|(byte, position)| byte ^ frame.mask[(position % 4) as usize]));
            frame.received += now.len() as u64;
            let is_done = frame.received == frame.length;
            if self.kept.as_ref().is_some_and(|kept| kept.len() - self.whole_bytes > MESSAGE_BYTES_MAX) {
                return close(TOO_BIG, out);
            }
            if !is_done {
                return WebSocketState::Open;
            }
            let Some(frame) = self.frame.take() else { return WebSocketState::Open };
            if frame.is_control() {
                if frame.answer(out) == WebSocketState::Closed {
                    return WebSocketState::Closed;
                }
            } else if !self.fragmented {
                self.whole_bytes = self.kept.as_ref().map_or(0, Vec::len);
            }
        }
    }

    /// Takes the whole messages that are kept, as frames.
    fn take_whole(&mut self) -> Option<Bytes> {
        let whole_bytes = std::mem::take(&mut self.whole_bytes);
        let kept = self.kept.as_mut().filter(|_| whole_bytes > 0)?;
        Some(kept.drain(..whole_bytes).collect())
    }

    /// Begins the frame whose head is complete, and appends the head of its echo. Fails if it breaks the protocol.
    fn begin_frame(&mut self, out: &mut Vec<u8>) -> Result<(), ()> {
        let &[first_byte, second_byte, ref rest @ ..] = self.head.as_slice() else { return Ok(()) };
        let (length_bytes, short) = match second_byte & 0x7F {
            126 => (2, None),
            127 => (8, None),
            length => (0, Some(u64::from(length))),
        };
        // RFC 6455 §5.1: clients must mask their frames.
        if second_byte & 0x80 == 0 {
            return Err(());
        }
        if rest.len() < length_bytes + 4 {
            return Ok(());
        }
        let length =
            rest[..length_bytes].iter().fold(short.unwrap_or(0), |sum, byte| sum << 8 | u64::from(*byte));
        let mut mask = [0; 4];
        mask.copy_from_slice(&rest[length_bytes..]);
        self.check_frame(first_byte, length, length_bytes)?;
        let frame = IncomingFrame { first_byte, mask, length, received: 0, control: Vec::new() };
        if !frame.is_control() {
            append_head(first_byte, length, self.kept.as_mut().unwrap_or(out));
        }
        self.head.clear();
        self.frame = Some(frame);
        Ok(())
    }

    fn check_frame(&mut self, first_byte: u8, length: u64, length_bytes: usize) -> Result<(), ()> {
        let (is_final, code) = (first_byte & FINAL != 0, first_byte & 0x0F);
        // RFC 6455 §5.2: without an extension, reserved bits are zero. Lengths have their shortest form.
        let reserved = first_byte & 0x70 != 0;
        let overlong = match length_bytes {
            2 => length < 126,
            8 => length <= u64::from(u16::MAX) || length >> 63 != 0,
            _ => false,
        };
        let in_order = match code {
            opcode::CLOSE..=opcode::PONG => is_final && length <= 125,
            opcode::CONTINUATION => self.fragmented,
            opcode::TEXT | opcode::BINARY => !self.fragmented,
            _ => false,
        };
        if code <= opcode::BINARY {
            self.fragmented = !is_final;
        }
        if reserved || overlong || !in_order { Err(()) } else { Ok(()) }
    }
}

impl IncomingFrame {
    fn is_control(&self) -> bool {
        self.first_byte & 0x0F >= opcode::CLOSE
    }

    /// Answers a control frame (RFC 6455 §5.5): a ping with its payload, a close with its code. A pong gets no answer.
    fn answer(&self, out: &mut Vec<u8>) -> WebSocketState {
        let (code, state) = match self.first_byte & 0x0F {
            opcode::PING => (opcode::PONG, WebSocketState::Open),
            opcode::CLOSE => (opcode::CLOSE, WebSocketState::Closed),
            _ => return WebSocketState::Open,
        };
        append_head(FINAL | code, self.length, out);
        out.extend_from_slice(&self.control);
        state
    }
}

fn close(code: u16, out: &mut Vec<u8>) -> WebSocketState {
    out.extend_from_slice(&[FINAL | opcode::CLOSE, 2]);
    out.extend_from_slice(&code.to_be_bytes());
    WebSocketState::Closed
}

/// Appends a frame head without a mask (RFC 6455 §5.2).
fn append_head(first_byte: u8, length: u64, out: &mut Vec<u8>) {
    out.push(first_byte);
    match length {
        0..=125 => out.push(length as u8),
        126..=0xFFFF => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 4];

    fn masked(first_byte: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        append_head(first_byte, payload.len() as u64, &mut frame);
        frame[1] |= 0x80;
        frame.extend_from_slice(&MASK);
        frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    fn unmasked(first_byte: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        append_head(first_byte, payload.len() as u64, &mut frame);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn rfc6455_1_3_accept() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn frames_go_back_however_they_are_split() {
        let long = vec![b'x'; 70_000];
        let input = [
            masked(0x81, b"hello"),
            masked(0x02, b""),
            masked(0x89, b"ping"),
            masked(0x00, &long[..200]),
            masked(0x80, &long),
            masked(0x8A, b"unasked"),
            masked(0x88, b"\x03\xe8bye"),
        ]
        .concat();
        let expected = [
            unmasked(0x81, b"hello"),
            unmasked(0x02, b""),
            unmasked(0x8A, b"ping"),
            unmasked(0x00, &long[..200]),
            unmasked(0x80, &long),
            unmasked(0x88, b"\x03\xe8bye"),
        ]
        .concat();
        for size in [1, 2, 3, 7, 1000, input.len()] {
            let (mut session, mut out) = (WebSocketSession::default(), Vec::new());
            let states: Vec<_> = input.chunks(size).map(|piece| session.receive(piece, &mut out)).collect();
            assert_eq!(states.last(), Some(&WebSocketState::Closed), "in pieces of {size}");
            assert!(out == expected, "in pieces of {size}");
        }
    }

    #[test]
    fn whole_messages_are_kept_for_others_and_pings_are_answered_within_them() {
        let input = [
            masked(0x01, b"a"),
            masked(0x89, b"ping"),
            masked(0x80, b"b"),
            masked(0x82, b"c"),
            masked(0x02, b"d"),
        ];
        for size in [1, 5, 1000] {
            let mut session = WebSocketSession { kept: Some(Vec::new()), ..WebSocketSession::default() };
            let (mut out, mut whole) = (Vec::new(), Vec::new());
            for piece in input.concat().chunks(size) {
                assert_eq!(session.receive(piece, &mut out), WebSocketState::Open);
                whole.extend(session.take_whole().into_iter().flatten());
            }
            assert_eq!(out, unmasked(0x8A, b"ping"));
            assert_eq!(whole, [unmasked(0x01, b"a"), unmasked(0x80, b"b"), unmasked(0x82, b"c")].concat());
        }
        let mut session = WebSocketSession { kept: Some(Vec::new()), ..WebSocketSession::default() };
        let (big, mut out) = (masked(0x01, &vec![b'x'; MESSAGE_BYTES_MAX]), Vec::new());
        assert_eq!(session.receive(&big, &mut out), WebSocketState::Closed);
        assert_eq!(out, unmasked(0x88, &TOO_BIG.to_be_bytes()));
    }

    #[test]
    fn rfc6455_5_violations() {
        for (input, what) in [
            (unmasked(0x81, b"a"), "no mask"),
            (masked(0xC1, b"a"), "reserved bit"),
            (masked(0x83, b"a"), "reserved code"),
            (masked(0x80, b"a"), "nothing to continue"),
            (masked(0x09, b"a"), "control frame in fragments"),
            (masked(0x89, &[b'a'; 126]), "control frame too long"),
            ([masked(0x01, b"a"), masked(0x81, b"b")].concat(), "message inside a message"),
            (vec![0x81, 0xFE, 0, 1, 0, 0, 0, 0, b'a'], "length not minimal"),
        ] {
            let (mut session, mut out) = (WebSocketSession::default(), Vec::new());
            assert_eq!(session.receive(&input, &mut out), WebSocketState::Closed, "{what}");
            assert!(out.ends_with(&[0x88, 2, 3, 0xEA]), "{what}");
        }
    }
}
