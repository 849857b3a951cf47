//! Ingresses: hosts, errors, response fields and client certificates.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::ClientCertificates;
use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::ingresses::{host, ingress, path, remarks, scene};
use crate::scene::{answer, answer_with, chosen, config, object, service, translated};

/// A scene with an Ingress for `a.example`, and objects that annotations refer to.
fn cluster(annotations: &[(&str, &str)]) -> Cluster {
    let mut cluster = scene();
    service(&mut cluster, "shop", "errors", 8080, &["10.0.0.9"]);
    for (name, data) in [
        ("headers", json!({ "X-Frame-Options": "DENY", "X-Cost": "5$" })),
        ("files", json!({ "index.html": "<p>\n</p>", "X-A": "b" })),
    ] {
        let map = json!({ "metadata": { "namespace": "shop", "name": name }, "data": data });
        cluster.put(ObjectKind::ConfigMap, map);
    }
    for (name, data) in [
        ("ca", json!({ "ca.crt": "CA" })),
        ("other-ca", json!({ "ca.crt": "other CA" })),
        ("bad-ca", json!({ "ca.crt": "bad" })),
        ("revoking", json!({ "ca.crt": "CA", "ca.crl": "list" })),
        ("key", json!({ "ca.crt": "-----BEGIN PRIVATE KEY-----" })),
    ] {
        secret(&mut cluster, name, "Opaque", &data);
    }
    secret(
        &mut cluster,
        "web",
        "kubernetes.io/tls",
        &json!({ "tls.crt": "a.example www.a.example", "tls.key": "k" }),
    );
    cluster.put(ObjectKind::Ingress, of_a("i", annotations));
    cluster
}

fn secret(cluster: &mut Cluster, name: &str, kind: &str, data: &Value) {
    let encoded: serde_json::Map<String, Value> = data
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), json!(BASE64_STANDARD.encode(value.as_str().unwrap()))))
        .collect();
    let kept = if kind == "Opaque" { ObjectKind::Passwords } else { ObjectKind::Secret };
    let secret = json!({ "metadata": { "namespace": "shop", "name": name }, "type": kind, "data": encoded });
    cluster.put(kept, secret);
}

fn of_a(name: &str, annotations: &[(&str, &str)]) -> Value {
    let mut spec = host("a.example", &[path("Prefix", "/", "cart")]);
    spec["tls"] = json!([{ "hosts": ["a.example"], "secretName": "web" }]);
    ingress(name, annotations, spec)
}

fn with(annotations: &[(&str, &str)]) -> Translation {
    translated(&cluster(annotations))
}

/// Returns an option of the route for a request over HTTPS, as written.
fn option(translation: &Translation, name: &str) -> Option<String> {
    let config = config(translation);
    let route = chosen(&config, 443, "GET http://a.example/x", &[]).expect("a route");
    let head = format!("name = \"{}\"\n", config.routes[route].name);
    let (_, table) = translation.written.text.split_once(&head).expect("the route is written");
    let table = table.split("\n\n").next().unwrap_or_default();
    table.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(" = ")?.to_owned()))
}

#[test]
fn aliases_have_the_rules_and_the_certificate_of_the_host() {
    let mut cluster = cluster(&[("server-alias", "B.example, *.c.example, d.example")]);
    cluster.put(ObjectKind::Ingress, ingress("j", &[], host("d.example", &[path("Prefix", "/", "blog")])));
    let translation = translated(&cluster);
    let expected = "Ingress shop/i: annotation server-alias: a rule has d.example, which takes precedence";
    assert_eq!(remarks(&translation), [expected]);
    let read = config(&translation);
    for (url, expected) in [
        ("http://b.example/x", "shop.cart.80"),
        ("http://x.c.example/", "shop.cart.80"),
        ("http://x.y.c.example/", "404"),
        ("http://e.example/", "404"),
    ] {
        assert_eq!(answer(&read, 443, &format!("GET {url}")), expected, "{url}");
    }
    assert_eq!(answer(&read, 80, "GET http://b.example/x?y"), "308 https://b.example/x?y");
    assert_eq!(answer(&read, 80, "GET http://d.example/"), "shop.blog.80");
    assert!(translation.written.text.contains(r#""names" = ["a.example", "b.example", "*.c.example"]"#));
    // The canary of the host takes a share of the host's requests only.
    let no_host = json!({ "defaultBackend": path("Prefix", "/", "cart")["backend"] });
    cluster.put(ObjectKind::Ingress, ingress("k", &[("server-alias", "z")], no_host));
    assert!(remarks(&translated(&cluster)).iter().any(|told| told.ends_with("it needs a rule with a host")));
}

#[test]
fn hosts_with_and_without_www_redirect() {
    let translation = with(&[("from-to-www-redirect", "true")]);
    assert_eq!(remarks(&translation), [""; 0]);
    let read = config(&translation);
    assert_eq!(answer(&read, 80, "GET http://www.a.example/x?y"), "308 http://a.example/x?y");
    assert_eq!(answer(&read, 443, "GET http://www.a.example/x"), "308 https://a.example/x");
    assert!(translation.written.text.contains(r#""names" = ["a.example", "www.a.example"]"#));
    let mut others = scene();
    let www = [("from-to-www-redirect", "true")];
    others.put(ObjectKind::Ingress, ingress("i", &www, host("www.b", &[path("Prefix", "/", "cart")])));
    let read = config(&translated(&others));
    assert_eq!(answer(&read, 80, "GET http://b/x"), "308 http://www.b/x");
    others.put(ObjectKind::Ingress, ingress("j", &[], host("b", &[path("Prefix", "/", "blog")])));
    let translation = translated(&others);
    assert_eq!(answer(&config(&translation), 80, "GET http://b/x"), "shop.blog.80");
    let expected = "Ingress shop/i: annotation from-to-www-redirect: a rule has b, which takes precedence";
    assert_eq!(remarks(&translation), [expected]);
    others.put(ObjectKind::Ingress, ingress("k", &www, host("*.c", &[path("Prefix", "/", "cart")])));
    let translation = translated(&others);
    assert_eq!(answer(&config(&translation), 80, "GET http://x.c/"), "500");
}

#[test]
fn servers_get_another_host() {
    for (annotations, expected) in [
        (&[("upstream-vhost", "b.example:81")][..], r#"{ "host" = "b.example:81" }"#),
        (&[("upstream-vhost", "$service_name.${namespace}.svc")], r#"{ "host" = "cart.shop.svc" }"#),
        (
            &[("upstream-vhost", "b"), ("rewrite-target", "/y")],
            r#"{ "pattern" = "(?s:.*)", "path" = "/y", "host" = "b" }"#,
        ),
    ] {
        let translation = with(annotations);
        assert_eq!(remarks(&translation), [""; 0]);
        assert_eq!(option(&translation, "rewrite").as_deref(), Some(expected));
    }
}

#[test]
fn errors_are_answered_by_the_default_backend() {
    let both = [("custom-http-errors", "503, 404,404"), ("default-backend", "errors")];
    let translation = with(&both);
    assert_eq!(remarks(&translation), [""; 0]);
    let fields = r#"{ "X-Code" = "$status", "X-Format" = "$header.accept", "X-Original-URI" = "$path_and_query", "X-Namespace" = "shop", "X-Ingress-Name" = "i", "X-Service-Name" = "cart", "X-Service-Port" = "80" }"#;
    let answer = format!(r#"{{ "upstream" = "shop.errors.80", "path" = "/", "fields" = {fields} }}"#);
    let expected = format!(r#"{{ "404" = {answer}, "503" = {answer} }}"#);
    assert_eq!(option(&translation, "on_status"), Some(expected));
    let failures = translated(&cluster(&[both[0], both[1], ("disable-proxy-intercept-errors", "true")]));
    let read = config(&failures);
    let route = chosen(&read, 443, "GET http://a.example/x", &[]).unwrap();
    let fallbacks = read.routes[route].policies.on_status.as_ref().unwrap();
    assert!(fallbacks.page(404).unwrap().only_failures && fallbacks.page(500).is_none());
    // The service alone changes nothing while there are endpoints.
    assert_eq!(option(&with(&[both[1]]), "on_status"), None);
    for (annotations, expected) in [
        ([both[0], ("default-backend", "gone")], "annotation default-backend: Service shop/gone"),
        ([("custom-http-errors", "200"), both[1]], "statuses from 400 to 599 with commas"),
    ] {
        let translation = with(&annotations);
        assert!(remarks(&translation)[0].contains(expected), "{:?}", remarks(&translation));
        assert_eq!(crate::scene::answer(&config(&translation), 443, "GET http://a.example/"), "500");
    }
}

#[test]
fn a_service_without_endpoints_is_replaced_by_the_default_backend() {
    let mut cluster = cluster(&[]);
    let spec = host("b.example", &[path("Prefix", "/", "empty"), path("Prefix", "/x", "cart")]);
    for (default, expected) in [("errors", "shop.errors.80"), ("empty", "shop.empty.80")] {
        let annotations =
            [("default-backend", default), ("custom-http-errors", "503"), ("x-forwarded-prefix", "/p")];
        cluster.put(ObjectKind::Ingress, ingress("j", &annotations, spec.clone()));
        let translation = translated(&cluster);
        assert_eq!(remarks(&translation), [""; 0]);
        let read = config(&translation);
        assert_eq!(answer(&read, 80, "GET http://b.example/"), expected);
        assert_eq!(answer(&read, 80, "GET http://b.example/x"), "shop.cart.80");
        let code = r#""X-Code" = "503""#;
        assert_eq!(translation.written.text.contains(code), default == "errors");
    }
}

#[test]
fn response_fields_come_from_a_config_map() {
    let translation = with(&[("custom-headers", "shop/headers")]);
    assert_eq!(remarks(&translation), [""; 0]);
    let expected = r#"{ "set" = { "X-Cost" = "5$$", "X-Frame-Options" = "DENY" } }"#;
    assert_eq!(option(&translation, "response_headers").as_deref(), Some(expected));
    for map in ["files", "gone"] {
        let translation = with(&[("custom-headers", map)]);
        assert!(remarks(&translation)[0].contains("whose entries are all response fields"));
        assert_eq!(answer(&config(&translation), 443, "GET http://a.example/"), "500");
    }
}

#[test]
fn some_clients_have_no_limit() {
    let translation = with(&[("limit-rps", "5"), ("limit-whitelist", "10.0.0.0/8,192.0.2.1")]);
    assert_eq!(remarks(&translation), [""; 0]);
    let expected = r#"[{ "rate" = "5/s", "burst" = 26, "when" = "!(client.address in [\"10.0.0.0/8\", \"192.0.2.1\"])" }]"#;
    assert_eq!(option(&translation, "rate_limit").as_deref(), Some(expected));
}

/// Returns the rules of the HTTPS listener about client certificates: names, mode, CA and depth.
fn rules(translation: &Translation) -> Vec<String> {
    let read = config(translation);
    let tls = read.listeners.iter().find_map(|listener| listener.tls.as_ref()).expect("an HTTPS listener");
    let rule = |rule: &config::ClientRule| {
        let (mode, trust) = match &rule.client_certificates {
            ClientCertificates::None => return format!("{:?} none", rule.names),
            ClientCertificates::Optional(trust) => ("optional", trust),
            ClientCertificates::Required(trust) => ("required", trust),
        };
        format!("{} {mode} {} {:?}", rule.names.join(" "), trust.ca.display(), trust.depth.unwrap())
    };
    tls.client_rules.iter().map(rule).collect()
}

#[test]
fn clients_present_certificates() {
    let secret = ("auth-tls-secret", "shop/ca");
    let translation = with(&[secret, ("server-alias", "b.example"), ("ssl-redirect", "false")]);
    assert_eq!(remarks(&translation), [""; 0]);
    let ca = "kubernetes:shop/ca/ca.crt";
    assert_eq!(
        rules(&translation),
        [format!("a.example required {ca} 1"), format!("b.example required {ca} 1")]
    );
    assert_eq!(translation.files[ca], b"CA");
    // Over HTTP there is no certificate.
    assert_eq!(answer(&config(&translation), 80, "GET http://a.example/"), "308 https://a.example/");
    assert_eq!(answer(&config(&translation), 443, "GET http://a.example/"), "shop.cart.80");
    let verified = |word: &str| {
        format!(
            r#"{{ "set" = {{ "ssl-client-subject-dn" = "$tls.subject", "ssl-client-issuer-dn" = "$tls.issuer", "ssl-client-verify" = "{word}" }} }}"#
        )
    };
    assert_eq!(option(&translation, "request_headers"), Some(format!("[{}]", verified("SUCCESS"))));
    let optional = ("auth-tls-verify-client", "optional");
    let translation = with(&[secret, optional, ("auth-tls-verify-depth", "3"), ("ssl-redirect", "false")]);
    assert_eq!(rules(&translation), [format!("a.example optional {ca} 3")]);
    assert_eq!(answer(&config(&translation), 80, "GET http://a.example/"), "shop.cart.80");
    let success =
        r#"{ "set" = { "ssl-client-verify" = "SUCCESS" }, "when" = "!(!has(client.tls.fingerprint))" }"#;
    assert_eq!(option(&translation, "request_headers"), Some(format!("[{}, {success}]", verified("NONE"))));
    let off = with(&[secret, ("auth-tls-verify-client", "off")]);
    assert!(rules(&off).is_empty() && option(&off, "request_headers").is_none());
    let more =
        [secret, ("auth-tls-pass-certificate-to-upstream", "true"), ("auth-tls-match-cn", "CN=(ann|\"b\")")];
    let translation = with(&[more[0], more[1], more[2], ("denylist-source-range", "192.0.2.0/24")]);
    assert_eq!(remarks(&translation), [""; 0]);
    assert_eq!(option(&translation, "client_cert").as_deref(), Some("\"pem\""));
    let read = config(&translation);
    let route = chosen(&read, 443, "GET http://a.example/", &[]).unwrap();
    let access = &read.routes[route].policies.access;
    assert_eq!((access.deny.len(), access.rules.len()), (1, 1));
    let expected = r#""when" = "!(client.tls.subject ?? \"\").matches(\"CN=(ann|\\\"b\\\")\")""#;
    assert!(option(&translation, "deny").unwrap().contains(expected), "{:?}", option(&translation, "deny"));
}

#[test]
fn clients_without_a_certificate_are_redirected_to_a_page() {
    let annotations = [("auth-tls-secret", "ca"), ("auth-tls-error-page", "https://b.example/help")];
    let mut cluster = cluster(&annotations);
    let canary = [("canary", "true"), ("canary-by-header", "X-Canary")];
    cluster.put(
        ObjectKind::Ingress,
        ingress("next", &canary, host("a.example", &[path("Prefix", "/", "blog")])),
    );
    let translation = translated(&cluster);
    assert_eq!(remarks(&translation), [""; 0]);
    assert_eq!(rules(&translation), ["a.example optional kubernetes:shop/ca/ca.crt 1"]);
    let read = config(&translation);
    // Conditions never hold in this scene, so the route of the page does not.
    let pages = read.routes.iter().filter(|route| route.name.contains("without certificate"));
    assert_eq!(pages.count(), 1);
    let page = r#"redirect = { "to" = "https://b.example/help?", "status" = 302 }"#;
    assert!(translation.written.text.contains(page), "{}", translation.written.text);
    // A route with more conditions comes first, and denies such clients.
    let canary = [("x-canary", "always")];
    assert_eq!(answer_with(&read, 443, "GET http://a.example/", &canary), "shop.blog.80");
    for fields in [&[][..], &canary] {
        let route = chosen(&read, 443, "GET http://a.example/", fields).unwrap();
        assert_eq!(read.routes[route].policies.access.rules.len(), 1, "{fields:?}");
    }
}

#[test]
fn other_ingresses_of_the_host_have_the_rule_too() {
    let annotations = [
        ("auth-tls-secret", "ca"),
        ("auth-tls-error-page", "https://b.example/help"),
        ("auth-tls-match-cn", "CN=ann"),
        ("auth-tls-pass-certificate-to-upstream", "true"),
    ];
    let mut cluster = cluster(&annotations);
    let others =
        [("ssl-redirect", "false"), ("server-alias", "c.example"), ("denylist-source-range", "192.0.2.1")];
    cluster
        .put(ObjectKind::Ingress, ingress("j", &others, host("a.example", &[path("Prefix", "/y", "blog")])));
    let translation = translated(&cluster);
    assert_eq!(remarks(&translation), [""; 0]);
    let ca = "kubernetes:shop/ca/ca.crt";
    let expected = ["a.example", "c.example"].map(|host| format!("{host} optional {ca} 1"));
    assert_eq!(rules(&translation), expected);
    let read = config(&translation);
    for host in ["a.example", "c.example"] {
        let url = format!("GET http://{host}/y");
        assert_eq!(answer(&read, 80, &url), format!("308 https://{host}/y"));
        let policies = &read.routes[chosen(&read, 443, &url, &[]).unwrap()].policies;
        assert_eq!((policies.access.deny.len(), policies.access.rules.len()), (1, 2), "{host}");
        assert!(policies.options.client_cert.is_some() && !policies.request_headers.is_empty());
    }
    let pages = read.routes.iter().filter(|route| route.name.contains("without certificate"));
    assert_eq!(pages.count(), 3);
}

#[test]
fn a_wildcard_s_rule_is_not_that_of_other_hosts() {
    let mut cluster = cluster(&[]);
    let wide = [("auth-tls-secret", "ca")];
    let paths = [path("Prefix", "/", "blog")];
    cluster.put(ObjectKind::Ingress, ingress("wide", &wide, host("*.example", &paths)));
    cluster.put(
        ObjectKind::Ingress,
        ingress("deep", &[("server-alias", "c.example")], host("x.b.example", &paths)),
    );
    let translation = translated(&cluster);
    assert_eq!(remarks(&translation), [""; 0]);
    let expected =
        ["*.example required kubernetes:shop/ca/ca.crt 1", "[\"a.example\"] none", "[\"c.example\"] none"];
    assert_eq!(rules(&translation), expected);
    // An alias is no reason to refuse the rule of the host's Ingress.
    let mut older = ingress("older", &[("server-alias", "b.example")], host("o.example", &paths));
    older["metadata"]["namespace"] = json!("other");
    older["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    cluster.put(ObjectKind::Ingress, older);
    cluster.put(ObjectKind::Ingress, ingress("b", &wide, host("b.example", &paths)));
    let told = remarks(&translated(&cluster));
    assert!(!told.iter().any(|told| told.starts_with("Ingress shop/b: ")), "{told:?}");
}

#[test]
fn a_rule_about_certificates_holds_for_all_of_a_host_or_nobody_is_served() {
    let other_namespace = |name: &str, annotations: &[(&str, &str)], created: &str| {
        let mut ingress = ingress(name, annotations, host("a.example", &[path("Prefix", "/y", "stock")]));
        ingress["metadata"]["namespace"] = json!("other");
        ingress["metadata"]["creationTimestamp"] = json!(created);
        ingress
    };
    let mut same =
        ingress("j", &[("auth-tls-secret", "other-ca")], host("A.example", &[path("Prefix", "/y", "blog")]));
    same["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    let mut unprotected = same.clone();
    unprotected["metadata"]["annotations"] = json!({});
    let mut no_host = of_a("j", &[("auth-tls-secret", "ca")]);
    no_host["spec"]["rules"][0]["host"] = Value::Null;
    for (of_i, more, expected, answers) in [
        ("ca", unprotected.clone(), None, ["shop.cart.80", "shop.blog.80"]),
        (
            "ca",
            same,
            Some("Ingress shop/j: annotation auth-tls-secret: Ingress shop/i has another rule for a.example"),
            ["shop.cart.80", "500"],
        ),
        (
            "gone",
            unprotected.clone(),
            Some(
                "Ingress shop/j: Ingress shop/i: annotation auth-tls-secret: Secret shop/gone: there is none",
            ),
            ["500", "500"],
        ),
        ("bad-ca", unprotected.clone(), Some("Secret shop/bad-ca: it is bad"), ["500", "500"]),
        ("key", unprotected.clone(), Some("Secret shop/key: there is none"), ["500", "500"]),
        ("revoking", unprotected, Some("ca.crl is not supported"), ["500", "500"]),
        (
            "",
            other_namespace("j", &[("auth-tls-secret", "ca")], "2026-02-01T00:00:00Z"),
            Some(
                "Ingress other/j: annotation auth-tls-secret: an older Ingress in namespace shop has a.example",
            ),
            ["shop.cart.80", "500"],
        ),
        ("", no_host, Some("it needs a host in every rule"), ["shop.cart.80", "shop.cart.80"]),
    ] {
        let annotations = [("auth-tls-secret", of_i)];
        let mut cluster = cluster(if of_i.is_empty() { &[] } else { &annotations });
        cluster.put(ObjectKind::Ingress, more);
        let translation = translated(&cluster);
        let told = remarks(&translation);
        match expected {
            None => assert_eq!(told, [""; 0]),
            Some(expected) => assert!(told.iter().any(|told| told.contains(expected)), "{told:?}"),
        }
        let read = config(&translation);
        let urls = ["GET http://a.example/x", "GET http://a.example/y"];
        assert_eq!(urls.map(|url| answer(&read, 443, url)), answers, "{of_i} {told:?}");
    }
    // The routes of a gateway keep what their listener asks of clients.
    let mut cluster = cluster(&[("auth-tls-secret", "ca")]);
    let mut listener = crate::scene::listener("https", 443, Value::Null);
    listener["protocol"] = json!("HTTPS");
    listener["tls"] = json!({ "certificateRefs": [{ "name": "web", "namespace": "shop" }] });
    let grant = json!({ "from": [{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra" }],
        "to": [{ "group": "", "kind": "Secret" }] });
    cluster.put(ObjectKind::ReferenceGrant, object("shop", "g", grant));
    cluster.put(ObjectKind::Gateway, crate::scene::gateway("infra", "edge", &json!([listener])));
    let rules_of_route = json!([{ "backendRefs": [crate::scene::backend("blog")] }]);
    cluster.put(ObjectKind::HttpRoute, crate::scene::http_route("r", &["a.example"], &rules_of_route));
    let translation = translated(&cluster);
    let told = remarks(&translation);
    assert_eq!(told, ["Ingress shop/i: annotation auth-tls-secret: a Gateway has a.example"]);
    assert!(rules(&translation).is_empty());
}
