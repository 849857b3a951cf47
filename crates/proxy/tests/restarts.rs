//! Servers that are killed and restarted under load. With one server, every response is complete or a 502, 503 or 504;
//! with two, no request fails; and traffic returns.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::Config;
use socket2::{Domain, SockRef, Socket, Type};
use testkit::http2::{H2End, frame};
use testkit::wait::PATIENCE;

const CLIENTS: usize = 16;
const RESTARTS: usize = 5;
/// Number of responses after each start that show that traffic has returned.
const RESPONSES_AWAITED: usize = 200;
/// How often one of two servers is killed.
const KILLS: usize = 8;
/// Longer than what the proxy awaits, so that it may be cut.
const LONG_BODY_BYTES: usize = 50_000;
const SHORT_BODY_BYTES: usize = 42;

/// The results of all clients.
#[derive(Default)]
struct Tally {
    whole: AtomicUsize,
    refused: AtomicUsize,
    /// Responses that broke off, because the server died after it had begun to answer.
    cut: AtomicUsize,
    is_over: AtomicBool,
}

#[test]
fn every_response_is_whole_or_a_clear_failure() {
    let mut server = Server::start(LOOPBACK, LONG_BODY_BYTES);
    let address = server.address;
    let load = Load::on(&[address], LONG_BODY_BYTES, ask_until_over);
    await_more(&load.tally.whole, RESPONSES_AWAITED);
    for _ in 0..RESTARTS {
        server.kill();
        // The server is down, so clients must get errors.
        await_more(&load.tally.refused, CLIENTS);
        server = Server::start(address, LONG_BODY_BYTES);
        await_more(&load.tally.whole, RESPONSES_AWAITED);
    }
    let tally = load.ends();
    server.kill();
    // At most one for each connection that was under way when the server died.
    let cut = tally.cut.load(SeqCst);
    assert!(cut <= RESTARTS * CLIENTS, "{cut} responses were cut");
}

#[test]
fn while_one_of_two_servers_lives_no_request_fails() {
    kills_one_of_two(ask_until_over);
}

#[test]
fn nor_does_one_over_http2() {
    kills_one_of_two(ask_on_streams_until_over);
}

fn kills_one_of_two(client: Client) {
    let start = |address| Server::start(address, SHORT_BODY_BYTES);
    let mut servers: VecDeque<Server> = [LOOPBACK, LOOPBACK].map(start).into();
    let load = Load::on(&[servers[0].address, servers[1].address], SHORT_BODY_BYTES, client);
    await_more(&load.tally.whole, RESPONSES_AWAITED);
    for _ in 0..KILLS {
        let server = servers.pop_front().expect("there are two");
        let address = server.address;
        server.kill();
        await_more(&load.tally.whole, RESPONSES_AWAITED);
        let server = start(address);
        // It gets full traffic again, not only probes.
        await_more(&server.answered, CLIENTS);
        servers.push_back(server);
    }
    let tally = load.ends();
    servers.into_iter().for_each(Server::kill);
    assert_eq!((tally.refused.load(SeqCst), tally.cut.load(SeqCst)), (0, 0), "refused and cut");
}

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The loop of a client: requests bodies of this length from the proxy, and counts the results.
type Client = fn(SocketAddr, usize, &Tally);

/// Clients that send requests to a proxy all the time.
struct Load {
    proxy: control::Running,
    tally: Arc<Tally>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn on(servers: &[SocketAddr], body_bytes: usize, ask: Client) -> Self {
        let url = |address| format!("http://{address}").parse().expect("is a URL");
        let config = Config::for_servers(vec![LOOPBACK], servers.iter().map(url).collect());
        let proxy = control::start(config).expect("the proxy starts");
        let (front, tally) = (proxy.addresses()[0], Arc::new(Tally::default()));
        let client = |_| {
            let tally = Arc::clone(&tally);
            std::thread::spawn(move || ask(front, body_bytes, &tally))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { proxy, tally, clients }
    }

    /// Ends all clients, and returns their results.
    fn ends(self) -> Arc<Tally> {
        self.tally.is_over.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("no response was wrong");
        }
        // A request is counted slightly after its client has the response.
        let began = Instant::now();
        while self.proxy.counters().requests_active > 0 {
            assert!(began.elapsed() < PATIENCE, "a request is still under way");
            std::thread::yield_now();
        }
        self.tally
    }
}

fn await_more(count: &AtomicUsize, more: usize) {
    let (began, before) = (Instant::now(), count.load(SeqCst));
    while count.load(SeqCst) < before + more {
        assert!(began.elapsed() < PATIENCE, "only {} of {more}", count.load(SeqCst) - before);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client that sends one request at a time, on the same connection while that lives.
fn ask_until_over(front: SocketAddr, body_bytes: usize, tally: &Tally) {
    let mut connection = None;
    while !tally.is_over.load(SeqCst) {
        let mut stream = connection.take().unwrap_or_else(|| {
            let stream = TcpStream::connect(front).expect("the proxy always listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
            stream
        });
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("an idle connection is not closed");
        match response(&mut stream) {
            Ok((200, body)) => {
                assert!(body.len() == body_bytes && body.iter().all(|&byte| byte == b'x'), "a body is wrong");
                tally.whole.fetch_add(1, SeqCst);
            }
            Ok((502..=504, _)) => {
                tally.refused.fetch_add(1, SeqCst);
            }
            Ok((status, _)) => panic!("status {status}"),
            Err(Cut) => {
                tally.cut.fetch_add(1, SeqCst);
                continue;
            }
        }
        connection = Some(stream);
    }
}

/// An HTTP/2 client that sends one request at a time, each on a stream of one connection, which lives throughout.
fn ask_on_streams_until_over(front: SocketAddr, body_bytes: usize, tally: &Tally) {
    let stream = TcpStream::connect(front).expect("the proxy listens");
    let mut end = H2End::client(stream, &[]);
    // All bodies fit into the window, so no updates are necessary.
    end.takes_all = false;
    end.sends(frame::window_update(0, 1 << 30));
    let whole = format!("---\n{}\n---\n", "x".repeat(body_bytes));
    for stream in (1..).step_by(2) {
        if tally.is_over.load(SeqCst) {
            return;
        }
        let request = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
        end.sends(frame::last_headers(stream, request));
        let response = end.whole(stream);
        end.forgets();
        let status = response.strip_prefix(":status: ").and_then(|rest| rest.get(..3));
        let count = match status.expect("every request is answered") {
            "200" if response.ends_with(&whole) => &tally.whole,
            "200" => &tally.cut,
            "502" | "503" | "504" => &tally.refused,
            status => panic!("status {status}"),
        };
        count.fetch_add(1, SeqCst);
    }
}

/// Error: a response ended behind its head and before its length.
struct Cut;

fn response(stream: &mut TcpStream) -> Result<(u16, Vec<u8>), Cut> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("every request is answered");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("is text");
    let status = head[9..12].parse().expect("is a status");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("has a length");
    let mut body = vec![0; length.parse().expect("is a number")];
    match stream.read_exact(&mut body) {
        Ok(()) => Ok((status, body)),
        Err(error) if status == 200 && error.kind() == ErrorKind::UnexpectedEof => Err(Cut),
        Err(error) => panic!("a {status} within its body: {error}"),
    }
}

/// A server with a thread for each connection, which can be killed.
struct Server {
    address: SocketAddr,
    /// The number of answered requests.
    answered: Arc<AtomicUsize>,
    is_killed: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    accepting: JoinHandle<()>,
}

impl Server {
    fn start(address: SocketAddr, body_bytes: usize) -> Self {
        let listener = listen(address);
        let address = listener.local_addr().expect("it listens");
        let is_killed = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (killed, accepted) = (Arc::clone(&is_killed), Arc::clone(&connections));
        let answered = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&answered);
        let accepting = std::thread::spawn(move || {
            let mut threads = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if killed.load(SeqCst) {
                    break;
                }
                accepted.lock().expect("no panic").push(stream.try_clone().expect("a descriptor is free"));
                let count = Arc::clone(&count);
                threads.push(std::thread::spawn(move || answer(stream, body_bytes, &count)));
            }
            drop(listener);
            for stream in accepted.lock().expect("no panic").drain(..) {
                // Like a killed process: data under way is lost.
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        Self { address, answered, is_killed, connections, accepting }
    }

    /// Returns when the port and every connection are closed.
    fn kill(self) {
        self.is_killed.store(true, SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        self.accepting.join().expect("no panic");
        assert!(self.connections.lock().expect("no panic").is_empty());
    }
}

/// Listens on an address where another server may have listened until just now.
fn listen(address: SocketAddr) -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor is free");
    socket.set_reuse_address(true).expect("is a socket");
    let began = Instant::now();
    // An outgoing connection of this process may have got the port.
    while let Err(error) = socket.bind(&address.into()) {
        assert!(began.elapsed() < PATIENCE, "{address}: {error}");
        std::thread::sleep(Duration::from_millis(10));
    }
    socket.listen(128).expect("it listens");
    socket.into()
}

fn answer(mut stream: TcpStream, body_bytes: usize, answered: &AtomicUsize) {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n").into_bytes();
    response.resize(response.len() + body_bytes, b'x');
    let mut request = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(count) = stream.read(&mut bytes)
        && count > 0
    {
        request.extend_from_slice(&bytes[..count]);
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            if stream.write_all(&response).is_err() {
                return;
            }
            answered.fetch_add(1, SeqCst);
        }
    }
}
