//! Cross-origin resource sharing: the server's side of the CORS protocol (Fetch standard, §3.3).
//!
//! Decides which origins may read responses, and writes the answers to preflights and the fields of all other
//! responses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::request::FieldLookup;

/// The CORS settings of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cors {
    pub origins: Vec<AllowedOrigin>,
    /// Allowed methods besides GET, HEAD and POST, which need no permission. `*` allows any.
    pub methods: Vec<String>,
    /// Allowed request fields. `*` allows any but Authorization.
    pub headers: Vec<String>,
    /// Response fields that scripts may read. `*` allows any.
    pub expose: Vec<String>,
    /// Whether requests may carry cookies, passwords and client certificates.
    pub credentials: bool,
    /// How long browsers may keep the answer to a preflight. `None` means their default of five seconds.
    pub max_age: Option<Duration>,
    /// Whether pages on public addresses may send requests to this private one.
    pub private_network: bool,
}

/// An origin that may read responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// `*`: any origin.
    Any,
    /// An origin as browsers write it, such as `https://www.example.com`; or `null`.
    Exact(String),
    /// `https://*.example.com`: every host below a domain, with the same scheme and port.
    Below {
        /// With `://`.
        scheme: String,
        /// The domain with its leading dot, and the port.
        rest: String,
    },
}

/// Why a text is no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginError {
    /// There is no scheme, or no host.
    Form,
    /// There is a path, query or user; even a single `/`.
    Path,
    /// The port is the scheme's default.
    OwnPort,
    Port,
    /// The host contains characters that browsers do not write.
    Host,
    /// `*` does not stand in place of the first labels.
    Wildcard,
}

impl OriginError {
    /// The reason, as a continuation of a sentence about the text.
    pub fn why(self) -> &'static str {
        match self {
            Self::Form => "is no origin, which has a scheme and a host",
            Self::Path => "is no origin, which ends with its host or port",
            Self::OwnPort => "has the port that browsers leave out, since it is the scheme's own",
            Self::Port => "has a port that is no number",
            Self::Host => "is not written as browsers do, in lower-case letters, digits and hyphens",
            Self::Wildcard => "has a * that stands neither alone nor for the first labels of a host",
        }
    }
}

impl FromStr for AllowedOrigin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        match text {
            "*" => return Ok(Self::Any),
            "null" => return Ok(Self::Exact(text.to_owned())),
            _ => {}
        }
        let (scheme, authority) = text.split_once("://").ok_or(OriginError::Form)?;
        let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !is_scheme || scheme.is_empty() || authority.is_empty() {
            return Err(OriginError::Form);
        }
        if authority.contains(['/', '?', '#', '@', '\\']) {
            return Err(OriginError::Path);
        }
        let (host, port) = split_port(authority);
        check_port(scheme, port)?;
        if scheme.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(OriginError::Host);
        }
        if let Some(parent) = host.strip_prefix("*.") {
            check_host(parent)?;
            let rest = authority[1..].to_owned();
            return Ok(Self::Below { scheme: format!("{scheme}://"), rest });
        }
        check_host(host)?;
        Ok(Self::Exact(text.to_owned()))
    }
}

/// The host, and the text behind its colon.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let host_len = if authority.starts_with('[') { authority.find(']').map(|at| at + 1) } else { None };
    let host_len = host_len.or_else(|| authority.find(':')).unwrap_or(authority.len());
    let (host, rest) = authority.split_at(host_len);
    (host, rest.strip_prefix(':').or(Some(rest).filter(|rest| !rest.is_empty())))
}

fn check_port(scheme: &str, port: Option<&str>) -> Result<(), OriginError> {
    let Some(port) = port else { return Ok(()) };
    let is_number = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    match (is_number, port.parse::<u16>()) {
        (true, Ok(80)) if scheme == "http" => Err(OriginError::OwnPort),
        (true, Ok(443)) if scheme == "https" => Err(OriginError::OwnPort),
        (true, Ok(_)) => Ok(()),
        _ => Err(OriginError::Port),
    }
}

/// Checks a host as browsers serialise it: in lower case, in ASCII, without an empty label.
fn check_host(host: &str) -> Result<(), OriginError> {
    if host.contains('*') {
        return Err(OriginError::Wildcard);
    }
    let is_address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).is_some_and(|address| {
        // Browsers write the shortest form (RFC 5952).
        address.parse::<std::net::Ipv6Addr>().is_ok_and(|parsed| parsed.to_string() == address)
    });
    if is_address || is_name(host.as_bytes()) { Ok(()) } else { Err(OriginError::Host) }
}

fn is_name(host: &[u8]) -> bool {
    host.split(|&byte| byte == b'.').all(|label| {
        let allowed = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        !label.is_empty() && label.iter().all(allowed)
    })
}

impl fmt::Display for AllowedOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Exact(origin) => formatter.write_str(origin),
            Self::Below { scheme, rest } => write!(formatter, "{scheme}*{rest}"),
        }
    }
}

impl AllowedOrigin {
    /// Whether this is the origin, byte for byte (Fetch, §3.3.3).
    fn allows(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(known) => known.as_bytes() == origin,
            Self::Below { scheme, rest } => {
                let below = origin
                    .strip_prefix(scheme.as_bytes())
                    .and_then(|authority| authority.strip_suffix(rest.as_bytes()));
                below.is_some_and(is_name)
            }
        }
    }
}

/// Fields that are written for each response; those of servers are removed.
const OF_RESPONSES: [&[u8]; 3] =
    [b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-expose-headers"];

/// Fields that occur only in answers to preflights.
const OF_PREFLIGHTS: [&[u8]; 4] = [
    b"access-control-allow-methods",
    b"access-control-allow-headers",
    b"access-control-max-age",
    b"access-control-allow-private-network",
];

impl Cors {
    /// Whether an OPTIONS request is a preflight (Fetch, §3.3.2).
    pub fn is_preflight<F: FieldLookup + ?Sized>(fields: &F) -> bool {
        fields.value(b"origin").is_some() && fields.value(b"access-control-request-method").is_some()
    }

    /// Whether a field of a server's response is replaced.
    #[inline]
    pub fn replaces(name: &[u8]) -> bool {
        name.len() > 21
            && (OF_RESPONSES.iter().chain(&OF_PREFLIGHTS)).any(|known| name.eq_ignore_ascii_case(known))
    }

    /// Whether responses differ by the request's origin, so that Vary has to name it. This includes requests without an
    /// origin, and origins that may not read responses.
    pub fn varies(&self) -> bool {
        !self.allows_all()
    }

    fn allows_all(&self) -> bool {
        self.origins.contains(&AllowedOrigin::Any)
    }

    /// The value of Access-Control-Allow-Origin. `None` if the client must not read the response.
    fn reader<'f, F: FieldLookup + ?Sized>(&self, fields: &'f F) -> Option<&'f [u8]> {
        if self.allows_all() {
            return Some(b"*");
        }
        // Browsers send one.
        let mut origins = fields.values(b"origin");
        let (Some(origin), None) = (origins.next(), origins.next()) else { return None };
        self.origins.iter().any(|known| known.allows(origin)).then_some(origin)
    }

    /// Appends the fields that allow reading a response. For every response except the answer to a preflight.
    pub fn write_response<F: FieldLookup + ?Sized>(&self, fields: &F, out: &mut Vec<u8>) {
        let Some(reader) = self.reader(fields) else { return };
        self.write_reader(reader, out);
        push_list(out, b"Access-Control-Expose-Headers", &self.expose);
    }

    /// Appends the fields of the answer to a preflight. Appends nothing for an origin that is not allowed.
    pub fn write_preflight<F: FieldLookup + ?Sized>(&self, fields: &F, out: &mut Vec<u8>) {
        let Some(reader) = self.reader(fields) else { return };
        self.write_reader(reader, out);
        push_list(out, b"Access-Control-Allow-Methods", &self.methods);
        push_list(out, b"Access-Control-Allow-Headers", &self.headers);
        if let Some(max_age) = self.max_age {
            push_line(out, b"Access-Control-Max-Age", max_age.as_secs().to_string().as_bytes());
        }
        let asks = fields.value(b"access-control-request-private-network") == Some(b"true");
        if self.private_network && asks {
            push_line(out, b"Access-Control-Allow-Private-Network", b"true");
        }
    }

    fn write_reader(&self, reader: &[u8], out: &mut Vec<u8>) {
        push_line(out, b"Access-Control-Allow-Origin", reader);
        if self.credentials {
            push_line(out, b"Access-Control-Allow-Credentials", b"true");
        }
    }

    /// Whether the values of a Vary field name the origin, or everything.
    pub fn is_named_in(vary: &[u8]) -> bool {
        let mut names = vary.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
    }
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn push_list(out: &mut Vec<u8>, name: &[u8], values: &[String]) {
    if !values.is_empty() {
        push_line(out, name, values.join(", ").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str]) -> Cors {
        Cors { origins: origins.iter().map(|origin| origin.parse().unwrap()).collect(), ..Cors::default() }
    }

    #[test]
    fn origins_are_matched_as_a_whole() {
        let named = cors(&["https://app.example", "http://a.example:8080", "https://*.example.com", "null"]);
        let below = cors(&["https://*.example.com:8443", "chrome-extension://abcdef", "http://[::1]:3000"]);
        for (cors, origin, allowed) in [
            (&named, "https://app.example", true),
            (&named, "http://app.example", false),
            (&named, "https://app.example:8443", false),
            (&named, "https://app.example.", false),
            (&named, "https://app.example.evil", false),
            (&named, "https://evilapp.example", false),
            (&named, "https://APP.example", false),
            (&named, "http://a.example:8080", true),
            (&named, "http://a.example", false),
            (&named, "http://a.example:80801", false),
            (&named, "https://www.example.com", true),
            (&named, "https://a.b-c.example.com", true),
            (&named, "https://example.com", false),
            (&named, "https://.example.com", false),
            (&named, "https://a..example.com", false),
            (&named, "https://evilexample.com", false),
            (&named, "https://www.example.com.evil", false),
            (&named, "https://www.example.com:444", false),
            (&named, "http://www.example.com", false),
            (&named, "https://evil/.example.com", false),
            (&named, "https://user@www.example.com", false),
            (&named, "https://evil?.example.com", false),
            (&named, "https://a, https://www.example.com", false),
            (&named, "null", true),
            (&below, "null", false),
            (&below, "", false),
            (&below, "https://x.example.com:8443", true),
            (&below, "https://x.example.com", false),
            (&below, "chrome-extension://abcdef", true),
            (&below, "http://[::1]:3000", true),
            (&below, "http://[::1]", false),
        ] {
            let fields = [("Origin", origin)];
            let read = cors.reader(&fields);
            assert_eq!(read, allowed.then_some(origin.as_bytes()), "{origin}");
        }
        let twice = [("Origin", "https://app.example"), ("Origin", "https://app.example")];
        assert_eq!(named.reader(&twice), None);
        assert_eq!(named.reader(&crate::NoFields), None);
        assert_eq!(cors(&["*"]).reader(&crate::NoFields), Some(&b"*"[..]));
    }

    #[test]
    fn invalid_origins() {
        for (text, error) in [
            ("", OriginError::Form),
            ("www.example.com", OriginError::Form),
            ("https://", OriginError::Form),
            ("://a", OriginError::Form),
            ("https://a/", OriginError::Path),
            ("https://a/b", OriginError::Path),
            ("https://u@a", OriginError::Path),
            ("https://a:443", OriginError::OwnPort),
            ("http://*.a:80", OriginError::OwnPort),
            ("https://a:x", OriginError::Port),
            ("https://a:", OriginError::Port),
            ("https://a:*", OriginError::Port),
            ("https://a:080", OriginError::Port),
            ("https://a:99999", OriginError::Port),
            ("https://[::1]x", OriginError::Port),
            ("https://Www.example.com", OriginError::Host),
            ("HTTPS://a", OriginError::Host),
            ("https://caf\u{e9}.example", OriginError::Host),
            ("https://a..b", OriginError::Host),
            ("https://a.", OriginError::Host),
            ("https://a b", OriginError::Host),
            ("https://[::0001]", OriginError::Host),
            ("https://*", OriginError::Wildcard),
            ("https://a.*.example.com", OriginError::Wildcard),
            ("https://*.*.example.com", OriginError::Wildcard),
            ("https://*example.com", OriginError::Wildcard),
            ("*://example.com", OriginError::Form),
        ] {
            assert_eq!(text.parse::<AllowedOrigin>(), Err(error), "{text}");
        }
        for text in ["*", "null", "https://*.example.com:8443", "http://localhost:3000", "http://127.0.0.1:1"]
        {
            assert_eq!(text.parse::<AllowedOrigin>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn fields() {
        let text = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).unwrap()
        };
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let all = Cors {
            methods: list(&["PUT", "DELETE"]),
            headers: list(&["X-A", "Content-Type"]),
            expose: list(&["X-B"]),
            credentials: true,
            max_age: Some(Duration::from_secs(600)),
            private_network: true,
            ..cors(&["https://a"])
        };
        let fields = [("origin", "https://a"), ("access-control-request-private-network", "true")];
        assert_eq!(
            text(&|out| all.write_preflight(&fields, out)),
            "Access-Control-Allow-Origin: https://a\r\nAccess-Control-Allow-Credentials: true\r\n\
             Access-Control-Allow-Methods: PUT, DELETE\r\nAccess-Control-Allow-Headers: X-A, Content-Type\r\n\
             Access-Control-Max-Age: 600\r\nAccess-Control-Allow-Private-Network: true\r\n"
        );
        assert_eq!(
            text(&|out| all.write_response(&fields, out)),
            "Access-Control-Allow-Origin: https://a\r\nAccess-Control-Allow-Credentials: true\r\n\
             Access-Control-Expose-Headers: X-B\r\n"
        );
        let other = [("origin", "https://b"), ("access-control-request-method", "PUT")];
        assert_eq!(text(&|out| all.write_preflight(&other, out)), "");
        assert_eq!(text(&|out| all.write_response(&other, out)), "");
        assert!(Cors::is_preflight(&other) && !Cors::is_preflight(&fields));
        assert!(all.varies() && !cors(&["https://a", "*"]).varies());
        assert_eq!(
            text(&|out| cors(&["*"]).write_response(&crate::NoFields, out)),
            "Access-Control-Allow-Origin: *\r\n"
        );
    }

    #[test]
    fn fields_of_servers() {
        for name in ["Access-Control-Allow-Origin", "access-control-max-age", "ACCESS-CONTROL-EXPOSE-HEADERS"]
        {
            assert!(Cors::replaces(name.as_bytes()), "{name}");
        }
        for name in ["Access-Control-Request-Method", "Vary", "Access-Control-Allow-Originx"] {
            assert!(!Cors::replaces(name.as_bytes()), "{name}");
        }
        for (vary, named) in [("origin", true), ("Accept, Origin", true), ("*", true), ("X-Origin", false)] {
            assert_eq!(Cors::is_named_in(vary.as_bytes()), named, "{vary}");
        }
    }
}
