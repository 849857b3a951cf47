//! HTTP/3 frames, written and read by hand (RFC 9114 §7). Field sections are sent as literals without compression.
//! Received ones are read by the decoder of the crate `http3`, which is tested against ls-qpack.

use crate::prefixed::{fields, put_string};

pub const DATA: u64 = 0x0;
pub const HEADERS: u64 = 0x1;
pub const GOAWAY: u64 = 0x7;

/// The lines of a request for `test`.
pub fn request(method: &str, path: &str, fields: &str) -> String {
    format!(":method: {method}\n:scheme: https\n:authority: test\n:path: {path}\n{fields}")
}

/// Encodes a HEADERS frame from lines `name: value`.
pub fn headers(lines: &str) -> Vec<u8> {
    let section = section(lines);
    [&head(HEADERS, section.len())[..], &section].concat()
}

pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [&head(kind, payload.len())[..], payload].concat()
}

/// Encodes the header of a frame (RFC 9114 §7.1).
pub fn head(kind: u64, len: usize) -> Vec<u8> {
    [varint(kind), varint(len as u64)].concat()
}

/// RFC 9000 §16.
pub fn varint(number: u64) -> Vec<u8> {
    match number {
        0..0x40 => vec![number as u8],
        0x40..0x4000 => (number as u16 | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (number as u32 | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (number | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

/// Encodes a field section of literals (RFC 9204 §4.5.6).
pub fn section(lines: &str) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields(lines) {
        put_string(&mut section, 0x20, 3, name);
        put_string(&mut section, 0, 7, value);
    }
    section
}

/// Removes a whole frame from the front: type and payload.
pub fn take(held: &mut Vec<u8>) -> Option<(u64, Vec<u8>)> {
    let (kind, at) = read_varint(held)?;
    let (len, more) = read_varint(&held[at..])?;
    let start = at + more;
    let end = start + len as usize;
    let payload = held.get(start..end)?.to_vec();
    held.drain(..end);
    Some((kind, payload))
}

/// Returns the number, and its length.
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let len = 1 << (bytes.first()? >> 6);
    let all = bytes.get(..len)?;
    let number = all.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((number & ((1 << (8 * len - 2)) - 1), len))
}

pub fn lines(section: &[u8]) -> String {
    let mut lines = String::new();
    let decoded = http3::QpackDecoder::new(0).decode(0, section, |name, value| {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        lines += &format!("{name}: {value}\n");
    });
    assert_eq!(decoded, Ok(http3::SectionOutcome::Whole));
    lines
}
