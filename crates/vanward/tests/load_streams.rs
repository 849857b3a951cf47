//! `vanward load events`, `websocket` and `grpc` against the origin, each as a process, over HTTP/1.1, HTTP/2 and TLS.

use load::{RunOutcome, StreamCounts, StreamFigures};

use crate::process::{Ended, Process, run};

const INVALID: i32 = 98;
const MISSED: i32 = 99;

/// A running origin: its addresses without and with TLS.
struct Origin {
    _processes: [Process; 2],
    plain: String,
    secure: String,
}

impl Origin {
    fn start() -> Self {
        let mut plain = Process::start(&["origin", "--listen", "127.0.0.1:0"]);
        let mut secure = Process::start(&["origin", "--self-signed", "--listen", "127.0.0.1:0"]);
        let (http, https) = (format!("http://{}", plain.address()), format!("https://{}", secure.address()));
        Self { plain: http, secure: https, _processes: [plain, secure] }
    }
}

/// Parses the outcome of a run. A busy machine may make one with a rate invalid, but it counts all the same.
fn outcome(ended: &Ended) -> (RunOutcome, StreamFigures) {
    assert!(matches!(ended.status.code(), Some(0 | INVALID)), "{ended:?}");
    let outcome: RunOutcome =
        serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let figures = outcome.stream.as_deref().cloned().expect("figures of streams");
    assert_eq!(outcome.errors.total(), 0, "{outcome:?}");
    (outcome, figures)
}

fn load(arguments: &[&str]) -> (RunOutcome, StreamFigures) {
    outcome(&run(&[&["load"], arguments, &["--json", "-q"]].concat()))
}

#[test]
fn events_are_counted_and_timed_over_each_protocol() {
    let origin = Origin::start();
    for (server, flags) in [
        (&origin.plain, &["-c", "4", "-t", "2"][..]),
        (&origin.plain, &["-c", "2", "--h2", "-m", "2"]),
        (&origin.secure, &["-c", "4", "-k"]),
        (&origin.secure, &["-c", "2", "-k", "--h2", "-m", "2"]),
    ] {
        let url = format!("{server}/events?rate=500&size=100");
        let (told, figures) = load(&[&["events", "-n", "200"], flags, &[&url]].concat());
        let StreamCounts { opened, failed, closed_early, received, received_bytes, lost, .. } =
            figures.counts;
        assert_eq!((opened, failed, closed_early, received, lost), (4, 0, 0, 200, 0), "{flags:?}");
        assert_eq!((told.requests, told.latency.count, received_bytes), (200, 200, 20_000), "{flags:?}");
        assert!(figures.gaps.count >= 190 && figures.open.count == 4, "{figures:?}");
    }
    // A stream of ten events that ends is opened again. The numbers restart, and none is lost.
    let url = format!("{}/events?rate=10000&count=10&retry=0ms", origin.plain);
    let (_, figures) = load(&["events", "-c", "1", "-n", "95", &url]);
    let StreamCounts { closed_early, reconnected, received, lost, duplicates, .. } = figures.counts;
    // The first may have come before the measured window.
    assert!(closed_early >= 9 && reconnected >= 9, "{figures:?}");
    assert_eq!((received, lost, duplicates), (95, 0, 0));
}

#[test]
fn websockets_echo_in_a_closed_loop_and_at_a_rate() {
    let origin = Origin::start();
    for (server, flags) in [
        (&origin.plain, &["-c", "4", "-t", "2"][..]),
        (&origin.plain, &["-c", "2", "--h2", "-m", "2", "-R", "400"]),
        (&origin.secure, &["-c", "4", "-k", "-R", "400", "--poisson"]),
        (&origin.secure, &["-c", "2", "-k", "--h2", "-m", "2", "--in-flight", "5"]),
    ] {
        let url = format!("{server}/websocket");
        let (told, figures) = load(&[&["websocket", "-n", "120", "--size", "200"], flags, &[&url]].concat());
        let StreamCounts { opened, sent, received, sent_bytes, received_bytes, lost, duplicates, .. } =
            figures.counts;
        assert_eq!((opened, sent, received, lost, duplicates), (4, 120, 120, 0, 0), "{flags:?}");
        assert_eq!((sent_bytes, received_bytes), (24_000, 24_000), "{flags:?}");
        assert_eq!((told.latency.count, told.service.count, told.unfinished), (120, 120, 0), "{flags:?}");
        let schedule = told.schedule.map(|kept| (kept.due, kept.unsent));
        assert_eq!(schedule, flags.contains(&"-R").then_some((120, 0)));
    }
    // Messages without numbers are answered in order.
    let url = format!("ws{}/websocket", origin.plain.trim_start_matches("http"));
    let (told, _) = load(&["websocket", "-c", "1", "-n", "20", "--message", "{{uuid}}", &url]);
    assert_eq!((told.requests, told.latency.count), (20, 20));
}

#[test]
fn a_fan_out_reaches_every_receiver_once() {
    let origin = Origin::start();
    for (server, flags, receivers) in [
        (&origin.plain, &["-c", "10", "-t", "2"][..], 9),
        (&origin.secure, &["-c", "10", "-k", "--senders", "3"], 7),
        (&origin.plain, &["-c", "2", "--h2", "-m", "5", "--warm-up", "100ms"], 9),
    ] {
        let url = format!("{server}/websocket/fan-out?room={}", flags.len());
        let fan_out = ["websocket", "--fan-out", "-R", "300", "-n", "60"];
        let (told, figures) = load(&[&fan_out, flags, &[&url]].concat());
        let StreamCounts { opened, sent, received, lost, duplicates, out_of_order, from_future, .. } =
            figures.counts;
        assert_eq!((opened, sent, received), (10, 60, 60 * receivers), "{flags:?}");
        assert_eq!((lost, duplicates, out_of_order, from_future), (0, 0, 0, 0), "{flags:?}");
        assert_eq!((told.latency.count, told.requests), (60 * receivers, 60 * receivers), "{flags:?}");
    }
}

#[test]
fn grpc_calls_of_each_kind_are_counted_with_their_statuses() {
    let origin = Origin::start();
    for (server, more) in [(&origin.plain, &["-c", "2", "-m", "2"][..]), (&origin.secure, &["-k", "-c", "4"])]
    {
        let call = |flags: &[&str], path: &str| {
            load(&[&["grpc"], flags, more, &["--method", path, server]].concat())
        };
        let echo = "/vanward.Origin/Echo";
        let (told, figures) = call(&["-n", "50", "--message", "hex:0a03{{counter 3}}"], echo);
        assert_eq!((told.requests, figures.counts.calls, figures.counts.received_bytes), (50, 50, 250));
        assert_eq!(figures.grpc_statuses.get("OK"), Some(&50));

        let (told, figures) =
            call(&["-n", "80", "--bidi", "-R", "800", "--messages", "5", "--message", "hi"], echo);
        let StreamCounts { calls, sent, received, lost, .. } = figures.counts;
        assert_eq!((sent, received, lost, told.latency.count), (80, 80, 0, 80));
        assert!((16..=20).contains(&calls), "{calls}");

        let (told, figures) = call(&["-n", "60", "--client-stream", "--messages", "10", "--size", "8"], echo);
        let StreamCounts { calls, sent, sent_bytes, .. } = figures.counts;
        assert_eq!((told.requests, sent, sent_bytes), (calls, 60, 480));

        let feed = "/vanward.Origin/Events?rate=2000&count=5";
        let (told, figures) = call(&["-n", "40", "--server-stream"], feed);
        let StreamCounts { received, lost, duplicates, .. } = figures.counts;
        assert_eq!((received, lost, duplicates, told.latency.count), (40, 0, 0, 40));
    }
    let path = "/vanward.Origin/Echo?grpc-status=14";
    let ended = run(&["load", "grpc", "-q", "-n", "5", "--method", path, &origin.plain]).with_code(1);
    assert!(ended.output.contains("Statuses   UNAVAILABLE 5"), "{}", ended.output);
    assert!(ended.output.contains("such as: grpc-status 14 UNAVAILABLE"), "{}", ended.output);
    let ended = run(&["load", "grpc", "-n", "5", "--method", "/tiny", &origin.plain]).with_code(1);
    assert!(ended.output.contains("its type is not application/grpc"), "{}", ended.output);
}

#[test]
fn expectations_and_files_are_of_messages() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").display().to_string();
    let url = format!("{}/events?rate=1000", origin.plain);
    let good = ["--expect", "messages/s > 1", "--expect", "lost = 0", "--expect", "gap-p99 < 5m"];
    let missed = ["--expect", "gap-max < 1us", "--expect", "closed-early > 0"];
    let ended =
        run(&[&["load", "events", "-c", "2", "-n", "50", "--out", &out, &url], &good[..], &missed].concat())
            .with_code(MISSED);
    assert!(
        ended.errors.contains("2 of 5 expectations were missed: gap-max < 1us (measured "),
        "{}",
        ended.errors
    );
    assert!(ended.output.contains("  Received   50 messages, "), "{}", ended.output);
    let read = |name: &str| {
        std::fs::read_to_string(format!("{out}/{name}")).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let page = read("report.html");
    assert!(page.contains("messages/s") && page.contains("gap between messages, p99"));
    assert!(read("junit.xml").contains("lost = 0"));
    let told: RunOutcome = serde_json::from_str(&read("result.json")).expect("an outcome");
    assert_eq!(told.requests, 50);
    assert!(read("latency.hgrm").contains("TotalCount"));
    let both = folder.path().join("both.html").display().to_string();
    let ended = run(&["load", "report", &out, &out, "--out", &both]).with_code(0);
    assert!(ended.output.contains(" messages/s, p50 "), "{}", ended.output);
}

#[test]
fn flags_without_a_meaning_are_rejected_before_anything_is_opened() {
    for (arguments, message) in [
        (&["websocket", "--fan-out", "http://127.0.0.1:1/"][..], "given a rate (-R)"),
        (&["websocket", "--fan-out", "-R", "5", "-c", "1", "http://127.0.0.1:1/"], "--senders"),
        (&["websocket", "--echo", "--fan-out", "http://127.0.0.1:1/"], "cannot be used with"),
        (&["websocket", "--message", "{{count}}", "http://127.0.0.1:1/"], "{{count}} is not a value"),
        (&["grpc", "--message", "hex:0", "http://127.0.0.1:1/"], "pairs of hexadecimal digits"),
        (&["grpc", "--message", "base64:?", "http://127.0.0.1:1/"], "must be base64 after base64:"),
        (&["grpc", "--messages", "5", "http://127.0.0.1:1/"], "--messages is for"),
        (&["grpc", "--server-stream", "-R", "5", "http://127.0.0.1:1/"], "the rate (-R)"),
        (&["events", "-m", "2", "http://127.0.0.1:1/"], "--h2"),
        (&["events", "--expect", "loss = 0", "http://127.0.0.1:1/"], "did you mean \"lost\"?"),
        (&["--expect", "lost = 0", "http://127.0.0.1:1/"], "is about streams"),
        (&["events", "ftp://127.0.0.1:1/"], "write http://"),
    ] {
        let ended = run(&[&["load"], arguments].concat()).with_code(2);
        assert!(ended.errors.contains(message), "{arguments:?}: {}", ended.errors);
    }
}
