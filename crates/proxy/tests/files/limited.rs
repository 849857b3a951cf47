//! Rates, faults, delays and limits also apply to files.

use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, Spoken, get};

use super::scene::{answer_twice, scene, with, write};

fn text(len: usize) -> String {
    "0123456789".repeat(len / 10)
}

#[test]
fn a_rate_holds_for_long_files_and_for_short_ones() {
    let scene = scene("", "rate = \"100KB/s per request\"\n");
    write(&scene, "root/short.txt", &text(10_000));
    write(&scene, "root/long.txt", &text(40_000));
    for spoken in BOTH {
        for (target, fields, bytes, at_least_ms) in [
            ("/short.txt", "", 10_000, 50),
            ("/long.txt", "", 40_000, 300),
            ("/long.txt", "range: bytes=0-19999", 20_000, 100),
        ] {
            let began = Instant::now();
            let got = scene.answer(spoken, &with(target, fields));
            assert_eq!(got.body, text(bytes), "{target} {fields}");
            assert!(began.elapsed() >= Duration::from_millis(at_least_ms), "{target} {:?}", began.elapsed());
        }
    }
}

#[test]
fn a_delay_holds() {
    let scene = scene("", "delay = \"100ms\"\n");
    for spoken in BOTH {
        for target in ["/page.txt", "/page.txt", "/gone"] {
            let began = Instant::now();
            let got = scene.answer(spoken, &get(target));
            assert_eq!(got.status, if target == "/gone" { 404 } else { 200 });
            assert!(began.elapsed() >= Duration::from_millis(100));
        }
    }
}

#[test]
fn faults_hold() {
    let faults = "[[fault]]\ninject = \"cut 4\"\nheaders = { x-fault = \"cut\" }\n\
                  [[fault]]\ninject = \"503\"\nheaders = { x-fault = \"503\" }\n";
    let scene = scene("", faults);
    write(&scene, "root/long.txt", &text(40_000));
    for target in ["/page.txt", "/long.txt"] {
        let got = answer_twice(&scene, Spoken::Http2, &with(target, "x-fault: 503"));
        assert_eq!(got.status, 503);
        let address = scene.running().addresses()[0];
        let mut client = Http1Peer::new("client", TcpStream::connect(address).expect("the proxy listens"));
        client.sends(format!("GET {target} HTTP/1.1\r\nHost: test\r\nX-Fault: cut\r\n\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        assert_eq!(client.rest().0, b"0123");
        // Other requests are not affected.
        assert_eq!(scene.answer(Spoken::Http1, &get("/page.txt")).body, "0123456789");
    }
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    for more in [
        "timeouts = { client_write = \"200ms\" }\n",
        "limits = { minimum_rate = \"1MB/s\", rate_window = \"1s\" }\n",
    ] {
        let scene = scene("", more);
        let huge = write(&scene, "root/huge.bin", "");
        let file = fs::File::options().write(true).open(huge).expect("it is there");
        file.set_len(64 << 20).expect("it can grow");
        let address = scene.running().addresses()[0];
        let mut client = Http1Peer::new("client", TcpStream::connect(address).expect("the proxy listens"));
        client.sends("GET /huge.bin HTTP/1.1\r\nHost: test\r\n\r\n");
        let began = Instant::now();
        loop {
            // Of one look: the request could begin between two.
            let counters = scene.running().counters();
            if counters.requests > 0 && counters.requests_active == 0 {
                break;
            }
            assert!(began.elapsed() < testkit::wait::PATIENCE, "{more}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (body, _) = client.rest();
        assert!(body.len() < 64 << 20, "{}", body.len());
    }
}

#[test]
fn the_log_says_what_was_sent() {
    let log = "[log]\ntarget = \"{dir}/access.log\"\nformat = \"json\"\n";
    let scene = scene("", log);
    write(&scene, "root/long.txt", &text(400_000));
    let rows = [
        ("/page.txt", "", 200, 10),
        ("/long.txt", "", 200, 400_000),
        ("/long.txt", "range: bytes=100-299999", 206, 299_900),
        ("/page.txt", "if-none-match: *", 304, 0),
        ("/gone", "", 404, 23),
    ];
    for (target, fields, status, _) in rows {
        for spoken in BOTH {
            assert_eq!(answer_twice(&scene, spoken, &with(target, fields)).status, status);
        }
    }
    let (running, directory) = scene.into_parts();
    drop(running);
    let text = fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let mut lines: Vec<(String, i64, i64, String)> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("is JSON");
            let number = |name: &str| line[name].as_i64().unwrap_or_else(|| panic!("{name} of {line}"));
            let failure = line["cause"].as_str().unwrap_or_default().to_owned();
            (
                line["target"].as_str().unwrap_or_default().to_owned(),
                number("status"),
                number("body_bytes_sent"),
                failure,
            )
        })
        .collect();
    lines.sort();
    let mut expected: Vec<_> = rows
        .iter()
        .flat_map(|(target, _, status, bytes)| {
            let failure = if *status == 404 { "no-file" } else { "" };
            vec![((*target).to_owned(), *status as i64, *bytes, failure.to_owned()); 4]
        })
        .collect();
    expected.sort();
    assert_eq!(lines, expected);
}
