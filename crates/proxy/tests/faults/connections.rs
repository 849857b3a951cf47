//! Connection faults, as clients see them.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::http1::{Http1Peer, ReaderEnding};
use testkit::scene::{Scene, Spoken, get};
use testkit::wait::assert_soon;

use super::changed::asks;

const ROUTES: &str =
    "admin = \"{dir}/admin\"\n[[route]]\nrespond = { status = 200, body = \"0123456789\" }\n";
/// A request after which the connection stays open.
const STAYS: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const ASKS: &str = "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

fn scene(fault: &str) -> Scene {
    Scene::new(&format!("{ROUTES}[[fault]]\nname = \"x\"\n{fault}\n"))
}

fn connected(scene: &Scene) -> Http1Peer {
    let stream = TcpStream::connect(scene.running().addresses()[0]).expect("the proxy listens");
    Http1Peer::new("client", stream)
}

/// Sends one request. Returns all bytes, the end of the connection, and the time.
fn outcome(scene: &Scene) -> (String, ReaderEnding, Duration) {
    outcome_of(scene, ASKS)
}

fn outcome_of(scene: &Scene, request: &str) -> (String, ReaderEnding, Duration) {
    let began = Instant::now();
    let mut client = connected(scene);
    // A client that gets a reset while sending does not get it again while reading.
    let is_sent = client.can_send(request.as_bytes());
    let (bytes, ending) = client.rest();
    let ending = if is_sent { ending } else { ReaderEnding::Reset };
    (String::from_utf8_lossy(&bytes).into_owned(), ending, began.elapsed())
}

fn is_whole(text: &str) -> bool {
    text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n0123456789")
}

#[test]
fn connections_end_where_they_are_to() {
    for (fault, bytes, ending) in [
        ("connection reset", 0, Some(ReaderEnding::Reset)),
        ("connection reset 20ms", 200, Some(ReaderEnding::Reset)),
        ("connection reset 20", 20, Some(ReaderEnding::Reset)),
        ("connection reset 0 up", 0, Some(ReaderEnding::Reset)),
        ("connection limit 20", 20, Some(ReaderEnding::End)),
        ("connection limit 0", 0, Some(ReaderEnding::End)),
        // Unread data makes the close a reset.
        ("connection black-hole 20ms", 0, None),
    ] {
        let scene = scene(&format!("inject = \"{fault}\""));
        let (text, ended, took) = outcome_of(&scene, STAYS);
        assert!(text.len() <= bytes, "{fault}: {text}");
        assert!(ending.is_none_or(|ending| ended == ending), "{fault}: {ended:?}");
        assert!(!fault.contains("20ms") || took >= Duration::from_millis(20), "{fault}: {took:?}");
        assert_eq!(scene.running().counters().faults_injected, 1);
    }
}

#[test]
fn connections_are_slow_and_whole() {
    for (fault, least) in [
        ("connection slow-start 80ms", Duration::from_millis(80)),
        ("connection slow-close 80ms", Duration::from_millis(80)),
        ("connection slice 10 2ms", Duration::from_millis(10)),
        ("connection slice 7 up", Duration::ZERO),
    ] {
        let (text, ending, took) = outcome(&scene(&format!("inject = \"{fault}\"")));
        assert!(is_whole(&text), "{fault}: {text}");
        assert_eq!(ending, ReaderEnding::End, "{fault}");
        assert!(took >= least, "{fault}: {took:?}");
    }
}

#[test]
fn bytes_are_others_than_were_sent() {
    let (text, _, _) = outcome(&scene("inject = \"connection corrupt 1\""));
    assert!(!text.contains("HTTP/1.1"), "{text}");
    let scene = scene("inject = \"connection corrupt 1 up\"");
    let mut client = connected(&scene);
    client.sends(ASKS);
    client.half_closes();
    let (bytes, _) = client.rest();
    assert!(!is_whole(&String::from_utf8_lossy(&bytes)));
}

#[test]
fn a_handshake_is_refused() {
    let tls = "[[listen]]\naddress = \"127.0.0.1:0\"\nname = \"tls\"\ntls = { self_signed = true }\n";
    let scene = Scene::new(&format!("{ROUTES}{tls}[[fault]]\ninject = \"connection bad-handshake\"\n"));
    let mut client = connected(&scene);
    client.sends(b"whatever it begins with");
    let (bytes, _) = client.rest();
    // RFC 8446 §6: a fatal alert, handshake_failure.
    assert_eq!(bytes, [21, 3, 3, 0, 2, 2, 40]);
    // Without TLS, no handshake is refused.
    let stream = TcpStream::connect(scene.running().addresses()[1]).expect("the proxy listens");
    let mut client = Http1Peer::new("client", stream);
    client.sends(ASKS);
    assert!(is_whole(&String::from_utf8_lossy(&client.rest().0)));
}

/// Connections under a fault continue, or end, once the fault is removed.
#[test]
fn faults_go_under_connections() {
    for (fault, first_bytes, goes_on) in [
        ("connection slow-start 1h", 0, Some(true)),
        ("connection half-open 20", 20, Some(false)),
        // It may or may not have swallowed bytes by then.
        ("connection black-hole", 0, None),
    ] {
        let scene = scene(&format!("inject = \"{fault}\""));
        let mut client = connected(&scene);
        client.sends(ASKS);
        client.exactly(first_bytes);
        // Once the counter has changed, the proxy has accepted the connection.
        assert_soon("no fault is injected", || scene.running().counters().faults_injected != 0);
        assert_eq!(asks(&scene, "DELETE", "/faults/x", "").0, 200);
        let (bytes, _) = client.rest();
        let is_whole_now = is_whole(&String::from_utf8_lossy(&bytes));
        assert!(goes_on.is_none_or(|goes_on| is_whole_now == goes_on), "{fault}");
        let (text, _, _) = outcome(&scene);
        assert!(is_whole(&text), "the next one is whole: {text}");
    }
}

#[test]
fn connections_go_on_once_their_fault_has_expired() {
    let scene = scene("inject = \"connection slow-start 1h\"\nexpires = \"200ms\"");
    let (text, ending, _) = outcome(&scene);
    assert!(is_whole(&text), "{text}");
    assert_eq!(ending, ReaderEnding::End);
}

#[test]
fn which_connections() {
    for (rule, expected) in [
        ("first = 2", [false, false, true, true]),
        ("first = 1\nkey = \"route\"", [false, true, true, true]),
        ("clients = [\"192.0.2.0/24\"]", [true; 4]),
        ("clients = [\"127.0.0.0/8\"]", [false; 4]),
        ("listener = \"other\"", [true; 4]),
        ("probability = \"0%\"", [true; 4]),
        ("from = \"1h\"", [true; 4]),
    ] {
        let scene = Scene::new(&format!(
            "{ROUTES}[[fault]]\ninject = \"connection reset\"\n{rule}\n[upstream.db]\nservers = [\"tcp://127.0.0.1:9\"]\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nname = \"other\"\ntcp = \"db\"\n"
        ));
        let whole: Vec<bool> = (0..4).map(|_| is_whole(&outcome(&scene).0)).collect();
        assert_eq!(whole, expected, "{rule}");
    }
}

#[test]
fn the_same_seed_breaks_the_same_connections() {
    let run = |seed: u64| {
        let faults = format!(
            "[faults]\nseed = {seed}\n[[fault]]\ninject = \"connection reset\"\nprobability = \"50%\"\n"
        );
        let scene = Scene::new(&format!("{ROUTES}{faults}"));
        (0..32).map(|_| is_whole(&outcome(&scene).0)).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// A client that asks by a header field is already connected.
#[test]
fn requests_cannot_ask_for_them() {
    let scene =
        Scene::new(&format!("{ROUTES}[faults]\nheader = \"X-Fault\"\nheader_clients = [\"127.0.0.0/8\"]\n"));
    let mut client = scene.client(Spoken::Http1);
    let asked = testkit::scene::BodylessRequest { fields: "x-fault: connection reset\r\n", ..get("/") };
    assert_eq!(client.asks_for(&asked).status, 400);
}

/// Ways to reach a server: by requests, or at layer 4, also by weight.
const TO_SERVERS: [&str; 3] = [
    "[upstream.u]\nservers = [\"http://{0}\"]\n[[route]]\nupstream = \"u\"\n",
    "[upstream.u]\nservers = [\"tcp://{0}\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\ntcp = \"u\"\n\
     [[route]]\nrespond = { status = 200 }\n",
    "[upstream.old]\nservers = [\"tcp://{0}\"]\n[upstream.new]\nservers = [\"tcp://{0}\"]\n\
     [[listen]]\naddress = \"127.0.0.1:0\"\ntcp = { old = 9, new = 1 }\n[[route]]\nrespond = { status = 200 }\n",
];
/// A request whose response ends with its connection.
const ASKS_OLD: &str = "GET / HTTP/1.0\r\nHost: test\r\n\r\n";

#[test]
fn a_reset_of_the_server_is_no_end_under_a_fault() {
    for to_server in TO_SERVERS {
        for fault in ["connection slice 1000", "connection slow-start 1ms"] {
            let scene = Scene::new(&format!("{to_server}[[fault]]\ninject = \"{fault}\"\n"));
            let mut client = connected(&scene);
            client.sends(ASKS_OLD);
            let mut server = scene.accept(0).after_head();
            server.sends("HTTP/1.0 200 OK\r\n\r\nhalf");
            client.head();
            client.gets(b"half");
            server.resets();
            client.gets_a_reset();
        }
    }
}

#[test]
fn a_request_that_is_reset_is_reset_under_a_fault_of_its_connection() {
    let faults =
        "[[fault]]\ninject = \"connection slice 1000\"\n[[fault]]\npath = \"/\"\ninject = \"reset\"\n";
    let (text, ending, _) = outcome(&Scene::new(&format!("{ROUTES}{faults}")));
    assert_eq!((text.as_str(), ending), ("", ReaderEnding::Reset));
}

#[test]
fn servers_are_told_where_a_client_under_a_fault_has_connected_to() {
    for to_server in TO_SERVERS {
        let told = to_server.replace("\"]\n", "\"]\nsend_proxy_protocol = \"v1\"\n");
        let scene = Scene::new(&format!("{told}[[fault]]\ninject = \"connection slice 1000\"\n"));
        let mut client = connected(&scene);
        client.sends(ASKS_OLD);
        let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("is connected").port();
        let ports = (port(client.stream().local_addr()), port(client.stream().peer_addr()));
        let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", ports.0, ports.1);
        scene.accept(0).gets(line.as_bytes());
    }
}
