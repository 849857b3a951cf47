//! Writes the fields of formats with chosen fields. Each value is escaped for its place, so that it cannot leave it.

use std::net::IpAddr;
use std::time::Duration;

use crate::entry::{LogEntry, Retried};
use crate::escape;
use crate::field::{FieldUnit, LogField, TimeForm};
use crate::hexadecimal;
use crate::line::{address, decimal, digits, limit, version};
use crate::masks::Masks;
use crate::query::LoggedQuery;
use crate::timestamp::Timestamp;

const HIDDEN: &[u8] = b"***";

/// The place of a value in a line. It decides how the value is escaped, and what stands for an absent one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueStyle {
    /// Between quotes of the format: escaped as Apache httpd does.
    Quoted,
    /// Ends at the next space: as `Quoted`, with spaces escaped.
    Word,
    Json,
    /// A part of a JSON string whose quotes belong to the format.
    JsonPart,
    W3c,
}

pub(crate) struct ValueOut<'l> {
    pub(crate) line: &'l mut Vec<u8>,
    pub(crate) style: ValueStyle,
}

impl ValueOut<'_> {
    pub(crate) fn absent(&mut self) {
        self.line.extend_from_slice(match self.style {
            ValueStyle::Quoted | ValueStyle::Word | ValueStyle::W3c => b"-",
            ValueStyle::Json => b"null",
            ValueStyle::JsonPart => b"",
        });
    }

    /// Writes a field of an entry, or returns `false` if it has no value.
    pub(crate) fn field(
        &mut self,
        (field, is_hidden): (&LogField, bool),
        entry: &LogEntry<'_>,
        masks: &Masks,
        timestamp: &Timestamp,
    ) -> bool {
        let of = |text: Option<&'static str>| text.unwrap_or_default().as_bytes();
        match field {
            LogField::Time(clock) => self.time(*clock, timestamp),
            LogField::Client => self.address(masks.addresses.for_address(entry.client)),
            LogField::Peer => {
                entry.more.peer.is_some_and(|peer| self.address(masks.addresses.for_address(peer)))
            }
            LogField::User => self.text(entry.user.as_bytes(), limit::NAME),
            LogField::RequestId => self.text(entry.more.request_id, limit::NAME),
            LogField::TraceId => entry.more.trace_id.is_some_and(|id| self.trace_id(id)),
            LogField::Scheme => self.text(entry.scheme.as_bytes(), limit::NAME),
            LogField::Method => self.text(entry.method, limit::METHOD),
            LogField::Target => self.url(entry.target, limit::TARGET, &masks.query),
            LogField::Path => self.text(path(entry.target), limit::TARGET),
            LogField::Query => self.query(entry.target, &masks.query),
            LogField::Version | LogField::Protocol => self.version(entry, *field == LogField::Protocol),
            LogField::RequestLine => self.request_line(entry, &masks.query),
            LogField::Host => self.text(entry.host, limit::HOST),
            LogField::Status => entry.status != 0 && self.number(u64::from(entry.status)),
            LogField::Cause => self.text(of(entry.cause), limit::NAME),
            LogField::Detail => self.text(entry.detail.unwrap_or_default().as_bytes(), limit::DETAIL),
            LogField::BodyBytesSent => self.number(entry.body_bytes_sent),
            LogField::BytesSent => self.number(entry.bytes_sent),
            LogField::BytesReceived => self.number(entry.bytes_received),
            LogField::Duration(unit) => self.duration(Some(entry.duration), *unit),
            LogField::Held(unit) => self.duration(entry.more.held, *unit),
            LogField::FirstByte(unit) => self.duration(entry.more.first_byte, *unit),
            LogField::UpstreamConnect(unit) => self.duration(entry.more.upstream_connect, *unit),
            LogField::UpstreamFirstByte(unit) => self.duration(entry.more.upstream_first_byte, *unit),
            LogField::UpstreamTotal(unit) => self.duration(entry.more.upstream_total, *unit),
            LogField::Queued(unit) => self.duration(entry.more.queued, *unit),
            LogField::Referer if is_hidden => self.hidden(!entry.referer.is_empty()),
            LogField::Referer => self.url(entry.referer, limit::REFERER, &masks.query),
            LogField::UserAgent if is_hidden => self.hidden(!entry.user_agent.is_empty()),
            LogField::UserAgent => self.text(entry.user_agent, limit::USER_AGENT),
            LogField::Header(_)
            | LogField::ResponseHeader(_)
            | LogField::Cookie(_)
            | LogField::Argument(_)
            | LogField::Value(..) => self.sent(field, is_hidden, entry, masks),
            of_server_or_client => self.rest(of_server_or_client, entry),
        }
    }

    /// Writes fields about servers, connections and the proxy itself.
    fn rest(&mut self, field: &LogField, entry: &LogEntry<'_>) -> bool {
        let tls = &entry.more.tls;
        let mut name = |text: &str| self.text(text.as_bytes(), limit::NAME);
        match field {
            LogField::Route => name(entry.route.unwrap_or_default()),
            LogField::Upstream => name(entry.upstream.unwrap_or_default()),
            LogField::Server => name(entry.server.unwrap_or_default()),
            LogField::Cache => name(entry.cache),
            LogField::TlsVersion => name(tls.version),
            LogField::TlsCipher => name(tls.cipher),
            LogField::TlsServerName => name(tls.server_name),
            LogField::TlsSerial => name(tls.serial),
            LogField::TlsFingerprint => name(tls.fingerprint),
            LogField::Listener => name(entry.more.listener),
            LogField::FallbackFrom => name(entry.more.fallback_from),
            LogField::SessionMoved => name(entry.more.session_moved.map_or("", |(reason, _)| reason)),
            LogField::SessionFrom => {
                name(entry.more.session_moved.and_then(|(_, from)| from).unwrap_or_default())
            }
            LogField::Shed => name(entry.more.shed.unwrap_or_default()),
            LogField::Fault => name(entry.more.fault.map_or("", |fault| fault.rule)),
            LogField::TlsSubject => self.text(tls.subject.as_bytes(), limit::SUBJECT),
            LogField::TlsIssuer => self.text(tls.issuer.as_bytes(), limit::SUBJECT),
            LogField::TlsNames => self.text(tls.names.as_bytes(), limit::SUBJECT),
            LogField::Attempts => entry.server.is_some() && self.number(u64::from(entry.retries) + 1),
            LogField::Retries => self.number(u64::from(entry.retries)),
            LogField::Retried => self.retried(entry.more.retried),
            LogField::UpstreamReused => {
                entry.more.is_upstream_reused.is_some_and(|is_reused| self.truth(is_reused))
            }
            LogField::Worker => self.number(entry.more.worker as u64),
            LogField::ConnectionRequest => {
                entry.more.connection_request > 0 && self.number(entry.more.connection_request)
            }
            LogField::FaultSeed => entry.more.fault.is_some_and(|fault| self.number(fault.seed)),
            LogField::FaultNumber => entry.more.fault.is_some_and(|fault| self.number(fault.number)),
            LogField::Weight => self.weight(entry.weight),
            _ => false,
        }
    }

    fn time(&mut self, clock: TimeForm, timestamp: &Timestamp) -> bool {
        if matches!(clock, TimeForm::Seconds | TimeForm::Milliseconds) {
            decimal(timestamp.second(), self.line);
            if clock == TimeForm::Seconds {
                self.line.push(b'.');
            }
            digits::<3>(timestamp.millisecond(), self.line);
            return true;
        }
        self.quote();
        match clock {
            TimeForm::Date => self.line.extend_from_slice(timestamp.date()),
            TimeForm::OfDay => self.line.extend_from_slice(timestamp.clock()),
            TimeForm::Common if self.style == ValueStyle::W3c => {
                self.line
                    .extend(timestamp.combined().iter().map(|&byte| if byte == b' ' { b'+' } else { byte }));
            }
            TimeForm::Common => self.line.extend_from_slice(timestamp.combined()),
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

    /// Writes a quote if the style leaves it to the value.
    fn quote(&mut self) {
        if self.style == ValueStyle::Json {
            self.line.push(b'"');
        }
    }

    fn escape(&mut self, bytes: &[u8], is_first: bool) {
        match self.style {
            ValueStyle::Quoted => escape::combined(bytes, self.line),
            ValueStyle::Word => escape::word(bytes, self.line),
            ValueStyle::Json | ValueStyle::JsonPart => escape::json(bytes, self.line),
            ValueStyle::W3c => escape::w3c(bytes, is_first, self.line),
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

    fn url(&mut self, value: &[u8], bytes_max: usize, query: &LoggedQuery) -> bool {
        if value.is_empty() {
            return false;
        }
        self.quote();
        self.cut_url(value, bytes_max, query);
        self.quote();
        true
    }

    fn cut_url(&mut self, value: &[u8], bytes_max: usize, query: &LoggedQuery) {
        if *query == LoggedQuery::Full {
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
    fn query(&mut self, target: &[u8], query: &LoggedQuery) -> bool {
        let Some(mark) = target.iter().position(|&byte| byte == b'?') else { return false };
        if *query == LoggedQuery::Omitted || mark + 1 == target.len() {
            return false;
        }
        self.quote();
        let (rest, bytes_max) = (&target[mark..], limit::TARGET);
        let mut at = 0;
        query.pieces(&rest[..rest.len().min(bytes_max)], |piece| {
            // The first piece begins with the question mark.
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

    fn version(&mut self, entry: &LogEntry<'_>, has_name: bool) -> bool {
        let Some(sent) = entry.version else { return false };
        self.quote();
        if has_name {
            self.line.extend_from_slice(b"HTTP/");
        }
        version(sent, self.line);
        self.quote();
        true
    }

    /// Writes `GET /a HTTP/1.1`. Its spaces are not escaped, even where a space ends the field.
    fn request_line(&mut self, entry: &LogEntry<'_>, query: &LoggedQuery) -> bool {
        if entry.method.is_empty() {
            return false;
        }
        let space: &[u8] = match self.style {
            ValueStyle::Word => b"\\x20",
            ValueStyle::W3c => b"+",
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

    fn duration(&mut self, value: Option<Duration>, unit: FieldUnit) -> bool {
        let Some(duration) = value else { return false };
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        match unit {
            FieldUnit::Milliseconds => {
                decimal(microseconds / 1000, self.line);
                self.line.push(b'.');
                digits::<3>((microseconds % 1000) as u32, self.line);
            }
            FieldUnit::Seconds => {
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
        if self.style == ValueStyle::Json {
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

    /// Writes values of header fields, cookies and query parameters.
    #[inline(never)]
    fn sent(&mut self, field: &LogField, is_hidden: bool, entry: &LogEntry<'_>, masks: &Masks) -> bool {
        let mut values = Values { out: self, is_there: false, bytes_left: limit::HEADER, is_hidden };
        match field {
            LogField::Header(name) => {
                entry.more.headers.request(name, &mut |value| values.add(value, &LoggedQuery::Full));
            }
            LogField::ResponseHeader(name) => {
                let query =
                    if name.eq_ignore_ascii_case(b"location") { &masks.query } else { &LoggedQuery::Full };
                entry.more.headers.response(name, &mut |value| values.add(value, query));
            }
            LogField::Cookie(name) => entry.more.headers.request(b"cookie", &mut |pairs| {
                if let Some(value) = cookie(pairs, name).filter(|_| !values.is_there) {
                    values.add(value, &LoggedQuery::Full);
                }
            }),
            LogField::Argument(name) => {
                values.is_hidden = is_hidden || !masks.query.shows(name);
                let query = entry.target.iter().position(|&byte| byte == b'?');
                let query = query.map_or(&b""[..], |mark| &entry.target[mark + 1..]);
                let found = route::parameters(query).find(|(written, _)| written == &name.as_ref());
                if let Some((_, value)) = found {
                    values.add(value, &LoggedQuery::Full);
                }
            }
            LogField::Value(name, _) => {
                entry.more.headers.value(name, &mut |value| {
                    // As for fields, an empty value is none.
                    if !value.is_empty() {
                        values.add(value, &LoggedQuery::Full);
                    }
                });
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

/// Joins the values of one name to one list (RFC 9110 §5.3).
struct Values<'o, 'l> {
    out: &'o mut ValueOut<'l>,
    is_there: bool,
    bytes_left: usize,
    is_hidden: bool,
}

impl Values<'_, '_> {
    fn add(&mut self, value: &[u8], query: &LoggedQuery) {
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

/// Returns the path of a target, without scheme, authority and query.
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
