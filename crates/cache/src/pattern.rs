//! URL patterns of purges: `*` matches any text; in a host, any text without a slash.
//!
//! Patterns are compared with the text of keys, whose first line is a URL.

use std::fmt;

use crate::key::Uri;

/// Longer patterns, or those with more stars, are rejected, because each stored response is compared with all patterns.
const BYTES_MAX: usize = 4096;
const STARS_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgePattern {
    /// `None` for both.
    is_https: Option<bool>,
    /// In lower case.
    authority: Box<[u8]>,
    /// `None` for the whole host, with any port.
    path_and_query: Option<Box<[u8]>>,
}

impl PurgePattern {
    /// A pattern of URLs. `None` if it is too long, or has too many `*`.
    pub fn of_url(is_https: Option<bool>, authority: &[u8], path_and_query: &[u8]) -> Option<Self> {
        Self::within_limits(is_https, authority, Some(path_and_query))
    }

    /// A pattern of hosts without a port. `None` if it is too long, or has too many `*`.
    pub fn of_host(host: &[u8]) -> Option<Self> {
        Self::within_limits(None, host, None)
    }

    fn within_limits(is_https: Option<bool>, authority: &[u8], path: Option<&[u8]>) -> Option<Self> {
        let parts = [authority, path.unwrap_or_default()];
        let stars = parts.iter().flat_map(|part| part.iter()).filter(|&&byte| byte == b'*').count();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        (stars <= STARS_MAX && bytes <= BYTES_MAX).then(|| Self {
            is_https,
            authority: authority.to_ascii_lowercase().into(),
            path_and_query: path.map(Into::into),
        })
    }

    /// Whether the pattern matches a key with this text.
    pub fn meets(&self, key_text: &[u8]) -> bool {
        let url = key_text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let (is_https, rest) = match url.strip_prefix(b"https://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix(b"http://").unwrap_or(url)),
        };
        let (authority, path) =
            rest.split_at(rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len()));
        if self.is_https.is_some_and(|own| own != is_https) {
            return false;
        }
        match &self.path_and_query {
            // Keys contain no default port.
            Some(own) => {
                let meant = Uri { is_https, authority: &self.authority, path: b"/", query: None };
                matches(meant.plain_authority(), authority) && matches(own, path)
            }
            None => matches(&self.authority, http1::host_without_port(authority)),
        }
    }

    /// Appends the pattern in a binary form.
    pub fn write(&self, out: &mut Vec<u8>) {
        let scheme = SCHEMES.iter().position(|scheme| *scheme == self.is_https).unwrap_or_default();
        out.extend_from_slice(&[scheme as u8, u8::from(self.path_and_query.is_some())]);
        out.extend_from_slice(&(self.authority.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.authority);
        out.extend_from_slice(self.path_and_query.as_deref().unwrap_or_default());
    }

    /// Reads the output of `write`. `None` if the bytes are invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&[scheme, has_path], rest) = bytes.split_first_chunk()?;
        let (authority_bytes, rest) = rest.split_first_chunk()?;
        let (authority, path) = rest.split_at_checked(u32::from_le_bytes(*authority_bytes) as usize)?;
        let is_https = *SCHEMES.get(usize::from(scheme))?;
        match has_path {
            0 if path.is_empty() => Self::within_limits(is_https, authority, None),
            1 => Self::within_limits(is_https, authority, Some(path)),
            _ => None,
        }
    }
}

impl fmt::Display for PurgePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.is_https {
            None => "",
            Some(false) => "http://",
            Some(true) => "https://",
        })?;
        let path = self.path_and_query.as_deref().unwrap_or_default();
        write!(formatter, "{}{}", self.authority.escape_ascii(), path.escape_ascii())
    }
}

const SCHEMES: [Option<bool>; 3] = [None, Some(false), Some(true)];

/// Whether a text matches a pattern with `*`. Takes at most one step per pair of bytes.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at_pattern, mut at_text) = (0, 0);
    // The last star, and the end of the text that it stands for.
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(at_text) {
        match pattern.get(at_pattern) {
            Some(b'*') => {
                star = Some((at_pattern, at_text));
                at_pattern += 1;
            }
            Some(wanted) if wanted == byte => (at_pattern, at_text) = (at_pattern + 1, at_text + 1),
            _ => {
                let Some((at_star, end)) = star else { return false };
                // Goes back to the last star only: earlier ones need no second try, which keeps the number of steps
                // low.
                star = Some((at_star, end + 1));
                (at_pattern, at_text) = (at_star + 1, end + 1);
            }
        }
    }
    pattern[at_pattern..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, is_met) in [
            ("/a*", "/a", true),
            ("/a*", "/a/b?c=d", true),
            ("/a*", "/b/a", false),
            ("*", "", true),
            ("*.jpg", "/x.jpg", true),
            ("*.jpg", "/x.jpg?1", false),
            ("/a*b*c", "/aXbYbZc", true),
            ("/a*b*c", "/aXcYb", false),
            ("/a**c", "/ac", true),
            ("/a", "/a/", false),
            ("/a*a", "/a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), is_met, "{pattern} {text}");
        }
    }

    #[test]
    fn urls_and_hosts_are_met_as_they_are_in_keys() {
        let url = |is_https, authority: &str, path: &str| {
            PurgePattern::of_url(is_https, authority.as_bytes(), path.as_bytes()).expect("is short")
        };
        let host = |host: &str| PurgePattern::of_host(host.as_bytes()).expect("is short");
        for (pattern, key, is_met) in [
            (url(None, "A.example", "/a*"), "https://a.example/ab", true),
            (url(None, "a.example", "/a*"), "http://a.example/ab\nx-kind=/b", true),
            (url(Some(true), "a.example:443", "/a*"), "https://a.example/a", true),
            (url(None, "a.example:80", "/*"), "http://a.example/a", true),
            (url(None, "a.example:80", "/*"), "https://a.example/a", false),
            (url(Some(false), "a.example", "/*"), "https://a.example/a", false),
            (url(None, "*.example", "/a"), "http://b.c.example/a", true),
            // A star in a host matches no path.
            (url(None, "*.example", "/a"), "http://b/x.example/a", false),
            (url(None, "*", "*.jpg"), "http://b:81/x.jpg", true),
            (host("*"), "http://a.example:81/", true),
            (host("*.example"), "http://a.example:81/", true),
            (host("*.example"), "http://example/", false),
            (host("a*"), "https://b/a", false),
        ] {
            assert_eq!(pattern.meets(key.as_bytes()), is_met, "{pattern} {key}");
        }
    }

    #[test]
    fn patterns_are_read_as_they_were_written_and_bounded() {
        let patterns = [
            PurgePattern::of_host(b"*"),
            PurgePattern::of_url(Some(true), b"a", b"/*"),
            PurgePattern::of_url(None, b"a", b""),
        ];
        for pattern in patterns.map(|pattern| pattern.expect("is short")) {
            let mut bytes = Vec::new();
            pattern.write(&mut bytes);
            assert_eq!(PurgePattern::read(&bytes), Some(pattern));
        }
        for bytes in [&b""[..], b"\x03\0\0\0\0\0", b"\0\x02\0\0\0\0", b"\0\0\x05\0\0\0a", b"\0\0\0\0\0\0a"] {
            assert_eq!(PurgePattern::read(bytes), None, "{bytes:?}");
        }
        assert_eq!(PurgePattern::of_host("*".repeat(STARS_MAX + 1).as_bytes()), None);
        assert_eq!(PurgePattern::of_host("a".repeat(BYTES_MAX + 1).as_bytes()), None);
    }
}
