//! Opens a stream: renders its request, and checks the response.

use ::h2::ext::Protocol;
use ::http::header::{self, HeaderName, HeaderValue};
use ::http::{Method, Request};

use super::failure::StreamFailure;
use super::grpc;
use super::head::StreamHead;
use super::pipe::{Check, Pipe, PipeDemand};
use super::plan::Workload;
use super::session::SessionLink;
use super::websocket;
use crate::connect;
use crate::failure::LoadFailure;
use crate::give_up::GiveUp;
use crate::random::Random;
use crate::target::RenderedRequests;
use crate::url::Url;

/// The first bytes of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) workload: Workload,
    /// ID of the last event before the stream broke.
    pub(super) last_id: &'a [u8],
    /// First messages of a gRPC call, and whether they are all.
    pub(super) first: &'a [u8],
    pub(super) is_all: bool,
}

/// Opens a stream within the timeout. With gRPC it awaits no response, because some servers answer only messages.
pub(super) async fn open(
    link: &SessionLink,
    opening: Opening<'_>,
    random: &mut Random,
    give_up: &mut GiveUp,
) -> Result<Pipe, LoadFailure> {
    give_up.start(std::time::Instant::now());
    match &link.worker.shared.targets.requests {
        RenderedRequests::Http1(requests) => {
            let request = &requests[0].bytes;
            Box::pin(over_http1(link, opening, request, random, give_up)).await
        }
        RenderedRequests::Streams(_) => {
            let url = Url::parse(link.worker.shared.plan.url(0)).map_err(LoadFailure::Unsent)?;
            let head = link.worker.shared.targets.form(0).message(&url).map_err(LoadFailure::Unsent)?;
            Box::pin(over_http2(link, opening, head, give_up)).await
        }
    }
}

async fn over_http1(
    link: &SessionLink,
    Opening { workload, last_id, .. }: Opening<'_>,
    request: &[u8],
    random: &mut Random,
    give_up: &mut GiveUp,
) -> Result<Pipe, LoadFailure> {
    let transport = connect::open(&link.worker, &link.sessions, 0, give_up).await?;
    let key = websocket::key([random.next(), random.next()]);
    let (fields, wanted, check): (_, _, Check) = if workload.is_websocket() {
        let fields = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        );
        (fields.into_bytes(), PipeDemand::Upgrade, check_upgrade)
    } else if last_id.is_empty() {
        (Vec::new(), PipeDemand::Body, check_events)
    } else {
        ([b"Last-Event-ID: ", last_id, b"\r\n"].concat(), PipeDemand::Body, check_events)
    };
    // The head ends in an empty line.
    let end = memchr::memmem::find(request, b"\r\n\r\n").map_or(request.len(), |at| at + 2);
    let request = [&request[..end], &fields, &request[end..]].concat();
    let after = give_up.after();
    let opened = give_up.bound(Pipe::over_http1(transport, &request, wanted, check, &link.worker)).await;
    let pipe = opened.unwrap_or(Err(LoadFailure::Timeout { after }))?;
    let accept = pipe.head().and_then(|head| head.value("sec-websocket-accept"));
    if workload.is_websocket() && accept != Some(websocket::accept(&key).as_bytes()) {
        return Err(StreamFailure::NoWebSocket("Sec-WebSocket-Accept does not match the key").into());
    }
    Ok(pipe)
}

async fn over_http2(
    link: &SessionLink,
    Opening { workload, last_id, first, is_all }: Opening<'_>,
    mut head: Request<()>,
    give_up: &mut GiveUp,
) -> Result<Pipe, LoadFailure> {
    let session = link.session(give_up).await?;
    let body = link.worker.shared.targets.form(0).body();
    let (first, is_all, check): (_, _, Check) = match workload {
        Workload::Events => {
            if let Ok(id) = HeaderValue::from_bytes(last_id)
                && !last_id.is_empty()
            {
                head.headers_mut().insert(HeaderName::from_static("last-event-id"), id);
            }
            (body, true, check_events)
        }
        Workload::Grpc { .. } => {
            head.headers_mut().remove(header::CONTENT_LENGTH);
            (first, is_all, check_grpc)
        }
        Workload::Echo | Workload::FanOut { .. } => {
            if !session.requests.is_extended_connect_protocol_enabled() {
                return Err(StreamFailure::NoConnect.into());
            }
            // RFC 8441 §5: no key, and no Upgrade.
            *head.method_mut() = Method::CONNECT;
            head.extensions_mut().insert(Protocol::from_static("websocket"));
            let version = HeaderName::from_static("sec-websocket-version");
            head.headers_mut().insert(version, HeaderValue::from_static("13"));
            (&[][..], false, check_connect)
        }
    };
    let after = give_up.after();
    let opened = give_up.bound(async {
        let mut pipe = Pipe::over_http2(session.clone(), head, first, is_all, check).await?;
        if !matches!(workload, Workload::Grpc { .. }) {
            pipe.wait_for_head(&link.worker).await?;
        }
        Ok(pipe)
    });
    let opened = opened.await.unwrap_or(Err(LoadFailure::Timeout { after }));
    if let Err(failure) = &opened {
        link.broken(&session, failure);
    }
    opened
}

/// The response to a handshake over HTTP/2 (RFC 8441 §5).
fn check_connect(head: &StreamHead) -> Result<(), StreamFailure> {
    let is_right = (200..300).contains(&head.status);
    if is_right { Ok(()) } else { Err(StreamFailure::Status { status: head.status }) }
}

/// The response to a handshake (RFC 6455 §4.1).
fn check_upgrade(head: &StreamHead) -> Result<(), StreamFailure> {
    if head.status != 101 {
        return Err(StreamFailure::Status { status: head.status });
    }
    if !head.lists("upgrade", "websocket") || !head.lists("connection", "upgrade") {
        return Err(StreamFailure::NoWebSocket("Upgrade or Connection is missing or has another value"));
    }
    if head.value("sec-websocket-extensions").is_some_and(|value| !value.is_empty()) {
        return Err(StreamFailure::NoWebSocket("it uses an extension that was not offered"));
    }
    Ok(())
}

/// The response that begins an event stream (WHATWG HTML §9.2.3).
fn check_events(head: &StreamHead) -> Result<(), StreamFailure> {
    if head.status != 200 {
        return Err(StreamFailure::Status { status: head.status });
    }
    let is_right = head.is_of_type(|essence| essence == "text/event-stream");
    if is_right { Ok(()) } else { Err(StreamFailure::NoEvents) }
}

fn check_grpc(head: &StreamHead) -> Result<(), StreamFailure> {
    // PROTOCOL-HTTP2.md, "Responses": any other status comes from an intermediary.
    if head.status != 200 {
        return Err(StreamFailure::Status { status: head.status });
    }
    let is_right = head.is_of_type(|essence| {
        essence.strip_prefix("application/grpc").is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
    });
    if is_right { Ok(()) } else { Err(StreamFailure::NoGrpc) }
}

/// Status and message of a call, from its trailers or, if it has no body, from its head.
pub(super) fn grpc_status(pipe: &Pipe) -> Result<(u16, String), StreamFailure> {
    let of_trailers =
        |name: &str| pipe.trailers.as_ref().and_then(|fields| fields.get(name)).map(HeaderValue::as_bytes);
    let value = |name| of_trailers(name).or_else(|| pipe.head()?.value(name));
    let status = value("grpc-status").and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    let status = status.ok_or(StreamFailure::NoStatus)?;
    let message = value("grpc-message").map(|text| String::from_utf8_lossy(text).into_owned());
    Ok((status, message.unwrap_or_default()))
}

/// The failure of a call with this status; `None` for OK.
pub(super) fn grpc_failure((status, message): (u16, String)) -> Option<LoadFailure> {
    (status != 0).then(|| StreamFailure::GrpcStatus { status, message }.into())
}

/// A gRPC message with its prefix.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(message.len() + 5);
    grpc::append(message, &mut framed);
    framed
}
