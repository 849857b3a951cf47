//! Responses that come before their request has ended: passed on at once, with the rest of the request beside them.

use crate::peer::Ending;
use crate::scene::Scene;
use crate::scene::Step::*;

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
            // The end of the connection is the only end that this request can have.
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
    let mut server = scene.accept(0);
    server.head();
    server.sends("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno");
    drop(server);
    // All of it, by a client that listens only afterwards.
    client.sends(vec![0; BYTES]);
    let message = client.message();
    assert_eq!((message.status(), message.body.as_slice()), (413, b"no".as_slice()));
    assert_eq!(client.rest(), (Vec::new(), Ending::End));
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
