//! A small HTTP server for the control thread: one request per connection, few connections at a time, each with a time
//! limit. It is independent of the path of clients' requests.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take, with its request and the response.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// How much of that the head of the request may take.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// What the head of a request may have.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Between two tries to accept where that fails: for want of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A source of connections: a listener.
#[expect(async_fn_in_trait, reason = "the server runs on one thread: no future has to be Send")]
pub trait Accept {
    /// A connection of the listener.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// Accepts the next connection.
    ///
    /// # Errors
    /// When the kernel has no descriptor or memory for it.
    async fn next(&self) -> io::Result<Self::Stream>;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        Ok(self.accept().await?.0)
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

/// The connections that are being served, over all listeners.
#[derive(Clone, Default)]
pub struct ServedConnections(Rc<State>);

#[derive(Default)]
struct State {
    count: Cell<usize>,
    one_left: Notify,
}

/// One of them.
pub(crate) struct ServedConnection(Rc<State>);

impl ServedConnections {
    /// Counts something else that the end of the control thread waits for, until it is dropped.
    pub(crate) fn enter(&self) -> ServedConnection {
        self.0.count.set(self.0.count.get() + 1);
        ServedConnection(Rc::clone(&self.0))
    }

    /// Returns when all connections have ended.
    pub async fn gone(&self) {
        while self.0.count.get() > 0 {
            self.0.one_left.notified().await;
        }
    }
}

impl Drop for ServedConnection {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.one_left.notify_one();
    }
}

/// Accepts and serves connections until dropped. Connections under way then go on to their end.
pub async fn serve(listener: impl Accept, router: Router, guests: ServedConnections) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // It is never closed, so there always is a permit to come.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let Ok(stream) = listener.next().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (router, guest) = (router.clone(), guests.enter());
        tokio::task::spawn_local(async move {
            connection(stream, router).await;
            drop((permit, guest));
        });
    }
}

/// Serves one request. What goes wrong with its connection is the peer's own affair.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false);
    let serve = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, serve).await;
}
