//! Forms of configurations that have to mean the same as in nginx: each with the options that it becomes.

use super::{checked, in_location, options};

fn server(inside: &str) -> String {
    format!("server {{ listen 80; server_name a.example; {inside} }}")
}

/// Checks that a server becomes all of these options, in any order.
#[track_caller]
fn has(text: &str, expected: &[&str]) {
    let written = options(text);
    for option in expected {
        assert!(written.iter().any(|line| line == option), "{text}\n{option}\n{written:#?}");
    }
}

#[test]
fn an_alias_takes_the_place_of_the_text_of_its_location() {
    for (locations, path, files, rewrite) in [
        ("location /s { alias /srv/x/s; }", "/s*", "/srv/x", "path = \"/s\""),
        ("location /s/ { alias /srv/x/; }", "/s/*", "/srv/x", "path = \"/\""),
        ("location /s { alias /srv/x/; }", "/s*", "/srv/x", "path = \"/\""),
        ("location /s/ { alias /srv/x; }", "/s/*", "/srv", "path = \"/x\""),
        ("location = /s.js { alias /srv/x/y.js; }", "= /s.js", "/srv/x", "path = \"/y.js\""),
        (
            "location ~ ^/(a|b)/(.*)$ { alias /srv/$1/$2; }",
            "~ /(a|b)/(.*)",
            "/srv",
            "pattern = \"/(a|b)/(.*)\", path = \"/$1/$2\"",
        ),
        (
            "location ^~ /m { alias /srv/m; } location ~ x { return 404; }",
            "~ /m(.*)",
            "/srv",
            "pattern = \"/m(.*)\", path = \"/m$1\"",
        ),
    ] {
        has(
            &server(locations),
            &[
                &format!("path = \"{}\"", path.replace('\\', "\\\\")),
                &format!("files = {{ root = \"{files}\", symlinks = true }}"),
                &format!("rewrite = {{ {rewrite} }}"),
            ],
        );
    }
    // The groups of an expression may be a part of a name, or lead out of the folder.
    for alias in ["/srv/$1x", "$1/a", "/$1"] {
        let written = options(&server(&format!("location ~ ^/(.*)$ {{ alias {alias}; }}"))).join("\n");
        assert!(written.contains("501"), "{alias}: {written}");
    }
}

#[test]
fn networks_of_satisfy_any_need_no_password() {
    let text = |rules: &str| {
        in_location(&format!(
            "satisfy any; {rules} auth_basic x; auth_basic_user_file /f; proxy_pass http://u;"
        ))
    };
    let auth = "auth = { users = \"/f\", realm = \"x\" }";
    for (rules, when) in [
        (
            "allow 10.0.0.0/8; allow 192.0.2.1; deny all;",
            Some("client.address in \"10.0.0.0/8\" || client.address in \"192.0.2.1\""),
        ),
        (
            "deny 10.1.0.0/16; allow 10.0.0.0/8; deny all;",
            Some("!(client.address in \"10.1.0.0/16\") && client.address in \"10.0.0.0/8\""),
        ),
        // No client is admitted by its network, and none by a mistake.
        ("deny all;", None),
        ("allow $x; deny all;", None),
        ("", None),
    ] {
        let written = options(&text(rules));
        let count = |line: &str| written.iter().filter(|known| *known == line).count();
        assert_eq!(count(auth), 1, "{rules}: {written:#?}");
        assert_eq!(count("upstream = \"u\""), 1 + usize::from(when.is_some()), "{rules}: {written:#?}");
        let found = written.iter().find_map(|line| line.strip_prefix("when = '")?.strip_suffix('\''));
        assert_eq!(found, when, "{rules}: {written:#?}");
        assert!(!written.iter().any(|line| line.starts_with("allow") || line.starts_with("deny")));
    }
    // All have to hold without it.
    let written = options(&text("allow 10.0.0.0/8; deny all;").replace("satisfy any;", ""));
    assert!(written.iter().any(|line| line == "allow = [\"10.0.0.0/8\"]"), "{written:#?}");
    let both = in_location(
        "satisfy any; auth_basic x; auth_basic_user_file /f; auth_request /q; proxy_pass http://u;",
    )
    .replace("location / ", "location = /q { proxy_pass http://u; } location / ");
    has(&both, &["require = \"any\""]);
}

#[test]
fn a_status_without_a_text_has_its_error_page() {
    let page = "error_pages = { 404 = \"/srv/e/404.html\" }";
    let text = |location: &str| server(&format!("root /srv/e; error_page 404 /404.html; {location}"));
    has(&text("location /a { return 404; }"), &["respond = { status = 404 }", page]);
    has(&text("location /404.html { internal; }"), &["respond = { status = 404 }", page]);
    for (directives, respond) in [
        ("error_page 404 @n;", "respond = { status = 404, body = \"no\", content_type = \"text/x\" }"),
        ("error_page 404 = @n;", "respond = { status = 410, body = \"no\", content_type = \"text/x\" }"),
        ("error_page 404 =200 @n;", "respond = { status = 200, body = \"no\", content_type = \"text/x\" }"),
        // The page of a page is not looked for.
        (
            "error_page 404 @n; error_page 410 @m;",
            "respond = { status = 404, body = \"no\", content_type = \"text/x\" }",
        ),
    ] {
        let named = "location @n { default_type text/x; return 410 no; } location @m { return 200 m; }";
        has(&server(&format!("{directives} location / {{ return 404; }} {named}")), &[respond]);
    }
}

#[test]
fn lifetimes_are_those_of_responses_that_give_none() {
    let none = "!((response.headers[\"cache-control\"] ?? \"\").lowerAscii().matches(\"no-cache|no-store|private|max-age=|s-maxage=\") || has(response.headers[\"expires\"]))";
    for (directives, rules) in [
        ("proxy_cache_valid any 1m;", vec![(none.to_owned(), "1m")]),
        ("proxy_cache_valid 200 1h;", vec![(format!("response.status == 200 && {none}"), "1h")]),
        (
            "proxy_cache_valid 5m; proxy_cache_valid 404 0;",
            vec![
                (format!("response.status in [200, 301, 302] && {none}"), "5m"),
                (format!("response.status == 404 && {none}"), "0s"),
            ],
        ),
        (
            "proxy_cache_valid 200 1h; proxy_ignore_headers Cache-Control Expires;",
            vec![("response.status == 200".to_owned(), "1h")],
        ),
    ] {
        let zone = "proxy_cache_path /c keys_zone=c:1m;";
        let text =
            zone.to_owned() + &in_location(&format!("proxy_cache c; {directives} proxy_pass http://u;"));
        let toml = checked(&text).toml;
        let rules: Vec<String> =
            rules.iter().map(|(when, ttl)| format!("{{ when = '{when}', ttl = \"{ttl}\" }}")).collect();
        assert!(toml.contains(&format!("rules = [{}]", rules.join(", "))), "{directives}\n{toml}");
        let fastcgi = text.replace("proxy_", "fastcgi_").replace("http://u", "u; root /srv");
        assert!(checked(&fastcgi).toml.contains("rules = ["), "{directives}\n{}", checked(&fastcgi).toml);
    }
}

#[test]
fn pages_that_may_lead_to_a_location_are_conditions() {
    let referer = "(request.headers[\"referer\"] ?? \"\").lowerAscii().matches";
    for (valid, when) in [
        ("none", "has(request.headers[\"referer\"])".to_owned()),
        (
            "none blocked server_names *.example.org",
            format!(
                "!(!has(request.headers[\"referer\"]) || (has(request.headers[\"referer\"]) && !{referer}(\"^https?://.\")) || {referer}(\"^https?://(?:a\\\\.example(?:[/:]|$)|[^/:]+\\\\.example\\\\.org(?:[/:]|$))\"))"
            ),
        ),
        ("~\\.google\\.", format!("!{referer}(\"(?i)^https?://.*(?:\\\\.google\\\\.)\")")),
    ] {
        let text = server(&format!(
            "location / {{ root /srv; valid_referers {valid}; if ($invalid_referer) {{ return 403; }} }}"
        ));
        has(&text, &[&format!("when = '{when}'")]);
    }
    // What is not understood is closed.
    let text =
        server("location / { root /srv; valid_referers ~(?=x); if ($invalid_referer) { return 403; } }");
    assert!(options(&text).join("\n").contains("501"), "{text}");
}

#[test]
fn copies_of_requests_go_to_another_server() {
    let text = |copies: &str| {
        server(&format!(
            "location / {{ mirror /m; proxy_pass http://127.0.0.1:1; }} location = /m {{ internal; {copies} }}"
        ))
    };
    for (copies, mirror) in [
        (
            "proxy_pass http://127.0.0.1:2$request_uri;",
            "mirror = { upstream = \"127.0.0.1-2\", bodies = \"16MiB\" }",
        ),
        (
            "mirror_request_body off; proxy_pass http://127.0.0.1:2$request_uri; proxy_set_header X-Copy 1;",
            "mirror = { upstream = \"127.0.0.1-2\", mark = \"X-Copy\", bodies = \"16MiB\" }",
        ),
    ] {
        has(&text(copies), &[mirror]);
    }
    let adapted = checked(&text("proxy_pass http://127.0.0.1:2;"));
    assert!(!adapted.toml.contains("mirror ="), "{}", adapted.toml);
    assert!(adapted.remarks.iter().any(|remark| remark.why == "copies have the path of the request"));
}

#[test]
fn clients_without_a_session_are_sent_to_the_login_page() {
    let text = |page: &str| {
        server(&format!(
            "auth_request /v; {page} location @l {{ return 302 https://login/?to=$http_host; }} \
             location = /v {{ internal; proxy_pass http://127.0.0.1:1/check; }} \
             location / {{ proxy_pass http://127.0.0.1:2; proxy_set_header Host $host; }}"
        ))
    };
    let asked = "upstream = \"127.0.0.1-1\", path = \"/check\", pass_answer = false";
    has(
        &text("error_page 401 = @l;"),
        &[
            &format!(
                "forward_auth = {{ {asked}, sign_in = \"https://login/?to=$header.Host\", sign_in_parameter = \"off\" }}"
            ),
            "host = { set = \"127.0.0.1:1\" }",
        ],
    );
    has(
        &text("auth_request_set $to $upstream_http_location; error_page 401 =302 $to;"),
        &[&format!("forward_auth = {{ {asked}, sign_in = \"location\" }}")],
    );
    has(&text(""), &[&format!("forward_auth = {{ {asked} }}")]);
    let fields =
        "auth_request_set $user $upstream_http_x_user; auth_request_set $mail $upstream_http_remote_mail;";
    has(
        &text(fields).replace("Host $host;", "X-User $user; proxy_set_header X-Mail $mail;"),
        &[&format!(
            "forward_auth = {{ {asked}, copy_headers = [\"X-User\"], copy_headers_as = {{ X-Mail = \"remote-mail\" }} }}"
        )],
    );
    let page = text("error_page 401 = /login/start;").replace(
        "location / {",
        "location /login/ { auth_request off; proxy_pass http://127.0.0.1:3; } location / {",
    );
    has(&page, &[&format!("forward_auth = {{ {asked}, sign_in = \"/login/start\" }}")]);
    // The page itself asks.
    let adapted = checked(&page.replace("auth_request off;", ""));
    assert!(!adapted.toml.contains("sign_in ="), "{}", adapted.toml);
}

#[test]
fn requests_without_a_file_run_the_script_of_try_files() {
    let php = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9; }";
    for (tried, path, index) in [
        ("$uri $uri/ /index.php", "/index.php?", ""),
        ("$uri $uri/ /index.php?$args", "/index.php", ""),
        ("$uri $uri/ /index.php$is_args$args", "/index.php", ""),
        ("$uri /index.php?q=$uri&$args", "/index.php?q=${uri}&$query", ", index = []"),
        ("$uri $uri/ /index.php$request_uri", "/index.php$path_and_query", ""),
        ("/f/$uri /index.php?$args", "/index.php", ", index = []"),
        ("$uri @r", "/index.php", ", index = []"),
    ] {
        let named = if tried.ends_with("@r") { "location @r { rewrite ^ /index.php; }" } else { "" };
        let text = server(&format!("root /srv; location / {{ try_files {tried}; }} {php} {named}"));
        let root = if tried.starts_with("/f/") { "/srv/f" } else { "/srv" };
        let files = format!(
            "files = {{ root = \"{root}\", symlinks = true{index}, else = {{ upstream = \"127.0.0.1-9\", path = \"{path}\" }} }}"
        );
        has(&text, &[&files, "fastcgi = { root = \"/srv\", front_controller = false }"]);
        assert_eq!(checked(&text).refused(), 0, "{tried}: {:?}", checked(&text).remarks);
    }
    // The index of a folder is a script, and nothing else is.
    let text = server(&format!("root /srv; index index.php; location = / {{ }} {php}"));
    has(
        &text,
        &[
            "files = { root = \"/srv\", index = [\"index.php\"], symlinks = true, else = { upstream = \"127.0.0.1-9\" } }",
        ],
    );
}

#[test]
fn files_and_the_server_for_missing_ones_have_their_own_fields() {
    let text = server(
        "root /srv; location / { try_files $uri @app; add_header X-File 1 always; } \
         location @app { proxy_pass http://127.0.0.1:1; add_header X-Server 1 always; }",
    );
    let fields = |when: &str, name: &str| format!("{{ when = '{when}', add = {{ {name} = \"1\" }} }}");
    let edits = [fields("!has(server.name)", "X-File"), fields("has(server.name)", "X-Server")];
    has(&text, &[&format!("response_headers = [{}]", edits.join(", "))]);
}

#[test]
fn paths_are_moved_before_the_content_of_their_location() {
    let text =
        server("location / { rewrite ^(.+)/$ $1 permanent; rewrite ^/a/(.*)$ /b/$1? redirect; root /srv; }");
    has(
        &text,
        &[
            "when = 'request.path.matches(\"^(.+)/$\")'",
            "redirect = { to = \"/$1\", status = 301, pattern = \"/(.*)/\" }",
            "redirect = { to = \"/b/$1?\", status = 302, pattern = \"/a/(.*)\" }",
            "files = { root = \"/srv\", symlinks = true }",
        ],
    );
}

#[test]
fn a_prefix_of_the_path_as_it_was_sent_is_removed() {
    let text = |second: &str| {
        in_location("").replace("location / {", "location /g/ {").replace(
            "  }",
            &format!(" rewrite ^ $request_uri; rewrite {second} break; proxy_pass http://u$uri; }}"),
        )
    };
    let rewrite = "rewrite = { path = \"/\", host = \"u\" }";
    has(
        &text("^/g(/.*) $1"),
        &["path = \"/g/*\"", rewrite, "location = false", "cookies = { path = false }"],
    );
    let other = options(&text("^/other(/.*) $1"));
    assert!(!other.iter().any(|line| line.starts_with("rewrite = { path = \"/\"")), "{other:#?}");
}

#[test]
fn requests_that_move_on_get_what_their_new_path_leads_to() {
    let text = |more: &str| {
        server(&format!(
            "root /srv; location ~ ^/v[0-9]+/(.*)$ {{ rewrite ^/v[0-9]+/(.*) /$1 last; }} location /u {{ root /w; }} \
             location / {{ proxy_pass http://127.0.0.1:1; proxy_set_header Host $host; }} {more}"
        ))
    };
    let written = options(&text(""));
    let paths: Vec<&String> = written.iter().filter(|line| line.starts_with("path = ")).collect();
    assert_eq!(
        paths,
        ["path = \"~ /v[0-9]+/(u.*)\"", "path = \"~ /v[0-9]+/(.*)\"", "path = \"/u*\"", "path = \"/\""]
    );
    assert_eq!(
        written.iter().filter(|line| *line == "rewrite = { path = \"/$1\" }").count(),
        2,
        "{written:#?}"
    );
    // Another expression may match the new path.
    let written = options(&text("location ~ x { return 404; }")).join("\n");
    assert!(!written.contains("(u.*)"), "{written}");
}

#[test]
fn fields_of_a_page_that_other_paths_get_are_named() {
    for (locations, is_named) in [
        ("location / { try_files $uri /a.html; } location = /a.html { add_header X-A 1 always; }", true),
        ("index a.html; location = /a.html { add_header X-A 1 always; }", true),
        ("location / { } location = /a.html { add_header X-A 1 always; }", false),
        (
            "location / { try_files $uri /a.html; } location = /a.html { add_header Cache-Control no-cache; }",
            false,
        ),
        ("location / { add_header X-B 1; try_files $uri /a.html; } location = /a.html { expires -1; }", true),
    ] {
        let adapted = checked(&server(&format!("root /srv; {locations}")));
        let said = |remark: &crate::Remark| remark.why.starts_with("directories and paths without a file");
        assert_eq!(adapted.remarks.iter().any(said), is_named, "{locations}: {:?}", adapted.remarks);
    }
}

#[test]
fn small_forms() {
    for (text, expected) in [
        // nginx adds the slash for exact paths, too.
        (
            server("location = /w/ { proxy_pass http://127.0.0.1:1; }"),
            &["redirect = { to = \"/w/\", status = 301 }"][..],
        ),
        (in_location("proxy_pass http://u; proxy_redirect http:// https://;"), &["location = true"]),
        (
            server("location ~ ^/t/(?<zoom>\\d+)/ { return 200 x; add_header X-Zoom $zoom always; }"),
            &["response_headers = { add = { X-Zoom = \"$capture.zoom\" } }"],
        ),
        (
            "map $sent_http_content_type $e { default off; text/css max; } ".to_owned()
                + &in_location("proxy_pass http://u; expires $e;"),
            &[
                "e = '(response.headers[\"content-type\"] ?? \"\").lowerAscii() == \"text/css\" ? \"max-age=315360000\" : \"\"'",
            ],
        ),
        (
            in_location(
                "proxy_intercept_errors on; proxy_pass http://u; error_page 502 = @b; } location @b { proxy_pass http://127.0.0.1:9; proxy_intercept_errors on;",
            ),
            &["request_buffering = true"],
        ),
        (
            in_location("if ($http_user_agent ~ \"^(a(?!b)|c)$\") { return 404; } proxy_pass http://u;"),
            &[
                "when = '(request.headers[\"user-agent\"] ?? \"\").matches(\"^(c)$\") || ((request.headers[\"user-agent\"] ?? \"\").matches(\"^a$\") && !(request.headers[\"user-agent\"] ?? \"\").matches(\"^a(?:b)\"))'",
            ],
        ),
    ] {
        has(&text, expected);
    }
}
