//! The details of a failure, for the log's `detail` field.
//!
//! Requests keep nothing for this: on a failure, the rest of the message is examined again.

/// Explains which time-out has expired.
mod waits;

use http1::{BodyFraming, ConnectionOptions, Method, RequestHead, RequestTarget};

use crate::body::pump::{Pump, PumpSource};
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, SlotMemory};
use crate::context::recent_errors::FailedExchange;
use crate::context::routed::ExchangeContext;
use crate::failure::{Failure, Party};
use crate::record::{ExchangeRecord, Needs};

pub(crate) use waits::{FailedRequest, over_connection};

/// The maximum number of interim responses before the final one.
// RFC 9110 §15.2 sets no limit. Without one, a server could hold a request forever.
pub(crate) const INTERIM_MAX: usize = 32;

impl ExchangeRecord<'_> {
    /// Adds details of a failure after those of earlier attempts. Only the log and traces show them.
    #[cold]
    pub(crate) fn explain(&mut self, memory: &mut SlotMemory, failure: Failure) {
        if self.needs.has(Needs::DETAIL) || self.is_traced || self.note.is_some() {
            self.explain_to_all(memory, failure);
        }
    }

    /// Keeps the failure for operators who watch, if a server or the proxy is at fault. Called at the end of the request.
    #[cold]
    pub(super) fn keep_error(&self, failure: Failure) {
        let facts = failure.facts();
        let is_intended = failure.is_of_policy() || failure == Failure::FaultInjected;
        if self.note.is_none() || facts.party == Party::Client || is_intended {
            return;
        }
        let plan = &self.ctx.snapshot.plan;
        let upstream = self.upstream.map(|upstream| &plan.upstreams[upstream]);
        let server = self.server.map(|(upstream, server)| &plan.upstreams[upstream].servers[server]);
        self.ctx.worker.watched.errors.note(&FailedExchange {
            at: self.ctx.worker.wall_clock(),
            route: self.route.map(|route| plan.routes[route].label.as_str()),
            upstream: upstream.map(|upstream| upstream.config.name.as_str()),
            server: server.map(|server| server.label.as_str()),
            status: self.status,
            cause: facts.word,
            detail: self.detail.as_deref(),
        });
    }

    /// Adds the details always, and returns those of this failure, for messages about its server.
    #[cold]
    pub(crate) fn explain_to_all(&mut self, memory: &mut SlotMemory, failure: Failure) -> Option<String> {
        let known = FailedRequest {
            route: self.route,
            upstream: self.upstream,
            server: self.server,
            is_asked: self.upstream_bytes_sent > 0,
            is_tunnel: self.status == 101,
        };
        let told = self::failure(self.ctx, memory, &known, failure)?;
        self.detail = Some(match self.detail.take() {
            // The last attempt's failure is also the request's.
            Some(before) if before.ends_with(&told) => before,
            Some(before) => format!("{before}; {told}").into(),
            None => told.as_str().into(),
        });
        Some(told)
    }
}

/// Explains a failure, as far as the rest of the message shows the reason.
#[cold]
fn failure(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    known: &FailedRequest,
    failure: Failure,
) -> Option<String> {
    let told = match failure.facts().party {
        // Only the server's connections know why none was made: the messages show nothing of it.
        _ if waits::is_of_server(failure) => known.trouble(ctx),
        Party::Client => request(ctx, &mut memory.request, &mut memory.response.wrong, known, failure),
        Party::Upstream => response(ctx, memory, known, failure),
        Party::Proxy => memory.response.wrong.take(),
    };
    told.or_else(|| waits::over(ctx, memory, known, failure))
}

fn request(
    ctx: &ExchangeContext<'_>,
    request: &mut CurrentRequest,
    wrong: &mut Option<String>,
    known: &FailedRequest,
    failure: Failure,
) -> Option<String> {
    let chunks = chunks(&mut request.body);
    let CurrentRequest { head, buffer, .. } = &*request;
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
            // The bytes are parsed again, this time for the reason.
            http1::request_refusal(buffer.filled(), &ctx.snapshot.head_limits)
        }
        Failure::BadRequest | Failure::BadHost => {
            let error = RequestTarget::from_head(head, bytes).err();
            Some(error.map_or_else(
                || match failure {
                    Failure::BadHost => "an HTTP/1.0 request without Host cannot be redirected".to_owned(),
                    _ => "the request cannot be expressed in HTTP/2 or HTTP/3".to_owned(),
                },
                |error| http1::target_refusal(error, head, bytes),
            ))
        }
        Failure::UpstreamHeadLimit => wrong.take(),
        Failure::ClientHeadLimit => {
            Some("the response head is larger than the client's SETTINGS_MAX_FIELD_SECTION_SIZE".to_owned())
        }
        Failure::BadFraming => Some(match http1::request_framing(head, bytes) {
            Err(error) => http1::framing_refusal(error, head, bytes),
            Ok(_) => http1::connection_refusal(head, bytes),
        }),
        Failure::HeadTooLarge => chunks.or_else(|| Some(http1::connection_refusal(head, bytes))),
        Failure::BodyTooLarge => chunks.or_else(|| too_large(ctx, head, bytes, known)),
        Failure::RequestBufferExceeded => not_buffered(ctx, known),
        Failure::BadBody => chunks,
        Failure::AmbiguousPath => {
            let path = head.start.target.for_bytes(bytes).split(|&byte| byte == b'?').next()?;
            let doubts = route::doubts(path);
            Some(format!("the path contains {doubts}: a server might read it as another path"))
        }
        Failure::ClientGone => {
            let wrong = ctx.client.socket.wrong().map(|wrong| wrong.text);
            wrong.or_else(|| Some(format!("it reset the stream with {}", ctx.client.socket.reset_code()?)))
        }
        Failure::ClientHeaderTimeout => Some(format!(
            "only {} bytes of the head arrived within timeouts.client_header, {:?}",
            buffer.len(),
            config.timeouts.client_header
        )),
        _ => None,
    }
}

/// Names the limit that the body of a request exceeds.
fn too_large(
    ctx: &ExchangeContext<'_>,
    head: &RequestHead,
    bytes: &[u8],
    known: &FailedRequest,
) -> Option<String> {
    let policies = known.route.and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref());
    let (limit, whose) = match policies.and_then(|policies| policies.settings.limits.body_bytes) {
        Some(own) => (own?, " of the route"),
        None => (ctx.snapshot.plan.config.limits.body_bytes?, ""),
    };
    Some(match http1::request_framing(head, bytes) {
        Ok(BodyFraming::Length(length)) => {
            format!("Content-Length {length} is more than limits.body_bytes{whose}, {limit} bytes")
        }
        _ => format!("the body is more than limits.body_bytes{whose}, {limit} bytes"),
    })
}

/// Names the limit for bodies that the route buffers.
fn not_buffered(ctx: &ExchangeContext<'_>, known: &FailedRequest) -> Option<String> {
    let policies = known.route.and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref())?;
    let limits = policies.client_limits.as_deref().unwrap_or(&ctx.snapshot.client_limits);
    let buffering = policies.settings.request_buffering?;
    let bytes_max = buffering.bytes_max(limits.body_bytes, &ctx.snapshot.plan.config.request_buffers);
    Some(format!("the body is longer than the limit for buffered bodies, {bytes_max} bytes"))
}

fn response(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    known: &FailedRequest,
    failure: Failure,
) -> Option<String> {
    // An earlier step knows more than the message shows.
    if let Some(wrong) = memory.response.wrong.take() {
        return Some(wrong);
    }
    let chunks = chunks(&mut memory.response.body);
    let SlotMemory { request, response: CurrentResponse { head, buffer, .. }, .. } = &*memory;
    let bytes = buffer.filled();
    match failure {
        Failure::UpstreamMalformed | Failure::UpstreamHeadTooLarge if head.len == 0 => {
            http1::response_refusal(bytes, &ctx.snapshot.head_limits)
        }
        Failure::UpstreamUndecodable => Some("the body is not in the content coding that its head names".to_owned()),
        Failure::UpstreamTruncated => truncated(&memory.response),
        Failure::UpstreamUnknown => {
            let (upstream, server) = known.server?;
            let authority = &ctx.snapshot.plan.upstreams[upstream].servers[server].authority;
            Some(format!("the name in {authority} has no address"))
        }
        Failure::UpstreamInterims => Some(format!("more than {INTERIM_MAX} interim responses")),
        Failure::UpstreamSwitch => Some(
            "an invalid 101: not requested, to another protocol, with a wrong Sec-WebSocket-Accept, or before the \
             end of the request (RFC 9110 §7.8, RFC 6455 §4.1)"
                .to_owned(),
        ),
        Failure::UpstreamFraming | Failure::UpstreamHeadTooLarge => chunks.or_else(|| {
            let to_head = request.head.start.method == Method::Head;
            // The head is at the front of the buffer until it is accepted.
            if bytes.len() < head.len {
                return None;
            }
            match http1::response_framing(head, bytes, to_head) {
                Err(error) => Some(http1::framing_refusal(error, head, bytes)),
                Ok(_) if ConnectionOptions::from_head(head, bytes).is_err() => {
                    Some(http1::connection_refusal(head, bytes))
                }
                Ok(_) => None,
            }
        }),
        _ => None,
    }
}

/// Describes how much of an incomplete body arrived.
pub(crate) fn truncated(response: &CurrentResponse) -> Option<String> {
    let CurrentResponse { head, buffer, body, .. } = response;
    let (came, whole) = match body.incoming() {
        PumpSource::Length(left) => (body.moved, body.moved + left),
        PumpSource::Chunked => {
            return Some(format!("the body broke off after {} bytes, before its end", body.moved));
        }
        // A short body is awaited before it is moved, so it is behind its head.
        PumpSource::Ended | PumpSource::UntilClose => {
            let bytes = buffer.filled();
            let came = bytes.len().checked_sub(head.len)?;
            match http1::response_framing(head, bytes, false) {
                Ok(BodyFraming::Length(whole)) if (came as u64) < whole => (came as u64, whole),
                _ => return None,
            }
        }
    };
    Some(format!("{came} of {whole} bytes (Content-Length) arrived"))
}

/// Describes the error in a body's chunks.
fn chunks(body: &mut Pump) -> Option<String> {
    let refusal = body.take_refusal()?;
    Some(format!("in the chunks, at {}: {}", http1::quote(&refusal.beginning), refusal.error.rule()))
}
