//! Many who want the same: one asks, whatever becomes of it.

use testkit::http1::Peer;
use testkit::http2::End;
use testkit::http2::frame::last_headers;
use testkit::scene::{Asked, BOTH, Client, Scene, Spoken, get};

use crate::answered::{ONE_ROUTE, next, response};
use crate::purged;

const CROWD: usize = 40;

/// Clients of both workers that have asked, and wait.
fn crowd(scene: &Scene) -> Vec<Client> {
    let client = |number: usize| {
        let mut client = scene.client(BOTH[number % 2]);
        client.asks(&get("/a"));
        client
    };
    (0..CROWD).map(client).collect()
}

#[test]
fn a_crowd_is_one_request_to_the_server() {
    let scene = Scene::new(ONE_ROUTE);
    let mut clients = crowd(&scene);
    let mut server = scene.accept(0);
    server.head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nfirst");
    server.sends("-half");
    for client in &mut clients {
        assert_eq!(client.gets().body, "first-half");
    }
    assert!(scene.try_accept(0).is_none());
    assert!(!server.has_something());
}

#[test]
fn the_fetch_outlives_its_client() {
    let scene = Scene::new(ONE_ROUTE);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/a"));
    let mut server = scene.accept(0);
    server.head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nfirst");
    let mut second = scene.client(Spoken::Http2);
    second.asks(&get("/a"));
    drop(client);
    server.sends("-half");
    assert_eq!(second.gets().body, "first-half");
    assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "first-half");
}

#[test]
fn a_server_that_dies_in_the_middle_leaves_nothing_behind() {
    let scene = Scene::new(ONE_ROUTE);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/a"));
    let mut server = scene.accept(0);
    server.head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100000\r\n\r\nfirst");
    drop(server);
    let Client::One(mut peer) = client else { return };
    let (bytes, _) = peer.rest();
    assert!(bytes.len() < 100_000);
    // Nothing of it is stored: the next one asks anew.
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/a"));
    let mut server = scene.accept(0);
    server.head();
    server.sends(response("Cache-Control: max-age=60\r\n", "whole"));
    assert_eq!(client.gets().body, "whole");
}

#[test]
fn who_waits_for_what_may_not_be_stored_asks_alone() {
    let scene = Scene::new(ONE_ROUTE);
    let mut first = scene.client(Spoken::Http1);
    first.asks(&get("/a"));
    let mut server = scene.accept(0);
    server.head();
    let mut second = scene.client(Spoken::Http2);
    second.asks(&get("/a"));
    server.sends(response("Cache-Control: private\r\n", "1"));
    assert_eq!(first.gets().body, "1");
    let mut other = None;
    let answering = next(&scene, &mut server, &mut other);
    answering.head();
    answering.sends(response("Cache-Control: private\r\n", "2"));
    assert_eq!(second.gets().body, "2");
}

fn waits(scene: &Scene, count: u64) {
    while scene.running().counters().cache_waits < count {
        std::thread::yield_now();
    }
}

const ALICE: Asked<'_> = Asked { method: "GET", host: "test", target: "/account", fields: "cookie: alice\n" };
const BOB: Asked<'_> = Asked { fields: "cookie: bob\n", ..ALICE };

#[test]
fn rfc9111_4_a_page_that_may_not_be_reused_is_for_the_client_that_it_was_made_for() {
    for fields in [
        "Cache-Control: no-cache\r\nETag: \"1\"\r\n",
        "Cache-Control: max-age=0, must-revalidate\r\nETag: \"1\"\r\n",
        "ETag: W/\"1\"\r\n",
    ] {
        for spoken in BOTH {
            let scene = Scene::new(ONE_ROUTE);
            let (mut alice, mut bob) = (scene.client(Spoken::Http1), scene.client(spoken));
            alice.asks(&ALICE);
            let mut server = scene.accept(0);
            assert!(server.head().contains("cookie: alice"));
            bob.asks(&BOB);
            waits(&scene, 1);
            // What has begun to come is for nobody else either.
            let whole = response(fields, "for alice");
            let (begin, rest) = whole.split_at(whole.len() - 3);
            server.sends(begin);
            let mut other = scene.accept(0);
            assert!(other.head().contains("cookie: bob"), "{fields}");
            other.sends(response(fields, "for bob"));
            assert_eq!(bob.gets().body, "for bob", "{fields}");
            server.sends(rest);
            assert_eq!(alice.gets().body, "for alice");
            assert_eq!(scene.running().counters().cache_waits, 1);
        }
    }
}

#[test]
fn rfc9111_4_what_one_client_has_had_validated_is_so_for_no_other() {
    let scene = Scene::new(ONE_ROUTE);
    let fields = "Cache-Control: no-cache\r\nETag: \"1\"\r\n";
    scene.exchange(Spoken::Http1, &ALICE, &response(fields, "for alice"));
    let (mut alice, mut bob) = (scene.client(Spoken::Http1), scene.client(Spoken::Http2));
    alice.asks(&ALICE);
    let mut server = scene.accept(0);
    assert!(server.head().to_lowercase().contains("if-none-match"));
    bob.asks(&BOB);
    let mut other = scene.accept(0);
    assert!(other.head().contains("cookie: bob"));
    server.sends(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
    other.sends(response(fields, "for bob"));
    assert_eq!((alice.gets().body.as_str(), bob.gets().body.as_str()), ("for alice", "for bob"));
    // It was known before that it would have been in vain.
    assert_eq!(scene.running().counters().cache_waits, 0);
}

#[test]
fn rfc9111_4_who_waits_for_a_validation_asks_alone_if_that_allows_no_reuse() {
    for (directives, is_shared) in [("max-age=60", true), ("no-cache", false), ("max-age=0", false)] {
        let scene = purged::scene("", "");
        let stored = response("Cache-Control: max-age=60\r\nETag: \"1\"\r\n", "old");
        let (_, got) = scene.exchange(Spoken::Http1, &ALICE, &stored);
        assert_eq!(got.body, "old");
        // It is stored by then.
        assert_eq!(scene.answer(Spoken::Http1, &BOB).body, "old");
        let (told, _) =
            purged::order(&scene, "/cache/purge", r#"{"urls":["http://test/account"],"soft":true}"#);
        assert_eq!(told, 200);
        let (mut alice, mut bob) = (scene.client(Spoken::Http1), scene.client(Spoken::Http2));
        alice.asks(&ALICE);
        let mut server = scene.accept(0);
        server.head();
        bob.asks(&BOB);
        waits(&scene, 1);
        let fields = format!("Cache-Control: {directives}\r\nSet-Cookie: alice\r\n");
        server.sends(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
        let got = alice.gets();
        assert_eq!((got.body.as_str(), got.field("set-cookie")), ("old", Some("alice")));
        if !is_shared {
            let mut other = None;
            let answering = next(&scene, &mut server, &mut other);
            assert!(answering.head().contains("cookie: bob"), "{directives}");
            answering.sends(response("", "new"));
        }
        let got = bob.gets();
        let expected = if is_shared { "old" } else { "new" };
        assert_eq!((got.body.as_str(), got.field("set-cookie")), (expected, None), "{directives}");
    }
}

#[test]
fn rfc9111_5_2_1_what_comes_for_another_is_not_for_who_wants_it_anew_or_in_another_state() {
    for fields in ["cache-control: no-cache\n", "cache-control: max-age=0\n", "if-match: \"2\"\n"] {
        for waits_for_head in [true, false] {
            let scene = Scene::new(ONE_ROUTE);
            let (mut first, mut second) = (scene.client(Spoken::Http1), scene.client(Spoken::Http2));
            first.asks(&get("/a"));
            let mut server = scene.accept(0);
            server.head();
            let whole = response("Cache-Control: max-age=60\r\nETag: \"1\"\r\n", "first");
            let (begin, rest) = whole.split_at(whole.len() - 3);
            if !waits_for_head {
                server.sends(begin);
                while scene.running().counters().upstream_bytes_received == 0 {
                    std::thread::yield_now();
                }
            }
            second.asks(&Asked { fields, ..get("/a") });
            if waits_for_head {
                if !fields.starts_with("if-match") {
                    waits(&scene, 1);
                }
                server.sends(begin);
            }
            let mut other = scene.accept(0);
            other.head();
            other.sends(response("", "second"));
            assert_eq!(second.gets().body, "second", "{fields}");
            server.sends(rest);
            assert_eq!(first.gets().body, "first");
        }
    }
}

/// As many streams on each of as many connections.
const TIMES: u32 = 100;

/// Ten thousand requests for the same, on both workers, none of which has been answered: the server has the first.
fn multitude(scene: &Scene) -> (Vec<End>, Peer) {
    let request = ":method: GET\n:scheme: http\n:authority: test\n:path: /a\n";
    let client = |_| match scene.client(Spoken::Http2) {
        Client::Two(end, _) => *end,
        Client::One(_) => unreachable!("it speaks HTTP/2"),
    };
    let mut clients: Vec<End> = (0..TIMES).map(client).collect();
    for client in &mut clients {
        for stream in streams() {
            client.sends(last_headers(stream, request));
        }
    }
    let mut server = scene.accept(0);
    server.head();
    while scene.running().counters().cache_waits < u64::from(TIMES * TIMES) - 1 {
        std::thread::yield_now();
    }
    (clients, server)
}

fn streams() -> impl Iterator<Item = u32> {
    (0..TIMES).map(|number| 2 * number + 1)
}

#[test]
fn ten_thousand_at_once_are_one_request_to_the_server() {
    let scene = Scene::new(ONE_ROUTE);
    let (clients, mut server) = multitude(&scene);
    server.sends(response("Cache-Control: max-age=60\r\n", "for all"));
    for mut client in clients {
        for stream in streams() {
            let got = client.whole(stream);
            assert!(got.starts_with(":status: 200\n") && got.ends_with("---\nfor all\n---\n"), "{got}");
        }
    }
    assert!(scene.try_accept(0).is_none() && !server.has_something());
}

#[test]
fn ten_thousand_at_once_hear_of_a_server_that_dies_in_the_middle() {
    let scene = Scene::new(&format!("{ONE_ROUTE}[upstream.app.retry]\nattempts = 1\n"));
    let (clients, mut server) = multitude(&scene);
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100\r\n\r\nhalf");
    drop(server);
    for mut client in clients {
        for stream in streams() {
            let got = client.whole(stream);
            // Who hears of it before anything was sent is told so.
            assert!(got.contains("reset ") || got.starts_with(":status: 502\n"), "{got}");
        }
    }
    assert!(scene.try_accept(0).is_none());
    let (_, got) =
        scene.exchange(Spoken::Http1, &get("/a"), &response("Cache-Control: max-age=60\r\n", "new"));
    assert_eq!(got.body, "new");
}
