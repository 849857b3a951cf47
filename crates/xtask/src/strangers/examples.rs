//! The lab as a library for tests: the examples for Go and pytest, run as readers would. Then the examples of live lists
//! of addresses.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::ip_lists;
use super::process::Process;
use super::programs::{self, GO};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const FOLDER: &str = "examples/resilience";
const PYTEST: &[&str] = &["pytest==9.2.0"];
/// Timeout of a run: it takes seconds, or longer on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Output of a test whose figures a busy machine made invalid. The example rightly fails; this check repeats it.
const INVALID: [&str; 2] = ["vanward: the figures of vanward are invalid", "returncode=98"];
const ATTEMPTS: usize = 10;
/// Tests that passed: each expectation of the plan, and in Go the chaos proxy.
const GO_PASSED: &[&str] =
    &["--- PASS: TestClientGivesUp", "--- PASS: TestResilience/it_is_back.vanward:_recovers_within_3s"];
const PYTEST_PASSED: &[&str] =
    &["test_resilience[it is back.vanward: recovers within 3s] PASSED", "3 passed"];

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let vanward = programs::build_vanward(workspace)?;
    ip_lists::check(workspace, &vanward, scratch.path())?;
    let python = programs::from_pip(workspace, "pytest", PYTEST, scratch.path())?;
    let examples = scratch.path().join("examples");
    copy(&workspace.root.join(FOLDER), &examples)?;
    let mut go = Command::new(GO.find()?);
    go.args(["test", "-v", "-count=1"]).env("GOTOOLCHAIN", "local");
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-v", "-p", "no:cacheprovider"]);
    for (name, command, expected) in [("go test", &mut go, GO_PASSED), ("pytest", &mut pytest, PYTEST_PASSED)]
    {
        command.env("VANWARD", &vanward).current_dir(&examples);
        let (status, said) = run(name, command, scratch.path())?;
        if let Some(missing) = expected.iter().find(|line| !said.contains(**line)) {
            return Err(format!("{name}: {status}, without {missing:?}; it said:\n{said}"));
        }
        if !status.success() {
            return Err(format!("{name}: {status}; it said:\n{said}"));
        }
        say(format_args!("{name}: all passed"));
    }
    Ok(())
}

/// Returns exit status and output of a run, if possible one with valid figures.
fn run(name: &str, command: &mut Command, folder: &Path) -> Result<(ExitStatus, String), String> {
    let name_of_log = name.replace(' ', "-");
    let mut attempt = 0;
    loop {
        attempt += 1;
        let (status, said) = Process::start(&name_of_log, command, folder)?.finish(LIMIT)?;
        if attempt == ATTEMPTS || !INVALID.iter().any(|word| said.contains(word)) {
            return Ok((status, said));
        }
        say(format_args!("{name}: the machine was too busy for its figures, it runs again"));
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot copy {}: {error}", from.display());
    fs::create_dir(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap_or_default())).map_err(failed)?;
        }
    }
    Ok(())
}
