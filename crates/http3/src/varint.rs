//! Variable-length integers (RFC 9000 §16).

pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Returns the integer at the start of `bytes`, and its length; `None` if it is incomplete.
pub(crate) fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let rest = bytes.get(1..len)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte));
    Some((value, len))
}

/// Reads an integer that fills `bytes` exactly.
pub(crate) fn read_all(bytes: &[u8]) -> Option<u64> {
    read(bytes).filter(|(_, len)| *len == bytes.len()).map(|(value, _)| value)
}

/// Appends an integer in the shortest form.
pub(crate) fn push(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= MAX);
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
    fn the_examples_of_the_rfc() {
        // RFC 9000 §A.1.
        let rows: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in rows {
            assert_eq!(read(bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn reading_inverts_writing() {
        for value in [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, MAX] {
            let mut bytes = Vec::new();
            push(&mut bytes, value);
            assert_eq!(read_all(&bytes), Some(value));
            bytes.push(0);
            assert_eq!(read_all(&bytes), None);
        }
    }
}
