//! Variables: maps, values, conditions, and the rewrite phase.

use super::*;
use crate::Remark;

fn with(declarations: &str, location: &str) -> Adapted {
    checked(&format!(
        "{declarations} upstream u {{ server 127.0.0.1:1; }} upstream v {{ server 127.0.0.1:2; }} \
         server {{ listen 80; location / {{ {location} }} }}"
    ))
}

/// Returns the text of a table, from its header to the next empty line, without comments.
fn table(adapted: &Adapted, header: &str) -> String {
    let lines = adapted.toml.lines().skip_while(|line| !line.starts_with(header)).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines.map(|line| line.split("  # ").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn said(adapted: &Adapted, why: &str) -> bool {
    adapted.remarks.iter().any(|remark| remark.to_string().contains(why))
}

/// Returns the remarks on directives that were not taken over, except for upstreams that a text does not use.
fn refused(adapted: &Adapted) -> Vec<String> {
    let is_used = |remark: &&Remark| !remark.why.starts_with("no request here uses it");
    let refused = adapted.remarks.iter().filter(|remark| remark.kind == RemarkKind::Refused);
    refused.filter(is_used).map(ToString::to_string).collect()
}

const PASS: &str = "proxy_set_header X-A $x; proxy_pass http://u;";

#[test]
fn maps_with_few_entries_are_choices() {
    let agent = "(request.headers[\"user-agent\"] ?? \"\")";
    for (map, value) in [
        ("map $host $x { default a; B.example b; }", "request.host == \"b.example\" ? \"b\" : \"a\"".to_owned()),
        ("map $arg_q $x { 1 a; 2 a; ~^3 b; }", {
            let query = "(request.query[\"q\"] ?? \"\")";
            format!("{query} in [\"1\", \"2\"] ? \"a\" : {query}.matches(\"^3\") ? \"b\" : \"\"")
        }),
        ("map $http_user_agent $x { ~*bot b; \\~x c; }", {
            format!("{agent}.lowerAscii() == \"~x\" ? \"c\" : {agent}.matches(\"(?i)bot\") ? \"b\" : \"\"")
        }),
        ("map \"$host:$uri\" $x { default a; h:/ b; }", "(request.host + \":\" + request.path).lowerAscii() == \"h:/\" ? \"b\" : \"a\"".to_owned()),
        ("map $http_p $x { default $http_p; \"\" $scheme; }", "(request.headers[\"p\"] ?? \"\") == \"\" ? request.scheme : (request.headers[\"p\"] ?? \"\")".to_owned()),
        ("map $host $y { default 1; a.example 2; } map $y $x { default n; 1 one; ~^[2-9] more; }", "request.host == \"a.example\" ? \"more\" : \"one\"".to_owned()),
        ("geo $x { default out; 10.0.0.0/8 in; 10.1.0.0/16 out; }", 
            "client.address in \"10.1.0.0/16\" ? \"out\" : client.address in \"10.0.0.0/8\" ? \"in\" : \"out\"".to_owned()),
    ] {
        let adapted = with(map, PASS);
        let parsed: toml::Table = toml::from_str(&adapted.toml).expect("is TOML");
        assert_eq!(parsed["values"]["x"].as_str(), Some(value.as_str()), "{map}");
        assert!(adapted.toml.contains("X-A = \"${x}\""), "{}", adapted.toml);
        assert_eq!(refused(&adapted), Vec::<String>::new());
    }
}

#[test]
fn maps_with_many_entries_are_maps() {
    let hosts =
        "map $host $x { hostnames; default d; a.example 1; *.b.example 2; .c.example 3; www.* 4; ~^z 5; }";
    let adapted = with(hosts, PASS);
    for (header, expected) in [
        ("[map.x]", "key = 'request.host'\nentries = { \"a.example\" = \"1\" }"),
        (
            "[map.x_2]",
            "key = 'request.host'\nkind = \"suffix\"\nentries = { \"*.b.example\" = \"2\", \"c.example\" = \"3\" }",
        ),
        ("[map.x_3]", "key = 'request.host'\nkind = \"prefix\"\nentries = { \"www.\" = \"4\" }"),
        ("[map.x_4]", "key = 'request.host'\nkind = \"regex\"\ndefault = \"d\"\nentries = { ^z = \"5\" }"),
        ("[values]", "x = 'map.x ?? map.x_2 ?? map.x_3 ?? map.x_4'"),
    ] {
        assert_eq!(table(&adapted, header).replace("\"^z\"", "^z"), expected, "{}", adapted.toml);
    }
    let networks = "geo $x { ranges; default 0; 10.0.0.0-10.0.0.255 1; 10.0.1.0-10.0.1.1 2; 10.0.9.9-10.0.9.9 3; \
                    192.0.2.0-192.0.2.255 4; 198.51.100.1-198.51.100.1 5; delete 192.0.2.0-192.0.2.255; }";
    let adapted = with(networks, PASS);
    let expected = "key = 'client.address'\nkind = \"network\"\ndefault = \"0\"\nentries = { \"10.0.9.9\" = \"3\", \
                    \"198.51.100.1\" = \"5\", \"10.0.1.0/31\" = \"2\", \"10.0.0.0/24\" = \"1\" }";
    assert_eq!(table(&adapted, "[map.x]"), expected, "{}", adapted.toml);
    // An empty key, and a default of the request.
    let adapted = with("map $arg_q $x { \"\" none; a 1; b 2; c 3; default $arg_r; }", PASS);
    assert_eq!(
        table(&adapted, "[values]"),
        "x = '(request.query[\"q\"] ?? \"\").lowerAscii() == \"\" ? \"none\" : (map.x ?? (request.query[\"r\"] ?? \"\"))'"
    );
    // Conditions with many entries ask the map.
    let many: String = (0..40).map(|number| format!("~*bot{number} 1; ")).collect();
    let adapted = with(
        &format!("map $http_user_agent $x {{ default 0; {many} }}"),
        "if ($x) { return 403; } proxy_pass http://u;",
    );
    assert!(adapted.toml.contains("when = '!(map.x in [\"\", \"0\"])'"), "{}", adapted.toml);
}

#[test]
fn maps_without_a_translation_are_refused_where_they_are_used() {
    for (declaration, why) in [
        ("map $uri $x { ~^/(.*)$ $1; }", "its values use groups of expressions"),
        ("map $host $x { ~^(?<name>.+)\\.example$ $name; }", "its values use groups of expressions"),
        ("map $host $x { ~(?=a) 1; }", "look-ahead"),
        ("map $host $x { include none.map; }", "a file that it includes cannot be read"),
        ("map $nothing $x { a b; }", "there is no variable $nothing"),
        ("map $y $x { a b; } map $x $y { a b; }", "its variables depend on each other"),
        ("map $status $x { 200 1; }", "$x is known only after the response"),
        ("map $request_uri $x { /%41 1; }", "has an escape, and paths are compared without"),
        ("geo $http_a $x { 10.0.0.0/8 1; }", "its address is another variable"),
        ("geo $x { proxy 10.0.0.0/8; 10.0.0.0/8 1; }", "it reads addresses of clients from proxies"),
        ("geo $x { nowhere 1; }", "nowhere is no network"),
        ("split_clients $remote_addr $x { 50% a; * b; }", "only `proxy_pass` can use it"),
    ] {
        let none = &mut |path: &str| match path {
            "none.map" => Err("there is none".to_owned()),
            _ => Ok(Vec::new()),
        };
        let text = format!(
            "{declaration} server {{ listen 80; location / {{ {PASS} }} }} upstream u {{ server 127.0.0.1:1; }}"
        );
        let adapted = adapt(&text, "n.conf", none).expect("it is read");
        told::valid(&adapted);
        assert!(
            said(&adapted, why) && adapted.toml.contains("X-A = \"\""),
            "{declaration}: {:?}",
            adapted.remarks
        );
        let text = text.replace(PASS, "if ($x = 1) { return 403; } proxy_pass http://u;");
        if !declaration.starts_with("map $uri") {
            let adapted = adapt(&text, "n.conf", none).expect("it is read");
            assert!(adapted.toml.contains("status = 501"), "{declaration}: {}", adapted.toml);
        }
    }
}

#[test]
fn a_variable_chooses_a_server() {
    for (declarations, location, lines) in [
        (
            "map $cookie_a $x { default u; 1 v; }",
            "proxy_pass http://$x;",
            &[
                "upstream = \"${x}\"",
                "rewrite = { host = \"${x}\" }",
                "x = '(request.cookies[\"a\"] ?? \"\") == \"1\" ? \"v\" : \"u\"'",
            ][..],
        ),
        // Hosts become upstreams; a text that is no URL gets what nginx answers.
        (
            "map $host $x { a.example http://10.0.0.1:81; b.example http://u; }",
            "proxy_pass $x$request_uri; proxy_set_header Host $host;",
            &[
                "servers = [\"http://10.0.0.1:81\"]",
                "upstream = \"${x}\"",
                "respond = { status = 500 }",
                "when = '!(request.host in [\"a.example\", \"b.example\"])'",
            ],
        ),
        (
            "",
            "set $x u; if ($arg_v) { set $x v; } proxy_pass http://$x; proxy_set_header Host $http_host;",
            &[
                "upstream = \"${x}\"",
                "values = { x = '!((request.query[\"v\"] ?? \"\") in [\"\", \"0\"]) ? \"v\" : \"u\"' }",
            ],
        ),
        ("", "set $x u; if ($arg_v) { set $x u; } proxy_pass http://$x;", &["upstream = \"u\""]),
        // With variables, the path is that of every request.
        (
            "",
            "set $x u; proxy_pass http://$x/fixed;",
            &["rewrite = { pattern = \".*\", path = \"/fixed?\", host = \"u\" }"],
        ),
        (
            "map $host $x { a u; default v; }",
            "proxy_pass http://$x/a/$arg_b$is_args$args; proxy_set_header Host $http_host;",
            &["rewrite = { pattern = \".*\", path = \"/a/$arg.b\" }"],
        ),
        (
            "",
            "proxy_pass http://u; } location ~ ^/d/(.*)$ { proxy_pass http://u/e/$1; proxy_set_header Host $http_host;",
            &["path = \"~ /d/(.*)\"", "rewrite = { path = \"/e/$1?\" }"],
        ),
        (
            "split_clients \"${remote_addr}salt\" $x { 0.5% v; 10% u; * u; }",
            "proxy_pass http://$x; proxy_set_header Host $host;",
            &["split = { v = 1, u = 199 }", "sticky = { by = \"client\" }"],
        ),
    ] {
        let adapted = with(declarations, location);
        let written = told::options(&adapted);
        for line in lines {
            assert!(written.iter().any(|found| found == line), "{location}: {line}: {written:#?}");
        }
        assert_eq!(refused(&adapted), Vec::<String>::new());
    }
    for (declarations, location, why) in [
        ("", "proxy_pass http://$host;", "a server is not chosen by a text of the request"),
        (
            "map $host $x { a u; default $http_x; }",
            "proxy_pass http://$x;",
            "not chosen by a text of the request",
        ),
        ("map $host $x { a u; default v/x; }", "proxy_pass http://$x;", "a path behind a variable replaces"),
        ("map $host $x { a b; }", "proxy_pass $x;", "none of its values is a server"),
        ("split_clients $cookie_a $x { * u; }", "proxy_pass http://$x;", "`split` goes by the client"),
    ] {
        let adapted = with(declarations, location);
        assert!(
            said(&adapted, why) && adapted.toml.contains("status = 501"),
            "{location}: {:?}",
            adapted.remarks
        );
    }
}

fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Table(pairs) => {
            let pairs = pairs.iter().map(|(name, value)| format!("{name} = {}", shown(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Returns the conditions of routes, each with its content.
fn branches(adapted: &Adapted) -> Vec<String> {
    let parsed: toml::Table = toml::from_str(&adapted.toml).expect("is TOML");
    let content = |route: &toml::Value| {
        let to = |key: &str, name: &str| Some(shown(route.get(key)?.get(name)?));
        let upstream = route.get("upstream").and_then(|name| name.as_str()).map(str::to_owned);
        let field = to("response_headers", "add").unwrap_or_default();
        let main = to("respond", "status").or_else(|| to("redirect", "to")).or(upstream).unwrap_or_default();
        main + &field
    };
    let routes = parsed["route"].as_array().expect("routes").iter();
    let line = |route: &toml::Value| {
        let when = route.get("when").and_then(|when| when.as_str()).unwrap_or("else");
        format!("{} -> {}", when.replace(" ?? \"\"", "").replace("request.query", "q"), content(route))
    };
    routes.map(line).collect()
}

#[test]
fn the_rewrite_phase_runs_in_order() {
    let set = |name: &str| format!("!((q[\"{name}\"]) in [\"\", \"0\"])");
    let (a, b) = (set("a"), set("b"));
    for (directives, expected) in [
        (
            "if ($arg_a) { return 403; } if ($arg_b) { return 404; }",
            vec![format!("{a} -> 403"), format!("{b} -> 404")],
        ),
        (
            "if ($arg_a) { break; } if ($arg_b) { return 404; }",
            vec![format!("(q[\"a\"]) in [\"\", \"0\"] && {b} -> 404")],
        ),
        (
            "if ($arg_a) { add_header X a; } if ($arg_b) { add_header X b; }",
            vec![format!("{b} -> u{{ X = \"b\" }}"), format!("{a} -> u{{ X = \"a\" }}")],
        ),
        (
            "if ($arg_a) { proxy_pass http://v; break; } if ($arg_b) { add_header X b; }",
            vec![format!("(q[\"a\"]) in [\"\", \"0\"] && {b} -> u{{ X = \"b\" }}"), format!("{a} -> v")],
        ),
        // Both conditions, as nginx can only write them.
        (
            "set $t \"\"; if ($arg_a) { set $t A; } if ($arg_b) { set $t \"${t}B\"; } if ($t = AB) { return 403; }",
            vec![format!("{b} && {a} -> 403")],
        ),
        (
            "set $t 1; if ($arg_a) { set $t 0; } if ($t) { return 403; }",
            vec!["(q[\"a\"]) in [\"\", \"0\"] -> 403".to_owned()],
        ),
        ("set $t 0; if ($t) { return 403; }", Vec::new()),
        ("if ($request_method = POST) { return 405; }", vec!["else -> 405".to_owned()]),
        (
            "if ($arg_a) { rewrite ^(.*)$ https://x.example$1 permanent; }",
            vec![format!("{a} -> \"https://x.example$path\"")],
        ),
        // The fields of the `if`, in the response of the `return` behind it.
        (
            "if ($arg_b) { add_header X b; } if ($arg_a) { return 204; }",
            vec![format!("{a} -> 204"), format!("{b} -> u{{ X = \"b\" }}")],
        ),
        ("if ($arg_a) { set $t 1; return 302 /$t; }", vec![format!("{a} -> \"/${{t}}?\"")]),
    ] {
        let adapted = with("", &format!("{directives} proxy_pass http://u;"));
        let mut found = branches(&adapted);
        assert_eq!(found.pop().as_deref(), Some("else -> u"), "{directives}: {}", adapted.toml);
        assert_eq!(found, expected, "{directives}: {}", adapted.toml);
        assert_eq!(refused(&adapted), Vec::<String>::new());
    }
    // Always: nothing is left for the location.
    let adapted = with("", "set $closed 1; if ($closed) { return 503; } proxy_pass http://u;");
    assert_eq!(branches(&adapted), ["else -> 503"]);
}

#[test]
fn groups_and_files_are_refused_and_refusals_stay_closed() {
    for (directives, last, why) in [
        (
            "if ($uri ~ ^/a/(.*)) { return 200 $1; }",
            "else -> u",
            "its block uses groups of the expression elsewhere than in the target of a redirect",
        ),
        (
            "if ($http_x ~ ^a(.*)) { return 301 /b/$1; }",
            "else -> u",
            "its block uses groups of the expression, which are no whole pieces of a path or a host",
        ),
        (
            "if ($request_uri ~ ^/a/([^/]+)) { return 301 /b/$1; }",
            "else -> u",
            "its block uses groups of the expression, which are no whole pieces of a path or a host",
        ),
        ("if ($uri ~ ^/a/(.*)) { return 403 $1; }", "else -> 501", "it refuses requests"),
        ("if ($uri ~ ^/a/(.*)) { return 301 /b/$2; }", "else -> u", "$2 is no group of its expression"),
        ("if ($uri ~ ^/a/(.*)) { set $t $1; } add_header X-A $t;", "else -> u", "an `if` sets it"),
        ("if (-f /closed) { return 503; }", "else -> u", "the condition asks for files"),
        ("if ($http_a ~ (?=x)) { return 404; }", "else -> 501", "it refuses requests"),
        (
            "if ($arg_a) { return 200 x; } if ($geoip_x) { return 444; }",
            "else -> 501",
            "there is no variable $geoip_x",
        ),
        ("if ($geoip_x) { return 301 /x; }", "else -> u", "there is no variable $geoip_x"),
    ] {
        let adapted = with("", &format!("{directives} proxy_pass http://u;"));
        assert_eq!(branches(&adapted).pop().as_deref(), Some(last), "{directives}: {}", adapted.toml);
        assert!(said(&adapted, why), "{directives}: {:?}", adapted.remarks);
    }
    // Conditions hold for all routes that a location becomes, and before `methods` of exact paths.
    let server = "server { listen 80; root /srv; if ($arg_a) { return 403; } location = /x { limit_except GET { deny all; } return 200 x; } \
                  location / { if ($arg_b) { return 404; } try_files $uri /index.php?$args; } location ~ \\.php$ { fastcgi_pass 127.0.0.1:9; } }";
    let adapted = checked(server);
    assert!(!adapted.toml.contains("methods ="), "{}", adapted.toml);
    let parsed: toml::Table = toml::from_str(&adapted.toml).expect("is TOML");
    let refused = parsed["route"].as_array().expect("routes").iter().filter(|route| {
        route.get("when").and_then(|when| when.as_str()).is_some_and(|when| when.contains("\"b\""))
    });
    assert_eq!(refused.count(), 1, "{}", adapted.toml);
    let server = "server { listen 80; if ($geoip_x) { return 403; } location = /a { return 200 a; } location / { return 200 b; } }";
    let adapted = checked(server);
    assert_eq!(branches(&adapted), ["else -> 501", "else -> 501"], "{}", adapted.toml);
}

/// A variable that is known with the response is a value for its fields, and for the log.
#[test]
fn variables_of_the_response_are_values_for_its_fields_and_the_log() {
    let declarations = "map $status $kind { default ok; ~^5 broken; } map $sent_http_content_type $age { text/css 1h; default 1m; } \
                        log_format own '$status $kind $age'; access_log /tmp/a.log own;";
    let adapted = with(declarations, "add_header X-Kind \"$kind, $age\"; proxy_pass http://u;");
    for wanted in [
        "X-Kind = \"${kind}, ${age}\"",
        "response.status",
        "response.headers[\"content-type\"]",
        "format = \"$status ${kind} ${age}\"",
    ] {
        assert!(adapted.toml.contains(wanted), "{wanted}\n{}\n{:?}", adapted.toml, adapted.remarks);
    }
    assert_eq!(refused(&adapted), Vec::<String>::new());
    let early = with(declarations, "proxy_set_header X-Kind $kind; proxy_pass http://u;");
    assert!(said(&early, "$kind is known only after the response"), "{:?}", early.remarks);
}

/// Groups of an `if` are pieces of the text, or those of a redirect's own expression.
#[test]
fn groups_of_an_if_are_pieces_of_its_text() {
    for (directives, wanted) in [
        (
            "if ($uri ~ ^/old/(.*)$) { return 301 /new/$1; }",
            &["to = \"/new/$1?\"", "pattern = \"/old/(.*)\"", "when = 'request.path.matches("][..],
        ),
        (
            "if ($uri ~* ^/old/(.*)$) { return 302 https://www.example.com/$1$is_args$args; }",
            &["to = \"https://www.example.com/$1\"", "pattern = \"(?i)/old/(.*)\""],
        ),
        (
            "if ($uri ~ ^/u/([^/]+)/(\\d+)$) { return 301 /users/$2/$1; }",
            &[
                "to = \"/users/${uri_3}/${uri_2}?\"",
                "uri_2 = 'request.path.split(\"/\")[2] ?? \"\"'",
                "uri_3 = 'request.path.split(\"/\")[3] ?? \"\"'",
            ],
        ),
        (
            "if ($uri ~ ^/u/([^/]+)) { set $who $1; } proxy_set_header X-Who $who;",
            &["${who}", "request.path.split(\"/\")[2] ?? \"\""],
        ),
        (
            "set $app www; if ($host ~ ^(?<sub>[a-z0-9-]+)\\.example\\.com$) { set $app $sub; } proxy_set_header X-App $app;",
            &["request.host.split(\".\")[0]", "\"www\""],
        ),
        ("if ($host ~ ^([^.]+)\\.) { return 200 $1; }", &["request.host.split(\".\")[0]", "body = \"${"]),
        ("if ($args ~ ^id=([0-9]+)$) { return 301 /items/$1; }", &["split(\"=\")[1]", "/items/${"]),
        (
            "if ($host ~ ^([^.]+)\\.) { rewrite ^/(.*)$ https://www.example.com/$1 permanent; }",
            &["to = \"https://www.example.com$path\""],
        ),
    ] {
        let adapted = with("", &format!("{directives} proxy_pass http://u;"));
        for wanted in wanted {
            assert!(
                adapted.toml.contains(wanted),
                "{directives}: {wanted}\n{}\n{:?}",
                adapted.toml,
                adapted.remarks
            );
        }
        assert_eq!(refused(&adapted), Vec::<String>::new(), "{directives}");
    }
    // The groups of an `if` end with it.
    let adapted =
        with("", "if ($uri ~ ^/a/([^/]+)) { set $t $1; } set $u $1; add_header X-A $u; proxy_pass http://u;");
    assert!(said(&adapted, "$1 is a group of an expression"), "{:?}", adapted.remarks);
    let server = "server { listen 80; server_name a.example; if ($uri ~ ^/old/(.*)$) { return 301 /new/$1; } location = /x { return 200 x; } \
                  location / { return 200 y; } }";
    let adapted = checked(server);
    assert_eq!(adapted.toml.matches("pattern = \"/old/(.*)\"").count(), 2, "{}", adapted.toml);
}

#[test]
fn an_if_for_missing_files_is_read_like_try_files() {
    for (condition, does, option) in [
        ("!-f", "proxy_pass http://u; break;", "index = [], else = { upstream = \"u\" }"),
        ("!-e", "proxy_pass http://u;", "symlinks = true, else = { upstream = \"u\" }"),
        ("!-e", "rewrite ^(.*)$ /index.html last;", "fallback = \"/index.html\""),
    ] {
        let adapted = with("", &format!("root /srv/www; if ({condition} $request_filename) {{ {does} }}"));
        assert!(
            adapted.toml.contains(option) && refused(&adapted).is_empty(),
            "{does}: {:?}\n{}",
            adapted.remarks,
            adapted.toml
        );
    }
    let php = "server { listen 80; root /srv/www; location / { if (!-e $request_filename) { rewrite ^ /index.php last; } } \
               location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; } }";
    let adapted = checked(php);
    assert!(
        adapted.toml.contains("else = { upstream = \"127.0.0.1-9000\", path = \"/index.php\" }")
            && refused(&adapted).is_empty(),
        "{:?}\n{}",
        adapted.remarks,
        adapted.toml
    );
    // Another file than that of the path.
    let adapted = with("", "root /srv/www; if (!-f /other) { proxy_pass http://u; }");
    assert!(said(&adapted, "the condition asks for files"), "{:?}", adapted.remarks);
}

#[test]
fn a_variable_is_the_target_of_a_redirect() {
    for (map, condition, expected) in [
        (
            "/a /b; /c /d",
            "if ($x) { return 301 $x; }",
            vec!["request.path in [\"/a\", \"/c\"] -> \"/${x}?\""],
        ),
        (
            "/a https://a.example/; ~^/c /d",
            "if ($x) { return 301 $x$is_args$args; }",
            vec![
                "request.path == \"/a\" -> \"https://a.example/\"",
                "request.path.matches(\"^/c\") -> \"/d\"",
            ],
        ),
        (
            "/a https://a.example/; ~^/c 0; ~/d http://$host/d",
            "if ($x) { return 302 $x; }",
            vec![
                "request.path == \"/a\" -> \"https://a.example/?\"",
                "!request.path.matches(\"^/c\") && request.path.matches(\"/d\") -> \"http://$host/d?\"",
            ],
        ),
        (
            "default a.example; /a b.example",
            "return 301 https://$x$request_uri;",
            vec!["else -> \"https://${x}$path_and_query\""],
        ),
    ] {
        let adapted = with(&format!("map $uri $x {{ {map}; }}"), condition);
        let found = branches(&adapted);
        let shown: Vec<String> = found.iter().map(|line| line.replace(".lowerAscii()", "")).collect();
        assert_eq!(&shown[..expected.len()], &expected[..], "{map}: {}", adapted.toml);
    }
}

/// nginx 1.31.5.
#[test]
fn predicates_come_after_expressions_and_before_prefixes() {
    let text = "map $arg_a $is_a { ~. 1; } server { listen 80; \
        location = /e { return 200 e; } location ^~ /f/ { return 200 f; } location / { return 200 p; } \
        location $is_a { return 200 a; location /inner { return 200 i; } } location $arg_b { if ($arg_c) { return 404; } return 200 b; } \
        location ~ x$ { return 200 x; } location /api/ { return 200 api; location $arg_d { return 200 d; } } }";
    let adapted = checked(text);
    let parsed: toml::Table = toml::from_str(&adapted.toml).expect("is TOML");
    let route = |route: &toml::Value| {
        let of = |key: &str| route.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let body = route["respond"].get("body").and_then(|body| body.as_str()).unwrap_or("404").to_owned();
        (of("path"), of("when").replace(" ?? \"\"", ""), body)
    };
    let found: Vec<_> = parsed["route"].as_array().expect("routes").iter().map(route).collect();
    let is_set = |name: &str| format!("!((request.query[\"{name}\"]) in [\"\", \"0\"])");
    let (all, is_a) = ("~ (?s).*", "(request.query[\"a\"]).matches(\".\")".to_owned());
    let expected = [
        ("~ /f/(.*)", String::new(), "f"),
        ("= /e", String::new(), "e"),
        ("/", String::new(), "p"),
        ("~ .*x", String::new(), "x"),
        ("/api/*", String::new(), "api"),
        (all, is_a, "a"),
        (all, format!("{} && {}", is_set("b"), is_set("c")), "404"),
        (all, is_set("b"), "b"),
        ("/api/*", is_set("d"), "d"),
    ];
    let expected: Vec<_> =
        expected.map(|(path, when, body)| (path.to_owned(), when, body.to_owned())).to_vec();
    let sorted = |mut list: Vec<(String, String, String)>| {
        list.sort();
        list
    };
    assert_eq!(sorted(found.clone()), sorted(expected), "{}", adapted.toml);
    let place = |body: &str| found.iter().position(|(.., found)| found == body);
    assert!(
        place("f") < place("x") && place("x") < place("a") && place("a") < place("b"),
        "{}",
        adapted.toml
    );
    // One that refuses and has no translation closes all.
    let adapted =
        checked("server { listen 80; location $geoip_x { return 403; } location / { return 200 p; } }");
    assert!(branches(&adapted).contains(&"else -> 501".to_owned()), "{}", adapted.toml);
}

#[test]
fn rates_caches_and_logs_go_by_variables() {
    let zone = |key: &str| format!("limit_req_zone {key} zone=z:1m rate=5r/s;");
    let limit = "limit_req zone=z; proxy_pass http://u;";
    for (declarations, option) in [
        (zone("$binary_remote_addr"), "key = \"client\""),
        (zone("$server_name$binary_remote_addr"), "key = [\"host\", \"client\"]"),
        (zone("$http_a"), "key = \"header:A\", when = '(request.headers[\"a\"] ?? \"\") != \"\"'"),
        (
            zone("$x") + "geo $y { default 1; 10.0.0.0/8 0; } map $y $x { 0 \"\"; 1 $binary_remote_addr; }",
            "key = \"client\", when = '!(client.address in \"10.0.0.0/8\")'",
        ),
        (zone("$x") + "map $http_plan $x { default a; gold b; }", "key = \"${x}\""),
        (zone("$uri"), "key = \"${uri}\""),
    ] {
        let written = told::options(&with(&declarations, limit)).join("\n");
        assert!(
            written
                .contains(&format!("rate_limit = {{ rate = \"5/s\", burst = 1, {option}, zone = \"z\" }}")),
            "{declarations}: {written}"
        );
    }
    let cache = "proxy_cache_path /c keys_zone=c:1m; map $cookie_a $x { ~. 1; }";
    for (directives, option) in [
        ("proxy_cache_key $scheme$host$request_uri$x;", "key_values = [\"x\"]"),
        (
            "proxy_cache_key \"$host$uri$is_args$args|$http_a|$cookie_b\";",
            "key_headers = [\"A\"], key_cookies = [\"b\"]",
        ),
        (
            "proxy_cache_bypass $x $arg_n; proxy_no_cache $arg_n $x;",
            "when = '!((request.cookies[\"a\"] ?? \"\").matches(\".\") || !((request.query[\"n\"] ?? \"\") in [\"\", \"0\"]))'",
        ),
    ] {
        let written =
            told::options(&with(cache, &format!("proxy_cache c; {directives} proxy_pass http://u;")))
                .join("\n");
        assert!(written.contains(option), "{directives}: {written}");
    }
    let adapted = with(cache, "proxy_cache c; proxy_no_cache $upstream_http_x; proxy_pass http://u;");
    assert!(
        !adapted.toml.contains("cache = {") && said(&adapted, "nothing is stored here"),
        "{}",
        adapted.toml
    );
    let log = "map $status $x { ~^[23] 0; default 1; } map $host $y { default a; b c; } \
               log_format own '$remote_addr \"$request\" ${status}x $y $http_x_id $upstream_response_time'; access_log /l own if=$x;";
    let adapted = with(log, "proxy_pass http://u;");
    let format = "format = \"$client \\\"$request\\\" ${status}x ${y} $header.X-Id $upstream_total_s\"";
    for line in [format, "access_log = { when = '!string(response.status).matches(\"^[23]\")' }"] {
        assert!(told::options(&adapted).iter().any(|found| found == line), "{line}: {}", adapted.toml);
    }
}
