//! QPACK encoder of the lab: field sections with the static table alone (RFC 9204), so that sections are independent.

use crate::prefixed::{Undecodable, push_integer, push_string};

/// Appends the prefix of a section that uses no dynamic table (RFC 9204 §4.5.1).
pub fn push_prefix(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends a field, as an index if the static table has it.
pub fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let is_named = |(other, _): &(&str, &str)| other.as_bytes() == name;
    let is_same = |field: &(&str, &str)| is_named(field) && field.1.as_bytes() == value;
    // RFC 9204 §7.1.3: intermediaries must never put secrets into a table.
    let never = if matches!(name, b"authorization" | b"proxy-authorization" | b"cookie") { 0x20 } else { 0 };
    if let Some(index) = STATIC.iter().position(is_same) {
        // RFC 9204 §4.5.2.
        push_integer(out, index, 6, 0xc0);
    } else if let Some(index) = STATIC.iter().position(is_named) {
        // RFC 9204 §4.5.4.
        push_integer(out, index, 4, 0x50 | never);
        push_string(out, value, 7, 0);
    } else {
        // RFC 9204 §4.5.6.
        push_string(out, name, 3, 0x20 | never >> 1);
        push_string(out, value, 7, 0);
    }
}

/// Returns the entry of the static table at this index.
pub(crate) fn fixed(index: usize) -> Result<(&'static [u8], &'static [u8]), Undecodable> {
    let (name, value) = STATIC.get(index).ok_or(Undecodable::Invalid)?;
    Ok((name.as_bytes(), value.as_bytes()))
}

/// RFC 9204, Appendix A.
#[rustfmt::skip]
static STATIC: [(&str, &str); 99] = [
    (":authority", ""), (":path", "/"), ("age", "0"), ("content-disposition", ""), ("content-length", "0"),
    ("cookie", ""), ("date", ""), ("etag", ""), ("if-modified-since", ""), ("if-none-match", ""),
    ("last-modified", ""), ("link", ""), ("location", ""), ("referer", ""), ("set-cookie", ""),
    (":method", "CONNECT"), (":method", "DELETE"), (":method", "GET"), (":method", "HEAD"), (":method", "OPTIONS"),
    (":method", "POST"), (":method", "PUT"), (":scheme", "http"), (":scheme", "https"), (":status", "103"),
    (":status", "200"), (":status", "304"), (":status", "404"), (":status", "503"), ("accept", "*/*"),
    ("accept", "application/dns-message"), ("accept-encoding", "gzip, deflate, br"), ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"), ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"), ("cache-control", "max-age=0"), ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"), ("cache-control", "no-cache"), ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"), ("content-encoding", "br"), ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"), ("content-type", "application/javascript"),
    ("content-type", "application/json"), ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"), ("content-type", "image/jpeg"), ("content-type", "image/png"),
    ("content-type", "text/css"), ("content-type", "text/html; charset=utf-8"), ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"), ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"), ("vary", "accept-encoding"),
    ("vary", "origin"), ("x-content-type-options", "nosniff"), ("x-xss-protection", "1; mode=block"),
    (":status", "100"), (":status", "204"), (":status", "206"), (":status", "302"), (":status", "400"),
    (":status", "403"), (":status", "421"), (":status", "425"), (":status", "500"), ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"), ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"), ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"), ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"), ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"), ("access-control-request-method", "post"), ("alt-svc", "clear"),
    ("authorization", ""), ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"), ("expect-ct", ""), ("forwarded", ""), ("if-range", ""), ("origin", ""),
    ("purpose", "prefetch"), ("server", ""), ("timing-allow-origin", "*"), ("upgrade-insecure-requests", "1"),
    ("user-agent", ""), ("x-forwarded-for", ""), ("x-frame-options", "deny"), ("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::decode;

    fn read(section: &[u8]) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decode(section, |name, value| fields.push((text(name), text(value)))).ok()?;
        Some(fields)
    }

    #[test]
    fn fields_are_read_as_they_are_written() {
        let fields = [
            (":status", "200"),
            (":path", "/a"),
            ("content-length", "165854"),
            ("authorization", "secret"),
            ("x-a", "~~~~"),
            ("a-name-that-is-longer-than-a-byte-holds", ""),
        ];
        let mut section = Vec::new();
        push_prefix(&mut section);
        fields.iter().for_each(|(name, value)| push_field(&mut section, name.as_bytes(), value.as_bytes()));
        let got = read(&section).expect("it is a section");
        assert!(got.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(fields));
        // RFC 9204 §B.1.
        let mut section = Vec::new();
        push_prefix(&mut section);
        push_field(&mut section, b":path", b"/index.html");
        assert_eq!(section.len(), 2 + 2 + 8);
        assert_eq!(read(b"\x00\x00\x51\x0b/index.html"), read(&section));
    }

    #[test]
    fn what_is_no_section_is_refused() {
        for section in [
            &b""[..],
            b"\x00",
            b"\x01\x00",
            b"\x02\x00\x80",
            b"\x00\x00\x80",
            b"\x00\x00\x10",
            b"\x00\x00\x00\x00",
            b"\x00\x00\x40\x00",
            b"\x00\x00\xff\x24",
            b"\x00\x00\x51",
            b"\x00\x00\x51\x02a",
            b"\x00\x00\x51\x81\xff",
            b"\x00\x00\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(read(section), None, "{section:x?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_section_or_refused(section: Vec<u8>) {
            read(&section);
        }
    }
}
