//! The checked ports: `127.0.0.1` is always healthy, `127.0.0.2` as the test decides.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request, Response};
use rustls::{ServerConfig, ServerConnection};
use tempfile::TempDir;

use super::scene::at_one_port;

/// The protocol of the checked port.
#[derive(Clone)]
pub(crate) enum Spoken {
    /// No protocol. If unhealthy, it does not listen.
    Nothing,
    /// TLS. If unhealthy, it sends other bytes.
    Tls(Arc<ServerConfig>),
    /// gRPC without TLS. If unhealthy, it answers NOT_SERVING.
    Grpc,
    /// HTTP/2 without TLS: 503 if unhealthy, and the server's number.
    Http2,
}

pub(crate) struct Checked {
    pub(crate) port: u16,
    spoken: Spoken,
    second: Mutex<Option<Listening>>,
    is_ill: Arc<AtomicBool>,
    /// Connections to the second server.
    pub(crate) connections: Arc<AtomicUsize>,
    _first: Listening,
}

impl Checked {
    pub(crate) fn start(spoken: Spoken) -> Self {
        let (port, mut listeners) = at_one_port(2);
        let (is_ill, connections) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let second = listeners.pop().expect("there are two");
        let first = listeners.pop().expect("there are two");
        let second = Listening::start(second, spoken.clone(), Arc::clone(&is_ill), Arc::clone(&connections));
        let first = Listening::start(first, spoken.clone(), Arc::default(), Arc::default());
        Self { port, spoken, second: Mutex::new(Some(second)), is_ill, connections, _first: first }
    }

    /// Sets the second server's health.
    pub(crate) fn is(&self, is_well: bool) {
        self.is_ill.store(!is_well, SeqCst);
        if !matches!(self.spoken, Spoken::Nothing) {
            return;
        }
        let mut second = self.second.lock().expect("no panic");
        *second = None;
        if is_well {
            let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 2], self.port)));
            let listener = listener.expect("the port is still ours");
            let (is_ill, connections) = (Arc::clone(&self.is_ill), Arc::clone(&self.connections));
            *second = Some(Listening::start(listener, self.spoken.clone(), is_ill, connections));
        }
    }
}

/// A thread that accepts. Dropping it closes the port.
struct Listening {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    fn start(
        listener: TcpListener,
        spoken: Spoken,
        is_ill: Arc<AtomicBool>,
        connections: Arc<AtomicUsize>,
    ) -> Self {
        let address = listener.local_addr().expect("it listens");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if over.load(SeqCst) {
                    return;
                }
                connections.fetch_add(1, SeqCst);
                let (spoken, is_ill) = (spoken.clone(), is_ill.load(SeqCst));
                std::thread::spawn(move || serve(stream, &spoken, is_ill));
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

fn serve(mut stream: TcpStream, spoken: &Spoken, is_ill: bool) {
    match spoken {
        Spoken::Nothing => {}
        Spoken::Tls(_) if is_ill => {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
        Spoken::Tls(config) => {
            let mut tls = ServerConnection::new(Arc::clone(config)).expect("it has a certificate");
            let mut end = Vec::new();
            // Reads to the end, which reveals a client that leaves during the handshake.
            let mut both = rustls::Stream::new(&mut tls, &mut stream);
            both.read_to_end(&mut end).expect("the client ends what it began");
        }
        Spoken::Grpc | Spoken::Http2 => {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it is made");
            stream.set_nonblocking(true).expect("is a socket");
            let is_grpc = matches!(spoken, Spoken::Grpc);
            let who = if stream.local_addr().is_ok_and(|at| at.ip().to_string() == "127.0.0.1") {
                "1"
            } else {
                "2"
            };
            runtime.block_on(async {
                let stream = tokio::net::TcpStream::from_std(stream).expect("is a socket");
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    if is_grpc {
                        health(request, respond, is_ill);
                    } else {
                        get(&request, respond, is_ill, who);
                    }
                }
            });
        }
    }
}

fn health(request: Request<RecvStream>, mut respond: h2::server::SendResponse<Bytes>, is_ill: bool) {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(request.headers()["te"], "trailers");
    let response = Response::builder().header("content-type", "application/grpc").body(()).expect("is valid");
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    let status = if is_ill { 2 } else { 1 };
    let _ = stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let _ = stream.send_trailers(trailers);
}

fn get(
    request: &Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    is_ill: bool,
    who: &'static str,
) {
    let is_well = request.uri().path() != "/health" || !is_ill;
    let response = Response::builder()
        .status(if is_well { 200 } else { 503 })
        .header("content-length", "1")
        .body(())
        .expect("is valid");
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    let _ = stream.send_data(Bytes::from(who), true);
}

/// A folder with a file for each healthy server.
pub(crate) struct Files {
    pub(crate) folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self { folder: tempfile::tempdir().expect("there is a place for it") };
        files.is("127.0.0.1", true);
        files.is("127.0.0.2", true);
        files
    }

    pub(crate) fn is(&self, address: &str, is_well: bool) {
        let path = self.path(address);
        if is_well {
            std::fs::write(path, "").expect("it can be written");
        } else {
            std::fs::remove_file(path).expect("it is there");
        }
    }

    fn path(&self, address: &str) -> PathBuf {
        self.folder.path().join(address)
    }
}
