//! Expectations of a plan: `p99 < 50ms`, `nginx: errors = 0`. Parsed with the plan, and judged after the run.
//!
//! An expectation without a figure counts as missed.

/// Rounds in which a proxy failed.
mod rounds;

use report::Summary;
use report::condition::{ConditionFigure, FigureCondition, StreamFigure};
use report::latency::LatencyHistogram;
use report::results::{Expectation, MeasuredFigures, StreamsMeasured};
use report::statistics::Estimate;
use report::summary::{Metric, SummaryRow};
use serde::Deserialize;

use crate::plan::{CasePlan, LabPlan};
use crate::proxies::{direct, vanward};

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Expect {
    text: String,
    /// Proxy named in the text; without a name, [`Expect::about`] selects the proxies.
    named: Option<String>,
    proxies: Vec<String>,
    condition: FigureCondition,
}

impl TryFrom<String> for Expect {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (named, rest) = match text.split_once(':') {
            Some((name, rest)) => (Some(name.trim().to_owned()), rest),
            None => (None, text.as_str()),
        };
        let condition = FigureCondition::parse(rest)?;
        if matches!(condition.figure(), ConditionFigure::Status(_) | ConditionFigure::StatusShare(_)) {
            return Err(
                "the lab does not count responses by status; write a condition on errors instead".to_owned()
            );
        }
        Ok(Self { text, named, proxies: Vec::new(), condition })
    }
}

/// Bound on latency, for a search for the highest rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound(Expect);

impl TryFrom<String> for Bound {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let expect = Expect::try_from(text)?;
        let is_bound = expect.named.is_none()
            && matches!(expect.condition.figure(), ConditionFigure::Quantile(_))
            && expect.condition.is_upper_limit();
        if is_bound {
            Ok(Self(expect))
        } else {
            Err("a bound must limit latency, such as p99 < 10ms".to_owned())
        }
    }
}

impl Bound {
    /// The bound as it was written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Without latencies, the bound is not met.
    pub(crate) fn is_met_by(&self, latency: &LatencyHistogram) -> bool {
        let ConditionFigure::Quantile(quantile) = self.0.condition.figure() else { return false };
        latency.at_quantile_us(quantile).is_some_and(|us| self.0.condition.is_met_by(us as f64))
    }
}

impl Expect {
    /// Selects the proxies: the named one; otherwise Vanward; if the plan does not have Vanward, all proxies.
    pub(crate) fn about(self, names: &[&str]) -> Result<Self, String> {
        let proxies: Vec<&str> = match &self.named {
            Some(named) if !names.contains(&named.as_str()) => {
                return Err(format!(
                    "the plan has no proxy {named:?}, which {:?} names; it has {}",
                    self.text,
                    names.join(", ")
                ));
            }
            Some(named) => vec![named],
            None if names.contains(&vanward::DRIVER.name) => vec![vanward::DRIVER.name],
            None => names.iter().copied().filter(|name| *name != direct::DRIVER.name).collect(),
        };
        if proxies.is_empty() {
            return Err(format!(
                "{:?} applies to no proxy: put a name before it, such as direct:",
                self.text
            ));
        }
        let proxies = proxies.into_iter().map(str::to_owned).collect();
        Ok(Self { proxies, ..self })
    }

    /// Rejects an expectation of streams in a plan without them.
    pub(crate) fn of_streams(self, has_streams: bool) -> Result<Self, String> {
        if self.is_of_streams() && !has_streams {
            return Err(format!("{:?} applies to streams, but no case of the plan has streams", self.text));
        }
        Ok(self)
    }

    /// Whether only streams have its figure.
    fn is_of_streams(&self) -> bool {
        matches!(self.condition.figure(), ConditionFigure::Stream(_))
    }

    /// Removes proxies that take no part in a run, and returns their names.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        self.proxies.extract_if(.., |name| !is_there(name)).collect()
    }

    /// The expectation as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the measured value as text, and whether it meets the expectation; `None` if nothing was measured.
    fn judged(&self, row: &SummaryRow<'_>) -> Option<(String, bool)> {
        if row.valid == 0 {
            return None;
        }
        let value = match self.condition.figure() {
            ConditionFigure::Quantile(quantile) => {
                let of_round = |measured: &MeasuredFigures| measured.latency.at_quantile_us(quantile);
                let by_round = row.by_round(|measured| of_round(measured).map(|us| us as f64));
                return self.over_rounds(&by_round, row.latency.at_quantile_us(quantile)? as f64);
            }
            ConditionFigure::Stream(StreamFigure::Gap(quantile)) => {
                let by_round = row.by_round(|measured| gap_us(measured.streams.as_ref()?, quantile));
                return self.over_rounds(&by_round, gap_us(&row.streams()?, quantile)?);
            }
            ConditionFigure::Mean => row.latency.mean_us()?,
            ConditionFigure::Errors => row.errors as f64,
            ConditionFigure::ErrorShare => row.failed_share?,
            ConditionFigure::Rate => row.cell(Metric::RequestsPerSecond).estimate?.median,
            ConditionFigure::CpuPerRequest => row.cell(Metric::CpuPerRequest).estimate?.median,
            ConditionFigure::Memory => row.cell(Metric::Memory).estimate?.median,
            ConditionFigure::Stream(figure) => of_streams(row, figure)?,
            // The parser rejects these figures.
            ConditionFigure::Status(_) | ConditionFigure::StatusShare(_) => return None,
        };
        Some((self.condition.told(value), self.condition.is_met_by(value)))
    }

    /// Judges the median of the rounds, as in the tables, and all rounds together: slow requests of one round do not
    /// move the median. If only the latter misses, the text is that of the worst round, with its number.
    fn over_rounds(&self, by_round: &[(usize, f64)], together: f64) -> Option<(String, bool)> {
        let shown = Estimate::from_values(by_round.iter().map(|(_, value)| *value))?.median;
        let is_met = self.condition.is_met_by(shown);
        if !is_met || self.condition.is_met_by(together) {
            return Some((self.condition.told(shown), is_met));
        }
        let highest = by_round.iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let lowest = by_round.iter().min_by(|(_, one), (_, other)| one.total_cmp(other));
        let (round, value) = if self.condition.is_upper_limit() { highest } else { lowest }?;
        Some((format!("{} in round {round}", self.condition.told(*value)), false))
    }
}

/// A percentile of the times between two messages; 1 is the longest silence.
fn gap_us(streams: &StreamsMeasured, quantile: f64) -> Option<f64> {
    match quantile {
        1.0 => Some(streams.longest_silence_us as f64),
        quantile => streams.gaps.at_quantile_us(quantile).map(|us| us as f64),
    }
}

fn of_streams(row: &SummaryRow<'_>, figure: StreamFigure) -> Option<f64> {
    let streams = row.streams()?;
    let count = match figure {
        StreamFigure::Lost => streams.lost,
        StreamFigure::LostShare => {
            let all = row.requests + streams.lost;
            return (all > 0).then(|| streams.lost as f64 / all as f64);
        }
        StreamFigure::Duplicates => streams.duplicates,
        StreamFigure::OutOfOrder => streams.out_of_order,
        StreamFigure::ClosedEarly => streams.closed_early,
        StreamFigure::Reconnected => streams.reconnected,
        StreamFigure::SentRate => return row.sent_per_second().map(|estimate| estimate.median),
        // Judged by round.
        StreamFigure::Gap(_) => return None,
    };
    Some(count as f64)
}

/// Judges each expectation for each of its proxies in each case. A missing figure is a miss for any reason: the proxy
/// is not installed, does not support the case, or was not measured.
pub(crate) fn judge(plan: &LabPlan, summary: &Summary<'_>) -> Vec<Expectation> {
    let about = plan
        .expectations
        .iter()
        .flat_map(|expect| expect.proxies.iter().map(move |proxy| (expect, proxy.as_str())));
    let mut judged = Vec::new();
    for (expect, proxy) in about {
        let known = plan.proxies.iter().find(|installed| installed.name == proxy);
        let is_in = |case: &&CasePlan| {
            known.is_none_or(|installed| case.includes(installed))
                && (case.streams.is_some() || !expect.is_of_streams())
        };
        let missed = |case: &str| Expectation {
            text: expect.text.clone(),
            proxy: proxy.to_owned(),
            case: case.to_owned(),
            measured: None,
            is_met: false,
        };
        let before = judged.len();
        judged.extend(plan.cases.iter().filter(is_in).map(|case| {
            let of_case = summary.cases.iter().find(|summary| summary.case.name == case.name);
            let row = of_case.and_then(|summary| summary.rows.iter().find(|row| row.proxy.name == proxy));
            match row.and_then(|row| expect.judged(row)) {
                Some((text, is_met)) => Expectation { measured: Some(text), is_met, ..missed(&case.name) },
                None => missed(&case.name),
            }
        }));
        if judged.len() == before {
            judged.push(missed("no case of the plan"));
        }
    }
    rounds::take_back(&mut judged, &summary.results.runs);
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Expect, String> {
        Expect::try_from(text.to_owned())
    }

    #[test]
    fn figures_that_only_a_generator_knows_are_refused() {
        assert!(read("5xx = 0").expect_err("no status").contains("by status"));
        assert!(read("vanward: errros = 0").expect_err("a slip").contains("did you mean \"errors\"?"));
    }

    fn about(text: &str, names: &[&str]) -> Result<Vec<String>, String> {
        read(text)?.about(names).map(|expect| expect.proxies)
    }

    #[test]
    fn an_expectation_is_of_whom_it_names_else_of_ours_else_of_every_proxy() {
        let cases: [(&str, &[&str], &[&str]); 4] = [
            ("p99 < 1ms", &["direct", "vanward", "nginx"], &["vanward"]),
            ("p99 < 1ms", &["direct", "mine", "nginx"], &["mine", "nginx"]),
            ("nginx: p99 < 1ms", &["direct", "vanward", "nginx"], &["nginx"]),
            ("direct: errors = 0", &["direct"], &["direct"]),
        ];
        for (text, names, expected) in cases {
            assert_eq!(about(text, names).expect(text), expected, "{text}");
        }
        for (text, names) in
            [("nginx: p99 < 1ms", ["direct", "vanward"]), ("haproxy: errors = 0", ["mine", "nginx"])]
        {
            assert!(about(text, &names).expect_err(text).contains("the plan has no proxy"), "{text}");
        }
        assert!(about("p99 < 1ms", &["direct"]).is_err(), "nobody is left");
        assert!(read(": p99 < 1ms").expect("it has a name").about(&["mine"]).is_err());
        assert!(Bound::try_from("nginx: p99 < 1ms".to_owned()).is_err());
    }

    #[test]
    fn a_bound_is_one_on_latency() {
        let bound = Bound::try_from("p99 < 10ms".to_owned()).expect("a bound");
        assert_eq!(bound.text(), "p99 < 10ms");
        assert!(bound.is_met_by(&LatencyHistogram::from_counts([(9_000, 100)])));
        assert!(!bound.is_met_by(&LatencyHistogram::from_counts([(9_000, 98), (11_000, 2)])));
        assert!(!bound.is_met_by(&LatencyHistogram::default()));
        for text in ["errors = 0", "p99 > 10ms", "requests/s < 5", "fast"] {
            assert!(Bound::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_expectation_is_judged_by_the_table_s_figure_or_names_the_round_that_missed_it() {
        let expect = |text: &str| read(text).expect("an expectation");
        for (text, rounds, together, expected) in [
            ("p99 < 50ms", [8_000.0, 9_000.0, 7_000.0], 9_000.0, ("8.00 ms", true)),
            // Two of three rounds are fast, and so is the median.
            ("p99 < 50ms", [8_000.0, 410_000.0, 7_000.0], 200_000.0, ("410 ms in round 2", false)),
            ("p99 < 50ms", [80_000.0, 90_000.0, 7_000.0], 90_000.0, ("80.0 ms", false)),
            // The table's figure counts, although most requests were in fast rounds.
            ("p50 < 50ms", [80_000.0, 90_000.0, 7_000.0], 9_000.0, ("80.0 ms", false)),
            ("max < 1s", [10_000.0, 20_000.0, 2_000_000.0], 2_000_000.0, ("2.00 s in round 3", false)),
            ("p50 > 5ms", [8_000.0, 1_000.0, 9_000.0], 4_000.0, ("1.00 ms in round 2", false)),
        ] {
            let by_round: Vec<(usize, f64)> = (1..).zip(rounds).collect();
            let (shown, is_met) = expect(text).over_rounds(&by_round, together).expect("it was measured");
            assert_eq!((shown.as_str(), is_met), expected, "{text} {rounds:?}");
        }
        assert_eq!(expect("p99 < 1s").over_rounds(&[], 1.0), None, "nothing was measured");
    }
}
