//! The chaos proxy: relays connections of any protocol slowly, in pieces, cut short or not at all. Toxiproxy's HTTP API
//! controls it. The crate `shape` computes the effects on bytes; this crate has the sockets and the clock.
//!
//! It runs on its own thread, independent of the workers and the path of a request.

/// Toxiproxy's HTTP API.
mod api;
/// Request bodies of the API.
mod body;
/// The configuration file.
mod file;
/// All proxies, by name.
mod proxies;
/// The toxics of one proxy.
mod toxics;
/// Byte counters of one proxy.
mod traffic;
/// The connections of one proxy.
pub(crate) mod relay;
/// Refusals of API requests.
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

#[derive(Debug)]
pub struct ChaosOptions {
    /// The address of the API. It belongs on loopback, because its clients may open ports and connections.
    pub listen: SocketAddr,
    pub seed: u64,
    pub config: Config,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Api(#[from] NotStarted),
    #[error(transparent)]
    Proxy(Box<Mistake>),
}

/// A running chaos proxy. Dropping it ends it at once, with all its connections.
#[derive(Debug)]
pub struct Chaos {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
    /// Dropping it ends the thread.
    end: Option<oneshot::Sender<()>>,
}

/// Starts a chaos proxy with all proxies of its file.
///
/// # Errors
/// If the API or a proxy cannot listen on its address, or the thread cannot be started.
pub fn start(options: ChaosOptions) -> Result<Chaos, StartError> {
    let (listener, address) = open(options.listen)
        .map_err(|error| NotStarted::Listen { address: ListenAddress::Tcp(options.listen), error })?;
    let (end, ended) = oneshot::channel();
    let (made, outcome) = mpsc::channel();
    let ChaosOptions { seed, mut config, .. } = options;
    let body = move || {
        Ok(async move {
            let mut proxies = Proxies::new(seed);
            let (_, outcome) = proxies.make(config.take()).await;
            let is_made = outcome.is_ok();
            // `start` waits for this message.
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
        // Without an outcome the thread has panicked; dropping `chaos` reports that.
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
    // Either a message or a dropped sender ends the runtime, and the tasks with it.
    let _ = ended.await;
}

impl Chaos {
    /// The address of the API, with the port that the kernel chose.
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
