//! Requests and responses of the API, as the clients of Toxiproxy expect them.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::scene::Scene;

#[test]
fn mistakes_are_told_with_their_status() {
    let scene = Scene::new();
    scene.adds("latency", "upstream", json!({}));
    let create = |body: &str| ("POST", "/proxies", body.to_owned());
    let add = |body: &str| ("POST", "/proxies/p/toxics", body.to_owned());
    let none = |method: &'static str, path: &'static str| (method, path, "{}".to_owned());
    let cases = [
        (create("{"), 400, "bad request body: "),
        (create(r#"{"name": 1}"#), 400, "bad request body: "),
        (create(r#"{"upstream": "127.0.0.1:1"}"#), 400, "missing required field: name"),
        (create(r#"{"name": "q"}"#), 400, "missing required field: upstream"),
        (create(r#"{"name": "p", "upstream": "127.0.0.1:1"}"#), 409, "proxy already exists"),
        (
            create(r#"{"name": "q", "listen": "nowhere", "upstream": "127.0.0.1:1"}"#),
            500,
            "proxy q cannot listen",
        ),
        (none("GET", "/proxies/q"), 404, "proxy not found"),
        (none("POST", "/proxies/q"), 404, "proxy not found"),
        (none("DELETE", "/proxies/q"), 404, "proxy not found"),
        (none("GET", "/proxies/q/toxics"), 404, "proxy not found"),
        (none("POST", "/proxies/q/toxics"), 404, "proxy not found"),
        (add("["), 400, "bad request body: "),
        (add(r#"{"type": "noise"}"#), 400, "invalid toxic type"),
        (add(r#"{"type": "latency", "stream": "up"}"#), 400, "stream was invalid"),
        (add(r#"{"type": "latency", "attributes": {"latency": "1"}}"#), 400, "bad request body: latency"),
        (
            add(r#"{"type": "slicer", "attributes": {"average": 1}}"#),
            400,
            "unknown attribute \"average\" of slicer; it has average_size, size_variation, delay",
        ),
        (
            ("POST", "/proxies/p/toxics/latency", r#"{"attributes": {"Jiter": 1}}"#.to_owned()),
            400,
            "unknown attribute \"jiter\" of latency; did you mean \"jitter\"? It has latency, jitter",
        ),
        (add(r#"{"type": "timeout", "timeout": 5}"#), 400, "\"timeout\" belongs in \"attributes\""),
        (
            ("PATCH", "/proxies/p/toxics/latency", r#"{"stream": "downstream"}"#.to_owned()),
            400,
            "the stream of a toxic cannot change: this one is \"upstream\"",
        ),
        (add(r#"{"type": "timeout", "toxicity": 50}"#), 400, "bad request body: toxicity is a share"),
        (add(r#"{"type": "bandwidth", "name": "latency"}"#), 409, "toxic already exists"),
        (none("GET", "/proxies/p/toxics/q"), 404, "toxic not found"),
        (none("POST", "/proxies/p/toxics/q"), 404, "toxic not found"),
        (none("DELETE", "/proxies/p/toxics/q"), 404, "toxic not found"),
        (
            ("POST", "/populate", r#"[{"name": "q"}]"#.to_owned()),
            400,
            "missing required field: upstream at proxy 1",
        ),
        (
            (
                "POST",
                "/populate",
                r#"[{"name": "q", "upstream": "127.0.0.1:1"}, {"name": "q", "upstream": "127.0.0.1:2"}]"#
                    .to_owned(),
            ),
            409,
            "proxy already exists: \"q\" is in the list twice",
        ),
        (none("GET", "/toxics"), 404, "no such path"),
        // The server reads the whole body before it refuses it, so that no reset overtakes the response.
        (create(&"x".repeat((1 << 20) + 1)), 413, "the request body is larger than 1048576 bytes"),
    ];
    for ((method, path, body), status, start) in cases {
        let (got, told) = scene.api(method, path, &body);
        assert_eq!(
            (got, told["status"].as_u64()),
            (status, Some(u64::from(status))),
            "{method} {path} {body}: {told}"
        );
        let error = told["error"].as_str().unwrap_or_default();
        assert!(error.starts_with(start), "{method} {path} {body}: {told}");
    }
    assert_eq!(scene.api("GET", "/proxies", "").1.as_object().map(serde_json::Map::len), Some(1));
}

#[test]
fn web_pages_may_not_use_it() {
    let scene = Scene::new();
    let (status, _) = scene.api_with("User-Agent: Mozilla/5.0\r\n", "DELETE", "/proxies/p", "");
    assert_eq!(status, 403);
    assert_eq!(scene.api("GET", "/proxies/p", "").0, 200);
    assert_eq!(scene.api("GET", "/version", "").0, 200);
}

#[test]
fn the_version_is_told_as_clients_read_it() {
    let scene = Scene::empty(1);
    let (status, told) = scene.api("GET", "/version", "");
    assert_eq!(status, 200);
    let version = told["version"].as_str().expect("an object with the version as a text");
    let numbers: Vec<u32> = version.split('.').filter_map(|number| number.parse().ok()).collect();
    // Clients change proxies and toxics with PATCH if the version is 2.6 or later.
    assert!(numbers.len() == 3 && numbers >= vec![2, 6, 0], "{version}");
}

#[test]
fn a_request_may_not_be_without_end() {
    let scene = Scene::new();
    // One byte too many.
    let name = "n".repeat((1 << 20) + 1);
    let head = format!("POST /proxies HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", name.len());
    let mut peer = scene.api_peer();
    peer.sends(head + &name);
    assert!(peer.head().starts_with("HTTP/1.1 413 "));
}

#[test]
fn a_proxy_is_made_changed_and_removed() {
    let scene = Scene::new();
    let (_, told) = scene.api("GET", "/proxies/p", "");
    let listen = told["listen"].as_str().expect("it is told").to_owned();
    assert!(listen.starts_with("127.0.0.1:") && !listen.ends_with(":0"), "{listen}");
    let expected = |enabled: bool, upstream: &str| json!({ "name": "p", "listen": listen, "upstream": upstream, "enabled": enabled, "toxics": [] });
    let upstream = scene.upstream();
    assert_eq!(told, expected(true, &upstream));
    assert_eq!(scene.api("GET", "/proxies", "").1, json!({ "p": told }));

    let (mut client, mut server) = scene.pair();
    let disabled = scene.api("POST", "/proxies/p", json!({ "enabled": false }));
    assert_eq!(disabled, (200, expected(false, &upstream)));
    client.is_closed();
    server.is_closed();
    assert!(TcpStream::connect(&listen).is_err(), "it does not listen any more");
    // Later versions use PATCH; the proxy keeps its address.
    let enabled = scene.api("PATCH", "/proxies/p", json!({ "enabled": true }));
    assert_eq!(enabled, (200, expected(true, &upstream)));
    let (mut client, _server) = scene.pair();
    // Saving unchanged settings keeps the connections; another server closes them.
    assert_eq!(scene.api("POST", "/proxies/p", expected(true, &upstream)).0, 200);
    client.has_nothing();
    let moved = scene.api("POST", "/proxies/p", json!({ "upstream": "127.0.0.1:1" }));
    assert_eq!(moved, (200, expected(true, "127.0.0.1:1")));
    client.is_closed();

    assert_eq!(scene.api("DELETE", "/proxies/p", ""), (204, Value::Null));
    assert!(TcpStream::connect(&listen).is_err(), "it does not listen any more");
    assert_eq!(scene.api("GET", "/proxies", "").1, json!({}));
}

#[test]
fn many_are_made_at_once_and_again() {
    let scene = Scene::empty(1);
    let upstream = scene.upstream();
    let body = |listen: &str, upstream: &str| {
        json!([
            { "name": "p", "listen": listen, "upstream": upstream },
            { "name": "off", "listen": "127.0.0.1:0", "upstream": upstream, "enabled": false },
        ])
    };
    let (status, told) = scene.api("POST", "/populate", body("127.0.0.1:0", &upstream));
    assert_eq!(status, 201, "{told}");
    let enabled = |told: &Value| [0, 1].map(|index: usize| told["proxies"][index]["enabled"] == true);
    assert_eq!(enabled(&told), [true, false]);
    let (mut client, _server) = scene.pair();
    let listen = told["proxies"][0]["listen"].as_str().expect("it is told");
    // The same request again changes nothing.
    let (status, again) = scene.api("POST", "/populate", body(listen, &upstream));
    assert_eq!((status, &again), (201, &told));
    client.has_nothing();
    let (status, moved) = scene.api("POST", "/populate", body(listen, "127.0.0.1:1"));
    assert_eq!((status, moved["proxies"][0]["upstream"].as_str()), (201, Some("127.0.0.1:1")));
    client.is_closed();
    // A mistake in one proxy prevents all.
    let wrong = json!([{ "name": "new", "upstream": upstream }, { "name": "bad" }]);
    assert_eq!(scene.api("POST", "/populate", wrong).0, 400);
    assert_eq!(scene.api("GET", "/proxies/new", "").0, 404);
}

#[test]
fn toxics_of_proxies_that_are_populated_hold() {
    let scene = Scene::empty(1);
    let upstream = scene.upstream();
    let body = |listen: &str, toxics: Value| json!([{ "name": "p", "listen": listen, "upstream": upstream, "toxics": toxics }]);
    let limit = |bytes: u64| json!([{ "name": "few", "type": "limit_data", "stream": "downstream", "toxicity": 1.0, "attributes": { "bytes": bytes } }]);
    let (status, told) = scene.api("POST", "/populate", body("127.0.0.1:0", limit(3)));
    assert_eq!((status, &told["proxies"][0]["toxics"]), (201, &limit(3)), "{told}");
    let listen = told["proxies"][0]["listen"].as_str().expect("it is told").to_owned();
    let (mut client, mut server) = scene.pair();
    server.sends("ab");
    client.gets(b"ab");
    // The existing connection applies the new list.
    assert_eq!(scene.api("POST", "/populate", body(&listen, limit(4))).0, 201);
    server.sends("cdef");
    assert_eq!(client.rest().0, b"cd");
    // Clients without toxics send null or an empty list, which changes nothing.
    for none in [Value::Null, json!([])] {
        let (status, told) = scene.api("POST", "/populate", body(&listen, none));
        assert_eq!((status, &told["proxies"][0]["toxics"]), (201, &limit(4)));
    }
    let other = json!([{ "type": "latency", "stream": "upstream" }]);
    let (_, told) = scene.api("POST", "/populate", body(&listen, other));
    let names = |told: &Value| {
        told["toxics"].as_array().map(|all| all.iter().map(|one| one["name"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(names(&told["proxies"][0]), Some(vec![json!("latency_upstream")]));
    // A proxy with another address gets the given toxics.
    let (_, told) = scene.api("POST", "/populate", body("127.0.0.1:0", limit(1)));
    assert_eq!(told["proxies"][0]["toxics"], limit(1));
}

#[test]
fn a_mistake_in_toxics_that_are_populated_is_told_with_its_place_and_changes_nothing() {
    let scene = Scene::new();
    let upstream = scene.upstream();
    let toxic = json!({ "type": "latency" });
    for (toxics, status, error) in [
        (json!([toxic, toxic]), 409, "toxic already exists at toxic 2 at proxy 2"),
        (json!([{ "type": "noise" }]), 400, "at toxic 1 at proxy 2"),
        (json!([toxic, { "type": "timeout", "attributes": { "timeuot": 1 } }]), 400, "at toxic 2 at proxy 2"),
        (json!({}), 400, "at proxy 2"),
        (
            Value::from(
                (0..65)
                    .map(|name| json!({ "type": "timeout", "name": name.to_string() }))
                    .collect::<Vec<_>>(),
            ),
            429,
            "at toxic 65",
        ),
    ] {
        let listen = "127.0.0.1:0";
        let body = json!([
            { "name": "new", "listen": listen, "upstream": upstream },
            { "name": "p", "listen": listen, "upstream": upstream, "toxics": toxics },
        ]);
        let (got, told) = scene.api("POST", "/populate", &body);
        assert_eq!((got, told["proxies"].as_array().map(Vec::len)), (status, Some(0)), "{body}: {told}");
        assert!(told["error"].as_str().is_some_and(|text| text.contains(error)), "{body}: {told}");
    }
    let (_, told) = scene.api("GET", "/proxies", "");
    assert_eq!((told.as_object().map(serde_json::Map::len), &told["p"]["toxics"]), (Some(1), &json!([])));
}

#[test]
fn a_proxy_may_be_made_with_toxics_and_a_change_of_it_leaves_them() {
    let scene = Scene::empty(1);
    let toxics = json!([{ "type": "limit_data", "attributes": { "bytes": 2 } }]);
    let proxy =
        json!({ "name": "p", "listen": "127.0.0.1:0", "upstream": scene.upstream(), "toxics": toxics });
    let (status, mut told) = scene.api("POST", "/proxies", proxy);
    assert_eq!((status, &told["toxics"][0]["name"]), (201, &json!("limit_data_downstream")));
    let (mut client, mut server) = scene.pair();
    server.sends("abc");
    assert_eq!(client.rest().0, b"ab");
    // Clients save the settings that they read earlier, toxics included.
    told["toxics"] = json!([]);
    let (_, saved) = scene.api("POST", "/proxies/p", &told);
    assert_eq!(saved["toxics"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_reset_removes_toxics_and_enables_proxies() {
    let scene = Scene::new();
    scene.adds("latency", "upstream", json!({ "latency": 5 }));
    assert_eq!(scene.api("POST", "/proxies/p", json!({ "enabled": false })).0, 200);
    assert_eq!(scene.api("POST", "/reset", ""), (204, Value::Null));
    let (_, told) = scene.api("GET", "/proxies/p", "");
    assert_eq!((&told["enabled"], &told["toxics"]), (&json!(true), &json!([])));
}

#[test]
fn toxics_are_made_changed_and_removed() {
    let scene = Scene::new();
    let latency = |jitter: i64, toxicity: f64| {
        json!({
            "name": "latency_downstream", "type": "latency", "stream": "downstream", "toxicity": toxicity,
            "attributes": { "latency": 1000, "jitter": jitter },
        })
    };
    let added = scene.api(
        "POST",
        "/proxies/p/toxics",
        json!({ "type": "latency", "attributes": { "latency": 1000 } }),
    );
    assert_eq!(added, (200, latency(0, 1.0)));
    let path = "/proxies/p/toxics/latency_downstream";
    assert_eq!(scene.api("GET", path, ""), (200, latency(0, 1.0)));
    let body = json!({ "attributes": { "jitter": 7 }, "toxicity": 0.5 });
    assert_eq!(scene.api("POST", path, body), (200, latency(7, 0.5)));
    assert_eq!(scene.api("PATCH", path, json!({ "toxicity": 0.25 })), (200, latency(7, 0.25)));
    assert_eq!(scene.api("GET", "/proxies/p/toxics", ""), (200, json!([latency(7, 0.25)])));
    assert_eq!(scene.api("GET", "/proxies/p", "").1["toxics"], json!([latency(7, 0.25)]));
    assert_eq!(scene.api("DELETE", path, ""), (204, Value::Null));
    assert_eq!(scene.api("GET", "/proxies/p/toxics", ""), (200, json!([])));
}

/// Counters of the proxy: received and sent upstream, received and sent downstream.
fn counted(scene: &Scene) -> [u64; 4] {
    let (_, proxy) = scene.api("GET", "/proxies/p", "");
    let (status, page) = scene.api("GET", "/metrics", "");
    let page = page.as_str().expect("is text").to_owned();
    assert_eq!(status, 200, "{page}");
    ["upstream", "downstream"]
        .iter()
        .flat_map(|direction| ["received", "sent"].map(|what| (what, direction)))
        .map(|(what, direction)| {
            let sample = format!(
                "toxiproxy_proxy_{what}_bytes_total{{direction=\"{direction}\",listener={},proxy=\"p\",upstream={}}} ",
                proxy["listen"], proxy["upstream"]
            );
            let value = page.lines().find_map(|line| line.strip_prefix(&sample));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{sample} in {page}"))
        })
        .collect::<Vec<u64>>()
        .try_into()
        .expect("there are four")
}

#[test]
fn metrics_tell_what_has_passed_while_connections_last() {
    let scene = Scene::new();
    assert_eq!(counted(&scene), [0; 4]);
    let (mut client, mut server) = scene.pair();
    client.sends("hello");
    server.gets(b"hello");
    server.sends("hi");
    client.gets(b"hi");
    assert_eq!(counted(&scene), [5, 5, 2, 2]);
    // Bytes that a toxic holds back count as received, but not as sent.
    scene.adds("limit_data", "downstream", json!({ "bytes": 1 }));
    server.sends("abc");
    assert_eq!(client.rest().0, b"a");
    assert_eq!(counted(&scene), [5, 5, 5, 3]);
    // The counters outlast connections and a pause. Another server resets them.
    for enabled in [false, true] {
        assert_eq!(scene.api("POST", "/proxies/p", json!({ "enabled": enabled })).0, 200);
        assert_eq!(counted(&scene), [5, 5, 5, 3]);
    }
    assert_eq!(scene.api("POST", "/proxies/p", json!({ "upstream": "127.0.0.1:1" })).0, 200);
    assert_eq!(counted(&scene), [0; 4]);
    assert_eq!(scene.api("DELETE", "/proxies/p", "").0, 204);
    let (_, page) = scene.api("GET", "/metrics", "");
    assert!(page.as_str().is_some_and(|page| !page.contains("proxy=")), "{page}");
}

#[test]
fn metrics_are_in_the_syntax_that_is_asked_for_with_names_escaped() {
    let scene = Scene::empty(1);
    let proxy = json!({ "name": "a\"b\\c\nd", "listen": "127.0.0.1:0", "upstream": "u:1", "enabled": false });
    assert_eq!(scene.api("POST", "/proxies", proxy).0, 201);
    let (_, page) = scene.api("GET", "/metrics", "");
    let page = page.as_str().expect("is text");
    assert!(page.starts_with("# HELP toxiproxy_proxy_received_bytes_total "), "{page}");
    assert!(page.contains("# TYPE toxiproxy_proxy_sent_bytes_total counter\n"), "{page}");
    assert!(page.contains(r#",proxy="a\"b\\c\nd",upstream="u:1"} 0"#), "{page}");
    let (_, page) = scene.api_with("Accept: application/openmetrics-text\r\n", "GET", "/metrics", "");
    assert!(page.as_str().is_some_and(|page| page.ends_with("# EOF\n")), "{page}");
}
