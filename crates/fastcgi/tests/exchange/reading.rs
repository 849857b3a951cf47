//! Responses in order: heads, bodies, error output, kept connections.

use fastcgi::{Body, EndRequest, ProtocolStatus, RecordType, Response};

use crate::{LIMITS, Seen, end, padded, read, read_pieces, record, stderr, stdout};

const COMPLETE: EndRequest = EndRequest { app_status: 0, protocol_status: ProtocolStatus::Complete };

#[test]
fn a_response_of_php_fpm() {
    // It fills records up to a multiple of eight, and does not end STDOUT.
    let head = "X-Powered-By: PHP/8.4\r\nContent-type: text/html; charset=UTF-8\r\n\r\n<h1>";
    let bytes =
        [padded(RecordType::Stdout, head.as_bytes(), 3), padded(RecordType::Stdout, b"Hello", 3), end(0, 0)]
            .concat();
    let seen = read(&bytes);
    let text = "HTTP/1.1 200 OK\r\nX-Powered-By: PHP/8.4\r\nContent-type: text/html; charset=UTF-8\r\n\r\n";
    assert_eq!((seen.head.as_str(), seen.body.as_slice()), (text, &b"<h1>Hello"[..]));
    assert_eq!((seen.end, seen.len), (Some(COMPLETE), bytes.len()));
}

#[test]
fn the_example_of_the_specification_is_read() {
    // FastCGI appendix B, example 3: error output between the records of the response, and both streams ended.
    let bytes = [
        stdout("Content-type: text/html\r\n\r\n<ht"),
        stderr("config error: missing SI_UID\n"),
        stdout("ml>\n"),
        stdout(""),
        stderr(""),
        end(938, 0),
    ]
    .concat();
    let seen = read(&bytes);
    assert_eq!(seen.body, b"<html>\n");
    assert_eq!(seen.stderr, b"config error: missing SI_UID\n");
    assert_eq!(seen.end, Some(EndRequest { app_status: 938, ..COMPLETE }));
}

#[test]
fn a_head_may_span_records_and_end_within_one() {
    for at in 0.."Status: 404\r\nA: b\r\n\r\n".len() {
        let (before, behind) = "Status: 404\r\nA: b\r\n\r\nbody".split_at(at);
        let first = if before.is_empty() { Vec::new() } else { stdout(before) };
        let seen = read(&[first, stderr("x"), stdout(behind), end(0, 0)].concat());
        assert_eq!(seen.outline.map(|outline| outline.status), Some(404), "{at}");
        assert_eq!((seen.body.as_slice(), seen.end), (&b"body"[..], Some(COMPLETE)), "{at}");
    }
}

#[test]
fn a_refusal_is_no_response() {
    for (status, expected) in [
        (1, ProtocolStatus::CannotMultiplex),
        (2, ProtocolStatus::Overloaded),
        (3, ProtocolStatus::UnknownRole),
    ] {
        let seen = read(&end(0, status));
        assert_eq!(seen.end.map(|end| end.protocol_status), Some(expected));
        assert!(expected.is_untouched() && seen.outline.is_none() && seen.error.is_none());
    }
    assert!(!ProtocolStatus::Complete.is_untouched());
}

#[test]
fn a_body_that_none_may_have_is_dropped() {
    for (head, to_head) in [("A: b\n\n", true), ("Status: 204\n\n", false), ("Status: 304\n\n", false)] {
        let bytes = [stdout(&format!("{head}one")), stdout("two"), end(0, 0)].concat();
        let seen = read_pieces(&mut Response::new(LIMITS, to_head), &bytes, []);
        assert_eq!(seen.outline.map(|outline| outline.body), Some(Body::None));
        assert_eq!((seen.body.as_slice(), seen.end), (&b""[..], Some(COMPLETE)));
    }
    // The length of what a HEAD would have got is no promise.
    let bytes = [stdout("Content-Length: 9\n\n"), end(0, 0)].concat();
    let seen = read_pieces(&mut Response::new(LIMITS, true), &bytes, []);
    assert_eq!((seen.end, seen.error), (Some(COMPLETE), None));
}

#[test]
fn a_kept_connection_carries_one_response_after_the_other() {
    let mut response = Response::new(LIMITS, false);
    let one = [stdout("Content-Length: 2\n\nab"), padded(RecordType::EndRequest, &[0; 8], 255)].concat();
    let two = [stdout("Status: 500\n\nc"), end(0, 0)].concat();
    for (bytes, body) in [(one, &b"ab"[..]), (two, b"c")] {
        assert!(!response.has_ended());
        let seen = read_pieces(&mut response, &bytes, []);
        assert_eq!((seen.body.as_slice(), seen.len), (body, bytes.len()), "the padding is read, too");
        assert!(response.has_ended() && seen.error.is_none());
        assert_eq!(response.cut_off(), None);
        response.begin(false);
    }
}

#[test]
fn error_output_has_a_limit_and_fails_no_response() {
    let long = "x".repeat(50);
    let bytes = [stderr(&long), stdout("A: b\n\nbody"), stderr(&long), stderr(&long), end(0, 0)].concat();
    let seen = read(&bytes);
    assert_eq!((seen.stderr.len(), seen.stderr_dropped), (64, 86));
    assert_eq!((seen.body.as_slice(), seen.end), (&b"body"[..], Some(COMPLETE)));
}

#[test]
fn the_end_is_reported_behind_its_padding() {
    let bytes = [stdout("A: b\n\n"), padded(RecordType::EndRequest, &[0; 8], 2)].concat();
    let mut response = Response::new(LIMITS, false);
    let seen = read_pieces(&mut response, &bytes[..bytes.len() - 1], []);
    assert_eq!(seen.end, None);
    assert!(!response.has_ended());
    let seen = read_pieces(&mut response, &bytes[bytes.len() - 1..], []);
    assert_eq!(seen, Seen { end: Some(COMPLETE), len: 1, ..Seen::default() });
}

#[test]
fn records_may_be_as_large_as_they_can() {
    let body = vec![b'x'; 65_535];
    let bytes = [
        stdout("A: b\n\n"),
        padded(RecordType::Stdout, &body, 255),
        record(RecordType::Stdout, &body),
        end(0, 0),
    ]
    .concat();
    let seen = read(&bytes);
    assert_eq!((seen.body.len(), seen.end), (131_070, Some(COMPLETE)));
}
