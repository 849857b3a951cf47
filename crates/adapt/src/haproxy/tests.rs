//! Whole configurations: the output, the remarks, and that no statement is lost.

use super::*;
use crate::told::{self, filled, options, routes, whole};

const SAMPLES: [&str; 21] = [
    include_str!("../../samples/haproxy/01-reverse-proxy.cfg"),
    include_str!("../../samples/haproxy/02-tls-redirect.cfg"),
    include_str!("../../samples/haproxy/03-hosts-paths.cfg"),
    include_str!("../../samples/haproxy/04-rate-limit.cfg"),
    include_str!("../../samples/haproxy/05-access.cfg"),
    include_str!("../../samples/haproxy/06-rewrites.cfg"),
    include_str!("../../samples/haproxy/07-sessions-compression.cfg"),
    include_str!("../../samples/haproxy/08-sni-tcp.cfg"),
    include_str!("../../samples/haproxy/09-gateway.cfg"),
    include_str!("../../samples/haproxy/10-tenants.cfg"),
    include_str!("../../samples/haproxy/11-combinations.cfg"),
    include_str!("../../samples/haproxy/12-scanners.cfg"),
    include_str!("../../samples/haproxy/13-networks.cfg"),
    include_str!("../../samples/haproxy/14-parameters.cfg"),
    include_str!("../../samples/haproxy/15-order.cfg"),
    include_str!("../../samples/haproxy/16-host-map.cfg"),
    include_str!("../../samples/haproxy/17-blue-green.cfg"),
    include_str!("../../samples/haproxy/18-block-lists.cfg"),
    include_str!("../../samples/haproxy/19-redirect-maps.cfg"),
    include_str!("../../samples/haproxy/20-tenant-maps.cfg"),
    include_str!("../../samples/haproxy/21-variables.cfg"),
];

/// Files that configurations name.
fn files(name: &str) -> Result<Vec<(String, String)>, String> {
    let text = match name {
        "hosts.map" => "a.b b\nc.d c\n",
        "more.map" => "a.b b\nc.d e\n",
        "pages.map" => "/old /new\n/x https://x.y/?z\n",
        "begin.map" => "/a/ one\n/ two\n",
        "countries.map" => "10.0.0.0/8 DE\n127.0.0.1 AT\n",
        "numbers.map" => "a 1\nb 20\n",
        "bans.lst" => "# banned\n10.0.0.0/8\n::1\n",
        "sloppy.lst" => "10.1.2.3/8\n",
        "agents.lst" => "one\ntwo\n",
        _ => return Err("there is none".to_owned()),
    };
    Ok(vec![(name.to_owned(), text.to_owned())])
}

#[track_caller]
fn checked(text: &str) -> Adapted {
    let adapted = adapt(text, "h.cfg", &mut files).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "h.cfg").expect("it was read");
    whole(&source, &adapted);
    adapted
}

/// Reads a file of the samples.
fn file_of_samples(name: &str) -> Result<Vec<(String, String)>, String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/haproxy/files");
    let text = std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())?;
    Ok(vec![(name.to_owned(), text)])
}

#[test]
fn samples_are_valid_and_whole() {
    for text in SAMPLES {
        let text = filled(text);
        let adapted =
            adapt(&text, "h.cfg", &mut file_of_samples).unwrap_or_else(|mistake| panic!("{mistake}"));
        let (_, source) = syntax::read(&text, "h.cfg").expect("it was read");
        whole(&source, &adapted);
    }
}

/// A frontend with these lines, and two backends.
fn with(lines: &str) -> String {
    let lines = lines.split(';').map(|line| format!("  {}\n", line.trim())).collect::<String>();
    format!(
        "defaults\n  mode http\nfrontend f\n  bind 127.0.0.1:80\n{lines}  default_backend b\n\
         backend b\n  server s 127.0.0.1:1\nbackend c\n  server s 127.0.0.1:2\n"
    )
}

#[test]
fn ordered_rules_become_routes() {
    let b = "upstream = \"b\"";
    let c = "upstream = \"c\"";
    let deny = "respond = { status = 403 }";
    let cases: [(&str, &[&str]); 15] = [
        ("use_backend c if { path_beg /a }", &["path = \"/a*\"; C", "B"]),
        ("use_backend c if { path_beg /a/ }", &["path = \"/a/*\"; C", "B"]),
        ("use_backend c unless { hdr(host) x.y }", &["host = \"x.y\"; B", "C"]),
        ("acl w hdr(host) x.y z.y; use_backend c if w", &["host = [\"x.y\", \"z.y\"]; C", "B"]),
        ("use_backend c if { method POST } { path /a }", &["path = \"= /a\"; methods = \"POST\"; C", "B"]),
        (
            "use_backend c if { method POST } || { path /a }",
            &["path = \"= /a\"; C", "methods = \"POST\"; C", "B"],
        ),
        (
            "acl in src 10.0.0.0/8; http-request deny if { path_beg /a } !in",
            &["path = \"/a*\"; clients = [\"10.0.0.0/8\"]; B", "path = \"/a*\"; D", "B"],
        ),
        // Where a prefix and an expression overlap, both count.
        (
            "http-request deny if { path_end .x } !{ path_beg /a }; use_backend c if { path_beg /a }",
            // Only a path that is sent as it is written passes what refuses others.
            &[
                "path = \"~ /a.*\\\\.x\"; when = 'request.raw_path.startsWith(\"/a\")'; C",
                "path = \"~ .*\\\\.x\"; D",
                "path = \"/a*\"; C",
                "B",
            ],
        ),
        (
            "http-request deny unless { path_beg /a/ }",
            &["path = \"/a/*\"; when = 'request.raw_path.startsWith(\"/a/\")'; B", "D"],
        ),
        (
            "http-request allow if { path /a }; http-request deny",
            &["path = \"= /a\"; when = 'request.raw_path == \"/a\"'; B", "D"],
        ),
        ("use_backend c if { req.cook(y) -m found }", &["cookie = { y = \"~ .+\" }; C", "B"]),
        (
            "use_backend b if { path_beg /a/b }; use_backend c if { path_beg /a }",
            &["path = \"/a/b*\"; B", "path = \"/a*\"; C", "B"],
        ),
        ("use_backend c if { path_beg /a }; use_backend b if { path_beg /a/b }", &["path = \"/a*\"; C", "B"]),
        (
            "use_backend c if { hdr(x) -m found } { req.cook(y) 1 }",
            &["headers = { x = true }; cookie = { y = \"1\" }; C", "B"],
        ),
        ("use_backend c if { path_beg /a } TRUE !FALSE", &["path = \"/a*\"; C", "B"]),
    ];
    for (lines, expected) in cases {
        let expected: Vec<String> = expected
            .iter()
            .map(|route| {
                let (before, last) = route.rsplit_once(' ').unwrap_or(("", route));
                let last = match last {
                    "B" => b,
                    "C" => c,
                    _ => deny,
                };
                format!("{before} {last}").trim().to_owned()
            })
            .collect();
        assert_eq!(routes(&checked(&with(lines))), expected, "{lines}");
    }
}

#[test]
fn lines_become_options() {
    let cases = [
        (
            "http-request redirect location https://a.b/ code 301",
            "redirect = { to = \"https://a.b/?\", status = 301 }",
        ),
        (
            "http-request redirect scheme https",
            "redirect = { to = \"https://$host$path_and_query\", status = 302 }",
        ),
        ("redirect prefix / drop-query append-slash", "redirect = { to = \"$path/?\", status = 302 }"),
        (
            "http-request set-header X-Forwarded-Proto https",
            "request_headers = { set = { X-Forwarded-Proto = \"https\" } }",
        ),
        ("http-request set-header X-A %[var(x)]", "request_headers = { remove = [\"X-A\"] }"),
        ("http-request set-header X-A \"a${C-d}$\"", "request_headers = { set = { X-A = \"a${C:-d}$$\" } }"),
        (
            "http-request redirect location https://%[hdr(host)]%[path] code 308",
            "redirect = { to = \"https://$host$path?\", status = 308 }",
        ),
        (
            "http-request redirect location https://%[hdr(host),regsub(^www\\.,,i)]%[capture.req.uri]",
            "redirect = { to = \"https://${target_2}$path_and_query\", status = 302 }",
        ),
        ("redirect prefix /x drop-query", "redirect = { to = \"/x$path?\", status = 302 }"),
        (
            "http-request return status 200 string \"a b\"",
            "respond = { status = 200, body = \"a b\", content_type = \"text/plain\" }",
        ),
        ("http-request set-header X-A %[src]", "request_headers = { set = { X-A = \"$client_address\" } }"),
        ("http-request set-header Host a.b", "rewrite = { host = \"a.b\" }"),
        ("http-response del-header Server", "response_headers = { remove = [\"Server\"] }"),
        (
            "http-request replace-path /a/(.*) /\\1",
            "rewrite = { pattern = \".*/a/(.*).*\", path = \"/${1}\" }",
        ),
        ("http-request set-path /x%[path]", "rewrite = { pattern = \"(.*)\", path = \"/x$1\" }"),
        ("option http-buffer-request", "request_buffering = true"),
        ("timeout http-request 5s", "client_header = \"5s\""),
        (
            "http-request redirect location %[var(x)]",
            "respond = { status = 501, body = \"not taken over from haproxy\\n\", content_type = \"text/plain\" }",
        ),
    ];
    for (lines, option) in cases {
        let written = options(&checked(&with(lines)));
        assert!(written.iter().any(|line| line == option), "{lines}: {written:#?}");
    }
    let limited = "stick-table type ip store http_req_rate(10s); http-request track-sc0 src; http-request deny deny_status 429 if { sc_http_req_rate(0) gt 9 }";
    let written = options(&checked(&with(limited)));
    assert!(
        written.iter().any(|line| line == "rate_limit = { rate = \"9/10s\", key = \"client\" }"),
        "{written:#?}"
    );
    for (condition, by) in
        [("sc_conn_cur(0) gt 9", "client"), ("sc0_conn_cur ge 10", "client"), ("src_conn_cur gt 9", "client")]
    {
        let limited = format!(
            "stick-table type ip store conn_cur; http-request track-sc0 src; http-request deny deny_status 429 if {{ {condition} }}"
        );
        let written = options(&checked(&with(&limited)));
        let expected = format!("concurrency = {{ max = 9, by = \"{by}\" }}");
        assert!(written.contains(&expected), "{condition}: {written:#?}");
    }
}

#[test]
fn a_time_for_connecting_is_that_of_all_or_of_a_backend() {
    let text = "defaults\n  mode http\n  timeout connect 5s\nfrontend f\n  bind 127.0.0.1:80\n  timeout connect 9s\n  \
                default_backend b\nbackend b\n  server s 127.0.0.1:1\nbackend c\n  timeout connect 2s\n  \
                server s 127.0.0.1:2\nlisten l\n  bind 127.0.0.1:81\n  mode tcp\n  timeout connect 3s\n  \
                server s 127.0.0.1:3\ndefaults\n  mode http\n  timeout connect 4s\nbackend d\n  server s 127.0.0.1:4\n";
    let adapted = checked(text);
    assert_eq!(adapted.refused(), 0, "{:?}", adapted.remarks);
    let written = options(&adapted).join("\n");
    assert!(written.contains("upstream_connect = \"5s\""), "{written}");
    for (name, pool) in [("b", None), ("c", Some("2s")), ("l", Some("3s")), ("d", Some("4s"))] {
        let (_, table) = written.split_once(&format!("[upstream.{name}]\n")).expect(name);
        let table = table.split("\n[").next().unwrap_or_default();
        let pool = pool.map(|time| format!("pool = {{ connect_timeout = \"{time}\" }}"));
        assert_eq!(table.lines().find(|line| line.starts_with("pool")), pool.as_deref(), "{name}: {written}");
    }
}

#[test]
fn a_condition_that_cannot_be_said_is_refused_and_a_password_is_asked_for() {
    let closed = "respond = { status = 501, body = \"not taken over from haproxy\\n\", content_type = \"text/plain\" }";
    let adapted = checked(&with("http-request deny if { nbsrv(b) lt 1 }"));
    assert_eq!(routes(&adapted), [closed]);
    assert!(
        adapted.remarks.iter().any(|remark| remark.kind == RemarkKind::Refused && remark.line == 5),
        "{:?}",
        adapted.remarks
    );
    let adapted = checked(&with("http-request auth if { var(txn.x) 1 }"));
    assert!(routes(&adapted)[0].contains("auth = "), "{}", adapted.toml);
}

/// Without a server, the default backend answers 503 itself, so nothing is let through.
#[test]
fn a_page_for_a_default_backend_without_servers_closes_nothing() {
    let text = "defaults\n  mode http\nfrontend f\n  bind :80\n  use_backend d if { nbsrv(b) lt 1 }\n  default_backend b\n\
                backend b\n  server s 127.0.0.1:1\nbackend d\n  http-request return status 503\n";
    let adapted = checked(text);
    assert_eq!(routes(&adapted), ["upstream = \"b\""]);
    let differs = |remark: &crate::Remark| remark.kind == RemarkKind::Differs && remark.line == 5;
    assert!(adapted.remarks.iter().any(differs), "{:?}", adapted.remarks);
}

#[test]
fn what_protects_is_closed_only_where_its_condition_is_unknown() {
    let closed = "respond = { status = 501, body = \"not taken over from haproxy\\n\", content_type = \"text/plain\" }";
    let b = "upstream = \"b\"";
    let cases = [
        // The known parts bound the place.
        (
            "http-request deny if { path /a } { nbsrv(b) lt 1 }",
            vec![format!("path = \"= /a\"; {closed}"), b.to_owned()],
        ),
        (
            "http-request deny if { nbsrv(b) lt 1 } !{ src 10.0.0.0/8 }",
            vec![format!("clients = [\"10.0.0.0/8\"]; {b}"), closed.to_owned()],
        ),
        // A known part that suffices decides.
        (
            "http-request deny if { method PUT } or { nbsrv(b) lt 1 }",
            vec!["methods = \"PUT\"; respond = { status = 403 }".to_owned(), closed.to_owned()],
        ),
        ("http-request tarpit unless { var(txn.x) 1 }", vec![closed.to_owned()]),
        ("http-request deny if { sc_conn_rate(0) gt 9 }", vec![closed.to_owned()]),
        ("http-request deny if { src -f none.lst }", vec![closed.to_owned()]),
        ("use_backend x if { nbsrv(b) lt 1 }", vec![b.to_owned()]),
        ("use_backend c if { nbsrv(b) lt 1 }", vec![b.to_owned()]),
        // An earlier rule changes what the condition asks for.
        ("http-request set-header X-A %[src]; http-request deny if { hdr(x-a) 1 }", vec![closed.to_owned()]),
        (
            "http-request set-header X-A 1; http-request deny if { hdr(x-a) 1 }",
            vec!["respond = { status = 403 }".to_owned()],
        ),
    ];
    for (lines, expected) in cases {
        let adapted = checked(&with(lines));
        assert_eq!(routes(&adapted), expected, "{lines}");
        let is_told = adapted.remarks.iter().any(|remark| remark.kind == RemarkKind::Refused);
        assert!(is_told || !adapted.toml.contains("501"), "{lines}: {:?}", adapted.remarks);
    }
}

#[test]
fn conditions_that_no_option_expresses_become_expressions() {
    let cases = [
        ("{ method POST } or { hdr(x) 1 }", r#"request.method == "POST" || "1" in request.headers["x"]"#),
        ("!{ method POST } { hdr(x) -m found }", r#"request.method != "POST""#),
        ("{ req.ver 1.0 }", r#"request.version == "1.0""#),
        ("{ query -m sub a=1 }", r#"(request.query ?? "").contains("a=1")"#),
        ("{ hdr_val(content-length) gt 10 }", r#"(int(request.headers["content-length"] ?? "") ?? 0) > 10"#),
        ("{ date,utime(%H) ge 22 }", "time.getHours() >= 22"),
        ("{ ssl_fc_sni -i a.b }", r#"(client.tls.sni ?? "").lowerAscii() == "a.b""#),
        ("{ src_port 1:1023 }", "(client.port >= 1 && client.port <= 1023)"),
        (
            "{ url_sub a=1 }",
            r#"(request.path + (has(request.query) ? "?" + request.query : "")).contains("a=1")"#,
        ),
        ("{ ssl_c_used }", "has(client.tls.fingerprint)"),
    ];
    for (condition, when) in cases {
        let found = routes(&checked(&with(&format!("use_backend c if {condition}"))));
        let expected = format!("when = '{when}'; upstream = \"c\"");
        assert!(found.iter().any(|route| route.ends_with(&expected)), "{condition}: {found:#?}");
        assert_eq!(found.len(), 2, "{condition}");
    }
}

#[test]
fn tls_and_plain_listeners_of_a_frontend_are_told_apart() {
    let text = with("bind 127.0.0.1:443 ssl crt a.pem; http-request deny if { ssl_fc } { path /x }");
    let found = routes(&checked(&text));
    assert_eq!(
        found,
        [
            "listener = \"127.0.0.1:80\"; upstream = \"b\"",
            "listener = \"127.0.0.1:443\"; path = \"= /x\"; respond = { status = 403 }",
            "listener = \"127.0.0.1:443\"; upstream = \"b\"",
        ]
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(lines in proptest::collection::vec(told::word(include_str!("words.txt")), 0..40)) {
        let text = format!("global\n{}", lines.join("\n"));
        if let Ok(adapted) = adapt(&text, "h.cfg", &mut files) {
            let (_, source) = syntax::read(&text, "h.cfg").expect("it was read");
            told::sound(&source, &adapted);
        }
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
    let hosts = "[map.hosts]; file = \"hosts.map\"";
    let countries = "[map.countries]; kind = \"network\"; file = \"countries.map\"";
    let (b, c) = ("upstream = \"b\"", "upstream = \"c\"");
    let deny = "respond = { status = 403 }";
    let cases: [(&str, String, &[String]); 17] = [
        // Backends that differ in their upstream alone share a route.
        (
            "use_backend %[req.hdr(host),lower,field(1,:),map(hosts.map)]",
            format!("{hosts}; [values]; backend = 'map.hosts[request.host] ?? \"\"'"),
            &[
                "when = 'map.hosts[request.host] in [\"b\", \"c\"]'; upstream = \"${backend}\"".to_owned(),
                b.to_owned(),
            ],
        ),
        (
            "use_backend %[req.hdr(host),map(hosts.map,b)]",
            format!("{hosts}; [values]; backend = 'map.hosts[request.host] ?? \"b\"'"),
            &["upstream = \"${backend}\"".to_owned()],
        ),
        // No backend is called e.
        (
            "use_backend %[req.hdr(host),map(more.map,c)]",
            "[map.more]; file = \"more.map\"; [values]; backend = 'map.more[request.host] ?? \"c\"'".to_owned(),
            &[
                "when = '(map.more[request.host] ?? \"c\") in [\"b\", \"c\"]'; upstream = \"${backend}\"".to_owned(),
                b.to_owned(),
            ],
        ),
        (
            "http-request deny if { src,map_ip(countries.map,ZZ) -m str ZZ }",
            countries.to_owned(),
            &[format!("when = '(map.countries[client.address] ?? \"ZZ\") == \"ZZ\"'; {deny}"), b.to_owned()],
        ),
        (
            "http-request deny unless { src,map_ip(countries.map) -m found }",
            countries.to_owned(),
            &[format!("when = 'has(map.countries[client.address])'; {b}"), deny.to_owned()],
        ),
        (
            "http-request deny if { src -f bans.lst 192.0.2.1 }",
            "[map.bans]; kind = \"network\"; file = \"bans.lst\"; format = \"keys\"".to_owned(),
            &[
                format!("when = 'client.address in \"192.0.2.1\" || (client.address in map.bans)'; {deny}"),
                b.to_owned(),
            ],
        ),
        (
            "http-request deny if { src -M -f countries.map }",
            countries.to_owned(),
            &[format!("when = 'client.address in map.countries'; {deny}"), b.to_owned()],
        ),
        // Vanward reads no networks with more bits than their length.
        (
            "http-request deny if { src -f sloppy.lst }",
            String::new(),
            &[format!("clients = [\"10.0.0.0/8\"]; {deny}"), b.to_owned()],
        ),
        (
            "http-request redirect location %[path,map(pages.map)] if { path,map(pages.map) -m found }",
            "[map.pages]; file = \"pages.map\"".to_owned(),
            &[
                "path = \"= /x\"; redirect = { to = \"https://x.y/?z\", status = 302 }".to_owned(),
                "path = \"= /old\"; redirect = { to = \"/new?\", status = 302 }".to_owned(),
                b.to_owned(),
            ],
        ),
        (
            "http-request set-header X-A %[path,map_beg(begin.map,none)]",
            "[map.begin]; kind = \"prefix\"; file = \"begin.map\"; [values]; x_a = 'map.begin[request.path] ?? \"none\"'"
                .to_owned(),
            &[format!("request_headers = {{ set = {{ X-A = \"$x_a\" }} }}; {b}")],
        ),
        (
            "http-request deny if { hdr(x),map_str_int(numbers.map) -m int gt 5 }",
            "[map.numbers]; file = \"numbers.map\"".to_owned(),
            &[
                format!(
                    "when = 'has(map.numbers[request.headers[\"x\"]]) && \
                     ((int(map.numbers[request.headers[\"x\"]] ?? \"\") ?? 0) > 5)'; {deny}"
                ),
                b.to_owned(),
            ],
        ),
        (
            "http-request set-var(txn.a) str(c) if { method POST }; use_backend %[var(txn.a)]",
            "[values]; txn_a = 'request.method == \"POST\" ? \"c\" : \"\"'".to_owned(),
            &[format!("when = 'values.txn_a == \"c\"'; {c}"), b.to_owned()],
        ),
        (
            "http-request set-var(txn.a) req.cook(a); http-request set-var(txn.a) str(x) unless { var(txn.a) -m found }; \
             http-request set-header X-A %[var(txn.a)]/",
            "[values]; txn_a = 'request.cookies[\"a\"] ?? \"\"'; \
             txn_a_2 = '!(has(request.cookies[\"a\"])) ? \"x\" : values.txn_a'"
                .to_owned(),
            &[format!("request_headers = {{ set = {{ X-A = \"${{txn_a_2}}/\" }} }}; {b}")],
        ),
        (
            "http-request set-var(txn.a) bool(true) if { hdr(x) 1 }; http-request deny if { var(txn.a) -m bool } { path /a }",
            "[values]; txn_a = '\"1\" in request.headers[\"x\"] ? \"1\" : \"\"'".to_owned(),
            &[format!("path = \"= /a\"; when = 'values.txn_a == \"1\"'; {deny}"), b.to_owned()],
        ),
        // Constants need no value.
        (
            "http-request set-var(txn.a) str(one); http-request set-header X-A %[var(txn.a)]",
            String::new(),
            &[format!("request_headers = {{ set = {{ X-A = \"one\" }} }}; {b}")],
        ),
        // A value has what clients send, whatever later rules change.
        (
            "http-request set-var(txn.a) hdr(x); http-request set-header X new; http-request deny if { var(txn.a) -m str old }",
            "[values]; txn_a = 'request.headers[\"x\"] ?? \"\"'".to_owned(),
            &[
                format!("when = 'values.txn_a == \"old\"'; {deny}"),
                format!("request_headers = {{ set = {{ X = \"new\" }} }}; {b}"),
            ],
        ),
        (
            "http-request set-var(txn.s) path,field(2,/); http-request deny if { var(txn.s) -m beg adm }",
            "[values]; txn_s = 'request.path.split(\"/\")[1] ?? \"\"'".to_owned(),
            &[format!("when = 'values.txn_s.startsWith(\"adm\")'; {deny}"), b.to_owned()],
        ),
    ];
    for (lines, defined, expected) in cases {
        let adapted = checked(&with(lines));
        let (found, routes) = parts(&adapted);
        assert_eq!((found, routes.as_slice()), (defined, expected), "{lines}\n{:?}", adapted.remarks);
        assert_eq!(adapted.refused(), 0, "{lines}: {:?}", adapted.remarks);
    }
}

#[test]
fn maps_and_variables_that_are_not_known_are_refused_and_protect() {
    let closed = "respond = { status = 501, body = \"not taken over from haproxy\\n\", content_type = \"text/plain\" }";
    let b = "upstream = \"b\"";
    let cases = [
        ("http-request deny if { hdr(x),map(none.map) -m found }", closed, "none.map: there is none"),
        (
            "http-request deny if { hdr(x),map_regm(hosts.map) -m found }",
            closed,
            "map_regm compares in another way",
        ),
        (
            "http-request deny if { hdr(x),map_ip(countries.map) -m found }",
            closed,
            "map_ip compares addresses",
        ),
        ("http-request deny if { hdr(x),map_ip(hosts.map) -m found }", closed, "hosts.map: line 1: "),
        ("http-request deny if { hdr(x),base64,map(hosts.map) -m found }", closed, "has no equivalent"),
        ("http-request deny if { var(txn.a) -m str x }", closed, "no rule before sets txn.a"),
        (
            "http-request set-var(txn.a) hdr(x),base64; http-request deny if { var(txn.a) -m str x }",
            closed,
            "txn.a is not known: hdr(x),base64 has no equivalent",
        ),
        (
            "http-request set-var(sess.a) hdr(x); http-request deny if { var(sess.a) -m str x }",
            closed,
            "only variables of requests are values",
        ),
        (
            "http-request set-var(txn.a) str(x) if { nbsrv(b) lt 1 }; http-request deny if { var(txn.a) -m str x }",
            closed,
            "routes cannot tell whether a server of b is up",
        ),
        (
            "http-request set-header X 1; http-request set-var(txn.a) hdr(x); http-request deny if { var(txn.a) -m str x }",
            closed,
            "an earlier rule changes request.headers[\"x\"]",
        ),
        (
            "http-request set-header Host %[src]; http-request deny if { hdr(host),upper,map(hosts.map) -m str b }",
            closed,
            "an earlier rule changes the field host",
        ),
        (
            "http-request allow if { path /a }; http-request set-var(txn.a) hdr(x); http-request deny if { var(txn.a) -m found }",
            closed,
            "an earlier rule may allow the request",
        ),
        (
            "use_backend %[req.hdr(x),map(none.map)]",
            b,
            "the name of the backend is not known: none.map: there is none",
        ),
        ("use_backend %[req.hdr(x),base64]", b, "the name of the backend is not known"),
        ("http-request set-header X-A %[req.hdr(x),map(none.map)]", b, "none.map: there is none"),
        (
            "http-request set-var(req.a) str(x); http-response set-header X-A 1 if { var(req.a) -m str x }",
            b,
            "no rule before sets req.a",
        ),
        ("http-request redirect location %[req.hdr(x)]", closed, "its target is not a URL or path"),
        ("http-request redirect location %[req.hdr(x),upper]", closed, "more URLs than can become routes"),
        (
            "http-request deny if { sc_http_err_rate(0) gt 5 }",
            closed,
            "routes cannot match on sc_http_err_rate(0)",
        ),
        (
            "http-request deny if { src_bytes_out_rate gt 5 }",
            closed,
            "routes cannot match on src_bytes_out_rate",
        ),
    ];
    for (lines, last, why) in cases {
        let adapted = checked(&with(lines));
        let found = routes(&adapted);
        assert!(found.iter().any(|route| route.ends_with(last)), "{lines}: {found:#?}");
        let is_told = |remark: &crate::Remark| remark.kind == RemarkKind::Refused && remark.why.contains(why);
        assert!(adapted.remarks.iter().any(is_told), "{lines}: {:?}", adapted.remarks);
    }
}

#[test]
fn fields_of_own_responses_and_monitor_pages() {
    let adapted = checked(&with(
        "http-request redirect location /b if { path /a }; http-after-response set-header X-A 1; \
         http-response set-header X-B 2",
    ));
    let [redirect, rest] = &routes(&adapted)[..] else { panic!("{}", adapted.toml) };
    assert!(redirect.contains("response_headers = { set = { X-A = \"1\" } }"), "{redirect}");
    assert!(rest.contains("X-A = \"1\", X-B = \"2\""), "{rest}");
    let adapted = checked(&with("http-request deny if { src 10.0.0.0/8 }; monitor-uri /up"));
    let first = &routes(&adapted)[0];
    assert!(first.starts_with("path = \"= /up\"") && first.contains("Service ready."), "{first}");
    assert!(!first.contains("clients"), "it comes before all rules: {first}");
}

#[test]
fn predefined_acls() {
    for (acl, when) in [
        ("HTTP_CONTENT", "(request.size ?? 0) > 0"),
        ("HTTP_URL_STAR", "request.raw_path == \"*\""),
        ("HTTP_URL_SLASH", "request.raw_path != \"*\""),
    ] {
        let adapted = checked(&with(&format!("http-request deny if {acl}")));
        assert!(routes(&adapted)[0].starts_with(&format!("when = '{when}'")), "{}", adapted.toml);
    }
}
