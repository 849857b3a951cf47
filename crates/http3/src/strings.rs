//! Integers and strings of QPACK (RFC 9204 §4.1), which may be incomplete.

use fields::huffman;

use crate::varint;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    Incomplete,
    /// Invalid, or larger than allowed.
    Invalid,
}

/// Reads an integer that begins in the lowest `bits` of the first byte (RFC 7541 §5.1). Its value has at most 62 bits
/// (RFC 9204 §4.1.1).
pub(crate) fn integer(rest: &mut &[u8], bits: u32) -> Result<u64, Unread> {
    let (&first, mut behind) = rest.split_first().ok_or(Unread::Incomplete)?;
    let mask = (1u64 << bits) - 1;
    let mut value = u64::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, after) = behind.split_first().ok_or(Unread::Incomplete)?;
            behind = after;
            // Nine bytes of seven bits hold the 62 bits. The check also keeps the shift within the word.
            if shift > 56 {
                return Err(Unread::Invalid);
            }
            value += u64::from(byte & 0x7f) << shift;
            if value > varint::MAX {
                return Err(Unread::Invalid);
            }
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = behind;
    Ok(value)
}

/// Appends an integer. It begins in the lowest `bits` of its first byte, behind `kind`.
pub(crate) fn push_integer(out: &mut Vec<u8>, kind: u8, bits: u32, value: u64) {
    let mask = (1 << bits) - 1;
    if value < mask {
        return out.push(kind | value as u8);
    }
    out.push(kind | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads a string and appends it to `text`. Its length begins in the lowest `bits` of the first byte, behind the
/// Huffman bit. The encoded string may have at most `limit` bytes.
pub(crate) fn string(rest: &mut &[u8], bits: u32, limit: usize, text: &mut Vec<u8>) -> Result<(), Unread> {
    let is_coded = rest.first().ok_or(Unread::Incomplete)? & (1 << bits) != 0;
    let mut behind = *rest;
    let len = integer(&mut behind, bits)?;
    // Before the bytes have arrived: the length alone must not make the caller hold them.
    if len > limit as u64 {
        return Err(Unread::Invalid);
    }
    let (bytes, behind) = behind.split_at_checked(len as usize).ok_or(Unread::Incomplete)?;
    if is_coded {
        // `rest` moves only on success: an incomplete string is read again from its start.
        huffman::decode(bytes, text).map_err(|_| Unread::Invalid)?;
    } else {
        text.extend_from_slice(bytes);
    }
    *rest = behind;
    Ok(())
}

/// Appends a string behind the bits of `kind` in its first byte. Uses the Huffman code if that is shorter.
pub(crate) fn push_string(out: &mut Vec<u8>, kind: u8, bits: u32, text: &[u8]) {
    let len = huffman::coded_len(text);
    if len < text.len() {
        push_integer(out, kind | 1 << bits, bits, len as u64);
        huffman::encode(text, out);
    } else {
        push_integer(out, kind, bits, text.len() as u64);
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_62_bits() {
        for value in [0, 1, 30, 31, 32, 127, 128, 1 << 20, varint::MAX] {
            for bits in 1..=8 {
                let mut bytes = Vec::new();
                push_integer(&mut bytes, 0, bits, value);
                let mut rest = &bytes[..];
                assert_eq!((integer(&mut rest, bits), rest.len()), (Ok(value), 0));
                for cut in 0..bytes.len() {
                    assert_eq!(integer(&mut &bytes[..cut], bits), Err(Unread::Incomplete));
                }
            }
        }
        for bad in [
            &b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[..],
            b"\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(integer(&mut &*bad, 8), Err(Unread::Invalid), "{bad:x?}");
        }
    }

    #[test]
    fn strings_are_read_as_they_are_written() {
        for text in ["", "a", "www.example.com", "~~~~~~~~\u{7f}"] {
            for bits in [3, 5, 7] {
                let mut bytes = Vec::new();
                push_string(&mut bytes, 0, bits, text.as_bytes());
                let (mut rest, mut got) = (&bytes[..], Vec::new());
                assert_eq!(string(&mut rest, bits, 100, &mut got), Ok(()));
                assert_eq!((got.as_slice(), rest.len()), (text.as_bytes(), 0));
                for cut in 0..bytes.len() {
                    let cut = string(&mut &bytes[..cut], bits, 100, &mut Vec::new());
                    assert_eq!(cut, Err(Unread::Incomplete));
                }
            }
        }
        assert_eq!(string(&mut &b"\x05abcde"[..], 7, 4, &mut Vec::new()), Err(Unread::Invalid));
        assert_eq!(string(&mut &b"\x81\xff"[..], 7, 4, &mut Vec::new()), Err(Unread::Invalid));
    }
}
