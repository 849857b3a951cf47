//! Alternative readings of a path by servers: backslashes as slashes, dot segments resolved, path parameters removed,
//! each alone and combined.
//!
//! For comparison only: none of these is ever forwarded.

use crate::path::decoded;

/// The longest ambiguous path whose readings are compared; a longer one is rejected as ambiguous.
pub(crate) const READ_BYTES_MAX: usize = 1024;

/// A server's treatment of path parameters (`;v=1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parameters {
    Keep,
    /// Removes parameters after an unescaped `;`.
    Cut,
    /// Removes parameters after decoding the path.
    CutDecoded,
}

/// A server's treatment of dot segments (RFC 3986 §5.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dots {
    Keep,
    Resolve {
        /// Whether an escaped slash separates segments.
        decodes: bool,
        /// Whether slashes in a row count as one.
        merges: bool,
    },
}

const PARAMETERS: [Parameters; 3] = [Parameters::Keep, Parameters::Cut, Parameters::CutDecoded];

const DOTS: [Dots; 5] = [
    Dots::Keep,
    Dots::Resolve { decodes: true, merges: true },
    Dots::Resolve { decodes: true, merges: false },
    Dots::Resolve { decodes: false, merges: true },
    Dots::Resolve { decodes: false, merges: false },
];

/// Whether `differs` holds for any reading of the path. With `cuts`, path parameters are considered. Escapes are not
/// decoded in the readings.
pub(crate) fn any(path: &[u8], cuts: bool, mut differs: impl FnMut(&[u8]) -> bool) -> bool {
    let mut text = Vec::with_capacity(path.len());
    let mut starts = Vec::new();
    let parameters = if cuts { &PARAMETERS[..] } else { &PARAMETERS[..1] };
    parameters.iter().any(|&parameters| {
        [false, true].into_iter().any(|takes_backslashes| {
            DOTS.iter().any(|&dots| {
                read(path, parameters, takes_backslashes, dots, &mut text, &mut starts);
                differs(&text)
            })
        })
    })
}

/// The path with its dot segments resolved (RFC 3986 §5.2.4).
pub(crate) fn resolved(path: &[u8]) -> Vec<u8> {
    let (mut text, mut starts) = (Vec::with_capacity(path.len()), Vec::new());
    let dots = Dots::Resolve { decodes: false, merges: false };
    read(path, Parameters::Keep, false, dots, &mut text, &mut starts);
    text
}

/// Writes one reading of the path to `text`. `starts` is scratch memory for the positions of its segments.
fn read(
    path: &[u8],
    parameters: Parameters,
    takes_backslashes: bool,
    dots: Dots,
    text: &mut Vec<u8>,
    starts: &mut Vec<usize>,
) {
    text.clear();
    starts.clear();
    starts.push(0);
    let (mut rest, mut is_cut) = (path, false);
    while let Some((byte, behind)) = decoded(rest) {
        let written = &rest[..rest.len() - behind.len()];
        rest = behind;
        let is_escape = written.len() > 1;
        let is_slash = byte == b'/' || (byte == b'\\' && takes_backslashes);
        is_cut = match parameters {
            Parameters::Keep => false,
            Parameters::Cut => written == b";" || (is_cut && (!is_slash || is_escape)),
            Parameters::CutDecoded => byte == b';' || (is_cut && !is_slash),
        };
        match dots {
            _ if is_cut => {}
            Dots::Resolve { decodes, merges } if is_slash && (decodes || !is_escape) => {
                let is_gone = end_segment(text, starts);
                let repeats = merges && text.last() == Some(&b'/');
                if !is_gone && !repeats {
                    text.push(b'/');
                    starts.push(text.len());
                }
            }
            _ if is_slash && byte == b'\\' => text.push(b'/'),
            _ => text.extend_from_slice(written),
        }
    }
    if dots != Dots::Keep {
        end_segment(text, starts);
    }
}

/// Removes the last segment of the text if it is `.`, and the one before it too if it is `..`. Returns whether it did;
/// the slash before the removed segment then begins the next one.
fn end_segment(text: &mut Vec<u8>, starts: &mut Vec<usize>) -> bool {
    let start = starts.last().copied().unwrap_or_default();
    let Some(dots) = dots_of(&text[start..]) else { return false };
    text.truncate(start);
    // Nothing is above the first segment.
    if dots == 2 && starts.len() > 2 {
        starts.pop();
        text.truncate(starts.last().copied().unwrap_or_default());
    }
    true
}

/// The number of dots in a decoded segment, if it is a dot segment.
fn dots_of(segment: &[u8]) -> Option<usize> {
    let (mut dots, mut rest) = (0, segment);
    while let Some((byte, behind)) = decoded(rest) {
        if byte != b'.' || dots == 2 {
            return None;
        }
        dots += 1;
        rest = behind;
    }
    (dots > 0).then_some(dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(path: &str, decodes: bool, merges: bool) -> String {
        let (mut text, mut starts) = (Vec::new(), Vec::new());
        let dots = Dots::Resolve { decodes, merges };
        read(path.as_bytes(), Parameters::Keep, true, dots, &mut text, &mut starts);
        String::from_utf8(text).unwrap()
    }

    /// RFC 3986 §5.2.4 and §5.4.
    #[test]
    fn dot_segments_are_resolved() {
        for (path, expected) in [
            ("/a/b/c/./../../g", "/a/g"),
            ("/mid/content=5/../6", "/mid/6"),
            ("/a/b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/..", "/"),
            ("/../../g", "/g"),
            ("/./g", "/g"),
            ("/g.", "/g."),
            ("/..g", "/..g"),
            ("/...", "/..."),
            ("/a\\..\\b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/", "/"),
            ("", ""),
        ] {
            for (decodes, merges) in [(true, true), (true, false), (false, true), (false, false)] {
                assert_eq!(resolved(path, decodes, merges), expected, "{path} {decodes} {merges}");
            }
        }
        // Servers differ in these cases.
        assert_eq!(resolved("/a//../b", true, true), "/b");
        assert_eq!(resolved("/a//../b", true, false), "/a/b");
        assert_eq!(resolved("/a%2fx/../b", true, true), "/a/b");
        assert_eq!(resolved("/a%2fx/../b", false, true), "/b");
    }

    #[test]
    fn every_reading_is_looked_at() {
        let reads_as =
            |path: &str, wanted: &str| any(path.as_bytes(), true, |text| text == wanted.as_bytes());
        for (path, wanted) in [
            ("/a\\b", "/a/b"),
            ("/a\\b", "/a\\b"),
            ("/a%5Cb", "/a/b"),
            ("/a;x/../b", "/b"),
            ("/a;x/b", "/a/b"),
            ("/a/..;v/b", "/b"),
            ("/a/..%3bv/b", "/b"),
            ("/a%255Cb", "/a%255Cb"),
        ] {
            assert!(reads_as(path, wanted), "{path} as {wanted}");
        }
        assert!(!reads_as("/a%255Cb", "/a/b"), "decoded once");
        assert!(!any(b"/a;x", false, |text| text == b"/a"), "parameters are left alone");
    }
}
