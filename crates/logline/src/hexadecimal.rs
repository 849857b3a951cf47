//! Hexadecimal digits of identifiers: traces have 48 of them for each request.

/// The 16 digits of a number, in lower case.
#[must_use]
#[inline]
pub fn digits(number: u64) -> [u8; 16] {
    let mut all = [0; 16];
    write(&number.to_be_bytes(), &mut all);
    all
}

/// The 32 digits of a number, in lower case.
#[must_use]
#[inline]
pub fn wide_digits(number: u128) -> [u8; 32] {
    let mut all = [0; 32];
    all[..16].copy_from_slice(&digits((number >> 64) as u64));
    all[16..].copy_from_slice(&digits(number as u64));
    all
}

/// Writes two digits for each byte. As a function of its own, which finds the bytes in memory, it becomes 20 instructions that
/// take all of them at a time; inlined it would take each byte out of the number. Iterators would be calls where a build has
/// several units of code and no optimization across them.
#[inline(never)]
fn write(bytes: &[u8; 8], digits: &mut [u8; 16]) {
    let mut at = 0;
    while at < bytes.len() {
        digits[2 * at] = digit(bytes[at] >> 4);
        digits[2 * at + 1] = digit(bytes[at] & 0x0f);
        at += 1;
    }
}

#[inline]
fn digit(nibble: u8) -> u8 {
    nibble + b'0' + if nibble > 9 { b'a' - b'0' - 10 } else { 0 }
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
