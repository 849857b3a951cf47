//! The connections of one proxy: connects to the server for each client, and relays bytes both ways through the toxics.
//!
//! The server may speak first, so the connection to it is made at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use transport::relay::{RelayDirection, pass_between};

use super::toxics::{Drawn, Stream, Toxics};
use super::traffic::Traffic;
use telemetry::message;

/// Connections of one proxy at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 10_000;
/// How long a server may take to be connected to.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// Between two tries to accept where that fails: for want of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a proxy's connections need: the server's address, toxics, counters and seed.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) upstream: Arc<str>,
    pub(super) toxics: watch::Receiver<Toxics>,
    pub(super) traffic: Traffic,
    pub(super) seed: u64,
    pub(super) proxy: u64,
}

/// Accepts and relays connections. Dropping the future closes them all.
pub(super) async fn run(listener: TcpListener, source: Source) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        let client = loop {
            match listener.accept().await {
                Ok((client, _)) => break client,
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        };
        connections.spawn(serve(client, source.clone(), number));
    }
}

/// Serves one client until either side, or a toxic, has ended it.
async fn serve(client: TcpStream, source: Source, connection: u64) {
    let server = match connect(&source.upstream).await {
        Ok(server) => server,
        Err(error) => {
            message::warn(&format!("chaos: server {} cannot be reached: {error}", source.upstream));
            return;
        }
    };
    // Pieces leave as they are cut.
    let _ = client.set_nodelay(true);
    let drawn = Drawn { seed: source.seed, proxy: source.proxy, connection };
    let way = |stream: Stream| {
        let way =
            RelayDirection::new(source.toxics.clone(), move |toxics: &Toxics| toxics.links(stream, drawn));
        way.counted_by(Arc::clone(source.traffic.of(stream)))
    };
    pass_between(&client, &server, way(Stream::Upstream), way(Stream::Downstream), sleep).await;
}

async fn connect(upstream: &str) -> io::Result<TcpStream> {
    let server = timeout(CONNECT_TIME_MAX, TcpStream::connect(upstream)).await??;
    let _ = server.set_nodelay(true);
    Ok(server)
}
