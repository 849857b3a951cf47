//! A small HTTP server for the control thread: one request per connection, few connections at a time, each with a
//! time limit. It is independent of the path of clients' requests.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};

/// Concurrent connections; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// The part of it for the head of the request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Delay after a failed accept, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[expect(async_fn_in_trait, reason = "the server runs on one thread: no future has to be Send")]
pub trait Accept {
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// Fails if the kernel has no descriptor or memory for the connection.
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

/// The open connections of all listeners.
#[derive(Clone, Default)]
pub struct ServedConnections(Rc<ServiceState>);

#[derive(Default)]
struct ServiceState {
    count: Cell<usize>,
    one_left: Notify,
}

pub(crate) struct ServedConnection(Rc<ServiceState>);

impl ServedConnections {
    /// Counts something else that the end of the control thread waits for, until it is dropped.
    pub(crate) fn enter(&self) -> ServedConnection {
        self.0.count.set(self.0.count.get() + 1);
        ServedConnection(Rc::clone(&self.0))
    }

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

/// Accepts and serves connections until dropped. Open connections then continue to their end.
pub async fn serve(listener: impl Accept, router: Router, guests: ServedConnections) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // The semaphore is never closed.
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

/// The mark of a response that may take longer than others, in its extensions.
#[derive(Clone, Copy)]
pub(crate) struct Lasting;

/// Serves one request. Errors of the connection are ignored, because they concern only the peer.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false);
    let (router, lasts) = (TowerToHyperService::new(router), Rc::new(Cell::new(false)));
    let notes = Rc::clone(&lasts);
    let noting = service_fn(move |request| {
        let (response, lasts) = (router.call(request), Rc::clone(&notes));
        async move {
            let response = response.await?;
            lasts.set(response.extensions().get::<Lasting>().is_some());
            Ok::<_, Infallible>(response)
        }
    });
    let mut serve = pin!(builder.serve_connection(TokioIo::new(stream), noting));
    let ended = tokio::time::timeout(CONNECTION_TIME_MAX, &mut serve).await;
    if ended.is_err() && lasts.get() {
        let _ = serve.await;
    }
}
