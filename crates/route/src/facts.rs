//! Facts of a request for expressions, before a server is chosen.

use std::fmt;
use std::net::IpAddr;

use expression::{
    EvaluationScratch, Expression, ExpressionTrace, Fact, FactFamily, Facts, Key, Value, ValueMemory,
};

use crate::form::FormReading;
use crate::host::{HOST_BYTES_MAX, without_dot};
use crate::later_facts::{ExchangeFacts, LaterFacts};
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

/// Facts of a request. An evaluation asks only for those that its expression names, so an implementation may compute
/// each when it is asked for.
pub trait RequestSource {
    type Fields: FieldLookup + ?Sized;

    fn method(&self) -> &[u8];
    /// The host without port, as sent.
    fn host(&self) -> &[u8];
    /// The query as sent, without the `?`.
    fn query(&self) -> Option<&[u8]>;
    fn fields(&self) -> &Self::Fields;
    /// `http` or `https`.
    fn scheme(&self) -> &str;
    /// `1.0`, `1.1`, `2` or `3`.
    fn version(&self) -> &str;
    /// The length of the body in bytes, if it is known.
    fn size(&self) -> Option<u64>;
    fn client(&self) -> IpAddr;
    fn client_port(&self) -> u16;
    /// The name of the listener.
    fn listener(&self) -> &str;
    fn tls(&self) -> TlsFacts<'_>;
    /// Nanoseconds since 1970 (UTC).
    fn time_ns(&self) -> i64;
    /// The value of a key in the map with this number.
    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>>;
    /// Values that the request has computed so far; without it, each is computed wherever it is used.
    fn memory(&self) -> Option<&ValueMemory>;

    /// Whether a condition holds for the request with this path. Allocates only for a path that
    /// [`RouteTable::choose`](crate::RouteTable::choose) would copy, too, and for texts that outgrow `scratch`.
    fn hold_with(&self, condition: &Expression, path: &[u8], scratch: &mut EvaluationScratch) -> bool {
        with_readings(self, condition, path, |facts| condition.holds(facts, scratch))
    }

    /// Whether a condition holds for the exchange of the request with this path. Allocates as [`Self::hold_with`] does.
    fn hold_later(
        &self,
        condition: &Expression,
        path: &[u8],
        later: &LaterFacts<'_>,
        scratch: &mut EvaluationScratch,
    ) -> bool {
        with_readings(self, condition, path, |request| {
            condition.holds(&ExchangeFacts { request, later }, scratch)
        })
    }

    /// Passes the text form of a value of the exchange to `then`, unless it is absent. Allocates as [`Self::hold_with`]
    /// does.
    fn value_later(
        &self,
        value: &Expression,
        path: &[u8],
        later: &LaterFacts<'_>,
        scratch: &mut EvaluationScratch,
        then: &mut dyn FnMut(&[u8]),
    ) {
        with_readings(self, value, path, |request| {
            if let Some(value) = value.evaluate(&ExchangeFacts { request, later }, scratch) {
                value.with_plain(then);
            }
        });
    }

    /// Passes the text form of a value to `then`, unless the value is absent. Allocates as [`Self::hold_with`] does.
    fn value_with(
        &self,
        value: &Expression,
        path: &[u8],
        scratch: &mut EvaluationScratch,
        then: &mut dyn FnMut(&[u8]),
    ) {
        with_readings(self, value, path, |facts| {
            if let Some(value) = value.evaluate(facts, scratch) {
                value.with_plain(then);
            }
        });
    }

    /// Explains an evaluation, for people.
    fn explain_with(&self, condition: &Expression, path: &[u8]) -> ExpressionTrace {
        with_readings(self, condition, path, |facts| condition.explain(facts))
    }
}

/// The facts of a request that are all known.
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
    /// The parts of this request that routes depend on. `listener` is an index.
    pub fn parts<'s>(&'s self, listener: usize, path: &'s [u8]) -> RequestParts<'s, F> {
        let Self { method, host, query, fields, client, .. } = *self;
        RequestParts { listener, host, path, query, method, client, fields, conditions: self }
    }
}

impl<F: FieldLookup + ?Sized> RequestSource for RequestFacts<'_, F> {
    type Fields = F;

    fn method(&self) -> &[u8] {
        self.method
    }

    fn host(&self) -> &[u8] {
        self.host
    }

    fn query(&self) -> Option<&[u8]> {
        self.query
    }

    fn fields(&self) -> &F {
        self.fields
    }

    fn scheme(&self) -> &str {
        self.scheme
    }

    fn version(&self) -> &str {
        self.version
    }

    fn size(&self) -> Option<u64> {
        self.size
    }

    fn client(&self) -> IpAddr {
        self.client
    }

    fn client_port(&self) -> u16 {
        self.client_port
    }

    fn listener(&self) -> &str {
        self.listener
    }

    fn tls(&self) -> TlsFacts<'_> {
        self.tls
    }

    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        self.maps.lookup(map, key)
    }

    fn memory(&self) -> Option<&ValueMemory> {
        self.memory
    }
}

impl<F: FieldLookup + ?Sized> RequestConditions for RequestFacts<'_, F> {
    fn hold(&self, condition: &Expression, path: &[u8]) -> bool {
        self.hold_with(condition, path, &mut EvaluationScratch::new())
    }

    fn explain(&self, condition: &Expression, path: &[u8]) -> ExpressionTrace {
        self.explain_with(condition, path)
    }

    fn value(&self, value: &Expression, path: &[u8], then: &mut dyn FnMut(&[u8])) {
        self.value_with(value, path, &mut EvaluationScratch::new(), then);
    }
}

/// Calls `then` with the facts of a request, whose path and host read as routes compare them.
#[inline]
fn with_readings<S: RequestSource + ?Sized, R>(
    source: &S,
    expression: &Expression,
    path: &[u8],
    then: impl FnOnce(&ComparedFacts<'_, S>) -> R,
) -> R {
    let asks_for_host = expression.asks_for(Fact::RequestHost);
    if !asks_for_host && !expression.asks_for(Fact::RequestPath) {
        return then(&ComparedFacts { source, path, raw_path: path, host: b"" });
    }
    let raw_path = path;
    with_reading(path, |path| {
        let host = if asks_for_host { without_dot(source.host()) } else { b"" };
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
        then(&ComparedFacts { source, path, raw_path, host })
    })
}

/// Facts with path and host as routes compare them. Both are set only for expressions that ask for them.
pub(crate) struct ComparedFacts<'a, S: ?Sized> {
    source: &'a S,
    path: &'a [u8],
    /// As it was sent.
    raw_path: &'a [u8],
    host: &'a [u8],
}

impl<S: RequestSource + ?Sized> Facts for ComparedFacts<'_, S> {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        let Self { source, path, raw_path, host } = self;
        let text = match fact {
            Fact::ClientTlsVersion => source.tls().version,
            Fact::ClientTlsCipher => source.tls().cipher,
            Fact::ClientTlsSni => source.tls().server_name,
            Fact::ClientTlsSubject => source.tls().subject,
            Fact::ClientTlsIssuer => source.tls().issuer,
            Fact::ClientTlsFingerprint => source.tls().fingerprint,
            Fact::ClientAddress => return Some(Value::Address(source.client())),
            Fact::ClientPort => return Some(Value::Integer(source.client_port().into())),
            Fact::ListenerName => return Some(Value::Text(source.listener().as_bytes())),
            Fact::Time => return Some(Value::Time(source.time_ns())),
            Fact::RequestMethod => return Some(Value::Text(source.method())),
            Fact::RequestPath => return Some(Value::Text(path)),
            Fact::RequestRawPath => return Some(Value::Text(raw_path)),
            Fact::RequestQuery => return source.query().map(Value::Text),
            Fact::RequestHost => return Some(Value::Text(host)),
            Fact::RequestScheme => return Some(Value::Text(source.scheme().as_bytes())),
            Fact::RequestVersion => return Some(Value::Text(source.version().as_bytes())),
            Fact::RequestSize => {
                return source.size().map(|size| Value::Integer(i64::try_from(size).unwrap_or(i64::MAX)));
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
        let (fields, name) = (self.source.fields(), key.as_bytes());
        match family {
            FactFamily::RequestHeaders => fields.value(name),
            FactFamily::RequestCookies => cookies(fields, name).next(),
            FactFamily::RequestQuery => self.parameters(name).next(),
            FactFamily::JwtClaims | FactFamily::ResponseHeaders => None,
        }
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        self.source.lookup(map, key)
    }

    fn any_field(&self, family: FactFamily, key: &Key, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let (fields, name) = (self.source.fields(), key.as_bytes());
        match family {
            FactFamily::RequestHeaders => fields.values(name).any(test),
            FactFamily::RequestCookies => cookies(fields, name).any(test),
            FactFamily::RequestQuery => self.parameters(name).any(test),
            FactFamily::JwtClaims | FactFamily::ResponseHeaders => false,
        }
    }

    fn memory(&self) -> Option<&ValueMemory> {
        self.source.memory()
    }
}

impl<S: RequestSource + ?Sized> ComparedFacts<'_, S> {
    /// The values of the parameters with this name, as sent.
    fn parameters<'s>(&'s self, name: &[u8]) -> impl Iterator<Item = &'s [u8]> {
        let all = parameters(self.source.query().unwrap_or_default());
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
