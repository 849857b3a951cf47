//! A valid table, and for each rule a table that breaks only this rule.

use super::*;

/// Three similar entries with five repeats, which break no rule.
fn fair() -> Ranking {
    let entry = |name: &str, per_second: f64| Evidence {
        name: name.to_owned(),
        repeats: [0.98, 0.99, 1.0, 1.01, 1.02].map(|share| share * per_second).to_vec(),
        per_second: Some(per_second),
        offered_per_second: None,
        failed_share: Some(0.0),
        failed_repeats: None,
        response_bytes: Some(310.0),
        generator_share: Some(0.5),
        lateness_us: Some((40.0, 900.0)),
        line_share: Some(0.1),
        busy_share: Some(0.99),
        others_share: Some(0.01),
        setup: [
            (Trait::Logging, "off"),
            (Trait::Workers, "1"),
            (Trait::KeepAlive, "on"),
            (Trait::Ciphers, "TLS 1.3 AES-128-GCM"),
            (Trait::Compression, "off"),
        ]
        .map(|(which, value)| (which, value.to_owned()))
        .into(),
        exhausted: None,
    };
    Ranking {
        case: "tiny".to_owned(),
        ranks_rates: true,
        entries: vec![entry("vanward", 40_000.0), entry("nginx", 31_000.0), entry("haproxy", 35_000.0)],
    }
}

#[test]
fn a_fair_table_breaks_no_rule() {
    assert_eq!(judge(&fair()), []);
}

#[test]
fn what_is_not_known_breaks_no_rule() {
    let entries = vec![Evidence { name: "one".to_owned(), ..Evidence::default() }];
    assert_eq!(judge(&Ranking { case: "c".to_owned(), ranks_rates: true, entries }), []);
}

#[test]
fn each_rule_is_broken_by_its_own_table_only() {
    type Break = fn(&mut Evidence);
    let cases: [(&str, Spoils, Break); 16] = [
        ("generator-bottleneck", Spoils::Rates, |one| one.generator_share = Some(0.97)),
        ("generator-late", Spoils::Everything, |one| one.lateness_us = Some((1_200.0, 4_000.0))),
        ("line-full", Spoils::Rates, |one| one.line_share = Some(0.93)),
        ("proxy-idle", Spoils::Rates, |one| one.busy_share = Some(0.6)),
        ("different-logging", Spoils::Everything, |one| set(one, Trait::Logging, "every request")),
        ("different-workers", Spoils::Everything, |one| set(one, Trait::Workers, "4")),
        ("different-keep-alive", Spoils::Everything, |one| set(one, Trait::KeepAlive, "off")),
        ("different-ciphers", Spoils::Everything, |one| set(one, Trait::Ciphers, "TLS 1.2 AES-256-GCM")),
        ("different-compression", Spoils::Everything, |one| set(one, Trait::Compression, "gzip")),
        ("different-bytes", Spoils::Everything, |one| one.response_bytes = Some(9_000.0)),
        ("errors", Spoils::Everything, |one| one.failed_share = Some(0.02)),
        ("failed-repeats", Spoils::Everything, |one| one.failed_repeats = Some((1, 3))),
        ("noise", Spoils::Nothing, |one| one.repeats = vec![20_000.0, 31_000.0, 31_000.0, 31_500.0]),
        ("others-on-the-machine", Spoils::Everything, |one| one.others_share = Some(0.3)),
        ("ports-or-descriptors", Spoils::Everything, |one| {
            one.exhausted = Some("Too many open files".to_owned());
        }),
        ("offer-taken-for-capacity", Spoils::Rates, |one| one.offered_per_second = Some(31_010.0)),
    ];
    assert_eq!(cases.map(|(rule, ..)| rule), RULES.map(|rule| rule.name), "every rule is tested");
    for (rule, spoils, break_it) in cases {
        let mut ranking = fair();
        break_it(&mut ranking.entries[1]);
        let findings = judge(&ranking);
        let [finding] = findings.as_slice() else { panic!("{rule}: {findings:?}") };
        assert_eq!((finding.rule, finding.spoils), (rule, spoils), "{finding:?}");
        assert_eq!(finding.entries, ["nginx"], "{finding:?}");
        assert!(finding.seen.contains("nginx") && finding.remedy.ends_with('.'), "{finding:?}");
        assert_eq!(finding.spoils("nginx", true), spoils != Spoils::Nothing);
        assert_eq!(finding.spoils("nginx", false), spoils == Spoils::Everything);
        assert!(!finding.spoils("vanward", true));
    }
}

#[test]
fn without_a_majority_all_are_unlike() {
    let mut ranking = fair();
    ranking.entries.pop();
    set(&mut ranking.entries[0], Trait::Logging, "every request");
    let findings = judge(&ranking);
    assert_eq!(findings[0].entries, ["vanward", "nginx"], "{findings:?}");
}

#[test]
fn one_measurement_has_no_spread_to_judge_by() {
    let mut ranking = fair();
    ranking.entries[2].repeats.truncate(1);
    let findings = judge(&ranking);
    assert_eq!((findings.len(), findings[0].rule), (1, "noise"));
    assert!(findings[0].seen.contains("measured once"), "{findings:?}");
}

#[test]
fn where_one_rate_is_offered_to_all_nobody_is_called_idle() {
    let mut ranking = fair();
    ranking.ranks_rates = false;
    ranking.entries[0].busy_share = Some(0.3);
    ranking.entries[0].offered_per_second = Some(40_000.0);
    assert_eq!(judge(&ranking), []);
}

fn set(entry: &mut Evidence, which: Trait, value: &str) {
    entry.setup.insert(which, value.to_owned());
}
