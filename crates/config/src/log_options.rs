//! Options of `[log]`, declared once.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use logline::{
    Addresses, Batch, Entry, FIELDS_MAX, Format, FormatError, FormatFault, Lines, Masks, Query, Timestamp,
};
use serde_json::{Value, json};
use toml::de::DeValue;

use crate::fault_kinds::SHARE;
use crate::kind::{
    At, Kind, List, Located, Maybe, Name, Switch, Template, Text, Unless, Word, located, refuse_type,
};
use crate::log_target::{self, ROTATE, RotateWritten, SYSLOG, SyslogWritten, TARGET_KIND, is_of_messages};
use crate::reader::Reader;
use crate::route_resolve::field_name;
use crate::settings::{AccessLog, LogTarget, RouteLog, SyslogOptions};
use crate::table::{Element, Table, Written, element, key, required};
use crate::value_error::{ValueError, ValueFault};
use mistake::nearest;

/// The parsed table `[log]`.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) target: Option<Located<LogTarget>>,
    format: Located<String>,
    fields: Located<Vec<Located<String>>>,
    query: Query,
    mask: Located<Vec<String>>,
    addresses: Addresses,
    hide_headers: Vec<Located<String>>,
    show_headers: Vec<Located<String>>,
    rotate: Option<Element<RotateWritten>>,
    syslog: Option<Element<SyslogWritten>>,
}

const FORMAT: &str = "\"extended\", \"combined\", \"json\", \"w3c\", or a text with variables such as \
                      '$client [$time] \"$request\" $status'";
const FIELD: &str = "the name of a field such as status or header.X-Api-Version";
const HEADER: &str = "the name of a header field such as X-Api-Key";

pub(crate) static LOG: Table<Log> = Table {
    options: &[
        &required(
            "target",
            Unless { word: "off", kind: At(TARGET_KIND) },
            |log: &mut Log| &mut log.target,
            "Standard output, a file to append to, a syslog receiver, the journal of systemd, or off. See \
             [logging.md](logging.md#targets).",
        ),
        &key(
            "format",
            At(Template { expected: FORMAT }),
            |log: &mut Log| &mut log.format,
            "`\"extended\"`: the Combined Log Format of Apache httpd, then all other fields as \
             `name=value`. `\"combined\"`: without these. `\"json\"`: one object per line with all fields that have \
             a value. `\"w3c\"`: the W3C Extended Log Format with its directives. Or a text with variables: see \
             [logging.md](logging.md#templates).",
        ),
        &key(
            "fields",
            At(List { kind: At(Name { expected: FIELD }), may_be_empty: true }),
            |log: &mut Log| &mut log.fields,
            "Fields of a `json` or `w3c` line, in this order: `[\"time\", \"client\", \"status\", \
             \"header.X-Api-Version\"]`. The names are in [logging.md](logging.md#fields). Default: all, or the \
             usual ones of `w3c`.",
        ),
        &key(
            "query",
            Word { words: &[("full", Query::Full), ("masked", Query::Masked), ("off", Query::Omitted)] },
            |log: &mut Log| &mut log.query,
            "How query strings in targets and Referer are logged. `\"masked\"` logs `***` for each value, \
             `\"off\"` drops the query.",
        ),
        &key(
            "mask",
            At(List {
                kind: Text { expected: PARAMETER, read: parameter, print: String::clone },
                may_be_empty: true,
            }),
            |log: &mut Log| &mut log.mask,
            "Query parameters whose values are logged as `***`, whatever their case: `[\"token\", \
             \"key\"]`.",
        ),
        &key(
            "addresses",
            Word { words: &[("full", Addresses::Full), ("masked", Addresses::Network)] },
            |log: &mut Log| &mut log.addresses,
            "How addresses of clients are logged. `\"masked\"`: the first 24 bits of an IPv4 address, the first 48 \
             of an IPv6 address, then zeros; X-Forwarded-For, Forwarded and the like are logged as `***`.",
        ),
        &key(
            "hide_headers",
            List { kind: At(Name { expected: HEADER }), may_be_empty: true },
            |log: &mut Log| &mut log.hide_headers,
            "Header fields whose values are logged as `***`, besides Authorization, Proxy-Authorization, Cookie and \
             Set-Cookie.",
        ),
        &key(
            "show_headers",
            List { kind: At(Name { expected: HEADER }), may_be_empty: true },
            |log: &mut Log| &mut log.show_headers,
            "Header fields whose values are logged although they are hidden by default: `[\"Cookie\"]`.",
        ),
        &key(
            "rotate",
            Maybe(ROTATE),
            |log: &mut Log| &mut log.rotate,
            "When the file is renamed and followed by a new one. Default: never, but SIGUSR1 has it opened again.",
        ),
        &key(
            "syslog",
            Maybe(SYSLOG),
            |log: &mut Log| &mut log.syslog,
            "What messages to a syslog receiver say of themselves.",
        ),
    ],
};

/// Checks each log, and that no two write the same file, or both to standard output: they would cut each other's lines.
pub(crate) fn check(logs: &[Element<Log>], reader: &mut Reader<'_>) {
    for (place, log) in logs.iter().enumerate() {
        log.value.check(reader);
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
    fn check(&self, reader: &mut Reader<'_>) {
        if self.query != Query::Full && !self.mask.value.is_empty() {
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
        log_target::check(self.target.as_ref(), self.rotate.as_ref(), self.syslog.as_ref(), reader);
        match self.read_format() {
            Ok(format) if format.has_directives() && self.target.as_ref().is_some_and(is_of_messages) => {
                let message = "format: w3c has directives, for which syslog and journald have no place";
                let mistake = reader.mistake(&self.format.at, message);
                reader.add(mistake.expecting("another format, or a file or stdout as the target"));
            }
            Err(error) => self.refuse_format(&error, reader),
            Ok(format) if format.is_json_template() => self.check_object(format, reader),
            Ok(_) => {}
        }
    }

    /// The file with the CAs that sign the certificate of a syslog receiver.
    pub(crate) fn receiver_ca(&self) -> Option<&Located<PathBuf>> {
        self.syslog.as_ref().and_then(|syslog| syslog.value.ca())
    }

    fn read_format(&self) -> Result<Format, FormatError> {
        let fields: Vec<String> = self.fields.value.iter().map(|field| field.value.clone()).collect();
        Format::new(&self.format.value, &fields)
    }

    #[cold]
    fn refuse_format(&self, error: &FormatError, reader: &mut Reader<'_>) {
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
        let names = || logline::field_names().filter(|name| !name.ends_with(".NAME"));
        let meant = match &error.fault {
            FormatFault::Unknown(written) => {
                nearest(written, Format::PRESETS.iter().copied()).map(str::to_owned).or_else(|| {
                    Format::PRESETS
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
    fn check_object(&self, format: Format, reader: &mut Reader<'_>) {
        let mut batch = Batch::default();
        let entry = Entry::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Lines::new(format, Masks::default()).write(&entry, &Timestamp::new(), &mut batch);
        let line = batch.lines();
        if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(line) {
            let line = String::from_utf8_lossy(line).trim_end().to_owned();
            let message = format!("format: this begins with {{ but gives no JSON object: {error} in {line}");
            let expected = "an object such as '{\"ip\":$client,\"path\":$path}'";
            reader.add(reader.mistake(&self.format.at, message).expecting(expected));
        }
    }

    /// The access log that the options describe; `None` if it is off.
    pub(crate) fn meaning(self) -> Option<AccessLog> {
        // A format with a mistake was refused before.
        let format = self.read_format().unwrap_or_default();
        let query = match self.query {
            Query::Full if !self.mask.value.is_empty() => Query::Without(self.mask.value),
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

/// Converts back to parsed options, for printing.
impl From<&AccessLog> for Log {
    fn from(log: &AccessLog) -> Self {
        let AccessLog { target, format, masks, syslog, rotation } = log.clone();
        let (query, mask) = match masks.query {
            Query::Without(names) => (Query::Full, names),
            query => (query, Vec::new()),
        };
        let names = |names: &[String]| names.iter().cloned().map(located).collect();
        let (written, fields) = format.written();
        Self {
            target: Some(located(target)),
            format: located(written.to_owned()),
            fields: located(names(fields)),
            query,
            mask: located(mask),
            addresses: masks.addresses,
            hide_headers: names(&masks.hidden_headers),
            show_headers: names(&masks.shown_headers),
            rotate: rotation.map(|rotation| element(RotateWritten::from(rotation))),
            syslog: (syslog != SyslogOptions::default()).then(|| element(SyslogWritten::from(&syslog))),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        let Masks { query, addresses, .. } = Masks::default();
        Self {
            target: None,
            format: located(Format::default().written().0.to_owned()),
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

/// The kind of value of a route's `access_log`: `true`, `false` or a share.
pub(crate) struct RouteLogKind;

impl Kind<Option<RouteLog>> for RouteLogKind {
    fn expected(&self) -> String {
        format!("true, false, or {}", SHARE.expected())
    }

    fn brief(&self) -> String {
        "true, false, or a share".to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [Switch.schema(), SHARE.schema()] })
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<RouteLog>> {
        let of = |is_on| Some(Some(if is_on { RouteLog::All } else { RouteLog::Off }));
        match written.value.get_ref() {
            DeValue::Boolean(is_on) => of(*is_on),
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                Switch.read(written, reader).and_then(of)
            }
            DeValue::String(_) => SHARE.read(written, reader).map(RouteLog::Share).map(Some),
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
        }
    }
}

const PARAMETER: &str = "the name of a parameter such as token";

fn parameter(text: &str) -> Result<String, ValueError> {
    let fault = ValueFault::Empty;
    if text.is_empty() { Err(ValueError { fault, expected: PARAMETER }) } else { Ok(text.to_owned()) }
}
