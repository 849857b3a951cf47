//! Escapes untrusted bytes for log lines. No control character, line break, quote or invalid UTF-8 passes, so a client
//! can neither forge a line nor control the terminal that shows it.

pub(crate) const HEX: &[u8; 16] = b"0123456789abcdef";

/// Escapes bytes as Apache httpd does: `\"`, `\\`, `\n`, `\r`, `\t`, and `\xHH` for other bytes outside printable
/// ASCII. The original bytes can be restored.
pub fn combined(bytes: &[u8], line: &mut Vec<u8>) {
    copy_plain(bytes, line, |rest, line| {
        match rest[0] {
            byte @ (b'"' | b'\\') => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            byte => line.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte)]),
        }
        1
    });
}

/// Escapes bytes as [`combined`] does, and spaces as `\x20`: for a field without quotes, which a space would end.
pub fn word(bytes: &[u8], line: &mut Vec<u8>) {
    for (at, word) in bytes.split(|&byte| byte == b' ').enumerate() {
        if at > 0 {
            line.extend_from_slice(b"\\x20");
        }
        combined(word, line);
    }
}

/// Escapes bytes for a field of the W3C Extended Log Format, which spaces end: `+` for a space, as its readers expect, and
/// `%HH` for quotes and for other bytes outside printable ASCII. `#` at the start would begin a directive.
pub fn w3c(bytes: &[u8], is_first: bool, line: &mut Vec<u8>) {
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b' ' => line.push(b'+'),
            b'#' if is_first && at == 0 => line.extend_from_slice(b"%23"),
            b'"' | ..=b' ' | 0x7f.. => {
                line.extend_from_slice(&[
                    b'%',
                    hex(byte >> 4).to_ascii_uppercase(),
                    hex(byte).to_ascii_uppercase(),
                ]);
            }
            byte => line.push(byte),
        }
    }
}

/// Escapes the control characters of a text, so that it stays one line and cannot control a terminal.
pub fn control(text: &str, line: &mut Vec<u8>) {
    for piece in text.split_inclusive(is_order) {
        let kept = piece.trim_end_matches(is_order);
        line.extend_from_slice(kept.as_bytes());
        json(&piece.as_bytes()[kept.len()..], line);
    }
}

fn is_order(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Escapes bytes as JSON does (RFC 8259 §7). UTF-8 is kept; invalid bytes become U+FFFD.
pub fn json(bytes: &[u8], line: &mut Vec<u8>) {
    copy_plain(bytes, line, |rest, line| {
        if let byte @ (b'"' | b'\\') = rest[0] {
            line.extend_from_slice(&[b'\\', byte]);
            return 1;
        }
        let Some(character) = first_character(rest) else {
            line.extend_from_slice(b"\\ufffd");
            return 1;
        };
        let length = character.len_utf8();
        match character {
            '\n' => line.extend_from_slice(b"\\n"),
            '\r' => line.extend_from_slice(b"\\r"),
            '\t' => line.extend_from_slice(b"\\t"),
            // JSON allows the last two unescaped, but many readers take them for line breaks.
            _ if is_order(character) => {
                let [.., high, low] = u32::from(character).to_be_bytes();
                line.extend_from_slice(&[b'\\', b'u', hex(high >> 4), hex(high), hex(low >> 4), hex(low)]);
            }
            _ => line.extend_from_slice(&rest[..length]),
        }
        length
    });
}

/// Copies runs of plain bytes; `special` writes what starts with any other byte and returns how many it took.
fn copy_plain(bytes: &[u8], line: &mut Vec<u8>, special: impl Fn(&[u8], &mut Vec<u8>) -> usize) {
    // Most fields are short and entirely plain.
    if are_plain(bytes) {
        line.extend_from_slice(bytes);
        return;
    }
    escape_some(bytes, line, special);
}

#[cold]
fn escape_some(bytes: &[u8], line: &mut Vec<u8>, special: impl Fn(&[u8], &mut Vec<u8>) -> usize) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| !is_plain(byte)) {
        line.extend_from_slice(&rest[..at]);
        let taken = special(&rest[at..], line);
        rest = &rest[at + taken..];
    }
    line.extend_from_slice(rest);
}

/// Whether all bytes are plain. Reads eight at a time; the last read overlaps unless the length is a multiple of eight.
#[inline]
fn are_plain(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else { return bytes.iter().all(|&byte| is_plain(byte)) };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0, |special, word| special | specials(*word)) | specials(*last) == 0
}

/// Returns a nonzero value if a byte of the word is not plain.
#[inline]
pub(crate) fn specials(word: [u8; 8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let word = u64::from_le_bytes(word);
    // The lowest byte that is below the bound gets its high bit set. Bytes above it may get theirs by a borrow,
    // which needs a lower byte below the bound.
    let below = |word: u64, bound: u8| word.wrapping_sub(u64::from(bound) * ONES) & !word;
    let is = |byte: u8| below(word ^ (u64::from(byte) * ONES), 1);
    (word | below(word, b' ') | is(0x7f) | is(b'"') | is(b'\\')) & HIGH
}

/// Returns whether both formats copy the byte unescaped: printable ASCII except quote and backslash.
fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\')
}

/// Decodes the first character, if `bytes` start with valid UTF-8.
fn first_character(bytes: &[u8]) -> Option<char> {
    let head = &bytes[..bytes.len().min(4)];
    head.utf8_chunks().next()?.valid().chars().next()
}

fn hex(nibble: u8) -> u8 {
    HEX[usize::from(nibble & 0x0f)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: fn(&[u8], &mut Vec<u8>), bytes: &[u8]) -> String {
        let mut line = Vec::new();
        escape(bytes, &mut line);
        String::from_utf8(line).expect("escaped text is UTF-8")
    }

    #[test]
    fn each_byte_is_plain_at_each_place_or_at_none() {
        for length in 1..=20 {
            for place in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = byte;
                    assert_eq!(are_plain(&bytes), is_plain(byte), "{bytes:?}");
                }
            }
        }
        assert!(are_plain(b""));
    }

    #[test]
    fn table() {
        for (bytes, in_combined, in_json) in [
            (&b"/a?b=c%20d"[..], "/a?b=c%20d", "/a?b=c%20d"),
            (b"", "", ""),
            (b"say \"hi\"", "say \\\"hi\\\"", "say \\\"hi\\\""),
            (b"back\\slash", "back\\\\slash", "back\\\\slash"),
            (b"a\r\nb\tc", "a\\r\\nb\\tc", "a\\r\\nb\\tc"),
            (b"\0\x1b[2J\x7f", "\\x00\\x1b[2J\\x7f", "\\u0000\\u001b[2J\\u007f"),
            ("grün €".as_bytes(), "gr\\xc3\\xbcn \\xe2\\x82\\xac", "grün €"),
            ("\u{9b}2J".as_bytes(), "\\xc2\\x9b2J", "\\u009b2J"),
            ("\u{2028}".as_bytes(), "\\xe2\\x80\\xa8", "\\u2028"),
            (b"\xff\xfea", "\\xff\\xfea", "\\ufffd\\ufffda"),
            (b"cut \xe2\x82", "cut \\xe2\\x82", "cut \\ufffd\\ufffd"),
        ] {
            assert_eq!(escaped(combined, bytes), in_combined, "{bytes:?} in combined");
            assert_eq!(escaped(json, bytes), in_json, "{bytes:?} in JSON");
        }
    }
}
