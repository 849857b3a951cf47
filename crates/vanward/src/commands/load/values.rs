//! Values of flags: numbers with units, stages, think time.

use load::{Breakdown, RateStage, RunOutcome, ThinkTime};

const EXPECTED_STAGE: &str = "expected stages such as 10s:1000 (hold 1,000 requests/s), 30s:..5000 (ramp to 5,000 from the rate before) or \
                              30s:1000..5000";

/// Parses a duration to seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    config::duration(text).map(|duration| duration.as_secs_f64()).map_err(|error| error.to_string())
}

/// Parses an interval of whole seconds.
pub(super) fn interval(text: &str) -> Result<u32, String> {
    let seconds = seconds(text)?;
    if seconds.fract() != 0.0 || !(1.0..=86_400.0).contains(&seconds) {
        return Err("expected whole seconds from 1s to 24h".to_owned());
    }
    Ok(seconds as u32)
}

/// Parses a number that may end in k, M or G.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let number = digits.parse::<f64>().ok().map(|number| number * factor);
    number
        .filter(|number| number.is_finite())
        .ok_or_else(|| "expected a number such as 64, 0.5 or 10k".to_owned())
}

pub(super) fn whole_number(text: &str) -> Result<u64, String> {
    let number = rate(text)?;
    // Above 2^53 a float no longer holds every whole number.
    if number.fract() != 0.0 || !(0.0..=9e15).contains(&number) {
        return Err("expected a whole number such as 64 or 10k".to_owned());
    }
    Ok(number as u64)
}

/// Validates a check of responses.
pub(super) fn check(text: &str) -> Result<String, String> {
    load::requests::check(text, &mut load::Check::default()).map(|()| text.to_owned())
}

pub(super) fn requests(text: &str) -> Result<u64, String> {
    let is_file = text.contains(['.', '/']) && !text.starts_with(|first: char| first.is_ascii_digit());
    let hint = if is_file { "; a file of requests is named with --requests-from" } else { "" };
    whole_number(text).map_err(|expected| expected + hint)
}

/// Maximum of failed requests: a number, or a share of all requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MaxErrors {
    Count(u64),
    Share(f64),
}

impl MaxErrors {
    pub(super) fn are_exceeded_by(self, outcome: &RunOutcome) -> bool {
        let failed = outcome.errors.total();
        match self {
            Self::Count(most) => failed > most,
            Self::Share(most) => failed as f64 > most * (failed + outcome.requests) as f64,
        }
    }
}

impl std::fmt::Display for MaxErrors {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(most) => write!(formatter, "{most}"),
            Self::Share(most) => write!(formatter, "{}%", most * 100.0),
        }
    }
}

pub(super) fn max_errors(text: &str) -> Result<MaxErrors, String> {
    let Some(percent) = text.strip_suffix('%') else { return whole_number(text).map(MaxErrors::Count) };
    let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    let expected = || "expected a number such as 10, or a percentage from 0% to 100%".to_owned();
    percent.map(|percent| MaxErrors::Share(percent / 100.0)).ok_or_else(expected)
}

/// The stages of `--stages`, as one value for clap.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stages(pub(super) Vec<RateStage>);

/// Parses `10s:1000,30s:..5000,10s:..0`.
pub(super) fn stages(text: &str) -> Result<Stages, String> {
    let mut stages: Vec<RateStage> = Vec::new();
    for written in text.split(',') {
        let before = stages.last().map_or(0.0, |stage| stage.to_per_second);
        let stage = stage(written.trim(), before);
        stages.push(stage.map_err(|error| format!("{:?}: {error}; {EXPECTED_STAGE}", written.trim()))?);
    }
    Ok(Stages(stages))
}

/// Parses one stage; `before` is the rate at the end of the last.
fn stage(text: &str, before: f64) -> Result<RateStage, String> {
    let (duration, rates) = text.split_once(':').ok_or("it has no colon between duration and rate")?;
    let rate = |text: &str| match rate(text.strip_suffix("/s").unwrap_or(text)) {
        Ok(rate) if rate >= 0.0 => Ok(rate),
        _ => Err(format!("{text:?} is not a rate")),
    };
    let (from_per_second, to_per_second) = match rates.split_once("..") {
        None => (rate(rates)?, rate(rates)?),
        Some(("", to)) => (before, rate(to)?),
        Some((from, to)) => (rate(from)?, rate(to)?),
    };
    Ok(RateStage { seconds: seconds(duration)?, from_per_second, to_per_second })
}

/// Parses `100ms` or `100ms..1s`.
pub(super) fn think_time(text: &str) -> Result<ThinkTime, String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least_seconds, most_seconds) = (seconds(least)?, seconds(most)?);
    if least_seconds > most_seconds {
        return Err(format!("{least} is more than {most}; write the shorter one first"));
    }
    Ok(ThinkTime { least_seconds, most_seconds })
}

/// Tables of `--by`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum By {
    /// By class of the status; times of 4xx and 5xx too
    Status,
    /// By URL
    Url,
    /// By name: the fragment of the URL (`/search?q=1#search`), otherwise its path without the query
    Name,
}

impl By {
    pub(super) fn breakdown(self) -> Breakdown {
        match self {
            Self::Status => Breakdown::Status,
            Self::Url => Breakdown::Url,
            Self::Name => Breakdown::Name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_end_in_a_unit() {
        assert_eq!((rate("20k"), rate("0.5"), rate("1M")), (Ok(20_000.0), Ok(0.5), Ok(1e6)));
        assert_eq!(
            (whole_number("64"), whole_number("10k"), whole_number("1.5k")),
            (Ok(64), Ok(10_000), Ok(1_500))
        );
        for text in ["", "k", "x", "1.5", "-1", "NaN", "inf", "1e300"] {
            assert!(whole_number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bound_on_errors_is_a_number_or_a_share() {
        assert_eq!(max_errors("10k"), Ok(MaxErrors::Count(10_000)));
        assert_eq!(max_errors("0.5%"), Ok(MaxErrors::Share(0.005)));
        for text in ["", "%", "-1", "1.5", "101%", "NaN%", "-0.1%"] {
            assert!(max_errors(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stages_hold_or_ramp() {
        let stage =
            |seconds, from_per_second, to_per_second| RateStage { seconds, from_per_second, to_per_second };
        let told = stages("10s:1000, 30s:..5k/s,1m:..0,500ms:1..2").expect("stages").0;
        let expected =
            [stage(10.0, 1e3, 1e3), stage(30.0, 1e3, 5e3), stage(60.0, 5e3, 0.0), stage(0.5, 1.0, 2.0)];
        assert_eq!(told, expected);
        assert_eq!(stages("1s:..5").expect("a stage").0, [stage(1.0, 0.0, 5.0)]);
        for (text, message) in [
            ("", "no colon"),
            ("10s", "no colon"),
            ("10s:", "is not a rate"),
            ("10:5", "has no unit"),
            ("10s:-5", "\"-5\" is not a rate"),
            ("10s:5..", "\"\" is not a rate"),
            ("10s:5,", "\"\": it has no colon"),
            ("1s:5,2x:5", "\"2x:5\": unknown unit"),
        ] {
            let error = stages(text).expect_err(text);
            assert!(error.contains(message) && error.contains("10s:1000"), "{text}: {error}");
        }
    }

    #[test]
    fn a_think_time_is_one_or_a_range() {
        let time = |least_seconds, most_seconds| Ok(ThinkTime { least_seconds, most_seconds });
        assert_eq!(think_time("100ms"), time(0.1, 0.1));
        assert_eq!(think_time("0s..1s"), time(0.0, 1.0));
        for text in ["", "5", "1s..", "2s..1s", "1s...2s"] {
            assert!(think_time(text).is_err(), "{text}");
        }
    }
}
