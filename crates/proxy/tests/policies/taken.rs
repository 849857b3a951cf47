//! Clients that read a response too slowly are disconnected, for any source of the response.

use std::fs;
use std::thread;

use socket2::SockRef;
use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, Scene, SceneClient, Spoken, get};
use testkit::wait::holds_soon;

/// More than the kernel holds for a client that reads nothing: the maximum length of a page.
const BYTES: usize = 4 << 20;

/// Routes whose bodies are sent in different ways; `LIMIT` is the limit of each.
const ROUTES: &str = r#"
[cache]
memory = "512MiB"
object = "32MiB"
[route_defaults]
LIMIT
[[route]]
path = "/own"
respond = { status = 200, file = "{dir}/body.txt" }
[[route]]
path = "/page"
upstream = "app"
deny = ["127.0.0.0/8"]
error_pages = { 403 = "{dir}/body.txt" }
[[route]]
path = "/file"
files = { root = "{dir}" }
[[route]]
path = "/paced"
files = { root = "{dir}" }
rate = "1GB/s"
[[route]]
path = "/coded"
files = { root = "{dir}" }
compress = true
[[route]]
path = "/passed"
upstream = "app"
[[route]]
path = "/compressed"
upstream = "app"
compress = true
[[route]]
path = "/stored"
upstream = "app"
cache = {}
[[route]]
path = "/shaped"
upstream = "app"
cache = {}
rate = "1GB/s"
[upstream.app]
servers = ["http://{0}"]
"#;

/// Each route, and whether a first client stores the response.
const WAYS: [(&str, bool); 11] = [
    ("/own", false),
    ("/page", false),
    ("/file/body.txt", false),
    ("/paced/body.txt", false),
    ("/coded/body.txt", false),
    ("/passed", false),
    ("/compressed", false),
    ("/stored", true),
    ("/stored/live", false),
    ("/shaped", true),
    ("/shaped/live", false),
];

/// An incompressible body.
fn body() -> Vec<u8> {
    let mut seed = fastrand::Rng::with_seed(7);
    (0..BYTES).map(|_| seed.u8(b'!'..=b'~')).collect()
}

/// Serves the body, as far as the proxy reads it.
fn serve(mut server: Http1Peer, body: &[u8]) {
    server.head();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = server.can_send(head.as_bytes()) && server.can_send(body);
}

/// Requests a response of each kind, and reads nothing of it.
fn are_given_up(limit: &str, spoken: Spoken) {
    let body = body();
    let directory = tempfile::tempdir().expect("a temporary directory");
    for folder in ["", "file", "paced", "coded"] {
        let folder = directory.path().join(folder);
        fs::create_dir_all(&folder).expect("it can be made");
        fs::write(folder.join("body.txt"), &body).expect("it can be written");
    }
    let text = ROUTES.replace("LIMIT", limit).replace("{dir}", &directory.path().display().to_string());
    let scene = Scene::new(&text);
    let stored = || WAYS.iter().filter(|(_, is_stored)| *is_stored);
    for (target, _) in stored() {
        thread::scope(|scope| {
            let mut client = scene.client(Spoken::Http1).asking(&get(target));
            let server = scene.accept(0);
            scope.spawn(|| serve(server, &body));
            assert_eq!(client.gets().body.len(), BYTES);
        });
    }
    let mut clients = Vec::new();
    thread::scope(|scope| {
        for (target, is_stored) in WAYS {
            let mut client = scene.client(spoken);
            if let SceneClient::One(peer) = &client {
                SockRef::from(peer.stream()).set_recv_buffer_size(4096).expect("is a socket");
            }
            client.asks(&get(target));
            let has_server =
                ["/passed", "/compressed", "/stored", "/shaped"].iter().any(|path| target.starts_with(path));
            if has_server && !is_stored {
                // One client at a time.
                let server = scene.accept(0);
                scope.spawn(|| serve(server, &body));
            }
            clients.push(client);
        }
        let asked = (WAYS.len() + stored().count()) as u64;
        let is_over = || {
            let counters = scene.running().counters();
            counters.requests == asked && counters.requests_active == 0
        };
        assert!(
            holds_soon(is_over),
            "{spoken:?}, {limit}: {} wait",
            scene.running().counters().requests_active
        );
    });
    // No client has read everything, except those that stored it.
    let sent_bytes = scene.running().counters().client_bytes_sent;
    let whole_bytes = ((WAYS.len() + stored().count()) * BYTES) as u64;
    assert!(sent_bytes < whole_bytes - BYTES as u64, "{spoken:?}, {limit}: {sent_bytes}");
}

#[test]
fn a_client_that_takes_nothing_in_time_is_given_up() {
    BOTH.into_iter().for_each(|spoken| are_given_up("timeouts = { client_write = \"1s\" }", spoken));
}

const RATE: &str = "limits = { minimum_rate = \"1MB/s\", rate_window = \"1s\" }";

#[test]
fn a_client_of_http1_that_takes_too_little_is_given_up() {
    are_given_up(RATE, Spoken::Http1);
}

#[test]
fn a_client_of_http2_that_takes_too_little_is_given_up() {
    are_given_up(RATE, Spoken::Http2);
}
