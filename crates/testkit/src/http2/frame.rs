//! HTTP/2 frames, written and read by hand (RFC 9113 §4, §6), without `h2`. Fields are written as literals without
//! indexing, and read with a decoder that is not `h2`'s.

use loona_hpack::Decoder;

use crate::prefixed::{fields, put_string};

/// Flag of HEADERS and DATA.
pub const END_STREAM: u8 = 1;
/// Flag of SETTINGS and PING.
pub const ACK: u8 = 1;
/// Flag of HEADERS and CONTINUATION.
pub const END_HEADERS: u8 = 4;

pub const NO_ERROR: u32 = 0;
pub const PROTOCOL_ERROR: u32 = 1;
pub const INTERNAL_ERROR: u32 = 2;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// Setting.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// Setting.
pub const INITIAL_WINDOW_SIZE: u16 = 4;
/// Setting: extended CONNECT (RFC 8441).
pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// Initial window of a connection, and by default of its streams.
pub const WINDOW: u32 = 65_535;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum H2Frame {
    /// HEADERS with its CONTINUATION frames.
    Headers {
        stream: u32,
        /// Lines of `name: value`.
        fields: String,
        /// Whether END_STREAM is set.
        ends: bool,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
        ends: bool,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    /// Pairs of identifier and value.
    Settings(Vec<(u16, u32)>),
    SettingsAck,
    Ping([u8; 8]),
    PingAck([u8; 8]),
    GoAway {
        /// Last stream that was or may be processed.
        last: u32,
        code: u32,
    },
    WindowUpdate {
        stream: u32,
        increment: u32,
    },
}

impl H2Frame {
    /// Returns 0 for frames of the connection.
    pub fn stream(&self) -> u32 {
        match *self {
            Self::Headers { stream, .. }
            | Self::Data { stream, .. }
            | Self::Reset { stream, .. }
            | Self::WindowUpdate { stream, .. } => stream,
            _ => 0,
        }
    }
}

pub fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("is a frame").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes HEADERS: a head or trailers, as lines of `name: value`, pseudo-header fields first.
pub fn headers(stream: u32, fields: &str) -> Vec<u8> {
    raw(1, END_HEADERS, stream, &block(fields))
}

pub fn last_headers(stream: u32, fields: &str) -> Vec<u8> {
    raw(1, END_HEADERS | END_STREAM, stream, &block(fields))
}

pub fn data(stream: u32, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    raw(0, 0, stream, bytes.as_ref())
}

pub fn last_data(stream: u32, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    raw(0, END_STREAM, stream, bytes.as_ref())
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    raw(3, 0, stream, &code.to_be_bytes())
}

/// Encodes SETTINGS from pairs of identifier and value.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let pairs = values.iter().flat_map(|(key, value)| {
        let (key, value) = (key.to_be_bytes(), value.to_be_bytes());
        [key[0], key[1], value[0], value[1], value[2], value[3]]
    });
    raw(4, 0, 0, &pairs.collect::<Vec<u8>>())
}

pub fn ping(payload: [u8; 8]) -> Vec<u8> {
    raw(6, 0, 0, &payload)
}

pub fn go_away(last: u32, code: u32) -> Vec<u8> {
    raw(7, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    raw(8, 0, stream, &increment.to_be_bytes())
}

/// Encodes a field block: each field a literal without indexing (RFC 7541 §6.2.2).
pub fn block(lines: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields(lines) {
        block.push(0);
        put_string(&mut block, 0, 7, name);
        put_string(&mut block, 0, 7, value);
    }
    block
}

pub struct FrameReader {
    decoder: Decoder<'static>,
    /// A field block that continues in the next frame: stream, flags of its first frame, bytes.
    unfinished: Option<(u32, u8, Vec<u8>)>,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self { decoder: Decoder::new(), unfinished: None }
    }
}

impl FrameReader {
    /// Removes the next frame of a known type from the front of `bytes`, if it is complete.
    pub fn take(&mut self, bytes: &mut Vec<u8>) -> Option<H2Frame> {
        loop {
            let (header, rest) = bytes.split_first_chunk::<9>()?;
            let [a, b, c, kind, flags, stream @ ..] = *header;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let payload = rest.get(..length)?.to_vec();
            bytes.drain(..9 + length);
            if let Some(frame) = self.read(kind, flags, u32::from_be_bytes(stream), payload) {
                return Some(frame);
            }
        }
    }

    fn read(&mut self, kind: u8, flags: u8, stream: u32, payload: Vec<u8>) -> Option<H2Frame> {
        let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("is four bytes"));
        let eight = || payload[..8].try_into().expect("is eight bytes");
        let ends = flags & END_STREAM != 0;
        Some(match kind {
            0 => H2Frame::Data { stream, bytes: payload, ends },
            1 | 9 => {
                let (_, first_flags, mut block) =
                    self.unfinished.take().unwrap_or((stream, flags, Vec::new()));
                block.extend(payload);
                if flags & END_HEADERS == 0 {
                    self.unfinished = Some((stream, first_flags, block));
                    return None;
                }
                let fields = self.fields(&block);
                H2Frame::Headers { stream, fields, ends: first_flags & END_STREAM != 0 }
            }
            3 => H2Frame::Reset { stream, code: word(0) },
            4 if flags & ACK != 0 => H2Frame::SettingsAck,
            4 => {
                let pairs = payload.chunks_exact(6).map(|pair| {
                    (
                        u16::from_be_bytes([pair[0], pair[1]]),
                        u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]),
                    )
                });
                H2Frame::Settings(pairs.collect())
            }
            6 if flags & ACK != 0 => H2Frame::PingAck(eight()),
            6 => H2Frame::Ping(eight()),
            7 => H2Frame::GoAway { last: word(0), code: word(4) },
            8 => H2Frame::WindowUpdate { stream, increment: word(0) },
            _ => return None,
        })
    }

    fn fields(&mut self, block: &[u8]) -> String {
        let fields = self.decoder.decode(block).expect("is HPACK");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        fields.iter().map(|(name, value)| format!("{}: {}\n", text(name), text(value))).collect()
    }
}
