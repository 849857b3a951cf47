//! Rewrites the path and the host for the server.
//!
//! The query is kept unless a template writes one. `location` maps Location fields of responses back.

use crate::exchange::Exchange;
use crate::path::{Reading, end_of_prefix, has_dot_segments};
use crate::pattern::Pattern;
use crate::prefixes::canonical_prefix;
use crate::readings::{self, READ_BYTES_MAX};
use crate::request::Fields;
use crate::template::{OfClient, Place, Stage, Template, TemplateError};

/// A rewrite of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRewrite(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Prefix { from: Box<[u8]>, to: Template },
    Pattern { pattern: Pattern, to: Template },
    Whole(Template),
}

/// A rewritten path has segments that some servers read as `.` or `..`, and may lead elsewhere. The request is rejected
/// with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rewritten path has dot segments")]
pub struct AmbiguousPath;

impl PathRewrite {
    /// Replaces a prefix with `to`, and keeps the rest of the path. If `to` is `/`, the prefix is stripped.
    ///
    /// With `/api` to `/v1`, `/api` becomes `/v1`, and `/api/x` becomes `/v1/x`. A path that is not below the prefix is
    /// not changed.
    ///
    /// # Errors
    /// What is wrong with `to`, which may have variables.
    pub fn prefix(from: &str, to: &str) -> Result<Self, TemplateError> {
        let to = Template::new(to, Place::Path, Stage::Route, None)?;
        Ok(Self(Kind::Prefix { from: canonical_prefix(from).into(), to }))
    }

    /// Replaces a path that matches the pattern with `to`, which may refer to the pattern's groups. Other paths are not
    /// changed.
    ///
    /// The pattern sees the path as a lenient server reads it: escapes decoded, repeated slashes merged.
    ///
    /// # Errors
    /// What is wrong with `to`.
    pub fn pattern(pattern: Pattern, to: &str) -> Result<Self, TemplateError> {
        let to = Template::new(to, Place::Path, Stage::Route, Some(&pattern))?;
        Ok(Self(Kind::Pattern { pattern, to }))
    }

    /// Replaces every path with `to`.
    ///
    /// # Errors
    /// What is wrong with `to`.
    pub fn whole(to: &str) -> Result<Self, TemplateError> {
        Ok(Self(Kind::Whole(Template::new(to, Place::Path, Stage::Route, None)?)))
    }

    /// The replacement of the path, or of a part of it, as it was written.
    pub fn to(&self) -> &str {
        let (Kind::Prefix { to, .. } | Kind::Pattern { to, .. } | Kind::Whole(to)) = &self.0;
        to.as_str()
    }

    /// Variables in `to` whose values may differ between clients that request one URL.
    pub fn of_client(&self) -> impl Iterator<Item = OfClient<'_>> {
        let (Kind::Prefix { to, .. } | Kind::Pattern { to, .. } | Kind::Whole(to)) = &self.0;
        to.of_client()
    }

    /// The pattern that selects paths; `None` if the rewrite is for a prefix or for every path.
    pub fn of_pattern(&self) -> Option<&Pattern> {
        match &self.0 {
            Kind::Pattern { pattern, .. } => Some(pattern),
            Kind::Prefix { .. } | Kind::Whole(_) => None,
        }
    }

    /// Appends the new path and query. Returns whether the path is rewritten; if not, nothing is appended. `*` is never
    /// rewritten.
    ///
    /// # Errors
    /// The new path is ambiguous. Discard what was appended.
    pub fn apply<F: Fields + ?Sized>(
        &self,
        exchange: &Exchange<'_, F>,
        out: &mut Vec<u8>,
    ) -> Result<bool, AmbiguousPath> {
        let path = exchange.request.path;
        if path == b"*" {
            return Ok(false);
        }
        let start = out.len();
        let mut exchanged = None;
        let template = match &self.0 {
            Kind::Prefix { from, to } => {
                let Some(end) = end_of_prefix(path, from) else { return Ok(false) };
                to.fill(exchange, out);
                exchanged = Some((&**from, path_of(&out[start..]).len()));
                insert_rest(path.get(end..).unwrap_or_default(), start, out);
                to
            }
            Kind::Pattern { pattern, to } => {
                let Some(captures) = pattern.captures_of_path(path) else { return Ok(false) };
                to.fill(&Exchange { captures: Some(&captures), ..*exchange }, out);
                to
            }
            Kind::Whole(to) => {
                to.fill(exchange, out);
                to
            }
        };
        let written = path_of(&out[start..]);
        if has_dot_segments(written) {
            let stays = |(from, len): (&[u8], usize)| {
                stays_below(path, from) && stays_below(written, &canonical(&written[..len]))
            };
            if !exchanged.is_some_and(stays) {
                return Err(AmbiguousPath);
            }
        }
        if let Some(query) = exchange.request.query
            && !template.has_query()
        {
            out.push(b'?');
            out.extend_from_slice(query);
        }
        Ok(true)
    }

    /// The client's prefix and the server's, if the rewrite only replaces a prefix with a constant text. Both have no
    /// trailing slash.
    pub fn prefixes(&self) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            Kind::Prefix { from, to } => {
                let to = to.constant().filter(|to| !to.contains(&b'?'))?;
                Some((from, to.strip_suffix(b"/").unwrap_or(to)))
            }
            Kind::Pattern { .. } | Kind::Whole(_) => None,
        }
    }
}

/// A path without its query.
fn path_of(path_and_query: &[u8]) -> &[u8] {
    path_and_query.split(|&byte| byte == b'?').next().unwrap_or_default()
}

/// A prefix as a lenient server reads it, without a slash at its end.
fn canonical(prefix: &[u8]) -> Vec<u8> {
    let mut text: Vec<u8> = Reading::of(prefix).collect();
    if text.last() == Some(&b'/') {
        text.pop();
    }
    text
}

/// Whether a path is below a prefix however a server reads it.
#[cold]
fn stays_below(path: &[u8], prefix: &[u8]) -> bool {
    path.len() <= READ_BYTES_MAX
        && !has_dot_segments(prefix)
        && !readings::any(path, true, |text| end_of_prefix(text, prefix).is_none())
}

/// Puts what is below a prefix behind the path that has been written, before its query.
fn insert_rest(rest: &[u8], start: usize, out: &mut Vec<u8>) {
    // The separator, however it was spelt, becomes one slash.
    let mut below = rest;
    while let [b'/', after @ ..] | [b'%', b'2', b'f' | b'F', after @ ..] = below {
        below = after;
    }
    let path_len = out[start..].iter().position(|&byte| byte == b'?').unwrap_or(out.len() - start);
    let mut end = start + path_len;
    if below.len() == rest.len() {
        return;
    }
    if !out[start..end].ends_with(b"/") {
        out.insert(end, b'/');
        end += 1;
    }
    out.splice(end..end, below.iter().copied());
}

/// A rewrite of the host, filled in for each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRewrite(Template);

/// The result of a rewrite is not a valid host. The request is rejected with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what was filled in for the host is no host")]
pub struct NotAHost;

impl HostRewrite {
    /// Parses a host with optional port and variables. Groups refer to `pattern`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str, pattern: Option<&Pattern>) -> Result<Self, TemplateError> {
        Ok(Self(Template::new(text, Place::Host, Stage::Forward, pattern)?))
    }

    /// Whether the host refers to groups of a pattern.
    pub fn has_groups(&self) -> bool {
        self.0.has_groups()
    }

    /// Variables of the host whose values may differ between clients that request one URL.
    pub fn of_client(&self) -> impl Iterator<Item = OfClient<'_>> {
        self.0.of_client()
    }

    /// The host, as it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Appends the host.
    ///
    /// # Errors
    /// The result is not a valid host; nothing was appended.
    pub fn apply<F: Fields + ?Sized>(
        &self,
        exchange: &Exchange<'_, F>,
        out: &mut Vec<u8>,
    ) -> Result<(), NotAHost> {
        if self.0.fill_host(exchange, out) { Ok(()) } else { Err(NotAHost) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{NoFields, Request};

    fn exchange<'a>(path: &'a str, query: Option<&'a str>) -> Exchange<'a, NoFields> {
        let request = Request {
            listener: 0,
            host: b"shop.example",
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            method: b"GET",
            client: [192, 0, 2, 1].into(),
            fields: &NoFields,
        };
        Exchange::of(request, "http")
    }

    fn rewritten(
        rewrite: &PathRewrite,
        path: &str,
        query: Option<&str>,
    ) -> Result<Option<String>, AmbiguousPath> {
        let mut out = b"before".to_vec();
        let is_rewritten = rewrite.apply(&exchange(path, query), &mut out)?;
        Ok(is_rewritten.then(|| String::from_utf8(out[6..].to_vec()).unwrap()))
    }

    #[test]
    fn prefixes() {
        for (from, to, path, query, result) in [
            ("/api", "/v1", "/api", None, Some("/v1")),
            ("/api", "/v1", "/api/", None, Some("/v1/")),
            ("/api", "/v1", "/api/x%2Fy", Some("a=%20"), Some("/v1/x%2Fy?a=%20")),
            ("/api/", "/v1/", "/api/x", Some(""), Some("/v1/x?")),
            ("/api", "/v1/", "/api", None, Some("/v1/")),
            ("/api", "/v1", "/apix", None, None),
            ("/api", "/", "/api", None, Some("/")),
            ("/api", "/", "/api/x/", None, Some("/x/")),
            ("/api", "/", "/%61pi//x", None, Some("/x")),
            ("/api", "/", "/api%2fx", None, Some("/x")),
            ("/api", "/", "//api///evil.example/x", None, Some("/evil.example/x")),
            ("/", "/v1", "/x", None, Some("/v1/x")),
            ("/", "/v1", "/", None, Some("/v1/")),
            ("/", "/v1", "", None, Some("/v1")),
            ("/", "/v1", "*", None, None),
            ("/api", "/v1?a=1&$query", "/api/x", Some("b"), Some("/v1/x?a=1&b")),
            ("/api", "/$host", "/api/x", None, Some("/shop.example/x")),
        ] {
            let rewrite = PathRewrite::prefix(from, to).unwrap();
            assert_eq!(rewritten(&rewrite, path, query), Ok(result.map(str::to_owned)), "{from} {to} {path}");
        }
    }

    /// A path that stays below the prefix however it is read leads nowhere else.
    #[test]
    fn dot_segments_are_refused_where_they_leave_the_prefix() {
        for (from, to, path, result) in [
            ("/api", "/v1", "/api/x/../y", Some("/v1/x/../y")),
            ("/api", "/v1", "/api/./y", Some("/v1/./y")),
            ("/api", "/", "/api/x/%2e%2e/y", Some("/x/%2e%2e/y")),
            ("/", "/v1", "/x\\..\\y", Some("/v1/x\\..\\y")),
            ("/", "/", "/../y", Some("/../y")),
            ("/a", "/", "/a/../b", None),
            ("/", "/v1", "/../b", None),
            ("/api", "/v1", "/api/x/../../y", None),
            ("/api", "/v1", "/api/x/..%2f../y", None),
            ("/api", "/v1", "/api/x;/..;/../y", None),
            ("/api", "/v1", "/api/x/..\\..\\y", None),
            ("/api", "/v1", "/api/x//../../y", None),
            ("/api", "/v1", "/api/..", None),
            ("/api", "/$header.X", "/api/./x", Some("/./x")),
        ] {
            let rewritten = rewritten(&PathRewrite::prefix(from, to).unwrap(), path, None);
            assert_eq!(rewritten.ok().flatten().as_deref(), result, "{from} {to} {path}");
        }
        let long = format!("/api/{}/./x", "x".repeat(READ_BYTES_MAX));
        assert_eq!(rewritten(&PathRewrite::prefix("/api", "/v1").unwrap(), &long, None), Err(AmbiguousPath));
    }

    #[test]
    fn patterns() {
        for (pattern, to, path, query, result) in [
            ("/old/(.*)", "/new/$1", "/old/x", Some("q"), Some("/new/x?q")),
            ("/old/(.*)", "/new/$1?from=old", "/old/x", Some("q"), Some("/new/x?from=old")),
            ("/old/(.*)", "/new/$1", "/old", None, None),
            ("/(a)?(b)?", "/$2/$1", "/b", None, Some("/b/")),
            ("/(?<file>.*)", "/$capture.file", "/a%3Fb%25", None, Some("/a%3Fb%25")),
            // RFC 3986 §2.2: a separator that was escaped is none; §2.3: what needs no escape may go without.
            (
                "/old/(.*)",
                "/new/$1?name=$1",
                "/old/a%2fb;c%3B/%61",
                None,
                Some("/new/a%2Fb;c%3B/a?name=a%2Fb%3Bc%3B/a"),
            ),
            ("/old/(.*)/(.*)", "/$2/$1", "/old/a%2Fb", None, Some("/b/a")),
            ("(.*)", "$path/index.html", "/caf%C3%A9", None, Some("/caf%C3%A9/index.html")),
        ] {
            let rewrite = PathRewrite::pattern(Pattern::new(pattern).unwrap(), to).unwrap();
            assert_eq!(rewritten(&rewrite, path, query), Ok(result.map(str::to_owned)), "{pattern} {path}");
        }
        // Dots that were apart come together.
        let rewrite = PathRewrite::pattern(Pattern::new("/(.*)x(.*)").unwrap(), "/$1$2").unwrap();
        assert_eq!(rewritten(&rewrite, "/.x./a", None), Err(AmbiguousPath));
        let whole = PathRewrite::whole("/maintenance?path=$path").unwrap();
        assert_eq!(rewritten(&whole, "/x", Some("q")), Ok(Some("/maintenance?path=/x".to_owned())));
    }

    #[test]
    fn what_a_server_calls_by_another_name() {
        let prefixes = |rewrite: PathRewrite| {
            rewrite
                .prefixes()
                .map(|(from, to)| [from, to].map(|text| String::from_utf8(text.to_vec()).unwrap()))
        };
        let owned = |from: &str, to: &str| Some([from.to_owned(), to.to_owned()]);
        assert_eq!(prefixes(PathRewrite::prefix("/api/", "/").unwrap()), owned("/api", ""));
        assert_eq!(prefixes(PathRewrite::prefix("/", "/v1/").unwrap()), owned("", "/v1"));
        assert_eq!(prefixes(PathRewrite::prefix("/a", "/$host").unwrap()), None);
        assert_eq!(prefixes(PathRewrite::prefix("/a", "/b?c").unwrap()), None);
        assert_eq!(prefixes(PathRewrite::whole("/b").unwrap()), None);
    }

    #[test]
    fn hosts() {
        let mut out = Vec::new();
        assert_eq!(
            HostRewrite::new("app.$host:8080", None).unwrap().apply(&exchange("/", None), &mut out),
            Ok(())
        );
        assert_eq!(out, b"app.shop.example:8080");
        assert_eq!(
            HostRewrite::new("$tls.sni", None).unwrap().apply(&exchange("/", None), &mut out),
            Err(NotAHost)
        );
        assert_eq!(out, b"app.shop.example:8080");
        assert!(HostRewrite::new("a b", None).is_err() && HostRewrite::new("$1.internal", None).is_err());
    }
}
