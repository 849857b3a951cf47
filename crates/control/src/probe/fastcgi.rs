//! A GET to an application behind FastCGI, on a new connection.

use fastcgi::{CgiHeadLimits, Ping, RecordLimits, ResponseLimits, Stdin};
use transport::connection::Connection;
use transport::endpoint::MessageEndpoint;
use transport::fastcgi_connection::{FastcgiConnection, FastcgiMemory, FastcgiRequest};

use crate::probe::http::{HEAD_MAX, ProbeRequest, ProbeResponse};
use crate::probe::http1;

const LIMITS: ResponseLimits = ResponseLimits {
    records: RecordLimits { empty_records: 16 },
    head: CgiHeadLimits { bytes: HEAD_MAX / 2, fields: 256 },
    stderr_bytes: 1024,
};

/// Asks for a page: its path is the name of a script in `root`, or one that php-fpm answers itself (`ping.path`).
pub(super) async fn ask(
    socket: Connection,
    question: &ProbeRequest<'_>,
    root: &str,
    label: &str,
) -> Result<ProbeResponse, String> {
    let ProbeRequest { host, path, agent, body_bytes_max } = question;
    let ping = Ping {
        page: path.as_bytes(),
        root: root.as_bytes(),
        host: host.as_bytes(),
        software: agent.as_bytes(),
    };
    let mut records = Vec::new();
    ping.write(&mut records).map_err(|error| error.to_string())?;
    let application = FastcgiConnection::new(socket, label.into(), LIMITS, &FastcgiMemory::new());
    application.begin(&FastcgiRequest {
        record_bytes: records.len(),
        body: Stdin::new(0),
        to_head: false,
        name: &[b"health check"],
    });
    let application = MessageEndpoint::from(application);
    let answer = http1::exchange(&application, &records, *body_bytes_max).await;
    answer.map_err(|error| application.wrong().map_or(error, |wrong| wrong.text))
}
