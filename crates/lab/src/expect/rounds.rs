//! Rounds in which a proxy failed: an expectation that the other rounds meet is still missed.

use report::results::{Expectation, MeasurementOutcome, Run};

/// Turns expectations that were met by fewer rounds than planned into misses, because the proxy failed in a round.
pub(super) fn take_back(judged: &mut [Expectation], runs: &[Run]) {
    for one in judged.iter_mut().filter(|one| one.is_met) {
        let of_case = runs.iter().filter(|run| run.case == one.case && run.proxy == one.proxy);
        if let Some((round, reason)) = failed_round(of_case) {
            let measured = one.measured.take().unwrap_or_default();
            one.measured = Some(format!("{measured} (round {round} failed: {reason})"));
            one.is_met = false;
        }
    }
}

/// The first round without a valid measurement that fails because of the proxy, with the reason. Steps of a search may
/// be invalid, because they look for a rate that is too high.
fn failed_round<'r>(runs: impl Iterator<Item = &'r Run> + Clone) -> Option<(usize, &'r str)> {
    let is_valid = |round| runs.clone().any(|run| run.round == round && run.outcome.valid().is_some());
    let failure = |run: &'r Run| match &run.outcome {
        MeasurementOutcome::Invalid { reason, is_generators: false, .. } if run.step.is_none() => {
            Some(reason.as_str())
        }
        MeasurementOutcome::Failed { reason } => Some(reason.as_str()),
        MeasurementOutcome::Measured(_) | MeasurementOutcome::Invalid { .. } => None,
    };
    runs.clone().filter(|run| !is_valid(run.round)).find_map(|run| Some((run.round, failure(run)?)))
}

#[cfg(test)]
mod tests {
    use report::Summary;
    use report::latency::LatencyHistogram;
    use report::results::MeasuredFigures;

    use super::*;
    use crate::expect::judge;
    use crate::plan::LabPlan;

    fn measured() -> MeasuredFigures {
        let text =
            "{\"seconds\": 1.0, \"requests\": 9, \"received_bytes\": 9, \"errors\": {}, \"latency\": []}";
        serde_json::from_str(text).expect("figures")
    }

    #[test]
    fn a_round_that_failed_because_of_the_proxy_is_not_left_out() {
        let valid = |_: &str| MeasurementOutcome::Measured(measured());
        let invalid = |reason: &str| MeasurementOutcome::Invalid {
            reason: reason.to_owned(),
            measured: measured(),
            is_generators: false,
        };
        let late = |reason: &str| MeasurementOutcome::Invalid {
            reason: reason.to_owned(),
            measured: measured(),
            is_generators: true,
        };
        let failed = |reason: &str| MeasurementOutcome::Failed { reason: reason.to_owned() };
        let step = Some(report::results::SearchStep { rate_per_second: 1.0, is_met: false });
        type Runs = Vec<(usize, MeasurementOutcome, Option<report::results::SearchStep>)>;
        let cases: [(Runs, Option<(usize, &str)>); 7] = [
            (vec![(1, valid("a"), None), (2, valid("b"), None)], None),
            (vec![(1, valid("a"), None), (2, invalid("b"), None)], Some((2, "b"))),
            (vec![(1, failed("a"), None), (2, valid("b"), None)], Some((1, "a"))),
            // The round was measured again.
            (vec![(1, invalid("a"), None), (1, valid("b"), None)], None),
            (vec![(1, late("a"), None), (2, valid("b"), None)], None),
            (vec![(1, valid("a"), step), (1, invalid("b"), step), (2, invalid("c"), step)], None),
            (vec![(1, valid("a"), step), (2, failed("b"), step)], Some((2, "b"))),
        ];
        for (runs, expected) in cases {
            let run = |(round, outcome, step)| Run {
                proxy: "mine".to_owned(),
                case: "a".to_owned(),
                round,
                began_seconds: 0.0,
                command: String::new(),
                step,
                outcome,
            };
            let runs: Vec<Run> = runs.into_iter().map(run).collect();
            assert_eq!(failed_round(runs.iter()), expected, "{runs:?}");
        }
    }

    /// Whether the runs of three rounds meet `p99 < 1s` and `errors = 0`, and the measured values.
    fn told(runs: &[Option<MeasurementOutcome>], absent: bool) -> Vec<(bool, String)> {
        let text = "title = \"t\"\nproxies = [\"nginx\"]\nduration = \"1s\"\nexpect = [\"p99 < 1s\", \"errors = 0\"]\n\
                    [[case]]\nname = \"a\"\npayload = \"tiny\"\nconnections = 1\n";
        let written = crate::written::WrittenPlan::read(text, "f", false).expect("a plan");
        let own = crate::plan::OwnProgram { program: "/bin/true".into(), version: String::new() };
        let nginx = crate::proxies::Installed {
            name: "nginx".to_owned(),
            driver: &crate::proxies::nginx::DRIVER,
            program: "nginx".into(),
            version: String::new(),
            build: String::new(),
            template: Default::default(),
            deviation: Default::default(),
        };
        let proxies = if absent { Vec::new() } else { vec![nginx] };
        let results = report::Results {
            proxies: proxies.iter().map(crate::experiment::describe::proxy).collect(),
            cases: written.cases.iter().map(crate::experiment::describe::case).collect(),
            runs: (1..)
                .zip(runs)
                .filter_map(|(round, outcome)| {
                    Some(Run {
                        proxy: "nginx".to_owned(),
                        case: "a".to_owned(),
                        round,
                        began_seconds: 0.0,
                        command: String::new(),
                        step: None,
                        outcome: outcome.clone()?,
                    })
                })
                .collect(),
            ..empty()
        };
        let plan = LabPlan {
            title: written.title,
            command: String::new(),
            file: None,
            own,
            proxies,
            absent: Vec::new(),
            cases: written.cases,
            origins: written.origins,
            timing: written.timing,
            seed: 1,
            notes: Vec::new(),
            changes: Vec::new(),
            published: Vec::new(),
            expectations: written.expectations,
            says_keep_alive: false,
            authorities: Default::default(),
        };
        let judged = judge(&plan, &Summary::from_results(&results));
        judged.into_iter().map(|one| (one.is_met, one.measured.unwrap_or_default())).collect()
    }

    fn empty() -> report::Results {
        let text = "{\"schema\": 4, \"title\": \"\", \"measured_by\": \"\", \"command\": \"\", \"started_unix_seconds\": 0, \
                    \"took_seconds\": 1.0, \"machine\": {\"processor\": \"\", \"architecture\": \"\", \"cores\": 1, \
                    \"memory_bytes\": 1, \"kernel\": \"\", \"governor\": null, \"settings\": {}}, \"conditions\": \
                    {\"load_before\": [0.0, 0.0, 0.0], \"rounds\": 3, \"measured_seconds\": 1.0, \"warm_up_seconds\": 0.0, \
                    \"seed\": 1, \"cores\": {\"proxy\": [], \"origins\": [], \"load\": []}, \"alike\": []}, \"proxies\": [], \
                    \"origins\": [], \"cases\": [], \"runs\": [], \"notes\": []}";
        report::Results::from_json(text).expect("results")
    }

    #[test]
    fn each_broken_input_misses_an_expectation() {
        let figures = |requests: u64, errors: &[(&str, u64)]| {
            let mut measured = measured();
            measured.requests = requests;
            measured.latency =
                LatencyHistogram::from_counts([(900, requests)].into_iter().filter(|(_, count)| *count > 0));
            measured.errors = errors.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
            measured
        };
        let good = || Some(MeasurementOutcome::Measured(figures(9, &[])));
        let invalid = |requests, errors, reason: &str, is_generators| {
            let (reason, measured) = (reason.to_owned(), figures(requests, errors));
            Some(MeasurementOutcome::Invalid { reason, measured, is_generators })
        };
        let failed = || Some(MeasurementOutcome::Failed { reason: "it did not start".to_owned() });
        let both = |p99: &str, errors: &str| [p99, errors].map(str::to_owned);
        // The runs, and the measured value for each expectation; one that is met has no bracket.
        type Row = (&'static str, Vec<Option<MeasurementOutcome>>, [bool; 2]);
        let rows: [Row; 8] = [
            ("all is well", vec![good(), good(), good()], [true, true]),
            (
                "the generator was late in a round",
                vec![good(), invalid(9, &[], "late", true), good()],
                [true, true],
            ),
            (
                "two rounds fail all requests",
                vec![
                    good(),
                    invalid(0, &[("status", 700)], "700 of 700 requests failed", false),
                    invalid(0, &[("status", 700)], "700 of 700 requests failed", false),
                ],
                [false, false],
            ),
            (
                "a round is another page",
                vec![good(), invalid(0, &[("check: size", 5)], "5 of 5", false)],
                [false, false],
            ),
            (
                "a round has too few errors to be invalid",
                vec![Some(MeasurementOutcome::Measured(figures(1_000, &[("check: digest", 1)])))],
                [true, false],
            ),
            ("a round does not start", vec![good(), failed(), good()], [false, false]),
            (
                "a round hangs",
                vec![good(), invalid(9, &[], "4 requests had no response", false)],
                [false, false],
            ),
            ("nothing was measured", vec![None], [false, false]),
        ];
        for (what, runs, expected) in rows {
            let told = told(&runs, false);
            assert_eq!([told[0].0, told[1].0], expected, "{what}: {told:?}");
        }
        assert!(told(&[], true).iter().all(|(is_met, _)| !is_met), "it is not installed");
        let told = told(&[good(), failed()], false);
        let expected =
            both("900 µs (round 2 failed: it did not start)", "0 (round 2 failed: it did not start)");
        assert_eq!([told[0].1.clone(), told[1].1.clone()], expected);
    }
}
