//! Every documented fault, on every protocol that it can affect: what a client sees differs from what it sees without
//! the fault.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::changed::asks;

const MS: Duration = Duration::from_millis(1);
const BODY: &[u8] = b"0123456789";

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    Http1,
    Http1OverTls,
    Http2,
    Http2OverTls,
    /// Layer 4.
    Bytes,
}

use Carried::{Bytes, Http1, Http1OverTls, Http2, Http2OverTls};
use testkit::http1::{Http1Peer, ReaderEnding};
use testkit::http2::frame::{H2Frame, last_headers};
use testkit::http2::{H2End, PREFACE, frame};
use testkit::scene::{Scene, SceneClient, get};
use testkit::text::OK;
use testkit::tls::tunnel::NAME;
use testkit::tls::{TestAuthority, tunnel};
use testkit::wait::PATIENCE;

const ALL: [Carried; 5] = [Http1, Http1OverTls, Http2, Http2OverTls, Bytes];
const HTTP: [Carried; 4] = [Http1, Http1OverTls, Http2, Http2OverTls];

impl Carried {
    fn has_tls(self) -> bool {
        matches!(self, Http1OverTls | Http2OverTls)
    }

    fn is_http2(self) -> bool {
        matches!(self, Http2 | Http2OverTls)
    }
}

/// A proxy with a listener for each protocol, and a rule.
struct Stage {
    scene: Scene,
    authority: TestAuthority,
}

impl Stage {
    fn new(more: &str) -> Self {
        let authority = TestAuthority::new();
        authority.files("own", &[NAME]);
        let folder = authority.path().display();
        let scene = Scene::new(&format!(
            "admin = \"{{dir}}/admin\"\n{more}\n[timeouts]\nclient_header = \"2s\"\n[upstream.db]\nservers = [\"tcp://{}\"]\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ cert = \"{folder}/own.pem\", key = \"{folder}/own.key\" }}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\nname = \"bytes\"\ntcp = \"db\"\n",
            echo()
        ));
        Self { scene, authority }
    }

    fn address(&self, carried: Carried) -> std::net::SocketAddr {
        self.scene.running().addresses()[match carried {
            Http1OverTls | Http2OverTls => 0,
            Bytes => 1,
            Http1 | Http2 => 2,
        }]
    }

    fn connect(&self, carried: Carried) -> TcpStream {
        let stream = TcpStream::connect(self.address(carried)).expect("the proxy listens");
        match carried.has_tls() {
            true => tunnel::client(&self.authority, carried.is_http2(), stream),
            false => stream,
        }
    }

    fn client(&self, carried: Carried) -> SceneClient {
        let stream = self.connect(carried);
        match carried.is_http2() {
            true => SceneClient::Two(Box::new(H2End::client(stream, &[])), 1),
            false => SceneClient::One(Http1Peer::new("client", stream)),
        }
    }
}

/// A server that sends back what it gets.
fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut back = stream.try_clone().expect("is a socket");
                // Connections that end early are expected here.
                let _ = std::io::copy(&mut stream, &mut back);
                let _ = back.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

#[derive(Debug)]
struct Outcome {
    is_whole: bool,
    /// Bytes received until the client left, or the connection ended.
    bytes: usize,
    ending: ReaderEnding,
    took: Duration,
}

fn request(carried: Carried) -> Vec<u8> {
    let head = format!(":method: GET\n:scheme: http\n:authority: {NAME}\n:path: /\n");
    match carried {
        Bytes => BODY.to_vec(),
        Http1 | Http1OverTls => format!("GET / HTTP/1.1\r\nhost: {NAME}\r\n\r\n").into_bytes(),
        Http2 | Http2OverTls => [PREFACE.to_vec(), frame::settings(&[]), last_headers(1, &head)].concat(),
    }
}

/// The length of an HTTP/2 head depends on the date (Huffman coding).
const MORE_OR_LESS: usize = 16;

/// Sends one request, and reads to the end. The client closes when it has the response, or `leaves_with` bytes if the
/// response is wrong; with `None` it never closes.
fn outcome(stage: &Stage, carried: Carried, leaves_with: Option<usize>) -> Outcome {
    // A fault may delay the connection from its establishment on.
    let began = Instant::now();
    let mut stream = stage.connect(carried);
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let is_sent = stream.write_all(&request(carried)).is_ok();
    let mut got = Vec::new();
    let is_whole = |got: &[u8]| got.windows(BODY.len()).any(|part| part == BODY);
    let mut bytes_with_leave = None;
    let ending = loop {
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => break ReaderEnding::End,
            Ok(count) => got.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("{carried:?} goes on: {got:?}"),
            Err(_) => break ReaderEnding::Reset,
        }
        let has_enough =
            leaves_with.is_some_and(|most| is_whole(&got) || got.len().saturating_add(MORE_OR_LESS) >= most);
        if bytes_with_leave.is_none() && has_enough {
            bytes_with_leave = Some(got.len());
            // The other end may be gone.
            let _ = stream.shutdown(Shutdown::Write);
        }
    };
    let ending = if is_sent { ending } else { ReaderEnding::Reset };
    let bytes = bytes_with_leave.unwrap_or(got.len());
    Outcome { is_whole: is_whole(&got), bytes, ending, took: began.elapsed() }
}

/// The visible effect of a connection fault.
#[derive(Debug, Clone, Copy)]
enum Shows {
    /// The client gets an incomplete response.
    Broken,
    /// The connection ends, although its client would keep it open.
    Ends,
    /// The response is complete, but takes this long.
    Takes(Duration),
    /// No byte and no end, as long as the rule exists.
    Hangs,
    /// The handshake is refused, on protocols with TLS.
    NoHandshake,
    Refused,
}

/// The rows of the documentation's table for connections, in order.
const CONNECTIONS: &[(&str, Shows)] = &[
    ("connection reset", Shows::Broken),
    ("connection reset 30ms", Shows::Ends),
    ("connection reset 5", Shows::Broken),
    ("connection reset 5 up", Shows::Broken),
    ("connection black-hole", Shows::Hangs),
    ("connection black-hole 30ms", Shows::Broken),
    ("connection slow-start 60ms", Shows::Takes(Duration::from_millis(60))),
    ("connection slow-close 60ms", Shows::Takes(Duration::from_millis(60))),
    ("connection slice 3 2ms", Shows::Takes(Duration::from_millis(6))),
    ("connection slice 3 2ms up", Shows::Takes(Duration::from_millis(6))),
    ("connection limit 5", Shows::Broken),
    ("connection limit 5 up", Shows::Broken),
    ("connection half-open 5", Shows::Hangs),
    ("connection half-open 5 up", Shows::Hangs),
    ("connection corrupt 1", Shows::Broken),
    ("connection corrupt 1 up", Shows::Broken),
    ("connection bad-handshake", Shows::NoHandshake),
    ("connection refuse", Shows::Refused),
];

#[test]
fn connections_go_wrong_whatever_they_carry() {
    for carried in ALL {
        let none = Stage::new("[[route]]\nrespond = { status = 200, body = \"0123456789\" }\n");
        let without = outcome(&none, carried, Some(usize::MAX));
        assert!(without.is_whole && without.ending == ReaderEnding::End, "{carried:?}: {without:?}");
        for (fault, shows) in CONNECTIONS {
            // A fault toward the server also changes what it sends back, if it sends anything.
            let (status, told) = asks(
                &none.scene,
                "POST",
                "/faults",
                &format!("[[fault]]\nname = \"x\"\ninject = \"{fault}\"\n"),
            );
            assert_eq!(status, 200, "{told}");
            let injected = || none.scene.running().counters().faults_injected;
            let before = injected();
            check(&none, carried, fault, *shows, without.bytes, &|| injected() > before);
            asks(&none.scene, "DELETE", "/faults", "");
        }
        let after = outcome(&none, carried, Some(usize::MAX));
        assert!(after.is_whole, "{carried:?}: {after:?}");
    }
}

/// `bytes` arrive without the fault.
fn check(
    stage: &Stage,
    carried: Carried,
    fault: &str,
    shows: Shows,
    bytes: usize,
    is_injected: &dyn Fn() -> bool,
) {
    match shows {
        Shows::Refused => {
            let error = TcpStream::connect(stage.address(carried)).expect_err("it is refused");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{carried:?}");
            return;
        }
        Shows::Hangs => {
            let mut stream = stage.connect(carried);
            stream.write_all(&request(carried)).expect("it is taken");
            let began = Instant::now();
            while !is_injected() {
                assert!(began.elapsed() < PATIENCE, "{carried:?} {fault}");
                std::thread::yield_now();
            }
            // As long as others take for the complete response.
            stream.set_read_timeout(Some(30 * MS)).expect("is a socket");
            let mut got = [0; 4096];
            let error = loop {
                match stream.read(&mut got) {
                    // A few bytes may pass.
                    Ok(1..=5) => {}
                    Ok(count) => panic!("{carried:?} {fault}: {count} bytes came"),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{carried:?} {fault}: {error}");
            return;
        }
        _ => {}
    }
    // If the fault ends the connection, the client need not close.
    let leaves_with = (!matches!(shows, Shows::Ends)).then_some(bytes);
    let got = outcome(stage, carried, leaves_with);
    let is_right = match shows {
        Shows::Broken => !got.is_whole,
        Shows::Ends => true,
        Shows::Takes(least) => got.is_whole && got.ending == ReaderEnding::End && got.took >= least,
        Shows::NoHandshake => got.is_whole != carried.has_tls(),
        Shows::Hangs | Shows::Refused => false,
    };
    assert!(is_right, "{carried:?} {fault}: {got:?}");
    let resets = fault.starts_with("connection reset") && !carried.has_tls();
    assert!(!resets || got.ending == ReaderEnding::Reset, "{carried:?} {fault}: {got:?}");
    let is_counted = is_injected() || (matches!(shows, Shows::NoHandshake) && !carried.has_tls());
    assert!(is_counted, "{carried:?} {fault}");
}

const TRAILERS: &str =
    "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-t: 1\r\n\r\n";

/// The rows of the documentation's table for requests: fault; the server's response, if one is asked; minimum time;
/// effects for clients of HTTP/1.1 and HTTP/2. Effects with `!` only appear without the fault.
const REQUESTS: &[(&str, Option<&str>, u64, [&str; 2])] = &[
    ("503", None, 0, ["HTTP/1.1 503 ", ":status: 503\n"]),
    ("delay 60ms", Some(OK), 60, ["\r\n\r\nok", "---\nok\n---"]),
    ("cut 1", Some(OK), 0, ["!\r\n\r\nok", "---\no\n---\nreset 2\n"]),
    ("length +10", Some(OK), 0, ["ontent-Length: 12\r\n", "content-length: 12\n"]),
    ("length -1", Some(OK), 0, ["ontent-Length: 1\r\n", "content-length: 1\n"]),
    ("bad-chunk", Some(TRAILERS), 0, ["\r\n\r\nthis is no chunk\r\n", "reset 2\n"]),
    ("drip 20ms", Some(OK), 80, ["\r\n\r\nok", "---\nok\n---"]),
    ("no-trailers", Some(TRAILERS), 0, ["!x-t: 1", "!x-t: 1"]),
    ("reset", None, 0, ["!HTTP/1.1", "reset 2\n"]),
    ("goaway", Some(OK), 0, ["\r\nConnection: close\r\n", "GOAWAY"]),
];

#[test]
fn requests_go_wrong_whatever_they_come_over() {
    let stage = Stage::new("[upstream.app]\nservers = [\"http://{0}\"]\n[[route]]\nupstream = \"app\"\n");
    for carried in HTTP {
        for (fault, response, least_ms, expected) in REQUESTS {
            let expected = expected[usize::from(carried.is_http2())];
            let (_, without) = seen(&stage, carried, Some(response.unwrap_or(OK)));
            let (told, is_without) = match expected.strip_prefix('!') {
                Some(text) => (text, true),
                None => (expected, false),
            };
            assert!(*least_ms > 0 || without.contains(told) == is_without, "{carried:?} {fault}: {without}");
            let (status, said) =
                asks(&stage.scene, "POST", "/faults", &format!("[[fault]]\ninject = \"{fault}\"\n"));
            assert_eq!(status, 200, "{said}");
            let (took, got) = seen(&stage, carried, *response);
            assert!(got.contains(told) != is_without, "{carried:?} {fault}: {got}");
            assert!(took >= Duration::from_millis(*least_ms), "{carried:?} {fault}: {took:?}");
            assert_eq!(asks(&stage.scene, "DELETE", "/faults", "").0, 200);
        }
    }
}

/// Returns everything that a client sees of a response, and the time. Without `response`, no server is asked.
fn seen(stage: &Stage, carried: Carried, response: Option<&str>) -> (Duration, String) {
    let began = Instant::now();
    let mut client = stage.client(carried).asking(&get("/"));
    if let Some(response) = response {
        let mut server = stage.scene.accept(0).after_head();
        server.sends(response);
        // The connection is not reused.
        server.half_closes();
    }
    let text = match &mut client {
        SceneClient::One(peer) => {
            // The proxy closes an unused connection, if it has not already.
            let _ = peer.stream().shutdown(Shutdown::Write);
            String::from_utf8_lossy(&peer.rest().0).into_owned()
        }
        SceneClient::Two(end, stream) => {
            let mut text = end.whole(*stream);
            // Frames before the answer to this ping came with the response.
            end.sends(frame::ping([7; 8]));
            let next = end.find(|frame| matches!(frame, H2Frame::GoAway { .. } | H2Frame::PingAck(_)));
            if matches!(next, H2Frame::GoAway { .. }) {
                text.push_str("GOAWAY");
            }
            text
        }
    };
    (began.elapsed(), text)
}

/// Every documented fault must have a row above.
#[test]
fn each_fault_that_is_documented_has_its_row() {
    let page = include_str!("../../../../docs/faults.md");
    let rows =
        page.lines().filter_map(|line| line.strip_prefix("| `")).filter(|row| !row.starts_with("inject`"));
    let faults = rows.filter_map(|row| row.split_once('`')).map(|(fault, _)| fault);
    // Faults of datagrams need an HTTP/3 client.
    let (datagrams, documented): (Vec<&str>, Vec<&str>) =
        faults.partition(|fault| fault.starts_with("connection datagrams "));
    for fault in &datagrams {
        let kind = fault.split(' ').nth(2).unwrap_or_default();
        assert!(include_str!("../http3/paths.rs").contains(&format!("\"{kind}")), "{fault} has no test");
    }
    let known: Vec<&str> =
        REQUESTS.iter().map(|row| row.0).chain(CONNECTIONS.iter().map(|row| row.0)).collect();
    let kind = |fault: &str| -> String {
        let words = if fault.starts_with("connection ") { 2 } else { 1 };
        fault.split(' ').take(words).collect::<Vec<_>>().join(" ").trim_end_matches(',').to_owned()
    };
    assert!(documented.len() >= 19, "{documented:?}");
    for fault in &documented {
        assert!(known.iter().any(|known| kind(known) == kind(fault)), "{fault} has no row");
    }
    for fault in &known {
        assert!(documented.iter().any(|row| kind(row) == kind(fault)), "{fault} is not documented");
    }
}
