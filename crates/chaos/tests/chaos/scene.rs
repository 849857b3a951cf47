//! A chaos proxy with one proxy, `p`, to the test's server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use chaos::{Chaos, ChaosOptions, Config, StartError, start};
use serde_json::{Value, json};
use testkit::http1::Http1Peer;
use testkit::wait::PATIENCE;

pub(crate) struct Scene {
    chaos: Chaos,
    pub(crate) server: TcpListener,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let scene = Self::empty(1);
        let made = scene.api(
            "POST",
            "/proxies",
            json!({ "name": "p", "listen": "127.0.0.1:0", "upstream": scene.upstream() }),
        );
        assert_eq!(made.0, 201, "{}", made.1);
        scene
    }

    pub(crate) fn empty(seed: u64) -> Self {
        Self::started(seed, Config::default()).unwrap_or_else(|error| panic!("it does not start: {error}"))
    }

    /// Starts with the proxies of a file.
    pub(crate) fn started(seed: u64, config: Config) -> Result<Self, StartError> {
        let listen = "127.0.0.1:0".parse().expect("is an address");
        let chaos = start(ChaosOptions { listen, seed, config })?;
        let server = TcpListener::bind("127.0.0.1:0").expect("loopback has room");
        Ok(Self { chaos, server })
    }

    pub(crate) fn upstream(&self) -> String {
        self.server.local_addr().expect("is bound").to_string()
    }

    /// Sends a request to the API. Returns the status and the body: `Null` if empty, text if not JSON.
    pub(crate) fn api(&self, method: &str, path: &str, body: impl ToString) -> (u16, Value) {
        self.api_with("", method, path, body)
    }

    /// Adds lines to the head of the request.
    pub(crate) fn api_with(&self, head: &str, method: &str, path: &str, body: impl ToString) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.chaos.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        let body = body.to_string();
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers and closes");
        let (head, body) = response.split_once("\r\n\r\n").expect("it has a head");
        let status = head.get(9..12).and_then(|status| status.parse().ok()).expect("it has a status");
        let body = match body {
            "" => Value::Null,
            body => serde_json::from_str(body).unwrap_or_else(|_| Value::from(body)),
        };
        (status, body)
    }

    pub(crate) fn api_peer(&self) -> Http1Peer {
        Http1Peer::new("client", TcpStream::connect(self.chaos.address()).expect("it listens"))
    }

    /// Adds a toxic to `p`, named as its type, in one direction.
    pub(crate) fn adds(&self, kind: &str, stream: &str, attributes: Value) {
        let toxic = json!({ "name": kind, "type": kind, "stream": stream, "attributes": attributes });
        let (status, body) = self.api("POST", "/proxies/p/toxics", toxic);
        assert_eq!(status, 200, "{body}");
    }

    pub(crate) fn changes(&self, kind: &str, attributes: Value) {
        let (status, body) =
            self.api("POST", &format!("/proxies/p/toxics/{kind}"), json!({ "attributes": attributes }));
        assert_eq!(status, 200, "{body}");
    }

    pub(crate) fn removes(&self, kind: &str) {
        assert_eq!(self.api("DELETE", &format!("/proxies/p/toxics/{kind}"), "").0, 204);
    }

    pub(crate) fn client(&self) -> Http1Peer {
        let (_, told) = self.api("GET", "/proxies/p", "");
        let address = told["listen"].as_str().expect("it listens");
        Http1Peer::new("client", TcpStream::connect(address).expect("it listens"))
    }

    /// Returns a new client of `p`, and the server's end of its connection.
    pub(crate) fn pair(&self) -> (Http1Peer, Http1Peer) {
        let client = self.client();
        (client, Http1Peer::new("server", self.server.accept().expect("is listening").0))
    }
}
