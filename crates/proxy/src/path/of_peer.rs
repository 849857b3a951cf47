//! Requests from other instances, for keys that this one owns. They are answered from the cache, or from the upstream
//! for it, and never passed on to a third instance.
//!
//! The instance that the client has asked applies the route's policies and edits the response.

use std::cell::Cell;
use std::rc::Rc;

use ::cache::{PEER_FIELD, PeerRequest};
use expression::ValueMemory;
use http1::{ConnectionOptions, RequestTarget};

use super::{framed, name_request};
use crate::answer;
use crate::cache::peers::{INVALIDATION, TIMED_OUT};
use crate::cache::{self, Looked};
use crate::context::client::{AfterExchange, FrontConnection, Introduction};
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::seen;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::exchange::{Exchange, ExchangeState};
use crate::failure::Failure;
use crate::gate;
use crate::outgoing::send::Delivery;
use transport::cold::cold;
use transport::tcp::Follows;

/// Sent before this owner asks the upstream, which may take a while: an instance that sends nothing counts as gone.
const ALIVE: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// Serves a request from another instance. Called in place of `path::serve` on the listener for instances.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    snapshot: &Rc<Snapshot>,
    client: &mut FrontConnection,
    memory: &mut SlotMemory,
    values: &ValueMemory,
) -> AfterExchange {
    client.peer = Some(introduce(snapshot, client, &mut memory.request));
    let ctx = &ExchangeContext::new(worker, snapshot, client, values);
    if matches!(ctx.client.peer, Some(Introduction::Way { .. })) {
        worker.counters.cache_peer_served.increment();
    }
    framed(ctx, memory, async |memory, state| match run(ctx, memory, state).await {
        Ok(next) => next,
        Err(failure) => decline(ctx, memory, state, failure).await,
    })
    .await
}

/// Takes the client that the other instance names as the sender of the request. Called only on the listener for
/// instances, where certificates prove who they are.
fn introduce(
    snapshot: &Snapshot,
    client: &mut FrontConnection,
    request: &mut CurrentRequest,
) -> Introduction {
    let Some(peers) = &snapshot.plan.peers else { return Introduction::Unknown };
    // The certificate is the instance's, and must not count as the client's.
    let tls = client.tls.take();
    let has_name = |name: &String| tls.as_ref().is_some_and(|tls| tls.is_named(name));
    if !peers.name.as_ref().is_none_or(has_name) {
        return Introduction::Unknown;
    }
    let bytes = request.head_bytes();
    let is_marker =
        |field: &&http1::FieldLine| field.name.for_bytes(bytes).eq_ignore_ascii_case(PEER_FIELD.as_bytes());
    let mut markers = request.head.fields.iter().filter(is_marker);
    // Exactly one: the asking instance removes those of its client.
    let (Some(marker), None) = (markers.next(), markers.next()) else { return Introduction::Unknown };
    let Some(told) = PeerRequest::parse(marker.value.for_bytes(bytes)) else { return Introduction::Unknown };
    let mut head = bytes[..marker.name.start as usize].to_vec();
    head.extend_from_slice(&bytes[marker.line_end as usize..request.head.len]);
    if request.replace_head(&head).is_err() {
        return Introduction::Unknown;
    }
    client.address = told.address;
    client.port = told.port;
    client.original_connection =
        client.original_connection.as_ref().map(|original| original.told(told.is_secure));
    client.judge(snapshot);
    match peers.way(told.number) {
        Some((route, upstream)) => Introduction::Way { route, upstream },
        None if told.number == INVALIDATION => Introduction::Invalidation,
        None => Introduction::Unknown,
    }
}

/// Answers an admitted request from the cache or the upstream, or handles an invalidation.
async fn run(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> Result<AfterExchange, Failure> {
    if ctx.client.peer == Some(Introduction::Invalidation) {
        return invalidate(ctx, memory, state).await;
    }
    let SlotMemory { request, response, note, .. } = &mut *memory;
    let (mut routed, upstream) = admit(ctx, request, state)?;
    name_request(ctx, &routed, request);
    if ctx.snapshot.is_watched {
        state.record.noted(note.as_ref(), &routed, request);
    }
    cache::prepare(ctx, &routed, request);
    if let Some(policies) = routed.policies(ctx) {
        // The route needs no server here, so the two configurations differ: this instance declines.
        if gate::act(ctx, policies, &mut routed, request, response)?.is_some() {
            return Err(Failure::Misdirected);
        }
        // The other instance has already drawn the side of a split.
        routed.upstream.set(upstream);
    }
    let exchange = &mut Exchange { ctx, routed: &routed, memory, state };
    match cache::look(ctx, &routed, &exchange.memory.request)? {
        Looked::Hit(hit) => cache::serve(exchange, &hit).await,
        Looked::Miss(miss) => {
            Delivery::from_ctx(ctx, &routed).send(ALIVE, Follows::Nothing).await?;
            cold(|| cache::ask(exchange, miss)).await
        }
    }
}

/// Decides whether this instance answers the request. Also returns its upstream.
fn admit(
    ctx: &ExchangeContext<'_>,
    request: &CurrentRequest,
    state: &mut ExchangeState<'_>,
) -> Result<(RoutedRequest, usize), Failure> {
    if ctx.worker.is_short_of_memory() {
        state.record.detours.shed = Some("memory");
        return Err(Failure::ShortOfMemory);
    }
    let Some(Introduction::Way { route, upstream }) = ctx.client.peer else {
        return Err(Failure::Misdirected);
    };
    let (head, bytes) = (&request.head, request.head_bytes());
    let settings = &ctx.snapshot.plan.routes[route];
    let routed = RoutedRequest {
        target: RequestTarget::from_head(head, bytes)?,
        framing: http1::request_framing(head, bytes)?,
        connection: ConnectionOptions::from_head(head, bytes).map_err(|_| Failure::BadFraming)?,
        client: seen::client(ctx, head, bytes),
        route,
        upstream: Cell::new(upstream),
        has_policies: settings.policies.is_some(),
        is_cached: settings.is_cached,
        purpose: Purpose::Peer,
        ..RoutedRequest::new(ctx, head)
    };
    state.takes_route(route);
    if routed.client != ctx.client.address {
        state.record.named = Some(routed.client);
    }
    // Other requests are sent to the upstream directly, not through the owner.
    if routed.may_be_stored() { Ok((routed, upstream)) } else { Err(Failure::Misdirected) }
}

/// Invalidates stored responses after an unsafe request that another instance has forwarded.
async fn invalidate(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> Result<AfterExchange, Failure> {
    let (head, bytes) = (&memory.request.head, memory.request.head_bytes());
    let routed =
        RoutedRequest { target: RequestTarget::from_head(head, bytes)?, ..RoutedRequest::new(ctx, head) };
    if let Some(known) = cache::invalidated::obey(ctx, &routed, &memory.request) {
        cold(|| cache::told::by_successor(ctx, known)).await;
    }
    Ok(answer::to_peer(ctx, memory, 204, b"", state).await)
}

/// Makes the other instance ask the upstream itself, unless the upstream has just timed out.
async fn decline(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
    failure: Failure,
) -> AfterExchange {
    state.failed(ctx, failure);
    state.record.explain(memory, failure);
    let word = if failure == Failure::UpstreamTimeout { TIMED_OUT } else { b"" };
    let status = Failure::Misdirected.facts().status;
    answer::to_peer(ctx, memory, status, word, state).await
}
