//! Durations as CEL writes them: `1h30m`, `300ms`, `1.5s`.

use std::fmt;

/// Nanoseconds of each unit, the longest first. `ms` precedes `m` because units are matched by their start.
const UNITS: [(&str, i64); 6] = [
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];

/// Parses a duration to nanoseconds.
pub fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, behind) = rest.split_at(digits);
        let (unit, nanoseconds) = UNITS.iter().find(|(unit, _)| behind.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        // More digits than these neither fit the range nor change a nanosecond.
        if whole.len() > 19 || fraction.len() > 15 || fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let scale = 10_i128.pow(fraction.len() as u32);
        let (whole, fraction): (i128, i128) = (whole.parse().ok()?, fraction.parse().ok()?);
        sum += (whole * scale + fraction) * i128::from(*nanoseconds) / scale;
        rest = &behind[unit.len()..];
    }
    i64::try_from(sum * sign).ok()
}

/// Writes nanoseconds as [`parse`] reads them.
pub fn written(nanoseconds: i64) -> String {
    DurationText(nanoseconds).to_string()
}

/// Nanoseconds, written as [`parse`] reads them: `1h30m`, `0.25s`. Writing allocates nothing.
pub(crate) struct DurationText(pub(crate) i64);

impl fmt::Display for DurationText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000_000;
        if self.0 < 0 {
            formatter.write_str("-")?;
        }
        let total = self.0.unsigned_abs();
        let (seconds, fraction) = (total / SECOND, total % SECOND);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        for (count, unit) in [(hours, "h"), (minutes, "m")] {
            if count > 0 {
                write!(formatter, "{count}{unit}")?;
            }
        }
        if fraction > 0 {
            write!(formatter, "{seconds}")?;
            write_fraction(fraction, formatter)?;
            formatter.write_str("s")
        } else if seconds > 0 || total == 0 {
            write!(formatter, "{seconds}s")
        } else {
            Ok(())
        }
    }
}

/// Writes nanoseconds as a fraction of a second, without zeros at its end.
pub(crate) fn write_fraction(nanoseconds: u64, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut digits, mut width) = (nanoseconds, 9);
    while width > 1 && digits % 10 == 0 {
        (digits, width) = (digits / 10, width - 1);
    }
    write!(formatter, ".{digits:0width$}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations() {
        for (text, nanoseconds) in [
            ("5m", Some(300_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("300ms", Some(300_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("-2us7ns", Some(-2007)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("", None),
            ("-", None),
            ("5", None),
            ("m", None),
            ("5d", None),
            ("5 m", None),
            ("1.s", None),
            (".5s", None),
            ("1.2.3s", None),
            ("9999999999999h", None),
            ("99999999999999999999999999s", None),
        ] {
            assert_eq!(parse(text), nanoseconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(nanoseconds in any::<i64>(), small in -10_000_000_000_i64..10_000_000_000) {
            prop_assert_eq!(parse(&DurationText(nanoseconds).to_string()), Some(nanoseconds));
            prop_assert_eq!(parse(&DurationText(small).to_string()), Some(small));
        }
    }
}
