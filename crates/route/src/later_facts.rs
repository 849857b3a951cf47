//! Facts of an exchange for expressions that are known after the request: its user, its server, its response.

use std::fmt;
use std::time::Duration;

use expression::{
    EvaluationScratch, ExchangeStage, Expression, Fact, FactFamily, Facts, Key, Value, ValueMemory,
};
use jwt::KeptClaims;

use crate::facts::{ComparedFacts, RequestFacts};
use crate::request::FieldLookup;

/// Facts of an exchange that are known after the request. What is not known is empty, or `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaterFacts<'a> {
    /// The authenticated user.
    pub user: &'a str,
    /// Claims of the verified token.
    pub claims: Option<&'a KeptClaims>,
    pub upstream: &'a str,
    /// The server of the request, as `host:port`.
    pub server: &'a str,
    pub response: Option<ResponseFacts<'a>>,
    /// As logged.
    pub cache_status: &'a str,
}

#[derive(Clone, Copy)]
pub struct ResponseFacts<'a> {
    pub status: u16,
    /// The head as text: a start line, then a field on each line.
    pub head: &'a [u8],
    /// The length of the body in bytes; `None` means the one in the head.
    pub size: Option<u64>,
    /// The time from the request's head to the response's.
    pub time: Option<Duration>,
}

impl fmt::Debug for ResponseFacts<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ResponseFacts").field("status", &self.status).finish_non_exhaustive()
    }
}

impl ResponseFacts<'_> {
    fn values(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        // The start line has spaces, which no name has.
        let lines = self.head.split(|&byte| byte == b'\n');
        lines.filter_map(move |line| {
            let (known, value) = line.split_at(line.iter().position(|&byte| byte == b':')?);
            known.eq_ignore_ascii_case(name).then(|| value[1..].trim_ascii())
        })
    }

    /// The length of the body; `None` while it is unknown.
    fn size(&self) -> Option<u64> {
        let announced = || str::from_utf8(self.values(b"content-length").next()?).ok()?.parse().ok();
        self.size.or_else(announced)
    }
}

impl<F: FieldLookup + ?Sized> RequestFacts<'_, F> {
    /// Whether a condition holds for the exchange of the request with this path. Allocates as little as
    /// [`RequestFacts::hold_with`].
    pub fn hold_later(
        &self,
        condition: &Expression,
        path: &[u8],
        later: &LaterFacts<'_>,
        scratch: &mut EvaluationScratch,
    ) -> bool {
        self.with_readings(path, |request| condition.holds(&ExchangeFacts { request, later }, scratch))
    }

    /// Passes the text form of a value to `then`, unless the value is absent. Allocates as [`Self::hold_later`] does.
    pub fn value_later(
        &self,
        value: &Expression,
        path: &[u8],
        later: &LaterFacts<'_>,
        scratch: &mut EvaluationScratch,
        then: &mut dyn FnMut(&[u8]),
    ) {
        self.with_readings(path, |request| {
            if let Some(value) = value.evaluate(&ExchangeFacts { request, later }, scratch) {
                value.with_plain(then);
            }
        });
    }
}

/// All facts of an exchange.
struct ExchangeFacts<'a, F: ?Sized> {
    request: &'a ComparedFacts<'a, F>,
    later: &'a LaterFacts<'a>,
}

impl<F: FieldLookup + ?Sized> Facts for ExchangeFacts<'_, F> {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        let LaterFacts { user, upstream, server, response, cache_status, .. } = self.later;
        let text = match fact {
            Fact::ClientUser => user,
            Fact::UpstreamName => upstream,
            Fact::ServerName => server,
            Fact::CacheStatus => cache_status,
            Fact::ResponseStatus => return Some(Value::Integer(response.as_ref()?.status.into())),
            Fact::ResponseSize => {
                let size = response.as_ref()?.size()?;
                return Some(Value::Integer(i64::try_from(size).unwrap_or(i64::MAX)));
            }
            Fact::ResponseTime => {
                let time = response.as_ref()?.time?.as_nanos();
                return Some(Value::Duration(i64::try_from(time).unwrap_or(i64::MAX)));
            }
            _ => return self.request.value(fact),
        };
        (!text.is_empty()).then_some(Value::Text(text.as_bytes()))
    }

    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
        match family {
            FactFamily::ResponseHeaders => self.later.response.as_ref()?.values(key.as_bytes()).next(),
            FactFamily::JwtClaims => self.later.claims?.values(key.as_bytes()).next(),
            _ => self.request.field(family, key),
        }
    }

    fn any_field(&self, family: FactFamily, key: &Key, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let LaterFacts { response, claims, .. } = self.later;
        match family {
            FactFamily::ResponseHeaders => {
                response.as_ref().is_some_and(|response| response.values(key.as_bytes()).any(test))
            }
            FactFamily::JwtClaims => claims.is_some_and(|claims| claims.values(key.as_bytes()).any(test)),
            _ => self.request.any_field(family, key, test),
        }
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        self.request.lookup(map, key)
    }

    fn memory(&self) -> Option<&ValueMemory> {
        self.request.memory()
    }

    fn settled(&self) -> ExchangeStage {
        // The server changes with a retry, the response with its body, its time, or another upstream in its place.
        ExchangeStage::Authenticated
    }
}

#[cfg(test)]
mod tests {
    use expression::{ExpressionLimits, Schema, ValueType};

    use super::*;
    use crate::variable_values::TlsFacts;

    fn holds(text: &str, later: &LaterFacts<'_>) -> bool {
        let schema = Schema::new(ExchangeStage::Response);
        let condition =
            Expression::of_type(ValueType::Boolean, text, &schema, &ExpressionLimits::default()).unwrap();
        request(None).hold_later(&condition, b"/a//b", later, &mut EvaluationScratch::new())
    }

    fn request(memory: Option<&ValueMemory>) -> RequestFacts<'_, [(&'static str, &'static str)]> {
        RequestFacts {
            method: b"GET",
            host: b"A.example",
            query: None,
            fields: &[("X-Plan", "gold")],
            scheme: "http",
            version: "1.1",
            size: Some(0),
            client: [192, 0, 2, 1].into(),
            client_port: 1,
            listener: "web",
            tls: TlsFacts::default(),
            time_ns: 0,
            maps: &crate::facts::NoMaps,
            memory,
        }
    }

    /// A value of the user is kept; one of the response is that of the response, also after it was asked before.
    #[test]
    fn values_are_kept_only_if_they_stay() {
        let schema = Schema::new(ExchangeStage::Response);
        let named = |text: &str| {
            let meaning = Expression::new(text, &schema, &ExpressionLimits::default()).unwrap();
            Expression::from_name("values.a", &std::sync::Arc::new(meaning))
        };
        let (who, outcome) = (
            named("\"user \" + (client.user ?? \"none\")"),
            named("(upstream.name ?? \"none\") + (response.status >= 500 ? \" failed\" : \" served\")"),
        );
        let memory = ValueMemory::new();
        let value = |value: &Expression, later: &LaterFacts<'_>| {
            let mut text = Vec::new();
            let mut scratch = EvaluationScratch::new();
            request(Some(&memory))
                .value_later(value, b"/", later, &mut scratch, &mut |part| text.extend(part));
            String::from_utf8(text).unwrap()
        };
        let before = LaterFacts { user: "ann", ..LaterFacts::default() };
        let response = ResponseFacts { status: 503, head: b"", size: None, time: None };
        let after = LaterFacts { user: "bob", upstream: "app", response: Some(response), ..before };
        assert_eq!([&before, &after].map(|later| value(&who, later)), ["user ann", "user ann"]);
        assert_eq!([&before, &after].map(|later| value(&outcome, later)), ["none served", "app failed"]);
    }

    #[test]
    fn later_facts_join_those_of_the_request() {
        let claims = KeptClaims::from_texts([("roles", vec!["user", "admin"]), ("sub", vec!["ann"])]);
        let head = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nVary: a\r\nvary:  b \r\nContent-Length: 12\r\n\r\n";
        let time = Some(Duration::from_millis(20));
        let response = ResponseFacts { status: 404, head, size: None, time };
        let all = LaterFacts {
            user: "ann",
            claims: Some(&claims),
            upstream: "app",
            server: "127.0.0.1:80",
            response: Some(response),
            cache_status: "miss",
        };
        let none = LaterFacts::default();
        for (text, of_all, of_none) in [
            ("client.user == \"ann\"", true, false),
            ("has(client.user)", true, false),
            ("\"admin\" in jwt.claims.roles", true, false),
            ("jwt.claims[\"roles\"] == \"admin\"", false, false),
            ("jwt.claims.sub == (client.user ?? \"\")", true, false),
            ("has(jwt.claims.aud)", false, false),
            ("upstream.name == \"app\" && server.name == \"127.0.0.1:80\"", true, false),
            ("response.status >= 400", true, false),
            ("response.headers[\"content-type\"] == \"text/html\"", true, false),
            ("\"b\" in response.headers[\"Vary\"]", true, false),
            ("\"vary\" in response.headers", true, false),
            ("response.size == 12", true, false),
            ("response.time > duration(\"10ms\")", true, false),
            ("cache.status == \"miss\"", true, false),
            ("request.headers[\"x-plan\"] == \"gold\" && request.path == \"/a/b\"", true, true),
            ("request.host == \"a.example\" && \"gold\" in request.headers[\"X-Plan\"]", true, true),
        ] {
            assert_eq!((holds(text, &all), holds(text, &none)), (of_all, of_none), "{text}");
        }
        let known = ResponseFacts { size: Some(7), time: None, ..response };
        let sized = LaterFacts { response: Some(known), ..none };
        assert!(holds("response.size == 7 && !(response.time > duration(\"0s\"))", &sized));
    }
}
