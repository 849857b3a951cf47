//! Whole configurations: the output, the remarks, and that no statement is lost.

use super::*;
use crate::RemarkKind;
use crate::told::{self, filled, nothing, options, routes, whole};

const SAMPLES: [&str; 12] = [
    include_str!("../../samples/varnish/01-site.vcl"),
    include_str!("../../samples/varnish/02-directors.vcl"),
    include_str!("../../samples/varnish/03-rules.vcl"),
    include_str!("../../samples/varnish/04-default.vcl"),
    include_str!("../../samples/varnish/05-pass.vcl"),
    include_str!("../../samples/varnish/06-devices.vcl"),
    include_str!("../../samples/varnish/07-access.vcl"),
    include_str!("../../samples/varnish/08-cache.vcl"),
    include_str!("../../samples/varnish/09-devices-apart.vcl"),
    include_str!("../../samples/varnish/10-keys.vcl"),
    include_str!("../../samples/varnish/11-restarts.vcl"),
    include_str!("../../samples/varnish/12-stored-restarts.vcl"),
];

#[track_caller]
fn checked(text: &str) -> Adapted {
    let adapted = adapt(text, "v.vcl", &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "v.vcl", &mut nothing).expect("it was read");
    whole(&source, &adapted);
    adapted
}

#[test]
fn samples_are_valid_and_whole() {
    for text in SAMPLES {
        checked(&filled(text));
    }
}

fn with(recv: &str) -> String {
    format!(
        "vcl 4.1;\nbackend a {{ .host = \"127.0.0.1\"; }}\nbackend b {{ .host = \"127.0.0.2\"; }}\nsub vcl_recv {{\n{recv}\n}}\n"
    )
}

#[test]
fn statements_become_routes() {
    let cached = "cache = { default_ttl = \"2m\", stale_while_revalidate = \"10s\", heuristic = \"0%\", ignore = \"request-directives\" }";
    // The built-in VCL passes requests with these fields.
    let open =
        |when: &str| format!("upstream = \"a\"; {}", cached.replace("{ ", &format!("{{ when = '{when}', ")));
    let both = "!(\"authorization\" in request.headers || \"cookie\" in request.headers)";
    let passed = "headers = { Authorization = true }; upstream = \"a\"";
    let cases: [(&str, &[String]); 12] = [
        ("", &[open(both)]),
        (
            "unset req.http.Cookie;",
            &[open("!(\"authorization\" in request.headers)").replacen(
                "upstream",
                "request_headers = { remove = [\"Cookie\"] }; upstream",
                1,
            )],
        ),
        (
            "if (req.http.Authorization) { return (pass); }",
            &[passed.to_owned(), open("!(\"cookie\" in request.headers)")],
        ),
        (
            "set req.http.Cookie = \"a=b\";",
            &["request_headers = { set = { Cookie = \"a=b\" } }; upstream = \"a\"".to_owned()],
        ),
        ("return (pass);", &["upstream = \"a\"".to_owned()]),
        ("return (hash);", &[format!("upstream = \"a\"; {cached}")]),
        (
            "if (req.url == \"/x\") { return (synth(404, \"no\")); } return (pass);",
            // With a query, it is another URL.
            &[
                "path = \"= /x\"; when = '!has(request.query)'; respond = { status = 404 }".to_owned(),
                "upstream = \"a\"".to_owned(),
            ],
        ),
        (
            "if (req.url ~ \"^/x\\.(a|b)$\") { return (synth(404, \"no\")); } return (pass);",
            &[
                "path = \"~ /x\\\\.(a|b)\"; when = '!has(request.query)'; respond = { status = 404 }".to_owned(),
                "upstream = \"a\"".to_owned(),
            ],
        ),
        (
            "if (req.url ~ \"\\.zip$\") { set req.backend_hint = b; } return (pass);",
            &[
                "when = '(request.raw_path + (has(request.query) ? \"?\" + request.query : \"\")).matches(\"\\\\.zip$\")'; upstream = \"b\"".to_owned(),
                "upstream = \"a\"".to_owned(),
            ],
        ),
        // Only paths that are sent as they are written pass what refuses others.
        (
            "if (req.url ~ \"^/open/\") { return (pass); } if (req.url !~ \"^/in/\") { return (synth(403)); } return (pass);",
            &[
                "path = \"/open/*\"; when = 'request.raw_path.startsWith(\"/open/\")'; upstream = \"a\"".to_owned(),
                "path = \"/in/*\"; when = 'request.raw_path.startsWith(\"/in/\")'; upstream = \"a\"".to_owned(),
                "respond = { status = 403 }".to_owned(),
            ],
        ),
        (
            "if (req.http.host == \"x.y\") { set req.backend_hint = b; } return (pass);",
            &["host = \"x.y\"; upstream = \"b\"".to_owned(), "upstream = \"a\"".to_owned()],
        ),
        (
            "if (req.method == \"POST\" || req.http.X-A) { set req.backend_hint = b; } else { return (pass); } return (pass);",
            &[
                "when = 'request.method == \"POST\" || \"x-a\" in request.headers'; upstream = \"b\""
                    .to_owned(),
                "upstream = \"a\"".to_owned(),
            ],
        ),
    ];
    for (recv, expected) in cases {
        assert_eq!(routes(&checked(&with(recv))), expected, "{recv}");
    }
}

#[test]
fn statements_become_options() {
    let cases = [
        (
            "set req.http.X-A = client.ip + \" b\"; return (pass);",
            "request_headers = { set = { X-A = \"${client_address} b\" } }",
        ),
        (
            "set req.http.X-A = server.hostname; return (pass);",
            "request_headers = { set = { X-A = \"${hostname}\" } }",
        ),
        ("unset req.http.X-A; return (pass);", "request_headers = { remove = [\"X-A\"] }"),
        (
            "set req.url = regsub(req.url, \"^/a\", \"/b\"); return (pass);",
            "rewrite = { pattern = \"/a(.*)\", path = \"/b$1\" }",
        ),
        (
            "if (req.method == \"PURGE\") { return (purge); } return (pass);",
            "purge_from = [\"0.0.0.0/0\", \"::/0\"]",
        ),
    ];
    for (recv, option) in cases {
        let written = options(&checked(&with(recv)));
        assert!(written.iter().any(|line| line == option), "{recv}: {written:#?}");
    }
    let normalized = "set req.http.Host = regsub(req.http.Host, \":[0-9]+\", \"\"); if (req.http.host == \"x.y\") { return (synth(404, \"no\")); } return (pass);";
    let written = routes(&checked(&with(normalized)));
    assert_eq!(written, ["host = \"x.y\"; respond = { status = 404 }", "upstream = \"a\""]);
    let refused = checked(&with("if (std.healthy(req.backend_hint)) { return (pass); }"));
    assert!(
        refused.remarks.iter().any(|remark| remark.kind == RemarkKind::Refused && remark.line == 5),
        "{:?}",
        refused.remarks
    );
}

#[test]
fn a_field_that_a_rule_sets_decides_later() {
    let set = "if (req.http.X-B == \"1\") { set req.http.X-A = \"yes\"; } else { unset req.http.X-A; }\n";
    let found = routes(&checked(&with(&format!(
        "{set}if (req.http.X-A == \"yes\") {{ set req.backend_hint = b; }} return (pass);"
    ))));
    let expected = [
        "headers = { X-B = \"1\" }; request_headers = { set = { X-A = \"yes\" } }; upstream = \"b\"",
        "request_headers = { remove = [\"X-A\"] }; upstream = \"a\"",
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_protects_is_closed_where_its_condition_is_unknown() {
    let closed = "respond = { status = 501 }";
    let cases = [
        ("if (std.healthy(a)) { return (synth(403, \"no\")); } return (hash);", closed),
        ("if (std.healthy(a)) { return (pass); } return (hash);", "upstream = \"a\""),
        (
            "set req.http.X-A = now; if (req.http.X-A == \"1\") { return (synth(404)); } return (hash);",
            closed,
        ),
        ("if (!client.ip ~ none) { return (synth(403)); } return (hash);", closed),
    ];
    for (recv, expected) in cases {
        let adapted = checked(&with(recv));
        assert_eq!(routes(&adapted), [expected], "{recv}");
        assert!(adapted.remarks.iter().any(|remark| remark.kind == RemarkKind::Refused), "{recv}");
    }
    let text = with("return (hash);") + "sub vcl_hash { hash_data(client.ip); }\n";
    assert_eq!(routes(&checked(&text)), ["upstream = \"a\""]);
    let text = with("return (hash);")
        + "sub vcl_backend_response { if (std.healthy(a)) { set beresp.uncacheable = true; } }\n";
    assert_eq!(routes(&checked(&text)), ["upstream = \"a\""]);
}

#[test]
fn statements_about_responses_become_options() {
    let cases: [(&str, &[&str]); 7] = [
        ("set beresp.ttl = 1h;", &["ttl = \"1h\", status_ttl = { 200-599 = \"1h\" }"]),
        (
            "set beresp.ttl = 1h; if (beresp.status == 404) { set beresp.ttl = 1m; }",
            &["ttl = \"1h\", status_ttl = { 404 = \"1m\", 200-599 = \"1h\" }"],
        ),
        // Responses without a lifetime, and those with Set-Cookie, are not stored.
        (
            "if (beresp.ttl <= 0s) { set beresp.ttl = 2m; set beresp.uncacheable = true; }",
            &["default_ttl = \"2m\""],
        ),
        (
            "if (beresp.http.Set-Cookie ~ \"a=\") { set beresp.uncacheable = true; return (deliver); }",
            &["default_ttl"],
        ),
        (
            "if (beresp.http.X-A) { set beresp.uncacheable = true; }",
            &["rules = [{ when = '\"x-a\" in response.headers', ttl = \"0s\" }]"],
        ),
        (
            "if (beresp.http.X-A ~ \"b\") { set beresp.ttl = 1m; }",
            &["rules = [{ when = '(response.headers[\"x-a\"] ?? \"\").matches(\"b\")', ttl = \"1m\" }]"],
        ),
        (
            "if (beresp.http.Content-Type ~ \"text\") { set beresp.do_gzip = true; }",
            &[
                "compress = { codings = [\"gzip\"], min_size = 1, types = [\"*/*\"], when = '(response.headers[\"content-type\"] ?? \"\").matches(\"text\")' }",
            ],
        ),
    ];
    for (statements, expected) in cases {
        let text = with("return (hash);") + &format!("sub vcl_backend_response {{ {statements} }}\n");
        let adapted = checked(&text);
        assert_eq!(adapted.refused(), 0, "{statements}: {:?}", adapted.remarks);
        let found = routes(&adapted).join("\n");
        assert!(expected.iter().all(|part| found.contains(part)), "{statements}: {found}");
    }
}

#[test]
fn repeated_requests_become_another_upstream() {
    let restart = |condition: &str| {
        format!("sub vcl_deliver {{ if ({condition}) {{ set req.backend_hint = b; return (restart); }} }}")
    };
    let retry = |condition: &str| {
        format!(
            "sub vcl_backend_response {{ if ({condition}) {{ set bereq.backend = b; return (retry); }} }}"
        )
    };
    let failures =
        "sub vcl_backend_error { if (bereq.retries == 0) { set bereq.backend = b; return (retry); } }";
    let only = "{ upstream = \"b\", only_failures = true }";
    let of_failures = format!("502 = {only}, 503 = {only}, 504 = {only}");
    for (recv, rest, expected) in [
        ("", restart("resp.status == 404 && req.restarts == 0"), "404 = { upstream = \"b\" }".to_owned()),
        (
            "",
            restart("req.restarts < 1 && (resp.status == 404 || resp.status == 410)"),
            "404 = { upstream = \"b\" }, 410 = { upstream = \"b\" }".to_owned(),
        ),
        (
            "",
            restart("resp.status >= 500 && resp.status < 600 && req.restarts == 0"),
            "5xx = { upstream = \"b\" }".to_owned(),
        ),
        // All failures are 503 there.
        (
            "",
            restart("resp.status == 503 && req.restarts == 0"),
            format!("503 = {{ upstream = \"b\" }}, 502 = {only}, 504 = {only}"),
        ),
        (
            "if (req.restarts > 0) { set req.backend_hint = b; }",
            "sub vcl_deliver { if (resp.status == 404) { if (req.restarts == 0) { return (restart); } } }"
                .to_owned(),
            "404 = { upstream = \"b\" }".to_owned(),
        ),
        ("", retry("beresp.status == 500 && bereq.retries == 0"), "500 = { upstream = \"b\" }".to_owned()),
        ("", failures.to_owned(), of_failures.clone()),
        (
            "",
            retry("beresp.status >= 500 && bereq.retries == 0") + failures,
            "5xx = { upstream = \"b\" }".to_owned(),
        ),
        (
            "",
            "sub vcl_backend_fetch { if (bereq.retries > 0) { set bereq.backend = b; } }\n\
             sub vcl_backend_error { return (retry); }"
                .to_owned(),
            of_failures.clone(),
        ),
        (
            "if (req.restarts > 0) { set req.backend_hint = b; }",
            "sub vcl_backend_response { if (beresp.status >= 500) { return (abandon); } }\n\
             sub vcl_synth { if (resp.status == 503 && req.restarts == 0) { return (restart); } }"
                .to_owned(),
            "5xx = { upstream = \"b\" }".to_owned(),
        ),
    ] {
        let adapted = checked(&(with(&format!("{recv} return (pass);")) + &rest));
        let expected = [format!("upstream = \"a\"; on_status = {{ {expected} }}")];
        assert_eq!(routes(&adapted), expected, "{recv} {rest}");
        assert_eq!(adapted.refused(), 0, "{rest}: {:?}", adapted.remarks);
    }
    // A condition on the request decides which routes have it.
    let text = with("return (pass);")
        + "sub vcl_deliver { if (resp.status == 404 && req.restarts == 0 && req.url ~ \"^/x\") { \
           set req.backend_hint = b; return (restart); } }\n";
    let expected =
        ["path = \"/x*\"; upstream = \"a\"; on_status = { 404 = { upstream = \"b\" } }", "upstream = \"a\""];
    assert_eq!(routes(&checked(&text)), expected);
}

#[test]
fn repeated_requests_without_a_translation_have_a_reason() {
    let deliver = |branch: &str| {
        format!(
            "sub vcl_deliver {{ if (resp.status == 404 && req.restarts == 0) {{ {branch} return (restart); }} }}"
        )
    };
    let to_b = deliver("set req.backend_hint = b;");
    for (recv, rest, reason) in [
        ("return (pass);", deliver(""), "the same backend is asked again"),
        ("return (pass);", deliver("set req.url = \"/x\"; set req.backend_hint = b;"), "is not changed here"),
        ("return (pass);", deliver("set req.backend_hint = gone;"), "its backend has no server"),
        (
            "if (req.restarts > 0) { set req.http.X-Again = \"1\"; } return (pass);",
            to_b.clone(),
            "differs in more than its backend: `request_headers`",
        ),
        (
            "set req.url = regsub(req.url, \"^/a\", \"/b\"); return (pass);",
            to_b.clone(),
            "the URL of the repeated request is rewritten again",
        ),
        (
            "if (req.restarts > 0) { return (synth(404)); } return (pass);",
            to_b.clone(),
            "gets a response of the proxy",
        ),
        ("return (hash);", to_b.clone(), "the stored response answers the restarted request as well"),
        (
            "return (pass);",
            "sub vcl_backend_response { if (beresp.status >= 500) { return (abandon); } }".to_owned(),
            "its client gets 503",
        ),
        ("return (pass);", "sub vcl_miss { return (restart); }".to_owned(), "only because of the status"),
        (
            "return (pass);",
            "sub vcl_deliver { if (req.restarts == 0) { return (restart); } }".to_owned(),
            "a request is not sent to restart",
        ),
        (
            "return (pass);",
            "sub vcl_backend_response { if (beresp.status == 302) { set bereq.backend = b; return (retry); } }"
                .to_owned(),
            "only statuses from 400 on",
        ),
    ] {
        let adapted = checked(&(with(recv) + &rest));
        let is_said = adapted
            .remarks
            .iter()
            .any(|remark| remark.kind == RemarkKind::Refused && remark.why.contains(reason));
        assert!(is_said && !adapted.toml.contains("on_status"), "{recv} {rest}: {:#?}", adapted.remarks);
    }
    let unlimited =
        "sub vcl_deliver { if (resp.status == 404) { set req.backend_hint = b; return (restart); } }";
    let adapted = checked(&(with("return (pass);") + unlimited));
    let is_said = |remark: &crate::Remark| {
        remark.kind == RemarkKind::Differs && remark.why.contains("the other upstream is asked once")
    };
    assert!(adapted.remarks.iter().any(is_said), "{:?}", adapted.remarks);
}

#[test]
fn exceptions_of_an_acl_are_written_as_a_condition() {
    let text = with("if (client.ip ~ office) { set req.backend_hint = b; } return (pass);")
        + "acl office { \"10.0.0.0\"/8; ! \"10.1.0.0\"/16; }\n";
    let when = "when = '!(client.address in \"10.1.0.0/16\")'";
    let found = routes(&checked(&text));
    assert_eq!(
        found,
        [format!("clients = [\"10.0.0.0/8\"]; {when}; upstream = \"b\""), "upstream = \"a\"".to_owned()]
    );
}

#[test]
fn a_time_for_connecting_is_that_of_a_backend() {
    let backend = |name: &str, time: &str| {
        format!("backend {name} {{ .host = \"127.0.0.1\"; .connect_timeout = {time}; }}\n")
    };
    let rest = "sub vcl_recv { if (req.url ~ \"^/b\") { set req.backend_hint = b; } return (pass); }\n";
    let adapted = checked(&format!("vcl 4.1;\n{}{}{rest}", backend("a", "2s"), backend("b", "3s")));
    assert_eq!(adapted.toml.matches("pool = { connect_timeout = \"").count(), 2, "{}", adapted.toml);
    let director = "sub vcl_init { new d = directors.round_robin(); d.add_backend(a); d.add_backend(b); }\n\
                    sub vcl_recv { set req.backend_hint = d.backend(); return (pass); }\n";
    for (time, differs) in [("2s", 0), ("3s", 1)] {
        let adapted = checked(&format!("vcl 4.1;\n{}{}{director}", backend("a", "2s"), backend("b", time)));
        assert!(adapted.toml.contains("pool = { connect_timeout = \"2s\" }"), "{}", adapted.toml);
        let said =
            adapted.remarks.iter().filter(|remark| remark.why.starts_with("`pool` is one for all")).count();
        assert_eq!(said, differs, "{:?}", adapted.remarks);
    }
}

#[test]
fn wrong_syntax_has_its_place() {
    let said = |text: &str| adapt(text, "v.vcl", &mut nothing).expect_err(text).to_string();
    assert!(
        said("sub a {\n set x = 1\n}").starts_with("v.vcl:2:2: this statement does not end"),
        "{}",
        said("sub a {\n set x = 1\n}")
    );
    assert!(said("sub a {").starts_with("v.vcl:1:7: this block has no end"));
    assert!(said("backend a { .host = \"x").starts_with("v.vcl:1:21: this has no end"));
    let circle = &mut |_: &str| Ok(vec![("m".to_owned(), "include \"m\";".to_owned())]);
    assert!(adapt("include \"m\";", "v.vcl", circle).expect_err("a circle").message.contains("16 deep"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(words in proptest::collection::vec(told::word(include_str!("words.txt")), 0..40)) {
        let text = words.join("\n");
        if let Ok(adapted) = adapt(&text, "v.vcl", &mut nothing) {
            let (_, source) = syntax::read(&text, "v.vcl", &mut nothing).expect("it was read");
            told::sound(&source, &adapted);
        }
    }
}

#[test]
fn the_cache_key_has_fields_and_constants() {
    let cache = |key: &str| {
        format!(
            "cache = {{ default_ttl = \"2m\", stale_while_revalidate = \"10s\", heuristic = \"0%\", \
             ignore = \"request-directives\"{key} }}"
        )
    };
    let set = |value: &str| format!("request_headers = {{ set = {{ X-A = \"{value}\" }} }}");
    let value = |name: &str, value: &str| format!("values = {{ {name} = '\"{value}\"' }}");
    let (both, keyed) = ("upstream = \"a\"", cache(", key_values = [\"x_a\"]"));
    let cases: [(&str, &str, &[String]); 7] = [
        ("", "req.http.X-A", &[format!("{both}; {}", cache(", key_headers = [\"X-A\"]"))]),
        (
            "set req.http.X-A = \"1\";",
            "req.http.X-A",
            &[format!("{}; {both}; {keyed}; {}", set("1"), value("x_a", "1"))],
        ),
        // Each branch has its own constant.
        (
            "if (req.http.B) { set req.http.X-A = \"1\"; } else { set req.http.X-A = \"2\"; }",
            "req.http.X-A",
            &[
                format!("headers = {{ B = true }}; {}; {both}; {keyed}; {}", set("1"), value("x_a", "1")),
                format!("{}; {both}; {keyed}; {}", set("2"), value("x_a", "2")),
            ],
        ),
        (
            "unset req.http.X-A;",
            "req.http.X-A",
            &[format!("request_headers = {{ remove = [\"X-A\"] }}; {both}; {keyed}; {}", value("x_a", ""))],
        ),
        (
            "",
            "\"one\"",
            &[format!("{both}; {}; {}", cache(", key_values = [\"hash\"]"), value("hash", "one"))],
        ),
        // Not stored: the field has any value.
        (
            "set req.http.X-A = req.http.B;",
            "req.http.X-A",
            &[format!("request_headers = {{ set = {{ X-A = \"${{header.B}}\" }} }}; {both}")],
        ),
        ("", "client.ip", &[both.to_owned()]),
    ];
    let text = |recv: &str, key: &str| {
        with(&format!("{recv} return (hash);")) + &format!("sub vcl_hash {{ hash_data({key}); }}\n")
    };
    for (recv, key, expected) in cases {
        assert_eq!(routes(&checked(&text(recv, key))), expected, "{recv} {key}");
    }
    // What is changed for the server comes after the key.
    let fetch = "sub vcl_backend_fetch { set bereq.http.X-A = \"2\"; }\n";
    let found = routes(&checked(&(text("", "req.http.X-A") + fetch)));
    assert!(found[0].contains("key_headers = [\"X-A\"]"), "{found:?}");
}

#[test]
fn of_a_chain_without_a_translation_nothing_is_left() {
    // The first part alone would be another value.
    let chain = "set req.http.Cookie = \";\" + req.http.Cookie; \
                 set req.http.Cookie = regsuball(req.http.Cookie, \"; +\", \";\"); \
                 set req.http.Cookie = \"x\" + req.http.Cookie; return (pass);";
    let adapted = checked(&with(chain));
    assert_eq!(routes(&adapted), ["upstream = \"a\""]);
    let stays =
        adapted.remarks.iter().filter(|remark| remark.why.ends_with("so the field stays as it was sent"));
    assert_eq!(stays.count(), 2, "{:?}", adapted.remarks);
    // The whole statement is shown, with the semicolon in its text.
    let is_whole = |remark: &crate::Remark| remark.directive.ends_with("\"; +\", \";\")");
    assert!(adapted.remarks.iter().any(is_whole), "{:?}", adapted.remarks);
    // A constant replaces the unknown value, and a field of a client must not pass for the proxy's.
    let chain = "set req.http.X-A = regsub(req.url, \"a\", \"b\"); set req.http.X-B = regsub(req.url, \"a\", \"b\"); \
                 set req.http.X-A = \"c\"; return (pass);";
    let written = options(&checked(&with(chain)));
    let edits = "request_headers = { remove = [\"X-A\", \"X-B\"], set = { X-A = \"c\" } }";
    assert!(written.iter().any(|line| line == edits), "{written:#?}");
}

#[test]
fn requests_that_ban_get_501() {
    for ban in
        ["ban(\"req.url ~ \" + req.url);", "if (std.ban(\"req.url ~ \" + req.url)) { unset req.http.X-A; }"]
    {
        let recv =
            format!("if (req.method == \"BAN\") {{ {ban} return (synth(200, \"Banned\")); }} return (pass);");
        let adapted = checked(&with(&recv));
        assert_eq!(
            routes(&adapted),
            ["methods = \"BAN\"; respond = { status = 501 }", "upstream = \"a\""],
            "{recv}"
        );
        assert!(adapted.remarks.iter().any(|remark| remark.kind == RemarkKind::Refused), "{recv}");
    }
}
