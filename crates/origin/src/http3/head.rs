//! Heads of requests over HTTP/3 (RFC 9114 §4.3.1): malformed heads are rejected.

use crate::request::{FIELDS_MAX, OwnedRequest, RequestRefusal};
use crate::target::ParsedTarget;
use crate::worker::FAST_PAGES;

/// The result of parsing a field section.
pub(super) enum RequestedFields {
    Undecodable,
    /// The section is not a valid request: its stream is reset.
    Malformed,
    /// A request, or the reason for an error response.
    Request(Box<Result<(OwnedRequest, ParsedTarget), RequestRefusal>>),
}

/// The fixed page for a request without a body, and whether only its head is wanted; `None` for other requests.
pub(super) fn fixed_page(section: &[u8]) -> Option<(usize, bool)> {
    let RequestedFields::Request(request) = parse(section, false) else { return None };
    let (request, target) = (*request).ok()?;
    let is_head = match request.method.as_str() {
        "GET" => false,
        "HEAD" => true,
        _ => return None,
    };
    let is_selective =
        |name: &str| name.eq_ignore_ascii_case("range") || name.get(..3).is_some_and(|start| start == "if-");
    let is_plain = target.raw_query.is_empty() && !request.fields().any(|(name, _)| is_selective(name));
    let page = FAST_PAGES.iter().position(|(path, _)| *path == request.target)?;
    is_plain.then_some((page, is_head))
}

/// Parses a section. `has_body`: whether content may follow.
pub(super) fn parse(section: &[u8], has_body: bool) -> RequestedFields {
    let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
    let mut is_malformed = false;
    let decoded = lab_http3::decode(section, |name, value| {
        is_malformed |= !is_field(name, value);
        // RFC 9114 §4.3: pseudo-header fields come first, each at most once.
        let is_pseudo = name.starts_with(b":");
        let name = String::from_utf8_lossy(name).into_owned();
        let is_late = fields.last().is_some_and(|(last, _)| !last.starts_with(':'));
        is_malformed |= is_pseudo && (is_late || fields.iter().any(|(other, _)| *other == name));
        if fields.len() <= FIELDS_MAX {
            fields.push((name, value.to_vec()));
        }
    });
    if decoded.is_err() {
        return RequestedFields::Undecodable;
    }
    let text = |wanted: &str| {
        let found = fields.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let (method, scheme, path) = (text(":method"), text(":scheme"), text(":path"));
    let (authority, protocol) = (text(":authority"), text(":protocol"));
    is_malformed |= match (method.as_deref(), &protocol) {
        // RFC 9114 §4.4, RFC 9220 §3.
        (Some("CONNECT"), None) => scheme.is_some() || path.is_some() || authority.is_none(),
        (Some("CONNECT"), Some(_)) => scheme.is_none() || path.is_none() || authority.is_none(),
        (Some(_), None) => scheme.is_none() || path.as_ref().is_none_or(String::is_empty),
        (Some(_), Some(_)) | (None, _) => true,
    };
    // RFC 9114 §4.3.1: `:authority` or Host is required, and they must agree.
    let host = text("host");
    is_malformed |= match (&authority, &host) {
        (Some(authority), Some(host)) => authority != host,
        (None, None) => true,
        _ => false,
    };
    if is_malformed {
        return RequestedFields::Malformed;
    }
    if fields.len() > FIELDS_MAX {
        return RequestedFields::Request(Box::new(Err(RequestRefusal::TooManyFields)));
    }
    let named: Vec<(&str, &[u8])> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let method = method.unwrap_or_default();
    let wanted = path.or_else(|| authority.clone()).unwrap_or_default();
    let request = OwnedRequest::of_stream("HTTP/3", &method, &wanted, protocol.as_deref(), &named, has_body);
    RequestedFields::Request(Box::new(request.and_then(|request| {
        // The path of an extended CONNECT has the same form as in other requests.
        let mut target = ParsedTarget::parse(if protocol.is_some() { "GET" } else { &method }, &wanted)?;
        target.authority = authority.or(target.authority);
        Ok((request, target))
    })))
}

/// RFC 9114 §4.2, §10.3.
fn is_field(name: &[u8], value: &[u8]) -> bool {
    let bare = name.strip_prefix(b":").unwrap_or(name);
    let is_known_pseudo = matches!(name, b":method" | b":scheme" | b":authority" | b":path" | b":protocol");
    let is_name = !bare.is_empty()
        && bare.iter().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && *byte != b':');
    let is_value = memchr::memchr3(0, b'\r', b'\n', value).is_none();
    let is_of_connection = matches!(
        name,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
    ) || name == b"te" && value != b"trailers";
    (bare.len() == name.len() || is_known_pseudo) && is_name && is_value && !is_of_connection
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        lab_http3::push_prefix(&mut out);
        fields
            .iter()
            .for_each(|(name, value)| lab_http3::push_field(&mut out, name.as_bytes(), value.as_bytes()));
        out
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/tiny")];

    #[test]
    fn fixed_pages_are_those_of_plain_requests() {
        let with = |more: &[(&str, &str)]| fixed_page(&section(&[&GET[..], more].concat()));
        assert_eq!(with(&[]), Some((0, false)));
        assert_eq!(with(&[("user-agent", "x")]), Some((0, false)));
        assert_eq!(with(&[("range", "bytes=0-1")]), None);
        assert_eq!(with(&[("if-none-match", "*")]), None);
        let mut head = GET;
        head[0].1 = "HEAD";
        assert_eq!(fixed_page(&section(&head)), Some((0, true)));
        let mut other = GET;
        other[3].1 = "/tiny?delay=1s";
        assert_eq!(fixed_page(&section(&other)), None);
    }

    #[test]
    fn rfc_9114_4_3_1_malformed_requests_are_told_from_others() {
        let [method, scheme, authority, path] = GET;
        let malformed: [&[(&str, &str)]; 16] = [
            &[scheme, authority, path],
            &[method, authority, path],
            &[method, scheme, authority],
            &[method, scheme, path],
            &[method, scheme, authority, (":path", "")],
            &[method, scheme, authority, path, path],
            &[method, scheme, authority, ("a", "b"), path],
            &[method, scheme, authority, path, (":status", "200")],
            &[method, scheme, authority, path, (":protocol", "websocket")],
            &[method, scheme, authority, path, ("host", "b")],
            &[method, scheme, authority, path, ("A", "b")],
            &[method, scheme, authority, path, ("a", "b\n")],
            &[method, scheme, authority, path, ("connection", "close")],
            &[method, scheme, authority, path, ("te", "gzip")],
            &[(":method", "CONNECT"), authority, path],
            &[(":method", "CONNECT"), scheme, path, (":protocol", "websocket")],
        ];
        for fields in malformed {
            assert!(matches!(parse(&section(fields), false), RequestedFields::Malformed), "{fields:?}");
        }
        for fields in [&GET[..], &[method, scheme, path, ("host", "a"), ("te", "trailers")]] {
            assert!(matches!(parse(&section(fields), false), RequestedFields::Request(_)), "{fields:?}");
        }
        assert!(matches!(parse(b"\x00\x00\x80", false), RequestedFields::Undecodable));
    }
}
