//! A proxy with one worker between a client and servers, and the steps of a conversation through it.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use config::{Server, Settings};
use control::Running;
use socket2::SockRef;
use testkit::http1::Http1Peer;
use testkit::scene::valid;
use testkit::text::{GET_SEEN, OK, OK_GOT, expand};
use testkit::wait::PATIENCE;

/// A step of a conversation. Texts are expanded by `text::expand`. "The client" and "the server" are the newest
/// connections.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    /// Opens a new client connection, and closes the previous one. The first is opened automatically.
    ClientConnects,
    ClientSends(&'a str),
    /// Exactly these bytes.
    ClientGets(&'a str),
    /// No more bytes, and an orderly close.
    ClientGetsEnd,
    ClientHalfCloses,
    ClientCloses,
    /// The first server accepts a connection; it keeps the previous one open.
    ServerAccepts,
    ServerSends(&'a str),
    /// Exactly these bytes.
    ServerGets(&'a str),
    /// No more bytes, and an orderly close.
    ServerGetsEnd,
    /// No more bytes, and any kind of close.
    ServerIsClosed,
    ServerHalfCloses,
    ServerCloses,
    ServerResets,
    /// The server gets `GET` and answers `OK`, which the client gets.
    IsServed,
}

pub(crate) struct Scene {
    running: Running,
    servers: Vec<TcpListener>,
    /// Connections that servers have accepted and not closed, newest last.
    accepted: RefCell<Vec<Http1Peer>>,
}

impl Scene {
    /// With one server and the default configuration.
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// With one server, and changes to the configuration.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with_servers(&[1], change)
    }

    /// With servers of these weights.
    pub(crate) fn with_servers(weights: &[u32], change: impl FnOnce(&mut Settings)) -> Self {
        let servers: Vec<TcpListener> = weights.iter().map(|_| listen()).collect();
        let urls = servers.iter().zip(weights).map(|(server, &weight)| {
            let address = server.local_addr().expect("it listens");
            let written: Server = format!("http://{address}").parse().expect("is a URL");
            Server { weight, ..written }
        });
        let mut config = Settings::for_servers(vec![loopback()], urls.collect());
        // One worker, so that there is one pool.
        config.workers = Some(1.try_into().expect("is not zero"));
        change(&mut config);
        let running =
            control::start(valid(config)).unwrap_or_else(|error| panic!("the proxy does not start: {error}"));
        Self { running, servers, accepted: RefCell::default() }
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.addresses()[0]
    }

    pub(crate) fn server_address(&self, server: usize) -> SocketAddr {
        self.servers[server].local_addr().expect("it listens")
    }

    pub(crate) fn client(&self) -> Http1Peer {
        Http1Peer::new("client", TcpStream::connect(self.address()).expect("the proxy listens"))
    }

    /// Accepts the next connection to a server.
    pub(crate) fn accept(&self, server: usize) -> Http1Peer {
        let accepted = self.servers[server].accept();
        let (stream, _) =
            accepted.unwrap_or_else(|error| panic!("no connection reaches the server: {error}"));
        Http1Peer::new("server", stream)
    }

    /// Accepts the next connection to a server if there is one.
    pub(crate) fn try_accept(&self, server: usize) -> Option<Http1Peer> {
        let server = &self.servers[server];
        server.set_nonblocking(true).expect("is a socket");
        let accepted = server.accept();
        server.set_nonblocking(false).expect("is a socket");
        accepted.ok().map(|(stream, _)| Http1Peer::new("server", stream))
    }

    /// Asserts that every connection to a server was accepted.
    pub(crate) fn assert_no_more_connections(&self) {
        let more = (0..self.servers.len()).find_map(|server| self.try_accept(server));
        assert!(more.is_none(), "a connection reached a server that nothing should have reached");
    }

    /// Closes the servers and returns the proxy.
    pub(crate) fn into_running(self) -> Running {
        self.running
    }

    /// Asserts that exactly these failures were counted, in any order. A request is counted when it has ended, which
    /// may be after its client has the response.
    #[track_caller]
    pub(crate) fn assert_failures(&self, expected: &[&str]) {
        let began = Instant::now();
        let is_over = || self.running.counters().requests_active == 0;
        while !(is_over() && self.failures().len() >= expected.len()) && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let mut expected = expected.to_vec();
        let order = |word: &&str| Running::failure_words().iter().position(|other| other == word);
        expected.sort_by_key(order);
        assert_eq!(self.failures(), expected);
    }

    fn failures(&self) -> Vec<&'static str> {
        let counted = self.running.counters().failures;
        let words = Running::failure_words().iter().zip(counted);
        words.flat_map(|(word, count)| std::iter::repeat_n(*word, count as usize)).collect()
    }

    /// Executes the steps, then closes the client: nothing may be left on either side.
    pub(crate) fn play(&self, name: &str, steps: &[Step<'_>]) {
        let mut client = Some(self.client());
        for (at, step) in steps.iter().enumerate() {
            let result = catch_unwind(AssertUnwindSafe(|| self.carry_out(*step, &mut client)));
            if let Err(panic) = result {
                report(&format!("{name:?}, step {}: {step:?}", at + 1));
                resume_unwind(panic);
            }
        }
        let result = catch_unwind(AssertUnwindSafe(|| self.finish(client)));
        if let Err(panic) = result {
            report(&format!("{name:?}, after the last step"));
            resume_unwind(panic);
        }
    }

    fn carry_out(&self, step: Step<'_>, client: &mut Option<Http1Peer>) {
        let expand = |text| expand(text, &self.server_address(0).to_string());
        let mut accepted = self.accepted.borrow_mut();
        match step {
            Step::ClientConnects => *client = Some(self.client()),
            Step::ClientSends(text) => the(client).sends(expand(text)),
            Step::ClientGets(text) => the(client).gets(&expand(text)),
            Step::ClientGetsEnd => the(client).gets_the_end(),
            Step::ClientHalfCloses => the(client).half_closes(),
            Step::ClientCloses => *client = None,
            Step::ServerAccepts => accepted.push(self.accept(0)),
            Step::ServerSends(text) => last(&mut accepted).sends(expand(text)),
            Step::ServerGets(text) => last(&mut accepted).gets(&expand(text)),
            Step::ServerGetsEnd => last(&mut accepted).gets_the_end(),
            Step::ServerIsClosed => last(&mut accepted).is_closed(),
            Step::ServerHalfCloses => last(&mut accepted).half_closes(),
            Step::ServerCloses => drop(accepted.pop()),
            Step::ServerResets => accepted.pop().expect("a server has accepted").resets(),
            Step::IsServed => {
                let server = last(&mut accepted);
                server.gets(&expand(GET_SEEN));
                server.sends(expand(OK));
                the(client).gets(&expand(OK_GOT));
            }
        }
    }

    fn finish(&self, client: Option<Http1Peer>) {
        if let Some(mut client) = client {
            // Fails if the connection has already ended.
            let _ = client.stream().shutdown(std::net::Shutdown::Write);
            client.is_closed();
        }
        self.assert_no_more_connections();
        for mut server in self.accepted.borrow_mut().drain(..) {
            server.has_nothing();
        }
    }
}

/// A server's listening socket, whose `accept` has a time-out.
pub(crate) fn listen() -> TcpListener {
    let listener = TcpListener::bind(loopback()).expect("a port on loopback is free");
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    listener
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn the(client: &mut Option<Http1Peer>) -> &mut Http1Peer {
    client.as_mut().expect("the client is connected")
}

fn last(accepted: &mut [Http1Peer]) -> &mut Http1Peer {
    accepted.last_mut().expect("a server has accepted")
}

#[allow(clippy::print_stderr, reason = "says where a conversation went wrong, as the panic cannot")]
fn report(place: &str) {
    eprintln!("in {place}");
}
