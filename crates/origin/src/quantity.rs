//! Parses sizes and durations in paths and queries.

use std::time::Duration;

/// Parses a size in bytes: `5000`, `10k`, `3M`, `10G` (powers of 1000), `64KiB`, `1MiB`, `10GiB` (powers of 1024).
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = split_number(text);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "k" | "K" | "KB" | "kB" => 1000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Parses a duration: `50ms`, `1.5s`, `2m`; a number without a unit is seconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (digits, unit) = split_number(text);
    let seconds: f64 = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * seconds).ok()
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("5000", Some(5000)),
            ("10k", Some(10_000)),
            ("10KB", Some(10_000)),
            ("3M", Some(3_000_000)),
            ("10GiB", Some(10 << 30)),
            ("64KiB", Some(65_536)),
            ("", None),
            ("k", None),
            ("1.5k", None),
            ("-1", None),
            ("1 k", None),
            ("1q", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("18446744073709551615k", None),
        ] {
            assert_eq!(size_bytes(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn durations() {
        for (text, milliseconds) in [
            ("0", Some(0)),
            ("2", Some(2000)),
            ("50ms", Some(50)),
            ("1.5s", Some(1500)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("", None),
            ("ms", None),
            ("1.5.5s", None),
            ("-1s", None),
            ("1 s", None),
            ("1d", None),
        ] {
            assert_eq!(duration(text), milliseconds.map(Duration::from_millis), "{text:?}");
        }
        assert_eq!(duration(&"9".repeat(400)), None);
    }
}
