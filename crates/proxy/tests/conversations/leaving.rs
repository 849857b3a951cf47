//! Connections that end while their client reads nothing: the kernel keeps unsent data for a limited time.

use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use config::ListenAddress;
use socket2::{Domain, Socket, Type};
use testkit::text::GET;
use testkit::wait::PATIENCE;

use super::scene::Scene;

const BYTES: usize = 150_000;
const CLOSE: &str = "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
/// The beginning of an HTTP/2 connection with wide windows, and a request.
const HTTP2: [&[u8]; 4] = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\x10\0\0",
    b"\0\0\x04\x08\0\0\0\0\0\0\x10\0\0",
    b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a",
];

/// A client with a tiny receive buffer.
fn narrow(proxy: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(proxy), Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(2048).expect("is a socket");
    socket.connect(&proxy.into()).expect("the proxy listens");
    socket.into()
}

/// Returns the bytes in the send queue at the proxy's end of a connection; `None` if there is no such end.
///
/// Reads the IPv6 table, which is short because other tests have few connections over it.
fn kept(proxy: u16, client: u16) -> Option<usize> {
    const TIME_WAIT: &str = "06";
    let table = std::fs::read_to_string("/proc/net/tcp6").expect("the kernel tells");
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |word: &str| u16::from_str_radix(word.split_once(':')?.1, 16).ok();
        let is_it = port(words[1]) == Some(proxy) && port(words[2]) == Some(client) && words[3] != TIME_WAIT;
        is_it.then(|| usize::from_str_radix(words[4].split_once(':')?.0, 16).ok())?
    })
}

/// Waits until the condition holds.
fn comes_to(name: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{name}");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_client_does_not_take_is_not_kept_for_long_once_its_connection_is_closed() {
    let requests = [
        ("an idle connection", GET.as_bytes().to_vec(), false),
        ("one that was to be closed", CLOSE.into(), false),
        ("a client that has said all", GET.into(), true),
        ("HTTP/2", HTTP2.concat(), false),
    ];
    for (name, request, is_all) in requests {
        let scene = Scene::with(|config| {
            config.listeners[0].address = ListenAddress::Tcp(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
            config.timeouts.client_write = Duration::from_secs(1);
            config.timeouts.keep_alive = Duration::from_millis(300);
            config.timeouts.client_header = Duration::from_secs(1);
        });
        let client = narrow(scene.address());
        let port = client.local_addr().expect("is connected").port();
        std::io::Write::write_all(&mut &client, &request).expect("the proxy reads");
        if is_all {
            client.shutdown(Shutdown::Write).expect("is connected");
        }
        let mut server = scene.accept(0);
        server.message();
        server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n{}", "x".repeat(BYTES)));
        let kept = || kept(scene.address().port(), port);
        comes_to(&format!("{name}: nothing is to be sent"), || kept().is_some_and(|bytes| bytes > BYTES / 2));
        // Nothing failed here: the response is written, and the connection is closed properly.
        comes_to(&format!("{name}: it is kept"), || kept().is_none());
        assert_eq!(scene.running().counters().connections_active, 0, "{name}");
        scene.assert_failures(&[]);
    }
}
