//! URLs: their parts, and references relative to them.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum UrlScheme {
    Http,
    Https,
}

/// The parts of an `http` or `https` URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: UrlScheme,
    /// Authority for the Host field, with the port if it was written.
    pub(crate) authority: &'a str,
    /// Host, without the brackets of an IPv6 address.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// Path and query: empty, or starting with `/` or `?`.
    pub(crate) target: &'a str,
}

impl<'a> Url<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, &'static str> {
        let split = |prefix: &str| {
            let (scheme, rest) = text.split_at_checked(prefix.len())?;
            scheme.eq_ignore_ascii_case(prefix).then_some(rest)
        };
        let (scheme, rest) = match (split("http://"), split("https://")) {
            (Some(rest), _) => (UrlScheme::Http, rest),
            (None, Some(rest)) => (UrlScheme::Https, rest),
            (None, None) => return Err("write http://HOST[:PORT]/PATH, or the same with https"),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it has a space or a character that is not ASCII; percent-encode it");
        }
        // RFC 9110 §7.1: the fragment is not part of a request target.
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(split);
        if authority.contains('@') {
            return Err("a user name belongs in -H 'Authorization: …'");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').ok_or("the ] of the IPv6 address is missing")?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        if host.is_empty() {
            return Err("the host is missing; write it as http://HOST[:PORT]/PATH");
        }
        let port = match port {
            "" if scheme == UrlScheme::Https => 443,
            "" => 80,
            _ => port
                .strip_prefix(':')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|port| *port != 0)
                .ok_or("the port is not a number from 1 to 65535")?,
        };
        Ok(Self { scheme, authority, host, port, target })
    }
}

/// The absolute URL of a reference (RFC 3986 §5.2), such as a Location, without its fragment.
pub(crate) fn resolved(base: &Url<'_>, reference: &str) -> String {
    let reference = reference.split('#').next().unwrap_or_default();
    let reference = encoded(reference.trim_matches([' ', '\t']));
    let scheme = if base.scheme == UrlScheme::Https { "https" } else { "http" };
    if let Some(colon) = reference.find(':')
        && reference[..colon].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !reference[..colon].is_empty()
    {
        return reference;
    }
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}");
    }
    let (base_path, base_query) = match base.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (base.target, None),
    };
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference.as_str(), None),
    };
    let query = if path.is_empty() { query.or(base_query) } else { query };
    let path = match path {
        "" => base_path.to_owned(),
        _ if path.starts_with('/') => without_dots(path),
        _ => {
            let folder = base_path.rfind('/').map_or("", |slash| &base_path[..slash]);
            without_dots(&format!("{folder}/{path}"))
        }
    };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{}{path}{query}", base.authority)
}

/// Removes `.` and `..` segments of a path that starts with a slash (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let mut kept: Vec<&str> = Vec::with_capacity(segments.len());
    for (index, segment) in segments.iter().enumerate() {
        let is_last = index + 1 == segments.len();
        match *segment {
            ".." => {
                kept.pop();
            }
            "." => {}
            segment => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

/// Percent-encodes characters that a URL cannot have, as browsers and curl do.
pub(crate) fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_graphic() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The start of a value, for error messages.
pub(crate) fn shortened(text: &str) -> String {
    const CHARACTERS: usize = 120;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_in_their_parts() {
        use UrlScheme::{Http, Https};
        let cases = [
            ("http://a/b?c", (Http, "a", "a", 80, "/b?c")),
            ("HTTP://a.b:8080", (Http, "a.b:8080", "a.b", 8080, "")),
            ("http://[::1]:81/#top", (Http, "[::1]:81", "::1", 81, "/")),
            ("http://[::1]", (Http, "[::1]", "::1", 80, "")),
            ("http://a?q=/x", (Http, "a", "a", 80, "?q=/x")),
            ("https://a/", (Https, "a", "a", 443, "/")),
            ("HTTPS://[::1]:8443", (Https, "[::1]:8443", "::1", 8443, "")),
        ];
        for (text, (scheme, authority, host, port, target)) in cases {
            assert_eq!(Url::parse(text), Ok(Url { scheme, authority, host, port, target }), "{text}");
        }
        let refused = [
            "",
            "a",
            "/",
            "ftp://a/",
            "httpss://a/",
            "https:/a/",
            "http://",
            "http:///x",
            "http://:80/",
            "http://a:0/",
            "http://a:+1/",
            "http://a:65536/",
            "http://a:b/",
            "http://[::1/",
            "http://[::1]x/",
            "http://u:p@a/",
            "http://a/b c",
            "http://a/\r\nX: y",
            "http://ä/",
        ];
        for text in refused {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rfc_3986_5_4_references_are_resolved() {
        let base = Url::parse("http://a:1/b/c/d;p?q").expect("a URL");
        for (reference, expected) in [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("..", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("g?y/../x", "/b/c/g?y/../x"),
            (" /a b\u{e9}", "/a%20b%C3%A9"),
        ] {
            assert_eq!(resolved(&base, reference), format!("http://a:1{expected}"), "{reference}");
        }
        for (reference, expected) in
            [("//g:2/h", "http://g:2/h"), ("https://g/h#s", "https://g/h"), ("mailto:x", "mailto:x")]
        {
            assert_eq!(resolved(&base, reference), expected);
        }
        let bare = Url::parse("https://a").expect("a URL");
        assert_eq!(resolved(&bare, "g"), "https://a/g");
    }
}
