//! A proxy with one worker and a listener with TLS, and servers that the test plays.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use config::{AccessLog, Certificates, Listener, ListenerTls, LogFormat, LogTarget, Settings};
use control::Running;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig};
use socket2::SockRef;
use telemetry::Snapshot;
use testkit::scene::valid;
use testkit::tls::{Issued, TestAuthority, TlsEnd};
use testkit::wait::PATIENCE;

pub(crate) struct Scene {
    pub(crate) authority: TestAuthority,
    pub(crate) running: Running,
    server: TcpListener,
    /// The configuration of the server's end, if it has TLS.
    server_tls: Option<Arc<ServerConfig>>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Scene {
    /// A listener with a certificate for `a.example`, and a server without TLS.
    pub(crate) fn new() -> Self {
        Self::with(|_, _| ())
    }

    /// With changes to the configuration.
    pub(crate) fn with(change: impl FnOnce(&mut Settings, &TestAuthority)) -> Self {
        Self::begin(TestAuthority::new(), None, change)
    }

    /// With a TLS server, and changes to the configuration.
    pub(crate) fn to_tls(
        authority: TestAuthority,
        tls: ServerConfig,
        change: impl FnOnce(&mut Settings, &TestAuthority),
    ) -> Self {
        Self::begin(authority, Some(Arc::new(tls)), change)
    }

    /// With a TLS 1.3 server that has a certificate for `a.example`, signed by the CA that the proxy trusts.
    pub(crate) fn to_tls13() -> Self {
        let authority = TestAuthority::new();
        let tls = authority.server(&authority.issue(&["a.example"]), &TLS13);
        Self::to_tls(authority, tls, |_, _| ())
    }

    fn begin(
        authority: TestAuthority,
        server_tls: Option<Arc<ServerConfig>>,
        change: impl FnOnce(&mut Settings, &TestAuthority),
    ) -> Self {
        let server = TcpListener::bind(loopback()).expect("a port on loopback is free");
        SockRef::from(&server).set_read_timeout(Some(PATIENCE)).expect("is a socket");
        let scheme = if server_tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", server.local_addr().expect("it listens"));
        let mut config = Settings::for_servers(vec![loopback()], vec![url.parse().expect("is a URL")]);
        config.workers = Some(1.try_into().expect("is not zero"));
        let tls = server_tls_of(Certificates::Files(vec![authority.files("own", &["a.example"])]));
        config.listeners[0] = Listener { tls: Some(tls), ..Listener::plain(loopback()) };
        config.upstreams[0].tls.ca = Some(authority.file.clone());
        config.upstreams[0].tls.name = Some("a.example".to_owned());
        change(&mut config, &authority);
        let running =
            control::start(valid(config)).unwrap_or_else(|error| panic!("it does not start: {error}"));
        let client = Arc::new(authority.client(&[&TLS13, &TLS12]));
        Self { authority, running, server, server_tls, client }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.addresses()[0]
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).expect("the proxy listens")
    }

    /// A client after its handshake.
    pub(crate) fn client(&self) -> TlsEnd {
        self.client_with(&self.client)
    }

    pub(crate) fn client_with(&self, config: &Arc<ClientConfig>) -> TlsEnd {
        let mut client = TlsEnd::client(self.connect(), config, "a.example");
        client.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
        client
    }

    /// Accepts the server's next connection, and does the handshake.
    pub(crate) fn accept(&self) -> TlsEnd {
        let mut server = self.accept_unshaken();
        if server.tls.is_some() {
            server.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
        }
        server
    }

    /// Adds an access log in JSON.
    pub(crate) fn logs(config: &mut Settings, authority: &TestAuthority) {
        let target = LogTarget::File(authority.path().join("access.log"));
        config.access_logs = vec![AccessLog::new(target, LogFormat::Json)];
    }

    /// Ends the proxy, and returns the lines of its log.
    pub(crate) fn logged(self) -> Vec<serde_json::Value> {
        self.running.drain();
        self.running.wait();
        let text =
            std::fs::read_to_string(self.authority.path().join("access.log")).expect("the log is there");
        text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
    }

    /// Accepts the server's next connection, before the handshake.
    pub(crate) fn accept_unshaken(&self) -> TlsEnd {
        let accepted = self.server.accept();
        let (tcp, _) = accepted.unwrap_or_else(|error| panic!("no connection reaches the server: {error}"));
        match &self.server_tls {
            Some(config) => TlsEnd::server(tcp, config),
            None => TlsEnd::plain(tcp),
        }
    }

    /// Asserts that every connection to the server was accepted.
    #[track_caller]
    pub(crate) fn assert_no_more_connections(&self) {
        self.server.set_nonblocking(true).expect("is a socket");
        let accepted = self.server.accept();
        self.server.set_nonblocking(false).expect("is a socket");
        assert!(accepted.is_err(), "a connection reached the server that nothing should have reached");
    }

    /// Waits for a state of the counters: some count after the other end sees the result.
    #[track_caller]
    pub(crate) fn waits_for(&self, what: &str, is_so: impl Fn(&Snapshot) -> bool) {
        let began = Instant::now();
        while !is_so(&self.running.counters()) {
            assert!(began.elapsed() < PATIENCE, "{what}: {:?}", self.running.counters());
            std::thread::yield_now();
        }
    }

    /// How often this failure was counted.
    pub(crate) fn failures(&self, word: &str) -> u64 {
        count(&self.running.counters(), word)
    }
}

/// How often this failure was counted.
pub(crate) fn count(counters: &Snapshot, word: &str) -> u64 {
    let at = Running::failure_words().iter().position(|known| *known == word);
    counters.failures[at.expect("is a word")]
}

pub(crate) fn server_tls_of(certificates: Certificates) -> ListenerTls {
    ListenerTls::new(certificates)
}

pub(crate) fn listener_tls(config: &mut Settings) -> &mut ListenerTls {
    config.listeners[0].tls.as_mut().expect("it has TLS")
}

/// Returns the index of the client's peer certificate in a list of issued ones.
pub(crate) fn shown(client: &mut TlsEnd, issued: &[&Issued]) -> Option<usize> {
    let shown = client.tls().peer_certificates().expect("one was shown")[0].clone();
    issued.iter().position(|issued| issued.certificate == shown)
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
