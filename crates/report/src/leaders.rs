//! Leaders: the best figure in each metric of a case, among all proxies that the judge ranks.
//!
//! A proxy within the spread of the best shares the lead. With too few rounds for a spread, the best is only ahead.

use serde::Serialize;

use crate::figure;
use crate::findings;
use crate::results::ProxyRole;
use crate::statistics::{Difference, Estimate, difference, median};
use crate::summary::{CaseCounts, CaseSummary, FigureVerdict, Metric, Summary, SummaryRow};
use crate::table::{NOTHING, TextTable};

/// Maximum number of proxies that are listed with their figures.
const LISTED_MOST: usize = 6;

/// Ranking of a metric in a case.
struct Ranking<'c> {
    metric: Metric,
    /// The proxy with the best figure, and those that share its lead.
    leaders: Vec<(&'c str, Estimate)>,
    /// The others, best first.
    others: Vec<(&'c str, Estimate)>,
    /// Proxies with a figure that the judge does not rank. If fewer than two others are left, there is no ranking.
    unranked: Vec<&'c str>,
    /// Whether there are enough rounds to tell the leaders from the others.
    is_judged: bool,
}

/// Answer to "who leads?" in a metric, over all cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeaderAnswer {
    /// The metric: `CPU time per request`.
    pub metric: String,
    pub says: String,
    /// Names with their figures, best first.
    pub figures: Vec<(String, String)>,
    pub notes: Vec<String>,
}

/// Returns an answer for each metric that has a ranking.
pub fn answers(summary: &Summary<'_>) -> Vec<LeaderAnswer> {
    Metric::ALL.into_iter().filter_map(|metric| answer(summary, metric)).collect()
}

fn answer(summary: &Summary<'_>, metric: Metric) -> Option<LeaderAnswer> {
    let rankings: Vec<Ranking<'_>> =
        summary.cases.iter().filter_map(|case| Ranking::new(case, metric)).collect();
    match &rankings[..] {
        [] => None,
        [one] if summary.cases.len() == 1 => Some(one.answer(summary.counted())),
        all => Some(over_all(summary, metric, all)),
    }
}

/// Whether there is something to compare, but the judge ranks nothing.
pub fn is_unranked(summary: &Summary<'_>) -> bool {
    let rankings = summary.cases.iter().flat_map(|case| Metric::ALL.map(|metric| Ranking::new(case, metric)));
    let mut rankings = rankings.flatten().peekable();
    rankings.peek().is_some() && rankings.all(|ranking| ranking.leaders.is_empty())
}

/// Table of the leaders, case by case; `None` for a single case.
pub fn by_case(summary: &Summary<'_>) -> Option<TextTable> {
    let counted = summary.counted();
    let row = |case: &CaseSummary<'_>| {
        let rankings: Vec<_> =
            Metric::ALL.into_iter().filter_map(|metric| Ranking::new(case, metric)).collect();
        let cell = |metric| {
            let ranking = rankings.iter().find(|ranking| ranking.metric == metric);
            ranking.and_then(Ranking::cell).unwrap_or_else(|| NOTHING.to_owned())
        };
        // The row says once that it is not ranked.
        let unranked = rankings.iter().filter(|ranking| ranking.leaders.is_empty());
        let unranked: Vec<&str> = unranked.map(|ranking| ranking.metric.heading(counted)).collect();
        let unranked = match unranked.len() {
            all if all > 1 && all == rankings.len() => "everything".to_owned(),
            _ => unranked.join(", "),
        };
        [case.title()].into_iter().chain(Metric::ALL.map(cell)).chain([unranked]).collect()
    };
    let mut rows: Vec<Vec<String>> = summary.cases.iter().map(row).collect();
    let of_metrics = Metric::ALL.map(|metric| metric.heading(counted));
    let mut headings: Vec<&str> = ["case"].into_iter().chain(of_metrics).collect();
    // Removes the last column if it is empty.
    if rows.iter().all(|row| row.last().is_some_and(String::is_empty)) {
        rows.iter_mut().for_each(|row| row.truncate(headings.len()));
    } else {
        headings.push(findings::word(FigureVerdict::Refused));
    }
    (summary.cases.len() > 1).then(|| TextTable {
        caption: "Leaders by case, with the next in brackets".to_owned(),
        headings: headings.into_iter().map(str::to_owned).collect(),
        rows,
    })
}

impl<'c> Ranking<'c> {
    /// `None` if the metric does not compare in this case, or there is nothing to compare.
    fn new(case: &'c CaseSummary<'_>, metric: Metric) -> Option<Self> {
        let of_rate = metric == Metric::RequestsPerSecond;
        let compared =
            |row: &&SummaryRow<'_>| row.proxy.role != ProxyRole::Direct && metric.is_comparable(case.case);
        let figures = case.rows.iter().filter(compared);
        let figures = figures.filter_map(|row| Some((row.proxy.name.as_str(), row.cell(metric).estimate?)));
        let is_spoiled = |name: &str| case.findings.iter().any(|finding| finding.spoils(name, of_rate));
        let (spoiled, mut ranked): (Vec<_>, Vec<_>) = figures.partition(|(name, _)| is_spoiled(name));
        if spoiled.len() + ranked.len() < 2 {
            return None;
        }
        ranked.sort_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
        if of_rate {
            ranked.reverse();
        }
        let unranked: Vec<&str> = spoiled.into_iter().map(|(name, _)| name).collect();
        // A single proxy does not lead.
        let (Some((_, best)), true) = (ranked.first().copied(), ranked.len() > 1) else {
            return Some(Self { metric, unranked, leaders: Vec::new(), others: Vec::new(), is_judged: true });
        };
        let apart = |estimate: &Estimate| difference(&best, estimate);
        let is_judged = !ranked.iter().any(|(_, estimate)| apart(estimate) == Difference::Unjudged);
        let shares = |(place, (_, estimate)): &(usize, (&str, Estimate))| {
            *place == 0 || apart(estimate) == Difference::Within
        };
        let (leaders, others): (Vec<_>, Vec<_>) = ranked.into_iter().enumerate().partition(shares);
        let named = |all: Vec<(usize, (&'c str, Estimate))>| all.into_iter().map(|(_, one)| one).collect();
        Some(Self { metric, leaders: named(leaders), others: named(others), unranked, is_judged })
    }

    /// `vanward leads`, `no measurable difference between vanward and nginx`, `nginx is ahead`, `nothing is ranked`.
    fn says(&self) -> String {
        let names: Vec<&str> = self.leaders.iter().map(|(name, _)| *name).collect();
        match (&names[..], self.is_judged) {
            ([], _) => "nothing is ranked".to_owned(),
            ([one], true) => format!("{one} leads"),
            ([one, ..], false) => format!("{one} is ahead"),
            (several, true) => format!("no measurable difference between {}", listed(several)),
        }
    }

    fn figure(&self, (name, estimate): &(&str, Estimate)) -> (String, String) {
        let best = self.leaders.first().map_or(estimate.median, |(_, best)| best.median);
        let mut text = self.metric.figure(estimate.median);
        if estimate.count > 1 {
            text.push_str(&format!(" ±{}", figure::percent(estimate.spread())));
        }
        if best > 0.0 && self.others.iter().any(|(other, _)| other == name) {
            text.push_str(&format!(", {}×", figure::ratio(estimate.median / best)));
        }
        ((*name).to_owned(), text)
    }

    fn answer(&self, counted: CaseCounts) -> LeaderAnswer {
        let mut notes = Vec::new();
        if !self.is_judged {
            notes.push("Too few rounds to rule out chance.".to_owned());
        }
        if !self.unranked.is_empty() {
            notes.push(format!("Not ranked: {}.", self.unranked.join(", ")));
        }
        let all = self.leaders.iter().chain(&self.others);
        let mut figures: Vec<_> = all.map(|one| self.figure(one)).collect();
        if figures.len() > LISTED_MOST {
            notes.push(format!("{} more are in the chart.", figures.len() - LISTED_MOST));
            figures.truncate(LISTED_MOST);
        }
        LeaderAnswer { metric: capitalised(self.metric.phrase(counted)), says: self.says(), figures, notes }
    }

    /// `vanward 10.1 µs (nginx 13.2 µs)`; `None` if nothing is ranked.
    fn cell(&self) -> Option<String> {
        let figure = |estimate: &Estimate| self.metric.figure(estimate.median);
        let (_, best) = self.leaders.first()?;
        let names: Vec<&str> = self.leaders.iter().map(|(name, _)| *name).collect();
        let next = self.others.first().map(|(name, other)| format!(" ({name} {})", figure(other)));
        Some(format!("{} {}{}", names.join(" ≈ "), figure(best), next.unwrap_or_default()))
    }
}

/// Answer for several cases: how often each leads, and the ratios of the subject to each peer.
fn over_all(summary: &Summary<'_>, metric: Metric, rankings: &[Ranking<'_>]) -> LeaderAnswer {
    let mut counts: Vec<(&str, usize, usize)> = Vec::new();
    for ranking in rankings {
        for (name, _) in &ranking.leaders {
            let place = counts.iter().position(|(known, ..)| known == name).unwrap_or_else(|| {
                counts.push((name, 0, 0));
                counts.len() - 1
            });
            counts[place].1 += 1;
            counts[place].2 += usize::from(ranking.leaders.len() > 1);
        }
    }
    counts.sort_by(|one, other| other.1.cmp(&one.1).then(one.2.cmp(&other.2)));
    let ranked = rankings.iter().filter(|ranking| !ranking.leaders.is_empty()).count();
    let is_judged = rankings.iter().all(|ranking| ranking.is_judged);
    let verb = if is_judged { "leads" } else { "is ahead" };
    let says = match counts.first() {
        None => "nothing is ranked".to_owned(),
        Some((name, count, _)) => format!("{name} {verb} in {count} of {}", figure::things(ranked, "case")),
    };
    let leads = counts.iter().map(|(name, count, shared)| {
        let shared = if *shared > 0 { format!(", {shared} of them shared") } else { String::new() };
        ((*name).to_owned(), format!("{verb} in {count}{shared}"))
    });
    let mut notes = Vec::new();
    if !is_judged {
        notes.push("Too few rounds to rule out chance.".to_owned());
    }
    if ranked < rankings.len() {
        notes.push(format!("Not ranked: {}.", figure::things(rankings.len() - ranked, "case")));
    }
    let figures = leads.chain(ratios(summary, metric)).collect();
    LeaderAnswer { metric: capitalised(metric.phrase(summary.counted())), says, figures, notes }
}

/// Ratios of the subject to each peer: the median over the cases, and from least to most.
fn ratios(summary: &Summary<'_>, metric: Metric) -> Vec<(String, String)> {
    let Some(subject) = summary.subject() else { return Vec::new() };
    let peers = summary.results.proxies.iter().filter(|proxy| proxy.role == ProxyRole::Peer);
    let of_peer = |name: &str| {
        let rows = summary.cases.iter().flat_map(|case| &case.rows).filter(|row| row.proxy.name == name);
        let beside = rows.filter_map(|row| row.cell(metric).beside_subject);
        let ranked = beside.filter(|beside| beside.verdict != FigureVerdict::Refused);
        let mut ratios: Vec<f64> = ranked.map(|beside| beside.subject_ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let (&least, &most) = (ratios.first()?, ratios.last()?);
        let [least, middle, most] = [least, median(&ratios), most].map(figure::ratio);
        Some(if least == most { middle } else { format!("{middle} ({least} to {most})") })
    };
    let row = |name: &String| Some((format!("{} ÷ {name}", subject.name), of_peer(name)?));
    peers.filter_map(|peer| row(&peer.name)).collect()
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
