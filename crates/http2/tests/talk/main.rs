//! Two ends of a connection exchange frames, or one end gets frames that the test writes.

/// A connection at one end.
mod end;
/// Floods of cheap frames.
mod floods;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use http2::{
    Flood, H2Broken, H2ErrorCause, H2Event, H2Role, H2StateMachine, Now, Reason, STREAM_WINDOW, WireScheme,
    WriteError,
};
use proptest::prelude::*;

use crate::end::{PREFACE, asking, deliver, end, end_within, frame, read_all, receive, receive_at, sends};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn messages_arrive_whole_however_they_are_cut(
        path in "[a-z?=&%]{0,40}",
        value in "[!-~]([ -~]{0,200}[!-~])?",
        len in 0usize..200_000,
        piece in 1usize..40_000,
    ) {
        let (mut client, mut server) = (end(H2Role::Client), end(H2Role::Server));
        let body: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        for _ in 0..3 {
            let key = client.open();
            let head = format!("POST /{path} HTTP/1.1\r\nHost: a\r\nX-Value: {value}\r\nContent-Length: {len}\r\n\r\n");
            let request = [head.as_bytes(), &body].concat();
            let (got, server_key) = sends((&mut client, key), &mut server, &request, piece, None);
            let seen = format!("POST /{path} HTTP/1.1\r\nhost: a\r\nx-value: {value}\r\ncontent-length: {len}\r\n\r\n");
            prop_assert!(got == [seen.as_bytes(), &body].concat());
            let response = [format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n").as_bytes(), &body].concat();
            let (got, _) = sends((&mut server, server_key), &mut client, &response, piece, Some(key));
            let seen = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n");
            prop_assert!(got == [seen.as_bytes(), &body].concat());
            server.release(server_key);
            client.release(key);
            prop_assert_eq!((server.held(), client.held()), (0, 0));
        }
    }

    #[test]
    fn any_bytes_mean_the_same_in_any_pieces(
        frames in proptest::collection::vec((0u8..10, any::<u8>(), 0u32..6, proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
        piece in 1usize..50,
    ) {
        let mut bytes = frame(4, 0, 0, b"");
        for (kind, flags, stream, payload) in &frames {
            bytes.extend(frame(*kind, *flags, *stream, payload));
        }
        let said = |outcome: Result<Vec<H2Event>, H2Broken>| outcome.map(|events| {
            events.into_iter().filter(|event| !matches!(event, H2Event::Readable(_))).collect::<Vec<_>>()
        });
        let as_server = [PREFACE, &bytes].concat();
        let (mut whole, mut cut) = (end(H2Role::Server), end(H2Role::Server));
        prop_assert_eq!(
            said(receive(&mut whole, &as_server, usize::MAX)),
            said(receive(&mut cut, &as_server, piece))
        );
        prop_assert_eq!(whole.unsent(), cut.unsent());
        // Frames from a server, with requests in progress.
        let [mut whole, mut cut] = [(); 2].map(|()| asking());
        prop_assert_eq!(
            said(receive(&mut whole, &bytes, usize::MAX)),
            said(receive(&mut cut, &bytes, piece))
        );
        prop_assert_eq!(whole.unsent(), cut.unsent());
    }
}

/// An upload with a round trip of 50 ms, in steps of a millisecond: once the windows have grown, it reaches 100 MB/s.
#[test]
fn windows_cover_a_long_link() {
    const ONE_WAY_MS: usize = 25;
    let (mut client, mut server) = (end(H2Role::Client), end(H2Role::Server));
    let client_key = client.open();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_head(client_key, head, false, WireScheme::Http).expect("it is a head");
    let body = vec![b'x'; 1 << 20];
    let mut buffer = vec![0; 64 * 1024];
    // Bytes in transit, to the server and back.
    let [mut there, mut back] = [(); 2].map(|()| VecDeque::from(vec![Vec::new(); ONE_WAY_MS]));
    let mut server_key = None;
    let mut arrived_bytes = 0;
    for at_ms in 0..2000 {
        let now = Now { tick: at_ms / 100, second: at_ms / 1000 };
        let arrives = back.pop_front().expect("it is as long as the link");
        receive_at(&mut client, &arrives, usize::MAX, now).expect("both keep to the protocol");
        let mut rest = &body[..];
        while let room @ 1.. =
            client.room(client_key).unwrap_or(0).min(client.room_of_connection()).min(rest.len())
        {
            rest = &rest[client.write(client_key, rest, room, false)..];
        }
        there.push_back(client.unsent().to_vec());
        client.sent(client.unsent().len());
        let arrives = there.pop_front().expect("it is as long as the link");
        let events = receive_at(&mut server, &arrives, usize::MAX, now).expect("both keep to the protocol");
        let opened = events.iter().find_map(|event| match event {
            H2Event::Opened(key) => Some(*key),
            _ => None,
        });
        server_key = server_key.or(opened);
        while let Some(key) = server_key
            && let Some(count @ 1..) = server.read(key, &mut buffer, now.tick).expect("nothing breaks")
        {
            arrived_bytes += if at_ms < 1500 { 0 } else { count };
        }
        server.adjust(u32::MAX, now.tick);
        back.push_back(server.unsent().to_vec());
        server.sent(server.unsent().len());
    }
    assert!(arrived_bytes >= 50_000_000, "{arrived_bytes} bytes in 500 ms");
}

#[test]
fn a_body_without_a_length_is_in_chunks_and_has_trailers() {
    let (mut client, mut server) = (end(H2Role::Client), end(H2Role::Server));
    let key = client.open();
    let head = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_head(key, head, false, WireScheme::Https).expect("it is a head");
    let opened = deliver(&mut client, &mut server, usize::MAX);
    let Some(H2Event::Opened(server_key)) =
        opened.into_iter().find(|event| matches!(event, H2Event::Opened(_)))
    else {
        panic!("no request came")
    };
    client.write(key, b"abc", 3, false);
    client.end(key, b"X-Sum: 1\r\n").expect("it has not ended");
    deliver(&mut client, &mut server, usize::MAX);
    let mut text = Vec::new();
    assert!(read_all(&mut server, server_key, &mut text));
    let expected =
        "PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&text), expected);
}

#[test]
fn a_head_that_is_refused_takes_nothing_along_that_the_next_has_to_say() {
    let request = &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..];
    for (role, refused, head) in [
        (H2Role::Client, &b"GET\r\nX-Some: field\r\n\r\n"[..], request),
        (H2Role::Server, b"HTTP/1.1 2x0\r\nX-Some: field\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
    ] {
        let mut end = end(role);
        let preface = if role == H2Role::Server { PREFACE } else { b"" };
        // RFC 7541 §4.2: the dynamic table is disabled from here on; the next block must begin with that change.
        let table_of_nothing = frame(4, 0, 0, &[0, 1, 0, 0, 0, 0]);
        receive(&mut end, &[preface, &table_of_nothing].concat(), 1000).expect("keeps to the protocol");
        let key = match role {
            H2Role::Client => end.open(),
            H2Role::Server => {
                let events = receive(&mut end, &frame(1, 5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'a']), 1000);
                match events.expect("keeps to the protocol")[..] {
                    [H2Event::Opened(key), ..] => key,
                    ref other => panic!("no stream but {other:?}"),
                }
            }
        };
        end.sent(end.unsent().len());
        assert_eq!(end.write_head(key, refused, true, WireScheme::Http), Err(WriteError::Untold));
        assert_eq!(end.unsent(), b"");
        assert_eq!(end.write_head(key, head, true, WireScheme::Http), Ok(head.len()));
        assert_eq!(end.unsent()[9..11], [0x20, 0x20], "{role:?}");
    }
}

#[test]
fn protocol_errors_end_the_connection() {
    let malformed = |reason, rule| H2Broken { reason, cause: H2ErrorCause::Malformed(rule) };
    let settings = frame(4, 0, 0, b"");
    let request = frame(1, 5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'a']);
    let upload = frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    let reset = frame(3, 0, 1, &[0, 0, 0, 8]);
    let rows: [(&str, Vec<u8>, H2Broken); 11] = [
        (
            "another protocol",
            b"GET / HTTP/1.1\r\n".to_vec(),
            malformed(Reason::PROTOCOL_ERROR, "a connection begins with the preface (RFC 9113 §3.4)"),
        ),
        (
            "no settings first",
            [PREFACE, &request].concat(),
            malformed(
                Reason::PROTOCOL_ERROR,
                "SETTINGS come first, and only CONTINUATION behind an unfinished header block (RFC 9113 §3.4, §6.10)",
            ),
        ),
        (
            "half a setting",
            [PREFACE, &frame(4, 0, 0, b"abc")].concat(),
            malformed(Reason::FRAME_SIZE_ERROR, "this kind of frame has another size (RFC 9113 §6)"),
        ),
        (
            "data on no stream",
            [PREFACE, &settings, &frame(0, 0, 0, b"x")].concat(),
            malformed(
                Reason::PROTOCOL_ERROR,
                "this kind of frame does not belong on this stream (RFC 9113 §6)",
            ),
        ),
        (
            "data before a head",
            [PREFACE, &settings, &frame(0, 0, 1, b"x")].concat(),
            malformed(Reason::PROTOCOL_ERROR, "this stream has not begun (RFC 9113 §5.1)"),
        ),
        (
            "data behind the end",
            [PREFACE, &settings, &request, &frame(0, 0, 1, b"x")].concat(),
            malformed(Reason::STREAM_CLOSED, "this stream is closed (RFC 9113 §5.1)"),
        ),
        (
            "data behind its own reset, while the stream is held",
            [PREFACE, &settings, &upload, &reset, &frame(0, 0, 1, b"x")].concat(),
            malformed(Reason::STREAM_CLOSED, "this stream is closed (RFC 9113 §5.1)"),
        ),
        (
            "trailers behind its own reset, while the stream is held",
            [PREFACE, &settings, &upload, &reset, &frame(1, 5, 1, b"")].concat(),
            malformed(Reason::STREAM_CLOSED, "this stream is closed (RFC 9113 §5.1)"),
        ),
        (
            "an index of nothing",
            [PREFACE, &settings, &frame(1, 5, 1, &[0xbe])].concat(),
            malformed(Reason::COMPRESSION_ERROR, "the header block cannot be decoded (RFC 9113 §4.3)"),
        ),
        (
            "a frame too long",
            [PREFACE, &[0, 0x40, 1, 0, 0, 0, 0, 0, 1]].concat(),
            malformed(Reason::FRAME_SIZE_ERROR, "a frame has at most 16384 bytes (RFC 9113 §4.2)"),
        ),
        (
            "pings",
            [PREFACE, &settings, &frame(6, 0, 0, &[0; 8]).repeat(200)].concat(),
            H2Broken { reason: Reason::ENHANCE_YOUR_CALM, cause: H2ErrorCause::Flood(Flood::Pings) },
        ),
    ];
    for (name, bytes, broken) in rows {
        for piece in [usize::MAX, 1, 7] {
            let mut server = end(H2Role::Server);
            assert_eq!(receive(&mut server, &bytes, piece), Err(broken), "{name}");
            if let H2ErrorCause::Malformed(rule) = broken.cause {
                assert!(server.offence().is_some_and(|offence| offence.ends_with(rule)), "{name}");
            }
        }
    }
}

#[test]
fn exceeding_a_window_is_an_error() {
    let mut server = end(H2Role::Server);
    let request = frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    receive(&mut server, &[PREFACE, &frame(4, 0, 0, b""), &request].concat(), usize::MAX)
        .expect("all is well");
    let body = frame(0, 0, 1, &[0; 16_384]);
    // Not acknowledged yet, so the stream's window is the default; the connection's is wider.
    let outcomes: Vec<_> = (0..5).map(|_| receive(&mut server, &body, usize::MAX)).collect();
    assert!(outcomes[..3].iter().all(|outcome| matches!(outcome.as_deref(), Ok([H2Event::Readable(0)]))));
    assert_eq!(outcomes[3], Ok(vec![H2Event::Reset(0)]));
}

/// After a stream is released in the middle of a frame, the rest of the frame reaches no stream that reuses its slot.
#[test]
fn the_rest_of_a_frame_goes_to_no_other_stream() {
    let mut client = end(H2Role::Client);
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let given_up = client.open();
    client.write_head(given_up, get, true, WireScheme::Http).expect("it is a head");
    let body = frame(0, 0, 1, b"for one alone");
    let (begun, rest) = body.split_at(12);
    receive(&mut client, &[&frame(4, 0, 0, b"")[..], &frame(1, 4, 1, &[0x88]), begun].concat(), usize::MAX)
        .expect("all is well");
    client.release(given_up);
    let next = client.open();
    assert_eq!(next, given_up, "its place is used again");
    client.write_head(next, get, true, WireScheme::Http).expect("it is a head");
    let answer = [rest, &frame(1, 4, 3, &[0x88]), &frame(0, 1, 3, b"ok")].concat();
    receive(&mut client, &answer, usize::MAX).expect("all is well");
    let mut text = Vec::new();
    assert!(read_all(&mut client, next, &mut text));
    let expected = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&text), expected);
}

/// RFC 9113 §5.1: frames that the peer sent before it knew of a reset are ignored, however many resets are in transit.
#[test]
fn frames_that_cross_a_reset_are_ignored() {
    const RESETS: u32 = 300;
    let settings = frame(4, 0, 0, b"");
    let mut client = end(H2Role::Client);
    receive(&mut client, &settings, usize::MAX).expect("all is well");
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..RESETS {
        let key = client.open();
        client.write_head(key, get, true, WireScheme::Http).expect("it is a head");
        client.release(key);
    }
    let key = client.open();
    client.write_head(key, get, true, WireScheme::Http).expect("it is a head");
    client.sent(client.unsent().len());
    // The late fields still enter the dynamic table, and the late bytes are given back.
    let late = [frame(1, 4, 1, &[0x88, 0x40, 1, b'x', 1, b'y']), frame(0, 0, 1, &[0; 16_384]).repeat(20)];
    assert_eq!(receive(&mut client, &late.concat(), usize::MAX), Ok(Vec::new()));
    assert_eq!(client.unsent()[3..9], [8, 0, 0, 0, 0, 0], "a WINDOW_UPDATE of the connection");
    let answer = frame(1, 5, 1 + 2 * RESETS, &[0x88, 0xbe]);
    receive(&mut client, &answer, usize::MAX).expect("all is well");
    let mut text = Vec::new();
    assert!(read_all(&mut client, key, &mut text));
    assert_eq!(text, b"HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 0\r\n\r\n");

    let mut server = end(H2Role::Server);
    let upload = [0x83, 0x86, 0x84, 0x41, 1, b'a'];
    receive(&mut server, &[PREFACE, &settings].concat(), usize::MAX).expect("all is well");
    // More uploads than the limit, so all but the first are refused.
    let uploads: Vec<u8> = (0..RESETS).flat_map(|at| frame(1, 4, 1 + 2 * at, &upload)).collect();
    receive(&mut server, &uploads, usize::MAX).expect("all is well");
    for id in [21, 1 + 2 * (RESETS - 1)] {
        let late = [frame(0, 0, id, b"x"), frame(1, 5, id, &[0x40, 1, b'x', 1, b'y'])].concat();
        assert_eq!(receive(&mut server, &late, usize::MAX), Ok(Vec::new()), "stream {id}");
    }
}

/// Bytes that a worker's connections hold beyond their initial windows count as long as they are held.
#[test]
fn bytes_in_a_wide_window_count_until_they_are_read() {
    let granted = Rc::new(Cell::new(0));
    let (mut client, mut server) = (end(H2Role::Client), end_within(H2Role::Server, &granted));
    let client_key = client.open();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_head(client_key, head, false, WireScheme::Http).expect("it is a head");
    let opened = deliver(&mut client, &mut server, usize::MAX);
    let Some(&H2Event::Opened(key)) = opened.iter().find(|event| matches!(event, H2Event::Opened(_))) else {
        panic!("no request came")
    };
    let exchange = |client: &mut H2StateMachine, server: &mut H2StateMachine, tick| {
        server.adjust(u32::MAX, tick);
        deliver(server, client, usize::MAX);
        deliver(client, server, usize::MAX);
    };
    exchange(&mut client, &mut server, 0);
    let sends = |client: &mut H2StateMachine, server: &mut H2StateMachine| {
        let room = client.room(client_key).expect("it has not ended").min(client.room_of_connection());
        client.write(client_key, &vec![b'x'; room], room, false);
        deliver(client, server, usize::MAX);
    };
    for _ in 0..10 {
        sends(&mut client, &mut server);
        if granted.get() == 3 * STREAM_WINDOW as usize {
            break;
        }
        read_all(&mut server, key, &mut Vec::new());
        exchange(&mut client, &mut server, 0);
    }
    sends(&mut client, &mut server);
    assert_eq!(granted.get(), 3 * STREAM_WINDOW as usize);
    // The window is small again, but the bytes received within the wide one are still unread.
    exchange(&mut client, &mut server, 99);
    assert_eq!(client.room(client_key), Ok(0));
    assert!(granted.get() > 2 * STREAM_WINDOW as usize, "{}", granted.get());
    server.release(key);
    assert_eq!(granted.get(), 0);
}

/// RFC 9113 §6.9.1, §6.9.2: an empty final frame needs no window, and a window may be negative.
#[test]
fn a_body_may_end_where_there_is_no_window() {
    let (mut client, mut server) = (end(H2Role::Client), end(H2Role::Server));
    let client_key = client.open();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_head(client_key, head, false, WireScheme::Http).expect("it is a head");
    let opened = deliver(&mut client, &mut server, usize::MAX);
    let Some(&H2Event::Opened(key)) = opened.iter().find(|event| matches!(event, H2Event::Opened(_))) else {
        panic!("no request came")
    };
    deliver(&mut server, &mut client, usize::MAX);
    deliver(&mut client, &mut server, usize::MAX);
    // One window is read at once, so the next is wider. It is used up.
    let mut text = Vec::new();
    for (len, limit) in [(STREAM_WINDOW as usize, u32::MAX), (90_000, 0)] {
        let room = client.room(client_key).expect("it has not ended");
        assert_eq!(client.write(client_key, &vec![b'x'; len], room, false), len);
        deliver(&mut client, &mut server, usize::MAX);
        if limit > 0 {
            read_all(&mut server, key, &mut text);
        }
        server.adjust(limit, 0);
        deliver(&mut server, &mut client, usize::MAX);
        deliver(&mut client, &mut server, usize::MAX);
    }
    assert_eq!(client.room(client_key), Ok(0));
    client.end(client_key, b"").expect("it has not ended");
    assert_eq!(deliver(&mut client, &mut server, usize::MAX), [H2Event::Readable(key)]);
    assert!(read_all(&mut server, key, &mut text));
    assert!(text.ends_with(b"x\r\n0\r\n\r\n"));
}

/// RFC 9110 §9.3.6, RFC 8441 §5: for CONNECT, any success means that there is a tunnel. Other successes are not
/// forwarded.
#[test]
fn only_a_switch_is_a_success_to_a_client_that_asked_for_one() {
    /// The status 502, as a literal with an indexed name.
    const DENIED: &[u8] = b"\x08\x82\x6c\x02";
    let connect =
        [&[0x02, 7][..], b"CONNECT", &[0x86, 0x84, 0x41, 1, b'a'], &[0, 9], b":protocol", &[1, b'p']];
    let connect = [PREFACE, &frame(4, 0, 0, b""), &frame(1, 4, 1, &connect.concat())].concat();
    for (head, status) in [
        (&b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: p\r\n\r\n"[..], &b"\x88"[..]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", DENIED),
        (b"HTTP/1.1 204 No Content\r\n\r\n", DENIED),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", b"\x8d"),
    ] {
        let mut server = end(H2Role::Server);
        let events = receive(&mut server, &connect, usize::MAX).expect("all is well");
        let Some(&H2Event::Opened(key)) = events.first() else { panic!("{events:?}") };
        server.sent(server.unsent().len());
        assert_eq!(server.write_head(key, head, false, WireScheme::Http), Ok(head.len()));
        let block = &server.unsent()[9..];
        assert!(block.starts_with(status), "{block:x?} for {}", String::from_utf8_lossy(head));
        assert_eq!(server.room(key).is_err(), status == DENIED, "what would follow is not sent");
    }
}

/// RFC 9113 §6.8: frames on streams after the last are ignored, except for the dynamic table and the connection window.
/// The announced last stream does not change.
#[test]
fn streams_after_the_last_announced_one_are_ignored() {
    let mut server = end(H2Role::Server);
    let upload = |id| frame(1, 4, id, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    receive(&mut server, &[PREFACE, &frame(4, 0, 0, b""), &upload(1)].concat(), usize::MAX)
        .expect("all is well");
    server.close();
    receive(&mut server, &frame(6, 1, 0, b"farewell"), usize::MAX).expect("all is well");
    assert!(server.has_told_last());
    server.sent(server.unsent().len());
    // A second call announces nothing.
    server.tell_last();
    assert_eq!(server.unsent(), b"");
    let bodies = frame(0, 0, 3, &[0; 16_384]).repeat(20);
    let trailers = frame(1, 5, 3, &[0x40, 1, b'x', 1, b'y']);
    assert_eq!(receive(&mut server, &[upload(3), bodies, trailers].concat(), usize::MAX), Ok(Vec::new()));
    assert_eq!(server.unsent()[3..9], [8, 0, 0, 0, 0, 0], "a WINDOW_UPDATE of the connection");
    server.sent(server.unsent().len());
    let end = receive(&mut server, &[frame(0, 0, 1, b"z"), frame(1, 5, 1, &[0xbe])].concat(), usize::MAX);
    assert_eq!(end, Ok(vec![H2Event::Readable(0), H2Event::Readable(0)]));
    // A later connection error still names the same last stream.
    let Err(broken) = receive(&mut server, &frame(0, 0, 5, b"x"), usize::MAX) else {
        panic!("5 has not begun")
    };
    server.abort(broken.reason, broken.why());
    let why = b"this stream has not begun (RFC 9113 section 5.1)";
    assert_eq!(server.unsent(), frame(7, 0, 0, &[&[0, 0, 0, 1, 0, 0, 0, 1], &why[..]].concat()));
}

/// RFC 9113 §6.1, §6.9: padding counts towards both windows, and is given back at once.
#[test]
fn padding_is_given_back_at_once() {
    let mut server = end(H2Role::Server);
    let upload = frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    receive(
        &mut server,
        &[PREFACE, &frame(4, 0, 0, b""), &frame(4, 1, 0, b""), &upload].concat(),
        usize::MAX,
    )
    .expect("all is well");
    let padding = frame(0, 8, 1, &[&[255][..], &[0; 255]].concat());
    for piece in [usize::MAX, 100] {
        // More padding than any window, but below the flood limit.
        for at in 0..2000 {
            let now = Now { tick: 0, second: at / 900 };
            assert_eq!(receive_at(&mut server, &padding, piece, now), Ok(Vec::new()));
        }
    }
    let end = receive(&mut server, &frame(0, 1, 1, &[0; 16_384]), usize::MAX);
    assert_eq!(end, Ok(vec![H2Event::Readable(0), H2Event::Readable(0)]));
}
