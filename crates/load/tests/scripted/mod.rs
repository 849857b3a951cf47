//! A server that follows a test's script, on a port that the kernel chose. Its threads end with the test process.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use load::LoadPlan;

pub(crate) struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Peer {
    /// The next request with its body; `None` at the end of the connection.
    pub(crate) fn request(&mut self) -> Option<String> {
        let head_bytes = self.receive_until(|received| find(received, b"\r\n\r\n").map(|at| at + 4))?;
        let head = String::from_utf8_lossy(&self.received[..head_bytes]).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let body_bytes: usize = length.map_or(0, |digits| digits.parse().expect("a length"));
        let total = head_bytes + body_bytes;
        self.receive_until(|received| (received.len() >= total).then_some(total))?;
        let request = self.received.drain(..total).collect();
        Some(String::from_utf8(request).expect("the tests send text"))
    }

    /// The head of a request, whose body stays unread.
    pub(crate) fn head(&mut self) -> Option<()> {
        self.receive_until(|received| find(received, b"\r\n\r\n")).map(|_| ())
    }

    /// The next `bytes` bytes; `None` at the end of the connection.
    pub(crate) fn exactly(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.receive_until(|received| (received.len() >= bytes).then_some(bytes))?;
        Some(self.received.drain(..bytes).collect())
    }

    fn receive_until(&mut self, found: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(at) = found(&self.received) {
                return Some(at);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(bytes) => self.received.extend_from_slice(&buffer[..bytes]),
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // The generator may have gone already; the test checks its outcome.
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a socket of ours");
    }

    /// Shuts down the sending side, and reads until the generator is done.
    pub(crate) fn finish(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.stall();
    }

    /// Waits until the generator closes the connection.
    pub(crate) fn stall(&mut self) {
        let mut buffer = [0; 4096];
        while matches!(self.stream.read(&mut buffer), Ok(bytes) if bytes > 0) {}
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Serves each connection by the script, which gets the connection's number.
pub(crate) fn server(script: impl Fn(Peer, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let script = Arc::new(script);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let script = Arc::clone(&script);
            thread::spawn(move || script(Peer { stream, received: Vec::new() }, number));
        }
    });
    address
}

/// Answers every request with these bytes.
pub(crate) fn answering(response: &'static [u8]) -> SocketAddr {
    server(move |mut peer, _| {
        while peer.request().is_some() {
            peer.send(response);
        }
    })
}

/// A number of requests on one connection, in a closed loop.
pub(crate) fn plan(address: SocketAddr, requests: u64) -> LoadPlan {
    LoadPlan {
        connections: 1,
        requests: Some(requests),
        duration_seconds: None,
        ..LoadPlan::new(format!("http://{address}/"))
    }
}

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
