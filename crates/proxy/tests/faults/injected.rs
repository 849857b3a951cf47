//! Each kind of message fault, on the wire, over HTTP/1 and HTTP/2.

use std::time::{Duration, Instant};

use testkit::http2::frame::H2Frame;
use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};
use testkit::text::OK;
use testkit::wait::assert_soon;

const APP: &str = "[upstream.app]\nservers = [\"http://{0}\"]\n[[route]]\nupstream = \"app\"\n";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-t: 1\r\n\r\n";

fn scene(fault: &str) -> Scene {
    Scene::new(&format!("{APP}[[fault]]\n{fault}\n"))
}

/// Returns all bytes that a client gets for a server's response, to the end of its connection.
fn raw(scene: &Scene, response: &str) -> String {
    let mut client = scene.client(Spoken::Http1).asking(&get("/"));
    let mut server = scene.accept(0).after_head();
    server.sends(response);
    let SceneClient::One(peer) = &mut client else { unreachable!("it speaks HTTP/1") };
    String::from_utf8(peer.rest().0).expect("is text")
}

/// Returns all frames that an HTTP/2 client gets on its stream.
fn stream(scene: &Scene, response: &str) -> String {
    let mut client = scene.client(Spoken::Http2).asking(&get("/"));
    let mut server = scene.accept(0).after_head();
    server.sends(response);
    let SceneClient::Two(end, number) = &mut client else { unreachable!("it speaks HTTP/2") };
    end.whole(*number)
}

#[test]
fn a_status_is_answered_without_a_server() {
    let scene = scene("inject = \"503\"\nshow = true\nname = \"down\"");
    for (number, spoken) in BOTH.into_iter().enumerate() {
        let mut client = scene.client(spoken);
        let got = client.asks_for(&get("/"));
        assert_eq!(got.status, 503);
        assert_eq!(got.body, "This answer was injected on purpose: no server gave it.\n");
        assert_eq!(got.field("vanward-fault"), Some(format!("down; seed=1; number={}", 2 * number).as_str()));
        // The connection continues.
        assert_eq!(client.asks_for(&get("/")).status, 503);
    }
    assert_eq!(scene.running().counters().faults_injected, 4);
    assert!(scene.try_accept(0).is_none());
}

#[test]
fn a_delay_holds_a_request_back() {
    let scene = scene("inject = \"delay 100ms\"\nshow = true");
    for spoken in BOTH {
        let began = Instant::now();
        let (_, got) = scene.exchange(spoken, &get("/"), OK);
        assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
        assert_eq!((got.status, got.body.as_str()), (200, "ok"));
        assert!(got.field("vanward-fault").is_some_and(|told| told.starts_with("delay 100ms; ")), "{got:?}");
    }
}

#[test]
fn a_body_is_cut_short() {
    let scene = scene("inject = \"cut 1\"");
    assert_eq!(
        raw(&scene, OK),
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\nVia: 1.1 vanward\r\n\r\no"
    );
    let chunked = raw(&scene, CHUNKED);
    assert!(chunked.ends_with("\r\n\r\n1\r\nh\r\n"), "no last chunk: {chunked}");
    for response in [OK, CHUNKED] {
        let said = stream(&scene, response);
        assert!(said.contains("\n---\n") && said.ends_with("reset 2\n"), "{said}");
    }
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000));
    let body = |got: &str| got.split_once("\r\n\r\n").map(|(_, body)| body.len());
    assert_eq!(body(&raw(&scene, &long)), Some(1));
    let after = Scene::new(&format!("{APP}[[fault]]\ninject = \"cut 70000\"\n"));
    assert_eq!(body(&raw(&after, &long)), Some(70_000));
    // A shorter body stays complete, and its connection continues.
    let (_, got) = after.exchange(Spoken::Http1, &get("/"), OK);
    assert_eq!((got.body.as_str(), got.field("connection")), ("ok", None));
}

/// A body of unknown length may end before the cut.
#[test]
fn a_cut_that_cuts_nothing_is_not_counted() {
    let scene = scene("inject = \"cut 10KB\"\nname = \"short\"");
    for response in [OK, CHUNKED] {
        for spoken in BOTH {
            let (_, got) = scene.exchange(spoken, &get("/"), response);
            assert!(got.body == "ok" || got.body.starts_with("hello"), "{got:?}");
        }
    }
    assert_eq!(scene.running().counters().faults_injected, 0);
    let body = "x".repeat(20_000);
    for response in [
        format!("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 20000\r\n\r\n{body}"),
        format!(
            "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n{body}\r\n0\r\n\r\n"
        ),
    ] {
        let before = scene.running().counters().faults_injected;
        raw(&scene, &response);
        stream(&scene, &response);
        assert_soon("both are counted", || scene.running().counters().faults_injected == before + 2);
    }
}

#[test]
fn a_status_has_its_own_body_fields_and_status_of_grpc() {
    let scene = scene(
        "inject = \"503\"\nresponse = { body = '{\"down\":true}', content_type = \"application/json\", \
         headers = { Retry-After = \"5\", X-Cost = \"$1\" }, grpc_status = 8, grpc_message = \"no more\" }",
    );
    let call = BodylessRequest {
        method: "POST",
        fields: "content-type: application/grpc\nte: trailers\n",
        ..get("/pkg.S/M")
    };
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        let got = client.asks_for(&get("/"));
        assert_eq!((got.status, got.body.as_str()), (503, "{\"down\":true}"));
        let fields = ["content-type", "retry-after", "x-cost"].map(|name| got.field(name));
        assert_eq!(fields, [Some("application/json"), Some("5"), Some("$1")], "{got:?}");
        // The gRPC call has failed, not the HTTP exchange.
        let got = client.asks_for(&call);
        let fields =
            ["content-type", "grpc-status", "grpc-message", "retry-after"].map(|name| got.field(name));
        assert_eq!(
            (got.status, fields),
            (200, [Some("application/grpc"), Some("8"), Some("no more"), Some("5")])
        );
    }
    assert_eq!(scene.running().counters().faults_injected, 4);
}

#[test]
fn a_length_is_not_the_body_s() {
    for (by, length) in [("+3", 5), ("-1", 1), ("-9", 0)] {
        let scene = scene(&format!("inject = \"length {by}\""));
        let got = raw(&scene, OK);
        assert!(got.contains(&format!("\r\nContent-Length: {length}\r\n")), "{got}");
        assert!(got.ends_with("\r\n\r\nok") && got.contains("\r\nConnection: close\r\n"), "{got}");
        let said = stream(&scene, OK);
        assert!(said.contains(&format!("content-length: {length}\n")), "{said}");
        // A response without Content-Length cannot have a wrong one.
        assert!(raw_ends_well(&scene));
    }
}

/// Whether a chunked response arrives complete.
fn raw_ends_well(scene: &Scene) -> bool {
    let (_, got) = scene.exchange(Spoken::Http1, &get("/"), CHUNKED);
    got.body == "hello"
}

#[test]
fn a_chunk_is_none() {
    let scene = scene("inject = \"bad-chunk\"");
    for response in [OK, CHUNKED] {
        let got = raw(&scene, response);
        assert!(
            got.starts_with("HTTP/1.1 200 OK\r\n") && !got.to_lowercase().contains("content-length"),
            "{got}"
        );
        assert!(got.ends_with("\r\nTransfer-Encoding: chunked\r\n\r\nthis is no chunk\r\n"), "{got}");
        let said = stream(&scene, response);
        assert!(said.ends_with("reset 2\n") && !said.contains("---"), "{said}");
    }
}

#[test]
fn a_head_drips() {
    let scene = scene("inject = \"drip 20ms\"");
    for spoken in BOTH {
        let began = Instant::now();
        let (_, got) = scene.exchange(spoken, &get("/"), OK);
        // Five lines, including the empty one.
        assert!(began.elapsed() >= Duration::from_millis(80), "{:?}", began.elapsed());
        assert_eq!((got.status, got.body.as_str(), got.field("content-length")), (200, "ok", Some("2")));
    }
}

#[test]
fn trailers_are_missing() {
    let (with, without) = (Scene::new(APP), scene("inject = \"no-trailers\""));
    let ask = |scene: &Scene| (raw_of_one(scene), stream(scene, CHUNKED));
    let (one, two) = ask(&with);
    assert!(one.ends_with("0\r\nx-t: 1\r\n\r\n") && two.ends_with("x-t: 1\n"), "{one} {two}");
    let (one, two) = ask(&without);
    assert!(
        one.ends_with("\r\nhello\r\n0\r\n\r\n") && !two.contains("x-t") && !two.contains("reset"),
        "{one} {two}"
    );
}

/// Returns a chunked response as sent to a client that asks for a close.
fn raw_of_one(scene: &Scene) -> String {
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest { fields: "connection: close", ..get("/") });
    let mut server = scene.accept(0).after_head();
    server.sends(CHUNKED);
    let SceneClient::One(peer) = &mut client else { unreachable!("it speaks HTTP/1") };
    String::from_utf8(peer.rest().0).expect("is text")
}

#[test]
fn a_request_is_reset() {
    let scene = scene("inject = \"reset\"\npath = \"/reset\"");
    let mut client = scene.client(Spoken::Http1).asking(&get("/reset"));
    let SceneClient::One(peer) = &mut client else { unreachable!("it speaks HTTP/1") };
    peer.gets_a_reset();
    let mut client = scene.client(Spoken::Http2).asking(&get("/reset"));
    let SceneClient::Two(end, number) = &mut client else { unreachable!("it speaks HTTP/2") };
    end.gets_reset(1, 2);
    *number = 3;
    // Other streams of the connection are not affected.
    client.asks(&get("/"));
    let mut server = scene.accept(0).after_head();
    server.sends(OK);
    assert_eq!(client.gets().status, 200);
}

#[test]
fn a_client_is_told_to_go_away() {
    let scene = scene("inject = \"goaway\"");
    let (_, got) = scene.exchange(Spoken::Http1, &get("/"), OK);
    assert_eq!((got.body.as_str(), got.field("connection")), ("ok", Some("close")));
    let mut client = scene.client(Spoken::Http2).asking(&get("/"));
    let mut server = scene.accept(0).after_head();
    server.sends(OK);
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (200, "ok"));
    let SceneClient::Two(end, _) = &mut client else { unreachable!("it speaks HTTP/2") };
    end.find(|frame| matches!(frame, H2Frame::GoAway { .. }));
}

#[test]
fn a_response_that_cannot_go_wrong_like_that_goes_on_as_it_is() {
    let nothing = "HTTP/1.1 204 No Content\r\nDate: D\r\n\r\n";
    for fault in ["cut 0", "length +1", "bad-chunk", "no-trailers"] {
        let scene = scene(&format!("inject = \"{fault}\"\nshow = true"));
        let (_, got) = scene.exchange(Spoken::Http2, &get("/"), nothing);
        assert_eq!((got.status, got.field("vanward-fault")), (204, None), "{fault}");
        assert_eq!(scene.running().counters().faults_injected, 0, "{fault}");
    }
}
