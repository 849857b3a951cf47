//! Location and its kin in responses, mapped from what a server calls its URLs to what clients call them
//! (RFC 9110 §10.2.2, §8.7).
//!
//! A URL of another server, or one that is no URL, stays as it is.

/// How URLs of a server are called by clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocationRewrite<'a> {
    /// Hosts, with ports where not the scheme's, that mean this server: its own address, and the Host that it was sent.
    pub servers: &'a [&'a str],
    /// The scheme that the client used.
    pub client_scheme: &'a str,
    /// The host, and the port where there is one, that the client asked for.
    pub client_host: &'a [u8],
    /// The prefix of paths that clients use in the place of the server's; both without a slash at the end. See
    /// [`PathRewrite::prefixes`](crate::PathRewrite::prefixes).
    pub prefixes: Option<(&'a [u8], &'a [u8])>,
}

impl LocationRewrite<'_> {
    /// Appends the value as the client has to read it, and says whether it is another one than it was; appends nothing
    /// if not.
    pub fn apply(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        if let Some((authority, rest)) = split_absolute(value) {
            if !self.is_server(authority) {
                return false;
            }
            let Some(path) = self.client_path(rest) else { return false };
            let start = out.len();
            out.extend_from_slice(self.client_scheme.as_bytes());
            out.extend_from_slice(b"://");
            out.extend_from_slice(self.client_host);
            path.write(out);
            let is_same = out[start..] == *value;
            if is_same {
                out.truncate(start);
            }
            return !is_same;
        }
        // `//host/path` is of another scheme's making; what is no absolute path is relative to the request's.
        let is_path = value.starts_with(b"/") && !value.starts_with(b"//");
        match self.client_path(value).filter(|_| is_path) {
            Some(path) if path.prefix.is_some() => {
                path.write(out);
                true
            }
            _ => false,
        }
    }

    /// The same host, and the same port where both say one.
    fn is_server(&self, authority: &[u8]) -> bool {
        self.servers.iter().any(|server| {
            let (server, server_port) = split_port(server.as_bytes());
            let (host, port) = split_port(authority);
            let is_default = |port: Option<&[u8]>| port.is_none_or(|port| port == b"80" || port == b"443");
            host.eq_ignore_ascii_case(server)
                && (port == server_port || (is_default(port) && is_default(server_port)))
        })
    }

    /// `None` where clients cannot reach the path: it is not below the prefix that theirs are mapped to.
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
    /// Put before `rest`, where there are prefixes at all.
    prefix: Option<&'v [u8]>,
    rest: &'v [u8],
}

impl ClientPath<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self.prefix {
            // What was below the server's prefix begins the path now: with one slash, as two would begin a host.
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

/// Host with port, and what follows, of an http or https URL.
fn split_absolute(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = value.iter().position(|&byte| byte == b':')?;
    let (scheme, rest) = value.split_at(colon);
    let rest = rest.strip_prefix(b"://")?;
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    let len = rest.iter().position(|byte| b"/?#\\".contains(byte)).unwrap_or(rest.len());
    Some(rest.split_at(len))
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
        let rewrite = LocationRewrite {
            servers: &["10.0.0.1:9000", "app.internal", "[::1]:9000"],
            client_scheme: "https",
            client_host: b"www.example.com:8443",
            prefixes: prefixes.map(|(client, server)| (client.as_bytes(), server.as_bytes())),
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
            ("http://app.internal.evil.example/x", None),
            ("http://app.internal\\@evil.example/", Some("https://www.example.com:8443\\@evil.example/")),
            ("http://user@app.internal/", None),
            ("ftp://app.internal/x", None),
            ("//app.internal/x", None),
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
}
