//! Each rule of the judge, with results that break only this rule.

use report::judge::{RULES, Spoils, Trait};
use report::results::*;
use report::summary::{FigureVerdict, Metric};
use report::{Summary, text};

use crate::made::{refuse, sample};

/// Rules that our results cannot break: an offered rate is never ranked, and the lab does not know the capacity of a
/// line. The published tables break them.
const OF_PUBLISHED_TABLES: [&str; 2] = ["line-full", "offer-taken-for-capacity"];

fn change(results: &mut Results, change: impl Fn(usize, &mut MeasuredFigures)) {
    for run in results.runs.iter_mut().filter(|run| run.proxy == "nginx") {
        let MeasurementOutcome::Measured(measured) = &mut run.outcome else {
            panic!("a sample without failures")
        };
        change(run.round, measured);
    }
}

fn set(results: &mut Results, which: Trait, value: &str) {
    for proxy in &mut results.proxies {
        let value = if proxy.name == "nginx" { value } else { "like the others" };
        proxy.started[0].setup.insert(which, value.to_owned());
    }
}

#[test]
fn results_in_order_break_no_rule() {
    let results = sample();
    let summary = Summary::from_results(&results);
    for case in &summary.cases {
        assert_eq!(case.findings, [], "{}", case.case.name);
    }
}

#[test]
fn each_rule_is_broken_by_results_of_its_own() {
    type Break = fn(&mut Results);
    let cases: [(&str, Break); 14] = [
        ("generator-bottleneck", |all| change(all, |_, one| one.load_cpu_seconds = Some(0.96 * one.seconds))),
        ("generator-late", |all| change(all, |_, one| one.lateness_p99_us = Some(50_000))),
        ("proxy-idle", |all| {
            change(all, |_, one| {
                one.usage = one.usage.map(|used| Usage { user_seconds: 0.1, system_seconds: 0.3, ..used });
            });
        }),
        ("different-logging", |all| set(all, Trait::Logging, "every request")),
        ("different-workers", |all| set(all, Trait::Workers, "4")),
        ("different-keep-alive", |all| set(all, Trait::KeepAlive, "off")),
        ("different-ciphers", |all| set(all, Trait::Ciphers, "TLS 1.2 AES-256-GCM")),
        ("different-compression", |all| set(all, Trait::Compression, "gzip")),
        ("different-bytes", |all| change(all, |_, one| one.received_bytes += 5_000 * one.requests)),
        ("errors", |all| {
            change(all, |_, one| {
                one.errors.insert("timeout".to_owned(), one.requests / 200);
            });
        }),
        ("failed-repeats", |all| {
            let first = all.runs.iter_mut().find(|run| run.proxy == "nginx").expect("it was measured");
            first.outcome = MeasurementOutcome::Failed { reason: "it ended".to_owned() };
        }),
        ("noise", |all| change(all, |round, one| one.requests = one.requests * round as u64 / 2)),
        ("others-on-the-machine", |all| {
            change(all, |_, one| {
                one.load_cpu_seconds = Some(0.2);
                one.origins_cpu_seconds = Some(0.1);
                one.machine_cpu_seconds = Some(1.9);
            });
        }),
        ("ports-or-descriptors", |all| {
            refuse(all, "nginx", |measured| MeasurementOutcome::Invalid {
                reason: "400 of 900 requests failed: cannot connect: Cannot assign requested address"
                    .to_owned(),
                measured,
                is_generators: false,
            });
        }),
    ];
    let tested = cases.iter().map(|(rule, _)| *rule).chain(OF_PUBLISHED_TABLES);
    let mut tested: Vec<&str> = tested.collect();
    let mut known = RULES.map(|rule| rule.name);
    tested.sort_unstable();
    known.sort_unstable();
    assert_eq!(tested, known, "every rule is tested");
    for (rule, break_it) in cases {
        let mut results = sample();
        break_it(&mut results);
        let summary = Summary::from_results(&results);
        let closed = &summary.cases[0];
        let found = closed.findings.iter().find(|finding| finding.rule == rule);
        let finding = found.unwrap_or_else(|| panic!("{rule}: {:?}", closed.findings));
        assert_eq!(finding.entries, ["nginx"], "{finding:?}");
        // With a measurement fewer the spread is unknown, and values that spread differ in size.
        let others = closed.findings.iter().filter(|other| other.rule != rule && other.rule != "noise");
        assert_eq!(others.map(|other| other.rule).collect::<Vec<_>>(), [""; 0], "beside {rule}");
        let is_refused = |metric: Metric| {
            let beside = closed.rows[2].cell(metric).beside_subject;
            beside.is_some_and(|beside| beside.verdict == FigureVerdict::Refused)
        };
        let refused = (is_refused(Metric::RequestsPerSecond), is_refused(Metric::CpuPerRequest));
        let expected = match finding.spoils {
            Spoils::Everything => (true, true),
            Spoils::Rates => (true, false),
            Spoils::Nothing => (false, false),
        };
        assert_eq!(refused, expected, "{rule}");
        let said = text::render(&summary).replace("\n  ", " ");
        assert!(said.contains(&finding.sentence()), "{rule}: {said}");
    }
}

#[test]
fn a_generator_that_sees_that_there_are_too_few_descriptors_is_at_a_limit_of_the_system() {
    let mut results = sample();
    refuse(&mut results, "nginx", |_| MeasurementOutcome::Failed {
        reason: "cannot open that many connections (-c): it takes 436 open files (ulimit -n)".to_owned(),
    });
    let summary = Summary::from_results(&results);
    assert!(summary.cases[0].findings.iter().any(|finding| finding.rule == "ports-or-descriptors"));
}
