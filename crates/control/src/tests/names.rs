//! Tests of server names whose addresses change. The test plays the name server and every server.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::{Config, Dns, Settings};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

use crate::{Running, Setup, server_changes, start_resolving};
use transport::resolve::ResolvedName;

const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "app.test";

/// Messages for operators contain no types of the resolver.
#[tokio::test(flavor = "current_thread")]
async fn the_reason_for_missing_addresses_is_in_words() {
    let server = NameServer::start(&[]);
    let resolver = server.resolver().expect("it can be made");
    for (records, expected) in [
        (Some(&[][..]), "cannot resolve app.test: it has no address"),
        (None, "cannot resolve app.test: the name server answers \"Server Failure\""),
    ] {
        server.says(records);
        let name = ResolvedName::new(NAME);
        let told = name.look_up(&resolver).await.expect_err("there is none");
        assert_eq!(told, expected);
    }
    // RFC 6761 §6.4: this name is never looked up.
    let name = ResolvedName::new("nothing.invalid");
    let told = name.look_up(&resolver).await.expect_err("there is none");
    assert_eq!(told, "cannot resolve nothing.invalid: there is no such name");
}

/// A single one of a name's two look-ups may fail. That does not mean that the addresses of its family are gone.
#[tokio::test(flavor = "current_thread")]
async fn addresses_of_a_family_whose_look_up_fails_stay() {
    let server = NameServer::start(&[1]);
    let resolver = server.resolver().expect("it can be made");
    let name = ResolvedName::new(NAME);
    let shown = || name.addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
    server.has_six.store(true, SeqCst);
    name.look_up(&resolver).await.expect("it has addresses");
    assert_eq!(shown(), ["127.0.0.1", "fd00::1"]);
    server.says(None);
    let looked_up = name.look_up(&resolver).await.expect("one family is found");
    assert_eq!(shown(), ["127.0.0.1", "fd00::1"]);
    assert_eq!(
        looked_up.remark.as_deref(),
        Some("cannot resolve app.test (A): the name server answers \"Server Failure\"; these addresses stay")
    );
    server.says(Some(&[]));
    assert_eq!(name.look_up(&resolver).await.expect("one family is found").remark, None);
    assert_eq!(shown(), ["fd00::1"], "no records of a kind is an answer");
}

/// The name server's response: these addresses, or a failure.
type Records = Arc<Mutex<Option<Vec<Ipv4Addr>>>>;

struct NameServer {
    address: SocketAddr,
    records: Records,
    /// Whether it also returns an IPv6 address.
    has_six: Arc<AtomicBool>,
}

impl NameServer {
    fn start(addresses: &[u8]) -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = socket.local_addr().expect("is bound");
        let records = Records::default();
        let has_six = Arc::<AtomicBool>::default();
        let (shared, six) = (Arc::clone(&records), Arc::clone(&has_six));
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((count, from)) = socket.recv_from(&mut query) {
                let addresses = shared.lock().expect("no panic").clone();
                let answer = answer(&query[..count], addresses.as_deref(), six.load(SeqCst));
                let _ = socket.send_to(&answer, from);
            }
        });
        let server = Self { address, records, has_six };
        server.says(Some(addresses));
        server
    }

    /// Sets the addresses to `127.0.0.N`.
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

/// RFC 1035 §4.1: the question, then a record with a TTL of at most ten seconds per address; SERVFAIL without a list.
fn answer(query: &[u8], addresses: Option<&[Ipv4Addr]>, has_six: bool) -> Vec<u8> {
    const HEADER: usize = 12;
    const QTYPE_A: [u8; 2] = [0, 1];
    const QTYPE_AAAA: [u8; 2] = [0, 28];
    let name_len = query[HEADER..].iter().position(|&byte| byte == 0).expect("a name ends") + 1;
    let question = &query[HEADER..HEADER + name_len + 4];
    let is_a = question[name_len..name_len + 2] == QTYPE_A;
    let found = addresses.filter(|_| is_a).unwrap_or_default();
    let six = has_six && question[name_len..name_len + 2] == QTYPE_AAAA;
    let code = if addresses.is_some() || six { 0 } else { 2 };
    let mut answer = query[..2].to_vec();
    answer.extend_from_slice(&[
        0x81,
        0x80 | code,
        0,
        1,
        0,
        (found.len() + usize::from(six)) as u8,
        0,
        0,
        0,
        0,
    ]);
    answer.extend_from_slice(question);
    if six {
        answer.extend_from_slice(&[0xc0, HEADER as u8, 0, 28, 0, 1, 0, 0, 0, 0, 0, 16, 0xfd]);
        answer.extend_from_slice(&[&[0; 14][..], &[1]].concat());
    }
    for address in found {
        answer.extend_from_slice(&[0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    answer
}

/// Servers at `127.0.0.1` and following addresses, at one port. Each responds with its number.
pub(super) struct NumberedServers {
    pub(super) port: u16,
    connections: Arc<[AtomicUsize; COUNT]>,
}

const COUNT: usize = 4;

impl NumberedServers {
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

pub(super) struct NamesScene<N> {
    pub(super) names: N,
    pub(super) servers: NumberedServers,
    pub(super) proxy: Running,
}

impl NamesScene<NameServer> {
    fn new(names: NameServer, change: impl FnOnce(&mut Settings)) -> Self {
        let resolver = NameServer {
            address: names.address,
            records: Arc::clone(&names.records),
            has_six: Arc::clone(&names.has_six),
        };
        let url = |servers: &NumberedServers| format!("http://{NAME}:{}", servers.port);
        Self::at(names, url, move || resolver.resolver(), change)
    }
}

impl<N> NamesScene<N> {
    /// A proxy for the servers at a URL, with this resolver.
    pub(super) fn at(
        names: N,
        url: impl FnOnce(&NumberedServers) -> String,
        resolver: impl FnMut() -> Option<TokioResolver> + Send + 'static,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let servers = NumberedServers::start();
        let url = url(&servers).parse().expect("is a URL");
        let mut config = Settings::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], vec![url]);
        config.workers = Some(1.try_into().expect("is not zero"));
        config.upstreams[0].settings.slow_start = Duration::ZERO;
        change(&mut config);
        let config = Config::new(config).expect("is valid");
        let proxy = start_resolving(config, Setup::default(), Box::new(resolver));
        Self { names, servers, proxy: proxy.unwrap_or_else(|error| panic!("it does not start: {error}")) }
    }

    pub(super) fn ask(&self) -> (u16, String) {
        let mut stream = TcpStream::connect(self.proxy.addresses()[0]).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: who.test\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("has a head");
        (head[9..12].parse().expect("is a status"), body.to_owned())
    }

    /// Returns the servers that respond to four requests.
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
    let scene = NamesScene::new(NameServer::start(&[2, 1]), |_| ());
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
    let scene = NamesScene::new(names, |_| ());
    let (status, body) = scene.ask();
    assert_eq!(status, 503);
    assert!(body.contains("The server's name could not be resolved."), "{body}");
    scene.names.says(Some(&[1, 2]));
    scene.waits_for(&[1, 1, 2, 2]);
}

#[test]
fn a_name_may_be_one_server_whatever_its_addresses() {
    let scene = NamesScene::new(NameServer::start(&[3, 1]), |config| config.upstreams[0].dns = Dns::One);
    assert_eq!(scene.who(), [3, 3, 3, 3]);
    scene.names.says(Some(&[2]));
    // The existing connection stays in use.
    let addresses = || scene.proxy.server_addresses();
    let began = Instant::now();
    while addresses() != [IpAddr::from([127, 0, 0, 2])] {
        assert!(began.elapsed() < PATIENCE, "{:?}", addresses());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(scene.who(), [3, 3, 3, 3]);
}
