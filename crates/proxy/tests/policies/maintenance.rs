//! Routes under maintenance, by the file. Tests of the program cover switches by command.

use testkit::scene::{BOTH, BodylessRequest, Scene, get, read};

const ROUTES: &str = r#"
trusted_proxies = ["127.0.0.1"]
error_pages = { 503 = "{dir}/503.html" }
[cache]
memory = "16MiB"
[[route]]
upstream = "app"
cache = {}
[[route]]
path = "/down"
upstream = "app"
cache = {}
auth = { users = "{dir}/users" }
rate_limit = { rate = "1/h" }
maintenance = true
[[route]]
path = "/page"
redirect = { to = "/elsewhere" }
maintenance = { page = "{dir}/page.json", retry_after = "10m", allow = ["192.0.2.0/24"] }
response_headers = { set = { X-Own = "$status" } }
[[route]]
path = "/prepared"
respond = { status = 200, body = "served" }
maintenance = { on = false, retry_after = "1h" }
[[route]]
path = "/never"
respond = { status = 200, body = "served" }
maintenance = false
[upstream.app]
servers = ["http://{0}"]
"#;

const FILES: [(&str, &str); 3] = [
    ("503.html", "<p>later</p>"),
    ("page.json", "{\"down\":true}"),
    ("users", "ann:$apr1$abcdefgh$aaaaaaaaaaaaaaaaaaaaa0\n"),
];

#[test]
fn clients_get_503_and_when_to_come_again() {
    let scene = Scene::with_files(&FILES, ROUTES);
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        // Neither password nor rate is checked.
        for _ in 0..2 {
            let got = client.asks_for(&get("/down"));
            let told = (got.status, got.field("retry-after"), got.body.as_str());
            assert_eq!(told, (503, Some("300"), "<p>later</p>"), "{spoken:?}");
        }
        let post = BodylessRequest { method: "POST", fields: "content-length: 0\n", ..get("/page") };
        for asked in [get("/page"), post] {
            let got = client.asks_for(&asked);
            let told = (got.status, got.field("retry-after"), got.body.as_str());
            assert_eq!(told, (503, Some("600"), "{\"down\":true}"), "{spoken:?}");
            let fields = (got.field("content-type"), got.field("x-own"));
            assert_eq!(fields, (Some("application/json"), Some("503")), "{spoken:?}");
        }
        let asked = BodylessRequest { fields: "x-forwarded-for: 192.0.2.7\n", ..get("/page") };
        assert_eq!(client.asks_for(&asked).status, 308, "{spoken:?}");
        let grpc =
            BodylessRequest { method: "POST", fields: "content-type: application/grpc\n", ..get("/page") };
        let got = client.asks_for(&grpc);
        assert_eq!((got.status, got.field("grpc-status")), (200, Some("14")), "{spoken:?}");
        for target in ["/prepared", "/never"] {
            assert_eq!(client.asks_for(&get(target)).body, "served", "{spoken:?} {target}");
        }
    }
    assert!(scene.try_accept(0).is_none());
}

/// Requests and connections that exist when maintenance begins continue.
#[test]
fn what_is_under_way_is_finished() {
    let routes = |maintenance: bool| {
        format!(
            "[[route]]\nupstream = \"app\"\nmaintenance = {maintenance}\n[upstream.app]\nservers = [\"http://{{0}}\"]\n"
        )
    };
    for spoken in BOTH {
        let scene = Scene::new(&routes(false));
        let reload = |maintenance| {
            let routes = routes(maintenance).replace("{0}", &scene.server_address(0));
            let text = format!("workers = 2\n{routes}[[listen]]\naddress = \"127.0.0.1:0\"\n");
            scene.running().reload(read(&text)).expect("is valid");
        };
        let mut client = scene.client(spoken).asking(&get("/a"));
        let mut server = scene.accept(0).after_head();
        reload(true);
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.gets().body, "ok", "{spoken:?}");
        assert_eq!(client.asks_for(&get("/a")).status, 503, "{spoken:?}");
        reload(false);
        client.asks(&get("/b"));
        assert!(server.head().starts_with("GET /b "));
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.gets().body, "ok", "{spoken:?}");
    }
}
