//! Connection errors: each rule, with its code.

use http3::{H3Code, H3ErrorCause, H3Role};

use crate::ends::{End, GET, LIMITS, NOW, frame, headers};

/// Stream, received bytes, and whether the stream ends with them.
type Arrival = (u64, Vec<u8>, bool);

/// The code that closes the connection, and the broken rule.
fn verdict(role: H3Role, arrivals: &[Arrival]) -> Option<(H3Code, &'static str, String)> {
    let mut end = match role {
        H3Role::Server => End::server(LIMITS),
        H3Role::Client => End::client(LIMITS),
    };
    if role == H3Role::Client {
        end.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
    }
    let known: &[u64] = if role == H3Role::Server { &[2, 6, 10] } else { &[3, 7, 11, 0] };
    for (id, bytes, is_last) in arrivals {
        let outcome = match known.contains(id) {
            true => end.receive(*id, bytes, *is_last),
            false => end.hear(*id, bytes, *is_last),
        };
        if let Err(broken) = outcome {
            let H3ErrorCause::Malformed(rule) = broken.cause else { panic!("no flood: {broken:?}") };
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
    let rows: Vec<(H3Role, Vec<Arrival>, H3Code, &str)> = vec![
        // Streams.
        (H3Role::Client, vec![(1, vec![], false)], H3Code::STREAM_CREATION_ERROR, "bidirectional"),
        (H3Role::Server, vec![(14, vec![0], false)], H3Code::STREAM_CREATION_ERROR, "one control stream"),
        (H3Role::Server, vec![(14, vec![2], false)], H3Code::STREAM_CREATION_ERROR, "one control stream"),
        (H3Role::Server, vec![(14, vec![3], false)], H3Code::STREAM_CREATION_ERROR, "one control stream"),
        (H3Role::Server, vec![(14, vec![1, 0], false)], H3Code::STREAM_CREATION_ERROR, "only servers push"),
        (H3Role::Client, vec![(15, vec![1, 0], false)], H3Code::ID_ERROR, "no push was allowed"),
        (H3Role::Server, vec![(2, vec![], true)], H3Code::CLOSED_CRITICAL_STREAM, "stay open"),
        (H3Role::Server, vec![(6, vec![], true)], H3Code::CLOSED_CRITICAL_STREAM, "stay open"),
        (H3Role::Client, vec![(11, vec![], true)], H3Code::CLOSED_CRITICAL_STREAM, "stay open"),
        // Control streams.
        (H3Role::Server, on_control(frame(4, b"")), H3Code::FRAME_UNEXPECTED, "SETTINGS come once"),
        (H3Role::Server, on_control(frame(0, b"")), H3Code::FRAME_UNEXPECTED, "does not belong on a control"),
        (H3Role::Server, on_control(headers(GET)), H3Code::FRAME_UNEXPECTED, "does not belong on a control"),
        (
            H3Role::Server,
            on_control(frame(5, b"\0")),
            H3Code::FRAME_UNEXPECTED,
            "does not belong on a control",
        ),
        (H3Role::Server, on_control(frame(6, b"")), H3Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (H3Role::Server, on_control(frame(7, b"")), H3Code::FRAME_ERROR, "ends with its fields"),
        (H3Role::Server, on_control(frame(7, b"\0\0")), H3Code::FRAME_ERROR, "ends with its fields"),
        (H3Role::Server, on_control(frame(7, b"\x40")), H3Code::FRAME_ERROR, "ends with its fields"),
        (H3Role::Server, on_control(frame(3, b"\0")), H3Code::ID_ERROR, "no push with this ID"),
        (H3Role::Client, of_server(frame(3, b"\0")), H3Code::ID_ERROR, "no push with this ID"),
        (H3Role::Server, on_control(frame(3, b"")), H3Code::FRAME_ERROR, "ends with its fields"),
        (
            H3Role::Server,
            on_control(whole(&[frame(13, b"\x05"), frame(13, b"\x04")])),
            H3Code::ID_ERROR,
            "never reduced",
        ),
        (H3Role::Client, of_server(frame(13, b"\x05")), H3Code::FRAME_UNEXPECTED, "the other side sends"),
        (
            H3Role::Server,
            on_control(whole(&[frame(7, b"\x04"), frame(7, b"\x04"), frame(7, b"\x05")])),
            H3Code::ID_ERROR,
            "never raised",
        ),
        (H3Role::Client, of_server(frame(7, b"\x02")), H3Code::ID_ERROR, "names a request"),
        (H3Role::Server, on_control(frame(4, &[0; 5000])), H3Code::FRAME_UNEXPECTED, "SETTINGS come once"),
        (H3Role::Server, on_control(frame(7, &[0; 5000])), H3Code::EXCESSIVE_LOAD, "at most 4096"),
        (H3Role::Server, on_control(frame(0xf0700, b"")), H3Code::FRAME_ERROR, "ends with its fields"),
        (H3Role::Server, on_control(frame(0xf0700, b"\x03u=1")), H3Code::ID_ERROR, "names a request"),
        (H3Role::Server, on_control(frame(0xf0701, b"\x00u=1")), H3Code::ID_ERROR, "no push with this ID"),
        (H3Role::Client, of_server(frame(0xf0700, b"\x00u=1")), H3Code::FRAME_UNEXPECTED, "the other side"),
        // Requests.
        (H3Role::Server, on_request(frame(0, b"a")), H3Code::FRAME_UNEXPECTED, "a message is HEADERS"),
        (H3Role::Client, on_request(frame(0, b"a")), H3Code::FRAME_UNEXPECTED, "a message is HEADERS"),
        (
            H3Role::Server,
            on_request(whole(&[headers(GET), headers("x: y"), frame(0, b"")])),
            H3Code::FRAME_UNEXPECTED,
            "a message is HEADERS",
        ),
        (
            H3Role::Client,
            on_request(whole(&[ok(), headers("x: y"), headers("x: y")])),
            H3Code::FRAME_UNEXPECTED,
            "a message is HEADERS",
        ),
        (H3Role::Server, on_request(frame(2, b"")), H3Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (H3Role::Server, on_request(frame(8, b"")), H3Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (H3Role::Server, on_request(frame(9, b"")), H3Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame"),
        (H3Role::Server, on_request(frame(4, b"")), H3Code::FRAME_UNEXPECTED, "on a control stream"),
        (H3Role::Server, on_request(frame(7, b"\0")), H3Code::FRAME_UNEXPECTED, "on a control stream"),
        (H3Role::Server, on_request(frame(3, b"\0")), H3Code::FRAME_UNEXPECTED, "on a control stream"),
        (H3Role::Server, on_request(frame(13, b"\0")), H3Code::FRAME_UNEXPECTED, "on a control stream"),
        (H3Role::Server, on_request(frame(0xf0700, b"\0")), H3Code::FRAME_UNEXPECTED, "on a control stream"),
        (H3Role::Server, on_request(frame(5, b"\0")), H3Code::FRAME_UNEXPECTED, "the other side sends"),
        (H3Role::Client, on_request(frame(5, b"\0")), H3Code::ID_ERROR, "no push was allowed"),
        (H3Role::Server, vec![(0, vec![1], true)], H3Code::FRAME_ERROR, "ended within a frame"),
        (H3Role::Server, vec![(0, vec![1, 5, 0], true)], H3Code::FRAME_ERROR, "ended within a frame"),
        (H3Role::Client, vec![(0, [ok(), vec![0, 2, b'a']].concat(), true)], H3Code::FRAME_ERROR, "within a"),
        (
            H3Role::Server,
            vec![(0, [headers(GET), vec![0x21, 9]].concat(), true)],
            H3Code::FRAME_ERROR,
            "within",
        ),
        // QPACK.
        (H3Role::Server, on_request(frame(1, b"")), H3Code::QPACK_DECOMPRESSION_FAILED, "cannot be decoded"),
        (H3Role::Server, on_request(frame(1, b"\0\0\x80")), H3Code::QPACK_DECOMPRESSION_FAILED, "cannot be"),
        (
            H3Role::Server,
            (0..3).map(|at| (4 * at, frame(1, b"\x02\x00\x80"), false)).collect(),
            H3Code::QPACK_DECOMPRESSION_FAILED,
            "more streams are blocked",
        ),
        (H3Role::Server, vec![(6, vec![0x00], false)], H3Code::QPACK_ENCODER_STREAM_ERROR, "an instruction"),
        (
            H3Role::Client,
            vec![(7, vec![0x3f, 0xff, 0x7f], false)],
            H3Code::QPACK_ENCODER_STREAM_ERROR,
            "fits",
        ),
        (H3Role::Server, vec![(10, vec![0x80], false)], H3Code::QPACK_DECODER_STREAM_ERROR, "acknowledged"),
        (H3Role::Server, vec![(10, vec![0x00], false)], H3Code::QPACK_DECODER_STREAM_ERROR, "acknowledged"),
        (H3Role::Client, vec![(11, vec![0x05], false)], H3Code::QPACK_DECODER_STREAM_ERROR, "acknowledged"),
    ];
    for (role, arrivals, code, words) in rows {
        let (got, rule, offence) = verdict(role, &arrivals).unwrap_or_else(|| panic!("{arrivals:x?} passes"));
        assert_eq!(got, code, "{arrivals:x?}: {rule}");
        assert!(rule.contains(words) && offence.ends_with(rule), "{arrivals:x?}: {offence}");
        // Splitting into single bytes does not change the result.
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
            let mut end = if role == H3Role::Server { End::server(LIMITS) } else { End::client(LIMITS) };
            if role == H3Role::Client {
                end.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
            }
            let is_new = match role {
                H3Role::Server => ![2, 6, 10].contains(&in_bytes[0].0),
                H3Role::Client => ![3, 7, 11, 0].contains(&in_bytes[0].0),
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
        (&b"\x00\x07\x01\x00"[..], H3Code::MISSING_SETTINGS),
        (b"\x00\x21\x00", H3Code::MISSING_SETTINGS),
        (b"\x00\x00\x00", H3Code::MISSING_SETTINGS),
        (b"\x00\x04\x02\x02\x00", H3Code::SETTINGS_ERROR),
        (b"\x00\x04\x04\x06\x00\x06\x00", H3Code::SETTINGS_ERROR),
        (b"\x00\x04\x01\x06", H3Code::FRAME_ERROR),
        (b"\x00\x04\x50\x01", H3Code::EXCESSIVE_LOAD),
    ] {
        let mut server = End::new(H3Role::Server, LIMITS);
        let outcome = server.hear(2, bytes, false);
        assert_eq!(outcome.map_err(|broken| broken.code), Err(code), "{bytes:x?}");
        assert!(!server.connection.has_begun());
    }
    // Requests and instructions may arrive before the settings.
    let mut server = End::new(H3Role::Server, LIMITS);
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
            true => connection.reset_received(id, H3Code::NO_ERROR, NOW),
            false => connection.stop_received(id, H3Code::NO_ERROR, NOW),
        };
        assert_eq!(outcome.map_err(|broken| broken.code), Err(H3Code::CLOSED_CRITICAL_STREAM), "{id}");
    }
    // RFC 9114 §6.2: a stream may be reset before its type has arrived.
    let mut server = End::server(LIMITS);
    server.hear(14, b"", false).unwrap();
    assert_eq!(server.connection.reset_received(14, H3Code::NO_ERROR, NOW), Ok(()));
}

#[test]
fn all_of_the_codes_have_names() {
    let codes = [
        H3Code::NO_ERROR,
        H3Code::GENERAL_PROTOCOL_ERROR,
        H3Code::INTERNAL_ERROR,
        H3Code::STREAM_CREATION_ERROR,
        H3Code::CLOSED_CRITICAL_STREAM,
        H3Code::FRAME_UNEXPECTED,
        H3Code::FRAME_ERROR,
        H3Code::EXCESSIVE_LOAD,
        H3Code::ID_ERROR,
        H3Code::SETTINGS_ERROR,
        H3Code::MISSING_SETTINGS,
        H3Code::REQUEST_REJECTED,
        H3Code::REQUEST_CANCELLED,
        H3Code::REQUEST_INCOMPLETE,
        H3Code::MESSAGE_ERROR,
        H3Code::QPACK_DECOMPRESSION_FAILED,
        H3Code::QPACK_ENCODER_STREAM_ERROR,
        H3Code::QPACK_DECODER_STREAM_ERROR,
    ];
    for code in codes {
        assert!(code.to_string().starts_with("H3_") || code.to_string().starts_with("QPACK_"), "{code}");
    }
}
