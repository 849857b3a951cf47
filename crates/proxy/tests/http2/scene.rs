//! A proxy with one worker between clients and servers of one version each.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use config::{Protocol, Server, Settings};
use control::Running;
use socket2::SockRef;
use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::scene::valid;
use testkit::wait::PATIENCE;

pub(crate) struct Scene {
    pub(crate) running: Running,
    servers: Vec<TcpListener>,
}

impl Scene {
    pub(crate) fn to_http1() -> Self {
        Self::with(Protocol::Http1, 1, |_| ())
    }

    pub(crate) fn to_http2() -> Self {
        Self::with(Protocol::Http2, 1, |_| ())
    }

    /// With a number of servers, and changes to the configuration.
    pub(crate) fn with(protocol: Protocol, servers: usize, change: impl FnOnce(&mut Settings)) -> Self {
        let listen = |_| {
            let listener = TcpListener::bind(loopback()).expect("a port on loopback is free");
            SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
            listener
        };
        let servers: Vec<TcpListener> = (0..servers).map(listen).collect();
        let urls = servers.iter().map(|server| {
            let address = server.local_addr().expect("it listens");
            format!("http://{address}").parse::<Server>().expect("is a URL")
        });
        let mut config = Settings::for_servers(vec![loopback()], urls.collect());
        config.workers = Some(1.try_into().expect("is not zero"));
        config.upstreams[0].protocol = protocol;
        change(&mut config);
        let running =
            control::start(valid(config)).unwrap_or_else(|error| panic!("the proxy does not start: {error}"));
        Self { running, servers }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens")
    }

    pub(crate) fn client(&self) -> H2End {
        self.client_with(&[])
    }

    /// A new HTTP/2 client with these settings.
    pub(crate) fn client_with(&self, settings: &[(u16, u32)]) -> H2End {
        H2End::client(self.connect(), settings)
    }

    pub(crate) fn client1(&self) -> Http1Peer {
        Http1Peer::new("client", self.connect())
    }

    pub(crate) fn accept_stream(&self, server: usize) -> TcpStream {
        let accepted = self.servers[server].accept();
        accepted.unwrap_or_else(|error| panic!("no connection reaches the server: {error}")).0
    }

    /// Accepts the next connection to the first server, in HTTP/2.
    pub(crate) fn accept(&self) -> H2End {
        self.accept_with(&[])
    }

    /// The server has these settings.
    pub(crate) fn accept_with(&self, settings: &[(u16, u32)]) -> H2End {
        H2End::server(self.accept_stream(0), settings)
    }

    /// Accepts the next connection to the first server, in HTTP/1.1.
    pub(crate) fn accept1(&self) -> Http1Peer {
        Http1Peer::new("server", self.accept_stream(0))
    }

    pub(crate) fn server_address(&self) -> SocketAddr {
        self.server_address_of(0)
    }

    pub(crate) fn server_address_of(&self, server: usize) -> SocketAddr {
        self.servers[server].local_addr().expect("it listens")
    }

    /// Asserts that every connection to a server was accepted.
    #[track_caller]
    pub(crate) fn assert_no_more_connections(&self) {
        for server in &self.servers {
            server.set_nonblocking(true).expect("is a socket");
            assert!(
                server.accept().is_err(),
                "a connection reached a server that nothing should have reached"
            );
            server.set_nonblocking(false).expect("is a socket");
        }
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
        assert_eq!(counted(), expected, "{word}; all: {:?}", self.failures());
    }

    pub(crate) fn failures(&self) -> Vec<(&'static str, u64)> {
        let counted = self.running.counters().failures;
        let words = Running::failure_words().iter().copied().zip(counted);
        words.filter(|(_, count)| *count > 0).collect()
    }
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Writes until the peer takes no more. Returns the number of bytes.
pub(crate) fn fills(stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).expect("is a socket");
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(500) {
        match (&*stream).write(&[b'x'; 65_536]) {
            Ok(count) => {
                sent += count;
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("the connection has ended: {error}"),
        }
    }
    stream.set_nonblocking(false).expect("is a socket");
    sent
}
