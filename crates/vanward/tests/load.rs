//! `vanward load` against the origin, each a process of its own: gates, and what is left behind.

/// The program as a process.
mod process;

use load::Outcome;

use process::{Process, run};

const MISSED: i32 = 99;

/// A running origin, and the URL of a path of it.
struct Origin {
    _process: Process,
    authority: String,
}

impl Origin {
    fn start() -> Self {
        let mut origin = Process::start(&["origin", "--listen", "127.0.0.1:0"]);
        let address = origin.address();
        Self { _process: origin, authority: address.to_string() }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.authority)
    }
}

#[test]
fn expectations_are_told_with_what_was_measured_and_give_99() {
    let origin = Origin::start();
    for version in [&[][..], &["--h2"]] {
        let load = |more: &[&str], path: &str| {
            run(&[&["load", "-n", "20", "-c", "2"], version, more, &[&origin.url(path)]].concat())
        };
        let good = ["--expect", "p99 < 5m", "--expect", "errors = 0", "--expect", "rate > 0.001/s"];
        let ended = load(&good, "/tiny").with_code(0);
        assert_eq!(ended.output.matches("  met     expected ").count(), 3, "{}", ended.output);

        let mixed = ["--expect", "max < 1us", "--expect=5xx<1%", "--expect", "4xx = 0", "--json"];
        let ended = load(&mixed, "/tiny").with_code(MISSED);
        assert!(ended.errors.contains("1 of 3 expectations were missed: max < 1us (measured "), "{ended:?}");
        let outcome: Outcome = serde_json::from_str(&ended.output).expect("it is an outcome");
        let told: Vec<_> =
            outcome.expectations.iter().map(|each| (each.text.as_str(), each.is_met)).collect();
        assert_eq!(told, [("max < 1us", false), ("5xx<1%", true), ("4xx = 0", true)]);
        assert_eq!(outcome.expectations[1].measured.as_deref(), Some("0.000%"));

        // Without a success nothing has a percentile.
        let ended = load(&["--expect", "p50 < 5m"], "/status/404").with_code(MISSED);
        assert!(ended.output.contains("MISSED  expected p50 < 5m, measured nothing"), "{}", ended.output);
        // What is said of errors takes the place of --max-errors.
        load(&["--expect", "errors <= 20", "--expect", "4xx = 100%"], "/status/404").with_code(1);
    }
}

#[test]
fn an_expectation_that_cannot_be_read_is_refused_before_any_request() {
    let origin = Origin::start();
    for (expect, message) in [
        ("p99 50ms", "it has no comparison"),
        ("p99 < 50", "\"50\" is not a duration"),
        ("error < 1", "did you mean \"errors\"?"),
        ("memory < 1MB", "a figure of the server"),
    ] {
        let ended = run(&["load", "--expect", expect, &origin.url("/tiny")]).with_code(2);
        assert!(ended.errors.contains(message), "{expect}: {}", ended.errors);
    }
    let stats = process::get(origin.authority.parse().expect("an address"), "/stats");
    assert!(!stats.contains("/tiny"), "{stats}");
}
