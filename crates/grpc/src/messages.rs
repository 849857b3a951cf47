//! Length-prefixed messages (PROTOCOL-HTTP2.md, "Length-Prefixed-Message"): a flag, four bytes of length, and the message.

pub(crate) const PREFIX_BYTES: usize = 5;

/// Checks, while a body arrives, whether it can be one short message.
#[derive(Debug, Clone)]
pub struct Unary {
    bytes_max: u64,
    prefix: [u8; PREFIX_BYTES],
    taken: u64,
}

impl Unary {
    /// `bytes_max` is the maximum length of the message, prefix included.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max: bytes_max as u64, prefix: [0; PREFIX_BYTES], taken: 0 }
    }

    /// Takes the next bytes of the body. Returns whether all bytes so far can be one short message.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let at = self.taken.min(PREFIX_BYTES as u64) as usize;
        let count = bytes.len().min(PREFIX_BYTES - at);
        self.prefix[at..at + count].copy_from_slice(&bytes[..count]);
        self.taken += bytes.len() as u64;
        if self.taken < PREFIX_BYTES as u64 {
            return true;
        }
        let [_, length @ ..] = self.prefix;
        let whole = u64::from(u32::from_be_bytes(length)) + PREFIX_BYTES as u64;
        whole <= self.bytes_max && self.taken <= whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_short_message_is_told_from_all_else_however_it_comes() {
        let rows: &[(&[u8], bool)] = &[
            (b"", true),
            (b"\0\0\0", true),
            (b"\0\0\0\0\0", true),
            (b"\x01\0\0\0\x03ab", true),
            (b"\0\0\0\0\x03abc", true),
            (b"\0\0\0\0\x03abcd", false),
            (b"\0\0\0\0\0\0\0\0\0\0", false),
            (b"\0\0\0\0\x05abcde", true),
            (b"\0\0\0\0\x06", false),
            (b"\0\xff\xff\xff\xff", false),
        ];
        for (bytes, expected) in rows {
            for piece in 1..=bytes.len().max(1) {
                let mut unary = Unary::new(10);
                let is_unary = bytes.chunks(piece).all(|piece| unary.take(piece));
                assert_eq!(is_unary, *expected, "{bytes:?} in pieces of {piece}");
            }
        }
    }
}
