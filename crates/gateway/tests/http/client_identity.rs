//! The certificate that a gateway presents to servers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::scene::{
    answer, backend, cluster, conditions, config, gateway, http_route, listener, messages, object, translated,
};

const WELL: &str = "Accepted=Accepted ResolvedRefs=ResolvedRefs";

fn secret(namespace: &str, name: &str, text: &str) -> Value {
    let data = json!({ "tls.crt": BASE64_STANDARD.encode(text), "tls.key": BASE64_STANDARD.encode("key") });
    json!({ "metadata": { "namespace": namespace, "name": name }, "type": "kubernetes.io/tls", "data": data })
}

fn edge(name: &str, port: u16, reference: &Value) -> Value {
    let mut edge = gateway("infra", name, &json!([listener("http", port, Value::Null)]));
    if !reference.is_null() {
        edge["spec"]["tls"] = json!({ "backend": { "clientCertificateRef": reference } });
    }
    edge
}

/// A cluster with Secrets, a policy for `cart`, and a route by `/cart` and `/blog` at a gateway with a reference.
fn scene(reference: &Value) -> Cluster {
    let mut cluster = cluster();
    for (namespace, name, text) in [
        ("infra", "own", "own"),
        ("infra", "other", "other"),
        ("infra", "bad", "bad"),
        ("shop", "own", "shop's"),
    ] {
        cluster.put(ObjectKind::Secret, secret(namespace, name, text));
    }
    let mut opaque = secret("infra", "opaque", "own");
    opaque["type"] = json!("Opaque");
    cluster.put(ObjectKind::Secret, opaque);
    cluster.put(ObjectKind::Gateway, edge("edge", 80, reference));
    let targets = json!([{ "group": "", "kind": "Service", "name": "cart" }]);
    let validation = json!({ "hostname": "cart.internal", "wellKnownCACertificates": "System" });
    let policy = object("shop", "p", json!({ "targetRefs": targets, "validation": validation }));
    cluster.put(ObjectKind::BackendTlsPolicy, policy);
    let to = |name: &str| {
        let matches = json!([{ "path": { "type": "PathPrefix", "value": format!("/{name}") } }]);
        json!({ "matches": matches, "backendRefs": [backend(name)] })
    };
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &json!([to("cart"), to("blog")])));
    cluster
}

/// Describes the certificate for the servers behind a URL of a port: its text, or why there is none.
fn presented(translation: &Translation, port: u16, path: &str) -> String {
    let config = config(translation);
    let name = answer(&config, port, &format!("GET http://a.example{path}"));
    let Some(upstream) = config.upstreams.iter().find(|upstream| upstream.name == name) else { return name };
    match &upstream.tls.certificate {
        Some(pair) => {
            let file = |path: &std::path::Path| {
                String::from_utf8_lossy(&translation.files[path.to_str().expect("a name")]).into_owned()
            };
            format!("{} with {}", file(&pair.cert), file(&pair.key))
        }
        None => "none".to_owned(),
    }
}

#[test]
fn servers_with_tls_get_the_certificate_of_the_gateway() {
    let translation = translated(&scene(&json!({ "group": "", "kind": "Secret", "name": "own" })));
    assert_eq!(presented(&translation, 80, "/cart"), "own with key");
    // Without a policy there is no TLS.
    assert_eq!(presented(&translation, 80, "/blog"), "none");
    assert_eq!(conditions(&translation, ObjectKind::HttpRoute, "r"), WELL);
    assert_eq!(conditions(&translation, ObjectKind::BackendTlsPolicy, "p"), WELL);
    let told = conditions(&translation, ObjectKind::Gateway, "edge");
    assert!(told.starts_with("Accepted=Accepted Programmed=Programmed ResolvedRefs=ResolvedRefs"), "{told}");
    assert_eq!(presented(&translated(&scene(&Value::Null)), 80, "/cart"), "none");
}

#[test]
fn each_gateway_presents_its_own_certificate() {
    let mut cluster = scene(&json!({ "name": "own" }));
    cluster.put(ObjectKind::Gateway, edge("other", 8080, &json!({ "name": "other" })));
    cluster.put(ObjectKind::Gateway, edge("same", 8081, &json!({ "name": "own" })));
    cluster.put(ObjectKind::Gateway, edge("none", 8082, &Value::Null));
    cluster.put(ObjectKind::Gateway, edge("broken", 8083, &json!({ "name": "gone" })));
    let names = ["edge", "other", "same", "none", "broken"];
    let parents: Vec<Value> = names.map(|name| json!({ "name": name, "namespace": "infra" })).into();
    let rules = json!([{ "backendRefs": [backend("cart")] }]);
    let mut route = http_route("r", &[], &rules);
    route["spec"]["parentRefs"] = json!(parents);
    cluster.put(ObjectKind::HttpRoute, route);
    let translation = translated(&cluster);
    for (port, expected) in [
        (80, "own with key"),
        (8080, "other with key"),
        (8081, "own with key"),
        (8082, "none"),
        // Servers might take a request without a certificate for that of another client.
        (8083, "500"),
    ] {
        assert_eq!(presented(&translation, port, "/"), expected, "{port}");
    }
    let lost = "Accepted=Accepted !ResolvedRefs=InvalidClientCertificateRef";
    let told = conditions(&translation, ObjectKind::HttpRoute, "r");
    assert_eq!(told, [WELL, WELL, WELL, WELL, lost].join(" | "));
}

/// Gateways may share a port, so the names of routes must not collide.
#[test]
fn gateways_at_one_port_present_certificates_by_hostname() {
    let mut cluster = scene(&Value::Null);
    let named = |name: &str, host: &str, secret: &str| {
        let mut edge = gateway("infra", name, &json!([listener("http", 80, json!(host))]));
        edge["spec"]["tls"] = json!({ "backend": { "clientCertificateRef": { "name": secret } } });
        edge
    };
    cluster.put(ObjectKind::Gateway, named("edge", "a.example", "own"));
    cluster.put(ObjectKind::Gateway, named("other", "b.example", "other"));
    let mut route = http_route("r", &[], &json!([{ "backendRefs": [backend("cart")] }]));
    route["spec"]["parentRefs"] =
        json!([{ "name": "edge", "namespace": "infra" }, { "name": "other", "namespace": "infra" }]);
    cluster.put(ObjectKind::HttpRoute, route);
    let config = config(&translated(&cluster));
    for (host, expected) in
        [("a.example", "shop.cart.80.by.infra.own"), ("b.example", "shop.cart.80.by.infra.other")]
    {
        assert_eq!(answer(&config, 80, &format!("GET http://{host}/")), expected, "{host}");
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_reported_and_servers_get_no_requests() {
    let in_shop = || json!({ "name": "own", "namespace": "shop" });
    for (reference, reason, why) in [
        (json!({ "name": "gone" }), "InvalidClientCertificateRef", "Secret infra/gone does not exist"),
        (json!({ "name": "bad" }), "InvalidClientCertificateRef", "Secret infra/bad: it is bad"),
        (json!({ "name": "opaque" }), "InvalidClientCertificateRef", "its type is \"Opaque\""),
        (
            json!({ "name": "own", "kind": "ConfigMap" }),
            "InvalidClientCertificateRef",
            "only Secrets can have certificates",
        ),
        (
            json!({ "name": "own", "group": "a.example" }),
            "InvalidClientCertificateRef",
            "only Secrets can have certificates",
        ),
        (in_shop(), "RefNotPermitted", "no ReferenceGrant in shop permits it"),
    ] {
        let translation = translated(&scene(&reference));
        // The condition of the gateway affects no other.
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        let expected = format!("Accepted=Accepted Programmed=Programmed !ResolvedRefs={reason} | ");
        assert!(told.starts_with(&expected), "{reference}: {told}");
        let told = messages(&translation, ObjectKind::Gateway, "edge");
        assert!(told.contains(&format!("tls.backend: {why}")) || told.contains(why), "{reference}: {told}");
        let told = conditions(&translation, ObjectKind::HttpRoute, "r");
        assert_eq!(told, "Accepted=Accepted !ResolvedRefs=InvalidClientCertificateRef");
        assert_eq!(presented(&translation, 80, "/cart"), "500", "{reference}");
        assert_eq!(presented(&translation, 80, "/blog"), "none", "{reference}");
    }
    let mut cluster = scene(&in_shop());
    let from = json!([{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra" }]);
    let grant = json!({ "from": from, "to": [{ "group": "", "kind": "Secret", "name": "own" }] });
    cluster.put(ObjectKind::ReferenceGrant, object("shop", "g", grant));
    assert_eq!(presented(&translated(&cluster), 80, "/cart"), "shop's with key");
}

#[test]
fn unknown_settings_for_servers_are_refused() {
    let mut cluster = scene(&Value::Null);
    let mut edge = edge("edge", 80, &json!({ "name": "own" }));
    edge["spec"]["tls"]["backend"]["more"] = json!(1);
    cluster.put(ObjectKind::Gateway, edge);
    let translation = translated(&cluster);
    assert!(messages(&translation, ObjectKind::Gateway, "edge").contains("tls: not supported: more"));
    assert!(conditions(&translation, ObjectKind::Gateway, "edge").starts_with("!Accepted=Invalid"));
}

/// Bytes of TCPRoutes go to servers with TLS in the same way.
#[test]
fn tcp_routes_present_it_as_well() {
    let mut cluster = scene(&Value::Null);
    let db = json!({ "name": "db", "port": 5432, "protocol": "TCP", "allowedRoutes": { "namespaces": { "from": "All" } } });
    let mut edge = gateway("infra", "edge", &json!([db]));
    edge["spec"]["tls"] = json!({ "backend": { "clientCertificateRef": { "name": "own" } } });
    cluster.put(ObjectKind::Gateway, edge);
    let parents = json!([{ "name": "edge", "namespace": "infra" }]);
    let rules = json!([{ "backendRefs": [backend("cart")] }]);
    cluster.put(ObjectKind::TcpRoute, object("shop", "t", json!({ "parentRefs": parents, "rules": rules })));
    let config = config(&translated(&cluster));
    let db = config.listeners.iter().find(|listener| listener.address.port() == Some(5432)).expect("a port");
    let to: Vec<&str> = db.passes_on_to().map(|index| config.upstreams[index].name.as_str()).collect();
    assert_eq!(to, ["shop.cart.80.tcp.by.infra.own"]);
}
