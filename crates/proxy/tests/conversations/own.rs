//! The proxy's own responses: the fate of the connection if the request had a body, and responses to gRPC calls.

use std::net::TcpListener;

use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand};

use super::scene::Scene;

/// A scene whose server does not exist.
fn without_a_server() -> Scene {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    let address = gone.local_addr().expect("it listens");
    Scene::with(|config| {
        config.upstreams[0].servers[0] = format!("http://{address}").parse().expect("is a URL");
    })
}

const POSTS: [&str; 3] = [
    "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: test\r\n\r\n",
];

#[test]
fn a_request_whose_body_is_here_keeps_its_connection_whatever_it_is_answered() {
    // A missing server, an upstream without a usable server, and responses without a server.
    let redirected = Scene::with(|config| config.listeners[0].redirect_to_https = true);
    for (scene, status) in [(without_a_server(), "502"), (redirected, "308")] {
        for post in POSTS {
            let mut client = scene.client();
            // Pipelined, so that bytes after the body show up as the next request.
            client.sends(post.repeat(2));
            for _ in 0..2 {
                let answer = client.message();
                assert_eq!(answer.status().to_string(), status, "{post}");
                assert!(!answer.head.contains("Connection: close"), "{}", answer.head);
            }
            client.has_nothing();
        }
    }
}

#[test]
fn a_request_whose_body_is_not_here_ends_its_connection() {
    let scene = without_a_server();
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhel");
    assert!(client.head().contains("Connection: close\r\n"));
}

const CALL: &str = "POST /shop.Orders/Get HTTP/1.1\r\nHost: test\r\nContent-Type: application/grpc+proto\r\nTE: trailers\r\n\
                    Content-Length: 5\r\n\r\n\0\0\0\0\0";

#[test]
fn a_call_that_no_server_answers_has_a_status_of_grpc() {
    let scene = without_a_server();
    let mut client = scene.client().saying(CALL);
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc+proto\r\nContent-Length: 0\r\nGrpc-Status: 14\r\n\
                  Grpc-Message: The server could not be reached.\r\nDate: {date}\r\n\r\n";
    client.gets(&expand(answer, ""));
    scene.assert_failures(&["upstream-refused"]);
}

#[test]
fn a_call_that_a_server_answers_is_left_alone() {
    let scene = Scene::new();
    let mut client = scene.client().saying(CALL);
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 503 "));
    client.sends(GET);
    server.exactly(5);
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    client.gets(&expand(OK_GOT, ""));
}
