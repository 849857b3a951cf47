//! Explanations, costs and limits.

use std::sync::Arc;

use expression::{ExchangeStage, Expression, ExpressionLimits, Fact, FactFamily, Schema, ValueType};

use crate::exchange::{Exchange, compiled, schema};

#[test]
fn each_part_has_its_value() {
    let text = "request.method == \"GET\" &&\n  (request.headers[\"user-agent\"] ?? \"\").lowerAscii().contains(\"bot\")\
        && (client.port > 50000 || \"x-beta\" in request.headers || response.status == 200)";
    assert_eq!(
        compiled(text).explain(&Exchange::default()).to_string(),
        "request.method == \"GET\" && (request.headers[\"user-agent\"] ?? \"\").lowerAscii().contains(\"bot\")&& \
         (client.port > 50000 || \"x-beta\" in request.headers || response.status == 200): true\n\
         \x20 request.method == \"GET\": true\n\
         \x20   request.method: \"GET\"\n\
         \x20 (request.headers[\"user-agent\"] ?? \"\").lowerAscii().contains(\"bot\"): true\n\
         \x20   (request.headers[\"user-agent\"] ?? \"\").lowerAscii(): \"some bot/1.0\"\n\
         \x20     (request.headers[\"user-agent\"] ?? \"\"): \"Some Bot/1.0\"\n\
         \x20       request.headers[\"user-agent\"]: \"Some Bot/1.0\"\n\
         \x20 (client.port > 50000 || \"x-beta\" in request.headers || response.status == 200): true\n\
         \x20   client.port > 50000: false\n\
         \x20     client.port: 40000\n\
         \x20   \"x-beta\" in request.headers: true\n\
         \x20     \"x-beta\": \"1\"\n\
         \x20   response.status == 200: not evaluated\n"
    );
    let text = "has(request.size) ? request.size : values.limit";
    assert_eq!(
        compiled(text).explain(&Exchange::default()).to_string(),
        "has(request.size) ? request.size : values.limit: 500\n\
         \x20 has(request.size): false\n\
         \x20   request.size: absent\n\
         \x20 request.size: not evaluated\n"
    );
    // Named expressions are one part: their parts have places in another text.
    assert_eq!(compiled("values.failed").explain(&Exchange::default()).to_string(), "values.failed: true\n");
}

#[test]
fn names_are_listed_once_with_their_values() {
    let text = "request.method == 'POST' || request.method == 'GET' && 'x-beta' in request.headers || has(request.size)";
    let trace = compiled(text).explain(&Exchange::default());
    let names = [("request.method", "\"GET\"".to_owned()), ("'x-beta'", "\"1\"".to_owned())];
    assert_eq!(trace.names(), names);
}

#[test]
fn the_names_that_decide_are_known() {
    let asked = compiled("request.path.startsWith('/a') && (request.cookies['a'] ?? '').matches('b')");
    let facts = [Fact::RequestPath, Fact::RequestHost].map(|fact| asked.asks_for(fact));
    let families =
        [FactFamily::RequestCookies, FactFamily::JwtClaims].map(|family| asked.asks_for_family(family));
    assert_eq!((facts, families, asked.has_pattern()), ([true, false], [true, false], true));
    // A named expression asks for what it is made of.
    let named = compiled("values.failed");
    assert!(named.asks_for(Fact::ResponseStatus) && !named.has_pattern());
}

#[test]
fn long_texts_are_shown_cut() {
    let exchange = Exchange { path: vec![b'x'; 10_000], ..Exchange::default() };
    let shown = compiled("request.path").explain(&exchange).to_string();
    assert!(shown.len() < 300 && shown.ends_with("(10000 bytes)\n"), "{shown}");
}

#[test]
fn costs() {
    let limits = ExpressionLimits { value_bytes: 6400, ..ExpressionLimits::default() };
    for (text, steps, scratch) in [
        ("true", 1, 0),
        ("request.method == 'GET'", 3, 0),
        ("request.path.contains('a')", 103, 0),
        ("request.path.matches('a')", 802, 0),
        ("request.headers['a'] == 'b'", 107, 0),
        ("request.headers['a'] == 'b' && request.headers['c'] == 'd'", 215, 0),
        ("request.query['a'] == 'b'", 107, 6400),
        // What a condition builds is released before the next.
        ("request.query['a'] == 'b' && request.query['c'] == 'd'", 215, 6400),
        ("request.path + request.path", 203, 12_800),
        ("(request.path + request.path).lowerAscii()", 404, 25_600),
        ("string(client.port)", 2, 45),
        ("client.address in '10.0.0.0/8'", 3, 0),
    ] {
        let expression = Expression::new(text, &Schema::new(ExchangeStage::Response), &limits).unwrap();
        assert_eq!((expression.cost(), expression.scratch_bytes()), (steps, scratch), "{text}");
    }
}

#[test]
fn what_exceeds_a_limit_is_refused() {
    let message = |text: &str, limits: &ExpressionLimits| {
        Expression::new(text, &schema(ExchangeStage::Response), limits).unwrap_err().message
    };
    let standard = ExpressionLimits::default();
    let nested = |count: usize| format!("{}1{}", "(".repeat(count), ")".repeat(count));
    let many = |count: usize, part: &str, sign: &str| vec![part; count].join(sign);
    for (text, wanted) in [
        (many(3000, "true", "&&"), "the expression has 17998 bytes; at most 8192 are allowed"),
        (many(1200, "true", "&&"), "the expression has more than 1000 parts"),
        (nested(41), "the expression is nested deeper than 40 levels"),
        (nested(4000), "the expression is nested deeper than 40 levels"),
        ("[".repeat(4000), "the expression is nested deeper than 40 levels"),
        ("f(".repeat(4000), "the expression is nested deeper than 40 levels"),
        ("a?".repeat(4000), "the expression is nested deeper than 40 levels"),
        ("!".repeat(4000) + "true", "the expression is nested deeper than 40 levels"),
        ("-".repeat(4000) + "1", "the expression is nested deeper than 40 levels"),
        (many(4000, "a", "."), "the expression is nested deeper than 40 levels"),
        (many(2000, "1", "+"), "the expression is nested deeper than 40 levels"),
        (many(900, "1", "??"), "the expression is nested deeper than 40 levels"),
        (
            many(20, "request.path", "+"),
            "the expression builds texts of up to 1310720 bytes; at most 1048576 are allowed",
        ),
        (
            many(20, "request.path.matches('a')", "||"),
            "the expression takes up to 163881 steps; at most 100000 are allowed",
        ),
        (
            format!("request.path.matches('{}')", "a".repeat(5000)),
            "this regular expression is invalid: it has 5000 bytes; at most 4096 are allowed",
        ),
    ] {
        assert_eq!(message(&text, &standard), wanted, "{text:.40}");
    }
    assert!(Expression::new(&nested(39), &schema(ExchangeStage::Request), &standard).is_ok());
}

/// Named expressions that use each other add up: neither the stack nor the time has to hold more than the limits say.
#[test]
fn named_expressions_add_up() {
    let compile = |schema: &Schema, text: &str| Expression::new(text, schema, &ExpressionLimits::default());
    let mut schema = Schema::new(ExchangeStage::Request);
    let mut last = Arc::new(compile(&schema, "request.path.size() > 1").unwrap());
    for count in 0.. {
        schema = schema.with_definition("last", last.clone());
        match compile(&schema, "last && last") {
            Ok(next) => {
                assert!(next.cost() > last.cost() * 2);
                last = Arc::new(next);
            }
            Err(fault) => {
                assert!(count > 5 && fault.message.contains("steps"), "{count}: {fault}");
                break;
            }
        }
    }
    let mut last = Arc::new(compile(&schema, "request.path.size() > 1").unwrap());
    for count in 0.. {
        match compile(&Schema::new(ExchangeStage::Request).with_definition("last", last.clone()), "!last") {
            Ok(next) => last = Arc::new(next),
            Err(fault) => {
                assert!(count > 50 && fault.message.contains("200 levels"), "{count}: {fault}");
                break;
            }
        }
    }
    assert!(last.explain(&Exchange::default()).steps <= last.cost());
}

#[test]
fn a_type_may_be_required() {
    let of = |wanted, text: &str| {
        Expression::of_type(wanted, text, &schema(ExchangeStage::Response), &ExpressionLimits::default())
            .map_err(|fault| fault.to_string())
    };
    assert!(of(ValueType::Text, "request.path").is_ok());
    assert!(of(ValueType::Text, "request.headers[\"x\"]").unwrap().kind().is_optional);
    for (wanted, text, message) in [
        (
            ValueType::Text,
            "client.port",
            "a text is needed here; this is an integer; write string(client.port)",
        ),
        (
            ValueType::Text,
            "client.port == 1",
            "a text is needed here; this is true or false; write (client.port == 1) ? \"yes\" : \"no\"",
        ),
        (
            ValueType::Integer,
            "request.query.page",
            "an integer is needed here; this is a text; write int(request.query.page) ?? 0",
        ),
        (ValueType::Address, "request.path", "an address is needed here; this is a text"),
    ] {
        assert_eq!(of(wanted, text).unwrap_err(), message);
    }
}
