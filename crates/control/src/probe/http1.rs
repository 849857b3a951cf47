//! A single HTTP/1.1 exchange on a new connection. An idle connection would not show that the server no longer listens.

use transport::endpoint::MessageEndpoint;
use transport::tcp::Follows;

use crate::probe::connect::{ProbeStream, reason};
use crate::probe::http::{ProbeRequest, ProbeResponse};

pub(crate) async fn ask(
    connection: &MessageEndpoint,
    question: &ProbeRequest<'_>,
) -> Result<ProbeResponse, String> {
    let ProbeRequest { host, path, agent, body_bytes_max } = question;
    let fields = [("Host", *host), ("User-Agent", agent), ("Accept", "*/*"), ("Connection", "close")];
    exchange(connection, &http_client::request("GET", path, &fields, b"")?, *body_bytes_max).await
}

/// Sends a request and reads the response with a limited number of body bytes. Nothing else is sent on the connection.
pub(crate) async fn exchange(
    connection: &MessageEndpoint,
    request: &[u8],
    body_bytes_max: usize,
) -> Result<ProbeResponse, String> {
    let stream = ProbeStream { endpoint: connection, follows: Follows::End };
    let mut connection = http_client::ClientStream::new(stream, reason);
    let http_client::ClientResponseHead { status, headers } = connection.ask(request).await?;
    let body = connection.body(body_bytes_max).await?;
    Ok(ProbeResponse { status, headers, body, trailers: connection.trailers().to_vec() })
}
