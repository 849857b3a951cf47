//! Captures of running traffic: files of routes, and `vanward capture live`.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use capture::{Capture, CapturedRequest};
use rustix::process::Signal;

use crate::process::{Process, connect, read_head, run_in};

const LISTEN: &str = "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n";

/// Two routes, of which `shop` has these options.
fn start(folder: &Path, options: &str) -> (Process, SocketAddr) {
    let text = format!(
        "admin = {:?}\n{LISTEN}[[route]]\nname = \"shop\"\npath = \"/shop\"\nrespond = {{ status = 404, body = \"nothing\" }}\n\
         response_headers = {{ set = {{ Set-Cookie = \"sid=tell; Path=/\", X-Shop = \"1\" }} }}\n{options}\n\
         [[route]]\nname = \"other\"\nrespond = {{ status = 200 }}\n",
        folder.join("admin")
    );
    std::fs::write(folder.join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder, &["run"]);
    let address = proxy.address();
    (proxy, address)
}

fn asks(address: SocketAddr, target: &str, more: &str) {
    let head = format!("GET {target} HTTP/1.1\r\nHost: shop.test:81\r\nConnection: close\r\n{more}\r\n");
    let mut stream = connect(address);
    stream.write_all(head.as_bytes()).expect("it reads");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 "), "{target}");
    // The request has ended when the connection has.
    stream.read_to_end(&mut Vec::new()).expect("it closes");
}

fn read(path: &Path) -> Capture {
    let text = std::fs::read_to_string(path).expect("it is there");
    capture::read(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn targets(capture: &Capture) -> Vec<&str> {
    capture.requests.iter().map(|request| request.target.as_str()).collect()
}

#[test]
fn a_route_writes_its_first_requests_to_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("shop.capture");
    let (proxy, address) =
        start(folder.path(), "capture = { file = \"shop.capture\", requests = 3, keep = [\"tenant\"] }");
    asks(address, "/other", "");
    let secrets = "Authorization: Bearer tell\r\nCookie: tenant=acme; sid=tell\r\nX-Plain: a\r\n";
    asks(address, "/shop/a?token=tell&page=2", secrets);
    asks(address, "/shop/b", "Content-Length: 0\r\n");
    asks(address, "http://absolute.test/shop/c", "");
    asks(address, "/shop/d", "");
    proxy.warns("shop.capture is complete, with 3 requests");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);

    let capture = read(&file);
    assert!(capture.is_masked && capture.lacks.iter().any(|lack| lack == "bodies of requests"));
    assert_eq!(targets(&capture)[1..], ["/shop/b", "/shop/c"]);
    assert_eq!(capture.requests[2].host.as_deref(), Some("absolute.test"));
    let CapturedRequest { client, scheme, host, method, target, version, body, response, time_ms, .. } =
        &capture.requests[0];
    assert!(target.starts_with("/shop/a?token=masked-") && target.ends_with("&page=2"), "{target}");
    assert_eq!(
        (method.as_str(), version.as_deref(), host.as_deref()),
        ("GET", Some("1.1"), Some("shop.test:81"))
    );
    assert_eq!((client.map(|client| client.to_string()), body), (Some("127.0.0.1".to_owned()), &None));
    assert!(scheme.is_some() && time_ms.is_some_and(|time| time > 1_700_000_000_000));
    let request = &capture.requests[0];
    assert_eq!(request.field("X-Plain"), Some("a"));
    assert!(request.field("Host").is_none());
    assert!(request.field("Cookie").is_some_and(|cookie| cookie.starts_with("tenant=acme; sid=masked-")));
    let response = response.as_ref().expect("it was answered");
    assert_eq!((response.status, response.body_bytes, response.field("X-Shop")), (404, Some(7), Some("1")));
    let text = std::fs::read_to_string(&file).expect("it is there");
    assert!(!text.contains("tell"), "{text}");
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);

    // The next start keeps the file.
    let (_proxy, address) = start(folder.path(), "capture = { file = \"shop.capture\", requests = 1 }");
    asks(address, "/shop/new", "");
    _proxy.warns("shop.capture is complete, with 1 requests");
    assert_eq!(targets(&read(&file)), ["/shop/new"]);
    assert_eq!(read(&folder.path().join("shop.capture.1")).requests.len(), 3);
}

#[test]
fn a_reload_begins_and_ends_the_capture_of_a_route() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("shop.capture");
    let (proxy, address) = start(folder.path(), "");
    asks(address, "/shop/before", "");
    let path = folder.path().join("vanward.toml");
    let without = std::fs::read_to_string(&path).expect("it is there");
    let with = without.replace("path = \"/shop\"", "path = \"/shop\"\ncapture = { file = \"shop.capture\" }");
    std::fs::write(&path, with).expect("it is writable");
    run_in(folder.path(), &["reload"]).with_code(0);
    asks(address, "/shop/meanwhile", "");
    // The same capture goes on over a reload.
    run_in(folder.path(), &["reload"]).with_code(0);
    asks(address, "/shop/again", "");
    std::fs::write(&path, without).expect("it is writable");
    run_in(folder.path(), &["reload"]).with_code(0);
    proxy.warns("shop.capture is complete, with 2 requests");
    asks(address, "/shop/after", "");
    assert_eq!(targets(&read(&file)), ["/shop/meanwhile", "/shop/again"]);

    // A file that cannot be created is a reason not to reload.
    let wrong = std::fs::read_to_string(&path).expect("it is there");
    let wrong =
        wrong.replace("path = \"/shop\"", "path = \"/shop\"\ncapture = { file = \"none/shop.capture\" }");
    std::fs::write(&path, wrong).expect("it is writable");
    let refused = run_in(folder.path(), &["reload"]).with_code(1);
    assert!(refused.errors.contains("cannot create the capture none/shop.capture"), "{refused:?}");
}

#[test]
fn a_live_capture_has_the_next_requests_of_a_route() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (proxy, address) = start(folder.path(), "");
    asks(address, "/shop/before", "");
    let out = ["-o", "live.capture"];
    let live = ["capture", "live", "--route", "shop", "--requests", "2", "--json"];
    let command = Process::start_in(folder.path(), &[&live[..], &out].concat());
    proxy.warns("a capture of route shop begins, by the admin API");
    for target in ["/shop/1?api_key=tell", "/other", "/shop/2", "/shop/3"] {
        asks(address, target, "");
    }
    let ended = command.ended().with_code(0);
    let summary: serde_json::Value = serde_json::from_str(&ended.output).expect("it is JSON");
    assert_eq!(
        (&summary["requests"], &summary["lost"], &summary["masked"]),
        (&2.into(), &0.into(), &true.into())
    );
    let capture = read(&folder.path().join("live.capture"));
    assert_eq!(targets(&capture).len(), 2);
    assert!(capture.requests[0].target.starts_with("/shop/1?api_key=masked-"), "{capture:?}");
    assert_eq!(capture.requests[1].target, "/shop/2");

    // All requests, with their secrets, until the time is over.
    let live = ["capture", "live", "--for", "1s", "--unmasked"];
    let command = Process::start_in(folder.path(), &live);
    proxy.warns("a capture of all requests begins, by the admin API");
    asks(address, "/other?token=told", "");
    let ended = command.ended();
    assert!(ended.status.code() == Some(1) || ended.output.contains("/other?token=told"), "{ended:?}");

    // The end of the proxy is no end of the capture's time: what it has is complete.
    let command = Process::start_in(folder.path(), &["capture", "live", "-o", "end.capture"]);
    proxy.warns_again("a capture of all requests begins, by the admin API", 2);
    asks(address, "/last", "");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
    command.ended().with_code(0);
    assert_eq!(targets(&read(&folder.path().join("end.capture"))), ["/last"]);
}

#[test]
fn orders_without_an_effect_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_proxy, _) = start(folder.path(), "");
    for (arguments, code, why) in [
        (&["capture", "live", "--route", "shpo", "-o", "none"][..], 1, "no route is named \"shpo\""),
        (&["capture", "live", "access.log"], 2, "live reads no file"),
        (&["capture", "live", "--port", "80"], 2, "--port is for pcap"),
        (&["capture", "live", "--requests", "0"], 2, "0 is not in 1..=1000000"),
        (&["capture", "nginx", "access.log", "--route", "shop"], 2, "--route is for live"),
        (&["capture", "nginx"], 2, "a file is missing"),
    ] {
        let refused = run_in(folder.path(), arguments).with_code(code);
        assert!(refused.errors.contains(why), "{arguments:?}: {refused:?}");
    }
    // An order that is refused leaves no file.
    assert!(!folder.path().join("none").exists());
    let shared = "capture = { file = \"a\" }\n[[route]]\npath = \"/b\"\nrespond = { status = 200 }\n\
                  capture = { file = \"a\", requests = 5 }";
    let text = format!("{LISTEN}[[route]]\nrespond = {{ status = 200 }}\n{shared}\n");
    std::fs::write(folder.path().join("shared.toml"), text).expect("it is writable");
    let refused = run_in(folder.path(), &["check", "shared.toml"]).with_code(78);
    assert!(
        refused.errors.contains("routes that share a need the same requests, keep and bodies"),
        "{refused:?}"
    );
}
