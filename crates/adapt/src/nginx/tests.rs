//! Whole configurations: the output, the remarks, and that no statement is lost.

/// Forms that have to mean the same as in nginx, in all their parts.
mod forms;
/// Remarks on blocks, and on repeated directives.
mod remarks;
/// Variables.
mod variables;

use super::*;
use crate::told::{self, filled, whole};

const SAMPLES: [(&str, &str); 29] = [
    ("01", include_str!("../../samples/nginx/01-reverse-proxy.conf")),
    ("02", include_str!("../../samples/nginx/02-tls-redirect.conf")),
    ("03", include_str!("../../samples/nginx/03-load-balancing.conf")),
    ("04", include_str!("../../samples/nginx/04-spa-api.conf")),
    ("05", include_str!("../../samples/nginx/05-static-site.conf")),
    ("06", include_str!("../../samples/nginx/06-websocket.conf")),
    ("07", include_str!("../../samples/nginx/07-cache.conf")),
    ("08", include_str!("../../samples/nginx/08-limits-auth.conf")),
    ("09", include_str!("../../samples/nginx/09-php.conf")),
    ("10", include_str!("../../samples/nginx/10-names-regex.conf")),
    ("11", include_str!("../../samples/nginx/11-api-gateway.conf")),
    ("12", include_str!("../../samples/nginx/12-redirects.conf")),
    ("13", include_str!("../../samples/nginx/13-conditions.conf")),
    ("14", include_str!("../../samples/nginx/14-files-else-server.conf")),
    ("15", include_str!("../../samples/nginx/15-errors-elsewhere.conf")),
    ("16", include_str!("../../samples/nginx/16-maintenance.conf")),
    ("17", include_str!("../../samples/nginx/17-blue-green.conf")),
    ("18", include_str!("../../samples/nginx/18-bad-bots.conf")),
    ("19", include_str!("../../samples/nginx/19-cors.conf")),
    ("20", include_str!("../../samples/nginx/20-mobile.conf")),
    ("21", include_str!("../../samples/nginx/21-hosts.conf")),
    ("22", include_str!("../../samples/nginx/22-set-upstream.conf")),
    ("23", include_str!("../../samples/nginx/23-cache-bypass.conf")),
    ("24", include_str!("../../samples/nginx/24-log-errors.conf")),
    ("25", include_str!("../../samples/nginx/25-limits-allowed.conf")),
    ("26", include_str!("../../samples/nginx/26-redirect-map.conf")),
    ("27", include_str!("../../samples/nginx/27-content-of-if.conf")),
    ("28", include_str!("../../samples/nginx/28-missing-files.conf")),
    ("29", include_str!("../../samples/nginx/29-named-files.conf")),
];

fn adapted(text: &str) -> Adapted {
    let none = &mut |_: &str| Ok(Vec::new());
    match adapt(text, "n.conf", none) {
        Ok(adapted) => adapted,
        Err(mistake) => panic!("{mistake}"),
    }
}

/// Checks that the result is valid, and that each directive is in a comment or a remark.
#[track_caller]
fn checked(text: &str) -> Adapted {
    let adapted = adapted(text);
    let (_, source) = syntax::read(text, "n.conf", &mut |_: &str| Ok(Vec::new())).expect("it was read");
    whole(&source, &adapted);
    adapted
}

#[test]
fn samples_are_valid_and_whole() {
    for (name, text) in SAMPLES {
        let adapted = checked(&filled(text));
        if std::env::var_os("SHOW").is_some() {
            let remarks: Vec<String> = adapted.remarks.iter().map(ToString::to_string).collect();
            panic_free(&format!("==== {name}\n{}\n{}\n", adapted.toml, remarks.join("\n")));
        }
    }
}

fn panic_free(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Returns the output's lines with options, without comments.
fn options(text: &str) -> Vec<String> {
    let lines = checked(text).toml;
    let plain = |line: &str| line.split("  # ").next().unwrap_or_default().to_owned();
    lines.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(plain).collect()
}

fn in_location(directives: &str) -> String {
    format!("upstream u {{ server 127.0.0.1:1; }} server {{ listen 80; location / {{ {directives} }} }}")
}

#[test]
fn directives_become_options() {
    let pass = "proxy_pass http://u;";
    let cases = [
        ("return 301 /x;", "redirect = { to = \"/x?\", status = 301 }"),
        ("return 404;", "respond = { status = 404 }"),
        (
            "root /srv/www; index a.html;",
            "files = { root = \"/srv/www\", index = [\"a.html\"], symlinks = true }",
        ),
        (
            "proxy_pass http://u; proxy_read_timeout 5;",
            "timeouts = { upstream_first_byte = \"5s\", upstream_body = \"5s\" }",
        ),
        ("proxy_pass http://u; proxy_send_timeout 5;", "timeouts = { upstream_send = \"5s\" }"),
        ("grpc_pass grpc://u; grpc_send_timeout 1h;", "timeouts = { upstream_send = \"1h\" }"),
        ("proxy_pass http://u; client_max_body_size 0;", "limits = { body_bytes = \"none\" }"),
        ("proxy_pass http://u; limit_rate 10k;", "rate = \"10240B/s per request\""),
        ("proxy_pass http://u; access_log off;", "access_log = false"),
        ("return 200 ok; access_log off;", "access_log = false"),
        (
            "root /srv/www; gzip on; gzip_types application/javascript;",
            "compress = { codings = [\"gzip\"], types = [\"text/html\", \"application/javascript\", \"text/javascript\"], min_size = \"20\" }",
        ),
        (
            "proxy_pass http://u; proxy_set_header X-A $http_b;",
            "request_headers = { set = { X-A = \"$header.B\" } }",
        ),
        (
            "proxy_pass http://u; proxy_set_header Remote-User $nobody;",
            "request_headers = { set = { Remote-User = \"\" } }",
        ),
        (
            "return 301 https://www.$host$request_uri;",
            "redirect = { to = \"https://www.$host$path_and_query\", status = 301 }",
        ),
        (
            "root /srv/www; types { } default_type text/plain;",
            "response_headers = { set = { Content-Type = \"text/plain\" } }",
        ),
        ("proxy_pass http://127.0.0.1:1/a/; proxy_redirect off;", "location = false"),
        ("proxy_pass http://unix:///run/s.sock;", "servers = [\"http+unix:/run/s.sock\"]"),
        (
            "if ($arg_a) { add_header Content-Length 0; add_header X-A 1; return 204; }",
            "response_headers = { add = { X-A = \"1\" } }",
        ),
        ("proxy_pass http://u; proxy_hide_header X-A;", "response_headers = { remove = [\"X-A\"] }"),
        (
            "proxy_pass http://u; add_header X-A 1; proxy_hide_header X-A;",
            "response_headers = { set = { X-A = \"1\" } }",
        ),
        ("proxy_pass http://u; deny 10.0.0.0/8; allow all;", "deny = [\"10.0.0.0/8\"]"),
        ("proxy_pass http://u; allow 10.0.0.0/8; deny all;", "allow = [\"10.0.0.0/8\"]"),
        ("proxy_pass http://u; deny all;", "deny = [\"0.0.0.0/0\", \"::/0\"]"),
        ("proxy_pass http://u; proxy_next_upstream off;", "retry = { attempts = 1 }"),
        ("proxy_pass http://$name;", "respond = { status = 501, body = \"not taken over from nginx\\n\" }"),
    ];
    for (directives, option) in cases {
        let written = options(&in_location(directives));
        assert!(written.iter().any(|line| line == option), "{directives}: {written:#?}");
    }
    let inherited =
        "add_header X-Outer 1;".to_owned() + &in_location(&format!("{pass} add_header X-Inner 1;"));
    let written = options(&inherited).join("\n");
    assert!(written.contains("X-Inner") && !written.contains("X-Outer"), "{written}");
}

#[test]
fn what_servers_and_clients_get_is_written_where_it_is_possible() {
    let server = |inside: &str| format!("server {{ listen 80; server_name a.example b.example; {inside} }}");
    let cases = [
        ("return 301 https://$server_name$request_uri;", "https://a.example$path_and_query"),
        ("return 301 https://$http_host$request_uri;", "https://$host$path_and_query"),
        ("rewrite ^(.*) https://$host$1 permanent;", "https://$host$path"),
        (
            "location / { proxy_pass http://s:1; proxy_set_header X-Forwarded-Port $server_port; }",
            "X-Forwarded-Port = \"$port\"",
        ),
        ("location / { proxy_pass http://s:1; expires 1h; }", "[{ when = 'response.status in [200"),
        (
            "root /srv; try_files $uri/index.html $uri @app; location @app { proxy_pass http://s:1; }",
            "else = { upstream = \"s-1\" }",
        ),
        (
            "location ^~ /m/ { alias /srv/m/; } location ~ x { return 404; }",
            "rewrite = { pattern = \"/m/(.*)\", path = \"/$1\" }",
        ),
        ("location /m/ { root /srv; location ~ \\.xml$ { deny all; } }", "startsWith(\"/m/\")"),
        ("location ~ /\\.(?!x).* { deny all; }", "(?:$|[^x])"),
        ("location ~ ^/a(?=b) { deny all; }", "respond = { status = 501"),
    ];
    for (inside, option) in cases {
        let toml = checked(&server(inside)).toml;
        assert!(toml.contains(option), "{inside}\n{toml}");
    }
    let toml =
        checked(&server("location / { proxy_pass http://s:1; proxy_set_header Content-Length \"\"; }")).toml;
    assert!(!toml.contains("Content-Length"), "{toml}");
}

#[test]
fn urls_and_cookies_of_servers_are_mapped_as_nginx_does() {
    let absolute = "location = \"absolute\"";
    let kept = "cookies = { path = false }";
    let cases: [(&str, &[&str]); 9] = [
        ("", &["rewrite = { path = \"/\", normalize = true, host = \"u\" }", absolute, kept]),
        ("proxy_redirect off;", &["location = false", kept]),
        ("proxy_redirect default; proxy_redirect / /app/;", &["location = true", kept]),
        ("proxy_redirect http://u/ /app/;", &[absolute, kept]),
        ("proxy_cookie_path / /app/;", &[absolute, "cookies = { path = true }"]),
        ("proxy_cookie_path off; proxy_cookie_domain off;", &[absolute, kept]),
        (
            "proxy_cookie_path / \"/; Secure; HttpOnly; SameSite=none\";",
            &["cookies = { secure = true, http_only = true, same_site = \"none\", path = false }"],
        ),
        (
            "proxy_cookie_domain u example.com;",
            &["cookies = { path = false, domain = { u = \"example.com\" } }"],
        ),
        ("merge_slashes off;", &["rewrite = { path = \"/\", host = \"u\" }"]),
    ];
    for (directives, expected) in cases {
        let location = format!("location /app/ {{ proxy_pass http://u/; {directives} }}");
        let text = format!("upstream u {{ server 127.0.0.1:1; }} server {{ listen 80; {location} }}");
        let written = options(&text);
        for option in expected {
            assert!(written.iter().any(|line| line == option), "{directives}: {option} {written:#?}");
        }
    }
    // Nothing is replaced: only the host differs.
    let written = options(&in_location("proxy_pass http://u/;"));
    assert!(
        !written.iter().any(|line| line.starts_with("location") || line.starts_with("cookies")),
        "{written:#?}"
    );
}

/// Checks that requests of a longer prefix reach neither a shorter `^~` nor an expression within `location /`.
#[test]
fn the_longest_prefix_decides_before_expressions_do() {
    let server = |locations: &str| format!("server {{ listen 80; root /w; {locations} }}");
    for (locations, path, when) in [
        (
            "location ^~ /f/ { } location /f/p/ { deny all; } location /f/q { } location ~ \\.php$ { return 404; }",
            "path = \"~ /f/(.*)\"",
            "when = '!(request.path.startsWith(\"/f/p/\") || request.path.startsWith(\"/f/q\"))'",
        ),
        (
            "location /api/ { } location / { location ~ \\.js$ { return 200; } }",
            "path = \"~ .*\\\\.js\"",
            "when = '!(request.path.startsWith(\"/api/\"))'",
        ),
    ] {
        let written = options(&server(locations));
        let at = written.iter().position(|line| line == path).unwrap_or_else(|| panic!("{written:#?}"));
        assert_eq!(written[at + 1], when, "{locations}");
    }
}

/// Checks that a directive whose meaning is lost has a remark.
#[test]
fn what_is_lost_is_said() {
    for (text, directive, why) in [
        (
            in_location("root /w; types { application/gpx+xml gpx; }"),
            "types",
            "files have the media types of",
        ),
        (
            in_location("proxy_pass http://u; proxy_redirect http:// https://;"),
            "proxy_redirect",
            "only URLs with the host of the request",
        ),
        (
            in_location("proxy_pass http://u; proxy_redirect http://a/ https://b/;"),
            "proxy_redirect",
            "Location is only mapped back",
        ),
        (
            in_location("proxy_pass http://u; proxy_cookie_path /a /b;"),
            "proxy_cookie_path",
            "Path of cookies is only mapped back",
        ),
        (
            in_location("rewrite ^/a/(.*)$ /b/$1? break; proxy_pass http://u;"),
            "rewrite",
            "the query stays, which nginx leaves out",
        ),
    ] {
        let adapted = checked(&text);
        let said = |remark: &crate::Remark| {
            remark.directive.starts_with(directive)
                && remark.why.starts_with(why)
                && remark.kind != RemarkKind::NeedsNothing
        };
        assert!(adapted.remarks.iter().any(said), "{text}: {:?}", adapted.remarks);
    }
}

#[test]
fn locations_of_one_zone_count_together() {
    let written = options(
        "limit_req_zone $binary_remote_addr zone=z:1m rate=5r/m; server { listen 80; \
         location /a { limit_req zone=z; root /w; } location /b { limit_req zone=z burst=9 nodelay; root /w; } }",
    );
    let limits: Vec<&String> = written.iter().filter(|line| line.starts_with("rate_limit")).collect();
    let limit =
        |burst| format!("rate_limit = {{ rate = \"5/m\", burst = {burst}, key = \"client\", zone = \"z\" }}");
    assert_eq!(limits, [&limit(1), &limit(10)]);
}

#[test]
fn limits_by_zones_are_those_of_routes_or_listeners() {
    let zones = "limit_conn_zone $binary_remote_addr zone=a:1m; limit_conn_zone $http_x_key zone=k:1m;";
    for (place, expected) in [
        ("limit_conn a 5;", "concurrency = { max = 5, by = \"client\", zone = \"a\" }"),
        (
            "limit_conn a 5; limit_conn k 50;",
            "concurrency = [{ max = 5, by = \"client\", zone = \"a\" }, { max = 50, by = \"header:X-Key\", when = '(request.headers[\"x-key\"] ?? \"\") != \"\"', zone = \"k\" }]",
        ),
    ] {
        let text = format!(
            "http {{ {zones} server {{ listen 80; location / {{ {place} proxy_pass http://a; }} }} }}"
        );
        let written = options(&text);
        assert!(written.iter().any(|line| line == expected), "{place}: {written:#?}");
    }
    let stream =
        |limit: &str| format!("stream {{ {zones} server {{ listen 81; {limit} proxy_pass 127.0.0.1:2; }} }}");
    let written = options(&stream("limit_conn a 5;"));
    assert!(written.iter().any(|line| line == "connections_per_client = 5"), "{written:#?}");
    for limit in ["limit_conn b 5;", "limit_conn k 5;"] {
        let remarks = checked(&stream(limit)).remarks;
        let told =
            remarks.iter().any(|remark| remark.to_string().contains("counted by the client's address"));
        assert!(told, "{limit}: {remarks:#?}");
    }
}

#[test]
fn a_time_for_connecting_is_that_of_all_or_of_an_upstream() {
    let pool = "pool = { connect_timeout = \"2s\" }";
    let pass = in_location("proxy_pass http://u;");
    for (text, own, of_all) in [
        (in_location("proxy_pass http://u; proxy_connect_timeout 2;"), 1, 0),
        (in_location("grpc_pass grpc://u; grpc_connect_timeout 2;"), 1, 0),
        (in_location("proxy_pass http://u; grpc_connect_timeout 2;"), 0, 0),
        (
            in_location(
                "proxy_pass http://u; auth_request /v; } location = /v { proxy_pass http://v; proxy_connect_timeout 2;",
            ),
            // Questions have another Host than requests of clients.
            2,
            0,
        ),
        (pass.replace("listen", "proxy_connect_timeout 2; listen"), 1, 0),
        (format!("proxy_connect_timeout 2; {pass}"), 0, 1),
        (format!("grpc_connect_timeout 2; {}", pass.replace("proxy_pass http", "grpc_pass grpc")), 1, 0),
        (
            format!("proxy_connect_timeout 9; {}", pass.replace("listen", "proxy_connect_timeout 2; listen")),
            1,
            0,
        ),
        (
            "stream { proxy_connect_timeout 2; server { listen 81; proxy_pass 127.0.0.1:2; } }".to_owned(),
            1,
            0,
        ),
    ] {
        let written = options(&text);
        let count = |wanted: &str| written.iter().filter(|line| *line == wanted).count();
        assert_eq!((count(pool), count("upstream_connect = \"2s\"")), (own, of_all), "{text}: {written:#?}");
    }
    // Servers reached in two ways become two upstreams with a remark; those reached in one way become one.
    let text = in_location(
        "proxy_pass http://u; proxy_connect_timeout 2; } location /a { proxy_pass http://u; proxy_connect_timeout 3; } location /b { proxy_pass http://u; proxy_connect_timeout 2000ms;",
    );
    let adapted = checked(&text);
    assert_eq!(adapted.toml.matches("[upstream.").count(), 2, "{}", adapted.toml);
    let said: Vec<&str> = adapted.remarks.iter().map(|remark| remark.why.as_str()).collect();
    assert_eq!(
        said.iter().filter(|why| why.starts_with("its servers are a separate upstream")).count(),
        1,
        "{said:?}"
    );
    let refused =
        checked(&in_location("proxy_pass http://u; proxy_connect_timeout x; proxy_send_timeout 0;"));
    assert_eq!(refused.refused(), 2, "{:?}", refused.remarks);
}

#[test]
fn an_error_page_is_a_file_where_nginx_reads_one() {
    let of = |locations: &str| {
        let text = format!("server {{ listen 80; root /srv/www; error_page 404 /e/x.html; {locations} }}");
        let adapted = checked(&text);
        let remark = adapted.remarks.iter().find(|remark| remark.directive.starts_with("error_page"));
        let file = adapted
            .toml
            .lines()
            .find_map(|line| line.strip_prefix("error_pages = { 404 = \"")?.split('"').next());
        (file.map(str::to_owned), remark.map(|remark| remark.why.clone()))
    };
    let pass = "{ proxy_pass http://127.0.0.1:1; }";
    let own = "{ root /srv/e; }";
    for (locations, file) in [
        (String::new(), "/srv/www"),
        (format!("location / {own}"), "/srv/e"),
        (format!("location / {pass} location = /e/x.html {own}"), "/srv/e"),
        (format!("location / {pass} location /e/ {{ internal; }}"), "/srv/www"),
        (format!("location / {pass} location ^~ /e/ {{ }} location ~ html {pass}"), "/srv/www"),
        (format!("location / {{ }} location ~ \\.php$ {pass}"), "/srv/www"),
        (format!("location / {pass} location ~* \\.HTML$ {own}"), "/srv/e"),
        (format!("location /e/ {{ location /e/x {own} proxy_pass http://127.0.0.1:1; }}"), "/srv/e"),
    ] {
        assert_eq!(of(&locations), (Some(format!("{file}/e/x.html")), None), "{locations}");
    }
    for (locations, handler) in [
        (format!("location / {pass}"), "proxy_pass"),
        (format!("location = /e/x.html {pass}"), "proxy_pass"),
        (format!("location / {{ }} location ~ html {pass}"), "proxy_pass"),
        ("location /e/ { return 200 x; }".to_owned(), "return"),
        ("location /e/ { alias $home; }".to_owned(), "alias"),
    ] {
        let why = format!("an error page is a file here, and `{handler}` answers for /e/x.html");
        assert_eq!(of(&locations), (None, Some(why)), "{locations}");
    }
}

#[test]
fn files_first_else_the_server_of_a_named_location() {
    let text = |location: &str, more: &str| {
        format!(
            "upstream u {{ server 127.0.0.1:1; }} server {{ listen 80; root /srv/www; index a.html; {location} \
             location @app {{ proxy_pass http://u; {more} }} }}"
        )
    };
    for (tried, files) in [
        (
            "$uri $uri/ @app",
            "{ root = \"/srv/www\", index = [\"a.html\"], symlinks = true, else = { upstream = \"u\" } }",
        ),
        ("$uri @app", "{ root = \"/srv/www\", symlinks = true, index = [], else = { upstream = \"u\" } }"),
        (
            "$uri $uri.html =404",
            "{ root = \"/srv/www\", try = [\"$path\", \"$path.html\"], symlinks = true }",
        ),
        (
            "/c$uri/index.html $uri $uri/ /x.html",
            "{ root = \"/srv/www\", index = [\"a.html\"], try = [\"/c$path/index.html\", \"$path\", \"$path/\"], fallback = \"/x.html\", symlinks = true }",
        ),
        (
            "$uri $uri/ /index.html",
            "{ root = \"/srv/www\", index = [\"a.html\"], fallback = \"/index.html\", symlinks = true }",
        ),
    ] {
        let location = format!("location / {{ try_files {tried}; }}");
        let written = options(&text(&location, "proxy_read_timeout 7; proxy_hide_header X-A;"));
        let files = format!("files = {files}");
        assert!(written.contains(&files), "{tried}: {written:#?}");
        let has = |option: &str| written.iter().any(|line| line == option);
        let has_server = tried.ends_with("@app");
        assert_eq!(has("timeouts = { upstream_first_byte = \"7s\", upstream_body = \"7s\" }"), has_server);
        assert_eq!(has("response_headers = { remove = [\"X-A\"] }"), has_server, "{written:#?}");
        assert!(!written.iter().any(|line| line.starts_with("upstream = ")), "{written:#?}");
    }
    for (location, more, why) in [
        ("location / { try_files $uri @none; }", "", "there is no location @none"),
        (
            "location / { try_files $uri @app; allow 10.0.0.0/8; deny all; }",
            "",
            "`allow` of location @app is another",
        ),
        ("location / { try_files $uri @app; }", "rewrite ^ /x break;", "location @app has `rewrite`"),
        ("location / { try_files $uri @app; } expires 1h;", "", "`expires` would apply to files only"),
        ("location /a/ { alias /srv/b/; try_files $uri @app; }", "", "the path for the server would be"),
        ("location / { try_files /x @app; }", "", "only a file, its directory, and a page"),
    ] {
        let adapted = checked(&text(location, more));
        let said = adapted
            .remarks
            .iter()
            .any(|remark| remark.kind == RemarkKind::Refused && remark.why.starts_with(why));
        assert!(
            said && !adapted.toml.contains("else ="),
            "{location}: {:?}\n{}",
            adapted.remarks,
            adapted.toml
        );
    }
}

#[test]
fn another_server_answers_after_an_error() {
    let text = |directives: &str, more: &str| {
        format!(
            "upstream u {{ server 127.0.0.1:1; }} upstream v {{ server 127.0.0.1:2; }} server {{ listen 80; \
             proxy_intercept_errors on; proxy_set_header Host $http_host; \
             location / {{ proxy_pass http://u; {directives} }} location @v {{ proxy_pass http://v; }} \
             location = /50x.html {{ proxy_pass http://v; }} location = /x.html {{ proxy_pass http://v/y.html; }} {more} }}"
        )
    };
    for (directives, option) in [
        ("error_page 404 = @v;", "on_status = { 404 = { upstream = \"v\" } }"),
        ("error_page 404 @v;", "on_status = { 404 = { upstream = \"v\", keep_status = true } }"),
        (
            "error_page 502 504 /50x.html;",
            "on_status = { 502 = { upstream = \"v\", path = \"/50x.html\", keep_status = true }, \
             504 = { upstream = \"v\", path = \"/50x.html\", keep_status = true } }",
        ),
        ("error_page 404 = /x.html;", "on_status = { 404 = { upstream = \"v\", path = \"/y.html\" } }"),
    ] {
        let written = options(&text(directives, ""));
        assert!(written.iter().any(|line| line == option), "{directives}: {written:#?}");
    }
    for (directives, more, why) in [
        ("error_page 404 = @none;", "", "there is no location @none"),
        ("error_page 404 = @u;", "location @u { proxy_pass http://u; }", "the same servers would get"),
        ("error_page 404 = @v; proxy_intercept_errors off;", "", "without `proxy_intercept_errors on`"),
        ("error_page 413 = @v;", "", "nginx itself may answer 413"),
        ("error_page 403 = @v; deny 10.0.0.0/8;", "", "nginx itself may answer 403"),
        ("error_page 404 =200 @v;", "", "nginx itself may answer =200"),
        ("error_page 404 = @v; add_header X-A 1;", "", "`add_header` of location @v is another"),
        ("error_page 404 = @v; proxy_set_header X-A 1;", "", "its server would need another `re"),
        ("error_page 404 = @v; proxy_read_timeout 7;", "", "its server would need another `timeouts`"),
        ("error_page 404 = @w;", "location @w { return 200 x; }", "no `proxy_pass` answers in location @w"),
    ] {
        let adapted = checked(&text(directives, more));
        let said = adapted
            .remarks
            .iter()
            .any(|remark| remark.kind == RemarkKind::Refused && remark.why.starts_with(why));
        assert!(
            said && !adapted.toml.contains("on_status"),
            "{directives}: {:?}\n{}",
            adapted.remarks,
            adapted.toml
        );
    }
}

#[test]
fn a_moved_path_has_the_fields_of_its_location() {
    let text = "server { listen 80; add_header X-A 1 always; location /a/ { rewrite ^/a/(.*)$ /b/$1 permanent; access_log off; } }";
    let written = options(text).join("\n");
    for option in ["redirect = {", "response_headers = { add = { X-A = \"1\" } }", "access_log = false"] {
        assert!(written.contains(option), "{option}: {written}");
    }
}

#[test]
fn unsupported_protection_of_a_location_fails_closed() {
    for directives in [
        "proxy_pass http://u; auth_basic x;",
        "proxy_pass http://u; auth_basic $x; auth_basic_user_file /f;",
        "proxy_pass http://u; auth_request /nowhere;",
    ] {
        let written = options(&in_location(directives)).join("\n");
        assert!(
            written.contains("status = 501") && !written.contains("upstream = "),
            "{directives}: {written}"
        );
    }
    let written = options(&in_location("internal; proxy_pass http://u;")).join("\n");
    assert!(written.contains("respond = { status = 404 }"), "{written}");
}

#[test]
fn internal_locations_are_folders_whose_files_servers_name() {
    let pass = "proxy_pass http://127.0.0.1:1;";
    let of = |locations: &str| {
        let written = options(&format!("server {{ listen 80; root /srv/www; {locations} }}"));
        let named: Vec<String> = written.into_iter().filter(|line| line.starts_with("accel = ")).collect();
        named.join("\n")
    };
    let protected = "location /p/ { internal; alias /srv/files/; }";
    for (locations, accel) in [
        (format!("location / {{ {pass} }} {protected}"), "{ \"/p/\" = \"/srv/files\" }"),
        (format!("location / {{ {pass} }} location ^~ /p {{ internal; }}"), "{ \"/p/\" = \"/srv/www/p\" }"),
        (
            format!("location / {{ try_files $uri @app; }} location @app {{ {pass} }} {protected}"),
            "{ \"/p/\" = \"/srv/files\" }",
        ),
        // Nothing leads there from a server.
        (format!("location / {{ {pass} proxy_ignore_headers X-Accel-Redirect; }} {protected}"), ""),
        (format!("location / {{ return 404; }} {protected}"), ""),
        (
            format!(
                "location / {{ {pass} error_page 502 /p/x.html; }} error_page 502 /p/x.html; {protected}"
            ),
            "",
        ),
        // Not files of a folder.
        (format!("location / {{ {pass} }} location /p/ {{ internal; {pass} }}"), ""),
        (format!("location / {{ {pass} }} location = /p {{ internal; }}"), ""),
        (format!("location / {{ {pass} }} location ~ /p/ {{ internal; }}"), ""),
        (format!("location / {{ {pass} }} location /p/ {{ internal; alias $home; }}"), ""),
    ] {
        let expected = if accel.is_empty() { String::new() } else { format!("accel = {accel}") };
        assert_eq!(of(&locations), expected, "{locations}");
    }
}

#[test]
fn wrong_syntax_is_told_with_its_place() {
    for (text, said) in [
        ("a", "n.conf:1:1: the directive \"a\" does not end; expected a ; behind its last word"),
        ("a {\n b;", "n.conf:1:3: this block has no end; expected a } behind its last directive"),
        ("}", "n.conf:1:1: a } without its {; expected a directive"),
        (";", "n.conf:1:1: a directive has no name; expected a name such as listen"),
        ("a \"b", "n.conf:1:3: this text has no closing quote; expected a \" at its end"),
        ("a \"b\"c;", "n.conf:1:6: there is text after the closing quote; expected a space, ; or {"),
    ] {
        let mistake = adapt(text, "n.conf", &mut |_: &str| Ok(Vec::new())).expect_err(text);
        assert_eq!(mistake.to_string(), said);
    }
    let deep = "a {".repeat(40);
    assert!(adapt(&deep, "n", &mut |_: &str| Ok(Vec::new())).is_err());
    let circle = &mut |_: &str| Ok(vec![("n".to_owned(), "include n;".to_owned())]);
    let mistake = adapt("include n;", "n", circle).expect_err("a circle");
    assert!(mistake.message.contains("16 deep"), "{mistake}");
}

#[test]
fn code_of_other_languages_is_not_read() {
    let text =
        in_location("content_by_lua_block { if x then ngx.say(\"}\") end -- }\n local t = { a = 1 } }");
    let said: Vec<RemarkKind> = checked(&text).remarks.iter().map(|remark| remark.kind).collect();
    assert!(said.contains(&RemarkKind::Refused), "{said:?}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(words in proptest::collection::vec(told::word(include_str!("words.txt")), 0..60)) {
        let text = words.join(" ");
        if let Ok(adapted) = adapt(&text, "n.conf", &mut |_: &str| Ok(Vec::new())) {
            let (_, source) = syntax::read(&text, "n.conf", &mut |_: &str| Ok(Vec::new())).expect("it was read");
            told::sound(&source, &adapted);
        }
    }
}

/// The idiom of a collection of 371 files.
#[test]
fn constants_are_written_where_they_are_used() {
    let text = "server { listen 80; set $app outer; location / { set $app shop; set $port 80; set $proto http; \
                proxy_pass $proto://$app:$port; proxy_set_header X-App ${app}_x; } location /b { proxy_pass http://$app; } }";
    let written = options(text).join("\n");
    for expected in ["servers = [\"http://shop:80\"]", "X-App = \"shop_x\"", "servers = [\"http://outer\"]"] {
        assert!(written.contains(expected), "{expected}: {written}");
    }
    // A request that moves to another location takes its variables along.
    for moving in ["rewrite ^/a /b last;", "error_page 404 /b;", "try_files $uri /b;"] {
        let text = format!(
            "server {{ listen 80; set $app outer; location /a {{ set $app shop; {moving} proxy_pass http://$app; }} \
             location /b {{ proxy_pass http://$app; }} }}"
        );
        let written = options(&text).join("\n");
        assert!(!written.contains("http://outer") && written.contains("status = 501"), "{moving}: {written}");
    }
    // Made of a text of the request, or of one that is not known.
    for set in ["set $app $host;", "set $app a; if (-f /x) { set $app b; }"] {
        let written = options(&in_location(&format!("{set} proxy_pass http://$app;"))).join("\n");
        assert!(written.contains("status = 501"), "{set}: {written}");
    }
}

#[test]
fn conditions_with_a_return_become_routes() {
    let declarations = "map $http_user_agent $bot { default 0; ~*(spider|crawl) 1; curl/8 1; } \
                        map $request_method $kind { default other; GET read; HEAD read; } \
                        map $args $blank { a \"\"; default 1; } \
                        geo $inside { default 0; 10.0.0.0/8 1; 10.1.0.0/16 0; }";
    let agent = "(request.headers[\"user-agent\"] ?? \"\")";
    let bot = format!("{agent}.lowerAscii() == \"curl/8\" || {agent}.matches(\"(?i)(spider|crawl)\")");
    let inside = "!(client.address in \"10.1.0.0/16\") && client.address in \"10.0.0.0/8\"";
    for (condition, expected) in [
        ("$request_method !~ ^(GET|HEAD)$", "!request.method.matches(\"^(GET|HEAD)$\")"),
        ("$http_user_agent ~* \"bad bot\"", &format!("{agent}.matches(\"(?i)bad bot\")")),
        ("$http_x_key != secret", "(request.headers[\"x-key\"] ?? \"\") != \"secret\""),
        ("$arg_debug", "!((request.query[\"debug\"] ?? \"\") in [\"\", \"0\"])"),
        ("$cookie_a_b = \"\"", "(request.cookies[\"a_b\"] ?? \"\") == \"\""),
        ("$uri ~ \\.php$", "request.path.matches(\"\\\\.php$\")"),
        ("$bot", &bot),
        ("$bot = 0", &format!("!({bot})")),
        ("$kind = read", "request.method.lowerAscii() in [\"get\", \"head\"]"),
        ("$blank", "(request.query ?? \"\").lowerAscii() != \"a\""),
        ("$inside", inside),
        ("$host = $http_host", "request.host == (request.headers[\"host\"] ?? \"\")"),
        (
            "$ssl_client_verify != SUCCESS",
            "(has(client.tls.fingerprint) ? \"SUCCESS\" : \"NONE\") != \"SUCCESS\"",
        ),
    ] {
        let location =
            format!("location / {{ if ({condition}) {{ return 403; }} proxy_pass http://127.0.0.1:1; }}");
        let server =
            format!("if ({condition}) {{ return 403; }} location = /x {{ proxy_pass http://127.0.0.1:1; }}");
        for (body, routes) in [(location, 1), (server, 2)] {
            let text = format!("{declarations} server {{ listen 80; {body} }}");
            let written = checked(&text).toml;
            let whens: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("when = ")).collect();
            assert_eq!(whens.len(), routes, "{body}: {written}");
            let parsed: toml::Table = toml::from_str(&written).expect("is TOML");
            let all = parsed["route"].as_array().expect("routes").iter();
            let found: Vec<&str> = all.filter_map(|route| route.get("when")?.as_str()).collect();
            assert_eq!(found, vec![expected; routes], "{body}");
        }
    }
    let of = |condition: &str| {
        checked(&format!(
            "{declarations} server {{ listen 80; location / {{ if ({condition}) {{ return 403; }} }} }}"
        ))
    };
    // Never: no route.
    let never = of("$inside = 7");
    assert!(!never.toml.contains("403"), "{}", never.toml);
    // What is refused stays closed, except for tests of files.
    for (refused, status) in [
        ("$request_uri ~ %41", "501"),
        ("-f $request_filename", "404"),
        ("$http_a ~ (?=x)", "501"),
        ("$nothing", "501"),
        ("$status = 200", "501"),
    ] {
        let adapted = of(refused);
        assert!(!adapted.toml.contains("when ="), "{refused}: {}", adapted.toml);
        assert!(adapted.toml.contains(&format!("status = {status}")), "{refused}: {}", adapted.toml);
        assert!(adapted.remarks.iter().any(|remark| remark.to_string().contains(": if")), "{refused}");
    }
}

/// The usual form of WordPress, with the parameters that nginx's package includes.
const WORDPRESS: &str = "server {
    listen 80; server_name blog.example.com; root /srv/blog; index index.php; client_max_body_size 64m;
    location / { try_files $uri $uri/ /index.php?$args; }
    location ~ \\.php$ {
        try_files $uri =404;
        fastcgi_split_path_info ^(.+\\.php)(/.+)$;
        fastcgi_index index.php;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_param QUERY_STRING $query_string;
        fastcgi_param HTTPS $https if_not_empty;
        fastcgi_param HTTP_PROXY \"\";
        fastcgi_param WP_ENV production;
        fastcgi_read_timeout 300;
        fastcgi_pass unix:/run/php/php8.2-fpm.sock;
    }
    location ~ /\\.ht { deny all; }
}";

/// The usual form of Laravel.
const LARAVEL: &str = "upstream php { server 127.0.0.1:9000; server 127.0.0.1:9001 backup; }
server {
    listen 80; root /srv/app/public;
    location / { try_files $uri $uri/ /index.php?$query_string; }
    location ~ ^/index\\.php(/|$) {
        fastcgi_pass php;
        fastcgi_param SCRIPT_FILENAME $realpath_root$fastcgi_script_name;
        fastcgi_hide_header X-Powered-By;
    }
}";

#[test]
fn applications_are_upstreams_with_their_scripts() {
    for (text, expected) in [
        (
            WORDPRESS,
            &[
                "servers = [\"fcgi+unix:/run/php/php8.2-fpm.sock\"]",
                "fastcgi = { root = \"/srv/blog\", index = \"index.php\", front_controller = false, params = { WP_ENV = \"production\" } }",
                "timeouts = { upstream_first_byte = \"5m\", upstream_body = \"5m\" }",
                "files = { root = \"/srv/blog\", index = [\"index.php\"], symlinks = true, else = { upstream = \"unix--run-php-php8.2-fpm.sock\", path = \"/index.php\" } }",
            ][..],
        ),
        (
            LARAVEL,
            &[
                "fastcgi = { root = \"/srv/app/public\", front_controller = false }",
                "files = { root = \"/srv/app/public\", symlinks = true, else = { upstream = \"php\", path = \"/index.php\" } }",
                "servers = [\"fcgi://127.0.0.1:9000\", { url = \"fcgi://127.0.0.1:9001\", priority = 1 }]",
            ],
        ),
        (
            "server { listen 80; root /srv/tools; location /tools/ { fastcgi_pass localhost; } }",
            &[
                "servers = [\"fcgi://localhost:80\"]",
                "fastcgi = { root = \"/srv/tools\", front_controller = false }",
            ],
        ),
    ] {
        let written = options(text);
        for line in expected {
            assert!(written.iter().any(|found| found == line), "{line}: {written:#?}");
        }
        // One upstream serves both locations.
        assert_eq!(written.iter().filter(|line| line.starts_with("fastcgi = ")).count(), 1, "{written:#?}");
        assert!(!written.iter().any(|line| line.contains("501")), "{written:#?}");
    }
}

#[test]
fn applications_without_a_known_directory_are_refused() {
    for directives in [
        "fastcgi_pass 127.0.0.1:9000;",
        "root $home; fastcgi_pass 127.0.0.1:9000;",
        "root /srv; fastcgi_pass $pool;",
    ] {
        let written = options(&in_location(directives)).join("\n");
        assert!(written.contains("501"), "{directives}: {written}");
    }
}
