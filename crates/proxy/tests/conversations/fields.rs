//! Fields that end at this hop, and fields that it adds (RFC 9110 §7.6, RFC 7239).

use testkit::text::{GET, OK, OK_GOT};

use super::scene::Scene;
use super::scene::Step::*;

#[test]
fn hop_by_hop_fields_end_here_in_both_directions() {
    Scene::new().play(
        "hop by hop",
        &[
            ClientSends(
                "GET / HTTP/1.1\r\nHost: test\r\nConnection: keep-alive, X-Mine, close-by\r\nKeep-Alive: 5\r\n\
                 X-Mine: 1\r\nx-mine: 2\r\nX-Mine-Not: 3\r\nProxy-Connection: close\r\nProxy-Authorization: a\r\n\
                 TE: gzip\r\nClose-By: x\r\nUpgrade: websocket\r\nCookie: a=b\r\n\r\n",
            ),
            ServerAccepts,
            ServerGets("GET / HTTP/1.1\r\nHost: test\r\nX-Mine-Not: 3\r\nCookie: a=b\r\n{ours}\r\n"),
            ServerSends(
                "HTTP/1.1 200 OK\r\nConnection: X-Theirs\r\nDate: D\r\nKeep-Alive: timeout=5\r\nX-Theirs: 1\r\n\
                 Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 2\r\n\r\nok",
            ),
            ClientGets(
                "HTTP/1.1 200 OK\r\nDate: D\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 2\r\n{via}\r\nok",
            ),
        ],
    );
}

/// RFC 7838 §3: the ports belong to the server's host, and would lead clients past the proxy.
#[test]
fn ports_of_the_server_do_not_reach_clients() {
    let answer = |alt_svc: &str| {
        format!(
            "HTTP/1.1 103 Early Hints\r\n{alt_svc}Link: </a>\r\n\r\n\
             HTTP/1.1 200 OK\r\nDate: D\r\n{alt_svc}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n{alt_svc}X-End: 1\r\n\r\n"
        )
    };
    let got = |alt_svc: &str| {
        format!(
            "HTTP/1.1 103 Early Hints\r\n{alt_svc}Link: </a>\r\n{{via}}\r\n\
             HTTP/1.1 200 OK\r\nDate: D\r\n{alt_svc}Transfer-Encoding: chunked\r\n{{via}}\r\n2\r\nok\r\n0\r\nX-End: 1\r\n\r\n"
        )
    };
    let alt_svc = "Alt-Svc: h3=\":9443\"; ma=3600\r\n";
    for passes in [false, true] {
        let scene = Scene::with(|config| config.routes[0].policies.options.alt_svc = passes);
        let (sent, seen) = (answer(alt_svc), got(if passes { alt_svc } else { "" }));
        let steps = [
            ClientSends(GET),
            ServerAccepts,
            ServerGets(testkit::text::GET_SEEN),
            ServerSends(&sent),
            ClientGets(&seen),
        ];
        scene.play("Alt-Svc", &steps);
    }
}

#[test]
fn a_client_that_takes_trailers_is_one_whose_proxy_does() {
    // RFC 9110 §10.1.4.
    Scene::new().play(
        "TE",
        &[
            ClientSends("GET / HTTP/1.1\r\nHost: test\r\nTE: deflate, trailers\r\nConnection: TE\r\n\r\n"),
            ServerAccepts,
            ServerGets("GET / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: TE\r\n{ours}\r\n"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

const TOLD: &str = "GET / HTTP/1.1\r\nHost: test\r\nVia: 1.0 other\r\nX-Forwarded-For: 192.0.2.1\r\n\
    X-Forwarded-For: 192.0.2.2, 192.0.2.3\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: public\r\n\
    X-Forwarded-Port: 443\r\nX_Forwarded_For: 192.0.2.4\r\nForwarded: for=192.0.2.1;proto=https\r\n\r\n";

#[test]
fn what_a_stranger_says_of_whom_it_forwards_for_is_replaced() {
    Scene::new().play(
        "not trusted",
        &[
            ClientSends(TOLD),
            ServerAccepts,
            ServerGets("GET / HTTP/1.1\r\nHost: test\r\nVia: 1.0 other\r\n{ours}\r\n"),
            ServerSends(OK),
            ClientGets(OK_GOT),
        ],
    );
}

#[test]
fn what_a_trusted_proxy_says_is_appended_to() {
    let scene = Scene::with(|config| {
        config.trusted_proxies = vec![config::network("127.0.0.0/8").expect("is a network")];
    });
    let ours_alone =
        [ClientSends(GET), ServerGets(testkit::text::GET_SEEN), ServerSends(OK), ClientGets(OK_GOT)];
    let told = [
        ClientSends(TOLD),
        ServerAccepts,
        ServerGets(
            "GET / HTTP/1.1\r\nHost: test\r\nVia: 1.0 other\r\nX-Forwarded-Port: 443\r\nVia: 1.1 vanward\r\n\
             X-Forwarded-For: 192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1\r\nX-Forwarded-Proto: https\r\n\
             X-Forwarded-Host: public\r\nForwarded: for=192.0.2.1, for=192.0.2.2, \
             for=192.0.2.3;proto=https;host=\"public\", for=127.0.0.1\r\n\r\n",
        ),
        ServerSends(OK),
        ClientGets(OK_GOT),
    ];
    scene.play("trusted", &[told.as_slice(), &ours_alone].concat());
}

#[test]
fn other_fields_pass_as_they_came() {
    // Order, case, inner spaces, empty values, repeated names and bytes beyond ASCII.
    let fields = "b: 1\r\nA: \t two  words \r\nB:3\r\nEmpty:\r\nAccept-Encoding: gzip\r\nX: \u{fc}\r\n";
    let request = format!("GET / HTTP/1.1\r\nhOST:   test  \r\n{fields}\r\n");
    let seen = format!("GET / HTTP/1.1\r\nhOST:   test  \r\n{fields}{{ours}}\r\n");
    let response = format!("HTTP/1.1 299 So So\r\n{fields}Date: D\r\nContent-Length: 0\r\n\r\n");
    let got = format!("HTTP/1.1 299 So So\r\n{fields}Date: D\r\nContent-Length: 0\r\n{{via}}\r\n");
    Scene::new().play(
        "as they came",
        &[ClientSends(&request), ServerAccepts, ServerGets(&seen), ServerSends(&response), ClientGets(&got)],
    );
}
