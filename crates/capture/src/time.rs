//! Times of logs as Unix times in milliseconds.

const DAY_MS: i64 = 86_400_000;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Reads `10/Oct/2026:13:55:36 +0200` (also with `.655` behind the seconds, and without a zone, which is UTC then).
pub(crate) fn common(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(':')?;
    let mut parts = date.split('/');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    let (clock, zone) = rest.split_once(' ').unwrap_or((rest, "+0000"));
    at((number(year)?, month as i64, number(day)?), clock, zone)
}

/// Reads `2026-10-10T13:55:36.007Z`, or with an offset.
pub(crate) fn iso(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once('T')?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let end = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(end);
    let zone = if matches!(zone, "" | "Z") { "+0000".to_owned() } else { zone.replace(':', "") };
    at((number(year)?, number(month)?, number(day)?), clock, &zone)
}

/// Reads seconds since 1970, with a fraction.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    u64::try_from(number(whole)?).ok()?.checked_mul(1000)?.checked_add(milliseconds(fraction)?)
}

fn number(text: &str) -> Option<i64> {
    (text.len() <= 12 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// The digits behind the point of a number of seconds.
fn milliseconds(fraction: &str) -> Option<u64> {
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    u64::try_from(number(&digits)?).ok()
}

fn at((year, month, day): (i64, i64, i64), clock: &str, zone: &str) -> Option<u64> {
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let mut parts = clock.split(':');
    let (hour, minute, second) = (number(parts.next()?)?, number(parts.next()?)?, parts.next()?);
    let second_ms = i64::try_from(seconds(second)?).ok()?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let zone = number(zone.get(1..)?)?;
    let zone_ms = sign * (zone / 100 * 60 + zone % 100) * 60_000;
    let clock_ms = (hour * 60 + minute) * 60_000 + second_ms - zone_ms;
    (is_date && hour < 24 && minute < 60 && second_ms < 61_000).then_some(())?;
    u64::try_from(days(year, month, day) * DAY_MS + clock_ms).ok()
}

/// Days since 1970, in the Gregorian calendar. A year begins in March here, so that a leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (read, text, time_ms) in [
            (common as fn(&str) -> Option<u64>, "01/Jan/1970:00:00:01 +0000", Some(1000)),
            (common, "10/Oct/2000:13:55:36 -0700", Some(971_211_336_000)),
            (common, "06/Feb/2009:12:14:14.655", Some(1_233_922_454_655)),
            (common, "29/Feb/2024:00:00:00 +0130", Some(1_709_159_400_000)),
            (common, "29/Foo/2024:00:00:00 +0130", None),
            (common, "29/Feb/2024", None),
            (iso, "2026-10-10T13:55:36.007Z", Some(1_791_640_536_007)),
            (iso, "2026-10-10T13:55:36+02:00", Some(1_791_633_336_000)),
            (iso, "2026-13-10T13:55:36Z", None),
            (iso, "2026-10-10T13:55Z", None),
            (seconds, "1791640536.0074", Some(1_791_640_536_007)),
            (seconds, "-1", None),
            (seconds, "99999999999999999999", None),
        ] {
            assert_eq!(read(text), time_ms, "{text}");
        }
    }
}
