//! Parts of the lab that end or are late, and proxies that cannot take part.

use std::path::Path;

use report::Results;
use report::resilience;

use crate::process::{Ended, run_in};

const FAILED: i32 = 1;
const INVALID: i32 = 98;
const MISSED: i32 = 99;
/// A signal to the plan's proxy, which then runs its script.
const RELOAD: &str = "[[event]]\nat = \"500ms\"\ndo = \"reload proxy\"\n";

/// Runs a plan whose proxy is started by a shell, which runs `at_signal` on SIGHUP. `$3` is the folder of the run.
fn resilience_run(folder: &Path, plan: &str, at_signal: &str) -> (Ended, String) {
    let program = env!("CARGO_BIN_EXE_vanward");
    let script = format!(
        "trap '{at_signal}' HUP; {program} proxy --from \"$1\" --to \"http://$2\" & while :; do wait; done"
    );
    let text = format!(
        "title = \"t\"\nproxies = [\"mine\"]\nrate = 50\nduration = \"1500ms\"\nwarm_up = \"100ms\"\n\
         payload = \"/\"\n{plan}[[expect]]\nthat = \"errors <= 100%\"\n\
         [command]\nmine = [\"sh\", \"-c\", {script:?}, \"sh\", \"{{listen}}\", \"{{origin}}\", \"{{folder}}\"]\n"
    );
    std::fs::write(folder.join("plan.toml"), text).expect("a plan");
    let ended = run_in(folder, &["lab", "resilience", "plan.toml", "--json"]);
    let results = resilience::Results::from_json(&ended.output);
    let results = results.unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let problems = results.runs[0].problems.join("\n");
    (ended, problems)
}

#[test]
fn a_part_of_the_lab_that_ends_or_is_late_makes_a_resilience_run_invalid() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().display();
    let program = env!("CARGO_BIN_EXE_vanward");
    let origin = |script: &str| {
        let script = format!("echo $$ >{path}/origin; {script}exec {program} origin --listen $0");
        format!("[origin]\ncommand = [\"sh\", \"-c\", {script:?}, \"{{listen}}\"]\n")
    };
    // Kills each process on the machine whose command contains this text.
    let kill = |text: &str| {
        format!(
            "for one in /proc/[0-9]*; do tr \"\\0\" \" \" <$one/cmdline 2>/dev/null | grep -q \"run --config $3/{text}\" \
             && kill -9 ${{one#/proc/}}; done"
        )
    };
    let fault = "[[fault]]\nfrom = \"300ms\"\nuntil = \"1400ms\"\ninject = \"delay 1ms\"\n";
    let rows = [
        (
            "an origin ends",
            format!("{RELOAD}{}", origin("")),
            format!("kill -9 $(cat {path}/origin)"),
            "origin-1",
        ),
        (
            "an injector of clients ends",
            format!("{RELOAD}{fault}on = \"clients\"\n"),
            kill("faults-clients.toml"),
            "faults-clients",
        ),
        ("an injector of an origin ends", format!("{RELOAD}{fault}"), kill("faults-1.toml"), "faults-1"),
        (
            "a step is late",
            // The origin restarts slowly, so that later events wait.
            format!(
                "[[event]]\nat = \"200ms\"\ndo = \"kill origin 1\"\n[[event]]\nat = \"300ms\"\ndo = \"start origin 1\"\n\
                 [[event]]\nat = \"400ms\"\ndo = \"reload proxy\"\n{}",
                origin(&format!("mkdir {path}/once 2>/dev/null || sleep 1; "))
            ),
            ":".to_owned(),
            "A step of the plan ran ",
        ),
        (
            "the load generator is late",
            RELOAD.to_owned(),
            "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID".to_owned(),
            "The load generator had too little CPU time",
        ),
    ];
    for (what, plan, at_signal, expected) in rows {
        // A busy machine makes a run invalid for another reason before this one is found.
        let mut found = resilience_run(folder.path(), &plan, &at_signal);
        for _ in 0..4 {
            if !found.1.contains(expected) {
                found = resilience_run(folder.path(), &plan, &at_signal);
            }
        }
        let (ended, problems) = found;
        assert_eq!(ended.status.code(), Some(INVALID), "{what}: {problems}\n{}", ended.errors);
        assert!(problems.contains(expected), "{what}: {problems}");
    }
}

#[test]
fn a_plan_in_which_no_proxy_takes_part_fails() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |kind: &str, plan: &str| {
        std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
        run_in(folder.path(), &["lab", kind, "plan.toml", "--out", "out"])
    };
    // A service that runs already has its own servers, so the lab cannot kill them.
    let head = "title = \"t\"\nproxies = [\"mine\"]\n";
    let target = "[target]\nmine = \"http://127.0.0.1:1/\"\n";
    let event = "[[event]]\nat = \"300ms\"\ndo = \"kill origin 1\"\n";
    let expect = "[[expect]]\nthat = \"errors < 1\"\n";
    let ended =
        run("resilience", &format!("{head}rate = 50\nduration = \"1500ms\"\n{event}{expect}{target}"));
    let ended = ended.with_code(FAILED);
    assert!(ended.errors.contains("no proxy that takes part"), "{ended:?}");
}

#[test]
fn a_proxy_that_lacks_a_case_is_left_out_of_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_vanward");
    let run = |expect: &str, cases: &str| {
        let plan = format!(
            "title = \"t\"\nproxies = [\"mine\"]\nrepeats = 1\nduration = \"200ms\"\n{expect}\
             [command]\nmine = [{program:?}, \"proxy\", \"--from\", \"{{listen}}\", \"--to\", \"http://{{origin}}\"]\n{cases}"
        );
        std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
        run_in(folder.path(), &["lab", "run", "plan.toml", "--out", "out"])
    };
    let case = |name: &str, more: &str| {
        format!("[[case]]\nname = \"{name}\"\npayload = \"tiny\"\nconnections = 1\nrequests = 20\n{more}")
    };
    let both = format!("{}{}", case("plain", ""), case("secured", "scheme = \"https\"\n"));
    // A busy machine makes the figures of the other case invalid.
    let ended = run("", &both);
    assert!(matches!(ended.status.code(), Some(0 | INVALID)), "{ended:?}");
    let text = std::fs::read_to_string(folder.path().join("out/results.json")).expect("results");
    let results = Results::from_json(&text).expect("it reads what it wrote");
    let lacking: Vec<&str> = results.lacking.iter().map(|one| one.case.as_str()).collect();
    assert_eq!(lacking, ["secured"]);
    // The expectation is missed, because the case was not measured.
    run("expect = [\"mine: errors = 0\"]\n", &both).with_code(MISSED);
    // Without a case for any proxy there is no measurement and no conclusion.
    let ended = run("", &case("secured", "scheme = \"https\"\n")).with_code(INVALID);
    assert!(ended.errors.contains("nothing was measured"), "{ended:?}");
    let junit = std::fs::read_to_string(folder.path().join("out/junit.xml")).expect("JUnit");
    assert!(junit.contains("<failure"), "{junit}");
}

#[test]
fn a_comparison_without_results_says_how_to_get_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("empty")).expect("a folder");
    for missing in ["empty", "none", "none.json"] {
        let ended = run_in(folder.path(), &["lab", "compare", missing, missing]).with_code(FAILED);
        let remedy = format!("measure it first: vanward lab run PLAN --out {missing}");
        assert!(ended.errors.contains(&remedy), "{ended:?}");
    }
    // A file that has no results is a different mistake.
    std::fs::write(folder.path().join("text.json"), "x").expect("a file");
    let ended = run_in(folder.path(), &["lab", "compare", "text.json", "text.json"]).with_code(FAILED);
    assert!(!ended.errors.contains("measure it first"), "{ended:?}");
}
