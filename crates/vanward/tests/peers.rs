//! Every installed proxy that the lab supports: it starts with its driver's configuration, and works in each case
//! that the driver accepts. Speed is not tested.

use std::path::Path;

use report::Results;
use report::results::MeasurementOutcome;

use crate::process::{self, Process};

const REQUESTS: u64 = 40;

/// Each option of a case, separately.
const CASES: [&str; 7] = [
    "",
    "scheme = \"https\"",
    "scheme = \"https\"\nversion = \"2\"",
    "version = \"2\"",
    "cache = \"64MB\"",
    "delay = \"5ms\"",
    "rate = \"10MB/s\"",
];

fn plan(peer: &str, origins: usize) -> String {
    let mut plan = format!(
        "title = \"Peers\"\nproxies = [{peer:?}]\norigins = {origins}\nrepeats = 1\nduration = \"1s\"\n"
    );
    for (place, asked) in CASES.iter().enumerate() {
        plan += &format!(
            "[[case]]\nname = \"{place}\"\npayload = \"/varnish/gen/10?as=1\"\nconnections = 2\nrequests = {REQUESTS}\n{asked}\n"
        );
    }
    plan
}

fn run(folder: &Path, peer: &str, origins: usize) -> Results {
    std::fs::write(folder.join("plan.toml"), plan(peer, origins)).expect("a plan");
    let ended = Process::start_in(folder, &["lab", "run", "plan.toml", "--out", "out"]).ended();
    let text = std::fs::read_to_string(folder.join("out/results.json"));
    Results::from_json(&text.unwrap_or_else(|_| panic!("{peer}: {ended:?}"))).expect("results")
}

#[test]
fn every_installed_proxy_serves_the_cases_that_it_supports() {
    let told = process::run(&["lab", "doctor", "--json"]).with_code(0);
    let told: serde_json::Value = serde_json::from_str(&told.output).expect("JSON");
    let here = told["proxies"].as_array().expect("a list").iter().filter(|each| each["program"].is_string());
    for peer in here.filter_map(|each| each["name"].as_str()) {
        let mut measured = 0;
        for origins in [1, 2] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let results = run(folder.path(), peer, origins);
            for run in &results.runs {
                let asked = CASES[run.case.parse::<usize>().expect("its place")];
                let place = format!("{peer} with {origins} origins and {asked:?}");
                if let MeasurementOutcome::Failed { reason } = &run.outcome {
                    panic!("{place}: {reason}");
                }
                let figures = run.outcome.figures().expect("it did not fail");
                assert_eq!((figures.requests, figures.error_count()), (REQUESTS, 0), "{place}");
            }
            measured += results.runs.len();
            assert_eq!(process::all_in(folder.path()), Vec::<String>::new(), "{peer}");
        }
        assert!(measured > 0, "{peer} refuses everything");
    }
}
