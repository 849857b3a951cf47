//! Results of a resilience run: each proxy's results while servers died, links slowed and configurations were reloaded.
//! The schema of its `results.json`.

/// Tables for a terminal.
mod text;
/// Charts over time.
mod chart;
/// The page.
mod page;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::results::{Absent, File, RunMachine};

pub use page::page;
pub use text::{recovery, render};

/// Changes when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`] at the time of writing.
    pub schema: u32,
    pub title: String,
    /// Command that repeats the run.
    pub command: String,
    pub plan: File,
    /// Version of Vanward that ran it.
    pub version: String,
    pub started_unix_seconds: u64,
    pub machine: RunMachine,
    /// Conditions that were the same for every proxy, a phrase each.
    pub alike: Vec<String>,
    /// Length of a slot of [`ResilienceRun::slots`].
    pub slot_seconds: f64,
    /// Phases between the plan's cuts.
    pub phases: Vec<Phase>,
    /// Events and faults, for the time axis.
    pub marks: Vec<Mark>,
    pub runs: Vec<ResilienceRun>,
    /// Proxies that took no part, with the reason.
    pub absent: Vec<Absent>,
    pub expectations: Vec<PhaseExpectation>,
    /// Whether the run was stopped early.
    pub interrupted: bool,
}

/// A time between two cuts of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Unique in the plan.
    pub name: String,
    /// From the start of the load.
    pub from_seconds: f64,
    pub until_seconds: f64,
    pub due_per_second: f64,
    /// Whether the proxy is expected to recover in this phase: an event has happened, and no fault has begun.
    pub recovers: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Description: `kill origin 2`.
    pub text: String,
    pub from_seconds: f64,
    /// `None` for an event without duration.
    pub until_seconds: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResilienceRun {
    pub proxy: String,
    pub version: String,
    pub command: String,
    pub files: Vec<File>,
    pub whole: Figures,
    /// In the order of [`Results::phases`].
    pub phases: Vec<Figures>,
    /// Bounds of a recovery, as conditions.
    pub recovered: Vec<String>,
    /// Figures in short slots of time.
    pub slots: Vec<TimeSlot>,
    pub error_examples: BTreeMap<String, String>,
    /// Unplanned events: the proxy exited, or a server did not start again.
    pub remarks: Vec<String>,
    /// Why the figures are invalid; empty for a valid run.
    pub problems: Vec<String>,
}

/// Figures of the requests that were due in a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub requests: u64,
    /// Failed requests by kind; `unanswered` are those without a result at the end of the run.
    pub errors: BTreeMap<String, u64>,
    pub requests_per_second: f64,
    /// Median latency of `requests`, from when they were due; `None` without any.
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub max_us: Option<u64>,
    /// Recovery in a phase after an event.
    pub recovery: Option<Recovery>,
}

impl Figures {
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Time of a proxy's recovery.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    AfterSeconds(f64),
    /// Not before the end of the phase.
    Never,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSlot {
    /// Successful requests that were due in it.
    pub requests: u64,
    pub failed: u64,
    /// Median latency; 0 without a success.
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// Expectation of one proxy in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseExpectation {
    pub text: String,
    pub proxy: String,
    pub phase: String,
    /// Measured value with its unit; `None` if nothing was measured.
    pub measured: Option<String>,
    /// Whether it was met. Without a measured value, it was not.
    pub is_met: bool,
    /// Whether the run fails if it is missed. Those of other proxies are only reported.
    pub is_required: bool,
}

impl Results {
    pub fn to_json(&self) -> String {
        // It contains only plain data with text keys, so this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub fn missed(&self) -> impl Iterator<Item = &PhaseExpectation> {
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
        let expectation = |text: &str, is_met, is_required| PhaseExpectation {
            text: text.to_owned(),
            proxy: "mine".to_owned(),
            phase: "dead & gone".to_owned(),
            measured: None,
            is_met,
            is_required,
        };
        let slot = |requests, failed| TimeSlot {
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
            machine: RunMachine {
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
            runs: vec![ResilienceRun {
                proxy: "mine".to_owned(),
                version: String::new(),
                command: "mine --listen".to_owned(),
                files: Vec::new(),
                whole: figures(15, 5, None),
                phases: vec![figures(10, 0, None), figures(5, 5, Some(Recovery::AfterSeconds(0.5)))],
                recovered: vec!["errors <= 1%".to_owned()],
                slots: vec![slot(5, 0), slot(5, 0), slot(0, 5), slot(5, 0)],
                error_examples: BTreeMap::new(),
                remarks: vec!["mine ended unexpectedly".to_owned()],
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
            "mine ended unexpectedly",
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
