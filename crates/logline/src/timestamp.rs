//! The time of log lines, in UTC. It is formatted once a second, because formatting a date costs more than the rest
//! of a line.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// The last second that HTTP's date format can show: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

#[derive(Debug)]
pub struct Timestamp {
    second: u64,
    millisecond: u32,
    combined: [u8; 26],
    rfc3339: [u8; 19],
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::new()
    }
}

impl Timestamp {
    /// Starts at the first second of 1970.
    pub fn new() -> Self {
        let mut timestamp = Self { second: 0, millisecond: 0, combined: [0; 26], rfc3339: [0; 19] };
        timestamp.render();
        timestamp
    }

    /// Sets the time. A clock before 1970 or past 9999 shows the nearest valid date.
    pub fn set(&mut self, now: SystemTime) {
        let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.millisecond = since_epoch.subsec_millis();
        let second = since_epoch.as_secs().min(LAST_SECOND);
        if second != self.second {
            self.second = second;
            self.render();
        }
    }

    /// As in `10/Oct/2000:13:55:36 +0000` (Combined Log Format).
    pub fn combined(&self) -> &[u8] {
        &self.combined
    }

    /// As in `2000-10-10T13:55:36`; the caller appends `.`, the milliseconds and `Z` (RFC 3339).
    pub fn rfc3339(&self) -> &[u8; 19] {
        &self.rfc3339
    }

    /// 0 to 999.
    pub fn millisecond(&self) -> u32 {
        self.millisecond
    }

    pub fn second(&self) -> u64 {
        self.second
    }

    /// As in `2000-10-10`.
    pub fn date(&self) -> &[u8] {
        &self.rfc3339[..10]
    }

    /// As in `13:55:36`.
    pub fn clock(&self) -> &[u8] {
        &self.rfc3339[11..]
    }

    /// Rearranges HTTP's date, `Tue, 10 Oct 2000 13:55:36 GMT`, which has a fixed width: no other calendar is needed.
    fn render(&mut self) {
        let mut date = [0; 29];
        let time = UNIX_EPOCH + Duration::from_secs(self.second);
        write!(&mut date[..], "{}", HttpDate::from(time)).expect("an HTTP date is 29 bytes long");
        let (day, month, year, clock) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        let number = month_number(month);

        fill(&mut self.combined, &[day, b"/", month, b"/", year, b":", clock, b" +0000"]);
        fill(&mut self.rfc3339, &[year, b"-", number, b"-", day, b"T", clock]);
    }
}

fn month_number(name: &[u8]) -> &'static [u8] {
    match name {
        b"Jan" => b"01",
        b"Feb" => b"02",
        b"Mar" => b"03",
        b"Apr" => b"04",
        b"May" => b"05",
        b"Jun" => b"06",
        b"Jul" => b"07",
        b"Aug" => b"08",
        b"Sep" => b"09",
        b"Oct" => b"10",
        b"Nov" => b"11",
        _ => b"12",
    }
}

fn fill(target: &mut [u8], parts: &[&[u8]]) {
    let mut at = 0;
    for part in parts {
        target[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    assert_eq!(at, target.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(now: SystemTime) -> (String, String) {
        let mut timestamp = Timestamp::new();
        timestamp.set(now);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
        let rfc3339 = format!("{}.{:03}Z", text(timestamp.rfc3339()), timestamp.millisecond());
        (text(timestamp.combined()), rfc3339)
    }

    #[test]
    fn dates() {
        for (milliseconds, combined, rfc3339) in [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00.000Z"),
            (971_186_136_007, "10/Oct/2000:13:55:36 +0000", "2000-10-10T13:55:36.007Z"),
            (1_709_164_800_999, "29/Feb/2024:00:00:00 +0000", "2024-02-29T00:00:00.999Z"),
            (1_798_761_599_500, "31/Dec/2026:23:59:59 +0000", "2026-12-31T23:59:59.500Z"),
        ] {
            let now = UNIX_EPOCH + Duration::from_millis(milliseconds);
            assert_eq!(texts(now), (combined.to_owned(), rfc3339.to_owned()));
        }
    }

    #[test]
    fn every_month_has_its_number() {
        for month in 0..12 {
            // 2001 began at second 978307200. Steps of a mean month from the 15th stay within each month.
            let now = UNIX_EPOCH + Duration::from_secs(978_307_200 + month * 2_629_800 + 14 * 86_400);
            assert_eq!(&texts(now).1[..7], format!("2001-{:02}", month + 1));
        }
    }

    #[test]
    fn clocks_out_of_range_show_the_nearest_date() {
        assert_eq!(texts(UNIX_EPOCH - Duration::from_secs(5)).1, "1970-01-01T00:00:00.000Z");
        assert_eq!(texts(UNIX_EPOCH + Duration::from_secs(1 << 40)).1, "9999-12-31T23:59:59.000Z");
    }
}
