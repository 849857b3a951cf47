//! The details of a failure, for the `detail` field of the log.
//!
//! Requests keep nothing for this: on a failure, the rest of the message is examined again.

/// Explains which time-out has expired.
mod waits;

use http1::{ConnectionOptions, Framing, Method, Target};

use crate::body::pump::{Incoming, Pump};
use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::{Memory, Request, Response};
use crate::context::failure::{Failure, Party};

pub(crate) use waits::{Known, over_connection};

/// The maximum number of interim responses before the final one.
pub(crate) const INTERIM_MAX: usize = 32;

/// Explains a failure, as far as the rest of the message shows the reason.
#[cold]
pub(crate) fn failure(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    known: &Known,
    failure: Failure,
) -> Option<String> {
    let told = match failure.facts().party {
        Party::Client => request(ctx, &mut memory.request, known, failure),
        Party::Upstream => response(ctx, memory, failure),
        Party::Proxy => memory.response.wrong.take(),
    };
    told.or_else(|| waits::over(ctx, memory, known, failure))
}

fn request(
    ctx: &ExchangeContext<'_>,
    request: &mut Request,
    known: &Known,
    failure: Failure,
) -> Option<String> {
    let chunks = chunks(&mut request.body);
    let Request { head, buffer, .. } = &*request;
    let config = &ctx.snapshot.plan.config;
    let is_whole = head.len > 0;
    let bytes = request.head_bytes();
    match failure {
        Failure::BadRequest
        | Failure::HeadTooLarge
        | Failure::MethodTooLong
        | Failure::TargetTooLong
        | Failure::VersionRefused
            if !is_whole =>
        {
            http1::request_refusal(buffer.filled(), &ctx.snapshot.head_limits)
        }
        Failure::BadRequest | Failure::BadHost => {
            let error = Target::of(head, bytes).err();
            Some(error.map_or_else(
                || "an HTTP/1.0 request without Host cannot be told where to go".to_owned(),
                |error| http1::target_refusal(error, head, bytes),
            ))
        }
        Failure::BadFraming => Some(match http1::request_framing(head, bytes) {
            Err(error) => http1::framing_refusal(error, head, bytes),
            Ok(_) => http1::connection_refusal(head, bytes),
        }),
        Failure::HeadTooLarge => chunks.or_else(|| Some(http1::connection_refusal(head, bytes))),
        Failure::BodyTooLarge => chunks.or_else(|| {
            let policies = known.route.and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref());
            let (limit, whose) = match policies.and_then(|policies| policies.settings.limits.body_bytes) {
                Some(own) => (own?, " of the route"),
                None => (config.limits.body_bytes?, ""),
            };
            Some(match http1::request_framing(head, bytes) {
                Ok(Framing::Length(length)) => {
                    format!("Content-Length {length} is more than limits.body_bytes{whose}, {limit} bytes")
                }
                _ => format!("the body is more than limits.body_bytes{whose}, {limit} bytes"),
            })
        }),
        Failure::RequestBufferExceeded => {
            let policies =
                known.route.and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref())?;
            let limits = policies.client_limits.as_ref().unwrap_or(&ctx.snapshot.client_limits);
            let buffering = policies.settings.request_buffering?;
            let bytes_max = buffering.bytes_max(limits.body_bytes, &config.request_buffers);
            Some(format!("the body is longer than any that is buffered here, {bytes_max} bytes"))
        }
        Failure::BadBody => chunks,
        Failure::AmbiguousPath => {
            let path = head.start.target.of(bytes).split(|&byte| byte == b'?').next()?;
            let doubts = route::doubts(path);
            Some(format!("the path holds {doubts}: it can be read as one that leads elsewhere"))
        }
        Failure::ClientGone | Failure::Http2Malformed => ctx.client.socket.wrong().map(|wrong| wrong.text),
        Failure::ClientHeaderTimeout => Some(format!(
            "{} bytes of the head came within timeouts.client_header, {:?}",
            buffer.len(),
            config.timeouts.client_header
        )),
        _ => None,
    }
}

fn response(ctx: &ExchangeContext<'_>, memory: &mut Memory, failure: Failure) -> Option<String> {
    if let Some(wrong) = memory.response.wrong.take() {
        return Some(wrong);
    }
    let chunks = chunks(&mut memory.response.body);
    let Memory { request, response: Response { head, buffer, .. }, .. } = &*memory;
    let bytes = buffer.filled();
    match failure {
        Failure::UpstreamMalformed | Failure::UpstreamHeadTooLarge if head.len == 0 => {
            http1::response_refusal(bytes, &ctx.snapshot.head_limits)
        }
        Failure::UpstreamTruncated => truncated(&memory.response),
        Failure::UpstreamInterims => Some(format!("more than {INTERIM_MAX} interim responses")),
        Failure::UpstreamSwitch => Some(
            "a 101 that was not asked for, to another protocol, with a Sec-WebSocket-Accept that is not of the key, or \
             before the end of the request (RFC 9110 §7.8, RFC 6455 §4.1)"
                .to_owned(),
        ),
        Failure::UpstreamFraming | Failure::UpstreamHeadTooLarge => chunks.or_else(|| {
            let to_head = request.head.start.method == Method::Head;
            // The head lies at the front of the buffer until it is accepted.
            if bytes.len() < head.len {
                return None;
            }
            match http1::response_framing(head, bytes, to_head) {
                Err(error) => Some(http1::framing_refusal(error, head, bytes)),
                Ok(_) if ConnectionOptions::of(head, bytes).is_err() => {
                    Some(http1::connection_refusal(head, bytes))
                }
                Ok(_) => None,
            }
        }),
        _ => None,
    }
}

/// How much came of a body that is not whole.
fn truncated(response: &Response) -> Option<String> {
    let Response { head, buffer, body, .. } = response;
    let (came, whole) = match body.incoming() {
        Incoming::Length(left) => (body.moved, body.moved + left),
        Incoming::Chunked => {
            return Some(format!("the body broke off after {} bytes, before its end", body.moved));
        }
        // A short one is waited for before it begins to move: it lies behind its head.
        Incoming::Ended | Incoming::UntilClose => {
            let bytes = buffer.filled();
            let came = bytes.len().checked_sub(head.len)?;
            match http1::response_framing(head, bytes, false) {
                Ok(Framing::Length(whole)) if (came as u64) < whole => (came as u64, whole),
                _ => return None,
            }
        }
    };
    Some(format!("{came} of the {whole} bytes came that Content-Length says"))
}

/// What was wrong with the chunks of a body.
fn chunks(body: &mut Pump) -> Option<String> {
    let refusal = body.take_refusal()?;
    Some(format!("in the chunks, at {}: {}", http1::quote(&refusal.beginning), refusal.error.rule()))
}
