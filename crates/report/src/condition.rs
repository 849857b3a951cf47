//! Conditions on figures, `p99 < 50ms`, `rate > 1000/s`: the grammar of the lab's plans and `vanward load --expect`.

use crate::figure;
use crate::quantity;

#[derive(Debug, Clone, PartialEq)]
pub struct FigureCondition {
    text: String,
    figure: ConditionFigure,
    comparison: ComparisonSign,
    value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConditionFigure {
    /// Quantile of the latency, from 0 to 1, in microseconds.
    Quantile(f64),
    /// Mean latency, in microseconds.
    Mean,
    Errors,
    /// Share of failed requests, from 0 to 1.
    ErrorShare,
    /// Number of responses with a status of this class: 4 for 4xx.
    Status(u16),
    StatusShare(u16),
    /// Successful requests per second.
    Rate,
    /// CPU time per request, in microseconds. Only the lab measures it.
    CpuPerRequest,
    /// In bytes. Only the lab measures it.
    Memory,
    Stream(StreamFigure),
}

/// A figure that only streams have. Only `vanward load` measures it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StreamFigure {
    /// Messages that did not arrive.
    Lost,
    /// Share of messages that did not arrive, from 0 to 1.
    LostShare,
    /// Messages that arrived twice.
    Duplicates,
    /// Messages that arrived after a later one.
    OutOfOrder,
    /// Streams that ended before the run.
    ClosedEarly,
    /// Streams that were opened again.
    Reconnected,
    /// Messages sent per second.
    SentRate,
    /// Quantile of the time between two messages of a stream, in microseconds; 1 is the longest silence.
    Gap(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ComparisonSign {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

/// Names of the figures, and a placeholder for any percentile.
const NAMES: [&str; 26] = [
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p99.9",
    "p99.99",
    "mean",
    "max",
    "errors",
    "rate",
    "requests/s",
    "2xx",
    "3xx",
    "4xx",
    "5xx",
    "cpu/request",
    "messages/s",
    "sent/s",
    "lost",
    "duplicates",
    "out-of-order",
    "closed-early",
    "reconnected",
    "gap-p99",
    "gap-max",
];
const EXPECTED: &str = "expected a figure (a percentile such as p50, p99 or p99.9, mean, max, errors, 4xx, 5xx, rate, cpu/request or \
                        memory), one of < <= = >= >, and a value, such as 'p99 < 50ms', 'errors < 0.1%' or 'rate > 1000/s'";

impl FigureCondition {
    /// # Errors
    /// A text with the mistake, the most similar figure, and the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((name, comparison, value)) = split(text) else {
            return Err(format!("it has no comparison; {EXPECTED}"));
        };
        let (figure, value) = read(name, value)?;
        if !value.is_finite() {
            return Err(format!("its value is not finite; {EXPECTED}"));
        }
        Ok(Self { text: text.trim().to_owned(), figure, comparison, value })
    }

    /// The condition as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn figure(&self) -> ConditionFigure {
        self.figure
    }

    pub fn is_upper_limit(&self) -> bool {
        matches!(self.comparison, ComparisonSign::Less | ComparisonSign::AtMost)
    }

    pub fn is_met_by(&self, measured: f64) -> bool {
        match self.comparison {
            ComparisonSign::Less => measured < self.value,
            ComparisonSign::AtMost => measured <= self.value,
            ComparisonSign::Equal => measured == self.value,
            ComparisonSign::AtLeast => measured >= self.value,
            ComparisonSign::More => measured > self.value,
        }
    }

    /// Formats a value of the condition's figure with its unit.
    pub fn told(&self, value: f64) -> String {
        match self.figure {
            ConditionFigure::Quantile(_)
            | ConditionFigure::Mean
            | ConditionFigure::CpuPerRequest
            | ConditionFigure::Stream(StreamFigure::Gap(_)) => figure::duration_us(value),
            // Three digits, because it is compared with a small share.
            ConditionFigure::ErrorShare
            | ConditionFigure::StatusShare(_)
            | ConditionFigure::Stream(StreamFigure::LostShare) => {
                format!("{:.3}%", value * 100.0)
            }
            ConditionFigure::Rate | ConditionFigure::Stream(StreamFigure::SentRate) => {
                format!("{}/s", figure::rate(value))
            }
            ConditionFigure::Memory => figure::memory_bytes(value),
            ConditionFigure::Errors | ConditionFigure::Status(_) | ConditionFigure::Stream(_) => {
                figure::count(value)
            }
        }
    }
}

/// Splits into figure, comparison and value, with or without spaces around the comparison.
fn split(text: &str) -> Option<(&str, ComparisonSign, &str)> {
    let at = text.find(['<', '>', '='])?;
    let (name, rest) = text.split_at(at);
    let comparisons = [
        ("<=", ComparisonSign::AtMost),
        (">=", ComparisonSign::AtLeast),
        ("==", ComparisonSign::Equal),
        ("<", ComparisonSign::Less),
        (">", ComparisonSign::More),
        ("=", ComparisonSign::Equal),
    ];
    let (sign, comparison) = comparisons.into_iter().find(|(sign, _)| rest.starts_with(sign))?;
    Some((name.trim(), comparison, rest[sign.len()..].trim()))
}

fn read(name: &str, value: &str) -> Result<(ConditionFigure, f64), String> {
    let us = || quantity::duration(value).map(|span| span.as_secs_f64() * 1e6);
    // A number is a count; a number with % is a share.
    let counted = |count: ConditionFigure, share: ConditionFigure| match value.strip_suffix('%') {
        None => number(value).map(|value| (count, value)),
        Some(percent) => number(percent).map(|value| (share, value / 100.0)),
    };
    let streams =
        |streams: StreamFigure| number(value).map(|value| (ConditionFigure::Stream(streams), value));
    let per_second = || number(value.strip_suffix("/s").unwrap_or(value));
    match name {
        "messages/s" => Ok((ConditionFigure::Rate, per_second()?)),
        "sent/s" => Ok((ConditionFigure::Stream(StreamFigure::SentRate), per_second()?)),
        "lost" => counted(
            ConditionFigure::Stream(StreamFigure::Lost),
            ConditionFigure::Stream(StreamFigure::LostShare),
        ),
        "duplicates" => streams(StreamFigure::Duplicates),
        "out-of-order" => streams(StreamFigure::OutOfOrder),
        "closed-early" => streams(StreamFigure::ClosedEarly),
        "reconnected" => streams(StreamFigure::Reconnected),
        "gap-max" => Ok((ConditionFigure::Stream(StreamFigure::Gap(1.0)), us()?)),
        "mean" => Ok((ConditionFigure::Mean, us()?)),
        "max" => Ok((ConditionFigure::Quantile(1.0), us()?)),
        "errors" => counted(ConditionFigure::Errors, ConditionFigure::ErrorShare),
        "rate" | "requests/s" => Ok((ConditionFigure::Rate, per_second()?)),
        "cpu/request" => Ok((ConditionFigure::CpuPerRequest, us()?)),
        "memory" => Ok((ConditionFigure::Memory, quantity::size(value)? as f64)),
        "2xx" | "3xx" | "4xx" | "5xx" => {
            let class = u16::from(name.as_bytes()[0] - b'0');
            counted(ConditionFigure::Status(class), ConditionFigure::StatusShare(class))
        }
        _ => match percentile(name.strip_prefix("gap-").unwrap_or(name)) {
            Some(quantile) if name.starts_with("gap-") => {
                Ok((ConditionFigure::Stream(StreamFigure::Gap(quantile)), us()?))
            }
            Some(quantile) => Ok((ConditionFigure::Quantile(quantile), us()?)),
            None => Err(unknown(name)),
        },
    }
}

/// Parses `p99.9` to a quantile.
fn percentile(name: &str) -> Option<f64> {
    let digits = name.strip_prefix('p')?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent: f64 = digits.parse().ok().filter(|_| is_number)?;
    // 99.9 / 100 is not 0.999 as a float.
    let quantile = (percent * 1e6).round() / 1e8;
    (quantile > 0.0 && quantile <= 1.0).then_some(quantile)
}

fn unknown(name: &str) -> String {
    let meant = mistake::nearest(name, NAMES.into_iter().chain(["memory"]));
    let meant = meant.map(|meant| format!("; did you mean {meant:?}")).unwrap_or_default();
    let mark = if meant.is_empty() { "" } else { "?" };
    format!("unknown figure {name:?}{meant}{mark}; {EXPECTED}")
}

/// Parses a number that may end in k or M.
fn number(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let number = digits.trim_end().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.map(|number| number * factor).ok_or_else(|| format!("{text:?} is not a number; {EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> FigureCondition {
        FigureCondition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn conditions_are_read_with_their_units_and_compared() {
        let cases = [
            ("p99 < 50ms", ConditionFigure::Quantile(0.99), 49_999.0, 50_000.0),
            ("p99<50ms", ConditionFigure::Quantile(0.99), 49_999.0, 50_000.0),
            ("p99.9 <= 1s", ConditionFigure::Quantile(0.999), 1e6, 1e6 + 1.0),
            ("p87.5 < 1s", ConditionFigure::Quantile(0.875), 1.0, 1e6),
            ("mean < 2m", ConditionFigure::Mean, 1.0, 1.2e8),
            ("max < 250us", ConditionFigure::Quantile(1.0), 249.0, 250.0),
            ("errors = 0", ConditionFigure::Errors, 0.0, 1.0),
            ("errors == 0", ConditionFigure::Errors, 0.0, 1.0),
            ("errors < 0.1%", ConditionFigure::ErrorShare, 0.000_9, 0.001),
            ("5xx < 10", ConditionFigure::Status(5), 9.0, 10.0),
            ("4xx <= 2 %", ConditionFigure::StatusShare(4), 0.02, 0.021),
            ("requests/s >= 1000", ConditionFigure::Rate, 1000.0, 999.0),
            ("rate > 1000/s", ConditionFigure::Rate, 1001.0, 1000.0),
            ("rate>1.5k/s", ConditionFigure::Rate, 1501.0, 1500.0),
            ("cpu/request < 30us", ConditionFigure::CpuPerRequest, 29.0, 30.0),
            ("memory < 10MB", ConditionFigure::Memory, 1e6, 1e7),
            ("messages/s > 1k/s", ConditionFigure::Rate, 1001.0, 1000.0),
            ("sent/s > 5", ConditionFigure::Stream(StreamFigure::SentRate), 6.0, 5.0),
            ("lost = 0", ConditionFigure::Stream(StreamFigure::Lost), 0.0, 1.0),
            ("lost < 1%", ConditionFigure::Stream(StreamFigure::LostShare), 0.009, 0.01),
            ("gap-p99.9 < 1s", ConditionFigure::Stream(StreamFigure::Gap(0.999)), 1.0, 1e6),
            ("gap-max < 1s", ConditionFigure::Stream(StreamFigure::Gap(1.0)), 1.0, 1e6),
            ("closed-early <= 2", ConditionFigure::Stream(StreamFigure::ClosedEarly), 2.0, 3.0),
        ];
        for (text, figure, good, bad) in cases {
            let condition = parse(text);
            assert_eq!(condition.figure(), figure, "{text}");
            assert!(condition.is_met_by(good) && !condition.is_met_by(bad), "{text}");
            assert!(!condition.is_met_by(f64::NAN), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_what_was_meant() {
        let cases = [
            ("", "it has no comparison; expected a figure"),
            ("p99", "it has no comparison"),
            ("< 5ms", "unknown figure \"\""),
            ("p99 < 50", "\"50\" is not a duration"),
            ("p99 <", "\"\" is not a duration"),
            ("p99 < 5 <", "is not a duration"),
            ("p0 < 1s", "unknown figure \"p0\""),
            ("p101 < 1s", "unknown figure \"p101\""),
            ("p1e1 < 1s", "unknown figure \"p1e1\""),
            ("errros = 0", "unknown figure \"errros\"; did you mean \"errors\"?"),
            ("memry < 1MB", "did you mean \"memory\"?"),
            ("errors ~ 0", "it has no comparison"),
            ("errors = NaN", "\"NaN\" is not a number"),
            ("errors < -1%", "\"-1\" is not a number"),
            ("rate > inf/s", "\"inf\" is not a number"),
            ("6xx = 0", "did you mean"),
            ("loss = 0", "did you mean \"lost\"?"),
            ("lost < 1s", "\"1s\" is not a number"),
            ("gap-p0 < 1s", "unknown figure \"gap-p0\""),
        ];
        for (text, expected) in cases {
            let error = FigureCondition::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn values_are_told_in_the_unit_of_the_figure() {
        for (text, value, expected) in [
            ("p99 < 1s", 61_200.0, "61.2 ms"),
            ("errors = 0", 1_200.0, "1,200"),
            ("errors < 1%", 0.001_234, "0.123%"),
            ("rate > 5", 31_022.4, "31,022/s"),
        ] {
            assert_eq!(parse(text).told(value), expected);
        }
    }
}
