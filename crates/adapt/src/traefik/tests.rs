//! Whole configurations: the output, the remarks, and that no statement is lost.

use super::*;
use crate::told::{self, filled, nothing, options, routes, whole};

/// Configurations in the style of tutorials and projects: the static file, the dynamic file, and its name.
const SAMPLES: [(&str, &str, &str); 6] = [
    (
        include_str!("../../samples/traefik/01-whoami.yml"),
        include_str!("../../samples/traefik/01-whoami.dynamic.yml"),
        "dynamic.yml",
    ),
    (
        include_str!("../../samples/traefik/02-tls.yml"),
        include_str!("../../samples/traefik/02-tls.dynamic.toml"),
        "dynamic.toml",
    ),
    (
        include_str!("../../samples/traefik/03-hosts.yml"),
        include_str!("../../samples/traefik/03-hosts.dynamic.yml"),
        "dynamic.yml",
    ),
    (
        include_str!("../../samples/traefik/04-guards.yml"),
        include_str!("../../samples/traefik/04-guards.dynamic.yml"),
        "dynamic.yml",
    ),
    (
        include_str!("../../samples/traefik/05-rules.yml"),
        include_str!("../../samples/traefik/05-rules.dynamic.yml"),
        "dynamic.yml",
    ),
    (
        include_str!("../../samples/traefik/06-paths.yml"),
        include_str!("../../samples/traefik/06-paths.dynamic.yml"),
        "dynamic.yml",
    ),
];

#[track_caller]
fn checked(text: &str, include: Include<'_>) -> Adapted {
    let adapted = adapt(text, "T.yml", include).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "T.yml", include).expect("it was read");
    whole(&source, &adapted);
    adapted
}

/// A dynamic file with one router: its rule, middlewares by name, and their definitions.
#[track_caller]
fn one(rule: &str, names: &str, middlewares: &str) -> Adapted {
    let text = format!(
        "http:\n  routers:\n    r:\n      rule: {rule}\n      middlewares: [{names}]\n      service: s\n  middlewares:\n{middlewares}  services:\n    s:\n      loadBalancer:\n        servers:\n          - url: http://a:1\n"
    );
    checked(&text, &mut nothing)
}

#[test]
fn samples_are_valid_and_whole() {
    for (text, dynamic, name) in SAMPLES {
        let dynamic = filled(dynamic);
        let mut include = |pattern: &str| match pattern {
            "dynamic.yml" | "/etc/traefik/dynamic/**/*.toml" => Ok(vec![(name.to_owned(), dynamic.clone())]),
            _ => Ok(Vec::new()),
        };
        checked(&filled(text), &mut include);
    }
}

/// Routers by name, rule and further lines, and the expected routes.
type Case<'c> = (&'c [(&'c str, &'c str, &'c str)], &'c [&'c str]);

#[test]
fn the_router_with_the_highest_priority_decides() {
    let router = |name: &str, rule: &str, more: &str| {
        format!("    {name}:\n      rule: {rule}\n      service: {name}\n{more}")
    };
    let service = |name: &str| {
        format!("    {name}:\n      loadBalancer:\n        servers:\n          - url: http://{name}:1\n")
    };
    let cases: [Case<'_>; 4] = [
        // The longer rule wins.
        (
            &[("a", "PathPrefix(`/`)", ""), ("b", "PathPrefix(`/b`)", "")],
            &["path = \"/b*\"; upstream = \"b\"", "upstream = \"a\""],
        ),
        // Regardless of the priority.
        (
            &[("a", "PathPrefix(`/`)", "      priority: 100\n"), ("b", "PathPrefix(`/b`)", "")],
            &["upstream = \"a\""],
        ),
        (
            &[("a", "Host(`a.b`)", ""), ("b", "PathPrefix(`/long/path`)", "")],
            &[
                "host = \"a.b\"; path = \"/long/path*\"; upstream = \"b\"",
                "path = \"/long/path*\"; upstream = \"b\"",
                "host = \"a.b\"; upstream = \"a\"",
            ],
        ),
        // Requests that no router matches get 404, even inside another router's region.
        (
            &[("a", "\"Host(`a.b`) && !Path(`/x`)\"", "")],
            &[
                "host = \"a.b\"; path = \"= /x\"; respond = { status = 404 }",
                "host = \"a.b\"; upstream = \"a\"",
            ],
        ),
    ];
    for (routers, expected) in cases {
        let mut text = "http:\n  routers:\n".to_owned();
        routers.iter().for_each(|(name, rule, more)| text += &router(name, rule, more));
        text += "  services:\n";
        routers.iter().for_each(|(name, ..)| text += &service(name));
        let short = ", body = \"404 page not found\\n\", content_type = \"text/plain; charset=utf-8\"";
        let mut found: Vec<String> =
            routes(&checked(&text, &mut nothing)).iter().map(|route| route.replace(short, "")).collect();
        let mut expected: Vec<String> = expected.iter().map(|route| (*route).to_owned()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn rules_without_an_option_become_conditions() {
    let adapted = one("\"(Method(`PUT`) || Header(`X-A`, `1`)) && !Query(`a`, `1`)\"", "", "");
    let when = "when = '(request.method == \"PUT\" || \"1\" in request.headers[\"x-a\"]) && !(\"1\" in request.query[\"a\"])'; upstream = \"s\"";
    assert_eq!(routes(&adapted), [when]);
    // An expression that is too long has no translation: where the router guards, its requests get 501.
    let long = format!("\"Path(`/x`) && HeaderRegexp(`X-A`, `{}`)\"", "a".repeat(5000));
    let closed = "path = \"= /x\"; respond = { status = 501, body = \"not taken over from traefik\\n\", content_type = \"text/plain\" }";
    let guard = "    m:\n      ipAllowList: { sourceRange: [10.0.0.0/8] }\n";
    assert_eq!(routes(&one(&long, "m", guard)), [closed]);
}

#[test]
fn middlewares_become_options() {
    let cases = [
        ("addPrefix: { prefix: /v1 }", "rewrite = { pattern = \"(.*)\", path = \"/v1$1\" }"),
        ("replacePath: { path: /x }", "rewrite = { pattern = \".*\", path = \"/x\" }"),
        ("stripPrefix: { prefixes: [/a] }", "rewrite = { pattern = \"/a/?(.*)\", path = \"/$1\" }"),
        ("stripPrefix: { prefixes: [/a] }", "request_headers = { set = { X-Forwarded-Prefix = \"/a\" } }"),
        ("redirectScheme: { scheme: https }", "redirect = { to = \"https://$host$path\", status = 307 }"),
        (
            "redirectScheme: { scheme: https, port: 8443, permanent: true }",
            "redirect = { to = \"https://$host:8443$path\", status = 308 }",
        ),
        (
            "headers: { stsSeconds: 60, forceSTSHeader: true }",
            "response_headers = { set = { Strict-Transport-Security = \"max-age=60\" } }",
        ),
        (
            "headers: { customRequestHeaders: { X-A: b, X-C: '' } }",
            "request_headers = { set = { X-A = \"b\" }, remove = [\"X-C\"] }",
        ),
        (
            "headers: { accessControlAllowOriginList: [https://a.b], accessControlMaxAge: 60 }",
            "cors = { origins = [\"https://a.b\"], max_age = \"1m\" }",
        ),
        ("ipAllowList: { sourceRange: [10.0.0.0/8] }", "allow = [\"10.0.0.0/8\"]"),
        ("rateLimit: { average: 100, burst: 50 }", "rate_limit = { rate = \"100/s\", burst = 50 }"),
        (
            "rateLimit: { average: 6, period: 1m, sourceCriterion: { requestHeaderName: X-A } }",
            "rate_limit = { rate = \"6/m\", burst = 1, key = \"header:X-A\" }",
        ),
        ("inFlightReq: { amount: 10 }", "concurrency = { max = 10, by = \"host\" }"),
        (
            "inFlightReq: { amount: 10, sourceCriterion: { ipStrategy: { depth: 1 } } }",
            "concurrency = { max = 10, by = \"client\" }",
        ),
        (
            "inFlightReq: { amount: 10, sourceCriterion: { requestHeaderName: X-A } }",
            "concurrency = { max = 10, by = \"header:X-A\" }",
        ),
        (
            "inFlightReq: { sourceCriterion: { requestHost: true } }",
            "respond = { status = 501, body = \"not taken over from traefik\\n\", content_type = \"text/plain\" }",
        ),
        ("retry: { attempts: 4 }", "retry = { attempts = 4 }"),
        ("buffering: { maxRequestBodyBytes: 1024 }", "limits = { body_bytes = \"1KiB\" }"),
        ("compress: {}", "compress = { codings = [\"gzip\", \"br\", \"zstd\"], min_size = \"1KiB\" }"),
        (
            "forwardAuth: { address: 'http://b:2/verify', authResponseHeaders: [X-User] }",
            "forward_auth = { upstream = \"b-2\", path = \"/verify\", copy_headers = [\"X-User\"] }",
        ),
        ("basicAuth: { users: ['a:b'] }", "auth = { users = \"./m.users\", realm = \"traefik\" }"),
        (
            "plugin: { x: { y: z } }",
            "respond = { status = 501, body = \"not taken over from traefik\\n\", content_type = \"text/plain\" }",
        ),
    ];
    for (middleware, option) in cases {
        let written = options(&one("PathPrefix(`/`)", "m", &format!("    m:\n      {middleware}\n")));
        assert!(written.iter().any(|line| line == option), "{middleware}: {written:#?}");
    }
}

#[test]
fn a_time_for_connecting_is_that_of_an_upstream() {
    let text = "http:\n  routers:\n    r:\n      rule: PathPrefix(`/`)\n      service: s\n  services:\n    s:\n      loadBalancer:\n        \
                serversTransport: t\n        servers:\n          - url: http://a:1\n  serversTransports:\n    t:\n      \
                forwardingTimeouts:\n        dialTimeout: 2s\n";
    let written = options(&checked(text, &mut nothing));
    assert!(written.iter().any(|line| line == "pool = { connect_timeout = \"2s\" }"), "{written:#?}");
    let written = options(&checked(&text.replace("2s", "0s"), &mut nothing));
    assert!(!written.iter().any(|line| line.starts_with("pool")), "{written:#?}");
}

#[test]
fn expressions_over_a_url_become_redirects_of_hosts_and_paths() {
    let cases = [
        ("^https?://www\\.(.*)", "https://${1}", "to = \"https://a.b$path\""),
        (
            "^http://www.a.b/(.*)",
            "https://a.b/${1}",
            "to = \"https://a.b/${1}\", status = 307, pattern = \"/(.*)\"",
        ),
        ("^https?://[^/]+/old/(.*)$", "/new/$1", "to = \"/new/${1}\", status = 307, pattern = \"/old/(.*)\""),
    ];
    for (regex, replacement, expected) in cases {
        let middleware = format!(
            "    m:\n      redirectRegex:\n        regex: '{regex}'\n        replacement: '{replacement}'\n"
        );
        let adapted = one("Host(`www.a.b`)", "m", &middleware);
        assert!(adapted.toml.contains(expected), "{regex}: {}", adapted.toml);
    }
}

#[test]
fn what_cannot_be_said_is_told() {
    let cases = [
        (
            "udp:\n  services:\n    u:\n      loadBalancer:\n        servers:\n          - address: a:1\n",
            "datagrams",
        ),
        ("providers:\n  docker: {}\n", "routes cannot come from there"),
        ("api:\n  insecure: true\n", "a separate address"),
        ("http:\n  routers:\n    r:\n      rule: Host(`a b`)\n      service: s\n", "a b is no host"),
        (
            "http:\n  routers:\n    r:\n      rule: Host(`a`)\n      service: s@docker\n",
            "of another provider",
        ),
        ("http:\n  routers:\n    r:\n      rule: Host(`{{ env \"A\" }}`)\n      service: s\n", "a template"),
        ("http:\n  routrs:\n    r:\n      rule: Host(`a`)\n", "does not know it"),
    ];
    for (text, why) in cases {
        let adapted = checked_text(text);
        assert!(
            adapted
                .remarks
                .iter()
                .any(|remark| remark.kind == RemarkKind::Refused && remark.why.contains(why)),
            "{text}: {:#?}",
            adapted.remarks
        );
    }
}

/// Translates a part of a file, which alone is no valid configuration.
#[track_caller]
fn checked_text(text: &str) -> Adapted {
    let adapted = adapt(text, "T.yml", &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "T.yml", &mut nothing).expect("it was read");
    told::sound(&source, &adapted);
    adapted
}

#[test]
fn yaml_and_toml_say_the_same() {
    let yaml = "x: &a { rule: Host(`a.b`), service: s }\nhttp:\n  routers:\n    r:\n      <<: *a\n  services:\n    s: { loadBalancer: { servers: [ { url: \"http://a:1\" } ] } }\n";
    let toml = "[http.routers.r]\nrule = \"Host(`a.b`)\"\nservice = \"s\"\n[[http.services.s.loadBalancer.servers]]\nurl = \"http://a:1\"\n";
    let written = |text: &str, name: &str| {
        options(&adapt(text, name, &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}")))
    };
    assert_eq!(written(yaml, "a.yml"), written(toml, "a.toml"));
    assert_eq!(written(yaml, "-"), written(toml, "-"));
    for (text, place) in [
        ("http:\n  a: b\n c: d\n", "a.yml:3:"),
        ("a = \n", "a.toml:1:5"),
        ("[ a, b ]\n", "a.yml:1:1: there are no keys"),
    ] {
        let name = place.split(':').next().unwrap_or_default();
        let mistake = adapt(text, name, &mut nothing).expect_err(text);
        assert!(mistake.to_string().starts_with(place), "{mistake}");
    }
    let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
    assert!(adapt(&deep, "a.yml", &mut nothing).is_err());
    let many = (0..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, number| {
        format!("{text}a{}: &a{} [*a{number}, *a{number}, *a{number}]\n", number + 1, number + 1)
    });
    assert!(adapt(&many, "a.yml", &mut nothing).is_err_and(|mistake| mistake.message.contains("100000")));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(words in proptest::collection::vec(told::word(include_str!("words.txt")), 0..40)) {
        let text = words.concat();
        if let Ok(adapted) = adapt(&text, "T.yml", &mut nothing) {
            let (_, source) = syntax::read(&text, "T.yml", &mut nothing).expect("it was read");
            told::sound(&source, &adapted);
        }
    }
}

#[test]
fn another_service_answers_in_place_of_errors() {
    let middleware = |status: &str, query: &str| {
        format!(
            "    e:\n      errors:\n        status: [{status}]\n        service: s\n        query: {query}\n"
        )
    };
    let fallback = "{ upstream = \"s\", path = \"/{status}.html\", keep_status = true }";
    for (status, keys) in [
        ("\"500-599\"", &["5xx"][..]),
        ("\"404\", \"502-503\"", &["404", "502", "503"]),
        ("\"400-499\"", &["4xx"]),
    ] {
        let adapted = one("PathPrefix(`/`)", "e", &middleware(status, "\"/{status}.html\""));
        for key in keys {
            assert!(adapted.toml.contains(&format!("{key} = {fallback}")), "{status}: {}", adapted.toml);
        }
    }
    for (status, query) in [("\"200-299\"", "/x"), ("\"400-450\"", "/x"), ("\"500\"", "\"/{url}\"")] {
        let adapted = one("PathPrefix(`/`)", "e", &middleware(status, query));
        assert!(!adapted.toml.contains("on_status") && adapted.refused() > 0, "{}", adapted.toml);
    }
}

/// A folder may hold the static file, and files of other programs.
#[test]
fn only_dynamic_options_are_read_from_a_folder() {
    let own = "entryPoints:\n  web:\n    address: ':80'\nproviders:\n  file:\n    directory: conf\n";
    let compose = "services:\n  traefik:\n    image: traefik\n";
    let dynamic = "http:\n  routers:\n    a:\n      rule: PathPrefix(`/`)\n      service: s\n  services:\n    s:\n      \
                   loadBalancer:\n        servers:\n          - url: http://127.0.0.1:1\n";
    let adapted = adapt(own, "conf/traefik.yml", &mut |pattern: &str| {
        let files = [("conf/traefik.yml", own), ("conf/compose.yml", compose), ("conf/d.yml", dynamic)];
        Ok(match pattern.ends_with(".yml") {
            true => files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            false => Vec::new(),
        })
    });
    let adapted = adapted.expect("it is read");
    told::valid(&adapted);
    assert_eq!(adapted.toml.matches("[[listen]]").count(), 1, "{}", adapted.toml);
    assert_eq!(routes(&adapted).len(), 1, "{}", adapted.toml);
}

#[test]
fn rules_are_read_by_the_version_that_the_router_or_the_static_file_names() {
    let routers = |own: &str| {
        format!(
            "http:\n  routers:\n    r:\n      rule: \"Path(`/a/{{id}}`)\"\n{own}      service: s\n  services:\n    s:\n      \
             loadBalancer:\n        servers:\n          - url: http://a:1\n"
        )
    };
    let (two, three) = ("path = \"~ /a/[^/]+\"", "path = \"~ /a/\\\\{id\\\\}\"");
    let default = "core:\n  defaultRuleSyntax: v2\n";
    for (default, own, expected) in [
        ("", "", three),
        ("", "      ruleSyntax: v2\n", two),
        (default, "", two),
        (default, "      ruleSyntax: v3\n", three),
    ] {
        let adapted = checked_text(&format!("{default}{}", routers(own)));
        let found = routes(&adapted);
        assert!(found.iter().any(|route| route.contains(expected)), "{default}{own}: {found:#?}");
        assert_eq!(adapted.refused(), 0, "{:?}", adapted.remarks);
    }
}
