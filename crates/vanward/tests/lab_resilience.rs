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
    // 98: the machine was too busy to hold it against the proxy.
    assert!(matches!(ended.status.code(), Some(99 | 98)), "{ended:?}");
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
    std::fs::remove_file(folder.path().join("out/report.html")).expect("it was there");
    let again = Process::start_in(folder.path(), &["lab", "report", "out", "--page"]).ended();
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    let made_anew = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(made_anew == page, "the results are the same, and so is the page");
    let plots = Process::start_in(folder.path(), &["lab", "report", "out", "--plots"]).ended();
    assert!(plots.status.code() == Some(1) && plots.errors.contains("resilience run"), "{plots:?}");
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

/// A proxy with a configuration of its own: takes turns, and asks nobody else.
const NO_RETRY: &str = "eject = \"off\"\n[upstream.o.retry]\nattempts = 1\n";
/// One that gives up soon and asks again and again, however many requests wait.
const AMPLIFIES: &str = "eject = \"off\"\n[upstream.o.retry]\non = [\"timeout\"]\nattempts = 8\nbudget = \"100%\"\n\
                         [timeouts]\nupstream_first_byte = \"300ms\"\n[shed]\nconcurrency = \"off\"\n";

/// Runs a built-in plan in a small part of its time, for a proxy that is bad in this way. Returns what it missed.
fn missed_by(plan: &str, rest: &str, restarts: bool) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let shown = Process::start(&["lab", "show", plan]).ended();
    let text: String = shown.output.lines().filter(|line| !line.starts_with("times = ")).fold(
        String::new(),
        |text, line| {
            let line = if line.starts_with("proxies = ") { "proxies = [\"bad\"]" } else { line };
            text + line + "\n"
        },
    );
    std::fs::write(folder.path().join("rest"), rest).expect("a file");
    let program = env!("CARGO_BIN_EXE_vanward");
    let run = format!("{program} run --config \"$3/bad.toml\"");
    // One that restarts has nobody who listens for a moment, and drops what is under way.
    let run = if restarts {
        format!("trap 'kill -9 $child' HUP; while :; do {run} & child=$!; wait; wait; done")
    } else {
        format!("exec {run}")
    };
    let script = format!(
        "servers=$(echo \"$2\" | sed 's|,|\", \"http://|g')\n\
         printf '[[listen]]\\naddress = \"%s\"\\n[[route]]\\nupstream = \"o\"\\n[upstream.o]\\nservers = [\"http://%s\"]\\n' \
         \"$1\" \"$servers\" >\"$3/bad.toml\"\ncat {}/rest >>\"$3/bad.toml\"\n{run}\n",
        folder.path().display()
    );
    std::fs::write(folder.path().join("bad.sh"), script).expect("a script");
    let command = format!(
        "times = 0.05\n[command]\nbad = [\"sh\", \"{}/bad.sh\", \"{{listen}}\", \"{{origins}}\", \"{{folder}}\"]\n",
        folder.path().display()
    );
    std::fs::write(folder.path().join("plan.toml"), text + &command).expect("a plan");
    let ended =
        Process::start_in(folder.path(), &["lab", "resilience", "plan.toml", "--quick", "--out", "out"])
            .ended();
    assert!(matches!(ended.status.code(), Some(99 | 98)), "{plan}: {ended:?}");
    let text = std::fs::read_to_string(folder.path().join("out/results.json")).expect("results");
    let results = Results::from_json(&text).expect("it reads what it wrote");
    results.missed().map(|each| (each.phase.clone(), each.text.clone())).collect()
}

#[test]
fn each_built_in_plan_finds_the_proxy_that_it_is_meant_to_find() {
    let cases = [
        ("dying-servers", NO_RETRY, false, ("origin 2 is dead", "errors < 2%")),
        ("slow-server", NO_RETRY, false, ("origin 2 is silent at times", "errors < 2%")),
        ("reload-storm", NO_RETRY, true, ("reload storm", "errors < 0.1%")),
        ("overload", AMPLIFIES, false, ("after the overload", "recovers within 4s")),
    ];
    let runs =
        cases.map(|(plan, rest, restarts, _)| std::thread::spawn(move || missed_by(plan, rest, restarts)));
    for (run, (plan, .., (phase, text))) in runs.into_iter().zip(cases) {
        let missed = run.join().expect("it was run");
        assert!(missed.contains(&(phase.to_owned(), text.to_owned())), "{plan}: {missed:?}");
    }
}

#[test]
fn each_peer_that_is_here_reloads_and_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = "title = \"Reload\"\nproxies = [\"vanward\", \"nginx\", \"haproxy\"]\norigins = 2\nrate = 50\nconnections = 5\n\
                duration = \"800ms\"\nwarm_up = \"100ms\"\n[[event]]\nat = \"300ms\"\ndo = \"reload proxy\"\n";
    std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
    let ended = Process::start_in(folder.path(), &["lab", "resilience", "plan.toml", "--json"]).ended();
    assert!(matches!(ended.status.code(), Some(0 | 98)), "{ended:?}");
    let results = Results::from_json(&ended.output).expect("results on standard output");
    for run in &results.runs {
        assert!(run.remarks.is_empty(), "{}: {:?}", run.proxy, run.remarks);
        assert!(run.phases[1].requests > 0, "{run:?}");
    }
    let absent: Vec<&str> = results.absent.iter().map(|one| one.proxy.as_str()).collect();
    assert_eq!(results.runs.len() + absent.len(), 3);
    assert!(absent.is_empty() || std::env::var_os("CI").is_none(), "CI needs {absent:?}");
}
