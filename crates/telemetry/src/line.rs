//! An entry as one line of the log, written straight into a buffer: no allocation once the buffer has its size.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::entry::{Entry, Version};
use crate::escape;
use crate::timestamp::Timestamp;

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// The Combined Log Format of Apache httpd, then timings and the rest as `name=value`.
    #[default]
    Combined,
    /// One JSON object; what is not known is left out.
    Json,
}

impl Format {
    /// Adds the line of `entry`, its line feed included.
    pub(crate) fn write(self, entry: &Entry<'_>, timestamp: &Timestamp, line: &mut Vec<u8>) {
        match self {
            Self::Combined => combined(entry, timestamp, line),
            Self::Json => json(entry, timestamp, line),
        }
        line.push(b'\n');
    }
}

/// What of each field is logged at most, in bytes before escaping. A longer one ends in `...`.
mod limit {
    pub(super) const METHOD: usize = 64;
    pub(super) const TARGET: usize = 8192;
    pub(super) const HOST: usize = 512;
    pub(super) const REFERER: usize = 2048;
    pub(super) const USER_AGENT: usize = 1024;
    pub(super) const NAME: usize = 256;
}

fn combined(entry: &Entry<'_>, timestamp: &Timestamp, line: &mut Vec<u8>) {
    address(entry.client, line);
    line.extend_from_slice(b" - - [");
    line.extend_from_slice(timestamp.combined());
    line.extend_from_slice(b"] \"");
    if entry.method.is_empty() {
        line.push(b'-');
    } else {
        cut(entry.method, limit::METHOD, escape::combined, line);
        line.push(b' ');
        cut(entry.target, limit::TARGET, escape::combined, line);
        line.extend_from_slice(b" HTTP/");
        version(entry.version, line);
    }
    line.extend_from_slice(b"\" ");
    decimal_or_dash(u64::from(entry.status), line);
    line.push(b' ');
    decimal_or_dash(entry.body_bytes_sent, line);
    for (field, most) in [(entry.referer, limit::REFERER), (entry.user_agent, limit::USER_AGENT)] {
        line.extend_from_slice(b" \"");
        cut(if field.is_empty() { b"-" } else { field }, most, escape::combined, line);
        line.push(b'"');
    }

    let mut rest = Pairs { line, before_name: " ", after_name: "=", escape: escape::combined };
    rest.text("host", entry.host, limit::HOST);
    rest.measures(entry);
}

fn json(entry: &Entry<'_>, timestamp: &Timestamp, line: &mut Vec<u8>) {
    line.extend_from_slice(b"{\"time\":\"");
    line.extend_from_slice(timestamp.rfc3339());
    line.push(b'.');
    three_digits(timestamp.millisecond(), line);
    line.extend_from_slice(b"Z\",\"client\":\"");
    address(entry.client, line);
    line.push(b'"');

    let mut fields = Pairs { line, before_name: ",\"", after_name: "\":", escape: escape::json };
    if !entry.method.is_empty() {
        fields.text("method", entry.method, limit::METHOD);
        fields.text("target", entry.target, limit::TARGET);
        fields.name("version");
        fields.line.push(b'"');
        version(entry.version, fields.line);
        fields.line.push(b'"');
    }
    fields.text("host", entry.host, limit::HOST);
    if entry.status != 0 {
        fields.number("status", u64::from(entry.status));
    }
    fields.number("body_bytes_sent", entry.body_bytes_sent);
    fields.text("referer", entry.referer, limit::REFERER);
    fields.text("user_agent", entry.user_agent, limit::USER_AGENT);
    fields.measures(entry);
    line.push(b'}');
}

/// Fields as pairs of name and value: the two formats differ in what stands around a name.
struct Pairs<'l> {
    line: &'l mut Vec<u8>,
    before_name: &'static str,
    after_name: &'static str,
    escape: fn(&[u8], &mut Vec<u8>),
}

impl Pairs<'_> {
    /// What the Combined Log Format has no place for.
    fn measures(&mut self, entry: &Entry<'_>) {
        self.number("bytes_received", entry.bytes_received);
        self.milliseconds("duration_ms", Some(entry.duration));
        self.text("route", entry.route.unwrap_or_default().as_bytes(), limit::NAME);
        self.text("upstream", entry.upstream.unwrap_or_default().as_bytes(), limit::NAME);
        self.text("server", entry.server.unwrap_or_default().as_bytes(), limit::NAME);
        self.milliseconds("upstream_connect_ms", entry.upstream_connect);
        self.milliseconds("upstream_first_byte_ms", entry.upstream_first_byte);
        self.milliseconds("upstream_total_ms", entry.upstream_total);
        if entry.retries > 0 {
            self.number("retries", u64::from(entry.retries));
        }
        self.text("cause", entry.cause.unwrap_or_default().as_bytes(), limit::NAME);
    }

    fn name(&mut self, name: &str) {
        for part in [self.before_name, name, self.after_name] {
            self.line.extend_from_slice(part.as_bytes());
        }
    }

    fn text(&mut self, name: &str, value: &[u8], bytes_max: usize) {
        if !value.is_empty() {
            self.name(name);
            self.line.push(b'"');
            cut(value, bytes_max, self.escape, self.line);
            self.line.push(b'"');
        }
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        decimal(value, self.line);
    }

    fn milliseconds(&mut self, name: &str, value: Option<Duration>) {
        let Some(duration) = value else { return };
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.number(name, microseconds / 1000);
        self.line.push(b'.');
        three_digits((microseconds % 1000) as u32, self.line);
    }
}

fn cut(value: &[u8], bytes_max: usize, escape: fn(&[u8], &mut Vec<u8>), line: &mut Vec<u8>) {
    escape(&value[..value.len().min(bytes_max)], line);
    if value.len() > bytes_max {
        line.extend_from_slice(b"...");
    }
}

/// An IPv4 client that came through an IPv6 socket is shown as what it is.
fn address(address: IpAddr, line: &mut Vec<u8>) {
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

fn version(Version(major, minor): Version, line: &mut Vec<u8>) {
    decimal(u64::from(major), line);
    line.push(b'.');
    decimal(u64::from(minor), line);
}

/// `-` for nothing, as httpd writes `%b` and a missing status.
fn decimal_or_dash(number: u64, line: &mut Vec<u8>) {
    if number == 0 { line.push(b'-') } else { decimal(number, line) }
}

fn decimal(mut number: u64, line: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}

fn three_digits(number: u32, line: &mut Vec<u8>) {
    let digit = |value: u32| b'0' + (value % 10) as u8;
    line.extend_from_slice(&[digit(number / 100), digit(number / 10), digit(number)]);
}
