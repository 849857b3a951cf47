//! Handshakes: certificates, sessions, protocols, and servers that cannot be reached.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use rustls::version::TLS13;
use testkit::http3::Server;
use testkit::ports::{self, loopback};
use testkit::tls::Authority;

use crate::scene::{GET, Scene, is_answered};

/// A server with a certificate for this name.
fn server(authority: &Authority, name: &str) -> Server {
    Server::of(authority.server(&authority.issue(&[name]), &TLS13), loopback(), |_| ())
}

/// Options for a server that has to prove this name.
fn trusting(authority: &Authority, name: &str) -> String {
    format!("tls = {{ ca = {:?}, name = {name:?} }}", authority.file)
}

#[test]
fn a_server_has_to_prove_its_name() {
    let authority = Authority::new();
    let scene = Scene::of(vec![server(&authority, "a.test")], &trusting(&authority, "a.test"), "");
    let mut client = scene.asks();
    let served = scene.accept();
    served.answers("ok");
    is_answered(&mut client, 200, "ok");
    for (options, right) in [
        (trusting(&authority, "b.test"), false),
        (trusting(&Authority::new(), "a.test"), false),
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
            scene.assert_failure("upstream-handshake");
        }
    }
}

#[test]
fn a_server_may_ask_for_a_certificate() {
    let authority = Authority::new();
    let asking = || Server::of(authority.server_asking(&authority.issue(&["a.test"])), loopback(), |_| ());
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
    // Without one the server refuses, behind our side of the handshake.
    let scene = Scene::of(vec![asking()], &trusting(&authority, "a.test"), "");
    let mut client = scene.asks();
    assert!(scene.servers[0].try_accept().is_err());
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-handshake");
}

/// Sessions of a server, which are resumed once each.
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
    let authority = Authority::new();
    let mut tls = authority.server(&authority.issue(&["a.test"]), &TLS13);
    tls.max_early_data_size = u32::MAX;
    let sessions = Arc::new(Sessions::default());
    tls.session_storage = Arc::<Sessions>::clone(&sessions);
    let options = format!("{}\npool = {{ idle_timeout = \"1s\" }}", trusting(&authority, "a.test"));
    let scene = Scene::of(vec![Server::of(tls, loopback(), |_| ())], &options, "");
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
    let authority = Authority::new();
    let mut tls = authority.server(&authority.issue(&["a.test"]), &TLS13);
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    let scene = Scene::of(vec![Server::of(tls, loopback(), |_| ())], &trusting(&authority, "a.test"), "");
    let mut client = scene.asks();
    assert!(scene.servers[0].try_accept().is_err());
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-handshake");
}

#[test]
fn where_nobody_listens_another_server_is_asked() {
    let gone = ports::nobody();
    let options = "tls = { verify = false }\nbalance = \"round-robin\"";
    let scene = Scene::with_others(&[gone], vec![Server::new()], options);
    let mut clients: Vec<_> = (0..4).map(|_| scene.asks()).collect();
    let served = scene.accept();
    clients.iter().for_each(|_| served.answers("ok"));
    clients.iter_mut().for_each(|client| is_answered(client, 200, "ok"));
}

#[test]
fn where_nobody_listens_is_known_before_quic_asks_again() {
    // It does after a second.
    let tables = "timeouts.upstream_connect = \"500ms\"";
    let scene = Scene::at(&[ports::nobody()], tables);
    let mut client = scene.client();
    client.sends(GET);
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-refused");
}

#[test]
fn where_datagrams_vanish_the_time_for_connecting_ends() {
    // It takes what comes, and says nothing: as behind a firewall that blocks UDP.
    let hole = UdpSocket::bind(loopback()).expect("a port is free");
    let tables = "timeouts.upstream_connect = \"300ms\"";
    let scene = Scene::at(&[hole.local_addr().expect("it has one")], tables);
    let mut client = scene.client();
    client.sends(GET);
    assert_eq!(client.message().status(), 504);
    scene.assert_failure("upstream-connect-timeout");
    drop(hole);
}
