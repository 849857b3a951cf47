//! Writes the fields that a format has chosen: each value in the style of its place, so that none leaves it.

use std::net::IpAddr;
use std::time::Duration;

use crate::entry::{Entry, Retried};
use crate::escape;
use crate::field::{Clock, Field, Unit};
use crate::hexadecimal;
use crate::line::{address, decimal, digits, limit, version};
use crate::masks::Masks;
use crate::query::Query;
use crate::timestamp::Timestamp;

/// What stands for a value that is hidden.
const HIDDEN: &[u8] = b"***";

/// The place of a value in a line, which decides how it is escaped, and what stands for one that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Between quotes of the format: escapes of Apache httpd.
    Quoted,
    /// Up to the next space: the same, and spaces are escaped.
    Word,
    /// A value of JSON.
    Json,
    /// A part of a JSON string, whose quotes are the format's.
    JsonPart,
    /// A field of the W3C Extended Log Format.
    W3c,
}

/// Writes one value.
pub(crate) struct Out<'l> {
    pub(crate) line: &'l mut Vec<u8>,
    pub(crate) style: Style,
}

impl Out<'_> {
    /// Writes what stands for a value that is not there.
    pub(crate) fn absent(&mut self) {
        self.line.extend_from_slice(match self.style {
            Style::Quoted | Style::Word | Style::W3c => b"-",
            Style::Json => b"null",
            Style::JsonPart => b"",
        });
    }

    /// Writes a field of an entry. Returns `false` if it has no value: then nothing is written.
    pub(crate) fn field(
        &mut self,
        (field, is_hidden): (&Field, bool),
        entry: &Entry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
    ) -> bool {
        let of = |text: Option<&'static str>| text.unwrap_or_default().as_bytes();
        match field {
            Field::Time(clock) => self.time(*clock, timestamp),
            Field::Client => self.address(masks.addresses.of(entry.client)),
            Field::Peer => entry.more.peer.is_some_and(|peer| self.address(masks.addresses.of(peer))),
            Field::User => self.text(entry.user.as_bytes(), limit::NAME),
            Field::RequestId => self.text(entry.more.request_id, limit::NAME),
            Field::TraceId => entry.more.trace_id.is_some_and(|id| self.trace_id(id)),
            Field::Scheme => self.text(entry.scheme.as_bytes(), limit::NAME),
            Field::Method => self.text(entry.method, limit::METHOD),
            Field::Target => self.url(entry.target, limit::TARGET, &masks.query),
            Field::Path => self.text(path(entry.target), limit::TARGET),
            Field::Query => self.query(entry.target, &masks.query),
            Field::Version | Field::Protocol => self.version(entry, *field == Field::Protocol),
            Field::RequestLine => self.request_line(entry, &masks.query),
            Field::Host => self.text(entry.host, limit::HOST),
            Field::Status => entry.status != 0 && self.number(u64::from(entry.status)),
            Field::Cause => self.text(of(entry.cause), limit::NAME),
            Field::Detail => self.text(entry.detail.unwrap_or_default().as_bytes(), limit::DETAIL),
            Field::BodyBytesSent => self.number(entry.body_bytes_sent),
            Field::BytesSent => self.number(entry.bytes_sent),
            Field::BytesReceived => self.number(entry.bytes_received),
            Field::Duration(unit) => self.duration(Some(entry.duration), *unit),
            Field::Held(unit) => self.duration(entry.more.held, *unit),
            Field::FirstByte(unit) => self.duration(entry.more.first_byte, *unit),
            Field::UpstreamConnect(unit) => self.duration(entry.more.upstream_connect, *unit),
            Field::UpstreamFirstByte(unit) => self.duration(entry.more.upstream_first_byte, *unit),
            Field::UpstreamTotal(unit) => self.duration(entry.more.upstream_total, *unit),
            Field::Queued(unit) => self.duration(entry.more.queued, *unit),
            Field::Referer if is_hidden => self.hidden(!entry.referer.is_empty()),
            Field::Referer => self.url(entry.referer, limit::REFERER, &masks.query),
            Field::UserAgent if is_hidden => self.hidden(!entry.user_agent.is_empty()),
            Field::UserAgent => self.text(entry.user_agent, limit::USER_AGENT),
            Field::Header(_) | Field::ResponseHeader(_) | Field::Cookie(_) | Field::Argument(_) => {
                self.sent(field, is_hidden, entry, masks)
            }
            of_server_or_client => self.rest(of_server_or_client, entry),
        }
    }

    /// What has to do with servers, connections and the proxy itself.
    fn rest(&mut self, field: &Field, entry: &Entry<'_>) -> bool {
        let tls = &entry.more.tls;
        let mut name = |text: &str| self.text(text.as_bytes(), limit::NAME);
        match field {
            Field::Route => name(entry.route.unwrap_or_default()),
            Field::Upstream => name(entry.upstream.unwrap_or_default()),
            Field::Server => name(entry.server.unwrap_or_default()),
            Field::Cache => name(entry.cache),
            Field::TlsVersion => name(tls.version),
            Field::TlsCipher => name(tls.cipher),
            Field::TlsServerName => name(tls.server_name),
            Field::TlsSerial => name(tls.serial),
            Field::TlsFingerprint => name(tls.fingerprint),
            Field::Listener => name(entry.more.listener),
            Field::SessionMoved => name(entry.more.session_moved.map_or("", |(reason, _)| reason)),
            Field::SessionFrom => {
                name(entry.more.session_moved.and_then(|(_, from)| from).unwrap_or_default())
            }
            Field::Shed => name(entry.more.shed.unwrap_or_default()),
            Field::Fault => name(entry.more.fault.map_or("", |fault| fault.rule)),
            Field::TlsSubject => self.text(tls.subject.as_bytes(), limit::SUBJECT),
            Field::TlsIssuer => self.text(tls.issuer.as_bytes(), limit::SUBJECT),
            Field::TlsNames => self.text(tls.names.as_bytes(), limit::SUBJECT),
            Field::Attempts => entry.server.is_some() && self.number(u64::from(entry.retries) + 1),
            Field::Retries => self.number(u64::from(entry.retries)),
            Field::Retried => self.retried(entry.more.retried),
            Field::UpstreamReused => {
                entry.more.is_upstream_reused.is_some_and(|is_reused| self.truth(is_reused))
            }
            Field::Worker => self.number(entry.more.worker as u64),
            Field::ConnectionRequest => {
                entry.more.connection_request > 0 && self.number(entry.more.connection_request)
            }
            Field::FaultSeed => entry.more.fault.is_some_and(|fault| self.number(fault.seed)),
            Field::FaultNumber => entry.more.fault.is_some_and(|fault| self.number(fault.number)),
            Field::Weight => self.weight(entry.weight),
            _ => false,
        }
    }

    fn time(&mut self, clock: Clock, timestamp: &Timestamp) -> bool {
        if matches!(clock, Clock::Seconds | Clock::Milliseconds) {
            decimal(timestamp.second(), self.line);
            if clock == Clock::Seconds {
                self.line.push(b'.');
            }
            digits::<3>(timestamp.millisecond(), self.line);
            return true;
        }
        self.quote();
        match clock {
            Clock::Date => self.line.extend_from_slice(timestamp.date()),
            Clock::OfDay => self.line.extend_from_slice(timestamp.clock()),
            Clock::Common if self.style == Style::W3c => {
                self.line
                    .extend(timestamp.combined().iter().map(|&byte| if byte == b' ' { b'+' } else { byte }));
            }
            Clock::Common => self.line.extend_from_slice(timestamp.combined()),
            _ => {
                self.line.extend_from_slice(timestamp.rfc3339());
                self.line.push(b'.');
                digits::<3>(timestamp.millisecond(), self.line);
                self.line.push(b'Z');
            }
        }
        self.quote();
        true
    }

    /// A quote, where the style has the value bring its own.
    fn quote(&mut self) {
        if self.style == Style::Json {
            self.line.push(b'"');
        }
    }

    fn escape(&mut self, bytes: &[u8], is_first: bool) {
        match self.style {
            Style::Quoted => escape::combined(bytes, self.line),
            Style::Word => escape::word(bytes, self.line),
            Style::Json | Style::JsonPart => escape::json(bytes, self.line),
            Style::W3c => escape::w3c(bytes, is_first, self.line),
        }
    }

    fn text(&mut self, value: &[u8], bytes_max: usize) -> bool {
        if value.is_empty() {
            return false;
        }
        self.quote();
        self.cut(value, bytes_max);
        self.quote();
        true
    }

    fn cut(&mut self, value: &[u8], bytes_max: usize) {
        self.escape(&value[..value.len().min(bytes_max)], true);
        if value.len() > bytes_max {
            self.line.extend_from_slice(b"...");
        }
    }

    fn url(&mut self, value: &[u8], bytes_max: usize, query: &Query) -> bool {
        if value.is_empty() {
            return false;
        }
        self.quote();
        self.cut_url(value, bytes_max, query);
        self.quote();
        true
    }

    fn cut_url(&mut self, value: &[u8], bytes_max: usize, query: &Query) {
        if *query == Query::Full {
            return self.cut(value, bytes_max);
        }
        let mut is_first = true;
        query.pieces(&value[..value.len().min(bytes_max)], |piece| {
            self.escape(piece, std::mem::take(&mut is_first));
        });
        if value.len() > bytes_max {
            self.line.extend_from_slice(b"...");
        }
    }

    /// The query of a target, without its question mark.
    fn query(&mut self, target: &[u8], query: &Query) -> bool {
        let Some(mark) = target.iter().position(|&byte| byte == b'?') else { return false };
        if *query == Query::Omitted || mark + 1 == target.len() {
            return false;
        }
        self.quote();
        let (rest, bytes_max) = (&target[mark..], limit::TARGET);
        let mut at = 0;
        query.pieces(&rest[..rest.len().min(bytes_max)], |piece| {
            // The question mark is the first byte of the first piece.
            let piece = if at == 0 { &piece[1..] } else { piece };
            self.escape(piece, at == 0);
            at += 1;
        });
        if rest.len() > bytes_max {
            self.line.extend_from_slice(b"...");
        }
        self.quote();
        true
    }

    fn version(&mut self, entry: &Entry<'_>, has_name: bool) -> bool {
        let Some(sent) = entry.version else { return false };
        self.quote();
        if has_name {
            self.line.extend_from_slice(b"HTTP/");
        }
        version(sent, self.line);
        self.quote();
        true
    }

    /// `GET /a HTTP/1.1`, of which spaces are as in a request, also where they end words.
    fn request_line(&mut self, entry: &Entry<'_>, query: &Query) -> bool {
        if entry.method.is_empty() {
            return false;
        }
        let space: &[u8] = match self.style {
            Style::Word => b"\\x20",
            Style::W3c => b"+",
            _ => b" ",
        };
        self.quote();
        self.cut(entry.method, limit::METHOD);
        self.line.extend_from_slice(space);
        self.cut_url(entry.target, limit::TARGET, query);
        if let Some(sent) = entry.version {
            self.line.extend_from_slice(space);
            self.line.extend_from_slice(b"HTTP/");
            version(sent, self.line);
        }
        self.quote();
        true
    }

    fn address(&mut self, value: IpAddr) -> bool {
        self.quote();
        address(value, self.line);
        self.quote();
        true
    }

    fn number(&mut self, value: u64) -> bool {
        decimal(value, self.line);
        true
    }

    fn truth(&mut self, value: bool) -> bool {
        self.line.extend_from_slice(if value { b"true" } else { b"false" });
        true
    }

    fn duration(&mut self, value: Option<Duration>, unit: Unit) -> bool {
        let Some(duration) = value else { return false };
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        match unit {
            Unit::Milliseconds => {
                decimal(microseconds / 1000, self.line);
                self.line.push(b'.');
                digits::<3>((microseconds % 1000) as u32, self.line);
            }
            Unit::Seconds => {
                decimal(microseconds / 1_000_000, self.line);
                self.line.push(b'.');
                digits::<6>((microseconds % 1_000_000) as u32, self.line);
            }
        }
        true
    }

    fn weight(&mut self, hundredths: u32) -> bool {
        crate::line::hundredths(hundredths, self.line);
        true
    }

    fn retried(&mut self, attempts: &[Retried<'_>]) -> bool {
        if attempts.is_empty() {
            return false;
        }
        if self.style == Style::Json {
            crate::line::retried_as_json(attempts, self.line);
            return true;
        }
        for (at, Retried { server, cause }) in attempts.iter().enumerate() {
            if at > 0 {
                self.line.push(b',');
            }
            self.line.extend_from_slice(cause.as_bytes());
            self.line.push(b'@');
            self.cut(server.as_bytes(), limit::NAME);
        }
        true
    }

    fn hidden(&mut self, is_there: bool) -> bool {
        is_there && self.text(HIDDEN, HIDDEN.len())
    }

    /// What is sent in fields or in the query, by its name.
    #[inline(never)]
    fn sent(&mut self, field: &Field, is_hidden: bool, entry: &Entry<'_>, masks: &Masks) -> bool {
        let mut values = Values { out: self, is_there: false, bytes_left: limit::HEADER, is_hidden };
        match field {
            Field::Header(name) => {
                entry.more.headers.request(name, &mut |value| values.add(value, &Query::Full));
            }
            Field::ResponseHeader(name) => {
                let query = if name.eq_ignore_ascii_case(b"location") { &masks.query } else { &Query::Full };
                entry.more.headers.response(name, &mut |value| values.add(value, query));
            }
            Field::Cookie(name) => entry.more.headers.request(b"cookie", &mut |pairs| {
                if let Some(value) = cookie(pairs, name).filter(|_| !values.is_there) {
                    values.add(value, &Query::Full);
                }
            }),
            Field::Argument(name) => {
                values.is_hidden = is_hidden || !masks.query.shows(name);
                let query = entry.target.iter().position(|&byte| byte == b'?');
                let query = query.map_or(&b""[..], |mark| &entry.target[mark + 1..]);
                let found = route::parameters(query).find(|(written, _)| written == &name.as_ref());
                if let Some((_, value)) = found {
                    values.add(value, &Query::Full);
                }
            }
            _ => {}
        }
        let is_there = values.is_there;
        if is_there {
            self.quote();
        }
        is_there
    }

    /// W3C Trace Context §3.2.2.3: 32 lower-case hexadecimal digits.
    fn trace_id(&mut self, id: u128) -> bool {
        let digits = hexadecimal::wide_digits(id);
        self.text(&digits, digits.len())
    }
}

/// The values of one name: one list (RFC 9110 §5.3).
struct Values<'o, 'l> {
    out: &'o mut Out<'l>,
    is_there: bool,
    bytes_left: usize,
    is_hidden: bool,
}

impl Values<'_, '_> {
    fn add(&mut self, value: &[u8], query: &Query) {
        let is_first = !self.is_there;
        if is_first {
            self.out.quote();
            self.is_there = true;
        } else if self.is_hidden || self.bytes_left == 0 {
            return;
        } else {
            self.out.escape(b", ", false);
        }
        if self.is_hidden {
            self.out.line.extend_from_slice(HIDDEN);
            return;
        }
        self.out.cut_url(value, self.bytes_left, query);
        self.bytes_left = self.bytes_left.saturating_sub(value.len());
    }
}

/// The path of a target: of a URL without scheme and authority, and without the query.
pub(crate) fn path(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
    let target = &target[..end];
    if target.first() == Some(&b'/') {
        return target;
    }
    // RFC 9112 §3.2.2: absolute-form, whose path may be empty.
    match target.windows(3).position(|part| part == b"://") {
        Some(at) => {
            let authority = &target[at + 3..];
            authority.iter().position(|&byte| byte == b'/').map_or(&b"/"[..], |slash| &authority[slash..])
        }
        None => target,
    }
}

/// The value of a cookie in a Cookie field (RFC 6265 §5.4).
fn cookie<'p>(pairs: &'p [u8], name: &[u8]) -> Option<&'p [u8]> {
    pairs.split(|&byte| byte == b';').map(<[u8]>::trim_ascii).find_map(|pair| {
        let rest = pair.strip_prefix(name)?;
        rest.strip_prefix(b"=")
    })
}
