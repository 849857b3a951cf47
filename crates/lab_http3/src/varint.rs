//! Variable-length integers (RFC 9000 §16).

/// Parses the integer at the start, and returns it with its length; `None` if it is incomplete.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    Some((rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), length))
}

/// Appends an integer below 2^62 in its shortest form.
#[inline]
pub(crate) fn push(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_9000_a_1_examples() {
        for (bytes, value) in [
            (&b"\xc2\x19\x7c\x5e\xff\x14\xe8\x8c"[..], 151_288_809_941_952_652),
            (b"\x9d\x7f\x3e\x7d", 494_878_333),
            (b"\x7b\xbd", 15_293),
            (b"\x25", 37),
        ] {
            assert_eq!(read(bytes), Some((value, bytes.len())));
            assert_eq!(read(&bytes[..bytes.len() - 1]), None);
            let mut out = Vec::new();
            push(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert_eq!(read(b"\x40\x25"), Some((37, 2)), "a longer form is one as well");
    }
}
