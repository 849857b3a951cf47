//! Faulty servers: responses that are rejected with 502, and responses that break off. The connection to such a server
//! is never reused.

use testkit::http1::ReaderEnding;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand, failure_and_go_on};

use super::scene::Scene;
use super::scene::Step::*;

const MALFORMED: &str = "The server's response is not valid HTTP.";
const UNCLEAR: &str = "The length of the server's response is ambiguous.";
const ENDED_EARLY: &str = "The server's response ended early.";
const CLOSED: &str = "The server closed the connection without a response.";
const RESET: &str = "The server reset the connection without a response.";

/// Asserts that each response causes a 502. The client's connection continues; the server's is closed at once.
fn refused(reason: &str, cause: &str, responses: &[&[u8]]) {
    let scene = Scene::new();
    let answer = expand(&failure_and_go_on("502 Bad Gateway", reason), "");
    let mut client = scene.client();
    for response in responses {
        client.sends(GET);
        let mut server = scene.accept(0);
        server.gets(&expand(GET_SEEN, ""));
        server.sends(response);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.gets(&answer);
            server.is_closed();
        }));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map_or("", String::as_str);
            panic!("{}:\n{text}", response.escape_ascii());
        }
    }
    client.has_nothing();
    scene.assert_failures(&vec![cause; responses.len()]);
}

#[test]
fn answers_that_are_not_http() {
    refused(
        MALFORMED,
        "upstream-malformed",
        &[
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"\x15\x03\x01\x00\x02\x02\x46",
            b"hello\r\n\r\n",
            b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/2 200\r\n\r\n",
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 600 No\r\n\r\n",
            b"HTTP/1.1 099 No\r\n\r\n",
            b"HTTP/1.1  200 OK\r\n\r\n",
            b"HTTP/1.1\t200 OK\r\n\r\n",
            b"http/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 O\x00K\r\n\r\n",
            b"HTTP/1.1 200 O\rK\r\n\r\n",
            b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
            b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nA: b\rC: d\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nA\x00: b\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nA: \x00\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 103 Early Hints\r\nA : b\r\n\r\n",
        ],
    );
}

#[test]
fn switches_that_nobody_asked_for() {
    refused(
        "The server switched to a protocol that was not requested.",
        "upstream-switch",
        &[
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        ],
    );
}

#[test]
fn answers_whose_length_is_not_clear() {
    refused(
        UNCLEAR,
        "upstream-framing",
        &[
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551618\r\n\r\nok",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            // Invalid chunks that arrive with the head.
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nok\r\n0\r\n\r\n",
            // A field that may not be removed hop by hop.
        ],
    );
}

#[test]
fn an_answer_that_ends_before_it_began_or_within_its_head() {
    for (name, said) in [("nothing", ""), ("half a head", "HTTP/1.1 200 OK\r\nContent-Le")] {
        for (ending, reason, cause) in
            [(ServerCloses, CLOSED, "upstream-closed"), (ServerResets, RESET, "upstream-reset")]
        {
            let answer = failure_and_go_on("502 Bad Gateway", reason);
            let scene = Scene::with(|config| config.upstreams[0].retry.attempts = 1);
            scene.play(
                name,
                &[
                    ClientSends(GET),
                    ServerAccepts,
                    ServerGets(GET_SEEN),
                    ServerSends(said),
                    ending,
                    ClientGets(&answer),
                    // The client's connection is not affected.
                    ClientSends(GET),
                    ServerAccepts,
                    IsServed,
                ],
            );
            scene.assert_failures(&[cause]);
        }
    }
}

#[test]
fn a_head_beyond_the_limits() {
    let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(64 * 1024));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(257));
    let reason = "The header fields of the server's response are too large.";
    refused(reason, "upstream-head-too-large", &[long.as_bytes(), many.as_bytes()]);
}

/// A body that fits the buffer is awaited briefly: longer than a dying server takes, shorter than a client notices.
#[test]
fn a_short_body_that_breaks_off_is_answered_for() {
    let scene = Scene::with(|config| config.upstreams[0].retry.attempts = 1);
    let mut client = scene.client();
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nContent-Length: 16000\r\n\r\nhell",
    ] {
        client.sends(GET);
        let mut server = scene.accept(0);
        server.gets(&expand(GET_SEEN, ""));
        server.sends(response);
        drop(server);
        client.gets(&expand(&failure_and_go_on("502 Bad Gateway", ENDED_EARLY), ""));
    }
    scene.assert_failures(&["upstream-truncated"; 3]);
}

#[test]
fn a_short_body_that_comes_slowly_is_passed_on_as_it_comes() {
    Scene::new().play(
        "a slow short body",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 5\r\n\r\nhe"),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 5\r\n{via}\r\nhe"),
            ServerSends("llo"),
            ClientGets("llo"),
        ],
    );
}

#[test]
fn a_body_that_breaks_off_is_seen_to_be_broken_off() {
    let with_length = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 9\r\n\r\nhello";
    let with_length_got = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 9\r\n{via}\r\nhello";
    let in_chunks = "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let in_chunks_got = "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n5\r\nhello\r\n";
    for (sent, got) in [(with_length, with_length_got), (in_chunks, in_chunks_got)] {
        for ending in [ServerCloses, ServerResets] {
            let scene = Scene::new();
            scene.play(
                "a body",
                &[
                    ClientSends(GET),
                    ServerAccepts,
                    ServerGets(GET_SEEN),
                    ServerSends(sent),
                    ClientGets(got),
                    ending,
                    // Before the length, and without a last chunk.
                    ClientGetsEnd,
                ],
            );
            scene.assert_failures(&["upstream-truncated"]);
        }
    }
}

#[test]
fn a_client_that_is_told_of_the_end_by_the_end_gets_a_reset_instead() {
    // An HTTP/1.0 client would take an orderly close for the end of the body.
    let scene = Scene::new();
    let mut client = scene.client().saying("GET / HTTP/1.0\r\n\r\n");
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    client.gets(b"HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\nVia: 1.1 vanward\r\n\r\nhello");
    drop(server);
    client.gets_a_reset();

    // So would any client, if the server's body lasts until close, and the server resets.
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 200 OK\r\nDate: D\r\n\r\nhello");
    client.gets(&expand(
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n5\r\nhello\r\n",
        "",
    ));
    server.resets();
    let (rest, _) = client.rest();
    assert_eq!(rest, b"", "no last chunk");
}

#[test]
fn an_invalid_chunk_within_a_body_cuts_it() {
    for chunk in ["x\r\n", "5\nhello\r\n", "2\r\nokay\r\n", "0\r\nA : b\r\n\r\n"] {
        let scene = Scene::new();
        let mut client = scene.client().saying(GET);
        let mut server = scene.accept(0).after_head();
        server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        client.gets(&expand(
            "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n3\r\nabc\r\n",
            "",
        ));
        server.sends(chunk);
        let (rest, ending) = client.rest();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{chunk:?}: the body looks whole: {}", rest.escape_ascii());
        assert_eq!(ending, ReaderEnding::End, "{chunk:?}");
        server.is_closed();
        scene.assert_failures(&["upstream-framing"]);
    }
}

#[test]
fn a_server_that_sends_more_than_it_promised_is_not_asked_again() {
    for (name, more) in [
        (
            "behind a length",
            "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nA: evil\r\n\r\n",
        ),
        (
            "behind chunks",
            "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nevil",
        ),
        ("behind 204", "HTTP/1.1 204 OK\r\nDate: D\r\n\r\nevil"),
        ("behind 304", "HTTP/1.1 304 OK\r\nDate: D\r\nContent-Length: 4\r\n\r\nevil"),
    ] {
        let scene = Scene::new();
        let mut client = scene.client().saying(GET);
        let mut server = scene.accept(0).after_head();
        server.sends(more);
        let message = client.message();
        assert!(message.body.is_empty() || message.body == b"ok", "{name}: {message:?}");
        server.is_closed();
        client.sends(GET);
        let mut server = scene.accept(0).after_head();
        server.sends(OK);
        client.gets(&expand(OK_GOT, ""));
    }
}

#[test]
fn what_arrives_on_an_idle_connection_belongs_to_no_request() {
    Scene::new().play(
        "a late answer",
        &[
            ClientSends(GET),
            ServerAccepts,
            IsServed,
            ServerSends("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi"),
            ServerIsClosed,
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n{ours}\r\nhi"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}
