//! Rules that requests match.

use gateway::ObjectKind;
use serde_json::{Value, json};

use crate::scene::{
    answer, answer_with, backend, cluster, conditions, config, http_route, messages, object, service,
    translated,
};

const ACCEPTED: &str = "Accepted=Accepted ResolvedRefs=ResolvedRefs";

fn rule(matches: &Value, service: &str) -> Value {
    json!({ "matches": matches, "backendRefs": [backend(service)] })
}

fn path(kind: &str, value: &str) -> Value {
    json!({ "path": { "type": kind, "value": value } })
}

#[test]
fn paths_match_exactly_or_by_whole_segments_and_the_longest_wins() {
    let mut cluster = cluster();
    let rules = json!([
        rule(&json!([path("PathPrefix", "/")]), "blog"),
        rule(&json!([path("PathPrefix", "/a/")]), "cart"),
        rule(&json!([path("Exact", "/a/b")]), "blog"),
        rule(&json!([path("RegularExpression", "/r/[0-9]+")]), "cart"),
    ]);
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
    let translation = translated(&cluster);
    assert_eq!(conditions(&translation, ObjectKind::HttpRoute, "r"), ACCEPTED);
    let config = config(&translation);
    for (path, expected) in [
        ("/", "shop.blog.80"),
        ("/a", "shop.cart.80"),
        ("/a/", "shop.cart.80"),
        ("/a/b", "shop.blog.80"),
        ("/a/b/", "shop.cart.80"),
        ("/ab", "shop.blog.80"),
        ("/A", "shop.blog.80"),
        ("/r/12", "shop.cart.80"),
        ("/r/12/x", "shop.blog.80"),
    ] {
        assert_eq!(answer(&config, 80, &format!("GET http://any.example{path}")), expected, "{path}");
    }
}

#[test]
fn fields_parameters_and_methods_narrow_a_match() {
    let mut cluster = cluster();
    service(&mut cluster, "shop", "third", 1, &["10.0.0.9"]);
    let rules = json!([
        rule(&json!([{ "headers": [{ "name": "Version", "value": "two" }] }]), "cart"),
        rule(
            &json!([{ "headers": [{ "name": "version", "value": "two" }, { "name": "color", "value": "blue" }] }]),
            "blog"
        ),
        rule(&json!([{ "queryParams": [{ "name": "animal", "value": "whale" }] }]), "third"),
        rule(&json!([{ "method": "PATCH" }]), "blog"),
        // If two conditions concern the same field, the first counts.
        rule(
            &json!([{ "headers": [{ "name": "x", "value": "1" }, { "name": "X", "value": "2" }] }]),
            "third"
        ),
        rule(
            &json!([{ "headers": [{ "name": "re", "type": "RegularExpression", "value": "a|b+" }] }]),
            "cart"
        ),
        // These would be a prefix and an expression in a file of Vanward.
        rule(
            &json!([{ "headers": [{ "name": "lit", "value": "a*" }] }, { "headers": [{ "name": "lit", "value": "~ .*" }] }]),
            "blog"
        ),
    ]);
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
    let translation = translated(&cluster);
    assert_eq!(conditions(&translation, ObjectKind::HttpRoute, "r"), ACCEPTED);
    let config = config(&translation);
    for (request, fields, expected) in [
        ("GET http://a/", &[("version", "two")][..], "shop.cart.80"),
        ("GET http://a/", &[("version", "two"), ("color", "blue")], "shop.blog.80"),
        ("GET http://a/", &[("version", "Two")], "404"),
        ("GET http://a/?animal=whale", &[], "shop.third.80"),
        ("GET http://a/?animal=whale&x=1", &[("version", "two")], "shop.cart.80"),
        ("PATCH http://a/?animal=whale", &[("version", "two")], "shop.blog.80"),
        ("GET http://a/", &[("x", "1")], "shop.third.80"),
        ("GET http://a/", &[("x", "2")], "404"),
        ("GET http://a/", &[("re", "bb")], "shop.cart.80"),
        ("GET http://a/", &[("re", "ab")], "404"),
        ("GET http://a/", &[("lit", "a*")], "shop.blog.80"),
        ("GET http://a/", &[("lit", "abc")], "404"),
        ("GET http://a/", &[("lit", "~ .*")], "shop.blog.80"),
        ("GET http://a/", &[], "404"),
    ] {
        assert_eq!(answer_with(&config, 80, request, fields), expected, "{request} {fields:?}");
    }
}

#[test]
fn of_equal_matches_the_oldest_route_counts_then_the_name_then_the_first_rule() {
    let at = |time: &str, name: &str, service: &str| {
        let rules = json!([
            rule(&json!([path("PathPrefix", "/x")]), service),
            rule(&json!([path("PathPrefix", "/x")]), "empty")
        ]);
        let mut route = http_route(name, &["a.example"], &rules);
        route["metadata"]["creationTimestamp"] = json!(time);
        route
    };
    for (routes, expected) in [
        ([at("2026-01-02T00:00:00Z", "a", "blog"), at("2026-01-01T00:00:00Z", "b", "cart")], "shop.cart.80"),
        ([at("2026-01-01T00:00:00Z", "b", "blog"), at("2026-01-01T00:00:00Z", "a", "cart")], "shop.cart.80"),
    ] {
        let mut cluster = cluster();
        for route in routes {
            cluster.put(ObjectKind::HttpRoute, route);
        }
        assert_eq!(answer(&config(&translated(&cluster)), 80, "GET http://a.example/x/y"), expected);
    }
}

/// Users of a cluster must not read the proxy's environment or files, nor request fields by variables.
#[test]
fn variables_in_objects_are_not_expanded() {
    let mut cluster = cluster();
    const TEXTS: [&str; 4] = ["${HOME}", "${file:/etc/passwd}", "$host", "$${env:x} $1"];
    let edits: Vec<Value> = TEXTS
        .iter()
        .enumerate()
        .map(|(place, text)| json!({ "name": format!("x{place}"), "value": text }))
        .collect();
    let rules = json!([{
        "matches": TEXTS.map(|text| json!({ "headers": [{ "name": "x", "value": text }] })),
        "filters": [{ "type": "RequestHeaderModifier", "requestHeaderModifier": { "set": edits } }],
        "backendRefs": [backend("cart")],
    }]);
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
    let config = config(&translated(&cluster));
    for text in TEXTS {
        assert_eq!(answer_with(&config, 80, "GET http://a/", &[("x", text)]), "shop.cart.80", "{text}");
    }
    let edits = &config.routes[1].policies.request_headers;
    let values: Vec<String> = edits
        .edits()
        .map(|edit| match edit {
            route::HeaderEdit::Set(_, value) => value.replace("$$", "$"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(values, TEXTS);
}

#[test]
fn unsupported_rules_have_a_condition_and_are_answered_with_500() {
    for (rule, expected) in [
        (
            json!({ "sessionPersistence": {}, "backendRefs": [backend("cart")] }),
            "not supported: sessionPersistence",
        ),
        (json!({ "retry": { "attempts": 2 } }), "not supported: retry"),
        (
            json!({ "filters": [{ "type": "ExtensionRef", "extensionRef": {} }] }),
            "filters: ExtensionRef is not supported",
        ),
        (
            json!({ "filters": [{ "type": "RequestRedirect", "requestRedirect": { "statusCode": 303 } }] }),
            "statusCode 303 is not supported",
        ),
        (
            json!({ "backendRefs": [{ "name": "cart", "port": 80, "filters": [{ "type": "CORS" }] }] }),
            "filters of backendRefs are not supported",
        ),
        (json!({ "timeouts": { "request": "soon" } }), "timeouts: \"soon\" is not a duration"),
        (
            json!({ "matches": [{ "path": { "type": "Glob", "value": "/x" } }] }),
            "path of type Glob is not supported",
        ),
    ] {
        let mut cluster = cluster();
        // Alone, it invalidates the route; beside other rules, it is answered with 500.
        cluster.put(ObjectKind::HttpRoute, http_route("alone", &["alone.example"], &json!([rule])));
        let mut other = json!({ "matches": [path("PathPrefix", "/well")] });
        other["backendRefs"] = json!([backend("blog")]);
        cluster.put(ObjectKind::HttpRoute, http_route("partly", &["partly.example"], &json!([rule, other])));
        let translation = translated(&cluster);
        assert_eq!(
            conditions(&translation, ObjectKind::HttpRoute, "alone").split(' ').next(),
            Some("!Accepted=UnsupportedValue")
        );
        assert_eq!(
            conditions(&translation, ObjectKind::HttpRoute, "partly"),
            "Accepted=Accepted ResolvedRefs=ResolvedRefs PartiallyInvalid=UnsupportedValue"
        );
        for name in ["alone", "partly"] {
            let told = messages(&translation, ObjectKind::HttpRoute, name);
            assert!(told.contains(expected), "{told}");
        }
        let config = config(&translation);
        assert_eq!(answer(&config, 80, "GET http://alone.example/"), "404");
        assert_eq!(answer(&config, 80, "GET http://partly.example/well"), "shop.blog.80");
        if !expected.contains("Glob") {
            assert_eq!(answer(&config, 80, "GET http://partly.example/"), "500", "{expected}");
        }
    }
}

/// Mistakes that only Vanward finds, such as an expression that it cannot compile, become a condition.
#[test]
fn a_route_that_vanward_refuses_is_not_accepted() {
    use crate::scene::{Test, options};
    use gateway::{Reference, Refused, translate};
    let mut cluster = cluster();
    cluster.put(
        ObjectKind::HttpRoute,
        http_route("bad", &[], &json!([rule(&json!([path("RegularExpression", "/(")]), "cart")])),
    );
    cluster
        .put(ObjectKind::HttpRoute, http_route("good", &["a.example"], &json!([rule(&json!([]), "blog")])));
    let first = translated(&cluster);
    let reading = config::examine(&first.written.text, "kubernetes");
    let mistake = reading.mistakes.first().expect("a mistake");
    let owner = first.written.owner(mistake.line).expect("an owner").clone();
    assert_eq!(
        owner,
        Reference { kind: ObjectKind::HttpRoute, namespace: "shop".to_owned(), name: "bad".to_owned() }
    );
    let refused = Refused::from([(owner, mistake.message.clone())]);
    let second = translate(&cluster, &options(), &refused, &Test);
    assert_eq!(
        conditions(&second, ObjectKind::HttpRoute, "bad"),
        "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"
    );
    assert_eq!(answer(&config(&second), 80, "GET http://a.example/"), "shop.blog.80");
}

#[test]
fn an_unreadable_object_is_reported() {
    let mut cluster = cluster();
    cluster.put(ObjectKind::HttpRoute, object("shop", "r", json!({ "rules": 7 })));
    let told: Vec<String> =
        translated(&cluster).unreadable.iter().map(|(object, why)| format!("{object}: {why}")).collect();
    assert!(told[0].starts_with("HTTPRoute shop/r: this is an integer; expected an array"), "{told:?}");
}
