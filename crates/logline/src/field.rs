//! What can be logged of a request, by name. Names are those of the JSON format, and those of the variables of requests
//! (`route`) where these mean the same.

use std::fmt::Write;

/// A field of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    Time(Clock),
    Client,
    Peer,
    User,
    RequestId,
    TraceId,
    Scheme,
    Method,
    Target,
    Path,
    Query,
    Version,
    Protocol,
    RequestLine,
    Host,
    Status,
    Cause,
    Detail,
    BodyBytesSent,
    BytesSent,
    BytesReceived,
    Duration(Unit),
    Held(Unit),
    FirstByte(Unit),
    Route,
    Upstream,
    Server,
    Attempts,
    Retries,
    Retried,
    UpstreamConnect(Unit),
    UpstreamFirstByte(Unit),
    UpstreamTotal(Unit),
    UpstreamReused,
    Queued(Unit),
    Cache,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    TlsSubject,
    TlsIssuer,
    TlsSerial,
    TlsNames,
    TlsFingerprint,
    Listener,
    Worker,
    ConnectionRequest,
    Referer,
    UserAgent,
    SessionMoved,
    SessionFrom,
    Shed,
    Fault,
    FaultSeed,
    FaultNumber,
    Weight,
    /// A header field of the request.
    Header(Box<[u8]>),
    /// A header field of the response to the client.
    ResponseHeader(Box<[u8]>),
    /// A cookie of the request.
    Cookie(Box<[u8]>),
    /// A parameter of the query, as it was sent.
    Argument(Box<[u8]>),
}

/// A form of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `2000-10-10T13:55:36.007Z` (RFC 3339).
    Rfc3339,
    /// `10/Oct/2000:13:55:36 +0000`.
    Common,
    /// `2000-10-10`.
    Date,
    /// `13:55:36`.
    OfDay,
    /// `971186136.007`.
    Seconds,
    /// `971186136007`.
    Milliseconds,
}

/// The unit of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// With three decimals.
    Milliseconds,
    /// With six decimals.
    Seconds,
}

/// A field without a parameter.
struct Named {
    field: Field,
    /// Its name in JSON, and other names.
    names: &'static [&'static str],
    /// Its name in the W3C Extended Log Format; empty if that is `x-` and the name.
    w3c: &'static str,
}

const fn named(field: Field, names: &'static [&'static str]) -> Named {
    Named { field, names, w3c: "" }
}

const fn as_w3c(field: Field, names: &'static [&'static str], w3c: &'static str) -> Named {
    Named { field, names, w3c }
}

static NAMED: &[Named] = &[
    named(Field::Time(Clock::Rfc3339), &["time"]),
    named(Field::Time(Clock::Common), &["time.common"]),
    as_w3c(Field::Time(Clock::Date), &["time.date"], "date"),
    as_w3c(Field::Time(Clock::OfDay), &["time.clock"], "time"),
    named(Field::Time(Clock::Seconds), &["time.unix"]),
    named(Field::Time(Clock::Milliseconds), &["time.unix_ms"]),
    as_w3c(Field::Client, &["client", "client_address"], "c-ip"),
    named(Field::Peer, &["peer"]),
    as_w3c(Field::User, &["user"], "cs-username"),
    named(Field::RequestId, &["request_id"]),
    named(Field::TraceId, &["trace_id"]),
    named(Field::Scheme, &["scheme"]),
    as_w3c(Field::Method, &["method"], "cs-method"),
    as_w3c(Field::Target, &["target", "path_and_query"], "cs-uri"),
    as_w3c(Field::Path, &["path"], "cs-uri-stem"),
    as_w3c(Field::Query, &["query"], "cs-uri-query"),
    named(Field::Version, &["version"]),
    as_w3c(Field::Protocol, &["protocol"], "cs-version"),
    named(Field::RequestLine, &["request"]),
    as_w3c(Field::Host, &["host"], "cs-host"),
    as_w3c(Field::Status, &["status"], "sc-status"),
    named(Field::Cause, &["cause"]),
    named(Field::Detail, &["detail"]),
    named(Field::BodyBytesSent, &["body_bytes_sent"]),
    as_w3c(Field::BytesSent, &["bytes_sent"], "sc-bytes"),
    as_w3c(Field::BytesReceived, &["bytes_received"], "cs-bytes"),
    named(Field::Duration(Unit::Milliseconds), &["duration_ms"]),
    as_w3c(Field::Duration(Unit::Seconds), &["duration_s"], "time-taken"),
    named(Field::Held(Unit::Milliseconds), &["held_ms"]),
    named(Field::Held(Unit::Seconds), &["held_s"]),
    named(Field::FirstByte(Unit::Milliseconds), &["first_byte_ms"]),
    named(Field::FirstByte(Unit::Seconds), &["first_byte_s"]),
    named(Field::Route, &["route"]),
    named(Field::Upstream, &["upstream"]),
    named(Field::Server, &["server"]),
    named(Field::Attempts, &["attempts"]),
    named(Field::Retries, &["retries"]),
    named(Field::Retried, &["retried"]),
    named(Field::UpstreamConnect(Unit::Milliseconds), &["upstream_connect_ms"]),
    named(Field::UpstreamConnect(Unit::Seconds), &["upstream_connect_s"]),
    named(Field::UpstreamFirstByte(Unit::Milliseconds), &["upstream_first_byte_ms"]),
    named(Field::UpstreamFirstByte(Unit::Seconds), &["upstream_first_byte_s"]),
    named(Field::UpstreamTotal(Unit::Milliseconds), &["upstream_total_ms"]),
    named(Field::UpstreamTotal(Unit::Seconds), &["upstream_total_s"]),
    named(Field::UpstreamReused, &["upstream_reused"]),
    named(Field::Queued(Unit::Milliseconds), &["queued_ms"]),
    named(Field::Queued(Unit::Seconds), &["queued_s"]),
    named(Field::Cache, &["cache"]),
    named(Field::TlsVersion, &["tls_version", "tls.version"]),
    named(Field::TlsCipher, &["tls_cipher", "tls.cipher"]),
    named(Field::TlsServerName, &["tls_sni", "tls.sni"]),
    named(Field::TlsSubject, &["tls_subject", "tls.subject"]),
    named(Field::TlsIssuer, &["tls_issuer", "tls.issuer"]),
    named(Field::TlsSerial, &["tls_serial", "tls.serial"]),
    named(Field::TlsNames, &["tls_san", "tls.san"]),
    named(Field::TlsFingerprint, &["tls_fingerprint", "tls.fingerprint"]),
    named(Field::Listener, &["listener"]),
    named(Field::Worker, &["worker"]),
    named(Field::ConnectionRequest, &["connection_request"]),
    as_w3c(Field::Referer, &["referer"], "cs(Referer)"),
    as_w3c(Field::UserAgent, &["user_agent"], "cs(User-Agent)"),
    named(Field::SessionMoved, &["session_moved"]),
    named(Field::SessionFrom, &["session_from"]),
    named(Field::Shed, &["shed"]),
    named(Field::Fault, &["fault"]),
    named(Field::FaultSeed, &["fault_seed"]),
    named(Field::FaultNumber, &["fault_number"]),
    named(Field::Weight, &["weight"]),
];

/// The names of all fields. Those that end in `.NAME` are families.
pub fn field_names() -> impl Iterator<Item = &'static str> {
    let families = ["header.NAME", "response_header.NAME", "cookie.NAME", "arg.NAME"];
    NAMED.iter().flat_map(|named| named.names).copied().chain(families)
}

/// What is wrong with the name of a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// There is none of this name.
    #[error("there is no field {0:?} in the log")]
    Unknown(String),
    /// `header.` without a name, or with one that no message can have.
    #[error("{0:?} needs the name of what is meant, such as {0}X")]
    Member(String),
}

impl Field {
    /// The field of a name.
    pub(crate) fn named(name: &str) -> Result<Self, FieldFault> {
        if let Some(known) = NAMED.iter().find(|known| known.names.contains(&name)) {
            return Ok(known.field.clone());
        }
        let Some((family, member)) = name.split_once('.') else {
            return Err(FieldFault::Unknown(name.to_owned()));
        };
        let of: fn(Box<[u8]>) -> Self = match family {
            "header" => Self::of_header,
            "response_header" => Self::ResponseHeader,
            "cookie" => Self::Cookie,
            "arg" => Self::Argument,
            _ => return Err(FieldFault::Unknown(name.to_owned())),
        };
        let is_header = family.ends_with("header");
        // RFC 9110 §5.6.2: names of fields are tokens.
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_shown = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let is_right = member.bytes().all(|byte| if is_header { is_token(byte) } else { is_shown(byte) });
        if member.is_empty() || !is_right {
            return Err(FieldFault::Member(format!("{family}.")));
        }
        Ok(of(member.as_bytes().into()))
    }

    /// What the entry has of the request's fields already is taken from there.
    fn of_header(name: Box<[u8]>) -> Self {
        match name.to_ascii_lowercase().as_slice() {
            b"referer" => Self::Referer,
            b"user-agent" => Self::UserAgent,
            _ => Self::Header(name),
        }
    }

    /// The name in the W3C Extended Log Format.
    pub(crate) fn w3c_name(&self) -> String {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match self {
            Self::Header(name) => return format!("cs({})", text(name)),
            Self::ResponseHeader(name) => return format!("sc({})", text(name)),
            Self::Cookie(name) => return format!("x-cookie({})", text(name)),
            Self::Argument(name) => return format!("x-arg({})", text(name)),
            _ => {}
        }
        let Some(named) = NAMED.iter().find(|named| named.field == *self) else { return String::new() };
        if !named.w3c.is_empty() {
            return named.w3c.to_owned();
        }
        let mut name = String::from("x-");
        // Writing to a String does not fail.
        let _ = write!(name, "{}", named.names[0].replace(['_', '.'], "-"));
        name
    }

    pub(crate) fn needs(&self) -> Needs {
        let more = match self {
            Self::Referer | Self::UserAgent | Self::Host => return Needs::NAMED_HEADERS,
            Self::Detail => return Needs::DETAIL,
            Self::Time(_)
            | Self::Client
            | Self::User
            | Self::Scheme
            | Self::Method
            | Self::Target
            | Self::Path
            | Self::Query
            | Self::Version
            | Self::Protocol
            | Self::RequestLine
            | Self::Status
            | Self::Cause
            | Self::BodyBytesSent
            | Self::BytesSent
            | Self::BytesReceived
            | Self::Duration(_)
            | Self::Route
            | Self::Upstream
            | Self::Server
            | Self::Attempts
            | Self::Retries
            | Self::Cache
            | Self::Weight
            | Self::Argument(_) => return Needs::NONE,
            Self::RequestId => Needs::REQUEST_ID,
            Self::TraceId => Needs::TRACE_ID,
            Self::UpstreamConnect(_) | Self::UpstreamFirstByte(_) | Self::UpstreamTotal(_) => {
                Needs::UPSTREAM_TIMES
            }
            Self::Held(_) => Needs::HELD,
            Self::FirstByte(_) => Needs::FIRST_BYTE,
            Self::ResponseHeader(_) => Needs::RESPONSE_HEAD,
            Self::Listener => Needs::LISTENER,
            Self::TlsVersion
            | Self::TlsCipher
            | Self::TlsServerName
            | Self::TlsSubject
            | Self::TlsIssuer
            | Self::TlsSerial
            | Self::TlsNames
            | Self::TlsFingerprint => Needs::TLS,
            Self::Peer
            | Self::Retried
            | Self::UpstreamReused
            | Self::Queued(_)
            | Self::Worker
            | Self::ConnectionRequest
            | Self::SessionMoved
            | Self::SessionFrom
            | Self::Shed
            | Self::Fault
            | Self::FaultSeed
            | Self::FaultNumber
            | Self::Header(_)
            | Self::Cookie(_) => Needs::NONE,
        };
        more.and(Needs::MORE)
    }
}

/// What a format needs of an entry that costs something to find out. The rest of an entry is always filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs(u16);

impl Needs {
    /// Nothing of these.
    pub const NONE: Self = Self(0);
    /// `request_id`.
    pub const REQUEST_ID: Self = Self(1);
    /// `referer`, `user_agent` and `host`.
    pub const NAMED_HEADERS: Self = Self(1 << 1);
    /// `upstream_connect`, `upstream_first_byte` and `upstream_total`.
    pub const UPSTREAM_TIMES: Self = Self(1 << 2);
    /// `first_byte`.
    pub const FIRST_BYTE: Self = Self(1 << 3);
    /// `detail`.
    pub const DETAIL: Self = Self(1 << 4);
    /// `listener`.
    pub const LISTENER: Self = Self(1 << 5);
    /// `tls`.
    pub const TLS: Self = Self(1 << 6);
    /// The response's head, for `headers`.
    pub const RESPONSE_HEAD: Self = Self(1 << 7);
    /// An entry at all: there is a log.
    pub const ENTRY: Self = Self(1 << 8);
    /// `trace_id`.
    pub const TRACE_ID: Self = Self(1 << 9);
    /// `held`.
    pub const HELD: Self = Self(1 << 10);
    /// Any of `more`.
    pub const MORE: Self = Self(1 << 11);

    /// Whether all of `other` is needed.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is needed.
    #[must_use]
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_one_field() {
        let mut names: Vec<_> = field_names().collect();
        for name in &names {
            assert!(Field::named(name).is_ok(), "{name}");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let mut w3c: Vec<_> = NAMED.iter().map(|named| named.field.w3c_name()).collect();
        w3c.sort_unstable();
        w3c.dedup();
        assert_eq!(w3c.len(), NAMED.len());
    }

    #[test]
    fn families() {
        let bytes = |text: &str| text.as_bytes().into();
        for (name, field) in [
            ("header.X-Api-Version", Ok(Field::Header(bytes("X-Api-Version")))),
            ("header.user-agent", Ok(Field::UserAgent)),
            ("response_header.Server", Ok(Field::ResponseHeader(bytes("Server")))),
            ("cookie.a", Ok(Field::Cookie(bytes("a")))),
            ("arg.page[]", Ok(Field::Argument(bytes("page[]")))),
            ("tls.version", Ok(Field::TlsVersion)),
            ("header.", Err(FieldFault::Member("header.".to_owned()))),
            ("header.a b", Err(FieldFault::Member("header.".to_owned()))),
            ("arg.\"", Err(FieldFault::Member("arg.".to_owned()))),
            ("capture.x", Err(FieldFault::Unknown("capture.x".to_owned()))),
            ("Time", Err(FieldFault::Unknown("Time".to_owned()))),
            ("", Err(FieldFault::Unknown(String::new()))),
        ] {
            assert_eq!(Field::named(name), field, "{name}");
        }
        assert_eq!(Field::named("header.X-A").unwrap().w3c_name(), "cs(X-A)");
        assert_eq!(Field::Cause.w3c_name(), "x-cause");
    }
}
