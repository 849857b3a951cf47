//! Gates of `vanward lab`, and features of proxies beyond plain requests. The quality of figures is not tested: a
//! busy machine makes some invalid, and the lab reports that.

use std::path::Path;

use report::Results;
use report::results::{MeasuredFigures, Run};

use crate::process::{self, Ended, Process};

/// Exit codes: invalid figures, a missed expectation.
const INVALID_RUN: i32 = 98;
const MISSED: i32 = 99;

/// Runs a plan with a number of requests per measurement: in a short time, a busy machine may complete none.
fn run(folder: &Path, plan: &str, arguments: &[&str]) -> Ended {
    std::fs::write(folder.join("plan.toml"), plan).expect("a plan");
    Process::start_in(folder, &[&["lab", "run", "plan.toml", "--out", "out"], arguments].concat()).ended()
}

fn results(folder: &Path) -> Results {
    let text = std::fs::read_to_string(folder.join("out/results.json")).expect("results");
    Results::from_json(&text).expect("it reads what it wrote")
}

/// A plan with these proxies, and with `head` before its cases.
fn plan(proxies: &str, head: &str, cases: &str) -> String {
    let program = env!("CARGO_BIN_EXE_vanward");
    let mine = format!(
        "[command]\nmine = [{program:?}, \"proxy\", \"--from\", \"{{listen}}\", \"--to\", \"http://{{origin}}\"]\n"
    );
    let mine = if proxies.contains("mine") { mine } else { String::new() };
    format!(
        "title = \"Gates\"\nproxies = [{proxies}]\nrepeats = 1\nduration = \"200ms\"\n{head}{mine}{cases}"
    )
}

const TINY: &str = "[[case]]\nname = \"tiny\"\npayload = \"tiny\"\nconnections = 2\nrequests = 20\n";

#[test]
fn expectations_of_a_command_are_judged_by_its_figures() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mine = plan("\"direct\", \"mine\"", "expect = [\"p99 < 1us\"]\n", TINY);
    let ended = run(folder.path(), &mine, &[]).with_code(MISSED);
    assert!(ended.output.contains("Missed in tiny: mine expects p99 < 1us"), "{}", ended.output);

    // A met expectation is reported, too.
    let mine = plan("\"direct\", \"mine\"", "expect = [\"mine: p99 < 5m\", \"direct: max < 5m\"]\n", TINY);
    let ended = run(folder.path(), &mine, &[]);
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    assert!(ended.output.contains("2 of 2 expectations were met."), "{}", ended.output);
}

#[test]
fn expectations_of_an_unmeasured_proxy_are_missed() {
    let told = process::run(&["lab", "doctor"]).with_code(0);
    let is_absent =
        told.output.lines().any(|line| line.contains("monolake") && line.contains("not installed"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    if is_absent {
        let text = plan("\"vanward\", \"monolake\"", "expect = [\"monolake: errors = 0\"]\n", TINY);
        let ended = run(folder.path(), &text, &[]).with_code(MISSED);
        assert!(
            ended.output.contains("monolake expects monolake: errors = 0, and nothing was measured"),
            "{ended:?}"
        );
    }
    // The lab cannot know how a command is made to use TLS.
    let https = TINY.replace("payload", "scheme = \"https\"\npayload");
    let text = plan("\"vanward\", \"mine\"", "expect = [\"mine: errors = 0\"]\n", &https);
    run(folder.path(), &text, &[]).with_code(MISSED);
    let results_of_it = results(folder.path());
    assert!(results_of_it.expectations.iter().all(|each| !each.is_met && each.measured.is_none()));

    // A proxy excluded on the command line is not judged, and the lab says so.
    let text = plan("\"vanward\", \"mine\"", "expect = [\"mine: errors = 0\"]\n", TINY);
    run(folder.path(), &text, &["--proxies", "vanward"]);
    let changes = results(folder.path()).conditions.changes;
    assert!(
        changes.iter().any(|said| said.contains("\"mine: errors = 0\" is not judged for mine")),
        "{changes:?}"
    );
}

fn figures<'r>(results: &'r Results, case: &str, proxy: &str) -> &'r MeasuredFigures {
    let is_it = |run: &&Run| run.case == case && run.proxy == proxy;
    let run = results.runs.iter().find(is_it).expect(case);
    run.outcome.figures().unwrap_or_else(|| panic!("{case}: {:?}", run.outcome))
}

#[test]
fn origins_that_speak_tls_or_http_2_are_asked_so_and_layer_4_passes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = "[[case]]\nname = \"{upstream}\"\npayload = \"large\"\nconnections = 4\nrequests = 40\n\
                 upstream = [\"http\", \"https\", \"h2\"]\n\
                 [[case]]\nname = \"passed-on\"\npayload = \"large\"\nconnections = 4\nrequests = 40\nlayer = 4\n\
                 [[case]]\nname = \"passed-on-tls\"\npayload = \"large\"\nconnections = 4\nrequests = 40\nlayer = 4\n\
                 scheme = \"https\"\nupstream = \"https\"\n";
    let ended =
        run(folder.path(), &plan("\"direct\", \"vanward\", \"mine\"", "say_keep_alive = true\n", cases), &[]);
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    let results = results(folder.path());
    for case in ["http", "https", "h2", "passed-on", "passed-on-tls"] {
        let measured = figures(&results, case, "vanward");
        assert_eq!((measured.requests, measured.error_count()), (40, 0), "{case}: {measured:?}");
    }
    let made = |case: &str, proxy: &str| figures(&results, case, proxy).origin_connections.expect(case);
    // At layer 4 and without a proxy there is an origin connection for each client's. Over HTTP/2 one is enough,
    // and the lab's readiness check has opened it already.
    let four = [made("passed-on", "vanward"), made("passed-on-tls", "vanward"), made("http", "direct")];
    assert_eq!(four, [4, 4, 4]);
    assert!(made("h2", "vanward") <= 1 && made("https", "vanward") <= 4);
    assert!(ended.output.contains("connects"), "{}", ended.output);
    // Unsupported cases are excluded by name.
    let lacking: Vec<&str> =
        results.lacking.iter().filter(|each| each.proxy == "mine").map(|each| each.case.as_str()).collect();
    assert_eq!(lacking, ["https", "h2", "passed-on", "passed-on-tls"]);
    assert!(results.origins[0].command.ends_with("--say-keep-alive"), "{:?}", results.origins);
    assert!(results.runs.iter().all(|run| run.command.contains("-H 'Connection: keep-alive'")));
}
