//! No broken input passes: each row is an input with its required exit status. The exit status, junit.xml and the
//! printed output agree, even if the output is not read. `docs/exit-codes.md` has the table.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Process, run_in};

const FAILED: i32 = 1;
const MISTAKE: i32 = 78;
const UNDECIDED: i32 = 98;
const WORSE: i32 = 99;

/// A round of a case: its figures differ slightly between rounds.
fn measured(case: &str, round: u64) -> Value {
    let requests = 100_000 + 100 * round;
    json!({"proxy": "mine", "case": case, "round": round, "began_seconds": 0.0, "command": "", "outcome": {
        "kind": "measured", "seconds": 5.0, "requests": requests, "received_bytes": requests * 400, "errors": {},
        "latency": [[1000 + round, 60], [4000 + round, 40]], "lateness_p99_us": null,
        "usage": {"seconds": 5.0, "user_seconds": 0.0, "system_seconds": 4.8 + round as f64 / 1000.0,
            "memory_bytes": 9_000_000 + round, "processes": 1, "threads": 2}}})
}

/// Results of one program in two cases, with four rounds each.
fn results(change: &dyn Fn(&mut Value)) -> Value {
    let mut runs: Vec<Value> =
        ["a", "b"].iter().flat_map(|case| (1..=4).map(move |round| measured(case, round))).collect();
    runs.iter_mut().filter(|run| run["case"] == "b").for_each(change);
    let case = |name: &str| json!({"name": name, "payload": name, "payload_bytes": 128, "connections": 32, "arrivals": {"kind": "closed"}});
    json!({
        "schema": 1, "title": "t", "measured_by": "", "command": "", "started_unix_seconds": 0, "took_seconds": 1.0,
        "machine": {"processor": "p", "architecture": "x86_64", "cores": 2, "memory_bytes": 1, "kernel": "k",
            "governor": null, "settings": {}},
        "conditions": {"load_before": [0.0, 0.0, 0.0], "rounds": 4, "measured_seconds": 5.0, "warm_up_seconds": 1.0,
            "seed": 1, "cores": {"proxy": [0], "origins": [1], "load": [1]}, "alike": []},
        "proxies": [{"name": "mine", "role": "peer", "version": "", "process": {"command": "", "files": []}}],
        "origins": [], "cases": [case("a"), case("b")], "runs": runs, "notes": [],
    })
}

fn crash(run: &mut Value) {
    run["outcome"] = json!({"kind": "failed", "reason": "mine ended unexpectedly"});
}

#[test]
fn a_comparison_passes_only_what_it_has_checked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, results: &Value| {
        std::fs::write(folder.path().join(name), results.to_string()).expect("a file");
    };
    write("before.json", &results(&|_| {}));
    let late = |run: &mut Value| {
        let (reason, measured) = ("the load generator was late", run["outcome"].clone());
        run["outcome"] =
            json!({"kind": "invalid", "reason": reason, "measured": measured, "is_generators": true});
    };
    let fail_some = |run: &mut Value| run["outcome"]["errors"] = json!({"status": 500});
    type Row<'r> = (&'r str, &'r dyn Fn(&mut Value), i32, &'r str);
    let rows: [Row<'_>; 9] = [
        ("nothing", &|_| {}, 0, ""),
        (
            "twice the memory",
            &|run| run["outcome"]["usage"]["memory_bytes"] = 18_000_000.into(),
            WORSE,
            "memory",
        ),
        ("crashed in every round", &crash, WORSE, "lost rounds, b"),
        (
            "crashed in half its rounds, slower in the rest",
            &|run| match run["round"].as_u64() {
                Some(1 | 2) => crash(run),
                _ => run["outcome"]["usage"]["system_seconds"] = 14.4.into(),
            },
            WORSE,
            "lost rounds, b",
        ),
        ("0.5% errors", &fail_some, WORSE, "errors, b"),
        (
            "a tenth of the bytes",
            &|run| run["outcome"]["received_bytes"] = 4_000_000.into(),
            WORSE,
            "bytes of a response, b",
        ),
        ("the generator was late", &late, UNDECIDED, "undecided"),
        (
            "nothing is known of its processes",
            &|run| run["outcome"]["usage"] = Value::Null,
            UNDECIDED,
            "memory, b (not measured)",
        ),
        (
            "only two rounds",
            &|run| {
                if run["round"].as_u64() > Some(2) {
                    late(run);
                }
            },
            UNDECIDED,
            "(fewer than 3 rounds)",
        ),
    ];
    let compare = ["lab", "compare", "before.json", "after.json"];
    for (what, change, code, expected) in rows {
        write("after.json", &results(change));
        let ended = run_in(folder.path(), &[&compare[..], &["--fail-on", "5"]].concat());
        assert_eq!(ended.status.code(), Some(code), "{what}: {ended:?}");
        assert!(ended.errors.contains(expected), "{what}: {ended:?}");
        let verdict = if code == WORSE { "worse" } else { "undecided" };
        assert!(code == 0 || ended.output.contains(verdict), "{what}: {ended:?}");
        // A closed pipe changes nothing.
        let closed = without_reader(folder.path(), &[&compare[..], &["--fail-on", "5"]].concat());
        assert_eq!(closed, Some(code), "{what}");
    }

    let mut fewer = results(&|_| {});
    fewer["cases"].as_array_mut().expect("cases").pop();
    write("after.json", &fewer);
    let missing = run_in(folder.path(), &[&compare[..], &["--fail-on", "5"]].concat()).with_code(UNDECIDED);
    assert!(missing.errors.contains("lost rounds, b (not measured)"), "{missing:?}");
    run_in(folder.path(), &compare).with_code(0);

    let mut others = results(&|_| {});
    others["proxies"][0]["name"] = "other".into();
    for run in others["runs"].as_array_mut().expect("runs") {
        run["proxy"] = "other".into();
    }
    write("after.json", &others);
    for more in [&[][..], &["--fail-on", "5"]] {
        let apart = run_in(folder.path(), &[&compare[..], more].concat()).with_code(UNDECIDED);
        assert!(apart.output.contains("nothing is compared"), "{apart:?}");
        assert!(!apart.output.contains("No difference") && apart.errors.contains("in common"), "{apart:?}");
    }
}

fn without_reader(folder: &Path, arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    command.status().expect("the program was built").code()
}

/// Starts a server that answers each request by its number.
fn serve(answer: fn(usize) -> &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.expect("a connection"), count.clone());
            std::thread::spawn(move || {
                let mut byte = [0];
                let mut head = Vec::new();
                while stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if stream.write_all(answer(number).as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
const NO: &str = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n";

#[test]
fn exit_code_and_junit_of_a_load_agree_with_and_without_a_reader() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let half = serve(|number| if number % 2 == 0 { OK } else { NO });
    let good = serve(|_| OK);
    let bad = serve(|_| NO);
    // Slower than the others' responses, so that two connections cannot sustain the rate.
    let slow = serve(|_| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            std::thread::park_timeout(Duration::from_millis(100));
        }
        OK
    });
    let rate = &["-c", "2", "-R", "200", "-d", "500ms"][..];
    type Row<'r> = (&'r str, SocketAddr, &'r [&'r str], i32, &'r str);
    let rows: [Row<'_>; 7] = [
        ("good", good, &["-n", "20", "--expect", "errors = 0"], 0, ""),
        ("good without expectations", good, &["-n", "20"], 0, ""),
        (
            "half failed",
            half,
            &["-n", "20", "--expect", "p99 < 20s"],
            FAILED,
            "expected a complete and valid run, but 10 requests failed",
        ),
        ("all failed", bad, &["-n", "20"], FAILED, "but no request succeeded"),
        (
            "missed",
            half,
            &["-n", "20", "--expect", "errors = 0"],
            WORSE,
            "message=\"expected errors = 0, measured 10\"",
        ),
        (
            "not measured",
            bad,
            &["-n", "20", "--expect", "p99 < 1s"],
            WORSE,
            "message=\"expected p99 &lt; 1s, nothing was measured\"",
        ),
        ("the rate was not kept", slow, rate, UNDECIDED, "but the run is invalid"),
    ];
    for (what, server, flags, code, failure) in rows {
        let url = format!("http://{server}/");
        let load = [&["load", "-q", "--out", "out"], flags, &[url.as_str()]].concat();
        for has_reader in [true, false] {
            // Files of an earlier run must not be taken for this one's.
            let _ = std::fs::write(folder.path().join("out/junit.xml"), "<testsuite/>");
            let ended = match has_reader {
                true => run_in(folder.path(), &load).status.code(),
                false => without_reader(folder.path(), &load),
            };
            assert_eq!(ended, Some(code), "{what}, with a reader: {has_reader}");
            let junit = std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("JUnit");
            assert_eq!(junit.contains("<failure"), code != 0, "{what}: {junit}");
            assert!(junit.contains(failure) && junit.contains("<testcase"), "{what}: {junit}");
            assert!(junit.matches(" time=\"").count() > 1, "{what}: {junit}");
        }
    }
}

#[test]
fn a_load_that_was_interrupted_has_not_met_its_expectations() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("http://{}/", serve(|_| OK));
    let load = ["load", "-q", "-d", "1h", "--out", "out", "--expect", "errors < 1", &url];
    let load = Process::start_in(folder.path(), &load);
    load.signal(Signal::INT);
    let ended = load.ended();
    let junit = std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("JUnit");
    // Without any response there is no measurement, so the expectation was missed.
    assert!(matches!(ended.status.code(), Some(FAILED | WORSE)), "{ended:?}");
    let is_measured = ended.status.code() == Some(FAILED);
    let why = if is_measured { "interrupted" } else { "nothing was measured" };
    assert!(junit.contains(why), "{ended:?}: {junit}");
}

/// A plan with one measurement that ends after a number of requests.
fn plan(expect: &str) -> String {
    format!(
        "title = \"Shortest\"\nproxies = [\"direct\"]\nrepeats = 1\nduration = \"200ms\"\n{expect}\
         [[case]]\nname = \"tiny\"\npayload = \"tiny\"\nconnections = 1\nrequests = 20\n"
    )
}

#[test]
fn a_run_of_the_lab_moves_earlier_results_aside_and_its_verdict_needs_no_reader() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let plan_file = folder.path().join("plan.toml");
    let lab = ["lab", "run", "plan.toml", "--out", "out"];
    std::fs::write(&plan_file, plan("")).expect("a plan");
    let first = run_in(folder.path(), &lab);
    assert!(!first.errors.contains("had results already"), "{first:?}");
    let good = read("out/results.json");
    assert!(!read("out/junit.xml").is_empty());

    std::fs::write(&plan_file, plan("expect = [\"direct: requests/s < 0\"]\n")).expect("a plan");
    assert_eq!(without_reader(folder.path(), &lab), Some(WORSE));
    assert_eq!(read("out/earlier-1/results.json"), good);
    let second = read("out/results.json");
    assert!(
        second != good && read("out/junit.xml").contains("expected direct: requests/s &lt; 0, measured ")
    );

    let third = run_in(folder.path(), &lab).with_code(WORSE);
    assert!(third.errors.contains("out had results already: they are in out/earlier-2 now"), "{third:?}");
    assert_eq!([read("out/earlier-1/results.json"), read("out/earlier-2/results.json")], [good, second]);
    // The continued result is the same one.
    let resumed = run_in(folder.path(), &[&lab[..], &["--resume", "--repeats", "2"]].concat());
    assert!(!resumed.errors.contains("had results already"), "{resumed:?}");
    assert!(!folder.path().join("out/earlier-3").exists());
}

#[test]
fn a_place_where_nothing_can_be_written_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("taken"), "mine").expect("a file");
    std::fs::write(folder.path().join("plan.toml"), plan("")).expect("a plan");
    let commands: [&[&str]; 4] = [
        &["demo", "--seconds", "3600"],
        &["lab", "run", "plan.toml"],
        &["lab", "resilience", "dying-servers"],
        &["load", "-d", "1h", "http://127.0.0.1:1/"],
    ];
    for command in commands {
        for place in ["taken", "taken/out"] {
            let ended = Process::start_in(folder.path(), &[command, &["--out", place]].concat()).ended();
            let ended = ended.with_code(FAILED);
            assert!(ended.errors.contains(place) && ended.output.is_empty(), "{command:?}: {ended:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("taken")).expect("it is there"), "mine");
}

#[test]
fn files_without_content_are_no_valid_configuration_of_any_proxy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = [("empty", ""), ("comment", "# nothing\n"), ("noise", "\u{1}\u{2}\u{3}\n")];
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    let nothing = ["empty", "comment", "noise", "folder", "missing"];
    for file in nothing {
        for flags in [&[][..], &["--json"], &["--print"]] {
            let ended = run_in(folder.path(), &[&["check", file], flags].concat()).with_code(MISTAKE);
            assert!(!ended.output.contains("valid:"), "{file}: {ended:?}");
            assert_eq!(without_reader(folder.path(), &[&["check", file], flags].concat()), Some(MISTAKE));
        }
        for peer in ["nginx", "haproxy", "caddy", "varnish", "squid", "pound", "zproxy", "traefik"] {
            for flags in [&[][..], &["--check"], &["--json"], &["-o", "made.toml"]] {
                let ended = run_in(folder.path(), &[&["adapt", peer, file], flags].concat());
                assert!(
                    matches!(ended.status.code(), Some(FAILED | MISTAKE)),
                    "{peer} {file} {flags:?}: {ended:?}"
                );
                assert!(!ended.errors.is_empty(), "{peer} {file} {flags:?}");
            }
        }
    }
    assert!(!folder.path().join("made.toml").exists(), "nothing is written of nothing");
}

#[cfg(feature = "fleet")]
#[test]
fn a_fleet_that_cannot_be_asked_is_not_in_order() {
    let fleet = crate::process::run(&["fleet", "--config", "etcd+http://127.0.0.1:1/edge"]).with_code(FAILED);
    assert!(fleet.errors.contains("etcd cannot be reached"), "{fleet:?}");
}
