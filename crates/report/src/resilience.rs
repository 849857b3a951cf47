//! Results of a resilience run: what each proxy's clients got while servers died, links slowed and configurations were
//! reloaded. The schema of its `results.json`.

/// Tables for a terminal.
mod text;
/// Charts over time.
mod chart;
/// The page.
mod page;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::results::{Absent, File, Machine};

pub use page::page;
pub use text::{recovery, render};

/// Version of this schema. It changes when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`] at the time of writing.
    pub schema: u32,
    /// Heading of the plan.
    pub title: String,
    /// Command that repeats the run.
    pub command: String,
    /// The plan.
    pub plan: File,
    /// Version of Vanward that ran it.
    pub version: String,
    /// Start of the run, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// The machine.
    pub machine: Machine,
    /// What was alike for every proxy, a phrase each.
    pub alike: Vec<String>,
    /// Length of a slot of [`Run::slots`].
    pub slot_seconds: f64,
    /// The plan's cuts in time.
    pub phases: Vec<Phase>,
    /// Events and faults, for the time axis.
    pub marks: Vec<Mark>,
    /// One run for each proxy.
    pub runs: Vec<Run>,
    /// Proxies that took no part, with the reason.
    pub absent: Vec<Absent>,
    /// Expectations with their results.
    pub expectations: Vec<Expectation>,
    /// Whether the run was stopped early.
    pub interrupted: bool,
}

/// A time between two cuts of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name, unique in the plan.
    pub name: String,
    /// Its start, from the start of the load.
    pub from_seconds: f64,
    /// Its end.
    pub until_seconds: f64,
    /// Requests per second that were due.
    pub due_per_second: f64,
    /// Whether a proxy is expected to recover in it: something has happened, and no fault has begun.
    pub recovers: bool,
}

/// Something on the time axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What it is: `kill origin 2`.
    pub text: String,
    /// When it happens or begins.
    pub from_seconds: f64,
    /// When it ends; `None` for what happens at once.
    pub until_seconds: Option<f64>,
}

/// What the clients of one proxy got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the proxy.
    pub proxy: String,
    /// Its version.
    pub version: String,
    /// Command line of the proxy.
    pub command: String,
    /// Its files.
    pub files: Vec<File>,
    /// Figures of the whole run.
    pub whole: Figures,
    /// Figures of each phase, in the order of [`Results::phases`].
    pub phases: Vec<Figures>,
    /// Bounds of a recovery, as conditions.
    pub recovered: Vec<String>,
    /// Figures in short slots of time.
    pub slots: Vec<Slot>,
    /// Example of each kind of error.
    pub error_examples: BTreeMap<String, String>,
    /// What happened and was not planned: the proxy ended by itself, a server did not start again.
    pub remarks: Vec<String>,
    /// Why the figures are invalid; empty for a valid run.
    pub problems: Vec<String>,
}

/// Figures of the requests that were due in a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Successful requests.
    pub requests: u64,
    /// Failed requests by kind; `unanswered` are those without a result at the end of the run.
    pub errors: BTreeMap<String, u64>,
    /// Successful requests per second.
    pub requests_per_second: f64,
    /// Median latency of `requests`, from when they were due; `None` without any.
    pub p50_us: Option<u64>,
    /// 99th percentile.
    pub p99_us: Option<u64>,
    /// Maximum.
    pub max_us: Option<u64>,
    /// Recovery in a phase after something happened.
    pub recovery: Option<Recovery>,
}

impl Figures {
    /// Failed requests of all kinds.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// When a proxy had recovered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// So many seconds after the start of the phase.
    AfterSeconds(f64),
    /// Not before the end of the phase.
    Never,
}

/// Figures of a slot of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Successful requests that were due in it.
    pub requests: u64,
    /// Failed ones.
    pub failed: u64,
    /// Median latency; 0 without a success.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Maximum.
    pub max_us: u64,
}

/// Expectation of one proxy in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// Text of the expectation.
    pub text: String,
    /// Name of the proxy.
    pub proxy: String,
    /// Name of the phase, or `whole run`.
    pub phase: String,
    /// Measured value with its unit; `None` if nothing was measured.
    pub measured: Option<String>,
    /// Whether it was met. Without a measured value, it was not.
    pub is_met: bool,
    /// Whether the run fails without it. Of other proxies it is only told.
    pub is_required: bool,
}

impl Results {
    /// Pretty-printed JSON.
    pub fn to_json(&self) -> String {
        // Plain data with text keys: it always has a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads the JSON of [`Results::to_json`].
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Expectations that were missed and required.
    pub fn missed(&self) -> impl Iterator<Item = &Expectation> {
        self.expectations.iter().filter(|each| each.is_required && !each.is_met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let figures = |requests, failed: u64, recovery| Figures {
            requests,
            errors: (failed > 0).then(|| ("read".to_owned(), failed)).into_iter().collect(),
            requests_per_second: requests as f64,
            p50_us: Some(900),
            p99_us: Some(12_000),
            max_us: Some(20_000),
            recovery,
        };
        let phase = |name: &str, from_seconds: f64, recovers| Phase {
            name: name.to_owned(),
            from_seconds,
            until_seconds: from_seconds + 1.0,
            due_per_second: 10.0,
            recovers,
        };
        let expectation = |text: &str, is_met, is_required| Expectation {
            text: text.to_owned(),
            proxy: "mine".to_owned(),
            phase: "dead & gone".to_owned(),
            measured: None,
            is_met,
            is_required,
        };
        let slot = |requests, failed| Slot {
            requests,
            failed,
            p50_us: 900 * requests.min(1),
            p99_us: 12_000,
            max_us: 20_000,
        };
        Results {
            schema: SCHEMA,
            title: "A <server> dies".to_owned(),
            command: "vanward lab resilience p.toml".to_owned(),
            plan: File { name: "p.toml".to_owned(), text: "title = 1".to_owned() },
            version: "1".to_owned(),
            started_unix_seconds: 0,
            machine: Machine {
                processor: "p".to_owned(),
                architecture: "a".to_owned(),
                cores: 2,
                memory_bytes: 1,
                kernel: "k".to_owned(),
                governor: None,
                settings: BTreeMap::new(),
            },
            alike: vec!["10 requests/s".to_owned()],
            slot_seconds: 0.5,
            phases: vec![phase("steady", 0.0, false), phase("dead & gone", 1.0, true)],
            marks: vec![Mark { text: "kill origin 2".to_owned(), from_seconds: 1.0, until_seconds: None }],
            runs: vec![Run {
                proxy: "mine".to_owned(),
                version: String::new(),
                command: "mine --listen".to_owned(),
                files: Vec::new(),
                whole: figures(15, 5, None),
                phases: vec![figures(10, 0, None), figures(5, 5, Some(Recovery::AfterSeconds(0.5)))],
                recovered: vec!["errors <= 1%".to_owned()],
                slots: vec![slot(5, 0), slot(5, 0), slot(0, 5), slot(5, 0)],
                error_examples: BTreeMap::new(),
                remarks: vec!["mine ended by itself".to_owned()],
                problems: Vec::new(),
            }],
            absent: vec![Absent { proxy: "nginx".to_owned(), remedy: "install it".to_owned() }],
            expectations: vec![
                expectation("errors = 0", true, true),
                expectation("p99 < 1ms", false, false),
                expectation("recovers within 100ms", false, true),
            ],
            interrupted: false,
        }
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let results = results();
        assert_eq!(Results::from_json(&results.to_json()).expect("its own form"), results);
        assert_eq!(results.missed().count(), 1);
    }

    #[test]
    fn a_terminal_has_phases_recoveries_and_what_was_missed_first() {
        let text = render(&results());
        for said in [
            "nginx took no part: install it",
            "dead & gone   1 s",
            "after 0.5 s",
            "5 read",
            "mine ended by itself",
        ] {
            assert!(text.contains(said), "{said}:\n{text}");
        }
        let places = ["MISSED", "missed, not required", " met"].map(|word| text.find(word).expect(word));
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn the_page_is_whole_and_escaped() {
        let html = page(&results()).expect("a page");
        for said in [
            "A &lt;server&gt; dies",
            "<svg class=\"chart time broad\"",
            "<svg class=\"chart time narrow\"",
            "kill origin 2",
            "2 dead &amp; gone",
            "1 of 2 expectations were missed",
        ] {
            assert!(html.contains(said), "{said}:\n{html}");
        }
        assert!(!html.contains("<script") && !html.contains("NaN") && !html.contains("inf"), "{html}");
        assert_eq!(html.matches("<section").count(), html.matches("</section>").count());
    }
}
