//! Fetches: one request asks a server for all requests for the same response, or revalidates a stored one.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use ::cache::{
    Apart, Decision, FillReader, Force, Freshness, Handling, KeptHead, Lead, MissEnding, MissRole, NotStored,
    Object, Opening, OriginError, PreconditionResult, Refreshed, StoredTimes, Vary, Waited, also_labelled,
    completes, is_about, is_head_of, judge_conditions, labels, outdates, refresh, write_completion,
    write_conditions, write_cookies, write_key, write_named_fields,
};
use http1::{BodyFraming, ResponseHead};

use super::fill::Filling;
use super::lifetimes;
use super::peers::{self, KeyOwner};
use super::{
    CacheRequest, Looked, Miss, REFUSED_FOR_SECONDS, coded, counters, hit, key_values, live, pass, sent,
    serve, uri,
};
use crate::answer;
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, SlotMemory};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::{Reply, RequestGivenUp, unless_gone};
use transport::cold::cold;
use transport::deadline::{Elapsed, Ticks};

/// How often a request waits for a response that turns out to be another variant, before it is sent separately.
const WAITS_MAX: usize = 4;

/// Time limit for reading from disk: a slower disk is slower than a server.
const RECALL_LIMIT: Ticks = Ticks(10);

/// Asks a server, or waits for a request that is doing so. Called for a miss whose response others may share.
pub(super) async fn ask(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    miss: Miss,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let collapsed =
        Handling::Forwarded { forward: miss.forward, status: None, is_stored: false, is_collapsed: true };
    for round in 0..WAITS_MAX {
        let waited = wait(ctx, routed, ask, &exchange.memory.request, miss.found.as_ref()).await?;
        let waited = if ask.takes(ctx, &exchange.memory.request, &waited) { waited } else { Waited::Refused };
        // Only now is it known whether the disk had a response: the look-up has left the miss uncounted.
        if miss.may_be_on_disk && round == 0 {
            tell(ctx, routed, &waited, &miss);
        }
        match waited {
            Waited::Lead(lead) => return lead_all(exchange, ask, lead, miss).await,
            Waited::Hit(object) if ask.is_ours(&exchange.memory.request, object.vary(), object.variant()) => {
                return hit::stored(exchange, &object, ask.report(ctx, collapsed)).await;
            }
            Waited::Stream(reader)
                if ask.is_ours(
                    &exchange.memory.request,
                    &reader.opening().vary,
                    reader.opening().variant,
                ) =>
            {
                return live::coming(exchange, reader, ask.report(ctx, collapsed)).await;
            }
            // Another variant: the store now knows what the responses vary by.
            Waited::Hit(_) | Waited::Stream(_) => {}
            Waited::Failed => {
                // An owner's response is no substitute: only the owner knows whether a server has withdrawn it.
                let found = miss
                    .found
                    .filter(|object| miss.owner.is_none() && ask.stands_in(object, OriginError::Unreachable));
                let Some(object) = found else { return Err(Failure::FetchFailed) };
                counters::stale(ctx, routed);
                return hit::stored(exchange, &object, ask.report(ctx, collapsed)).await;
            }
            Waited::Refused => break,
        }
    }
    // RFC 9111 §5.2.1.7: the shared response does not answer this request, and only-if-cached forbids asking a server.
    if ask.wants_stored_only() {
        return Err(Failure::NotStored);
    }
    pass::pass(exchange, ask, miss).await
}

/// Counts a request that waited while another request read the disk.
fn tell(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, waited: &Waited, miss: &Miss) {
    match waited {
        Waited::Lead(_) => {}
        Waited::Hit(_) => counters::hit(ctx, routed),
        Waited::Stream(_) | Waited::Refused | Waited::Failed => counters::miss(ctx, routed, miss.forward),
    }
}

/// Looks in the store again, and waits for another request for the same response.
async fn wait(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    ask: &CacheRequest<'_>,
    request: &CurrentRequest,
    found: Option<&Arc<Object>>,
) -> Result<Waited, Failure> {
    Ok(match ask.join(request, found) {
        MissRole::Hit(object) => Waited::Hit(object),
        MissRole::Lead(lead) => Waited::Lead(lead),
        MissRole::Stream(reader) => Waited::Stream(reader),
        MissRole::Pass => Waited::Refused,
        // The stored response could not be shared when it arrived, so waiting for the next would be in vain.
        MissRole::Wait(_) if found.is_some_and(|found| !ask.shared(found)) => Waited::Refused,
        MissRole::Wait(mut wait) => {
            counters::wait(ctx, routed);
            // The leading request has its own time-outs, and hands over when its client leaves.
            let waited = unless_gone(ctx.client, pin!(poll_fn(|context| wait.poll(context)))).await;
            waited.map_err(|_| Failure::ClientGone)?
        }
    })
}

/// Asks on behalf of all waiting requests, and answers the own client.
async fn lead_all(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    lead: Lead,
    mut miss: Miss,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if miss.may_be_on_disk {
        if let Some(found) = cold(|| recall(ctx, routed, &exchange.memory.request, ask, &mut miss)).await? {
            // Waiting requests read the restored response from memory.
            lead.restore(&found.object);
            return serve_recalled(exchange, ask, found).await;
        }
        // The response to this request, such as one for a range, serves no other: a waiting request takes the lead.
        if !ask.is_for_all(miss.found.as_ref()) {
            drop(lead);
            return pass::pass(exchange, ask, miss).await;
        }
    }
    let forwarded = |status, is_stored| {
        let forward = miss.forward;
        ask.report(ctx, Handling::Forwarded { forward, status, is_stored, is_collapsed: false })
    };
    // Remembered for `vanward cache explain`.
    ask.cache.store.note(ask.key, ask.now_ms, miss.forward);
    let fetched = fetch(exchange, ask, lead, miss.found.as_ref(), miss.owner.as_ref()).await?;
    // The disk was not read. A record that this response makes obsolete must not answer later.
    if let Fetched::Passing(..) = fetched {
        ask.forget_unread(exchange.memory, &miss);
    }
    match fetched {
        Fetched::Stored { object, status, is_stored } => {
            hit::stored(exchange, &object, forwarded(status, is_stored)).await
        }
        Fetched::Coming(reader) => live::coming(exchange, reader, forwarded(None, true)).await,
        Fetched::Passing(reply, _) if miss.owner.is_some() => {
            peers::relay(exchange, ask, reply, miss.forward).await
        }
        Fetched::Passing(reply, refusal) => pass::relay(exchange, reply, miss.forward, refusal).await,
    }
}

/// Reads the disk for a request whose response would not be stored here, and asks a server if nothing is found. Does
/// not wait for other requests.
pub(super) async fn ask_disk(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    mut miss: Miss,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    // Joined without a wait: as the lead, this request spares others the same read.
    let joined = ask.join(&exchange.memory.request, None);
    let Some(found) = cold(|| recall(ctx, routed, &exchange.memory.request, ask, &mut miss)).await? else {
        // Other requests must not wait for a response that is not stored here.
        drop(joined);
        return pass::pass(exchange, ask, miss).await;
    };
    if let MissRole::Lead(lead) = joined {
        lead.restore(&found.object);
    }
    serve_recalled(exchange, ask, found).await
}

/// A response from disk that may be served.
struct Recalled {
    object: Arc<Object>,
    freshness: Freshness,
}

/// Reads the disk. Returns a response that answers the request; else counts the miss, with its reason.
async fn recall(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    ask: &CacheRequest<'_>,
    miss: &mut Miss,
) -> Result<Option<Recalled>, Failure> {
    let Some(found) = read(ctx, ask, request).await? else {
        // The disk is too slow for this request, so a server is asked.
        return missed(ctx, routed, ask, miss);
    };
    miss.may_be_on_disk = false;
    if let Some(object) = found {
        match ask.decide(Some(&object)) {
            Decision::Serve(freshness) => return Ok(Some(Recalled { object, freshness })),
            // A stale record is validated, as if it had been in memory.
            Decision::Validate(forward) | Decision::Forward(forward) => {
                (miss.found, miss.forward) = (Some(object), forward);
            }
            Decision::OnlyIfCached => {}
        }
    }
    missed(ctx, routed, ask, miss)
}

/// Counts a miss, or rejects it for a client that accepts stored responses only. Called when the store has no usable
/// response.
fn missed(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    ask: &CacheRequest<'_>,
    miss: &Miss,
) -> Result<Option<Recalled>, Failure> {
    if ask.wants_stored_only() {
        return Err(Failure::NotStored);
    }
    counters::miss(ctx, routed, miss.forward);
    Ok(None)
}

/// Reads the disk; `None` if it takes too long.
async fn read(
    ctx: &ExchangeContext<'_>,
    ask: &CacheRequest<'_>,
    request: &CurrentRequest,
) -> Result<Option<Option<Arc<Object>>>, Failure> {
    let Some(tier) = ask.cache.second_tier.tier() else { return Ok(Some(None)) };
    let recalled = pin!(tier.recall(ask.key, |vary| ask.variant(vary, request)));
    let deadline = ctx.worker.deadlines.deadline();
    match deadline.within(RECALL_LIMIT, unless_gone(ctx.client, recalled)).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(RequestGivenUp)) => Err(Failure::ClientGone),
        Err(Elapsed) => Ok(None),
    }
}

async fn serve_recalled(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    Recalled { object, freshness }: Recalled,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    match ask.serve(ctx, routed, &exchange.memory.request, object, freshness) {
        Looked::Hit(hit) => serve(exchange, &hit).await,
        Looked::Miss(miss) => pass::pass(exchange, ask, miss).await,
    }
}

pub(super) enum Fetched {
    /// A stored response answers: it was revalidated, or replaces the response of a failed server.
    Stored { object: Arc<Object>, status: Option<u16>, is_stored: bool },
    /// A response that is stored while it arrives.
    Coming(FillReader),
    /// A response that is not stored, with the reason if that lies in the response.
    Passing(Reply, Option<NotStored>),
}

/// Asks a server, or revalidates the stored response. Called by the request that leads, with a client or in the
/// background.
pub(super) async fn fetch(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    lead: Lead,
    found: Option<&Arc<Object>>,
    owner: Option<&KeyOwner>,
) -> Result<Fetched, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let mut known = found.filter(|object| object.stored().has_validator());
    let mut part =
        if found.is_none() && owner.is_none() { ask.unfinished(&exchange.memory.request) } else { None };
    loop {
        exchange.memory.request.texts.conditions = Some(conditions(known, part.as_ref()));
        let outcome = peers::forward(exchange, ask, owner).await;
        exchange.memory.request.texts.conditions = None;
        let status = exchange.memory.response.head.start.status;
        let error = match &outcome {
            Ok(_) => OriginError::of_status(status),
            Err(failure) => (!failure.is_of_request()).then_some(OriginError::Unreachable),
        };
        if let (Some(error), Some(object)) = (error, found)
            && owner.is_none()
            && ask.stands_in(object, error)
            && lead.may_stand_in(object)
        {
            lead.fail();
            counters::stale(ctx, routed);
            if outcome.is_ok() {
                exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
                ask.settle(status, MissEnding::Failed);
            }
            let status = outcome.is_ok().then_some(status);
            return Ok(Fetched::Stored { object: Arc::clone(object), status, is_stored: false });
        }
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => {
                // A failure of this client does not concern the waiting requests: when the lead is dropped, one of them
                // takes over.
                if error.is_some() {
                    lead.fail();
                }
                return Err(failure);
            }
        };
        if let Some(part) = part.take().filter(|_| matches!(status, 206 | 304 | 416)) {
            let Some(renewal) = RevalidatedResponse::of_part((ctx, routed), ask, &part, exchange.memory)
            else {
                // The response does not fit the stored part, so the complete response is requested.
                continue;
            };
            return Ok(complete(exchange, ask, lead, reply, &part, renewal));
        }
        let Some(object) = known.filter(|_| status == 304) else {
            return Ok(settle(exchange, ask, lead, reply, found, owner));
        };
        let renewal = RevalidatedResponse::new((ctx, routed), ask, object, exchange.memory);
        exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
        give_back(ctx, reply, &exchange.memory.response);
        if let Some(mut renewal) = renewal {
            renewal.is_of(ctx, ask, owner);
            add_named_fields(ask, &mut exchange.memory.response);
            add_cookies(ask, &mut exchange.memory.response);
            let is_stored = renewal.settle(ctx, routed, ask, status);
            let object = renewal.carry_out(ask, lead, object);
            return Ok(Fetched::Stored { object, status: Some(304), is_stored });
        }
        // RFC 9111 §4.3.4: the 304 matches no stored response, so the complete response is requested.
        known = None;
    }
}

/// Returns the conditions for a revalidation, or the range that is missing; empty to request the complete response.
fn conditions(known: Option<&Arc<Object>>, part: Option<&Arc<Object>>) -> Vec<u8> {
    let mut lines = Vec::new();
    if let Some(part) = part {
        write_completion(&mut lines, part.stored(), part.head());
    }
    if let Some(object) = known {
        write_conditions(&mut lines, object.stored(), object.head());
    }
    lines
}

/// A stored response updated by a 304.
struct RevalidatedResponse {
    opening: Opening,
    /// `Validated` if it stays stored.
    ending: MissEnding,
}

impl RevalidatedResponse {
    /// Returns `None` if the 304 is about another response, or the stored one cannot be updated.
    fn new(
        (ctx, routed): (&ExchangeContext<'_>, &RoutedRequest),
        ask: &CacheRequest<'_>,
        object: &Object,
        memory: &SlotMemory,
    ) -> Option<Self> {
        let (head, bytes) = (&memory.response.head, memory.response.buffer.filled());
        if !is_about(head, bytes, object.stored(), object.head()) {
            return None;
        }
        Self::merged((ctx, routed), ask, object, memory)
    }

    /// Returns `None` if the stored response cannot be updated.
    fn merged(
        (ctx, routed): (&ExchangeContext<'_>, &RoutedRequest),
        ask: &CacheRequest<'_>,
        object: &Object,
        memory: &SlotMemory,
    ) -> Option<Self> {
        let (head, bytes) = (&memory.response.head, memory.response.buffer.filled());
        let ttl_ms = lifetimes::of_renewed(ctx, routed, memory, object);
        let times = StoredTimes { ttl_ms, ..ask.times(ctx) };
        let limits = &ctx.snapshot.head_limits;
        let (old, old_head) = (object.stored(), (object.head(), object.hidden()));
        let mut kept = KeptHead::default();
        let refreshed =
            refresh(&ask.asked, old, old_head, head, bytes, times, ask.policy, limits, &mut kept).ok()?;
        let (stored, ending) = match refreshed {
            Refreshed::Stored(stored) => (stored, MissEnding::Validated),
            Refreshed::Unstored(stored, refusal) => (stored, MissEnding::Refused(refusal)),
        };
        let opening = Opening {
            stored,
            vary: object.vary().clone(),
            variant: object.variant(),
            key_text: object.key_text().into(),
            head: kept.shown.into(),
            hidden: kept.hidden.into(),
            // New tags are added to the old ones, so that purges by either meet the response.
            labels: also_labelled(ask.cache.secret, object.labels(), head, bytes),
            body_bytes: Some(object.body_bytes()),
            forms: None,
        };
        Some(Self { opening, ending })
    }

    /// Returns the combination of a stored part and the response that completes it; `None` if they do not match.
    fn of_part(
        (ctx, routed): (&ExchangeContext<'_>, &RoutedRequest),
        ask: &CacheRequest<'_>,
        part: &Object,
        memory: &SlotMemory,
    ) -> Option<Self> {
        let (head, bytes) = (&memory.response.head, memory.response.buffer.filled());
        // RFC 9111 §3.4: a rest of another version would be appended to the stored part.
        if !completes(head, bytes, part.stored(), part.head()) {
            return None;
        }
        let mut renewal = Self::new((ctx, routed), ask, part, memory)?;
        renewal.opening.body_bytes = part.stored().part?.whole_bytes;
        renewal.opening.stored.part = None;
        (renewal.ending == MissEnding::Validated).then_some(renewal)
    }

    /// Shortens its lifetime in the store if another instance owns it.
    fn is_of(&mut self, ctx: &ExchangeContext<'_>, ask: &CacheRequest<'_>, owner: Option<&KeyOwner>) {
        if owner.is_some() {
            peers::keeps(ctx, ask, &mut self.opening);
        }
    }

    /// Counts the revalidation. Returns whether the response stays stored.
    fn settle(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        ask: &CacheRequest<'_>,
        status: u16,
    ) -> bool {
        let is_stored = self.ending == MissEnding::Validated;
        if let Some(cell) = counters::cell(ctx, routed).filter(|_| is_stored) {
            cell.stored.increment();
        }
        ask.settle(status, self.ending);
        is_stored
    }

    fn carry_out(self, ask: &CacheRequest<'_>, lead: Lead, object: &Object) -> Arc<Object> {
        if self.ending == MissEnding::Validated {
            let new = lead.renew(object, self.opening);
            coded::renew(&ask.cache.store, object, &new);
            return new;
        }
        // The 304 forbids storing. This client still gets the response, and the store forgets it.
        lead.release(object, self.opening, ask.now_ms / 1000 + REFUSED_FOR_SECONDS)
    }
}

/// Updates a stored response by the response to a HEAD, or makes it stale if they do not match (RFC 9111 §4.3.5).
pub(super) fn freshen(
    (ctx, routed): (&ExchangeContext<'_>, &RoutedRequest),
    memory: &SlotMemory,
    ask: &CacheRequest<'_>,
    object: &Arc<Object>,
) {
    let (head, bytes) = (&memory.response.head, memory.response.buffer.filled());
    if !is_head_of(head, bytes, object.stored(), object.head(), object.body_bytes()) {
        // The HEAD describes another response. The disk must learn of it, too: after a restart, its record would be
        // fresh.
        if !object.is_softly_purged() {
            object.purge(Force::Soft);
            ask.cache.store.forget_behind(ask.key);
        }
    } else if let MissRole::Lead(lead) = ask.join(&memory.request, Some(object))
        && let Some(renewal) = RevalidatedResponse::merged((ctx, routed), ask, object, memory)
    {
        renewal.carry_out(ask, lead, object);
    }
}

/// Stores a completed response: the stored part, and the rest while it arrives.
fn complete(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    lead: Lead,
    reply: Reply,
    part: &Object,
    renewal: RevalidatedResponse,
) -> Fetched {
    let Exchange { ctx, routed, .. } = *exchange;
    ask.settle(206, MissEnding::Stored);
    let refused_until_seconds = ask.now_ms / 1000 + REFUSED_FOR_SECONDS;
    let (mut fill, reader) = lead.open(renewal.opening);
    for piece in part.body(0..part.body_bytes()) {
        fill.push(piece, refused_until_seconds);
    }
    // The part is replaced: if the rest breaks off, a longer part is stored.
    part.purge(Force::Hard);
    add_named_fields(ask, &mut exchange.memory.response);
    add_cookies(ask, &mut exchange.memory.response);
    exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
    Filling::new(ctx, routed, refused_until_seconds, fill, reply).begin(&mut exchange.memory.response);
    Fetched::Coming(reader)
}

/// Stores a partial response (206) to a single request while it arrives, if it may be stored.
pub(super) fn part(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    reply: Reply,
) -> Result<FillReader, Reply> {
    let Exchange { ctx, routed, .. } = *exchange;
    if exchange.memory.response.head.start.status != 206 || !ask.asked.brings_part() || ask.is_rare {
        return Err(reply);
    }
    let opening = opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, &reply).ok();
    let lead = opening.filter(is_kept_part).zip(ask.cache.store.lead_part(ask.key));
    let Some((opening, lead)) = lead else { return Err(reply) };
    ask.settle(206, MissEnding::Stored);
    Ok(store(exchange, ask, lead, opening, reply))
}

/// Whether a part has a strong validator, and the announced length.
fn is_kept_part(opening: &Opening) -> bool {
    // RFC 9111 §3.4: parts are only combined by a strong validator.
    let Some(part) = opening.stored.part else { return false };
    opening.body_bytes == Some(part.end - part.start)
        && opening.stored.strong_validator(&opening.head).is_some()
}

/// Adds response fields that are not stored for the client that has asked.
fn add_named_fields(ask: &CacheRequest<'_>, response: &mut CurrentResponse) {
    write_named_fields(&mut response.added, &response.head, response.buffer.filled(), ask.policy);
}

/// Adds cookies of a revalidating or completing response for the client that has asked.
fn add_cookies(ask: &CacheRequest<'_>, response: &mut CurrentResponse) {
    write_cookies(&mut response.added, &response.head, response.buffer.filled(), ask.policy);
}

/// Gives the connection of a response without a body back to the pool.
fn give_back(ctx: &ExchangeContext<'_>, reply: Reply, response: &CurrentResponse) {
    // RFC 9112 §9.3: bytes after a response belong to no request, so the connection is not reused.
    if reply.persists && response.buffer.len() == response.head.len {
        let server = &ctx.snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, ctx.client, &ctx.worker.deadlines);
    }
}

/// Stores a response while it arrives, if it may be stored.
fn settle(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    mut lead: Lead,
    reply: Reply,
    found: Option<&Arc<Object>>,
    owner: Option<&KeyOwner>,
) -> Fetched {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = exchange.memory.response.head.start.status;
    // Any answer but 304 and server errors makes the stored response obsolete, even one that may not be stored itself.
    lead.outdates(ask.outdated(exchange.memory, found));
    match opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, &reply) {
        Ok(mut opening) => {
            // Not hot, or without room: the response passes, and other requests ask the owner themselves.
            if owner.is_some() && !peers::keeps(ctx, ask, &mut opening) {
                lead.refuse(0);
                return Fetched::Passing(reply, None);
            }
            ask.settle(status, MissEnding::Stored);
            Fetched::Coming(store(exchange, ask, lead, opening, reply))
        }
        Err(refusal) => {
            counters::refused(ctx, routed, refusal);
            ask.settle(status, MissEnding::Refused(refusal));
            // A failed server, or a reason in this request, says nothing about the next response: requests still
            // collapse.
            let is_passing = is_passing(status, refusal);
            lead.refuse(if is_passing { 0 } else { ask.now_ms / 1000 + REFUSED_FOR_SECONDS });
            Fetched::Passing(reply, Some(refusal))
        }
    }
}

/// Whether a refusal says nothing about later responses: the server has failed, or the reason lies in this request.
pub(super) fn is_passing(status: u16, refusal: NotStored) -> bool {
    status >= 500
        || matches!(
            refusal,
            NotStored::Status
                | NotStored::RequestNoStore
                | NotStored::Coding
                | NotStored::VaryPersonal
                | NotStored::Host
        )
}

/// Returns why a response may not be stored, if so.
pub(super) fn refusal(
    exchange: &Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    reply: &Reply,
) -> Option<NotStored> {
    let Exchange { ctx, routed, .. } = *exchange;
    opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, reply).err()
}

/// Stores a response to a request that was sent separately, while it arrives, if it may be stored. Otherwise returns
/// the reason, unless that lies in the request.
pub(super) fn settle_apart(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    apart: Apart,
    reply: Reply,
    outdated: Option<Arc<Object>>,
) -> Result<FillReader, (Reply, Option<NotStored>)> {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = exchange.memory.response.head.start.status;
    let opening = opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, &reply);
    let refusal = opening.as_ref().err().copied().filter(|refusal| *refusal != NotStored::Status);
    if let Some(refusal) = refusal {
        counters::refused(ctx, routed, refusal);
    }
    // A part is stored by `part`, if at all.
    let opening = opening.ok().filter(|opening| opening.stored.part.is_none());
    let lead =
        opening.as_ref().and_then(|opening| ask.cache.store.lead_apart(ask.key, apart, opening.body_bytes));
    let Some((opening, mut lead)) = opening.zip(lead) else {
        if let Some(outdated) = outdated {
            ask.cache.store.withdraw(&outdated);
        }
        return Err((reply, refusal));
    };
    lead.outdates(outdated);
    ask.settle(status, MissEnding::Stored);
    Ok(store(exchange, ask, lead, opening, reply))
}

/// Stores a response while it arrives.
fn store(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    lead: Lead,
    opening: Opening,
    reply: Reply,
) -> FillReader {
    let Exchange { ctx, routed, .. } = *exchange;
    add_named_fields(ask, &mut exchange.memory.response);
    let (fill, reader) = lead.open(opening);
    exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
    let refused_until_seconds = ask.now_ms / 1000 + REFUSED_FOR_SECONDS;
    Filling::new(ctx, routed, refused_until_seconds, fill, reply).begin(&mut exchange.memory.response);
    reader
}

/// Returns what is stored of a response before its body.
fn opening(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    ask: &CacheRequest<'_>,
    request: &CurrentRequest,
    response: &CurrentResponse,
    reply: &Reply,
) -> Result<Opening, NotStored> {
    let (head, bytes) = (&response.head, response.buffer.filled());
    // Lines added for this client, such as a session cookie, are not stored. An error page is put in place for each
    // response.
    if answer::stand_in(ctx, routed.policies(ctx), head.start.status).is_some() {
        return Err(NotStored::StatusTtlZero);
    }
    // The file itself is sent from memory, so its name need not be stored.
    if routed.policies(ctx).is_some_and(|policies| policies.accel.is_some()) && names_file(head, bytes) {
        return Err(NotStored::StatusTtlZero);
    }
    let (request_bytes, uri) = (request.head_bytes(), uri(ctx, routed, request));
    // If a server repeated such a host or path, clients that request the plain form would get it.
    if !uri.is_plain() {
        return Err(NotStored::Host);
    }
    let passes = ask.passing.passes(&request.head, request_bytes);
    Vary::check_ignored((&request.head, request_bytes), passes, (head, bytes), ask.policy)?;
    let vary = Vary::new(head, bytes, ask.policy)?;
    sent::check(ctx, routed, &vary)?;
    // Accept-Encoding is reduced to the common codings. A body in another coding must not answer clients without
    // it.
    vary.check_coding(ask.codings(request), head, bytes, ask.policy)?;
    let mut kept = KeptHead::default();
    let ttl_ms = lifetimes::of_response(ctx, routed, request, response, reply);
    let times = StoredTimes { ttl_ms, ..ask.times(ctx) };
    let stored = ::cache::admit(&ask.asked, head, bytes, times, ask.policy, &mut kept)?;
    let body_bytes = match reply.framing {
        BodyFraming::None => Some(0),
        BodyFraming::Length(length) => Some(length),
        BodyFraming::Chunked | BodyFraming::UntilClose => None,
    };
    // A known length is refused before a byte is kept; an unknown one as soon as it exceeds the limit.
    if body_bytes.is_some_and(|length| length > ask.cache.store.object_bytes_max()) {
        return Err(NotStored::TooLarge);
    }
    let mut key_text = Vec::new();
    let values = key_values(ctx, routed, request);
    write_key(&mut key_text, &uri, &ask.policy.key, (&request.head, request_bytes), passes, values);
    Ok(Opening {
        stored,
        variant: ask.variant(&vary, request),
        vary,
        key_text: key_text.into(),
        head: kept.shown.into(),
        hidden: kept.hidden.into(),
        labels: labels(ask.cache.secret, &uri, &ask.policy.key, head, bytes),
        body_bytes,
        // Created now, so that forms made while the body arrives are kept with it.
        forms: coded::may_have_forms(ctx, routed, &stored).then(Default::default),
    })
}

/// Whether a server names a file in place of a body.
fn names_file(head: &ResponseHead, bytes: &[u8]) -> bool {
    [b"x-accel-redirect".as_slice(), b"x-sendfile"]
        .into_iter()
        .any(|name| seen::line(head, bytes, name).is_some())
}

impl CacheRequest<'_> {
    /// Whether the response that another request has brought may be reused for this one (RFC 9111 §4). Another variant
    /// is requested again.
    fn takes(&self, ctx: &ExchangeContext<'_>, request: &CurrentRequest, waited: &Waited) -> bool {
        // The wait took time, so freshness is judged at the moment of the answer.
        let ask = Self { now_ms: ctx.worker.unix_ms(), ..*self };
        let (decision, stored, head) = match waited {
            Waited::Hit(object) if ask.is_ours(request, object.vary(), object.variant()) => {
                (ask.decide(Some(object)), object.stored(), object.head())
            }
            Waited::Stream(reader) => {
                let Opening { stored, head, vary, variant, .. } = reader.opening();
                if !ask.is_ours(request, vary, *variant) {
                    return true;
                }
                (ask.decide_about(stored), stored, &**head)
            }
            _ => return true,
        };
        matches!(decision, Decision::Serve(_))
            && judge_conditions(&ask.asked, &request.head, request.head_bytes(), stored, head)
                != PreconditionResult::AskOrigin
    }

    /// Whether the stored response would have answered this request when it arrived.
    fn shared(&self, object: &Object) -> bool {
        let ask = Self { now_ms: object.stored().received_ms, ..*self };
        matches!(ask.decide_about(object.stored()), Decision::Serve(_))
    }

    /// Whether no server may be asked (RFC 9111 §5.2.1.7).
    fn wants_stored_only(&self) -> bool {
        self.asked.directives.only_if_cached && !self.policy.ignore.request_directives
    }

    /// Reports the fate of the response to waiting requests.
    pub(super) fn settle(&self, status: u16, ending: MissEnding) {
        self.cache.store.settle(self.key, status, ending);
    }

    /// Returns the stored response that this response makes obsolete. A stored part is removed at once, because its
    /// completion would be of another version.
    pub(super) fn outdated(&self, memory: &SlotMemory, found: Option<&Arc<Object>>) -> Option<Arc<Object>> {
        let is_outdated = |object: &&Arc<Object>| self.is_outdated(memory, Some(object));
        let part = self.cache.store.part(self.key, |vary| self.variant(vary, &memory.request));
        if let Some(part) = part.as_ref().filter(is_outdated) {
            self.cache.store.withdraw(part);
        }
        found.filter(is_outdated).cloned()
    }

    /// Removes an obsolete response from the disk, if the disk was not read.
    pub(super) fn forget_unread(&self, memory: &SlotMemory, miss: &Miss) {
        if miss.may_be_on_disk && self.is_outdated(memory, None) {
            self.cache.store.forget_behind(self.key);
        }
    }

    fn is_outdated(&self, memory: &SlotMemory, object: Option<&Arc<Object>>) -> bool {
        let (head, bytes) = (&memory.response.head, memory.response.buffer.filled());
        let known = object.map(|object| (object.stored(), object.head()));
        outdates(&self.asked, head, bytes, known, self.policy)
    }

    /// Returns a stored part whose rest can be requested.
    fn unfinished(&self, request: &CurrentRequest) -> Option<Arc<Object>> {
        let part = self.cache.store.part(self.key, |vary| self.variant(vary, request))?;
        let missing = part.stored().part?.missing()?;
        // Only a beginning is completed, because the rest is appended to it.
        (missing.start > 0).then_some(part)
    }

    /// The times of request and response, for the age.
    fn times(&self, ctx: &ExchangeContext<'_>) -> StoredTimes {
        StoredTimes { requested_ms: self.now_ms, received_ms: ctx.worker.unix_ms(), ttl_ms: None }
    }
}
