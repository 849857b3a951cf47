//! Asks the instance that owns a key before the upstream. Its response is not stored here, unless it is hot. If it does
//! not answer, the upstream is asked: losing an instance only costs its share of hits.

use std::cell::Cell;

use ::cache::{
    CacheKey, CacheStatus, Forward, HOT_SECONDS, Handling, MissEnding, Opening, PEER_FIELD, PeerRequest,
    is_replaced_condition,
};
use balance::{FleetMember, HealthState, Pick};
use http1::{ByteSpan, Method, Name};
use telemetry::B3Form;
use tokio::sync::oneshot;

use super::fetch;
use super::{CacheRequest, REFUSED_FOR_SECONDS, key_values, uri};
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::routed::{Cached, ExchangeContext, Purpose, RoutedRequest};
use crate::context::seen;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::{self, Reply, respond};
use crate::shared::tracing::Tracing;
use crate::subrequest::Subrequest;
use crate::upstream::WorkerUpstream;
use transport::cold::cold;

/// Up to this number of requests under way, an instance never counts as overloaded.
const LOAD_MIN: u64 = 64;
/// An instance is overloaded above this percentage of its share of requests.
const LOAD_PERCENT_MAX: u64 = 150;

/// Upper limits for what the head for another instance has in addition.
const ADDED_BYTES_MAX: usize = 1024;
const ADDED_FIELDS_MAX: usize = 8;

/// The status of an instance that declines (RFC 9110 §15.5.20).
const DECLINED: u16 = 421;
/// The reason of an instance whose upstream has timed out.
pub(crate) const TIMED_OUT: &[u8] = b"timed-out";

/// The method that reports an invalidation to an instance.
const INVALIDATE: &[u8] = b"PURGE";
/// The number in place of a route's for invalidations.
pub(crate) const INVALIDATION: u128 = 0;

/// Another instance that owns a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyOwner {
    /// Its index among the servers of the instances' upstream.
    server: usize,
    /// The number that identifies route and upstream in all instances.
    number: u128,
    /// False if its last response for the key could not be stored.
    is_asked: bool,
    /// Whether this instance gets so many requests for the key that it keeps the response.
    pub(super) is_hot: bool,
}

/// Finds the owner of a key. Called for each miss; `None` if this instance owns it, or there are no others.
#[inline]
pub(super) fn owner(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    ask: &CacheRequest<'_>,
) -> Option<KeyOwner> {
    if ctx.snapshot.plan.peers.is_none() { None } else { find(ctx, routed, request, ask) }
}

/// Finds the owner on the ring. Called for each miss if there are other instances.
#[cold]
fn find(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    ask: &CacheRequest<'_>,
) -> Option<KeyOwner> {
    let peers = ctx.snapshot.plan.peers.as_ref()?;
    // At most one hop, even if the instances disagree about the ring.
    if routed.purpose != Purpose::Client || !is_for_all(ctx, routed, request, ask) {
        return None;
    }
    let number = peers.number(routed.route, routed.upstream.get())?;
    let (bytes, secret) = (request.head_bytes(), peers.secret(number));
    let passes = ask.passing.passes(&request.head, bytes);
    let uri = uri(ctx, routed, request);
    let key = CacheKey::from_secret(
        secret,
        &uri,
        &ask.policy.key,
        (&request.head, bytes),
        passes,
        key_values(ctx, routed, request),
    );
    let upstream = &ctx.snapshot.upstreams[peers.upstream];
    let now = ctx.worker.coarse_time();
    let wanted = balance::PickInput { now, random: 0, key: Some(key.as_u128() as u64), tried: &[] };
    let Pick::Server(mut server) = upstream.picker.borrow_mut().pick(&wanted) else { return None };
    if is_overloaded(upstream, server) {
        let wanted = balance::PickInput { tried: &[server], ..wanted };
        let Pick::Server(next) = upstream.picker.borrow_mut().pick(&wanted) else { return None };
        server = next;
    }
    if peers.is_own(&upstream.plan, server) {
        return None;
    }
    let now_seconds = ask.now_ms / 1000;
    let is_asked = !ask.cache.store.is_refused(ask.key, now_seconds);
    // Only a GET brings a body that can be kept.
    let may_be_kept = is_asked && peers.hot_requests > 0 && routed.method == Method::Get;
    let hot = || ask.cache.hot.get_or_init(Default::default);
    let is_hot = may_be_kept && hot().note(ask.key, now_seconds, peers.hot_requests);
    Some(KeyOwner { server, number, is_asked, is_hot })
}

/// Whether an instance has far more of this instance's requests under way than its share. Then the next instance on the
/// ring is asked.
fn is_overloaded(upstream: &WorkerUpstream, server: usize) -> bool {
    let members = upstream.plan.fleet.members();
    let load = |member: &FleetMember| u64::from(member.health.in_flight());
    let own = load(&members[server]);
    own > LOAD_MIN && {
        // This instance never asks itself.
        let (all, others): (u64, u64) = (members.iter().map(load).sum(), members.len() as u64 - 1);
        own * others * 100 > all * LOAD_PERCENT_MAX
    }
}

/// Keeps another instance's response for a while, if its key is hot and there is room.
pub(super) fn keeps(ctx: &ExchangeContext<'_>, ask: &CacheRequest<'_>, opening: &mut Opening) -> bool {
    let (Some(peers), Some(hot)) = (&ctx.snapshot.plan.peers, ask.cache.hot.get()) else { return false };
    // Room must be reserved for a known length.
    let Some(body_bytes) = opening.body_bytes else { return false };
    let bytes = body_bytes + (opening.head.len() + opening.key_text.len()) as u64;
    let now_ms = ctx.worker.unix_ms();
    opening.stored.keep_until(now_ms + HOT_SECONDS * 1000);
    let is_kept = hot.keep((ask.key, opening.variant), (bytes, peers.hot_bytes_max), now_ms / 1000);
    if is_kept {
        ctx.worker.counters.cache_peer_kept.increment();
    }
    is_kept
}

/// Whether the response may serve other clients, as far as the request shows that. Otherwise asking the owner is
/// useless.
fn is_for_all(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    ask: &CacheRequest<'_>,
) -> bool {
    // The owner cannot repeat the fields that authentication adds here for the server.
    let is_vouched_for =
        request.texts.vouched.as_ref().is_some_and(|vouched| !vouched.request_lines.is_empty());
    // Servers may see this client's certificate, which the owner does not have.
    let has_certificate = ctx.client.tls.as_ref().is_some_and(|tls| !tls.lines().is_empty());
    let limits = &ctx.snapshot.head_limits;
    let head = &request.head;
    routed.may_be_stored()
        // With the added fields, the head must still be within the same limits there.
        && head.len + ADDED_BYTES_MAX <= limits.bytes
        && head.fields.len() + ADDED_FIELDS_MAX <= limits.fields
        && routed.target.authority != ByteSpan::default()
        && !ask.asked.has_authorization()
        && (!ask.asked.directives.no_store || ask.policy.ignore.request_directives)
        && !is_vouched_for
        && !has_certificate
}

/// Asks the owner of a key, if it is another instance; else, or if it does not answer, the upstream. `is_of_peer`
/// returns which of them has answered.
pub(super) async fn forward(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    owner: Option<&KeyOwner>,
) -> Result<Reply, Failure> {
    if let Some(owner) = owner.filter(|owner| owner.is_asked)
        && let Some(outcome) = cold(|| ask_owner(exchange, ask, owner)).await
    {
        return outcome;
    }
    forward::forward(exchange).await
}

pub(super) fn is_of_peer(ctx: &ExchangeContext<'_>, reply: &Reply) -> bool {
    ctx.snapshot.plan.peers.as_ref().is_some_and(|peers| reply.upstream == peers.upstream)
}

/// Asks the owner; `None` if the upstream must be asked.
async fn ask_owner(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    owner: &KeyOwner,
) -> Option<Result<Reply, Failure>> {
    let Exchange { ctx, routed, .. } = *exchange;
    let peers = ctx.snapshot.plan.peers.as_ref()?;
    let counters = &ctx.worker.counters;
    counters.cache_peer_requests.increment();
    let request = &exchange.memory.request;
    let hop = Hop {
        method: request.head.start.method_span.for_bytes(request.head_bytes()),
        path_and_query: routed.target.path_and_query.for_bytes(request.head_bytes()),
        number: owner.number,
        drops_authorization: ask.passing.drops_authorization,
    };
    let head = hop.head(ctx, routed, request);
    exchange.memory.request.texts.hop = Some(head);
    // Interim responses of the instance are not passed on to the client.
    let version = http1::HttpVersion::Http10;
    let hop = RoutedRequest {
        upstream: Cell::new(peers.upstream),
        purpose: Purpose::Peer,
        version,
        ..routed.clone()
    };
    let outcome = forward::to_peer(exchange, &hop, owner.server, peers.timeout).await;
    exchange.memory.request.texts.hop = None;
    match outcome {
        Ok(reply) => {
            let response = &exchange.memory.response;
            if response.head.start.status != DECLINED {
                if is_hit(response) {
                    counters.cache_peer_hits.increment();
                }
                routed.cached.set(Cached::Peer);
                return Some(Ok(reply));
            }
            let why = seen::line(&response.head, response.buffer.filled(), PEER_FIELD.as_bytes());
            // The owner's server is too slow. Asking it again from here would double the wait and the load.
            if why == Some(TIMED_OUT) {
                return Some(Err(Failure::UpstreamTimeout));
            }
        }
        // The client is gone or at fault: the upstream would be asked in vain.
        Err(failure) if failure.is_of_request() => return Some(Err(failure)),
        Err(_) => {}
    }
    counters.cache_peer_failures.increment();
    None
}

/// Whether the owner had a stored response (RFC 9211 §2.1).
fn is_hit(response: &CurrentResponse) -> bool {
    let (head, bytes) = (&response.head, response.buffer.filled());
    let mut of_caches = head
        .fields
        .iter()
        .rev()
        .filter(|field| field.name.for_bytes(bytes).eq_ignore_ascii_case(b"cache-status"));
    // The owner's member is the last one.
    of_caches.next().is_some_and(|field| field.value.for_bytes(bytes).starts_with(b"vanward; hit"))
}

/// The head for another instance: the client's request, and the client's identity.
struct Hop<'a> {
    method: &'a [u8],
    path_and_query: &'a [u8],
    number: u128,
    drops_authorization: bool,
}

impl Hop<'_> {
    fn head(&self, ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &CurrentRequest) -> Vec<u8> {
        let (head, bytes) = (&request.head, request.head_bytes());
        let conditions = request.texts.conditions.as_deref();
        let tracing = ctx.snapshot.plan.tracing.as_deref();
        let trace = request.texts.trace.as_ref().filter(|_| tracing.is_some());
        let b3 = tracing.map_or(B3Form::Off, Tracing::b3);
        let mut out = Vec::with_capacity(head.len + 256);
        out.extend_from_slice(self.method);
        // RFC 9110 §4.2.3.
        out.extend_from_slice(if self.path_and_query.starts_with(b"/") { b" " } else { b" /" });
        out.extend_from_slice(self.path_and_query);
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(routed.target.authority.for_bytes(bytes));
        out.extend_from_slice(b"\r\n");
        for field in head.fields.iter() {
            let name = field.name.for_bytes(bytes);
            let is_left_out = match field.known {
                // The hop has another Host, and no body.
                Name::Host | Name::Expect | Name::ContentLength => true,
                known if known.is_hop_by_hop() => true,
                Name::Traceparent => trace.is_some(),
                Name::Tracestate => trace.is_some_and(|trace| !trace.keeps_state()),
                Name::B3 => trace.is_some() && b3 != B3Form::Off,
                _ => {
                    // A client's own field of this name must not speak for an instance.
                    name.eq_ignore_ascii_case(PEER_FIELD.as_bytes())
                        || (conditions.is_some() && is_replaced_condition(name))
                        || (self.drops_authorization && name.eq_ignore_ascii_case(b"authorization"))
                        || (routed.connection.names_fields && super::sent::is_of_hop(head, bytes, name))
                }
            };
            if !is_left_out {
                out.extend_from_slice(&bytes[field.name.start as usize..field.line_end as usize]);
            }
        }
        out.extend_from_slice(conditions.unwrap_or_default());
        if let Some(trace) = trace {
            out.extend_from_slice(&trace.parent_line());
            if b3 != B3Form::Off {
                out.extend_from_slice(trace.b3_lines(b3).bytes());
            }
        }
        let client = ctx.client;
        let is_secure = seen::scheme_of_peer(ctx) == "https";
        PeerRequest { number: self.number, address: client.address, port: client.port, is_secure }
            .write(&mut out);
        out.extend_from_slice(b"\r\n");
        out
    }
}

/// Reports an invalidation to all other instances: paths with queries on the request's host. Each receiver ends when an
/// instance has answered, or is lost.
pub(super) fn invalidate(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    paths: &[Vec<u8>],
) -> Vec<oneshot::Receiver<()>> {
    let Some(peers) = &ctx.snapshot.plan.peers else { return Vec::new() };
    let upstream = &ctx.snapshot.upstreams[peers.upstream];
    let members = upstream.plan.fleet.members().iter().enumerate();
    let others = members.filter(|(server, _)| !peers.is_own(&upstream.plan, *server));
    let mut told = Vec::new();
    for (server, member) in others {
        let is_up = member.health.state() == HealthState::Up;
        for path_and_query in paths {
            let hop =
                Hop { method: INVALIDATE, path_and_query, number: INVALIDATION, drops_authorization: true };
            let head = hop.head(ctx, routed, request);
            let subrequest = Subrequest::to_peer(ctx, routed, request, peers.upstream, head);
            let (done, known) = oneshot::channel();
            let timeout = peers.timeout;
            tokio::task::spawn_local(async move {
                let steps = async |exchange: &mut Exchange<'_, '_>| {
                    let routed = exchange.routed;
                    drop(forward::to_peer(exchange, routed, server, timeout).await);
                };
                subrequest.run(steps).await;
                let _: Result<(), ()> = done.send(());
            });
            // An instance that is down is not waited for.
            told.extend(is_up.then_some(known));
        }
    }
    told
}

/// Passes on a response that another instance owns, without storing it. If it may not be stored at all, the owner is
/// not asked for it for a while.
pub(super) async fn relay(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    reply: Reply,
    forward: Forward,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = exchange.memory.response.head.start.status;
    let is_of_peer = is_of_peer(ctx, &reply);
    let mut refusal = None;
    // Only the answer to an unconditional GET for the whole shows whether it may be stored.
    if ask.asked.method == Method::Get && !ask.asked.is_conditional() && !ask.asked.has_range() {
        refusal = fetch::refusal(exchange, ask, &reply);
        let until = match refusal {
            Some(refusal) if !fetch::is_passing(status, refusal) => ask.now_ms / 1000 + REFUSED_FOR_SECONDS,
            _ => 0,
        };
        ask.cache.store.set_refused(ask.key, until);
    }
    if let Some(refusal) = refusal {
        super::counters::refused(ctx, routed, refusal);
    }
    ask.settle(status, refusal.map_or(MissEnding::Passed, MissEnding::Refused));
    let handling = Handling::Forwarded { forward, status: None, is_stored: false, is_collapsed: false };
    let of_peer = is_of_peer.then_some("peer");
    let detail = of_peer.or(refusal.map(|refusal| refusal.row().word));
    let status = CacheStatus { handling, ttl_seconds: None, key: None, detail };
    status.write(&mut exchange.memory.response.added);
    respond::respond(exchange, reply).await
}
