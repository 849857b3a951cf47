//! Integers and strings that begin within a byte (RFC 7541 §5): those of HPACK, and those of QPACK (RFC 9204 §4.1).

use crate::huffman;

/// Why an integer, a string or what is made of them cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecodable {
    /// It ends too early: more bytes may mend that.
    CutOff,
    /// It is not encoded as it has to be.
    Invalid,
}

/// Appends an integer (RFC 7541 §5.1), whose first byte has so many bits of it behind those of `pattern`.
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

/// Reads an integer whose first byte has so many bits of it. More than 2^28 is nothing that is here.
///
/// # Errors
/// If it is cut off, or larger.
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

/// Appends a string (RFC 7541 §5.2), with whichever code is shorter. Its length has so many bits of the first byte, in front of
/// which is the one that says whether it is in Huffman's code.
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
/// If it is cut off, or not in Huffman's code although it says so.
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
