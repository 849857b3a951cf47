//! http-cache-tests: a test suite for HTTP caches, with its own client and server around the proxy.
//!
//! All required cases must pass, except those listed here with a reason. The other cases are counted.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::programs::{self, MODULE, NODE};
use super::subject::{self, Against};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const PACKAGE: &str = "http-cache-tests@0.4.5";
/// Number of cases of this version: fewer mean that some were not run.
const CASES: usize = 350;
/// Timeout of the suite: a hundred cases at a time wait two or three seconds.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// Accepted failures: the beginning of the case's name, and the reason.
const ACCEPTED: &[(&str, &str)] = &[
    ("304-etag-update-response-Content-MD5", "RFC 9111 §3.2 has a 304 update it"),
    ("304-etag-update-response-ETag", "a 304 with another ETag is about something else (RFC 9111 §4.3.4)"),
    ("304-etag-update-response-Set-Cookie", COOKIES),
    ("age-parse-", "RFC 9111 §5.1: the first of several counts, and what is no number does not"),
    ("headers-store-Set-Cookie", COOKIES),
    ("headers-store-Transfer-Encoding", "a coding that is not known is refused (RFC 9112 §6.1)"),
    ("stale-close-", "a case builds on one in which stale responses stand in for a server that is gone"),
    ("surrogate-fresh-cc-nostore", "its directive is for a token that only Surrogate-Capability announces"),
];
const COOKIES: &str = "what sets a cookie is stored only where it says that it is for all";

pub(super) fn check(workspace: &Workspace, scratch: &Scratch, against: Against) -> Result<(), String> {
    let folder = scratch.path();
    let suite = programs::from_npm(workspace, &[PACKAGE], folder)?;
    let vanward = programs::build_vanward(workspace)?;
    let (_server, server) = server(&suite, folder)?;
    let (_cache, cache) = subject::cache(against, &vanward, server, folder)?;
    let script = workspace.root.join(MODULE).join("caches/suite.mjs");
    let run = |name: &str| {
        let mut command = Command::new(NODE.find()?);
        command.arg(&script).arg(&suite).arg(format!("http://{cache}"));
        let (status, said) = Process::start(name, &mut command, folder)?.finish(RUN_LIMIT)?;
        let cases: Vec<CacheCase> = said.lines().filter_map(CacheCase::parse).collect();
        if status.success() && cases.len() == CASES {
            return Ok(cases);
        }
        Err(format!("{name} ended with {status} after {} of {CASES} cases:\n{said}", cases.len()))
    };
    let first = run("the suite")?;
    say(format_args!("{}", PassedCounts::from_cases(&first)));
    let mut faults = faults(&first);
    for name in ["the suite again", "the suite a third time"] {
        if faults.is_empty() {
            break;
        }
        // The cases depend on time: a busy machine may delay one, but hardly each time.
        say(format_args!("{} failed, which are run once more", faults.len()));
        let again = run(name)?;
        faults.retain(|fault| self::faults(&again).iter().any(|other| other.id == fault.id));
    }
    if faults.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = faults.iter().map(|case| format!("{}: {}", case.id, case.why)).collect();
    Err(format!("of what is required of a cache failed:\n{}", lines.join("\n")))
}

fn server(suite: &Path, folder: &Path) -> Result<(Process, SocketAddr), String> {
    let mut command = Command::new(NODE.find()?);
    command.arg("server/server.mjs").current_dir(suite.join("node_modules/http-cache-tests"));
    let settings = [("protocol", "http"), ("port", "0")];
    command.envs(settings.map(|(name, value)| (format!("npm_config_{name}"), value)));
    command.env("npm_config_pidfile", folder.join("suite.pid"));
    let mut process = Process::start("suite-server", &mut command, folder)?;
    let address = process.addresses()?.into_iter().next().ok_or("the suite's server listens nowhere")?;
    Ok((process, SocketAddr::from(([127, 0, 0, 1], address.port()))))
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CacheCase {
    has_passed: bool,
    is_required: bool,
    id: String,
    why: String,
}

impl CacheCase {
    /// Parses a line of four words separated by tabs: result, kind, name, reason.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, '\t');
        let (outcome, kind) = (words.next()?, words.next()?);
        let (id, why) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Self { has_passed: outcome == "passed", is_required: kind == "required", id, why })
    }

    /// Returns why the failure of the case is accepted, if it is.
    fn accepted(&self) -> Option<&'static str> {
        ACCEPTED.iter().find(|(beginning, _)| self.id.starts_with(beginning)).map(|(_, reason)| *reason)
    }
}

fn faults(cases: &[CacheCase]) -> Vec<&CacheCase> {
    let failed = cases.iter().filter(|case| case.is_required && !case.has_passed);
    failed.filter(|case| case.accepted().is_none()).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct PassedCounts {
    required: (usize, usize),
    others: (usize, usize),
    accepted: usize,
}

impl PassedCounts {
    fn from_cases(cases: &[CacheCase]) -> Self {
        let count = |is_required| {
            let of_kind = cases.iter().filter(|case| case.is_required == is_required);
            (of_kind.clone().filter(|case| case.has_passed).count(), of_kind.count())
        };
        let failed = cases.iter().filter(|case| case.is_required && !case.has_passed);
        let accepted = failed.filter(|case| case.accepted().is_some()).count();
        Self { required: count(true), others: count(false), accepted }
    }
}

impl fmt::Display for PassedCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { required: (passed, required), others: (others_passed, others), accepted } = self;
        write!(
            formatter,
            "required of a cache: {passed} of {required} passed, {accepted} fail for a reason; optional: \
             {others_passed} of {others}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_cases_must_pass_unless_a_reason_is_listed() {
        let said = "passed\trequired\ta\t\nfailed\trequired\tb\tAssertion: 1\t2\nunjudged\trequired\tage-parse-x\tSetup\n\
                    failed\toptimal\tc\tAssertion\npassed\tcheck\td\t\nother words\n";
        let cases: Vec<CacheCase> = said.lines().filter_map(CacheCase::parse).collect();
        let faults: Vec<(&str, &str)> =
            faults(&cases).iter().map(|case| (case.id.as_str(), case.why.as_str())).collect();
        assert_eq!(faults, [("b", "Assertion: 1\t2")]);
        assert_eq!(
            PassedCounts::from_cases(&cases),
            PassedCounts { required: (1, 3), others: (1, 2), accepted: 1 }
        );
    }
}
