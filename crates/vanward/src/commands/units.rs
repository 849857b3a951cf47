//! Formats numbers for readers: three digits and a unit.

/// Formats `1 session`, `2 sessions`.
pub(super) fn count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Formats a rate: `0`, `0.25`, `50.0`, `1234`.
pub(super) fn rate(per_second: f64) -> String {
    if per_second == 0.0 { "0".to_owned() } else { digits(per_second) }
}

/// Formats a duration: `1.25 ms`, `1.23 s`; `-` if there is none.
pub(super) fn milliseconds(milliseconds: Option<f64>) -> String {
    match milliseconds {
        None => "-".to_owned(),
        Some(milliseconds) if milliseconds >= 999.5 => format!("{} s", digits(milliseconds / 1e3)),
        Some(milliseconds) => format!("{} ms", digits(milliseconds)),
    }
}

/// Formats bytes: `12 B`, `1.50 kB`, `2.00 GB`.
pub(super) fn bytes(bytes: f64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut value = bytes;
    let mut unit = "B";
    for larger in units {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1e3, larger);
    }
    if unit == "B" { format!("{value:.0} B") } else { format!("{} {unit}", digits(value)) }
}

/// Formats a share of 1: `0%`, `0.12%`, `50.0%`.
pub(super) fn percent(share: f64) -> String {
    format!("{}%", rate(share * 100.0))
}

/// Formats a duration: `3 d 4 h`, `4 h 5 min`, `5 min 6 s`, `6 s`.
pub(super) fn time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Formats three digits, or all before the point.
fn digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.004, "0.00"),
            (0.25, "0.25"),
            (9.99, "9.99"),
            (9.999, "10.0"),
            (50.0, "50.0"),
            (12_345.6, "12346"),
        ] {
            assert_eq!(rate(value), text);
        }
        for (value, text) in [
            (0.05, "0.05 ms"),
            (12.34, "12.3 ms"),
            (999.4, "999 ms"),
            (999.6, "1.00 s"),
            (62_000.0, "62.0 s"),
        ] {
            assert_eq!(milliseconds(Some(value)), text);
        }
        assert_eq!(milliseconds(None), "-");
        for (value, text) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (999.9, "1.00 kB"),
            (1500.0, "1.50 kB"),
            (2e9, "2.00 GB"),
            (5e15, "5000 TB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!((percent(0.0), percent(0.00123)), ("0%".to_owned(), "0.12%".to_owned()));
    }

    #[test]
    fn times_have_two_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3661, "1 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(time(seconds), text);
        }
    }
}
