//! Integers and strings with a bit prefix (RFC 7541 §5), as in HPACK and QPACK (RFC 9204 §4.1).

use crate::huffman;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecodable {
    /// The input is incomplete: more bytes may complete it.
    CutOff,
    /// The encoding is not valid.
    Invalid,
}

/// Appends an integer (RFC 7541 §5.1). Its first byte has `prefix_bits` bits of it behind those of `pattern`.
pub fn push_integer(out: &mut Vec<u8>, mut value: usize, prefix_bits: u32, pattern: u8) {
    let most = (1 << prefix_bits) - 1;
    if value < most {
        return out.push(pattern | value as u8);
    }
    out.push(pattern | most as u8);
    value -= most;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads an integer with `prefix_bits` bits in its first byte.
///
/// # Errors
/// If it is cut off, or above 2^28, which no valid message needs.
pub fn read_integer(block: &mut &[u8], prefix_bits: u32) -> Result<usize, Undecodable> {
    let (first, mut rest) = block.split_first().ok_or(Undecodable::CutOff)?;
    let most = (1 << prefix_bits) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        for shift in [0, 7, 14, 21] {
            let (byte, behind) = rest.split_first().ok_or(Undecodable::CutOff)?;
            rest = behind;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *block = rest;
                return Ok(value);
            }
        }
        return Err(Undecodable::Invalid);
    }
    *block = rest;
    Ok(value)
}

/// Appends a string (RFC 7541 §5.2) in the shorter of the two encodings. Its first byte has `length_bits` bits of the
/// length, behind the bit for Huffman coding.
pub fn push_string(out: &mut Vec<u8>, text: &[u8], length_bits: u32, pattern: u8) {
    let bytes = huffman::encoded_bytes(text);
    if bytes < text.len() {
        push_integer(out, bytes, length_bits, pattern | 1 << length_bits);
        huffman::encode(text, out);
    } else {
        push_integer(out, text.len(), length_bits, pattern);
        out.extend_from_slice(text);
    }
}

/// Reads a string, and appends it to `text`.
///
/// # Errors
/// If it is cut off, or its Huffman code is not valid.
pub fn read_string(block: &mut &[u8], length_bits: u32, text: &mut Vec<u8>) -> Result<(), Undecodable> {
    let is_huffman = block.first().is_some_and(|first| first & 1 << length_bits != 0);
    let bytes = read_integer(block, length_bits)?;
    let (coded, rest) = block.split_at_checked(bytes).ok_or(Undecodable::CutOff)?;
    *block = rest;
    if !is_huffman {
        text.extend_from_slice(coded);
        return Ok(());
    }
    if huffman::decode(coded, text) { Ok(()) } else { Err(Undecodable::Invalid) }
}
