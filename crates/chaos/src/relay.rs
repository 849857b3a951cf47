//! The connections of one proxy: connects to the server for each client, and relays bytes both ways through the toxics.
//!
//! It connects to the server at once, because the server may speak first.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use transport::relay::{RelayDirection, pass_between};

use super::toxics::{ByteDirection, ToxicRandom, Toxics};
use super::traffic::ProxyTraffic;
use telemetry::message;

/// Maximum number of connections of one proxy; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 10_000;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// Pause after accept(2) fails, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// State that the connections of a proxy share.
#[derive(Clone)]
pub(super) struct RelayContext {
    pub(super) upstream: Arc<str>,
    pub(super) toxics: watch::Receiver<Toxics>,
    pub(super) traffic: ProxyTraffic,
    pub(super) seed: u64,
    pub(super) proxy: u64,
}

/// Accepts and relays connections. Dropping the future closes them all.
pub(super) async fn run(listener: TcpListener, source: RelayContext) {
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

/// Serves one client until either side, or a toxic, has ended the connection.
async fn serve(client: TcpStream, source: RelayContext, connection: u64) {
    let server = match connect(&source.upstream).await {
        Ok(server) => server,
        Err(error) => {
            message::warn(&format!("chaos: server {} cannot be reached: {error}", source.upstream));
            return;
        }
    };
    // Pieces leave as the toxics cut them.
    let _ = client.set_nodelay(true);
    let drawn = ToxicRandom { seed: source.seed, proxy: source.proxy, connection };
    let way = |stream: ByteDirection| {
        let way =
            RelayDirection::new(source.toxics.clone(), move |toxics: &Toxics| toxics.links(stream, drawn));
        way.counted_by(Arc::clone(source.traffic.for_stream(stream)))
    };
    pass_between(&client, &server, way(ByteDirection::Upstream), way(ByteDirection::Downstream), sleep).await;
}

async fn connect(upstream: &str) -> io::Result<TcpStream> {
    let server = timeout(CONNECT_TIME_MAX, TcpStream::connect(upstream)).await??;
    let _ = server.set_nodelay(true);
    Ok(server)
}
