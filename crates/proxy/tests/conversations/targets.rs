//! The four forms of a request target, Host, and routing (RFC 9112 §3.2).

use config::{HostHeader, Route, Shared};
use testkit::text::{GET, OK, OK_GOT, added, expand, failure_and_close, failure_and_go_on};

use super::scene::Scene;
use super::scene::Step::*;

fn seen_by_server(scene: &Scene, request: &str, seen: &str) {
    let mut client = scene.client().saying(request);
    let mut server = scene.accept(0);
    server.gets(&expand(seen, &scene.server_address(0).to_string()));
    server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    client.gets(&expand(OK_GOT, ""));
    server.gets_the_end();
}

#[test]
fn every_form_of_a_target_is_sent_on_in_its_own_way() {
    let scene = Scene::new();
    let ours = added("1.1", "other:81");
    for (target, sent_on) in [
        ("http://other:81/a/b?c=d", "/a/b?c=d"),
        ("HTTP://other:81", "/"),
        ("http://other:81?q", "/?q"),
        ("https://other:81/%2e/", "/%2e/"),
    ] {
        // RFC 9112 §3.2.2: the target's host replaces that of Host.
        let request = format!("GET {target} HTTP/1.1\r\nX: y\r\nHost: test\r\n\r\n");
        let seen = format!("GET {sent_on} HTTP/1.1\r\nHost: other:81\r\nX: y\r\n{ours}\r\n");
        seen_by_server(&scene, &request, &seen);
    }
    for (target, sent_on) in [("*", "*"), ("http://test", "*"), ("http://test/", "/"), ("/", "/")] {
        let request = format!("OPTIONS {target} HTTP/1.1\r\nHost: test\r\n\r\n");
        seen_by_server(
            &scene,
            &request,
            &format!("OPTIONS {sent_on} HTTP/1.1\r\nHost: test\r\n{{ours}}\r\n"),
        );
    }
    for path in ["//double//slash/", "/a/../b", "/%00%ff", "/a?b?c", "/;p=1?{}|\\^`\"<>"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        seen_by_server(&scene, &request, &format!("GET {path} HTTP/1.1\r\nHost: test\r\n{{ours}}\r\n"));
    }
}

#[test]
fn methods_that_nobody_knows_are_passed_on() {
    let scene = Scene::new();
    for method in ["BREW", "get", "M-SEARCH", "DELETE", "PATCH"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: test\r\n\r\n");
        seen_by_server(&scene, &request, &format!("{method} / HTTP/1.1\r\nHost: test\r\n{{ours}}\r\n"));
    }
}

#[test]
fn every_valid_host_is_passed_through() {
    let scene = Scene::new();
    for host in ["test", "TEST:80", "127.0.0.1", "[::1]:8080", "a.b-c_d~e", "test:"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let ours = added("1.1", host);
        seen_by_server(&scene, &request, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n{ours}\r\n"));
    }
}

#[test]
fn host_can_be_the_servers_or_a_fixed_one() {
    let server = Scene::with(|config| config.upstreams[0].host = HostHeader::Server);
    seen_by_server(&server, GET, "GET / HTTP/1.1\r\nHost: {server}\r\n{ours}\r\n");
    let fixed = Scene::with(|config| config.upstreams[0].host = HostHeader::Set("fixed.test:8".to_owned()));
    // The forwarding fields contain the client's host.
    seen_by_server(&fixed, GET, "GET / HTTP/1.1\r\nHost: fixed.test:8\r\n{ours}\r\n");
    seen_by_server(
        &fixed,
        "GET http://test/x HTTP/1.1\r\nA: 1\r\nHost: ignored\r\nB: 2\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: fixed.test:8\r\nA: 1\r\nB: 2\r\n{ours}\r\n",
    );
}

#[test]
fn options_that_may_go_no_further_is_answered_by_the_proxy() {
    // RFC 9110 §7.6.2.
    Scene::new().play(
        "Max-Forwards",
        &[
            ClientSends("OPTIONS * HTTP/1.1\r\nHost: test\r\nMax-Forwards: 0\r\n\r\n"),
            ClientGets(
                "HTTP/1.1 204 No Content\r\nAllow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\nDate: {date}\r\n\r\n",
            ),
            ClientSends("OPTIONS * HTTP/1.1\r\nHost: test\r\nMax-Forwards: 8\r\nX: y\r\n\r\n"),
            ServerAccepts,
            ServerGets("OPTIONS * HTTP/1.1\r\nHost: test\r\nX: y\r\nMax-Forwards: 7\r\n{ours}\r\n"),
            ServerSends(OK),
            ClientGets(OK_GOT),
            // Other methods ignore it.
            ClientSends("GET / HTTP/1.1\r\nHost: test\r\nMax-Forwards: 0\r\n\r\n"),
            ServerGets("GET / HTTP/1.1\r\nHost: test\r\nMax-Forwards: 0\r\n{ours}\r\n"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn connect_and_trace_are_refused() {
    for line in ["CONNECT test:443", "TRACE /"] {
        let scene = Scene::new();
        let mut client = scene.client().saying(format!("{line} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let message = client.message();
        assert_eq!(message.status(), 405, "{line}");
        assert!(message.head.contains("\r\nAllow: GET, HEAD, "), "{}", message.head);
        client.gets_the_end();
        scene.assert_no_more_connections();
    }
}

#[test]
fn the_most_specific_route_decides_and_without_one_it_is_404() {
    let scene = Scene::with_servers(&[1, 1], |config| {
        let mut upstream = config.upstreams[0].clone();
        upstream.name = "second".to_owned();
        upstream.servers = vec![config.upstreams[0].servers.remove(1)];
        config.upstreams.push(upstream);
        config.routes =
            [Route::to(None, "/api", 0), Route::to(Some("test"), "/", 1), Route::to(Some("test"), "/api", 0)]
                .map(Shared::from)
                .into();
    });
    let not_found = failure_and_go_on("404 Not Found", "Nothing is served under this host and path.");
    let dots = failure_and_close("400 Bad Request", "The path is ambiguous.");
    for (host, path, server) in [
        ("test", "/api", Ok(0)),
        ("TEST:81", "/api/x?y", Ok(0)),
        ("test", "/apix", Ok(1)),
        ("test", "/", Ok(1)),
        ("other", "/api/", Ok(0)),
        ("other", "/apix", Err(&not_found)),
        ("other", "/x?/api", Err(&not_found)),
        // Paths that another parser might take for /api.
        ("test", "/x/../api", Err(&dots)),
        ("test", "/x/%2e%2E/api", Err(&dots)),
        ("other", "/api;v=1/x", Err(&dots)),
        ("other", "/api%5Cx", Err(&dots)),
    ] {
        let mut client = scene.client();
        client.sends(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        match server {
            Ok(server) => {
                let mut server = scene.accept(server).after_head();
                server.sends(OK);
                client.gets(&expand(OK_GOT, ""));
            }
            Err(answer) => {
                client.gets(&expand(answer, ""));
                if answer.contains("Connection: close") {
                    client.gets_the_end();
                }
            }
        }
    }
    scene.assert_no_more_connections();
}

#[test]
fn a_listener_that_redirects_sends_every_request_to_https() {
    let scene = Scene::with(|config| config.listeners[0].redirect_to_https = true);
    for (request, location) in [
        ("GET /a/b?c=d HTTP/1.1\r\nHost: Test:8080", "https://Test/a/b?c=d"),
        ("POST http://other:81 HTTP/1.1\r\nHost: test", "https://other/"),
        ("GET http://other?q HTTP/1.1\r\nHost: test", "https://other/?q"),
        ("OPTIONS * HTTP/1.1\r\nHost: [::1]:80", "https://[::1]/"),
    ] {
        let answer = format!(
            "HTTP/1.1 308 Permanent Redirect\r\nContent-Length: 0\r\nLocation: {location}\r\nDate: {{date}}\r\n\r\n"
        );
        let mut client = scene.client();
        for _ in 0..2 {
            client.sends(format!("{request}\r\n\r\n"));
            client.gets(&expand(&answer, ""));
        }
    }
    let mut client = scene.client().saying("GET / HTTP/1.0\r\n\r\n");
    client.gets(&expand(&failure_and_close("400 Bad Request", "The request has no valid Host."), ""));
    client.gets_the_end();
    scene.assert_no_more_connections();
}
