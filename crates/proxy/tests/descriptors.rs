//! Running out of file descriptors: accepting pauses, no thread spins or dies, and it resumes once there are some. A
//! separate program, because it lowers the process's limit.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use config::Settings;
use rustix::process::{Resource, Rlimit, setrlimit};
use socket2::{Domain, SockRef, Socket, Type};
use testkit::scene::valid;
use testkit::wait::{PATIENCE, assert_soon};

/// Few descriptors, so that they are soon used up.
const DESCRIPTORS_MAX: u64 = 128;
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn accepting_pauses_until_there_are_descriptors_again() {
    let limit = Rlimit { current: Some(DESCRIPTORS_MAX), maximum: Some(DESCRIPTORS_MAX) };
    setrlimit(Resource::Nofile, limit).expect("a limit can always be lowered");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let server = format!("http://{}", listener.local_addr().expect("it listens")).parse().expect("is a URL");
    let mut config = Settings::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], vec![server]);
    config.workers = Some(1.try_into().expect("is not zero"));
    let proxy = control::start(valid(config)).expect("the proxy starts");
    let address = proxy.addresses()[0];

    // Two existing clients, which share one connection to the server.
    let connect = || {
        let client = TcpStream::connect(address).expect("the proxy listens");
        client.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        client
    };
    let (mut served, mut second) = (connect(), connect());
    served.write_all(GET).expect("the proxy takes it");
    let (mut server, _) = listener.accept().expect("the proxy connects");
    answer(&mut server);
    assert_eq!(status(&mut served), 200);
    second.write_all(GET).expect("the proxy takes it");
    answer(&mut server);
    assert_eq!(status(&mut second), 200);

    // The client's socket is created first: once all other descriptors are used, there is none for the proxy's side.
    let late = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor is free");
    late.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!all.is_empty());
    let began = Instant::now();
    late.connect(&address.into()).expect("the kernel accepts it");
    let mut late = TcpStream::from(late);
    late.write_all(GET).expect("the kernel takes it");
    while proxy.counters().accept_pauses < 3 {
        assert!(began.elapsed() < PATIENCE, "accepting does not pause");
        std::thread::yield_now();
    }
    // Each pause takes a tenth of a second, so the worker does not spin.
    let pauses = proxy.counters().accept_pauses;
    assert!(u128::from(pauses) <= began.elapsed().as_millis() / 100 + 1, "{pauses} pauses");

    // Existing clients are served meanwhile, on the existing server connection. There can be no other.
    served.write_all(GET).expect("the proxy takes it");
    read_until(&mut server, b"\r\n\r\n");
    second.write_all(GET).expect("the proxy takes it");
    assert_eq!(status(&mut second), 503);
    let failures = || {
        let counted = proxy.counters().failures;
        let words = control::Running::failure_words().iter().zip(counted).filter(|(_, count)| *count > 0);
        words.map(|(word, count)| (*word, count)).collect::<Vec<_>>()
    };
    // A request is counted after its response.
    assert_soon("the request is not counted", || !failures().is_empty());
    assert_eq!(failures(), [("out-of-descriptors", 1)]);
    server.write_all(OK).expect("the proxy takes it");
    assert_eq!(status(&mut served), 200);

    drop((all, server));
    let (mut server, _) = listener.accept().expect("the proxy connects");
    answer(&mut server);
    assert_eq!(status(&mut late), 200);
}

fn answer(server: &mut TcpStream) {
    server.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    read_until(server, b"\r\n\r\n");
    server.write_all(OK).expect("the proxy takes it");
}

/// Reads a response with a text body. Returns its status.
fn status(client: &mut TcpStream) -> u16 {
    let head = read_until(client, b"\r\n\r\n");
    let text = String::from_utf8(head).expect("is text");
    let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("has a length");
    let mut body = vec![0; length.parse().expect("is a number")];
    client.read_exact(&mut body).expect("the body arrives");
    text[9..12].parse().expect("is a status")
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head arrives");
        bytes.push(byte[0]);
    }
    bytes
}
