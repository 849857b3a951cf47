//! `--out DIR`: the files of a run.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use load::{Breakdown, Distribution, Outcome};

use super::page;
use super::watch::unwritten;

/// The outcome, as `--json` prints it.
pub(super) const RESULT: &str = "result.json";
const SECONDS: &str = "seconds.ndjson";

/// The directory of `--out`.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates the directory, before the load.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(path)
            .map_err(|error| format!("--out: cannot create {}: {error}", path.display()))?;
        Ok(Self(path.to_owned()))
    }

    /// File with a line of JSON for each second.
    pub(super) fn seconds(&self) -> PathBuf {
        self.0.join(SECONDS)
    }

    /// Writes all other files.
    pub(super) fn write(&self, outcome: &Outcome) -> Result<(), String> {
        let json = serde_json::to_string(outcome).map_err(|error| error.to_string())?;
        self.put(RESULT, &(json + "\n"))?;
        self.put("result.csv", &figures(outcome))?;
        self.put("seconds.csv", &seconds(outcome))?;
        let percentiles = load::percentiles(&outcome.latency).map_err(|error| error.to_string())?;
        self.put("latency.hgrm", &percentiles)?;
        if !outcome.expectations.is_empty() {
            self.put("junit.xml", &junit(outcome))?;
        }
        page::write_one(&self.0.join("report.html"), outcome)
    }

    fn put(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.0.join(name);
        std::fs::write(&path, text).map_err(|error| unwritten(&path, &error))
    }
}

/// The expectations as a JUnit report.
fn junit(outcome: &Outcome) -> String {
    let url = &outcome.settings.url;
    let expectations = outcome.expectations.iter().map(|each| report::results::Expectation {
        text: each.text.clone(),
        proxy: "load".to_owned(),
        case: url.clone(),
        measured: each.measured.clone(),
        is_met: each.is_met,
    });
    ::lab::expect::junit(&format!("vanward load {url}"), &expectations.collect::<Vec<_>>())
}

/// A row for the run, and one for each part of its tables.
fn figures(outcome: &Outcome) -> String {
    let mut text =
        "by,part,requests,failed,requests_per_second,mean_us,p50_us,p90_us,p99_us,p99_9_us,max_us\n"
            .to_owned();
    let mut row = |by: &str,
                   part: &str,
                   (requests, failed, rate): (u64, u64, f64),
                   latency: &Distribution| {
        let Distribution { mean_us, p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = latency;
        let part = quoted(part);
        let _ = writeln!(
            text,
            "{by},{part},{requests},{failed},{rate:.3},{mean_us:.3},{p50_us},{p90_us},{p99_us},{p99_9_us},{max_us}"
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

fn seconds(outcome: &Outcome) -> String {
    let mut text =
        "second,seconds,requests,failed,requests_per_second,bytes_received,p50_us,p90_us,p99_us,p99_9_us,max_us\n"
            .to_owned();
    for second in &outcome.seconds {
        let load::Second { second: number, seconds, requests, failed, bytes_received, .. } = second;
        let load::Second { p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = second;
        let rate = second.requests_per_second();
        let _ = writeln!(
            text,
            "{number},{seconds:.3},{requests},{failed},{rate:.3},{bytes_received},{p50_us},{p90_us},{p99_us},{p99_9_us},\
             {max_us}"
        );
    }
    text
}

/// A field of CSV (RFC 4180).
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
