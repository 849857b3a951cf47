//! Counts allocations per request in the steady state: none. A separate program, because it counts those of every
//! thread; its client and server do not allocate either.

#![allow(unsafe_code, reason = "an allocator that counts can be installed in no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use config::{AccessLog, CacheStore, ConcurrencyLimit, LogFormat, LogTarget, Settings};
use expression::{ExchangeStage, Expression, ExpressionLimits, Schema};
use route::{Concurrency, HeaderEdit, HeaderEdits, NamedValues, RateKey, RateKeyPart, TemplateStage};
use socket2::SockRef;
use testkit::scene::valid;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; `realloc` and `alloc_zeroed` come here by default.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: it is the trait's contract that the caller keeps.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps to `alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as for `alloc`.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, thus from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const REQUESTS: usize = 2000;

/// A request and its end as the server sees it; a response and its end.
struct Case {
    name: &'static str,
    request: Vec<u8>,
    request_end: &'static [u8],
    response: Vec<u8>,
    response_end: &'static [u8],
    is_cached: bool,
    /// Whether the server speaks FastCGI.
    is_application: bool,
}

fn cases() -> Vec<Case> {
    let get =
        b"GET /a?b HTTP/1.1\r\nHost: test\r\nUser-Agent: allocations\r\nAccept: */*\r\nCookie: a=b\r\n\r\n";
    let post = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhell.";
    let chunked_post =
        b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let tiny = b"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 6\r\n\r\nhello.";
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: x\r\n\r\n5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n";
    let mut large = b"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n".to_vec();
    large.extend([b'x'; 100_000]);
    large.push(b'.');
    let case = |name, request: &[u8], request_end, response: &[u8], response_end| Case {
        name,
        request: request.to_vec(),
        request_end,
        response: response.to_vec(),
        response_end,
        is_cached: false,
        is_application: false,
    };
    let application = |name, request: &[u8]| {
        let response = b"\x01\x06\0\x01\0\x1e\x02\0Content-Type: text/plain\r\n\r\nhi..\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";
        // The record that ends the body of a request.
        let end = b"\x01\x05\0\x01\0\0\0\0";
        Case { is_application: true, ..case(name, request, end, response, b"hi") }
    };
    let hit = |name, response: &[u8], response_end| {
        let response =
            String::from_utf8_lossy(response).replace("200 OK", "200 OK\r\nCache-Control: max-age=900");
        Case { is_cached: true, ..case(name, get, b"\r\n\r\n", response.as_bytes(), response_end) }
    };
    vec![
        case("a tiny page", get, b"\r\n\r\n", tiny, b"."),
        case("a chunked response", get, b"\r\n\r\n", chunked, b"0\r\n\r\n"),
        case("a spliced response", get, b"\r\n\r\n", &large, b"x."),
        case("a request with a body", post, b"l.", tiny, b"."),
        case("a chunked request", chunked_post, b"0\r\n\r\n", tiny, b"."),
        hit("a tiny hit", tiny, b"."),
        hit("a large hit", &large, b"x."),
        application("a script", get),
        application("a script with a body", post),
    ]
}

#[test]
fn a_request_is_passed_on_without_allocating() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for with_log in [false, true] {
        for case in cases() {
            let file = LogTarget::File(directory.path().join("access.log"));
            let log = AccessLog::new(file, LogFormat::Json);
            let allocations = allocations_of(&case, with_log.then_some(log), false);
            // The date and the timers allocate a little per second, and a busy machine takes seconds.
            assert!(
                allocations < REQUESTS / 8,
                "{}, log and metrics {with_log}: {allocations} allocations for {REQUESTS} requests",
                case.name
            );
        }
    }
    values_allocate_nothing(directory.path());
}

/// Checks that values are computed in the memory of earlier requests. A part of the only test, because another one would
/// be counted, too.
fn values_allocate_nothing(directory: &Path) {
    for case in cases().into_iter().filter(|case| case.name.starts_with("a tiny")) {
        let file = LogTarget::File(directory.join("access.log"));
        let format = LogFormat::with_values("$status ${agent}", &[], &|name| {
            (name == "agent").then_some(config::LogNeeds::NONE)
        });
        let log = AccessLog::new(file, format.expect("the value is known"));
        let allocations = allocations_of(&case, Some(log), true);
        assert!(
            allocations < REQUESTS / 8,
            "{}, with values: {allocations} allocations for {REQUESTS} requests",
            case.name
        );
    }
}

/// Gives a route values in header edits and in its cache key, and a limit on requests under way.
fn add_values(route: &mut config::Route) {
    let mut values = NamedValues::default();
    for (name, text) in [
        ("agent", r#"(request.headers["user-agent"] ?? "").lowerAscii() + request.method"#),
        ("size", r#"(request.headers["user-agent"] ?? "").size() * 2"#),
    ] {
        let schema = Schema::new(ExchangeStage::Request);
        let compiled = Expression::new(text, &schema, &ExpressionLimits::default());
        values.add(name, &Arc::new(compiled.expect("is an expression")));
    }
    let edits = |stage| {
        let edits = [HeaderEdit::Set("X-Agent", "${agent} ${size}"), HeaderEdit::Add("X-Size", "${size}")];
        HeaderEdits::new(edits, stage, &values).expect("the values are known")
    };
    route.policies.request_headers = edits(TemplateStage::Forward);
    route.policies.response_headers = edits(TemplateStage::Response);
    if let Some(policy) = &mut route.cache {
        policy.key.values = vec!["agent".into()];
    }
    route.values = Arc::new(values);
    let limit = Concurrency { max: NonZeroU32::MIN, waiting_max: 0 };
    let key = RateKey(vec![RateKeyPart::Host]);
    route.policies.concurrency =
        [ConcurrencyLimit { limit, key, wait: Duration::ZERO, shared: None, when: None, zone: None }].into();
}

/// Counts the allocations of the whole process during the requests of one client, after a warm-up.
fn allocations_of(case: &Case, log: Option<AccessLog>, with_values: bool) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    SockRef::from(&listener).set_read_timeout(Some(testkit::wait::PATIENCE)).expect("is a socket");
    let scheme = if case.is_application { "fcgi" } else { "http" };
    let server =
        format!("{scheme}://{}", listener.local_addr().expect("it listens")).parse().expect("is a URL");
    let mut config = Settings::for_servers(vec![([127, 0, 0, 1], 0).into()], vec![server]);
    config.workers = Some(1.try_into().expect("is not zero"));
    config.metrics = log.is_some().then(|| ([127, 0, 0, 1], 0).into());
    config.access_logs = log.into_iter().collect();
    if case.is_cached {
        config.cache = Some(CacheStore::from_memory_bytes(64 << 20));
        config.routes[0].cache = Some(Box::default());
    }
    if with_values {
        add_values(&mut config.routes[0]);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    if case.is_application {
        std::fs::write(directory.path().join("index.php"), "").expect("a file");
        let upstream = &mut *config.upstreams[0];
        upstream.protocol = config::Protocol::Fastcgi;
        upstream.fastcgi = Some(config::Fastcgi::from_root(&directory.path().display().to_string()));
    }
    let proxy = control::start(valid(config)).expect("the proxy starts");
    let mut client = TcpStream::connect(proxy.addresses()[0]).expect("the proxy listens");
    client.set_read_timeout(Some(testkit::wait::PATIENCE)).expect("is a socket");
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&listener, case));
        let mut buffer = vec![0; 256 * 1024];
        let mut exchange = || {
            client.write_all(&case.request).expect("the proxy takes it");
            read_until(&mut client, &mut buffer, case.response_end).expect("a response arrives");
        };
        (0..100).for_each(|_| exchange());
        let before = ALLOCATIONS.load(Relaxed);
        (0..REQUESTS).for_each(|_| exchange());
        let allocations = ALLOCATIONS.load(Relaxed) - before;
        // Ends the server's connection, and so its thread.
        drop(proxy);
        allocations
    })
}

fn answer(listener: &TcpListener, case: &Case) {
    let (mut stream, _) = listener.accept().expect("the proxy connects");
    stream.set_nodelay(true).expect("is a socket");
    let mut buffer = vec![0; 4096];
    while read_until(&mut stream, &mut buffer, case.request_end).is_some() {
        stream.write_all(&case.response).expect("the proxy takes it");
    }
}

/// Reads up to `end`; `None` if the connection ends before.
fn read_until(stream: &mut TcpStream, buffer: &mut [u8], end: &[u8]) -> Option<()> {
    let mut len = 0;
    while !buffer[..len].ends_with(end) {
        match stream.read(&mut buffer[len..]) {
            Ok(count) if count > 0 => len += count,
            _ => return None,
        }
    }
    Some(())
}
