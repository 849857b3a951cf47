//! Lines of the access log, in both formats.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use config::{AccessLog, LogFormat, LogTarget, RouteLog, Settings};
use serde_json::Value;
use shape::Millionths;
use testkit::text::{GET_SEEN, OK, OK_GOT, expand, failure_and_close, failure_and_go_on};

use super::scene::Scene;
use super::scene::Step::*;

/// Runs a conversation, ends the proxy, and returns the lines of its log.
pub(crate) fn logged(format: LogFormat, talk: impl FnOnce(&Scene)) -> Vec<String> {
    logged_with(format, |_| (), talk)
}

/// With changes to the configuration.
pub(crate) fn logged_with(
    format: LogFormat,
    change: impl FnOnce(&mut Settings),
    talk: impl FnOnce(&Scene),
) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("access.log");
    let scene = Scene::with(|config| {
        config.access_logs = vec![AccessLog::new(LogTarget::File(path.clone()), format)];
        config.timeouts.upstream_first_byte = Duration::from_secs(2);
        change(config);
    });
    talk(&scene);
    scene.running().drain();
    scene.into_running().wait();
    lines(&path)
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the log is there");
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

const REQUEST: &str =
    "GET /a?b HTTP/1.1\r\nHost: test\r\nReferer: http://from/\r\nUser-Agent: me \"quoted\"\r\n\r\n";

fn ask(scene: &Scene) {
    let seen = REQUEST.replace("\r\n\r\n", "\r\n{ours}\r\n");
    scene.play(
        "logged",
        &[ClientSends(REQUEST), ServerAccepts, ServerGets(&seen), ServerSends(OK), ClientGets(OK_GOT)],
    );
}

#[test]
fn a_request_is_a_line_of_the_combined_format() {
    let lines = logged(LogFormat::Extended, ask);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let line = &lines[0];
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    let request = "] \"GET /a?b HTTP/1.1\" 200 2 \"http://from/\" \"me \\\"quoted\\\"\" host=\"test\"";
    assert!(line.contains(request), "{line}");
    assert!(!line.contains("cause="), "{line}");
}

#[test]
fn each_log_has_every_request_in_its_own_format() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let other = directory.path().join("other.log");
    let format = LogFormat::new("$status $cause", &[]).expect("a format");
    let another = AccessLog::new(LogTarget::File(other.clone()), format);
    let first = logged_with(LogFormat::Combined, |config| config.access_logs.push(another), ask);
    assert!(first.len() == 1 && first[0].contains("\"GET /a?b HTTP/1.1\" 200 2"), "{first:#?}");
    assert_eq!(lines(&other), ["200 -"]);
}

#[test]
fn a_request_is_an_object_of_the_json_format() {
    let lines = logged(LogFormat::Json, ask);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let line: Value = serde_json::from_str(&lines[0]).expect("is JSON");
    for (name, value) in [
        ("client", "127.0.0.1"),
        ("method", "GET"),
        ("target", "/a?b"),
        ("version", "1.1"),
        ("host", "test"),
        ("referer", "http://from/"),
        ("user_agent", "me \"quoted\""),
        ("route", "/"),
        ("upstream", "default"),
    ] {
        assert_eq!(line[name], value, "{name} in {line}");
    }
    assert_eq!((&line["status"], &line["body_bytes_sent"]), (&200.into(), &2.into()), "{line}");
    assert_eq!(line["bytes_received"], REQUEST.len(), "{line}");
    assert_eq!(line["cause"], Value::Null, "{line}");
    // Each part of the time is within the total.
    let time = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"));
    assert!(time("upstream_connect_ms") <= time("upstream_first_byte_ms"), "{line}");
    assert!(time("upstream_first_byte_ms") <= time("upstream_total_ms"), "{line}");
    assert!(time("upstream_total_ms") <= time("duration_ms"), "{line}");
}

#[test]
fn a_request_is_a_line_of_a_template() {
    let template = "$client \"$request\" $path $query $status $body_bytes_sent $listener $worker $upstream_reused \
                    $connection_request $attempts $trace_id \"$header.x-two\" $header.cookie $response_header.date \
                    $response_header.via $upstream_connect_ms $cause";
    let format = LogFormat::new(template, &[]).expect("a format");
    let lines = logged(format, |scene| {
        let fields = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX-Two: a\r\nX-Two: b\r\n\
                      Cookie: id=s3cret\r\n";
        let request = format!("GET /a?b HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
        let seen = format!("GET /a?b HTTP/1.1\r\nHost: test\r\n{fields}{{ours}}\r\n");
        scene.play(
            "template",
            &[
                ClientSends(&request),
                ServerAccepts,
                ServerGets(&seen),
                ServerSends(OK),
                ClientGets(OK_GOT),
                ClientSends(&request),
                ServerGets(&seen),
                ServerSends(OK),
                ClientGets(OK_GOT),
            ],
        );
    });
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let [first, second] = [0, 1].map(|at| lines[at].split_whitespace().collect::<Vec<_>>());
    let (listener, worker) = (first[8], first[9]);
    assert!(listener.starts_with("127.0.0.1:"), "{lines:#?}");
    let expected = |number: u32, is_reused: bool| {
        format!(
            "127.0.0.1 \"GET /a?b HTTP/1.1\" /a b 200 2 {listener} {worker} {is_reused} {number} 1 \
             0af7651916cd43dd8448eb211c80319c \"a, b\" *** D 1.1\\x20vanward "
        )
    };
    assert!(lines[0].starts_with(&expected(1, false)), "{}", lines[0]);
    // A pooled connection has no connect time.
    assert!(first[first.len() - 2].parse::<f64>().is_ok(), "{}", lines[0]);
    assert_eq!(lines[1], expected(2, true) + "- -");
    assert_eq!(second.len(), first.len());
}

#[test]
fn the_first_byte_leaves_before_the_request_ends() {
    let format = LogFormat::new("$first_byte_ms $duration_ms", &[]).expect("a format");
    let lines = logged(format, ask);
    let times: Vec<f64> = lines[0].split(' ').map(|time| time.parse().expect("a number")).collect();
    assert!(0.0 < times[0] && times[0] <= times[1], "{times:?}");
}

#[test]
fn of_a_sample_all_are_logged_that_fail() {
    let share = |millionths| Some(RouteLog::Share(Millionths::of_millionths(millionths).expect("a share")));
    for (share, expected) in [(share(0), &[503, 502][..]), (share(1_000_000), &[200, 503, 502])] {
        let lines = logged_with(
            LogFormat::Json,
            |config| config.routes[0].policies.options.access_log = share,
            |scene| {
                let unavailable = OK.replace("200 OK", "503 Service Unavailable");
                scene.play(
                    "sample",
                    &[
                        ClientSends(testkit::text::GET),
                        ServerAccepts,
                        IsServed,
                        ClientSends(testkit::text::GET),
                        ServerGets(GET_SEEN),
                        ServerSends(&unavailable),
                        ClientGets(&OK_GOT.replace("200 OK", "503 Service Unavailable")),
                        ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n"),
                        ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n{ours}\r\n"),
                        ServerSends("nonsense\r\n\r\n"),
                        ClientGets(&failure_and_go_on(
                            "502 Bad Gateway",
                            "The server's response is not valid HTTP.",
                        )),
                        ServerIsClosed,
                    ],
                );
            },
        );
        let line = |line: &String| serde_json::from_str::<Value>(line).expect("is JSON");
        let lines: Vec<Value> = lines.iter().map(line).collect();
        let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap_or(0)).collect();
        assert_eq!(statuses, expected, "{lines:#?}");
        assert!(lines.iter().all(|line| line["weight"].is_null()), "{lines:#?}");
    }
}

#[test]
fn a_line_of_a_sample_tells_its_weight() {
    const REQUESTS: usize = 200;
    let half = Millionths::of_millionths(500_000).expect("a share");
    let lines = logged_with(
        LogFormat::Json,
        |config| config.routes[0].policies.options.access_log = Some(RouteLog::Share(half)),
        |scene| {
            let mut client = scene.client();
            let mut server = None;
            for _ in 0..REQUESTS {
                client.sends(testkit::text::GET);
                let server = server.get_or_insert_with(|| scene.accept(0));
                server.gets(&expand(GET_SEEN, ""));
                server.sends(OK);
                client.gets(&expand(OK_GOT, ""));
            }
        },
    );
    // All or none of two hundred requests would be a chance of 2^-200.
    assert!(!lines.is_empty() && lines.len() < REQUESTS, "{}", lines.len());
    assert!(lines.iter().all(|line| line.ends_with(",\"weight\":2}")), "{}", lines[0]);
}

/// Workers read the time of day ten times a second; their log lines are more precise.
#[test]
fn no_line_is_older_than_its_request() {
    const DAY_MS: i64 = 86_400_000;
    let now_ms = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        since.as_millis() as i64 % DAY_MS
    };
    let mut asked_ms = Vec::new();
    let lines = logged(LogFormat::Json, |scene| {
        let mut client = scene.client();
        let mut servers = Vec::new();
        // Long enough that the first reading is outdated.
        let began = Instant::now();
        while asked_ms.len() < 20 || began.elapsed() < Duration::from_millis(20) {
            asked_ms.push(now_ms());
            client.sends(testkit::text::GET);
            if servers.is_empty() {
                servers.push(scene.accept(0));
            }
            servers[0].gets(&expand(GET_SEEN, ""));
            servers[0].sends(OK);
            client.gets(&expand(OK_GOT, ""));
        }
    });
    assert_eq!(lines.len(), asked_ms.len());
    for (line, asked_ms) in lines.iter().zip(asked_ms) {
        let line: Value = serde_json::from_str(line).expect("is JSON");
        let time =
            line["time"].as_str().and_then(|time| time.strip_suffix('Z')?.split_once('T')).expect("a time").1;
        let parts = time.split([':', '.']).zip([3_600_000, 60_000, 1000, 1]);
        let parts = parts.map(|(digits, ms)| ms * digits.parse::<i64>().unwrap_or_else(|_| panic!("{time}")));
        let later_ms = (parts.sum::<i64>() - asked_ms).rem_euclid(DAY_MS);
        assert!(later_ms < DAY_MS / 2, "{time} is before {asked_ms} ms of the day");
    }
}

#[test]
fn the_bytes_of_a_body_are_counted_in_every_framing() {
    let head = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n";
    let lines = logged(LogFormat::Json, |scene| {
        let request = format!("{head}hello");
        scene.play(
            "a body",
            &[
                ClientSends(&request),
                ServerAccepts,
                ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n{ours}\r\nhello"),
                ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
                ClientGets(
                    "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n3\r\nabc\r\n0\r\n\r\n",
                ),
                ClientSends(testkit::text::GET),
                IsServed,
            ],
        );
    });
    let line: Value = serde_json::from_str(&lines[0]).expect("is JSON");
    assert_eq!(
        (&line["bytes_received"], &line["body_bytes_sent"]),
        (&(head.len() + 5).into(), &3.into()),
        "{line}"
    );
    let line: Value = serde_json::from_str(&lines[1]).expect("is JSON");
    assert_eq!(line["bytes_received"], testkit::text::GET.len(), "{line}");
}

#[test]
fn a_failure_is_logged_with_its_cause() {
    let lines = logged(LogFormat::Json, |scene| {
        let bad = failure_and_close("400 Bad Request", "The request is not valid HTTP.");
        scene.play("bad", &[ClientSends("GET  / HTTP/1.1\r\n\r\n"), ClientGets(&bad), ClientGetsEnd]);
        let late = failure_and_go_on("504 Gateway Timeout", "The server did not respond in time.");
        scene.play(
            "late",
            &[
                ClientSends(testkit::text::GET),
                ServerAccepts,
                ServerGets(GET_SEEN),
                ClientGets(&late),
                ServerIsClosed,
            ],
        );
        scene.play(
            "broken off",
            &[
                ClientSends(testkit::text::GET),
                ServerAccepts,
                ServerGets(GET_SEEN),
                ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 9\r\n\r\nabc"),
                ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 9\r\n{via}\r\nabc"),
                ServerCloses,
                ClientGetsEnd,
            ],
        );
    });
    let logged: Vec<(Value, Value)> = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("is JSON"))
        .map(|line: Value| (line["status"].clone(), line["cause"].clone()))
        .collect();
    let expected = [(400, "bad-request"), (504, "upstream-timeout"), (200, "upstream-truncated")];
    assert_eq!(logged, expected.map(|(status, cause)| (status.into(), cause.into())));
}

#[test]
fn bytes_are_counted_on_all_four_sides() {
    const SENT: &str = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nabcd";
    let scene = Scene::new();
    let mut client = scene.client();
    // A failure without a server comes first, and must not count for any server.
    client.sends("TRACE / HTTP/1.1\r\nHost: test\r\n\r\n");
    let refused = expand(&failure_and_close("405 Method Not Allowed", "This method is not supported."), "");
    let refused = String::from_utf8(refused).expect("is text");
    let allow = "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\n";
    client.gets(refused.replacen("Connection", &format!("{allow}Connection"), 1).as_bytes());
    client.gets_the_end();
    let mut client = scene.client().saying(&SENT[..SENT.len() - 2]);
    let mut server = scene.accept(0);
    let seen = expand("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n{ours}\r\nabcd", "");
    server.gets(&seen[..seen.len() - 2]);
    client.sends("cd");
    server.gets(b"cd");
    server.sends(OK);
    client.gets(&expand(OK_GOT, ""));
    scene.assert_failures(&["method-refused"]);
    let counted = scene.running().counters();
    let trace = "TRACE / HTTP/1.1\r\nHost: test\r\n\r\n".len();
    assert_eq!(counted.client_bytes_received, (trace + SENT.len()) as u64);
    assert_eq!(counted.client_bytes_sent, (refused.len() + allow.len() + expand(OK_GOT, "").len()) as u64);
    assert_eq!(counted.upstream_bytes_sent, seen.len() as u64);
    assert_eq!(counted.upstream_bytes_received, OK.len() as u64);
}
