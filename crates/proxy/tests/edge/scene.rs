//! A proxy with listeners and servers of every kind, and the test at both of its ends.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use config::{AccessLog, ListenAddress, Listener, LogFormat, LogTarget, Server, Settings};
use control::Running;
use socket2::SockRef;
use tempfile::TempDir;
use testkit::http1::Http1Peer;
use testkit::scene::valid;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand};
use testkit::wait::PATIENCE;

/// A proxy with one worker, its servers, and a directory for sockets.
pub(crate) struct Scene {
    pub(crate) running: Running,
    servers: Vec<TcpListener>,
    /// Removed when the scene is dropped.
    _directory: TempDir,
}

/// The parts of a configuration.
pub(crate) struct Set {
    pub(crate) config: Settings,
    pub(crate) directory: PathBuf,
}

impl Set {
    /// Adds a JSON log, and returns its file.
    pub(crate) fn logs(&mut self) -> PathBuf {
        let path = self.directory.join("access.log");
        self.config.access_logs = vec![AccessLog::new(LogTarget::File(path.clone()), LogFormat::Json)];
        path
    }
}

impl Scene {
    /// A scene with one listener and this number of TCP servers, with changes by `change`.
    pub(crate) fn with(servers: usize, change: impl FnOnce(&mut Set)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let servers: Vec<TcpListener> = (0..servers).map(|_| listen()).collect();
        let url = |server: &TcpListener| url(&format!("http://{}", address_of(server)));
        let mut urls: Vec<Server> = servers.iter().map(url).collect();
        if urls.is_empty() {
            // Unless `change` names a server.
            urls.push(self::url("http://127.0.0.1:1"));
        }
        let mut config = Settings::for_servers(vec![loopback()], urls);
        config.workers = Some(1.try_into().expect("is not zero"));
        let mut set = Set { config, directory: directory.path().to_owned() };
        change(&mut set);
        let running =
            control::start(valid(set.config)).unwrap_or_else(|error| panic!("it does not start: {error}"));
        Self { running, servers, _directory: directory }
    }

    /// Connects to listener number `listener`.
    pub(crate) fn client_of(&self, listener: usize) -> Http1Peer {
        connect(&self.running.listeners()[listener])
    }

    /// Connects to the first listener.
    pub(crate) fn client(&self) -> Http1Peer {
        self.client_of(0)
    }

    pub(crate) fn accept(&self, server: usize) -> Http1Peer {
        accept(&self.servers[server])
    }

    /// Accepts the next connection to any server.
    pub(crate) fn accept_any(&self) -> (usize, Http1Peer) {
        let began = Instant::now();
        loop {
            for (index, server) in self.servers.iter().enumerate() {
                server.set_nonblocking(true).expect("is a socket");
                let accepted = server.accept();
                server.set_nonblocking(false).expect("is a socket");
                if let Ok((stream, _)) = accepted {
                    stream.set_nonblocking(false).expect("is a socket");
                    return (index, Http1Peer::new("server", stream));
                }
            }
            assert!(began.elapsed() < PATIENCE, "no connection reaches a server");
            std::thread::yield_now();
        }
    }

    /// Asserts that exactly these failures were counted, in the order of the table. Waits until they are.
    #[track_caller]
    pub(crate) fn assert_failures(&self, expected: &[&str]) {
        let mut expected = expected.to_vec();
        expected.sort_by_key(|word| Running::failure_words().iter().position(|other| other == word));
        let began = Instant::now();
        while self.failures().len() < expected.len() && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        assert_eq!(self.failures(), expected);
    }

    fn failures(&self) -> Vec<&'static str> {
        let counted = self.running.counters().failures;
        let words = Running::failure_words().iter().zip(counted);
        words.flat_map(|(word, count)| std::iter::repeat_n(*word, count as usize)).collect()
    }

    /// Waits until this number of clients is connected.
    #[track_caller]
    pub(crate) fn assert_open(&self, expected: u64) {
        let began = Instant::now();
        while self.running.counters().connections_active != expected {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.running.counters().connections_active);
            std::thread::yield_now();
        }
    }

    /// Ends the proxy, and returns the lines of its log.
    pub(crate) fn log_lines(self, path: &Path) -> Vec<String> {
        let Self { running, _directory, .. } = self;
        running.drain();
        running.wait();
        let text = std::fs::read_to_string(path).expect("the log is there");
        text.lines().map(str::to_owned).collect()
    }
}

pub(crate) fn connect(address: &ListenAddress) -> Http1Peer {
    let stream = match address {
        ListenAddress::Tcp(address) => TcpStream::connect(address).expect("the proxy listens"),
        ListenAddress::Any(port) => TcpStream::connect(("127.0.0.1", *port)).expect("the proxy listens"),
        ListenAddress::Unix(path) => of_unix(UnixStream::connect(path).expect("the proxy listens")),
    };
    Http1Peer::new("client", stream)
}

/// Returns the local and the remote address.
pub(crate) fn addresses(peer: &Http1Peer) -> (SocketAddr, SocketAddr) {
    let stream = peer.stream();
    (stream.local_addr().expect("is connected"), stream.peer_addr().expect("is connected"))
}

pub(crate) fn accept(server: &TcpListener) -> Http1Peer {
    // The standard library's `accept` needs a peer address, which a Unix socket lacks.
    let accepted = SockRef::from(server).accept();
    let (stream, _) = accepted.unwrap_or_else(|error| panic!("no connection reaches the server: {error}"));
    stream.set_nonblocking(false).expect("is a socket");
    Http1Peer::new("server", TcpStream::from(OwnedFd::from(stream)))
}

/// Treats any stream alike, since they are read and written alike.
fn of_unix(stream: UnixStream) -> TcpStream {
    TcpStream::from(OwnedFd::from(stream))
}

/// A server's listening socket, whose `accept` has a time-out.
pub(crate) fn listen() -> TcpListener {
    patient(TcpListener::bind(loopback()).expect("a port on loopback is free"))
}

/// A listening Unix socket, whose `accept` has a time-out.
pub(crate) fn listen_unix(path: &Path) -> TcpListener {
    let listener = UnixListener::bind(path).expect("nothing is there");
    patient(TcpListener::from(OwnedFd::from(listener)))
}

fn patient(listener: TcpListener) -> TcpListener {
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    listener
}

fn address_of(server: &TcpListener) -> SocketAddr {
    server.local_addr().expect("it listens")
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn url(text: &str) -> Server {
    text.parse().expect("is a URL")
}

pub(crate) fn unix_listener(path: PathBuf) -> Listener {
    Listener::at(ListenAddress::Unix(path))
}

/// Sends a request over a new connection to a server.
pub(crate) fn meet(client: &mut Http1Peer, accept: impl FnOnce() -> Http1Peer) -> Http1Peer {
    client.sends(GET);
    let mut server = accept();
    server.gets(&expand(GET_SEEN, ""));
    server
}

/// Sends a request, and answers it.
pub(crate) fn exchange(client: &mut Http1Peer, server: &mut Http1Peer) {
    client.sends(GET);
    server.gets(&expand(GET_SEEN, ""));
    answer(client, server);
}

pub(crate) fn answer(client: &mut Http1Peer, server: &mut Http1Peer) {
    server.sends(OK);
    client.gets(&expand(OK_GOT, ""));
}
