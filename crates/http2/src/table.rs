//! The static table that header blocks refer to (RFC 7541 §2.3.1).

/// RFC 7541 Appendix A. The first index is 1.
#[rustfmt::skip]
static STATIC: [(&str, &str); STATIC_LEN] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

pub(crate) const STATIC_LEN: usize = 61;

pub(crate) fn fixed(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = STATIC.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The index of the first static field with this lower-case name; 0 if there is none.
#[rustfmt::skip]
pub(crate) fn index_of(name: &[u8]) -> u8 {
    match name {
        b":authority" => 1, b":method" => 2, b":path" => 4, b":scheme" => 6, b":status" => 8, b"accept-charset" => 15,
        b"accept-encoding" => 16, b"accept-language" => 17, b"accept-ranges" => 18, b"accept" => 19,
        b"access-control-allow-origin" => 20, b"age" => 21, b"allow" => 22, b"authorization" => 23,
        b"cache-control" => 24, b"content-disposition" => 25, b"content-encoding" => 26, b"content-language" => 27,
        b"content-length" => 28, b"content-location" => 29, b"content-range" => 30, b"content-type" => 31,
        b"cookie" => 32, b"date" => 33, b"etag" => 34, b"expect" => 35, b"expires" => 36, b"from" => 37, b"host" => 38,
        b"if-match" => 39, b"if-modified-since" => 40, b"if-none-match" => 41, b"if-range" => 42,
        b"if-unmodified-since" => 43, b"last-modified" => 44, b"link" => 45, b"location" => 46, b"max-forwards" => 47,
        b"proxy-authenticate" => 48, b"proxy-authorization" => 49, b"range" => 50, b"referer" => 51, b"refresh" => 52,
        b"retry-after" => 53, b"server" => 54, b"set-cookie" => 55, b"strict-transport-security" => 56,
        b"transfer-encoding" => 57, b"user-agent" => 58, b"vary" => 59, b"via" => 60, b"www-authenticate" => 61,
        _ => 0,
    }
}

pub(crate) const SIZE_DEFAULT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_the_first_of_its_indices() {
        for index in 1..=STATIC_LEN {
            let (name, _) = fixed(index).expect("there are that many");
            let first = (1..).find(|&first| fixed(first).is_some_and(|(other, _)| other == name));
            assert_eq!(Some(usize::from(index_of(name))), first);
        }
        assert_eq!((fixed(0), fixed(62), index_of(b"x")), (None, None, 0));
    }
}
