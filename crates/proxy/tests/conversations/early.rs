//! Responses before the end of their request: passed on at once, while the rest of the request continues.

use std::time::Duration;

use socket2::{Domain, Socket, Type};
use testkit::http1::{Http1Peer, ReaderEnding};

use super::scene::Scene;
use super::scene::Step::*;

#[test]
fn a_refusal_reaches_a_client_that_still_sends() {
    Scene::new().play(
        "413",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\nbegin"),
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n{ours}\r\nbegin"),
            ServerSends("HTTP/1.1 413 Content Too Large\r\nDate: D\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"),
            ServerCloses,
            // Only the end of the connection can end this request.
            ClientGets(
                "HTTP/1.1 413 Content Too Large\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nno",
            ),
            ClientGetsEnd,
        ],
    );
}

#[test]
fn a_client_that_sends_before_it_reads_gets_the_refusal_and_no_reset() {
    const BYTES: usize = 16 << 20;
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends(format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {BYTES}\r\n\r\n"));
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno");
    drop(server);
    // The whole body, from a client that reads only afterwards.
    client.sends(vec![0; BYTES]);
    let message = client.message();
    assert_eq!((message.status(), message.body.as_slice()), (413, b"no".as_slice()));
    assert_eq!(client.rest(), (Vec::new(), ReaderEnding::End));
}

#[test]
fn both_bodies_may_be_under_way_at_once() {
    Scene::new().play(
        "a conversation of chunks",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n"),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ClientGets(
                "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{via}\r\n",
            ),
            ClientSends("3\r\none\r\n"),
            ServerGets("3\r\none\r\n"),
            ServerSends("3\r\nONE\r\n"),
            ClientGets("3\r\nONE\r\n"),
            ServerSends("3\r\nTWO\r\n"),
            ClientGets("3\r\nTWO\r\n"),
            ClientSends("3\r\ntwo\r\n"),
            ServerGets("3\r\ntwo\r\n"),
            ClientSends("0\r\n\r\n"),
            ServerGets("0\r\n\r\n"),
            ServerSends("0\r\n\r\n"),
            ClientGets("0\r\n\r\n"),
            ClientGetsEnd,
        ],
    );
}

#[test]
fn an_invalid_chunk_cuts_the_response_that_is_under_way() {
    let scene = Scene::new();
    scene.play(
        "an invalid chunk",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n"),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ClientGets(
                "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{via}\r\n",
            ),
            ClientSends("x\r\n"),
            ClientGetsEnd,
            ServerIsClosed,
        ],
    );
    scene.assert_failures(&["bad-body"]);
}

/// No error response can follow a part of an interim response.
#[test]
fn an_invalid_chunk_in_the_middle_of_an_interim_response_is_not_answered_there() {
    let scene = Scene::with(|config| config.timeouts.client_header = Duration::from_millis(500));
    // A client that reads almost nothing at first.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("is a socket");
    socket.connect(&scene.address().into()).expect("the proxy listens");
    let mut client = Http1Peer::new("client", socket.into());
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut server = scene.accept(0).after_head();
    let hints = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "x".repeat(60_000));
    server.sends(hints.repeat(31));
    // Gives the proxy time to send what it can.
    let mut clock = scene.client().saying("G");
    assert_eq!(clock.message().status(), 408);
    client.sends("x\r\n");
    let (got, _) = client.rest();
    scene.assert_failures(&["client-header-timeout", "bad-body"]);
    let got = String::from_utf8(got).expect("is text");
    for (at, _) in got.match_indices("HTTP/1.1 ").skip(1) {
        assert!(got[..at].ends_with("\r\n\r\n"), "{}", &got[at..]);
    }
}
