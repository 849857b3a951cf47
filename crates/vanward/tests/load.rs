//! `vanward load` against the origin, each as a process: gates, and files left behind.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use load::RunOutcome;

use crate::process::{self, Process, run};

const MISSED: i32 = 99;

struct Origin {
    process: Process,
    authority: String,
}

impl Origin {
    fn start() -> Self {
        let mut origin = Process::start(&["origin", "--listen", "127.0.0.1:0"]);
        let address = origin.address();
        Self { process: origin, authority: address.to_string() }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.authority)
    }
}

/// Starts a server that answers `count` requests, each with `answer`, and then no more.
fn answers(count: usize, answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let answered = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answered = Arc::clone(&answered);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                // Each request of the tests fits one read.
                while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
                    if answered.fetch_add(1, Ordering::Relaxed) < count {
                        let _ = stream.write_all(answer);
                    }
                }
            });
        }
    });
    format!("http://{address}/")
}

const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn a_server_that_falls_silent_passes_no_gate() {
    let load = |more: &[&str]| {
        run(&[&["load", "-q", "-c", "10", "-d", "1500ms"], more, &[&answers(50, PAGE)]].concat())
    };
    let gate = ["--expect", "errors = 0", "--expect", "p99 < 500ms"];
    for rate in [&[][..], &["-R", "100"]] {
        let ended = load(&[&gate[..], rate].concat()).with_code(MISSED);
        assert!(
            ended.errors.contains("1 of 2 expectations were missed: p99 < 500ms (measured at least "),
            "{ended:?}"
        );
        // A limit does not count as met if a request without a response may still exceed it.
        load(&[&["--expect", "p99 < 5m"], rate].concat()).with_code(MISSED);
        load(&[&["--expect", "p99 > 1ms", "--expect", "p25 < 10s"], rate].concat()).with_code(98);
        let ended = load(rate).with_code(98);
        assert!(ended.output.contains("INVALID: the server stopped answering"), "{ended:?}");
    }
}

/// Broken services that a gate must reject: the fault, the responses, flags, and the exit code.
#[test]
fn no_broken_service_gets_a_yes() {
    const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const LOGIN: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n";
    const BROKEN: &[u8] = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n";
    let number = ["-n", "40", "-c", "4"];
    let checked = ["-n", "40", "--check", "size 5", "--check", "status 200"];
    let time = ["-c", "4", "-d", "1500ms"];
    let rate = ["-c", "4", "-d", "1500ms", "-R", "100"];
    let errors = ["--expect", "errors = 0"];
    let quick = ["--expect", "p99 < 5m"];
    type Case<'a> = (&'a str, usize, &'static [u8], &'a [&'a str], &'a [&'a str], i32);
    let cases: [Case<'_>; 16] = [
        ("is well", 99, PAGE, &number, &errors, 0),
        ("is as the plan says", 99, PAGE, &checked, &errors, 0),
        ("answers an empty page to a plan that knows its page", 99, EMPTY, &checked, &errors, 99),
        ("answers an empty page to a plan that knows its page", 99, EMPTY, &checked, &[], 1),
        ("sends all to its login", 99, LOGIN, &checked, &errors, 99),
        ("fails all", 99, BROKEN, &number, &[], 1),
        ("fails all", 99, BROKEN, &number, &errors, 99),
        ("fails all", 99, BROKEN, &number, &["--max-errors", "100%"], 1),
        ("falls silent in a closed loop", 20, PAGE, &time, &errors, 98),
        ("falls silent in a closed loop", 20, PAGE, &time, &quick, 99),
        ("falls silent in a closed loop", 20, PAGE, &time, &[], 98),
        ("falls silent at a rate", 20, PAGE, &rate, &errors, 98),
        ("falls silent at a rate", 20, PAGE, &rate, &quick, 99),
        ("never answers", 0, PAGE, &time, &errors, 99),
        ("never answers", 0, PAGE, &time, &[], 1),
        (
            "times out, which errors may",
            20,
            PAGE,
            &time,
            &["--timeout", "100ms", "--expect", "p99 < 50ms", "--max-errors", "99%"],
            99,
        ),
    ];
    for (what, count, answer, load, gate, code) in cases {
        let ended = run(&[&["load", "-q"], load, gate, &[&answers(count, answer)]].concat());
        assert_eq!(ended.status.code(), Some(code), "{what}: {gate:?} {ended:?}");
        assert_eq!(ended.errors.contains("vanward: "), code != 0, "it says why: {ended:?}");
    }
}

/// A closed pipe hides no failure, and the report for CI has it.
#[test]
fn the_exit_code_the_report_and_the_output_agree() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("out").display().to_string();
    let junit = || std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("a report");
    let silent = ["-c", "4", "-d", "1500ms", "--expect", "errors = 0"];
    run(&[&["load", "-q", "--out", &out], &silent[..], &[&answers(20, PAGE)]].concat()).with_code(98);
    assert!(
        junit().contains("tests=\"2\" failures=\"1\"")
            && junit().contains("the run is invalid: the server stopped answering"),
        "{}",
        junit()
    );
    let good = ["-n", "20", "--expect", "errors = 0"];
    run(&[&["load", "-q", "--out", &out], &good[..], &[&answers(20, PAGE)]].concat()).with_code(0);
    assert!(junit().contains("tests=\"1\" failures=\"0\""), "{}", junit());
    for (gate, code) in [("errors = 0", 99), ("errors > 1", 1)] {
        let url = answers(20, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
        command.args(["load", "-q", "-n", "20", "--expect", gate, &url]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{gate}");
    }
}

#[test]
fn missed_expectations_are_shown_with_the_figures_and_exit_with_99() {
    let origin = Origin::start();
    for version in [&[][..], &["--h2"]] {
        let load = |more: &[&str], path: &str| {
            run(&[&["load", "-n", "20", "-c", "2"], version, more, &[&origin.url(path)]].concat())
        };
        let good = ["--expect", "p99 < 5m", "--expect", "errors = 0", "--expect", "rate > 0.001/s"];
        let ended = load(&good, "/tiny").with_code(0);
        assert_eq!(ended.output.matches("  met     expected ").count(), 3, "{}", ended.output);

        let mixed = ["--expect", "max < 1us", "--expect=5xx<1%", "--expect", "4xx = 0", "--json"];
        let ended = load(&mixed, "/tiny").with_code(MISSED);
        assert!(ended.errors.contains("1 of 3 expectations were missed: max < 1us (measured "), "{ended:?}");
        let outcome: RunOutcome = serde_json::from_str(&ended.output).expect("it is an outcome");
        let told: Vec<_> =
            outcome.expectations.iter().map(|each| (each.text.as_str(), each.is_met)).collect();
        assert_eq!(told, [("max < 1us", false), ("5xx<1%", true), ("4xx = 0", true)]);
        assert_eq!(outcome.expectations[1].measured.as_deref(), Some("0.000%"));

        // Without a success there are no percentiles.
        let ended = load(&["--expect", "p50 < 5m"], "/status/404").with_code(MISSED);
        assert!(ended.output.contains("MISSED  expected p50 < 5m, measured nothing"), "{}", ended.output);
        // An expectation about errors replaces --max-errors.
        load(&["--expect", "errors <= 20", "--expect", "4xx = 100%"], "/status/404").with_code(1);
    }
}

#[test]
fn an_expectation_that_cannot_be_read_is_refused_before_any_request() {
    let origin = Origin::start();
    for (expect, message) in [
        ("p99 50ms", "it has no comparison"),
        ("p99 < 50", "\"50\" is not a duration"),
        ("error < 1", "did you mean \"errors\"?"),
        ("memory < 1MB", "name its process with --pid"),
    ] {
        let ended = run(&["load", "--expect", expect, &origin.url("/tiny")]).with_code(2);
        assert!(ended.errors.contains(message), "{expect}: {}", ended.errors);
    }
    let stats = process::get(origin.authority.parse().expect("an address"), "/stats");
    assert!(!stats.contains("/tiny"), "{stats}");
}

fn outcome(arguments: &[&str], code: i32) -> RunOutcome {
    let ended = run(&[&["load", "--json"], arguments].concat()).with_code(code);
    serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn rows(outcome: &RunOutcome) -> Vec<(&str, u64, u64)> {
    outcome.breakdowns[0].rows.iter().map(|row| (row.name.as_str(), row.requests, row.failed)).collect()
}

#[test]
fn stages_send_as_many_requests_as_their_rates_say() {
    let origin = Origin::start();
    for (version, threads) in [(None, "1"), (Some("--h2"), "2")] {
        let stages = ["--stages", "200ms:..200,100ms:200,100ms:0,200ms:200..0", "-c", "8", "-t", threads];
        let url = origin.url("/tiny");
        let arguments: Vec<&str> = stages.into_iter().chain(version).chain([url.as_str()]).collect();
        // A busy machine may make it invalid, but every request counts.
        let ended = run(&[&["load", "--json"], &arguments[..]].concat());
        let told: RunOutcome = serde_json::from_str(&ended.output).expect("it is an outcome");
        assert_eq!((told.requests, told.errors.total()), (60, 0));
        let stages = [
            ("1: 0.2s from 0/s to 200/s", 20, 0),
            ("2: 0.1s at 200/s", 20, 0),
            ("4: 0.2s from 200/s to 0/s", 20, 0),
        ];
        assert_eq!(rows(&told), stages);
        assert_eq!(told.schedule.expect("a schedule").due, 60);
        assert_eq!(told.settings.arrival.stages().len(), 4);
    }
    for (arguments, message) in [
        (&["--stages", "10s"][..], "no colon"),
        (&["--stages", "1s:5", "-R", "5"], "cannot be used with"),
        (&["--stages", "1s:5", "-d", "5s"], "cannot be used with"),
        (&["--stages", "1s:0"], "the mean rate (--stages) must be"),
        (&["--think-time", "1s", "-R", "5"], "cannot be used with"),
        (&["--think-time", "2s..1s"], "write the shorter one first"),
    ] {
        let ended = run(&[&["load"], arguments, &["http://127.0.0.1:1/"]].concat()).with_code(2);
        assert!(ended.errors.contains(message), "{arguments:?}: {}", ended.errors);
    }
}

#[test]
fn users_who_think_pause_between_requests_and_latency_does_not_count_it() {
    let origin = Origin::start();
    for version in [&[][..], &["--h2"]] {
        let think = ["-c", "1", "-n", "4", "--think-time", "100ms..200ms"];
        let told = outcome(&[&think, version, &[&origin.url("/tiny")]].concat(), 0);
        assert_eq!((told.requests, told.errors.total()), (4, 0));
        assert!(told.measured_seconds >= 0.3, "{}", told.measured_seconds);
        assert!(told.latency.min_us < 100_000, "{:?}", told.latency);
    }
}

#[test]
fn figures_are_broken_down_by_status_url_and_name_with_times_of_failures() {
    let origin = Origin::start();
    let list = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(list.path(), "/tiny?a#small\n/tiny?b\n/status/404\n/status/503\n").expect("a list");
    let list = list.path().to_string_lossy().into_owned();
    for version in [&[][..], &["--h2"]] {
        let load = ["-n", "40", "-c", "1", "--urls", &list, "--max-errors", "50%"];
        let shuffled = ["--by", "name", "--shuffle", "3", &origin.url("/")];
        let by = |by: &str| outcome(&[&load, version, &["--by", by, &origin.url("/")]].concat(), 0);
        let told = by("status,url");
        assert_eq!(rows(&told), [("2xx", 20, 0), ("4xx", 0, 10), ("5xx", 0, 10)]);
        let failed = &told.breakdowns[0].rows[1].latency;
        assert!(failed.count == 10 && failed.p99_us > 0, "{failed:?}");
        assert_eq!(told.breakdowns[1].rows[1].name, origin.url("/tiny?b"));
        assert_eq!((told.latency.count, told.breakdowns[1].rows[2].latency.count), (20, 0));
        // The order of the list does not matter.
        let names = [("small", 10, 0), ("/tiny", 10, 0), ("/status/404", 0, 10), ("/status/503", 0, 10)];
        assert_eq!(rows(&by("name")), names);
        assert_eq!(rows(&outcome(&[&load, version, &shuffled].concat(), 0)), names);
    }
    let text = run(&["load", "-n", "4", "--urls", &list, "--by", "name", &origin.url("/")]).output;
    assert!(text.contains("\n  name ") && text.contains("\n  /status/404 "), "{text}");
}

#[test]
fn a_body_comes_from_standard_input_and_secrets_are_in_no_output() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("user"), "name:hidden\n").expect("a file");
    let file = format!("@{}", folder.path().join("user").display());
    let secrets = ["-H", "Cookie: hidden=1", "-u", &file];
    let url = origin.url("/echo");
    let arguments =
        [&["load", "--json", "-n", "3", "-c", "1", "--body", "@-"], &secrets[..], &[&url]].concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_vanward"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built");
    child.stdin.take().expect("it is piped").write_all(b"12345").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains("hidden"), "{text}");
    let told: RunOutcome = serde_json::from_str(&text).expect("it is an outcome");
    assert_eq!((told.requests, told.settings.method.as_str()), (3, "POST"));
    assert_eq!((told.settings.request_body_bytes, told.settings.user.as_deref()), (5, Some("name")));
    // The page echoes the request, so both were sent: base64 of name:hidden.
    let request = process::get(origin.authority.parse().expect("an address"), "/stats");
    assert!(request.contains("\"/echo\": 3"), "{request}");

    for (arguments, message) in [
        (&["--resolve", "a:80:b"][..], "names need --connect-to"),
        (&["--connect-to", "a"], "HOST:PORT:OTHER:PORT"),
        (&["--unix-socket", "/s", "--resolve", "a:1:::1"], "cannot be used with"),
        (&["--key", "k"], "--cert"),
        (&["--cert", "/none.pem", "-k"], "/none.pem"),
        (&["--max-redirs", "3"], "--follow"),
        (&["-u", "hidden"], "NAME:PASSWORD"),
        (&["-b", "hidden"], "name=value"),
        (&["-u", "a:hidden", "-H", "Authorization: hidden"], "it follows from --user"),
    ] {
        let ended = run(&[&["load"], arguments, &["https://127.0.0.1:1/"]].concat()).with_code(2);
        assert!(ended.errors.contains(message), "{arguments:?}: {}", ended.errors);
        assert!(!ended.errors.contains("a:hidden") && !ended.errors.contains(": hidden"), "{}", ended.errors);
    }
}

#[test]
fn a_run_leaves_files_and_two_of_them_are_one_page() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    for (name, duration, version) in [("one", "2100ms", None), ("two", "900ms", Some("--h2"))] {
        let (out, url) = (path(name), origin.url("/tiny"));
        let load = ["load", "-d", duration, "-c", "2", "-t", "2", "--by", "status", "--out", &out];
        let more = ["--expect", "errors = 0", "--quiet", &url];
        let arguments: Vec<&str> = load.into_iter().chain(version).chain(more).collect();
        assert_eq!(run(&arguments).with_code(0).errors, "");
        let told: RunOutcome =
            serde_json::from_str(&read(&format!("{name}/result.json"))).expect("an outcome");
        // The complete seconds, and the rest. A busy machine may end a second late.
        let whole = told.seconds.len() - 1;
        assert!(if name == "one" { (1..=2).contains(&whole) } else { whole == 0 }, "{:?}", told.seconds);
        assert_eq!(told.seconds.iter().map(|second| second.requests).sum::<u64>(), told.requests);
        let [first, last] = [&told.seconds[0], &told.seconds[whole]];
        assert!(whole == 0 || last.seconds < 1.1 && first.seconds >= 1.0, "{:?}", told.seconds);
        assert!(first.p99_us > 0 && first.second == 0);
        let lines = read(&format!("{name}/seconds.ndjson"));
        let lines: Vec<load::MeasuredSecond> =
            lines.lines().map(|line| serde_json::from_str(line).expect("a second")).collect();
        assert_eq!(lines, told.seconds);
        let figures = read(&format!("{name}/result.csv"));
        assert!(figures.starts_with("by,part,requests,") && figures.contains("\nstatus,2xx,"), "{figures}");
        assert_eq!(read(&format!("{name}/seconds.csv")).lines().count(), 2 + whole);
        assert!(read(&format!("{name}/latency.hgrm")).contains("#[Mean"));
        assert!(read(&format!("{name}/junit.xml")).contains("tests=\"1\" failures=\"0\""));
        let page = read(&format!("{name}/report.html"));
        assert!(page.contains("p99 of each second") && page.contains("errors = 0"), "{page}");
    }
    let both = path("both.html");
    let ended = run(&["load", "report", &path("one"), &path("two/result.json"), "--out", &both]).with_code(0);
    assert!(ended.output.contains("one: ") && ended.output.contains("result: "), "{}", ended.output);
    assert!(read("both.html").contains("<ul class=\"legend\">"));

    let ended = run(&["load", "report", &path("none")]).with_code(1);
    assert!(ended.errors.contains("a directory of --out"), "{}", ended.errors);
    let ended = run(&["load", "--out", &path("one/result.json"), &origin.url("/tiny")]).with_code(1);
    assert!(ended.errors.contains("--out: cannot create"), "{}", ended.errors);
}

#[test]
fn a_sweep_has_a_run_for_each_number_of_connections_and_the_cost_of_the_server() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a folder");
    let (pid, url) = (origin.process.id().to_string(), origin.url("/tiny"));
    let out = folder.path().join("out").display().to_string();
    let sweep = ["load", "-c", "1,4,20", "-t", "2", "-n", "200", "--pid", &pid, "--quiet", "--out", &out];
    let expect = ["--expect", "memory > 1KiB", "--expect", "errors = 0"];
    let ended = run(&[&sweep[..], &expect, &[&url]].concat()).with_code(0);
    let lines: Vec<Vec<&str>> = ended
        .output
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|line: &Vec<_>| !line.is_empty())
        .collect();
    assert_eq!(lines[1].last(), Some(&"memory"), "{}", ended.output);
    let counts: Vec<&str> = lines[2..].iter().map(|line| line[0]).collect();
    assert_eq!(counts, ["1", "4", "20"], "{}", ended.output);
    let read = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).expect(name);
    assert_eq!(read("sweep.csv").lines().count(), 4);
    let page = read("report.html");
    assert!(page.contains("Memory of the server") && page.contains("20 connections"), "{page}");
    assert!(read("c20/report.html").contains("p99 of each second"));
    let told: RunOutcome = serde_json::from_str(&read("c4/result.json")).expect("an outcome");
    assert_eq!((told.requests, told.settings.connections, told.settings.threads), (200, 4, 2));
    assert!(told.server.expect("it was named").memory_bytes > 0);

    let ended = run(&["load", "-c", "2,3", "-n", "6", "--json", "-q", "--h2", &url]).with_code(0);
    let document: serde_json::Value = serde_json::from_str(&ended.output).expect("JSON");
    assert_eq!(document["sweep"][1]["settings"]["connections"], 3);

    for (arguments, code, message) in [
        (&["-c", "1,0", "-n", "5"][..], 2, "(-c) must be"),
        (&["-c", "1,x"], 2, "expected a number"),
        (&["-c", "1", "--pid", "4194304"], 2, "there is no process"),
        (&["-c", "1,2", "-n", "5", "-q", "--expect", "max < 1us"], 99, "that was with 1 connection"),
    ] {
        let ended = run(&[&["load"], arguments, &[&url]].concat()).with_code(code);
        assert!(ended.errors.contains(message), "{arguments:?}: {}", ended.errors);
    }
}

/// Starts a remote write receiver that answers with this status. Returns its URL, and its received requests.
fn receiver(status: &'static str) -> (String, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/api/v1/write", listener.local_addr().expect("an address"));
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            let is_whole = |request: &[u8]| {
                let end = request.windows(4).position(|window| window == b"\r\n\r\n")?;
                let head = String::from_utf8_lossy(&request[..end]).into_owned();
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?;
                (request.len() >= end + 4 + length.parse::<usize>().ok()?).then_some(())
            };
            while is_whole(&request).is_none() {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => request.extend_from_slice(&buffer[..bytes]),
                }
            }
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if !request.is_empty() && sender.send(request).is_err() {
                return;
            }
        }
    });
    (url, requests)
}

#[test]
fn seconds_are_pushed_by_remote_write_and_a_rejection_is_reported() {
    let origin = Origin::start();
    let url = origin.url("/tiny");
    let (to, requests) = receiver("204 No Content");
    let load = ["load", "-n", "50", "-q", "--remote-label", "testid=abc", "--remote-write", &to, &url];
    assert_eq!(run(&load).with_code(0).errors, "");
    let request = requests.recv().expect("a push");
    let text = String::from_utf8_lossy(&request);
    for expected in [
        "POST /api/v1/write HTTP/1.1\r\n",
        "\r\nContent-Encoding: snappy\r\n",
        "\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n",
        "vanward_load_requests_total",
        "vanward_load_latency_seconds",
        "testid\u{12}\u{3}abc",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (to, _requests) = receiver("404 Not Found");
    let ended = run(&["load", "-n", "5", "-q", "--remote-write", &to, &url]).with_code(0);
    assert!(ended.errors.contains("1 second was not received: status 404"), "{}", ended.errors);
    for (label, to, message) in [
        ("a", "http://a/", "NAME=VALUE"),
        ("__a=b", "http://a/", "NAME=VALUE"),
        ("a=b", "a", "--remote-write"),
    ] {
        let load = ["load", "--remote-label", label, "--remote-write", to, &url];
        let ended = run(&load).with_code(2);
        assert!(ended.errors.contains(message), "{label} {to}: {}", ended.errors);
    }
}

/// Writes a file of requests into a folder. Returns the folder and the path.
fn list(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a list");
    (folder, path.to_string_lossy().into_owned())
}

#[test]
fn listed_requests_are_sent_by_weight_and_their_responses_checked() {
    let origin = Origin::start();
    let (folder, file) = list(
        "r.toml",
        r#"
        [[request]]
        name = "order"
        method = "PUT"
        path = "/echo?x=1"
        headers = { X-Own = "one", X-All = "mine" }
        body_file = "order.json"
        weight = 3
        check = { status = 200, header = { content-type = "text/*" }, contains = ["PUT", "/echo?x=1", "one", "{\"id\": 7}"], size = "1.." }
        [[request]]
        name = "missing"
        path = "/status/404"
        check = { status = "4xx" }
        [[request]]
        name = "head"
        method = "HEAD"
        path = "/tiny"
        check = { size = 0 }
        [[request]]
        name = "plain"
        path = "/tiny"
        [[request]]
        name = "wrong"
        path = "/tiny"
        check = { contains = "not in there" }
        [[request]]
        path = "/status/503"
        "#,
    );
    std::fs::write(folder.path().join("order.json"), "{\"id\": 7}").expect("a body");
    for version in [&[][..], &["--h2"], &["-t", "2"], &["-L"], &["--h2", "-b", ""]] {
        let load = ["-n", "80", "-c", "2", "-H", "X-All: all", "--by", "name", "--requests-from", &file];
        let told = outcome(&[&load[..], version, &[&origin.url("/")]].concat(), 1);
        let expected = [
            ("order", 30, 0),
            ("missing", 10, 0),
            ("head", 10, 0),
            ("plain", 10, 0),
            ("wrong", 0, 10),
            ("/status/503", 0, 10),
        ];
        assert_eq!(rows(&told), expected, "{version:?} {:?}", told.error_examples);
        assert_eq!((told.errors.check, told.errors.status, told.errors.total()), (10, 10, 20));
        let example = &told.error_examples[&load::ErrorClass::Check];
        assert!(
            example.starts_with("wrong: the body of ") && example.ends_with("not contain \"not in there\"")
        );
        assert_eq!(told.checks_missed, load::ChecksMissed { contains: 10, ..load::ChecksMissed::default() });
        assert_eq!(told.statuses[&404], 10);
    }
    let load = ["-n", "800", "-c", "1", "--requests-from", &file, "--shuffle", "5", "--by", "name"];
    let expect = ["--expect", "errors < 30%", "--expect", "4xx > 5%"];
    let text = run(&[&["load"], &load[..], &expect, &[&origin.url("/")]].concat()).with_code(0).output;
    assert!(text.contains("such as: wrong: the body of ") && text.contains("check "), "{text}");
    assert!(text.contains("Checks     missed: contains "), "{text}");
}

#[test]
fn a_list_with_mistakes_is_refused_before_any_request() {
    let origin = Origin::start();
    let (_folder, file) = list(
        "r.toml",
        "[[request]]\npath = \"/tiny\"\n[[request]]\npath = \"/tiny\"\nmethod = \"PSOT\"\nwieght = 2\n",
    );
    let load = |more: &[&str]| run(&[&["load", "-n", "1", "-c", "1"], more, &[&origin.url("/")]].concat());
    let ended = load(&["--requests-from", &file]).with_code(2);
    assert!(
        ended.errors.contains("r.toml:6:1: unknown key \"wieght\" in [[request]]; did you mean \"weight\"?")
    );
    assert!(ended.errors.contains("    6 | wieght = 2\n      | ^^^^^^\n"), "{}", ended.errors);
    let (_folder, connection) =
        list("r.toml", "[[request]]\npath = \"/tiny\"\nheaders = { Connection = \"close\" }\n");
    for (arguments, message) in [
        (
            &["--h2", "--requests-from", &connection][..],
            "r.toml:1:1: header \"Connection: close\": HTTP/2 and HTTP/3 have no",
        ),
        (&["--requests-from", "/none.toml"], "cannot read /none.toml"),
        (&["--requests-from", "/none"], "set --requests-format"),
        (&["--requests-from", &file, "-X", "PUT"], "cannot be used with"),
        (&["--requests-from", &file, "--urls", "x"], "cannot be used with"),
    ] {
        let ended = load(arguments).with_code(2);
        assert!(ended.errors.contains(message), "{arguments:?}: {}", ended.errors);
    }
    let ended = run(&["load", "--requests", "r.toml", &origin.url("/")]).with_code(2);
    assert!(ended.errors.contains("named with --requests-from"), "{}", ended.errors);
    let stats = process::get(origin.authority.parse().expect("an address"), "/stats");
    assert!(!stats.contains("/tiny"), "{stats}");
}

#[test]
fn values_differ_each_time_and_are_sent_in_path_headers_and_body() {
    let origin = Origin::start();
    // Each echo must contain the sent values; a missing value would leave braces, which are forbidden.
    let text = format!(
        "@host = http://{}\n\n### order\n# @weight 2\n# @check contains item=7;\n# @check contains x-id: a\n\
         # @check contains /echo?n=\n# @check size 1..\nPOST {{{{host}}}}/echo?n={{{{counter}}}}&r={{{{random 10 99}}}}\n\
         x-id: a{{{{$guid}}}}\n\nitem={{{{random 7 7}}}};{{{{counter}}}}\n\n\
         ### constant\nGET {{{{host}}}}/tiny\n",
        origin.authority
    );
    let (_folder, file) = list("r.http", &text);
    for version in [&[][..], &["--h2"], &["-L", "-b", ""], &["--h2", "-L"]] {
        let load = ["-n", "30", "-c", "3", "--by", "name", "--seed", "9", "--requests-from", &file];
        let told = outcome(&[&load[..], version].concat(), 0);
        assert_eq!(
            rows(&told),
            [("order", 20, 0), ("constant", 10, 0)],
            "{version:?} {:?}",
            told.error_examples
        );
    }
    let (_folder, file) = list("r.toml", "[[request]]\npath = \"/tiny\"\nbody = \"{{uuid}}\"\n");
    let ended =
        run(&["load", "-n", "1", "-c", "1", "-H", "X: {{x}}", "--requests-from", &file, &origin.url("/")]);
    assert!(ended.with_code(2).errors.contains("a field of -H must be without {{, or: {{x}} is not a value"));
}

#[test]
fn recordings_and_url_files_with_methods_are_sent() {
    let origin = Origin::start();
    let entry = |url: &str, method: &str| {
        format!(
            "{{\"request\": {{\"method\": \"{method}\", \"url\": \"{url}\", \"headers\": [{{\"name\": \":path\", \"value\": \"/\"}}]}}}}"
        )
    };
    let entries = [
        entry(&origin.url("/tiny"), "GET"),
        entry("http://other.test/", "GET"),
        entry(&origin.url("/echo"), "PUT"),
    ];
    let (_folder, har) = list("r.har", &format!("{{\"log\": {{\"entries\": [{}]}}}}", entries.join(",\n")));
    let (folder, urls) = list("urls", "POST /echo#order @order\n/tiny\nPUT /echo#put {}\n");
    std::fs::write(folder.path().join("order"), "body").expect("a body");
    for version in [&[][..], &["--h2"]] {
        let load = ["-n", "12", "-c", "1", "--by", "name"];
        let told = outcome(&[&load, version, &["--requests-from", &har, "--hosts", "127.0.0.1"]].concat(), 0);
        assert_eq!(rows(&told), [("/tiny", 6, 0), ("/echo", 6, 0)]);
        let told = outcome(&[&load, version, &["--urls", &urls, &origin.url("/")]].concat(), 0);
        assert_eq!(rows(&told), [("order", 4, 0), ("/tiny", 4, 0), ("put", 4, 0)]);
    }
    for (arguments, message) in [
        (&["--requests-from", &har][..], "name the hosts that may receive load with --hosts"),
        (&["--requests-from", &har, "http://none.test/"], "the recording has 127.0.0.1 (2), other.test (1)"),
        (&["--urls", &urls, "-X", "PUT", "http://a/"], "-X and --body have no meaning"),
        (&["--urls", &urls], "a path needs a host"),
    ] {
        let ended = run(&[&["load"], arguments].concat()).with_code(2);
        assert!(ended.errors.contains(message), "{arguments:?}: {}", ended.errors);
    }
}

fn agent() -> String {
    format!("--agent={} load agent", env!("CARGO_BIN_EXE_vanward"))
}

#[test]
fn three_agents_send_one_load_and_have_one_result() {
    let origin = Origin::start();
    let (agent, url) = (agent(), origin.url("/tiny"));
    let all = outcome(&[&agent, &agent, &agent, "-c", "7", "-n", "100", "--by", "status", &url], 0);
    let settings = &all.settings;
    assert_eq!((settings.connections, settings.threads, settings.requests), (7, 3, Some(100)));
    assert_eq!((all.requests, all.errors.total(), rows(&all)), (100, 0, vec![("2xx", 100, 0)]));
    // The histogram includes all requests.
    let histogram = all.latency.histogram().expect("it decodes");
    assert_eq!((histogram.len(), histogram.max()), (100, all.latency.max_us));
    assert_eq!(all.latency.p99_us, histogram.value_at_quantile(0.99));
    // Agents share the rate, and the result has the total. On a busy machine it may be invalid, but all requests count.
    let ended = run(&["load", "--json", &agent, &agent, "-c", "4", "--stages", "200ms:200,300ms:200", &url]);
    let paced: RunOutcome = serde_json::from_str(&ended.output).expect("it is an outcome");
    let stages = [("1: 0.2s at 200/s", 40, 0), ("2: 0.3s at 200/s", 60, 0)];
    assert_eq!((paced.requests, rows(&paced)), (100, stages.to_vec()));
}

#[test]
fn seconds_of_agents_are_those_of_the_run() {
    let origin = Origin::start();
    let (agent, url) = (agent(), origin.url("/tiny"));
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let out = out.to_str().expect("UTF-8");
    let arguments = [
        "load",
        "--json",
        "--out",
        out,
        &agent,
        &agent,
        "-c",
        "4",
        "--stages",
        "2s:200",
        "--expect",
        "errors = 0",
    ];
    // A busy machine may make it invalid, but every request counts.
    let ended = run(&[&arguments[..], &[&url]].concat());
    let all: RunOutcome = serde_json::from_str(&ended.output).expect("it is an outcome");
    let requests =
        |seconds: &[load::MeasuredSecond]| seconds.iter().map(|second| second.requests).sum::<u64>();
    assert_eq!((all.requests, requests(&all.seconds)), (400, 400), "{}", ended.errors);
    let numbers: Vec<u64> = all.seconds.iter().map(|second| second.second).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let longest = all.seconds.iter().map(|second| second.max_us).max();
    assert!(longest.is_some_and(|longest| longest.abs_diff(all.latency.max_us) * 100 <= all.latency.max_us));
    let read = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).expect("a file");
    assert_eq!(read("seconds.ndjson").lines().count(), numbers.len());
    assert_eq!(read("result.json"), ended.output);
    assert!(read("report.html").contains("</html>") && read("junit.xml").contains("errors = 0"));
}

/// The part of a lost agent is missing, and the result says so.
#[test]
fn a_lost_agent_is_reported_and_the_others_have_a_result() {
    let origin = Origin::start();
    let (agent, url) = (agent(), origin.url("/tiny"));
    let ready = r#"{"ready":{"window_seconds":null,"around_seconds":1.0}}"#;
    for (then, expected) in [("exec sleep 600", "it has been silent for 5s"), ("exit 0", "it has gone")] {
        // It reads its arguments, is ready, begins, and then does nothing.
        let lost = format!("sh -c 'read line; echo {}; read line; {then}'", ready.replace('"', "\\\""));
        let other = format!("--agent={lost}");
        let arguments = [&agent, &*other, "--agent-timeout", "5s", "-c", "2", "-n", "20", &url];
        let all = outcome(&arguments, 98);
        assert_eq!((all.requests, all.settings.connections), (10, 1));
        let [load::RunProblem::AgentLost { command, why }] = &all.problems[..] else { panic!("{all:?}") };
        assert_eq!((command.as_str(), why.as_str()), (lost.as_str(), expected));
    }
}

#[test]
fn a_load_without_all_of_its_agents_is_none() {
    let origin = Origin::start();
    let (agent, url) = (agent(), origin.url("/tiny"));
    for (arguments, code, expected) in [
        (
            &[&*agent, "--agent=false", "-n", "10", &url][..],
            1,
            "`false`: the agent has exited, or did not start",
        ),
        (&[&*agent, "--agent=cat", "-n", "10", &url], 1, "its output is not that of an agent"),
        (&[&*agent, "--urls", "/gone/list", "-n", "10"], 1, "/gone/list"),
        (&[&*agent, &agent, "-c", "1", "-n", "10", &url], 2, "2 agents need a connection and a request each"),
        (&[&*agent, "-c", "1,2", &url], 2, "one number of connections is expected"),
        (&[&*agent, "--pid", "1", &url], 2, "--pid measures a server on one machine"),
        (&[&*agent, "--remote-write", &url, &url], 2, "--out has those of all"),
        (&["--agent-timeout", "1s", &url], 2, "--agent <COMMAND>"),
        (&["events", &agent, &url], 2, "unexpected argument '--agent'"),
        (
            &[&*agent, "--agent=sleep 600", "--agent-timeout", "5s", "-n", "10", &url],
            1,
            "`sleep 600`: it was not ready within 5s",
        ),
        (&["agent"], 2, "an agent reads orders from its standard input"),
    ] {
        let ended = run(&[&["load"], arguments].concat()).with_code(code);
        assert!(ended.errors.contains(expected), "{arguments:?}: {}", ended.errors);
    }
    let stats = process::get(origin.authority.parse().expect("an address"), "/stats");
    assert!(!stats.contains("/tiny"), "nobody has begun: {stats}");
}

/// Without a controller, no agent sends load.
#[test]
fn an_agent_ends_with_its_input() {
    let origin = Origin::start();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_vanward"));
    agent.args(["load", "agent"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agent = agent.spawn().expect("it starts");
    let (mut input, output) = (agent.stdin.take().expect("a pipe"), agent.stdout.take().expect("a pipe"));
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(output));
    let prepare = serde_json::json!({ "prepare": { "version": env!("CARGO_PKG_VERSION"), "number": 0, "of": 1,
        "arguments": ["-c", "1", "-d", "1h", origin.url("/tiny")] } });
    writeln!(input, "{prepare}").expect("it reads");
    let ready = serde_json::json!({ "ready": { "window_seconds": 3600.0, "around_seconds": 10.0 } });
    let answer = answers.next().expect("an answer").expect("text");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&answer).expect("JSON"), ready);
    writeln!(input, "\"begin\"").expect("it reads");
    drop(input);
    let answers = answers.map(|line| {
        let line = line.expect("text");
        serde_json::from_str::<serde_json::Value>(&line).expect("JSON")
    });
    let ended = answers.last().expect("a result");
    assert_eq!(ended["ended"]["interrupted"], true, "{ended}");
    assert!(agent.wait().expect("it ends").success());
}
