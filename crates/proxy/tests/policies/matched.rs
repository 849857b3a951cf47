//! The choice of a route, and of one of its upstreams.

use serde_json::{Value, json};
use testkit::admin;
use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};
use testkit::text::OK;
use testkit::wait::Patience;

/// Routes that answer with their name.
const ROUTES: &str = r#"
trusted_proxies = ["127.0.0.1"]

[[route]]
respond = { status = 200, body = "any" }

[[route]]
host = "*.example.com"
respond = { status = 200, body = "below" }

[[route]]
host = "~ shop-\\d+"
respond = { status = 200, body = "pattern" }

[[route]]
path = "/api"
respond = { status = 200, body = "api" }

[[route]]
path = "= /api/one"
respond = { status = 200, body = "one" }

[[route]]
path = "/api"
methods = ["POST", "PUT"]
respond = { status = 200, body = "written" }

[[route]]
path = "/api"
headers = { "X-Beta" = "1" }
respond = { status = 200, body = "beta" }

[[route]]
path = "/api"
query = { page = "~ \\d+" }
respond = { status = 200, body = "page" }

[[route]]
path = "/api"
clients = ["192.0.2.0/24"]
respond = { status = 200, body = "inside" }
"#;

#[test]
fn every_condition_counts() {
    let scene = Scene::new(ROUTES);
    let request = |method, host, target, fields| BodylessRequest { method, host, target, fields };
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (asked, taken) in [
            (get("/"), "any"),
            (request("GET", "a.b.EXAMPLE.com:81", "/", ""), "below"),
            (request("GET", "shop-12", "/", ""), "pattern"),
            (request("GET", "shop-x", "/", ""), "any"),
            (get("/%61pi/x"), "api"),
            (get("/api/one"), "one"),
            (request("PUT", "test", "/api", ""), "written"),
            (request("GET", "test", "/api", "x-beta: 1\n"), "beta"),
            (request("GET", "test", "/api", "x-beta: 2\n"), "api"),
            (get("/api?a&page=1%32"), "page"),
            (get("/api?page=x"), "api"),
            (request("GET", "test", "/api", "x-forwarded-for: 203.0.113.9, 192.0.2.7\n"), "inside"),
            (request("GET", "test", "/api", "x-forwarded-for: 192.0.2.7, 203.0.113.9\n"), "api"),
            (request("GET", "test", "/api", "forwarded: for=192.0.2.7\n"), "inside"),
        ] {
            let got = client.asks_for(&asked);
            assert_eq!((got.status, got.body.as_str()), (200, taken), "{spoken:?} {asked:?}");
        }
        assert_eq!(scene.answer(spoken, &get("/api/../x")).status, 400);
    }
}

/// Routes with conditions; each answers with its name.
const CONDITIONS: &str = r#"
trusted_proxies = ["127.0.0.1"]
admin = "{dir}/admin"

[[route]]
name = "any"
respond = { status = 200, body = "any" }

[[route]]
name = "write"
when = '!(request.method in ["GET", "HEAD"])'
respond = { status = 200, body = "write" }

[[route]]
name = "bot"
when = '(request.headers["user-agent"] ?? "").lowerAscii().matches("bot|spider")'
respond = { status = 200, body = "bot" }

[[route]]
name = "office"
when = 'client.address in "192.0.2.0/24" && request.cookies["preview"] == "1"'
respond = { status = 200, body = "office" }

[[route]]
name = "admin"
when = 'request.path.startsWith("/admin") || request.query["role"] == "admin user"'
respond = { status = 200, body = "admin" }

[[route]]
name = "secure"
path = "/secure"
when = 'request.scheme == "https" && request.host == "a.example"'
respond = { status = 200, body = "secure" }
"#;

#[test]
fn conditions_of_routes_hold_over_each_version() {
    let scene = Scene::new(CONDITIONS);
    let request = |target, fields| BodylessRequest { target, fields, ..get("/") };
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (asked, taken) in [
            (get("/"), "any"),
            (BodylessRequest { method: "DELETE", ..get("/") }, "write"),
            (request("/", "user-agent: A Bot/1.0\n"), "bot"),
            (request("/", "x-forwarded-for: 192.0.2.7\ncookie: a=b; preview=1\n"), "office"),
            (request("/", "x-forwarded-for: 192.0.2.7\ncookie: preview=2\n"), "any"),
            (get("/%61dmin/x"), "admin"),
            (get("//admin"), "admin"),
            (get("/?role=admin+user"), "admin"),
            (get("/secure"), "any"),
            (
                BodylessRequest { host: "A.example:81", ..request("/secure", "x-forwarded-proto: https\n") },
                "secure",
            ),
        ] {
            let got = client.asks_for(&asked);
            assert_eq!((got.status, got.body.as_str()), (200, taken), "{spoken:?} {asked:?}");
        }
        // A server that resolves dots would see a path for which another route is meant.
        assert_eq!(scene.answer(spoken, &get("/x/../admin")).status, 400);
    }
}

#[test]
fn a_condition_is_explained_part_by_part_and_a_reload_replaces_it() {
    let scene = Scene::new(CONDITIONS);
    let explain = |url: &str| {
        let order = json!({ "method": "GET", "url": url });
        let (status, told) = admin::asks(&scene.file("admin"), "POST", "/routes/explain", &order.to_string());
        assert_eq!(status, 200, "{told}");
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        told["text"].as_str().expect("a text").to_owned()
    };
    let text = explain("http://test/admin");
    for expected in [
        "office (* /): no: expects when client.address in \"192.0.2.0/24\" && request.cookies[\"preview\"] == \"1\", \
         found client.address 127.0.0.1\n",
        "any (* /): also matches, but comes after admin: that one has a condition (when)\n",
        "The route is admin",
        "\n  request.path.startsWith(\"/admin\") || request.query[\"role\"] == \"admin user\": true\n",
        "\n      request.path: \"/admin\"\n",
        "request.query[\"role\"] == \"admin user\": not evaluated\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_eq!(scene.answer(Spoken::Http1, &get("/admin")).body, "admin");
    let text = CONDITIONS.replace("\"/admin\"", "\"/staff\"").replace("{dir}/admin", "{dir}/other");
    let text = text.replace("{dir}", &scene.file("").display().to_string());
    let text = format!("workers = 2\n{text}\n[[listen]]\naddress = \"127.0.0.1:0\"\n");
    scene.running().reload(testkit::scene::read(&text)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scene.answer(Spoken::Http1, &get("/admin")).body, "any");
    assert_eq!(scene.answer(Spoken::Http1, &get("/staff")).body, "admin");
}

/// The admin API names the route that a request takes.
#[test]
fn the_admin_api_says_which_route_a_request_takes() {
    let named = ["any", "below", "pattern", "api", "one", "written", "beta", "page", "inside"].iter().fold(
        ROUTES.to_owned(),
        |text, name| {
            let body = format!("body = \"{name}\" }}\n");
            text.replace(&body, &format!("{body}name = \"{name}\"\n"))
        },
    );
    let scene = Scene::new(&format!("admin = \"{{dir}}/admin\"\n{named}"));
    let explain =
        |order: &Value| admin::asks(&scene.file("admin"), "POST", "/routes/explain", &order.to_string());
    for (method, host, target, field) in [
        ("GET", "test", "/", None),
        ("GET", "a.b.example.com", "/", None),
        ("GET", "shop-12", "/", None),
        ("GET", "test", "/api/x", None),
        ("GET", "test", "/api/one", None),
        ("PUT", "test", "/api", None),
        ("GET", "test", "/api", Some(("X-Beta", "1"))),
        ("GET", "test", "/api?page=12", None),
        ("GET", "test", "/api?page=x", None),
    ] {
        let fields = field.map_or(String::new(), |(name, value)| format!("{name}: {value}\n").to_lowercase());
        let taken = scene
            .client(Spoken::Http1)
            .asks_for(&BodylessRequest { method, host, target, fields: &fields })
            .body;
        let headers: Vec<_> = field.into_iter().collect();
        let url = format!("http://{host}{target}");
        let order = json!({ "method": method, "url": url, "headers": headers });
        let (status, told) = explain(&order);
        assert_eq!(status, 200, "{order}: {told}");
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        assert_eq!(told["explained"]["route"], json!(taken), "{order}");
        assert!(told["text"].as_str().is_some_and(|text| text.contains(&taken)), "{told}");
    }
    for (order, what) in [
        (json!("/"), "the body is invalid"),
        (json!({ "adress": "x" }), "the body is invalid"),
        (json!({ "url": "ftp://test/" }), "has an unsupported scheme"),
        (json!({ "url": "/", "listener": "none" }), "no listener is named"),
    ] {
        let (status, told) = explain(&order);
        assert!(status == 400 && told.contains(what), "{order}: {status} {told}");
    }
}

/// gRPC services, and single methods.
const SERVICES: &str = r#"
[[route]]
path = "/shop.Cart"
respond = { status = 200, body = "cart" }

[[route]]
path = "= /shop.Cart/Add"
respond = { status = 200, body = "add" }

[[route]]
path = "~ /shop\\.[^/]+/(Get|List).*"
respond = { status = 200, body = "read" }

[[route]]
headers = { "Content-Type" = "~ application/grpc.*" }
respond = { status = 200, body = "calls" }
"#;

#[test]
fn services_of_grpc_and_their_methods_have_routes() {
    let scene = Scene::new(SERVICES);
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (target, taken) in [
            ("/shop.Cart/Remove", "cart"),
            ("/shop.Cart/Add", "add"),
            ("/shop.Cart/AddAll", "cart"),
            ("/shop.Carts/Add", "calls"),
            ("/shop.Cart/ListItems", "read"),
            ("/shop.v2.Orders/GetOrder", "read"),
            ("/grpc.health.v1.Health/Check", "calls"),
        ] {
            let fields = "content-type: application/grpc+proto\nte: trailers\n";
            let got = client.asks_for(&BodylessRequest { method: "POST", host: "test", target, fields });
            assert_eq!((got.status, got.body.as_str()), (200, taken), "{target} of {spoken:?}");
        }
    }
}

#[test]
fn requests_are_shared_out_by_weight() {
    let scene = Scene::new(
        r#"
[[route]]
split = { app = 1, other = 1, none = 0 }
[upstream.app]
servers = ["http://{0}"]
[upstream.other]
servers = ["http://{1}"]
[upstream.none]
servers = ["http://{2}"]
"#,
    );
    // A new client each, so that all requests are under way at once and every server accepts its connections.
    const REQUESTS: usize = 64;
    let mut clients: Vec<_> = (0..REQUESTS).map(|_| scene.client(testkit::scene::Spoken::Http1)).collect();
    for client in &mut clients {
        client.asks(&get("/"));
    }
    let mut counts = [0; 3];
    let mut taken = Vec::new();
    let patience = Patience::new();
    while counts.iter().sum::<usize>() < REQUESTS {
        for (server, count) in counts.iter_mut().enumerate() {
            if let Some(peer) = scene.try_accept(server) {
                // Not answered yet, because its connection would serve another request.
                taken.push(peer);
                *count += 1;
            }
        }
        patience.wait("not all requests reach a server");
    }
    assert_eq!(counts[2], 0);
    // A deviation of seven sigma: once in 10¹¹ runs.
    assert!(counts[0].abs_diff(REQUESTS / 2) <= 28, "{counts:?}");
    for peer in &mut taken {
        peer.head();
        peer.sends(OK);
    }
    for client in &mut clients {
        assert_eq!(client.gets().body, "ok");
    }
}
