//! Limits on the open connections of a client.

use std::net::TcpStream;

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, Scene, get, read};
use testkit::text::GET;
use testkit::wait::assert_soon;

const REFUSED: &str = "HTTP/1.1 503 Service Unavailable\r\n";

/// A proxy whose first listener has these options.
fn scene(more: &str, options: &str) -> Scene {
    Scene::new(&text(more, options))
}

fn text(more: &str, options: &str) -> String {
    format!(
        "{more}\n[[listen]]\naddress = \"127.0.0.1:0\"\nname = \"limited\"\n{options}\n\
         [[route]]\nrespond = {{ status = 200, body = \"in\" }}\n[upstream.app]\nservers = [\"http://{{0}}\"]\n"
    )
}

/// Waits until this number of connections is open.
fn settles(scene: &Scene, number: u64) {
    assert_soon("the others have ended", || scene.running().counters().connections_active == number);
}

fn connect(scene: &Scene) -> Http1Peer {
    Http1Peer::new("client", TcpStream::connect(scene.running().addresses()[0]).expect("the proxy listens"))
}

#[test]
fn a_client_has_a_number_of_connections() {
    for spoken in BOTH {
        let scene = scene("", "connections_per_client = 2");
        let mut clients = [scene.client(spoken), scene.client(spoken)];
        for client in &mut clients {
            assert_eq!(client.asks_for(&get("/")).status, 200, "{spoken:?}");
        }
        let mut third = connect(&scene).saying(GET);
        assert!(third.head().starts_with(REFUSED), "{spoken:?}");
        assert_eq!(scene.running().counters().connections_refused, 1, "{spoken:?}");
        for client in &mut clients {
            assert_eq!(client.asks_for(&get("/")).status, 200, "{spoken:?}: it stays");
        }
        let [first, _second] = clients;
        drop((first, third));
        settles(&scene, 1);
        assert_eq!(scene.client(spoken).asks_for(&get("/")).status, 200, "{spoken:?}");
    }
}

/// Neither a handshake nor another protocol tells the reason.
#[test]
fn connections_without_plain_http_end_without_a_word() {
    for options in ["tls = { self_signed = true }", "tcp = \"app\""] {
        let scene = scene("", &format!("connections_per_client = 1\n{options}"));
        // The beginning of a TLS record, so that the connection is accepted.
        let _first = connect(&scene).saying([0x16, 3, 1]);
        settles(&scene, 1);
        connect(&scene).saying([0x16, 3, 1]).is_closed();
        assert_eq!(scene.running().counters().connections_refused, 1, "{options}");
    }
}

#[test]
fn a_client_behind_a_load_balancer_counts() {
    let scene = scene("", "connections_per_client = 1\nproxy_protocol = [\"127.0.0.1\"]");
    let client =
        |address: &str| connect(&scene).saying(format!("PROXY TCP4 {address} 10.0.0.2 40000 80\r\n{GET}"));
    let mut first = client("192.0.2.1");
    assert!(first.head().starts_with("HTTP/1.1 200 "));
    assert!(client("192.0.2.1").head().starts_with(REFUSED));
    assert!(client("192.0.2.2").head().starts_with("HTTP/1.1 200 "));
}

#[test]
fn trusted_proxies_have_no_limit() {
    let scene = scene("trusted_proxies = [\"127.0.0.1\"]", "connections_per_client = 1");
    let mut clients = [connect(&scene), connect(&scene), connect(&scene)];
    for client in &mut clients {
        client.sends(GET);
        assert!(client.head().starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn a_reload_keeps_the_counts() {
    let scene = scene("", "connections_per_client = 1");
    let mut first = scene.client(BOTH[0]);
    assert_eq!(first.asks_for(&get("/")).status, 200);
    let changed = text("", "connections_per_client = 2").replace("{0}", &scene.server_address(0));
    let changed = format!("workers = 2\n{changed}[[listen]]\naddress = \"127.0.0.1:0\"\n");
    scene.running().reload(read(&changed)).expect("is valid");
    let mut second = scene.client(BOTH[0]);
    assert_eq!(second.asks_for(&get("/")).status, 200, "two are allowed now");
    assert!(connect(&scene).saying(GET).head().starts_with(REFUSED), "the first one still counts");
}
