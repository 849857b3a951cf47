//! The PROXY protocol: reads the header that names a connection's client, from trusted peers.
//!
//! The crate `route` parses headers; this module receives and applies them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use config::written_duration;
use route::{PROXY_HEADER_BYTES_MAX, ProxyOrigin, parse_proxy_header};
use telemetry::{LogEntry, message};

use crate::context::client::FrontConnection;
use crate::context::original_connection::OriginalConnection;
use crate::context::worker::Worker;
use crate::failure::Failure;
use transport::tcp::Tcp;

/// Reads the PROXY header at the start of a connection, and sets the client that it names. Returns `None` if the header
/// is missing, or the connection is finished.
pub(crate) async fn read(worker: &Worker, mut client: Box<FrontConnection>) -> Option<Box<FrontConnection>> {
    let tcp = client.socket.spliceable()?;
    client.deadline.set(worker.snapshot().ticks.client_header);
    let (failure, reason) = match client.deadline.guard(receive(tcp)).await {
        Ok(Ok(Said::Client { source, original_connection })) => {
            client.introduce(worker, source, original_connection);
            return Some(client);
        }
        Ok(Ok(Said::Nothing)) => return Some(client),
        // Such as health checks that only open a connection.
        Ok(Err(HeaderRefused::Silent)) => return None,
        Ok(Err(HeaderRefused::Gone)) => {
            worker.counters.failure(Failure::ClientGone as usize);
            return None;
        }
        Ok(Err(HeaderRefused::Header(error))) => (Failure::BadProxyHeader, error.to_string()),
        Err(_) => {
            let limit = written_duration(worker.snapshot().plan.config.timeouts.client_header);
            let reason = format!("no complete PROXY header arrived within timeouts.client_header, {limit}");
            (Failure::ProxyHeaderTimeout, reason)
        }
    };
    tell(worker, &client, failure, reason);
    None
}

/// Counts a rejected header, and reports it in the log and on standard error.
#[cold]
fn tell(worker: &Worker, client: &FrontConnection, failure: Failure, reason: String) {
    worker.counters.failure(failure as usize);
    message::warn(&format!("{} was disconnected: {reason}", client.address));
    if let Some(log) = worker.log.borrow_mut().as_mut() {
        let cause = Some(failure.facts().word);
        let entry = LogEntry { cause, detail: Some(&reason), ..LogEntry::new(client.address) };
        log.record(&entry, worker.wall_clock_at(Instant::now()));
    }
}

/// Content of a PROXY header.
enum Said {
    Client {
        source: SocketAddr,
        original_connection: Rc<OriginalConnection>,
    },
    /// The header names no client: the connection is the peer's own, or from an unknown client.
    Nothing,
}

/// The reason why there is no header.
enum HeaderRefused {
    Silent,
    /// The connection ended or failed within the header.
    Gone,
    Header(route::ProxyHeaderError),
}

impl From<io::Error> for HeaderRefused {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Reads the header only: bytes after it stay in the socket.
async fn receive(tcp: &Tcp) -> Result<Said, HeaderRefused> {
    let mut bytes = vec![0; PROXY_HEADER_BYTES_MAX];
    let mut len = 0;
    loop {
        let seen = len + tcp.peek(&mut bytes[len..]).await?;
        if seen == len {
            return Err(if len == 0 { HeaderRefused::Silent } else { HeaderRefused::Gone });
        }
        let header = parse_proxy_header(&bytes[..seen]).map_err(HeaderRefused::Header)?;
        // All bytes belong to the header while it is incomplete.
        let end = header.as_ref().map_or(seen, |header| header.len);
        let said = header.map(|header| match header.origin {
            ProxyOrigin::Client { source, destination } => {
                Said::Client { source, original_connection: OriginalConnection::new(destination, &header) }
            }
            ProxyOrigin::Local | ProxyOrigin::Unknown => Said::Nothing,
        });
        // Exactly the header is consumed: the bytes behind it belong to TLS or HTTP.
        while len < end {
            match poll_fn(|context| tcp.poll_read(context, &mut bytes[len..end])).await? {
                0 => return Err(HeaderRefused::Gone),
                count => len += count,
            }
        }
        if let Some(said) = said {
            return Ok(said);
        }
    }
}
