//! The commands of the lab together: the origin behind the proxy under load from the generator, each as a process.

use std::net::{SocketAddr, TcpListener};

use load::RunOutcome;
use rustix::process::Signal;

use crate::process::{Process, get, response, run};

struct Pair {
    origin: Process,
    proxy: Process,
    origin_address: SocketAddr,
    address: SocketAddr,
}

impl Pair {
    fn start() -> Self {
        let mut origin = Process::start(&["origin", "--listen", "127.0.0.1:0", "--workers", "1"]);
        let origin_address = origin.address();
        let url = format!("http://{origin_address}");
        let mut proxy = Process::start(&["proxy", "--from", "127.0.0.1:0", "--to", &url, "--workers", "1"]);
        let address = proxy.address();
        Self { origin, proxy, origin_address, address }
    }

    fn stats(&self) -> serde_json::Value {
        let response = get(self.origin_address, "/stats");
        let (_, body) = response.split_once("\r\n\r\n").expect("it has a head");
        serde_json::from_str(body).expect("it is JSON")
    }
}

#[test]
fn a_page_of_the_origin_comes_through_the_proxy() {
    let pair = Pair::start();
    let direct = get(pair.origin_address, "/hello.html");
    let response = get(pair.address, "/hello.html");
    let body = |response: &str| response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.contains("\r\nVia: 1.1 vanward\r\n"), "{response}");
    assert_eq!(body(&response), body(&direct));
    let echo = get(pair.address, "/echo");
    assert!(echo.contains("\r\nX-Forwarded-For: 127.0.0.1\r\n"), "{echo}");
}

#[test]
fn a_proxy_of_root_says_what_to_do_about_it() {
    let mut proxy = Process::start(&["proxy", "--from", "127.0.0.1:0", "--to", "http://127.0.0.1:9"]);
    proxy.address();
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(proxy.said("running as root: "), usize::from(is_root));
    assert_eq!(proxy.said("CAP_NET_BIND_SERVICE for ports below 1024"), usize::from(is_root));
}

#[test]
fn an_api_of_chaos_on_all_addresses_is_warned_of() {
    for (address, is_for_all) in [("0.0.0.0:0", true), ("[::]:0", true), ("127.0.0.1:0", false)] {
        let mut chaos = Process::start(&["chaos", "--listen", address]);
        let port = chaos.address().port();
        assert_eq!(chaos.said("every address of this machine"), usize::from(is_for_all), "{address}");
        assert_eq!(
            chaos.said(&format!("--listen 127.0.0.1:{port} keeps")),
            usize::from(is_for_all),
            "{address}"
        );
    }
}

#[test]
fn a_directory_is_served_from_flags() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("index.html"), "<p>home").expect("it is writable");
    let root = folder.path().to_str().expect("is text");
    let mut proxy = Process::start(&["proxy", "--from", "127.0.0.1:0", "--files", root, "--workers", "1"]);
    let address = proxy.address();
    for _ in 0..2 {
        let page = get(address, "/");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n<p>home"), "{page}");
    }
    assert!(get(address, "/gone").starts_with("HTTP/1.1 404 Not Found\r\n"));
}

/// `me`, with the password `secret`.
const USERS: &str = "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";

#[test]
fn flags_ask_for_a_password_and_let_other_origins_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("users"), USERS).expect("it is writable");
    std::fs::write(folder.path().join("index.html"), "<p>home").expect("it is writable");
    let root = folder.path().to_str().expect("is text");
    let users = format!("{root}/users");
    let mut proxy = Process::start(&[
        "proxy",
        "--from",
        "127.0.0.1:0",
        "--files",
        root,
        "--auth",
        &users,
        "--cors",
        "https://a.example",
    ]);
    let address = proxy.address();
    let refused = get(address, "/");
    assert!(
        refused.starts_with("HTTP/1.1 401 ") && refused.contains("Basic realm=\"Restricted\""),
        "{refused}"
    );
    let fields = "Authorization: Basic bWU6c2VjcmV0\r\nOrigin: https://a.example\r\n";
    let page = response(address, "/", fields);
    assert!(page.starts_with("HTTP/1.1 200 ") && page.ends_with("<p>home"), "{page}");
    assert!(page.contains("\r\nAccess-Control-Allow-Origin: https://a.example\r\n"), "{page}");
    let other = response(address, "/", &fields.replace("a.example", "b.example"));
    assert!(other.starts_with("HTTP/1.1 200 ") && !other.contains("Access-Control-Allow-Origin"), "{other}");
}

#[test]
fn load_counts_what_the_origin_saw() {
    let pair = Pair::start();
    let url = format!("http://{}/tiny", pair.address);
    let told = run(&["load", "--json", "-c", "4", "-t", "2", "-n", "600", &url]).with_code(0).output;
    let outcome: RunOutcome = serde_json::from_str(&told).expect("it is an outcome");
    assert_eq!((outcome.requests, outcome.errors.total(), outcome.body_bytes), (600, 0, 600 * 128));
    assert_eq!(outcome.statuses.into_iter().collect::<Vec<_>>(), [(200, 600)]);
    let stats = pair.stats();
    assert_eq!(stats["paths"]["/tiny"], 600, "{stats}");
    assert_eq!((&stats["requests"], &stats["requests_refused"]), (&600.into(), &0.into()), "{stats}");
    // Four concurrent clients never need more connections.
    let upstream_connections = stats["connections"].as_u64().expect("it is a number") - 1;
    assert!((1..=4).contains(&upstream_connections), "{stats}");
}

#[test]
fn load_tells_errors_apart_from_successes() {
    let pair = Pair::start();
    let url = format!("http://{}/status/404", pair.address);
    let ended = run(&["load", "--json", "-c", "2", "-n", "10", &url]).with_code(1);
    let outcome: RunOutcome = serde_json::from_str(&ended.output).expect("it is an outcome");
    assert_eq!((outcome.requests, outcome.errors.status, outcome.errors.total()), (0, 10, 10));
    assert!(ended.errors.contains("no request succeeded"), "{}", ended.errors);
}

#[test]
fn load_ends_with_1_if_more_requests_fail_than_may() {
    let pair = Pair::start();
    let list = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(list.path(), "/tiny\n/tiny\n/tiny\n/status/404\n").expect("a list");
    let (list, url) = (list.path().to_string_lossy().into_owned(), format!("http://{}/", pair.address));
    // One in four of 40.
    for (most, code) in [(None, 1), (Some("9"), 1), (Some("10"), 0), (Some("24%"), 1), (Some("25%"), 0)] {
        let bound = most.map_or_else(Vec::new, |most| vec!["--max-errors", most]);
        let load = ["load", "-c", "1", "-n", "40", "--urls", &list];
        let ended = run(&[&load[..], &bound, &[&url]].concat()).with_code(code);
        assert!(ended.output.contains("status 10") || code == 0, "{ended:?}");
        assert_eq!(ended.errors.contains("10 requests failed, and --max-errors is"), code == 1, "{ended:?}");
    }
}

#[test]
fn load_without_a_server_is_reported_with_what_to_check() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
        listener.local_addr().expect("it listens")
    };
    let ended = run(&["load", "-n", "1", &format!("http://{address}/")]).with_code(1);
    let expected = format!("vanward: cannot connect to {address}: ");
    assert!(ended.errors.starts_with(&expected), "{}", ended.errors);
    assert!(ended.errors.contains("is the server running"), "{}", ended.errors);
}

#[test]
fn wrong_usage_of_the_lab_exits_with_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["load"], "<URL>"),
        (&["load", "nonsense"], "http://HOST"),
        (&["load", "-c", "many", "http://127.0.0.1:1/"], "many"),
        (&["load", "--poisson", "http://127.0.0.1:1/"], "--rate"),
        (&["demo", "--seconds", "1"], "--seconds"),
        (&["origin", "--listen", "everywhere"], "everywhere"),
    ];
    for (arguments, expected) in cases {
        let ended = run(arguments).with_code(2);
        assert!(ended.errors.contains(expected), "{arguments:?}: {}", ended.errors);
    }
}

#[test]
fn a_port_that_is_taken_is_named_by_the_origin() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    let address = taken.local_addr().expect("it listens").to_string();
    let said = run(&["origin", "--listen", &address]).with_code(1).errors;
    assert!(said.starts_with("vanward: origin: ") && said.contains(&address), "{said}");
}

#[test]
fn the_origin_ends_when_asked_and_the_proxy_says_so_to_clients() {
    let pair = Pair::start();
    assert!(get(pair.address, "/tiny").starts_with("HTTP/1.1 200 "));
    pair.origin.signal(Signal::TERM);
    pair.origin.ended().with_code(0);
    let response = get(pair.address, "/tiny");
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    pair.proxy.signal(Signal::TERM);
    pair.proxy.ended().with_code(0);
}
