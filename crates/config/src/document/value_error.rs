//! Mistakes in a value, without its position.
//!
//! A table of facts and their wording, so that flags and files use equal messages.

use std::fmt;
use std::path::PathBuf;

use expression::ExpressionFault;
use mistake::nearest;
use route::{
    CookieRewriteError, FixedResponseError, HeaderEditError, PatternError, RateError, TemplateError,
    TemplateFault, VARIABLES,
};

/// A value that cannot be used: what is wrong, and what is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// The mistake in the value.
    pub fault: ValueFault,
    /// The expected form, with an example: `a duration such as 50ms, 1.5s or 2m`.
    pub expected: &'static str,
}

impl fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault.meant() {
            Some(meant) => {
                write!(formatter, "{}; did you mean {meant:?}? Expected {}", self.fault, self.expected)
            }
            None => write!(formatter, "{}; expected {}", self.fault, self.expected),
        }
    }
}

impl std::error::Error for ValueError {}

/// A mistake in a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    #[error("it is empty")]
    Empty,
    /// There is no number at the start, or it has two decimal points.
    #[error("{0:?} is not a number")]
    NotANumber(String),
    /// A number without a unit, although seconds and hours are both likely.
    #[error("{0} has no unit")]
    NoUnit(String),
    /// The unit does not exist for this kind of value.
    #[error("unknown unit {unit:?}")]
    UnknownUnit {
        unit: String,
        /// The unit that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The value is no multiple of the smallest unit, such as half a byte.
    #[error("{written} is not a whole number of {unit}")]
    NotWhole { written: String, unit: &'static str },
    /// The value is larger than any option allows.
    #[error("{0} is too large")]
    TooLarge(String),
    /// A limit of 0, which would block everything.
    #[error("a rate of {0} lets nothing pass")]
    Nothing(String),
    /// A server without `http://` or `https://`.
    #[error("{0:?} has no scheme")]
    NoScheme(String),
    /// `tcp` without a port, for which there is no default.
    #[error("{0:?} has no port")]
    NoPort(String),
    #[error("a service takes no port: each of its servers has one, but {0} was given")]
    ServicePort(u16),
    /// A service without a name.
    #[error("a service has a name, such as _http._tcp.app.example, but {0} was given")]
    ServiceAddress(String),
    /// The path of a Unix socket is not absolute.
    #[error("{0:?} is not the path of a socket: it begins with one / and ends in a name")]
    SocketPath(String),
    /// The path of a Unix socket is longer than the system allows.
    #[error("{0:?} is longer than the 107 bytes that the path of a socket may have")]
    LongSocketPath(String),
    #[error("unknown scheme {0:?}")]
    UnknownScheme(String),
    /// The server has user information (`user:password@`).
    #[error("a server takes no user name or password")]
    UserInformation,
    /// The server has a path (`http://host/path`): routes match prefixes, servers add none.
    #[error("a server takes no path, but {0:?} was given")]
    Path(String),
    /// The server has a query (`?`).
    #[error("a server takes no query, but {0:?} was given")]
    Query(String),
    /// The server has a fragment (`#`).
    #[error("a server takes no fragment, but {0:?} was given")]
    Fragment(String),
    /// The port is not from 1 to 65535.
    #[error("{0:?} is not a port: ports are 1 to 65535")]
    Port(String),
    /// There are several colons outside brackets.
    #[error("an IPv6 address is written in brackets: [{0}]")]
    Unbracketed(String),
    /// The host is neither an address nor a name.
    #[error("{host:?} is not a host: {problem}")]
    Host {
        host: String,
        /// The mistake in the host.
        problem: HostProblem,
    },
    /// The network is not `ADDRESS/LENGTH`.
    #[error("{0:?} is not a network")]
    Network(String),
    /// The network has address bits beyond its prefix length, so it is ambiguous.
    #[error("{written} has address bits beyond its prefix length")]
    HostBits {
        written: String,
        /// The network with these bits cleared.
        truncated: ipnet::IpNet,
    },
    /// A probability of a fault that cannot apply to some connections and not to others.
    #[error("a listener refuses all connections or none, not {0} of them")]
    AllOrNone(String),
    /// The address of a listener is not `ADDRESS:PORT`.
    #[error("{written:?} is not an address with a port")]
    SocketAddress {
        written: String,
        /// The address that was probably meant.
        nearest: Option<String>,
    },
    /// No request can match the path prefix, or it looks as if it matched something else.
    #[error("{path:?} is not a path prefix: {problem}")]
    Prefix {
        path: String,
        /// The mistake in the prefix.
        problem: PrefixProblem,
        /// The prefix that was probably meant.
        nearest: Option<String>,
    },
    /// A route's host has a port, but routes and certificates are for a host with any port.
    #[error("this host takes no port, but {0} was given")]
    HostPort(u16),
    /// The value has no meaning here.
    #[error("{written:?} {why}")]
    Unknown {
        written: String,
        /// The reason: `has no %`.
        why: &'static str,
        /// The value that was probably meant.
        nearest: Option<String>,
    },
    /// The regular expression is invalid.
    #[error("in the expression: {error}")]
    Pattern {
        /// The mistake in the expression.
        error: PatternError,
        /// How many bytes precede the expression in the value.
        preceding: usize,
    },
    /// The condition is invalid.
    #[error("{}{}", .0.message, hint(.0))]
    Expression(Box<ExpressionFault>),
    /// The text with variables is invalid.
    #[error("{0}")]
    Template(TemplateError),
    /// The edit of a header field is invalid.
    #[error("{0}")]
    HeaderEdit(HeaderEditError),
    /// The fixed response is invalid.
    #[error("{0}")]
    FixedResponse(FixedResponseError),
    /// The rewrite of cookies is invalid.
    #[error("{0}")]
    Cookies(CookieRewriteError),
    #[error("{0}")]
    Rate(RateError),
    /// The file cannot be used.
    #[error("{}: {problem}", crate::document::surroundings::shown_path(path))]
    File { path: PathBuf, problem: String },
    /// The value is neither a keyword nor a path.
    #[error("{written:?} is neither a known word nor a path")]
    NotAPath {
        written: String,
        /// The keyword that was probably meant.
        nearest: Option<&'static str>,
    },
}

impl ValueFault {
    /// The value that was probably meant.
    pub fn meant(&self) -> Option<String> {
        match self {
            ValueFault::UnknownUnit { nearest, .. } | ValueFault::NotAPath { nearest, .. } => {
                nearest.map(str::to_owned)
            }
            ValueFault::HostBits { truncated, .. } => Some(truncated.to_string()),
            ValueFault::SocketAddress { nearest, .. }
            | ValueFault::Prefix { nearest, .. }
            | ValueFault::Unknown { nearest, .. } => nearest.clone(),
            ValueFault::Template(error) | ValueFault::HeaderEdit(HeaderEditError::Value(error)) => {
                let TemplateFault::Unknown { name, values } = &error.fault else { return None };
                let known = VARIABLES.into_iter().chain(values.iter().map(String::as_str));
                nearest(name, known).map(|name| format!("${name}"))
            }
            ValueFault::Expression(fault) => fault.nearest.clone(),
            ValueFault::NoScheme(written) if !written.contains(['/', ' ']) => {
                Some(format!("http://{written}"))
            }
            _ => None,
        }
    }

    /// The name of a variable that does not exist, if that is the mistake.
    pub(crate) fn unknown_variable(&self) -> Option<&str> {
        match self {
            ValueFault::Template(error) | ValueFault::HeaderEdit(HeaderEditError::Value(error)) => {
                match &error.fault {
                    TemplateFault::Unknown { name, .. } => Some(name),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The position of the fault in the value, in bytes, if it is known.
    pub fn offset(&self) -> Option<usize> {
        match self {
            ValueFault::Pattern { error: PatternError::Syntax { offset, .. }, preceding } => {
                Some(preceding + offset)
            }
            ValueFault::Template(error) | ValueFault::HeaderEdit(HeaderEditError::Value(error)) => {
                Some(error.offset)
            }
            ValueFault::Expression(fault) => Some(fault.at.start),
            _ => None,
        }
    }
}

/// Returns the correction that a mistake in an expression suggests, as the end of a sentence.
fn hint(fault: &ExpressionFault) -> String {
    fault.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default()
}

/// A mistake in a path prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrefixProblem {
    /// The prefix does not start with a slash: `api`.
    #[error("it doesn't start with /")]
    Relative,
    /// The prefix has a query or fragment (`/a?b` or `/a#b`), but routes match only the path.
    #[error("it has a query or a fragment")]
    Query,
    /// The prefix ends with a wildcard: `/api/*`.
    #[error("a prefix needs no *")]
    Wildcard,
    /// The prefix ends with a slash: `/api/`.
    #[error("a prefix matches whole segments without a / at its end")]
    SlashAtEnd,
    /// The prefix has an empty segment: `/a//b`.
    #[error("it has an empty segment")]
    EmptySegment,
    /// The prefix has a dot segment: `/a/../b`.
    #[error("it has a . or .. segment")]
    DotSegment,
    /// A character is not written as in a request.
    #[error("characters other than visible ASCII must be written as %XX")]
    Character,
    /// An escape is needless: `/%61pi`.
    #[error("a visible character needs no %XX")]
    Escape,
    /// A `%` without two hexadecimal digits after it.
    #[error("a % is not followed by two hexadecimal digits")]
    Percent,
}

/// A mistake in a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostProblem {
    /// The host is empty: `http://:80`.
    #[error("it is empty")]
    Empty,
    /// The host is longer than DNS allows.
    #[error("it is longer than 253 bytes")]
    TooLong,
    /// The host has two dots in a row, or one at an end.
    #[error("a label between its dots is empty")]
    EmptyLabel,
    /// A label is longer than DNS allows.
    #[error("a label between its dots is longer than 63 bytes")]
    LongLabel,
    /// A label starts or ends with a hyphen: `-a` or `a-`.
    #[error("a label starts or ends with a hyphen")]
    Hyphen,
    /// A character is not a letter, digit, hyphen or underscore.
    #[error("names have letters, digits, hyphens and underscores only")]
    Character,
    /// A character is not ASCII.
    #[error("an international name is written in its xn-- form")]
    International,
    /// A wildcard that is not allowed: `*.example.com` outside of a route, or `www.*`.
    #[error("only the host of a route may have a *, at the beginning, as in *.example.com")]
    Wildcard,
    /// The host looks like an IPv4 address but is not: resolvers disagree about `127.1`.
    #[error("it ends in a number and is not an IPv4 address")]
    NotAnAddress,
    /// An address instead of a name: TLS server names cannot be addresses.
    #[error("it is an address")]
    Address,
    /// The brackets contain no IPv6 address.
    #[error("the brackets do not contain an IPv6 address")]
    NotAnIpv6Address,
}
