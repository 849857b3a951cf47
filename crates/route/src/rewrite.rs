//! Rewrites the path and the host for the server.
//!
//! The query is kept unless a template writes one. `location` maps Location fields of responses back.

use expression::ExchangeStage;

use crate::named_values::{NamedValues, OfClient, TemplateScope};
use crate::path::{LenientPath, canonical_text, end_of_prefix, end_of_text, has_dot_segments};
use crate::pattern::BytePattern;
use crate::prefixes::canonical_prefix;
use crate::readings::{self, READ_BYTES_MAX};
use crate::request::FieldLookup;
use crate::template::{RouteTemplate, TemplateError, TemplateStage, TemplateUse};
use crate::variable_values::VariableValues;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRewrite(RewriteKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum RewriteKind {
    Prefix(PrefixRewrite),
    Pattern { pattern: BytePattern, to: RouteTemplate },
    Whole(RouteTemplate),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PrefixRewrite {
    from: Box<[u8]>,
    /// Whether `from` is a text, as opposed to whole segments.
    is_text: bool,
    to: RouteTemplate,
    normalizes: bool,
}

impl PrefixRewrite {
    /// The end of the prefix within a path. `None` if the path does not have the prefix.
    fn end(&self, path: &[u8]) -> Option<usize> {
        if self.is_text { end_of_text(path, &self.from) } else { end_of_prefix(path, &self.from) }
    }

    /// The prefix without a trailing slash.
    fn segments(&self) -> &[u8] {
        self.from.strip_suffix(b"/").unwrap_or(&self.from)
    }

    /// Inserts the rest of the original path behind the written path, before its query.
    fn insert(&self, rest: &[u8], start: usize, out: &mut Vec<u8>) {
        let normal = self.normalizes.then(|| normal(rest));
        let rest = normal.as_deref().unwrap_or(rest);
        if !self.is_text {
            return insert_rest(rest, start, out);
        }
        let rest = if self.from.ends_with(b"/") { without_slashes(rest) } else { rest };
        let end = start + path_of(&out[start..]).len();
        out.splice(end..end, rest.iter().copied());
    }
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
    /// The problem with `to`, which may have variables.
    pub fn prefix(from: &str, to: &str, values: &NamedValues) -> Result<Self, TemplateError> {
        let to = RouteTemplate::new(to, TemplateUse::Path, TemplateStage::Authenticated, values)?;
        let from = canonical_prefix(from).into();
        Ok(Self(RewriteKind::Prefix(PrefixRewrite { from, is_text: false, to, normalizes: false })))
    }

    /// Writes the rest of a path behind a prefix as it is read: escapes decoded where a path can have the character,
    /// also `%2F`, and repeated slashes merged.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        if let RewriteKind::Prefix(prefix) = &mut self.0 {
            prefix.normalizes = true;
        }
        self
    }

    /// Replaces the text at the start of a path with `to`, and keeps the rest as it is.
    ///
    /// With `/api` to `/v1`, `/api/x` becomes `/v1/x`, and `/apix` becomes `/v1x`. Repeated slashes at the end of the text
    /// count as one.
    ///
    /// # Errors
    /// The problem with `to`, which may have variables.
    pub fn text_prefix(from: &str, to: &str, values: &NamedValues) -> Result<Self, TemplateError> {
        let to = RouteTemplate::new(to, TemplateUse::Path, TemplateStage::Authenticated, values)?;
        let from = canonical_text(from).into();
        Ok(Self(RewriteKind::Prefix(PrefixRewrite { from, is_text: true, to, normalizes: false })))
    }

    /// Replaces a path that matches the pattern with `to`, which may refer to the pattern's groups. Other paths are not
    /// changed.
    ///
    /// The pattern sees the path as a lenient server reads it: escapes decoded, repeated slashes merged.
    ///
    /// # Errors
    /// The problem with `to`.
    pub fn pattern(pattern: BytePattern, to: &str, values: &NamedValues) -> Result<Self, TemplateError> {
        let scope = TemplateScope { pattern: Some(&pattern), values: Some(values) };
        let to = RouteTemplate::new(to, TemplateUse::Path, TemplateStage::Authenticated, scope)?;
        Ok(Self(RewriteKind::Pattern { pattern, to }))
    }

    /// Replaces every path with `to`.
    ///
    /// # Errors
    /// The problem with `to`.
    pub fn whole(to: &str, values: &NamedValues) -> Result<Self, TemplateError> {
        Ok(Self(RewriteKind::Whole(RouteTemplate::new(
            to,
            TemplateUse::Path,
            TemplateStage::Authenticated,
            values,
        )?)))
    }

    /// The replacement of the path, or of a part of it, as configured.
    pub fn to(&self) -> &str {
        self.template().as_str()
    }

    /// The stage at which all values in `to` are known.
    pub fn values_known(&self) -> ExchangeStage {
        self.template().values_known()
    }

    fn template(&self) -> &RouteTemplate {
        let (RewriteKind::Prefix(PrefixRewrite { to, .. })
        | RewriteKind::Pattern { to, .. }
        | RewriteKind::Whole(to)) = &self.0;
        to
    }

    /// Variables in `to` whose values may differ between clients that request one URL.
    pub fn of_client(&self) -> impl Iterator<Item = OfClient<'_>> {
        self.template().of_client()
    }

    /// The pattern that selects paths. `None` if the rewrite is for a prefix or for every path.
    pub fn of_pattern(&self) -> Option<&BytePattern> {
        match &self.0 {
            RewriteKind::Pattern { pattern, .. } => Some(pattern),
            RewriteKind::Prefix(_) | RewriteKind::Whole(_) => None,
        }
    }

    /// Appends the new path and query. Returns whether the path is rewritten; if not, nothing is appended. `*` is never
    /// rewritten.
    ///
    /// # Errors
    /// The new path is ambiguous. Discard the appended bytes.
    pub fn apply<F: FieldLookup + ?Sized>(
        &self,
        values: &VariableValues<'_, F>,
        out: &mut Vec<u8>,
    ) -> Result<bool, AmbiguousPath> {
        let path = values.request.path;
        if path == b"*" {
            return Ok(false);
        }
        let start = out.len();
        let mut exchanged = None;
        let template = match &self.0 {
            RewriteKind::Prefix(prefix) => {
                let Some(end) = prefix.end(path) else { return Ok(false) };
                prefix.to.fill(values, out);
                exchanged = Some((prefix.segments(), path_of(&out[start..]).len()));
                prefix.insert(path.get(end..).unwrap_or_default(), start, out);
                &prefix.to
            }
            RewriteKind::Pattern { pattern, to } => {
                let Some(captures) = pattern.captures_of_path(path) else { return Ok(false) };
                to.fill(&VariableValues { captures: Some(&captures), ..*values }, out);
                to
            }
            RewriteKind::Whole(to) => {
                to.fill(values, out);
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
        if let Some(query) = values.request.query
            && !template.has_query()
        {
            out.push(b'?');
            out.extend_from_slice(query);
        }
        Ok(true)
    }

    /// Whether the rewrite replaces a prefix, and keeps the rest of the path.
    pub fn is_of_prefix(&self) -> bool {
        matches!(self.0, RewriteKind::Prefix(_))
    }

    /// The client's prefix and the server's, if the rewrite only replaces a prefix with a constant text. Both have no
    /// trailing slash.
    pub fn prefixes(&self) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            RewriteKind::Prefix(prefix) => {
                let to = prefix.to.constant().filter(|to| !to.contains(&b'?'))?;
                // `/api*` to `/` makes `//x` of `/api/x`, which no prefixes of whole segments do.
                let is_whole = !prefix.is_text || prefix.from.ends_with(b"/") == to.ends_with(b"/");
                is_whole.then_some((prefix.segments(), to.strip_suffix(b"/").unwrap_or(to)))
            }
            RewriteKind::Pattern { .. } | RewriteKind::Whole(_) => None,
        }
    }
}

/// A path without its query.
fn path_of(path_and_query: &[u8]) -> &[u8] {
    path_and_query.split(|&byte| byte == b'?').next().unwrap_or_default()
}

/// A prefix as a lenient server reads it, without a trailing slash.
fn canonical(prefix: &[u8]) -> Vec<u8> {
    let mut text: Vec<u8> = LenientPath::from_path(prefix).collect();
    if text.last() == Some(&b'/') {
        text.pop();
    }
    text
}

/// Whether a path is below a prefix in every reading.
#[cold]
fn stays_below(path: &[u8], prefix: &[u8]) -> bool {
    path.len() <= READ_BYTES_MAX
        && !has_dot_segments(prefix)
        && !readings::any(path, true, |text| end_of_prefix(text, prefix).is_none())
}

/// A part of a path as a lenient server reads it, with the escapes that are necessary.
#[cold]
fn normal(part: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    LenientPath::from_path(part).for_each(|byte| crate::fill::write_path_byte(byte, &mut text));
    text
}

/// Inserts a rest that begins with a slash behind the written path, with one slash between them.
fn insert_rest(rest: &[u8], start: usize, out: &mut Vec<u8>) {
    // The separator, in any spelling, becomes one slash.
    let below = without_slashes(rest);
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

/// The bytes behind all slashes, in any spelling.
fn without_slashes(path: &[u8]) -> &[u8] {
    let mut rest = path;
    while let [b'/', after @ ..] | [b'%', b'2', b'f' | b'F', after @ ..] = rest {
        rest = after;
    }
    rest
}

/// A rewrite of the host, filled in for each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRewrite(RouteTemplate);

/// The result of a rewrite is not a valid host. The request is rejected with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what was filled in for the host is no host")]
pub struct NotAHost;

impl HostRewrite {
    /// Parses a host with optional port and variables. Groups refer to the pattern of the scope.
    ///
    /// # Errors
    /// The problem with the text.
    pub fn new<'s>(text: &str, scope: impl Into<TemplateScope<'s>>) -> Result<Self, TemplateError> {
        Ok(Self(RouteTemplate::new(text, TemplateUse::Host, TemplateStage::Forward, scope)?))
    }

    /// Whether the host refers to groups of a pattern.
    pub fn has_groups(&self) -> bool {
        self.0.has_groups()
    }

    /// Variables of the host whose values may differ between clients that request one URL.
    pub fn of_client(&self) -> impl Iterator<Item = OfClient<'_>> {
        self.0.of_client()
    }

    /// The host as configured.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Appends the host.
    ///
    /// # Errors
    /// The result is not a valid host; nothing was appended.
    pub fn apply<F: FieldLookup + ?Sized>(
        &self,
        values: &VariableValues<'_, F>,
        out: &mut Vec<u8>,
    ) -> Result<(), NotAHost> {
        if self.0.fill_host(values, out) { Ok(()) } else { Err(NotAHost) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{NoFields, RequestParts};

    fn values<'a>(path: &'a str, query: Option<&'a str>) -> VariableValues<'a, NoFields> {
        let request = RequestParts {
            listener: 0,
            host: b"shop.example",
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            method: b"GET",
            client: [192, 0, 2, 1].into(),
            fields: &NoFields,
            conditions: &crate::NoConditions,
        };
        VariableValues::from_request(request, "http")
    }

    fn rewritten(
        rewrite: &PathRewrite,
        path: &str,
        query: Option<&str>,
    ) -> Result<Option<String>, AmbiguousPath> {
        let mut out = b"before".to_vec();
        let is_rewritten = rewrite.apply(&values(path, query), &mut out)?;
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
            let rewrite = PathRewrite::prefix(from, to, NamedValues::NONE).unwrap();
            assert_eq!(rewritten(&rewrite, path, query), Ok(result.map(str::to_owned)), "{from} {to} {path}");
        }
    }

    #[test]
    fn text_prefixes() {
        for (from, to, path, query, result) in [
            ("/api", "/v1", "/apix", None, Some("/v1x")),
            ("/api", "/v1", "/api/x%2Fy", Some("a=%20"), Some("/v1/x%2Fy?a=%20")),
            ("/api", "/v1", "/api", None, Some("/v1")),
            ("/api", "/", "/api/x", None, Some("//x")),
            ("/api", "/", "/%61pix", None, Some("/x")),
            ("/api/", "/", "/api/x/", None, Some("/x/")),
            ("/api/", "/", "/api%2f/evil.example/x", None, Some("/evil.example/x")),
            ("/api/", "/v1/", "/api/", Some(""), Some("/v1/?")),
            ("/api/", "/v1?a=1&$query", "/api/x", Some("b"), Some("/v1x?a=1&b")),
            ("/api/", "/v1/", "/api", None, None),
            ("/", "/v1/", "*", None, None),
            ("/api/", "/v1/", "/api/x/../y", None, Some("/v1/x/../y")),
        ] {
            let rewrite = PathRewrite::text_prefix(from, to, NamedValues::NONE).unwrap();
            assert_eq!(rewritten(&rewrite, path, query), Ok(result.map(str::to_owned)), "{from} {to} {path}");
        }
        for (from, to, path) in [
            ("/files", "/srv/", "/files../secret"),
            ("/files", "/srv/", "/files./x"),
            ("/files/", "/srv/", "/files/../x"),
            ("/files", "/srv", "/filesx/../x"),
        ] {
            let rewrite = PathRewrite::text_prefix(from, to, NamedValues::NONE).unwrap();
            assert_eq!(rewritten(&rewrite, path, None), Err(AmbiguousPath), "{from} {to} {path}");
        }
    }

    #[test]
    fn the_rest_of_a_path_is_normalized_on_request() {
        for (path, result) in [
            ("/api//x///y/", Some("/v1/x/y/")),
            ("/api/%61%2Fb%2f/c", Some("/v1/a/b/c")),
            ("/api/%3B%3f%23%25%c3%a4%20%00", Some("/v1/;%3F%23%25%C3%A4%20%00")),
            ("/api", Some("/v1")),
            ("/apix", None),
            ("/api/x/%2e%2e/y", Some("/v1/x/../y")),
        ] {
            let rewrite = PathRewrite::prefix("/api", "/v1", NamedValues::NONE).unwrap().normalized();
            assert_eq!(rewritten(&rewrite, path, None), Ok(result.map(str::to_owned)), "{path}");
        }
        let rewrite = PathRewrite::prefix("/api", "/v1", NamedValues::NONE).unwrap().normalized();
        assert_eq!(rewritten(&rewrite, "/api/%2e%2E%2Fx", None), Err(AmbiguousPath));
    }

    /// A path that stays below the prefix in every reading is safe.
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
            let rewritten = rewritten(&PathRewrite::prefix(from, to, NamedValues::NONE).unwrap(), path, None);
            assert_eq!(rewritten.ok().flatten().as_deref(), result, "{from} {to} {path}");
        }
        let long = format!("/api/{}/./x", "x".repeat(READ_BYTES_MAX));
        assert_eq!(
            rewritten(&PathRewrite::prefix("/api", "/v1", NamedValues::NONE).unwrap(), &long, None),
            Err(AmbiguousPath)
        );
    }

    #[test]
    fn patterns() {
        for (pattern, to, path, query, result) in [
            ("/old/(.*)", "/new/$1", "/old/x", Some("q"), Some("/new/x?q")),
            ("/old/(.*)", "/new/$1?from=old", "/old/x", Some("q"), Some("/new/x?from=old")),
            ("/old/(.*)", "/new/$1", "/old", None, None),
            ("/(a)?(b)?", "/$2/$1", "/b", None, Some("/b/")),
            ("/(?<file>.*)", "/$capture.file", "/a%3Fb%25", None, Some("/a%3Fb%25")),
            // RFC 3986 §2.2: an escaped separator is no separator; §2.3: unreserved characters need no escape.
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
            let rewrite =
                PathRewrite::pattern(BytePattern::new(pattern).unwrap(), to, NamedValues::NONE).unwrap();
            assert_eq!(rewritten(&rewrite, path, query), Ok(result.map(str::to_owned)), "{pattern} {path}");
        }
        // Separate dots become adjacent.
        let rewrite =
            PathRewrite::pattern(BytePattern::new("/(.*)x(.*)").unwrap(), "/$1$2", NamedValues::NONE)
                .unwrap();
        assert_eq!(rewritten(&rewrite, "/.x./a", None), Err(AmbiguousPath));
        let whole = PathRewrite::whole("/maintenance?path=$path", NamedValues::NONE).unwrap();
        assert_eq!(rewritten(&whole, "/x", Some("q")), Ok(Some("/maintenance?path=/x".to_owned())));
    }

    #[test]
    fn prefixes_before_and_after_a_rewrite() {
        let prefixes = |rewrite: PathRewrite| {
            rewrite
                .prefixes()
                .map(|(from, to)| [from, to].map(|text| String::from_utf8(text.to_vec()).unwrap()))
        };
        let owned = |from: &str, to: &str| Some([from.to_owned(), to.to_owned()]);
        assert_eq!(
            prefixes(PathRewrite::prefix("/api/", "/", NamedValues::NONE).unwrap()),
            owned("/api", "")
        );
        assert_eq!(prefixes(PathRewrite::prefix("/", "/v1/", NamedValues::NONE).unwrap()), owned("", "/v1"));
        assert_eq!(prefixes(PathRewrite::prefix("/a", "/$host", NamedValues::NONE).unwrap()), None);
        assert_eq!(prefixes(PathRewrite::prefix("/a", "/b?c", NamedValues::NONE).unwrap()), None);
        assert_eq!(prefixes(PathRewrite::whole("/b", NamedValues::NONE).unwrap()), None);
        let text = |from, to| prefixes(PathRewrite::text_prefix(from, to, NamedValues::NONE).unwrap());
        assert_eq!(text("/api/", "/"), owned("/api", ""));
        assert_eq!(text("/api", "/v1"), owned("/api", "/v1"));
        assert_eq!(text("/api", "/"), None);
    }

    #[test]
    fn hosts() {
        let mut out = Vec::new();
        assert_eq!(
            HostRewrite::new("app.$host:8080", None).unwrap().apply(&values("/", None), &mut out),
            Ok(())
        );
        assert_eq!(out, b"app.shop.example:8080");
        assert_eq!(
            HostRewrite::new("$tls.sni", None).unwrap().apply(&values("/", None), &mut out),
            Err(NotAHost)
        );
        assert_eq!(out, b"app.shop.example:8080");
        assert!(HostRewrite::new("a b", None).is_err() && HostRewrite::new("$1.internal", None).is_err());
    }
}
