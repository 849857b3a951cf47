//! Writes JSON lines of short and plain values in one pass: no call for a few bytes, and no check of the remaining
//! room. `out` writes all other lines, in the same form.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::batch::LineBatch;
use crate::entry::{LogEntry, LoggedVersion};
use crate::escape::specials;
use crate::field::{FieldUnit, LogField, TimeForm};
use crate::format::FormatStep;
use crate::line::limit;
use crate::masks::Masks;
use crate::out::path;
use crate::query::LoggedQuery;
use crate::timestamp::Timestamp;

/// Room for a line, a power of two. `out` writes longer lines.
const ROOM: usize = 1024;
/// The maximum number of bytes that one write may reach beyond the room.
const BEYOND: usize = 32;
/// Room for a key, which is always copied as a whole.
const KEY_ROOM: usize = BEYOND;
/// The digits of 0 to 999 without leading zeros, then their number.
static SMALL: [[u8; 4]; 1000] = {
    let mut all = [[0; 4]; 1000];
    let mut number = 0;
    while number < 1000 {
        let [hundreds, tens, ones] = digits(number as u32);
        all[number] = match number {
            0..10 => [ones, 0, 0, 1],
            10..100 => [tens, ones, 0, 2],
            _ => [hundreds, tens, ones, 3],
        };
        number += 1;
    }
    all
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quick(Box<[JsonMember]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct JsonMember {
    /// Comma, name and colon, and the opening quote of a text.
    key: [u8; KEY_ROOM],
    key_bytes: usize,
    field: LogField,
}

impl Quick {
    /// Compiles the steps of a format, if all are supported members without masks.
    pub(crate) fn new(steps: &[FormatStep], masks: &Masks) -> Option<Self> {
        let (FormatStep::Close, members) = steps.split_last()? else { return None };
        let members =
            members.iter().filter(|step| !matches!(step, FormatStep::Text(text) if **text == *b"{"));
        let member = |step: &FormatStep| match step {
            FormatStep::Member { key, field, is_hidden: false } => {
                JsonMember::new(key, field, form(field, masks)?)
            }
            _ => None,
        };
        members.map(member).collect::<Option<_>>().map(Self)
    }

    /// Appends the object and a line feed. `false`, with `batch` unchanged, if a value is long or must be escaped.
    #[must_use]
    pub(crate) fn write(
        &self,
        entry: &LogEntry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
        batch: &mut LineBatch,
    ) -> bool {
        batch.in_place(|room| {
            let mut pen = Pen { room, at: 0, has_special: false };
            let is_written =
                self.0.iter().all(|member| member.write(entry, masks, timestamp, &mut pen).is_some());
            pen.close().filter(|_| is_written)
        })
    }
}

#[derive(Clone, Copy)]
enum JsonForm {
    Text,
    Number,
}

/// Returns the form of a supported field: one that is copied from the entry, or has a few digits.
fn form(field: &LogField, masks: &Masks) -> Option<JsonForm> {
    match field {
        // Their queries may be masked.
        LogField::Target | LogField::Referer if masks.query != LoggedQuery::Full => None,
        LogField::Time(clock) if *clock != TimeForm::Rfc3339 => None,
        LogField::Target
        | LogField::Referer
        | LogField::Time(_)
        | LogField::Client
        | LogField::Method
        | LogField::Path
        | LogField::Version
        | LogField::Protocol
        | LogField::Host
        | LogField::Scheme
        | LogField::User
        | LogField::RequestId
        | LogField::UserAgent
        | LogField::Cause
        | LogField::Route
        | LogField::Upstream
        | LogField::Server
        | LogField::Cache
        | LogField::Listener => Some(JsonForm::Text),
        LogField::Status
        | LogField::BodyBytesSent
        | LogField::BytesSent
        | LogField::BytesReceived
        | LogField::Retries
        | LogField::Duration(_)
        | LogField::Held(_)
        | LogField::FirstByte(_)
        | LogField::UpstreamConnect(_)
        | LogField::UpstreamFirstByte(_)
        | LogField::UpstreamTotal(_)
        | LogField::Queued(_) => Some(JsonForm::Number),
        _ => None,
    }
}

impl JsonMember {
    /// `key` is the name with its quotes and the colon.
    fn new(key: &[u8], field: &LogField, form: JsonForm) -> Option<Self> {
        let quote: &[u8] = match form {
            JsonForm::Text => b"\"",
            JsonForm::Number => b"",
        };
        let written = [b",", key, quote].concat();
        let mut key = [0; KEY_ROOM];
        key.get_mut(..written.len())?.copy_from_slice(&written);
        Some(Self { key, key_bytes: written.len(), field: field.clone() })
    }

    /// Writes the member if it has a value. `None` if the fast path cannot write it.
    #[inline]
    fn write(
        &self,
        entry: &LogEntry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
        pen: &mut Pen<'_>,
    ) -> Option<()> {
        let name = |name: Option<&'static str>| name.unwrap_or_default().as_bytes();
        let (text, bytes_max): (&[u8], usize) = match &self.field {
            LogField::Method => (entry.method, limit::METHOD),
            LogField::Target => (entry.target, limit::TARGET),
            LogField::Path => (path(entry.target), limit::TARGET),
            LogField::Host => (entry.host, limit::HOST),
            LogField::Referer => (entry.referer, limit::REFERER),
            LogField::UserAgent => (entry.user_agent, limit::USER_AGENT),
            LogField::RequestId => (entry.more.request_id, limit::NAME),
            LogField::User => (entry.user.as_bytes(), limit::NAME),
            LogField::Scheme => (entry.scheme.as_bytes(), limit::NAME),
            LogField::Cause => (name(entry.cause), limit::NAME),
            LogField::Route => (entry.route.unwrap_or_default().as_bytes(), limit::NAME),
            LogField::Upstream => (entry.upstream.unwrap_or_default().as_bytes(), limit::NAME),
            LogField::Server => (entry.server.unwrap_or_default().as_bytes(), limit::NAME),
            LogField::Cache => (entry.cache.as_bytes(), limit::NAME),
            LogField::Listener => (entry.more.listener.as_bytes(), limit::NAME),
            _ => return self.write_other(entry, masks, timestamp, pen),
        };
        if text.is_empty() {
            return Some(());
        }
        if text.len() > bytes_max {
            return None;
        }
        self.key(pen);
        pen.plain(text);
        pen.put(b"\"", 1);
        Some(())
    }

    /// As `write`, for values that are not texts of the entry.
    #[inline]
    fn write_other(
        &self,
        entry: &LogEntry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
        pen: &mut Pen<'_>,
    ) -> Option<()> {
        let (duration, unit) = match &self.field {
            LogField::Time(_) => {
                self.key(pen);
                pen.time(timestamp);
                return Some(());
            }
            LogField::Client => {
                // An IPv4-mapped IPv6 address is written as IPv4.
                let client = match masks.addresses.for_address(entry.client) {
                    IpAddr::V4(client) => client,
                    IpAddr::V6(client) => client.to_ipv4_mapped()?,
                };
                self.key(pen);
                pen.address(client);
                return Some(());
            }
            LogField::Version | LogField::Protocol => {
                let Some(version) = entry.version else { return Some(()) };
                self.key(pen);
                pen.version(version, matches!(self.field, LogField::Protocol));
                return Some(());
            }
            LogField::Status if entry.status == 0 => return Some(()),
            LogField::Status => return self.number(u64::from(entry.status), pen),
            LogField::BodyBytesSent => return self.number(entry.body_bytes_sent, pen),
            LogField::BytesSent => return self.number(entry.bytes_sent, pen),
            LogField::BytesReceived => return self.number(entry.bytes_received, pen),
            LogField::Retries => return self.number(u64::from(entry.retries), pen),
            LogField::Duration(unit) => (Some(entry.duration), *unit),
            LogField::Held(unit) => (entry.more.held, *unit),
            LogField::FirstByte(unit) => (entry.more.first_byte, *unit),
            LogField::UpstreamConnect(unit) => (entry.more.upstream_connect, *unit),
            LogField::UpstreamFirstByte(unit) => (entry.more.upstream_first_byte, *unit),
            LogField::UpstreamTotal(unit) => (entry.more.upstream_total, *unit),
            LogField::Queued(unit) => (entry.more.queued, *unit),
            _ => return None,
        };
        let Some(duration) = duration else { return Some(()) };
        self.key(pen);
        pen.duration(duration, unit)
    }

    #[inline]
    fn key(&self, pen: &mut Pen<'_>) {
        pen.put(&self.key, self.key_bytes);
    }

    #[inline]
    fn number(&self, number: u64, pen: &mut Pen<'_>) -> Option<()> {
        self.key(pen);
        pen.decimal(number)
    }
}

const fn digits(number: u32) -> [u8; 3] {
    [b'0' + (number / 100 % 10) as u8, b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// Writes into the room without bounds checks. Writes beyond the end wrap to places within it, as `at` shows at the
/// end.
struct Pen<'l> {
    room: &'l mut [u8; ROOM + BEYOND],
    at: usize,
    has_special: bool,
}

impl Pen<'_> {
    /// Writes the first `count` bytes of an array of at most [`BEYOND`]. It copies the whole array, which takes
    /// fewer steps; the next write overwrites the rest.
    #[inline]
    fn put<const ALL: usize>(&mut self, bytes: &[u8; ALL], count: usize) {
        self.put_at(self.at, bytes);
        self.at += count;
    }

    #[inline]
    fn put_at<const ALL: usize>(&mut self, at: usize, bytes: &[u8; ALL]) {
        const { assert!(ALL <= BEYOND) }
        let at = at & (ROOM - 1);
        self.room[at..at + ALL].copy_from_slice(bytes);
    }

    /// Copies text eight bytes at a time; the last copy overlaps if the length is no multiple of eight.
    #[inline]
    fn plain(&mut self, text: &[u8]) {
        let end = self.at + text.len();
        if let Some(last) = text.last_chunk::<8>() {
            let mut special = specials(*last);
            for word in text.as_chunks::<8>().0 {
                special |= specials(*word);
                self.put(word, 8);
            }
            self.put_at(end - 8, last);
            self.has_special |= special != 0;
        } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
            let [a, b, c, d] = *first;
            let [e, f, g, h] = *last;
            self.has_special |= specials([a, b, c, d, e, f, g, h]) != 0;
            self.put(first, 4);
            self.put_at(end - 4, last);
        } else if let (Some(&first), Some(&last)) = (text.first(), text.last()) {
            // One to three bytes, which may coincide.
            let middle = text[text.len() / 2];
            self.has_special |= specials([first, middle, last, b'0', b'0', b'0', b'0', b'0']) != 0;
            self.put_at(self.at, &[first]);
            self.put_at(self.at + text.len() / 2, &[middle]);
            self.put_at(end - 1, &[last]);
        }
        self.at = end;
    }

    /// Writes a number below a billion; `None` for larger ones.
    #[inline]
    fn decimal(&mut self, number: u64) -> Option<()> {
        match u32::try_from(number).ok()? {
            number @ ..1000 => self.small(number),
            number @ ..1_000_000 => {
                self.small(number / 1000);
                self.put(&digits(number % 1000), 3);
            }
            number @ ..1_000_000_000 => {
                self.small(number / 1_000_000);
                self.put(&digits(number / 1000 % 1000), 3);
                self.put(&digits(number % 1000), 3);
            }
            _ => return None,
        }
        Some(())
    }

    #[inline]
    fn small(&mut self, number: u32) {
        let digits = &SMALL[number as usize % SMALL.len()];
        self.put(digits, usize::from(digits[3]));
    }

    /// `None` above an hour: all shorter durations fit 32 bits.
    #[inline]
    fn duration(&mut self, duration: Duration, unit: FieldUnit) -> Option<()> {
        let seconds = u32::try_from(duration.as_secs()).ok().filter(|seconds| *seconds < 3600)?;
        let micros = duration.subsec_micros();
        match unit {
            FieldUnit::Milliseconds => {
                self.decimal(u64::from(seconds * 1000 + micros / 1000))?;
                let [hundreds, tens, ones] = digits(micros % 1000);
                self.put(&[b'.', hundreds, tens, ones], 4);
            }
            FieldUnit::Seconds => {
                self.decimal(u64::from(seconds))?;
                let ([a, b, c], [d, e, f]) = (digits(micros / 1000), digits(micros % 1000));
                self.put(&[b'.', a, b, c, d, e, f], 7);
            }
        }
        Some(())
    }

    /// Writes an address and the closing quote.
    #[inline]
    fn address(&mut self, address: Ipv4Addr) {
        for octet in address.octets() {
            self.small(u32::from(octet));
            self.put(b".", 1);
        }
        self.at -= 1;
        self.put(b"\"", 1);
    }

    #[inline]
    fn time(&mut self, timestamp: &Timestamp) {
        let [hundreds, tens, ones] = digits(timestamp.millisecond());
        self.put(timestamp.rfc3339(), timestamp.rfc3339().len());
        self.put(&[b'.', hundreds, tens, ones, b'Z', b'"'], 6);
    }

    #[inline]
    fn version(&mut self, LoggedVersion(major, minor): LoggedVersion, has_name: bool) {
        if has_name {
            self.put(b"HTTP/", 5);
        }
        self.small(u32::from(major));
        self.put(b".", 1);
        self.small(u32::from(minor));
        self.put(b"\"", 1);
    }

    /// Completes the object: the first member's comma becomes the brace. Returns its length; `None` if there is no
    /// member, or if the line does not fit.
    fn close(mut self) -> Option<usize> {
        if self.at == 0 || self.has_special {
            return None;
        }
        self.put_at(0, b"{");
        self.put(b"}\n", 2);
        Some(self.at).filter(|at| *at <= ROOM)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::time::{SystemTime, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;
    use crate::entry::More;
    use crate::format::LineFormat;
    use crate::line::LineWriter;

    const FIELDS: [&str; 28] = [
        "time",
        "client",
        "method",
        "target",
        "path",
        "version",
        "protocol",
        "host",
        "scheme",
        "user",
        "request_id",
        "user_agent",
        "referer",
        "status",
        "cause",
        "body_bytes_sent",
        "bytes_sent",
        "bytes_received",
        "duration_ms",
        "duration_s",
        "held_ms",
        "upstream_total_s",
        "route",
        "upstream",
        "server",
        "retries",
        "cache",
        "listener",
    ];

    fn lines(masks: Masks) -> LineWriter {
        LineWriter::new(LineFormat::new("json", &FIELDS.map(str::to_owned)).expect("a format"), masks)
    }

    /// Writes an entry, and returns whether the fast path did it.
    fn both(lines: &LineWriter, entry: &LogEntry<'_>, now: SystemTime) -> (String, bool) {
        let mut timestamp = Timestamp::new();
        timestamp.set(now);
        let (mut quick, mut slow) = (LineBatch::default(), LineBatch::default());
        for batch in [&mut quick, &mut slow] {
            batch.append(|line| line.extend_from_slice(b"before\n"));
        }
        let is_quick = lines.quick(entry, &timestamp, &mut quick);
        lines.slow(entry, &timestamp, &mut slow);
        let (quick, slow) = (quick.lines(), slow.lines());
        assert!(!is_quick || quick == slow, "{}", String::from_utf8_lossy(quick));
        assert!(is_quick || quick == b"before\n", "what is left to others is as it was");
        (String::from_utf8_lossy(slow).into_owned(), is_quick)
    }

    const ENTRY: LogEntry<'static> = LogEntry {
        method: b"GET",
        target: b"/tiny?page=2",
        version: Some(LoggedVersion(1, 1)),
        host: b"example.test",
        scheme: "https",
        user_agent: b"curl/8.0",
        status: 200,
        body_bytes_sent: 128,
        route: Some("/"),
        server: Some("127.0.0.1:9000"),
        duration: Duration::from_micros(12_034),
        ..LogEntry::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)))
    };

    #[test]
    fn the_fast_path_writes_only_short_and_plain_values() {
        let plain = lines(Masks::default());
        assert!(both(&plain, &ENTRY, UNIX_EPOCH).1);
        for (what, entry) in [
            ("a quote", LogEntry { user_agent: b"an \"agent\"", ..ENTRY }),
            ("a byte that is no text", LogEntry { host: b"\xff", ..ENTRY }),
            ("more than there is room for", LogEntry { target: &[b'a'; 2000], ..ENTRY }),
            ("more than is logged of it", LogEntry { method: &[b'A'; 65], ..ENTRY }),
            ("a billion bytes", LogEntry { body_bytes_sent: 1_000_000_000, ..ENTRY }),
            ("an hour", LogEntry { duration: Duration::from_secs(3600), ..ENTRY }),
            ("version 6", LogEntry { client: IpAddr::V6(Ipv6Addr::LOCALHOST), ..ENTRY }),
        ] {
            assert!(!both(&plain, &entry, UNIX_EPOCH).1, "{what}");
        }
        let mapped = LogEntry { client: IpAddr::V6(Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped()), ..ENTRY };
        assert!(both(&plain, &mapped, UNIX_EPOCH).1);
        let hidden = Masks { query: LoggedQuery::Masked, ..Masks::default() };
        assert!(!both(&lines(hidden), &ENTRY, UNIX_EPOCH).1, "queries are hidden");
    }

    proptest! {
        #[test]
        fn each_line_is_as_others_write_it(
            method in "[A-Z]{0,9}",
            target in "/[ -~]{0,40}",
            host in "[a-z.:0-9]{0,20}",
            user_agent in "[ -~é]{0,30}",
            numbers in any::<[u64; 3]>(),
            shifts in any::<[u8; 3]>(),
            duration in 0_u64..10_000_000_000,
            held in proptest::option::of(0_u64..2_000_000),
            status in 0_u16..1000,
            client in any::<[u8; 4]>(),
            milliseconds in 0_u64..4_000_000_000_000,
            retries in any::<u8>(),
        ) {
            let number = |at: usize| numbers[at] >> (shifts[at] % 64);
            let entry = LogEntry {
                method: method.as_bytes(),
                target: target.as_bytes(),
                host: host.as_bytes(),
                user_agent: user_agent.as_bytes(),
                body_bytes_sent: number(0),
                bytes_sent: number(1),
                bytes_received: number(2),
                duration: Duration::from_micros(duration),
                status,
                retries, more: &More {
                held: held.map(Duration::from_micros), ..More::NONE },
                ..LogEntry { client: IpAddr::V4(client.into()), ..ENTRY }
             };
            both(&lines(Masks::default()), &entry, UNIX_EPOCH + Duration::from_millis(milliseconds));
        }
    }
}
