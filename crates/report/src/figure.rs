//! Formats numbers for people: three significant digits, grouped thousands, a fitting unit.

/// Formats a count: `31,022`.
pub fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if value <= -0.5 { format!("-{grouped}") } else { grouped }
}

/// Formats a rate per second: `31,022`, `17.2`, `0.49`. A small rate is not shown as 0.
pub fn rate(value: f64) -> String {
    if value == 0.0 || value.abs() >= 99.95 { count(value) } else { significant(value) }
}

/// Formats a short duration: `17.2 µs`, `3.12 ms`, `1.20 s`.
pub fn duration_us(value: f64) -> String {
    // Decimals matter for the small cost of a request.
    if value.abs() < 999.5 {
        return format!("{} µs", significant(value));
    }
    scaled(value, 1000.0, &["µs", "ms", "s"])
}

/// Formats a long duration: `45 s`, `8 min 30 s`, `5 h 3 min`.
pub fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    let parts = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3600 => [(seconds / 60, "min"), (seconds % 60, "s")],
        // Over an hour, seconds do not matter.
        _ => [((seconds + 30) / 3600, "h"), ((seconds + 30) % 3600 / 60, "min")],
    };
    let told = parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count} {unit}"));
    told.collect::<Vec<_>>().join(" ")
}

/// Formats a number of things: `1 case`, `2 cases`.
pub fn things(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Formats bytes, by powers of 1000: `1.20 MB`.
pub fn bytes(value: f64) -> String {
    scaled(value, 1000.0, &["B", "kB", "MB", "GB", "TB"])
}

/// Formats memory, by powers of 1024: `5.10 MiB`.
pub fn memory_bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Formats a share: `3%`, `0.4%`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if (0.05..0.95).contains(&value.abs()) { format!("{value:.1}%") } else { format!("{value:.0}%") }
}

/// Formats a ratio: `0.82`, `12.3`.
pub fn ratio(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { significant(value) }
}

const END_OF_9999: u64 = 253_402_300_799;

/// Formats a date: `2026-11-21 03:29 UTC`.
pub fn date(unix_seconds: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let unix_seconds = unix_seconds.min(END_OF_9999);
    let (mut day, minute) = (unix_seconds / 86_400, unix_seconds % 86_400 / 60);
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", day + 1, minute / 60, minute % 60)
}

/// Formats a number in the largest unit that gives at least 1.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, 0);
    // Half a digit early, so that 999.6 µs becomes 1.00 ms and not 1000 µs.
    while value.abs() >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0} {}", units[0])
    } else {
        format!("{} {}", significant(value), units[unit])
    }
}

/// Three significant digits, at most two decimals.
fn significant(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude < 9.995 => format!("{value:.2}"),
        magnitude if magnitude < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let cases = [
            (count(0.0), "0"),
            (count(999.4), "999"),
            (count(31_022.0), "31,022"),
            (count(1_234_567.0), "1,234,567"),
            (count(-1200.0), "-1,200"),
            (rate(0.0), "0"),
            (rate(0.4926), "0.49"),
            (rate(31.25), "31.2"),
            (rate(31_022.4), "31,022"),
            (duration_us(0.85), "0.85 µs"),
            (duration_us(17.24), "17.2 µs"),
            (duration_us(312.0), "312 µs"),
            (duration_us(999.7), "1.00 ms"),
            (duration_us(31_249.0), "31.2 ms"),
            (duration_us(61e6), "61.0 s"),
            (span(0.4), "0 s"),
            (span(59.4), "59 s"),
            (span(59.6), "1 min"),
            (span(510.0), "8 min 30 s"),
            (span(3_600.0), "1 h"),
            (span(18_209.0), "5 h 3 min"),
            (things(1, "case"), "1 case"),
            (things(2, "case"), "2 cases"),
            (bytes(128.0), "128 B"),
            (bytes(165_854.0), "166 kB"),
            (memory_bytes(5_347_737.0), "5.10 MiB"),
            (memory_bytes(24.0 * 1024.0 * 1024.0 * 1024.0), "24.0 GiB"),
            (percent(0.034), "3%"),
            (percent(0.004), "0.4%"),
            (percent(0.0), "0%"),
            (percent(0.0004), "0%"),
            (date(0), "1970-01-01 00:00 UTC"),
            (date(951_782_399), "2000-02-28 23:59 UTC"),
            (date(951_868_799), "2000-02-29 23:59 UTC"),
            (date(1_798_761_599), "2026-12-31 23:59 UTC"),
            (date(4_107_542_400), "2100-03-01 00:00 UTC"),
            (ratio(0.823), "0.82"),
            (ratio(12.34), "12.3"),
        ];
        for (written, expected) in cases {
            assert_eq!(written, expected);
        }
    }
}
