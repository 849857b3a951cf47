//! Kinds of values that only routes have.

use std::num::NonZeroU32;
use std::time::Duration;

use ::route::{DomainRewrite, RedirectStatus};
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Name, Template, Text, quoted, refuse_type};
use crate::option::matching::unknown;
use crate::option::pairs::{Pair, Pairs, pair};
use crate::option::quantity::{duration, written_duration};
use crate::option::range::{Count, Unit};
use crate::option::table::Written;
use crate::tables::route::Via;

/// The realm that clients show when they ask for a password.
pub(crate) const REALM: Text<String> = Text {
    expected: "text without control characters",
    read: |text| match ::route::challenge(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(ValueError {
            fault: ValueFault::Unknown {
                written: text.to_owned(),
                why: "has a control character",
                nearest: None,
            },
            expected: REALM.expected,
        }),
    },
    print: String::clone,
};

/// The name of the proxy in Via.
pub(crate) const VIA: Text<Via> = Text {
    expected: "a name such as edge-1 (letters, digits and -._), or off",
    read: |text| match text {
        "off" => Ok(Via::Off),
        "vanward" => Ok(Via::Own),
        // RFC 9110 §7.6.3: a pseudonym is a token; not all that is one is read alike by others.
        name if is_proxy_name(name) => Ok(Via::Named(name.to_owned())),
        _ => Err(ValueError {
            fault: ValueFault::Unknown {
                written: text.to_owned(),
                why: "cannot be a name in Via",
                nearest: None,
            },
            expected: VIA.expected,
        }),
    },
    print: |via| match via {
        Via::Own => "vanward".to_owned(),
        Via::Named(name) => name.clone(),
        Via::Off => "off".to_owned(),
    },
};

fn is_proxy_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// The name of the proxy in Proxy-Status.
pub(crate) const PROXY_NAME: Text<String> = Text {
    expected: "a name such as edge-1 (letters, digits and -._) that begins with a letter",
    read: |name| {
        // RFC 8941 §3.3.4: so begins a token.
        if is_proxy_name(name) && name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Ok(name.to_owned());
        }
        let fault = ValueFault::Unknown {
            written: name.to_owned(),
            why: "cannot be a name in Proxy-Status",
            nearest: None,
        };
        Err(ValueError { fault, expected: PROXY_NAME.expected })
    },
    print: String::clone,
};

/// A number of requests per time.
pub(crate) const RATE: Text<(NonZeroU32, Duration)> = Text {
    expected: "a number of requests in a time, such as 100/s, 10/m or 5/10s",
    read: rate,
    print: written_rate,
};

fn rate(text: &str) -> Result<(NonZeroU32, Duration), ValueError> {
    let refuse = |fault| ValueError { fault, expected: RATE.expected };
    let written = text.trim();
    let Some((requests, per)) = written.split_once('/') else {
        let is_number = !written.is_empty() && written.bytes().all(|byte| byte.is_ascii_digit());
        let nearest = is_number.then(|| format!("{written}/s"));
        let why = "has no unit of time";
        return Err(refuse(ValueFault::Unknown { written: written.to_owned(), why, nearest }));
    };
    let (requests, per) = (requests.trim(), per.trim());
    let digits = !requests.is_empty() && requests.bytes().all(|byte| byte.is_ascii_digit());
    let requests: Option<NonZeroU32> = if digits { requests.parse().ok() } else { None };
    let why = "does not begin with a number of 1 or more";
    let requests = requests
        .ok_or_else(|| refuse(ValueFault::Unknown { written: written.to_owned(), why, nearest: None }))?;
    let begins_with_number = per.starts_with(|first: char| first.is_ascii_digit());
    let duration_of = if begins_with_number { duration(per) } else { duration(&format!("1{per}")) };
    match duration_of {
        Ok(per) => Ok((requests, per)),
        Err(ValueError { fault: ValueFault::UnknownUnit { unit, nearest: Some(meant) }, .. }) => {
            let nearest = Some(format!("{requests}/{}", per.replace(&unit, meant)));
            let why = "has an unknown unit of time";
            Err(refuse(ValueFault::Unknown { written: written.to_owned(), why, nearest }))
        }
        Err(error) => Err(refuse(error.fault)),
    }
}

fn written_rate((requests, per): &(NonZeroU32, Duration)) -> String {
    let per = written_duration(*per);
    // `1s` is `s`, where no digit follows: `10s` and `1500ms` are as they are.
    let unit =
        per.strip_prefix('1').filter(|unit| unit.starts_with(|first: char| first.is_ascii_alphabetic()));
    format!("{requests}/{}", unit.unwrap_or(&per))
}

/// A redirect status, one of five.
pub(crate) struct RedirectStatusKind;

impl Described for RedirectStatusKind {
    fn form(&self) -> Form {
        Form::words("301, 302, 303, 307 or 308")
    }
}

impl Kind<RedirectStatus> for RedirectStatusKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<RedirectStatus> {
        let DeValue::Integer(number) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let status = number.as_str().parse().ok().and_then(RedirectStatus::from_status);
        if status.is_none() {
            let message = format!("{}: {number} is not the status of a redirect", written.name);
            let mistake = reader.mistake(&written.value.span(), message);
            reader.add(mistake.expecting(self.expected()));
        }
        status
    }

    fn print(&self, status: &RedirectStatus) -> Option<String> {
        Some(status.code().to_string())
    }
}

/// A rewrite of cookie domains: `"remove"`, or replacements.
pub(crate) struct DomainKind;

const REMOVE: &str = "remove";
const DOMAIN: &str = "\"remove\", or a table such as { \"app.internal\" = \"www.example.com\" }";

const DOMAINS: Pairs<String, Name> = Pairs {
    expected: DOMAIN,
    name: |text| Ok(text.to_owned()),
    print_name: String::clone,
    kind: Name { expected: "a domain such as www.example.com" },
};

impl Described for DomainKind {
    fn form(&self) -> Form {
        Form::brief(DOMAIN, "\"remove\" or table")
    }
}

impl Kind<DomainRewrite> for DomainKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<DomainRewrite> {
        match written.value.get_ref() {
            DeValue::String(word) if word == REMOVE => Some(DomainRewrite::Remove),
            DeValue::String(word) => {
                reader.refuse(&written.value.span(), written.name, &unknown(word, &[REMOVE], DOMAIN));
                None
            }
            _ => {
                let pairs: Vec<Pair<String, String>> = DOMAINS.read(written, reader)?;
                Some(DomainRewrite::Exchange(pairs.into_iter().map(|pair| (pair.name, pair.value)).collect()))
            }
        }
    }

    fn print(&self, domain: &DomainRewrite) -> Option<String> {
        match domain {
            DomainRewrite::Keep => None,
            DomainRewrite::Remove => Some(quoted(REMOVE)),
            DomainRewrite::Exchange(pairs) => {
                let pairs = pairs.iter().map(|(from, to)| pair(from.clone(), to.clone())).collect();
                // Of none there is something to say as well.
                Some(DOMAINS.print(&pairs).unwrap_or_else(|| "{}".to_owned()))
            }
        }
    }
}

/// A status as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StatusWritten {
    Fixed(u16),
    /// A text with values.
    Computed(String),
}

/// The kind of value for a status that can be a value.
pub(crate) struct StatusKind;

const FIXED: Count = Count { range: 200..=599, unit: Unit::Things };
pub(crate) const STATUS_EXPECTED: &str = "a whole number, 200 to 599, or a value such as \"${code}\"";

impl Described for StatusKind {
    fn form(&self) -> Form {
        Form::brief(STATUS_EXPECTED, "number, 200 to 599, or value such as \"${code}\"")
    }
}

impl Kind<StatusWritten> for StatusKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<StatusWritten> {
        match written.value.get_ref() {
            DeValue::String(text) if text.contains('$') => {
                Template { expected: STATUS_EXPECTED }.read(written, reader).map(StatusWritten::Computed)
            }
            DeValue::String(_) if !reader.is_completed(&written.value.span()) => {
                refuse_type(written, self.expected(), reader);
                None
            }
            _ => FIXED.read(written, reader).map(StatusWritten::Fixed),
        }
    }

    fn print(&self, status: &StatusWritten) -> Option<String> {
        match status {
            StatusWritten::Fixed(status) => FIXED.print(status),
            StatusWritten::Computed(text) => Some(quoted(text)),
        }
    }
}
