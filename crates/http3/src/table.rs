//! The static table of QPACK (RFC 9204 Appendix A).

/// The first index is 0.
#[rustfmt::skip]
static STATIC: [(&str, &str); STATIC_LEN] = [
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

pub(crate) const STATIC_LEN: usize = 99;

pub(crate) fn fixed(index: u64) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = STATIC.get(usize::try_from(index).ok()?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StaticMatch {
    /// The whole field.
    Field(u8),
    /// Only its name.
    Name(u8),
    Nothing,
}

/// Looks up a field. The name must be in lower case.
pub(crate) fn find(name: &[u8], value: &[u8]) -> StaticMatch {
    let ranges = indices_of(name);
    let mut indices = ranges.iter().flat_map(|&(first, last)| first..=last);
    let whole = indices.find(|&index| STATIC[usize::from(index)].1.as_bytes() == value);
    match (whole, ranges.first()) {
        (Some(index), _) => StaticMatch::Field(index),
        (None, Some(&(first, _))) => StaticMatch::Name(first),
        (None, None) => StaticMatch::Nothing,
    }
}

/// The indices of the fields with this name, as the first and last of each run.
#[rustfmt::skip]
fn indices_of(name: &[u8]) -> &'static [(u8, u8)] {
    match name {
        b":authority" => &[(0, 0)], b":path" => &[(1, 1)], b"age" => &[(2, 2)], b"content-disposition" => &[(3, 3)],
        b"content-length" => &[(4, 4)], b"cookie" => &[(5, 5)], b"date" => &[(6, 6)], b"etag" => &[(7, 7)],
        b"if-modified-since" => &[(8, 8)], b"if-none-match" => &[(9, 9)], b"last-modified" => &[(10, 10)],
        b"link" => &[(11, 11)], b"location" => &[(12, 12)], b"referer" => &[(13, 13)], b"set-cookie" => &[(14, 14)],
        b":method" => &[(15, 21)], b":scheme" => &[(22, 23)], b":status" => &[(24, 28), (63, 71)],
        b"accept" => &[(29, 30)], b"accept-encoding" => &[(31, 31)], b"accept-ranges" => &[(32, 32)],
        b"access-control-allow-headers" => &[(33, 34), (75, 75)], b"access-control-allow-origin" => &[(35, 35)],
        b"cache-control" => &[(36, 41)], b"content-encoding" => &[(42, 43)], b"content-type" => &[(44, 54)],
        b"range" => &[(55, 55)], b"strict-transport-security" => &[(56, 58)], b"vary" => &[(59, 60)],
        b"x-content-type-options" => &[(61, 61)], b"x-xss-protection" => &[(62, 62)],
        b"accept-language" => &[(72, 72)], b"access-control-allow-credentials" => &[(73, 74)],
        b"access-control-allow-methods" => &[(76, 78)], b"access-control-expose-headers" => &[(79, 79)],
        b"access-control-request-headers" => &[(80, 80)], b"access-control-request-method" => &[(81, 82)],
        b"alt-svc" => &[(83, 83)], b"authorization" => &[(84, 84)], b"content-security-policy" => &[(85, 85)],
        b"early-data" => &[(86, 86)], b"expect-ct" => &[(87, 87)], b"forwarded" => &[(88, 88)],
        b"if-range" => &[(89, 89)], b"origin" => &[(90, 90)], b"purpose" => &[(91, 91)], b"server" => &[(92, 92)],
        b"timing-allow-origin" => &[(93, 93)], b"upgrade-insecure-requests" => &[(94, 94)],
        b"user-agent" => &[(95, 95)], b"x-forwarded-for" => &[(96, 96)], b"x-frame-options" => &[(97, 98)],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_found_at_its_index() {
        for index in 0..STATIC_LEN as u8 {
            let (name, value) = fixed(u64::from(index)).expect("there are that many");
            assert_eq!(find(name, value), StaticMatch::Field(index));
            let first = (0..).find(|&first| fixed(first).is_some_and(|(other, _)| other == name));
            let named = find(name, b"something else");
            assert_eq!(named, StaticMatch::Name(first.expect("it is there") as u8));
        }
        assert_eq!((fixed(99), fixed(u64::MAX), find(b"x", b"")), (None, None, StaticMatch::Nothing));
    }
}
