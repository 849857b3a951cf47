//! `vanward lab resilience` as a process: a server dies under load, and a fault is injected. A good proxy passes, and one that
//! asks no other server is found.

/// The program as a process.
mod process;

use report::resilience::Results;

use process::Process;

/// What holds of a good proxy however busy the machine is, and not of one that knows one server alone.
const PLAN: &str = r#"
title = "A server dies"
proxies = ["vanward", "bad"]
origins = 2
rate = 100
connections = 20
duration = "1500ms"
warm_up = "100ms"
timeout = "1s"

[[event]]
at = "500ms"
do = "kill origin 1"
phase = "dead"

[[event]]
at = "1s"
do = "start origin 1"

[[fault]]
from = "1s"
until = "1500ms"
inject = "50%:418"
on = "clients"
phase = "teapots"

[[expect]]
phase = "dead"
that = ["errors < 50%", "bad: errors < 50%"]

[[expect]]
phase = "teapots"
that = "errors > 10%"
"#;

#[test]
fn a_proxy_that_asks_no_other_server_is_found_and_a_good_one_passes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_vanward");
    let bad = format!(
        "[command]\nbad = [{program:?}, \"proxy\", \"--from\", \"{{listen}}\", \"--to\", \"http://{{origin}}\"]\n"
    );
    std::fs::write(folder.path().join("plan.toml"), format!("{PLAN}{bad}")).expect("a plan");
    let run = ["lab", "resilience", "plan.toml", "--out", "out"];
    let ended = Process::start_in(folder.path(), &run).ended();
    assert_eq!(ended.status.code(), Some(99), "{ended:?}");
    assert!(ended.errors.contains("vanward: 500ms kill origin 1"), "{ended:?}");
    let text = std::fs::read_to_string(folder.path().join("out/results.json")).expect("results");
    let results = Results::from_json(&text).expect("it reads what it wrote");
    let names: Vec<&str> = results.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["steady", "dead", "teapots"]);
    let told: Vec<_> = results
        .expectations
        .iter()
        .map(|each| (each.proxy.as_str(), each.phase.as_str(), each.is_met, each.is_required))
        .collect();
    let expected = [
        ("vanward", "dead", true, true),
        ("vanward", "teapots", true, true),
        ("bad", "dead", false, false),
        ("bad", "dead", false, true),
        ("bad", "teapots", true, false),
    ];
    assert_eq!(told, expected, "{}", ended.output);
    // Each request that was due is in the phase in which it was due.
    for run in &results.runs {
        let due = run.phases.iter().map(|phase| phase.requests + phase.failed()).sum::<u64>();
        assert_eq!(due, run.whole.requests + run.whole.failed(), "{run:?}");
        assert!(due >= 150, "{run:?}");
        assert_eq!(run.slots.len(), 15);
    }
    assert!(results.runs[1].phases[1].errors.contains_key("status"), "{:?}", results.runs[1]);
    let junit = std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("JUnit");
    assert!(junit.contains("tests=\"3\" failures=\"1\"") && junit.contains("dead.bad"), "{junit}");
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("kill origin 1") && !page.contains("<script"), "no chart");
}

#[test]
fn a_mistake_is_told_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = PLAN.replace("50%:418", "50%:41").replace("\"bad\"]", "\"vanward@no\"]").replace("bad: ", "");
    std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
    let ended = Process::start_in(folder.path(), &["lab", "resilience", "plan.toml"]).ended();
    assert_eq!(ended.status.code(), Some(78), "{ended:?}");
    assert!(
        ended.errors.contains("plan.toml:3:23: ") && ended.errors.contains("plan.toml:23:10: "),
        "{ended:?}"
    );
    assert!(!folder.path().join("resilience-plan").exists());
    let unknown = ["lab", "resilience", "dying-server", "--proxies", "vanward"];
    let ended = Process::start_in(folder.path(), &unknown).ended();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.errors.contains("dying-servers"), "{ended:?}");
}
