//! Opens connections: TCP to the next address in turn, then TLS for https. Each step is timed separately.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use tokio::net::{TcpStream, UnixStream};

use crate::check::Cut;
use crate::directions::DialAddress;
use crate::failure::LoadFailure;
use crate::give_up::GiveUp;
use crate::secure::Secure;
use crate::tls::Sessions;
use crate::transport::{Transport, TransportFault};
use crate::worker::LoadWorker;

/// Opens a connection to a server, and records the times of its parts.
pub(crate) async fn open(
    worker: &LoadWorker,
    sessions: &Sessions,
    server: usize,
    give_up: &mut GiveUp,
) -> Result<Transport, LoadFailure> {
    let began = Instant::now();
    give_up.start(began);
    let after = give_up.after();
    let late = || LoadFailure::ConnectTimeout { after };
    let stream = give_up.bound(tcp(worker, server)).await.ok_or_else(late)??;
    let connected = Instant::now();
    let is_measured = worker.is_measured(began);
    if is_measured {
        let mut record = worker.record.borrow_mut();
        record.connections_opened += 1;
        record.connect.record(connected - began);
    }
    let Some((config, name)) = worker.tls(sessions, server) else { return Ok(Transport::Plain(stream)) };
    let secure = Secure::new(stream, config, name)?;
    let secure = give_up.bound(shake_hands(worker, secure)).await.ok_or_else(late)??;
    if let Some(agreed) = secure.agreed() {
        worker.record.borrow_mut().handshake(agreed, is_measured.then(|| connected.elapsed()));
    }
    if worker.shared.plan.http2 && secure.protocol() != Some(b"h2") {
        return Err(LoadFailure::NoHttp2);
    }
    Ok(Transport::Tls(Box::new(secure)))
}

/// Connects to the next address in turn, or to the first one after it that accepts.
async fn tcp(worker: &LoadWorker, server: usize) -> Result<TcpStream, LoadFailure> {
    let addresses = &worker.shared.targets.servers.get(server).addresses;
    let mut result = Err(LoadFailure::Cut(Cut::Nothing));
    for tried in addresses.turn(Instant::now()) {
        let attempt = tried.attempt();
        match connect(tried.address()).await {
            Ok(stream) => {
                attempt.succeed();
                return Ok(stream);
            }
            Err(source) => result = Err(LoadFailure::Connect { address: tried.address().clone(), source }),
        }
    }
    result
}

async fn connect(address: &DialAddress) -> io::Result<TcpStream> {
    match address {
        DialAddress::Ip(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
        DialAddress::Unix(path) => unix(path).await,
    }
}

/// Connects to a Unix socket. The type is the same, because the runtime's stream accepts any socket.
async fn unix(path: &Path) -> io::Result<TcpStream> {
    let stream = UnixStream::connect(path).await?.into_std()?;
    TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(stream)))
}

async fn shake_hands(worker: &LoadWorker, mut secure: Secure) -> Result<Secure, LoadFailure> {
    let made = poll_fn(|context| {
        let mut scratch = worker.scratch.borrow_mut();
        secure.poll_handshake(context, &mut scratch.buffer)
    });
    match made.await {
        Ok(()) => Ok(secure),
        Err(TransportFault::Io(error)) => Err(LoadFailure::Handshake(error)),
        Err(TransportFault::Tls(error)) => Err(LoadFailure::Tls { error }),
    }
}
