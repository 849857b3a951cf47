//! Writes JSON lines whose values are all short and plain, which most are, in one pass over room that is there, without
//! a call for a few bytes or a look at what is left. Whatever is else is left to `out`, whose lines are the same.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::batch::Batch;
use crate::entry::{Entry, Version};
use crate::escape::specials;
use crate::field::{Clock, Field, Unit};
use crate::format::Step;
use crate::line::limit;
use crate::masks::Masks;
use crate::out::path;
use crate::query::Query;
use crate::timestamp::Timestamp;

/// Room for a line, a power of two. One that needs more is left to `out`.
const ROOM: usize = 1024;
/// What is written at once may reach beyond by this much.
const BEYOND: usize = 32;
/// Room for a key, which is copied as a whole.
const KEY_ROOM: usize = BEYOND;
/// The digits of 0 to 999 without zeros in front, and behind them how many there are.
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

/// The members of an object, compiled for speed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quick(Box<[Member]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    /// Comma, name and colon, and the quote of a text.
    key: [u8; KEY_ROOM],
    key_bytes: usize,
    field: Field,
}

impl Quick {
    /// The steps of a format, if they are members that are known here, and nothing of them is hidden.
    pub(crate) fn new(steps: &[Step], masks: &Masks) -> Option<Self> {
        let (Step::Close, members) = steps.split_last()? else { return None };
        let members = members.iter().filter(|step| !matches!(step, Step::Text(text) if **text == *b"{"));
        let member = |step: &Step| match step {
            Step::Member { key, field, is_hidden: false } => Member::new(key, field, form(field, masks)?),
            _ => None,
        };
        members.map(member).collect::<Option<_>>().map(Self)
    }

    /// Appends the object and a line feed. Returns `false`, with the lines as they were, if a value is long or has to be
    /// escaped.
    #[must_use]
    pub(crate) fn write(
        &self,
        entry: &Entry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
        batch: &mut Batch,
    ) -> bool {
        batch.in_place(|room| {
            let mut pen = Pen { room, at: 0, has_special: false };
            let is_written =
                self.0.iter().all(|member| member.write(entry, masks, timestamp, &mut pen).is_some());
            pen.close().filter(|_| is_written)
        })
    }
}

/// What a value is in JSON.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Number,
}

/// The form of a field that is written here: only what is as it is in the entry, or made of a few digits.
fn form(field: &Field, masks: &Masks) -> Option<Form> {
    match field {
        // Their queries may be hidden.
        Field::Target | Field::Referer if masks.query != Query::Full => None,
        Field::Time(clock) if *clock != Clock::Rfc3339 => None,
        Field::Target
        | Field::Referer
        | Field::Time(_)
        | Field::Client
        | Field::Method
        | Field::Path
        | Field::Version
        | Field::Protocol
        | Field::Host
        | Field::Scheme
        | Field::User
        | Field::RequestId
        | Field::UserAgent
        | Field::Cause
        | Field::Route
        | Field::Upstream
        | Field::Server
        | Field::Cache
        | Field::Listener => Some(Form::Text),
        Field::Status
        | Field::BodyBytesSent
        | Field::BytesSent
        | Field::BytesReceived
        | Field::Retries
        | Field::Duration(_)
        | Field::Held(_)
        | Field::FirstByte(_)
        | Field::UpstreamConnect(_)
        | Field::UpstreamFirstByte(_)
        | Field::UpstreamTotal(_)
        | Field::Queued(_) => Some(Form::Number),
        _ => None,
    }
}

impl Member {
    /// `key` is the name with its quotes and the colon.
    fn new(key: &[u8], field: &Field, form: Form) -> Option<Self> {
        let quote: &[u8] = match form {
            Form::Text => b"\"",
            Form::Number => b"",
        };
        let written = [b",", key, quote].concat();
        let mut key = [0; KEY_ROOM];
        key.get_mut(..written.len())?.copy_from_slice(&written);
        Some(Self { key, key_bytes: written.len(), field: field.clone() })
    }

    /// Writes the member, if it has a value. `None` if it has to be written by others.
    #[inline]
    fn write(
        &self,
        entry: &Entry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
        pen: &mut Pen<'_>,
    ) -> Option<()> {
        let name = |name: Option<&'static str>| name.unwrap_or_default().as_bytes();
        let (text, bytes_max): (&[u8], usize) = match &self.field {
            Field::Method => (entry.method, limit::METHOD),
            Field::Target => (entry.target, limit::TARGET),
            Field::Path => (path(entry.target), limit::TARGET),
            Field::Host => (entry.host, limit::HOST),
            Field::Referer => (entry.referer, limit::REFERER),
            Field::UserAgent => (entry.user_agent, limit::USER_AGENT),
            Field::RequestId => (entry.more.request_id, limit::NAME),
            Field::User => (entry.user.as_bytes(), limit::NAME),
            Field::Scheme => (entry.scheme.as_bytes(), limit::NAME),
            Field::Cause => (name(entry.cause), limit::NAME),
            Field::Route => (entry.route.unwrap_or_default().as_bytes(), limit::NAME),
            Field::Upstream => (entry.upstream.unwrap_or_default().as_bytes(), limit::NAME),
            Field::Server => (entry.server.unwrap_or_default().as_bytes(), limit::NAME),
            Field::Cache => (entry.cache.as_bytes(), limit::NAME),
            Field::Listener => (entry.more.listener.as_bytes(), limit::NAME),
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

    /// The same of what is no text of the entry.
    #[inline]
    fn write_other(
        &self,
        entry: &Entry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
        pen: &mut Pen<'_>,
    ) -> Option<()> {
        let (duration, unit) = match &self.field {
            Field::Time(_) => {
                self.key(pen);
                pen.time(timestamp);
                return Some(());
            }
            Field::Client => {
                // One of version 4 that came through a socket of version 6 is shown as what it is.
                let client = match masks.addresses.of(entry.client) {
                    IpAddr::V4(client) => client,
                    IpAddr::V6(client) => client.to_ipv4_mapped()?,
                };
                self.key(pen);
                pen.address(client);
                return Some(());
            }
            Field::Version | Field::Protocol => {
                let Some(version) = entry.version else { return Some(()) };
                self.key(pen);
                pen.version(version, matches!(self.field, Field::Protocol));
                return Some(());
            }
            Field::Status if entry.status == 0 => return Some(()),
            Field::Status => return self.number(u64::from(entry.status), pen),
            Field::BodyBytesSent => return self.number(entry.body_bytes_sent, pen),
            Field::BytesSent => return self.number(entry.bytes_sent, pen),
            Field::BytesReceived => return self.number(entry.bytes_received, pen),
            Field::Retries => return self.number(u64::from(entry.retries), pen),
            Field::Duration(unit) => (Some(entry.duration), *unit),
            Field::Held(unit) => (entry.more.held, *unit),
            Field::FirstByte(unit) => (entry.more.first_byte, *unit),
            Field::UpstreamConnect(unit) => (entry.more.upstream_connect, *unit),
            Field::UpstreamFirstByte(unit) => (entry.more.upstream_first_byte, *unit),
            Field::UpstreamTotal(unit) => (entry.more.upstream_total, *unit),
            Field::Queued(unit) => (entry.more.queued, *unit),
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

/// The three digits of a number below a thousand.
const fn digits(number: u32) -> [u8; 3] {
    [b'0' + (number / 100 % 10) as u8, b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// Writes into room that is there. What reaches beyond it is written somewhere within, and noticed at the end: `at` tells.
/// So no step has to ask whether there is room.
struct Pen<'l> {
    room: &'l mut [u8; ROOM + BEYOND],
    at: usize,
    /// Whether a byte came that has to be escaped.
    has_special: bool,
}

impl Pen<'_> {
    /// Writes the first bytes of an array, of at most [`BEYOND`]. All are copied, which takes fewer steps; what follows is
    /// written over.
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

    /// Copies text: eight bytes at a time, the last eight again where their number is no multiple of eight.
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
            // One to three bytes, some of which may be the same.
            let middle = text[text.len() / 2];
            self.has_special |= specials([first, middle, last, b'0', b'0', b'0', b'0', b'0']) != 0;
            self.put_at(self.at, &[first]);
            self.put_at(self.at + text.len() / 2, &[middle]);
            self.put_at(end - 1, &[last]);
        }
        self.at = end;
    }

    /// A number below a billion; larger ones are left to others.
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

    /// A number below a thousand.
    #[inline]
    fn small(&mut self, number: u32) {
        let digits = &SMALL[number as usize % SMALL.len()];
        self.put(digits, usize::from(digits[3]));
    }

    /// What takes longer than an hour is left to others: all below fits 32 bits.
    #[inline]
    fn duration(&mut self, duration: Duration, unit: Unit) -> Option<()> {
        let seconds = u32::try_from(duration.as_secs()).ok().filter(|seconds| *seconds < 3600)?;
        let micros = duration.subsec_micros();
        match unit {
            Unit::Milliseconds => {
                self.decimal(u64::from(seconds * 1000 + micros / 1000))?;
                let [hundreds, tens, ones] = digits(micros % 1000);
                self.put(&[b'.', hundreds, tens, ones], 4);
            }
            Unit::Seconds => {
                self.decimal(u64::from(seconds))?;
                let ([a, b, c], [d, e, f]) = (digits(micros / 1000), digits(micros % 1000));
                self.put(&[b'.', a, b, c, d, e, f], 7);
            }
        }
        Some(())
    }

    /// An address, with the quote behind it.
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
    fn version(&mut self, Version(major, minor): Version, has_name: bool) {
        if has_name {
            self.put(b"HTTP/", 5);
        }
        self.small(u32::from(major));
        self.put(b".", 1);
        self.small(u32::from(minor));
        self.put(b"\"", 1);
    }

    /// Makes an object of the members, each of which has a comma in front. Returns its length; `None` if there is no member,
    /// or if others have to write it.
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
    use crate::format::Format;
    use crate::line::Lines;

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

    fn lines(masks: Masks) -> Lines {
        Lines::new(Format::new("json", &FIELDS.map(str::to_owned)).expect("a format"), masks)
    }

    /// The line of an entry, and whether it was written here.
    fn both(lines: &Lines, entry: &Entry<'_>, now: SystemTime) -> (String, bool) {
        let mut timestamp = Timestamp::new();
        timestamp.set(now);
        let (mut quick, mut slow) = (Batch::default(), Batch::default());
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

    const ENTRY: Entry<'static> = Entry {
        method: b"GET",
        target: b"/tiny?page=2",
        version: Some(Version(1, 1)),
        host: b"example.test",
        scheme: "https",
        user_agent: b"curl/8.0",
        status: 200,
        body_bytes_sent: 128,
        route: Some("/"),
        server: Some("127.0.0.1:9000"),
        duration: Duration::from_micros(12_034),
        ..Entry::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)))
    };

    #[test]
    fn what_is_short_and_plain_is_written_here_and_nothing_else() {
        let plain = lines(Masks::default());
        assert!(both(&plain, &ENTRY, UNIX_EPOCH).1);
        for (what, entry) in [
            ("a quote", Entry { user_agent: b"an \"agent\"", ..ENTRY }),
            ("a byte that is no text", Entry { host: b"\xff", ..ENTRY }),
            ("more than there is room for", Entry { target: &[b'a'; 2000], ..ENTRY }),
            ("more than is logged of it", Entry { method: &[b'A'; 65], ..ENTRY }),
            ("a billion bytes", Entry { body_bytes_sent: 1_000_000_000, ..ENTRY }),
            ("an hour", Entry { duration: Duration::from_secs(3600), ..ENTRY }),
            ("version 6", Entry { client: IpAddr::V6(Ipv6Addr::LOCALHOST), ..ENTRY }),
        ] {
            assert!(!both(&plain, &entry, UNIX_EPOCH).1, "{what}");
        }
        let mapped = Entry { client: IpAddr::V6(Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped()), ..ENTRY };
        assert!(both(&plain, &mapped, UNIX_EPOCH).1);
        let hidden = Masks { query: Query::Masked, ..Masks::default() };
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
            let entry = Entry {
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
                ..Entry { client: IpAddr::V4(client.into()), ..ENTRY }
             };
            both(&lines(Masks::default()), &entry, UNIX_EPOCH + Duration::from_millis(milliseconds));
        }
    }
}
