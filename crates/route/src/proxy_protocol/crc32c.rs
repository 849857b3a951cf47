//! CRC-32C (RFC 9260 appendix A), a byte at a time, because headers are short and few.

/// The Castagnoli polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut rest = index as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[index] = rest;
        index += 1;
    }
    table
};

/// The CRC-32C checksum of several pieces.
pub(super) fn crc32c<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let bytes = pieces.into_iter().flatten();
    !bytes.fold(u32::MAX, |rest, byte| rest >> 8 ^ TABLE[usize::from(rest as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 appendix B.4.
    #[test]
    fn checksums() {
        let rising: Vec<u8> = (0..32).collect();
        for (bytes, checksum) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c([bytes]), checksum);
            let (one, other) = bytes.split_at(bytes.len() / 3);
            assert_eq!(crc32c([one, other]), checksum);
        }
    }
}
