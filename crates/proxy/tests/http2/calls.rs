//! gRPC calls that are retried by their status, in the head or behind the body, and those that are not.

use config::{Protocol, RetryOn};
use testkit::http2::H2End;
use testkit::http2::frame::{CANCEL, data, headers, last_data, last_headers, reset};

use super::scene::Scene;

const CALL: &str = ":method: POST\n:scheme: http\n:authority: test\n:path: /shop.Cart/Add\ncontent-type: \
                    application/grpc+proto\nte: trailers\n";
const HEAD: &str = ":status: 200\ndate: D\ncontent-type: application/grpc\n";
const UNAVAILABLE: &str = "grpc-status: 14\ngrpc-message: busy\n";
const DONE: &str = "grpc-status: 0\n";

/// Two servers, of which the first is preferred.
fn scene(protocol: Protocol) -> Scene {
    Scene::with(protocol, 2, |config| {
        let upstream = &mut config.upstreams[0];
        upstream.servers[0].weight = 1000;
        upstream.retry.on = RetryOn::none();
        assert!(upstream.retry.on.grpc.add("unavailable"));
    })
}

fn server(scene: &Scene, server: usize) -> H2End {
    H2End::server(scene.accept_stream(server), &[])
}

/// A message of this many bytes, with its prefix.
fn message(bytes: usize) -> String {
    let length = u32::try_from(bytes).expect("is short").to_be_bytes();
    let prefix = String::from_utf8([&[0][..], &length].concat()).expect("is ASCII");
    prefix + &"m".repeat(bytes)
}

/// The frames of a response.
fn response(bodies: &[String], trailers: &str) -> Vec<u8> {
    let mut frames = headers(1, HEAD);
    let pieces = bodies.iter().flat_map(|body| body.as_bytes().chunks(16_000));
    pieces.for_each(|piece| frames.extend(data(1, piece)));
    [frames, last_headers(1, trailers)].concat()
}

#[test]
fn a_call_is_repeated_by_the_status_of_its_whole_response() {
    let rows: [(&str, Vec<Vec<u8>>); 4] = [
        ("trailers only", vec![last_headers(1, &format!("{HEAD}{UNAVAILABLE}"))]),
        ("no message", vec![response(&[], UNAVAILABLE)]),
        ("one message", vec![response(&[message(3)], UNAVAILABLE)]),
        (
            "piece by piece",
            vec![
                headers(1, HEAD),
                data(1, &message(600)[..2]),
                data(1, &message(600)[2..]),
                last_headers(1, UNAVAILABLE),
            ],
        ),
    ];
    for (name, said) in rows {
        let scene = scene(Protocol::Http2);
        let mut client = scene.client();
        client.sends([headers(1, CALL), last_data(1, message(9))].concat());
        let mut first = server(&scene, 0);
        let asked = first.whole(1);
        assert!(asked.ends_with(&format!("---\n{}\n---\n", message(9))), "{name}: {asked}");
        for piece in said {
            first.sends(piece);
            first.is_heard();
        }
        let mut second = server(&scene, 1);
        assert_eq!(second.whole(1), asked, "{name}");
        second.sends(response(&[message(5)], DONE));
        let expected = format!("{HEAD}via: vanward\n---\n{}\n---\n{DONE}", message(5));
        assert_eq!(client.whole(1), expected, "{name}");
        assert_eq!(scene.running.counters().upstream_retries, 1, "{name}");
    }
}

#[test]
fn what_is_no_failed_unary_call_is_passed_on() {
    let rows: [(&str, &[String], &str); 5] = [
        ("done", &[message(3)], DONE),
        ("another status", &[], "grpc-status: 13\n"),
        ("two messages", &[message(3), message(0)], UNAVAILABLE),
        ("a long message", &[message(16 << 10)], UNAVAILABLE),
        ("no message of gRPC", &["text".repeat(9)], UNAVAILABLE),
    ];
    for (name, bodies, trailers) in rows {
        let scene = scene(Protocol::Http2);
        let mut client = scene.client();
        client.sends([headers(1, CALL), last_data(1, message(9))].concat());
        let mut first = server(&scene, 0);
        first.whole(1);
        first.sends(response(bodies, trailers));
        let body = bodies.concat();
        let body = if body.is_empty() { String::new() } else { format!("---\n{body}\n---\n") };
        let (got, expected) = (client.whole(1), format!("{HEAD}via: vanward\n{body}{trailers}"));
        assert!(got == expected, "{name}: {} bytes instead of {}", got.len(), expected.len());
        assert_eq!(scene.running.counters().upstream_retries, 0, "{name}");
    }
}

#[test]
fn a_stream_goes_on_a_moment_after_its_first_message() {
    let scene = scene(Protocol::Http2);
    let mut client = scene.client().saying([headers(1, CALL), last_data(1, message(9))].concat());
    let mut first = server(&scene, 0);
    first.whole(1);
    first.sends(headers(1, HEAD));
    client.gets_headers(1, &format!("{HEAD}via: vanward\n"));
    for bytes in [3, 4, 5] {
        first.sends(data(1, message(bytes)));
        client.gets_data(1, &message(bytes));
    }
    first.sends(last_headers(1, UNAVAILABLE));
    assert_eq!(client.whole(1), UNAVAILABLE);
}

#[test]
fn a_client_that_leaves_while_its_response_is_held_ends_the_call() {
    let scene = scene(Protocol::Http2);
    let mut client = scene.client().saying([headers(1, CALL), last_data(1, message(9))].concat());
    let mut first = server(&scene, 0);
    first.whole(1);
    first.sends([headers(1, HEAD), data(1, &message(600)[..500])].concat());
    first.is_heard();
    client.sends(reset(1, CANCEL));
    first.gets_reset(1, CANCEL);
    scene.assert_failure("client-gone", 1);
}

#[test]
fn a_client_that_still_sends_is_answered_as_it_goes() {
    let scene = scene(Protocol::Http2);
    let mut client = scene.client().saying([headers(1, CALL), data(1, message(9))].concat());
    let mut first = server(&scene, 0);
    first.next_on(1);
    first.sends(headers(1, HEAD));
    client.gets_headers(1, &format!("{HEAD}via: vanward\n"));
    first.sends(last_headers(1, UNAVAILABLE));
    assert!(client.whole(1).ends_with(UNAVAILABLE));
    assert_eq!(scene.running.counters().upstream_retries, 0);
}

#[test]
fn a_call_over_http1_is_repeated_too() {
    let scene = scene(Protocol::Http1);
    let mut client = scene.client1();
    let call =
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: test\r\nContent-Type: application/grpc\r\nTE: trailers\r\n";
    client.sends(format!("{call}Content-Length: 14\r\n\r\n{}", message(9)));
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (at, trailers) in [(0, "grpc-status: 14\r\n"), (1, "grpc-status: 0\r\n")] {
        let mut server = testkit::http1::Http1Peer::new("server", scene.accept_stream(at));
        assert_eq!(server.message().body, message(9).into_bytes());
        server.sends(format!("{head}8\r\n{}\r\n0\r\n{trailers}\r\n", message(3)));
    }
    let got = client.head();
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
    client.gets(format!("8\r\n{}\r\n0\r\ngrpc-status: 0\r\n\r\n", message(3)).as_bytes());
}

#[test]
fn a_call_is_not_repeated_where_no_other_server_is_free() {
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        assert!(config.upstreams[0].retry.on.grpc.add("unavailable"));
    });
    let mut client = scene.client().saying([headers(1, CALL), last_data(1, message(9))].concat());
    let mut first = scene.accept();
    first.whole(1);
    first.sends(response(&[], UNAVAILABLE));
    assert_eq!(client.whole(1), format!("{HEAD}via: vanward\n{UNAVAILABLE}"));
}

#[test]
fn a_call_goes_on_elsewhere_while_its_client_still_sends() {
    let scene = scene(Protocol::Http2);
    let mut client = scene.client().saying([headers(1, CALL), data(1, &message(9)[..7])].concat());
    let mut first = server(&scene, 0);
    first.next_on(1);
    first.gets_data(1, &message(9)[..7]);
    first.sends(last_headers(1, &format!("{HEAD}{UNAVAILABLE}")));
    let mut second = server(&scene, 1);
    second.next_on(1);
    second.gets_data(1, &message(9)[..7]);
    client.sends(last_data(1, &message(9)[7..]));
    assert_eq!(second.whole(1), format!("---\n{}\n---\n", &message(9)[7..]));
    second.sends(response(&[message(5)], DONE));
    assert!(client.whole(1).ends_with(DONE));
}

#[test]
fn a_call_is_sent_again_in_chunks_as_well() {
    let scene = scene(Protocol::Http1);
    let mut client = scene.client().saying([headers(1, CALL), data(1, &message(9)[..7])].concat());
    let answer = |trailers| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n{trailers}\r\n\r\n"
        )
    };
    let mut first = testkit::http1::Http1Peer::new("server", scene.accept_stream(0));
    first.head();
    first.gets(format!("7\r\n{}\r\n", &message(9)[..7]).as_bytes());
    first.sends(answer("grpc-status: 14"));
    let mut second = testkit::http1::Http1Peer::new("server", scene.accept_stream(1));
    second.head();
    second.gets(format!("7\r\n{}\r\n", &message(9)[..7]).as_bytes());
    client.sends(last_data(1, &message(9)[7..]));
    second.gets(format!("7\r\n{}\r\n0\r\n\r\n", &message(9)[7..]).as_bytes());
    second.sends(answer("grpc-status: 0"));
    assert!(client.whole(1).contains("grpc-status: 0\n"));
}

#[test]
fn a_long_request_is_not_repeated() {
    let scene = scene(Protocol::Http2);
    let mut client = scene.client().saying(headers(1, CALL));
    client.sends_body(1, message(17_000).as_bytes(), true);
    let mut first = server(&scene, 0);
    first.whole(1);
    first.sends(response(&[], UNAVAILABLE));
    assert!(client.whole(1).ends_with(UNAVAILABLE));
}

#[test]
fn a_server_that_is_unavailable_counts_as_failed() {
    let scene = Scene::with(Protocol::Http2, 2, |config| {
        let upstream = &mut config.upstreams[0];
        upstream.servers[0].weight = 1000;
        assert!(upstream.retry.on.grpc.add("unavailable"));
        upstream.settings.breaker = Some(balance::BreakerSettings { failures: 1, ..Default::default() });
    });
    let mut client = scene.client().saying([headers(1, CALL), last_data(1, message(9))].concat());
    let mut first = server(&scene, 0);
    first.whole(1);
    first.sends(last_headers(1, &format!("{HEAD}{UNAVAILABLE}")));
    let mut second = server(&scene, 1);
    for stream in [1, 3] {
        if stream == 3 {
            client.sends([headers(3, CALL), last_data(3, message(9))].concat());
        }
        second.whole(stream);
        second.sends(last_headers(stream, &format!("{HEAD}{DONE}")));
        assert!(client.whole(stream).contains(DONE));
    }
}
