//! Formats of lines: presets, lists of fields, and templates with the variables of requests, compiled once to the steps
//! that write a line.

use route::{TEMPLATE_BYTES_MAX, TemplateFault, Token};

use crate::field::{Field, FieldFault, Needs};
use crate::masks::Masks;
use crate::out::Style;
use crate::timestamp::Timestamp;

/// The most fields of a format.
pub const FIELDS_MAX: usize = 100;

/// The fields of the W3C Extended Log Format, unless others are chosen.
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

/// The format of the access log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Format {
    /// The Combined Log Format, then timings and the rest as `name=value`.
    #[default]
    Extended,
    /// The Combined Log Format of NCSA and Apache httpd, and nothing else.
    Combined,
    /// One JSON object with all fields; those without a value are left out.
    Json,
    /// Fields by choice.
    Chosen(Chosen),
}

/// A format with fields by choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    written: Box<str>,
    fields: Box<[String]>,
    kind: Kind,
    pub(crate) steps: Box<[Step]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One JSON object with these fields.
    Json,
    /// The W3C Extended Log Format.
    W3c,
    /// A text with variables.
    Template,
}

/// A step of writing a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Text(Box<[u8]>),
    Value {
        field: Field,
        style: Style,
        is_hidden: bool,
    },
    /// A member of a JSON object, if it has a value.
    Member {
        /// The name with its punctuation: `"status":`.
        key: Box<[u8]>,
        field: Field,
        is_hidden: bool,
    },
    /// The end of a JSON object with members.
    Close,
}

/// What is wrong with a format, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct FormatError {
    /// The place in the text in bytes, or the index of the field.
    pub place: usize,
    /// Whether the list of fields is wrong, rather than the text.
    pub is_in_fields: bool,
    /// What is wrong.
    pub fault: FormatFault,
}

/// What is wrong with a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatFault {
    /// Neither a preset nor a text with variables.
    #[error("{0:?} is no format, and a text without variables says nothing")]
    Unknown(String),
    /// Fields for a format that has no choice of them.
    #[error("{0} has no choice of fields")]
    NoChoice(String),
    /// More than [`FIELDS_MAX`].
    #[error("there are {0} fields; at most {FIELDS_MAX} are allowed")]
    TooMany(usize),
    /// A field is listed twice.
    #[error("{0:?} is listed twice")]
    Twice(String),
    /// A control character, which could end the line.
    #[error("{0:?} has no place in a line")]
    Character(char),
    /// The syntax of a variable.
    #[error("{0}")]
    Template(TemplateFault),
    /// The name of a field.
    #[error("{0}")]
    Field(FieldFault),
}

impl Format {
    /// The words that stand for formats.
    pub const PRESETS: [&'static str; 4] = ["extended", "combined", "json", "w3c"];

    /// Reads a format: a preset, or a text with variables such as `$client [$time] "$request" $status`. `json` and `w3c` may
    /// have fields by choice.
    ///
    /// A text that begins with `{` is a JSON object: values outside of its quotes are written as JSON, so that
    /// `{"ip":$client,"status":$status}` is an object whatever they are.
    ///
    /// # Errors
    /// What is wrong first, and where.
    pub fn new(written: &str, fields: &[String]) -> Result<Self, FormatError> {
        let in_fields = |place, fault| FormatError { place, is_in_fields: true, fault };
        let no_choice = |what: &str| Err(in_fields(0, FormatFault::NoChoice(what.to_owned())));
        let steps = match written {
            "extended" | "combined" if !fields.is_empty() => return no_choice(&format!("{written:?}")),
            "extended" => return Ok(Self::Extended),
            "combined" => return Ok(Self::Combined),
            "json" if fields.is_empty() => return Ok(Self::Json),
            "json" => (Kind::Json, members(fields)),
            "w3c" if fields.is_empty() => (Kind::W3c, columns(&W3C_FIELDS.map(str::to_owned))),
            "w3c" => (Kind::W3c, columns(fields)),
            text if !text.contains('$') => {
                let fault = FormatFault::Unknown(text.to_owned());
                return Err(FormatError { place: 0, is_in_fields: false, fault });
            }
            _ if !fields.is_empty() => return no_choice("a text with variables"),
            text => {
                let steps = template(text);
                let at = |(place, fault)| FormatError { place, is_in_fields: false, fault };
                (Kind::Template, steps.map_err(at))
            }
        };
        let (kind, steps) = (steps.0, steps.1?);
        Ok(Self::Chosen(Chosen { written: written.into(), fields: fields.into(), kind, steps: steps.into() }))
    }

    /// The format and its fields, as they were written.
    #[must_use]
    pub fn written(&self) -> (&str, &[String]) {
        match self {
            Self::Extended => ("extended", &[]),
            Self::Combined => ("combined", &[]),
            Self::Json => ("json", &[]),
            Self::Chosen(chosen) => (&chosen.written, &chosen.fields),
        }
    }

    /// Whether its files begin with directives, which a target that takes single lines has no place for.
    #[must_use]
    pub fn has_directives(&self) -> bool {
        matches!(self, Self::Chosen(Chosen { kind: Kind::W3c, .. }))
    }

    /// Whether it is a template of a JSON object.
    #[must_use]
    pub fn is_json_template(&self) -> bool {
        matches!(self, Self::Chosen(chosen) if chosen.kind == Kind::Template && is_object(&chosen.written))
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
                Step::Value { field, .. } | Step::Member { field, .. } => needs.and(field.needs()),
                Step::Text(_) | Step::Close => needs,
            }),
        }
    }

    /// The same format, with the fields hidden that are to be.
    pub(crate) fn hiding(mut self, masks: &Masks) -> Self {
        if let Self::Chosen(chosen) = &mut self {
            for step in &mut chosen.steps {
                if let Step::Value { field, is_hidden, .. } | Step::Member { field, is_hidden, .. } = step {
                    *is_hidden = match field {
                        Field::Header(name) | Field::ResponseHeader(name) => masks.hides(name),
                        Field::Referer => masks.hides(b"referer"),
                        Field::UserAgent => masks.hides(b"user-agent"),
                        _ => false,
                    };
                }
            }
        }
        self
    }
}

impl Chosen {
    /// The directives of the W3C Extended Log Format.
    pub(crate) fn head(&self, now: &Timestamp) -> Vec<u8> {
        let mut head = Vec::new();
        if self.kind == Kind::W3c {
            head.extend_from_slice(b"#Version: 1.0\n#Software: Vanward\n#Date: ");
            head.extend_from_slice(now.date());
            head.push(b' ');
            head.extend_from_slice(now.clock());
            head.extend_from_slice(b"\n#Fields:");
            for step in &self.steps {
                if let Step::Value { field, .. } = step {
                    head.push(b' ');
                    head.extend_from_slice(field.w3c_name().as_bytes());
                }
            }
            head.push(b'\n');
        }
        head
    }
}

/// The fields of a list, each once.
fn listed(names: &[String]) -> Result<Vec<Field>, FormatError> {
    let fault = |place, fault| FormatError { place, is_in_fields: true, fault };
    if names.len() > FIELDS_MAX {
        return Err(fault(0, FormatFault::TooMany(names.len())));
    }
    let mut fields = Vec::with_capacity(names.len());
    for (place, name) in names.iter().enumerate() {
        let field = Field::named(name).map_err(|wrong| fault(place, FormatFault::Field(wrong)))?;
        if fields.contains(&field) {
            return Err(fault(place, FormatFault::Twice(name.clone())));
        }
        fields.push(field);
    }
    Ok(fields)
}

fn members(names: &[String]) -> Result<Vec<Step>, FormatError> {
    let member = |(field, name): (Field, &String)| {
        let mut key = vec![b'"'];
        crate::escape::json(name.as_bytes(), &mut key);
        key.extend_from_slice(b"\":");
        Step::Member { key: key.into(), field, is_hidden: false }
    };
    let open = std::iter::once(Step::Text((*b"{").into()));
    Ok(open.chain(listed(names)?.into_iter().zip(names).map(member)).chain([Step::Close]).collect())
}

fn columns(names: &[String]) -> Result<Vec<Step>, FormatError> {
    let mut steps = Vec::new();
    for field in listed(names)? {
        if !steps.is_empty() {
            steps.push(Step::Text((*b" ").into()));
        }
        steps.push(Step::Value { field, style: Style::W3c, is_hidden: false });
    }
    Ok(steps)
}

/// Whether a template is one of a JSON object.
fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// The steps of a text with variables. Whether a variable is within quotes decides how its value is escaped.
fn template(text: &str) -> Result<Vec<Step>, (usize, FormatFault)> {
    if text.len() > TEMPLATE_BYTES_MAX {
        return Err((0, FormatFault::Template(TemplateFault::TooLong(text.len()))));
    }
    let is_json = is_object(text);
    let [outside, inside] =
        if is_json { [Style::Json, Style::JsonPart] } else { [Style::Word, Style::Quoted] };
    let (mut steps, mut plain, mut fields) = (Vec::new(), String::new(), 0);
    let (mut is_quoted, mut is_escaped, mut at) = (false, false, 0);
    while let Some((token, len)) =
        route::token(&text[at..]).map_err(|fault| (at, FormatFault::Template(fault)))?
    {
        match token {
            Token::Character(character) if character.is_control() => {
                return Err((at, FormatFault::Character(character)));
            }
            Token::Character(character) => {
                is_quoted ^= character == '"' && !is_escaped;
                is_escaped = is_json && character == '\\' && !is_escaped;
                plain.push(character);
            }
            Token::Variable(name) => {
                let field = Field::named(name).map_err(|fault| (at, FormatFault::Field(fault)))?;
                if !plain.is_empty() {
                    steps.push(Step::Text(std::mem::take(&mut plain).into_bytes().into()));
                }
                let style = if is_quoted { inside } else { outside };
                // A time with a space in it is in brackets in most formats: it is one of ours, and stays as it is.
                steps.push(Step::Value { field, style, is_hidden: false });
                fields += 1;
                is_escaped = false;
            }
        }
        at += len;
    }
    if !plain.is_empty() {
        steps.push(Step::Text(plain.into_bytes().into()));
    }
    if fields > FIELDS_MAX {
        return Err((0, FormatFault::TooMany(fields)));
    }
    Ok(steps)
}
