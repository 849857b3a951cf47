//! The dashboard from a browser's point of view: the page, its JSON, and rejected requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Process, run_in};

/// Starts a proxy with a dashboard. A message has the port that the kernel selected.
fn start(folder: &Path, options: &str) -> (Process, SocketAddr) {
    let text = format!(
        "dashboard = \"127.0.0.1:0\"\n{options}\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nname = \"app\"\nupstream = \"app\"\n\
         request_headers = {{ set = {{ Authorization = \"Bearer very-secret\" }} }}\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n"
    );
    std::fs::write(folder.join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder, &["run"]);
    proxy.address();
    proxy.warns("dashboard at http://");
    let address = proxy.told("dashboard at http://").expect("it says where");
    (proxy, address.trim_end_matches('/').parse().expect("it is an address"))
}

fn ask(address: SocketAddr, request: &str, fields: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let text =
        format!("{request} HTTP/1.1\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    // The server may respond before it has read everything.
    let _ = stream.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("it is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
    (head[9..12].parse().expect("it has a status"), head.to_ascii_lowercase(), body.to_owned())
}

fn key(address: SocketAddr, fields: &str) -> String {
    let (status, _, body) = ask(address, "GET /api/session", fields, "");
    assert_eq!(status, 200, "{body}");
    let told: Value = serde_json::from_str(&body).expect("it is JSON");
    told["key"].as_str().expect("it has a key").to_owned()
}

#[test]
fn the_page_loads_nothing_and_no_other_site_may_frame_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_proxy, address) = start(folder.path(), "");
    let host = format!("Host: {address}\r\n");
    let (status, head, page) = ask(address, "GET /", &host, "");
    assert_eq!(status, 200);
    for expected in [
        "content-type: text/html; charset=utf-8",
        "default-src 'none'; script-src 'sha256-",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(head.contains(expected), "{head}");
    }
    assert!(!head.contains("set-cookie") && !head.contains("unsafe"), "{head}");
    assert!(!page.contains("{{") && !page.contains(" src=") && page.contains("uPlot"), "parts are missing");
    for path in ["/api/status", "/api/live", "/api/hour", "/api/certificates", "/api/faults", "/api/shaping"]
    {
        let (status, head, body) = ask(address, &format!("GET {path}"), &host, "");
        assert_eq!((status, head.contains("application/json")), (200, true), "{path}: {body}");
    }
    let (status, _, configuration) = ask(address, "GET /api/configuration", &host, "");
    assert_eq!(status, 200);
    assert!(
        configuration.contains("name = \"app\"") && !configuration.contains("very-secret"),
        "{configuration}"
    );
    assert_eq!(ask(address, "GET /api/status", "Host: attacker.example\r\n", "").0, 421);
    assert_eq!(ask(address, "GET /elsewhere", &host, "").0, 404);
}

#[test]
fn changes_need_the_option_and_the_page_of_this_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let admin = folder.path().join("admin");
    let options = format!("admin = {:?}\ndashboard_write = true\n", admin.display().to_string());
    let (proxy, address) = start(folder.path(), &options);
    let host = format!("Host: {address}\r\n");
    let order = "{\"server\": \"http://127.0.0.1:1\", \"upstream\": \"app\"}";
    let drain = "POST /api/servers/drain";
    assert_eq!(ask(address, drain, &host, order).0, 403, "it does not know the key");
    let fields = format!("{host}X-Vanward-Session: {}\r\n", key(address, &host));
    let foreign = format!("{fields}Origin: https://attacker.example\r\n");
    assert_eq!(ask(address, drain, &foreign, order).0, 403);
    let own = format!("{fields}Origin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(ask(address, drain, &own, order).0, 200);
    let shown = run_in(folder.path(), &["status"]).with_code(0).output;
    assert!(shown.contains("draining"), "{shown}");
    let page = "{\"routes\": [\"app\"], \"page\": \"/etc/passwd\"}";
    assert_eq!(ask(address, "POST /api/maintenance/on", &own, page).0, 403);
    assert_eq!(ask(address, "POST /api/maintenance/on", &own, "{\"routes\": [\"app\"]}").0, 200);
    let long = "a".repeat(100 * 1024);
    assert_eq!(ask(address, "POST /api/faults", &own, &long).0, 413);

    // A reload removes the permission.
    let file = folder.path().join("vanward.toml");
    let text = std::fs::read_to_string(&file).expect("it is there").replace("dashboard_write = true", "");
    std::fs::write(&file, text).expect("it is writable");
    run_in(folder.path(), &["reload"]).with_code(0);
    let (status, _, why) = ask(address, drain, &own, order);
    assert!(status == 403 && why.contains("read-only"), "{why}");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}

#[test]
fn with_a_token_only_the_page_itself_is_open() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let token = "0123456789abcdef0123456789abcdef";
    std::fs::write(folder.path().join("token"), format!("{token}\n")).expect("it is writable");
    let file = folder.path().join("token").display().to_string();
    let (_proxy, address) = start(folder.path(), &format!("dashboard_token_file = {file:?}"));
    let host = format!("Host: {address}\r\n");
    assert_eq!(ask(address, "GET /", &host, "").0, 200);
    let (status, head, _) = ask(address, "GET /api/status", &host, "");
    assert!(status == 401 && head.contains("www-authenticate: bearer"), "{head}");
    let with = format!("{host}Authorization: Bearer {token}\r\n");
    assert_eq!(ask(address, "GET /api/status", &with, "").0, 200);
    assert!(!ask(address, "GET /api/configuration", &with, "").2.contains(token));
}

#[test]
fn a_dashboard_for_everybody_is_refused_without_a_token() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "dashboard = \"0.0.0.0:9901\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { status = 200 }\n";
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    let refused = run_in(folder.path(), &["check"]).with_code(78);
    assert!(
        refused.errors.contains("has no token") || refused.output.contains("has no token"),
        "{refused:?}"
    );
}
