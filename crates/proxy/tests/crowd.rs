//! Many clients: their connections to a server are all kept for reuse. A separate program, because it raises the
//! process's descriptor limit.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use config::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;
use testkit::scene::valid;
use testkit::wait::PATIENCE;

/// Concurrent clients: more than former fixed limits of idle connections.
const CROWD: usize = 700;
/// Per client: both ends of its connection, and of one to the server.
const DESCRIPTORS: u64 = 4 * CROWD as u64 + 200;
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_crowd_that_comes_again_makes_no_new_connections() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.current.map(|current| current.max(DESCRIPTORS));
    setrlimit(Resource::Nofile, Rlimit { current: wanted, ..limit }).expect("so many are allowed");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    SockRef::from(&listener).listen(CROWD as i32).expect("it listens");
    let server = format!("http://{}", listener.local_addr().expect("it listens")).parse().expect("is a URL");
    let mut config = Settings::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], vec![server]);
    config.workers = Some(1.try_into().expect("is not zero"));
    let proxy = control::start(valid(config)).expect("the proxy starts");
    let address = proxy.addresses()[0];
    let connect = |_| TcpStream::connect(address).expect("the proxy listens");
    let mut clients: Vec<TcpStream> = (0..CROWD).map(connect).collect();

    clients.iter_mut().for_each(|client| client.write_all(GET).expect("the proxy takes it"));
    let mut servers: Vec<TcpStream> =
        (0..CROWD).map(|_| listener.accept().expect("the proxy connects").0).collect();
    for _ in 0..3 {
        // Each is asked once, all at the same time.
        for server in &mut servers {
            read(server, b"\r\n\r\n");
        }
        servers.iter_mut().for_each(|server| server.write_all(OK).expect("the proxy takes it"));
        clients.iter_mut().for_each(|client| read(client, b"ok"));
        let began = Instant::now();
        while proxy.counters().requests_active > 0 {
            assert!(began.elapsed() < PATIENCE, "requests do not end");
            std::thread::yield_now();
        }
        clients.iter_mut().for_each(|client| client.write_all(GET).expect("the proxy takes it"));
    }
    assert_eq!(proxy.counters().upstream_connects, CROWD as u64);
}

fn read(stream: &mut TcpStream, end: &[u8]) {
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut piece = [0; 512];
        let count = stream.read(&mut piece).expect("a message arrives");
        assert!(count > 0, "the connection ends");
        bytes.extend_from_slice(&piece[..count]);
    }
}
