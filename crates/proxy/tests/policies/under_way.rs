//! Limits on requests under way: by key, with a queue, over reloads.

use testkit::http1::Http1Peer;
use testkit::http2::frame::{CANCEL, reset};
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get, read};
use testkit::wait::assert_soon;

use super::asked::USERS;

const OK: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// A route with these options, to a server.
fn routes(options: &str) -> String {
    format!(
        "trusted_proxies = [\"127.0.0.1\"]\n[[route]]\nupstream = \"app\"\n{options}\n[upstream.app]\nservers = [\"http://{{0}}\"]\n"
    )
}

fn limited(options: &str) -> Scene {
    Scene::new(&routes(options))
}

/// Sends a request that the server gets.
fn under_way(scene: &Scene, spoken: Spoken, request: &BodylessRequest<'_>) -> (SceneClient, Http1Peer) {
    let client = scene.client(spoken).asking(request);
    let server = scene.accept(0).after_head();
    (client, server)
}

/// Sends a request that waits, as the `number`th one.
fn waiting(scene: &Scene, spoken: Spoken, target: &str, number: u64) -> SceneClient {
    let client = scene.client(spoken).asking(&get(target));
    assert_soon("it waits", || scene.running().counters().requests_queued == number);
    client
}

/// Waits until this number of requests is under way or waits.
fn settles(scene: &Scene, number: u64) {
    assert_soon("the others have ended", || scene.running().counters().requests_active == number);
}

#[track_caller]
fn is_refused(got: &Got) {
    assert_eq!((got.status, got.body.as_str()), (429, "Too many requests at once; try again later.\n"));
    assert_eq!(got.field("retry-after"), Some("1"));
}

#[test]
fn each_key_has_its_number_of_requests_under_way() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1 }");
        let (mut first, mut server) = under_way(&scene, spoken, &get("/"));
        let mut second = scene.client(spoken);
        is_refused(&second.asks_for(&get("/")));
        let other = BodylessRequest { fields: "x-forwarded-for: 192.0.2.7\n", ..get("/") };
        let (mut other, mut its_server) = under_way(&scene, spoken, &other);
        server.sends(OK);
        its_server.sends(OK);
        assert_eq!([first.gets().status, other.gets().status], [200; 2], "{spoken:?}");
        settles(&scene, 0);
        // The connection of the refused request continues.
        second.asks(&get("/"));
        scene.accept(0).after_head().sends(OK);
        assert_eq!(second.gets().status, 200, "{spoken:?}");
    }
}

#[test]
fn a_request_counts_until_the_last_byte_of_its_response() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1 }");
        let (mut first, mut server) = under_way(&scene, spoken, &get("/"));
        server.sends("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\no");
        is_refused(&scene.answer(spoken, &get("/")));
        server.sends("k");
        assert_eq!(first.gets().body, "ok");
        first.asks(&get("/"));
        scene.accept(0).after_head().sends(OK);
        assert_eq!(first.gets().status, 200, "{spoken:?}: the next one on its connection");
    }
}

#[test]
fn requests_wait_in_order_until_the_queue_is_full() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1, queue = 2, wait = \"1h\" }");
        let (mut first, mut server) = under_way(&scene, spoken, &get("/first"));
        let mut second = waiting(&scene, spoken, "/second", 1);
        let mut third = waiting(&scene, spoken, "/third", 2);
        is_refused(&scene.answer(spoken, &get("/fourth")));
        for (client, next) in [(&mut first, "/second"), (&mut second, "/third")] {
            server.sends(OK);
            assert_eq!(client.gets().status, 200, "{spoken:?}");
            server = scene.accept(0);
            let head = server.head();
            assert!(head.starts_with(&format!("GET {next} ")), "{spoken:?}: {head}");
        }
        server.sends(OK);
        assert_eq!(third.gets().status, 200, "{spoken:?}");
    }
}

#[test]
fn a_wait_ends() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1, queue = 1, wait = \"100ms\" }");
        let (mut first, mut server) = under_way(&scene, spoken, &get("/"));
        is_refused(&scene.answer(spoken, &get("/")));
        // Its place in the queue is free again.
        is_refused(&scene.answer(spoken, &get("/")));
        assert_eq!(scene.running().counters().requests_queued, 2, "{spoken:?}");
        server.sends(OK);
        assert_eq!(first.gets().status, 200, "{spoken:?}");
    }
}

#[test]
fn a_client_that_leaves_the_queue_gives_its_place_back() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1, queue = 1, wait = \"1h\" }");
        let (mut first, mut server) = under_way(&scene, spoken, &get("/"));
        let mut second = waiting(&scene, spoken, "/second", 1);
        match &mut second {
            SceneClient::One(peer) => peer.half_closes(),
            SceneClient::Two(end, stream) => end.sends(reset(*stream, CANCEL)),
        }
        settles(&scene, 1);
        let mut third = waiting(&scene, spoken, "/third", 2);
        server.sends(OK);
        assert_eq!(first.gets().status, 200, "{spoken:?}");
        let mut server = scene.accept(0);
        assert!(server.head().starts_with("GET /third "), "{spoken:?}");
        server.sends(OK);
        assert_eq!(third.gets().status, 200, "{spoken:?}");
    }
}

#[test]
fn a_client_that_leaves_during_its_response_makes_room() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1, queue = 1, wait = \"1h\" }");
        let (first, mut server) = under_way(&scene, spoken, &get("/"));
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        let mut second = waiting(&scene, spoken, "/second", 1);
        drop(first);
        let mut next = None;
        assert_soon("the next one gets its turn", || {
            server.can_send(&[b'x'; 1000]);
            next = scene.try_accept(0);
            next.is_some()
        });
        next.expect("it was accepted").after_head().sends(OK);
        assert_eq!(second.gets().status, 200, "{spoken:?}");
    }
}

#[test]
fn streams_of_a_connection_count_and_so_do_cancelled_ones_until_they_end() {
    let scene = limited("concurrency = { max = 1 }");
    let (mut client, _server) = under_way(&scene, Spoken::Http2, &get("/"));
    let SceneClient::Two(_, stream) = &mut client else { panic!("it speaks HTTP/2") };
    *stream += 2;
    is_refused(&client.asks_for(&get("/")));
    let SceneClient::Two(end, _) = &mut client else { panic!("it speaks HTTP/2") };
    end.sends(reset(1, CANCEL));
    settles(&scene, 0);
    client.asks(&get("/"));
    scene.accept(0).after_head().sends(OK);
    assert_eq!(client.gets().status, 200);
}

#[test]
fn a_websocket_counts_until_it_ends() {
    let scene = limited("concurrency = { max = 1 }");
    let fields = "connection: upgrade\nupgrade: websocket\nsec-websocket-key: x\n";
    let (client, mut server) = under_way(&scene, Spoken::Http1, &BodylessRequest { fields, ..get("/") });
    server.sends("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    let SceneClient::One(mut client) = client else { panic!("it speaks HTTP/1") };
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    is_refused(&scene.answer(Spoken::Http1, &get("/")));
    drop((client, server));
    settles(&scene, 0);
    let (mut next, mut server) = under_way(&scene, Spoken::Http1, &get("/"));
    server.sends(OK);
    assert_eq!(next.gets().status, 200);
}

#[test]
fn a_reload_keeps_counts_and_changes_the_limit() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1 }");
        let (mut first, mut server) = under_way(&scene, spoken, &get("/"));
        let changed = routes("concurrency = { max = 2, queue = 1, wait = \"1h\" }");
        let changed = changed.replace("{0}", &scene.server_address(0));
        let text = format!("workers = 2\n{changed}[[listen]]\naddress = \"127.0.0.1:0\"\n");
        scene.running().reload(read(&text)).expect("is valid");
        let (mut second, mut its_server) = under_way(&scene, spoken, &get("/"));
        let mut third = waiting(&scene, spoken, "/third", 1);
        server.sends(OK);
        assert_eq!(first.gets().status, 200, "{spoken:?}");
        scene.accept(0).after_head().sends(OK);
        its_server.sends(OK);
        assert_eq!([second.gets().status, third.gets().status], [200; 2], "{spoken:?}");
    }
}

#[test]
fn all_limits_have_to_admit_a_request() {
    for spoken in BOTH {
        let scene =
            limited("concurrency = [{ max = 1, by = \"header:x-key\" }, { max = 2, by = \"route\" }]");
        let with = |fields| BodylessRequest { fields, ..get("/") };
        let (mut first, mut server) = under_way(&scene, spoken, &with("x-key: a\n"));
        is_refused(&scene.answer(spoken, &with("x-key: a\n")));
        let (_second, _server) = under_way(&scene, spoken, &with("x-key: b\n"));
        is_refused(&scene.answer(spoken, &with("x-key: c\n")));
        server.sends(OK);
        assert_eq!(first.gets().status, 200, "{spoken:?}");
        settles(&scene, 1);
        // The refused request has left no count behind.
        let (mut third, mut server) = under_way(&scene, spoken, &with("x-key: c\n"));
        server.sends(OK);
        assert_eq!(third.gets().status, 200, "{spoken:?}");
    }
}

#[test]
fn routes_of_one_zone_count_together() {
    let limit = |max| format!("concurrency = {{ max = {max}, zone = \"all\" }}");
    let scene = Scene::new(&format!(
        "[[route]]\nupstream = \"app\"\n{}\n[[route]]\npath = \"/more\"\nupstream = \"app\"\n{}\n\
         [upstream.app]\nservers = [\"http://{{0}}\"]\n",
        limit(1),
        limit(2)
    ));
    for spoken in BOTH {
        let (mut first, mut server) = under_way(&scene, spoken, &get("/"));
        is_refused(&scene.client(spoken).asks_for(&get("/")));
        let (mut second, mut its_server) = under_way(&scene, spoken, &get("/more"));
        is_refused(&scene.client(spoken).asks_for(&get("/more")));
        server.sends(OK);
        its_server.sends(OK);
        assert_eq!([first.gets().status, second.gets().status], [200; 2], "{spoken:?}");
        settles(&scene, 0);
    }
}

/// Instances that cannot reach Redis, over each version of HTTP.
#[test]
fn without_redis_each_instance_has_its_share() {
    const REDIS: &str = "[redis]\nurl = \"redis://127.0.0.1:1\"\ninstances = 2\n";
    for spoken in BOTH {
        for (options, admitted) in [
            ("max = 2, shared = \"local\"", 1),
            ("max = 3, shared = \"local\"", 2),
            ("max = 1, shared = \"open\"", 3),
            ("max = 3, shared = \"closed\"", 0),
        ] {
            let scene = Scene::new(&format!("{}{REDIS}", routes(&format!("concurrency = {{ {options} }}"))));
            let mut all: Vec<_> = (0..admitted).map(|_| under_way(&scene, spoken, &get("/"))).collect();
            if !options.contains("open") {
                is_refused(&scene.answer(spoken, &get("/")));
            }
            for (client, server) in &mut all {
                server.sends(OK);
                assert_eq!(client.gets().status, 200, "{options}");
            }
            settles(&scene, 0);
        }
    }
}

#[test]
fn a_condition_and_the_user_are_known() {
    let limit = "concurrency = { max = 1, by = \"user\", when = 'client.user != \"eve\"' }";
    let options = format!("auth = {{ users = \"{{dir}}/users\" }}\n{limit}");
    for spoken in BOTH {
        let scene = Scene::with_files(&[("users", USERS)], &routes(&options));
        let fields = "authorization: Basic bWU6c2VjcmV0\n";
        let by_user = BodylessRequest { fields, ..get("/") };
        let (_first, _server) = under_way(&scene, spoken, &by_user);
        is_refused(&scene.answer(spoken, &by_user));
        // Those without a user are refused before.
        assert_eq!(scene.answer(spoken, &get("/")).status, 401, "{spoken:?}");
    }
}

#[test]
fn the_log_has_the_wait_and_the_reason() {
    let log = "[log]\ntarget = \"{dir}/access.log\"\nformat = \"json\"\n";
    let limit = "concurrency = { max = 1, queue = 1, wait = \"100ms\" }";
    let scene = Scene::new(&format!("{}{log}", routes(limit)));
    let (mut first, mut server) = under_way(&scene, Spoken::Http1, &get("/first"));
    is_refused(&scene.answer(Spoken::Http1, &get("/second")));
    server.sends(OK);
    assert_eq!(first.gets().status, 200);
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let text = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let line =
        |target: &str| text.lines().find(|line| line.contains(target)).expect("it is logged").to_owned();
    let (first, second) = (line("/first"), line("/second"));
    assert!(!first.contains("queued_ms"), "{first}");
    assert!(
        second.contains("\"queued_ms\":") && second.contains("\"cause\":\"concurrency-limited\""),
        "{second}"
    );
    assert!(second.contains("no room within wait, 100ms"), "{second}");
}

#[test]
fn requests_outside_the_condition_do_not_count() {
    for spoken in BOTH {
        let scene = limited("concurrency = { max = 1, when = 'request.path != \"/free\"' }");
        let (_first, _server) = under_way(&scene, spoken, &get("/"));
        let (_second, _server) = under_way(&scene, spoken, &get("/free"));
        let (_third, _server) = under_way(&scene, spoken, &get("/free"));
        is_refused(&scene.answer(spoken, &get("/")));
    }
}
