//! Hexadecimal digits of identifiers, eight at a time: traces have 48 of them for each request.

/// The 16 digits of a number, in lower case.
#[must_use]
pub fn digits(number: u64) -> [u8; 16] {
    let mut all = [0; 16];
    all[..8].copy_from_slice(&eight((number >> 32) as u32));
    all[8..].copy_from_slice(&eight(number as u32));
    all
}

/// The 32 digits of a number, in lower case.
#[must_use]
pub fn wide_digits(number: u128) -> [u8; 32] {
    let mut all = [0; 32];
    all[..16].copy_from_slice(&digits((number >> 64) as u64));
    all[16..].copy_from_slice(&digits(number as u64));
    all
}

/// Each byte of a word becomes a digit, without a loop and without a table.
fn eight(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut nibbles = u64::from(number);
    nibbles = (nibbles << 16 | nibbles) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles << 8 | nibbles) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles << 4 | nibbles) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in the bytes that are 10 or more: with 6 more those have the bit of 16.
    let are_letters = ((nibbles + 6 * ONES) >> 4) & ONES;
    let digits = nibbles + u64::from(b'0') * ONES + are_letters * u64::from(b'a' - b'0' - 10);
    digits.to_be_bytes()
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
