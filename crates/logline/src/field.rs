//! Log fields by name. The names are those of the JSON format, and those of request variables (`route`) with the
//! same meaning.

use std::fmt::Write;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogField {
    Time(TimeForm),
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
    Duration(FieldUnit),
    Held(FieldUnit),
    FirstByte(FieldUnit),
    Route,
    Upstream,
    Server,
    Attempts,
    Retries,
    Retried,
    UpstreamConnect(FieldUnit),
    UpstreamFirstByte(FieldUnit),
    UpstreamTotal(FieldUnit),
    UpstreamReused,
    Queued(FieldUnit),
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
    FallbackFrom,
    SessionMoved,
    SessionFrom,
    Shed,
    Fault,
    FaultSeed,
    FaultNumber,
    Weight,
    Header(Box<[u8]>),
    ResponseHeader(Box<[u8]>),
    Cookie(Box<[u8]>),
    /// A query parameter, as sent.
    Argument(Box<[u8]>),
    /// A value that the configuration names.
    /// With what an entry needs for it.
    Value(Box<str>, Needs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeForm {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldUnit {
    /// With three decimals.
    Milliseconds,
    /// With six decimals.
    Seconds,
}

struct PlainField {
    field: LogField,
    /// The name in JSON, then aliases.
    names: &'static [&'static str],
    /// The name in the W3C Extended Log Format; empty stands for `x-` and the name.
    w3c: &'static str,
}

const fn named(field: LogField, names: &'static [&'static str]) -> PlainField {
    PlainField { field, names, w3c: "" }
}

const fn as_w3c(field: LogField, names: &'static [&'static str], w3c: &'static str) -> PlainField {
    PlainField { field, names, w3c }
}

static NAMED: &[PlainField] = &[
    named(LogField::Time(TimeForm::Rfc3339), &["time"]),
    named(LogField::Time(TimeForm::Common), &["time.common"]),
    as_w3c(LogField::Time(TimeForm::Date), &["time.date"], "date"),
    as_w3c(LogField::Time(TimeForm::OfDay), &["time.clock"], "time"),
    named(LogField::Time(TimeForm::Seconds), &["time.unix"]),
    named(LogField::Time(TimeForm::Milliseconds), &["time.unix_ms"]),
    as_w3c(LogField::Client, &["client", "client_address"], "c-ip"),
    named(LogField::Peer, &["peer"]),
    as_w3c(LogField::User, &["user"], "cs-username"),
    named(LogField::RequestId, &["request_id"]),
    named(LogField::TraceId, &["trace_id"]),
    named(LogField::Scheme, &["scheme"]),
    as_w3c(LogField::Method, &["method"], "cs-method"),
    as_w3c(LogField::Target, &["target", "path_and_query"], "cs-uri"),
    as_w3c(LogField::Path, &["path"], "cs-uri-stem"),
    as_w3c(LogField::Query, &["query"], "cs-uri-query"),
    named(LogField::Version, &["version"]),
    as_w3c(LogField::Protocol, &["protocol"], "cs-version"),
    named(LogField::RequestLine, &["request"]),
    as_w3c(LogField::Host, &["host"], "cs-host"),
    as_w3c(LogField::Status, &["status"], "sc-status"),
    named(LogField::Cause, &["cause"]),
    named(LogField::Detail, &["detail"]),
    named(LogField::BodyBytesSent, &["body_bytes_sent"]),
    as_w3c(LogField::BytesSent, &["bytes_sent"], "sc-bytes"),
    as_w3c(LogField::BytesReceived, &["bytes_received"], "cs-bytes"),
    named(LogField::Duration(FieldUnit::Milliseconds), &["duration_ms"]),
    as_w3c(LogField::Duration(FieldUnit::Seconds), &["duration_s"], "time-taken"),
    named(LogField::Held(FieldUnit::Milliseconds), &["held_ms"]),
    named(LogField::Held(FieldUnit::Seconds), &["held_s"]),
    named(LogField::FirstByte(FieldUnit::Milliseconds), &["first_byte_ms"]),
    named(LogField::FirstByte(FieldUnit::Seconds), &["first_byte_s"]),
    named(LogField::Route, &["route"]),
    named(LogField::Upstream, &["upstream"]),
    named(LogField::Server, &["server"]),
    named(LogField::Attempts, &["attempts"]),
    named(LogField::Retries, &["retries"]),
    named(LogField::Retried, &["retried"]),
    named(LogField::UpstreamConnect(FieldUnit::Milliseconds), &["upstream_connect_ms"]),
    named(LogField::UpstreamConnect(FieldUnit::Seconds), &["upstream_connect_s"]),
    named(LogField::UpstreamFirstByte(FieldUnit::Milliseconds), &["upstream_first_byte_ms"]),
    named(LogField::UpstreamFirstByte(FieldUnit::Seconds), &["upstream_first_byte_s"]),
    named(LogField::UpstreamTotal(FieldUnit::Milliseconds), &["upstream_total_ms"]),
    named(LogField::UpstreamTotal(FieldUnit::Seconds), &["upstream_total_s"]),
    named(LogField::UpstreamReused, &["upstream_reused"]),
    named(LogField::Queued(FieldUnit::Milliseconds), &["queued_ms"]),
    named(LogField::Queued(FieldUnit::Seconds), &["queued_s"]),
    named(LogField::Cache, &["cache"]),
    named(LogField::TlsVersion, &["tls_version", "tls.version"]),
    named(LogField::TlsCipher, &["tls_cipher", "tls.cipher"]),
    named(LogField::TlsServerName, &["tls_sni", "tls.sni"]),
    named(LogField::TlsSubject, &["tls_subject", "tls.subject"]),
    named(LogField::TlsIssuer, &["tls_issuer", "tls.issuer"]),
    named(LogField::TlsSerial, &["tls_serial", "tls.serial"]),
    named(LogField::TlsNames, &["tls_san", "tls.san"]),
    named(LogField::TlsFingerprint, &["tls_fingerprint", "tls.fingerprint"]),
    named(LogField::Listener, &["listener"]),
    named(LogField::Worker, &["worker"]),
    named(LogField::ConnectionRequest, &["connection_request"]),
    as_w3c(LogField::Referer, &["referer"], "cs(Referer)"),
    as_w3c(LogField::UserAgent, &["user_agent"], "cs(User-Agent)"),
    named(LogField::FallbackFrom, &["fallback_from"]),
    named(LogField::SessionMoved, &["session_moved"]),
    named(LogField::SessionFrom, &["session_from"]),
    named(LogField::Shed, &["shed"]),
    named(LogField::Fault, &["fault"]),
    named(LogField::FaultSeed, &["fault_seed"]),
    named(LogField::FaultNumber, &["fault_number"]),
    named(LogField::Weight, &["weight"]),
];

/// Lists the names of all fields. Names that end in `.NAME` are families.
pub fn field_names() -> impl Iterator<Item = &'static str> {
    let families = ["header.NAME", "response_header.NAME", "cookie.NAME", "arg.NAME"];
    NAMED.iter().flat_map(|named| named.names).copied().chain(families)
}

/// The needs of an entry for the value of a name, besides [`Needs::MORE`]; `None` if no value has it.
pub(crate) type ValueNeeds<'v> = dyn Fn(&str) -> Option<Needs> + 'v;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    #[error("there is no field {0:?} in the log")]
    Unknown(String),
    /// `header.` without a name, or with one that no message can have.
    #[error("{0:?} needs the name of what is meant, such as {0}X")]
    Member(String),
}

impl LogField {
    /// A field by its name, or a value where that is none.
    pub(crate) fn named_or_value(name: &str, values: &ValueNeeds<'_>) -> Result<Self, FieldFault> {
        match (Self::named(name), values(name)) {
            (Err(FieldFault::Unknown(_)), Some(needs)) => Ok(Self::Value(name.into(), needs)),
            (field, _) => field,
        }
    }

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

    /// Headers that the entry already has are read from there.
    fn of_header(name: Box<[u8]>) -> Self {
        match name.to_ascii_lowercase().as_slice() {
            b"referer" => Self::Referer,
            b"user-agent" => Self::UserAgent,
            _ => Self::Header(name),
        }
    }

    pub(crate) fn w3c_name(&self) -> String {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match self {
            Self::Header(name) => return format!("cs({})", text(name)),
            Self::ResponseHeader(name) => return format!("sc({})", text(name)),
            Self::Cookie(name) => return format!("x-cookie({})", text(name)),
            Self::Argument(name) => return format!("x-arg({})", text(name)),
            Self::Value(name, _) => return format!("x-{}", name.replace(['_', '.'], "-")),
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
            | Self::FallbackFrom
            | Self::SessionMoved
            | Self::SessionFrom
            | Self::Shed
            | Self::Fault
            | Self::FaultSeed
            | Self::FaultNumber
            | Self::Header(_)
            | Self::Cookie(_) => Needs::NONE,
            Self::Value(_, needs) => *needs,
        };
        more.and(Needs::MORE)
    }
}

/// The costly parts of an entry that a format needs. The other parts are always filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs(u16);

impl Needs {
    pub const NONE: Self = Self(0);
    pub const REQUEST_ID: Self = Self(1);
    pub const NAMED_HEADERS: Self = Self(1 << 1);
    pub const UPSTREAM_TIMES: Self = Self(1 << 2);
    pub const FIRST_BYTE: Self = Self(1 << 3);
    pub const DETAIL: Self = Self(1 << 4);
    pub const LISTENER: Self = Self(1 << 5);
    pub const TLS: Self = Self(1 << 6);
    /// The head of the response, for `headers`.
    pub const RESPONSE_HEAD: Self = Self(1 << 7);
    /// Any entry: there is a log.
    pub const ENTRY: Self = Self(1 << 8);
    pub const TRACE_ID: Self = Self(1 << 9);
    pub const HELD: Self = Self(1 << 10);
    /// Any field of `more`.
    pub const MORE: Self = Self(1 << 11);

    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

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
            assert!(LogField::named(name).is_ok(), "{name}");
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
            ("header.X-Api-Version", Ok(LogField::Header(bytes("X-Api-Version")))),
            ("header.user-agent", Ok(LogField::UserAgent)),
            ("response_header.Server", Ok(LogField::ResponseHeader(bytes("Server")))),
            ("cookie.a", Ok(LogField::Cookie(bytes("a")))),
            ("arg.page[]", Ok(LogField::Argument(bytes("page[]")))),
            ("tls.version", Ok(LogField::TlsVersion)),
            ("header.", Err(FieldFault::Member("header.".to_owned()))),
            ("header.a b", Err(FieldFault::Member("header.".to_owned()))),
            ("arg.\"", Err(FieldFault::Member("arg.".to_owned()))),
            ("capture.x", Err(FieldFault::Unknown("capture.x".to_owned()))),
            ("Time", Err(FieldFault::Unknown("Time".to_owned()))),
            ("", Err(FieldFault::Unknown(String::new()))),
        ] {
            assert_eq!(LogField::named(name), field, "{name}");
        }
        assert_eq!(LogField::named("header.X-A").unwrap().w3c_name(), "cs(X-A)");
        assert_eq!(LogField::Cause.w3c_name(), "x-cause");
    }
}
