//! h2spec: conformance suite for HTTP/2 and HPACK, with all cases including the strict ones, with and without TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::process::Process;
use super::programs;
use super::subject::{self, Against, RunningProxy};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec";
/// Number of cases in the version of go.mod: fewer mean that some were not run.
const CASES: u32 = 146;
/// Accepted failures: with or without TLS, the case, and the reason.
const ACCEPTED: &[(&str, &str, &str)] = &[(
    IN_THE_CLEAR,
    "Sends invalid connection preface",
    "a listener for both versions treats an invalid preface as HTTP/1.1, and answers 400 before it closes",
)];
const IN_THE_CLEAR: &str = "in the clear";
const OVER_TLS: &str = "over TLS";
/// Timeout of h2spec for each expected event.
const CASE_LIMIT_SECONDS: &str = "2";
/// Timeout of the suite: enough even if every case times out.
const RUN_LIMIT: Duration = Duration::from_secs(400);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch, against: Against) -> Result<(), String> {
    let [h2spec] = programs::build(workspace, [PACKAGE])?;
    let vanward = programs::build_vanward(workspace)?;
    let folder = scratch.path();
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let subject = RunningProxy::before_http1(against, &vanward, server, folder)?;
    // Most of its time is waiting, so both at once take no longer than one.
    let (over_tls, in_the_clear) = thread::scope(|scope| {
        let over_tls = scope.spawn(|| run(&h2spec, OVER_TLS, &["--tls", "--insecure"], subject.tls, folder));
        let in_the_clear = run(&h2spec, IN_THE_CLEAR, &[], subject.plain, folder);
        let over_tls = over_tls.join().unwrap_or_else(|_| Err("the run over TLS panicked".to_owned()));
        (over_tls, in_the_clear)
    });
    match (over_tls, in_the_clear) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(problem), Ok(())) | (Ok(()), Err(problem)) => Err(problem),
        (Err(first), Err(second)) => Err(format!("{first}\n{second}")),
    }
}

fn run(h2spec: &Path, way: &str, more: &[&str], address: SocketAddr, folder: &Path) -> Result<(), String> {
    let mut command = Command::new(h2spec);
    command.args(["--strict", "--timeout", CASE_LIMIT_SECONDS, "--host", &address.ip().to_string()]);
    command.args(["--port", &address.port().to_string()]).args(more);
    let name = format!("h2spec {way}");
    let (status, said) = Process::start(&name, &mut command, folder)?.finish(RUN_LIMIT)?;
    let Some(counts) = SpecCounts::parse(&said) else {
        return Err(format!("{name} ended with {status} and no count of its cases:\n{said}"));
    };
    say(format_args!("{name}: {} of {CASES} cases passed", counts.passed));
    let failed = failed(&said);
    // The numbers must match, so that no failure is overlooked.
    let is_whole = counts.tests == CASES && counts.passed + failed.len() as u32 == CASES;
    let reason = |title: &&str| ACCEPTED.iter().find(|accepted| (accepted.0, accepted.1) == (way, *title));
    for (_, title, reason) in failed.iter().filter_map(reason) {
        say(format_args!("accepted: {title}: {reason}"));
    }
    if is_whole && failed.iter().all(|title| reason(title).is_some()) {
        return Ok(());
    }
    Err(format!("{name}: {status}\n{}", failures(&said)))
}

/// Counts in a line `146 tests, 145 passed, 0 skipped, 1 failed`.
#[derive(Debug, PartialEq, Eq)]
struct SpecCounts {
    tests: u32,
    passed: u32,
}

impl SpecCounts {
    fn parse(said: &str) -> Option<Self> {
        said.lines().rev().find_map(|line| {
            let (tests, rest) = line.split_once(" tests, ")?;
            let (passed, _) = rest.split_once(" passed, ")?;
            Some(Self { tests: tests.parse().ok()?, passed: passed.parse().ok()? })
        })
    }
}

/// Returns the details of the failed cases, which h2spec prints at its end.
fn failures(said: &str) -> &str {
    said.find("\nFailures:").map_or(said, |at| said[at..].trim())
}

fn failed(said: &str) -> Vec<&str> {
    let lines = said.find("\nFailures:").map_or("", |at| &said[at..]).lines();
    let cases = lines.filter_map(|line| line.trim_start().strip_prefix('×'));
    cases.filter_map(|case| Some(case.split_once(": ")?.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Generic tests\n  × 1: one\n\nFailures: \n\nHTTP/2\n  4. Frames\n      × 2: two: it\n        -> must\n\n\
                        Finished in 1.5 seconds\n146 tests, 145 passed, 0 skipped, 1 failed\n";

    #[test]
    fn cases_are_counted() {
        assert_eq!(SpecCounts::parse(SAID), Some(SpecCounts { tests: 146, passed: 145 }));
        assert_eq!(SpecCounts::parse("Error: connection refused\n"), None);
    }

    #[test]
    fn only_details_of_failed_cases_are_returned() {
        assert!(failures(SAID).starts_with("Failures: \n\nHTTP/2"));
        assert_eq!(failures("other words"), "other words");
        assert_eq!(failed(SAID), ["two: it"]);
        assert_eq!(failed("× 1: other words"), [""; 0]);
    }
}
