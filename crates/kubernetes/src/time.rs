//! Times in the format of the Kubernetes API (RFC 3339, UTC).

use std::time::{SystemTime, UNIX_EPOCH};

/// For conditions: precise to a second.
pub(crate) fn now() -> String {
    written(since_1970().0, "")
}

/// For leases: precise to a microsecond.
pub(crate) fn now_us() -> String {
    let (seconds, us) = since_1970();
    written(seconds, &format!(".{us:06}"))
}

fn since_1970() -> (u64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_micros())
}

/// Converts days to a date: Howard Hinnant, "chrono-compatible low-level date algorithms".
fn written(seconds: u64, fraction: &str) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_600, "2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(written(seconds, ""), expected);
        }
    }
}
