//! Limits on sizes and numbers, each with its status.

use config::MemoryBound;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand, failure_and_close, failure_of_load};
use testkit::wait::Patience;

use super::scene::Scene;
use super::scene::Step::*;

const TOO_LARGE: &str = "The request body is too large.";

#[test]
fn a_body_that_is_announced_too_large_is_413_before_a_server_hears_of_it() {
    body_is_limited(&Scene::with(|config| config.limits.body_bytes = Some(5)));
    // The route's limit replaces the general one, even if that is smaller.
    for general in [None, Some(1), Some(100)] {
        body_is_limited(&Scene::with(|config| {
            config.limits.body_bytes = general;
            config.routes[0].policies.limits.body_bytes = Some(Some(5));
        }));
    }
}

/// Asserts a limit of five bytes.
fn body_is_limited(scene: &Scene) {
    let refused = failure_and_close("413 Content Too Large", TOO_LARGE);
    for request in [
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nhello!",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9223372036854775807\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n",
    ] {
        scene.play(request, &[ClientSends(request), ClientGets(&refused), ClientGetsEnd]);
    }
    // Exactly at the limit, in both framings.
    scene.play(
        "5 bytes",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello"),
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n{ours}\r\nhello"),
            ServerSends(OK),
            ClientGets(OK_GOT),
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
            ServerGets(
                "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn a_route_may_take_bodies_of_any_length() {
    let scene = Scene::with(|config| {
        config.limits.body_bytes = Some(1);
        config.routes[0].policies.limits.body_bytes = Some(None);
    });
    scene.play(
        "5 bytes",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello"),
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n{ours}\r\nhello"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn chunks_that_become_too_large_are_413_and_the_server_sees_no_whole_body() {
    let scene = Scene::with(|config| config.limits.body_bytes = Some(5));
    let refused = failure_and_close("413 Content Too Large", TOO_LARGE);
    scene.play(
        "chunk by chunk",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
            ServerAccepts,
            ServerGets(
                "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n3\r\nabc\r\n",
            ),
            ClientSends("3\r\ndef\r\n0\r\n\r\n"),
            ClientGets(&refused),
            ClientGetsEnd,
            ServerIsClosed,
        ],
    );
    scene.assert_failures(&["body-too-large"]);
}

#[test]
fn a_target_that_is_too_long_is_414() {
    let refused = failure_and_close("414 URI Too Long", "The request target is too long.");
    let target = |length: usize| format!("/{}", "x".repeat(length - 1));
    for (name, length, header_bytes) in [("by its own limit", 101, 65_536), ("by the head's", 2000, 1024)] {
        let scene = Scene::with(|config| {
            config.limits.target_bytes = if length == 101 { 100 } else { 65_536 };
            config.limits.header_bytes = header_bytes;
        });
        let request = format!("GET {} HTTP/1.1\r\nHost: test\r\n\r\n", target(length));
        scene.play(name, &[ClientSends(&request), ClientGets(&refused), ClientGetsEnd]);
    }
    let scene = Scene::with(|config| config.limits.target_bytes = 100);
    let (request, seen) = (
        format!("GET {} HTTP/1.1\r\nHost: test\r\n\r\n", target(100)),
        format!("GET {} HTTP/1.1\r\nHost: test\r\n{{ours}}\r\n", target(100)),
    );
    scene.play(
        "just as long as allowed",
        &[ClientSends(&request), ServerAccepts, ServerGets(&seen), ServerSends(OK), ClientGets(OK_GOT)],
    );
}

#[test]
fn a_head_that_is_too_large_is_431_by_bytes_and_by_count() {
    let refused =
        failure_and_close("431 Request Header Fields Too Large", "The request header fields are too large.");
    let scene = Scene::new();
    let long = format!("GET / HTTP/1.1\r\nHost: test\r\nA: {}\r\n\r\n", "x".repeat(64 * 1024));
    let endless = format!("GET / HTTP/1.1\r\nHost: test\r\nA: {}", "x".repeat(64 * 1024));
    let many = format!("GET / HTTP/1.1\r\nHost: test\r\n{}\r\n", "A: b\r\n".repeat(256));
    for (name, request) in [("a long field", long), ("one without an end", endless), ("many fields", many)] {
        scene.play(name, &[ClientSends(&request), ClientGets(&refused), ClientGetsEnd]);
    }
    let fields = "A: b\r\n".repeat(255);
    let padding = "x".repeat(60 * 1024);
    for (name, fields) in [("255 fields and Host", fields), ("60 KiB", format!("A: {padding}\r\n"))] {
        let request = format!("GET / HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
        let seen = format!("GET / HTTP/1.1\r\nHost: test\r\n{fields}{{ours}}\r\n");
        let response =
            format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok").replacen("A: b\r\n", "", 1);
        let got = response.replacen("Content-Length: 2\r\n", "Content-Length: 2\r\nDate: {date}\r\n{via}", 1);
        let steps = [
            ClientSends(&request),
            ServerAccepts,
            ServerGets(&seen),
            ServerSends(&response),
            ClientGets(&got),
        ];
        Scene::new().play(name, &steps);
    }
}

#[test]
fn clients_beyond_the_limit_are_503_until_one_leaves() {
    let scene = Scene::with(|config| config.limits.connections = 2);
    let refused = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 31\r\n\
                   Retry-After: 1\r\nConnection: close\r\nDate: {date}\r\n\r\nToo many clients are connected.\n";
    let serve = |client: &mut testkit::http1::Http1Peer, server: &mut Option<testkit::http1::Http1Peer>| {
        client.sends(GET);
        let server = server.get_or_insert_with(|| scene.accept(0));
        server.gets(&expand(GET_SEEN, ""));
        server.sends(OK);
        client.gets(&expand(OK_GOT, ""));
    };
    let mut server = None;
    let (mut first, mut second) = (scene.client(), scene.client());
    serve(&mut first, &mut server);
    serve(&mut second, &mut server);
    let mut third = scene.client();
    third.gets(&expand(&refused.replace("31", &"Too many clients are connected.\n".len().to_string()), ""));
    third.gets_the_end();
    assert_eq!(scene.running().counters().connections_refused, 1);

    // The proxy's close shows that it has seen the client's.
    first.half_closes();
    first.gets_the_end();
    let mut fourth = scene.client();
    serve(&mut fourth, &mut server);
    serve(&mut second, &mut server);
}

#[test]
fn a_connection_serves_only_so_many_requests() {
    let scene = Scene::with(|config| config.limits.requests_per_connection = Some(2));
    let pipelined = [GET; 3].concat();
    scene.play(
        "two and no more",
        &[
            ClientSends(&pipelined),
            ServerAccepts,
            IsServed,
            ServerGets(GET_SEEN),
            ServerSends(OK),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nok"),
            ClientGetsEnd,
            ClientConnects,
            ClientSends(GET),
            IsServed,
        ],
    );
}

#[test]
fn where_memory_is_short_a_few_requests_are_admitted_and_the_rest_may_come_again() {
    // The minimum that can be configured, and more than that in use.
    const LEAST: usize = 16 << 20;
    let scene = Scene::with(|config| config.shed.memory = MemoryBound::Bytes(LEAST as u64));
    let _in_use = std::hint::black_box(vec![1_u8; 2 * LEAST]);
    let refused = expand(&failure_of_load("Too many requests are in progress."), "");
    // The control thread has not checked the memory yet, and some requests are always admitted.
    let mut waiting = Vec::new();
    loop {
        let mut client = scene.client().saying(GET);
        let patience = Patience::new();
        let server = loop {
            match scene.try_accept(0) {
                Some(server) => break Some(server),
                None if client.has_something() => break None,
                None => patience.wait("the request is neither passed on nor refused"),
            }
        };
        let Some(server) = server else {
            client.gets(&refused);
            break;
        };
        waiting.push((client, server));
    }
    assert!(waiting.len() >= 16, "{}", waiting.len());
    for (mut client, mut server) in waiting {
        server.gets(&expand(GET_SEEN, ""));
        server.sends(OK);
        client.gets(&expand(OK_GOT, ""));
    }
}
