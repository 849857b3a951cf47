//! Searches for the first byte of a kind, sixteen bytes at a time, in vector registers.

use crate::window::{WIDTH, Window};

/// The position of the first byte of a kind, from `start` on. `kind` marks the matching bytes of a window.
#[inline(always)]
pub(crate) fn first(bytes: &[u8], start: usize, kind: impl Fn(Window) -> Window) -> Option<usize> {
    let mut rest = bytes.get(start..)?;
    while let Some((window, behind)) = rest.split_first_chunk() {
        let marks = kind(Window::new(*window)).bits();
        if marks != 0 {
            return Some(bytes.len() - rest.len() + marks.trailing_zeros() as usize);
        }
        rest = behind;
    }
    first_of_rest(bytes, rest.len(), kind)
}

/// The position of the first byte of a kind among the last `len` bytes, which are fewer than a window. Compares the
/// last whole window if there is one, and masks out the bytes before.
#[inline(never)]
fn first_of_rest(bytes: &[u8], len: usize, kind: impl Fn(Window) -> Window) -> Option<usize> {
    let at = bytes.len() - len;
    // An overlapping window is cheaper than a copy. The bytes before `at` were searched already, and are shifted out.
    let marks = match bytes.last_chunk() {
        Some(window) => kind(Window::new(*window)).bits() >> (WIDTH - len),
        None => {
            let mut window = [0; WIDTH];
            window[..len].copy_from_slice(&bytes[at..]);
            // The padding may match, too, as in a search for zero bytes.
            kind(Window::new(window)).bits() & ((1 << len) - 1)
        }
    };
    (marks != 0).then(|| at + marks.trailing_zeros() as usize)
}

/// The position of the CR that ends the line starting at `start`.
#[inline]
pub fn line_end(bytes: &[u8], start: usize) -> Option<usize> {
    first(bytes, start, |window| is(window, b'\r'))
}

/// Whether the bytes contain control characters, HTAB included.
#[inline]
pub fn has_controls(bytes: &[u8]) -> bool {
    first(bytes, 0, controls).is_some()
}

/// Marks bytes that end a plain field value: all control characters, HTAB included, which the strict parser has to
/// check.
#[inline(always)]
pub(crate) fn controls(bytes: Window) -> Window {
    is_at_most(bytes, 0x1f) | is(bytes, 0x7f)
}

/// Marks bytes that end a plain name: all but letters and hyphens.
#[inline(always)]
pub(crate) fn beyond_name(bytes: Window) -> Window {
    let lower = bytes | Window::splat(0x20);
    // Bytes below `a` wrap around to large values, so one comparison checks the range.
    !(is_at_most(lower - Window::splat(b'a'), b'z' - b'a') | is(bytes, b'-'))
}

/// Marks bytes that end a target: all but visible ASCII, and `#`.
#[inline(always)]
pub(crate) fn beyond_target(bytes: Window) -> Window {
    !is_at_most(bytes - Window::splat(b'!'), b'~' - b'!') | is(bytes, b'#')
}

/// Marks bytes that end the path of a target.
#[inline(always)]
pub(crate) fn beyond_path(bytes: Window) -> Window {
    beyond_target(bytes) | is(bytes, b'?')
}

#[inline(always)]
fn is(bytes: Window, byte: u8) -> Window {
    bytes.equal(Window::splat(byte))
}

#[inline(always)]
fn is_at_most(bytes: Window, byte: u8) -> Window {
    bytes.min(Window::splat(byte)).equal(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::is_target_byte;

    #[test]
    fn the_first_is_found_wherever_it_is() {
        for len in 0..70 {
            for start in 0..=len + 1 {
                for at in 0..len {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = b'!';
                    // The search ignores matches before the start, and any match after the first.
                    bytes[len - 1] = b'!';
                    let expected = (start..len).find(|&index| bytes[index] == b'!');
                    assert_eq!(first(&bytes, start, |bytes| is(bytes, b'!')), expected, "{len} {start} {at}");
                }
                assert_eq!(first(&vec![b'x'; len], start, |bytes| is(bytes, b'!')), None);
                // Padding of the last window never matches.
                assert_eq!(first(&vec![b'x'; len], start, |bytes| is(bytes, 0)), None);
            }
        }
    }

    #[test]
    fn ends_of_lines() {
        let text = b"abc\r\n0123456789abcdef\r\n\r\nx\n";
        let ends: Vec<_> = [0, 3, 5, 23, 25].iter().map(|&start| line_end(text, start)).collect();
        assert_eq!(ends, [Some(3), Some(3), Some(21), Some(23), None]);
        assert!(
            has_controls(b"a\tb")
                && has_controls(b"0123456789abcdef\x7f")
                && !has_controls("a \u{e4}".as_bytes())
        );
    }

    #[test]
    fn kinds() {
        for byte in 0..=255u8 {
            let ends = |kind: fn(Window) -> Window| first(&[byte], 0, kind).is_some();
            assert_eq!(ends(controls), byte.is_ascii_control(), "{byte:#x}");
            assert_eq!(ends(beyond_name), !(byte.is_ascii_alphabetic() || byte == b'-'), "{byte:#x}");
            // The strict parser uses the same set of bytes.
            assert_eq!(ends(beyond_target), !is_target_byte(byte), "{byte:#x}");
            assert_eq!(ends(beyond_path), !is_target_byte(byte) || byte == b'?', "{byte:#x}");
        }
    }
}
