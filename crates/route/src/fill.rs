//! Fills in templates. For any input from a client, the result is one field value, path, URL or host: no line breaks,
//! no NUL, no second host.

use std::io::Write;

use crate::form::FormReading;
use crate::request::{FieldLookup, cookie, parameters};
use crate::template::{ContentSyntax, Position, RouteTemplate, TemplatePiece, TemplateUse, Variable};
use crate::variable_values::VariableValues;

impl RouteTemplate {
    /// Appends the template with these values. Allocates only if `out` has no room.
    ///
    /// In a field value, control characters become spaces, and white space at the ends is removed. In a URL or a path,
    /// values are escaped where they could change its structure, and several slashes at the start become one, because
    /// `//` would start a host. `$path`, `$query` and `$path_and_query` keep their escapes.
    pub fn fill<F: FieldLookup + ?Sized>(&self, values: &VariableValues<'_, F>, out: &mut Vec<u8>) {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.extend_from_slice(text),
                TemplatePiece::Variable(variable, position) => {
                    let escape = Escape::new(variable, *position, self.place);
                    match (variable, values.captures) {
                        (Variable::Group(number), Some(captures)) if *position != Position::Anywhere => {
                            write_group(captures.bytes_of_group(*number), escape, out);
                        }
                        _ => variable.value(values, &mut |value| escape.write(value, out)),
                    }
                }
            }
        }
        match self.place {
            TemplateUse::FieldValue => trim(out, start),
            TemplateUse::Path | TemplateUse::Location => merge_first_slashes(out, start),
            TemplateUse::Host | TemplateUse::Folder | TemplateUse::Content(_) => {}
        }
    }

    /// Appends a folder as a part of a path, with escapes. Returns whether each value is a part of one segment and no
    /// segment is empty, hidden or a dot segment; if not, nothing is appended.
    #[must_use]
    pub fn fill_folder<F: FieldLookup + ?Sized>(
        &self,
        values: &VariableValues<'_, F>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let mut stays = true;
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.extend_from_slice(text),
                TemplatePiece::Variable(variable, _) => variable.value(values, &mut |value| {
                    stays &= !value.iter().any(|byte| b"/\\\0".contains(byte));
                    Escape::Host.write(value, out);
                }),
            }
        }
        let is_visible = |segment: &[u8]| !segment.is_empty() && !segment.starts_with(b".");
        stays &= out[start..].split(|&byte| byte == b'/').all(is_visible);
        if !stays {
            out.truncate(start);
        }
        stays
    }

    /// Fills in a host like [`RouteTemplate::fill`]. Returns whether the result is a valid host; if not, nothing is
    /// appended.
    ///
    /// The result is invalid if a variable has no value, or contains something that no host can contain.
    #[must_use]
    pub fn fill_host<F: FieldLookup + ?Sized>(
        &self,
        values: &VariableValues<'_, F>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        self.fill(values, out);
        let is_host = is_host_and_port(&out[start..]);
        if !is_host {
            out.truncate(start);
        }
        is_host
    }
}

impl Variable {
    /// Calls `write` with the value, in one piece or several.
    fn value<F: FieldLookup + ?Sized>(&self, values: &VariableValues<'_, F>, write: &mut impl FnMut(&[u8])) {
        let request = &values.request;
        match self {
            Self::Host => write(values.host),
            Self::Port => write_number(values.port, write),
            Self::Path => write(path_of(request.path)),
            Self::Query => write(request.query.unwrap_or_default()),
            Self::PathAndQuery => {
                write(path_of(request.path));
                if let Some(query) = request.query {
                    write(b"?");
                    write(query);
                }
            }
            Self::Method => write(request.method),
            Self::Scheme => write(values.scheme.as_bytes()),
            Self::ClientAddress => write_number(request.client.to_canonical(), write),
            Self::RequestId => write(values.request_id),
            Self::Hostname => write(values.hostname.as_bytes()),
            Self::Proxy(count) => {
                write_number(values.proxy.map_or(0, |proxy| proxy.count(*count)), write);
            }
            Self::UnixSeconds => {
                let now_ms = (values.unix_ms)();
                write_number(format_args!("{}.{:03}", now_ms / 1000, now_ms % 1000), write);
            }
            Self::UnixMilliseconds => write_number((values.unix_ms)(), write),
            Self::User => write(values.user.as_bytes()),
            Self::Route => write(values.route.as_bytes()),
            Self::Upstream => write(values.upstream.as_bytes()),
            Self::Server => write(values.server.as_bytes()),
            Self::Status => values.status.into_iter().for_each(|status| write_number(status, write)),
            Self::TlsServerName => write(values.tls.server_name.as_bytes()),
            Self::TlsSubject => write(values.tls.subject.as_bytes()),
            Self::TlsIssuer => write(values.tls.issuer.as_bytes()),
            Self::TlsSerial => write(values.tls.serial.as_bytes()),
            Self::TlsNames => write(values.tls.names.as_bytes()),
            Self::TlsFingerprint => write(values.tls.fingerprint.as_bytes()),
            Self::TlsVersion => write(values.tls.version.as_bytes()),
            Self::TlsCipher => write(values.tls.cipher.as_bytes()),
            Self::TlsAlpn => write(values.tls.alpn.as_bytes()),
            Self::Header(name) => write_all(request.fields.values(name), write),
            Self::Cookie(name) => write(cookie(request.fields, name).unwrap_or_default()),
            Self::Argument(name) => write_argument(request.query.unwrap_or_default(), name, write),
            Self::Group(number) => {
                write(values.captures.and_then(|captures| captures.group(*number)).unwrap_or_default());
            }
            Self::Value(value) => request.conditions.value(value, request.path, &mut |text| write(text)),
        }
    }
}

/// RFC 9112 §3.2.1 and §3.2.4: the empty path is `/`; `*` is no path, and becomes `/`.
fn path_of(path: &[u8]) -> &[u8] {
    if path.starts_with(b"/") { path } else { b"/" }
}

/// Writes a number or an address, without an allocation.
fn write_number(number: impl std::fmt::Display, write: &mut impl FnMut(&[u8])) {
    let mut text = [0; 48];
    let mut rest = text.as_mut_slice();
    // Cannot fail: the text is shorter than the buffer.
    let _ = write!(rest, "{number}");
    let left = rest.len();
    write(&text[..text.len() - left]);
}

/// RFC 9110 §5.3: several field lines with one name are one list.
fn write_all<'f>(values: impl Iterator<Item = &'f [u8]>, write: &mut impl FnMut(&[u8])) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            write(b", ");
        }
        write(value);
    }
}

/// Writes the first parameter with this name, decoded.
fn write_argument(query: &[u8], name: &[u8], write: &mut impl FnMut(&[u8])) {
    let same = |written: &[u8]| FormReading::from_written(written).eq(name.iter().copied());
    let found = parameters(query).find(|(written, _)| same(written));
    if let Some((_, value)) = found {
        FormReading::from_written(value).for_each(|byte| write(&[byte]));
    }
}

/// Appends a group's match in a path, as a part of a URL. RFC 3986 §2.2: an escaped separator stays escaped, because a
/// plain one would be another URL.
fn write_group(bytes: impl Iterator<Item = (u8, bool)>, escape: Escape, out: &mut Vec<u8>) {
    for (byte, was_escaped) in bytes {
        let escape = if was_escaped { Escape::Host } else { escape };
        escape.write(&[byte], out);
    }
}

/// Appends a query as sent, except for characters that a URL cannot contain.
pub(crate) fn write_query(query: &[u8], out: &mut Vec<u8>) {
    Escape::Url.write(query, out);
}

pub(crate) fn write_parameter(value: &[u8], out: &mut Vec<u8>) {
    Escape::Host.write(value, out);
}

/// Appends a byte of a path, escaped where a path cannot have it.
pub(crate) fn write_path_byte(byte: u8, out: &mut Vec<u8>) {
    Escape::Path.write(&[byte], out);
}

/// The way in which the bytes of a value are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// Control characters become spaces (RFC 9110 §5.5).
    Controls,
    /// Only characters that a URL cannot contain are escaped: the value is already part of a URL.
    Url,
    /// All characters that a path cannot contain are escaped, and the percent sign and the question mark.
    Path,
    /// Like `Path`, and separators of parameters are escaped as well.
    Query,
    /// Like `Query`, and all characters that host names cannot contain are escaped as well.
    Host,
    /// Plain content: nothing has a meaning.
    Nothing,
    /// Characters of markup become references (HTML standard, 13.5; XML 1.0, 2.4).
    Markup,
    /// As in a JSON string (RFC 8259 §7). `<` and `>` are escaped as well, because a script may contain it.
    Json,
}

impl Escape {
    fn new(variable: &Variable, position: Position, place: TemplateUse) -> Self {
        match (position, variable) {
            (Position::Anywhere, _) => match place {
                TemplateUse::Folder => Self::Host,
                TemplateUse::Content(ContentSyntax::Plain) => Self::Nothing,
                TemplateUse::Content(ContentSyntax::Markup) => Self::Markup,
                TemplateUse::Content(ContentSyntax::Json) => Self::Json,
                _ => Self::Controls,
            },
            (
                Position::Scheme | Position::Authority,
                Variable::Host | Variable::Server | Variable::Scheme,
            )
            | (Position::Path, Variable::Path | Variable::PathAndQuery)
            | (Position::Query, Variable::Query) => Self::Url,
            (Position::Scheme | Position::Authority, _) => Self::Host,
            (Position::Path, _) => Self::Path,
            (Position::Query, _) => Self::Query,
        }
    }

    fn write(self, value: &[u8], out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        for &byte in value {
            if self.keeps(byte) {
                out.push(byte);
            } else if self == Self::Controls {
                out.push(b' ');
            } else if self == Self::Markup {
                out.extend_from_slice(b"&#x");
                out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)], b';']);
            } else if self == Self::Json {
                out.extend_from_slice(b"\\u00");
                out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            } else {
                out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
        }
    }

    /// RFC 3986 §2 and §3.
    fn keeps(self, byte: u8) -> bool {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match self {
            Self::Controls => byte == b'\t' || !byte.is_ascii_control(),
            Self::Url => is_unreserved || b"!$&'()*+,;=:@/?%[]".contains(&byte),
            Self::Path => is_unreserved || b"!$&'()*+,;=:@/".contains(&byte),
            Self::Query => is_unreserved || b"!$'()*,:@/".contains(&byte),
            Self::Host => is_unreserved,
            Self::Nothing => true,
            Self::Markup => !b"<>&\"'`=".contains(&byte),
            Self::Json => !byte.is_ascii_control() && !b"\"\\<>&'`".contains(&byte),
        }
    }
}

fn trim(out: &mut Vec<u8>, start: usize) {
    let value = &out[start..];
    let trimmed = value.trim_ascii_start();
    let before = value.len() - trimmed.len();
    let len = trimmed.trim_ascii_end().len();
    out.drain(start..start + before);
    out.truncate(start + len);
}

/// RFC 3986 §4.2: a reference that begins with two slashes names a host.
fn merge_first_slashes(out: &mut Vec<u8>, start: usize) {
    let slashes = out[start..].iter().take_while(|&&byte| byte == b'/').count();
    if slashes > 1 {
        out.drain(start + 1..start + slashes);
    }
}

/// RFC 3986 §3.2.2 and §3.2.3, for names without escapes.
fn is_host_and_port(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_name = |host: &str| {
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (1..=255).contains(&host.len()) && host.bytes().all(is_name_byte)
    };
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host) && !host.starts_with('.'),
    };
    is_host && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::BytePattern;
    use crate::request::RequestParts;
    use crate::template::TemplateStage;
    use crate::variable_values::{ProxyCount, ProxyCounts, TlsFacts};

    #[derive(Debug)]
    struct Counted;

    impl ProxyCounts for Counted {
        fn count(&self, count: ProxyCount) -> u64 {
            ProxyCount::NAMES.iter().position(|(_, known)| *known == count).map_or(0, |at| at as u64 + 1)
        }
    }

    fn request<'a>(
        fields: &'a [(&'a str, &'a [u8])],
        path: &'a [u8],
        query: Option<&'a [u8]>,
    ) -> RequestParts<'a, [(&'a str, &'a [u8])]> {
        RequestParts {
            listener: 0,
            host: b"Shop.example",
            path,
            query,
            method: b"GET",
            client: "::ffff:192.0.2.1".parse().unwrap(),
            fields,
            conditions: &crate::NoConditions,
        }
    }

    const PATTERN: &str = "/old(/(?<rest>.*))?";

    fn filled(text: &str, place: TemplateUse, request: RequestParts<'_, [(&str, &[u8])]>) -> String {
        let pattern = BytePattern::new(PATTERN).unwrap();
        let template = RouteTemplate::new(text, place, TemplateStage::Response, Some(&pattern)).unwrap();
        let captures = pattern.captures_of_path(request.path);
        let tls = TlsFacts {
            server_name: "shop.example",
            subject: "CN=a,O=\u{e9}\r\nX: y",
            issuer: "CN=b",
            serial: "0f",
            names: "DNS:a",
            fingerprint: "ab",
            version: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            alpn: "h2",
        };
        let values = VariableValues {
            captures: captures.as_ref(),
            tls,
            request_id: b"7f",
            hostname: "edge-1",
            proxy: Some(&Counted),
            unix_ms: || 1_796_107_142_071,
            user: "me",
            route: "shop",
            upstream: "app",
            server: "10.0.0.1:80",
            status: Some(404),
            ..VariableValues::from_request(request, "https")
        };
        let mut out = b"before".to_vec();
        if place == TemplateUse::Host {
            return if template.fill_host(&values, &mut out) {
                String::from_utf8(out[6..].to_vec()).unwrap()
            } else {
                "none".to_owned()
            };
        }
        template.fill(&values, &mut out);
        String::from_utf8(out[6..].to_vec()).unwrap()
    }

    #[test]
    fn field_values() {
        let fields: [(&str, &[u8]); 5] = [
            ("X-A", b"1"),
            ("x-a", b"2"),
            ("Cookie", b"sid=abc; b=c"),
            ("X-Bad", b"a\r\nSet-Cookie: x=\0y\x7f"),
            ("X-B", b"\t v "),
        ];
        for (text, value) in [
            ("$host", "Shop.example"),
            ("$path|$query|$path_and_query", "/a%20b|x=1&y=%0d%0A+z|/a%20b?x=1&y=%0d%0A+z"),
            ("$method $scheme", "GET https"),
            ("$client_address", "192.0.2.1"),
            (
                "$proxy.accepted ${proxy.connections}, $proxy.idle $proxy.requests $proxy.serving",
                "1 2, 3 4 5",
            ),
            ("$hostname t=$time.unix_ms $time.unix", "edge-1 t=1796107142071 1796107142.071"),
            ("$request_id $user $route $upstream $server $status", "7f me shop app 10.0.0.1:80 404"),
            ("$header.x-a", "1, 2"),
            ("$header.X-Bad", "a  Set-Cookie: x= y"),
            ("$header.x-b", "v"),
            ("[$header.nothing]", "[]"),
            ("$header.nothing", ""),
            ("$cookie.sid/$cookie.SID", "abc/"),
            ("$arg.y", "z"),
            ("<$arg.y>", "<   z>"),
            (
                "$tls.sni $tls.subject $tls.issuer $tls.serial $tls.san $tls.fingerprint $tls.version $tls.cipher $tls.alpn",
                "shop.example CN=a,O=\u{e9}  X: y CN=b 0f DNS:a ab TLSv1.3 TLS_AES_128_GCM_SHA256 h2",
            ),
            (" $$1 ", "$1"),
        ] {
            let request = request(&fields, b"/a%20b", Some(b"x=1&y=%0d%0A+z"));
            assert_eq!(filled(text, TemplateUse::FieldValue, request), value, "{text}");
        }
    }

    #[test]
    fn urls() {
        for (text, path, query, url) in [
            ("https://$host$path_and_query", "/a%2Fb", Some("x=%20"), "https://Shop.example/a%2Fb?x=%20"),
            ("https://$host$path_and_query", "*", None, "https://Shop.example/"),
            ("https://$host$path_and_query", "", Some(""), "https://Shop.example/?"),
            ("$path", "//evil.example/", None, "/evil.example/"),
            ("$path", "/\\evil.example", None, "/%5Cevil.example"),
            ("/$1", "/old//evil.example", None, "/evil.example"),
            ("/new/$capture.rest", "/old/a%25b%3Fc%23d%20e/", None, "/new/a%25b%3Fc%23d%20e/"),
            ("/new/$capture.rest", "/old/%0d%0aX:y\u{e9}", None, "/new/%0D%0AX:y%C3%A9"),
            ("/new/$capture.rest", "/old/a%2F%2Fb%40/c", None, "/new/a%2Fb%40/c"),
            ("/new/$capture.rest", "/old", None, "/new/"),
            ("/new?path=$path&q=$query", "/a&b=%26", Some("x=1"), "/new?path=/a%26b%3D%2526&q=x=1"),
            ("/new?v=$arg.v", "/", Some("v=a%26b+c%3d"), "/new?v=a%26b%20c%3D"),
            ("/new/$query", "/", Some("a?b"), "/new/a%3Fb"),
            ("https://$header.X-Tenant.example.com/", "/", None, "https://a%2Fb%40c.example.com/"),
            ("$scheme://$host/#$1", "/old/x", None, "https://Shop.example/#/x"),
            ("$path?utm=$header.X-Tenant", "/p", Some("a"), "/p?utm=a/b@c"),
        ] {
            let fields: [(&str, &[u8]); 1] = [("X-Tenant", b"a/b@c")];
            let request = request(&fields, path.as_bytes(), query.map(str::as_bytes));
            assert_eq!(filled(text, TemplateUse::Location, request), url, "{text} {path}");
        }
    }

    #[test]
    fn hosts() {
        for (text, tenant, host) in [
            ("$header.t.internal:8080", "blue", "blue.internal:8080"),
            ("$header.t", "10.0.0.1", "10.0.0.1"),
            ("[::1]:80", "", "[::1]:80"),
            ("$header.t.internal", "", "none"),
            ("$header.t", "", "none"),
            ("$header.t", "a b", "none"),
            ("$header.t", "a/b", "none"),
            ("$header.t", "a:80", "none"),
            ("app:$header.t", "99999", "none"),
            ("app:$header.t", "8080", "app:8080"),
            ("$host", "", "Shop.example"),
            ("$server", "", "10.0.0.1:80"),
        ] {
            let fields = [("t", tenant.as_bytes())];
            assert_eq!(
                filled(text, TemplateUse::Host, request(&fields, b"/", None)),
                host,
                "{text} {tenant}"
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_out(
            header in prop::collection::vec(any::<u8>(), 0..40),
            path in prop::collection::vec(any::<u8>(), 0..40),
            query in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        ) {
            let fields = [("x", header.as_slice())];
            let request = request(&fields, &path, query.as_deref());
            let values = VariableValues::from_request(request, "http");
            for (text, place) in [
                ("$header.x $path $query $arg.a $cookie.a", TemplateUse::FieldValue),
                ("$path_and_query&$header.x", TemplateUse::Location),
                ("/$header.x$query?$query&$header.x$path", TemplateUse::Location),
                ("https://$header.x.example/$path#$query", TemplateUse::Location),
                ("$path", TemplateUse::Path),
            ] {
                let template = RouteTemplate::new(text, place, TemplateStage::Route, None).unwrap();
                let mut out = Vec::new();
                template.fill(&values, &mut out);
                prop_assert!(!out.iter().any(|byte| b"\r\n\0".contains(byte)), "{:?}", out);
                if place != TemplateUse::FieldValue {
                    prop_assert!(out.iter().all(u8::is_ascii_graphic));
                    prop_assert!(!out.starts_with(b"//") && !out.starts_with(b"/\\"));
                }
            }
        }
    }
}
