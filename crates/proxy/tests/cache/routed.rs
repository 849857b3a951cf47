//! Separate cache spaces of routes with the same URLs, and actions that affect all of them.

use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get};
use testkit::wait::Patience;

use super::answered::{ONE_ROUTE, response};
use super::purged::order;

const FRESH: &str = "Cache-Control: max-age=60\r\nSurrogate-Key: news\r\n";

const STORE: &str = "admin = \"{dir}/admin\"\n[cache]\nmemory = \"64MiB\"\nobject = \"1MiB\"\n";

/// Two routes for all URLs, the first for requests with these conditions.
fn two_routes(conditions: &str, upstreams: [&str; 2]) -> Scene {
    let [first, second] = upstreams;
    let upstreams = "[upstream.a]\nservers = [\"http://{0}\"]\n[upstream.b]\nservers = [\"http://{1}\"]\n";
    Scene::new(&format!(
        "{STORE}[[route]]\nname = \"first\"\n{conditions}\nupstream = \"{first}\"\ncache = {{ query_keep = [] }}\n\
         [[route]]\nname = \"second\"\nupstream = \"{second}\"\ncache = {{ query_keep = [] }}\n{upstreams}"
    ))
}

/// Sends a request that no stored response answers, and answers it.
fn store(scene: &Scene, server: usize, request: &BodylessRequest<'_>, body: &str) {
    let mut client = scene.client(Spoken::Http1).asking(request);
    let mut server = scene.accept(server).after_head();
    server.sends(response(FRESH, body));
    assert_eq!(client.gets().body, body);
}

fn stored(scene: &Scene, request: &BodylessRequest<'_>) -> Option<String> {
    let fields = format!("{}cache-control: only-if-cached\n", request.fields);
    let got = scene.answer(Spoken::Http2, &BodylessRequest { fields: &fields, ..*request });
    (got.status == 200).then_some(got.body)
}

const CANARY: BodylessRequest<'_> =
    BodylessRequest { method: "GET", host: "test", target: "/x", fields: "x-canary: yes\n" };

#[test]
fn what_a_url_alone_does_not_lead_to_is_stored_apart() {
    for (conditions, first) in
        [("headers = { x-canary = \"yes\" }", CANARY), ("query = { canary = \"yes\" }", get("/x?canary=yes"))]
    {
        // Also with the same server: a route may change requests.
        for upstreams in [["a", "b"], ["a", "a"]] {
            let scene = two_routes(conditions, upstreams);
            store(&scene, 0, &first, "first");
            assert_eq!(stored(&scene, &get("/x")), None, "{conditions}");
            store(&scene, usize::from(upstreams[1] == "b"), &get("/x"), "second");
            assert_eq!(stored(&scene, &first).as_deref(), Some("first"));
            assert_eq!(stored(&scene, &get("/x")).as_deref(), Some("second"));
        }
    }
}

#[test]
fn purges_reach_what_all_routes_have_stored_and_all_of_it_is_told_of() {
    for (body, told) in [
        (r#"{"urls":["test/x"]}"#, r#""responses":2"#),
        (r#"{"tags":["news"]}"#, ""),
        (r#"{"hosts":["test"]}"#, ""),
        (r#"{"prefixes":["test/"]}"#, ""),
    ] {
        let scene = two_routes("headers = { x-canary = \"yes\" }", ["a", "b"]);
        store(&scene, 0, &CANARY, "first");
        store(&scene, 1, &get("/x"), "second");
        for (headers, route) in [("[]", "second"), (r#"[["x-canary","yes"]]"#, "first")] {
            let question = format!(r#"{{"url":"test/x","headers":{headers}}}"#);
            let (_, explained) = order(&scene, "/cache/explain", &question);
            assert!(explained.contains(&format!("\"route\": \"{route}\"")), "{explained}");
            assert!(explained.contains("\"http://test/x\"") && explained.contains("\"hit\""), "{explained}");
        }
        let (status, answer) = order(&scene, "/cache/purge", body);
        let answer: String = answer.split_whitespace().collect();
        assert!(status == 200 && answer.contains(told), "{body}: {answer}");
        assert_eq!((stored(&scene, &CANARY), stored(&scene, &get("/x"))), (None, None), "{body}");
    }
}

/// Returns the response, and which server was asked, if any.
fn whoever_answers(scene: &Scene, client: &mut SceneClient) -> (Got, Option<usize>) {
    client.asks(&get("/x"));
    let patience = Patience::new();
    loop {
        for number in [0, 1] {
            if let Some(mut server) = scene.try_accept(number) {
                server.head();
                server.sends(response(&format!("{FRESH}Connection: close\r\n"), ["a", "b"][number]));
                return (client.gets(), Some(number));
            }
        }
        if matches!(client, SceneClient::One(peer) if peer.has_something()) {
            return (client.gets(), None);
        }
        patience.wait("nothing answers");
    }
}

#[test]
fn each_part_of_a_split_is_stored_apart() {
    let routes = ONE_ROUTE
        .replace("upstream = \"app\"", "split = { app = 1, other = 1 }")
        .replace("[cache]", "[upstream.other]\nservers = [\"http://{1}\"]\n[cache]");
    let scene = Scene::new(&format!("admin = \"{{dir}}/admin\"\n{routes}"));
    let mut client = scene.client(Spoken::Http1);
    let mut asked = [0; 2];
    let mut bodies = Vec::new();
    while asked.contains(&0) || bodies.len() < 20 {
        let (got, server) = whoever_answers(&scene, &mut client);
        if let Some(number) = server {
            asked[number] += 1;
        }
        bodies.push(got.body);
    }
    assert_eq!(asked, [1, 1]);
    let (_, told) = order(&scene, "/cache/explain", r#"{"url":"test/x"}"#);
    assert!(told.contains("\"hit\""), "{told}");
    let (_, told) = order(&scene, "/cache/purge", r#"{"urls":["test/x"]}"#);
    assert!(told.split_whitespace().collect::<String>().contains(r#""responses":2"#), "{told}");
    assert!((0..8).all(|number| {
        let asked = BodylessRequest { fields: "cache-control: only-if-cached\n", ..get("/x") };
        scene.answer(BOTH[number % 2], &asked).status == 504
    }));
}

/// Two routes, one for unsafe methods and one with a cache.
fn two_of(reads: &str, writes: &str) -> Scene {
    let upstreams = "[upstream.a]\nservers = [\"http://{0}\"]\n[upstream.b]\nservers = [\"http://{1}\"]\n";
    Scene::new(&format!("{STORE}[[route]]\n{reads}\n{writes}{upstreams}"))
}

#[test]
fn rfc9111_4_4_an_unsafe_request_makes_invalid_what_any_route_has_stored_by_any_key() {
    let alone = "upstream = \"a\"\ncache = { key_headers = [\"x-kind\"] }";
    let cookies = "upstream = \"a\"\ncache = { key_cookies = [\"kind\"] }";
    let plain = "upstream = \"a\"\nmethods = [\"GET\", \"HEAD\"]\ncache = {}";
    let keyed = "upstream = \"a\"\nmethods = [\"GET\", \"HEAD\"]\ncache = { key_headers = [\"x-kind\"] }";
    let writes = "[[route]]\nname = \"writes\"\nupstream = \"b\"\n";
    let other = "[[route]]\nname = \"writes\"\nupstream = \"b\"\ncache = { sort_query = true }\n";
    for (reads, writes, kinds) in [
        (alone, "", ["x-kind: a\n", "x-kind: b\n"]),
        (cookies, "", ["cookie: kind=a\n", "cookie: kind=b\n"]),
        (plain, writes, ["", ""]),
        (keyed, writes, ["x-kind: a\n", "x-kind: b\n"]),
        (keyed, other, ["x-kind: a\n", "x-kind: b\n"]),
    ] {
        for (status, is_gone) in [("200 OK", true), ("404 Not Found", false)] {
            let scene = two_of(reads, writes);
            let kinds = kinds
                .iter()
                .flat_map(|fields| ["/x?q", "/y"].map(|target| BodylessRequest { fields, ..get(target) }));
            let kinds: Vec<BodylessRequest<'_>> = kinds.collect();
            for kind in &kinds {
                if stored(&scene, kind).is_none() {
                    store(&scene, 0, kind, "old");
                }
            }
            let mut client = scene.client(Spoken::Http2);
            client.asks(&BodylessRequest { method: "DELETE", ..get("/x?q") });
            let mut server = scene.accept(usize::from(!writes.is_empty())).after_head();
            server.sends(format!("HTTP/1.1 {status}\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"));
            client.gets();
            for kind in &kinds {
                assert_eq!(stored(&scene, kind).is_none(), is_gone, "{reads} {writes} {kind:?}");
            }
        }
    }
}

#[test]
fn a_request_outside_the_condition_of_the_cache_goes_to_a_server() {
    let scene = Scene::new(&format!(
        "{STORE}[[route]]\nupstream = \"a\"\ncache = {{ when = '!(\"session\" in request.cookies)' }}\n\
         [upstream.a]\nservers = [\"http://{{0}}\"]\n"
    ));
    store(&scene, 0, &get("/x"), "for all");
    let own = BodylessRequest { fields: "cookie: a=b; session=1\n", ..get("/x") };
    // Neither answered from the store nor stored.
    ["one", "two"].iter().for_each(|body| store(&scene, 0, &own, body));
    assert_eq!(stored(&scene, &get("/x")).as_deref(), Some("for all"));
    let explain = |headers: &str| {
        order(&scene, "/cache/explain", &format!("{{\"url\":\"http://test/x\",\"headers\":[{headers}]}}")).1
    };
    assert!(explain("").contains("\"hit\""), "{}", explain(""));
    let told = explain("[\"Cookie\",\"session=1\"]");
    assert!(told.contains("\"off\"") && told.contains("cache.when of the route must hold"), "{told}");
}

/// A redirect names a server by its address, or by the host that it was sent. Clients can reach neither.
#[test]
fn urls_of_stored_redirects_are_mapped_as_those_of_first_answers() {
    for (rewrite, sent) in [
        ("location = true", "{0}"),
        ("rewrite = { host = \"inner.test\" }", "inner.test"),
        ("rewrite = { host = \"inner.test\" }", "{0}"),
        ("rewrite = { host = \"$client_address\" }", "127.0.0.1"),
    ] {
        let scene = Scene::new(&format!(
            "{STORE}[[route]]\nupstream = \"app\"\ncache = {{}}\n{rewrite}\n\
             [upstream.app]\nservers = [\"http://{{0}}\"]\n"
        ));
        let sent = sent.replace("{0}", &scene.server_address(0));
        let moved = response(&format!("{FRESH}Location: http://{sent}/moved\r\n"), "");
        let moved = moved.replacen("200 OK", "301 Moved Permanently", 1);
        let (_, first) = scene.exchange(Spoken::Http1, &get("/x"), &moved);
        let stored = scene.answer(Spoken::Http1, &get("/x"));
        assert!(scene.try_accept(0).is_none(), "{rewrite}");
        for got in [first, stored] {
            assert_eq!(
                (got.status, got.field("location")),
                (301, Some("http://test/moved")),
                "{rewrite}, {sent}"
            );
        }
    }
}
