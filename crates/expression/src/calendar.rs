//! Dates and times of day of a point in time, in the proleptic Gregorian calendar. Offsets are fixed: without a database
//! of time zones, daylight saving time is unknown.

use std::fmt;

use crate::duration::write_fraction;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

/// A part of a point in time, named as in CEL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalendarPart {
    /// Years, such as 2026.
    FullYear,
    /// From 0 for January to 11.
    Month,
    /// The day of the month from 1.
    Date,
    /// The day of the month from 0.
    DayOfMonth,
    /// From 0 for Sunday to 6.
    DayOfWeek,
    /// From 0 to 365.
    DayOfYear,
    /// From 0 to 23.
    Hours,
    /// From 0 to 59.
    Minutes,
    /// From 0 to 59.
    Seconds,
    /// From 0 to 999.
    Milliseconds,
    /// The duration since midnight, in nanoseconds. CEL does not have it.
    TimeOfDay,
}

/// Names of the parts, as functions.
pub(crate) const PARTS: [(&str, CalendarPart); 11] = [
    ("getFullYear", CalendarPart::FullYear),
    ("getMonth", CalendarPart::Month),
    ("getDate", CalendarPart::Date),
    ("getDayOfMonth", CalendarPart::DayOfMonth),
    ("getDayOfWeek", CalendarPart::DayOfWeek),
    ("getDayOfYear", CalendarPart::DayOfYear),
    ("getHours", CalendarPart::Hours),
    ("getMinutes", CalendarPart::Minutes),
    ("getSeconds", CalendarPart::Seconds),
    ("getMilliseconds", CalendarPart::Milliseconds),
    ("getTimeOfDay", CalendarPart::TimeOfDay),
];

/// The part of a point in time, at an offset from UTC in seconds.
pub(crate) fn part(nanoseconds: i64, offset_seconds: i32, part: CalendarPart) -> i64 {
    let local = nanoseconds.saturating_add(i64::from(offset_seconds) * SECOND);
    let (days, in_day) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    match part {
        CalendarPart::FullYear => date(days).0,
        CalendarPart::Month => date(days).1 - 1,
        CalendarPart::Date => date(days).2,
        CalendarPart::DayOfMonth => date(days).2 - 1,
        // 1970-01-01 was a Thursday.
        CalendarPart::DayOfWeek => (days + 4).rem_euclid(7),
        CalendarPart::DayOfYear => days - days_of(date(days).0, 1, 1),
        CalendarPart::Hours => in_day / (3600 * SECOND),
        CalendarPart::Minutes => in_day / (60 * SECOND) % 60,
        CalendarPart::Seconds => in_day / SECOND % 60,
        CalendarPart::Milliseconds => in_day / 1_000_000 % 1000,
        CalendarPart::TimeOfDay => in_day,
    }
}

/// Year, month and day of a number of days since 1970. Years are counted from March, so that a leap day ends its year.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    const DAYS_FROM_0000_03_01: i64 = 719_468;
    let days = days + DAYS_FROM_0000_03_01;
    let (era, in_era) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    (year + era * 400, month, day)
}

/// The number of days from 1970 to a date; the reverse of [`date`].
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719_468
}

/// Parses a time of RFC 3339, such as `2026-11-29T12:00:00Z`, to nanoseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date_text, rest) = text.split_once(['T', 't'])?;
    let [year, month, day] = numbers(date_text, '-', [4, 2, 2])?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone);
    let offset = if zone.eq_ignore_ascii_case("z") { 0 } else { parse_offset(zone)? };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hours, minutes, seconds] = numbers(clock, ':', [2, 2, 2])?;
    let is_fraction = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let days = days_of(year, month, day);
    if !is_fraction || date(days) != (year, month, day) || hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let fraction = fraction.parse::<i64>().ok()? * 10_i64.pow(9 - fraction.len() as u32);
    let seconds = days * 86_400 + hours * 3600 + minutes * 60 + seconds - i64::from(offset);
    i64::try_from(i128::from(seconds) * i128::from(SECOND) + i128::from(fraction)).ok()
}

/// Parses an offset from UTC, such as `+02:00`, to seconds.
pub(crate) fn parse_offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let [hours, minutes] = numbers(rest, ':', [2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60) as i32)
}

/// Numbers with fixed numbers of digits.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// A point in time in nanoseconds since 1970, written as [`parse`] reads it. Writing allocates nothing.
pub(crate) struct TimeText(pub(crate) i64);

impl fmt::Display for TimeText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, in_day) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        let ((year, month, day), seconds) = (date(days), in_day / SECOND);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}")?;
        match in_day % SECOND {
            0 => {}
            fraction => write_fraction(fraction.unsigned_abs(), formatter)?,
        }
        formatter.write_str("Z")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_of_a_time() {
        let time = parse("2024-02-29T23:30:15.250Z").unwrap();
        for (offset, name, value) in [
            (0, "getFullYear", 2024),
            (0, "getMonth", 1),
            (0, "getDate", 29),
            (0, "getDayOfMonth", 28),
            (0, "getDayOfWeek", 4),
            (0, "getDayOfYear", 59),
            (0, "getHours", 23),
            (0, "getMinutes", 30),
            (0, "getSeconds", 15),
            (0, "getMilliseconds", 250),
            (3600, "getHours", 0),
            (3600, "getDate", 1),
            (3600, "getMonth", 2),
            (-86_399, "getDate", 28),
            (3600, "getTimeOfDay", 1_815_250_000_000),
        ] {
            let (_, wanted) = PARTS.iter().find(|(known, _)| *known == name).unwrap();
            assert_eq!(part(time, offset, *wanted), value, "{name} at {offset}");
        }
        assert_eq!(part(-1, 0, CalendarPart::FullYear), 1969);
        assert_eq!(part(-1, 0, CalendarPart::DayOfWeek), 3);
    }

    #[test]
    fn times_and_offsets() {
        for (text, nanoseconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T01:00:00+01:00", Some(0)),
            ("1969-12-31T23:59:59.5Z", Some(-500_000_000)),
            ("2026-02-29T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-01-01", None),
            ("2026-01-01T24:00:00Z", None),
            ("2026-01-01T00:00:00", None),
            ("2026-1-1T00:00:00Z", None),
            ("9999-01-01T00:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(parse(text), nanoseconds, "{text}");
        }
        for (text, seconds) in [
            ("+02:00", Some(7200)),
            ("-08:30", Some(-30_600)),
            ("02:00", None),
            ("+2", None),
            ("+24:00", None),
            ("Europe/Berlin", None),
        ] {
            assert_eq!(parse_offset(text), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(nanoseconds in any::<i64>()) {
            let text = TimeText(nanoseconds).to_string();
            prop_assert_eq!(parse(&text), Some(nanoseconds), "{}", text);
        }

        #[test]
        fn parts_are_in_range(nanoseconds in any::<i64>(), offset in -86_399..=86_399) {
            for (name, wanted) in PARTS {
                let value = part(nanoseconds, offset, wanted);
                prop_assert!((0..=DAY).contains(&value), "{} {}", name, value);
            }
        }
    }
}
