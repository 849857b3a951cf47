//! Conversations with a server that sends the bytes of a test.

use std::time::Instant;

use ::http::Request;
use bytes::Bytes;
use proptest::prelude::*;

use super::connection::{H2LoadConnection, H2LoadRequest, H2StreamFailure};
use super::encode::CommonFields;
use super::frame::{self, H2Code, HEAD_BYTES, LoadFrameHead};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::push(&mut out, kind, flags, stream, payload);
    out
}

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let setting = |&(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(frame::SETTINGS, 0, 0, &settings.iter().flat_map(setting).collect::<Vec<_>>())
}

/// A head with the status 200, and other fields as literals.
fn ok(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(frame::HEADERS, flags | frame::END_HEADERS, stream, &block(fields))
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0x88];
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn data(stream: u32, flags: u8, content: &[u8]) -> Vec<u8> {
    frame(frame::DATA, flags, stream, content)
}

/// Takes the frames that a connection sends.
fn sent(connection: &mut H2LoadConnection) -> Vec<(LoadFrameHead, Vec<u8>)> {
    let out = std::mem::take(&mut connection.out);
    let mut rest = out.strip_prefix(frame::PREFACE).unwrap_or(&out);
    let mut frames = Vec::new();
    while let Some(head) = rest.first_chunk() {
        let head = LoadFrameHead::read(head);
        let (payload, behind) = rest[HEAD_BYTES..].split_at(head.bytes);
        frames.push((head, payload.to_vec()));
        rest = behind;
    }
    frames
}

fn kinds(connection: &mut H2LoadConnection) -> Vec<(u8, u32)> {
    sent(connection).iter().map(|(head, _)| (head.kind, head.stream)).collect()
}

/// Sends a request in each place, with a body of this size.
fn asking(places: usize, method: &str, body_bytes: usize) -> H2LoadConnection {
    let mut connection = H2LoadConnection::new(places);
    for place in 0..places {
        ask(&mut connection, place, method, body_bytes);
    }
    connection
}

fn ask(connection: &mut H2LoadConnection, place: usize, method: &str, body_bytes: usize) {
    let head = Request::builder().method(method).uri("http://a.test/").body(()).expect("a head");
    let common = CommonFields::from_heads([&head].into_iter());
    let (block, is_head) = (common.block(&head), method == "HEAD");
    let body = Bytes::from(vec![b'x'; body_bytes]);
    let common = &common;
    connection.ask(
        place,
        H2LoadRequest {
            common,
            block: &block,
            body,
            is_head,
            keeps_fields: false,
            observer: crate::watch::Observer::default(),
        },
    );
}

/// The result of a place: the bytes of its body, or its failure.
fn told(connection: &mut H2LoadConnection, place: usize) -> Option<Result<u64, H2StreamFailure>> {
    connection.take(place).map(|result| result.map(|received| received.page.body_bytes))
}

/// The result of a GET when the server sends these bytes, and whether the connection continues.
fn answered(bytes: &[u8]) -> (Option<Result<u64, H2StreamFailure>>, bool) {
    let mut connection = asking(1, "GET", 0);
    let goes_on = connection.receive(bytes, Instant::now());
    (told(&mut connection, 0), goes_on)
}

#[test]
fn responses_of_all_shapes_are_complete() {
    let padded = |kind, flags, content: &[u8]| {
        let payload = [&[3], content, &[0; 3]].concat();
        frame(kind, flags | frame::PADDED, 1, &payload)
    };
    let (first, rest) = (&block(&[("a", "b")])[..2], &block(&[("a", "b")])[2..]);
    let good: [(&str, Vec<u8>, u64); 9] = [
        ("a head alone", ok(1, frame::END_STREAM, &[]), 0),
        ("with its length", [ok(1, 0, &[("content-length", "5")]), data(1, 1, b"hello")].concat(), 5),
        ("in pieces", [ok(1, 0, &[]), data(1, 0, b"he"), data(1, 0, b""), data(1, 1, b"llo")].concat(), 5),
        ("an empty end", [ok(1, 0, &[]), data(1, 0, b"hello"), data(1, 1, b"")].concat(), 5),
        (
            "padding",
            [padded(frame::HEADERS, frame::END_HEADERS, &block(&[])), padded(frame::DATA, 1, b"hello")]
                .concat(),
            5,
        ),
        ("a priority", frame(frame::HEADERS, 0x25, 1, &[&[0, 0, 0, 0, 9][..], &block(&[])].concat()), 0),
        (
            "a head in two frames",
            [frame(frame::HEADERS, 1, 1, first), frame(frame::CONTINUATION, 4, 1, rest)].concat(),
            0,
        ),
        (
            "an interim response, and trailers",
            [
                frame(frame::HEADERS, 4, 1, b"\x08\x03103"),
                ok(1, 0, &[]),
                data(1, 0, b"hello"),
                frame(frame::HEADERS, 5, 1, b"\x00\x01a\x01b"),
            ]
            .concat(),
            5,
        ),
        ("what is not known before it", [frame(0x42, 0xff, 1, b"?"), ok(1, 1, &[])].concat(), 0),
    ];
    for (name, bytes, body_bytes) in good {
        assert_eq!(answered(&bytes), (Some(Ok(body_bytes)), true), "{name}");
    }
    let mut head = asking(1, "HEAD", 0);
    head.receive(&ok(1, 1, &[("content-length", "5")]), Instant::now());
    assert_eq!(told(&mut head, 0), Some(Ok(0)));
}

#[test]
fn rfc_9113_8_1_1_malformed_responses_are_errors_of_their_stream() {
    let malformed: [(&str, Vec<u8>); 7] = [
        ("content before a head", data(1, 1, b"hello")),
        ("too short", [ok(1, 0, &[("content-length", "6")]), data(1, 1, b"hello")].concat()),
        ("too long", [ok(1, 0, &[("content-length", "4")]), data(1, 1, b"hello")].concat()),
        ("no status", frame(frame::HEADERS, 5, 1, b"\x00\x01a\x01b")),
        ("an end in an interim response", frame(frame::HEADERS, 5, 1, b"\x08\x03103")),
        ("101", frame(frame::HEADERS, 4, 1, b"\x08\x03101")),
        (
            "trailers that end nothing",
            [ok(1, 0, &[]), frame(frame::HEADERS, 4, 1, b"\x00\x01a\x01b")].concat(),
        ),
    ];
    for (name, bytes) in malformed {
        let mut connection = asking(2, "GET", 0);
        sent(&mut connection);
        assert!(connection.receive(&[bytes, ok(3, 1, &[])].concat(), Instant::now()), "{name}");
        assert!(matches!(told(&mut connection, 0), Some(Err(H2StreamFailure::Malformed(_)))), "{name}");
        assert_eq!((told(&mut connection, 1), kinds(&mut connection)), (Some(Ok(0)), vec![(3, 1)]), "{name}");
    }
}

#[test]
fn what_breaks_the_connection_ends_it_with_its_code() {
    let broken: [(&str, Vec<u8>, H2Code); 12] = [
        ("a frame too long", frame(0x42, 0, 0, &[0; 16_385]), H2Code::FRAME_SIZE_ERROR),
        ("a block that is none", frame(frame::HEADERS, 4, 1, b"\x80"), H2Code::COMPRESSION_ERROR),
        ("a stream of nobody's", ok(3, 1, &[]), H2Code::PROTOCOL_ERROR),
        ("an even stream", data(2, 1, b""), H2Code::PROTOCOL_ERROR),
        ("a push", frame(frame::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]), H2Code::PROTOCOL_ERROR),
        (
            "a block that is not continued",
            [frame(1, 0, 1, b"\x88"), ok(1, 1, &[])].concat(),
            H2Code::PROTOCOL_ERROR,
        ),
        ("a continuation of nothing", frame(frame::CONTINUATION, 4, 1, b"\x88"), H2Code::PROTOCOL_ERROR),
        ("padding beyond the frame", frame(frame::DATA, 8, 1, &[9, 0]), H2Code::PROTOCOL_ERROR),
        ("half a PING", frame(frame::PING, 0, 0, &[0; 4]), H2Code::FRAME_SIZE_ERROR),
        ("half a setting", frame(frame::SETTINGS, 0, 0, &[0; 4]), H2Code::FRAME_SIZE_ERROR),
        ("a window of 2^31", settings(&[(4, 1 << 31)]), H2Code::FLOW_CONTROL_ERROR),
        (
            "a window beyond it",
            frame(frame::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]),
            H2Code::FLOW_CONTROL_ERROR,
        ),
    ];
    for (name, bytes, code) in broken {
        let mut connection = asking(1, "GET", 0);
        sent(&mut connection);
        assert!(!connection.receive(&bytes, Instant::now()) && connection.is_over(), "{name}");
        assert!(matches!(told(&mut connection, 0), Some(Err(H2StreamFailure::Malformed(_)))), "{name}");
        let last = sent(&mut connection).pop().expect("a GOAWAY");
        assert_eq!((last.0.kind, &last.1[4..]), (frame::GOAWAY, &code.0.to_be_bytes()[..]), "{name}");
    }
}

#[test]
fn rfc_9113_6_8_streams_beyond_the_last_were_not_processed() {
    let mut connection = asking(3, "GET", 0);
    let away = frame(frame::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
    let reset = frame(frame::RST_STREAM, 0, 1, &[0, 0, 0, 2]);
    assert!(connection.receive(&[away, ok(3, 1, &[]), reset].concat(), Instant::now()));
    assert_eq!(connection.ended, [2, 1, 0]);
    assert_eq!(told(&mut connection, 0), Some(Err(H2StreamFailure::Reset(H2Code(2)))));
    assert_eq!(told(&mut connection, 1), Some(Ok(0)));
    assert_eq!(told(&mut connection, 2), Some(Err(H2StreamFailure::GoAway(H2Code::NO_ERROR))));
    assert!(connection.is_over());
    let mut lost = asking(2, "GET", 0);
    lost.receive(&ok(3, 0, &[]), Instant::now());
    lost.lose();
    assert_eq!(told(&mut lost, 0), Some(Err(H2StreamFailure::Lost { is_begun: false })));
    assert_eq!(told(&mut lost, 1), Some(Err(H2StreamFailure::Lost { is_begun: true })));
}

#[test]
fn frames_of_a_stream_that_was_given_up_are_ignored() {
    let mut connection = asking(1, "GET", 0);
    let first = [ok(1, 0, &[]), data(1, 1, b"hello")].concat();
    assert!(connection.receive(&first[..first.len() - 2], Instant::now()));
    connection.cancel(0);
    ask(&mut connection, 0, "GET", 0);
    let rest = [&first[first.len() - 2..], &data(1, 1, b"x"), &ok(3, 0, &[]), &data(3, 1, b"hi")].concat();
    assert!(connection.receive(&rest, Instant::now()));
    assert_eq!(told(&mut connection, 0), Some(Ok(2)));
}

#[test]
fn bodies_are_sent_as_far_as_the_windows_reach() {
    let data_bytes = |connection: &mut H2LoadConnection| {
        let frames = sent(connection);
        let data = frames.iter().filter(|(head, _)| head.kind == frame::DATA);
        (
            data.clone().map(|(head, _)| head.bytes).sum::<usize>(),
            data.filter(|(head, _)| head.flags == 1).count(),
        )
    };
    let mut connection = asking(2, "POST", 50_000);
    assert_eq!(data_bytes(&mut connection), (65_535, 1), "the window of the connection");
    let more = |stream: u32, bytes: u32| frame(frame::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    assert!(connection.receive(&more(0, 10_000), Instant::now()));
    assert_eq!(data_bytes(&mut connection), (10_000, 0));
    assert!(connection.receive(&[settings(&[(4, 40_000)]), more(0, 1 << 20)].concat(), Instant::now()));
    assert_eq!(data_bytes(&mut connection), (40_000 - (75_535 - 50_000), 0), "a smaller window of streams");
    assert!(connection.receive(&more(3, 10_000), Instant::now()));
    assert_eq!(data_bytes(&mut connection), (10_000, 1));
    // RFC 9113 §8.1: a response before the end of the request.
    let mut early = asking(1, "POST", 100_000);
    sent(&mut early);
    assert!(early.receive(&ok(1, 1, &[]), Instant::now()));
    assert_eq!((told(&mut early, 0), kinds(&mut early)), (Some(Ok(0)), vec![(frame::RST_STREAM, 1)]));
}

#[test]
fn settings_and_pings_are_acknowledged_and_windows_opened_again() {
    let mut connection = asking(1, "GET", 0);
    assert_eq!(connection.most(), 0);
    assert_eq!(kinds(&mut connection), [(4, 0), (8, 0), (1, 1)]);
    assert!(
        connection.receive(&[settings(&[]), frame(frame::PING, 0, 0, b"12345678")].concat(), Instant::now())
    );
    assert_eq!((connection.most(), kinds(&mut connection)), (usize::MAX, vec![(4, 0), (6, 0)]));
    assert!(connection.receive(&settings(&[(3, 7)]), Instant::now()));
    assert_eq!((connection.most(), kinds(&mut connection)), (7, vec![(4, 0)]));
    connection.receive(&ok(1, 0, &[]), Instant::now());
    let piece = data(1, 0, &[0; 16_384]);
    let updates: Vec<_> = (0..4096)
        .flat_map(|_| {
            assert!(connection.receive(&piece, Instant::now()));
            sent(&mut connection)
        })
        .map(|(head, payload)| (head.stream, u32::from_be_bytes(payload.try_into().expect("a number"))))
        .collect();
    let told =
        |stream| updates.iter().filter(|(other, _)| *other == stream).map(|(_, bytes)| bytes).sum::<u32>();
    assert_eq!((told(0), told(1)), (64 << 20, 64 << 20));
}

#[test]
fn rfc_7541_4_2_a_smaller_table_is_announced_and_not_used() {
    let mut connection = H2LoadConnection::new(1);
    assert!(connection.receive(&settings(&[(1, 0)]), Instant::now()));
    sent(&mut connection);
    for number in 0..2 {
        ask(&mut connection, 0, "GET", 0);
        let (_, block) = sent(&mut connection).remove(0);
        // The authority is a literal each time.
        assert_eq!(block.starts_with(&[0x20]), number == 0, "{block:x?}");
        assert!(block.windows(6).any(|bytes| bytes[0] == 0x01), "{block:x?}");
        connection.cancel(0);
        sent(&mut connection);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_of_the_bytes_reads_alike(cuts in prop::collection::vec(0usize..200, 0..12)) {
        let bytes = [
            settings(&[(3, 100)]),
            ok(3, 0, &[("content-length", "5")]),
            frame(frame::HEADERS, 0, 1, b"\x88\x00\x01"),
            frame(frame::CONTINUATION, 4, 1, b"a\x01b"),
            data(3, 0, b"he"),
            data(1, frame::PADDED, b"\x01xy\x00"),
            frame(frame::PING, 0, 0, b"12345678"),
            data(3, 1, b"llo"),
            data(1, 1, b"z"),
        ]
        .concat();
        let mut connection = asking(2, "GET", 0);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let mut start = 0;
        for cut in cuts {
            prop_assert!(connection.receive(&bytes[start..cut], Instant::now()));
            start = cut;
        }
        prop_assert_eq!((told(&mut connection, 0), told(&mut connection, 1)), (Some(Ok(3)), Some(Ok(5))));
    }

    #[test]
    fn any_bytes_are_read_to_an_end(pieces: Vec<Vec<u8>>) {
        let mut connection = asking(2, "GET", 0);
        let mut goes_on = true;
        for piece in pieces {
            goes_on = goes_on && connection.receive(&piece, Instant::now());
        }
    }
}
