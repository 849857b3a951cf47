//! TLS that is passed on undecrypted, by server name and ALPN, beside names whose TLS ends here.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;

use config::{Passthrough, Settings, Upstream};
use route::Split;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ServerConfig};
use testkit::tls::{TestAuthority, TlsEnd};

use super::scene::{Scene, loopback};

/// A TLS server behind the proxy, which passes its TLS on, and terminates that of `a.example`.
struct Stage {
    scene: Scene,
    passed: TcpListener,
    tls: Arc<ServerConfig>,
}

/// A split with a single upstream.
fn all_to(upstream: usize) -> route::Split {
    route::Split::new([(upstream, "passed", 1)]).expect("a share")
}

impl Stage {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let authority = TestAuthority::new();
        let passed = TcpListener::bind(loopback()).expect("a port on loopback is free");
        let mut tls = authority.server(&authority.issue(&["b.example", "x.c.example"]), &TLS13);
        tls.alpn_protocols = vec![b"h2".to_vec(), b"acme-tls/1".to_vec()];
        let url = format!("tcp://{}", passed.local_addr().expect("it listens"));
        // The scene has another CA, so that clients of one do not accept the other's certificates.
        let scene = Scene::with(|config, authority| {
            let server = url.parse().expect("is a URL");
            let upstream = Upstream { servers: vec![server], ..Upstream::clone(&config.upstreams[0]) };
            config.upstreams.push(Upstream { name: "passed".to_owned(), ..upstream }.into());
            let names = ["b.example", "*.c.example"].map(str::to_owned).to_vec();
            config.listeners[0].passthrough =
                vec![Passthrough { names, protocols: Vec::new(), to: all_to(1) }];
            Scene::logs(config, authority);
            change(config);
        });
        let stage = Self { scene, passed, tls: Arc::new(tls) };
        stage.keep(authority)
    }

    /// Keeps the CA of the server behind, for its clients.
    fn keep(self, authority: TestAuthority) -> Self {
        AUTHORITY.set(Some(authority));
        self
    }

    /// The configuration of clients that trust the server behind.
    fn client(&self) -> ClientConfig {
        AUTHORITY.with_borrow(|authority| authority.as_ref().expect("it was made").client(&[&TLS13, &TLS12]))
    }

    /// Accepts the next connection of the server behind.
    fn accepts(&self) -> TlsEnd {
        let (tcp, _) = self.passed.accept().expect("it is passed on");
        TlsEnd::server(tcp, &self.tls)
    }

    /// Runs a complete conversation with the server behind.
    fn talks(&self, mut client: TlsEnd) {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut server = self.accepts();
                server.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
                server
            });
            client.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
            let mut server = server.join().expect("it has shaken hands");
            client.asks("/passed");
            assert!(server.message().head.starts_with("GET /passed "));
            server.answers(&[b'x'; 100_000]);
            assert_eq!(client.message().body.len(), 100_000);
        });
    }
}

thread_local! {
    static AUTHORITY: std::cell::RefCell<Option<TestAuthority>> = const { std::cell::RefCell::new(None) };
}

/// Returns a client with its ClientHello.
fn hello(config: &ClientConfig, name: &str) -> (ClientConnection, Vec<u8>) {
    let name = name.to_owned().try_into().expect("is a name");
    let mut client = ClientConnection::new(Arc::new(config.clone()), name).expect("it can begin");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("memory takes all");
    (client, bytes)
}

#[test]
fn names_that_are_passed_on_stand_beside_names_that_end_here() {
    let stage = Stage::new(|_| ());
    let config = Arc::new(stage.client());
    for name in ["b.example", "x.c.example"] {
        stage.talks(TlsEnd::client(stage.scene.connect(), &config, name));
    }
    // The scene's name is decrypted here, and its request goes to another server.
    let mut client = stage.scene.client().asking("/");
    let mut server = stage.scene.accept();
    server.message();
    server.answers(b"decrypted");
    assert_eq!(client.message().body, b"decrypted");
    drop((client, server));
    stage.scene.waits_for("connections end", |counters| counters.connections_active == 0);
    assert_eq!(stage.scene.running.counters().connections_passed_on, 2);
    let lines = stage.scene.logged();
    let of =
        |name: &str| lines.iter().find(|line| line["tls_sni"] == name).unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(
        (&of("b.example")["upstream"], &of("b.example")["tls_version"]),
        (&"passed".into(), &().into())
    );
    assert_eq!(of("a.example")["tls_version"], "TLSv1.3");
}

/// RFC 8446 §5.1: a message may be split in any way, by segments and records; post-quantum key shares make it longer
/// than a segment.
#[test]
fn hellos_in_pieces_and_of_post_quantum_size_find_their_way() {
    let stage = Stage::new(|_| ());
    let groups = vec![kx_group::MLKEM768, kx_group::X25519MLKEM768, kx_group::X25519];
    let long =
        AUTHORITY.with_borrow(|authority| authority.as_ref().expect("it was made").client_sharing(groups));
    for config in [stage.client(), long.clone()] {
        let (client, bytes) = hello(&config, "b.example");
        assert!(bytes.len() > 1200 || config.crypto_provider().kx_groups.len() != 3);
        for piece in [1, 100, 1460] {
            let mut end = TlsEnd::plain(stage.scene.connect());
            for part in bytes.chunks(piece) {
                end.tcp.write_all(part).expect("the proxy takes it");
            }
            let mut server = stage.accepts();
            server.tcp.read_exact(&mut vec![0; bytes.len()]).expect("all of it is passed on");
        }
        // Records of 7 bytes, which reach the server unchanged.
        let records: Vec<u8> = bytes[5..]
            .chunks(7)
            .flat_map(|part| [&[22, 3, 1, 0, part.len() as u8][..], part].concat())
            .collect();
        let mut end = TlsEnd::plain(stage.scene.connect());
        end.tcp.write_all(&records).expect("the proxy takes it");
        let mut passed = vec![0; records.len()];
        stage.accepts().tcp.read_exact(&mut passed).expect("all of it is passed on");
        assert!(passed == records);
        drop(client);
    }
    let config = Arc::new(long);
    stage.talks(TlsEnd::client(stage.scene.connect(), &config, "b.example"));
}

#[test]
fn protocols_choose_among_the_clients_of_a_name() {
    let stage = Stage::new(|config| {
        config.listeners[0].passthrough[0] = Passthrough {
            names: vec!["a.example".to_owned()],
            protocols: vec!["acme-tls/1".to_owned()],
            to: all_to(1),
        };
    });
    let mut config = stage.client();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let (_, bytes) = hello(&config, "a.example");
    let mut end = TlsEnd::plain(stage.scene.connect());
    end.tcp.write_all(&bytes).expect("the proxy takes it");
    stage.accepts().tcp.read_exact(&mut vec![0; bytes.len()]).expect("it is passed on");
    // TLS for all other names ends here.
    let mut client = stage.scene.client().asking("/");
    let mut server = stage.scene.accept();
    server.message();
    server.answers(b"decrypted");
    assert_eq!(client.message().body, b"decrypted");
}

/// Without TLS, a listener passes everything else on as bytes.
#[test]
fn the_default_gets_what_no_name_is_for() {
    let stage = Stage::new(|config| {
        config.listeners[0].tls = None;
        config.listeners[0].tcp = Split::new([(0, "", 1)]);
        config.timeouts.client_header = std::time::Duration::from_millis(200);
    });
    let (_, named) = hello(&stage.client(), "other.example");
    for bytes in [
        &named[..],
        b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x00\x00 another message",
        b"\x00\x01\x02",
    ] {
        let mut end = TlsEnd::plain(stage.scene.connect());
        end.tcp.write_all(bytes).expect("the proxy takes it");
        let mut server = stage.scene.accept();
        let mut passed = vec![0; bytes.len()];
        server.tcp.read_exact(&mut passed).expect("it is passed on");
        assert_eq!(passed, bytes);
    }
    // A client that waits for its server to speak first, or that stops within its ClientHello.
    for bytes in [&b""[..], &named[..9]] {
        let mut end = TlsEnd::plain(stage.scene.connect());
        end.tcp.write_all(bytes).expect("the proxy takes it");
        let mut server = stage.scene.accept();
        server.tcp.write_all(b"220 welcome\r\n").expect("it is open");
        end.tcp.read_exact(&mut [0; 13]).expect("it is passed on");
        end.tcp.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut passed = Vec::new();
        server.tcp.read_to_end(&mut passed).expect("it is passed on");
        assert_eq!(passed, bytes);
    }
    stage.talks(TlsEnd::client(stage.scene.connect(), &Arc::new(stage.client()), "b.example"));
}

/// Names have their own weights beside those of a listener for bytes.
#[test]
fn a_default_by_weight_stands_beside_names() {
    const CONNECTIONS: usize = 64;
    let stage = Stage::new(|config| {
        let first = Upstream::clone(&config.upstreams[0]);
        for name in ["new", "unused"] {
            config.upstreams.push(Upstream { name: name.to_owned(), ..first.clone() }.into());
        }
        config.listeners[0].tls = None;
        config.listeners[0].tcp = Split::new([(0, "old", 9), (2, "new", 0)]);
        let to = Split::new([(1, "passed", 1), (3, "unused", 0)]).expect("a share");
        config.listeners[0].passthrough[0].to = to;
    });
    let config = Arc::new(stage.client());
    for _ in 0..CONNECTIONS {
        // A weight of 0 gets none, on either side.
        let mut end = TlsEnd::plain(stage.scene.connect());
        end.tcp.write_all(b"\x00\x01\x02").expect("the proxy takes it");
        let mut passed = [0; 3];
        stage.scene.accept().tcp.read_exact(&mut passed).expect("it is passed on");
        assert_eq!(passed, *b"\x00\x01\x02");
    }
    stage.talks(TlsEnd::client(stage.scene.connect(), &config, "b.example"));
}

#[test]
fn openssl_meets_the_server_that_its_name_is_for() {
    let stage = Stage::new(|_| ());
    let ca = AUTHORITY.with_borrow(|authority| authority.as_ref().expect("it was made").file.clone());
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-connect",
        &stage.scene.address().to_string(),
        "-servername",
        "b.example",
        "-tls1_3",
    ]);
    command.args(["-verify_return_error", "-verify_hostname", "b.example", "-CAfile"]).arg(&ca);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(_) if std::env::var_os("CI").is_none() => return,
        Err(error) => panic!("openssl does not start, and CI is set: {error}"),
    };
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"GET /openssl HTTP/1.1\r\nHost: b.example\r\n\r\n").expect("it reads");
    let mut server = stage.accepts();
    server.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
    assert!(server.message().head.starts_with("GET /openssl "));
    server.answers(b"found it");
    server.tells_its_end();
    drop(server);
    let mut output = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut output).expect("is text");
    drop(input);
    child.wait().expect("it ends");
    assert!(output.contains("found it") && output.contains("TLSv1.3"), "{output:.3000}");
}
