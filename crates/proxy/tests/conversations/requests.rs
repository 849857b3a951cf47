//! Request bodies in every framing (RFC 9112 §6), what follows them, and HTTP/1.0 clients.

use testkit::text::{GET, GET_SEEN, OK, OK_GOT};

use super::scene::Scene;
use super::scene::Step::*;

/// Asserts what the server receives of a request, and that the connection continues.
fn passes(name: &str, request: &str, seen: &str) {
    let scene = Scene::new();
    let exchange =
        [ClientSends(request), ServerAccepts, ServerGets(seen), ServerSends(OK), ClientGets(OK_GOT)];
    let next = [ClientSends(GET), ServerGets(GET_SEEN), ServerSends(OK), ClientGets(OK_GOT)];
    scene.play(name, &[exchange.as_slice(), &next].concat());
}

#[test]
fn a_body_with_a_length_is_passed_on_with_it() {
    passes(
        "POST",
        "POST /a?b HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello",
        "POST /a?b HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n{ours}\r\nhello",
    );
    passes(
        "an empty body",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n{ours}\r\n",
    );
    passes(
        "a body of a GET",
        "GET / HTTP/1.1\r\nHost: test\r\ncontent-length: 003\r\n\r\nabc",
        "GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n{ours}\r\nabc",
    );
}

#[test]
fn a_chunked_body_is_passed_on_without_extensions_and_with_trailers() {
    passes(
        "extensions and trailers",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         5;a=b;c=\"d;\"\r\nhello\r\n0;last\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n{ours}\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
    passes(
        "chunks that arrive together leave together",
        "POST / HTTP/1.1\r\nHost: test\r\ntransfer-encoding: Chunked\r\n\r\n\
         00A\r\n0123456789\r\n6\r\nabcdef\r\n000\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n\
         10\r\n0123456789abcdef\r\n0\r\n\r\n",
    );
    passes(
        "an empty body",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n0\r\n\r\n",
    );
}

#[test]
fn a_body_is_passed_on_as_it_comes() {
    let chunked = "Transfer-Encoding: chunked\r\n{ours}\r\n";
    let seen = format!("PUT / HTTP/1.1\r\nHost: test\r\n{chunked}2\r\nab\r\n");
    Scene::new().play(
        "chunk by chunk",
        &[
            ClientSends("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"),
            ServerAccepts,
            ServerGets(&seen),
            // A size line, a chunk and its end, sent separately.
            ClientSends("4;x=y\r"),
            ClientSends("\ncd"),
            ServerGets("2\r\ncd\r\n"),
            ClientSends("ef"),
            ServerGets("2\r\nef\r\n"),
            ClientSends("\r\n0\r\nA: b\r\n"),
            ClientSends("\r\n"),
            ServerGets("0\r\nA: b\r\n\r\n"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
    Scene::new().play(
        "byte by byte",
        &[
            ClientSends("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\n"),
            ServerAccepts,
            ServerGets("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n{ours}\r\n"),
            ClientSends("a"),
            ServerGets("a"),
            ClientSends("bc"),
            ServerGets("bc"),
            ClientSends("d"),
            ServerGets("d"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn long_trailers_behind_a_long_head_are_passed_on() {
    // The head nearly fills the buffer, in which the trailers must fit, too.
    let padding = "x".repeat(15_900);
    let trailers: String = (0..100).map(|number| format!("X-{number}: {}\r\n", "t".repeat(90))).collect();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: test\r\nX-Pad: {padding}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-"
    );
    let seen_head =
        format!("POST / HTTP/1.1\r\nHost: test\r\nX-Pad: {padding}\r\nTransfer-Encoding: chunked\r\n");
    let seen = format!("{seen_head}{{ours}}\r\n3\r\nabc\r\n");
    let rest = format!("0\r\n{trailers}\r\n");
    for follower in ["", GET] {
        let second = format!("{}\r\n{follower}", &trailers[2..]);
        let mut steps = vec![
            ClientSends(&request),
            ServerAccepts,
            ServerGets(&seen),
            ClientSends(&second),
            ServerGets(&rest),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ];
        if !follower.is_empty() {
            steps.extend([ServerGets(GET_SEEN), ServerSends(OK), ClientGets(OK_GOT)]);
        }
        Scene::new().play("long trailers", &steps);
    }
}

#[test]
fn an_empty_chunk_behind_a_long_head_keeps_its_trailers() {
    let padding = "x".repeat(15_900);
    let trailers: String = (0..100).map(|number| format!("X-{number}: {}\r\n", "t".repeat(90))).collect();
    let request =
        format!("POST / HTTP/1.1\r\nHost: test\r\nX-Pad: {padding}\r\nTransfer-Encoding: chunked\r\n\r\n0");
    let seen = format!(
        "POST / HTTP/1.1\r\nHost: test\r\nX-Pad: {padding}\r\nTransfer-Encoding: chunked\r\n{{ours}}\r\n"
    );
    let second = format!("\r\n{trailers}\r\n");
    let rest = format!("0\r\n{trailers}\r\n");
    Scene::new().play(
        "an empty body with trailers",
        &[
            ClientSends(&request),
            ServerAccepts,
            ServerGets(&seen),
            ClientSends(&second),
            ServerGets(&rest),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let post = "POST /2 HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc";
    let chunked = "POST /3 HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let all = format!("{GET}{post}{chunked}{GET}");
    let post_seen = "POST /2 HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n{ours}\r\nabc";
    let chunked_seen =
        "POST /3 HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n3\r\nabc\r\n0\r\n\r\n";
    Scene::new().play(
        "four at once",
        &[
            ClientSends(&all),
            ServerAccepts,
            IsServed,
            ServerGets(post_seen),
            ServerSends(OK),
            ClientGets(OK_GOT),
            ServerGets(chunked_seen),
            ServerSends(OK),
            ClientGets(OK_GOT),
            IsServed,
        ],
    );
}

#[test]
fn an_empty_line_before_a_request_is_skipped() {
    // RFC 9112 §2.2.
    let request = format!("\r\n{GET}");
    passes("an empty line", &request, GET_SEEN);
}

#[test]
fn a_head_may_arrive_byte_by_byte() {
    let mut steps: Vec<_> = (0..GET.len()).map(|at| ClientSends(&GET[at..=at])).collect();
    steps.extend([ServerAccepts, ServerGets(GET_SEEN), ServerSends(OK), ClientGets(OK_GOT)]);
    Scene::new().play("byte by byte", &steps);
}

#[test]
fn a_client_that_asks_for_it_is_closed() {
    Scene::new().play(
        "Connection: close",
        &[
            ClientSends("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends(OK),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nok"),
            ClientGetsEnd,
            // The server's connection is kept independently of the client's.
            ClientConnects,
            ClientSends(GET),
            IsServed,
        ],
    );
}

#[test]
fn a_client_of_http_1_0_is_closed_unless_it_says_keep_alive() {
    let seen = "GET / HTTP/1.1\r\nHost: {server}\r\n{ours10}\r\n";
    let kept = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: keep-alive\r\n{via}\r\nok";
    let closed = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nok";
    Scene::new().play(
        "HTTP/1.0",
        &[
            ClientSends("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
            ServerAccepts,
            ServerGets(seen),
            ServerSends(OK),
            ClientGets(kept),
            ClientSends("GET / HTTP/1.0\r\n\r\n"),
            ServerGets(seen),
            ServerSends(OK),
            ClientGets(closed),
            ClientGetsEnd,
            // A body, and Expect, which is ignored from HTTP/1.0.
            ClientConnects,
            ClientSends("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"),
            ServerGets("POST / HTTP/1.1\r\nHost: {server}\r\nContent-Length: 3\r\n{ours10}\r\nabc"),
            ServerSends(OK),
            ClientGets(closed),
            ClientGetsEnd,
        ],
    );
}

#[test]
fn a_later_minor_version_is_http_1_1() {
    passes("HTTP/1.7", "GET / HTTP/1.7\r\nHost: test\r\n\r\n", GET_SEEN);
}

#[test]
fn a_client_that_leaves_within_its_request_takes_the_servers_connection_along() {
    for leave in [ClientCloses, ClientHalfCloses] {
        let scene = Scene::new();
        scene.play(
            "within a body",
            &[
                ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc"),
                ServerAccepts,
                ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n{ours}\r\nabc"),
                leave,
                // The server must not see an end of the request that looks complete.
                ServerIsClosed,
            ],
        );
        scene.assert_failures(&["client-gone"]);
    }
}

#[test]
fn a_client_that_only_sends_no_more_gets_its_response() {
    Scene::new()
        .play("half-close", &[ClientSends(GET), ClientHalfCloses, ServerAccepts, IsServed, ClientGetsEnd]);
}
