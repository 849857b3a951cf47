//! Compression Dictionary Transport (RFC 9842): the fields, and the first bytes of coded bodies.

pub type Digest = [u8; 32];

/// Larger responses are not used as dictionaries.
pub const DICTIONARY_BYTES_MAX: u64 = 4 << 20;

/// RFC 9842 §4: first bytes of a `dcb` body, before the digest.
pub(crate) const MAGIC_OF_BROTLI: &[u8] = &[0xff, 0x44, 0x43, 0x42];
/// RFC 9842 §5: first bytes of a `dcz` body: a skippable frame.
pub(crate) const MAGIC_OF_ZSTD: &[u8] = &[0x5e, 0x2a, 0x4d, 0x18, 0x20, 0x00, 0x00, 0x00];

/// Parses Available-Dictionary (RFC 9842 §2.2): a Byte Sequence of 32 bytes (RFC 8941 §3.3.5), or else `None`.
pub fn available_dictionary(value: &[u8]) -> Option<Digest> {
    let text = value.trim_ascii().strip_prefix(b":")?.strip_suffix(b":")?;
    // 32 bytes are 43 digits and one padding character.
    let digits: &[u8; 43] = text.strip_suffix(b"=")?.try_into().ok()?;
    let mut digest = Digest::default();
    let (mut bits, mut count, mut at) = (0_u32, 0, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            *digest.get_mut(at)? = (bits >> count) as u8;
            at += 1;
        }
    }
    // RFC 4648 §3.5: the unused bits are zero.
    (bits & ((1 << count) - 1) == 0).then_some(digest)
}

/// Returns `match` of Use-As-Dictionary (RFC 9842 §2.1.1), if the response is a raw dictionary.
pub fn match_of(value: &[u8]) -> Option<&[u8]> {
    let (mut found, mut rest) = (None, value);
    loop {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| matches!(byte, b'=' | b',' | b';')).unwrap_or(rest.len());
        let (key, behind) = rest.split_at(end);
        let (text, behind) = match behind.strip_prefix(b"=") {
            Some(behind) => item(behind)?,
            None => (&b""[..], behind),
        };
        match key.trim_ascii_end() {
            b"match" => found = Some(text),
            // Other formats are not supported.
            b"type" if text != b"raw" => return None,
            _ => {}
        }
        rest = behind.trim_ascii_start();
        match rest.split_first() {
            None => return found,
            Some((b',', behind)) => rest = behind,
            Some(_) => return None,
        }
    }
}

/// Whether a body with this start can be a dictionary of either coding. RFC 9842 §5: it is raw bytes. Zstandard would
/// parse them as its own dictionary format if they started with its magic number.
pub fn is_dictionary(beginning: &[u8]) -> bool {
    !beginning.starts_with(&MAGIC_OF_FORMAT)
}

/// RFC 8878 §5: magic number of Zstandard's own dictionary format.
const MAGIC_OF_FORMAT: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// Whether a path matches a pattern, in which `*` matches any text.
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut pattern_at, mut path_at) = (0, 0);
    // Position of the last `*`, and the end of the text that it matches.
    let mut star = None;
    while path_at < path.len() {
        match pattern.get(pattern_at) {
            Some(b'*') => {
                star = Some((pattern_at, path_at));
                pattern_at += 1;
            }
            Some(byte) if *byte == path[path_at] => {
                pattern_at += 1;
                path_at += 1;
            }
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    (pattern_at, path_at) = (star_at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[pattern_at..].iter().all(|byte| *byte == b'*')
}

/// Splits off a string, a token, or an inner list without parsing it.
fn item(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let close = |end: u8| text.iter().skip(1).position(|byte| *byte == end).map(|at| at + 1);
    match text.first()? {
        b'"' => close(b'"').map(|end| (&text[1..end], &text[end + 1..])),
        b'(' => close(b')').map(|end| (&text[..=end], &text[end + 1..])),
        _ => {
            let end = text.iter().position(|byte| matches!(byte, b',' | b';')).unwrap_or(text.len());
            Some((text[..end].trim_ascii_end(), &text[end..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_a_byte_sequence_of_32_bytes() {
        let value = b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:";
        let digest = available_dictionary(value).expect("is one");
        assert_eq!(digest[..4], [0xa5, 0x91, 0xa6, 0xd4]);
        assert_eq!(digest[31], 0x6e);
        for wrong in [
            &b"pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4="[..],
            b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4:",
            b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG5=:",
            b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG=:",
            b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fF-4=:",
            b"::",
            b"",
        ] {
            assert_eq!(available_dictionary(wrong), None, "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, path, expected) in [
            ("/app/*/main.js", "/app/v1/main.js", true),
            ("/app/*/main.js", "/app/v1/a/main.js", true),
            ("/app/*/main.js", "/app/main.js", false),
            ("/*", "/", true),
            ("/a*b*c", "/abbcbc", true),
            ("/a*b*c", "/abbcb", false),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a**", "/a", true),
            ("/a/*", "/a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn match_is_read_from_use_as_dictionary() {
        for (value, expected) in [
            ("match=\"/app/*/main.js\"", Some("/app/*/main.js")),
            ("id=\"a,b\", match=\"/x\" , match-dest=(\"script\" \"style\")", Some("/x")),
            ("match=\"/x\", type=raw", Some("/x")),
            ("match=\"/x\", type=brotli-shared", None),
            ("match=\"/x", None),
            ("id=\"x\"", None),
            ("", None),
        ] {
            assert_eq!(match_of(value.as_bytes()), expected.map(str::as_bytes), "{value}");
        }
    }
}
