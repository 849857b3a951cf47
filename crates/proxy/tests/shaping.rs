//! Routes that are slowed down on purpose. What is asserted of time is that nothing comes early; that nothing comes late
//! depends on the machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use config::Config;
use proxy::Running;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that answers each request with so many bytes, once it has read the whole of it.
fn origin(body_bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, body_bytes));
        }
    });
    address
}

fn serve(mut stream: TcpStream, body_bytes: usize) {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + body_bytes, b'x');
    while let Some(length) = read_head(&mut stream) {
        let mut rest = vec![0; length];
        if stream.read_exact(&mut rest).is_err() || stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Reads a head; says how long the body is that follows.
fn read_head(stream: &mut TcpStream) -> Option<usize> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    Some(length.and_then(|length| length.parse().ok()).unwrap_or(0))
}

fn proxy(route: &str, origin: SocketAddr) -> Running {
    let text = format!(
        "workers = 2\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n{route}\n\
         [upstream.app]\nservers = [\"http://{origin}\"]\n"
    );
    let config: Config = config::parse(&text, "test").expect("a valid configuration");
    proxy::start(config).expect("it starts")
}

fn client(proxy: &Running) -> TcpStream {
    let stream = TcpStream::connect(proxy.addresses()[0]).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the proxy takes it");
}

#[test]
fn one_response_takes_as_long_as_its_bytes_do() {
    let proxy = proxy("rate = \"20KB/s\"", origin(5_000));
    let mut client = client(&proxy);
    for _ in 0..2 {
        let began = Instant::now();
        ask(&mut client);
        let length = read_head(&mut client).expect("a head");
        client.read_exact(&mut vec![0; length]).expect("a body");
        // A link makes up for a millisecond at most.
        assert!(began.elapsed() >= Duration::from_millis(248), "{:?}", began.elapsed());
    }
}

#[test]
fn responses_share_a_total_and_finish_together() {
    const CLIENTS: usize = 20;
    const BODY_BYTES: usize = 2_000;
    let proxy = proxy("rate = \"40KB/s\"", origin(BODY_BYTES));
    let received: Arc<Vec<AtomicUsize>> = Arc::new((0..CLIENTS).map(|_| AtomicUsize::new(0)).collect());
    let began = Instant::now();
    // Of each client: how much the others had when its own was whole.
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let (mut client, received) = (client(&proxy), Arc::clone(&received));
            ask(&mut client);
            thread::spawn(move || {
                read_head(&mut client).expect("a head");
                let mut piece = [0; 4096];
                while received[index].load(Ordering::SeqCst) < BODY_BYTES {
                    let count = client.read(&mut piece).expect("more of the body");
                    received[index].fetch_add(count, Ordering::SeqCst);
                }
                received.iter().map(|count| count.load(Ordering::SeqCst)).min().unwrap_or(0)
            })
        })
        .collect();
    let least = clients.into_iter().map(|client| client.join().expect("a response")).min().unwrap_or(0);
    assert!(least >= BODY_BYTES / 2, "one had {least} bytes when another had all {BODY_BYTES}");
    assert!(began.elapsed() >= Duration::from_millis(990), "{:?}", began.elapsed());
}

#[test]
fn uploads_are_slowed_down_as_well() {
    let proxy = proxy("upload_rate = \"20KB/s\"", origin(0));
    let mut client = client(&proxy);
    let began = Instant::now();
    client.write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5000\r\n\r\n").expect("a head");
    client.write_all(&[b'x'; 5_000]).expect("a body");
    read_head(&mut client).expect("an answer");
    assert!(began.elapsed() >= Duration::from_millis(248), "{:?}", began.elapsed());
}

#[test]
fn what_is_not_limited_is_not_slowed_down_by_what_is() {
    let large = 3_000_000;
    let proxy = proxy("rate = \"1GB/s\"", origin(large));
    let mut client = client(&proxy);
    ask(&mut client);
    let length = read_head(&mut client).expect("a head");
    let mut body = vec![0; length];
    client.read_exact(&mut body).expect("a body");
    assert!(length == large && body.iter().all(|&byte| byte == b'x'), "whole, in large pieces");
}

#[test]
fn requests_are_held_back_beside_each_other() {
    const CLIENTS: usize = 50;
    let proxy = proxy("delay = \"300ms±20ms\"", origin(10));
    let began = Instant::now();
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| client(&proxy)).collect();
    clients.iter_mut().for_each(ask);
    for client in &mut clients {
        read_head(client).expect("an answer");
        assert!(began.elapsed() >= Duration::from_millis(280), "{:?}", began.elapsed());
    }
    // One behind the other they would take fifteen seconds.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
