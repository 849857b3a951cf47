//! Response bodies in every framing (RFC 9112 §6), for clients of HTTP/1.1 and HTTP/1.0.

use std::time::Duration;

use testkit::text::{GET, GET_SEEN, OK_GOT};

use super::scene::Scene;
use super::scene::Step::*;

const GET10: &str = "GET / HTTP/1.0\r\nHost: test\r\nConnection: keep-alive\r\n\r\n";

/// Asserts what an HTTP/1.1 client gets of a server's response. Both connections continue.
fn passes(name: &str, request: &str, seen: &str, sent: &str, got: &str) {
    Scene::new().play(
        name,
        &[
            ClientSends(request),
            ServerAccepts,
            ServerGets(seen),
            ServerSends(sent),
            ClientGets(got),
            ClientSends(GET),
            IsServed,
        ],
    );
}

#[test]
fn bodies_with_a_length_or_in_chunks_leave_as_they_came() {
    passes(
        "length",
        GET,
        GET_SEEN,
        "HTTP/1.1 404 Nothing Here\r\nDate: D\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 404 Nothing Here\r\nDate: D\r\nX-A: b\r\nContent-Length: 5\r\n{via}\r\nhello",
    );
    passes(
        "an empty body",
        GET,
        GET_SEEN,
        "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 \r\nContent-Length: 0\r\nDate: {date}\r\n{via}\r\n",
    );
    passes(
        "a status line without a reason, and its space",
        GET,
        GET_SEEN,
        "HTTP/1.1 599\r\nDate: D\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 599 \r\nDate: D\r\nContent-Length: 0\r\n{via}\r\n",
    );
    passes(
        "a length that Connection names",
        GET,
        GET_SEEN,
        "HTTP/1.1 200 OK\r\nDate: D\r\nConnection: Content-Length, X-A\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 5\r\n{via}\r\nhello",
    );
    passes(
        "chunks that Connection names",
        GET,
        GET_SEEN,
        "HTTP/1.1 200 OK\r\nDate: D\r\nConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n2\r\nok\r\n0\r\n\r\n",
    );
    passes(
        "chunks, with extensions and trailers",
        GET,
        GET_SEEN,
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n\
         5;a=b\r\nhello\r\n1\r\n!\r\n0;c\r\nX-Sum: 1\r\nSet-Cookie: no\r\n\r\n",
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n6\r\nhello!\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
}

#[test]
fn responses_without_a_body_have_none_whatever_they_say() {
    // RFC 9112 §6.3, rule 1.
    let head = "HEAD / HTTP/1.1\r\nHost: test\r\n\r\n";
    let head_seen = "HEAD / HTTP/1.1\r\nHost: test\r\n{ours}\r\n";
    passes(
        "HEAD with a length",
        head,
        head_seen,
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 5\r\n{via}\r\n",
    );
    passes(
        "HEAD without a length",
        head,
        head_seen,
        "HTTP/1.1 200 OK\r\nDate: D\r\n\r\n",
        "HTTP/1.1 200 OK\r\nDate: D\r\n{via}\r\n",
    );
    passes(
        "HEAD with a coding",
        head,
        head_seen,
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nDate: D\r\n{via}\r\n",
    );
    passes(
        "204",
        GET,
        GET_SEEN,
        "HTTP/1.1 204 No Content\r\nDate: D\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nDate: D\r\n{via}\r\n",
    );
    passes(
        "304",
        GET,
        GET_SEEN,
        "HTTP/1.1 304 Not Modified\r\nDate: D\r\nETag: \"a\"\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nDate: D\r\nETag: \"a\"\r\nContent-Length: 5\r\n{via}\r\n",
    );
}

#[test]
fn a_chunked_body_is_passed_on_as_it_comes() {
    Scene::new().play(
        "chunk by chunk",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n"),
            ServerSends("3\r\nabc"),
            ClientGets("3\r\nabc\r\n"),
            ServerSends("\r\n2\r\nde"),
            ClientGets("2\r\nde\r\n"),
            ServerSends("\r"),
            ServerSends("\n0\r\n"),
            ServerSends("X: y\r\n\r\n"),
            ClientGets("0\r\nX: y\r\n\r\n"),
            ClientSends(GET),
            IsServed,
        ],
    );
}

#[test]
fn long_trailers_behind_a_long_head_are_passed_on() {
    let padding = "x".repeat(15_900);
    let trailers: String = (0..100).map(|number| format!("X-{number}: {}\r\n", "t".repeat(90))).collect();
    let begin =
        format!("HTTP/1.1 200 OK\r\nDate: D\r\nX-Pad: {padding}\r\nTransfer-Encoding: chunked\r\n\r\n0\r");
    let begin_got = format!(
        "HTTP/1.1 200 OK\r\nDate: D\r\nX-Pad: {padding}\r\nTransfer-Encoding: chunked\r\n{{via}}\r\n"
    );
    let end = format!("\n{trailers}\r\n");
    let end_got = format!("0\r\n{trailers}\r\n");
    Scene::new().play(
        "long trailers",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends(&begin),
            ClientGets(&begin_got),
            ServerSends(&end),
            ClientGets(&end_got),
            ClientSends(GET),
            IsServed,
        ],
    );
}

#[test]
fn a_body_that_ends_with_the_connection_leaves_in_chunks() {
    Scene::new().play(
        "to a client of HTTP/1.1",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\n\r\nhello"),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n5\r\nhello\r\n"),
            ServerSends("more"),
            ClientGets("4\r\nmore\r\n"),
            ServerHalfCloses,
            ClientGets("0\r\n\r\n"),
            ServerGetsEnd,
            // The client's connection continues.
            ClientSends(GET),
            ServerAccepts,
            IsServed,
        ],
    );
}

#[test]
fn a_client_of_http_1_0_gets_no_chunks() {
    let head = "HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\n{via}\r\n";
    let seen = "GET / HTTP/1.1\r\nHost: test\r\nVia: 1.0 vanward\r\nX-Forwarded-For: 127.0.0.1\r\n\
                X-Forwarded-Proto: http\r\nX-Forwarded-Host: test\r\nForwarded: for=127.0.0.1;proto=http;host=\"test\"\r\n\r\n";
    Scene::new().play(
        "chunks",
        &[
            ClientSends(GET10),
            ServerAccepts,
            ServerGets(seen),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n5;a\r\nhello\r\n"),
            ClientGets(head),
            ClientGets("hello"),
            ServerSends("1\r\n!\r\n0\r\nX-Sum: 1\r\n\r\n"),
            ClientGets("!"),
            ClientGetsEnd,
            // The server's connection is intact, and serves the next request.
            ClientConnects,
            ClientSends(GET10),
            ServerGets(seen),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\n\r\nuntil the end"),
            ClientGets(head),
            ClientGets("until the end"),
            ServerCloses,
            ClientGetsEnd,
        ],
    );
}

#[test]
fn a_server_of_http_1_0_keeps_its_connection_only_when_it_says_so() {
    Scene::new().play(
        "HTTP/1.0",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends(
                "HTTP/1.0 200 OK\r\nDate: D\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
            ),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n{via10}\r\nok"),
            ClientSends(GET),
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.0 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nok"),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n{via10}\r\nok"),
            ServerGetsEnd,
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.0 200 OK\r\nDate: D\r\n\r\nok"),
            ServerHalfCloses,
            ClientGets(
                "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via10}\r\n2\r\nok\r\n0\r\n\r\n",
            ),
        ],
    );
}

#[test]
fn a_server_that_says_close_is_not_asked_again() {
    Scene::new().play(
        "Connection: close",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
            ClientGets(OK_GOT),
            ServerGetsEnd,
            ClientSends(GET),
            ServerAccepts,
            IsServed,
        ],
    );
}

#[test]
fn large_bodies_pass_in_every_framing() {
    // Longer than every buffer, and than the minimum for splicing.
    let body = "0123456789abcdef".repeat(20_000);
    let length = body.len();
    let with_length = format!("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: {length}\r\n\r\n{body}");
    let in_chunks = format!(
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
    );
    let until_close = format!("HTTP/1.1 200 OK\r\nDate: D\r\n\r\n{body}");
    for (name, response) in [("length", with_length), ("chunks", in_chunks), ("until close", until_close)] {
        let scene = Scene::new();
        let mut client = scene.client();
        let mut kept = None;
        for round in 0..3 {
            client.sends(GET);
            let mut server = kept.take().unwrap_or_else(|| scene.accept(0));
            server.head();
            let response = &response;
            let answer = move || {
                server.sends(response);
                // Dropping it closes the connection.
                (name != "until close").then_some(server)
            };
            kept = std::thread::scope(|scope| {
                let answering = scope.spawn(answer);
                let message = client.message();
                assert_eq!(message.status(), 200);
                assert!(message.body == body.as_bytes(), "{name}, round {round}: the body is not the same");
                answering.join().expect("no panic")
            });
        }
    }
}

#[test]
fn a_short_body_that_trickles_is_not_held_back_until_it_is_whole() {
    const BYTES: usize = 100;
    let scene = Scene::new();
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n"));
    let mut sent = 0;
    while !client.has_something() {
        assert!(sent < BYTES - 1, "all of it is held back");
        server.sends("x");
        sent += 1;
        // Each byte arrives well before the wait for the rest ends.
        std::thread::sleep(Duration::from_millis(20));
    }
    server.sends(vec![b'x'; BYTES - sent]);
    assert_eq!(client.message().body.len(), BYTES);
}
