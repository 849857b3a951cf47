//! Parses durations, sizes and rates in plans and conditions.

use std::time::Duration;

const DURATIONS: [(&str, f64); 5] = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
const SIZES: [(&str, f64); 13] = [
    ("", 1.0),
    ("B", 1.0),
    ("k", 1e3),
    ("K", 1e3),
    ("kB", 1e3),
    ("KB", 1e3),
    ("M", 1e6),
    ("MB", 1e6),
    ("G", 1e9),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
/// A day; more is a mistake.
const LONGEST_SECONDS: f64 = 86_400.0;
/// Larger than any memory or network that is measured.
const LARGEST_BYTES: f64 = 1e15;

/// Parses a duration: `50ms`, `1.5s`, `2m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match scaled(text, &DURATIONS) {
        Some(seconds) if seconds <= LONGEST_SECONDS => Ok(Duration::from_secs_f64(seconds)),
        _ => {
            Err(format!("{text:?} is not a duration of at most a day; expected one such as 50ms, 1.5s or 2m"))
        }
    }
}

/// Parses a size in bytes: `512`, `64k`, `256MB`, `64KiB`.
pub fn size(text: &str) -> Result<u64, String> {
    match scaled(text, &SIZES) {
        Some(bytes) if bytes <= LARGEST_BYTES => Ok(bytes as u64),
        _ => Err(format!("{text:?} is not a size; expected one such as 512, 64k, 256MB or 64KiB")),
    }
}

/// Parses a rate in bytes per second: `5KB/s`, `10Mbit/s`.
pub fn rate(text: &str) -> Result<u64, String> {
    let refused = |_| format!("{text:?} is not a rate; expected one such as 5KB/s or 10Mbit/s");
    match text.trim().strip_suffix("bit/s") {
        Some(bits) => size(bits).map(|bits| bits / 8).map_err(refused),
        None => size(text.trim().trim_end_matches("/s")).map_err(refused),
    }
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_their_units() {
        let ms = Duration::from_millis;
        for (text, expected) in [("50ms", Some(ms(50))), ("1.5s", Some(ms(1500))), ("2m", Some(ms(120_000)))]
        {
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
        for text in ["", "5", "s", "-1s", "1h5", "2000m", "1..2s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for (text, expected) in [("512", 512), ("64k", 64_000), ("256MB", 256_000_000), ("64KiB", 65_536)] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for (text, expected) in [("5KB/s", 5_000), ("10Mbit/s", 1_250_000), ("8", 8)] {
            assert_eq!(rate(text), Ok(expected), "{text}");
        }
        assert!(size("12 bananas").is_err() && rate("5KB/h").is_err());
    }
}
