//! A proxy with one worker between clients and HTTP/3 servers.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use control::Running;
use testkit::http1::Http1Peer;
use testkit::http3::{H3TestClient, H3TestServer, Served};
use testkit::scene::{read, valid};
use testkit::wait::PATIENCE;

use super::relay::Relay;

pub(crate) struct Scene {
    pub(crate) running: Running,
    pub(crate) servers: Vec<H3TestServer>,
}

impl Scene {
    /// With one server, whose certificate is not verified.
    pub(crate) fn new() -> Self {
        Self::with("", "")
    }

    /// With these options of the upstream, and tables.
    pub(crate) fn with(options: &str, tables: &str) -> Self {
        Self::of(vec![H3TestServer::new()], &format!("tls = {{ verify = false }}\n{options}"), tables)
    }

    /// With these servers, options of the upstream, and tables.
    pub(crate) fn of(servers: Vec<H3TestServer>, options: &str, tables: &str) -> Self {
        let running = control::start(read(&text(&addresses(&servers), options, tables)))
            .unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers }
    }

    /// With servers at these addresses first, and then the test's servers.
    pub(crate) fn with_others(others: &[SocketAddr], servers: Vec<H3TestServer>, options: &str) -> Self {
        let all: Vec<_> = others.iter().copied().chain(addresses(&servers)).collect();
        let running =
            control::start(read(&text(&all, options, ""))).unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers }
    }

    /// With a server at an address, and a test's server with the next priority.
    pub(crate) fn with_backup(first: SocketAddr, backup: H3TestServer) -> Self {
        let options = "tls = { verify = false }";
        let mut config = read(&text(&[first, backup.address()], options, "")).into_settings();
        config.upstreams[0].servers[1].priority = 1;
        let running = control::start(valid(config)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers: vec![backup] }
    }

    /// With servers at these addresses only, and tables.
    pub(crate) fn at(addresses: &[SocketAddr], tables: &str) -> Self {
        let text = text(addresses, "tls = { verify = false }", tables);
        let running = control::start(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, servers: Vec::new() }
    }

    /// With one server behind a relay.
    pub(crate) fn behind_a_relay(check: &str, tables: &str) -> (Self, Relay) {
        let server = H3TestServer::new();
        let relay = Relay::to(server.address());
        let options = format!("tls = {{ verify = false }}\n{check}");
        let text = text(&[relay.address], &options, tables);
        let running = control::start(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        (Self { running, servers: vec![server] }, relay)
    }

    pub(crate) fn reload(&self, options: &str, tables: &str) {
        let text = text(&addresses(&self.servers), options, tables);
        self.running.reload(read(&text)).unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn client(&self) -> Http1Peer {
        let stream = TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens");
        Http1Peer::new("client", stream)
    }

    pub(crate) fn client3(&self) -> H3TestClient {
        H3TestClient::connect(self.running.addresses()[1])
    }

    /// Accepts the next connection to the first server.
    pub(crate) fn accept(&self) -> Served {
        self.servers[0].accept()
    }

    /// A client that has sent a request for `/` on a new connection.
    pub(crate) fn asks(&self) -> Http1Peer {
        self.client().saying(GET)
    }

    /// Waits until this failure is counted, and asserts that no other was.
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

#[track_caller]
pub(crate) fn is_answered(client: &mut Http1Peer, status: u16, body: &str) {
    let message = client.message();
    assert_eq!((message.status(), String::from_utf8_lossy(&message.body).as_ref()), (status, body));
}

fn addresses(servers: &[H3TestServer]) -> Vec<SocketAddr> {
    servers.iter().map(H3TestServer::address).collect()
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
