//! Tests of server names whose addresses change. The test plays the name server and every server.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::{Config, Dns, Settings};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

use crate::{Running, Setup, server_changes, start_resolving};
use transport::resolve::Name;

const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "app.test";

/// What an operator reads has no types of the resolver in it.
#[tokio::test(flavor = "current_thread")]
async fn why_a_name_has_no_addresses_is_told_in_words() {
    let server = NameServer::start(&[]);
    let resolver = server.resolver().expect("it can be made");
    for (records, expected) in [
        (Some(&[][..]), "cannot resolve app.test: it has no address"),
        (None, "cannot resolve app.test: the name server answers \"Server Failure\""),
    ] {
        server.says(records);
        let name = Name::new(NAME);
        let told = name.look_up(&resolver).await.expect_err("there is none");
        assert_eq!(told, expected);
    }
    // RFC 6761 §6.4: nobody is asked about it.
    let name = Name::new("nothing.invalid");
    let told = name.look_up(&resolver).await.expect_err("there is none");
    assert_eq!(told, "cannot resolve nothing.invalid: there is no such name");
}

/// What the name server answers: these addresses, or that it failed.
type Records = Arc<Mutex<Option<Vec<Ipv4Addr>>>>;

/// A name server for `NAME`.
struct NameServer {
    address: SocketAddr,
    records: Records,
}

impl NameServer {
    fn start(addresses: &[u8]) -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = socket.local_addr().expect("is bound");
        let records = Records::default();
        let shared = Arc::clone(&records);
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((count, from)) = socket.recv_from(&mut query) {
                let answer = answer(&query[..count], shared.lock().expect("no panic").as_deref());
                let _ = socket.send_to(&answer, from);
            }
        });
        let server = Self { address, records };
        server.says(Some(addresses));
        server
    }

    /// `127.0.0.N` for each, from now on.
    fn says(&self, addresses: Option<&[u8]>) {
        let addresses =
            addresses.map(|last| last.iter().map(|&last| Ipv4Addr::new(127, 0, 0, last)).collect());
        *self.records.lock().expect("no panic") = addresses;
    }

    fn resolver(&self) -> Option<TokioResolver> {
        let mut server = NameServerConfig::udp(self.address.ip());
        server.connections[0].port = self.address.port();
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        builder.options_mut().negative_max_ttl = Some(Duration::ZERO);
        builder.build().ok()
    }
}

/// RFC 1035 §4.1: the question again, and a record of ten seconds at most for each address; SERVFAIL without any list.
fn answer(query: &[u8], addresses: Option<&[Ipv4Addr]>) -> Vec<u8> {
    const HEADER: usize = 12;
    const QTYPE_A: [u8; 2] = [0, 1];
    let name_len = query[HEADER..].iter().position(|&byte| byte == 0).expect("a name ends") + 1;
    let question = &query[HEADER..HEADER + name_len + 4];
    let is_a = question[name_len..name_len + 2] == QTYPE_A;
    let found = addresses.filter(|_| is_a).unwrap_or_default();
    let code = if addresses.is_some() { 0 } else { 2 };
    let mut answer = query[..2].to_vec();
    answer.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    for address in found {
        answer.extend_from_slice(&[0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    answer
}

/// Servers at `127.0.0.1` and those after it, at one port. Each says who it is.
pub(super) struct Servers {
    pub(super) port: u16,
    /// Connections to each.
    connections: Arc<[AtomicUsize; COUNT]>,
}

const COUNT: usize = 4;

impl Servers {
    fn start() -> Self {
        let began = Instant::now();
        let listeners = loop {
            assert!(began.elapsed() < PATIENCE, "no port is free at all addresses");
            let first = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
            let port = first.local_addr().expect("it listens").port();
            let others =
                (2..=COUNT as u8).map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)));
            if let Ok(others) = others.collect::<Result<Vec<_>, _>>() {
                break std::iter::once(first).chain(others).collect::<Vec<_>>();
            }
        };
        let port = listeners[0].local_addr().expect("it listens").port();
        let connections = Arc::new(std::array::from_fn(|_| AtomicUsize::new(0)));
        for (index, listener) in listeners.into_iter().enumerate() {
            let counts: Arc<[AtomicUsize; COUNT]> = Arc::clone(&connections);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    counts[index].fetch_add(1, SeqCst);
                    std::thread::spawn(move || serve(stream, index + 1));
                }
            });
        }
        Self { port, connections }
    }

    fn connections(&self, server: usize) -> usize {
        self.connections[server - 1].load(SeqCst)
    }
}

fn serve(mut stream: TcpStream, who: usize) {
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    while let Ok(count) = stream.read(&mut bytes)
        && count > 0
    {
        request.extend_from_slice(&bytes[..count]);
        if request.ends_with(b"\r\n\r\n") {
            assert!(request.windows(16).any(|window| window == b"Host: who.test\r\n"));
            request.clear();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{who}");
        }
    }
}

pub(super) struct Scene<N> {
    pub(super) names: N,
    pub(super) servers: Servers,
    pub(super) proxy: Running,
}

impl Scene<NameServer> {
    fn new(names: NameServer, change: impl FnOnce(&mut Settings)) -> Self {
        let resolver = NameServer { address: names.address, records: Arc::clone(&names.records) };
        let url = |servers: &Servers| format!("http://{NAME}:{}", servers.port);
        Self::at(names, url, move || resolver.resolver(), change)
    }
}

impl<N> Scene<N> {
    /// A proxy for the servers at a URL, which asks this resolver.
    pub(super) fn at(
        names: N,
        url: impl FnOnce(&Servers) -> String,
        resolver: impl FnMut() -> Option<TokioResolver> + Send + 'static,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let servers = Servers::start();
        let url = url(&servers).parse().expect("is a URL");
        let mut config = Settings::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], vec![url]);
        config.workers = Some(1.try_into().expect("is not zero"));
        config.upstreams[0].settings.slow_start = Duration::ZERO;
        change(&mut config);
        let config = Config::new(config).expect("is valid");
        let proxy = start_resolving(config, Setup::default(), Box::new(resolver));
        Self { names, servers, proxy: proxy.unwrap_or_else(|error| panic!("it does not start: {error}")) }
    }

    /// The status of an answer, and its body.
    pub(super) fn ask(&self) -> (u16, String) {
        let mut stream = TcpStream::connect(self.proxy.addresses()[0]).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: who.test\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("has a head");
        (head[9..12].parse().expect("is a status"), body.to_owned())
    }

    /// Who answers in four requests.
    pub(super) fn who(&self) -> Vec<usize> {
        let mut who: Vec<usize> = (0..4).map(|_| self.ask().1.parse().unwrap_or_default()).collect();
        who.sort_unstable();
        who
    }

    #[track_caller]
    pub(super) fn waits_for(&self, who: &[usize]) {
        let began = Instant::now();
        while self.who() != who {
            assert!(began.elapsed() < PATIENCE, "{:?} answer, not {who:?}", self.who());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn servers_come_and_go_with_the_records_of_their_name() {
    let scene = Scene::new(NameServer::start(&[2, 1]), |_| ());
    assert_eq!(scene.who(), [1, 1, 2, 2], "two addresses are two servers, from the first request on");
    let before = scene.proxy.control.plan();
    scene.names.says(Some(&[2, 3]));
    scene.waits_for(&[2, 2, 3, 3]);
    let said = |last: u8, what: &str| {
        format!("upstream default, server {NAME}:{} (127.0.0.{last}): {what}", scene.servers.port)
    };
    assert_eq!(
        server_changes::changes(&before, &scene.proxy.control.plan()),
        [said(3, "added; its share of requests grows slowly"), said(1, "removed")]
    );
    assert_eq!(scene.servers.connections(2), 1, "what stays keeps its connections");
    scene.names.says(None);
    let before = Instant::now();
    while before.elapsed() < transport::resolve::TTL_MIN * 2 {
        assert_eq!(scene.who(), [2, 2, 3, 3], "a name that fails to resolve keeps what it had");
        std::thread::sleep(Duration::from_millis(100));
    }
    scene.names.says(Some(&[4]));
    scene.waits_for(&[4, 4, 4, 4]);
}

#[test]
fn a_name_that_is_not_resolved_yet_is_a_clear_failure() {
    let names = NameServer::start(&[]);
    names.says(None);
    let scene = Scene::new(names, |_| ());
    let (status, body) = scene.ask();
    assert_eq!(status, 503);
    assert!(body.contains("The server's name could not be resolved."), "{body}");
    scene.names.says(Some(&[1, 2]));
    scene.waits_for(&[1, 1, 2, 2]);
}

#[test]
fn a_name_may_be_one_server_whatever_its_addresses() {
    let scene = Scene::new(NameServer::start(&[3, 1]), |config| config.upstreams[0].dns = Dns::One);
    assert_eq!(scene.who(), [3, 3, 3, 3]);
    scene.names.says(Some(&[2]));
    // The connection that is there goes on being used.
    let addresses = || scene.proxy.server_addresses();
    let began = Instant::now();
    while addresses() != [IpAddr::from([127, 0, 0, 2])] {
        assert!(began.elapsed() < PATIENCE, "{:?}", addresses());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(scene.who(), [3, 3, 3, 3]);
}
