//! Requests that the proxy itself sends, made from a client's request. They follow the rules of its route, but no
//! client waits for them, and they are not logged.

/// Mirrors requests to another upstream.
pub(crate) mod mirror;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use expression::ValueMemory;
use http1::{BodyFraming, ConnectionOptions, HttpVersion, Parsed, RequestHead, RequestTarget};
use telemetry::Trace;

use crate::body::kept::KeptBody;
use crate::body::pump::PumpSource;
use crate::body::replay::Replay;
use crate::context::client::FrontConnection;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, SlotMemory, Texts};
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::exchange::{Exchange, ExchangeState};
use crate::failure::Failure;
use crate::forward::Reply;
use crate::shared::vouched::Vouched;
use transport::buffer::SMALL;

/// A subrequest, before it runs. It owns its data, because the client's request may end first.
pub(crate) struct Subrequest {
    worker: Rc<Worker>,
    snapshot: Rc<Snapshot>,
    client: FrontConnection,
    routed: RoutedRequest,
    /// The head of the client's request.
    head: Box<[u8]>,
    /// The client's HTTP version.
    version: HttpVersion,
    body: Option<Rc<KeptBody>>,
    /// Texts that the route's policies have made for the client's request.
    texts: Texts,
    /// Name of its span, if it has a separate one.
    is_for: Option<&'static str>,
}

/// Returns a child span in the trace of the client's request.
fn child(trace: Option<Trace>) -> Option<Trace> {
    trace.map(|trace| trace.child(fastrand::u64(..)))
}

impl Subrequest {
    /// Copies a request without its body.
    pub(crate) fn copy_of(
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        request: &CurrentRequest,
    ) -> Self {
        Self {
            worker: Rc::clone(ctx.worker),
            snapshot: Rc::clone(ctx.snapshot),
            client: FrontConnection::detached(ctx.worker, ctx.client),
            routed: routed.detached(),
            head: request.head_bytes()[..request.head.len].into(),
            version: request.head.start.version,
            body: None,
            texts: Texts { trace: child(request.texts.trace), ..request.texts.clone() },
            is_for: None,
        }
    }

    /// Creates a subrequest about a client's request, with the given head, and `lines` in place of its conditions. It
    /// is the span `trace`, which is recorded with the request.
    ///
    /// # Errors
    /// If the head is invalid.
    pub(crate) fn new(
        ctx: &ExchangeContext<'_>,
        about: &RoutedRequest,
        upstream: usize,
        head: &[u8],
        lines: Vec<u8>,
        trace: Option<Trace>,
    ) -> Result<Self, Failure> {
        let mut parsed = RequestHead::default();
        if !matches!(parsed.parse(head, &ctx.snapshot.head_limits)?, Parsed::Complete) {
            return Err(Failure::BadRequest);
        }
        let routed = RoutedRequest {
            target: RequestTarget::from_head(&parsed, head)?,
            connection: ConnectionOptions::from_head(&parsed, head).map_err(|_| Failure::BadFraming)?,
            // No client waits for interim responses.
            version: HttpVersion::Http10,
            client: about.client,
            route: about.route,
            upstream: Cell::new(upstream),
            purpose: Purpose::Auth,
            ..RoutedRequest::new(ctx, &parsed)
        };
        Ok(Self {
            worker: Rc::clone(ctx.worker),
            snapshot: Rc::clone(ctx.snapshot),
            client: FrontConnection::detached(ctx.worker, ctx.client),
            routed,
            head: head.into(),
            version: parsed.start.version,
            body: None,
            texts: Texts { conditions: Some(lines), trace, ..Texts::default() },
            is_for: None,
        })
    }

    /// Creates a request without a body to another instance, with this head.
    pub(crate) fn to_peer(
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        request: &CurrentRequest,
        upstream: usize,
        head: Vec<u8>,
    ) -> Self {
        let mut subrequest = Self::copy_of(ctx, routed, request);
        subrequest.retarget(upstream, Purpose::Peer);
        // An invalidation has neither a body nor an upgrade, whatever the client's request had.
        subrequest.routed.framing = BodyFraming::None;
        subrequest.routed.wants_upgrade = false;
        subrequest.texts.hop = Some(head);
        subrequest.is_for("invalidation");
        subrequest
    }

    /// Changes the upstream and the purpose.
    pub(crate) fn retarget(&mut self, upstream: usize, purpose: Purpose) {
        self.routed.upstream.set(upstream);
        self.routed.purpose = purpose;
    }

    /// Names its span in the trace.
    pub(crate) fn is_for(&mut self, purpose: &'static str) {
        self.is_for = Some(purpose);
    }

    pub(crate) fn set_body(&mut self, body: Rc<KeptBody>) {
        self.body = Some(body);
    }

    /// Adds fields about the client for the server.
    pub(crate) fn vouch(&mut self, vouched: &Vouched) {
        Arc::make_mut(self.texts.vouched.get_or_insert_default()).and(vouched);
    }

    /// Runs `steps` with the request, and counts bytes sent to and received from servers.
    pub(crate) async fn run(self, steps: impl AsyncFnOnce(&mut Exchange<'_, '_>)) {
        // Under the snapshot of the client's request, which a reload must not change for its copy.
        let values = ValueMemory::new();
        let ctx = ExchangeContext::new(&self.worker, &self.snapshot, &self.client, &values);
        let mut memory = SlotMemory::of_request(&self.worker, &self.head);
        memory.request.replay = self.body.map(|body| Box::new(Replay::new(body)));
        memory.request.texts = self.texts;
        let parsed = memory.request.head.parse(&self.head, &self.snapshot.head_limits);
        let Ok(Parsed::Complete) = parsed else { return };
        memory.request.head.start.version = self.version;
        // Recorded only if the client's request was sampled.
        let is_traced = memory.request.texts.trace.is_some_and(|trace| trace.is_sampled);
        let mut state = ExchangeState::detached(&ctx, is_traced);
        state.record.purpose = self.is_for;
        let (ctx, routed) = (&ctx, &self.routed);
        steps(&mut Exchange { ctx, routed, memory: &mut memory, state: &mut state }).await;
        state.record.finish_detached(&memory);
    }
}

/// Receives the rest of a response into `body`, up to its limit, or discards it. Returns the connection to the pool if
/// possible.
///
/// # Errors
/// If it ends early, stalls, is invalid, or exceeds the limit.
pub(crate) async fn receive(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    mut body: Option<(&mut Vec<u8>, usize)>,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let CurrentResponse { head, buffer, body: pump, .. } = &mut exchange.memory.response;
    buffer.consume(head.len);
    pump.begin(reply.framing, false, None);
    let limit = routed.ticks(ctx).upstream_body;
    loop {
        pump.take_in(buffer).map_err(|_| Failure::UpstreamFraming)?;
        let count = pump.unsent();
        if let Some((body, bytes_max)) = &mut body {
            // Only authentication servers have a limit here.
            if body.len() + count > *bytes_max {
                return Err(Failure::AuthTooLarge);
            }
            body.extend_from_slice(&buffer.filled()[..count]);
        }
        pump.sent(buffer, count);
        if pump.is_done() {
            break;
        }
        if buffer.is_empty() {
            ctx.worker.buffers.grow_to(buffer, SMALL);
            let read = ctx.client.deadline.within(limit, reply.socket.read(buffer.spare())).await;
            match read.map_err(|_| Failure::UpstreamStalled)? {
                Ok(count @ 1..) => buffer.advance(count),
                Ok(0) if pump.incoming() == PumpSource::UntilClose => break,
                _ => return Err(Failure::UpstreamTruncated),
            }
        }
    }
    // RFC 9112 §9.3: bytes after a response belong to no request, so the connection is not reused.
    if reply.persists && reply.upload.is_done() && buffer.is_empty() {
        let server = &ctx.snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, ctx.client, &ctx.worker.deadlines);
    }
    Ok(())
}
