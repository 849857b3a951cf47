//! Findings as sentences: wins, losses and ties against each peer, and the limits of the figures.
//!
//! Losses are reported as completely as wins. No sentence claims more than a verdict of `summary`.

use std::collections::HashSet;

use crate::figure;
use crate::judge::{Finding, OTHERS, Spoils};
use crate::results::{Absent, Arrivals, Cores, ProxyRole};
use crate::statistics::{Estimate, median};
use crate::summary::{self, Beside, CaseCounts, CaseSummary, FigureVerdict, Metric, Summary, SummaryRow};
use crate::table::{NOTHING, TextTable};

/// Maximum number of cases that are listed by name; more are given as a number.
const LISTED_MOST: usize = 8;
/// Maximum number of listed cases without a ranking: the judge names each.
const REFUSED_LISTED_MOST: usize = 3;
/// Maximum number of listed proxies and cases whose measurements are invalid for a similar reason, beyond the first.
const ALIKE_MOST: usize = 3;
/// Minimum number of rounds that a reader is advised to run.
const REPEATS_FEWEST: usize = 5;
/// Load average before the run, as a share of the cores, above which the machine was not idle.
const IDLE_LOAD: f64 = 0.25;

/// All sentences, in the order of the text reports.
pub fn all(summary: &Summary<'_>) -> Vec<String> {
    [sentences(summary), expectations(summary), caveats(summary), judged(summary)].concat()
}

/// The subject against each peer: the cost, then losses, wins and ties.
pub fn sentences(summary: &Summary<'_>) -> Vec<String> {
    let Some(subject) = summary.subject() else { return Vec::new() };
    let subject = subject.name.as_str();
    let peers: Vec<&str> = summary
        .results
        .proxies
        .iter()
        .filter(|proxy| proxy.role == ProxyRole::Peer)
        .map(|proxy| proxy.name.as_str())
        .collect();
    let costs = peers.iter().filter_map(|peer| costs(summary, subject, peer));
    let (unranked, ranked): (Vec<&str>, Vec<&str>) =
        peers.iter().partition(|peer| is_never_ranked(summary, peer));
    let verdicts = ranked.iter().flat_map(|peer| {
        let openings = [
            (FigureVerdict::Lost, format!("{subject} lost to {peer} in")),
            (FigureVerdict::Won, format!("{subject} won over {peer} in")),
            (FigureVerdict::Even, format!("No difference between {subject} and {peer} beyond the spread in")),
            (FigureVerdict::Refused, format!("{subject} and {peer} are not ranked in")),
        ];
        let of = |verdict| move |beside: &Beside| beside.verdict == verdict;
        openings
            .into_iter()
            .filter_map(move |(verdict, opening)| list(summary, peer, verdict, of(verdict), &opening))
    });
    // Losses are reported even if the judge ranks nothing.
    let unranked_losses = peers.iter().filter_map(|peer| {
        let is_lost = |beside: &Beside| {
            beside.verdict == FigureVerdict::Refused && beside.by_spread == FigureVerdict::Lost
        };
        let opening = format!("Not ranked, but beyond the spread {subject} was worse than {peer} in");
        list(summary, peer, FigureVerdict::Lost, is_lost, &opening)
    });
    let none = (!unranked.is_empty())
        .then(|| format!("{subject} is not ranked against {}: see the judge.", unranked.join(", ")));
    costs.chain(verdicts).chain(unranked_losses).chain(none).collect()
}

/// Explains why nothing is ranked, and what to do next; `None` if something is ranked, or there is nothing to compare.
pub fn headline(summary: &Summary<'_>) -> Option<String> {
    let peers = summary.results.proxies.iter().filter(|proxy| proxy.role == ProxyRole::Peer);
    let mut verdicts =
        peers.flat_map(|peer| besides(summary, &peer.name)).map(|(_, _, beside, _)| beside.verdict);
    let first = verdicts.next()?;
    if [first]
        .into_iter()
        .chain(verdicts)
        .any(|verdict| matches!(verdict, FigureVerdict::Won | FigureVerdict::Lost | FigureVerdict::Even))
    {
        return None;
    }
    let mut causes: Vec<(&Finding, usize)> = Vec::new();
    let findings = summary.cases.iter().flat_map(|case| &case.findings);
    for finding in findings.filter(|finding| finding.spoils != Spoils::Nothing) {
        match causes.iter_mut().find(|(known, _)| known.rule == finding.rule) {
            Some((_, cases)) => *cases += 1,
            None => causes.push((finding, 1)),
        }
    }
    let more = more_rounds(summary);
    // Prefers the cause that spoils every figure, in most cases; among equals, the one that a reader can end at once.
    let weight = |(cause, cases): &(&Finding, usize)| {
        (cause.spoils == Spoils::Everything, *cases, cause.rule == OTHERS)
    };
    let Some((cause, _)) = causes.into_iter().rev().max_by_key(weight) else {
        return Some(format!("Nothing is ranked: there are fewer than three rounds; use {more}."));
    };
    let else_more = if cause.rule == OTHERS { format!(", or use {more}") } else { String::new() };
    Some(format!("Nothing is ranked: {}; {}{else_more}.", cause.seen, cause.next))
}

/// The flag for twice the rounds: `--repeats 10`.
fn more_rounds(summary: &Summary<'_>) -> String {
    let mut words = summary.results.command.split_whitespace().skip_while(|word| *word != "--seconds");
    match words.nth(1).and_then(|seconds| seconds.parse::<u64>().ok()) {
        Some(seconds) => format!("`--seconds {}`", seconds.saturating_mul(3)),
        None => format!("`--repeats {}`", (2 * summary.results.conditions.rounds).max(REPEATS_FEWEST)),
    }
}

/// Whether the judge refuses to rank every figure of a peer.
fn is_never_ranked(summary: &Summary<'_>, peer: &str) -> bool {
    let mut verdicts = besides(summary, peer).map(|(_, _, beside, _)| beside.verdict).peekable();
    verdicts.peek().is_some() && verdicts.all(|verdict| verdict == FigureVerdict::Refused)
}

/// Caveats: facts that a reader must know before trusting a figure.
pub fn caveats(summary: &Summary<'_>) -> Vec<String> {
    let conditions = &summary.results.conditions;
    let cores = summary.results.cores_by_machine();
    let mut said = Vec::from_iter(summary.results.incomplete.clone());
    // Older results have it among their notes, too.
    said.extend(
        summary
            .results
            .notes
            .iter()
            .filter(|note| summary.results.incomplete.as_ref() != Some(note))
            .cloned(),
    );
    if !conditions.changes.is_empty() {
        said.push(format!("This is not the whole plan: {}.", conditions.changes.join(", ")));
    }
    let shares_proxy = |cores: &&&Cores| {
        cores.proxy.iter().any(|core| cores.load.contains(core) || cores.origins.contains(core))
    };
    if cores.iter().any(|cores| shares_proxy(&cores)) {
        said.push(
            "There were not enough cores to keep the proxy apart from the load and the origins: they took turns \
             on the same one, and latencies and requests per second include the waiting."
                .to_owned(),
        );
    } else if cores.iter().any(|cores| cores.load.iter().any(|core| cores.origins.contains(core))) {
        said.push("The load generator and the origins shared cores; the proxy had its own.".to_owned());
    }
    let load = conditions.load_before[0];
    if load > IDLE_LOAD * summary.results.machine.cores as f64 {
        said.push(format!(
            "The machine was not idle: its load average before the run was {load:.2}. Only ratios within the run are \
             valid, and the spread is larger than necessary."
        ));
    }
    said.extend(absences(summary));
    said.extend(refusals(summary));
    said
}

/// Findings of the judge, by rule. A rule that many cases break is explained once, with the first case.
fn judged(summary: &Summary<'_>) -> Vec<String> {
    type Broken<'s> = Vec<(&'s CaseSummary<'s>, &'s Finding)>;
    let mut by_rule: Vec<(&str, Broken<'_>)> = Vec::new();
    for (case, finding) in
        summary.cases.iter().flat_map(|case| case.findings.iter().map(move |one| (case, one)))
    {
        match by_rule.iter_mut().find(|(rule, _)| *rule == finding.rule) {
            Some((_, broken)) => broken.push((case, finding)),
            None => by_rule.push((finding.rule, vec![(case, finding)])),
        }
    }
    let of_rule = |(_, broken): (&str, Broken<'_>)| {
        let each = |(case, finding): &(&CaseSummary<'_>, &Finding)| {
            format!("{}: {}", case.title(), finding.sentence())
        };
        let [(first, finding), _, _, ..] = &broken[..] else { return broken.iter().map(each).collect() };
        let mut all = (*finding).clone();
        for (_, other) in &broken {
            all.entries.extend(other.entries.iter().cloned());
        }
        let mut seen = HashSet::new();
        all.entries.retain(|entry| seen.insert(entry.clone()));
        vec![format!(
            "In {} of {} cases, such as {}: {}",
            broken.len(),
            summary.cases.len(),
            first.title(),
            all.sentence()
        )]
    };
    by_rule.into_iter().flat_map(of_rule).collect()
}

/// Proxies that are not installed, and cases that a proxy does not support.
fn absences(summary: &Summary<'_>) -> Vec<String> {
    let results = summary.results;
    let not_here = |absent: &Absent| {
        format!("{} is not installed here and was left out; to get it: {}.", absent.proxy, absent.remedy)
    };
    let mut said: Vec<String> = results.absent.iter().map(not_here).collect();
    // Lists each reason of each proxy once. Proxies that lack the same feature in the same cases are joined.
    let mut refused: Vec<(Vec<&str>, &str, Vec<&str>)> = Vec::new();
    for lacking in &results.lacking {
        let (proxy, case) = (lacking.proxy.as_str(), lacking.case.as_str());
        let reason = lacking.reason.strip_prefix(proxy).unwrap_or(&lacking.reason).trim_start();
        match refused.iter_mut().find(|(proxies, known, _)| *proxies == [proxy] && *known == reason) {
            Some((_, _, cases)) => cases.push(case),
            None => refused.push((vec![proxy], reason, vec![case])),
        }
    }
    let mut together: Vec<(Vec<&str>, &str, Vec<&str>)> = Vec::new();
    for (proxies, reason, cases) in refused {
        match together.iter_mut().find(|(_, known, same)| *known == reason && *same == cases) {
            Some((all, ..)) => all.extend(proxies),
            None => together.push((proxies, reason, cases)),
        }
    }
    said.extend(together.into_iter().map(|(proxies, reason, cases)| {
        let proxies = proxies.join(", ");
        match cases.len() {
            few if few <= LISTED_MOST => {
                format!("{proxies} {reason}, and took no part in {}.", cases.join(", "))
            }
            many => {
                format!("{proxies} {reason}, and took no part in {many} of {} cases.", results.cases.len())
            }
        }
    }));
    said
}

/// Missed expectations, then the number of met ones.
pub fn expectations(summary: &Summary<'_>) -> Vec<String> {
    let all = &summary.results.expectations;
    let missed = all.iter().filter(|each| !each.is_met);
    let mut said: Vec<String> = missed
        .map(|each| {
            let measured = each.measured.as_deref().unwrap_or("nothing");
            format!(
                "Missed in {}: {} expects {}, and {measured} was measured.",
                each.case, each.proxy, each.text
            )
        })
        .collect();
    let met = all.iter().filter(|each| each.is_met).count();
    said.extend((!all.is_empty()).then(|| format!("{met} of {} expectations were met.", all.len())));
    said
}

/// Table with a row per peer and case: for each metric, the ratio of the medians (subject to peer) and verdict.
pub fn standings(summary: &Summary<'_>) -> TextTable {
    let counted = summary.counted();
    let subject = summary.subject().map_or("subject", |proxy| proxy.name.as_str());
    let mut rows = Vec::new();
    for peer in summary.results.proxies.iter().filter(|proxy| proxy.role == ProxyRole::Peer) {
        for case in &summary.cases {
            let Some(row) = case.rows.iter().find(|row| row.proxy.name == peer.name) else { continue };
            // Sentences report proxies that took no part.
            if row.cells.iter().all(|cell| cell.estimate.is_none()) {
                continue;
            }
            let cells = row.cells.iter().map(|cell| match cell.beside_subject {
                // The row says once that it is not ranked.
                Some(Beside { subject_ratio, verdict: FigureVerdict::Refused, .. }) => {
                    figure::ratio(subject_ratio)
                }
                Some(beside) => format!("{} {}", figure::ratio(beside.subject_ratio), word(beside.verdict)),
                None => NOTHING.to_owned(),
            });
            let mut cells: Vec<String> = [peer.name.clone(), case.title()].into_iter().chain(cells).collect();
            cells.push(unranked(row, case.counted()));
            rows.push(cells);
        }
    }
    let of_metrics = Metric::ALL.map(|metric| metric.heading(counted));
    let mut headings: Vec<&str> = ["beside", "case"].into_iter().chain(of_metrics).collect();
    // Removes the last column if it is empty.
    if rows.iter().all(|row| row.last().is_some_and(String::is_empty)) {
        rows.iter_mut().for_each(|row| row.truncate(headings.len()));
    } else {
        headings.push(word(FigureVerdict::Refused));
    }
    TextTable {
        caption: format!("The median of {subject} divided by the peer's, and which has the better figure"),
        headings: headings.into_iter().map(str::to_owned).collect(),
        rows,
    }
}

/// Metrics of a row that the judge does not rank: `everything`, or their headings.
fn unranked(row: &SummaryRow<'_>, counted: CaseCounts) -> String {
    let compared = || row.cells.iter().filter_map(|cell| Some((cell.metric, cell.beside_subject?.verdict)));
    let refused: Vec<&str> = compared()
        .filter(|(_, verdict)| *verdict == FigureVerdict::Refused)
        .map(|(metric, _)| metric.heading(counted))
        .collect();
    if refused.len() > 1 && refused.len() == compared().count() {
        "everything".to_owned()
    } else {
        refused.join(", ")
    }
}

pub fn word(verdict: FigureVerdict) -> &'static str {
    match verdict {
        FigureVerdict::Won => "won",
        FigureVerdict::Lost => "lost",
        FigureVerdict::Even => "even",
        FigureVerdict::Unjudged => "unjudged",
        FigureVerdict::Refused => "not ranked",
    }
}

fn costs(summary: &Summary<'_>, subject: &str, peer: &str) -> Option<String> {
    let cost = Metric::CpuPerRequest.phrase(summary.counted());
    let mut ratios: Vec<f64> = besides(summary, peer)
        .filter(|(_, metric, beside, _)| {
            *metric == Metric::CpuPerRequest && beside.verdict != FigureVerdict::Refused
        })
        .map(|(_, _, beside, _)| beside.subject_ratio)
        .collect();
    if ratios.len() > LISTED_MOST {
        ratios.sort_by(f64::total_cmp);
        let [low, middle, high] = [ratios[0], median(&ratios), ratios[ratios.len() - 1]].map(figure::ratio);
        let count = ratios.len();
        return Some(format!(
            "{cost} of {subject} as a ratio to {peer}'s: {middle} at the median of {count} cases, from {low} to {high}."
        ));
    }
    let parts: Vec<String> = besides(summary, peer)
        .filter(|(_, metric, beside, _)| {
            *metric == Metric::CpuPerRequest && beside.verdict != FigureVerdict::Refused
        })
        .map(|(case, _, beside, _)| {
            format!("{} ({})", figure::ratio(beside.subject_ratio), short(summary, case))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("{cost} of {subject} as a ratio to {peer}'s: {}.", parts.join(", ")))
}

/// Sentence with every metric and case for which `holds`, in the form of a verdict. Losses have both figures.
fn list(
    summary: &Summary<'_>,
    peer: &str,
    verdict: FigureVerdict,
    holds: impl Fn(&Beside) -> bool,
    opening: &str,
) -> Option<String> {
    let counted = summary.counted();
    let most = if verdict == FigureVerdict::Refused { REFUSED_LISTED_MOST } else { LISTED_MOST };
    let mut parts: Vec<String> = Vec::new();
    for metric in Metric::ALL {
        let compared = besides(summary, peer).filter(|(_, each, ..)| *each == metric).count();
        let cases: Vec<String> = besides(summary, peer)
            .filter(|(_, each, beside, _)| *each == metric && holds(beside))
            .map(|(case, _, _, [subject, peer])| match verdict {
                FigureVerdict::Lost => {
                    let (subject, peer) = (metric.figure(subject.median), metric.figure(peer.median));
                    format!("{}: {subject} against {peer}", short(summary, case))
                }
                FigureVerdict::Won
                | FigureVerdict::Even
                | FigureVerdict::Unjudged
                | FigureVerdict::Refused => short(summary, case),
            })
            .collect();
        match cases.len() {
            0 => {}
            all if all == compared && verdict != FigureVerdict::Lost => {
                parts.push(format!("{} (every case)", metric.phrase(counted)));
            }
            many if many > most => {
                parts.push(format!("{} ({many} of {compared} cases)", metric.phrase(counted)));
            }
            _ => parts.push(format!("{} ({})", metric.phrase(counted), cases.join("; "))),
        }
    }
    (!parts.is_empty()).then(|| format!("{opening} {}.", parts.join(", ")))
}

/// All comparisons with a peer: case, metric, verdict, and the estimates of subject and peer.
fn besides<'s>(
    summary: &'s Summary<'_>,
    peer: &'s str,
) -> impl Iterator<Item = (&'s CaseSummary<'s>, Metric, Beside, [Estimate; 2])> {
    summary.cases.iter().flat_map(move |case| {
        let row = case.rows.iter().find(|row| row.proxy.name == peer);
        row.into_iter().flat_map(|row| &row.cells).filter_map(move |cell| {
            let subject = case.subject()?.cell(cell.metric).estimate?;
            Some((case, cell.metric, cell.beside_subject?, [subject, cell.estimate?]))
        })
    })
}

/// Short name of a case: `128 B HTTPS closed loop`. The full title if the short name is ambiguous.
fn short(summary: &Summary<'_>, case: &CaseSummary<'_>) -> String {
    let name = brief(case);
    let is_ambiguous = summary.cases.iter().filter(|other| brief(other) == name).count() > 1;
    if is_ambiguous { case.title() } else { name }
}

fn brief(case: &CaseSummary<'_>) -> String {
    let arrivals = match case.case.arrivals {
        Arrivals::Closed if case.case.is_paced_by_server() => "",
        Arrivals::Closed => "closed loop",
        Arrivals::Constant { .. } => "constant rate",
        Arrivals::Searched { .. } => "highest rate",
    };
    let mut words = vec![summary::size(case.case)];
    words.extend(summary::protocol(case.case));
    words.extend((!arrivals.is_empty()).then(|| arrivals.to_owned()));
    words.join(" ")
}

/// Invalid measurements. A similar reason of many proxies and cases is given once, with the first of them.
fn refusals(summary: &Summary<'_>) -> Vec<String> {
    type Rows<'s> = Vec<(&'s CaseSummary<'s>, &'s SummaryRow<'s>)>;
    // Reasons that differ only in their numbers are similar.
    let kind = |reason: &str| reason.replace(|letter: char| letter.is_ascii_digit(), "");
    let mut kinds: Vec<(String, Rows<'_>)> = Vec::new();
    for (case, row) in summary.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row))) {
        let Some(first) = row.refused.first() else { continue };
        let kind = kind(first.reason);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, rows)) => rows.push((case, row)),
            None => kinds.push((kind, vec![(case, row)])),
        }
    }
    kinds.into_iter().flat_map(|(_, rows)| refusals_of_a_kind(&rows)).collect()
}

fn refusals_of_a_kind(rows: &[(&CaseSummary<'_>, &SummaryRow<'_>)]) -> Vec<String> {
    let [(case, row), others @ ..] = rows else { return Vec::new() };
    if others.len() < ALIKE_MOST {
        return rows.iter().filter_map(|(case, row)| refusal(case, row)).collect();
    }
    let Some(first) = row.refused.first() else { return Vec::new() };
    let count: usize = rows.iter().map(|(_, row)| row.refused.len()).sum();
    let without = rows.iter().filter(|(_, row)| row.valid == 0).count();
    let without = match without {
        0 => String::new(),
        without => format!(
            " {} without a figure for it.",
            match without {
                1 => "One row is".to_owned(),
                many => format!("{many} rows are"),
            }
        ),
    };
    let mut seen = HashSet::new();
    let cases = rows.iter().filter(|(case, _)| seen.insert(case.case.name.as_str())).count();
    let mut proxies: Vec<&str> = rows.iter().map(|(_, row)| row.proxy.name.as_str()).collect();
    let mut seen = HashSet::new();
    proxies.retain(|name| seen.insert(*name));
    vec![format!(
        "{count} measurements do not count, of {} in {}; round {} of {}, {}: {}.{without}",
        proxies.join(", "),
        figure::things(cases, "case"),
        first.round,
        row.proxy.name,
        case.title(),
        first.reason
    )]
}

fn refusal(case: &CaseSummary<'_>, row: &SummaryRow<'_>) -> Option<String> {
    let (first, others) = row.refused.split_first()?;
    let of = format!("{}, {}", row.proxy.name, case.title());
    let others = match others.len() {
        0 => String::new(),
        1 => " Nor does another of its measurements.".to_owned(),
        more => format!(" Nor do {more} others of its measurements."),
    };
    Some(format!("{of}: round {} does not count: {}.{others}", first.round, first.reason))
}
