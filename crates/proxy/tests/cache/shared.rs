//! Many who want the same: one asks, whatever becomes of it.

use crate::answered::{ONE_ROUTE, next, response};
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
