//! Whole configurations: the output, the remarks, and that no statement is lost.

use super::*;
use crate::told::{self, filled, nothing, options, routes, whole};

const SAMPLES: [&str; 18] = [
    include_str!("../../samples/caddy/01-reverse-proxy.Caddyfile"),
    include_str!("../../samples/caddy/02-automatic-https.Caddyfile"),
    include_str!("../../samples/caddy/03-static-site.Caddyfile"),
    include_str!("../../samples/caddy/04-spa-api.Caddyfile"),
    include_str!("../../samples/caddy/05-matchers.Caddyfile"),
    include_str!("../../samples/caddy/06-hosts.Caddyfile"),
    include_str!("../../samples/caddy/07-auth.Caddyfile"),
    include_str!("../../samples/caddy/08-rewrites.Caddyfile"),
    include_str!("../../samples/caddy/09-gateway.Caddyfile"),
    include_str!("../../samples/caddy/10-expressions.Caddyfile"),
    include_str!("../../samples/caddy/11-sets.Caddyfile"),
    include_str!("../../samples/caddy/12-handles.Caddyfile"),
    include_str!("../../samples/caddy/13-guards.Caddyfile"),
    include_str!("../../samples/caddy/14-host-ports.Caddyfile"),
    include_str!("../../samples/caddy/15-flags.Caddyfile"),
    include_str!("../../samples/caddy/16-redirect-map.Caddyfile"),
    include_str!("../../samples/caddy/17-tenants.Caddyfile"),
    include_str!("../../samples/caddy/18-php.Caddyfile"),
];

#[track_caller]
fn checked(text: &str) -> Adapted {
    let adapted = adapt(text, "C", &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "C", &mut nothing).expect("it was read");
    whole(&source, &adapted);
    adapted
}

#[test]
fn samples_are_valid_and_whole() {
    for text in SAMPLES {
        checked(&filled(text));
    }
}

#[test]
fn directives_are_gone_through_in_the_order_of_caddy() {
    let a = "upstream = \"127.0.0.1-1\"";
    let cases: [(&str, &[&str]); 8] = [
        // `respond` comes before `reverse_proxy`, regardless of the order in the file.
        ("reverse_proxy :1\n respond /x 404", &["path = \"~ (?i)/x\"; respond = { status = 404 }", a]),
        ("respond 204\n reverse_proxy :1", &["respond = { status = 204 }"]),
        (
            "redir /a /b\n respond /a 404\n reverse_proxy :1",
            &["path = \"~ (?i)/a\"; redirect = { to = \"/b?\", status = 302 }", a],
        ),
        // For the same name, the longer path comes first.
        (
            "respond /a/* 1xx 201\n respond /a/b/* 202\n reverse_proxy :1",
            &[
                "path = \"~ (?i)/a/b/.*\"; respond = { status = 202 }",
                "path = \"~ (?i)/a/.*\"; respond = { status = 201, body = \"1xx\", content_type = \"text/plain; charset=utf-8\" }",
                a,
            ],
        ),
        // Only one `handle` applies.
        (
            "handle /a {\n respond 201\n }\n handle {\n reverse_proxy :1\n }",
            &["path = \"~ (?i)/a\"; respond = { status = 201 }", a],
        ),
        // All conditions of a set must hold. Requests that nothing answers get an empty page.
        (
            "@m {\n method POST\n header X-A\n }\n respond @m 201",
            &[
                "methods = \"POST\"; headers = { X-A = true }; respond = { status = 201 }",
                "respond = { status = 200 }",
            ],
        ),
        (
            "@m not path /a\n respond @m 201\n reverse_proxy :1",
            &["path = \"~ (?i)/a\"; upstream = \"127.0.0.1-1\"", "respond = { status = 201 }"],
        ),
        // `route` keeps the order of the file.
        ("route {\n reverse_proxy :1\n respond 404\n }", &[a]),
    ];
    for (lines, expected) in cases {
        assert_eq!(routes(&checked(&format!(":80 {{\n {lines}\n}}\n"))), expected, "{lines}");
    }
}

/// As in Caddy, whose matchers of paths ignore case: `/METRICS` is as closed as `/metrics`.
#[test]
fn matchers_of_paths_ignore_case() {
    let closed = "respond = { status = 403 }";
    let cases: [(&str, &[&str]); 5] = [
        ("respond /metrics 403", &["path = \"~ (?i)/metrics\"; CLOSED", "A"]),
        ("respond /In/* 403", &["path = \"~ (?i)/in/.*\"; CLOSED", "A"]),
        ("respond /2024/* 403", &["path = \"/2024/*\"; CLOSED", "A"]),
        // The longer prefix comes first.
        (
            "respond /a/* 403\n respond /a/b/* 201",
            &["path = \"~ (?i)/a/b/.*\"; respond = { status = 201 }", "path = \"~ (?i)/a/.*\"; CLOSED", "A"],
        ),
        // A comparison of the path itself has a case.
        (
            "@m expression {path} == \"/a\"\n redir @m /x\n respond /A 403",
            &[
                "path = \"= /a\"; redirect = { to = \"/x?\", status = 302 }",
                "path = \"~ (?i)/a\"; CLOSED",
                "A",
            ],
        ),
    ];
    for (lines, expected) in cases {
        let expected: Vec<String> = expected
            .iter()
            .map(|route| match *route {
                "A" => "upstream = \"127.0.0.1-1\"".to_owned(),
                other => other.replace("CLOSED", closed),
            })
            .collect();
        let adapted = checked(&format!(":80 {{\n {lines}\n reverse_proxy :1\n}}\n"));
        assert_eq!(routes(&adapted), expected, "{lines}");
    }
}

#[test]
fn a_matcher_from_the_environment_is_its_default() {
    let base = crate::environment::variable("BASE", Some("/app"));
    let server = crate::environment::variable("BACKEND", Some("127.0.0.1:1"));
    let text = format!(":80 {{\n handle_path {base}/* {{\n reverse_proxy {server}\n }}\n respond 404\n}}\n");
    let adapted = checked(&text);
    assert_eq!(
        routes(&adapted),
        [
            "path = \"~ (?i)/app/.*\"; upstream = \"127.0.0.1-1\"; rewrite = { pattern = \"(?i)/app/(.*)\", path = \"/$1\" }; location = false",
            "respond = { status = 404 }",
        ]
    );
    assert!(adapted.toml.contains("servers = [\"http://${BACKEND:-127.0.0.1:1}\"]"), "{}", adapted.toml);
    assert!(adapted.remarks.iter().any(|remark| remark.kind == RemarkKind::Differs && remark.line == 2));
    // Without a default, the block is left out.
    let bare = crate::environment::variable("BASE", None);
    let adapted =
        checked(&format!(":80 {{\n handle_path {bare}/* {{\n reverse_proxy :1\n }}\n respond 404\n}}\n"));
    assert_eq!(routes(&adapted), ["respond = { status = 404 }"]);
}

#[test]
fn the_redirect_to_https_leads_to_the_usual_port_of_a_host() {
    let adapted = checked("a.example, a.example:8448 {\n respond 204\n}\n");
    let found = routes(&adapted).into_iter().filter(|route| route.contains("redirect")).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("https://$host$path_and_query"), "{found:?}");
}

#[test]
fn directives_become_options() {
    let cases = [
        (
            "encode zstd gzip\n reverse_proxy :1",
            "compress = { codings = [\"zstd\", \"gzip\"], min_size = \"512\" }",
        ),
        (
            "@a path_regexp b ^/a/([0-9]+)\\.html$\n redir @a /c/{re.b.1}/ 301\n reverse_proxy :1",
            "redirect = { to = \"/c/${1}/?\", status = 301, pattern = \"/a/([0-9]+)\\\\.html\" }",
        ),
        ("header -Server\n reverse_proxy :1", "response_headers = { remove = [\"Server\"] }"),
        (
            "header {\n X-A {host}\n ?X-B 1\n }\n reverse_proxy :1",
            "response_headers = { set = { X-A = \"$host\" }, default = { X-B = \"1\" } }",
        ),
        (
            "handle_path /a/* {\n reverse_proxy :1\n }",
            "rewrite = { pattern = \"(?i)/a/(.*)\", path = \"/$1\" }",
        ),
        ("request_body {\n max_size 1MB\n }\n reverse_proxy :1", "limits = { body_bytes = \"1000000\" }"),
        (
            "root * /srv\n file_server browse",
            "files = { root = \"/srv\", index = [\"index.html\", \"index.txt\"], listing = true, symlinks = true }",
        ),
        (
            "@f file {\n try_files {path} /app.html\n }\n rewrite @f {http.matchers.file.relative}\n root * /srv\n file_server",
            "files = { root = \"/srv\", index = [\"index.html\", \"index.txt\"], fallback = \"/app.html\", symlinks = true }",
        ),
        (
            "@f {\n not file\n }\n rewrite @f /app.html\n root * /srv\n file_server",
            "files = { root = \"/srv\", index = [\"index.html\", \"index.txt\"], fallback = \"/app.html\", symlinks = true }",
        ),
        (
            "forward_auth :2 {\n uri /v\n copy_headers X-U\n }\n reverse_proxy :1",
            "forward_auth = { upstream = \"127.0.0.1-2\", path = \"/v\", copy_headers = [\"X-U\"] }",
        ),
        ("reverse_proxy :1 :2 {\n lb_policy uri_hash\n }", "hash_key = \"path\""),
        ("reverse_proxy h2c://a:1", "protocol = \"h2\""),
        (
            "reverse_proxy :1 {\n transport http {\n dial_timeout 2s\n }\n }",
            "pool = { connect_timeout = \"2s\" }",
        ),
        (
            "reverse_proxy :1 {\n transport http {\n read_timeout 3s\n write_timeout 2s\n }\n }",
            "timeouts = { upstream_body = \"3s\", upstream_send = \"2s\" }",
        ),
        (
            "php_fastcgi :1",
            "respond = { status = 501, body = \"not taken over from caddy\\n\", content_type = \"text/plain\" }",
        ),
        ("root * /srv\n php_fastcgi :9000", "upstream = \"127.0.0.1-9000\""),
        ("root * /srv\n php_fastcgi :9000", "servers = [\"fcgi://127.0.0.1:9000\"]"),
        (
            "php_fastcgi unix//run/php.sock {\n root /app\n split .php5\n index app.php5\n env A b\n }",
            "fastcgi = { root = \"/app\", split = \".php5\", index = \"app.php5\", params = { A = \"b\" } }",
        ),
        (
            "root * /srv\n php_fastcgi :9000\n file_server browse",
            "files = { root = \"/srv\", index = [], else = { upstream = \"127.0.0.1-9000\" }, symlinks = true }",
        ),
        (
            "reverse_proxy :1\n handle_errors {\n reverse_proxy :2\n }",
            "on_status = { 502 = { upstream = \"127.0.0.1-2\", only_failures = true }, 503 = { upstream = \"127.0.0.1-2\", only_failures = true }, 504 = { upstream = \"127.0.0.1-2\", only_failures = true } }",
        ),
        (
            "reverse_proxy :1\n handle_errors 404 502 {\n rewrite * /e/{http.error.status_code}.html\n reverse_proxy :2\n }",
            "on_status = { 502 = { upstream = \"127.0.0.1-2\", only_failures = true, path = \"/e/{status}.html\" } }",
        ),
        (
            "reverse_proxy :1\n handle_errors {\n respond \"no {err.status_code}\"\n }",
            "error_pages = { \"*\" = { body = \"no {status}\" } }",
        ),
        (
            "root * /srv\n file_server\n handle_errors 404 {\n rewrite * /404.html\n file_server\n }",
            "error_pages = { 404 = \"/srv/404.html\" }",
        ),
        (
            "root * /srv\n try_files {path} {path}.html /down.html\n file_server",
            "files = { root = \"/srv\", index = [\"index.html\", \"index.txt\"], try = [\"$path\", \"$path.html\", \"$path/\"], fallback = \"/down.html\", symlinks = true }",
        ),
        (
            "@f file\n root * /srv\n handle @f {\n file_server\n }\n reverse_proxy :1",
            "files = { root = \"/srv\", try = [\"$path\"], symlinks = true, else = { upstream = \"127.0.0.1-1\" } }",
        ),
        (
            "header Cache-Control max-age=1\n reverse_proxy :1",
            "response_headers = { set = { Cache-Control = \"${cache_control}\" } }",
        ),
    ];
    for (lines, option) in cases {
        let written = options(&checked(&format!(":80 {{\n {lines}\n}}\n")));
        assert!(written.iter().any(|line| line == option), "{lines}: {written:#?}");
    }
}

#[test]
fn matchers_that_no_option_expresses_become_expressions() {
    let closed =
        "respond = { status = 501, body = \"not taken over from caddy\\n\", content_type = \"text/plain\" }";
    let a = "upstream = \"127.0.0.1-1\"";
    let cases: [(&str, &[&str]); 7] = [
        (
            "@m expression {method} == \"POST\" || {query.a} == \"1\"\n respond @m 201",
            &[
                "when = 'request.method == \"POST\" || \"1\" in request.query[\"a\"]'; respond = { status = 201 }",
                a,
            ],
        ),
        (
            "@m {\n header X-A *\n not header X-B *\n }\n respond @m 201",
            &[
                "headers = { X-A = true }; when = '!(\"x-b\" in request.headers)'; respond = { status = 201 }",
                a,
            ],
        ),
        (
            "@m protocol http/2+\n respond @m 505",
            &["when = 'request.version in [\"2\", \"3\"]'; respond = { status = 505 }", a],
        ),
        ("vars x y\n @m vars x y\n respond @m 201", &["respond = { status = 201 }"]),
        // Matchers within `handle_path` see the rest of the path.
        (
            "handle_path /a/* {\n respond /b 201\n reverse_proxy :1\n }",
            &["path = \"~ (?i)/a/b\"; respond = { status = 201 }"],
        ),
        // What protects is closed where its condition is unknown.
        ("@m file /x\n respond @m 403", &[closed]),
        ("@m {\n method PUT\n file /x\n }\n abort @m", &[&format!("methods = \"PUT\"; {closed}"), a]),
    ];
    for (lines, expected) in cases {
        let found = routes(&checked(&format!(":80 {{\n {lines}\n reverse_proxy :1\n}}\n")));
        assert!(expected.iter().all(|route| found.iter().any(|found| found == route)), "{lines}: {found:#?}");
        assert!(found.len() >= expected.len(), "{lines}: {found:#?}");
    }
}

/// The definitions before the routes, and the routes.
fn parts(adapted: &Adapted) -> (String, Vec<String>) {
    let text = options(adapted).join("\n");
    let before = text.split("[[route]]\n").next().unwrap_or_default();
    let defined = before.find("[map.").or_else(|| before.find("[values]")).map_or("", |at| &before[at..]);
    (defined.trim().replace('\n', "; "), routes(adapted))
}

#[test]
fn maps_and_variables_become_maps_and_values() {
    let a = "upstream = \"127.0.0.1-1\"";
    let map =
        "[map.x]; key = 'request.host'; default = \"d\"; entries = { \"a.b\" = \"1\", \"c.d\" = \"2\" }";
    let header = |value: &str| format!("response_headers = {{ set = {{ X-A = \"{value}\" }} }}; {a}");
    let cases: [(&str, String, &[String]); 12] = [
        (
            "map {host} {x} {\n a.b 1\n c.d 2\n default d\n }\n header X-A {x}",
            format!("{map}; [values]; x = 'map.x'"),
            &[header("$x")],
        ),
        (
            "map {host} {x} {\n a.b 1\n c.d 2\n default d\n }\n @m vars {x} 1 d\n respond @m 403",
            map.to_owned(),
            &["when = '(map.x == \"1\") || (map.x == \"d\")'; respond = { status = 403 }".to_owned(), a.to_owned()],
        ),
        (
            "map {host} {x} {\n a.b 1\n c.d 2\n default d\n }\n @m expression {x} == \"1\"\n respond @m 403",
            map.to_owned(),
            &["when = 'map.x == \"1\"'; respond = { status = 403 }".to_owned(), a.to_owned()],
        ),
        // The first line that matches counts; - leaves the decision to the next.
        (
            "map {path} {x} {y} {\n /a 1 -\n ~^/[ab] 2 3\n }\n header X-A {x}{y}",
            "[map.x]; key = 'request.path'; kind = \"regex\"; default = \"\"; \
             entries = { \"^/a$\" = \"1\", \"^/[ab]\" = \"2\" }; \
             [map.y]; key = 'request.path'; kind = \"regex\"; default = \"\"; entries = { \"^/[ab]\" = \"3\" }; \
             [values]; x = 'map.x'; y = 'map.y'"
                .to_owned(),
            &[header("$x$y")],
        ),
        // An address names its upstream.
        (
            "map {host} {x} {\n a.b 8\n default 9\n }\n reverse_proxy h:{x}",
            "[map.x]; key = 'request.host'; default = \"h-9\"; entries = { \"a.b\" = \"h-8\" }; \
             [values]; upstream_name = 'map.x'"
                .to_owned(),
            &["upstream = \"${upstream_name}\"".to_owned()],
        ),
        (
            "@m method POST\n vars x a:8\n vars @m x b:9\n reverse_proxy {vars.x}",
            "[values]; backend = 'request.method == \"POST\" ? \"b:9\" : \"a:8\"'; \
             upstream_name = 'values.backend == \"a:8\" ? \"a-8\" : \"b-9\"'"
                .to_owned(),
            &["upstream = \"${upstream_name}\"".to_owned()],
        ),
        // A redirect to one of several URLs.
        (
            "map {path} {x} {\n /a /b\n /c https://c.d\n }\n @m not vars {x} \"\"\n redir @m {x}",
            "[map.x]; key = 'request.path'; default = \"\"; entries = { \"/a\" = \"/b\", \"/c\" = \"https://c.d\" }"
                .to_owned(),
            &[
                format!("when = 'map.x == \"\"'; {a}"),
                "when = 'map.x == \"/b\"'; redirect = { to = \"/b?\", status = 302 }".to_owned(),
                "redirect = { to = \"https://c.d?\", status = 302 }".to_owned(),
            ],
        ),
        (
            "map {host} {x} {\n a.b c.d\n default e.f\n }\n redir /old https://{x}{uri}",
            "[map.x]; key = 'request.host'; default = \"e.f\"; entries = { \"a.b\" = \"c.d\" }".to_owned(),
            &[
                "path = \"~ (?i)/old\"; when = 'map.x == \"c.d\"'; \
                 redirect = { to = \"https://c.d$path_and_query\", status = 302 }"
                    .to_owned(),
                "path = \"~ (?i)/old\"; redirect = { to = \"https://e.f$path_and_query\", status = 302 }".to_owned(),
                a.to_owned(),
            ],
        ),
        ("vars x y\n header X-A {vars.x}$", String::new(), &[header("y$$")]),
        (
            "vars x {path}\n respond \"{vars.x} of {host}, {\\\"a\\\": 1}\" 200",
            "[values]; x = 'request.path'".to_owned(),
            &["respond = { status = 200, body = \"${x} of ${host}, {\\\"a\\\": 1}\", content_type = \"text/plain; charset=utf-8\" }".to_owned()],
        ),
        (
            "vars x 1\n vars /a* x 2\n vars /a/b x 3\n header X-A {vars.x}",
            "[values]; x = 'request.path.lowerAscii() == \"/a/b\" ? \"3\" : (request.path.lowerAscii().startsWith(\"/a\") ? \"2\" : \"1\")'"
                .to_owned(),
            &[header("$x")],
        ),
        (
            "map {host} {site} {\n a.b one\n default two\n }\n root * /srv/{site}/www\n file_server",
            "[map.site]; key = 'request.host'; default = \"two\"; entries = { \"a.b\" = \"one\" }; [values]; site = 'map.site'"
                .to_owned(),
            &[
                "files = { root = \"/srv/$site/www\", index = [\"index.html\", \"index.txt\"], symlinks = true }"
                    .to_owned(),
            ],
        ),
    ];
    for (lines, defined, expected) in cases {
        let end = if lines.contains("reverse_proxy") || lines.contains("file_server") {
            ""
        } else {
            "reverse_proxy :1"
        };
        let adapted = checked(&format!(":80 {{\n {lines}\n {end}\n}}\n"));
        let (found, routes) = parts(&adapted);
        assert_eq!((found, routes.as_slice()), (defined, expected), "{lines}\n{:?}", adapted.remarks);
    }
}

#[test]
fn placeholders_that_are_not_known_are_refused_and_protect() {
    let closed =
        "respond = { status = 501, body = \"not taken over from caddy\\n\", content_type = \"text/plain\" }";
    let a = "upstream = \"127.0.0.1-1\"";
    let cases = [
        (
            "map {labels} {x} {\n a 1\n }\n @m vars {x} 1\n respond @m 403",
            closed,
            "the value of {x} is not known",
        ),
        (
            "map {host} {x} {\n ~(a) ${1}\n }\n @m vars {x} 1\n respond @m 403",
            closed,
            "a text of the map is not constant",
        ),
        ("map {host} {x} {y} {\n a 1\n }\n header X-A {y}", a, "fewer texts than there are placeholders"),
        ("vars x {labels}\n header X-A {vars.x}", a, "{labels} has no equivalent"),
        (
            "vars x {labels}\n @m expression {vars.x} == \"a\"\n respond @m 403",
            closed,
            "{labels} has no equivalent",
        ),
        ("header X-A {vars.none}", a, "there is no variable {vars.none}"),
        // The source is read when the placeholder is, after a directive has changed it.
        (
            "map {header.X-B} {x} {\n a 1\n }\n request_header X-B c\n reverse_proxy :1 {\n header_up X-A {x}\n }",
            a,
            "an earlier rule changes the field x-b",
        ),
        ("reverse_proxy {header.X-B}", "respond = { status = 503 }", "it can be any address"),
        ("@f not file\n respond @f 404", closed, "routes cannot match on `file`"),
        (
            "@f file /x\n rewrite @f /y\n respond 403",
            "respond = { status = 403 }",
            "routes cannot match on `file`",
        ),
        ("redir https://{header.X-B}/", closed, "its target is not a URL or path"),
    ];
    for (lines, last, why) in cases {
        let adapted = checked(&format!(":80 {{\n {lines}\n reverse_proxy :1\n}}\n"));
        let found = routes(&adapted);
        assert!(found.iter().any(|route| route.ends_with(last)), "{lines}: {found:#?}");
        let is_told = |remark: &crate::Remark| remark.kind == RemarkKind::Refused && remark.why.contains(why);
        assert!(adapted.remarks.iter().any(is_told), "{lines}: {:?}", adapted.remarks);
    }
}

#[test]
fn a_site_with_a_name_has_certificates_and_redirects() {
    let written = options(&checked("example.com\nrespond hi\n")).join("\n");
    let expected = "[[listen]]\naddress = \"*:443\"\ntls = { certificates = \"auto\" }\n[[listen]]\naddress = \"*:80\"\n";
    assert!(written.starts_with(expected), "{written}");
    assert!(written.contains("listener = \"*:443\"\nhost = \"example.com\""), "{written}");
    assert!(!written.contains("redirect_to_https"), "{written}");
}

#[test]
fn a_matcher_for_all_hosts_of_its_site_leaves_no_second_route() {
    let text = "http://*.a.example {\n @all host *.a.example\n handle @all {\n respond 201\n }\n handle {\n respond 404\n }\n}\n";
    let adapted = adapt(text, "C", &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}"));
    assert_eq!(routes(&adapted), ["host = \"*.a.example\"; respond = { status = 201 }"]);
}

#[test]
fn sites_without_a_log_are_not_logged_if_others_are() {
    let sites =
        "http://a.example {\n log\n log_skip /up\n respond 201\n}\nhttp://b.example {\n respond 202\n}\n";
    let adapted = checked(sites);
    assert!(adapted.toml.contains("[log]"), "{}", adapted.toml);
    assert_eq!(
        routes(&adapted),
        [
            "host = \"a.example\"; path = \"~ (?i)/up\"; access_log = false; respond = { status = 201 }",
            "host = \"a.example\"; respond = { status = 201 }",
            "host = \"b.example\"; access_log = false; respond = { status = 202 }",
        ]
    );
    // The log of the process is none of requests.
    let adapted =
        checked("{\n log {\n output file /var/log/caddy.log\n }\n}\nhttp://b.example {\n respond 202\n}\n");
    assert!(!adapted.toml.contains("[log]") && !adapted.toml.contains("access_log"), "{}", adapted.toml);
}

#[test]
fn hosts_of_matchers_narrow_those_of_their_site() {
    let text = "*.a.example, b.example {\n tls c.pem k.pem\n @one host one.a.example\n @sub host *.sub.a.example\n \
                @other host c.test\n respond @one 201\n respond @other 202\n respond @sub 203\n}\n";
    let adapted = checked(text);
    let hosts = |status: u16| {
        let route =
            adapted.toml.split("[[route]]").find(|route| route.contains(&format!("status = {status}")));
        let hosts = route.into_iter().flat_map(str::lines).filter(|line| line.starts_with("host = "));
        hosts.map(|line| line.split("  #").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(hosts(201), ["host = \"one.a.example\""], "{}", adapted.toml);
    assert_eq!(hosts(202), Vec::<String>::new());
    assert_eq!(hosts(203), ["host = \"*.sub.a.example\""], "{}", adapted.toml);
}

#[test]
fn automatic_https_redirects_from_http() {
    let to =
        |port: &str| format!("redirect = {{ to = \"https://$host{port}$path_and_query\", status = 308 }}");
    let plain = |host: &str, port: &str| format!("listener = \"*:80\"; host = \"{host}\"; {}", to(port));
    let all = format!("listener = \"*:80\"; {}", to(""));
    let secure = "listener = \"*:443\"; host = \"a.b\"; respond = { status = 204 }";
    let cases: [(&str, Vec<String>); 7] = [
        ("a.b {\nrespond 204\n}", vec![secure.to_owned(), all.clone()]),
        // Sites of HTTP come first; one for all hosts gets the rest.
        (
            "a.b {\nrespond 204\n}\nhttp://c.d {\nrespond 203\n}",
            vec![
                secure.to_owned(),
                "listener = \"*:80\"; host = \"c.d\"; respond = { status = 203 }".to_owned(),
                all.clone(),
            ],
        ),
        (
            ":80 {\nrespond 203\n}\na.b {\nrespond 204\n}",
            vec![
                "listener = \"*:80\"; respond = { status = 203 }".to_owned(),
                secure.to_owned(),
                plain("a.b", ""),
            ],
        ),
        (
            "a.b, http://a.b {\nrespond 204\n}",
            vec![
                secure.to_owned(),
                "listener = \"*:80\"; host = \"a.b\"; respond = { status = 204 }".to_owned(),
                all.clone(),
            ],
        ),
        (
            "a.b:8443 {\nrespond 204\n}",
            vec![
                "listener = \"*:8443\"; host = \"a.b\"; respond = { status = 204 }".to_owned(),
                plain("a.b", ":8443"),
                all,
            ],
        ),
        (
            "{\nauto_https disable_redirects\n}\na.b {\nrespond 204\n}",
            vec!["host = \"a.b\"; respond = { status = 204 }".to_owned()],
        ),
        (
            "{\nauto_https off\n}\n:8443 {\ntls /c /k\nrespond 204\n}",
            vec!["respond = { status = 204 }".to_owned()],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(routes(&checked(&format!("{text}\n"))), expected, "{text}");
    }
    let written = options(&checked("{\nauto_https off\n}\n:8443 {\ntls /c /k\nrespond 204\n}\n"));
    let tls = "tls = { certificates = [{ cert = \"/c\", key = \"/k\" }] }";
    assert!(written.iter().any(|line| line == tls), "{written:#?}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(words in proptest::collection::vec(told::word(include_str!("words.txt")), 0..40)) {
        let text = words.concat();
        if let Ok(adapted) = adapt(&text, "C", &mut nothing) {
            let (_, source) = syntax::read(&text, "C", &mut nothing).expect("it was read");
            told::sound(&source, &adapted);
        }
    }
}
