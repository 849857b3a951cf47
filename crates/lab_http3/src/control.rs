//! Unidirectional streams (RFC 9114 §6.2): ours, and the peer's.

use crate::code::{LabH3Code, PeerViolation};
use crate::decoder::TABLE_BYTES;
use crate::frame::{CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PUSH_PROMISE, SETTINGS};
use crate::varint;

/// Types of unidirectional streams.
const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
const ENCODER: u64 = 0x2;
const DECODER: u64 = 0x3;

/// IDs of settings.
const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// Maximum length of a known frame on a control stream.
const FRAME_BYTES_MAX: u64 = 4096;
/// Maximum length of a QPACK integer after its first byte.
const INTEGER_BYTES_MAX: usize = 9;
/// Maximum number of unidirectional streams that are read.
const STREAMS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionSide {
    Client,
    Server,
}

/// An event on the peer's unidirectional streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabPeerSettings<'a> {
    Settings,
    /// From a server: requests from this ID on were not processed.
    GoAway(u64),
    /// The next bytes of the server's encoder stream, for the client's decoder.
    Insertions(&'a [u8]),
}

/// Returns the first bytes of our three streams: control, encoder, decoder.
pub fn opening(side: ConnectionSide, section_bytes: usize) -> [Vec<u8>; 3] {
    let mut settings = Vec::new();
    varint::push(&mut settings, MAX_FIELD_SECTION_SIZE);
    varint::push(&mut settings, section_bytes as u64);
    let (name, value) = match side {
        ConnectionSide::Client => (QPACK_MAX_TABLE_CAPACITY, TABLE_BYTES as u64),
        // RFC 9220 §3.
        ConnectionSide::Server => (ENABLE_CONNECT_PROTOCOL, 1),
    };
    varint::push(&mut settings, name);
    varint::push(&mut settings, value);
    let mut control = vec![CONTROL as u8];
    varint::push(&mut control, SETTINGS);
    varint::push(&mut control, settings.len() as u64);
    control.append(&mut settings);
    [control, vec![ENCODER as u8], vec![DECODER as u8]]
}

#[derive(Debug)]
pub struct LabControl {
    side: ConnectionSide,
    streams: Vec<ControlStream>,
    has_settings: bool,
    goaway: Option<u64>,
    max_push: Option<u64>,
}

#[derive(Debug)]
struct ControlStream {
    id: u64,
    kind: Option<u64>,
    partial: Vec<u8>,
    /// Bytes of an unknown frame that are still to come.
    skipped: u64,
}

impl LabControl {
    /// `side` is the reader's.
    pub fn new(side: ConnectionSide) -> Self {
        Self { side, streams: Vec::new(), has_settings: false, goaway: None, max_push: None }
    }

    /// Reads the next bytes of a stream, and passes the events in them to `tell`.
    ///
    /// # Errors
    /// If the peer broke a rule.
    pub fn read(
        &mut self,
        id: u64,
        bytes: &[u8],
        is_last: bool,
        mut tell: impl FnMut(LabPeerSettings<'_>),
    ) -> Result<(), PeerViolation> {
        let place = match self.streams.iter().position(|stream| stream.id == id) {
            Some(place) => place,
            None if self.streams.len() == STREAMS_MAX => {
                return Err(PeerViolation(LabH3Code::EXCESSIVE_LOAD, "more than 100 unidirectional streams"));
            }
            None => {
                self.streams.push(ControlStream { id, kind: None, partial: Vec::new(), skipped: 0 });
                self.streams.len() - 1
            }
        };
        let stream = &mut self.streams[place];
        // Bytes of unknown streams are not kept.
        if stream.kind.is_none_or(|kind| kind <= DECODER) {
            stream.partial.extend_from_slice(bytes);
        }
        if stream.kind.is_none() {
            let Some((kind, used)) = varint::read(&stream.partial) else { return Ok(()) };
            stream.partial.drain(..used);
            stream.kind = Some(kind);
            self.check_kind(place, kind)?;
        }
        let kind = self.streams[place].kind;
        // RFC 9114 §6.2.1, RFC 9204 §4.2.
        if is_last && matches!(kind, Some(CONTROL | ENCODER | DECODER)) {
            return Err(PeerViolation(
                LabH3Code::CLOSED_CRITICAL_STREAM,
                "a stream that must stay open has ended",
            ));
        }
        let mut partial = std::mem::take(&mut self.streams[place].partial);
        match kind {
            Some(CONTROL) => {
                let used = self.frames(place, &partial, &mut tell)?;
                partial.drain(..used);
                self.streams[place].partial = partial;
            }
            Some(ENCODER) => match self.side {
                ConnectionSide::Client => tell(LabPeerSettings::Insertions(&partial)),
                ConnectionSide::Server => without_table(&partial)?,
            },
            Some(DECODER) => {
                let used = decoder(&partial)?;
                partial.drain(..used);
                self.streams[place].partial = partial;
            }
            _ => {}
        }
        Ok(())
    }

    pub fn is_critical(&self, id: u64) -> bool {
        self.streams.iter().any(|stream| stream.id == id && matches!(stream.kind, Some(0 | 2 | 3)))
    }

    fn check_kind(&self, place: usize, kind: u64) -> Result<(), PeerViolation> {
        let is_again = self.streams[..place]
            .iter()
            .chain(&self.streams[place + 1..])
            .any(|other| other.kind == Some(kind));
        match kind {
            CONTROL | ENCODER | DECODER if is_again => Err(PeerViolation(
                LabH3Code::STREAM_CREATION_ERROR,
                "a second control, encoder or decoder stream",
            )),
            // RFC 9114 §6.2.2, §4.6.
            PUSH if self.side == ConnectionSide::Server => {
                Err(PeerViolation(LabH3Code::STREAM_CREATION_ERROR, "a client has opened a push stream"))
            }
            PUSH => Err(PeerViolation(LabH3Code::ID_ERROR, "it sends a push, which was not allowed")),
            _ => Ok(()),
        }
    }

    /// Reads whole frames of the control stream. Returns the number of bytes read.
    fn frames(
        &mut self,
        place: usize,
        bytes: &[u8],
        tell: &mut impl FnMut(LabPeerSettings<'_>),
    ) -> Result<usize, PeerViolation> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let stream = &mut self.streams[place];
            let skipped = stream.skipped.min(rest.len() as u64);
            stream.skipped -= skipped;
            used += skipped as usize;
            let rest = &rest[skipped as usize..];
            let Some((kind, first)) = varint::read(rest) else { return Ok(used) };
            let Some((length, second)) = varint::read(&rest[first..]) else { return Ok(used) };
            let start = first + second;
            // RFC 9114 §6.2.1.
            if !self.has_settings && kind != SETTINGS {
                return Err(PeerViolation(
                    LabH3Code::MISSING_SETTINGS,
                    "the control stream does not begin with SETTINGS",
                ));
            }
            if !matches!(kind, SETTINGS | GOAWAY | MAX_PUSH_ID | CANCEL_PUSH) {
                if matches!(kind, DATA | HEADERS | PUSH_PROMISE | 0x2 | 0x6 | 0x8 | 0x9) {
                    return Err(PeerViolation(
                        LabH3Code::FRAME_UNEXPECTED,
                        "a frame that is not allowed on a control stream",
                    ));
                }
                self.streams[place].skipped = length;
                used += start;
                continue;
            }
            if length > FRAME_BYTES_MAX {
                return Err(PeerViolation(
                    LabH3Code::EXCESSIVE_LOAD,
                    "a frame of the control stream is larger than 4 KiB",
                ));
            }
            let Some(payload) = rest.get(start..start + length as usize) else { return Ok(used) };
            self.frame(kind, payload, tell)?;
            used += start + payload.len();
        }
    }

    fn frame(
        &mut self,
        kind: u64,
        payload: &[u8],
        tell: &mut impl FnMut(LabPeerSettings<'_>),
    ) -> Result<(), PeerViolation> {
        let number = || match varint::read(payload) {
            Some((number, used)) if used == payload.len() => Ok(number),
            _ => Err(PeerViolation(LabH3Code::FRAME_ERROR, "a frame is longer or shorter than its fields")),
        };
        match kind {
            // RFC 9114 §7.2.4.
            SETTINGS if self.has_settings => {
                Err(PeerViolation(LabH3Code::FRAME_UNEXPECTED, "SETTINGS are sent a second time"))
            }
            SETTINGS => {
                settings(payload)?;
                self.has_settings = true;
                tell(LabPeerSettings::Settings);
                Ok(())
            }
            GOAWAY => {
                let id = number()?;
                // RFC 9114 §5.2, §7.2.6.
                if self.side == ConnectionSide::Client && !id.is_multiple_of(4) {
                    return Err(PeerViolation(LabH3Code::ID_ERROR, "GOAWAY names no request"));
                }
                if self.goaway.replace(id).is_some_and(|before| id > before) {
                    return Err(PeerViolation(
                        LabH3Code::ID_ERROR,
                        "GOAWAY names a later request than before",
                    ));
                }
                tell(LabPeerSettings::GoAway(id));
                Ok(())
            }
            MAX_PUSH_ID if self.side == ConnectionSide::Client => {
                Err(PeerViolation(LabH3Code::FRAME_UNEXPECTED, "a server has sent MAX_PUSH_ID"))
            }
            MAX_PUSH_ID => {
                let id = number()?;
                if self.max_push.replace(id).is_some_and(|before| id < before) {
                    return Err(PeerViolation(LabH3Code::ID_ERROR, "MAX_PUSH_ID is lower than before"));
                }
                Ok(())
            }
            _ => number()
                .and(Err(PeerViolation(LabH3Code::ID_ERROR, "CANCEL_PUSH names a push that does not exist"))),
        }
    }
}

/// Checks the settings; none of them changes what we send.
fn settings(mut payload: &[u8]) -> Result<(), PeerViolation> {
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let name = varint::read(payload);
        let value = name.and_then(|(_, first)| varint::read(&payload[first..]));
        let (Some((name, first)), Some((value, second))) = (name, value) else {
            return Err(PeerViolation(LabH3Code::FRAME_ERROR, "SETTINGS end within one"));
        };
        payload = &payload[first + second..];
        // RFC 9114 §7.2.4: each at most once; §7.2.4.1: settings of HTTP/2 are reserved. RFC 9220 §3.
        let is_wrong = match name {
            0x0 | 0x2 | 0x3 | 0x4 | 0x5 => true,
            ENABLE_CONNECT_PROTOCOL => value > 1,
            _ => false,
        };
        if is_wrong || seen.contains(&name) {
            return Err(PeerViolation(
                LabH3Code::SETTINGS_ERROR,
                "a setting that is not allowed, or is repeated",
            ));
        }
        seen.push(name);
    }
    Ok(())
}

/// Checks a client's encoder instructions. RFC 9204 §3.2.3: without a table they may only set its capacity to 0.
fn without_table(instructions: &[u8]) -> Result<(), PeerViolation> {
    match instructions.iter().all(|byte| *byte == 0x20) {
        true => Ok(()),
        false => Err(PeerViolation(
            LabH3Code::QPACK_ENCODER_STREAM_ERROR,
            "an instruction for a dynamic table, which was not allowed",
        )),
    }
}

/// Checks the decoder instructions of the peer. RFC 9204 §4.4: our sections do not use a table, so there is nothing to
/// acknowledge, and stream cancellations have no effect. Returns the number of bytes in whole instructions.
fn decoder(instructions: &[u8]) -> Result<usize, PeerViolation> {
    const WRONG: PeerViolation = PeerViolation(
        LabH3Code::QPACK_DECODER_STREAM_ERROR,
        "it acknowledges a field section or an insertion that was not sent",
    );
    let (mut used, mut rest) = (0, instructions);
    while let Some((first, more)) = rest.split_first() {
        if first & 0xc0 != 0x40 {
            return Err(WRONG);
        }
        let mut length = 1;
        if first & 0x3f == 0x3f {
            match more.iter().position(|byte| byte & 0x80 == 0) {
                Some(last) if last < INTEGER_BYTES_MAX => length += last + 1,
                None if more.len() < INTEGER_BYTES_MAX => return Ok(used),
                _ => return Err(WRONG),
            }
        }
        used += length;
        rest = &rest[length..];
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads streams in pieces of this length, and returns the events and the encoder's bytes.
    fn read(
        side: ConnectionSide,
        streams: &[(u64, &[u8], bool)],
        piece: usize,
    ) -> Result<(Vec<LabPeerSettings<'static>>, Vec<u8>), PeerViolation> {
        let (mut control, mut told, mut insertions) = (LabControl::new(side), Vec::new(), Vec::new());
        let mut tell = |said: LabPeerSettings<'_>| match said {
            LabPeerSettings::Settings => told.push(LabPeerSettings::Settings),
            LabPeerSettings::GoAway(id) => told.push(LabPeerSettings::GoAway(id)),
            LabPeerSettings::Insertions(bytes) => insertions.extend_from_slice(bytes),
        };
        for (id, bytes, is_last) in streams {
            for piece in bytes.chunks(piece) {
                control.read(*id, piece, false, &mut tell)?;
            }
            control.read(*id, &[], *is_last, &mut tell)?;
        }
        Ok((told, insertions))
    }

    #[test]
    fn what_is_said_is_heard_however_it_is_cut() {
        let server: [(u64, &[u8], bool); 5] = [
            (3, b"\x00\x04\x05\x01\x41\x00\x06\x09\x21\x02ab\x07\x01\x08\x07\x01\x04", false),
            (7, b"\x02\x20\x00", false),
            (11, b"\x03\x44\x7f\x81\x00", false),
            // An unknown stream, which may end.
            (15, b"\x40\x21abc", true),
            (19, b"", false),
        ];
        for piece in [1, 2, 5, 100] {
            let told = [LabPeerSettings::Settings, LabPeerSettings::GoAway(8), LabPeerSettings::GoAway(4)];
            assert_eq!(
                read(ConnectionSide::Client, &server, piece),
                Ok((told.to_vec(), b"\x20\x00".to_vec()))
            );
        }
        for side in [ConnectionSide::Client, ConnectionSide::Server] {
            let [control, encoder, decoder] = opening(side, 65_536);
            let ours: [(u64, &[u8], bool); 3] =
                [(2, &control, false), (6, &encoder, false), (10, &decoder, false)];
            let other =
                if side == ConnectionSide::Client { ConnectionSide::Server } else { ConnectionSide::Client };
            assert_eq!(read(other, &ours, 1), Ok((vec![LabPeerSettings::Settings], Vec::new())));
        }
        let pushes: &[u8] = b"\x00\x04\x00\x0d\x01\x02\x0d\x01\x05";
        assert_eq!(
            read(ConnectionSide::Server, &[(2, pushes, false)], 1),
            Ok((vec![LabPeerSettings::Settings], Vec::new()))
        );
    }

    #[test]
    fn each_rule_has_its_code() {
        use ConnectionSide::{Client, Server};
        use LabH3Code as C;
        let rows: [(ConnectionSide, &[u8], bool, LabH3Code); 23] = [
            (Client, b"\x00\x07\x01\x00", false, C::MISSING_SETTINGS),
            (Client, b"\x00\x21\x00", false, C::MISSING_SETTINGS),
            (Client, b"\x00\x04\x00\x04\x00", false, C::FRAME_UNEXPECTED),
            (Client, b"\x00\x04\x00\x00\x00", false, C::FRAME_UNEXPECTED),
            (Client, b"\x00\x04\x00\x06\x00", false, C::FRAME_UNEXPECTED),
            (Client, b"\x00\x04\x00\x0d\x01\x00", false, C::FRAME_UNEXPECTED),
            (Client, b"\x00\x04\x00\x07\x01\x01", false, C::ID_ERROR),
            (Client, b"\x00\x04\x00\x07\x01\x04\x07\x01\x08", false, C::ID_ERROR),
            (Client, b"\x00\x04\x00\x07\x02\x04\x04", false, C::FRAME_ERROR),
            (Client, b"\x00\x04\x00\x03\x01\x00", false, C::ID_ERROR),
            (Client, b"\x00\x04\x00\x07\x60\x00", false, C::EXCESSIVE_LOAD),
            (Client, b"\x00\x04\x02\x02\x00", false, C::SETTINGS_ERROR),
            (Client, b"\x00\x04\x02\x08\x02", false, C::SETTINGS_ERROR),
            (Client, b"\x00\x04\x04\x01\x00\x01\x00", false, C::SETTINGS_ERROR),
            (Client, b"\x00\x04\x01\x01", false, C::FRAME_ERROR),
            (Client, b"\x00\x04\x00", true, C::CLOSED_CRITICAL_STREAM),
            (Client, b"\x01\x00", false, C::ID_ERROR),
            (Server, b"\x01\x00", false, C::STREAM_CREATION_ERROR),
            (Server, b"\x00\x04\x00\x0d\x01\x02\x0d\x01\x01", false, C::ID_ERROR),
            (Server, b"\x02\x3f\x01", false, C::QPACK_ENCODER_STREAM_ERROR),
            (Client, b"\x03\x80", false, C::QPACK_DECODER_STREAM_ERROR),
            (Client, b"\x03\x01", false, C::QPACK_DECODER_STREAM_ERROR),
            (
                Client,
                b"\x03\x7f\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
                false,
                C::QPACK_DECODER_STREAM_ERROR,
            ),
        ];
        for (side, bytes, is_last, code) in rows {
            for piece in [1, 100] {
                let broken = read(side, &[(3, bytes, is_last)], piece).map_err(|broken| broken.0);
                assert_eq!(broken, Err(code), "{bytes:x?}");
            }
        }
        let twice: [(u64, &[u8], bool); 2] = [(3, b"\x02", false), (7, b"\x02", false)];
        assert_eq!(read(Client, &twice, 9).map_err(|broken| broken.0), Err(C::STREAM_CREATION_ERROR));
        let many: Vec<(u64, &[u8], bool)> = (0..=100).map(|place| (place, &b"\x21"[..], false)).collect();
        assert_eq!(read(Client, &many, 9).map_err(|broken| broken.0), Err(C::EXCESSIVE_LOAD));
    }
}
