//! Names for expressions: computed once for an exchange, with the same result as without a memory.

use std::cell::Cell;
use std::sync::Arc;

use allocation_counter::measure;
use expression::{
    EvaluationScratch, ExchangeStage, Expression, ExpressionLimits, Fact, FactFamily, Facts, Key, Map,
    PossibleTexts, Schema, Value, ValueMemory, ValueType,
};

use crate::exchange::Exchange;

/// An exchange that counts what it is asked.
struct Counted {
    exchange: Exchange,
    asked: Cell<usize>,
    memory: ValueMemory,
    settled: ExchangeStage,
}

impl Counted {
    fn new(exchange: Exchange) -> Self {
        let settled = ExchangeStage::Request;
        Self { exchange, asked: Cell::new(0), memory: ValueMemory::new(), settled }
    }
}

impl Facts for Counted {
    fn value(&self, fact: Fact) -> Option<Value<'_>> {
        self.asked.set(self.asked.get() + 1);
        self.exchange.value(fact)
    }

    fn field(&self, family: FactFamily, key: &Key) -> Option<&[u8]> {
        self.asked.set(self.asked.get() + 1);
        self.exchange.field(family, key)
    }

    fn memory(&self) -> Option<&ValueMemory> {
        Some(&self.memory)
    }

    fn settled(&self) -> ExchangeStage {
        self.settled
    }
}

fn defined(text: &str, schema: &Schema) -> Arc<Expression> {
    let compiled = Expression::new(text, schema, &ExpressionLimits::default());
    Arc::new(compiled.unwrap_or_else(|fault| panic!("{text}: {fault}")))
}

fn plain<F: Facts>(expression: &Expression, facts: &F) -> Option<String> {
    let mut scratch = EvaluationScratch::new();
    let value = expression.evaluate(facts, &mut scratch)?;
    Some(value.with_plain(|text| String::from_utf8_lossy(text).into_owned()))
}

#[test]
fn a_named_expression_is_computed_once_for_an_exchange() {
    for (text, expected, asked) in [
        // Each type, computed once for three uses.
        (r#"request.headers["x-beta"] == "1""#, Some("true"), 1),
        (r#"int(request.headers["x-number"])"#, Some("-42"), 1),
        (r#"int(request.headers["x-list"])"#, None, 1),
        (r#"(request.headers["user-agent"] ?? "").lowerAscii()"#, Some("some bot/1.0"), 1),
        (r#"request.headers["x-none"]"#, None, 1),
        (r#"request.headers["x-empty"]"#, Some(""), 1),
        (r#"request.method == "GET" ? client.address : client.address"#, Some("10.1.2.3"), 2),
        // Reading a fact is as cheap as finding a kept value.
        ("client.address", Some("10.1.2.3"), 3),
        ("7", Some("7"), 0),
        // Routes compare several readings of a path.
        (r#"request.path + """#, Some("/api/v1/Users"), 3),
    ] {
        let schema = Schema::new(ExchangeStage::Request);
        let named = Expression::from_name("values.a", &defined(text, &schema));
        let counted = Counted::new(Exchange::default());
        for _ in 0..3 {
            assert_eq!(plain(&named, &counted).as_deref(), expected, "{text}");
        }
        assert_eq!(plain(&named, &counted.exchange).as_deref(), expected, "{text}, without a memory");
        assert_eq!(counted.asked.get(), asked, "{text}");
        counted.memory.clear();
        counted.asked.set(0);
        assert_eq!(plain(&named, &counted).as_deref(), expected, "{text}, of the next exchange");
        assert!(counted.asked.get() >= asked.min(1), "{text}");
    }
}

/// A value that asks for what may still change, or is not known yet, is never kept.
#[test]
fn values_of_later_stages_are_kept_once_these_are_settled() {
    use ExchangeStage::{Authenticated, Forward, Request, Response};
    for (text, settled, asked) in [
        (r#"(client.user ?? "").lowerAscii()"#, Request, 3),
        (r#"(client.user ?? "").lowerAscii()"#, Authenticated, 1),
        (r#"(jwt.claims["sub"] ?? "").lowerAscii()"#, Authenticated, 1),
        (r#"(server.name ?? "") + "!""#, Authenticated, 3),
        (r#"(server.name ?? "") + "!""#, Forward, 1),
        ("response.status >= 500", Authenticated, 3),
        ("response.status >= 500", Response, 1),
        // As late as what it asks for.
        (r#"values.agent + string(response.status)"#, Authenticated, 4),
    ] {
        let schema = Schema::new(Response);
        let agent = defined(r#"(request.headers["user-agent"] ?? "").lowerAscii()"#, &schema);
        let schema = schema.with_definition("values.agent", agent);
        let named = Expression::from_name("values.a", &defined(text, &schema));
        let counted = Counted { settled, ..Counted::new(Exchange::default()) };
        let before = plain(&named, &counted.exchange);
        for _ in 0..3 {
            assert_eq!(plain(&named, &counted), before, "{text}");
        }
        assert_eq!(counted.asked.get(), asked, "{text} {settled:?}");
    }
    let schema = Schema::new(Response);
    let late = defined(r#"jwt.claims["a"] == "b" && response.headers["c"] == "d""#, &schema);
    assert_eq!((late.stage(), late.latest_name()), (Response, Some("response.headers")));
    assert_eq!(defined("1 + 1", &schema).latest_name(), None);
}

#[test]
fn names_within_names_are_computed_once() {
    let schema = Schema::new(ExchangeStage::Request);
    let agent = defined(r#"(request.headers["user-agent"] ?? "").lowerAscii()"#, &schema);
    let schema = schema.with_definition("values.agent", agent);
    let is_bot = defined(r#"values.agent.contains("bot") || values.agent.contains("spider")"#, &schema);
    let schema = schema.with_definition("values.is_bot", is_bot);
    let whole = defined(r#"values.is_bot ? values.agent + "!" + values.agent : values.agent"#, &schema);
    let counted = Counted::new(Exchange::default());
    for _ in 0..2 {
        assert_eq!(plain(&whole, &counted).as_deref(), Some("some bot/1.0!some bot/1.0"));
    }
    assert_eq!(counted.asked.get(), 1);
}

#[test]
fn the_time_of_an_exchange_is_fixed_when_it_is_first_asked() {
    let memory = ValueMemory::new();
    assert_eq!((memory.time_ns(|| 1), memory.time_ns(|| 2)), (1, 1));
    memory.clear();
    assert_eq!(memory.time_ns(|| 3), 3);
}

/// Texts beyond the limit are computed again.
#[test]
fn kept_texts_have_a_limit() {
    let schema = Schema::new(ExchangeStage::Request);
    let mut exchange = Exchange::default();
    exchange.fields.push((FactFamily::RequestHeaders, "x-long", vec![b'a'; 40_000]));
    let counted = Counted::new(exchange);
    let long = |name: &str| {
        Expression::from_name(name, &defined(r#"(request.headers["x-long"] ?? "") + "b""#, &schema))
    };
    let (one, other) = (long("values.one"), long("values.other"));
    for _ in 0..2 {
        assert_eq!(plain(&one, &counted).map(|text| text.len()), Some(40_001));
        assert_eq!(plain(&other, &counted).map(|text| text.len()), Some(40_001));
    }
    assert_eq!(counted.asked.get(), 3, "one is kept, the other is not");
}

#[test]
fn values_have_a_plain_form() {
    let schema = Schema::new(ExchangeStage::Request);
    for (text, expected) in [
        ("true", "true"),
        ("-9223372036854775807 - 5", "-9223372036854775808"),
        (r#""a\nb""#, "a\nb"),
        (r#"duration("90m") + duration("1.5s")"#, "1h30m1.5s"),
        (r#"duration("0") - duration("1ns")"#, "-0.000000001s"),
        (r#"duration("0")"#, "0s"),
        (r#"timestamp("2026-12-01T00:00:00Z")"#, "2026-12-01T00:00:00Z"),
        (r#"timestamp("1969-12-31T23:59:59.25Z")"#, "1969-12-31T23:59:59.25Z"),
        ("time", "2026-11-29T12:30:00Z"),
        ("client.address", "10.1.2.3"),
    ] {
        assert_eq!(plain(&defined(text, &schema), &Exchange::default()).as_deref(), Some(expected), "{text}");
    }
    let mapped = Value::Address("::ffff:192.0.2.1".parse().expect("is an address"));
    assert_eq!(mapped.with_plain(<[u8]>::to_vec), b"192.0.2.1");
}

#[test]
fn the_texts_of_constants_are_known() {
    let schema = Schema::new(ExchangeStage::Request);
    let schema = schema.clone().with_definition("values.a", defined(r#""a""#, &schema));
    let map = |number, values| Map { number, keys: ValueType::Text, values: Some(values) };
    let schema = schema.with_map("map.texts", map(3, ValueType::Text));
    let schema = schema.with_map("map.numbers", map(4, ValueType::Integer));
    for (text, expected) in [
        (r#""a""#, Some((&["a"][..], &[][..]))),
        (r#"request.method == "GET" ? "a" : request.host == "b" ? "b" : "c""#, Some((&["a", "b", "c"], &[]))),
        (r#"request.method == "GET" ? values.a : "b""#, Some((&["a", "b"], &[]))),
        (r#"map.texts[request.host]"#, Some((&[], &[3]))),
        (r#"map.texts[request.host] ?? map.texts["x"] ?? "b""#, Some((&["b"], &[3, 3]))),
        (r#"map.texts[request.host] ?? request.host"#, None),
        (r#"(map.texts[request.host] ?? "").lowerAscii()"#, None),
        (r#"map.numbers[request.host] ?? 404"#, Some((&["404"], &[4]))),
        (r#"request.method == "GET" ? 200 : -1"#, Some((&["200", "-1"], &[]))),
        (r#"request.method == "GET" ? 200 : 1 + 1"#, None),
        (r#"duration("1s")"#, None),
        (r#"request.headers["a"] ?? "b""#, None),
        (r#""a" + "b""#, None),
        ("1", Some((&["1"], &[]))),
    ] {
        let expression = defined(text, &schema);
        let expected = expected.map(|(constants, maps)| PossibleTexts {
            constants: constants.iter().map(|text| text.as_bytes().into()).collect(),
            maps: maps.to_vec(),
        });
        assert_eq!(expression.possible_texts(), expected, "{text}");
    }
}

/// A configuration that is read again has equal expressions.
#[test]
fn names_are_equal_if_their_meanings_are() {
    let compiled = |meaning: &str| {
        let schema = Schema::new(ExchangeStage::Request);
        let schema = schema.clone().with_definition("values.a", defined(meaning, &schema));
        defined(r#"values.a == "b""#, &schema)
    };
    assert_eq!(compiled(r#"request.headers["a"]"#), compiled(r#" request.headers["a"] "#));
    assert_ne!(compiled(r#"request.headers["a"]"#), compiled(r#"request.headers["b"]"#));
}

#[test]
fn named_expressions_allocate_nothing_in_later_exchanges() {
    let schema = Schema::new(ExchangeStage::Request);
    let named: Vec<Expression> = [
        r#"(request.headers["user-agent"] ?? "").lowerAscii()"#,
        r#"int(request.headers["x-number"]) ?? 0"#,
        r#"request.headers["x-beta"] == "1""#,
        r#"duration("90m") + (request.method == "GET" ? duration("1s") : duration("2s"))"#,
    ]
    .map(|text| Expression::from_name("values.a", &defined(text, &schema)))
    .into();
    let counted = Counted::new(Exchange::default());
    let mut scratch = EvaluationScratch::new();
    let mut exchange = || {
        counted.memory.clear();
        for _ in 0..2 {
            for named in &named {
                let value = named.evaluate(&counted, &mut scratch).expect("it is present");
                assert!(value.with_plain(|text| !text.is_empty()));
            }
        }
    };
    exchange();
    assert_eq!(measure(exchange).count_total, 0);
}
