//! Connections that end with their response although their clients have sent more (RFC 9112 §9.6): the response
//! arrives.

use testkit::http1::ReaderEnding;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand};

use super::scene::Scene;
use super::scene::Step::*;

const CLOSED: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nok";

#[test]
fn a_line_end_behind_the_last_request_does_not_cost_its_response() {
    // RFC 9112 §2.2: some clients send an empty line after a body, or after each request.
    let post = "POST / HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
    let post_seen = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n{ours}\r\nabc";
    let old_seen = "GET / HTTP/1.1\r\nHost: {server}\r\n{ours10}\r\n";
    for (request, seen) in [(post, post_seen), ("GET / HTTP/1.0\r\n\r\n", old_seen)] {
        Scene::new().play(
            request,
            &[
                ClientSends(request),
                ServerAccepts,
                ServerGets(seen),
                ClientSends("\r\n"),
                ServerSends(OK),
                ClientGets(CLOSED),
                ClientGetsEnd,
            ],
        );
    }
}

#[test]
fn a_request_behind_the_last_one_does_not_cost_its_response() {
    const BYTES: usize = 1 << 20;
    let scene = Scene::with(|config| config.limits.requests_per_connection = Some(1));
    let mut server = None;
    for is_at_once in [true, false] {
        let mut client = scene.client();
        // More than one read, or a separate segment.
        let behind = GET.repeat(if is_at_once { 4000 } else { 1 });
        if is_at_once {
            client.sends(format!("{GET}{behind}"));
        } else {
            client.sends(GET);
        }
        let server = server.get_or_insert_with(|| scene.accept(0));
        server.gets(&expand(GET_SEEN, ""));
        if !is_at_once {
            client.sends(behind);
        }
        server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n"));
        server.sends(vec![b'x'; BYTES]);
        let message = client.message();
        assert_eq!((message.status(), message.body.len()), (200, BYTES));
        assert_eq!(client.rest(), (Vec::new(), ReaderEnding::End));
    }
}

#[test]
fn a_client_beyond_the_limit_is_told_so_although_it_has_sent_its_request() {
    let scene = Scene::with(|config| config.limits.connections = 1);
    let mut first = scene.client().saying(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    for _ in 0..3 {
        let mut second = scene.client().saying(GET);
        let message = second.message();
        assert_eq!(
            (message.status(), message.body.as_slice()),
            (503, b"Too many clients are connected.\n".as_slice())
        );
        assert_eq!(second.rest(), (Vec::new(), ReaderEnding::End));
    }
    server.sends(OK);
    first.gets(&expand(OK_GOT, ""));
}

#[test]
fn clients_beyond_the_limit_are_waited_for_only_so_many_at_once() {
    let scene = Scene::with(|config| config.limits.connections = 1);
    let mut first = scene.client().saying(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    let mut waited_for = Vec::new();
    loop {
        let mut client = scene.client().saying(GET);
        assert_eq!(client.message().status(), 503);
        client.gets_the_end();
        // The proxy has closed the connection, and the first byte reveals that.
        if !(client.can_send(b"x") && client.can_send(b"x")) {
            break;
        }
        waited_for.push(client);
        assert!(waited_for.len() < 2000, "all are waited for");
    }
    assert!(waited_for.len() >= 256, "{}", waited_for.len());
    server.sends(OK);
    first.gets(&expand(OK_GOT, ""));
}
