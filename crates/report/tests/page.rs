//! The page and the charts of a made-up run: properties of their structure.

use report::judge::Trait;
use report::results::*;
use report::{Summary, chart, export, leaders, overview, page};

use crate::made::markup::{Element, Markup};
use crate::made::{proxy, refuse, sample};

fn parsed(results: &Results) -> Markup {
    Markup::of(&page::render(&Summary::from_results(results)).expect("a page"))
}

fn fail(results: &mut Results, proxy: &str, case: &str) {
    for run in results.runs.iter_mut().filter(|run| run.proxy == proxy && run.case == case) {
        run.outcome = MeasurementOutcome::Failed { reason: "it did not start".to_owned() };
    }
}

#[test]
fn the_page_is_one_file_that_needs_nothing_from_outside() {
    let text = page::render(&Summary::from_results(&sample())).expect("a page");
    // For visual inspection.
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), &text).expect("a file");
    for outside in ["src=", "@import", "url(", "<script", "<link"] {
        assert!(!text.contains(outside), "the page has {outside}");
    }
    assert!(text.contains("prefers-color-scheme: dark") && text.contains("@media print"));
    let page = Markup::of(&text);
    for link in page.named("a") {
        let id = link.attribute("href").and_then(|to| to.strip_prefix('#')).expect("a place in the page");
        assert!(matches!(page.with_id(id).name.as_str(), "h2" | "h3"), "{id}");
    }
}

#[test]
fn the_page_begins_with_the_answer_and_ends_with_the_details() {
    let page = parsed(&sample());
    let headings: Vec<&str> = page.named("h2").filter_map(|heading| heading.attribute("id")).collect();
    assert_eq!(headings, ["findings", "beside", "judge", "cases", "how"]);
    let contents: Vec<&str> = page.named("a").filter_map(|link| link.attribute("href")).collect();
    assert_eq!(
        contents,
        ["#findings", "#beside", "#judge", "#cases", "#how"],
        "all of them are in the contents"
    );
    let levels: Vec<u32> =
        page.0.iter().filter_map(|element| element.name.strip_prefix('h')?.parse().ok()).collect();
    assert!(levels[0] == 1 && levels.windows(2).all(|two| two[1] <= two[0] + 1), "{levels:?}");
}

#[test]
fn the_answer_says_who_leads_with_figures() {
    let mut results = sample();
    results.cases.truncate(1);
    let summary = Summary::from_results(&results);
    let answers = leaders::answers(&summary);
    let of = |metric: &str| answers.iter().find(|answer| answer.metric == metric).expect("an answer");
    assert_eq!(of("Requests per second").says, "no measurable difference between vanward and haproxy");
    assert_eq!(of("Memory").says, "nginx leads");
    let memory: Vec<&str> = of("Memory").figures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(memory, ["nginx", "vanward", "haproxy"]);
    assert_eq!(of("Memory").figures[1].1, "6.00 MiB ±0%, 1.50×");
    let page = parsed(&results);
    let shown: Vec<&Element> = page.of_class("answer").collect();
    assert_eq!(shown.len(), answers.len());
    for (shown, answer) in shown.iter().zip(&answers) {
        assert!(shown.text.contains(&answer.says), "{}", shown.text);
        assert!(answer.figures.iter().all(|(_, figure)| shown.text.contains(figure)), "{}", shown.text);
    }
}

#[test]
fn nobody_leads_alone_or_unjudged_or_against_the_judge() {
    let mut results = sample();
    results.cases.truncate(1);
    results.runs.retain(|run| run.round == 1);
    let says = |results: &Results| {
        let answers = leaders::answers(&Summary::from_results(results));
        answers.into_iter().find(|answer| answer.metric == "Memory").expect("an answer")
    };
    assert_eq!(says(&results).says, "nginx is ahead");
    assert_eq!(says(&results).notes, ["Too few rounds to rule out chance."]);
    let mut results = sample();
    results.cases.truncate(1);
    results.proxies[2].started[0].setup.insert(Trait::Logging, "every request".to_owned());
    assert_eq!(says(&results).says, "no measurable difference between vanward and haproxy");
    assert_eq!(says(&results).notes, ["Not ranked: nginx."]);
    results.proxies[3].started[0].setup.insert(Trait::Compression, "on".to_owned());
    results.proxies[1].started[0].setup.insert(Trait::Compression, "off".to_owned());
    assert_eq!(says(&results).says, "nothing is ranked");
    results.proxies.truncate(2);
    assert!(leaders::answers(&Summary::from_results(&results)).is_empty(), "there is nobody to lead");
}

#[test]
fn that_nothing_is_ranked_is_said_once() {
    let page = |results: &Results| page::render(&Summary::from_results(results)).expect("a page");
    let mut results = sample();
    assert!(page(&results).contains("class=\"answer\""));
    results.proxies[3].started[0].setup.insert(Trait::Logging, "every request".to_owned());
    results.proxies[2].started[0].setup.insert(Trait::Logging, "errors".to_owned());
    let unranked = page(&results);
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/unranked.html"), &unranked).expect("a file");
    assert!(!unranked.contains("class=\"answer\"") && !unranked.contains("Leaders "));
    // Losses are named, even if nothing is ranked.
    assert!(unranked.contains("<summary>Peer by peer, in 2 sentences</summary>"), "{unranked}");
    let headline = "Nothing is ranked: logging differs: vanward: off; nginx: errors; haproxy: every request; use \
                    the same log for all, or none.";
    assert!(unranked.contains(headline), "{unranked}");
    assert!(unranked.contains("Not ranked, but beyond the spread vanward was worse than nginx in memory"));
    for said in ["Nothing is ranked", "is not ranked against"] {
        assert_eq!(unranked.matches(said).count(), 1, "{said}");
    }
}

#[test]
fn of_several_cases_the_answer_counts() {
    let results = sample();
    let summary = Summary::from_results(&results);
    let answers = leaders::answers(&summary);
    let memory = answers.iter().find(|answer| answer.metric == "Memory").expect("an answer");
    assert_eq!(memory.says, "nginx leads in 2 of 2 cases");
    assert!(memory.figures.contains(&("vanward ÷ nginx".to_owned(), "1.50".to_owned())), "{memory:?}");
    let table = leaders::by_case(&summary).expect("two cases");
    assert_eq!(table.rows[0][5], "nginx 4.00 MiB (vanward 6.00 MiB)");
    // With a fixed rate no proxy leads.
    assert_eq!(table.rows[1][1], "—");
}

#[test]
fn a_rule_of_the_judge_is_one_folded_row_with_a_count() {
    let mut results = sample();
    results.proxies[3].started[0].setup.insert(Trait::Logging, "every request".to_owned());
    let page = parsed(&results);
    let rules: Vec<&Element> = page.of_class("rule").collect();
    let summaries: Vec<&str> = page
        .named("summary")
        .map(|summary| summary.text.as_str())
        .filter(|text| text.contains("different-logging"))
        .collect();
    assert_eq!(summaries, ["different-logging 2 of 2 cases not ranked"]);
    assert!(rules.iter().all(|rule| rule.name == "details" && rule.attribute("open").is_none()));
    let broken = rules.iter().find(|rule| rule.text.contains("different-logging 2")).expect("it is broken");
    let rows = page.inside(broken).filter(|element| element.name == "tr").count();
    assert_eq!(rows, 3, "the headings, and both cases");
}

#[test]
fn not_ranked_stands_once_in_a_row() {
    let mut results = sample();
    results.proxies[3].started[0].setup.insert(Trait::Logging, "every request".to_owned());
    let table = report::findings::standings(&Summary::from_results(&results));
    assert_eq!(table.headings.last().map(String::as_str), Some("not ranked"));
    for row in &table.rows {
        assert_eq!(row.len(), table.headings.len());
        let cells = row.iter().filter(|cell| cell.contains("ranked")).count();
        let last = if row[0] == "haproxy" { "everything" } else { "" };
        assert_eq!((cells, row.last().map(String::as_str)), (0, Some(last)), "{row:?}");
    }
    // Three proxies with different logging are not ranked.
    results.proxies[2].started[0].setup.insert(Trait::Logging, "errors".to_owned());
    let table = leaders::by_case(&Summary::from_results(&results)).expect("two cases");
    let last = |row: &Vec<String>| row.last().cloned().unwrap_or_default();
    assert_eq!(table.rows.iter().map(last).collect::<Vec<_>>(), ["everything", "everything"], "{table:?}");
    assert!(table.rows.iter().all(|row| row.len() == table.headings.len() && row[1] == "—"), "{table:?}");
    let table = report::findings::standings(&Summary::from_results(&sample()));
    assert_eq!(table.headings.last().map(String::as_str), Some("memory"), "no column without need");
}

#[test]
fn every_cell_names_its_column_for_narrow_screens() {
    let page = parsed(&sample());
    let mut cells = 0;
    for table in page.named("table") {
        let headings: Vec<&str> = page
            .inside(table)
            .filter(|element| element.attribute("scope") == Some("col"))
            .map(|heading| heading.text.as_str())
            .collect();
        let labels = table.attribute("style").expect("labels");
        for (index, heading) in headings.iter().enumerate().skip(1) {
            assert!(labels.contains(&format!("--h{}:'{heading}';", index + 1)), "{heading}: {labels}");
        }
        for row in page.inside(table).filter(|element| element.name == "tr").skip(1) {
            let count = page.inside(row).filter(|cell| cell.name == "td").count();
            assert_eq!(count + 1, headings.len(), "{}", row.text);
            cells += count;
        }
        assert!(headings.iter().all(|heading| !heading.is_empty()), "{headings:?}");
    }
    let css = page::render(&Summary::from_results(&sample())).expect("a page");
    assert!(css.contains("td:nth-child(22)::before { content: var(--h22); }"), "and the style shows them");
    assert!(cells > 50, "{cells}");
}

#[test]
fn a_heading_cannot_leave_its_label() {
    let mut results = sample();
    let name = "a';--x:'b\\\"</style>";
    results.proxies[2].name = name.to_owned();
    for run in results.runs.iter_mut().filter(|run| run.proxy == "nginx") {
        run.proxy = name.to_owned();
    }
    let page = parsed(&results);
    let labels: Vec<&str> = page.named("table").filter_map(|table| table.attribute("style")).collect();
    // As HTML escapes the backslashes and the rest.
    assert!(labels.iter().any(|labels| labels.contains("a\\27 ;--x:\\27 b\\5c \\22 \\3c ")), "{labels:?}");
}

#[test]
fn every_chart_has_a_name_and_a_table() {
    let page = parsed(&sample());
    let charts: Vec<&Element> =
        page.0.iter().filter(|element| element.attribute("role") == Some("img")).collect();
    assert_eq!(charts.len(), 8, "four of all cases, CPU and latency of two");
    for chart in charts {
        let name = match chart.attribute("aria-labelledby") {
            Some(id) => page.with_id(id).text.as_str(),
            None => chart.attribute("aria-label").expect("a name"),
        };
        assert!(name.ends_with(". The table below has the figures."), "{name}");
    }
    for figure in page.named("figure") {
        assert!(page.inside(figure).any(|element| element.name == "table"), "{}", figure.text);
    }
}

/// Widths of the bars of a group, as percentages.
fn widths(page: &Markup, group: &Element) -> Vec<f64> {
    let bars = page.inside(group).filter(|element| element.name == "i" && !element.has_class("light"));
    let width = |bar: &Element| {
        let style = bar.attribute("style")?.strip_prefix("width:")?;
        style.strip_suffix('%')?.parse().ok()
    };
    bars.filter_map(width).collect()
}

#[test]
fn each_case_has_an_axis_of_its_own() {
    let mut results = sample();
    for run in results.runs.iter_mut().filter(|run| run.case == "tiny-constant") {
        let MeasurementOutcome::Measured(measured) = &mut run.outcome else { panic!("{run:?}") };
        measured.usage.iter_mut().for_each(|usage| {
            usage.user_seconds /= 100.0;
            usage.system_seconds /= 100.0;
        });
    }
    let page = parsed(&results);
    let chart = page.with_id("all-costs");
    let groups: Vec<Vec<f64>> = page
        .inside(chart)
        .filter(|element| element.has_class("group"))
        .map(|group| widths(&page, group))
        .collect();
    assert_eq!(groups.len(), 2);
    for widths in groups {
        assert!(widths.len() == 3 && widths.iter().all(|width| (40.0..=100.0).contains(width)), "{widths:?}");
    }
}

#[test]
fn direct_is_not_drawn_where_only_proxies_are_slow() {
    for (feature, is_drawn) in
        [("2s of delay for each request", false), ("5.00 kB/s in all", false), ("cache of 256 MB", true)]
    {
        let mut results = sample();
        results.cases[0].features = vec![feature.to_owned()];
        results.cases.truncate(1);
        let summary = Summary::from_results(&results);
        let shown = overview::beside_each_other(&summary);
        for shown in &shown[..2] {
            let chart = shown.chart.as_ref().expect("a chart").markup();
            assert_eq!(chart.contains("direct"), is_drawn, "{feature}: {}", shown.caption);
            assert!(shown.table.headings.iter().any(|heading| heading == "direct"), "the table has it");
        }
        let curves = chart::latency(&summary.cases[0], "id").expect("a chart").markup();
        assert_eq!(curves.matches("class=\"curve").count(), if is_drawn { 4 } else { 3 });
    }
}

#[test]
fn a_proxy_looks_the_same_whoever_is_beside_it() {
    let look = |results: &Results| {
        let chart =
            chart::cpu_per_request(&Summary::from_results(results).cases[0], "id").expect("a chart").markup();
        let markup = Markup::of(&chart);
        let bar = markup.of_class("bar").find(|bar| bar.text.starts_with("nginx")).expect("a bar");
        let marker = markup.inside(bar).find(|element| element.name == "s").expect("a marker");
        marker.attribute("class").expect("a look").to_owned()
    };
    let mut results = sample();
    let beside_haproxy = look(&results);
    results.proxies.retain(|proxy| proxy.name != "haproxy");
    results.proxies.insert(0, proxy("envoy", ProxyRole::Peer));
    assert_eq!(look(&results), beside_haproxy);
    assert_eq!(beside_haproxy, "s2 m2");
}

#[test]
fn no_valid_round_is_drawn_as_such() {
    let mut results = sample();
    fail(&mut results, "haproxy", "tiny-closed");
    let page = parsed(&results);
    let group =
        page.inside(page.with_id("all-rates")).find(|element| element.has_class("group")).expect("a group");
    let tracks: Vec<&Element> = page.inside(group).filter(|element| element.has_class("none")).collect();
    assert_eq!(tracks.iter().map(|track| track.text.as_str()).collect::<Vec<_>>(), ["no valid round"]);
    let latency =
        page.named("svg").find(|chart| chart.text.starts_with("Latency by percentile: 128 B, closed"));
    assert!(latency.is_some_and(|chart| chart.text.contains("haproxy: no valid round")));
}

#[test]
fn a_rate_without_a_valid_round_is_a_cross_on_the_line() {
    let mut results = sample();
    let constant = results.cases.remove(1);
    let runs: Vec<Run> = results.runs.iter().filter(|run| run.case == constant.name).cloned().collect();
    (results.cases, results.runs) = (Vec::new(), Vec::new());
    for rate_per_second in [10_000.0, 20_000.0, 30_000.0] {
        let name = format!("at-{rate_per_second}");
        results.runs.extend(runs.iter().map(|run| Run { case: name.clone(), ..run.clone() }));
        let arrivals = Arrivals::Constant { rate_per_second };
        results.cases.push(Case { name, arrivals, ..constant.clone() });
    }
    fail(&mut results, "nginx", "at-30000");
    let shown = overview::latency_against_rate(&Summary::from_results(&results));
    let chart = Markup::of(&shown[0].chart.as_ref().expect("a chart").markup());
    assert_eq!(chart.of_class("cross").count(), 1);
    assert!(chart.0[0].text.contains("nginx: no valid round"), "{}", chart.0[0].text);
}

#[test]
fn every_chart_is_a_file_that_stands_alone() {
    let mut results = sample();
    refuse(&mut results, "nginx", |_| MeasurementOutcome::Failed { reason: "it did not start".to_owned() });
    let themes = [chart::LIGHT, chart::DARK, chart::PAPER];
    let plots = export::plots(&Summary::from_results(&results), &themes);
    assert_eq!(plots.len(), 8 * 3);
    let mut names = Vec::new();
    for plot in plots {
        let (name, text) = (plot.name.clone(), plot.svg());
        let file = Markup::of(&text);
        names.push(name.clone());
        let title = file.named("title").next().expect("a title").text.clone();
        assert!(!title.is_empty(), "{name}");
        // No variables and no media queries, because some programs that show SVG do not support them.
        for foreign in ["var(", "@media", "class=\"chart\"", "style=\"", "href"] {
            assert!(!text.contains(foreign), "{name}: {foreign}");
        }
        let words: Vec<&str> = file.named("text").map(|text| text.text.as_str()).collect();
        let said = words.join(" ");
        assert!(said.starts_with(&title), "{name}: {said}");
        for wanted in
            ["vanward", "nginx", "Source: What a proxied request costs, 2026-12-31", "3 rounds of 1.00 s"]
        {
            assert!(said.contains(wanted), "{name}: {wanted}: {said}");
        }
        let units = ["µs", "ms", "MB", "per second"];
        assert!(units.iter().any(|unit| said.contains(unit)), "{name}: {said}");
        let keys = file.named("line").filter(|line| line.has_class("curve")).count();
        assert!(keys >= 3, "{name}: a legend");
    }
    let of_theme = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count();
    assert_eq!((of_theme("-dark"), of_theme("-paper")), (8, 8));
}

#[cfg(feature = "pictures")]
#[test]
fn a_picture_is_twice_as_large_as_its_drawing() {
    let results = sample();
    let plots = export::plots(&Summary::from_results(&results), &[chart::PAPER]);
    let plot = plots.iter().find(|plot| plot.name == "latency-tiny-closed-paper").expect("a chart");
    let (png, svg) = (plot.png().expect("a picture"), Markup::of(&plot.svg()));
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    let [width, height] = [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().expect("four")));
    let size =
        |side: &str| svg.0[0].attribute(side).and_then(|text| text.parse::<f64>().ok()).expect("a size");
    assert_eq!([f64::from(width), f64::from(height)], [2.0 * size("width"), 2.0 * size("height")]);
}
