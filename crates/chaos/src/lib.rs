//! The chaos proxy: connections of any protocol that are passed on slowly, in pieces, cut short or not at all, as the
//! HTTP API of Toxiproxy says while they last. What happens to bytes is the crate `shape`'s; here are sockets and time.
//!
//! It runs on one thread of its own, and has nothing to do with the workers or with the path of a request.

/// What clients ask for, and are told.
mod api;
/// How that is read.
mod body;
/// The file that it may begin with.
mod file;
/// All proxies, by name.
mod proxies;
/// What is done to the connections of one.
mod toxics;
/// What has passed through one.
mod traffic;
/// One proxy's connections.
pub(crate) mod relay;
/// Why something is not done.
mod refusal;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use config::ListenAddress;
use telemetry::message;
use tokio::runtime::Builder;
use tokio::sync::{Mutex, oneshot};

use control::service;
use control::{StartError as NotStarted, on_thread};
pub use file::Config;
pub use mistake::Mistake;
use proxies::Proxies;

/// What a chaos proxy is started with.
#[derive(Debug)]
pub struct Options {
    /// Where its API is served. Everybody who reaches it may open ports and connections: it belongs on loopback.
    pub listen: SocketAddr,
    /// What every draw goes by.
    pub seed: u64,
    /// The proxies that it has from its beginning.
    pub config: Config,
}

/// Why a chaos proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its API is not served.
    #[error(transparent)]
    Api(#[from] NotStarted),
    /// A proxy of its file cannot be made.
    #[error(transparent)]
    Proxy(Box<Mistake>),
}

/// A running chaos proxy. Dropped, it ends at once, with all its connections.
#[derive(Debug)]
pub struct Chaos {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
    /// Dropped, it ends the thread.
    end: Option<oneshot::Sender<()>>,
}

/// Starts a chaos proxy with the proxies of its file: all of them, or it does not start.
///
/// # Errors
/// When its address, or that of one of them, cannot be listened on, or its thread cannot be started.
pub fn start(options: Options) -> Result<Chaos, StartError> {
    let (listener, address) = open(options.listen)
        .map_err(|error| NotStarted::Listen { address: ListenAddress::Tcp(options.listen), error })?;
    let (end, ended) = oneshot::channel();
    let (made, outcome) = mpsc::channel();
    let Options { seed, mut config, .. } = options;
    let body = move || {
        Ok(async move {
            let mut proxies = Proxies::new(seed);
            let (_, outcome) = proxies.make(config.take()).await;
            let is_made = outcome.is_ok();
            // Whoever starts it waits for that.
            let _ = made.send(outcome.map_err(|refusal| Box::new(config.mistake(&refusal))));
            if is_made {
                run(listener, proxies, ended).await;
            }
        })
    };
    let thread = on_thread("chaos".to_owned(), Builder::enable_all, body)?;
    let chaos = Chaos { address, thread: Some(thread), end: Some(end) };
    match outcome.recv() {
        Ok(Err(mistake)) => Err(StartError::Proxy(mistake)),
        // Without an outcome it has panicked, which is said when it is dropped.
        Ok(Ok(())) | Err(_) => Ok(chaos),
    }
}

fn open(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn run(listener: TcpListener, proxies: Proxies, ended: oneshot::Receiver<()>) {
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => {
            let router = api::router(Arc::new(Mutex::new(proxies)));
            tokio::task::spawn_local(service::serve(listener, router, service::ServedConnections::default()));
        }
        Err(error) => message::error(&format!("the API of the chaos proxy is not served: {error}")),
    }
    // Told or dropped: either way the tasks end with this runtime.
    let _ = ended.await;
}

impl Chaos {
    /// Where its API is served, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            message::error("the chaos proxy panicked");
        }
    }
}
