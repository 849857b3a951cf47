//! A server, the proxy in front of it, and clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use config::Config;
use control::Running;
pub(crate) use testkit::wait::PATIENCE;

/// A server that answers each request with this number of bytes, after reading all of it.
pub(crate) fn origin(body_bytes: usize) -> SocketAddr {
    listening(move |stream| serve(stream, body_bytes))
}

/// A server that sends back what it gets.
pub(crate) fn echo() -> SocketAddr {
    listening(|mut stream| {
        if let Ok(mut back) = stream.try_clone() {
            let _ = std::io::copy(&mut stream, &mut back);
        }
    })
}

/// A server whose response body is sent in pieces; each length that is sent to the channel sends a piece.
pub(crate) fn in_pieces(body_bytes: usize) -> (SocketAddr, Sender<usize>) {
    let (pieces, asked): (_, Receiver<usize>) = channel();
    let mut asked = Some(asked);
    let address = listening_once(move |mut stream| {
        read_head(&mut stream);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        for length in asked.take().into_iter().flatten() {
            if stream.write_all(&vec![b'x'; length]).is_err() {
                return;
            }
        }
    });
    (address, pieces)
}

fn listening(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn listening_once(mut serve: impl FnMut(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || listener.incoming().flatten().for_each(&mut serve));
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

/// Reads a head. Returns the length of the following body.
pub(crate) fn read_head(stream: &mut TcpStream) -> Option<usize> {
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

/// Options of a listener, its route and its upstream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options<'a> {
    pub(crate) listen: &'a str,
    pub(crate) route: &'a str,
    pub(crate) upstream: &'a str,
}

impl Options<'_> {
    pub(crate) fn config(&self, origin: SocketAddr) -> Config {
        let Self { listen, route, upstream } = self;
        let text = format!(
            "workers = 2\n[[listen]]\naddress = \"127.0.0.1:0\"\n{listen}\n[[route]]\nupstream = \"app\"\n{route}\n\
             [upstream.app]\nservers = [\"http://{origin}\"]\n{upstream}\n"
        );
        config::parse(&text, "test").unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
    }

    pub(crate) fn start(&self, origin: SocketAddr) -> Running {
        control::start(self.config(origin)).expect("it starts")
    }
}

pub(crate) fn proxy(route: &str, origin: SocketAddr) -> Running {
    Options { route, ..Options::default() }.start(origin)
}

pub(crate) fn client(proxy: &Running) -> TcpStream {
    let stream = TcpStream::connect(proxy.addresses()[0]).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

pub(crate) fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the proxy takes it");
}

/// Reads a response with Content-Length. Returns the length.
pub(crate) fn read_response(stream: &mut TcpStream) -> usize {
    let length = read_head(stream).expect("a head");
    stream.read_exact(&mut vec![0; length]).expect("a body");
    length
}
