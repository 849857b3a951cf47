//! HTTP/2 on both sides.

use testkit::http2::frame::{
    CANCEL, INTERNAL_ERROR, NO_ERROR, data, headers, last_data, last_headers, reset,
};

use super::scene::Scene;

const GET: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
const OURS: &str = "via: vanward\nx-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\nx-forwarded-host: test\n\
                    forwarded: for=127.0.0.1;proto=http;host=\"test\"\n";

/// Asserts what the server receives of a request, and the client of the response.
fn passes(name: &str, request: &[Vec<u8>], seen: &str, response: &[Vec<u8>], got: &str) {
    let scene = Scene::to_http2();
    let mut client = scene.client().saying(request.concat());
    let mut server = scene.accept();
    assert_eq!(server.whole(1), seen.replace("{ours}", OURS), "{name}");
    server.sends(response.concat());
    assert_eq!(client.whole(1), got, "{name}");
    client.is_heard();
    server.is_heard();
}

#[test]
fn messages_are_passed_on_whole() {
    let ok = [headers(1, ":status: 200\ndate: D\ncontent-length: 2\n"), last_data(1, "ok")];
    let ok_got = ":status: 200\ndate: D\ncontent-length: 2\nvia: vanward\n---\nok\n---\n";
    let fields = format!("{GET}cookie: a=b\nte: trailers\nx: y\ncookie: c=d\nx: z\n");
    passes(
        "fields",
        &[last_headers(1, &fields)],
        ":method: GET\n:scheme: http\n:authority: test\n:path: /\ncookie: a=b; c=d\nx: y\nx: z\nte: trailers\n{ours}",
        &ok,
        ok_got,
    );
    let post = GET.replace("GET", "POST");
    let seen = format!("{post}{{ours}}---\nabc\n---\nx-sum: 1\n");
    let frames = [headers(1, &post), data(1, "ab"), data(1, "c"), last_headers(1, "x-sum: 1\n")];
    passes("trailers up", &frames, &seen, &ok, ok_got);
    passes(
        "HEAD",
        &[last_headers(1, &GET.replace("GET", "HEAD"))],
        &format!("{}{{ours}}", GET.replace("GET", "HEAD")),
        &[last_headers(1, ":status: 200\ndate: D\ncontent-length: 2\n")],
        ":status: 200\ndate: D\ncontent-length: 2\nvia: vanward\n",
    );
    let trailers = [
        headers(1, ":status: 103\nlink: a\n"),
        headers(1, ":status: 200\ndate: D\n"),
        data(1, "abc"),
        last_headers(1, "grpc-status: 0\n"),
    ];
    passes(
        "interim and trailers down",
        &[last_headers(1, GET)],
        &format!("{GET}{{ours}}"),
        &trailers,
        ":status: 103\nlink: a\nvia: vanward\n:status: 200\ndate: D\nvia: vanward\n---\nabc\n---\ngrpc-status: 0\n",
    );
    // HTTP/1.1 has no trailers with Content-Length, so that is dropped if trailers are announced.
    for announced in ["content-type: application/grpc\n", "trailer: grpc-status\n"] {
        let head = format!(":status: 200\ndate: D\n{announced}");
        let frames = [
            headers(1, &format!("{head}content-length: 3\n")),
            data(1, "abc"),
            last_headers(1, "grpc-status: 0\n"),
        ];
        let got = format!("{head}via: vanward\n---\nabc\n---\ngrpc-status: 0\n");
        passes("trailers behind a length", &[last_headers(1, GET)], &format!("{GET}{{ours}}"), &frames, &got);
    }
    passes(
        "trailers only",
        &[last_headers(1, GET)],
        &format!("{GET}{{ours}}"),
        &[last_headers(1, ":status: 200\ndate: D\ngrpc-status: 5\n")],
        ":status: 200\ndate: D\ngrpc-status: 5\ncontent-length: 0\nvia: vanward\n",
    );
}

#[test]
fn a_reset_travels_on() {
    let scene = Scene::to_http2();
    let mut client = scene.client();
    client.sends([headers(1, &GET.replace("GET", "POST")), data(1, "abc")].concat());
    let mut server = scene.accept();
    server.next_on(1);
    server.gets_data(1, "abc");
    client.sends(reset(1, CANCEL));
    server.gets_reset(1, CANCEL);
    scene.assert_failure("client-gone", 1);
    client.sends(last_headers(3, GET));
    server.whole(3);
    server.sends([headers(3, ":status: 200\ndate: D\n"), data(3, "abc")].concat());
    client.next_on(3);
    client.gets_data(3, "abc");
    server.sends(reset(3, CANCEL));
    client.gets_reset(3, INTERNAL_ERROR);
    scene.assert_failure("upstream-truncated", 1);
}

#[test]
fn an_early_response_ends_the_request() {
    let scene = Scene::to_http2();
    let mut client = scene.client();
    client.sends([headers(1, &GET.replace("GET", "POST")), data(1, "abc")].concat());
    let mut server = scene.accept();
    server.next_on(1);
    server.gets_data(1, "abc");
    server.sends(
        [headers(1, ":status: 413\ndate: D\ncontent-length: 0\n"), last_data(1, ""), reset(1, NO_ERROR)]
            .concat(),
    );
    assert!(client.whole(1).starts_with(":status: 413\n"));
    client.gets_reset(1, NO_ERROR);
    assert_eq!(scene.failures(), []);
}

#[test]
fn both_directions_of_a_call_go_on_beside_each_other() {
    let scene = Scene::to_http2();
    let mut client = scene.client().saying(headers(1, &GET.replace("GET", "POST")));
    let mut server = scene.accept();
    server.next_on(1);
    server.sends(headers(1, ":status: 200\ndate: D\n"));
    client.gets_headers(1, ":status: 200\ndate: D\nvia: vanward\n");
    for word in ["a", "b", "c"] {
        client.sends(data(1, word));
        server.gets_data(1, word);
        server.sends(data(1, word));
        client.gets_data(1, word);
    }
    client.sends(last_data(1, ""));
    assert_eq!(server.whole(1), "---\n\n---\n");
    server.sends([data(1, "d"), last_headers(1, "grpc-status: 0\n")].concat());
    assert_eq!(client.whole(1), "---\nd\n---\ngrpc-status: 0\n");
}
