//! Backpressure: a body of any size passes through bounded memory, at the pace of its reader. A separate program,
//! because it measures the process's memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use config::Settings;
use control::Running;
use socket2::SockRef;
use testkit::scene::valid;
use testkit::wait::PATIENCE;

/// Far more than all buffers between both ends hold, including the kernel's.
const BODY_BYTES: usize = 128 << 20;
/// Upper limit for the kernel: send and receive buffers of both connections.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;
/// Permitted growth of the process: buffers of tests and proxy.
const GROWTH_BYTES_MAX: usize = 16 << 20;
const PIECE_BYTES: usize = 64 * 1024;

/// The tests run one at a time, because they measure memory.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The framing of a body, equal on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
}

impl Framing {
    fn field(self) -> String {
        match self {
            Self::Length => format!("Content-Length: {BODY_BYTES}"),
            Self::Chunked => "Transfer-Encoding: chunked".to_owned(),
        }
    }
}

#[test]
fn a_response_waits_for_a_client_that_does_not_read() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for framing in [Framing::Length, Framing::Chunked] {
        let (_proxy, mut client, listener) = scene();
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the proxy takes it");
        let mut server = accept(&listener);
        read_head(&mut server);
        let head = format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", framing.field());
        flows_only_when_read(server, &head, client, framing);
    }
}

#[test]
fn a_request_waits_for_a_server_that_does_not_read() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for framing in [Framing::Length, Framing::Chunked] {
        let (_proxy, mut client, listener) = scene();
        let head = format!("POST / HTTP/1.1\r\nHost: test\r\n{}\r\n\r\n", framing.field());
        client.write_all(head.as_bytes()).expect("the proxy takes it");
        let server = accept(&listener);
        flows_only_when_read(client, "", server, framing);
    }
}

/// Sends a body until it is stuck, checks the memory, then reads everything.
fn flows_only_when_read(mut source: TcpStream, head: &str, mut sink: TcpStream, framing: Framing) {
    source.write_all(head.as_bytes()).expect("the proxy takes it");
    let before = resident_bytes();
    // Not a deadline: if nothing held the source back, the whole body would fit.
    source.set_write_timeout(Some(Duration::from_millis(500))).expect("is a socket");
    let mut body = Body::new(framing);
    let stuck_at = body.send(&mut source);
    assert!(stuck_at < IN_FLIGHT_BYTES_MAX, "{framing:?}: {stuck_at} bytes were taken though nobody reads");
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{framing:?}: {growth} bytes of memory for what nobody reads");

    source.set_write_timeout(Some(PATIENCE)).expect("is a socket");
    let rest = std::thread::spawn(move || {
        let sent = body.send(&mut source);
        assert_eq!(sent, BODY_BYTES, "the rest is taken");
        source
    });
    read_head(&mut sink);
    read_body(&mut sink, framing);
    let _source = rest.join().expect("no panic");
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{framing:?}: {growth} bytes of memory for what passed");
}

/// A body being sent, whose bytes depend on their offset.
struct Body {
    framing: Framing,
    /// The present piece, framed, and how much of it was sent.
    piece: Vec<u8>,
    left_at: usize,
    sent_bytes: usize,
}

impl Body {
    fn new(framing: Framing) -> Self {
        let mut body = Self { framing, piece: Vec::new(), left_at: 0, sent_bytes: 0 };
        body.next();
        body
    }

    fn next(&mut self) {
        self.left_at = 0;
        self.piece.clear();
        let is_chunked = self.framing == Framing::Chunked;
        if is_chunked {
            self.piece.extend(format!("{PIECE_BYTES:x}\r\n").bytes());
        }
        let start = self.piece.len();
        self.piece.resize(start + PIECE_BYTES, 0);
        pattern(self.sent_bytes, &mut self.piece[start..]);
        if is_chunked {
            self.piece.extend(b"\r\n");
        }
        if is_chunked && self.sent_bytes + PIECE_BYTES == BODY_BYTES {
            self.piece.extend(b"0\r\n\r\n");
        }
    }

    /// Sends until the whole body was sent or the proxy takes no more. Returns how much was sent.
    fn send(&mut self, source: &mut TcpStream) -> usize {
        while self.sent_bytes < BODY_BYTES {
            match source.write(&self.piece[self.left_at..]) {
                Ok(count) => self.left_at += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("after {} bytes: {error}", self.sent_bytes),
            }
            if self.left_at == self.piece.len() {
                self.sent_bytes += PIECE_BYTES;
                self.next();
            }
        }
        self.sent_bytes
    }
}

/// Fills a piece with the bytes at offset `at`: its number reveals lost or doubled pieces, and a period that does not
/// divide it reveals lost bytes.
fn pattern(at: usize, piece: &mut [u8]) {
    static FILLING: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..PIECE_BYTES).map(|at| (at % 251) as u8).collect());
    piece.copy_from_slice(&FILLING);
    piece[..8].copy_from_slice(&at.to_le_bytes());
}

fn read_body(sink: &mut TcpStream, framing: Framing) {
    let mut piece = vec![0; PIECE_BYTES];
    let mut expected = vec![0; PIECE_BYTES];
    let mut chunk_left = 0;
    for at in (0..BODY_BYTES).step_by(PIECE_BYTES) {
        match framing {
            Framing::Length => sink.read_exact(&mut piece).expect("the body goes on"),
            Framing::Chunked => read_chunked(sink, &mut piece, &mut chunk_left),
        }
        pattern(at, &mut expected);
        assert!(piece == expected, "the body differs within the piece at {at}");
    }
    if framing == Framing::Chunked {
        let mut end = [0; 5];
        sink.read_exact(&mut end).expect("the last chunk arrives");
        assert_eq!(&end, b"0\r\n\r\n");
    }
}

fn read_chunked(sink: &mut TcpStream, piece: &mut [u8], chunk_left: &mut usize) {
    let mut filled = 0;
    while filled < piece.len() {
        if *chunk_left == 0 {
            *chunk_left = chunk_size(sink);
        }
        let count = (*chunk_left).min(piece.len() - filled);
        sink.read_exact(&mut piece[filled..filled + count]).expect("the chunk goes on");
        filled += count;
        *chunk_left -= count;
        if *chunk_left == 0 {
            let mut end = [0; 2];
            sink.read_exact(&mut end).expect("the chunk ends");
            assert_eq!(&end, b"\r\n");
        }
    }
}

fn chunk_size(sink: &mut TcpStream) -> usize {
    let mut size = 0;
    loop {
        let mut byte = [0];
        sink.read_exact(&mut byte).expect("a chunk begins");
        match byte[0] {
            b'\r' => break,
            digit => size = size * 16 + char::from(digit).to_digit(16).expect("is a digit") as usize,
        }
    }
    sink.read_exact(&mut [0]).expect("the line ends");
    assert!(size > 0, "the body ends early");
    size
}

fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head arrives");
        head.push(byte[0]);
    }
}

fn scene() -> (Running, TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let server = format!("http://{}", listener.local_addr().expect("it listens")).parse().expect("is a URL");
    let mut config = Settings::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], vec![server]);
    config.workers = Some(1.try_into().expect("is not zero"));
    let proxy = control::start(valid(config)).expect("the proxy starts");
    let client = TcpStream::connect(proxy.addresses()[0]).expect("the proxy listens");
    client.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    (proxy, client, listener)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("the proxy connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    stream
}

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().expect("is a number");
    kibibytes * 1024
}

#[test]
fn a_tunnel_waits_for_whoever_does_not_read() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_proxy, mut client, listener) = scene();
    let ask = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n";
    client.write_all(ask).expect("the proxy takes it");
    let mut server = accept(&listener);
    read_head(&mut server);
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n";
    server.write_all(switch).expect("the proxy takes it");
    read_head(&mut client);
    let before = resident_bytes();
    server.set_write_timeout(Some(Duration::from_millis(500))).expect("is a socket");
    let mut body = Body::new(Framing::Length);
    let stuck_at = body.send(&mut server);
    assert!(stuck_at < IN_FLIGHT_BYTES_MAX, "{stuck_at} bytes were taken though nobody reads");
    // The other direction still works.
    client.write_all(b"still here").expect("the proxy takes it");
    let mut heard = [0; 10];
    server.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"still here");
    server.set_write_timeout(Some(PATIENCE)).expect("is a socket");
    let rest = std::thread::spawn(move || {
        assert_eq!(body.send(&mut server), BODY_BYTES);
        server.shutdown(Shutdown::Write).expect("is connected");
        server
    });
    read_body(&mut client, Framing::Length);
    assert_eq!(client.read(&mut [0]).expect("it ends in an orderly way"), 0);
    let _server = rest.join().expect("no panic");
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes of memory for what passed");
}
