//! `vanward status`: totals, rates and percentiles of routes and servers, as tables and as JSON.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Patience, Process, get, run_in};

/// Starts a proxy with two routes: one that responds, and one whose server refuses connections.
fn start(folder: &Path) -> (Process, SocketAddr) {
    let text = "admin = \"admin.sock\"\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[route]]\npath = \"/shop\"\nrespond = { status = 200, body = \"shop\" }\n\
         [[route]]\npath = \"/gone\"\nrespond = { status = 404, body = \"gone\" }\n\
         [[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
    std::fs::write(folder.join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder, &["run"]);
    let address = proxy.address();
    (proxy, address)
}

/// Returns the status, once all these requests have been counted: a client has its response a moment earlier.
fn status_of(folder: &Path, requests: u64) -> Value {
    let patience = Patience::new();
    loop {
        let text = run_in(folder, &["status", "--json"]).with_code(0).output;
        let status: Value = serde_json::from_str(&text).expect("it is JSON");
        if status["traffic"]["requests"] == requests {
            return status;
        }
        patience.wait_a_little(&format!("not all requests are counted: {}", status["traffic"]));
    }
}

#[test]
fn requests_are_counted_by_route_and_server_and_have_rates_and_durations() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (proxy, address) = start(folder.path());
    for _ in 0..3 {
        assert!(get(address, "/shop").starts_with("HTTP/1.1 200 "));
    }
    assert!(get(address, "/gone").starts_with("HTTP/1.1 404 "));
    for _ in 0..2 {
        assert!(get(address, "/").starts_with("HTTP/1.1 502 "));
    }

    let status = status_of(folder.path(), 6);
    let named = |list: &str, key: &str, name: &str| {
        let rows = status[list].as_array().expect("a list").iter();
        rows.into_iter().find(|row| row[key] == name).expect("it is in the list").clone()
    };
    let shop = named("routes", "route", "/shop")["traffic"].clone();
    assert_eq!(shop["classes"], serde_json::json!({"2xx": 3}));
    // Rates and counts include the same requests, because there was no minute before.
    let of = |traffic: &Value, key: &str| traffic["last_minute"][key].as_f64().expect("a number");
    let count = |traffic: &Value, key: &str| (of(traffic, key) * of(traffic, "seconds")).round() as u64;
    assert_eq!(count(&shop, "requests_per_second"), 3);
    assert_eq!(count(&shop, "server_errors_per_second"), 0);
    let (p50, p90, p99) = (of(&shop, "p50_ms"), of(&shop, "p90_ms"), of(&shop, "p99_ms"));
    assert!(0.0 < p50 && p50 <= p90 && p90 <= p99, "{shop}");
    let whole = &status["traffic"];
    assert_eq!(whole["classes"], serde_json::json!({"2xx": 3, "4xx": 1, "5xx": 2}));
    assert_eq!(count(whole, "client_errors_per_second"), 1);
    assert_eq!(count(whole, "server_errors_per_second"), 2);
    assert_eq!(status["last_minute"]["failures"], serde_json::json!({"upstream-refused": 2}));
    assert!(status["last_minute"]["sent_bytes_per_second"].as_f64().is_some_and(|rate| rate > 0.0));

    let app = named("upstreams", "name", "app");
    let attempts = app["servers"][0]["traffic"]["requests"].as_u64().expect("a number");
    assert_eq!(app["servers"][0]["traffic"]["classes"], serde_json::json!({ "none": attempts }));
    assert_eq!(app["failures"], serde_json::json!({ "upstream-refused": attempts }));
    assert_eq!(app["retries"].as_u64(), Some(attempts - 2), "each request has one attempt at least");

    let shown = run_in(folder.path(), &["status", "--sort", "errors"]).with_code(0).output;
    let rows: Vec<&str> = shown.lines().skip_while(|line| *line != "routes").skip(2).take(3).collect();
    let first: Vec<&str> = rows.iter().filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(first, ["/", "/gone", "/shop"], "{shown}");
    let filtered = run_in(folder.path(), &["status", "--filter", "sho"]).with_code(0).output;
    assert!(filtered.contains("  /shop ") && !filtered.contains("/gone"), "{filtered}");
    assert!(!filtered.contains("upstream app"), "{filtered}");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}

#[test]
fn listeners_are_shown_as_urls_with_protocols_and_certificates() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "admin = \"admin.sock\"\nworkers = 1\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\nname = \"safe\"\ntls = { self_signed = true }\nhttp3 = true\n\
         [[route]]\nrespond = { status = 200 }\n";
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    proxy.address();
    let listeners = status_of(folder.path(), 0)["listeners"].clone();
    let [plain, safe] = [0, 1].map(|index| listeners[index]["address"].as_str().expect("a text").to_owned());
    let all =
        format!("listening on http://{plain} (HTTP/1.1, HTTP/2), https://{safe} (HTTP/1.1, HTTP/2, HTTP/3)");
    let shown = run_in(folder.path(), &["status"]).with_code(0).output;
    assert!(shown.lines().any(|line| line == all), "{shown}");
    proxy.warns(&format!("http://{plain} (HTTP/1.1, HTTP/2)"));
    proxy.warns(&format!("https://{safe} (HTTP/1.1, HTTP/2, HTTP/3), certificate of "));
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}

#[test]
fn a_watched_status_is_written_again_until_the_proxy_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (proxy, _) = start(folder.path());
    let watching = Process::start_in(folder.path(), &["status", "--watch", "0.1", "--json"]);
    let patience = Patience::new();
    while watching.lines().len() < 2 {
        patience.wait_a_little("it is not written again");
    }
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
    let ended = watching.ended().with_code(1);
    assert!(ended.errors.contains("is the proxy running"), "{ended:?}");
    for line in ended.output.lines() {
        let status: Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!(status["workers"], 1);
    }
    let refused = run_in(folder.path(), &["status", "--watch", "0"]).with_code(2);
    assert!(refused.errors.contains("from 0.1 to 3600 seconds"), "{refused:?}");
    let refused = run_in(folder.path(), &["status", "--json", "--sort", "rate"]).with_code(2);
    assert!(refused.errors.contains("cannot be used with"), "{refused:?}");
}
