//! A proxy with one worker between clients and servers of HTTP/3.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use control::Running;
use testkit::http1::Peer;
use testkit::http3::{Client, Served, Server};
use testkit::scene::read;
use testkit::wait::PATIENCE;

use crate::relay::Relay;

/// A running proxy, and the servers behind it.
pub(crate) struct Scene {
    pub(crate) running: Running,
    pub(crate) servers: Vec<Server>,
}

impl Scene {
    /// With one server, whose certificate is not verified.
    pub(crate) fn new() -> Self {
        Self::with("", "")
    }

    /// With these options of the upstream, and tables.
    pub(crate) fn with(options: &str, tables: &str) -> Self {
        Self::of(vec![Server::new()], &format!("tls = {{ verify = false }}\n{options}"), tables)
    }

    /// With these servers, options of the upstream, and tables.
    pub(crate) fn of(servers: Vec<Server>, options: &str, tables: &str) -> Self {
        let running = control::start(read(&text(&addresses(&servers), options, tables)))
            .unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers }
    }

    /// With servers at these addresses, and these behind them.
    pub(crate) fn with_others(others: &[SocketAddr], servers: Vec<Server>, options: &str) -> Self {
        let all: Vec<_> = others.iter().copied().chain(addresses(&servers)).collect();
        let running =
            control::start(read(&text(&all, options, ""))).unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers }
    }

    /// With nothing but these addresses, and tables.
    pub(crate) fn at(addresses: &[SocketAddr], tables: &str) -> Self {
        let text = text(addresses, "tls = { verify = false }", tables);
        let running = control::start(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers: Vec::new() }
    }

    /// With one server behind a relay.
    pub(crate) fn behind_a_relay(check: &str, tables: &str) -> (Self, Relay) {
        let server = Server::new();
        let relay = Relay::to(server.address());
        let options = format!("tls = {{ verify = false }}\n{check}");
        let text = text(&[relay.address], &options, tables);
        let running = control::start(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        (Self { running, servers: vec![server] }, relay)
    }

    /// Reloads with these options and tables.
    pub(crate) fn reload(&self, options: &str, tables: &str) {
        let text = text(&addresses(&self.servers), options, tables);
        self.running.reload(read(&text)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// A new client of HTTP/1.1.
    pub(crate) fn client(&self) -> Peer {
        let stream = TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens");
        Peer::new("client", stream)
    }

    /// A new client of HTTP/3.
    pub(crate) fn client3(&self) -> Client {
        Client::connect(self.running.addresses()[1])
    }

    /// The next connection to the first server.
    pub(crate) fn accept(&self) -> Served {
        self.servers[0].accept()
    }

    /// A client that has asked for `/`, on a connection of its own.
    pub(crate) fn asks(&self) -> Peer {
        let mut client = self.client();
        client.sends(GET);
        client
    }

    /// Once this has been counted, asserts that nothing else was.
    #[track_caller]
    pub(crate) fn assert_failure(&self, word: &str) {
        let at = Running::failure_words().iter().position(|other| *other == word).expect("is a word");
        let began = Instant::now();
        while self.running.counters().failures[at] == 0 && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let all = Running::failure_words().iter().zip(self.running.counters().failures);
        let all: Vec<_> = all.filter(|(_, count)| *count > 0).map(|(word, _)| *word).collect();
        assert_eq!(all, [word]);
    }
}

pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";

/// Asserts that a client gets this answer.
#[track_caller]
pub(crate) fn is_answered(client: &mut Peer, status: u16, body: &str) {
    let message = client.message();
    assert_eq!((message.status(), String::from_utf8_lossy(&message.body).as_ref()), (status, body));
}

fn addresses(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(Server::address).collect()
}

fn text(servers: &[SocketAddr], options: &str, tables: &str) -> String {
    let urls: Vec<_> = servers.iter().map(|address| format!("\"https://{address}\"")).collect();
    let route = if tables.contains("[[route]]") { "" } else { "[[route]]\nupstream = \"app\"\n" };
    format!(
        "workers = 1\n{tables}\n{route}[upstream.app]\nservers = [{}]\nprotocol = \"h3\"\n{options}\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n",
        urls.join(", ")
    )
}
