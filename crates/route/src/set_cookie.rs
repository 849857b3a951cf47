//! Rewrites domain, path and attributes of Set-Cookie to fit the client's view of the server (RFC 6265 §4.1).
//!
//! Name, value, and attributes without a rewrite are kept byte for byte.

/// A rewrite of the cookies that servers set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CookieRewrite {
    /// The names of the cookies to rewrite, case-sensitive; empty means all.
    pub names: Vec<String>,
    pub domain: DomainRewrite,
    /// The client's path prefix and the server's: a path below the second is mapped to the first. Both have no trailing
    /// slash. See [`PathRewrite::prefixes`](crate::PathRewrite::prefixes).
    pub path: Option<(String, String)>,
    /// Whether the cookie is sent over https only (`Secure`); `None` keeps the attribute.
    pub secure: Option<bool>,
    /// Whether scripts cannot read the cookie (`HttpOnly`); `None` keeps the attribute.
    pub http_only: Option<bool>,
    /// When cross-site requests carry the cookie (`SameSite`); `None` keeps the attribute.
    pub same_site: Option<SameSite>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DomainRewrite {
    #[default]
    Keep,
    /// Removes the domain: the cookie is then only for the requested host.
    Remove,
    /// Replaces the first domain of a pair with the second. Case and a leading dot do not matter.
    Exchange(Vec<(String, String)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    /// Never sent with cross-site requests.
    Strict,
    /// Sent when the user follows a link from another site.
    Lax,
    /// Always sent. Browsers require Secure.
    None,
}

/// Why a cookie rewrite is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CookieRewriteError {
    /// `SameSite=None` without Secure, which browsers reject.
    #[error("SameSite=None needs Secure; set secure = true as well")]
    NoneWithoutSecure,
    /// The text would end the attribute.
    #[error("{0:?} cannot be in a cookie's attribute; leave out control characters and ;")]
    Text(String),
}

impl CookieRewrite {
    /// # Errors
    /// Why the rewrite is invalid.
    pub fn check(&self) -> Result<(), CookieRewriteError> {
        if self.same_site == Some(SameSite::None) && self.secure != Some(true) {
            return Err(CookieRewriteError::NoneWithoutSecure);
        }
        let domains = match &self.domain {
            DomainRewrite::Exchange(pairs) => pairs.as_slice(),
            DomainRewrite::Keep | DomainRewrite::Remove => &[],
        };
        let mut written = domains.iter().chain(&self.path).flat_map(|(from, to)| [from, to]);
        match written.find(|text| text.chars().any(|character| character.is_control() || character == ';')) {
            Some(text) => Err(CookieRewriteError::Text(text.clone())),
            None => Ok(()),
        }
    }

    /// Appends the value for the client. Returns whether it differs from the original; if not, nothing is appended.
    pub fn apply(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut parts = value.split(|&byte| byte == b';');
        let pair = parts.next().unwrap_or_default();
        if !self.is_meant(pair) {
            return false;
        }
        out.extend_from_slice(pair);
        let mut has = Attributes { prefix: Prefix::from_pair(pair), ..Attributes::default() };
        for part in parts {
            self.attribute(part, &mut has, out);
        }
        if self.secure == Some(true) && !has.secure {
            out.extend_from_slice(b"; Secure");
        }
        if self.http_only == Some(true) && !has.http_only {
            out.extend_from_slice(b"; HttpOnly");
        }
        if let Some(same_site) = self.same_site {
            out.extend_from_slice(same_site.attribute());
        }
        let is_same = out[start..] == *value;
        if is_same {
            out.truncate(start);
        }
        !is_same
    }

    fn is_meant(&self, pair: &[u8]) -> bool {
        let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii();
        if pair.trim_ascii().is_empty() {
            return false;
        }
        self.names.is_empty() || self.names.iter().any(|known| known.as_bytes() == name)
    }

    /// Appends an attribute, rewritten if necessary, unless it is removed.
    fn attribute(&self, part: &[u8], has: &mut Attributes, out: &mut Vec<u8>) {
        let text = part.trim_ascii();
        let equals = text.iter().position(|&byte| byte == b'=');
        let (name, value) = text.split_at(equals.unwrap_or(text.len()));
        let (name, value) = (name.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii());
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let is_host_s = has.prefix == Prefix::Host;
        let exchanged: Option<(&[u8], Vec<u8>)> = if is_host_s && (is(b"domain") || is(b"path")) {
            None
        } else if is(b"domain") {
            match self.domain.exchanged(value) {
                Exchanged::Same => None,
                Exchanged::Gone => return,
                Exchanged::By(domain) => Some((b"Domain", domain.as_bytes().to_vec())),
            }
        } else if is(b"path") {
            self.path(value).map(|path| (&b"Path"[..], path))
        } else if is(b"secure") {
            if self.secure == Some(false) && has.prefix == Prefix::None {
                return;
            }
            has.secure = true;
            None
        } else if is(b"httponly") {
            if self.http_only == Some(false) {
                return;
            }
            has.http_only = true;
            None
        } else if is(b"samesite") && self.same_site.is_some() {
            return;
        } else {
            None
        };
        out.push(b';');
        match exchanged {
            None => out.extend_from_slice(part),
            Some((name, value)) => {
                out.push(b' ');
                out.extend_from_slice(name);
                out.push(b'=');
                out.extend_from_slice(&value);
            }
        }
    }

    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (client, server) = self.path.as_ref()?;
        let rest = path.strip_prefix(server.as_bytes())?;
        if !path.starts_with(b"/") || rest.first().is_some_and(|&byte| byte != b'/') {
            return None;
        }
        // RFC 6265 §5.1.4: a path that ends in a slash does not include the prefix itself.
        let rest = if rest == b"/" { b"" } else { rest };
        let path = [client.as_bytes(), rest].concat();
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }
}

/// The attributes that have occurred.
#[derive(Debug, Default)]
struct Attributes {
    prefix: Prefix,
    secure: bool,
    http_only: bool,
}

/// RFC 6265bis §4.1.3: attributes that a cookie's name requires. Browsers drop a cookie without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Prefix {
    #[default]
    None,
    /// `__Secure-`: requires Secure.
    Secure,
    /// `__Host-`: requires Secure and Path=/, and forbids Domain.
    Host,
}

impl Prefix {
    fn from_pair(pair: &[u8]) -> Self {
        let name = pair.trim_ascii_start();
        let begins =
            |prefix: &[u8]| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        if begins(b"__Host-") {
            Self::Host
        } else if begins(b"__Secure-") {
            Self::Secure
        } else {
            Self::None
        }
    }
}

enum Exchanged<'r> {
    Same,
    Gone,
    By(&'r str),
}

impl DomainRewrite {
    fn exchanged(&self, domain: &[u8]) -> Exchanged<'_> {
        // RFC 6265 §5.2.3: a leading dot is ignored.
        let bare = |domain: &'_ [u8]| domain.strip_prefix(b".").unwrap_or(domain).to_ascii_lowercase();
        match self {
            Self::Keep => Exchanged::Same,
            Self::Remove => Exchanged::Gone,
            Self::Exchange(pairs) => {
                let found = pairs.iter().find(|(from, _)| bare(from.as_bytes()) == bare(domain));
                found.map_or(Exchanged::Same, |(_, to)| Exchanged::By(to))
            }
        }
    }
}

impl SameSite {
    fn attribute(self) -> &'static [u8] {
        match self {
            Self::Strict => b"; SameSite=Strict",
            Self::Lax => b"; SameSite=Lax",
            Self::None => b"; SameSite=None",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(rewrite: &CookieRewrite, value: &str) -> Option<String> {
        rewrite.check().unwrap();
        let mut out = b"before".to_vec();
        let is_rewritten = rewrite.apply(value.as_bytes(), &mut out);
        assert_eq!(is_rewritten, out.len() > 6, "{value}");
        is_rewritten.then(|| String::from_utf8(out[6..].to_vec()).unwrap())
    }

    #[test]
    fn domains() {
        let exchange = |from: &str, to: &str| CookieRewrite {
            domain: DomainRewrite::Exchange(vec![(from.to_owned(), to.to_owned())]),
            ..CookieRewrite::default()
        };
        for (from, to, value, cookie) in [
            (
                "app.internal",
                "example.com",
                "a=b; Domain=.App.Internal; Path=/",
                Some("a=b; Domain=example.com; Path=/"),
            ),
            ("app.internal", "example.com", "a=b;domain = app.internal", Some("a=b; Domain=example.com")),
            ("app.internal", "example.com", "a=b; Domain=x.app.internal", None),
            ("app.internal", "example.com", "Domain=app.internal", None),
            ("app.internal", "example.com", "a=b", None),
        ] {
            assert_eq!(rewritten(&exchange(from, to), value).as_deref(), cookie, "{value}");
        }
        let remove = CookieRewrite { domain: DomainRewrite::Remove, ..CookieRewrite::default() };
        assert_eq!(rewritten(&remove, "a=b; DOMAIN=x; Max-Age=1").as_deref(), Some("a=b; Max-Age=1"));
    }

    #[test]
    fn paths() {
        for (client, server, value, cookie) in [
            ("/api", "", "a=b; Path=/", Some("a=b; Path=/api")),
            ("/api", "/v1", "a=b; Path=/v1/", Some("a=b; Path=/api")),
            ("", "/v1", "a=b; Path=/v1/", Some("a=b; Path=/")),
            ("/api", "", "__Host-a=b; Secure; Path=/", None),
            ("/api", "", "__Secure-a=b; Path=/x", Some("__Secure-a=b; Path=/api/x")),
            ("/api", "", "a=b; path=/x; Secure", Some("a=b; Path=/api/x; Secure")),
            ("/api", "/v1", "a=b; Path=/v1/x", Some("a=b; Path=/api/x")),
            ("/api", "/v1", "a=b; Path=/v10", None),
            ("", "/v1", "a=b; Path=/v1", Some("a=b; Path=/")),
            ("/api", "", "a=b; Path=x", None),
            ("/api", "", "a=b; Path", None),
        ] {
            let path = Some((client.to_owned(), server.to_owned()));
            let rewrite = CookieRewrite { path, ..CookieRewrite::default() };
            assert_eq!(rewritten(&rewrite, value).as_deref(), cookie, "{value}");
        }
    }

    #[test]
    fn attributes() {
        let all = CookieRewrite {
            secure: Some(true),
            http_only: Some(true),
            same_site: Some(SameSite::None),
            ..CookieRewrite::default()
        };
        let none = CookieRewrite { secure: Some(false), http_only: Some(false), ..CookieRewrite::default() };
        let only = CookieRewrite {
            names: vec!["sid".to_owned()],
            http_only: Some(true),
            ..CookieRewrite::default()
        };
        let lax = CookieRewrite { same_site: Some(SameSite::Lax), ..CookieRewrite::default() };
        for (rewrite, value, cookie) in [
            (&all, "a=b", Some("a=b; Secure; HttpOnly; SameSite=None")),
            (&all, "a=b; secure; HTTPONLY; samesite=Lax", Some("a=b; secure; HTTPONLY; SameSite=None")),
            (&all, "a=b; Secure; HttpOnly; SameSite=None", None),
            (&none, "a=b; Secure; HttpOnly; X", Some("a=b; X")),
            (&none, "a=secure", None),
            (&none, "__Host-a=b; Secure; HttpOnly; Path=/", Some("__Host-a=b; Secure; Path=/")),
            (&none, "__secure-a=b; Secure", None),
            (&only, "sid=1", Some("sid=1; HttpOnly")),
            (&only, " sid =1", Some(" sid =1; HttpOnly")),
            (&only, "other=1", None),
            (
                &lax,
                "a=\"x=y\"; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
                Some("a=\"x=y\"; Expires=Wed, 21 Oct 2026 07:28:00 GMT; SameSite=Lax"),
            ),
            (&lax, "", None),
            (&lax, " ; Path=/", None),
        ] {
            assert_eq!(rewritten(rewrite, value).as_deref(), cookie, "{value}");
        }
        assert_eq!(rewritten(&CookieRewrite::default(), "a=b; Domain=x; Secure;; Path=/"), None);
    }

    #[test]
    fn invalid_rewrites() {
        let none = CookieRewrite { same_site: Some(SameSite::None), ..CookieRewrite::default() };
        assert_eq!(none.check(), Err(CookieRewriteError::NoneWithoutSecure));
        let path = Some(("/a; Secure".to_owned(), String::new()));
        assert!(matches!(
            CookieRewrite { path, ..CookieRewrite::default() }.check(),
            Err(CookieRewriteError::Text(_))
        ));
    }
}
