//! Tests of services whose servers come from SRV records. The test plays the name server, over UDP and TCP, and
//! every server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use transport::resolve::TTL_MIN;

use super::names::NamesScene;
use crate::server_changes;

const SERVICE: &str = "_http._tcp.app.test";

/// A record: the server's number, its priority and weight. `sN.test` is at `127.0.0.N`, but look-ups of `s9.test` fail.
type Record = (u8, u16, u16);

/// The name server's response for the service.
#[derive(Debug, Clone)]
enum Says {
    Records(Vec<Record>),
    /// These records, too large for a datagram.
    OverTcp(Vec<Record>),
    /// An alias to `eu.test`, which has these records.
    Aliased(Vec<Record>),
    WithoutPort,
    /// The service is not available (RFC 2782).
    NotAvailable,
    /// The name has no records of this type.
    NoRecords,
    NoName,
    Garbage,
}

/// A name server, and the port in all records.
#[derive(Clone)]
struct NameServer {
    address: SocketAddr,
    says: Arc<Mutex<(Says, u16)>>,
}

impl NameServer {
    fn start(says: Says) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
            let address = udp.local_addr().expect("it is bound");
            if let Ok(tcp) = TcpListener::bind(address) {
                break (udp, tcp);
            }
        };
        let server =
            Self { address: udp.local_addr().expect("it is bound"), says: Arc::new(Mutex::new((says, 0))) };
        let (by_udp, by_tcp) = (server.clone(), server.clone());
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((count, from)) = udp.recv_from(&mut query) {
                let _ = udp.send_to(&by_udp.answer(&query[..count], false), from);
            }
        });
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; u16::from_be_bytes(length).into()];
                    let answer = stream.read_exact(&mut query).map(|()| by_tcp.answer(&query, true));
                    let Ok(answer) = answer else { break };
                    let whole = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
                    let _ = stream.write_all(&whole);
                }
            }
        });
        server
    }

    fn says(&self, says: Says) {
        self.says.lock().expect("no panic").0 = says;
    }

    fn resolver(&self) -> Option<TokioResolver> {
        let mut server = NameServerConfig::udp_and_tcp(self.address.ip());
        server.connections.iter_mut().for_each(|connection| connection.port = self.address.port());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.use_hosts_file = ResolveHosts::Never;
        options.negative_max_ttl = Some(Duration::ZERO);
        options.timeout = Duration::from_millis(500);
        builder.build().ok()
    }

    /// RFC 1035 §4.1: the question, then the records.
    fn answer(&self, query: &[u8], is_tcp: bool) -> Vec<u8> {
        const HEADER: usize = 12;
        const A: u8 = 1;
        const CNAME: u8 = 5;
        const SRV: u8 = 33;
        const ALIAS: &[u8] = b"\x02eu\x04test\0";
        let name_len = query[HEADER..].iter().position(|&byte| byte == 0).expect("a name ends") + 1;
        let question = &query[HEADER..HEADER + name_len + 4];
        let (says, port) = self.says.lock().expect("no panic").clone();
        let (mut code, mut is_cut, mut found) = (0, 0, Vec::new());
        let srv = |owner: &[u8], port: u16, (server, priority, weight): Record| {
            let numbers = [priority, weight, port].map(u16::to_be_bytes).concat();
            let name = [&[2, b's', b'0' + server, 4][..], b"test", &[0]].concat();
            record_of(owner, SRV, &[numbers, name].concat())
        };
        let is_alias = question.starts_with(ALIAS);
        match (question[name_len + 1], says) {
            (A, _) if question.starts_with(b"\x02s9") => code = 2,
            (A, _) => {
                // `\x02sN\x04test`.
                let last = question[2] - b'0';
                found.push(record(A, &[127, 0, 0, last]));
            }
            (SRV, Says::Garbage) => return b"garbage".to_vec(),
            (SRV, Says::NoName) => code = 3,
            (SRV, Says::NotAvailable) => found.push(record(SRV, &[0; 7])),
            (SRV, Says::OverTcp(_)) if !is_tcp => is_cut = 2,
            (SRV, Says::Records(records) | Says::OverTcp(records)) => {
                found.extend(records.into_iter().map(|record| srv(ASKED, port, record)));
            }
            (SRV, Says::WithoutPort) => found.push(srv(ASKED, 0, (3, 0, 0))),
            (CNAME, Says::Aliased(_)) if !is_alias => found.push(record(CNAME, ALIAS)),
            // RFC 1034 §4.3.2: with the alias come the records of its target.
            (SRV, Says::Aliased(records)) => {
                found.extend((!is_alias).then(|| record(CNAME, ALIAS)));
                found.extend(records.into_iter().map(|record| srv(ALIAS, port, record)));
            }
            _ => {}
        }
        let mut answer = query[..2].to_vec();
        answer.extend_from_slice(&[0x81 | is_cut, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]);
        [answer, question.to_vec(), found.concat()].concat()
    }
}

/// Pointer to the name in the question.
const ASKED: &[u8] = &[0xc0, 12];

/// A record for the name in the question, with a TTL of zero.
fn record(kind: u8, data: &[u8]) -> Vec<u8> {
    record_of(ASKED, kind, data)
}

/// A record for another name, with a TTL of zero.
fn record_of(owner: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [owner, &[0, kind, 0, 1, 0, 0, 0, 0], &length, data].concat()
}

fn scene(says: Says) -> NamesScene<NameServer> {
    let names = NameServer::start(says);
    let (resolving, told) = (names.clone(), names.clone());
    let url = move |servers: &super::names::NumberedServers| {
        told.says.lock().expect("no panic").1 = servers.port;
        format!("http+srv://{SERVICE}")
    };
    NamesScene::at(names, url, move || resolving.resolver(), |_| ())
}

#[test]
fn rfc2782_servers_come_and_go_with_the_records_of_a_service() {
    let scene = scene(Says::Records(vec![(2, 1, 1), (1, 1, 1), (3, 2, 1)]));
    assert_eq!(scene.who(), [1, 1, 2, 2], "the lowest priority is asked, from the first request on");
    let before = scene.proxy.control.plan();
    scene.names.says(Says::Records(vec![(1, 1, 3), (3, 1, 1)]));
    scene.waits_for(&[1, 1, 1, 3]);
    let port = scene.servers.port;
    let said = |server: u8, what: &str| {
        format!("upstream default, server {SERVICE} (s{server}.test:{port}): {what}")
    };
    assert_eq!(
        server_changes::changes(&before, &scene.proxy.control.plan()),
        [said(1, "weight 3, before 1"), said(2, "removed"),]
    );
    scene.names.says(Says::NotAvailable);
    let began = Instant::now();
    while scene.ask().0 != 503 {
        assert!(began.elapsed() < Duration::from_secs(20), "a service that is not available is asked");
    }
    scene.names.says(Says::Records(vec![(4, 0, 0)]));
    scene.waits_for(&[4, 4, 4, 4]);
}

#[test]
fn failed_look_ups_keep_the_servers() {
    let keeps = |says: Says| {
        let scene = scene(Says::Records(vec![(1, 0, 0), (2, 0, 0)]));
        assert_eq!(scene.who(), [1, 1, 2, 2]);
        scene.names.says(says.clone());
        let began = Instant::now();
        while began.elapsed() < TTL_MIN * 2 {
            assert_eq!(scene.who(), [1, 1, 2, 2], "{says:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        scene.names.says(Says::Records(vec![(3, 0, 0)]));
        scene.waits_for(&[3, 3, 3, 3]);
    };
    // Each waits for its time limit, so they run in parallel.
    let unreachable = Says::Records(vec![(9, 0, 0)]);
    std::thread::scope(|scope| {
        for says in [Says::NoName, Says::NoRecords, Says::Garbage, Says::WithoutPort, unreachable] {
            scope.spawn(|| keeps(says));
        }
    });
}

#[test]
fn rfc1034_a_service_may_be_an_alias() {
    let scene = scene(Says::Aliased(vec![(2, 0, 0), (4, 0, 0)]));
    assert_eq!(scene.who(), [2, 2, 4, 4], "from the first request on");
    scene.names.says(Says::Records(vec![(1, 0, 0)]));
    scene.waits_for(&[1, 1, 1, 1]);
    scene.names.says(Says::Aliased(vec![(3, 0, 0)]));
    scene.waits_for(&[3, 3, 3, 3]);
}

#[test]
fn records_that_fit_no_datagram_come_over_tcp() {
    let scene = scene(Says::OverTcp(vec![(2, 0, 0), (4, 0, 0)]));
    assert_eq!(scene.who(), [2, 2, 4, 4]);
}

#[test]
fn a_service_without_records_is_a_clear_failure() {
    let scene = scene(Says::NoName);
    let (status, body) = scene.ask();
    assert_eq!(status, 503);
    assert!(body.contains("The server's name could not be resolved."), "{body}");
    assert_eq!(
        scene.proxy.control.plan().names.unresolved(),
        [format!("cannot resolve {SERVICE}: there is no such name")]
    );
    scene.names.says(Says::Records(vec![(1, 0, 0)]));
    scene.waits_for(&[1, 1, 1, 1]);
}
