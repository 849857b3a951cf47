//! Requests of the proxy's own, made from a client's: they take the path of a request under the rules of its route, but
//! no client waits for them, and they are not logged.

use std::rc::Rc;
use std::sync::Arc;

use http1::{ConnectionOptions, Framing, Parsed, RequestHead, Target, Version};
use telemetry::Trace;

use crate::body::kept::KeptBody;
use crate::body::pump::Incoming;
use crate::body::replay::Replay;
use crate::context::client::Client;
use crate::context::exchange::{Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request, Response, Texts};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::snapshot::Snapshot;
use crate::context::vouched::Vouched;
use crate::context::worker::Worker;
use crate::forward::Reply;
use transport::buffer::SMALL;

/// A request of the proxy's own, before it runs. It owns its data, since the client's request may end first.
pub(crate) struct Subrequest {
    worker: Rc<Worker>,
    snapshot: Rc<Snapshot>,
    client: Client,
    routed: RoutedRequest,
    /// The head of the request that it was made from.
    head: Box<[u8]>,
    /// The version that the client spoke.
    version: Version,
    /// The body, if it has one.
    body: Option<Rc<KeptBody>>,
    /// What the policies of the route have made for that request.
    texts: Texts,
    /// What it is for, if it is a span of its own.
    is_for: Option<&'static str>,
}

/// The place of a request of the proxy's own in the trace of the client's.
fn child(trace: Option<Trace>) -> Option<Trace> {
    trace.map(|trace| trace.child(fastrand::u64(..)))
}

impl Subrequest {
    /// Copies a request without its body.
    pub(crate) fn copy_of(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &Request) -> Self {
        Self {
            worker: Rc::clone(ctx.worker),
            snapshot: Rc::clone(ctx.snapshot),
            client: Client::detached(ctx.worker, ctx.client),
            routed: routed.detached(),
            head: request.head_bytes()[..request.head.len].into(),
            version: request.head.start.version,
            body: None,
            texts: Texts { trace: child(request.texts.trace), ..request.texts.clone() },
            is_for: None,
        }
    }

    /// A question of the proxy's own about a request, with this head, and lines in the place of conditions. It is the span
    /// `trace`, which is recorded with the request.
    ///
    /// # Errors
    /// If the head is not valid.
    pub(crate) fn new(
        (ctx, about): (&ExchangeContext<'_>, &RoutedRequest),
        upstream: usize,
        head: &[u8],
        (lines, trace): (Vec<u8>, Option<Trace>),
    ) -> Result<Self, Failure> {
        let mut parsed = RequestHead::default();
        if !matches!(parsed.parse(head, &ctx.snapshot.head_limits)?, Parsed::Complete) {
            return Err(Failure::BadRequest);
        }
        let routed = RoutedRequest {
            target: Target::of(&parsed, head)?,
            connection: ConnectionOptions::of(&parsed, head).map_err(|_| Failure::BadFraming)?,
            version: Version::Http10,
            client: about.client,
            route: about.route,
            upstream,
            purpose: Purpose::Auth,
            ..RoutedRequest::new(ctx, &parsed)
        };
        Ok(Self {
            worker: Rc::clone(ctx.worker),
            snapshot: Rc::clone(ctx.snapshot),
            client: Client::detached(ctx.worker, ctx.client),
            routed,
            head: head.into(),
            version: parsed.start.version,
            body: None,
            texts: Texts { conditions: Some(lines), trace, ..Texts::default() },
            is_for: None,
        })
    }

    /// A request without a body to another instance, with this head.
    pub(crate) fn to_peer(
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        request: &Request,
        (upstream, head): (usize, Vec<u8>),
    ) -> Self {
        let mut subrequest = Self::copy_of(ctx, routed, request);
        subrequest.retarget(upstream, Purpose::Peer);
        subrequest.routed.framing = Framing::None;
        subrequest.routed.wants_upgrade = false;
        subrequest.texts.hop = Some(head);
        subrequest.is_for("invalidation");
        subrequest
    }

    /// Sends the request elsewhere.
    pub(crate) fn retarget(&mut self, upstream: usize, purpose: Purpose) {
        self.routed.upstream = upstream;
        self.routed.purpose = purpose;
    }

    /// Says what the request is for, in the trace.
    pub(crate) fn is_for(&mut self, purpose: &'static str) {
        self.is_for = Some(purpose);
    }

    /// Adds a body.
    pub(crate) fn set_body(&mut self, body: Rc<KeptBody>) {
        self.body = Some(body);
    }

    /// Adds findings about the client, for the server.
    pub(crate) fn vouch(&mut self, vouched: &Vouched) {
        Arc::make_mut(self.texts.vouched.get_or_insert_default()).and(vouched);
    }

    /// Runs `steps` with the request, and counts bytes sent to and received from servers.
    pub(crate) async fn run(self, steps: impl AsyncFnOnce(&mut Exchange<'_, '_>)) {
        let ctx = ExchangeContext::new(&self.worker, &self.snapshot, &self.client);
        let mut memory = Memory::of_request(&self.worker, &self.head);
        memory.request.replay = self.body.map(|body| Box::new(Replay::new(body)));
        memory.request.texts = self.texts;
        let parsed = memory.request.head.parse(&self.head, &self.snapshot.head_limits);
        let Ok(Parsed::Complete) = parsed else { return };
        memory.request.head.start.version = self.version;
        // It is recorded only where the client's request was chosen at its beginning.
        let is_traced = memory.request.texts.trace.is_some_and(|trace| trace.is_sampled);
        let mut state = ExchangeState::detached(&ctx, is_traced);
        state.record.purpose = self.is_for;
        let (ctx, routed) = (&ctx, &self.routed);
        steps(&mut Exchange { ctx, routed, memory: &mut memory, state: &mut state }).await;
        state.record.finish_detached(&memory);
    }
}

/// Receives the rest of a response: into `body`, up to its bound, or to nowhere. Its connection is kept if it can be.
///
/// # Errors
/// If it ends early, stalls, is not valid, or is larger than the bound.
pub(crate) async fn receive(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    mut body: Option<(&mut Vec<u8>, usize)>,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Response { head, buffer, body: pump, .. } = &mut exchange.memory.response;
    buffer.consume(head.len);
    pump.begin(reply.framing, false, None);
    let limit = routed.ticks(ctx).upstream_body;
    loop {
        pump.take_in(buffer).map_err(|_| Failure::UpstreamFraming)?;
        let count = pump.unsent();
        if let Some((body, bytes_max)) = &mut body {
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
                Ok(0) if pump.incoming() == Incoming::UntilClose => break,
                _ => return Err(Failure::UpstreamTruncated),
            }
        }
    }
    // RFC 9112 §9.3: what a server sends beyond its response belongs to no request.
    if reply.persists && reply.upload.is_done() && buffer.is_empty() {
        let server = &ctx.snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, ctx.client, &ctx.worker.deadlines);
    }
    Ok(())
}
