//! Asks the instance that owns a key before the upstream. What it answers is not stored here. If it does not answer, the
//! upstream is asked: a lost instance costs its share of hits, and nothing else.

use ::cache::{
    CacheStatus, Ending, Forward, HOT_SECONDS, Handling, Key, Opening, PEER_FIELD, PeerRequest,
    is_replaced_condition,
};
use balance::{Member, Pick, State};
use http1::{Method, Name, Span};
use telemetry::B3Form;
use tokio::sync::oneshot;

use super::fetch;
use super::{Ask, REFUSED_FOR_SECONDS, uri};
use crate::context::client::Next;
use crate::context::exchange::{Cached, Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::{Request, Response};
use crate::context::failure::{Failure, Party};
use crate::context::seen;
use crate::context::tracing::Tracing;
use crate::forward::subrequest::Subrequest;
use crate::forward::{self, Reply, respond};
use crate::upstream::Upstream;
use transport::cold::cold;

/// So many requests under way with an instance are never too many.
const LOAD_MIN: u64 = 64;
/// How far above its share one may be, in percent of that.
const LOAD_PERCENT_MAX: u64 = 150;

/// What the head for another instance has besides, at most.
const ADDED_BYTES_MAX: usize = 1024;
const ADDED_FIELDS_MAX: usize = 8;

/// The status with which an instance declines (RFC 9110 §15.5.20).
const DECLINED: u16 = 421;
/// The word with which it says that the upstream did not answer it in time.
pub(crate) const TIMED_OUT: &[u8] = b"timed-out";

/// What an instance is told that something is invalid with.
const INVALIDATE: &[u8] = b"PURGE";
/// The number of what is for no route.
pub(crate) const INVALIDATION: u128 = 0;

/// The instance that owns a key, which is another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// Its index in the upstream that the instances are.
    server: usize,
    /// The number under which it knows what is asked for.
    number: u128,
    /// Whether it is asked: not for what could not be stored when it was asked last.
    is_asked: bool,
    /// Whether the key is asked for so often here that its response is kept.
    pub(super) is_hot: bool,
}

/// Finds the owner of a key; `None` if that is this instance, or if there are no others.
#[inline]
pub(super) fn owner(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
    ask: &Ask<'_>,
) -> Option<Owner> {
    if ctx.snapshot.plan.peers.is_none() { None } else { find(ctx, routed, request, ask) }
}

#[cold]
fn find(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
    ask: &Ask<'_>,
) -> Option<Owner> {
    let peers = ctx.snapshot.plan.peers.as_ref()?;
    // One hop at most, whatever the instances think of each other.
    if routed.purpose != Purpose::Client || !is_for_all(ctx, routed, request, ask) {
        return None;
    }
    let number = peers.number(routed.route, routed.upstream)?;
    let (bytes, secret) = (request.head_bytes(), peers.secret(number));
    let passes = ask.passing.passes(&request.head, bytes);
    let uri = uri(ctx, routed, request);
    let key = Key::of(secret, &uri, &ask.policy.key, &request.head, bytes, passes);
    let upstream = &ctx.snapshot.upstreams[peers.upstream];
    let now = ctx.worker.coarse_time();
    let wanted = balance::Ask { now, random: 0, key: Some(key.as_u128() as u64), tried: &[] };
    let Pick::Server(mut server) = upstream.picker.borrow_mut().pick(&wanted) else { return None };
    if is_overloaded(upstream, server) {
        let wanted = balance::Ask { tried: &[server], ..wanted };
        let Pick::Server(next) = upstream.picker.borrow_mut().pick(&wanted) else { return None };
        server = next;
    }
    if peers.is_own(&upstream.plan, server) {
        return None;
    }
    let now_seconds = ask.now_ms / 1000;
    let is_asked = !ask.cache.store.is_refused(ask.key, now_seconds);
    let may_be_kept = is_asked && peers.hot_requests > 0 && routed.method == Method::Get;
    let hot = || ask.cache.hot.get_or_init(Default::default);
    let is_hot = may_be_kept && hot().note(ask.key, now_seconds, peers.hot_requests);
    Some(Owner { server, number, is_asked, is_hot })
}

/// Whether an instance has far more of this one's requests under way than its share: then the next one of the ring is asked.
fn is_overloaded(upstream: &Upstream, server: usize) -> bool {
    let members = upstream.plan.fleet.members();
    let load = |member: &Member| u64::from(member.health.in_flight());
    let own = load(&members[server]);
    own > LOAD_MIN && {
        // This one is not asked by itself.
        let (all, others): (u64, u64) = (members.iter().map(load).sum(), members.len() as u64 - 1);
        own * others * 100 > all * LOAD_PERCENT_MAX
    }
}

/// Keeps what another instance has sent for a while, where a key is asked for often and there is room.
pub(super) fn keeps(ctx: &ExchangeContext<'_>, ask: &Ask<'_>, opening: &mut Opening) -> bool {
    let (Some(peers), Some(hot)) = (&ctx.snapshot.plan.peers, ask.cache.hot.get()) else { return false };
    // How long it gets is to be known before.
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

/// Whether a response may be for others than who asks, as far as that can be told before. The rest is of no use to the owner.
fn is_for_all(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &Request, ask: &Ask<'_>) -> bool {
    let is_vouched_for =
        request.texts.vouched.as_ref().is_some_and(|vouched| !vouched.request_lines.is_empty());
    let has_certificate = ctx.client.tls.as_ref().is_some_and(|tls| !tls.lines().is_empty());
    let limits = &ctx.snapshot.head_limits;
    let head = &request.head;
    routed.may_be_stored()
        // With what is added it has to be within the same limits there.
        && head.len + ADDED_BYTES_MAX <= limits.bytes
        && head.fields.len() + ADDED_FIELDS_MAX <= limits.fields
        && routed.target.authority != Span::default()
        && !ask.asked.has_authorization()
        && (!ask.asked.directives.no_store || ask.policy.ignore.request_directives)
        && !is_vouched_for
        && !has_certificate
}

/// Asks the owner of a key, if that is another instance, else the upstream, or if the owner does not answer. Whether it
/// has answered is told by `is_of_peer`.
pub(super) async fn forward(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    owner: Option<&Owner>,
) -> Result<Reply, Failure> {
    if let Some(owner) = owner.filter(|owner| owner.is_asked)
        && let Some(outcome) = cold(|| ask_owner(exchange, ask, owner)).await
    {
        return outcome;
    }
    forward::forward(exchange).await
}

/// Whether another instance has given a response.
pub(super) fn is_of_peer(ctx: &ExchangeContext<'_>, reply: &Reply) -> bool {
    ctx.snapshot.plan.peers.as_ref().is_some_and(|peers| reply.upstream == peers.upstream)
}

/// What comes of asking another instance; `None` if the upstream is to be asked.
async fn ask_owner(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    owner: &Owner,
) -> Option<Result<Reply, Failure>> {
    let Exchange { ctx, routed, .. } = *exchange;
    let peers = ctx.snapshot.plan.peers.as_ref()?;
    let counters = &ctx.worker.counters;
    counters.cache_peer_requests.increment();
    let request = &exchange.memory.request;
    let hop = Hop {
        method: request.head.start.method_span.of(request.head_bytes()),
        path_and_query: routed.target.path_and_query.of(request.head_bytes()),
        number: owner.number,
        drops_authorization: ask.passing.drops_authorization,
    };
    let head = hop.head(ctx, routed, request);
    exchange.memory.request.texts.hop = Some(head);
    // Its interim responses are for this instance.
    let version = http1::Version::Http10;
    let hop = RoutedRequest { upstream: peers.upstream, purpose: Purpose::Peer, version, ..routed.clone() };
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
            if why == Some(TIMED_OUT) {
                return Some(Err(Failure::UpstreamTimeout));
            }
        }
        Err(failure) if failure.facts().party == Party::Client => return Some(Err(failure)),
        Err(_) => {}
    }
    counters.cache_peer_failures.increment();
    None
}

/// Whether the owner has had it (RFC 9211 §2.1).
fn is_hit(response: &Response) -> bool {
    let (head, bytes) = (&response.head, response.buffer.filled());
    let mut of_caches =
        head.fields.iter().rev().filter(|field| field.name.of(bytes).eq_ignore_ascii_case(b"cache-status"));
    // The owner's is the last one.
    of_caches.next().is_some_and(|field| field.value.of(bytes).starts_with(b"vanward; hit"))
}

/// The head for another instance: what the client has sent, and who that is.
struct Hop<'a> {
    method: &'a [u8],
    path_and_query: &'a [u8],
    number: u128,
    drops_authorization: bool,
}

impl Hop<'_> {
    fn head(&self, ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &Request) -> Vec<u8> {
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
        out.extend_from_slice(routed.target.authority.of(bytes));
        out.extend_from_slice(b"\r\n");
        for field in head.fields.iter() {
            let name = field.name.of(bytes);
            let is_left_out = match field.known {
                Name::Host | Name::Expect | Name::ContentLength => true,
                known if is_of_hop(known) => true,
                Name::Traceparent => trace.is_some(),
                Name::Tracestate => trace.is_some_and(|trace| !trace.keeps_state()),
                Name::B3 => trace.is_some() && b3 != B3Form::Off,
                _ => {
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

/// Tells all other instances what an unsafe request has made invalid: paths with queries of its host. Each receiver
/// ends when one has answered, or is lost.
pub(super) fn invalidate(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
    paths: &[Vec<u8>],
) -> Vec<oneshot::Receiver<()>> {
    let Some(peers) = &ctx.snapshot.plan.peers else { return Vec::new() };
    let upstream = &ctx.snapshot.upstreams[peers.upstream];
    let members = upstream.plan.fleet.members().iter().enumerate();
    let others = members.filter(|(server, _)| !peers.is_own(&upstream.plan, *server));
    let mut told = Vec::new();
    for (server, member) in others {
        let is_up = member.health.state() == State::Up;
        for path_and_query in paths {
            let hop =
                Hop { method: INVALIDATE, path_and_query, number: INVALIDATION, drops_authorization: true };
            let head = hop.head(ctx, routed, request);
            let subrequest = Subrequest::to_peer(ctx, routed, request, (peers.upstream, head));
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
            // One that does not answer is not waited for each time.
            told.extend(is_up.then_some(known));
        }
    }
    told
}

/// RFC 9110 §7.6.1, §10.1.4: what ends at this hop.
fn is_of_hop(name: Name) -> bool {
    matches!(
        name,
        Name::Connection
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::ProxyAuthenticate
            | Name::ProxyAuthorization
            | Name::Te
            | Name::TransferEncoding
            | Name::Upgrade
            | Name::Http2Settings
    )
}

/// Passes on what belongs to another instance's share, without storing it. What nobody may store is not asked for there
/// for a while.
pub(super) async fn relay(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    (reply, forward): (Reply, Forward),
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = exchange.memory.response.head.start.status;
    let is_of_peer = is_of_peer(ctx, &reply);
    let mut refusal = None;
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
    ask.settle(status, refusal.map_or(Ending::Passed, Ending::Refused));
    let handling = Handling::Forwarded { forward, status: None, is_stored: false, is_collapsed: false };
    let of_peer = is_of_peer.then_some("peer");
    let detail = of_peer.or(refusal.map(|refusal| refusal.row().word));
    let status = CacheStatus { handling, ttl_seconds: None, key: None, detail };
    status.write(&mut exchange.memory.response.added);
    respond::respond(exchange, reply).await
}
