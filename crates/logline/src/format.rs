//! Formats of lines: presets, lists of fields, and templates with request variables. They are compiled once into
//! the steps that write a line.

use route::{TEMPLATE_BYTES_MAX, TemplateFault, TemplateToken};

use crate::field::{FieldFault, LogField, Needs, ValueNeeds};
use crate::masks::Masks;
use crate::out::ValueStyle;
use crate::timestamp::Timestamp;

pub const FIELDS_MAX: usize = 100;

const W3C_FIELDS: [&str; 16] = [
    "time.date",
    "time.clock",
    "client",
    "user",
    "method",
    "path",
    "query",
    "status",
    "bytes_sent",
    "bytes_received",
    "duration_s",
    "protocol",
    "host",
    "user_agent",
    "referer",
    "cause",
];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LineFormat {
    /// The Combined Log Format, then timings and other fields as `name=value`.
    #[default]
    Extended,
    /// The Combined Log Format of NCSA and Apache httpd; the cause of a failure follows.
    Combined,
    /// A JSON object with all fields that have a value.
    Json,
    Chosen(Chosen),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    written: Box<str>,
    fields: Box<[String]>,
    kind: LogFormatKind,
    pub(crate) steps: Box<[FormatStep]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogFormatKind {
    Json,
    W3c,
    Template,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FormatStep {
    Text(Box<[u8]>),
    Value {
        field: LogField,
        style: ValueStyle,
        is_hidden: bool,
    },
    /// A member of a JSON object, if its field has a value.
    Member {
        /// The name with its punctuation: `"status":`.
        key: Box<[u8]>,
        field: LogField,
        is_hidden: bool,
    },
    Close,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct FormatError {
    /// The byte offset in the text, or the index of the field.
    pub place: usize,
    /// Whether the mistake is in the list of fields rather than in the text.
    pub is_in_fields: bool,
    pub fault: FormatFault,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatFault {
    /// Neither a preset nor a text with variables.
    #[error("{0:?} is no format, and a text without variables says nothing")]
    Unknown(String),
    #[error("{0} has no choice of fields")]
    NoChoice(String),
    #[error("there are {0} fields; at most {FIELDS_MAX} are allowed")]
    TooMany(usize),
    #[error("{0:?} is listed twice")]
    Twice(String),
    /// A control character, which could end the line.
    #[error("{0:?} has no place in a line")]
    Character(char),
    #[error("{0}")]
    Template(TemplateFault),
    #[error("{0}")]
    Field(FieldFault),
}

impl LineFormat {
    pub const PRESETS: [&'static str; 4] = ["extended", "combined", "json", "w3c"];

    /// Parses a format: a preset, or a text with variables such as `$client [$time] "$request" $status`. `json` and
    /// `w3c` accept a list of fields. The error is the first mistake with its place.
    ///
    /// A text that begins with `{` is a JSON object. Values outside its quotes are written as JSON, so
    /// `{"ip":$client,"status":$status}` is always a valid object.
    pub fn new(written: &str, fields: &[String]) -> Result<Self, FormatError> {
        Self::with_values(written, fields, &|_| None)
    }

    /// As [`LineFormat::new`]; `values` says what an entry needs for the value of another name, which it looks up
    /// ([`Headers::value`](crate::Headers::value)); `None` if no value has that name.
    pub fn with_values(
        written: &str,
        fields: &[String],
        values: &dyn Fn(&str) -> Option<Needs>,
    ) -> Result<Self, FormatError> {
        let in_fields = |place, fault| FormatError { place, is_in_fields: true, fault };
        let no_choice = |what: &str| Err(in_fields(0, FormatFault::NoChoice(what.to_owned())));
        let steps = match written {
            "extended" | "combined" if !fields.is_empty() => return no_choice(&format!("{written:?}")),
            "extended" => return Ok(Self::Extended),
            "combined" => return Ok(Self::Combined),
            "json" if fields.is_empty() => return Ok(Self::Json),
            "json" => (LogFormatKind::Json, members(fields, values)),
            "w3c" if fields.is_empty() => {
                (LogFormatKind::W3c, columns(&W3C_FIELDS.map(str::to_owned), values))
            }
            "w3c" => (LogFormatKind::W3c, columns(fields, values)),
            text if !text.contains('$') => {
                let fault = FormatFault::Unknown(text.to_owned());
                return Err(FormatError { place: 0, is_in_fields: false, fault });
            }
            _ if !fields.is_empty() => return no_choice("a text with variables"),
            text => {
                let steps = template(text, values);
                let at = |(place, fault)| FormatError { place, is_in_fields: false, fault };
                (LogFormatKind::Template, steps.map_err(at))
            }
        };
        let (kind, steps) = (steps.0, steps.1?);
        Ok(Self::Chosen(Chosen { written: written.into(), fields: fields.into(), kind, steps: steps.into() }))
    }

    /// The format and its fields as configured.
    #[must_use]
    pub fn written(&self) -> (&str, &[String]) {
        match self {
            Self::Extended => ("extended", &[]),
            Self::Combined => ("combined", &[]),
            Self::Json => ("json", &[]),
            Self::Chosen(chosen) => (&chosen.written, &chosen.fields),
        }
    }

    /// Whether files of this format begin with directives. Targets that take single lines have no place for them.
    #[must_use]
    pub fn has_directives(&self) -> bool {
        matches!(self, Self::Chosen(Chosen { kind: LogFormatKind::W3c, .. }))
    }

    #[must_use]
    pub fn is_json_template(&self) -> bool {
        matches!(self, Self::Chosen(chosen) if chosen.kind == LogFormatKind::Template && is_object(&chosen.written))
    }

    pub(crate) fn needs(&self) -> Needs {
        match self {
            Self::Combined => Needs::NAMED_HEADERS,
            Self::Extended | Self::Json => Needs::NAMED_HEADERS
                .and(Needs::REQUEST_ID)
                .and(Needs::UPSTREAM_TIMES)
                .and(Needs::DETAIL)
                .and(Needs::TLS)
                .and(Needs::MORE),
            Self::Chosen(chosen) => chosen.steps.iter().fold(Needs::NONE, |needs, step| match step {
                FormatStep::Value { field, .. } | FormatStep::Member { field, .. } => {
                    needs.and(field.needs())
                }
                FormatStep::Text(_) | FormatStep::Close => needs,
            }),
        }
    }

    pub(crate) fn hiding(mut self, masks: &Masks) -> Self {
        if let Self::Chosen(chosen) = &mut self {
            for step in &mut chosen.steps {
                if let FormatStep::Value { field, is_hidden, .. }
                | FormatStep::Member { field, is_hidden, .. } = step
                {
                    *is_hidden = match field {
                        LogField::Header(name) | LogField::ResponseHeader(name) => masks.hides(name),
                        LogField::Referer => masks.hides(b"referer"),
                        LogField::UserAgent => masks.hides(b"user-agent"),
                        _ => false,
                    };
                }
            }
        }
        self
    }
}

impl Chosen {
    pub(crate) fn head(&self, now: &Timestamp) -> Vec<u8> {
        let mut head = Vec::new();
        if self.kind == LogFormatKind::W3c {
            head.extend_from_slice(b"#Version: 1.0\n#Software: Vanward\n#Date: ");
            head.extend_from_slice(now.date());
            head.push(b' ');
            head.extend_from_slice(now.clock());
            head.extend_from_slice(b"\n#Fields:");
            for step in &self.steps {
                if let FormatStep::Value { field, .. } = step {
                    head.push(b' ');
                    head.extend_from_slice(field.w3c_name().as_bytes());
                }
            }
            head.push(b'\n');
        }
        head
    }
}

fn listed(names: &[String], values: &ValueNeeds<'_>) -> Result<Vec<LogField>, FormatError> {
    let fault = |place, fault| FormatError { place, is_in_fields: true, fault };
    if names.len() > FIELDS_MAX {
        return Err(fault(0, FormatFault::TooMany(names.len())));
    }
    let mut fields = Vec::with_capacity(names.len());
    for (place, name) in names.iter().enumerate() {
        let field = LogField::named_or_value(name, values)
            .map_err(|wrong| fault(place, FormatFault::Field(wrong)))?;
        if fields.contains(&field) {
            return Err(fault(place, FormatFault::Twice(name.clone())));
        }
        fields.push(field);
    }
    Ok(fields)
}

fn members(names: &[String], values: &ValueNeeds<'_>) -> Result<Vec<FormatStep>, FormatError> {
    let member = |(field, name): (LogField, &String)| {
        let mut key = vec![b'"'];
        crate::escape::json(name.as_bytes(), &mut key);
        key.extend_from_slice(b"\":");
        FormatStep::Member { key: key.into(), field, is_hidden: false }
    };
    let open = std::iter::once(FormatStep::Text((*b"{").into()));
    Ok(open
        .chain(listed(names, values)?.into_iter().zip(names).map(member))
        .chain([FormatStep::Close])
        .collect())
}

fn columns(names: &[String], values: &ValueNeeds<'_>) -> Result<Vec<FormatStep>, FormatError> {
    let mut steps = Vec::new();
    for field in listed(names, values)? {
        if !steps.is_empty() {
            steps.push(FormatStep::Text((*b" ").into()));
        }
        steps.push(FormatStep::Value { field, style: ValueStyle::W3c, is_hidden: false });
    }
    Ok(steps)
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Compiles a text with variables. Quotes around a variable decide how its value is escaped.
fn template(text: &str, values: &ValueNeeds<'_>) -> Result<Vec<FormatStep>, (usize, FormatFault)> {
    if text.len() > TEMPLATE_BYTES_MAX {
        return Err((0, FormatFault::Template(TemplateFault::TooLong(text.len()))));
    }
    let is_json = is_object(text);
    let [outside, inside] = if is_json {
        [ValueStyle::Json, ValueStyle::JsonPart]
    } else {
        [ValueStyle::Word, ValueStyle::Quoted]
    };
    let (mut steps, mut plain, mut fields) = (Vec::new(), String::new(), 0);
    let (mut is_quoted, mut is_escaped, mut at) = (false, false, 0);
    while let Some((token, len)) =
        route::token(&text[at..]).map_err(|fault| (at, FormatFault::Template(fault)))?
    {
        match token {
            TemplateToken::Character(character) if character.is_control() => {
                return Err((at, FormatFault::Character(character)));
            }
            TemplateToken::Character(character) => {
                is_quoted ^= character == '"' && !is_escaped;
                is_escaped = is_json && character == '\\' && !is_escaped;
                plain.push(character);
            }
            TemplateToken::Variable(name) => {
                let field = LogField::named_or_value(name, values)
                    .map_err(|fault| (at, FormatFault::Field(fault)))?;
                if !plain.is_empty() {
                    steps.push(FormatStep::Text(std::mem::take(&mut plain).into_bytes().into()));
                }
                let style = if is_quoted { inside } else { outside };
                // Most formats put the time in brackets because of its space. It is not from the client, so it stays
                // unescaped.
                steps.push(FormatStep::Value { field, style, is_hidden: false });
                fields += 1;
                is_escaped = false;
            }
        }
        at += len;
    }
    if !plain.is_empty() {
        steps.push(FormatStep::Text(plain.into_bytes().into()));
    }
    if fields > FIELDS_MAX {
        return Err((0, FormatFault::TooMany(fields)));
    }
    Ok(steps)
}
