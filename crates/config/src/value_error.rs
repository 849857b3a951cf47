//! What can be wrong with one written value, apart from where it was written.
//!
//! A table of facts and their wording: flags and files refuse a value with the same words.

use std::fmt;
use std::path::PathBuf;

use route::{
    CookieRewriteError, FixedResponseError, HeaderEditError, PatternError, RateError, TemplateError,
    TemplateFault, VARIABLES,
};

use mistake::nearest;

/// A value that can't be used: what is wrong with it, and what would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// What is wrong with it.
    pub fault: ValueFault,
    /// What would do, with an example: `a duration such as 50ms, 1.5s or 2m`.
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

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    /// Nothing was written.
    #[error("it is empty")]
    Empty,
    /// No number at the start, or two decimal points.
    #[error("{0:?} is not a number")]
    NotANumber(String),
    /// A number alone, where seconds and hours are both likely.
    #[error("{0} has no unit")]
    NoUnit(String),
    /// A unit that this kind of value doesn't have.
    #[error("unknown unit {unit:?}")]
    UnknownUnit {
        /// The unit as written.
        unit: String,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// Less than the smallest unit: half a byte.
    #[error("{written} is not a whole number of {unit}")]
    NotWhole {
        /// The value as written.
        written: String,
        /// The smallest unit.
        unit: &'static str,
    },
    /// Beyond what any option can take.
    #[error("{0} is too large")]
    TooLarge(String),
    /// A limit of 0, beyond which nothing would ever get.
    #[error("nothing would ever pass at {0}")]
    Nothing(String),
    /// A server without `http://` or `https://`.
    #[error("{0:?} has no scheme")]
    NoScheme(String),
    /// `tcp` without a port: there is none that is usual.
    #[error("{0:?} has no port")]
    NoPort(String),
    /// A Unix socket that isn't named by an absolute path.
    #[error("{0:?} is not the path of a socket: it begins with one / and ends in a name")]
    SocketPath(String),
    /// More than an address of the system can hold.
    #[error("{0:?} is longer than the 107 bytes that the path of a socket may have")]
    LongSocketPath(String),
    /// None of those that are known.
    #[error("unknown scheme {0:?}")]
    UnknownScheme(String),
    /// `user:password@`.
    #[error("a server takes no user name or password")]
    UserInformation,
    /// `http://host/path`: a prefix is matched by a route, not added by a server.
    #[error("a server takes no path, but {0:?} was given")]
    Path(String),
    /// `?` in a server.
    #[error("a server takes no query, but {0:?} was given")]
    Query(String),
    /// `#` in a server.
    #[error("a server takes no fragment, but {0:?} was given")]
    Fragment(String),
    /// Not 1 to 65535.
    #[error("{0:?} is not a port: ports are 1 to 65535")]
    Port(String),
    /// Several colons outside brackets.
    #[error("an IPv6 address is written in brackets: [{0}]")]
    Unbracketed(String),
    /// A host that is neither an address nor a name.
    #[error("{host:?} is not a host: {problem}")]
    Host {
        /// The host as written.
        host: String,
        /// What is wrong with it.
        problem: HostProblem,
    },
    /// A network that isn't `ADDRESS/LENGTH`.
    #[error("{0:?} is not a network")]
    Network(String),
    /// Address bits beyond the prefix length: which of the two is meant?
    #[error("{written} has address bits beyond its length")]
    HostBits {
        /// The network as written.
        written: String,
        /// With these bits cleared.
        truncated: ipnet::IpNet,
    },
    /// A probability of what cannot happen to one connection and not to the next.
    #[error("a listener refuses all connections or none, so {0} of them cannot be")]
    AllOrNone(String),
    /// A listener's address that isn't `ADDRESS:PORT`.
    #[error("{written:?} is not an address with a port")]
    SocketAddress {
        /// As written.
        written: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A path prefix that no request could match, or that reads as if it matched something else.
    #[error("{path:?} is not a path prefix: {problem}")]
    Prefix {
        /// As written.
        path: String,
        /// What is wrong with it.
        problem: PrefixProblem,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A route's host with a port: a route is for the host whatever the port, and so is a certificate.
    #[error("this host takes no port, but {0} was given")]
    HostPort(u16),
    /// What has no meaning here.
    #[error("{written:?} {why}")]
    Unknown {
        /// As written.
        written: String,
        /// Why not: `has no %`.
        why: &'static str,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A regular expression that is none.
    #[error("in the expression: {error}")]
    Pattern {
        /// What is wrong.
        error: PatternError,
        /// How many bytes precede the expression in the value.
        preceding: usize,
    },
    /// A text with variables that is none.
    #[error("{0}")]
    Template(TemplateError),
    /// A header field that can't be edited so.
    #[error("{0}")]
    HeaderEdit(HeaderEditError),
    /// A response that can't be made.
    #[error("{0}")]
    FixedResponse(FixedResponseError),
    /// A rewrite of cookies that makes no sense.
    #[error("{0}")]
    Cookies(CookieRewriteError),
    /// A rate that can't be kept.
    #[error("{0}")]
    Rate(RateError),
    /// A file that can't be used, and why.
    #[error("{}: {problem}", path.display())]
    File {
        /// As written.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// Neither a word that has a meaning here nor a path.
    #[error("{written:?} is neither a known word nor a path")]
    NotAPath {
        /// As written.
        written: String,
        /// The word that was probably meant.
        nearest: Option<&'static str>,
    },
}

impl ValueFault {
    /// What was probably meant.
    pub fn meant(&self) -> Option<String> {
        match self {
            ValueFault::UnknownUnit { nearest, .. } | ValueFault::NotAPath { nearest, .. } => {
                nearest.map(str::to_owned)
            }
            ValueFault::HostBits { truncated, .. } => Some(truncated.to_string()),
            ValueFault::SocketAddress { nearest, .. }
            | ValueFault::Prefix { nearest, .. }
            | ValueFault::Unknown { nearest, .. } => nearest.clone(),
            ValueFault::Template(TemplateError { fault: TemplateFault::Unknown(name), .. })
            | ValueFault::HeaderEdit(HeaderEditError::Value(TemplateError {
                fault: TemplateFault::Unknown(name),
                ..
            })) => nearest(name, VARIABLES).map(|name| format!("${name}")),
            ValueFault::NoScheme(written) if !written.contains(['/', ' ']) => {
                Some(format!("http://{written}"))
            }
            _ => None,
        }
    }

    /// Where in the value the fault is, in bytes from its beginning, if that is known.
    pub fn offset(&self) -> Option<usize> {
        match self {
            ValueFault::Pattern { error: PatternError::Syntax { offset, .. }, preceding } => {
                Some(preceding + offset)
            }
            ValueFault::Template(error) | ValueFault::HeaderEdit(HeaderEditError::Value(error)) => {
                Some(error.offset)
            }
            _ => None,
        }
    }
}

/// What is wrong with a path prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrefixProblem {
    /// `api`.
    #[error("it doesn't start with /")]
    Relative,
    /// `/a?b` or `/a#b`: routes look at the path alone.
    #[error("it has a query or a fragment")]
    Query,
    /// `/api/*`.
    #[error("a prefix needs no *")]
    Wildcard,
    /// `/api/`.
    #[error("a prefix matches whole segments without a / at its end")]
    SlashAtEnd,
    /// `/a//b`.
    #[error("it has an empty segment")]
    EmptySegment,
    /// `/a/../b`.
    #[error("it has a . or .. segment")]
    DotSegment,
    /// Not as it would be sent in a request.
    #[error("what is not a visible ASCII character is written as %XX")]
    Character,
    /// `/%61pi`.
    #[error("a visible character needs no %XX")]
    Escape,
    /// `%` without two hexadecimal digits after it.
    #[error("a % is not followed by two hexadecimal digits")]
    Percent,
}

/// What is wrong with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostProblem {
    /// `http://:80`.
    #[error("it is empty")]
    Empty,
    /// More than DNS can carry.
    #[error("it is longer than 253 bytes")]
    TooLong,
    /// Two dots in a row, or one at an end.
    #[error("a label between its dots is empty")]
    EmptyLabel,
    /// More than DNS can carry.
    #[error("a label between its dots is longer than 63 bytes")]
    LongLabel,
    /// `-a` or `a-`.
    #[error("a label starts or ends with a hyphen")]
    Hyphen,
    /// Other than letters, digits, hyphens and underscores.
    #[error("names have letters, digits, hyphens and underscores only")]
    Character,
    /// Beyond ASCII.
    #[error("an international name is written in its xn-- form")]
    International,
    /// `*.example.com`, where it is not for a route, or `www.*`.
    #[error("a * is for the hosts of routes alone, at the beginning, as in *.example.com")]
    Wildcard,
    /// Looks like an IPv4 address, and isn't one: resolvers disagree about `127.1`.
    #[error("it ends in a number and is not an IPv4 address")]
    NotAnAddress,
    /// An address where a name is asked for: names go into the server name of TLS, addresses don't.
    #[error("it is an address")]
    Address,
    /// Brackets around something else.
    #[error("what is in the brackets is not an IPv6 address")]
    NotAnIpv6Address,
}
