//! Whole reports of a made-up run: their content, not their arrangement.

use report::compare::Comparison;
use report::judge::Trait;
use report::results::*;
use report::summary::Metric;
use report::{Summary, chart, export, markdown, page, published, table, text};

use crate::made::{measured, proxy, refuse, run, sample};

#[test]
fn results_survive_json_and_a_newer_schema_is_refused() {
    let results = sample();
    let text = results.to_json();
    assert_eq!(Results::from_json(&text).expect("what was written"), results);
    let newer = text.replacen(&format!("\"schema\":{SCHEMA}"), &format!("\"schema\":{}", SCHEMA + 1), 1);
    assert!(Results::from_json(&newer).expect_err("it is newer").to_string().contains("newer vanward"));
    assert!(Results::from_json("{}").is_err());
}

#[test]
fn the_terminal_says_what_was_lost_as_well_as_won() {
    let results = sample();
    let text = text::render(&Summary::from_results(&results));
    let line = |start: &str| {
        text.lines()
            .find(|line| line.trim().starts_with(start))
            .unwrap_or_else(|| panic!("no {start}: {text}"))
            .to_owned()
    };
    assert!(line("vanward ").contains("40,600"), "{text}");
    assert!(line("nginx ").contains('4') && !line("nginx ").contains('≈'), "{text}");
    assert!(line("haproxy ").contains('≈'), "{text}");
    let said = text.replace("\n  ", " ");
    assert!(said.contains("vanward lost to nginx in memory"), "{said}");
    assert!(said.contains("vanward won over nginx in requests per second"), "{said}");
    assert!(said.contains("No difference between vanward and haproxy"), "{said}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn an_https_case_says_so_and_has_no_row_without_a_proxy() {
    let mut results = sample();
    results.cases[0].scheme = ClientScheme::Https;
    results.runs.retain(|run| run.proxy != "direct" || run.case != "tiny-closed");
    let https = StartedProcess { command: "nginx --tls".to_owned(), files: Vec::new() };
    results.proxies[2].started.push(Started {
        given: vec!["1 worker".to_owned(), "HTTPS".to_owned()],
        process: https,
        ..Started::default()
    });
    let summary = Summary::from_results(&results);
    assert!(summary.is_complete());
    let names: Vec<&str> = summary.cases[0].rows.iter().map(|row| row.proxy.name.as_str()).collect();
    assert_eq!((names, summary.cases[1].rows.len()), (vec!["vanward", "nginx", "haproxy"], 4));
    let page = page::render(&summary).expect("a page");
    assert!(page.contains("nginx, given: HTTPS") && page.contains("nginx --tls"));
    for report in [text::render(&summary), markdown::render(&summary), page] {
        assert!(report.contains("HTTPS, 128 B, closed loop"), "{report}");
    }
    let said = text::render(&summary).replace("\n  ", " ");
    assert!(said.contains("128 B HTTPS closed loop"), "{said}");
}

#[test]
fn a_file_that_names_no_scheme_is_of_plain_http() {
    let text = sample().to_json().replace("\"scheme\":\"http\",", "");
    assert!(!text.contains("scheme"));
    assert_eq!(Results::from_json(&text).expect("an older file"), sample());
}

#[test]
fn how_proxies_were_started_is_read_from_older_files_too() {
    let text = r#"{"name":"nginx","role":"peer","version":"1","process":{"command":"a","files":[]},
        "https_process":{"command":"b","files":[]}}"#;
    let proxy: ComparedProxy = serde_json::from_str(text).expect("an older proxy");
    let commands: Vec<&str> = proxy.started.iter().map(|started| started.process.command.as_str()).collect();
    assert_eq!(commands, ["a", "b"]);
    assert_eq!(proxy.started[1].given, ["HTTPS"]);
}

#[test]
fn unlike_setups_are_not_ranked() {
    let mut results = sample();
    results.proxies[3].started[0].setup.insert(Trait::Logging, "every request".to_owned());
    let summary = Summary::from_results(&results);
    let said = text::render(&summary).replace("\n  ", " ");
    assert!(said.contains("Logging differs: haproxy: every request; the others: off"), "{said}");
    assert!(said.contains("vanward is not ranked against haproxy: see the judge."), "{said}");
}

/// Other programs took a part of the machine in every measurement.
fn disturbed(rounds: usize) -> Results {
    let mut results = sample();
    results.conditions.rounds = rounds;
    results.command = "vanward lab run mine.toml --seed 1".to_owned();
    results.runs.retain(|run| run.round <= rounds);
    for run in &mut results.runs {
        let MeasurementOutcome::Measured(measured) = &mut run.outcome else {
            panic!("a sample without failures")
        };
        (measured.load_cpu_seconds, measured.origins_cpu_seconds) = (Some(0.1), Some(0.1));
        measured.machine_cpu_seconds = Some(1.9);
        // The proxies were not busy either, which spoils only requests per second.
        if let Some(usage) = &mut measured.usage {
            usage.system_seconds -= 0.2;
        }
    }
    results
}

#[test]
fn a_run_without_a_ranking_says_first_why_and_what_to_do_and_shows_figures_and_losses() {
    let results = disturbed(3);
    let summary = Summary::from_results(&results);
    let text = text::render(&summary);
    let said = text.replace('\n', " ");
    assert!(said.starts_with("Nothing is ranked: other programs used 4"), "{text}");
    assert!(said.contains(" of the CPU; close them, or use `--repeats 6`."), "{text}");
    let row = text.lines().find(|line| line.trim().starts_with("vanward (not ranked)")).expect("a row");
    assert!(row.contains("40,600"), "{text}");
    let said = text.replace("\n  ", " ");
    for part in [
        "Not ranked, but beyond the spread vanward was worse than nginx in memory",
        "6.00 MiB against 4.00 MiB",
    ] {
        assert!(said.contains(part), "{part}: {text}");
    }
    assert!(!said.contains("was worse than haproxy") && !said.contains("lost to"), "{text}");
    for report in [markdown::render(&summary), page::render(&summary).expect("a page")] {
        assert!(report.contains("Nothing is ranked: other programs used"), "{report}");
        assert!(report.contains("vanward (not ranked)"), "{report}");
    }
    // A single round has no spread, so no loss can be named. The demo has another flag.
    let mut once = sample();
    once.runs.retain(|run| run.round == 1);
    let text = text::render(&Summary::from_results(&once));
    let headline = "Nothing is ranked: there are fewer than three rounds; use `--seconds 150`.\n";
    assert!(text.starts_with(headline) && !text.contains("was worse than"), "{text}");
    // Ranked results have no such headline, nor has a run of one proxy.
    let mut alone = disturbed(3);
    alone.proxies.retain(|proxy| proxy.name == "vanward");
    for results in [sample(), alone] {
        let text = text::render(&Summary::from_results(&results));
        assert!(!text.contains("Nothing is ranked"), "{text}");
    }
}

#[test]
fn who_lacks_the_same_in_the_same_cases_is_named_together() {
    let mut results = sample();
    for (proxy, case) in [("nginx", "a"), ("haproxy", "a"), ("nginx", "b"), ("haproxy", "b"), ("squid", "b")]
    {
        let reason = format!("{proxy} cannot be run with TLS");
        results.lacking.push(Lacking { proxy: proxy.to_owned(), case: case.to_owned(), reason });
    }
    let said = text::render(&Summary::from_results(&results)).replace("\n  ", " ");
    for sentence in [
        "- nginx, haproxy cannot be run with TLS, and took no part in a, b.",
        "- squid cannot be run with TLS, and took no part in b.",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
}

#[test]
fn what_was_otherwise_than_the_plan_is_said_in_every_report() {
    let mut results = sample();
    results.conditions.changes = vec!["3 rounds instead of 5".to_owned(), "2 of 8 cases".to_owned()];
    let summary = Summary::from_results(&results);
    let page = page::render(&summary).expect("a page");
    for said in [text::render(&summary), markdown::render(&summary), page.clone()] {
        assert!(said.contains("This is not the whole plan: 3 rounds instead of 5, 2 of 8 cases."), "{said}");
    }
    assert!(
        page.contains("<dt>Changes to the plan</dt><dd>3 rounds instead of 5; 2 of 8 cases</dd>"),
        "{page}"
    );
}

/// The closed loop with one worker and with more. Vanward's rate follows a law; nginx's stays that of one worker.
fn with_workers() -> Results {
    let mut results = sample();
    let (case, runs) = (results.cases[0].clone(), results.runs.clone());
    results.cases.truncate(1);
    results.runs.retain(|run| run.case == case.name);
    for workers in [2usize, 4, 8] {
        let name = format!("tiny-{workers}");
        results.cases.push(Case { name: name.clone(), workers, ..case.clone() });
        let n = workers as f64;
        for run in runs.iter().filter(|run| run.case == case.name) {
            let mut run = run.clone();
            run.case.clone_from(&name);
            let MeasurementOutcome::Measured(measured) = &mut run.outcome else {
                panic!("a sample without failures")
            };
            if run.proxy == "vanward" {
                let grown = n / (1.0 + 0.05 * (n - 1.0) + 0.01 * n * (n - 1.0));
                measured.requests = (measured.requests as f64 * grown) as u64;
            }
            results.runs.push(run);
        }
    }
    results
}

#[test]
fn requests_per_second_against_workers_have_a_chart_and_the_law_that_fits() {
    let results = with_workers();
    let shown = report::overview::by_workers(&Summary::from_results(&results));
    let [shown] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!(shown.caption, "Requests per second against workers: 128 B, closed loop, 32 connections");
    assert!(shown.chart.as_ref().is_some_and(|chart| chart.markup().contains("workers of the proxy")));
    let row = |name: &str| shown.table.rows.iter().find(|row| row[0] == name).expect("a row");
    assert_eq!(shown.table.headings[1..5], ["1 worker", "2 workers", "4 workers", "8 workers"]);
    let vanward = row("vanward");
    assert!(vanward[5].starts_with("5.") || vanward[5].starts_with("4.9"), "{vanward:?}");
    assert!(vanward[6].starts_with("1.0") || vanward[6].starts_with("0.99"), "{vanward:?}");
    assert_eq!(vanward[7..], ["beyond 8", "100%"], "{vanward:?}");
    assert!(row("nginx")[5].starts_with("100% ("), "{:?}", row("nginx"));
    let page = page::render(&Summary::from_results(&results)).expect("a page");
    assert!(page.contains("<h2 id=\"workers\">"), "{page}");
    assert!(report::overview::by_workers(&Summary::from_results(&sample())).is_empty());
}

#[test]
fn what_is_missing_and_what_was_missed_is_said_in_every_report() {
    let mut results = sample();
    results.absent.push(Absent { proxy: "pound".to_owned(), remedy: "build it".to_owned() });
    results.lacking.push(Lacking {
        proxy: "squid".to_owned(),
        case: "tiny-closed".to_owned(),
        reason: "squid cannot be run with TLS".to_owned(),
    });
    results.expectations.push(Expectation {
        text: "p99 < 1ms".to_owned(),
        proxy: "vanward".to_owned(),
        case: "tiny-closed".to_owned(),
        measured: Some("7.00 ms".to_owned()),
        is_met: false,
    });
    let summary = Summary::from_results(&results);
    let terminal = text::render(&summary).replace("\n  ", " ");
    for report in [terminal, markdown::render(&summary), page::render(&summary).expect("a page")] {
        for wanted in ["pound is not installed", "squid cannot be run with TLS", "7.00 ms"] {
            assert!(report.contains(wanted), "{wanted}: {report}");
        }
    }
}

/// Turns the first case into a search: four rates per round and proxy. The last two are too high.
fn searched() -> Results {
    let mut results = sample();
    results.cases[0].arrivals = Arrivals::Searched { bound: "p99 < 10ms".to_owned() };
    let template: Vec<Run> = results.runs.iter().filter(|run| run.case == "tiny-closed").cloned().collect();
    results.runs.retain(|run| run.case != "tiny-closed");
    for run in template {
        let MeasurementOutcome::Measured(measured) = &run.outcome else {
            panic!("a sample without failures")
        };
        for (share, is_met) in [(0.5, true), (0.75, true), (0.78, false), (1.0, false)] {
            let mut measured = measured.clone();
            let rate_per_second = measured.requests as f64 * share;
            measured.requests = rate_per_second as u64;
            let step = Some(SearchStep { rate_per_second, is_met });
            results.runs.push(Run { step, outcome: MeasurementOutcome::Measured(measured), ..run.clone() });
        }
    }
    results
}

#[test]
fn a_search_counts_the_highest_rate_that_met_its_bound() {
    let mut results = searched();
    let summary = Summary::from_results(&results);
    assert_eq!(summary.cases[0].rows[1].valid, 3);
    assert!(text::render(&summary).contains("128 B, highest rate with p99 < 10ms"));
    let page = page::render(&summary).expect("a page");
    for wanted in ["at the rates that were tried", "Highest rate within a bound", "30,450"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    let tried = |results: &Results| {
        let shown = report::overview::latency_against_rate(&Summary::from_results(results));
        let row = shown[0].table.rows.iter().find(|row| row[0] == "nginx").expect("a row").clone();
        row.last().expect("cells").clone()
    };
    assert_eq!(tried(&results), "12");
    for run in results.runs.iter_mut().filter(|run| run.proxy == "nginx") {
        let in_every_round = |step: SearchStep| (step.rate_per_second / 5_000.0).floor() * 5_000.0;
        run.step = run.step.map(|step| SearchStep { is_met: false, rate_per_second: in_every_round(step) });
    }
    assert_eq!(tried(&results), "3", "a rate of three rounds is one point");
    let summary = Summary::from_results(&results);
    assert!(!summary.is_complete());
    assert!(text::render(&summary).replace("\n  ", " ").contains("no rate tried met the bound"));
}

#[test]
fn a_search_that_was_cut_short_found_no_highest_rate() {
    type Cut = fn(&mut Results);
    /// The step of nginx's second round that missed the bound narrowly.
    fn is_near(run: &Run) -> bool {
        let of_round = run.proxy == "nginx" && run.round == 2;
        of_round && run.step.is_some_and(|step| !step.is_met && step.rate_per_second < 26_000.0)
    }
    let cuts: [Cut; 3] = [
        // The search ended before it came near: interrupted, or out of steps.
        |results| results.runs.retain(|run| !is_near(run)),
        // The generator could not send this rate.
        |results| {
            for run in results.runs.iter_mut().filter(|run| is_near(run)) {
                let MeasurementOutcome::Measured(measured) = run.outcome.clone() else { panic!("{run:?}") };
                run.outcome =
                    MeasurementOutcome::Invalid { reason: "late".to_owned(), measured, is_generators: true };
            }
        },
        // The proxy failed this rate, which ends a search.
        |results| {
            for run in results.runs.iter_mut().filter(|run| is_near(run)) {
                run.outcome = MeasurementOutcome::Failed { reason: "it ended".to_owned() };
            }
        },
    ];
    for cut in cuts {
        let mut results = searched();
        cut(&mut results);
        let summary = Summary::from_results(&results);
        let row = summary.cases[0].rows.iter().find(|row| row.proxy.name == "nginx").expect("a row");
        assert_eq!((row.valid, row.refused.len(), row.refused[0].round), (2, 1, 2));
        assert!(text::render(&summary).replace("\n  ", " ").contains("the search ended too early"));
    }
}

#[test]
fn results_of_searches_are_compared_by_what_was_found() {
    let results = searched();
    let comparison = Comparison::new(&results, &results);
    let change = comparison.changes.iter().find(|change| {
        change.proxy == "nginx"
            && change.metric == Metric::RequestsPerSecond
            && change.case.as_deref() == Some("tiny-closed")
    });
    let figure = change.and_then(|change| change.figures).expect("it was measured")[0].median;
    let summary = Summary::from_results(&results);
    let row = summary.cases[0].rows.iter().find(|row| row.proxy.name == "nginx").expect("a row");
    let reported = row.cell(Metric::RequestsPerSecond).estimate.expect("a figure").median;
    assert_eq!(figure, reported);
}

#[test]
fn requests_that_failed_in_refused_measurements_failed_all_the_same() {
    let mut results = sample();
    let of_nginx = |run: &&mut Run| run.proxy == "nginx" && run.case == "tiny-closed";
    let run = results.runs.iter_mut().find(of_nginx).expect("it was measured");
    let MeasurementOutcome::Measured(mut measured) = run.outcome.clone() else { panic!("{run:?}") };
    measured.errors.insert("read".to_owned(), 9_000);
    let spoiled = |is_generators| MeasurementOutcome::Invalid {
        reason: "9,000 requests failed".to_owned(),
        measured: measured.clone(),
        is_generators,
    };
    run.outcome = spoiled(false);
    let errors = |results: &Results| {
        let summary = Summary::from_results(results);
        let row = summary.cases[0].rows.iter().find(|row| row.proxy.name == "nginx").expect("a row");
        let is_found = summary.cases[0].findings.iter().any(|finding| finding.rule == "errors");
        (row.errors, is_found)
    };
    assert_eq!(errors(&results), (9_000, true));
    let run = results.runs.iter_mut().find(of_nginx).expect("it was measured");
    run.outcome = spoiled(true);
    assert_eq!(errors(&results), (0, false), "the generator's fault");
}

#[test]
fn names_of_cases_are_text_in_a_page_wherever_they_stand() {
    let mut results = sample();
    let name = "x\"><img src=q onerror=alert(1)> y";
    for run in results.runs.iter_mut().filter(|run| run.case == "tiny-closed") {
        run.case = name.to_owned();
        let MeasurementOutcome::Measured(measured) = &mut run.outcome else { panic!("{run:?}") };
        measured.samples = vec![UsageSample { at_seconds: 1.0, busy_cores: 0.5, ..UsageSample::default() }];
    }
    results.cases[0].name = name.to_owned();
    let page = page::render(&Summary::from_results(&results)).expect("a page");
    assert!(page.contains("CPU over time") && !page.contains("<img"), "{page}");
}

#[test]
fn each_number_of_connections_has_a_chart_of_latency_against_rate() {
    let mut results = sample();
    let constant = results.cases.remove(1);
    let runs: Vec<Run> = results.runs.iter().filter(|run| run.case == constant.name).cloned().collect();
    results.cases.clear();
    results.runs.clear();
    for connections in [64, 256] {
        for rate_per_second in [10_000.0, 20_000.0] {
            let name = format!("{connections}-{rate_per_second}");
            let arrivals = Arrivals::Constant { rate_per_second };
            results.runs.extend(runs.iter().map(|run| Run { case: name.clone(), ..run.clone() }));
            results.cases.push(Case { name, connections, arrivals, ..constant.clone() });
        }
    }
    let summary = Summary::from_results(&results);
    let mut captions: Vec<String> =
        report::overview::latency_against_rate(&summary).into_iter().map(|shown| shown.caption).collect();
    assert_eq!(captions.len(), 2);
    captions.dedup();
    assert_eq!(captions.len(), 2, "{captions:?}");
    let mut files: Vec<String> =
        export::plots(&summary, &[chart::LIGHT, chart::DARK]).into_iter().map(|plot| plot.name).collect();
    let count = files.len();
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), count, "each in a file of its own");
}

#[test]
fn a_rate_that_all_were_given_is_not_won_by_anybody() {
    let results = sample();
    let summary = Summary::from_results(&results);
    let constant = &summary.cases[1];
    let cell = constant.rows[2].cell(Metric::RequestsPerSecond);
    assert!(cell.estimate.is_some() && cell.beside_subject.is_none());
}

#[test]
fn published_figures_stand_beside_ours_also_of_systems_that_were_not_measured() {
    let mut results = sample();
    results.cases[0].published = Some("theirs".to_owned());
    let published = |system: &str, value| Published {
        system: system.to_owned(),
        case: "theirs".to_owned(),
        metric: "requests_per_second".to_owned(),
        value,
        unit: "1/s".to_owned(),
    };
    let table = |results: &Results| {
        let table = report::overview::published_ratios(&Summary::from_results(results)).expect("a table");
        table.rows.iter().map(|row| row[1..].join(" ")).collect::<Vec<_>>()
    };
    results.published = vec![published("nginx-arm64", 400.0), published("nginx-x86_64", 500.0)];
    assert_eq!(
        table(&results),
        [
            "nginx-arm64 ÷ nginx-x86_64 0.80 — 400 —",
            "nginx-x86_64 ÷ nginx-x86_64 1.00 1.00 500 30,600",
            "vanward ÷ nginx-x86_64 — 1.33 — 40,600",
            "haproxy ÷ nginx-x86_64 — 1.32 — 40,400",
        ]
    );
    results.published = vec![published("another", 48.3)];
    assert_eq!(table(&results)[..2], ["another — — 48.3 —", "vanward — — — 40,600"]);
}

#[test]
fn what_does_not_count_is_left_out_and_said() {
    let mut results = sample();
    refuse(&mut results, "nginx", |measured| MeasurementOutcome::Invalid {
        reason: "it was late".to_owned(),
        measured,
        is_generators: true,
    });
    refuse(&mut results, "haproxy", |_| MeasurementOutcome::Failed { reason: "it did not start".to_owned() });
    let summary = Summary::from_results(&results);
    assert_eq!((summary.cases[0].rows[2].valid, summary.cases[0].rows[3].valid), (2, 2));
    assert!(summary.is_complete());
    for report in [text::render(&summary).replace("\n  ", " "), page::render(&summary).expect("a page")] {
        assert!(report.contains("round 1 does not count: it was late"), "{report}");
        assert!(report.contains("round 1 does not count: it did not start"), "{report}");
    }
}

#[test]
fn charts_show_every_proxy_and_one_without_a_valid_round_as_such() {
    let mut results = sample();
    for run in results.runs.iter_mut().filter(|run| run.proxy == "haproxy" && run.case == "tiny-closed") {
        run.outcome = MeasurementOutcome::Failed { reason: "it did not start".to_owned() };
    }
    results.runs.retain(|run| run.proxy != "nginx" || run.case != "tiny-closed");
    let summary = Summary::from_results(&results);
    let case = &summary.cases[0];
    for chart in [chart::cpu_per_request(case, "id"), chart::latency(case, "id")] {
        let chart = chart.expect("vanward has figures").markup();
        for (name, word) in [("haproxy", "no valid round"), ("nginx", "not measured")] {
            assert!(chart.contains(name) && chart.contains(word), "{name}: {chart}");
        }
    }
    let page = page::render(&summary).expect("a page");
    // In the groups of requests per second, throughput, CPU time and latency, and in the two charts above.
    assert!(page.matches("no valid round").count() >= 6, "{}", page.matches("no valid round").count());
}

#[test]
fn what_does_not_count_for_one_reason_is_said_in_one_sentence() {
    let mut results = sample();
    for (number, run) in results.runs.iter_mut().enumerate() {
        let MeasurementOutcome::Measured(measured) = run.outcome.clone() else { continue };
        let reason = format!("it was late by {number} µs");
        run.outcome = MeasurementOutcome::Invalid { reason, measured, is_generators: true };
    }
    let said = text::render(&Summary::from_results(&results)).replace("\n  ", " ");
    assert_eq!(said.matches("it was late by").count(), 1, "{said}");
    assert!(
        said.contains("24 measurements do not count, of direct, vanward, nginx, haproxy in 2 cases"),
        "{said}"
    );
    assert!(said.contains("8 rows are without a figure for it."), "{said}");
}

#[test]
fn what_timed_out_stands_beside_the_percentiles_that_it_is_not_in() {
    let mut results = sample();
    assert!(!text::render(&Summary::from_results(&results)).contains("timed out"));
    for run in results.runs.iter_mut().filter(|run| run.proxy == "nginx") {
        let MeasurementOutcome::Measured(measured) = &mut run.outcome else { continue };
        measured.errors.insert("timeout".to_owned(), 7);
        measured.origin_connections = Some(42);
    }
    let summary = Summary::from_results(&results);
    let percentiles = table::percentiles(&summary.cases[0]);
    assert_eq!(percentiles.headings.last().map(String::as_str), Some("timed out"));
    let last: Vec<&str> = percentiles.rows.iter().filter_map(|row| row.last().map(String::as_str)).collect();
    assert_eq!(last, ["0", "0", "21", "0"]);
    // The number of connections is a column if it is known.
    let figures = table::figures(&summary.cases[0]);
    let column = figures.headings.iter().position(|heading| heading == "connects").expect("a column");
    assert_eq!((figures.rows[2][column].as_str(), figures.rows[1][column].as_str()), ("42", "—"));
}

#[test]
fn nothing_measured_is_a_dash_and_never_a_number() {
    let mut results = sample();
    for run in &mut results.runs {
        run.outcome = MeasurementOutcome::Failed { reason: "no luck".to_owned() };
    }
    let summary = Summary::from_results(&results);
    assert!(!summary.is_complete());
    for report in
        [text::render(&summary), markdown::render(&summary), page::render(&summary).expect("a page")]
    {
        assert!(report.contains('—') && !report.contains("NaN") && !report.contains("inf "), "{report}");
    }
}

#[test]
fn one_round_claims_no_difference() {
    let mut results = sample();
    results.runs.retain(|run| run.round == 1);
    results.conditions.rounds = 1;
    let text = text::render(&Summary::from_results(&results));
    assert!(!text.contains("won over") && !text.contains("lost to") && !text.contains('±'), "{text}");
    assert!(text.contains("One round"), "{text}");
}

#[test]
fn the_page_shows_how_to_repeat_it_and_takes_nothing_for_markup() {
    let results = sample();
    let page = page::render(&Summary::from_results(&results)).expect("a page");
    for wanted in
        ["vanward demo --seconds 50", "nginx -f", "nbthread 1", "net.core.somaxconn", "2026-12-31 23:59 UTC"]
    {
        assert!(page.contains(wanted), "the page lacks {wanted}");
    }
    assert!(page.contains("A &amp; B &lt;fast&gt;") && !page.contains("<fast>") && !page.contains("<test>"));
}

#[test]
fn markdown_has_a_table_a_case() {
    let results = sample();
    let markdown = markdown::render(&Summary::from_results(&results));
    assert_eq!(markdown.matches("|---|").count(), 2, "{markdown}");
    assert!(markdown.contains("| vanward |"), "{markdown}");
}

/// Six proxies, HTTP and HTTPS, four payloads, a closed loop and four rates, sampled once a second for a minute, with
/// the published figures of monolake.
fn full_matrix() -> Results {
    let mut results = sample();
    results.proxies.extend(["traefik", "envoy", "caddy"].map(|name| proxy(name, ProxyRole::Peer)));
    let rates = [None, Some(5_000.0), Some(10_000.0), Some(20_000.0), Some(30_000.0)];
    let payloads = [("tiny", 128), ("small", 3_269), ("medium", 11_268), ("large", 165_854)];
    let template = results.cases[0].clone();
    results.cases = [ClientScheme::Http, ClientScheme::Https]
        .into_iter()
        .flat_map(|scheme| payloads.map(|payload| (scheme, payload)))
        .flat_map(|(scheme, (payload, payload_bytes))| {
            rates.map(|rate| (scheme, payload, payload_bytes, rate))
        })
        .map(|(scheme, payload, payload_bytes, rate)| Case {
            name: format!("{scheme:?}-{payload}-{}", rate.unwrap_or(0.0)).to_lowercase(),
            scheme,
            payload: payload.to_owned(),
            payload_bytes,
            arrivals: rate.map_or(Arrivals::Closed, |rate_per_second| Arrivals::Constant { rate_per_second }),
            published: rate.is_none().then(|| format!("{scheme:?}-{payload}").to_lowercase()),
            ..template.clone()
        })
        .collect();
    results.published = published::experiment("monolake")
        .expect("it is one of the five")
        .figures()
        .map(|figure| Published {
            system: figure.system.to_owned(),
            case: figure.case.to_owned(),
            metric: figure.metric.to_owned(),
            value: figure.value,
            unit: figure.unit.to_owned(),
        })
        .collect();
    results.runs = Vec::new();
    for (round, case) in (1..=3usize).flat_map(|round| results.cases.iter().map(move |case| (round, case))) {
        for (index, proxy) in
            results.proxies.iter().enumerate().filter(|(_, proxy)| case.includes(proxy.role))
        {
            let slower = (1 + index as u64 / 2) * if case.scheme == ClientScheme::Https { 2 } else { 1 };
            let rate = match case.arrivals {
                Arrivals::Closed | Arrivals::Searched { .. } => 0.0,
                Arrivals::Constant { rate_per_second } => rate_per_second,
            };
            let queued = if rate * slower as f64 > 50_000.0 { 9 } else { 1 };
            let figures = (
                40_000 / slower + 97 * round as u64,
                0.2,
                0.75 + 0.01 * round as f64,
                5 * slower,
                160 * slower * queued + rate as u64 / 100 + round as u64,
            );
            let mut measured = measured(figures, proxy.role == ProxyRole::Direct);
            measured.received_bytes = measured.requests * (case.payload_bytes + 180);
            measured.samples = (1..=60u32)
                .map(|second| UsageSample {
                    at_seconds: f64::from(second),
                    busy_cores: 0.9 + 0.05 * f64::from(second % 3) - 0.1 * (slower as f64 - 1.0) / 4.0,
                    memory_bytes: (5 * slower + u64::from(second) / 10) << 20,
                    threads: 2 + index,
                    connections: 64,
                    ..UsageSample::default()
                })
                .collect();
            results.runs.push(run(proxy, case, round, MeasurementOutcome::Measured(measured)));
        }
    }
    results
}

#[test]
fn a_full_matrix_fits_a_page_that_can_be_mailed() {
    let results = full_matrix();
    let page = page::render(&Summary::from_results(&results)).expect("a page");
    // For visual inspection.
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/full.html"), &page).expect("a file");
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    for wanted in ["Latency against rate", "traefik ÷ nginx", "offer-taken-for-capacity", "CPU over time"] {
        assert!(page.contains(wanted), "the page lacks {wanted}");
    }
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(ids.len(), unique.len(), "an id is used twice");
}

#[test]
fn distributions_and_samples_are_files_by_case_and_proxy() {
    let mut results = sample();
    for run in &mut results.runs {
        if let MeasurementOutcome::Measured(measured) = &mut run.outcome {
            measured.samples =
                vec![UsageSample { at_seconds: 1.0, busy_cores: 0.5, ..UsageSample::default() }];
            let samples = measured.samples.clone();
            measured.load = measured.usage.map(|usage| WatchedUsage { usage, samples });
        }
    }
    let summary = Summary::from_results(&results);
    let names =
        |files: Vec<(String, String)>| -> Vec<String> { files.into_iter().map(|(name, _)| name).collect() };
    assert_eq!(names(export::distributions(&summary))[1], "tiny-closed-vanward.hgrm");
    let files = names(export::collections(&summary));
    assert!(files.len() == 14 && files.contains(&"tiny-constant-nginx-load.csv".to_owned()), "{files:?}");
    let page = page::render(&summary).expect("a page");
    for wanted in
        ["Resources used by proxy, generator and origins", "class=\"series\"", "new uPlot(", "CPU over time"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn csv_has_a_line_for_each_measurement_and_the_reason_of_a_refusal() {
    let mut results = sample();
    refuse(&mut results, "nginx", |measured| MeasurementOutcome::Invalid {
        reason: "late, it was".to_owned(),
        measured,
        is_generators: true,
    });
    let csv = export::csv(&results);
    let columns = csv.lines().next().map_or(0, |line| line.split(',').count());
    assert_eq!((csv.lines().count(), columns), (1 + results.runs.len(), 25));
    assert!(csv.contains("\"late, it was\"") && csv.contains("vanward,tiny-closed,1,,"), "{csv}");
}

#[test]
fn messages_of_streams_have_their_own_words_tables_and_charts() {
    let mut results = sample();
    let streams =
        StreamResults { kind: StreamKind::Echo, per_connection: 1, message_bytes: 200, senders: None };
    results.cases[0].streams = Some(streams);
    for run in results.runs.iter_mut().filter(|run| run.case == "tiny-closed") {
        let MeasurementOutcome::Measured(measured) = &mut run.outcome else { panic!("all are valid") };
        measured.streams = Some(StreamsMeasured {
            opened: 32,
            sent: measured.requests + 3,
            lost: 3,
            gaps: measured.latency.clone(),
            longest_silence_us: 42_000,
            ..StreamsMeasured::default()
        });
    }
    let summary = Summary::from_results(&results);
    let [echo, requests] = &summary.cases[..] else { panic!("two cases") };
    assert_eq!(echo.title(), "WebSocket echo of 200 B, closed loop, 32 connections");
    let figures = table::figures(echo);
    assert_eq!(figures.headings[1..5], ["messages/s", "p50", "p99", "CPU/message"]);
    assert_eq!(table::figures(requests).headings[1], "requests/s");
    let of_streams = table::streams(echo).expect("figures of streams");
    let vanward = &of_streams.rows[1];
    // Three rounds.
    assert_eq!((vanward[0].as_str(), vanward[2].as_str(), vanward[9].as_str()), ("vanward", "9", "42.0 ms"));
    assert!(table::streams(requests).is_none());
    let said = text::render(&summary).replace("\n  ", " ");
    assert!(said.contains("CPU time per request or message of vanward"), "{said}");
    let page = page::render(&summary).expect("a page");
    for words in [
        "CPU time per message",
        "Delay of messages by percentile",
        "percentile of messages",
        "longest silence",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let csv = export::csv(&results);
    let echo = csv.lines().find(|line| line.starts_with("vanward,tiny-closed")).expect("a line");
    assert!(echo.contains(",3,0,0,0,0,") && echo.ends_with(",42000"), "{echo}");
    assert!(
        csv.lines().any(|line| line.starts_with("vanward,tiny-constant") && line.ends_with(",,,,,,,")),
        "{csv}"
    );
    assert_eq!(Results::from_json(&results.to_json()).expect("what was written"), results);

    // A rate that the server sets is no achievement of a proxy.
    results.cases[0].streams =
        Some(StreamResults { kind: StreamKind::Events, per_connection: 1, message_bytes: 0, senders: None });
    let summary = Summary::from_results(&results);
    assert!(summary.cases[0].title().contains("server-sent events (tiny), paced by the server"));
    let row = &summary.cases[0].rows[2];
    assert!(row.cell(Metric::RequestsPerSecond).beside_subject.is_none());
    assert!(row.cell(Metric::CpuPerRequest).beside_subject.is_some());
}

#[test]
fn errors_are_counted_by_their_causes() {
    let mut results = sample();
    assert!(table::errors(&Summary::from_results(&results).cases[0]).is_none());
    for run in results.runs.iter_mut().filter(|run| run.proxy == "nginx" && run.case == "tiny-closed") {
        let MeasurementOutcome::Measured(measured) = &mut run.outcome else { panic!("all are valid") };
        measured.errors = [("check: status", 3), ("check: contains", 1), ("read", run.round as u64)]
            .map(|(kind, count)| (kind.to_owned(), count))
            .into();
    }
    let summary = Summary::from_results(&results);
    let errors = table::errors(&summary.cases[0]).expect("errors");
    assert_eq!(errors.headings, ["", "check: contains", "check: status", "read"]);
    assert_eq!(
        (&errors.rows[2][..], &errors.rows[1][1..]),
        (&["nginx", "3", "9", "6"].map(str::to_owned)[..], &["0", "0", "0"].map(str::to_owned)[..])
    );
    assert!(page::render(&summary).expect("a page").contains("check: contains"));
    assert!(
        text::render(&summary).contains("Errors by cause")
            && markdown::render(&summary).contains("Errors by cause")
    );
    assert!(table::errors(&summary.cases[1]).is_none());
}
