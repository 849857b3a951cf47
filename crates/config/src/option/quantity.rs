//! Parses and prints durations, sizes and rates: a number and a unit.
//!
//! Exact: no floating point, and a value that cannot be represented is rejected, not rounded.

use std::time::Duration;

use crate::document::value_error::{ValueError, ValueFault};

/// The longest duration: two years, as Strict-Transport-Security may last. A longer one is a slip, and sums with it
/// could overflow a clock.
const LONGEST: Duration = Duration::from_secs(2 * 365 * 24 * 3600);

/// Parses a duration: `50ms`, `1.5s`, `2m`, `1h`. The unit is required; the maximum is two years.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let nanoseconds = DURATION.parse(text)?;
    let too_large = || DURATION.refuse(ValueFault::TooLarge(text.trim().to_owned()));
    let duration = Duration::from_nanos(u64::try_from(nanoseconds).map_err(|_| too_large())?);
    if duration > LONGEST { Err(too_large()) } else { Ok(duration) }
}

/// Parses a size in bytes: `512`, `64k` and `256MB` (powers of 1000), `64KiB` (powers of 1024).
pub fn size(text: &str) -> Result<u64, ValueError> {
    let bytes = SIZE.parse(text)?;
    u64::try_from(bytes).map_err(|_| SIZE.refuse(ValueFault::TooLarge(text.trim().to_owned())))
}

/// Parses a rate to bytes/s: `500k`, `1MB/s`, and `10Mbit/s`, which is divided by eight.
pub(crate) fn rate(text: &str) -> Result<u64, ValueError> {
    let bits_per_second = RATE.parse(text)?;
    if bits_per_second % 8 != 0 {
        return Err(RATE.refuse(ValueFault::NotWhole { written: text.trim().to_owned(), unit: "bytes/s" }));
    }
    u64::try_from(bits_per_second / 8).map_err(|_| RATE.refuse(ValueFault::TooLarge(text.trim().to_owned())))
}

/// Parses a percentage: `20%`.
pub(crate) fn percent(text: &str) -> Result<u64, ValueError> {
    let refuse = |fault| ValueError { fault, expected: EXPECTED_PERCENT };
    let written = text.trim();
    let Some(number) = written.strip_suffix('%') else {
        let is_number = !written.is_empty() && written.bytes().all(|byte| byte.is_ascii_digit());
        let nearest = is_number.then(|| format!("{written}%"));
        return Err(refuse(ValueFault::Unknown { written: written.to_owned(), why: "has no %", nearest }));
    };
    let number = number.trim_end();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refuse(ValueFault::NotANumber(number.to_owned())));
    }
    number.parse().map_err(|_| refuse(ValueFault::TooLarge(written.to_owned())))
}

/// Prints a duration as in a file: `75s`, `1h`, `1500ms`.
pub fn written_duration(duration: Duration) -> String {
    DURATION.write(duration.as_nanos(), "0s")
}

/// Prints a size as in a file: `64KiB`, `1MB`, `100`.
pub(crate) fn written_size(bytes: u64) -> String {
    SIZE.write(bytes.into(), "0")
}

/// Prints a rate as in a file: `64B/s`, `1MB/s`.
pub(crate) fn written_rate(bytes_per_second: u64) -> String {
    RATE.write(u128::from(bytes_per_second) * 8, "0B/s")
}

/// The expected form of a duration.
pub(crate) const EXPECTED_DURATION: &str = "a duration such as 50ms, 1.5s, 2m or 1h";
pub(crate) const EXPECTED_SIZE: &str = "a size in bytes such as 512, 64k, 256MB or 64KiB";
pub(crate) const EXPECTED_PERCENT: &str = "a percentage such as 20%";
pub(crate) const EXPECTED_RATE: &str = "a rate in bytes/s such as 500k or 1MB/s, or in bits such as 10Mbit/s";

/// A kind of quantity: its units, and how many of the smallest one each is.
struct Kind {
    expected: &'static str,
    /// The name of the smallest unit.
    smallest: &'static str,
    units: &'static [(&'static str, u128)],
}

const DURATION: Kind = Kind {
    expected: EXPECTED_DURATION,
    smallest: "nanoseconds",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ],
};

const SIZE: Kind = Kind {
    expected: EXPECTED_SIZE,
    smallest: "bytes",
    units: &[
        ("", 1),
        ("B", 1),
        ("k", 1_000),
        ("K", 1_000),
        ("kB", 1_000),
        ("KB", 1_000),
        ("KiB", 1 << 10),
        ("M", 1_000_000),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("G", 1_000_000_000),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("T", 1_000_000_000_000),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
    ],
};

/// In bits/s, so that both families of units are whole.
const RATE: Kind = Kind {
    expected: EXPECTED_RATE,
    smallest: "bits/s",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("", 8),
        ("B", 8),
        ("B/s", 8),
        ("k", 8_000),
        ("K", 8_000),
        ("kB", 8_000),
        ("KB", 8_000),
        ("kB/s", 8_000),
        ("KB/s", 8_000),
        ("KiB", 8 << 10),
        ("KiB/s", 8 << 10),
        ("M", 8_000_000),
        ("MB", 8_000_000),
        ("MB/s", 8_000_000),
        ("MiB", 8 << 20),
        ("MiB/s", 8 << 20),
        ("G", 8_000_000_000),
        ("GB", 8_000_000_000),
        ("GB/s", 8_000_000_000),
        ("GiB", 8 << 30),
        ("GiB/s", 8 << 30),
    ],
};

/// The short form of a unit of time that is spelt out.
fn spelt_out(unit: &str) -> Option<&'static str> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "msec" | "msecs" | "millisecond" | "milliseconds" => "ms",
        "sec" | "secs" | "second" | "seconds" => "s",
        "min" | "mins" | "minute" | "minutes" => "m",
        "hr" | "hrs" | "hour" | "hours" => "h",
        "day" | "days" => "d",
        _ => return None,
    })
}

impl Kind {
    /// The quantity in the smallest unit.
    fn parse(&self, text: &str) -> Result<u128, ValueError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(self.refuse(ValueFault::Empty));
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_start();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let pointless = whole.is_empty() || fraction.contains('.') || number.ends_with('.');
        if pointless {
            return Err(
                self.refuse(ValueFault::NotANumber(if number.is_empty() { text } else { number }.to_owned()))
            );
        }
        let scale = self.scale(number, unit)?;
        self.exact(text, whole, fraction, scale)
    }

    /// How many of the smallest unit one `unit` is.
    fn scale(&self, number: &str, unit: &str) -> Result<u128, ValueError> {
        if let Some((_, scale)) = self.units.iter().find(|(name, _)| *name == unit) {
            return Ok(*scale);
        }
        if unit.is_empty() {
            return Err(self.refuse(ValueFault::NoUnit(number.to_owned())));
        }
        // The usual slip is the case: 256m, 10mb/s.
        let same = |name: &&str| name.eq_ignore_ascii_case(unit);
        let known = || self.units.iter().map(|(name, _)| *name);
        let nearest = known().find(same).or_else(|| known().find(|name| Some(*name) == spelt_out(unit)));
        Err(self.refuse(ValueFault::UnknownUnit { unit: unit.to_owned(), nearest }))
    }

    /// `whole.fraction` times `scale`, if that is a whole number.
    fn exact(&self, text: &str, whole: &str, fraction: &str, scale: u128) -> Result<u128, ValueError> {
        let too_large = || self.refuse(ValueFault::TooLarge(text.to_owned()));
        let not_whole =
            || self.refuse(ValueFault::NotWhole { written: text.to_owned(), unit: self.smallest });
        let fraction = fraction.trim_end_matches('0');
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let mut quantity = whole.checked_mul(scale).ok_or_else(too_large)?;
        if !fraction.is_empty() {
            let divisor = u32::try_from(fraction.len()).ok().and_then(|digits| 10_u128.checked_pow(digits));
            let divisor = divisor.ok_or_else(not_whole)?;
            let numerator: u128 = fraction.parse().map_err(|_| not_whole())?;
            let product = numerator.checked_mul(scale).ok_or_else(not_whole)?;
            if product % divisor != 0 {
                return Err(not_whole());
            }
            quantity = quantity.checked_add(product / divisor).ok_or_else(too_large)?;
        }
        Ok(quantity)
    }

    /// In the largest unit that it is a whole number of; among equals the last of the list.
    fn write(&self, quantity: u128, zero: &str) -> String {
        let fits = |scale: u128| quantity >= scale && quantity.is_multiple_of(scale);
        match self.units.iter().filter(|(_, scale)| fits(*scale)).max_by_key(|(_, scale)| *scale) {
            // `512`, not `512B`.
            Some((_, 1)) if self.smallest == "bytes" => quantity.to_string(),
            Some((unit, scale)) => format!("{}{unit}", quantity / scale),
            None => zero.to_owned(),
        }
    }

    fn refuse(&self, fault: ValueFault) -> ValueError {
        ValueError { fault, expected: self.expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, nanoseconds) in [
            ("50ms", 50_000_000_u64),
            ("1.5s", 1_500_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
            ("250us", 250_000),
            ("1.000s", 1_000_000_000),
            (" 10 s ", 10_000_000_000),
            ("0.25h", 900_000_000_000),
            ("730d", 730 * 86_400_000_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64k", 64_000),
            ("64KB", 64_000),
            ("64KiB", 65_536),
            ("1.5M", 1_500_000),
            ("256MiB", 268_435_456),
            ("10G", 10_000_000_000),
            ("10 GiB", 10_737_418_240),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn rates() {
        for (text, bytes_per_second) in [
            ("64", 64),
            ("1MB/s", 1_000_000),
            ("500k", 500_000),
            ("1MiB/s", 1_048_576),
            ("10Mbit/s", 1_250_000),
            ("1.5Mbit/s", 187_500),
            ("8bit/s", 1),
        ] {
            assert_eq!(rate(text), Ok(bytes_per_second), "{text}");
        }
    }

    #[test]
    fn quantities_as_written() {
        let seconds = |seconds| written_duration(Duration::from_secs(seconds));
        assert_eq!([seconds(0), seconds(75), seconds(60), seconds(3600)], ["0s", "75s", "1m", "1h"]);
        assert_eq!(written_duration(Duration::from_millis(1500)), "1500ms");
        assert_eq!([0, 100, 64_000, 65_536].map(written_size), ["0", "100", "64KB", "64KiB"]);
        assert_eq!([0, 64, 1_000_000].map(written_rate), ["0B/s", "64B/s", "1MB/s"]);
    }

    #[test]
    fn refusals_say_what_and_what_would_do() {
        let of_duration = |text| duration(text).map(|_| ()).unwrap_err().to_string();
        let of_size = |text| size(text).map(|_| ()).unwrap_err().to_string();
        let of_rate = |text| rate(text).map(|_| ()).unwrap_err().to_string();
        let (a_duration, a_size, a_rate) = (DURATION.expected, SIZE.expected, RATE.expected);
        for (said, expected) in [
            (of_duration(""), format!("it is empty; expected {a_duration}")),
            (of_duration("10"), format!("10 has no unit; expected {a_duration}")),
            (of_duration("fast"), format!("\"fast\" is not a number; expected {a_duration}")),
            (of_duration("1.2.3s"), format!("\"1.2.3\" is not a number; expected {a_duration}")),
            (of_duration("1.s"), format!("\"1.\" is not a number; expected {a_duration}")),
            (of_duration("-1s"), format!("\"-1s\" is not a number; expected {a_duration}")),
            (
                of_duration("10sec"),
                format!("unknown unit \"sec\"; did you mean \"s\"? Expected {a_duration}"),
            ),
            (
                of_duration("5 Minutes"),
                format!("unknown unit \"Minutes\"; did you mean \"m\"? Expected {a_duration}"),
            ),
            (of_duration("5w"), format!("unknown unit \"w\"; expected {a_duration}")),
            (of_duration("10MS"), format!("unknown unit \"MS\"; did you mean \"ms\"? Expected {a_duration}")),
            (
                of_duration("0.5ns"),
                format!("0.5ns is not a whole number of nanoseconds; expected {a_duration}"),
            ),
            (of_duration("731d"), format!("731d is too large; expected {a_duration}")),
            (of_size("256m"), format!("unknown unit \"m\"; did you mean \"M\"? Expected {a_size}")),
            (of_size("0.5"), format!("0.5 is not a whole number of bytes; expected {a_size}")),
            (
                of_size("18446744073709551616"),
                format!("18446744073709551616 is too large; expected {a_size}"),
            ),
            (of_rate("9bit/s"), format!("9bit/s is not a whole number of bytes/s; expected {a_rate}")),
            (of_rate("1Mbit"), format!("unknown unit \"Mbit\"; expected {a_rate}")),
        ] {
            assert_eq!(said, expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = (duration(&text), size(&text), rate(&text));
        }

        #[test]
        fn numbers_with_units_are_read_or_refused(text in "[0-9]{0,45}(\\.[0-9]{0,45})?[a-zA-Z/]{0,6}") {
            let _ = (duration(&text), size(&text), rate(&text));
        }

        #[test]
        fn what_is_written_is_read_back(nanoseconds in 0_u64..31_536_000_000_000_000, bytes: u64, by in 0_u32..64) {
            let (duration_written, bytes) = (Duration::from_nanos(nanoseconds), bytes >> by);
            proptest::prop_assert_eq!(duration(&written_duration(duration_written)), Ok(duration_written));
            proptest::prop_assert_eq!(size(&written_size(bytes)), Ok(bytes));
            proptest::prop_assert_eq!(rate(&written_rate(bytes)), Ok(bytes));
        }

        #[test]
        fn milliseconds_round_trip(milliseconds in 0_u32..=u32::MAX) {
            let written = Duration::from_millis(milliseconds.into());
            proptest::prop_assert_eq!(duration(&format!("{milliseconds}ms")), Ok(written));
            let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
            proptest::prop_assert_eq!(duration(&format!("{seconds}.{rest:03}s")), Ok(written));
        }
    }
}
