//! Requests of other instances, which this one owns the keys of: they are answered from the cache, or for it from the
//! upstream, and never passed on to a third instance.
//!
//! The instance that the client has asked has done what the route asks of clients, and does what it wants of responses.

use std::rc::Rc;

use ::cache::{PEER_FIELD, PeerRequest};
use http1::{ConnectionOptions, Target};

use super::{framed, name_request};
use crate::body::send::Delivery;
use crate::cache::peers::{INVALIDATION, TIMED_OUT};
use crate::cache::{self, Looked};
use crate::context::client::{Client, Introduction, Next};
use crate::context::exchange::{Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::seen;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::forward::{answer, policies};
use transport::cold::cold;
use transport::tcp::Follows;

/// Says that the owner asks the upstream itself, which may take a while: an instance that says nothing is gone.
const ALIVE: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// Serves a request of another instance.
pub(crate) async fn exchange(
    worker: &Rc<Worker>,
    snapshot: &Rc<Snapshot>,
    client: &mut Client,
    memory: &mut Memory,
) -> Next {
    client.peer = Some(introduce(snapshot, client, &mut memory.request));
    let ctx = &ExchangeContext::new(worker, snapshot, client);
    if matches!(ctx.client.peer, Some(Introduction::Way { .. })) {
        worker.counters.cache_peer_served.increment();
    }
    framed(ctx, memory, async |memory, state| match run(ctx, memory, state).await {
        Ok(next) => next,
        Err(failure) => decline(ctx, memory, state, failure).await,
    })
    .await
}

/// Takes the client that the other instance speaks for as the sender of the request, whose head is then what that client
/// has sent. Only the listener for other instances does so.
fn introduce(snapshot: &Snapshot, client: &mut Client, request: &mut Request) -> Introduction {
    let Some(peers) = &snapshot.plan.peers else { return Introduction::Unknown };
    let tls = client.tls.take();
    let has_name = |name: &String| tls.as_ref().is_some_and(|tls| tls.is_named(name));
    if !peers.name.as_ref().is_none_or(has_name) {
        return Introduction::Unknown;
    }
    let bytes = request.head_bytes();
    let is_marker = |field: &&http1::Field| field.name.of(bytes).eq_ignore_ascii_case(PEER_FIELD.as_bytes());
    let mut markers = request.head.fields.iter().filter(is_marker);
    let (Some(marker), None) = (markers.next(), markers.next()) else { return Introduction::Unknown };
    let Some(told) = PeerRequest::parse(marker.value.of(bytes)) else { return Introduction::Unknown };
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

async fn run(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
) -> Result<Next, Failure> {
    if ctx.client.peer == Some(Introduction::Invalidation) {
        return invalidate(ctx, memory, state).await;
    }
    let Memory { request, response, note, .. } = &mut *memory;
    let (mut routed, upstream) = admit(ctx, request, state)?;
    name_request(ctx, &routed, request);
    if ctx.snapshot.is_watched {
        state.record.noted(note.as_ref(), &routed, request);
    }
    cache::prepare(ctx, &routed, request);
    if let Some(policies) = routed.policies(ctx) {
        if policies::act(ctx, policies, &mut routed, request, &mut response.out)?.is_some() {
            return Err(Failure::Misdirected);
        }
        // Of a split the other instance has drawn the side.
        routed.upstream = upstream;
    }
    let exchange = &mut Exchange { ctx, routed: &routed, memory, state };
    match cache::look(ctx, &routed, &exchange.memory.request)? {
        Looked::Hit(hit) => cache::serve(exchange, &hit).await,
        Looked::Miss(miss) => {
            Delivery::of(ctx, &routed).send(ALIVE, Follows::Nothing).await?;
            cold(|| cache::ask(exchange, miss)).await
        }
    }
}

/// Decides whether the request is one that this instance answers. Also returns its upstream.
fn admit(
    ctx: &ExchangeContext<'_>,
    request: &Request,
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
        target: Target::of(head, bytes)?,
        framing: http1::request_framing(head, bytes)?,
        connection: ConnectionOptions::of(head, bytes).map_err(|_| Failure::BadFraming)?,
        client: seen::client(ctx, head, bytes),
        route,
        upstream,
        has_policies: settings.policies.is_some(),
        is_cached: settings.is_cached,
        purpose: Purpose::Peer,
        ..RoutedRequest::new(ctx, head)
    };
    state.takes_route(route);
    if routed.client != ctx.client.address {
        state.record.named = Some(routed.client);
    }
    // Everything else goes to the upstream right away.
    if routed.may_be_stored() { Ok((routed, upstream)) } else { Err(Failure::Misdirected) }
}

/// Forgets what an unsafe request to another instance has made invalid.
async fn invalidate(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
) -> Result<Next, Failure> {
    let (head, bytes) = (&memory.request.head, memory.request.head_bytes());
    let routed = RoutedRequest { target: Target::of(head, bytes)?, ..RoutedRequest::new(ctx, head) };
    if let Some(known) = cache::invalidated::obey(ctx, &routed, &memory.request) {
        cold(|| cache::successor::known(ctx, known)).await;
    }
    Ok(answer::to_peer(ctx, memory, (204, b""), state).await)
}

/// Has the other instance ask the upstream itself, unless that has just been waited for in vain.
async fn decline(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
    failure: Failure,
) -> Next {
    state.failed(ctx, failure);
    state.record.explain(memory, failure);
    let word = if failure == Failure::UpstreamTimeout { TIMED_OUT } else { b"" };
    let status = Failure::Misdirected.facts().status;
    answer::to_peer(ctx, memory, (status, word), state).await
}
