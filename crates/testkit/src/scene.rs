//! Running proxy with a configuration, HTTP/1.1 servers played by the test, and clients of both HTTP versions.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Once;

use control::Running;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::http1::Http1Peer;
use crate::http2::H2End;
use crate::http2::frame::{headers, last_data, last_headers};
use crate::ports;
use crate::tls::{TestAuthority, tunnel};

/// HTTP version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    Http1,
    Http2,
}

pub const BOTH: [Spoken; 2] = [Spoken::Http1, Spoken::Http2];

pub struct Scene {
    running: Running,
    servers: Vec<TcpListener>,
    directory: TempDir,
}

impl Scene {
    /// Starts a proxy. The configuration text names servers as `{0}`, `{1}`, …, and a temporary folder as `{dir}`.
    pub fn new(routes: &str) -> Self {
        Self::with_files(&[], routes)
    }

    /// Starts a proxy like [`Scene::new`], with these files in its temporary folder.
    pub fn with_files(files: &[(&str, &str)], routes: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("it can be written");
        }
        let servers: Vec<TcpListener> = (0..)
            .take_while(|number| routes.contains(&format!("{{{number}}}")))
            .map(|_| ports::listen())
            .collect();
        let mut scene_text = format!("workers = 2\n{routes}\n[[listen]]\naddress = \"127.0.0.1:0\"\n");
        scene_text = scene_text.replace("{dir}", &directory.path().display().to_string());
        for (number, server) in servers.iter().enumerate() {
            let address = server.local_addr().expect("it listens").to_string();
            scene_text = scene_text.replace(&format!("{{{number}}}"), &address);
        }
        let running = control::start(read(&scene_text)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers, directory }
    }

    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Returns the proxy and its temporary folder, for tests that end the proxy.
    pub fn into_parts(self) -> (Running, TempDir) {
        (self.running, self.directory)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn server_address(&self, server: usize) -> String {
        self.servers[server].local_addr().expect("it listens").to_string()
    }

    /// The listening socket of a server, for use after the scene has ended.
    pub fn listener(&self, server: usize) -> TcpListener {
        self.servers[server].try_clone().expect("a descriptor is free")
    }

    pub fn client(&self, spoken: Spoken) -> SceneClient {
        let stream = TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens");
        match spoken {
            Spoken::Http1 => SceneClient::One(Http1Peer::new("client", stream)),
            Spoken::Http2 => SceneClient::Two(Box::new(H2End::client(stream, &[])), 1),
        }
    }

    pub fn accept(&self, server: usize) -> Http1Peer {
        Http1Peer::new("server", ports::accept(&self.servers[server]))
    }

    /// Accepts a connection to a server if one is already waiting.
    pub fn try_accept(&self, server: usize) -> Option<Http1Peer> {
        ports::try_accept(&self.servers[server]).map(|stream| Http1Peer::new("server", stream))
    }

    /// Accepts the next connection to a server that speaks TLS, as [`tunnel::NAME`].
    pub fn accept_tls(&self, server: usize, authority: &TestAuthority) -> Http1Peer {
        let stream = ports::accept(&self.servers[server]);
        Http1Peer::new("server", tunnel::server(authority, false, stream))
    }

    /// Accepts the next connection to a server that speaks HTTP/2.
    pub fn accept_http2(&self, server: usize) -> H2End {
        H2End::server(ports::accept(&self.servers[server]), &[])
    }

    /// Sends a request on a new connection; the first server answers. Returns the received head and response.
    pub fn exchange(&self, spoken: Spoken, request: &BodylessRequest<'_>, response: &str) -> (String, Got) {
        let mut client = self.client(spoken);
        client.asks(request);
        let mut server = self.accept(0);
        let seen = server.head();
        server.sends(response);
        (seen, client.gets())
    }

    /// Sends a request on a new connection that the proxy answers without a server.
    pub fn answer(&self, spoken: Spoken, request: &BodylessRequest<'_>) -> Got {
        let mut client = self.client(spoken);
        client.asks(request);
        client.gets()
    }
}

/// Raises the limit of open files to its maximum: parallel tests together open more than the usual 1024.
fn raise_limit() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let limit = getrlimit(Resource::Nofile);
        // Without the change the limit may suffice, too.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    });
}

pub fn read(text: &str) -> config::Config {
    raise_limit();
    config::parse(text, "test.toml").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

pub fn valid(settings: config::Settings) -> config::Config {
    raise_limit();
    config::Config::new(settings).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

#[derive(Debug, Clone, Copy)]
pub struct BodylessRequest<'a> {
    pub method: &'a str,
    /// Host, or `:authority` in HTTP/2.
    pub host: &'a str,
    /// Target, or `:path` in HTTP/2.
    pub target: &'a str,
    /// Lines of `name: value`, names in lower case.
    pub fields: &'a str,
}

/// A GET request for the host `test`.
pub fn get(target: &str) -> BodylessRequest<'_> {
    BodylessRequest { method: "GET", host: "test", target, fields: "" }
}

pub enum SceneClient {
    One(Http1Peer),
    /// An HTTP/2 client, with the number of its next stream.
    Two(Box<H2End>, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub status: u16,
    /// Lines of `name: value`, names in lower case.
    pub fields: String,
    pub body: String,
}

impl Got {
    /// Value of the first field with this name; `name` is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Values of all fields with this name; `name` is in lower case.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let pairs = self.fields.lines().filter_map(|line| line.split_once(": "));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
    }
}

impl SceneClient {
    /// Sends a request, and returns itself for chaining.
    pub fn asking(mut self, request: &BodylessRequest<'_>) -> Self {
        self.asks(request);
        self
    }

    pub fn asks(&mut self, request: &BodylessRequest<'_>) {
        let BodylessRequest { method, host, target, fields } = request;
        match self {
            Self::One(peer) => {
                let lines: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
                peer.sends(format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n{lines}\r\n"));
            }
            Self::Two(end, stream) => {
                let pseudo =
                    format!(":method: {method}\n:scheme: http\n:authority: {host}\n:path: {target}\n");
                let separator = if fields.is_empty() || fields.ends_with('\n') { "" } else { "\n" };
                end.sends(last_headers(*stream, &format!("{pseudo}{fields}{separator}")));
            }
        }
    }

    /// Sends a POST for `/up` with a body in pieces, chunked if it has no length.
    pub fn posts(&mut self, pieces: &[&[u8]], has_length: bool) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        match self {
            Self::One(peer) => {
                let framing = match has_length {
                    true => format!("content-length: {length}"),
                    false => "transfer-encoding: chunked".to_owned(),
                };
                peer.sends(format!("POST /up HTTP/1.1\r\nhost: test\r\n{framing}\r\n\r\n"));
                for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                    if has_length {
                        peer.sends(piece);
                    } else {
                        peer.sends(format!("{:x}\r\n", piece.len()));
                        peer.sends(piece);
                        peer.sends("\r\n");
                    }
                }
                if !has_length {
                    peer.sends("0\r\n\r\n");
                }
            }
            Self::Two(end, stream) => {
                let length = if has_length { format!("content-length: {length}\n") } else { String::new() };
                let fields = format!(":method: POST\n:scheme: http\n:authority: test\n:path: /up\n{length}");
                end.sends(headers(*stream, &fields));
                for (index, piece) in pieces.iter().enumerate() {
                    let is_last = index + 1 == pieces.len();
                    if is_last && piece.is_empty() {
                        end.sends(last_data(*stream, b""));
                    } else {
                        end.sends_body(*stream, piece, is_last);
                    }
                }
            }
        }
    }

    /// Receives a response, except to HEAD.
    pub fn gets(&mut self) -> Got {
        match self {
            Self::One(peer) => {
                let message = peer.message();
                let lines = message.head.lines().skip(1).filter_map(|line| line.split_once(": "));
                let fields =
                    lines.map(|(name, value)| format!("{}: {value}\n", name.to_lowercase())).collect();
                let body = String::from_utf8(message.body.clone()).expect("is text");
                Got { status: message.status(), fields, body }
            }
            Self::Two(end, stream) => {
                let text = end.whole(*stream);
                *stream += 2;
                let (head, body) = text.split_once("---\n").unwrap_or((&text, ""));
                let (status, fields) = head.split_once('\n').expect("has a status");
                let status = status.strip_prefix(":status: ").and_then(|status| status.parse().ok());
                let body = body.strip_suffix("\n---\n").unwrap_or(body);
                Got {
                    status: status.unwrap_or_else(|| panic!("no response: {text}")),
                    fields: fields.to_owned(),
                    body: body.to_owned(),
                }
            }
        }
    }

    pub fn gets_head_alone(&mut self) -> Got {
        match self {
            Self::One(peer) => {
                let head = peer.head();
                let status = head[9..12].parse().expect("is a status");
                let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
                let fields =
                    lines.map(|(name, value)| format!("{}: {value}\n", name.to_lowercase())).collect();
                Got { status, fields, body: String::new() }
            }
            Self::Two(..) => self.gets(),
        }
    }

    pub fn asks_for(&mut self, request: &BodylessRequest<'_>) -> Got {
        self.asks(request);
        self.gets()
    }
}
