//! Where bodies end, and every ambiguous framing, which is rejected.

use http1::{BodyFraming, FramingError, request_framing, response_framing};

use crate::{parse_request, parse_response, request_with, text};

fn of_request(bytes: &[u8]) -> Result<BodyFraming, FramingError> {
    request_framing(&parse_request(bytes).unwrap(), bytes)
}

fn of_response(head: &str, to_head: bool) -> Result<BodyFraming, FramingError> {
    let bytes = format!("HTTP/1.1 {head}\r\n").into_bytes();
    response_framing(&parse_response(&bytes).unwrap(), &bytes, to_head)
}

/// RFC 9112 §6.3, for requests.
#[test]
fn bodies_of_requests() {
    for (fields, framing) in [
        ("", BodyFraming::None),
        ("Content-Length: 0\r\n", BodyFraming::None),
        ("Content-Length: 00\r\n", BodyFraming::None),
        ("Content-Length: 5\r\n", BodyFraming::Length(5)),
        ("content-length:5\r\n", BodyFraming::Length(5)),
        ("Content-Length: \t5 \r\n", BodyFraming::Length(5)),
        ("Content-Length: 007\r\n", BodyFraming::Length(7)),
        ("Content-Length: 9223372036854775807\r\n", BodyFraming::Length(i64::MAX as u64)),
        ("Transfer-Encoding: chunked\r\n", BodyFraming::Chunked),
        ("TRANSFER-ENCODING: Chunked\r\n", BodyFraming::Chunked),
        ("Transfer-Encoding:\t chunked \t\r\n", BodyFraming::Chunked),
        // Similar names, which are ordinary fields.
        ("Content-Lengths: x\r\nX-Transfer-Encoding: gzip\r\n", BodyFraming::None),
    ] {
        let bytes = request_with(fields);
        assert_eq!(of_request(&bytes), Ok(framing), "{}", text(&bytes));
    }
    let old = b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(of_request(old), Ok(BodyFraming::Length(5)));
}

/// RFC 9110 §8.6: only digits.
#[test]
fn lengths_that_are_refused() {
    for value in [
        "",
        "+5",
        "-5",
        "-0",
        "5 5",
        "5,5",
        "5, 5",
        "5,",
        ",5",
        "5;",
        "5.0",
        "0x5",
        "5e1",
        "five",
        "\"5\"",
        "5_0",
        "5\t5",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551621",
        "00000000000000000005",
        "99999999999999999999999999999999999999999",
        "\u{0665}",
        "\u{a0}5",
    ] {
        let bytes = request_with(&format!("Content-Length: {value}\r\n"));
        assert_eq!(of_request(&bytes), Err(FramingError::LengthInvalid), "{value}");
        let response = format!("200 OK\r\nContent-Length: {value}\r\n");
        assert_eq!(of_response(&response, false), Err(FramingError::LengthInvalid), "{value}");
    }
}

/// RFC 9112 §6.1 and §11.2: every way to state a length twice, or to disguise a coding.
#[test]
fn smuggling_is_refused() {
    const LENGTH: &str = "Content-Length: 5\r\n";
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    let mut cases = vec![
        (format!("{LENGTH}{CHUNKED}"), FramingError::BothLengthAndCoding),
        (format!("{CHUNKED}{LENGTH}"), FramingError::BothLengthAndCoding),
        (format!("{CHUNKED}Content-Length: 0\r\n"), FramingError::BothLengthAndCoding),
        (format!("{LENGTH}{LENGTH}"), FramingError::LengthRepeated),
        (format!("{LENGTH}Content-Length: 6\r\n"), FramingError::LengthRepeated),
        (format!("{LENGTH}A: b\r\ncontent-length: 5\r\n"), FramingError::LengthRepeated),
        (format!("{CHUNKED}{CHUNKED}"), FramingError::CodingUnknown),
        (format!("{CHUNKED}Transfer-Encoding: identity\r\n"), FramingError::CodingUnknown),
        (format!("Transfer-Encoding: x\r\n{CHUNKED}"), FramingError::CodingUnknown),
        (format!("{CHUNKED}Transfer-Encoding:\r\n"), FramingError::CodingUnknown),
    ];
    for coding in [
        "",
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, identity",
        "identity, chunked",
        "chunked, chunked",
        "chunked,chunked",
        "chunked,",
        ",chunked",
        "xchunked",
        "chunkedx",
        "chunke",
        "\"chunked\"",
        "'chunked'",
        "chunked;",
        "chunked; q=1",
        "chunked;foo=bar",
        "chunked chunked",
        "chunked\tx",
        "x chunked",
        "chun ked",
        "[chunked]",
        "chunked\u{a0}",
        "\u{a0}chunked",
        "chunked\u{212a}",
        "chun\u{212a}ed",
        "cow",
        "0",
        "chunked\\",
    ] {
        cases.push((format!("Transfer-Encoding: {coding}\r\n"), FramingError::CodingUnknown));
    }
    for name in ["Transfer_Encoding", "transfer_encoding", "TRANSFER_ENCODING"] {
        cases.push((format!("{name}: chunked\r\n"), FramingError::Disguised));
        cases.push((format!("{LENGTH}{name}: chunked\r\n"), FramingError::Disguised));
    }
    for name in ["Content_Length", "content_length"] {
        cases.push((format!("{name}: 5\r\n"), FramingError::Disguised));
        cases.push((format!("{CHUNKED}{name}: 5\r\n"), FramingError::Disguised));
    }
    for (fields, error) in cases {
        let bytes = request_with(&fields);
        assert_eq!(of_request(&bytes), Err(error), "{}", text(&bytes));
        assert_eq!(
            of_response(&format!("200 OK\r\n{fields}"), false),
            Err(error),
            "{}",
            text(fields.as_bytes())
        );
    }
}

/// RFC 9112 §6.1: HTTP/1.0 has no transfer codings.
#[test]
fn a_coding_in_http_1_0() {
    let request = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(of_request(request), Err(FramingError::CodingInHttp10));
    let response = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let head = parse_response(response).unwrap();
    assert_eq!(response_framing(&head, response, false), Err(FramingError::CodingInHttp10));
}

/// RFC 9112 §6.3, for responses.
#[test]
fn bodies_of_responses() {
    for (head, to_head, framing) in [
        ("200 OK\r\nContent-Length: 5\r\n", false, BodyFraming::Length(5)),
        ("200 OK\r\nContent-Length: 0\r\n", false, BodyFraming::None),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n", false, BodyFraming::Chunked),
        ("200 OK\r\n", false, BodyFraming::UntilClose),
        ("500 x\r\nConnection: keep-alive\r\n", false, BodyFraming::UntilClose),
        ("205 Reset Content\r\nContent-Length: 0\r\n", false, BodyFraming::None),
        // Rule 1: these have no body, regardless of their fields.
        ("200 OK\r\nContent-Length: 5\r\n", true, BodyFraming::None),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n", true, BodyFraming::None),
        ("200 OK\r\n", true, BodyFraming::None),
        ("204 No Content\r\n", false, BodyFraming::None),
        ("204 No Content\r\nContent-Length: 5\r\n", false, BodyFraming::None),
        ("304 Not Modified\r\nContent-Length: 5\r\n", false, BodyFraming::None),
        ("304 Not Modified\r\nTransfer-Encoding: chunked\r\n", false, BodyFraming::None),
    ] {
        assert_eq!(of_response(head, to_head), Ok(framing), "{head}");
    }
    assert_eq!(
        of_response("304 x\r\nContent-Length: 5\r\nContent-Length: 6\r\n", false),
        Err(FramingError::LengthRepeated),
        "not even where there is no body"
    );
}
