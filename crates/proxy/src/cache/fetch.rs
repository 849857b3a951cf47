//! Fetches: one request asks a server for all that want the same response, or revalidates a stored one.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use ::cache::{
    Apart, Decision, Ending, Force, Freshness, Handling, Joined, Lead, Object, Opening, OriginError, Reader,
    Refreshed, Refusal, Times, Vary, Verdict, Waited, also_labelled, completes, is_about, is_head_of,
    judge_conditions, labels, refresh, write_completion, write_conditions, write_cookies, write_key,
    write_named_fields,
};
use http1::Framing;

use super::fill::Filling;
use super::peers::{self, Owner};
use super::{Ask, Looked, Miss, REFUSED_FOR_SECONDS, coded, counters, hit, live, pass, sent, serve, uri};
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request, Response};
use crate::context::failure::{Failure, Party};
use crate::forward::answer;
use crate::forward::{Gone, Reply, unless_gone};
use transport::cold::cold;
use transport::deadline::{Elapsed, Ticks};

/// How often a request waits for what turns out to be another variant, before it goes on by itself.
const WAITS_MAX: usize = 4;

/// A disk that takes longer is slower than a server.
const RECALL_LIMIT: Ticks = Ticks(10);

/// Asks a server, or waits for a request that is doing so.
pub(super) async fn ask(exchange: &mut Exchange<'_, '_>, ask: &Ask<'_>, miss: Miss) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let collapsed =
        Handling::Forwarded { forward: miss.forward, status: None, is_stored: false, is_collapsed: true };
    for round in 0..WAITS_MAX {
        let waited = wait(ctx, routed, ask, &exchange.memory.request, miss.found.as_ref()).await?;
        let waited = if ask.takes(ctx, &exchange.memory.request, &waited) { waited } else { Waited::Refused };
        if miss.may_be_on_disk && round == 0 {
            tell(ctx, routed, &waited, &miss);
        }
        match waited {
            Waited::Lead(lead) => return lead_all(exchange, ask, (lead, miss)).await,
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
            // Another variant: by now the store knows how they differ.
            Waited::Hit(_) | Waited::Stream(_) => {}
            Waited::Failed => {
                let found = miss.found.filter(|object| ask.stands_in(object, OriginError::Unreachable));
                let Some(object) = found else { return Err(Failure::FetchFailed) };
                counters::stale(ctx, routed);
                return hit::stored(exchange, &object, ask.report(ctx, collapsed)).await;
            }
            Waited::Refused => break,
        }
    }
    // RFC 9111 §5.2.1.7: what others wait for is not for this one, and it does not ask itself.
    if ask.wants_stored_only() {
        return Err(Failure::NotStored);
    }
    pass::pass(exchange, ask, miss).await
}

/// Counts a request that the disk may have answered, if another one has looked there.
fn tell(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, waited: &Waited, miss: &Miss) {
    match waited {
        Waited::Lead(_) => {}
        Waited::Hit(_) => counters::hit(ctx, routed),
        Waited::Stream(_) | Waited::Refused | Waited::Failed => counters::miss(ctx, routed, miss.forward),
    }
}

/// What comes of asking the store once more, and of waiting for another request for the same.
async fn wait(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    ask: &Ask<'_>,
    request: &Request,
    found: Option<&Arc<Object>>,
) -> Result<Waited, Failure> {
    Ok(match ask.join(request, found) {
        Joined::Hit(object) => Waited::Hit(object),
        Joined::Lead(lead) => Waited::Lead(lead),
        Joined::Stream(reader) => Waited::Stream(reader),
        Joined::Pass => Waited::Refused,
        // What is stored could not be shared when it came: waiting for the next would be in vain.
        Joined::Wait(_) if found.is_some_and(|found| !ask.shared(found)) => Waited::Refused,
        Joined::Wait(mut wait) => {
            counters::wait(ctx, routed);
            // Whoever leads keeps to its time-outs, and hands over when it goes away.
            let waited = unless_gone(ctx.client, pin!(poll_fn(|context| wait.poll(context)))).await;
            waited.map_err(|_| Failure::ClientGone)?
        }
    })
}

/// Asks for all, and answers one's own client.
async fn lead_all(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    (lead, mut miss): (Lead, Miss),
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if miss.may_be_on_disk {
        if let Some(found) = cold(|| recall(ctx, routed, &exchange.memory.request, ask, &mut miss)).await? {
            lead.restore(&found.object);
            return serve_recalled(exchange, ask, found).await;
        }
        if !ask.is_for_all(miss.found.as_ref()) {
            drop(lead);
            return pass::pass(exchange, ask, miss).await;
        }
    }
    let forwarded = |status, is_stored| {
        let forward = miss.forward;
        ask.report(ctx, Handling::Forwarded { forward, status, is_stored, is_collapsed: false })
    };
    ask.cache.store.note(ask.key, ask.now_ms, miss.forward);
    match fetch(exchange, ask, lead, (miss.found.as_ref(), miss.owner.as_ref())).await? {
        Fetched::Stored { object, status, is_stored } => {
            hit::stored(exchange, &object, forwarded(status, is_stored)).await
        }
        Fetched::Coming(reader) => live::coming(exchange, reader, forwarded(None, true)).await,
        Fetched::Passing(reply, _) if miss.owner.is_some() => {
            peers::relay(exchange, ask, (reply, miss.forward)).await
        }
        Fetched::Passing(reply, refusal) => pass::relay(exchange, (reply, miss.forward, refusal)).await,
    }
}

/// Reads the disk for a request whose response would not be stored, and asks a server if nothing is there. Waits for no
/// other request.
pub(super) async fn ask_disk(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    mut miss: Miss,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let joined = ask.join(&exchange.memory.request, None);
    let Some(found) = cold(|| recall(ctx, routed, &exchange.memory.request, ask, &mut miss)).await? else {
        drop(joined);
        return pass::pass(exchange, ask, miss).await;
    };
    if let Joined::Lead(lead) = joined {
        lead.restore(&found.object);
    }
    serve_recalled(exchange, ask, found).await
}

/// What the disk has, and may be served.
struct Recalled {
    object: Arc<Object>,
    freshness: Freshness,
}

/// What the disk has that answers a request; else why it is a miss, which counts from here.
async fn recall(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
    ask: &Ask<'_>,
    miss: &mut Miss,
) -> Result<Option<Recalled>, Failure> {
    if let Some(object) = read(ctx, ask, request).await? {
        match ask.decide(Some(&object)) {
            Decision::Serve(freshness) => return Ok(Some(Recalled { object, freshness })),
            Decision::Validate(forward) | Decision::Forward(forward) => {
                (miss.found, miss.forward) = (Some(object), forward);
            }
            Decision::OnlyIfCached => {}
        }
    }
    if ask.wants_stored_only() {
        return Err(Failure::NotStored);
    }
    counters::miss(ctx, routed, miss.forward);
    Ok(None)
}

/// What the disk has for a request.
async fn read(
    ctx: &ExchangeContext<'_>,
    ask: &Ask<'_>,
    request: &Request,
) -> Result<Option<Arc<Object>>, Failure> {
    let Some(tier) = ask.cache.second_tier.tier() else { return Ok(None) };
    let recalled = pin!(tier.recall(ask.key, |vary| ask.variant(vary, request)));
    let deadline = ctx.worker.deadlines.deadline();
    match deadline.within(RECALL_LIMIT, unless_gone(ctx.client, recalled)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(Gone)) => Err(Failure::ClientGone),
        Err(Elapsed) => Ok(None),
    }
}

async fn serve_recalled(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    Recalled { object, freshness }: Recalled,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    match ask.serve(ctx, routed, &exchange.memory.request, object, freshness) {
        Looked::Hit(hit) => serve(exchange, &hit).await,
        Looked::Miss(miss) => pass::pass(exchange, ask, miss).await,
    }
}

/// The outcome of a fetch.
pub(super) enum Fetched {
    /// A stored response answers: it is still valid, or replaces the response of a server that failed.
    Stored { object: Arc<Object>, status: Option<u16>, is_stored: bool },
    /// A response that is stored while it arrives.
    Coming(Reader),
    /// A response that is not stored, and why, if that is about the response.
    Passing(Reply, Option<Refusal>),
}

/// Asks a server; if a response is stored, revalidates it.
pub(super) async fn fetch(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    lead: Lead,
    (found, owner): (Option<&Arc<Object>>, Option<&Owner>),
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
            Err(failure) => (failure.facts().party != Party::Client).then_some(OriginError::Unreachable),
        };
        if let (Some(error), Some(object)) = (error, found)
            && ask.stands_in(object, error)
            && lead.may_stand_in(object)
        {
            lead.fail();
            counters::stale(ctx, routed);
            if outcome.is_ok() {
                exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
            }
            let status = outcome.is_ok().then_some(status);
            if let Some(status) = status {
                ask.settle(status, Ending::Failed);
            }
            return Ok(Fetched::Stored { object: Arc::clone(object), status, is_stored: false });
        }
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => {
                // What went wrong with this client is nothing to the others: dropped, one of them leads.
                if error.is_some() {
                    lead.fail();
                }
                return Err(failure);
            }
        };
        if let Some(part) = part.take().filter(|_| matches!(status, 206 | 304 | 416)) {
            let Some(renewal) = Renewal::of_part(ctx, ask, &part, &exchange.memory.response) else {
                // It is not what was asked for: the origin is asked once more, for all of it.
                continue;
            };
            return Ok(complete(exchange, ask, (lead, reply), (&part, renewal)));
        }
        let Some(object) = known.filter(|_| status == 304) else {
            return Ok(settle(exchange, ask, (lead, reply), owner.is_some()));
        };
        let renewal = Renewal::of(ctx, ask, object, &exchange.memory.response);
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
        // RFC 9111 §4.3.4: nothing that is stored is meant, so the origin is asked once more, for all of it.
        known = None;
    }
}

/// The lines that ask whether what is stored is still good, or for what is missing of it; none ask for all of it.
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

/// What a 304 makes of a stored response.
struct Renewal {
    opening: Opening,
    /// Whether it stays stored.
    ending: Ending,
}

impl Renewal {
    /// `None` where it is about something else, or what is stored cannot take it up.
    fn of(ctx: &ExchangeContext<'_>, ask: &Ask<'_>, object: &Object, response: &Response) -> Option<Self> {
        let (head, bytes) = (&response.head, response.buffer.filled());
        if !is_about(head, bytes, object.stored(), object.head()) {
            return None;
        }
        Self::merged(ctx, ask, object, response)
    }

    /// `None` where what is stored cannot take it up.
    fn merged(
        ctx: &ExchangeContext<'_>,
        ask: &Ask<'_>,
        object: &Object,
        response: &Response,
    ) -> Option<Self> {
        let (head, bytes) = (&response.head, response.buffer.filled());
        let times = ask.times(ctx);
        let limits = &ctx.snapshot.head_limits;
        let (old, old_head) = (object.stored(), object.head());
        let mut kept = Vec::new();
        let refreshed =
            refresh(&ask.asked, old, old_head, head, bytes, times, ask.policy, limits, &mut kept).ok()?;
        let (stored, ending) = match refreshed {
            Refreshed::Stored(stored) => (stored, Ending::Validated),
            Refreshed::Unstored(stored, refusal) => (stored, Ending::Refused(refusal)),
        };
        let opening = Opening {
            stored,
            vary: object.vary().clone(),
            variant: object.variant(),
            key_text: object.key_text().into(),
            head: kept.into(),
            labels: also_labelled(ask.cache.secret, object.labels(), head, bytes),
            body_bytes: Some(object.body_bytes()),
            forms: None,
        };
        Some(Self { opening, ending })
    }

    /// What a response makes of a part that it completes; `None` where it does not.
    fn of_part(ctx: &ExchangeContext<'_>, ask: &Ask<'_>, part: &Object, response: &Response) -> Option<Self> {
        let (head, bytes) = (&response.head, response.buffer.filled());
        if !completes(head, bytes, part.stored(), part.head()) {
            return None;
        }
        let mut renewal = Self::of(ctx, ask, part, response)?;
        renewal.opening.body_bytes = part.stored().part?.whole_bytes;
        renewal.opening.stored.part = None;
        (renewal.ending == Ending::Validated).then_some(renewal)
    }

    /// Shortens the time for which it is kept, if another instance owns it.
    fn is_of(&mut self, ctx: &ExchangeContext<'_>, ask: &Ask<'_>, owner: Option<&Owner>) {
        if owner.is_some() {
            peers::keeps(ctx, ask, &mut self.opening);
        }
    }

    /// Counts it, and says whether what it renews stays stored.
    fn settle(&self, ctx: &ExchangeContext<'_>, routed: &RoutedRequest, ask: &Ask<'_>, status: u16) -> bool {
        let is_stored = self.ending == Ending::Validated;
        if let Some(cell) = counters::cell(ctx, routed).filter(|_| is_stored) {
            cell.stored.increment();
        }
        ask.settle(status, self.ending);
        is_stored
    }

    fn carry_out(self, ask: &Ask<'_>, lead: Lead, object: &Object) -> Arc<Object> {
        if self.ending == Ending::Validated {
            let new = lead.renew(object, self.opening);
            coded::renew(&ask.cache.store, object, &new);
            return new;
        }
        lead.release(object, self.opening, ask.now_ms / 1000 + REFUSED_FOR_SECONDS)
    }
}

/// RFC 9111 §4.3.5: updates a stored response by the response to a HEAD, or makes it stale if they do not match.
pub(super) fn freshen(ctx: &ExchangeContext<'_>, memory: &Memory, ask: &Ask<'_>, object: &Arc<Object>) {
    let (head, bytes) = (&memory.response.head, memory.response.buffer.filled());
    if !is_head_of(head, bytes, object.stored(), object.head(), object.body_bytes()) {
        if !object.is_softly_purged() {
            object.purge(Force::Soft);
            ask.cache.store.forget_behind(ask.key);
        }
    } else if let Joined::Lead(lead) = ask.join(&memory.request, Some(object))
        && let Some(renewal) = Renewal::merged(ctx, ask, object, &memory.response)
    {
        renewal.carry_out(ask, lead, object);
    }
}

/// Has what is stored of a part stored as a whole, with the rest as it comes.
fn complete(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    (lead, reply): (Lead, Reply),
    (part, renewal): (&Object, Renewal),
) -> Fetched {
    let Exchange { ctx, routed, .. } = *exchange;
    ask.settle(206, Ending::Stored);
    let refused_until_seconds = ask.now_ms / 1000 + REFUSED_FOR_SECONDS;
    let (mut fill, reader) = lead.open(renewal.opening);
    for piece in part.body(0..part.body_bytes()) {
        fill.push(piece, refused_until_seconds);
    }
    // If the rest dies too, there is a longer one.
    part.purge(Force::Hard);
    add_named_fields(ask, &mut exchange.memory.response);
    add_cookies(ask, &mut exchange.memory.response);
    exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
    Filling::new(ctx, routed, refused_until_seconds, fill, reply).begin(&mut exchange.memory.response);
    Fetched::Coming(reader)
}

/// Stores a partial response (206) to one client's request while it arrives, if it may be stored.
pub(super) fn part(exchange: &mut Exchange<'_, '_>, ask: &Ask<'_>, reply: Reply) -> Result<Reader, Reply> {
    let Exchange { ctx, routed, .. } = *exchange;
    if exchange.memory.response.head.start.status != 206 || !ask.asked.brings_part() {
        return Err(reply);
    }
    let opening = opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, &reply).ok();
    let lead = opening.filter(is_kept_part).zip(ask.cache.store.lead_part(ask.key));
    let Some((opening, lead)) = lead else { return Err(reply) };
    ask.settle(206, Ending::Stored);
    Ok(store(exchange, ask, (lead, opening, reply)))
}

/// Whether a part can be told from others, and is as long as is said.
fn is_kept_part(opening: &Opening) -> bool {
    let Some(part) = opening.stored.part else { return false };
    opening.body_bytes == Some(part.end - part.start)
        && opening.stored.strong_validator(&opening.head).is_some()
}

/// What is not stored of a response goes to the client that has asked for it.
fn add_named_fields(ask: &Ask<'_>, response: &mut Response) {
    write_named_fields(&mut response.added, &response.head, response.buffer.filled(), ask.policy);
}

/// The cookies that come with what validates or completes a stored response go to the client that has asked for it.
fn add_cookies(ask: &Ask<'_>, response: &mut Response) {
    write_cookies(&mut response.added, &response.head, response.buffer.filled(), ask.policy);
}

/// Gives back the connection of a response that had no body.
fn give_back(ctx: &ExchangeContext<'_>, reply: Reply, response: &Response) {
    // RFC 9112 §9.3: what a server sends beyond its response belongs to no request.
    if reply.persists && response.buffer.len() == response.head.len {
        let server = &ctx.snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, ctx.client, &ctx.worker.deadlines);
    }
}

/// Has a response stored as it comes, if it may be.
fn settle(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    (lead, reply): (Lead, Reply),
    is_of_others: bool,
) -> Fetched {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = exchange.memory.response.head.start.status;
    match opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, &reply) {
        Ok(mut opening) => {
            if is_of_others && !peers::keeps(ctx, ask, &mut opening) {
                lead.refuse(0);
                return Fetched::Passing(reply, None);
            }
            ask.settle(status, Ending::Stored);
            Fetched::Coming(store(exchange, ask, (lead, opening, reply)))
        }
        Err(refusal) => {
            counters::refused(ctx, routed, refusal);
            ask.settle(status, Ending::Refused(refusal));
            let is_passing = is_passing(status, refusal);
            lead.refuse(if is_passing { 0 } else { ask.now_ms / 1000 + REFUSED_FOR_SECONDS });
            Fetched::Passing(reply, Some(refusal))
        }
    }
}

/// Whether a refusal says nothing of the next response: it is about what a server says while it fails, or of one request
/// alone.
pub(super) fn is_passing(status: u16, refusal: Refusal) -> bool {
    status >= 500
        || matches!(
            refusal,
            Refusal::Status
                | Refusal::RequestNoStore
                | Refusal::Coding
                | Refusal::VaryPersonal
                | Refusal::Host
        )
}

/// Why a response may not be stored, if that is so.
pub(super) fn refusal(exchange: &Exchange<'_, '_>, ask: &Ask<'_>, reply: &Reply) -> Option<Refusal> {
    let Exchange { ctx, routed, .. } = *exchange;
    opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, reply).err()
}

/// Stores a response to a request that was sent by itself, while it arrives, if it may be stored. Else returns the
/// reason, unless that concerns the request alone.
pub(super) fn settle_apart(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    (apart, reply): (Apart, Reply),
) -> Result<Reader, (Reply, Option<Refusal>)> {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = exchange.memory.response.head.start.status;
    let opening = match opening(ctx, routed, ask, &exchange.memory.request, &exchange.memory.response, &reply)
    {
        Ok(opening) => opening,
        Err(Refusal::Status) => return Err((reply, None)),
        Err(refusal) => {
            counters::refused(ctx, routed, refusal);
            return Err((reply, Some(refusal)));
        }
    };
    // A part of the whole is stored elsewhere, if it is at all.
    let opening = Some(opening).filter(|opening| opening.stored.part.is_none());
    let lead =
        opening.as_ref().and_then(|opening| ask.cache.store.lead_apart(ask.key, apart, opening.body_bytes));
    let Some((opening, lead)) = opening.zip(lead) else { return Err((reply, None)) };
    ask.settle(status, Ending::Stored);
    Ok(store(exchange, ask, (lead, opening, reply)))
}

/// Has a response stored as it comes.
fn store(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    (lead, opening, reply): (Lead, Opening, Reply),
) -> Reader {
    let Exchange { ctx, routed, .. } = *exchange;
    add_named_fields(ask, &mut exchange.memory.response);
    let (fill, reader) = lead.open(opening);
    exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
    let refused_until_seconds = ask.now_ms / 1000 + REFUSED_FOR_SECONDS;
    Filling::new(ctx, routed, refused_until_seconds, fill, reply).begin(&mut exchange.memory.response);
    reader
}

/// What is stored of a response, up to its body.
fn opening(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    ask: &Ask<'_>,
    request: &Request,
    response: &Response,
    reply: &Reply,
) -> Result<Opening, Refusal> {
    let (head, bytes) = (&response.head, response.buffer.filled());
    // What was added for this client, such as the cookie of its session, is not part of the head, and not stored.
    // A page stands in for it each time.
    if answer::stand_in(ctx, routed.policies(ctx), head.start.status).is_some() {
        return Err(Refusal::StatusTtlZero);
    }
    let (request_bytes, uri) = (request.head_bytes(), uri(ctx, routed, request));
    // A server that repeats it would be heard by all who name it plainly.
    if !uri.is_plain() {
        return Err(Refusal::Host);
    }
    let passes = ask.passing.passes(&request.head, request_bytes);
    Vary::check_ignored((&request.head, request_bytes), passes, (head, bytes), ask.policy)?;
    let vary = Vary::of(head, bytes, ask.policy)?;
    sent::check(ctx, routed, &vary)?;
    vary.check_coding(ask.codings(request), head, bytes, ask.policy)?;
    let mut kept = Vec::new();
    let stored = ::cache::admit(&ask.asked, head, bytes, ask.times(ctx), ask.policy, &mut kept)?;
    let body_bytes = match reply.framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    if body_bytes.is_some_and(|length| length > ask.cache.store.object_bytes_max()) {
        return Err(Refusal::TooLarge);
    }
    let mut key_text = Vec::new();
    write_key(&mut key_text, &uri, &ask.policy.key, &request.head, request_bytes, passes);
    Ok(Opening {
        stored,
        variant: ask.variant(&vary, request),
        vary,
        key_text: key_text.into(),
        head: kept.into(),
        labels: labels(ask.cache.secret, &uri, &ask.policy.key, head, bytes),
        body_bytes,
        // From the beginning, so that what is made of the body while it arrives is kept beside it.
        forms: coded::may_have_forms(ctx, routed, &stored).then(Default::default),
    })
}

impl Ask<'_> {
    /// RFC 9111 §4: what another request has brought answers this one only if it could be reused for it as it is, now.
    /// Another variant is asked for once more, whatever it says.
    fn takes(&self, ctx: &ExchangeContext<'_>, request: &Request, waited: &Waited) -> bool {
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
                != Verdict::AskOrigin
    }

    /// Whether what is stored would have answered this request at the moment when it came, had it been waited for.
    fn shared(&self, object: &Object) -> bool {
        let ask = Self { now_ms: object.stored().received_ms, ..*self };
        matches!(ask.decide_about(object.stored()), Decision::Serve(_))
    }

    /// Whether a server is not to be asked for it (RFC 9111 §5.2.1.7).
    fn wants_stored_only(&self) -> bool {
        self.asked.directives.only_if_cached && !self.policy.ignore.request_directives
    }

    /// Tells waiting requests what became of the response.
    pub(super) fn settle(&self, status: u16, ending: Ending) {
        self.cache.store.settle(self.key, status, ending);
    }

    /// A stored part whose rest can be asked for.
    fn unfinished(&self, request: &Request) -> Option<Arc<Object>> {
        let part = self.cache.store.part(self.key, |vary| self.variant(vary, request))?;
        let missing = part.stored().part?.missing()?;
        (missing.start > 0).then_some(part)
    }

    /// When the server was asked, and when it answered.
    fn times(&self, ctx: &ExchangeContext<'_>) -> Times {
        Times { requested_ms: self.now_ms, received_ms: ctx.worker.unix_ms() }
    }
}
