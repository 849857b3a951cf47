//! Start lines and field lines: accepted, rejected with which error, and exact limits.

use http1::{HeadError, HeadLimits, HttpVersion, Method, Name, Parsed, RequestHead, ResponseHead};

use crate::{LIMITS, parse_request, parse_response, request_with, text};

/// RFC 9112 §3.
#[test]
fn request_lines() {
    for (line, method, target, version) in [
        ("GET / HTTP/1.1", Method::Get, "/", HttpVersion::Http11),
        ("GET /a?b=c HTTP/1.0", Method::Get, "/a?b=c", HttpVersion::Http10),
        ("OPTIONS * HTTP/1.1", Method::Options, "*", HttpVersion::Http11),
        ("CONNECT a:443 HTTP/1.1", Method::Connect, "a:443", HttpVersion::Http11),
        ("GET http://a/ HTTP/1.1", Method::Get, "http://a/", HttpVersion::Http11),
        // RFC 9110 §2.5: a later minor version is treated as the highest known one.
        ("GET / HTTP/1.2", Method::Get, "/", HttpVersion::Http11),
        ("GET / HTTP/1.9", Method::Get, "/", HttpVersion::Http11),
        // RFC 9110 §9.1: methods are case-sensitive, and any token is a method.
        ("get / HTTP/1.1", Method::Other, "/", HttpVersion::Http11),
        ("M-SEARCH / HTTP/1.1", Method::Other, "/", HttpVersion::Http11),
        ("!#$%&'*+-.^_`|~ / HTTP/1.1", Method::Other, "/", HttpVersion::Http11),
        // Not valid URIs, but unambiguous.
        ("GET /\"<>\\^`{|} HTTP/1.1", Method::Get, "/\"<>\\^`{|}", HttpVersion::Http11),
        ("GET /%00%0d%0a HTTP/1.1", Method::Get, "/%00%0d%0a", HttpVersion::Http11),
    ] {
        let bytes = format!("{line}\r\n\r\n").into_bytes();
        let start = parse_request(&bytes).unwrap().start;
        assert_eq!((start.method, start.version), (method, version), "{line}");
        assert_eq!(start.target.for_bytes(&bytes), target.as_bytes(), "{line}");
        assert_eq!(start.method_span.for_bytes(&bytes), line.split(' ').next().unwrap().as_bytes(), "{line}");
    }
}

/// RFC 9112 §3: separators between the parts, and §2.2: line ends.
#[test]
fn request_lines_that_are_refused() {
    let long_method = "M".repeat(65);
    for (line, error) in [
        ("GET / HTTP/1.1 ", HeadError::RequestLine),
        ("GET  / HTTP/1.1", HeadError::RequestLine),
        ("GET /  HTTP/1.1", HeadError::RequestLine),
        ("GET\t/ HTTP/1.1", HeadError::RequestLine),
        ("GET /\tHTTP/1.1", HeadError::RequestLine),
        ("GET \t/ HTTP/1.1", HeadError::RequestLine),
        (" GET / HTTP/1.1", HeadError::RequestLine),
        ("\tGET / HTTP/1.1", HeadError::RequestLine),
        ("GET / a HTTP/1.1", HeadError::RequestLine),
        ("GET /\rHTTP/1.1", HeadError::BareCr),
        ("GET /a\rb HTTP/1.1", HeadError::BareCr),
        ("GET\r/ HTTP/1.1", HeadError::Method),
        ("\rGET / HTTP/1.1", HeadError::Method),
        ("GET / HTTP/1.1\r", HeadError::RequestLine),
        ("GET /\0 HTTP/1.1", HeadError::TargetByte),
        ("G\0T / HTTP/1.1", HeadError::Method),
        ("GET /\x0b HTTP/1.1", HeadError::TargetByte),
        ("GET /\x7f HTTP/1.1", HeadError::TargetByte),
        ("GET /a#b HTTP/1.1", HeadError::TargetByte),
        ("GET /caf\u{e9} HTTP/1.1", HeadError::TargetByte),
        ("GET HTTP/1.1", HeadError::RequestLine),
        ("GET", HeadError::RequestLine),
        ("(GET) / HTTP/1.1", HeadError::RequestLine),
        ("GET: / HTTP/1.1", HeadError::Method),
        ("G\u{c9}T / HTTP/1.1", HeadError::Method),
        (&format!("{long_method} / HTTP/1.1"), HeadError::MethodTooLong),
        (&format!("{long_method}: / HTTP/1.1"), HeadError::Method),
        // HTTP/0.9.
        ("GET /", HeadError::RequestLine),
        ("GET / ", HeadError::RequestLine),
        // RFC 9112 §2.3: upper case, two digits, no other major version; the preface of HTTP/2.
        ("GET / http/1.1", HeadError::RequestLine),
        ("GET / HTTP/1", HeadError::RequestLine),
        ("GET / HTTP/1.", HeadError::RequestLine),
        ("GET / HTTP/1.10", HeadError::RequestLine),
        ("GET / HTTP/01.1", HeadError::RequestLine),
        ("GET / HTTP/0.9", HeadError::Version),
        ("GET / HTTP/2.0", HeadError::Version),
        ("PRI * HTTP/2.0", HeadError::Version),
        ("GET / HTTP/1,1", HeadError::RequestLine),
        ("GET / HTTPS/1.1", HeadError::RequestLine),
        ("GET / ICY", HeadError::RequestLine),
    ] {
        let bytes = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(parse_request(bytes.as_bytes()).err(), Some(error), "{}", text(bytes.as_bytes()));
    }
}

/// RFC 9112 §2.2: one empty line before a request is skipped.
#[test]
fn an_empty_line_before_a_request() {
    let bytes = b"\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = parse_request(bytes).unwrap();
    assert_eq!((head.start.target.for_bytes(bytes), head.len), (b"/x".as_slice(), bytes.len()));
    for (bytes, error) in [
        (b"\r\n\r\nGET / HTTP/1.1\r\n\r\n".as_slice(), HeadError::RequestLine),
        (b"\nGET / HTTP/1.1\r\n\r\n", HeadError::RequestLine),
        (b"\r\n GET / HTTP/1.1\r\n\r\n", HeadError::Method),
        (b"\r\r\nGET / HTTP/1.1\r\n\r\n", HeadError::Method),
    ] {
        assert_eq!(parse_request(bytes).err(), Some(error), "{}", text(bytes));
    }
    assert_eq!(parse_response(b"\r\nHTTP/1.1 200 OK\r\n\r\n").err(), Some(HeadError::RequestLine));
}

/// A byte that no HTTP message starts with is rejected before a whole line has arrived.
#[test]
fn the_first_byte_decides() {
    for byte in [0x16, 0x80, b'\n', b' ', b'\0', b'{', b'/'] {
        assert_eq!(RequestHead::default().parse(&[byte], &LIMITS), Err(HeadError::RequestLine), "{byte:#x}");
    }
    assert_eq!(RequestHead::default().parse(b"\r", &LIMITS), Ok(Parsed::Partial));
    assert_eq!(RequestHead::default().parse(b"", &LIMITS), Ok(Parsed::Partial));
    assert_eq!(ResponseHead::default().parse(b"\r", &LIMITS), Err(HeadError::RequestLine));
}

/// RFC 9112 §4.
#[test]
fn status_lines() {
    for (line, status, reason, version) in [
        ("HTTP/1.1 200 OK", 200, "OK", HttpVersion::Http11),
        ("HTTP/1.0 404 Not Found", 404, "Not Found", HttpVersion::Http10),
        ("HTTP/1.1 204 ", 204, "", HttpVersion::Http11),
        ("HTTP/1.1 204", 204, "", HttpVersion::Http11),
        ("HTTP/1.1 599 x\ty", 599, "x\ty", HttpVersion::Http11),
        ("HTTP/1.1 100 Continue", 100, "Continue", HttpVersion::Http11),
        ("HTTP/1.1 200 d\u{e9}j\u{e0}", 200, "d\u{e9}j\u{e0}", HttpVersion::Http11),
        ("HTTP/1.3 200  ", 200, " ", HttpVersion::Http11),
    ] {
        let bytes = format!("{line}\r\n\r\n").into_bytes();
        let start = parse_response(&bytes).unwrap().start;
        assert_eq!((start.status, start.version), (status, version), "{line}");
        assert_eq!(start.reason.for_bytes(&bytes), reason.as_bytes(), "{line}");
    }
    for (line, error) in [
        ("HTTP/1.1 099 OK", HeadError::StatusLine),
        ("HTTP/1.1 600 OK", HeadError::StatusLine),
        ("HTTP/1.1 20 OK", HeadError::StatusLine),
        ("HTTP/1.1 2000 OK", HeadError::StatusLine),
        ("HTTP/1.1 +20 OK", HeadError::StatusLine),
        ("HTTP/1.1  200 OK", HeadError::StatusLine),
        ("HTTP/1.1\t200 OK", HeadError::StatusLine),
        ("HTTP/1.1 200\tOK", HeadError::StatusLine),
        ("HTTP/1.1", HeadError::StatusLine),
        ("HTTP", HeadError::StatusLine),
        ("HTTP/2.0 200 OK", HeadError::Version),
        ("http/1.1 200 OK", HeadError::Version),
        ("ICY 200 OK", HeadError::Version),
        ("HTTP/1.1 200 O\0K", HeadError::FieldValue),
        ("HTTP/1.1 200 O\rK", HeadError::BareCr),
        ("HTTP/1.1 200 O\x7fK", HeadError::FieldValue),
    ] {
        let bytes = format!("{line}\r\n\r\n");
        assert_eq!(parse_response(bytes.as_bytes()).err(), Some(error), "{}", text(bytes.as_bytes()));
    }
}

/// RFC 9110 §5.1 and §5.5, RFC 9112 §5.
#[test]
fn field_lines() {
    for (line, name, value) in [
        ("A: b", "A", "b"),
        ("A:b", "A", "b"),
        ("A: \t b \t", "A", "b"),
        ("A:", "A", ""),
        ("A: \t ", "A", ""),
        ("A: b  c\td", "A", "b  c\td"),
        ("A: b: c", "A", "b: c"),
        ("!#$%&'*+-.^_`|~09azAZ: x", "!#$%&'*+-.^_`|~09azAZ", "x"),
        ("A: \u{e9}\u{80}", "A", "\u{e9}\u{80}"),
        ("A: a value of more than sixteen bytes", "A", "a value of more than sixteen bytes"),
        ("A: a value with\ta tab, of more than sixteen", "A", "a value with\ta tab, of more than sixteen"),
    ] {
        let bytes = request_with(&format!("{line}\r\n"));
        let head = parse_request(&bytes).unwrap();
        let field = head.fields[1];
        assert_eq!(field.name.for_bytes(&bytes), name.as_bytes(), "{line}");
        assert_eq!(field.value.for_bytes(&bytes), value.as_bytes(), "{line}");
        assert_eq!(field.line_end as usize, bytes.len() - 2, "{line}");
    }
}

/// RFC 9112 §5.1 (no white space before the colon), §5.2 (obs-fold), §2.2 (bare CR and LF).
#[test]
fn field_lines_that_are_refused() {
    for (lines, error) in [
        ("A : b\r\n", HeadError::FieldName),
        ("A\t: b\r\n", HeadError::FieldName),
        ("A b: c\r\n", HeadError::FieldName),
        (": b\r\n", HeadError::FieldName),
        ("A\r\n", HeadError::FieldName),
        ("A;b: c\r\n", HeadError::FieldName),
        ("A\0: b\r\n", HeadError::FieldName),
        ("A\x0b: b\r\n", HeadError::FieldName),
        ("\u{c4}: b\r\n", HeadError::FieldName),
        ("A\r: b\r\n", HeadError::FieldName),
        ("\"A\": b\r\n", HeadError::FieldName),
        ("A: b\r\n c\r\n", HeadError::Folded),
        ("A: b\r\n\tc\r\n", HeadError::Folded),
        ("A: b\r\n \r\n", HeadError::Folded),
        (" A: b\r\n", HeadError::Folded),
        ("A: b\n", HeadError::BareLf),
        ("A: b\nC: d\r\n", HeadError::BareLf),
        ("A: b\r\n\n", HeadError::BareLf),
        ("A: b\rC: d\r\n", HeadError::BareCr),
        ("A: b\r\r\n", HeadError::BareCr),
        ("A: \r\r\n", HeadError::BareCr),
        ("A: b\0c\r\n", HeadError::FieldValue),
        ("A: \0\r\n", HeadError::FieldValue),
        ("A: b\x0bc\r\n", HeadError::FieldValue),
        ("A: b\x0c\r\n", HeadError::FieldValue),
        ("A: \x1b[31mb\r\n", HeadError::FieldValue),
        ("A: b\x7f\r\n", HeadError::FieldValue),
    ] {
        let bytes = request_with(lines);
        assert_eq!(parse_request(&bytes).err(), Some(error), "{}", text(&bytes));
    }
}

#[test]
fn a_control_byte_anywhere_in_a_value() {
    for len in 1..50 {
        for at in 0..len {
            for control in (0..0x20).chain([0x7f]).filter(|byte| !b"\t\n".contains(byte)) {
                let mut bytes = b"GET / HTTP/1.1\r\nA: ".to_vec();
                let start = bytes.len();
                bytes.resize(start + len, b'x');
                bytes[start + at] = control;
                bytes.extend_from_slice(b"\r\n\r\n");
                let expected = if control == b'\r' { HeadError::BareCr } else { HeadError::FieldValue };
                assert_eq!(parse_request(&bytes).err(), Some(expected), "{}", text(&bytes));
            }
        }
    }
}

#[test]
fn limits_at_the_bound_and_one_over() {
    let limits = HeadLimits { bytes: 64, fields: 2, target: 8 };
    let parse = |bytes: &[u8]| RequestHead::default().parse(bytes, &limits);
    let sized = |len: usize| {
        let mut bytes = b"GET / HTTP/1.1\r\nA: ".to_vec();
        bytes.resize(len - 4, b'x');
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes
    };
    assert_eq!(parse(&sized(64)), Ok(Parsed::Complete));
    assert_eq!(parse(&sized(65)), Err(HeadError::TooLarge));
    assert_eq!(parse(&sized(65)[..63]), Ok(Parsed::Partial));
    assert_eq!(parse(&sized(65)[..64]), Err(HeadError::TooLarge));
    // Bytes after the head do not count.
    assert_eq!(parse(&[sized(64), vec![b'x'; 100]].concat()), Ok(Parsed::Complete));

    assert_eq!(parse(b"GET / HTTP/1.1\r\nA: b\r\nC: d\r\n\r\n"), Ok(Parsed::Complete));
    assert_eq!(parse(b"GET / HTTP/1.1\r\nA: b\r\nC: d\r\nE: f\r\n\r\n"), Err(HeadError::TooManyFields));

    assert_eq!(parse(b"GET /1234567 HTTP/1.1\r\n\r\n"), Ok(Parsed::Complete));
    assert_eq!(parse(b"GET /12345678 HTTP/1.1\r\n\r\n"), Err(HeadError::TargetTooLong));
    // A request line that exceeds the limit of the head.
    assert_eq!(parse(&[b"GET /".as_slice(), &[b'x'; 59]].concat()), Err(HeadError::TargetTooLong));
    assert_eq!(
        ResponseHead::default().parse(&[b"HTTP/1.1 200 ".as_slice(), &[b'x'; 51]].concat(), &limits),
        Err(HeadError::TooLarge)
    );
    assert!(parse_request(format!("{} / HTTP/1.1\r\n\r\n", "M".repeat(64)).as_bytes()).is_ok());
}

#[test]
fn fields_are_found_by_name() {
    let bytes = request_with("via: 1\r\nX: y\r\nVIA: 2\r\n");
    let head = parse_request(&bytes).unwrap();
    assert_eq!(head.value(&bytes, Name::Via), Some(b"1".as_slice()));
    assert_eq!(head.values(&bytes, Name::Via).collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(head.field(Name::Host).unwrap().name.for_bytes(&bytes), b"Host");
    assert!(head.field(Name::Date).is_none());
    assert_eq!(head.values(&bytes, Name::Date).count(), 0);
}

#[test]
fn a_head_is_used_again() {
    let mut head = RequestHead::default();
    let first = request_with("Via: 1\r\nContent-Length: 3\r\n");
    assert_eq!(head.parse(&first, &LIMITS), Ok(Parsed::Complete));
    head.clear();
    let second = b"GET /second HTTP/1.0\r\n\r\n";
    assert_eq!(head.parse(second, &LIMITS), Ok(Parsed::Complete));
    assert_eq!((head.len, head.fields.len(), head.start.version), (second.len(), 0, HttpVersion::Http10));
    assert!(head.field(Name::Via).is_none() && head.field(Name::ContentLength).is_none());
    assert_eq!(http1::request_framing(&head, second), Ok(http1::BodyFraming::None));
}
