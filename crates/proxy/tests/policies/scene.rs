//! A proxy as a file configures it, servers of HTTP/1.1 that the test plays, and clients of either version.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use proxy::Running;
use socket2::SockRef;
use tempfile::TempDir;

use crate::end::End;
use crate::frame::last_headers;
use crate::peer::{PATIENCE, Peer};

/// What clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http1,
    Http2,
}

pub(crate) const BOTH: [Spoken; 2] = [Spoken::Http1, Spoken::Http2];

/// A running proxy and its servers.
pub(crate) struct Scene {
    running: Running,
    servers: Vec<TcpListener>,
    directory: TempDir,
}

impl Scene {
    /// With servers `{0}`, `{1}`, …, as many as the text names, and files in `{dir}`.
    pub(crate) fn new(routes: &str) -> Self {
        Self::with_files(&[], routes)
    }

    /// The same, with these files.
    pub(crate) fn with_files(files: &[(&str, &str)], routes: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("it can be written");
        }
        let servers: Vec<TcpListener> =
            (0..).take_while(|number| routes.contains(&format!("{{{number}}}"))).map(|_| listen()).collect();
        let mut scene_text = format!("workers = 2\n{routes}\n[[listen]]\naddress = \"127.0.0.1:0\"\n");
        scene_text = scene_text.replace("{dir}", &directory.path().display().to_string());
        for (number, server) in servers.iter().enumerate() {
            let address = server.local_addr().expect("it listens").to_string();
            scene_text = scene_text.replace(&format!("{{{number}}}"), &address);
        }
        let running = proxy::start(read(&scene_text)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers, directory }
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// The proxy, to be ended, and the folder with its files.
    pub(crate) fn into_parts(self) -> (Running, TempDir) {
        (self.running, self.directory)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn server_address(&self, server: usize) -> String {
        self.servers[server].local_addr().expect("it listens").to_string()
    }

    pub(crate) fn client(&self, spoken: Spoken) -> Client {
        let stream = TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens");
        match spoken {
            Spoken::Http1 => Client::One(Peer::new("client", stream)),
            Spoken::Http2 => Client::Two(Box::new(End::client(stream, &[])), 1),
        }
    }

    /// The next connection to a server.
    pub(crate) fn accept(&self, server: usize) -> Peer {
        let (stream, _) = self.servers[server].accept().expect("a connection reaches the server");
        Peer::new("server", stream)
    }

    /// The next connection to a server, if it is there already.
    pub(crate) fn try_accept(&self, server: usize) -> Option<Peer> {
        let server = &self.servers[server];
        server.set_nonblocking(true).expect("is a socket");
        let accepted = server.accept();
        server.set_nonblocking(false).expect("is a socket");
        accepted.ok().map(|(stream, _)| {
            stream.set_nonblocking(false).expect("is a socket");
            Peer::new("server", stream)
        })
    }

    /// What the server sees of a request, and the client of the response.
    pub(crate) fn exchange(&self, spoken: Spoken, request: &Asked<'_>, response: &str) -> (String, Got) {
        let mut client = self.client(spoken);
        client.asks(request);
        let mut server = self.accept(0);
        let seen = server.head();
        server.sends(response);
        (seen, client.gets())
    }

    /// What a client gets that needs no server.
    pub(crate) fn answer(&self, spoken: Spoken, request: &Asked<'_>) -> Got {
        let mut client = self.client(spoken);
        client.asks(request);
        client.gets()
    }
}

/// Reads a configuration.
pub(crate) fn read(text: &str) -> config::Config {
    config::parse(text, "test.toml").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    listener
}

/// A request without a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) target: &'a str,
    /// Lines of `name: value`, in lower case.
    pub(crate) fields: &'a str,
}

/// A GET for the host `test`.
pub(crate) fn get(target: &str) -> Asked<'_> {
    Asked { method: "GET", host: "test", target, fields: "" }
}

/// A client, with the number of its next stream.
pub(crate) enum Client {
    One(Peer),
    Two(Box<End>, u32),
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) status: u16,
    /// Lines of `name: value`, the names in lower case.
    pub(crate) fields: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let pairs = self.fields.lines().filter_map(|line| line.split_once(": "));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
    }
}

impl Client {
    pub(crate) fn asks(&mut self, request: &Asked<'_>) {
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

    /// The response to a request that is none of HEAD.
    pub(crate) fn gets(&mut self) -> Got {
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

    /// The response to a request of HEAD.
    pub(crate) fn gets_head_alone(&mut self) -> Got {
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

    pub(crate) fn asks_for(&mut self, request: &Asked<'_>) -> Got {
        self.asks(request);
        self.gets()
    }
}

/// A response that fits anywhere.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nok";
