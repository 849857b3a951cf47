//! Certificates of clients at listeners of gateways.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::ClientCertificates;
use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::scene::{cluster, conditions, config, gateway, listener, messages, object, translated};

fn https(name: &str, port: u16, hostname: Value) -> Value {
    let mut listener = listener(name, port, hostname);
    listener["protocol"] = json!("HTTPS");
    listener["tls"] = json!({ "certificateRefs": [{ "name": "web" }] });
    listener
}

fn validation(map: &str) -> Value {
    json!({ "validation": { "caCertificateRefs": [{ "group": "", "kind": "ConfigMap", "name": map }] } })
}

/// A cluster with a gateway of these listeners, and CAs in ConfigMaps.
fn with(listeners: &[Value], tls: &Value) -> Cluster {
    let mut cluster = cluster();
    let data =
        json!({ "tls.crt": BASE64_STANDARD.encode("a.example"), "tls.key": BASE64_STANDARD.encode("k") });
    let metadata = json!({ "namespace": "infra", "name": "web" });
    cluster
        .put(ObjectKind::Secret, json!({ "metadata": metadata, "type": "kubernetes.io/tls", "data": data }));
    for (namespace, name, pem) in
        [("infra", "ca", "CA"), ("infra", "own", "own CA"), ("infra", "bad", "bad"), ("shop", "ca", "CA")]
    {
        let metadata = json!({ "namespace": namespace, "name": name });
        cluster.put(ObjectKind::ConfigMap, json!({ "metadata": metadata, "data": { "ca.crt": pem } }));
    }
    let mut edge = gateway("infra", "edge", &json!(listeners));
    edge["spec"]["tls"] = tls.clone();
    cluster.put(ObjectKind::Gateway, edge);
    cluster
}

/// Returns the rules of each port: that for all clients, and those by name.
fn rules(translation: &Translation) -> Vec<String> {
    let read = config(translation);
    let told = |asked: &ClientCertificates| match asked {
        ClientCertificates::None => "none".to_owned(),
        ClientCertificates::Optional(_) => "optional".to_owned(),
        ClientCertificates::Required(trust) => {
            String::from_utf8_lossy(&translation.files[trust.ca.to_str().unwrap()]).trim().to_owned()
        }
    };
    let of_listener = |listener: &config::Listener| {
        let tls = listener.tls.as_ref()?;
        let by_name = tls.client_rules.iter();
        let by_name =
            by_name.map(|rule| format!(" {}={}", rule.names.join(","), told(&rule.client_certificates)));
        let all = told(&tls.client_certificates);
        Some(format!("{}: {all}{}", listener.address.port()?, by_name.collect::<String>()))
    };
    read.listeners.iter().filter_map(of_listener).collect()
}

#[test]
fn clients_have_to_present_certificates_by_port() {
    let listeners = [
        listener("http", 80, Value::Null),
        https("all", 443, Value::Null),
        https("one", 443, json!("a.example")),
        https("below", 8443, json!("*.b.example")),
    ];
    for (frontend, expected) in [
        (json!({ "default": validation("ca") }), ["443: CA a.example=CA", "8443: none **.b.example=CA"]),
        (
            json!({ "default": validation("ca"), "perPort": [{ "port": 8443, "tls": validation("own") }] }),
            ["443: CA a.example=CA", "8443: none **.b.example=own CA"],
        ),
        (
            json!({ "default": validation("ca"), "perPort": [{ "port": 443, "tls": {} }] }),
            ["443: none", "8443: none **.b.example=CA"],
        ),
        (json!({}), ["443: none", "8443: none"]),
    ] {
        let translation = translated(&with(&listeners, &json!({ "frontend": frontend })));
        assert_eq!(rules(&translation), expected, "{frontend}");
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert!(!["!Accepted", "!ResolvedRefs"].iter().any(|fault| told.contains(fault)), "{told}");
    }
}

#[test]
fn a_rule_of_a_gateway_is_not_that_of_another() {
    let mut cluster =
        with(&[https("all", 443, Value::Null)], &json!({ "frontend": { "default": validation("ca") } }));
    let mut other = gateway(
        "infra",
        "other",
        &json!([https("one", 443, json!("a.example")), https("all", 443, Value::Null)]),
    );
    other["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    cluster.put(ObjectKind::Gateway, other);
    assert_eq!(rules(&translated(&cluster)), ["443: CA a.example=none"]);
}

#[test]
fn what_cannot_be_verified_is_not_served() {
    let elsewhere = |name: &str| {
        json!({ "validation": { "caCertificateRefs": [
            { "group": "", "kind": "ConfigMap", "name": name, "namespace": "shop" }] } })
    };
    let mut fallback = validation("ca");
    fallback["validation"]["mode"] = json!("AllowInsecureFallback");
    let mut secret = validation("ca");
    secret["validation"]["caCertificateRefs"][0]["kind"] = json!("Service");
    for (default, expected, why) in [
        (validation("gone"), "!Accepted=NoValidCACertificate", "ConfigMap infra/gone: it does not exist"),
        (validation("bad"), "!Accepted=NoValidCACertificate", "it is bad"),
        (elsewhere("ca"), "!Accepted=NoValidCACertificate", "no ReferenceGrant in shop permits it"),
        (secret, "!Accepted=NoValidCACertificate", "only ConfigMaps and Secrets can have CAs"),
        (fallback, "!Accepted=UnsupportedValue", "mode AllowInsecureFallback is not supported"),
        (json!({ "validation": { "x": 1 } }), "!Accepted=Invalid", "tls: not supported: x"),
    ] {
        let listeners = [https("all", 443, Value::Null)];
        let translation = translated(&with(&listeners, &json!({ "frontend": { "default": default } })));
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert!(told.contains(expected), "{default}: {told}");
        assert!(messages(&translation, ObjectKind::Gateway, "edge").contains(why), "{default}");
        assert!(rules(&translation).is_empty(), "{default}");
    }
    // One of several references is missing: the others count.
    let mut some = validation("ca");
    some["validation"]["caCertificateRefs"]
        .as_array_mut()
        .unwrap()
        .push(elsewhere("ca")["validation"]["caCertificateRefs"][0].clone());
    let mut cluster = with(&[https("all", 443, Value::Null)], &json!({ "frontend": { "default": some } }));
    let translation = translated(&cluster);
    assert!(conditions(&translation, ObjectKind::Gateway, "edge").contains("!ResolvedRefs=RefNotPermitted"));
    assert_eq!(rules(&translation), ["443: CA"]);
    let grant = json!({ "from": [{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra" }],
        "to": [{ "group": "", "kind": "ConfigMap" }] });
    cluster.put(ObjectKind::ReferenceGrant, object("shop", "g", grant));
    assert_eq!(rules(&translated(&cluster)), ["443: CA\nCA"]);
}
