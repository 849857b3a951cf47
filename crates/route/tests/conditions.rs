//! Conditions of rules (`when`).

use std::sync::Arc;

use expression::{ExchangeStage, Expression, ExpressionLimits, Schema, ValueType};
use route::{
    Condition, FieldLookup, PathRule, RequestFacts, RouteRule, RouteTable, RuleOutcome, TlsFacts, covered,
};

pub(crate) fn condition(text: &str) -> Arc<Expression> {
    let schema = Schema::new(ExchangeStage::Request);
    let read = Expression::of_type(ValueType::Boolean, text, &schema, &ExpressionLimits::default());
    Arc::new(read.unwrap_or_else(|fault| panic!("{text}: {fault}")))
}

/// A GET for `WWW.example.com` by a TLS client in the network 10.0.0.0/8.
pub(crate) fn facts<F: FieldLookup + ?Sized>(fields: &F) -> RequestFacts<'_, F> {
    RequestFacts {
        method: b"GET",
        host: b"WWW.example.com",
        query: Some(b"page=2&tag=x&tag=y%26&n%61me=a+b"),
        fields,
        scheme: "https",
        version: "2",
        size: Some(70),
        client: [10, 0, 0, 1].into(),
        client_port: 40_000,
        listener: "front",
        tls: TlsFacts { version: "TLSv1.3", server_name: "www.example.com", ..TlsFacts::default() },
        time_ns: 1_780_000_000_000_000_000,
        maps: &route::NoMaps,
        memory: None,
    }
}

fn when(text: &str) -> RouteRule {
    RouteRule { when: Some(condition(text)), ..RouteRule::default() }
}

#[test]
fn a_condition_sees_each_fact_of_a_request() {
    let fields =
        [("Accept", "text/html"), ("X-A", "1"), ("x-a", "2"), ("Cookie", "a=1; b=2"), ("cookie", "b=3")];
    let facts = facts(&fields);
    for (text, expected) in [
        ("request.method == 'GET' && request.version == '2' && request.scheme == 'https'", true),
        ("request.host == 'www.example.com'", true),
        ("request.path == '/a/b c'", true),
        ("(request.query ?? '').startsWith('page=2&')", true),
        // As it was sent.
        ("request.raw_path == '//a/%62%20c' && request.path == '/a/b c'", true),
        ("request.raw_path == '//a/%62%20c' && request.host != ''", true),
        ("request.query['name'] == 'a b' && 'y&' in request.query['tag']", true),
        ("request.query['none'] == ''", false),
        ("request.headers['x-a'] == '1' && '2' in request.headers['X-A']", true),
        ("request.headers['x-a'] == '2'", false),
        ("request.cookies['b'] == '2' && '3' in request.cookies['b']", true),
        ("has(request.cookies['c'])", false),
        ("request.size == 70", true),
        ("client.address in '10.0.0.0/8' && client.port == 40000 && listener.name == 'front'", true),
        ("client.tls.version == 'TLSv1.3' && client.tls.sni == request.host", true),
        ("has(client.tls.subject) || has(client.tls.fingerprint)", false),
        ("time > timestamp('2026-01-01T00:00:00Z') && time < timestamp('2027-01-01T00:00:00Z')", true),
    ] {
        let table = RouteTable::compile(vec![when(text)]);
        let request = facts.parts(0, b"//a/%62%20c");
        assert_eq!(table.choose(&request).is_some(), expected, "{text}: {}", table.explain(&request));
    }
}

#[test]
fn a_rule_with_a_condition_comes_before_one_without_and_after_one_with_a_header() {
    let header =
        RouteRule { headers: vec![("x".to_owned(), route::ValueRule::Present)], ..RouteRule::default() };
    let network =
        RouteRule { clients: vec!["10.0.0.0/8".parse().expect("a network")], ..RouteRule::default() };
    let rules =
        vec![RouteRule::default(), network, when("client.port > 10"), when("client.port > 1"), header];
    let table = RouteTable::compile(rules);
    let none: [(&str, &str); 0] = [];
    for (fields, port, route) in
        [(&none[..], 70, 2), (&none[..], 7, 3), (&none[..], 0, 1), (&[("x", "")][..], 70, 4)]
    {
        let facts = RequestFacts { client_port: port, ..facts(fields) };
        assert_eq!(table.choose(&facts.parts(0, b"/")), Some(route), "{port}");
        // Clones do not share regular expressions, and decide alike.
        assert_eq!(table.clone().choose(&facts.parts(0, b"/")), Some(route), "{port}");
    }
}

/// A server may resolve `..` before it compares paths, so the condition must hold for all readings or for none.
#[test]
fn a_condition_on_the_path_makes_other_readings_of_it_ambiguous() {
    let fields: [(&str, &str); 0] = [];
    let facts = facts(&fields);
    let guard = RouteTable::compile(vec![RouteRule::default(), when("request.path.startsWith('/admin')")]);
    let other = RouteTable::compile(vec![RouteRule::default(), when("request.method == 'GET'")]);
    for (path, is_ambiguous) in
        [("/x/../admin", true), ("/admin;x", false), ("/x/../y", false), ("/x", false)]
    {
        let request = facts.parts(0, path.as_bytes());
        assert_eq!(guard.is_ambiguous(&request), is_ambiguous, "{path}");
        assert!(!other.is_ambiguous(&request), "{path}");
    }
}

#[test]
fn a_condition_that_fails_is_explained_with_the_values_of_its_names() {
    let fields = [("X-A", "1")];
    let facts = facts(&fields);
    let table = RouteTable::compile(vec![when("request.headers['x-a'] == '2' || client.port < 1024")]);
    let explanation = table.explain(&facts.parts(0, b"/"));
    let RuleOutcome::Missed(misses) = &explanation.steps[0].outcome else { panic!("{explanation}") };
    assert_eq!(misses[0].condition, Condition::When);
    assert_eq!(misses[0].wanted, "when request.headers['x-a'] == '2' || client.port < 1024");
    assert_eq!(misses[0].found, "request.headers['x-a'] \"1\", client.port 40000");
}

#[test]
fn a_rule_is_unreachable_if_its_condition_implies_an_earlier_one() {
    let exact = |text: &str| RouteRule { path: PathRule::Exact("/a".to_owned()), ..when(text) };
    for (first, second, expected) in [
        (when("request.path.startsWith('/a')"), when("request.path == '/a'"), &[(1, 0)][..]),
        (when("request.path == '/a'"), when("request.path.startsWith('/a')"), &[]),
        (exact("client.port > 1"), when("client.port > 2"), &[]),
        (when("client.port > 1"), when("client.port > 1"), &[(1, 0)]),
        // It is asked first.
        (RouteRule::default(), when("client.port > 1"), &[]),
    ] {
        assert_eq!(covered(&[first.clone(), second.clone()], 1), expected, "{first:?} {second:?}");
    }
}
