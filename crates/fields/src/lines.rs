//! Field lines of HTTP/1.1 text for encoders: names, a hash of the whole line, and the comparison with a line that was
//! encoded before.

/// Iterates over lines without their CRLF, up to the empty one.
pub(crate) struct HeadLines<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Iterator for HeadLines<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let end = http1::line_end(self.rest, 0).filter(|&end| end > 0)?;
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..)?;
        Some(line)
    }
}

pub(crate) fn is_named(line: &[u8], name: &[u8]) -> bool {
    line.split_at_checked(name.len())
        .is_some_and(|(written, rest)| rest.first() == Some(&b':') && written.eq_ignore_ascii_case(name))
}

/// Whether a line has this field. `name` is in lower case; the line's name may be in any case, and white space around
/// its value is ignored.
pub fn is_line_of(line: &[u8], (name, value): (&[u8], &[u8])) -> bool {
    let Some((written, rest)) = line.split_at_checked(name.len()) else { return false };
    let is_value = match rest {
        // The usual form.
        [b':', b' ', rest @ ..] if rest == value => true,
        [b':', rest @ ..] => rest.trim_ascii() == value,
        _ => false,
    };
    is_value && is_lower_case_of(name, written)
}

/// `name` is in lower case; both have the same length.
fn is_lower_case_of(name: &[u8], written: &[u8]) -> bool {
    let (words, rest) = name.as_chunks::<8>();
    let (others, other_rest) = written.as_chunks::<8>();
    let is_same = |(word, other): (&[u8; 8], &[u8; 8])| {
        u64::from_ne_bytes(*word) == lower_case_of(u64::from_ne_bytes(*other))
    };
    words.iter().zip(others).all(is_same)
        && match (name.last_chunk(), written.last_chunk()) {
            // The last eight bytes, which may overlap those compared above.
            (Some(word), Some(other)) => is_same((word, other)),
            _ => rest.eq_ignore_ascii_case(other_rest),
        }
}

/// Converts eight ASCII bytes at once. Bytes that are no capital letters stay as they are.
fn lower_case_of(bytes: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    let low = bytes & (ONES * 0x7f);
    // The highest bit of each byte is the result of its comparison.
    let is_from_a = low + ONES * (0x80 - b'A' as u64);
    let is_beyond_z = low + ONES * (0x7f - b'Z' as u64);
    let is_upper = is_from_a & !is_beyond_z & !bytes & (ONES * 0x80);
    bytes | is_upper >> 2
}

/// The hash needs no secret: a collision only makes the encoder send a field as a literal.
pub fn hash_of<const PARTS: usize>(parts: [&[u8]; PARTS]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    for bytes in parts {
        mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|&word| mix(u64::from_le_bytes(word)));
        mix(match bytes.last_chunk() {
            // The last eight bytes, which may overlap those mixed in above.
            Some(&word) => u64::from_le_bytes(word),
            None => rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        });
    }
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_letters_have_a_case() {
        for byte in 0..=255u8 {
            let eight = [b'x', byte, b'X', byte, 0xff, 0, byte, b'Z'];
            let expected = u64::from_ne_bytes(eight.map(|byte| byte.to_ascii_lowercase()));
            assert_eq!(lower_case_of(u64::from_ne_bytes(eight)), expected, "{byte:#x}");
        }
        for (name, written, is) in [
            (&b"etag"[..], &b"ETag"[..], true),
            (b"x^y", b"x~y", false),
            (b"content-type", b"Content-Type", true),
            (b"content-type", b"Content-Tyqe", false),
            (b"sontent-type", b"Content-Type", false),
            (b"accept-r", b"ACCEPT-R", true),
            (b"", b"", true),
        ] {
            assert_eq!(is_lower_case_of(name, written), is, "{name:?}");
        }
    }
}
