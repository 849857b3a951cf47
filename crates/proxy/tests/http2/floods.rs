//! The limits on floods: they are options, trusted proxies get a multiple, and the log names the exceeded one.

use config::{AccessLog, LogFormat, LogTarget, Protocol, Settings};
use serde_json::Value;
use testkit::http2::frame::{
    CANCEL, ENHANCE_YOUR_CALM, H2Frame, INITIAL_WINDOW_SIZE, block, headers, last_headers, ping, raw, reset,
    settings, window_update,
};
use testkit::http2::{H2End, H2Ended};

use super::scene::Scene;

const GET: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
const TRACE: &str = ":method: TRACE\n:scheme: http\n:authority: test\n:path: /\n";

/// The frames to send, by the number of earlier repetitions.
type Frames = fn(u32) -> Vec<u8>;

/// The kinds of floods: the option, the request that begins, the frames, and the log word.
const FLOODS: [(&str, &str, Frames, &str); 9] = [
    ("resets_per_second", "", rapid_resets, "http2-reset-flood"),
    ("settings_per_second", "", |_| settings(&[(INITIAL_WINDOW_SIZE, 1)]), "http2-settings-flood"),
    ("pings_per_second", "", |_| ping([0; 8]), "http2-ping-flood"),
    ("priorities_per_second", "", |_| raw(2, 0, 3, &[0, 0, 0, 0, 1]), "http2-priority-flood"),
    ("empty_frames_per_second", "POST", |_| raw(0, 0, 1, b""), "http2-empty-frame-flood"),
    (
        "errors_per_second",
        "",
        |at| last_headers(1 + 2 * at, &format!("{GET}connection: x\n")),
        "http2-excess",
    ),
    ("overhead_per_second", "", |_| window_update(0, 1), "http2-overhead-flood"),
    ("overhead_per_second", "", |_| raw(0xbe, 0, 7, b"whatever"), "http2-overhead-flood"),
    (
        "overhead_per_second",
        "POST",
        |_| raw(0, 8, 1, &[9, b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        "http2-overhead-flood",
    ),
];

/// CVE-2023-44487, with requests that no server sees.
fn rapid_resets(at: u32) -> Vec<u8> {
    [last_headers(1 + 2 * at, TRACE), reset(1 + 2 * at, CANCEL)].concat()
}

/// Returns the log of a client's frames under these limits.
fn logged(change: impl FnOnce(&mut Settings), talk: impl FnOnce(&Scene, &mut H2End)) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("access.log");
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.access_logs = vec![AccessLog::new(LogTarget::File(path.clone()), LogFormat::Json)];
        change(config);
    });
    let mut client = scene.client();
    client.is_heard();
    talk(&scene, &mut client);
    drop(client);
    let Scene { running, .. } = scene;
    running.drain();
    running.wait();
    let text = std::fs::read_to_string(&path).expect("the log is there");
    text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
}

/// Whether a line without a request reports this end of a connection.
fn is_told(line: &Value, word: &str, end: &str) -> bool {
    let detail = line["detail"].as_str().unwrap_or_default();
    line["cause"] == word && line.get("target").is_none() && detail.ends_with(end)
}

fn bound(config: &mut Settings, limit: u32) {
    let floods = &mut config.limits.http2.floods;
    let each = [
        &mut floods.resets,
        &mut floods.settings,
        &mut floods.pings,
        &mut floods.priorities,
        &mut floods.empty_frames,
        &mut floods.errors,
        &mut floods.overhead,
    ];
    each.into_iter().for_each(|bound| *bound = limit);
}

fn trust(config: &mut Settings) {
    config.trusted_proxies = vec!["127.0.0.0/8".parse().expect("is a network")];
}

#[test]
fn the_log_names_the_bound_that_was_met() {
    for (option, method, frames, word) in FLOODS {
        let lines = logged(
            |config| bound(config, 23),
            |_, client| {
                if !method.is_empty() {
                    client.sends(headers(1, &GET.replace("GET", method)));
                }
                (0..100_000).take_while(|at| client.can_send(&frames(*at))).count();
                assert_eq!(client.ends(), H2Ended::Told(ENHANCE_YOUR_CALM), "{option}");
            },
        );
        let end = format!(": more than limits.http2.{option}, 23");
        assert!(lines.iter().any(|line| is_told(line, word, &end)), "{option}: {lines:?}");
    }
}

/// CVE-2024-27316: the log also names limits without an option.
#[test]
fn the_log_names_the_bound_of_a_head_without_an_end() {
    let lines = logged(
        |_| (),
        |_, client| {
            client.sends(raw(1, 1, 1, &block(GET)));
            (0..1000).take_while(|_| client.can_send(&raw(9, 0, 1, b"x"))).count();
            assert_eq!(client.ends(), H2Ended::Told(ENHANCE_YOUR_CALM));
        },
    );
    let end = ": more than 16 frames for a head, or limits.header_bytes and a frame, 81920 bytes";
    assert!(lines.iter().any(|line| is_told(line, "http2-excess", end)), "{lines:?}");
}

/// A proxy in front carries the requests of thousands of users.
#[test]
fn a_trusted_proxy_may_send_so_many_times_as_much() {
    for (option, method, frames, word) in FLOODS {
        for (factor, is_borne) in [(100, true), (1, false)] {
            let scene = Scene::with(Protocol::Http1, 1, |config| {
                bound(config, 23);
                trust(config);
                config.limits.http2.trusted_factor = factor;
            });
            let mut client = scene.client();
            client.is_heard();
            if !method.is_empty() {
                client.sends(headers(1, &GET.replace("GET", method)));
            }
            let sent =
                (0..if is_borne { 1000 } else { 100_000 }).take_while(|at| client.can_send(&frames(*at)));
            if is_borne {
                assert_eq!(sent.count(), 1000, "{option}");
                client.is_heard();
            } else {
                sent.count();
                assert_eq!(client.ends(), H2Ended::Told(ENHANCE_YOUR_CALM), "{option}");
                scene.assert_failure(word, 1);
            }
        }
    }
}

/// CVE-2019-9517 and similar: windows of one byte make the proxy send a frame for each.
#[test]
fn a_response_that_is_taken_byte_by_byte_ends_the_connection() {
    let lines = logged(
        |_| (),
        |scene, client| {
            client.takes_all = false;
            client.sends([settings(&[(INITIAL_WINDOW_SIZE, 1)]), last_headers(1, GET)].concat());
            let mut server = scene.accept1().after_head();
            server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n{}", "x".repeat(60_000)));
            (0..100_000).take_while(|_| client.can_send(&window_update(1, 1))).count();
            assert_eq!(client.ends(), H2Ended::Told(ENHANCE_YOUR_CALM));
        },
    );
    let end = ": more than limits.http2.overhead_per_second, 1000";
    assert!(lines.iter().any(|line| is_told(line, "http2-overhead-flood", end)), "{lines:?}");
}

/// Every client that downloads opens both windows for each frame, which the data justifies.
#[test]
fn windows_that_go_with_a_body_are_no_flood() {
    let scene = Scene::with(Protocol::Http1, 1, |config| bound(config, 10));
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n{}", "x".repeat(3_000_000)));
    let mut left = 3_000_000;
    while left > 0 {
        if let H2Frame::Data { bytes, .. } = client.next_on(1) {
            left -= bytes.len();
        }
    }
    client.is_heard();
}
