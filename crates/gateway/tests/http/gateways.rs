//! Conditions of classes, gateways and their listeners.

use gateway::{Cluster, ObjectKind, StatusFindings};
use serde_json::{Value, json};

use crate::scene::{
    answer, backend, cluster, conditions, config, gateway, http_route, listener, messages, object, translated,
};

const WELL: &str =
    "Accepted=Accepted !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs Programmed=Programmed";

fn with_listeners(listeners: &[Value]) -> Cluster {
    let mut cluster = cluster();
    cluster.put(ObjectKind::Gateway, gateway("infra", "edge", &json!(listeners)));
    cluster
}

fn secured(certificates: Value) -> Value {
    json!({ "name": "https", "port": 443, "protocol": "HTTPS", "tls": { "mode": "Terminate", "certificateRefs": certificates } })
}

fn secret(cluster: &mut Cluster, namespace: &str, name: &str, kind: &str, certificate: &str) {
    use base64::Engine;
    let base64 = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
    let data = json!({ "tls.crt": base64(certificate), "tls.key": base64("key") });
    cluster.put(
        ObjectKind::Secret,
        json!({ "metadata": { "namespace": namespace, "name": name }, "type": kind, "data": data }),
    );
}

#[test]
fn a_gateway_that_is_served_says_so_and_where() {
    let translation = translated(&cluster());
    assert_eq!(conditions(&translation, ObjectKind::GatewayClass, "vanward"), "Accepted=Accepted");
    let told = conditions(&translation, ObjectKind::Gateway, "edge");
    assert_eq!(
        told,
        format!(
            "Accepted=Accepted Programmed=Programmed ResolvedRefs=ResolvedRefs | http 0 [\"HTTPRoute\", \"GRPCRoute\"]: {WELL}"
        )
    );
    let status = translation
        .statuses
        .iter()
        .find(|status| status.object.kind == ObjectKind::Gateway)
        .expect("a status");
    assert!(
        matches!(&status.found, StatusFindings::Gateway { addresses, .. } if addresses[0] == ("IPAddress", "192.0.2.1".to_owned()))
    );
}

#[test]
fn classes_with_parameters_are_refused_with_their_gateways() {
    let mut cluster = cluster();
    let spec = json!({ "controllerName": crate::scene::CONTROLLER, "parametersRef": { "kind": "ConfigMap", "name": "x" } });
    cluster.put(ObjectKind::GatewayClass, object("", "vanward", spec));
    let translation = translated(&cluster);
    assert_eq!(conditions(&translation, ObjectKind::GatewayClass, "vanward"), "!Accepted=InvalidParameters");
    assert!(translation.statuses.iter().all(|status| status.object.kind != ObjectKind::Gateway));
}

#[test]
fn listeners_that_cannot_be_served_say_why() {
    let with = |more: Value| {
        let mut listener = listener("http", 80, Value::Null);
        listener.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        listener
    };
    for (listener, expected) in [
        (
            with(json!({ "protocol": "UDP" })),
            "!Accepted=UnsupportedProtocol !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid",
        ),
        (
            with(json!({ "port": 81 })),
            "!Accepted=PortUnavailable !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid",
        ),
        (
            with(json!({ "allowedRoutes": { "kinds": [{ "kind": "TCPRoute" }] } })),
            "Accepted=Accepted !Conflicted=NoConflicts !ResolvedRefs=InvalidRouteKinds Programmed=Programmed",
        ),
        (
            with(json!({ "protocol": "HTTPS", "tls": { "mode": "Passthrough" } })),
            "!Accepted=UnsupportedValue !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid",
        ),
        // Ignoring it would admit every client.
        (
            with(json!({ "protocol": "HTTPS", "tls": { "frontendValidation": {} } })),
            "!Accepted=UnsupportedValue !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid",
        ),
        (
            secured(json!([])),
            "Accepted=Accepted !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid",
        ),
    ] {
        let told = conditions(
            &translated(&with_listeners(std::slice::from_ref(&listener))),
            ObjectKind::Gateway,
            "edge",
        );
        assert!(told.ends_with(expected), "{listener}\n{told}");
    }
}

#[test]
fn one_listener_that_is_well_keeps_a_gateway_accepted() {
    for (listeners, expected) in [
        (
            vec![listener("a", 80, Value::Null), listener("b", 81, Value::Null)],
            "Accepted=ListenersNotValid Programmed=Programmed",
        ),
        (vec![listener("b", 81, Value::Null)], "!Accepted=ListenersNotValid !Programmed=Invalid"),
        (
            vec![listener("a", 80, Value::Null), secured(json!([{ "name": "gone" }]))],
            "Accepted=ListenersNotValid Programmed=Programmed !ResolvedRefs=ListenersNotResolved",
        ),
    ] {
        let told = conditions(&translated(&with_listeners(&listeners)), ObjectKind::Gateway, "edge");
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn certificates_come_from_secrets_that_may_be_used() {
    const TLS: &str = "kubernetes.io/tls";
    for (wanted, expected) in [
        (json!([{ "name": "good" }]), "ResolvedRefs=ResolvedRefs Programmed=Programmed"),
        (json!([{ "name": "bad" }]), "!ResolvedRefs=InvalidCertificateRef !Programmed=Invalid"),
        (json!([{ "name": "opaque" }]), "!ResolvedRefs=InvalidCertificateRef !Programmed=Invalid"),
        (json!([{ "name": "gone" }]), "!ResolvedRefs=InvalidCertificateRef !Programmed=Invalid"),
        (
            json!([{ "name": "good", "kind": "ConfigMap" }]),
            "!ResolvedRefs=InvalidCertificateRef !Programmed=Invalid",
        ),
        (
            json!([{ "name": "theirs", "namespace": "shop" }]),
            "!ResolvedRefs=RefNotPermitted !Programmed=Invalid",
        ),
        (
            json!([{ "name": "theirs", "namespace": "granted" }]),
            "ResolvedRefs=ResolvedRefs Programmed=Programmed",
        ),
        (
            json!([{ "name": "good" }, { "name": "gone" }]),
            "!ResolvedRefs=InvalidCertificateRef Programmed=Programmed",
        ),
    ] {
        let mut cluster = with_listeners(&[secured(wanted.clone())]);
        secret(&mut cluster, "infra", "good", TLS, "good");
        secret(&mut cluster, "infra", "bad", TLS, "bad");
        secret(&mut cluster, "infra", "opaque", "Opaque", "good");
        secret(&mut cluster, "shop", "theirs", TLS, "good");
        secret(&mut cluster, "granted", "theirs", TLS, "good");
        let from = json!([{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra" }]);
        cluster.put(
            ObjectKind::ReferenceGrant,
            object("granted", "g", json!({ "from": from, "to": [{ "group": "", "kind": "Secret" }] })),
        );
        let translation = translated(&cluster);
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert!(told.ends_with(expected), "{wanted}\n{told}");
        let has_keys =
            translation.files.iter().any(|(name, content)| name.ends_with("tls.key") && content == b"key");
        assert_eq!(
            has_keys,
            expected.ends_with("Programmed=Programmed") && !expected.ends_with("!Programmed=Invalid")
        );
        assert!(!translation.written.text.contains("good\""), "no content of a secret is in the text");
        config(&translation);
    }
}

fn given(cluster: &Cluster) -> (String, config::UnknownNames) {
    let translation = translated(cluster);
    let config = config(&translation);
    let listener = config.listeners.iter().find(|listener| listener.address.port() == Some(443));
    let tls = listener.expect("a listener").tls.as_ref().expect("TLS");
    let config::Certificates::Files(files) = &tls.certificates else { panic!("no files") };
    let one = |files: &config::CertificateFiles| {
        let name = files.pair.cert.to_str().expect("a name").trim_end_matches("/tls.crt");
        format!("{} {}", name.trim_start_matches("kubernetes:infra/"), files.names.join(" "))
    };
    (files.iter().map(one).collect::<Vec<_>>().join(" | "), tls.unknown_names)
}

#[test]
fn a_certificate_is_for_the_hostname_of_its_listener() {
    let https = |name: &str, host: Value, secrets: &[&str]| {
        let secrets: Vec<Value> = secrets.iter().map(|name| json!({ "name": name })).collect();
        let mut listener = secured(json!(secrets));
        listener["name"] = json!(name);
        listener["hostname"] = host;
        listener
    };
    for (listeners, expected, unknown) in [
        (vec![https("a", Value::Null, &["x"])], "x *", config::UnknownNames::Default),
        (vec![https("a", json!("A.example"), &["x"])], "x a.example", config::UnknownNames::Refuse),
        (
            vec![https("a", json!("*.example"), &["x"]), https("b", json!("b.example"), &["y"])],
            "x **.example | y b.example",
            config::UnknownNames::Refuse,
        ),
        (
            vec![https("a", Value::Null, &["x"]), https("b", json!("b.example"), &["x"])],
            "x * b.example",
            config::UnknownNames::Default,
        ),
        // Each certificate serves its own names, except those of a more specific listener; the first serves all others.
        (
            vec![https("a", json!("*.example"), &["x", "names"]), https("b", json!("b.example"), &["y"])],
            "x **.example | names a.example *.c.example | y b.example",
            config::UnknownNames::Refuse,
        ),
        (
            vec![https("a", Value::Null, &["names", "x"])],
            "names a.example b.example *.c.example d.other * | x x.other",
            config::UnknownNames::Default,
        ),
    ] {
        let mut cluster = with_listeners(&listeners);
        for (name, names) in [
            ("x", "x.other"),
            ("y", "x.other"),
            ("names", "a.example b.example *.c.example d.other 10.0.0.1"),
        ] {
            secret(&mut cluster, "infra", name, "kubernetes.io/tls", names);
        }
        assert_eq!(given(&cluster), (expected.to_owned(), unknown), "{listeners:?}");
    }
}

#[test]
fn no_gateway_takes_over_the_hostname_of_an_older_one() {
    let mut cluster = cluster();
    for (name, host, secret_name, created) in
        [("one", "a.example", "x", "2026-01-02T00:00:00Z"), ("two", "a.example", "y", "2026-01-03T00:00:00Z")]
    {
        let mut listener = secured(json!([{ "name": secret_name }]));
        listener["hostname"] = json!(host);
        let mut gateway = gateway("infra", name, &json!([listener]));
        gateway["metadata"]["creationTimestamp"] = json!(created);
        cluster.put(ObjectKind::Gateway, gateway);
        secret(&mut cluster, "infra", secret_name, "kubernetes.io/tls", "a.example");
    }
    assert_eq!(given(&cluster).0, "x a.example");
}

#[test]
fn indistinguishable_listeners_are_in_conflict() {
    let conflicts = |listeners: &[Value]| {
        let told = conditions(&translated(&with_listeners(listeners)), ObjectKind::Gateway, "edge");
        let words = told.split_whitespace().filter(|word| word.contains("Conflicted="));
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let none = "!Conflicted=NoConflicts";
    let (a, b) = (json!("a.example"), json!("A.example"));
    assert_eq!(
        conflicts(&[listener("x", 80, a.clone()), listener("y", 80, b)]),
        ["Conflicted=HostnameConflict"; 2]
    );
    assert_eq!(conflicts(&[listener("x", 80, a.clone()), listener("y", 80, Value::Null)]), [none; 2]);
    assert_eq!(conflicts(&[listener("x", 80, a.clone()), listener("y", 8080, a)]), [none; 2]);
    let mut https = secured(json!([]));
    https["port"] = json!(80);
    assert_eq!(conflicts(&[listener("x", 80, Value::Null), https]), ["Conflicted=ProtocolConflict"; 2]);
}

#[test]
fn gateways_share_ports_and_the_oldest_one_decides_what_is_spoken() {
    let mut cluster = cluster();
    let mut later = gateway("infra", "later", &json!([listener("http", 80, json!("later.example"))]));
    later["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    cluster.put(ObjectKind::Gateway, later);
    secret(&mut cluster, "infra", "good", "kubernetes.io/tls", "good");
    let mut https = secured(json!([{ "name": "good" }]));
    https["port"] = json!(80);
    let mut latest = gateway("infra", "latest", &json!([https]));
    latest["metadata"]["creationTimestamp"] = json!("2026-03-01T00:00:00Z");
    cluster.put(ObjectKind::Gateway, latest);
    let mut route = http_route("r", &[], &json!([{ "backendRefs": [backend("cart")] }]));
    route["spec"]["parentRefs"][0]["name"] = json!("later");
    cluster.put(ObjectKind::HttpRoute, route);
    let translation = translated(&cluster);
    assert!(
        conditions(&translation, ObjectKind::Gateway, "later")
            .contains("Programmed=Programmed ResolvedRefs=ResolvedRefs | http 1")
    );
    assert!(conditions(&translation, ObjectKind::Gateway, "latest").contains("!Accepted=PortUnavailable"));
    assert!(
        messages(&translation, ObjectKind::Gateway, "latest")
            .contains("port 80 has another protocol in Gateway infra/edge")
    );
    assert_eq!(answer(&config(&translation), 80, "GET http://later.example/"), "shop.cart.80");
}

#[test]
fn addresses_are_one_ip_address_or_refused() {
    for (addresses, expected) in [
        (json!([{ "type": "IPAddress", "value": "127.0.0.9" }]), "Accepted=Accepted Programmed=Programmed"),
        (json!([{ "value": "127.0.0.9" }]), "Accepted=Accepted Programmed=Programmed"),
        (
            json!([{ "type": "Hostname", "value": "a.example" }]),
            "!Accepted=UnsupportedAddress !Programmed=Invalid",
        ),
        (json!([{ "value": "x" }]), "!Accepted=UnsupportedAddress !Programmed=Invalid"),
        (
            json!([{ "value": "127.0.0.9" }, { "value": "127.0.0.8" }]),
            "!Accepted=UnsupportedAddress !Programmed=Invalid",
        ),
    ] {
        let mut cluster = cluster();
        let mut edge = gateway("infra", "edge", &json!([listener("http", 80, Value::Null)]));
        edge["spec"]["addresses"] = addresses.clone();
        cluster.put(ObjectKind::Gateway, edge);
        let translation = translated(&cluster);
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert!(told.starts_with(expected), "{addresses} {told}");
        let is_there = translation.written.text.contains("address = \"127.0.0.9:80\"");
        assert_eq!(is_there, expected.starts_with("Accepted"));
    }
}
