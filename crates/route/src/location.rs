//! Maps URLs in Location and similar response fields from the server's view to the client's (RFC 9110 §10.2.2, §8.7).
//!
//! URLs of other servers, and invalid ones, are not changed.

use std::ops::Range;

use crate::readings;

/// The URLs of a server that are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappedUrls {
    /// Absolute URLs and paths.
    All,
    /// Absolute URLs whose host is not the client's.
    Absolute,
}

/// The mapping of a server's URLs to those of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocationRewrite<'a> {
    pub urls: MappedUrls,
    /// The hosts that mean this server, with ports unless default: its address, and the Host that it got.
    pub servers: &'a [&'a str],
    /// Whether the server is reached with TLS.
    pub server_has_tls: bool,
    /// The scheme that the client used.
    pub client_scheme: &'a str,
    /// The host that the client requested, with the port if there was one.
    pub client_host: &'a [u8],
    /// The client's path prefix and the server's, both without a trailing slash. See
    /// [`PathRewrite::prefixes`](crate::PathRewrite::prefixes).
    pub prefixes: Option<(&'a [u8], &'a [u8])>,
    /// The path of the request as the client sent it, and as the server saw it, both without query.
    pub paths: (&'a [u8], &'a [u8]),
}

impl LocationRewrite<'_> {
    /// Appends the value for the client. Returns whether it differs from the original; if not, nothing is appended.
    pub fn apply(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        if let Some(Absolute { is_https, authority, rest }) = Absolute::parse(value) {
            // RFC 9110 §4.2.1: a URL needs a host, which HTTP/1.0 clients may have omitted.
            if self.client_host.is_empty() || !self.is_server(authority, is_https) {
                return false;
            }
            let Some(path) = self.client_path(rest) else { return false };
            let start = out.len();
            let is_client_s = is_same_host(authority, is_https, self.client_host);
            if is_client_s && self.urls == MappedUrls::Absolute {
                return false;
            }
            // A server that knows the client's host, or does not use TLS itself, writes https on purpose: clients shall
            // use TLS.
            if is_https && (is_client_s || !self.server_has_tls) && self.client_scheme != "https" {
                out.extend_from_slice(b"https://");
                // The port of the client's request belongs to another scheme.
                out.extend_from_slice(if is_client_s { authority } else { split_port(self.client_host).0 });
            } else {
                out.extend_from_slice(self.client_scheme.as_bytes());
                out.extend_from_slice(b"://");
                out.extend_from_slice(self.client_host);
            }
            path.write(out);
            let is_same = out[start..] == *value;
            if is_same {
                out.truncate(start);
            }
            return !is_same;
        }
        if self.urls == MappedUrls::Absolute {
            return false;
        }
        if let Some(rest) = value.strip_prefix(b"//") {
            return self.apply_to_network_path(rest, out);
        }
        if !value.starts_with(b"/") {
            return self.apply_to_relative(value, out);
        }
        match self.client_path(value) {
            Some(path) if path.prefix.is_some() => {
                path.write(out);
                true
            }
            _ => false,
        }
    }

    /// RFC 3986 §4.2: `//host/path` has the scheme of the request; `rest` is the text behind the slashes.
    fn apply_to_network_path(&self, rest: &[u8], out: &mut Vec<u8>) -> bool {
        let (authority, path) = split_authority(rest);
        if self.client_host.is_empty() || !self.is_server(authority, self.server_has_tls) {
            return false;
        }
        let Some(path) = self.client_path(path) else { return false };
        let start = out.len();
        out.extend_from_slice(b"//");
        out.extend_from_slice(self.client_host);
        path.write(out);
        let is_same = out[start + 2..] == *rest;
        if is_same {
            out.truncate(start);
        }
        !is_same
    }

    /// RFC 3986 §5.2: a reference without a leading slash is relative to the path of the request. It means the same to
    /// the client, unless a prefix is exchanged and the client's path ends with it. For example, `users` relative to
    /// `/api` is `/users`; relative to the server's `/` it is the client's `/api/users`.
    fn apply_to_relative(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        let (of_client, of_server) = self.paths;
        let is_path = value.first().is_some_and(|byte| !b"?#".contains(byte));
        if self.prefixes.is_none() || !is_path || has_scheme(value) {
            return false;
        }
        let meant = resolve(of_server, value);
        let Some(path) = self.client_path(&meant) else { return false };
        let start = out.len();
        path.write(out);
        let is_same = out[start..] == resolve(of_client, value)[..];
        if is_same {
            out.truncate(start);
        }
        !is_same
    }

    fn is_server(&self, authority: &[u8], is_https: bool) -> bool {
        self.servers.iter().any(|server| is_same_host(authority, is_https, server.as_bytes()))
    }

    /// `None` if clients cannot reach the path: it is not below the prefix to which theirs are mapped.
    fn client_path<'v>(&'v self, path: &'v [u8]) -> Option<ClientPath<'v>> {
        let Some((client, server)) = self.prefixes.filter(|(client, server)| client != server) else {
            return Some(ClientPath { prefix: None, rest: path });
        };
        let rest = path.strip_prefix(server)?;
        let is_whole = rest.first().is_none_or(|byte| b"/?#".contains(byte));
        is_whole.then_some(ClientPath { prefix: Some(client), rest })
    }
}

struct ClientPath<'v> {
    /// Precedes `rest`; `None` if there are no prefixes.
    prefix: Option<&'v [u8]>,
    rest: &'v [u8],
}

impl ClientPath<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self.prefix {
            // The path below the server's prefix becomes the whole path, with one slash, because two would begin a
            // host.
            Some(b"") => {
                out.push(b'/');
                let slashes = self.rest.iter().take_while(|&&byte| byte == b'/').count();
                out.extend_from_slice(&self.rest[slashes..]);
            }
            prefix => {
                out.extend_from_slice(prefix.unwrap_or_default());
                out.extend_from_slice(self.rest);
            }
        }
    }
}

/// An http or https URL.
struct Absolute<'v> {
    is_https: bool,
    /// Host with port.
    authority: &'v [u8],
    rest: &'v [u8],
}

impl<'v> Absolute<'v> {
    fn parse(value: &'v [u8]) -> Option<Self> {
        let colon = value.iter().position(|&byte| byte == b':')?;
        let (scheme, rest) = value.split_at(colon);
        let rest = rest.strip_prefix(b"://")?;
        let is_https = scheme.eq_ignore_ascii_case(b"https");
        if !is_https && !scheme.eq_ignore_ascii_case(b"http") {
            return None;
        }
        let (authority, rest) = split_authority(rest);
        Some(Self { is_https, authority, rest })
    }
}

/// Splits the text behind the two slashes of a URL at the end of its host.
fn split_authority(text: &[u8]) -> (&[u8], &[u8]) {
    let len = text.iter().position(|byte| b"/?#\\".contains(byte)).unwrap_or(text.len());
    text.split_at(len)
}

/// RFC 3986 §4.2: a colon in the first segment ends a scheme.
fn has_scheme(value: &[u8]) -> bool {
    value.iter().find(|byte| b":/?#".contains(byte)) == Some(&b':')
}

/// Resolves a relative reference with a path (RFC 3986 §5.2.3, §5.2.4).
fn resolve(base: &[u8], reference: &[u8]) -> Vec<u8> {
    let folder = base.iter().rposition(|&byte| byte == b'/').map_or(&b"/"[..], |slash| &base[..=slash]);
    let len = reference.iter().position(|byte| b"?#".contains(byte)).unwrap_or(reference.len());
    let (path, rest) = reference.split_at(len);
    let mut resolved = readings::resolved(&[folder, path].concat());
    resolved.extend_from_slice(rest);
    resolved
}

/// The range of the URL in the value of Refresh: `5; url=/x`, `5;/x`, `5, URL = '/x'`. `None` if there is no URL.
///
/// Refresh is defined by HTML ("shared declarative refresh steps"), not by an RFC.
pub fn url_of_refresh(value: &[u8]) -> Option<Range<usize>> {
    let skip = |from: usize, is_skipped: &dyn Fn(u8) -> bool| {
        from + value[from..].iter().take_while(|&&byte| is_skipped(byte)).count()
    };
    let is_space = |byte: u8| byte.is_ascii_whitespace();
    let time = skip(0, &is_space);
    let after = skip(time, &|byte| byte.is_ascii_digit() || byte == b'.');
    if after == time {
        return None;
    }
    let mut at = skip(after, &is_space);
    match value.get(at)? {
        b';' | b',' => at = skip(at + 1, &is_space),
        _ if at == after => return None,
        _ => {}
    }
    let named = value.get(at..at + 3).is_some_and(|name| name.eq_ignore_ascii_case(b"url"));
    let equals = skip((at + 3).min(value.len()), &is_space);
    if named && value.get(equals) == Some(&b'=') {
        at = skip(equals + 1, &is_space);
    }
    let end = match value.get(at) {
        Some(&quote @ (b'"' | b'\'')) => {
            at += 1;
            value[at..].iter().position(|&byte| byte == quote).map_or(value.len(), |len| at + len)
        }
        _ => value.len(),
    };
    (at < end).then_some(at..end)
}

/// Whether the authority of a URL is this host, with the same port if both state one. The port of a host without a
/// scheme may belong to either scheme.
fn is_same_host(authority: &[u8], is_https: bool, other: &[u8]) -> bool {
    let ((host, port), (other, other_port)) = (split_port(authority), split_port(other));
    let default: &[u8] = if is_https { b"443" } else { b"80" };
    let is_default = port.is_none_or(|port| port == default);
    let is_other_default = other_port.is_none_or(|port| port == b"80" || port == b"443");
    host.eq_ignore_ascii_case(other) && (port == other_port || (is_default && is_other_default))
}

fn split_port(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let after_host = authority.iter().rposition(|&byte| byte == b']').map_or(0, |at| at + 1);
    match authority[after_host..].iter().position(|&byte| byte == b':') {
        Some(colon) => (&authority[..after_host + colon], Some(&authority[after_host + colon + 1..])),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(value: &str, prefixes: Option<(&str, &str)>) -> Option<String> {
        let (client, server) = prefixes.unwrap_or_default();
        let (of_client, of_server) = (format!("{client}/a/b"), format!("{server}/a/b"));
        let rewrite = LocationRewrite {
            urls: MappedUrls::All,
            servers: &["10.0.0.1:9000", "app.internal", "[::1]:9000"],
            server_has_tls: false,
            client_scheme: "https",
            client_host: b"www.example.com:8443",
            prefixes: prefixes.map(|(client, server)| (client.as_bytes(), server.as_bytes())),
            paths: (of_client.as_bytes(), of_server.as_bytes()),
        };
        let mut out = b"before".to_vec();
        let is_rewritten = rewrite.apply(value.as_bytes(), &mut out);
        assert_eq!(is_rewritten, out.len() > 6, "{value}");
        is_rewritten.then(|| String::from_utf8(out[6..].to_vec()).unwrap())
    }

    #[test]
    fn hosts_of_the_server_become_the_client_s() {
        for (value, location) in [
            ("http://10.0.0.1:9000/x?y#z", Some("https://www.example.com:8443/x?y#z")),
            ("HTTP://App.Internal/x", Some("https://www.example.com:8443/x")),
            ("http://app.internal:80/x", Some("https://www.example.com:8443/x")),
            ("https://app.internal:443", Some("https://www.example.com:8443")),
            ("http://[::1]:9000/", Some("https://www.example.com:8443/")),
            ("https://www.example.com:8443/x", None),
            ("http://10.0.0.1:9001/x", None),
            ("http://10.0.0.1/x", None),
            ("http://app.internal:443/x", None),
            ("https://app.internal:80/x", None),
            ("http://app.internal.evil.example/x", None),
            ("http://app.internal\\@evil.example/", Some("https://www.example.com:8443\\@evil.example/")),
            ("http://user@app.internal/", None),
            ("ftp://app.internal/x", None),
            ("//app.internal/x", Some("//www.example.com:8443/x")),
            ("//10.0.0.1:9000?y", Some("//www.example.com:8443?y")),
            ("//www.example.com:8443/x", None),
            ("//evil.example/x", None),
            ("//app.internal.evil.example/x", None),
            ("/x", None),
            ("x", None),
            ("", None),
            ("http:", None),
            ("://", None),
        ] {
            assert_eq!(rewritten(value, None).as_deref(), location, "{value}");
        }
    }

    #[test]
    fn https_is_kept_where_it_is_meant() {
        for (value, server_has_tls, client_host, location) in [
            // A server that gets the client's host, and redirects its clients to TLS.
            ("https://www.example.com/x", false, "www.example.com", Some("https://www.example.com/strip/x")),
            ("https://www.example.com/x", true, "www.example.com", Some("https://www.example.com/strip/x")),
            ("http://www.example.com/x", false, "www.example.com", Some("http://www.example.com/strip/x")),
            // Under its own name: the port of the client's host is one of plain HTTP.
            (
                "https://app.internal/x",
                false,
                "www.example.com:8080",
                Some("https://www.example.com/strip/x"),
            ),
            // With the scheme that the proxy uses for the server.
            ("https://app.internal/x", true, "www.example.com:80", Some("http://www.example.com:80/strip/x")),
            ("https://www.example.com/x", false, "www.example.com:8080", None),
            // RFC 9110 §4.2.1: the client's host is unknown.
            ("http://app.internal/x", false, "", None),
            ("/x", false, "", Some("/strip/x")),
        ] {
            let rewrite = LocationRewrite {
                urls: MappedUrls::All,
                servers: &["app.internal", client_host],
                server_has_tls,
                client_scheme: "http",
                client_host: client_host.as_bytes(),
                prefixes: Some((b"/strip", b"")),
                paths: (b"/strip/a", b"/a"),
            };
            let mut out = Vec::new();
            let is_rewritten = rewrite.apply(value.as_bytes(), &mut out);
            assert_eq!(is_rewritten.then_some(out.as_slice()), location.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn prefixes_that_were_exchanged_are_exchanged_back() {
        for (value, client, server, location) in [
            ("/v1/x", "/api", "/v1", Some("/api/x")),
            ("/v1", "/api", "/v1", Some("/api")),
            ("/v1?x", "/api", "/v1", Some("/api?x")),
            ("/v10", "/api", "/v1", None),
            ("/other", "/api", "/v1", None),
            ("/x", "/api", "", Some("/api/x")),
            ("/", "/api", "", Some("/api/")),
            ("/v1//evil.example/", "", "/v1", Some("/evil.example/")),
            ("/v1", "", "/v1", Some("/")),
            ("/v1?x", "", "/v1", Some("/?x")),
            ("//v1/x", "/api", "/v1", None),
            ("//app.internal/v1/x", "/api", "/v1", Some("//www.example.com:8443/api/x")),
            ("//app.internal/other", "/api", "/v1", None),
            ("x/y", "/api", "", None),
            ("http://app.internal/v1/x", "/api", "/v1", Some("https://www.example.com:8443/api/x")),
            ("http://app.internal/other", "/api", "/v1", None),
            ("http://app.internal", "/api", "", Some("https://www.example.com:8443/api")),
            ("/x", "/same", "/same", None),
        ] {
            assert_eq!(
                rewritten(value, Some((client, server))).as_deref(),
                location,
                "{value} {server} to {client}"
            );
        }
    }

    #[test]
    fn absolute_urls_of_the_server_may_be_the_only_ones() {
        for (value, location) in [
            ("http://app.internal/x", Some("http://www.example.com/strip/x")),
            ("http://www.example.com/x", None),
            ("https://www.example.com/x", None),
            ("//app.internal/x", None),
            ("/x", None),
            ("x", None),
        ] {
            let rewrite = LocationRewrite {
                urls: MappedUrls::Absolute,
                servers: &["app.internal", "www.example.com"],
                server_has_tls: false,
                client_scheme: "http",
                client_host: b"www.example.com",
                prefixes: Some((b"/strip", b"")),
                paths: (b"/strip", b"/"),
            };
            let mut out = Vec::new();
            let is_rewritten = rewrite.apply(value.as_bytes(), &mut out);
            assert_eq!(is_rewritten.then_some(out.as_slice()), location.map(str::as_bytes), "{value}");
        }
    }

    /// RFC 3986 §5.2: the client reaches the resource that the server means.
    #[test]
    fn relative_references_mean_the_same_on_both_sides() {
        for (value, client, server, paths, location) in [
            ("users", "/api", "", ("/api", "/"), Some("/api/users")),
            ("./users?a=/../b#c", "/api", "", ("/api", "/"), Some("/api/users?a=/../b#c")),
            ("users", "/api", "", ("/api/", "/"), None),
            ("users", "/api", "/v1", ("/api/a/b", "/v1/a/b"), None),
            ("../users", "/api", "/v1", ("/api/a/b", "/v1/a/b"), None),
            ("v1/x", "/api", "/v1", ("/api", "/v1"), Some("/api/x")),
            // Not below the prefix: clients cannot reach it.
            ("users", "/api", "/v1", ("/api", "/v1"), None),
            ("?page=2", "/api", "", ("/api", "/"), None),
            ("#part", "/api", "", ("/api", "/"), None),
            ("mailto:a@b", "/api", "", ("/api", "/"), None),
            ("", "/api", "", ("/api", "/"), None),
        ] {
            let rewrite = LocationRewrite {
                urls: MappedUrls::All,
                servers: &[],
                server_has_tls: false,
                client_scheme: "http",
                client_host: b"h",
                prefixes: Some((client.as_bytes(), server.as_bytes())),
                paths: (paths.0.as_bytes(), paths.1.as_bytes()),
            };
            let mut out = Vec::new();
            let is_rewritten = rewrite.apply(value.as_bytes(), &mut out);
            assert_eq!(is_rewritten.then_some(out.as_slice()), location.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn the_url_of_a_refresh_is_found() {
        for (value, url) in [
            ("5; url=/x", Some("/x")),
            ("0;URL=/x?url=y", Some("/x?url=y")),
            ("5;/x", Some("/x")),
            ("5, /x", Some("/x")),
            ("5 /x", Some("/x")),
            ("1.5; Url = '/x' and more", Some("/x")),
            ("5;url=\"/x", Some("/x")),
            (" 5 ;  url=http://h/", Some("http://h/")),
            ("5;urls", Some("urls")),
            ("5", None),
            ("5;", None),
            ("5; url=", None),
            ("5;url=''", None),
            ("5x;url=/x", None),
            ("url=/x", None),
            ("", None),
        ] {
            let found = url_of_refresh(value.as_bytes()).map(|at| &value[at]);
            assert_eq!(found, url, "{value:?}");
        }
    }
}
