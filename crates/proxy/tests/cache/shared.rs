//! Many who want the same: one asks, whatever becomes of it.

use crate::answered::{ONE_ROUTE, next, response};
use crate::end::End;
use crate::frame::last_headers;
use crate::peer::Peer;
use crate::scene::{BOTH, Client, Scene, Spoken, get};

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
    let scene = Scene::new(ONE_ROUTE);
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
