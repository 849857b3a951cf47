//! The path prefix of a route, written as a request would send it.
//!
//! What no normalised request path can match is refused here rather than never matched there.

use crate::fault::{Fault, PrefixProblem, ValueError};

/// What a path prefix may be.
pub(crate) const PREFIX: &str = "a path prefix such as / or /api";

/// Reads a path prefix. Its last segment is whole: `/api` is for `/api` and `/api/x`, not for `/apix`.
pub(crate) fn prefix(text: &str) -> Result<String, ValueError> {
    match problem(text) {
        None => Ok(text.to_owned()),
        Some((problem, nearest)) => {
            let nearest = nearest.filter(|nearest| self::problem(nearest).is_none());
            Err(ValueError {
                fault: Fault::Prefix { path: text.to_owned(), problem, nearest },
                expected: PREFIX,
            })
        }
    }
}

/// What is wrong, and what was perhaps meant.
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
    if text == "/" {
        return None;
    }
    if text.contains("//") {
        return Some((PrefixProblem::EmptySegment, None));
    }
    if text.ends_with('/') {
        return Some((PrefixProblem::SlashAtEnd, Some(without_slash(text))));
    }
    // RFC 3986 §6.2.2.3: these are removed when a path is normalised.
    let dots = text.split('/').any(|segment| segment == "." || segment == "..");
    dots.then_some((PrefixProblem::DotSegment, None))
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
    fn prefixes() {
        for path in ["/", "/api", "/api/v1", "/a.b", "/...", "/%7Euser", "/a;b=c,d~e@f:g!$&'()+"] {
            assert_eq!(prefix(path), Ok(path.to_owned()));
        }
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
            ("/a b", PrefixProblem::Character, None),
            ("/\u{e9}", PrefixProblem::Character, None),
            ("/a%2", PrefixProblem::Percent, None),
            ("/%zz", PrefixProblem::Percent, None),
        ] {
            let nearest = nearest.map(str::to_owned);
            let fault = Fault::Prefix { path: path.to_owned(), problem, nearest };
            assert_eq!(prefix(path).map_err(|error| error.fault), Err(fault), "{path}");
        }
    }
}
