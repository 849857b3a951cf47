//! `timeouts.request`: a request that takes too long ends in any phase. No test measures time: one side stays silent
//! until the proxy gives up.

use testkit::http1::{Http1Peer, ReaderEnding};
use testkit::http2::frame::{CANCEL, H2Frame, INTERNAL_ERROR, last_headers};
use testkit::http3::Got;

use super::scene::{ALL, Scene, Spoken};

const GLOBAL: &str = "timeouts = { request = \"800ms\", client_header = \"2s\" }";
const DETAIL: &str = "the response was not complete within timeouts.request, 800ms";
const OF_ROUTE: &str = "the response was not complete within timeouts.request of the route, 800ms";
const VERSIONS: [&str; 3] = ["1.1", "2.0", "3.0"];
const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const BEGUN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\nabc";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The status that a client gets, and whether the response is reset. The server sends `answer` and no more; no server is
/// asked if that is `None`.
fn told(scene: &Scene, spoken: Spoken, answer: Option<&str>) -> (u16, bool) {
    let server = || {
        answer.map(|answer| {
            let mut server = scene.accept1();
            server.head();
            server.sends(answer);
            server
        })
    };
    match spoken {
        Spoken::Http1 => {
            let mut client = scene.client1();
            client.sends(GET.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1));
            let _server = server();
            // Read before the reset, which takes what the kernel still has.
            let head = client.head();
            let (_, ending) = client.rest();
            (head[9..12].parse().expect("a status"), ending == ReaderEnding::Reset)
        }
        Spoken::Http2 => {
            let mut client = scene.client2();
            client.sends(last_headers(1, ":method: GET\n:scheme: http\n:authority: test\n:path: /\n"));
            let _server = server();
            let H2Frame::Headers { fields, .. } = client.next_on(1) else { panic!("a head comes first") };
            let status = status(&fields);
            loop {
                match client.next_on(1) {
                    H2Frame::Data { ends, .. } if ends => return (status, false),
                    H2Frame::Data { .. } => {}
                    H2Frame::Reset { code, .. } => {
                        return (status, matches!(code, CANCEL | INTERNAL_ERROR));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        Spoken::Http3 => {
            let client = scene.client3();
            let mut stream = client.asks("GET", "/", "");
            let _server = server();
            let Got::Headers(fields) = stream.gets() else { panic!("a head comes first") };
            let status = status(&fields);
            loop {
                match stream.gets() {
                    Got::End => return (status, false),
                    Got::Reset(_) => return (status, true),
                    _ => {}
                }
            }
        }
    }
}

fn status(fields: &str) -> u16 {
    let line = fields.lines().find_map(|line| line.strip_prefix(":status: "));
    line.and_then(|status| status.parse().ok()).expect("a status")
}

/// Waits for longer than a request may take, until an incomplete head has timed out.
fn outlast(scene: &Scene) {
    let mut clock = scene.client1();
    clock.sends("G");
    assert_eq!(clock.message().status(), 408);
}

#[test]
fn a_response_that_does_not_begin_is_504_and_one_that_does_not_end_is_reset() {
    for (place, spoken) in ALL.into_iter().enumerate() {
        for (answer, status) in [("", 504), (BEGUN, 200)] {
            let scene = Scene::to(Spoken::Http1, GLOBAL);
            assert_eq!(told(&scene, spoken, Some(answer)), (status, status == 200), "{spoken:?}");
            scene.tells(&format!("{spoken:?}"), VERSIONS[place], status, "request-timeout", DETAIL);
        }
    }
}

#[test]
fn a_response_that_comes_piece_by_piece_may_take_no_longer() {
    let scene = Scene::to(Spoken::Http1, GLOBAL);
    let mut client = scene.client1();
    client.sends(GET);
    let mut server = scene.accept1();
    server.head();
    server.sends(BEGUN);
    // Each piece is in time, so no other time-out ends the response.
    while server.can_send(b"d") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (_, ending) = client.rest();
    assert_eq!(ending, ReaderEnding::Reset);
    scene.tells("drips", "1.1", 200, "request-timeout", DETAIL);
}

#[test]
fn a_request_body_counts_as_well() {
    for more in ["", "request_buffering = true"] {
        let route = format!(
            "[[route]]\npath = \"/up\"\nupstream = \"app\"\n{more}\ntimeouts = {{ request = \"800ms\" }}"
        );
        let scene = Scene::to(Spoken::Http1, &route);
        let mut client = scene.client1();
        client.sends("POST /up HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc");
        assert_eq!(client.message().status(), 504, "{more}");
        scene.tells(more, "1.1", 504, "request-timeout", OF_ROUTE);
    }
}

#[test]
fn the_queue_and_all_attempts_count() {
    let limited = "[[route]]\npath = \"/limited\"\nupstream = \"app\"\n\
        retry = { attempts = 10, on = [\"timeout\"] }\n\
        timeouts = { request = \"800ms\", upstream_first_byte = \"300ms\" }";
    let scene = Scene::to(Spoken::Http1, limited);
    let mut client = scene.client1();
    client.sends(GET.replacen("/ ", "/limited ", 1));
    let _attempts: [Http1Peer; 2] = [scene.accept1(), scene.accept1()];
    assert_eq!(client.message().status(), 504);
    let after =
        "the server did not begin to answer within timeouts.upstream_first_byte of the route, 300ms; ";
    scene.tells("attempts", "1.1", 504, "request-timeout", &format!("{after}{OF_ROUTE}"));

    let (tcp, quic) = (testkit::ports::listen(), testkit::http3::H3TestServer::new());
    let address = tcp.local_addr().expect("it listens");
    let one = format!("servers = [{{ url = \"http://{address}\", max_requests = 1 }}]");
    let scene = Scene::at(&one, limited, tcp, quic);
    let mut first = scene.client1();
    first.sends(GET);
    let mut server = scene.accept1();
    server.head();
    let mut client = scene.client1();
    client.sends(GET.replacen("/ ", "/limited ", 1));
    assert_eq!(client.message().status(), 504);
    scene.tells("queue", "1.1", 504, "request-timeout", OF_ROUTE);
    // It has left the queue, and the server has room for others.
    server.sends(OK);
    assert_eq!(first.message().status(), 200);
    first.sends(GET);
    server.head();
    server.sends(OK);
    assert_eq!(first.message().status(), 200);
}

#[test]
fn an_injected_delay_counts_and_the_connection_is_usable_afterwards() {
    let fault = "[[fault]]\ninject = \"delay 1h\"\npath = \"/\"\nfirst = 1";
    for (place, spoken) in ALL.into_iter().enumerate() {
        let scene = Scene::to(Spoken::Http1, &format!("{GLOBAL}\n{fault}"));
        assert_eq!(told(&scene, spoken, None), (504, false), "{spoken:?}");
        scene.tells(&format!("{spoken:?}"), VERSIONS[place], 504, "request-timeout", DETAIL);
        scene.waits("the fault is counted", |counters| counters.faults_injected == 1);
    }
    let scene = Scene::to(Spoken::Http1, &format!("{GLOBAL}\n{fault}"));
    let mut client = scene.client1();
    client.sends(GET);
    assert_eq!(client.message().status(), 504);
    client.sends(GET);
    let mut server = scene.accept1();
    server.head();
    server.sends(OK);
    assert_eq!(client.message().status(), 200);
}

/// A scene with one server, whose circuit opens with its first failure.
fn with_circuit(tables: &str, more: &str) -> Scene {
    let (tcp, quic) = (testkit::ports::listen(), testkit::http3::H3TestServer::new());
    let address = tcp.local_addr().expect("it listens");
    let breaker = "breaker = { failures = 1, open = \"1h\", open_max = \"1h\" }";
    Scene::at(&format!("servers = [\"http://{address}\"]\n{breaker}\n{more}"), tables, tcp, quic)
}

/// Asserts that the server is still asked.
fn is_asked(scene: &Scene) {
    let mut client = scene.client1();
    client.sends(GET.replacen("/ ", "/free ", 1));
    let mut server = scene.accept1();
    server.head();
    server.sends(OK);
    assert_eq!(client.message().status(), 200);
}

#[test]
fn a_server_that_does_not_answer_in_time_has_failed() {
    for spoken in ALL {
        let scene = with_circuit(GLOBAL, "");
        assert_eq!(told(&scene, spoken, Some("")), (504, false), "{spoken:?}");
        assert_eq!(told(&scene, spoken, None), (503, false), "{spoken:?}: the circuit is open");
    }
}

#[test]
fn a_server_that_waits_for_the_client_or_has_little_time_has_not_failed() {
    let free = "[[route]]\npath = \"/free\"\nupstream = \"app\"";
    // Long enough for a machine that pauses to ask the server.
    let upload = "[[route]]\npath = \"/up\"\nupstream = \"app\"\ntimeouts = { request = \"3s\" }";
    let scene = with_circuit(&format!("{upload}\n{free}"), "");
    let mut client = scene.client1();
    client.sends("POST /up HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc");
    let mut server = scene.accept1();
    server.head();
    assert_eq!(client.message().status(), 504);
    is_asked(&scene);

    let late = "[[route]]\npath = \"/late\"\nupstream = \"app\"\ndelay = \"800ms\"\n\
        timeouts = { request = \"1s\" }";
    let scene = with_circuit(&format!("{late}\n{free}"), "");
    let mut client = scene.client1();
    client.sends(GET.replacen("/ ", "/late ", 1));
    // A machine that pauses may not ask the server at all.
    assert_eq!(client.message().status(), 504);
    scene.tcp.set_nonblocking(true).expect("it can be set");
    drop(scene.tcp.accept());
    scene.tcp.set_nonblocking(false).expect("it can be set");
    is_asked(&scene);
}

#[test]
fn what_a_time_out_drops_gives_its_place_back() {
    let free = "[[route]]\npath = \"/free\"\nupstream = \"app\"\ntimeouts = { request = \"none\" }";
    let (tcp, quic) = (testkit::ports::listen(), testkit::http3::H3TestServer::new());
    let address = tcp.local_addr().expect("it listens");
    let one = format!("servers = [{{ url = \"http://{address}\", max_requests = 1 }}]");
    let scene = Scene::at(&one, &format!("{GLOBAL}\n{free}"), tcp, quic);
    for spoken in ALL {
        assert_eq!(told(&scene, spoken, Some("")), (504, false), "{spoken:?}");
        is_asked(&scene);
    }
}

#[test]
fn a_tunnel_and_a_route_without_a_limit_outlast_it() {
    let free = "[[route]]\npath = \"/free\"\nupstream = \"app\"\ntimeouts = { request = \"none\" }";
    let scene = Scene::to(Spoken::Http1, &format!("{GLOBAL}\n{free}"));
    let mut free = scene.client1();
    free.sends(GET.replacen("/ ", "/free ", 1));
    let mut server = scene.accept1();
    server.head();
    let mut client = scene.client1();
    client.sends("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut other = scene.accept1();
    other.head();
    other.sends("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    outlast(&scene);
    server.sends(OK);
    assert_eq!(free.message().status(), 200);
    client.sends("ping");
    other.gets(b"ping");
}
