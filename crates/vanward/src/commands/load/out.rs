//! `--out DIR`: the files of a run.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use load::{Breakdown, Distribution, RunOutcome};
use report::junit::{Suite, TestCase};

use super::page;
use super::watch::unwritten;
use crate::commands::verdict::{self, Judged};

/// The outcome, as `--json` prints it.
pub(super) const RESULT: &str = "result.json";
const SECONDS: &str = "seconds.ndjson";
const JUNIT: &str = "junit.xml";

pub(super) struct OutFolder(PathBuf);

impl OutFolder {
    /// Creates the directory before the load. Removes the verdict of an earlier run, so that it is not taken for
    /// that of an interrupted run.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(path)
            .map_err(|error| format!("--out: cannot create {}: {error}", path.display()))?;
        let junit = path.join(JUNIT);
        match std::fs::remove_file(&junit) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unwritten(&junit, &error)),
            _ => Ok(Self(path.to_owned())),
        }
    }

    /// File with a line of JSON for each second.
    pub(super) fn seconds(&self) -> PathBuf {
        self.0.join(SECONDS)
    }

    /// Writes all other files except the verdict.
    pub(super) fn write(&self, outcome: &RunOutcome) -> Result<(), String> {
        let json = serde_json::to_string(outcome).map_err(|error| error.to_string())?;
        self.put(RESULT, &(json + "\n"))?;
        self.put("result.csv", &figures(outcome))?;
        self.put("seconds.csv", &seconds(outcome))?;
        let percentiles = load::percentiles(&outcome.latency).map_err(|error| error.to_string())?;
        self.put("latency.hgrm", &percentiles)?;
        page::write_one(&self.0.join("report.html"), outcome)
    }

    fn put(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.0.join(name);
        std::fs::write(&path, text).map_err(|error| unwritten(&path, &error))
    }
}

/// Writes the JUnit report of a run. It comes last, so that it includes failures to write other files or to print.
pub(super) fn judge(folder: &Path, outcome: &RunOutcome, judged: &Judged) -> Result<(), String> {
    let (url, seconds) = (&outcome.settings.url, outcome.measured_seconds);
    let cases = outcome.expectations.iter().map(|each| {
        TestCase::expectation(
            format!("{url}.load"),
            &each.text,
            each.measured.as_deref(),
            each.is_met,
            seconds,
        )
    });
    let problem = verdict::problem(judged);
    let suite = Suite::new(&format!("vanward load {url}"), seconds, cases.collect(), problem);
    let path = folder.join(JUNIT);
    std::fs::write(&path, suite.xml()).map_err(|error| unwritten(&path, &error))
}

/// Writes a row for the run, and one for each part of its tables.
fn figures(outcome: &RunOutcome) -> String {
    let mut text =
        "by,part,requests,failed,requests_per_second,mean_us,p50_us,p90_us,p99_us,p99_9_us,max_us,at_least\n"
            .to_owned();
    let mut row = |by: &str,
                   part: &str,
                   (requests, failed, rate): (u64, u64, f64),
                   latency: &Distribution| {
        let Distribution { mean_us, p50_us, p90_us, p99_us, p99_9_us, max_us, at_least, .. } = latency;
        let (part, at_least) = (quoted(part), at_least.join(" "));
        let _ = writeln!(
            text,
            "{by},{part},{requests},{failed},{rate:.3},{mean_us:.3},{p50_us},{p90_us},{p99_us},{p99_9_us},{max_us},{at_least}"
        );
    };
    let failed = outcome.errors.total();
    row("run", "", (outcome.requests, failed, outcome.requests_per_second), &outcome.latency);
    for table in &outcome.breakdowns {
        let by = match table.by {
            Breakdown::Status => "status",
            Breakdown::Url => "url",
            Breakdown::Name => "name",
            Breakdown::Stage => "stage",
        };
        for part in &table.rows {
            row(by, &part.name, (part.requests, part.failed, part.requests_per_second), &part.latency);
        }
    }
    text
}

fn seconds(outcome: &RunOutcome) -> String {
    let mut text =
        "second,seconds,requests,failed,requests_per_second,bytes_received,p50_us,p90_us,p99_us,p99_9_us,max_us\n"
            .to_owned();
    for second in &outcome.seconds {
        let load::MeasuredSecond { second: number, seconds, requests, failed, bytes_received, .. } = second;
        let load::MeasuredSecond { p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = second;
        let rate = second.requests_per_second();
        let _ = writeln!(
            text,
            "{number},{seconds:.3},{requests},{failed},{rate:.3},{bytes_received},{p50_us},{p90_us},{p99_us},{p99_9_us},\
             {max_us}"
        );
    }
    text
}

/// Quotes a field of CSV (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4180_fields_with_commas_are_quoted() {
        assert_eq!([quoted("a b"), quoted("a,\"b\"")], ["a b", "\"a,\"\"b\"\"\""]);
    }
}
