//! Backends: services with weights, missing references, endpoints.

use gateway::ObjectKind;
use serde_json::{Value, json};

use crate::scene::{answer, backend, cluster, conditions, config, http_route, messages, object, translated};

fn weighted(name: &str, weight: u32) -> Value {
    json!({ "name": name, "port": 80, "weight": weight })
}

#[test]
fn weights_share_requests_and_references_that_lead_nowhere_get_500() {
    for (backends, expected, reference) in [
        (json!([backend("cart")]), "shop.cart.80", "ResolvedRefs=ResolvedRefs"),
        (
            json!([weighted("cart", 9), weighted("blog", 1)]),
            "shop.cart.80=9 shop.blog.80=1",
            "ResolvedRefs=ResolvedRefs",
        ),
        (json!([weighted("cart", 9), weighted("blog", 0)]), "shop.cart.80", "ResolvedRefs=ResolvedRefs"),
        (json!([weighted("cart", 2), weighted("cart", 1)]), "shop.cart.80", "ResolvedRefs=ResolvedRefs"),
        (json!([weighted("cart", 0)]), "500", "ResolvedRefs=ResolvedRefs"),
        (json!([]), "500", "ResolvedRefs=ResolvedRefs"),
        (
            json!([weighted("cart", 1_000_000), weighted("blog", 1)]),
            "shop.cart.80=1000 shop.blog.80=1",
            "ResolvedRefs=ResolvedRefs",
        ),
        (json!([backend("gone")]), "500", "!ResolvedRefs=BackendNotFound"),
        (json!([{ "name": "cart", "port": 81 }]), "500", "!ResolvedRefs=BackendNotFound"),
        (json!([{ "name": "cart" }]), "500", "!ResolvedRefs=BackendNotFound"),
        (
            json!([weighted("cart", 1), weighted("gone", 3)]),
            "shop.cart.80=1 invalid-backend=3",
            "!ResolvedRefs=BackendNotFound",
        ),
        (
            json!([{ "name": "cart", "kind": "Bucket", "group": "x.dev", "port": 80 }]),
            "500",
            "!ResolvedRefs=InvalidKind",
        ),
        (
            json!([{ "name": "stock", "namespace": "other", "port": 80 }]),
            "500",
            "!ResolvedRefs=RefNotPermitted",
        ),
    ] {
        let mut cluster = cluster();
        cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &json!([{ "backendRefs": backends }])));
        let translation = translated(&cluster);
        assert_eq!(answer(&config(&translation), 80, "GET http://a/"), expected, "{backends}");
        let told = conditions(&translation, ObjectKind::HttpRoute, "r");
        assert_eq!(told, format!("Accepted=Accepted {reference}"), "{backends}");
    }
}

#[test]
fn invalid_backends_fail_and_those_without_servers_are_unavailable() {
    let mut cluster = cluster();
    let rules = json!([{ "backendRefs": [backend("empty"), weighted("gone", 1)] }]);
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
    let config = config(&translated(&cluster));
    let told = config.upstreams.iter().map(|upstream| {
        assert!(upstream.servers.iter().all(|server| server.down));
        (upstream.name.as_str(), format!("{:?}", upstream.settings.none_up))
    });
    let told: Vec<(&str, String)> = told.collect();
    assert_eq!(told, [("shop.empty.80", "TryAll".to_owned()), ("invalid-backend", "Fail".to_owned())]);
}

#[test]
fn grants_permit_references_to_other_namespaces() {
    let grant = |from: Value, to: Value| {
        let mut from_all =
            json!({ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop" });
        from_all.as_object_mut().expect("an object").extend(from.as_object().expect("an object").clone());
        let mut to_all = json!({ "group": "", "kind": "Service" });
        to_all.as_object_mut().expect("an object").extend(to.as_object().expect("an object").clone());
        json!({ "from": [from_all], "to": [to_all] })
    };
    for (namespace, grant, permitted) in [
        ("other", grant(json!({}), json!({})), true),
        ("other", grant(json!({}), json!({ "name": "stock" })), true),
        ("other", grant(json!({}), json!({ "name": "x" })), false),
        ("other", grant(json!({}), json!({ "kind": "Secret" })), false),
        ("other", grant(json!({ "namespace": "x" }), json!({})), false),
        ("other", grant(json!({ "kind": "GRPCRoute" }), json!({})), false),
        ("shop", grant(json!({}), json!({})), false),
    ] {
        let mut cluster = cluster();
        cluster.put(ObjectKind::ReferenceGrant, object(namespace, "g", grant.clone()));
        let rules = json!([{ "backendRefs": [{ "name": "stock", "namespace": "other", "port": 80 }] }]);
        cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &rules));
        let expected = if permitted { "other.stock.80" } else { "500" };
        assert_eq!(answer(&config(&translated(&cluster)), 80, "GET http://a/"), expected, "{grant}");
    }
}

#[test]
fn servers_are_the_ready_endpoints_of_the_port_and_of_one_family() {
    let mut cluster = cluster();
    let spec = json!({ "ports": [{ "name": "web", "port": 80 }, { "name": "more", "port": 81 }], "ipFamilies": ["IPv4"] });
    cluster.put(ObjectKind::Service, object("shop", "cart", spec));
    let slice = |name: &str, endpoints: Value, port: u16| {
        json!({ "metadata": { "namespace": "shop", "name": name, "labels": { "kubernetes.io/service-name": "cart" } },
            "endpoints": endpoints, "ports": [{ "name": "more", "port": 1 }, { "name": "web", "port": port }] })
    };
    let endpoints = json!([
        { "addresses": ["10.0.0.3"] },
        { "addresses": ["10.0.0.4"], "conditions": { "ready": true } },
        { "addresses": ["10.0.0.5"], "conditions": { "ready": false } },
    ]);
    cluster.put(ObjectKind::EndpointSlice, slice("cart-1", endpoints, 9000));
    cluster.put(
        ObjectKind::EndpointSlice,
        slice("cart-2", json!([{ "addresses": ["10.0.0.2"] }, { "addresses": ["10.0.0.4"] }]), 9001),
    );
    cluster.put(ObjectKind::EndpointSlice, slice("cart-6", json!([{ "addresses": ["fd00::1"] }]), 9000));
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &json!([{ "backendRefs": [backend("cart")] }])));
    let servers = |cluster: &gateway::Cluster| {
        let config = config(&translated(cluster));
        config.upstreams[0].servers.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let four =
        ["http://10.0.0.2:9001", "http://10.0.0.3:9000", "http://10.0.0.4:9000", "http://10.0.0.4:9001"];
    assert_eq!(servers(&cluster), four);
    // The slice now belongs to another service.
    let mut moved = slice("cart-1", json!([{ "addresses": ["10.0.0.3"] }]), 9000);
    moved["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "blog" });
    cluster.put(ObjectKind::EndpointSlice, moved);
    assert_eq!(servers(&cluster), ["http://10.0.0.2:9001", "http://10.0.0.4:9001"]);
    for slice in cluster.all(ObjectKind::EndpointSlice).into_iter().filter(|slice| slice.name == "cart-2") {
        cluster.remove(&slice);
    }
    assert_eq!(servers(&cluster), ["http://[fd00::1]:9000"]);
}

#[test]
fn protocols_of_ports_are_spoken_or_refused() {
    for (protocol, expected) in [
        (json!("kubernetes.io/h2c"), "shop.cart.80.h2"),
        (json!("kubernetes.io/ws"), "shop.cart.80"),
        (json!("http"), "shop.cart.80"),
        (json!("kubernetes.io/wss"), "UnsupportedProtocol"),
        (json!("mongo"), "UnsupportedProtocol"),
    ] {
        let mut cluster = cluster();
        let spec = json!({ "ports": [{ "name": "web", "port": 80, "appProtocol": protocol }] });
        cluster.put(ObjectKind::Service, object("shop", "cart", spec));
        cluster
            .put(ObjectKind::HttpRoute, http_route("r", &[], &json!([{ "backendRefs": [backend("cart")] }])));
        let translation = translated(&cluster);
        if expected == "UnsupportedProtocol" {
            assert!(
                conditions(&translation, ObjectKind::HttpRoute, "r")
                    .ends_with("!ResolvedRefs=UnsupportedProtocol")
            );
        } else {
            assert_eq!(answer(&config(&translation), 80, "GET http://a/"), expected);
        }
    }
}

#[test]
fn external_names_are_refused() {
    let mut cluster = cluster();
    let spec = json!({ "type": "ExternalName", "externalName": "localhost", "ports": [{ "port": 80 }] });
    cluster.put(ObjectKind::Service, object("shop", "cart", spec));
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &json!([{ "backendRefs": [backend("cart")] }])));
    let translation = translated(&cluster);
    assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "500");
    assert_eq!(
        messages(&translation, ObjectKind::HttpRoute, "r"),
        "Service shop/cart is an ExternalName, which is not supported"
    );
}
