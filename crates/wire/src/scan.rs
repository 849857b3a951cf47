//! The first byte of a kind, looked for sixteen bytes at a time.
//!
//! Plain loops of a fixed length, in which the compiler sees vector instructions: no early exit, no state.

/// Bytes that are looked at together: a vector register, on every x86-64 and 64-bit ARM.
const WIDTH: usize = 16;

/// Where the first byte of a kind is, from `start` on.
///
/// `is` should be a few comparisons: each is made for all bytes of a window.
#[inline(always)]
pub(crate) fn first(bytes: &[u8], start: usize, is: impl Fn(u8) -> bool) -> Option<usize> {
    let mut rest = bytes.get(start..)?;
    while let Some((window, behind)) = rest.split_first_chunk() {
        let marks = marks(window, &is);
        // Asked of the bytes and not of a number made of them, which would leave the vector register for it.
        if marks.iter().fold(0, |all, mark| all | mark) != 0 {
            return Some(bytes.len() - rest.len() + first_mark(u128::from_le_bytes(marks)));
        }
        rest = behind;
    }
    first_of_rest(bytes, rest.len(), is)
}

/// The same for the last bytes, where these are less than a window: the last window is looked at, without what was seen
/// of it.
#[inline(never)]
fn first_of_rest(bytes: &[u8], len: usize, is: impl Fn(u8) -> bool) -> Option<usize> {
    let at = bytes.len() - len;
    let Some(window) = bytes.last_chunk() else {
        return (at..bytes.len()).find(|&index| is(bytes[index]));
    };
    let marks = u128::from_le_bytes(marks(window, is)).checked_shr(8 * (WIDTH - len) as u32)?;
    (marks != 0).then(|| at + first_mark(marks))
}

/// All bits of each byte that is of a kind.
#[inline(always)]
fn marks(window: &[u8; WIDTH], is: impl Fn(u8) -> bool) -> [u8; WIDTH] {
    window.map(|byte| if is(byte) { 0xff } else { 0 })
}

#[inline(always)]
fn first_mark(marks: u128) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// What ends a plain field value: CR and LF, and what the strict reader has to see, HTAB included.
#[inline(always)]
pub(crate) fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

/// What ends a plain name: anything but letters and hyphens.
#[inline(always)]
pub(crate) fn is_beyond_name(byte: u8) -> bool {
    !((byte | 0x20).wrapping_sub(b'a') < 26 || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_wherever_it_is() {
        for len in 0..70 {
            for start in 0..=len + 1 {
                for at in 0..len {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = b'!';
                    // What lies before the start, and the second one, are not asked for.
                    bytes[len - 1] = b'!';
                    let expected = (start..len).find(|&index| bytes[index] == b'!');
                    assert_eq!(first(&bytes, start, |byte| byte == b'!'), expected, "{len} {start} {at}");
                }
                assert_eq!(first(&vec![b'x'; len], start, |byte| byte == b'!'), None);
            }
        }
    }

    #[test]
    fn kinds() {
        for byte in 0..=255u8 {
            assert_eq!(is_control(byte), byte.is_ascii_control(), "{byte:#x}");
            assert_eq!(is_beyond_name(byte), !(byte.is_ascii_alphabetic() || byte == b'-'), "{byte:#x}");
        }
    }
}
