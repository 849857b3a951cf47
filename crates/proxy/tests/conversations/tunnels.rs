//! Upgraded connections: bytes both ways, each direction with a separate end (RFC 9110 §7.8).

use std::time::Duration;

use testkit::http1::ReaderEnding;
use testkit::text::{GET, expand, failure_and_go_on};

use super::scene::Step::*;
use super::scene::{Scene, Step};

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: x\r\n\r\n";
const ASK_SEEN: &str = "GET /chat HTTP/1.1\r\nHost: test\r\nSec-WebSocket-Key: x\r\nUpgrade: websocket\r\n\
    Connection: upgrade\r\n{ours}\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: y\r\n\r\n";
const SWITCH_GOT: &str = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: y\r\nConnection: upgrade\r\n\
    Upgrade: websocket\r\n{via}\r\n";

const NOT_ASKED_FOR: &str = "The server switched to a protocol that was not requested.";

const UPGRADED: [Step<'static>; 5] =
    [ClientSends(ASK), ServerAccepts, ServerGets(ASK_SEEN), ServerSends(SWITCH), ClientGets(SWITCH_GOT)];

fn after_upgrade(name: &str, steps: &[Step<'_>]) {
    let scene = Scene::new();
    scene.play(name, &[UPGRADED.as_slice(), steps].concat());
    assert_eq!(scene.running().counters().tunnels, 1);
}

#[test]
fn bytes_pass_both_ways_until_each_has_ended() {
    after_upgrade(
        "the client ends first",
        &[
            ClientSends("ping"),
            ServerGets("ping"),
            ServerSends("pong"),
            ClientGets("pong"),
            ServerSends("unasked"),
            ClientGets("unasked"),
            ClientHalfCloses,
            ServerGetsEnd,
            ServerSends("still here"),
            ClientGets("still here"),
            ServerCloses,
            ClientGetsEnd,
        ],
    );
    after_upgrade(
        "the server ends first",
        &[
            ServerHalfCloses,
            ClientGetsEnd,
            ClientSends("still here"),
            ServerGets("still here"),
            ClientSends("and here"),
            ServerGets("and here"),
            ClientCloses,
            ServerGetsEnd,
        ],
    );
}

#[test]
fn what_comes_with_the_handshake_is_the_new_protocols() {
    let early = format!("{ASK}early");
    let switch_and_more = format!("{SWITCH}first");
    Scene::new().play(
        "early data",
        &[
            ClientSends(&early),
            ServerAccepts,
            ServerGets(ASK_SEEN),
            ServerSends(&switch_and_more),
            ClientGets(SWITCH_GOT),
            ClientGets("first"),
            ServerGets("early"),
            ClientHalfCloses,
            ServerGetsEnd,
            ServerCloses,
            ClientGetsEnd,
        ],
    );
}

#[test]
fn a_server_may_decline() {
    Scene::new().play(
        "200 instead of 101",
        &[
            ClientSends(ASK),
            ServerAccepts,
            ServerGets(ASK_SEEN),
            ServerSends(testkit::text::OK),
            ClientGets(testkit::text::OK_GOT),
            ClientSends(GET),
            ServerGets(testkit::text::GET_SEEN),
            ServerSends(testkit::text::OK),
            ClientGets(testkit::text::OK_GOT),
        ],
    );
}

#[test]
fn a_switch_that_was_not_asked_for_is_refused() {
    // RFC 9110 §7.8: a server may only switch to a requested protocol; here none was forwarded.
    let refused = failure_and_go_on("502 Bad Gateway", NOT_ASKED_FOR);
    for fields in
        ["Connection: upgrade\r\nUpgrade: h2c\r\n", "Connection: upgrade\r\n", "Upgrade: websocket\r\n"]
    {
        let request = format!("GET / HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
        Scene::new().play(
            fields,
            &[
                ClientSends(&request),
                ServerAccepts,
                ServerGets(testkit::text::GET_SEEN),
                ServerSends(SWITCH),
                ClientGets(&refused),
                ServerIsClosed,
            ],
        );
    }
}

#[test]
fn a_switch_to_something_else_is_refused() {
    // RFC 9110 §7.8: a 101 names its protocol, which must be an offered one.
    let refused = failure_and_go_on("502 Bad Gateway", NOT_ASKED_FOR);
    for fields in [
        "Connection: upgrade\r\nUpgrade: other\r\n",
        "Connection: upgrade\r\nUpgrade: websocket, other\r\n",
        "Connection: upgrade\r\nUpgrade: h2c\r\n",
        "Connection: upgrade\r\n",
        "Upgrade: websocket\r\n",
        "",
    ] {
        let scene = Scene::new();
        let switch = format!("HTTP/1.1 101 Switching Protocols\r\n{fields}Sec-WebSocket-Accept: y\r\n\r\n");
        scene.play(
            fields,
            &[
                ClientSends(ASK),
                ServerAccepts,
                ServerGets(ASK_SEEN),
                ServerSends(&switch),
                ClientGets(&refused),
                ServerIsClosed,
            ],
        );
        scene.assert_failures(&["upstream-switch"]);
    }
}

#[test]
fn a_tunnel_in_which_nothing_moves_is_closed() {
    let scene = Scene::with(|config| config.timeouts.tunnel_idle = Duration::from_secs(2));
    let idle = [ClientSends("ping"), ServerGets("ping"), ClientGetsEnd, ServerIsClosed];
    scene.play("idle", &[UPGRADED.as_slice(), &idle].concat());
}

#[test]
fn large_amounts_pass_both_ways_at_once() {
    const BYTES: usize = 4 << 20;
    let scene = Scene::new();
    let mut client = scene.client().saying(ASK);
    let mut server = scene.accept(0).after_head();
    server.sends(SWITCH);
    assert_eq!(client.message().status(), 101);
    let pattern: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let (mut client_sends, mut server_sends) = (
        client.stream().try_clone().expect("a descriptor is free"),
        server.stream().try_clone().expect("a descriptor is free"),
    );
    std::thread::scope(|scope| {
        use std::io::Write;
        scope.spawn(|| client_sends.write_all(&pattern).expect("the proxy takes it"));
        scope.spawn(|| server_sends.write_all(&pattern).expect("the proxy takes it"));
        let up = scope.spawn(|| server.exactly(BYTES) == pattern);
        assert!(client.exactly(BYTES) == pattern, "what the client got is not what the server sent");
        assert!(up.join().expect("no panic"), "what the server got is not what the client sent");
    });
}

/// A broken side must not look like an orderly end to the other.
#[test]
fn a_side_that_breaks_breaks_the_other() {
    for server_breaks in [true, false] {
        let scene = Scene::new();
        let mut client = scene.client().saying(ASK);
        let mut server = scene.accept(0);
        server.gets(&expand(ASK_SEEN, ""));
        server.sends(SWITCH);
        client.gets(&expand(SWITCH_GOT, ""));
        let (broken, mut other) = if server_breaks { (server, client) } else { (client, server) };
        broken.resets();
        assert_eq!(other.rest(), (Vec::new(), ReaderEnding::Reset), "the server breaks: {server_breaks}");
    }
}

#[test]
fn a_request_with_a_body_may_be_upgraded_and_all_of_it_is_counted() {
    for (body, rest) in [("hello", ""), ("he", "llo")] {
        let ask = ASK.replace("GET", "POST").replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\n");
        let scene = Scene::new();
        let mut client = scene.client().saying([&ask, body].concat());
        let mut server = scene.accept(0);
        let seen = server.head();
        server.gets(body.as_bytes());
        client.sends(rest);
        server.gets(rest.as_bytes());
        server.sends(SWITCH);
        client.gets(&expand(SWITCH_GOT, ""));
        // Less than the body.
        client.sends("abc");
        server.gets(b"abc");
        client.half_closes();
        server.gets_the_end();
        drop(server);
        client.gets_the_end();
        scene.assert_failures(&[]);
        let counted = scene.running().counters();
        assert_eq!(counted.client_bytes_received, (ask.len() + "helloabc".len()) as u64);
        assert_eq!(counted.upstream_bytes_sent, (seen.len() + "helloabc".len()) as u64);
    }
}
