//! Values in every place that knows them: computed from requests of clients, which cannot break out of the place.

use std::net::TcpStream;

use testkit::admin;
use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get, read};
use testkit::text::OK;
use testkit::wait::Patience;

const ROUTES: &str = r#"
trusted_proxies = ["127.0.0.1"]
[log]
target = "{dir}/access.log"
format = '{"status":$status,"app":${app},"shown":"<${app}>","target":$target}'
[cache]
memory = "1MiB"

[values]
app = 'request.query["app"] ?? "www"'
is_long = 'values.app.size() > 3'
kind = 'values.is_long ? "long" : "short"'
waits = 'duration("1h30m")'

[[route]]
path = "/fields"
upstream = "blue"
request_headers = { set = { X-App = "<${app}>", X-Kind = "${kind} ${is_long} ${waits}", X-Absent = "${absent}" } }
response_headers = { set = { X-App = "${app}" } }
values = { absent = 'request.headers["x-none"]' }

[[route]]
path = "/when"
when = 'values.kind == "long"'
respond = { status = 200, body = "long" }

[[route]]
path = "/when"
respond = { status = 200, body = "short ${app}" }

[[route]]
path = "/html"
respond = { status = 200, body = "<p title='${app}'>${app}", content_type = "text/html" }

[[route]]
path = "/json"
respond = { status = 403, body = "{\"app\":\"${app}\",\"price\":\"$5 $${x}\"}", content_type = "application/json" }

[[route]]
path = "/moved"
redirect = { to = "https://${app}.example.com/${app}?a=${app}" }

[[route]]
path = "/rewritten"
upstream = "blue"
rewrite = { path = "/below/${app}", host = "${app}.internal" }

[[route]]
path = "/limited"
respond = { status = 204 }
rate_limit = { rate = "1/h", key = "${app}" }

[[route]]
path = "/kept"
upstream = "blue"
values = { app = 'request.headers["x-app"] ?? "none"' }
cache = { ttl = "1h", key_values = "app", show_key = true }

[[route]]
path = "/named"
upstream = "${color}"
values = { color = 'request.headers["x-color"] ?? "blue"' }

[[route]]
path = "/chosen"
upstream = "${color}"
values = { color = 'request.headers["x-color"] == "green" ? "green" : "blue"' }

[upstream.blue]
servers = ["http://{0}"]
[upstream.green]
servers = ["http://{1}"]
"#;

fn line<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn with<'a>(target: &'a str, fields: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { fields, ..get(target) }
}

/// Sends a request that reaches a server, and returns what it saw.
fn forwarded(scene: &Scene, spoken: Spoken, server: usize, asked: &BodylessRequest<'_>) -> (String, Got) {
    let mut client = scene.client(spoken).asking(asked);
    let mut peer = scene.accept(server);
    let seen = peer.head();
    peer.sends(OK.replace("Content-Length", "Connection: close\r\nContent-Length"));
    (seen, client.gets())
}

#[test]
fn fields_have_values() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        for (target, app, kind) in [
            ("/fields", "www", "short false 1h30m"),
            ("/fields?app=shop", "shop", "long true 1h30m"),
            ("/fields?app=a%0d%0aX-Evil:%201%00", "a  X-Evil: 1", "long true 1h30m"),
        ] {
            let (seen, got) = forwarded(&scene, spoken, 0, &get(target));
            let sent = line(&seen, "x-app").unwrap_or_default();
            assert_eq!(sent.trim_end_matches([' ', '>']), format!("<{app}"), "{spoken:?} {target}: {seen}");
            assert_eq!(line(&seen, "x-kind"), Some(kind), "{spoken:?} {target}");
            assert_eq!(line(&seen, "x-absent"), None, "{seen}");
            assert_eq!(line(&seen, "x-evil"), None, "{seen}");
            assert_eq!(got.field("x-app"), Some(app), "{spoken:?} {target}");
        }
    }
}

#[test]
fn conditions_and_bodies_have_values() {
    let scene = Scene::new(ROUTES);
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (target, status, body) in [
            ("/when", 200, "short www"),
            ("/when?app=shop", 200, "long"),
            ("/when?app=%22%0a", 200, "short \"\n"),
            (
                "/html?app=%3Cb%3E%27%26",
                200,
                "<p title='&#x3C;b&#x3E;&#x27;&#x26;'>&#x3C;b&#x3E;&#x27;&#x26;",
            ),
            ("/json?app=%22%0a%5c", 403, r#"{"app":"\u0022\u000A\u005C","price":"$5 ${x}"}"#),
        ] {
            let got = client.asks_for(&get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{spoken:?} {target}");
            assert_eq!(got.field("content-length"), Some(body.len().to_string().as_str()));
        }
    }
}

#[test]
fn urls_have_values_that_stay_in_their_part() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        for (app, location) in [
            ("", "https://www.example.com/www?a=www"),
            ("?app=a.b", "https://a.b.example.com/a.b?a=a.b"),
            (
                "?app=evil.net/%3fx%23%26%0d%0a",
                "https://evil.net%2F%3Fx%23%26%0D%0A.example.com/evil.net/%3Fx%23&%0D%0A?a=evil.net/%3Fx%23%26%0D%0A",
            ),
        ] {
            let got = scene.answer(spoken, &get(&format!("/moved{app}")));
            assert_eq!((got.status, got.field("location")), (308, Some(location)), "{spoken:?} {app}");
        }
        let (seen, _) = forwarded(&scene, spoken, 0, &get("/rewritten/x?app=a"));
        assert!(seen.starts_with("GET /below/a/x?app=a HTTP/1.1\r\n"), "{seen}");
        assert_eq!(line(&seen, "host"), Some("a.internal"));
        for app in ["..", "../..", "a/../b", "%2e%2e", "a b", "a%0d%0a"] {
            let got = scene.answer(spoken, &get(&format!("/rewritten/x?app={app}")));
            assert_eq!(got.status, 400, "{spoken:?} {app}: its path is ambiguous, or its host is none");
        }
    }
}

/// Statuses without a body have none. What is no status gets 500, with the reason in the log.
#[test]
fn a_value_is_the_status() {
    const CODES: &str = r#"
[log]
target = "{dir}/access.log"
format = "json"
[map.gone]
key = "request.path"
kind = "prefix"
default = 404
entries = { "/old" = 410, "/kept" = 304 }
[[route]]
respond = { status = "${map.gone}", body = "gone" }
[[route]]
path = "/code"
respond = { status = "${code}", body = "<${code}>" }
values = { code = 'request.query["code"]' }
"#;
    const NONE: &str = "The response has no valid status.\n";
    const STATUSES: [(&str, u16, &str); 12] = [
        ("/", 404, "gone"),
        ("/old/a", 410, "gone"),
        ("/kept", 304, ""),
        ("/code?code=200", 200, "<200>"),
        ("/code?code=204", 204, ""),
        ("/code?code=205", 205, ""),
        ("/code?code=599", 599, "<599>"),
        ("/code?code=600", 500, NONE),
        ("/code?code=100", 500, NONE),
        ("/code?code=0200", 500, NONE),
        ("/code?code=20%0d%0a", 500, NONE),
        ("/code", 500, NONE),
    ];
    for spoken in BOTH {
        let scene = Scene::new(CODES);
        // The connection goes on after each of them.
        let mut client = scene.client(spoken);
        for (target, status, body) in STATUSES {
            let got = client.asks_for(&get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{spoken:?} {target}");
        }
        let (running, directory) = scene.into_parts();
        running.drain();
        running.wait();
        let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
        let lines = log.lines().map(|line| serde_json::from_str(line).expect("is JSON"));
        let details: Vec<serde_json::Value> = lines
            .filter(|line: &serde_json::Value| line["cause"] == "status-invalid")
            .map(|line| line["detail"].clone())
            .collect();
        let of = |text: &str| format!("no status from 200 to 599 is \"{text}\"");
        // Control characters are spaces in texts, which are trimmed.
        assert_eq!(details, [of("600"), of("100"), of("0200"), of("20"), "the status is empty".to_owned()]);
    }
}

#[test]
fn requests_are_counted_by_a_value() {
    let scene = Scene::new(ROUTES);
    for (spoken, prefix) in [(Spoken::Http1, "a"), (Spoken::Http2, "b")] {
        for (app, status) in [("1", 204), ("1", 429), ("2", 204), ("2", 429)] {
            let got = scene.answer(spoken, &get(&format!("/limited?app={prefix}{app}")));
            assert_eq!(got.status, status, "{spoken:?} {app}");
        }
    }
}

#[test]
fn responses_are_stored_for_a_value() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        let stored = |body: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nDate: D\r\nCache-Control: max-age=60\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        for app in ["one", "two"] {
            let fields = format!("x-app: {app}\n");
            let mut client = scene.client(spoken).asking(&with("/kept", &fields));
            let mut server = scene.accept(0);
            server.head();
            server.sends(stored(app));
            assert_eq!(client.gets().body, app);
        }
        for app in ["one", "two", "one"] {
            let got = scene.answer(spoken, &with("/kept", &format!("x-app: {app}\n")));
            assert_eq!((got.status, got.body.as_str()), (200, app), "{spoken:?}");
            let status = got.field("cache-status").unwrap_or_default();
            assert!(status.contains("hit"), "{status}");
        }
    }
}

#[test]
fn a_value_names_the_upstream() {
    let (running, directory) = {
        let scene = Scene::new(ROUTES);
        for spoken in BOTH {
            for (target, color, server) in [
                ("/named", "", 0),
                ("/named", "x-color: green\n", 1),
                ("/named", "x-color: blue\n", 0),
                ("/chosen", "x-color: green\n", 1),
                ("/chosen", "x-color: red\n", 0),
            ] {
                let (_, got) = forwarded(&scene, spoken, server, &with(target, color));
                assert_eq!(got.status, 200, "{spoken:?} {target} {color}");
            }
            for color in ["x-color: red\n", "x-color:\n", "x-color: Blue\n"] {
                let got = scene.answer(spoken, &with("/named?app=none", color));
                assert_eq!(got.status, 503, "{spoken:?} {color}");
            }
        }
        scene.into_parts()
    };
    running.drain();
    running.wait();
    let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let refused = log.lines().filter(|line| line.contains("\"app\":\"none\",\"shown\":\"<none>\"")).count();
    assert_eq!(refused, 6, "{log}");
}

#[test]
fn lines_of_the_log_have_the_values_of_the_route() {
    let scene = Scene::new(ROUTES);
    for (target, fields) in [("/when?app=%22%0a", ""), ("/none", ""), ("/limited?app=log", "")] {
        scene.answer(Spoken::Http1, &with(target, fields));
    }
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            r#"{"status":200,"app":"\"\n","shown":"<\"\n>","target":"/when?app=%22%0a"}"#,
            r#"{"status":204,"app":"log","shown":"<log>","target":"/limited?app=log"}"#,
            r#"{"status":404,"app":"www","shown":"<www>","target":"/none"}"#,
        ]
    );
}

const MAPPED: &str = r#"
admin = "{dir}/admin"
[log]
target = "{dir}/access.log"
format = '$status ${map.tenant} "${map.tenant}" $map.is_old'
[cache]
memory = "1MiB"

[map.tenant]
key = 'request.headers["x-key"]'
entries = { "a" = "acme", "odd" = "a/../b", "new" = "green" }

[map.is_old]
key = 'request.headers["x-key"]'
entries = ["old"]

[[route]]
path = "/fields"
upstream = "blue"
request_headers = { set = { X-Tenant = "<${map.tenant}>", X-Old = "${map.is_old}", X-Both = "${own}${map.tenant}" } }
values = { own = 'map.tenant ?? "none"' }

[[route]]
path = "/body"
respond = { status = 200, body = "<p>${map.tenant}", content_type = "text/html" }

[[route]]
path = "/moved"
redirect = { to = "https://${map.tenant}.example.com/${map.tenant}?a=${map.tenant}" }

[[route]]
path = "/rewritten"
upstream = "blue"
rewrite = { path = "/below/${map.tenant}" }

[[route]]
path = "/limited"
respond = { status = 204 }
rate_limit = { rate = "1/h", key = "${map.tenant}" }

[[route]]
path = "/kept"
upstream = "blue"
cache = { ttl = "1h", key_values = ["map.tenant"] }

[[route]]
path = "/named"
upstream = "${map.tenant}"

[[route]]
path = "/files"
files = { root = "{dir}/${map.tenant}/public" }

[upstream.blue]
servers = ["http://{0}"]
[upstream.acme]
servers = ["http://{1}"]
[upstream.green]
servers = ["http://{1}"]
"#;

/// A map with key has its value in every text, and a change of the map applies to the next request.
#[test]
fn maps_are_values_in_texts() {
    let of = |key: &str| format!("x-key: {key}\n");
    // The entry `odd` names no upstream, which the configuration refuses; a command adds it.
    let routes = MAPPED.replace(", \"odd\" = \"a/../b\"", "");
    for (round, spoken) in BOTH.into_iter().enumerate() {
        let scene = Scene::new(&routes);
        let change = |key: &str, value: &str| {
            let order = format!("{{\"set\":[{{\"key\":\"{key}\",\"value\":\"{value}\"}}]}}");
            let (status, told) = admin::asks(&scene.file("admin"), "POST", "/maps/tenant/change", &order);
            assert_eq!(status, 200, "{told}");
        };
        change("odd", "a/../<b>");
        let (seen, _) = forwarded(&scene, spoken, 0, &with("/fields", &of("a")));
        assert_eq!(line(&seen, "x-tenant"), Some("<acme>"), "{seen}");
        assert_eq!(line(&seen, "x-both"), Some("acmeacme"), "{seen}");
        assert_eq!(line(&seen, "x-old"), Some("false"), "{seen}");
        let (seen, _) = forwarded(&scene, spoken, 0, &with("/fields", &of("old")));
        assert_eq!((line(&seen, "x-tenant"), line(&seen, "x-old")), (Some("<>"), Some("true")), "{seen}");
        assert_eq!(scene.answer(spoken, &with("/body", &of("odd"))).body, "<p>a/../&#x3C;b&#x3E;");
        let moved = scene.answer(spoken, &with("/moved", &of("odd")));
        let location = "https://a%2F..%2F%3Cb%3E.example.com/a/../%3Cb%3E?a=a/../%3Cb%3E";
        assert_eq!(moved.field("location"), Some(location));
        let (seen, _) = forwarded(&scene, spoken, 0, &with("/rewritten", &of("a")));
        assert!(seen.starts_with("GET /below/acme HTTP/1.1\r\n"), "{seen}");
        assert_eq!(
            scene.answer(spoken, &with("/rewritten", &of("odd"))).status,
            400,
            "the path is ambiguous"
        );
        for (key, status) in
            [("a", 204), ("a", 429), ("new", 204), ("new", 429), ("none", 204), ("none", 429)]
        {
            assert_eq!(scene.answer(spoken, &with("/limited", &of(key))).status, status, "{key}");
        }
        for key in ["a", "new"] {
            let (_, got) = forwarded(&scene, spoken, 0, &with("/kept", &of(key)));
            assert_eq!(got.status, 200);
            let kept = scene.answer(spoken, &with("/kept", &of(key)));
            assert!(kept.field("cache-status").is_some_and(|status| status.contains("hit")), "{kept:?}");
        }
        // The server of another upstream, once a command names that.
        assert_eq!(forwarded(&scene, spoken, 1, &with("/named", &of("a"))).1.status, 200);
        change("a", "blue");
        assert_eq!(forwarded(&scene, spoken, 0, &with("/named", &of("a"))).1.status, 200);
        assert_eq!(scene.answer(spoken, &with("/named", &of("odd"))).status, 503);
        let folder = scene.file("green/public");
        std::fs::create_dir_all(&folder).expect("it can be made");
        std::fs::write(folder.join("files"), "green").expect("it is writable");
        for (key, status) in [("new", 200), ("odd", 404), ("none", 404)] {
            assert_eq!(scene.answer(spoken, &with("/files", &of(key))).status, status, "{round} {key}");
        }
        let (running, directory) = scene.into_parts();
        running.drain();
        running.wait();
        let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
        for expected in
            ["200 acme \"acme\" false\n", "204 - \"-\" false\n", "404 a/../<b> \"a/../<b>\" false\n"]
        {
            assert!(log.contains(expected), "{expected}: {log}");
        }
    }
}

/// The detail in the log says which name was wrong.
#[test]
fn an_unknown_upstream_is_in_the_log() {
    let routes = ROUTES.replace(
        "format = '{\"status\":$status,\"app\":${app},\"shown\":\"<${app}>\",\"target\":$target}'",
        "format = \"json\"",
    );
    let scene = Scene::new(&routes);
    scene.answer(Spoken::Http1, &with("/named", "x-color: red\"\n"));
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let line: serde_json::Value = serde_json::from_str(log.lines().next().expect("a line")).expect("is JSON");
    assert_eq!(line["cause"], "named-upstream-unknown");
    assert_eq!(line["detail"], "no upstream is named \"red\\\"\"");
}

#[test]
fn a_reload_changes_values() {
    let scene =
        Scene::new("values = { a = '\"first\"' }\n[[route]]\nrespond = { status = 200, body = \"${a}\" }");
    let mut client = scene.client(Spoken::Http1);
    assert_eq!(client.asks_for(&get("/")).body, "first");
    let text = "workers = 2\nvalues = { a = '\"second\"' }\n[[route]]\nrespond = { status = 200, body = \"${a}\" }\n\
                [[listen]]\naddress = \"127.0.0.1:0\"\n";
    scene.running().reload(read(text)).expect("is valid");
    for spoken in BOTH {
        assert_eq!(scene.answer(spoken, &get("/")).body, "second", "{spoken:?}");
    }
}

/// Values of a listener replace those of the top level, and values of a route come before both. A value keeps its meaning
/// of the values that it asks for.
#[test]
fn each_listener_has_its_values() {
    let scene = Scene::new(
        r#"
[values]
site = '"public"'
shown = '"<" + values.site + ">"'

[[listen]]
address = "127.0.0.1:0"
values = { site = 'request.query["site"] ?? "internal"' }

[[route]]
respond = { status = 200, body = "${site} ${shown}" }

[[route]]
path = "/when"
when = 'values.site == "internal"'
respond = { status = 204 }

[[route]]
path = "/own"
values = { site = '"own"' }
respond = { status = 200, body = "${site}" }
"#,
    );
    for (listener, target, status, body) in [
        (0, "/", 200, "internal <public>"),
        (0, "/?site=x", 200, "x <public>"),
        (0, "/when", 204, ""),
        (0, "/when?site=x", 200, "x <public>"),
        (0, "/own", 200, "own"),
        (1, "/?site=x", 200, "public <public>"),
        (1, "/when", 200, "public <public>"),
        (1, "/own", 200, "own"),
    ] {
        let stream = TcpStream::connect(scene.running().addresses()[listener]).expect("it listens");
        let mut client = SceneClient::One(Http1Peer::new("client", stream));
        let got = client.asks_for(&get(target));
        assert_eq!((got.status, got.body.as_str()), (status, body), "{listener} {target}");
    }
}

/// Each value of a request is what it was before, however long the request takes and wherever it is used.
#[test]
fn the_time_of_a_request_stands_still() {
    let routes = "values = { now = 'time', shown = 'values.now == time' }\n[[route]]\nupstream = \"app\"\n\
                  request_headers = { set = { X-Now = \"${now}\" } }\n\
                  response_headers = { set = { X-Now = \"${now}\", X-Shown = \"${shown}\" } }\n\
                  [upstream.app]\nservers = [\"http://{0}\"]\n";
    for spoken in BOTH {
        let scene = Scene::new(routes);
        let mut client = scene.client(spoken).asking(&get("/"));
        let mut server = scene.accept(0);
        let seen = server.head();
        let sent = line(&seen, "x-now").expect("it is sent").to_owned();
        // Another request proves that the proxy's clock has gone on.
        loop {
            let mut other = scene.client(spoken).asking(&get("/"));
            let mut peer = scene.accept(0);
            let now = line(&peer.head(), "x-now").expect("it is sent").to_owned();
            peer.sends(OK);
            other.gets();
            if now != sent {
                break;
            }
        }
        server.sends(OK);
        let got = client.gets();
        assert_eq!(got.field("x-now"), Some(sent.as_str()), "{spoken:?}");
        assert_eq!(got.field("x-shown"), Some("true"), "{spoken:?}");
    }
}

/// Returns the index of the server that gets a request.
fn server_of(scene: &Scene, spoken: Spoken, asked: &BodylessRequest<'_>) -> usize {
    let mut client = scene.client(spoken).asking(asked);
    let patience = Patience::new();
    loop {
        for server in 0..2 {
            if let Some(mut peer) = scene.try_accept(server) {
                peer.head();
                peer.sends(OK.replace("Content-Length", "Connection: close\r\nContent-Length"));
                client.gets();
                return server;
            }
        }
        patience.wait("a server is asked");
    }
}

#[test]
fn clients_stay_with_the_server_of_their_value() {
    const TOP: &str = "values = { tenant = 'request.headers[\"x-tenant\"] ?? \"none\"' }\n[[route]]\n";
    const APP: &str = "\n[upstream.app]\nservers = [\"http://{0}\", \"http://{1}\"]\n";
    for rest in [
        format!("upstream = \"app\"{APP}sticky = {{ by = \"${{tenant}}\" }}\n"),
        format!(
            "upstream = \"app\"{APP}balance = \"consistent-hash\"\nhash_key = \"${{tenant}}\"\nload_bound = \"off\"\n"
        ),
        "split = { one = 1, two = 1 }\nsticky = { by = \"${tenant}\" }\n\
         [upstream.one]\nservers = [\"http://{0}\"]\n[upstream.two]\nservers = [\"http://{1}\"]\n"
            .to_owned(),
        // The route's own value counts, also for the upstream's sessions.
        format!(
            "values = {{ tenant = 'request.query[\"tenant\"] ?? \"\"' }}\nupstream = \"app\"{APP}\
             sticky = {{ by = \"${{tenant}}\" }}\n"
        ),
    ] {
        let scene = Scene::new(&format!("{TOP}{rest}"));
        let tenants: Vec<(String, String)> =
            (0..16).map(|tenant| (format!("/?tenant={tenant}"), format!("x-tenant: {tenant}\n"))).collect();
        let servers = |spoken| -> Vec<usize> {
            tenants.iter().map(|(target, fields)| server_of(&scene, spoken, &with(target, fields))).collect()
        };
        let first = servers(Spoken::Http1);
        assert!(first.contains(&0) && first.contains(&1), "{rest}: {first:?}");
        assert_eq!(servers(Spoken::Http2), first, "{rest}");
    }
}
