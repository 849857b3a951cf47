//! Query strings in the log: complete, removed, or with parameter values masked.
//!
//! A URL is shortened where its query has secrets, but never decoded or reassembled.

const MASK: &[u8] = b"***";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LoggedQuery {
    #[default]
    Full,
    /// The URL ends before its `?`.
    Omitted,
    /// Parameter names are logged, with `***` for each value.
    Masked,
    /// Values of parameters with these names (in any case) are masked.
    Without(Vec<String>),
}

impl LoggedQuery {
    pub(crate) fn shows(&self, name: &[u8]) -> bool {
        match self {
            Self::Full => true,
            Self::Omitted | Self::Masked => false,
            Self::Without(names) => !names.iter().any(|known| is_name(name, known)),
        }
    }

    /// Passes the logged parts of a URL to `write`, in order.
    pub(crate) fn pieces<'u>(&self, url: &'u [u8], mut write: impl FnMut(&'u [u8])) {
        let names = match self {
            Self::Full => return write(url),
            Self::Omitted => None,
            Self::Masked => Some(None),
            Self::Without(names) => Some(Some(names.as_slice())),
        };
        let Some(mark) = url.iter().position(|&byte| byte == b'?') else { return write(url) };
        let Some(names) = names else { return write(&url[..mark]) };
        write(&url[..=mark]);
        for parameter in url[mark + 1..].split_inclusive(|&byte| byte == b'&') {
            let (parameter, separator) = match parameter.split_last() {
                Some((b'&', parameter)) => (parameter, &b"&"[..]),
                _ => (parameter, &b""[..]),
            };
            match masked_from(parameter, names) {
                Some(value) => {
                    write(&parameter[..value]);
                    write(MASK);
                }
                None => write(parameter),
            }
            write(separator);
        }
    }
}

/// Returns where the masked value begins. Some servers also split at `;`, so a name may follow one. Others do not,
/// so everything after a masked value is masked, too.
fn masked_from(parameter: &[u8], names: Option<&[String]>) -> Option<usize> {
    let mut start = 0;
    for piece in parameter.split(|&byte| byte == b';') {
        let equals = piece.iter().position(|&byte| byte == b'=');
        // Without a name, the whole parameter may be a secret: `/?TOKEN`.
        let (name, value) = match equals {
            Some(equals) => (&piece[..equals], start + equals + 1),
            None => (piece, start),
        };
        let is_masked = match names {
            None => !piece.is_empty(),
            Some(names) => equals.is_some() && names.iter().any(|known| is_name(name, known)),
        };
        if is_masked {
            return Some(value);
        }
        start += piece.len() + 1;
    }
    None
}

/// Returns whether a server reads `written` as this name, escaped or in another case.
fn is_name(mut written: &[u8], name: &str) -> bool {
    let mut name = name.bytes();
    loop {
        let (read, rest) = match written {
            [] => return name.next().is_none(),
            [b'%', high, low, rest @ ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, rest),
                _ => (b'%', &written[1..]),
            },
            [b'+', rest @ ..] => (b' ', rest),
            [byte, rest @ ..] => (*byte, rest),
        };
        if !name.next().is_some_and(|byte| byte.eq_ignore_ascii_case(&read)) {
            return false;
        }
        written = rest;
    }
}

fn digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(query: &LoggedQuery, url: &str) -> String {
        let mut logged = Vec::new();
        query.pieces(url.as_bytes(), |piece| logged.extend_from_slice(piece));
        String::from_utf8(logged).expect("it is text")
    }

    #[test]
    fn logged_parts_of_a_url() {
        let without = LoggedQuery::Without(vec!["token".to_owned(), "api key".to_owned()]);
        for (url, omitted, masked, some) in [
            ("/a", "/a", "/a", "/a"),
            ("*", "*", "*", "*"),
            ("/?", "/", "/?", "/?"),
            ("/a?token=1&b=2", "/a", "/a?token=***&b=***", "/a?token=***&b=2"),
            ("/a?b=2&TOKEN=1", "/a", "/a?b=***&TOKEN=***", "/a?b=2&TOKEN=***"),
            ("/a?t%6fken=1&t%6Fken=2", "/a", "/a?t%6fken=***&t%6Fken=***", "/a?t%6fken=***&t%6Fken=***"),
            (
                "/a?api+key=1&api%20key=2",
                "/a",
                "/a?api+key=***&api%20key=***",
                "/a?api+key=***&api%20key=***",
            ),
            ("/a?tokens=1&toke=2&%=3", "/a", "/a?tokens=***&toke=***&%=***", "/a?tokens=1&toke=2&%=3"),
            ("/a?b=1;token=2;c=3&d", "/a", "/a?b=***&***", "/a?b=1;token=***&d"),
            ("/a?secret", "/a", "/a?***", "/a?secret"),
            ("/a?token&&=x", "/a", "/a?***&&=***", "/a?token&&=x"),
            ("/a?u=http://b/?token=1", "/a", "/a?u=***", "/a?u=http://b/?token=1"),
            ("http://b/?token=1#f", "http://b/", "http://b/?token=***", "http://b/?token=***"),
        ] {
            assert_eq!(logged(&LoggedQuery::Full, url), url);
            assert_eq!(logged(&LoggedQuery::Omitted, url), omitted, "{url}");
            assert_eq!(logged(&LoggedQuery::Masked, url), masked, "{url}");
            assert_eq!(logged(&without, url), some, "{url}");
        }
    }
}
