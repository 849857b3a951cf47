//! Writes an entry as one log line directly into a buffer, without allocation once the buffer has grown. Formats
//! with fixed fields are here; `out` writes the others.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::batch::LineBatch;
use crate::entry::{LogEntry, LoggedVersion, Retried, WHOLE};
use crate::escape;
use crate::field::Needs;
use crate::format::{Chosen, FormatStep, LineFormat};
use crate::masks::Masks;
use crate::out::{ValueOut, ValueStyle};
use crate::query::LoggedQuery;
use crate::quick::Quick;
use crate::timestamp::Timestamp;

/// Writes lines in a format, with its masks applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineWriter {
    format: LineFormat,
    masks: Masks,
    quick: Option<Quick>,
}

impl LineWriter {
    #[must_use]
    pub fn new(format: LineFormat, masks: Masks) -> Self {
        let format = format.hiding(&masks);
        let quick = match &format {
            LineFormat::Chosen(chosen) => Quick::new(&chosen.steps, &masks),
            _ => None,
        };
        Self { format, masks, quick }
    }

    #[must_use]
    pub fn needs(&self) -> Needs {
        self.format.needs().and(Needs::ENTRY)
    }

    /// Returns the first lines of a file: the directives of the W3C Extended Log Format, else nothing.
    #[must_use]
    pub fn head(&self, now: &Timestamp) -> Vec<u8> {
        match &self.format {
            LineFormat::Chosen(chosen) => chosen.head(now),
            _ => Vec::new(),
        }
    }

    pub fn write(&self, entry: &LogEntry<'_>, timestamp: &Timestamp, batch: &mut LineBatch) {
        if !self.quick(entry, timestamp, batch) {
            self.slow(entry, timestamp, batch);
        }
    }

    /// Appends the line by the fast path, or returns `false`.
    #[inline]
    pub(crate) fn quick(&self, entry: &LogEntry<'_>, timestamp: &Timestamp, batch: &mut LineBatch) -> bool {
        self.quick.as_ref().is_some_and(|quick| quick.write(entry, &self.masks, timestamp, batch))
    }

    pub(crate) fn slow(&self, entry: &LogEntry<'_>, timestamp: &Timestamp, batch: &mut LineBatch) {
        let masks = &self.masks;
        batch.append(|line| {
            match &self.format {
                LineFormat::Extended => extended(entry, masks, timestamp, line),
                LineFormat::Combined => {
                    combined(entry, masks, timestamp, line);
                    cause(entry, line);
                }
                LineFormat::Json => json(entry, masks, timestamp, line),
                LineFormat::Chosen(chosen) => chosen_fields(chosen, entry, masks, timestamp, line),
            }
            line.push(b'\n');
        });
    }
}

fn chosen_fields(
    chosen: &Chosen,
    entry: &LogEntry<'_>,
    masks: &Masks,
    timestamp: &Timestamp,
    line: &mut Vec<u8>,
) {
    for step in &chosen.steps {
        match step {
            FormatStep::Text(text) => line.extend_from_slice(text),
            FormatStep::Value { field, style, is_hidden } => {
                let mut out = ValueOut { line, style: *style };
                if !out.field((field, *is_hidden), entry, masks, timestamp) {
                    out.absent();
                }
            }
            FormatStep::Member { key, field, is_hidden } => {
                let start = line.len();
                line.extend_from_slice(key);
                let mut out = ValueOut { line, style: ValueStyle::Json };
                if out.field((field, *is_hidden), entry, masks, timestamp) {
                    line.push(b',');
                } else {
                    line.truncate(start);
                }
            }
            FormatStep::Close => {
                if line.last() == Some(&b',') {
                    line.pop();
                }
                line.push(b'}');
            }
        }
    }
}

/// The maximum lengths of logged fields, in bytes before escaping. Longer ones are cut and end in `...`.
pub(crate) mod limit {
    pub(crate) const METHOD: usize = 64;
    pub(crate) const TARGET: usize = 8192;
    pub(crate) const HOST: usize = 512;
    pub(crate) const REFERER: usize = 2048;
    pub(crate) const USER_AGENT: usize = 1024;
    pub(crate) const NAME: usize = 256;
    pub(crate) const SUBJECT: usize = 2048;
    pub(crate) const DETAIL: usize = 1024;
    pub(crate) const HEADER: usize = 4096;
}

pub(crate) struct PunctuatedName {
    pub(crate) combined: &'static [u8],
    pub(crate) json: &'static [u8],
}

/// Builds a [`Name`] at compile time.
macro_rules! name {
    ($name:literal) => {
        $crate::line::PunctuatedName {
            combined: concat!(" ", $name, "=").as_bytes(),
            json: concat!(",\"", $name, "\":").as_bytes(),
        }
    };
}
pub(crate) use name;

fn combined(entry: &LogEntry<'_>, masks: &Masks, timestamp: &Timestamp, line: &mut Vec<u8>) {
    let query = &masks.query;
    address(masks.addresses.for_address(entry.client), line);
    line.extend_from_slice(b" - ");
    if entry.user.is_empty() {
        line.push(b'-');
    } else {
        cut(entry.user.as_bytes(), limit::NAME, escape::word, line);
    }
    line.extend_from_slice(b" [");
    line.extend_from_slice(timestamp.combined());
    line.extend_from_slice(b"] \"");
    if entry.method.is_empty() {
        line.push(b'-');
    } else {
        cut(entry.method, limit::METHOD, escape::combined, line);
        line.push(b' ');
        url(entry.target, limit::TARGET, query, escape::combined, line);
        if let Some(sent) = entry.version {
            line.extend_from_slice(b" HTTP/");
            version(sent, line);
        }
    }
    line.extend_from_slice(b"\" ");
    decimal_or_dash(u64::from(entry.status), line);
    line.push(b' ');
    decimal_or_dash(entry.body_bytes_sent, line);
    line.extend_from_slice(b" \"");
    url(or_dash(entry.referer), limit::REFERER, query, escape::combined, line);
    line.extend_from_slice(b"\" \"");
    cut(or_dash(entry.user_agent), limit::USER_AGENT, escape::combined, line);
    line.push(b'"');
}

/// Appends the cause of a failure whose status the proxy has chosen.
fn cause(entry: &LogEntry<'_>, line: &mut Vec<u8>) {
    // A response that breaks off keeps the status of its server.
    if let Some(cause) = entry.cause.filter(|_| entry.status >= 400) {
        line.extend_from_slice(b" \"");
        cut(cause.as_bytes(), limit::NAME, escape::combined, line);
        line.push(b'"');
    }
}

fn extended(entry: &LogEntry<'_>, masks: &Masks, timestamp: &Timestamp, line: &mut Vec<u8>) {
    combined(entry, masks, timestamp, line);
    let mut rest = PairWriter { line, layout: Layout::Extended };
    rest.text(name!("host"), entry.host, limit::HOST);
    entry.write_named(masks.addresses, &mut rest);
}

/// Writes `-` for an absent value, as httpd does.
fn or_dash(field: &[u8]) -> &[u8] {
    if field.is_empty() { b"-" } else { field }
}

fn json(entry: &LogEntry<'_>, masks: &Masks, timestamp: &Timestamp, line: &mut Vec<u8>) {
    let query = &masks.query;
    line.extend_from_slice(b"{\"time\":\"");
    line.extend_from_slice(timestamp.rfc3339());
    line.push(b'.');
    digits::<3>(timestamp.millisecond(), line);
    line.extend_from_slice(b"Z\",\"client\":\"");
    address(masks.addresses.for_address(entry.client), line);
    line.push(b'"');

    let mut fields = PairWriter { line, layout: Layout::Json };
    fields.text(name!("user"), entry.user.as_bytes(), limit::NAME);
    if !entry.method.is_empty() {
        fields.text(name!("method"), entry.method, limit::METHOD);
        fields.url(name!("target"), entry.target, limit::TARGET, query);
    }
    // Unreadable requests and connections have none.
    if let Some(sent) = entry.version {
        fields.name(name!("version"));
        fields.line.push(b'"');
        version(sent, fields.line);
        fields.line.push(b'"');
    }
    fields.text(name!("host"), entry.host, limit::HOST);
    if entry.status != 0 {
        fields.number(name!("status"), u64::from(entry.status));
    }
    fields.number(name!("body_bytes_sent"), entry.body_bytes_sent);
    fields.url(name!("referer"), entry.referer, limit::REFERER, query);
    fields.text(name!("user_agent"), entry.user_agent, limit::USER_AGENT);
    entry.write_named(masks.addresses, &mut fields);
    line.push(b'}');
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Extended,
    Json,
}

pub(crate) struct PairWriter<'l> {
    line: &'l mut Vec<u8>,
    layout: Layout,
}

impl PairWriter<'_> {
    /// Writes failed attempts: as `cause@server,…` in the extended format, as an array of objects in JSON.
    pub(crate) fn retried(&mut self, attempts: &[Retried<'_>]) {
        if attempts.is_empty() {
            return;
        }
        self.name(name!("retried"));
        if self.layout == Layout::Json {
            return retried_as_json(attempts, self.line);
        }
        self.line.push(b'"');
        for (at, Retried { server, cause }) in attempts.iter().enumerate() {
            if at > 0 {
                self.line.push(b',');
            }
            self.line.extend_from_slice(cause.as_bytes());
            self.line.push(b'@');
            cut(server.as_bytes(), limit::NAME, escape::combined, self.line);
        }
        self.line.push(b'"');
    }

    fn name(&mut self, name: PunctuatedName) {
        self.line.extend_from_slice(match self.layout {
            Layout::Extended => name.combined,
            Layout::Json => name.json,
        });
    }

    pub(crate) fn text(&mut self, name: PunctuatedName, value: &[u8], bytes_max: usize) {
        if !value.is_empty() {
            self.name(name);
            self.line.push(b'"');
            match self.layout {
                Layout::Extended => cut(value, bytes_max, escape::combined, self.line),
                Layout::Json => cut(value, bytes_max, escape::json, self.line),
            }
            self.line.push(b'"');
        }
    }

    fn url(&mut self, name: PunctuatedName, value: &[u8], bytes_max: usize, query: &LoggedQuery) {
        if !value.is_empty() {
            self.name(name);
            self.line.push(b'"');
            match self.layout {
                Layout::Extended => url(value, bytes_max, query, escape::combined, self.line),
                Layout::Json => url(value, bytes_max, query, escape::json, self.line),
            }
            self.line.push(b'"');
        }
    }

    pub(crate) fn address(&mut self, name: PunctuatedName, value: IpAddr) {
        self.name(name);
        self.line.push(b'"');
        address(value, self.line);
        self.line.push(b'"');
    }

    pub(crate) fn number(&mut self, name: PunctuatedName, value: u64) {
        self.name(name);
        decimal(value, self.line);
    }

    pub(crate) fn milliseconds(&mut self, name: PunctuatedName, value: Option<Duration>) {
        let Some(duration) = value else { return };
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.number(name, microseconds / 1000);
        self.line.push(b'.');
        digits::<3>((microseconds % 1000) as u32, self.line);
    }

    pub(crate) fn hundredths(&mut self, name: PunctuatedName, value: u32) {
        self.name(name);
        hundredths(value, self.line);
    }
}

pub(crate) fn retried_as_json(attempts: &[Retried<'_>], line: &mut Vec<u8>) {
    line.push(b'[');
    for (at, Retried { server, cause }) in attempts.iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        line.extend_from_slice(b"{\"cause\":\"");
        escape::json(cause.as_bytes(), line);
        line.extend_from_slice(b"\",\"server\":\"");
        cut(server.as_bytes(), limit::NAME, escape::json, line);
        line.extend_from_slice(b"\"}");
    }
    line.push(b']');
}

fn cut(value: &[u8], bytes_max: usize, escape: impl Fn(&[u8], &mut Vec<u8>), line: &mut Vec<u8>) {
    escape(&value[..value.len().min(bytes_max)], line);
    if value.len() > bytes_max {
        line.extend_from_slice(b"...");
    }
}

fn url(
    value: &[u8],
    bytes_max: usize,
    query: &LoggedQuery,
    escape: impl Fn(&[u8], &mut Vec<u8>),
    line: &mut Vec<u8>,
) {
    if *query == LoggedQuery::Full {
        return cut(value, bytes_max, escape, line);
    }
    query.pieces(&value[..value.len().min(bytes_max)], |piece| escape(piece, line));
    if value.len() > bytes_max {
        line.extend_from_slice(b"...");
    }
}

/// Writes an IPv4 address that was mapped to IPv6 as IPv4.
pub(crate) fn address(address: IpAddr, line: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    line.push(b'.');
                }
                decimal(u64::from(octet), line);
            }
        }
        // Writing to a Vec does not fail.
        IpAddr::V6(address) => drop(write!(line, "{address}")),
    }
}

pub(crate) fn version(LoggedVersion(major, minor): LoggedVersion, line: &mut Vec<u8>) {
    decimal(u64::from(major), line);
    line.push(b'.');
    decimal(u64::from(minor), line);
}

/// Writes `-` for zero, as httpd does for `%b` and a missing status.
fn decimal_or_dash(number: u64, line: &mut Vec<u8>) {
    if number == 0 { line.push(b'-') } else { decimal(number, line) }
}

pub(crate) fn decimal(number: u64, line: &mut Vec<u8>) {
    // A status, a part of an address, or a time below a second.
    match number {
        0..=9 => line.push(b'0' + number as u8),
        10..=99 => digits::<2>(number as u32, line),
        100..=999 => digits::<3>(number as u32, line),
        _ => long_decimal(number, line),
    }
}

fn long_decimal(mut number: u64, line: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    line.extend_from_slice(&digits[at..]);
}

/// Writes the last `COUNT` digits of a number, with leading zeros.
pub(crate) fn digits<const COUNT: usize>(mut number: u32, line: &mut Vec<u8>) {
    let mut digits = [b'0'; COUNT];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    line.extend_from_slice(&digits);
}

/// Writes a number of hundredths: `100` or `33.33`.
pub(crate) fn hundredths(value: u32, line: &mut Vec<u8>) {
    decimal(u64::from(value / WHOLE), line);
    if !value.is_multiple_of(WHOLE) {
        line.push(b'.');
        digits::<2>(value % WHOLE, line);
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::entry::More;
    use crate::entry::{Injected, LoggedTls};

    const MINIMAL: LogEntry<'static> = LogEntry::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)));

    const COMPLETE: LogEntry<'static> = LogEntry {
        user: "me \"too\"",
        scheme: "https",
        method: b"GET",
        target: b"/a?b",
        version: Some(LoggedVersion(1, 1)),
        status: 502,
        body_bytes_sent: 18_446_744_073_709_551_615,
        bytes_received: 310,
        referer: b"http://example.test/\"",
        user_agent: b"curl/8.0",
        host: b"example.test",
        route: Some("/a"),
        upstream: Some("app"),
        server: Some("127.0.0.1:9000"),
        duration: Duration::from_micros(12_034),
        retries: 2,
        cause: Some("upstream_reset"),
        detail: Some("it said \"\\n\""),
        more: &More {
            request_id: b"7f\"",
            tls: LoggedTls {
                version: "TLSv1.3",
                cipher: "TLS_AES_128_GCM_SHA256",
                server_name: "example.test",
                subject: "CN=a\"",
                issuer: "CN=b",
                serial: "0f",
                names: "DNS:a",
                fingerprint: "ab",
            },
            upstream_connect: Some(Duration::from_nanos(999)),
            upstream_first_byte: Some(Duration::from_millis(10)),
            upstream_total: Some(Duration::from_micros(11_999)),
            retried: &[
                Retried { server: "127.0.0.1:9001", cause: "upstream-refused" },
                Retried { server: "\"", cause: "upstream-reset" },
            ],
            queued: Some(Duration::from_micros(1500)),
            session_moved: Some(("stopped", Some("127.0.0.1:9001"))),
            shed: Some("memory"),
            fault: Some(Injected { rule: "503", seed: 1, number: 17 }),
            ..More::NONE
        },
        ..MINIMAL
    };

    fn line(format: LineFormat, entry: &LogEntry<'_>) -> String {
        line_with(format, entry, &LoggedQuery::Full)
    }

    fn line_with(format: LineFormat, entry: &LogEntry<'_>, query: &LoggedQuery) -> String {
        let mut timestamp = Timestamp::new();
        timestamp.set(UNIX_EPOCH + Duration::from_millis(971_186_136_007));
        let mut batch = LineBatch::default();
        let masks = Masks { query: query.clone(), ..Masks::default() };
        LineWriter::new(format, masks).write(entry, &timestamp, &mut batch);
        str::from_utf8(batch.lines()).expect("a line is UTF-8").to_owned()
    }

    #[test]
    fn combined_is_httpd_s_nine_fields_and_the_rest_by_name() {
        assert_eq!(
            line(LineFormat::Extended, &COMPLETE),
            "192.0.2.7 - me\\x20\\\"too\\\" [10/Oct/2000:13:55:36 +0000] \"GET /a?b HTTP/1.1\" 502 18446744073709551615 \
             \"http://example.test/\\\"\" \"curl/8.0\" host=\"example.test\" request_id=\"7f\\\"\" scheme=\"https\" tls_version=\"TLSv1.3\" \
             tls_cipher=\"TLS_AES_128_GCM_SHA256\" tls_sni=\"example.test\" tls_subject=\"CN=a\\\"\" \
             tls_issuer=\"CN=b\" tls_serial=\"0f\" tls_san=\"DNS:a\" tls_fingerprint=\"ab\" \
             bytes_received=310 duration_ms=12.034 route=\"/a\" upstream=\"app\" server=\"127.0.0.1:9000\" upstream_connect_ms=0.000 \
             upstream_first_byte_ms=10.000 upstream_total_ms=11.999 queued_ms=1.500 retries=2 \
             retried=\"upstream-refused@127.0.0.1:9001,upstream-reset@\\\"\" session_moved=\"stopped\" \
             session_from=\"127.0.0.1:9001\" shed=\"memory\" fault=\"503\" fault_seed=1 fault_number=17 \
             cause=\"upstream_reset\" detail=\"it said \\\"\\\\n\\\"\"\n"
        );
        assert_eq!(
            line(LineFormat::Extended, &MINIMAL),
            "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"-\" - - \"-\" \"-\" bytes_received=0 duration_ms=0.000\n"
        );
    }

    #[test]
    fn a_combined_line_has_the_cause_of_an_own_status() {
        let beginning = "192.0.2.7 - me\\x20\\\"too\\\" [10/Oct/2000:13:55:36 +0000] \"GET /a?b HTTP/1.1\" ";
        let end = "18446744073709551615 \"http://example.test/\\\"\" \"curl/8.0\"";
        for (status, cause, expected) in [
            (502, Some("upstream-refused"), " \"upstream-refused\""),
            (502, None, ""),
            (200, Some("upstream-truncated"), ""),
            (404, Some("no-route"), " \"no-route\""),
        ] {
            let entry = LogEntry { status, cause, ..COMPLETE };
            let expected = format!("{beginning}{status} {end}{expected}\n");
            assert_eq!(line(LineFormat::Combined, &entry), expected);
        }
    }

    #[test]
    fn json_has_what_is_known() {
        let parsed =
            |entry| serde_json::from_str::<Value>(&line(LineFormat::Json, entry)).expect("valid JSON");
        assert_eq!(
            parsed(&COMPLETE),
            json!({
                "time": "2000-10-10T13:55:36.007Z", "client": "192.0.2.7", "user": "me \"too\"", "request_id": "7f\"", "scheme": "https", "method": "GET", "target": "/a?b",
                "version": "1.1", "host": "example.test", "status": 502,
                "body_bytes_sent": 18_446_744_073_709_551_615_u64, "referer": "http://example.test/\"",
                "user_agent": "curl/8.0", "tls_version": "TLSv1.3", "tls_cipher": "TLS_AES_128_GCM_SHA256",
                "tls_sni": "example.test", "tls_subject": "CN=a\"", "tls_issuer": "CN=b", "tls_serial": "0f",
                "tls_san": "DNS:a", "tls_fingerprint": "ab", "bytes_received": 310, "duration_ms": 12.034, "route": "/a",
                "upstream": "app", "server": "127.0.0.1:9000", "upstream_connect_ms": 0.0,
                "upstream_first_byte_ms": 10.0, "upstream_total_ms": 11.999, "queued_ms": 1.5, "retries": 2,
                "retried": [
                    { "cause": "upstream-refused", "server": "127.0.0.1:9001" },
                    { "cause": "upstream-reset", "server": "\"" },
                ],
                "session_moved": "stopped", "session_from": "127.0.0.1:9001", "shed": "memory",
                "fault": "503", "fault_seed": 1, "fault_number": 17, "cause": "upstream_reset",
                "detail": "it said \"\\n\"",
            })
        );
        assert_eq!(
            parsed(&MINIMAL),
            json!({
                "time": "2000-10-10T13:55:36.007Z", "client": "192.0.2.7", "body_bytes_sent": 0,
                "bytes_received": 0, "duration_ms": 0.0,
            })
        );
    }

    #[test]
    fn queries_that_are_not_for_the_log() {
        let long = [b"/?token=", &[b'a'; 10_000][..]].concat();
        let entry = LogEntry { target: &long, referer: b"http://from/?token=\"1\"&b=2", ..COMPLETE };
        let query = LoggedQuery::Without(vec!["token".to_owned()]);
        let combined = line_with(LineFormat::Extended, &entry, &query);
        assert!(combined.contains("\"GET /?token=***... HTTP/1.1\""), "{combined}");
        assert!(combined.contains("\"http://from/?token=***&b=2\""), "{combined}");
        let json = line_with(LineFormat::Json, &LogEntry { target: b"/a?b", ..entry }, &LoggedQuery::Omitted);
        let json: Value = serde_json::from_str(&json).expect("valid JSON");
        assert_eq!((&json["target"], &json["referer"]), (&json!("/a"), &json!("http://from/")));
    }

    #[test]
    fn addresses() {
        for (client, shown) in [
            ("0.0.0.0", "0.0.0.0"),
            ("255.20.3.100", "255.20.3.100"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            let client = client.parse().expect("an address");
            let line = line(LineFormat::Extended, &LogEntry { client, ..MINIMAL });
            assert_eq!(line.split(' ').next(), Some(shown));
        }
        let peer = "198.51.100.1".parse().ok();
        let line = line(LineFormat::Extended, &LogEntry { more: &More { peer, ..More::NONE }, ..MINIMAL });
        assert!(line.contains(" peer=\"198.51.100.1\" "), "who asks, and who said so: {line}");
    }

    #[test]
    fn long_fields_are_cut() {
        let (target, agent) = (vec![b'a'; 100_000], vec![0; 100_000]);
        let entry = LogEntry { target: &target, user_agent: &agent, ..COMPLETE };
        let line = line(LineFormat::Json, &entry);
        assert!(line.len() < 8192 + 6 * 1024 + 1024, "{} bytes", line.len());
        let line: Value = serde_json::from_str(&line).expect("valid JSON");
        assert_eq!(line["target"].as_str().map(str::len), Some(8192 + 3));
        assert!(line["user_agent"].as_str().is_some_and(|agent| agent.ends_with("\0...")));
    }

    /// Reverses `escape::combined`.
    fn unescaped(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes().iter();
        while let Some(&byte) = rest.next() {
            let mut next = || *rest.next().expect("an escape is complete");
            bytes.push(match byte {
                b'\\' => match next() {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'x' => {
                        let digits = [next(), next()];
                        u8::from_str_radix(str::from_utf8(&digits).expect("ASCII"), 16).expect("hexadecimal")
                    }
                    byte => byte,
                },
                byte => byte,
            });
        }
        bytes
    }

    fn outside() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..200),
            proptest::collection::vec(
                prop_oneof![
                    Just(b'"'),
                    Just(b'\\'),
                    Just(b'\n'),
                    Just(0xc2),
                    Just(0x9b),
                    Just(b'u'),
                    Just(b' ')
                ],
                1..20
            ),
            any::<String>().prop_filter("not empty", |text| !text.is_empty()).prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn for_any_input_json_stays_one_valid_line(
            target in outside(), referer in outside(), user_agent in outside(), host in outside(),
        ) {
            let entry = LogEntry {
                target: &target, referer: &referer, user_agent: &user_agent, host: &host, ..COMPLETE
            };
            let line = line(LineFormat::Json, &entry);
            prop_assert_eq!(line.as_bytes().last_chunk(), Some(b"}\n"));
            prop_assert!(!line[..line.len() - 1].contains(|character: char| character.is_control()));
            let line: Value = serde_json::from_str(&line).expect("valid JSON");
            for (name, sent) in
                [("target", &target), ("referer", &referer), ("user_agent", &user_agent), ("host", &host)]
            {
                if let Ok(sent) = str::from_utf8(sent) {
                    prop_assert_eq!(line[name].as_str(), Some(sent));
                } else {
                    let shown = line[name].as_str().unwrap_or_default();
                    prop_assert!(shown.contains(char::REPLACEMENT_CHARACTER), "{}", shown);
                }
            }
            prop_assert_eq!(line.as_object().map(serde_json::Map::len), Some(40));
        }

        #[test]
        fn for_any_input_combined_stays_one_line_that_can_be_restored(
            target in outside(), referer in outside(), user_agent in outside(),
        ) {
            let entry = LogEntry { target: &target, referer: &referer, user_agent: &user_agent, ..COMPLETE };
            let line = line(LineFormat::Extended, &entry);
            let text = line.strip_suffix('\n').expect("a line feed at the end");
            prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            // Quotes without a preceding backslash belong to the format.
            let marked = text.replace("\\\\", "\u{1}").replace("\\\"", "\u{2}");
            let quoted: Vec<Vec<u8>> = marked
                .split('"')
                .skip(1)
                .step_by(2)
                .map(|field| unescaped(&field.replace('\u{1}', "\\\\").replace('\u{2}', "\\\"")))
                .collect();
            let request = [b"GET ", &target[..], b" HTTP/1.1"].concat();
            prop_assert_eq!(&quoted[..3], &[request, referer.clone(), user_agent.clone()][..]);
        }
    }
}
