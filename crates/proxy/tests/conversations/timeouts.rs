//! Time-outs, each with its status. No test measures time: one side stays silent until the proxy gives up.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use config::Settings;
use testkit::http1::ReaderEnding;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand, failure_and_close, failure_and_go_on};

use super::scene::Scene;
use super::scene::Step::*;

const SHORT: Duration = Duration::from_millis(300);
/// The minimum window of a minimum rate.
const WINDOW: Duration = Duration::from_secs(1);

/// All time-outs are long, except those that `shorten` changes.
fn scene(shorten: impl FnOnce(&mut Settings)) -> Scene {
    Scene::with(shorten)
}

/// Waits until an incomplete head has timed out.
fn outlast(scene: &Scene) {
    let mut clock = scene.client().saying("G");
    assert_eq!(clock.message().status(), 408);
}

#[test]
fn a_request_head_that_does_not_arrive_is_408() {
    let scene = scene(|config| config.timeouts.client_header = SHORT);
    let late = failure_and_close("408 Request Timeout", "The request head did not arrive in time.");
    scene.play("half a head", &[ClientSends("GET / HTTP/1.1\r\nHo"), ClientGets(&late), ClientGetsEnd]);
    scene.play(
        "half a second head",
        &[ClientSends(GET), ServerAccepts, IsServed, ClientSends("G"), ClientGets(&late), ClientGetsEnd],
    );
    // A client that has sent nothing gets no response.
    scene.play("silence", &[ClientGetsEnd]);
    scene.assert_failures(&["client-header-timeout"; 2]);
}

/// A worker without connections lets its clock lag: a new client nevertheless gets its full time-out.
#[test]
fn a_rest_before_it_shortens_no_time_out() {
    const LIMIT: Duration = Duration::from_millis(600);
    let scene = scene(|config| config.timeouts.client_header = LIMIT);
    for rest_ms in [0, 900, 1_700] {
        std::thread::sleep(Duration::from_millis(rest_ms));
        let began = Instant::now();
        let mut client = scene.client().saying("GET / HTTP/1.1\r\n");
        assert_eq!(client.message().status(), 408);
        assert!(began.elapsed() >= LIMIT, "{:?} after a rest of {rest_ms} ms", began.elapsed());
    }
}

#[test]
fn a_slow_head_is_dropped_however_steadily_it_comes() {
    let scene = scene(|config| config.timeouts.client_header = SHORT);
    let mut client = scene.client().saying("GET / HTTP/1.1\r\n");
    let mut writer = client.stream().try_clone().expect("a descriptor is free");
    let steady = std::thread::spawn(move || {
        use std::io::Write;
        // Each byte is well within the time-out, which covers the whole head.
        while writer.write_all(b"a").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(client.message().status(), 408);
    // Further bytes are discarded, until the client stops or the linger time ends.
    client.stream().shutdown(std::net::Shutdown::Both).expect("is connected");
    steady.join().expect("no panic");
}

#[test]
fn a_request_body_that_stops_is_408() {
    let scene = scene(|config| config.timeouts.client_body = SHORT);
    let late = failure_and_close("408 Request Timeout", "The request body did not arrive in time.");
    scene.play(
        "half a body",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc"),
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n{ours}\r\nabc"),
            ClientGets(&late),
            ClientGetsEnd,
            ServerIsClosed,
        ],
    );
    scene.assert_failures(&["client-body-timeout"]);
}

#[test]
fn the_server_has_its_whole_time_from_the_end_of_the_request_on() {
    const LIMIT: Duration = Duration::from_millis(800);
    let scene = scene(|config| {
        config.timeouts.upstream_first_byte = LIMIT;
        config.timeouts.client_header = 2 * SHORT;
    });
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc");
    let mut server = scene.accept(0).after_head();
    outlast(&scene);
    let began = Instant::now();
    client.sends("defghi");
    server.gets(b"abcdefghi");
    assert_eq!(client.message().status(), 504);
    assert!(began.elapsed() >= LIMIT, "{:?}", began.elapsed());
}

const EXPECTS: &str = "PUT / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

/// RFC 9110 §10.1.1: a client that waits for 100 (Continue) is not late with its body.
#[test]
fn a_body_that_nobody_has_asked_for_is_not_late() {
    let scene = scene(|config| {
        config.timeouts.client_body = WINDOW;
        config.timeouts.client_header = WINDOW + SHORT;
        config.limits.minimum_rate_bytes_per_second = 10;
        config.limits.rate_window = WINDOW;
    });
    let late = failure_and_close("408 Request Timeout", "The request body arrives too slowly.");
    for sends in [true, false] {
        let mut client = scene.client().saying(EXPECTS);
        let mut server = scene.accept(0).after_head();
        outlast(&scene);
        // Another interim response does not ask for the body.
        server.sends("HTTP/1.1 103 Early Hints\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 103 "));
        outlast(&scene);
        server.sends("HTTP/1.1 100 Continue\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 100 "));
        if sends {
            client.sends("hello");
            server.gets(b"hello");
            server.sends(OK.replace("Date", "Connection: close\r\nDate"));
            client.gets(&expand(OK_GOT, ""));
        } else {
            // The body is late now.
            client.gets(&expand(&late, ""));
            server.is_closed();
        }
    }
}

#[test]
fn a_server_that_does_not_ask_for_a_body_is_504() {
    let scene = scene(|config| {
        config.timeouts.client_body = SHORT;
        config.timeouts.upstream_first_byte = 2 * SHORT;
    });
    let late = failure_and_close("504 Gateway Timeout", "The server did not respond in time.");
    scene.play(
        "no 100",
        &[
            ClientSends(EXPECTS),
            ServerAccepts,
            ServerGets(&EXPECTS.replace("\r\n\r\n", "\r\n{ours}\r\n")),
            ClientGets(&late),
            ClientGetsEnd,
            ServerIsClosed,
        ],
    );
    scene.assert_failures(&["upstream-timeout"]);
}

/// Once the response is under way, the client may pause in the rest of its request: before its end, within it, or (RFC
/// 9110 §10.1.1) forever.
#[test]
fn a_pause_of_the_client_does_not_cut_the_response_that_is_under_way() {
    let expects = "Expect: 100-continue\r\n";
    for (expectation, piece) in [("", "3\r\none\r\n"), (expects, "")] {
        let scene = scene(|config| {
            config.timeouts.client_body = SHORT;
            config.timeouts.client_header = WINDOW + SHORT;
            config.limits.minimum_rate_bytes_per_second = 1_000_000;
            config.limits.rate_window = WINDOW;
        });
        let head = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n";
        let mut client = scene.client().saying(format!("{head}{expectation}\r\n{piece}"));
        let mut server = scene.accept(0).after_head();
        server.gets(piece.as_bytes());
        server.sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.head();
        for _ in 0..2 {
            outlast(&scene);
            server.sends("3\r\nONE\r\n");
            client.gets(b"3\r\nONE\r\n");
        }
        if expectation.is_empty() {
            client.sends("3\r\ntwo\r\n");
            server.gets(b"3\r\ntwo\r\n");
        }
        server.sends("0\r\n\r\n");
        client.gets(b"0\r\n\r\n");
        client.gets_the_end();
        scene.assert_failures(&["client-header-timeout"; 2]);
    }
}

/// The minimum rate only covers bytes that are due: a client that has announced none is not slow.
#[test]
fn a_client_that_owes_nothing_is_not_too_slow() {
    let quiet = |config: &mut Settings| {
        config.timeouts.client_header = WINDOW + SHORT;
        config.limits.minimum_rate_bytes_per_second = 1_000_000;
        config.limits.rate_window = WINDOW;
    };
    let post = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    for piece in ["", "3\r\nsub\r\n"] {
        let scene = scene(quiet);
        let mut client = scene.client().saying(format!("{post}{piece}"));
        let mut server = scene.accept(0).after_head();
        server.gets(piece.as_bytes());
        outlast(&scene);
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.message().status(), 200, "{piece}");
        scene.assert_failures(&["client-header-timeout"]);
    }
    for piece in ["5\r\nhe", "5", "0\r\nA: b"] {
        let scene = scene(quiet);
        let mut client = scene.client().saying(format!("{post}{piece}"));
        assert_eq!(client.message().status(), 408, "{piece}");
        scene.assert_failures(&["client-too-slow"]);
    }
}

/// Bidirectional streaming stays alive as long as either direction moves.
#[test]
fn a_response_is_not_late_while_its_request_moves() {
    let scene = scene(|config| {
        config.timeouts.upstream_body = 4 * SHORT;
        config.timeouts.client_header = SHORT;
    });
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    let mut server = scene.accept(0).after_head();
    server.gets(b"3\r\none\r\n");
    server.sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.head();
    for _ in 0..6 {
        outlast(&scene);
        client.sends("3\r\ntwo\r\n");
        server.gets(b"3\r\ntwo\r\n");
    }
    server.sends("3\r\nend\r\n0\r\n\r\n");
    client.gets(b"3\r\nend\r\n0\r\n\r\n");
    scene.assert_failures(&["client-header-timeout"; 6]);
}

#[test]
fn a_response_that_does_not_begin_is_504() {
    let scene = scene(|config| config.timeouts.upstream_first_byte = SHORT);
    let late = failure_and_go_on("504 Gateway Timeout", "The server did not respond in time.");
    scene.play(
        "no response",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ClientGets(&late),
            ServerIsClosed,
            // An incomplete head does not count either.
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.1 200 OK\r\n"),
            ClientGets(&late),
            ServerIsClosed,
        ],
    );
    scene.assert_failures(&["upstream-timeout"; 2]);
}

#[test]
fn a_response_body_that_stops_is_cut() {
    let scene = scene(|config| config.timeouts.upstream_body = SHORT);
    scene.play(
        "half a body",
        &[
            ClientSends(GET),
            ServerAccepts,
            ServerGets(GET_SEEN),
            ServerSends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 9\r\n\r\nabc"),
            ClientGets("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 9\r\n{via}\r\nabc"),
            ClientGetsEnd,
            ServerIsClosed,
        ],
    );
    scene.assert_failures(&["upstream-stalled"]);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let scene = scene(|config| config.timeouts.keep_alive = SHORT);
    scene.play("idle", &[ClientSends(GET), ServerAccepts, IsServed, ClientGetsEnd]);
    scene.assert_failures(&[]);
}

/// RFC 9112 §2.2: a client may send an empty line after a request.
#[test]
fn a_line_end_behind_a_request_is_not_half_of_the_next() {
    for (stray, rest) in [("\r\n", ""), ("\r", "\n")] {
        let scene = scene(|config| config.timeouts.client_header = SHORT);
        let mut client = scene.client().saying(GET);
        let mut server = scene.accept(0);
        server.gets(&expand(GET_SEEN, ""));
        server.sends(OK);
        client.gets(&expand(OK_GOT, ""));
        client.sends(stray);
        // Twice the time-out of an incomplete head.
        outlast(&scene);
        outlast(&scene);
        client.has_nothing();
        client.sends(format!("{rest}{GET}"));
        server.gets(&expand(GET_SEEN, ""));
        server.sends(OK);
        client.gets(&expand(OK_GOT, ""));
        client.sends(stray);
        client.half_closes();
        client.gets_the_end();
        scene.assert_failures(&["client-header-timeout"; 2]);
    }
}

#[test]
fn a_connection_with_half_a_line_end_is_idle() {
    let scene = scene(|config| config.timeouts.keep_alive = SHORT);
    scene.play(
        "half a line end",
        &[ClientSends(GET), ServerAccepts, IsServed, ClientSends("\r"), ClientGetsEnd],
    );
    scene.assert_failures(&[]);
}

#[test]
fn a_client_that_takes_nothing_is_dropped() {
    for of_route in [false, true] {
        let scene = scene(|config| match of_route {
            false => config.timeouts.client_write = SHORT,
            true => config.routes[0].policies.timeouts.client_write = Some(SHORT),
        });
        let (mut client, server) = endless_response(&scene);
        server.join().expect("no panic");
        // Bytes under way may still arrive, but never the complete response.
        let (rest, ending) = client.rest();
        assert!(rest.len() < RESPONSE_BYTES);
        // Unread data does not stay in the kernel.
        assert_eq!(ending, ReaderEnding::Reset);
        scene.assert_failures(&["client-stalled"]);
    }
}

const RESPONSE_BYTES: usize = 256 << 20;

/// A client that requests more than all buffers hold and does not read. The server ends once the proxy closes its
/// connection.
fn endless_response(scene: &Scene) -> (testkit::http1::Http1Peer, std::thread::JoinHandle<()>) {
    let client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    let thread = std::thread::spawn(move || {
        server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {RESPONSE_BYTES}\r\n\r\n"));
        let piece = vec![b'x'; 1 << 20];
        let taken = (0..RESPONSE_BYTES >> 20).take_while(|_| server.can_send(&piece)).count();
        assert!(taken < RESPONSE_BYTES >> 20, "the proxy took all of it");
    });
    (client, thread)
}

#[test]
fn a_client_below_the_minimum_rate_is_dropped() {
    // Long time-outs, so that only the rate counts.
    is_dropped_for_slowness(|config| {
        config.limits.minimum_rate_bytes_per_second = 1_000_000;
        config.limits.rate_window = WINDOW;
    });
    is_dropped_for_slowness(|config| {
        config.limits.minimum_rate_bytes_per_second = 0;
        let limits = &mut config.routes[0].policies.limits;
        limits.minimum_rate_bytes_per_second = Some(1_000_000);
        limits.rate_window = Some(WINDOW);
    });
}

fn is_dropped_for_slowness(slow: impl Fn(&mut Settings) + Copy) {
    let body = scene(slow);
    let answer = failure_and_close("408 Request Timeout", "The request body arrives too slowly.");
    let mut client = body.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc");
    let mut server = body.accept(0);
    server.gets(&expand("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n{ours}\r\nabc", ""));
    client.sends("d");
    client.gets(&expand(&answer, ""));
    client.gets_the_end();
    // Empty if the byte arrived too late.
    let (rest, _) = server.rest();
    assert!(rest.is_empty() || rest == b"d");
    body.assert_failures(&["client-too-slow"]);

    let reader = scene(slow);
    let (mut client, server) = endless_response(&reader);
    server.join().expect("no panic");
    let (rest, ending) = client.rest();
    assert!(rest.len() < RESPONSE_BYTES);
    assert_eq!(ending, ReaderEnding::Reset);
    reader.assert_failures(&["client-stalled"]);
}

#[test]
fn a_slow_client_above_the_minimum_rate_lives() {
    let scene = scene(|config| {
        config.limits.minimum_rate_bytes_per_second = 100;
        // Longer than a busy machine delays a thread.
        config.limits.rate_window = Duration::from_secs(1);
    });
    const PIECES: usize = 60;
    let mut client = scene.client();
    client.sends(format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", PIECES * 1000));
    let mut server = scene.accept(0).after_head();
    for _ in 0..PIECES {
        // The pace of a slow link: many windows in total, with far more than the minimum in each.
        std::thread::sleep(Duration::from_millis(50));
        client.sends([b'x'; 1000]);
        server.exactly(1000);
    }
    server.sends(OK);
    client.gets(&expand(OK_GOT, ""));
    assert_eq!(client.stream().peer_addr().ok(), Some(scene.address()));
}

/// The rate is the client's: time in which it waits for the server does not count.
#[test]
fn a_slow_server_does_not_make_its_client_slow() {
    let scene = scene(|config| {
        config.limits.minimum_rate_bytes_per_second = 1_000_000;
        config.limits.rate_window = WINDOW;
        config.timeouts.client_header = WINDOW + SHORT;
    });
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    server.sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.head();
    for _ in 0..3 {
        outlast(&scene);
        server.sends("8\r\n: event\n\r\n");
        client.gets(b"8\r\n: event\n\r\n");
    }
    server.sends("0\r\n\r\n");
    client.gets(b"0\r\n\r\n");
    scene.assert_failures(&["client-header-timeout"; 3]);
}

#[test]
fn a_server_of_whom_nothing_is_heard_at_all_is_504() {
    let (_listener, _queue, address) = deaf_server();
    let scene = scene(|config| {
        config.timeouts.upstream_connect = SHORT;
        config.upstreams[0].servers = vec![format!("http://{address}").parse().expect("is a URL")];
    });
    let late = failure_and_go_on("504 Gateway Timeout", "The server could not be reached in time.");
    scene.play("no connection", &[ClientSends(GET), ClientGets(&late)]);
    scene.assert_failures(&["upstream-connect-timeout"]);
}

#[test]
fn an_upstream_may_have_another_time_to_connect() {
    let (_listener, _queue, address) = deaf_server();
    let scene = scene(|config| {
        config.timeouts.upstream_connect = Duration::from_secs(600);
        config.upstreams[0].pool.connect_timeout = Some(SHORT);
        config.upstreams[0].servers = vec![format!("http://{address}").parse().expect("is a URL")];
    });
    let late = failure_and_go_on("504 Gateway Timeout", "The server could not be reached in time.");
    scene.play("no connection", &[ClientSends(GET), ClientGets(&late)]);
    scene.assert_failures(&["upstream-connect-timeout"]);
}

/// Once the client has sent more than all buffers hold, the time for the body is the server's.
#[test]
fn a_server_that_takes_no_more_of_a_body_is_504() {
    for shorten in [
        (|config: &mut Settings| config.timeouts.upstream_body = SHORT) as fn(&mut Settings),
        |config| config.timeouts.upstream_send = Some(SHORT),
        |config| config.routes[0].policies.timeouts.upstream_body = Some(SHORT),
        |config| {
            config.timeouts.upstream_send = Some(Duration::from_secs(600));
            config.routes[0].policies.timeouts.upstream_send = Some(SHORT);
        },
    ] {
        let scene = scene(shorten);
        let mut client = scene.client();
        client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000000\r\n\r\n");
        let server = scene.accept(0);
        let stream = client.stream().try_clone().expect("a socket");
        let sending = std::thread::spawn(move || {
            let mut client = testkit::http1::Http1Peer::new("client", stream);
            while client.can_send(&[b'x'; 100_000]) {}
        });
        assert_eq!(client.message().status(), 504);
        drop(client);
        sending.join().expect("it was let go");
        drop(server);
        scene.assert_failures(&["upstream-timeout"]);
    }
}

/// A listener whose queue is full, so that the kernel drops further connection attempts.
fn deaf_server() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port on loopback is free");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().expect("it listens").as_socket().expect("is of IPv4");
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, SHORT) {
        queue.push(stream);
        assert!(queue.len() < 100, "the queue of the listener never fills");
    }
    (listener, queue, address)
}

#[test]
fn a_late_end_of_a_body_is_not_the_end_of_the_connection_for_others() {
    // A client stalls, while the same worker serves another.
    let scene = Scene::new();
    let mut stalled = scene.client();
    stalled.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc");
    let mut stalled_server = scene.accept(0).after_head();
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    server.sends(OK);
    client.gets(&expand(OK_GOT, ""));
    stalled.sends("defghi");
    assert_eq!(stalled_server.exactly(9), b"abcdefghi");
    stalled_server.sends(OK);
    stalled.gets(&expand(OK_GOT, ""));
    stalled.half_closes();
    assert_eq!(stalled.rest(), (Vec::new(), ReaderEnding::End));
}
