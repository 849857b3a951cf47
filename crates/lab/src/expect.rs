//! What a plan expects of our proxy's figures: `p99 < 50ms`, `errors = 0`. Read here, and judged once the run is over.

use report::Summary;
use report::latency::Latency;
use report::results::{Expectation, Role};
use report::summary::{Metric, Row};
use serde::Deserialize;

use crate::quantity;

/// One expectation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Expect {
    text: String,
    figure: Figure,
    comparison: Comparison,
    value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// A share of the latencies, in microseconds.
    Quantile(f64),
    Errors,
    /// A median over the repeats.
    Median(Metric),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

const EXPECTED: &str = "an expectation is a figure (p50, p90, p99, p99.9, max, errors, requests/s, cpu/request, memory), \
                        <, <=, =, >= or >, and a value, such as p99 < 50ms";

impl TryFrom<String> for Expect {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [figure, comparison, value] = words[..] else { return Err(EXPECTED.to_owned()) };
        let us = || quantity::duration(value).ok().map(|span| span.as_secs_f64() * 1e6);
        let number = || value.parse::<f64>().ok().filter(|number| number.is_finite());
        let (figure, value) = match figure {
            "p50" => (Figure::Quantile(0.5), us()),
            "p90" => (Figure::Quantile(0.9), us()),
            "p99" => (Figure::Quantile(0.99), us()),
            "p99.9" => (Figure::Quantile(0.999), us()),
            "max" => (Figure::Quantile(1.0), us()),
            "errors" => (Figure::Errors, number()),
            "requests/s" => (Figure::Median(Metric::RequestsPerSecond), number()),
            "cpu/request" => (Figure::Median(Metric::CpuPerRequest), us()),
            "memory" => {
                (Figure::Median(Metric::Memory), quantity::size(value).ok().map(|bytes| bytes as f64))
            }
            _ => return Err(EXPECTED.to_owned()),
        };
        let comparison = match comparison {
            "<" => Comparison::Less,
            "<=" => Comparison::AtMost,
            "=" | "==" => Comparison::Equal,
            ">=" => Comparison::AtLeast,
            ">" => Comparison::More,
            _ => return Err(EXPECTED.to_owned()),
        };
        let value = value.ok_or_else(|| EXPECTED.to_owned())?;
        Ok(Self { text, figure, comparison, value })
    }
}

/// A bound on latency, such as a search for the highest rate keeps to.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound(Expect);

impl TryFrom<String> for Bound {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let expect = Expect::try_from(text)?;
        let is_bound = matches!(expect.figure, Figure::Quantile(_))
            && matches!(expect.comparison, Comparison::Less | Comparison::AtMost);
        if is_bound {
            Ok(Self(expect))
        } else {
            Err("a bound is one on latency, such as p99 < 10ms".to_owned())
        }
    }
}

impl Bound {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether these latencies keep to it; none do not.
    pub(crate) fn is_met_by(&self, latency: &Latency) -> bool {
        let Figure::Quantile(quantile) = self.0.figure else { return false };
        latency.at_quantile_us(quantile).is_some_and(|us| self.0.is_met_by(us as f64))
    }
}

impl Expect {
    fn is_met_by(&self, measured: f64) -> bool {
        match self.comparison {
            Comparison::Less => measured < self.value,
            Comparison::AtMost => measured <= self.value,
            Comparison::Equal => measured == self.value,
            Comparison::AtLeast => measured >= self.value,
            Comparison::More => measured > self.value,
        }
    }

    /// The figure, if there is one.
    fn measured(&self, row: &Row<'_>) -> Option<f64> {
        if row.valid == 0 {
            return None;
        }
        match self.figure {
            Figure::Quantile(quantile) => row.latency.at_quantile_us(quantile).map(|us| us as f64),
            Figure::Errors => Some(row.errors as f64),
            Figure::Median(metric) => row.cell(metric).estimate.map(|estimate| estimate.median),
        }
    }

    fn told(&self, value: f64) -> String {
        match self.figure {
            Figure::Quantile(_) => report::figure::duration_us(value),
            Figure::Errors => report::figure::count(value),
            Figure::Median(metric) => metric.figure(value),
        }
    }
}

/// Each expectation in each case, of our proxy.
pub(crate) fn judge(expectations: &[Expect], summary: &Summary<'_>) -> Vec<Expectation> {
    let rows = summary.cases.iter().flat_map(|case| {
        case.rows.iter().filter(|row| row.proxy.role == Role::Subject).map(|row| (case.case, row))
    });
    rows.flat_map(|(case, row)| {
        expectations.iter().map(|expect| {
            let measured = expect.measured(row);
            Expectation {
                text: expect.text.clone(),
                proxy: row.proxy.name.clone(),
                case: case.name.clone(),
                measured: measured.map(|value| expect.told(value)),
                is_met: measured.is_some_and(|value| expect.is_met_by(value)),
            }
        })
    })
    .collect()
}

/// What came of them, for CI: a test case each.
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
    fn expectations_are_read_with_their_units_and_judged() {
        let cases = [
            ("p99 < 50ms", 49_999.0, 50_000.0),
            ("p99.9 <= 1s", 1e6, 1e6 + 1.0),
            ("errors = 0", 0.0, 1.0),
            ("requests/s >= 1000", 1000.0, 999.0),
            ("memory < 10MB", 1e6, 1e7),
        ];
        for (text, good, bad) in cases {
            let expect = read(text).expect(text);
            assert!(expect.is_met_by(good) && !expect.is_met_by(bad), "{text}");
        }
        for text in ["", "p99", "p99 < 50", "p98 < 1s", "errors ~ 0", "errors = NaN"] {
            assert!(read(text).is_err(), "{text}");
        }
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
