//! A chaos proxy that starts with the proxies of a file.

use std::net::{TcpListener, TcpStream};

use chaos::{Config, StartError};
use serde_json::{Value, json};
use testkit::http1::Http1Peer;

use crate::scene::Scene;

fn config(proxies: &Value) -> Config {
    Config::read(&proxies.to_string(), "chaos.json").expect("is right")
}

#[test]
fn proxies_of_a_file_are_there_with_their_toxics_when_the_api_is() {
    let server = TcpListener::bind("127.0.0.1:0").expect("loopback has room");
    let upstream = server.local_addr().expect("is bound").to_string();
    let proxies = json!([
        { "name": "p", "listen": "127.0.0.1:0", "upstream": upstream,
          "toxics": [{ "type": "limit_data", "attributes": { "bytes": 2 } }] },
        { "name": "off", "listen": "127.0.0.1:0", "upstream": upstream, "enabled": false },
    ]);
    let scene = Scene::started(1, config(&proxies)).unwrap_or_else(|error| panic!("{error}"));
    let (_, told) = scene.api("GET", "/proxies", "");
    assert_eq!((&told["p"]["enabled"], &told["off"]["enabled"]), (&json!(true), &json!(false)), "{told}");
    assert_eq!(told["p"]["toxics"][0]["name"], "limit_data_downstream");
    let mut client = scene.client();
    let mut server = Http1Peer::new("server", server.accept().expect("is listening").0);
    server.sends("abc");
    assert_eq!(client.rest().0, b"ab");
    // The API treats them like proxies that it created.
    assert_eq!(scene.api("DELETE", "/proxies/p", "").0, 204);
    assert_eq!(scene.api("POST", "/proxies/off", json!({ "enabled": true })).0, 200);
}

#[test]
fn a_proxy_of_a_file_that_cannot_listen_is_told_with_its_place_and_none_is_made() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has room");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("is bound");
    let text = format!(
        "[{{\"name\": \"first\", \"listen\": \"{free}\", \"upstream\": \"127.0.0.1:1\"}},\n {{\"name\": \"second\", \"listen\": \"{}\", \"upstream\": \"127.0.0.1:1\"}}]",
        taken.local_addr().expect("is bound")
    );
    let config = Config::read(&text, "chaos.json").expect("is right");
    let Err(StartError::Proxy(mistake)) = Scene::started(1, config).map(|_| ()) else { panic!("it starts") };
    let said = mistake.to_string();
    assert!(said.starts_with("chaos.json:2:2: proxy second cannot listen on"), "{said}");
    assert!(said.contains("choose another port"), "{said}");
    assert!(TcpStream::connect(free).is_err(), "the first one is gone");
}
