//! Asks another upstream if the first one answers with an error, or not at all (`on_status`): once for each request.
//!
//! A body is sent twice only if it was buffered, or if it is short and the request may be retried. An error page is
//! requested without it.

use std::mem;
use std::rc::Rc;

use config::{Protocol, StatusFallback, StatusFallbacks};
use http1::{
    BodyFraming, ConnectionOptions, FieldLine, HeadLimits, Method, Parsed, RequestTarget, reason_phrase,
};
use route::ActiveEdits;

use crate::body::incoming_body::IncomingBody;
use crate::body::kept::KeptBody;
use crate::body::replay::Replay;
use crate::body::upload::Upload;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::exchange::{Exchange, SentProgress};
use crate::failure::{Cause, Failure};
use crate::forward::{Reply, respond, retry, to_upstream};
use crate::outgoing::edits;
use transport::cold::cold;

/// Fields that concern the body or the connection of the client's request, in lower case.
const DROPPED: [&[u8]; 9] = [
    b"host",
    b"content-length",
    b"transfer-encoding",
    b"content-type",
    b"content-encoding",
    b"content-language",
    b"expect",
    b"trailer",
    b"upgrade",
];

/// Sends the request, and reads the head of the final response: that of another upstream, if the route names one for the
/// status or the failure of the first. Called once per request that needs a server, after policies and cache.
pub(crate) async fn forward(exchange: &mut Exchange<'_, '_>) -> Result<Reply, Failure> {
    let policies = exchange.routed.policies(exchange.ctx);
    let fallbacks = policies.and_then(|policies| policies.settings.on_status.as_deref());
    if let (Some(_), Some(first)) = (fallbacks, &exchange.state.record.fell_back) {
        // The cache asks again for a complete response.
        exchange.routed.upstream.set(first.upstream);
    }
    let outcome = to_upstream(exchange).await;
    match fallbacks.and_then(|fallbacks| wanted(exchange, fallbacks, &outcome)) {
        None => outcome,
        Some((fallback, status)) => cold(|| replace(exchange, fallback, status, outcome)).await,
    }
}

/// Returns the upstream that answers in place of the first one, and the first status.
fn wanted<'f>(
    exchange: &Exchange<'_, '_>,
    fallbacks: &'f StatusFallbacks,
    outcome: &Result<Reply, Failure>,
) -> Option<(&'f StatusFallback, u16)> {
    let Exchange { routed, memory, state, .. } = exchange;
    let status = match outcome {
        Ok(_) => memory.response.head.start.status,
        Err(failure) => status_of(*failure)?,
    };
    let fallback = fallbacks.page(status).filter(|fallback| outcome.is_err() || !fallback.only_failures)?;
    // A mirror's copy has no client that could see another response.
    let is_for_client = matches!(routed.purpose, Purpose::Client | Purpose::Peer);
    let is_upgrade = routed.wants_upgrade || routed.connection.upgrade;
    let can_answer = state.sent == SentProgress::Nothing;
    // A page is no response to an upgrade, but another server may accept it.
    let can_ask = is_for_client && can_answer && !(is_upgrade && fallback.path.is_some());
    (can_ask && (fallback.path.is_some() || may_repeat(exchange, outcome))).then_some((fallback, status))
}

/// Returns the status of a failure to get a response.
fn status_of(failure: Failure) -> Option<u16> {
    let status = failure.facts().status;
    // Failures of the client say nothing about the server. After the time of the request, nothing can follow.
    (matches!(status, 502..=504) && !failure.is_of_request()).then_some(status)
}

/// Whether the whole request can be sent to another upstream. The first one may have acted on it.
fn may_repeat(exchange: &Exchange<'_, '_>, outcome: &Result<Reply, Failure>) -> bool {
    let Exchange { ctx, routed, memory, state } = exchange;
    let request = &memory.request;
    if routed.framing == BodyFraming::None || request.replay.is_some() {
        return true;
    }
    let first_piece = state.record.first_piece_bytes;
    let is_here = !request.has_body_begun()
        || match routed.framing {
            BodyFraming::Length(_) => request.body.taken().0 == first_piece,
            _ => request.body.taken() == (first_piece, true),
        };
    let upstream = &ctx.snapshot.upstreams[routed.upstream.get()];
    // RFC 9110 §9.2.2.
    let may_be_done_twice =
        routed.method.is_idempotent() || retry::rules(ctx, upstream, routed).non_idempotent;
    let is_unseen = outcome.as_ref().is_err_and(|failure| {
        failure.is_of_connecting() || matches!(failure.cause(), Cause::Load | Cause::Queued)
    });
    is_here && (may_be_done_twice || is_unseen)
}

/// Asks the other upstream.
async fn replace(
    exchange: &mut Exchange<'_, '_>,
    fallback: &StatusFallback,
    status: u16,
    outcome: Result<Reply, Failure>,
) -> Result<Reply, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &mut exchange.memory.request;
    if fallback.path.is_none() && request.has_body_begun() && request.replay.is_none() {
        match routed.framing {
            BodyFraming::Chunked => {
                let Some(body) = kept(ctx, routed, request) else { return outcome };
                request.replay = Some(Box::new(Replay::new(Rc::new(body))));
            }
            _ => put_back(ctx, request),
        }
    }
    let first = outcome.as_ref().err().copied();
    exchange.state.record.falls_back(exchange.memory, status, first);
    let response = &mut exchange.memory.response;
    if let Ok(reply) = outcome {
        respond::discard(ctx, response, reply);
    }
    // Such as a session cookie for the first upstream.
    response.added.clear();
    response.wrong = None;
    routed.upstream.set(fallback.upstream);
    let outcome = match fallback.path_for(status) {
        Some(path) => page(exchange, (fallback, status), &path).await,
        None => again(exchange, fallback.keep_status).await,
    };
    match (outcome, first) {
        (Ok(mut reply), _) if fallback.keep_status => {
            let own = exchange.memory.response.head.start.status;
            exchange.state.record.keeps_status(own);
            keep_status(routed, &mut exchange.memory.response, &mut reply, status)?;
            Ok(reply)
        }
        // The client gets the status that it would get without an error page.
        (Err(_), Some(first)) if fallback.keep_status => Err(first),
        (outcome, _) => outcome,
    }
}

/// Puts the first piece of a body of known length back before the bytes from the client.
fn put_back(ctx: &ExchangeContext<'_>, request: &mut CurrentRequest) {
    let CurrentRequest { buffer, first_piece, .. } = request;
    if buffer.is_empty() {
        ctx.worker.buffers.fit(buffer, first_piece.len());
        buffer.spare()[..first_piece.len()].copy_from_slice(first_piece);
        buffer.advance(first_piece.len());
    } else {
        buffer.push_front(first_piece);
    }
    first_piece.clear();
}

/// Returns a chunked body, if all of it left with the head.
fn kept(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &CurrentRequest) -> Option<KeptBody> {
    let protocol = ctx.snapshot.upstreams[routed.upstream.get()].plan.config.protocol;
    if !request.body.trailers().is_empty() {
        return None;
    }
    let mut bytes = request.first_piece.clone();
    if protocol == Protocol::Http1 {
        let mut body = IncomingBody::new(BodyFraming::Chunked);
        let taken = body.take(&mut bytes).ok().filter(|_| body.is_over())?;
        bytes.truncate(taken.data);
    }
    Some(KeptBody::in_memory(bytes, true))
}

/// Sends the request again, to the other upstream.
async fn again(exchange: &mut Exchange<'_, '_>, keeps_status: bool) -> Result<Reply, Failure> {
    let routed = exchange.routed;
    let texts = &mut exchange.memory.request.texts;
    // A part, or the news that nothing has changed, fits no error status. A validator of the store may be that of the
    // first upstream.
    let is_plain = matches!(routed.method, Method::Get | Method::Head)
        && (keeps_status || routed.is_cached && texts.conditions.is_some());
    let conditions = is_plain.then(|| texts.conditions.replace(Vec::new()));
    let outcome = to_upstream(exchange).await;
    if let Some(conditions) = conditions {
        exchange.memory.request.texts.conditions = conditions;
    }
    outcome
}

/// Requests an error page from the other upstream, in place of the client's request.
async fn page(
    exchange: &mut Exchange<'_, '_>,
    of: (&StatusFallback, u16),
    path: &str,
) -> Result<Reply, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &mut exchange.memory.request;
    let has_left_client = routed.framing == BodyFraming::None
        || request.replay.is_some()
        || request.has_body_begun() && request.body.taken().1;
    let text = page_head(ctx, routed, request, of, path);
    let aside = request.lay_aside(text)?;
    let first_piece_bytes = exchange.state.record.first_piece_bytes;
    let outcome = match page_request(routed, request) {
        Ok(routed) => {
            let (memory, state) = (&mut *exchange.memory, &mut *exchange.state);
            to_upstream(&mut Exchange { ctx, routed: &routed, memory, state }).await
        }
        Err(failure) => Err(failure),
    };
    exchange.state.record.first_piece_bytes = first_piece_bytes;
    exchange.memory.request.resume(aside);
    let mut reply = outcome?;
    if !has_left_client {
        // The rest of the client's body is not read, so no request can follow it.
        reply.upload = Upload::refused();
    }
    Ok(reply)
}

/// Writes the head of the request for a page.
fn page_head(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    (StatusFallback { fields, .. }, status): (&StatusFallback, u16),
    path: &str,
) -> Vec<u8> {
    let bytes = request.head_bytes();
    let method = if routed.method == Method::Head { "HEAD" } else { "GET" };
    let mut text = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let authority = routed.target.authority.for_bytes(bytes);
    if !authority.is_empty() {
        for part in [b"Host: ", authority, b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    let is_dropped = |field: &&FieldLine| {
        let name = field.name.for_bytes(bytes);
        DROPPED.iter().any(|dropped| name.eq_ignore_ascii_case(dropped))
            || fields.remove(name, ActiveEdits::FIRST)
    };
    for field in request.head.fields.iter().filter(|field| !is_dropped(field)) {
        text.extend_from_slice(&bytes[field.name.start as usize..field.line_end as usize]);
    }
    edits::write_page_fields(ctx, routed, request, (fields, status), &mut text);
    text.extend_from_slice(b"\r\n");
    text
}

/// Returns the decisions about the request for a page, whose head is in place of the client's.
fn page_request(routed: &RoutedRequest, request: &CurrentRequest) -> Result<RoutedRequest, Failure> {
    let (head, bytes) = (&request.head, request.head_bytes());
    Ok(RoutedRequest {
        target: RequestTarget::from_head(head, bytes)?,
        connection: ConnectionOptions::from_head(head, bytes).map_err(|_| Failure::BadFraming)?,
        framing: BodyFraming::None,
        method: head.start.method,
        ..routed.clone()
    })
}

/// Gives a response the first status.
fn keep_status(
    routed: &RoutedRequest,
    response: &mut CurrentResponse,
    reply: &mut Reply,
    status: u16,
) -> Result<(), Failure> {
    // RFC 9110 §15.3.5, §15.4.5: these have no body and no length, which a response with an error status needs.
    if matches!(response.head.start.status, 204 | 304) && routed.method != Method::Head {
        reply.framing = BodyFraming::Length(0);
        response.added.extend_from_slice(b"Content-Length: 0\r\n");
    }
    let version = response.head.start.version;
    let bytes = response.buffer.filled();
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let line = format!("HTTP/1.1 {status} {}\r\n", reason_phrase(status));
    response.buffer.consume(end);
    response.buffer.push_front(line.as_bytes());
    let mut head = mem::take(&mut response.head);
    let limits = HeadLimits { bytes: head.len + line.len(), fields: usize::MAX, target: usize::MAX };
    head.clear();
    let parsed = head.parse(response.buffer.filled(), &limits);
    head.start.version = version;
    response.head = head;
    match parsed {
        Ok(Parsed::Complete) => Ok(()),
        Ok(Parsed::Partial) => Err(Failure::UpstreamMalformed),
        Err(error) => Err(Failure::of_response(error)),
    }
}
