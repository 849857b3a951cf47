//! Verdicts on measurements: the exit code with its reason. The JUnit file has the same verdict, even if the
//! printed output fails.

use std::collections::BTreeSet;
use std::process::ExitCode;

use report::junit::{Suite, TestCase};
use report::results::{Expectation, MeasurementOutcome, Run};
use report::summary::SummaryRow;
use report::{Results, Summary, figure, resilience};

/// Exit code: figures are missing or invalid.
pub(super) const INVALID: u8 = 98;
/// Exit code: an expectation was missed.
pub(super) const MISSED: u8 = 99;
const NAMED_MOST: usize = 3;

/// The exit code and reason of a command that does not end with 0.
pub(super) type Judged = Result<(), (u8, String)>;

/// Returns the exit code of a verdict, and writes its reason to standard error.
pub(super) fn ended(judged: Judged) -> ExitCode {
    judged.map_or_else(|(code, message)| super::fail(code, message), |()| ExitCode::SUCCESS)
}

/// Combines a verdict with a failure of files or output, which comes first.
pub(super) fn after(done: Result<(), String>, judged: &Judged) -> Judged {
    done.map_err(|message| (super::FAILED, message)).and_then(|()| judged.clone())
}

/// Returns why a run failed, unless for missed expectations, which are separate cases of a JUnit file.
pub(super) fn problem(judged: &Judged) -> Option<&str> {
    judged.as_ref().err().filter(|(code, _)| *code != MISSED).map(|(_, message)| message.as_str())
}

pub(super) fn of_lab(results: &Results, summary: &Summary<'_>) -> Judged {
    if let Some(missing) = &results.incomplete {
        return Err((super::FAILED, format!("{missing} The report has what was measured until then.")));
    }
    let missed = results.expectations.iter().filter(|each| !each.is_met).count();
    if missed > 0 {
        let message = format!("{missed} of {} expectations were missed", results.expectations.len());
        return Err((MISSED, message));
    }
    let gaps = gaps(results, summary);
    if gaps.is_empty() {
        let nothing = "nothing was measured: no proxy supports any of the cases";
        return if results.runs.is_empty() { Err((INVALID, nothing.to_owned())) } else { Ok(()) };
    }
    let more = match gaps.len().saturating_sub(NAMED_MOST) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named = gaps[..gaps.len().min(NAMED_MOST)].join("; ");
    Err((INVALID, format!("some figures are missing or invalid: {named}{more}")))
}

/// Lists proxies and cases without a valid round, or with rounds lost because of the proxy, each with the first
/// reason. Cases that a proxy does not support are not included.
fn gaps(results: &Results, summary: &Summary<'_>) -> Vec<String> {
    let mut gaps = Vec::new();
    for (case, row) in summary.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case.case, row)))
    {
        let (proxy, case) = (row.proxy.name.as_str(), case.name.as_str());
        let runs = || results.runs.iter().filter(move |run| run.proxy == proxy && run.case == case);
        let lacks = results.lacking.iter().any(|each| each.proxy == proxy && each.case == case);
        // Failures at too high rates belong to a search. A round that was measured again is not lost.
        let is_valid = |round| runs().any(|run| run.round == round && run.outcome.valid().is_some());
        let is_lost = |run: &&Run| {
            let is_proxys = match run.outcome {
                MeasurementOutcome::Failed { .. } => true,
                MeasurementOutcome::Invalid { is_generators, .. } => !is_generators,
                MeasurementOutcome::Measured(_) => false,
            };
            is_proxys && run.step.is_none() && !is_valid(run.round)
        };
        let first = |row: &SummaryRow<'_>| row.refused.first().map(|refused| format!(": {}", refused.reason));
        let lost: BTreeSet<usize> = runs().filter(is_lost).map(|run| run.round).collect();
        if row.valid == 0 && !lacks {
            gaps.push(format!("{proxy} has no valid round in {case}{}", first(row).unwrap_or_default()));
        } else if !lost.is_empty() {
            let reason = runs().find(is_lost).and_then(|run| run.outcome.refusal()).unwrap_or_default();
            let all: BTreeSet<usize> = runs().map(|run| run.round).collect();
            let rounds = figure::things(lost.len(), "round");
            gaps.push(format!("{proxy} lost {rounds} of {} in {case}: {reason}", all.len()));
        }
    }
    gaps
}

pub(super) fn junit_of_lab(results: &Results, judged: &Judged) -> String {
    let took = |each: &Expectation| {
        let of_it = results.runs.iter().filter(|run| run.proxy == each.proxy && run.case == each.case);
        of_it.filter_map(|run| run.outcome.figures()).map(|measured| measured.seconds).sum()
    };
    let cases = results.expectations.iter().map(|each| {
        let class = format!("{}.{}", each.case, each.proxy);
        TestCase::expectation(class, &each.text, each.measured.as_deref(), each.is_met, took(each))
    });
    Suite::new(&results.title, results.took_seconds, cases.collect(), problem(judged)).xml()
}

pub(super) fn junit_of_resilience(results: &resilience::Results, judged: &Judged) -> String {
    let whole = results.phases.last().map_or(0.0, |phase| phase.until_seconds);
    let took = |name: &str| {
        let phase = results.phases.iter().find(|phase| phase.name == name);
        phase.map_or(whole, |phase| phase.until_seconds - phase.from_seconds)
    };
    let required = results.expectations.iter().filter(|each| each.is_required);
    let cases = required.map(|each| {
        let class = format!("{}.{}", each.phase, each.proxy);
        TestCase::expectation(class, &each.text, each.measured.as_deref(), each.is_met, took(&each.phase))
    });
    Suite::new(&results.title, whole, cases.collect(), problem(judged)).xml()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Results of one program in one case, with three rounds.
    fn results(change: fn(&mut Value)) -> Results {
        let figures = json!({"kind": "measured", "seconds": 1.0, "requests": 9, "received_bytes": 9, "errors": {},
            "latency": [[1000, 9]], "lateness_p99_us": null, "usage": null});
        let runs = (1..=3).map(|round| {
            json!({"proxy": "mine", "case": "tiny", "round": round, "began_seconds": 0.0, "command": "",
                "outcome": figures})
        });
        let mut text = json!({
            "schema": 1, "title": "t", "measured_by": "", "command": "", "started_unix_seconds": 0, "took_seconds": 3.0,
            "machine": {"processor": "p", "architecture": "a", "cores": 2, "memory_bytes": 1, "kernel": "k",
                "governor": null, "settings": {}},
            "conditions": {"load_before": [0.0, 0.0, 0.0], "rounds": 3, "measured_seconds": 1.0, "warm_up_seconds": 0.0,
                "seed": 1, "cores": {"proxy": [], "origins": [], "load": []}, "alike": []},
            "proxies": [{"name": "mine", "role": "peer", "version": ""}], "origins": [], "notes": [],
            "cases": [{"name": "tiny", "payload": "tiny", "payload_bytes": 128, "connections": 1,
                "arrivals": {"kind": "closed"}}],
            "runs": runs.collect::<Vec<_>>(),
            "expectations": [{"text": "errors = 0", "proxy": "mine", "case": "tiny", "measured": "0", "is_met": true}],
        });
        change(&mut text);
        serde_json::from_value(text).expect("the form of results")
    }

    fn spoil(run: &mut Value, is_generators: bool) {
        let (reason, measured) = ("it was spoiled", run["outcome"].clone());
        run["outcome"] = json!({"kind": "invalid", "reason": reason, "measured": measured, "is_generators": is_generators});
    }

    #[test]
    fn exit_code_and_junit_of_every_ending_agree() {
        type Row = (&'static str, fn(&mut Value), u8, &'static str);
        let rows: [Row; 9] = [
            ("good", |_| {}, 0, ""),
            (
                "a round was measured again",
                |all| {
                    spoil(&mut all["runs"][0], false);
                    all["runs"][1]["round"] = 1.into();
                },
                0,
                "",
            ),
            ("the generator spoiled a round", |all| spoil(&mut all["runs"][1], true), 0, ""),
            (
                "the generator spoiled all rounds",
                |all| (0..3).for_each(|round| spoil(&mut all["runs"][round], true)),
                INVALID,
                "mine has no valid round in tiny: it was spoiled",
            ),
            (
                "the proxy failed in a round",
                |all| spoil(&mut all["runs"][1], false),
                INVALID,
                "mine lost 1 round of 3 in tiny: it was spoiled",
            ),
            (
                "the proxy ended in two rounds",
                |all| {
                    (0..2).for_each(|round| {
                        all["runs"][round]["outcome"] = json!({"kind": "failed", "reason": "mine ended"});
                    });
                },
                INVALID,
                "mine lost 2 rounds of 3 in tiny: mine ended",
            ),
            (
                "nothing was measured",
                |all| all["runs"] = json!([]),
                INVALID,
                "mine has no valid round in tiny",
            ),
            (
                "missed",
                |all| all["expectations"][0]["is_met"] = false.into(),
                MISSED,
                "1 of 1 expectations were missed",
            ),
            ("cut short", |all| all["incomplete"] = "It ended.".into(), super::super::FAILED, "It ended."),
        ];
        for (what, change, code, expected) in rows {
            let results = results(change);
            let judged = of_lab(&results, &Summary::from_results(&results));
            let (found, message) = judged.clone().err().unwrap_or_default();
            assert!(found == code && message.contains(expected), "{what}: {judged:?}");
            let junit = junit_of_lab(&results, &judged);
            assert_eq!(junit.contains("<failure"), code != 0, "{what}: {junit}");
            // The first failure is the exit code, and is in the file.
            let after = after(Err("the disk is full".to_owned()), &judged);
            assert_eq!(after.as_ref().map_err(|(code, _)| *code), Err(super::super::FAILED), "{what}");
            assert!(junit_of_lab(&results, &after).contains("the disk is full"), "{what}");
        }
    }
}
