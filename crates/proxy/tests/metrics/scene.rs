//! A proxy with one worker, servers that answer according to the path, and the proxy's metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use config::{Route, Server, Settings, Upstream};
use control::Running;
use testkit::scene::valid;
use testkit::wait::PATIENCE;

pub(crate) struct Scene {
    pub(crate) running: Running,
}

impl Scene {
    /// With these routes by path, each to an upstream with these servers; `""` has a server that does not exist.
    pub(crate) fn with(config: Settings) -> Self {
        let running =
            control::start(valid(config)).unwrap_or_else(|error| panic!("the proxy does not start: {error}"));
        Self { running }
    }

    /// Sends a request with these lines, and returns the status of the response. The connection is closed.
    pub(crate) fn ask(&self, lines: &str) -> u16 {
        let response =
            exchange(self.running.addresses()[0], &format!("{lines}\r\nConnection: close\r\n\r\n"));
        status(&response)
    }

    pub(crate) fn get(&self, path: &str) -> u16 {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: test"))
    }

    pub(crate) fn metrics_address(&self) -> SocketAddr {
        self.running.metrics_address().expect("metrics are on")
    }

    /// Returns head and body of the metrics, for a request with these header lines.
    pub(crate) fn told(&self, request_line: &str, lines: &str) -> (String, String) {
        let response = exchange(
            self.metrics_address(),
            &format!("{request_line} HTTP/1.1\r\nHost: test\r\n{lines}\r\n"),
        );
        let (head, body) = response.split_once("\r\n\r\n").expect("a head has an end");
        (head.to_owned(), body.to_owned())
    }

    /// Returns the value of each series, by name and labels as written.
    pub(crate) fn series(&self) -> BTreeMap<String, f64> {
        series(&self.told("GET /metrics", "").1)
    }

    /// Waits until these series have these values: a request is counted after its client has the response.
    #[track_caller]
    pub(crate) fn assert_told(&self, expected: &[(&str, f64)]) {
        let began = Instant::now();
        loop {
            let told = self.series();
            let wrong = expected.iter().find(|(name, value)| told.get(*name) != Some(value));
            let Some((name, value)) = wrong else { return };
            if began.elapsed() > PATIENCE {
                let all: Vec<_> = told.iter().filter(|(_, value)| **value != 0.0).collect();
                panic!("{name}: {:?}, not {value}; all: {all:#?}", told.get(*name));
            }
            std::thread::yield_now();
        }
    }
}

/// Starts a server that answers `/404` with that status, and so on, and 200 otherwise, until the process ends.
pub(crate) fn server() -> Server {
    let listener = TcpListener::bind(loopback()).expect("a port on loopback is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || answer(stream));
        }
    });
    to(address)
}

/// A server that does not exist: the kernel assigns this port only on request.
pub(crate) fn nobody() -> Server {
    to(SocketAddr::from(([127, 0, 0, 1], 1)))
}

fn to(address: SocketAddr) -> Server {
    format!("http://{address}").parse().expect("is a URL")
}

/// The server's name in the log and the metrics.
pub(crate) fn name(server: &Server) -> String {
    format!("{}:{}", server.host, server.port)
}

/// With metrics, and these routes by path to upstreams by name.
pub(crate) fn config(routes: &[(&str, usize)], upstreams: &[(&str, &[&Server])]) -> Settings {
    let mut config = Settings::for_servers(vec![loopback()], vec![nobody()]);
    config.workers = Some(1.try_into().expect("is not zero"));
    config.metrics = Some(loopback());
    config.routes = routes.iter().map(|(path, upstream)| Route::to(None, path, *upstream).into()).collect();
    let servers = |servers: &[&Server]| servers.iter().map(|server| (*server).clone()).collect();
    config.upstreams =
        upstreams.iter().map(|(name, of)| Upstream::from_name(name, servers(of)).into()).collect();
    config
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        request.extend_from_slice(&buffer[..count]);
        while let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(request.drain(..end + 4).collect()).expect("is text");
            let last = head.split([' ', '/']).filter_map(|part| part.parse().ok()).find(|code| *code > 99);
            let status: u16 = last.unwrap_or(200);
            let response = format!("HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\nok");
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}

pub(crate) fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    stream.write_all(request.as_bytes()).expect("is taken");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response arrives, and the connection ends");
    response
}

pub(crate) fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no response: {response:?}"))
}

/// Parses the samples of a text. A repeated series is an error.
pub(crate) fn series(text: &str) -> BTreeMap<String, f64> {
    let mut series = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line:?}"));
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line:?}"));
        assert_eq!(series.insert(name.to_owned(), value), None, "{name} is told twice");
    }
    series
}
