//! The shortest `vanward demo`: it leaves a self-contained report, and no process.
//!
//! The quality of its figures is not tested: a busy machine makes some invalid, and the demo reports that.

use report::Results;
use rustix::process::Signal;

use crate::process::{self, Process};

/// Exit code: a figure is missing or invalid.
const INVALID_RUN: i32 = 98;

#[test]
fn the_demo_leaves_a_report_that_needs_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let demo = Process::start_in(folder.path(), &["demo", "--seconds", "5", "--json", "--out", "made/here"]);
    let ended = demo.ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join("made/here").join(name)).expect(name);

    let results = Results::from_json(&read("results.json")).expect("it reads what it wrote");
    assert_eq!(ended.output, read("results.json") + "\n");
    let names: Vec<&str> = results.proxies.iter().map(|proxy| proxy.name.as_str()).collect();
    assert!(names.starts_with(&["direct", "vanward"]), "{names:?}");
    // Two sizes over HTTP, in a closed loop and at a constant rate, and in a closed loop over HTTPS.
    for load in ["closed", "constant", "https-closed"] {
        for size in ["tiny", "large"] {
            let name = format!("{size}-{load}");
            let is_there = results.cases.iter().any(|case| case.name == name);
            // If a busy machine makes a closed loop invalid, no rate follows from it.
            let is_told = results.notes.iter().any(|note| note.contains(&format!("{name} was not measured")));
            let is_excused = load == "constant" && is_told && ended.status.code() == Some(INVALID_RUN);
            assert!(is_there || is_excused, "{name}: {:?}", results.notes);
        }
    }
    assert_eq!(results.origins.len(), 2);
    for (name, case) in names.iter().flat_map(|name| results.cases.iter().map(move |case| (name, case))) {
        // The origins have no TLS, so `direct` has none.
        if *name == "direct" && case.scheme == report::results::ClientScheme::Https {
            continue;
        }
        let is_there = results.runs.iter().any(|run| run.proxy == *name && run.case == case.name);
        assert!(is_there, "{name} was not measured for {}", case.name);
    }

    let page = read("report.html");
    for outside in ["src=", "@import", "url(", "<link", "<iframe", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(outside), "{outside} in the report");
    }
    assert_eq!(page.matches("href=").count(), page.matches("href=\"#").count(), "a link out of the page");
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
    assert_eq!(process::all_in(folder.path()), Vec::<String>::new());
}

#[test]
fn a_demo_that_is_interrupted_leaves_no_process() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let demo = Process::start_in(folder.path(), &["demo", "--seconds", "600", "--out", "out"]);
        process::wait_for_a_load_in(folder.path());
        demo.signal(signal);
        let ended = demo.ended().with_code(1);
        assert!(ended.errors.contains("interrupted"), "{}", ended.errors);
        assert_eq!(process::all_in(folder.path()), Vec::<String>::new());
        let text = std::fs::read_to_string(folder.path().join("out/results.json")).expect("it is written");
        Results::from_json(&text).expect("it reads what it wrote");
    }
}
