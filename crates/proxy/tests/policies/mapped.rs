//! Maps in conditions: look-ups, and changes while the proxy runs.

use serde_json::{Value, json};
use testkit::admin;
use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};

const ROUTES: &str = r#"
trusted_proxies = ["127.0.0.1"]
admin = "{dir}/admin"

[map.tenant]
key = "request.host"
kind = "suffix"
default = "www"
entries = { "acme.example" = "acme", "*.shops.example" = "shop" }

[map.banned]
key = "client.address"
kind = "network"
entries = ["192.0.2.0/24"]

[map.wait]
key = 'request.headers["x-plan"]'
entries = { "free" = 3 }

[[route]]
respond = { status = 200, body = "www" }

[[route]]
when = 'map.tenant == "acme"'
respond = { status = 200, body = "acme" }

[[route]]
when = 'map.tenant == "shop" && !map.banned'
respond = { status = 200, body = "shop" }

[[route]]
path = "/api"
when = "map.banned"
respond = { status = 403, body = "banned" }

[[route]]
path = "/wait"
when = "(map.wait ?? 0) >= 3"
respond = { status = 200, body = "later" }
"#;

fn with<'a>(target: &'a str, host: &'a str, fields: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { host, fields, ..get(target) }
}

/// Asks the admin API about maps. Returns the status and the response.
fn ask(scene: &Scene, method: &str, place: &str, order: &Value) -> (u16, Value) {
    let order = if order.is_null() { String::new() } else { order.to_string() };
    let (status, told) = admin::asks(&scene.file("admin"), method, place, &order);
    (status, serde_json::from_str(&told).expect("it is JSON"))
}

#[test]
fn maps_decide_over_each_version() {
    let scene = Scene::new(ROUTES);
    for spoken in BOTH {
        for (request, status, body) in [
            (get("/"), 200, "www"),
            (with("/", "ACME.example", ""), 200, "acme"),
            (with("/", "x.acme.example:81", ""), 200, "acme"),
            (with("/", "a.shops.example", ""), 200, "shop"),
            (with("/", "shops.example", ""), 200, "www"),
            (with("/", "a.shops.example", "x-forwarded-for: 192.0.2.7\n"), 200, "www"),
            (with("/api", "test", "x-forwarded-for: 192.0.2.7\n"), 403, "banned"),
            (with("/api", "test", "x-forwarded-for: 192.0.3.7\n"), 200, "www"),
            (with("/wait", "test", "x-plan: free\n"), 200, "later"),
            (with("/wait", "test", ""), 200, "www"),
        ] {
            let got = scene.answer(spoken, &request);
            assert_eq!((got.status, got.body.as_str()), (status, body), "{spoken:?} {request:?}");
        }
    }
}

#[test]
fn changes_apply_to_the_next_request_of_every_connection() {
    let scene = Scene::new(ROUTES);
    let request = with("/api", "test", "x-forwarded-for: 198.51.100.7\n");
    let mut clients: Vec<_> = BOTH.iter().map(|spoken| scene.client(*spoken)).collect();
    let mut expect = |status: u16, when: &str| {
        for client in &mut clients {
            assert_eq!(client.asks_for(&request).status, status, "{when}");
        }
    };
    expect(200, "at first");
    let change = |order: Value| ask(&scene, "POST", "/maps/banned/change", &order);
    let (status, told) = change(json!({ "set": [{ "key": "198.51.100.0/24", "ends_in_seconds": 3600 }] }));
    assert_eq!((status, told["changes"].as_u64()), (200, Some(1)), "{told}");
    expect(403, "after a change");
    assert_eq!(change(json!({ "delete": ["198.51.100.0/24"] })).0, 200);
    expect(200, "after a deletion");
    let (status, told) =
        admin::asks(&scene.file("admin"), "POST", "/maps/banned/replace", "# list\n198.51.100.7\n");
    assert_eq!(status, 200, "{told}");
    expect(403, "after a replacement");
    assert_eq!(ask(&scene, "POST", "/maps/banned/reset", &Value::Null).0, 200);
    expect(200, "after a reset");
}

#[test]
fn the_status_counts_hits_and_unused_entries() {
    let scene = Scene::new(ROUTES);
    scene.answer(Spoken::Http1, &with("/", "acme.example", ""));
    let maps = || ask(&scene, "GET", "/maps", &Value::Null).1;
    let tenant = maps()[0].clone();
    assert_eq!(
        (&tenant["name"], &tenant["kind"], &tenant["values"]),
        (&json!("tenant"), &json!("suffix"), &json!("text"))
    );
    assert_eq!((&tenant["entries"], &tenant["unused"]), (&json!(2), &json!(1)), "{tenant}");
    assert!(tenant["hits"].as_u64() >= Some(1), "{tenant}");
    // An explanation is no request.
    let explained =
        ask(&scene, "POST", "/routes/explain", &json!({ "method": "GET", "url": "http://a.shops.example/" }));
    assert!(
        explained.1["text"].as_str().is_some_and(|text| text.contains("map.tenant: \"shop\"")),
        "{explained:?}"
    );
    assert_eq!(maps()[0], tenant);
    let (_, entries) = ask(&scene, "GET", "/maps/tenant", &Value::Null);
    let used = |key: &str| {
        let entries = entries["entries"].as_array().expect("a list");
        entries.iter().find(|entry| entry["key"] == key).map(|entry| entry["is_used"].clone())
    };
    assert_eq!(used("acme.example"), Some(json!(true)));
    assert_eq!(used("*.shops.example"), Some(json!(false)));
    let look =
        |key: &str| ask(&scene, "POST", "/maps/tenant/lookup", &json!({ "key": key })).1["value"].clone();
    assert_eq!(look("b.acme.example"), json!("acme"));
    assert_eq!(look("other.example"), Value::Null);
}

#[test]
fn what_is_no_entry_changes_nothing() {
    let scene = Scene::new(ROUTES);
    for (place, order, code, expected) in [
        ("/maps/baned/change", json!({}), 404, "no map is named \"baned\"; did you mean \"banned\"?"),
        (
            "/maps/banned/change",
            json!({ "set": [{ "key": "10.0.0.1" }, { "key": "10.0.0.256" }] }),
            422,
            "10.0.0.256: \"10.0.0.256\" is not a network",
        ),
        (
            "/maps/banned/change",
            json!({ "set": [{ "key": "10.0.0.1", "value": "x" }] }),
            422,
            "10.0.0.1: the keys of this map have no values, but \"x\" follows a key",
        ),
        (
            "/maps/wait/change",
            json!({ "set": [{ "key": "a", "value": "b" }] }),
            422,
            "a: the value \"b\" is not an integer such as 10",
        ),
        ("/maps/tenant/change", json!({ "set": [{ "key": "a" }] }), 422, "a: the key a has no value"),
        ("/maps/banned/lookup", json!({ "key": "x" }), 422, "\"x\" is not an address, such as 192.0.2.1"),
    ] {
        let (status, told) = ask(&scene, "POST", place, &order);
        assert_eq!(status, code, "{place} {order}: {told}");
        assert!(told["error"].as_str().is_some_and(|error| error.contains(expected)), "{told}");
    }
    assert_eq!(ask(&scene, "GET", "/maps", &Value::Null).1[1]["changed"], json!(0));
}

/// A reload keeps the changes of a map whose entries it replaces.
#[test]
fn changes_outlive_a_reload() {
    let scene = Scene::new(ROUTES);
    let order = json!({ "set": [{ "key": "198.51.100.7" }] });
    assert_eq!(ask(&scene, "POST", "/maps/banned/change", &order).0, 200);
    let text = ROUTES
        .replace("192.0.2.0/24", "203.0.113.0/24")
        .replace("{dir}", &scene.file("").display().to_string());
    let text = format!("workers = 2\n{text}\n[[listen]]\naddress = \"127.0.0.1:0\"\n");
    scene.running().reload(testkit::scene::read(&text)).unwrap_or_else(|error| panic!("{error}"));
    for (address, status) in [("198.51.100.7", 403), ("203.0.113.9", 403), ("192.0.2.7", 200)] {
        let fields = format!("x-forwarded-for: {address}\n");
        assert_eq!(scene.answer(Spoken::Http1, &with("/api", "test", &fields)).status, status, "{address}");
    }
}
