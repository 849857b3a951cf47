//! Parses conditions on requests: hosts, paths, methods, values.
//!
//! Everywhere, `~` starts a regular expression that must match the whole text.

use ::route::{BytePattern, HostRule, PathRule, PatternError, ValueRule};
use mistake::nearest;
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::value_error::{HostProblem, ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::host::route_host;
use crate::option::kind::{Described, Kind, Text, quoted, refuse_type};
use crate::option::pairs::Pairs;
use crate::option::prefix::{exact, prefix, text_prefix};
use crate::option::range::{Count, Unit};
use crate::option::table::Written;

/// The kind of value for the host of a route.
pub(crate) const HOST_RULE: Text<HostRule> =
    Text { expected: HOST, read: host_rule, print: ToString::to_string };

const HOST: &str = "a host such as www.example.com, *.example.com or ~ regex, without port";

fn host_rule(text: &str) -> Result<HostRule, ValueError> {
    if let Some(pattern) = compiled(text, HOST, BytePattern::ignoring_case) {
        return pattern.map(HostRule::Pattern);
    }
    let Some(parent) = text.strip_prefix("*.") else {
        return route_host(text).map(HostRule::Exact).map_err(|error| ValueError { expected: HOST, ..error });
    };
    let refuse = |problem| {
        let fault = ValueFault::Host { host: text.to_owned(), problem };
        ValueError { fault, expected: HOST }
    };
    match route_host(parent) {
        Ok(parent) if parent.parse::<std::net::IpAddr>().is_ok() || parent.starts_with('[') => {
            Err(refuse(HostProblem::Address))
        }
        Ok(parent) => Ok(HostRule::Below(parent)),
        Err(error) => Err(ValueError { expected: HOST, ..error }),
    }
}

/// The kind of value for the path of a route.
pub(crate) const PATH_RULE: Text<PathRule> =
    Text { expected: PATH, read: path_rule, print: ToString::to_string };

const PATH: &str =
    "a path prefix such as / or /api, /api* for a prefix of the text, = /path for one path, or ~ regex";

fn path_rule(text: &str) -> Result<PathRule, ValueError> {
    if let Some(pattern) = pattern(text, PATH) {
        return pattern.map(PathRule::Pattern);
    }
    let read = match (text.strip_prefix('='), text.strip_suffix('*')) {
        (Some(path), _) => exact(path.trim_start()).map(PathRule::Exact),
        (None, Some(start)) => text_prefix(start).map(PathRule::TextPrefix),
        (None, None) => prefix(text).map(PathRule::Prefix),
    };
    read.map_err(|error| ValueError { expected: PATH, ..error })
}

/// The kind of value for a request method.
pub(crate) const METHOD: Text<String> =
    Text { expected: "a method such as GET or POST", read: method, print: String::clone };

fn method(text: &str) -> Result<String, ValueError> {
    // RFC 9110 §9.1: methods are case-sensitive; those that are standardised are in upper case.
    if is_token(text) && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Ok(text.to_owned());
    }
    let upper = text.to_ascii_uppercase();
    let nearest = is_token(&upper).then_some(upper);
    let why = if nearest.is_some() { "is not in capitals, as methods are" } else { "cannot be a method" };
    let fault = ValueFault::Unknown { written: text.to_owned(), why, nearest };
    Err(ValueError { fault, expected: METHOD.expected })
}

/// Whether a text is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// The name of a header field, as written; compared ignoring case.
#[derive(Debug, Clone)]
pub(crate) struct FieldName(pub(crate) String);

impl PartialEq for FieldName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl FieldName {
    pub(crate) const EXPECTED: &str = "the name of a header field such as X-Tenant";

    pub(crate) fn read(text: &str) -> Result<Self, ValueError> {
        if is_token(text) {
            return Ok(Self(text.to_owned()));
        }
        let why = "cannot be the name of a field";
        let fault = ValueFault::Unknown { written: text.to_owned(), why, nearest: None };
        Err(ValueError { fault, expected: Self::EXPECTED })
    }

    pub(crate) fn print(&self) -> String {
        self.0.clone()
    }
}

/// Parses the name of a parameter, which may be any text.
pub(crate) fn parameter_name(text: &str) -> Result<String, ValueError> {
    match text {
        "" => Err(ValueError { fault: ValueFault::Empty, expected: "the name of a parameter" }),
        name => Ok(name.to_owned()),
    }
}

/// The kind of value for a condition on a value.
pub(crate) struct ValueRuleKind;

const VALUE: &str = "true for any value, a value, a beginning such as \"a*\", or \"~ regex\"";

impl Described for ValueRuleKind {
    fn form(&self) -> Form {
        Form::words(VALUE)
    }
}

impl Kind<ValueRule> for ValueRuleKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<ValueRule> {
        match written.value.get_ref() {
            DeValue::Boolean(true) => Some(ValueRule::Present),
            DeValue::String(text) => match value_rule(text) {
                Ok(rule) => Some(rule),
                Err(error) => {
                    reader.refuse(&written.value.span(), written.name, &error);
                    None
                }
            },
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, rule: &ValueRule) -> Option<String> {
        Some(match rule {
            ValueRule::Present => "true".to_owned(),
            ValueRule::Exact(text) => quoted(text),
            ValueRule::Prefix(text) => quoted(&format!("{text}*")),
            ValueRule::Pattern(pattern) => quoted(&format!("~ {pattern}")),
        })
    }
}

fn value_rule(text: &str) -> Result<ValueRule, ValueError> {
    if let Some(pattern) = pattern(text, VALUE) {
        return pattern.map(ValueRule::Pattern);
    }
    Ok(match text.strip_suffix('*') {
        Some(prefix) => ValueRule::Prefix(prefix.to_owned()),
        None => ValueRule::Exact(text.to_owned()),
    })
}

/// Parses the regular expression in a text that starts with `~`; `None` for any other text.
pub(crate) fn pattern(text: &str, expected: &'static str) -> Option<Result<BytePattern, ValueError>> {
    compiled(text, expected, BytePattern::new)
}

fn compiled(
    text: &str,
    expected: &'static str,
    compile: impl FnOnce(&str) -> Result<BytePattern, PatternError>,
) -> Option<Result<BytePattern, ValueError>> {
    let written = text.strip_prefix('~')?.trim_start();
    let preceding = text.len() - written.len();
    if written.is_empty() {
        return Some(Err(ValueError { fault: ValueFault::Empty, expected }));
    }
    let refuse = |error| ValueError { fault: ValueFault::Pattern { error, preceding }, expected };
    Some(compile(written).map_err(refuse))
}

/// The kind of value for a regular expression without its `~`, where nothing else is possible.
pub(crate) const PATTERN: Text<BytePattern> = Text {
    expected: "a regular expression over the whole path such as /a/(.*)",
    read: |text| {
        let refuse = |error| ValueError {
            fault: ValueFault::Pattern { error, preceding: 0 },
            expected: PATTERN.expected,
        };
        BytePattern::new(text).map_err(refuse)
    },
    print: ToString::to_string,
};

/// Why an unknown keyword is rejected.
pub(crate) const NOT_KNOWN: &str = "is not known here";

/// The error about an unknown keyword, with the nearest known one.
pub(crate) fn unknown(written: &str, words: &[&str], expected: &'static str) -> ValueError {
    let nearest = nearest(written, words.iter().copied()).map(str::to_owned);
    ValueError {
        fault: ValueFault::Unknown { written: written.to_owned(), why: NOT_KNOWN, nearest },
        expected,
    }
}

/// Upstreams with their weights.
pub(crate) const SPLIT: Pairs<String, Count> = Pairs {
    expected: "weights of upstreams such as { app = 9, canary = 1 }",
    name: parameter_name,
    print_name: String::clone,
    kind: Count { range: 0..=1_000_000, unit: Unit::Things },
};
