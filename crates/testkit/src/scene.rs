//! Running proxy with a configuration, HTTP/1.1 servers played by the test, and clients of both HTTP versions.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use control::Running;
use tempfile::TempDir;

use crate::http1::Peer;
use crate::http2::End;
use crate::http2::frame::{headers, last_data, last_headers};
use crate::ports;
use crate::tls::{Authority, tunnel};

/// HTTP version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// The client uses HTTP/1.1.
    Http1,
    /// The client uses HTTP/2.
    Http2,
}

/// Both HTTP versions, for tests that run with each.
pub const BOTH: [Spoken; 2] = [Spoken::Http1, Spoken::Http2];

/// A running proxy with its servers.
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

    /// The running proxy.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// The proxy and its temporary folder, for tests that end the proxy.
    pub fn into_parts(self) -> (Running, TempDir) {
        (self.running, self.directory)
    }

    /// Path of a file in the temporary folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Address of a server, by its number.
    pub fn server_address(&self, server: usize) -> String {
        self.servers[server].local_addr().expect("it listens").to_string()
    }

    /// The listening socket of a server, to accept with after the scene.
    pub fn listener(&self, server: usize) -> TcpListener {
        self.servers[server].try_clone().expect("a descriptor is free")
    }

    /// Connects a client.
    pub fn client(&self, spoken: Spoken) -> Client {
        let stream = TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens");
        match spoken {
            Spoken::Http1 => Client::One(Peer::new("client", stream)),
            Spoken::Http2 => Client::Two(Box::new(End::client(stream, &[])), 1),
        }
    }

    /// Accepts the next connection to a server.
    pub fn accept(&self, server: usize) -> Peer {
        Peer::new("server", ports::accept(&self.servers[server]))
    }

    /// Accepts a connection to a server if one is already waiting.
    pub fn try_accept(&self, server: usize) -> Option<Peer> {
        ports::try_accept(&self.servers[server]).map(|stream| Peer::new("server", stream))
    }

    /// Accepts the next connection to a server that speaks TLS, as [`tunnel::NAME`].
    pub fn accept_tls(&self, server: usize, authority: &Authority) -> Peer {
        let stream = ports::accept(&self.servers[server]);
        Peer::new("server", tunnel::server(authority, false, stream))
    }

    /// Accepts the next connection to a server that speaks HTTP/2.
    pub fn accept_http2(&self, server: usize) -> End {
        End::server(ports::accept(&self.servers[server]), &[])
    }

    /// Sends a request on a new connection; the first server answers. Returns the head that the server received, and
    /// the client's response.
    pub fn exchange(&self, spoken: Spoken, request: &Asked<'_>, response: &str) -> (String, Got) {
        let mut client = self.client(spoken);
        client.asks(request);
        let mut server = self.accept(0);
        let seen = server.head();
        server.sends(response);
        (seen, client.gets())
    }

    /// Sends a request on a new connection that the proxy answers without a server.
    pub fn answer(&self, spoken: Spoken, request: &Asked<'_>) -> Got {
        let mut client = self.client(spoken);
        client.asks(request);
        client.gets()
    }
}

/// Parses a configuration.
pub fn read(text: &str) -> config::Config {
    config::parse(text, "test.toml").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

/// Validates settings that a test has changed.
pub fn valid(settings: config::Settings) -> config::Config {
    config::Config::new(settings).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

/// A request without a body.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Method.
    pub method: &'a str,
    /// Host, `:authority` in HTTP/2.
    pub host: &'a str,
    /// Target, `:path` in HTTP/2.
    pub target: &'a str,
    /// Lines of `name: value`, names in lower case.
    pub fields: &'a str,
}

/// A GET request for the host `test`.
pub fn get(target: &str) -> Asked<'_> {
    Asked { method: "GET", host: "test", target, fields: "" }
}

/// A client of one of both HTTP versions.
pub enum Client {
    /// An HTTP/1.1 client.
    One(Peer),
    /// An HTTP/2 client, with the number of its next stream.
    Two(Box<End>, u32),
}

/// A received response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// Status.
    pub status: u16,
    /// Lines of `name: value`, names in lower case.
    pub fields: String,
    /// Body.
    pub body: String,
}

impl Got {
    /// Value of the first field of this name, in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Values of all fields of this name, in lower case.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let pairs = self.fields.lines().filter_map(|line| line.split_once(": "));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
    }
}

impl Client {
    /// Sends a request.
    pub fn asks(&mut self, request: &Asked<'_>) {
        let Asked { method, host, target, fields } = request;
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

    /// Sends a POST for `/up` with a body, piece by piece. Without a length it is chunked.
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

    /// Receives a response to HEAD, which has no body.
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

    /// Sends a request and receives its response.
    pub fn asks_for(&mut self, request: &Asked<'_>) -> Got {
        self.asks(request);
        self.gets()
    }
}
