//! Collapsed requests: one asks the server, and all others get its response or its failure.

use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http2::frame::last_headers;
use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};
use testkit::wait::assert_soon;

use super::answered::{ONE_ROUTE, next, response};
use super::purged;

const CROWD: usize = 40;

/// Clients of both workers that wait for the same response.
fn crowd(scene: &Scene) -> Vec<SceneClient> {
    let client = |number: usize| scene.client(BOTH[number % 2]).asking(&get("/a"));
    (0..CROWD).map(client).collect()
}

#[test]
fn a_crowd_is_one_request_to_the_server() {
    let scene = Scene::new(ONE_ROUTE);
    let mut clients = crowd(&scene);
    let mut server = scene.accept(0).after_head();
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
    let client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nfirst");
    let mut second = scene.client(Spoken::Http2).asking(&get("/a"));
    drop(client);
    server.sends("-half");
    assert_eq!(second.gets().body, "first-half");
    assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "first-half");
}

#[test]
fn a_server_that_dies_in_the_middle_leaves_nothing_behind() {
    let scene = Scene::new(ONE_ROUTE);
    let client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100000\r\n\r\nfirst");
    drop(server);
    let SceneClient::One(mut peer) = client else { return };
    let (bytes, _) = peer.rest();
    assert!(bytes.len() < 100_000);
    // Nothing was stored: the next request asks again.
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends(response("Cache-Control: max-age=60\r\n", "whole"));
    assert_eq!(client.gets().body, "whole");
}

#[test]
fn who_waits_for_what_may_not_be_stored_asks_alone() {
    let scene = Scene::new(ONE_ROUTE);
    let mut first = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    let mut second = scene.client(Spoken::Http2).asking(&get("/a"));
    server.sends(response("Cache-Control: private\r\n", "1"));
    assert_eq!(first.gets().body, "1");
    let mut other = None;
    let answering = next(&scene, &mut server, &mut other);
    answering.head();
    answering.sends(response("Cache-Control: private\r\n", "2"));
    assert_eq!(second.gets().body, "2");
}

fn waits(scene: &Scene, count: u64) {
    assert_soon("the requests do not wait", || scene.running().counters().cache_waits >= count);
}

const ALICE: BodylessRequest<'_> =
    BodylessRequest { method: "GET", host: "test", target: "/account", fields: "cookie: alice\n" };
const BOB: BodylessRequest<'_> = BodylessRequest { fields: "cookie: bob\n", ..ALICE };

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
            // A response that has begun to arrive is not shared either.
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
    // The stored response shows that waiting would be in vain.
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
        let mut server = scene.accept(0).after_head();
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
            let mut server = scene.accept(0).after_head();
            let whole = response("Cache-Control: max-age=60\r\nETag: \"1\"\r\n", "first");
            let (begin, rest) = whole.split_at(whole.len() - 3);
            if !waits_for_head {
                server.sends(begin);
                assert_soon("the response does not arrive", || {
                    scene.running().counters().upstream_bytes_received != 0
                });
            }
            second.asks(&BodylessRequest { fields, ..get("/a") });
            if waits_for_head {
                if !fields.starts_with("if-match") {
                    waits(&scene, 1);
                }
                server.sends(begin);
            }
            let mut other = scene.accept(0).after_head();
            other.sends(response("", "second"));
            assert_eq!(second.gets().body, "second", "{fields}");
            server.sends(rest);
            assert_eq!(first.gets().body, "first");
        }
    }
}

/// The number of connections, and of streams on each.
const TIMES: u32 = 100;

/// Ten thousand concurrent requests for the same response, on both workers. The server has the first.
fn multitude(scene: &Scene) -> (Vec<H2End>, Http1Peer) {
    let request = ":method: GET\n:scheme: http\n:authority: test\n:path: /a\n";
    let client = |_| match scene.client(Spoken::Http2) {
        SceneClient::Two(end, _) => *end,
        SceneClient::One(_) => unreachable!("it speaks HTTP/2"),
    };
    let mut clients: Vec<H2End> = (0..TIMES).map(client).collect();
    for client in &mut clients {
        for stream in streams() {
            client.sends(last_headers(stream, request));
        }
    }
    let server = scene.accept(0).after_head();
    assert_soon("the requests do not wait", || {
        scene.running().counters().cache_waits >= u64::from(TIMES * TIMES) - 1
    });
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
            // Clients that got no byte yet get an error response.
            assert!(got.contains("reset ") || got.starts_with(":status: 502\n"), "{got}");
        }
    }
    assert!(scene.try_accept(0).is_none());
    let (_, got) =
        scene.exchange(Spoken::Http1, &get("/a"), &response("Cache-Control: max-age=60\r\n", "new"));
    assert_eq!(got.body, "new");
}
