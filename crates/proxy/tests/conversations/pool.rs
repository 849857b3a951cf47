//! Connections to servers: kept, noticed when stale, replaced when they die, and distributed over servers.

use std::time::Duration;

use config::Server;
use testkit::http1::Http1Peer;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand, failure_and_go_on, failure_of_load};

use super::scene::Scene;
use super::scene::Step::*;

const REFUSED: &str = "The server could not be reached.";
const NO_ANSWER: &str = "The server closed the connection without a response.";
const RESET: &str = "The server reset the connection without a response.";

#[test]
fn one_connection_serves_two_clients() {
    let scene = Scene::new();
    scene.play(
        "two clients",
        &[ClientSends(GET), ServerAccepts, IsServed, ClientConnects, ClientSends(GET), IsServed],
    );
    let counted = scene.running().counters();
    assert_eq!((counted.upstream_connects, counted.upstream_reuses), (1, 1));
}

#[test]
fn requests_at_once_have_connections_of_their_own_and_the_newest_idle_one_is_used_first() {
    let scene = Scene::new();
    let (mut first, mut second) = (scene.client(), scene.client());
    first.sends(GET);
    let mut first_server = scene.accept(0);
    first_server.gets(&expand(GET_SEEN, ""));
    second.sends(GET);
    let mut second_server = scene.accept(0);
    second_server.gets(&expand(GET_SEEN, ""));
    second_server.sends(OK);
    second.gets(&expand(OK_GOT, ""));
    first_server.sends(OK);
    first.gets(&expand(OK_GOT, ""));
    for _ in 0..3 {
        second.sends(GET);
        first_server.gets(&expand(GET_SEEN, ""));
        first_server.sends(OK);
        second.gets(&expand(OK_GOT, ""));
    }
    second_server.has_nothing();
    scene.assert_no_more_connections();
}

#[test]
fn without_room_in_the_pool_a_connection_is_closed_after_its_response() {
    let scene = Scene::with(|config| config.upstreams[0].pool.idle = 0);
    let once = [ClientSends(GET), ServerAccepts, IsServed, ServerGetsEnd];
    scene.play("idle = 0", &[once, once].concat());
}

#[test]
fn an_idle_connection_is_closed_in_time() {
    let scene = Scene::with(|config| config.upstreams[0].pool.idle_timeout = Duration::from_millis(300));
    let once = [ClientSends(GET), ServerAccepts, IsServed, ServerGetsEnd];
    scene.play("idle_timeout", &[once, once].concat());
}

#[test]
fn a_connection_that_its_server_has_closed_is_not_used() {
    let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi";
    let post_seen = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n{ours}\r\nhi";
    for ending in [ServerCloses, ServerResets] {
        let scene = Scene::new();
        scene.play(
            "stale",
            &[
                ClientSends(GET),
                ServerAccepts,
                IsServed,
                ending,
                // Not even a POST is affected.
                ClientSends(post),
                ServerAccepts,
                ServerGets(post_seen),
                ServerSends(OK),
                ClientGets(OK_GOT),
            ],
        );
        assert_eq!(scene.running().counters().upstream_retries, 0);
    }
}

/// A pooled connection dies after it got the request. Asserts whether the request is retried.
fn dies_with(request: &str, seen: &str, is_repeated: bool) {
    for (ending, reason) in [(ServerCloses, NO_ANSWER), (ServerResets, RESET)] {
        let scene = Scene::new();
        let refused = failure_and_go_on("502 Bad Gateway", reason);
        let mut steps =
            vec![ClientSends(GET), ServerAccepts, IsServed, ClientSends(request), ServerGets(seen), ending];
        if is_repeated {
            steps.extend([ServerAccepts, ServerGets(seen), ServerSends(OK), ClientGets(OK_GOT)]);
        } else {
            steps.push(ClientGets(&refused));
        }
        scene.play(request, &steps);
        assert_eq!(scene.running().counters().upstream_retries, u64::from(is_repeated), "{request}");
    }
}

#[test]
fn what_may_be_done_twice_is_repeated_once_on_a_new_connection() {
    // RFC 9110 §9.2.2.
    dies_with(GET, GET_SEEN, true);
    let replace = "PUT /a HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello";
    dies_with(replace, "PUT /a HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n{ours}\r\nhello", true);
    let chunked =
        "PUT /a HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    dies_with(
        chunked,
        "PUT /a HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n5\r\nhello\r\n0\r\n\r\n",
        true,
    );
    dies_with(
        "DELETE /a HTTP/1.1\r\nHost: test\r\n\r\n",
        "DELETE /a HTTP/1.1\r\nHost: test\r\n{ours}\r\n",
        true,
    );
}

#[test]
fn what_may_not_be_done_twice_is_not_repeated() {
    let add = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello";
    dies_with(add, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n{ours}\r\nhello", false);
    dies_with("POST / HTTP/1.1\r\nHost: test\r\n\r\n", "POST / HTTP/1.1\r\nHost: test\r\n{ours}\r\n", false);
    dies_with("BREW / HTTP/1.1\r\nHost: test\r\n\r\n", "BREW / HTTP/1.1\r\nHost: test\r\n{ours}\r\n", false);
}

/// RFC 9112 §7.1: only the last chunk ends such a body. Once it was sent to a server, it cannot be sent to another.
#[test]
fn a_body_whose_end_has_been_sent_is_not_repeated_without_it() {
    let head = "PUT /a HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let seen = "PUT /a HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n5\r\nhello\r\n";
    for end in ["0\r\n\r\n", "0\r\nX-Sum: 1\r\n\r\n"] {
        for (ending, reason) in [(ServerCloses, NO_ANSWER), (ServerResets, RESET)] {
            let refused = failure_and_go_on("502 Bad Gateway", reason);
            let scene = Scene::new();
            scene.play(
                end,
                &[
                    ClientSends(GET),
                    ServerAccepts,
                    IsServed,
                    ClientSends(head),
                    ServerGets(seen),
                    ClientSends(end),
                    ServerGets(end),
                    ending,
                    ClientGets(&refused),
                    // No other request is sent into the middle of it.
                    ClientConnects,
                    ClientSends(GET),
                    ServerAccepts,
                    IsServed,
                ],
            );
            assert_eq!(scene.running().counters().upstream_retries, 0);
        }
    }
}

#[test]
fn it_is_repeated_only_once() {
    let refused = failure_and_go_on("502 Bad Gateway", NO_ANSWER);
    // This retry does not count as a configured attempt.
    Scene::with(|config| config.upstreams[0].retry.attempts = 1).play(
        "dies twice",
        &[
            ClientSends(GET),
            ServerAccepts,
            IsServed,
            ClientSends(GET),
            ServerGets(GET_SEEN),
            ServerCloses,
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerCloses,
            ClientGets(&refused),
        ],
    );
}

#[test]
fn what_may_not_be_done_twice_is_not_repeated_once_the_server_has_answered() {
    let refused = failure_and_go_on("502 Bad Gateway", NO_ANSWER);
    let post = GET.replace("GET", "POST");
    let post_seen = GET_SEEN.replace("GET", "POST");
    Scene::new().play(
        "dies within a head",
        &[
            ClientSends(GET),
            ServerAccepts,
            IsServed,
            ClientSends(&post),
            ServerGets(&post_seen),
            ServerSends("HTTP/1.1 2"),
            ServerCloses,
            ClientGets(&refused),
        ],
    );
}

/// An address where no program listens.
fn closed_server() -> Server {
    // The kernel assigns this port only on request.
    "http://127.0.0.1:1".parse().expect("is a URL")
}

#[test]
fn a_server_that_is_not_there_is_502() {
    let scene = Scene::with(|config| config.upstreams[0].servers = vec![closed_server()]);
    let refused = failure_and_go_on("502 Bad Gateway", REFUSED);
    scene.play("refused", &[ClientSends(GET), ClientGets(&refused), ClientSends(GET), ClientGets(&refused)]);
    scene.assert_failures(&["upstream-refused"; 2]);
}

#[test]
fn another_server_takes_the_place_of_one_that_is_not_there() {
    let scene = Scene::with(|config| config.upstreams[0].servers.insert(0, closed_server()));
    let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi";
    let mut client = scene.client();
    let mut server: Option<Http1Peer> = None;
    for _ in 0..4 {
        client.sends(post);
        let server = server.get_or_insert_with(|| scene.accept(0));
        assert_eq!(server.message().body, b"hi");
        server.sends(OK);
        client.gets(&expand(OK_GOT, ""));
    }
    // A single connection was used.
    assert_eq!(scene.running().counters().upstream_connects, 1);
}

#[test]
fn servers_take_turns_by_weight() {
    let scene = Scene::with_servers(&[1, 3], |_| ());
    let mut client = scene.client();
    let mut connections: [Option<Http1Peer>; 2] = [None, None];
    let mut served = [0, 0];
    for _ in 0..8 {
        client.sends(GET);
        let server = wait_for_any(&scene, &mut connections);
        let connection = connections[server].as_mut().expect("is connected");
        connection.gets(&expand(GET_SEEN, ""));
        connection.sends(OK);
        client.gets(&expand(OK_GOT, ""));
        served[server] += 1;
    }
    assert_eq!(served, [2, 6]);
}

/// Whether a request has arrived at a server, without waiting.
fn is_asked(scene: &Scene, connection: &mut Option<Http1Peer>, server: usize) -> bool {
    if connection.is_none() {
        *connection = scene.try_accept(server);
    }
    connection.as_ref().is_some_and(Http1Peer::has_something)
}

fn wait_for_any(scene: &Scene, connections: &mut [Option<Http1Peer>; 2]) -> usize {
    let began = std::time::Instant::now();
    loop {
        if let Some(server) = (0..2).find(|&server| is_asked(scene, &mut connections[server], server)) {
            return server;
        }
        assert!(began.elapsed() < testkit::wait::PATIENCE, "no server is asked");
        std::thread::yield_now();
    }
}

#[test]
fn a_server_by_name_is_tried_at_each_of_its_addresses() {
    // `localhost` may first resolve to ::1, where no program listens.
    let scene = Scene::with(|config| {
        let port = config.upstreams[0].servers[0].port;
        config.upstreams[0].servers = vec![format!("http://localhost:{port}").parse().expect("is a URL")];
    });
    scene.play(
        "localhost",
        &[ClientSends(GET), ServerAccepts, ServerGets(GET_SEEN), ServerSends(OK), ClientGets(OK_GOT)],
    );
}

#[test]
fn a_server_has_only_so_many_connections() {
    let scene = Scene::with(|config| config.upstreams[0].pool.connections = 1);
    let full = failure_of_load("Too many requests are in progress.");
    let (mut first, mut second) = (scene.client(), scene.client());
    first.sends(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    second.sends(GET);
    second.gets(&expand(&full, ""));
    server.sends(OK);
    first.gets(&expand(OK_GOT, ""));
    // There is room again.
    second.sends(GET);
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    second.gets(&expand(OK_GOT, ""));
    scene.assert_failures(&["upstream-full"]);
}
