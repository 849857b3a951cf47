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
use testkit::tls::{Authority, End, Issued};
use testkit::wait::PATIENCE;

/// A running proxy, and a server behind it.
pub(crate) struct Scene {
    pub(crate) authority: Authority,
    pub(crate) running: Running,
    server: TcpListener,
    /// What the server's end starts from, if it has TLS.
    server_tls: Option<Arc<ServerConfig>>,
    /// What clients start from.
    pub(crate) client: Arc<ClientConfig>,
}

impl Scene {
    /// A listener with a certificate for `a.example`, and a server in the clear.
    pub(crate) fn new() -> Self {
        Self::with(|_, _| ())
    }

    /// The same with some changes.
    pub(crate) fn with(change: impl FnOnce(&mut Settings, &Authority)) -> Self {
        Self::begin(Authority::new(), None, change)
    }

    /// With a server that has TLS, and some changes.
    pub(crate) fn to_tls(
        authority: Authority,
        tls: ServerConfig,
        change: impl FnOnce(&mut Settings, &Authority),
    ) -> Self {
        Self::begin(authority, Some(Arc::new(tls)), change)
    }

    /// With a server of TLS 1.3 that has a certificate for `a.example`, signed by the CA that the proxy believes.
    pub(crate) fn to_tls13() -> Self {
        let authority = Authority::new();
        let tls = authority.server(&authority.issue(&["a.example"]), &TLS13);
        Self::to_tls(authority, tls, |_, _| ())
    }

    fn begin(
        authority: Authority,
        server_tls: Option<Arc<ServerConfig>>,
        change: impl FnOnce(&mut Settings, &Authority),
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
    pub(crate) fn client(&self) -> End {
        self.client_with(&self.client)
    }

    pub(crate) fn client_with(&self, config: &Arc<ClientConfig>) -> End {
        let mut client = End::client(self.connect(), config, "a.example");
        client.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
        client
    }

    /// The server's next connection, after its handshake.
    pub(crate) fn accept(&self) -> End {
        let mut server = self.accept_unshaken();
        if server.tls.is_some() {
            server.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
        }
        server
    }

    /// The access log, and how the proxy is told to write it.
    pub(crate) fn logs(config: &mut Settings, authority: &Authority) {
        let target = LogTarget::File(authority.path().join("access.log"));
        config.access_logs = vec![AccessLog::new(target, LogFormat::Json)];
    }

    /// Ends the proxy, and returns what it has logged.
    pub(crate) fn logged(self) -> Vec<serde_json::Value> {
        self.running.drain();
        self.running.wait();
        let text =
            std::fs::read_to_string(self.authority.path().join("access.log")).expect("the log is there");
        text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
    }

    /// The server's next connection.
    pub(crate) fn accept_unshaken(&self) -> End {
        let accepted = self.server.accept();
        let (tcp, _) = accepted.unwrap_or_else(|error| panic!("no connection reaches the server: {error}"));
        match &self.server_tls {
            Some(config) => End::server(tcp, config),
            None => End::plain(tcp),
        }
    }

    /// No further connection has reached the server.
    #[track_caller]
    pub(crate) fn assert_no_more_connections(&self) {
        self.server.set_nonblocking(true).expect("is a socket");
        let accepted = self.server.accept();
        self.server.set_nonblocking(false).expect("is a socket");
        assert!(accepted.is_err(), "a connection reached the server that nothing should have reached");
    }

    /// Waits until the counters say so: some are counted after the other end knows.
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

/// The listener's TLS.
pub(crate) fn listener_tls(config: &mut Settings) -> &mut ListenerTls {
    config.listeners[0].tls.as_mut().expect("it has TLS")
}

/// A certificate's place in a list of those that were issued.
pub(crate) fn shown(client: &mut End, issued: &[&Issued]) -> Option<usize> {
    let shown = client.tls().peer_certificates().expect("one was shown")[0].clone();
    issued.iter().position(|issued| issued.certificate == shown)
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
