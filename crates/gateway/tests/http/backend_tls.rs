//! TLS to servers by policies.

use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::scene::{answer, backend, cluster, conditions, config, http_route, messages, object, translated};

const WELL: &str = "Accepted=Accepted ResolvedRefs=ResolvedRefs";

/// A cluster with a route to `cart`, and ConfigMaps and a Secret with CAs.
fn scene() -> Cluster {
    use base64::Engine;
    let mut cluster = cluster();
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &json!([{ "backendRefs": [backend("cart")] }])));
    for (name, data) in [
        ("good", json!({ "ca.crt": "good" })),
        ("bad", json!({ "ca.crt": "bad" })),
        ("none", json!({ "x": "y" })),
    ] {
        let map = json!({ "metadata": { "namespace": "shop", "name": name }, "data": data });
        cluster.put(ObjectKind::ConfigMap, map);
    }
    let data = json!({ "ca.crt": base64::prelude::BASE64_STANDARD.encode("secret") });
    let secret = json!({ "metadata": { "namespace": "shop", "name": "ca" }, "type": "kubernetes.io/tls", "data": data });
    cluster.put(ObjectKind::Secret, secret);
    cluster
}

fn policy(name: &str, more: Value) -> Value {
    let mut spec = json!({ "targetRefs": [{ "group": "", "kind": "Service", "name": "cart" }],
        "validation": { "hostname": "cart.internal", "caCertificateRefs": [reference("ConfigMap", "good")] } });
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    object("shop", name, spec)
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "group": "", "kind": kind, "name": name })
}

fn validated(validation: Value) -> Value {
    policy("p", json!({ "validation": validation }))
}

/// Describes the servers of `cart`, their required name, and the CAs.
fn asked(translation: &Translation) -> String {
    let config = config(translation);
    let upstream = config.upstreams.iter().find(|upstream| upstream.name == "shop.cart.80").expect("cart");
    let file = upstream.tls.ca.as_ref().map(|file| file.to_str().expect("a name"));
    let authorities = file.map(|file| String::from_utf8_lossy(&translation.files[file]).trim().to_owned());
    format!("{} {:?} {authorities:?}", upstream.servers[0], upstream.tls.name.as_deref().unwrap_or_default())
}

#[test]
fn servers_are_asked_for_their_name_by_tls_and_have_to_prove_it() {
    for (policy, expected) in [
        (policy("p", json!({})), r#"https://10.0.0.1:8080 "cart.internal" Some("good")"#),
        (
            validated(
                json!({ "hostname": "cart.internal", "caCertificateRefs": [reference("Secret", "ca")] }),
            ),
            r#"https://10.0.0.1:8080 "cart.internal" Some("secret")"#,
        ),
        (
            validated(json!({ "hostname": "cart.internal", "wellKnownCACertificates": "System" })),
            r#"https://10.0.0.1:8080 "cart.internal" None"#,
        ),
        (
            policy(
                "p",
                json!({ "targetRefs": [{ "group": "", "kind": "Service", "name": "cart", "sectionName": "web" }] }),
            ),
            r#"https://10.0.0.1:8080 "cart.internal" Some("good")"#,
        ),
        (
            policy(
                "p",
                json!({ "targetRefs": [{ "group": "", "kind": "Service", "name": "cart", "sectionName": "x" }] }),
            ),
            r#"http://10.0.0.1:8080 "" None"#,
        ),
        (
            validated(json!({ "hostname": "a.b", "wellKnownCACertificates": "System",
                "subjectAltNames": [{ "type": "Hostname", "hostname": "a.b" }] })),
            r#"https://10.0.0.1:8080 "a.b" None"#,
        ),
    ] {
        let mut cluster = scene();
        cluster.put(ObjectKind::BackendTlsPolicy, policy.clone());
        assert_eq!(asked(&translated(&cluster)), expected, "{policy}");
    }
}

#[test]
fn servers_whose_policy_cannot_be_obeyed_are_not_asked() {
    let authorities =
        |references: Value| validated(json!({ "hostname": "a.b", "caCertificateRefs": references }));
    for (policy, expected) in [
        (
            authorities(json!([reference("ConfigMap", "gone")])),
            "!Accepted=NoValidCACertificate !ResolvedRefs=InvalidCACertificateRef",
        ),
        (
            authorities(json!([reference("ConfigMap", "bad")])),
            "!Accepted=NoValidCACertificate !ResolvedRefs=InvalidCACertificateRef",
        ),
        (
            authorities(json!([reference("ConfigMap", "none")])),
            "!Accepted=NoValidCACertificate !ResolvedRefs=InvalidCACertificateRef",
        ),
        (
            authorities(json!([reference("Bucket", "good")])),
            "!Accepted=NoValidCACertificate !ResolvedRefs=InvalidKind",
        ),
        (validated(json!({ "hostname": "a.b" })), "!Accepted=Invalid ResolvedRefs=ResolvedRefs"),
        (
            validated(json!({ "hostname": "a.b", "wellKnownCACertificates": "Mine" })),
            "!Accepted=Invalid ResolvedRefs=ResolvedRefs",
        ),
        (
            validated(json!({ "hostname": "10.0.0.1", "wellKnownCACertificates": "System" })),
            "!Accepted=Invalid ResolvedRefs=ResolvedRefs",
        ),
        (
            validated(json!({ "hostname": "a.b", "wellKnownCACertificates": "System",
                "subjectAltNames": [{ "type": "URI", "uri": "spiffe://a/b" }] })),
            "!Accepted=Invalid ResolvedRefs=ResolvedRefs",
        ),
        (
            validated(json!({ "hostname": "a.b", "wellKnownCACertificates": "System", "more": 1 })),
            "!Accepted=Invalid ResolvedRefs=ResolvedRefs",
        ),
        (policy("p", json!({ "options": { "x/y": "z" } })), "!Accepted=Invalid ResolvedRefs=ResolvedRefs"),
    ] {
        let mut cluster = scene();
        cluster.put(ObjectKind::BackendTlsPolicy, policy.clone());
        let translation = translated(&cluster);
        assert_eq!(conditions(&translation, ObjectKind::BackendTlsPolicy, "p"), expected, "{policy}");
        assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "500", "{policy}");
        let route = conditions(&translation, ObjectKind::HttpRoute, "r");
        assert_eq!(route, "Accepted=Accepted !ResolvedRefs=InvalidBackendTLSPolicy", "{policy}");
    }
}

#[test]
fn a_missing_authority_among_several_is_reported() {
    let mut cluster = scene();
    let references = json!([reference("ConfigMap", "good"), reference("ConfigMap", "gone")]);
    cluster.put(
        ObjectKind::BackendTlsPolicy,
        validated(json!({ "hostname": "a.b", "caCertificateRefs": references })),
    );
    let translation = translated(&cluster);
    let told = conditions(&translation, ObjectKind::BackendTlsPolicy, "p");
    assert_eq!(told, "Accepted=Accepted !ResolvedRefs=InvalidCACertificateRef");
    assert_eq!(
        messages(&translation, ObjectKind::BackendTlsPolicy, "p"),
        "ConfigMap shop/gone: it does not exist"
    );
    assert_eq!(asked(&translation), r#"https://10.0.0.1:8080 "a.b" Some("good")"#);
}

#[test]
fn the_older_policy_holds_and_one_for_a_port_before_one_for_all() {
    let created = |mut policy: Value, at: &str| {
        policy["metadata"]["creationTimestamp"] = json!(at);
        policy
    };
    let named = |name: &str, host: &str| {
        policy(name, json!({ "validation": { "hostname": host, "wellKnownCACertificates": "System" } }))
    };
    let mut cluster = scene();
    cluster.put(ObjectKind::BackendTlsPolicy, created(named("a", "later.example"), "2026-02-01T00:00:00Z"));
    cluster.put(ObjectKind::BackendTlsPolicy, created(named("z", "first.example"), "2026-01-02T00:00:00Z"));
    let translation = translated(&cluster);
    assert_eq!(asked(&translation), r#"https://10.0.0.1:8080 "first.example" None"#);
    assert_eq!(conditions(&translation, ObjectKind::BackendTlsPolicy, "z"), WELL);
    let told = conditions(&translation, ObjectKind::BackendTlsPolicy, "a");
    assert_eq!(told, "!Accepted=Conflicted ResolvedRefs=ResolvedRefs");
    assert_eq!(
        messages(&translation, ObjectKind::BackendTlsPolicy, "a"),
        "BackendTLSPolicy shop/z has one of its targets, and takes precedence"
    );
    let target = json!([{ "group": "", "kind": "Service", "name": "cart", "sectionName": "web" }]);
    let mut of_port = named("port", "port.example");
    of_port["spec"]["targetRefs"] = target;
    cluster.put(ObjectKind::BackendTlsPolicy, created(of_port, "2026-03-01T00:00:00Z"));
    let translation = translated(&cluster);
    assert_eq!(asked(&translation), r#"https://10.0.0.1:8080 "port.example" None"#);
    assert_eq!(conditions(&translation, ObjectKind::BackendTlsPolicy, "port"), WELL);
}

#[test]
fn policies_have_a_status_for_each_affected_gateway() {
    let mut cluster = scene();
    cluster.put(ObjectKind::BackendTlsPolicy, policy("p", json!({})));
    let found = |cluster: &Cluster| {
        let translation = translated(cluster);
        let status = translation
            .statuses
            .iter()
            .find(|status| status.object.kind == ObjectKind::BackendTlsPolicy)
            .expect("a status");
        status.changed(&Value::Null, crate::scene::CONTROLLER, "2026-01-01T00:00:00Z")
    };
    let status = found(&cluster).expect("it has one");
    assert_eq!(
        status["ancestors"][0]["ancestorRef"],
        json!({ "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": "edge" })
    );
    assert_eq!(status["ancestors"][0]["controllerName"], crate::scene::CONTROLLER);
    assert_eq!(status["ancestors"].as_array().map(Vec::len), Some(1));
    // No gateway leads to the service.
    cluster.put(ObjectKind::HttpRoute, http_route("r", &[], &json!([{ "backendRefs": [backend("blog")] }])));
    assert_eq!(found(&cluster), None);
}

#[test]
fn protocols_of_ports_go_with_tls_or_say_why_not() {
    for (protocol, is_secure, expected) in [
        ("https", true, "https://10.0.0.1:8080"),
        ("HTTPS", true, "https://10.0.0.1:8080"),
        ("kubernetes.io/wss", true, "https://10.0.0.1:8080"),
        ("http", true, "https://10.0.0.1:8080"),
        ("https", false, "needs a BackendTLSPolicy"),
        ("kubernetes.io/h2c", true, "has no TLS"),
    ] {
        let mut cluster = scene();
        let spec = json!({ "ports": [{ "name": "web", "port": 80, "appProtocol": protocol }] });
        cluster.put(ObjectKind::Service, object("shop", "cart", spec));
        if is_secure {
            cluster.put(ObjectKind::BackendTlsPolicy, policy("p", json!({})));
        }
        let translation = translated(&cluster);
        match expected.starts_with("https") {
            true => assert!(asked(&translation).starts_with(expected), "{protocol}"),
            false => {
                assert!(messages(&translation, ObjectKind::HttpRoute, "r").contains(expected), "{protocol}");
            }
        }
    }
}
