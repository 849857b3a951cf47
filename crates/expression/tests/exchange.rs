//! An exchange as a list of facts, with the schema of all tests.

use std::net::IpAddr;
use std::sync::Arc;

use expression::{
    EvaluationScratch, ExchangeStage, Expression, ExpressionLimits, Fact, FactFamily, Facts, Key, Map,
    Schema, SchemaConstant, Value, ValueType,
};

/// Numbers of the maps.
const TENANTS: u16 = 1;
const BLOCKED: u16 = 2;
const FLAGS: u16 = 3;

#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) path: Vec<u8>,
    pub(crate) query: Option<&'static str>,
    pub(crate) client: IpAddr,
    pub(crate) time: i64,
    pub(crate) status: i64,
    pub(crate) fields: Vec<(FactFamily, &'static str, Vec<u8>)>,
}

impl Default for Exchange {
    fn default() -> Self {
        let field = |family, name, value: &str| (family, name, value.as_bytes().to_vec());
        Self {
            path: b"/api/v1/Users".to_vec(),
            query: Some("page=2&name=a%20b+c&page=3&tag=x&tag=y%26"),
            client: [10, 1, 2, 3].into(),
            // Sunday, 2026-11-29T12:30:00Z.
            time: 1_795_955_400_000_000_000,
            status: 503,
            fields: vec![
                field(FactFamily::RequestHeaders, "x-beta", "1"),
                field(FactFamily::RequestHeaders, "user-agent", "Some Bot/1.0"),
                field(FactFamily::RequestHeaders, "accept", "text/html"),
                field(FactFamily::RequestHeaders, "accept", "image/png"),
                field(FactFamily::RequestHeaders, "x-list", "a,b,,d"),
                field(FactFamily::RequestHeaders, "x-number", "-42"),
                field(FactFamily::RequestHeaders, "x-empty", ""),
                field(FactFamily::RequestCookies, "session", "s1"),
                field(FactFamily::RequestQuery, "page", "2"),
                field(FactFamily::RequestQuery, "page", "3"),
                field(FactFamily::RequestQuery, "name", "a%20b+c"),
                field(FactFamily::RequestQuery, "tag", "x"),
                field(FactFamily::RequestQuery, "tag", "y%26"),
                field(FactFamily::JwtClaims, "sub", "ann"),
                field(FactFamily::JwtClaims, "roles", "user"),
                field(FactFamily::JwtClaims, "roles", "admin"),
                field(FactFamily::JwtClaims, "realm.level", "7"),
                field(FactFamily::ResponseHeaders, "content-type", "text/html; charset=utf-8"),
            ],
        }
    }
}

impl Facts for Exchange {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        let text = |text: &'static str| Some(Value::Text(text.as_bytes()));
        match fact {
            Fact::RequestMethod => text("GET"),
            Fact::RequestPath => Some(Value::Text(&self.path)),
            Fact::RequestQuery => self.query.map(|query| Value::Text(query.as_bytes())),
            Fact::RequestHost => text("www.example.com"),
            Fact::RequestScheme => text("https"),
            Fact::RequestVersion => text("2"),
            Fact::ClientAddress => Some(Value::Address(self.client)),
            Fact::ClientPort => Some(Value::Integer(40_000)),
            Fact::ClientTlsSni => text("www.example.com"),
            Fact::ListenerName => text("public"),
            Fact::Time => Some(Value::Time(self.time)),
            Fact::ServerName => text("a"),
            Fact::ResponseStatus => Some(Value::Integer(self.status)),
            Fact::ResponseTime => Some(Value::Duration(1_500_000_000)),
            Fact::CacheStatus => text("miss"),
            // Of another type than declared: counts as absent.
            Fact::UpstreamName => Some(Value::Integer(1)),
            _ => None,
        }
    }

    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
        let mut found =
            self.fields.iter().filter(|(of, name, _)| *of == family && name.as_bytes() == key.as_bytes());
        found.next().map(|(_, _, value)| value.as_slice())
    }

    fn any_field(&self, family: FactFamily, key: &Key, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let found =
            self.fields.iter().filter(|(of, name, _)| *of == family && name.as_bytes() == key.as_bytes());
        found.into_iter().any(|(_, _, value)| test(value))
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        match (map, key) {
            (TENANTS, Value::Text(b"www.example.com")) => Some(Value::Text(b"acme")),
            (TENANTS, Value::Text(b"wrong")) => Some(Value::Integer(1)),
            (FLAGS, Value::Text(b"www.example.com")) => Some(Value::Boolean(true)),
            (BLOCKED, Value::Address(address)) if address.is_loopback() => Some(Value::Boolean(true)),
            _ => None,
        }
    }
}

/// All names, with maps, constants and definitions.
pub(crate) fn schema(stage: ExchangeStage) -> Schema {
    let all = Schema::new(ExchangeStage::Response);
    let defined = |text| Arc::new(Expression::new(text, &all, &ExpressionLimits::default()).unwrap());
    Schema::new(stage)
        .with_map(
            "map.tenants",
            Map { number: TENANTS, keys: ValueType::Text, values: Some(ValueType::Text) },
        )
        .with_map("map.blocked", Map { number: BLOCKED, keys: ValueType::Address, values: None })
        .with_map("map.flags", Map { number: FLAGS, keys: ValueType::Text, values: Some(ValueType::Boolean) })
        .with_constant("values.limit", SchemaConstant::Integer(500))
        .with_constant("values.prefix", SchemaConstant::Text("/api".to_owned()))
        .with_constant("values.strict", SchemaConstant::Boolean(true))
        .with_constant("values.slow", SchemaConstant::Duration(1_000_000_000))
        .with_constant("values.office", SchemaConstant::List(vec!["10.0.0.0/8".to_owned(), "::1".to_owned()]))
        .with_definition("values.agent", defined("(request.headers[\"user-agent\"] ?? \"\").lowerAscii()"))
        .with_definition("values.beta", defined("request.headers[\"x-beta\"]"))
        .with_definition("values.failed", defined("response.status >= 500"))
}

pub(crate) fn compiled(text: &str) -> Expression {
    let schema = schema(ExchangeStage::Response);
    Expression::new(text, &schema, &ExpressionLimits::default())
        .unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

/// The value as an expression writes it.
pub(crate) fn value_of(expression: &Expression, exchange: &Exchange) -> String {
    let mut scratch = EvaluationScratch::new();
    let value = expression.evaluate(exchange, &mut scratch);
    value.map_or_else(|| "absent".to_owned(), |value| value.to_string())
}
