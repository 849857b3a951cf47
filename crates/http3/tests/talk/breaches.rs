//! What a connection ends for: each rule, with its code.

use http3::{Cause, Code, Role};

use crate::ends::{End, GET, LIMITS, NOW, frame, headers};

/// What arrives on which stream, and whether that ends it.
type Arrival = (u64, Vec<u8>, bool);

/// The code that an end closes the connection with, and the rule that was broken.
fn verdict(role: Role, arrivals: &[Arrival]) -> Option<(Code, &'static str, String)> {
    let mut end = match role {
        Role::Server => End::server(LIMITS),
        Role::Client => End::client(LIMITS),
    };
    if role == Role::Client {
        end.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
    }
    let known: &[u64] = if role == Role::Server { &[2, 6, 10] } else { &[3, 7, 11, 0] };
    for (id, bytes, is_last) in arrivals {
        let outcome = match known.contains(id) {
            true => end.receive(*id, bytes, *is_last),
            false => end.hear(*id, bytes, *is_last),
        };
        if let Err(broken) = outcome {
            let Cause::Malformed(rule) = broken.cause else { panic!("no flood: {broken:?}") };
            assert_eq!(broken.why(), rule);
            let offence = end.connection.offence().unwrap_or_default().to_owned();
            return Some((broken.code, rule, offence));
        }
    }
    None
}

#[test]
fn each_rule_has_its_code() {
    let on_control = |bytes: Vec<u8>| vec![(2, bytes, false)];
    let of_server = |bytes: Vec<u8>| vec![(3, bytes, false)];
    let on_request = |bytes: Vec<u8>| vec![(0, bytes, false)];
    let whole = |parts: &[Vec<u8>]| parts.concat();
    let ok = || headers(":status: 200");
    let rows: Vec<(Role, Vec<Arrival>, Code, &str)> = vec![
        // Streams.
        (Role::Client, vec![(1, vec![], false)], Code::STREAM_CREATION_ERROR, "bidirectional"),
        (Role::Server, vec![(14, vec![0], false)], Code::STREAM_CREATION_ERROR, "one control stream"),
        (Role::Server, vec![(14, vec![2], false)], Code::STREAM_CREATION_ERROR, "one control stream"),
        (Role::Server, vec![(14, vec![3], false)], Code::STREAM_CREATION_ERROR, "one control stream"),
        (Role::Server, vec![(14, vec![1, 0], false)], Code::STREAM_CREATION_ERROR, "only servers push"),
        (Role::Client, vec![(15, vec![1, 0], false)], Code::ID_ERROR, "no push was allowed"),
        (Role::Server, vec![(2, vec![], true)], Code::CLOSED_CRITICAL_STREAM, "stay open"),
        (Role::Server, vec![(6, vec![], true)], Code::CLOSED_CRITICAL_STREAM, "stay open"),
        (Role::Client, vec![(11, vec![], true)], Code::CLOSED_CRITICAL_STREAM, "stay open"),
        // Control streams.
        (Role::Server, on_control(frame(4, b"")), Code::FRAME_UNEXPECTED, "SETTINGS come once"),
        (Role::Server, on_control(frame(0, b"")), Code::FRAME_UNEXPECTED, "does not belong on a control"),
        (Role::Server, on_control(headers(GET)), Code::FRAME_UNEXPECTED, "does not belong on a control"),
        (Role::Server, on_control(frame(5, b"\0")), Code::FRAME_UNEXPECTED, "does not belong on a control"),
        (Role::Server, on_control(frame(6, b"")), Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (Role::Server, on_control(frame(7, b"")), Code::FRAME_ERROR, "ends with its fields"),
        (Role::Server, on_control(frame(7, b"\0\0")), Code::FRAME_ERROR, "ends with its fields"),
        (Role::Server, on_control(frame(7, b"\x40")), Code::FRAME_ERROR, "ends with its fields"),
        (Role::Server, on_control(frame(3, b"\0")), Code::ID_ERROR, "no push with this ID"),
        (Role::Client, of_server(frame(3, b"\0")), Code::ID_ERROR, "no push with this ID"),
        (Role::Server, on_control(frame(3, b"")), Code::FRAME_ERROR, "ends with its fields"),
        (
            Role::Server,
            on_control(whole(&[frame(13, b"\x05"), frame(13, b"\x04")])),
            Code::ID_ERROR,
            "never reduced",
        ),
        (Role::Client, of_server(frame(13, b"\x05")), Code::FRAME_UNEXPECTED, "the other side sends"),
        (
            Role::Server,
            on_control(whole(&[frame(7, b"\x04"), frame(7, b"\x04"), frame(7, b"\x05")])),
            Code::ID_ERROR,
            "never raised",
        ),
        (Role::Client, of_server(frame(7, b"\x02")), Code::ID_ERROR, "names a request"),
        (Role::Server, on_control(frame(4, &[0; 5000])), Code::FRAME_UNEXPECTED, "SETTINGS come once"),
        (Role::Server, on_control(frame(7, &[0; 5000])), Code::EXCESSIVE_LOAD, "at most 4096"),
        (Role::Server, on_control(frame(0xf0700, b"")), Code::FRAME_ERROR, "ends with its fields"),
        (Role::Server, on_control(frame(0xf0700, b"\x03u=1")), Code::ID_ERROR, "names a request"),
        (Role::Server, on_control(frame(0xf0701, b"\x00u=1")), Code::ID_ERROR, "no push with this ID"),
        (Role::Client, of_server(frame(0xf0700, b"\x00u=1")), Code::FRAME_UNEXPECTED, "the other side"),
        // Requests.
        (Role::Server, on_request(frame(0, b"a")), Code::FRAME_UNEXPECTED, "a message is HEADERS"),
        (Role::Client, on_request(frame(0, b"a")), Code::FRAME_UNEXPECTED, "a message is HEADERS"),
        (
            Role::Server,
            on_request(whole(&[headers(GET), headers("x: y"), frame(0, b"")])),
            Code::FRAME_UNEXPECTED,
            "a message is HEADERS",
        ),
        (
            Role::Client,
            on_request(whole(&[ok(), headers("x: y"), headers("x: y")])),
            Code::FRAME_UNEXPECTED,
            "a message is HEADERS",
        ),
        (Role::Server, on_request(frame(2, b"")), Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (Role::Server, on_request(frame(8, b"")), Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (Role::Server, on_request(frame(9, b"")), Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (Role::Server, on_request(frame(4, b"")), Code::FRAME_UNEXPECTED, "on a control stream"),
        (Role::Server, on_request(frame(7, b"\0")), Code::FRAME_UNEXPECTED, "on a control stream"),
        (Role::Server, on_request(frame(3, b"\0")), Code::FRAME_UNEXPECTED, "on a control stream"),
        (Role::Server, on_request(frame(13, b"\0")), Code::FRAME_UNEXPECTED, "on a control stream"),
        (Role::Server, on_request(frame(0xf0700, b"\0")), Code::FRAME_UNEXPECTED, "on a control stream"),
        (Role::Server, on_request(frame(5, b"\0")), Code::FRAME_UNEXPECTED, "the other side sends"),
        (Role::Client, on_request(frame(5, b"\0")), Code::ID_ERROR, "no push was allowed"),
        (Role::Server, vec![(0, vec![1], true)], Code::FRAME_ERROR, "ended within a frame"),
        (Role::Server, vec![(0, vec![1, 5, 0], true)], Code::FRAME_ERROR, "ended within a frame"),
        (Role::Client, vec![(0, [ok(), vec![0, 2, b'a']].concat(), true)], Code::FRAME_ERROR, "within a"),
        (Role::Server, vec![(0, [headers(GET), vec![0x21, 9]].concat(), true)], Code::FRAME_ERROR, "within"),
        // QPACK.
        (Role::Server, on_request(frame(1, b"")), Code::QPACK_DECOMPRESSION_FAILED, "cannot be decoded"),
        (Role::Server, on_request(frame(1, b"\0\0\x80")), Code::QPACK_DECOMPRESSION_FAILED, "cannot be"),
        (
            Role::Server,
            (0..3).map(|at| (4 * at, frame(1, b"\x02\x00\x80"), false)).collect(),
            Code::QPACK_DECOMPRESSION_FAILED,
            "more streams are blocked",
        ),
        (Role::Server, vec![(6, vec![0x00], false)], Code::QPACK_ENCODER_STREAM_ERROR, "an instruction"),
        (Role::Client, vec![(7, vec![0x3f, 0xff, 0x7f], false)], Code::QPACK_ENCODER_STREAM_ERROR, "fits"),
        (Role::Server, vec![(10, vec![0x80], false)], Code::QPACK_DECODER_STREAM_ERROR, "acknowledged"),
        (Role::Server, vec![(10, vec![0x00], false)], Code::QPACK_DECODER_STREAM_ERROR, "acknowledged"),
        (Role::Client, vec![(11, vec![0x05], false)], Code::QPACK_DECODER_STREAM_ERROR, "acknowledged"),
    ];
    for (role, arrivals, code, words) in rows {
        let (got, rule, offence) = verdict(role, &arrivals).unwrap_or_else(|| panic!("{arrivals:x?} passes"));
        assert_eq!(got, code, "{arrivals:x?}: {rule}");
        assert!(rule.contains(words) && offence.ends_with(rule), "{arrivals:x?}: {offence}");
        // Byte by byte it is no other.
        let in_bytes: Vec<Arrival> = arrivals
            .iter()
            .flat_map(|(id, bytes, is_last)| {
                let last = bytes.len().saturating_sub(1);
                let cut = (0..bytes.len()).map(move |at| (*id, vec![bytes[at]], *is_last && at == last));
                let empty = bytes.is_empty().then(|| (*id, Vec::new(), *is_last));
                cut.chain(empty).collect::<Vec<_>>()
            })
            .collect();
        if in_bytes.iter().all(|(id, ..)| *id == in_bytes[0].0) {
            let mut end = if role == Role::Server { End::server(LIMITS) } else { End::client(LIMITS) };
            if role == Role::Client {
                end.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
            }
            let is_new = match role {
                Role::Server => ![2, 6, 10].contains(&in_bytes[0].0),
                Role::Client => ![3, 7, 11, 0].contains(&in_bytes[0].0),
            };
            let mut outcome = Ok(());
            if is_new {
                outcome = end.connection.accept(in_bytes[0].0, NOW);
            }
            for (id, bytes, is_last) in &in_bytes {
                outcome = outcome.and_then(|()| end.receive(*id, bytes, *is_last));
            }
            assert_eq!(outcome.map_err(|broken| broken.code), Err(code), "{arrivals:x?}");
        }
    }
}

#[test]
fn settings_come_first_and_are_valid() {
    for (bytes, code) in [
        (&b"\x00\x07\x01\x00"[..], Code::MISSING_SETTINGS),
        (b"\x00\x21\x00", Code::MISSING_SETTINGS),
        (b"\x00\x00\x00", Code::MISSING_SETTINGS),
        (b"\x00\x04\x02\x02\x00", Code::SETTINGS_ERROR),
        (b"\x00\x04\x04\x06\x00\x06\x00", Code::SETTINGS_ERROR),
        (b"\x00\x04\x01\x06", Code::FRAME_ERROR),
        (b"\x00\x04\x50\x01", Code::EXCESSIVE_LOAD),
    ] {
        let mut server = End::new(Role::Server, LIMITS);
        let outcome = server.hear(2, bytes, false);
        assert_eq!(outcome.map_err(|broken| broken.code), Err(code), "{bytes:x?}");
        assert!(!server.connection.has_begun());
    }
    // Requests and instructions may overtake them.
    let mut server = End::new(Role::Server, LIMITS);
    server.hear(0, &headers(GET), true).unwrap();
    server.hear(6, b"\x02\x20", false).unwrap();
    assert_eq!(server.opened.len(), 1);
}

#[test]
fn critical_streams_are_not_reset_or_stopped() {
    for (id, is_reset) in [(2, true), (6, true), (10, true), (3, false), (7, false), (11, false)] {
        let mut server = End::server(LIMITS);
        let connection = &mut server.connection;
        let outcome = match is_reset {
            true => connection.reset_received(id, Code::NO_ERROR, NOW),
            false => connection.stop_received(id, Code::NO_ERROR, NOW),
        };
        assert_eq!(outcome.map_err(|broken| broken.code), Err(Code::CLOSED_CRITICAL_STREAM), "{id}");
    }
    // RFC 9114 §6.2: one whose kind has not come may be.
    let mut server = End::server(LIMITS);
    server.hear(14, b"", false).unwrap();
    assert_eq!(server.connection.reset_received(14, Code::NO_ERROR, NOW), Ok(()));
}

#[test]
fn all_of_the_codes_have_names() {
    let codes = [
        Code::NO_ERROR,
        Code::GENERAL_PROTOCOL_ERROR,
        Code::INTERNAL_ERROR,
        Code::STREAM_CREATION_ERROR,
        Code::CLOSED_CRITICAL_STREAM,
        Code::FRAME_UNEXPECTED,
        Code::FRAME_ERROR,
        Code::EXCESSIVE_LOAD,
        Code::ID_ERROR,
        Code::SETTINGS_ERROR,
        Code::MISSING_SETTINGS,
        Code::REQUEST_REJECTED,
        Code::REQUEST_CANCELLED,
        Code::REQUEST_INCOMPLETE,
        Code::MESSAGE_ERROR,
        Code::QPACK_DECOMPRESSION_FAILED,
        Code::QPACK_ENCODER_STREAM_ERROR,
        Code::QPACK_DECODER_STREAM_ERROR,
    ];
    for code in codes {
        assert!(code.to_string().starts_with("H3_") || code.to_string().starts_with("QPACK_"), "{code}");
    }
}
