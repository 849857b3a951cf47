//! Compressible media types.

use std::fmt;
use std::str::FromStr;

/// A media type, or a range of them: `application/json`, `text/*`, `*/*`, `*+xml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaRange {
    text: Box<str>,
    kind: MediaKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MediaKind {
    All,
    /// Prefix, with the slash.
    Within(Box<str>),
    /// Suffix, with the plus.
    Suffix(Box<str>),
    One(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaRangeError;

impl fmt::Display for MediaRangeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a media type such as \"text/*\", \"application/json\" or \"*+xml\"")
    }
}

impl std::error::Error for MediaRangeError {}

impl FromStr for MediaRange {
    type Err = MediaRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        let is_token = |part: &str| !part.is_empty() && part.bytes().all(is_token_byte);
        let kind = if lower == "*/*" {
            MediaKind::All
        } else if let Some(suffix) = lower.strip_prefix("*+") {
            if !is_token(suffix) {
                return Err(MediaRangeError);
            }
            MediaKind::Suffix(lower[1..].into())
        } else {
            match lower.split_once('/') {
                Some((kind, "*")) if is_token(kind) && kind != "*" => {
                    MediaKind::Within(format!("{kind}/").into())
                }
                Some((kind, subtype)) if is_token(kind) && is_token(subtype) && !lower.contains('*') => {
                    MediaKind::One(lower.as_str().into())
                }
                _ => return Err(MediaRangeError),
            }
        };
        Ok(Self { text: lower.into(), kind })
    }
}

impl fmt::Display for MediaRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl MediaRange {
    fn has(&self, essence: &[u8]) -> bool {
        match &self.kind {
            MediaKind::All => true,
            MediaKind::Within(start) => {
                essence.get(..start.len()).is_some_and(|known| known.eq_ignore_ascii_case(start.as_bytes()))
            }
            MediaKind::Suffix(end) => essence
                .len()
                .checked_sub(end.len())
                .is_some_and(|at| essence[at..].eq_ignore_ascii_case(end.as_bytes())),
            MediaKind::One(one) => essence.eq_ignore_ascii_case(one.as_bytes()),
        }
    }
}

/// Whether the type of a Content-Type value is among these. Parameters do not count.
pub fn is_among(content_type: &[u8], ranges: &[MediaRange]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    ranges.iter().any(|range| range.has(essence))
}

/// RFC 9110 §5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_match_types_in_any_case_without_parameters() {
        for (range, content_type, expected) in [
            ("text/*", "text/html; charset=utf-8", true),
            ("text/*", "TEXT/PLAIN", true),
            ("text/*", "textual/plain", false),
            ("application/json", "application/json ;a=b", true),
            ("application/json", "application/json5", false),
            ("Application/JSON", "application/json", true),
            ("*+xml", "image/svg+xml", true),
            ("*+xml", "application/xml", false),
            ("*+xml", "xml", false),
            ("*/*", "image/png", true),
            ("text/*", "", false),
        ] {
            let range: MediaRange = range.parse().expect("is a range");
            assert_eq!(is_among(content_type.as_bytes(), &[range]), expected, "{content_type}");
        }
    }

    #[test]
    fn what_is_no_media_type_is_refused() {
        for text in [
            "",
            "text",
            "text/",
            "/html",
            "text/ht ml",
            "*",
            "*/html",
            "te*t/html",
            "text/*x",
            "*+",
            "a/b;c=d",
        ] {
            assert_eq!(text.parse::<MediaRange>(), Err(MediaRangeError), "{text}");
        }
    }
}
