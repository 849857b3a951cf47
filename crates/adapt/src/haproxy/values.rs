//! Values of HAProxy: times in milliseconds by default.

use crate::values::duration;

/// A time in milliseconds: `30s`, `500ms`, `5m`, or a number of milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit = match &text[digits..] {
        "" | "ms" => 1,
        "us" => return Some(number / 1000),
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// A time as an option has it, from a millisecond to this many.
pub(super) fn time(text: &str, most: u64) -> Option<String> {
    milliseconds(text).filter(|time| *time > 0).map(|time| duration(time.min(most)))
}
