//! The table `[log]`: access logs.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use expression::{ExchangeStage, Expression, Fact, FactFamily};
use logline::{
    Addresses, FIELDS_MAX, FormatError, FormatFault, LineBatch, LineFormat, LineWriter, LogEntry,
    LoggedQuery, Masks, Needs, Timestamp,
};
use mistake::nearest;
use shape::Millionths;
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{
    At, Described, Kind, List, Located, Maybe, Name, Switch, Template, Text, Unless, Word, located,
    refuse_type,
};
use crate::option::later_condition::{LaterCondition, Unplaced};
use crate::option::table::{Element, Inline, Table, Written, key, required};
use crate::option::templates::field_name;
use crate::tables::fault::kinds::SHARE;
use crate::tables::log::target::{ROTATE, RotateWritten, SYSLOG, SyslogWritten, TARGET_KIND, is_of_messages};

/// Where the access log goes to.
pub(crate) mod target;

/// The values that lines may have, by name, with what an entry needs for them.
pub(crate) type LoggedValues = HashMap<String, Needs>;

/// Returns the facts that an entry needs for a value.
pub(crate) fn needs_of_value(value: &Expression) -> Needs {
    let of_head = value.asks_for_family(FactFamily::ResponseHeaders);
    let of_time = value.asks_for(Fact::ResponseTime);
    let head = if of_head { Needs::RESPONSE_HEAD } else { Needs::NONE };
    head.and(if of_time { Needs::FIRST_BYTE } else { Needs::NONE })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// The destination: standard output or a file.
    pub target: LogTarget,
    /// The format; one line per request.
    pub format: LineFormat,
    /// Masks of the lines.
    pub masks: Masks,
    /// Options of syslog messages, if the target is a syslog receiver.
    pub syslog: SyslogOptions,
    /// When the file is followed by a new one, if the target is a file.
    pub rotation: Option<LogRotation>,
}

impl AccessLog {
    /// An access log with full query strings and addresses.
    pub fn new(target: LogTarget, format: LineFormat) -> Self {
        Self { target, format, masks: Masks::default(), syslog: SyslogOptions::default(), rotation: None }
    }
}

/// Which requests of a route are in the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteLog {
    All,
    /// None, also of those that fail.
    Off,
    /// This share, and all those that fail or are answered with 5xx.
    Share(Millionths),
    /// Only those for which the condition holds: of these the share, and all that fail or are answered with 5xx.
    When(Arc<Expression>, Millionths),
}

/// A parsed table of `access_log`.
#[derive(Debug, Clone)]
pub(crate) struct RouteLogWritten {
    when: Option<Arc<Expression>>,
    share: Millionths,
}

impl Default for RouteLogWritten {
    fn default() -> Self {
        Self { when: None, share: Millionths::WHOLE }
    }
}

const ROUTE_LOG: Inline<RouteLogWritten> = Inline {
    title: "access_log",
    example: "{ when = 'response.status >= 400' }",
    table: &Table {
        options: &[
            required!(
                "when",
                Maybe(Unplaced(LaterCondition(ExchangeStage::Response))),
                RouteLogWritten.when,
                "Condition under which a request is logged, once its response has ended: `'response.status >= 400'`. No \
                 other request is logged, not even if it fails. See [conditions](conditions.md).",
            ),
            key!(
                "share",
                SHARE,
                RouteLogWritten.share,
                "Share of these requests that is logged, besides all that fail or get 5xx.",
            ),
        ],
    },
};

/// The destination of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, to which lines are appended.
    File(PathBuf),
    /// The journal of systemd.
    Journal,
    Syslog(SyslogReceiver),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogReceiver {
    /// A datagram socket of this machine.
    Unix(PathBuf),
    /// A receiver at a host, an address or a name, and a port.
    Host(SyslogTransport, String, u16),
}

/// The transport to a syslog receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyslogTransport {
    /// RFC 5426.
    Udp,
    /// RFC 6587, with the length of each message in front.
    Tcp,
    /// RFC 5425.
    Tls,
}

impl SyslogTransport {
    /// All of them with their names and usual ports.
    pub const NAMED: [(&'static str, Self, u16); 3] =
        [("udp", Self::Udp, 514), ("tcp", Self::Tcp, 601), ("tls", Self::Tls, 6514)];
}

/// Header fields of syslog messages, and the CAs of their receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyslogOptions {
    /// The facility, 0 to 23.
    pub facility: u8,
    /// The severity, 0 to 7.
    pub severity: u8,
    /// APP-NAME: 1 to 48 printable ASCII characters.
    pub app_name: String,
    /// The CA that signs the receiver's certificate, in PEM; `None` means the system's roots.
    pub ca: Option<PathBuf>,
}

impl Default for SyslogOptions {
    fn default() -> Self {
        Self { facility: 16, severity: 6, app_name: "vanward".to_owned(), ca: None }
    }
}

/// When a file of the log is followed by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRotation {
    /// Before it would have more bytes than this.
    pub bytes: Option<u64>,
    /// With the first line of each period, counted from 1970 in UTC.
    pub every: Option<Duration>,
    /// How many former files are kept.
    pub keep: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) target: Option<Located<LogTarget>>,
    format: Located<String>,
    fields: Located<Vec<Located<String>>>,
    query: LoggedQuery,
    mask: Located<Vec<String>>,
    addresses: Addresses,
    hide_headers: Vec<Located<String>>,
    show_headers: Vec<Located<String>>,
    rotate: Option<Element<RotateWritten>>,
    syslog: Option<Element<SyslogWritten>>,
}

pub(crate) const FORMAT: &str = "\"extended\", \"combined\", \"json\", \"w3c\", or a text with variables such as \
                      '$client [$time] \"$request\" $status'";

pub(crate) const FIELD: &str = "the name of a field such as status or header.X-Api-Version";

pub(crate) const HEADER: &str = "the name of a header field such as X-Api-Key";

pub(crate) static LOG: Table<Log> = Table {
    options: &[
        required!(
            "target",
            Unless { word: "off", kind: At(TARGET_KIND) },
            Log.target,
            "Standard output, a file to append to, a syslog receiver, the journal of systemd, or off. See \
             [logging.md](logging.md#targets).",
        ),
        key!(
            "format",
            At(Template { expected: FORMAT }),
            Log.format,
            "`\"extended\"`: the Combined Log Format of Apache httpd, then all other fields as \
             `name=value`. `\"combined\"`: without these. `\"json\"`: one object per line with all fields that have \
             a value. `\"w3c\"`: the W3C Extended Log Format with its directives. Or a text with variables: see \
             [logging.md](logging.md#templates).",
        ),
        key!(
            "fields",
            At(List { kind: At(Name { expected: FIELD }), may_be_empty: true }),
            Log.fields,
            "Fields of a `json` or `w3c` line, in this order: `[\"time\", \"client\", \"status\", \
             \"header.X-Api-Version\"]`. The names are in [logging.md](logging.md#fields). Default: all, or the \
             usual ones of `w3c`.",
        ),
        key!(
            "query",
            Word {
                words: &[
                    ("full", LoggedQuery::Full),
                    ("masked", LoggedQuery::Masked),
                    ("off", LoggedQuery::Omitted)
                ]
            },
            Log.query,
            "How query strings in targets and Referer are logged. `\"masked\"` logs `***` for each value, \
             `\"off\"` drops the query.",
        ),
        key!(
            "mask",
            At(List {
                kind: Text { expected: PARAMETER, read: parameter, print: String::clone },
                may_be_empty: true,
            }),
            Log.mask,
            "Query parameters whose values are logged as `***`, whatever their case: `[\"token\", \
             \"key\"]`.",
        ),
        key!(
            "addresses",
            Word { words: &[("full", Addresses::Full), ("masked", Addresses::Network)] },
            Log.addresses,
            "How addresses of clients are logged. `\"masked\"`: the first 24 bits of an IPv4 address, the first 48 \
             of an IPv6 address, then zeros; X-Forwarded-For, Forwarded and the like are logged as `***`.",
        ),
        key!(
            "hide_headers",
            List { kind: At(Name { expected: HEADER }), may_be_empty: true },
            Log.hide_headers,
            "Header fields whose values are logged as `***`, besides Authorization, Proxy-Authorization, Cookie and \
             Set-Cookie.",
        ),
        key!(
            "show_headers",
            List { kind: At(Name { expected: HEADER }), may_be_empty: true },
            Log.show_headers,
            "Header fields whose values are logged although they are hidden by default: `[\"Cookie\"]`.",
        ),
        key!(
            "rotate",
            Maybe(ROTATE),
            Log.rotate,
            "When the file is renamed and followed by a new one. Default: never; SIGUSR1 opens it again.",
        ),
        key!("syslog", Maybe(SYSLOG), Log.syslog, "Header of messages to a syslog receiver.",),
    ],
};

/// Checks each log, and that no two write the same file, or both to standard output: they would cut each other's lines.
pub(crate) fn check(logs: &[Element<Log>], values: &LoggedValues, reader: &mut Reader<'_>) {
    for (place, log) in logs.iter().enumerate() {
        log.value.check(values, reader);
        let Some(target) = &log.value.target else { continue };
        let mut before = logs[..place].iter().filter_map(|log| log.value.target.as_ref());
        let is_stream = matches!(target.value, LogTarget::File(_) | LogTarget::Stdout);
        if let Some(first) = before.find(|before| is_stream && before.value == target.value) {
            let first = reader.line(&first.at);
            let mistake =
                reader.mistake(&target.at, format!("target: the log at {first} writes there as well"));
            reader.add(mistake.expecting("a file for each log"));
        }
    }
}

impl Log {
    /// Checks the format, and rejects names of parameters to mask where no value is logged anyway.
    fn check(&self, values: &LoggedValues, reader: &mut Reader<'_>) {
        if self.query != LoggedQuery::Full && !self.mask.value.is_empty() {
            let mistake = reader.mistake(&self.mask.at, "mask: with this `query` no value is logged");
            reader.add(mistake.expecting("query = \"full\", or no mask"));
        }
        for (option, names) in [("hide_headers", &self.hide_headers), ("show_headers", &self.show_headers)] {
            for name in names {
                field_name(option, name, reader);
            }
        }
        for name in &self.show_headers {
            if self.hide_headers.iter().any(|hidden| hidden.value.eq_ignore_ascii_case(&name.value)) {
                let message = format!("show_headers: {} is in hide_headers as well", name.value);
                reader.add(reader.mistake(&name.at, message).expecting("each name in one of the two"));
            }
        }
        target::check(self.target.as_ref(), self.rotate.as_ref(), self.syslog.as_ref(), reader);
        match self.read_format(values) {
            Ok(format) if format.has_directives() && self.target.as_ref().is_some_and(is_of_messages) => {
                let message = "format: w3c has directives, for which syslog and journald have no place";
                let mistake = reader.mistake(&self.format.at, message);
                reader.add(mistake.expecting("another format, or a file or stdout as the target"));
            }
            Err(error) => self.refuse_format(&error, values, reader),
            Ok(format) if format.is_json_template() => self.check_object(format, reader),
            Ok(_) => {}
        }
    }

    /// The file with the CAs that sign the certificate of a syslog receiver.
    pub(crate) fn receiver_ca(&self) -> Option<&Located<PathBuf>> {
        self.syslog.as_ref().and_then(|syslog| syslog.value.ca())
    }

    fn read_format(&self, values: &LoggedValues) -> Result<LineFormat, FormatError> {
        let fields: Vec<String> = self.fields.value.iter().map(|field| field.value.clone()).collect();
        LineFormat::with_values(&self.format.value, &fields, &|name| values.get(name).copied())
    }

    #[cold]
    fn refuse_format(&self, error: &FormatError, values: &LoggedValues, reader: &mut Reader<'_>) {
        let (option, at, expected) = match &error.fault {
            FormatFault::NoChoice(_) => {
                ("fields", self.fields.at.clone(), "format = \"json\" or \"w3c\", or no fields".to_owned())
            }
            FormatFault::TooMany(_) if error.is_in_fields => {
                ("fields", self.fields.at.clone(), format!("at most {FIELDS_MAX} fields"))
            }
            _ if error.is_in_fields => {
                let at = self
                    .fields
                    .value
                    .get(error.place)
                    .map_or(self.fields.at.clone(), |field| field.at.clone());
                ("fields", at, FIELD.to_owned())
            }
            _ => ("format", reader.within(&self.format.at, error.place), FORMAT.to_owned()),
        };
        if let FormatFault::Field(logline::FieldFault::Unknown(name)) = &error.fault
            && reader.refuses_map(&at, option, name)
        {
            return;
        }
        let names = || -> Vec<&str> {
            let mut values: Vec<&str> = values.keys().map(String::as_str).collect();
            values.sort_unstable();
            let fields = logline::field_names().filter(|name| !name.ends_with(".NAME"));
            fields.map(|name| name as &str).chain(values).collect()
        };
        let meant = match &error.fault {
            FormatFault::Unknown(written) => {
                nearest(written, LineFormat::PRESETS.iter().copied()).map(str::to_owned).or_else(|| {
                    LineFormat::PRESETS
                        .iter()
                        .any(|known| known.eq_ignore_ascii_case(written))
                        .then(|| written.to_lowercase())
                })
            }
            FormatFault::Field(logline::FieldFault::Unknown(name)) => {
                let dollar = if error.is_in_fields { "" } else { "$" };
                nearest(name, names()).map(|name| format!("{dollar}{name}"))
            }
            _ => None,
        };
        reader.add(
            reader.mistake(&at, format!("{option}: {}", error.fault)).expecting(expected).meaning(meant),
        );
    }

    /// A template of an object has to give one: its values are JSON wherever they are, so one line tells.
    fn check_object(&self, format: LineFormat, reader: &mut Reader<'_>) {
        let mut batch = LineBatch::default();
        let entry = LogEntry::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
        LineWriter::new(format, Masks::default()).write(&entry, &Timestamp::new(), &mut batch);
        let line = batch.lines();
        if let Err(error) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line) {
            let line = String::from_utf8_lossy(line).trim_end().to_owned();
            let message = format!("format: this begins with {{ but gives no JSON object: {error} in {line}");
            let expected = "an object such as '{\"ip\":$client,\"path\":$path}'";
            reader.add(reader.mistake(&self.format.at, message).expecting(expected));
        }
    }

    /// The access log that the options describe; `None` if it is off. It hides the values of the parameters `secret`, which
    /// have tokens.
    pub(crate) fn meaning(self, secret: &[&str], values: &LoggedValues) -> Option<AccessLog> {
        // A format with a mistake was refused before.
        let format = self.read_format(values).unwrap_or_default();
        let query = match self.query {
            LoggedQuery::Full => {
                let mut names = self.mask.value;
                let more = secret.iter().filter(|name| !names.iter().any(|known| known == *name));
                let more: Vec<String> = more.map(|name| (*name).to_owned()).collect();
                names.extend(more);
                if names.is_empty() { LoggedQuery::Full } else { LoggedQuery::Without(names) }
            }
            query => query,
        };
        let names = |names: Vec<Located<String>>| names.into_iter().map(|name| name.value).collect();
        let masks = Masks {
            query,
            addresses: self.addresses,
            hidden_headers: names(self.hide_headers),
            shown_headers: names(self.show_headers),
        };
        let rotation = self.rotate.map(|rotate| rotate.value.meaning());
        let syslog = self.syslog.map(|syslog| syslog.value.meaning()).unwrap_or_default();
        Some(AccessLog { target: self.target?.value, format, masks, syslog, rotation })
    }
}

impl Default for Log {
    fn default() -> Self {
        let Masks { query, addresses, .. } = Masks::default();
        Self {
            target: None,
            format: located(LineFormat::default().written().0.to_owned()),
            fields: located(Vec::new()),
            query,
            mask: located(Vec::new()),
            addresses,
            hide_headers: Vec::new(),
            show_headers: Vec::new(),
            rotate: None,
            syslog: None,
        }
    }
}

const ROUTE_LOG_EXPECTED: &str = "a share such as 1%, 0.5% or 100%, or a table such as { when = \
                                  'response.status >= 400' }";

/// The kind of value of a route's `access_log`: `true`, `false`, a share or a table.
pub(crate) struct RouteLogKind;

impl Described for RouteLogKind {
    fn form(&self) -> Form {
        Form::OrBoolean(
            Form::WordsOrTable {
                expected: ROUTE_LOG_EXPECTED,
                brief: "a share, or table",
                table: ROUTE_LOG.table,
            }
            .into(),
        )
    }
}

impl Kind<Option<RouteLog>> for RouteLogKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<RouteLog>> {
        let of = |is_on| Some(Some(if is_on { RouteLog::All } else { RouteLog::Off }));
        match written.value.get_ref() {
            DeValue::Boolean(is_on) => of(*is_on),
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                Switch.read(written, reader).and_then(of)
            }
            DeValue::String(_) => SHARE.read(written, reader).map(RouteLog::Share).map(Some),
            DeValue::Table(_) => {
                let RouteLogWritten { when, share } = ROUTE_LOG.read(written, reader)?.value;
                Some(Some(RouteLog::When(when?, share)))
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, value: &Option<RouteLog>) -> Option<String> {
        match value.as_ref()? {
            RouteLog::All => Some("true".to_owned()),
            RouteLog::Off => Some("false".to_owned()),
            RouteLog::Share(share) => SHARE.print(share),
            RouteLog::When(when, share) => {
                Some(ROUTE_LOG.print_value(&RouteLogWritten { when: Some(Arc::clone(when)), share: *share }))
            }
        }
    }
}

const PARAMETER: &str = "the name of a parameter such as token";

fn parameter(text: &str) -> Result<String, ValueError> {
    let fault = ValueFault::Empty;
    if text.is_empty() { Err(ValueError { fault, expected: PARAMETER }) } else { Ok(text.to_owned()) }
}
