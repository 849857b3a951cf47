//! testssl.sh: scans the TLS of a proxy with a self-signed certificate: protocols, ciphers, forward secrecy, defaults,
//! and known attacks.
//!
//! Response header fields are not checked, because the server sets them; simulated clients are not, because they have
//! no rating.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::process::Process;
use super::programs;
use super::subject::{self, Against, RunningProxy};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::{Workspace, text};

/// Sections of the scan: protocols, cipher categories, forward secrecy, preferences, server defaults, vulnerabilities.
const SECTIONS: &[&str] = &["-p", "-s", "-f", "-P", "-S", "-U"];
/// Timeout of the scan, which takes about a minute.
const RUN_LIMIT: Duration = Duration::from_secs(600);

/// Accepted findings: ID and reason.
const ACCEPTED: &[(&str, &str)] = &[
    ("cert_chain_of_trust", "a certificate that was made for trying out is signed by nobody else"),
    ("cert_revocation", "only an authority can say where it revokes"),
];
/// Findings that every complete scan has.
const EXPECTED: &[&str] =
    &["TLS1_2", "TLS1_3", "ALPN_HTTP2", "PFS", "cert_keySize", "heartbleed", "ROBOT", "RC4"];

pub(super) fn check(workspace: &Workspace, scratch: &Scratch, against: Against) -> Result<(), String> {
    let program = programs::TESTSSL.find()?;
    let vanward = programs::build_vanward(workspace)?;
    let folder = scratch.path();
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let subject = RunningProxy::before_http1(against, &vanward, server, folder)?;

    let file = folder.join("findings.json");
    let mut command = Command::new(program);
    command.args(["--quiet", "--color", "0", "--warnings", "off", "--nodns", "none", "--ip"]);
    command.arg(subject.tls.ip().to_string()).arg("--jsonfile").arg(&file).args(SECTIONS);
    // It calls git in the folder that it runs in, and writes files there.
    command.arg(format!("localhost:{}", subject.tls.port())).current_dir(folder);
    let (status, said) = Process::start("testssl", &mut command, folder)?.finish(RUN_LIMIT)?;
    let findings = read(&file).map_err(|problem| format!("{problem}; it ended with {status}:\n{said}"))?;
    judge(&findings).map_err(|problem| format!("{problem}\nAll that it said:\n{said}"))
}

fn read(file: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("testssl left no findings: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("testssl wrote no list of findings: {error}"))
}

fn judge(findings: &[Value]) -> Result<(), String> {
    let is_there = |id: &str| findings.iter().any(|finding| text(finding, "id") == id);
    if let Some(absent) = EXPECTED.iter().find(|id| !is_there(id)) {
        return Err(format!("testssl says nothing about {absent}: the scan did not get that far"));
    }
    let mut weaknesses = Vec::new();
    for finding in findings.iter().filter(|finding| is_weakness(text(finding, "severity"))) {
        let id = text(finding, "id");
        let line = format!("{id}: {}: {}", text(finding, "severity"), text(finding, "finding"));
        match ACCEPTED.iter().find(|(accepted, _)| *accepted == id) {
            Some((_, reason)) => say(format_args!("accepted: {line} ({reason})")),
            None => weaknesses.push(line),
        }
    }
    say(format_args!("{} findings, {} of them weaknesses", findings.len(), weaknesses.len()));
    if weaknesses.is_empty() { Ok(()) } else { Err(weaknesses.join("\n")) }
}

/// Whether a finding is a weakness: severity medium or higher, FATAL (an aborted scan), or an unknown word.
fn is_weakness(severity: &str) -> bool {
    // WARN is about the scanner: limits of its openssl.
    !matches!(severity, "OK" | "INFO" | "LOW" | "WARN" | "DEBUG")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn findings(more: &[(&str, &str)]) -> Vec<Value> {
        let expected = EXPECTED.iter().map(|id| (*id, "OK"));
        expected
            .chain(more.iter().copied())
            .map(|(id, severity)| json!({ "id": id, "severity": severity, "finding": "as found" }))
            .collect()
    }

    #[test]
    fn only_findings_of_medium_severity_or_higher_fail() {
        for (id, severity, expected) in [
            ("LUCKY13", "LOW", Ok(())),
            ("cert_chain_of_trust", "CRITICAL", Ok(())),
            ("engine_problem", "WARN", Ok(())),
            ("cipher_order", "HIGH", Err("cipher_order: HIGH: as found")),
            ("BEAST", "MEDIUM", Err("BEAST: MEDIUM: as found")),
            ("scanProblem", "FATAL", Err("scanProblem: FATAL: as found")),
        ] {
            assert_eq!(judge(&findings(&[(id, severity)])), expected.map_err(str::to_owned), "{id}");
        }
    }

    #[test]
    fn a_scan_that_found_nothing_is_no_scan() {
        let cut_short = &findings(&[])[..3];
        assert!(judge(cut_short).is_err_and(|problem| problem.contains("PFS")));
    }
}
