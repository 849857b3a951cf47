//! Expectations of a plan: `p99 < 50ms`, `nginx: errors = 0`. Parsed with the plan, and judged after the run.
//!
//! An expectation without a figure counts as missed.

use report::Summary;
use report::condition::{Condition, Figure, StreamFigure};
use report::latency::Latency;
use report::results::Expectation;
use report::summary::{Metric, Row};
use serde::Deserialize;

use crate::plan::{CasePlan, Plan};
use crate::proxies::{direct, vanward};

/// An expectation of a plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Expect {
    text: String,
    /// Proxy named in the text; without a name, [`Expect::about`] selects the proxies.
    named: Option<String>,
    /// Proxies that the expectation is about.
    proxies: Vec<String>,
    condition: Condition,
}

impl TryFrom<String> for Expect {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (named, rest) = match text.split_once(':') {
            Some((name, rest)) => (Some(name.trim().to_owned()), rest),
            None => (None, text.as_str()),
        };
        let condition = Condition::parse(rest)?;
        if matches!(condition.figure(), Figure::Status(_) | Figure::StatusShare(_)) {
            return Err(
                "the lab counts no responses by status; expect something of errors instead".to_owned()
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
            && matches!(expect.condition.figure(), Figure::Quantile(_))
            && expect.condition.is_upper_limit();
        if is_bound {
            Ok(Self(expect))
        } else {
            Err("a bound is one on latency, such as p99 < 10ms".to_owned())
        }
    }
}

impl Bound {
    /// The bound as it was written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether these latencies meet the bound. Without latencies, it is not met.
    pub(crate) fn is_met_by(&self, latency: &Latency) -> bool {
        let Figure::Quantile(quantile) = self.0.condition.figure() else { return false };
        latency.at_quantile_us(quantile).is_some_and(|us| self.0.condition.is_met_by(us as f64))
    }
}

impl Expect {
    /// Selects the proxies: the named one; otherwise Vanward; if the plan does not have Vanward, all proxies.
    pub(crate) fn about(self, names: &[&str]) -> Result<Self, String> {
        let proxies: Vec<&str> = match &self.named {
            Some(named) if !names.contains(&named.as_str()) => {
                return Err(format!(
                    "the plan has no proxy {named:?}, of which {:?} is expected; it has {}",
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
                "{:?} is expected of no proxy: put a name before it, such as direct:",
                self.text
            ));
        }
        let proxies = proxies.into_iter().map(str::to_owned).collect();
        Ok(Self { proxies, ..self })
    }

    /// Refuses an expectation of streams in a plan without them.
    pub(crate) fn of_streams(self, has_streams: bool) -> Result<Self, String> {
        if self.is_of_streams() && !has_streams {
            return Err(format!("{:?} is of streams, and no case of the plan has any", self.text));
        }
        Ok(self)
    }

    /// Whether only streams have its figure.
    fn is_of_streams(&self) -> bool {
        matches!(self.condition.figure(), Figure::Stream(_))
    }

    /// Removes proxies that take no part in a run, and returns their names.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        self.proxies.extract_if(.., |name| !is_there(name)).collect()
    }

    /// The expectation as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The measured figure, if there is one.
    fn measured(&self, row: &Row<'_>) -> Option<f64> {
        if row.valid == 0 {
            return None;
        }
        match self.condition.figure() {
            Figure::Quantile(quantile) => row.latency.at_quantile_us(quantile).map(|us| us as f64),
            Figure::Mean => row.latency.mean_us(),
            Figure::Errors => Some(row.errors as f64),
            Figure::ErrorShare => row.failed_share,
            Figure::Rate => row.cell(Metric::RequestsPerSecond).estimate.map(|estimate| estimate.median),
            Figure::CpuPerRequest => row.cell(Metric::CpuPerRequest).estimate.map(|estimate| estimate.median),
            Figure::Memory => row.cell(Metric::Memory).estimate.map(|estimate| estimate.median),
            Figure::Stream(figure) => of_streams(row, figure),
            // Refused where it is read.
            Figure::Status(_) | Figure::StatusShare(_) => None,
        }
    }
}

/// A figure that only streams have.
fn of_streams(row: &Row<'_>, figure: StreamFigure) -> Option<f64> {
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
        // The worst round counts, as it does for a client.
        StreamFigure::Gap(1.0) => streams.longest_silence_us,
        StreamFigure::Gap(quantile) => return streams.gaps.at_quantile_us(quantile).map(|us| us as f64),
    };
    Some(count as f64)
}

/// Judges each expectation for each of its proxies in each case. Without a figure it was missed, for any reason: the
/// proxy is not installed, does not support the case, or was not measured.
pub(crate) fn judge(plan: &Plan, summary: &Summary<'_>) -> Vec<Expectation> {
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
            let measured = row.and_then(|row| expect.measured(row));
            Expectation {
                measured: measured.map(|value| expect.condition.told(value)),
                is_met: measured.is_some_and(|value| expect.condition.is_met_by(value)),
                ..missed(&case.name)
            }
        }));
        if judged.len() == before {
            judged.push(missed("no case of the plan"));
        }
    }
    judged
}

/// JUnit report of the expectations for CI, one test case each.
pub fn junit(name: &str, expectations: &[Expectation]) -> String {
    let failures = expectations.iter().filter(|each| !each.is_met).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\">\n",
        escaped(name),
        expectations.len()
    );
    for each in expectations {
        let measured = each.measured.as_deref().unwrap_or("nothing was measured");
        let (class, title) = (escaped(&format!("{}.{}", each.case, each.proxy)), escaped(&each.text));
        out += &if each.is_met {
            format!("  <testcase classname=\"{class}\" name=\"{title}\"/>\n")
        } else {
            format!(
                "  <testcase classname=\"{class}\" name=\"{title}\">\n    <failure message=\"{}\"/>\n  </testcase>\n",
                escaped(measured)
            )
        };
    }
    out + "</testsuite>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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

    /// Names of the proxies that an expectation is about, in a plan with these proxies.
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
        assert!(bound.is_met_by(&Latency::from_counts([(9_000, 100)])));
        assert!(!bound.is_met_by(&Latency::from_counts([(9_000, 98), (11_000, 2)])));
        assert!(!bound.is_met_by(&Latency::default()));
        for text in ["errors = 0", "p99 > 10ms", "requests/s < 5", "fast"] {
            assert!(Bound::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn junit_names_what_was_missed() {
        let expectation = |text: &str, is_met| Expectation {
            text: text.to_owned(),
            proxy: "vanward".to_owned(),
            case: "tiny".to_owned(),
            measured: Some("60 ms".to_owned()),
            is_met,
        };
        let text = junit("a & b", &[expectation("errors = 0", true), expectation("p99 < 50ms", false)]);
        assert!(text.contains("name=\"a &amp; b\" tests=\"2\" failures=\"1\""), "{text}");
        assert!(text.contains("name=\"p99 &lt; 50ms\">\n    <failure message=\"60 ms\"/>"), "{text}");
    }
}
