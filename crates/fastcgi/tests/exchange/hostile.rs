//! Broken responses: cut off at each byte, out of order, of another request, too large.

use fastcgi::{CgiHeadError, FastcgiBroken, Header, RecordType, Response, ResponseError, Rule};

use crate::{LIMITS, end, padded, read, read_pieces, record, stderr, stdout};

fn with_header(change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::new(RecordType::Stdout, 4);
    change(&mut header);
    [&header.encode()[..], b"abcd"].concat()
}

#[test]
fn a_record_that_breaks_a_rule_is_refused_with_its_number() {
    let head = || stdout("A: b\n\n");
    for (bytes, number, rule) in [
        (with_header(|header| header.version = 0), 1, Rule::Version(0)),
        (with_header(|header| header.version = 2), 1, Rule::Version(2)),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), 1, Rule::Version(b'H')),
        (with_header(|header| header.id = 0), 1, Rule::RequestId(0)),
        (with_header(|header| header.id = 2), 1, Rule::RequestId(2)),
        (with_header(|header| header.id = 256), 1, Rule::RequestId(256)),
        ([head(), with_header(|header| header.id = 2)].concat(), 2, Rule::RequestId(2)),
        (with_header(|header| header.kind = 0), 1, Rule::Type(0)),
        (with_header(|header| header.kind = 12), 1, Rule::Type(12)),
        (record(RecordType::BeginRequest, &[0; 8]), 1, Rule::Type(1)),
        (record(RecordType::AbortRequest, b""), 1, Rule::Type(2)),
        (record(RecordType::Params, b""), 1, Rule::Type(4)),
        (record(RecordType::Stdin, b""), 1, Rule::Type(5)),
        (record(RecordType::Data, b""), 1, Rule::Type(8)),
        (record(RecordType::GetValuesResult, b""), 1, Rule::Type(10)),
        (record(RecordType::UnknownType, &[0; 8]), 1, Rule::Type(11)),
        ([head(), stdout(""), stdout("x")].concat(), 3, Rule::StdoutEnded),
        ([head(), stderr(""), stdout("x"), stderr("x")].concat(), 4, Rule::StderrEnded),
        (record(RecordType::EndRequest, b""), 1, Rule::EndLength(0)),
        (record(RecordType::EndRequest, &[0; 7]), 1, Rule::EndLength(7)),
        (record(RecordType::EndRequest, &[0; 9]), 1, Rule::EndLength(9)),
        (end(0, 4), 1, Rule::ProtocolStatus(4)),
        ([head(), end(0, 255)].concat(), 2, Rule::ProtocolStatus(255)),
        (stdout("").repeat(5), 5, Rule::TooManyEmpty(4)),
        (
            [stdout("").repeat(2), padded(RecordType::Stderr, b"", 9).repeat(3)].concat(),
            5,
            Rule::TooManyEmpty(4),
        ),
    ] {
        let seen = read(&bytes);
        let expected = ResponseError::Record(FastcgiBroken { record: number, rule });
        assert_eq!((seen.error, seen.end), (Some(expected), None), "{rule:?}");
    }
}

#[test]
fn nothing_follows_the_end() {
    for behind in [end(0, 0), stdout("x"), stderr("x"), vec![0]] {
        let bytes = [stdout("A: b\n\n"), end(0, 0), behind].concat();
        let mut response = Response::new(LIMITS, false);
        let seen = read_pieces(&mut response, &bytes, []);
        assert!(seen.end.is_some() && response.has_ended());
        let error = ResponseError::Record(FastcgiBroken { record: 3, rule: Rule::AfterEnd });
        assert_eq!(response.read(&bytes[seen.len..], &mut Vec::new()), Err(error));
        assert!(!response.has_ended(), "the connection carries no further request");
    }
}

#[test]
fn a_body_has_the_length_that_its_head_says() {
    let head = || stdout("Content-Length: 4\n\n");
    for (records, body, error) in [
        (vec![head(), stdout("abcde"), end(0, 0)], "abcd", ResponseError::BodyTooLong { length: 4 }),
        (
            vec![head(), stdout("abcd"), stdout("e"), end(0, 0)],
            "abcd",
            ResponseError::BodyTooLong { length: 4 },
        ),
        (vec![stdout("Content-Length: 1\n\nabc")], "a", ResponseError::BodyTooLong { length: 1 }),
        (
            vec![head(), stdout("abc"), end(0, 0)],
            "abc",
            ResponseError::BodyTooShort { length: 4, missing: 1 },
        ),
        (vec![head(), end(0, 0)], "", ResponseError::BodyTooShort { length: 4, missing: 4 }),
    ] {
        let seen = read(&records.concat());
        assert_eq!((seen.error, seen.body.as_slice()), (Some(error), body.as_bytes()));
    }
}

#[test]
fn a_head_has_limits_and_an_end() {
    let long = |len: usize| format!("A: {}\n\n", "x".repeat(len - 5));
    assert!(read(&[stdout(&long(256)), end(0, 0)].concat()).outline.is_some());
    for (bytes, error) in [
        (stdout(&long(257)), CgiHeadError::TooLarge(256)),
        (stdout(&"x".repeat(65_000)), CgiHeadError::TooLarge(256)),
        (stdout("A:\n").repeat(300), CgiHeadError::TooLarge(256)),
        (stdout(&("A:\n".repeat(9) + "\n")), CgiHeadError::TooManyFields(8)),
        (end(0, 0), CgiHeadError::Incomplete(0)),
        ([stdout("A: b\n"), end(0, 0)].concat(), CgiHeadError::Incomplete(5)),
        ([stdout("A: b\r\n\r"), stdout(""), end(0, 0)].concat(), CgiHeadError::Incomplete(7)),
        (stdout("no field\n\n"), CgiHeadError::Field(1)),
    ] {
        let seen = read(&bytes);
        assert_eq!((seen.error, seen.head.as_str()), (Some(error.into()), ""), "{error}");
    }
}

#[test]
fn a_worker_that_dies_at_any_byte_leaves_an_incomplete_response() {
    let whole = [
        stderr("warning"),
        padded(RecordType::Stdout, b"Status: 404\r\n\r\n<h1>", 5),
        stdout("gone"),
        stdout(""),
        padded(RecordType::EndRequest, &[0; 8], 3),
    ]
    .concat();
    for len in 0..whole.len() {
        let mut response = Response::new(LIMITS, false);
        let seen = read_pieces(&mut response, &whole[..len], []);
        assert_eq!((seen.end, seen.error), (None, None), "{len}");
        assert!(!response.has_ended() && response.cut_off().is_some(), "{len}");
        assert!(b"<h1>gone".starts_with(&seen.body), "{len}");
    }
    let mut response = Response::new(LIMITS, false);
    assert!(read_pieces(&mut response, &whole, []).end.is_some() && response.cut_off().is_none());
}

#[test]
fn where_a_response_was_cut_off_is_said() {
    let head = stdout("A: b\n\n");
    for (bytes, expected) in [
        (Vec::new(), "the connection ended before the response"),
        (stderr("x"), "the connection ended before the response"),
        (head[..3].to_vec(), "the connection ended within a record (FastCGI §3.3)"),
        (head[..10].to_vec(), "the connection ended within a record (FastCGI §3.3)"),
        (stdout("A: b\n"), "the connection ended within the response head (RFC 3875 §6.2)"),
        (head.clone(), "the connection ended without END_REQUEST (FastCGI §5.5)"),
        (stdout("x\n\n"), "the response was refused before"),
    ] {
        let mut response = Response::new(LIMITS, false);
        read_pieces(&mut response, &bytes, []);
        assert_eq!(response.cut_off(), Some(expected));
    }
}

#[test]
fn an_error_stays() {
    let mut response = Response::new(LIMITS, false);
    let error = read_pieces(&mut response, &stdout("x\n\n"), []).error.unwrap();
    let good = [stdout("A: b\n\n"), end(0, 0)].concat();
    assert_eq!(response.read(&good, &mut Vec::new()), Err(error));
    assert!(!response.has_ended());
}

#[test]
fn errors_name_the_record_and_the_rule() {
    let seen = read(&[stdout("A: b\n\n"), stdout(""), stdout("x")].concat());
    let words = seen.error.unwrap().to_string();
    assert_eq!(words, "record 3 of the response: it adds to STDOUT after its end (FastCGI §3.3)");
}
