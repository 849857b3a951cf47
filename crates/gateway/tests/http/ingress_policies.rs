//! Annotations of Ingresses for client authentication, sessions and canaries.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::ingresses::{host, ingress, path, remarks, scene};
use crate::scene::{answer, answer_with, chosen, config, object, translated};

/// The password is `secret`.
const HASH: &str = "$apr1$6zBi1.PY$hT2TmZzfUXR7d5rEyaFXw/";

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> =
        data.iter().map(|(key, value)| ((*key).to_owned(), json!(BASE64_STANDARD.encode(value)))).collect();
    json!({ "metadata": { "namespace": "shop", "name": name }, "type": "Opaque", "data": data })
}

/// Translates an Ingress in a cluster with Secrets, and an authentication service in another namespace.
fn with(annotations: &[(&str, &str)]) -> Translation {
    let mut cluster = secrets();
    cluster.put(ObjectKind::Ingress, ingress("i", annotations, host("a", &[path("Prefix", "/", "cart")])));
    translated(&cluster)
}

fn secrets() -> Cluster {
    let mut cluster = scene();
    for secret in [
        secret("users", &[("auth", &format!("# ours\nann:{HASH}\nben:{HASH}\n"))]),
        secret("map", &[("ann", HASH), ("key", "no hash")]),
        secret("plain", &[("auth", "ann:secret")]),
        secret("odd", &[("auth", "ann:{SHA}x")]),
    ] {
        cluster.put(ObjectKind::Passwords, secret);
    }
    cluster
}

#[test]
fn passwords_are_those_of_a_secret() {
    let line = format!("ann:{HASH}\n");
    for (name, form, file, users) in [
        ("users", "auth-file", "kubernetes:shop/users/auth", format!("# ours\n{line}ben:{HASH}\n")),
        ("shop/map", "auth-map", "kubernetes:shop/map/users", line.clone()),
    ] {
        let translation = with(&[
            ("auth-type", "basic"),
            ("auth-secret", name),
            ("auth-secret-type", form),
            ("auth-realm", "Shop $host"),
        ]);
        assert_eq!(remarks(&translation), [""; 0]);
        assert_eq!(translation.files.get(file), Some(&users.into_bytes()), "{name}");
        let config = config(&translation);
        assert_eq!(answer(&config, 80, "GET http://a/"), "shop.cart.80");
        let route = chosen(&config, 80, "GET http://a/", &[]).expect("a route");
        let auth = config.routes[route].policies.auth.as_ref().expect("it needs a password");
        assert_eq!((auth.realm.as_str(), auth.file.to_str()), ("Shop $host", Some(file)));
        assert!(!translation.written.text.contains("$apr1$"), "no hash is in the configuration");
    }
}

#[test]
fn without_readable_passwords_no_client_is_admitted() {
    let none = "there is none of type Opaque with users";
    for (annotations, expected) in [
        (&[("auth-type", "basic"), ("auth-secret", "gone")][..], none),
        (&[("auth-type", "basic"), ("auth-secret", "plain")], none),
        (&[("auth-type", "basic"), ("auth-secret", "map")], none),
        (&[("auth-type", "basic"), ("auth-secret", "odd")], "annotation auth-secret: Secret shop/odd: "),
        (&[("auth-type", "basic"), ("auth-secret", "other/users")], "in the namespace of the Ingress"),
        (&[("auth-type", "digest"), ("auth-secret", "users")], "expected basic"),
        (&[("auth-secret", "users")], "it needs auth-secret, and auth-secret needs it"),
        (&[("auth-type", "basic")], "it needs auth-secret, and auth-secret needs it"),
        (&[("auth-url", "http://gone.shop.svc/")], "annotation auth-url: Service shop/gone does not exist"),
        (&[("auth-url", "http://stock.other.svc/")], "no ReferenceGrant in other permits it"),
        (&[("auth-url", "https://cart.shop.svc:80/")], "auth-url: it needs a BackendTLSPolicy"),
        (&[("auth-url", "https://$host:8443/auth")], "the URL of a service, or https://$host/oauth2/auth"),
        (
            &[("auth-url", "https://$host/auth")],
            "Ingress shop/i answers at a/auth, which authenticates clients",
        ),
        (&[("auth-signin", "https://$host/oauth2/start")], "annotation auth-signin: it needs auth-url"),
    ] {
        let translation = with(annotations);
        assert!(
            remarks(&translation).iter().any(|remark| remark.contains(expected)),
            "{:?}",
            remarks(&translation)
        );
        assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "500", "{annotations:?}");
    }
}

#[test]
fn a_service_is_asked_about_each_request() {
    let mut cluster = scene();
    let grant = json!({ "from": [{ "group": "networking.k8s.io", "kind": "Ingress", "namespace": "shop" }],
        "to": [{ "group": "", "kind": "Service", "name": "stock" }] });
    cluster.put(ObjectKind::ReferenceGrant, object("other", "g", grant));
    let annotations = [
        ("auth-url", "http://stock.other.svc.cluster.local/verify?x=1"),
        ("auth-response-headers", "X-User, X-Groups"),
        ("auth-method", "GET"),
        ("auth-signin", "https://$host/oauth2/start?rd=$escaped_request_uri"),
    ];
    cluster.put(ObjectKind::Ingress, ingress("i", &annotations, host("a", &[path("Prefix", "/", "cart")])));
    let translation = translated(&cluster);
    assert_eq!(remarks(&translation), [""; 0]);
    config(&translation);
    let option = r#"forward_auth = { "upstream" = "other.stock.80", "path" = "/verify?x=1", "set_cookie" = true, "copy_headers" = ["X-User", "X-Groups"], "sign_in" = "https://${host}/oauth2/start?rd=${path_and_query}" }"#;
    assert!(translation.written.text.contains(option), "{}", translation.written.text);
}

/// Creates an Ingress whose service authenticates the requests of another Ingress at the same host.
fn with_sign_in(name: &str, annotations: &[(&str, &str)], paths: &[Value], hosts: &[&str]) -> Cluster {
    let mut cluster = scene();
    let question = [
        ("auth-url", "https://$host/oauth2/auth?x=1"),
        ("auth-signin", "https://$host/oauth2/start?rd=$escaped_request_uri"),
    ];
    let mut spec = host("a", &[path("Prefix", "/", "cart")]);
    let rules = hosts.iter().map(|name| host(name, &[path("Prefix", "/", "cart")])["rules"][0].clone());
    spec["rules"] = rules.collect();
    cluster.put(ObjectKind::Ingress, ingress("i", &question, spec));
    cluster.put(ObjectKind::Ingress, ingress(name, annotations, host("A", paths)));
    cluster
}

#[test]
fn the_service_that_answers_at_the_own_host_is_asked() {
    let auth = [path("Prefix", "/oauth2", "blog")];
    let longer =
        [path("Prefix", "/", "cart"), path("Prefix", "/oauth2/", "blog"), path("Prefix", "/oauth", "cart")];
    let exact = [path("Prefix", "/oauth2/auth", "cart"), path("Exact", "/oauth2/auth", "blog")];
    for paths in [&auth[..], &longer, &exact] {
        let translation = translated(&with_sign_in("sso", &[], paths, &["a"]));
        assert_eq!(remarks(&translation), [""; 0], "{paths:?}");
        assert_eq!(answer(&config(&translation), 80, "GET http://a/x"), "shop.cart.80");
        let option = r#"forward_auth = { "upstream" = "shop.blog.80", "path" = "/oauth2/auth?x=1", "set_cookie" = true, "sign_in" = "https://${host}/oauth2/start?rd=${path_and_query}" }"#;
        let text = &translation.written.text;
        assert_eq!(text.matches(option).count(), 1, "{text}");
        assert_eq!(text.matches("forward_auth").count(), 1, "who is asked is not asked about: {text}");
    }
    // The servers are those that clients reach: in a separate upstream if the Ingress has one.
    let translation = translated(&with_sign_in("sso", &[("proxy-connect-timeout", "2")], &auth, &["a"]));
    let upstream = answer(&config(&translation), 80, "GET http://a/oauth2/auth");
    assert_ne!(upstream, "shop.blog.80");
    let option = format!("forward_auth = {{ \"upstream\" = \"{upstream}\"");
    assert!(translation.written.text.contains(&option), "{}", translation.written.text);
}

#[test]
fn without_a_usable_server_at_the_own_host_no_client_is_admitted() {
    let auth = [path("Prefix", "/oauth2", "blog")];
    let none: &[(&str, &str)] = &[];
    for (annotations, paths, hosts, expected) in [
        (
            none,
            [path("Prefix", "/other", "blog")],
            &["a"][..],
            "Ingress shop/i answers at a/oauth2/auth, which authenticates clients itself",
        ),
        (none, auth.clone(), &["*.a"], "$host needs a rule with a single host"),
        (
            none,
            auth.clone(),
            &["b"],
            "Ingress shop/i answers at b/oauth2/auth, which authenticates clients itself",
        ),
        (none, [path("Prefix", "/oauth2", "gone")], &["a"], "Service shop/gone does not exist"),
        (
            &[("whitelist-source-range", "10.0.0.0/8")],
            auth.clone(),
            &["a"],
            "which is limited to some networks",
        ),
        (
            &[("auth-type", "basic"), ("auth-secret", "u")],
            auth.clone(),
            &["a"],
            "which authenticates clients itself",
        ),
        (
            &[("rewrite-target", "/x")],
            auth.clone(),
            &["a"],
            "which has redirect, rewrite-target, use-regex or upstream-vhost",
        ),
        (&[("server-snippet", "x")], auth.clone(), &["a"], "which is refused itself"),
    ] {
        let translation = translated(&with_sign_in("sso", annotations, &paths, hosts));
        let told = remarks(&translation);
        assert!(
            told.iter()
                .any(|told| told.starts_with("Ingress shop/i: annotation auth-url: ")
                    && told.contains(expected)),
            "{told:?}"
        );
        let url = format!("GET http://{}/x", hosts[0].replace('*', "c"));
        assert_eq!(answer(&config(&translation), 80, &url), "500", "{expected}");
    }
    let mut cluster = scene();
    let question = [("auth-url", "https://$host/oauth2/auth")];
    cluster.put(ObjectKind::Ingress, ingress("i", &question, host("a", &[path("Prefix", "/x", "cart")])));
    let translation = translated(&cluster);
    assert_eq!(
        remarks(&translation),
        ["Ingress shop/i: annotation auth-url: no Ingress answers at a/oauth2/auth"]
    );
    assert_eq!(answer(&config(&translation), 80, "GET http://a/x"), "500");
    // Other hosts of the Ingress stay available.
    let translation = translated(&with_sign_in("sso", none, &auth, &["a", "b"]));
    let config = config(&translation);
    let answers = ["a", "b"].map(|host| answer(&config, 80, &format!("GET http://{host}/x")));
    assert_eq!(answers, ["shop.cart.80", "500"]);
}

fn sticky(translation: &Translation, url: &str) -> String {
    let config = config(translation);
    let head = format!("[upstream.\"{}\"]\n", answer(&config, 80, url));
    let (_, table) = translation.written.text.split_once(&head).expect("an upstream");
    let table = table.split("\n\n").next().unwrap_or_default();
    table.lines().find_map(|line| line.strip_prefix("sticky = ")).unwrap_or("none").to_owned()
}

#[test]
fn sessions_are_those_of_an_upstream_of_the_ingress() {
    for (annotations, expected) in [
        (&[("affinity", "cookie")][..], r#"{ "by" = "cookie" }"#),
        (
            &[("affinity", "cookie"), ("session-cookie-name", "route"), ("session-cookie-max-age", "3600")],
            r#"{ "by" = "cookie", "ttl" = "3600s", "name" = "route", "path" = "/app" }"#,
        ),
        (
            &[
                ("affinity", "cookie"),
                ("affinity-mode", "persistent"),
                ("session-cookie-path", "/"),
                ("session-cookie-samesite", "None"),
                ("session-cookie-secure", "true"),
                ("session-cookie-expires", "60"),
            ],
            r#"{ "by" = "cookie", "ttl" = "60s", "same_site" = "none", "secure" = true, "path" = "/" }"#,
        ),
    ] {
        let mut cluster = scene();
        let paths = [path("Prefix", "/app", "cart")];
        cluster.put(ObjectKind::Ingress, ingress("i", annotations, host("a", &paths)));
        cluster.put(ObjectKind::Ingress, ingress("j", &[], host("b", &paths)));
        let translation = translated(&cluster);
        assert_eq!(remarks(&translation), [""; 0]);
        assert_eq!(sticky(&translation, "GET http://a/app"), expected);
        // Other Ingresses are not affected.
        assert_eq!(answer(&config(&translation), 80, "GET http://b/app"), "shop.cart.80");
        assert_eq!(sticky(&translation, "GET http://b/app"), "none");
    }
    for (name, value, expected) in [
        ("affinity", "ip", "expected cookie"),
        ("session-cookie-name", "a b", "the name of a cookie"),
        ("session-cookie-max-age", "0", "1 to 31536000 seconds"),
        ("session-cookie-path", "app", "a path such as /app"),
        ("session-cookie-change-on-failure", "false", "expected true"),
    ] {
        let translation = with(&[("affinity", "cookie"), (name, value)]);
        assert!(remarks(&translation)[0].contains(expected), "{:?}", remarks(&translation));
        assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "500");
    }
}

#[test]
fn all_instances_know_each_others_cookies_by_a_file() {
    let mut cluster = scene();
    let paths = [path("Prefix", "/", "cart")];
    cluster.put(ObjectKind::Ingress, ingress("i", &[("affinity", "cookie")], host("a", &paths)));
    let options =
        gateway::OperatorOptions { cookie_secret: Some("/etc/secret".to_owned()), ..crate::scene::options() };
    let translation = gateway::translate(&cluster, &options, &gateway::Refused::new(), &crate::scene::Test);
    let option = r#"sticky = { "by" = "cookie", "secret_file" = "/etc/secret" }"#;
    assert!(translation.written.text.contains(option), "{}", translation.written.text);
}

/// A cluster with an Ingress to `cart` and its canary to `blog`.
fn canary(annotations: &[(&str, &str)], main: &[(&str, &str)]) -> Cluster {
    let mut cluster = scene();
    let annotations: Vec<_> = [("canary", "true")].into_iter().chain(annotations.iter().copied()).collect();
    cluster.put(ObjectKind::Ingress, ingress("main", main, host("a", &[path("Prefix", "/", "cart")])));
    cluster
        .put(ObjectKind::Ingress, ingress("next", &annotations, host("A", &[path("Prefix", "/", "blog")])));
    cluster
}

#[test]
fn a_canary_takes_its_share_by_field_then_cookie_then_chance() {
    let (stable, next) = ("shop.cart.80", "shop.blog.80");
    let share = "shop.cart.80=90 shop.blog.80=10";
    let header = ("canary-by-header", "X-Canary");
    let all = [header, ("canary-by-cookie", "canary"), ("canary-weight", "10")];
    let with_value = [header, ("canary-by-header-value", "gold*"), ("canary-weight", "10")];
    let with_pattern = [header, ("canary-by-header-pattern", "gol?d$")];
    for (annotations, fields, expected) in [
        (&[][..], &[][..], stable),
        (&[("canary-weight", "10")], &[], share),
        (&[("canary-weight", "100")], &[], next),
        (&[("canary-weight", "1"), ("canary-weight-total", "10")], &[], "shop.cart.80=9 shop.blog.80=1"),
        (&all, &[], share),
        (&all, &[("x-canary", "always")], next),
        (&all, &[("x-canary", "never")], stable),
        (&all, &[("x-canary", "other")], share),
        (&all, &[("cookie", "canary=always")], next),
        (&all, &[("cookie", "canary=never")], stable),
        (&all, &[("cookie", "canary=1")], share),
        (&all, &[("x-canary", "never"), ("cookie", "canary=always")], stable),
        (&all, &[("x-canary", "always"), ("cookie", "canary=never")], next),
        (&with_value, &[("x-canary", "gold*")], next),
        (&with_value, &[("x-canary", "golden")], share),
        (&with_value, &[("x-canary", "always")], share),
        (&with_pattern, &[("x-canary", "some god")], next),
        (&with_pattern, &[("x-canary", "golden")], stable),
    ] {
        let translation = translated(&canary(annotations, &[("proxy-body-size", "8m")]));
        assert_eq!(remarks(&translation), [""; 0]);
        let config = config(&translation);
        assert_eq!(
            answer_with(&config, 80, "GET http://a/x", fields),
            expected,
            "{annotations:?} {fields:?}"
        );
        // The main Ingress's options apply on both sides.
        let route = chosen(&config, 80, "GET http://a/x", fields).expect("a route");
        assert!(config.routes[route].policies.limits.body_bytes.is_some(), "{annotations:?} {fields:?}");
    }
}

#[test]
fn with_sessions_clients_keep_their_side() {
    for (main, expected) in [
        (&[("affinity", "cookie")][..], true),
        (&[("affinity", "cookie"), ("affinity-canary-behavior", "legacy")], false),
        (&[], false),
    ] {
        let translation = translated(&canary(&[("canary-weight", "10")], main));
        assert_eq!(remarks(&translation), [""; 0]);
        let config = config(&translation);
        let route = chosen(&config, 80, "GET http://a/x", &[]).expect("a route");
        assert_eq!(config.routes[route].policies.split_key.is_some(), expected, "{main:?}");
    }
}

#[test]
fn a_canary_that_cannot_be_served_costs_the_other_ingress_nothing() {
    let share = [("canary-weight", "50")];
    let own = |name: &str, spec: Value| {
        let mut cluster = canary(&[], &[]);
        cluster.put(ObjectKind::Ingress, ingress(name, &[("canary", "true"), share[0]], spec));
        cluster
    };
    let mut elsewhere = canary(&share, &[]);
    let mut other =
        ingress("next", &[("canary", "true"), share[0]], host("a", &[path("Prefix", "/", "stock")]));
    other["metadata"]["namespace"] = json!("other");
    elsewhere.remove(&gateway::Reference {
        kind: ObjectKind::Ingress,
        namespace: "shop".to_owned(),
        name: "next".to_owned(),
    });
    elsewhere.put(ObjectKind::Ingress, other);
    for (cluster, expected) in [
        (
            own("next", host("a", &[path("Prefix", "/", "gone")])),
            "Ingress shop/next: it gets no requests: Service shop/gone does not exist",
        ),
        (
            own("next", host("a", &[path("Prefix", "/x", "blog")])),
            "Ingress shop/next: annotation canary: no other Ingress has a/x",
        ),
        (
            own("z", host("a", &[path("Prefix", "/", "blog")])),
            "Ingress shop/z: annotation canary: an older canary has a/",
        ),
        (elsewhere, "Ingress other/next: annotation canary: no other Ingress has a/"),
        (
            canary(&[("canary-weight", "many")], &[]),
            r#"Ingress shop/next: it gets no requests: annotation canary-weight: "many" is not supported; expected a number of at most 1000"#,
        ),
    ] {
        let translation = translated(&cluster);
        assert_eq!(remarks(&translation), [expected]);
        assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "shop.cart.80");
    }
    // A condition that Vanward cannot compile is refused, too.
    let cluster =
        canary(&[("canary-by-header", "X"), ("canary-by-header-pattern", "(?:a{1000}){1000}")], &[]);
    let translation =
        gateway::settle(&cluster, &crate::scene::options(), &crate::scene::Test, |translation| {
            let mistakes = crate::scene::mistakes(translation);
            let complaint = |mistake: config::Mistake| gateway::Complaint {
                line: Some(mistake.line),
                why: mistake.sentence(),
            };
            mistakes.into_iter().map(complaint).collect()
        });
    let translation = translation.expect("each mistake comes from an object");
    assert!(remarks(&translation)[0].starts_with("Ingress shop/next: it gets no requests: "));
    assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "shop.cart.80");
    // A mistake in the main Ingress does not affect the canary.
    let translation = translated(&canary(&share, &[("auth-signin", "x")]));
    assert_eq!(remarks(&translation).len(), 1);
    assert_eq!(answer(&config(&translation), 80, "GET http://a/"), "500");
}
