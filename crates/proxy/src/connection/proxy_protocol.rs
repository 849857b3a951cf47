//! The PROXY protocol: reads the header that names a connection's client, from trusted peers; sends it to servers that
//! ask for it.
//!
//! The crate `route` parses headers; this module receives and applies them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use config::written_duration;
use route::{PROXY_HEADER_BYTES_MAX, ProxyOrigin, parse_proxy_header};
use telemetry::{Entry, message};

use crate::context::client::Client;
use crate::context::failure::Failure;
use crate::context::original_connection::OriginalConnection;
use crate::context::worker::Worker;
use transport::tcp::Tcp;

/// Reads the PROXY header at the start of a connection, and sets the client that it names. `None` if the header is
/// missing or the connection is not to be served.
pub(crate) async fn read(worker: &Worker, mut client: Box<Client>) -> Option<Box<Client>> {
    let tcp = client.socket.spliceable()?;
    client.deadline.set(worker.snapshot().ticks.client_header);
    let refused = match client.deadline.guard(receive(tcp)).await {
        Ok(Ok(Said::Client { source, original_connection })) => {
            client.introduce(worker, source, original_connection);
            return Some(client);
        }
        Ok(Ok(Said::Nothing)) => return Some(client),
        // As those do that only want to know whether somebody listens.
        Ok(Err(Refused::Silent)) => return None,
        Ok(Err(Refused::Gone)) => {
            worker.counters.failure(Failure::ClientGone as usize);
            return None;
        }
        Ok(Err(Refused::Header(error))) => (Failure::BadProxyHeader, error.to_string()),
        Err(_) => {
            let limit = written_duration(worker.snapshot().plan.config.timeouts.client_header);
            let reason = format!("no PROXY header came as a whole within timeouts.client_header, {limit}");
            (Failure::ProxyHeaderTimeout, reason)
        }
    };
    tell(worker, &client, refused);
    None
}

/// Counts what was refused, and tells of it in the log and on standard error.
#[cold]
fn tell(worker: &Worker, client: &Client, (failure, reason): (Failure, String)) {
    worker.counters.failure(failure as usize);
    message::warn(&format!("{} was disconnected: {reason}", client.address));
    if let Some(log) = worker.log.borrow_mut().as_mut() {
        let cause = Some(failure.facts().word);
        let entry = Entry { cause, detail: Some(&reason), ..Entry::new(client.address) };
        log.record(&entry, worker.wall_clock_at(Instant::now()));
    }
}

/// What a header came to.
enum Said {
    /// The header names this client.
    Client { source: SocketAddr, original_connection: Rc<OriginalConnection> },
    /// The header names no client: the connection is the peer's own, or from an unknown client.
    Nothing,
}

/// Why there is no header.
enum Refused {
    /// The peer ended the connection without sending a byte.
    Silent,
    /// The peer ended or lost the connection within the header.
    Gone,
    Header(route::ProxyHeaderError),
}

impl From<io::Error> for Refused {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Takes just the header: what follows is looked at, and left to be read.
async fn receive(tcp: &Tcp) -> Result<Said, Refused> {
    let mut bytes = vec![0; PROXY_HEADER_BYTES_MAX];
    let mut len = 0;
    loop {
        let seen = len + tcp.peek(&mut bytes[len..]).await?;
        if seen == len {
            return Err(if len == 0 { Refused::Silent } else { Refused::Gone });
        }
        let header = parse_proxy_header(&bytes[..seen]).map_err(Refused::Header)?;
        // Of a header that is not whole yet, all bytes are its own.
        let end = header.as_ref().map_or(seen, |header| header.len);
        let said = header.map(|header| match header.origin {
            ProxyOrigin::Client { source, destination } => {
                Said::Client { source, original_connection: OriginalConnection::new(destination, &header) }
            }
            ProxyOrigin::Local | ProxyOrigin::Unknown => Said::Nothing,
        });
        while len < end {
            match poll_fn(|context| tcp.poll_read(context, &mut bytes[len..end])).await? {
                0 => return Err(Refused::Gone),
                count => len += count,
            }
        }
        if let Some(said) = said {
            return Ok(said);
        }
    }
}
