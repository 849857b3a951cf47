//! Parses path prefixes of routes, which must be written as in a request.
//!
//! A prefix that no normalised request path can match is rejected.

use crate::document::value_error::{PrefixProblem, ValueError, ValueFault};

/// The expected form of a path prefix.
pub(crate) const PREFIX: &str = "a path prefix such as / or /api";

/// Parses a path prefix. It matches whole segments: `/api` is for `/api` and `/api/x`, not for `/apix`.
pub(crate) fn prefix(text: &str) -> Result<String, ValueError> {
    match problem(text) {
        None => Ok(upper_case_escapes(text)),
        Some((problem, nearest)) => {
            let nearest = nearest.filter(|nearest| self::problem(nearest).is_none());
            Err(ValueError {
                fault: ValueFault::Prefix { path: text.to_owned(), problem, nearest },
                expected: PREFIX,
            })
        }
    }
}

/// Parses an exact path, in which a trailing slash matters.
pub(crate) fn exact(text: &str) -> Result<String, ValueError> {
    let without_slash = text.strip_suffix('/').filter(|path| !path.is_empty() && !path.ends_with('/'));
    prefix(without_slash.unwrap_or(text)).map(|path| match without_slash {
        Some(_) => path + "/",
        None => path,
    })
}

/// Parses the text that paths start with, written `/api*` with its `*` removed: for `/api`, `/api/x` and `/apix`.
pub(crate) fn text_prefix(text: &str) -> Result<String, ValueError> {
    // The last segment continues in paths: `/.` is the beginning of `/.git`.
    match text.rsplit_once('/') {
        Some((before, last @ ("." | ".."))) => exact(&format!("{before}/")).map(|path| path + last),
        _ => exact(text),
    }
}

/// Returns the mistake in a prefix, and the intended value if there is a likely one.
fn problem(text: &str) -> Option<(PrefixProblem, Option<String>)> {
    if !text.starts_with('/') {
        return Some((PrefixProblem::Relative, Some(format!("/{text}"))));
    }
    if let Some(end) = text.find(['?', '#']) {
        return Some((PrefixProblem::Query, Some(text[..end].to_owned())));
    }
    if text.contains('*') {
        return Some((PrefixProblem::Wildcard, Some(without_slash(text.trim_end_matches('*')))));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some((PrefixProblem::Character, None));
    }
    if text.split('%').skip(1).any(|after| !starts_with_two_digits(after)) {
        return Some((PrefixProblem::Percent, None));
    }
    // RFC 3986 §6.2.2.2: `%61` is `a`. Routes are matched that way, so one spelling is enough here.
    if let Some(plain) = without_needless_escapes(text) {
        return Some((PrefixProblem::Escape, Some(plain)));
    }
    if text == "/" {
        return None;
    }
    if text.contains("//") {
        return Some((PrefixProblem::EmptySegment, None));
    }
    if text.ends_with('/') {
        return Some((PrefixProblem::SlashAtEnd, Some(without_slash(text))));
    }
    // RFC 3986 §6.2.2.3: these are removed when a path is normalised; a backslash separates segments on some systems,
    // and some servers cut parameters off. Requests with any of them reach no route.
    let mut names = text.split(['/', '\\']).filter_map(|segment| segment.split(';').next());
    let dots = names.any(|name| name == "." || name == "..");
    dots.then_some((PrefixProblem::DotSegment, None))
}

/// The text with each escape of a visible character as that character, if there is one; those that would end the
/// path or start an escape stay.
fn without_needless_escapes(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        plain += before;
        let (digits, behind) = after.split_at_checked(2)?;
        match u8::from_str_radix(digits, 16) {
            Ok(byte) if byte.is_ascii_graphic() && !b"%?#*".contains(&byte) => plain.push(char::from(byte)),
            _ => plain.extend(["%", digits]),
        }
        rest = behind;
    }
    plain += rest;
    (plain != text).then_some(plain)
}

/// RFC 3986 §6.2.2.1: the case of an escape's digits doesn't matter; upper case is the usual one.
fn upper_case_escapes(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut upper = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).unwrap_or((piece, ""));
        upper.push('%');
        upper += &digits.to_ascii_uppercase();
        upper += rest;
    }
    upper
}

fn without_slash(text: &str) -> String {
    let path = text.trim_end_matches('/');
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

fn starts_with_two_digits(text: &str) -> bool {
    matches!(text.as_bytes(), [first, second, ..] if first.is_ascii_hexdigit() && second.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_paths() {
        for path in ["/", "/a", "/a/", "/a/b.html"] {
            assert_eq!(exact(path), Ok(path.to_owned()));
        }
        for path in ["", "//", "/a//", "/../", "a/", "/a/*"] {
            assert!(exact(path).is_err(), "{path}");
        }
    }

    #[test]
    fn text_prefixes() {
        for text in ["/", "/api", "/api/", "/wp-", "/.", "/a/.."] {
            assert_eq!(text_prefix(text), Ok(text.to_owned()));
        }
        for text in ["", "api", "/a*b", "//", "/a/../", "/a/../.", "/a?b"] {
            assert!(text_prefix(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/a.b",
            "/...",
            "/%C3%A9",
            "/%20%3F%25%2A",
            "/a.;b",
            "/a;b=c,d~e@f:g!$&'()+",
        ] {
            assert_eq!(prefix(path), Ok(path.to_owned()));
        }
        assert_eq!(prefix("/%c3%a9%3f"), Ok("/%C3%A9%3F".to_owned()));
        for (path, problem, nearest) in [
            ("", PrefixProblem::Relative, Some("/")),
            ("api", PrefixProblem::Relative, Some("/api")),
            ("api/", PrefixProblem::Relative, None),
            ("/api?x=1", PrefixProblem::Query, Some("/api")),
            ("/#top", PrefixProblem::Query, Some("/")),
            ("/api/*", PrefixProblem::Wildcard, Some("/api")),
            ("/*", PrefixProblem::Wildcard, Some("/")),
            ("/*/a", PrefixProblem::Wildcard, None),
            ("/api/", PrefixProblem::SlashAtEnd, Some("/api")),
            ("//", PrefixProblem::EmptySegment, None),
            ("/a//b", PrefixProblem::EmptySegment, None),
            ("/a/../b", PrefixProblem::DotSegment, None),
            ("/.", PrefixProblem::DotSegment, None),
            ("/..;a/b", PrefixProblem::DotSegment, None),
            ("/a\\..", PrefixProblem::DotSegment, None),
            ("/%2e%2E", PrefixProblem::Escape, None),
            ("/a%2Fb", PrefixProblem::Escape, Some("/a/b")),
            ("/%61pi%20x", PrefixProblem::Escape, Some("/api%20x")),
            ("/a b", PrefixProblem::Character, None),
            ("/\u{e9}", PrefixProblem::Character, None),
            ("/a%2", PrefixProblem::Percent, None),
            ("/%zz", PrefixProblem::Percent, None),
        ] {
            let nearest = nearest.map(str::to_owned);
            let fault = ValueFault::Prefix { path: path.to_owned(), problem, nearest };
            assert_eq!(prefix(path).map_err(|error| error.fault), Err(fault), "{path}");
        }
    }
}
