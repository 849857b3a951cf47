//! A proxy with an HTTP/3 listener, and its HTTP/1.1 server.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Instant;

use control::Running;
use tempfile::TempDir;
use testkit::http1::Http1Peer;
use testkit::ports;
use testkit::scene::read;
use testkit::wait::PATIENCE;

use testkit::http3::H3TestClient;

pub(crate) struct Scene {
    pub(crate) running: Running,
    pub(crate) server: TcpListener,
    directory: TempDir,
}

pub(crate) const PLAIN: &str = "[[route]]\nupstream = \"app\"";

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(PLAIN)
    }

    /// With these routes and other tables.
    pub(crate) fn with(more: &str) -> Self {
        Self::of(1, "http3 = true", more)
    }

    /// With this number of workers, and options of the listener.
    pub(crate) fn of(workers: usize, listen: &str, more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let server = ports::listen();
        let text = text(workers, listen, more, &server, &directory);
        let running = control::start(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, server, directory }
    }

    /// Reloads with these options of the listener and tables.
    pub(crate) fn reload(&self, listen: &str, more: &str) {
        let text = text(1, listen, more, &self.server, &self.directory);
        let remarks = self.running.reload(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(remarks, Vec::<String>::new());
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.addresses()[0]
    }

    pub(crate) fn client(&self) -> H3TestClient {
        H3TestClient::connect(self.address())
    }

    /// Accepts the next connection to the server.
    pub(crate) fn accept(&self) -> Http1Peer {
        Http1Peer::new("server", ports::accept(&self.server))
    }

    /// Waits until the failure was counted `expected` times, and asserts that it was not more often.
    #[track_caller]
    pub(crate) fn assert_failure(&self, word: &str, expected: u64) {
        let at = Running::failure_words().iter().position(|other| *other == word).expect("is a word");
        let counted = || self.running.counters().failures[at];
        let began = Instant::now();
        while counted() < expected && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let all = Running::failure_words().iter().zip(self.running.counters().failures);
        let all: Vec<_> = all.filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted(), expected, "{word}; all: {all:?}");
    }
}

fn text(workers: usize, listen: &str, more: &str, server: &TcpListener, directory: &TempDir) -> String {
    let server = server.local_addr().expect("it listens");
    let address = if listen.contains("address =") { "" } else { "address = \"127.0.0.1:0\"\n" };
    let text = format!(
        "workers = {workers}\n{more}\n[upstream.app]\nservers = [\"http://{server}\"]\n\
         [[listen]]\n{address}tls = {{ self_signed = true }}\n{listen}\n"
    );
    let text = text.replace("{server}", &server.to_string());
    text.replace("{dir}", &directory.path().display().to_string())
}
