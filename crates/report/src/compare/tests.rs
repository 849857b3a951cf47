//! Pairs of made-up runs with the noise of a shared machine: 2% in each measurement, one disturbed measurement in
//! twenty, a drift within each run, and 10% between the runs.

use super::*;
use crate::results::Results;
use serde_json::json;

const CASES: [&str; 6] = ["tiny", "small", "medium", "large", "tiny-https", "large-https"];

#[derive(Clone, Copy)]
struct MadeUpRun {
    /// Number of [`CASES`] to use.
    cases: usize,
    rounds: usize,
    /// Factor of the subject's cost.
    subject_cost: f64,
    with_peers: bool,
    /// Drift between runs, as a share.
    drift: f64,
}

const QUICK: MadeUpRun =
    MadeUpRun { cases: CASES.len(), rounds: 5, subject_cost: 1.0, with_peers: true, drift: 0.1 };

fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

fn made(random: &mut fastrand::Rng, how: MadeUpRun) -> Results {
    let machine_slower = 1.0 + how.drift * (2.0 * random.f64() - 1.0);
    let names: &[(&str, &str)] = if how.with_peers {
        &[("direct", "direct"), ("vanward", "subject"), ("nginx", "peer"), ("haproxy", "peer")]
    } else {
        &[("vanward", "subject")]
    };
    let mut walk = 1.0;
    let mut runs = Vec::new();
    for round in 1..=how.rounds {
        for case in &CASES[..how.cases] {
            walk *= 1.0 + 0.004 * normal(random);
            for (name, role) in names {
                let cost = if *role == "subject" { how.subject_cost } else { 1.0 };
                let disturbed = if random.f64() < 0.05 { 1.0 + 0.2 * random.f64() } else { 1.0 };
                let mut noise =
                    |spread: f64| machine_slower * walk * disturbed * (1.0 + spread * normal(random));
                let (slower, cpu) = (cost * noise(0.02), cost * noise(0.015));
                let (p50, p99) = (1_000.0 * cost * noise(0.02), 4_000.0 * cost * noise(0.08));
                let requests = (100_000.0 / slower) as u64;
                let usage = json!({"seconds": 5.0, "user_seconds": 0.0, "memory_bytes": 9_000_000, "processes": 1,
                    "threads": 2, "system_seconds": cpu * 48e-6 * requests as f64});
                runs.push(json!({"proxy": name, "case": case, "round": round, "began_seconds": 0.0, "command": "",
                    "outcome": {"kind": "measured", "seconds": 5.0, "requests": requests, "received_bytes": 1,
                        "errors": {}, "latency": [[p50 as u64, 60], [p99 as u64, 40]], "lateness_p99_us": null,
                        "usage": if *role == "direct" { json!(null) } else { usage }}}));
            }
        }
    }
    let proxies = names.iter().map(|(name, role)| {
        json!({"name": name, "role": role, "version": "1", "process": {"command": "", "files": []}})
    });
    let cases = CASES[..how.cases].iter().map(|name| {
        json!({"name": name, "payload": name, "payload_bytes": 128, "connections": 32, "arrivals": {"kind": "closed"}})
    });
    let text = json!({
        "schema": 1, "title": "", "measured_by": "", "command": "", "started_unix_seconds": 0, "took_seconds": 1.0,
        "machine": {"processor": "p", "architecture": "x86_64", "cores": 2, "memory_bytes": 1, "kernel": "k",
            "governor": null, "settings": {}},
        "conditions": {"load_before": [0.0, 0.0, 0.0], "rounds": how.rounds, "measured_seconds": 5.0,
            "warm_up_seconds": 1.0, "seed": 1, "cores": {"proxy": [0], "origins": [1], "load": [1]}, "alike": []},
        "proxies": proxies.collect::<Vec<_>>(), "origins": [], "cases": cases.collect::<Vec<_>>(), "runs": runs, "notes": [],
    });
    serde_json::from_value(text).expect("the form of results")
}

/// Returns in how many pairs any change of the subject is claimed, and in how many it became worse over all cases.
fn claims(before: MadeUpRun, after: MadeUpRun, pairs: usize, seed: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut any, mut worse) = (0, 0);
    for _ in 0..pairs {
        let (one, other) = (made(&mut random, before), made(&mut random, after));
        let comparison = Comparison::new(&one, &other);
        let of_subject = || comparison.changes.iter().filter(|change| change.proxy == "vanward");
        let is_claim =
            |change: &FigureChange| matches!(change.verdict, ChangeVerdict::Better | ChangeVerdict::Worse);
        any += usize::from(of_subject().any(is_claim));
        worse += usize::from(
            of_subject().any(|change| change.case.is_none() && change.verdict == ChangeVerdict::Worse),
        );
    }
    (any, worse)
}

#[test]
fn two_runs_of_the_same_proxy_show_no_difference_in_95_of_100_pairs() {
    let (any, _) = claims(QUICK, QUICK, 100, 1);
    assert!(any <= 5, "a difference was claimed in {any} of 100 pairs");
    let three = MadeUpRun { rounds: 3, ..QUICK };
    let (any, _) = claims(three, three, 100, 2);
    assert!(any <= 5, "of three rounds, a difference was claimed in {any} of 100 pairs");
}

#[test]
fn few_rounds_of_few_cases_tell_little_of_their_noise_and_claim_no_more() {
    for (cases, rounds) in [(1, 3), (2, 3)] {
        let few = MadeUpRun { cases, rounds, ..QUICK };
        let (any, _) = claims(few, few, 200, 9);
        assert!(
            any <= 10,
            "of {cases} cases and {rounds} rounds, a difference was claimed in {any} of 200 pairs"
        );
    }
}

#[test]
fn memory_of_a_control_is_no_drift() {
    let mut random = fastrand::Rng::with_seed(10);
    let steady = MadeUpRun { drift: 0.0, ..QUICK };
    let (one, mut other) = (made(&mut random, steady), made(&mut random, steady));
    for run in other.runs.iter_mut().filter(|run| run.proxy == "nginx") {
        let crate::results::MeasurementOutcome::Measured(measured) = &mut run.outcome else {
            panic!("{run:?}")
        };
        // It shares its libraries with another program that happens to run.
        measured.usage.as_mut().expect("it was watched").memory_bytes -= 1_300_000;
    }
    let comparison = Comparison::new(&one, &other);
    let of_memory = |proxy: &'static str| {
        let changes = comparison.changes.iter().filter(move |change| change.metric == Metric::Memory);
        changes.filter(move |change| change.proxy == proxy).map(|change| change.verdict)
    };
    assert!(of_memory("vanward").all(|verdict| verdict == ChangeVerdict::Equal), "{comparison:?}");
    assert!(of_memory("nginx").all(|verdict| verdict == ChangeVerdict::Better), "{comparison:?}");
}

#[test]
fn a_proxy_slowed_by_5_percent_is_found() {
    let slowed = MadeUpRun { subject_cost: 1.05, ..QUICK };
    let (_, worse) = claims(QUICK, slowed, 40, 3);
    assert!(worse >= 38, "it was found in {worse} of 40 pairs");
}

#[test]
fn without_controls_a_steady_machine_still_shows_it() {
    let alone = MadeUpRun { with_peers: false, drift: 0.005, ..QUICK };
    let (any, _) = claims(alone, alone, 40, 4);
    assert!(any <= 2, "a difference was claimed in {any} of 40 pairs");
    let (_, worse) = claims(alone, MadeUpRun { subject_cost: 1.05, ..alone }, 40, 5);
    assert!(worse >= 30, "it was found in {worse} of 40 pairs");
}

#[test]
fn a_machine_that_others_used_is_said_to_have_been_so() {
    let mut random = fastrand::Rng::with_seed(11);
    let (one, mut other) = (made(&mut random, QUICK), made(&mut random, QUICK));
    let doubt = "In the second results, other programs used CPU time in 6 of 6 cases";
    assert!(!crate::markdown::comparison(&Comparison::new(&one, &other)).contains("used CPU time"));
    for run in &mut other.runs {
        let crate::results::MeasurementOutcome::Measured(measured) = &mut run.outcome else {
            panic!("{run:?}")
        };
        measured.load_cpu_seconds = Some(1.0);
        measured.origins_cpu_seconds = Some(1.0);
        // Both cores for five seconds.
        measured.machine_cpu_seconds = Some(9.9);
    }
    let said = crate::markdown::comparison(&Comparison::new(&one, &other));
    assert!(said.contains(doubt), "{said}");
}

#[test]
fn a_regression_has_to_reach_the_threshold() {
    let mut random = fastrand::Rng::with_seed(6);
    let (one, other) =
        (made(&mut random, QUICK), made(&mut random, MadeUpRun { subject_cost: 1.2, ..QUICK }));
    let comparison = Comparison::new(&one, &other);
    assert_eq!(comparison.basis, Basis::Controls(["direct", "nginx", "haproxy"].map(str::to_owned).to_vec()));
    assert!(comparison.regressions(0.05).count() > 3);
    assert_eq!(comparison.regressions(0.5).count(), 0);
    let better = Comparison::new(&other, &one);
    assert_eq!(better.regressions(0.0).filter(|change| change.proxy == "vanward").count(), 0);
}

#[test]
fn a_gate_judges_the_subject_and_not_its_peers() {
    let mut random = fastrand::Rng::with_seed(12);
    let (one, mut other) = (made(&mut random, QUICK), made(&mut random, QUICK));
    for run in other.runs.iter_mut().filter(|run| run.proxy == "nginx") {
        let crate::results::MeasurementOutcome::Measured(measured) = &mut run.outcome else {
            panic!("{run:?}")
        };
        measured.usage.as_mut().expect("it was watched").memory_bytes *= 2;
    }
    let comparison = Comparison::new(&one, &other);
    assert!(
        comparison
            .changes
            .iter()
            .any(|change| change.proxy == "nginx" && change.verdict == ChangeVerdict::Worse)
    );
    assert!(comparison.has_judged() && comparison.gated == ["vanward"]);
    assert_eq!(comparison.regressions(0.0).count(), 0);
}

#[test]
fn programs_whose_version_nobody_knows_are_no_controls_and_are_judged_where_there_is_no_subject() {
    let mut random = fastrand::Rng::with_seed(13);
    let mut both = [1.0, 1.3].map(|subject_cost| made(&mut random, MadeUpRun { subject_cost, ..QUICK }));
    for results in &mut both {
        let mine = results.proxies.iter_mut().find(|proxy| proxy.name == "vanward").expect("it is there");
        (mine.role, mine.version) = (ProxyRole::Peer, String::new());
    }
    let comparison = Comparison::new(&both[0], &both[1]);
    assert_eq!(comparison.basis, Basis::Controls(["direct", "nginx", "haproxy"].map(str::to_owned).to_vec()));
    assert_eq!(comparison.gated, ["vanward"]);
    assert!(comparison.regressions(0.1).count() > 3);
    // Without a subject, no proxy is judged.
    both.iter_mut().for_each(|results| results.proxies.retain(|proxy| proxy.name != "vanward"));
    let peers = Comparison::new(&both[0], &both[1]);
    assert!(peers.gated.is_empty() && !peers.has_judged());
}

#[test]
fn what_the_judge_refused_in_either_is_left_out() {
    let mut random = fastrand::Rng::with_seed(14);
    let (one, mut other) =
        (made(&mut random, QUICK), made(&mut random, MadeUpRun { subject_cost: 1.3, ..QUICK }));
    for run in other.runs.iter_mut().filter(|run| run.proxy == "vanward" && run.case == "tiny") {
        let crate::results::MeasurementOutcome::Measured(measured) = &mut run.outcome else {
            panic!("{run:?}")
        };
        measured.errors.insert("read".to_owned(), measured.requests / 10);
    }
    let comparison = Comparison::new(&one, &other);
    let of_tiny: Vec<ChangeVerdict> = comparison
        .changes
        .iter()
        .filter(|change| change.proxy == "vanward" && change.case.as_deref() == Some("tiny"))
        .map(|change| change.verdict)
        .collect();
    let refused = ChangeVerdict::Undecided(Doubt::Refused);
    let counts = [ChangeVerdict::Equal, ChangeVerdict::Worse, ChangeVerdict::Equal];
    assert_eq!(of_tiny, [[refused; 5].as_slice(), &counts].concat(), "rounds, errors and bytes are judged");
    let of_tiny = comparison.regressions(0.1).filter(|change| change.case.as_deref() == Some("tiny"));
    assert_eq!(of_tiny.map(|change| change.metric).collect::<Vec<_>>(), [Metric::FailedShare]);
    let said = crate::text::comparison(&comparison).replace("\n  ", " ");
    assert!(
        said.contains("Figures that the judge does not rank in one of the results are undecided"),
        "{said}"
    );
    let mut all = other;
    all.cases.retain(|case| case.name == "tiny");
    let nothing = Comparison::new(&one, &all);
    assert!(!nothing.has_judged() && nothing.regressions(0.0).count() == 1);
}

#[test]
fn two_plans_that_differ_are_said_to_and_what_was_asked_otherwise_is_not_compared() {
    let mut random = fastrand::Rng::with_seed(15);
    let (mut one, mut other) = (made(&mut random, QUICK), made(&mut random, QUICK));
    assert!(Comparison::new(&one, &other).differences.is_empty());
    one.cases[1].arrivals = Arrivals::Constant { rate_per_second: 700.0 };
    other.cases[1].arrivals = Arrivals::Constant { rate_per_second: 1300.0 };
    other.cases[2].connections = 64;
    other.cases[3].upstream = crate::results::OriginProtocol::Https;
    other.conditions.measured_seconds = 1.0;
    other.machine.kernel = "another".to_owned();
    other.incomplete = Some("The run ended after 3 of 30 measurements.".to_owned());
    let comparison = Comparison::new(&one, &other);
    let said = comparison.differences.join("\n");
    for expected in [
        "Durations differ: 5 s in the first results, 1 s in the second.",
        "Machines differ: p, x86_64, 2 cores",
        "another in the second.",
        "The second results are incomplete: The run ended after 3 of 30 measurements.",
        "Rates of small differ: 700/s in the first results, 1,300/s in the second.",
        "medium is not compared, because its settings differ",
        "origins over TLS in the second.",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let compared = |case: &str| {
        let of_case = |change: &&FigureChange| change.case.as_deref() == Some(case);
        comparison.changes.iter().filter(of_case).any(|change| change.figures.is_some())
    };
    assert!(compared("tiny") && compared("small") && !compared("medium") && !compared("large"));
    assert!(crate::markdown::comparison(&comparison).contains("Durations differ"));
}

#[test]
fn one_round_has_no_spread() {
    let mut random = fastrand::Rng::with_seed(16);
    let once = MadeUpRun { rounds: 1, ..QUICK };
    let (one, other) = (made(&mut random, once), made(&mut random, once));
    let said = crate::text::comparison(&Comparison::new(&one, &other));
    assert!(!said.contains('±') && said.contains("undecided: fewer than 3 rounds"), "{said}");
}

#[test]
fn too_few_repeats_are_not_judged_and_other_machines_are_not_taken_for_drift() {
    let mut random = fastrand::Rng::with_seed(7);
    let two = MadeUpRun { rounds: 2, ..QUICK };
    let (one, mut other) = (made(&mut random, two), made(&mut random, two));
    other.cases.pop();
    other.machine.architecture = "aarch64".to_owned();
    let comparison = Comparison::new(&one, &other);
    assert_eq!(comparison.basis, Basis::Machines);
    let named =
        comparison.differences.iter().find(|said| said.starts_with("Machines differ")).expect("it is said");
    assert!(named.contains("p, x86_64, 2 cores") && named.contains("p, aarch64, 2 cores"), "{named}");
    let timed = comparison.changes.iter().filter(|change| change.ratio.is_some());
    assert!(timed.clone().count() > 0);
    assert!(timed.clone().all(|change| change.verdict == ChangeVerdict::Undecided(Doubt::FewRounds)));
    assert_eq!(comparison.unmatched, ["large-https is only in the first results"]);
    assert_eq!(comparison.regressions(0.0).count(), 0);
}

#[test]
fn quantiles_of_the_normal_distribution() {
    for (share, expected) in [(0.975, 1.960), (0.995, 2.576), (0.9995, 3.291), (0.5, 0.0)] {
        assert!((normal_quantile(share) - expected).abs() < 1e-3, "{share}");
    }
}

#[test]
fn a_comparison_is_shown_in_every_form() {
    let mut random = fastrand::Rng::with_seed(8);
    let (one, other) =
        (made(&mut random, QUICK), made(&mut random, MadeUpRun { subject_cost: 1.2, ..QUICK }));
    let comparison = Comparison::new(&one, &other);
    let text = crate::text::comparison(&comparison);
    let markdown = crate::markdown::comparison(&comparison);
    let page = crate::page::comparison(&comparison).expect("a page");
    for form in [&text.replace("\n  ", " "), &markdown, &page] {
        assert!(form.contains("vanward became worse in requests per second, over all cases"), "{form}");
        assert!(form.contains("relative to direct, nginx, haproxy"), "{form}");
    }
    let json: serde_json::Value = serde_json::from_str(&show::json(&comparison)).expect("JSON");
    assert_eq!((&json["basis"], &json["controls"][1]), (&json!("controls"), &json!("nginx")));
    let found = json["changes"].as_array().expect("a list").iter().any(|change| {
        change["proxy"] == "vanward"
            && change["metric"] == "requests_per_second"
            && change["verdict"] == "worse"
    });
    assert!(found, "{json}");
}

#[test]
fn a_control_that_was_not_measured_in_every_round_takes_no_drift_off() {
    let mut random = fastrand::Rng::with_seed(11);
    let how = MadeUpRun { drift: 0.0, ..QUICK };
    let (one, other) = (made(&mut random, how), made(&mut random, how));
    let only_nginx = |results: &Results, rounds: usize| {
        let mut results = results.clone();
        results.proxies.retain(|proxy| ["vanward", "nginx"].contains(&proxy.name.as_str()));
        results.runs.retain(|run| run.proxy == "vanward" || (run.proxy == "nginx" && run.round <= rounds));
        results
    };
    let whole = [only_nginx(&one, QUICK.rounds), only_nginx(&other, QUICK.rounds)];
    assert_eq!(Comparison::new(&whole[0], &whole[1]).basis, Basis::Controls(vec!["nginx".to_owned()]));
    let missed = [only_nginx(&one, QUICK.rounds), only_nginx(&other, QUICK.rounds - 1)];
    let comparison = Comparison::new(&missed[0], &missed[1]);
    assert_eq!(comparison.basis, Basis::SameMachine);
    // Tolerance for the last digit.
    let reach = |change: &FigureChange| {
        change.ratio.map_or(f64::INFINITY, |ratio| (ratio.high / ratio.middle).ln() + 1e-9)
    };
    assert!(comparison.changes.iter().all(|change| reach(change) >= DRIFT_ALONE), "{comparison:?}");
    // Without its own interval, `direct` says nothing about the cost of a proxy.
    let beside_direct = |results: &Results| {
        let mut results = results.clone();
        results.proxies.retain(|proxy| ["vanward", "direct"].contains(&proxy.name.as_str()));
        results
    };
    let (one, other) = (beside_direct(&one), beside_direct(&other));
    let comparison = Comparison::new(&one, &other);
    let cost = comparison.changes.iter().filter(|change| change.metric == Metric::CpuPerRequest);
    assert!(cost.clone().count() > 0 && cost.clone().all(|change| reach(change) >= DRIFT_ALONE));
}

/// Makes two runs of the same proxy, the second with changed measurements in one case.
fn with_changed(change: impl Fn(&mut crate::results::Run)) -> [Results; 2] {
    let mut random = fastrand::Rng::with_seed(17);
    let steady = MadeUpRun { drift: 0.0, ..QUICK };
    let (mut one, mut other) = (made(&mut random, steady), made(&mut random, steady));
    for run in one.runs.iter_mut().chain(&mut other.runs) {
        if let crate::results::MeasurementOutcome::Measured(measured) = &mut run.outcome {
            measured.received_bytes = measured.requests * 400;
        }
    }
    let of_case = |run: &&mut crate::results::Run| run.proxy == "vanward" && run.case == "small";
    other.runs.iter_mut().filter(of_case).for_each(change);
    [one, other]
}

fn figures(run: &mut crate::results::Run) -> &mut crate::results::MeasuredFigures {
    match &mut run.outcome {
        crate::results::MeasurementOutcome::Measured(measured) => measured,
        outcome => panic!("{outcome:?}"),
    }
}

/// The answer of a gate: `passed`, `nothing`, or the metrics that are worse or undecided.
fn gate(comparison: &Comparison<'_>) -> String {
    let named = |word: &str, changes: &[&FigureChange]| {
        let mut names: Vec<&str> = changes.iter().map(|change| change.metric.key()).collect();
        names.dedup();
        format!("{word}: {}", names.join(", "))
    };
    match comparison.gate(0.05) {
        Gate::Passed => "passed".to_owned(),
        Gate::Nothing => "nothing".to_owned(),
        Gate::Worse(changes) => named("worse", &changes),
        Gate::Undecided(changes) => named("undecided", &changes),
    }
}

#[test]
fn what_the_second_run_lost_in_one_case_of_six_passes_no_gate() {
    use crate::results::{MeasurementOutcome, Run};
    type Row = (&'static str, fn(&mut Run), &'static str);
    let failed =
        |run: &mut Run| run.outcome = MeasurementOutcome::Failed { reason: "the proxy ended".to_owned() };
    let rows: [Row; 10] = [
        ("nothing", |_| {}, "passed"),
        ("crashed in every round", failed, "worse: lost_rounds_share"),
        (
            "crashed in one round",
            |run| {
                if run.round == 2 {
                    run.outcome = MeasurementOutcome::Failed { reason: "the proxy ended".to_owned() };
                }
            },
            "worse: lost_rounds_share",
        ),
        (
            "too many errors in every round",
            |run| {
                let (reason, measured) = ("errors".to_owned(), figures(run).clone());
                run.outcome = MeasurementOutcome::Invalid { reason, measured, is_generators: false };
            },
            "worse: lost_rounds_share",
        ),
        (
            "the generator was late in every round",
            |run| {
                let (reason, measured) = ("late".to_owned(), figures(run).clone());
                run.outcome = MeasurementOutcome::Invalid { reason, measured, is_generators: true };
            },
            "undecided: lost_rounds_share",
        ),
        (
            "0.05% errors",
            |run| {
                let failed = figures(run).requests / 2000;
                figures(run).errors.insert("status".to_owned(), failed);
            },
            "worse: failed_share",
        ),
        (
            "0.1% of the messages of streams lost",
            |run| {
                let lost = figures(run).requests / 1000;
                figures(run).streams = Some(crate::results::StreamsMeasured { lost, ..Default::default() });
            },
            "worse: failed_share",
        ),
        ("bodies of a tenth", |run| figures(run).received_bytes /= 10, "worse: response_bytes"),
        ("bodies of twice the size", |run| figures(run).received_bytes *= 2, "worse: response_bytes"),
        (
            "no memory is known",
            |run| figures(run).usage = None,
            "undecided: cpu_per_request_us, memory_bytes",
        ),
    ];
    for (what, change, expected) in rows {
        let [one, other] = with_changed(change);
        let comparison = Comparison::new(&one, &other);
        assert_eq!(gate(&comparison), expected, "{what}");
        // Every form of the report names missing figures.
        if expected != "passed" {
            let said = crate::text::comparison(&comparison);
            assert!(said.contains("small"), "{what}: {said}");
            let json: serde_json::Value = serde_json::from_str(&show::json(&comparison)).expect("JSON");
            let changes = json["changes"].as_array().expect("a list").clone();
            let verdict = expected.split(':').next().expect("a word");
            assert!(changes.iter().any(|change| change["verdict"] == verdict), "{what}: {json}");
        }
    }
}

#[test]
fn few_errors_by_chance_are_no_change_and_bursts_in_both_are_undecided() {
    for (what, before, after, expected) in [
        ("none and three", [0; 5], [0, 0, 3, 0, 0], "passed"),
        ("none and thirty", [0; 5], [0, 0, 30, 0, 0], "worse: failed_share"),
        ("bursts in both", [30, 0, 0, 0, 0], [0, 0, 60, 0, 20], "undecided: failed_share"),
        ("more in every round", [5; 5], [40; 5], "worse: failed_share"),
        ("fewer in every round", [40; 5], [5; 5], "passed"),
    ] {
        let [mut one, mut other] = with_changed(|_| {});
        for (results, errors) in [(&mut one, before), (&mut other, after)] {
            let of_case = |run: &&mut crate::results::Run| run.proxy == "vanward" && run.case == "small";
            for run in results.runs.iter_mut().filter(of_case) {
                let failed: u64 = errors[run.round - 1];
                figures(run).errors.insert("read".to_owned(), failed);
            }
        }
        assert_eq!(gate(&Comparison::new(&one, &other)), expected, "{what}");
    }
}

#[test]
fn cases_and_proxies_that_the_second_run_has_not_are_undecided() {
    let [one, whole] = with_changed(|_| {});
    type Row = (&'static str, fn(&mut Results), &'static str);
    let rows: [Row; 4] = [
        ("a case is missing", |results| drop(results.cases.pop()), "undecided: lost_rounds_share"),
        ("another task", |results| results.cases[0].connections = 64, "undecided: lost_rounds_share"),
        (
            "the run was cut short",
            |results| results.runs.retain(|run| run.case != "tiny"),
            "undecided: lost_rounds_share",
        ),
        (
            "the proxy is missing",
            |results| results.proxies.retain(|proxy| proxy.name != "vanward"),
            "nothing",
        ),
    ];
    for (what, change, expected) in rows {
        let mut other = whole.clone();
        change(&mut other);
        let other = Results {
            runs: other
                .runs
                .iter()
                .filter(|run| other.proxies.iter().any(|proxy| proxy.name == run.proxy))
                .cloned()
                .collect(),
            ..other.clone()
        };
        let comparison = Comparison::new(&one, &other);
        assert_eq!(gate(&comparison), expected, "{what}");
        assert!(!comparison.is_disjoint, "{what}");
    }
    let mut other = whole;
    other.cases.iter_mut().for_each(|case| case.name.push('2'));
    other.runs.iter_mut().for_each(|run| run.case.push('2'));
    let comparison = Comparison::new(&one, &other);
    assert!(comparison.is_disjoint);
    let said = crate::text::comparison(&comparison);
    assert!(said.contains("nothing is compared") && !said.contains("No difference"), "{said}");
}

#[test]
fn a_figure_that_may_have_become_worse_by_half_is_undecided_and_not_equal() {
    let wild = |results: &mut Results| {
        for run in results.runs.iter_mut().filter(|run| run.proxy == "vanward" && run.case == "small") {
            let factor = [1, 4, 1, 4, 2][run.round - 1];
            figures(run).usage.as_mut().expect("it was watched").memory_bytes *= factor;
        }
    };
    let [mut one, mut other] = with_changed(|_| {});
    wild(&mut one);
    wild(&mut other);
    assert_eq!(gate(&Comparison::new(&one, &other)), "undecided: memory_bytes");
}
