//! Stream errors, and requests that are rejected before the caller sees them.

use http3::{H3Code, H3Event, H3Refused};

use crate::ends::{End, GET, LIMITS, NOW, POST, frame, headers};

/// The code with which the stream of this request is reset, and the broken rule in words.
fn reset_for(parts: &[Vec<u8>], is_last: bool) -> (H3Code, String) {
    let mut server = End::server(LIMITS);
    server.hear(0, &parts.concat(), is_last).expect("it is an error of the stream alone");
    let refused = server.connection.take_refused();
    let sent = server.sent(0);
    let code = sent.reset.unwrap_or_else(|| panic!("{parts:x?} passes"));
    assert!(is_last || sent.stopped == Some(code), "{sent:?}");
    match (&refused[..], &server.opened[..]) {
        ([H3Refused { status: 0, code: logged, wrong, .. }], []) => {
            assert_eq!(*logged, code);
            assert_eq!(server.connection.held(), 0);
            (code, wrong.clone())
        }
        ([], [key]) => {
            assert!(server.events.contains(&H3Event::Reset(*key)));
            (code, server.connection.wrong(*key).expect("it is known").to_owned())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn malformed_requests_are_reset() {
    let with = |field: &str| vec![headers(&format!("{GET}\n{field}"))];
    let rows: Vec<(Vec<Vec<u8>>, &str)> = vec![
        // RFC 9114 §4.2.
        (with("X-Upper: a"), "no field name in lower case (RFC 9114 §4.2)"),
        (with("a b: c"), "no field name in lower case (RFC 9114 §4.2)"),
        (with("connection: close"), "belongs to a connection of HTTP/1.1 (RFC 9114 §4.2)"),
        (with("keep-alive: 5"), "belongs to a connection"),
        (with("proxy-connection: close"), "belongs to a connection"),
        (with("transfer-encoding: chunked"), "belongs to a connection"),
        (with("upgrade: x"), "belongs to a connection"),
        (with("te: gzip"), "may be 'trailers' alone (RFC 9114 §4.2)"),
        // RFC 9114 §10.3.
        (with("x: a\rb"), "a byte that no value has"),
        (with("x: a\0b"), "a byte that no value has"),
        (with("x:  a"), "white space (RFC 9114 §10.3)"),
        (with("content-length: x"), "content-length is 'x'"),
        (with("content-length: 1\ncontent-length: 2"), "another one than before"),
        // RFC 9114 §4.3.
        (with(":path: /"), "is there twice, or behind other fields (RFC 9114 §4.3)"),
        (with("x: y\n:scheme: https"), "is there twice, or behind other fields"),
        (with(":version: 3"), "is no pseudo-header field (RFC 9114 §4.3)"),
        (with(":status: 200"), "make no message (RFC 9114 §4.3)"),
        // RFC 9114 §4.3.1.
        (vec![headers(":scheme: https\n:authority: a\n:path: /")], "make no message"),
        (vec![headers(":method: GET\n:authority: a\n:path: /")], "make no message"),
        (vec![headers(":method: GET\n:scheme: https\n:authority: a")], "make no message"),
        (vec![headers(":method: GET\n:scheme: https\n:authority: a\n:path: ")], "make no message"),
        (vec![headers(":method: GET\n:scheme: https\n:authority: a\n:path: x")], "make no message"),
        (vec![headers(":method: GET\n:scheme: 1\n:authority: a\n:path: /")], "make no message"),
        (vec![headers(":method: GET\n:scheme: https\n:path: /")], "make no message"),
        (vec![headers(":method: GET\n:scheme: https\n:path: /\nhost: ")], "make no message"),
        (vec![headers(":method: GET\n:scheme: http\n:authority: \n:path: /")], "make no message"),
        // RFC 9114 §4.4, RFC 9220 §3.
        (vec![headers(":method: CONNECT\n:scheme: https\n:authority: a\n:path: /")], "make no message"),
        (vec![headers(":method: GET\n:scheme: https\n:authority: a\n:path: /\n:protocol: x")], "no message"),
        (vec![headers(":method: CONNECT\n:authority: a\n:protocol: websocket")], "make no message"),
        // RFC 9114 §4.1.2.
        (vec![headers(&format!("{POST}\ncontent-length: 1")), frame(0, b"ab")], "longer than content-length"),
        (vec![headers(POST), frame(0, b"a"), headers(":status: 200")], "in the trailers: "),
        (vec![headers(POST), frame(0, b"a"), headers("connection: x")], "in the trailers: the field"),
    ];
    for (parts, words) in rows {
        for is_last in [false, true] {
            let (code, wrong) = reset_for(&parts, is_last);
            assert_eq!(code, H3Code::MESSAGE_ERROR, "{wrong}");
            assert!(wrong.contains(words), "{wrong} is not {words}");
        }
    }
    let short = [headers(&format!("{POST}\ncontent-length: 3")), frame(0, b"ab")];
    let (code, wrong) = reset_for(&short, true);
    assert_eq!(
        (code, &wrong[..]),
        (H3Code::MESSAGE_ERROR, "the body is 1 bytes shorter than content-length (RFC 9114 §4.1.2)")
    );
    let (code, wrong) = reset_for(&[headers(&format!("{POST}\ncontent-length: 3"))], true);
    assert!(code == H3Code::MESSAGE_ERROR && wrong.contains("none follows"), "{wrong}");
    // RFC 9114 §4.1.
    for parts in [vec![], vec![frame(0x21, b"")]] {
        assert_eq!(reset_for(&parts, true).0, H3Code::REQUEST_INCOMPLETE);
    }
}

#[test]
fn well_formed_messages_pass() {
    for fields in [
        GET,
        ":method: GET\n:scheme: https\n:path: /\nhost: a",
        ":method: GET\n:scheme: https\n:authority: A\n:path: /\nhost: a",
        ":method: GET\n:scheme: ftp\n:path: /",
        ":method: OPTIONS\n:scheme: https\n:authority: a\n:path: *",
        ":method: CONNECT\n:authority: a:443",
        ":method: GET\n:scheme: https\n:authority: a\n:path: /\nte: trailers\ncontent-length: 0",
    ] {
        let mut server = End::server(LIMITS);
        server.hear(0, &headers(fields), true).unwrap();
        assert_eq!(server.opened.len(), 1, "{fields}");
        assert!(server.connection.take_refused().is_empty());
    }
    let mut server = End::server(LIMITS);
    server.hear(0, &headers(&format!("{GET}\ncookie: a=b\nx: y\ncookie: c=d")), true).unwrap();
    assert!(server.read(server.opened[0]).0.contains("\r\ncookie: a=b; c=d\r\nx: y\r\n\r\n"));
}

#[test]
fn requests_that_text_cannot_express_are_answered() {
    let long = "x".repeat(3000);
    let too_large = format!("{GET}\nx: {long}");
    let call = format!("{GET}\ncontent-type: application/grpc\nx: {long}");
    // The encoded section is within the limit, its decoded fields are not.
    let squeezed = format!("{GET}\nx: {}", "0".repeat(2500));
    for (fields, status, is_too_large) in [
        (&too_large[..], 431, true),
        (&squeezed, 431, true),
        // The section is not decoded, so it is unknown that this is a gRPC call.
        (&call, 431, true),
        (":method: GET\n:scheme: https\n:authority: a\n:path: /\nhost: b", 400, false),
        (":method: GET\n:scheme: https\n:authority: a\n:path: /a b", 400, false),
    ] {
        for is_last in [true, false] {
            let mut server = End::server(LIMITS);
            server.hear(0, &headers(fields), is_last).unwrap();
            let sent = server.sent(0);
            let head = headers(&format!(":status: {status}\ncontent-length: 0"));
            assert_eq!((sent.bytes, sent.has_ended), (head, true));
            // RFC 9114 §4.1: the rest of the request is not needed.
            assert_eq!(sent.stopped, Some(H3Code::NO_ERROR));
            let refused = server.connection.take_refused();
            assert_eq!((refused[0].status, refused[0].is_too_large), (status, is_too_large));
            assert!(server.opened.is_empty() && server.connection.held() == 0);
        }
    }
    let call = format!("{GET}\ncontent-type: application/grpc\nx: {}", "0".repeat(2500));
    let mut server = End::server(LIMITS);
    server.hear(0, &headers(&call), true).unwrap();
    let head = ":status: 200\ncontent-type: application/grpc\ngrpc-status: 2\n\
                grpc-message: The request header fields are too large.";
    assert_eq!(server.sent(0).bytes, headers(head));
}

#[test]
fn malformed_responses_are_reset() {
    for (parts, is_last, words) in [
        (vec![headers("x: y")], false, "make no message"),
        (vec![headers(":status: 20")], false, "make no message"),
        (vec![headers(":status: 101")], false, "make no message"),
        (vec![headers(":status: 200\n:path: /")], false, "make no message"),
        (vec![headers(":status: 100")], true, "make no message"),
        (vec![headers(":status: 100"), frame(0x21, b"")], true, "before its head was complete"),
        (vec![], true, "before its head was complete"),
        (vec![headers(":status: 200\ncontent-length: 2"), frame(0, b"a")], true, "1 bytes shorter"),
        (vec![headers(":status: 200\ncontent-length: 2"), frame(0, b"abc")], false, "longer"),
        (vec![headers(":status: 204"), frame(0, b"abc")], false, "longer"),
    ] {
        let mut client = End::client(LIMITS);
        let key = client.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false);
        client.receive(0, &parts.concat(), is_last).unwrap();
        assert_eq!(client.sent(0).reset, Some(H3Code::MESSAGE_ERROR), "{parts:x?}");
        let wrong = client.connection.wrong(key).expect("it is known");
        assert!(wrong.contains(words), "{wrong}");
        assert!(client.events.contains(&H3Event::Reset(key)) && client.read(key).1 == Some(false));
    }
    let mut client = End::client(LIMITS);
    let key = client.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
    client.receive(0, &headers(&format!(":status: 200\nx: {}", "x".repeat(4000))), false).unwrap();
    assert!(client.connection.is_too_large(key));
}

#[test]
fn either_end_may_cancel() {
    // A client cancels, before and after the head of the response.
    for has_begun in [false, true] {
        let mut server = End::server(LIMITS);
        server.hear(0, &headers(POST), false).unwrap();
        let key = server.opened[0];
        if has_begun {
            server.answer(key, "HTTP/1.1 200 OK\r\n\r\n", false);
        }
        server.connection.stop_received(0, H3Code::REQUEST_CANCELLED, NOW).unwrap();
        server.connection.reset_received(0, H3Code::REQUEST_CANCELLED, NOW).unwrap();
        server.note();
        assert_eq!(server.events.last(), Some(&H3Event::Reset(key)));
        assert_eq!(server.sent(0).reset, Some(H3Code::REQUEST_CANCELLED));
        let (text, end) = server.read(key);
        assert!(text.starts_with("POST / ") && end == Some(false));
        assert!(
            server
                .connection
                .write_head(key, b"HTTP/1.1 200 OK\r\n\r\n", true, http3::WireScheme::Http)
                .is_err()
        );
        assert_eq!(server.connection.wanted(0), 0);
        server.connection.release(key);
        assert_eq!(server.connection.held(), 0);
    }
    // A request whose head is incomplete, so the caller has not seen it.
    let mut server = End::server(LIMITS);
    server.hear(0, &headers(POST)[..4], false).unwrap();
    server.connection.reset_received(0, H3Code::REQUEST_CANCELLED, NOW).unwrap();
    assert_eq!((server.connection.held(), server.connection.head_since()), (0, None));
    // A server has answered and stops the request; further bytes from the client are useless.
    let mut client = End::client(LIMITS);
    let key = client.ask(0, "POST / HTTP/1.1\r\nHost: a\r\n\r\n", false);
    client.connection.stop_received(0, H3Code::NO_ERROR, NOW).unwrap();
    client.receive(0, &[headers(":status: 200"), frame(0, b"early")].concat(), true).unwrap();
    assert!(client.read(key).0.ends_with("5\r\nearly\r\n0\r\n\r\n"));
    assert_eq!(client.write(key, b"abc", false), 0);
    // A server rejects a request before it processes it.
    let key = client.ask(4, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
    client.connection.reset_received(4, H3Code::REQUEST_REJECTED, NOW).unwrap();
    assert_eq!(client.connection.read(key, &mut [0; 9]), Err(http3::H3StreamGone::Untouched));
}

#[test]
fn a_stream_that_is_let_go_of_is_ended() {
    let mut server = End::server(LIMITS);
    for id in [0, 4, 8] {
        server.hear(id, &headers(POST), id == 8).unwrap();
    }
    let [unanswered, early, whole] = [0, 1, 2].map(|at| server.opened[at]);
    server.answer(early, "HTTP/1.1 200 OK\r\n\r\n", true);
    server.answer(whole, "HTTP/1.1 200 OK\r\n\r\n", true);
    for key in [unanswered, early, whole] {
        server.connection.release(key);
    }
    let sent = [0, 4, 8].map(|id| server.sent(id)).map(|sent| (sent.has_ended, sent.reset, sent.stopped));
    let cancelled = Some(H3Code::REQUEST_CANCELLED);
    // RFC 9114 §4.1: after a complete response, the rest of the request is not needed.
    assert_eq!(
        sent,
        [(false, cancelled, cancelled), (true, None, Some(H3Code::NO_ERROR)), (true, None, None)]
    );
    assert_eq!(server.connection.held(), 0);
}

#[test]
fn a_request_that_was_taken_back_is_logged() {
    let mut server = End::server(LIMITS);
    server
        .hear(0, &[headers(&format!("{POST}\ncontent-length: 1")), frame(0, b"ab")].concat(), false)
        .unwrap();
    server.connection.take_back(server.opened[0]);
    let refused = server.connection.take_refused();
    assert_eq!((refused[0].code, &refused[0].glimpse[0][..]), (H3Code::MESSAGE_ERROR, &b"POST"[..]));
}
