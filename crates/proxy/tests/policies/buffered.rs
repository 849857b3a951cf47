//! Request buffering: the whole body is read before a server is chosen.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use testkit::http1::Http1Peer;
use testkit::http2::frame::{data, headers, last_data, last_headers, reset};
use testkit::scene::{BOTH, Scene, SceneClient, Spoken, get};
use testkit::text::OK;
use testkit::tls::TestAuthority;
use testkit::wait::{Patience, assert_soon};

/// A server; bodies longer than 100 bytes go to disk.
const BUFFERED: &str = r#"
[[route]]
upstream = "app"
request_buffering = { memory = 100 }
[request_buffering]
path = "{dir}"
[upstream.app]
servers = ["http://{0}"]
"#;

/// Waits until bodies take this much memory and disk space.
#[track_caller]
fn assert_taken(scene: &Scene, memory: std::ops::RangeInclusive<u64>, disk: std::ops::RangeInclusive<u64>) {
    assert_soon("bodies take another amount", || {
        let counters = scene.running().counters();
        memory.contains(&counters.request_buffer_memory_bytes)
            && disk.contains(&counters.request_buffer_disk_bytes)
    });
}

#[track_caller]
fn assert_failed(scene: &Scene, word: &str, count: u64) {
    let words = control::Running::failure_words();
    let index = words.iter().position(|known| *known == word).expect("is a cause");
    assert_soon(word, || scene.running().counters().failures[index] == count);
}

/// Sends the head of a POST, and a part of its body.
fn begins(client: &mut SceneClient, length: usize, part: &[u8]) {
    match client {
        SceneClient::One(peer) => {
            peer.sends(format!("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n"));
            peer.sends(part);
        }
        SceneClient::Two(end, stream) => {
            let fields = format!(
                ":method: POST\n:scheme: http\n:authority: test\n:path: /up\ncontent-length: {length}\n"
            );
            end.sends(headers(*stream, &fields));
            end.sends_body(*stream, part, false);
        }
    }
}

fn ends(client: &mut SceneClient, rest: &[u8]) {
    match client {
        SceneClient::One(peer) => peer.sends(rest),
        SceneClient::Two(end, stream) => end.sends_body(*stream, rest, true),
    }
}

#[test]
fn captures_have_bodies_that_are_kept_in_memory() {
    for (option, is_captured) in [("", false), (", bodies = true", true)] {
        let with = format!("upstream = \"app\"\ncapture = {{ file = \"{{dir}}/capture\"{option} }}");
        let scene = Scene::new(&BUFFERED.replace("upstream = \"app\"", &with));
        let mut client = scene.client(Spoken::Http1);
        for length in [100, 101] {
            begins(&mut client, length, &vec![b'a'; length]);
            let mut server = scene.accept(0);
            assert_eq!(server.message().body.len(), length);
            server.sends(OK);
            assert_eq!(client.gets().body, "ok");
        }
        let mut bodies = Vec::new();
        assert_soon("both are captured", || {
            let text = fs::read_to_string(scene.file("capture")).unwrap_or_default();
            let Ok(capture) = capture::read(&text) else { return false };
            bodies = capture.requests.into_iter().filter_map(|request| request.body).collect();
            bodies.len() == 2
        });
        assert_eq!(bodies.iter().map(|body| body.bytes).collect::<Vec<_>>(), [100, 101]);
        assert_eq!(bodies[0].content(), is_captured.then(|| vec![b'a'; 100]));
        assert_eq!(bodies[1].content(), None, "it is in a file");
    }
}

#[test]
fn no_server_is_asked_before_the_body_is_whole() {
    for spoken in BOTH {
        for length in [100, 101, 200_000] {
            let scene = Scene::new(BUFFERED);
            let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut client = scene.client(spoken);
            begins(&mut client, length, &body[..length - 1]);
            if length > 10_000 {
                assert_taken(&scene, 0..=100, 100_000..=200_000);
            } else {
                assert_taken(&scene, 1..=100, 0..=0);
            }
            assert!(scene.try_accept(0).is_none(), "{spoken:?}");
            ends(&mut client, &body[length - 1..]);
            let mut server = scene.accept(0);
            let message = server.message();
            assert!(message.body == body, "{spoken:?} {length}");
            assert!(message.head.to_lowercase().contains(&format!("content-length: {length}\r\n")));
            server.sends(OK);
            assert_eq!(client.gets().body, "ok", "{spoken:?} {length}");
            assert_taken(&scene, 0..=0, 0..=0);
            let counters = scene.running().counters();
            assert_eq!(counters.requests_buffered, 1);
            assert_eq!(counters.requests_buffered_on_disk, u64::from(length > 100));
            // Both connections continue.
            client.asks(&get("/next"));
            assert!(server.head().starts_with("GET /next "));
            server.sends(OK);
            assert_eq!(client.gets().status, 200, "{spoken:?} {length}");
        }
    }
}

#[test]
fn chunks_become_a_length() {
    for spoken in BOTH {
        for pieces in [vec![&b""[..]], vec![&b"ab"[..], b"c"], vec![&[b'x'; 70_000][..], &[b'y'; 70_000]]] {
            let scene = Scene::new(BUFFERED);
            let mut client = scene.client(spoken);
            client.posts(&pieces, false);
            let mut server = scene.accept(0);
            let message = server.message();
            assert!(message.body == pieces.concat(), "{spoken:?}");
            let head = message.head.to_lowercase();
            assert!(head.contains(&format!("content-length: {}\r\n", message.body.len())), "{head}");
            assert!(!head.contains("transfer-encoding"), "{head}");
            server.sends(OK);
            assert_eq!(client.gets().status, 200);
        }
    }
}

#[test]
fn trailers_are_kept() {
    for length in [3_usize, 5_000] {
        let body = "z".repeat(length);
        let scene = Scene::new(BUFFERED);
        let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { unreachable!() };
        client.sends(format!(
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\nX-Sum: 7\r\n\r\n"
        ));
        let mut server = scene.accept(0);
        let head = server.head();
        assert!(head.contains("Transfer-Encoding: chunked") && !head.contains("Content-Length"), "{head}");
        server.gets(format!("{length:x}\r\n{body}\r\n0\r\nX-Sum: 7\r\n\r\n").as_bytes());
        server.sends(OK);
        assert_eq!(client.message().status(), 200);
        // From an HTTP/2 client to an HTTP/2 server.
        let scene = Scene::new(&BUFFERED.replace("[upstream.app]", "[upstream.app]\nprotocol = \"h2\""));
        let SceneClient::Two(mut client, stream) = scene.client(Spoken::Http2) else { unreachable!() };
        client.sends(headers(stream, ":method: POST\n:scheme: http\n:authority: test\n:path: /\n"));
        client.sends([data(stream, &body), last_headers(stream, "x-sum: 7\n")].concat());
        let mut server = scene.accept_http2(0);
        let seen = server.whole(1);
        assert!(seen.ends_with(&format!("---\n{body}\n---\nx-sum: 7\n")), "{seen}");
        server.sends([headers(1, ":status: 200\n"), last_data(1, "ok")].concat());
        assert!(client.whole(stream).starts_with(":status: 200\n"));
    }
}

#[test]
fn the_proxy_asks_for_the_body_itself() {
    let scene = Scene::new(BUFFERED);
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { unreachable!() };
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    client.gets(b"HTTP/1.1 100 Continue\r\n\r\n");
    assert!(scene.try_accept(0).is_none());
    client.sends("abc");
    let mut server = scene.accept(0);
    let message = server.message();
    assert_eq!(message.body, b"abc");
    assert!(!message.head.to_lowercase().contains("expect"), "{}", message.head);
    server.sends(OK);
    assert_eq!(client.message().status(), 200);
    let scene = Scene::new(BUFFERED);
    let SceneClient::Two(mut client, stream) = scene.client(Spoken::Http2) else { unreachable!() };
    let fields = ":method: POST\n:scheme: http\n:authority: test\n:path: /\nexpect: 100-continue\n";
    client.sends(headers(stream, fields));
    client.gets_headers(stream, ":status: 100\n");
    client.sends(last_data(stream, "abc"));
    let mut server = scene.accept(0);
    let message = server.message();
    assert_eq!(message.body, b"abc");
    assert!(!message.head.to_lowercase().contains("expect"), "{}", message.head);
    server.sends(OK);
    assert!(client.whole(stream).starts_with(":status: 200\n"));
    // A body with too long a Content-Length is rejected before it is sent.
    let scene = Scene::new(&BUFFERED.replace("memory = 100", "max_size = 10"));
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { unreachable!() };
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n");
    assert_eq!(client.message().status(), 413);
}

/// Two servers, and retries of non-idempotent requests.
const RETRIED: &str = r#"
[[route]]
upstream = "app"
request_buffering = { memory = 1000 }
retry = { on = ["503", "reset"], non_idempotent = true }
[request_buffering]
path = "{dir}"
[upstream.app]
servers = ["http://{0}", "http://{1}"]
"#;

#[test]
fn a_buffered_body_is_sent_again() {
    for spoken in BOTH {
        for length in [500, 60_000, 300_000] {
            let scene = Scene::new(RETRIED);
            let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut client = scene.client(spoken);
            client.posts(&[&body], length % 7 == 0);
            let (mut first, other) = first_of(&scene);
            // Only a part of a long body is read.
            first.head();
            first.exactly(length.min(1000));
            first.sends("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let mut second = scene.accept(other);
            assert!(second.message().body == body, "{spoken:?} {length}");
            second.sends(OK);
            assert_eq!(client.gets().body, "ok", "{spoken:?} {length}");
        }
    }
}

/// Returns the server that is asked first, and the number of the other one.
fn first_of(scene: &Scene) -> (Http1Peer, usize) {
    let patience = Patience::new();
    loop {
        for server in 0..2 {
            if let Some(peer) = scene.try_accept(server) {
                return (peer, 1 - server);
            }
        }
        patience.wait("no server is asked");
    }
}

#[test]
fn servers_of_http2_get_it_too() {
    for spoken in BOTH {
        for length in [50, 60_000] {
            let scene = Scene::new(&BUFFERED.replace("[upstream.app]", "[upstream.app]\nprotocol = \"h2\""));
            let body = "w".repeat(length);
            let mut client = scene.client(spoken);
            client.posts(&[body.as_bytes()], false);
            let mut server = scene.accept_http2(0);
            let seen = server.whole(1);
            assert!(seen.contains(&format!("content-length: {length}\n")), "{seen}");
            assert!(seen.contains(&format!("---\n{body}\n---\n")), "{spoken:?} {length}");
            server.sends([headers(1, ":status: 200\n"), last_data(1, "ok")].concat());
            assert_eq!(client.gets().body, "ok");
        }
    }
}

#[test]
fn too_long_a_body_is_refused() {
    for spoken in BOTH {
        for has_length in [true, false] {
            for settings in ["memory = 100, max_size = 5000", "memory = 5000"] {
                let text = BUFFERED.replace("memory = 100", settings);
                // Without a disk, the memory is the limit.
                let text = if settings.contains("max_size") {
                    text
                } else {
                    text.replace("path =", "disk = 0\npath =")
                };
                let scene = Scene::new(&text);
                let mut client = scene.client(spoken);
                client.posts(&[&[b'x'; 5001]], has_length);
                let got = client.gets();
                assert_eq!((got.status, got.body.as_str()), (413, "The request body is too large.\n"));
                assert_failed(&scene, "request-buffer-exceeded", 1);
                assert!(scene.try_accept(0).is_none());
                let mut client = scene.client(spoken);
                client.posts(&[&[b'x'; 5000]], has_length);
                let mut server = scene.accept(0);
                assert_eq!(server.message().body.len(), 5000);
                server.sends(OK);
                assert_eq!(client.gets().status, 200);
            }
        }
    }
}

#[test]
fn all_bodies_together_are_bounded() {
    for spoken in BOTH {
        let scene = Scene::new(&BUFFERED.replace("path =", "memory = 150\ndisk = \"100KB\"\npath ="));
        let mut first = scene.client(spoken);
        begins(&mut first, 80_000, &[b'x'; 79_999]);
        assert_taken(&scene, 0..=150, 60_000..=80_000);
        let mut second = scene.client(spoken);
        begins(&mut second, 80_000, &[b'y'; 79_999]);
        let got = second.gets();
        assert_eq!((got.status, got.field("retry-after").is_some()), (503, true), "{spoken:?}");
        assert_failed(&scene, "request-buffers-full", 1);
        // The first request is not affected, and leaves its place to others.
        ends(&mut first, b"x");
        let mut server = scene.accept(0);
        assert_eq!(server.message().body, [b'x'; 80_000]);
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert_eq!(first.gets().status, 200);
        assert_taken(&scene, 0..=0, 0..=0);
        let mut third = scene.client(spoken);
        third.posts(&[&[b'z'; 80_000]], true);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body, [b'z'; 80_000]);
        server.sends(OK);
        assert_eq!(third.gets().status, 200);
    }
}

#[test]
fn short_bodies_go_to_disk_where_memory_is_short() {
    let scene = Scene::new(&BUFFERED.replace("path =", "memory = 0\npath ="));
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        client.posts(&[b"a", b"b", b"c"], false);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body, b"abc");
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert_eq!(client.gets().status, 200);
    }
    assert_eq!(scene.running().counters().requests_buffered_on_disk, 2);
}

#[test]
fn a_disk_that_fails_is_told_of() {
    for spoken in BOTH {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let scene = Scene::new(&BUFFERED.replace("{dir}", &directory.path().display().to_string()));
        directory.close().expect("it can be removed");
        let mut client = scene.client(spoken);
        client.posts(&[&[b'x'; 5000]], true);
        let got = client.gets();
        assert_eq!((got.status, got.body.as_str()), (500, "The request body could not be buffered.\n"));
        assert_failed(&scene, "request-buffer-failed", 1);
        // A body that fits the memory needs no disk.
        let mut client = scene.client(spoken);
        client.posts(&[&[b'x'; 50]], true);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body.len(), 50);
        server.sends(OK);
        assert_eq!(client.gets().status, 200);
        assert_taken(&scene, 0..=0, 0..=0);
    }
}

#[test]
fn a_client_that_leaves_costs_no_server() {
    for spoken in BOTH {
        let scene = Scene::new(BUFFERED);
        let mut client = scene.client(spoken);
        begins(&mut client, 9000, &[b'x'; 8000]);
        assert_taken(&scene, 0..=100, 8000..=8000);
        match &mut client {
            SceneClient::One(_) => {}
            SceneClient::Two(end, stream) => end.sends(reset(*stream, 8)),
        }
        drop(client);
        assert_taken(&scene, 0..=0, 0..=0);
        assert_failed(&scene, "client-gone", 1);
        assert!(scene.try_accept(0).is_none(), "{spoken:?}");
    }
}

#[test]
fn a_client_has_no_more_time_than_elsewhere() {
    for spoken in BOTH {
        let text = BUFFERED
            .replace("[request_buffering]", "timeouts = { client_body = \"100ms\" }\n[request_buffering]");
        let scene = Scene::new(&text);
        let mut client = scene.client(spoken);
        begins(&mut client, 9000, b"x");
        assert_eq!(client.gets().status, 408, "{spoken:?}");
        assert_failed(&scene, "client-body-timeout", 1);
        assert!(scene.try_accept(0).is_none(), "{spoken:?}");
    }
}

#[test]
fn a_slow_client_is_cut_off() {
    for spoken in BOTH {
        let limits = "limits = { minimum_rate = 1000, rate_window = \"1s\" }\n[request_buffering]";
        let scene = Scene::new(&BUFFERED.replace("[request_buffering]", limits));
        let mut client = scene.client(spoken);
        begins(&mut client, 9000, b"x");
        assert_eq!(client.gets().status, 408, "{spoken:?}");
        assert_failed(&scene, "client-too-slow", 1);
        assert!(scene.try_accept(0).is_none(), "{spoken:?}");
    }
}

#[test]
fn a_mirror_shares_the_body() {
    let text = BUFFERED.replace(
        "[request_buffering]",
        "mirror = { upstream = \"shadow\", bodies = \"100KB\" }\n[request_buffering]",
    );
    let scene = Scene::new(&(text + "[upstream.shadow]\nservers = [\"http://{1}\"]\n"));
    for spoken in BOTH {
        for length in [7, 90_000] {
            let mut client = scene.client(spoken);
            client.posts(&[&vec![b'm'; length]], length > 10);
            for number in 0..2 {
                let mut server = scene.accept(number);
                let message = server.message();
                assert!(message.body == vec![b'm'; length], "{spoken:?} {length} {number}");
                assert!(message.head.to_lowercase().contains(&format!("content-length: {length}\r\n")));
                server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            }
            assert_eq!(client.gets().status, 200);
        }
        // A body that is too long for the mirror is buffered nevertheless.
        let mut client = scene.client(spoken);
        client.posts(&[&[b'm'; 110_000]], true);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body.len(), 110_000);
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert_eq!(client.gets().status, 200);
        assert!(scene.try_accept(1).is_none());
    }
}

#[test]
fn a_server_may_answer_before_it_has_read_the_body() {
    for spoken in BOTH {
        let scene = Scene::new(BUFFERED);
        let mut client = scene.client(spoken);
        // More than the kernel holds for an unread connection.
        client.posts(&[&vec![b'x'; 20_000_000]], true);
        let mut server = scene.accept(0).after_head();
        server.sends("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno");
        assert_eq!(client.gets().status, 403, "{spoken:?}");
        // The client's connection stays open, although the server has not read everything; the server's is closed.
        client.asks(&get("/next"));
        let mut other = scene.accept(0);
        assert!(other.head().starts_with("GET /next "));
        other.sends(OK);
        assert_eq!(client.gets().status, 200, "{spoken:?}");
    }
}

#[test]
fn a_slow_client_takes_no_place_of_a_server() {
    for spoken in BOTH {
        let one = "servers = [{ url = \"http://{0}\", max_requests = 1 }]";
        let scene = Scene::new(&BUFFERED.replace("servers = [\"http://{0}\"]", one));
        let mut slow = scene.client(spoken);
        begins(&mut slow, 9000, &[b'x'; 8000]);
        assert_taken(&scene, 0..=100, 8000..=8000);
        let mut quick = scene.client(spoken);
        quick.posts(&[b"abc"], true);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body, b"abc");
        // It joins the queue once its body is complete, and not before.
        ends(&mut slow, &[b'x'; 1000]);
        assert_soon("nobody waits", || scene.running().counters().requests_queued == 1);
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert_eq!(quick.gets().status, 200);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body, [b'x'; 9000]);
        server.sends(OK);
        assert_eq!(slow.gets().status, 200);
    }
}

#[test]
fn nothing_is_kept_of_who_is_not_let_in() {
    let text = BUFFERED.replace(
        "[request_buffering]",
        "forward_auth = { upstream = \"auth\", path = \"/verify\" }\n[request_buffering]",
    );
    let scene = Scene::new(&(text + "[upstream.auth]\nservers = [\"http://{1}\"]\n"));
    for spoken in BOTH {
        for is_let_in in [false, true] {
            let mut client = scene.client(spoken);
            begins(&mut client, 9000, &[b'x'; 8000]);
            let mut auth = scene.accept(1).after_head();
            let status = if is_let_in { "204 No Content" } else { "401 Unauthorized" };
            auth.sends(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
            if is_let_in {
                assert_taken(&scene, 0..=100, 8000..=8000);
                ends(&mut client, &[b'x'; 1000]);
                let mut server = scene.accept(0);
                assert_eq!(server.message().body.len(), 9000);
                server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
                assert_eq!(client.gets().status, 200);
            } else {
                assert_eq!(client.gets().status, 401, "{spoken:?}");
                assert_taken(&scene, 0..=0, 0..=0);
            }
        }
    }
    assert_eq!(scene.running().counters().requests_buffered, 2);
}

#[test]
fn routes_with_a_cache_and_codings_buffer_as_well() {
    let all = "cache = {}\ncompress = { min_size = 0 }\n[request_buffering]";
    let scene = Scene::new(&(BUFFERED.replace("[request_buffering]", all) + "[cache]\nmemory = \"16MiB\"\n"));
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        client.posts(&[&[b'x'; 5000]], false);
        let mut server = scene.accept(0);
        let message = server.message();
        assert_eq!(message.body, [b'x'; 5000]);
        assert!(message.head.to_lowercase().contains("content-length: 5000\r\n"), "{}", message.head);
        server.sends(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        );
        assert_eq!(client.gets().body, "ok");
    }
}

#[test]
fn servers_with_tls_get_it_through_records() {
    let authority = TestAuthority::new();
    let ca = fs::read_to_string(&authority.file).expect("it is there");
    let secure = "tls = { ca = \"{dir}/ca.pem\", name = \"a.example\" }\nservers = [\"https://{0}\"]";
    let text = BUFFERED.replace("servers = [\"http://{0}\"]", secure);
    let scene = Scene::with_files(&[("ca.pem", &ca)], &text);
    for spoken in BOTH {
        let body: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
        let mut client = scene.client(spoken);
        client.posts(&[&body], false);
        let mut server = scene.accept_tls(0, &authority);
        assert!(server.message().body == body, "{spoken:?}");
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert_eq!(client.gets().status, 200);
    }
}

#[test]
fn what_is_no_body_passes_at_once() {
    let scene = Scene::new(BUFFERED);
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { unreachable!() };
    client.sends("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    client.sends("hello");
    server.gets(b"hello");
    assert_eq!(scene.running().counters().requests_buffered, 0);
}

#[test]
fn files_have_no_name_and_are_for_nobody_else() {
    let scene = Scene::new(BUFFERED);
    let mut client = scene.client(Spoken::Http1);
    begins(&mut client, 9000, &[b'x'; 8000]);
    assert_taken(&scene, 0..=100, 8000..=8000);
    // The proxy runs in this process.
    let directory = fs::canonicalize(scene.file(".")).expect("it is there");
    let is_ours = |path: &Path| fs::read_link(path).is_ok_and(|target| target.starts_with(&directory));
    let find = || {
        let descriptors = fs::read_dir("/proc/self/fd").expect("it is Linux").flatten();
        descriptors.map(|entry| entry.path()).find(|path| is_ours(path))
    };
    let mut file = None;
    assert_soon("no file is open", || {
        file = find();
        file.is_some()
    });
    let properties = fs::metadata(file.expect("there is one")).expect("it is open");
    assert_eq!((properties.mode() & 0o777, properties.nlink()), (0o600, 0));
    assert_eq!(fs::read_dir(&directory).expect("it is a directory").count(), 0);
}

#[test]
fn a_discarded_body_is_received_and_the_server_gets_none() {
    let scene = Scene::new(&BUFFERED.replace("{ memory = 100 }", "{ discard = true, max_size = 1000 }"));
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        begins(&mut client, 300, &[b'x'; 200]);
        ends(&mut client, &[b'x'; 100]);
        let mut server = scene.accept(0);
        let head = server.head();
        assert!(head.starts_with("POST /up HTTP/1.1\r\n"), "{head}");
        assert_eq!(head.to_ascii_lowercase().matches("content-length: 0\r\n").count(), 1, "{head}");
        assert!(!head.contains("300"), "{head}");
        server.sends(OK);
        assert_eq!(client.gets().status, 200);
        assert_taken(&scene, 0..=0, 0..=0);
        // The limit stays.
        let mut client = scene.client(spoken);
        begins(&mut client, 1001, b"");
        assert_eq!(client.gets().status, 413);
    }
}
