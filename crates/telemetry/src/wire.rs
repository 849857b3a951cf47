//! The wire format of Protocol Buffers: appends fields to a message, and reads fields of a message.
//!
//! A message is written field by field, without a struct for it: there are only four kinds of messages in the program.

/// Types of fields on the wire.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED32: u8 = 5;

/// The value of a field that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireValue<'m> {
    /// A number or an enumerator.
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'m [u8]),
    /// A number of a fixed length.
    Fixed,
}

/// Appends a field with a message or a text from `write`. The length comes before the content, but is known only after
/// it. One byte is reserved for it, which nearly always suffices.
#[inline]
pub fn message(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(field << 3 | LENGTH);
    delimited(out, write);
}

/// Appends the output of `write`, with its length before it.
#[inline]
pub fn delimited(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(0);
    let start = out.len();
    write(out);
    let length = out.len() - start;
    match u8::try_from(length) {
        Ok(length) if length < 0x80 => out[start - 1] = length,
        _ => widen(out, start, length),
    }
}

/// Moves the written content behind a length that takes more than one byte.
#[inline(never)]
fn widen(out: &mut Vec<u8>, start: usize, length: usize) {
    let more = varint_bytes(length as u64) - 1;
    out.extend_from_slice(&[0; 9][..more]);
    out.copy_within(start..start + length, start + more);
    let mut rest = length as u64;
    for byte in &mut out[start - 1..start + more] {
        *byte = rest as u8 & 0x7f | 0x80;
        rest >>= 7;
    }
    out[start + more - 1] &= 0x7f;
}

/// Appends a field with bytes or a text.
#[inline]
pub fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    head(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends the head of a field of this length.
#[inline]
pub(crate) fn head(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | LENGTH);
    varint(out, length as u64);
}

/// The length of such a head.
pub(crate) fn head_bytes(length: usize) -> usize {
    1 + varint_bytes(length as u64)
}

pub fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3 | VARINT);
    varint(out, value);
}

/// Appends a field with a number of eight bytes.
pub fn fixed(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field with a `double`.
pub fn double(out: &mut Vec<u8>, field: u8, value: f64) {
    fixed(out, field, value.to_bits());
}

/// Converts a number to the `sint64` or `sint32` of the format.
pub(crate) fn signed(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Appends a number: seven bits in each byte, the lowest first. All bytes but the last have the highest bit set.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_bytes(value: u64) -> usize {
    ((u64::BITS - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Passes the fields of a message to `field`, by their numbers. Returns `None` if the bytes are no message.
pub fn read<'m>(mut message: &'m [u8], mut field: impl FnMut(u64, WireValue<'m>)) -> Option<()> {
    while !message.is_empty() {
        let tag = read_varint(&mut message)?;
        let value = match (tag & 7) as u8 {
            VARINT => WireValue::Number(read_varint(&mut message)?),
            LENGTH => {
                let length = usize::try_from(read_varint(&mut message)?).ok()?;
                WireValue::Bytes(message.split_off(..length)?)
            }
            FIXED64 => message.split_off(..8).map(|_| WireValue::Fixed)?,
            FIXED32 => message.split_off(..4).map(|_| WireValue::Fixed)?,
            _ => return None,
        };
        field(tag >> 3, value);
    }
    Some(())
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    const LEN_MAX: usize = 10;
    let mut value = 0;
    for place in 0..LEN_MAX {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place as u32).unwrap_or_default();
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
