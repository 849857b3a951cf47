//! Interim responses (RFC 9110 §15.2), and 100-continue from end to end (§10.1.1).

use testkit::text::{GET, GET_SEEN, OK, OK_GOT, failure_and_go_on};

use super::scene::Scene;
use super::scene::Step::*;

const EXPECTS: &str = "POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
const EXPECTS_SEEN: &str =
    "POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n{ours}\r\n";

#[test]
fn early_hints_are_passed_on_before_the_response() {
    let hints =
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n";
    let hints_got = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n{via}\r\n";
    let both = format!("{hints}{OK}");
    Scene::new().play(
        "103",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends(hints),
            ClientGets(hints_got),
            ServerSends("HTTP/1.1 102 Processing\r\n\r\n"),
            ClientGets("HTTP/1.1 102 Processing\r\n{via}\r\n"),
            ServerSends(OK),
            ClientGets(OK_GOT),
            // In one segment with the final response.
            ClientSends(GET),
            ServerGets(GET_SEEN),
            ServerSends(&both),
            ClientGets(hints_got),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn a_client_of_http_1_0_gets_no_interim_response() {
    Scene::new().play(
        "103 to HTTP/1.0",
        &[
            ClientSends("GET / HTTP/1.0\r\n\r\n"),
            ServerAccepts,
            ServerGets("GET / HTTP/1.1\r\nHost: {server}\r\n{ours10}\r\n"),
            ServerSends("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
            ServerSends(OK),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nok"),
            ClientGetsEnd,
        ],
    );
}

#[test]
fn interim_responses_without_an_end_are_refused() {
    let endless = "HTTP/1.1 102 Processing\r\n\r\n".repeat(33);
    let scene = Scene::new();
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    server.sends(&endless);
    for _ in 0..32 {
        assert!(client.head().starts_with("HTTP/1.1 102 "));
    }
    let refusal = failure_and_go_on("502 Bad Gateway", "The server sent too many interim responses.");
    client.gets(&testkit::text::expand(&refusal, ""));
    server.is_closed();
}

#[test]
fn a_body_is_sent_once_the_server_asks_for_it() {
    Scene::new().play(
        "100-continue",
        &[
            ClientSends(EXPECTS),
            ServerAccepts,
            ServerGets(EXPECTS_SEEN),
            ServerSends("HTTP/1.1 100 Continue\r\n\r\n"),
            ClientGets("HTTP/1.1 100 Continue\r\n{via}\r\n"),
            ClientSends("hello"),
            ServerGets("hello"),
            ServerSends(OK),
            ClientGets(OK_GOT),
            ClientSends(GET),
            IsServed,
        ],
    );
}

#[test]
fn a_client_that_does_not_wait_is_served_as_well() {
    Scene::new().play(
        "100-continue, unasked",
        &[
            ClientSends(EXPECTS),
            ClientSends("hello"),
            ServerAccepts,
            ServerGets(EXPECTS_SEEN),
            ServerGets("hello"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn a_final_status_instead_of_100_ends_the_exchange() {
    // The client may or may not send its body now, so neither connection can carry another request.
    Scene::new().play(
        "417",
        &[
            ClientSends(EXPECTS),
            ServerAccepts,
            ServerGets(EXPECTS_SEEN),
            ServerSends("HTTP/1.1 417 No\r\nDate: D\r\nContent-Length: 2\r\n\r\nno"),
            ClientGets("HTTP/1.1 417 No\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nno"),
            ClientGetsEnd,
            ServerIsClosed,
        ],
    );
}
