//! Handshakes: certificates, sessions, protocols, and servers that cannot be reached.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use rustls::version::TLS13;
use testkit::http3::H3TestServer;
use testkit::ports::{self, loopback};
use testkit::tls::TestAuthority;

use super::scene::{GET, Scene, is_answered};

fn server(authority: &TestAuthority, name: &str) -> H3TestServer {
    H3TestServer::from_tls(authority.server(&authority.issue(&[name]), &TLS13), loopback(), |_| ())
}

/// Options for a server that must have a certificate for this name.
fn trusting(authority: &TestAuthority, name: &str) -> String {
    format!("tls = {{ ca = {:?}, name = {name:?} }}", authority.file)
}

#[test]
fn a_server_has_to_prove_its_name() {
    let authority = TestAuthority::new();
    let scene = Scene::of(vec![server(&authority, "a.test")], &trusting(&authority, "a.test"), "");
    let mut client = scene.asks();
    let served = scene.accept();
    served.answers("ok");
    is_answered(&mut client, 200, "ok");
    for (options, right) in [
        (trusting(&authority, "b.test"), false),
        (trusting(&TestAuthority::new(), "a.test"), false),
        ("tls = { verify = false }".to_owned(), true),
    ] {
        let scene = Scene::of(vec![server(&authority, "a.test")], &options, "");
        let mut client = scene.asks();
        if right {
            let served = scene.accept();
            served.answers("ok");
            is_answered(&mut client, 200, "ok");
        } else {
            let why = scene.servers[0].try_accept().err().expect("the proxy does not believe it");
            // RFC 9001 §4.8: an alert of TLS.
            assert!(why.contains("certificate"), "{why}");
            assert_eq!(client.message().status(), 502);
            scene.assert_failure("upstream-certificate");
        }
    }
}

#[test]
fn a_server_may_ask_for_a_certificate() {
    let authority = TestAuthority::new();
    let asking =
        || H3TestServer::from_tls(authority.server_asking(&authority.issue(&["a.test"])), loopback(), |_| ());
    let own = authority.files("own", &["proxy.test"]);
    let options = format!(
        "tls = {{ ca = {:?}, name = \"a.test\", cert = {:?}, key = {:?} }}",
        authority.file, own.pair.cert, own.pair.key
    );
    let scene = Scene::of(vec![asking()], &options, "");
    let mut client = scene.asks();
    let served = scene.accept();
    assert!(served.quic.peer_identity().is_some());
    served.answers("ok");
    is_answered(&mut client, 200, "ok");
    // Without a certificate the server rejects the connection, after our side of the handshake.
    let scene = Scene::of(vec![asking()], &trusting(&authority, "a.test"), "");
    let mut client = scene.asks();
    assert!(scene.servers[0].try_accept().is_err());
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-alert");
}

/// A server's sessions, each of which is resumed once.
#[derive(Debug)]
struct Sessions {
    kept: Arc<ServerSessionMemoryCache>,
    taken: AtomicUsize,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { kept: ServerSessionMemoryCache::new(16), taken: AtomicUsize::default() }
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.kept.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.kept.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let found = self.kept.take(key);
        self.taken.fetch_add(usize::from(found.is_some()), SeqCst);
        found
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[test]
fn sessions_are_resumed_and_no_request_is_early() {
    let authority = TestAuthority::new();
    let mut tls = authority.server(&authority.issue(&["a.test"]), &TLS13);
    tls.max_early_data_size = u32::MAX;
    let sessions = Arc::new(Sessions::default());
    tls.session_storage = Arc::<Sessions>::clone(&sessions);
    let options = format!("{}\npool = {{ idle_timeout = \"1s\" }}", trusting(&authority, "a.test"));
    let scene = Scene::of(vec![H3TestServer::from_tls(tls, loopback(), |_| ())], &options, "");
    for resumed in [0, 1] {
        let mut client = scene.asks();
        let served = scene.accept();
        served.answers("ok");
        is_answered(&mut client, 200, "ok");
        served.closed();
        assert_eq!(sessions.taken.load(SeqCst), resumed);
    }
}

#[test]
fn a_server_of_another_protocol_is_refused() {
    let authority = TestAuthority::new();
    let mut tls = authority.server(&authority.issue(&["a.test"]), &TLS13);
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    let scene =
        Scene::of(vec![H3TestServer::from_tls(tls, loopback(), |_| ())], &trusting(&authority, "a.test"), "");
    let mut client = scene.asks();
    assert!(scene.servers[0].try_accept().is_err());
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-protocol");
}

#[test]
fn where_nobody_listens_another_server_is_asked() {
    let gone = ports::nobody();
    let options = "tls = { verify = false }\nbalance = \"round-robin\"";
    let scene = Scene::with_others(&[gone], vec![H3TestServer::new()], options);
    let mut clients: Vec<_> = (0..4).map(|_| scene.asks()).collect();
    let served = scene.accept();
    clients.iter().for_each(|_| served.answers("ok"));
    clients.iter_mut().for_each(|client| is_answered(client, 200, "ok"));
}

#[test]
fn where_nobody_listens_the_next_priority_is_asked() {
    let scene = Scene::with_backup(ports::nobody(), H3TestServer::new());
    let mut client = scene.asks();
    let backup = scene.accept();
    for request in 0..7 {
        if request > 0 {
            client = scene.asks();
        }
        backup.answers("ok");
        is_answered(&mut client, 200, "ok");
    }
    // Then the first server is ejected, with its priority.
    assert_eq!(scene.running.counters().upstream_retries, 5);
}

#[test]
fn where_nobody_listens_is_known_before_quic_asks_again() {
    // The client's retransmissions reach the server after a second.
    let tables = "timeouts.upstream_connect = \"500ms\"";
    let scene = Scene::at(&[ports::nobody()], tables);
    let mut client = scene.client().saying(GET);
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-refused");
}

#[test]
fn where_datagrams_vanish_the_time_for_connecting_ends() {
    // A black hole, such as a firewall that drops UDP.
    let hole = UdpSocket::bind(loopback()).expect("a port is free");
    let tables = "timeouts.upstream_connect = \"300ms\"";
    let scene = Scene::at(&[hole.local_addr().expect("it has one")], tables);
    let mut client = scene.client().saying(GET);
    assert_eq!(client.message().status(), 504);
    scene.assert_failure("upstream-connect-timeout");
    drop(hole);
}
