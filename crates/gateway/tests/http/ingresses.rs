//! Ingresses: effects of their hosts, paths and annotations.

use gateway::{Cluster, ObjectKind, StatusFindings, Translation};
use serde_json::{Value, json};

use crate::scene::{answer, cluster, config, object, path_for_servers, translated};

pub(crate) fn scene() -> Cluster {
    let mut cluster = cluster();
    for (name, controller) in [("vanward", crate::scene::CONTROLLER), ("other", "x.dev/ingress")] {
        cluster.put(ObjectKind::IngressClass, object("", name, json!({ "controller": controller })));
    }
    cluster
}

pub(crate) fn ingress(name: &str, annotations: &[(&str, &str)], spec: Value) -> Value {
    let mut all = json!({ "ingressClassName": "vanward" });
    all.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    let mut object = object("shop", name, all);
    for (name, value) in annotations {
        object["metadata"]["annotations"][format!("nginx.ingress.kubernetes.io/{name}")] = json!(value);
    }
    object
}

pub(crate) fn path(kind: &str, path: &str, service: &str) -> Value {
    json!({ "path": path, "pathType": kind, "backend": to(service) })
}

fn to(service: &str) -> Value {
    json!({ "service": { "name": service, "port": { "number": 80 } } })
}

pub(crate) fn host(host: &str, paths: &[Value]) -> Value {
    json!({ "rules": [{ "host": host, "http": { "paths": paths } }] })
}

fn with(ingress: &Value) -> Translation {
    let mut cluster = scene();
    cluster.put(ObjectKind::Ingress, ingress.clone());
    translated(&cluster)
}

pub(crate) fn remarks(translation: &Translation) -> Vec<String> {
    translation.remarks.iter().map(|(object, why)| format!("{object}: {why}")).collect()
}

#[test]
fn requests_go_by_host_and_path_to_services() {
    let paths = [path("Prefix", "/", "blog"), path("Prefix", "/a/", "cart"), path("Exact", "/a/b", "blog")];
    let mut spec = host("a.example", &paths);
    let named = json!({ "service": { "name": "cart", "port": { "name": "web" } } });
    let wildcard = json!([{ "path": "/", "pathType": "ImplementationSpecific", "backend": named }]);
    spec["rules"]
        .as_array_mut()
        .expect("rules")
        .push(json!({ "host": "*.b.example", "http": { "paths": wildcard } }));
    spec["defaultBackend"] = to("stock");
    let mut cluster = scene();
    crate::scene::service(&mut cluster, "shop", "stock", 1, &["10.0.0.9"]);
    cluster.put(ObjectKind::Ingress, ingress("i", &[], spec));
    let translation = translated(&cluster);
    assert_eq!(remarks(&translation), [""; 0]);
    let config = config(&translation);
    for (url, expected) in [
        ("http://a.example/", "shop.blog.80"),
        ("http://A.example/x", "shop.blog.80"),
        ("http://a.example/a", "shop.cart.80"),
        ("http://a.example/a/c", "shop.cart.80"),
        ("http://a.example/ab", "shop.blog.80"),
        ("http://a.example/a/b", "shop.blog.80"),
        ("http://x.b.example/y", "shop.cart.80"),
        // A wildcard matches one label.
        ("http://x.y.b.example/", "shop.stock.80"),
        ("http://b.example/", "shop.stock.80"),
        ("http://other/", "shop.stock.80"),
    ] {
        assert_eq!(answer(&config, 80, &format!("GET {url}")), expected, "{url}");
    }
    let status = translation
        .statuses
        .iter()
        .find(|status| status.object.kind == ObjectKind::Ingress)
        .expect("a status");
    assert_eq!(status.found, StatusFindings::Ingress(vec!["192.0.2.1".to_owned()]));
    let written = status.changed(&Value::Null, crate::scene::CONTROLLER, "now").expect("a change");
    assert_eq!(written, json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } }));
    assert_eq!(status.changed(&written, crate::scene::CONTROLLER, "now"), None);
}

#[test]
fn only_ingresses_of_our_classes_are_served() {
    let spec = || host("a", &[path("Prefix", "/", "cart")]);
    let mut other = ingress("i", &[], spec());
    other["spec"]["ingressClassName"] = json!("other");
    let mut none = ingress("i", &[], spec());
    none["spec"]["ingressClassName"] = Value::Null;
    let mut old = none.clone();
    old["metadata"]["annotations"] = json!({ "kubernetes.io/ingress.class": "vanward" });
    for (ingress, is_default, expected) in [
        (&ingress("i", &[], spec()), false, "shop.cart.80"),
        (&old, false, "shop.cart.80"),
        (&none, false, "404"),
        (&none, true, "shop.cart.80"),
        (&other, true, "404"),
    ] {
        let mut cluster = scene();
        if is_default {
            let mut class = object("", "vanward", json!({ "controller": crate::scene::CONTROLLER }));
            class["metadata"]["annotations"] =
                json!({ "ingressclass.kubernetes.io/is-default-class": "true" });
            cluster.put(ObjectKind::IngressClass, class);
        }
        cluster.put(ObjectKind::Ingress, ingress.clone());
        let translation = translated(&cluster);
        assert_eq!(answer(&config(&translation), 80, "GET http://a/"), expected, "{ingress}");
        let has_status = translation.statuses.iter().any(|status| status.object.kind == ObjectKind::Ingress);
        assert_eq!(has_status, expected != "404");
    }
}

#[test]
fn unsupported_parts_are_answered_with_500_and_reported() {
    let one = || host("a", &[path("Prefix", "/", "cart")]);
    for (ingress, expected) in [
        (
            ingress("i", &[("auth-snippet", "x"), ("configuration-snippet", "x")], one()),
            "Ingress shop/i: annotation auth-snippet: it is not supported: it is nginx configuration; routes \
             in --gateway-base can express much of it",
        ),
        (
            ingress("i", &[("proxy-body-size", "huge")], one()),
            "Ingress shop/i: annotation proxy-body-size: \"huge\" is not supported; expected a size such as 8m",
        ),
        (
            ingress("i", &[("backend-protocol", "HTTPS")], one()),
            "Ingress shop/i: annotation backend-protocol: it needs a BackendTLSPolicy for the service, which names the trusted CAs",
        ),
        (
            ingress("i", &[], host("a", &[path("Prefix", "/", "gone")])),
            "Ingress shop/i: Service shop/gone does not exist",
        ),
        (
            ingress(
                "i",
                &[],
                host(
                    "a",
                    &[
                        json!({ "pathType": "Prefix", "path": "/", "backend": { "resource": { "kind": "Bucket", "name": "x" } } }),
                    ],
                ),
            ),
            "Ingress shop/i: backends other than services are not supported",
        ),
    ] {
        let translation = with(&ingress);
        assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "500", "{ingress}");
        assert_eq!(remarks(&translation)[0], expected);
    }
}

#[test]
fn paths_are_expressions_where_annotations_say_so() {
    let spec = || {
        host(
            "a",
            &[path("ImplementationSpecific", "/app(/|$)(.*)", "cart"), path("Prefix", "/plain", "blog")],
        )
    };
    let translation = with(&ingress("i", &[("rewrite-target", "/$2")], spec()));
    let rewritten = config(&translation);
    for (url, expected, path) in [
        ("http://a/app/x/y?q=1", "shop.cart.80", "/x/y?q=1"),
        ("http://a/app", "shop.cart.80", "/"),
        ("http://a/APP/x", "shop.cart.80", "/x"),
        ("http://a/plain/x", "shop.blog.80", "/$2"),
    ] {
        assert_eq!(answer(&rewritten, 80, &format!("GET {url}")), expected, "{url}");
        assert_eq!(path_for_servers(&rewritten, 80, &format!("GET {url}")), path, "{url}");
    }
    assert_eq!(answer(&rewritten, 80, "GET http://a/application"), "404");
    let regex = host("a", &[path("ImplementationSpecific", "/v[0-9]+/", "cart")]);
    let config = config(&with(&ingress("i", &[("use-regex", "true")], regex.clone())));
    assert_eq!(answer(&config, 80, "GET http://a/v12/x"), "shop.cart.80");
    assert_eq!(answer(&config, 80, "GET http://a/vx/x"), "404");
    let broken = host("a", &[path("ImplementationSpecific", "/(?=x)", "cart")]);
    let translation = with(&ingress("i", &[("use-regex", "true")], broken));
    assert_eq!(remarks(&translation), ["Ingress shop/i: path \"/(?=x)\" is not a supported expression"]);
}

#[test]
fn hosts_with_a_certificate_are_for_https() {
    use base64::Engine;
    let secret = |name: &str, names: &str| {
        let base64 = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
        json!({ "metadata": { "namespace": "shop", "name": name }, "type": "kubernetes.io/tls",
            "data": { "tls.crt": base64(names), "tls.key": base64("key") } })
    };
    for (annotations, http, https) in [
        (&[][..], "308 https://a.example/x?q=1", "shop.cart.80"),
        (&[("ssl-redirect", "false")], "shop.cart.80", "shop.cart.80"),
        (&[("force-ssl-redirect", "true")], "308 https://a.example/x?q=1", "shop.cart.80"),
        (
            &[("permanent-redirect", "https://b.example/")],
            "308 https://a.example/x?q=1",
            "301 https://b.example/",
        ),
    ] {
        let mut cluster = scene();
        cluster.put(ObjectKind::Secret, secret("web", "a.example"));
        let mut spec = host("a.example", &[path("Prefix", "/", "cart")]);
        spec["tls"] = json!([{ "hosts": ["a.example"], "secretName": "web" }]);
        cluster.put(ObjectKind::Ingress, ingress("i", annotations, spec));
        let translation = translated(&cluster);
        assert_eq!(remarks(&translation), [""; 0]);
        let config = config(&translation);
        assert_eq!(answer(&config, 80, "GET http://a.example/x?q=1"), http, "{annotations:?}");
        assert_eq!(answer(&config, 443, "GET http://a.example/x?q=1"), https, "{annotations:?}");
        let listener = config.listeners.iter().find(|listener| listener.address.port() == Some(443));
        let tls = listener.expect("a listener").tls.as_ref().expect("TLS");
        let config::Certificates::Files(files) = &tls.certificates else { panic!("no files") };
        assert_eq!(
            (files[0].names.as_slice(), tls.unknown_names),
            (&["a.example".to_owned()][..], config::UnknownNames::Refuse)
        );
    }
    let mut spec = host("*.example", &[path("Prefix", "/", "cart")]);
    spec["tls"] = json!([{ "hosts": ["*.example"], "secretName": "web" }]);
    let mut cluster = scene();
    cluster.put(ObjectKind::Secret, secret("web", "*.example"));
    cluster.put(ObjectKind::Ingress, ingress("i", &[], spec));
    let wildcard = config(&translated(&cluster));
    assert_eq!(answer(&wildcard, 80, "GET http://a.example/"), "308 https://a.example/");
    assert_eq!(answer(&wildcard, 443, "GET http://a.example/"), "shop.cart.80");
    // Without the Secret there is no certificate to listen with.
    let mut spec = host("a.example", &[path("Prefix", "/", "cart")]);
    spec["tls"] = json!([{ "hosts": ["a.example"], "secretName": "gone" }]);
    let translation = with(&ingress("i", &[], spec));
    assert!(config(&translation).listeners.iter().all(|listener| listener.address.port() != Some(443)));
    assert_eq!(
        remarks(&translation),
        ["Ingress shop/i: tls: Secret shop/gone: there is no such Secret of type kubernetes.io/tls"]
    );
}

#[test]
fn a_redirect_needs_no_backend() {
    let annotations =
        [("permanent-redirect", "https://new.example/"), ("proxy-body-size", "8m"), ("rewrite-target", "/")];
    let translation = with(&ingress("i", &annotations, host("a", &[path("Prefix", "/", "gone")])));
    assert_eq!(remarks(&translation), [""; 0]);
    assert_eq!(answer(&config(&translation), 80, "GET http://a/x?q=1"), "301 https://new.example/");
}

#[test]
fn annotations_are_options_of_the_routes() {
    let annotations = [
        ("proxy-body-size", "8m"),
        ("proxy-read-timeout", "600"),
        ("whitelist-source-range", "10.0.0.0/8"),
        ("limit-rps", "5"),
        ("limit-connections", "20"),
        ("enable-cors", "true"),
        ("cors-allow-origin", "https://x.example"),
        ("x-forwarded-prefix", "/app"),
        ("app-root", "/home"),
        ("proxy-buffering", "off"),
    ];
    let translation = with(&ingress("i", &annotations, host("a", &[path("Prefix", "/", "cart")])));
    assert_eq!(remarks(&translation), [""; 0]);
    let config = config(&translation);
    assert_eq!(answer(&config, 80, "GET http://a/"), "302 /home");
    assert_eq!(answer(&config, 80, "GET http://a/x"), "shop.cart.80");
    for option in [
        r#""body_bytes" = "8MiB""#,
        r#""upstream_first_byte" = "600s", "upstream_body" = "600s", "tunnel_idle" = "600s""#,
        r#"allow = ["10.0.0.0/8"]"#,
        r#"rate_limit = [{ "rate" = "5/s", "burst" = 26 }]"#,
        r#"concurrency = { "max" = 20 }"#,
        r#""origins" = ["https://x.example"]"#,
        r#""X-Forwarded-Prefix" = "/app""#,
    ] {
        assert!(translation.written.text.contains(option), "{option}\n{}", translation.written.text);
    }
}

#[test]
fn a_separate_upstream_has_the_options_of_an_ingress() {
    for (annotations, expected) in [
        (&[("proxy-connect-timeout", "7")][..], r#"pool = { "connect_timeout" = "7s" }"#),
        (&[("upstream-hash-by", "$http_x_user")], r#"hash_key = "header:x-user""#),
        (
            &[("proxy-connect-timeout", "7"), ("affinity", "cookie")],
            "sticky = { \"by\" = \"cookie\" }\npool = { \"connect_timeout\" = \"7s\" }\n",
        ),
    ] {
        let mut cluster = scene();
        cluster
            .put(ObjectKind::Ingress, ingress("i", annotations, host("a", &[path("Prefix", "/", "cart")])));
        cluster.put(ObjectKind::Ingress, ingress("j", &[], host("b", &[path("Prefix", "/", "cart")])));
        let translation = translated(&cluster);
        assert_eq!(remarks(&translation), [""; 0]);
        assert!(translation.written.text.contains(expected), "{expected}\n{}", translation.written.text);
        let config = config(&translation);
        assert!(answer(&config, 80, "GET http://a/").starts_with("shop.cart.80.i."));
        assert_eq!(answer(&config, 80, "GET http://b/"), "shop.cart.80", "others have nothing of it");
    }
}

#[test]
fn gateways_and_older_ingresses_come_first() {
    let mut cluster = scene();
    cluster.put(
        ObjectKind::HttpRoute,
        crate::scene::http_route(
            "r",
            &["a.example"],
            &json!([{ "backendRefs": [crate::scene::backend("cart")] }]),
        ),
    );
    let mut later = ingress("a", &[], host("b.example", &[path("Prefix", "/", "cart")]));
    later["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    cluster.put(ObjectKind::Ingress, later);
    let spec = json!({ "rules": [
        { "host": "a.example", "http": { "paths": [path("Prefix", "/", "blog")] } },
        { "host": "b.example", "http": { "paths": [path("Prefix", "/", "blog")] } },
    ] });
    cluster.put(ObjectKind::Ingress, ingress("b", &[], spec));
    let config = config(&translated(&cluster));
    assert_eq!(answer(&config, 80, "GET http://a.example/"), "shop.cart.80");
    assert_eq!(answer(&config, 80, "GET http://b.example/"), "shop.blog.80");
}
