//! Attachment of routes to listeners, and their hosts there.

use gateway::{Cluster, ObjectKind};
use serde_json::{Value, json};

use crate::scene::{
    answer, backend, cluster, conditions, config, gateway, http_route, listener, object, translated,
};

fn rules(service: &str) -> Value {
    json!([{ "backendRefs": [backend(service)] }])
}

fn with_listeners(listeners: &[Value]) -> Cluster {
    let mut cluster = cluster();
    cluster.put(ObjectKind::Gateway, gateway("infra", "edge", &json!(listeners)));
    cluster
}

#[test]
fn a_route_is_for_the_hosts_that_it_has_in_common_with_the_listener() {
    for (listener_host, hosts, requests) in [
        (Value::Null, &["a.example"][..], &[("a.example", true), ("b.example", false)][..]),
        (
            json!("*.example"),
            &[],
            &[("a.example", true), ("b.a.example", true), ("example", false), ("a.other", false)],
        ),
        (
            json!("*.example"),
            &["a.example", "a.other"],
            &[("a.example", true), ("b.example", false), ("a.other", false)],
        ),
        (json!("a.example"), &["*.example"], &[("a.example", true), ("b.example", false)]),
        (json!("*.example"), &["*.a.example"], &[("x.a.example", true), ("x.b.example", false)]),
    ] {
        let mut cluster = with_listeners(&[listener("http", 80, listener_host)]);
        cluster.put(ObjectKind::HttpRoute, http_route("r", hosts, &rules("cart")));
        let config = config(&translated(&cluster));
        for (host, is_served) in requests {
            let expected = if *is_served { "shop.cart.80" } else { "404" };
            assert_eq!(answer(&config, 80, &format!("GET http://{host}/")), expected, "{host}");
        }
    }
}

#[test]
fn a_request_is_for_the_narrowest_listener_alone() {
    let mut cluster = with_listeners(&[
        listener("all", 80, Value::Null),
        listener("wild", 80, json!("*.example")),
        listener("one", 80, json!("one.example")),
    ]);
    let to = |name: &str, section: &str, hosts: &[&str], service: &str| {
        let rules = json!([{ "matches": [{ "path": { "type": "PathPrefix", "value": format!("/{section}") } }],
            "backendRefs": [backend(service)] }]);
        let mut route = http_route(name, hosts, &rules);
        route["spec"]["parentRefs"][0]["sectionName"] = json!(section);
        route
    };
    cluster.put(ObjectKind::HttpRoute, to("a", "all", &[], "blog"));
    cluster.put(ObjectKind::HttpRoute, to("b", "wild", &[], "cart"));
    cluster.put(ObjectKind::HttpRoute, to("c", "one", &[], "cart"));
    // The host belongs to another listener.
    cluster.put(ObjectKind::HttpRoute, to("d", "all", &["two.example", "two.other"], "blog"));
    let config = config(&translated(&cluster));
    for (request, expected) in [
        ("any.other/all", "shop.blog.80"),
        ("any.example/all", "404"),
        ("any.example/wild", "shop.cart.80"),
        ("one.example/wild", "404"),
        ("one.example/all", "404"),
        ("one.example/one", "shop.cart.80"),
        ("two.example/all", "404"),
        ("two.other/all", "shop.blog.80"),
    ] {
        assert_eq!(answer(&config, 80, &format!("GET http://{request}")), expected, "{request}");
    }
}

#[test]
fn namespaces_kinds_sections_and_ports_decide_who_may_attach() {
    let from = |from: Value| {
        let mut listener = listener("http", 80, Value::Null);
        listener["allowedRoutes"] = from;
        listener
    };
    let parent = |more: Value| {
        let mut parent = json!({ "name": "edge", "namespace": "infra" });
        parent.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!([parent])
    };
    const ACCEPTED: &str = "Accepted=Accepted";
    const NOT_ALLOWED: &str = "!Accepted=NotAllowedByListeners";
    const NO_PARENT: &str = "!Accepted=NoMatchingParent";
    let selector = |value: &str| json!({ "namespaces": { "from": "Selector", "selector": { "matchLabels": { "team": value } } } });
    for (allowed, parents, expected) in [
        (json!({ "namespaces": { "from": "All" } }), parent(json!({})), ACCEPTED),
        (json!({}), parent(json!({})), NOT_ALLOWED),
        (json!({ "namespaces": { "from": "Same" } }), parent(json!({})), NOT_ALLOWED),
        (json!({ "namespaces": { "from": "None" } }), parent(json!({})), NOT_ALLOWED),
        (selector("shop"), parent(json!({})), ACCEPTED),
        (selector("other"), parent(json!({})), NOT_ALLOWED),
        (
            json!({ "namespaces": { "from": "All" }, "kinds": [{ "kind": "TCPRoute" }] }),
            parent(json!({})),
            NOT_ALLOWED,
        ),
        (
            json!({ "namespaces": { "from": "All" }, "kinds": [{ "kind": "HTTPRoute" }] }),
            parent(json!({})),
            ACCEPTED,
        ),
        (json!({ "namespaces": { "from": "All" } }), parent(json!({ "sectionName": "http" })), ACCEPTED),
        (json!({ "namespaces": { "from": "All" } }), parent(json!({ "sectionName": "x" })), NO_PARENT),
        (json!({ "namespaces": { "from": "All" } }), parent(json!({ "port": 80 })), ACCEPTED),
        (json!({ "namespaces": { "from": "All" } }), parent(json!({ "port": 81 })), NO_PARENT),
    ] {
        let mut cluster = with_listeners(&[from(allowed.clone())]);
        cluster.put(
            ObjectKind::Namespace,
            json!({ "metadata": { "name": "shop", "labels": { "team": "shop" } } }),
        );
        let mut route = http_route("r", &[], &rules("cart"));
        route["spec"]["parentRefs"] = parents.clone();
        cluster.put(ObjectKind::HttpRoute, route);
        let translation = translated(&cluster);
        let told = conditions(&translation, ObjectKind::HttpRoute, "r");
        assert_eq!(told.split(' ').next(), Some(expected), "{allowed} {parents}");
        let served = if expected == ACCEPTED { "shop.cart.80" } else { "404" };
        assert_eq!(answer(&config(&translation), 80, "GET http://a.example/"), served, "{allowed} {parents}");
    }
}

#[test]
fn hosts_without_a_listener_are_reported() {
    let mut cluster = with_listeners(&[listener("http", 80, json!("a.example"))]);
    cluster.put(ObjectKind::HttpRoute, http_route("r", &["b.example"], &rules("cart")));
    let told = conditions(&translated(&cluster), ObjectKind::HttpRoute, "r");
    assert_eq!(told, "!Accepted=NoMatchingListenerHostname ResolvedRefs=ResolvedRefs");
}

#[test]
fn gateways_of_other_controllers_are_left_alone() {
    let mut cluster = cluster();
    cluster
        .put(ObjectKind::GatewayClass, object("", "other", json!({ "controllerName": "other.dev/gateway" })));
    let mut theirs = gateway("infra", "theirs", &json!([listener("http", 8080, Value::Null)]));
    theirs["spec"]["gatewayClassName"] = json!("other");
    cluster.put(ObjectKind::Gateway, theirs);
    let mut route = http_route("r", &[], &rules("cart"));
    route["spec"]["parentRefs"] = json!([
        { "name": "theirs", "namespace": "infra" }, { "name": "edge", "namespace": "infra" }, { "name": "gone" }
    ]);
    cluster.put(ObjectKind::HttpRoute, route);
    let translation = translated(&cluster);
    let names: Vec<&str> = translation.statuses.iter().map(|status| status.object.name.as_str()).collect();
    assert_eq!(names, ["vanward", "edge", "r"]);
    assert_eq!(
        conditions(&translation, ObjectKind::HttpRoute, "r"),
        "Accepted=Accepted ResolvedRefs=ResolvedRefs"
    );
}

#[test]
fn attached_routes_are_counted_for_each_listener() {
    let mut cluster =
        with_listeners(&[listener("a", 80, json!("a.example")), listener("b", 8080, Value::Null)]);
    cluster.put(ObjectKind::HttpRoute, http_route("x", &["a.example"], &rules("cart")));
    cluster.put(ObjectKind::HttpRoute, http_route("y", &["b.example"], &rules("gone")));
    let told = conditions(&translated(&cluster), ObjectKind::Gateway, "edge");
    assert!(told.contains("| a 1 [") && told.contains("| b 2 ["), "{told}");
    // Routes that are not accepted do not count, and one with two references to a listener counts once.
    let mut refused = http_route("z", &[], &rules("cart"));
    refused["spec"]["rules"][0]["unknown"] = json!(true);
    cluster.put(ObjectKind::HttpRoute, refused);
    let mut twice = http_route("w", &[], &rules("cart"));
    twice["spec"]["parentRefs"] = json!([{ "name": "edge", "namespace": "infra" }, { "name": "edge", "namespace": "infra", "sectionName": "b" }]);
    cluster.put(ObjectKind::HttpRoute, twice);
    let told = conditions(&translated(&cluster), ObjectKind::Gateway, "edge");
    assert!(told.contains("| a 2 [") && told.contains("| b 3 ["), "{told}");
}
