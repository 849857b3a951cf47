//! Requests and responses, split in every way.

use http3::{H3Event, H3Limits, H3Role, Priority, WireScheme};
use proptest::prelude::*;

use crate::ends::{End, GET, LIMITS, POST, Pair, frame, headers};

/// A client sends `request` (head and body), the server answers, and both read as bytes arrive. Returns both texts.
fn exchange(pair: &mut Pair, id: u64, request: (&str, &str), response: &[(&str, &str)]) -> [String; 2] {
    let (head, body) = request;
    let key = pair.client.ask(id, head, body.is_empty());
    let mut said = [String::new(), String::new()];
    let mut ends = [false, false];
    let opened = pair.server.opened.len();
    let mut rest = body.as_bytes();
    let mut answered = 0;
    let mut to_answer: Option<&[u8]> = None;
    for _ in 0..100_000 {
        pair.client.flush();
        if !rest.is_empty() {
            let count = pair.client.write(key, rest, true);
            rest = &rest[count..];
        }
        pair.pass();
        let Some(&server_key) = pair.server.opened.get(opened) else { continue };
        if !ends[0] {
            let (text, end) = pair.server.read(server_key);
            said[0] += &text;
            ends[0] = end == Some(true);
        }
        if ends[0] && answered < response.len() {
            let (head, body) = response[answered];
            match to_answer {
                None => {
                    let is_last = body.is_empty();
                    pair.server.answer(server_key, head, is_last);
                    to_answer = Some(body.as_bytes());
                }
                Some([]) => {
                    answered += 1;
                    to_answer = None;
                }
                Some(bytes) => {
                    let count = pair.server.write(server_key, bytes, true);
                    to_answer = Some(&bytes[count..]);
                }
            }
        }
        if !ends[1] {
            let (text, end) = pair.client.read(key);
            said[1] += &text;
            ends[1] = end == Some(true);
        }
        if ends == [true, true] {
            pair.server.connection.release(server_key);
            pair.client.connection.release(key);
            pair.pass();
            assert_eq!([pair.server.connection.held(), pair.client.connection.held()], [0, 0]);
            return said;
        }
    }
    panic!("it does not end: {said:?}");
}

#[test]
fn messages_are_the_text_of_http_1() {
    type Message = (&'static str, &'static str);
    let rows: [(Message, &[Message], [&str; 2]); 5] = [
        (
            ("GET /a?b HTTP/1.1\r\nHost: a\r\nCookie: x=y\r\n\r\n", ""),
            &[("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "hi")],
            [
                "GET /a?b HTTP/1.1\r\nhost: a\r\ncookie: x=y\r\n\r\n",
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
            ],
        ),
        (
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "abc"),
            &[("HTTP/1.1 200 OK\r\nServer: x\r\n\r\n", "hello")],
            [
                "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                "HTTP/1.1 200 OK\r\nserver: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ],
        ),
        (
            ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "abc"),
            &[
                ("HTTP/1.1 100 Continue\r\n\r\n", ""),
                ("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", ""),
                ("HTTP/1.1 404 Not Found\r\n\r\n", ""),
            ],
            [
                "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n\
                 HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            ],
        ),
        (
            ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", ""),
            &[("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "")],
            ["HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"],
        ),
        (
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", ""),
            &[("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", "")],
            ["OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n"],
        ),
    ];
    for piece in [1, 7, usize::MAX] {
        let mut pair = Pair::new(LIMITS, piece);
        for (at, (request, response, said)) in rows.iter().enumerate() {
            if piece == 1 && request.1.is_empty() {
                // If the end of the stream arrives separately, the request already counts as one with a body.
                continue;
            }
            let got = exchange(&mut pair, 4 * at as u64, *request, response);
            assert_eq!(got, said.map(str::to_owned), "{request:?} in pieces of {piece}");
        }
        assert!(pair.client.connection.has_begun() && pair.server.connection.has_begun());
    }
}

#[test]
fn trailers_end_a_body() {
    let mut pair = Pair::new(LIMITS, usize::MAX);
    let key = pair.client.ask(0, "POST / HTTP/1.1\r\nHost: a\r\n\r\n", false);
    pair.client.write(key, b"ab", false);
    pair.client.connection.end(key, b"X-Sum: 1\r\n").unwrap();
    pair.pass();
    let server_key = pair.server.opened[0];
    let expected =
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx-sum: 1\r\n\r\n";
    assert_eq!(pair.server.read(server_key), (expected.to_owned(), Some(true)));
    pair.server.answer(server_key, "HTTP/1.1 200 OK\r\n\r\n", false);
    pair.server.write(server_key, b"cd", false);
    pair.server.connection.end(server_key, b"X-Sum: 2\r\nConnection: x\r\n").unwrap();
    // The rest is sent even after the stream is released.
    pair.server.connection.release(server_key);
    pair.pass();
    let expected = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\ncd\r\n0\r\nx-sum: 2\r\n\r\n";
    assert_eq!(pair.client.read(key), (expected.to_owned(), Some(true)));
    assert_eq!(pair.server.connection.held(), 0);
}

#[test]
fn websockets_are_extended_connects() {
    let mut pair = Pair::new(LIMITS, usize::MAX);
    pair.pass();
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let key = pair.client.ask(0, upgrade, false);
    pair.pass();
    let server_key = pair.server.opened[0];
    let (text, end) = pair.server.read(server_key);
    let beginning =
        "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: ";
    assert!(text.starts_with(beginning) && end.is_none(), "{text}");
    let switching =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
    pair.server.answer(server_key, switching, false);
    pair.server.write(server_key, b"frames", false);
    pair.client.write(key, b"others", false);
    pair.pass();
    assert_eq!(pair.server.read(server_key), ("others".to_owned(), None));
    let (text, end) = pair.client.read(key);
    assert!(text.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nframes"), "{text}");
    assert_eq!(end, None);
    // RFC 9114 §4.4: only DATA is allowed.
    let trailers = headers("x-sum: 1");
    assert_eq!(pair.server.receive(0, &trailers, false).unwrap_err().code, http3::H3Code::FRAME_UNEXPECTED);
}

#[test]
fn a_success_that_is_no_switch_does_not_hand_over_the_stream() {
    let mut server = End::server(LIMITS);
    let connect = ":method: CONNECT\n:scheme: https\n:authority: a\n:path: /\n:protocol: websocket";
    server.hear(0, &headers(connect), false).unwrap();
    let key = server.opened[0];
    server.answer(key, "HTTP/1.1 200 OK\r\n\r\n", true);
    let sent = server.sent(0);
    assert_eq!((sent.bytes, sent.has_ended), (headers(":status: 502\ncontent-length: 0"), true));
}

#[test]
fn an_upgrade_is_only_an_offer_where_the_server_takes_none() {
    let mut client = End::client(LIMITS);
    client.ask(0, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", true);
    assert_eq!(client.sent(0).bytes, headers(GET));
}

#[test]
fn a_body_is_not_read_on_before_it_is_taken() {
    let mut server = End::server(LIMITS);
    server.hear(0, &headers(POST), false).unwrap();
    let key = server.opened[0];
    server.receive(0, &frame(0, &[b'x'; 2000])[..1003], false).unwrap();
    assert_eq!(server.connection.wanted(0), LIMITS.body_bytes - 1000);
    server.receive(0, &[b'x'; 24], false).unwrap();
    assert_eq!(server.connection.wanted(0), 0);
    server.events.clear();
    let mut buffer = [0; 600];
    let text = server.connection.text_len(key);
    server.connection.read(key, &mut buffer).unwrap();
    server.note();
    assert!(text < 600 && server.events.is_empty());
    server.connection.read(key, &mut buffer).unwrap();
    server.note();
    assert_eq!((&server.events[..], server.connection.wanted(0)), (&[H3Event::Wanted(0)][..], 576));
}

#[test]
fn bodies_of_all_streams_are_bounded_together() {
    let limits = H3Limits { bodies_bytes: 1500, ..LIMITS };
    let mut server = End::server(limits);
    let body = [headers(POST), frame(0, &[b'x'; 1000])].concat();
    server.hear(0, &body, false).unwrap();
    server.hear(4, &headers(POST), false).unwrap();
    assert_eq!(server.connection.wanted(4), 500);
    server.receive(4, &frame(0, &[b'x'; 1000])[..503], false).unwrap();
    assert_eq!([server.connection.wanted(4), server.connection.wanted(0)], [0, 0]);
    server.events.clear();
    server.connection.release(server.opened[0]);
    server.note();
    assert_eq!(server.events, [H3Event::Wanted(4)]);
}

#[test]
fn a_transport_with_little_room_gets_the_same() {
    let said = |room: usize| {
        let mut server = End::server(LIMITS);
        server.hear(0, &headers(GET), true).unwrap();
        let key = server.opened[0];
        server.wire.room = 0;
        server.answer(key, "HTTP/1.1 200 OK\r\nServer: x\r\n\r\n", false);
        let body: Vec<u8> = (0..=255).collect();
        let mut rest = &body[..];
        while !rest.is_empty() {
            server.wire.room = room;
            let count = server.write(key, rest, false);
            rest = &rest[count..];
        }
        server.connection.end(key, b"X-Sum: 1\r\n").unwrap();
        while server.connection.has_unsent() {
            server.wire.room = room;
            server.flush();
        }
        assert_eq!(server.connection.body_sent(key), 256);
        server.sent(0)
    };
    let expected =
        [headers(":status: 200\nserver: x\ntransfer-encoding: x").len(), headers("x-sum: 1").len(), 256];
    let whole = said(usize::MAX);
    assert!(whole.has_ended && whole.bytes.len() <= expected.iter().sum::<usize>() + 8);
    for room in [1, 2, 3, 50] {
        assert_eq!(said(room), whole, "{room}");
    }
}

#[test]
fn a_head_and_a_short_body_are_given_to_the_transport_as_one() {
    let mut server = End::server(LIMITS);
    server.flush();
    server.hear(0, &headers(GET), true).unwrap();
    let key = server.opened[0];
    let written = server.wire.writes;
    let text = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    server.connection.write_head(key, text, false, WireScheme::Https).unwrap();
    assert_eq!(server.write(key, b"short", true), 5);
    assert_eq!(server.wire.writes, written + 1);
    assert!(server.sent(0).has_ended);
}

#[test]
fn bytes_that_are_missing_at_the_end_reset_the_stream() {
    let mut server = End::server(LIMITS);
    server.hear(0, &headers(GET), true).unwrap();
    let key = server.opened[0];
    server.answer(key, "HTTP/1.1 200 OK\r\n\r\n", false);
    server.flush();
    server.wire.room = 10;
    assert!((1..10).contains(&server.write(key, &[b'x'; 2000], false)));
    assert!(server.connection.end(key, b"").is_err());
    assert_eq!(server.sent(0).reset, Some(http3::H3Code::INTERNAL_ERROR));
}

#[test]
fn priorities_come_in_the_request_or_before_or_behind_it() {
    let mut server = End::server(LIMITS);
    let update = |id: u8, value: &str| frame(0xf0700, &[&[id][..], value.as_bytes()].concat());
    let of = |server: &End, at: usize| {
        let Priority { urgency, is_incremental } = server.connection.priority(server.opened[at]);
        (urgency, is_incremental)
    };
    server.receive(2, &update(4, "u=1"), false).unwrap();
    server.receive(2, &update(4, "u=2, i"), false).unwrap();
    server.hear(0, &headers(&format!("{GET}\npriority: u=5, i")), true).unwrap();
    server.hear(4, &headers(&format!("{GET}\npriority: u=6")), true).unwrap();
    server.hear(8, &headers(GET), true).unwrap();
    assert_eq!([0, 1, 2].map(|at| of(&server, at)), [(5, true), (2, true), (3, false)]);
    server.events.clear();
    server.receive(2, &update(0, "u=0"), false).unwrap();
    assert_eq!(server.events, [H3Event::Prioritized(server.opened[0])]);
    assert_eq!(of(&server, 0), (0, false));
    // The field is forwarded as well.
    assert!(server.read(server.opened[1]).0.contains("priority: u=6\r\n"));
    // Updates for ended streams are ignored; only a limited number is kept for future ones.
    server.connection.release(server.opened[2]);
    server.receive(2, &update(8, "u=0"), false).unwrap();
    for _ in 0..100 {
        server.receive(2, &update(12, "u=0"), false).unwrap();
    }
}

#[test]
fn reserved_and_unknown_frames_are_skipped() {
    let mut server = End::server(LIMITS);
    let grease = |n: u64| 0x1f * n + 0x21;
    server.receive(2, &frame(grease(0), b"x"), false).unwrap();
    server.receive(2, &frame(grease(7), b""), false).unwrap();
    // RFC 9297 §2.1: the settings offer no datagrams, so their capsules are ordinary DATA.
    let request = [
        frame(grease(1), &[0; 300]),
        headers(POST),
        frame(grease(9), b""),
        frame(0, b"ab"),
        frame(grease(1000), b"cd"),
        headers("x-sum: 1"),
        frame(grease(2), b"ef"),
    ];
    server.hear(0, &request.concat(), true).unwrap();
    assert!(server.read(server.opened[0]).0.ends_with("\r\n\r\n2\r\nab\r\n0\r\nx-sum: 1\r\n\r\n"));
    server.hear(14, &[0x21, 1, 2, 3], false).unwrap();
    assert_eq!(
        (server.sent(14).stopped, server.connection.wanted(14)),
        (Some(http3::H3Code::STREAM_CREATION_ERROR), 0)
    );
    server.hear(18, &[0x40], true).unwrap();
    server.hear(22, &[0x21], true).unwrap();
}

#[test]
fn fields_may_be_known_before_they_are_acknowledged() {
    let limits = H3Limits { table_bytes: 4096, ..LIMITS };
    let mut pair = Pair::new(limits, usize::MAX);
    pair.pass();
    let mut lens = Vec::new();
    for at in 0..4 {
        let request = ("GET / HTTP/1.1\r\nHost: a\r\nX-Long-Name: a long value of a field\r\n\r\n", "");
        exchange(
            &mut pair,
            4 * at,
            request,
            &[("HTTP/1.1 200 OK\r\nX-Other: another long value\r\n\r\n", "")],
        );
        let [up, down] = [&pair.client, &pair.server].map(|end| end.wire.streams[&(4 * at)].bytes.len());
        lens.push([up, down]);
    }
    assert_eq!(lens, [[38, 25], [9, 6], [9, 6], [9, 6]]);
}

#[test]
fn a_request_waits_for_its_insertions() {
    let mut server = End::server(LIMITS);
    // RFC 9204 §B.2 and the rest of a request. The section needs two insertions, which arrive later, byte by byte.
    let section = b"\x03\x81\x10\x11\xd1\xd7";
    let request = [frame(1, section), frame(0, b"abc")].concat();
    server.hear(0, &request, true).unwrap();
    assert_eq!((server.opened.len(), server.connection.wanted(0)), (0, 0));
    for byte in b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path" {
        server.receive(6, &[*byte], false).unwrap();
    }
    // The path is the second field that the client inserted, behind method and scheme.
    let expected = "GET /sample/path HTTP/1.1\r\nhost: www.example.com\r\ntransfer-encoding: chunked\r\n\r\n\
                    3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(server.read(server.opened[0]), (expected.to_owned(), Some(true)));
    // RFC 9204 §4.4: the section of stream 0 is acknowledged, which acknowledges the insertions, too.
    assert_eq!(server.sent(11).bytes, [3, 0x80]);
}

#[test]
fn a_waiting_request_is_decoded_before_its_fields_are_evicted() {
    for piece in [1, usize::MAX] {
        let mut server = End::server(LIMITS);
        server.hear(0, &frame(1, b"\x02\x80\xd1\xd7\xc1\x10"), true).unwrap();
        // The table has room for one field, and two are inserted.
        let instructions = b"\x3f\x0e\xc0\x01a\xc0\x01b";
        for bytes in instructions.chunks(piece.min(instructions.len())) {
            server.receive(6, bytes, false).unwrap();
        }
        assert!(server.read(server.opened[0]).0.contains("\r\nhost: a\r\n"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn messages_arrive_whole_however_they_are_cut(
        path in "[a-z?=&%]{0,40}",
        values in proptest::collection::vec(("[a-z]{1,9}", "[!-~]([ -~]{0,60}[!-~])?"), 0..6),
        len in 1usize..20_000,
        piece in 2usize..3000,
        table_bytes in 0usize..600,
        blocked_streams in 0usize..4,
    ) {
        let limits = H3Limits { table_bytes, blocked_streams, ..LIMITS };
        let mut pair = Pair::new(limits, piece);
        let body: String = (0..len).map(|at| char::from(b'a' + (at % 25) as u8)).collect();
        let [lines, seen] = [true, false].map(|is_upper| {
            let line = |(name, value): &(String, String)| {
                let name = if is_upper { name.to_uppercase() } else { name.clone() };
                format!("{}{name}: {value}\r\n", if is_upper { "X-" } else { "x-" })
            };
            values.iter().map(line).collect::<String>()
        });
        for id in [0, 4, 8] {
            let request = format!("POST /{path} HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {len}\r\n\r\n");
            let response = format!("HTTP/1.1 418 \r\n{lines}Content-Length: {len}\r\n\r\n");
            let got = exchange(&mut pair, id, (&request, &body), &[(&response, &body)]);
            let request = format!("POST /{path} HTTP/1.1\r\nhost: a\r\n{seen}content-length: {len}\r\n\r\n{body}");
            let response = format!("HTTP/1.1 418 \r\n{seen}content-length: {len}\r\n\r\n{body}");
            let told = got[1].replacen("I'm a teapot", "", 1).replacen("Unknown", "", 1);
            prop_assert_eq!(&got[0], &request);
            prop_assert!(told.ends_with(&response["HTTP/1.1 418 \r\n".len()..]), "{}", told);
        }
    }

    #[test]
    fn any_bytes_mean_the_same_in_any_pieces(
        streams in proptest::collection::vec(
            (prop_oneof![Just(0u64), Just(4), Just(2), Just(6), Just(10), Just(3), Just(7), Just(11)],
             proptest::collection::vec((0u64..14, proptest::collection::vec(any::<u8>(), 0..30)), 0..6)),
            0..6,
        ),
        piece in 1usize..20,
    ) {
        for role in [H3Role::Server, H3Role::Client] {
            let said = |piece: usize| {
                let mut end = if role == H3Role::Server { End::server(LIMITS) } else { End::client(LIMITS) };
                if role == H3Role::Client {
                    end.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
                } else {
                    end.accept(0);
                }
                let mut outcome = Ok(());
                for (id, frames) in &streams {
                    for (kind, payload) in frames {
                        // Instructions are no frames.
                        let bytes = if id & 2 == 2 && *id > 3 { payload.clone() } else { frame(*kind, payload) };
                        for bytes in bytes.chunks(piece) {
                            outcome = outcome.and_then(|()| end.receive(*id, bytes, false));
                        }
                    }
                }
                end.events.retain(|event| !matches!(event, H3Event::Readable(_)));
                end.flush();
                let acknowledged = [11, 10].map(|id| end.wire.streams.remove(&id));
                (outcome, end.events, end.wire.streams, acknowledged.map(|sent| sent.is_some()))
            };
            prop_assert_eq!(said(piece), said(usize::MAX));
        }
    }
}

#[test]
fn a_head_larger_than_the_peer_allows_is_not_sent() {
    let mut server = End::new(H3Role::Server, LIMITS);
    server.hear(2, b"\x00\x04\x03\x06\x40\x64", false).unwrap();
    server.hear(0, &headers(GET), true).unwrap();
    let key = server.opened[0];
    let head = format!("HTTP/1.1 200 OK\r\nX-A: {}\r\n\r\n", "x".repeat(50));
    let outcome = server.connection.write_head(key, head.as_bytes(), true, WireScheme::Https);
    assert!(matches!(outcome, Err(http3::WriteError::TooLarge { size: 101.., limit: 100 })), "{outcome:?}");
    server.answer(key, "HTTP/1.1 502 Bad Gateway\r\n\r\n", true);
    assert_eq!(server.sent(0).bytes, headers(":status: 502"));
}

#[test]
fn a_get_is_held_back_until_it_is_known_whether_it_has_a_body() {
    const PLAIN: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const CHUNKED: &str = "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    /// An unknown kind (RFC 9114 §7.2.8).
    const GREASE: u64 = 0x21;
    let trailers = headers("x: y\n");
    // Bytes behind the head, whether the stream ends with them, and the text that is read.
    let rows: [(&[u8], bool, Option<&str>); 7] = [
        (b"", true, Some(PLAIN)),
        (b"", false, None),
        (&frame(GREASE, b"any"), false, None),
        (&frame(GREASE, b"any"), true, Some(PLAIN)),
        (&frame(0, b""), true, Some(PLAIN)),
        (&frame(0, b"abc"), false, Some(&format!("{CHUNKED}3\r\nabc\r\n"))),
        (&trailers, true, Some(&format!("{CHUNKED}0\r\nx: y\r\n\r\n"))),
    ];
    for (behind, is_last, expected) in rows {
        let mut server = End::server(LIMITS);
        server.hear(0, &headers(GET), false).expect("it is well-formed");
        assert_eq!((&server.opened[..], server.connection.end_awaited_since()), (&[][..], Some(0)));
        assert_eq!(server.connection.head_since(), None, "its head is there");
        server.receive(0, behind, is_last).expect("it is well-formed");
        let text = server.opened.first().copied().map(|key| server.read(key).0);
        assert_eq!(text.as_deref(), expected, "{behind:?}");
        assert_eq!(server.connection.end_awaited_since().is_none(), expected.is_some(), "{behind:?}");
    }
    let mut late = End::server(LIMITS);
    late.hear(0, &headers(GET), false).expect("it is well-formed");
    late.connection.ends_are_late(0);
    late.note();
    assert_eq!(late.read(late.opened[0]), (CHUNKED.to_owned(), None));
    let mut post = End::server(LIMITS);
    post.hear(0, &headers(POST), false).expect("it is well-formed");
    assert_eq!(post.opened.len(), 1, "a POST is passed on at once");
}
