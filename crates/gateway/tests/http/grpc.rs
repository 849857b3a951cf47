//! Routes of gRPC: methods as paths, HTTP/2 to servers.

use gateway::ObjectKind;
use serde_json::{Value, json};

use crate::scene::{
    answer_with, backend, cluster, conditions, config, http_route, messages, object, translated,
};

fn rule(method: Value, service: &str) -> Value {
    json!({ "matches": [{ "method": method }], "backendRefs": [backend(service)] })
}

#[test]
fn methods_are_paths_and_servers_are_asked_over_http_2() {
    let mut cluster = cluster();
    let rules = json!([
        rule(json!({ "service": "shop.Cart", "method": "Add" }), "cart"),
        rule(json!({ "service": "shop.Cart" }), "blog"),
        rule(json!({ "method": "Ping" }), "cart"),
        rule(json!({ "type": "RegularExpression", "service": "re[0-9]", "method": "A|B" }), "blog"),
        json!({ "matches": [{ "headers": [{ "name": "color", "value": "blue" }] }], "backendRefs": [backend("cart")] }),
    ]);
    cluster.put(ObjectKind::GrpcRoute, http_route("r", &["a.example"], &rules));
    let translation = translated(&cluster);
    assert_eq!(
        conditions(&translation, ObjectKind::GrpcRoute, "r"),
        "Accepted=Accepted ResolvedRefs=ResolvedRefs"
    );
    assert!(conditions(&translation, ObjectKind::Gateway, "edge").contains("| http 1 "));
    let config = config(&translation);
    for (path, fields, expected) in [
        ("/shop.Cart/Add", &[][..], "shop.cart.80.h2"),
        ("/shop.Cart/Remove", &[], "shop.blog.80.h2"),
        ("/shop.Cartoon/Add", &[], "404"),
        ("/any.Service/Ping", &[], "shop.cart.80.h2"),
        ("/any.Service/Pong", &[], "404"),
        ("/re7/B", &[], "shop.blog.80.h2"),
        ("/re7/C", &[], "404"),
        ("/any.Service/Pong", &[("color", "blue")], "shop.cart.80.h2"),
    ] {
        assert_eq!(
            answer_with(&config, 80, &format!("POST http://a.example{path}"), fields),
            expected,
            "{path}"
        );
    }
    assert!(config.upstreams.iter().all(|upstream| upstream.protocol == config::Protocol::Http2));
}

/// Both kinds may share a name and a host.
#[test]
fn routes_of_both_kinds_live_beside_each_other() {
    let mut cluster = cluster();
    cluster.put(
        ObjectKind::HttpRoute,
        http_route("r", &["a.example"], &json!([{ "backendRefs": [backend("blog")] }])),
    );
    let rules = json!([rule(json!({ "service": "shop.Cart" }), "cart")]);
    cluster.put(ObjectKind::GrpcRoute, http_route("r", &["a.example"], &rules));
    let config = config(&translated(&cluster));
    for (path, expected) in [("/shop.Cart/Add", "shop.cart.80.h2"), ("/x", "shop.blog.80")] {
        assert_eq!(answer_with(&config, 80, &format!("POST http://a.example{path}"), &[]), expected);
    }
}

#[test]
fn grants_and_kinds_are_those_of_grpc_routes() {
    let mut cluster = cluster();
    let from = json!([{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop" }]);
    cluster.put(
        ObjectKind::ReferenceGrant,
        object("other", "g", json!({ "from": from, "to": [{ "group": "", "kind": "Service" }] })),
    );
    let rules = json!([{ "backendRefs": [{ "name": "stock", "namespace": "other", "port": 80 }] }]);
    cluster.put(ObjectKind::GrpcRoute, http_route("r", &[], &rules));
    let told = conditions(&translated(&cluster), ObjectKind::GrpcRoute, "r");
    assert_eq!(told, "Accepted=Accepted !ResolvedRefs=RefNotPermitted");
}

#[test]
fn what_is_not_supported_is_told() {
    for (rule, expected) in [
        (json!({ "sessionPersistence": {} }), "not supported: sessionPersistence"),
        (
            json!({ "matches": [{ "method": { "type": "Glob", "service": "x" } }] }),
            "path of type Glob is not supported",
        ),
    ] {
        let mut cluster = cluster();
        cluster.put(ObjectKind::GrpcRoute, http_route("r", &[], &json!([rule])));
        let translation = translated(&cluster);
        assert!(
            conditions(&translation, ObjectKind::GrpcRoute, "r").starts_with("!Accepted=UnsupportedValue")
        );
        let told = messages(&translation, ObjectKind::GrpcRoute, "r");
        assert!(told.contains(expected), "{told}");
    }
}
