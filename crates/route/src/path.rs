//! Paths as a lenient server reads them: escapes decoded, repeated slashes merged.
//!
//! For comparison only. Dot segments are detected, never resolved: a server may resolve them differently from the
//! proxy.

/// The bytes of a path as a lenient server reads them.
#[derive(Debug, Clone)]
pub(crate) struct LenientPath<'a> {
    rest: &'a [u8],
    follows_slash: bool,
}

impl<'a> LenientPath<'a> {
    #[inline]
    pub(crate) fn from_path(path: &'a [u8]) -> Self {
        Self { rest: path, follows_slash: false }
    }

    /// For each byte, whether it was written as an escape.
    pub(crate) fn escapes(mut self) -> impl Iterator<Item = bool> + 'a {
        std::iter::from_fn(move || self.next_written().map(|(_, is_escape)| is_escape))
    }

    /// The next byte, and whether it is written as an escape.
    #[inline]
    fn next_written(&mut self) -> Option<(u8, bool)> {
        loop {
            let (byte, rest) = decoded(self.rest)?;
            let is_escape = self.rest.len() - rest.len() > 1;
            self.rest = rest;
            let repeats = byte == b'/' && self.follows_slash;
            self.follows_slash = byte == b'/';
            if !repeats {
                return Some((byte, is_escape));
            }
        }
    }
}

impl Iterator for LenientPath<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        self.next_written().map(|(byte, _)| byte)
    }
}

/// A length that few paths exceed.
const SHORT_PATH_BYTES: usize = 1024;

/// Calls `then` with the bytes of a path as a lenient server reads them; the empty path is `/`.
///
/// Only a path with escapes or repeated slashes is copied: to the stack, or to the heap if it exceeds 1 KiB.
#[inline]
pub(crate) fn with_reading<R>(path: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
    if path.is_empty() {
        return then(b"/");
    }
    if reads_as_it_stands(path) {
        return then(path);
    }
    with_copy(path, then)
}

#[inline(never)]
fn with_copy<R>(path: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
    let mut short = [0; SHORT_PATH_BYTES];
    if path.len() > short.len() {
        return then(&LenientPath::from_path(path).collect::<Vec<u8>>());
    }
    let mut len = 0;
    for (to, byte) in short.iter_mut().zip(LenientPath::from_path(path)) {
        *to = byte;
        len += 1;
    }
    then(&short[..len])
}

/// Whether servers may read a path in several ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// All servers read the path alike.
    None,
    /// The path has dot segments, backslashes or parameters: see [`readings`](crate::readings).
    Reading,
}

impl Doubt {
    #[inline]
    pub(crate) fn from_path(path: &[u8]) -> Self {
        // Few paths contain any of these bytes.
        if path.iter().any(|byte| matches!(byte, b'.' | b'%' | b'\\' | b';')) {
            Self::within(path)
        } else {
            Self::None
        }
    }

    #[inline(never)]
    fn within(path: &[u8]) -> Self {
        let is_in_doubt = has_dot_segments(path) || has(path, b'\\') || has(path, b';');
        if is_in_doubt { Self::Reading } else { Self::None }
    }
}

/// Describes in words what makes a path ambiguous.
#[must_use]
pub fn doubts(path: &[u8]) -> String {
    let all = [
        (has_dot_segments(path), "dot segments, which some servers resolve"),
        (has(path, b'\\'), "a backslash, which some take for a slash"),
        (has(path, b';'), "a parameter (;), which some cut off"),
    ];
    let there: Vec<&str> = all.iter().filter(|(is_there, _)| *is_there).map(|(_, what)| *what).collect();
    there.join(" and ")
}

/// Whether a path contains a byte, plain or escaped.
pub(crate) fn has(path: &[u8], byte: u8) -> bool {
    LenientPath::from_path(path).any(|read| read == byte)
}

/// Whether the path has neither an escape nor a repeated slash. Without an early exit, so that it compiles to wide
/// steps.
#[inline]
fn reads_as_it_stands(path: &[u8]) -> bool {
    let followers = path.get(1..).unwrap_or_default();
    let doubles = path
        .iter()
        .zip(followers)
        .fold(false, |found, (&byte, &next)| found | (byte == b'%') | ((byte == b'/') & (next == b'/')));
    !doubles && path.last() != Some(&b'%')
}

/// The text of a prefix as a lenient server reads it. A trailing slash stays.
pub(crate) fn canonical_text(prefix: &str) -> Vec<u8> {
    LenientPath::from_path(prefix.as_bytes()).collect()
}

/// The end of a prefix within a path, both read leniently. `None` if the path is not below the prefix.
///
/// `prefix` must already be in canonical form, without a trailing slash.
pub(crate) fn end_of_prefix(path: &[u8], prefix: &[u8]) -> Option<usize> {
    let (end, mut reading) = read_prefix(path, prefix)?;
    reading.next().is_none_or(|byte| byte == b'/').then_some(end)
}

/// The end of a text within a path, both read leniently. `None` if the path does not start with the text.
///
/// `text` must already be in canonical form.
pub(crate) fn end_of_text(path: &[u8], text: &[u8]) -> Option<usize> {
    read_prefix(path, text).map(|(end, _)| end)
}

/// Reads a prefix in canonical form. Returns its end within the path, and the reading behind it.
fn read_prefix<'p>(path: &'p [u8], prefix: &[u8]) -> Option<(usize, LenientPath<'p>)> {
    let mut reading = LenientPath::from_path(path);
    for &byte in prefix {
        if reading.next() != Some(byte) {
            return None;
        }
    }
    Some((path.len() - reading.rest.len(), reading))
}

/// The first byte of a path, decoded once, and the rest. An invalid escape is not decoded.
#[inline]
pub(crate) fn decoded(path: &[u8]) -> Option<(u8, &[u8])> {
    match path {
        [b'%', high, low, rest @ ..] => match (hex_value(*high), hex_value(*low)) {
            (Some(high), Some(low)) => Some((high << 4 | low, rest)),
            _ => Some((b'%', &path[1..])),
        },
        [byte, rest @ ..] => Some((*byte, rest)),
        [] => None,
    }
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Whether some servers read a segment of the path as `.` or `..` (RFC 3986 §5.2.4), so that it leads to another path
/// than the one matched: `/api/../admin`, `/%2e%2E/`, `/..%2fadmin`, `/..\admin`, `/..;/admin`.
///
/// A proxy that routes by path rejects it with 400. Browsers resolve dot segments themselves, and send none.
pub fn has_dot_segments(path: &[u8]) -> bool {
    // Few paths contain a dot, plain or escaped.
    if !path.iter().any(|&byte| byte == b'.' || byte == b'%') {
        return false;
    }
    let mut segment = Segment::Empty;
    let mut rest = path;
    while let Some((byte, behind)) = decoded(rest) {
        rest = behind;
        segment = match (byte, segment) {
            // A backslash separates segments on some systems; some servers cut off a path parameter.
            (b'/' | b'\\' | b';', Segment::Dot | Segment::DotDot) => return true,
            (b'/' | b'\\', _) => Segment::Empty,
            (b'.', Segment::Empty) => Segment::Dot,
            (b'.', Segment::Dot) => Segment::DotDot,
            _ => Segment::Other,
        };
    }
    matches!(segment, Segment::Dot | Segment::DotDot)
}

/// The bytes read of a segment.
#[derive(Debug, Clone, Copy)]
enum Segment {
    Empty,
    Dot,
    DotDot,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_leniently() {
        for (path, read) in [
            ("", ""),
            ("/", "/"),
            ("*", "*"),
            ("/api/x", "/api/x"),
            ("//api///x//", "/api/x/"),
            ("/%61p%69", "/api"),
            ("/api%2Fx", "/api/x"),
            ("/%2f/%2F%2fx", "/x"),
            // Decoded once.
            ("/%2561", "/%61"),
            // Not escapes.
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz%+1", "/%zz%+1"),
            ("/%%61", "/%a"),
            // Not changed.
            ("/a/../b/.", "/a/../b/."),
            ("/a;v=1", "/a;v=1"),
            ("/a\\b", "/a\\b"),
            ("/API", "/API"),
        ] {
            let bytes: Vec<u8> = LenientPath::from_path(path.as_bytes()).collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), read, "{path}");
        }
    }

    #[test]
    fn a_reading_as_bytes_is_the_same_reading() {
        let long = format!("/{}%61//b", "x".repeat(2000));
        for path in
            ["/", "*", "/api/x", "//a", "/a%2fb", "/a%", "/%", "%", "/a//", "/a/b//c%41", long.as_str()]
        {
            let expected: Vec<u8> = LenientPath::from_path(path.as_bytes()).collect();
            with_reading(path.as_bytes(), |bytes| assert_eq!(bytes, expected, "{path}"));
        }
        with_reading(b"", |bytes| assert_eq!(bytes, b"/"));
        with_reading(b"/a/b", |bytes| assert_eq!(bytes.len(), 4));
    }

    #[test]
    fn where_a_prefix_ends() {
        for (path, prefix, end) in [
            ("/api/x", "/api", Some(4)),
            ("/api", "/api", Some(4)),
            ("/%61pi//x", "/api", Some(6)),
            ("//api%2Fx", "/api", Some(5)),
            ("/apix", "/api", None),
            ("/ap", "/api", None),
            ("/x", "", Some(0)),
            ("", "", Some(0)),
        ] {
            assert_eq!(end_of_prefix(path.as_bytes(), prefix.as_bytes()), end, "{path} {prefix}");
        }
    }

    #[test]
    fn where_a_text_ends() {
        for (path, text, end) in [
            ("/apix", "/api", Some(4)),
            ("/api", "/api", Some(4)),
            ("/%61pix", "/api", Some(6)),
            ("//api%2Fx", "/api/", Some(8)),
            ("/api", "/api/", None),
            ("/x", "/", Some(1)),
            ("*", "/", None),
        ] {
            assert_eq!(end_of_text(path.as_bytes(), text.as_bytes()), end, "{path} {text}");
        }
    }

    #[test]
    fn paths_that_servers_may_read_differently() {
        for (path, doubt) in [
            ("/a/b", Doubt::None),
            ("/a.b%20c", Doubt::None),
            ("/a%255C", Doubt::None),
            ("/a;b", Doubt::Reading),
            ("/a%3b", Doubt::Reading),
            ("/a\\b", Doubt::Reading),
            ("/a%5Cb;c", Doubt::Reading),
            ("/a/..;/b", Doubt::Reading),
        ] {
            assert_eq!(Doubt::from_path(path.as_bytes()), doubt, "{path}");
        }
    }

    /// RFC 3986 §5.2.4, and variants that servers accept.
    #[test]
    fn dot_segments() {
        for path in [
            "/.",
            "/..",
            "/./",
            "/../",
            "/a/./b",
            "/a/../b",
            "/a/..",
            "/%2e",
            "/%2E%2e/",
            "/.%2e/a",
            "/a%2f..%2fb",
            "/a/..%2Fb",
            "/a\\..\\b",
            "/a%5c..%5Cb",
            "/a/..;/b",
            "/a/.;v=1/b",
            "/a/..%3b/b",
            "..",
            ".",
        ] {
            assert!(has_dot_segments(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "/",
            "*",
            "/a.b",
            "/a..",
            "/..a",
            "/...",
            "/.well-known/acme-challenge/x",
            "/a/.../b",
            "/a.%2e/b",
            "/%2e%2e%2e",
            "/%252e%252e/",
            "/a;../b",
            "/a;v=1.",
        ] {
            assert!(!has_dot_segments(path.as_bytes()), "{path}");
        }
    }
}
