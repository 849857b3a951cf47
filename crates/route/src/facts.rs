//! Facts of a request for expressions, before a server is chosen.

use std::fmt;
use std::net::IpAddr;

use expression::{
    EvaluationScratch, Expression, ExpressionTrace, Fact, FactFamily, Facts, Key, Value, ValueMemory,
};

use crate::form::FormReading;
use crate::host::{HOST_BYTES_MAX, without_dot};
use crate::path::with_reading;
use crate::request::{FieldLookup, RequestParts, cookies, parameters};
use crate::variable_values::TlsFacts;

/// Evaluates conditions on a request. The caller owns the facts, so that they are gathered only if a rule asks.
pub trait RequestConditions {
    /// Whether a condition holds. `path` replaces the request's path: a search tries several readings of it.
    fn hold(&self, condition: &Expression, path: &[u8]) -> bool;

    /// Explains an evaluation, for people.
    fn explain(&self, condition: &Expression, path: &[u8]) -> ExpressionTrace;

    /// Passes the text form of a value to `then`, unless the value is absent.
    fn value(&self, value: &Expression, path: &[u8], then: &mut dyn FnMut(&[u8]));
}

impl fmt::Debug for dyn RequestConditions + '_ {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RequestConditions")
    }
}

/// Looks up keys in maps.
pub trait MapLookup {
    /// The value of a key in the map with this number.
    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>>;
}

/// No maps: no key has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoMaps;

impl MapLookup for NoMaps {
    fn lookup(&self, _: u16, _: Value<'_>) -> Option<Value<'_>> {
        None
    }
}

impl fmt::Debug for dyn MapLookup + '_ {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MapLookup")
    }
}

/// A request of which nothing is known: no condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoConditions;

impl RequestConditions for NoConditions {
    fn hold(&self, _: &Expression, _: &[u8]) -> bool {
        false
    }

    fn explain(&self, condition: &Expression, _: &[u8]) -> ExpressionTrace {
        condition.explain(&UnknownRequest)
    }

    fn value(&self, _: &Expression, _: &[u8], _: &mut dyn FnMut(&[u8])) {}
}

/// The facts of a request for expressions.
#[derive(Debug)]
pub struct RequestFacts<'a, F: ?Sized> {
    pub method: &'a [u8],
    /// The host without port, as sent.
    pub host: &'a [u8],
    /// The query as sent, without the `?`.
    pub query: Option<&'a [u8]>,
    pub fields: &'a F,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// `1.0`, `1.1`, `2` or `3`.
    pub version: &'a str,
    /// The length of the body in bytes, if it is known.
    pub size: Option<u64>,
    pub client: IpAddr,
    pub client_port: u16,
    /// The name of the listener.
    pub listener: &'a str,
    pub tls: TlsFacts<'a>,
    /// Nanoseconds since 1970 (UTC). Needed only for expressions that ask for [`Fact::Time`].
    pub time_ns: i64,
    /// Needed only for expressions with maps.
    pub maps: &'a dyn MapLookup,
    /// Values that the request has computed so far; without it, each is computed wherever it is used.
    pub memory: Option<&'a ValueMemory>,
}

impl<F: FieldLookup + ?Sized> RequestFacts<'_, F> {
    /// Whether a condition holds for the request with this path. Allocates only for a path that
    /// [`RouteTable::choose`](crate::RouteTable::choose) would copy, too, and for texts that outgrow `scratch`.
    pub fn hold_with(&self, condition: &Expression, path: &[u8], scratch: &mut EvaluationScratch) -> bool {
        self.with_readings(path, |facts| condition.holds(facts, scratch))
    }

    /// Passes the text form of a value to `then`, unless the value is absent. Allocates as [`Self::hold_with`] does.
    pub fn value_with(
        &self,
        value: &Expression,
        path: &[u8],
        scratch: &mut EvaluationScratch,
        then: &mut dyn FnMut(&[u8]),
    ) {
        self.with_readings(path, |facts| {
            if let Some(value) = value.evaluate(facts, scratch) {
                value.with_plain(then);
            }
        });
    }

    /// The parts of this request that routes depend on. `listener` is an index.
    pub fn parts<'s>(&'s self, listener: usize, path: &'s [u8]) -> RequestParts<'s, F> {
        let Self { method, host, query, fields, client, .. } = *self;
        RequestParts { listener, host, path, query, method, client, fields, conditions: self }
    }

    /// Calls `then` with path and host as routes compare them.
    pub(crate) fn with_readings<R>(&self, path: &[u8], then: impl FnOnce(&ComparedFacts<'_, F>) -> R) -> R {
        with_reading(path, |path| {
            let host = without_dot(self.host);
            let mut copy = [0; HOST_BYTES_MAX];
            let host = match copy.get_mut(..host.len()) {
                Some(copy) if host.iter().any(u8::is_ascii_uppercase) => {
                    copy.copy_from_slice(host);
                    copy.make_ascii_lowercase();
                    copy
                }
                // No rule matches a longer host, whatever its case.
                _ => host,
            };
            then(&ComparedFacts { facts: self, path, host })
        })
    }
}

impl<F: FieldLookup + ?Sized> RequestConditions for RequestFacts<'_, F> {
    fn hold(&self, condition: &Expression, path: &[u8]) -> bool {
        self.hold_with(condition, path, &mut EvaluationScratch::new())
    }

    fn explain(&self, condition: &Expression, path: &[u8]) -> ExpressionTrace {
        self.with_readings(path, |facts| condition.explain(facts))
    }

    fn value(&self, value: &Expression, path: &[u8], then: &mut dyn FnMut(&[u8])) {
        self.value_with(value, path, &mut EvaluationScratch::new(), then);
    }
}

/// Facts with path and host as routes compare them.
pub(crate) struct ComparedFacts<'a, F: ?Sized> {
    facts: &'a RequestFacts<'a, F>,
    path: &'a [u8],
    host: &'a [u8],
}

impl<F: FieldLookup + ?Sized> Facts for ComparedFacts<'_, F> {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        let Self { facts, path, host } = self;
        let tls = &facts.tls;
        let text = match fact {
            Fact::ClientTlsVersion => tls.version,
            Fact::ClientTlsCipher => tls.cipher,
            Fact::ClientTlsSni => tls.server_name,
            Fact::ClientTlsSubject => tls.subject,
            Fact::ClientTlsIssuer => tls.issuer,
            Fact::ClientTlsFingerprint => tls.fingerprint,
            Fact::ClientAddress => return Some(Value::Address(facts.client)),
            Fact::ClientPort => return Some(Value::Integer(facts.client_port.into())),
            Fact::ListenerName => return Some(Value::Text(facts.listener.as_bytes())),
            Fact::Time => return Some(Value::Time(facts.time_ns)),
            Fact::RequestMethod => return Some(Value::Text(facts.method)),
            Fact::RequestPath => return Some(Value::Text(path)),
            Fact::RequestQuery => return facts.query.map(Value::Text),
            Fact::RequestHost => return Some(Value::Text(host)),
            Fact::RequestScheme => return Some(Value::Text(facts.scheme.as_bytes())),
            Fact::RequestVersion => return Some(Value::Text(facts.version.as_bytes())),
            Fact::RequestSize => {
                return facts.size.map(|size| Value::Integer(i64::try_from(size).unwrap_or(i64::MAX)));
            }
            // Known at later stages only: see `LaterFacts`.
            Fact::ClientUser
            | Fact::UpstreamName
            | Fact::ServerName
            | Fact::ResponseStatus
            | Fact::ResponseSize
            | Fact::ResponseTime
            | Fact::CacheStatus => return None,
        };
        (!text.is_empty()).then_some(Value::Text(text.as_bytes()))
    }

    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
        let (fields, name) = (self.facts.fields, key.as_bytes());
        match family {
            FactFamily::RequestHeaders => fields.value(name),
            FactFamily::RequestCookies => cookies(fields, name).next(),
            FactFamily::RequestQuery => self.parameters(name).next(),
            FactFamily::JwtClaims | FactFamily::ResponseHeaders => None,
        }
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        self.facts.maps.lookup(map, key)
    }

    fn any_field(&self, family: FactFamily, key: &Key, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let (fields, name) = (self.facts.fields, key.as_bytes());
        match family {
            FactFamily::RequestHeaders => fields.values(name).any(test),
            FactFamily::RequestCookies => cookies(fields, name).any(test),
            FactFamily::RequestQuery => self.parameters(name).any(test),
            FactFamily::JwtClaims | FactFamily::ResponseHeaders => false,
        }
    }

    fn memory(&self) -> Option<&ValueMemory> {
        self.facts.memory
    }
}

impl<F: ?Sized> ComparedFacts<'_, F> {
    /// The values of the parameters with this name, as sent.
    fn parameters<'s>(&'s self, name: &[u8]) -> impl Iterator<Item = &'s [u8]> {
        let all = parameters(self.facts.query.unwrap_or_default());
        let is_named = move |written: &[u8]| FormReading::from_written(written).eq(name.iter().copied());
        all.filter(move |(written, _)| is_named(written)).map(|(_, value)| value)
    }
}

/// Facts of a request of which nothing is known.
struct UnknownRequest;

impl Facts for UnknownRequest {
    fn value(&self, _: Fact) -> Option<Value<'_>> {
        None
    }

    fn field(&self, _: FactFamily, _: &Key) -> Option<&[u8]> {
        None
    }
}
