//! Explanations of requests, as text and JSON.

use super::*;

const FILE: &str = r#"
[[listen]]
address = "127.0.0.1:80"
[[listen]]
address = "127.0.0.1:443"
name = "secure"
tls = { self_signed = true }
[[route]]
upstream = "app"
[[route]]
host = "a.example"
path = "/api"
methods = "POST"
upstream = "app"
[[route]]
name = "readers"
host = "a.example"
path = "/api"
headers = { X-Tenant = true }
cookie = { canary = "1" }
rewrite = { path = "/v1" }
split = { app = 3, canary = 1 }
forward_auth = { upstream = "canary", path = "/verify" }
mirror = { upstream = "app", share = "0.5%" }
deny = ["192.0.2.0/24"]
rate_limit = { rate = "5/s" }
concurrency = [{ max = 20, queue = 50, wait = "2s" }, { max = 100, by = "host" }]
cors = { origins = "https://*.a.example" }
[[route]]
name = "moved"
maintenance = { allow = ["127.0.0.1"] }
listener = "secure"
path = "~ /old/(.*)"
redirect = { to = "https://$host/new/$1" }
[[route]]
host = "f.example"
files = { root = "/usr", else = { upstream = "app" } }
[upstream.app]
servers = ["http://127.0.0.1:9000", "http://127.0.0.1:9001"]
[upstream.canary]
servers = ["http://127.0.0.1:9002"]
"#;

fn asked(method: &str, url: &str) -> RouteOrder {
    RouteOrder { url: url.to_owned(), method: method.to_owned(), ..RouteOrder::default() }
}

fn text(asked: &RouteOrder) -> (String, bool) {
    let said = explain_route(&config::parse(FILE, "f").unwrap(), asked).unwrap();
    (said.text, said.is_routed)
}

#[test]
fn the_order_of_routes_is_explained() {
    let expected = "\
GET http://a.example/api/x from 127.0.0.1 at listener 127.0.0.1:80

   1. moved (* ~ /old/(.*)): no: expects listener secure, found 127.0.0.1:80; expects path ~ /old/(.*), found /api/x
   2. a.example/api (a.example /api): no: expects method POST, found GET
   3. readers (a.example /api): no: expects header X-Tenant is present, found none; expects cookie canary = 1, found none
   4. f.example/ (f.example /): no: expects host f.example, found a.example
   5. /: taken

The route is /: upstream app, round-robin over 2 servers.
";
    assert_eq!(text(&asked("GET", "http://a.example/api/x")), (expected.to_owned(), true));
}

#[test]
fn files_first_else_a_server() {
    let (said, _) = text(&asked("GET", "http://f.example/x"));
    assert!(said.ends_with("The route is f.example/: files beneath /usr, else upstream app.\n"), "{said}");
    let (said, _) = text(&asked("POST", "http://f.example/x"));
    let expected = "The route is f.example/: upstream app, because files are only for GET and HEAD.\n";
    assert!(said.ends_with(expected), "{said}");
    let file = FILE.replace("else = { upstream = \"app\" }", "else = { upstream = \"php\" }")
        + "[upstream.php]\nservers = [\"fcgi://127.0.0.1:9003\"]\nfastcgi = { root = \"/usr\" }\n";
    let config = config::parse(&file, "f").unwrap();
    let said = explain_route(&config, &asked("GET", "http://f.example/x")).unwrap().text;
    assert!(said.ends_with(": files beneath /usr without *.php, else upstream php.\n"), "{said}");
}

#[test]
fn an_explanation_names_the_result_of_a_request() {
    let (said, _) = text(&asked("POST", "http://a.example/api/x"));
    assert!(said.contains("3. readers (a.example /api): no: expects header"), "{said}");
    assert!(
        said.contains(
            "   5. /: also matches, but comes after a.example/api: the host a.example comes before *\n"
        ),
        "{said}"
    );
    let tenant = ("x-tenant".to_owned(), "t".to_owned());
    let canary = ("Cookie".to_owned(), "a=b; canary=1".to_owned());
    let client = "192.0.2.1".parse().unwrap();
    let (said, is_routed) = text(&RouteOrder {
        headers: vec![tenant, canary],
        client,
        ..asked("GET", "http://a.example:8080/api/x?y")
    });
    let verdict = "\
The route is readers: split between upstreams: app 3 of 4, canary 1 of 4.
This client is denied: 403.
Pages of these origins can read the response: https://*.a.example.
Rate limit: 5 requests in 1s, 5 at once; beyond it 429.
Concurrency: 20 requests under way for each key, and 50 wait for up to 2s; beyond it 429.
Concurrency: 100 requests under way for each key; beyond it 429.
Upstream canary authorizes it (/verify); a response other than 2xx goes to the client.
Upstream app gets copies of 0.5% of such requests.
The server gets /v1/x?y.
";
    assert!(is_routed && said.ends_with(verdict), "{said}");
    let preflight = [
        ("x-tenant", "t"),
        ("cookie", "canary=1"),
        ("Origin", "https://b.a.example"),
        ("Access-Control-Request-Method", "PUT"),
    ];
    let (said, _) = text(&RouteOrder {
        headers: preflight.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        ..asked("OPTIONS", "http://a.example/api")
    });
    assert!(said.ends_with("It is a preflight (CORS): the proxy answers it with 204.\n"), "{said}");
    let (said, _) = text(&asked("GET", "https://b.example/old/a%20b"));
    assert!(said.ends_with("The route is moved: 308 to https://b.example/new/a%20b.\n"), "{said}");
    let query = asked("GET", "https://b.example/old/a");
    let (said, _) = text(&RouteOrder { client, ..query });
    assert!(said.ends_with("It is under maintenance: 503, retry after 5m.\n"), "{said}");
    // With the other reading of the path, it would take another route.
    let (said, is_routed) = text(&asked("POST", "http://a.example/x/../api"));
    assert!(!is_routed && said.contains("rejected with 400"), "{said}");
    let by_name = RouteOrder { listener: Some("secure".to_owned()), ..asked("GET", "/old/x") };
    assert!(text(&by_name).0.contains("The route is moved"));
}

/// As in the proxy, a request is redirected after its route was found.
#[test]
fn a_redirect_to_https_spares_routes_for_plain_http() {
    let plain = "[[listen]]\nname = \"plain\"\naddress = \"127.0.0.1:80\"\nredirect_to_https = true\n";
    let routes = "[[listen]]\naddress = \"127.0.0.1:443\"\ntls = { self_signed = true }\n\
                  [[route]]\npath = \"/probe\"\nlistener = \"plain\"\nupstream = \"app\"\n\
                  [[route]]\nhost = \"a.example\"\nupstream = \"app\"\n\
                  [upstream.app]\nservers = [\"http://127.0.0.1:9000\"]\n";
    let redirects = ", but its listener redirects to the https URL: 308.";
    let behind = "trusted_proxies = [\"127.0.0.1\"]\n";
    for (top, url, expected) in [
        ("", "http://a.example/probe", "The route is /probe: upstream app"),
        ("", "http://b.example/probe", "The route is /probe: upstream app"),
        ("", "http://a.example/", redirects),
        ("", "http://b.example/", "No route matches: 404."),
        ("", "http://a.example/x/../probe", "It is rejected with 400"),
        ("", "https://a.example/", redirects),
        (behind, "https://a.example/", "The route is a.example/: upstream app"),
        (behind, "http://a.example/", redirects),
    ] {
        let config = config::parse(&format!("{top}{plain}{routes}"), "f").expect("is valid");
        let order = RouteOrder { listener: Some("plain".to_owned()), ..asked("GET", url) };
        let explained = explain_route(&config, &order).expect("is a request");
        assert!(explained.text.contains(expected), "{top}{url}: {}", explained.text);
        let says = |note: &Value| note.as_str().is_some_and(|note| note.contains(redirects));
        let notes = explained.json["notes"].as_array().expect("a list");
        assert_eq!(notes.iter().any(says), expected == redirects, "{top}{url}");
        let is_redirect = !explained.json["action"]["redirect_to_https"].is_null();
        assert_eq!(is_redirect, expected == redirects, "{top}{url}");
    }
}

#[test]
fn values_are_shown() {
    let file = "values = { app = 'request.headers[\"x-app\"] ?? \"app\"', none = 'request.headers[\"x-none\"]' }\n\
                [[listen]]\naddress = \"127.0.0.1:80\"\n\
                values = { app = '\"of\" + request.path' }\nname = \"own\"\n\
                [[listen]]\naddress = \"127.0.0.1:81\"\n\
                [[route]]\nupstream = \"${app}\"\nvalues = { shown = 'values.app + \"!\"' }\n\
                [[route]]\npath = \"/files\"\nfiles = { root = \"/srv/${app}\" }\n\
                [[route]]\npath = \"/code\"\nrespond = { status = \"${app}\", body = \"${app}\" }\n\
                [upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
    let config = config::parse(file, "f").expect("is valid");
    for (listener, path, field, action, values) in [
        (
            "127.0.0.1:81",
            "/",
            None,
            "upstream app, which its values name.",
            "app = \"app\"\n  none = absent\n  shown = \"app!\"",
        ),
        ("127.0.0.1:81", "/", Some("x"), "503, because its values name no upstream: \"x\".", "app = \"x\""),
        ("127.0.0.1:81", "/files/a", Some("x"), "files beneath /srv/x.", "app = \"x\"\n  none = absent"),
        (
            "127.0.0.1:81",
            "/files/a",
            Some(".."),
            "404, because its values name no folder below /srv.",
            "app = \"..\"",
        ),
        ("127.0.0.1:81", "/code", Some("418"), "418, 3 bytes of text/plain; charset=utf-8.", "app = \"418\""),
        ("127.0.0.1:81", "/code", Some("304"), "304, 0 bytes of text/plain; charset=utf-8.", "app = \"304\""),
        ("127.0.0.1:81", "/code", Some("a"), "500, because its values give no status: \"a\".", "app = \"a\""),
        ("own", "/p", Some("x"), "503, because its values name no upstream: \"of/p\".", "app = \"of/p\""),
    ] {
        let headers = field.map(|field| ("X-App".to_owned(), field.to_owned())).into_iter().collect();
        let order = RouteOrder { listener: Some(listener.to_owned()), headers, ..asked("GET", path) };
        let explained = explain_route(&config, &order).expect("is a request").text;
        assert!(explained.contains(&format!(": {action}\n")), "{explained}");
        assert!(explained.contains(&format!("Its values:\n  {values}")), "{explained}");
    }
}

#[test]
fn as_json() {
    let config = config::parse(FILE, "f").unwrap();
    let value = explain_route(&config, &asked("GET", "https://b.example/old/x")).unwrap().json;
    assert_eq!((&value["route"], &value["listener"]), (&json!("moved"), &json!("secure")));
    let redirect = json!({ "redirect": { "status": 308, "location": "https://b.example/new/x" } });
    assert_eq!(value["action"], redirect);
    let overtaken = json!({
        "route": "/",
        "for": "* /",
        "outcome": "overtaken",
        "by": "moved",
        "because": "that one is for this listener, this one for all",
    });
    assert_eq!(value["order"].as_array().unwrap().last(), Some(&overtaken));
}

#[test]
fn values_of_later_stages_say_when_they_are_known() {
    let file = FILE.replace(
        "[upstream.app]",
        r#"[[route]]
host = "v.example"
upstream = "${who}"
rewrite = { path = "/of/${who}" }
response_headers = { set = { X-Node = "${node}" } }
[[route]]
host = "v.example"
path = "/gone"
redirect = { to = "https://${who}.example/" }
[[route]]
host = "v.example"
path = "/said"
respond = { status = 200, body = "${who}" }
[values]
first = 'request.path.split("/")[1]'
node = 'server.name ?? ""'
who = 'client.user ?? "app"'
code = 'response.status'
[upstream.app]"#,
    );
    let said =
        |url: &str| explain_route(&config::parse(&file, "f").unwrap(), &asked("GET", url)).unwrap().text;
    let text = said("http://v.example/x");
    for line in [
        "\n  first = \"x\"",
        "\n  who is known after authentication: client.user ?? \"app\"",
        "\n  node is known once a server is chosen: server.name ?? \"\"",
        "\n  code is known after the response: response.status",
        "an upstream that is known after authentication: ${who}",
        "The server gets a path that is known after authentication: /of/${who}",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = said("http://v.example/gone");
    assert!(text.contains("a URL that is known after authentication: https://${who}.example/"), "{text}");
    let text = said("http://v.example/said");
    assert!(text.contains("a response that is known after authentication, of text/plain"), "{text}");
}

#[test]
fn what_is_no_request() {
    let config = config::parse(FILE, "f").unwrap();
    for (url, expected) in [
        ("a.example/x", "has no host"),
        ("http:///x", "has no host"),
        ("ftp://a/x", "has an unsupported scheme"),
        ("http://a:x/", "has an invalid port"),
        ("/a b", "has characters that must be percent-encoded (%XX)"),
    ] {
        let error = explain_route(&config, &asked("GET", url)).err().unwrap();
        assert!(error.contains(expected), "{error}");
    }
    let unknown = RouteOrder { listener: Some("x".to_owned()), ..asked("GET", "/") };
    let error = explain_route(&config, &unknown).err();
    assert_eq!(error.as_deref(), Some("no listener is named \"x\"; there are 127.0.0.1:80, secure"));
}
