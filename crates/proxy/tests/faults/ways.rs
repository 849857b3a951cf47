//! Every message fault with every source of a response, over HTTP/1 and HTTP/2, with and without TLS. Either it takes
//! effect, or it does not fit the response, which is then unchanged and not counted. Other clients get complete
//! responses.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::changed::asks;

const BODY: &str = "0123456789";

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From a server, in either framing.
    Server,
    ServerInChunks,
    /// From a server, and stored meanwhile.
    Coming,
    ComingInChunks,
    /// From the store: fresh, stale, in parts, or 304.
    Hit,
    LongHit,
    Stale,
    PartOfHit,
    NotModified,
    Revalidated,
    /// From another request's fetch, or as that request.
    Waiter,
    Leader,
    Redirect,
    Configured,
    ToHttps,
    Refused,
    NoRoute,
    PageForServer,
    Purge,
    Options,
}

use Way::{
    Coming, ComingInChunks, Configured, Hit, Leader, LongHit, NoRoute, NotModified, Options, PageForServer,
    PartOfHit, Purge, Redirect, Refused, Revalidated, Server, ServerInChunks, Stale, ToHttps, Waiter,
};
use testkit::http1::Http1Peer;
use testkit::http2::frame::H2Frame;
use testkit::http2::{H2End, frame};
use testkit::scene::{BodylessRequest, Got, Scene, SceneClient};
use testkit::tls::tunnel::NAME;
use testkit::tls::{TestAuthority, tunnel};

const WAYS: [Way; 20] = [
    Server,
    ServerInChunks,
    Coming,
    ComingInChunks,
    Hit,
    LongHit,
    Stale,
    PartOfHit,
    NotModified,
    Revalidated,
    Waiter,
    Leader,
    Redirect,
    Configured,
    ToHttps,
    Refused,
    NoRoute,
    PageForServer,
    Purge,
    Options,
];

/// The body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length,
    Chunks,
    /// `Content-Length: 0`.
    Empty,
    None,
}

impl Way {
    fn body(self) -> Body {
        match self {
            ServerInChunks | ComingInChunks => Body::Chunks,
            Redirect | ToHttps => Body::Empty,
            NotModified | Options => Body::None,
            _ => Body::Length,
        }
    }

    fn status(self) -> u16 {
        match self {
            Redirect | ToHttps => 308,
            PartOfHit => 206,
            NotModified => 304,
            Options => 204,
            Refused => 403,
            NoRoute => 404,
            PageForServer => 500,
            _ => 200,
        }
    }

    /// Whether the response is in the cache afterwards.
    fn is_stored(self) -> bool {
        matches!(
            self,
            Coming | ComingInChunks | Hit | LongHit | Stale | PartOfHit | NotModified | Waiter | Leader
        )
    }

    fn is_shared(self) -> bool {
        matches!(self, Waiter | Leader)
    }

    fn path(self, number: usize) -> String {
        let folder = match self {
            Server => "server",
            ServerInChunks => "server/chunks",
            ComingInChunks => "stored/chunks",
            LongHit => "stored/long",
            Stale => "stored/stale",
            Revalidated => "stored/revalidated",
            Waiter | Leader => "stored/shared",
            Coming | Hit | PartOfHit | NotModified => "stored",
            // The response contains the path, and must be equal each time.
            Purge => return "/stored/purged".to_owned(),
            Redirect => "redirect",
            Configured => "configured",
            ToHttps => "server",
            Refused => "refused",
            NoRoute => "nowhere",
            PageForServer => "page",
            Options => "server",
        };
        format!("/{folder}/{number}")
    }
}

const FILE: &str = r#"
admin = "{dir}/admin"
[cache]
memory = "64MiB"
purge_from = ["127.0.0.0/8"]
[upstream.app]
servers = ["http://SERVER"]
[[route]]
path = "/server"
upstream = "app"
[[route]]
path = "/stored"
upstream = "app"
cache = {}
[[route]]
path = "/redirect"
redirect = { to = "https://www.example.com$path" }
[[route]]
path = "/configured"
respond = { status = 200, body = "0123456789" }
[[route]]
path = "/refused"
respond = { status = 200, body = "in" }
deny = ["0.0.0.0/0"]
[[route]]
path = "/page"
upstream = "app"
replace_errors = true
error_pages = { 500 = "{dir}/page.html" }
[[listen]]
address = "127.0.0.1:0"
tls = { cert = "TLS/own.pem", key = "TLS/own.key" }
[[listen]]
address = "127.0.0.1:0"
redirect_to_https = true
"#;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy)]
struct Carried {
    is_http2: bool,
    has_tls: bool,
}

const CARRIED: [Carried; 4] = [
    Carried { is_http2: false, has_tls: false },
    Carried { is_http2: true, has_tls: false },
    Carried { is_http2: false, has_tls: true },
    Carried { is_http2: true, has_tls: true },
];

struct Stage {
    scene: Scene,
    authority: TestAuthority,
    gate: Gate,
    paths: AtomicUsize,
}

/// Holds back the server's responses for several requests.
type Gate = Arc<(Mutex<Held>, Condvar)>;

#[derive(Default)]
struct Held {
    is_open: bool,
    /// The number of requests so far.
    asked: usize,
}

impl Stage {
    fn new() -> Self {
        let authority = TestAuthority::new();
        authority.files("own", &[NAME]);
        let gate = Gate::default();
        let file = FILE
            .replace("SERVER", &serve(Arc::clone(&gate)).to_string())
            .replace("TLS", &authority.path().display().to_string());
        let scene = Scene::with_files(&[("page.html", BODY)], &file);
        Self { scene, authority, gate, paths: AtomicUsize::new(0) }
    }

    fn client(&self, way: Way, carried: Carried) -> SceneClient {
        let listener = match (way, carried.has_tls) {
            (ToHttps, _) => 1,
            (_, true) => 0,
            (_, false) => 2,
        };
        let address = self.scene.running().addresses()[listener];
        let mut stream = TcpStream::connect(address).expect("the proxy listens");
        if carried.has_tls && way != ToHttps {
            stream = tunnel::client(&self.authority, carried.is_http2, stream);
        }
        match carried.is_http2 {
            true => SceneClient::Two(Box::new(H2End::client(stream, &[])), 1),
            false => SceneClient::One(Http1Peer::new("client", stream)),
        }
    }

    /// A client whose requests get no fault.
    fn neighbour(&self, has_tls: bool) -> SceneClient {
        // Stored responses of one scheme do not answer the other.
        self.client(Server, Carried { is_http2: false, has_tls })
    }

    fn open(&self, is_open: bool) {
        self.gate.0.lock().expect("nobody panics").is_open = is_open;
        self.gate.1.notify_all();
    }

    fn asked(&self) -> usize {
        self.gate.0.lock().expect("nobody panics").asked
    }

    /// Waits until the server got another request.
    fn is_asked(&self, before: usize) {
        let held = self.gate.0.lock().expect("nobody panics");
        drop(self.gate.1.wait_while(held, |held| held.asked == before).expect("nobody panics"));
    }

    fn waits(&self) -> u64 {
        self.scene.running().counters().cache_waits
    }
}

/// A server that answers according to the path.
fn serve(gate: Gate) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let gate = Arc::clone(&gate);
            thread::spawn(move || answer(stream, &gate));
        }
    });
    address
}

fn answer(mut stream: TcpStream, gate: &Gate) {
    let (mut got, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let head = loop {
            if let Some(end) = got.windows(4).position(|end| end == b"\r\n\r\n") {
                let rest = got.split_off(end + 4);
                break String::from_utf8(std::mem::replace(&mut got, rest)).expect("is text");
            }
            match stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => got.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        };
        let is = |part: &str| head.contains(part);
        let whole = |status: &str, fields: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
        };
        let response = if is("/shared") {
            let (lock, told) = (&gate.0, &gate.1);
            let mut held = lock.lock().expect("nobody panics");
            held.asked += 1;
            told.notify_all();
            drop(told.wait_while(held, |held| !held.is_open).expect("nobody panics"));
            whole("200 OK", "Cache-Control: max-age=60\r\n", BODY)
        } else if is("/chunks") {
            let fields = "Cache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n";
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n4\r\n0123\r\n6\r\n456789\r\n0\r\nx-t: 1\r\n\r\n")
        } else if is("/stale") {
            whole("200 OK", "Cache-Control: max-age=0, stale-while-revalidate=60\r\n", BODY)
        } else if is("/revalidated") && is("if-none-match") || is("/revalidated") && is("If-None-Match") {
            "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nCache-Control: no-cache\r\n\r\n".to_owned()
        } else if is("/revalidated") {
            whole("200 OK", "ETag: \"1\"\r\nCache-Control: no-cache\r\n", BODY)
        } else if is("/long") {
            whole("200 OK", "Cache-Control: max-age=60\r\n", &BODY.repeat(10_000))
        } else if is("/page") {
            whole("500 Internal Server Error", "", "a server's own words")
        } else {
            whole("200 OK", "ETag: \"1\"\r\nCache-Control: max-age=60\r\n", BODY)
        };
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Everything that a client got for its request, and the time.
struct Seen {
    took: Duration,
    text: String,
}

const HARMED: &str = "x-harmed: yes\n";

fn request<'a>(way: Way, path: &'a str, fields: &'a str) -> BodylessRequest<'a> {
    let method = match way {
        Purge => "PURGE",
        Options => "OPTIONS",
        _ => "GET",
    };
    BodylessRequest { method, host: NAME, target: path, fields }
}

/// Fields that select this source.
fn fields(way: Way) -> &'static str {
    match way {
        PartOfHit => "range: bytes=2-6\n",
        NotModified => "if-none-match: \"1\"\n",
        Options => "max-forwards: 0\n",
        _ => "",
    }
}

/// Sends a request for a new path, with the fault or without.
fn seen(stage: &Stage, way: Way, carried: Carried, is_harmed: bool, is_early: bool) -> (Seen, String) {
    let path = way.path(stage.paths.fetch_add(1, Ordering::Relaxed));
    let fields = format!("{}{}", if is_harmed { HARMED } else { "" }, fields(way));
    let asked = request(way, &path, &fields);
    let clean = BodylessRequest { method: "GET", host: NAME, target: &path, fields: "" };
    let mut client = stage.client(way, carried);
    let mut neighbour = stage.neighbour(carried.has_tls);
    stage.open(!way.is_shared());
    if matches!(way, Hit | LongHit | Stale | PartOfHit | NotModified | Revalidated | Purge) {
        assert_eq!(neighbour.asks_for(&clean).status, 200, "{way:?}");
    }
    let (waits, asked_before) = (stage.waits(), stage.asked());
    let wait = |what: &str| {
        let began = Instant::now();
        while stage.waits() == waits {
            assert!(began.elapsed() < testkit::wait::PATIENCE, "{way:?}: {what}");
            thread::yield_now();
        }
    };
    let began = Instant::now();
    match way {
        Waiter => {
            neighbour.asks(&clean);
            stage.is_asked(asked_before);
            client.asks(&asked);
            if !is_early {
                wait("it waits for its neighbour");
            }
        }
        // If the leader sends no request, no other request waits.
        Leader if is_early => client.asks(&asked),
        Leader => {
            client.asks(&asked);
            stage.is_asked(asked_before);
            neighbour.asks(&clean);
            wait("its neighbour waits for it");
        }
        _ => client.asks(&asked),
    }
    stage.open(true);
    let text = all_of(&mut client);
    let took = began.elapsed();
    if way == Waiter || (way == Leader && !is_early) {
        let got = neighbour.gets();
        assert_eq!((got.status, got.body.as_str()), (200, BODY), "{way:?}");
        is_well(&got);
    }
    (Seen { took, text }, path)
}

/// Reads to the end of the connection, or of the stream.
fn all_of(client: &mut SceneClient) -> String {
    match client {
        SceneClient::One(peer) => {
            // The proxy may have closed the connection already.
            let _ = peer.stream().shutdown(Shutdown::Write);
            String::from_utf8_lossy(&peer.rest().0).into_owned()
        }
        SceneClient::Two(end, stream) => {
            let mut text = end.whole(*stream);
            end.sends(frame::ping([7; 8]));
            let next = end.find(|frame| matches!(frame, H2Frame::GoAway { .. } | H2Frame::PingAck(_)));
            if matches!(next, H2Frame::GoAway { .. }) {
                text.push_str("GOAWAY");
            }
            text
        }
    }
}

/// Asserts that a response is not affected.
fn is_well(got: &Got) {
    assert_eq!((got.field("connection"), got.field("vanward-fault")), (None, None), "{got:?}");
}

/// The parts of a response, over either version.
struct Parts<'a> {
    head: String,
    body: &'a str,
    /// Whether the body's end was signalled properly.
    is_reset: bool,
}

fn parts(seen: &Seen, is_http2: bool) -> Parts<'_> {
    let text = seen.text.trim_end_matches("GOAWAY");
    if is_http2 {
        let (head, rest) = text.split_once("---\n").unwrap_or((text, ""));
        let body = rest.split("\n---\n").next().unwrap_or("");
        return Parts { head: head.to_lowercase(), body, is_reset: text.ends_with("reset 2\n") };
    }
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    Parts { head: format!("{}\r\n", head.to_lowercase()), body, is_reset: text.is_empty() }
}

fn status_of(parts: &Parts<'_>) -> Option<u16> {
    let rest = parts.head.strip_prefix("http/1.1 ").or_else(|| parts.head.strip_prefix(":status: "))?;
    rest.get(..3)?.parse().ok()
}

fn length_of(parts: &Parts<'_>) -> Option<i64> {
    parts.head.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()
}

/// A fault, whether it applies before policies, and which responses it fits.
struct Kind {
    fault: &'static str,
    is_early: bool,
    fits: fn(Way) -> bool,
    /// Whether its effect is visible, compared with the response without it.
    shows: fn(&Way, Carried, &Parts<'_>, &Seen, &Parts<'_>) -> bool,
}

const KINDS: [Kind; 11] = [
    Kind {
        fault: "503",
        is_early: true,
        fits: |_| true,
        shows: |_, _, got, _, _| status_of(got) == Some(503),
    },
    Kind {
        fault: "delay 20ms",
        is_early: false,
        fits: |_| true,
        shows: |way, _, got, seen, well| {
            seen.took >= Duration::from_millis(20)
                && got.body == well.body
                && status_of(got) == Some(way.status())
        },
    },
    Kind {
        fault: "cut 1",
        is_early: false,
        fits: |way| matches!(way.body(), Body::Length | Body::Chunks),
        shows: |way, carried, got, _, well| {
            let first = &well.body[..1];
            match (carried.is_http2, way.body()) {
                (true, _) => got.body == first && got.is_reset,
                (false, Body::Chunks) => got.body.trim_end() == "1\r\n0",
                (false, _) => got.body == first && length_of(got) == length_of(well),
            }
        },
    },
    Kind {
        fault: "cut 200KB",
        is_early: false,
        // No body here is that long; if the length is known to be shorter, the fault does not fit.
        fits: |way| way.body() == Body::Chunks,
        shows: |_, carried, got, _, well| {
            got.body == well.body && (carried.is_http2 || got.head.contains("\r\nconnection: close\r\n"))
        },
    },
    Kind {
        fault: "length +10",
        is_early: false,
        fits: |way| matches!(way.body(), Body::Length | Body::Empty),
        shows: |_, _, got, _, well| {
            length_of(got) == length_of(well).map(|length| length + 10) && got.body == well.body
        },
    },
    Kind {
        fault: "length -3",
        is_early: false,
        fits: |way| matches!(way.body(), Body::Length | Body::Empty),
        shows: |_, _, got, _, well| {
            length_of(got) == length_of(well).map(|length| (length - 3).max(0)) && got.body == well.body
        },
    },
    Kind {
        fault: "bad-chunk",
        is_early: false,
        fits: |way| matches!(way.body(), Body::Length | Body::Chunks),
        shows: |way, carried, got, _, _| {
            status_of(got) == Some(way.status())
                && match carried.is_http2 {
                    true => got.is_reset && got.body.is_empty(),
                    false => {
                        got.body == "this is no chunk\r\n"
                            && got.head.contains("transfer-encoding: chunked")
                            && length_of(got).is_none()
                    }
                }
        },
    },
    Kind {
        fault: "drip 3ms",
        is_early: false,
        fits: |_| true,
        shows: |way, _, got, seen, well| {
            // At least the start line and the empty line.
            seen.took >= Duration::from_millis(6)
                && got.body == well.body
                && status_of(got) == Some(way.status())
        },
    },
    Kind {
        fault: "no-trailers",
        is_early: false,
        fits: |way| way == ServerInChunks,
        shows: |_, _, got, seen, well| got.body.len() <= well.body.len() && !seen.text.contains("x-t"),
    },
    Kind { fault: "reset", is_early: true, fits: |_| true, shows: |_, _, got, _, _| got.is_reset },
    Kind {
        fault: "goaway",
        is_early: false,
        fits: |_| true,
        shows: |_, carried, got, seen, well| {
            got.body == well.body
                && match carried.is_http2 {
                    true => seen.text.ends_with("GOAWAY"),
                    false => got.head.contains("\r\nconnection: close\r\n"),
                }
        },
    },
];

#[test]
fn every_fault_takes_effect_on_every_way_that_it_fits_and_harms_nobody_else() {
    injects(&CARRIED[..2]);
}

#[test]
fn every_fault_takes_effect_within_tls_as_well() {
    injects(&CARRIED[2..]);
}

fn injects(carried: &[Carried]) {
    let stage = Stage::new();
    let injected = || stage.scene.running().counters().faults_injected;
    for way in WAYS {
        for &carried in carried {
            if way == ToHttps && carried.has_tls {
                continue;
            }
            let (well, _) = seen(&stage, way, carried, false, false);
            let well_parts = parts(&well, carried.is_http2);
            assert_eq!(status_of(&well_parts), Some(way.status()), "{way:?} {carried:?}: {}", well.text);
            for kind in &KINDS {
                let fault = kind.fault;
                let rule = format!(
                    "[[fault]]\nname = \"x\"\ninject = \"{fault}\"\nshow = true\nheaders = {{ x-harmed = \"yes\" }}\n"
                );
                let (status, told) = asks(&stage.scene, "POST", "/faults", &rule);
                assert_eq!(status, 200, "{told}");
                let before = injected();
                let (got, path) = seen(&stage, way, carried, true, kind.is_early);
                let got_parts = parts(&got, carried.is_http2);
                let cell = format!("{way:?} {carried:?} {fault}: {}\nwithout: {}", got.text, well.text);
                let fits = (kind.fits)(way);
                if fits {
                    assert!((kind.shows)(&way, carried, &got_parts, &got, &well_parts), "{cell}");
                    let is_told = got_parts.head.contains("vanward-fault: x; seed=");
                    assert!(is_told || fault == "reset", "{cell}");
                } else {
                    assert_eq!(
                        (got_parts.body, got_parts.is_reset),
                        (well_parts.body, well_parts.is_reset),
                        "{cell}"
                    );
                    let heads = [&got_parts, &well_parts].map(|parts| (status_of(parts), length_of(parts)));
                    assert_eq!(heads[0], heads[1], "{cell}");
                    assert!(!got_parts.head.contains("vanward-fault"), "{cell}");
                }
                // A body of unknown length could be cut, but none here is that long.
                let happens = fits && fault != "cut 200KB";
                assert_eq!(injected() - before, u64::from(happens), "{cell}");
                if way.is_stored() && !kind.is_early {
                    let clean = BodylessRequest { method: "GET", host: NAME, target: &path, fields: "" };
                    let stored = stage.neighbour(carried.has_tls).asks_for(&clean);
                    is_well(&stored);
                    assert_eq!(stored.body.len(), if way == LongHit { 100_000 } else { 10 }, "{cell}");
                    let from = stored.field("cache-status").unwrap_or_default();
                    // It may still be on its way into the store.
                    assert!(from.contains("; hit") || from.contains("; collapsed"), "{from}: {cell}");
                }
                assert_eq!(asks(&stage.scene, "DELETE", "/faults/x", "").0, 200);
            }
        }
    }
}
