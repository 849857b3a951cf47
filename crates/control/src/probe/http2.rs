//! A single HTTP/2 exchange on a new connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use config::Scheme;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{HeaderMap, Request};

use crate::probe::connect::ProbeStream;
use crate::probe::http::{BODY_MAX, HEAD_MAX, ProbeRequest, ProbeResponse, USER_AGENT};
use transport::connection::Connection;
use transport::endpoint::MessageEndpoint;
use transport::tcp::Follows;

pub(super) struct H2ProbeResponse {
    pub(super) answer: ProbeResponse,
    pub(super) trailers: HeaderMap,
}

pub(super) fn get(question: &ProbeRequest<'_>, scheme: Scheme) -> Result<Request<()>, String> {
    let request = Request::get(url(scheme, question.host, question.path));
    let request = request.header("user-agent", USER_AGENT).header("accept", "*/*").body(());
    request.map_err(|error| format!("the request cannot be sent: {error}"))
}

pub(super) fn url(scheme: Scheme, host: &str, path: &str) -> String {
    let scheme = if scheme == Scheme::Https { "https" } else { "http" };
    format!("{scheme}://{host}{path}")
}

/// Sends a request and reads the response, then closes the connection.
pub(super) async fn ask(
    server: Connection,
    request: Request<()>,
    body: Option<Bytes>,
) -> Result<H2ProbeResponse, String> {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(BODY_MAX as u32)
        .initial_connection_window_size(BODY_MAX as u32)
        .max_header_list_size(HEAD_MAX as u32);
    let endpoint = MessageEndpoint::from(server);
    let stream = ProbeStream { endpoint: &endpoint, follows: Follows::Nothing };
    let (send, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(|error| reason(&error))?;
    let mut connection = pin!(connection);
    let mut exchange = pin!(exchange(send, request, body));
    let mut has_ended = false;
    poll_fn(|context| {
        loop {
            if let Poll::Ready(answered) = exchange.as_mut().poll(context) {
                return Poll::Ready(answered);
            }
            // It may close with the response, which must still be read.
            if has_ended {
                return Poll::Ready(Err("it closed the connection".to_owned()));
            }
            match connection.as_mut().poll(context) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(reason(&error))),
                Poll::Ready(Ok(())) => has_ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

async fn exchange(
    send: SendRequest<Bytes>,
    request: Request<()>,
    body: Option<Bytes>,
) -> Result<H2ProbeResponse, String> {
    let mut send = send.ready().await.map_err(|error| reason(&error))?;
    let (response, mut stream) =
        send.send_request(request, body.is_none()).map_err(|error| reason(&error))?;
    if let Some(body) = body {
        stream.send_data(body, true).map_err(|error| reason(&error))?;
    }
    receive(response).await
}

async fn receive(response: ResponseFuture) -> Result<H2ProbeResponse, String> {
    let response = response.await.map_err(|error| reason(&error))?;
    let (head, mut stream) = response.into_parts();
    let headers =
        head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
    let mut answer = ProbeResponse {
        status: head.status.as_u16(),
        headers: headers.collect(),
        ..ProbeResponse::default()
    };
    while let Some(data) = stream.data().await {
        let data = data.map_err(|error| reason(&error))?;
        let room = BODY_MAX - answer.body.len();
        answer.body.extend_from_slice(&data[..data.len().min(room)]);
        if answer.body.len() == BODY_MAX {
            return Ok(H2ProbeResponse { answer, trailers: HeaderMap::new() });
        }
        let _ = stream.flow_control().release_capacity(data.len());
    }
    let trailers = stream.trailers().await.map_err(|error| reason(&error))?;
    Ok(H2ProbeResponse { answer, trailers: trailers.unwrap_or_default() })
}

fn reason(error: &h2::Error) -> String {
    match error.get_io() {
        Some(error) => super::connect::reason(error),
        None => format!("HTTP/2: {error}"),
    }
}
