//! Values of HAProxy. The default unit of times is the millisecond.

use crate::values::{duration, measure};

/// Parses a time to milliseconds: `30s`, `500ms`, `5m`, or a number of milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let units = [("", 1), ("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let microseconds = |text: &str| measure(text, &[("us", 1)]).map(|time| time / 1000);
    measure(text, &units).or_else(|| microseconds(text))
}

/// Converts a time to an option's value, between 1 ms and `most`.
pub(super) fn time(text: &str, most: u64) -> Option<String> {
    milliseconds(text).filter(|time| *time > 0).map(|time| duration(time.min(most)))
}
