//! Servers at one port of several addresses, and a proxy with one worker in front of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use balance::CheckSettings;
use config::{Check, Probe, Settings, Statuses};
use control::Running;
use testkit::scene::valid;
pub(crate) use testkit::wait::PATIENCE;

/// Frequent checks: twice up, twice down.
pub(crate) const QUICK: CheckSettings = CheckSettings {
    interval: Duration::from_millis(40),
    interval_in_doubt: Duration::from_millis(20),
    jitter_percent: 20,
    rise: 2,
    fall: 2,
};

pub(crate) fn check(probe: Probe) -> Check {
    Check { settings: QUICK, timeout: Duration::from_secs(2), port: None, probe }
}

/// A GET of `/health` that expects 2xx.
pub(crate) fn get() -> Probe {
    Probe::Http {
        path: "/health".to_owned(),
        host: None,
        status: Statuses::successful(),
        headers: Vec::new(),
        body: None,
    }
}

/// An HTTP/1.1 server that answers with its number.
#[derive(Default)]
pub(crate) struct Server {
    /// Whether it answers `/health` with 503.
    pub(crate) is_ill: AtomicBool,
    /// Whether it answers everything else with 502.
    pub(crate) fails: AtomicBool,
    pub(crate) delay_ms: AtomicU64,
    /// Requests for `/health`.
    pub(crate) checks: AtomicUsize,
    /// Other requests.
    pub(crate) requests: AtomicUsize,
    /// The head of the last check.
    pub(crate) asked: std::sync::Mutex<String>,
}

/// A proxy and its servers, which count from 1.
pub(crate) struct Scene {
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) config: Settings,
    pub(crate) proxy: Running,
}

impl Scene {
    /// So many servers, with changes to the configuration.
    pub(crate) fn new(count: u8, change: impl FnOnce(&mut Settings)) -> Self {
        let (port, listeners) = at_one_port(count);
        let servers: Vec<Arc<Server>> = listeners.iter().map(|_| Arc::default()).collect();
        for ((listener, server), who) in listeners.into_iter().zip(&servers).zip(1..) {
            serve_all(server, listener, who);
        }
        let urls = (1..=count).map(|last| format!("http://127.0.0.{last}:{port}").parse().expect("is a URL"));
        let mut config = Settings::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], urls.collect());
        config.workers = Some(1.try_into().expect("is not zero"));
        config.upstreams[0].settings.slow_start = Duration::ZERO;
        change(&mut config);
        let proxy = control::start(valid(config.clone()))
            .unwrap_or_else(|error| panic!("it does not start: {error}"));
        Self { servers, config, proxy }
    }

    /// Two servers with this check.
    pub(crate) fn checked(check: Check) -> Self {
        Self::new(2, |config| config.upstreams[0].check = Some(check))
    }

    /// Makes a server listen at another port, too.
    pub(crate) fn serves(&self, index: usize, listener: TcpListener) {
        serve_all(&self.servers[index], listener, index + 1);
    }

    /// Returns the number of the server that answers.
    pub(crate) fn ask(&self) -> String {
        let mut stream = TcpStream::connect(self.proxy.addresses()[0]).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text.split_once("\r\n\r\n").expect("has a head").1.to_owned()
    }

    /// Returns who answers, over twice as many requests as there are servers.
    pub(crate) fn who(&self) -> Vec<String> {
        let mut who: Vec<String> = (0..2 * self.servers.len()).map(|_| self.ask()).collect();
        who.sort_unstable();
        who.dedup();
        who
    }

    /// Sends requests until exactly these servers answer.
    #[track_caller]
    pub(crate) fn waits_for(&self, expected: &[&str]) {
        waits_until("others answer", || self.who() == expected);
    }

    pub(crate) fn reload(&self, change: impl FnOnce(&mut Settings)) {
        let mut config = self.config.clone();
        change(&mut config);
        self.proxy.reload(valid(config)).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn serve_all(server: &Arc<Server>, listener: TcpListener, who: usize) {
    let server = Arc::clone(server);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            std::thread::spawn(move || server.serve(stream, who));
        }
    });
}

impl Server {
    fn serve(&self, mut stream: TcpStream, who: usize) {
        let mut request = Vec::new();
        let mut bytes = [0; 1024];
        while let Ok(count) = stream.read(&mut bytes)
            && count > 0
        {
            request.extend_from_slice(&bytes[..count]);
            if !request.ends_with(b"\r\n\r\n") {
                continue;
            }
            let is_check = request.starts_with(b"GET /health ");
            let status = if is_check { !self.is_ill.load(SeqCst) } else { !self.fails.load(SeqCst) };
            let (count, line) = match (is_check, status) {
                (true, true) => (&self.checks, "200 OK"),
                (true, false) => (&self.checks, "503 Service Unavailable"),
                (false, true) => (&self.requests, "200 OK"),
                (false, false) => (&self.requests, "502 Bad Gateway"),
            };
            if is_check {
                *self.asked.lock().expect("no panic") = String::from_utf8_lossy(&request).into_owned();
            } else {
                std::thread::sleep(Duration::from_millis(self.delay_ms.load(SeqCst)));
            }
            count.fetch_add(1, SeqCst);
            request.clear();
            // In one write: a second one would wait for an acknowledgment (Nagle).
            let answer = format!("HTTP/1.1 {line}\r\nX-Who: {who}\r\nContent-Length: 1\r\n\r\n{who}");
            let _ = stream.write_all(answer.as_bytes());
        }
    }
}

#[track_caller]
pub(crate) fn waits_until(otherwise: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Listens at a port that is free at `127.0.0.1` and the following addresses, `count` in all.
pub(crate) fn at_one_port(count: u8) -> (u16, Vec<TcpListener>) {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "no port is free at all addresses");
        let first = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = first.local_addr().expect("it listens").port();
        let others = (2..=count).map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)));
        if let Ok(others) = others.collect::<Result<Vec<_>, _>>() {
            return (port, std::iter::once(first).chain(others).collect());
        }
    }
}
