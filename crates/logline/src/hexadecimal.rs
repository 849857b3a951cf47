//! Hexadecimal digits of identifiers: traces write 48 of them for each request.

/// In lower case.
#[must_use]
#[inline]
pub fn digits(number: u64) -> [u8; 16] {
    let mut all = [0; 16];
    all[..8].copy_from_slice(&eight_digits((number >> 32) as u32));
    all[8..].copy_from_slice(&eight_digits(number as u32));
    all
}

/// In lower case.
#[must_use]
#[inline]
pub fn wide_digits(number: u128) -> [u8; 32] {
    let mut all = [0; 32];
    all[..16].copy_from_slice(&digits((number >> 64) as u64));
    all[16..].copy_from_slice(&digits(number as u64));
    all
}

/// Converts all digits at once, one per byte of a word. 16 digits take 35 instructions; in a loop over bytes, 130.
#[inline]
fn eight_digits(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut nibbles = u64::from(number);
    nibbles = (nibbles | nibbles << 16) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in each byte above 9. No sum or product below carries into the next byte.
    let letters = ((nibbles + 6 * ONES) >> 4) & ONES;
    let above_9 = u64::from(b'a' - b'0' - 10);
    (nibbles + u64::from(b'0') * ONES + letters * above_9).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_that_the_standard_library_writes() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX, 0x9a9a_9a9a_0f0f_f0f0] {
            assert_eq!(digits(number), format!("{number:016x}").as_bytes());
            let wide = u128::from(number) << 64 | u128::from(!number);
            assert_eq!(wide_digits(wide), format!("{wide:032x}").as_bytes());
        }
    }
}
