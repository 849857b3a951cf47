//! Options of health checks, ejection and circuit breakers, declared once.

use std::time::Duration;

use ::route::ValueRule;
use balance::{BreakerSettings, CheckSettings, EjectionSettings};

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::{HOST_HEADER, host_header};
use crate::option::kind::{At, List, Located, Maybe, Name, Text, Unless, Word};
use crate::option::matching::{FieldName, ValueRuleKind, pattern};
use crate::option::pairs::{Pair, Pairs};
use crate::option::range::{Count, NonZero, Unit, Wait};
use crate::option::statuses::{Statuses, StatusesKind};
use crate::option::table::{Table, key, required};
use crate::tables::upstream::{BodyRule, Check, Probe};

#[derive(Debug, Clone)]
pub(crate) struct CheckWritten {
    pub(crate) kind: Option<CheckType>,
    pub(crate) path: Option<Located<String>>,
    pub(crate) host: Option<Located<String>>,
    pub(crate) status: Option<Located<Statuses>>,
    pub(crate) headers: Option<Located<Vec<Pair<FieldName, ValueRule>>>>,
    pub(crate) body: Option<Located<BodyRule>>,
    pub(crate) service: Option<Located<String>>,
    pub(crate) command: Option<Located<Vec<String>>>,
    pub(crate) port: Option<u16>,
    pub(crate) interval: Duration,
    pub(crate) interval_in_doubt: Option<Duration>,
    pub(crate) timeout: Duration,
    pub(crate) rise: u32,
    pub(crate) fall: u32,
    pub(crate) jitter_percent: u32,
}

impl Default for CheckWritten {
    fn default() -> Self {
        let CheckSettings { interval, interval_in_doubt: _, jitter_percent, rise, fall } =
            CheckSettings::default();
        Self {
            kind: None,
            path: None,
            host: None,
            status: None,
            headers: None,
            body: None,
            service: None,
            command: None,
            port: None,
            interval,
            interval_in_doubt: None,
            timeout: Check::TIMEOUT,
            rise,
            fall,
            jitter_percent,
        }
    }
}

/// The type of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckType {
    Http,
    Tcp,
    Tls,
    Grpc,
    Command,
}

const CHECK_TYPES: [(&str, CheckType); 5] = [
    ("http", CheckType::Http),
    ("tcp", CheckType::Tcp),
    ("tls", CheckType::Tls),
    ("grpc", CheckType::Grpc),
    ("command", CheckType::Command),
];

impl CheckType {
    /// The keyword in the file.
    pub(crate) fn word(self) -> &'static str {
        CHECK_TYPES.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

impl Probe {
    /// The type that has this action.
    pub(crate) fn kind(&self) -> CheckType {
        match self {
            Self::Http { .. } => CheckType::Http,
            Self::Tcp => CheckType::Tcp,
            Self::Tls => CheckType::Tls,
            Self::Grpc { .. } => CheckType::Grpc,
            Self::Command { .. } => CheckType::Command,
        }
    }
}

/// A moment to an hour.
const UP_TO_AN_HOUR: Wait = Wait { range: Duration::from_millis(10)..=Duration::from_secs(3600) };

pub(crate) static CHECK: Table<CheckWritten> = Table {
    options: &[
        required!(
            "type",
            Maybe(Word { words: &CHECK_TYPES }),
            CheckWritten.kind,
            "`\"http\"`: a GET request. `\"tcp\"`: a connection. `\"tls\"`: a connection with TLS \
             handshake. `\"grpc\"`: grpc.health.v1. `\"command\"`: a program that must exit \
             with 0.",
        ),
        key!(
            "path",
            Maybe(At(CHECK_PATH)),
            CheckWritten.path,
            "With `http`: path and query of the request. Default: /.",
        ),
        key!(
            "host",
            Maybe(At(Text { expected: HOST_HEADER, read: host_header, print: String::clone })),
            CheckWritten.host,
            "With `http`: the Host field. Default: the server's own.",
        ),
        key!(
            "status",
            Maybe(At(StatusesKind)),
            CheckWritten.status,
            "With `http`: the statuses of a healthy server. Default: 2xx.",
        ),
        key!(
            "headers",
            Maybe(At(Pairs {
                expected: "a table such as { X-Ready = \"yes\" }",
                name: FieldName::read,
                print_name: FieldName::print,
                kind: ValueRuleKind,
            })),
            CheckWritten.headers,
            "With `http`: required response fields, as in a route's `headers`.",
        ),
        key!(
            "body",
            Maybe(At(BODY)),
            CheckWritten.body,
            "With `http`: text that the body must contain, or `~` and a regular expression that matches \
             the whole body. At most 64 KiB are read.",
        ),
        key!(
            "service",
            Maybe(At(Name { expected: "the name of a service" })),
            CheckWritten.service,
            "With `grpc`: name of the service. Default: the server as a whole.",
        ),
        key!(
            "command",
            Maybe(At(List { kind: Name { expected: "text" }, may_be_empty: false })),
            CheckWritten.command,
            "With `command`: the program and its arguments. It gets the server in VANWARD_SERVER, \
             VANWARD_HOST, VANWARD_ADDRESS and VANWARD_PORT.",
        ),
        key!(
            "port",
            Maybe(Count { range: 1..=65_535, unit: Unit::Things }),
            CheckWritten.port,
            "Port to check. Default: the server's.",
        ),
        key!("interval", UP_TO_AN_HOUR, CheckWritten.interval, "Time between checks.",),
        key!(
            "interval_in_doubt",
            Maybe(UP_TO_AN_HOUR),
            CheckWritten.interval_in_doubt,
            "Time between checks while the server is down or about to change its state. Default: half of \
             `interval`.",
        ),
        key!(
            "timeout",
            UP_TO_AN_HOUR,
            CheckWritten.timeout,
            "Maximum duration of a check; then it has failed.",
        ),
        key!(
            "rise",
            Count { range: 1..=1000, unit: Unit::Things },
            CheckWritten.rise,
            "Consecutive successes that mark a server as up.",
        ),
        key!(
            "fall",
            Count { range: 1..=1000, unit: Unit::Things },
            CheckWritten.fall,
            "Consecutive failures that mark a server as down.",
        ),
        key!(
            "jitter",
            Count { range: 0..=90, unit: Unit::Percent },
            CheckWritten.jitter_percent,
            "Shortens each interval by a random amount of up to this, so that checks do not coincide.",
        ),
    ],
};

const CHECK_PATH: Text<String> = Text {
    expected: "a path such as /health, with a query or without",
    read: |text| {
        // RFC 9112 §3.2.1.
        if text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Ok(text.to_owned());
        }
        let slashed = format!("/{text}");
        let nearest = (!text.starts_with('/') && (CHECK_PATH.read)(&slashed).is_ok()).then_some(slashed);
        Err(ValueError {
            fault: ValueFault::Unknown {
                written: text.to_owned(),
                why: "cannot be the target of a request",
                nearest,
            },
            expected: CHECK_PATH.expected,
        })
    },
    print: String::clone,
};

const BODY: Text<BodyRule> = Text {
    expected: "text that the body contains, or ~ regex that matches the whole body",
    read: |text| match pattern(text, BODY.expected) {
        Some(pattern) => pattern.map(BodyRule::Pattern),
        None => Ok(BodyRule::Contains(text.to_owned())),
    },
    print: |rule| match rule {
        BodyRule::Contains(text) => text.clone(),
        BodyRule::Pattern(pattern) => format!("~ {pattern}"),
    },
};

pub(crate) static EJECT: Table<EjectionSettings> = Table {
    options: &[
        key!(
            "failures_in_a_row",
            Unless { word: "off", kind: NonZero(Count { range: 1..=1_000_000, unit: Unit::Things }) },
            EjectionSettings.failures_in_a_row,
            "Consecutive failures that eject a server at once: no connection, no response, a late response, \
             or 502, 503 or 504. It does not apply if all servers fail alike, as in an overload: another one \
             must have failed at most half as often in this `interval` and the one before.",
        ),
        key!(
            "interval",
            UP_TO_AN_HOUR,
            EjectionSettings.interval,
            "How often servers are compared with each other.",
        ),
        key!(
            "requests_min",
            Count { range: 1..=1_000_000_000, unit: Unit::Things },
            EjectionSettings.requests_min,
            "Minimum number of requests in an interval for a server to be compared.",
        ),
        key!(
            "failures",
            Unless { word: "off", kind: NonZero(Count { range: 1..=100, unit: Unit::Percent }) },
            EjectionSettings.failures_percent,
            "Share of failed requests that ejects a server, if it is also at least twice that of the \
             others.",
        ),
        key!(
            "latency_factor",
            Unless { word: "off", kind: NonZero(Count { range: 2..=1_000_000, unit: Unit::Things }) },
            EjectionSettings.latency_factor,
            "Ejects a server whose mean latency is this many times the median of the servers, in two \
             consecutive intervals.",
        ),
        key!(
            "latency_floor",
            Wait { range: Duration::ZERO..=Duration::from_secs(3600) },
            EjectionSettings.latency_floor,
            "Latencies up to this never eject a server.",
        ),
        key!(
            "base",
            UP_TO_AN_HOUR,
            EjectionSettings.base,
            "Duration of the first ejection. Each further one is longer by this.",
        ),
        key!(
            "longest",
            Wait { range: Duration::from_millis(10)..=Duration::from_secs(24 * 3600) },
            EjectionSettings.longest,
            "Maximum duration of an ejection.",
        ),
        key!(
            "up_min",
            Count { range: 0..=100, unit: Unit::Percent },
            EjectionSettings.up_percent_min,
            "This share of the servers of a priority is never ejected, and always at least one server. If all servers \
             of a priority fail and a later one has a server that does not, they are ejected nevertheless. 100%: no \
             server is ever ejected.",
        ),
    ],
};

pub(crate) static BREAKER: Table<BreakerSettings> = Table {
    options: &[
        key!(
            "failures",
            Count { range: 1..=1_000_000, unit: Unit::Things },
            BreakerSettings.failures,
            "Consecutive failures that open the circuit.",
        ),
        key!(
            "open",
            UP_TO_AN_HOUR,
            BreakerSettings.open,
            "How long the circuit stays open the first time. It doubles each time that a trial request \
             fails.",
        ),
        key!(
            "open_max",
            UP_TO_AN_HOUR,
            BreakerSettings.open_max,
            "Maximum time that the circuit stays open.",
        ),
        key!(
            "probes",
            Count { range: 1..=255, unit: Unit::Things },
            BreakerSettings.probes,
            "Maximum number of concurrent trial requests.",
        ),
        key!(
            "successes",
            Count { range: 1..=255, unit: Unit::Things },
            BreakerSettings.successes,
            "Successful trial requests that close the circuit.",
        ),
    ],
};
